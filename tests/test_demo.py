"""The demo notes: what they cover, and that they say in our own words what a paper in the data really says."""
import gzip
import json
import re
import tarfile
import unicodedata
from pathlib import Path

import pytest
from lxml import etree
from msgspec.structs import replace

from cpqa import CancerQA
from cpqa.libraries import DEMO_VECTORS
from cpqa.literature.demo_notes import DEMO_FILE, DemoNote, demo_notes
from cpqa.literature.study_kinds import STUDY_KINDS
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.retrieval.encoders import KnownVectors
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.answering.subject import of_another_stage, stages_named
from cpqa.retrieval.vectors import embedded_text

pytestmark = pytest.mark.usefixtures('loaded_once')
RUN = 8   # words in a row that no note may share with any document
NOTES = demo_notes()


def words(text: str) -> list[str]: return re.findall(r"[^\W_]+(?:[-.'][^\W_]+)*", text.lower(), re.ASCII)


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
def rct(data_dir) -> dict:
    with gzip.open(data_dir/'rct'/'corpus.jsonl.gz', 'rt', encoding='utf-8') as f:
        return {d['_id']: d for d in map(json.loads, f)}


@pytest.fixture(scope='module')
def pages(data_dir) -> dict:
    "Id as in the notes, without its part -> address and text of a page for patients."
    begins = {'1_CancerGov_QA': 'NCI', '2_GARD_QA': 'GARD', '4_MPlus_Health_Topics_QA': 'MPLUS', '5_NIDDK_QA': 'NIDDK',
              '6_NINDS_QA': 'NINDS', '7_SeniorHealth_QA': 'NIHSH', '8_NHLBI_QA_XML': 'NHLBI', '9_CDC_QA': 'CDC'}
    noted, out = {page_of(n) for n in NOTES if n.url and not read_now(n)}, {}
    with tarfile.open(data_dir/'medquad'/'medquad_1-9_xml.tar.gz') as packed:
        for member in packed:
            begin = next((b for folder, b in begins.items() if f'{folder}/' in member.name), '')
            if not member.isfile() or f'{begin}-{Path(member.name).stem}' not in noted: continue
            page = etree.parse(packed.extractfile(member), etree.XMLParser(resolve_entities=False, no_network=True)).getroot()
            out[f'{begin}-{page.get("id")}'] = page.get('url').replace('http://', 'https://'), ' '.join(page.itertext())
    return out


def read_now(n: DemoNote) -> bool:   # a page that is not in the data: a session read a stored copy of it
    return n.id.startswith('WEB-')


def page_of(n: DemoNote) -> str:   # or the paper, of a further note on one
    return n.id.partition('.')[0]


@pytest.fixture(scope='module')
def source_runs(pqal, beir, rct, pages) -> set:
    "Every run of words in every document of the data; titles are facts of the bibliography and are left out."
    texts = [d['text'] for d in [*beir.values(), *rct.values()]] + [' '.join(r['CONTEXTS']) + ' ' + r['LONG_ANSWER'] for r in pqal.values()]
    texts += [pages[id][1] for id in {page_of(n) for n in NOTES if n.url and not read_now(n)}]
    return {run for text in texts for run in runs(text)}


def test_they_cover_what_patients_ask():
    assert len(NOTES) >= 150 and len({n.cancer for n in NOTES}) >= 25
    assert {n.topic for n in NOTES} >= {'screening', 'diagnosis', 'treatment', 'side effects', 'prognosis', 'prevention', 'genetics',
                                        'supportive care'}


def test_each_line_is_a_note_and_nothing_else():
    lines = [json.loads(line) for line in DEMO_FILE.read_text(encoding='utf-8').splitlines()]
    parts = {'id', 'title', 'year', 'mesh', 'cancer', 'topic', 'text', 'kind', 'url'}
    more = lambda id: {'pmid'} if id.startswith('PMC') else {'publisher'} if id.startswith('WEB') else set()
    assert all(set(line) == parts | more(line['id']) for line in lines)
    papers = [int(n.id) for n in NOTES if not n.url and not n.pmid]
    assert {n.pmid for n in NOTES if n.pmid} <= {str(id) for id in papers}   # a further note on a paper
    further = [n.id.partition('.')[::2] for n in NOTES if n.pmid]
    assert [(id, part) for id, part in further if part and (id, '' if part == '2' else str(int(part) - 1)) not in further] == []
    assert papers == sorted(set(papers)) and len({n.id for n in NOTES}) == len(NOTES)
    assert [n.id for n in NOTES if n.kind not in (*STUDY_KINDS, '')] == []
    assert all((n.kind == 'information page') == bool(n.url) for n in NOTES)


def test_each_leads_to_its_source():
    at = {n.id: n.document().url for n in NOTES}
    assert [id for id, url in at.items() if not url.startswith('https://')] == []
    assert [n.id for n in NOTES if n.pmid and at[n.id] != at[n.pmid]] == []


def test_a_page_that_was_read_is_no_paper_and_says_whose_it_is():
    pages = [n for n in NOTES if read_now(n)]
    assert len(pages) > 400 and [n.id for n in pages if not n.publisher or n.publisher.startswith('The ')] == []
    assert [n.id for n in pages if re.search(r'ncbi\.nlm|pubmed|doi\.org|preview|\?(?:_ga|tag|utm)', n.url)] == []
    assert {n.document().journal.endswith(', read in November 2026, not a paper') for n in pages} == {True}


def test_their_text_is_plain():
    odd = [(n.id, c) for n in NOTES for c in n.text + n.title if unicodedata.category(c)[0] == 'C' or c in '<>'
           and re.search(r'</?\w+>', n.text)]
    assert odd == []
    assert [n.id for n in NOTES if not n.text.endswith('.') or n.text != ' '.join(n.text.split())] == []


