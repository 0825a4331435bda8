"""Which reranker helps which retriever? Figure 4 of He et al., on questions that people asked and snippets that experts marked.

    python benchmarks/reranker_grid.py LIBRARY [RERANKER ...] [--questions N]     # LIBRARY: of the corpus of bioasq_beir, with vectors

Every retriever (bm25, dense, their hybrid, and dense by wordllama, a second and much smaller model) searches the library's own passages;
every reranker (none, bm25, cosine of either model, and those named, such as cross-encoder:FOLDER) orders the first 50. wordllama is
optional: its rows are left out where the package is missing (pip install wordllama).

A hit: a passage that holds a snippet which experts marked for the question, that is, shares at least half of the shorter of the two; where
the snippet is the title, or is not found, any passage of its document (`cpqa.evaluation.pairs`). Hits@5 and MRR@5 over all questions; a
question of which no passage was marked stays in the mean, with nought. Fusion: reciprocal rank fusion (k = 60) of the retriever's order and
the reranker's.
"""
import argparse
import json
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, bioasq_questions, save

from cpqa.core.records import Document, Hit, Passage
from cpqa.evaluation.pairs import gold_spans, holds, snippet_pairs
from cpqa.evaluation.statistics import bootstrap, holm, mcnemar, paired_bootstrap, permutation
from cpqa.literature.library import Library, build_library
from cpqa.passages.rerankers import reranker
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.term_search import fuse, reciprocal_rank_fusion
from cpqa.retrieval.vectors import Vectors, embedded_text

DEPTH, FIRST, K, RRF = 50, 100, 5, 60
SECOND = 'wordllama'


class WordLlama:
    "256 static numbers a word piece, averaged; from the package's own files."
    dim = 256

    def __init__(self):
        import wordllama
        self.model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)

    def encode(self, texts, kind: str = 'document') -> np.ndarray:
        return np.asarray(self.model.embed(list(texts), norm=True), dtype=np.float32)


def nearest(queries: np.ndarray, passages: np.ndarray, k: int) -> list[list[Hit]]:
    "The best `k` passages by inner product for each query; ids are their numbers."
    found = []
    for vector in queries:
        scores = passages @ vector
        top = np.argpartition(-scores, k)[:k]
        found.append([Hit(str(i), float(scores[i])) for i in top[np.argsort(-scores[top], kind='stable')]])
    return found


def term_search(passages: list[Passage], questions: list[str]) -> list[list[Hit]]:
    "BM25 over title and text of each passage."
    with tempfile.TemporaryDirectory() as folder:
        library = build_library([[Document(str(i), p.title, p.text) for i, p in enumerate(passages)]], Path(folder) / 'passages')
        return TermRetriever(library).search(questions, FIRST)


def first_ranks(order: list[int], relevant: set[int]) -> int: return next((rank for rank, i in enumerate(order[:K], 1) if i in relevant), 0)


def fused(first: list[int], second: list[int]) -> list[int]:
    return [int(h.id) for h in reciprocal_rank_fusion([[Hit(str(i), 0.0) for i in order] for order in (first, second)], RRF)]


def told(i) -> dict: return {'value': round(i.value, 4), 'interval': [round(i.low, 4), round(i.high, 4)]}


def compared(a: np.ndarray, b: np.ndarray) -> dict:
    "Ranks of system a against those of b, question by question: differences with intervals, and p."
    rr = [np.divide(1, x, out=np.zeros(len(x)), where=x > 0) for x in (a, b)]
    hits = mcnemar(a > 0, b > 0)
    return {f'MRR@{K}': told(paired_bootstrap(*rr)), f'Hits@{K}': told(hits.difference), 'p MRR': permutation(*rr), 'p Hits': hits.p}


