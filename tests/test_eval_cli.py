"""`cpqa eval`, `cpqa datasets` and `cpqa search --reranker` from end to end: invented folders, broken ones, and real data."""
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from conftest import ROOT, cases
from helpers import complaint, cpqa, escapes, inside, untroubled, write_beir

from cpqa.core.errors import CpqaError
from cpqa.core.llm import Completion
from cpqa.core.records import Document
from cpqa.core.retries import Patience
from cpqa.evaluation.collections import Question, Questions, read_qrels
from cpqa.evaluation.runs import Outcome, Run, System, run
from cpqa.libraries import build_index
from cpqa.literature.library import build_library
from cpqa.local_ncbi.entrez_server import EntrezServer
from cpqa.testing.model_server import LLMServer
from cpqa.testing.tiny_models import tiny_bert
from cpqa.retrieval.encoders import prepare_encoder
from cpqa.retrieval.term_search import fuse

pytestmark = pytest.mark.usefixtures('loaded_once')
SHARED = os.environ['CPQA_CACHE']


@pytest.fixture(scope='module', autouse=True)
def cache(tmp_path_factory):
    "Libraries of invented folders are kept in a cache of this module; the converted model is that of all tests."
    folder = tmp_path_factory.mktemp('cache')
    models = Path(SHARED)/'models'
    models.mkdir(parents=True, exist_ok=True)
    (folder/'models').symlink_to(models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('CPQA_CACHE', str(folder))
        yield folder


@pytest.fixture
def empty(tmp_path) -> dict[str, str]:
    "The environment of a command that finds nothing in its cache."
    return {'CPQA_CACHE': str(tmp_path/'empty cache')}


def report(folder: Path, *argv, how=inside, **options) -> dict:
    "What `cpqa eval ... --json FILE` writes, after every measure in it was compared with what is printed."
    done = how('eval', *argv, '--json', folder/'report.json', **options)
    assert done.returncode == 0 and done.stderr == '', done
    found = json.loads((folder/'report.json').read_text(encoding='utf-8'), parse_constant=lambda name: pytest.fail(f'{name} is no JSON'))
    for name, m in found['measures'].items():
        assert m.keys() == {'value', 'low', 'high', 'n'} and 0 <= m['low'] <= m['value'] <= m['high'] <= 1
        assert f'{name:16} {m["value"]:.4f}  [{m["low"]:.4f}, {m["high"]:.4f}]' in done.stdout
    return found


def went(*argv, **options) -> str:
    "What a command that succeeds prints."
    done = inside(*argv, **options)
    assert done.returncode == 0 and done.stderr == '', done
    return done.stdout


def value(found: dict, name: str) -> float: return found['measures'][name]['value']


def spoken(argv) -> str | None:
    "What a case of a test is called after."
    return ' '.join(map(str, argv)) if isinstance(argv, list) else None


def put(path: Path, rows) -> Path:
    "JSON lines, packed if the name says so; a row that is a text stands as it is."
    data = ''.join((row if isinstance(row, str) else json.dumps(row)) + '\n' for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == '.gz' else data)
    return path


# ---- eval retrieval

HERBS = 'bramble clover ginger hazel juniper laurel mallow nettle plantain rowan sorrel thistle willow yarrow'.split()
R = random.Random(3)
GARDEN = [Document(id=f'd{n}', title=R.choice(HERBS), text=' '.join(R.choices(HERBS, k=R.randint(4, 25))) + '.') for n in range(120)]
ASKED = {f'q{n}': f'Where do {" and ".join(R.sample(HERBS, 2))} grow?' for n in range(15)} | {'q15': 'Where do zebras graze?'}
GRADES = {q: {f'd{n}': R.randint(0, 3) for n in R.sample(range(120), 12)} for q in ASKED}


def beir(folder: Path, head='query-id\tcorpus-id\tscore\n', line='{q}\t{d}\t{g}\n', split='test', packed=False, numbers=False,
         documents=GARDEN, asked=ASKED, grades=GRADES, more='') -> Path:
    "A BEIR folder of the garden, in one of the forms that are about."
    id = (lambda name: int(name[1:])) if numbers else str
    put(folder/f'corpus.jsonl{".gz" * packed}', [{'_id': id(d.id), 'title': d.title, 'text': d.text, 'metadata': {}} for d in documents])
    put(folder/f'queries.jsonl{".gz" * packed}', [{'_id': id(q), 'text': text} for q, text in asked.items()])
    put(folder/'qrels'/f'{split}.tsv{".gz" * packed}',
        [(head + ''.join(line.format(q=id(q), d=id(d), g=g) for q, of in grades.items() for d, g in of.items()) + more).removesuffix('\n')])
    return folder


@pytest.fixture(scope='module')
def garden(tmp_path_factory) -> Path: return beir(tmp_path_factory.mktemp('beir')/'garden')


@pytest.fixture(scope='module')
def usual(garden) -> tuple[dict, Path]:
    "The report of bm25 on the garden, and the file of its rankings."
    return report(garden.parent, 'retrieval', '--data', garden, '--retriever', 'bm25', '--run-file', garden.parent/'run.jsonl',
                  how=cpqa), garden.parent/'run.jsonl'


def trec(run_file: Path, grades: dict[str, dict[str, int]]) -> dict[str, float]:
    "Our measures as pytrec_eval computes them from a run file, over all judged queries."
    import pytrec_eval
    found = {q: {h.id: -float(rank) for rank, h in enumerate(o.hits, 1)} for q, o in Run.read(run_file).outcomes.items()}
    theirs = {'nDCG@10': 'ndcg_cut_10', 'Hit@5': 'success_5', 'R@10': 'recall_10', 'R@50': 'recall_50', 'R@100': 'recall_100'}
    every = pytrec_eval.RelevanceEvaluator(grades, set(theirs.values())).evaluate(found)
    first = pytrec_eval.RelevanceEvaluator(grades,
                                           {'recip_rank'}).evaluate({q: dict(list(ranked.items())[:10]) for q, ranked in found.items()})
    mean = lambda values, name: sum(v[name] for v in values.values()) / len(grades)   # what it leaves out scores 0
    return {ours: mean(every, name) for ours, name in theirs.items()} | {'MRR@10': mean(first, 'recip_rank')}


def test_a_report_of_retrieval(usual):
    found, _ = usual
    assert list(found['measures']) == ['nDCG@10', 'MRR@10', 'Hit@5', 'R@10', 'R@50',
                                       'R@100'] and all(m['n'] == len(ASKED) for m in found['measures'].values())
    assert (found['n_queries'], found['n_failed'], found['n_without_hits'], found['n_documents']) == (16, 0, 1, 120)
    assert found['ms_per_query'].keys() == {'p50', 'p95'} and 0 < found['ms_per_query']['p50'] <= found['ms_per_query']['p95']
    assert found['faults'] == {'count': 0,
                               'first': []} and found['system']['name'] == 'bm25' and (found['data'], found['split']) == ('garden', 'test')


def test_the_measures_are_those_of_pytrec_eval(usual):
    found, run_file = usual
    theirs = trec(run_file, GRADES)
    assert {name: round(m['value'], 4) for name,
            m in found['measures'].items()} == {name: round(theirs[name], 4) for name in found['measures']}
    assert 0.05 < theirs['nDCG@10'] < 0.95


FORMS = {'packed': dict(packed=True), 'no header': dict(head=''), 'as TREC writes it': dict(head='', line='{q} 0 {d} {g}\n'),
         'four columns': dict(line='{q}\t0\t{d}\t{g}\n'),
         'Windows': dict(line='{q}\t{d}\t{g}\r\n'), 'grades with a point': dict(line='{q}\t{d}\t{g}.0\n'),
         'only a dev split': dict(split='dev'), 'ids that are numbers': dict(numbers=True)}


@cases('form', FORMS.values())
def test_the_same_garden_in_another_form(form, usual, tmp_path):
    found = report(tmp_path, 'retrieval', '--data', beir(tmp_path/'garden', **form), '--retriever', 'bm25')
    assert found['measures'] == usual[0]['measures'] and found['faults']['count'] == 0 and found['split'] == form.get('split', 'test')


def test_faults_are_counted_and_queries_stay_in_the_denominator(tmp_path):
    asked = {'q1': 'ginger', 'q2': 'ginger ' * 1200, 'q3': 'ginger and clover', 'q4': 'Not judged?'}
    grades = {'q1': {'d1': 1}, 'q2': {'d2': 1}, 'q3': {'nobody': 1}}
    more = 'q9\td1\t1\nq1\td1\t1\nq1\td2\tgood\nq1 d2\nq1\t\t1\n'     # an unknown query, a second grade, and three lines that are none
    folder = beir(tmp_path/'bad', documents=[Document(id='d1', title='Ginger'), Document(id='d2', title='Clover')], asked=asked,
                  grades=grades, more=more)
    for name in ('corpus.jsonl', 'queries.jsonl'):
        with open(folder/name, 'a') as f: f.write('not JSON\n{"text": "no id"}\n')
    found = report(tmp_path, 'retrieval', '--data', folder, '--retriever', 'bm25', '--run-file', tmp_path/'run')
    assert (found['n_queries'], found['n_failed'], found['queries_unjudged'], found['relevant_not_in_library']) == (3, 1, 1, 1)
    assert found['faults']['count'] == 1 + 5 + 4 and len(found['faults']['first']) == 5
    assert found['measures']['nDCG@10']['n'] == 3 and value(found, 'nDCG@10') == pytest.approx(1 / 3, abs=1e-6)
    assert {id: o.error for id, o in Run.read(tmp_path/'run').outcomes.items() if o.failed}.keys() == {'q2'}
    said = went('eval', 'retrieval', '--data', folder, '--retriever', 'bm25')
    assert '3 queries, 1 failed, 1 without hits' in said and '10 faults' in said


def test_splits(garden, tmp_path):
    folder = beir(shutil.copytree(garden, tmp_path/'garden'), split='train', grades={'q1': {'d1': 1}})
    assert report(tmp_path, 'retrieval', '--data', folder, '--retriever', 'bm25')['n_queries'] == 16
    found = report(tmp_path, 'retrieval', '--data', folder, '--retriever', 'bm25', '--split', 'train')
    assert (found['split'], found['n_queries'], found['queries_unjudged']) == ('train', 1, 15)
    (folder/'qrels'/'test.tsv').rename(folder/'qrels'/'dev.tsv')
    for more in ([], ['--split', 'none']):
        said = complaint(inside('eval', 'retrieval', '--data', folder, '--retriever', 'bm25', *more))
        assert 'dev.tsv, train.tsv' in said


BROKEN = {
    'no folder': (lambda f: shutil.rmtree(f), 'holds no corpus.jsonl'),
    'no corpus': (lambda f: (f/'corpus.jsonl').unlink(), 'holds no corpus.jsonl'),
    'no queries': (lambda f: (f/'queries.jsonl').unlink(), 'holds no queries.jsonl'),
    'no qrels': (lambda f: shutil.rmtree(f/'qrels'), 'there is nothing'),
    'two corpora': (lambda f: put(f/'corpus.jsonl.gz', ['{}']), 'both corpus.jsonl and corpus.jsonl.gz'),
    'empty qrels': (lambda f: (f/'qrels'/'test.tsv').write_text(''), 'empty'),
    'qrels of a header': (lambda f: (f/'qrels'/'test.tsv').write_text('query-id\tcorpus-id\tscore\n'), 'no query is judged'),
    'qrels of others': (lambda f: (f/'qrels'/'test.tsv').write_text('x\td1\t1\n'), 'the query x is not in queries.jsonl'),
    'qrels of noise': (lambda f: (f/'qrels'/'test.tsv').write_bytes(bytes(range(128, 256))), 'no query is judged'),
    'a corpus of noise': (lambda f: (f/'corpus.jsonl').write_bytes(bytes(range(128, 256)) * 9), 'corpus.jsonl'),
    'a web page': (lambda f: (f/'queries.jsonl').write_text('<!doctype html><p>Too many requests'), 'web page'),
    'a pointer of LFS': (lambda f: (f/'corpus.jsonl').write_text('version https://git-lfs.github.com/spec/v1\n'), 'corpus.jsonl'),
    'a packed corpus cut': (lambda f: (f/'corpus.jsonl').rename(f/'corpus.jsonl.gz')
                            and (f/'corpus.jsonl.gz').write_bytes(gzip.compress(b'{"_id": "1"}' * 99)[:-9]), 'corpus.jsonl.gz')}


@cases('harm, why', BROKEN.values())
def test_a_broken_folder(harm, why, garden, tmp_path):
    harm(shutil.copytree(garden, tmp_path/'garden'))
    assert why in complaint(inside('eval', 'retrieval', '--data', tmp_path/'garden', '--retriever', 'bm25'))


@pytest.mark.parametrize('argv, why', [
    (['--json', 'no/where.json'], 'no/where.json cannot be written'), (['--json', '.'], '. cannot be written'),
    (['--k', 3], 'k must be at least 5'),
    (['--split', 'none'], "split 'none'"), (['--library', 'nowhere'], 'nowhere')], ids=spoken)
def test_what_cannot_be_done_is_said_before_any_work(argv, why, garden, tmp_path, empty):
    assert why in complaint(inside('eval', 'retrieval', '--data', garden, '--retriever', 'bm25', *argv, cwd=tmp_path, env=empty))
    assert not Path(empty['CPQA_CACHE']).exists() and not [*tmp_path.iterdir()]


@cases('argv', [['--retriever', 'magic'], ['--k', 0], ['--k', 'ten'], ['--depth', -1], ['--data'], ['--scope', 'global']])
def test_words_that_the_command_line_does_not_know(argv, garden):
    done = inside('eval', 'retrieval', '--data', garden, *argv)
    assert 'cpqa help eval retrieval' in complaint(done, 2)


@pytest.mark.parametrize('argv, where', [
    (['retrieval', '--data', '.'], 'tasks.evaluate_retrieval'), (['passages', '--data', '.'], 'passages.evaluate_passages'),
    (['answers', '--recorded', 'x', '--dataset', 'medqa', '--data', '.', '--policy', 'wrong'], 'tasks.evaluate_answers')], ids=spoken)
def test_ctrl_c_says_what_is_kept(argv, where, monkeypatch):
    def stopped(*args, **more): raise KeyboardInterrupt
    monkeypatch.setattr(f'cpqa.evaluation.{where}', stopped)
    said = complaint(inside('eval', *argv), 130)
    assert said.startswith('interrupted: ') and '--run-file' in said


def test_the_library_is_built_once_and_kept(garden, tmp_path, empty):
    kept = lambda: [(p.name, p.stat().st_mtime_ns) for p in (Path(empty['CPQA_CACHE'])/'libraries').iterdir() if not p.name.startswith('.')]
    first = report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', env=empty)
    before = kept()
    assert len(before) == 1 and report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25',
                                       env=empty)['measures'] == first['measures'] and kept() == before
    changed = beir(tmp_path/'garden', documents=GARDEN[::-1])     # the same name, and another corpus
    report(tmp_path, 'retrieval', '--data', changed, '--retriever', 'bm25', env=empty)
    assert len(kept()) == 2


