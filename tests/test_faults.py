"""The fault suite: our client against a server of E-utilities that misbehaves on purpose.

Each fault is survived where that is possible, nothing is lost without being named, and the reason can be read in `client.events` or
`Fetched.faults`. New cases need three fixtures: `library` (eight invented articles), `serve(misbehave)`, which starts a server of it, and
`client(server)`, which makes a client in a hurry.
"""
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import cases
from entrez_toys import ARTICLES, BOSSY, PMIDS, toy_full_texts, toy_library

from cpqa.core.errors import CpqaError
from cpqa.literature.entrez import Entrez, EntrezError
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.local_ncbi.entrez_server import EntrezServer
from cpqa.local_ncbi.entrez_server import ENTREZ_FAULTS

POLYPS = 'polyps'


@pytest.fixture(scope='session')
def faults_dir(tmp_path_factory): return tmp_path_factory.mktemp('faults')


@pytest.fixture(scope='session')
def library(faults_dir):
    toy_full_texts(faults_dir/'pmc')
    return toy_library(faults_dir/'library')


@pytest.fixture
def serve(library, faults_dir):
    "Starts a server of the library that commits the faults of a text; all are stopped after the test."
    running = []

    def start(misbehave: str = '') -> EntrezServer:
        running.append(EntrezServer(library, pmc=faults_dir/'pmc', misbehave=misbehave))
        return running[-1]

    yield start
    for server in running: server.close()


@pytest.fixture
def client():
    "A client of a server, or of an address, that waits for milliseconds where a real one waits for seconds."
    def make(server: EntrezServer | str, **options) -> Entrez:
        url = server if isinstance(server, str) else server.url
        return Entrez(**{'url': url, 'email': '', 'key': '', 'cache': False, 'tries': 4, 'backoff': 0.001, 'timeout': 5.0, 'deadline': 20.0,
                         **options})
    return make


@pytest.fixture(scope='session')
def good(library) -> tuple[str, ...]:
    "What the search must find, by the engine itself."
    return BooleanIndex(library).search(POLYPS, k=100, sort='relevance').ids


def closed_port() -> str:
    "The address of a port at which nobody listens."
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return f'http://127.0.0.1:{s.getsockname()[1]}/entrez/eutils/'


def said(client: Entrez) -> str: return '\n'.join(client.events)


# ---- a good day: the client and the server understand each other

def test_every_verb_on_a_good_day(serve, client, good):
    server = serve()
    one = client(server)
    assert one.alive()
    found = one.search(POLYPS, retmax=100)
    assert (found.ids, found.count, len(found.ids)) == (good, len(good), 7)
    assert one.search(POLYPS, since=2015, until='2016/12', sort='date').ids == ('1007', '1002')
    fetched = one.fetch([*PMIDS, '424242'])
    assert [d.to_dict() for d in fetched.documents] == [d.to_dict() for d in ARTICLES] and (fetched.missing,
        fetched.faults) == (('424242',), ())
    assert one.links(PMIDS) == {'1001': 'PMC501', '1008': 'PMC508'}
    full = one.fetch(['PMC508', 'PMC501'], db='pmc')
    assert [d.id for d in full.documents] == ['PMC508'] and full.documents[0].article_type == 'review-article'
    assert full.missing == ('PMC501',)
    assert [(s.id, s.title) for s in one.summaries(['1002', '1001'])] == [(d.id, d.title) for d in (ARTICLES[1], ARTICLES[0])]
    assert one.spell('colon polips') == 'colon polyps'
    assert one.info().databases == ('pubmed', 'pmc') and one.info('pubmed').count == 8
    assert [d.id for d in one.fetch_stored(one.post(['1003', '1001']))] == ['1003', '1001']
    kept = one.search(POLYPS, history=True, retmax=1)
    assert sorted(d.id for d in one.fetch_stored(kept)) == sorted(good)
    assert list(one.search_all(POLYPS)) == sorted(good,
                                                  key=lambda i: (-ARTICLES[PMIDS.index(i)].year, i)) and not server.misbehaviour.counts


def test_a_long_search_by_slices_of_dates(serve, client, good, monkeypatch):
    "PubMed's limit, with three in place of 9,999: the slices find what one search does not give, each id once."
    import cpqa.literature.entrez as entrez
    import cpqa.local_ncbi.entrez_local as entrez_local
    monkeypatch.setattr(entrez_local, '_MOST', 3)
    monkeypatch.setattr(entrez, 'MOST_IDS', 3)
    assert sorted(client(serve()).search_all(POLYPS)) == sorted(good)


