"A source, a reader and the choice of both come from rows: what another package adds is searched and read as ours is."
import socket
import sys
from types import SimpleNamespace

import pytest

from cpqa.answering.readers import READERS, Reading
from cpqa.core.errors import CpqaError
from cpqa.core.records import Answer, Document, Fetched
from cpqa.core.registry import Row
from cpqa.core.remarks import said
from cpqa.literature.entrez import Entrez, EntrezError
from cpqa.pipeline import CancerQA
from cpqa.retrieval.sources import SOURCES, LibrarySource, LiveSource, PubMedSource, Scope

QUESTION = 'Does ginger tea lower nausea after breast surgery?'
NEW = Document('90000001', 'Ginger tea after surgery', 'Ginger tea lowered nausea after surgery in 80 adults with breast cancer.',
               year=2025)


class Elsewhere(LiveSource):
    "A server that has one paper, beside the library."
    def search(self, query, k): return type('Found', (), {'ids': (NEW.id,), 'count': 1, 'warnings': ()})()
    def fetch(self, ids):
        here = LibrarySource(self.means).fetch([id for id in ids if id != NEW.id])
        return Fetched((*([NEW] if NEW.id in ids else []), *here.documents), here.missing)
    def alive(self): return True
    def told(self, n): return 'elsewhere'


def elsewhere(argument, means): return Elsewhere(means)


class Shy:
    wants_evidence = False
    def read(self, gathered): return Answer(gathered.question, 'I would rather not say.', abstained=True, why=(said('It is shy.'),))


def shy(argument, tools): return Shy()


def added(monkeypatch, registry, row):
    "The row stands in the registry, as one of another package would."
    monkeypatch.setitem(sys.modules, 'a_package', sys.modules[__name__])
    monkeypatch.setitem(registry.__dict__, 'rows', (*registry.rows, row))


def test_a_source_is_a_class_and_a_row(monkeypatch, tmp_path):
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path))
    added(monkeypatch, SOURCES, Row('elsewhere', 'a server of one paper', 'a_package:elsewhere'))
    qa = CancerQA('elsewhere')
    answer = qa.ask(QUESTION)
    assert answer.used_PMIDs[0] == NEW.id and answer.citations[0].quote == NEW.text and answer.library == 'elsewhere'
    assert NEW.id in [d.id for d in qa.retrieve(QUESTION).documents]
    with pytest.raises(CpqaError, match='the source is elsewhere, and a library is given too'): Scope('elsewhere', 'my/library')


def test_a_reader_is_a_class_and_a_row(monkeypatch):
    with pytest.raises(CpqaError, match='shy'): Reading(reader='shy')
    added(monkeypatch, READERS, Row('shy', 'says nothing', 'a_package:shy'))
    answer = CancerQA(reading=Reading(reader='shy')).ask(QUESTION)
    assert (answer.abstained, answer.reason, answer.library) == (True, 'It is shy.', 'nothing: the language model was asked alone')


def test_a_server_that_says_nothing_is_waited_for_once_in_a_question():
    with socket.create_server(('127.0.0.1', 0), backlog=50) as silent:   # lets everybody in, and never answers
        url = f'http://127.0.0.1:{silent.getsockname()[1]}/'
        entrez = Entrez(url, email='', key='', timeout=0.3, tries=3, deadline=0.3, backoff=0.001)
        notes = Document('7', text='Ginger.')
        source = PubMedSource(SimpleNamespace(scope=Scope('pubmed'), entrez=entrez, place='the notes', library={'7': notes}))
        with pytest.raises(EntrezError, match='in time'): source.search('ginger', 5)
        got = source.fetch([str(n) for n in range(1, 41)])
        assert [d.id for d in got.documents] == ['7'] and len(got.failed) == 39 and 'no time was left' in got.faults[0]
        with pytest.raises(EntrezError, match='no time was left'): source.full_texts(['PMC1', 'PMC2'])
        silent.settimeout(0)
        calls = 0
        while True:
            try: silent.accept()[0].close()
            except BlockingIOError: break
            calls += 1
        assert calls <= 3 and not any('halves' in e for e in entrez.events)
        # the next question has its own time
        with pytest.raises(EntrezError, match='in time'): PubMedSource(source.means).search('ginger', 5)
