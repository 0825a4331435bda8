"""How deep should a second stage look? Quality and time at depths of 10 to 500 documents, and where more depth stops to pay.

    python benchmarks/depth.py LIBRARY [--questions 0] [--timed 200] [--cross-encoder FOLDER --slow-questions 100 --slow-timed 10]

Questions of bioasq_beir: a seeded sample, or all (0). The first stage is hybrid search; the first `depth` of its documents are reranked.
Quality: nDCG@10 of documents, each as good as its best passage, those beyond the depth behind in their order; and the share of the first 1,
3 and 10 passages that come from a document that experts marked as relevant. Differences to the deepest are taken question by question.
Time: the second stage alone, 10 passages kept, on the first `timed` of the questions, documents at hand.

The knee is found by two rules, stated before anything was measured. Loss: the smallest depth whose mean is within 0.005 of the best one's,
and whose paired interval against it leaves out a loss above 0.01. Kneedle (Satopaa et al. 2011, the package kneed, or the point farthest
above the chord where that is not installed): on the mean against the logarithm of the depth; it has no answer for a curve that does not
rise.
"""
import argparse
import csv
import os
import random
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
from common import DATA, PACKAGES, bioasq_questions, interval, quantiles, save

from cpqa import CancerQA
from cpqa.core.records import Hit, Passage
from cpqa.evaluation.metrics import retrieval_values
from cpqa.passages.rerankers import BM25Reranker, CosineReranker, NoReranker, Reranker, reranker
from cpqa.passages.two_stage import TwoStage, comparable
from cpqa.retrieval.encoders import RememberingEncoder
from cpqa.retrieval.vectors import Vectors

DEPTHS = [10, 20, 50, 100, 200, 300, 500]
FIRST = (1, 3, 10)
MEASURES = ('nDCG@10', *(f'P@{n}' for n in FIRST))
KNEE_OF = ('nDCG@10', 'P@10')
DEEP_ENOUGH = 200   # passages that are looked through for the ten best documents
WITHIN, LOSS = 0.005, 0.01


def relevant() -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    with open(DATA / 'bioasq_beir' / 'qrels' / 'test.tsv') as f:
        for row in csv.DictReader(f, delimiter='\t'): out.setdefault(row['query-id'], {})[row['corpus-id']] = int(row['score'])
    return out


def sample(n: int, seed: int = 0) -> list[dict]:
    "A seeded sample of the questions, all of them for 0."
    asked = bioasq_questions()
    return random.Random(seed).sample(asked, n) if 0 < n < len(asked) else asked


class Remembered:
    """A reranker that scores the same passages once: passage by passage if their scores do not depend on their company, or else all of
    them together."""
    def __init__(self, reranker: Reranker):
        self.reranker, self.comparable, self.query, self.known = reranker, comparable(reranker), None, {}

    def score(self, query: str, passages: Sequence[Passage]) -> np.ndarray:
        if query != self.query: self.query, self.known = query, {}
        if not self.comparable:
            key = tuple((p.doc_id, p.start) for p in passages)
            if key not in self.known: self.known[key] = self.reranker.score(query, passages)
            return self.known[key]
        new = [p for p in passages if (p.doc_id, p.start) not in self.known]
        if new: self.known.update(((p.doc_id, p.start), s) for p, s in zip(new, self.reranker.score(query, new)))
        return np.array([self.known[p.doc_id, p.start] for p in passages], dtype=np.float32)


def stored(vectors: Vectors):
    "Vectors of passages as the library keeps them."
    row_of = {(vectors.ids[n], int(start), int(end)): row for row, (n, start, end) in enumerate(np.asarray(vectors.spans))}
    return lambda passages: vectors.of_rows([row_of[p.doc_id, p.start, p.end] for p in passages])


def cross_encoder(name: str, encoder) -> Reranker:
    "A reranker by its name, or the folder of a prepared one."
    return reranker(name if ':' in name else f'fast:{name}', lambda: encoder)


def documents_of(owners: Sequence[str], hits: Sequence[Hit]) -> list[Hit]:
    "Documents in the order of their first passage, then the others in the order in which they were found."
    return [Hit(id, -float(rank)) for rank, id in enumerate(dict.fromkeys([*owners, *(h.id for h in hits)]))]


def share(owners: Sequence[str], gold, n: int) -> float: return sum(o in gold for o in owners[:n]) / n


def summary(values) -> dict: return {'mean': round(float(np.mean(values)), 4), 'interval': interval(values)}


def knee_by_loss(values: dict[int, np.ndarray]) -> dict:
    "The smallest depth that loses next to nothing against the best."
    best = max(values, key=lambda d: values[d].mean())
    for depth in sorted(values):
        d = values[depth] - values[best]
        if d.mean() >= -WITHIN and interval(d)[0] >= -LOSS:
            return {'depth': depth, 'best': best, 'difference': round(float(d.mean()), 4), 'interval': interval(d)}
    raise AssertionError('the best depth is within any distance of itself')


def kneedle(means: dict[int, float]) -> dict:
    "The knee of the mean over the logarithm of the depth."
    depths, y = sorted(means), np.array([means[d] for d in sorted(means)])
    if y[-1] <= y[0] or y.argmin() != 0: return {'depth': None, 'why': 'the curve does not rise from its first point on'}
    x = np.log(depths)
    if find_spec('kneed'):
        from kneed import KneeLocator
        found = KneeLocator(x, y, curve='concave', direction='increasing').knee
        return {'depth': None, 'why': 'kneed finds none'} if found is None else {'depth': depths[int(np.abs(x - found).argmin())],
            'by': 'kneed'}
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    return {'depth': depths[int(above.argmax())], 'by': 'chord'}


