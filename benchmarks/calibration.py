"""Can a reranker's score be read as the probability that a passage is relevant?

    python benchmarks/calibration.py LIBRARY [RERANKER ...] [--encoder WHICH] [--write] [--questions N]
    python benchmarks/calibration.py LIBRARY --encoder default --write       # for the models of cpqa, whenever their weights change
    python benchmarks/calibration.py LIBRARY --encoder all-MiniLM-L6-v2      # bm25, and the cosine of MiniLM

Questions of bioasq_beir; candidates: the passages of the first 50 documents of the hybrid search in a library of its corpus. A passage is
relevant if it holds a snippet that experts marked for the question (`cpqa.evaluation.pairs.holds`); where the snippet is the title, or is
not found, any passage of its document is. What no expert looked at counts as irrelevant, so the probabilities err on the low side.

What was not trained on the questions (bm25, the cosine of MiniLM) is fitted on rounds 7 to 9 and tested on round 10. The models that come
with cpqa were trained on rounds 7 to 9, where their scores are better than they will ever be again, so all that ranks with `--encoder
default` is fitted on one half of round 10 and tested on the other, drawn by a hash of the question's id. The library must be of the same
encoder. It goes into another result, calibration_default.json, and --write then replaces the calibrators of 'default' and of the cosine of
the shipped encoder, and no others: those of earlier weights of either are removed, since no copy of cpqa that has this file has them.

The questions that are fitted to also choose: logistic, unless isotonic has the lower log loss by cross-validation over questions (five
folds) by more than its 95 % interval. The others only test. BM25's raw sums, which grow with the question, are tried beside the share of
the best possible score that our reranker gives. Only a calibrator that tells more than the base rate does (a lower log loss,
cross-validated, by more than its interval) goes into the package. Intervals: bootstrap over questions; those of the calibration error keep
the bins as they are. --write puts the calibrators into the package.
"""
import argparse
import hashlib
import json
from datetime import date

import msgspec
import numpy as np
from common import DATA, bioasq_questions, save

from cpqa.core.text_analysis import ENGLISH
from cpqa.pipeline import CancerQA, Finding
from cpqa.evaluation.pairs import gold_spans, holds, snippet_pairs
from cpqa.evaluation.statistics import bootstrap
from cpqa.passages.calibration import (CALIBRATORS_FILE, CalibrationError, bin_numbers, calibration_values, fit_calibrator,
                                       read_calibrators,
                                     reliability)
from cpqa.passages.rerankers import BM25Reranker, reranker
from cpqa.passages.two_stage import TwoStage, comparable
from cpqa.retrieval.encoders import MINILM

DEPTHS, DEPTH, FOLDS, THRESHOLDS, FITTED, TESTED = (10, 50, 100), 50, 5, (0.1, 0.2, 0.3, 0.5, 0.7), (7, 8, 9), 10
RAW = 'bm25, raw sums'
SHIPPED = 'default'


class Parts:
    "Which questions fit and which test, as masks, and what they are called."
    def __init__(self, questions: list[dict], halves: bool):
        rounds = np.array([int(q['batch'].split('B')[0]) for q in questions])
        half = np.array([hashlib.sha256(q['_id'].encode()).digest()[0] % 2 == 0 for q in questions])
        self.fit, self.test = ((rounds == TESTED) & half, (rounds == TESTED) & ~half) if halves else (np.isin(rounds, FITTED),
            rounds == TESTED)
        self.fitted, self.tested = ('one half of round 10', 'the other half of round 10') if halves else ('rounds 7 to 9', 'round 10')


class RawBM25(BM25Reranker):
    "The same order as BM25Reranker's within a question, but sums that mean nothing beside those of another question."
    def score(self, query: str, passages) -> np.ndarray:
        words = list(dict.fromkeys(ENGLISH.analyze(query)))
        index = self.index(passages, words)
        return index.get_scores(words) if index else np.zeros(len(passages))

    def describe(self) -> dict: return {'reranker': 'bm25', 'form': 'BM25+'}


