"""Statistics against statsmodels, against plain definitions, and against simulated sets of questions whose truth is known."""
import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from conftest import cases
from conftest import NIGHTLY
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip('scipy')

from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm, ttest_rel

from cpqa.core.errors import CpqaError
from cpqa.evaluation.statistics import (Interval, McNemar, StatisticsError, bootstrap, holm, mcnemar, mcnemar_counts, mcnemar_power,
                                        paired_bootstrap, permutation, questions_needed, questions_needed_for_means, wilson)

levels = st.sampled_from([.5, .8, .9, .95, .99])
shares = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
tables = st.integers(1, 800).flatmap(lambda n: st.integers(0,
                                                           n).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, n - b), st.just(n))))
numbers = st.floats(-100, 100)
probabilities = st.floats(0, 1)


# ---- against statsmodels

@given(shares, levels)
def test_wilson_is_statsmodels(share, level):
    proportion = pytest.importorskip('statsmodels.stats.proportion')
    k, n = share
    found = wilson(k, n, level)
    assert (found.low, found.high) == pytest.approx(proportion.proportion_confint(k, n, alpha=1 - level, method='wilson'), abs=1e-9)
    assert 0 <= found.low <= found.value <= found.high <= 1 and (found.n, found.level) == (n, level)


@given(tables)
def test_mcnemar_is_statsmodels(table):
    tables = pytest.importorskip('statsmodels.stats.contingency_tables')
    b, c, n = table
    if b + c == 0: assert mcnemar_counts(b, c, n).p == 1
    else: assert mcnemar_counts(b, c, n).p == pytest.approx(min(1, tables.mcnemar([[n - b - c, b], [c, 0]], exact=True).pvalue), abs=1e-12)


@given(st.lists(probabilities, min_size=1, max_size=12))
def test_holm_is_its_definition(found_p):
    family = {f'comparison {n}': p for n, p in enumerate(found_p)}
    with pytest.MonkeyPatch.context() as patch:
        # statsmodels calls it each time, which takes a second in a process that has loaded much
        patch.setattr('gc.collect', lambda *generation: 0)
        found = holm(family)
    ordered = sorted(family, key=family.get)
    wanted = dict(zip(ordered, itertools.accumulate((min(1, (len(family) - i) * family[name]) for i, name in enumerate(ordered)), max)))
    assert list(found) == list(family) and found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize('difference, sd, power, level',
                         [(.02, .25, .8, .05), (-.3, 1, .9, .01), (2, 1, .8, .05), (.05, .1, .5, .1), (50, 1e-6, .8, .05)])
def test_questions_for_means_are_statsmodels(difference, sd, power, level):
    t_test = pytest.importorskip('statsmodels.stats.power').TTestPower()
    n = questions_needed_for_means(difference, sd, power, level)
    reaches = lambda n: t_test.power(abs(difference) / sd, n, level) >= power
    assert n == 2 or (reaches(n) and not reaches(n - 1))


# ---- McNemar and Tango, by definition

@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_counts_its_questions(pairs):
    a, b = zip(*pairs)
    found, back = mcnemar(a, b), mcnemar(np.array(b), np.array(a))
    assert (found.only_a, found.only_b, found.n) == (pairs.count((True, False)), pairs.count((False, True)), len(pairs))
    assert found == mcnemar_counts(found.only_a, found.only_b, found.n) and found.changed == found.only_a + found.only_b
    assert found.difference.value == pytest.approx(np.mean(a) - np.mean(b))
    assert (back.p, back.difference.low, back.difference.high) == (found.p, -found.difference.high, -found.difference.low)
    assert McNemar.from_json(found.to_json()) == found


def most_likely(b, c, n, d):
    "The share of questions that only the second has right, most likely if the difference is d, found by search."
    log = lambda count, p: count * np.log(max(p, 1e-300)) if count else 0.0
    low, high = max(0, -d), (1 - d) / 2
    return minimize_scalar(lambda q: -log(b, q + d) - log(c, q) - log(n - b - c, 1 - 2*q - d), bounds=(low, high), method='bounded',
                           options={'xatol': 1e-12}).x


@given(tables, levels)
@example((0, 0, 10), .95)
@example((10, 0, 10), .95)
@example((0, 10, 10), .95)
@example((1, 7, 21), .95)
def test_tango_solves_the_score_equation(table, level):
    b, c, n = table
    found, z = mcnemar_counts(b, c, n, level).difference, norm.isf((1 - level) / 2)
    assert -1 <= found.low <= found.value <= found.high <= 1
    for end, sign in ((found.low, 1), (found.high, -1)):
        if abs(end) > 1 - 1e-6: continue                # there the variance is nought
        q = most_likely(b, c, n, end)
        assert (b - c - n*end) / np.sqrt(n * (2*q + end*(1 - end))) == pytest.approx(sign * z, rel=1e-3)


