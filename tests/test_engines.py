"A library in an engine, from the command line: filled, searched, asked, brought up to date; and a server that is away."
import importlib.util
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from helpers import complaint, good, inside, write_beir, write_xml
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
    if not all(map(importlib.util.find_spec, PACKAGES[request.param])): pytest.skip(f'needs cpqa[{request.param}]')
    folder = tmp_path_factory.mktemp('engine')
    write_xml(folder/'toy.xml', PAPERS)
    with ElasticServer(key='toy-key') as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv('ELASTIC_API_KEY', 'toy-key')
        at = SimpleNamespace(folder=folder, name={'milvus': f'milvus:{folder}/toy.db', 'elastic': f'elastic:{server.url}'}[request.param])
        said = good('index', 'build', folder/'toy.xml', '--out', folder/'toy', '--no-vectors', '--engine', at.name, how=inside)
        assert '5 documents written to' in said
        yield at


@pytest.mark.skipif(not importlib.util.find_spec('pymilvus'), reason='needs cpqa[milvus]')
def test_milvus_leaves_the_logs_of_the_program_open(tmp_path):
    script = """if True:
        import logging, sys
        handler = logging.FileHandler(sys.argv[1], mode='w')
        logging.getLogger().addHandler(handler)
        from cpqa.retrieval.milvus import MilvusEngine
        print(MilvusEngine(sys.argv[2]).ask('has_collection', 'nothing'), 'pymilvus' in sys.modules)
        logging.warning('after')"""
    run = subprocess.run([sys.executable, '-c', script, tmp_path/'log.txt', tmp_path/'toy.db'], capture_output=True, text=True, check=True)
    assert run.stdout == 'False True\n' and (tmp_path/'log.txt').read_text(encoding='utf-8') == 'after\n'


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


JUDGED = {'q1': ('Do polyps grow?', '1'), 'q2': ('fatigue from tamoxifen', '3'), 'q3': ('zebrafish', '2')}


@pytest.fixture(scope='module')
def judged(place):
    "A BEIR folder of the toys with three queries, a library of it with vectors, and the same in another engine."
    folder = place.folder/'judged'
    (folder/'qrels').mkdir(parents=True)
    write_beir(folder/'corpus.jsonl', PAPERS)
    (folder/'queries.jsonl').write_text(''.join(json.dumps({'_id': q, 'text': text, 'written_from': ['5']}) + '\n'
                                                for q, (text, _) in JUDGED.items()))
    (folder/'qrels'/'test.tsv').write_text(''.join(f'{q}\t{d}\t1\n' for q, (_, d) in JUDGED.items()))
    with ElasticServer(key='toy-key') as server:
        name = f'milvus:{place.folder}/dense.db' if place.name.startswith('milvus:') else f'elastic:{server.url}'
        good('index', 'build', folder/'corpus.jsonl', '--out', place.folder/'dense', '--engine', name, how=inside)
        yield SimpleNamespace(data=folder, name=name, library=place.folder/'dense')


def measured(judged, *words) -> dict:
    report = judged.data.parent/'report.json'
    good('eval', 'retrieval', '--data', judged.data, *words, '--json', report, how=inside)
    return json.loads(report.read_text())


@pytest.mark.parametrize('more', [['--retriever', 'bm25'], ['--retriever', 'dense'], ['--retriever', 'hybrid', '--reranker', 'bm25'],
                                  ['--retriever', 'bm25', '--exclude-source'], ['--answerable', '--retriever', 'bm25']])
def test_an_evaluation_of_it_is_that_of_the_library(more, judged):
    at, on_disk = (measured(judged, *where, *more) for where in (['--source', judged.name], ['--library', judged.library]))
    for key in ('measures', 'n_queries', 'n_failed', 'n_without_hits', 'n_documents', 'relevant_not_in_library', 'relevant_excluded'):
        assert at[key] == on_disk[key]
    assert at['system']['parameters']['library'] != on_disk['system']['parameters']['library']


def test_a_run_over_an_engine_goes_on_and_not_with_another_library(judged):
    words = ['--retriever', 'bm25', '--run-file', judged.data.parent/'run.jsonl']
    first, second = (measured(judged, *words, '--source', judged.name) for _ in range(2))
    assert first['ms_per_query'] == second['ms_per_query']
    other = inside('eval', 'retrieval', '--data', judged.data, *words, '--library', judged.library)
    assert 'is a run of another system' in complaint(other)


def test_an_evaluation_that_cannot_be(place, judged):
    says = lambda *words: complaint(inside('eval', 'retrieval', '--data', judged.data, *words))
    assert 'without vectors' in says('--source', place.name)
    assert 'a library is given too' in says('--source', judged.name, '--library', judged.library)
    assert 'did not answer' in says('--source', f'{place.name.partition(":")[0]}:http://127.0.0.1:9')
    assert 'is not an engine' in says('--source', 'lucene:x')
    assert 'has a year' in says('--source', judged.name, '--retriever', 'bm25', '--until', '2020')


def test_answers_come_from_it(place, judged):
    sets = place.folder/'sets'
    sets.mkdir()
    asked = {'QUESTION': 'Does aspirin prevent colon polyps?', 'CONTEXTS': ['Polyps were counted.'], 'LABELS': ['RESULTS'], 'MESHES': [],
             'YEAR': '2010', 'LONG_ANSWER': 'Yes.', 'final_decision': 'yes', 'reasoning_required_pred': 'yes', 'reasoning_free_pred': 'yes'}
    (sets/'ori_pqal.json').write_text(json.dumps({'1': asked}))
    words = ['eval', 'answers', '--dataset', 'pqa-l', '--data', sets, '--policy', 'wrong', '--system', 'quotes']
    said = good(*words, '--source', judged.name, how=inside)
    assert '1 of 1' in said and '0 failed, 0 without papers' in said
    assert 'a library is given too' in complaint(inside(*words, '--source', judged.name, '--library', judged.library))
    assert 'is not an engine' in complaint(inside(*words, '--source', 'demo'))


def test_a_server_that_is_away(place):
    away = f'{place.name.partition(":")[0]}:http://127.0.0.1:9'
    for words in ('search polyps --source', 'ask polyps --source', f'index sync {place.folder}/toy --engine'):
        assert 'did not answer' in complaint(inside(*words.split(), away))
    assert 'is not an engine' in complaint(inside('index', 'sync', place.folder/'toy', '--engine', 'lucene:x'))


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ('openvino', 'faiss', 'tokenizers', *PACKAGES['milvus']))),
                    reason='needs cpqa[offline,milvus]')
def test_a_file_that_was_never_filled_is_told_in_the_same_words_and_not_made(tmp_path):
    told = {complaint(inside(verb, 'polyps', '--source', f'milvus:{tmp_path}/none.db')) for verb in ('search', 'ask')}
    assert len(told) == 1 and f'holds no library: fill it by `cpqa index build ... --engine milvus:{tmp_path}/none.db`' in told.pop()
    assert not [*tmp_path.iterdir()]


def test_another_process_searches_what_this_one_filled(place):
    there = place.name
    if there.startswith('milvus:'):   # Milvus Lite keeps a file to a process until that ends
        shutil.copytree(place.folder/'toy.db', place.folder/'copy.db')
        there = f'milvus:{place.folder}/copy.db'
    here = json.loads(good('search', 'polyps', '--retriever', 'bm25', '--json', '--source', place.name, how=inside))
    assert json.loads(good('search', 'polyps', '--retriever', 'bm25', '--json', '--source', there)) == here != []


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
