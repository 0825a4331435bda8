"What is left out before a search is what would be left out after it, by words and by meaning, in new libraries and in those of before."
import json
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers import complaint, good, inside, write_xml

from cpqa.core.errors import CpqaError
from cpqa.core.records import PLACES, Document
from cpqa.literature import library as library_room
from cpqa.literature.library import Library, build_library
from cpqa.literature.library_updates import update_library
from cpqa.literature.pubmed import Deleted
from cpqa.literature.study_kinds import STUDY_KINDS, study_kind, type_of_kind
from cpqa.pipeline import CancerQA
from cpqa.retrieval import limits as limits_room
from cpqa.retrieval import vectors as vectors_room
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.retrieval.dual_path import bounds, why_not
from cpqa.retrieval.limits import ANY, Limits
from cpqa.retrieval.sources import Scope
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.vectors import DenseRetriever, VectorPart, Vectors

WORDS = ('tea', 'fatigue', 'leaf', 'dose', 'tamoxifen', 'vitamin', 'polyp', 'statin')
QUERIES = ['tea against fatigue', 'tamoxifen or a statin']
BOUNDS = [(None, None), (2019, None), ('2019/03', 2020), (None, '2019-06'), ('2018-11-20', '2019-03-05'), (2021, 2021)]
KINDS = [(), ('randomised trial',), ('review', 'case report'), ('information page',)]


class Drawn:
    "An encoder without a model: the letters of a text, counted."
    dim = 16
    def encode(self, texts, kind='document'):
        counts = np.array([[str(t).lower().count(c) for c in 'abdefgilmnoprstv'] for t in texts], dtype=np.float32).reshape(-1, 16)
        return counts / np.maximum(1e-6, np.linalg.norm(counts, axis=1, keepdims=True))
    def describe(self): return {'model': 'drawn'}


def drawn(n: int) -> list[Document]:
    "Papers with dates that are known to the day, the month, the year or not at all, of every kind."
    r, out = random.Random(3), list[Document]()
    for i in range(n):
        when = r.choice(('', '2018', '2019', '2020-01', '2019-03', '2019-06', '2018-11-19', '2018-11-20', '2019-03-05', '2019-03-06'))
        types = tuple(filter(None, [type_of_kind(r.choice(('', *STUDY_KINDS)))]))
        out.append(Document(str(i), title=' and '.join(r.choices(WORDS, k=3)), text=f'A trial of {r.choice(WORDS)}, number {i}.', date=when,
                            year=int(when[:4]) if when else None, publication_types=types))
    return out


PAPERS = drawn(600)


@pytest.fixture(scope='module')
def papers(tmp_path_factory):
    return build_library([PAPERS], tmp_path_factory.mktemp('limits')/'papers', [VectorPart(Drawn(), lambda d: [])])


def left(hits: list, since, until, study) -> list:
    "The hits that may stay, found out after the search, from the documents themselves."
    by_id, (first, last) = {d.id: d for d in PAPERS}, bounds(since, until)
    return [h for h in hits if not why_not(by_id[h.id], first, last) and (not study or study_kind(by_id[h.id]) in study)]


@pytest.mark.parametrize('bound, study', [*product(BOUNDS, KINDS)])
def test_what_is_left_out_before_a_search_is_what_would_be_after_it(papers, bound, study):
    only, vectors = Limits(*bounds(*bound), study), Vectors(papers, Drawn())
    for every, few in ((TermRetriever(papers), TermRetriever(papers, only=only)), (DenseRetriever(vectors), DenseRetriever(vectors, only))):
        for all_hits, wide, near in zip(every.search(QUERIES, 600), few.search(QUERIES, 600), few.search(QUERIES, 5)):
            expected = left(all_hits, *bound, study)
            assert {h.id: h.score for h in wide} == pytest.approx({h.id: h.score for h in expected}, abs=1e-5)
            best = [h.score for h in expected[:5]]   # as many as are wanted, however few are meant
            assert [h.score for h in near] == pytest.approx(best, abs=1e-5)
    if study:
        index = BooleanIndex(papers)
        expected = left(index.search('tea[ti]', 600).hits, None, None, study)
        assert set(index.search('tea[ti]', 600, study=study).ids) == {h.id for h in expected}


def test_every_way_to_ask_is_limited(papers):
    scope = Scope(papers, since='2019', study='randomised trial')
    qa = CancerQA(scope)
    assert {study_kind(d) for d in qa.documents([h.id for h in qa.search('tea', 20, 'bm25')])} == {'randomised trial'}
    assert all(d.year >= 2019 for d in qa.documents([h.id for h in qa.search('tea[ti]', 20, 'boolean')]))
    with pytest.raises(CpqaError, match='no kind of study'): Scope(papers, study=('poem',))


