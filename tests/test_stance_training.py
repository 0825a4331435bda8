"The training of the stance network beyond its notebooks: truths by hand, nothing of a test among the examples, a network that learns."
import gzip
import json
import random
import re
from collections import Counter

import numpy as np
import pytest
from conftest import ROOT, cases

from cpqa.answering.stance import InContext, StanceModel, prepare_stance
from cpqa.core.text_analysis import ENGLISH
from cpqa.core.word_lists import word_lists
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.passages import part_of
from cpqa.literature.pubmed import read_beir
from cpqa.retrieval.openvino_models import ModelError
from cpqa.testing.tiny_models import tiny_bert
from cpqa.training import stance_network as net
from cpqa.training.examples import ExamplesError
from cpqa.training.hard_negatives import TrainingError
from cpqa.training.held_out import reserved
from cpqa.training.made_findings import ComparedArms, four_claims, frame_filled, framed, made_claim, made_finding, names_first, true_to_tell
from cpqa.training.stance_examples import (STANCE_ROUNDS, Parts, StanceExample, StanceMix, calibrates, made_examples, read_claims,
                                           stance_epoch, stance_material)

TEA = ComparedArms('green tea', 'coffee', 'pain')
LABELS = ROOT/'benchmarks'/'labels'
CLAIMS = LABELS/'claims.tsv'


# ---- made findings

@cases('done, told, true', [
    ('+', '+', True), ('+', '-', False), ('+', '0', False), ('+', 'not+', False), ('+', 'not-', True), ('+', 'diff', True),
    ('-', '+', False), ('-', '-', True), ('-', '0', False), ('-', 'not+', True), ('-', 'not-', False), ('-', 'diff', True),
    ('0', '+', False), ('0', '-', False), ('0', '0', True), ('0', 'not+', True), ('0', 'not-', True), ('0', 'diff', False)])
def test_what_may_be_told(done, told, true): assert true_to_tell(done, told) is true


@cases('more, less', [
    ('Pain decreased less with green tea than with coffee (p X).', 'Pain decreased more with green tea than with coffee (p X).'),
    ('Pain increased in both groups, but significantly more in the green tea group than in the coffee group.',
     'Pain increased in both groups, but significantly less in the green tea group than in the coffee group.'),
    ('Pain in green tea exceeded that in coffee.', 'Pain in green tea fell below that in coffee.'),
    ('Relative to green tea, coffee yielded significantly lower pain.', 'Relative to green tea, coffee yielded significantly higher pain.'),
    ('A significant rise of pain was observed after green tea but not after coffee.',
     'A significant fall of pain was observed after green tea but not after coffee.')])
def test_a_frame_turns_as_a_person_would_turn_it(more, less):
    frames = word_lists('made_findings')['said']['more']
    said = lambda frame, turned: frame_filled(framed(frame, turned), TEA, **dict.fromkeys('nmudrspq', 'X'))
    told = {said(f, False): said(f, True) for f in frames}
    assert told[more] == less


def test_figures_agree_with_what_is_said():
    for seed in range(400):
        for value in '+-0':
            found = made_finding(random.Random(seed), value, TEA)
            if m := re.search(r'\((?:p|P) ([=<>]) ?(0\.\d+)\)|; p ([=<>]) (0\.\d+)', found.text):
                assert (float(m[2] or m[4]) <= .05 and (m[1] or m[3]) != '>') == (value != '0'), found.text
            if m := re.search(r'odds ratio (\d\.\d\d)', found.text):
                assert (float(m[1]) > 1.1, float(m[1]) < .9) == (found.value == '+', found.value == '-'), found.text


@cases('seed', range(30))
def test_four_claims_differ_in_truth_and_hardly_in_words(seed):
    for value, true in (('+', [True, False, False, True]), ('-', [False, True, True, False]), ('0', [False] * 4)):
        four = four_claims(random.Random(seed), value, TEA)
        assert [c.holds for c in four] == true and len({c.text for c in four}) == 4
        assert all(c.leads == names_first(c.text, TEA) for c in four)


