"""What is written reads back: random documents, real records, and a file that could not be written."""
import gzip
from datetime import date

import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cpqa.core.errors import CpqaError
from cpqa.core.records import Correction, Document, MeshHeading, MeshTerm, Section
from cpqa.literature.pubmed import read_pubmed, tidy
from cpqa.literature.pubmed_records import read_record
from cpqa.literature.pubmed_writer import pubmed_xml, write_pubmed

CHARACTERS = st.one_of(st.characters(exclude_categories=('Cs',)), st.sampled_from('<>&"\'\t\n :^_'), st.sampled_from('ab 01'))
LINE = st.text(CHARACTERS, max_size=40).map(tidy)
WORDS = LINE.filter(bool)
UI = st.from_regex('[DQ][0-9]{1,6}', fullmatch=True)
TERM = st.builds(MeshTerm, LINE, UI, st.booleans())
AUTHOR = st.one_of(WORDS,
                   st.sampled_from(['Hambrick GW Jr', 'van der Berg A', 'Lee', 'WHO', 'Toy Study Group', 'Jr', 'A B', 'Müller Ä 3rd',
                                    'Lee Jr']))
YEAR = st.integers(1500, 2099)
DATE = st.one_of(st.just(''), YEAR.map(str), st.builds('{}-{:02}'.format, YEAR, st.integers(1, 12)),
                 st.dates(date(1500, 1, 1), date(2099, 12, 31)).map(str))
LABEL = WORDS.map(lambda t: t.rstrip(' :')).filter(lambda t: t and t.upper() != 'UNLABELLED')


@st.composite
def abstracts(draw):
    "A text and its sections, as reading makes them."
    text, sections = '', []
    for label, body in draw(st.lists(st.tuples(st.one_of(st.just(''), st.sampled_from(['AIM', 'MATERIALS & METHODS', 'RESULTS']), LABEL),
                                               WORDS), max_size=4)):
        text += '\n' * bool(text) + (f'{label}: ' if label else '')
        if label: sections.append(Section(label, len(text), len(text) + len(body)))
        text += body
    return text, tuple(sections)


@st.composite
def written(draw):
    "A document as reading PubMed makes them."
    (text, sections), when, short = draw(abstracts()), draw(DATE), draw(LINE)
    corrections = st.builds(Correction, st.sampled_from(['ErratumIn', 'RetractionIn', 'CommentOn']),
                            st.one_of(st.just(''), st.integers(1).map(str)), LINE)
    number = draw(st.integers(1, 10**8))
    return Document(str(number), title=draw(LINE), text=text, sections=sections, year=int(when[:4]) if when else None, date=when,
                    journal=draw(WORDS) if short else draw(LINE),
                    journal_abbr=short, publication_types=tuple(draw(st.lists(WORDS, max_size=3))),
                    languages=tuple(draw(st.lists(WORDS, max_size=2))),
                    mesh=tuple(draw(st.lists(st.builds(MeshHeading, TERM, st.lists(TERM, max_size=2).map(tuple)), max_size=3))),
                    doi=draw(st.sampled_from(['', f'10.1000/toy.{number}', '10.1/a<b>&c'])),
                    pmcid=draw(st.sampled_from(['', f'PMC{number}'])),
                    corrections=tuple(draw(st.lists(corrections, max_size=2))), authors=tuple(draw(st.lists(AUTHOR, max_size=4))),
                    revised=draw(DATE))


@examples(60)
@given(st.lists(written(), max_size=3))
def test_random_documents_come_back(tmp_path_factory, documents):
    path = tmp_path_factory.getbasetemp()/'written.xml'
    assert write_pubmed(documents, path) == len(documents)
    assert list(read_pubmed(path)) == documents
    assert [read_record(pubmed_xml(d), '') for d in documents] == documents


def test_real_records_come_back(data_dir, tmp_path):
    files = sorted((data_dir/'entrez').glob('pubmed*.xml'))
    if not files: pytest.skip('no recorded answers of efetch')
    real = [d for path in files for d in read_pubmed(path)]
    assert real and all(d.authors and d.date and d.journal_abbr for d in real)
    write_pubmed(real, tmp_path/'real.xml.gz')
    assert list(read_pubmed(tmp_path/'real.xml.gz')) == real


def test_it_stands_as_nlm_writes_it(data_dir):
    "The elements of a real record that we write are in the order of the real one."
    path = data_dir/'entrez'/'pubmed5.xml'
    if not path.exists(): pytest.skip('no recorded answers of efetch')
    def order(e): return list(dict.fromkeys(c.tag for c in e))
    for real, ours in zip(etree.parse(path).getroot(), map(pubmed_xml, read_pubmed(path))):
        for place in ('.', 'MedlineCitation', 'MedlineCitation/Article', 'MedlineCitation/Article/Journal', 'PubmedData'):
            both = set(order(real.find(place))) & set(order(ours.find(place)))
            assert [t for t in order(ours.find(place)) if t in both] == [t for t in order(real.find(place)) if t in both]


def test_what_xml_forbids_is_dropped():
    bad = Document('1', title='a\x00b\x0bc\ufffed\ud800e', text='x\x1by', authors=('A\x01 B',))
    d = read_record(etree.fromstring(etree.tostring(pubmed_xml(bad), encoding='utf-8')), '')
    assert (d.title, d.text, d.authors) == ('abcde', 'xy', ('A B',))


def test_any_sections_keep_the_words():
    "Sections that reading PubMed would not make: nested, touching, over several lines."
    text = 'Start. Methods\nwere old. They\n\nwere good. End'
    d = Document('1', text=text, sections=(Section('M', 7, 29), Section('IN', 15, 20), Section('R', 29, len(text))))
    back = read_record(pubmed_xml(d), '')
    assert ' '.join(back.text.split()) == 'Start. M: Methods were old. They R: were good. End' and [s.label for s in back.sections] == ['M',
        'R']


@pytest.mark.parametrize('name', ['out.xml', 'out.xml.gz'])
def test_a_failed_file_leaves_the_old_one(tmp_path, name):
    path = tmp_path/name
    write_pubmed([Document('1')], path)
    before = path.read_bytes()
    with pytest.raises(CpqaError, match='PMC9.*must be a PMID'): write_pubmed([Document('1'), Document('PMC9')], path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [name]
    assert (before[:2] == b'\x1f\x8b') == name.endswith('.gz')
    assert b'<!DOCTYPE PubmedArticleSet PUBLIC' in (gzip.decompress(before) if name.endswith('.gz') else before)


def test_nothing_is_a_file_too(tmp_path):
    assert write_pubmed(iter([]), tmp_path/'none.xml') == 0 and list(read_pubmed(tmp_path/'none.xml')) == []