def test_a_corpus_that_changes_in_a_second_record(tmp_path, empty):
    first, found = Document(id='d1', title='Thistle'), {}
    for word in ('ginger', 'clover'):
        folder = beir(tmp_path/'garden', documents=[first, Document(id='d1', title=word)], asked={'q1': 'ginger'}, grades={'q1': {'d1': 1}})
        found[word] = report(tmp_path, 'retrieval', '--data', folder, '--retriever', 'bm25', env=empty)
    assert {word: (value(f, 'R@10'), f['faults']['count']) for word, f in found.items()} == {'ginger': (1, 1), 'clover': (0, 1)}


def test_a_library_that_was_given(garden, usual, tmp_path):
    went('index', 'build', write_beir(tmp_path/'half.jsonl', GARDEN[:60]), '--out', tmp_path/'half', '--no-vectors')
    went('index', 'build', garden/'corpus.jsonl', '--out', tmp_path/'all', '--no-vectors')
    every = report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--library', tmp_path/'all')
    assert every['measures'] == usual[0]['measures'] and every['relevant_not_in_library'] == 0
    half = report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--library', tmp_path/'half')
    lost = {d for of in GRADES.values() for d, grade in of.items() if grade} - {d.id for d in GARDEN[:60]}
    assert (half['n_documents'], half['relevant_not_in_library']) == (60, len(lost)) and value(half, 'R@100') < value(every, 'R@100')
    for way in ('dense', 'hybrid'):
        asked = inside('eval', 'retrieval', '--data', garden, '--retriever', way, '--library', tmp_path/'all')
        assert 'cpqa library embed' in complaint(asked)


# ---- eval retrieval without leaks

ORCHARD = [Document(id=f'd{n}', title='Ginger' * (n % 2), text='ginger ' * (9 - n) + 'and tea', year=2000 + n)
           for n in range(8)] + [Document(id='d8', text='ginger')]
PICKED = {'q1': 'ginger', 'q2': 'ginger and tea', 'q3': 'tea', 'q4': 'ginger tea'}
FRUIT = {'q1': {'d0': 1, 'd5': 2}, 'q2': {'d7': 1, 'd0': 0}, 'q3': {'d8': 1, 'd1': 1}, 'q4': {'d2': 0}}


@pytest.fixture(scope='module')
def orchard(tmp_path_factory) -> tuple[Path, Path]:
    "A BEIR folder in which two of four queries name their sources, and a library of its documents with their years."
    folder = beir(tmp_path_factory.mktemp('leaks')/'orchard', documents=ORCHARD, asked=PICKED, grades=FRUIT)
    more = {'q1': {'written_from': ['d0']}, 'q2': {'metadata': {'written_from': ['d7', 'd0']}}, 'q3': {'metadata': {}}}
    put(folder/'queries.jsonl', [{'_id': q, 'text': text} | more.get(q, {}) for q, text in PICKED.items()])
    build_library([ORCHARD], folder.parent/'library')
    return folder, folder.parent/'library'


def hits_of(run_file: Path) -> dict[str, list[str]]: return {q: [h.id for h in o.hits] for q, o in Run.read(run_file).outcomes.items()}


@pytest.mark.parametrize('reranker', [[], ['--reranker', 'bm25', '--depth', 3]], ids=['alone', 'reranked'])
def test_sources_are_excluded(reranker, orchard, tmp_path):
    folder, library = orchard
    argv = ('retrieval', '--data', folder, '--library', library, '--retriever', 'bm25', *reranker)
    plain, cut = report(tmp_path, *argv, '--run-file', tmp_path/'all'), report(tmp_path, *argv, '--exclude-source', '--run-file',
                                                                               tmp_path/'cut')
    every, found = hits_of(tmp_path/'all'), hits_of(tmp_path/'cut')
    assert {q: set(every[q]) - set(found[q]) for q in PICKED} == {'q1': {'d0'}, 'q2': {'d0', 'd7'}, 'q3': set(), 'q4': set()}
    assert (plain['switches'], plain['queries_with_source'], plain['relevant_excluded'],
            plain['n_queries_without_relevant']) == (None, 2, 0, 0)
    assert (cut['queries_with_source'], cut['relevant_excluded'], cut['n_queries_without_relevant'], cut['n_queries']) == (2, 2, 1, 4)
    assert cut['switches'] == {'exclude_source': True, 'until': None,
                               'undated': 'drop'} == Run.read(tmp_path/'cut').header.switches.to_dict()
    left = {'q1': {'d5': 2}, 'q3': FRUIT['q3'],
            'q4': FRUIT['q4']}          # q2 has nothing left to find; q4 never had, and scores nought as before
    mrr = lambda q: next((1 / n for n, d in enumerate(found[q], 1) if left[q].get(d)), 0)
    assert cut['measures']['MRR@10']['n'] == 3 and value(cut, 'MRR@10') == pytest.approx(sum(map(mrr, left)) / 3, abs=1e-6)
    assert 'a run of another switches' in complaint(inside('eval', *argv, '--run-file', tmp_path/'cut'))


def test_a_reranker_does_not_see_what_is_left_out(orchard, tmp_path):
    "The two that a reranker of depth 2 may reorder are the best that are allowed, not those of the best that are."
    folder, library = orchard
    argv = ('retrieval', '--data', folder, '--library', library, '--retriever', 'bm25', '--until', 2004)
    for name, more in (('first', []),
                       ('reranked', ['--reranker', 'bm25', '--depth', 2])): report(tmp_path, *argv, *more, '--run-file', tmp_path/name)
    first, reranked = hits_of(tmp_path/'first'), hits_of(tmp_path/'reranked')
    assert all(set(first[q][:2]) == set(reranked[q][:2]) and first[q][2:] == reranked[q][2:] for q in PICKED)


@pytest.mark.parametrize('undated, more', [('drop', []), ('drop', ['--undated', 'drop']), ('keep', ['--undated', 'keep'])],
                         ids=['default', 'drop', 'keep'])
def test_documents_after_a_year_are_left_out(undated, more, orchard, tmp_path):
    folder, library = orchard
    argv = ('retrieval', '--data', folder, '--library', library, '--retriever', 'bm25', '--until', 2005, *more)
    found = report(tmp_path, *argv, '--run-file', tmp_path/'run')
    allowed = {d.id for d in ORCHARD if (undated == 'keep' if d.year is None else d.year <= 2005)}
    assert set().union(*hits_of(tmp_path/'run').values()) == allowed
    assert (found['relevant_excluded'], found['n_queries_without_relevant']) == ({'drop': 2, 'keep': 1}[undated], 1)
    assert found['switches'] == {'exclude_source': False, 'until': 2005, 'undated': undated}
    said = went('eval', *argv)
    assert f'documents after 2005, those without a year {"out" if undated == "drop" else "in"}' in said and '1 queries not scored' in said


def test_fused_rankings_close_up_where_a_document_is_left_out(tmp_path):
    "A document that is left out holds no rank in either search: what is fused is as of a library that never held it."
    kept = [Document(id=f'd{n}', title=t, text=f'{t} eased pain.', year=2000) for n,
            t in enumerate(('Ginger tea', 'Clover tea', 'Nettle soup', 'Ginger bread'))]
    late = [Document(id=f'e{n}', title='Ginger', text='Ginger tea eased all pain.', year=2010) for n in range(3)]
    asked, grades = {'q1': 'Does ginger tea ease pain?', 'q2': 'And nettle soup?'}, {'q1': {'d0': 1}, 'q2': {'d2': 1}}
    folder = beir(tmp_path/'tea', documents=kept + late, asked=asked, grades=grades)
    for name, documents in (('all', kept + late), ('early', kept)): build_index([documents], tmp_path/name)
    argv = ('retrieval', '--data', folder, '--retriever')
    for name, more in (('plain', []),
                       ('reranked', ['--reranker', 'cosine', '--depth',
                                     2])):     # of vectors, since BM25's weights are those of the whole library
        cut = report(tmp_path, *argv, 'dense', *more, '--library', tmp_path/'all', '--until', 2005, '--run-file', tmp_path/f'{name}.cut')
        early = report(tmp_path, *argv, 'dense', *more, '--library', tmp_path/'early', '--run-file', tmp_path/f'{name}.early')
        assert hits_of(tmp_path/f'{name}.cut') == hits_of(tmp_path/f'{name}.early') and cut['measures'] == early['measures']
    for way in ('bm25', 'dense', 'hybrid'): report(tmp_path, *argv, way, '--library', tmp_path/'all', '--until', 2005, '--run-file',
                                                   tmp_path/way)
    terms, dense, hybrid = (Run.read(tmp_path/way).outcomes for way in ('bm25', 'dense', 'hybrid'))
    assert all(hybrid[q].hits == tuple(fuse(terms[q].hits, dense[q].hits)) for q in asked)


