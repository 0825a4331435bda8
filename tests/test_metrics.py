"""Measures against independent code and random input: trec_eval for rankings, scikit-learn for answers, plain loops for the rest."""
import itertools
import math
import random

import numpy as np
import pytest
from conftest import cases, examples
from hypothesis import assume, given
from hypothesis import strategies as st

pytrec_eval = pytest.importorskip('pytrec_eval')
sklearn_metrics = pytest.importorskip('sklearn.metrics')
for extra in ('ir_measures', 'scipy'): pytest.importorskip(extra)

from cpqa.core.records import Hit, Passage
from cpqa.evaluation.metrics import (MEASURES, MetricsError, answer_measures, aurc, category_measures, covers, ideal_aurc, macro_scores,
                                     passage_chance, passage_values, retrieval_values, risk_coverage, summary)
from cpqa.evaluation.parsing import POLICIES

# our names beside those of trec_eval
TREC = {'nDCG': 'ndcg', 'nDCG@3': 'ndcg_cut_3', 'nDCG@10': 'ndcg_cut_10', 'MRR': 'recip_rank', 'Hit@1': 'success_1', 'Hit@5': 'success_5',
        'R@3': 'recall_3',
        'R@10': 'recall_10', 'R@50': 'recall_50', 'R@100': 'recall_100', 'P@5': 'P_5', 'MAP': 'map', 'MAP@10': 'map_cut_10'}


def ranked(*ids: str) -> list[Hit]: return [Hit(id, 1.0) for id in ids]   # equal scores: only the order can count


# ---- rankings

def by_trec_eval(rankings: dict[str, list[str]], qrels: dict) -> dict[str, dict[str, float]]:
    "trec_eval's values for rankings whose scores fall strictly; nothing for a question without results."
    run = {q: {d: 2.0 * (len(ids) - i) for i, d in enumerate(ids)} for q, ids in rankings.items()}
    return pytrec_eval.RelevanceEvaluator(qrels, set(TREC.values())).evaluate(run)


@pytest.mark.parametrize('seed', range(5))
def test_the_values_are_those_of_trec_eval(seed):
    rng = random.Random(seed)
    pool = [f'd{i}' for i in range(150)]
    qrels = {f'q{i}': {d: rng.choice([-1, 0, 0, 1, 1, 2, 3]) for d in rng.sample(pool, rng.randint(1, 30))} for i in range(60)}
    rankings = {q: rng.sample(pool, rng.choice([0, 1, 5, 20, 120])) for q in qrels if rng.random() < .9}
    # ties, and scores that do not fall
    hits = {q: [Hit(d, float(rng.randint(0, 2))) for d in ids] for q, ids in rankings.items()}
    hits = {q: [h for h in found for _ in range(rng.choice([1, 1, 3]))] for q, found in hits.items()}              # and duplicates
    assert any(q not in hits for q in qrels) and any(not found for found in hits.values())
    ours, theirs = retrieval_values(hits, qrels, list(TREC)), by_trec_eval(rankings, qrels)
    for name, key in TREC.items():
        assert list(ours[name]) == list(qrels)
        assert [ours[name][q] for q in qrels] == pytest.approx([theirs.get(q, {}).get(key, 0.0) for q in qrels], abs=1e-9), name


def test_mrr_with_a_depth_is_cut_there():
    qrels = {'a': {'x': 1}, 'b': {'x': 1}}
    hits = {'a': ranked(*'12345', 'x'), 'b': ranked(*'1234', 'x')}
    assert retrieval_values(hits, qrels, ['MRR@5', 'MRR']) == {'MRR@5': {'a': 0, 'b': 1/5}, 'MRR': {'a': 1/6, 'b': 1/5}}


def test_duplicates_do_not_push_others_down():
    qrels = {'a': {'x': 1, 'y': 2}}
    assert retrieval_values({'a': ranked('n', 'n', 'x', 'n', 'x', 'y')}, qrels) == retrieval_values({'a': ranked('n', 'x', 'y')}, qrels)


