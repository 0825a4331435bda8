"""The same library in Milvus and on disk: do both rank alike, and how long does a question take?

    python benchmarks/milvus.py LIBRARY FILE.db [MOST]      # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --out LIBRARY

All questions of bioasq_beir (or the first MOST), by words, by meaning and by both, scored by ir-measures; the first 200 are also asked
one at a time, for the time of each. Milvus Lite serves
FILE.db in this process, with exact search; an address such as http://HOST:19530 in its place is a cluster's. A library without
vectors is compared by words.
"""
import os
import sys
import time
from pathlib import Path

import numpy as np
from common import DATA, bioasq_questions, interval, quantiles, save

from cpqa.core.progress import progress_bars
from cpqa.evaluation.collections import read_collection
from cpqa.evaluation.metrics import retrieval_values
from cpqa.libraries import encoder_of
from cpqa.literature.library import Library
from cpqa.retrieval.encoders import RememberingEncoder
from cpqa.retrieval.milvus import MilvusEngine
from cpqa.retrieval.term_search import TermRetriever, fuse, in_both_forms
from cpqa.retrieval.vectors import DenseRetriever, VectorPart, Vectors

K, TIMED, TOGETHER = 100, 200, 50


def timed(search, queries: list[str]) -> tuple[list, list[float]]:
    "What a search finds, some questions together, and the milliseconds of the first ones, each asked alone."
    ms = []
    for q in queries[:TIMED]:
        began = time.perf_counter()
        search([q], K)
        ms.append((time.perf_counter() - began) * 1000)
    return [hits for i in range(0, len(queries), TOGETHER) for hits in search(queries[i:i + TOGETHER], K)], ms


def less(a: dict[str, float], b: dict[str, float]) -> dict:
    "The mean difference of two systems, question by question, and its interval."
    d = np.array([a[q] - b[q] for q in b])
    return {'mean': round(float(d.mean()), 4), 'interval': interval(d)}


def main(folder: Path, uri: str, most: int | None):
    library, engine = Library(folder), MilvusEngine(uri)
    encoder = RememberingEncoder(encoder_of(None)) if VectorPart.name in library.manifest.parts else None
    with progress_bars() as progress:
        began = time.perf_counter()
        written = engine.sync(library, encoder, progress)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        again = engine.sync(library, encoder, progress)
        unchanged = time.perf_counter() - began
    asked = bioasq_questions()[:most]
    ids, queries = [q['_id'] for q in asked], [q['text'] for q in asked]
    qrels = {q: grades for q, grades in read_collection(DATA / 'bioasq_beir').qrels.items() if q in set(ids)}
    ways = {'bm25': (TermRetriever(library).search, engine.terms)}
    if encoder is not None:
        encoder.encode(queries, 'query')   # the model is no part of what is compared
        ways['dense'] = (in_both_forms(DenseRetriever(Vectors(library, encoder)).search),
                         in_both_forms(lambda q, k: engine.dense(q, k, encoder)))
    found, result = {}, {}
    for way, searches in ways.items():
        for where, search in zip(('local', 'milvus'), searches): found[way, where] = timed(search, queries)
    if encoder is not None:
        for where in ('local', 'milvus'):
            (terms, a), (dense, b) = found['bm25', where], found['dense', where]
            found['hybrid', where] = [fuse(t, d)[:K] for t, d in zip(terms, dense)], [x + y for x, y in zip(a, b)]
    scored = {}
    for (way, where), (hits, ms) in found.items():
        values = scored[way, where] = retrieval_values({q: tuple(h) for q, h in zip(ids, hits) if q in qrels}, qrels, ['nDCG@10', 'R@100'])
        scores = {m: np.array(list(of.values())) for m, of in values.items()}
        result.setdefault(way, {})[where] = {m: {'mean': round(float(v.mean()), 4), 'interval': interval(v)} for m, v in scores.items()} | {
            'ms_a_question': quantiles(ms)}
    for way, of in result.items():
        of['milvus_less_local'] = {m: less(scored[way, 'milvus'][m], scored[way, 'local'][m]) for m in scored[way, 'local']}
    same = {way: round(float(np.mean([[h.id for h in a[:10]] == [h.id for h in b[:10]]
                                      for a, b in zip(found[way, 'local'][0], found[way, 'milvus'][0])])), 4)
            for way, _ in found}
    save('milvus', {'n_questions': len(ids), 'n_documents': len(library),
                    'engine': uri if engine.far else 'Milvus Lite, in this process',
                    'sync': {'written': written.written, 'too_long': len(written.too_long), 'seconds': round(seconds, 1),
                             'again_unchanged': again.same, 'again_seconds': round(unchanged, 1)},
                    'timed': min(TIMED, len(ids)), 'load_average': round(os.getloadavg()[0], 1),
                    'results': result, 'share_of_questions_with_the_same_first_ten': same}, ('cpqa', 'pymilvus', 'milvus-lite', 'tantivy'))
    engine.close()


if __name__ == '__main__': main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
