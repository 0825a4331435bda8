"Scores become probabilities: against scikit-learn and against known truth, for any scores, and as the package ships them."
import json
import math

import numpy as np
import pytest
from conftest import ROOT, cases, examples
from hypothesis import given
from hypothesis import strategies as st

from cpqa.evaluation.statistics import wilson
from cpqa.passages.calibration import (CalibrationError, Calibrator, bin_numbers, calibration_values, calibrator,
                                       expected_calibration_error, fit_calibrator,
                                     read_calibrators, reliability)
from cpqa.passages.cross_encoders import EmbeddedCrossEncoder
from cpqa.passages.rerankers import BM25Reranker, CosineReranker
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder

METHODS = ['logistic', 'isotonic']
RESULTS = ROOT/'benchmarks'/'results'/'calibration.json'


def drawn(n: int = 20_000, slope: float = 2.0, intercept: float = -1.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    "Scores, whether each is relevant, and the probability that it was drawn by."
    r = np.random.default_rng(seed)
    scores = r.normal(size=n)
    truth = 1 / (1 + np.exp(-(slope * scores + intercept)))
    return scores, r.random(n) < truth, truth


# ---- against the truth and another implementation

@pytest.mark.parametrize('method', METHODS)
def test_the_truth_is_found_again(method):
    scores, labels, _ = drawn()
    c = fit_calibrator(scores, labels, method)
    fresh, came, truth = drawn(seed=1)
    p = c.probability(fresh)
    inner = abs(fresh) < 2
    assert abs(p - truth)[inner].max() < (0.02 if method == 'logistic' else 0.12) and abs(p - truth).mean() < 0.02
    assert expected_calibration_error(p, came) < 0.02
    if method == 'logistic': assert (c.slope, c.intercept) == pytest.approx((2.0, -1.5), abs=0.1)


def test_a_foreign_calibrator_is_found_out():
    scores, labels, _ = drawn()
    foreign = fit_calibrator(*drawn(intercept=1.0)[:2])
    own = fit_calibrator(scores, labels)
    a, b = (calibration_values(c.probability(scores), labels) for c in (own, foreign))
    assert all(a[name] < b[name] for name in a) and b['ECE (equal count)'] > 0.2


def test_logistic_agrees_with_scikit_learn():
    linear = pytest.importorskip('sklearn.linear_model')
    scores, labels, _ = drawn(n=300)
    high, low = (labels.sum() + 1) / (labels.sum() + 2), 1 / ((~labels).sum() + 2)          # Platt's targets, as weights of both classes
    target = np.where(labels, high, low)
    both = np.concatenate([np.ones(300), np.zeros(300)]), np.concatenate([target, 1 - target])
    theirs = linear.LogisticRegression(C=1e12, tol=1e-10, max_iter=1000).fit(np.tile(scores, 2)[:, None], both[0], sample_weight=both[1])
    ours = fit_calibrator(scores, labels)
    assert (ours.slope, ours.intercept) == pytest.approx((theirs.coef_[0, 0], theirs.intercept_[0]), rel=1e-4)


@examples(60)
@given(st.integers(0, 10_000), st.integers(20, 200), st.booleans())
def test_isotonic_agrees_with_scikit_learn(seed, n, coarse):
    isotonic = pytest.importorskip('sklearn.isotonic')
    scores, labels, _ = drawn(n, seed=seed)
    if coarse: scores = scores.round(1)                                                     # many equal scores
    if len(set(labels)) < 2: return
    theirs = isotonic.IsotonicRegression().fit(scores, labels)
    if len(set(theirs.predict(scores))) < 2: return                                         # one block is refused
    ours, least = fit_calibrator(scores, labels, 'isotonic'), 1 / (n + 2)
    blocks = {round(float(v), 9) for v in theirs.predict(scores).clip(least, 1 - least)}
    assert {round(p, 9) for _, p in ours.knots} == blocks
    assert np.average(theirs.predict(scores)) == pytest.approx(labels.mean())


def test_intervals_are_those_of_the_statistics():
    scores, labels, _ = drawn(n=500)
    p = fit_calibrator(scores, labels).probability(scores)
    for by in ('count', 'width'):
        for b in reliability(p, labels, by=by):
            i = wilson(round(b.share * b.n), b.n)
            assert (b.share_low, b.share_high) == pytest.approx((i.low, i.high))


# ---- any scores

def judged(min_size: int = 2):
    numbers = st.floats(-1e6, 1e6, width=32) | st.integers(-3, 3).map(float)
    return st.lists(st.tuples(numbers, st.booleans()), min_size=min_size, max_size=60).filter(lambda x: len({y for _, y in x}) == 2)


@examples(150)
@given(judged(), st.lists(st.floats(allow_nan=False, width=32), max_size=40), st.sampled_from(METHODS))
def test_an_order_is_never_turned_round(data, scores, method):
    x, y = zip(*data)
    try: c = fit_calibrator(x, y, method)
    except CalibrationError: return                      # scores that tell nothing, or the wrong way round
    p = c.probability([*sorted(scores), math.inf])
    assert ((p >= 0) & (p <= 1)).all() and (np.diff(p) >= 0).all()
    assert c.probability(np.array(scores, dtype=np.float32)).tolist() == [float(c.probability([np.float32(s)])[0]) for s in scores]
    assert Calibrator.from_json(c.to_json()) == c


@examples(100)
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=50, unique=True))
def test_different_scores_have_different_probabilities(scores):
    scores = sorted({round(s, 2) for s in scores})
    assert len(set(Calibrator('logistic', slope=0.5).probability(scores))) == len(scores)


