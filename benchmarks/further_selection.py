"""The answer network learns further on two cores, from labels that came after its teacher was gone.

    python benchmarks/train_selection.py pairs DIR demo= rct=LIBRARY bioasq=LIBRARY
    python benchmarks/further_selection.py DIR --out TAUGHT [--hold-out 4]      (a quarter of an hour)
    python benchmarks/train_selection.py ship DIR TAUGHT

It begins as the network in the package. Every pair of a question and a sentence weighs in with what that network says of it, so that
what a large one had taught it is kept, and those that were labelled with their label too: all that it knew, and above all questions for
papers (paper_questions.tsv), which are new to it. Beside each of these stand sentences of other papers near to the question.
With `--hold-out N` one paper in N is left out of the training, and before and after are compared on it; TAUGHT gets answer.pt, odds.json
and, for papers left out, what is said of each pair.
"""
import argparse
import json
import platform
import random
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from heads import stored_head
from teach_selection import FROZEN, WORTH, Pairs, Student, auroc, read, trained
from torch.nn import functional as of
from transformers import AutoTokenizer

from cpqa import CancerQA
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.openvino_models import read_card, shipped

AS_BEFORE = {'papers': .3, 'graded': 1.0, 'judged': 1.0, 'written': 1.0, 'open': 1.0}   # what the network's own word counts, by kind
WRITTEN, OPEN, NEAR, FAR = 6_000, 8_000, 2, 2   # pairs of notes drawn, pairs nobody judged; other papers' sentences beside a question
SETTINGS = (1, 64, 1e-4, 4e-4)                  # epochs, pairs a step, rate of the body and of the head


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


