"""What falls when cpqa is attacked? Each part tries many hostile things and counts what held.

    python benchmarks/attack.py                      (all parts, about half an hour on two cores)
    python benchmarks/attack.py servers files        (these parts)
    python benchmarks/attack.py --quick              (some tries of each, a few minutes)
    python benchmarks/attack.py doubling --only answering   (the modules with this in their names)

    doubling   every exported function on text, with hostile texts of growing length: is the time more than tripled as they double?
    patterns   every regular expression, with texts made from its own parts
    servers    a language model and an NCBI that mean no good, and the faults of our own server of E-utilities
    requests   odd requests to `cpqa entrez serve`
    kills      kill -9 while a library is built
    flips      one bit of a library turned
    files      odd files given to `cpqa index build`
    fuzz       mutants through the public readers
    load       memory over 1,000 questions, 8 cold processes, 2,000 requests of 50 clients

Each row says how often was tried, how often cpqa held, the worst seconds and the worst memory of a process, and what fell.
A part that breaks is a row of its own. Everything runs on this machine, and nothing leaves 127.0.0.1.
Results are added to benchmarks/results/attack.json; doubling keeps each module that it has tried whole in results/doubling.jsonl, goes on
where it was stopped, and tries again what has changed since:
rows of parts that are not run stay, those of a quick run are written only with --save.
"""
import argparse
import contextlib
import importlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

PARTS = {'doubling': 'doubling:run', 'patterns': 'patterns:run', 'servers': 'servers:run', 'requests': 'requests:run',
         'kills': 'libraries:run_kills',
         'flips': 'libraries:run_flips', 'files': 'libraries:run_files', 'fuzz': 'fuzz:run', 'load': 'load:run'}


def tallied(part: str, quick: bool, only: str = '', afresh: bool = False) -> list[dict]:
    "The rows of a part; one that breaks is a try that fell."
    from attacks.tally import Tally
    module, _, function = PARTS[part].partition(':')
    rows, start = [], time.monotonic()
    try:
        more: dict = {'only': only} if only and part in ('doubling', 'patterns') else {}
        if afresh and part == 'doubling': more['afresh'] = True
        for t in getattr(importlib.import_module(f'attacks.{module}'), function)(quick, **more):
            rows.append({'part': part, 'quick': quick, **t.row()})
            print(line(rows[-1]), flush=True)
    except Exception as e:
        broken = Tally('the part itself')
        broken.add(part, f'{type(e).__name__}: {e}', time.monotonic() - start)
        rows.append({'part': part, 'quick': quick, **broken.row()})
        print(line(rows[-1]), flush=True)
    return rows


def line(row: dict) -> str:
    "A row as one line, and below it what fell."
    memory = '' if row['worst_memory_mb'] is None else f", {row['worst_memory_mb']:,} MB"
    head = f"{row['part']:9} {row['attack']}: {row['survived']:,} of {row['tries']:,} held; worst {row['worst_seconds']:.2f} s{memory}"
    return '\n'.join([head, *(f'{"":9}   {x}' for x in row.get('fell', []))])


def merged(before: Iterable[dict], now: list[dict]) -> list[dict]:
    "The rows of parts that were run now in the place of those before, in the order of PARTS."
    fresh = {r['part'] for r in now}
    return sorted([*(r for r in before if r['part'] not in fresh), *now], key=lambda r: list(PARTS).index(r['part']))


def kept(rows: list[dict]):
    "Writes the rows, after each part, since a run is long."
    from common import RESULTS, save
    path = RESULTS / 'attack.json'
    before = json.loads(path.read_text(encoding='utf-8'))['rows'] if path.exists() else []
    now = merged(before, rows)
    with contextlib.redirect_stdout(None): save('attack', {'n': sum(r['tries'] for r in now), 'rows': now})


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('parts', nargs='*', help=f'of {", ".join(PARTS)}; all where none is named')
    p.add_argument('--quick', action='store_true', help='a few tries of each; nothing is written')
    p.add_argument('--save', action='store_true', help='write a quick run too')
    p.add_argument('--only', default='', metavar='TEXT', help='of doubling and patterns: the modules with this in their names')
    p.add_argument('--afresh', action='store_true', help='of doubling: modules that were tried before, too')
    args = p.parse_args(argv)
    if wrong := [x for x in args.parts if x not in PARTS]: p.error(f'{wrong[0]} is no part: choose of {", ".join(PARTS)}')
    rows = []
    for part in args.parts or PARTS:
        rows += tallied(part, args.quick, args.only, args.afresh)
        if (args.save or not args.quick) and not args.only: kept(rows)
    return 0 if all(r['survived'] == r['tries'] for r in rows) else 1


if __name__ == '__main__': sys.exit(main())
