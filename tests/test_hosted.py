"The real client libraries of both services over HTTP, against a server on this machine that misbehaves on request."
import functools
import logging
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from conftest import cases
from cpqa.core.errors import CpqaError, MissingExtra
from cpqa.core.llm import MOST_NAME, Completion, LLMError, Message, Recorded, Replayed, request_key

KEY = 'sk-' + 'ant-not-a-real-key-0123456789'
ASKED = [Message('system', 'Answer from the leaflet.'), Message('user', 'Does ginger help? <b>"yes"</b> \u202e\x00 日本')]
FORM = {'type': 'object', 'properties': {'label': {'type': 'string', 'enum': ['yes', 'no']}}, 'required': ['label'],
        'additionalProperties': False}
SAYS = 'Ginger helped a little, in one small trial.'

pytest.importorskip('anthropic')
pytest.importorskip('openai')

from cpqa.core import llm_hosted as hosted   # noqa: E402
from cpqa.core.llm_hosted import AGAIN, OWN_KEY, AnthropicLLM, OpenAILLM   # noqa: E402
from cpqa.testing.model_server import LLM_FAULTS, TIMED, LLMServer

BOTH = cases('kind', [AnthropicLLM, OpenAILLM])


CERTIFICATES = functools.cache(ssl.create_default_context)   # each client reads them anew, which took most of the time


@pytest.fixture(autouse=True)
def no_keys_about(monkeypatch):
    monkeypatch.setattr(ssl, 'create_default_context', CERTIFICATES)
    for name in ('ANTHROPIC_API_KEY', 'ANTHROPIC_AUTH_TOKEN', 'ANTHROPIC_BASE_URL', 'OPENAI_API_KEY', 'OPENAI_BASE_URL', 'OPENAI_ADMIN_KEY',
                 OWN_KEY):
        monkeypatch.delenv(name, raising=False)


def says(messages, schema): return '{"label": "yes"}' if schema else SAYS


def serve(misbehave='', **options): return LLMServer(says, misbehave, **{'key': KEY, 'retry_after': '0.01'} | options)


def ask(kind, server, stream=False, schema=None, key=KEY, max_tokens=1024, **options):
    "A completion and what was streamed; quick waits."
    llm, seen = kind('a-model', key, server.url, **{'backoff': 0.001, 'timeout': 5} | options), []
    return llm.complete(ASKED, schema=schema, max_tokens=max_tokens, on_text=seen.append if stream else None), ''.join(seen), llm


def trouble(kind, server, **options):
    with pytest.raises(LLMError) as e: ask(kind, server, **options)
    assert KEY not in str(e.value) and 'ginger' not in str(e.value) and e.value.__cause__ is None and e.value.__context__ is None
    return e.value


# ---- good days

@BOTH
@cases('stream', [False, True])
def test_an_answer_arrives_whole(kind, stream):
    with serve() as server: said, seen, llm = ask(kind, server, stream)
    assert (said.text, said.model, said.finish, said.data, said.cost) == (SAYS, 'a-model', 'stop', None, None)
    assert (said.input_tokens, said.output_tokens) == (10, 8) and said.ms > 0
    assert seen == (SAYS if stream else '')
    [request] = server.log
    assert request.messages == tuple(ASKED) and request.stream is stream and request.key == 'right' and not llm.events


@BOTH
@cases('stream', [False, True])
def test_json_under_a_schema_is_parsed(kind, stream):
    with serve() as server: said, seen, _ = ask(kind, server, stream, FORM)
    assert said.data == {'label': 'yes'} and said.text == '{"label": "yes"}'
    sent = server.log[0].schema   # Anthropic's library takes the type from an enum, which says as much
    assert sent['properties']['label']['enum'] == ['yes', 'no'] and (sent == FORM or kind is AnthropicLLM)


def test_a_temperature_goes_to_those_who_take_one():
    with serve() as server:
        for kind in (AnthropicLLM, OpenAILLM): kind('m', KEY, server.url).complete(ASKED, temperature=0.5)
    assert [seen.temperature for seen in server.log] == [None, 0.5]