@given(tables)
def test_a_wider_level_is_a_wider_interval(table):
    b, c, n = table
    narrow, wide = (mcnemar_counts(b, c, n, level).difference for level in (.8, .99))
    assert wide.low <= narrow.low <= narrow.high <= wide.high


# ---- permutation and bootstrap

@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_few_differences_are_tried_in_every_sign(differences):
    zeros = [0] * len(differences)
    every = [abs(np.dot(s, differences)) for s in itertools.product([1, -1], repeat=len(differences))]
    assert permutation(differences, zeros) == pytest.approx(np.mean([e >= abs(sum(differences)) for e in every]))
    assert permutation(differences, zeros) == permutation(zeros, differences)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=13))
def test_of_right_and_wrong_it_is_mcnemar(pairs):
    a, b = zip(*pairs)
    assert permutation(a, b) == pytest.approx(mcnemar(a, b).p)


def test_many_differences_are_drawn():
    draw = np.random.default_rng(5)
    a = draw.normal(.1, 1, 400); b = a - draw.normal(.03, .5, 400)
    p = permutation(a, b)
    assert p == permutation(a, b) != permutation(a, b, seed=1)
    assert p == pytest.approx(ttest_rel(a, b).pvalue, rel=.25) and p == pytest.approx(permutation(a, b, seed=1), rel=.25)
    assert permutation(a + 9, b) == pytest.approx(1 / 10_001)          # none of the drawn was as far: never nought


@given(st.lists(numbers, min_size=1, max_size=20), st.integers(0, 9))
def test_bootstrap_stays_within_its_values(values, seed):
    found = bootstrap(values, resamples=50, seed=seed)
    assert found == bootstrap(np.array(values), resamples=50, seed=seed)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9 and found.n == len(values)
    shifted = paired_bootstrap(values, [0] * len(values), resamples=50, seed=seed)
    assert shifted == found


def test_bootstrap_takes_a_statistic_that_knows_no_axis():
    values = np.random.default_rng(0).random(30)
    assert bootstrap(values, lambda x: float(np.mean(x)), resamples=200) == bootstrap(values, resamples=200)


def test_groups_are_drawn_whole():
    "All 27 draws of three groups of unequal size, by hand: the ends are quantiles of these means over questions."
    groups, values = 'aabccc', [1, 0, 1, 0, 0, 1]
    parts = [[1, 0], [1], [0, 0, 1]]
    every = sorted(np.mean(sum(pick, [])) for pick in itertools.product(parts, repeat=3))
    for level in (.5, .8):
        found = bootstrap(values, level=level, groups=groups, resamples=100_000)
        ends = [every[int(27 * (1 + sign * level) / 2)] for sign in (-1, 1)]
        assert [found.low, found.high] == pytest.approx(ends) and (found.value, found.n) == (.5, 6)


def test_the_order_of_grouped_questions_does_not_matter():
    draw = np.random.default_rng(6)
    groups = draw.integers(0, 20, 60)
    values = draw.random(60)
    found = bootstrap(values, groups=groups, resamples=500)
    order = np.argsort(groups, kind='stable')
    together = bootstrap(values[order], groups=groups[order], resamples=500)
    assert (found.low, found.high) == pytest.approx((together.low, together.high), abs=.03)
    slow = bootstrap(values, lambda x: float(np.mean(x)), groups=groups, resamples=500)     # not known to be the mean: the long way
    assert (slow.low, slow.high) == pytest.approx((found.low, found.high))
    assert bootstrap(values, groups=[0] * 60).low == pytest.approx(values.mean())


@given(st.lists(numbers, min_size=1, max_size=20), st.integers(0, 9))
def test_groups_of_one_are_no_groups(values, seed):
    found, plain = bootstrap(values, resamples=50, seed=seed, groups=range(len(values))), bootstrap(values, resamples=50, seed=seed)
    assert (found.value, found.n) == (plain.value, plain.n)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), abs=1e-9)      # the same draws


