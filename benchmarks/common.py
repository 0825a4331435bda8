"What the benchmarks share: where the data is, what machine this is, and how a result is written."
import json
import os
import platform
import random
import resource
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

from cpqa.evaluation.collections import Questions
from cpqa.evaluation.datasets import cmmqa
from cpqa.evaluation.statistics import bootstrap

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get('CPQA_DATA', ROOT.parent / 'shared' / 'data'))
RESULTS = ROOT / 'benchmarks' / 'results'
PACKAGES = ('cpqa', 'tantivy', 'faiss-cpu', 'openvino', 'tokenizers', 'numpy', 'lxml', 'nupunkt')


def cpu() -> str:
    lines = Path('/proc/cpuinfo').read_text().splitlines() if Path('/proc/cpuinfo').exists() else []
    names = [line.split(':', 1)[1].strip() for line in lines if line.startswith('model name')]
    flags = next((line for line in lines if line.startswith('flags')), '')
    units = [u for u in ('avx2', 'avx512f', 'avx512_vnni', 'amx_bf16') if f' {u}' in flags]
    return f'{names[0] if names else platform.processor()} ({", ".join(units)})'


def save(name: str, result: dict, packages: tuple[str, ...] = PACKAGES):
    "Writes `result` with the command, the machine and the versions to benchmarks/results, and prints it."
    result = {'benchmark': name, 'command': ' '.join(['python', *sys.argv]), 'date': date.today().isoformat(),
              'machine': {'cpu': cpu(), 'cores': len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(),
                          'python': platform.python_version()},
              'versions': {p: version(p) for p in packages}, **result}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f'{name}.json').write_text(json.dumps(result, indent=1, ensure_ascii=False) + '\n')
    print(json.dumps(result, indent=1, ensure_ascii=False))


def peak_mb(who: int) -> int:
    "Peak memory of this process or of its children (resource.RUSAGE_...), which macOS counts in bytes and Linux in kilobytes."
    status = Path('/proc/self/status')   # Linux counts a new process' peak from its parent's, but not here
    if who == resource.RUSAGE_SELF and status.exists():
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith('VmHWM'))) // 1024
    return round(resource.getrusage(who).ru_maxrss / (2**20 if sys.platform == 'darwin' else 2**10))


def interval(values) -> list[float]:
    "The 95 % bootstrap interval of the mean of one value a question."
    found = bootstrap(values)
    return [round(found.low, 4), round(found.high, 4)]


def quantiles(ms) -> dict:
    "Median and 95th percentile of some times in milliseconds."
    return {'p50': round(float(np.percentile(ms, 50)), 2), 'p95': round(float(np.percentile(ms, 95)), 2)}


def cancer_questions(questions: Questions, each: int) -> Questions:
    "So many of a set's questions on cancer, with a right answer, drawn with a fixed seed."
    ids = sorted(x.question.id for x in cmmqa([questions]) if x.question.gold)
    return questions.only(random.Random(0).sample(ids, min(each, len(ids))))


def bioasq_questions() -> list[dict]:
    with open(DATA / 'bioasq_beir' / 'queries.jsonl') as f: return [json.loads(line) for line in f]
