"""Claims against quotes: sentences of our own, true and turned; a negated answer must not pass; what holds for any two texts."""
import json
from importlib.resources import files

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.trial_comparisons import comparison
from cpqa.answering.figures import figures, misfits
from cpqa.answering.support import ClaimSupport, SupportError, shipped_weights
from cpqa.answering.quote_features import told

RULES = ClaimSupport()
# quote, a claim that it carries, and claims that it does not
PAIRS = [
    ('Survival was significantly longer with the vaccine than with placebo (14.2 vs. 10.1 months, p = 0.003).',
     'The vaccine increased survival compared with placebo.',
     ['The vaccine did not increase survival compared with placebo.', 'The vaccine decreased survival compared with placebo.',
      'Placebo increased survival compared with the vaccine.',
      'The vaccine increased survival compared with placebo (p = 0.3).', 'The vaccine had no effect on survival.',
      'Yoga lowered blood pressure in pregnancy.']),
    ('Nausea was reduced by ginger tablets compared with placebo (P < 0.01).', 'Ginger tablets reduced nausea compared with placebo.',
     ['Ginger tablets did not reduce nausea compared with placebo.', 'Ginger tablets increased nausea compared with placebo.',
      'Nausea was similar with ginger tablets and with placebo.']),
    ('There was no significant difference in fatigue between the walking group and the control group (p = 0.61).',
     'Walking did not change fatigue compared with control.',
     ['Walking reduced fatigue compared with control.', 'Fatigue was higher with walking than with control.',
      'Walking did not change fatigue compared with control (p = 0.06).', 'Walking did not change bone density.']),
    ('Hot flushes were more frequent in the tablet group (38%) than in the patch group (21%).',
     'Hot flushes were higher with the tablet than with the patch.',
     ['Hot flushes were lower with the tablet than with the patch.', 'Hot flushes were higher with the patch than with the tablet.',
      'Hot flushes were higher with the tablet than with the patch (83%).',
      'Hot flushes were higher with the tablet than with the patch (38 mg).']),
]
CASES = [(quote, true, false) for quote, true, turned in PAIRS for false in turned]


@pytest.mark.parametrize('quote, true', [p[:2] for p in PAIRS], ids=lambda x: x[:30])
def test_what_the_quote_says_holds(quote, true): assert RULES.check(true, quote).fault == ''


@cases('quote, true, false', CASES)
def test_what_it_does_not_say_scores_lower(quote, true, false):
    found = RULES.check(false, quote)
    assert found.score < .6 * RULES.score(true, quote), found


NEGATED = [
    ('The drug improved overall survival (HR 0.70, p = 0.002).', 'The drug improved overall survival.',
     'The drug did not improve overall survival.'),
    ('Radiotherapy was effective for bone pain.', 'Radiotherapy was effective for bone pain.',
     'Radiotherapy was not effective for bone pain.'),
    ('Smoking was associated with a higher risk of relapse.', 'Smoking was associated with a higher risk of relapse.',
     'Smoking was not associated with a higher risk of relapse.'),
    ('The diet had no effect on weight (p = 0.44).', 'The diet had no effect on weight.', 'The diet had an effect on weight.'),
    ('Pain did not differ between acupuncture and sham (p = 0.8).', 'Acupuncture did not reduce pain compared with sham.',
     'Acupuncture reduced pain compared with sham.'),
    ('The patch reduced relapses significantly (p < 0.001).', 'The patch reduced relapses.', 'The patch failed to reduce relapses.'),
]


@cases('quote, yes, no', NEGATED)
def test_a_negated_answer_does_not_pass(quote, yes, no):
    good, bad = RULES.checks([(yes, quote), (no, quote)])
    assert good.fault == '' and bad.fault and 'difference' in bad.flips and bad.score < .4 * good.score, (good, bad)


def test_a_cross_encoder_is_refused_with_what_to_do():
    with pytest.raises(SupportError, match='give an encoder'): ClaimSupport(object())


def test_a_pair_scores_the_same_alone_and_in_company():
    pairs = [(false, quote) for quote, _, false in CASES]
    assert RULES.checks(pairs) == [RULES.check(*p) for p in pairs] == RULES.checks(pairs[::-1])[::-1]


SOME = ('tea coffee sleep pain increased reduced did not no difference than with compared , . ( ) 12 3.5% 20mg p < = 0.05 vs '
        'between and group A placebo ± CI [ ] − β × 1,000 .5 two').split()
texts = st.one_of(st.lists(st.sampled_from(SOME), max_size=14).map(' '.join), st.text(max_size=60))


@given(texts, texts)
def test_any_two_texts(claim, quote):
    found = RULES.check(claim, quote)
    assert 0 <= found.score <= 1 and all(0 <= p <= 1 for p in found.parts.values()) and abs(sum(comparison(claim).says) - 1) < 1e-9
    assert all(-1.001 <= v <= 1.001 for v in told(claim, quote)) and not misfits(quote, quote)
    for f in figures(claim): assert 0 <= f.start < f.end <= len(claim)


@pytest.mark.parametrize('text', ['1 ' * 5000, '(' * 3000 + '9', 'than ' * 2000, 'A was higher than B (3 vs. 2). ' * 300, 'p = ' * 3000],
                         ids=lambda t: t[:6])
def test_odd_long_texts_end(text): assert 0 <= RULES.score('Tea increased sleep compared with coffee (p = 0.03).', text) <= 1


def test_the_weights_say_where_they_come_from():
    "And they are those that the benchmark reports."
    raw = json.loads((files('cpqa')/'data'/'claim_support.json').read_text())
    assert len(raw) == 2 and all("'dev'" in w['fitted_on'] and w['articles'] > 50 for w in raw)
    for w in shipped_weights().values():
        parts = {p.name: p for p in w.parts}
        assert parts['direction'].weights[0] > 0 and parts['difference'].weights[0] > 0 and all(x < 0
            for x in parts['figures'].weights) and w.false_alarms <= .15
