"""The quoting reader with the models of the package: the README's question, what is quoted, yes and no, and models that misbehave."""
import numpy as np
import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpqa.answering.abstention import NOTHING
from cpqa.answering.citations import fault
from cpqa.answering.quoting_reader import (MOST, SIGNS, QuoteWeights, QuotingReader, answer_probability, candidates,
                                            shipped_quote_weights, standing)
from cpqa.answering.readers import Gathered
from cpqa.answering.stance import Stance
from cpqa.answering.subject import about_it, subject_of
from cpqa.answering.verdict import Heard, asks_for_label, shipped_verdict, verdict
from cpqa.core.records import Correction, Document, Evidence, Passage
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.openvino_models import ModelError

TAMOXIFEN, SOURDOUGH, CAR_T = (
    'What are the side effects of tamoxifen?',
    'How do I bake sourdough bread?',
    'Is tisagenlecleucel effective for B-cell lymphoma?',
)


pytestmark = pytest.mark.usefixtures('loaded_once')


@pytest.fixture(scope='module')
def qa():
    qa = CancerQA(finding=Finding(depth=15))
    if qa.second('default') is None: pytest.skip('no cross-encoder came with this copy')
    return qa


@pytest.fixture(scope='module')
def read(qa):
    "Question -> its answer by the reader, and the documents it could quote."
    def of(question, reader=QuotingReader(abstain_below=0.3)):
        vector = qa.encoder.encode([question], 'query')[0]
        documents = {d.id: d for d in qa.dual_path().retrieve(question).documents}
        evidence = qa.two_stage(qa.vectors).choose(question, vector, list(documents.values()), 10).evidence
        given = Gathered(question, evidence, documents, vector=vector, reranker=qa.second('default'), encoder=qa.encoder)
        return reader.read(given), documents
    return of


def test_the_first_question_of_the_readme(read):
    answer, documents = read(CAR_T)
    assert 'tisagenlecleucel' in answer.citations[0].quote.lower() and 'respon' in answer.citations[0].quote
    assert answer.kind == 'yesno' and answer.label in ('yes', '')
    assert all(fault(c, documents) is None and 0 <= c.score <= 1 for c in answer.citations)


@pytest.mark.parametrize('question', ['Does axitinib help in pancreatic cancer?',
                                      'Does tivantinib extend survival in hepatocellular carcinoma?'])
def test_what_failed_is_no_yes(read, question):
    answer, _ = read(question)
    assert answer.label in ('no', '') and answer.citations


def test_side_effects_of_tamoxifen_are_not_declined(read):
    answer, _ = read(TAMOXIFEN)
    assert not answer.abstained and any('tamoxifen' in c.quote.lower() for c in answer.citations)
    assert (answer.kind, answer.label, answer.counts) == ('long', '', {})


@pytest.mark.parametrize('question', [SOURDOUGH, 'What is the best laptop for students?', 'Is it going to rain tomorrow?'])
def test_questions_of_another_world_are_declined(read, question):
    answer, _ = read(question)
    assert (answer.abstained, answer.citations, answer.response, answer.label) == (True, (), NOTHING, '')
    assert 'chance' in answer.reason


def test_confidence_decides_where_it_is_asked_to(read):
    sure = read(CAR_T, QuotingReader())[0].confidence
    assert sure == read(CAR_T, QuotingReader())[0].citations[0].score or sure >= 0.5
    assert [read(CAR_T, QuotingReader(abstain_below=p))[0].abstained for p in (sure - 0.01, sure + 0.01)] == [False, True]


class Says:
    "A stance model that remembers what it was asked, and says what it is told to."
    def __init__(self, says=lambda s: Stance(.9, .8, .1)): self.asked, self.says = [], says
    def read(self, asked, said):
        self.asked += said
        return [self.says(s) for s in said]


EVEN = QuoteWeights({'finding': 1.0, 'passage': 1.0}, 0.0)


def library(n, text='Tea number {i} helped {i} adults to sleep well at night. A second sentence speaks of coffee {i}.'):
    documents = {f'd{i}': Document(f'd{i}', f'Tea {i}', text.format(i=i), year=2000 + i) for i in range(n)}
    return documents, [Evidence(Passage.of(d, 0, len(d.text)), score=0.5) for d in documents.values()]


