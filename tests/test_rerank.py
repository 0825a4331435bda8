"""The rerankers on tiny models with random weights: the same score in any company, bounded memory, bad input, and agreement with plain
ways.

That the scores are good cannot be tested here: the trained weights are downloads."""
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, cases, examples
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.records import Passage
from cpqa.testing.toy_corpus import TOY
from cpqa.passages import cross_encoders, pretrained_models
from cpqa.passages.cross_encoders import CrossEncoderReranker, encode_pairs, in_batches, pair_text
from cpqa.passages.late_interaction import ColBERTReranker
from cpqa.passages.monot5 import MonoT5Reranker
from cpqa.passages.rerankers import BM25Reranker, CosineReranker, NoReranker, RerankError, sound_scores
from cpqa.passages.rerankers import RERANKERS, reranker
from cpqa.testing.tiny_models import tiny_bert, tiny_colbert, tiny_roberta, tiny_t5
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.openvino_models import ModelError

torch = pytest.importorskip('torch')
QUESTION = 'Does aspirin lower the risk of colon polyps?'
MAKERS = {'bert': (tiny_bert, CrossEncoderReranker), 'roberta': (tiny_roberta, CrossEncoderReranker),
          'colbert': (tiny_colbert, ColBERTReranker), 't5': (tiny_t5, MonoT5Reranker)}
TOLERANCE = 1e-5   # of fp32, for scores of the size of 1; in relation for larger ones (ColBERT's are sums over 32 tokens)


def passage(text: str, number: int = 0, title: str = '') -> Passage: return Passage(f'p{number}', 0, len(text), text, title=title)


def close(a, b): np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.fixture(scope='session')
def folders(tmp_path_factory) -> dict[str, Path]:
    work = tmp_path_factory.mktemp('tiny')
    return {name: make(work/name) for name, (make, _) in MAKERS.items()}


@pytest.fixture(scope='session')
def models(folders): return {name: kind(folders[name], 'cpu') for name, (_, kind) in MAKERS.items()}


@pytest.fixture(params=MAKERS)
def model(request, models): return models[request.param]


TEXTS = [s for d in TOY for s in d.text.split('. ') if s] + ['Übergewicht erhöht das Risiko.', '大腸がんのリスク', 'a', '\x00\x07 aspirin \x1b[31m',
                                                             'risk ' * 60]
words = st.lists(st.sampled_from(TEXTS) | st.text(min_size=1, max_size=80), max_size=7)


# ---- the same score in any company

@pytest.mark.parametrize('name', MAKERS)
@examples(6)
@given(texts=words, budget=st.integers(1, 600), data=st.data())
def test_scores_depend_neither_on_company_nor_order_nor_batches(models, name, texts, budget, data):
    model, found = models[name], [passage(t, n) for n, t in enumerate([*texts, *texts[:2]])]   # duplicates too
    whole = model.score(QUESTION, found)
    assert whole.shape == (len(found),) and whole.dtype == np.float32 and np.isfinite(whole).all()
    order = data.draw(st.permutations(range(len(found))))
    before, model.budget = model.budget, budget
    try: close(model.score(QUESTION, [found[i] for i in order]), whole[list(order)])
    finally: model.budget = before
    close([model.score(QUESTION, [p])[0] for p in found[:3]], whole[:3])


def test_bad_input(model):
    assert model.score(QUESTION, []).shape == (0,)
    odd = [passage(t) for t in ('x', ' ', '\x00', '\ud800', 'no sentence ends at all ' * 1000, '大腸がん', '| a | 1.2 |\n| b | 3.4 |', '!?.')]
    for query in (QUESTION, '', 'risk ' * 1000, 'a\x00b\ud800', 'Senkt Aspirin das Risiko?'):
        assert np.isfinite(model.score(query, odd)).all()
    assert {'reranker', 'model', 'weights', 'precision', 'max_tokens', 'titles'} == set(model.describe())


def test_titles_are_read_only_if_asked_for(folders):
    with_title, without = (passage('It lowered the risk.', title=t) for t in ('Aspirin and colon polyps', ''))
    for name, (_, kind) in MAKERS.items():
        reads, skips = kind(folders[name], 'cpu', titles=True), kind(folders[name], 'cpu', titles=False)
        assert skips.score(QUESTION, [with_title])[0] == pytest.approx(skips.score(QUESTION, [without])[0], abs=1e-6)
        assert reads.score(QUESTION, [with_title])[0] != pytest.approx(reads.score(QUESTION, [without])[0], abs=1e-3)
        close(reads.score(QUESTION, [passage('Aspirin and colon polyps. It lowered the risk.')]), reads.score(QUESTION, [with_title]))