def test_a_few_passages_give_no_certainty():
    for method in METHODS:
        p = fit_calibrator([1, 2, 3, 4], [0, 0, 1, 1], method).probability([1, 2, 3, 4])
        assert 0 < p.min() and p.max() < 1


@cases('scores', [[1, math.nan], [math.nan], np.array([1, 2, math.nan], dtype=np.float32)])
@cases('method', METHODS)
def test_a_score_that_is_not_a_number_is_an_error(scores, method):
    c = fit_calibrator([1, 2, 3], [0, 1, 1], method)
    with pytest.raises(CalibrationError, match=f'place {len(scores) - 1} is not a number'): c.probability(scores)
    with pytest.raises(CalibrationError): fit_calibrator(scores, [1] * len(scores), method)


@cases('x, y, why', [([], [], '0 of 0'), ([1, 2], [0, 0], '0 of 2'), ([1, 2], [0, 2], 'neither 0 nor 1'),
                     ([1, math.inf], [0, 1], 'infinite'),
                                       ([3, 2, 1], [0, 0, 1], 'not more often relevant'), ([2, 2], [0, 1], 'alike'),
                                       ([[1, 2]], [[0, 1]], r'\(1, 2\)')])
def test_what_cannot_be_fitted_is_said(x, y, why):
    with pytest.raises(CalibrationError, match=why): fit_calibrator(x, y)


@pytest.mark.parametrize('x, y', [([3, 2, 1], [0, 0, 1]), ([2, 2, 2], [0, 1, 1])])
def test_isotonic_too_refuses_scores_that_tell_nothing(x, y):
    with pytest.raises(CalibrationError, match='not more often relevant'): fit_calibrator(x, y, 'isotonic')


@pytest.mark.parametrize('measure', [reliability, expected_calibration_error, calibration_values])
def test_scores_are_no_probabilities(measure):
    for p in ([0.5, 1.5], [-3, 0.2]):
        with pytest.raises(CalibrationError, match='not scores'): measure(p, [0, 1])


# ---- bins

@examples(100)
@given(st.lists(st.tuples(st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans()), min_size=2,
                max_size=80).filter(lambda x: len({y for _, y in x}) == 2),
       st.integers(1, 12), st.sampled_from(['count', 'width']))
