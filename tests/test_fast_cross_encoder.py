"""The fast cross-encoder beyond its notebook: no PyTorch and no reports at question time, real texts, damaged folders, failures."""
import io
import json
import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout

import numpy as np
import pytest
from helpers import environment
from msgspec.structs import replace

from cpqa.core.records import Passage
from cpqa.testing.toy_corpus import TOY
from cpqa.passages.cross_encoders import CrossEncoderReranker, EmbeddedCrossEncoder, FastCrossEncoder, prepare_cross_encoder
from cpqa.passages.rerankers import RerankError
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.testing.tiny_models import tiny_bert
from cpqa.retrieval import openvino_models
from cpqa.retrieval.openvino_models import CARD, FILES, ModelError

pytest.importorskip('openvino')
PASSAGES = [p for d in TOY for p in SentenceSplitter(words=8, overlap=0).split(d)]
QUESTION = 'Does aspirin lower the risk of polyps?'
CORRELATION = {'f32': 0.99999, 'bf16': 0.98, 'w8': 0.97, 'int8': 0.7}   # a tiny network of random weights magnifies every rounding


def passage(text: str, **more) -> Passage: return Passage(doc_id='x', start=0, end=len(text), text=text, **more)


@pytest.fixture(scope='module')
def source(tmp_path_factory): return tiny_bert(tmp_path_factory.mktemp('model')/'tiny')


@pytest.fixture(scope='module')
def quantized(source, tmp_path_factory):
    pytest.importorskip('nncf')
    examples = [(d.title, p) for d in TOY for p in PASSAGES]
    with redirect_stdout(io.StringIO()):   # nncf's progress bars
        return prepare_cross_encoder(source, tmp_path_factory.mktemp('fast')/'int8', 'int8', examples)


@pytest.fixture(scope='module')
def folders(source, tmp_path_factory):
    return {p: prepare_cross_encoder(source, tmp_path_factory.mktemp('fast')/p, p) for p in ('f32', 'bf16', 'w8')}


@pytest.fixture(scope='module', params=['f32', 'bf16', 'w8', 'int8'])
def fast(request, folders):
    return FastCrossEncoder(request.getfixturevalue('quantized') if request.param == 'int8' else folders[request.param])


def test_agrees_with_pytorch(fast, source):
    reference = CrossEncoderReranker(source, 'cpu').score(QUESTION, PASSAGES)
    scores = fast.score(QUESTION, PASSAGES)
    assert scores.dtype == np.float32 and np.corrcoef(scores, reference)[0, 1] > CORRELATION[fast.card.precision]
    if fast.card.precision == 'f32': np.testing.assert_allclose(scores, reference, atol=1e-4)


def test_order_and_company_change_nothing(fast, folders, request):
    texts = [passage(f'{p.text} ' * n) for n in (1, 3, 20) for p in PASSAGES]
    scores, order = fast.score(QUESTION, texts), np.random.default_rng(0).permutation(len(texts))
    spread = scores.std()
    np.testing.assert_allclose(fast.score(QUESTION, [texts[i] for i in order]), scores[order], atol=0.05 * spread)
    np.testing.assert_allclose([fast.score(QUESTION, [t])[0] for t in texts[::4]], scores[::4], atol=0.05 * spread)
    other = FastCrossEncoder(request.getfixturevalue('quantized') if fast.card.precision == 'int8' else folders[fast.card.precision],
                             budget=200, threads=1)
    np.testing.assert_allclose(other.score(QUESTION, texts), scores, atol=0.05 * spread)


def test_odd_input(fast):
    assert fast.score(QUESTION, []).shape == (0,)
    odd = [passage(t) for t in (' ', '\x00\x07', 'polyps ' * 5000, '大腸がん', '| a | b |', '\ud800')]
    for question in (QUESTION, '', 'risk ' * 3000): assert np.isfinite(fast.score(question, odd)).all()


def test_what_does_not_fit_is_not_seen(fast):
    long = 'polyps ' * 600
    assert np.ptp(fast.score(QUESTION, [passage(long), passage(long + 'aspirin')])) == 0
    short = FastCrossEncoder.__new__(FastCrossEncoder)
    short.__dict__ |= fast.__dict__ | {'max_tokens': 30}
    assert short.score(QUESTION, [passage('polyps ' * 100)])[0] == short.score(QUESTION, [passage('polyps ' * 40)])[0]


