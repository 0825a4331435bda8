"""The direction of sentences: what must never turn around, texts that nobody wrote by hand, and agreement with experts on real
questions."""
import json
import time

import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.direction import DIRECTION_RULES, direction, pointing

QUESTION = 'Does green tea lower the risk of stroke in adults?'
YES = ['Green tea lowered the risk of stroke in adults.', 'The risk of stroke in adults was lower with green tea.',
       'In adults, green tea was associated with a lower risk of stroke.']
NO = ['Green tea did not lower the risk of stroke in adults.', 'Green tea increased the risk of stroke in adults.',
      'Green tea had no effect on the risk of stroke in adults.',
      'The risk of stroke in adults was higher with green tea.', 'Green tea failed to lower the risk of stroke in adults.']
NEITHER = ['Whether green tea lowers the risk of stroke in adults is unknown.', 'Stroke is common in adults.',
           'We aimed to assess green tea and the risk of stroke in adults.', '']


@pytest.mark.parametrize('sentence', YES)
def test_sentences_that_say_yes(sentence): assert direction(QUESTION, sentence) == 'for'


@pytest.mark.parametrize('sentence', NO)
def test_a_negated_or_reversed_sentence_never_counts_for(sentence): assert direction(QUESTION, sentence) == 'against'


@pytest.mark.parametrize('sentence', NEITHER)
def test_open_or_foreign_sentences_point_nowhere(sentence): assert direction(QUESTION, sentence) == 'unclear'


@pytest.mark.parametrize('question', ['Is the gene on chromosome 4?', 'Does BRCA1 cause the disease X21?'])
def test_another_name_or_number_is_no_yes(question):
    other = question.replace('4', '17').replace('X21', 'X22').replace('Is the gene', 'The gene lies').replace('Does ', '').rstrip('?') + '.'
    assert direction(question, other) != 'for'


@examples(60)
@given(st.text(max_size=120), st.text(max_size=200), st.text(max_size=60))
def test_any_text_has_a_direction_and_a_rule(question, sentence, title):
    way, rule = pointing(question, sentence, title)
    assert DIRECTION_RULES[rule].startswith(way)


def test_long_texts_take_linear_time():
    def seconds(n):
        start = time.perf_counter()
        direction(QUESTION, 'Green tea, adults (' * n + '1 ' * n)
        return time.perf_counter() - start
    seconds(10)
    assert seconds(4000) < 100 * max(seconds(400), 0.01)


def test_conclusions_of_pubmedqa_point_as_experts_say(data_dir):
    path = data_dir/'pubmedqa'/'ori_pqal.json'
    if not path.is_file(): pytest.skip('needs PQA-L')
    rows = [q for q in list(json.loads(path.read_text()).values())[:200] if q['final_decision'] != 'maybe']
    said = [(q['final_decision'], direction(q['QUESTION'], q['LONG_ANSWER'])) for q in rows]
    answered = [(gold, {'for': 'yes', 'against': 'no'}[way]) for gold, way in said if way != 'unclear']
    right = sum(gold == label for gold, label in answered)
    assert len(answered) > 30 and right / len(answered) > max(0.7, sum(gold == 'yes' for gold, _ in answered) / len(answered))
