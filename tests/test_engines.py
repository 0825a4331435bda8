"A library in Milvus Lite, from the command line: filled, searched, asked, brought up to date; and a server that is away."
import json
import shutil

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


JUDGED = {'q1': ('Do polyps grow?', 't1'), 'q2': ('fatigue from tamoxifen', 't3'), 'q3': ('zebrafish', 't2')}
AWAY = 'milvus:http://127.0.0.1:9'


@pytest.fixture(scope='module')
def judged(place):
    "A BEIR folder of the toys, with three queries."
    folder = place/'judged'
    (folder/'qrels').mkdir(parents=True)
    shutil.copy(place/'toy.jsonl', folder/'corpus.jsonl')
    (folder/'queries.jsonl').write_text(''.join(json.dumps({'_id': q, 'text': text, 'written_from': ['t5']}) + '\n'
                                                for q, (text, _) in JUDGED.items()))
    (folder/'qrels'/'test.tsv').write_text(''.join(f'{q}\t{d}\t1\n' for q, (_, d) in JUDGED.items()))
    good('index', 'build', folder/'corpus.jsonl', '--out', place/'dense', '--engine', f'milvus:{place}/dense.db', how=inside)
    return folder


def measured(place, *words) -> dict:
    good('eval', 'retrieval', *words, '--json', place/'report.json', how=inside)
    return json.loads((place/'report.json').read_text())


@pytest.mark.parametrize('more', [['--retriever', 'bm25'], ['--retriever', 'dense'], ['--retriever', 'hybrid', '--reranker', 'bm25'],
                                  ['--retriever', 'bm25', '--exclude-source'], ['--answerable', '--retriever', 'bm25']])
def test_an_evaluation_of_it_is_that_of_the_library(more, place, judged):
    at, on_disk = (measured(place, '--data', judged, *where, *more) for where in (['--source', f'milvus:{place}/dense.db'],
                                                                                  ['--library', place/'dense']))
    for key in ('measures', 'n_queries', 'n_failed', 'n_without_hits', 'n_documents', 'relevant_not_in_library', 'relevant_excluded'):
        assert at[key] == on_disk[key]
    assert at['system']['parameters']['library'] != on_disk['system']['parameters']['library']


def test_a_run_over_an_engine_goes_on_and_not_with_another_library(place, judged):
    words = ['--data', judged, '--retriever', 'bm25', '--run-file', place/'run.jsonl']
    first, second = (measured(place, *words, '--source', f'milvus:{place}/dense.db') for _ in range(2))
    assert first['ms_per_query'] == second['ms_per_query']
    assert 'is a run of another system' in complaint(inside('eval', 'retrieval', *words, '--library', place/'dense'))


def test_an_evaluation_that_cannot_be(place, judged):
    says = lambda *words: complaint(inside('eval', 'retrieval', '--data', judged, *words))
    assert 'without vectors' in says('--source', f'milvus:{place}/toy.db')
    assert 'give one place to search' in says('--source', f'milvus:{place}/dense.db', '--library', place/'dense')
    assert 'did not answer' in says('--source', AWAY)
    assert 'is not an engine' in says('--source', 'lucene:x')
    assert 'has a year' in says('--source', f'milvus:{place}/dense.db', '--retriever', 'bm25', '--until', '2020')


def test_answers_come_from_it(place, judged):
    (place/'sets').mkdir()
    asked = {'QUESTION': 'Does aspirin prevent colon polyps?', 'CONTEXTS': ['Polyps were counted.'], 'LABELS': ['RESULTS'], 'MESHES': [],
             'YEAR': '2010', 'LONG_ANSWER': 'Yes.', 'final_decision': 'yes', 'reasoning_required_pred': 'yes', 'reasoning_free_pred': 'yes'}
    (place/'sets'/'ori_pqal.json').write_text(json.dumps({'1': asked}))
    words = ['--dataset', 'pqa-l', '--data', place/'sets', '--policy', 'wrong', '--system', 'quotes']
    said = good('eval', 'answers', *words, '--source', f'milvus:{place}/dense.db', how=inside)
    assert '1 of 1' in said and '0 failed, 0 without papers' in said


def test_a_server_that_is_away(place):
    for words in (['search', 'polyps'], ['ask', 'Do polyps grow?']):
        assert 'did not answer' in complaint(inside(*words, '--source', AWAY))
    assert 'is not an engine' in complaint(inside('index', 'sync', place/'toy', '--engine', 'lucene:x'))


def test_another_process_searches_what_this_one_filled(place):
    shutil.copytree(place/'toy.db', place/'copy.db')   # Milvus Lite keeps a file to a process until that ends
    here = json.loads(good('search', 'polyps', '--retriever', 'bm25', '--json', '--source', f'milvus:{place}/toy.db', how=inside))
    found = json.loads(good('search', 'polyps', '--retriever', 'bm25', '--json', '--source', f'milvus:{place}/copy.db'))
    assert found == here != []