def with_holm(rows: list[dict]) -> list[dict]:
    "The rows with p adjusted for all of them."
    for name in ('p MRR', 'p Hits'):
        adjusted = holm({str(i): row[name] for i, row in enumerate(rows)})
        for i, row in enumerate(rows): row[f'{name}, Holm'], row[name] = round(adjusted[str(i)], 5), round(row[name], 5)
    return rows


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument('library')
    asked.add_argument('rerankers', nargs='*', help='further ones by name')
    asked.add_argument('--questions', type=int, help='only so many, evenly drawn, and no result is saved')
    a = asked.parse_args()
    library, encoder = Library(a.library), EmbeddedEncoder()
    vectors, documents = Vectors(library, encoder), list(library)
    rows = [i for i, (_, start, end) in enumerate(vectors.spans) if end > start]   # a title without a text holds nothing to quote
    passages = [Passage.of(documents[int(n)], int(start), int(end)) for n, start, end in vectors.spans[rows]]
    pairs = snippet_pairs(DATA / 'bioasq_beir', rounds=range(7, 11))
    gold, places = gold_spans(pairs, {d.id: d for d in documents})
    questions = [q for q in bioasq_questions() if q['_id'] in gold]
    if a.questions: questions = questions[::max(1, len(questions) // a.questions)]
    texts, rounds = [q['text'] for q in questions], np.array([int(q['batch'].split('B')[0]) for q in questions])
    of: dict[str, list[int]] = {}
    for i, p in enumerate(passages): of.setdefault(p.doc_id, []).append(i)
    relevant = [{i for d in gold[q['_id']] for i in of.get(d, ()) if holds(passages[i], gold[q['_id']])} for q in questions]

    known = {'cosine': (encoder.encode(texts, 'query'), vectors.of_rows(rows))}
    try:
        known['cosine ' + SECOND] = (lambda m: (m.encode(texts), m.encode([embedded_text(p.title, p.text) for p in passages])))(WordLlama())
    except ImportError: print(f'{SECOND} is not installed: its rows are left out')
    found = {'bm25': term_search(passages, texts), 'dense': nearest(*known['cosine'], FIRST)}
    found['hybrid'] = [fuse(*both) for both in zip(found['bm25'], found['dense'])]
    if len(known) > 1: found['dense ' + SECOND] = nearest(*known['cosine ' + SECOND], FIRST)
    first = {name: [[int(h.id) for h in hits[:DEPTH]] for hits in by_question] for name, by_question in found.items()}
    twin = {'bm25': 'bm25', 'cosine': 'dense', 'cosine ' + SECOND: 'dense ' + SECOND}   # the reranker that scores as the retriever does

    named = {name: reranker(name, lambda: encoder) for name in ('bm25', *a.rerankers)}
    def scores(name: str, n: int, candidates: list[int]) -> np.ndarray:
        if name in known: return known[name][1][candidates] @ known[name][0][n]
        return named[name].score(texts[n], [passages[i] for i in candidates])

    ranks = {}   # (retriever, reranker, combined how) -> the rank of each question's first hit, 0 beyond K
    for retriever, orders in first.items():
        ranks[retriever, 'none', ''] = np.array([first_ranks(o, r) for o, r in zip(orders, relevant)])
        for name in (*named, *known):
            again = [[o[i] for i in np.argsort(-scores(name, n, o), kind='stable')] for n, o in enumerate(orders)]
            ranks[retriever, name, 'reranker'] = np.array([first_ranks(o, r) for o, r in zip(again, relevant)])
            ranks[retriever, name, 'fusion'] = np.array([first_ranks(fused(o, s), r) for o, s, r in zip(orders, again, relevant)])
        print(f'{retriever}: done', flush=True)

    def measured(rank: np.ndarray) -> dict:
        rr = np.divide(1, rank, out=np.zeros(len(rank)), where=rank > 0)
        return {'n': len(rank), f'Hits@{K}': told(bootstrap((rank > 0).astype(float))), f'MRR@{K}': told(bootstrap(rr))}

    table = []
    for (retriever, name, how), rank in ranks.items():
        cell = {'retriever': retriever, 'reranker': name, 'order': how or 'retriever'}
        table.append({**cell, 'questions': 'all', **measured(rank),
                      'per_round': {f'round {r}': measured(rank[rounds == r]) for r in np.unique(rounds)}})
    same = lambda retriever, name: twin.get(name) == retriever and name != 'bm25'   # cosines order what cosines found as it was
    gains = with_holm([{'retriever': retriever, 'reranker': name, 'order': how, **compared(rank, ranks[retriever, 'none', ''])}
                       for (retriever, name, how), rank in ranks.items() if name != 'none' and not same(retriever, name)])
    fusion = with_holm([{'retriever': retriever, 'reranker': name, **compared(rank, ranks[retriever, name, 'reranker'])}
                        for (retriever, name, how), rank in ranks.items() if how == 'fusion' and not same(retriever, name)])
    value = lambda key: float(np.divide(1, ranks[key], out=np.zeros(len(questions)), where=ranks[key] > 0).mean())
    alone = {name: round(value((name, 'none', '')), 4) for name in first}
    mismatch = [{'retriever': g['retriever'], 'reranker': g['reranker'],
                 'reranker_as_retriever_less_retriever': round(alone[twin[g['reranker']]] - alone[g['retriever']], 4),
                 f'gain in MRR@{K}': g[f'MRR@{K}']['value'], 'p, Holm': g['p MRR, Holm']} for g in gains if g['order'] == 'reranker'
                 and twin.get(g['reranker']) in alone]
    weaker = [m for m in mismatch if m['reranker_as_retriever_less_retriever'] < 0]
    result = {'data': 'bioasq_beir, rounds 7 to 10', 'questions': len(questions), 'passages': len(passages), 'pairs': len(pairs),
              'snippets': places,
              'questions_without_a_marked_passage': sum(not r for r in relevant),
              'marked_passages_a_question': round(float(np.mean([len(r) for r in relevant])), 2), 'depth': DEPTH,
              f'marked_passage_among_first_{DEPTH}': {name: round(float(np.mean([bool(set(o) & r) for o, r in zip(orders, relevant)])),
                                                                  4) for name, orders in first.items()},
              'interval': '95 %, bootstrap over questions, 10,000 resamples (differences of Hits: Tango)',
              'tests': 'sign-flip permutation for MRR, exact McNemar for Hits; Holm over all pairs of a family',
              'rows': table, 'against_the_retriever_alone': gains, 'fusion_against_the_reranker_alone': fusion,
              'mismatch': {'pairs': mismatch, 'reranker_weaker_than_retriever': len(weaker),
                           'of_them_lower': sum(m[f'gain in MRR@{K}'] < 0 for m in weaker),
                           'of_them_lower, p < 0.05': sum(m[f'gain in MRR@{K}'] < 0 and m['p, Holm'] < .05 for m in weaker)}}
    try: second = {SECOND: version(SECOND)}
    except PackageNotFoundError: second = {}
    if a.questions: print(json.dumps(result, indent=1))
    else: save('reranker_grid', {**second, **result}, PACKAGES)


if __name__ == '__main__': main()
