"A source, a reader and the choice of both come from rows: what another package adds is searched and read as ours is."
import sys

import pytest

from cpqa.answering.readers import READERS, Reading
from cpqa.core.errors import CpqaError
from cpqa.core.records import Answer, Document, Fetched
from cpqa.core.registry import Row
from cpqa.core.remarks import said
from cpqa.pipeline import CancerQA
from cpqa.retrieval.sources import SOURCES, LibrarySource, LiveSource, Scope

QUESTION = 'Does ginger tea lower nausea after surgery?'
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
