"""What do forms of vectors that fit into less memory cost in quality, and what do they save?

    python benchmarks/vectors_fit.py LIBRARY [--questions N]   # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --out LIBRARY

The vectors of a library whose vectors are exact are written in each form, without embedding anything again, and bioasq_beir's questions
are searched one at a time on one thread: bytes on disk and bytes that a search reads, ms a question, how many of the 10 and 100 nearest
passages are found that exact search finds, also where only a tenth of the documents may be found, and nDCG@10 of the documents beside the
exact form's, question by question. The time of embedding a question, the same for all, is left out. A question for which nothing is found
stays in the mean, with nought.
"""
import argparse
import copy
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
from common import bioasq_questions, interval, quantiles, save
from retrieval_quality import qrels, scores

from cpqa.core.errors import require
from cpqa.libraries import encoder_of, remembered_encoder
from cpqa.literature.library import Library
from cpqa.retrieval.vector_forms import Form, Rows, StoredVectors, bytes_read, write_form
from cpqa.retrieval.vectors import DenseRetriever, Vectors

DEPTH = 100
PARTS = (16, 4, 2, 1)   # of so many lists one is looked into; the last is what a library of this size does


def one_at_a_time(search: Any, queries: np.ndarray) -> tuple[list, dict]:
    "What a search finds for each query, and its times in ms."
    found, ms = [], []
    for q in queries:
        began = time.perf_counter()
        found.append(search(q[None]))
        ms.append(1000 * (time.perf_counter() - began))
    return found, quantiles(ms)


def shares(rows: list[np.ndarray], exact: list[np.ndarray], k: int) -> np.ndarray:
    "For each question, the share of the exact form's first `k` rows that are among the first `k`."
    return np.array([len({*a[0, :k]} & {*b[0, :k]} - {-1}) / max(1, len({*b[0, :k]} - {-1})) for a, b in zip(rows, exact)])


class Bench:
    def __init__(self, folder: str, most: int | None):
        self.library = Library(folder)
        self.encoder = encoder_of(remembered_encoder(self.library))
        self.vectors = Vectors(self.library, self.encoder)
        if self.library.manifest.parts['vectors'].get('form', 'exact') != 'exact':
            raise SystemExit(f'{folder} has compressed vectors: build it without --memory, since all is compared with the exact ones')
        self.questions, self.truth = bioasq_questions()[:most], qrels()
        self.queries = self.encoder.encode([q['text'] for q in self.questions], 'query')
        self.tenth = np.random.default_rng(0).random(len(self.library.ids)) < 0.1

    def measured(self, stored: StoredVectors) -> dict:
        "What a form finds, and how quickly."
        vectors = copy.copy(self.vectors)
        vectors.stored, vectors.index = stored, stored.index
        allowed = self.tenth[self.vectors.spans[:, 0]]
        stored.nearest(self.queries[:20], DEPTH)   # its files are read
        hits, ms = one_at_a_time(lambda q: DenseRetriever(vectors).search_vectors(q, DEPTH)[0], self.queries)
        rows, _ = one_at_a_time(lambda q: stored.nearest(q, DEPTH)[1], self.queries)
        few, few_ms = one_at_a_time(lambda q: stored.nearest(q, DEPTH, allowed)[1], self.queries)
        run = {q['_id']: found for q, found in zip(self.questions, hits)}
        return {'ms': ms, 'ms_of_a_tenth': few_ms, 'rows': rows, 'few': few, 'without_hits': sum(not found for found in hits),
                'values': scores(run, self.truth, self.questions)['nDCG@10']}

    def row(self, form: Form, stored: StoredVectors, seconds: float, exact: dict | None) -> tuple[dict, dict]:
        "A line of the table, and what it was made from."
        got = self.measured(stored)
        base, n = exact or got, len(self.questions)
        mean = lambda values: {'mean': round(float(values.mean()), 4), 'interval': interval(values)}
        d = got['values'] - base['values']
        finds = {name: {f'@{k}': mean(shares(got[key], base[key], k)) for k in (10, DEPTH)}
                 for name, key in (('recall', 'rows'), ('recall_in_a_tenth_of_the_documents', 'few'))}
        disk = sum(p.stat().st_size for p in stored.folder.iterdir())
        lists = {} if stored.lists is None else {'lists': stored.lists.nlist, 'lists_looked_into': stored.probes}
        return {'form': form, **lists, 'n': n, 'bytes_on_disk': disk, 'bytes_a_search_reads': bytes_read(form, *self.shape),
                'seconds_to_write': round(seconds, 2), 'ms_a_question': got['ms'], 'ms_in_a_tenth': got['ms_of_a_tenth'], **finds,
                'without_hits': got['without_hits'], 'nDCG@10': mean(got['values']), 'nDCG@10_less_exact': mean(d),
                'questions_that_differ': int((d != 0).sum())}, got

    @property
    def shape(self) -> tuple[int, int]: return self.vectors.index.ntotal, self.vectors.index.d

    def rows(self, folder: Path) -> list[dict]:
        "The table: the exact form first."
        out, exact = [], None
        for form in get_args(Form):
            (folder / form).mkdir()
            began = time.perf_counter()
            write_form(folder / form, Rows(self.shape, self.vectors.of_rows), form)
            seconds = time.perf_counter() - began
            lists = StoredVectors(folder / form).lists
            for probes in [None] if lists is None else [max(1, lists.nlist // part) for part in PARTS]:
                line, got = self.row(form, StoredVectors(folder / form, probes), seconds, exact)
                exact = exact or got
                out.append(line)
        return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('library')
    parser.add_argument('--questions', type=int, help='the first so many (default: all)')
    args = parser.parse_args()
    require('faiss', 'offline').omp_set_num_threads(1)
    bench = Bench(args.library, args.questions)
    with tempfile.TemporaryDirectory() as folder: rows = bench.rows(Path(folder))
    save('vectors_fit', {'data': 'bioasq_beir', 'documents': len(bench.library), 'passages': bench.shape[0], 'dim': bench.shape[1],
                         'depth': DEPTH, 'threads': 1, 'interval': '95 %, bootstrap over questions', 'rows': rows},
         ('cpqa', 'faiss-cpu', 'numpy'))


if __name__ == '__main__': main()
