"""What the cells of literature/jats and literature/pmc cannot show: real articles, an independent reader, hostile and broken files,
random articles, and memory."""
import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT, cases, examples, sample
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cpqa.core.records import Document
from cpqa.literature.jats import article_parts, assemble, element_lines
from cpqa.literature.pmc import article_ids, jats_document, read_jats, review
from cpqa.literature.pubmed import ReadError, Skipped, tidy
from cpqa.passages.sentences import sentences
from cpqa.passages.segmenters import SentenceSplitter

DATA = Path(os.environ.get('CPQA_DATA', ROOT.parent/'shared'/'data'))
FILES = sorted((DATA/'pmc').glob('*.nxml'))
real = pytest.mark.skipif(not FILES, reason='no real articles at hand')
each = cases('path', sample(FILES, 8) or [None])


@cache
def document(path: Path) -> Document:
    [d] = read_jats(path)
    return d


def words(text: str) -> Counter: return Counter(re.findall(r'\w+', text))


def sound(d: Document):
    "Sections in order, apart, each after its label and a colon, and nothing but unlabelled lines between them."
    at = 0
    for s in d.sections:
        head = f'{s.label}:\n'
        assert at <= s.start - len(head) and d.text[s.start - len(head):s.start] == head
        body = d.text[s.start:s.end]
        assert body and body == body.strip() and (s.start == len(head) or d.text[s.start - len(head) - 1] == '\n')
        at = s.end
    for line in d.text.split('\n') if d.text else (): assert line and line == tidy(line), repr(line)


# ---- real articles

@real
@each
def test_a_real_article(path):
    d = document(path)
    assert re.fullmatch('PMC[0-9]+', d.id) and d.id == d.pmcid and d.title and d.text and d.authors and d.journal and d.journal_abbr
    assert d.year and d.date.startswith(str(d.year)) and 1980 < d.year < 2020 and d.article_type and not d.retracted
    assert d.sections[0].label.startswith('Abstract') and d.source == ('pmc' if len(d.text) > 3_000 else 'pmc abstract')
    sound(d)


@real
def test_what_is_scanned_is_known_for_an_abstract():
    assert Counter(document(p).source for p in FILES) == {'pmc': 36, 'pmc abstract': 4}


@real
@each
def test_no_reference_gets_into_the_text(path):
    "Titles of cited papers are long enough to be told from chance; an article may name a few of them itself."
    text = document(path).text.lower()
    titles = [tidy(''.join(t.itertext())).rstrip('.').lower() for t in etree.parse(path).iterfind('.//ref-list//article-title')]
    assert sum(len(t) > 50 and t in text for t in titles) <= 1
    assert not re.search(r'\[\s*[,;–-]|[(\[]\s*[)](?!\))|\w\[\d{1,2}\]\.|,\s*\.\s|\x01|\x02', text)


LEFT_OUT = frozenset('ref-list supplementary-material object-id graphic tex-math long-desc alt-text media bio'.split())
INLINE = frozenset('italic bold sup sub sc underline xref named-content ext-link styled-content'.split())


def plain_words(e) -> str:
    "Another way through the tree: all text, but for references and numeric citation marks."
    name = etree.QName(e).localname if isinstance(e.tag, str) else ''
    title = tidy(''.join(t.itertext())) if name == 'sec' and (t := e.find('title')) is not None else ''
    if not name or name in LEFT_OUT or e.get('sec-type') == 'supplementary-material' or re.fullmatch(
        '(?i)electronic supplementary material', title):
        return ''
    if name == 'xref' and e.get('ref-type') == 'bibr' and not re.search(r'[A-Za-z]{2}|(19|20)\d\d', ''.join(e.itertext())): return ''
    gap = '' if name in INLINE else ' '
    return gap + (e.text or '') + ''.join(plain_words(c) + (c.tail or '') for c in e) + gap


