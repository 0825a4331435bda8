"""Makes the danger network that comes with cpqa: a head on the encoder's first layers, from phrases of our own.

    python benchmarks/train_danger.py [--out DIR] [--epochs N]   (the head, into the package, and benchmarks/results/danger.json)
    python benchmarks/train_danger.py --bars FILE                (only its bars, from what --keep FILE wrote)
    python benchmarks/danger.py test FILE.jsonl ...              (phrases of somebody else, with what is in the package)

It learns from benchmarks/labels/danger.tsv and danger_roundabout.tsv, written by sessions of a language model as patients, carers and
bad spellers may write (half of them with drugs and relatives exchanged and letters mistyped, most with harmless sentences around
them), from phrases made of templates, and from harmless text of others, which is read where it lies: half of MeQSum's messages,
LiveQA's, part of the questions of the test sets; and our own patients' questions. A network of each of two folds reads what it did not
learn from; the bars are set so that few of the real messages and patients' questions alarm there that call for no help
(benchmarks/labels/meqsum_danger.tsv, liveqa_danger.tsv and patient_danger.tsv name those that do, as somebody read them who knew no
result; they are learnt as what they are).
"""
import argparse
import csv
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from common import ROOT
from danger import asked, half, made, messages, real_messages, report, row, table, varied
from heads import Head, Trunk, outputs, trained
from msgspec.structs import replace
from scipy.special import softmax

from cpqa.answering.danger_network import DANGERS, READS_AT, message_windows, prepare_danger
from cpqa.answering.safety import group_chances
from cpqa.passages.cross_encoders import TokenPair
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder, minilm_folder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, load_network, read_card, write_card
from cpqa.training.recipe import made_with

FOLDS, LAYERS, TOKENS = 2, 2, 96
EVERY = 3          # of so many phrases made from templates one is read
ALLOWED = (8, 14)   # messages and questions, of some 1,700 that call for no help, that may alarm when left out, by either group
LIMITS = ('It is no triage: it misses some of those in danger, and nobody should wait for it.',
          'It learnt from phrases that sessions of a language model wrote, in English.')


def among(kind: str, text: str, beside: list[str], r: random.Random) -> str:
    "The text, in most cases with a few harmless sentences before or behind it, as long as one window holds all."
    said = ' '.join(text.split())
    for _ in range(r.choice((0, 1, 1, 2, 3)) if kind != 'none' or r.random() < .3 else 0):
        other = r.choice(beside)
        if len(said.split()) + len(other.split()) > 48: break
        said = f'{said}{"" if said[-1:] in ".?!" else "."} {other}' if r.random() < .5 else f'{other} {said}'
    return said


def phrases() -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    "Our own, real messages, and other texts, each (kind, text)."
    own, alike = [(kind, text) for name in ('danger', 'danger_roundabout') for kind, text in table(name)], dict(table('patient_danger'))
    with open(ROOT / 'benchmarks' / 'labels' / 'patient_questions.tsv', encoding='utf-8') as f:
        patients = [(alike.get(r['id'], 'none'), r['question']) for r in csv.DictReader(f, delimiter='\t') if r['part'] == 'fit']
    return own, real_messages() + patients, [*[('none', t) for t in asked(1, 12)], *dict.fromkeys(made(random.Random(0))[::EVERY])]