def beside(questions: list[dict], texts: list[dict], rng: random.Random) -> list[dict]:
    "Sentences of other papers, near to questions for papers: little is expected of them; and, of all questions, some that nobody judged."
    encoder, out = CancerQA().encoder, []
    how = encoder.describe().get('similarity')
    of_texts = directions(encoder.encode([f"{t['title']}. {t['text']}" for t in texts]), how)
    asked = directions(encoder.encode([q['asked'] for q in questions], 'query'), how)
    for q, near in zip(questions, np.argsort(-asked @ of_texts.T, axis=1)[:, :80]):
        other = [texts[i] for i in near if texts[i]['doc'] != q['doc']]
        row = lambda t, kind, **more: q | {'said': t['said'], 'kind': kind} | more
        if q['kind'] == 'papers':
            out += [row(t, 'papers', worth=.03, weight=.7) for t in rng.sample(other[5:20], NEAR) + rng.sample(other[20:], FAR)]
        out += [row(t, 'open', worth=0.0, weight=0.0) for t in rng.sample(other[:20], 2)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('pairs', type=Path, help='a folder of `train_selection.py pairs`')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--hold-out', type=int, default=0, help='one paper in so many is kept aside; 0: none')
    parser.add_argument('--steps', type=int, default=0, help='at most')
    a = parser.parse_args()
    torch.manual_seed(0)
    rng, start = random.Random(0), time.time()
    rows, texts = ([json.loads(line) for line in (a.pairs / f'{name}.jsonl').read_text().splitlines()] for name in ('pairs', 'texts'))
    plain = [r for r in rows if r['kind'] == 'written']
    few = set(map(id, rng.sample(plain, min(WRITTEN, len(plain)))))
    rows = [r for r in rows if r['kind'] != 'written' or id(r) in few]
    asked = list({r['question']: r for r in rows if r['kind'] == 'papers'}.values())
    others = list({r['question']: r for r in rows if r['kind'] != 'papers'}.values())
    some = asked + [r | {'doc': r.get('doc', '')} for r in rng.sample(others, min(OPEN // 2, len(others)))]
    rows += beside(some, [t for t in texts if t['place'] == 'papers'] + rng.sample([t for t in texts if t['place'] == 'notes'], 4_000), rng)
    kind = np.array([r['kind'] for r in rows])
    aside = np.array([bool(a.hold_out) and r['kind'] == 'papers' and zlib.crc32(r['doc'].encode()) % a.hold_out == 0 for r in rows])
    kept_aside = {rows[i]['question'] for i in np.flatnonzero(aside)}
    aside |= np.array([r['question'] in kept_aside for r in rows])
    label = torch.tensor([WORTH[r['grade']] if r['kind'] == 'graded' else r.get('worth', 0.0) for r in rows])
    known = torch.tensor([1.0 if r['kind'] == 'graded' else r.get('weight', 0.0) for r in rows])
    before = torch.tensor([AS_BEFORE[k] for k in kind])
    student = begun(a.pairs)
    pairs, n = Pairs(student.tokenizer, [r | {'asked': r[way]} for way in ('asked', 'question') for r in rows], 'longest_first'), len(rows)
    print(dict(Counter(kind.tolist())), 'aside', int(aside.sum()), f'{time.time() - start:.0f} s', flush=True)
    began_as = read_card(shipped('answer'), 'answer').weights
    made_of = json.dumps([began_as, *(r['asked'] + r['question'] + r['said'] for r in rows)])
    kept = a.pairs / f'said-{zlib.crc32(made_of.encode()):08x}.npy'   # what this network says of these pairs
    if not kept.exists(): np.save(kept, read(student, pairs, np.arange(2 * n)))
    odds = np.load(kept)
    soft = torch.as_tensor(odds, dtype=torch.float).sigmoid()
    figures = {}
    def tell(name: str, odds: np.ndarray):
        mean, told = (odds[:n] + odds[n:]) / 2, np.array([r['kind'] == 'papers' and bool(r.get('place')) for r in rows]) & aside
        use = np.array([r.get('worth', 0) > .5 for r in rows])
        if told.any(): figures[name] = {'papers left out': round(auroc(mean[told & use], mean[told & ~use]), 4), 'n': int(told.sum())}
        print(name, figures.get(name), f'{time.time() - start:.0f} s', flush=True)
    tell('before', odds)
    loss = of.binary_cross_entropy_with_logits
    def taught(out, part):
        at = part % n
        return (loss(out, soft[part], reduction='none') * before[at] + loss(out, label[at], reduction='none') * known[at]).mean()
    seen = np.flatnonzero(~aside)
    # questions for papers in both wordings, all others in one
    both = np.concatenate([seen[kind[seen] == 'papers'] + k * n for k in (0, 1)])
    once = seen[kind[seen] != 'papers']
    once = once + n * np.random.default_rng(0).integers(0, 2, len(once))
    student = trained(student, pairs, np.concatenate([both, once]), taught, SETTINGS, 'further', a.steps)
    a.out.mkdir(parents=True, exist_ok=True)
    own = lambda name: name.startswith('head') or name.startswith('bert.encoder.layer') and int(name.split('.')[3]) >= FROZEN
    torch.save({name: w.half() for name, w in student.state_dict().items() if own(name)}, a.out / 'answer.pt')
    left = np.flatnonzero(aside)
    if len(left):
        after = odds.copy()
        some = np.concatenate([left, left + n])
        after[some] = read(student, pairs, some)[some]
        tell('after', after)
        with open(a.out / 'aside.jsonl', 'w', encoding='utf-8') as f:
            both = lambda odds, i: [float(odds[i]), float(odds[i + n])]
            f.writelines(json.dumps(rows[i] | {'odds': both(after, i), 'were': both(odds, i)}) + '\n' for i in left)
    (a.out / 'odds.json').write_text(json.dumps({'figures': figures, 'began as': began_as,
                                                 'pairs': dict(Counter(kind.tolist())), 'device': platform.processor() or 'cpu',
                                                 'torch': torch.__version__, 'left_out': {}}))


if __name__ == '__main__': main()
