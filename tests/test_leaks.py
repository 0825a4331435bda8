"""Searches without leaks: the best allowed documents in their order, and no deeper search than it takes."""
import pytest
from helpers import question

from cpqa.core.records import Document, Hit
from cpqa.testing.toy_corpus import TOY
from cpqa.evaluation.collections import LeakFree, Question, allowed_grades, leak_free
from cpqa.literature.library import LibraryError, build_library
from cpqa.retrieval.term_search import TermRetriever


@pytest.fixture(scope='module')
def library(tmp_path_factory):
    "Forty documents on polyps, the earlier ones the better hits, of the years 1990 to 2029; every tenth has no year."
    documents = [Document(id=f'd{i}', title='polyps ' * (40 - i), text='word ' * 60, year=None if i % 10 == 9 else 1990 + i,
                          pmcid=f'PMC{i}') for i in range(40)]
    return build_library([documents, TOY], tmp_path_factory.mktemp('leak')/'lib')


def found(library, switches: LeakFree, k: int, *written: str) -> list[str]:
    q = Question('q', 'polyps', 'open', 'toy', written_from=written)
    return [h.id for h in leak_free(TermRetriever(library).search, library, switches)([q], k)[0]]


def test_k_allowed_documents_remain_in_their_order(library):
    everything = [h.id for h in TermRetriever(library).search(['polyps'], 100)[0]]
    assert len(everything) == 42
    year = {d.id: d.year for d in library}
    for undated in ('drop', 'keep'):
        for until in (None, 1989, 1990, 2000, 2015, 2029):
            for written in ((), (everything[0], everything[2], 'unknown')):
                for k in (1, 3, 10, 100):
                    allowed = [id for id in everything if id not in written
                               and (until is None or (undated == 'keep' if year[id] is None else year[id] <= until))]
                    assert found(library, LeakFree(True, until, undated), k, *written) == allowed[:k]


def test_a_source_is_known_by_its_pmcid_too(library):
    first = TermRetriever(library).search(['polyps'], 1)[0][0].id
    assert found(library, LeakFree(), 1, 'PMC' + first[1:]) != [first] == found(library, LeakFree(exclude_source=False), 1,
        'PMC' + first[1:])


def test_it_asks_deeper_only_where_it_must(library):
    calls = []
    def search(queries, k):
        calls.append((list(queries), k))
        return TermRetriever(library).search(queries, k)
    first = TermRetriever(library).search(['polyps'], 3)[0]
    questions = [Question('a', 'polyps', 'open', 'toy', written_from=(first[1].id,)), Question('b', 'tamoxifen', 'open', 'toy'),
                 Question('c', 'polyps', 'open', 'toy')]
    hits = leak_free(search, library, LeakFree())(questions, 2)
    assert calls == [(['polyps', 'tamoxifen', 'polyps'], 2), (['polyps'], 4)]
    assert [[h.id for h in h_] for h_ in hits] == [[first[0].id, first[2].id], ['t3'], [first[0].id, first[1].id]]
    assert leak_free(search, library, LeakFree())([], 5) == []


def test_judgements_lose_what_the_search_cannot_find(library):
    grades = {f'd{i}': i % 3 for i in range(40)} | {'elsewhere': 1, 'd99': 2}
    q = Question('q', 'polyps', 'open', 'toy', written_from=('PMC4', 'd99'))
    for switches in (LeakFree(), LeakFree(False), LeakFree(True, 2000), LeakFree(False, 2000, 'keep')):
        kept = allowed_grades(grades, q, library, switches)
        findable = {h.id for h in leak_free(TermRetriever(library).search, library, switches)([q], 100)[0]}
        assert {d for d in kept if d in library} == findable & grades.keys() and all(kept[d] == grades[d] for d in kept)
        assert 'elsewhere' in kept and ('d99' in kept) == (not switches.exclude_source)


def test_a_hit_that_the_library_does_not_hold_is_an_error(library):
    with pytest.raises(LibraryError): leak_free(lambda queries, k: [[Hit('nowhere', 1.0)]], library, LeakFree())([question(1)], 1)
