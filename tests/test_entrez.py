"""The client of E-utilities against a real server on 127.0.0.1 that misbehaves as told, and its readers against what NCBI really
answered."""
import gzip
import io
import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import PIPE, Popen
from types import SimpleNamespace
from urllib.parse import parse_qs, quote

import pytest
from conftest import cases, examples
from helpers import environment
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cpqa.core.records import Document
from cpqa.core.retries import Patience
from cpqa.literature import entrez as module
from cpqa.literature import entrez as replies
from cpqa.literature import polite_http
from cpqa.literature.entrez import Entrez, EntrezError
from cpqa.literature.entrez import clean_ids, entrez_date
from cpqa.literature.polite_http import Cache, Rate, Trouble, Web, WebError, xml_root
from cpqa.literature.pubmed_writer import pubmed_xml

KEY, EMAIL = 'k3y0123456789abcdef0123456789abcdef99', 'someone@example.org'


# ---- a server that does as it is told

class Server:
    "Answers with `script`, one entry after the other, and then by `answer(verb, fields)`; keeps what was asked and when."
    def __init__(self, answer=None):
        self.script, self.asked, self.times, self.raw, self.answer, self.lock = [], [], [], [], answer, threading.Lock()

    def reply(self, handler, query: str):
        with self.lock:
            self.times.append(time.monotonic())
            verb = handler.path.partition('?')[0].rpartition('/')[2].removesuffix('.fcgi')
            fields = {k: v for k, v in parse_qs(query).items()}
            self.asked.append((verb, fields))
            self.raw.append((handler.command, handler.path, dict(handler.headers)))
            step = self.script.pop(0) if self.script else None
        if step is None: step = self.answer(verb, fields)
        if callable(step): return step(handler)
        status, body, headers = step if isinstance(step, tuple) else (200, step, {})
        send(handler, status, body, headers)


def send(handler, status: int, body: bytes, headers={}, promised: int | None = None):
    handler.send_response(status)
    for name, value in headers.items(): handler.send_header(name, value)
    handler.send_header('Content-Length', str(len(body) if promised is None else promised))
    handler.end_headers()
    handler.wfile.write(body)
    if promised is not None: handler.close_connection = True


