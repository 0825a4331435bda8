"""Teaches a large network on a GPU what answers a question; further_selection.py teaches the small one from it.

    python benchmarks/teach_selection.py PAIRS --teacher FOLDER --out SAID [--steps 420]      (two minutes on an H200)

PAIRS is what `train_selection.py pairs` wrote, FOLDER holds all-mpnet-base-v2. It needs torch, transformers, tokenizers and safetensors
alone, so that it runs where cpqa is not installed.

The teacher, 110 million weights, reads question and sentence together. It learns first from written questions, whose own sentence counts 1
and others little, from those that were judged, and from those for papers; then from graded sentences, and of papers those of use and a few
others. --steps is the most of either training. Questions for one paper in four, and one in five of patients' questions, are kept from all
of it (`left_aside`), and what it says of them is told.
SAID gets said.jsonl.gz: every pair, those that nobody graded too, with what the teacher says of it, and figures.json.
"""
import argparse
import gzip
import json
import random
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as of
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

FROZEN, TOKENS = 2, 160
NEAR, FAR, SAME = 2, 1, .25              # wrong sentences of the nearest 12 and of the next 70; what the next best of the same note counts
OF_NO_USE = 2                            # sentences of a paper that do not answer its question, learnt with the graded ones
PAPERS_ASIDE, PATIENTS_ASIDE = 4, 5      # one in so many
WRITTEN = .6                             # the share of the written questions that is drawn
OPEN = {'notes': (2, 1), 'papers': (2, 1)}   # sentences that nobody judged: of the nearest twenty, and of the forty after them
TEACHER = {'written': (1, 96, 4e-5, 1.4e-3), 'graded': (2, 48, 2.5e-5, 3e-4)}   # epochs, pairs a step, rate of the body and of the head
WORTH = {0: .02, 1: .8, 2: 1.0}          # what a grade counts
device = 'cuda' if torch.cuda.is_available() else 'cpu'


class Teacher(torch.nn.Module):
    "The whole of a sentence model; first token and mean, then a number."
    def __init__(self, folder: str):
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bert = AutoModel.from_pretrained(folder, add_pooling_layer=False).float()
        width = self.bert.config.hidden_size
        self.hidden, self.drop, self.head = torch.nn.Linear(2 * width, width), torch.nn.Dropout(.1), torch.nn.Linear(width, 1)
        self.bert.get_input_embeddings().requires_grad_(False)

    def forward(self, **fed):
        hidden, there = self.bert(**fed).last_hidden_state, fed['attention_mask'][..., None]
        both = torch.cat([hidden[:, 0], (hidden * there).sum(1) / there.sum(1)], -1)
        return self.head(self.drop(self.hidden(both).tanh()))[:, 0].float()


class Student(torch.nn.Module):
    "A network's layers, the first of them as they are; first token and mean, then a number, or several."
    def __init__(self, trunk: dict, tokenizer, frozen: int = FROZEN, outputs: int = 1):
        super().__init__()
        form = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        self.tokenizer, self.bert = tokenizer, BertModel(form, add_pooling_layer=False)
        self.bert.load_state_dict(trunk, strict=False)
        self.drop, self.head = torch.nn.Dropout(.2), torch.nn.Linear(2 * 384, outputs)
        for part in (self.bert.embeddings, *self.bert.encoder.layer[:frozen]):
            part.requires_grad_(False)
            for layer in part.modules():
                if isinstance(layer, torch.nn.Dropout): layer.p = 0.0

    def forward(self, **fed):
        hidden, there = self.bert(**fed).last_hidden_state, fed['attention_mask'][..., None]
        return self.head(self.drop(torch.cat([hidden[:, 0], (hidden * there).sum(1) / there.sum(1)], -1))).squeeze(-1).float()


