"""What do vectors cost at the size of the paper: exact L2, as in Stuhlmann et al., against the forms that a library keeps?

    python benchmarks/vectors_scale.py FOLDER                              # up to a million; writes results/vectors_scale.json
    python benchmarks/vectors_scale.py FOLDER --add --sizes 100000 --forms sq8      # without lists, which take longest to build
    python benchmarks/vectors_scale.py FOLDER --add --sizes 2400000        # rows of other sizes stay; 16 GB of disk, 9 of memory

Vectors of 768 numbers and length 1, made here: 5,000 middles of unequal sizes (the largest has some hundred times the median's), and
around each the same falling spectrum, so that of 768 directions few count, as in what encoders give. A question is a vector farther from
its document than documents of one middle are from each other: so far that among as many vectors as benchmarks/vectors_fit.py has, in as
many lists, it finds about what real questions find there (`like_real` sets both side by side). FOLDER keeps what was made and built.

Each form is searched in a process of its own, on one thread, one question at a time, after twenty others: milliseconds by the clock and by
the processor, on a busy machine the second is what counts; memory as the system counts it, and what of it is the process's own (the rest
are mapped files, which the system takes back when it needs them); recall@10 against exact L2 over all questions, with its 95 % interval.
`pq` is searched with more and more lists; `reached` is the quickest of these that finds .95 and .99. 36 million vectors are not built:
`at_36_million` is computed from the largest two sizes that have `pq`, by what its function says.
"""
import argparse
import json
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, interval, peak_mb, quantiles, save

from cpqa.core.errors import require
from cpqa.retrieval.vector_forms import StoredVectors, bytes_read, filled_lists, form_for, write_form

DIM, MIDDLES, BLOCK, K, WARM = 768, 5_000, 50_000, 10, 20
PROBES, LIKE = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1_280), 21_155   # LIKE: as many as vectors_fit.py has
PARTS = (5 / 82, 5 / 36, .25, .5, 1)   # of the lists: as the benchmark's first, as the rule at 36 million vectors, and more
SPREAD, AWAY, FALL = .6, 2.5, .5   # of a document from its middle, of a question from its document; how the spectrum falls


class Made:
    "Documents block by block, and questions near some of them; the same ones for the same numbers."

    def __init__(self):
        rng = np.random.default_rng(0)
        scale = np.arange(1, DIM + 1) ** -FALL
        self.scale = (scale / np.linalg.norm(scale)).astype(np.float32)   # so that what is drawn with it has length 1, about
        self.turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0].astype(np.float32)
        self.middles = self.drawn(rng, MIDDLES)
        share = rng.lognormal(0, 1.5, MIDDLES)
        self.shares = share / share.sum()

    def drawn(self, rng: np.random.Generator, n: int) -> np.ndarray: return rng.standard_normal((n, DIM), dtype=np.float32) * self.scale

    def block(self, start: int, size: int, asked: int = 0) -> np.ndarray:
        "The documents from `start` on; or questions near so many of them, evenly taken."
        rng = np.random.default_rng((1, start))
        own = self.middles[rng.choice(MIDDLES, size, p=self.shares)] + SPREAD * self.drawn(rng, size)
        if asked:
            own = own[np.linspace(0, size - 1, asked).astype(int)]
            own = own + AWAY * SPREAD * self.drawn(np.random.default_rng(2), asked)
        return (own / np.linalg.norm(own, axis=1, keepdims=True)) @ self.turn


def make(folder: Path, n: int, asked: int):
    "Writes so many vectors, and questions near those of the first block."
    made = Made()
    out = np.lib.format.open_memmap(folder / 'vectors.npy', 'w+', np.float32, (n, DIM))
    for start in range(0, n, BLOCK): out[start:start + BLOCK] = made.block(start, min(BLOCK, n - start))
    out.flush()
    np.save(folder / 'asked.npy', made.block(0, min(BLOCK, n), asked + WARM))


def now() -> np.ndarray: return np.array([time.perf_counter(), time.process_time()])


def build(folder: Path, form: str) -> dict:
    "What `write_form` takes; with all cores, as a library is built."
    into, vectors = folder / form, np.load(folder / 'vectors.npy', mmap_mode='r')
    into.mkdir(exist_ok=True)
    began = now()
    write_form(into, vectors, form)
    took = now() - began
    return {'build_s': round(float(took[0]), 1), 'build_cpu_s': round(float(took[1]), 1), 'build_peak_mb': peak_mb(resource.RUSAGE_SELF),
            'bytes': {p.name: p.stat().st_size for p in into.iterdir()}}


