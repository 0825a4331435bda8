"""The second stage: nothing that was ranked before is ranked otherwise, waves keep to their rules on any clock, and a reranker that
fails changes nothing but the note."""
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError
from cpqa.core.records import Document, Hit, Passage
from cpqa.testing.toy_corpus import TOY
from cpqa.passages.rerankers import BM25Reranker, NoReranker
from cpqa.passages.segmenters import Segmenter, SentenceSplitter
from cpqa.passages.two_stage import WAIT, Reranked, TwoStage, best_first, comparable, first_weight, picked, rerank_documents, with_first
from cpqa.pipeline import CancerQA
from cpqa.retrieval.term_search import reciprocal_rank_fusion
from cpqa.retrieval.vectors import PassageVectors


class Drawn:
    "An encoder whose vectors come from the text alone."
    dim = 8
    def encode(self, texts, kind='document'):
        rows = [np.random.default_rng([len(kind), *t.encode()]).standard_normal(self.dim) for t in texts]
        return np.array([r / np.linalg.norm(r) for r in rows], dtype=np.float32).reshape(-1, self.dim)
    def describe(self): return {'model': 'drawn'}


def library(passages_each: list[int]) -> tuple[list[Document], PassageVectors]:
    "Invented documents of so many passages, one sentence each, and their vectors."
    documents = [Document(id=f'd{i}', title=f'Title {i}', text=' '.join(f'Sentence {j} of {i} here.' for j in range(n))) for i,
                 n in enumerate(passages_each)]
    return documents, PassageVectors(documents, Drawn(), SentenceSplitter(words=5, overlap=0).split)


@dataclass
class Scripted:
    "Scores by a table of texts, on a clock of its own; fails where told; remembers its waves."
    table: dict = field(default_factory=dict)
    cost: float = 0.01                # seconds a passage
    fails: dict = field(default_factory=dict)   # number of the call -> what happens
    waves: list = field(default_factory=list)
    now: float = 100.0

    def clock(self): return self.now

    def score(self, query, passages):
        self.waves.append([p.text for p in passages])
        self.now += self.cost * len(passages)
        if (call := len(self.waves)) in self.fails:
            what = self.fails[call]
            if isinstance(what, BaseException): raise what
            return what(len(passages)) if callable(what) else what
        return np.array([self.table.get(p.text, float(len(p.text))) for p in passages], dtype=np.float32)


def before(stage: TwoStage, question, vector, documents, n):
    "What `select` chose before there were waves."
    passages, rows = stage.candidates(documents)
    cosines = stage.vectors.of_rows(rows) @ vector
    rankings = [[Hit(str(i), float(s[i])) for i in np.argsort(-s, kind='stable')] for s in (stage.reranker.score(question, passages),
        cosines)]
    rankings.append([Hit(str(i), 0.0) for i in range(len(passages))])
    return [(passages[int(h.id)], float(cosines[int(h.id)])) for h in reciprocal_rank_fusion(rankings, stage.rrf_k)[:n]]


def chosen(evidence): return [(e.passage, e.score) for e in evidence]


def first_stage(stage: TwoStage, vector, documents):
    "The passages by first stage and cosine, without a reranker."
    passages, rows = stage.candidates(documents)
    return [passages[i] for i in best_first(passages, stage.vectors.of_rows(rows) @ vector)]


# ---- the order

SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=8)
QUESTION, VECTOR = 'Which sentence 3 is here?', Drawn().encode(['Which sentence 3 is here?'], 'query')[0]


@given(SIZES, st.integers(0, 30), st.sampled_from([1, 5, 60]), st.lists(st.integers(-3, 3), min_size=40, max_size=40))
def test_select_chooses_as_before(sizes, n, rrf_k, values):
    documents, vectors = library(sizes)
    table = {f'Sentence {j} of {i} here.': float(v) for v, (i, j) in zip(values, ((i, j) for i in range(8) for j in range(5)))}
    for reranker in (None, Scripted(table)):
        stage = TwoStage(vectors, reranker, rrf_k)
        assert chosen(stage.select(QUESTION, VECTOR, documents, n)) == before(stage, QUESTION, VECTOR, documents, n)


@pytest.mark.parametrize('question', ['What are the side effects of tamoxifen?', 'Does aspirin prevent colorectal cancer?', 'lung',
                                      'Qué es?'])