@contextmanager
def serving(answer=None):
    server = Server(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self): server.reply(self, self.path.partition('?')[2])
        def do_POST(self): server.reply(self, self.rfile.read(int(self.headers['Content-Length'])).decode())
        def log_message(self, *_): pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads, block_on_close = True, False
        def handle_error(self, *_): pass   # a client that goes away is what some tests are about

    http = Quiet(('127.0.0.1', 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True).start()
    server.url = f'http://127.0.0.1:{http.server_port}/entrez/eutils/'
    try: yield server
    finally: http.shutdown(); http.server_close()


def client(server, **options) -> Entrez: return Entrez(server.url, **{'email': '', 'key': '', 'backoff': 0.001, 'timeout': 5, **options})


def found(*ids: str, count: int | None = None) -> bytes:
    return (f'<eSearchResult><Count>{len(ids) if count is None else count}</Count>'
            f'<IdList>{"".join(f"<Id>{i}</Id>" for i in ids)}</IdList></eSearchResult>').encode()


def records(*documents: Document) -> bytes: return replies.article_set(etree.tostring(pubmed_xml(d)) for d in documents)


def doc(id, **more) -> Document:
    return Document(id=str(id), **{'title': f'On the number {id}', 'text': f'We counted to {id}.', 'year': 2020, **more})


def library(verb: str, fields: dict) -> bytes:
    "Every PMID is an article here."
    if verb == 'efetch': return records(*(doc(i) for i in fields['id'][0].split(',')))
    return {'esearch': found('1', '2'), 'einfo': b'<eInfoResult><DbList><DbName>pubmed</DbName></DbList></eInfoResult>'}[verb]


# ---- faults that pass

def hang_up(handler): handler.connection.shutdown(socket.SHUT_RDWR); handler.close_connection = True
def cut(body: bytes): return lambda handler: send(handler, 200, body[:-9], promised=len(body))
def packed(body: bytes): return (200, body, {'Content-Encoding': 'gzip'})


PASSING = {
    '429': (429, b'{"error":"API rate limit exceeded","count":"4"}', {'Retry-After': '0'}), '429 html': (429, b'<html>no</html>', {}),
    '408': (408, b'', {}), '500': (500, b'', {}), '502': (502, b'<html><title>Bad Gateway</title></html>', {}),
    '503': (503, b'', {'Retry-After': 'soon'}),
    'page': b'<!DOCTYPE html><html><title>Sorry</title></html>', 'page in capitals': b'\n <HTML><BODY>Sorry</BODY></HTML>', 'empty': b'',
    'blank': b' \n',
    'text': b'Error: no', 'json': b'{"error":"API rate limit exceeded"}', 'json without error': b'{}',
    'broken': b'<eSearchResult><Count>2</Count>',
    'ends early': found('1', '2')[:-5], 'cut': cut(found('1', '2')), 'hangs up': hang_up,
    'ERROR': b'<eSearchResult><ERROR>Search Backend failed: pmq is down</ERROR></eSearchResult>',
    'other root': b'<eInfoResult/>', 'no count': b'<eSearchResult><IdList/></eSearchResult>',
    'entity': b'<!DOCTYPE a [<!ENTITY b "c">]><eSearchResult><Count>1</Count>&b;</eSearchResult>',
    'damaged gzip': packed(b'rubbish'), 'cut gzip': packed(gzip.compress(found('1', '2'), mtime=0)[:-12]), 'zeros': b'\0' * 50,
    'not utf-8': b'<eSearchResult>\xff</eSearchResult>',
}


@pytest.fixture(scope='module')
def shared():
    with serving(library) as server: yield server


@examples(40)
@given(faults=st.lists(st.sampled_from(sorted(PASSING)), max_size=4))
def test_any_faults_then_a_good_answer_give_the_good_answer(shared, faults):
    shared.script, before = [PASSING[f] for f in faults], len(shared.asked)
    entrez = client(shared)
    assert entrez.search('toys').ids == ('1', '2')
    assert len(shared.asked) - before == len(faults) + 1 and len(entrez.events) == len(faults)


@cases('fault', sorted(PASSING))
def test_a_fault_that_stays_is_one_sentence(shared, fault):
    shared.script, before = [PASSING[fault]] * 3, len(shared.asked)
    with pytest.raises(EntrezError) as e: client(shared, tries=3).search('toys')
    assert len(shared.asked) - before == 3 and '127.0.0.1 did not answer a search in pubmed: ' in str(e.value)
    assert 'after 3 tries' in str(e.value) and '\n' not in str(e.value) and len(str(e.value)) < 300


@cases('status', [301, 302, 400, 401, 403, 404, 410, 414])
def test_what_is_our_fault_is_not_tried_again(shared, status):
    shared.script, before = [(status, b'', {'Location': shared.url + 'elsewhere'})], len(shared.asked)
    with pytest.raises(EntrezError, match=f'answered {status}: correct the request'): client(shared).search('toys')
    assert len(shared.asked) - before == 1


@cases('text, tries', [('Invalid db name specified: x', 1), ('Empty term and query_key - nothing todo', 1),
                       ('Unable to obtain query #1', 3),
                                         ("Exception: 'retstart' cannot be larger than 9998", 1),
                                         ('Couldn\'t resolve #pmq: the address table is empty', 3),
                                         ('Database server is overloaded', 3), ('Read timeout', 3), ('unheard of', 3),
                                         ('Search Backend failed: Database is not supported: pubmed', 3),
                                         ('Error: TXCLIENT(CException::eUnknown) Read failed: EOF', 3),
                                         ('Empty result - nothing todo', 1),
                                         ('External viewer error: Empty Response. Bytes read: 0 Status: Timeout', 3)])
def test_errors_of_ncbi_are_tried_again_if_they_may_pass(shared, text, tries):
    shared.script, before = [f'<eSearchResult><ERROR>{text}</ERROR></eSearchResult>'.encode()] * tries, len(shared.asked)
    with pytest.raises(EntrezError): client(shared, tries=3).search('toys')
    assert len(shared.asked) - before == tries


@pytest.mark.parametrize('text, tries', [('External viewer error: Empty Response. Bytes read: 0 Status: Timeout', 3),
                                         ('Unable to obtain query #1', 3),
                                         ('ID list is empty! Possibly it has no correct IDs.', 1), ('unheard of', 1)])
def test_a_400_that_tells_of_a_fault_inside_of_ncbi_is_tried_again(shared, text, tries):
    shared.script, before = [(400, f'<eFetchResult><ERROR>{text}</ERROR></eFetchResult>'.encode(), {})] * tries, len(shared.asked)
    with pytest.raises(EntrezError, match='none of 1 record could be had'): client(shared, tries=3).fetch(['1'])
    assert len(shared.asked) - before == tries


def test_retry_after_is_obeyed_and_capped(shared):
    shared.script, before = [(429, b'', {'Retry-After': '0.4'})], len(shared.times)
    client(shared).search('toys')
    first, second = shared.times[before:]
    assert second - first >= 0.39
    state = SimpleNamespace(attempt_number=1, outcome=SimpleNamespace(exception=lambda: Trouble('busy', wait=99999)))
    assert Patience(longest=2).wait(state) == 2


def test_nobody_answers():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{s.getsockname()[1]}/'
    with pytest.raises(EntrezError, match='no connection could be made, after 2 tries: check the network'):
        Entrez(url, email='', key='', tries=2, backoff=0.001).search('toys')


@pytest.mark.parametrize('proxy, why', [('socks9://127.0.0.1:9', 'is not one like http://HOST:PORT'),
                                        ('http://me:hush@127.0.0.1:9', 'no connection could be made to the proxy')])
def test_a_proxy_of_no_use_is_said_without_its_password(monkeypatch, proxy, why):
    for name in 'http_proxy', 'HTTP_PROXY': monkeypatch.setenv(name, proxy)
    monkeypatch.setenv('no_proxy', '')
    entrez = Entrez('http://192.0.2.1/', email='', key='', tries=1, cache=False)
    assert entrez.alive() is False
    with pytest.raises(EntrezError, match=f'{why}.*check HTTPS_PROXY') as e: entrez.search('toys')
    assert not [t for t in (str(e.value), *entrez.events) if 'hush' in t]


def drip(handler):
    "A byte now and then, for ever."
    handler.send_response(200)
    handler.send_header('Content-Length', '100000')
    handler.end_headers()
    try:
        for _ in range(200): handler.wfile.write(b' '); handler.wfile.flush(); time.sleep(0.05)
    except OSError: pass


HANG = 8   # seconds that a server is silent: whoever gave up in time did so before

def silence(handler): time.sleep(HANG); handler.close_connection = True


@pytest.mark.parametrize('step', [drip, silence])
def test_the_deadline_holds_even_for_a_body_that_never_ends(shared, step):
    shared.script, begin = [step] * 3, time.monotonic()
    with pytest.raises(EntrezError): client(shared, deadline=0.6).search('toys')
    assert time.monotonic() - begin < HANG
    shared.script.clear()


def test_a_body_without_end_is_not_read_to_its_end(shared):
    shared.script = [b'<a>' + b'x' * 300_000] * 2
    web = Web(shared.url, Patience(backoff=0.001), largest=100_000)
    with pytest.raises(WebError, match='larger than 100,000 bytes'): web.ask('einfo.fcgi', [], len)
    shared.script = [packed(gzip.compress(b'x' * 3_000_000))]
    with pytest.raises(WebError, match='larger than 100,000 bytes'): web.ask('einfo.fcgi', [], len)
    shared.script.clear()


def test_an_answer_without_end_is_left_at_a_limit(shared):
    sent = []

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        try:
            while True: sent.append(handler.wfile.write(b' ' * 2**16))
        except OSError: pass
    shared.script = [endless] * 2
    entrez = client(shared, tries=2)
    assert entrez.web.largest <= 2**25
    entrez.web.largest = 2**18
    with pytest.raises(EntrezError, match='larger than 262,144 bytes'): entrez.search('toys')
    assert len(shared.script) == 1 and sum(sent) < 2**25   # what the sockets hold, and no more
    shared.script.clear()


def test_who_watches_is_told_what_is_awaited(shared, monkeypatch):
    told = []

    @contextmanager
    def awaiting(what):
        told.append(what)
        yield lambda: None
    monkeypatch.setattr(polite_http, 'awaiting', awaiting)
    client(shared).search('toys')
    assert told == ['127.0.0.1'] and Entrez(module.NCBI, email='', key='', cache=False).web.awaited == 'NCBI'


def test_bodies_are_not_trusted(tmp_path):
    (secret := tmp_path/'secret').write_text('hidden')
    bomb = '<!DOCTYPE a [<!ENTITY b "' + 'x' * 1000 + '">' + ''.join(f'<!ENTITY b{i} "{"&b;" * 50}">'
                                                                     for i in range(20)) + ']><list>&b1;</list>'
    for body in bomb, f'<!DOCTYPE a [<!ENTITY b SYSTEM "file://{secret}">]><list>&b;</list>', '<a>' * 5000 + '</a>' * 5000:
        with pytest.raises(Trouble): xml_root(body.encode(), 'list', 'a')


# ---- secrets

def test_key_and_email_are_sent_and_seen_nowhere(tmp_path, monkeypatch, caplog):
    "A server that sends them back in all it says, an error that quotes them, a cache and a recording."
    monkeypatch.setenv('NCBI_API_KEY', KEY)
    monkeypatch.setenv('NCBI_EMAIL', EMAIL)
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path/'cpqa'))
    caplog.set_level('DEBUG')
    told = []
    def answer(verb, fields):
        if verb == 'efetch': return records(doc(1, text=f'Write to {EMAIL} with {KEY}.'))
        return found('1').replace(b'<IdList>', f'<QueryTranslation>{KEY} {EMAIL} {quote(EMAIL)}</QueryTranslation><IdList>'.encode())
    with serving(answer) as server:
        server.script = [(429, f'{{"error":"API key {KEY} of {EMAIL}","api-key":"{KEY}"}}'.encode(), {})]
        entrez = Entrez(server.url, cache=tmp_path/'cache', backoff=0.001, on_event=told.append, rate=200)
        assert KEY not in entrez.search('toys').translation and EMAIL not in str(entrez.fetch(['1']))
        taped = Entrez(server.url, record=tmp_path/'tape.jsonl', backoff=0.001)
        taped.search('toys')
        server.script = [(400, f'{{"error":"API key invalid: {KEY} {EMAIL}"}}'.encode(), {})]
        with pytest.raises(EntrezError, match='check NCBI_API_KEY') as e: entrez.search('other')
        assert Entrez(server.url, backoff=0.001).alive() is False
        assert all(f['api_key'] == [KEY] and f['email'] == [EMAIL] and f['tool'] == ['cpqa'] for _, f in server.asked)
    assert 'esearch.fcgi' in caplog.text   # urllib3 logs each address
    seen = [caplog.text, *(path for _, path, _ in server.raw), str(e.value), repr(entrez), *told, *entrez.events, *taped.events]
    for path in tmp_path.rglob('*'): seen += [str(path), *([path.read_bytes().decode('utf-8', 'replace')] if path.is_file() else [])]
    assert len(told) == 1 and len(list((tmp_path/'cache').rglob('*.reply'))) == 2 and (tmp_path/'tape.jsonl').stat().st_size
    assert not [text for text in seen if KEY in text or EMAIL in text or quote(EMAIL) in text]


