"The benchmark of the shipped models: what it keeps between runs, and what it takes out of its result file."
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT

from cpqa.core.records import Passage
from cpqa.retrieval.openvino_models import shipped


@pytest.fixture(scope='module')
def models():
    if not (shipped('bi-encoder') and shipped('cross-encoder')): pytest.skip('no models are shipped')
    sys.path.insert(0, str(ROOT/'benchmarks'))
    try:
        import models
        yield models
    finally: sys.path.remove(str(ROOT/'benchmarks'))


class Network:
    "A stand-in for a prepared cross-encoder: a score is the length of the text, and every text that is scored is counted."
    asked = 0

    def __init__(self, folder, max_tokens=None):
        self.max_tokens, self.runs_in, self.card = max_tokens or 256, 'f32', SimpleNamespace(sha256={'model.bin': str(folder) * 16})

    def score(self, query, passages):
        Network.asked += len(passages)
        return np.array([len(p.text) for p in passages], dtype=np.float32)


def texts(*found): return [Passage(str(n), 0, len(t), t) for n, t in enumerate(found)]


def test_scores_are_kept_between_runs(models, monkeypatch, tmp_path):
    monkeypatch.setattr(models, 'FastCrossEncoder', Network)
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path))
    monkeypatch.setattr(Network, 'asked', 0)
    first = models.Kept('a')
    assert first.score('q', texts('one', 'three', 'one')).tolist() == [3, 5, 3] and Network.asked == 2
    with open(first.path, 'a') as f: f.write('{"cut')
    again = models.Kept('a')
    assert again.score('q', texts('three', 'seven')).tolist() == [5, 5] and Network.asked == 3
    assert models.Kept('a').score('q', texts('seven', 'one')).tolist() == [5, 3] and Network.asked == 3   # behind the cut line, too
    models.Kept('a').score('another', texts('one')), models.Kept('b').score('q', texts('one')), models.Kept('a', 128).score('q',
        texts('one'))
    assert Network.asked == 6
    assert (again.first, again.alone().first) == (models.Kept.first, 0) and again.alone().known is again.known


def test_a_part_of_other_models_is_taken_out(models, tmp_path):
    described = {'bi-encoder': {'file': 'b'}, 'cross-encoder': {'file': 'c'}}
    parts = {'retrieval': {'models': described}, 'general': {'models': described | {'bi-encoder': {'file': 'old'}}},
             'time': {'models': {'cross-encoder': {'file': 'c'}}}}
    path = tmp_path/'models.json'
    assert models.before(path, described) == {}
    path.write_text(json.dumps({'parts': parts}))
    assert set(models.before(path, described)) == {'retrieval', 'time'}
    assert models.before(path, described | {'cross-encoder': {'file': 'new'}}) == {}


def test_rounds_are_added_and_measured_anew(models):
    part = lambda value, *rounds, sample=None: {'sample': sample, 'command': str(value),
                                                **{key: [{'questions': r, 'x': value} for r in rounds] for key in ('rows', 'tests')}}
    old, new = part(1, 'round 9', 'round 10'), part(2, 'round 10')
    found = models.joined(old, new)
    assert [(r['questions'], r['x']) for r in found['rows']] == [('round 9', 1), ('round 10', 2)] and found['commands_before'] == ['1']
    assert models.joined(part(1, 'round 9', sample=5), new) == new and models.joined(None, new) == new


def test_a_sample_is_drawn_evenly(models):
    assert models.some(list(range(10)), 3) == [0, 3, 6] and models.some([1, 2], 5) == [1, 2] == models.some([1, 2], None)
    assert models.ranked_values([1, 0, 6, 11]) == {'MRR@10': [1, 0, 1 / 6, 0], 'Hit@1': [1, 0, 0, 0], 'Hit@5': [1, 0, 0, 0]}


def test_differences_are_those_of_the_means(models):
    draw = np.random.default_rng(0)
    ids = [str(i) for i in range(40)]
    values = {s: {m: dict(zip(ids, draw.random(40) + plus)) for m in models.MEASURES} for s, plus in (('a', .3), ('b', 0))}
    row, = models.compared(values, [('a', 'b')], ids)
    m = row['measures']['nDCG@10']
    assert m['value'] == pytest.approx(np.mean([values['a']['nDCG@10'][i] - values['b']['nDCG@10'][i] for i in ids]),
                                       abs=1e-4) and m['interval'][0] > 0 and m['p, Holm'] < .05
    same, = models.by_group({'Hits@5': {'a': [1., 0.], 'b': [1., 0.]}}, ['x', 'y'], 'b')
    assert same['system'] == 'a' and same['measures']['Hits@5']['value'] == 0 and same['measures']['Hits@5']['p'] == 1
