"""Teaches the danger network, on a GPU where there is one, from what `train_danger.py examples` wrote.

    python benchmarks/teach_danger.py EXAMPLES --out DIR [--epochs N] [--steps N]       (half a minute on an H200)

It needs torch, transformers, tokenizers and safetensors alone, so that it runs where cpqa is not installed. The encoder's first two layers
stay as they are; four layers above them, first token and mean, and seven outputs learn. A network of each of two folds says what it thinks
of the texts that it did not learn from, a third one learns from all. DIR gets head.pt, and left.npz with those chances by window.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from teach_selection import Pairs, Student, device, read, trained
from torch.nn import functional as of
from transformers import AutoTokenizer

FROZEN, OWN, FOLDS, SMOOTHING = 2, 4, 2, .03
LEARNS = (48, 2e-4, 1e-3)                # windows a step, rate of the layers and of the head


class Windows(Pairs):
    "Windows of messages, as tokens."
    def __init__(self, tokenizer, tokens: list[list[int]]):
        self.hold(tokenizer, {'input_ids': np.concatenate(tokens), 'lengths': np.array([len(ids) for ids in tokens])})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('examples', type=Path, help='a folder of `train_danger.py examples`')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--steps', type=int, default=0, help='of each training, at most')
    a, begun = parser.parse_args(), time.time()
    torch.manual_seed(0)
    said = json.loads((a.examples / 'examples.json').read_text())
    kinds, folds, trunk = np.array(said['kinds']), np.array(said['folds']), torch.load(a.examples / 'trunk.pt', weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(a.examples)
    mixed, plain = (Windows(tokenizer, [ids for _, ids in said[name]]) for name in ('mixed', 'plain'))
    of_mixed, of_plain = (np.array([i for i, _ in said[name]]) for name in ('mixed', 'plain'))
    wanted = torch.tensor(kinds[of_mixed], device=device)
    loss = lambda out, part: of.cross_entropy(out, wanted[part], label_smoothing=SMOOTHING)
    def taught(rows: np.ndarray, told: str) -> Student:
        fresh = Student({f'bert.{name}': w.float() for name, w in trunk.items()}, tokenizer, OWN, FROZEN, 1 + int(kinds.max()))
        return trained(fresh, mixed, rows, loss, (a.epochs, *LEARNS), told, a.steps)
    left = np.zeros((len(of_plain), 1 + kinds.max()))
    for k in range(FOLDS):
        rest = np.flatnonzero(folds[of_plain] == k)
        left[rest] = read(taught(np.flatnonzero(folds[of_mixed] != k), f'fold {k + 1}'), plain, rest)[rest]
    network = taught(np.arange(len(of_mixed)), 'all')
    a.out.mkdir(parents=True, exist_ok=True)
    own = lambda name: name.startswith('head') or name.startswith('bert.encoder.layer') and int(name.split('.')[3]) >= FROZEN
    torch.save({name: w.half().cpu() for name, w in network.state_dict().items() if own(name)}, a.out / 'head.pt')
    machine = torch.cuda.get_device_name() if device == 'cuda' else 'cpu'
    np.savez(a.out / 'left.npz', logits=left, seconds=round(time.time() - begun), device=machine)


if __name__ == '__main__': main()