def test_a_key_is_not_sent_unencrypted_to_others():
    with pytest.MonkeyPatch.context() as m:
        sent = []
        m.setattr(Web, 'ask', lambda self, path, fields, *a, **k: sent.append(fields) or (b'', replies.SearchReply((), 0)))
        for url in 'http://192.0.2.1/', 'https://192.0.2.1/':
            entrez = Entrez(url, email=EMAIL, key=KEY, cache=False)
            entrez.search('toys')
            assert entrez.web.rate
    assert KEY not in str(sent[0]) and EMAIL not in str(sent[0]) and KEY in str(sent[1]) and EMAIL in str(sent[1])


def test_ncbi_is_never_asked_faster_than_it_allows():
    assert Entrez(email=EMAIL, key='', rate=50).web.rate.gap > 1 / 3 and Entrez(email=EMAIL, key=KEY).web.rate.gap > 1 / 10
    assert Entrez('http://127.0.0.1:1/').web.rate is None and Entrez('http://127.0.0.1:1/', rate=5).web.rate.gap > 1 / 5


# ---- the rate

ASKER = '''
import sys
from concurrent.futures import ThreadPoolExecutor
from cpqa.literature.entrez import Entrez
entrez = Entrez(sys.argv[1], email='', key='', rate=float(sys.argv[2]))
print('ready', flush=True); sys.stdin.readline()
with ThreadPoolExecutor(3) as pool: list(pool.map(lambda i: entrez.search(f'toy {i}'), range(6)))
'''


