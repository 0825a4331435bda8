"""The GPU benchmark runs from end to end, here on the CPU with a small network, and says what it needs where there is no GPU."""
import json
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.release
SCRIPT = ROOT/'benchmarks'/'cross_encoder_gpu.py'


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_it_runs_on_a_cpu_and_both_ways_agree():
    results = ROOT/'benchmarks'/'results'/'cross_encoder_gpu.json'
    before = results.stat().st_mtime_ns if results.exists() else None
    done = run('--device', 'cpu', '--layers', '1', '--depths', '2,3', '--repeats', '1')
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [(r['texts'], r['depth']) for r in said['rows']] == [('passages', 2), ('passages', 3), ('full', 2), ('full', 3)]
    assert all(r['spearman'] == 1 and r['ours']['s'] > 0 and r['times_faster'] > 0 for r in said['rows'])
    assert 'random weights' in said['model'] and said['precision'] == {'ours': 'fp32', 'published': 'fp32'}
    assert (results.stat().st_mtime_ns if results.exists() else None) == before   # a run on a CPU is no result


def test_without_a_gpu_it_says_what_it_needs():
    torch = pytest.importorskip('torch')
    if torch.cuda.is_available(): pytest.skip('there is a GPU here')
    done = run()
    assert done.returncode == 1 and 'needs a GPU' in done.stderr and 'Traceback' not in done.stderr


def test_the_encoding_runs_on_a_cpu_and_sixteen_bits_agree():
    small = ['--device', 'cpu', '--layers', '1', '--texts', '8', '--repeats', '1']
    script = SCRIPT.with_name('encoding_gpu.py')
    done = subprocess.run([sys.executable, script, *small], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)['rows']
    assert [(r['texts'], r['precision']) for r in rows] == [(t, p) for p in ('fp32', 'bf16') for t in ('questions', 'passages')]
    assert all(r['least_cosine_with_fp32'] > .99 and r['texts_a_second'] > 0 for r in rows)
