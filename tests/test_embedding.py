"""What cells cannot show of vectors that are made later, or in another form: processes that are killed, and the commands."""
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import CPQA, complaint, environment, good, hidden, inside, write_beir
from msgspec.structs import replace

from cpqa import CancerQA
from cpqa.core.records import Document
from cpqa.core.storage import beside
from cpqa.literature.library import Library
from cpqa.passages.two_stage import TwoStage
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.growing_rows import GrowingRows
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.vectors import DenseRetriever, Vectors

WORDS = ('tea', 'fatigue', 'leaf', 'dose', 'tamoxifen', 'vitamin', 'polyp', 'lung', 'statin', 'sleep', 'pain')
PAPERS = [Document(str(n), title=f'{WORDS[n % 11]} and {WORDS[n // 11 % 11]}, trial {n}') for n in range(2500)]
QUERIES = ['Does tea help against fatigue?', 'tamoxifen', 'sleep and pain']


def rows_of(folder: Path) -> int:
    "How many rows lie ready for a library."
    begun = beside(folder, 'embedding')
    return GrowingRows(begun, EmbeddedEncoder().dim, 5).done.rows if (begun/'done.json').exists() else 0


def killed_at(folder: Path, rows: int, *words: str) -> int:
    "Runs `library embed` until more than so many rows are made, and kills it; how many were made then."
    running = subprocess.Popen([CPQA, 'library', 'embed', str(folder), *words], env=environment(), stdout=subprocess.DEVNULL)
    note, until = beside(folder, 'embedding')/'done.json', time.monotonic() + 200
    while running.poll() is None and time.monotonic() < until:
        if note.exists() and f'"rows":{rows},' not in note.read_text() and '"rows":0,' not in note.read_text(): break
        time.sleep(0.02)
    assert running.poll() is None, 'it ended before it could be killed'
    running.kill()
    running.wait()
    return rows_of(folder)


@pytest.fixture(scope='module')
def papers(tmp_path_factory):
    "A file of papers, and the library of an undisturbed build."
    folder = tmp_path_factory.mktemp('papers')
    write_beir(folder/'papers.jsonl', PAPERS)
    good('index', 'build', folder/'papers.jsonl', '--out', folder/'whole', how=inside)
    return folder


@pytest.fixture(scope='module')
def begun(papers):
    "A library whose vectors were killed on their way, and how many were made."
    good('index', 'build', papers/'papers.jsonl', '--out', papers/'begun', '--no-vectors', how=inside)
    return papers/'begun', killed_at(papers/'begun', 0)


def copied(begun: Path, out: Path) -> Path:
    shutil.copytree(beside(begun, 'embedding'), beside(out, 'embedding'))
    return shutil.copytree(begun, out)


def found(folder: Path) -> list:
    return [[(h.id, h.score) for h in hits] for hits in DenseRetriever(Vectors(Library(folder), EmbeddedEncoder())).search(QUERIES, 20)]


def test_vectors_that_were_killed_on_their_way_are_those_of_an_undisturbed_build(papers, begun, tmp_path):
    out, first = copied(begun[0], tmp_path/'killed'), begun[1]
    assert 0 < first < len(PAPERS) and Library(out).manifest.parts == {}
    assert good('search', 'tamoxifen', '--library', out, '--retriever', 'bm25', how=inside)   # its terms serve meanwhile
    second = killed_at(out, first)
    assert first < second < len(PAPERS)
    assert f'{len(PAPERS):,} vectors of {len(PAPERS):,} documents' in good('library', 'embed', out)
    assert Library(out).manifest.rates['vectors'] > 0 and ' documents of vectors' in good('library', 'info', out, how=inside)
    Library(out).verify()
    for name in ("index.faiss", "spans.npy", "dates.npy", "kinds.npy"):
        assert (out/'vectors'/name).read_bytes() == (papers/'whole'/'vectors'/name).read_bytes()
    assert found(out) == found(papers/'whole') and hidden(tmp_path) == []


