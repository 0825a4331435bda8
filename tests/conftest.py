"""What all tests share: a cache of their own, a closed network, the real data where it is at hand, and copies of the tree."""
import functools
import inspect
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from durations import Durations
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sysconfig.get_path('scripts'))

# Before anything imports cpqa: the demo library and the converted model are made once, and never in the user's own cache.
os.environ['CPQA_CACHE'] = str(ROOT/'.cache'/'cpqa')

# One thread for tiny networks, here and in the processes that tests start: several wait for each other by spinning, and the tests fill the
# cores.
os.environ.setdefault('OMP_NUM_THREADS', '1')

class Unreported:
    """Whoever imports openvino or nncf first, cpqa's `require` or a test itself: they do not find the package by which they report that
    they are used. It forks this process for each report, some forty times in a conversion, which costs seconds where torch is loaded."""
    @staticmethod
    def find_spec(name: str, path=None, target=None):
        if name.partition('.')[0] == 'openvino_telemetry': raise ModuleNotFoundError('tests report nothing to anybody', name=name)


sys.meta_path.insert(0, Unreported)

# CPQA_NIGHTLY=1 python -m pytest: all real articles and questions, and far more examples.
NIGHTLY = os.environ.get('CPQA_NIGHTLY', '') not in ('', '0')

# A slow machine is no bug; everything else is as Hypothesis sets it (in CI it draws the same examples each time).
settings.register_profile('cpqa', settings(), deadline=None, max_examples=200 if NIGHTLY else 14,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile('cpqa')


def examples(nightly: int, daily: int = 14) -> settings:
    "How many examples a property is tried on, at night and otherwise, where the 200 and 14 of the profile do not fit."
    return settings(max_examples=nightly if NIGHTLY else min(daily, nightly))


def sample(rows, n: int, seed: int = 0) -> list:
    "All rows at night, otherwise the same `n` of them each time, in their order."
    rows = list(rows)
    kept = range(len(rows)) if NIGHTLY or n >= len(rows) else sorted(random.Random(seed).sample(range(len(rows)), n))
    return [rows[i] for i in kept]


def cases(names: str, rows):
    """Like `pytest.mark.parametrize`, as one test: every row is tried, and all that fail are told together with what they hold.
    A row has a `tmp_path` and a `monkeypatch` of its own; other fixtures are shared."""
    names, rows = [name.strip() for name in names.split(',')], list(rows)

    def decorate(test):
        @functools.wraps(test)
        def every_row(**fixtures):
            wrong = {}
            for i, values in enumerate(rows):
                row = dict(zip(names, values if len(names) > 1 else (values,), strict=True))
                with pytest.MonkeyPatch.context() as patch:
                    own = {'monkeypatch': patch} if 'monkeypatch' in fixtures else {}
                    if 'tmp_path' in fixtures:
                        own['tmp_path'] = fixtures['tmp_path']/f'{names[0]} {i}'
                        own['tmp_path'].mkdir()
                    try: test(**row, **fixtures | own)
                    except (Exception, pytest.fail.Exception) as e: wrong[i] = e
            if wrong:
                told = [f'{names} = {rows[i]!r:.300}\n{type(e).__name__}: {e}' for i, e in wrong.items()]
                raise AssertionError(f'{len(wrong)} of {len(rows)} cases fail\n\n' + '\n\n'.join(told[:10])) from next(iter(wrong.values()))

        parameters = inspect.signature(test).parameters
        assert rows and set(names) <= set(parameters), f'{test.__name__} has no rows, or no parameter for one of {names}'
        every_row.__signature__ = inspect.Signature([p for name, p in parameters.items() if name not in names])
        return every_row
    return decorate


def pytest_addoption(parser):
    parser.addoption('--write-durations', action='store_true', help='write what each test file took to tests/durations.json')
    parser.addoption('--check-durations', action='store_true',
                     help='fail where a test file takes far longer than tests/durations.json says')


def pytest_configure(config):
    config.pluginmanager.register(Durations(config))
    if NIGHTLY and config.option.markexpr == 'not release and not nightly': config.option.markexpr = 'not release'


# A shell that starts tests in the background has them, and the processes they start, ignore Ctrl-C, which some of them test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN: signal.signal(signal.SIGINT, signal.default_int_handler)


class NetworkRefused(RuntimeError):
    "A test tried to leave this machine. Not an OSError, so that no library takes it for a passing outage."


LOCAL = {'', 'localhost', '::1', '0.0.0.0', '::', None}


def is_local(host) -> bool: return host in LOCAL or str(host).startswith('127.')


def close_network():
    "Let sockets reach loopback addresses and AF_UNIX alone, for this process."
    def guarded(connect):
        def call(self, address, *args):
            if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
                raise NetworkRefused(f'a test tried to connect to {address}: tests run offline')
            return connect(self, address, *args)
        return call

    def guarded_lookup(lookup):
        def call(host, *args, **kwargs):
            name = host.decode() if isinstance(host, bytes) else host
            if not is_local(name): raise NetworkRefused(f'a test tried to look up {name!r}: tests run offline')
            return lookup(host, *args, **kwargs)
        return call

    for name in ('connect', 'connect_ex'): setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    for name in ('getaddrinfo', 'gethostbyname', 'gethostbyname_ex'): setattr(socket, name, guarded_lookup(getattr(socket, name)))


def pytest_sessionstart(session): close_network()


def project_files() -> list[str]:
    "The files of the project: tracked ones, and new ones that git does not ignore."
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '-z'], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode: pytest.skip(f'not a git checkout: {listed.stderr.strip()}')
    return sorted({name for name in listed.stdout.split('\0') if name and os.path.lexists(ROOT/name)})