def test_a_library_of_an_earlier_version_says_what_it_does_not_know(tmp_path, monkeypatch):
    facts = library_room.facts
    with monkeypatch.context() as before:
        before.setattr(library_room, 'facts', lambda d: {f for f in facts(d) if not f.startswith('study:')})
        old = build_library([PAPERS[:50]], tmp_path/'old')
    study = Limits(study=('review',))
    assert not old.studied and TermRetriever(old, only=Limits('2019')).search(['tea'], 5)[0]
    with pytest.raises(CpqaError, match='did not note kinds of study: build it again'): TermRetriever(old, only=study).search(['tea'], 5)
    later, _ = update_library(old.folder, [[PAPERS[51]]])   # one that knows its kind, among fifty that do not
    with pytest.raises(CpqaError, match='build it again'): TermRetriever(later, only=study).search(['tea'], 5)
    assert Library(later.folder).studied is False and build_library([PAPERS[:5]], tmp_path/'new').studied
    assert TermRetriever(later, only=ANY).search(['tea'], 5)[0]


PLACED = [Document(id, title='Tea and fatigue', text=f'Tea eased fatigue, number {n}.', link=link)
          for n, (id, link) in enumerate([('7', ''), ('8', ''), ('PMC7', ''), ('NCI-7', 'https://www.cancer.gov/7'), ('mine', '')])]


@pytest.mark.parametrize('place', [('pubmed',), ('pmc',), ('page', 'other'), PLACES])
def test_every_search_keeps_to_places(place, tmp_path):
    library = build_library([PLACED], tmp_path/'placed', [VectorPart(Drawn(), lambda d: [])])
    expected, only = {d.id for d in PLACED if d.place in place}, Limits(place=place)
    vectors = Vectors(library, Drawn())
    for search in (TermRetriever(library, only=only), DenseRetriever(vectors, only)):
        assert {h.id for h in search.search(['tea against fatigue'], 9)[0]} == expected
    assert set(BooleanIndex(library).search('tea[ti]', 9, place=place).ids) == expected
    later, _ = update_library(library.folder, [[Document('PMC8', title='Tea'), Deleted('8')]], [VectorPart(Drawn(), lambda d: [])])
    now = expected - {'8'} | ({'PMC8'} if 'pmc' in place else set())
    assert {h.id for h in DenseRetriever(Vectors(later, Drawn()), only).search(['tea'], 9)[0]} == now


def test_a_library_of_before_does_not_know_its_places(tmp_path, monkeypatch):
    facts = library_room.facts
    with monkeypatch.context() as before:
        before.setattr(library_room, 'facts', lambda d: {f for f in facts(d) if not f.startswith('place:')})
        before.setattr(limits_room, 'PLACES', ())
        before.setattr(vectors_room, 'PLACES', ())
        before.setattr(vectors_room, 'kind_number', lambda d: 0)
        old = build_library([PLACED], tmp_path/'old', [VectorPart(Drawn(), lambda d: [])])
    only = Limits(place=('pmc',))
    with pytest.raises(CpqaError, match='did not note where documents are'): TermRetriever(old, only=only).search(['tea'], 5)
    vectors = Vectors(old, Drawn())
    with pytest.raises(CpqaError, match='did not note places: make them anew'): DenseRetriever(vectors, only).search(['tea'], 5)
    later, _ = update_library(old.folder, [[Document('PMC8', title='Tea')]], [VectorPart(Drawn(), lambda d: [])])
    assert {h.id for h in DenseRetriever(Vectors(later, Drawn()), only).search(['tea'], 9)[0]} == {'PMC7', 'PMC8'}


def test_the_commands_leave_out_what_is_not_meant(tmp_path: Path):
    texts = [('1', 'Tamoxifen and recurrence: a randomised trial', 2019), ('2', 'Tamoxifen and recurrence: a systematic review', 2020),
             ('3', 'Tamoxifen and recurrence: a randomised trial', 2009)]
    said = 'Tamoxifen lowered the recurrence of breast cancer.'
    write_xml(tmp_path/'papers.xml', [Document(i, title=t, text=said, year=y, date=str(y)) for i, t, y in texts])
    good('index', 'build', tmp_path/'papers.xml', '--out', tmp_path/'out', how=inside)
    at = ('--library', tmp_path/'out', '--json')
    found = lambda *words: {h['id'] for h in json.loads(good('search', 'tamoxifen', *at, *words, how=inside))}
    assert found('--study', 'randomised trial') == {'1', '3'} and found('--since', '2010', '--study', 'randomised trial') == {'1'}
    assert found('--until', '2019', '--retriever', 'bm25') == {'1', '3'}
    assert found('--study', 'review', '--study', 'systematic review') == {'2'}
    said = json.loads(good('ask', 'Does tamoxifen lower breast cancer recurrence?', *at, '--study', 'systematic review', how=inside))
    assert {e['passage']['doc_id'] for e in said['evidence']} == {'2'}
    assert found('--place', 'pubmed') == {'1', '2', '3'} and found('--place', 'pmc', '--place', 'page') == set()
    said = json.loads(good('ask', 'Does tamoxifen lower breast cancer recurrence?', *at, '--place', 'pmc', how=inside))
    assert said['evidence'] == []
    assert 'must be one of pubmed, pmc' in complaint(inside('search', 'tamoxifen', *at, '--place', 'shelf'), 2)
    assert 'must be one of guideline' in complaint(inside('search', 'tamoxifen', *at, '--study', 'poem'), 2)
