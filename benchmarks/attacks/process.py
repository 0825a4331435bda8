"A command of cpqa as a process of its own: what it said, how long it took, how much memory, and whether it fell."
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

CPQA = (sys.executable, '-c', 'import sys; from cpqa.cli import main; sys.exit(main())')
TRACES = ('Traceback (most recent call last)', 'Exception ignored', 'panicked', 'should not have happened', 'Segmentation fault')
MOST_MB = 1500        # of any process that is attacked
ANSWERED_OTHERWISE = 3    # the model or PubMed failed, and the answer says so
QUESTION = 'Is tisagenlecleucel effective for B-cell lymphoma?'


@dataclass
class Done:
    "What became of a command; `code` is negative where a signal ended it, and None where we had to."
    code: int | None
    out: str
    err: str
    seconds: float
    mb: int

    def fault(self, most_mb: int = MOST_MB, secret: str = '') -> str:
        "What fell, in a sentence; '' where nothing did: it ended in time with words for a person, and told no secret."
        if self.code is None: return f'it did not end within {self.seconds:.0f} s'
        if self.code < 0: return f'signal {-self.code} ended it'
        if trace := next((t for t in TRACES if t in self.err), ''): return f'{trace}: {self.err.strip().splitlines()[-1][:150]}'
        if secret and secret in self.out + self.err: return 'the key stands in what it printed'
        if self.mb > most_mb: return f'{self.mb} MB of memory'
        said = self.out if self.code == ANSWERED_OTHERWISE else self.err
        if self.code and not said.strip(): return f'it ended with {self.code} and said nothing'
        return ''


def environment(**changes: str) -> dict[str, str]:
    "The environment without the keys and proxies of whoever runs this, and with the changes."
    kept = {k: v for k, v in os.environ.items() if not k.endswith(('_KEY', '_TOKEN')) and 'proxy' not in k.lower()}
    return {**kept, 'OMP_NUM_THREADS': '1', **changes}


def ran(*words, limit: float = 60.0, given: bytes = b'', **env: str) -> Done:
    "Runs `cpqa` with these words; it is ended after `limit` seconds."
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as said:
        said.write(given); said.seek(0)
        start = time.monotonic()
        child = subprocess.Popen([*CPQA, *map(str, words)], stdin=said, stdout=out, stderr=err, env=environment(**env))
        over = threading.Event()
        def end(): over.set(); child.send_signal(signal.SIGKILL)
        timer = threading.Timer(limit, end)
        timer.start()
        _, status, used = os.wait4(child.pid, 0)   # which tells the memory of this child alone
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for f in (out, err): f.seek(0); texts.append(f.read(5_000_000).decode('utf-8', 'replace'))
        mb = used.ru_maxrss // (2**20 if sys.platform == 'darwin' else 2**10)
        return Done(None if over.is_set() else child.returncode, *texts, time.monotonic() - start, mb)


def memory_mb(pid: int, what: str = 'VmHWM') -> int:
    "The most memory that a running process has taken; 0 where the system does not say."
    try:
        with open(f'/proc/{pid}/status') as f: return next(int(line.split()[1]) // 1024 for line in f if line.startswith(what))
    except (OSError, StopIteration): return 0
