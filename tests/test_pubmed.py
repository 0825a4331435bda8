"""What the cells of literature/pubmed cannot show: real files, hostile files, broken files, random records, and memory."""
import gzip
import http.server
import random
import re
import subprocess
import sys
import threading
import unicodedata
import urllib.request
import warnings

import pytest
from Bio import Entrez
from conftest import NIGHTLY, ROOT, cases, examples
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cpqa.core.records import Correction, Document, MeshHeading, MeshTerm
from cpqa.literature.article_files import documents, read_file
from cpqa.literature.pubmed import Deleted, ReadError, Skipped, inline_text, read_beir, read_pubmed, tidy
from cpqa.literature.pubmed_records import math_text, year_in

DOCTYPE = ('<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
           '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">')


# ---- a builder: the least of a record, and what a test wants in it

def add(parent, path, text=None, **attributes):
    "A new element at `path` below `parent`, whose last step is new and whose other steps are shared."
    *steps, last = path.split('/')
    for step in steps: parent = e if (e := parent.find(step)) is not None else etree.SubElement(parent, step)
    e = etree.SubElement(parent, last, attributes)
    e.text = text
    return e


def article(pmid='1', title='A title.', year=None):
    e = etree.Element('PubmedArticle')
    if pmid is not None: add(e, 'MedlineCitation/PMID', pmid, Version='1')
    if year: add(e, 'MedlineCitation/Article/Journal/JournalIssue/PubDate/Year', year)
    add(e, 'MedlineCitation/Article/ArticleTitle', title)
    return e


def article_set(*records, doctype=DOCTYPE) -> bytes:
    inside = b'\n'.join(r if isinstance(r, bytes) else etree.tostring(r, encoding='utf-8') for r in records)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{doctype}\n<PubmedArticleSet>\n'.encode() + inside + b'\n</PubmedArticleSet>'


@pytest.fixture
def put(tmp_path):
    "Writes bytes into a file of that name, packed if the name ends in .gz, and returns its path."
    def write(name, data, pack=True):
        (tmp_path/name).write_bytes(gzip.compress(data) if pack and name.endswith('.gz') else data)
        return tmp_path/name
    return write


def read(put, *records, **kwargs): return list(read_file(put('a.xml', article_set(*records, **kwargs))))
def one(put, record) -> Document: return read(put, record)[0]
def inline(xml) -> str: return inline_text(etree.fromstring(f'<t>{xml}</t>'))
def formula(xml) -> str: return math_text(etree.fromstring(f'<m:math xmlns:m="http://www.w3.org/1998/Math/MathML">{xml}</m:math>'))


# ---- real files

def plain(text) -> str: return tidy(re.sub(r'<[^<>]*>', '', text))


def test_recorded_answers_agree_with_biopython(data_dir):
    files = sorted((data_dir/'entrez').glob('pubmed*.xml'))
    if not files: pytest.skip('no recorded answers of efetch')
    for path in files:
        ours = list(read_file(path))
        with open(path, 'rb') as f, warnings.catch_warnings():
            warnings.simplefilter('ignore')
            theirs = [a['MedlineCitation'] for a in Entrez.read(f)['PubmedArticle']]
        assert [type(d) for d in ours] == [Document] * len(theirs)
        for d, t in zip(ours, theirs):
            a = t['Article']
            assert (d.id, d.title) == (t['PMID'], plain(a['ArticleTitle']))
            assert d.year == int(a['Journal']['JournalIssue']['PubDate']['Year']) and d.journal == a['Journal']['Title']
            assert d.publication_types == tuple(map(str, a['PublicationTypeList'])) and d.languages == tuple(a['Language'])
            assert d.doi == next((str(i) for i in a['ELocationID'] if i.attributes['EIdType'] == 'doi'), d.doi)
            term = lambda x: MeshTerm(str(x), x.attributes['UI'], x.attributes['MajorTopicYN'] == 'Y')
            assert d.mesh == tuple(MeshHeading(term(h['DescriptorName']),
                                               tuple(map(term, h['QualifierName']))) for h in t.get('MeshHeadingList', []))
            assert [c.kind for c in d.corrections] == [c.attributes['RefType'] for c in t.get('CommentsCorrectionsList',
                []) if c.attributes['RefType'] != 'Cites']