@BOTH
def test_a_conversation_keeps_its_turns_and_half_a_surrogate_pair_is_replaced(kind):
    turns = [Message('user', 'a'), Message('assistant', 'b'), Message('user', 'c \ud800')]
    with serve() as server: kind('m', KEY, server.url).complete(turns)
    assert [(m.role, m.content) for m in server.log[0].messages] == [('user', 'a'), ('assistant', 'b'), ('user', 'c ?')]


@BOTH
def test_threads_share_a_client(kind):
    with LLMServer(lambda messages, schema: messages[-1].content) as server:
        llm = kind('m', base_url=server.url)
        with ThreadPoolExecutor(8) as pool: said = list(pool.map(lambda i: llm.complete([Message('user', f'n {i}')]).text, range(24)))
    assert said == [f'n {i}' for i in range(24)]


@BOTH
def test_more_fields_reach_the_service(kind):
    more = {'thinking': {'type': 'disabled'}, 'output_config': {'effort': 'low'}} if kind is AnthropicLLM else {'reasoning_effort': 'low'}
    with serve() as server: said, _, _ = ask(kind, server, schema=FORM, more=more)
    assert set(more) <= set(server.log[0].fields) and said.data == {'label': 'yes'}


# ---- bad days that pass

@BOTH
@cases('stream', [False, True])
@cases('fault', ['429', '500', '502', '503', '529', '408', 'down', 'page', 'cut', 'slow=0.6*1'])
def test_a_fault_that_passes_is_waited_out(kind, stream, fault):
    with serve(fault if '=' in fault else f'{fault}=2') as server:
        said, seen, llm = ask(kind, server, stream, timeout=0.3 if 'slow' in fault else 5)
    assert said.text == SAYS and seen == (SAYS if stream else '')
    assert len(llm.events) == len(server.log) - 1 >= 1 and KEY not in ' '.join(llm.events)


@BOTH
@cases('fault', ['short=1', 'busy=1', 'stall=0.6*1'])
def test_a_stream_that_fails_in_its_middle_is_told_once(kind, fault):
    with serve(fault) as server: said, seen, llm = ask(kind, server, True, timeout=0.3)
    assert said.text == SAYS == seen and len(llm.events) == 1


@BOTH
def test_a_second_try_that_says_something_else_is_told_anew(kind):
    answers = iter(['It may help a few of those who were sick.', 'No.'])
    with LLMServer(lambda *_: next(answers), 'cut=1') as server: said, seen, _ = ask(kind, server, True)
    assert said.text == 'No.' and seen.endswith(AGAIN + 'No.') and seen.startswith('It may')


@BOTH
def test_the_wait_that_a_service_asks_for_is_kept(kind):
    with serve('429=1', retry_after='0.3') as server:
        begun = time.monotonic()
        ask(kind, server)
        assert time.monotonic() - begun >= 0.3
    with serve('429', retry_after='3600') as server: e = trouble(kind, server)
    assert (e.kind, e.wait, len(server.log)) == ('rate', 3600, 1) and 'asks to wait 3600 seconds' in str(e)


# ---- bad days that stay

@BOTH
@cases('stream', [False, True])
@cases('fault, name, tries', [('401', 'key', 1), ('403', 'key', 1), ('quota', 'quota', 1), ('402', 'quota', 1), ('gone', 'model', 1),
                              ('long', 'request', 1),
                                                ('400', 'request', 1), ('413', 'request', 1), ('429', 'rate', 3), ('500', 'server', 3),
                                                ('529', 'server', 3),
                                                ('busy', 'server', 3), ('cut', 'network', 3), ('down', 'network', 3), ('page', 'reply', 3),
                                                ('slow=0.3', 'time', 3)])
def test_a_fault_that_stays_has_a_kind(kind, stream, fault, name, tries):
    with serve(fault) as server: e = trouble(kind, server, stream=stream, retries=2, timeout=0.1 if 'slow' in fault else 5)
    assert (e.kind, len(server.log), e.again) == (name, tries, tries > 1), e
    assert ('asked 3 times' in str(e)) is (tries > 1)