def test_from_several_threads(fast):
    from concurrent.futures import ThreadPoolExecutor
    alone = fast.score(QUESTION, PASSAGES)
    with ThreadPoolExecutor(4) as pool: found = list(pool.map(lambda _: fast.score(QUESTION, PASSAGES), range(8)))
    for scores in found: np.testing.assert_allclose(scores, alone, atol=0.05 * alone.std())


def test_titles_are_read_if_the_card_says_so(fast):
    texts = [passage('a risk', title='Aspirin'), passage('a risk')]
    assert np.ptp(fast.score(QUESTION, texts)) == 0 and fast.describe()['titles'] is False
    titled = FastCrossEncoder.__new__(FastCrossEncoder)
    titled.__dict__ |= fast.__dict__ | {'card': replace(fast.card, titles=True)}
    assert np.ptp(titled.score(QUESTION, texts)) > 0 and titled.describe()['titles'] is True


def test_scoring_needs_no_pytorch_and_reports_nothing(folders, tmp_path):
    code = '''
        import sys
        from cpqa.core.records import Passage
        from cpqa.passages.cross_encoders import FastCrossEncoder
        assert not {'openvino', 'torch'} & set(sys.modules)
        text = 'aspirin lowered the risk'
        print(FastCrossEncoder(sys.argv[1]).score('does it?', [Passage(doc_id='x', start=0, end=len(text), text=text)]).shape)
        print(sorted({'torch', 'transformers', 'nncf', 'sentence_transformers', 'openvino_telemetry'} & set(sys.modules)))
    '''
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(code), str(folders['bf16'])], capture_output=True, text=True,
                          env=environment(HOME=str(tmp_path)))
    assert done.stdout.split('\n')[:2] == ['(1,)', '[]'], done
    assert list(tmp_path.iterdir()) == []


PREPARE = """
    import socket, sys
    def refuse(*a, **k): print('NETWORK', a); raise OSError('no network')
    socket.getaddrinfo = socket.socket.connect = refuse
    from cpqa.testing.toy_corpus import TOY
    from cpqa.passages.cross_encoders import prepare_cross_encoder
    from cpqa.passages.segmenters import SentenceSplitter
    found = [p for d in TOY for p in SentenceSplitter(words=8, overlap=0).split(d)]
    prepare_cross_encoder(sys.argv[1], sys.argv[2], 'int8', [(d.title, p) for d in TOY for p in found])
    from nncf.telemetry import telemetry
    print(type(telemetry).__name__, 'openvino_telemetry' in sys.modules)
"""


@pytest.mark.release
def test_preparing_reports_nothing(source, tmp_path):
    "In a process of its own, with a home of its own, which does not know of the tests' own guard against reports."
    pytest.importorskip('nncf')
    home = tmp_path/'home'
    home.mkdir()
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(PREPARE), str(source), str(tmp_path/'int8')],
                          capture_output=True, text=True, env=environment(HOME=str(home), XDG_CACHE_HOME=str(home/'.cache')))
    assert done.returncode == 0 and done.stdout.strip() == 'MagicMock False', done
    assert not (home/'intel').exists() and not (home/'.cache'/'nncf').exists()