def test_select_chooses_as_before_in_the_demo_library(question):
    qa = CancerQA()
    stage, vector = TwoStage(qa.vectors), qa.encoder.encode([question], 'query')[0]
    documents = qa.library.documents(h.id for h in qa.search(question, 50))
    assert chosen(stage.select(question, vector, documents, 20)) == before(stage, question, vector, documents, 20)


@dataclass
class Weighed(Scripted):
    "One that the first stage counts beside."
    first: float = 0.7


def summed(scores, ranks, weight):
    "The sum, written another way."
    low, high, near, far = min(scores), max(scores), 1 / (5 + min(ranks)), 1 / (5 + max(ranks))
    return [((s - low) / (high - low) if high > low else 0) + weight * ((1 / (5 + r) - far) / (near - far) if near > far else 0) for s,
            r in zip(scores, ranks)]


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 60)), min_size=1, max_size=20), st.floats(0.1, 3))
def test_a_score_and_a_rank_are_summed(rows, weight):
    scores, ranks = np.array(rows).T
    np.testing.assert_allclose(with_first(scores, ranks, weight), summed(scores, ranks, weight), atol=1e-9)
    # the scale of the scores does not matter
    np.testing.assert_allclose(with_first(scores * 7. + 3, ranks, weight), with_first(scores, ranks, weight), atol=1e-9)
    assert with_first(scores, ranks, 0) is scores and (first_weight(Scripted()), first_weight(Weighed())) == (0, 0.7)


@given(SIZES, st.data())
def test_a_reranker_with_a_weight_decides_with_the_first_stage_and_without_the_cosine(sizes, data):
    documents, vectors = library(sizes)
    table = {f'Sentence {j} of {i} here.': float(data.draw(st.integers(-3, 3))) for i, n in enumerate(sizes) for j in range(n)}
    stage = TwoStage(vectors, Weighed(table))
    passages, _ = stage.candidates(documents)
    value = summed([table[p.text] for p in passages], [int(p.doc_id[1:]) + 1 for p in passages], 0.7) if passages else []
    expected = [passages[i] for i in sorted(range(len(passages)), key=lambda i: -round(value[i], 9))]
    got = [e.passage for e in stage.select(QUESTION, VECTOR, documents, 99)]
    by_text = {p.text: round(v, 9) for p, v in zip(passages, value)}
    assert stage.combine == 'sum' and [by_text[p.text] for p in got] == [by_text[p.text] for p in expected] and set(got) == set(expected)
    assert TwoStage(vectors, Weighed(table), combine='fusion').select(QUESTION, VECTOR, documents, 9) == TwoStage(vectors,
        Scripted(table)).select(QUESTION, VECTOR, documents, 9)


def test_no_reranker_counts_the_order_of_the_documents_once():
    documents, vectors = library([2, 3, 1, 2])
    passages, rows = TwoStage(vectors).candidates(documents)
    by_cosine = [Hit(str(i), 0.0) for i in np.argsort(-(vectors.of_rows(rows) @ VECTOR), kind='stable')]
    expected = reciprocal_rank_fusion([by_cosine, [Hit(str(i), 0.0) for i in range(len(passages))]], 60)
    assert [e.passage for e in TwoStage(vectors, NoReranker()).select(QUESTION, VECTOR, documents,
                                                                      99)] == [passages[int(h.id)] for h in expected]


@given(SIZES, st.integers(1, 9), st.sampled_from(['fusion', 'reranker', 'sum']), st.data())
def test_waves_that_nothing_stops_end_in_the_same_order(sizes, wave, combine, data):
    documents, vectors = library(sizes)
    table = {f'Sentence {j} of {i} here.': float(data.draw(st.integers(-2, 2))) for i, n in enumerate(sizes) for j in range(n)}
    whole = TwoStage(vectors, Weighed(table), combine=combine).choose(QUESTION, VECTOR, documents, 50)
    reranker = Weighed(table)
    waves = TwoStage(vectors, reranker, combine=combine, budget_ms=math.inf, wave=wave, settle=0,
                     clock=reranker.clock).choose(QUESTION, VECTOR, documents, 50)
    assert waves.evidence == whole.evidence and (waves.reranked, waves.stopped) == (whole.candidates, 'all')
    # best first, each once
    assert [text for w in reranker.waves for text in w] == [p.text for p in first_stage(TwoStage(vectors), VECTOR, documents)]
    assert all(len(w) == wave for w in reranker.waves[:-1])