@BOTH
@cases('key, told', [(None, 'none'), ('another-key', 'wrong')])
def test_a_key_that_is_missing_or_wrong(kind, key, told):
    with serve() as server: e = trouble(kind, server, key=key)
    assert e.kind == 'key' and server.log[0].key in (told, 'wrong') and 'another-key' not in str(e)


@BOTH
def test_nobody_listens(kind):
    with serve() as server: pass
    assert trouble(kind, server, retries=1).kind == 'network'


@BOTH
@cases('body', [b'{}', b'[]', b'null', b'7', b'{"content": 5, "choices": 5}', b'{"content": [{"type": "text"}], "choices": [{}]}',
                b'{"cont', b'\xff\xfe',
                                  b'{"choices": [{"message": {"content": [1]}, "finish_reason": "stop"}], "content": [{"type": "text", '
                                  b'"text": 5}]}'])
def test_a_reply_of_another_shape_is_no_reply(kind, body, monkeypatch):
    from cpqa.testing import model_server
    monkeypatch.setattr(model_server, 'sent', lambda *_: model_server.Sent(200, (body,)))
    with serve() as server: assert trouble(kind, server, retries=0).kind == 'reply'


@BOTH
@cases('event', [b'data: {}\n\n', b'data: {"choi\n\n', b'event: message_start\ndata: {"type": "message_start"}\n\n',
                 b'data: {"choices": [{"delta": 5}]}\n\n', b'\n\n', b'data: [DONE]\n\n',
                                   b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"type": "text_delta", '
                                   b'"text": 5}}\n\n'])
def test_a_stream_of_another_shape_is_no_reply(kind, event, monkeypatch):
    from cpqa.testing import model_server
    monkeypatch.setattr(model_server, 'sent', lambda *_: model_server.Sent(200, (event,), True, kind='text/event-stream'))
    with serve() as server: assert trouble(kind, server, stream=True, retries=0).kind in ('reply', 'network')


def test_a_redirect_is_not_followed():
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    with serve() as server:
        class Elsewhere(BaseHTTPRequestHandler):
            def log_message(self, *_): pass
            def do_POST(self):
                self.rfile.read(int(self.headers['Content-Length']))
                self.send_response(307)
                self.send_header('Location', server.url + self.path)
                self.send_header('Content-Length', '0')
                self.end_headers()
        door = ThreadingHTTPServer(('127.0.0.1', 0), Elsewhere)
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
        try:
            for kind in (AnthropicLLM, OpenAILLM):
                with pytest.raises(LLMError) as e:
                    kind('m', KEY, f'http://127.0.0.1:{door.server_address[1]}', backoff=0.001).complete(ASKED)
                assert e.value.kind == 'network'
        finally:
            door.shutdown()
            door.server_close()
    assert not server.log


# ---- answers that are none

@BOTH
@cases('stream', [False, True])
@cases('fault, finish, text, data', [
    ('notjson', 'stop', 'I would rather talk about the weather.', None), ('half', 'stop', '{"label"', None), ('empty', 'stop', '', None),
    ('refusal', 'refusal', 'I cannot help with that.', None), ('declined', 'refusal', 'I cannot help with that.', None),
    ('length', 'length', '{"label"', None)])
def test_an_answer_that_is_none_arrives_as_it_is(kind, stream, fault, finish, text, data):
    with serve(fault) as server: said, seen, _ = ask(kind, server, stream, FORM)
    assert (said.finish, said.text, said.data) == (finish, text, data) and len(server.log) == 1
    assert not stream or seen == text


@BOTH
@cases('stream', [False, True])
def test_a_bound_on_the_length_is_kept_and_seen(kind, stream):
    with serve() as server: said, _, _ = ask(kind, server, stream, max_tokens=3)
    assert (said.finish, said.text, said.output_tokens) == ('length', 'Ginger helped a ', 3)


