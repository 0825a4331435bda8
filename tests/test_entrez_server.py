"""The local server of E-utilities: its answers against NCBI's DTDs, NCBI's recorded answers and Biopython; limits, history, full texts,
safety."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from threading import Event
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from conftest import cases
from entrez_toys import ARTICLES, BOSSY, JATS, PMIDS, toy, toy_full_texts, toy_library
from helpers import environment
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cpqa.core.errors import CpqaError
from cpqa.literature.library import build_library
from cpqa.literature.pubmed import read_pubmed
from cpqa.local_ncbi import entrez_local, entrez_server
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.local_ncbi.entrez_local import VERBS, LocalEntrez, respond, safe_parser
from cpqa.local_ncbi.entrez_replies import ReplyBody
from cpqa.local_ncbi.entrez_server import LARGEST, EntrezServer


@pytest.fixture(scope='module')
def work(tmp_path_factory): return tmp_path_factory.mktemp('entrez')


@pytest.fixture(scope='module')
def library(work): return toy_library(work/'library')


@pytest.fixture(scope='module')
def at(work, library): return LocalEntrez(library, toy_full_texts(work/'pmc'))


@pytest.fixture(scope='module')
def server(work, library, at):
    with EntrezServer(library, pmc=work/'pmc') as running: yield running


def ask(at, verb, **params):
    "The reply to a request."
    return respond(at, f'/entrez/eutils/{verb}.fcgi', {k: v if isinstance(v, list) else [str(v)] for k, v in params.items()})


def tree(reply) -> etree._Element: return etree.fromstring(reply.body, safe_parser())
def found(at, **params) -> list[str]: return [e.text for e in tree(ask(at, 'esearch', **params)).findall('IdList/Id')]
def told(at, verb, **params) -> dict: return json.loads(ask(at, verb, retmode='json', **params).body)
def error(reply) -> str: return tree(reply).findtext('ERROR')


def pmids(body: bytes, work: Path) -> list[str]:
    "The PMIDs of the records in an answer of efetch, by our own reader."
    (work/'fetched.xml').write_bytes(body)
    return [d.id for d in read_pubmed(work/'fetched.xml')]


# ---- the form: NCBI's DTDs, NCBI's answers, Biopython

REQUESTS = [
    ('esearch', {'term': 'polyps'}), ('esearch', {'term': 'polyps', 'usehistory': 'y', 'retmax': 2}),
    ('esearch', {'term': 'polyps', 'rettype': 'count'}),
    ('esearch', {'term': 'xyzzyplugh'}), ('esearch', {'term': ''}), ('esearch', {'term': 'polyps', 'db': 'nothing'}),
    ('esearch', {'term': 'polyps AND ('}),
    ('esearch', {'term': 'breast cancer', 'sort': 'strange'}), ('esearch', {'term': 'polyps', 'db': 'pmc'}),
    ('epost', {'id': '1001,1002'}), ('epost', {'id': ''}), ('epost', {'id': '1', 'db': 'nothing'}),
    ('esummary', {'id': '1001,1005'}), ('esummary', {'id': '999'}), ('esummary', {}), ('einfo', {}), ('einfo', {'db': 'pubmed'}),
    ('einfo', {'db': 'nothing'}),
    ('espell', {'term': 'colon polips'}), ('espell', {'term': 'colon'}),
]
DTDS = {   # elink's is not deterministic, and libxml cannot use it; Biopython can, below
    'esearch': 'esearch', 'epost': 'epost', 'esummary': 'esummary-v1', 'einfo': 'einfo', 'espell': 'eSpell'}


@cases('verb,params', REQUESTS)
def test_answers_keep_ncbis_own_grammar(at, verb, params):
    Bio = pytest.importorskip('Bio.Entrez')
    dtd = etree.DTD(str(Path(Bio.__file__).parent/'DTDs'/f'{DTDS[verb]}.dtd'))
    answer = tree(ask(at, verb, **params))
    assert dtd.validate(answer), dtd.error_log


def paths(element: etree._Element, above: str = '') -> set[str]:
    "All paths of tags below an element, with the names of attributes."
    here = f'{above}/{element.tag}' + ''.join(f'@{name}' for name in sorted(element.attrib))
    return {here}.union(*(paths(e, here) for e in element if isinstance(e.tag, str)))


def recorded(data_dir: Path, name: str) -> etree._Element:
    path = data_dir/'entrez'/f'{name}.xml'
    if not path.exists(): pytest.skip(f'needs {path}')
    return etree.fromstring(path.read_bytes(), safe_parser())


AGREE = [   # recorded answer, verb, parameters of ours that agree with it, what NCBI has and we do not
    ('esearch1', 'esearch', {'term': 'walking'}, ''),
    ('esearch2', 'esearch', {'term': 'cancer', 'usehistory': 'y'}, ''),
    ('esearch8', 'esearch', {'term': 'xyzzyplugh'}, ''),
    ('epost1', 'epost', {'id': '1001'}, ''),
    ('epost2', 'epost', {'id': '1001', 'db': 'nothing'}, ''),
    ('einfo1', 'einfo', {}, ''),
    ('einfo2', 'einfo', {'db': 'pubmed'}, ''),
    ('elink4', 'elink', {'dbfrom': 'pubmed', 'db': 'pmc', 'id': '1001'}, ''),
    ('esummary1', 'esummary', {'id': '1001'}, ''),
    ('esummary8', 'esummary', {}, ''),
    ('espell', 'espell', {'term': 'colon polips'}, ''),
]


@cases('name,verb,params,but', AGREE)
def test_answers_have_the_elements_of_recorded_ones(at, data_dir, name, verb, params, but):
    theirs, ours = paths(recorded(data_dir, name)), paths(tree(ask(at, verb, **params)))
    assert ours - theirs == set()
    assert {p for p in theirs - ours if not (but and p.endswith(but))} == set()


def test_order_of_the_elements_of_a_recorded_search(at, data_dir):
    "What follows what, where both have it."
    theirs = [e.tag for e in recorded(data_dir, 'esearch2')]
    ours = [e.tag for e in tree(ask(at, 'esearch', term='cancer', usehistory='y'))]
    assert ours == theirs
    assert [e.tag for e in tree(ask(at, 'esearch', term='xyzzyplugh'))] == [e.tag for e in recorded(data_dir, 'esearch8')]


def test_summary_has_the_items_of_a_recorded_one(at, data_dir):
    "Names and types of the items of version 1, in NCBI's order; a DOI stands where NCBI puts it, and only if there is one."
    def items(doc_sum): return [(e.get('Name'), e.get('Type')) for e in doc_sum.findall('Item')]
    theirs = items(recorded(data_dir, 'esummary1').find('DocSum'))
    assert items(tree(ask(at, 'esummary', id='1002')).find('DocSum')) == theirs
    assert [i for i in items(tree(ask(at, 'esummary', id='1001')).find('DocSum')) if i[0] != 'DOI'] == theirs


def test_fetched_records_keep_nlms_own_grammar(at):
    "The DTD of PubMed's records; it wants pages or a DOI, which a record of ours may not know, so that the test puts empty pages there."
    Bio = pytest.importorskip('Bio.Entrez')
    answer = tree(ask(at, 'efetch', id=','.join(PMIDS)))
    for article in answer.iter('Article'):
        if article.find('ELocationID') is None and article.find('Pagination') is None:
            article.find('ArticleTitle').addnext(pages := etree.Element('Pagination'))
            etree.SubElement(pages, 'MedlinePgn')
    dtd = etree.DTD(str(Path(Bio.__file__).parent/'DTDs'/'pubmed_250101.dtd'))
    assert dtd.validate(answer), dtd.error_log


@pytest.mark.parametrize('name', ['pubmed1', 'pubmed2'])
def test_fetched_records_begin_as_ncbis_do(at, data_dir, name):
    "What every reader of records looks for, with its attributes, and the public name of the DTD but for its date."
    theirs, ours = recorded(data_dir, name), tree(ask(at, 'efetch', id='1001'))
    for path in ('.', 'PubmedArticle', './/MedlineCitation/PMID', './/Article/Journal/Title', './/Article/ArticleTitle',
                 './/PubmedData/ArticleIdList/ArticleId'):
        assert (one := ours.find(path)) is not None and one.tag == theirs.find(path).tag and {*one.attrib} <= {*theirs.find(path).attrib}
    assert [e.tag for e in ours[0]] == [e.tag for e in theirs[0]]
    assert ours.getroottree().docinfo.public_id[:30] == theirs.getroottree().docinfo.public_id[:30]


@pytest.fixture
def biopython(server, monkeypatch):
    "Biopython's Entrez, which sends to our server what it would send to NCBI."
    Entrez = pytest.importorskip('Bio.Entrez')
    home = 'https://eutils.ncbi.nlm.nih.gov/entrez/eutils/'

    def here(request):
        address = request.full_url if isinstance(request, Request) else request
        assert address.startswith(home)
        return urlopen(Request(server.url + address.removeprefix(home), data=getattr(request, 'data', None)))

    monkeypatch.setattr(Entrez, 'urlopen', here)
    monkeypatch.setattr(Entrez, 'email', 'nobody@example.org')
    monkeypatch.setattr(Entrez, 'api_key', 'none', raising=False)
    monkeypatch.setattr(Entrez, 'max_tries', 1)
    return Entrez


def test_biopython_reads_every_verb(biopython, server):
    read = biopython.read
    search = read(biopython.esearch(db='pubmed', term='polyps', usehistory='y', retmax=3))
    assert (search['Count'], search['RetMax'], len(search['IdList'])) == ('7', '3', 3)
    kept = read(biopython.efetch(db='pubmed', WebEnv=search['WebEnv'], query_key=search['QueryKey'], retmode='xml'))
    assert len(kept['PubmedArticle']) == 7
    fetched = read(biopython.efetch(db='pubmed', id='1006,1001', retmode='xml'))['PubmedArticle']
    assert [str(a['MedlineCitation']['PMID']) for a in fetched] == ['1006', '1001']
    assert str(fetched[1]['MedlineCitation']['Article']['ArticleTitle']) == ARTICLES[0].title
    assert str(fetched[0]['MedlineCitation']['CommentsCorrectionsList'][0].attributes['RefType']) == 'RetractionIn'
    summary = read(biopython.esummary(db='pubmed', id='1001'))[0]
    assert (summary['Title'], summary['PubDate'], list(summary['AuthorList'])) == (ARTICLES[0].title, '2011', ['Doe J', 'Roe RW'])
    links = read(biopython.elink(dbfrom='pubmed', db='pmc', id='1001'))
    assert links[0]['LinkSetDb'][0]['Link'] == [{'Id': '501'}]
    assert read(biopython.espell(db='pubmed', term='colon polips'))['CorrectedQuery'] == 'colon polyps'
    posted = read(biopython.epost(db='pubmed', id='1003'))
    assert len(read(biopython.efetch(db='pubmed', webenv=posted['WebEnv'], query_key=posted['QueryKey'],
                                     retmode='xml'))['PubmedArticle']) == 1
    assert list(read(biopython.einfo())['DbList']) == ['pubmed', 'pmc']
    assert read(biopython.einfo(db='pubmed'))['DbInfo'][0]['Count'] == str(len(ARTICLES))


def test_biopython_reads_errors_as_it_reads_ncbis(biopython):
    with pytest.raises(RuntimeError, match='Invalid db name'): biopython.read(biopython.esearch(db='nothing', term='x'))
    with pytest.raises(HTTPError): biopython.efetch(db='pubmed', id='')


# ---- what is found

def test_the_server_finds_what_the_engine_finds(at, library):
    engine = BooleanIndex(library)
    for term in ('polyps', 'polyps AND aspirin', 'colon OR breast', 'polyps NOT review[pt]', 'breast neoplasms[mh]', '"stool test"[tiab]',
                 '2011:2015[dp]', 'doe j[au]'):
        for sort in ('relevance', 'pub_date'):
            expected = engine.search(term, k=100, sort={'pub_date': 'date'}.get(sort, sort))
            answer = told(at, 'esearch', term=term, sort=sort, retmax=100)['esearchresult']
            assert (tuple(answer['idlist']), answer['count'], answer['querytranslation']) == (expected.ids, str(expected.count),
                expected.translation)


def test_pages_put_together_are_the_whole(at):
    whole = found(at, term='polyps', retmax=100)
    assert len(whole) == 7 and sum((found(at, term='polyps', retstart=s, retmax=3) for s in range(0, 12, 3)), []) == whole
    assert found(at, term='polyps', retmax=0) == [] and tree(ask(at, 'esearch', term='polyps', retmax=0)).findtext('Count') == '7'
    assert found(at, term='polyps', retmax='many') == whole, 'what is no number counts as not given'


def test_newest_first_unless_the_best_are_asked_for(at):
    years = {d.id: d.year for d in ARTICLES}
    newest = [years[i] for i in found(at, term='polyps')]
    assert newest == sorted(newest, reverse=True) == [years[i] for i in found(at, term='polyps', sort='pub_date')]
    assert sorted(found(at, term='polyps', sort='relevance')) == sorted(found(at, term='polyps'))
    odd = told(at, 'esearch', term='polyps', sort='strange')['esearchresult']
    assert "'strange'" in odd['warninglist']['outputmessages'][0] and len(odd['idlist']) == 7


def test_dates_limit_a_search(at):
    assert found(at, term='polyps', mindate='2015', maxdate='2016') == ['1007', '1002']
    assert found(at, term='polyps', mindate='2015/06', maxdate='2015/06/09', datetype='pdat') == ['1002']
    assert found(at, term='polyps', reldate='1') == []
    assert 'edat' in told(at, 'esearch', term='polyps', mindate='2015',
                          datetype='edat')['esearchresult']['warninglist']['outputmessages'][0]
    assert 'WebEnv' in error(ask(at, 'esearch', term='polyps', query_key=1, WebEnv='MCID_0'))
    assert 'Invalid date' in error(ask(at, 'esearch', term='polyps', mindate='yesterday'))


def test_a_field_limits_the_words_that_have_none(at):
    assert found(at, term='polyps AND aspirin', field='title') == ['1001']
    assert found(at, term='chemotherapy', field='title') == [] and found(at, term='chemotherapy') == ['1004']


def test_json_says_what_xml_says(at):
    for params in ({'term': 'polyps', 'retmax': 2}, {'term': 'xyzzyplugh'}, {'term': 'breast cancer'}):
        xml, js = tree(ask(at, 'esearch', **params)), told(at, 'esearch', **params)['esearchresult']
        assert js['idlist'] == [e.text for e in xml.findall('IdList/Id')]
        assert [js[k] for k in ('count', 'retmax', 'retstart', 'querytranslation')] == [xml.findtext(k) for k in ('Count', 'RetMax',
            'RetStart', 'QueryTranslation')]
        assert js.get('errorlist', {}).get('phrasesnotfound', []) == [e.text for e in xml.findall('ErrorList/PhraseNotFound')]
        assert [(t['from'], t['to']) for t in js['translationset']] == [
            (t.findtext('From'), t.findtext('To')) for t in xml.findall('TranslationSet/Translation')]


def test_a_phrase_that_stands_nowhere_is_named(at):
    answer = told(at, 'esearch', term='xyzzyplugh')['esearchresult']
    assert answer['errorlist']['phrasesnotfound'] == ['xyzzyplugh'] and 'No items found.' in answer['warninglist']['outputmessages']
    assert answer['count'] == '0'


def test_only_the_first_9999_of_a_search(at, monkeypatch):
    "The limit of PubMed, with three in place of 9,999: cut where a page reaches over it, refused where it begins behind it."
    monkeypatch.setattr(entrez_local, '_MOST', 3)
    cut = told(at, 'esearch', term='polyps', retstart=1, retmax=20)['esearchresult']
    assert (cut['count'], cut['retmax'], len(cut['idlist'])) == ('7', '2', 2)
    assert 'Restrictions achieved' in cut['warninglist']['outputmessages'][0]
    assert 'cannot be larger than 2' in error(ask(at, 'esearch', term='polyps', retstart=3))
    beyond = told(at, 'esearch', term='aspirin', retstart=3)['esearchresult']
    assert (beyond['count'], beyond['idlist']) == ('1', [])
    kept = told(at, 'esearch', term='polyps', usehistory='y')['esearchresult']
    assert len(ask(at, 'efetch', WebEnv=kept['webenv'], query_key=kept['querykey'], rettype='uilist').body.split()) == 3


# ---- records

def test_fetched_in_the_order_asked_and_unknown_ones_left_out(at, work):
    assert pmids(ask(at, 'efetch', id='1005,999999,1001,1005').body, work) == ['1005', '1001']
    assert pmids(ask(at, 'efetch', id=['1005', '1001, 1003']).body, work) == ['1005', '1001', '1003']
    assert tree(ask(at, 'efetch', id='999999')).tag == 'PubmedArticleSet' and not len(tree(ask(at, 'efetch', id='999999')))
    assert ask(at, 'efetch', id='1001,5,1002', rettype='uilist', retmode='text').body == b'1001\n1002\n'


def test_fetched_documents_are_those_of_the_library(at, work):
    (work/'all.xml').write_bytes(ask(at, 'efetch', id=','.join(PMIDS)).body)
    assert [d.to_dict() for d in read_pubmed(work/'all.xml')] == [d.to_dict() for d in ARTICLES]


def test_all_text_is_escaped(at):
    body = ask(at, 'efetch', id='1007').body
    assert escape(BOSSY, quote=False).encode() in body and b'<script>' not in body
    assert b'<script>' not in b''.join(ask(at, verb, term='<script>polyps', id='1004', db='<script>').body for verb in VERBS)
    assert tree(ask(at, 'esummary', id='1004')).findtext(".//Item[@Name='Title']") == ARTICLES[3].title
    assert etree.fromstring(ask(at, 'esearch', term='polyps \x00\x0b <&>"').body) is not None


def test_summaries_in_three_forms(at):
    one, two, js = ask(at, 'esummary', id='1002,77'), tree(ask(at, 'esummary', id='1002,77', version='2.0')), told(at, 'esummary',
        id='1002,77')['result']
    assert tree(one).findtext(".//Item[@Name='PubDate']") == two.findtext('.//DocumentSummary/PubDate') == js['1002'][
        'pubdate'] == '2015 Jun 9'
    assert [a['name'] for a in js['1002']['authors']] == [e.text for e in two.findall('.//Author/Name')] == ['Doe J', 'Roe RW']
    assert error(one).startswith('UID=77') and two.findtext('.//DocumentSummary[@uid="77"]/error') == js['77']['error']
    assert js['uids'] == ['1002', '77']


def test_history(at):
    kept = told(at, 'esearch', term='polyps', usehistory='y', retmax=1)['esearchresult']
    more = tree(ask(at, 'epost', id='1003', WebEnv=kept['webenv']))
    assert (more.findtext('WebEnv'), more.findtext('QueryKey')) == (kept['webenv'], '2')
    def ids(**params): return ask(at, 'efetch', rettype='uilist', WebEnv=kept['webenv'], **params).body.decode().split()
    assert ids(query_key=1, retstart=2, retmax=2) == found(at, term='polyps')[2:4] and ids(query_key=2) == ['1003']
    assert [d.findtext('Id') for d in tree(ask(at, 'esummary', WebEnv=kept['webenv'], query_key=2)).findall('DocSum')] == ['1003']
    for wrong in ({'query_key': 9}, {'query_key': 'x'}, {'query_key': 1, 'db': 'pmc'}):
        assert (answer := ask(at, 'efetch', WebEnv=kept['webenv'], **wrong)).status == 400 and error(answer)
    assert ask(at, 'efetch', WebEnv='MCID_0', query_key=1).status == 400


def test_links(at):
    sets = told(at, 'elink', dbfrom='pubmed', db='pmc', id=['1001', '1002', '1008'])['linksets']
    assert [s.get('linksetdbs', [{}])[0].get('links') for s in sets] == [['501'], None, ['508']]
    assert [s['linksetdbs'][0]['links'] for s in told(at, 'elink', dbfrom='pubmed', db='pmc',
                                                      id='1001,1002,1008')['linksets']] == [['501', '508']]
    assert told(at, 'elink', dbfrom='pmc', db='pubmed', id='PMC508,501')['linksets'][0]['linksetdbs'][0]['links'] == ['1008', '1001']
    assert 'linksetdbs' not in told(at, 'elink', dbfrom='pubmed', db='pmc', id='1001', linkname='pubmed_pmc_refs')['linksets'][0]
    assert 'not supported' in error(ask(at, 'elink', dbfrom='pubmed', db='pmc', id='1001', cmd='prlinks'))


def test_spelling(at):
    def spelled(term): return tree(ask(at, 'espell', term=term)).findtext('CorrectedQuery')
    assert spelled('can colon polips turn to canser') == 'can colon polyps turn to cancer'
    assert spelled('tamoxifen[tiab] AND colonoscopi') == 'tamoxifen[tiab] AND colonoscopy'
    assert [spelled(t) for t in ('polyps', 'HER2', 'xqzkw')] == ['', '', '']


# ---- full texts

def test_full_texts_of_the_folder(at, work):
    answer = tree(ask(at, 'efetch', db='pmc', id='508,PMC999'))
    assert answer.tag == 'pmc-articleset' and [e.tag for e in answer] == ['article', 'Reply']
    assert etree.tostring(answer[0], method='c14n') == etree.tostring(etree.fromstring(JATS), method='c14n')
    assert found(at, db='pmc', term='polyps') == ['508'] and [p.partition(':')[0] for p in at.texts.problems] == ['broken.xml']


def test_full_texts_of_the_library(tmp_path):
    text = 'All about polyps.\nAnd more of it.'
    library = build_library([[*ARTICLES, toy('PMC601', 'Polyps in full', text, source='pmc', pmcid='PMC601'),
                              toy('note-1', 'A note on polyps', 'Own words.')]], tmp_path/'library')
    at = LocalEntrez(library)
    assert (at.size('pubmed'), at.size('pmc'), at.unserved) == (len(ARTICLES), 1, 1)
    assert len(found(at, term='polyps', retmax=100)) == 7 and tree(ask(at, 'esearch', term='polyps', retmax=2,
                                                                       retstart=6)).findtext('RetMax') == '1'
    assert found(at, db='pmc', term='polyps') == ['601']
    article = tree(ask(at, 'efetch', db='pmc', id='601'))[0]
    assert [p.text for p in article.iter('p')] == text.split('\n') and article.findtext('.//article-title') == 'Polyps in full'
    assert told(at, 'esummary', db='pmc', id='PMC601')['result']['601']['title'] == 'Polyps in full'


def test_nothing_outside_of_the_folder_is_served(tmp_path, library):
    folder, outside = tmp_path/'pmc', tmp_path/'secret.nxml'
    folder.mkdir()
    outside.write_bytes(JATS)
    (folder/'link.nxml').symlink_to(outside)
    (folder/'bomb.nxml').write_bytes(b'<!DOCTYPE article [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY s SYSTEM "'
                                     + outside.as_uri().encode() + b'">]>' + JATS.split(b'?>', 1)[1]
                                     .replace(b'508', b'509').replace(b'We read', b'&b;&s;We read'))
    at = LocalEntrez(library, folder)
    assert '508' not in list(at.texts)
    if '509' in list(at.texts):
        assert b'haha' not in (body := ask(at, 'efetch', db='pmc',
                                           id='509').body) and b'pmid">1008</article-id><article-id pub-id-type="pmc">508' not in body


def test_the_real_full_texts(data_dir, library):
    if not (folder := data_dir/'pmc').is_dir(): pytest.skip(f'needs {folder}')
    at = LocalEntrez(library, folder)
    assert len(at.texts) > 30 and not at.texts.problems
    for uid in list(at.texts)[:5]:
        answer = tree(ask(at, 'efetch', db='pmc', id=uid))
        assert len(answer) == 1 and answer[0].tag == 'article'
    assert found(at, db='pmc', term='patients', retmax=50)


# ---- HTTP and safety

def raw(server, data: bytes) -> bytes:
    "What the server sends for these bytes."
    with socket.create_connection(('127.0.0.1', server.port), timeout=10) as s:
        s.sendall(data)
        return b''.join(iter(lambda: s.recv(65536), b''))


def test_by_get_and_by_post(server):
    fields = urlencode({'db': 'pubmed', 'id': ','.join(PMIDS), 'retmode': 'xml'})
    got, posted = urlopen(f'{server.url}efetch.fcgi?{fields}'), urlopen(f'{server.url}efetch.fcgi', data=fields.encode())
    assert (body := got.read()) == posted.read() and int(got.headers['Content-Length']) == len(body)
    assert got.headers['Content-Type'] == 'text/xml; charset=UTF-8'
    assert urlopen(f'{server.url}esearch.fcgi?term=x&retmode=json').headers['Content-Type'].startswith('application/json')
    assert raw(server, f'HEAD /entrez/eutils/einfo.fcgi HTTP/1.0\r\nHost: 127.0.0.1:{server.port}\r\n\r\n'.encode()).endswith(b'\r\n\r\n')


@cases('host,status', [('127.0.0.1:{}', 200), ('localhost:{}', 200), ('evil.example', 403), ('evil.example:{}', 403), ('127.0.0.1:1', 403),
                       ('', 403)])
def test_only_by_its_own_name(server, host, status):
    line = f'GET /entrez/eutils/einfo.fcgi HTTP/1.1\r\nHost: {host.format(server.port)}\r\n\r\n'
    assert raw(server, line.encode()).split()[1] == str(status).encode()
    assert raw(server, b'GET /entrez/eutils/einfo.fcgi HTTP/1.1\r\n\r\n').split()[1] == b'403'


@pytest.mark.parametrize('length,status', [(LARGEST + 1, 413), (10**30, 413), (-1, 400), ('', 400), (None, 411)])
def test_requests_have_a_size(server, length, status):
    header = '' if length is None else f'Content-Length: {length}\r\n'
    assert raw(server, f'POST /entrez/eutils/efetch.fcgi HTTP/1.1\r\nHost: localhost:{server.port}\r\n{header}\r\n'.encode()).split()[
        1] == str(status).encode()


def test_a_request_has_so_many_parameters(server):
    with pytest.raises(HTTPError, match='413'): urlopen(f'{server.url}elink.fcgi', data=b'&'.join(b'id=1' for _ in range(20_001)))


def test_a_query_has_a_length(at): assert 'Invalid query' in error(ask(at, 'esearch', term='polyps ' * 10_000))


@pytest.mark.parametrize('path', ['/', '/etc/passwd', '/entrez/eutils/../../etc/passwd', '/entrez/eutils/nothing.fcgi', '/entrez/eutils/'])
def test_only_the_verbs_are_served(server, path):
    assert raw(server, f'GET {path} HTTP/1.0\r\nHost: localhost:{server.port}\r\n\r\n'.encode()).split()[1] == b'404'
    assert raw(server, f'DELETE {path} HTTP/1.0\r\nHost: localhost:{server.port}\r\n\r\n'.encode()).split()[1] == b'501'


def test_many_at_once(server):
    def one(i):
        return urlopen(f'{server.url}efetch.fcgi?id={PMIDS[i % 8]}').read().count(b'<PubmedArticle>') + int(
            json.load(urlopen(f'{server.url}esearch.fcgi?term=polyps&retmode=json'))['esearchresult']['count'])
    with ThreadPoolExecutor(12) as pool: assert set(pool.map(one, range(60))) == {8}


def test_it_stops(library):
    with EntrezServer(library) as server: pass
    with pytest.raises(OSError): socket.create_connection(('127.0.0.1', server.port), timeout=1)
    server.close()
    with EntrezServer(library, port=server.port) as again: assert again.port == server.port
    with pytest.raises(CpqaError, match='choose another'), EntrezServer(library) as one: EntrezServer(library, port=one.port)
    with pytest.raises(CpqaError, match='not a folder'): EntrezServer(library, pmc=library.folder/'nowhere')


def test_a_slow_answer_does_not_hold_up_the_end(library):
    begin = time.monotonic()
    with EntrezServer(library, misbehave='slow=60') as server, socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(f'GET /entrez/eutils/einfo.fcgi HTTP/1.0\r\nHost: localhost:{server.port}\r\n\r\n'.encode())
    assert server.misbehaviour.counts.get('slow', 0) <= 1 and time.monotonic() - begin < 20


@pytest.mark.skipif(os.name != 'posix', reason='sends SIGINT')
def test_serve_says_how_to_use_it_and_ends_by_ctrl_c(library):
    code = f'from cpqa.local_ncbi.entrez_server import serve; serve({str(library.folder)!r}, say=lambda line: print(line, flush=True))'
    run = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    line = run.stdout.readline()
    url = line.split()[0]
    assert json.load(urlopen(f'{url}einfo.fcgi?retmode=json'))['einforesult']['dblist'] == ['pubmed', 'pmc']
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=20)
    assert (run.returncode, out, err) == (0, 'stopped\n', '') and f'CPQA_ENTREZ_URL={url}' in line and '8 articles' in line


PRESSED = """
import os, signal, sys
from threading import Thread
from urllib.request import urlopen
from cpqa.local_ncbi.entrez_server import serve