def test_the_rate_is_shared_by_threads_and_processes(tmp_path):
    with serving(library) as server:
        askers = [Popen([sys.executable, '-c', ASKER, server.url, '12'], stdin=PIPE, stdout=PIPE, text=True,
                        env=environment(CPQA_CACHE=tmp_path)) for _ in range(2)]
        for a in askers: assert a.stdout.readline() == 'ready\n'
        for a in askers: a.stdin.write('\n'); a.stdin.flush()
        for a in askers: a.communicate(timeout=60); assert a.returncode == 0
        times = sorted(server.times)
    assert len(times) == 12 and times[-1] - times[0] >= 11 / 12 - 0.05
    late = [b - a for a, b in zip(times, times[1:]) if b - a < 1 / 12 - 0.05]   # a request may be held up on its way, not sent early
    assert len(late) <= 2, late


def test_a_pause_holds_for_all_and_a_broken_folder_for_one(tmp_path):
    a, b = Rate(1000, tmp_path/'rate'), Rate(1000, tmp_path/'rate')
    a.pause(0.5)
    assert 0.3 < b.take() <= 0.6
    (tmp_path/'file').write_text('')
    alone = Rate(1, tmp_path/'file'/'rate')
    assert [round(alone.take()) for _ in range(3)] == [0, 1, 2]


