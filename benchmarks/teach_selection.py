"""Teaches the answer network on a GPU: large networks learn what answers a question, a small one from them.

    python benchmarks/teach_selection.py PAIRS --teacher FOLDER --out TAUGHT [--teachers 2] [--own 4,5]      (four minutes on an H200)

PAIRS is what `train_selection.py pairs` wrote, FOLDER holds all-mpnet-base-v2. It needs torch, transformers, tokenizers and safetensors
alone, so that it runs where cpqa is not installed.

A teacher, 110 million weights, reads question and sentence together. It learns first from written questions, whose own sentence counts 1
and others little, from those that were judged, and from those for papers; then from graded sentences, and of papers those of use and a few
others. The teachers differ in their seed, and what they say on average counts. The student begins as the network in the package, with a
copy of its last layer for each that --own has more (every number of own layers that is named is tried), and reads each pair in both
wordings of the question, those that nobody graded too. Each weighs in with what the teachers say of it, and those that were labelled with
their label as well. Questions for one paper in four, and one in five of patients' questions, are kept from all of it (`left_aside`): what
is said of them is told, of patients' questions only as far as the network in the package had not learnt from them earlier.
TAUGHT gets for each number of own layers a folder with answer.pt and odds.json, with what is said of the graded sentences left out.
--steps is the most of each training.
"""
import argparse
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
OPEN = {'notes': (4, 2), 'papers': (4, 2)}   # sentences that nobody judged: of the nearest twenty, and of the forty after them
TEACHER = {'written': (1, 96, 4e-5, 1.4e-3), 'graded': (2, 48, 2.5e-5, 3e-4)}   # epochs, pairs a step, rate of the body and of the head
STUDENT = (3, 192, 2.5e-4, 8e-4)
FRESH = 'kmn'                            # ids of patients' questions from which the network before had learnt nothing
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
    def __init__(self, begun: dict, tokenizer, own: int = 4, frozen: int = FROZEN, outputs: int = 1):
        super().__init__()
        form = BertConfig(hidden_size=384, num_hidden_layers=frozen + own, num_attention_heads=12, intermediate_size=1536)
        self.tokenizer, self.bert = tokenizer, BertModel(form, add_pooling_layer=False)
        self.drop, self.head = torch.nn.Dropout(.2), torch.nn.Linear(2 * 384, outputs)
        layer, last = 'bert.encoder.layer.', max(int(name.split('.')[3]) for name in begun if name.startswith('bert.encoder.layer.'))
        more = {name.replace(f'{layer}{last}.', f'{layer}{n}.'): w for name, w in begun.items() if name.startswith(f'{layer}{last}.')
                for n in range(last + 1, frozen + own)}
        odd = self.load_state_dict(begun | more, strict=False)
        if odd.unexpected_keys or any(name.startswith('bert.encoder') for name in odd.missing_keys):
            raise SystemExit(f'not the same: {odd}')
        for part in (self.bert.embeddings, *self.bert.encoder.layer[:frozen]):
            part.requires_grad_(False)
            for layer in part.modules():
                if isinstance(layer, torch.nn.Dropout): layer.p = 0.0

    def forward(self, **fed):
        hidden, there = self.bert(**fed).last_hidden_state, fed['attention_mask'][..., None]
        return self.head(self.drop(torch.cat([hidden[:, 0], (hidden * there).sum(1) / there.sum(1)], -1))).squeeze(-1).float()


class Pairs:
    "Questions beside texts, as tokens of a network; they lie on the device, where a batch is put together."
    def __init__(self, tokenizer, rows: list[dict], cut: str = 'longest_first', most: int = TOKENS):
        self.hold(tokenizer, tokenizer([r['asked'] for r in rows], [r['said'] for r in rows], truncation=cut, max_length=most))

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


