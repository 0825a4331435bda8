"""How long do stores of documents and of vectors take to index and to answer? Table I of Stuhlmann et al., with stores that need no server.

    python benchmarks/stores.py                              # 10,000 and 20,000 documents; writes results/stores.json
    python benchmarks/stores.py --sizes 50000,200000         # larger: gigabytes, and minutes a store
    python benchmarks/stores.py --stores tantivy,flat-l2     # only these
    python benchmarks/stores.py --add --sizes 50000           # rows of other stores and sizes that are in the file stay there
    python benchmarks/stores.py --elastic http://localhost:9200 --mongo mongodb://localhost:27017    # servers of your own

The documents are those of bioasq_beir, title and abstract; beyond its 16,296 they are drawn word by word from their frequencies and lengths
(`drawn` says how many). The same questions are asked of each store, ten documents each, one at a time, after three to warm up. The rows of
vectors hold random ones of 384 numbers: what they take is measured, and what they find means nothing. Words are cut and stemmed by one
analyzer where a store lets us (tantivy, bm25s, rank-bm25); SQLite and the servers have their own.

Elasticsearch is asked over its REST interface, by words and by vectors (KNN), as far as a test can follow it on a server of its own;
MongoDB needs pymongo, and its calls were tried on a collection in memory. Neither server was at hand.

Times are given by the clock and by the processor (`cpu`): on a machine that others use too, only the second can be compared, and not with
the paper's, whose clock and size were others.
"""
import argparse
import gzip
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA, PACKAGES, RESULTS, bioasq_questions, quantiles, save

from cpqa.core.errors import require
from cpqa.core.records import Document
from cpqa.core.text_analysis import ENGLISH
from cpqa.literature.library import build_library
from cpqa.retrieval.term_search import TermRetriever

DIM, K, WARM, BLOCK = 384, 10, 3, 10_000
Ask = Callable[[str, np.ndarray], Sequence[Any]]   # a question in words and as a vector -> what was found
Stores = dict[str, Callable[[list[Document], np.ndarray], Ask]]


def real() -> list[Document]:
    with gzip.open(DATA / 'bioasq_beir' / 'corpus.jsonl.gz', 'rt') as f:
        return [Document(d['_id'], d.get('title', ''), d['text']) for d in map(json.loads, f)]


def drawn(known: Sequence[Document], n: int, seed: int = 0) -> Iterator[Document]:
    "So many documents more, drawn from the words and lengths of those that are known, ten thousand at a time."
    counts, rng = Counter(w for d in known for w in d.text.split()), np.random.default_rng(seed)
    words, shares, sizes = np.array(list(counts)), np.array(list(counts.values())) / counts.total(), [len(d.text.split()) for d in known]
    for begin in range(0, n, BLOCK):
        lengths = rng.choice(sizes, min(BLOCK, n - begin))
        some = rng.choice(words, int(lengths.sum()), p=shares)
        for i, (end, size) in enumerate(zip(np.cumsum(lengths), lengths), begin):
            yield Document(f'drawn-{i}', text=' '.join(some[end - size:end]))


def documents(n: int) -> tuple[list[Document], int]:
    "So many documents, and how many of them are drawn."
    known = real()
    more = max(0, n - len(known))
    return [*known[:n], *drawn(known, more)], more


def tantivy(docs: list[Document], vectors: np.ndarray) -> Ask:
    folder = tempfile.mkdtemp(dir=WORK)
    found = TermRetriever(build_library([docs], Path(folder) / 'library'))
    return lambda text, _: found.search([text], K)[0]


def bm25s(docs: list[Document], vectors: np.ndarray) -> Ask:
    package = require('bm25s', 'dev')
    index, terms = package.BM25(), [ENGLISH.analyze(f'{d.title} {d.text}') for d in docs]
    index.index(terms, show_progress=False)
    return lambda text, _: index.retrieve([ENGLISH.analyze(text)], k=K, show_progress=False)[0][0]


def rank_bm25(docs: list[Document], vectors: np.ndarray) -> Ask:
    from rank_bm25 import BM25Plus
    index = BM25Plus([ENGLISH.analyze(f'{d.title} {d.text}') for d in docs])
    return lambda text, _: np.argsort(-index.get_scores(ENGLISH.analyze(text)))[:K]