def test_abstracts_agree_with_biopython_word_for_word(data_dir):
    "Files with formulas apart, whose text Biopython runs together; the signs between two numbers are ours."
    seen = 0
    for path in sorted((data_dir/'entrez').glob('pubmed*.xml')):
        if b':math' in path.read_bytes(): continue
        with open(path, 'rb') as f, warnings.catch_warnings():
            warnings.simplefilter('ignore')
            theirs = [a['MedlineCitation']['Article'] for a in Entrez.read(f)['PubmedArticle']]
        for d, a in zip(documents(path), theirs):
            parts = a.get('Abstract', {}).get('AbstractText', [])
            labels = [p.attributes.get('Label') for p in parts]
            assert [s.label for s in d.sections] == [label for label in labels if label]
            if not parts: continue
            bodies = [d.text[s.start:s.end] for s in d.sections] or [d.text]
            assert [re.sub(r'(?<=\d)[\^_](?=\S?\d)', '', b) for b in bodies] == [plain(p) for p in parts]
            seen += 1
    if not seen: pytest.skip('no recorded abstracts')


def test_recorded_formulas_read_as_chemists_write_them(data_dir):
    path = data_dir/'entrez'/'pubmed7.xml'
    if not path.exists(): pytest.skip('no recorded formula')
    assert 'inhaled 3He/129Xe MRI ventilation' in next(documents(path)).text


def test_answers_that_hold_no_articles_are_refused_by_name(data_dir):
    others = [p for p in sorted((data_dir/'entrez').glob('*.xml')) if not p.name.startswith('pubmed')]
    if not others: pytest.skip('no recorded answers of E-utilities')
    for path in others:
        root = next(etree.iterparse(path, events=('start',), load_dtd=False))[1].tag       # one of them is cut off
        with pytest.raises(ReadError, match=f'the root element is <{root}>, expected <PubmedArticleSet>'): read_pubmed(path)


def test_the_beir_corpus(data_dir):
    path = data_dir/'bioasq_beir'/'corpus.jsonl.gz'
    if not path.exists(): pytest.skip('no BEIR corpus')
    found = list(read_file(path))
    assert len(found) == 16_296 == len({d.id for d in found}) and {type(d) for d in found} == {Document}
    assert {d.source for d in found} == {'beir'} and all(d.title or d.text for d in found)


# ---- text

LEGAL = st.characters(exclude_categories=('Cs', 'Cc', 'Cf', 'Cn'))
TEXT = st.text(st.one_of(LEGAL, st.sampled_from('\t\n\r \xa0\u2009\u202f\u3000\x85\xad\u200b\ufeff\x7f<>&"\''),
                         st.sampled_from('abc 0123')), max_size=60)
UNSEEN = '\xad\u200b\ufeff\x7f'


def wanted(text) -> str:
    "What `tidy` promises, said in another way."
    return re.sub(' +', ' ', ''.join(' ' if c.isspace() else c for c in text if c not in UNSEEN)).strip(' ')


@given(title=TEXT, parts=st.lists(st.tuples(st.sampled_from(['', 'AIM', 'RESULTS AND MORE', 'UNLABELLED']), TEXT), max_size=4),
       year=st.integers(1500, 2099), terms=st.lists(st.tuples(TEXT, st.booleans(), st.lists(TEXT, max_size=2)), max_size=3))
def test_random_records_come_back(tmp_path_factory, title, parts, year, terms):
    record = article('17', title, str(year))
    add(record, 'MedlineCitation/Article/Abstract')
    for label, body in parts: add(record, 'MedlineCitation/Article/Abstract/AbstractText', body, **({'Label': label} if label else {}))
    add(record, 'MedlineCitation/MeshHeadingList')
    for name, major, qualifiers in terms:
        heading = add(record, 'MedlineCitation/MeshHeadingList/MeshHeading')
        for tag, text in [('DescriptorName', name), *(('QualifierName', q) for q in qualifiers)]:
            add(heading, tag, text, UI='D1', MajorTopicYN='NY'[major])
    path = tmp_path_factory.getbasetemp()/'random.xml'
    path.write_bytes(article_set(record))
    d, = read_file(path)
    assert (d.id, d.title, d.year) == ('17', wanted(title), year)
    said = [(label if label != 'UNLABELLED' else '', wanted(body)) for label, body in parts if wanted(body)]
    assert d.text == '\n'.join(f'{label}: {body}' if label else body for label, body in said)
    assert [(s.label, d.text[s.start:s.end]) for s in d.sections] == [(label, body) for label, body in said if label]
    assert d.mesh == tuple(MeshHeading(MeshTerm(wanted(n), 'D1', m), tuple(MeshTerm(wanted(q), 'D1', m) for q in qs)) for n, m, qs in terms)


