"""What does a budget in milliseconds lose against reranking all? Waves, best first, against fixed depths, with a slow reranker.

    python benchmarks/budget.py LIBRARY [--cross-encoder FOLDER] [--questions 100] [--wait 5] [--combine fusion]

Questions of bioasq_beir, a seeded sample of round 10 (the order of the waves was chosen on rounds 7 to 9); hybrid search finds 100
documents, the passages of all of them are candidates, ten are kept. Without a cross-encoder the reranker is an artificial one, and is
labelled so: its scores are those of BM25+ over all candidates, made beforehand and handed out wave by wave after a fixed wait a passage.
Its times show how the budget is kept, not how fast anything is. Loss: the share of the first five passages of the full reranking that are
still among the first five; nDCG@10 of documents, by their first passage among the ten kept and then as they were found, and the share of
the first five passages from documents marked as relevant, each minus that of the full reranking, question by question. Kept: the share of
questions whose whole second stage ended within the budget, and by how much the others missed it.
"""
import argparse
import math
import os
import random
import time
from collections import Counter

import numpy as np
from common import PACKAGES, interval, quantiles, save
from depth import Bench, cross_encoder, documents_of, sample, share

from cpqa.core.records import Hit
from cpqa.evaluation.metrics import retrieval_values
from cpqa.passages.rerankers import BM25Reranker
from cpqa.passages.two_stage import Selection, TwoStage, best_first
from cpqa.retrieval.term_search import reciprocal_rank_fusion

DEPTH, KEPT, FIVE = 100, 10, 5
DEPTHS = (10, 20, 30, 50)
BUDGETS = (50, 100, 200, 400)


def round_10(n: int) -> list[dict]:
    "A seeded sample of the questions of round 10, all of them for 0."
    asked = [q for q in sample(0) if q['batch'].split('B')[0] == '10']
    return random.Random(0).sample(asked, n) if 0 < n < len(asked) else asked


class Waiting:
    "Scores made beforehand for one question, after a wait in seconds a passage."
    def __init__(self, wait: float): self.wait, self.known = wait, {}
    def prepare(self, query, passages):
        self.known = {(p.doc_id, p.start): s for p, s in zip(passages, BM25Reranker().score(query, passages))}
    def score(self, query, passages):
        time.sleep(self.wait * len(passages))
        return np.array([self.known[p.doc_id, p.start] for p in passages], dtype=np.float32)
    def describe(self): return {'reranker': 'artificial', 'scores': 'BM25+ over all candidates', 'wait_ms_a_passage': self.wait * 1000}


def systems(vectors, reranker, combine: str) -> dict[str, tuple[int, TwoStage]]:
    "Name -> documents given, second stage. The first one reranks all."
    stage = lambda **options: TwoStage(vectors, reranker, combine=combine, **options)
    out = {'all': (DEPTH, stage())}
    out |= {f'depth {d}': (d, stage()) for d in DEPTHS}
    out |= {f'{b} ms': (DEPTH, stage(budget_ms=b)) for b in BUDGETS}
    out |= {f'{b} ms, never settled': (DEPTH, stage(budget_ms=b, settle=0)) for b in BUDGETS}
    out |= {f'200 ms, waves of {w}': (DEPTH, stage(budget_ms=200, wave=w)) for w in (4, 16)}
    return out | {f'settled after {s}': (DEPTH, stage(budget_ms=math.inf, settle=s)) for s in (1, 2, 3, 4)}


def row(name: str, stage: TwoStage, chosen: list[Selection], full: list[Selection], quality: dict, reference: dict) -> dict:
    "The figures of one system."
    overlap = [len({e.passage for e in a.evidence[:FIVE]} & {e.passage for e in b.evidence[:FIVE]}) / max(1,
        min(FIVE, len(b.evidence))) for a, b in zip(chosen, full)]
    loss = {m: v - reference[m] for m, v in quality.items()}
    out = {'system': name, 'top5_overlap': {'mean': round(float(np.mean(overlap)), 4), 'interval': interval(overlap)},
           **{m: round(float(v.mean()), 4) for m, v in quality.items()},
           **{f'{m}_against_all': {'mean': round(float(v.mean()), 4), 'interval': interval(v)} for m, v in loss.items()},
           'stopped': dict(Counter(c.stopped for c in chosen)),
           'reranked': {'mean': round(float(np.mean([c.reranked for c in chosen])), 1),
                        'p95': float(np.percentile([c.reranked for c in chosen], 95))},
           'ms': quantiles([c.ms for c in chosen])}
    if stage.budget_ms is None or math.isinf(stage.budget_ms): return out
    over = np.maximum(0, np.array([c.ms for c in chosen]) - stage.budget_ms)
    return out | {'budget_ms': stage.budget_ms, 'within_budget': round(float((over == 0).mean()), 4),
                  'overshoot_ms_p95': round(float(np.percentile(over, 95)), 2), 'overshoot_ms_most': round(float(over.max()), 2)}