@real
@each
def test_no_words_are_lost(path):
    "Up to one word in a hundred may differ: marks glued to words and raised digits ('109'), numbers of headings, 'eg' before a mark."
    article, d = etree.parse(path).getroot(), document(path)
    parts = [*article.iterfind('front/article-meta/abstract'), *article.iterfind('body'), *article.iterfind('floats-group'),
             *article.iterfind('back')]
    source, mine = words(' '.join(map(plain_words, parts))), words(d.text)
    lost = source - mine
    assert sum(lost.values()) <= max(10, 0.01 * sum(source.values())), lost.most_common(20)
    long = {w: n for w, n in lost.items() if len(w) > 3 and w.isalpha() and n > 2 and w[:-1] not in mine}
    assert not long
    glued, ours = re.sub(r'\W', '', ''.join(article.itertext())), set(
        'Abstract Acknowledgements Notes Author contributions Funding Competing interests Abbreviations Figure Table Box'.split())
    assert [w for w in mine if w not in glued and w not in ours and not w.isdigit() and '_' not in w] == []


@real
@each
def test_an_independent_reader_agrees(path):
    parser = pytest.importorskip('pubmed_parser')
    theirs, d = parser.parse_pubmed_xml(str(path)), document(path)
    ids = article_ids(etree.parse(path).getroot())
    assert (theirs['pmc'], theirs['pmid'], theirs['doi']) == (d.pmcid.removeprefix('PMC'), ids['pmid'], d.doi)
    assert re.sub(r'\s', '', theirs['full_title']) == re.sub(r'\s|\^', '', d.title)
    assert d.year <= theirs['publication_year'] <= d.year + 1 and theirs['journal'] == d.journal
    surnames = [a[0] for a in theirs['author_list']]
    # it gives none who has no affiliation
    assert not surnames or [a for a in d.authors if not any(a.startswith(s) for s in surnames)] == []


@real
@each
def test_it_can_be_cut_into_sentences_and_passages(path):
    d = document(path)
    spans = sentences(d)
    heads = [(s.start - len(s.label) - 2, s.start) for s in d.sections]
    assert spans == sorted(spans) and not [s for s in spans for a, b in heads if s[0] < b and a < s[1]]
    inside = [s for s in spans if any(x.start <= s[0] and s[1] <= x.end for x in d.sections)]
    assert len(inside) >= 0.8 * len(spans)   # some journals begin without a heading
    assert all(p.text == d.text[p.start:p.end] for p in SentenceSplitter().split(d))


@real
def test_another_project_read_the_same_articles():
    path = DATA/'evidence_inference'/'articles.jsonl.gz'
    if not path.exists(): pytest.skip('no Evidence Inference at hand')
    with gzip.open(path, 'rt', encoding='utf-8') as f: theirs = {a['pmcid']: a['text'] for a in map(json.loads, f)}
    shared = [document(p) for p in FILES if document(p).id in theirs and document(p).source == 'pmc']
    assert len(shared) > 20
    for d in shared:
        long, mine = {w for w in words(theirs[d.id].lower()) if len(w) > 5 and w.isalpha()}, set(words(f'{d.title} {d.text}'.lower()))
        assert len(long & mine) > 0.95 * len(long), (d.id, sorted(long - mine)[:20])


# ---- marks, types, titles

META = ('<front><article-meta><article-id '
        'pub-id-type="pmc">1</article-id><title-group><article-title>T</article-title></title-group>{}</article-meta></front>')


def article(body='', meta='', attributes='', more='') -> str:
    return f'<article {attributes}>{META.format(meta)}<body>{body}</body>{more}</article>'


def made(*args, **kwargs) -> Document: return jats_document(etree.fromstring(article(*args, **kwargs)))


@cases('xml, text', [
    ('as shown<sup><xref ref-type="bibr">1</xref>,<xref ref-type="bibr">2</xref></sup> here.', 'as shown here.'),
    ('as shown.<xref ref-type="bibr"><sup>12</sup></xref> Next', 'as shown. Next'),
    ('shown <xref ref-type="bibr">[1]</xref>–<xref ref-type="bibr">[4]</xref>, and', 'shown, and'),
    ('<xref ref-type="bibr">Rush et al (2001)</xref> found', 'Rush et al (2001) found'),
    ('found (Smith <xref ref-type="bibr">2001</xref>; <xref ref-type="bibr">Jones 2002</xref>).', 'found (Smith 2001; Jones 2002).'),
    ('in 10<sup>6</sup> of H<sub>2</sub>O and <sup>18</sup>F', 'in 10^6 of H2O and 18F'),
    ('Smith [<xref ref-type="bibr">1</xref>] and Jones [<xref ref-type="bibr">2</xref>] agree', 'Smith and Jones agree'),
    ('a value (n = 5) of 0.5 [<xref ref-type="bibr">1</xref>]; 7', 'a value (n = 5) of 0.5; 7'),
    ('was 2.<xref ref-type="bibr">1</xref> 5 mg', 'was 2. 5 mg'),
    ('the trial<xref ref-type="bibr">1</xref>assessed', 'the trial assessed'),
    ('<inline-formula><alternatives><mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:msup><mml:mi>x</mml:mi>'
     '<mml:mn>2</mml:mn></mml:msup></mml:math><tex-math>no</tex-math></alternatives></inline-formula>',
        'x^2'),
])
def test_a_sentence_stays_readable(xml, text): assert element_lines(etree.fromstring(f'<p>{xml}</p>')) == [text]