@st.composite
def tagged(draw, depth=3):
    "A pair of XML and its text, tags of all sorts between the words."
    xml = text = ''
    for _ in range(draw(st.integers(0, 4))):
        word = draw(st.text('ab<& \u03b1\n', max_size=5))
        escaped, inner = word.replace('&', '&amp;').replace('<', '&lt;'), word
        if depth and draw(st.booleans()):
            escaped, inner = draw(tagged(depth=depth - 1))
            tag = draw(st.sampled_from(['i', 'b', 'u', 'sub', 'sup']))
            escaped = f'<{tag}>{escaped}</{tag}>'
        xml, text = xml + escaped + draw(st.sampled_from(['', '<!-- not text -->', '<?pi?>'])), text + inner
    return xml, text


@given(tagged())
def test_no_word_is_lost_at_a_tag(pair): assert inline(pair[0]) == ' '.join(pair[1].split())


@cases('xml, text', [
    ('<sup>18</sup>F-FDG', '18F-FDG'), ('[<sup>99m</sup>Tc]', '[99mTc]'), ('H<sub>2</sub>O', 'H2O'), ('CD4<sup>+</sup>', 'CD4+'),
    ('Ca<sup>2+</sup>', 'Ca2+'), ('SO<sub>4</sub><sup>2-</sup>', 'SO4^2-'), ('log<sub>10</sub>', 'log10'), ('kg/m<sup>2</sup>', 'kg/m2'),
    ('10<sup>6</sup>', '10^6'), ('10<sup>-3</sup>', '10^-3'), ('10<sup>−3</sup>', '10^−3'), ('<i>10</i><sup><b>6</b></sup>', '10^6'),
    ('2<sub>10</sub>', '2_10'), ('1<sup>st</sup>', '1st'), ('p&lt;0.05 &amp;lt; q', 'p<0.05 &lt; q'), ('<![CDATA[a < b]]>', 'a < b'),
    ('one\n     two\u2009three\xa0four', 'one two three four'), ('a<i> b</i>', 'a b'), ('a <i/>b', 'a b'), ('', ''),
])
def test_inline_markup(xml, text): assert inline(xml) == text


@cases('xml, text', [
    ('<m:mfrac>\n <m:mn>1</m:mn>\n <m:mn>2</m:mn>\n</m:mfrac>', '1/2'),
    ('<m:mn>3</m:mn><m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac><m:mn>5</m:mn>', '3 1/2 5'),
    ('<m:msup><m:mi>x</m:mi><m:mn>2</m:mn></m:msup>', 'x^2'), ('<m:msup><m:mn>10</m:mn><m:mn>-3</m:mn></m:msup>', '10^-3'),
    ('<m:mn>2</m:mn><m:msup><m:mn>10</m:mn><m:mn>6</m:mn></m:msup>', '2 10^6'),
    ('<m:msup><m:mrow><m:mi>a</m:mi><m:mo>+</m:mo><m:mi>b</m:mi></m:mrow><m:mn>2</m:mn></m:msup>', '(a+b)^2'),
    ('<m:msup><m:mrow/><m:mn>18</m:mn></m:msup><m:mi>F</m:mi>', '18F'), ('<m:msup><m:mi>H</m:mi><m:mo>+</m:mo></m:msup>', 'H+'),
    ('<m:msubsup><m:mi>x</m:mi><m:mi>i</m:mi><m:mn>2</m:mn></m:msubsup>', 'xi^2'),
    ('<m:mroot><m:mn>8</m:mn><m:mn>3</m:mn></m:mroot>', '8^(1/3)'),
    ('<m:mover><m:mi>x</m:mi><m:mo>¯</m:mo></m:mover><m:mo>=</m:mo><m:mn>0.05</m:mn>', 'x=0.05'),
    ('<m:munderover><m:mo>∑</m:mo><m:mrow><m:mi>i</m:mi><m:mo>=</m:mo><m:mn>1</m:mn></m:mrow><m:mi>n</m:mi></m:munderover>', '(∑_(i=1))^n'),
    ('<m:mtable><m:mtr><m:mtd><m:mn>1</m:mn></m:mtd><m:mtd><m:mn>2</m:mn></m:mtd></m:mtr>'
     '<m:mtr><m:mtd><m:mn>3</m:mn></m:mtd></m:mtr></m:mtable>',
        '1, 2; 3'),
    ('<m:mtext>mean\xa0</m:mtext><m:mn>5</m:mn>', 'mean 5'), ('<m:mphantom><m:mn>9</m:mn></m:mphantom><m:mn>5</m:mn>', '5'),
    ('<m:mfrac><m:mn>1</m:mn></m:mfrac>', '1'), ('<m:unheard-of><m:mi>x</m:mi></m:unheard-of>', 'x'), ('x', 'x'), ('', ''),
])
def test_formulas(xml, text): assert formula(xml) == text