# ---- fetch

def test_every_id_is_accounted_for():
    def answer(verb, fields):
        ids = [i for i in fields['id'][0].split(',') if i not in ('7', '8')]
        return records(*(doc(i) for i in [*ids, *ids[:3], 99999]))   # some twice, one that nobody asked for
    with serving(answer) as server:
        got = client(server, batch=4).fetch([3, '7', '1', '3', 2, '8', 5, 6])
        assert [d.id for d in got.documents] == ['3', '1', '2', '5',
                                                 '6'] and got.missing == ('7', '8') and not got.faults and not got.failed
        assert [f['id'] for _, f in server.asked] == [['3,7,1,2'], ['8,5,6']] and {c for c, *_ in server.raw} == {'POST'}


def test_records_without_abstract_and_retracted_ones_come_as_they_are(shared):
    shared.script = [records(doc(1, text=''), doc(2, publication_types=('Journal Article', 'Retracted Publication')))]
    plain, retracted = client(shared).fetch(['1', '2']).documents
    assert plain.text == '' and not plain.retracted and retracted.retracted


@examples(12)
@given(bad=st.sets(st.integers(1, 60), max_size=3))
def test_a_record_that_breaks_the_server_takes_no_neighbour_with_it(bad):
    def answer(verb, fields):
        ids = [int(i) for i in fields['id'][0].split(',')]
        return (500, b'', {}) if bad & set(ids) else records(*map(doc, ids))
    with serving(answer) as server:
        got = client(server, tries=2, batch=30).fetch(range(1, 61))
    assert {int(i) for i in got.failed} == bad and {int(d.id) for d in got.documents} == set(range(1, 61)) - bad
    assert len(got.faults) == len(bad) and not got.missing


def test_a_record_that_holds_only_a_number_is_empty_and_one_without_a_number_is_said(shared):
    odd = b''.join(b'<PubmedArticle><MedlineCitation>%s</MedlineCitation></PubmedArticle>' % inside
                   for inside in (b'<PMID>3</PMID>', b'<Article/>'))
    shared.script = [records(doc(1), doc(2)).replace(b'</PubmedArticleSet>', odd + b'</PubmedArticleSet>')]
    got = (entrez := client(shared)).fetch(['1', '2', '3', '4'])
    assert [d.id for d in got.documents] == ['1', '2', '3'] and got.documents[2] == Document(id='3') and got.missing == ('4',)
    assert any('not asked for' in e for e in entrez.events) and '1 of 4 ids are not in pubmed' in entrez.events[-1]


def test_a_record_that_cannot_be_read_is_named(shared, monkeypatch):
    monkeypatch.setattr(module, 'parse_articles', lambda articles,
                        db: [module.Skipped('here', 'it is no article') if id == '2' else doc(id) for id, _ in articles])
    shared.script = [records(doc(1), doc(2))]
    got = client(shared).fetch(['1', '2'])
    assert ([d.id for d in got.documents], got.failed, got.missing) == (['1'], ('2',), ()) and 'it is no article' in got.faults[0]


def test_a_server_that_dies_in_the_middle_costs_few_requests_and_loses_nothing():
    alive = [True, True]
    def answer(verb, fields): return library(verb, fields) if alive and alive.pop() else (503, b'', {})
    with serving(answer) as server:
        got = client(server, tries=2, batch=10).fetch(range(1, 201))
        assert len(got.documents) == 20 and len(got.failed) == 180 and not got.missing
        assert len(server.asked) <= 2 + 2 * 2 * 7 and 'not asked' in got.faults[-1]
    with serving(lambda *_: (503, b'', {})) as server, pytest.raises(EntrezError, match='none of 3 records could be had'):
        client(server, tries=1).fetch(['1', '2', '3'])