def copy_project(to: Path) -> Path:
    "A copy of the project's files, as a fresh clone would have them."
    for name in project_files():
        (to/name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT/name, to/name, follow_symlinks=False)
    return to


def run_in(folder: Path, *command) -> subprocess.CompletedProcess:
    "Run a command in a copy of the project, which then imports the copy's cpqa."
    env = {k: v for k, v in os.environ.items() if k != 'IN_TEST'} | {'PYTHONPATH': str(folder)}
    return subprocess.run([*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope='session')
def data_dir() -> Path:
    "The folder of real data: `$CPQA_DATA`, or ../shared/data beside the project; the test is skipped where there is none."
    folder = Path(os.environ.get('CPQA_DATA') or ROOT.parent/'shared'/'data')
    if not folder.is_dir(): pytest.skip(f'needs real data: set CPQA_DATA, or put it into {folder}')
    return folder


@pytest.fixture(scope='session')
def networks() -> dict:
    "What was loaded from the folders that come with cpqa."
    return {}


@pytest.fixture(scope='module')
def loaded_once(networks):
    """For modules about something else: the networks that come with cpqa, and all-MiniLM-L6-v2, are read and compiled by the first who
    asks. The others share them, and what those that come with cpqa once made of a text, since most tests ask the same few questions."""
    from cpqa.core.storage import cache_dir
    from cpqa.retrieval import openvino_models
    load, infer, package = openvino_models.PreparedNetwork.__init__, openvino_models.PreparedNetwork.infer, openvino_models.MODELS

    def shared(self, folder, *args, **more):
        if Path(folder).parent not in (package, cache_dir()/'models'): return load(self, folder, *args, **more)
        key = str(folder), args, tuple(sorted(more.items())), openvino_models.has_bf16()
        if key not in networks:
            load(self, folder, *args, **more)
            networks[key] = dict(self.__dict__)
        self.__dict__ |= networks[key] | {'tokenizer': openvino_models.require(
            'tokenizers', 'offline').Tokenizer.from_file(str(Path(folder)/'tokenizer.json'))}

    def remembered(self, work):
        if self.folder.parent != package: return (yield from infer(self, work))
        made = networks.setdefault((str(self.folder), self.runs_in), {})
        for batch in work:
            keys = texts(batch)
            if new := [i for i, key in enumerate(keys) if key not in made]:
                [found] = infer(self, [{name: rows[new] for name, rows in batch.items()}])
                made |= zip((keys[i] for i in new), found, strict=True)
            yield np.stack([made[key] for key in keys])

    def texts(batch) -> list[tuple]:
        "A key for each row: its tokens and its padding, since with more or less of it the last digits differ."
        return [tuple(row.tobytes() for row in rows) for rows in zip(*(rows for _, rows in sorted(batch.items())), strict=True)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openvino_models.PreparedNetwork, '__init__', shared)
        patch.setattr(openvino_models.PreparedNetwork, 'infer', remembered)
        yield
