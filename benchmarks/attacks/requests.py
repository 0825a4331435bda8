"Odd requests to `cpqa entrez serve`: it must answer each in time, stay small, and answer the next."
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from .process import CPQA, MOST_MB, environment, memory_mb
from .tally import Tally

PATIENCE = 15.0   # seconds for one answer
E = '/entrez/eutils/'


def _get(path: str) -> bytes: return f'GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'.encode('utf-8', 'surrogateescape')
def _search(term: str, more: str = '') -> bytes: return _get(f'{E}esearch.fcgi?db=pubmed&term={quote(term)}{more}')
def _post(verb: str, body: bytes, length: str = '') -> bytes:
    return (f'POST {E}{verb}.fcgi HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n'
            f'Content-Length: {length or len(body)}\r\n\r\n').encode() + body


ODD: dict[str, bytes] = {
    'a word of 2,000 letters to espell': _get(f'{E}espell.fcgi?db=pubmed&term={"a" * 2000}'),
    'a word of 120 letters to espell': _get(f'{E}espell.fcgi?db=pubmed&term={"tamoxifen" * 13}'),
    '500 wrong words to espell': _post('espell', b'db=pubmed&term=' + b'+'.join(b'tamoxifn%d' % i for i in range(500))),
    '50,000 brackets': _post('esearch', b'db=pubmed&term=' + b'(' * 50_000),
    '10,000 brackets closed': _post('esearch', b'db=pubmed&term=' + b'(' * 10_000 + b'cancer' + b')' * 10_000),
    '50,000 square brackets': _post('esearch', b'db=pubmed&term=' + b'[' * 50_000),
    '200 searches for words near each other': _post('esearch', b'db=pubmed&term=' + b'+OR+'.join([b'"lung+cancer+cells"[ti:~1000]'] * 200)),
    '1,000 words joined by AND': _post('esearch', b'db=pubmed&term=' + b'+AND+'.join(b'w%d' % i for i in range(1000))),
    '1,000 words with a star': _post('esearch', b'db=pubmed&term=' + b'+OR+'.join(b'a%d*' % i for i in range(1000))),
    'a* b* c* ...': _search(' OR '.join(f'{c}*' for c in 'abcdefghijklmnopqrstuvwxyz')), 'a star alone': _search('*'),
    '20,000 times NOT': _post('esearch', b'db=pubmed&term=' + b'NOT+' * 20_000), 'quotes that stay open': _search('"' * 9999),
    'retmax=10^12': _search('cancer', '&retmax=1000000000000'), 'retmax below none': _search('cancer', '&retmax=-1'),
    'retstart=10^30': _search('cancer', '&retstart=1' + '0' * 30), 'reldate=800000': _search('cancer', '&reldate=800000&datetype=pdat'),
    'reldate of 400 digits': _search('cancer', '&reldate=1' + '0' * 400), 'a month 13': _search('cancer', '&mindate=2020/13/77&maxdate=x'),
    'a history without one': _search('#1 AND cancer', '&usehistory=y&WebEnv=nothing&query_key=1'),
    'query_key=10^30': _get(f'{E}efetch.fcgi?db=pubmed&WebEnv=x&query_key=1{"0" * 30}'),
    'esummary 2.0': _get(f'{E}esummary.fcgi?db=pubmed&id=1&version=2.0'), 'ids of letters': _get(f'{E}efetch.fcgi?db=pubmed&id=abc,-1,%00'),
    '100,000 ids': _post('efetch', b'db=pubmed&id=' + b','.join(b'%d' % i for i in range(100_000))),
    '100,000 ids in esummary': _post('esummary', b'db=pubmed&id=' + b','.join(b'%d' % i for i in range(100_000))),
    '30,000 parameters': _post('esearch', b'&'.join(b'p%d=1' % i for i in range(30_000))), 'no parameters': _get(f'{E}esearch.fcgi'),
    'another database': _get(f'{E}esearch.fcgi?db=protein&term=x'), 'another endpoint': _get(f'{E}erase.fcgi'),
    'a path upwards': _get(E + '../' * 30 + 'etc/passwd'), 'a path in per cent': _get(f'{E}%2e%2e/%2e%2e/etc/passwd'),
    'broken per cents': _get(f'{E}esearch.fcgi?db=pubmed&term=%ZZ%f%'),
    'bytes that are no text': _get(f'{E}esearch.fcgi?term=\udcff\udcfe'),
    'NUL': _search('\x00' * 100), 'letters from right to left': _search('\u202ecancer\u2066'),
    'one accent 5,000 times': _search('e' + '\u0301' * 5000),
    'a line of a megabyte': b'GET /' + b'a' * 1_000_000 + b' HTTP/1.1\r\n\r\n',
    'ten thousand headers': b'GET / HTTP/1.1\r\n' + b'X: y\r\n' * 10_000 + b'\r\n', 'no host': b'GET / HTTP/1.1\r\n\r\n',
    'another host': f'GET {E}einfo.fcgi HTTP/1.1\r\nHost: evil.example\r\n\r\n'.encode(), 'HTTP/0.9': b'GET /\r\n\r\n',
    'HTTP/9.9': b'GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n', 'PUT': b'PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
    'TRACE': b'TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n', 'garbage': bytes(range(256)) * 20,
    'a length of letters': _post('esearch', b'x', 'many'), 'a negative length': _post('esearch', b'x', '-5'),
    'a length of 10^12': _post('esearch', b'x', '1000000000000'),
    'chunks': b'POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n',
    'half a body': _post('esearch', b'db=pubmed', '100'),
    'two lengths': b'POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd',
}