@cases('outcome', ['overall survival', 'nausea', 'serum sodium', 'pain relief'])
def test_a_judgement_follows_what_is_good_to_have(outcome):
    claims = {c[:2] for n in range(600) if (c := made_claim(random.Random(n), '+', TEA._replace(outcome=outcome)))}
    judged = {text: true for text, true in claims if re.search(r'^Does green tea (improve|worsen)|^Green tea (harms|relieves)', text)}
    assert all(true == (('survival' in outcome) == ('improve' in text or 'relieves' in text)) for text, true in judged.items())
    assert bool(judged) == (outcome in ('overall survival', 'nausea'))


# ---- the table of claims

def test_the_claims_are_places_and_words_of_their_own(data_dir):
    claims = read_claims(CLAIMS)
    assert len(claims) > 10_000 and set(Counter(c.kind for c in claims)) == set('SRNYQ') and {c.part for c in claims} == {'train', 'dev'}
    assert not {c.document for c in claims if c.part == 'dev'} >= {c.document for c in claims if c.part == 'train'}
    folders = {c.source for c in claims}
    texts = {(s, d.id): d.text for s in folders for d in read_beir(next((data_dir/s).glob('corpus.jsonl*')))}
    words = lambda text: re.findall(r"[a-z0-9]+(?:[.'-][a-z0-9]+)*", text.lower())
    runs = lambda w: {tuple(w[i:i + 9]) for i in range(len(w) - 8)}
    for c in claims:
        said = texts[c.source, c.document][c.start:c.end]
        assert 20 < len(said) < 1000 and not runs(words(c.claim)) & runs(words(said)), c


@cases('line', ['rct\t1\t5\t4\tS\ttrain\tIt helps.', 'rct\t1\t4\t5\tX\ttrain\tIt helps.', 'rct\t1\t4\t5\tS\ttrain', ''])
def test_a_wrong_row_is_named(line, tmp_path):
    (tmp_path/'c.tsv').write_text('source\tdocument\tstart\tend\tkind\tpart\tclaim\n' + line + '\n')
    with pytest.raises(ExamplesError, match='c.tsv:2'): read_claims(tmp_path/'c.tsv')


# ---- nothing of a test

def test_no_test_is_among_the_examples(data_dir):
    material = stance_material(data_dir, CLAIMS, ('trials', 'claims', 'made'))
    here = {x.article for x in material.trials}
    assert len(here) > 400 and not here & {x.article for x in material.dev}
    rows = [json.loads(line) for line in gzip.open(data_dir/'rct'/'corpus.jsonl.gz', 'rt')]
    pmcid = {row['_id']: row['metadata'].get('pmcid') for row in rows}
    tests = {a for a in read_marked(data_dir/'evidence_inference').articles if part_of(a) == 'test'}
    assert len(set(pmcid.values()) & tests) > 50 and not {x.article for x in material.trials + material.dev} & tests
    kept_back = reserved(data_dir, STANCE_ROUNDS).documents
    assert not any(c.document in kept_back for c, _ in material.claims + material.dev_claims)
    places = lambda rows: {(c.source, c.document, c.start) for c, _ in rows}
    assert not places(material.claims) & places(material.dev_claims)
    aside = {x.article for x in material.dev}
    for table in LABELS.glob('claims*.tsv'):   # 860 rows of one stood beside abstracts of the test half, and were learnt from
        others = material if table == CLAIMS else stance_material(data_dir, table, ('claims',))
        assert not {pmcid[c.document] for c, _ in others.claims + others.dev_claims if c.source == 'rct'} & (tests | aside)
    epoch = [e for group in stance_epoch(material, StanceMix(made=200, fours=50)) for e in group]
    assert {e.source for e in epoch} == {'made', 'trials', 'claims'} and all(e.asked and e.said.sentence for e in epoch)


def test_one_in_five_questions_is_kept_for_labels(): assert [n for n in range(20, 31) if calibrates(str(n))] == [20, 25, 30]


# ---- the network

WAYS = {'polyps were fewer with aspirin': 1, 'polyps were more with aspirin': -1, 'patients took aspirin daily': 0}


def toy(n: int, seed: int) -> list[list[StanceExample]]:
    rng = random.Random(seed)
    return [[StanceExample('does aspirin lower polyps', InContext(said), WAYS[said] != 0, WAYS[said], 'toy')]
            for said in rng.choices(list(WAYS), k=n)]


@pytest.fixture(scope='module')
def base(tmp_path_factory): return tiny_bert(tmp_path_factory.mktemp('models')/'tiny')


