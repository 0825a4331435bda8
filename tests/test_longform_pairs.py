"""Answered questions: no part of a split holds what is like a pair of another, prompts always hold their question, and a store
is searched as plain distances say, whatever the vectors."""
import numpy as np
import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip('faiss')

from cpqa.answering.longform import PairError, PairRetriever, PairStore, QAPair, build_pair_store, fitted_prompt, longform_prompt
from cpqa.evaluation.datasets import load
from cpqa.training.longform_pairs import PAIR_SETS, SHARES, overlaps, qa_pairs, split_pairs

WORDS = st.lists(st.sampled_from('does tea help sleep pain in old mice men after ten days of rest'.split()), min_size=1, max_size=6)
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=12, max_size=40)


def pairs_of(rows) -> list[QAPair]:
    return [QAPair(str(n), ' '.join(q) + '?', ' '.join(a) + '.', 'toy', str(n % 2)) for n, (q, a) in enumerate(rows)]


@given(PAIRS, st.integers(0, 3))
@examples(60)
def test_any_split_keeps_what_is_alike_together(rows, seed):
    pairs = pairs_of(rows)
    try: parts = split_pairs(pairs, seed)
    except PairError: return   # all are alike
    assert sorted(p.id for part in parts.values() for p in part) == sorted(p.id for p in pairs)
    for a in parts:
        for b in parts:
            if a != b: assert overlaps(parts[a], parts[b]).any == 0


class Words:
    "Vectors that are not of unit length: how often each letter stands in a text."
    dim = 26
    def encode(self, texts, kind='document'):
        return np.array([[t.lower().count(chr(97 + i)) for i in range(26)] for t in texts], dtype=np.float32).reshape(-1, 26)
    def describe(self): return {'model': 'letters'}


def test_a_store_finds_by_distance_whatever_the_length_of_the_vectors(tmp_path):
    pairs = pairs_of([(['tea', 'help', 'sleep'][:n % 3 + 1] * (n + 1), ['days'] * (n + 1)) for n in range(9)])
    store = PairStore(build_pair_store(pairs, tmp_path/'store', Words()).folder, Words())
    asked = 'does tea help?'
    matrix = Words().encode([f'{p.question} {p.answer}' for p in pairs])
    by_hand = ((matrix - Words().encode([asked]))**2).sum(1)
    found = store.nearest([asked], 9)[0]
    assert np.allclose([h.score for h in found], -np.sort(by_hand))
    own = PairRetriever(store, k=9, n=9).contexts([p.question for p in pairs], own=pairs)
    for pair, context in zip(pairs, own):
        assert pair.id not in [p.id for p in context] and all(p.question != pair.question for p in context)


TEXT = st.text(st.sampled_from('abc de.,?β'), min_size=1, max_size=200).filter(str.strip)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4), TEXT, st.integers(20, 200))
@examples(60)
def test_a_prompt_that_fits_holds_its_question(rows, question, most):
    tokenizer = TOKENIZER()
    pairs = [QAPair(str(n), q, a) for n, (q, a) in enumerate(rows)]
    try: prompt = fitted_prompt(tokenizer, question, pairs, most)
    except PairError:
        assert len(tokenizer(longform_prompt(question, []))['input_ids']) > most - 3
        return
    assert prompt.endswith(f'Question: {question} Answer:') and len(tokenizer(prompt)['input_ids']) <= most


def TOKENIZER(made=[]):
    pytest.importorskip('transformers')
    from cpqa.testing.tiny_models import bert_tokenizer
    if not made: made.append(bert_tokenizer())
    return made[0]


def test_the_labelled_questions_of_pubmedqa(data_dir):
    pairs = qa_pairs(load(PAIR_SETS[0], data_dir/'pubmedqa'))
    parts = split_pairs(pairs)
    assert len(pairs) == 1000 and {name: len(p) for name, p in parts.items()} == {name: round(1000 * s) for name, s in SHARES.items()}
    assert overlaps(parts['test'], parts['train']).any == overlaps(parts['validation'], parts['train']).any == 0
