"""The glossary as data, and its words in texts that nobody wrote for it."""
import gzip
import json
import re

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.glossary import GLOSSARY_FILE, Term, Vocabulary, explained, glossary, mesh_terms
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.pubmed import ReadError

OWN = Vocabulary(glossary())


def names(text: str) -> list[str]: return [t.name for t, _ in OWN.find(text)]


def test_the_file_is_in_order():
    rows = [json.loads(line) for line in GLOSSARY_FILE.read_text(encoding='utf-8').splitlines()]
    assert all(set(r) - {'sign'} == {'name', 'forms', 'means', 'beside', 'everyday'} for r in rows) and len(rows) >= 150
    assert [r['name'] for r in rows] == sorted((r['name'] for r in rows), key=str.lower)
    forms = [f for r in rows for f in (r['name'], *r['forms'])]
    assert len(forms) == len(set(forms)) and all(f == f.strip() and f for f in forms)


@cases('term', glossary())
def test_a_term(term: Term):
    assert 3 <= len(term.means.split()) < 25 and term.means[0].isupper() and term.means.endswith('.')
    assert not re.search(r'\b(you|your|cure)\b|[<>{}]', term.means)   # it says what a word means, and nothing to or of the reader
    for form in (term.name, *term.forms):
        assert term.name in names(f'They spoke of {form}. {" ".join(term.beside[:1])}'), form


@cases('text, found', [
    ('Randomized, double-blind, placebo-controlled trial', ['randomised', 'blinded', 'placebo']),
    ('disease free survival and overall survival', ['disease-free survival', 'overall survival']),
    ('OS was 12 months; the OS of the computer', ['overall survival']), ('The OS crashed.', []), ('THIS OR THAT', []),
    ('her left arm and her heart rate (HR 80)', []),
    ('NSCLC with EGFR mutations', ['non-small cell lung cancer', 'EGFR', 'mutation']), ('eGFR fell', []),
    ('non-small-cell lung cancer', ['non-small cell lung cancer']), ('CRS with HIPEC', ['HIPEC']),
    ('CRS after CAR-T cells', ['cytokine release syndrome', 'CAR-T']),
    ('METASTATIC MELANOMA', ['metastasis', 'melanoma']), ('tumor markers', ['tumour marker']),
    ('haematopoietic stem cell transplantation', ['stem cell transplantation']),
    ('The p-value was small (P < 0.05).', ['p-value']), ('stage IV', ['stage IV']), ('phase III', ['phase 3']), ('', []),
    ('Tea is hot.', [])])
def test_words_in_a_text(text, found): assert names(text) == found


def test_hard_words_come_before_everyday_words():
    text = 'After chemotherapy, radiotherapy and biopsy the side effects were neuropathy, cachexia and mucositis.'
    assert list(explained(text, most=3)) == ['neuropathy', 'cachexia', 'mucositis']
    assert list(explained(text, most=4)) == ['chemotherapy', 'neuropathy', 'cachexia', 'mucositis']
    assert len(explained(text, most=99)) == 7 and explained(text, most=-1) == {}


def test_the_word_of_the_text_is_explained():
    assert list(explained('Relapse was rare under active surveillance; BRCA2 and CA125 were told.')) == [
        'relapse', 'active surveillance', 'BRCA2', 'CA125']
    assert not {'grade 3', 'grade 3-4'} & {*explained('A grade 3 tumour of 2 cm')} and explained('Grade 3 toxicity was rare.')


def test_abbreviations_are_spelled_out():
    assert list(explained('PFS was 9 months (HR 0.5, 95% CI 0.3-0.8).')) == ['PFS (progression-free survival)', 'HR (hazard ratio)',
        '95% CI (confidence interval)']


@given(st.text(max_size=300))
def test_any_text(text):
    said = explained(text)
    assert len(said) <= 6 and all(k and v for k, v in said.items())


def test_most_notes_of_the_demo_library_hold_a_word():
    found = [explained(n.text) for n in demo_notes()]
    assert sum(map(bool, found)) > 0.5 * len(found)


# ---- MeSH

def descriptor(name: str, tree: str, note: str, entry: str = '') -> str:
    terms = ''.join(f'<Term><String>{t}</String></Term>' for t in (name, entry) if t)
    return (
        f'<DescriptorRecord><DescriptorUI>D000001</DescriptorUI><DescriptorName><String>{name}</String></DescriptorName>'
        f'<TreeNumberList><TreeNumber>{tree}</TreeNumber></TreeNumberList>'
        '<ConceptList><Concept PreferredConceptYN="N"><ScopeNote>Another thing.</ScopeNote>'
        '<TermList><Term><String>Other</String></Term></TermList></Concept>'
        f'<Concept PreferredConceptYN="Y">{f"<ScopeNote>{note}</ScopeNote>" if note else ""}<TermList>{terms}</TermList></Concept>'
        '</ConceptList></DescriptorRecord>'
    )


def test_scope_notes_of_diseases_and_drugs(tmp_path):
    rows = [descriptor('Toyitis', 'C23.1', 'A disease of toys (wooden ones). It is rare.', 'Doll Disease'),
            descriptor('Visitors', 'M01.2', 'People who visit.'), descriptor('Mute', 'C01.1', ''),
            descriptor('Toyazole', 'D02.1', 'A drug against toyitis.'), descriptor('Melanoma', 'C04.5', 'Not ours.')]
    path = tmp_path/'desc2027.xml.gz'
    path.write_bytes(gzip.compress(f'<DescriptorRecordSet>{"".join(rows)}</DescriptorRecordSet>'.encode()))
    terms = list(mesh_terms(path))
    assert [(t.name, t.means) for t in terms] == [('Toyitis', 'A disease of toys (wooden ones).'), ('Toyazole', 'A drug against toyitis.'),
                                                  ('Melanoma', 'Not ours.')]
    both = Vocabulary(glossary(), terms)
    said = explained('Doll disease, visitors, toyazole and melanoma', vocabulary=both)
    assert list(said) == ['Doll Disease', 'Toyazole', 'melanoma'] and said['Toyazole'].endswith('(MeSH)')
    assert 'Not ours' not in said['melanoma']


@pytest.mark.parametrize('data', [b'', b'<html></html>', b'<DescriptorRecordSet><DescriptorRecord>', b'mesh_id,mesh_name\n',
                                  b'<!DOCTYPE x [<!ENTITY a "b">]><DescriptorRecordSet/>'])
def test_what_is_no_descriptor_file_is_refused(tmp_path, data):
    path = tmp_path/'desc.xml'
    path.write_bytes(data)
    with pytest.raises(ReadError): list(mesh_terms(path))


def test_ascii_records(tmp_path):
    path = tmp_path/'d2027.bin'
    path.write_bytes(b'*NEWRECORD\nRECTYPE = D\nMH = Toyitis\nENTRY = Doll Disease|T047\nMN = C23.888\nMS = A disease of toys. It is '
                     b'rare.\nUI = D000001\n\n'
                     b'*NEWRECORD\nRECTYPE = D\nMH = B\xff\nMN = C1\nMS = x\nUI = D000002\n')
    assert [(t.name, t.forms, t.means) for t in mesh_terms(path)] == [('Toyitis', ('Doll Disease',), 'A disease of toys.')]