@given(SIZES)
def test_best_first_takes_documents_in_their_order_and_their_nearest_passages_first(sizes):
    documents, vectors = library(sizes)
    passages, rows = TwoStage(vectors).candidates(documents)
    cosines = vectors.of_rows(rows) @ VECTOR
    numbers, keys = list(dict.fromkeys(p.doc_id for p in passages)), []
    for p, c in zip(passages, cosines):
        nearer = sum(q.doc_id == p.doc_id and d > c for q, d in zip(passages, cosines))
        keys.append((numbers.index(p.doc_id) + WAIT * nearer, nearer))
    assert best_first(passages, cosines) == sorted(range(len(passages)), key=lambda i: keys[i])


@pytest.mark.parametrize('combine', ['fusion', 'reranker', 'sum'])
def test_those_unread_stay_in_their_order_behind(combine):
    documents, vectors = library([3, 3, 3])
    reranker = Weighed()
    stage = TwoStage(vectors, reranker, combine=combine, budget_ms=40, wave=2, settle=0, clock=reranker.clock)
    got = stage.choose(QUESTION, VECTOR, documents, 9)
    known = first_stage(stage, VECTOR, documents)
    assert got.reranked == 4 and {e.passage for e in got.evidence[:4]} == set(known[:4]) and [e.passage
        for e in got.evidence[4:]] == known[4:]


@pytest.mark.parametrize('reranker', [BM25Reranker(), NoReranker()])
def test_scores_that_depend_on_their_company_are_made_at_once_whatever_the_budget(reranker):
    documents, vectors = library([4, 4, 4])
    free = TwoStage(vectors, reranker).choose(QUESTION, VECTOR, documents, 9)
    tight = TwoStage(vectors, reranker, budget_ms=0, wave=1).choose(QUESTION, VECTOR, documents, 9)
    assert not comparable(reranker) and tight.evidence == free.evidence and (tight.reranked, tight.stopped) == (12, 'all')


def test_a_reranker_can_say_that_its_scores_depend_on_their_company():
    class Places(Scripted): comparable = False
    documents, vectors = library([4, 4])
    reranker = Places()
    TwoStage(vectors, reranker, budget_ms=0, wave=1, clock=reranker.clock).choose(QUESTION, VECTOR, documents, 3)
    assert len(reranker.waves) == 1


# ---- the budget

@given(SIZES, st.floats(0, 500), st.integers(1, 9), st.integers(0, 3), st.floats(0.0001, 0.1))
def test_a_budget_is_kept_where_every_passage_costs_the_same(sizes, budget, wave, settle, cost):
    documents, vectors = library(sizes)
    reranker = Scripted(cost=cost)
    got = TwoStage(vectors, reranker, budget_ms=budget, wave=wave, settle=settle,
                   clock=reranker.clock).choose(QUESTION, VECTOR, documents, 3)
    assert got.reranked == sum(map(len, reranker.waves)) and got.candidates == sum(sizes)
    assert len(reranker.waves) <= 1 or got.ms <= budget + 0.01
    assert bool(reranker.waves) == bool(sum(sizes))   # one wave always runs
    # one more would not have fitted
    if got.stopped == 'time': assert (got.reranked + min(wave, got.candidates - got.reranked)) * cost * 1000 > budget - 0.01
    if got.stopped == 'all': assert got.reranked == got.candidates


def test_the_pace_is_that_of_the_last_wave_if_it_was_slower():
    class Tiring(Scripted):
        def score(self, query, passages):
            self.cost = 0.001 * 2 ** len(self.waves)
            return super().score(query, passages)
    documents, vectors = library([5] * 4)
    reranker = Tiring()
    got = TwoStage(vectors, reranker, budget_ms=10, wave=1, settle=0, clock=reranker.clock).choose(QUESTION, VECTOR, documents, 3)
    # 1 + 2 + 4 ms, and a fourth is foretold to take 4 again, not the mean, with which it would fit
    assert (got.reranked, got.stopped) == (3, 'time')


def test_time_before_the_first_wave_counts():
    documents, vectors = library([5] * 4)
    reranker = Scripted(cost=0.001)
    class Late(TwoStage):
        def candidates(self, documents):
            reranker.now += 0.5
            return super().candidates(documents)
    assert Late(vectors, reranker, budget_ms=500, wave=2, clock=reranker.clock).choose(QUESTION, VECTOR, documents, 3).reranked == 2