MATH_TAGS = ['mi', 'mn', 'mo', 'mrow', 'msup', 'msub', 'msubsup', 'mfrac', 'mroot', 'msqrt', 'mover', 'munder', 'munderover',
             'mmultiscripts',
             'mprescripts', 'none', 'semantics', 'mtable', 'mtr', 'mfenced', 'mspace', 'mphantom', 'odd']


@examples(200)
@given(st.recursive(st.tuples(st.sampled_from(MATH_TAGS), st.text('x1+ ', max_size=3)),
                    lambda kids: st.tuples(st.sampled_from(MATH_TAGS), st.lists(kids, max_size=4)), max_leaves=15))
def test_no_formula_stops_the_reading(tree):
    "Whatever its shape, with parts missing or in the wrong place."
    def xml(node):
        tag, inside = node
        return f'<{tag}>{inside if isinstance(inside, str) else "".join(map(xml, inside))}</{tag}>'
    text = math_text(etree.fromstring(f'<math>{xml(tree)}</math>'))
    assert text == tidy(text)


def test_a_displayed_formula_stands_apart():
    assert inline('where<DispFormula><math><mi>x</mi></math></DispFormula>is') == 'where x is'


# ---- fields

@cases('text, year', [
    ('1998 Dec-1999 Jan', 1998), ('Spring 2000', 2000), ('2000-2001', 2000), ('1975 Nov-Dec', 1975), ('1976-1977 Winter', 1976),
    ('2000 1st Quart', 2000),
    ('1809', 1809), ('99', None), ('12345', None), ('0000', None), ('', None), ('Winter', None), ('١٩٩٨', None)])
def test_years(text, year): assert year_in(text) == year


def test_a_year_comes_from_publication_and_never_from_indexing(put):
    record = article()
    c = record.find('MedlineCitation')
    add(c, 'DateCompleted/Year', '2010'), add(c, 'DateRevised/Year', '2011')
    assert one(put, record).year is None
    for status, year in (('entrez', '2004'), ('epublish', '2003'), ('received', '2001')):
        add(add(record, 'PubmedData/History/PubMedPubDate', PubStatus=status), 'Year', year)
    assert one(put, record).year == 2003
    add(c, 'Article/ArticleDate/Year', '2002')
    assert one(put, record).year == 2002
    add(c, 'Article/Journal/JournalIssue/PubDate/MedlineDate', 'Fall 2005-2006')
    assert one(put, record).year == 2005


def test_identifiers_of_references_are_not_the_article_s(put):
    record = article()
    reference = add(record, 'PubmedData/ReferenceList/Reference')
    for kind, value in (('doi', '10.1/other'), ('pmc', 'PMC9')): add(reference, 'ArticleIdList/ArticleId', value, IdType=kind)
    assert (one(put, record).doi, one(put, record).pmcid) == ('', '')
    add(record, 'MedlineCitation/Article/ELocationID', '10.1/withdrawn', EIdType='doi', ValidYN='N')
    assert one(put, record).doi == ''
    for kind, value in (('doi', 'https://doi.org/10.1/mine'), ('pmcid', 'pmc-id: PMC7;')):
        add(record, 'PubmedData/ArticleIdList/ArticleId', value, IdType=kind)
    assert (one(put, record).doi, one(put, record).pmcid) == ('10.1/mine', 'PMC7')
    add(record, 'MedlineCitation/Article/ELocationID', '10.1/first', EIdType='doi', ValidYN='Y')
    assert one(put, record).doi == '10.1/first'


def test_all_notices_but_citations_are_corrections(put):
    record, kinds = article(), ['RetractionIn', 'RetractionOf', 'ErratumIn', 'ExpressionOfConcernIn', 'Cites', 'CommentOn', 'UpdateIn']
    for n, kind in enumerate(kinds):
        c = add(record, 'MedlineCitation/CommentsCorrectionsList/CommentsCorrections', RefType=kind)
        add(c, 'RefSource', 'J. 2000'), add(c, 'PMID', str(n)), add(c, 'Note', 'a note')
    d = one(put, record)
    assert d.retracted and d.corrections == tuple(Correction(k, str(n), 'J. 2000; a note') for n, k in enumerate(kinds) if k != 'Cites')