# ---- faults of the service that pass

PASSING = {   # what the server does, and what the client must say about it
    '429=2': 'API rate limit exceeded', 'retry-after=1': 'API rate limit exceeded', '500=2': 'answered 500', '502=1,503=1': '503',
    'cut=2': 'cut off|broke off', 'short=2': 'cut off or broken',
    'html=2': 'web page', 'empty=2': 'empty', 'nonsense=2': 'broken', 'foreign=2': '<weather>', 'bomb=1': '',
    'error=1': 'Search Backend failed', 'down=2': 'connection',
    '429=1,html=1,cut=1': 'cut off|broke off',
}


@cases('misbehave,reason', PASSING.items())
def test_a_search_survives(serve, client, good, misbehave, reason):
    server = serve(misbehave)
    one = client(server)
    assert one.search(POLYPS, retmax=100).ids == good
    faults = sum(server.misbehaviour.counts.values())
    assert faults == len(one.events) == server.requests['esearch'] - 1 and re.search(reason, said(one)), one.events


@cases('misbehave,reason', PASSING.items())
def test_a_fetch_survives(serve, client, misbehave, reason):
    server = serve(misbehave)
    fetched = (one := client(server)).fetch(PMIDS)
    assert [d.to_dict() for d in fetched.documents] == [d.to_dict() for d in ARTICLES] and not fetched.missing and not fetched.failed
    assert one.events and server.requests['efetch'] > 1


def test_the_server_is_waited_for_as_long_as_it_asks(serve, client):
    one, begin = client(serve('retry-after=1')), time.monotonic()
    assert one.search(POLYPS).count == 7 and time.monotonic() - begin >= 0.9


def test_too_slow_is_given_up_and_asked_again(serve, client, good):
    server = serve('slow=3*1')
    one = client(server, timeout=0.2)
    assert one.search(POLYPS, retmax=100).ids == good and 'in time' in said(one)


def test_a_fifth_of_all_requests_fail(serve, client):
    "Many requests, each fault here and there: the documents are those of a good day."
    server = serve('500=20%,cut=10%,html=10%,seed=3')
    one = client(server, tries=8, batch=1)
    fetched = [one.fetch(PMIDS) for _ in range(5)]
    assert all([d.id for d in f.documents] == list(PMIDS) for f in fetched)
    assert min(server.misbehaviour.counts[k] for k in ('500', 'cut',
                                                       'html')) > 0 and len(one.events) == sum(server.misbehaviour.counts.values())


@pytest.mark.parametrize('verb,call', {
    'elink': lambda c: c.links(['1001']) == {'1001': 'PMC501'}, 'esummary': lambda c: c.summaries(['1001'])[0].id == '1001',
    'espell': lambda c: c.spell('polips') == 'polyps',
    'einfo': lambda c: c.info().databases == ('pubmed', 'pmc'), 'epost': lambda c: bool(c.post(['1001']).webenv)}.items(),
    ids=lambda x: x if isinstance(x, str) else '')
def test_the_other_verbs_survive(serve, client, verb, call):
    server = serve(f'{verb}:429=1,{verb}:cut=1,{verb}:html=1')
    assert call(client(server)) and sum(server.misbehaviour.counts.values()) == 3


# ---- faults that stay: a reason, in time, and what was had is kept

def test_a_closed_port(client):
    one = client(closed_port(), tries=2)
    assert not one.alive()
    with pytest.raises(EntrezError, match='connection'): one.search(POLYPS)
    with pytest.raises(EntrezError, match='none of 2 records'): one.fetch(['1001', '1002'])
    assert 'connection' in said(one)


@cases('kind', ['down', '429', '500', 'html', 'empty', 'cut', 'short', 'nonsense', 'foreign', 'bomb', 'error'])
def test_a_fault_that_stays_is_one_sentence(serve, client, kind):
    one = client(serve(kind), tries=2)
    for call in (lambda: one.search(POLYPS), lambda: one.fetch(PMIDS), lambda: one.links(PMIDS), lambda: one.summaries(PMIDS),
                 lambda: one.spell('polips')):
        with pytest.raises(EntrezError) as e: call()
        assert str(e.value).startswith(('127.0.0.1 did not answer',
                                        'none of 8 records could be had')) and '\n' not in str(e.value) and len(str(e.value)) < 500
    assert not one.alive(within=1.0) and one.events


def test_alive_is_quick(serve, client):
    one, begin = client(serve('slow=30')), time.monotonic()
    assert not one.alive(within=0.3) and time.monotonic() - begin < 25 and 'in time' in said(one)


