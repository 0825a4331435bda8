"""What `CancerQA.ask` promises whoever reads: the time of reading is that of reading alone, and no error hides the words for a person in
danger."""
import json
import time

import pytest

from cpqa.answering.readers import Reading
from cpqa.answering.safety import FIRST
from cpqa.core.errors import CpqaError
from cpqa.testing.model_server import LLMServer
from cpqa.pipeline import CancerQA

pytestmark = pytest.mark.usefixtures('loaded_once')
QUESTION = 'Is tisagenlecleucel effective for B-cell lymphoma?'
SEARCH, READ = 700, 300   # milliseconds


class Slow(CancerQA):
    "A search that takes its time."
    def gather(self, question, t, message=""):
        with t.stage('slow'): time.sleep(SEARCH/1000)
        return super().gather(question, t, message)


@pytest.fixture(scope='module')
def model():
    def reply(messages, schema):
        time.sleep(READ/1000)
        sure = {'certain': False} if 'certain' in schema['properties'] else {}
        return json.dumps({'claims': [], 'reasoning': '', 'response': 'Yes.', 'label': 'yes', 'status': 'answered', **sure})
    with LLMServer(reply) as server: yield f'openai:toy@{server.url}/v1'


@pytest.mark.parametrize('options, searched', [(None, True), ({}, True), ({'adaptive': True}, True), ({'prompt': 'cot'}, False)],
                         ids=['quotes', 'model', 'adaptive', 'alone'])
def test_the_time_of_reading_is_without_the_search(options, searched, model):
    qa = Slow() if options is None else Slow(reading=Reading(model, **options))
    qa.ask(QUESTION)   # what is loaded once is loaded
    start = time.perf_counter()
    took = qa.ask(QUESTION).timings_ms
    whole = (time.perf_counter() - start) * 1000
    assert ('slow' in took) is searched and all(ms >= 0 for ms in took.values())
    assert READ * (options is not None) <= took['read'] <= whole - SEARCH * searched


@pytest.fixture
def damaged(tmp_path):
    "A library that is one at the first look, and cannot be opened."
    (tmp_path/'manifest.json').write_text('{}')
    return tmp_path


FEVER, RATTLE = 'I have a fever after my chemo', 'long pauses between breaths, mum is at the end, is she in pain'
NO_ANSWER = {'no library': {'question': RATTLE}, 'too long': {'question': f'{FEVER} ' * 500},   # to a fever no library is opened
             'no model': {'question': FEVER, 'kind': 'yesno'}}


@pytest.mark.parametrize('wrong', NO_ANSWER.values(), ids=NO_ANSWER.keys())
def test_an_error_carries_the_words_for_a_person_in_danger(wrong, damaged):
    with pytest.raises(CpqaError) as e: CancerQA(damaged).ask(**wrong)
    said = FIRST['dying' if wrong['question'] == RATTLE else 'fever']
    assert e.value.__notes__ == [said] and said not in str(e.value)


@pytest.mark.parametrize('question', [QUESTION, '', None, 7])
def test_other_errors_carry_nothing(question, damaged):
    with pytest.raises(CpqaError) as e: CancerQA(damaged).ask(question)
    assert not hasattr(e.value, '__notes__')
