"""The fast way and the slow way agree: on real records, on written ones, on spoilt ones; and files read side by side come in order."""
import io
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, cases, examples
from elsewhere import dead, failing, marking
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from test_pubmed import DOCTYPE, article_set
from test_pubmed_writer import written

from cpqa.core.records import Document
from cpqa.literature.parallel_reading import read_files
from cpqa.literature.pubmed import ReadError, Skipped, read_pubmed, read_slowly
from cpqa.literature.pubmed_fast import SAFE_XML, quick, quick_records, record_pieces
from cpqa.literature.pubmed_records import read_record, tidy
from cpqa.literature.pubmed_writer import pubmed_xml, write_pubmed


def both(path) -> tuple[list, list]:
    "What the two ways yield, an error at the end as its text."
    def every(records):
        found = []
        try: found.extend(r for r in iter(lambda: next(records, None), None) if not found.append(r) and False)
        except ReadError as e: found.append(str(e))
        return found
    return every(read_pubmed(path)), every(read_slowly(path))


def tree(head, piece, tail): return read_record(etree.fromstring(head + piece + tail, etree.XMLParser(**SAFE_XML))[0], '')


def real_pieces(data_dir) -> list[tuple[bytes, bytes, bytes]]:
    found = [p for path in sorted((data_dir/'entrez').glob('pubmed*.xml')) for p in record_pieces(io.BytesIO(path.read_bytes())) if p[2]]
    if not found: pytest.skip('no recorded answers of efetch')
    return found


def test_real_records_are_read_alike_and_fast(data_dir):
    found = real_pieces(data_dir)
    quickly = [quick(p) for _, p, _ in found]
    assert sum(d is not None for d in quickly) >= .8 * len(found)
    assert [d or tree(*p) for d, p in zip(quickly, found)] == [tree(*p) for p in found]


@examples(60)
@given(written(), st.booleans())
def test_written_records_are_read_alike(document, indented):
    e = pubmed_xml(document)
    if indented: etree.indent(e)
    d = quick(etree.tostring(e, encoding='utf-8'))
    assert d in (None, document)       # None: it is left to the tree


def test_a_block_is_counted_record_by_record_where_its_sums_are_wrong(tmp_path):
    "One record that is broken, or holds an empty element, among many that are not."
    one = [etree.tostring(pubmed_xml(d), encoding='utf-8') for d in WRITTEN]
    for inside, usual in ((b'<b/>', True), (b'<x></x>', True), (b'<x>', False), (b'\x01', False), (b'&x;', False)):
        spoilt = one[0].replace(b'<History>', b'<History>' + inside)
        (tmp_path/'a.xml').write_bytes(article_set(*one, spoilt, *one))
        fast, slow = both(tmp_path/'a.xml')
        assert fast == slow
        assert [isinstance(d, Document) for d in quick_records(io.BytesIO(article_set(*one, spoilt, *one)))] == [True, True, usual, True,
            True]


def test_what_xml_forbids_is_unseen():
    "Two characters that no XML may hold are dropped in writing, so reading must not keep them in what is to be written."
    assert tidy('a\ufffeb\uffffc') == 'abc'


NOISE = [b'<', b'>', b'</i>', b'<i>', b'<b/>', b'&', b'&amp;', b'&#233;', b'&#1;', b'&alpha;', b'<!-- x -->', b'<?pi?>', b'<![CDATA[x]]>',
         b']]>', b'"', b"'", b' ', b'\n', b'\t',
         b'\x01', b'\xff', 'é\u2009ﬁ'.encode(), b'<PMID>5</PMID>', b'<sup>2</sup>', b'Label="X"', b' Type="Y"', b'</Article>',
         b'<MeshHeadingList>', b'<Language>fre</Language>']


def test_spoilt_records_never_read_otherwise(data_dir):
    "A record with something put in, taken out or doubled at a random place is read as the tree reads it, or is left to it."
    rng, seen = random.Random(7), 0
    found = real_pieces(data_dir) + [(b'<PubmedArticleSet>', etree.tostring(pubmed_xml(d), encoding='utf-8'),
                                      b'</PubmedArticleSet>') for d in WRITTEN]
    for _ in range(3000):
        head, piece, tail = rng.choice(found)
        limit = piece.find(b'<ReferenceList') if rng.random() < .9 else -1
        at = rng.randrange(len(b'<PubmedArticle>'), (limit if limit > 0 else len(piece)) - len(b'</PubmedArticle>'))
        if (kind := rng.random()) < .6: spoilt = piece[:at] + rng.choice(NOISE) + piece[at:]
        elif kind < .8: spoilt = piece[:at] + piece[at + rng.randint(1, 30):]
        else: spoilt = piece[:at] + piece[max(0, at - rng.randint(1, 60)):]
        if (d := quick(spoilt)) is None: continue
        assert tree(head, spoilt, tail) == d, spoilt[max(0, at - 80):at + 80]
        seen += 1
    assert seen > 250


