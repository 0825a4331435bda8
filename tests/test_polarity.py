"""Polarity: a table of invented pairs, what holds for any pair, and on real text, where it is at hand, the figures that the notebooks
print."""
import gzip
import importlib
import json
import sys

import numpy as np
import pytest
from conftest import ROOT, cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.polarity import CUES, NEAR, NEGATIONS, WORD_SHARE, Opposition, opposed, polarity

OPPOSED = [
    ('denied', 'The vaccine is effective in children.', 'The vaccine is not effective in children.'),
    ('denied', 'The vaccine is effective in children.', 'The vaccine is ineffective in children.'),
    ('denied', 'The vaccine is effective in children.', "The vaccine isn't effective in children."),
    ('denied', 'Exercise had a benefit for knee pain.', 'Exercise had no benefit for knee pain.'),
    ('denied', 'Exercise improved knee pain.', 'Exercise failed to improve knee pain.'),
    ('denied', 'Exercise improved knee pain.', 'Knee pain improved neither with exercise nor with rest.'),
    ('denied', 'There was an improvement of knee pain with exercise.', 'There was a lack of improvement of knee pain with exercise.'),
    ('denied', 'Wounds healed with improvement of pain.', 'Wounds healed without improvement of pain.'),
    ('denied', 'The gel was never effective for burns.', 'The gel was effective for burns.'),
    ('denied', 'The gel affected healing of burns.', 'The gel had no effect on healing of burns.'),
    ('denied', 'The gel increased healing of burns.', 'The gel did not significantly increase healing of burns.'),
    ('denied', 'Healing of burns increased with the gel.', 'An increase of healing of burns was not observed with the gel.'),
    ('denied', 'The gel reduced scars.', 'The gel was unable to reduce scars.'),
    ('denied', 'Scars differed between gel and cream.', 'Scars did not differ between gel and cream.'),
    ('denied', 'Scars were similar with gel and cream.', 'Scars were different with gel and cream.'),
    ('denied', 'Smoking was associated with hair loss.', 'Smoking was not associated with hair loss.'),
    ('denied', 'Smoking was related to hair loss.', 'Smoking was unrelated to hair loss.'),
    ('denied', 'Smoking causes hair loss.', 'Smoking does not cause hair loss.'),
    ('denied', 'The device should be used in pregnancy.', 'The device should not be used in pregnancy.'),
    ('denied', 'The change in weight was significant.', 'The change in weight was not significant.'),
    ('denied', 'A scan is necessary before surgery.', 'A scan is unnecessary before surgery.'),
    ('denied', 'Relapse is likely after surgery.', 'Relapse is unlikely after surgery.'),
    ('denied', 'The syrup is safe for infants.', 'The syrup is unsafe for infants.'),
    ('contrary', 'Weight increased with the diet.', 'Weight decreased with the diet.'),
    ('contrary', 'Weight was higher with the diet.', 'Weight was lower with the diet.'),
    ('contrary', 'Labour was longer with the epidural.', 'Labour was shorter with the epidural.'),
    ('contrary', 'Speech improved after the stroke.', 'Speech worsened after the stroke.'),
    ('contrary', 'More falls happened at night.', 'Fewer falls happened at night.'),
    ('contrary', 'The pump raised blood pressure.', 'The pump reduced blood pressure.'),
    ('contrary', 'The lesion was benign.', 'The lesion was malignant.'),
    ('contrary', 'The bacteria were resistant to penicillin.', 'The bacteria were sensitive to penicillin.'),
    ('contrary', 'The smear was positive.', 'The smear was negative.'),
    ('contrary', 'The rash was present on day two.', 'The rash was absent on day two.'),
    ('contrary', 'The cast was more effective than the splint.', 'The cast was less effective than the splint.'),
    ('contrary', 'The cast was superior to the splint.', 'The cast was inferior to the splint.'),
    ('contrary', 'Pain was lower with the cast than with the splint.', 'Pain was lower with the splint than with the cast.'),
    ('answer', 'Yes, it does.', 'No, it does not.'),
    ('answer', 'No.', 'Yes.'),
    ('answer', 'yes - the gel works on scars', 'no - the gel works on nothing'),
]
NOT_OPPOSED = [
    ('The vaccine is effective in children.', 'The vaccine is effective in children.'),
    ('The vaccine is not effective in children.', 'The vaccine is ineffective in children.'),
    ('The vaccine is not ineffective in children.', 'The vaccine is effective in children.'),
    ('The gel was not without effect on scars.', 'The gel had an effect on scars.'),
    ('There was no increase in weight.', 'There was a decrease in weight.'),
    ('The cast was non-inferior to the splint.', 'The cast was superior to the splint.'),
    ('The vaccine is effective in children.', 'Boats do not sink in calm weather.'),
    ('Weight increased with the diet.', 'Blood pressure decreased after the operation.'),
    ('The gel not only reduced scars but also pain.', 'The gel reduced scars and pain.'),
    ('No doubt the gel reduced scars.', 'The gel reduced scars.'),
    ('The gel reduced scars, without doubt.', 'The gel reduced scars.'),
    ('HER2-negative cancers shrank.', 'HER2-positive cancers shrank.'),
    ('HER2 negative cancers shrank.', 'HER2 positive cancers shrank.'),
    ('Triple negative cancers shrank.', 'Cancers shrank.'),
    ('Gram-negative germs grew on the plate.', 'Gram-positive germs grew on the plate.'),
    ('Non-small cell lung cancer shrank.', 'Lung cancer shrank.'),
    ('Non small cell lung cancer shrank.', 'Small cell lung cancer shrank.'),
    ('The no-carbon added tracer was effective.', 'The tracer was effective.'),
    ('Platinum-resistant ovarian cancer shrank.', 'Platinum-sensitive ovarian cancer shrank.'),
    ('The syrup is effective and has no adverse effects.', 'The syrup is effective.'),
    ('Lower limb pain was reduced.', 'Limb pain was reduced.'),
    ('More than ten patients improved.', 'Less than twenty patients improved.'),
    ('It is unclear whether the gel reduces scars.', 'The gel increased scars.'),
    ('There was a trend towards fewer scars with the gel.', 'There were more scars with the gel.'),
    ('The gel improved scars, but not pain.', 'The gel improved scars.'),
    ('Scars fell, and mood rose.', 'Mood rose and scars fell.'),
    ('The gel reduced scars (no scar in 4 of 9).', 'The gel reduced scars.'),
    ('Pain was lower with the cast than with the splint.', 'Pain was higher with the splint than with the cast.'),
    ('The gel reduced pain.', 'The gel improved pain.'),
    ('The gel prevents an increase of pain.', 'The gel decreases pain.'),
    ('The infused dose helped patients.', 'The fused bones helped patients.'),
    ('Headache with or without fever came on day two.', 'Headache and fever came on day two.'),
    ('Yes, it helps.', 'Yes, indeed.'),
    ('Yes, boats float.', 'No, radiation never cured moles.'),
    ('', 'No.'),
]