def test_a_search_that_fails_leaves_the_fetch_alone(serve, client):
    one = client(serve('esearch:500'), tries=2)
    with pytest.raises(EntrezError): one.search(POLYPS)
    assert [d.id for d in one.fetch(PMIDS).documents] == list(PMIDS)


def test_what_was_had_before_is_kept_and_the_rest_named(serve, client):
    "Batches of two, of which the first is lost for good: six documents, and two ids with the reason."
    fetched = (one := client(serve('efetch:500=3'), tries=1, batch=2)).fetch(PMIDS)
    assert [d.id for d in fetched.documents] == list(PMIDS[2:]) and fetched.failed == PMIDS[:2] and not fetched.missing
    assert any('500' in f for f in fetched.faults) and all(i in ' '.join(fetched.faults) for i in PMIDS[:2]) and said(one)
    assert {d.id for d in fetched.documents} | {*fetched.failed} == {*PMIDS}


def test_a_batch_that_breaks_is_asked_for_in_halves(serve, client):
    server = serve('efetch:cut=2')
    fetched = (one := client(server, tries=1)).fetch(PMIDS)
    assert [d.id for d in fetched.documents] == list(PMIDS) and 'halves' in said(one) and server.requests['efetch'] > 2


def test_what_is_wrong_with_the_request_is_not_tried_again(serve, client):
    server = serve()
    one = client(server)
    for call, reason in ((lambda: one.search('polyps AND ('), 'never closed'), (lambda: one.search(POLYPS, db='books'), 'Invalid db name')):
        with pytest.raises(EntrezError, match=reason): call()
    assert server.requests['esearch'] == 2


# ---- odd records

def test_an_article_without_an_abstract_comes_as_it_is(serve, client):
    [letter] = client(serve()).fetch(['1005']).documents
    assert (letter.text, letter.title) == ('', ARTICLES[4].title)


def test_records_and_ids_that_come_twice_count_once(serve, client, good):
    one = client(serve('twice'))
    assert [d.id for d in one.fetch(PMIDS).documents] == list(PMIDS)
    assert tuple(dict.fromkeys(one.search(POLYPS, retmax=100).ids)) == good


def test_a_long_search_names_each_id_once(serve, client, good): assert sorted(client(serve('twice')).search_all(POLYPS)) == sorted(good)


def test_a_record_that_is_left_out_is_missing_and_not_forgotten(serve, client):
    fetched = (one := client(serve('efetch:lose=1'))).fetch(PMIDS)
    assert fetched.missing == PMIDS[-1:] and [d.id for d in fetched.documents] == list(PMIDS[:-1]) and '1 of 8 ids' in said(one)


def test_a_retracted_article_says_so(serve, client):
    fetched = client(serve()).fetch(['1006', '1001'])
    assert [d.retracted for d in fetched.documents] == [True, False]
    assert fetched.documents[0].corrections == ARTICLES[5].corrections


def test_an_abstract_that_gives_orders_is_an_abstract(serve, client):
    "The text comes as it is, and changes nothing outside its own field."
    one = client(serve())
    [bossy] = one.fetch(['1007']).documents
    assert bossy.to_dict() == ARTICLES[6].to_dict() and bossy.text == BOSSY
    assert '1007' in one.search('instructions').ids and 'gnore' not in said(one)


def test_an_entity_bomb_does_not_go_off(serve, client):
    "Two hundred gigabytes, if it did; here a refusal that is quick and small."
    resource = pytest.importorskip('resource')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EntrezError): client(serve('bomb'), tries=2).fetch(PMIDS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


# ---- nothing that is private in what is said

def test_neither_key_nor_address_is_told(serve, client):
    key, email = 'k' * 36, 'patient@example.org'
    one = client(serve('html=1,error=1,429'), tries=3, key=key, email=email)
    with pytest.raises(EntrezError) as e: one.search(POLYPS)
    assert not {key, email} & {w for w in (key, email) if w in said(one) + str(e.value)}


def test_many_threads_on_a_bad_day(serve, client):
    one = client(serve('500=15%,cut=15%'), tries=10)
    with ThreadPoolExecutor(8) as pool: found = list(pool.map(lambda i: one.fetch([i]).documents[0].id, PMIDS*5))
    assert found == list(PMIDS)*5


def test_each_fault_is_in_this_suite():
    tried = ' '.join([*PASSING, 'twice', 'lose'])
    assert all(kind in tried for kind in ENTREZ_FAULTS)
    assert issubclass(EntrezError, CpqaError), 'what a client raises is an error for people'