def test_a_settled_order_ends_the_reranking():
    documents, vectors = library([5] * 8)
    known = [p.text for p in first_stage(TwoStage(vectors), VECTOR, documents)]
    falling = {text: -float(i) for i, text in enumerate(known)}   # the reranker agrees with what was known
    for settle, waves in ((1, 2), (2, 3), (3, 4)):
        reranker = Scripted(falling)
        got = TwoStage(vectors, reranker, combine='reranker', budget_ms=math.inf, wave=4, settle=settle,
                       clock=reranker.clock).choose(QUESTION, VECTOR, documents, 4)
        assert (got.stopped, len(reranker.waves)) == ('settled', waves) and [e.passage.text for e in got.evidence] == known[:4]
    rising = {text: float(i) for i, text in enumerate(known)}     # the best comes last: nothing settles
    reranker = Scripted(rising)
    assert TwoStage(vectors, reranker, combine='reranker', budget_ms=math.inf, wave=4,
                    clock=reranker.clock).choose(QUESTION, VECTOR, documents, 4).stopped == 'all'


def test_a_budget_without_documents():
    _, vectors = library([1])
    reranker = Scripted(fails={1: RuntimeError('asked for nothing')})
    got = TwoStage(vectors, reranker, budget_ms=10).choose(QUESTION, VECTOR, [], 3)
    assert (got.evidence, got.candidates, got.reranked, got.stopped, got.notes, reranker.waves) == ((), 0, 0, 'all', (), [])


# ---- passages, not documents

def judged(passages, values):
    "The fused value of each passage, written another way: by two judges' places, and that of its document."
    place = lambda scores, i: 1 + sum(s > scores[i] or s == scores[i] and j < i for j, s in enumerate(scores))
    ids = list(dict.fromkeys(p.doc_id for p in passages))
    return [sum(1 / (5 + place(v, i)) for v in values) + 1 / (6 + ids.index(p.doc_id)) for i, p in enumerate(passages)]


@given(SIZES, st.integers(0, 45), st.data())
def test_each_document_keeps_its_best_passage_and_the_best_of_the_others_follow(sizes, most, data):
    documents, vectors = library(sizes)
    passages, _ = TwoStage(vectors).candidates(documents)
    values = [np.array([data.draw(st.integers(-3, 3)) for _ in passages], dtype=float) for _ in range(2)]
    value, best = judged(passages, values), {}
    for i, p in enumerate(passages):
        if p.doc_id not in best or value[i] > value[best[p.doc_id]] + 1e-12: best[p.doc_id] = i
    got = picked(passages, values, most)
    assert got == sorted(set(got)) and len(got) == min(most, len(passages))
    assert set(got) & set(best.values()) == set(list(best.values())[:most])   # of the documents in their order
    others, left = [value[i] for i in got if i not in best.values()], [value[i] for i in range(len(passages))
                                                                        if i not in got and i not in best.values()]
    assert not others or not left or min(others) >= max(left) - 1e-12


def test_a_document_of_five_hundred_passages_does_not_crowd_out_the_others():
    documents, vectors = library([500, 2, 1])
    passages, _ = TwoStage(vectors).candidates(documents)
    near = np.array([.9] * 500 + [.1] * 3)
    assert picked(passages, [near, near], 150) == [*range(148), 500, 502]
    assert picked(passages, [near, near], 2) == [0, 500]         # too few for all: those found first
    assert picked(passages, [np.zeros(503)], 5) == [0, 1, 2, 500, 502]
    assert picked([], [np.empty(0)], 150) == [] == picked(passages, [near], 0)
    got = TwoStage(vectors, Scripted(), ranked=150).choose(QUESTION, VECTOR, documents, 10)
    assert (got.candidates, got.reranked, got.stopped, len(got.evidence)) == (503, 150, 'all', 10)


