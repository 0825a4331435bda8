"""How long does `cpqa ask` take as a new process, on the demo library, from the second run on, and where does the time go?

    python benchmarks/cold_start.py [--runs 10]

The reference, in the same run and in turns: a new process that only imports sentence_transformers.
"""
import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from common import quantiles, save

QUESTION = 'Is tisagenlecleucel effective for B-cell lymphoma?'
CPQA = str(Path(sys.executable).parent / 'cpqa')


def timed(*command: str) -> tuple[float, str]:
    start = time.perf_counter()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return (time.perf_counter() - start) * 1000, out


def main(runs: int):
    timed(CPQA, 'ask', QUESTION)   # the first run prepares the model and the demo library
    ours, reference, imports, stages = [], [], [], {}
    for _ in range(runs):
        ms, out = timed(CPQA, 'ask', QUESTION, '--json')
        ours.append(ms)
        for name, value in json.loads(out)['timings_ms'].items(): stages.setdefault(name, []).append(value)
        imports.append(timed(sys.executable, '-c', 'import cpqa.cli')[0])
        reference.append(timed(sys.executable, '-c', 'import sentence_transformers')[0])
    save('cold_start', {
        'n': runs, 'unit': 'ms', 'cpqa_ask': quantiles(ours), 'of_which_python_and_imports': quantiles(imports),
        'of_which_stages': {name: quantiles(ms) for name, ms in stages.items()},
        'reference_import_sentence_transformers': quantiles(reference),
        'ratio_reference_to_cpqa_ask_p50': round(quantiles(reference)['p50'] / quantiles(ours)['p50'], 1)})


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--runs', type=int, default=10)
    main(p.parse_args().runs)