def test_bootstrap_memory_is_bounded():
    values = np.random.default_rng(0).random(20_000)                   # 1,000 resamples of it, at once: 320 MB
    bootstrap(values, resamples=10)
    tracemalloc.start()
    try:
        bootstrap(values, resamples=1_000)
        assert tracemalloc.get_traced_memory()[1] < 60e6
        tracemalloc.reset_peak()
        bootstrap(values, resamples=1_000, groups=range(20_000))
        assert tracemalloc.get_traced_memory()[1] < 80e6
        tracemalloc.reset_peak()
        permutation(values, np.zeros(20_000), resamples=1_000)
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally: tracemalloc.stop()


# ---- how often the intervals hold the truth

@pytest.mark.parametrize('n', [20, 50, 344])
def test_wilson_covers(n):
    "The exact chance, averaged over true shares: about 95 %, and never far below."
    intervals = [wilson(k, n) for k in range(n + 1)]
    low, high = np.array([i.low for i in intervals]), np.array([i.high for i in intervals])
    covered = [binom.pmf(np.arange(n + 1), n, p)[(low <= p) & (p <= high)].sum() for p in np.linspace(.05, .95, 91)]
    assert .94 < np.mean(covered) < .965 and min(covered) > .91


@pytest.mark.parametrize('n, only_a, only_b', [(50, .1, .06), (50, .3, .1), (344, .08, .05), (344, .02, .0)])
def test_tango_covers(n, only_a, only_b):
    draws = np.random.default_rng(1).multinomial(n, [only_a, only_b, 1 - only_a - only_b], size=4_000)
    tables, times = np.unique(draws, axis=0, return_counts=True)
    held = [(d := mcnemar_counts(int(b), int(c), n).difference).low <= only_a - only_b <= d.high for b, c, _ in tables]
    assert .935 < np.dot(held, times) / 4_000 < .98


@pytest.mark.parametrize('n, least, most', [(15, .85, .93), (200, .93, .97)])
def test_bootstrap_covers(n, least, most):
    "About 95 % of many questions, a little less of few, as the notebook says."
    draw = np.random.default_rng(2)
    held = [(i := bootstrap(draw.exponential(1, n), resamples=500, seed=s)).low <= 1 <= i.high for s in range(1_000 if NIGHTLY else 500)]
    assert least < np.mean(held) < most


def test_only_whole_groups_cover_questions_that_are_alike():
    "Sixty articles of one to nine questions each, easy or hard together: taken one by one, questions promise too much."
    draw, held, n = np.random.default_rng(7), {'groups': 0, 'questions': 0}, 400 if NIGHTLY else 150
    for s in range(n):
        sizes = draw.integers(1, 10, 60)
        groups = np.repeat(np.arange(60), sizes)
        values = np.repeat(draw.normal(0, 1, 60), sizes) + draw.normal(0, .5, sizes.sum())     # the truth is 0
        for name, of in (('groups', groups), ('questions', None)):
            i = bootstrap(values, resamples=400, seed=s, groups=of)
            held[name] += i.low <= 0 <= i.high
    assert .91 < held['groups'] / n < .98 and held['questions'] / n < .75


def test_p_is_below_a_twentieth_for_at_most_a_twentieth():
    draw = np.random.default_rng(3)
    exact = [mcnemar_counts(int(b), int(c), 100).p < .05 for b, c, _ in draw.multinomial(100, [.1, .1, .8], size=2_000 if NIGHTLY else 500)]
    flips = [permutation(draw.normal(size=8), draw.normal(size=8)) < .05 for _ in range(400 if NIGHTLY else 200)]
    assert np.mean(exact) < .05 and np.mean(flips) < .08


# ---- how many questions

@pytest.mark.parametrize('difference, discordant, power, level',
                         [(.1, .2, .8, .05), (.2, .2, .8, .05), (.15, .4, .9, .01), (-.1, .1, .5, .05), (.3, .9, .8, .05)])
def test_questions_needed_is_where_the_power_is_reached(difference, discordant, power, level):
    n = questions_needed(difference, discordant, power, level)
    assert mcnemar_power(n, difference, discordant, level) >= power > mcnemar_power(n - 1, difference, discordant, level)
    assert all(mcnemar_power(m, difference, discordant, level) < power for m in range(1, n))


@pytest.mark.parametrize('n, difference, discordant', [(12, .3, .5), (30, .2, .2), (9, .5, 1), (1, 1, 1)])
def test_power_is_the_sum_over_all_tables(n, difference, discordant):
    b, c = (discordant + difference) / 2, (discordant - difference) / 2
    from scipy.stats import multinomial
    total = sum(multinomial.pmf([i, j, n - i - j], n, [b, c, 1 - b - c]) for i in range(n + 1) for j in range(n
        + 1 - i) if mcnemar_counts(i, j, n).p < .05)
    assert mcnemar_power(n, difference, discordant) == pytest.approx(total, abs=1e-9)