@pytest.mark.parametrize('argv, why', [
    (['--exclude-source'], 'no query of garden names a document that it was written from'),
    (['--until', 2015], 'has a year, so none can be cut after 2015'),
    (['--undated', 'keep'], 'it needs --until YEAR'), (['--until', 2015, '--undated', 'keep'], 'has a year')], ids=spoken)
def test_switches_that_can_do_nothing(argv, why, garden):
    assert why in complaint(inside('eval', 'retrieval', '--data', garden, '--retriever', 'bm25', *argv))


@pytest.mark.parametrize('argv', [['--until', 'soon'], ['--until', 15], ['--until', -2015], ['--until', '２０１５'], ['--undated', 'perhaps']],
                         ids=spoken)
def test_years_that_are_none(argv, orchard):
    done = inside('eval', 'retrieval', '--data', orchard[0], *argv)
    assert done.returncode == 2 and untroubled(done) and done.stdout == ''


def test_switches_that_leave_nothing_to_find(orchard, tmp_path):
    folder, library = orchard
    argv = ('eval', 'retrieval', '--data', folder, '--library', library, '--retriever', 'bm25')
    found = report(tmp_path, *argv[1:], '--until', 1999)
    assert (found['measures']['MRR@10']['n'], found['n_queries_without_relevant'],
            value(found, 'MRR@10')) == (1, 3, 0)     # q4, of which nothing was relevant
    put(tmp_path/'fewer'/'queries.jsonl', [{'_id': q, 'text': text} for q, text in PICKED.items() if q != 'q4'])
    for name in ('corpus.jsonl', 'qrels'): (tmp_path/'fewer'/name).symlink_to(folder/name)
    assert 'so nothing can be scored' in complaint(inside(*argv[:3], tmp_path/'fewer', *argv[4:], '--until', 1999))


def test_sources_that_cannot_be_read_are_faults(orchard, tmp_path):
    folder, library = orchard
    bad = [{'written_from': 'd0'}, {'written_from': [1.5]}, {'metadata': {'written_from': {'d0': 1}}}, {'written_from': [7, '', 'd2']}]
    put(tmp_path/'bad'/'queries.jsonl', [{'_id': q, 'text': text} | more for (q, text), more in zip(PICKED.items(), bad)])
    for name in ('corpus.jsonl', 'qrels'): (tmp_path/'bad'/name).symlink_to(folder/name)
    found = report(tmp_path, 'retrieval', '--data', tmp_path/'bad', '--library', library, '--retriever', 'bm25', '--exclude-source')
    assert (found['n_queries'], found['queries_with_source'],
            found['faults']['count']) == (4, 1, 3) and 'the source of q1 is unknown' in found['faults']['first'][0]


def test_vectors_and_both_rerankers(tmp_path):
    asked = {'q1': 'What eases vomiting?', 'q2': 'Does stretching help people sleep?'}
    folder = beir(tmp_path/'small',
                  documents=[Document(id='d1', title='Ginger', text='Ginger tea eased nausea.'),
                             Document(id='d2', title='Yoga', text='Yoga improved sleep.'),
                                                Document(id='d3', title='Chess', text='Chess is played on 64 squares.')], asked=asked,
                                                grades={'q1': {'d1': 2}, 'q2': {'d2': 1}})
    for way, more in (('dense', []), ('hybrid', ['--reranker', 'cosine']), ('hybrid', ['--reranker', 'bm25', '--depth', 1]),
                      ('hybrid', ['--reranker', 'default'])):
        found = report(tmp_path, 'retrieval', '--data', folder, '--retriever', way, *more)
        assert (found['n_failed'], value(found, 'nDCG@10'),
                value(found, 'R@10')) == (0, 1,
                                          1) and found['system']['parts'] == {'retriever': way, 'reranker': more[1] if more else 'none'}


def test_a_reranker_reorders_what_was_found_and_no_more(garden, usual, tmp_path):
    argv = ('retrieval', '--data', garden, '--retriever', 'bm25', '--reranker', 'bm25')
    found = report(tmp_path, *argv, '--depth', 5, '--run-file', tmp_path/'run')
    assert found['system']['name'] == 'bm25 + bm25' and round(trec(tmp_path/'run', GRADES)['nDCG@10'],
                                                              4) == round(value(found, 'nDCG@10'), 4)
    before, after = (Run.read(path).outcomes for path in (usual[1], tmp_path/'run'))
    ids = lambda o: [h.id for h in o.hits]
    assert all(sorted(ids(before[q])[:5]) == sorted(ids(after[q])[:5]) and ids(before[q])[5:] == ids(after[q])[5:] for q in ASKED)
    assert any(ids(before[q]) != ids(after[q]) for q in ASKED)


def test_the_default_reranker_orders_documents_as_search_does(garden, tmp_path):
    found = report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--reranker', 'default', '--depth', 7, '--run-file',
                   tmp_path/'run')
    assert (found['system']['name'], found['n_failed']) == ('bm25 + default', 0)
    build_index([GARDEN], tmp_path/'library')
    for id, hits in list(hits_of(tmp_path/'run').items())[:5]:
        asked = went('search', ASKED[id], '--library', tmp_path/'library', '--retriever', 'bm25', '--reranker', 'default', '--depth', 7,
                     '-k', 20, '--json')
        assert [h['id'] for h in json.loads(asked)] == hits[:20] != []


def test_an_encoder_of_ones_own_is_measured(garden, trials, tmp_path):
    encoder = prepare_encoder(tiny_bert(tmp_path/'tiny'), tmp_path/'mine', 'f32', pooling='mean')
    argv = ('retrieval', '--data', garden, '--retriever', 'dense')
    ours, own = (report(tmp_path, *argv, *more) for more in ((), ('--encoder', encoder)))
    assert ours['n_failed'] == own['n_failed'] == 0 and ours['measures'] != own['measures']
    assert report(tmp_path, 'passages', '--data', trials, '--segmenter', 'sentences:8:0', '--retriever', 'dense', '--encoder',
                  encoder)['n_failed'] == 0
    for task, data in (('retrieval', garden), ('passages', trials)):
        assert 'no sound fast encoder' in complaint(inside('eval', task, '--data', data, '--encoder', tmp_path/'tiny'))