def test_a_second_abstract_serves_only_where_there_is_no_first(put):
    record = article()
    add(record, 'MedlineCitation/OtherAbstract', Type='Publisher', Language='fre')
    add(record.find('MedlineCitation/OtherAbstract'), 'AbstractText', 'Le repos aide.')
    assert one(put, record).text == ''
    for text in ('Rest helps.', 'A third.'):
        add(add(record.find('MedlineCitation'), 'OtherAbstract', Type='plain-language-summary', Language='eng'), 'AbstractText', text)
    assert one(put, record).text == 'Rest helps.'
    add(record, 'MedlineCitation/Article/Abstract/AbstractText', 'Rest helped 5 of 9.')
    assert one(put, record).text == 'Rest helped 5 of 9.'


def test_journal_and_title_fall_back(put):
    record = article(title='[Not Available].')
    assert one(put, record).title == '[Not Available].'
    add(record, 'MedlineCitation/Article/VernacularTitle', 'Über Kaffee.')
    assert one(put, record).title == 'Über Kaffee.'
    for path, name in (('MedlineJournalInfo/MedlineTA', 'C'), ('Article/Journal/ISOAbbreviation', 'B'), ('Article/Journal/Title', 'A')):
        add(record, f'MedlineCitation/{path}', name)
        assert one(put, record).journal == name


@cases('inside, found', [
    ('<Year>2007</Year><Month>Mar</Month><Day>9</Day>', '2007-03-09'), ('<Year>2007</Year><Month>03</Month>', '2007-03'),
    ('<Year>2007</Year><Season>Spring</Season>', '2007'),
    ('<Year>2007</Year><Month>Feb</Month><Day>30</Day>', '2007-02'), ('<Year>2007</Year><Month>Fructidor</Month><Day>3</Day>', '2007'),
    ('<MedlineDate>1998 Dec-1999 Jan</MedlineDate>', '1998-12'),
    ('<MedlineDate>2000 Spring-Summer</MedlineDate>', '2000'), ('<MedlineDate>Winter</MedlineDate>', ''),
    ('<Year>07</Year><Month>Mar</Month>', '')])
def test_dates(put, inside, found):
    record = article()
    add(record, 'MedlineCitation/Article/Journal/JournalIssue').append(etree.fromstring(f'<PubDate>{inside}</PubDate>'))
    d = one(put, record)
    assert (d.date, d.year) == (found, int(found[:4]) if found else None)


def test_authors_are_those_that_pubmed_indexes(put):
    record = article()
    for valid, parts in (('Y', {'LastName': 'Hambrick', 'ForeName': 'George W', 'Initials': 'GW', 'Suffix': 'Jr'}),
                         ('N', {'LastName': 'Misprint'}), ('Y', {'CollectiveName': 'Toy <i>Study</i> Group'}),
                         ('Y', {'LastName': 'Plato'}), ('Y', {})):
        a = add(add(record, 'MedlineCitation/Article/AuthorList') if record.find('.//AuthorList') is None else record.find('.//AuthorList'),
                'Author', ValidYN=valid)
        for tag, text in parts.items(): a.append(etree.fromstring(f'<{tag}>{text}</{tag}>'))
    assert one(put, record).authors == ('Hambrick GW Jr', 'Toy Study Group', 'Plato')


def test_the_short_title_is_medline_s(put):
    record = article()
    add(record, 'MedlineCitation/Article/Journal/ISOAbbreviation', 'J. Toys')
    assert one(put, record).journal_abbr == 'J. Toys'
    add(record, 'MedlineCitation/MedlineJournalInfo/MedlineTA', 'J Toys')
    assert one(put, record).journal_abbr == 'J Toys'


# ---- kinds of files

def test_one_record_may_be_the_whole_file(put):
    assert [d.id for d in read_file(put('one.xml', etree.tostring(article('5'))))] == ['5']


def test_an_empty_set_holds_nothing(put): assert read(put) == []


def test_a_book_and_an_article_and_a_deletion(put):
    book = (b'<PubmedBookArticle><BookDocument><PMID>6</PMID><Book><BookTitle>A '
            b'<i>book</i></BookTitle><PubDate><Year>2009</Year></PubDate></Book></BookDocument></PubmedBookArticle>')
    gone = b'<DeleteCitation><PMID>8</PMID><PMID>x</PMID></DeleteCitation>'
    b, a, *rest = read(put, book, article('7'), gone)
    assert (b.id, b.title, b.year, a.id) == ('6', 'A book', 2009, '7')
    assert rest == [Deleted('8'), Skipped('a.xml, DeleteCitation', "the withdrawn PMID 'x' is not a number")]


