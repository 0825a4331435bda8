"Servers that mean no good, on 127.0.0.1: of a language model and of NCBI. What asks them must end in time, small, and with a sentence."
import gzip
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from .process import QUESTION, ran
from .tally import Tally

KEY = 'sk-attack-0123456789abcdefghij'
HEAD = b'HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n'
LAUGHS = (b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha">' + b''.join(
    b'<!ENTITY %c "%s">' % (98 + i, b'&%c;' % (97 + i) * 10) for i in range(12)) + b']><eSearchResult><Count>&m;</Count></eSearchResult>')
OUTSIDE = (b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
           b'<eSearchResult><Count>1</Count><IdList><Id>&a;</Id></IdList></eSearchResult>')


def completion(usage: str = '{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}', model: str = 'm',
               text: str = 'Yes.') -> bytes:
    "A reply of a model, whose usage is given as it is written."
    return (b'{"id": "1", "object": "chat.completion", "created": 0, "model": %s, "choices": [{"index": 0, "finish_reason": "stop", '
            b'"message": '
            b'{"role": "assistant", "content": %s}}], "usage": %s}' % (json.dumps(model).encode(), json.dumps(text).encode(),
                                                                       usage.encode()))


def _whole(c: socket.socket, body: bytes, kind: bytes = b'application/json', status: bytes = b'200 OK', more: bytes = b''):
    c.sendall(HEAD.replace(b'200 OK', status) % kind + more + b'Content-Length: %d\r\n\r\n' % len(body) + body)


def _forever(c: socket.socket, piece: bytes, pause: float, over: threading.Event):
    while not over.is_set():
        c.sendall(piece)
        if pause: over.wait(pause)


Deed = Callable[[socket.socket, threading.Event], None]
DEEDS: dict[str, Deed] = {   # what a server may do to whoever asks it
    'drips a byte at a time': lambda c, over: (c.sendall(HEAD % b'application/json' + b'\r\n'), _forever(c, b' ', .2, over)),
    'drips headers': lambda c, over: (c.sendall(b'HTTP/1.1 200 OK\r\n'), _forever(c, b'X: 1\r\n', .2, over)),
    'sends without end': lambda c, over: (c.sendall(HEAD % b'application/json' + b'\r\n'), _forever(c, b'{"a": "' + b'x' * 65536, 0, over)),
    'sends headers without end': lambda c,
    over: (c.sendall(b'HTTP/1.1 200 OK\r\n'), _forever(c, b'X-A: ' + b'y' * 60000 + b'\r\n', 0, over)),
    'says nothing': lambda c, over: over.wait(600),
    'hangs up': lambda c, over: None,
    'hangs up in the middle': lambda c, over: c.sendall(HEAD % b'application/json' + b'Content-Length: 1000\r\n\r\n{"choices": ['),
    'sends garbage': lambda c, over: c.sendall(bytes(range(256)) * 400),
    'answers 401': lambda c, over: _whole(c, b'{"error": {"message": "wrong key %s"}}' % KEY.encode(), status=b'401 Unauthorized'),
    'answers 500': lambda c, over: _whole(c, b'{"error": {"message": "oops"}}', status=b'500 Internal Server Error'),
    'answers 429 for a year': lambda c, over: _whole(c, b'{}', status=b'429 Too Many Requests', more=b'Retry-After: 31536000\r\n'),
    'sends elsewhere': lambda c, over: _whole(c, b'', status=b'302 Found', more=b'Location: http://192.0.2.1/\r\n'),
    'sends a page': lambda c, over: _whole(c, b'<!DOCTYPE html><html><title>Log in</title></html>', b'text/html'),
    'sends nothing': lambda c, over: _whole(c, b''),
    'lies about the length': lambda c, over: c.sendall(HEAD % b'application/json' + b'Content-Length: 99999999999\r\n\r\n{}'),
    'has a negative length': lambda c, over: c.sendall(HEAD % b'application/json' + b'Content-Length: -5\r\n\r\n{}'),
    'sends broken chunks': lambda c, over: c.sendall(HEAD % b'application/json' + b'Transfer-Encoding: chunked\r\n\r\nZZZ\r\n{}\r\n'),
    'sends brackets in brackets': lambda c, over: _whole(c, b'[' * 200_000),
    'packs a gigabyte': lambda c, over: _whole(c, gzip.compress(bytes(1 << 20), 9) * 1024, more=b'Content-Encoding: gzip\r\n'),
}
OF_A_MODEL: dict[str, Deed] = {
    'counts tokens of 400 digits': lambda c, over: _whole(c, completion('{"prompt_tokens": 1%s, "completion_tokens": 1}' % ('0' * 400))),
    'counts tokens in words': lambda c, over: _whole(c, completion('{"prompt_tokens": "many", "completion_tokens": null}')),
    'counts tokens below none': lambda c, over: _whole(c, completion('{"prompt_tokens": -1, "completion_tokens": 1e999}')),
    'has a long name': lambda c, over: _whole(c, completion(model='m' * 1_000_000)),
    'steers the terminal': lambda c, over: _whole(c, completion(model='\x1b]0;x\x07\u202e', text='\x1b[2J\u202e{"claims": []}')),
    'writes a claim of 30,000 letters': lambda c, over: _whole(c, completion(text=json.dumps(
        {'label': 'yes', 'claims': [{'text': 'cancer ' * 4300, 'quote': 'Tisagenlecleucel produced high rates', 'pmid': '30501490'}]}))),
    'writes the same claim 50 times': lambda c, over: _whole(c, completion(text=json.dumps(
        {'label': 'yes', 'claims': [{'text': 'It helps.', 'quote': 'high rates of durable response', 'pmid': '30501490'}] * 50}))),
    'writes 50,000 dots': lambda c, over: _whole(c, completion(text='{"label": "yes", "claims": [{"text": "%s", "quote": "%s"}]}' % (
        '.' * 50_000, '.' * 50_000))),
    'has no choices': lambda c, over: _whole(c, b'{"choices": []}'), 'sends a number': lambda c, over: _whole(c, b'1'),
    'sends null': lambda c, over: _whole(c, b'null'), 'sends no text': lambda c, over: _whole(c, completion(text='')),
}
OF_NCBI: dict[str, Deed] = {
    'sends an entity bomb': lambda c, over: _whole(c, LAUGHS, b'text/xml'),
    'names a file of ours': lambda c, over: _whole(c, OUTSIDE, b'text/xml'),
    'nests without end': lambda c, over: _whole(c, b'<eSearchResult>' + b'<a>' * 200_000, b'text/xml'),
    'counts 10^400 hits': lambda c, over: _whole(c, b'<eSearchResult><Count>1%s</Count></eSearchResult>' % (b'0' * 400), b'text/xml'),
    'gives ids of a megabyte': lambda c,
    over: _whole(c, b'<eSearchResult><Count>1</Count><RetMax>1</RetMax><RetStart>0</RetStart><IdList><Id>'
                                                      + b'9' * 1_000_000 + b'</Id></IdList></eSearchResult>', b'text/xml'),
    'has an error of 20,000 dashes': lambda c, over: _whole(c, b'<eSearchResult><ERROR>' + b'-' * 19_900 + b'</ERROR></eSearchResult>',
                                                           b'text/xml'),
}