def test_vectors_of_what_matches_a_question_are_those_that_the_documents_have_in_a_whole_library(papers, tmp_path):
    out, where = tmp_path/'some', 'tea[ti] OR statin[ti] OR sleep[ti] OR lung[ti] OR pain[ti]'
    good('index', 'build', papers/'papers.jsonl', '--out', out, '--no-vectors', how=inside)
    asked = {p.id for p in PAPERS if {'tea', 'statin', 'sleep', 'lung', 'pain'} & set(p.title.replace(',', '').split())}
    assert 'matches none of the 2,500 documents' in complaint(inside('library', 'embed', out, '--where', 'gout[ti]'))
    assert hidden(tmp_path) == [] and Library(out).manifest.parts == {}   # nothing is begun, so that another question needs no --afresh
    first = killed_at(out, 0, '--where', where)
    assert 0 < first < len(asked)
    assert "another request (where: tea[ti] OR" in complaint(inside('library', 'embed', out, '--where', 'tea[ti]'))
    said = good('library', 'embed', out, '--where', where, how=inside)
    assert f'{len(asked):,} vectors of 2,500 documents' in said and f'vectors of the {len(asked):,} documents that match' in said
    assert f'of the {len(asked):,} documents that match' in good('library', 'info', out, how=inside)
    assert f"has vectors, of the {len(asked):,} documents that match 'tea[ti] OR" in complaint(inside('library', 'embed', out))
    some, whole = (Vectors(Library(folder), EmbeddedEncoder()) for folder in (out, papers/'whole'))
    assert {id for id, held in zip(some.ids, some.held) if held} == asked
    for id in sorted(asked)[::100]: assert np.allclose(some.of_rows(some.rows_of(id)), whole.of_rows(whole.rows_of(id)), atol=2e-2)
    every = {h.id for hits in DenseRetriever(some).search(QUERIES, 500) for h in hits}
    assert every <= asked and len(every) > 500
    assert {p.id for p in PAPERS if 'tamoxifen' in p.title} == {h.id for h in TermRetriever(Library(out)).search(['tamoxifen'], 999)[0]}
    write_beir(tmp_path/'new.jsonl', [Document('9001', title='Tea against hiccups'), Document('9002', title='Dill against hiccups')])
    good('library', 'update', out, '--files', tmp_path/'new.jsonl', how=inside)
    later = Vectors(Library(out), EmbeddedEncoder())
    assert len(later.ids) == 2502 and {id for id, held in zip(later.ids, later.held) if held} == asked | {'9001'}
    assert '9001' in good('search', 'dill hiccups', '--library', out, '--retriever', 'dense', '-k', '1', how=inside)
    assert '9002' in good('search', 'dill hiccups', '--library', out, '-k', '2', '--reranker', 'cosine', how=inside)


def test_what_lies_ready_for_other_documents_is_not_used(begun, tmp_path):
    out = copied(begun[0], tmp_path/'changed')
    write_beir(tmp_path/'fewer.jsonl', PAPERS[5:])
    good('index', 'build', tmp_path/'fewer.jsonl', '--out', out, '--no-vectors', how=inside)
    assert 'another request' in complaint(inside('library', 'embed', out))
    assert '2,495 vectors' in good('library', 'embed', out, '--afresh', how=inside)


def test_rows_that_are_cut_short_are_said(begun, tmp_path):
    out = copied(begun[0], tmp_path/'cut')
    os.truncate(beside(out, 'embedding')/'vectors.f32', 100)
    assert 'begin afresh' in complaint(inside('library', 'embed', out))
    assert Library(out).manifest.parts == {}


def test_memory_chooses_the_form_and_an_update_keeps_it(papers, tmp_path):
    out = tmp_path/'small'
    said = good('index', 'build', papers/'papers.jsonl', '--out', out, '--memory', '1MB', how=inside)
    assert 'vectors: sq8' in said and 'recall: ' in said and 'exact would read 3.8 MB of 1.0 MB allowed' in said
    assert 'recall' in good('library', 'info', out, how=inside)
    write_beir(tmp_path/'new.jsonl', [Document('9001', title='Dill against hiccups')])
    good('library', 'update', out, '--files', tmp_path/'new.jsonl', how=inside)
    assert Library(out).manifest.parts['vectors']['form'] == 'sq8' and Library(out).manifest.parts['vectors']['vectors'] == 2501
    assert '9001' in good('search', 'dill hiccups', '--library', out, '--retriever', 'dense', '-k', '1', how=inside)
    near = [{id for id, _ in hits[:10]} for hits in found(out)]
    assert all(len(a & {id for id, _ in b[:10]}) >= 8 for a, b in zip(near, found(papers/'whole')))


def lines_of(folder: Path) -> dict[str, str]:
    "What `library info` says, by its first words."
    return {line[:12].strip(): line[13:] for line in good('library', 'info', folder, how=inside).splitlines()}


def updated(folder: Path, papers: list[Document]) -> str:
    write_beir(folder.parent/'new.jsonl', papers)
    return good('library', 'update', folder, '--files', folder.parent/'new.jsonl', how=inside)


