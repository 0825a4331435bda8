"""Makes the danger network that comes with cpqa: a head on the encoder's first layers, from phrases of our own.

    python benchmarks/train_danger.py examples DIR               what is learnt from, as tokens (two minutes)
    python benchmarks/teach_danger.py DIR --out TAUGHT           on a GPU, where there is one
    python benchmarks/train_danger.py ship TAUGHT [--out DIR]    the head, into the package, and benchmarks/results/danger.json
    python benchmarks/danger.py test FILE.jsonl ...              phrases of somebody else, with what is in the package

It learns from benchmarks/labels/danger.tsv and danger_roundabout.tsv, written by sessions of a language model as patients, carers and
bad spellers may write (half of them with drugs and relatives exchanged and letters mistyped, most with harmless sentences around
them), from long messages with a danger in one sentence or in none (danger_stories.tsv, and the stories of paper_questions.tsv, which
somebody read for it), from phrases made of templates, and from harmless text of others, which is read where it lies: half of MeQSum's
messages, LiveQA's, part of the questions of the test sets; and our own patients' questions. A network of each of two folds reads what it
did not learn from; the bars are set so that few of the real messages and patients' questions alarm there that call for no help
(benchmarks/labels/meqsum_danger.tsv, liveqa_danger.tsv and patient_danger.tsv name those that do, as somebody read them who knew no
result; they are learnt as what they are).
The last 600 lines of danger_stories.tsv are of November 29: 220 calm ones in a dark tone, and 260 that sound alarming by a word (shaking
for fear, aches, a last pint) beside 120 dangers told quietly in the same words. They came after the network in the package, which has not
learnt from them.
"""
import argparse
import csv
import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import torch
from common import ROOT
from danger import asked, half, made, messages, real_messages, report, row, table, varied
from heads import Head, all_layers, own_layers
from scipy.special import softmax

from cpqa.answering.danger_network import DANGERS, message_windows, prepare_head
from cpqa.answering.safety import group_chances
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder, minilm_folder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, load_network
from cpqa.training.recipe import made_with

FROZEN, TOKENS = 2, 96
EVERY = 3          # of so many phrases made from templates one is read
ALLOWED = (5, 14)   # messages and questions, of some 2,800 that call for no help, that may alarm when left out, by either group
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
    own = [(kind, text) for name in ('danger', 'danger_roundabout', 'danger_stories') for kind, text in table(name)]
    alike = dict(table('patient_danger'))
    with open(ROOT / 'benchmarks' / 'labels' / 'patient_questions.tsv', encoding='utf-8') as f:
        patients = [(alike.get(r['id'], 'none'), r['question']) for r in csv.DictReader(f, delimiter='\t') if r['part'] == 'fit']
    with open(ROOT / 'benchmarks' / 'labels' / 'paper_questions.tsv', encoding='utf-8') as f:
        stories = [r['question'] for r in csv.DictReader(f, delimiter='\t') if r['style'] == 'story']
    known = {text for _, text in own}   # those stories that are not calm are among our own
    patients += [('none', text) for text in stories if text not in known]
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


def examples(out: Path):
    "Windows of all texts, half of them varied and among harmless sentences, others as they are, and the layers to start from."
    r, rows = random.Random(0), [text for some in phrases() for text in some]
    own, real, _ = phrases()
    tokenizer = EmbeddedEncoder().tokenizer
    tokenizer.no_padding()
    harmless = [' '.join(text.split()) for kind, text in real + own if kind == 'none']
    beside = [s for text in harmless for s in re.split(r'(?<=[.?!])\s+', text) if 3 < len(s.split()) < 20]
    read = lambda change: [(i, w) for i, (kind, text) in enumerate(rows) for w in message_windows(change(kind, text))]
    mixed = read(lambda kind, t: among(kind, varied(t, r) if r.random() < .5 else t, beside, r))
    tokens = lambda windows: [(i, e.ids[:TOKENS]) for (i, _), e in zip(windows, tokenizer.encode_batch([w for _, w in windows]))]
    said = {'mixed': tokens(mixed), 'plain': tokens(read(lambda kind, t: t)), 'kinds': [DANGERS.index(kind) for kind, _ in rows],
            'folds': [half(text + 'fold') for _, text in rows]}
    out.mkdir(parents=True, exist_ok=True)
    (out / 'examples.json').write_text(json.dumps(said))
    layers = load_network('AutoModel', minilm_folder(), ('pooler',), add_pooling_layer=False)[0].state_dict()
    above = {name: w for name, w in layers.items() if name.startswith('encoder.') and int(name.split('.')[2]) >= FROZEN}
    torch.save({name: w.half() for name, w in (all_layers('bi-encoder') | above).items()}, out / 'trunk.pt')
    tokenizer.save(str(out / 'tokenizer.json'))
    (out / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'BertTokenizerFast', 'model_max_length': 512}))
    print(f'{len(mixed):,} windows of {len(rows):,} texts')


def ship(taught: Path, out: Path):
    own, real, other = phrases()
    rows, left_out = own + real + other, np.load(taught / 'left.npz')
    at, p = np.array([i for i, (_, text) in enumerate(rows) for _ in message_windows(text)]), softmax(left_out['logits'], 1)
    chances = np.array([[c for c, _ in group_chances(p[at == i], text)] for i, (_, text) in enumerate(rows)])
    bars, left, figures = decided(chances, own, real)
    state = torch.load(taught / 'head.pt', map_location='cpu', weights_only=True)
    head = Head(own_layers('bi-encoder', FROZEN), len(DANGERS))
    place = lambda name: name.removeprefix('bert.encoder.layer.').partition('.')
    head.layers.load_state_dict({f'{int(n) - FROZEN}.{rest}': w.float() for name, w in state.items() if name.startswith('bert')
                                 for n, _, rest in [place(name)]})
    head.head.load_state_dict({name.removeprefix('head.'): w.float() for name, w in state.items() if name.startswith('head.')})
    used = (DataUsed('phrases of our own', 'Apache-2.0', len(own), 'written by sessions of a language model'),
            DataUsed('MeQSum, LiveQA, BioASQ, PubMedQA, MedQuAD, our patients\' questions, templates', '', len(rows) - len(own),
                     'harmless but for the templates; read where they lie'))
    command = ' '.join(['python', 'benchmarks/train_danger.py', *sys.argv[1:]])
    about = About(f'the encoder of cpqa and {MINILM}', 'Apache-2.0', 'Apache-2.0', used,
                  (f'{len(messages(1)):,} messages of MeQSum: for measuring',), figures, made_with(), command, LIMITS)
    tokenizer = EmbeddedEncoder().tokenizer
    tokenizer.no_padding()
    prepare_head(head.eval(), tokenizer, out, 'danger', FROZEN, bars, about=about)
    report(left, int(left_out['seconds']), len(own), [*bars])
    print(f"taught on {left_out['device']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=('examples', 'ship'))
    parser.add_argument('folder', type=Path)
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'danger')
    a = parser.parse_args()
    if a.what == 'examples': examples(a.folder)
    else: ship(a.folder, a.out)


if __name__ == '__main__': main()
