"""The statements made of Evidence Inference, and the figures that the notebooks print from benchmarks/results/claim_support.json."""
import json
from collections import Counter
from importlib.resources import files

import pytest
from conftest import ROOT

from cpqa.answering.support import ClaimSupport
from cpqa.evaluation.claims import FLIPS, MIRROR, WORDINGS, auroc, auroc_by_kind, statements
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.passages import part_of


@pytest.fixture(scope='module')
def marked(data_dir):
    folder = data_dir/'evidence_inference'
    if not folder.is_dir(): pytest.skip('needs Evidence Inference')
    return read_marked(folder)


@pytest.fixture(scope='module')
def saved(): return json.loads((ROOT/'benchmarks'/'results'/'claim_support.json').read_text(encoding='utf-8'))


def test_every_wording_names_its_parts():
    for value, some in WORDINGS.items():
        assert some.count('|') == 1 and MIRROR[MIRROR[value]] == value
        for w in some: assert w == '|' or '{x}' in w and '{y}' in w


def test_the_statements_are_those_that_were_measured(marked, saved):
    made = list(statements(marked))
    halves = Counter(part_of(m.article) for m in made)
    assert {h: saved['statements'][h] for h in halves} == dict(halves) and saved['statements']['of articles set aside'] > 800
    assert saved["articles"] == {
        h: len({m.article for m in made if part_of(m.article) == h}) for h in halves}
    assert not any(m.unseen for m in made if part_of(m.article) == 'dev')
    for kind in FLIPS:
        n = sum(m.flip == kind for m in made if part_of(m.article) == 'test')
        assert n == saved['test']['rules']['all' if kind == 'all' else kind]['false'] > 200


def test_a_flipped_statement_differs_from_the_true_one(marked):
    made = list(statements(marked, 'dev'))
    true = {(m.id, m.quote, m.text) for m in made if m.true}
    assert len(true) > 700 and not any((m.id, m.quote, m.text) in true for m in made if not m.true)
    by = {m.id: m for m in made if m.flip == ''}
    for m in made:
        if m.flip == 'article': assert m.quote != by[m.id].quote or by[m.id].article != m.article


def test_the_half_that_was_not_seen_is_told_apart(marked):
    "On the first articles of 'test', by rules alone; all figures are in the results file."
    made = [m for m in statements(marked, 'test')][:700]
    found = auroc_by_kind(made, [s.score for s in ClaimSupport().checks([(m.text, m.quote) for m in made])], resamples=50)
    assert found['all']['auroc'] > .85 and all(found[kind]['auroc'] > .6 for kind in FLIPS if kind in found)


def test_the_goal_is_met_on_the_half_that_was_not_seen(saved):
    assert saved['test']['rules and models']['all']['auroc'] >= .85 and saved['test']['rules']['all']['auroc'] >= .85
    assert saved['caught']['rules and models']['true'] < .25


def test_the_weights_in_the_package_are_those_that_were_measured(saved):
    shipped = {'rules and models' if w['encoder'] else 'rules': w
               for w in json.loads((files('cpqa')/'data'/'claim_support.json').read_text())}
    assert {name: w['parts'] for name, w in shipped.items()} == saved['weights']
    assert {name: w['fault_below'] for name, w in shipped.items()} == saved['fault_below']


def test_auroc_agrees_with_scikit_learn():
    metrics = pytest.importorskip('sklearn.metrics')
    true, false = [.9, .5, .5, .2], [.5, .1, .3]
    assert auroc(true, false) == pytest.approx(metrics.roc_auc_score([1] * 4 + [0] * 3, true + false))