@given(SIZES, st.integers(1, 45), st.integers(0, 12), st.sampled_from(['fusion', 'reranker', 'sum']))
def test_no_more_passages_are_ranked_than_asked_for_and_enough_room_changes_nothing(sizes, ranked, n, combine):
    documents, vectors = library(sizes)
    reranker = Weighed()
    got = TwoStage(vectors, reranker, combine=combine, ranked=ranked).choose(QUESTION, VECTOR, documents, n)
    assert got.candidates == sum(sizes) and got.reranked == sum(map(len, reranker.waves)) == min(max(ranked, n), sum(sizes))
    assert len(got.evidence) == min(n, sum(sizes)) and len(reranker.waves) == bool(sum(sizes))
    free = TwoStage(vectors, Weighed(), combine=combine).choose(QUESTION, VECTOR, documents, n)
    if max(ranked, n) >= sum(sizes): assert got.evidence == free.evidence
    elif ranked >= sum(map(bool, sizes)): assert {p for w in reranker.waves for p in w} >= {f'Sentence 0 of {i} here.' for i,
        k in enumerate(sizes) if k == 1}


def test_waves_and_a_time_hold_among_the_picked():
    documents, vectors = library([30, 30, 1])
    whole = Scripted()
    TwoStage(vectors, whole, ranked=12).choose(QUESTION, VECTOR, documents, 3)
    for budget, waves, stopped in ((math.inf, 6, 'all'), (40, 2, 'time')):
        reranker = Scripted()
        got = TwoStage(vectors, reranker, ranked=12, budget_ms=budget, wave=2, settle=0,
                       clock=reranker.clock).choose(QUESTION, VECTOR, documents, 3)
        assert (got.candidates, got.reranked, got.stopped, len(reranker.waves)) == (61, 2 * waves, stopped, waves)
        assert {text for w in reranker.waves for text in w} <= set(whole.waves[0])
        assert 'Sentence 0 of 2 here.' in whole.waves[0] and reranker.waves[0][0].endswith(' of 0 here.')


def test_a_failure_among_the_picked_leaves_their_order_of_the_first_stage():
    documents, vectors = library([20, 20])
    got = TwoStage(vectors, Scripted(fails={1: ValueError('no')}), ranked=6).choose(QUESTION, VECTOR, documents, 9)
    assert (got.stopped, got.reranked, got.candidates, len(got.evidence)) == ('failed', 0, 40, 9)
    first = first_stage(TwoStage(vectors), VECTOR, documents)
    kept = [e.passage for e in got.evidence]
    assert {p.doc_id for p in kept} == {'d0', 'd1'} and kept[0].doc_id == 'd0' and set(kept) <= set(first)


# ---- failures

FAILURES = {'raises': ValueError('no such layer in /root/models/secret.bin, token=hf_abcdefghijklmnopqrstuvwxyz'),
            'says nothing': RuntimeError(), 'memory': MemoryError(),
            'a sentence for users': CpqaError('torch is missing: pip install "cpqa[models]"'), 'nan': lambda n: np.full(n, np.nan),
            'one inf': lambda n: np.array([*[1.0] * (n - 1), np.inf]), 'too few': lambda n: np.ones(n - 1),
            'too many': lambda n: np.ones(n + 1), 'a column': lambda n: np.ones((n, 1)),
            'a number': lambda n: 1.0, 'nothing': None, 'words': lambda n: ['good'] * n,
            'too great for float32': lambda n: np.full(n, 1e300)}


@pytest.mark.filterwarnings('ignore:overflow encountered')
@cases('call', [1, 2, 5])
@cases('combine', ['fusion', 'reranker', 'sum'])
@cases('failure', FAILURES)
def test_a_reranker_that_fails_in_any_wave_leaves_the_order_of_the_first_stage(failure, combine, call):
    documents, vectors = library([3, 2, 4, 3])
    reranker = Scripted(fails={call: FAILURES[failure]})
    stage = TwoStage(vectors, reranker, combine=combine, budget_ms=math.inf, wave=2, settle=0, clock=reranker.clock)
    got = stage.choose(QUESTION, VECTOR, documents, 50)
    assert [e.passage for e in got.evidence] == first_stage(stage, VECTOR, documents)
    assert (got.stopped, got.reranked, got.candidates, len(reranker.waves)) == ('failed', 0, 12, call)
    assert len(got.notes) == 1 and 'Scripted' in got.notes[0] and len(got.notes[0]) < 300
    assert '/root/models' not in got.notes[0] and 'hf_abc' not in got.notes[0] and '\n' not in got.notes[0]