def test_few_sentences_are_read():
    documents, evidence = library(40)
    model = Says()
    QuotingReader(stance=model, weights=EVEN).read(Gathered('Does tea help?', evidence, documents))
    assert len(model.asked) == MOST and all(s.title for s in model.asked)


def test_a_model_that_fails_says_what_to_do():
    documents, evidence = library(3)
    def fails(_): raise ModelError('no memory: lower budget')
    with pytest.raises(ModelError, match='lower budget'):
        QuotingReader(stance=Says(fails), weights=EVEN).read(Gathered('Does tea help adults?', evidence, documents))


@pytest.mark.parametrize('scores', [lambda ps: np.full(len(ps), np.nan, np.float32), lambda ps: np.zeros(1, np.float32), lambda ps: 1 / 0])
def test_a_reranker_that_misbehaves_leaves_an_answer(qa, scores):
    documents, evidence = library(3)
    class Failing:
        def score(self, query, passages): return scores(passages)
        def describe(self): return qa.second('default').describe()
    weights = shipped_quote_weights('Does tea help?', 'papers')
    reader = QuotingReader(weights=replace(weights, weights=weights.weights | {'sentence': 0.5}))   # those of the package go without it
    given = Gathered('Does tea help adults?', evidence, documents, encoder=qa.encoder)
    answer = reader.read(given._replace(reranker=Failing()))
    assert answer.citations == reader.read(given).citations and 'the reranker failed on the sentences' in answer.notes[0]


def test_newer_papers_and_reviews_come_first_where_all_else_is_alike():
    documents, evidence = library(4, 'Tea helped adults to sleep well.')
    reader = QuotingReader(stance=Says(), weights=EVEN)
    assert reader.read(Gathered('Does tea help adults?', evidence, documents)).used_PMIDs == ('d3',)   # the others say the same
    documents['d0'] = replace(documents['d0'], publication_types=('Systematic Review',))
    assert reader.read(Gathered('Does tea help adults?', evidence, documents)).used_PMIDs == ('d0',)


def test_a_denial_is_no_repetition_and_is_named():
    texts = ['Tea improved sleep in adults.', 'Tea did not improve sleep in adults.']
    documents = {f'd{i}': Document(f'd{i}', 'Tea', t) for i, t in enumerate(texts)}
    evidence = [Evidence(Passage.of(d, 0, len(d.text)), score=0.5) for d in documents.values()]
    model = Says(lambda s: Stance(.9, .1, .8) if ' not ' in s.sentence else Stance(.9, .8, .1))
    asked = lambda question: QuotingReader(stance=model, weights=EVEN).read(Gathered(question, evidence, documents))
    answer = asked('Does tea improve sleep in adults more than water?')
    assert {c.quote for c in answer.citations} == set(texts)
    assert answer.label == 'maybe' and answer.counts == {'for': 1, 'against': 1, 'unclear': 0}
    assert 'd0 points to yes and PMID d1 to no' in answer.reason
    plain = asked('Does tea improve sleep in adults?')
    assert {c.quote for c in plain.citations} == set(texts) and (plain.label, plain.counts) == ('', {})   # nothing is compared


def test_the_first_quote_carries_the_label():
    documents, evidence = library(3, 'Coffee came late. Tea helped {i} adults to sleep.')
    model = Says(lambda s: Stance(.8, .95, .01) if 'Tea' in s.sentence else Stance(.81, .3, .1))
    asked = Gathered('Does tea help adults to sleep, compared with water?', evidence, documents)
    answer = QuotingReader(stance=model, weights=EVEN).read(asked)
    assert answer.label == 'yes' and answer.citations[0].quote.startswith('Tea helped')


@pytest.mark.parametrize('question', [
    'Should adults take tea rather than water?', 'Is tea no better than water?', "Doesn't tea help more than water?", 'Does tea help?',
    'Does tea help me more than water?', 'Is tea better than treatment?', 'Which tea helps more than water?', 'How many slept?',
    'What should I do if tea does not help?', 'Must I stop tea before an operation?'])