def test_fewer_documents_give_fewer_measures(garden, tmp_path):
    "R@50 of ten documents would be no R@50."
    assert list(report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--k',
                       10)['measures']) == ['nDCG@10', 'MRR@10', 'Hit@5', 'R@10']
    assert list(report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--k', 5)['measures']) == ['Hit@5']


@pytest.mark.parametrize('at', [0.5, -1, 20], ids=['in the middle', 'in the last line', 'in the header'])
def test_a_run_file_goes_on_where_it_was_cut(at, garden, usual, tmp_path):
    data = usual[1].read_bytes()
    kept = data[:int(len(data) * at)] if isinstance(at, float) else data[:at]
    (tmp_path/'run').write_bytes(kept)
    found = report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--run-file', tmp_path/'run')
    whole = kept[:kept.rfind(b'\n') + 1]
    assert found['measures'] == usual[0]['measures'] and found['n_queries'] == 16 and (tmp_path/'run').read_bytes().startswith(whole)
    assert len(Run.read(tmp_path/'run').outcomes) == 16


def test_a_run_file_of_something_else(garden, usual, tmp_path):
    own = shutil.copy(usual[1], tmp_path/'run')
    base = ('eval', 'retrieval', '--retriever', 'bm25', '--run-file', own, '--data')
    for more in (['--k', 50], ['--reranker', 'bm25']): assert 'a run of another system' in complaint(inside(*base, garden, *more))
    assert 'a run of another dataset' in complaint(inside(*base, beir(tmp_path/'garden', asked=ASKED | {'q1': 'Something else?'})))
    assert own.read_bytes() == usual[1].read_bytes()
    own.write_text('{"id": "q1"}\n')
    assert 'is not a run of cpqa' in complaint(inside(*base, garden)) and own.read_text() == '{"id": "q1"}\n'
    assert 'cannot' in complaint(inside('eval', 'retrieval', '--retriever', 'bm25', '--run-file', tmp_path, '--data', garden))


def test_hostile_names_steer_no_terminal(tmp_path):
    asked = {'q1': 'ginger', 'q2\x1b[31m': 'clover'}
    folder = beir(tmp_path/'gar\x1b[31mden', documents=GARDEN[:9], asked=asked,
                  grades={'q1': {'d\x1b]0;owned\x07': 1, 'd1': 1}, 'q2\x1b[31m': {'d\u202e2': 1}})
    assert escapes(went('eval', 'retrieval', '--data', folder, '--retriever', 'bm25')) == []
    assert escapes(complaint(inside('eval', 'retrieval', '--data', folder, '--retriever', 'bm25', '--split', '\x1b[31m'))) == []


@pytest.mark.parametrize('task', ['retrieval', 'passages'])
def test_a_reranker_that_nobody_knows(task, garden, trials, empty):
    done = inside('eval', task, '--data', {'retrieval': garden, 'passages': trials}[task], '--retriever', 'bm25', '--reranker', 'magic',
                  env=empty)
    assert "'magic' is not a reranker: choose " in complaint(done)
    assert not Path(empty['CPQA_CACHE']).exists()


@pytest.mark.parametrize('task', ['retrieval', 'passages'])
def test_without_the_extra(task, garden, trials, monkeypatch, empty):
    for name in ('ir_measures', 'scipy', 'scipy.stats'): monkeypatch.setitem(sys.modules, name, None)
    done = inside('eval', task, '--data', {'retrieval': garden, 'passages': trials}[task], '--retriever', 'bm25', env=empty)
    assert 'cpqa[eval]' in complaint(done)
    assert not Path(empty['CPQA_CACHE']).exists()


# ---- eval passages

def words(n: int, word: str = 'rest') -> str: return ' '.join([word] * n)


# Passages of fixed:5:0 hold five words of four letters, 24 characters, and begin 25 characters apart.
TEXTS = {'PMC1': f'pain {words(4)} {words(10)}', 'PMC2': f'{words(5)} pain {words(9)}',
         'PMC3': f'{words(5)} {words(5)} pain pain pain pain pain', 'PMC4': words(15, 'none')}


def marked(folder: Path, asked, texts=TEXTS, packed: bool = False) -> Path:
    "An Evidence Inference folder; `asked` are rows of id, article and spans, or rows as they are."
    put(folder/f'articles.jsonl{".gz" * packed}', [{'pmcid': id, 'text': text} for id, text in texts.items()])
    rows = [row if isinstance(row, str | dict)
            else {'id': row[0], 'pmcid': row[1], 'question': 'And pain?', 'evidence': row[2], 'label': 'significantly decreased'}
            for row in asked]
    put(folder/f'questions.jsonl{".gz" * packed}', rows)
    return folder


@pytest.fixture(scope='module')
def trials(tmp_path_factory) -> Path:
    "Of five questions, the spans of three are covered at least half by the passage with the word that is asked for."
    asked = [('whole', 'PMC1', [[0, 10]]), ('half', 'PMC1', [[19, 29]]), ('less', 'PMC1', [[20, 30]]),
             ('one of two', 'PMC2', [[0, 4], [25, 29]]), ('none', 'PMC4', [[0, 4]])]
    return marked(tmp_path_factory.mktemp('evidence')/'trials', asked)


@pytest.mark.parametrize('packed', [False, True])
def test_a_passage_counts_from_half_a_span(packed, trials, tmp_path):
    folder = trials if not packed else marked(tmp_path/'trials', (trials/'questions.jsonl').read_text().splitlines(), packed=True)
    found = report(tmp_path, 'passages', '--data', folder, '--segmenter', 'fixed:5:0', '--retriever', 'bm25', '--scope', 'article')
    assert {name: (m['value'], m['n']) for name,
            m in found['measures'].items()} == {name: (0.6, 5) for name in ('Hits@5', 'MRR@5', 'Hits@320words', 'Hits@640words')}
    assert (found['n_questions'], found['n_failed'], found['n_without_hits'], found['n_articles'], found['n_passages'],
            found['faults']['count']) == (5, 0, 1, 4, 12, 0)


def test_whole_articles_are_drawn_and_chance_is_told(trials, tmp_path):
    argv = ('passages', '--data', trials, '--segmenter', 'fixed:5:0', '--retriever', 'bm25', '--k', 1)
    found = report(tmp_path, *argv)
    assert found['interval'] == '95 %, bootstrap over the 3 articles asked about, each drawn with all its questions'
    assert found['measures']['Hits@1']['n'] == 5
    assert found['chance'] == {'Hits@1': pytest.approx((1 + 1 + 1 + 2 + 1) / 3 / 5, abs=1e-6),
                               'MRR@1': found['chance']['Hits@1']} and found['words_per_passage'] == 5
    assert f'5.0 words in a passage; a random order of the article: Hits@1 {found["chance"]["Hits@1"]:.4f}' in went('eval', *argv)
    other = report(tmp_path, *argv, '--scope', 'global')
    assert other['chance'] is None and other['words_per_passage'] == 5


def test_questions_of_one_article_are_no_independent_evidence(tmp_path):
    "Six questions of one article, all found, and six of another, none found: what can be drawn is all, none, or half."
    folder = marked(tmp_path/'two', [(f'{id}{n}', id, [[0, 4]]) for id in ('PMC1', 'PMC4') for n in range(6)])
    found = report(tmp_path, 'passages', '--data', folder, '--segmenter', 'fixed:5:0', '--retriever', 'bm25')
    assert found['measures']['Hits@5'] == {'value': 0.5, 'low': 0, 'high': 1, 'n': 12}


def test_scopes(trials, tmp_path):
    argv = ('passages', '--data', trials, '--segmenter', 'fixed:5:0', '--retriever', 'bm25', '--k', 1)
    found = {scope: report(tmp_path, *argv, '--scope', scope) for scope in ('article', 'global')}
    assert [value(found[scope], 'Hits@1') for scope in found] == [0.6,
                                                                  0] and [found[scope]['n_without_hits']
                                                                          for scope in found] == [1, 0]   # all of PMC3's words are pain
    every = report(tmp_path, *argv[:-2], '--scope', 'global')
    assert list(every['measures']) == ['Hits@5', 'MRR@5', 'Hits@320words',
                                       'Hits@640words'] and value(every, 'Hits@5') == 0.6 > value(every, 'MRR@5') > 0
    assert report(tmp_path, *argv)['measures'] == found['article']['measures']


@pytest.mark.parametrize('name', ['sentences', 'sentences:12', 'sentences:40:10', 'fixed', 'fixed:8:2'])
def test_segmenters_by_name(name, tmp_path):
    text = 'Ginger tea was given to ten people. Half of them felt no pain after a week. Nobody left the trial. '\
           'The others slept badly, and two of them complained.'
    start = text.index('Half')
    folder = marked(tmp_path/'one', [('1', 'PMC1', [[start, start + 41]])], {'PMC1': text})
    found = report(tmp_path, 'passages', '--data', folder, '--segmenter', name, '--retriever', 'bm25')
    assert value(found, 'Hits@5') == 1 and found['system']['parts']['segmenter'] == name


@pytest.mark.parametrize('argv, why', [
    (['--segmenter', ''], 'with commas between'),
    *[(['--segmenter', name], f"'{name}' is not a segmenter")
      for name in ('paragraphs', 'fixed:0', 'fixed:5:5', 'fixed:five', 'fixed:5:1:1', 'fixed:-5')],
    (['--json', 'no/where.json'], 'cannot be written')], ids=spoken)
def test_passages_that_cannot_be_had(argv, why, trials, tmp_path, empty):
    assert why in complaint(inside('eval', 'passages', '--data', trials, '--retriever', 'bm25', *argv, cwd=tmp_path, env=empty))
    assert not Path(empty['CPQA_CACHE']).exists()


def test_faults_of_articles_and_questions(tmp_path):
    texts = TEXTS | {'PMC5': ' ' * 50}
    asked = [('good', 'PMC1', [[0, 10]]), ('nowhere', 'PMC9', [[0, 4]]), ('outside', 'PMC1', [[0, 9999]]), ('good', 'PMC1', [[0, 10]]),
             ('half good', 'PMC1', [[0, 10], [9, 3]]),
             'not JSON', {'id': 'no spans', 'pmcid': 'PMC1', 'question': 'Why?'}, ('blank', 'PMC5', [[0, 4]])]
    found = report(tmp_path, 'passages', '--data', marked(tmp_path/'bad', asked, texts), '--segmenter', 'fixed:5:0', '--retriever', 'bm25')
    assert (found['n_questions'], found['n_failed'],
            found['faults']['count']) == (3, 1, 6) and value(found, 'Hits@5') == pytest.approx(2 / 3, abs=1e-6)
    assert any('PMC9 is not among the articles' in fault for fault in found['faults']['first'])


@pytest.mark.parametrize('name, rows, why',
                         [('articles.jsonl', [], 'empty'),
                          ('questions.jsonl', ['not JSON'], 'no question of evidence-inference could be read'),
                                             ('questions.jsonl', None, 'holds no questions.jsonl'),
                                             ('articles.jsonl', ['<html>'], 'web page')])
def test_a_broken_folder_of_articles(name, rows, why, trials, tmp_path):
    folder = shutil.copytree(trials, tmp_path/'trials')
    (folder/name).unlink()
    if rows is not None: put(folder/name, rows)
    assert why in complaint(inside('eval', 'passages', '--data', folder, '--retriever', 'bm25'))


def test_passages_with_vectors_and_a_run_file(trials, tmp_path):
    argv = ('passages', '--data', trials, '--segmenter', 'fixed:5:0', '--retriever', 'hybrid', '--reranker', 'cosine', '--run-file',
            tmp_path/'run')
    first = report(tmp_path, *argv)
    before = (tmp_path/'run').read_bytes()
    assert first['n_failed'] == first['n_without_hits'] == 0
    assert value(first, 'Hits@5') == 1     # all three passages of each article are found, and 'less' is half in its second
    assert report(tmp_path, *argv)['measures'] == first['measures'] and (tmp_path/'run').read_bytes() == before
    assert 'a run of another system' in complaint(inside('eval', *argv, '--scope', 'global'))


# ---- eval answers by a system, and eval routes

def test_a_system_is_asked_goes_on_and_replays(drinks, tmp_path):
    says = {'reasoning': 'Bees.', 'response': 'It is wine.', 'label': 'B', 'status': 'answered'}
    argv = ['answers', '--system', 'cot', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--limit', '4']
    with LLMServer(lambda messages, schema: json.dumps(says)) as server:
        live = [*argv, '--llm', f'openai:toy@{server.url}', '--record', tmp_path/'tape', '--run-file', tmp_path/'run']
        first = report(tmp_path, *live)
        assert (first['n_asked'], first['n_gold'], first['n_failed'], len(server.log)) == (4, 4, 0, 4)
        assert first['tokens']['out'] > 0 and value(first, 'answered') == 1 and value(first, 'accuracy') * 4 in range(5)
        assert report(tmp_path, *live)['measures'] == first['measures'] and len(server.log) == 4
        capped = inside('eval', *argv[:-1], '8', '--llm', f'openai:toy@{server.url}', '--max-calls', '3', '--run-file', tmp_path/'capped')
        assert 'goes on from there' in complaint(capped) and len(Run.read(tmp_path/'capped').outcomes) == 3
    recorded_too = scored(tmp_path, tmp_path/'run', drinks, 'wrong', '--limit', '4', '--against', tmp_path/'run')
    assert value(recorded_too, 'accuracy') == value(first, 'accuracy') and recorded_too['comparison']['p_mcnemar'] == 1
    again = report(tmp_path, *argv, '--llm', 'openai:toy', '--replay', tmp_path/'tape')
    assert (again['measures'], again['n_failed']) == (first['measures'], 0)


def test_a_recording_is_of_the_model_that_it_stands_for(drinks, tmp_path):
    "A run begun with --record goes on with --replay and without either, and is no run of another model."
    said = json.dumps({'reasoning': 'Bees.', 'response': 'It is wine.', 'label': 'B', 'status': 'answered'})
    argv = ['answers', '--system', 'cot', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--limit', '3']
    kept = ['--run-file', tmp_path/'run']
    with LLMServer(lambda messages, schema: Completion(said, 'toy-2026-11-01')) as server:
        toy, other = (['--llm', f'openai:{name}@{server.url}'] for name in ('toy', 'other'))
        report(tmp_path, *argv, *toy, '--record', tmp_path/'tape')
        assert 'goes on from there' in complaint(inside('eval', *argv, *toy, '--record', tmp_path/'two', '--max-calls', '2', *kept))
        for more in ([*other, '--record', tmp_path/'two'], other):
            assert 'a run of another system' in complaint(inside('eval', *argv, *more, *kept))
        found = report(tmp_path, *argv, *toy, '--replay', tmp_path/'tape', *kept)
        assert (found['system']['parts']['model'], found['n_asked'], found['n_failed']) == ('toy', 3, 0)
        before = len(server.log)
        assert report(tmp_path, *argv, *toy, *kept)['n_asked'] == 3 and len(server.log) == before
        report(tmp_path, *argv, *other, '--record', tmp_path/'others')
    assert 'a run of another system' in complaint(inside('eval', *argv, *toy, '--replay', tmp_path/'others', *kept))


@pytest.mark.parametrize(('more', 'why'), [([], 'give --recorded FILE'), (['--system', 'magic'], 'choose cot, naive'),
                                           (['--system', 'cot'], 'on the command line --llm'),
                                           (['--system', 'stuhlmann', '--llm', 'openai:toy@http://127.0.0.1:9/v1', '--check', 'llm'],
                                            'take confirmed')], ids=spoken)
def test_a_system_that_cannot_be_asked(more, why, drinks):
    assert why in complaint(inside('eval', 'answers', *more, '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong'))


@pytest.mark.parametrize(('more', 'why'), [
    (['--system', 'quotes', '--against', 'a.jsonl'], 'then give --recorded RUN --against a.jsonl'),
    (['--recorded', 'a.jsonl', '--depth', '5', '--check', 'llm', '--llm', 'openai:x', '--max-calls', '3'],
     '--depth, --check, --llm, --max-calls can change nothing in recorded answers'),
    (['--recorded', 'a.jsonl', '--retry-errors'], '--retry-errors can change nothing'),
    (['--recorded', 'a.jsonl', '--limit', '2', '--above', '0'], '--above can change nothing')], ids=spoken)
def test_options_without_effect_are_refused(more, why, drinks, tmp_path):
    argv = ('--dataset', 'medqa', '--data', drinks, '--policy', 'wrong')
    assert why in complaint(inside('eval', 'answers', *more, *argv, cwd=tmp_path))


def test_what_failed_is_asked_once_more_only_if_told(drinks, tmp_path, monkeypatch):
    monkeypatch.setattr(Patience, 'wait', lambda patience, state: 0.0)
    says = json.dumps({'reasoning': 'Bees.', 'response': 'It is wine.', 'label': 'B', 'status': 'answered'})
    argv = ['answers', '--system', 'cot', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--limit', '3']
    kept = ['--run-file', tmp_path/'run']
    failed = report(tmp_path, *argv, '--llm', 'openai:toy@http://127.0.0.1:9/v1', *kept)
    assert (failed['n_failed'], value(failed, 'answered')) == (3, 0)
    with LLMServer(lambda messages, schema: says) as server:
        live = [*argv, '--llm', f'openai:toy@{server.url}/v1']
        assert report(tmp_path, *live, *kept)['n_failed'] == 3 and server.log == []
        mended = report(tmp_path, *live, *kept, '--retry-errors')
        assert (mended['n_failed'], mended['n_asked'], value(mended, 'answered'), len(server.log)) == (0, 3, 1, 3)
        assert report(tmp_path, *live, *kept, '--retry-errors')['n_failed'] == 0 and len(server.log) == 3
        assert 'name it with --run-file' in complaint(inside('eval', *live, '--retry-errors'))


def test_a_cell_of_a_table_is_one_command(drinks, tmp_path):
    "How a system finds and checks can be told as to `cpqa ask`; it stands in the header, so another way is another run."
    seen = []

    def reply(messages, schema):
        if 'verdict' in schema['properties']: return '{"words": "", "verdict": "neither"}'
        shown = json.loads(messages[-1].content.split('\n\n')[1])['passages']
        seen.append(len(shown))
        return json.dumps({'claims': [{'text': shown[0]['text'], 'pmid': shown[0]['pmid'], 'quote': shown[0]['text']}], 'label': 'A',
                           'status': 'answered'})
    shelf = [Document(f'{n}', text=f'The drink of number {n} is made of {what}.') for n, what in enumerate(HERBS)]
    library = build_index([shelf], tmp_path/'library').folder
    argv = ['answers', '--system', 'confirmed', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--limit', '2',
            '--library', library, '--run-file', tmp_path/'run', '--first', 'bm25', '--passages', '3', '--rewriter', 'rules',
            '--combine', 'reranker', '--reranker', 'bm25', '--above', '-5', '--check', 'llm']
    with LLMServer(reply) as server:
        found = report(tmp_path, *argv, '--llm', f'openai:toy@{server.url}')
        other = inside('eval', *argv[:-2], '--llm', f'openai:toy@{server.url}')
    system = found['system']
    assert (system['parts']['first'], system['parts']['reranker']) == ('bm25', 'bm25') and set(seen) == {3}
    assert {k: system['parameters'][k] for k in ('passages', 'combine', 'above', 'rewriter', 'check')} == {
        'passages': 3, 'combine': 'reranker', 'above': -5.0, 'rewriter': 'rules', 'check': 'llm'}
    assert (found['read again'], found['claims doubted']) == (2, 2) and value(found, 'answered') == 1
    assert 'a run of another system' in complaint(other)
    with LLMServer(reply) as server:
        capped = ['eval', *argv, '--llm', f'openai:toy@{server.url}', '--max-calls', '3', '--run-file', tmp_path/'capped']
        assert 'goes on from there' in complaint(inside(*capped)) and len(Run.read(tmp_path/'capped').outcomes) == 1
        assert '2 answers, of which 2 were doubted' in went(*capped) and len(server.log) == 5   # the second is written and read


def test_negative_questions_are_those_that_every_run_has_wrong(drinks, tmp_path):
    "By a draw of eight: two baselines that say always the same, and a third system that is asked of what both have wrong."
    says = lambda label: json.dumps({'reasoning': '', 'response': 'So.', 'label': label, 'status': 'answered'})
    argv = ['answers', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--limit', '8']
    asked = [*argv, '--system', 'cot', '--llm']
    for label in 'AB':
        with LLMServer(lambda messages, schema: says(label)) as server:
            report(tmp_path, *asked, f'openai:{label}@{server.url}', '--run-file', tmp_path/f'{label}.run')
    wrong_in = [x for label in 'AB' for x in ('--wrong-in', tmp_path/f'{label}.run')]
    recorded = report(tmp_path, *argv, '--recorded', tmp_path/'A.run', *wrong_in)
    with LLMServer(lambda messages, schema: says('C')) as server:
        third = report(tmp_path, *asked, f'openai:C@{server.url}', *wrong_in, '--run-file', tmp_path/'C.run')
        assert len(server.log) == third['n_asked'] == recorded['n'] < 8
    assert recorded['wrong_in'] == third['wrong_in'] == ['A.run', 'B.run'] and value(recorded, 'accuracy') == 0
    ids = Run.read(tmp_path/'C.run').outcomes
    (tmp_path/'C.ids').write_text('\n'.join(ids))
    assert report(tmp_path, *argv[:-2], '--recorded', tmp_path/'C.run', '--only', tmp_path/'C.ids')['n'] == len(ids)


def test_what_rewriting_took_is_in_the_run_and_its_cap_ends_it(drinks, tmp_path):
    says = {'intent': '{"question": "What is the drink made of?", "concepts": [], "relations": [], "intent": ""}',
            'queries': '{"queries": [{"query": "drink[tiab]", "why": "all"}]}', 'texts': '{"texts": ["The drink is made of hops."]}',
            'label': '{"claims": [], "label": "A", "status": "unknown"}'}
    shelf = [Document(f'{n}', text=f'The drink of number {n} is made of {what}.') for n, what in enumerate(HERBS)]
    library = build_index([shelf], tmp_path/'library').folder
    argv = ['answers', '--system', 'pipeline', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--limit', '2', '--library',
            library]
    reply = lambda messages, schema: next(said for key, said in says.items() if key in schema['properties'])
    for how, keys in (('llm', ('intent', 'queries', 'label')), ('query2doc', ('texts', 'label'))):
        calls = len(keys)
        with LLMServer(reply) as server:
            live = [*argv, '--rewriter', how, '--llm', f'openai:toy@{server.url}', '--run-file', tmp_path/how]
            capped = complaint(inside('eval', *live, '--max-calls', str(calls + 1)))
            assert 'goes on from there' in capped and len(Run.read(tmp_path/how).outcomes) == 1
            before = len(server.log)
            found = report(tmp_path, *live)
            assert (found['n_asked'], len(server.log) - before) == (2, calls)
        assert found['tokens']['out'] >= 2 * sum(len(says[k].split()) for k in keys)


def test_routes_by_a_model_go_on_and_end_at_a_cap(tmp_path):
    "A table with a mark of UTF-8, as Excel writes it; the model's ladder; a run that stops at its cap and goes on."
    library = build_library([[Document('1', text='Tea grows on hills.'), Document('2', text='Rice grows in water.')]], tmp_path/'library')
    (tmp_path/'mine.csv').write_text('\ufeffid,Question\n1,"Where, if at all, does tea grow?"\n2,Where does rice grow?\n')
    says = {'intent': '{"question": "where does it grow", "concepts": [], "relations": [], "intent": ""}',
            'queries': '{"queries": [{"query": "grows[tiab]", "why": "all"}]}'}
    argv = ['routes', tmp_path/'mine.csv', '--library', library.folder, '--run-file', tmp_path/'run', '--json', tmp_path/'routes.json']
    reply = lambda messages, schema: next(said for key, said in says.items() if key in schema['properties'])
    with LLMServer(reply) as server:
        live = ['eval', *argv, '--rewriter', 'llm', '--llm', f'openai:toy@{server.url}']
        assert 'are spent' in complaint(inside(*live, '--max-calls', '3')) and len(Run.read(tmp_path/'run').outcomes) == 1
        out = went(*live, '--max-calls', '2')
        assert len(server.log) == 5 and '2 questions, 0 without documents' in out and ' written; cost not known' in out
        assert went(*live) == out and len(server.log) == 5
        assert 'a run of another system' in complaint(inside(*live, '--top', '3'))
    assert json.loads((tmp_path/'routes.json').read_text())['both']


@cases('more,why', [(['--rewriter', 'llm'], 'needs a language model'), (['--retry-errors'], 'name it with --run-file'),
                    (['--llm', 'openai:toy@http://127.0.0.1:9/v1'], 'is asked by a rewriter alone')])
def test_routes_that_cannot_be_meant(more, why, tmp_path):
    (tmp_path/'mine.txt').write_text('Where does tea grow?\n')
    assert why in complaint(inside('eval', 'routes', tmp_path/'mine.txt', *more))


def test_routes_of_ones_own_questions(garden, tmp_path):
    shelf = [Document('1', text='Tea grows on hills.'), Document('2', text='Rice grows in water.'), Document('PMC3', text='Tea is a leaf.')]
    library = build_library([shelf], tmp_path/'library')
    (tmp_path/'mine.txt').write_text('Where does tea grow?\n{"question": "Where does rice grow?"}\n')
    to = ['--json', tmp_path/'routes.json', '--plot', tmp_path/'r.svg']
    out = went('eval', 'routes', tmp_path/'mine.txt', '--library', library.folder, *to)
    found = json.loads((tmp_path/'routes.json').read_text())
    assert '2 questions, 0 without documents' in out and (tmp_path/'r.svg').stat().st_size > 1000
    assert set(found['sources']) == {'D1', 'D3'} and found['routes']['E2']['share']['value'] > 0
    said = {way: (float(share), int(n), int(held)) for way, share, n, held in
            re.findall(r'^(E\d D\d) +share ([\d.]+) \[[\d.]+, [\d.]+\]  (\d+) of (\d+)$', out, re.M)}
    filled = sum(found['both'].values())
    assert said == {way: (round(n / filled, 3), n, filled) for way, n in found['both'].items()} and len(said) > 1
    for part, place in (('routes', 0), ('sources', 1)):   # the shares of a table are those of its rows and columns
        for name, m in found[part].items():
            assert sum(n for way, n in found['both'].items() if way.split()[place] == name) == round(m['share']['value'] * filled)
            assert f'{name}      share {m["share"]["value"]:.3f} [' in out
    assert 'cannot be read' in complaint(inside('eval', 'routes', tmp_path/'gone.txt'))


@cases('name', ['a.xyz', 'a'])
def test_a_picture_of_no_kind_is_refused_before_the_search(name, tmp_path):
    (tmp_path/'mine.txt').write_text('Where does tea grow?\n')
    library = build_library([[Document('1', text='Tea grows on hills.')]], tmp_path/'library')
    to = ['--plot', tmp_path/name, '--source', 'pubmed']
    with EntrezServer(library.folder) as server:
        said = complaint(inside('eval', 'routes', tmp_path/'mine.txt', *to, env={'CPQA_ENTREZ_URL': server.url}))
        assert 'ends in one of .png, .svg, .pdf' in said and not server.requests


def test_a_table_is_there_before_its_picture(tmp_path, monkeypatch):
    "Where the picture cannot be drawn, what was searched is not lost."
    def torn(report): raise CpqaError('the paper is torn')
    monkeypatch.setattr('cpqa.evaluation.routes.plot_routes', torn)
    (tmp_path/'mine.txt').write_text('Does tamoxifen lower recurrence?\n')
    to = ['--json', tmp_path/'routes.json', '--plot', tmp_path/'r.svg']
    done = inside('eval', 'routes', tmp_path/'mine.txt', *to)
    assert done.returncode == 1 and '1 questions, 0 without documents' in done.stdout and (tmp_path/'routes.json').exists()


def test_notes_do_not_pass_for_pubmed(tmp_path):
    "A PubMed that answers one question of two, and one that answers none."
    library = build_library([[Document('1', text='Tea grows on hills.'), Document('2', text='Rice grows in water.')]], tmp_path/'library')
    (tmp_path/'one.txt').write_text('Where does tea grow?\n')
    (tmp_path/'two.txt').write_text('Where does tea grow?\nWhere does rice grow?\n')
    argv = ['--library', library.folder, '--json', tmp_path/'routes.json']
    there = {'CPQA_ENTREZ_URL': 'http://127.0.0.1:9/', 'NCBI_EMAIL': '', 'NCBI_API_KEY': ''}
    said = complaint(inside('eval', 'routes', tmp_path/'two.txt', '--source', 'pubmed', *argv, env=there))
    assert 'any of the 2 questions: PubMed did not answer' in said and not (tmp_path/'routes.json').exists()
    assert '1 answered by another source' in went('eval', 'routes', tmp_path/'one.txt', '--source', 'auto', *argv, env=there)
    with EntrezServer(library.folder, misbehave='500=3') as server:   # as often as one search is tried
        live = there | {'CPQA_ENTREZ_URL': server.url}
        out = went('eval', 'routes', tmp_path/'two.txt', '--source', 'pubmed', *argv, env=live)
    found = json.loads((tmp_path/'routes.json').read_text())
    assert (found['n_questions'], found['n_without_documents'], [*found['errors'].values()]) == (2, 1, [1])
    assert '1 failed: PubMed did not answer' in out and found['n_from_another_source'] == 0


# ---- eval answers

DRINKS = {'A': 'tea', 'B': 'wine', 'C': 'milk', 'D': 'beer'}
SAID = ['{"answer_choice": "B"}', 'The answer is (C).', 'I cannot answer this.', 'B or A', '', None,
        'Error code: 429 - Rate limit reached', 'None of the above.']
GOLD = 'BCDABCDA'


def medqa(folder: Path, gold: str = GOLD) -> Path:
    put(folder/'phrases_no_exclude_test.jsonl',
        [{'question': f'Which drink is number {n}?', 'options': DRINKS, 'answer_idx': g} for n, g in enumerate(gold)])
    return folder


def recorded(path: Path, said, *more) -> Path:
    "Answers in MIRAGE's form, question after question; there is no line for None."
    return put(path, [{'id': f'{n:04d}', 'split': 'test', 'raw': [text]} for n, text in enumerate(said) if text is not None] + [*more])


@pytest.fixture(scope='module')
def drinks(tmp_path_factory) -> Path: return medqa(tmp_path_factory.mktemp('drinks'))


@pytest.fixture(scope='module')
def answers(drinks) -> Path: return recorded(drinks/'answers.jsonl.gz', SAID)


def scored(folder: Path, file: Path, data: Path, policy: str = 'wrong', *more, how=inside) -> dict:
    return report(folder, 'answers', '--recorded', file, '--dataset', 'medqa', '--data', data, '--policy', policy, *more, how=how)


@pytest.mark.parametrize('policy, right, n', [('wrong', 2, 8), ('abstain', 2, 2), ('first-option', 3, 8), ('random', None, 8)])
def test_policies(policy, right, n, drinks, answers, tmp_path):
    found = scored(tmp_path, answers, drinks, policy)
    assert {'accuracy', 'coverage', 'macro_f1'} <= found['measures'].keys() and (found['policy'], found['n']) == (policy, 8)
    assert found['measures']['accuracy']['n'] == n and found['measures']['coverage']['n'] == 8 and value(found, 'coverage') == 0.25
    assert found['failures'] == {kind: 1 for kind in ('api error', 'empty', 'missing', 'none of the options', 'refused', 'several')}
    if right: assert value(found, 'accuracy') == right / n
    else:
        assert value(found, 'accuracy') * 8 in range(2, 9) and scored(tmp_path, answers, drinks, policy)['measures'] == found['measures']
        assert {value(scored(tmp_path, answers, drinks, policy, '--seed', seed), 'accuracy')
                for seed in (1, 2, 5, 8)} != {value(found, 'accuracy')}


def test_the_first_option_profits_from_unread_answers_under_one_policy_alone(tmp_path):
    unread = ['I cannot answer this.', 'None of the above.', 'E', 'The weather is fine.', 'Error code: 429 - Rate limit reached', '',
              'B or C', None]
    data, file = medqa(tmp_path, 'A' * 40), recorded(tmp_path/'answers.jsonl', unread * 5)
    found = {policy: scored(tmp_path, file, data, policy) for policy in ('wrong', 'first-option', 'random')}
    assert value(found['wrong'], 'accuracy') == 0 and value(found['first-option'],
                                                            'accuracy') == 5 / 8 and value(found['random'], 'accuracy') < 0.5
    assert all(sum(f['failures'].values()) == 40 and f['failures']['missing'] == 5 and value(f, 'coverage') == 0 for f in found.values())
    assert 'none of 40 questions was answered' in complaint(inside('eval', 'answers', '--recorded', file, '--dataset', 'medqa', '--data',
                                                                   data, '--policy', 'abstain'))


def test_what_is_wrong_with_a_recorded_file_is_counted(drinks, tmp_path):
    more = [{'id': '0000', 'raw': ['A']}, {'id': '9999', 'raw': ['A']}, {'id': 7, 'raw': 'A'}, 'not JSON', {'id': '0001', 'raw': 5},
            {'raw': ['A']}, [], {'id': None, 'raw': 'A'}]
    found = scored(tmp_path, recorded(tmp_path/'answers.jsonl', SAID, *more), drinks)
    assert value(found, 'accuracy') == 0.25 and (found['n'], found['faults']['count'], found['answers_to_unknown_questions']) == (8, 6, 2)
    assert 'a second answer to 0000, of which the first counts' in ' '.join(found['faults']['first'])
    assert '6 faults in the files' in went('eval', 'answers', '--recorded', tmp_path/'answers.jsonl', '--dataset', 'medqa', '--data',
                                           drinks, '--policy', 'wrong')


@cases('rows, why', [
    ([{'id': '9999', 'raw': ['A']}], 'answers none of these 8 questions'), ([], 'empty'), (['not JSON'], 'holds no answer'),
    (['[1]', '{"raw": "A"}'], 'holds no answer'),
    (['<!doctype html>'], 'web page'), (None, 'cannot be read')])
def test_a_recorded_file_of_something_else(rows, why, drinks, tmp_path):
    file = tmp_path/'answers.jsonl' if rows is None else put(tmp_path/'answers.jsonl', rows)
    assert why in complaint(inside('eval', 'answers', '--recorded', file, '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong'))


def test_lines_without_an_answer_are_faults(drinks, tmp_path):
    file = put(tmp_path/'answers.jsonl', [{'id': f'{n:04d}', 'output': 'B'} for n in range(8)])
    done = inside('eval', 'answers', '--recorded', file, '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong')
    if done.returncode: assert 'raw' in complaint(done)
    else: assert '8 faults' in done.stdout


def test_a_recorded_file_that_was_cut(drinks, tmp_path):
    data = recorded(tmp_path/'answers.jsonl', SAID).read_bytes()
    (tmp_path/'answers.jsonl').write_bytes(data[:data.index(b'0003') + 10])
    found = scored(tmp_path, tmp_path/'answers.jsonl', drinks)
    assert found['failures'] == {'missing': 5,
                                 'refused': 1} and found['faults']['count'] == 1 and (found['n'], value(found, 'accuracy')) == (8, 0.25)
    (tmp_path/'answers.jsonl.gz').write_bytes(gzip.compress(data)[:-9])
    assert 'cannot be read to its end' in complaint(inside('eval', 'answers', '--recorded', tmp_path/'answers.jsonl.gz', '--dataset',
                                                           'medqa', '--data', drinks, '--policy', 'wrong'))


@cases('argv, why',
                         [(['--policy', 'best'], "'best' is not a policy: choose one of wrong, abstain, first-option, random"),
                          (['--dataset', 'medqb'], "no set called 'medqb'"),
                                       (['--dataset', 'mmlu'], 'holds no files of mmlu'), (['--data', 'nowhere'], 'is no folder'),
                                       (['--json', 'no/where.json'], 'cannot be written'),
                                       (['--against', 'nowhere'], 'nowhere'), (['--only', 'nowhere'], 'nowhere'),
                                       (['--dataset', 'healthsearchqa', '--data', 'asked'], 'gold label')])
def test_answers_that_cannot_be_scored(argv, why, drinks, answers, tmp_path):
    put(tmp_path/'asked'/'healthsearchqa.txt', ['Why is ice cold?'])
    options = {'--recorded': answers, '--dataset': 'medqa', '--data': drinks, '--policy': 'wrong'} | dict(zip(argv[::2], argv[1::2]))
    assert why in complaint(inside('eval', 'answers', *[word for pair in options.items() for word in pair], cwd=tmp_path))


def test_a_seed_below_zero(drinks, answers):
    done = inside('eval', 'answers', '--recorded', answers, '--dataset', 'medqa', '--data', drinks, '--policy', 'random', '--seed', -1)
    assert 'should not have happened' not in done.stderr and untroubled(done)


def test_two_systems_question_by_question(drinks, answers, tmp_path):
    from scipy.stats import binomtest
    other = recorded(tmp_path/'other.jsonl', 'BADABCDD')      # right: all but 1 and 7
    found = scored(tmp_path, answers, drinks, 'wrong', '--against', other)     # right: 0 and 1
    c = found['comparison']
    assert (c['n'], c['right_only_here'], c['right_only_against']) == (8, 1, 5) and c['p_mcnemar'] == pytest.approx(binomtest(1, 6).pvalue)
    assert c['difference']['low'] <= c['difference']['value'] == -0.5 <= c['difference']['high'] and value(found['against'],
                                                                                                           'accuracy') == 0.75
    both = scored(tmp_path, answers, drinks, 'abstain', '--against', other)['comparison']     # 0 and 1 alone were answered by both
    assert (both['n'], both['right_only_here'], both['right_only_against']) == (2, 1, 0)
    same = scored(tmp_path, answers, drinks, 'wrong', '--against', answers)['comparison']
    assert (same['p_mcnemar'], same['difference']['value']) == (1, 0)
    said = went('eval', 'answers', '--recorded', answers, '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong', '--against', other)
    assert 'against other.jsonl' in said and 'right only here 1, only there 5: exact McNemar p = 0.219' in said


def test_a_run_of_ours_as_a_recorded_file(drinks, tmp_path):
    from cpqa.evaluation.datasets import load
    asked = load('medqa', drinks)
    run(System('toy'), lambda q: Outcome(q.id, prediction='B', raw='' if q.id > '0003' else 'The answer is (C).'), asked,
        tmp_path/'run.jsonl')
    found = scored(tmp_path, tmp_path/'run.jsonl', drinks)
    assert (value(found, 'accuracy'), value(found, 'coverage'),
            found['faults']['count']) == (2 / 8, 1, 0)     # C of the first four, B of the last four


def test_a_question_of_a_run_that_was_asked_again(drinks, tmp_path):
    from cpqa.evaluation.datasets import load
    asked, wants = load('medqa', drinks), {q.id: q.gold for q in load('medqa', drinks)}
    run(System('toy'), lambda q: Outcome(q.id, error='TimeoutError') if q.id < '0004' else Outcome(q.id, wants[q.id]), asked,
        tmp_path/'run.jsonl')
    run(System('toy'), lambda q: Outcome(q.id, wants[q.id]), asked, tmp_path/'run.jsonl', retry_errors=True)
    assert value(scored(tmp_path, tmp_path/'run.jsonl', drinks), 'accuracy') == 1


def test_a_run_of_another_set_with_the_same_ids(drinks, tmp_path):
    others = Questions('toy', [Question(f'{n:04d}', f'Which stone is number {n}?', 'choice', 'toy', DRINKS, gold='A') for n in range(8)])
    run(System('toy'), lambda q: Outcome(q.id, 'A'), others, tmp_path/'run.jsonl')
    done = inside('eval', 'answers', '--recorded', tmp_path/'run.jsonl', '--dataset', 'medqa', '--data', drinks, '--policy', 'wrong')
    assert 'toy' in complaint(done) if done.returncode else 'faults' in done.stdout


def test_ids_that_lost_a_character_and_whole_ones(tmp_path):
    choice = {'question': 'Which?', 'opa': 'tea', 'opb': 'wine', 'opc': 'milk', 'opd': 'beer', 'cop': 1}
    put(tmp_path/'medmcqa'/'dev.json', [choice | {'id': 'a-1'}, choice | {'id': 'a-2'}])
    file = put(tmp_path/'answers.jsonl', [{'id': 'a-1', 'raw': ['A']}, {'id': '-1', 'raw': ['B']}, {'id': '-2', 'raw': ['A']}])
    found = report(tmp_path, 'answers', '--recorded', file, '--dataset', 'medmcqa', '--data', tmp_path, '--policy', 'wrong')
    assert value(found, 'accuracy') == 1 and found['faults']['count'] == 1


# ---- datasets

def test_the_list_of_sets():
    lines = [line.split() for line in went('datasets', 'list').splitlines()]
    assert [line[0] for line in lines][:5] == ['mmlu', 'medqa', 'medmcqa', 'pubmedqa', 'pqa-l'] and len(lines) == 11
    assert all(int(line[1].replace(',', '')) > 0 and line[-1].startswith('http') for line in lines)


@pytest.mark.parametrize('argv, why',
                         [(['medqb'], "no set called 'medqb'"), (['healthsearchqa'], 'cannot be downloaded by its name'),
                          (['medqa', '--to', 'there'], 'no connection'),
                                       (['medqa', '--to', 'file'], 'file')], ids=spoken)
def test_downloads_that_fail(argv, why, tmp_path):
    (tmp_path/'file').write_text('')
    nowhere = {name: 'http://127.0.0.1:9'
               for name in ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY')} | {'no_proxy': None, 'NO_PROXY': None}
    assert why in complaint(inside('datasets', 'download', *argv, cwd=tmp_path, env=nowhere))


def five(folder: Path) -> Path:
    "Eight questions, one or two of each set: six name a cancer, one in an option, one in the context, and one in another sense."
    put(folder/'mmlu'/'anatomy_test.csv',
        ['Where does melanoma begin?,skin,ear,eye,arm,A', 'Which of these grows?,stone,a glioma,salt,ice,B'])
    put(folder/'medqa'/'phrases_no_exclude_test.jsonl',
        [{'question': 'Which treats Hodgkin’s lymphoma?', 'options': DRINKS, 'answer_idx': 'D'}])
    put(folder/'medmcqa'/'dev.json',
        [{'id': 'a-1', 'question': 'Which is cold?', 'opa': 'fire', 'opb': 'steam', 'opc': 'lava', 'opd': 'ice', 'cop': 4},
                                      {'id': 'a-2', 'question': 'What do Goldman Hodgkin Katz equations describe?',
                                       'opa': 'tumours of the lung', 'opb': 'steam', 'opc': 'cells', 'opd': 'ice', 'cop': 3}])
    record = {'QUESTION': 'Does tea help?', 'CONTEXTS': ['We gave tea to 10 people.', 'All had breast cancer.'], 'final_decision': 'yes'}
    put(folder/'pubmedqa'/'test_set.json', [json.dumps({'7': record})])
    put(folder/'bioasq'/'7B1_golden.json',
        [json.dumps({'questions': [{'id': 'y1', 'body': 'Is leukaemia a disease?', 'type': 'yesno', 'documents': [], 'exact_answer': 'yes'},
                                                                      {'id': 'y2', 'body': 'Is ice cold?', 'type': 'yesno',
                                                                       'documents': [], 'exact_answer': 'yes'}]})])
    return folder


@pytest.fixture(scope='module')
def sets(tmp_path_factory) -> Path: return five(tmp_path_factory.mktemp('five'))


def cancers(sets: Path, out: Path, *more, how=inside) -> tuple[list[str], list[dict]]:
    "The questions that `cpqa datasets cmmqa` keeps, by id, and their lines; it prints the sizes, and each term stands where its line says."
    done = how('datasets', 'cmmqa', '--from', sets, '--out', out, *more)
    assert done.returncode == 0 and untroubled(done), done
    found = [json.loads(line) for line in out.read_text(encoding='utf-8').splitlines()]
    sizes = {line.split()[0]: int(line.split()[1].replace(',', '')) for line in done.stdout.splitlines()}
    assert sizes.pop('all') == len(found) == sum(sizes.values())
    for source in sizes: assert sizes[source] == sum(a['question']['source'] == source for a in found)
    for a in found: assert same_words(there(a), a['term']), a
    return [a['question']['id'] for a in found], found


def there(a: dict) -> str:
    "The words that stand in the place of a term."
    text = a['question']['options'][a['option']] if a['field'] == 'options' else a['question'][a['field']]
    assert 0 <= a['start'] < a['end'] <= len(text)
    return text[a['start']:a['end']]


def same_words(a: str, b: str) -> bool:
    "Are these the same words, but for spelling, number and possession?"
    def plain(text: str) -> list[str]:
        bare = unicodedata.normalize('NFKD', text).lower().replace('\u0308', '')
        return re.findall('[a-z0-9]+', re.sub('[’\']s\\b', '', bare).replace('ae', 'e').replace('oe', 'e'))
    x, y = plain(a), plain(b)
    return len(x) == len(y) > 0 and all(v[:3] == w[:3] and abs(len(v) - len(w)) < 4 for v, w in zip(x, y))


EVERY = ['anatomy-000', 'anatomy-001', '0000', 'a-2', '7', 'y1']


def test_cmmqa(sets, tmp_path):
    ids, found = cancers(sets, tmp_path/'out.jsonl')
    assert ids == EVERY and [(a['field'], a['option']) for a in found
                             if a['field'] != 'question'] == [('options', 'B'), ('options', 'A'), ('context', '')]
    assert [there(a) for a in found] == ['melanoma', 'glioma', 'Hodgkin’s lymphoma', 'tumours of the lung', 'breast cancer',
                                         'leukaemia'] and all(a['ui'].startswith('D') for a in found)


def test_cmmqa_in_part(sets, tmp_path):
    out = tmp_path/'out.jsonl'
    assert cancers(sets, out, '--fields', 'question')[0] == ['anatomy-000', '0000', 'y1']
    assert cancers(sets, out, '--fields', 'context,options')[0] == ['anatomy-001', 'a-2', '7']
    assert cancers(sets, out, '--sets', 'bioasq,MMLU')[0] == ['y1', 'anatomy-000', 'anatomy-001']
    assert [p.name for p in tmp_path.iterdir()] == ['out.jsonl']


def test_the_plain_rule_knows_no_traps(tmp_path):
    text = 'Was he born under the zodiac sign of Cancer?'
    put(tmp_path/'7B1_golden.json',
        [json.dumps({'questions': [{'id': f'y{n}', 'body': body, 'type': 'yesno', 'documents': [], 'exact_answer': 'no'} for n,
                                   body in enumerate((text, 'Is glioma rare?'))]})])
    assert cancers(tmp_path, tmp_path/'out', '--sets', 'bioasq')[0] == ['y1']
    assert cancers(tmp_path, tmp_path/'out', '--sets', 'bioasq', '--plain')[0] == ['y0', 'y1']


def test_the_plain_rule_lets_in_what_is_named_after_a_tumour(tmp_path):
    bodies = ('Is tumour necrosis factor a cytokine?', 'Is glioma rare?')
    put(tmp_path/'7B1_golden.json',
        [json.dumps({'questions': [{'id': f'y{n}', 'body': body, 'type': 'yesno', 'documents': [], 'exact_answer': 'yes'} for n,
                                   body in enumerate(bodies)]})])
    assert cancers(tmp_path, tmp_path/'out', '--sets', 'bioasq')[0] == ['y1']
    ids, found = cancers(tmp_path, tmp_path/'out', '--sets', 'bioasq', '--plain')
    assert ids == ['y0', 'y1'] and there(found[0]) == 'tumour'


def test_a_set_without_a_cancer_is_told_of(tmp_path):
    put(tmp_path/'7B1_golden.json',
        [json.dumps({'questions': [{'id': 'y', 'body': 'Is ice cold?', 'type': 'yesno', 'documents': [], 'exact_answer': 'yes'}]})])
    assert any(re.match(r'bioasq +0\b', line)
               for line in went('datasets', 'cmmqa', '--from', tmp_path, '--out', tmp_path/'out', '--sets', 'bioasq').splitlines())


def test_a_set_that_was_named_twice(sets, tmp_path):
    done = inside('datasets', 'cmmqa', '--from', sets, '--out', tmp_path/'out', '--sets', 'bioasq,bioasq')
    if done.returncode == 0: assert len((tmp_path/'out').read_text().splitlines()) == 1
    else: complaint(done)


@cases('argv, why', [
    (['--sets', 'mmlu,medqb'], "no set called 'medqb'"), (['--sets', ''], 'no set called'),
    (['--sets', 'medquad'], 'holds no files of medquad'), (['--fields', 'title'], "'title' is not where terms may stand"),
    (['--fields', ''], 'is not where terms may stand'), (['--out', 'no/where.jsonl'], 'cannot be written'),
    (['--out', '.'], 'cannot be written'), (['--from', 'nowhere'], 'is no folder')])
def test_cmmqa_that_cannot_be_made(argv, why, sets, tmp_path):
    options = {'--from': sets, '--out': 'out.jsonl'} | dict([argv])
    put(tmp_path/'out.jsonl', ['old'])
    assert why in complaint(inside('datasets', 'cmmqa', *[word for pair in options.items() for word in pair], cwd=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ['out.jsonl'] and (tmp_path/'out.jsonl').read_text() == 'old\n'


def test_faults_of_the_sets_are_named(sets, tmp_path):
    folder = shutil.copytree(sets, tmp_path/'sets')
    put(folder/'mmlu'/'anatomy_test.csv', ['Where does melanoma begin?,skin,ear,eye,arm,A', 'Which?,a,b', *['?'] * 20])
    done = inside('datasets', 'cmmqa', '--from', folder, '--out', tmp_path/'out')
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and untroubled(done) and len(lines) == 11 and all(line.startswith('cpqa: ') for line in lines)
    assert lines[-1] == 'cpqa: and 16 more faults'   # five subjects are missing
    assert any('anatomy_test.csv:2: 3 columns' in line for line in lines)


def test_answers_on_cmmqa_only(sets, tmp_path):
    cancers(sets, tmp_path/'cmmqa')
    file = put(tmp_path/'answers.jsonl',
               [{'id': f'anatomy-00{n}', 'raw': ['A']} for n in range(2)] + [{'id': 'y1', 'raw': ['yes']}, {'id': 'y2', 'raw': ['no']}])
    base = ('answers', '--recorded', file, '--data', sets, '--policy', 'wrong', '--only', tmp_path/'cmmqa', '--dataset')
    assert (found := report(tmp_path, *base, 'bioasq'))['n'] == 1 and value(found, 'accuracy') == 1
    assert (found := report(tmp_path, *base, 'mmlu'))['n'] == 2 and value(found, 'accuracy') == 0.5
    assert 'is not a file of cancer questions' in complaint(inside('eval', *base[:7], '--only', file, '--dataset', 'bioasq'))


def test_only_whatever_the_case_of_the_name(sets, tmp_path):
    cancers(sets, tmp_path/'cmmqa')
    file = put(tmp_path/'answers.jsonl', [{'id': 'y1', 'raw': ['yes']}])
    assert report(tmp_path, 'answers', '--recorded', file, '--data', sets, '--policy', 'wrong', '--only', tmp_path/'cmmqa', '--dataset',
                  'BioASQ')['n'] == 1


def test_only_a_file_without_this_set(sets, tmp_path):
    cancers(sets, tmp_path/'cmmqa', '--sets', 'mmlu')
    file = put(tmp_path/'answers.jsonl', [{'id': 'y1', 'raw': ['yes']}])
    assert 'cmmqa' in complaint(inside('eval', 'answers', '--recorded', file, '--data', sets, '--policy', 'wrong', '--only',
                                       tmp_path/'cmmqa', '--dataset', 'bioasq'))


# ---- search --reranker

@pytest.fixture(scope='module')
def library(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('library')
    went('index', 'build', write_beir(folder/'garden.jsonl', GARDEN[:30]), '--out', folder/'garden', '--no-vectors')
    return folder/'garden'


def test_search_with_a_reranker(library):
    search = lambda *more, how=went: json.loads(how('search', ASKED['q0'], '--library', library, '--retriever', 'bm25', '--json', *more))
    plain, ranked, one = search(), search('--reranker', 'bm25'), search('--reranker', 'bm25', '--depth', 1)
    assert [h['rank'] for h in ranked] == [*range(1, len(plain) + 1)] and [h['id'] for h in one] == [h['id'] for h in plain]
    assert [h['id'] for h in ranked] != [h['id'] for h in plain]
    scores = [h['score'] for h in ranked]
    assert scores == sorted(scores, reverse=True)
    assert [h['id'] for h in search('--reranker', 'cosine', '-k', 3)] != [] and search('--reranker', 'bm25', '-k', 3) == ranked[:3]


def test_search_with_a_reranker_that_nobody_knows(library):
    assert "'magic' is not a reranker: choose " in complaint(inside('search', 'ginger', '--library', library, '--retriever', 'bm25',
                                                                    '--reranker', 'magic'))


@cases('argv, code', [
    (['eval', 'retrieval', '--data', 'nowhere'], 1), (['eval', 'retrieval', '--data', 'nowhere', '--k', 0], 2),
    (['eval', 'passages', '--data', 'nowhere'], 1), (['eval', 'answers'], 2),
    (['eval', 'answers', '--recorded', 'nowhere', '--dataset', 'medqa', '--data', '.', '--policy', 'best'], 1),
    (['datasets', 'cmmqa', '--from', 'nowhere', '--out', 'x'], 1)])
def test_the_console_script_refuses_as_main_does(argv, code, tmp_path):
    # one of each kind as a process: what it catches, and what its parser refuses
    how = cpqa if argv[:2] == ['eval', 'retrieval'] else inside
    script, main = how(*argv, cwd=tmp_path), inside(*argv, cwd=tmp_path)
    assert untroubled(script) and (script.returncode, script.stdout) == (main.returncode, main.stdout) == (code, '')
    assert script.stderr.splitlines()[-1] == main.stderr.splitlines()[-1] and complaint(script, code)


@pytest.mark.parametrize('argv',
                         [['eval'], ['datasets'], ['eval', 'magic'], ['datasets', 'cmmqa'], ['eval', 'answers', '--recorded', 'x']],
                         ids=spoken)
def test_half_a_command(argv):
    done = inside(*argv)
    assert 'cpqa help' in complaint(done, 2)


# ---- the real data

def test_a_published_cell(data_dir, tmp_path):
    found = report(tmp_path, 'answers', '--recorded', data_dir/'recorded_answers'/'mmlu.gpt-4_cot.jsonl.gz', '--dataset', 'mmlu', '--data',
                   data_dir, '--policy', 'first-option')
    assert (round(100 * value(found, 'accuracy'), 2), found['n'], found['faults']['count'],
            found['answers_to_unknown_questions']) == (89.44, 1089, 0, 0)


@pytest.mark.release
def test_the_files_of_ids_name_the_questions_of_the_study(data_dir, tmp_path):
    "What benchmarks/paper_answers.py draws for `cpqa eval answers --only` is what the study asked: its negative questions are among it."
    asked = [sys.executable, 'paper_answers.py', 'ids', '--runs', str(tmp_path)]
    subprocess.run(asked, cwd=ROOT/'benchmarks', env=os.environ | {'PYTHONPATH': str(ROOT), 'CPQA_DATA': str(data_dir)}, check=True)
    drawn = {f'{file.stem} {id}' for file in tmp_path.glob('*.ids') for id in file.read_text().split('\n') if id}
    he, stuhlmann = (json.loads((ROOT/'benchmarks'/'results'/f'answers_{name}.json').read_text()) for name in ('he', 'stuhlmann'))
    assert len(drawn) == 5 * he['each'] + stuhlmann['questions'] and drawn >= set(he['negative']['ids'])


def test_bm25_on_bioasq(data_dir, tmp_path):
    found = report(tmp_path, 'retrieval', '--data', data_dir/'bioasq_beir', '--retriever', 'bm25', '--run-file', tmp_path/'run',
                   env={'CPQA_CACHE': SHARED}, how=cpqa)
    grades = {}
    for _, q, d, grade in read_qrels(next((data_dir/'bioasq_beir'/'qrels').glob('test*')), []): grades.setdefault(q, {})[d] = grade
    assert (found['n_queries'], found['n_failed'],
            found['faults']['count']) == (len(grades), 0, 0) and value(found, 'nDCG@10') == pytest.approx(0.809, abs=0.003)
    assert {name: round(x, 4) for name,
            x in trec(tmp_path/'run', grades).items()} == {name: round(m['value'], 4) for name, m in found['measures'].items()}


@pytest.mark.nightly
def test_bm25_on_evidence_inference(data_dir, tmp_path):
    found = report(tmp_path, 'passages', '--data', data_dir/'evidence_inference', '--retriever', 'bm25', '--segmenter', 'sentences',
                   '--scope', 'article', env={'CPQA_CACHE': SHARED}, how=cpqa)
    assert 0.5 < value(found, 'Hits@5') < 0.9 and 0 < value(found,
                                                            'MRR@5') < value(found, 'Hits@5') and (found['n_questions'], found['n_failed'],
                                                                                                   found['faults']['count']) == (928, 0, 0)


@pytest.mark.nightly
def test_cmmqa_of_the_five_sets(data_dir, tmp_path):
    ids, found = cancers(data_dir/'mirage'/'rawdata', tmp_path/'cmmqa', how=cpqa)
    assert {a['question']['source'] for a in found} == {'mmlu', 'medqa', 'medmcqa', 'pubmedqa', 'bioasq'} and 400 < len(found) < 1200
    assert len({(a['question']['source'], a['question']['id']) for a in found}) == len(found)


def test_a_file_that_is_there_is_not_fetched_again(data_dir, tmp_path):
    (tmp_path/'data').mkdir()
    shutil.copy(data_dir/'mirage'/'rawdata'/'medmcqa'/'data'/'dev.json', tmp_path/'data')
    assert went('datasets', 'download', 'medmcqa', '--to', tmp_path, env={'https_proxy': 'http://127.0.0.1:9'}) == f'{tmp_path}\n'


# ---- what a figure must not hide

def test_a_judged_query_without_text_fails_and_counts(tmp_path):
    folder = beir(tmp_path/'garden', documents=[Document(id='d1', title='ginger')], asked={'q1': 'ginger', 'q2': ' '},
                  grades={'q1': {'d1': 1}, 'q2': {'d1': 1}})
    found = report(tmp_path, 'retrieval', '--data', folder, '--retriever', 'bm25')
    assert (found['n_queries'], found['n_failed'], value(found, 'R@10')) == (2, 1, 0.5)


def test_a_gold_answer_is_no_answer(drinks, tmp_path):
    file = put(tmp_path/'answers.jsonl', [{'id': f'{n:04d}', 'raw': None, 'answer': 'A'} for n in range(8)])
    found = scored(tmp_path, file, drinks, 'wrong')
    assert value(found, 'accuracy') == 0 and found['failures'] == {'empty': 8}


def test_a_library_of_other_documents(tmp_path):
    other = beir(tmp_path/'other', documents=[Document(id='x1', title='ginger')], asked={'q1': 'ginger'}, grades={'q1': {'x1': 1}})
    went('index', 'build', write_beir(tmp_path/'here.jsonl', [Document(id='d1', title='ginger')]), '--out', tmp_path/'here', '--no-vectors')
    assert "holds none of the 1 relevant documents" in complaint(inside('eval', 'retrieval', '--data', other, '--retriever', 'bm25',
                                                                        '--library', tmp_path/'here'))


def test_a_run_goes_on_with_a_library_built_again(garden, tmp_path):
    for n in range(2):   # an empty cache each time: another directory, another date
        env = {'CPQA_CACHE': str(tmp_path/f'cache {n}')}
        report(tmp_path, 'retrieval', '--data', garden, '--retriever', 'bm25', '--run-file', tmp_path/'run.jsonl', env=env)
    assert len(Run.read(tmp_path/'run.jsonl').headers) == 1


def test_only_queries_that_the_library_can_answer_are_asked(data_dir, tmp_path):
    "The rule of Stuhlmann et al. on BioASQ, with every twentieth document: as many as a count by hand says, and the rest are told."
    import gzip
    from cpqa.evaluation.collections import read_collection
    from cpqa.literature.library import build_library
    c = read_collection(data_dir/'bioasq_beir')
    some = [d for n, d in enumerate(c.documents()) if n % 20 == 0]
    with gzip.open(data_dir/'bioasq_beir'/'corpus.jsonl.gz', 'rt') as f: held = {json.loads(line)['_id'] for line in list(f)[::20]}
    with open(data_dir/'bioasq_beir'/'qrels'/'test.tsv') as f:
        rows = [line.split('\t') for line in f.read().splitlines()[1:]]
    by_hand = {q for q, d, grade in rows if d in held and int(grade) > 0}
    assert {d.id for d in some} == held and set(c.answerable(held).queries) == by_hand and 0 < len(by_hand) < len(c.queries)
    build_library([some], tmp_path/'library')
    found = report(tmp_path, 'retrieval', '--data', data_dir/'bioasq_beir', '--retriever', 'bm25', '--library', tmp_path/'library',
                   '--answerable', '--k', '10')
    assert (found['n_queries'], found['queries_unanswerable']) == (len(by_hand), len(c.queries) - len(by_hand))
    assert all(m['n'] == len(by_hand) for m in found['measures'].values())
