"""Teaches the stance network what a large network says of pairs, and what is known of them.

    python benchmarks/teach_stance.py PAIRS --said stance.npy --out DIR [--epochs 6]      (two minutes on an H100)

PAIRS is what `taught_stance.py pairs` wrote, stance.npy what teach_large.py says of them; of pairs that it did not read nothing is learnt.
On two cores `--few 2` reads the pairs of so many epochs once, half an hour each. It needs torch, transformers, tokenizers alone.
The student begins as the network in the package; its vocabulary and first two layers, which the answer network stands on, stay as they are.
DIR gets stance.pt, figures.json (of pairs that nothing learnt from: before, the large network, after) and odds.npz, what is said of these.
"""
import argparse
import json
import lzma
import time
from pathlib import Path

import numpy as np
import torch
from teach_selection import FROZEN, Pairs, auroc, device, read, trained
from torch.nn import functional as of
from transformers import AutoTokenizer, BertConfig, BertModel

TOKENS, SMOOTHING, SOFT = 176, .02, 2.0
STUDENT = (6, 256, 3e-4, 6e-4)           # epochs, pairs a step, rate of the body and of the head
FEW, DRAWN = (1, 64, 2e-4, 5e-4), {'general': 3_000, 'open': 30_000}   # of an epoch
WORTH = {'made': .5, 'general': .3}      # what a pair counts; others one
MEASURED = ('dev ', 'statements ', 'healthver', 'nli4ct')


class Small(torch.nn.Module):
    "The network of the package, as cpqa.training.stance_network has it; gives the four logits."
    def __init__(self, state: dict, truth: torch.Tensor, tokenizer):
        super().__init__()
        form = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        self.tokenizer, self.bert = tokenizer, BertModel(form, add_pooling_layer=False)
        self.hidden, self.drop, self.head = torch.nn.Linear(768, 384), torch.nn.Dropout(.1), torch.nn.Linear(384, 13)
        odd = self.load_state_dict(state, strict=False)
        if odd.unexpected_keys or set(odd.missing_keys) - {'bert.embeddings.position_ids'}: raise SystemExit(f'not the same network: {odd}')
        self.register_buffer('truth', truth, persistent=False)
        for part in (self.bert.embeddings, *self.bert.encoder.layer[:FROZEN]): part.requires_grad_(False)
        for part in self.bert.modules():
            if isinstance(part, torch.nn.Dropout): part.p = 0.0
        for layer in self.bert.encoder.layer[FROZEN:]:
            for part in layer.modules():
                if isinstance(part, torch.nn.Dropout): part.p = .05

    def forward(self, **fed):
        hidden, there = self.bert(**fed).last_hidden_state, fed['attention_mask'][..., None]
        both = torch.cat([hidden[:, 0], (hidden * there).sum(1) / there.sum(1)], -1)
        n = self.head(self.drop(self.hidden(both).tanh())).float()
        other, told, said = n[:, 3].sigmoid(), n[:, 4:10].softmax(-1), n[:, 10:13].softmax(-1)
        more, less, same = said.unbind(-1)
        done = torch.stack([more * (1 - other) + less * other, less * (1 - other) + more * other, same], -1)
        agree = (told.matmul(self.truth) * done).sum(-1).clamp(1e-3, 1 - 1e-3)
        way, on, log = agree.log() - (1 - agree).log() + n[:, 2], n[:, 1], of.logsigmoid
        return torch.stack([n[:, 0], log(on) + log(-way), log(-on), log(on) + log(way)], -1)


def figures(rows: list[dict], odds: np.ndarray) -> dict:
    "Of pairs that nothing learnt from; a statement of NLI4CT goes by the surest of its pieces of evidence."
    kind, way, finding, group = (np.array([r[name] for r in rows]) for name in ('kind', 'way', 'finding', 'group'))
    log, out = odds[:, 1:] - np.logaddexp.reduce(odds[:, 1:], axis=1, keepdims=True), {}
    side = np.exp(log[:, 2]) - np.exp(log[:, 0])
    for name in dict.fromkeys(kind):
        some = kind == name
        if name == 'dev finding':
            ranks = [int((odds[mine, 0][finding[mine] == 0] > odds[mine, 0][finding[mine] == 1].max()).sum())
                     for mine in (some & (group == g) for g in dict.fromkeys(group[some]))]
            out[name] = {'first': float(np.mean(np.array(ranks) < 1)), 'three': float(np.mean(np.array(ranks) < 3))}
        elif name.startswith('dev way'): out[name] = {'right': float(np.mean((side[some] > 0) == (way[some] == 2)))}
        elif name == 'nli4ct':
            best, truth = {}, {}
            for g, s, w in zip(group[some], side[some], way[some]):
                if abs(s) > abs(best.get(g, 0)): best[g] = s
                truth[g] = w == 2
            out[name] = {'entailed': auroc(*(np.array([best.get(g, 0.0) for g in truth if truth[g] == w]) for w in (True, False)))}
        elif not name.startswith('statements'):
            out[name] = {what: auroc(side[some & (way == 2)], side[some & (way == w)]) for what, w in (('refuted', 0), ('neither', 1))}
    true = side[np.isin(kind, ('statements ', 'statements =figure'))]
    for name in ('direction', 'negation', 'reversed', 'outcome', 'article'):
        if (kind == f'statements {name}').any(): out[f'statements {name}'] = {'true': auroc(true, side[kind == f'statements {name}'])}
    return {name: {what: round(float(v), 4) for what, v in told.items()} | {'n': int((kind == name).sum())} for name, told in out.items()}