def test_what_other_people_wrote_stays_out():
    d = made(
        '<p>Mine.</p>',
        more='<back><ref-list><ref><mixed-citation>Cited.</mixed-citation></ref></ref-list></back>'
             '<sub-article><front-stub/><body><p>Theirs.</p></body></sub-article><response><body><p>Reply.</p></body></response>',
    )
    assert d.text == 'Mine.'


def test_boxes_and_floats_are_kept_under_their_labels():
    d = made('<sec><title>A</title><p>One <boxed-text><caption><title>Key</title></caption><p>In box.</p></boxed-text> two.</p></sec>',
             more='<floats-group><fig><label>Fig. 1:</label><caption><p>Seen.</p></caption></fig><table-wrap><label>Table '
                  '2</label><table><tr><td>5</td></tr></table></table-wrap></floats-group>')
    assert [(s.label, d.text[s.start:s.end]) for s in d.sections] == [('A', 'One two.'), ('A > Key', 'In box.'), ('Fig. 1', 'Seen.'),
                                                                      ('Table 2', '5')]


@cases('kind, link, retracted', [
    ('research-article', 'retraction-forward', True), ('retraction', 'retracted-article', False),
    ('retraction', 'retraction-forward', False),
    ('research-article', 'correction-forward', False), ('correction', 'corrected-article', False),
    ('research-article', 'commentary', False)])
def test_a_notice_is_not_the_retracted_article(kind, link, retracted):
    d = made('<p>x</p>', f'<related-article related-article-type="{link}" ext-link-type="doi" xmlns:xlink="http://www.w3.org/1999/xlink" '
                         'xlink:href="10.1/x"/>', f'article-type="{kind}"')
    assert d.retracted == retracted and d.corrections[0].note == '10.1/x'


@pytest.mark.parametrize('kind, types, title, says', [
    ('review-article', ['Randomized Controlled Trial'], 'A trial', (True, 'article type')),
    ('editorial', ['Review'], 'A review', (False, 'article type')),
    ('research-article', ['Letter'], 'Tea: a review', (False, 'publication type')),
    ('', ['systematic review', 'Comment'], '', (True, 'publication type')),
    ('other', ['Journal Article'], 'Tea: a meta-analysis', (True, 'title'))])
def test_the_order_of_the_witnesses(kind, types, title, says):
    r = review(Document('1', title=title, article_type=kind), types)
    assert r.is_review == says[0] and r.reason.startswith(says[1])


def test_a_title_can_be_anything():
    for title in ('', '()', 'a' * 50_000, 'review ' * 5_000, ': ' * 20_000, 'retrospective ' * 3_000):
        assert review(Document('1', title=title)).reason


# ---- random articles

INK = st.text(st.characters(min_codepoint=33, max_codepoint=0x2fff,
                            blacklist_categories=('Cs', 'Cc', 'Cf', 'Zs', 'Zl', 'Zp', 'Mn', 'Mc', 'Me')), min_size=1, max_size=8)
WORDS = st.lists(INK, min_size=1, max_size=5).map(' '.join)


