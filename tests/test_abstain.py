"Confidence: against scikit-learn, for any evidence, as the package ships it, and end to end on the demo notes."
import json
import math

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpqa import CancerQA
from cpqa.answering.abstention import (ABSTAIN_BELOW, CONFIDENCE_FILE, FEATURES, AbstentionError, ConfidenceModel, confidence,
                                       confidence_model, evidence_features,
                                    Grounds, abstention, read_confidence_models)
from cpqa.core.records import Evidence, Passage
from cpqa.passages.cross_encoders import EmbeddedCrossEncoder
from cpqa.retrieval.encoders import EmbeddedEncoder

pytestmark = pytest.mark.usefixtures('loaded_once')
MODELS = read_confidence_models()
RESULTS = ROOT/'benchmarks'/'results'/'abstention.json'
WORDS = 'Walking eased fatigue in people with XYZ1 tumours'


def passage(text: str = WORDS, id: str = '1') -> Passage: return Passage(id, 0, len(text), text)


readings = st.lists(st.builds(lambda s, r, p: Evidence(passage(), s, r, probability=p), st.floats(-1, 1),
                              st.sampled_from(['E1', 'E2', 'E3']), st.none() | st.floats(0, 1)), max_size=10)


# ---- for any evidence

@given(question=st.text(max_size=60), evidence=readings)
def test_features_and_confidence_stay_in_their_bounds(question, evidence):
    f = evidence_features(question, evidence)
    assert (f == {}) == all(e.probability is None for e in evidence)
    if f:
        assert tuple(f) == FEATURES and all(map(math.isfinite, f.values()))
        assert all(0 <= f[name] <= 1 for name in ('both', 'words', 'names')) and f['best'] >= f['three'] - 1e-9
    sure = confidence(question, evidence, MODELS[0].reranker, MODELS[0].encoder)
    if not evidence: assert sure == 0
    else: assert (sure is None) == (f == {}) and (sure is None or 0 <= sure <= 1)


@given(evidence=readings.filter(lambda some: any(e.probability is not None for e in some)))
def test_passages_that_were_not_ranked_change_nothing(evidence):
    ranked = [e for e in evidence if e.probability is not None]
    assert evidence_features(WORDS, evidence) == evidence_features(WORDS, ranked)


@pytest.mark.parametrize('model', MODELS, ids=lambda m: m.reranker['reranker'])
def test_better_evidence_is_trusted_more(model):
    f = evidence_features('Does walking ease fatigue with XYZ1?', [Evidence(passage(), 0.5, 'E3', probability=0.6)])
    for name in ('best', 'nearest', 'words', 'names'):
        assert model.probability({**f, name: f[name] + 0.2}) > model.probability(f), name


def test_a_name_that_stands_nowhere_counts():
    evidence = [Evidence(passage(), 0.5, 'E3', probability=0.6)]
    here, elsewhere = (evidence_features(f'Does {name} cause fatigue?', evidence) for name in ('XYZ1', 'XYZ2'))
    assert (here['names'], elsewhere['names']) == (1, 0)
    assert evidence_features('does XYZ1 differ from ABC-7 and pH?', evidence)['names'] == pytest.approx(1/3)
    assert evidence_features('', evidence)['words'] == 0 and evidence_features('?', evidence)['names'] == 1


def test_extreme_sums_do_not_overflow():
    m = ConfidenceModel({'best': 1e300}, 0.0)
    assert (m.probability({'best': 1.0}), m.probability({'best': -1.0})) == (1, 0)


# ---- against another implementation

def test_it_agrees_with_scikit_learn():
    linear = pytest.importorskip('sklearn.linear_model')
    r = np.random.default_rng(0)
    x = r.normal(size=(400, len(FEATURES)))
    y = r.random(400) < 1 / (1 + np.exp(-x @ np.arange(6)))
    fit = linear.LogisticRegression().fit(x, y)
    ours = ConfidenceModel(dict(zip(FEATURES, fit.coef_[0].tolist())), float(fit.intercept_[0]))
    assert [ours.probability(dict(zip(FEATURES, row))) for row in x] == pytest.approx(fit.predict_proba(x)[:, 1].tolist(), abs=1e-12)