def test_a_bad_record_does_not_stop_the_next(put):
    found = read(put, article(None), article('12x'), article('1 2'), b'<PubmedArticle/>', b'<PubmedBookArticle/>', article('3', 'Good'))
    assert [type(r) for r in found] == [Skipped] * 5 + [Document]
    assert [r.where for r in found[:2]] == ['a.xml, record 1', 'a.xml, record 2 (PMID 12x)']


@cases('name, data, said', [
    ('a.xml', b'', 'is empty'), ('a.xml', b' \n', 'is empty'), ('a.xml.gz', b'', 'is empty'), ('a.jsonl', b'', 'is empty'),
    ('a.xml', b'<!DOCTYPE html><html><body><p>Busy<br></body></html>', 'this is a web page'),
    ('a.xml', b'{"error": "API rate limit"}', 'API rate limit'),
    ('a.xml', b'version https://git-lfs.github.com/spec/v1', 'git-lfs'),
    ('a.xml', b'<eFetchResult><ERROR>No ids</ERROR></eFetchResult>', "'No ids'"),
    ('a.xml', article_set(b'<ERROR>cannot get document</ERROR>'), "'cannot get document'"), ('a.xml', b'<pmc-articleset/>', 'JATS'),
    ('a.xml', b'<TEI xmlns="t"/>', '{t}TEI'),
    ('a.xml', article_set(article()).decode().encode('utf-16'), 'UTF-16'),
    ('a.xml', article_set(article()).decode().encode('utf-16-le'), 'UTF-16'),
    ('a.xml', article_set(article(), b'<PubmedArticle>caf\xe9</PubmedArticle>'), 'cut off or broken, after 1 record '),
    ('a.xml', article_set() + article_set(), 'cut off or broken'), ('a.xml', article_set() + b'\0' * 512, 'cut off or broken'),
    ('a.xml', article_set(b'<PubmedArticle>&alpha;</PubmedArticle>', doctype=''), "Entity 'alpha' not defined"),
    ('a.xml', article_set(b'<PubmedArticle>' + b'<i>' * 300), 'cut off or broken'),
    ('a.xml', article_set(b'<PubmedArticle>&#1;</PubmedArticle>'), 'cut off or broken'),
    ('a.xml', b'<?xml version="1.0" encoding="klingon"?><PubmedArticleSet/>', 'klingon'),
    ('a.jsonl', '{"_id": "1"}'.encode('utf-16'), 'UTF-16'), ('a.jsonl', b'<html>', 'not JSON lines'),
    ('a.pdf', b'%PDF', 'expected a name that ends in .xml'),
])
def test_a_wrong_file_is_one_clear_sentence(put, name, data, said):
    with pytest.raises(ReadError) as e: list(read_file(put(name, data)))
    assert said in str(e.value) and name in str(e.value) and '\n' not in str(e.value)


def test_names_decide_whatever_their_case(put):
    assert [d.id for d in read_file(str(put('A.XML', article_set(article('5')))))] == ['5']


def test_beir_lines_stand_alone(put):
    lines = ['\ufeff{"_id": "1", "title": "T", "text": "a\\nb", "metadata": {"x": 1}, "new": []}', '', '{', '[1]', '{"title": "no id"}',
             '{"_id": [4]}',
             '{"_id": "5", "text": 5}', '{"_id": "", "text": ""}', '{"_id": "7", "text": "\\ud800"}', '{"_id": "8"}']
    path = put('c.jsonl.gz', '\n'.join(lines).encode() + b'\n{"_id": "9", "text": "\xff"}\n{"_id": 10}')
    found = list(read_beir(path))
    assert [(d.id, d.title, d.text, d.source) for d in found if isinstance(d, Document)] == [('1', 'T', 'a\nb', 'beir'),
        ('8', '', '', 'beir'), ('10', '', '', 'beir')]
    assert [r.where for r in found if isinstance(r, Skipped)] == [f'c.jsonl.gz, line {n}' for n in (3, 4, 5, 6, 7, 8, 9, 11)]


# ---- broken files

def everything(path) -> list:
    "What a reader yields before it ends or fails, and the error if it fails."
    found = []
    try:
        for r in read_file(path): found.append(r)
    except ReadError as e: found.append(e)
    return found


BODY = [article(str(n), f'Title {n} ' + 'αβγ word ' * (n % 7), '2001') for n in range(1, 31)]


