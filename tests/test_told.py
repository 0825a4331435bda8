"""Which arm had more, as reports say it: each pair is a claim and a quote that carries it; turned around, the claim must fare worse."""
import pytest

from conftest import cases

from cpqa.answering.trial_comparisons import arms, side
from cpqa.answering.trial_comparisons import comparison
from cpqa.answering.polarity import polarity
from cpqa.answering.quote_features import told

LESS = (
    'Zinc reduced nausea compared with placebo.',
    'Zinc increased nausea compared with placebo.',
    'Placebo reduced nausea compared with zinc.',
)
MORE = (
    'Sleep was longer with tea than with milk.',
    'Sleep was shorter with tea than with milk.',
    'Sleep was longer with milk than with tea.',
)
LIFE = (
    'Survival was longer with A-mab than with chemotherapy.',
    'Survival was shorter with A-mab than with chemotherapy.',
    'Survival was longer with chemotherapy than with A-mab.',
)
REST = (
    'Exercise improved fatigue compared with usual care.',
    'Exercise worsened fatigue compared with usual care.',
    'Usual care improved fatigue compared with exercise.',
)
QUOTES = {
    LESS: [
        'Nausea was less frequent in the zinc group than in the placebo group.',
        'Patients in the placebo group had more nausea than those given zinc.',
        'Nausea occurred in 12% of the zinc group and 31% of the placebo group (p = 0.01).',
        'Nausea occurred in 31% of controls and 12% of those who took zinc.',
        'The rate of nausea was 12% vs 31% (zinc vs placebo, p < 0.01).',
        'Nausea fell from 40% to 12% with zinc, but only from 40% to 31% with placebo.',
        'Zinc halved nausea.',
        'Compared with placebo, zinc was associated with a lower risk of nausea (OR 0.42, 95% CI 0.2 to 0.8).',
        'The odds ratio of nausea for zinc versus placebo was 0.42.',
        'A significant decrease in nausea was seen in the treatment group, while the control group did not change.',
        'Nausea decreased significantly in the zinc group; in the placebo group it did not change.',
        'Nausea scores improved more in the zinc group than in the placebo group.',
        'Zinc was superior to placebo in relieving nausea.',
        'Zinc alleviated nausea.',
        'Placebo was inferior to zinc for nausea.',
        'The reduction in nausea was greater with zinc than with placebo.',
        'The reduction in nausea was smaller with placebo than with zinc.',
        'Zinc led to a 30% greater reduction in nausea than placebo.',
        'Nausea: zinc 12%, placebo 31%.',
        'Nausea was seen in 12% and 31% in the treatment and control groups, respectively.',
        'Compared with placebo, zinc changed the rate of nausea (12% vs. 31%, p = 0.01).',
        'In the groups zinc, iron and placebo, nausea occurred in 12%, 20% and 31%, respectively.',
        'Fewer patients on zinc reported nausea (12%) than on placebo (31%).',
        'Nausea was prevented by zinc.',
        'Nausea was significantly lower in the supplemented group (p = 0.02).',
        'Nausea increased in the placebo group but not in the zinc group.',
        'The mean difference in nausea (zinc minus placebo) was -1.2 points.'],
    MORE: [
        'Sleep lasted 7.9 h with tea, 7.1 h with milk.',
        'With milk, sleep was shorter than with tea.',
        'Tea drinkers slept longer than milk drinkers.',
        'Sleep duration was 7.1 ± 0.3 h in the milk group and 7.9 ± 0.4 h in the tea group.',
        'Tea lengthened sleep by 48 minutes more than milk did.',
        'Sleep was shortened by milk but not by tea.',
        'Milk gave the shortest sleep, tea the longest.',
        'Group A (tea) slept longer than group B (milk).',
        'Sleep was longer in group T than in group M.',
        'Sleep in the tea, water and milk groups was 7.9, 7.4 and 7.1 h, respectively.',
        'Sleep was 7.9 h for tea versus 7.1 h for milk.',
        'There was more sleep after tea relative to milk.',
        'Sleep duration was significantly higher for tea.'],
    LIFE: [
        'Median survival was 21 months with A-mab and 14 months with chemotherapy (hazard ratio for death, 0.7).',
        'Median survival was 14 months in the chemotherapy group versus 21 months in the A-mab group.',
        'Survival favoured A-mab (HR 0.7).'],
    REST: [
        'Fatigue was lower in the exercise group than in the usual-care group.',
        'Participants who exercised reported less fatigue.',
        'Fatigue worsened under usual care.'],
}

def points(claim: str, quote: str) -> float:
    found = told(claim, quote)
    return found.side + found.alone + found.numbers

@cases('claims,quote', [(claims, q) for claims, quotes in QUOTES.items() for q in quotes])
def test_a_claim_is_carried_and_its_reverse_is_not(claims, quote):
    true, *turned = (points(claim, quote) for claim in claims)
    assert true > .1 and max(turned) < -.1, (true, turned)

KNOWN = {   # read wrongly or not at all, and so nothing but a wrong reading may change here
    'Nausea resolved faster with zinc.': LESS,
    'The advantage of tea over milk was 48 minutes of sleep.': MORE,
}

@pytest.mark.parametrize('quote', KNOWN)
def test_what_cannot_be_read_says_nothing(quote):
    assert abs(points(KNOWN[quote][0], quote)) < .1

@cases('claim', [c for claims in QUOTES for c in claims])
def test_a_text_about_nothing_of_it_says_nothing(claim):
    assert points(claim, 'The library was open on all days of the year.') == 0 and points(claim, '') == 0

def test_both_arms_are_turned_into_each_other():
    quote = 'Sleep lasted longer in the milk group than in the tea group.'
    one, two = (arms(comparison(claim), quote) for claim in (MORE[0], MORE[2]))
    assert (one.a, one.b, one.treated) == (two.b, two.a, -two.treated)
    cue, = polarity(quote)
    assert side(cue, one) == -side(cue, two) == -1

@cases('text', ['CI' + ' ' * 20_000, 'p' + ' ' * 20_000, '(95% CI ' * 4000, 'increased without ' * 2000, 'x and no y ' * 3000,
                'difference ' * 3000 + '-5', 'Groups ' + 'A and ' * 5000, '1/1/' * 5000, 'It fell from 1.2.3 to 4.5.6 with zinc.',
                'It fell from . to ... with tea.', '9/0 and 0 of 0 with zinc, 1/0 with placebo', 'Compared with ' + 'a, ' * 8000])
def test_a_hostile_text_is_read_too(text):
    "Each took minutes to hours once, or grew with the square of its length; the suite would stand still."
    for pair in ((LESS[0], text), (text, LESS[0])): assert all(-1.001 <= v <= 1.001 for v in told(*pair))
