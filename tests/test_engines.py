"A library in Milvus Lite, from the command line: filled, searched, asked, brought up to date; and a server that is away."
import json

import pytest
from helpers import complaint, good, inside, write_beir

from cpqa.literature.library import Library
from cpqa.testing.toy_corpus import TOY

pytest.importorskip('pymilvus', reason='needs cpqa[milvus]')
pytest.importorskip('milvus_lite', reason='needs cpqa[milvus]')


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp('engine')
    write_beir(folder/'toy.jsonl', TOY)
    words = ['index', 'build', folder/'toy.jsonl', '--out', folder/'toy', '--no-vectors', '--engine', f'milvus:{folder}/toy.db']
    said = good(*words, how=inside)
    assert '5 documents written to' in said
    return folder


def test_it_finds_what_the_library_finds(place):
    ids = lambda *words: [h['id'] for h in json.loads(good('search', 'polyps', '--retriever', 'bm25', '--json', *words, how=inside))]
    assert ids('--source', f'milvus:{place}/toy.db') == ids('--library', place/'toy') != []
    assert 'has no Boolean search' in complaint(inside('search', 'polyps', '--retriever', 'boolean', '--source', f'milvus:{place}/toy.db'))
    assert 'without vectors' in complaint(inside('search', 'polyps', '--retriever', 'dense', '--source', f'milvus:{place}/toy.db'))


def test_it_follows_the_library(place):
    write_beir(place/'more.jsonl', [TOY[0]], json.dumps({'_id': '77', 'title': 'Tea for polyps', 'text': 'Tea helped.'}))
    good('library', 'update', place/'toy', '--files', place/'more.jsonl', how=inside)
    said = good('index', 'sync', place/'toy', '--engine', f'milvus:{place}/toy.db', how=inside)
    assert said.startswith('1 documents written to') and '5 were there' in said and len(Library(place/'toy')) == 6


def test_a_server_that_is_away(place):
    for words in (['search', 'polyps'], ['ask', 'Do polyps grow?']):
        assert 'did not answer' in complaint(inside(*words, '--source', 'milvus:http://127.0.0.1:9'))
    assert 'is not an engine' in complaint(inside('index', 'sync', place/'toy', '--engine', 'lucene:x'))