class Pairs:
    "Questions beside texts, as tokens of a network; they lie on the device, where a batch is put together."
    def __init__(self, tokenizer, rows: list[dict], cut: str = 'longest_first'):
        self.hold(tokenizer, tokenizer([r['asked'] for r in rows], [r['said'] for r in rows], truncation=cut, max_length=TOKENS))

    def hold(self, tokenizer, told: dict):
        self.lengths = np.array([len(ids) for ids in told['input_ids']])
        on_device = lambda values: torch.as_tensor(np.asarray(values, dtype=np.int64), device=device)
        self.flat = {name: on_device(np.concatenate(told[name])) for name in ('input_ids', 'token_type_ids') if name in told}
        self.starts, self.ends = (on_device(np.cumsum(self.lengths) - back) for back in (self.lengths, 0))
        self.padding = {'input_ids': tokenizer.pad_token_id, 'token_type_ids': 0}

    def fed(self, some) -> dict:
        some = np.asarray(some)
        rows, longest = torch.as_tensor(some, device=device), -(-int(self.lengths[some].max()) // 8) * 8
        at = self.starts[rows][:, None] + torch.arange(longest, device=device)
        there = at < self.ends[rows][:, None]
        fed = {name: torch.where(there, values[at.clamp(max=len(values) - 1)], self.padding[name]) for name, values in self.flat.items()}
        return fed | {'attention_mask': there.long()}


@torch.no_grad()
def vectors(network: Teacher, said: list[str]) -> torch.Tensor:
    "What the base says of single texts: the mean of their tokens, of length 1."
    network.to(device).eval()
    out = torch.zeros(len(said), network.bert.config.hidden_size, device=device)
    order = sorted(range(len(said)), key=lambda i: len(said[i]))
    for at in (order[i:i + 256] for i in range(0, len(order), 256)):
        fed = network.tokenizer([said[i] for i in at], padding=True, truncation=True, max_length=TOKENS, return_tensors='pt').to(device)
        hidden, there = network.bert(**fed).last_hidden_state, fed['attention_mask'][..., None]
        out[at] = of.normalize((hidden * there).sum(1) / there.sum(1), dim=-1).float()
    return out


def beside(rows: list[dict], asked: list[dict], texts: list[dict], network: Teacher) -> list[dict]:
    "Sentences near to each question: for written ones some that are not their own, and for all some that nobody judged."
    rng, out, questions = random.Random(0), [], vectors(network, [q['asked'] for q in asked])
    own = {r['question']: r for r in rows if r['kind'] == 'written'}
    for place, (some, more) in OPEN.items():
        here = [t for t in texts if t['place'] == place]
        near = vectors(network, [t['text'] for t in here]) + vectors(network, [f"{t['title']}. {t['text']}" for t in here])
        for q, order in zip(asked, (questions @ near.T).topk(min(82, len(here))).indices.tolist()):
            row = lambda i, kind, worth=0.0, weight=0.0: q | {'said': here[i]['said'], 'kind': kind, 'worth': worth, 'weight': weight}
            if place == 'notes' and (r := own.get(q['question'])):
                same, other = ([i for i in order if (here[i]['doc'] == r['doc']) == mine] for mine in (True, False))
                out += [row(i, 'written', SAME, .5) for i in [i for i in same if here[i]['text'] != r['text']][:1]]
                out += [row(i, 'written', .05, 1.0) for i in rng.sample(other[:12], NEAR) + rng.sample(other[12:], FAR)]
            out += [row(i, 'open') for i in rng.sample(order[:20], some) + rng.sample(order[20:60], more)]
    return out


def said(network, fed: dict):
    fast = device == 'cuda' or torch.cpu._is_avx512_bf16_supported()   # elsewhere halves are slower than wholes
    with torch.autocast(device, dtype=torch.bfloat16, enabled=fast): return network(**fed)


def trained(network, pairs: Pairs, rows: np.ndarray, loss_of, settings, told: str, most: int):
    "The network, trained on these rows; `loss_of` gets what it says of some, and their places."
    (epochs, n, body, end), rng, begun = settings, np.random.default_rng(0), time.time()
    network.to(device).train()
    parts = []
    for _ in range(epochs):
        order = rng.permutation(rows)
        near = (sorted(order[i:i + 40 * n], key=lambda i: pairs.lengths[i]) for i in range(0, len(order), 40 * n))
        cut = [some[i:i + n] for some in near for i in range(0, len(some), n)]
        parts += [cut[i] for i in rng.permutation(len(cut))]
    parts = parts[:most or None]
    taught = [(name.startswith('bert'), w) for name, w in network.named_parameters() if w.requires_grad]
    groups = [{'params': [w for mine, w in taught if mine == is_body], 'lr': rate} for is_body, rate in ((True, body), (False, end))]
    optimizer, warm = torch.optim.AdamW(groups, weight_decay=.01), .06 * len(parts)
    rate = lambda step: min(1, (step + 1) / (warm + 1)) * max(.02, 1 - max(0, step - warm) / (len(parts) - warm + 1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for part in parts:
        loss = loss_of(said(network, pairs.fed(part)), torch.as_tensor(np.array(part), device=device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_([w for _, w in taught], 1.0)
        optimizer.step(), schedule.step(), optimizer.zero_grad(set_to_none=True)
    print(f'{told}: {len(parts)} steps, {time.time() - begun:.0f} s, loss {float(loss.detach()):.3f}', flush=True)
    return network.eval()


@torch.inference_mode()
def read(network, pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    "What the network says of these rows; of all others nought. There is one at least."
    order = rows[np.argsort(pairs.lengths[rows], kind='stable')]
    network.to(device).eval()
    parts = [said(network, pairs.fed(order[i:i + 256])).cpu().numpy() for i in range(0, len(order), 256)]
    out = np.zeros((len(pairs.lengths), *parts[0].shape[1:]))
    out[order] = np.concatenate(parts)
    return out


def label_of(row: dict) -> float: return WORTH[row['grade']] if row['kind'] == 'graded' else row.get('worth') or 0.0


def weight_of(row: dict) -> float:
    "What the label counts beside the word of the large network, where there is one."
    return 1.0 if row['kind'] == 'graded' else .5 * (row.get('weight') or 0.0)


def left_aside(rows: list[dict]) -> list[bool]:
    "Whose question is kept from every network that learns: of one paper in four, and one in five of patients' questions."
    out = lambda name, n: bool(name) and zlib.crc32(name.encode()) % n == 0
    of_papers = {r['question'] for r in rows if r['kind'] == 'papers' and out(r['doc'], PAPERS_ASIDE)}
    return [r['question'] in of_papers or out(r.get('id', ''), PATIENTS_ASIDE) for r in rows]


def auroc(high: np.ndarray, low: np.ndarray) -> float:
    "The share of pairs in which the first is higher; even ones count half."
    order = np.sort(low)
    return float((np.searchsorted(order, high, 'left') + np.searchsorted(order, high, 'right')).mean() / 2 / max(1, len(low)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('pairs', type=Path, help='a folder of `train_selection.py pairs`')
    parser.add_argument('--teacher', required=True)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--steps', type=int, default=420, help='of each training, at most; 0: all')
    a = parser.parse_args()
    torch.manual_seed(0)
    rows, asked, texts = ([json.loads(line) for line in (a.pairs / f'{name}.jsonl').read_text().splitlines()]
                          for name in ('pairs', 'asked', 'texts'))
    draw = random.Random(3)
    rows = [r for r in rows if r['kind'] != 'written' or draw.random() < WRITTEN]
    teacher = Teacher(a.teacher)
    rows += beside(rows, asked, texts, teacher)
    kind, place = (np.array([r.get(name, '') for r in rows]) for name in ('kind', 'library'))
    label = torch.tensor([label_of(r) for r in rows], device=device)
    weight = torch.tensor([1.0 if r['kind'] == 'graded' else r.get('weight', 0.0) for r in rows], device=device)
    use, aside = label.cpu().numpy() > .5, np.array(left_aside(rows))
    of_some = lambda *kinds: np.flatnonzero(np.isin(kind, kinds) & ~aside)
    few, drawn = Counter(), np.random.RandomState(1).permutation(of_some('papers'))
    of_papers = [i for i in drawn if use[i] or few.update([rows[i]['question']]) or few[rows[i]['question']] <= OF_NO_USE]
    figures = {}
    def tell(name: str):
        odds = read(teacher, pairs, np.flatnonzero(aside & np.isin(kind, ('graded', 'papers'))))
        places = {p: (place == p) & (kind == 'graded') & aside for p in dict.fromkeys(place[kind == 'graded'])}
        figures[name] = {str(p): round(auroc(odds[here & use], odds[here & ~use]), 4)
                         for p, here in (places | {'papers': (kind == 'papers') & aside}).items()}
        print(name, figures[name], flush=True)

    pairs, loss = Pairs(teacher.tokenizer, rows), of.binary_cross_entropy_with_logits
    hard = lambda out, part: (loss(out, label[part], reduction='none') * weight[part]).mean()
    for name, some in (('written', of_some('written', 'judged', 'papers')), ('graded', np.array([*of_some('graded'), *sorted(of_papers)]))):
        teacher = trained(teacher, pairs, some, hard, TEACHER[name], name, a.steps)
        tell(name)
    a.out.mkdir(parents=True, exist_ok=True)
    kept = ('question', 'kind', 'said', 'worth', 'weight', 'grade', 'id', 'row', 'doc', 'library')
    with gzip.open(a.out / 'said.jsonl.gz', 'wt', encoding='utf-8') as f:
        for r, o in zip(rows, read(teacher, pairs, np.arange(len(rows)))):
            f.write(json.dumps({k: r[k] for k in kept if k in r} | {'odds': round(float(o), 2)}) + '\n')
    machine = torch.cuda.get_device_name() if device == 'cuda' else 'cpu'
    (a.out / 'figures.json').write_text(json.dumps({'figures': figures, 'device': machine, 'torch': torch.__version__}))


if __name__ == '__main__': main()