@pytest.mark.parametrize('ids', [('a', 'z'), ('z', 'a'), ('10', '9'), ('9', '10'), ('Ä', 'a')])
def test_the_order_of_ties_is_ours_whatever_the_ids(ids):
    values = retrieval_values({'q': ranked(*ids)}, {'q': {ids[1]: 1}}, ['MRR', 'MRR@10', 'R@1', 'MAP'])
    assert values == {'MRR': {'q': .5}, 'MRR@10': {'q': .5}, 'R@1': {'q': 0}, 'MAP': {'q': .5}}


def test_a_long_ranking_keeps_its_order():
    "trec_eval holds scores in single precision, in which scores that differ little would be ties."
    ids = [str(i) for i in range(3000)]
    assert retrieval_values({'q': ranked(*ids)}, {'q': {'2000': 1}}, ['MRR'])['MRR']['q'] == pytest.approx(1/2001)


documents = st.sampled_from('abcdefgh')
judgements = st.dictionaries(st.sampled_from(['q1', 'q2', 'q3', 'q4']), st.dictionaries(documents, st.integers(0, 3), min_size=1),
                             min_size=1)
lists = st.lists(documents, max_size=12)


@examples(50)
@given(judgements, st.data())
def test_values_have_bounds_and_every_question_one(qrels, data):
    hits = {q: ranked(*data.draw(lists)) for q in data.draw(st.sets(st.sampled_from(sorted(qrels))))}
    values = retrieval_values(hits, qrels)
    assert list(values) == list(MEASURES)
    for by_question in values.values():
        assert list(by_question) == list(qrels) and all(0 <= v <= 1 + 1e-12 for v in by_question.values())
        assert all(by_question[q] == 0 for q in qrels if not hits.get(q))
    turned = retrieval_values(dict(reversed(hits.items())), dict(reversed(qrels.items())))
    assert turned == values
    for k in (1, 2, 3):
        few, many = retrieval_values(hits, qrels, [f'R@{k}', f'R@{k + 1}']).values()
        assert all(few[q] <= many[q] for q in qrels)


@examples(50)
@given(judgements, st.data())
def test_a_question_without_results_lowers_the_mean(qrels, data):
    hits = {q: ranked(*data.draw(lists)) for q in qrels}
    mean = lambda values: {name: sum(v.values()) / len(v) for name, v in values.items()}
    before, after = mean(retrieval_values(hits, qrels)), mean(retrieval_values(hits, qrels | {'lost': {'x': 1}}))
    assert all(after[m] == pytest.approx(before[m] * len(qrels) / (len(qrels) + 1)) for m in MEASURES)


@examples(50)
@given(st.lists(documents, min_size=2, unique=True), st.dictionaries(documents, st.integers(0, 3), min_size=1), st.data())
def test_a_better_ranking_never_scores_lower(ids, grades, data):
    "Two neighbours change places so that the better one comes first."
    i = data.draw(st.integers(0, len(ids) - 2))
    first, second = sorted(ids[i:i + 2], key=lambda d: -grades.get(d, 0))
    best, worst = ids[:i] + [first, second] + ids[i + 2:], ids[:i] + [second, first] + ids[i + 2:]
    names = ['MRR', 'MRR@2', 'nDCG', 'nDCG@3', 'MAP', 'R@2', 'Hit@1']
    better, worse = (retrieval_values({'q': ranked(*order)}, {'q': grades}, names) for order in (best, worst))
    assert all(better[m]['q'] >= worse[m]['q'] - 1e-12 for m in names)


@cases('name', ['', 'ndcg@10', 'nDCG@0', 'nDCG@-1', 'R', 'Hit', 'P', 'R@', 'R@1.5', 'MRR@10 ', 'RR@10', 'Success@5', 'nDCG@10\n',
                'R@9999999', '__import__("os")'])
def test_an_unknown_measure_lists_the_known(name):
    with pytest.raises(MetricsError, match='nDCG, MRR or MAP.*Hit@k, R@k or P@k'): retrieval_values({}, {'q': {'a': 1}}, [name])


