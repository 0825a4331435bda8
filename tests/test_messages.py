"Messages of patients: the question in them is found, in real messages too, and asked part by part."
import json
from unittest.mock import patch

import pytest
from conftest import NIGHTLY, ROOT, cases
from helpers import inside

import cpqa
from cpqa.answering.known_questions import known_questions
from cpqa.answering.messages import message_of, message_parts, questions_in, sentence_signs, shipped_message_weights
from cpqa.answering.situations import situations
from cpqa.cli_ask import answer_to
from cpqa.core.records import Answer
from cpqa.core.remarks import remark
from cpqa.pipeline import _of_what_was_told, asked_in

pytestmark = pytest.mark.usefixtures('loaded_once')

TWO = ('My dad has lung cancer and he started on Keytruda in March. He is 71, used to be a plumber, and lives alone with the dog. '
       'Does Keytruda make people live longer with lung cancer? And what side effects should we look out for with it?')


def asked(text: str) -> Answer:
    done = inside('ask', '--json', '-', input=text)
    assert done.returncode == 0, done.stderr
    return Answer.from_json(done.stdout)


def test_two_questions_are_answered_one_by_one():
    answer = asked(TWO)
    assert answer.question == TWO and answer.read_as == 'Does Keytruda make people live longer with lung cancer?'
    [second] = answer.further
    assert 'side effects' in second.question and 'Keytruda' in second.question and second.library == answer.library


def test_one_answer_is_not_given_twice():
    same = 'Does tamoxifen cause hot flushes?', 'does tamoxifen cause hot flushes'
    with patch('cpqa.pipeline.questions_in', return_value=same): answer = answer_to('We sat in the garden. ' + ' '.join(same))
    assert not answer.abstained and answer.further == ()


def test_a_letter_of_over_a_thousand_words_is_no_reason_to_refuse():
    answer = asked('We had tea in the garden again and talked of old times. ' * 150 + 'Does tamoxifen cause hot flushes? Thank you.')
    assert answer.read_as == 'Does tamoxifen cause hot flushes?' and not answer.further


def test_what_was_told_before_stands_beside_a_question():
    told = ('Two scans were clear after the chemoradiation for my rectal cancer. The surgeon still wants to operate, with a bag. '
            'He says others are only watched. I am 61 and run a shop. Is that as safe as being cut? Thank you so much.')
    [asked] = questions_in(told)
    assert asked.startswith('Two scans') and 'only watched' in asked and 'Thank you' not in asked and len(asked.split()) <= 55
    assert 'garden' not in questions_in('We sat in the garden. ' * 40 + 'Does tamoxifen cause hot flushes?')[0]


SUGAR = ('A neighbour came with cakes and said in the hall that sugar feeds cancer, she has it from her cousin. I had a breast lump out in '
         'spring and I have eaten sweet things all my life. Now I stand at the shelf and put the biscuits back like a thief. Should I stop '
         'eating sugar?')


def test_a_story_is_answered_by_a_known_question_that_stands_for_it():
    answer = asked(SUGAR)
    assert (answer.question, answer.abstained, answer.further) == (SUGAR, False, ())
    assert answer.read_as in known_questions().questions and 'sugar' in answer.read_as and 'cousin' not in answer.read_as


@cases('told', [
    'My mother died in spring after her third chemo for ovarian cancer, and we were all there. She was 71, sang in a choir and made the '
    'best soup in the street. I cannot stop asking myself: would she have lived longer without it?',
    'The hospice nurse says that Mum has only days left now, and she no longer eats or drinks. She is 84, had bowel cancer, and the whole '
    'family takes turns to sit with her and read to her at night. Would a drip help her?'])
def test_the_bereaved_and_the_dying_are_answered_nothing_that_they_did_not_ask(told):
    assert {'bereaved', 'dying'} & {*situations(told)}
    answer = answer_to(told)
    assert not {answer.read_as, *(more.question for more in answer.further)} & {*known_questions().questions}


def test_a_question_stays_a_question():
    answer = asked('Does tamoxifen cause hot flushes?')
    assert (answer.read_as, answer.further) == ('', ())


def test_who_is_in_danger_is_heard_wherever_it_is_said():
    answer = asked('We had tea in the garden. ' * 60 + 'I do not want to live any more. ' + 'Does tamoxifen cause hot flushes?')
    assert answer.kind == 'help' and answer.first and not answer.further


def test_the_weights_are_those_that_were_measured():
    saved = json.loads((ROOT/'benchmarks'/'results'/'messages.json').read_text(encoding='utf-8'))
    assert list(saved['signs']['asks'].values()) == list(shipped_message_weights().asks.weights)
    assert saved['right sentence']['asks']['value'] > saved['right sentence']['asks: the first with a mark']['value'] + .2


def test_real_messages(data_dir):
    "Every message of MeQSum has one to three questions, none longer than the message and the names beside it."
    path = data_dir/'patients'/'meqsum.jsonl'
    if not path.exists(): pytest.skip('the messages are not here')
    for line in path.read_text(encoding='utf-8').splitlines()[::1 if NIGHTLY else 20]:
        text = json.loads(line)['message']
        said = message_of(text).sentences
        assert len(sentence_signs(said)) == len(said) and (not said or len(message_parts(said).asks) in (1, 2, 3))
        assert 1 <= len(questions_in(text)) <= 3 and all(questions_in(text))


def test_a_claim_is_checked_from_the_top():
    quote = 'Pain was significantly lower in the tea group than in the coffee group (2.1 vs. 4.3 points, p = 0.01).'
    right, wrong = (cpqa.check_claim(claim, quote) for claim in ('Tea reduced pain compared with coffee.',
                                                                 'Tea did not reduce pain compared with coffee.'))
    assert right.fault == '' and wrong.fault and right.score > wrong.score + .3


def test_what_a_message_asks_besides_is_never_dropped_for_a_known_question():
    two = f'{SUGAR} And how do I bake sourdough bread in a gas oven without a lid?'
    assert len(asked_in(two)) == 2
    answer = answer_to(two)
    assert 'sugar' in answer.citations[0].quote.lower() and [more.abstained for more in answer.further] == [True]
    assert 'sourdough' in answer.further[0].question


def test_no_word_of_a_known_question_is_said_to_be_missing():
    answer = Answer('q', 'r', why=(remark('unmentioned', words=['radiotherapy', 'bowel']), remark('unmentioned', words=['tea'])))
    assert [r.values for r in _of_what_was_told(answer, 'My Bowel operation').why] == [{'words': ['bowel']}]