def fts5(docs: list[Document], vectors: np.ndarray) -> Ask:
    db = sqlite3.connect(Path(tempfile.mkdtemp(dir=WORK)) / 'documents.sqlite')
    db.execute("create virtual table d using fts5(id unindexed, text, tokenize='porter unicode61')")
    with db: db.executemany('insert into d values (?, ?)', ((d.id, f'{d.title} {d.text}') for d in docs))
    words = lambda text: ' OR '.join(f'"{w}"' for w in dict.fromkeys(''.join(c if c.isalnum() else ' ' for c in text).split()))
    return lambda text, _: db.execute('select id from d where d match ? order by rank limit ?', (words(text), K)).fetchall()


def faiss_index(make: Callable[[Any, int], Any]) -> Callable[[list[Document], np.ndarray], Ask]:
    def build(docs: list[Document], vectors: np.ndarray) -> Ask:
        index = make(require('faiss', 'offline'), len(docs))
        if not index.is_trained: index.train(vectors)
        index.add(vectors)
        return lambda _, vector: index.search(vector[None], K)[1][0]
    return build


def rest(url: str) -> Callable[..., dict]:
    "Calls of Elasticsearch's REST interface: method, path, body and its kind -> what is answered."
    import urllib3
    http = urllib3.PoolManager(timeout=600)

    def call(method: str, path: str, body: str = '', kind: str = 'application/json', fine: tuple[int, ...] = (200, 201)) -> dict:
        reply = http.request(method, f'{url.rstrip("/")}/{path}', body=body or None, headers={'Content-Type': kind})
        if reply.status not in fine: raise SystemExit(f'Elasticsearch answers {reply.status} to {method} {path}: {reply.data[:200]!r}')
        return json.loads(reply.data or b'{}')
    return call


def elasticsearch(url: str, knn: bool = False) -> Callable[[list[Document], np.ndarray], Ask]:
    "BM25 in Elasticsearch, English analyzer, by REST; or with `knn` its search of vectors. An index of our own, made anew."
    call, name = rest(url), 'cpqa-stores-knn' if knn else 'cpqa-stores'
    field = {'v': {'type': 'dense_vector', 'dims': DIM, 'index': True, 'similarity': 'dot_product'}} if knn else {
        'text': {'type': 'text', 'analyzer': 'english'}}

    def build(docs: list[Document], vectors: np.ndarray) -> Ask:
        call('DELETE', name, fine=(200, 404))
        call('PUT', name, json.dumps({'mappings': {'properties': field}}))
        for at in range(0, len(docs), 1000):
            kept = [{'v': v.tolist()} for v in vectors[at:at + 1000]] if knn else [{'text': f'{d.title} {d.text}'}
                                                                                   for d in docs[at:at + 1000]]
            lines = [line for d, row in zip(docs[at:at + 1000], kept, strict=True) for line in ({'index': {'_id': d.id}}, row)]
            done = call('POST', f'{name}/_bulk', ''.join(f'{json.dumps(line)}\n' for line in lines), 'application/x-ndjson')
            if done.get('errors'): raise SystemExit('Elasticsearch took in a part of the documents only')
        call('POST', f'{name}/_refresh')
        def asked(text: str, vector: np.ndarray) -> list[str]:
            query = {'knn': {'field': 'v', 'query_vector': vector.tolist(), 'k': K, 'num_candidates': 10 * K}} if knn else {
                'query': {'match': {'text': text}}}
            found = call('POST', f'{name}/_search', json.dumps({'size': K, '_source': False, **query}))
            return [hit['_id'] for hit in found['hits']['hits']]
        return asked
    return build


