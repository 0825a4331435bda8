"""Teaches the network of claims on a GPU: a large network learns from claims beside quotes, a small one from it.

    python benchmarks/teach_claims.py PAIRS --teacher FOLDER --out DIR [--steps N]      (two minutes on an H200)

PAIRS is what `train_claims.py` wrote, FOLDER holds all-mpnet-base-v2. It needs torch, transformers, tokenizers and safetensors alone.
The teacher reads claim and quote together and says supported, contradicted or neither. The student, the first layers of the stance network,
which stay as they are, and some of its own, learns from what it says, beside the labels. DIR gets claims.pt, what both say of every
pair, and figures.json: on claims whose documents neither saw, and on sets that nothing is trained on.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import torch
from teach_selection import Pairs, Student, Teacher, auroc, device, read, trained
from torch.nn import functional as of
from transformers import AutoTokenizer

FROZEN, SMOOTHING, SOFT = 4, .02, 1.0
TEACHER = (2, 48, 3e-5, 1e-3)            # epochs, pairs a step, rate of the body and of the head
STUDENT = (4, 96, 2e-4, 1e-3)
OF_OTHERS = .5                           # what a pair of the other sources counts beside a written one


def carried(odds: np.ndarray) -> np.ndarray:
    "The log odds of supported, from three logits."
    return odds[:, 2] - np.logaddexp(odds[:, 0], odds[:, 1])


def figures(rows: list[dict], odds: np.ndarray, kinds=('dev', 'model', 'healthver', 'nli4ct')) -> dict:
    "AUROC of supported against contradicted and against neither; a statement of NLI4CT goes by the surest of its pieces of evidence."
    out, kind = {}, np.array([r['kind'] for r in rows])
    way, supports = np.array([r['way'] for r in rows]), carried(odds)
    for name in kinds:
        some = np.flatnonzero(kind == name)
        if not len(some): continue
        if name == 'nli4ct':
            p, best, truth = odds[some, 2] - odds[some, 0], {}, {}
            for i, r in zip(range(len(some)), (rows[i] for i in some)):
                if abs(p[i]) > abs(best.get(r['group'], 0)): best[r['group']] = p[i]
                truth[r['group']] = r['way'] == 2
            high, low = (np.array([best.get(g, 0.0) for g in truth if truth[g] == which]) for which in (True, False))
            out[name] = {'entailed or not': round(auroc(high, low), 4), 'n': len(truth)}
            continue
        of_way = lambda w: supports[some][way[some] == w]
        told = {'against contradicted': (of_way(2), of_way(0)), 'against neither': (of_way(2), of_way(1)),
                'against both': (of_way(2), supports[some][way[some] < 2])}
        out[name] = {what: round(auroc(a, b), 4) for what, (a, b) in told.items() if len(a) and len(b)} | {'n': len(some)}
        for sub in sorted({rows[i].get('manner', '') for i in some} - {''}):
            mine = np.array([rows[i].get('manner') == sub for i in some])
            out[name][sub] = round(auroc(supports[some][mine & (way[some] == 2)], supports[some][mine & (way[some] < 2)]), 4)
    return out


class Teaches(Teacher):
    "A teacher with three outputs."
    def __init__(self, folder: str):
        super().__init__(folder)
        self.head = torch.nn.Linear(self.head.in_features, 3)

    def forward(self, **fed):
        hidden, there = self.bert(**fed).last_hidden_state, fed['attention_mask'][..., None]
        both = torch.cat([hidden[:, 0], (hidden * there).sum(1) / there.sum(1)], -1)
        return self.head(self.drop(self.hidden(both).tanh())).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('pairs', type=Path, help='a folder of `train_claims.py`')
    parser.add_argument('--teacher', required=True)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--steps', type=int, default=0, help='of each training, at most')
    parser.add_argument('--frozen', type=int, default=FROZEN, help='layers of the stance network that stay')
    a = parser.parse_args()
    torch.manual_seed(0)
    rows = [json.loads(line) for line in (a.pairs / 'pairs.jsonl').read_text().splitlines()]
    kind = np.array([r['kind'] for r in rows])
    learnt, every = np.flatnonzero(np.isin(kind, ('written', 'made'))), np.arange(len(rows))
    way = torch.tensor([r['way'] for r in rows], device=device)
    weight = torch.tensor(np.where(kind == 'written', 1.0, OF_OTHERS), dtype=torch.float, device=device)
    hard = lambda out, part: (of.cross_entropy(out, way[part], reduction='none', label_smoothing=SMOOTHING) * weight[part]).mean()
    told = {}
    teacher = Teaches(a.teacher)
    pairs = Pairs(teacher.tokenizer, rows, 'longest_first')
    teacher = trained(teacher, pairs, learnt, hard, TEACHER, 'teacher', a.steps)
    soft = read(teacher, pairs, every)
    told['teacher'] = figures(rows, soft)
    print(json.dumps(told), flush=True)
    said, soft = soft, torch.tensor(soft, dtype=torch.float, device=device).softmax(-1)
    del teacher
    as_told = lambda out, part: of.kl_div(out.log_softmax(-1), soft[part], reduction='none').sum(-1)
    taught = lambda out, part: hard(out, part) + SOFT * (as_told(out, part) * weight[part]).mean()
    trunk = torch.load(a.pairs / 'trunk.pt', weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(a.pairs)
    pairs = Pairs(tokenizer, rows, 'longest_first')
    student = Student({name: w.float() for name, w in trunk.items()}, tokenizer, a.frozen, 3)
    student = trained(student, pairs, learnt, taught, STUDENT, 'student', a.steps)
    odds = read(student, pairs, every)
    told['student'] = figures(rows, odds)
    print(json.dumps(told['student']), flush=True)
    a.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(a.out / 'odds.npz', teacher=said.astype(np.float16), student=odds.astype(np.float16))
    own = lambda name: name.startswith('head') or name.startswith('bert.encoder.layer') and int(name.split('.')[3]) >= a.frozen
    torch.save({name: w.half().cpu() for name, w in student.state_dict().items() if own(name)}, a.out / 'claims.pt')
    machine = torch.cuda.get_device_name() if device == 'cuda' else 'cpu'
    (a.out / 'figures.json').write_text(json.dumps({'figures': told, 'frozen': a.frozen, 'device': machine, 'torch': torch.__version__}))


if __name__ == '__main__': main()
