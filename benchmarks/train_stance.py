"""Makes the stance network that comes with cpqa from data on disk, by the stages in cpqa.training.stance_network.

    python benchmarks/train_stance.py --data ../shared/data --out DIR [--claims FILE] [--steps N] [--sources made,trials,...]
        [--precision w8]

DIR gets stance, the finished network with its card; work, with the training of each stage; and made.json, which says what was done: stages,
numbers of examples, curves, figures on articles and claims that were set aside, seconds of each stage, machine, versions. A run that was
stopped goes on where it stood when it is called again. The claims are benchmarks/labels/claims.tsv: places in documents of the data, with
claims in words of their own. `--steps` and `--sources` cut everything short, to see whether it works.
"""
import argparse
import json
import os
import platform
import sys
from datetime import date
from pathlib import Path

from common import DATA, ROOT, cpu
from msgspec.structs import replace
from train_models import lines

from cpqa.answering.stance import StanceModel, linked, prepare_stance
from cpqa.core.errors import CpqaError
from cpqa.evaluation.datasets import DATASETS
from cpqa.retrieval.encoders import MINILM
from cpqa.retrieval.openvino_models import About, DataUsed
from cpqa.training.recipe import made_with, timed
from cpqa.training.stance_examples import STANCE_SOURCES, stance_epoch, stance_material
from cpqa.training.stance_network import STANCE_STAGES, read_stance, stance_figures, train_stance

MIT = DATASETS['evidence-inference'].licence
USED = {'made': ('made findings and claims', f'arms and outcomes of prompts of Evidence Inference: {MIT}',
                 'sentences of frames, no text of papers'),
        'trials': ('Evidence Inference, half of the articles and 367 further ones', MIT,
                   'marked and other sentences, claims made of the prompts'),
        'yes-no': ('BioASQ, rounds 7 and 8; PubMedQA, four in five of the 500 that are no test',
                   f'{DATASETS["bioasq"].licence}; {DATASETS["pqa-l"].licence}', 'questions, snippets, conclusions'),
        'claims': ('written claims', 'Apache-2.0; the sentences are of abstracts of PubMed, PMC open access and BioASQ',
                   'written by language-model sessions beside sentences, in words of their own'),
        'general': ('ConjNLI, training', 'MIT', 'pairs of general sentences')}
LIMITS = ('It reads one sentence, or a few, beside a question or a claim. It knows nothing of a person and gives no medical advice.',
          'It was trained on English abstracts and trials; other languages and other kinds of text were not tried.',
          'Figures are not compared by it: rules do that.')


def about(stages, material, figures, command: str) -> About:
    "What the card says of the making."
    pairs = {source: sum(trained.pairs.get(source, 0) for _, trained in stages) for source in STANCE_SOURCES}
    data = tuple(DataUsed(name, licence, pairs[s], note) for s, (name, licence, note) in USED.items() if pairs[s])
    left = (*(f'{n:,} {what}' for what, n in material.left_out.items() if n),
            'HealthVer and NLI4CT, which state no licence: to test with alone',
            'BioASQ, rounds 9 and 10, and PubMedQA\'s test half', f'{len({t.article for t in material.dev})} articles, for the figures')
    return About(MINILM, 'Apache-2.0', 'Apache-2.0', data, left, tuple(figures), made_with(), command, LIMITS)


def made(args, command: str) -> dict:
    "Goes through the stages, prepares the network, measures the finished form."
    work, told, start, stages = args.out / 'work', lines(), None, []
    with timed(work, 'reading'): material = stance_material(args.data, args.claims, args.sources)
    for stage in STANCE_STAGES:
        settings = replace(stage.settings, max_steps=args.steps) if args.steps else stage.settings
        with timed(work, stage.name):
            epochs = [stance_epoch(material, stage.mix, 100 * settings.seed + n) for n in range(stage.epochs)]
            trained = train_stance(epochs, work / stage.name, settings, start, linked if stage.marked else None,
                                   lambda what, done, total, name=stage.name: told(f'{name}: {what}', done, total))
        stages.append((replace(stage, settings=settings), trained))
        start = work / stage.name
    network, tokenizer = read_stance(start)
    prepare = lambda figures: prepare_stance(network, tokenizer, args.out / 'stance', args.precision, label='cpqa-stance',
                                             about=about(stages, material, figures, command))
    with timed(work, 'preparing'): prepare(())
    with timed(work, 'figures'): figures = stance_figures(StanceModel(args.out / 'stance').read_pairs, material.dev, material.dev_claims)
    with timed(work, 'preparing'): prepare(figures)
    return {'stages': [stage.to_dict() | {'trained': trained.to_dict()} for stage, trained in stages],
            'left_out': material.left_out, 'figures': [f.to_dict() for f in figures]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--data', type=Path, default=DATA)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--claims', type=Path, default=ROOT / 'benchmarks' / 'labels' / 'claims.tsv')
    parser.add_argument('--steps', type=int, default=0, help='of each stage, at most')
    parser.add_argument('--sources', type=lambda text: tuple(text.split(',')), default=tuple(STANCE_SOURCES))
    parser.add_argument('--precision', default='w8')
    args = parser.parse_args()
    command = ' '.join(['python', 'benchmarks/train_stance.py', *sys.argv[1:]])
    args.out.mkdir(parents=True, exist_ok=True)
    try: result = made(args, command)
    except CpqaError as e: sys.exit(f'train_stance: {e}')
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    (args.out / 'made.json').write_text(json.dumps({
        'command': command, 'date': date.today().isoformat(),
        'machine': {'cpu': cpu(), 'cores': cores, 'python': platform.python_version()}, 'versions': made_with(),
        'seconds': json.loads((args.out / 'work' / 'seconds.json').read_text()), **result}, indent=1) + '\n')
    for f in result['figures']: print(f"{f['what']}: {f['value']:.3f} (n {f['n']})")
    print(f'{args.out / "made.json"} says what was done')


if __name__ == '__main__': main()
