"""What each test file and each notebook costs: seconds of the processor, its child processes included, which a busy machine hardly changes.

python -m pytest --write-durations       writes tests/durations.json for the files that ran, and keeps the other rows; then the same
                                         with  -m release
python -m pytest --check-durations       fails where a row is exceeded by far: 6 times its seconds, which a processor without
                                         VNNI may take, and a minute and a half more, since the first who needs a model or
                                         the demo library makes it (.ci/run does)
"""
import gc
import json
import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

TABLE = Path(__file__).with_name('durations.json')
HEAVY = ('openvino', 'torch', 'sentence_transformers', 'scipy.stats', 'statsmodels.stats.multitest', 'pandas', 'matplotlib.pyplot')
MANY = 500      # tests of one run that make it a run of the suite


def row(nodeid: str) -> str:
    "The row of a test: its file, or its notebook."
    notebook = re.fullmatch(r'.*test_notebooks\.py::test_notebook\[(.*?)\]', nodeid)
    return f'nbs/{notebook[1]}.ipynb' if notebook else nodeid.partition('::')[0]


def spent() -> float:
    "Seconds of the processor that this process and its ended children have taken."
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def table() -> dict[str, float]: return json.loads(TABLE.read_text(encoding='utf-8')) if TABLE.exists() else {}


def over(found: dict[str, float], rows: dict[str, float]) -> list[str]:
    "A sentence for each row that takes far longer than its budget; what has no row yet may take four minutes."
    limits = {name: 6 * rows[name] + 90 if name in rows else 240 for name in found}
    return [f'{name} took {seconds:.1f} s of the processor, more than {limits[name]:.1f}: make it lighter, or run  python -m pytest '
            '--write-durations'
            for name, seconds in sorted(found.items()) if seconds > limits[name]]


def longest_first(items: list, rows: dict[str, float]) -> list:
    "The tests in their order, but the files and notebooks that take longest at the front: two workers then end at about the same time."
    return sorted(items, key=lambda item: (-rows.get(row(item.nodeid), 0), row(item.nodeid)))


class ByRow(LoadFileScheduling):
    "A file is the work of one worker, for the sake of its fixtures; of the notebooks each is a work of its own."
    def _split_scope(self, nodeid: str) -> str: return row(nodeid)


class Durations:
    "The plugin: measures in the processes that run tests, adds up in the one that reports."
    def __init__(self, config: pytest.Config):
        self.config, self.found, self.last = config, {}, spent()
        self.worker = hasattr(config, 'workerinput')

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list):
        if self.worker: items[:] = longest_first(items, table())

    def pytest_collection_finish(self, session: pytest.Session):
        """In a run of the whole suite, every worker imports once what is heavy, so that no file pays for the others. What is loaded by now
        stays until the end: the collector need not look through a million objects each time that a training or statsmodels asks it to."""
        for name in HEAVY if self.worker and len(session.items) > MANY else ():
            with suppress(ImportError): import_module(name)
        gc.collect()
        gc.freeze()

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log):
        if config.option.dist == 'loadfile':
            config.option.loadscopereorder = False      # the order is that of `longest_first`
            return ByRow(config, log)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self):
        self.last = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report, now = (yield), spent()
        report.cpu, self.last = now - self.last, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport):
        name = row(report.nodeid)
        self.found[name] = self.found.get(name, 0) + getattr(report, 'cpu', 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session):
        "Writes the table, or fails a run whose files have outgrown it."
        result = yield
        if self.worker: return result
        if self.config.option.write_durations: write(self.found, whole='not release' in self.config.option.markexpr)
        self.faults = over(self.found, table()) if self.config.option.check_durations else []
        if self.faults and session.exitstatus == pytest.ExitCode.OK: session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result

    def pytest_terminal_summary(self, terminalreporter):
        total = sum(self.found.values())
        if total > 30: terminalreporter.write_line(f'{total:.0f} s of the processor for {len(self.found)} files and notebooks')
        for fault in getattr(self, 'faults', ()): terminalreporter.write_line(f'too slow: {fault}', red=True)


def write(found: dict[str, float], whole: bool = True):
    """Puts these rows into the table, those of a run that is not `whole` where they are larger; rows of files and notebooks that are
    gone go."""
    root, old = TABLE.parent.parent, table()
    new = found if whole else {name: max(seconds, old.get(name, 0)) for name, seconds in found.items()}
    rows = {name: round(seconds, 1) for name, seconds in (old | new).items() if (root/name).exists()}
    TABLE.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + '\n', encoding='utf-8')