def resident() -> dict:
    "The memory of this process in MB, and what of it is its own and not a mapped file."
    said = dict(line.split(':', 1) for line in Path('/proc/self/status').read_text().splitlines())
    return {name: int(said[key].split()[0]) // 1024 for name, key in (('rss_mb', 'VmRSS'), ('own_mb', 'RssAnon'))}


def search(folder: Path, form: str, probes: int | None) -> dict:
    "Every question of a folder asked of a form, on one thread: times, memory, and the rows found."
    faiss: Any = require('faiss', 'offline')
    faiss.omp_set_num_threads(1)
    asked, before, out = np.load(folder / 'asked.npy'), resident()['rss_mb'], {}
    if form == 'l2':
        index, began = faiss.IndexFlatL2(DIM), now()
        vectors = np.load(folder / 'vectors.npy', mmap_mode='r')
        for start in range(0, len(vectors), BLOCK): index.add(np.array(vectors[start:start + BLOCK]))
        took = now() - began
        out = {'build_s': round(float(took[0]), 1), 'build_cpu_s': round(float(took[1]), 1), 'bytes': {'': vectors.size * 4}}
        del vectors
        ask = index.search
    else:
        stored = StoredVectors(folder / form, probes)
        ask = stored.nearest
        if form == 'pq': out = {'lists': stored.lists.nlist, 'lists_looked_into': stored.probes}
    rows, times = [], []
    for q in asked:
        began = now()
        rows.append(ask(q[None], K)[1][0].tolist())
        times.append(1000 * (now() - began))
    ms, cpu_ms = np.array(times[WARM:]).T
    return out | {'date': date.today().isoformat(), 'ms': quantiles(ms), 'cpu_ms': quantiles(cpu_ms), **resident(), 'before_mb': before,
                  'found': rows[WARM:]}


def lists_alone(folder: Path) -> list[dict]:
    "What parts of the lists find without short codes, in eight bits: the part that the rule opens at 36 million among them."
    faiss: Any = require('faiss', 'offline')
    faiss.omp_set_num_threads(1)
    index, asked = filled_lists(np.load(folder / 'vectors.npy', mmap_mode='r'), 'sq8'), np.load(folder / 'asked.npy')[WARM:]
    right, out = alone(search, folder, 'l2', None)['found'], []
    for part in PARTS:
        probes = max(1, round(part * index.nlist))
        found = index.search(asked, K, params=faiss.SearchParametersIVF(nprobe=probes))[1]
        shares = np.array([len({*a} & {*b}) / K for a, b in zip(found.tolist(), right)])
        out.append({'vectors': index.ntotal, 'lists': index.nlist, 'lists_looked_into': probes, 'part': part, 'n': len(asked),
                    'recall@10': {'mean': round(float(shares.mean()), 4), 'interval': interval(shares)}})
    return out


def alone(work: Any, folder: Path, *given: Any) -> Any:
    "What a function gives in a process of its own; kept in the folder, so that a run that was cut off goes on."
    file = folder / f"{'-'.join(map(str, (work.__name__, *given)))}.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        os.environ['OMP_NUM_THREADS'] = '1' if work is not build else str(os.cpu_count())   # of NumPy too: read when it is imported
        with ProcessPoolExecutor(1, mp_context=get_context('spawn')) as pool: got = pool.submit(work, folder, *given).result()
        file.write_text(json.dumps(got))
    return json.loads(file.read_text())


def size_rows(folder: Path, n: int, asked: int, forms: list[str]) -> list[dict]:
    "The rows of a size: exact L2, eight bits, and lists of which more and more are looked into."
    alone(make, folder, n, asked)
    exact = alone(search, folder, 'l2', None)
    right, rows = exact['found'], []
    def add(form: str, got: dict, built: dict):
        shares = np.array([len({*a} & {*b}) / K for a, b in zip(got.pop('found'), right)])
        rows.append({'vectors': n, 'form': form, 'n': len(right), **built, **got,
                     'recall@10': {'mean': round(float(shares.mean()), 4), 'interval': interval(shares)}})
        print(json.dumps(rows[-1]), flush=True)
    add('exact L2', exact, {})
    for form in forms:
        built = alone(build, folder, form)
        lists = min(4096, n // 256)
        for probes in [None] if form == 'sq8' else [p for p in PROBES if p < lists] + [lists // 2, None]:
            add(form, alone(search, folder, form, probes), built)
    return rows


def reached(rows: list[dict]) -> list[dict]:
    "For each size and recall, the quickest form that finds as many, how many times quicker than exact L2, and its part of the memory."
    out = []
    for n in sorted({r['vectors'] for r in rows}):
        exact, *others = [r for r in rows if r['vectors'] == n]
        for wanted in (.95, .99):
            for form in ('sq8', 'pq'):
                found = [r for r in others if r['form'] == form and r['recall@10']['mean'] >= wanted]
                r = min(found, key=lambda r: r['cpu_ms']['p50'], default=None)
                out.append({'vectors': n, 'recall@10': wanted, 'form': form} | ({} if r is None else {
                    'lists_looked_into': r.get('lists_looked_into'), 'found': r['recall@10'], 'cpu_ms': r['cpu_ms']['p50'],
                    'times_quicker': round(exact['cpu_ms']['p50'] / r['cpu_ms']['p50'], 1),
                    'part_of_memory': round(r['rss_mb'] / exact['rss_mb'], 3),
                    'part_of_memory_of_its_own': round(r['own_mb'] / exact['rss_mb'], 3)}))
    return out


def extrapolated(rows: list[dict], vectors: int = 36_000_000, codes: int = 5_000_000) -> dict:
    """What so many vectors would take, not measured: bytes by the form's own count; time by a line through the times of the largest size
    over the codes compared; recall as that size has it where as large a part of its lists is looked into, less what all lists
    lose from the size before to it, for each tenfold."""
    *_, before, last = known = sorted({r['vectors'] for r in rows if r['form'] == 'pq'})
    of = lambda n: [r for r in rows if r['vectors'] == n and r['form'] == 'pq']
    compared = [n * r['lists_looked_into'] / r['lists'] for r in of(last) for n in [last]]
    slope, fixed = np.polyfit(compared, [r['cpu_ms']['p50'] for r in of(last)], 1)
    lists, whole = 4096, lambda n: of(n)[-1]['recall@10']['mean']
    opened = -(-lists * codes // vectors)
    share = np.interp(np.log(opened / lists), np.log([r['lists_looked_into'] / r['lists'] for r in of(last)]),
                      [r['recall@10']['mean'] for r in of(last)])
    lost = max(0.0, whole(before) - whole(last)) / np.log10(last / before) * np.log10(vectors / last)
    return {'vectors': vectors, 'lists': lists, 'lists_looked_into': opened, 'form': form_for(vectors, DIM, 8_000_000_000).to_dict(),
            'gb_a_search_reads': round(bytes_read('pq', vectors, DIM) / 1e9, 2),
            'gb_on_disk_beside': round(bytes_read('sq8', vectors, DIM) / 1e9, 1),
            'cpu_ms': round(float(fixed + slope * opened / lists * vectors), 1), 'recall@10': round(float(share - lost), 3),
            'recall@10_of_that_part_of_the_lists': {n: round(float(np.interp(np.log(opened / lists),
                np.log([r['lists_looked_into'] / r['lists'] for r in of(n)]), [r['recall@10']['mean'] for r in of(n)])), 4)
                for n in known},
            'from': [before, last]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--sizes', default='21155,100000,1000000')
    parser.add_argument('--questions', type=int, default=200)
    parser.add_argument('--forms', default='sq8,pq')
    parser.add_argument('--add', action='store_true', help='keep the rows that the file has of other sizes')
    args, file = parser.parse_args(), RESULTS / 'vectors_scale.json'
    sizes = [int(n) for n in args.sizes.split(',')]
    known = json.loads(file.read_text())['rows'] if args.add and file.is_file() else []
    rows = [r for r in known if r['vectors'] not in sizes]
    for n in sizes: rows += size_rows(args.folder / str(n), n, args.questions, args.forms.split(','))
    listed = {r['vectors'] for r in rows if r['form'] == 'pq'} & {LIKE, 100_000}
    parts = {n: alone(lists_alone, args.folder / str(n)) for n in sorted(listed) if (args.folder / str(n)).exists()}
    rows.sort(key=lambda r: r['vectors'])
    fit = json.loads((RESULTS / 'vectors_fit.json').read_text())['rows']
    real = {r['lists_looked_into']: r['recall']['@10'] for r in fit if 'lists' in r}
    like = [{'lists_looked_into': k, 'real questions': real[k], 'drawn': r['recall@10']} for r in rows
            if r['vectors'] == LIKE and (k := r.get('lists_looked_into')) in real]
    told = {'dim': DIM, 'middles': MIDDLES, 'threads': 1, 'k': K, 'interval': '95 %, bootstrap over questions'}
    if len({r['vectors'] for r in rows if r['form'] == 'pq'}) > 1: told |= {'at_36_million': extrapolated(rows)}
    told |= {'like_real': like, 'lists_alone': [r for some in parts.values() for r in some], 'reached': reached(rows)}
    save('vectors_scale', told | {'rows': rows}, ('cpqa', 'faiss-cpu', 'numpy'))


if __name__ == '__main__': main()
