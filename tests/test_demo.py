"""The demo notes: what they cover, and that they say in our own words what a paper in the data really says."""
import gzip
import json
import re
import unicodedata

import pytest

from cpqa.literature.demo import DEMO_FILE, demo_notes

RUN = 8   # words in a row that no note may share with any document
NOTES = demo_notes()


def words(text: str) -> list[str]: return re.findall(r"[a-z0-9]+(?:[.'-][a-z0-9]+)*", text.lower())


def runs(text: str) -> set[tuple[str, ...]]:
    w = words(text)
    return {tuple(w[i:i + RUN]) for i in range(len(w) - RUN + 1)}


@pytest.fixture(scope='module')
def pqal(data_dir) -> dict: return json.loads((data_dir/'pubmedqa'/'ori_pqal.json').read_text(encoding='utf-8'))


@pytest.fixture(scope='module')
def beir(data_dir) -> dict:
    with gzip.open(data_dir/'bioasq_beir'/'corpus.jsonl.gz', 'rt', encoding='utf-8') as f:
        return {d['_id']: d for d in map(json.loads, f)}


@pytest.fixture(scope='module')
def source_runs(pqal, beir) -> set:
    "Every run of words in every document of the data; titles are facts of the bibliography and are left out."
    texts = [d['text'] for d in beir.values()] + [' '.join(r['CONTEXTS']) + ' ' + r['LONG_ANSWER'] for r in pqal.values()]
    return {run for text in texts for run in runs(text)}


def test_they_cover_what_patients_ask():
    assert len(NOTES) >= 150 and len({n.cancer for n in NOTES}) >= 25
    assert {n.topic for n in NOTES} >= {'screening', 'diagnosis', 'treatment', 'side effects', 'prognosis', 'prevention', 'genetics', 'supportive care'}


def test_each_line_is_a_note_and_nothing_else():
    lines = [json.loads(line) for line in DEMO_FILE.read_text(encoding='utf-8').splitlines()]
    assert all(set(line) == {'id', 'title', 'year', 'mesh', 'cancer', 'topic', 'text'} for line in lines)
    assert [int(n.id) for n in NOTES] == sorted({int(n.id) for n in NOTES})


def test_their_text_is_plain():
    odd = [(n.id, c) for n in NOTES for c in n.text + n.title if unicodedata.category(c)[0] == 'C' or c in '<>' and re.search(r'</?\w+>', n.text)]
    assert odd == []
    assert [n.id for n in NOTES if not n.text.endswith('.') or n.text != ' '.join(n.text.split())] == []


def test_every_pmid_stands_in_the_data(beir, pqal):
    assert [n.id for n in NOTES if n.id not in beir and n.id not in pqal] == []


def test_title_year_and_headings_are_the_papers_own(beir, pqal):
    for n in NOTES:
        if n.id in pqal:
            paper = pqal[n.id]
            assert (n.title, str(n.year), set(n.mesh)) == (paper['QUESTION'], str(int(paper['YEAR'])) if paper['YEAR'] else 'None', set(paper['MESHES'])), n.id
        else: assert (n.year, n.mesh) == (None, ()), f'{n.id}: where does its year or heading come from?'


def test_no_note_shares_a_run_of_words_with_any_document(source_runs):
    shared = {n.id: ' '.join(run) for n in NOTES for run in runs(n.text) & source_runs}
    assert shared == {}


def test_a_copied_sentence_would_be_found(beir, source_runs):
    copied = next(d['text'] for d in beir.values() if len(words(d['text'])) > 20)
    assert runs('Our note says: ' + copied.upper()) & source_runs
