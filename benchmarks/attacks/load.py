"Many at once, and many in a row: memory over 1,000 questions, 8 cold processes, 2,000 requests of 50 clients."
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .process import MOST_MB, QUESTION, memory_mb, ran
from .requests import E, Server, _get, _search, served
from .tally import Tally

QUESTIONS = ['Is tisagenlecleucel effective for B-cell lymphoma?', 'Does aspirin prevent colon cancer?',
             'What are the side effects of tamoxifen?',
             'Does exercise ease fatigue during chemotherapy?', 'Which drugs treat HER2-positive breast cancer?', 'Is a PSA test useful?',
             'How long do people with pancreatic cancer live?', 'Can green tea prevent cancer?', 'What is immunotherapy?',
             'Is radiotherapy needed after breast surgery?']


def _asks(n: int, pipe):
    "Asks `n` questions, each followed by others and a little different, and sends seconds and memory."
    from cpqa import CancerQA
    qa, seconds, kept, seen, odd = CancerQA(), [], {}, [], []
    for i in range(n):
        question, start = QUESTIONS[i % len(QUESTIONS)], time.perf_counter()
        said = qa.ask(question)
        seconds.append(time.perf_counter() - start)
        told = said.response, said.used_PMIDs
        if kept.setdefault(question, told) != told: odd.append(question)
        if i in (n // 10, n - 1): seen.append(memory_mb(os.getpid(), 'VmRSS'))
    pipe.send((seconds, seen, odd, memory_mb(os.getpid())))


def asks(quick: bool = False) -> Tally:
    "Memory after a tenth of the questions and at the end, and that a question gets the same answer each time."
    n, tally = 30 if quick else 1000, Tally('questions in one process')
    spawn = multiprocessing.get_context('spawn')
    ours, theirs = spawn.Pipe(False)
    child = spawn.Process(target=_asks, args=(n, theirs))
    child.start()
    theirs.close()
    try: seconds, seen, odd, most = ours.recv()
    except EOFError: return _fallen(tally, n, 'the process died')
    child.join()
    for i, s in enumerate(seconds):
        said = f'another answer than before: {odd[0]}' if i < len(odd) else ''
        if i == n - 1 and most > MOST_MB: said = f'{most} MB of memory'
        tally.add('an ask', said, s, most)
    tally.notes = {'memory_mb_after_a_tenth': seen[0], 'memory_mb_at_the_end': seen[1],
                   'p95_seconds': round(float(np.percentile(seconds, 95)), 3)}
    return tally


def _fallen(tally: Tally, n: int, said: str) -> Tally:
    for _ in range(n): tally.add('all', said)
    return tally


def cold(quick: bool = False) -> Tally:
    "Eight processes that begin at the same time; their answers must be one."
    tally, n = Tally('cold processes at once'), 2 if quick else 8
    with ThreadPoolExecutor(n) as pool: done = list(pool.map(lambda _: ran('ask', QUESTION, '--json', limit=300), range(n)))
    said = [_told(d.out) for d in done]
    for d, told in zip(done, said):
        tally.add('a process', d.fault() or ('' if told and told == said[0] else 'another answer than the first'), d.seconds, d.mb)
    return tally


def _told(out: str) -> tuple:
    try: answer = json.loads(out)
    except ValueError: return ()
    return answer['response'], tuple(answer['used_PMIDs'])


REQUESTS = [_search('lung cancer'), _search('survival[ti] AND (tamoxifen OR aspirin)'), _search('cell*'),
            _get(f'{E}efetch.fcgi?db=pubmed&id=1,2,3&retmode=xml'),
            _get(f'{E}esummary.fcgi?db=pubmed&id=4,5'), _get(f'{E}espell.fcgi?db=pubmed&term=tamoxifn'), _get(f'{E}einfo.fcgi?db=pubmed')]


def clients(server: Server, requests: int = 2000, many: int = 50) -> Tally:
    "Requests of many clients at once; each answer must be the one that a client alone gets."
    tally, lock = Tally(f'requests of {many} clients at entrez serve'), threading.Lock()
    body = lambda answer: answer.partition(b'\r\n\r\n')[2]
    right, times = [body(server.ask(r)) for r in REQUESTS], []
    def one(i: int):
        start = time.monotonic()
        try: said = '' if body(server.ask(REQUESTS[i % len(REQUESTS)], 60)) == right[i % len(REQUESTS)] else 'another answer'
        except OSError as e: said = type(e).__name__
        with lock:
            times.append(time.monotonic() - start)
            tally.add(f'request {i}', said, times[-1])
    with ThreadPoolExecutor(many) as pool: list(pool.map(one, range(requests)))
    tally.worst_mb = memory_mb(server.process.pid)
    tally.notes = {'p95_seconds': round(float(np.percentile(times, 95)), 3)}
    return tally


def run(quick: bool = False) -> Iterator[Tally]:
    yield asks(quick)
    yield cold(quick)
    with served(100 if quick else 500) as server: yield clients(server, 100 if quick else 2000, 10 if quick else 50)