class Bench:
    "The questions with what was found for them, looked up once."
    def __init__(self, folder: str):
        self.qa, self.gold = CancerQA(folder), relevant()
        self.encoder = RememberingEncoder(self.qa.encoder, ('query',), alone=True)

    def found(self, question: dict) -> tuple[np.ndarray, list[Hit], list]:
        hits = self.qa.search(question['text'], max(DEPTHS))
        return self.encoder.encode([question['text']], 'query')[0], hits, self.qa.library.documents(h.id for h in hits)

    def quality(self, stages: dict[str, TwoStage], questions: list[dict]) -> dict:
        "System -> depth -> measure -> one value a question."
        owners, found = {}, {}
        for q in questions:
            vector, hits, documents = self.found(q)
            found[q['_id']] = hits
            for name, stage in stages.items():
                for depth in sorted(DEPTHS, reverse=True):
                    got = stage.choose(q['text'], vector, documents[:depth], DEEP_ENOUGH)
                    if got.stopped != 'all': raise SystemExit(f'{name} at {depth}: {got.stopped} {got.notes}')
                    owners.setdefault((name, depth), {})[q['_id']] = [e.passage.doc_id for e in got.evidence]
        gold, out = {q['_id']: self.gold[q['_id']] for q in questions}, {}
        for (name, depth), by_question in owners.items():
            ndcg = retrieval_values({id: documents_of(o, found[id]) for id, o in by_question.items()}, gold, ['nDCG@10'])['nDCG@10']
            values = {'nDCG@10': np.array([ndcg[id] for id in by_question])}
            values |= {f'P@{n}': np.array([share(o, gold[id], n) for id, o in by_question.items()]) for n in FIRST}
            out.setdefault(name, {})[depth] = values
        return out

    def times(self, stages: dict[str, TwoStage], questions: list[dict]) -> dict:
        "(system, depth) -> milliseconds and passages, one a question."
        out: dict = {}
        for number, q in enumerate(questions[:1] + questions):   # the first one warms up
            vector, _, documents = self.found(q)
            for name, stage in stages.items():
                for depth in DEPTHS:
                    got = stage.choose(q['text'], vector, documents[:depth], 10)
                    if number: out.setdefault((name, depth), []).append((got.ms, got.candidates))
        return out


def rows(quality: dict, times: dict) -> list[dict]:
    out = []
    for name, by_depth in quality.items():
        deepest = by_depth[max(by_depth)]
        for depth, values in sorted(by_depth.items()):
            ms, passages = zip(*times[name, depth])
            out.append({'system': name, 'depth': depth, 'n': len(values['nDCG@10']), **{m: summary(values[m]) for m in MEASURES},
                        'against_deepest': {m: summary(values[m] - deepest[m]) for m in KNEE_OF},
                        'passages_p50': float(np.median(passages)), 'ms': quantiles(ms), 'timed': len(ms)})
    return out


def knees(quality: dict) -> list[dict]:
    return [{'system': name, 'measure': m, 'loss': knee_by_loss({d: v[m] for d, v in by_depth.items()}),
             'kneedle': kneedle({d: float(v[m].mean()) for d, v in by_depth.items()})}
            for name, by_depth in quality.items() if name != 'first stage' for m in KNEE_OF]


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument('library')
    for name, value in (('questions', 0), ('timed', 200), ('slow-questions', 100), ('slow-timed', 10)):
        ask.add_argument(f'--{name}', type=int, default=value)
    ask.add_argument('--cross-encoder', help='a name of RERANKERS, or the folder of a prepared one')
    ask.add_argument('--depths', help='with commas between')
    ask.add_argument('--name', default='depth', help='of the result file')
    args, load = ask.parse_args(), os.getloadavg()
    if args.depths: DEPTHS[:] = [int(d) for d in args.depths.split(',')]
    bench, questions = Bench(args.library), sample(args.questions)
    vectors = bench.qa.vectors
    cosine, bm25 = CosineReranker(bench.encoder, stored(vectors)), Remembered(BM25Reranker())
    alone = lambda reranker: TwoStage(vectors, reranker, combine='reranker')
    quality = bench.quality({'first stage': alone(NoReranker()), 'bm25': alone(bm25), 'cosine': alone(cosine),
                             'fusion (cpqa)': TwoStage(vectors, bm25)}, questions)
    times = bench.times({'first stage': alone(NoReranker()), 'bm25': alone(BM25Reranker()), 'cosine': alone(cosine),
                         'fusion (cpqa)': TwoStage(vectors)},
                        questions[:args.timed])
    more = {}
    if args.cross_encoder:
        model = cross_encoder(args.cross_encoder, bench.encoder)
        known, few = Remembered(model), questions[:args.slow_questions]
        names = {'cross-encoder': dict(combine='reranker'), 'cross-encoder, fusion': {}}
        quality |= bench.quality({name: TwoStage(vectors, known, **options) for name, options in names.items()}, few)
        times |= bench.times({name: TwoStage(vectors, model, **options) for name, options in names.items()}, few[:args.slow_timed])
        more = {'cross_encoder': model.describe()}
    save(args.name, {'data': 'bioasq_beir', 'questions': len(questions), 'sample_seed': 0 if args.questions else None,
                   'documents': len(bench.qa.library),
                   'load_average_at_start': [round(x, 1) for x in load], 'interval': '95 %, bootstrap over questions, 10,000 resamples',
                   'knee_rules': {'loss': f'smallest depth within {WITHIN} of the best mean, paired interval against it not below -{LOSS}',
                                  'kneedle': 'of the mean over the logarithm of the depth'},
                   **more, 'knees': knees(quality), 'rows': rows(quality, times)},
         (*PACKAGES, 'rank-bm25', 'ir-measures', *(['kneed'] if find_spec('kneed') else [])))


if __name__ == '__main__': main()