@pytest.mark.parametrize('file', [*FILES, CARD])
def test_damage_is_noticed(file, folders, tmp_path):
    copy = shutil.copytree(folders['f32'], tmp_path/'copy')
    data = (copy/file).read_bytes()
    for spoiled in (data[:len(data) // 2], None):
        (copy/file).write_bytes(spoiled) if spoiled is not None else (copy/file).unlink()
        with pytest.raises(ModelError, match='prepare it again'): FastCrossEncoder(copy)


def test_a_card_of_another_kind_is_refused(folders, tmp_path):
    copy = shutil.copytree(folders['f32'], tmp_path/'copy')
    for card in ('[]', '{}', 'null', json.dumps({'sha256': {}})):
        (copy/CARD).write_text(card)
        with pytest.raises(ModelError, match='prepare it again'): FastCrossEncoder(copy)


def test_a_folder_prepared_before_there_were_models_cards_is_read(folders, tmp_path):
    copy = shutil.copytree(folders['f32'], tmp_path/'copy')
    new = json.loads((copy/CARD).read_text())
    kept = ('model', 'weights', 'precision', 'titles', 'max_tokens', 'pad_id', 'inputs', 'sha256')
    (copy/CARD).write_text(json.dumps({'reranker': 'fast-cross-encoder', **{k: new[k] for k in kept}}))
    assert FastCrossEncoder(copy).describe() == FastCrossEncoder(folders['f32']).describe()


def test_preparing_again_replaces_and_a_failure_leaves_the_old(source, folders, tmp_path, monkeypatch):
    out = shutil.copytree(folders['f32'], tmp_path/'fast')
    first = (out/CARD).read_bytes()
    import openvino
    def full(*a, **k): raise RuntimeError('No space left on device')
    with monkeypatch.context() as m:
        m.setattr(openvino, 'save_model', full)
        m.setattr(openvino_models, 'convert', lambda *a: None)   # saves seconds
        with pytest.raises(ModelError, match='could not be written'): prepare_cross_encoder(source, out, 'bf16')
    with monkeypatch.context() as m:
        m.setattr(openvino, 'convert_model', full)
        with pytest.raises(ModelError, match='cannot convert .*CrossEncoderReranker'): prepare_cross_encoder(source, out, 'f32')
    assert (out/CARD).read_bytes() == first
    with monkeypatch.context() as m:   # a processor with units for sixteen bits: no examples are needed
        m.setattr(openvino_models, 'has_bf16', lambda: True)
        prepare_cross_encoder(source, out, titles=True)
    card = FastCrossEncoder(out).card
    assert (card.precision, card.titles) == ('bf16', True)
    assert os.listdir(tmp_path) == ['fast']


def test_a_processor_without_units_for_sixteen_bits_gets_eight(source, folders, tmp_path, monkeypatch):
    monkeypatch.setattr(openvino_models, 'has_bf16', lambda: False)
    with pytest.raises(ModelError, match='eight bits need examples'): prepare_cross_encoder(source, tmp_path/'fast')
    plain = FastCrossEncoder(folders['bf16'])   # right, but not fast
    assert plain.describe()['runs_in'] == 'f32'
    np.testing.assert_allclose(plain.score(QUESTION, PASSAGES), CrossEncoderReranker(source, 'cpu').score(QUESTION, PASSAGES), atol=0.01)


# ---- the one that comes with cpqa

def test_the_shipped_one_says_which_it_is_and_not_what_it_runs_in(monkeypatch):
    described = EmbeddedCrossEncoder().describe()
    card = openvino_models.read_card(openvino_models.shipped('cross-encoder'), 'cross-encoder')
    assert described == {'reranker': 'default', 'model': card.model, 'weights': card.weights, 'precision': card.precision,
                         'titles': card.titles, 'max_tokens': card.max_tokens}
    monkeypatch.setattr(openvino_models, 'has_bf16', lambda: False)
    assert EmbeddedCrossEncoder().describe() == described != EmbeddedCrossEncoder(max_tokens=64).describe()
    with pytest.raises(ModelError, match='reads at most'): EmbeddedCrossEncoder(max_tokens=card.max_tokens + 1)


def test_the_shipped_one_gives_the_same_in_32_bits(monkeypatch):
    "To a rounding, by which no probability changes much: calibrators may be used on either machine."
    first = EmbeddedCrossEncoder()
    monkeypatch.setattr(openvino_models, 'has_bf16', lambda: False)
    plain = EmbeddedCrossEncoder()
    assert plain.runs_in == 'f32'
    questions = (QUESTION, 'What are the side effects of tamoxifen?', 'Who won the cup?')
    a, b = (np.concatenate([r.score(q, PASSAGES) for q in questions]) for r in (first, plain))
    assert np.abs(a - b).max() < 0.05 * np.ptp(b) and np.corrcoef(a, b)[0, 1] > 0.999


def test_the_shipped_one_reads_questions_and_titles():
    "It tells what answers a question from what does not, in any company, and the title counts."
    best = lambda question: PASSAGES[EmbeddedCrossEncoder().score(question, PASSAGES).argmax()]
    assert best(QUESTION).doc_id == 't1' and best('What are the side effects of tamoxifen?').doc_id == 't3'
    reranker = EmbeddedCrossEncoder()
    told, untold = reranker.score(QUESTION, [passage('It lowered the risk.', title='Aspirin and colorectal polyps'),
                                             passage('It lowered the risk.', title='The weather in Rome')])
    assert told > untold and reranker.score(QUESTION, []).shape == (0,)


def test_failures_are_said(folders, monkeypatch):
    fast = FastCrossEncoder(folders['f32'])
    with monkeypatch.context() as m:
        m.setattr(fast, '_infer', lambda pairs: np.full(len(pairs), np.nan, dtype=np.float32))
        with pytest.raises(RerankError, match='no finite score'): fast.score(QUESTION, PASSAGES)
    fast.inputs = ['input_ids']   # an input too few: the runtime fails within a request
    with pytest.raises(RerankError, match='failed on'): fast.score(QUESTION, PASSAGES[:3])