@st.composite
def paragraph(draw):
    p = etree.Element('p')
    p.text = draw(WORDS) + ' '
    for kind in draw(st.lists(st.sampled_from(('italic', 'cite', 'fig', 'list', 'table', 'other')), max_size=3)):
        if kind == 'cite': e = etree.SubElement(p, 'xref', {'ref-type': 'bibr'}); e.text = '12'
        elif kind == 'fig':
            e = etree.SubElement(p, 'fig'); etree.SubElement(e, 'label').text = 'Figure 1'
            etree.SubElement(etree.SubElement(e, 'caption'), 'p').text = draw(WORDS)
        elif kind == 'list': e = etree.SubElement(p, 'list'); etree.SubElement(etree.SubElement(e, 'list-item'), 'p').text = draw(WORDS)
        elif kind == 'table':
            e = etree.SubElement(p, 'table-wrap')
            table = etree.SubElement(e, 'table')
            for spans in draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), max_size=3)):
                row = etree.SubElement(table, 'tr')
                for n in spans: etree.SubElement(row, 'td', colspan=str(n), rowspan=str(n)).text = draw(WORDS)
        else: e = etree.SubElement(p, 'italic' if kind == 'italic' else 'unheard-of'); e.text = ' ' + draw(WORDS) + ' '
        e.tail = ' ' + draw(WORDS) + ' '
    return p


@st.composite
def section(draw, depth=0):
    s = etree.Element('sec')
    if draw(st.booleans()): etree.SubElement(s, 'title').text = draw(WORDS)
    s.extend(draw(st.lists(paragraph(), max_size=2)))
    if depth < 2: s.extend(draw(st.lists(section(depth=depth + 1), max_size=2)))
    return s


@examples(80)
@given(st.lists(section(), max_size=3))
def test_random_articles_keep_offsets_and_words(sections):
    root = etree.fromstring(article())
    root.find('body').extend(sections)
    d = jats_document(root)
    sound(d)
    for e in root.iter('p', 'td', 'italic', 'unheard-of'):
        if e.text and e.text.strip(): assert tidy(e.text) in d.text
    for e in root.iter():
        if e.tail and e.tail.strip(' .,;:!?)]'): assert tidy(e.tail).strip('.,;:!?)]([ ') in d.text
    assert jats_document(etree.fromstring(etree.tostring(root))) == d
    assert sentences(d) == sorted(sentences(d))


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(('', 'A', 'A > B', 'C')), WORDS), max_size=8))
def test_any_parts_can_be_assembled(parts):
    parts = [(label, tidy(line)) for label, line in parts if tidy(line)]
    text, spans = assemble(parts)
    assert [line for s in spans for line in text[s.start:s.end].split('\n')] == [line for label, line in parts if label]
    assert all(a.end < b.start for a, b in zip(spans, spans[1:]))


# ---- broken and hostile files

@pytest.fixture
def put(tmp_path):
    def write(name, data):
        data = data.encode() if isinstance(data, str) else data
        (tmp_path/name).write_bytes(gzip.compress(data) if name.endswith('.gz') else data)
        return tmp_path/name
    return write