@pytest.mark.parametrize('name', ['cut.xml', 'cut.xml.gz', 'cut.jsonl.gz'])
def test_no_cut_file_reads_as_a_short_one(put, name):
    whole = article_set(*BODY) if 'xml' in name else b'\n'.join(b'{"_id": "%d", "text": "%d words"}' % (n, n * 7919) for n in range(300))
    path = put(name, whole)
    data, full = path.read_bytes(), everything(path)
    assert {type(r) for r in full} == {Document}
    points = {0, 1, 2, 5, 9, 10, 17, 18, 19, len(data) // 2,
              *range(len(data) - 12, len(data))} | set(random.Random(7).sample(range(len(data)), 120))
    for cut in sorted(points):
        *before, last = everything(put(name, data[:cut], pack=False))
        assert isinstance(last, ReadError), f'{cut} of {len(data)} bytes read as a whole file'
        assert before == full[:len(before)]


def test_a_flipped_bit_is_found(put):
    data, rng = put('flip.xml.gz', article_set(*BODY)).read_bytes(), random.Random(7)
    # the last byte of the packed data has bits that mean nothing
    for at in [*range(len(data) - 8, len(data)), *rng.sample(range(10, len(data) - 9), 80)]:
        spoilt = bytearray(data)
        spoilt[at] ^= 1 << rng.randrange(8)
        assert isinstance(everything(put('flip.xml.gz', bytes(spoilt), pack=False))[-1], ReadError), at


def test_gzip_members_are_joined_and_what_follows_them_is_not_ignored(put):
    whole = article_set(*BODY)
    parts = gzip.compress(whole[:900]) + gzip.compress(whole[900:])
    assert len(everything(put('two.xml.gz', parts, pack=False))) == 30
    assert isinstance(everything(put('two.xml.gz', gzip.compress(whole[:900]), pack=False))[-1], ReadError)
    assert isinstance(everything(put('two.xml.gz', parts + b'junk', pack=False))[-1], ReadError)


