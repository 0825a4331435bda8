"A library in an engine, from the command line: filled, searched, asked, brought up to date; and a server that is away."
import importlib.util
import json
from types import SimpleNamespace

import pytest
from helpers import complaint, good, inside, write_xml
from msgspec.structs import replace

from cpqa.core.records import Document
from cpqa.literature.library import Library
from cpqa.retrieval.engines import ENGINES
from cpqa.testing.elastic_server import ElasticServer
from cpqa.testing.toy_corpus import TYPED

PAPERS = [replace(d, id=d.id[1:]) for d in TYPED]   # PMIDs are numbers
PACKAGES = {'milvus': ('pymilvus', 'milvus_lite'), 'elastic': ('elasticsearch',)}


@pytest.fixture(scope='module', params=ENGINES.names)
def place(tmp_path_factory, request):
    "A library, and the same in an engine: Milvus in a file, or a small Elasticsearch that wants its key."
    for package in PACKAGES[request.param]: pytest.importorskip(package, reason=f'needs cpqa[{request.param}]')
    folder = tmp_path_factory.mktemp('engine')
    write_xml(folder/'toy.xml', PAPERS)
    with ElasticServer(key='toy-key') as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv('ELASTIC_API_KEY', 'toy-key')
        at = SimpleNamespace(folder=folder, name={'milvus': f'milvus:{folder}/toy.db', 'elastic': f'elastic:{server.url}'}[request.param])
        said = good('index', 'build', folder/'toy.xml', '--out', folder/'toy', '--no-vectors', '--engine', at.name, how=inside)
        assert '5 documents written to' in said
        yield at


def test_it_finds_what_the_library_finds(place):
    ids = lambda *words: [h['id'] for h in json.loads(good('search', 'polyps', '--retriever', 'bm25', '--json', *words, how=inside))]
    assert ids('--source', place.name) == ids('--library', place.folder/'toy') != []
    assert 'has no Boolean search' in complaint(inside('search', 'polyps', '--retriever', 'boolean', '--source', place.name))
    assert 'without vectors' in complaint(inside('search', 'polyps', '--retriever', 'dense', '--source', place.name))


TRIAL = ('--study', 'randomised trial')
LIMITS = [(('--since', '2009/06', *TRIAL), {'1', '4'}), (('--until', '2010'), {'3'}),
          (('--study', 'review', '--study', 'protocol'), {'2'}), (('--since', '2009', '--until', '2018', *TRIAL), {'1'}),
          (('--since', '2016', '--study', 'review'), set())]


@pytest.mark.parametrize('words, left', LIMITS, ids=[' '.join(words) for words, _ in LIMITS])
def test_limits_leave_what_they_leave_in_a_library(place, words, left):
    ask = ('search', 'polyps, fatigue, tamoxifen', '--retriever', 'bm25', '--json', *words)
    there, here = ([h['id'] for h in json.loads(good(*ask, *at, how=inside))]
                   for at in (('--source', place.name), ('--library', place.folder/'toy')))
    assert there == here and set(there) == left


def test_it_follows_the_library(place):
    write_xml(place.folder/'more.xml', [PAPERS[0], Document('77', title='Tea for polyps', text='Tea helped.')])
    good('library', 'update', place.folder/'toy', '--files', place.folder/'more.xml', how=inside)
    said = good('index', 'sync', place.folder/'toy', '--engine', place.name, how=inside)
    assert said.startswith('1 documents written to') and '5 were there' in said and len(Library(place.folder/'toy')) == 6


def test_a_server_that_is_away(place):
    away = f'{place.name.partition(":")[0]}:http://127.0.0.1:9'
    for words in ('search polyps --source', 'ask polyps --source', f'index sync {place.folder}/toy --engine'):
        assert 'did not answer' in complaint(inside(*words.split(), away))
    assert 'is not an engine' in complaint(inside('index', 'sync', place.folder/'toy', '--engine', 'lucene:x'))


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ('openvino', 'faiss', 'tokenizers', 'elasticsearch'))),
                    reason='needs cpqa[offline,elastic]')
def test_a_question_is_answered_from_it(tmp_path):
    write_xml(tmp_path/'toy.xml', PAPERS)
    with ElasticServer() as server:
        name = f'elastic:{server.url}'
        good('index', 'build', tmp_path/'toy.xml', '--out', tmp_path/'toy', '--engine', name, how=inside)
        found = [[(h['id'], round(h['score'], 4)) for h in json.loads(good('search', 'breast cancer drug', '--json', *at, how=inside))]
                 for at in (['--source', name], ['--library', tmp_path/'toy'])]
        assert found[0] == found[1] and len(found[0]) == 5
        few = json.loads(good('search', 'breast cancer drug', '--json', '--source', name, '--since', '2009', '--study', 'randomised trial',
                              how=inside))
        assert {h['id'] for h in few} == {'1', '4'}   # by meaning too
        answer = json.loads(good('ask', 'Does aspirin lower the risk of colon polyps?', '--source', name, '--json', how=inside))
        assert '1' in {e['passage']['doc_id'] for e in answer['evidence']} and ('POST', '/cpqa_passages/_search') in server.log


@pytest.mark.skipif(not importlib.util.find_spec('elasticsearch'), reason='needs cpqa[elastic]')
def test_a_refused_key_is_told_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv('ELASTIC_API_KEY', 'another-key')
    with ElasticServer(key='toy-key') as server:
        said = complaint(inside('search', 'polyps', '--source', f'elastic:{server.url}'))
    assert 'refused' in said and 'ELASTIC_API_KEY may read' in said and 'another-key' not in said