def once(i):
    said, pressed, asking = [], [], []
    def press(url):
        assert urlopen(f'{url}einfo.fcgi?retmode=json').read()
        os.kill(os.getpid(), signal.SIGINT)
        pressed.append(True)
    def say(line):
        said.append(line)
        if len(said) > 1: return
        asking.append(one := Thread(target=press, args=(line.split()[0],)))
        one.start()
        if i % 3 == 0: one.join()      # the key is pressed while the first line is being said
    serve(sys.argv[1], say=say)
    asking[0].join()
    assert pressed and len(said) == 2 and said[1] == 'stopped', (i, said)
    try: urlopen(said[0].split()[0], timeout=1)
    except OSError: return
    raise AssertionError('it still answers')

for i in range(30): once(i)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print('clean')
"""


@pytest.mark.skipif(os.name != 'posix', reason='sends SIGINT')
def test_ctrl_c_right_after_the_first_reply_is_a_clean_end(library):
    "Wherever the serving thread is at that moment, starting, speaking or waiting: another thread asks and presses Ctrl-C, many times over."
    done = subprocess.run([sys.executable, '-c', PRESSED, str(library.folder)], capture_output=True, text=True, env=environment(),
                          timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, 'clean\n', ''), done


# ---- bounds: what is asked may be foolish or hostile, and costs a bounded amount of work, memory and waiting

def test_spelling_looks_at_so_many_letters_and_words(at, monkeypatch):
    assert tree(ask(at, 'espell', term='x' * 120)).findtext('CorrectedQuery') == ''
    looked = []
    monkeypatch.setattr(entrez_local, 'corrected', lambda word, known: looked.append(word) or word)
    ask(at, 'espell', term='polyps ' + ' '.join(f'{chr(97 + i % 26)}zz{chr(97 + i // 26)}' for i in range(300)))
    assert len(looked) == 50 and 'polyps' not in looked
    assert '2,000 are the most' in error(ask(at, 'espell', term='a ' * 1001 + 'a'))


@cases('query,words', [(' OR '.join(f'"colon polyps{i}"[tiab:~500]' for i in range(9)), 'too much work'),
                       ('(' * 1000 + ')' * 1000, 'nothing to search'),
                       (' OR '.join(f'poly{i}*' for i in range(999)), 'too much work'), ('a' * 40_000 + '*', 'goes on for'),
                       ('x' * 40_000 + '[au]', 'goes on for')])
def test_a_query_that_asks_for_too_much_is_refused_as_one_that_cannot_run(at, query, words):
    assert (answer := ask(at, 'esearch', term=query)).status == 200 and words in error(answer) and len(answer.body) < 1000


def test_what_is_odd_in_a_query_is_said_a_hundred_times_at_most(at):
    odd = told(at, 'esearch', term='polyps ' + '() ' * 300)['esearchresult']['warninglist']['outputmessages']
    assert len(odd) < 103 and any('more remarks were left out' in line for line in odd)


def test_a_field_is_a_tag(at):
    assert 'Invalid field' in error(ask(at, 'esearch', term=' OR '.join('polyps' for _ in range(9)), field='x' * 100_000))


def test_numbers_of_any_size(at):
    assert len(found(at, term='polyps', retmax='1' + '0' * 12)) == 7 and found(at, term='polyps', retstart='1' + '0' * 30) == []
    for days in ('800000', '9' * 9, '1' + '0' * 12): assert len(found(at, term='polyps', reldate=days)) == 7
    for key in ('²', '9' * 5000): assert ask(at, 'efetch', WebEnv='MCID_0', query_key=key).status == 400


def test_summaries_are_of_a_version_that_is_known(at):
    assert 'only 1.0 and 2.0' in error(ask(at, 'esummary', id='1001', version='3'))
    assert 'only 1.0' in error(ask(at, 'esummary', db='pmc', id='508', version='2.0'))
    assert tree(ask(at, 'esummary', id='1001', version='2.0')).findtext('DocumentSummarySet/DocumentSummary/Source') == 'J Inv Trials'


def test_what_was_kept_is_searched_by_its_number(at):
    env = tree(ask(at, 'epost', id='1001,1003,1008')).findtext('WebEnv')
    answer = told(at, 'esearch', term='#1 AND polyps', WebEnv=env)['esearchresult']
    assert sorted(answer['idlist']) == ['1001', '1008'] and answer['querytranslation'].startswith('#1 AND ')
    assert sorted(found(at, term='polyps', query_key=1, WebEnv=env)) == ['1001', '1008']
    assert sorted(found(at, query_key=1, WebEnv=env)) == ['1001', '1003', '1008']
    assert found(at, term='polyps AND #1', field='title', WebEnv=env) and len(found(at, term='polyps NOT #1', WebEnv=env)) == 5
    nothing = told(at, 'esearch', term='xyzzyplugh', usehistory='y', WebEnv=env)['esearchresult']
    assert found(at, term=f'#{nothing["querykey"]} OR #1', WebEnv=env) and not found(at, term=f'#{nothing["querykey"]}', WebEnv=env)
    full = tree(ask(at, 'epost', db='pmc', id='PMC508'))
    assert found(at, db='pmc', term='#1', WebEnv=full.findtext('WebEnv')) == ['508']
    for params, why in (({'term': '#9', 'WebEnv': env}, 'obtain query'), ({'term': '#1'}, 'obtain query'),
                        ({'term': 'polyps', 'query_key': 1}, 'obtain query'),
                        ({'term': '#1', 'WebEnv': env, 'db': 'pmc'}, 'of the database')):
        assert (answer := ask(at, 'esearch', **params)).status == 200 and why in error(answer)
    assert '20 query keys are the most' in error(ask(at, 'esearch', term=' OR '.join(['#1'] * 21), WebEnv=env))


def test_the_history_holds_so_many_ids():
    history = entrez_local.History(most_ids=10)
    first, second = history.keep('pubmed', map(str, range(6))), history.keep('pubmed', map(str, range(6)))
    assert len(history.ids('pubmed', *second)) == 6
    with pytest.raises(entrez_local.Refused, match='not known'): history.ids('pubmed', *first)
    with pytest.raises(entrez_local.Refused, match='full'): history.keep('pubmed', map(str, range(6)), second[0])
    assert len(history.ids('pubmed', *second)) == 6 and history.keep('pubmed', ['7'], second[0]) == (second[0], '2')


def test_a_reply_has_a_size(at, monkeypatch):
    monkeypatch.setattr(entrez_local, 'ReplyBody', lambda: ReplyBody(most=4000))
    assert (answer := ask(at, 'efetch', id=','.join(PMIDS))).status == 400 and 'ask for fewer' in error(answer)
    assert ask(at, 'efetch', id='1005').status == 200
    assert '10,000 are the most' in error(ask(at, 'elink', dbfrom='pubmed', id=','.join(map(str, range(10_001)))))


def test_a_connection_that_says_nothing_does_not_keep_the_others_out(library, monkeypatch):
    monkeypatch.setattr(entrez_server, 'MOST_CONNECTIONS', 2)
    monkeypatch.setattr(entrez_server, '_PATIENCE', 0.2)
    with EntrezServer(library) as server:
        silent = [socket.create_connection(('127.0.0.1', server.port), timeout=10) for _ in range(5)]
        silent[0].sendall(b'GET /entrez')
        assert urlopen(f'{server.url}einfo.fcgi', timeout=20).status == 200
        assert [s.recv(1) for s in silent] == [b''] * 5 and server.requests.total() == 1
        for s in silent: s.close()


def test_readers_who_are_slow_to_take_their_replies_have_so_many_bytes(library):
    with EntrezServer(library) as server:
        server.room.most = 10
        with pytest.raises(HTTPError, match='429'): urlopen(f'{server.url}einfo.fcgi')
        assert server.room.taken == 0


def test_a_request_that_breaks_off_or_cannot_be_read_does_no_harm(server):
    before = server.requests.total()
    with socket.create_connection(('127.0.0.1', server.port), timeout=10) as s:
        s.sendall(f'POST /entrez/eutils/einfo.fcgi HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Length: 99\r\n\r\ndb='.encode())
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b'' and server.requests.total() == before
    assert raw(server, f'GET http://[x HTTP/1.0\r\nHost: localhost:{server.port}\r\n\r\n'.encode()).split()[1] == b'400'


# ---- the end leaves nothing behind

def test_the_end_waits_for_an_answer_at_work(library, monkeypatch):
    begun, done = Event(), Event()

    def slowly(*_):
        begun.set()
        time.sleep(0.3)
        done.set()
        raise CpqaError('too late')
    monkeypatch.setattr(entrez_server, 'respond', slowly)
    with EntrezServer(library) as server, socket.create_connection(('127.0.0.1', server.port)) as s:
        s.sendall(f'GET /entrez/eutils/einfo.fcgi HTTP/1.0\r\nHost: localhost:{server.port}\r\n\r\n'.encode())
        assert begun.wait(20)
        server.close()
        assert done.is_set() and not server._http.answering


def test_what_is_closed_makes_no_folder(library, tmp_path, work, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    closed = LocalEntrez(library, work/'pmc')
    assert found(closed, db='pmc', term='polyps') == ['508'] and [*tmp_path.iterdir()]
    closed.close()
    assert ask(closed, 'esearch', db='pmc', term='polyps').status == 500 and not [*tmp_path.iterdir()]


SIGNALLED = """
import signal, sys, tempfile
from pathlib import Path
from urllib.request import urlopen
from cpqa.local_ncbi.entrez_server import serve