def few(every: np.ndarray, rows: list[dict], epochs: int) -> np.ndarray:
    "The pairs of the first epochs; of some kinds so many that are drawn."
    rng, kind = np.random.default_rng(0), np.array([rows[i]['kind'] for i in every])
    first = np.array([rows[i]['group'] < epochs for i in every])
    return np.concatenate([rng.permutation(mine)[:epochs * DRAWN[k]] if k in DRAWN else mine
                           for k in dict.fromkeys(kind) for mine in [every[first & (kind == k)]]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('pairs', type=Path, help='a folder of `taught_stance.py pairs`')
    parser.add_argument('--said', type=Path, required=True, help='stance.npy of teach_large.py')
    parser.add_argument('--few', type=int, help='in place of --epochs, the pairs of so many are read once: half an hour each on two cores')
    parser.add_argument('--epochs', type=int, default=STUDENT[0])
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--steps', type=int, default=0, help='at most')
    parser.add_argument('--seconds', type=float, default=0, help='of the training, at most; 0: all')
    a = parser.parse_args()
    start = time.time()
    with lzma.open(a.pairs / 'pairs.jsonl.xz', 'rt', encoding='utf-8') as f: rows = [json.loads(line) for line in f]
    kind = np.array([r['kind'] for r in rows])
    aside = np.array([k.startswith(MEASURED) for k in kind])
    finding, way = (torch.tensor([r[name] for r in rows], device=device) for name in ('finding', 'way'))
    weight = torch.tensor([WORTH.get(k, 1.0) for k in kind], device=device)
    said = np.load(a.said).astype(float)
    tests, every = np.flatnonzero(aside), np.flatnonzero(~aside & ~np.isnan(said[:, 0]))
    told, asked = {}, [rows[i] for i in tests]
    print(len(rows), len(every), len(tests), f'{time.time() - start:.0f} s', flush=True)

    def hard(out, part):
        f, w = finding[part], way[part]
        a = of.binary_cross_entropy_with_logits(out[:, 0], (f == 1).float(), reduction='none') * (f >= 0)
        b = of.cross_entropy(out[:, 1:], w.clamp(min=0), reduction='none', label_smoothing=SMOOTHING) * (w >= 0)
        return ((a + b) * weight[part]).mean()
    def tell(name: str, odds: np.ndarray):
        told[name] = figures(asked, odds)
        print(name, f'{time.time() - start:.0f} s', json.dumps(told[name]), flush=True)

    tokenizer = AutoTokenizer.from_pretrained(a.pairs)
    small = Small({n: w.float() for n, w in torch.load(a.pairs / 'begun.pt', weights_only=True).items()},
                  torch.load(a.pairs / 'truth.pt', weights_only=True), tokenizer)
    own = Pairs(tokenizer, rows, most=TOKENS, kept=a.pairs / 'tokens.npz')
    tell('before', read(small.to(device), own, tests)[tests])
    tell('large', said[tests])
    soft = torch.tensor(np.nan_to_num(said), dtype=torch.float, device=device)
    on, ways = soft[:, 0].sigmoid(), soft[:, 1:].softmax(-1)
    def taught(out, part):
        a = of.binary_cross_entropy_with_logits(out[:, 0], on[part], reduction='none')
        b = of.kl_div(out[:, 1:].log_softmax(-1), ways[part], reduction='none').sum(-1)
        return hard(out, part) + SOFT * ((a + b) * weight[part]).mean()
    read_by_student = few(every, rows, a.few) if a.few else every
    small = trained(small, own, read_by_student, taught, FEW if a.few else (a.epochs, *STUDENT[1:]), 'student', a.steps, a.seconds)
    odds = read(small, own, tests)[tests]
    tell('after', odds)
    a.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(a.out / 'odds.npz', large=said[tests].astype(np.float16), student=odds.astype(np.float16))
    mine = lambda name: not name.startswith('bert') or 'encoder.layer.' in name and int(name.split('.')[3]) >= FROZEN
    torch.save({name: w.half().cpu() for name, w in small.state_dict().items() if mine(name)}, a.out / 'stance.pt')
    machine = torch.cuda.get_device_name() if device == 'cuda' else 'cpu'
    counts = {str(k): int((kind[read_by_student] == k).sum()) for k in dict.fromkeys(kind)}
    (a.out / 'figures.json').write_text(json.dumps({'figures': told, 'pairs': counts, 'device': machine, 'torch': torch.__version__}))


if __name__ == '__main__': main()