# ---- memory

@pytest.mark.parametrize('name', ['bert', 't5'])
def test_the_budget_bounds_a_batch_whatever_the_depth(folders, name, monkeypatch):
    model = MAKERS[name][1](folders[name], 'cpu', budget=2048)
    rng, sizes = np.random.default_rng(0), {}
    monkeypatch.setattr(model, 'infer', lambda batch: sizes[depth].append(batch.ids.shape) or np.zeros(len(batch.ids)))
    for depth in (50, 1000):
        sizes[depth] = []
        model.score(QUESTION, [passage('risk ' * int(n), i) for i, n in enumerate(rng.integers(1, 300, depth))])
        assert sum(rows for rows, _ in sizes[depth]) == depth and max(rows * width for rows, width in sizes[depth]) <= 2048
    assert len(sizes[1000]) > len(sizes[50])


class Full(Exception): pass


@given(lengths=st.lists(st.integers(1, 50), max_size=40), holds=st.integers(50, 400), budget=st.integers(1, 2000))
def test_where_memory_runs_out_the_batch_is_halved_and_nothing_is_lost(lengths, holds, budget):
    scored = []
    def infer(rows):
        if len(rows) * max(lengths[r] for r in rows) > holds: raise Full
        scored.extend(rows.tolist())
        return np.array([lengths[r] for r in rows])
    assert in_batches(lengths, infer, budget, (Full,)).tolist() == lengths
    assert sorted(scored) == list(range(len(lengths)))   # each once: what was scored is not scored again


def test_out_of_memory_of_a_gpu(models, monkeypatch):
    model, found = models['bert'], [passage(t, n) for n, t in enumerate(TEXTS)]
    expected, infer, sizes = model.score(QUESTION, found), model.infer, []
    def small(batch):
        if len(batch.ids) > 2: raise torch.OutOfMemoryError('CUDA out of memory')
        sizes.append(len(batch.ids))
        return infer(batch)
    monkeypatch.setattr(model, 'infer', small)
    close(model.score(QUESTION, found), expected)
    assert sum(sizes) == len(found)
    def never(batch): raise torch.OutOfMemoryError('CUDA out of memory')
    monkeypatch.setattr(model, 'infer', never)
    with pytest.raises(RerankError, match='does not hold a single passage'): model.score(QUESTION, found)


# ---- agreement with plain ways

def test_colbert_agrees_with_a_plain_one(folders, models):
    "The checkpoint read by transformers alone: marks, masks, punctuation, projection and the comparison, each written out."
    import transformers
    from safetensors.torch import load_file
    folder, weights = folders['colbert'], load_file(folders['colbert']/'model.safetensors')
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bert = transformers.BertModel(transformers.AutoConfig.from_pretrained(folder)).eval()
    bert.load_state_dict({k.removeprefix('bert.'): w for k, w in weights.items() if k.startswith('bert.')})
    number = tokenizer.convert_tokens_to_ids

    @torch.inference_mode()
    def vectors(ids, mask):
        hidden = bert(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([mask])).last_hidden_state[0]
        return torch.nn.functional.normalize(hidden @ weights['linear.weight'].T, dim=1).numpy()

    def of_query(text):
        ids = [number('[CLS]'), number('[unused0]'), *tokenizer(text, add_special_tokens=False)['input_ids'], number('[SEP]')]
        fill = 32 - len(ids)
        return vectors(ids + [number('[MASK]')] * fill, [1] * len(ids) + [0] * fill)

    def of_passage(text):
        ids = [number('[CLS]'), number('[unused1]'), *tokenizer(text, add_special_tokens=False)['input_ids'], number('[SEP]')]
        kept = [tokenizer.convert_ids_to_tokens(i) not in list('!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~') for i in ids]
        return vectors(ids, [1] * len(ids))[kept]

    texts = ['Aspirin lowered the risk, and bleeding was common.', 'Fewer people (60) accepted colonoscopy.']
    plain = [sum(max(float(q @ d) for d in of_passage(t)) for q in of_query(QUESTION)) for t in texts]
    np.testing.assert_allclose(models['colbert'].score(QUESTION, [passage(t) for t in texts]), plain, rtol=1e-4)