# ---- services that take less

@cases('stream', [False, True])
@cases('field', ['temperature', 'response_format', 'stream_options', 'max_tokens'])
def test_a_field_that_a_server_does_not_know_is_left_out_once_and_for_all(field, stream):
    with serve(refuses=[field]) as server:
        said, _, llm = ask(OpenAILLM, server, stream, FORM, retries=0)
        llm.complete(ASKED, schema=FORM, on_text=print if stream else None)
    refused = field in ('temperature', 'response_format', 'max_tokens') or stream
    assert llm.without == (frozenset([field]) if refused else frozenset()) and len(server.log) == 2 + refused
    assert field not in server.log[-1].fields and (field != 'max_tokens' or 'max_completion_tokens' in server.log[-1].fields)
    assert said.data == ({'label': 'yes'} if field != 'response_format' else None)


def test_a_field_that_another_thread_left_out_meanwhile_is_left_out(monkeypatch):
    fields = OpenAILLM._fields
    def meanwhile(llm, *given):
        made = fields(llm, *given)
        llm.without |= {'temperature'}      # as another thread does, whose request was refused first
        return made
    monkeypatch.setattr(OpenAILLM, '_fields', meanwhile)
    with serve(refuses=['temperature']) as server: said, _, llm = ask(OpenAILLM, server, retries=0)
    assert said.text == SAYS and ['temperature' in r.fields for r in server.log] == [True, False] and not llm.events


def test_a_claude_without_schemas_is_asked_in_words():
    with serve(refuses=['output_config']) as server: said, _, llm = ask(AnthropicLLM, server, schema=FORM)
    assert said.text == SAYS and said.data is None and 'output_config' in llm.events[0]


def test_a_server_that_refuses_both_names_of_the_bound_is_given_up():
    with serve(refuses=['max_tokens', 'max_completion_tokens']) as server: e = trouble(OpenAILLM, server)
    assert e.kind == 'request' and len(server.log) == 3


# ---- the key

def test_the_key_of_a_service_does_not_go_to_another_address(monkeypatch):
    for name in ('ANTHROPIC_API_KEY', 'OPENAI_API_KEY'): monkeypatch.setenv(name, KEY)
    with serve() as server:
        for kind in (AnthropicLLM, OpenAILLM): assert trouble(kind, server, key=None).kind == 'key'
        monkeypatch.setenv(OWN_KEY, KEY)
        for kind in (AnthropicLLM, OpenAILLM): assert ask(kind, server, key=None)[0].text == SAYS
    assert [seen.key for seen in server.log] == ['wrong', 'wrong', 'right', 'right']


def test_the_organisation_of_the_environment_stays_at_home(monkeypatch):
    for name in ('OPENAI_ORG_ID', 'OPENAI_PROJECT_ID'): monkeypatch.setenv(name, 'ours-alone')
    with serve() as server:
        seen, answer = [], server.answer
        monkeypatch.setattr(server, 'answer', lambda headers, *more: (seen.append(str(headers)), answer(headers, *more))[1])
        assert ask(OpenAILLM, server)[0].text == SAYS
    assert len(seen) == 1 and 'authorization' in seen[0].lower() and 'ours-alone' not in seen[0]
    assert OpenAILLM('m', key=KEY)._client.organization == 'ours-alone'


def test_the_address_of_the_environment_gets_the_key_of_the_environment(monkeypatch):
    with serve() as server:
        for kind, name in ((AnthropicLLM, 'ANTHROPIC'), (OpenAILLM, 'OPENAI')):
            monkeypatch.setenv(f'{name}_API_KEY', KEY + '\n')
            monkeypatch.setenv(f'{name}_BASE_URL', server.url + '/v1')
            assert kind('m').complete(ASKED).text == SAYS


@BOTH
def test_a_server_without_a_key_needs_none(kind):
    with serve(key=None) as server: assert ask(kind, server, key=None)[0].text == SAYS


