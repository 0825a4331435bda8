"""Makes the danger network that comes with cpqa: a head on the encoder's first layers, from phrases of our own.

    python benchmarks/train_danger.py [--out DIR] [--epochs N]   (the head, into the package, and benchmarks/results/danger.json)
    python benchmarks/danger.py test FILE.jsonl ...              (phrases of somebody else, with what is in the package)

It learns from benchmarks/labels/danger.tsv and danger_roundabout.tsv, written by sessions of a language model as patients, carers and
bad spellers may write (half of them with drugs and relatives exchanged and letters mistyped, most with harmless sentences around
them), from phrases made of templates, and from harmless text of others, which is read where it lies: half of MeQSum's messages,
LiveQA's, part of the questions of the test sets; and our own patients' questions. A network of each of two folds reads what it did not
learn from; the bars are set so that few of the real messages alarm there.
"""
import argparse
import copy
import csv
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from common import ROOT
from danger import asked, half, liveqa, made, messages, report, row, table, varied

from cpqa.answering.danger_network import DANGERS, READS_AT, STANDS_ALONE, message_windows, prepare_danger
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder, minilm_folder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, load_network, multiply_out, shipped
from cpqa.training.recipe import made_with

FOLDS, LAYERS, PAIRS, TOKENS = 2, 2, 48, 96
EVERY = 3          # of so many phrases made from templates one is read
ALLOWED = (4, 8)   # real messages of 586 that may alarm when left out, by either group; some of them do speak of danger
LIMITS = ('It is no triage: it misses some of those in danger, and nobody should wait for it.',
          'It learnt from phrases that sessions of a language model wrote, in English.')


class Trunk:
    "The encoder's first layers: the numbers of each text, (tokens, width), in 16 bits."
    def __init__(self):
        import openvino
        model = openvino.Core().read_model(shipped('bi-encoder') / 'model.xml')
        multiply_out(model)
        node = next(op for op in model.get_ops() if op.get_friendly_name() == READS_AT)
        self.network = openvino.compile_model(openvino.Model([node.output(0)], model.get_parameters()), 'CPU')
        self.tokenizer = EmbeddedEncoder().tokenizer
        self.tokenizer.no_padding()

    def read(self, texts: list[str]) -> list[np.ndarray]:
        ids = [e.ids[:TOKENS] for e in self.tokenizer.encode_batch(texts)]
        found, order = [np.zeros(0)] * len(ids), sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for some in (order[i:i + 64] for i in range(0, len(order), 64)):
            fed, mask = np.zeros((2, len(some), len(ids[some[-1]])), np.int64)
            for k, i in enumerate(some): fed[k, :len(ids[i])], mask[k, :len(ids[i])] = ids[i], 1
            said = self.network({'input_ids': fed, 'attention_mask': mask})[0]
            for k, i in enumerate(some): found[i] = said[k, :len(ids[i])].astype(np.float16)
        return found