def name(pair) -> str: return ' / '.join(pair)[-60:]


@cases('kind, a, b', OPPOSED)
def test_opposed(kind, a, b):
    for one, two in ((a, b), (b, a)):
        found = opposed(one, two)
        assert found and found.kind == kind, (one, two, polarity(one), polarity(two))
        for text, claim in ((one, found.a), (two, found.b)):
            assert 0 <= claim.start < claim.end <= len(text) and text[claim.start:claim.end].startswith(claim.cue.split()[0])


@cases('pair', NOT_OPPOSED)
def test_not_opposed(pair):
    assert opposed(*pair) is None and opposed(*pair[::-1]) is None, [polarity(t) for t in pair]


SOME = [*(w.strip('*').replace('_', ' ') for c in CUES for w in c.words.split()[:3]),
        *(w.strip('*').replace('_', ' ') for w in (NEGATIONS + ' ' + NEAR).split()),
        'tea', 'sleep', 'adults', 'with', 'and', 'but', 'than', ',', '.', ';', '(3)', 'β-blockers', 'Ünï', 'whether', 'Yes,', 'HER2',
        'patients']
texts = st.one_of(st.lists(st.sampled_from(SOME), max_size=12).map(' '.join), st.text(max_size=60))


@given(texts, texts)
def test_any_two_texts(a, b):
    "Nothing is opposed to itself, the order of two texts does not matter, and places are places."
    assert opposed(a, a) is None
    one, two = opposed(a, b), opposed(b, a)
    assert (one is None) == (two is None)
    for text in (a, b):
        for c in polarity(text): assert 0 <= c.start < c.end <= len(text) and c.values and set(c.values) <= set('+0-')
    if one: assert Opposition.from_json(one.to_json()) == one


