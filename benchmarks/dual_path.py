"""What does each route of the dual path find? Term search by a ladder of Boolean queries (rules, no language model), dense search, and
both.

    python benchmarks/dual_path.py LIBRARY      # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --out LIBRARY

All 1,983 questions of bioasq_beir, by the local Boolean engine; routes and top five as in He et al.'s Table II, but on questions with gold
documents; the same for shorter lists, and with BM25 as the term route for smaller libraries.
A question for which a route finds nothing stays in the mean, with nought. Nothing was chosen on these figures but what the result says.
"""
import csv
import sys
from collections import Counter, defaultdict
from itertools import zip_longest

import numpy as np
from common import DATA, PACKAGES, bioasq_questions, interval, save

from cpqa.evaluation.metrics import category_measures
from cpqa.literature.library import Library
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.term_search import fuse
from cpqa.retrieval.dual_path import routes
from cpqa.retrieval.query_ladder import walk
from cpqa.retrieval.rewriters import rewriter
from cpqa.retrieval.vectors import DenseRetriever, Vectors

DEPTH, TOP = 100, 5
DEPTHS, PARTS = (5, 10, 20, 50, 100), (8, 4, 2, 1)


def gold() -> dict[str, set[str]]:
    found = defaultdict(set)
    with open(DATA / 'bioasq_beir' / 'qrels' / 'test.tsv') as f:
        for r in csv.DictReader(f, delimiter='\t'):
            if int(r['score']) > 0: found[r['query-id']].add(r['corpus-id'])
    return found


def recall(ids, truth: set[str]) -> float: return len(set(ids) & truth) / len(truth)


def ndcg(ids, truth: set[str], k: int = 10) -> float:
    gains = [1 / np.log2(rank + 1) for rank, id in enumerate(ids[:k], 1) if id in truth]
    return sum(gains) / sum(1 / np.log2(rank + 1) for rank in range(1, min(k, len(truth)) + 1))


def mean(values) -> dict:
    values = np.asarray(values, dtype=float)
    return {'mean': round(float(values.mean()), 4), 'interval': interval(values), 'n': len(values)}


def kind(why: str) -> str:
    "What a rung is, without the words of its question."
    return 'the core, with any of the other concepts' if why.endswith('with any of the other concepts') else why.split(':')[0]


def table_ii(fused: list[list[str]], way: list[dict[str, str]], truth: list[set[str]]) -> dict:
    "RRF score, entropy and share of each route among the top five, and how many of those documents are gold."
    labels = [[w[id] for id in ids[:TOP]] for ids, w in zip(fused, way)]
    out = {}
    for name, m in category_measures(labels, TOP).items():
        right = [id in t for ids, w, t in zip(fused, way, truth) for id in ids[:TOP] if w[id] == name]
        out[name] = {'rrf_score': round(m.rrf, 2), 'entropy': round(m.entropy, 3),
                     'share': [round(x, 4) for x in (m.share.value, m.share.low, m.share.high)],
                     'documents': len(right), 'gold': round(float(np.mean(right)), 4)}
    return out


def in_turn(terms, dense) -> list[str]:
    "One of each list in turn, without any gain for what both hold."
    return list(dict.fromkeys(h.id for pair in zip_longest(terms, dense) for h in pair if h))


def by_depth(found, dense_hits, truths, join) -> dict:
    "Table II for lists of several lengths, joined by `join`."
    cut = {depth: [(t[:depth], d[:depth]) for t, d in zip(found, dense_hits)] for depth in DEPTHS}
    return {str(depth): table_ii([join(t, d) for t, d in lists], [routes(d, t) for t, d in lists], truths) for depth, lists in cut.items()}