@BOTH
def test_the_key_is_nowhere_to_be_read(kind, caplog):
    def tells(messages, schema): raise RuntimeError(f'your key {KEY} is nice')
    caplog.set_level(logging.DEBUG)
    with LLMServer(tells, key=KEY) as server:
        e = trouble(kind, server, retries=1)
        llm = kind('m', KEY, server.url)
    assert KEY not in caplog.text and KEY not in repr(llm) + str(e) + repr(e) + str(server.log)
    with pytest.raises(Exception): pickle.dumps(llm)


@BOTH
@cases('key', ['', '  ', None])
def test_no_key(kind, key):
    with pytest.raises(LLMError, match=f'set {kind.variable} in the environment') as e: kind('m', key)
    assert e.value.kind == 'key'


@cases('key', ['two words', 'a\nb', 'schlüssel', '\u200bzero'])
def test_a_key_that_cannot_be_one_is_not_sent(key):
    with pytest.raises(LLMError, match='copy it again') as e: OpenAILLM('m', key)
    assert key not in str(e.value)


@cases('url', ['localhost:11434', 'ftp://a.example', 'http://', 'http://[', 'file:///etc/passwd'])
def test_an_address_that_is_none(url):
    with pytest.raises(CpqaError, match='is no address of a model service'): OpenAILLM('m', base_url=url)


@cases('model', ['', ' ', ' m'])
def test_a_name_that_is_none(model):
    with pytest.raises(LLMError, match='is no name of a model') as e: OpenAILLM(model, KEY)
    assert e.value.kind == 'model'


# ---- recorded

@BOTH
def test_what_a_service_said_is_replayed_without_it(kind, tmp_path):
    tape = tmp_path/'t.jsonl'
    with serve() as server:
        recorded, seen = Recorded(kind('m', KEY, server.url, window=9000), tape), []
        plain, filled = recorded.complete(ASKED, on_text=seen.append), recorded.complete(ASKED, schema=FORM)
    text = tape.read_text(encoding='utf-8')
    assert KEY not in text and 'Bearer' not in text and 'Authorization' not in text and server.url not in text
    replay, again = Replayed(tape, window=recorded.window), []
    assert (replay.complete(ASKED, on_text=again.append), replay.complete(ASKED, schema=FORM)) == (plain, filled)
    assert ''.join(again) == ''.join(seen) == SAYS and filled.data == {'label': 'yes'} and replay.window == 9000
    with pytest.raises(CpqaError, match=request_key(ASKED, schema={})): replay.complete(ASKED, schema={})


# ---- the listener, and the library

@BOTH
@cases('error', [ValueError, TypeError, KeyboardInterrupt, LLMError])
def test_a_listener_that_fails_is_not_taken_for_the_service(kind, error):
    mine = error('mine')
    def listen(text): raise mine
    with serve() as server:
        with pytest.raises(error) as e: kind('m', KEY, server.url).complete(ASKED, on_text=listen)
    assert e.value is mine and len(server.log) == 1


@cases('kind, name', [(AnthropicLLM, 'anthropic'), (OpenAILLM, 'openai')])
def test_the_extra_is_named_where_it_is_missing(kind, name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r'cpqa\[llm\]'): kind('m', KEY)


def test_the_libraries_are_imported_only_when_a_client_is_made():
    code = ('import sys, cpqa.core.llm_hosted, cpqa.testing.model_server; print(sorted({"anthropic", "openai", "httpx", "httpx2", '
            '"pydantic"} & set(sys.modules)))')
    assert subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout.strip() == '[]'


# ---- how long, and how much

@BOTH
@cases('stream', [False, True])
@cases('fault', ['drip=0.01', 'creep=0.01', 'drip=30'])
def test_an_answer_that_drips_is_given_up_at_the_deadline(kind, stream, fault):
    with serve(fault) as server: e = trouble(kind, server, stream=stream, timeout=60, deadline=0.3)
    assert e.kind == 'time' and len(server.log) <= 1