def test_what_is_told_of_the_form_is_told_of_the_vectors_that_are_there_now(tmp_path):
    "Sixty in eight bits become 110: why and recall speak of these, and of how many of them are exact no more."
    out = tmp_path/'grown'
    write_beir(tmp_path/'papers.jsonl', PAPERS[:60])
    good('index', 'build', tmp_path/'papers.jsonl', '--out', out, '--memory', '2kB', how=inside)
    before = lines_of(out)
    assert before['form'].startswith('sq8, 60 vectors') and before['recall'].endswith('for 60 passages among 60')
    updated(out, PAPERS[60:110])
    now, r = lines_of(out), Library(out).manifest.parts['vectors']['recall']
    assert now['form'] == ('sq8, 110 vectors of 384 numbers, of which a search reads 42.2 kB: more than the 2.0 kB allowed, '
                           'but no form is smaller (one vector a document: --segmenter document)')
    assert 'for 110 passages among 110, of which 60 were left in eight bits alone; when all were exact: ' in now['recall']
    assert now['recall'].endswith(before['recall']) and (r['of'], r['in_eight_bits'], r['of_exact']['of']) == (110, 60, 60)
    files = {path.name: path.read_bytes() for path in (out/'vectors').iterdir()}
    assert updated(out, PAPERS[:110]).startswith('0 new, 0 revised, 0 withdrawn')
    assert lines_of(out)['recall'] == now['recall'] and {path.name: path.read_bytes() for path in (out/'vectors').iterdir()} == files
    updated(out, [replace(p, title=f'Revised: {p.title}') for p in PAPERS[:110]])   # nothing of eight bits is left
    assert lines_of(out)['recall'].endswith('for 110 passages among 110')


def test_a_library_that_outgrows_its_memory_takes_a_smaller_form(tmp_path):
    "Exact vectors of 100 papers are 154 kB; with 200 papers eight bits fit into 200 kB."
    out = tmp_path/'outgrown'
    write_beir(tmp_path/'papers.jsonl', PAPERS[:100])
    good('index', 'build', tmp_path/'papers.jsonl', '--out', out, '--memory', '200kB', how=inside)
    assert lines_of(out)['form'].startswith('exact, 100 vectors')
    exact = Vectors(Library(out), EmbeddedEncoder())
    updated(out, PAPERS[100:200])
    assert lines_of(out)['form'] == ('sq8, 200 vectors of 384 numbers, of which a search reads 76.8 kB; '
                                     'exact would read 307.2 kB of 200.0 kB allowed')
    assert lines_of(out)['recall'].endswith('for 200 passages among 200')   # all were exact until now
    assert np.allclose(Vectors(Library(out), EmbeddedEncoder()).of_rows(range(100)), exact.of_rows(range(100)), atol=.01)


@pytest.mark.parametrize('words, said, code', [
    (('--memory', '4'), 'must be a size such as 500MB or 4GB', 2),
    (('--memory', '1GB', '--no-vectors'), 'give one of them', 1),
])
def test_a_memory_that_cannot_be_is_refused(papers, tmp_path, words, said, code):
    assert said in complaint(inside('index', 'build', papers/'papers.jsonl', '--out', tmp_path/'out', *words), code)


def test_a_library_that_has_vectors_says_so(papers):
    assert '--afresh' in complaint(inside('library', 'embed', papers/'whole'))


def test_one_vector_a_document_is_built_asked_updated_and_merged(tmp_path):
    "Papers of three passages each: a third of the vectors, and the passages are still what is read and quoted."
    long = lambda d, n: replace(d, text=' '.join(f'In trial {d.id} {d.title} were looked at by nurse {i} of ward {n}.' for i in range(30)))
    write_beir(tmp_path/'papers.jsonl', [long(p, n) for n, p in enumerate(PAPERS[:12])])
    write_beir(tmp_path/'more.jsonl', [long(p, n) for n, p in enumerate(PAPERS[12:20])])
    for name, files in (('a', 'papers'), ('b', 'more')):
        good('index', 'build', tmp_path/f'{files}.jsonl', '--segmenter', 'document:128:0', '--out', tmp_path/name, how=inside)
    told = lines_of(tmp_path/'a')
    assert told['passages'].startswith('cut by document:') and told['form'].startswith('exact, 12 vectors')
    vectors = Vectors(Library(tmp_path/'a'), EmbeddedEncoder())
    passages = TwoStage(vectors).candidates(list(vectors.library))[0]
    assert len(vectors.spans) == 12 and len(passages) >= 3 * 12
    trace = CancerQA(tmp_path/'a').ask('Does tea help against fatigue?').trace
    assert trace['passages']['candidates'] >= 3 * trace['documents'] > 0
    assert updated(tmp_path/'a', [long(PAPERS[30], 30)]).startswith('1 new')
    assert lines_of(tmp_path/'a')['form'].startswith('exact, 13 vectors')
    good('library', 'merge', tmp_path/'a', tmp_path/'b', '--out', tmp_path/'both', how=inside)
    both = Vectors(Library(tmp_path/'both'), EmbeddedEncoder())
    assert both.whole and len(both.spans) == 21
    for id in ('3', '30'): np.testing.assert_allclose(both.of_rows(both.rows_of(id)), row_of(tmp_path/'a', id), atol=1e-3)


def row_of(folder: Path, id: str) -> np.ndarray:
    vectors = Vectors(Library(folder), EmbeddedEncoder())
    return vectors.of_rows(vectors.rows_of(id))