@real
def test_an_article_cut_anywhere_is_refused(put):
    data = FILES[0].read_bytes()
    for at in (1, 50, 500, len(data)//3, len(data)//2, len(data) - 12, len(data) - 2):
        with pytest.raises(ReadError): list(read_jats(put('cut.nxml', data[:at])))


def test_depth_is_bounded(put):
    deep = article(''.join(f'<sec><title>S{n}</title>' for n in range(60)) + '<p>deep</p>' + '</sec>' * 60)
    [d] = read_jats(put('deep.nxml', deep))
    assert d.sections[-1].label.count(' > ') == 59
    for tag in ('sec', 'sup', 'italic'):
        found = list(read_jats(put('deeper.nxml', article('<p>' + f'<{tag}>' * 240 + 'x' + f'</{tag}>' * 240 + '</p>'))))
        assert isinstance(found[0], (Document, Skipped))
    with pytest.raises(ReadError): list(read_jats(put('deepest.nxml', article('<sec>' * 5_000 + '</sec>' * 5_000))))


def test_long_headings_and_huge_tables_are_bounded(put):
    title, row = 'long ' * 5_000, '<tr>' + '<td rowspan="9" colspan="2">word</td>' * 50 + '</tr>'
    [d] = read_jats(put('big.nxml', article(f'<sec><title>{title}</title><table-wrap><table>{row * 500}</table></table-wrap></sec>')))
    assert len(d.text) < 70_000 and 'further rows are left out' in d.text and max(len(s.label) for s in d.sections) < 300


MARK = '<xref ref-type="bibr">1</xref>'

@cases('xml', [f'Word [{(MARK + ", ") * 20_000}] end.', f'Word{f" [{MARK}" * 3_000}', f'Word {"[" * 30_000}{MARK}',
               f'Word {"1, " * 10_000}{MARK}',
    f'Word{chr(10) * 20_000}{MARK} x', f'Word <xref ref-type="bibr">{" " * 20_000}xx</xref>', f'Word {"[" * 3_000}{MARK}{"]" * 3_000}',
    f'Word {"(see " * 5_000}{MARK}', f'Word {"," * 20_000}{MARK}.'])
def test_no_paragraph_takes_long(xml):
    start = time.process_time()
    assert element_lines(etree.fromstring(f'<p>{xml}</p>'))[0].startswith('Word')
    assert time.process_time() - start < 3


@pytest.mark.parametrize('inside', [
    '<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">', '<!ENTITY x SYSTEM "file:///etc/hostname">',
    '<!ENTITY % p SYSTEM "http://127.0.0.1:9/x"> %p;'])
def test_entities_are_refused(put, inside):
    with pytest.raises(ReadError, match='entity|broken'):
        list(read_jats(put('evil.nxml', f'<!DOCTYPE article [{inside}]>' + article('<p>x</p>'))))


@cases('text', ['', '   ', 'PK\x03\x04', '{"error": 1}', '<html><body/></html>', '<article', '<pmc-articleset></pmc-articleset>',
                '<collection><source>PMC</source><document/></collection>'])
def test_what_is_no_article_is_refused(put, text):
    with pytest.raises(ReadError, match='none.nxml'): list(read_jats(put('none.nxml', text)))


def test_ids_of_every_spelling():
    def ids(*said):
        return article_ids(etree.fromstring('<article><front><article-meta>'
                                            + ''.join(f'<article-id pub-id-type="{k}">{v}</article-id>' for k,
                                                      v in said) + '</article-meta></front></article>'))
    assert ids(('pmc', '12')) == ids(('pmc', ' PMC12 ')) == ids(('pmcid', 'PMC12.1')) == {'pmcid': 'PMC12'}
    assert ids(('doi', 'https://doi.org/10.1/a')) == {'doi': '10.1/a'} and ids(('pmc', 'x'), ('pmid', '٣')) == {}


def test_an_article_with_only_a_doi_has_a_usable_id(put):
    [d] = read_jats(put('doi.xml', article('<p>x</p>').replace('pub-id-type="pmc">1<', f'pub-id-type="doi">10.1/{"a" * 200}<')))
    assert len(d.id) == 100 and len(d.doi) == 205 and not d.pmcid


def test_a_comment_is_no_text():
    d = jats_document(etree.fromstring(article('<sec><!-- no --><p>Yes<!-- no -->, yes.</p><table-wrap><table><tr><!-- no '
                                               '--><td>1</td></tr></table><table-wrap-foot><!-- no '
                                               '--><p>Foot.</p></table-wrap-foot></table-wrap></sec>')))
    assert d.text.replace('Table:\n', '') == 'Yes, yes.\n1\nFoot.'


def test_parts_need_no_front():
    assert article_parts(etree.fromstring('<article><body><p>Once.</p></body></article>')) == ([], [('', 'Once.')], [])


@cases('root', ['pmc-articleset', 'articles'])
def test_memory_is_that_of_one_article(root, tmp_path):
    one = article(''.join(f'<sec><title>S{n}</title><p>{"word " * 2_000}</p></sec>' for n in range(20)))
    with gzip.open(tmp_path/'set.xml.gz', 'wt') as f:
        f.write(f'<{root}>')
        for _ in range(300): f.write(one)
        f.write(f'</{root}>')
    code = ('import resource, sys\nfrom cpqa.literature.pmc import read_jats\nit = read_jats(sys.argv[1])\nnext(it)\n'
            'def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nfirst = peak()\nn = 1 + sum(1 for _ in it)\nprint(n, '
            'peak() - first)')
    n, grown = map(int, subprocess.run([sys.executable, '-c', code, tmp_path/'set.xml.gz'], capture_output=True, text=True,
                                       check=True).stdout.split())
    assert n == 300 and grown < 12_000   # KiB; the set is 60 MB