def test_links_and_summaries_keep_what_came_before_the_fault():
    def link(ids):
        return (
            '<eLinkResult>'
            + ''.join(
                f'<LinkSet><IdList><Id>{i}</Id></IdList><LinkSetDb><LinkName>pubmed_pmc</LinkName>'
                f'<Link><Id>9{i}</Id></Link></LinkSetDb></LinkSet>'
                for i in ids
            )
            + '</eLinkResult>'
        ).encode()
    with serving() as server:
        server.script = [link('12'), (404, b'', {})]
        with pytest.raises(EntrezError) as e: client(server, batch=2).links(['1', '2', '3'])
        assert e.value.partial == {'1': 'PMC91', '2': 'PMC92'} and server.asked[0][1]['id'] == ['1', '2']


def test_full_texts_come_by_their_pmcid(shared):
    article = ('<article article-type="review-article"><front><article-meta><article-id '
               'pub-id-type="pmc">{}</article-id><title-group><article-title>On toys</article-title></title-group>'
               '</article-meta></front><body><sec><title>Play</title><p>Toys were played with.</p></sec></body></article>')
    shared.script = [f'<pmc-articleset>{article.format(900)}{article.format("PMC901")}</pmc-articleset>'.encode()]
    got = client(shared).fetch(['901', 'PMC900', 'PMC902'], db='pmc')
    assert [d.id for d in got.documents] == ['PMC901', 'PMC900'] and got.missing == ('PMC902',) and 'played with' in got.documents[0].text
    assert shared.asked[-1][1]['id'] == ['901,900,902']


@given(text=st.text(max_size=12))
def test_only_ids_are_sent(text):
    try: ids = clean_ids([text])
    except EntrezError: return
    assert ids == (text.strip(),) and ids[0].isascii() and ids[0].isdigit() and 0 < int(ids[0]) < 10**9


# ---- search

def test_a_search_says_what_pubmed_should_do(shared):
    shared.script = []
    client(shared).search('a  long\nquery', retmax=5, start=7, sort='date', since=2019, until='2020/02', history=True)
    fields = {k: v[0] for k, v in shared.asked[-1][1].items()}
    assert fields == {'db': 'pubmed', 'term': 'a long query', 'retmax': '5', 'retstart': '7', 'sort': 'pub_date', 'retmode': 'xml',
                      'datetype': 'pdat',
                      'mindate': '2019/01', 'maxdate': '2020/02', 'usehistory': 'y', 'tool': 'cpqa'}
    assert shared.raw[-1][0] == 'POST' and 'query' not in shared.raw[-1][1]


class Dated:
    "A library of ids with dates, searched as PubMed does: by date, and no more than `most`."
    def __init__(self, days: list[date], most: int): self.days, self.most = days, most

    def __call__(self, verb, fields):
        low, high = (entrez_date(fields[n][0], n == 'maxdate') if n in fields else None for n in ('mindate', 'maxdate'))
        hits = sorted(((d, str(i)) for i, d in enumerate(self.days, 1) if (low is None or low <= d) and (high is None or d <= high)),
                      reverse=True)
        assert int(fields['retmax'][0]) <= self.most
        return found(*(i for _, i in hits[:int(fields['retmax'][0])]), count=len(hits))


@examples(15)
@given(days=st.lists(st.integers(0, 900).map(lambda n: date(2018, 11, 1) + timedelta(days=n)), max_size=120), more=st.integers(0, 25))
def test_slices_lose_and_double_nothing(days, more):
    "With ten hits for a query at most, and `more` of them on one day."
    days += [date(2020, 2, 29)] * more
    with pytest.MonkeyPatch.context() as m, serving(Dated(days, 10)) as server:
        m.setattr(module, 'MOST_IDS', 10)
        entrez = client(server)
        ids = list(entrez.search_all('toys'))
        lost = sum(max(0, days.count(d) - 10) for d in set(days))
        assert len(ids) == len(set(ids)) == len(days) - lost
        assert bool(lost) == any('could not be listed' in e for e in entrez.events)
        assert lost or [days[int(i) - 1] for i in ids] == sorted(days, reverse=True)
        assert list(entrez.search_all('toys', limit=7)) == ids[:7]
        since = [int(i) for i in entrez.search_all('toys', since=2019, until='2019/06')]
        assert lost or {days[i - 1] for i in since} == {d for d in days if date(2019, 1, 1) <= d <= date(2019, 6, 30)}


