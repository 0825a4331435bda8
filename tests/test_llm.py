"Requests and answers of language models, written down and said again: by many threads, with damage, and without secrets."
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import cases, examples
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError
from cpqa.core.llm import FINISHES, KINDS, ROLES, Completion, LLMError, Message, Recorded, Replayed, complete, json_of, request_key

messages = st.lists(st.builds(Message, st.sampled_from(ROLES), st.text(max_size=60)), min_size=1, max_size=4)


class Echo:
    "Answers with the number of the call and the last message."
    def __init__(self): self.calls = 0

    def complete(self, messages, *, max_tokens=1024, temperature=0.0):
        self.calls += 1
        return Completion(f'{messages[-1].content}!', 'echo', len(messages), max_tokens)


@examples(60)
@given(messages, st.integers(1, 5000), st.floats(0, 2))
def test_what_was_recorded_is_said_again(tmp_path_factory, said, max_tokens, temperature):
    tape = tmp_path_factory.mktemp('tape')/'t.jsonl'
    first = Recorded(Echo(), tape).complete(said, max_tokens=max_tokens, temperature=temperature)
    assert Replayed(tape).complete(said, max_tokens=max_tokens, temperature=temperature) == first


@examples(200)
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
    with pytest.raises(CpqaError, match=request_key([Message('user', 'unknown words')])) as e:
        Replayed(tape).complete([Message('user', 'unknown words')])
    assert 'unknown words' in str(e.value) and str(tmp_path) not in str(e.value)


@cases('line', [b'{', b'[]', b'{"key": "a"}', b'\xff\xfe',
                b'{"key":"a","messages":[{"role":"boss","content":""}],"completion":{"text":""}}',
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


# ---- schemas and pieces

FORM = {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a'], 'additionalProperties': False}


class Clerk:
    "Says `text` in two pieces, and reads it where it was given a schema."
    window = 4000
    def __init__(self, text): self.text = text

    def complete(self, messages, *, max_tokens=1024, temperature=0.0, schema=None, on_text=None):
        for piece in (self.text[:3], self.text[3:]):
            if on_text is not None: on_text(piece)
        return Completion(self.text, 'clerk', 5, 7, json_of(self.text) if schema is not None else None, 'stop', 12.5, 0.25)


@cases('text', ['{"a": 1}', '{"a": ', 'prose', '', 'null', '[1, "é"]', '{"a": 1} '])
def test_a_schema_is_part_of_the_request_and_its_data_come_back(tmp_path, text):
    tape, asked, pieces, again = tmp_path/'t.jsonl', [Message('user', 'q')], [], []
    recorded = Recorded(Clerk(text), tape)
    first, plain = recorded.complete(asked, schema=FORM, on_text=pieces.append), recorded.complete(asked)
    replay = Replayed(tape, window=recorded.window)
    assert replay.complete(asked, schema=FORM, on_text=again.append) == first and replay.complete(asked) == plain
    assert ''.join(pieces) == ''.join(again) == text and '' not in again
    assert (first.finish, first.ms, first.cost, replay.window) == ('stop', 12.5, 0.25, 4000)
    assert len(replay.answers) == 2 and all(json.loads(line)['completion']['data'] is None for line in tape.read_text().splitlines())


def test_data_cut_for_a_secret_is_cut_in_the_replay(tmp_path, monkeypatch):
    monkeypatch.setenv('SOME_API_KEY', 'abcdef-abcdef-abcdef')
    tape, asked = tmp_path/'t.jsonl', [Message('user', 'q')]
    assert Recorded(Clerk('{"a": "abcdef-abcdef-abcdef"}'), tape).complete(asked, schema=FORM).data == {'a': 'abcdef-abcdef-abcdef'}
    assert 'abcdef' not in tape.read_text() and Replayed(tape).complete(asked, schema=FORM).data == {'a': '[cut]'}


def test_the_names_of_requests_are_those_of_old_recordings():
    "A change here would make every recording in the world unreadable."
    assert request_key([Message('user', 'q')]) == 'd8dbfb2ba63efb8a'
    assert request_key([Message('system', 's'), Message('user', 'q')], 5, 1) == '3b4db894f5d78b61'
    assert request_key([Message('user', 'q')], schema=None) == request_key([Message('user', 'q')]) != request_key([Message('user', 'q')],
        schema={})


@examples(100)
@given(*[st.none() | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3) | st.none(), max_size=3)] * 2)
def test_two_schemas_have_one_name_only_if_they_are_one(a, b):
    same = (a is None) == (b is None) and json.dumps(a) == json.dumps(b)
    assert (request_key([Message('user', 'q')], schema=a) == request_key([Message('user', 'q')], schema=b)) == same


def test_a_model_that_knows_no_schema_works_where_none_is_asked(tmp_path):
    echo, asked = Echo(), [Message('user', 'q')]
    assert complete(echo, asked, max_tokens=5).output_tokens == 5
    assert Recorded(echo, tmp_path/'t.jsonl').complete(asked).text == 'q!'
    for more in ({'schema': FORM}, {'on_text': print}):
        with pytest.raises(TypeError): complete(echo, asked, **more)


@cases('text', ['{"a": NaN}', '{"a": 1} and more', "{'a': 1}", '\x00', '[' * 100_000, '\ud800', '```json\n{}\n```', 'null'])
def test_what_is_no_json_has_no_data(text): assert json_of(text) is None


def test_a_trouble_has_a_kind_and_is_an_error_for_people():
    for kind in KINDS: assert LLMError('m', kind).kind == kind and str(LLMError('m', kind)) == 'm'
    assert isinstance(LLMError('m'), CpqaError) and LLMError('m', 'rate', True, 2.5).wait == 2.5 and '' in FINISHES
    with pytest.raises(ValueError, match='the kind of an LLMError'): LLMError('m', 'weather')