def mutants(piece: bytes, n: int, seed: int):
    "`piece` with a bit of one byte flipped, some bytes taken out, or some put in, `n` times; its first and last tag stay."
    rng = random.Random(seed)
    for _ in range(n):
        at, way = rng.randrange(len(b'<PubmedArticle>'), len(piece) - len(b'</PubmedArticle>')), rng.randrange(4)
        if way == 0: yield piece[:at] + bytes([piece[at] ^ 1 << rng.randrange(8)]) + piece[at + 1:]
        elif way == 1: yield piece[:at] + piece[at + rng.choice((1, 1, 1, 4, 16)):]
        elif way == 2: yield piece[:at] + rng.choice(b'</>&;"= \x00\x7f\xff' + b'ab1').to_bytes() + piece[at:]
        else: yield piece[:at] + rng.choice(NOISE) + piece[at:]


# A record in NLM's form, in our own words: all that the fast way passes over stands in it too.
LONG_FORM = '''<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM" IndexingMethod="Automated"><PMID Version="2">77</PMID>
<DateCompleted><Year>2011</Year><Month>05</Month><Day>04</Day></DateCompleted>
<DateRevised><Year>2019</Year><Month>12</Month><Day>10</Day></DateRevised><Article PubModel="Print-Electronic"><Journal>
<ISSN IssnType="Electronic">1234-5678</ISSN><JournalIssue CitedMedium="Internet"><Volume>3</Volume><Issue>1</Issue>
<PubDate><Year>2011</Year><Month>Jan</Month></PubDate></JournalIssue><Title>Journal of tea</Title><ISOAbbreviation>J Tea</ISOAbbreviation>
</Journal><ArticleTitle>Tea &amp; <i>sleep</i>.</ArticleTitle><Pagination><StartPage>1</StartPage><MedlinePgn>1-9</MedlinePgn></Pagination>
<ELocationID EIdType="doi" ValidYN="Y">10.1000/tea.77</ELocationID><Abstract><AbstractText Label="AIM" NlmCategory="OBJECTIVE">Does tea
help? p&lt;0.05.</AbstractText><AbstractText Label="RESULT">It did.</AbstractText><CopyrightInformation>None.</CopyrightInformation>
</Abstract><AuthorList CompleteYN="Y"><Author ValidYN="Y"><LastName>Lee</LastName><ForeName>Ann</ForeName><Initials>A</Initials>
<AffiliationInfo><Affiliation>House of tea, Leaf Lane 3 &lt;tea@example.org&gt;</Affiliation></AffiliationInfo></Author></AuthorList>
<Language>eng</Language><GrantList CompleteYN="Y"><Grant><GrantID>T1</GrantID><Country>Nowhere</Country></Grant></GrantList>
<PublicationTypeList><PublicationType UI="D016428">Journal Article</PublicationType></PublicationTypeList>
<ArticleDate DateType="Electronic"><Year>2010</Year><Month>12</Month><Day>01</Day></ArticleDate></Article><MedlineJournalInfo>
<Country>Nowhere</Country><MedlineTA>J Tea</MedlineTA><NlmUniqueID>1</NlmUniqueID></MedlineJournalInfo><ChemicalList><Chemical>
<RegistryNumber>0</RegistryNumber><NameOfSubstance UI="D0">Leaves</NameOfSubstance></Chemical></ChemicalList><CommentsCorrectionsList>
<CommentsCorrections RefType="Cites"><RefSource>J Tea. 2001;1:2</RefSource><PMID Version="1">5</PMID></CommentsCorrections>
</CommentsCorrectionsList><MeshHeadingList><MeshHeading><DescriptorName UI="D013662" MajorTopicYN="Y">Tea</DescriptorName></MeshHeading>
</MeshHeadingList></MedlineCitation><PubmedData><History><PubMedPubDate PubStatus="pubmed"><Year>2011</Year><Month>1</Month><Day>2</Day>
</PubMedPubDate></History><PublicationStatus>ppublish</PublicationStatus><ArticleIdList><ArticleId IdType="pubmed">77</ArticleId>
<ArticleId IdType="doi">10.1000/tea.77</ArticleId></ArticleIdList><ReferenceList><Reference><Citation>Old leaves. J Tea. 2001.</Citation>
<ArticleIdList><ArticleId IdType="pubmed">5</ArticleId></ArticleIdList></Reference></ReferenceList></PubmedData></PubmedArticle>'''.encode()