def by_size(ids: list[str], terms, dense_hits, truths) -> list[dict]:
    """Table II when each question is asked of a part of the library only: its own gold documents and a random part of all others.
    The order within a route is that of the whole library; `terms` and `dense_hits` reach PARTS[0] times as deep as a route does."""
    order, rows = list(np.random.default_rng(0).permutation(ids)), []
    for part in PARTS:
        keep = set(order[:len(order) // part])
        cut = [[[h for h in hits if h.id in keep or h.id in t] for hits in (x, y)] for x, y, t in zip(terms, dense_hits, truths)]
        for depth in (min(DEPTHS), DEPTH):
            lists = [(x[:depth], y[:depth]) for x, y in cut]
            rows.append({'documents': len(keep), 'depth': depth,
                         **table_ii([[h.id for h in fuse(x, y)] for x, y in lists], [routes(y, x) for x, y in lists], truths)})
    return rows


def main(folder: str):
    library, questions, truth = Library(folder), bioasq_questions(), gold()
    texts, truths = [q['text'] for q in questions], [truth[q['_id']] for q in questions]
    index, rules = BooleanIndex(library), rewriter('rules')
    by_meaning, by_words = DenseRetriever(Vectors(library, EmbeddedEncoder())), TermRetriever(library)
    dense_hits, bm25_hits = by_meaning.search(texts, DEPTH), by_words.search(texts, DEPTH)
    dense, bm25 = ([[h.id for h in hits] for hits in found] for found in (dense_hits, bm25_hits))
    ladders = [rules.rewrite(t) for t in texts]
    rounds = np.array([int(q['batch'].split('B')[0]) for q in questions])
    words = np.array([len(t.split()) for t in texts])
    parts = {'all': rounds > 0, 'rounds 7-9': rounds < 10, 'round 10': rounds == 10}
    cuts = [int(c) for c in np.quantile(words, [1/3, 2/3])]
    lengths = {f'up to {cuts[0]} words': words <= cuts[0], f'{cuts[0] + 1} to {cuts[1]} words': (words > cuts[0]) & (words <= cuts[1]),
               f'over {cuts[1]} words': words > cuts[1]}
    walks = {enough: [walk(r.rungs, index.search, enough=enough, most=DEPTH) for r in ladders] for enough in (20, DEPTH)}
    systems = {'dense': dense, 'bm25': bm25}
    for enough, found in walks.items():
        terms = [list(w.ids) for w in found]
        systems |= {f'ladder, enough {enough}': terms,
                    f'ladder {enough} and dense, all found': [list(dict.fromkeys((*t, *d))) for t, d in zip(terms, dense)],
                    f'ladder {enough} and dense, fused': [[h.id for h in fuse(w.hits, d)][:DEPTH] for w, d in zip(found, dense_hits)]}
    systems |= {'bm25 and dense, all found': [list(dict.fromkeys((*t, *d))) for t, d in zip(bm25, dense)],
                'bm25 and dense, fused': [[h.id for h in fuse(t, d)][:DEPTH] for t, d in zip(bm25_hits, dense_hits)]}
    rows = []
    for name, ids in systems.items():
        found, ranked = np.array([recall(i, t) for i, t in zip(ids, truths)]), np.array([ndcg(i, t) for i, t in zip(ids, truths)])
        for part, mask in {**parts, **lengths}.items():
            rows.append({'system': name, 'questions': part, 'n': int(mask.sum()),
                         'without_hits': sum(not i for i, m in zip(ids, mask) if m),
                         'documents': round(float(np.mean([len(i) for i, m in zip(ids, mask) if m])), 1),
                         'recall': mean(found[mask]), 'nDCG@10': mean(ranked[mask])})
    shares = {}
    for name, found in {'ladder 20': [w.hits for w in walks[20]], 'ladder 100': [w.hits for w in walks[DEPTH]], 'bm25': bm25_hits}.items():
        fused, way = [[h.id for h in fuse(t, d)] for t, d in zip(found, dense_hits)], [routes(d, t) for t, d in zip(found, dense_hits)]
        shares[name] = {part: table_ii(*([x for x, m in zip(xs, mask) if m] for xs in (fused, way, truths))) for part,
                        mask in {'all': rounds > 0, **lengths}.items()}
    lists = [w.hits for w in walks[20]], dense_hits, truths
    depths = {'fused': by_depth(*lists, lambda t, d: [h.id for h in fuse(t, d)]), 'in turn': by_depth(*lists, in_turn)}
    sizes = by_size(library.ids, by_words.search(texts, PARTS[0] * DEPTH), by_meaning.search(texts, PARTS[0] * DEPTH), truths)
    gains = [{'system': a, 'against': b, 'questions': part,
              'nDCG@10': mean([ndcg(x, t) - ndcg(y, t) for x, y, t, m in zip(systems[a], systems[b], truths, mask) if m]),
              'recall': mean([recall(x, t) - recall(y, t) for x, y, t, m in zip(systems[a], systems[b], truths, mask) if m])}
             for a, b in (('ladder 20 and dense, fused', 'bm25 and dense, fused'), ('ladder 20 and dense, fused', 'dense'),
                          ('ladder 20 and dense, fused', 'ladder, enough 20'), ('ladder, enough 20', 'bm25'),
                          ('ladder, enough 100', 'bm25'))
             for part, mask in {**parts, **lengths}.items()]
    audit = {}
    for enough, found in walks.items():
        steps = Counter(len(w.audit) for w in found)
        last = Counter(kind(w.audit[-1].why) for w in found if w.audit)
        audit[f'enough {enough}'] = {'rungs walked': {str(n): steps[n] for n in sorted(steps)}, 'left at': dict(last.most_common()),
                                     'reached enough': sum(len(w.ids) >= enough for w in found),
                                     'failed rungs': sum(r.failed for w in found for r in w.audit),
                                     'first rung found nothing': sum(bool(w.audit) and w.audit[0].hits == 0 for w in found)}
    corrected = sum(bool(r.notes) for r in ladders)
    save('dual_path', {'library': {'documents': len(library)}, 'n': len(questions), 'depth': DEPTH, 'top': TOP, 'rows': rows,
                       'shares': shares,
                       'shares by depth': depths, 'shares by library': sizes, 'gains': gains,
                       'audit': audit, 'rewritings with notes': corrected, 'rungs a ladder': mean([len(r.rungs) for r in ladders])},
                       packages=PACKAGES)


if __name__ == '__main__': main(*sys.argv[1:])