def test_a_long_text_is_read():
    long = 'The gel reduced scars in the left hand of some patients. ' * 400
    assert opposed(long, 'The gel increased scars in the left hand of some patients.').kind == 'contrary'


def test_real_spans_of_one_answer_are_rarely_opposed(data_dir):
    """Two spans that physicians marked for the same answer do not contradict each other; all figures are in
    benchmarks/results/polarity.json."""
    folder = data_dir/'evidence_inference'
    with gzip.open(folder/'articles.jsonl.gz', 'rt', encoding='utf-8') as f: articles = {a['pmcid']: a['text'] for a in map(json.loads, f)}
    with gzip.open(folder/'questions.jsonl.gz', 'rt', encoding='utf-8') as f: questions = [json.loads(line) for line in f]
    pairs = [(articles[q['pmcid']][a:b], articles[q['pmcid']][c:d]) for q in questions
             for (a, b), (c, d) in zip(sorted(map(tuple, q['evidence'])), sorted(map(tuple, q['evidence']))[1:]) if b <= c]
    assert len(pairs) > 100 and sum(opposed(*p) is not None for p in pairs) < .05 * len(pairs)


@pytest.fixture
def benchmark(monkeypatch):
    "benchmarks/polarity.py as a module."
    pytest.importorskip('scipy')
    monkeypatch.syspath_prepend(str(ROOT/'benchmarks'))
    for name in ('common', 'polarity'): monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module('polarity')


def test_the_results_are_those_of_these_rules(benchmark, data_dir, monkeypatch):
    "The held-out figures that two notebooks print come from the rules as they are now."
    monkeypatch.setattr(benchmark, 'DATA', data_dir)
    rows = {}
    for task, id, a, b, gold in benchmark.pairs():
        if not benchmark.seen(id): rows.setdefault(task, []).append((id, gold, opposed(a, b) is not None))
    saved = json.loads((ROOT/'benchmarks'/'results'/'polarity.json').read_text(encoding='utf-8'))
    assert saved['share'] == WORD_SHARE and list(saved['share_on_seen']) == [str(s) for s in benchmark.SHARES]
    assert {task: benchmark.summary(r) for task, r in rows.items()} == {task: by['rules'] for task, by in saved['held_out'].items()}


def test_pairs_of_one_article_are_drawn_together(benchmark):
    "Forty pairs of two articles tell hardly more than two; with one pair an article the interval is close to Wilson's."
    hits = np.array([True] * 20 + [False] * 20)
    assert benchmark.by_article(['a'] * 20 + ['b'] * 20, hits, np.ones(40)) == [0, 1]
    alone = benchmark.rate([str(i) for i in range(40)], hits, np.ones(40))
    assert alone['by_article'] == pytest.approx([alone['low'], alone['high']], abs=.02)
    assert benchmark.summary([('a', True, True), ('a', True, False), ('b', False, False)])['recall']['value'] == .5


@pytest.mark.parametrize('text', ['(' + '1' * 20_000, 'no ' * 3000, 'not increased, ' * 1500, 'neither, ' * 1000 + 'increased',
                                  'The gel reduced scars. ' * 500], ids=lambda t: t[:10])
def test_odd_long_texts_end(text): opposed(text, 'The gel increased scars.')   # a long run of negations once took minutes
