"""How long does `cpqa ask` take as a new process on the demo library, with an empty cache and with a filled one, where does the time go,
and how long does the install take?

    python benchmarks/cold_start.py [--runs 10] [--installs 1]

With an empty cache the demo library is built first; both cases use caches of their own, never the user's, and come in turns.
The reference, in the same turns: a new process that only imports sentence_transformers.
An install is `pip install ".[offline]"`, with the versions of constraints.txt, into a new environment and without pip's cache, so it holds
the time of the downloads; `cpqa ask` must then answer there. All files are in the system's page cache, but for those that an install has
just written.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from common import ROOT, quantiles, save

QUESTION = 'Is tisagenlecleucel effective for B-cell lymphoma?'
CPQA = Path(sys.executable).parent / 'cpqa'


def timed(*command, cache: str | Path = '') -> tuple[float, str]:
    env = {**os.environ, 'CPQA_CACHE': str(cache)} if cache else None
    start = time.perf_counter()
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env=env).stdout
    return (time.perf_counter() - start) * 1000, out


class Asked:
    "The times of `cpqa ask`, and of its stages."
    def __init__(self): self.ms, self.stages = [], {}

    def ask(self, cache: str | Path):
        ms, out = timed(CPQA, 'ask', QUESTION, '--json', cache=cache)
        answer = json.loads(out)
        if answer['abstained'] or not answer['citations']:
            raise SystemExit('cpqa ask gave no answer with citations: there is nothing to time')
        self.ms.append(ms)
        for name, value in answer['timings_ms'].items(): self.stages.setdefault(name, []).append(value)

    def told(self) -> dict:
        return {'total': quantiles(self.ms), 'most': round(max(self.ms), 2),
                'stages': {name: quantiles(ms) for name, ms in self.stages.items()}}


def size_mb(folder: Path) -> int: return round(sum(f.stat().st_size for f in folder.rglob('*') if f.is_file() and not f.is_symlink()) / 1e6)


def install() -> dict:
    "Seconds and megabytes of an install, and the milliseconds of the first question after it."
    with tempfile.TemporaryDirectory() as folder:
        env = Path(folder) / 'env'
        venv.create(env, with_pip=True)
        bare, python = size_mb(env), env / 'bin' / 'python'
        ms, _ = timed(python, '-m', 'pip', 'install', '--quiet', '--no-cache-dir', '-c', ROOT / 'constraints.txt', f'{ROOT}[offline]')
        packages = json.loads(timed(python, '-m', 'pip', 'list', '--format', 'json')[1])
        first, _ = timed(env / 'bin' / 'cpqa', 'ask', QUESTION, cache=Path(folder) / 'cache')
        return {'seconds': round(ms / 1000, 1), 'mb': size_mb(env) - bare, 'packages': len(packages), 'first_question_ms': round(first, 1)}


def main(runs: int, installs: int):
    empty, filled, reference, imports = Asked(), Asked(), [], []
    with tempfile.TemporaryDirectory() as kept:
        timed(CPQA, 'ask', QUESTION, cache=kept)   # fills it
        for _ in range(runs):
            filled.ask(kept)
            with tempfile.TemporaryDirectory() as new: empty.ask(new)
            imports.append(timed(sys.executable, '-c', 'import cpqa.cli')[0])
            reference.append(timed(sys.executable, '-c', 'import sentence_transformers')[0])
    save('cold_start', {
        'n': runs, 'unit': 'ms', 'cpqa_ask': quantiles(filled.ms), 'of_which_python_and_imports': quantiles(imports),
        'of_which_stages': filled.told()['stages'], 'cpqa_ask_with_an_empty_cache': empty.told(),
        'reference_import_sentence_transformers': quantiles(reference),
        'ratio_reference_to_cpqa_ask_p50': round(quantiles(reference)['p50'] / quantiles(filled.ms)['p50'], 1),
        'installs': [install() for _ in range(installs)]})


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--runs', type=int, default=10)
    p.add_argument('--installs', type=int, default=1)
    a = p.parse_args()
    main(a.runs, a.installs)