library, pmc, tempfile.tempdir = sys.argv[1:]
signal.signal(signal.SIGHUP, signal.SIG_DFL)      # whoever runs the tests by nohup ignores it

def ended_by(name):
    number, said = getattr(signal, name), []
    before = signal.getsignal(number)
    def say(line):
        said.append(line)
        if len(said) > 1: return
        assert b'<Id>508</Id>' in urlopen(f'{line.split()[0]}esearch.fcgi?db=pmc&term=polyps').read()
        assert [*Path(tempfile.tempdir).iterdir()]
        signal.raise_signal(number)
    serve(library, pmc=pmc, say=say)
    assert signal.getsignal(number) == before and not [*Path(tempfile.tempdir).iterdir()]
    return [line for line in said[1:] if 'not served' not in line]

print(ended_by('SIGTERM'), ended_by('SIGHUP'), ended_by('SIGINT'))
signal.signal(signal.SIGHUP, signal.SIG_IGN)      # as nohup does
heard = []

def say(line):
    heard.append(signal.getsignal(signal.SIGHUP))
    if len(heard) == 1: signal.raise_signal(signal.SIGINT)
serve(library, say=say)
print(heard == [signal.SIG_IGN] * 2 and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
"""


@pytest.mark.skipif(not hasattr(signal, 'SIGHUP'), reason='sends signals')
def test_a_signal_ends_it_and_leaves_nothing_behind_and_nohup_is_kept(library, tmp_path, work, at):
    "In a process of its own: a signal that comes at the wrong moment would take the worker of the tests with it."
    done = subprocess.run([sys.executable, '-c', SIGNALLED, str(library.folder), str(work/'pmc'), str(tmp_path)], capture_output=True,
                          text=True, env=environment(), timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['stopped'] [] ['stopped']\nTrue\n", ''), done


def test_it_listens_on_this_machine_only(server): assert server._http.server_address[0] == '127.0.0.1'


@given(st.sampled_from(sorted(VERBS)), st.dictionaries(st.sampled_from(
    ['db', 'term', 'id', 'retmax', 'retstart', 'retmode', 'rettype', 'sort', 'mindate', 'reldate', 'field', 'WebEnv', 'query_key',
     'usehistory', 'dbfrom', 'cmd', 'version']),
    st.one_of(st.text(max_size=30),
              st.sampled_from(['pubmed', 'pmc', 'polyps', '1001,1002', 'json', 'y', '2.0', '2011', '-1', '99999999999', '(polyps', 'NOT',
                               '*', '"', '[ti]', 'a[mh] AND'])), max_size=6))
def test_whatever_is_asked_there_is_an_answer(at, verb, params):
    answer = ask(at, verb, **params)
    assert answer.status in (200, 400)
    if answer.headers['Content-Type'].startswith('text/xml'): etree.fromstring(answer.body, safe_parser())
    elif answer.headers['Content-Type'].startswith('application/json'): json.loads(answer.body)
