"""The stores of the benchmark find the document that holds the words, and Elasticsearch is spoken to as its REST interface asks."""
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