def test_cross_encoder_agrees_with_sentence_transformers_on_long_and_odd_texts(folders, models):
    from sentence_transformers import CrossEncoder
    texts = [pair_text(passage(t)) for t in [*TEXTS, 'risk ' * 2000]]
    for name in ('bert', 'roberta'):
        reference = CrossEncoder(str(folders[name]), device='cpu', max_length=512)
        expected = reference.predict([(QUESTION, t) for t in texts], activation_fn=torch.nn.Identity(), show_progress_bar=False)
        close(models[name].score(QUESTION, [passage(t) for t in texts]), expected)


@examples(15)
@given(query=st.text(max_size=60), texts=st.lists(st.text(max_size=120), max_size=5), room=st.integers(8, 64))
def test_pairs_keep_to_their_size_and_keep_the_question(models, query, texts, room):
    tokenizer = models['bert'].net.tokenizer.backend_tokenizer
    pairs = encode_pairs(tokenizer, query, texts, room)
    assert len(pairs) == len(texts) and all(len(p.ids) == len(p.type_ids) <= room for p in pairs)
    heads = {tuple(p.ids[:p.type_ids.index(1)]) for p in pairs}
    assert len(heads) <= 1 and all(len(h) <= (room - 3) // 2 + 2 for h in heads)


# ---- scores that cannot be used, models that cannot be loaded

@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_names_the_passage(models, monkeypatch, bad):
    def infer(batch): return np.where(np.arange(len(batch.ids)) == 0, bad, 1.0)   # the longest stands first
    monkeypatch.setattr(models['bert'], 'infer', infer)
    with pytest.raises(RerankError, match='the passage 0:50 of p7'):
        models['bert'].score(QUESTION, [passage('a b', 1), passage('risk ' * 10, 7), passage('c', 2)])
    with pytest.raises(RerankError, match='one a passage'): sound_scores(np.zeros((2, 2)), [passage('a'), passage('b')], 'a model')


def test_a_gpu_that_is_not_there_is_an_error(folders, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    with pytest.raises(ModelError, match='finds no GPU'): CrossEncoderReranker(folders['bert'], 'cuda')
    assert pretrained_models.placed(None, None, 'fp16') == ('cpu', 'fp32')
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
    assert pretrained_models.placed(None, None, 'bf16') == ('cuda', 'bf16') and pretrained_models.placed('cuda:0', None,
        'bf16') == ('cuda:0', 'bf16')
    with pytest.raises(ModelError, match='no cuda:1 here'): pretrained_models.placed('cuda:1', None, 'fp16')
    with pytest.raises(ModelError, match='not a device'): pretrained_models.placed('gpu', None, 'fp16')
    assert pretrained_models.placed('cpu:0', None, 'fp16') == ('cpu', 'fp32')


@cases('name', MAKERS)
@cases('tokens', [-1, 1, 3, 100_000])
def test_too_few_or_many_tokens_are_said_before_any_score(folders, name, tokens):
    if (name, tokens) == ('t5', 100_000): return   # its positions are relative: it reads any number
    with pytest.raises(ModelError, match='leave room|reads '): MAKERS[name][1](folders[name], 'cpu', max_tokens=tokens)


def test_a_model_that_cannot_be_had_is_not_called_another_kind(monkeypatch):
    "As without a network."
    from huggingface_hub import constants
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    with pytest.raises(ModelError, match='could not be loaded .*and a network'): ColBERTReranker('colbertv2', 'cpu')
    with pytest.raises(ModelError, match="no folder ''"): CrossEncoderReranker('', 'cpu')


def test_a_pickled_part_of_a_colbert_is_refused(models, tmp_path):
    "In sentence-transformers' own layout the last matrix is a file of its own, which may be a pickle."
    from safetensors.torch import load_file
    folder, found = tmp_path/'model', [passage(t) for t in TEXTS[:3]]
    models['colbert'].model.save(str(folder))
    close(ColBERTReranker(folder, 'cpu').score(QUESTION, found), models['colbert'].score(QUESTION, found))
    part, = (f for f in folder.rglob('model.safetensors') if f.parent != folder)
    torch.save(load_file(part), part.with_name('pytorch_model.bin'))
    ColBERTReranker(folder, 'cpu')   # it is not read where the other is there
    part.unlink()
    with pytest.raises(ModelError, match=f'{part.parent.name} holds pickled weights only'): ColBERTReranker(folder, 'cpu')


def test_a_folder_of_the_cache_is_known_by_its_model(folders, tmp_path):
    cached = shutil.copytree(folders['bert'], tmp_path/'models--ncbi--MedCPT-Cross-Encoder'/'snapshots'/'0123abc')
    assert CrossEncoderReranker(cached, 'cpu').titles and not CrossEncoderReranker(folders['bert'], 'cpu').titles


def test_nothing_of_a_model_is_run(folders, tmp_path):
    "A pickle that would write a file, and code that a configuration names: neither is touched."
    import pickle
    trap = tmp_path/'ran'
    class Trap:
        def __reduce__(self): return (Path.touch, (trap,))
    folder = shutil.copytree(folders['bert'], tmp_path/'model')
    (folder/'model.safetensors').unlink()
    (folder/'pytorch_model.bin').write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelError, match='could not be loaded'): CrossEncoderReranker(folder, 'cpu')
    config = (folder/'config.json').read_text().replace('"bert"', '"strange"',
                                                        1).replace('{', '{"auto_map": {"AutoConfig": "evil.Config"},', 1)
    (folder/'config.json').write_text(config)
    (folder/'evil.py').write_text(f'open({str(trap)!r}, "w")')
    with pytest.raises(ModelError, match='could not be loaded'): CrossEncoderReranker(folder, 'cpu')
    assert not trap.exists()


# ---- names

def test_every_name_makes_a_reranker_that_scores(folders):
    encoder = EmbeddedEncoder()
    alone = [row.name for row in RERANKERS.own if not row.argument or row.optional]   # also one whose row was added later
    names = [*alone, f'cross-encoder:{folders["bert"]}', f'colbert:{folders["colbert"]}', f'monot5:{folders["t5"]}']
    # fast has its own tests
    assert {'none', 'bm25', 'cosine', 'default'} <= set(alone) and {n.partition(':')[0] for n in names} | {'fast'} <= set(RERANKERS.names)
    found = [passage(t, n) for n, t in enumerate(TEXTS)]
    for name in names:
        made = reranker(name, lambda: encoder)
        assert made.describe()['reranker'] == name.partition(':')[0]
        assert made.score(QUESTION, found).shape == (len(found),) and made.score(QUESTION, []).shape == (0,)


@given(texts=words, data=st.data())
def test_none_keeps_the_order_and_bm25_does_not_mind_it(texts, data):
    found = [passage(t, n) for n, t in enumerate(texts)]
    assert np.argsort(-NoReranker().score(QUESTION, found), kind='stable').tolist() == list(range(len(found)))
    order = data.draw(st.permutations(range(len(found))))
    np.testing.assert_allclose(BM25Reranker().score(QUESTION, [found[i] for i in order]),
                               BM25Reranker().score(QUESTION, found)[list(order)], rtol=1e-5, atol=1e-6)


def test_stored_vectors_are_used_and_not_made_again():
    class Counting:
        dim, seen = 2, []
        def encode(self, texts, kind='document'):
            self.seen.append(kind)
            return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)
        def describe(self): return {'model': 'counting'}
    found, encoder = [passage('a', 0), passage('b', 1)], Counting()
    scores = CosineReranker(encoder, stored=lambda asked: np.array([[1, 0], [0, 1]], dtype=np.float32)).score(QUESTION, found)
    assert scores.tolist() == [1, 0] and encoder.seen == ['query']


def test_known_models_are_data():
    for short, row in cross_encoders.CROSS_ENCODERS.items():
        assert cross_encoders.trained(short) == cross_encoders.trained(row.name) == row
    assert [s for s, row in cross_encoders.CROSS_ENCODERS.items() if row.titles] == ['medcpt']


def test_names_take_no_heavy_package():
    code = 'import cpqa.passages.rerankers, sys; print({"torch", "transformers", "openvino", "sentence_transformers"} & set(sys.modules))'
    assert subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == 'set()'