class Judged:
    "Scores, labels and the number of the question of each candidate, and the round of each question."
    def __init__(self): self.scores, self.labels, self.of = [], [], []

    def add(self, number: int, scores, labels):
        self.scores.append(np.asarray(scores, dtype=float))
        self.labels.append(np.asarray(labels, dtype=bool))
        self.of.append(np.full(len(scores), number))

    def where(self, wanted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scores, labels, of = map(np.concatenate, (self.scores, self.labels, self.of))
        mask = np.asarray(wanted)[of]
        return scores[mask], labels[mask], of[mask]


def collect(qa: CancerQA, rerankers: dict, questions: list[dict], gold: dict) -> tuple[dict, dict]:
    "(reranker, depth) -> its candidates with scores and labels; and how many questions lost candidates."
    stage, out, without = TwoStage(qa.vectors), {}, {'questions without candidates': 0}
    vectors = qa.encoder.encode([q['text'] for q in questions], 'query')
    for number, (q, vector) in enumerate(zip(questions, vectors)):
        documents = qa.library.documents(h.id for h in qa.search(q['text'], max(DEPTHS)))
        without['questions without candidates'] += not documents
        all_of_them, rows = stage.candidates(documents)
        once = {name: qa.vectors.of_rows(rows) @ vector if name == 'cosine' else r.score(q['text'], all_of_them) for name,
                r in rerankers.items() if comparable(r)}   # the same vectors, kept by the library
        for depth in DEPTHS:
            passages, _ = stage.candidates(documents[:depth])   # the first of all of them
            labels = [holds(p, gold[q['_id']]) for p in passages]
            for name, r in rerankers.items():
                out.setdefault((name, depth), Judged()).add(number, once[name][:len(passages)] if name in once
                                                            else r.score(q['text'], passages), labels)
    return out, without


def told(i) -> dict: return {'value': round(i.value, 5), 'interval': [round(i.low, 5), round(i.high, 5)]}


def ece_interval(p, y, of, by: str) -> list[float]:
    "The gap of the bins, over resamples of whole questions; the bins stay."
    number, (_, place) = bin_numbers(p, by=by), np.unique(of, return_inverse=True)
    gaps, sizes = np.zeros((place.max() + 1, 10)), np.bincount(place)
    np.add.at(gaps, (place, number), p - y)
    draw, found = np.random.default_rng(0), []
    for _ in range(2_000):
        weights = np.bincount(draw.integers(0, len(sizes), len(sizes)), minlength=len(sizes))
        found.append(np.abs(weights @ gaps).sum() / (weights @ sizes))
    return [round(float(x), 4) for x in np.quantile(found, [.025, .975])]


def values(p, y, of) -> dict:
    "The four measures with their intervals."
    found, losses = calibration_values(p, y), {'Brier': (p - y)**2, 'log loss': -np.log(np.where(y, p, 1 - p).clip(1e-12))}
    return {**{f'ECE (equal {by})': {'value': round(found[f'ECE (equal {by})'], 4),
                                     'interval': ece_interval(p, y, of, by)} for by in ('count', 'width')},
            **{name: told(bootstrap(loss, groups=of)) for name, loss in losses.items()}}


def cross_validated(scores, labels, of, method: str) -> np.ndarray:
    "The probability of each candidate by the calibrator that was fitted to the questions of the other folds."
    asked = np.unique(of)
    fold, p = dict(zip(np.random.default_rng(0).permutation(asked), np.arange(len(asked)) % FOLDS)), np.empty(len(scores))
    folds = np.array([fold[n] for n in of])
    for f in range(FOLDS): p[folds == f] = fit_calibrator(scores[folds != f], labels[folds != f], method).probability(scores[folds == f])
    return p


def choose(scores, labels, of, fitted: str) -> tuple[str, bool, list[dict]]:
    "The method that cross-validation chooses, whether it tells more than the base rate, and the rows."
    by_method = {m: cross_validated(scores, labels, of, m) for m in ('logistic', 'isotonic')}
    loss = {m: -np.log(np.where(labels, p, 1 - p).clip(1e-12)) for m, p in by_method.items()}
    gain = bootstrap(loss['logistic'] - loss['isotonic'], groups=of)
    rows = [{'method': m, 'questions': f'{fitted}, cross-validated', 'n': len(of), **values(p, labels, of)} for m, p in by_method.items()]
    method, base = 'isotonic' if gain.low > 0 else 'logistic', np.where(labels, labels.mean(), 1 - labels.mean())
    told_more = bootstrap(-np.log(base) - loss[method], groups=of)
    rows.append({'log loss of logistic less that of isotonic': told(gain),
                 f'log loss of the base rate less that of {method}': told(told_more)})
    return method, told_more.low > 0, rows


def kept(p, y, of, questions: int) -> list[dict]:
    "What plain thresholds keep of the candidates."
    rows = []
    for t in THRESHOLDS:
        inside = p >= t
        share = told(bootstrap(y[inside].astype(float), groups=of[inside])) if inside.any() else None
        rows.append({'threshold': t, 'kept': int(inside.sum()), 'relevant': int(y[inside].sum()), 'share_relevant': share,
                     'of_all_relevant': round(float(y[inside].sum() / y.sum()), 4),
                     'kept_a_question': round(float(inside.sum() / questions), 2),
                     'questions_with_none': questions - len(np.unique(of[inside]))})
    return rows


def rounded(row) -> dict: return {k: round(v, 4) if isinstance(v, float) else v for k, v in msgspec.to_builtins(row).items()}


def shipped(c):
    "The calibrator with its numbers as they are written: seven digits are enough."
    short = lambda x: float(f'{x:.7g}')
    return msgspec.structs.replace(c, slope=short(c.slope), intercept=short(c.intercept), base_rate=round(c.base_rate, 4),
                                   ece=round(c.ece, 4),
                                   knots=tuple((short(s), short(p)) for s, p in c.knots))


def replaced(c, rerankers: dict, ours: bool) -> bool:
    "Does a calibrator go: one of what was fitted now, or of earlier weights of the models that come with cpqa?"
    if c.reranker in [r.describe() for r in rerankers.values()]: return True
    cosine = c.reranker['reranker'] == 'cosine' and c.reranker['encoder'].get('model') != MINILM
    return ours and (c.reranker['reranker'] == SHIPPED or cosine)


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument('library')
    asked.add_argument('rerankers', nargs='*', help='default: bm25 and cosine, or with --encoder default cosine and default')
    asked.add_argument('--encoder', choices=(SHIPPED, MINILM), default=MINILM, help='of the library and the cosine')
    asked.add_argument('--write', action='store_true', help='put the calibrators into the package')
    asked.add_argument('--questions', type=int, help='only so many, evenly drawn, and no result is saved')
    a = asked.parse_args()
    if a.questions and a.write: asked.error('--write needs all questions: leave out --questions')
    ours = a.encoder == SHIPPED
    a.rerankers = a.rerankers or (['cosine', SHIPPED] if ours else ['bm25', 'cosine'])
    if SHIPPED in a.rerankers and not ours:
        asked.error("'default' was trained on rounds 7 to 9: give --encoder default, which fits on half of round 10")
    qa, questions = CancerQA(a.library, Finding(None if ours else a.encoder)), bioasq_questions()
    if ours: questions = [q for q in questions if q['batch'].startswith(f'{TESTED}B')]
    if a.questions: questions = questions[::max(1, len(questions) // a.questions)]
    parts = Parts(questions, halves=ours)
    pairs = snippet_pairs(DATA / 'bioasq_beir')
    gold, places = gold_spans(pairs, {d.id: d for d in qa.library})
    rerankers = {name: reranker(name, lambda: qa.encoder) for name in a.rerankers}
    if 'bm25' in rerankers: rerankers[RAW] = RawBM25()
    found, without = collect(qa, rerankers, questions, gold)
    fit, test = parts.fit, parts.test
    rows, chosen, calibrators = [], {}, []
    for (name, depth), judged in found.items():
        if depth != DEPTH: continue
        scores, labels, of = judged.where(fit)
        try: method, worth_it, tried = choose(scores, labels, of, parts.fitted)
        except CalibrationError as e:
            rows.append({'reranker': name, 'failed': str(e)})
            continue
        chosen[name] = method
        rows += [{'reranker': name, 'depth': depth, **row} for row in tried]
        for m in ('logistic', 'isotonic'):
            c = fit_calibrator(scores, labels, m, reranker=rerankers[name].describe(), questions=int(fit.sum()),
                               date=date.today().isoformat(),
                               fitted_on=f'BioASQ, {parts.fitted}: passages of the first {DEPTH} documents of a hybrid search in the '
                                         f'{len(qa.library):,} abstracts of the set',
                               tested_on=f'BioASQ, {parts.tested}')
            for d in DEPTHS:
                s, y, o = found[name, d].where(test)
                p = c.probability(s)
                row = {'reranker': name, 'depth': d, 'method': m, 'chosen': m == method, 'questions': parts.tested,
                       'n_questions': int(test.sum()), 'n': len(y),
                       'base_rate': round(float(y.mean()), 4), 'mean_probability': round(float(p.mean()), 4), **values(p, y, o)}
                if d == DEPTH:
                    row['reliability'] = {by: [rounded(b) for b in reliability(p, y, by=by)] for by in ('count', 'width')}
                    row['thresholds'] = kept(p, y, o, int(test.sum()))
                    if m == method and worth_it:
                        calibrators.append(msgspec.structs.replace(c, ece=calibration_values(p, y)['ECE (equal count)']))
                rows.append(row)
    _, labels, _ = found[a.rerankers[0], DEPTH].where(fit)
    _, y, of = found[a.rerankers[0], DEPTH].where(test)
    rows.append({'reranker': f'none: the base rate of {parts.fitted} for all', 'depth': DEPTH, 'questions': parts.tested, 'n': len(y),
                 **values(np.full(len(y), labels.mean()), y, of)})
    result = {'data': 'bioasq_beir', 'documents': len(qa.library), 'questions': len(questions), 'depth': DEPTH, **without,
              'snippets': places, 'encoder': qa.encoder.describe(), 'rerankers': {name: r.describe() for name, r in rerankers.items()},
              f'chosen_on_{parts.fitted.replace(" ", "_")}': chosen,
              f'base_rate_{parts.fitted.replace(" ", "_")}': round(float(labels.mean()), 4),
              'interval': '95 %, bootstrap over questions, 10,000 resamples (2,000 for ECE, bins kept)',
              'reliability_interval': "95 %, Wilson, as if passages were independent", 'rows': rows}
    if a.questions: print(json.dumps(result, indent=1))
    else: save('calibration_default' if ours else 'calibration', result)
    if a.write:
        new = [shipped(c) for c in calibrators]
        old = [c for c in (read_calibrators() if CALIBRATORS_FILE.exists() else []) if not replaced(c, rerankers, ours)]
        CALIBRATORS_FILE.write_text('[\n' + ',\n'.join(c.to_json() for c in old + new) + '\n]\n', encoding='utf-8')


if __name__ == '__main__': main()
