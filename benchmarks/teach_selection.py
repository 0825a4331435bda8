"""Teaches the answer network what a large network says of questions and sentences, and what is known of them.

    python benchmarks/teach_selection.py PAIRS [--said answer.npy] --out TAUGHT      (a minute on an H100)
    python benchmarks/teach_selection.py PAIRS --out TAUGHT --beside 20000 --seconds 2400     (on two cores)

PAIRS is what `train_selection.py pairs` wrote, answer.npy what teach_large.py says of them; without it the student keeps to what it said
itself before it learnt. It needs torch, transformers and tokenizers alone, so that it runs where cpqa is not installed.

The student begins as the network in the package, and reads each pair in both
wordings of the question, those that nobody graded too. Each weighs in with what the large network says of it, and those that were labelled
with their label as well. Questions for one paper in four, and one in five of patients' questions, are kept from all of it (`left_aside`):
what is said of them is told, of patients' questions only as far as the network in the package had not learnt from them earlier. What was
judged for known questions is learnt by its label alone; rows say themselves (`aside`) which of these questions are kept from it.
TAUGHT gets answer.pt and figures.json. --steps is the most of the training.
"""
import argparse
import json
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as of
from transformers import AutoTokenizer, BertConfig, BertModel

FROZEN, TOKENS = 2, 160
PAPERS_ASIDE, PATIENTS_ASIDE = 4, 5      # one in so many
STUDENT = (4, 192, 2.5e-4, 8e-4)         # epochs, pairs a step, rate of the body and of the head
SLOWLY = (4, 64, 1.2e-4, 5e-4)           # without a GPU
FRESH = 'kmn'                            # ids of patients' questions from which the network before had learnt nothing
WORTH = {0: .02, 1: .8, 2: 1.0}          # what a grade counts
device = 'cuda' if torch.cuda.is_available() else 'cpu'


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
    "Questions beside texts, as tokens of a network; they lie on the device, where a batch is put together. `kept` holds them between runs."
    def __init__(self, tokenizer, rows: list[dict], cut: str = 'longest_first', most: int = TOKENS, kept: Path | None = None):
        if kept and kept.exists(): held = dict(np.load(kept))
        else:
            told = tokenizer([r['asked'] for r in rows], [r['said'] for r in rows], truncation=cut, max_length=most)
            held = {name: np.concatenate(told[name]).astype(np.uint16) for name in ('input_ids', 'token_type_ids') if name in told}
            held['lengths'] = np.array([len(ids) for ids in told['input_ids']])
            if kept: np.savez_compressed(kept, **held)
        if len(held['lengths']) != len(rows): raise SystemExit(f'{kept} is of other pairs: delete it')
        self.hold(tokenizer, held)

    def hold(self, tokenizer, held: dict):
        self.lengths = held['lengths']
        on_device = lambda values: torch.as_tensor(np.asarray(values, dtype=np.int64), device=device)
        self.flat = {name: on_device(held[name]) for name in held if name != 'lengths'}
        self.starts, self.ends = (on_device(np.cumsum(self.lengths) - back) for back in (self.lengths, 0))
        self.padding = {'input_ids': tokenizer.pad_token_id, 'token_type_ids': 0}

    def fed(self, some) -> dict:
        some = np.asarray(some)
        rows, longest = torch.as_tensor(some, device=device), -(-int(self.lengths[some].max()) // 8) * 8
        at = self.starts[rows][:, None] + torch.arange(longest, device=device)
        there = at < self.ends[rows][:, None]
        fed = {name: torch.where(there, values[at.clamp(max=len(values) - 1)], self.padding[name]) for name, values in self.flat.items()}
        return fed | {'attention_mask': there.long()}


def said(network, fed: dict):
    fast = device == 'cuda' or torch.cpu._is_avx512_bf16_supported()   # elsewhere halves are slower than wholes
    with torch.autocast(device, dtype=torch.bfloat16, enabled=fast): return network(**fed)


def trained(network, pairs: Pairs, rows: np.ndarray, loss_of, settings, told: str, most: int, seconds: float = 0):
    "The network, trained on these rows until they or the seconds are over; `loss_of` gets what it says of some, and their places."
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
    for step, part in enumerate(parts):
        share = max(step / len(parts), (time.time() - begun) / seconds if seconds else 0)
        if share >= 1: break
        slowly = min(1, (step + 1) / (warm + 1)) * max(.02, 1 - share)
        for group, rate in zip(optimizer.param_groups, (body, end)): group['lr'] = rate * slowly
        if step % 250 == 0: print(f'{told}: {step} of {len(parts)} steps, {time.time() - begun:.0f} s', flush=True)
        loss = loss_of(said(network, pairs.fed(part)), torch.as_tensor(np.array(part), device=device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_([w for _, w in taught], 1.0)
        optimizer.step(), optimizer.zero_grad(set_to_none=True)
    print(f'{told}: {step + 1} steps, {time.time() - begun:.0f} s, loss {float(loss.detach()):.3f}', flush=True)
    return network.eval()


@torch.no_grad()   # not inference mode: a buffer made there cannot be learnt with
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


def one_in(n: int, name: str) -> bool: return bool(name) and zlib.crc32(name.encode()) % n == 0


def left_aside(rows: list[dict]) -> list[bool]:
    "Whose question is kept from every network that learns: of one paper in four, and one in five of patients' questions."
    of_papers = {r['question'] for r in rows if r['kind'] == 'papers' and one_in(PAPERS_ASIDE, r['doc'])}
    return [r['question'] in of_papers or one_in(PATIENTS_ASIDE, r.get('id', '')) or r.get('aside', False) for r in rows]


def auroc(high: np.ndarray, low: np.ndarray) -> float:
    "The share of pairs in which the first is higher; even ones count half."
    order = np.sort(low)
    return float((np.searchsorted(order, high, 'left') + np.searchsorted(order, high, 'right')).mean() / 2 / max(1, len(low)))


def tested(rows: list[dict]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    "The rows of each test, and whether a row is of a question from which no network learnt."
    aside, kind, place = np.array(left_aside(rows)), np.array([r['kind'] for r in rows]), np.array([r.get('library', '') for r in rows])
    fresh = np.array([r['kind'] == 'graded' and r['id'][0] in FRESH and one_in(PATIENTS_ASIDE, r['id']) for r in rows])
    left = {name: np.flatnonzero(aside & (kind == name))[::each] for name, each in (('papers', 1), ('known', 3))}
    return left | {str(p): np.flatnonzero(fresh & (place == p)) for p in dict.fromkeys(place[fresh])}, fresh


def told(odds: np.ndarray, rows: list[dict], tests: dict[str, np.ndarray]) -> dict[str, float]:
    "How well the log odds tell what is of use from what is not, in each test."
    use = np.array([label_of(r) > .5 for r in rows])
    return {p: round(auroc(odds[some[use[some]]], odds[some[~use[some]]]), 4) for p, some in tests.items()}


def both_wordings(network, pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    "The mean of what is said of these rows in both wordings of the question, the second half of the pairs; of others nought."
    n = len(pairs.lengths) // 2
    return read(network, pairs, np.concatenate([rows, rows + n])).reshape(2, n).mean(0)


def as_student(folder: Path, rows: list[dict]) -> tuple[dict, Pairs, object]:
    "The weights that a student begins as, its pairs in both wordings, and its tokenizer."
    tokenizer = AutoTokenizer.from_pretrained(folder)
    begun = {name: w.float() for name, w in torch.load(folder / 'begun.pt', weights_only=True).items()}
    return begun, Pairs(tokenizer, [*rows, *(r | {'asked': r['question']} for r in rows)], kept=folder / 'tokens.npz'), tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('pairs', type=Path, help='a folder of `train_selection.py pairs`')
    parser.add_argument('--said', type=Path, help='answer.npy of teach_large.py')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--beside', type=int, default=0, help='so many pairs of other than known questions are drawn; 0: all')
    parser.add_argument('--steps', type=int, default=0, help='at most; 0: all')
    parser.add_argument('--seconds', type=float, default=0, help='of the training, at most; 0: all')
    a = parser.parse_args()
    start = time.time()
    rows = [json.loads(line) for line in open(a.pairs / 'pairs.jsonl', encoding='utf-8')]
    kind = np.array([r['kind'] for r in rows])
    label, known = (torch.tensor([value(r) for r in rows], device=device) for value in (label_of, weight_of))
    aside, loss = np.array(left_aside(rows)), of.binary_cross_entropy_with_logits
    of_some = lambda *kinds: np.flatnonzero(np.isin(kind, kinds) & ~aside)
    tests, figures = tested(rows)[0], {}
    test = np.unique(np.concatenate([*tests.values()]))
    def tell(name: str, odds: np.ndarray):
        figures[name] = told(odds, rows, tests)
        print(name, figures[name], f'{time.time() - start:.0f} s', flush=True)

    (begun, pairs, tokenizer), n = as_student(a.pairs, rows), len(rows)
    every, others = of_some('graded'), np.flatnonzero(~aside & (kind != 'graded'))
    torch.manual_seed(0)
    student = Student(begun, tokenizer)
    if a.beside:   # half of them graded, in both wordings
        drawn = lambda some, most: np.random.default_rng(0).permutation(some)[:most]
        others = np.concatenate([others[kind[others] == 'known'], drawn(others[kind[others] != 'known'], a.beside // 2)])
        every = drawn(every, a.beside // 4)
    if a.said: said = np.load(a.said).astype(float)
    else:
        before = np.concatenate([every, others, test])
        said = both_wordings(student, pairs, np.unique(before[(kind[before] != 'known') | np.isin(before, test)]))
    tell('the large network' if a.said else 'before', said)
    others = others[~np.isnan(said[others])]
    said[kind == 'known'] = np.array([9 if label_of(r) > .5 else -9 for r in rows])[kind == 'known']   # by its label alone
    soft = torch.tensor(np.nan_to_num(said), dtype=torch.float, device=device).sigmoid()
    def taught(out, part):
        at = part % n
        return loss(out, soft[at]) + (loss(out, label[at], reduction='none') * known[at]).mean()
    once = others + n * np.random.default_rng(0).integers(0, 2, len(others))
    if a.said: tell('before', both_wordings(student, pairs, test))
    student = trained(student, pairs, np.concatenate([every, every + n, once]), taught,
                      STUDENT if device == 'cuda' else SLOWLY, 'student', a.steps, a.seconds)
    tell('after', both_wordings(student, pairs, test))
    a.out.mkdir(parents=True, exist_ok=True)
    mine = lambda name: name.startswith('head') or name.startswith('bert.encoder.layer') and int(name.split('.')[3]) >= FROZEN
    torch.save({name: w.half().cpu() for name, w in student.state_dict().items() if mine(name)}, a.out / 'answer.pt')
    (a.out / 'figures.json').write_text(json.dumps({
        'figures': figures, 'pairs': dict(Counter(kind[[*every, *others]].tolist())),
        'device': torch.cuda.get_device_name() if device == 'cuda' else 'cpu', 'torch': torch.__version__}))


if __name__ == '__main__': main()