# ---- cache, recording

def test_the_cache_expires_by_verb_and_survives_damage(tmp_path):
    with serving(library) as server:
        asked = lambda: len(server.asked)
        entrez = client(server, cache=tmp_path)
        for _ in range(2): entrez.search('toys'); entrez.fetch(['1', '2'])
        assert asked() == 2 and entrez.cache.size > 0
        for f in entrez.cache.files(): f.write_bytes(f.read_bytes()[:-1])
        assert [d.id for d in entrez.fetch(['1', '2']).documents] == ['1', '2'] and entrez.search('toys').count == 2 and asked() == 4
        short = client(server, cache=tmp_path, expiry={'esearch': -1})
        short.search('toys'); short.fetch(['1'])
        assert asked() == 5
        assert client(server).cache is None and Entrez(email='', key='').cache and Entrez(email='', key='', cache=False).cache is None
        server.script = [PASSING['page']] * 5
        with pytest.raises(EntrezError): entrez.search('others')
        assert entrez.search('others').ids == ('1', '2')   # a failure was not kept
        assert entrez.cache.clear() > 0 and entrez.cache.size == 0


def test_many_threads_write_one_entry(tmp_path):
    cache, body = Cache(tmp_path), b'x' * 100_000
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda i: cache.put('one', body) if i % 2 else cache.get('one', 60), range(200)))
    assert {d for d in done} <= {True, None, body} and cache.get('one', 60) == body and len(list(tmp_path.rglob('*.*'))) == 1


def test_one_client_serves_many_threads(shared):
    shared.script, entrez = [], client(shared)
    with ThreadPoolExecutor(8) as pool: got = list(pool.map(lambda i: entrez.fetch([i, i + 1]), range(1, 41)))
    assert [[d.id for d in g.documents] for g in got] == [[str(i), str(i + 1)] for i in range(1, 41)]


def test_a_recording_replays_without_a_server(tmp_path):
    with serving(library) as server:
        entrez = client(server, record=tmp_path/'tape.jsonl', cache=tmp_path/'cache')
        for _ in range(2): wanted = entrez.search('toys'), entrez.fetch(['1', '2'])
    again = Entrez(replay=tmp_path/'tape.jsonl', tool='another', email=EMAIL)
    assert (again.search('toys'), again.fetch(['1', '1', '2'])) == wanted
    assert not again.alive() and not again.events and not (tmp_path/'cache').exists()
    with pytest.raises(EntrezError, match='tape.jsonl holds no answer to .*"term": "games"'): again.search('games')
    with pytest.raises(EntrezError, match='holds no answer'): again.fetch(['3'])
    assert {json.loads(l)['request']['verb'] for l in (tmp_path/'tape.jsonl').read_text().splitlines()} == {'esearch', 'efetch'}


# ---- alive

def test_alive_keeps_its_time_and_never_raises(shared, monkeypatch):
    shared.script = []
    assert client(shared).alive()
    for step in silence, drip, hang_up, PASSING['page'], PASSING['429'], PASSING['500'], found('1'):
        shared.script, begin, before = [step], time.monotonic(), len(shared.asked)
        assert client(shared).alive(within=0.4) is False
        assert time.monotonic() - begin < HANG and len(shared.asked) == before + 1
    entrez = Entrez('https://nowhere.invalid/', email='', key='')   # the closed network of the tests raises an error of its own
    assert entrez.alive(within=1) is False and 'not there' in entrez.events[-1]
    monkeypatch.setattr(socket, 'getaddrinfo', lambda *a, **k: time.sleep(3 * HANG))
    begin = time.monotonic()
    assert entrez.alive(within=0.3) is False and time.monotonic() - begin < 3 * HANG


# ---- what NCBI really answered

READERS = {'esearch': replies.read_search, 'epost': replies.read_post, 'esummary': replies.read_summaries, 'espell': replies.read_spelling,
           'einfo': replies.read_info}
ERRORS, CUT = {'epost2', 'epost3', 'esummary8'}, {'einfo4'}   # the last stops in the middle