def test_the_fast_way_refuses_whatever_the_slow_way_refuses():
    "Of thousands of records with a byte gone wrong, wherever it stands, none is read that is not XML, and none is read otherwise."
    seen = 0
    assert quick(LONG_FORM).title == 'Tea & sleep.'
    for spoilt in mutants(LONG_FORM, 2500, 18):
        if (d := quick(spoilt)) is None: continue
        assert tree(b'<PubmedArticleSet>', spoilt, b'</PubmedArticleSet>') == d, spoilt
        seen += 1
    assert seen > 300


@cases('wrong', [b'<b><i></b></i>', b'<x y=z/>', b'<x y="<"/>', b'<x y="1" y="1"/>', b'<m:x/>', b'<x m:y=""/>', b'<x xml:id="1"/>',
                 b'</x><x>', b'a<b', b'\x0b', b'&#0;', b'&x;', '\uffff'.encode(), b'\xc3', b']]>', b'<1/>', b'<x></y>', b'<x',
                 b'<a>' * 300 + b'</a>' * 300])
def test_what_is_no_xml_in_a_part_that_is_passed_over_is_seen(tmp_path, wrong):
    spoilt = LONG_FORM.replace(b'House of tea', b'House ' + wrong)
    assert quick(LONG_FORM) is not None and quick(spoilt) is None
    (tmp_path/'a.xml').write_bytes(article_set(LONG_FORM, spoilt, LONG_FORM))
    fast, slow = both(tmp_path/'a.xml')
    assert fast == slow


WRITTEN = [Document(str(n), title=f'Title {n} of a < b.', text='AIM: Why?\nRESULT: So.', year=2001, date='2001-02', journal='Journal',
                    journal_abbr='J',
                    authors=('Lee A', 'We All', 'Poe B Jr'), languages=('eng',), publication_types=('Review',),
                    doi='10.1/x') for n in (1, 2)]


@cases('wrap', ['<!-- {} -->', '<Unknown>{}</Unknown>', '<![CDATA[{}]]>', '{}<ERROR>busy</ERROR>',
                '{}<DeleteCitation><PMID>3</PMID></DeleteCitation>', '<a/>{}', '{}{}', '{}<', '{}&x;'])
def test_what_stands_around_records_is_seen(tmp_path, wrap):
    inside = ''.join(etree.tostring(pubmed_xml(d), encoding='unicode') for d in WRITTEN)
    for xml in (article_set(inside.encode(), wrap.replace('{}', inside).encode(), inside.encode()),
                wrap.replace('{}', f'<PubmedArticleSet>{inside}</PubmedArticleSet>').encode()):
        (tmp_path/'a.xml').write_bytes(xml)
        try: fast, slow = both(tmp_path/'a.xml')
        except ReadError: continue
        assert fast == slow


def test_a_namespace_and_an_entity_of_the_file_s_own(tmp_path):
    record = etree.tostring(pubmed_xml(WRITTEN[0]), encoding='unicode')
    for xml in (f'<PubmedArticleSet xmlns:m="u">{record.replace("Title 1", "<m:b>Title</m:b> 1")}</PubmedArticleSet>',
                f'{DOCTYPE}<PubmedArticleSet>{record.replace("Title 1", "&alpha;")}{record}</PubmedArticleSet>',
                f'<?xml version="1.0" encoding="iso-8859-1"?><PubmedArticleSet>{record.replace("Title 1", "é")}</PubmedArticleSet>'):
        (tmp_path/'a.xml').write_bytes(xml.encode('latin-1'))
        fast, slow = both(tmp_path/'a.xml')
        assert fast == slow and any(isinstance(r, (Document, Skipped)) for r in fast)


def test_records_larger_than_a_block(tmp_path):
    big = WRITTEN[0].__class__(**{f: getattr(WRITTEN[0], f) for f in WRITTEN[0].__struct_fields__} | {'text': 'word ' * 500_000 + 'end',
        'sections': ()})
    write_pubmed([WRITTEN[1], big, WRITTEN[1]], tmp_path/'big.xml.gz')
    assert list(read_pubmed(tmp_path/'big.xml.gz')) == [WRITTEN[1], big, WRITTEN[1]]


