"""Questions that were answered before: what was judged, and what a person reads who asks alike."""
import json

import pytest
from conftest import ROOT, cases

from cpqa import CancerQA
from cpqa.answering.known_answers import known_answers, related_questions, same_question, spoken_for
from cpqa.answering.known_questions import known_questions
from cpqa.answering.quoting_reader import SIGNS, shipped_quote_weights
from cpqa.cli_ask import answer_to
from cpqa.display import answer_in_words
from cpqa.retrieval.sources import Scope

pytestmark = pytest.mark.usefixtures('loaded_once')


def test_most_known_questions_were_judged_and_many_have_an_answer():
    known, told = known_questions().questions, known_answers().values()
    read = {i for both in told for part in both for i in part}
    assert len(read) == len(known) > 4900 and len({i for both in told for i in both.answers}) > 2000
    assert [both for both in told if {*both.answers} & {*both.others}] == []


def test_both_signs_of_known_questions_tell_answers_from_others():
    saved = json.loads((ROOT/'benchmarks'/'results'/'known_answers.json').read_text(encoding='utf-8'))
    assert {*saved['weights'], *shipped_quote_weights('q').weights} <= {*SIGNS}
    every, one, other, none = (saved[name]['AUROC'] for name in (
        'all signs', 'without the vote', 'without the questions written', 'without either'))
    assert every > max(one, other) and min(one, other) > none and every > saved['the weights before']['AUROC']


@cases('question,word', [
    ('will a cold cap save my hair', 'cold cap'), ('can my boss sack me because I have cancer', 'cancer'),
    ('nails going black on docetaxel', 'nail'), ('what temperature do I ring the hospital at on chemo', '37.5')])
def test_what_many_ask_is_answered(question, word):
    answer = answer_to(question)
    assert not answer.abstained and word in answer.citations[0].quote.lower()


def test_nearly_the_same_question_is_asked_in_its_place():
    asked = 'breast radiotherapy skin peeling under the boob what cream'
    answer = answer_to(asked)
    assert same_question(asked) and (answer.question, answer.read_as, answer.abstained) == (asked, same_question(asked), False)


def test_beside_a_refusal_stand_questions_that_are_answered_here():
    answer = answer_to('My oncologist has cut my dose because my neutrophils were low. Will the chemo still work as well?')
    assert answer.abstained and answer.related and not answer_to(answer.related[0]).abstained
    assert answer.related[0] in answer_in_words(answer) and 'The nearest titles' not in answer_in_words(answer)


def test_nothing_is_suggested_where_nothing_is_close():
    for question in ('Which form goes to the tax office for a new shed?', 'xqzvw'):
        assert related_questions(question, question) == [] and same_question(question) == '' and spoken_for(question) == []


def test_limits_hold_for_what_is_spoken_for_too():
    answer = CancerQA(Scope(since='2015')).ask('Do cold caps work?')
    assert all(c.year and c.year >= 2015 for c in answer.citations)