def trained(network, pairs: Pairs, rows: np.ndarray, loss_of, settings, told: str, most: int, seed: int = 0):
    "The network, trained on these rows; `loss_of` gets what it says of some, and their places."
    (epochs, n, body, end), rng, begun = settings, np.random.default_rng(seed), time.time()
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
    for step, part in enumerate(parts):
        if step % 250 == 0: print(f'{told}: {step} of {len(parts)} steps, {time.time() - begun:.0f} s', flush=True)
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
    parser.add_argument('--steps', type=int, default=0, help='of each training, at most; 0: all')
    parser.add_argument('--teachers', type=int, default=2)
    parser.add_argument('--own', type=lambda text: [int(n) for n in text.split(',')], default=[4])
    a = parser.parse_args()
    start = time.time()
    rows, asked, texts = ([json.loads(line) for line in (a.pairs / f'{name}.jsonl').read_text().splitlines()]
                          for name in ('pairs', 'asked', 'texts'))
    draw = random.Random(3)
    rows = [r for r in rows if r['kind'] != 'written' or draw.random() < WRITTEN]
    rows += beside(rows, asked, texts, Teacher(a.teacher))
    kind = np.array([r['kind'] for r in rows])
    label, known = (torch.tensor([value(r) for r in rows], device=device) for value in (label_of, weight_of))
    weight = torch.tensor([1.0 if r['kind'] == 'graded' else r.get('weight') or 0.0 for r in rows], device=device)
    use, aside, loss = label.cpu().numpy() > .5, np.array(left_aside(rows)), of.binary_cross_entropy_with_logits
    of_some = lambda *kinds: np.flatnonzero(np.isin(kind, kinds) & ~aside)
    few, drawn = Counter(), np.random.RandomState(1).permutation(of_some('papers'))
    of_papers = [i for i in drawn if use[i] or few.update([rows[i]['question']]) or few[rows[i]['question']] <= OF_NO_USE]
    tests, figures = {'papers': np.flatnonzero(aside & (kind == 'papers'))}, {}
    fresh = np.array([bool(o) and r['kind'] == 'graded' and r['id'][0] in FRESH for r, o in zip(rows, aside)])
    place = np.array([r.get('library', '') for r in rows])
    tests |= {str(p): np.flatnonzero(fresh & (place == p)) for p in dict.fromkeys(place[fresh])}
    test = np.concatenate([*tests.values(), np.flatnonzero(aside & (kind == 'graded') & ~fresh)])
    def tell(name: str, odds: np.ndarray):
        figures[name] = {p: round(auroc(odds[some[use[some]]], odds[some[~use[some]]]), 4) for p, some in tests.items()}
        print(name, figures[name], f'{time.time() - start:.0f} s', flush=True)

    large = AutoTokenizer.from_pretrained(a.teacher)
    pairs, said = Pairs(large, rows), np.zeros(len(rows))
    hard = lambda out, part: (loss(out, label[part], reduction='none') * weight[part]).mean()
    stages = {'written': of_some('written', 'judged', 'papers'), 'graded': np.array([*of_some('graded'), *sorted(of_papers)])}
    for seed in range(a.teachers):
        torch.manual_seed(seed)
        teacher = Teacher(a.teacher)
        for name, some in stages.items(): teacher = trained(teacher, pairs, some, hard, TEACHER[name], name, a.steps, seed)
        odds = read(teacher, pairs, np.arange(len(rows)))
        tell(f'teacher {seed}', odds)
        said += odds / a.teachers
        del teacher
    tell('the large networks', said)
    tokenizer, begun = AutoTokenizer.from_pretrained(a.pairs), torch.load(a.pairs / 'begun.pt', weights_only=True)
    n, pairs = len(rows), Pairs(tokenizer, [*rows, *(r | {'asked': r['question']} for r in rows)])
    both = lambda network: read(network, pairs, np.concatenate([test, test + n])).reshape(2, n).mean(0)
    soft = torch.tensor(said, dtype=torch.float, device=device).sigmoid()
    def taught(out, part):
        at = part % n
        return loss(out, soft[at]) + (loss(out, label[at], reduction='none') * known[at]).mean()
    every, others = of_some('graded'), np.flatnonzero(~aside & (kind != 'graded'))
    once = others + n * np.random.default_rng(0).integers(0, 2, len(others))
    for own in a.own:
        torch.manual_seed(0)
        student = Student({name: w.float() for name, w in begun.items()}, tokenizer, own)
        tell('before', both(student)) if 'before' not in figures else None
        student = trained(student, pairs, np.concatenate([every, every + n, once]), taught, STUDENT, f'student of {own}', a.steps)
        odds, out = both(student), a.out / f'own{own}'
        tell('after', odds)
        out.mkdir(parents=True, exist_ok=True)
        mine = lambda name: name.startswith('head') or name.startswith('bert.encoder.layer') and int(name.split('.')[3]) >= FROZEN
        torch.save({name: w.half().cpu() for name, w in student.state_dict().items() if mine(name)}, out / 'answer.pt')
        (out / 'odds.json').write_text(json.dumps({
            'figures': figures, 'n': {p: len(some) for p, some in tests.items()}, 'pairs': dict(Counter(kind[~aside].tolist())), 'own': own,
            'device': torch.cuda.get_device_name() if device == 'cuda' else 'cpu', 'torch': torch.__version__,
            'left_out': {str(rows[i]['row']): round(float(odds[i]), 3) for i in np.flatnonzero(fresh)}}))


if __name__ == '__main__': main()
