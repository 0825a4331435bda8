"Patients' words are found as the literature's are, in every stage; and what is nobody's word is left alone."
import time

import pytest

from cpqa import CancerQA
from cpqa.answering.quoting_reader import unmentioned
from cpqa.core.records import Citation
from cpqa.retrieval.patient_words import both_forms, equivalents, in_literature, patient_words, patients_phrases, spellings
from cpqa.retrieval.rule_rewriter import RuleRewriter
from cpqa.retrieval.spelling import Speller

pytestmark = pytest.mark.usefixtures('loaded_once')

PAIRS = [('Does Keytruda help in lung cancer?', 'Does pembrolizumab help in lung cancer?'),
         ('stop feeling sick after chemo', 'stop chemotherapy-induced nausea and vomiting'),
         ('honey and sore mouth', 'honey and oral mucositis'),
         ('What can help against brain fog?', 'What can help against cognitive impairment?'),
         ('cold cap for losing hair', 'scalp cooling for alopecia'),
         ('Is Herceptin good for breast cancer?', 'Is trastuzumab good for breast cancer?')]
LEFT_ALONE = ['Sick leave after surgery', 'Can I catch a cold?', 'My test was positive', 'What dose is right?', 'Discharge from hospital',
              'Does radiation cause cancer?', 'What are ALL of the options?', 'Should I take all my tablets?', 'The test came back clear',
              'What is the gist of the trial?', 'the risk of a secondary cancer after proton therapy']


@pytest.fixture(scope='module')
def qa(): return CancerQA()


# not brain fog: no note is on what helps, and 'cognitive impairment' is answered, wrongly, with what cognitive therapy is good for
@pytest.mark.parametrize('lay,clinical', [p for p in PAIRS if 'fog' not in p[0]])
def test_a_patients_words_count_as_the_literatures(qa, lay, clinical):
    mine, papers = qa.ask(lay), qa.ask(clinical)
    assert mine.confidence >= 0.8 * papers.confidence or mine.abstained and papers.abstained   # no note is on scalp cooling


# not brain fog: its other forms (cognitive dysfunction) bring in papers that share few words with the clinical question; nor the cold
# cap, on which there is no note: what shares a word with either question comes in
@pytest.mark.parametrize('lay,clinical', [*(p for p in PAIRS if not {'fog', 'cap'} & {*p[0].strip('?').split()}),
                                          ('leukemia', 'leukaemia'), ('leukaemia', 'leukemia')])
def test_term_search_finds_what_it_finds_for_papers_words(qa, lay, clinical):
    wanted, found = ({h.id for h in qa.search(q, 20, 'bm25')} for q in (clinical, lay))
    assert len(wanted & found) >= 0.5 * len(wanted)   # notes in a patient's own words, which are more than half, come in as well


@pytest.mark.parametrize('american,british', [('leukemia', 'leukaemia'), ('tumor', 'tumour')])
def test_both_spellings_find_the_same(qa, american, british):
    there, here = ({h.id for h in qa.search(q, 4000, 'bm25')} for q in (american, british))
    assert there == here and len(here) >= 18


@pytest.mark.parametrize('text', LEFT_ALONE)
def test_words_of_several_senses_are_left_alone(text): assert in_literature(text) == text


def test_the_answer_keeps_the_question_and_the_trace_tells_the_forms(qa):
    asked = 'Does Herceptin help in breast cancer?'
    answer = qa.ask(asked)
    assert answer.question == asked and answer.trace['forms'] == [asked, 'Does trastuzumab help in breast cancer?']


def test_nothing_to_replace_changes_nothing(qa, monkeypatch):
    asked = 'Is tisagenlecleucel effective for follicular lymphoma?'
    with_table = qa.ask(asked)
    for room in ('passages.rerankers', 'retrieval.dual_path', 'retrieval.term_search'):
        monkeypatch.setattr(f'cpqa.{room}.both_forms', lambda q: (q,))
    monkeypatch.setattr('cpqa.pipeline.both_forms', lambda q: (q,))
    monkeypatch.setattr('cpqa.retrieval.term_search.ways_to_say', lambda text, names=False: [(text,)])
    without = qa.ask(asked)
    assert with_table.response == without.response and with_table.confidence == without.confidence
    assert with_table.evidence == without.evidence and with_table.citations == without.citations


def test_an_equivalent_is_a_mention():
    quote = Citation('1', 'pembrolizumab relieved nausea in leukaemia', 0, 42, 1.0)
    assert unmentioned('Does Keytruda with honey stop feeling sick in leukemia?', [quote]) == ['honey']
    assert unmentioned('pembrolizumab', [Citation('1', 'Keytruda', 0, 8, 1.0)]) == []


def test_the_ladder_and_the_speller_know_the_table():
    ladder = ' '.join(rung.text for rung in RuleRewriter().ladder('keytruda for leukemia'))
    assert 'pembrolizumab[tiab]' in ladder and 'leukaemia[tiab]' in ladder
    assert Speller().known('keytruda')


def test_the_table_is_sound():
    rows = patient_words()
    assert len({w.said for w in rows}) == len(rows) and {w.kind for w in rows} == {'brand', 'lay', 'abbreviation', 'misspelling'}
    assert sum(w.kind == 'brand' for w in rows) >= 250 and sum(w.kind == 'lay' for w in rows) >= 300
    lost = [w.said for w in rows if not patients_phrases(w.said) or patients_phrases(w.said)[0].wording.said != w.said]
    again = [w.said for w in rows if in_literature(once := in_literature(f'about {w.said}')) != once]
    assert not lost and not again, (lost, again)
    assert all(f and f == f.strip() for w in rows for f in w.forms)


def test_equivalents_go_both_ways():
    assert 'pembrolizumab' in equivalents('Keytruda') and 'keytruda' in equivalents('pembrolizumab')
    assert spellings('haematology') == ('hematology',) and spellings('hematology') == ('haematology',) and not spellings('chemotherapy')


def test_a_question_takes_little_time():
    asked = 'How do I stop feeling sick after chemo with Keytruda for lung cancer that has spread?'
    in_literature(asked)
    start = time.process_time()
    for _ in range(50): both_forms(asked)
    assert (time.process_time() - start) / 50 < 0.005