def test_questions_that_a_label_would_mislead_get_none(question):
    documents, evidence = library(3)
    answer = QuotingReader(stance=Says(lambda s: Stance(.99, .99, 0)), weights=EVEN).read(Gathered(question, evidence, documents))
    assert not asks_for_label(question) and (answer.label, answer.counts) == ('', {}) and answer.citations


def test_retracted_papers_and_notices_are_neither_quoted_nor_counted():
    documents, evidence = library(3, 'Tea helped adults to sleep well.')
    reader = QuotingReader(stance=Says(lambda s: Stance(.95, .97, .01)), weights=EVEN)
    asked = lambda documents: reader.read(Gathered('Does tea help adults to sleep, compared with water?', evidence, documents))
    assert asked(documents).label == 'yes' and sum(asked(documents).counts.values()) == 3
    for change in (dict(publication_types=('Retracted Publication',)), dict(publication_types=('Retraction of Publication',)),
                   dict(corrections=(Correction('RetractionOf', '1'),)), dict(title='Retraction: Tea')):
        gone = {k: replace(d, **change) for k, d in documents.items()}
        assert candidates(evidence, gone) == [] and asked(gone).abstained
        some = gone | {'d1': documents['d1']}
        assert asked(some).used_PMIDs == ('d1',) and sum(asked(some).counts.values()) == 1


def test_a_sentence_that_leans_is_quoted_with_the_one_before():
    text = 'Tea was given to 40 adults. These slept well. The respective times were 4 and 6 hours.'
    d = Document('d', 'Tea', text)
    starts = [text.index(s) for s in ('Tea was', 'These', 'The respective')]
    ends = [*(s - 1 for s in starts[1:]), len(text)]
    assert [text[slice(*standing(d, span))] for span in zip(starts, ends)] == [
        'Tea was given to 40 adults.', 'Tea was given to 40 adults. These slept well.',
        'These slept well. The respective times were 4 and 6 hours.']


probability, number = st.floats(0, 1), st.floats(-9, 9)


@examples(100)
@given(st.lists(st.tuples(*[st.one_of(number, st.just(float('nan')))] * len(SIGNS)), min_size=1, max_size=20), st.sampled_from(
    ['does tea help', 'Does tea help more than water?']))
def test_scores_are_probabilities_and_grow_with_what_speaks_for_a_sentence(rows, question):
    signs, w = dict(zip(SIGNS, map(np.array, zip(*rows)))), shipped_quote_weights(question, 'papers')
    p = answer_probability(signs, w)
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()
    for name in set(w.weights) - {'open'}:   # which says what is asked, not what the sentence is
        assert w.weights[name] >= 0 and (answer_probability(signs | {name: signs[name] + 1}, w) >= p).all(), name
    assert 0 < w.least < w.fair < w.close < 1


stances = st.tuples(probability, probability, probability).filter(lambda s: s[1] + s[2] <= 1).map(lambda s: Stance(*s))
heards = st.lists(st.builds(Heard, st.sampled_from('abcd'), probability, stances, st.just(True), st.just(False)), max_size=12)


@examples(100)
@given(heards)
def test_a_verdict_turns_around_with_what_is_said_and_counts_each_paper_once(heard):
    said = verdict(heard)
    turned = verdict([h._replace(stance=Stance(h.stance.finding, h.stance.no, h.stance.yes)) for h in heard])
    loud = {h.paper for h in heard if h.score >= max(g.score for g in heard) / 2}   # a paper on something else is not heard
    assert sum(said.counts.values()) == len(loud) and len(said.ways) == len(heard)
    assert said.label in ('', 'yes', 'no', 'maybe') and turned.counts['unclear'] == said.counts['unclear']
    if said.label == 'yes': assert said.counts['for'] and turned.label == 'no'   # a no takes less than a yes
    if said.label == 'maybe': assert said.counts['for'] and said.counts['against']


def test_what_bcg_does_is_not_answered_by_a_page_on_something_else():
    asked = subject_of('my bladder burns after BCG and i feel like i have the flu, is that normal')
    infection, treatment = (Document(id, title, 'Burning on passing water is a sign of it.') for id, title in (
        ('1', 'Bladder infection'), ('2', 'Treatment with Bacillus Calmette-Guerin')))
    assert not about_it(asked, infection) and about_it(asked, treatment)