def test_the_time_that_a_user_gives_is_that_of_the_whole_answer():
    from cpqa.core.llm_providers import language_model
    with serve('drip=0.01', key=None) as server, pytest.raises(LLMError) as e:
        language_model(f'openai:m@{server.url}/v1', timeout=0.3).complete(ASKED)
    assert e.value.kind == 'time' and len(server.log) <= 1


@BOTH
def test_all_tries_share_one_deadline(kind):
    with serve('500') as server: e = trouble(kind, server, retries=10_000, deadline=0.3)
    assert e.kind in ('server', 'time') and len(server.log) < 1000   # waits of a thousandth, doubled each time


@BOTH
@cases('stream', [False, True])
@cases('fault', ['endless', 'packed'])
def test_an_answer_that_is_too_much_is_not_read(kind, stream, fault):
    if stream and fault == 'packed': return
    with serve(fault) as server: e = trouble(kind, server, stream=stream, largest=50_000, retries=1)
    assert e.kind == 'reply' and (fault == 'packed' or ('more than was asked for' in str(e) and len(server.log) == 1))


@BOTH
@cases('stream', [False, True])
@cases('status', [200, 400, 500])
def test_no_body_is_read_to_an_end_that_it_does_not_have(kind, stream, status, monkeypatch):
    from cpqa.testing import model_server
    monkeypatch.setattr(model_server, 'sent', lambda *_: model_server.Sent(status, (b'{"error": "',), tail=b'x' * 2**14))
    with serve() as server:
        watched, read = [], hosted._counted
        monkeypatch.setattr(hosted, '_counted', lambda watch, response: (watched.append(watch), read(watch, response))[1])
        assert trouble(kind, server, stream=stream, largest=100_000, retries=3).kind == 'reply'
    [watch] = watched
    assert 100_000 < watch.size < 400_000   # and a part


@BOTH
def test_a_reply_may_be_as_long_as_was_asked_for(kind):
    with LLMServer(lambda *_: 'word ' * 1000) as server:
        assert len(ask(kind, server, max_tokens=1000)[0].text) == 5000
        assert trouble(kind, server, max_tokens=1000, largest=4000).kind == 'reply'


@BOTH
@cases('body', [b'{"choices": ' + b'[' * 100_000, b'{"content": ' + b'[' * 100_000, b'{"usage": ' + b'9' * 5000 + b'}'])
@cases('stream', [False, True])
def test_numbers_and_brackets_without_end_are_no_reply(kind, body, stream, monkeypatch):
    from cpqa.testing import model_server
    made = model_server.Sent(200, (b'event: message_start\ndata: ' + body + b'\n\n',), True, kind='text/event-stream')
    monkeypatch.setattr(model_server, 'sent', lambda *_: made if stream else model_server.Sent(200, (body,)))
    with serve() as server: assert trouble(kind, server, stream=stream, retries=0).kind == 'reply'


@BOTH
@cases('stream', [False, True])
def test_what_a_server_says_of_itself_does_not_pass_whole(kind, stream):
    with serve('huge') as server: said, _, _ = ask(kind, server, stream)
    assert said.text == SAYS and said.model == 'm' * MOST_NAME and (said.input_tokens, said.output_tokens) == (0, 0)


@BOTH
def test_who_watches_is_told_what_is_awaited(kind, monkeypatch):
    told = []

    @contextmanager
    def awaiting(what):
        told.append(what)
        yield lambda: told.append('heard')
    monkeypatch.setattr(hosted, 'awaiting', awaiting)
    with serve() as server:
        ask(kind, server)
        ask(kind, server, True)
    who = f'the model at 127.0.0.1:{server.port}'
    assert told[:3] == [who, who, 'heard'] and set(told[3:]) == {'heard'}


# ---- which way it goes

def proxied(monkeypatch, **names):
    for name in ('http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'):
        for form in (name, name.upper()): monkeypatch.delenv(form, raising=False)
    for name, value in names.items(): monkeypatch.setenv(name, value)