@pytest.mark.parametrize('grade', [1.0, 0.5, math.nan, '1', None])
def test_a_grade_must_be_a_whole_number(grade):
    with pytest.raises(MetricsError, match='the grade of a for question .q. is'): retrieval_values({}, {'q': {'a': grade}})


def test_rankings_that_cannot_be_scored():
    with pytest.raises(MetricsError, match='2 of 3 questions with results have no judgements'):
        retrieval_values({'q': [], 'r': [], 's': []}, {'q': {'a': 1}})
    with pytest.raises(MetricsError, match='no judged question'): retrieval_values({}, {})
    with pytest.raises(MetricsError, match="question 'r' has no judgement"): retrieval_values({}, {'q': {'a': 1}, 'r': {}})
    with pytest.raises(MetricsError, match='no measure'): retrieval_values({}, {'q': {'a': 1}}, [])


# ---- means

def test_a_summary_holds_its_mean_and_repeats():
    values = {'R@1': {f'q{i}': float(i % 3 == 0) for i in range(50)}}
    first, again, other, narrow = (summary(values, **o)['R@1'] for o in ({}, {}, {'seed': 1}, {'level': .5}))
    assert first == again and first.value == pytest.approx(17/50) and first.low < first.value < first.high and first.n == 50
    assert other.value == first.value and narrow.high - narrow.low < first.high - first.low