def before(vectors, vector, documents) -> dict[str, list[str]]:
    "Owners of the candidates in two orders that need no reranker: the one that the waves take, and ranks of first stage and cosine fused."
    passages, rows = TwoStage(vectors).candidates(documents)
    cosines = vectors.of_rows(rows) @ vector
    fused = reciprocal_rank_fusion([[Hit(str(i), 0.0) for i in o] for o in (np.argsort(-cosines, kind='stable'), range(len(rows)))])
    orders = {'best first': best_first(passages, cosines), 'first stage and cosine fused': [int(h.id) for h in fused]}
    return {name: [passages[i].doc_id for i in o[:KEPT]] for name, o in orders.items()}


def values(owners: dict[str, list[str]], found: dict, gold: dict) -> dict[str, np.ndarray]:
    "Quality, one value a question, of the documents that the passages kept are from."
    ndcg = retrieval_values({id: documents_of(o, found[id]) for id, o in owners.items()}, gold, ['nDCG@10'])['nDCG@10']
    return {'nDCG@10': np.array([ndcg[id] for id in owners]), 'P@5': np.array([share(o, gold[id], FIVE) for id, o in owners.items()])}


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument('library')
    ask.add_argument('--cross-encoder')
    ask.add_argument('--questions', type=int, default=100)
    ask.add_argument('--wait', type=float, default=5, help='milliseconds a passage of the artificial reranker')
    ask.add_argument('--combine', default='fusion', choices=['fusion', 'reranker'])
    args, load = ask.parse_args(), os.getloadavg()
    bench, questions = Bench(args.library), round_10(args.questions)
    reranker = cross_encoder(args.cross_encoder) if args.cross_encoder else Waiting(args.wait / 1000)
    stages, chosen, found, unranked = systems(bench.qa.vectors, reranker, args.combine), {}, {}, {}
    for number, q in enumerate(questions[:1] + questions):   # the first one warms up
        vector, hits, documents = bench.found(q)
        found[q['_id']], unranked[q['_id']] = hits, before(bench.qa.vectors, vector, documents[:DEPTH])
        if isinstance(reranker, Waiting): reranker.prepare(q['text'], stages['all'][1].candidates(documents[:DEPTH])[0])
        for name, (depth, stage) in stages.items():
            got = stage.choose(q['text'], vector, documents[:depth], KEPT)
            if got.stopped == 'failed': raise SystemExit(f'{name}: {got.notes}')
            if number: chosen.setdefault(name, []).append(got)
    gold, quality = {q['_id']: bench.gold[q['_id']] for q in questions}, {}
    for name, got in chosen.items():
        quality[name] = values({q['_id']: [e.passage.doc_id for e in c.evidence] for q, c in zip(questions, got)}, found, gold)
    without = {name: values({id: o[name] for id, o in unranked.items()}, found, gold) for name in next(iter(unranked.values()))}
    save('budget' if args.combine == 'fusion' else f'budget_{args.combine}',
         {'data': 'bioasq_beir', 'questions': 'round 10', 'n': len(questions), 'sample_seed': 0, 'documents_reranked': DEPTH,
          'passages_kept': KEPT, 'combine': args.combine,
          'reranker': reranker.describe(), 'artificial': not args.cross_encoder, 'wave': stages['all'][1].wave,
          'settle': stages['all'][1].settle,
          'candidates': quantiles([c.candidates for c in chosen['all']]), 'load_average_at_start': [round(x, 1) for x in load],
          'interval': '95 %, bootstrap over questions, 10,000 resamples',
          'without_reranker': {name: {m: {'mean': round(float(v.mean()), 4), 'interval': interval(v)} for m, v in q.items()} for name,
                               q in without.items()},
          'rows': [row(name, stages[name][1], got, chosen['all'], quality[name], quality['all']) for name, got in chosen.items()]},
         (*PACKAGES, 'rank-bm25', 'ir-measures'))


if __name__ == '__main__': main()