def mongodb(url: str) -> Callable[[list[Document], np.ndarray], Ask]:
    "MongoDB's text index; not tried."
    try: import pymongo   # no extra: nothing else here needs it
    except ModuleNotFoundError: sys.exit('this needs pymongo: pip install pymongo')

    def build(docs: list[Document], vectors: np.ndarray) -> Ask:
        rows = pymongo.MongoClient(url)['cpqa']['stores']
        rows.drop()
        rows.insert_many([{'_id': d.id, 'text': f'{d.title} {d.text}'} for d in docs])
        rows.create_index([('text', 'text')])
        score = {'score': {'$meta': 'textScore'}}
        return lambda text, _: list(rows.find({'$text': {'$search': text}}, score).sort([('score', score['score'])]).limit(K))
    return build


STORES: Stores = {
    'tantivy': tantivy, 'bm25s': bm25s, 'rank-bm25': rank_bm25, 'sqlite-fts5': fts5,
    'flat-l2': faiss_index(lambda faiss, n: faiss.IndexFlatL2(DIM)), 'flat-ip': faiss_index(lambda faiss, n: faiss.IndexFlatIP(DIM)),
    'hnsw': faiss_index(lambda faiss, n: faiss.IndexHNSWFlat(DIM, 32)),
    # np: without polysemous training, which takes a minute and which a search by distances does not use
    'ivf-pq': faiss_index(lambda faiss, n: faiss.index_factory(DIM, f'IVF{max(1, round(n**.5))},PQ48np')),
}


def measured(build: Callable, docs: list[Document], vectors: np.ndarray, asked: list[tuple[str, np.ndarray]]) -> dict:
    "Seconds to index and milliseconds to answer, by the clock and by the processor: on a busy machine the second is what counts."
    now = lambda: np.array([time.perf_counter(), time.process_time()])
    begin = now()
    ask = build(docs, vectors)
    indexed, took, found = now() - begin, [], 0
    for number, question in enumerate(asked[:WARM] + asked):
        begin = now()
        some = ask(*question)
        if number >= WARM:
            took.append(1000 * (now() - begin))
            found += len(some) > 0
    ms, cpu_ms = np.array(took).T
    told = lambda x: {**quantiles(x), 'mean': round(float(x.mean()), 2), 'sd': round(float(x.std()), 2)}
    return {'index_s': round(float(indexed[0]), 2), 'index_cpu_s': round(float(indexed[1]), 2), 'ms': told(ms), 'cpu_ms': told(cpu_ms),
            'asked': len(ms), 'with a hit': found}


def main():
    global WORK
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--sizes', default='10000,20000')
    parser.add_argument('--stores', default=','.join(STORES))
    parser.add_argument('--questions', type=int, default=100)
    parser.add_argument('--add', action='store_true', help='keep the rows that the file has of other stores and sizes')
    parser.add_argument('--elastic', metavar='URL')
    parser.add_argument('--mongo', metavar='URL')
    args, load = parser.parse_args(), os.getloadavg()
    chosen: Stores = {name: STORES[name] for name in args.stores.split(',') if name}
    if args.elastic: chosen |= {'elasticsearch': elasticsearch(args.elastic), 'elasticsearch-knn': elasticsearch(args.elastic, True)}
    if args.mongo: chosen['mongodb'] = mongodb(args.mongo)
    kept, sizes, rng = RESULTS / 'stores.json', [int(n) for n in args.sizes.split(',')], np.random.default_rng(0)
    known = json.loads(kept.read_text())['rows'] if args.add and kept.is_file() else []
    rows = [r for r in known if r['store'] not in chosen or r['documents'] not in sizes]
    unit = lambda n: (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) if len(x := rng.normal(size=(n, DIM))) else x
    asked = list(zip([q['text'] for q in bioasq_questions()][:args.questions], unit(args.questions)))
    told = {'load_average_at_start': [round(x, 1) for x in load], 'threads': os.environ.get('OMP_NUM_THREADS', 'all'), 'k': K, 'dim': DIM,
            'vectors': 'random: times only'}
    with tempfile.TemporaryDirectory() as WORK:
        for size in sizes:
            docs, drawn = documents(size)
            vectors = unit(size)
            for name, build in chosen.items():
                rows.append({'store': name, 'documents': size, 'drawn': drawn, **measured(build, docs, vectors, asked)})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                save('stores', told | {'rows': rows}, (*PACKAGES, 'bm25s', 'rank-bm25'))   # after each: a run may be stopped


if __name__ == '__main__': main()
