"""Records under random input: spans that fit, round trips through JSON, and what they refuse."""
import json

import msgspec
import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.records import (Answer, Citation, Correction, Document, Evidence, Hit, MeshHeading, MeshTerm, Passage, Section)
from cpqa.core.remarks import said

words = st.text(max_size=20)                                         # all of Unicode but surrogates, which JSON cannot hold
ids = st.text(st.characters(exclude_categories=['C', 'Z']), min_size=1, max_size=8)   # printable, no white space
years = st.none() | st.integers(1800, 2100)
scores = st.floats(allow_nan=False, allow_infinity=False)
terms = st.builds(MeshTerm, words, words, st.booleans())
headings = st.builds(MeshHeading, terms, st.lists(terms, max_size=2).map(tuple))
corrections = st.builds(Correction, words, words, words)
hits = st.builds(Hit, words, scores)


@st.composite
def documents(draw, min_size=0):
    text = draw(st.text(min_size=min_size, max_size=200))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    sections = tuple(Section(draw(words), a, b) for a, b in zip(cuts[::2], cuts[1::2]))
    few = lambda strategy: draw(st.lists(strategy, max_size=2).map(tuple))
    return Document(draw(ids), draw(words), text, sections, draw(years), draw(words), few(words), few(headings), few(words),
                    draw(words), draw(words), few(corrections), draw(words))


@st.composite
def spans(draw):
    document = draw(documents(min_size=1))
    start = draw(st.integers(0, len(document.text) - 1))
    return document, start, draw(st.integers(start + 1, len(document.text)))


passages = spans().map(lambda s: Passage.of(*s))
evidence = st.builds(Evidence, passages, scores, words, words, words, words, st.booleans())


@st.composite
def citations(draw, pmids=ids):
    p = draw(passages)
    return Citation(draw(pmids), p.text, p.start, p.end, draw(scores), draw(words), draw(years), draw(words), draw(words))


def answers(pmids=ids):
    return st.builds(Answer, words, words, st.lists(citations(pmids), max_size=4).map(tuple), st.lists(evidence, max_size=2).map(tuple),
                     st.booleans(), st.lists(words.map(said), max_size=2).map(tuple), words, st.dictionaries(words, scores, max_size=3),
                     words)


@given(spans())
def test_a_passage_is_a_span_of_its_document(span):
    document, start, end = span
    p = Passage.of(document, start, end)
    assert document.text[p.start:p.end] == p.text
    assert (p.doc_id, p.title, p.year) == (document.id, document.title, document.year)
    holding = [s.label for s in document.sections if s.start <= start < s.end]
    assert p.section == (holding[0] if holding else '')


@given(documents(), st.integers(-5, 250), st.integers(-5, 250))
def test_what_is_no_span_is_refused(document, start, end):
    if 0 <= start < end <= len(document.text): assert Passage.of(document, start, end).text == document.text[start:end]
    else:
        with pytest.raises(ValueError, match='is not a span of the text of'): Passage.of(document, start, end)


@given(passages, st.integers(-3, 3))
def test_a_passage_that_does_not_fit_its_text_is_refused(p, off):
    make = lambda: Passage(p.doc_id, p.start, p.end + off, p.text)
    if off == 0: assert make().text == p.text
    else:
        with pytest.raises(ValueError, match='does not fit'): make()


@cases('record', [documents(), passages, hits, evidence, citations(), answers()])
def test_json_there_and_back(record):
    @given(record)
    def there_and_back(r):
        cls = type(r)
        assert cls.from_json(r.to_json()) == r
        assert cls.from_json(r.to_json().encode()) == r
        assert cls.from_dict(json.loads(r.to_json())) == r          # what another program would read is the same record
        assert cls.from_dict(r.to_dict()) == r
    there_and_back()


@given(st.characters(categories=['Cs']))
def test_a_lone_surrogate_is_an_error_not_a_changed_letter(surrogate):
    with pytest.raises(UnicodeEncodeError, match='surrogates not allowed'): Document('1', text=f'a{surrogate}b').to_json()


@cases('record', [documents(), passages, hits, evidence, citations(), answers()])
def test_records_do_not_change(record):
    @given(record)
    def unchanged(r):
        before = r.to_json()
        for field in r.__struct_fields__:
            with pytest.raises(AttributeError): setattr(r, field, getattr(r, field))
            with pytest.raises(AttributeError): delattr(r, field)
        with pytest.raises(AttributeError): r.another = 1
        assert r.to_json() == before
    unchanged()


@given(answers(pmids=st.sampled_from(['1', '2', '3'])))
def test_used_pmids_are_unique_and_in_the_order_of_citation(answer):
    used, cited = answer.used_PMIDs, [c.pmid for c in answer.citations]
    assert len(set(used)) == len(used) and set(used) == set(cited)
    assert [cited.index(pmid) for pmid in used] == sorted(cited.index(pmid) for pmid in used)
    assert json.loads(answer.to_json())['used_PMIDs'] == list(used)


@given(ids, st.sampled_from(' \t\n\u00a0'), ids)
def test_an_id_holds_no_white_space(before, space, after):
    for bad in ('', space, before + space, before + space + after):
        with pytest.raises(ValueError, match='needs an id'): Document(bad)


@given(documents())
def test_a_section_outside_its_text_is_refused(document):
    with pytest.raises(ValueError, match='outside its text'):
        Document(document.id, text=document.text, sections=(Section('S', 0, len(document.text) + 1),))


def test_a_wrong_type_names_its_field():
    with pytest.raises(msgspec.ValidationError, match=r'\$\.score'): Hit.from_json('{"id": "1", "score": "high"}')
