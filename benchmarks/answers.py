"""What does `CancerQA.ask` answer to every question of BioASQ in bioasq_beir, without a language model, and how long does it take?

    python benchmarks/answers.py LIBRARY [--questions 60] [--round 10]

LIBRARY is one of bioasq_beir's corpus with the encoder that comes with cpqa. All 1,983 questions are asked one after the other, depth 50,
after 5 to warm up that are asked again later; with --questions so many are drawn with a fixed seed, and the result is printed and not kept;
with --round those of one round are asked.

- `errors`: by the name of the exception; a question that raised counts as not answered everywhere.
- `cites_gold`: the share of questions with a gold document among those cited, an abstention counting as none; `precision` is the share of
  the cited documents that are gold, over the questions answered; `recall` the share of the gold documents cited, over all questions: at
  most 3 are quoted and a question has more gold documents than that, so `recall_at_most` says what could be had.
- `yes_no`: the labels: coverage, accuracy of those labelled, and the most common answer on the same questions, with Wilson's intervals;
  with the most common answer where the reader gave none, against that answer alone, by the exact McNemar test.
Rounds 7 to 9 trained the models that come with cpqa, so round 10 is what to look at; both are given.
"""
import argparse
import json
import random
import time
from collections import Counter

import numpy as np
from common import DATA, bioasq_questions, interval, quantiles, save
from evidence_quality import relevant
from models import say

from cpqa import CancerQA
from cpqa.evaluation.datasets import load
from cpqa.evaluation.statistics import mcnemar, wilson

NAMES = {'build': 'rounds 7 to 9', 'report': 'round 10'}
WORDS = {'A': 'yes', 'B': 'no', 'C': 'maybe'}


def half(round: int) -> str: return 'report' if round == 10 else 'build'


def rate(k: int, n: int) -> dict | None:
    if not n: return None
    found = wilson(k, n)
    return {'value': round(found.value, 4), 'interval': [round(found.low, 4), round(found.high, 4)], 'n': n}


def summary(rows: list[tuple[str, str]]) -> dict:
    "`rows`: the experts' answer and the label."
    common = Counter(gold for gold, _ in rows).most_common(1)[0][0]
    said = [(gold, label) for gold, label in rows if label in ('yes', 'no')]
    filled, constant = [(label if label in ('yes', 'no') else common) == gold for gold, label in rows], [gold == common for gold, _ in rows]
    test = mcnemar(filled, constant)
    return {'n': len(rows), 'gold': dict(Counter(gold for gold, _ in rows)), 'labels': dict(Counter(label or 'none' for _, label in rows)),
            'most_common': common,
            'coverage': rate(len(said), len(rows)), 'accuracy': rate(sum(g == p for g, p in said), len(said)),
            'majority_there': rate(sum(g == common for g, _ in said), len(said)),
            'right_of_yes': rate(sum(g == 'yes' for g, p in said if p == 'yes'), sum(p == 'yes' for _, p in said)),
            'right_of_no': rate(sum(g == 'no' for g, p in said if p == 'no'), sum(p == 'no' for _, p in said)),
            'with_majority': rate(sum(filled), len(filled)), 'majority': rate(sum(constant), len(constant)),
            'with_majority_against_majority': {'only_rules': test.only_a, 'only_majority': test.only_b, 'p': float(f'{test.p:.3g}'),
                                               'difference': [round(x, 4) for x in (test.difference.value, test.difference.low,
                                                   test.difference.high)]}}


def told(values) -> dict | None:
    return {'value': round(float(np.mean(values)), 4), 'interval': interval(values), 'n': len(values)} if values else None


def ask(qa: CancerQA, q: dict) -> dict:
    "What came of one question; an error by its name and its first words."
    start = time.perf_counter()
    try: answer, error = qa.ask(q['text']), ''
    except Exception as e: answer, error = None, f'{type(e).__name__}: {str(e)[:80]}'   # counted, whatever it is
    return {'q': q, 'ms': (time.perf_counter() - start) * 1000, 'error': error, 'abstained': answer is None or answer.abstained,
            'label': answer.label if answer else '',
            'cited': answer.used_PMIDs if answer else (), 'stages': answer.timings_ms if answer else {},
            'notes': answer.notes if answer else ()}


def measured(rows: list[dict], gold: dict[str, set]) -> dict:
    hits = [len(gold[r['q']['_id']] & set(r['cited'])) for r in rows]
    sizes = [len(gold[r['q']['_id']]) for r in rows]
    return {'n': len(rows), 'abstained': told([r['abstained'] for r in rows]), 'cites_gold': told([h > 0 for h in hits]),
            'precision': told([h / len(r['cited']) for h, r in zip(hits, rows) if r['cited']]),
            'recall': told([h / s for h, s in zip(hits, sizes)]),
            'recall_at_most': round(float(np.mean([min(1, 3 / s) for s in sizes])), 4),
            'cited_documents': round(float(np.mean([len(r['cited']) for r in rows])), 2)}


def main(folder: str, n: int | None, round: int | None):
    qa, gold, questions = CancerQA(folder), relevant(), bioasq_questions()
    answers = {q.id: WORDS[q.gold] for q in load('bioasq', DATA / 'mirage') if q.gold}
    if round: questions = [q for q in questions if int(q['batch'].split('B')[0]) == round]
    if n: questions = random.Random(0).sample(questions, n)
    for q in questions[:5]: qa.ask(q['text'])
    rows = []
    for i, q in enumerate(questions, 1):
        rows.append(ask(qa, q))
        if i % 50 == 0: say(f'{i} of {len(questions)}')
    parts = {name: [r for r in rows if half(int(r['q']['batch'].split('B')[0])) == part] for part, name in NAMES.items()}
    stages: dict[str, list] = {}
    for r in rows:
        for name, ms in r['stages'].items(): stages.setdefault(name, []).append(ms)
    yes_no = {name: [(answers[r['q']['_id']], r['label']) for r in some if r['q']['_id'] in answers] for name, some in parts.items()}
    result = {'library': f'{len(qa.library):,} documents', 'n': len(rows), 'depth': qa.finding.depth,
              'interval': '95 %, bootstrap over questions, 10,000 resamples; for yes_no Wilson',
              'errors': dict(Counter(r['error'] for r in rows if r['error'])), 'questions_with_notes': sum(bool(r['notes']) for r in rows),
              'ms': quantiles([r['ms'] for r in rows]), 'ms_by_stage': {name: quantiles(ms) for name, ms in stages.items()},
              'cited': {name: measured(some, gold) for name, some in parts.items() if some},
              'cited_by_kind': {kind: measured([r for r in rows if r['q']['type'] == kind],
                                               gold) for kind in sorted({r['q']['type'] for r in rows})},
              'yes_no': {name: summary(some) for name, some in yes_no.items() if some}}
    if n: print(json.dumps(result, indent=1))
    else: save('answers', result)


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('library')
    p.add_argument('--questions', type=int)
    p.add_argument('--round', type=int)
    a = p.parse_args()
    main(a.library, a.questions, a.round)