class Hostile:
    "A server whose every connection meets a deed: `with Hostile(deed) as port: ...`."
    def __init__(self, deed: Deed): self.deed, self.over = deed, threading.Event()

    def __enter__(self) -> int:
        self.listening = socket.create_server(('127.0.0.1', 0), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self.listening.getsockname()[1]

    def __exit__(self, *_):
        self.over.set()
        self.listening.close()

    def _accept(self):
        while not self.over.is_set():
            try: c, _ = self.listening.accept()
            except OSError: return
            threading.Thread(target=self._meet, args=(c,), daemon=True).start()

    def _meet(self, c: socket.socket):
        with c:
            try:
                c.settimeout(10)
                asked = b''
                while b'\r\n\r\n' not in asked and (piece := c.recv(65536)): asked += piece
                self.deed(c, self.over)
                c.shutdown(socket.SHUT_WR)
                until = time.monotonic() + 2
                while time.monotonic() < until and c.recv(65536): pass   # what was asked is read, or the answer is lost with a reset
            except OSError: pass


def _tried(tally: Tally, deeds: dict[str, Deed], ask: Callable[[int], object], quick: bool, then: Callable = lambda done: '') -> Tally:
    for what, deed in list(deeds.items())[::4 if quick else 1]:
        with Hostile(deed) as port: done = ask(port)
        tally.add(what, done.fault(secret=KEY) or then(done), done.seconds, done.mb)
    return tally


def models(quick: bool = False) -> Tally:
    "The command with a language model that lives on a hostile server: 3 seconds are allowed, 60 until it counts as lost."
    def ask(port: int):
        return ran('ask', QUESTION, '--llm', f'openai:m@http://127.0.0.1:{port}/v1', '--llm-timeout', '3', limit=60, CPQA_LLM_KEY=KEY)
    def then(done):
        return f'{len(done.out):,} characters printed' if len(done.out) > 60_000 else 'a control character' if '\x1b' in done.out else ''
    return _tried(Tally('a hostile server of a language model'), DEEDS | OF_A_MODEL, ask, quick, then)


def ncbi(quick: bool = False) -> Tally:
    "The command with a hostile NCBI: 90 seconds until it counts as lost."
    with tempfile.TemporaryDirectory() as cache:
        def ask(port: int):
            return ran('ask', QUESTION, '--source', 'pubmed', limit=90, CPQA_ENTREZ_URL=f'http://127.0.0.1:{port}/entrez/eutils/',
                       CPQA_CACHE=os.environ.get('CPQA_CACHE') or cache, NCBI_API_KEY=KEY)
        with open('/etc/passwd') as f: first = f.readline().strip()
        then = lambda done: 'a file of this machine was read' if first in done.out + done.err else ''
        return _tried(Tally('a hostile NCBI'), DEEDS | OF_NCBI, ask, quick, then)


def misbehaving(quick: bool = False) -> Tally:
    "The faults of our own server of E-utilities, each for ever, from a client in a hurry."
    from cpqa.core.errors import CpqaError
    from cpqa.libraries import demo_library
    from cpqa.literature.entrez import Entrez
    from cpqa.local_ncbi.entrez_server import ENTREZ_FAULTS, EntrezServer
    tally = Tally('faults of the local NCBI, for ever')
    for fault in [*ENTREZ_FAULTS, '403', '429', '500', '503'][::4 if quick else 1]:
        said, start = '', time.monotonic()
        with EntrezServer(demo_library(), misbehave=fault) as server:
            client = Entrez(url=server.url, email='', key='', cache=False, tries=3, backoff=.01, timeout=2.0, deadline=10.0)
            for step in (lambda: client.search('lymphoma'), lambda: client.fetch(['30501490']), lambda: client.spell('lymfoma')):
                try: step()
                except CpqaError: pass
                except Exception as e: said = f'{type(e).__name__}: {e}'
        seconds = time.monotonic() - start
        tally.add(fault, said or ('' if seconds < 60 else f'{seconds:.0f} s'), seconds)
    return tally


def run(quick: bool = False) -> Iterator[Tally]:
    yield models(quick)
    yield ncbi(quick)
    yield misbehaving(quick)
