"Requests and answers of language models, written down and said again: by many threads, with damage, and without secrets."
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpqa.core.basics import CpqaError
from cpqa.core.llm import ROLES, Completion, Message, Recorded, Replayed, request_key

messages = st.lists(st.builds(Message, st.sampled_from(ROLES), st.text(max_size=60)), min_size=1, max_size=4)


class Echo:
    "Answers with the number of the call and the last message."
    def __init__(self): self.calls = 0

    def complete(self, messages, *, max_tokens=1024, temperature=0.0):
        self.calls += 1
        return Completion(f'{messages[-1].content}!', 'echo', len(messages), max_tokens)


@settings(max_examples=60, deadline=None)
@given(messages, st.integers(1, 5000), st.floats(0, 2))
def test_what_was_recorded_is_said_again(tmp_path_factory, said, max_tokens, temperature):
    tape = tmp_path_factory.mktemp('tape')/'t.jsonl'
    first = Recorded(Echo(), tape).complete(said, max_tokens=max_tokens, temperature=temperature)
    assert Replayed(tape).complete(said, max_tokens=max_tokens, temperature=temperature) == first


@settings(max_examples=200, deadline=None)
@given(messages, messages, st.integers(1, 9), st.integers(1, 9))
def test_two_requests_have_one_name_only_if_they_are_one(a, b, m, n):
    assert (request_key(a, m) == request_key(b, n)) == ((a, m) == (b, n))


def test_roles_and_contents_cannot_run_into_each_other():
    assert request_key([Message('user', 'a'), Message('user', 'b')]) != request_key([Message('user', 'ab')])


def test_the_later_of_two_answers_counts(tmp_path):
    tape, asked = tmp_path/'t.jsonl', [Message('user', 'q')]

    class Moody:
        said = iter(('first', 'second'))
        def complete(self, messages, *, max_tokens=1024, temperature=0.0): return Completion(next(self.said))

    recorded = Recorded(Moody(), tape)
    assert [recorded.complete(asked).text for _ in range(2)] == ['first', 'second']
    assert Replayed(tape).complete(asked).text == 'second'


def test_threads_write_whole_lines(tmp_path):
    tape = tmp_path/'deep'/'t.jsonl'
    recorded = Recorded(Echo(), tape)
    with ThreadPoolExecutor(8) as pool: list(pool.map(lambda i: recorded.complete([Message('user', 'x' * 5000 + str(i))]), range(64)))
    assert len(Replayed(tape).answers) == 64 == len(tape.read_text().splitlines())


def test_secrets_do_not_reach_the_file_and_the_request_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv('SOME_API_KEY', 'abcdef-abcdef-abcdef')
    key = 'sk-ant-' + 'api03-NotAKeyAtAll'
    tape, asked = tmp_path/'t.jsonl', [Message('system', f'use {key}'), Message('user', 'say abcdef-abcdef-abcdef')]
    assert Recorded(Echo(), tape).complete(asked).text == 'say abcdef-abcdef-abcdef!'
    text = tape.read_text()
    assert 'NotAKey' not in text and 'abcdef' not in text
    assert Replayed(tape).complete(asked).text == 'say [cut]!'


def test_a_request_that_was_not_recorded_is_named(tmp_path):
    tape = tmp_path/'t.jsonl'
    Recorded(Echo(), tape).complete([Message('user', 'known')])
    with pytest.raises(CpqaError, match=request_key([Message('user', 'unknown words')])) as e: Replayed(tape).complete([Message('user', 'unknown words')])
    assert 'unknown words' in str(e.value) and str(tmp_path) not in str(e.value)


@pytest.mark.parametrize('line', [b'{', b'[]', b'{"key": "a"}', b'\xff\xfe', b'{"key":"a","messages":[{"role":"boss","content":""}],"completion":{"text":""}}',
                                  b'[' * 100_000, b'{"key":"a","messages":[],"completion":{"text":5}}'])
def test_a_damaged_line_is_named(tmp_path, line):
    tape = tmp_path/'t.jsonl'
    Recorded(Echo(), tape).complete([Message('user', 'q')])
    with open(tape, 'ab') as f: f.write(line + b'\n')
    with pytest.raises(CpqaError, match='line 2'): Replayed(tape)


def test_a_failing_model_leaves_no_line(tmp_path):
    class Down:
        def complete(self, *a, **k): raise CpqaError('down')

    with pytest.raises(CpqaError, match='down'): Recorded(Down(), tmp_path/'t.jsonl').complete([Message('user', 'q')])
    assert not (tmp_path/'t.jsonl').exists()
    with pytest.raises(CpqaError, match='cannot be read'): Replayed(tmp_path/'t.jsonl')


def test_a_line_is_plain_json_without_headers(tmp_path):
    tape = tmp_path/'t.jsonl'
    Recorded(Echo(), tape).complete([Message('user', 'q')])
    assert json.loads(tape.read_text()).keys() == {'key', 'messages', 'completion'}
