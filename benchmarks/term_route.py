"""How well does the term route find, by rules and without a language model? Ladders walked on all questions of bioasq_beir.

    python benchmarks/term_route.py LIBRARY      # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --no-vectors --out LIBRARY

The ladder was designed on rounds 7 to 9; round 10, on which nothing was chosen, is reported apart.
BM25 on the same library stands beside it. A question for which a route finds nothing stays in the mean, with nought.
"""
import sys
from collections import Counter
from time import perf_counter

import numpy as np
from common import bioasq_questions, interval, quantiles, save
from retrieval_quality import qrels, scores

from cpqa.core.records import Hit
from cpqa.literature.library import Library
from cpqa.retrieval.bm25 import TermRetriever
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.retrieval.ladder import Walk, walk
from cpqa.retrieval.rules import RuleRewriter

DEPTH = 100
ENOUGH = (20, 100)
LENGTHS = {'1 to 5 words': (1, 5), '6 to 8 words': (6, 8), '9 to 12 words': (9, 12), 'over 12 words': (13, 999)}


def numbers(found: dict[str, list[Hit]], truth: list, questions: list[dict], parts: dict[str, np.ndarray]) -> dict:
    "Recall and how many documents came, for each part of the questions, with intervals."
    values = scores(found, truth, questions)
    counts = np.array([len(found[q['_id']]) for q in questions])
    return {part: {'n': int(mask.sum()), 'R@100': round(float(values['R@100'][mask].mean()), 4), 'interval': interval(values['R@100'][mask]),
                   'nDCG@10': round(float(values['nDCG@10'][mask].mean()), 4), 'documents': round(float(counts[mask].mean()), 1), 'without_hits': int((counts[mask] == 0).sum())}
            for part, mask in parts.items() if mask.any()}


def audit(walks: list[Walk]) -> dict:
    "Each kind of rung: how often it was tried, found something new and was the last; how many were walked; what failed."
    kinds = lambda why: why.split(':')[0] if ':' in why else 'the core, with any of the other concepts' if why.endswith('with any of the other concepts') else why
    tried, gave, ended, new = Counter(), Counter(), Counter(), Counter()
    for w in walks:
        for i, r in enumerate(w.audit, 1):
            kind = kinds(r.why)
            tried[kind] += 1
            gave[kind] += r.new > 0
            new[kind] += r.new
            ended[kind] += i == len(w.audit)
    return {'rungs_walked': {str(n): c for n, c in sorted(Counter(len(w.audit) for w in walks).items())},
            'mean_rungs_walked': round(float(np.mean([len(w.audit) for w in walks])), 2),
            'failed_rungs': sum(r.failed for w in walks for r in w.audit), 'warnings': sum(len(r.warnings) for w in walks for r in w.audit),
            'rungs': {k: {'tried': tried[k], 'gave_documents': gave[k], 'new_documents': new[k], 'ended_the_walk': ended[k]} for k in tried}}


def main(folder: str):
    library, questions, truth = Library(folder), bioasq_questions(), qrels()
    index = BooleanIndex(library)
    rules = RuleRewriter()
    rounds = np.array([int(q['batch'].split('B')[0]) for q in questions])
    words = np.array([len(q['text'].split()) for q in questions])
    parts = {'all': rounds > 0, 'rounds 7-9': rounds < 10, 'round 10': rounds == 10, **{name: (words >= a) & (words <= b) for name, (a, b) in LENGTHS.items()}}

    start = perf_counter()
    rewritten = [rules.rewrite(q['text']) for q in questions]
    rules_ms = 1000 * (perf_counter() - start) / len(questions)
    bm25 = dict(zip([q['_id'] for q in questions], TermRetriever(library).search([q['text'] for q in questions], DEPTH)))
    routes = {'bm25': numbers(bm25, truth, questions, parts)}
    audits = {}
    for enough in ENOUGH:
        walks, ms = [], []
        for r in rewritten:
            start = perf_counter()
            walks.append(walk(r.rungs, index.search, enough, DEPTH))
            ms.append(1000 * (perf_counter() - start))
        found = {q['_id']: list(w.hits) for q, w in zip(questions, walks)}
        routes[f'ladder, enough={enough}'] = numbers(found, truth, questions, parts)
        audits[f'enough={enough}'] = {**audit(walks), 'walk_ms': quantiles(ms)}
    save('term_route', {'data': 'bioasq_beir', 'documents': len(library), 'questions': len(questions), 'depth': DEPTH,
                        'interval': '95 %, bootstrap over questions, 10,000 resamples', 'rules_ms_a_question': round(rules_ms, 2),
                        'rungs_a_ladder': {str(n): c for n, c in sorted(Counter(len(r.rungs) for r in rewritten).items())},
                        'questions_corrected': sum(any(n.startswith('read ') for n in r.notes) for r in rewritten),
                        'routes': routes, 'audit': audits})


if __name__ == '__main__': main(sys.argv[1])