def decided(out: np.ndarray, own: list, real: list) -> tuple[tuple[float, ...], dict, tuple[Measured, ...]]:
    "The bars, and what alarms of what was left out in turn, from its chances, shape (texts, 2): our own, then real messages, then others."
    kinds, wrong = np.array([kind for kind, _ in own]), np.array([kind == 'none' for kind, _ in real])
    mine, there = out[:len(own)], out[len(own):len(own) + len(real)]
    bars = tuple(round(float(np.sort(there[wrong, j])[-1 - ALLOWED[j]]) + 1e-4, 4) for j in (0, 1))
    alarms = lambda some: list((some >= np.array(bars)).any(1))
    left = {kind: row(alarms(mine[kinds == kind])) for kind in DANGERS}
    left |= {'none, real messages': row(alarms(there[wrong])), 'real messages that call for help': row(alarms(there[~wrong]))}
    return bars, left, tuple(Measured(f'alarms, {kind}, left out in turn', f['found'] / f['n'], f['n'], *f['interval'])
                             for kind, f in left.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'danger')
    parser.add_argument('--keep', type=Path, help='a file for the chances of what was left out in turn')
    parser.add_argument('--bars', type=Path, help='such a file: only the bars are set anew')
    parser.add_argument('--epochs', type=int, default=3)
    args, began, r = parser.parse_args(), time.time(), random.Random(0)
    own, real, other = phrases()
    if args.bars:
        bars, left, figures = decided(np.load(args.bars)['out'], own, real)
        card = read_card(args.out, 'danger')
        write_card(args.out, replace(card, bars=bars, about=replace(card.about, figures=figures)))
        return report(left, None, len(own), [*bars])
    rows, trunk, tokenizer = own + real + other, Trunk('bi-encoder', READS_AT), EmbeddedEncoder().tokenizer
    tokenizer.no_padding()
    tokens = lambda windows: [TokenPair(ids, [0] * len(ids)) for e in tokenizer.encode_batch(windows) for ids in (e.ids[:TOKENS],)]
    layers = load_network('AutoModel', minilm_folder(), ('pooler',), add_pooling_layer=False)[0].encoder.layer[-LAYERS:]
    harmless = [' '.join(text.split()) for kind, text in real + own if kind == 'none']
    beside = [s for text in harmless for s in re.split(r'(?<=[.?!])\s+', text) if 3 < len(s.split()) < 20]
    read = lambda change: [(i, w) for i, (kind, text) in enumerate(rows) for w in message_windows(change(kind, text))]
    mixed = read(lambda kind, t: among(kind, varied(t, r) if r.random() < .5 else t, beside, r))
    plain = read(lambda kind, t: t)
    numbers, learnt = trunk.read(tokens([w for _, w in plain])), trunk.read(tokens([w for _, w in mixed]))
    at, at_learnt = np.array([i for i, _ in plain]), np.array([i for i, _ in mixed])
    kinds, folds = np.array([DANGERS.index(kind) for kind, _ in rows]), np.array([half(text + "fold") for _, text in rows])
    print(f'{time.process_time():6.0f} s  {len(learnt):,} windows of {len(rows):,} texts', file=sys.stderr, flush=True)
    def fit(keep: np.ndarray, told: str) -> Head:
        chosen = np.flatnonzero(keep[at_learnt])
        wanted = torch.tensor(kinds[at_learnt[chosen]])
        loss = lambda said, part: torch.nn.functional.cross_entropy(said, wanted[part], label_smoothing=.03)
        return trained(Head(layers, len(DANGERS)), [learnt[i] for i in chosen], loss, args.epochs, told)
    p = np.zeros((len(at), len(DANGERS)))
    for k in range(FOLDS):
        head, rest = fit(folds != k, f'fold {k + 1}'), np.flatnonzero(folds[at] == k)
        p[rest] = softmax(outputs(head, [numbers[j] for j in rest]), 1)
    out = np.array([[chance for chance, _ in group_chances(p[at == i], text)] for i, (_, text) in enumerate(rows)])
    if args.keep: np.savez(args.keep, out=out)
    bars, left, figures = decided(out, own, real)
    used = (DataUsed('phrases of our own', 'Apache-2.0', len(own), 'written by sessions of a language model'),
            DataUsed('MeQSum, LiveQA, BioASQ, PubMedQA, MedQuAD, our patients\' questions, templates', '', len(rows) - len(own),
                     'harmless but for the templates; read where they lie'))
    left_out = (f'{len(messages(1)):,} messages of MeQSum: for measuring',)
    command = ' '.join(['python', 'benchmarks/train_danger.py', *sys.argv[1:]])
    about = About(f'the encoder of cpqa and {MINILM}', 'Apache-2.0', 'Apache-2.0', used, left_out, figures, made_with(), command, LIMITS)
    prepare_danger(fit(np.ones(len(rows), bool), 'all'), tokenizer, args.out, bars, about=about)
    report(left, round(time.time() - began), len(own), [*bars])


if __name__ == '__main__': main()
