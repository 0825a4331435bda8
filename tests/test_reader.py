"""The quoting reader with the models of the package: the README's question, what is quoted, yes and no, and models that misbehave."""
import numpy as np
import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpqa.answering.abstention import NOTHING
from cpqa.answering.citations import fault
from cpqa.answering.direction import direction
from cpqa.answering.quoting_reader import COSINE, MOST, PROBABILITY, QuotingReader, candidates, disagreements, mean_of
from cpqa.answering.readers import Gathered
from cpqa.core.records import Correction, Document, Evidence, Passage
from cpqa.passages.rerankers import BM25Reranker, CosineReranker, NoReranker
from cpqa.pipeline import CancerQA, Finding

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
def reader(qa): return QuotingReader(qa.encoder, 3, reranker=qa.second('default'))


@pytest.fixture(scope='module')
def read(qa, reader):
    "Question -> its answer by the reader, and the documents it could quote."
    def of(question, reader=reader, **more):
        vector = qa.encoder.encode([question], 'query')[0]
        documents = {d.id: d for d in qa.dual_path().retrieve(question).documents}
        evidence = qa.two_stage(qa.vectors).choose(question, vector, list(documents.values()), 10).evidence
        return reader.read(Gathered(question, evidence, documents, vector=vector, **more)), documents
    return of


def test_the_first_question_of_the_readme(read):
    answer, documents = read(CAR_T)
    assert 'tisagenlecleucel' in answer.citations[0].quote.lower() and 'respon' in answer.citations[0].quote
    assert (answer.kind, answer.label) == ('yesno', 'yes') and answer.counts['for'] > answer.counts['against']
    assert all(fault(c, documents) is None and 0 <= c.score <= 1 for c in answer.citations)
    assert any(direction(CAR_T, c.quote, c.title) == 'for' for c in answer.citations)


def test_side_effects_of_tamoxifen_are_not_declined(read):
    answer, _ = read(TAMOXIFEN)
    assert not answer.abstained and any('tamoxifen' in c.quote.lower() for c in answer.citations)
    assert (answer.kind, answer.label, answer.counts) == ('long', '', {})


@pytest.mark.parametrize('question', [SOURDOUGH, 'What is the best laptop for students?', 'Is it going to rain tomorrow?'])
def test_questions_of_another_world_are_declined(read, question):
    answer, _ = read(question)
    assert (answer.abstained, answer.citations, answer.response, answer.label) == (True, (), NOTHING, '')
    assert 'probability' in answer.reason


def test_confidence_decides_where_it_is_asked_to(qa, read, reader):
    careful = QuotingReader(qa.encoder, 3, reranker=qa.second('default'), abstain_below=0.5)
    assert [read(CAR_T, careful, confidence=p)[0].abstained for p in (0.49, 0.51)] == [True, False]
    assert read(CAR_T, reader, confidence=0.01)[0].abstained is False   # nobody asked for it to decide
    assert read(CAR_T, reader, confidence=0.01)[0].confidence == 0.01


@pytest.mark.parametrize('make', [BM25Reranker, NoReranker, lambda: CosineReranker(None)])
def test_rerankers_whose_scores_mean_nothing_for_a_sentence_are_left_aside(qa, make):
    assert QuotingReader(qa.encoder, reranker=make()).scale() == COSINE


class Counting:
    "A cross-encoder that remembers what it was asked, and likes what stands first."
    def __init__(self, scores=None): self.asked, self.scores = [], scores
    def score(self, query, passages):
        self.asked += passages
        return np.linspace(3, -3, len(passages), dtype=np.float32) if self.scores is None else self.scores(passages)
    def probability(self, scores): return 1 / (1 + np.exp(-np.asarray(scores, dtype=float)))
    def describe(self): return {'reranker': 'counting'}


def library(n, text='Tea number {i} helped {i} adults to sleep well at night. A second sentence speaks of coffee {i}.'):
    documents = {f'd{i}': Document(f'd{i}', f'Tea {i}', text.format(i=i), year=2000 + i) for i in range(n)}
    return documents, [Evidence(Passage.of(d, 0, len(d.text)), score=0.5) for d in documents.values()]