@pytest.fixture(scope='module')
def settings(base):
    return net.StanceSettings(base=str(base), parts=False, learning_rate=2e-3, head=1e-3, pairs=16, max_tokens=48, dropout=0.0, bf16=False,
                              log_every=20, save_every=25)


@pytest.fixture(scope='module')
def trained(settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp('trained')/'toy'
    return folder, net.train_stance([toy(2000, 0)], folder, settings)


ROWS = [('does aspirin lower polyps', InContext(said)) for said in WAYS]


def test_a_network_learns_a_toy_and_survives_being_prepared(trained, tmp_path, monkeypatch):
    monkeypatch.setattr('cpqa.answering.stance.linked', lambda asked, text: text)   # the toy is learnt without marks
    network, tokenizer = net.read_stance(trained[0])
    found = net.read_with(network, tokenizer, ROWS, 48)
    assert [s.finding > .5 for s in found] == [True, True, False] and found[0].yes > found[0].no and found[1].yes < found[1].no
    prepared = StanceModel(prepare_stance(network, tokenizer, tmp_path/'stance', 'f32', max_tokens=48)).read_pairs(ROWS)
    np.testing.assert_allclose(np.array(prepared), np.array(found), atol=.03)


def test_a_network_in_parts_can_be_prepared(base, tmp_path, monkeypatch):
    monkeypatch.setattr('cpqa.answering.stance.linked', lambda asked, text: text)   # the toy is learnt without marks
    network, tokenizer = net.stance_network(base)
    prepared = StanceModel(prepare_stance(network, tokenizer, tmp_path/'stance', 'f32', max_tokens=48)).read_pairs(ROWS)
    np.testing.assert_allclose(np.array(prepared), np.array(net.read_with(network.eval(), tokenizer, ROWS, 48)), atol=.03)


def test_a_stopped_training_goes_on(trained, settings, tmp_path):
    def stop(what, done, total):
        if done == 60: raise KeyboardInterrupt
    seen = []
    with pytest.raises(KeyboardInterrupt): net.train_stance([toy(2000, 0)], tmp_path/'again', settings, progress=stop)
    again = net.train_stance([toy(2000, 0)], tmp_path/'again', settings, progress=lambda what, done, total: seen.append(done))
    assert seen[0] == 51 and (again.weights, again.curve) == (trained[1].weights, trained[1].curve)
    assert sorted(p.name for p in tmp_path.iterdir()) == ['again']


def test_another_training_is_not_taken_for_this_one(trained, settings, tmp_path):
    with pytest.raises(TrainingError, match='holds another training'): net.train_stance([toy(10, 3)], trained[0], settings)
    with pytest.raises(ModelError, match='give a folder of train_stance'): net.read_stance(tmp_path)


def test_the_steps_are_learnt_one_by_one():
    "A loss for what is known alone, and the truth table puts the steps together for each value and each order of the arms."
    torch, truth = net.require('torch', 'train'), net.agreement()
    for told in ('+', '-', '0', 'not+', 'not-', 'diff'):
        for said in '+-0':
            for other in (False, True):
                numbers = torch.full((1, 13), -8.0)
                numbers[0, 1], numbers[0, 2], numbers[0, 3] = 8, 0, 8 if other else -8
                numbers[0, 4 + ['+', '-', '0', 'not+', 'not-', 'diff'].index(told)] = numbers[0, 10 + '+-0'.index(said)] = 8
                done = {'+': '-', '-': '+', '0': '0'}[said] if other else said
                assert (net.combined(numbers, truth)[0][0, 1:].argmax() == 2) == true_to_tell(done, told)
                assert net.parts_loss(numbers, truth, [Parts(told, done, said, other)]) < .02
                assert net.parts_loss(numbers, truth, [Parts(told)]) < net.parts_loss(numbers, truth, [Parts(told, done, said, not other)])


def test_made_examples_are_about_the_sentence_they_come_with():
    prompts = [TEA, ComparedArms('yoga', 'usual care', 'weight')]
    for e in made_examples(random.Random(4), prompts, 300):
        words = set(ENGLISH.analyze(e.said.sentence))
        if e.finding: assert set(ENGLISH.analyze(e.asked)) & words