@pytest.fixture(scope='module')
def recorded(data_dir):
    if not (data_dir/'entrez').is_dir(): pytest.skip('the recorded answers of NCBI are not here')
    return {p.stem: p.read_bytes() for p in sorted((data_dir/'entrez').glob('*.xml'))}


def biopython(body: bytes):
    Entrez = pytest.importorskip('Bio.Entrez')
    return Entrez.read(io.BytesIO(body))


def test_recorded_errors_are_refused_for_good(recorded):
    for name in ERRORS:
        with pytest.raises(Trouble) as e: READERS[name.rstrip('0123456789')](recorded[name])
        assert not e.value.again and 'it reports an error' in e.value.why
    for name in CUT:
        with pytest.raises(Trouble, match='cut off') as e: READERS[name.rstrip('0123456789')](recorded[name])
        assert e.value.again


def test_recorded_searches_read_as_biopython_reads_them(recorded):
    names = [n for n in recorded if n.startswith('esearch')]
    for ours, theirs in ((replies.read_search(recorded[n]), biopython(recorded[n])) for n in names):
        assert list(ours.ids) == list(theirs['IdList']) and ours.count == int(theirs['Count']) and ours.translation == theirs[
            'QueryTranslation']
        assert [list(t) for t in ours.translations] == [[t['From'], t['To']] for t in theirs['TranslationSet']]
        assert ours.webenv == theirs.get('WebEnv', '') and ours.query_key == theirs.get('QueryKey', '')
        said = [w for kind in ('ErrorList', 'WarningList') for words in theirs.get(kind, {}).values() for w in words]
        assert len(ours.warnings) == len(said) and all(any(s in w for w in ours.warnings) for s in said)
    assert len(names) >= 7


def test_the_other_recorded_answers_read_as_biopython_reads_them(recorded):
    read = 0
    for name, body in recorded.items():
        verb = name.rstrip('0123456789')
        if name in ERRORS | CUT or verb not in READERS or verb == 'esearch': continue
        ours, theirs, read = READERS[verb](body), biopython(body), read + 1
        if verb == 'epost': assert (ours.webenv, ours.query_key) == (theirs['WebEnv'], theirs['QueryKey'])
        if verb == 'espell': assert ours == theirs['CorrectedQuery']
        if verb == 'einfo' and 'DbList' in theirs: assert list(ours.databases) == list(theirs['DbList'])
        if verb == 'einfo' and theirs.get('DbInfo'):
            db = theirs['DbInfo'][0] if isinstance(theirs['DbInfo'], list) else theirs['DbInfo']
            assert ours.count == int(db['Count']) and [f for f,
                                                       _ in ours.fields] == [f['Name'] for f in db['FieldList']] and ours.updated == db[
                                                           'LastUpdate']
        if verb == 'esummary':
            assert [s.id for s in ours] == [s['Id'] for s in theirs]
            for s, t in zip(ours, theirs):
                assert s.title == ' '.join(str(t.get('Title', '')).split()) and list(s.authors) == list(t.get('AuthorList',
                    [])) and s.date == t.get('PubDate', '')
                assert list(s.publication_types) == list(t.get('PubTypeList', []))
    assert read >= 9


def test_recorded_links_read_as_biopython_reads_them(recorded):
    seen = 0
    for name in (n for n in recorded if n.startswith('elink')):
        theirs = biopython(recorded[name])
        for link in {d['LinkName'] for s in theirs for d in s.get('LinkSetDb', [])} | {'pubmed_pmc'}:
            want = {str(s['IdList'][0]): tuple(dict.fromkeys(str(l['Id']) for d in s['LinkSetDb'] if d['LinkName'] == link
                                                             for l in d['Link']))
                    for s in theirs if len(s.get('IdList', [])) == 1 and any(d['LinkName'] == link for d in s.get('LinkSetDb', []))}
            assert replies.read_links(recorded[name], link) == want
            seen += bool(want)
    assert seen >= 2


def test_recorded_records_become_documents(recorded):
    for name, db, prefix in ('pubmed1', 'pubmed', ''), ('efetch_pmc', 'pmc', 'PMC'):
        articles = replies.cut_articles(recorded[name], db)
        read = module.read_documents(articles, db)
        assert articles and all(isinstance(d, Document) and d.id == i == f'{prefix}{i.removeprefix("PMC")}' for i, _, d in read)
        assert [i for i, _ in replies.cut_articles(replies.article_set((x for _, x in articles), db), db)] == [i for i, _ in articles]