def test_few_short_sentences_are_scored(qa):
    documents, evidence = library(40)
    model = Counting()
    QuotingReader(qa.encoder, reranker=model, calibration=model).read(Gathered('Does tea help?', evidence, documents))
    assert len(model.asked) == MOST and all(p.title == '' for p in model.asked)


@pytest.mark.parametrize('scores', [lambda ps: np.full(len(ps), np.nan, np.float32), lambda ps: np.zeros(1, np.float32), lambda ps: 1 / 0])
def test_a_model_that_misbehaves_leaves_an_answer(qa, scores):
    documents, evidence = library(3)
    model, plain = Counting(scores), QuotingReader(qa.encoder)
    answer = QuotingReader(qa.encoder, reranker=model,
                           calibration=model).read(Gathered('Does tea help adults to sleep?', evidence, documents))
    assert answer.citations == plain.read(Gathered('Does tea help adults to sleep?', evidence,
                                                   documents)).citations and 'reranker failed' in answer.notes[0]


def test_newer_papers_and_reviews_come_first_where_all_else_is_alike(qa):
    documents, evidence = library(4, 'Tea helped adults to sleep well.')
    model = Counting(lambda ps: np.ones(len(ps), np.float32))
    reader = QuotingReader(qa.encoder, reranker=model, calibration=model)
    assert reader.read(Gathered('Does tea help adults?', evidence, documents)).used_PMIDs == ('d3',)   # the others say the same
    documents['d0'] = replace(documents['d0'], publication_types=('Systematic Review',))
    assert reader.read(Gathered('Does tea help adults?', evidence, documents)).used_PMIDs == ('d0',)


def test_a_denial_is_no_repetition_and_is_named(qa):
    texts = ['Tea improved sleep in adults.', 'Tea did not improve sleep in adults.']
    documents = {f'd{i}': Document(f'd{i}', 'Tea', t) for i, t in enumerate(texts)}
    evidence = [Evidence(Passage.of(d, 0, len(d.text)), score=0.5) for d in documents.values()]
    answer = QuotingReader(qa.encoder).read(Gathered('Does tea improve sleep in adults?', evidence, documents))
    assert {c.quote for c in answer.citations} == set(texts) and answer.label in ('maybe', '')
    assert len(disagreements(answer.citations)) == 1 and 'disagree' in answer.reason


def test_retracted_papers_and_notices_are_neither_quoted_nor_counted(qa):
    documents, evidence = library(3, 'Tea helped adults to sleep well.')
    asked = lambda documents: QuotingReader(qa.encoder).read(Gathered('Does tea help adults to sleep?', evidence, documents))
    assert asked(documents).label == 'yes' and sum(asked(documents).counts.values()) == 3
    for change in (dict(publication_types=('Retracted Publication',)), dict(publication_types=('Retraction of Publication',)),
                   dict(corrections=(Correction('RetractionOf', '1'),)), dict(title='Retraction: Tea')):
        gone = {k: replace(d, **change) for k, d in documents.items()}
        assert candidates(evidence, gone) == [] and asked(gone).abstained
        some = gone | {'d1': documents['d1']}
        assert asked(some).used_PMIDs == ('d1',) and sum(asked(some).counts.values()) == 1


@examples(100)
@given(st.lists(st.tuples(st.floats(0, 1), st.one_of(st.floats(0, 1), st.just(float('nan')))), min_size=1, max_size=20))
def test_the_mean_lies_between_its_two(pairs):
    a, b = map(np.array, zip(*pairs))
    found = mean_of(a, b)
    low, high = np.fmin(a, b), np.fmax(a, b)
    assert np.isfinite(found).all() and (found >= low - 1e-5).all() and (found <= high + 1e-5).all()
    assert PROBABILITY.least < PROBABILITY.fair < PROBABILITY.close