# ---- side by side

def test_many_files_come_in_order(tmp_path):
    files = [tmp_path/f'{n}.xml.gz' for n in range(3)]
    for n, path in enumerate(files): write_pubmed([Document(str(10_000 * n + i), title='T') for i in range(1, 800 - 300 * n)], path)
    wanted = [d for path in files for d in read_pubmed(path)]
    assert list(read_files(files, workers=2)) == wanted == list(read_files(map(str, files), workers=1))
    files[1].write_bytes(files[1].read_bytes()[:-9])
    found = []
    with pytest.raises(ReadError, match=r'1\.xml\.gz: the gzip stream stops'):
        found.extend(r for r in read_files(files, workers=2) if not found.append(r) and False)
    assert found[:799] == wanted[:799]


def test_a_reader_s_own_fault_names_the_file(tmp_path):
    with pytest.raises(ReadError, match=r'x\.xml: its reader failed with ZeroDivisionError, a fault'):
        list(read_files([tmp_path/'x.xml', tmp_path/'y.xml'], 2, failing))


def test_a_dead_worker_is_noticed(tmp_path):
    with pytest.raises(ReadError, match=r'x\.xml: the process that read it has ended with 7'):
        list(read_files([tmp_path/'x.xml', tmp_path/'y.xml'], 2, dead))


def test_no_worker_waits_for_its_listener_and_nothing_is_left(tmp_path, monkeypatch):
    (tmp_path/'kept').mkdir()
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path/'kept'))
    records, deadline = read_files([tmp_path/'a', tmp_path/'b', tmp_path/'c'], 2, marking), time.monotonic() + 30
    assert next(records).id == '1'
    while not ((tmp_path/'a.done').exists() and (tmp_path/'b.done').exists()):
        time.sleep(.05), time.monotonic() < deadline or pytest.fail('a worker waits')
    assert not any((tmp_path/'kept').iterdir())     # the files have no names
    assert sum(1 for _ in records) == 14_999
    records = read_files([tmp_path/'a', tmp_path/'b'], 2, marking)
    next(records), records.close()
    assert not any((tmp_path/'kept').iterdir()) and not multiprocessing.active_children()


FULL = '''
import resource, sys
from elsewhere import marking
from cpqa.literature.parallel_reading import read_files
if __name__ == '__main__':
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
    n = 0
    for n, r in enumerate(read_files(['a', 'b'], 2, marking), 1): print(n, flush=True)
'''


def test_a_full_disk_says_so(tmp_path):
    (tmp_path/'full.py').write_text(FULL)
    done = subprocess.run([sys.executable, tmp_path/'full.py'], cwd=tmp_path,
                          env=os.environ | {'PYTHONPATH': f'{ROOT}:{ROOT/"tests"}', 'TMPDIR': str(tmp_path)}, capture_output=True,
                          text=True, timeout=60)
    assert done.stdout.split()[-1] == '500' and [p.name for p in tmp_path.iterdir()] == ['full.py']
    assert re.search(r'ReadError: a: what was read of it could not be kept in .*cpqa-\w+ \(File too large\): make room there, name a '
                     r'larger folder in TMPDIR', done.stderr)


LISTENER = '''
import sys, time
from cpqa.literature.parallel_reading import read_files
if __name__ == '__main__':
    for n, r in enumerate(read_files(sys.argv[1:], workers=2)):
        if n == 0: print('first', flush=True)
        time.sleep(.01)
'''


def test_ctrl_c_leaves_no_process(tmp_path):
    (tmp_path/'listen.py').write_text(LISTENER)
    for name in ('a.xml', 'b.xml'): write_pubmed((Document(str(i), title='T') for i in range(1, 8000)), tmp_path/name)
    p = subprocess.Popen([sys.executable, tmp_path/'listen.py', tmp_path/'a.xml', tmp_path/'b.xml'], cwd=ROOT, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert p.stdout.readline() == 'first\n'
    os.killpg(p.pid, signal.SIGINT)
    _, said = p.communicate(timeout=30)
    assert said.count('Traceback') == 1 and said.rstrip().endswith('KeyboardInterrupt')
    with pytest.raises(ProcessLookupError): [os.killpg(p.pid, 0) or time.sleep(.2) for _ in range(20)]