# ---- as the package ships them

def test_there_is_one_for_the_default():
    described = EmbeddedCrossEncoder().describe(), EmbeddedEncoder().describe()
    model = confidence_model(*described)
    assert model is not None and set(model.weights) == set(FEATURES)
    for other in ({**described[0], 'weights': 'x'}, {}): assert confidence_model(other, described[1]) is None
    assert confidence_model(described[0], {}) is None
    for m in MODELS: assert m.fitted_on and m.tested_on and m.questions >= 150 and m.date and 0 < m.ece < 0.1


def test_the_cards_say_what_the_result_says():
    result = json.loads(RESULTS.read_text())
    kept = {row['reranker']: row for row in result['rows'] if row['kept']}
    assert result['abstain_below'] == ABSTAIN_BELOW == result['chosen']['default']['limit that answers the aim on that half']
    assert set(kept) == {m.reranker['reranker'] for m in MODELS}
    for m in MODELS:
        row = kept[m.reranker['reranker']]
        at = row['at abstain_below']
        assert (m.answered, m.abstained) == pytest.approx((at['answered']['value'], at['abstained']['value']))
        assert m.weights == pytest.approx(row['weights'],
                                          abs=1e-3) and m.ece == pytest.approx(
                                              row['tested on the other half']['calibration']['ECE (equal count)'])


def test_the_result_holds_numbers_alone():
    "Of the questions of BioASQ no word is kept."
    def texts(x):
        if isinstance(x, dict): return [t for k, v in x.items() for t in [k, *texts(v)]]
        if isinstance(x, list): return [t for v in x for t in texts(v)]
        return [x] if isinstance(x, str) else []
    assert not [t for t in texts(json.loads(RESULTS.read_text())) if t.rstrip().endswith('?')]


@pytest.mark.parametrize('content, said', [(None, 'install cpqa again'), ('[', 'install cpqa again'),
                                           ('[{"weights": {"mood": 1}, "intercept": 0}]', 'expected some of best'),
                                           ('[{"weights": {"best": "x"}, "intercept": 0}]', 'weights')])
def test_a_damaged_file_is_said(tmp_path, content, said):
    file = tmp_path/CONFIDENCE_FILE.name
    if content is not None: file.write_text(content)
    with pytest.raises(AbstentionError, match=said): read_confidence_models(file)


def test_two_for_one_are_refused(tmp_path):
    (tmp_path/'two.json').write_text(f'[{MODELS[0].to_json()}, {replace(MODELS[0], intercept=0.0).to_json()}]')
    with pytest.raises(AbstentionError, match='two confidence models'): read_confidence_models(tmp_path/'two.json')


def test_the_sentence_shows_no_number_that_the_limit_contradicts():
    why = lambda p: abstention(Grounds(p, ABSTAIN_BELOW))
    assert why(ABSTAIN_BELOW) is None and why(None) is None and why(1.0) is None
    for p in (0.0, 0.004, 0.2, ABSTAIN_BELOW - 1e-9): assert str(why(p)).endswith('too little to rest an answer on.')


# ---- end to end

@pytest.fixture(scope='module')
def qa() -> CancerQA: return CancerQA()


def asked(qa: CancerQA, question: str) -> float:
    answer = qa.ask(question)
    return confidence(question, answer.evidence, qa.two_stage(qa.vectors).reranker.describe(), qa.encoder.describe())


@pytest.mark.parametrize('question', ['Is tisagenlecleucel effective for B-cell lymphoma?', 'Can sunitinib cause a collapsed lung?',
                                      'Do older people with cancer fall more often?'])
def test_what_a_note_answers_is_answered(qa, question): assert asked(qa, question) > ABSTAIN_BELOW


@pytest.mark.parametrize('question', ['How do I bake sourdough bread?', 'Which inhaler is best for asthma?',
                                      'What is the mechanism of action of zelvorafinib?', 'qwrt zzxy'])
def test_what_no_note_answers_is_not(qa, question): assert asked(qa, question) < ABSTAIN_BELOW