def test_simulated_studies_reach_the_power():
    n = questions_needed(.03, .1)
    tables, times = np.unique(np.random.default_rng(4).multinomial(n, [.065, .035, .9], size=4_000), axis=0, return_counts=True)
    assert np.dot([mcnemar_counts(int(b), int(c), n).p < .05 for b, c, _ in tables], times) / 4_000 == pytest.approx(.8, abs=.025)


# ---- what is refused

nan = float('nan')
REFUSED = {
    'no questions': lambda: wilson(0, 0),
    'less than no questions': lambda: wilson(0, -1),
    'part of a question': lambda: wilson(1.5, 3),
    'a number too many': lambda: wilson(4, 3),
    'less than nothing right': lambda: wilson(-1, 3),
    'a count that is a bool': lambda: wilson(True, 3),
    'a level in percent': lambda: wilson(1, 3, 95),
    'a level of one': lambda: wilson(1, 3, 1.0),
    'a level of nought': lambda: bootstrap([1, 2], level=0),
    'a level that is no number': lambda: mcnemar_counts(1, 2, 3, nan),
    'empty values': lambda: bootstrap([]),
    'empty array': lambda: bootstrap(np.array([])),
    'nan': lambda: bootstrap([1.0, nan]),
    'infinity': lambda: bootstrap([1.0, float('inf')]),
    'None': lambda: bootstrap([1.0, None]),
    'a string': lambda: bootstrap(['1.0']),
    'a table': lambda: bootstrap([[1, 2], [3]]),
    'more groups than values': lambda: bootstrap([1, 2], groups='abc'),
    'no resamples': lambda: bootstrap([1, 2], resamples=0),
    'different lengths': lambda: mcnemar([True], [True, False]),
    'different lengths of numbers': lambda: permutation([1], [1, 2]),
    'different lengths again': lambda: paired_bootstrap([1], [1, 2]),
    'nothing to compare': lambda: mcnemar([], []),
    'nothing to permute': lambda: permutation([], []),
    'one for True': lambda: mcnemar([1, 0], [True, False]),
    'letters for True': lambda: mcnemar([True], ['A']),
    'an unanswered question': lambda: mcnemar([True], [None]),
    'an array of numbers': lambda: mcnemar(np.array([1.0]), np.array([0.0])),
    'nan in a pair': lambda: permutation([nan], [1]),
    'more changed than asked': lambda: mcnemar_counts(2, 2, 3),
    'counts of nothing': lambda: mcnemar_counts(0, 0, 0),
    'p above one': lambda: holm({'x': 1.01}),
    'p below nought': lambda: holm({'x': -.01}),
    'p that is no number': lambda: holm({'x': nan}),
    'no p': lambda: holm({}),
    'no difference': lambda: questions_needed(0, .1),
    'too few change': lambda: questions_needed(.2, .1),
    'a share above one': lambda: questions_needed(.2, 1.1),
    'a power of one': lambda: questions_needed(.1, .2, power=1),
    'a level of confidence': lambda: questions_needed(.1, .2, level=.95),
    'no spread': lambda: questions_needed_for_means(.1, 0),
    'no difference of means': lambda: questions_needed_for_means(0, 1),
    'a spread that is no number': lambda: questions_needed_for_means(.1, nan),
}


@cases('call', REFUSED.values())
def test_is_refused(call):
    with pytest.raises(StatisticsError, match='expected|not there'): call()
    assert issubclass(StatisticsError, CpqaError)


def test_nothing_asked_is_said_so():
    for call in (REFUSED['no questions'], REFUSED['counts of nothing']):
        with pytest.raises(StatisticsError, match='n is 0'): call()


@given(st.floats(), st.floats(), st.floats())
def test_an_interval_is_in_order(value, low, high):
    if np.isfinite([value, low, high]).all() and low <= high:
        assert Interval.from_json(Interval(value, low, high, n=1).to_json()).low == low
    else:
        with pytest.raises(ValueError, match='no interval'): Interval(value, low, high, n=1)


def test_importing_is_light():
    code = ("import sys, cpqa.evaluation.statistics; sys.exit(any(m.split('.')[0] in ('scipy', 'pandas', 'statsmodels') for m in "
            "sys.modules))")
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0