def test_the_error_counts_what_was_read(put):
    whole = article_set(*BODY)
    *before, error = everything(put('half.xml', whole[:len(whole) // 2]))
    assert f'after {len(before)} records' in str(error) and 0 < len(before) < 30 and 'download it again' in str(error)


def test_a_reader_fails_where_it_is_called(tmp_path):
    for reader in (read_file, read_pubmed, read_beir, documents):
        with pytest.raises(ReadError, match='no such file'): reader(tmp_path/'none.xml')
        with pytest.raises(ReadError, match='directory'): reader(tmp_path)


# ---- hostile files

@pytest.fixture
def requests():
    "The paths that a loopback web server was asked for: `(address, list)`."
    asked = []
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200), self.end_headers(), self.wfile.write(b'<!ENTITY secret "stolen">')
        def log_message(self, *args): pass
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}', asked
    server.shutdown(), server.server_close()


def test_no_file_makes_the_reader_ask_for_another(put, requests, tmp_path):
    address, asked = requests
    urllib.request.urlopen(f'{address}/alive').read()
    (tmp_path/'secret.txt').write_text('stolen')
    (tmp_path/'local.dtd').write_text('<!ENTITY secret "stolen">')
    labelled = article('2', 'A title.')
    add(labelled, 'MedlineCitation/Article/Abstract/AbstractText', 'Words.', Label='SECRET')
    in_text, in_label = etree.tostring(article('1', 'SECRET')).replace(b'SECRET',
                                                                       b'T &secret; U'), etree.tostring(labelled).replace(b'SECRET',
                                                                           b'&secret;')
    for place in (f'{address}/x', f'file://{tmp_path}/secret.txt', f'{tmp_path}/secret.txt', 'secret.txt'):
        for doctype in (f'<!DOCTYPE PubmedArticleSet SYSTEM "{place.replace("secret.txt", "local.dtd")}">',
                        f'<!DOCTYPE PubmedArticleSet [<!ENTITY secret SYSTEM "{place}">]>',
                        f'<!DOCTYPE PubmedArticleSet [<!ENTITY % p SYSTEM "{place.replace("secret.txt", "local.dtd")}">%p;]>',
                        f'<?xml-stylesheet href="{place}"?><!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD" "{place}">'):
            found = [everything(put('evil.xml', article_set(record, doctype=doctype))) for record in (in_text, in_label)]
            assert 'stolen' not in str(found) and not any(isinstance(r, Document) for r in found[0]), doctype
    include = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{address}/i" parse="text"/>'.encode()
    assert [r.title for r in everything(put('evil.xml', article_set(etree.tostring(article()).replace(b'A title.', include))))] == ['']
    assert asked == ['/alive']


def bomb(levels=12, width=10) -> str:
    return '<!DOCTYPE PubmedArticleSet [<!ENTITY e0 "lol">' + ''.join(f'<!ENTITY e{n} "{f"&e{n-1};" * width}">'
                                                                      for n in range(1, levels)) + ']>'


@pytest.mark.parametrize('doctype, inside', [
    (bomb(), '<PubmedArticle>&e11;</PubmedArticle>'), (bomb(), '<PubmedArticle a="&e11;"/>'),
    (bomb(levels=5), '<PubmedArticle>&e4;</PubmedArticle>'),
    (f'<!DOCTYPE PubmedArticleSet [<!ENTITY e "{"a" * 50_000}">]>', f'<PubmedArticle>{"&e;" * 20_000}</PubmedArticle>'),
    ('<!DOCTYPE PubmedArticleSet [<!ENTITY a "&b;"><!ENTITY b "&a;">]>', '<PubmedArticle>&a;</PubmedArticle>')],
    ids=['text', 'attribute', 'small', 'wide', 'circle'])
def test_entity_bombs_are_refused_before_they_expand(put, doctype, inside):
    with pytest.raises(ReadError, match='declares the entity'):
        list(read_file(put('bomb.xml', article_set(inside.encode(), doctype=doctype))))


def test_a_bomb_in_the_root_s_attribute_is_refused(put):
    with pytest.raises(ReadError): list(read_file(put('bomb.xml', bomb().encode() + b'<PubmedArticleSet a="&e11;"/>')))


# ---- memory and endless files: in processes of their own, so that nothing else is measured

# Linux counts a new process' peak from its parent's, unless one asks for that of its own memory map (VmHWM).
READER = '''
import re, resource, sys
from pathlib import Path
from cpqa.literature.article_files import read_file
from cpqa.literature.pubmed import ReadError
n, said = 0, ''
try: n = sum(1 for _ in read_file(sys.argv[1]))
except ReadError as e: said = str(e)
status = Path('/proc/self/status')
own = re.search('VmHWM:\\s+([0-9]+)', status.read_text()) if status.exists() else None
print(n, (int(own[1]) if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) // 1024, said)
'''


def in_a_process(path) -> tuple[int, int, str]:
    "The number of records in the file, the megabytes that reading it took at most, and the error."
    done = subprocess.run([sys.executable, '-c', READER, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)
    n, megabytes, said = done.stdout.rstrip('\n').split(' ', 2)
    return int(n), int(megabytes), said


def test_memory_does_not_grow_with_the_file(tmp_path):
    record = article('1', 'A title.', '2001')
    for n in range(4): add(record, 'MedlineCitation/Article/Abstract/AbstractText', 'some words in it ' * 300, Label=f'PART {n}')
    head, tail = article_set().split(b'\n\n')
    block = (etree.tostring(record) + b'\n<!-- a note --><Unknown>' + b'<and>more</and>' * 100 + b'</Unknown>') * 50
    def made(name, times):
        (tmp_path/name).write_bytes(gzip.compress(head) + gzip.compress(block) * times + gzip.compress(tail))
        return in_a_process(tmp_path/name)
    times = round((50e6 if NIGHTLY else 25e6) / len(block))
    few, many = made('few.xml.gz', 2), made('many.xml.gz', times)      # about 2 and 25 MB of XML, whose tree would take many times more
    assert (few[0], many[0], few[2]) == (100, times * 50, '')
    assert many[1] - few[1] < 15, f'{few[1]} MB for the small file, {many[1]} MB for the large one'


@pytest.mark.parametrize('name, head, unit', [('endless.xml.gz', b'<PubmedArticleSet><PubmedArticle>', b'<x>word</x>'),
                                              ('endless.jsonl.gz', b'{"_id": "', b'0123456789')])
def test_a_record_without_end_is_given_up(tmp_path, name, head, unit):
    (tmp_path/name).write_bytes(gzip.compress(head) + gzip.compress(unit * 100_000) * 300)    # 300 MB and more, packed into one
    n, megabytes, said = in_a_process(tmp_path/name)
    assert n == 0 and 'is longer than' in said and megabytes < 1000


def test_unseen_characters_are_unseen():
    "What `tidy` removes are control and format characters, so no letter can be among them."
    gone = [c for c in map(chr, range(0x10000)) if not c.isspace() and not 0xd800 <= ord(c) < 0xe000 and tidy(f'a{c}b') == 'ab']
    assert gone and {unicodedata.category(c) for c in gone} <= {'Cc', 'Cf', 'Cn'}