class Head(torch.nn.Module):
    "The last layers of all-MiniLM-L6-v2, then first token and mean, then the kinds."
    def __init__(self, layers):
        super().__init__()
        self.layers, self.drop, self.head = copy.deepcopy(layers), torch.nn.Dropout(.2), torch.nn.Linear(768, len(DANGERS))

    def forward(self, hidden, attention_mask):
        there = attention_mask.to(hidden.dtype)
        for layer in self.layers:
            said = layer(hidden, (1 - there)[:, None, None, :] * -1e4)
            hidden = said[0] if isinstance(said, tuple) else said
        mean = (hidden * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return self.head(self.drop(torch.cat([hidden[:, 0], mean], -1)))


def batch(numbers: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, mask = torch.zeros(len(numbers), max(map(len, numbers)), numbers[0].shape[1]), torch.zeros(len(numbers), max(map(len, numbers)))
    for i, n in enumerate(numbers): hidden[i, :len(n)], mask[i, :len(n)] = torch.from_numpy(n.astype(np.float32)), 1
    return hidden, mask


def trained(layers, numbers: list[np.ndarray], kinds: np.ndarray, epochs: int, told: str) -> Head:
    torch.manual_seed(0)
    head, rng, step = Head(layers).train(), np.random.RandomState(0), 0
    body, end = 2e-4, 1e-3
    optimizer = torch.optim.AdamW([{'params': head.layers.parameters(), 'lr': body}, {'params': head.head.parameters(), 'lr': end}])
    steps = epochs * -(-len(numbers) // PAIRS)
    for epoch in range(epochs):
        order = rng.permutation(len(numbers))
        near = [sorted(order[i:i + 40 * PAIRS], key=lambda i: len(numbers[i])) for i in range(0, len(order), 40 * PAIRS)]
        parts, losses = [some[i:i + PAIRS] for some in near for i in range(0, len(some), PAIRS)], []
        for k in rng.permutation(len(parts)):
            rate, step = min(1, (step + 1) / (.06 * steps)) * max(.02, 1 - step / steps), step + 1
            for group, most in zip(optimizer.param_groups, (body, end)): group['lr'] = most * rate
            said = head(*batch([numbers[i] for i in parts[k]]))
            loss = torch.nn.functional.cross_entropy(said, torch.tensor(kinds[parts[k]]), label_smoothing=.03)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        print(f'{time.process_time():6.0f} s  {told}, epoch {epoch + 1}: loss {np.mean(losses):.3f}', file=sys.stderr, flush=True)
    return head.eval()


def groups(head: Head, numbers: list[np.ndarray]) -> np.ndarray:
    "The chance of each group of kinds, (n, 2)."
    out, order = np.zeros((len(numbers), 2)), sorted(range(len(numbers)), key=lambda i: len(numbers[i]))
    last = 1 + len(STANDS_ALONE)
    with torch.inference_mode():
        for some in (order[i:i + 64] for i in range(0, len(order), 64)):
            p = head(*batch([numbers[i] for i in some])).softmax(-1).numpy()
            out[some] = np.stack([p[:, 1:last].sum(1), p[:, last:].sum(1)], 1)
    return out


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
    own = [(kind, text) for name in ('danger', 'danger_roundabout') for kind, text in table(name)]
    with open(ROOT / 'benchmarks' / 'labels' / 'patient_questions.tsv', encoding='utf-8') as f:
        patients = [r['question'] for r in csv.DictReader(f, delimiter='\t') if r['part'] == 'fit']
    return (own, [('none', t) for t in [*messages(0), *liveqa()]],
            [*[('none', t) for t in [*asked(1, 12), *patients]], *dict.fromkeys(made(random.Random(0))[::EVERY])])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'danger')
    parser.add_argument('--keep', type=Path, help='a file for the chances of what was left out in turn')
    parser.add_argument('--epochs', type=int, default=3)
    args, began, r = parser.parse_args(), time.time(), random.Random(0)
    own, real, other = phrases()
    rows, trunk = own + real + other, Trunk()
    layers = load_network('AutoModel', minilm_folder(), ('pooler',), add_pooling_layer=False)[0].encoder.layer[-LAYERS:]
    for layer in layers.modules():
        if isinstance(layer, torch.nn.Dropout): layer.p = 0.1
    harmless = [' '.join(text.split()) for kind, text in real + own if kind == 'none']
    beside = [s for text in harmless for s in re.split(r'(?<=[.?!])\s+', text) if 3 < len(s.split()) < 20]
    read = lambda change: [(i, w) for i, (kind, text) in enumerate(rows) for w in message_windows(change(kind, text))]
    mixed = read(lambda kind, t: among(kind, varied(t, r) if r.random() < .5 else t, beside, r))
    plain = read(lambda kind, t: t)
    numbers, learnt = trunk.read([w for _, w in plain]), trunk.read([w for _, w in mixed])
    at, at_learnt = np.array([i for i, _ in plain]), np.array([i for i, _ in mixed])
    kinds, folds = np.array([DANGERS.index(kind) for kind, _ in rows]), np.array([half(text + "fold") for _, text in rows])
    print(f'{time.process_time():6.0f} s  {len(learnt):,} windows of {len(rows):,} texts', file=sys.stderr, flush=True)
    def fit(keep: np.ndarray, told: str) -> Head:
        chosen = np.flatnonzero(keep[at_learnt])
        return trained(layers, [learnt[i] for i in chosen], kinds[at_learnt[chosen]], args.epochs, told)
    out = np.zeros((len(rows), 2))   # of the window that alarms most
    for k in range(FOLDS):
        head, rest = fit(folds != k, f'fold {k + 1}'), np.flatnonzero(folds[at] == k)
        for i, p in zip(at[rest], groups(head, [numbers[j] for j in rest])): out[i] = np.maximum(out[i], p)
    is_own, is_real = np.arange(len(rows)) < len(own), np.isin(np.arange(len(rows)), len(own) + np.arange(len(real)))
    if args.keep: np.savez(args.keep, out=out, own=is_own, real=is_real, kinds=kinds)
    bars = tuple(round(float(np.sort(out[is_real, j])[-1 - ALLOWED[j]]) + 1e-4, 4) for j in (0, 1))
    alarm = (out >= np.array(bars)).any(1)
    left = {kind: row(list(alarm[is_own & (kinds == j)])) for j, kind in enumerate(DANGERS)}
    left['none, real messages'] = row(list(alarm[is_real]))
    figures = tuple(Measured(f'alarms, {kind}, left out in turn', f['found'] / f['n'], f['n'], *f['interval']) for kind, f in left.items())
    used = (DataUsed('phrases of our own', 'Apache-2.0', len(own), 'written by sessions of a language model'),
            DataUsed('MeQSum, LiveQA, BioASQ, PubMedQA, MedQuAD, our patients\' questions, templates', '', len(rows) - len(own),
                     'harmless but for the templates; read where they lie'))
    left_out = (f'{len(messages(1)):,} messages of MeQSum: for measuring',)
    command = ' '.join(['python', 'benchmarks/train_danger.py', *sys.argv[1:]])
    about = About(f'the encoder of cpqa and {MINILM}', 'Apache-2.0', 'Apache-2.0', used, left_out, figures, made_with(), command, LIMITS)
    prepare_danger(fit(np.ones(len(rows), bool), 'all'), trunk.tokenizer, args.out, bars, about=about)
    report(left, round(time.time() - began), len(own), [*bars])


if __name__ == '__main__': main()