@BOTH
@cases('stream', [False, True])
@cases('host', ['127.0.0.1', 'localhost'])
def test_a_model_on_this_machine_is_asked_without_a_proxy(kind, stream, host, monkeypatch):
    with socket.create_server(('127.0.0.1', 0)) as proxy, serve() as server:
        address = f'http://127.0.0.1:{proxy.getsockname()[1]}'
        proxied(monkeypatch, http_proxy=address, https_proxy=address, all_proxy='socks5://127.0.0.1:1')
        server.url = f'http://{host}:{server.port}'
        assert ask(kind, server, stream, timeout=5, retries=0)[0].text == SAYS
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError): proxy.accept()


@BOTH
def test_others_are_asked_through_the_proxy_of_the_environment(kind, monkeypatch):
    with serve() as proxy:   # which knows no other host than itself
        proxied(monkeypatch, http_proxy=proxy.url)
        with pytest.raises(LLMError, match='the server at models.example.org does not accept') as e:
            kind('m', KEY, 'http://models.example.org/v1', retries=0).complete(ASKED)
    assert e.value.kind == 'key'


@BOTH
@cases('proxy, said', [('socks5://me:hush@127.0.0.1:9', 'pip install socksio'), ('socks9://me:hush@127.0.0.1:9', 'http://HOST:PORT')])
def test_a_proxy_of_no_use_is_one_sentence(kind, proxy, said, monkeypatch):
    proxied(monkeypatch, all_proxy=proxy)
    monkeypatch.setitem(sys.modules, 'socksio', None)
    with pytest.raises(LLMError, match='ALL_PROXY') as e: kind('m', KEY)
    assert e.value.kind == 'network' and said in str(e.value) and 'hush' not in str(e.value)


# ---- the server itself

def test_every_fault_is_known_and_said():
    for name in LLM_FAULTS:
        with LLMServer(says, f'{name}=0.01' if name in TIMED else name) as server: assert server.faults.next()
    with pytest.raises(CpqaError, match='is no fault') as e: LLMServer(says, 'cut=often')
    assert all(name in str(e.value) for name in LLM_FAULTS)


def test_models_are_listed_and_others_are_gone():
    import openai
    with serve(models=['a-model', 'b']) as server:
        assert [m.id for m in openai.OpenAI(api_key=KEY, base_url=server.url + '/v1').models.list()] == ['a-model', 'b']
        for kind in (AnthropicLLM, OpenAILLM):
            assert ask(kind, server)[0].model == 'a-model'
            with pytest.raises(LLMError) as e: kind('c', KEY, server.url).complete(ASKED)
            assert e.value.kind == 'model'


def test_a_function_may_say_more_than_a_text():
    with LLMServer(lambda *_: Completion('No.', 'm-2', 100, 7, finish='length')) as server:
        for kind in (AnthropicLLM, OpenAILLM):
            for stream in (False, True):
                said, _, _ = ask(kind, server, stream)
                assert (said.text, said.model, said.input_tokens, said.output_tokens, said.finish) == ('No.', 'm-2', 100, 7, 'length')


@cases('head', ['Host: evil.example\r\nContent-Length: 2\r\n', 'Content-Length: -1\r\n', 'Content-Length: 9999999999\r\n', ''])
def test_odd_requests_are_refused(head):
    with serve() as server:
        with socket.create_connection(('127.0.0.1', server.port)) as s:
            s.sendall(f'POST /v1/messages HTTP/1.1\r\n{head}\r\n{{}}'.encode())
            assert s.recv(100).split()[1] in (b'403', b'411')
    assert not server.log


@cases('body', [b'', b'{', b'\xff', b'[]', b'{"model": 5}',
                b'{"model": "m", "max_tokens": 5, "messages": [{"role": "boss", "content": ""}]}', b'[' * 100_000])
@cases('path', ['/v1/messages', '/v1/chat/completions', '/elsewhere'])
def test_bodies_that_are_no_request_are_refused(path, body):
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen
    with serve() as server:
        with pytest.raises(HTTPError, match='400'): urlopen(Request(server.url + path, body, {'Content-Type': 'application/json'}))
    assert not server.log