def test_a_failure_without_waves_is_met_in_the_same_way():
    documents, vectors = library([3, 2])
    stage = TwoStage(vectors, Scripted(fails={1: FAILURES['nan'], 2: FAILURES['raises']}))
    got = stage.choose(QUESTION, VECTOR, documents, 2)
    assert got.stopped == 'failed' and [e.passage for e in got.evidence] == first_stage(stage, VECTOR,
        documents)[:2] == [e.passage for e in stage.select(QUESTION, VECTOR, documents, 2)]


@pytest.mark.parametrize('stop', [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through(stop):
    documents, vectors = library([3, 2, 4])
    reranker = Scripted(fails={2: stop()})
    with pytest.raises(stop):
        TwoStage(vectors, reranker, budget_ms=math.inf, wave=2, clock=reranker.clock).choose(QUESTION, VECTOR, documents, 3)


# ---- probabilities

class Tenths:
    def probability(self, scores):
        assert np.isfinite(scores).all()
        return np.clip(np.asarray(scores) / 10, 0, 1)


@given(SIZES, st.integers(0, 30), st.floats(0, 1), st.sampled_from(['fusion', 'reranker']), st.data())
def test_a_threshold_leaves_out_what_is_below_and_nothing_else(sizes, n, threshold, combine, data):
    documents, vectors = library(sizes)
    table = {f'Sentence {j} of {i} here.': float(data.draw(st.integers(0, 10))) for i, k in enumerate(sizes) for j in range(k)}
    options = dict(combine=combine, calibrator=Tenths())
    whole = TwoStage(vectors, Scripted(table), **options).choose(QUESTION, VECTOR, documents, 50)
    got = TwoStage(vectors, Scripted(table), threshold=threshold, **options).choose(QUESTION, VECTOR, documents, n)
    assert all(e.probability == pytest.approx(table[e.passage.text] / 10) for e in whole.evidence) and not whole.notes
    assert list(got.evidence) == [e for e in whole.evidence if e.probability >= threshold][:n]
    if n >= 1:
        end = whole.evidence.index(got.evidence[-1]) if len(got.evidence) == n else len(whole.evidence)
        out = sum(e.probability < threshold for e in whole.evidence[:end])
        assert bool(got.notes) == bool(out) and (not out or got.notes[0].startswith(f'{out} of'))


def test_what_the_budget_cut_off_has_no_probability_and_does_not_pass_a_threshold():
    documents, vectors = library([3, 3, 3])
    for threshold, kept in ((None, 9), (0.0, 4)):
        reranker = Scripted()
        got = TwoStage(vectors, reranker, calibrator=Tenths(), threshold=threshold, budget_ms=40, wave=2, settle=0,
                       clock=reranker.clock).choose(QUESTION, VECTOR, documents, 9)
        assert len(got.evidence) == kept and sum(e.probability is not None for e in got.evidence) == got.reranked == 4
    assert '5 that the reranker had not come to' in got.notes[0]


def test_where_the_reranker_failed_no_threshold_applies():
    documents, vectors = library([3, 3])
    stage = TwoStage(vectors, Scripted(fails={1: FAILURES['nan']}), calibrator=Tenths(), threshold=1.0)
    got = stage.choose(QUESTION, VECTOR, documents, 9)
    assert len(got.evidence) == 6 and {e.probability for e in got.evidence} == {None} and len(got.notes) == 1


# ---- what is read

class Neighbours(Segmenter):
    "Finds by a sentence, reads one more before and behind."
    def split(self, document): return SentenceSplitter(words=5, overlap=0).split(document)
    def read(self, document, passage):
        length = len('Sentence 0 of 0 here. ')
        return Passage.of(document, max(0, passage.start - length), min(len(document.text), passage.end + length))
    def describe(self): return {'segmenter': 'neighbours'}


@given(SIZES, st.integers(0, 12))
def test_windows_are_read_best_first_and_none_for_a_passage_already_read(sizes, n):
    documents, vectors = library(sizes)
    found = TwoStage(vectors, Scripted()).choose(QUESTION, VECTOR, documents, 99).evidence
    got = TwoStage(vectors, Scripted(), segmenter=Neighbours()).choose(QUESTION, VECTOR, documents, n).evidence
    inside = lambda p, o: o.doc_id == p.doc_id and o.start <= p.start and p.end <= o.end
    by_id, expected = {d.id: d for d in documents}, []
    for e in found:
        if not any(inside(e.passage, o) for o, _ in expected):
            expected.append((Neighbours().read(by_id[e.passage.doc_id], e.passage), e.score))
    assert chosen(got) == expected[:n]
    assert all(by_id[e.passage.doc_id].text[e.passage.start:e.passage.end] == e.passage.text for e in got)


@given(SIZES, st.integers(0, 12))
def test_a_plain_segmenter_changes_nothing(sizes, n):
    documents, vectors = library(sizes)
    plain, read = (TwoStage(vectors, segmenter=s).choose(QUESTION, VECTOR, documents, n).evidence
                   for s in (None, SentenceSplitter(words=5, overlap=0)))
    assert plain == read


# ---- documents

@dataclass
class Listed:
    ids: tuple
    asked: list = field(default_factory=list)
    def search(self, queries, k):
        self.asked.append(k)
        return [[Hit(id, -float(i)) for i, id in enumerate(self.ids)][:k] for _ in queries]


@given(SIZES, st.floats(0.1, 3), st.integers(1, 12), st.data())
def test_documents_are_ordered_by_their_best_passage_and_their_rank(sizes, weight, depth, data):
    documents, vectors = library(sizes)
    table = {f'Sentence {j} of {i} here.': float(data.draw(st.integers(-3, 3))) for i, n in enumerate(sizes) for j in range(n)}
    hits = [Hit(d.id, -float(n)) for n, d in enumerate(documents)]
    passages, _ = TwoStage(vectors).candidates(documents[:depth])
    found = rerank_documents('?', hits, passages, Weighed(table, first=weight))
    seen = list(dict.fromkeys(p.doc_id for p in passages))
    best = [max(table[p.text] for p in passages if p.doc_id == id) for id in seen]
    value = dict(zip(seen, summed(best, [int(id[1:]) + 1 for id in seen], weight))) if seen else {}
    assert [h.id for h in found[len(seen):]] == [h.id for h in hits if h.id not in value]
    np.testing.assert_allclose([h.score for h in found[:len(seen)]], sorted(value.values(), reverse=True), atol=1e-9)
    assert all(abs(h.score - value[h.id]) < 1e-9 for h in found[:len(seen)])
    assert all(a.score >= b.score - 1e-9 for a, b in zip(found, found[1:]))


@given(SIZES, st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_reranked_reorders_the_first_hits_of_any_retriever(sizes, depth, k, queries):
    documents, vectors = library(sizes)
    by_id, stage, ids = {d.id: d for d in documents}, TwoStage(vectors), tuple(d.id for d in documents)
    passages_of = lambda asked: stage.candidates([by_id[id] for id in asked])[0]
    first = Listed(ids)
    found = Reranked(first, Scripted(), passages_of, depth).search(['?'] * queries, k)
    assert len(found) == queries and first.asked == [max(k, depth)]
    for hits in found:
        expected = rerank_documents('?', Listed(ids).search(['?'], max(k, depth))[0], passages_of(ids[:depth]), Scripted())
        assert [h.id for h in hits] == [h.id for h in expected][:k] and sorted(h.id for h in expected) == sorted(ids[:max(k, depth)])
        assert all(a.score >= b.score for a, b in zip(hits, hits[1:]))


@pytest.mark.filterwarnings('ignore:overflow encountered')
@cases('failure', FAILURES)
def test_reranked_keeps_what_was_found_where_the_reranker_fails(failure):
    documents, vectors = library([2, 2, 2])
    passages_of = lambda ids: TwoStage(vectors).candidates([documents[int(id[1:])] for id in ids])[0]
    search = Reranked(Listed(('d2', 'd0', 'd1')), Scripted(fails={2: FAILURES[failure]}), passages_of)
    fine, failed, again = search.search(['a', 'b', 'c'], 3)
    assert [h.id for h in failed] == ['d2', 'd0',
                                      'd1'] and len(search.notes) == 1 and 'Scripted' in search.notes[0] and 'hf_abc' not in search.notes[0]
    assert fine == again and [h.score for h in failed] == [0.0, -1.0, -2.0]


def test_reranked_lets_an_interrupt_through():
    passages = [Passage.of(d, 0, len(d.text)) for d in TOY if d.text]
    with pytest.raises(KeyboardInterrupt):
        Reranked(Listed(('t1', 't2')), Scripted(fails={1: KeyboardInterrupt()}), lambda ids: passages).search(['a'], 2)