def test_bins_hold_every_passage_once(data, bins, by):
    p, y = map(np.array, zip(*data))
    rows = reliability(p, y, bins, by)
    assert len(rows) <= bins and sum(b.n for b in rows) == len(p)
    assert sum(b.n * b.share for b in rows) == pytest.approx(y.sum()) and sum(b.n * b.mean for b in rows) == pytest.approx(p.sum())
    assert all(a.high < b.low for a, b in zip(rows, rows[1:]))                                # equal probabilities are never parted
    naive = sum(b.n * abs(b.mean - b.share) for b in rows) / len(p)
    assert expected_calibration_error(p, y, bins, by) == pytest.approx(naive, abs=1e-12)


def test_bins_of_equal_count_are_about_equal():
    p = np.random.default_rng(0).random(1003)
    assert set(np.bincount(bin_numbers(p))) <= {99, 100, 101, 102}


def test_unknown_bins_are_refused():
    with pytest.raises(CalibrationError, match='count or width'): reliability([0.1, 0.9], [0, 1], by='size')
    with pytest.raises(CalibrationError, match='at least 1'): expected_calibration_error([0.1, 0.9], [0, 1], bins=0)


# ---- as shipped

def test_the_shipped_ones_are_of_our_rerankers():
    assert calibrator(CosineReranker(EmbeddedEncoder(model=MINILM)).describe()) and calibrator({**BM25Reranker().describe(),
        'scale': 'best possible'})
    for c in read_calibrators():
        assert calibrator(c.reranker) == c and c.fitted_on and c.tested_on and c.date and c.questions > 200 and c.n > 10 * c.questions
        assert 0 < c.base_rate < 0.5 and c.ece < 0.05


def test_what_comes_with_cpqa_is_calibrated_as_it_is_now_or_not_at_all():
    "Weights that are replaced take their calibrator with them: one fitted to others is not found."
    for described in (EmbeddedCrossEncoder().describe(), CosineReranker(EmbeddedEncoder()).describe()):
        fitted = [c for c in read_calibrators() if c.reranker == described]
        assert ([calibrator(described)] if fitted else []) == fitted
    card = EmbeddedCrossEncoder().card
    assert calibrator({**EmbeddedCrossEncoder().describe(), 'weights': card.weights[::-1]}) is None and calibrator(
        {**EmbeddedCrossEncoder().describe(), 'max_tokens': 99}) is None


def test_another_model_gets_none():
    for c in read_calibrators():
        for key in c.reranker:
            assert calibrator({**c.reranker, key: 'another'}) is None
            assert calibrator({k: v for k, v in c.reranker.items() if k != key}) is None
        assert calibrator({**c.reranker, 'more': 1}) is None
    assert calibrator({}) is None


def test_the_shipped_ones_are_those_of_the_benchmark():
    if not RESULTS.exists(): pytest.skip('the benchmark has not been run')
    results = [json.loads(path.read_text(encoding='utf-8')) for path in (RESULTS,
        RESULTS.with_name('calibration_default.json')) if path.exists()]
    chosen = {row['ECE (equal count)']['value']: row for result in results
              for row in result['rows'] if row.get('chosen') and row['depth'] == result['depth']}
    for c in read_calibrators():
        row = chosen[round(c.ece, 4)]
        assert row['method'] == c.method and 'round 10' in row['questions']


@cases('damage', [b'', b'[', b'{}', b'[{"method": "magic"}]', b'[{"method": "logistic", "slope": "1"}]', b'[{"method": "isotonic"}]',
                                    b'[{"method": "isotonic", "knots": [[0, 0.5], [1, 0.4]]}]', b'[{"method": "logistic", "slope": 1e999}]',
                                    b'\xff\xfe'])
def test_a_damaged_file_says_what_to_do(tmp_path, damage):
    path = tmp_path/'calibrators.json'
    path.write_bytes(damage)
    with pytest.raises(CalibrationError, match='calibrators.json holds no calibrators that can be read'): read_calibrators(path)
    with pytest.raises(CalibrationError, match='none.json'): read_calibrators(tmp_path/'none.json')