def test_a_summary_by_groups_is_wider_where_groups_are_alike():
    values, article = {'R@1': {f'q{i}': float(i // 10 % 2) for i in range(100)}}, {f'q{i}': i // 10 for i in range(100)}
    alone, together = summary(values)['R@1'], summary(values, groups=article | {'another': 0})['R@1']
    assert (together.value, together.n) == (alone.value, 100) and together.high - together.low > 2 * (alone.high - alone.low)
    with pytest.raises(MetricsError, match="1 of 100 questions have no group, the first is 'q3'"):
        summary(values, groups={q: a for q, a in article.items() if q != 'q3'})


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_a_summary_refuses_what_is_no_number(value):
    with pytest.raises(MetricsError, match='expected a finite number'): summary({'R@1': {'a': 1.0, 'b': value}})


def test_a_summary_needs_every_value():
    with pytest.raises(MetricsError, match='R@5 has values for other questions than R@1'): summary({'R@1': {'a': 1.0}, 'R@5': {'b': 1.0}})
    with pytest.raises(MetricsError, match='no value at all'): summary({'R@1': {}})


# ---- passages

def passage(start: int, end: int, doc_id: str = '1') -> Passage: return Passage(doc_id, start, end, 'x' * (end - start))


ranges = st.tuples(st.integers(0, 40), st.integers(1, 40)).map(lambda r: (r[0], r[0] + r[1]))


@given(ranges, st.lists(ranges, min_size=1, max_size=4), st.sampled_from([.1, .5, 1.]))
def test_covering_is_counting_characters(held, spans, share):
    one_by_one = any(sum(held[0] <= i < held[1] for i in range(a, b)) >= share * (b - a) for a, b in spans)
    assert covers(passage(*held), spans, share) == one_by_one


@given(st.lists(st.tuples(ranges, st.sampled_from('12')), max_size=10), st.lists(ranges, min_size=1, max_size=3), st.integers(1, 6))
def test_passages_are_ranked_as_documents_are(held, spans, k):
    ranking = [passage(*r, doc_id=d) for r, d in held]
    values = passage_values({'q': ranking}, {'q': ('1', spans), 'none': ('1', spans)}, k)
    name = lambda p: f'{p.doc_id}:{p.start}:{p.end}'
    good = {name(p): 1 for p in ranking if p.doc_id == '1' and covers(p, spans)} or {'nothing': 1}
    expected = retrieval_values({'q': ranked(*map(name, ranking))}, {'q': good, 'none': {'x': 1}}, [f'Hit@{k}', f'MRR@{k}'])
    assert values[f'Hits@{k}'] == expected[f'Hit@{k}'] and values[f'MRR@{k}'] == pytest.approx(expected[f'MRR@{k}'])


@examples(50)
@given(st.lists(ranges, max_size=5), st.lists(ranges, min_size=1, max_size=2), st.integers(1, 6))
def test_chance_is_the_mean_over_all_orders(held, spans, k):
    cut, spans = [passage(*r) for r in held + held[:1]], {'q': ('1', spans)}     # one of them twice
    orders = [passage_values({'q': order}, spans, k) for order in itertools.permutations([passage(*r) for r in dict.fromkeys(held)])]
    for name, found in passage_chance({'1': cut}, spans, k).items():
        assert found['q'] == pytest.approx(sum(values[name]['q'] for values in orders) / len(orders))


def test_chance_in_an_article_without_passages():
    assert passage_chance({}, {'q': ('1', [(0, 9)])}) == {'Hits@5': {'q': 0}, 'MRR@5': {'q': 0}}
    with pytest.raises(MetricsError, match='k is 0'): passage_chance({}, {'q': ('1', [(0, 9)])}, k=0)


def test_passages_that_cannot_be_scored():
    with pytest.raises(MetricsError, match='1 of 1 questions have no marked span'): passage_values({}, {'q': ('1', [])})
    with pytest.raises(MetricsError, match='no entry among the marked spans'): passage_values({'r': []}, {'q': ('1', [(0, 1)])})
    with pytest.raises(MetricsError, match='no question with marked spans'): passage_values({}, {})
    with pytest.raises(MetricsError, match='k is 0'): passage_values({}, {'q': ('1', [(0, 1)])}, k=0)
    for span in [(3, 3), (5, 2), (-1, 4)]:
        with pytest.raises(MetricsError, match='is not a span'): covers(passage(0, 9), [span])
    for share in (0, 1.1, math.nan):
        with pytest.raises(MetricsError, match='more than 0 and at most 1'): covers(passage(0, 9), [(0, 1)], share)


# ---- answers

classes = ['yes', 'no', 'maybe']
answers = st.lists(st.tuples(st.sampled_from([*classes, None, 'other']), st.sampled_from(classes)), min_size=1, max_size=40)
value_of = lambda labels, gold, policy: {name: i.value for name, i in answer_measures(labels, gold, policy, resamples=10).items()}


@examples(50)
@given(answers, st.sampled_from(list(POLICIES)))
def test_answers_agree_with_scikit_learn(pairs, policy):
    labels, gold = map(list, zip(*pairs))
    counted = [(l, g) for l, g in pairs if l is not None] if policy == 'abstain' else pairs
    assume(counted)
    values = value_of(labels, gold, policy)
    given, wanted = [l or '' for l, _ in counted], [g for _, g in counted]
    theirs = sklearn_metrics.precision_recall_fscore_support(wanted, given, labels=sorted(set(wanted)), average='macro', zero_division=0)
    assert [values[m] for m in ('macro_precision', 'macro_recall', 'macro_f1')] == pytest.approx(theirs[:3])
    assert values['accuracy'] == pytest.approx(sklearn_metrics.accuracy_score(wanted, given))
    assert values['coverage'] == pytest.approx(sum(l is not None for l in labels) / len(labels))
    assert macro_scores(*zip(*counted)) == pytest.approx({m: v for m, v in values.items() if m.startswith('macro')})


def test_an_interval_of_samples_that_differ_by_a_rounding_alone():
    "The upper quantile of ten samples comes out a rounding below the lower one, found at random."
    found = answer_measures(['no', 'yes', 'yes', 'no', 'no', 'no', 'no'], ['no', 'maybe', 'maybe', 'yes', 'yes', 'yes', 'no'], 'wrong',
                            resamples=10)
    assert all(i.low <= i.high for i in found.values()) and found['macro_recall'].low == pytest.approx(found['macro_recall'].value) == 1/3


@examples(30)
@given(answers, st.randoms())
def test_the_order_of_questions_changes_nothing(pairs, rng):
    mixed = rng.sample(pairs, len(pairs))
    assert value_of(*map(list, zip(*pairs)), 'wrong') == pytest.approx(value_of(*map(list, zip(*mixed)), 'wrong'))


@examples(30)
@given(answers)
def test_policies_order_accuracy(pairs):
    "What counts every question never beats what counts the answered ones; an unanswered question more never helps."
    labels, gold = map(list, zip(*pairs))
    assume(any(l is not None for l in labels))
    wrong, abstain = value_of(labels, gold, 'wrong'), value_of(labels, gold, 'abstain')
    assert wrong['accuracy'] == pytest.approx(abstain['accuracy'] * abstain['coverage'])
    more = value_of([*labels, None], [*gold, 'yes'], 'wrong')
    assert more['accuracy'] <= wrong['accuracy'] and more['coverage'] < wrong['coverage']
    assert value_of([*labels, None], [*gold, 'yes'], 'abstain')['accuracy'] == pytest.approx(abstain['accuracy'])


def test_intervals_hold_their_values():
    rng = random.Random(0)
    gold = [rng.choice(classes) for _ in range(300)]
    labels = [g if rng.random() < .7 else rng.choice([*classes, None]) for g in gold]
    for policy in POLICIES:
        for name, i in answer_measures(labels, gold, policy, resamples=500).items():
            assert 0 <= i.low < i.value < i.high <= 1 and i.high - i.low < .2, (policy, name, i)
            assert i.n == (len(gold) if policy != 'abstain' or name == 'coverage' else sum(l is not None for l in labels))


def test_a_sample_that_lacks_a_class_is_averaged_over_the_others():
    "Of thirty-one answers, all right, a third of the samples lack the one 'maybe': each sample scores 1 all the same."
    gold = ['yes'] * 15 + ['no'] * 15 + ['maybe']
    for name, i in answer_measures(gold, gold, 'wrong', resamples=500).items():
        if name.startswith('macro'): assert (i.low, i.value, i.high) == (1, 1, 1), name


def test_macro_intervals_are_those_of_scikit_learn_sample_by_sample():
    rng, n = np.random.default_rng(0), 40
    gold = [*rng.choice(['yes', 'no'], n - 2), 'maybe', 'maybe']
    labels = [g if rng.random() < .7 else rng.choice(['yes', 'no', 'maybe']) for g in gold]
    ours = answer_measures(labels, gold, 'wrong', resamples=1_000)
    picks, lacking = [rng.integers(0, n, n) for _ in range(1_000)], 0
    theirs = []
    for pick in picks:
        wanted, given = [gold[i] for i in pick], [labels[i] for i in pick]
        lacking += 'maybe' not in wanted
        theirs.append(sklearn_metrics.recall_score(wanted, given, labels=sorted(set(wanted)), average='macro', zero_division=0))
    assert lacking > 100 and (ours['macro_recall'].low, ours['macro_recall'].high) == pytest.approx(np.percentile(theirs, [2.5, 97.5]),
        abs=.03)


def test_coverage_outlives_a_policy_that_fills_in():
    filled = answer_measures(['A', 'A', 'B'], ['A', 'B', 'B'], 'first-option', answered=[True, False, True], resamples=10)
    assert filled['coverage'].value == pytest.approx(2/3) and filled['accuracy'].value == pytest.approx(2/3) and filled['accuracy'].n == 3


def test_answers_that_cannot_be_scored():
    with pytest.raises(MetricsError, match='3 labels for 2 gold labels'): answer_measures(['A'] * 3, ['A'] * 2, 'wrong')
    with pytest.raises(MetricsError, match='no answer to score'): answer_measures([], [], 'wrong')
    with pytest.raises(MetricsError, match='1 of 2 questions have no gold label, the first is number 1'):
        macro_scores(['A', 'A'], ['', 'A'])
    with pytest.raises(MetricsError, match='wrong, abstain, first-option, random'): answer_measures(['A'], ['A'], 'skip')
    with pytest.raises(MetricsError, match='none of 1 questions was answered'): answer_measures([None], ['A'], 'abstain')
    with pytest.raises(MetricsError, match='nan is not a label'): answer_measures([math.nan], ['A'], 'wrong')
    with pytest.raises(MetricsError, match='`answered` has 2 entries for 1 questions'):
        answer_measures(['A'], ['A'], 'wrong', answered=[True, True])


# ---- risk and coverage

graded = st.lists(st.tuples(st.booleans(), st.integers(0, 5).map(lambda n: n / 5)), min_size=1, max_size=30)


@given(graded)
def test_the_curve_is_what_a_threshold_gives(pairs):
    correct, confidence = map(list, zip(*pairs))
    coverage, risk = risk_coverage(correct, confidence)
    for threshold, c, r in zip(sorted(set(confidence), reverse=True), coverage, risk, strict=True):
        kept = [ok for ok, sure in pairs if sure >= threshold]
        assert c == pytest.approx(len(kept) / len(pairs)) and r == pytest.approx(1 - sum(kept) / len(kept))
    assert coverage[-1] == 1 and 0 <= ideal_aurc(correct) <= aurc(correct, confidence) + 1e-12 <= 1 + 1e-12


@given(graded, st.randoms())
def test_the_curve_knows_no_order_and_no_scale(pairs, rng):
    same = [(ok, 100 * sure - 7) for ok, sure in rng.sample(pairs, len(pairs))]
    for one, other in zip(risk_coverage(*zip(*pairs)), risk_coverage(*zip(*same))): assert one.tolist() == pytest.approx(other.tolist())


def test_a_perfect_order_is_the_ideal():
    assert aurc([1, 1, 0], [.9, .8, .1]) == ideal_aurc([0, 1, 1]) == pytest.approx(1/9)
    assert aurc([True] * 4, [1, 2, 2, 3]) == 0 and aurc([False] * 4, [1, 2, 2, 3]) == 1


def test_curves_that_cannot_be_drawn():
    with pytest.raises(MetricsError, match='not a finite number'): risk_coverage([True, False], [.5, math.nan])
    with pytest.raises(MetricsError, match='neither right nor wrong'): risk_coverage([1, 2], [.5, .4])
    with pytest.raises(MetricsError, match='2 answers and 3 confidences'): risk_coverage([1, 0], [.5, .4, .3])
    with pytest.raises(MetricsError, match='no answer'): ideal_aurc([])


# ---- categories

routes = st.lists(st.lists(st.sampled_from(['E1', 'E2', 'E3']), max_size=7), min_size=1, max_size=20)


@given(routes, st.integers(1, 6), st.sampled_from([0, 5, 60]))
def test_categories_share_what_the_places_earn(rankings, k, rrf_k):
    assume(any(rankings))
    found = category_measures(rankings, k, rrf_k)
    places = [r for ranking in rankings for r in range(1, min(k, len(ranking)) + 1)]
    assert sum(m.rrf for m in found.values()) == pytest.approx(sum(1 / (rrf_k + r) for r in places))
    assert sum(m.share.value for m in found.values()) == pytest.approx(1) and {m.share.n for m in found.values()} == {len(places)}
    assert all(0 <= m.entropy <= math.log2(k) + 1e-12 for m in found.values()) and list(found) == sorted(found)


def test_entropy_tells_one_rank_from_many():
    spread = category_measures([['a', 'b'], ['b', 'a'], ['c']], k=2, rrf_k=0)
    mass = [1/1.5, .5/1.5]
    assert spread['a'].entropy == spread['b'].entropy == pytest.approx(-sum(p * math.log2(p) for p in mass)) and spread['c'].entropy == 0


def test_categories_that_cannot_be_measured():
    with pytest.raises(MetricsError, match='none of 2 questions has any evidence'): category_measures([[], []])
    for wrong in ({'k': 0}, {'rrf_k': -1}, {'rrf_k': math.nan}):
        with pytest.raises(MetricsError, match='expected k of at least 1 and a finite rrf_k'): category_measures([['E1']], **wrong)