def articles(n: int) -> Iterator:
    "Documents of words from a fixed draw, some of which are real ones."
    import random

    from cpqa.core.records import Document
    r = random.Random(7)
    words = ['cancer', 'lung', 'cells', 'survival', 'tamoxifen', 'polyps', 'aspirin', 'breast', 'trial', 'placebo'] + [
        ''.join(r.choices('bcdfghklmnprstvzaeiou', k=r.randint(3, 9))) for _ in range(4000)]
    for i in range(1, n + 1):
        yield Document(id=str(i), title=' '.join(r.choices(words[:500], k=8)).capitalize(), year=1990 + i % 35,
                       text='. '.join(' '.join(r.choices(words[:10] * 20 + words, k=15)).capitalize() for _ in range(8)) + '.')


@contextmanager
def served(n: int = 500):
    "The process of `cpqa entrez serve` over a library of `n` documents, and its port."
    from cpqa.libraries import build_index
    with tempfile.TemporaryDirectory() as folder:
        build_index(list(articles(n)), Path(folder) / 'library', vectors=False)
        with Server(Path(folder) / 'library') as server: yield server


class Server:
    "A server of a library that is started anew when it has died."
    def __init__(self, library: Path): self.library, self.process, self.port = library, None, 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_): self.stop()

    def start(self):
        with socket.create_server(('127.0.0.1', 0)) as s: self.port = s.getsockname()[1]
        self.process = subprocess.Popen([*CPQA, 'entrez', 'serve', '--library', str(self.library), '--port', str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        for _ in range(600):
            if self.well(1): return
            time.sleep(.1)
        raise SystemExit('cpqa entrez serve did not start')

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def well(self, limit: float = PATIENCE) -> bool:
        "Does it answer an ordinary request?"
        try: return b'<Count>' in self.ask(_search('cancer'), limit)
        except OSError: return False

    def ask(self, request: bytes, limit: float = PATIENCE) -> bytes:
        "The answer to the bytes of a request, 8 MB of it at most; `OSError` where none comes in time."
        out, until = [], time.monotonic() + limit
        with socket.create_connection(('127.0.0.1', self.port), timeout=limit) as s:
            try: s.sendall(request)
            except (BrokenPipeError, ConnectionResetError): pass   # it answers before it has read all
            while sum(map(len, out)) < 8_000_000:
                s.settimeout(max(.01, until - time.monotonic()))
                try: piece = s.recv(1 << 20)
                except ConnectionResetError: break
                if not piece: break
                out.append(piece)
        return b''.join(out)


def odd(server: Server, requests: dict[str, bytes], most_mb: int = MOST_MB) -> Tally:
    "Each odd request in its turn; a server that does not answer the next one is started anew."
    tally = Tally('odd requests to entrez serve')
    for what, request in requests.items():
        start, said = time.monotonic(), ''
        half = what in ('half a body', 'chunks', 'a length of 10^12')   # we leave without an answer; the next must be answered
        try: answer = server.ask(request, 1.0 if half else PATIENCE)
        except TimeoutError: answer, said = b'', '' if half else f'no answer in {PATIENCE:.0f} s'
        except OSError as e: answer, said = b'', f'{type(e).__name__}'
        if b'Traceback' in answer or b'The server failed' in answer: said = answer.split(b'\r\n\r\n')[-1].decode('utf-8', 'replace')[:150]
        if b'root:' in answer: said = 'a file of this machine was read'
        if len(answer) > 2_000_000: said = f'an answer of {len(answer):,} bytes to {len(request):,}'
        seconds, mb = time.monotonic() - start, memory_mb(server.process.pid)
        if mb > most_mb: said = said or f'{mb} MB of memory'
        if server.process.poll() is not None or not server.well(5): said = (said + '; ' if said else '') + 'it answers no more'
        tally.add(what, said, seconds, mb)
        if said: server.stop(); server.start()
    return tally


def crowd(server: Server) -> Tally:
    "Fifty who open a connection and say nothing, and one who asks."
    tally, held = Tally('slow clients at entrez serve'), []
    try:
        for _ in range(50):
            s = socket.create_connection(('127.0.0.1', server.port))
            s.sendall(b'GET /entrez')
            held.append(s)
        start = time.monotonic()
        well = server.well()
        tally.add('50 who say nothing', '' if well else 'the one who asks gets no answer', time.monotonic() - start,
                  memory_mb(server.process.pid))
    finally:
        for s in held: s.close()
    return tally


def run(quick: bool = False) -> Iterator[Tally]:
    with served(100 if quick else 500) as server:
        yield odd(server, dict(list(ODD.items())[::5 if quick else 1]))
        yield crowd(server)