def test_every_source_stands_in_the_data(beir, pqal, rct, pages):
    assert [n.id for n in NOTES if not n.url and not n.pmid and n.id not in beir and n.id not in pqal and n.id not in rct] == []
    assert [n.id for n in NOTES if n.pmid and (page_of(n), n.year) != tuple(rct[n.pmid]['metadata'][k] for k in ('pmcid', 'year'))] == []
    kinds = {n.id: n.kind for n in NOTES}
    assert [n.id for n in NOTES if n.pmid and (n.kind, n.mesh) != (kinds[n.pmid], ())] == []
    assert [n.id for n in NOTES if n.url and not read_now(n) and pages.get(page_of(n), ('',))[0] != n.url] == []


def titles(paper: dict) -> list[list[str]]:
    "The title of a document of the data, in words: whole, and up to the end of each of its sentences; none where it has no title."
    ends = [m.end() for m in re.finditer(r'[.?!]|$', paper.get('title', ''))]
    return [w for end in ends if (w := words(paper['title'][:end]))]


def unlike(n: DemoNote, beir: dict, pqal: dict, rct: dict) -> str:
    "What a note says of its paper and the data say otherwise."
    if n.id in rct:
        own = (' '.join(rct[n.id]['title'].split()), rct[n.id]['metadata']['year'])
        return '' if (n.title, n.year) == own or n.id in pqal else f'{n.id}: title or year are not {own}'
    if n.id in pqal:
        paper = pqal[n.id]
        own = (paper['QUESTION'], int(paper['YEAR']) if paper['YEAR'] else None, set(paper['MESHES']))
        return '' if (n.title, n.year, set(n.mesh)) == own else f'{n.id}: title, year or headings are not {own}'
    if (n.year, n.mesh) != (None, ()): return f'{n.id}: where does its year or heading come from?'
    known = titles(beir[n.id])
    return '' if not known or words(n.title) in known else f'{n.id}: {n.title!r} is not {beir[n.id]["title"]!r}'


def test_title_year_and_headings_are_the_papers_own(beir, pqal, rct):
    faults = [fault for n in NOTES if not n.url and not n.pmid and (fault := unlike(n, beir, pqal, rct))]
    assert not faults, '\n'.join(faults)


def test_another_title_year_or_heading_would_be_found(beir, pqal, rct):
    known = next(n for n in NOTES if n.id in pqal and n.id not in rct)
    other = next(n for n in NOTES if n.id in beir and n.id not in pqal and n.id not in rct and titles(beir[n.id]))
    trial = next(n for n in NOTES if n.id in rct and n.id not in pqal)
    for wrong in (replace(known, title=known.title + ' Yes.'), replace(known, year=1066), replace(known, mesh=('Tea',)),
                  replace(other, title='Tea'), replace(other, year=2020), replace(trial, year=1066)): assert unlike(wrong, beir, pqal, rct)


def test_no_note_shares_a_run_of_words_with_any_document(source_runs, beir, pqal, rct):
    known = lambda n: n.id in pqal or n.id in rct or n.id in beir and titles(beir[n.id])
    ours = lambda n: runs(n.text) if known(n) else runs(n.text) | runs(n.title)    # a heading of our own
    shared = {n.id: ' '.join(run) for n in NOTES for run in ours(n) & source_runs}
    assert shared == {}


def test_a_copied_sentence_would_be_found(beir, source_runs):
    copied = next(d['text'] for d in beir.values() if len(words(d['text'])) > 20)
    assert runs('Our note says: ' + copied.upper()) & source_runs


def test_every_passage_has_its_vector_in_the_package():
    "Else the first question embeds the notes, and takes twice as long: `make demo-vectors` mends it."
    encoder = EmbeddedEncoder()
    texts = [embedded_text(p.title, p.text) for d in (n.document() for n in NOTES) for p in SentenceSplitter().split(d)]
    known, before = KnownVectors(encoder, DEMO_VECTORS), encoder.encode(texts[:20])
    encoder.encode = lambda texts, kind='document': pytest.fail(f'{len(texts)} passages have no vector')
    assert known.encode(texts).shape == (len(texts), encoder.dim)
    assert (known.encode(texts[:20]) * before).sum(1).min() > .999


COMPARED = (   # of six labels that notes gave two were wrong: quality of life was no different, and another trial added bevacizumab
    'Is letrozole better than tamoxifen before surgery for breast cancer?',
    'Does axitinib with gemcitabine help more than gemcitabine alone in pancreatic cancer?',
    'Does olaparib delay relapse of ovarian cancer more than placebo?',
    'Does chemotherapy before and after stomach cancer surgery help people live longer than surgery alone?',
    'Does docetaxel added to chemotherapy after surgery prevent more relapses than chemotherapy alone in breast cancer?')


@pytest.mark.parametrize('question', ['is stage 3 bowel cancer curable', 'stage 4 pancreatic cancer life expectancy no chemo'])
def test_another_stage_is_not_quoted(question):
    asked = stages_named(question)
    assert not any(of_another_stage(asked, c.quote) for c in CancerQA().ask(question).citations)


@pytest.mark.parametrize('question', COMPARED)
def test_notes_are_quoted_and_give_no_label(question):
    answer = CancerQA().ask(question)
    assert answer.citations and not answer.label and not answer.counts


def test_a_comparison_is_not_answered_with_what_a_report_covers():
    answer = CancerQA().ask('Is radiotherapy better than surgery for early prostate cancer?')
    first = answer.citations[0].quote.lower()
    assert not answer.label and ('surgery' in first or 'operation' in first) and 'radiotherapy' in first
    assert not any('report covers' in c.quote for c in answer.citations)   # that was quoted, at 83 in 100
