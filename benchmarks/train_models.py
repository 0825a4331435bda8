"""Makes the two models that come with cpqa from data on disk, by the recipes in cpqa.training.recipe.

    python benchmarks/train_models.py --data ../shared/data --out DIR [--kind bi-encoder|cross-encoder|both] [--bi DIR]
        [--steps N] [--questions N] [--documents N] [--bi-knobs JSON] [--cross-knobs JSON]

DIR gets bi-encoder and cross-encoder, the finished models with their cards; work, with everything on the way; and made.json, which says
what was done: recipes, numbers of groups, curves, seconds of each stage, machine, versions. A run that was stopped goes on where it stood
when it is called again. `--bi` is a trained bi-encoder (a folder of sentence-transformers, such as DIR/work/bi-encoder), for the
cross-encoder alone. `--steps`, `--questions` and `--documents` cut everything short, to see whether it works. The knobs are settings in the
place of those of the recipes.
"""
import argparse
import json
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path

from common import DATA, cpu
from msgspec.structs import replace

from cpqa.core.errors import CpqaError
from cpqa.training.recipe import BI_ENCODER, CROSS_ENCODER, made_with, make_models


def lines(every: float = 10.0):
    "Prints the stage, how far it is and the seconds since the start: when a stage begins or ends, and every so many seconds."
    start, last = time.time(), {'stage': None, 'at': 0.0}

    def progress(stage, done, total):
        now = time.time()
        if stage == last['stage'] and now - last['at'] < every and done != total: return
        last.update(stage=stage, at=now)
        print(f'{now - start:7.0f} s  {stage}' + (f'  {done:,} of {total:,}' if total else ''), flush=True)
    return progress


def cut(recipe, args, knobs):
    "The recipe with what the command line says in its place."
    recipe = recipe.with_knobs(**json.loads(knobs), **({'max_steps': args.steps} if args.steps else {}))
    return (
        replace(recipe, most={s: min(args.questions, recipe.most.get(s, args.questions)) for s in recipe.sources})
        if args.questions
        else recipe
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--data', type=Path, default=DATA)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--kind', choices=('bi-encoder', 'cross-encoder', 'both'), default='both')
    parser.add_argument('--bi', type=Path, help='a trained bi-encoder, with --kind cross-encoder')
    parser.add_argument('--steps', type=int, default=0)
    parser.add_argument('--questions', type=int, default=0, help='of each source, at most')
    parser.add_argument('--documents', type=int, default=0, help='of the corpus, at most')
    parser.add_argument('--bi-knobs', default='{}')
    parser.add_argument('--cross-knobs', default='{}')
    args = parser.parse_args()
    bi = cut(BI_ENCODER, args, args.bi_knobs) if args.kind != 'cross-encoder' else None
    cross = cut(CROSS_ENCODER, args, args.cross_knobs) if args.kind != 'bi-encoder' else None
    if args.bi and bi: parser.error('--bi is for --kind cross-encoder')
    command = ' '.join(['python', 'benchmarks/train_models.py', *sys.argv[1:]])
    try: made = make_models(args.data, args.out, bi, cross, lines(), args.bi, documents=args.documents, command=command)
    except CpqaError as e: sys.exit(f'train_models: {e}')
    file = args.out / 'made.json'
    before = json.loads(file.read_text())['models'] if file.is_file() else {}   # of the other kind, made by another call
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    file.write_text(json.dumps({
        'command': command, 'date': date.today().isoformat(),
        'machine': {'cpu': cpu(), 'cores': cores, 'python': platform.python_version()}, 'versions': made_with(),
        'seconds': json.loads((args.out / 'work' / 'seconds.json').read_text()),
        'models': before | {m.recipe.kind: m.to_dict() | {'settings': m.recipe.settings.to_dict()} for m in made}}, indent=1) + '\n')
    for m in made: print(f'{m.folder}: {m.trained.steps:,} steps, {m.trained.rows:,} rows, groups {m.gathered.kept}')
    print(f'{file} says what was done')


if __name__ == '__main__': main()
