"""Teaches a large network what is known of pairs, and asks it of pairs that nobody judged; the networks that ship learn from what it says.

    python benchmarks/teach_large.py pack MODEL.gguf STANCE ANSWER PACKED [--layers 18]         here: its weights, and the pairs as tokens
    python benchmarks/teach_large.py learn PACKED --out SAID [--seconds 240]                    on a GPU of 80 GB

MODEL is Qwen2.5-Coder-1.5B-Instruct (Apache-2.0), whose first layers learn, all but the vocabulary. STANCE is what `taught_stance.py pairs`
wrote and ANSWER what `train_selection.py pairs` wrote. A pair is a line with the claim or question, one with the passage, and a last word,
over which a head stands: whether the passage carries the finding and which way it speaks of a claim; whether it answers a question. Both
tasks are learnt at once, in one pass over the pairs or until the seconds are over (the rates fall with whichever comes first).
PACKED gets all that `learn` needs: weights.bin (the blocks of the file as they are) with index.json, packed.npz (the pairs as tokens) and
tests.json; it runs where torch, numpy and transformers are. SAID gets stance.npy (finding; no, unclear, yes) and answer.npy (answers), a
row for each pair, not a number where it was not read, and figures.json.
"""
import argparse
import json
import lzma
import time
from pathlib import Path

import numpy as np
import torch
from teach_selection import label_of, left_aside
from teach_stance import MEASURED, figures
from torch.nn import functional as of

TOKENS, BUDGET, RATE, HEAD_RATE, CLIP, SMOOTHING = 192, 9000, 1.5e-5, 5e-4, 1.0, .02
ASKED = {'stance': ('Claim: ', '\nPassage: ', '\nVerdict:'), 'answer': ('Question: ', '\nPassage: ', '\nAnswered:')}
# of the epochs that were drawn, what is learnt and what is read; of others none and all
LEARNT = {'made': .5, 'trials': .75, 'general': .5, 'claims': 1.6, 'like_models': 1.6, 'as_told': 1.6, 'yes-no': 2}
READ = {'made': .5, 'trials': 1.3, 'general': .5, 'claims': 2, 'like_models': 2, 'as_told': 2, 'open': .65}
READ_OPEN = .45                                    # of the answers that nobody judged
WORTH = {'made': .5, 'general': .3}                # what a pair of stance counts; others one
TWICE = ('graded',)                                # kinds of answers that are learnt twice
Q4_K, Q6_K, F32 = 12, 14, 0                        # of the file: types, with bytes of a block of 256
BLOCK = {Q4_K: 144, Q6_K: 210}
HEADS, KEPT, WIDTH, THETA, SMALL = 12, 2, 128, 1e6, 1e-6
device = 'cuda' if torch.cuda.is_available() else 'cpu'


def plain(said: str) -> str:
    "Without the marks that join words to the question: this network joins them itself."
    return ' '.join(said.replace('★ ', '').replace('● ', '').split())


def pair_rows(stance: Path, answer: Path) -> list[dict]:
    "What is known of all pairs, in the order of their files: task, texts, whether they are learnt from and read, labels."
    with lzma.open(stance / 'pairs.jsonl.xz', 'rt', encoding='utf-8') as f: rows = [json.loads(line) for line in f]
    rng, out = np.random.default_rng(0), []
    for r in rows:
        test, chance = r['kind'].startswith(MEASURED), rng.random()
        within = lambda share: r['group'] + chance < share   # the first epochs, and a share of the next
        known, epochs = r['finding'] >= 0 or r['way'] >= 0, LEARNT.get(r['kind'], 0)
        out.append({'task': 'stance', 'asked': r['asked'], 'said': plain(r['said']), 'kind': r['kind'], 'group': r['group'],
                    'learn': int(not test and known and within(epochs)), 'read': test or within(READ.get(r['kind'], 9)),
                    'finding': r['finding'], 'way': r['way'], 'label': 0.0, 'weight': WORTH.get(r['kind'], 1.0)})
    rows = [json.loads(line) for line in (answer / 'pairs.jsonl').read_text().splitlines()]
    for r, aside in zip(rows, left_aside(rows)):
        weight = 1.0 if r['kind'] == 'graded' else r.get('weight') or 0.0
        out.append({'task': 'answer', 'asked': r['question'], 'said': plain(r['said']), 'kind': r['kind'], 'group': 0,
                    'read': r['kind'] != 'open' or rng.random() < READ_OPEN,
                    'learn': 0 if aside or not weight else 1 + (r['kind'] in TWICE), 'finding': -1, 'way': -1, 'label': label_of(r),
                    'weight': weight})
    return out


def pack(gguf: Path, stance: Path, answer: Path, out: Path, layers: int):
    from gguf import GGUFReader
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer
    rows, file = pair_rows(stance, answer), {t.name: t for t in GGUFReader(gguf).tensors}
    out.mkdir(parents=True, exist_ok=True)
    words: Tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).backend_tokenizer
    ids_of = lambda texts: [e.ids for e in words.encode_batch_fast(texts, add_special_tokens=False)]
    marks = {task: [ids_of([m])[0] for m in three] for task, three in ASKED.items()}
    flat, lengths = [], []
    for at in range(0, len(rows), 20_000):
        some = rows[at:at + 20_000]
        for r, asked, said in zip(some, ids_of([r['asked'] for r in some]), ids_of([r['said'] for r in some])):
            before, between, end = marks[r['task']]
            asked = asked[:TOKENS // 2]
            said = said[:TOKENS - len(asked) - len(before) - len(between) - len(end)]
            ids = [*before, *asked, *between, *said, *end] if r['read'] or r['learn'] else []
            flat.append(np.array(ids, dtype=np.int32))
            lengths.append(len(ids))
    used, own = np.unique(np.concatenate(flat), return_inverse=True)
    if len(used) > 1 << 16: raise SystemExit(f'{len(used)} different tokens: 65,536 at most')
    columns = {name: np.array([r[name] for r in rows], dtype=kind) for name, kind in
               (('learn', np.int8), ('finding', np.int8), ('way', np.int8), ('label', np.float32), ('weight', np.float32))}
    np.savez_compressed(out / 'packed.npz', flat=own.astype(np.uint16), lengths=np.array(lengths, dtype=np.uint16),
                        answer=np.array([r['task'] == 'answer' for r in rows]), **columns)
    tests = [i for i, r in enumerate(rows) if r['task'] == 'stance' and r['kind'].startswith(MEASURED)]
    (out / 'tests.json').write_text(json.dumps([[i, rows[i]['kind'], rows[i]['way'], rows[i]['finding'], rows[i]['group']] for i in tests]))
    index, names = {}, [f'blk.{n}.{part}' for n in range(layers) for part in
                        ('attn_norm.weight', 'attn_q.weight', 'attn_q.bias', 'attn_k.weight', 'attn_k.bias', 'attn_v.weight', 'attn_v.bias',
                         'attn_output.weight', 'ffn_norm.weight', 'ffn_gate.weight', 'ffn_up.weight', 'ffn_down.weight')]
    with open(out / 'weights.bin', 'wb') as f:
        for name in ['token_embd.weight', *names]:
            t = file[name]
            data = t.data[used] if name.startswith('token') else t.data   # a row of blocks each
            shape = [int(n) for n in reversed(t.shape)]
            if name.startswith('token'): shape[0] = len(used)
            index[name] = [f.tell(), int(t.tensor_type), shape]
            f.write(np.ascontiguousarray(data).tobytes())
    (out / 'index.json').write_text(json.dumps(index))
    print(len(rows), len(used), int(np.sum(columns['learn'], dtype=int)), sum(bool(n) for n in lengths), sum(lengths),
          (out / 'weights.bin').stat().st_size, (out / 'packed.npz').stat().st_size)


def numbers(raw: torch.Tensor, kind: int, shape: list[int]) -> torch.Tensor:
    "Blocks of 4 and 6 bits as numbers (llama.cpp's Q4_K and Q6_K: 256 numbers, their scales in parts of 32 and 16)."
    if kind == F32: return raw.view(torch.float32).reshape(shape)
    b = raw.reshape(-1, BLOCK[kind])
    half = lambda some: some.contiguous().view(torch.float16).float()
    if kind == Q4_K:
        d, least, s, q = half(b[:, 0:2]), half(b[:, 2:4]), b[:, 4:16].int(), b[:, 16:]
        low, high = s[:, 0:4], s[:, 4:8]
        scale = torch.cat([low & 63, (s[:, 8:12] & 15) | (low >> 6 << 4)], 1).float() * d
        off = torch.cat([high & 63, (s[:, 8:12] >> 4) | (high >> 6 << 4)], 1).float() * least
        q = q.reshape(-1, 4, 1, 32)
        q = torch.cat([q & 15, q >> 4], 2).reshape(-1, 8, 32).float()
        return (q * scale[..., None] - off[..., None]).reshape(shape)
    low, high, s, d = b[:, :128], b[:, 128:192], b[:, 192:208].contiguous().view(torch.int8).float(), half(b[:, 208:210])
    low, high = low.reshape(-1, 2, 2, 32), high.reshape(-1, 2, 1, 32)
    four = torch.stack([low & 15, low >> 4], 2).reshape(-1, 2, 4, 32)
    two = torch.cat([high >> k & 3 for k in (0, 2, 4, 6)], 2)
    q = (four | two << 4).reshape(-1, 16, 16).float() - 32
    return (q * (s * d)[..., None]).reshape(shape)


class Layer(torch.nn.Module):
    "A layer of Qwen2: attention of 12 heads over 2 kept ones, turned by place, then the gated network."
    def __init__(self, get, n: int):
        super().__init__()
        at, own = (lambda name: get(f'blk.{n}.{name}')), torch.nn.Parameter
        three = lambda what: torch.cat([at(f'attn_{part}.{what}') for part in 'qkv'])
        self.norm, self.out = own(at('attn_norm.weight')), own(at('attn_output.weight'))
        self.three, self.bias = own(three('weight')), own(three('bias'))
        self.norm2, self.down = own(at('ffn_norm.weight')), own(at('ffn_down.weight'))
        self.two = own(torch.cat([at('ffn_gate.weight'), at('ffn_up.weight')]))

    def forward(self, x, cos, sin):
        n, t, width = x.shape
        q, k, v = of.linear(of.rms_norm(x, (width,), self.norm, SMALL), self.three, self.bias).view(n, t, -1, WIDTH).transpose(1, 2).split(
            [HEADS, KEPT, KEPT], 1)
        turned = lambda a: a * cos + torch.cat([-a[..., WIDTH // 2:], a[..., :WIDTH // 2]], -1) * sin
        said = of.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + of.linear(said.transpose(1, 2).reshape(n, t, -1), self.out)
        gate, up = of.linear(of.rms_norm(x, (width,), self.norm2, SMALL), self.two).chunk(2, -1)
        return x + of.linear(of.silu(gate) * up, self.down)


class Large(torch.nn.Module):
    "The first layers, and five outputs over the last word: the finding; no, unclear, yes; answers."
    def __init__(self, folder: Path, kind=torch.bfloat16):
        super().__init__()
        index, raw = json.loads((folder / 'index.json').read_text()), np.memmap(folder / 'weights.bin', dtype=np.uint8, mode='r')
        def get(name):
            start, type, shape = index[name]
            n = int(np.prod(shape)) * 4 if type == F32 else int(np.prod(shape)) // 256 * BLOCK[type]
            return numbers(torch.from_numpy(np.array(raw[start:start + n])).to(device), type, shape).to(kind)
        self.register_buffer('vocabulary', get('token_embd.weight'))
        self.layers = torch.nn.ModuleList(Layer(get, n) for n in range(sum(name.endswith('ffn_down.weight') for name in index)))
        width = self.vocabulary.shape[1]
        self.norm = torch.nn.Parameter(torch.ones(width, dtype=kind, device=device))
        self.head = torch.nn.Linear(width, 5, device=device, dtype=kind)
        self.head.weight.data.mul_(.3), self.head.bias.data.zero_()
        turn = torch.arange(TOKENS + 8, device=device)[:, None] / THETA ** (torch.arange(0, WIDTH, 2, device=device) / WIDTH)
        turn = torch.cat([turn, turn], -1)
        self.register_buffer('cos', turn.cos().to(kind)), self.register_buffer('sin', turn.sin().to(kind))

    def forward(self, ids, last):
        x = self.vocabulary[ids]
        for layer in self.layers: x = layer(x, self.cos[:ids.shape[1]], self.sin[:ids.shape[1]])
        x = x[torch.arange(len(x), device=x.device), last]
        return self.head(of.rms_norm(x, (x.shape[1],), self.norm, SMALL)).float()


class Tokens:
    "The pairs of packed.npz, on the device."
    def __init__(self, folder: Path):
        held = np.load(folder / 'packed.npz')
        self.lengths, self.flat = held['lengths'].astype(np.int64), torch.from_numpy(held['flat'].astype(np.int32)).to(device)
        self.starts = torch.from_numpy(np.cumsum(self.lengths) - self.lengths).to(device)
        self.learn, self.answer = held['learn'], held['answer']
        self.known = {n: torch.from_numpy(held[n]).to(device) for n in ('finding', 'way', 'label', 'weight', 'answer')}

    def fed(self, part: np.ndarray):
        lengths = torch.from_numpy(self.lengths[part]).to(device)
        places = torch.arange(-(-int(self.lengths[part].max()) // 8) * 8, device=device)
        at = (self.starts[torch.from_numpy(part).to(device)][:, None] + places).clamp(max=len(self.flat) - 1)
        return torch.where(places < lengths[:, None], self.flat[at], 0).long(), lengths - 1

    def parts(self, order: np.ndarray, budget: int) -> list[np.ndarray]:
        "Pieces of an order that grow in length, each of so many tokens at most."
        out, begin = [], 0
        for end in range(1, len(order) + 1):
            if end == len(order) or (end + 1 - begin) * (-(-int(self.lengths[order[end]]) // 8) * 8) > budget:
                out.append(order[begin:end])
                begin = end
        return out


def loss_of(out, known: dict, part) -> torch.Tensor:
    f, w, answer = known['finding'][part].long(), known['way'][part].long(), known['answer'][part]
    a = of.binary_cross_entropy_with_logits(out[:, 0], (f == 1).float(), reduction='none') * (f >= 0)
    b = of.cross_entropy(out[:, 1:4], w.clamp(min=0), reduction='none', label_smoothing=SMOOTHING) * (w >= 0)
    c = of.binary_cross_entropy_with_logits(out[:, 4], known['label'][part], reduction='none')
    return (torch.where(answer, c, a + b) * known['weight'][part]).sum() / 100   # a piece of long pairs has fewer


def learnt(network: Large, pairs: Tokens, seconds: float, steps: int) -> int:
    rng, begun = np.random.default_rng(0), time.time()
    order, parts = rng.permutation(np.repeat(np.arange(len(pairs.learn)), pairs.learn)), []
    for i in range(0, len(order), 6000):
        some = order[i:i + 6000]
        parts += pairs.parts(some[np.argsort(pairs.lengths[some], kind='stable')], BUDGET)
    parts = [parts[i] for i in rng.permutation(len(parts))][:steps or None]
    weights = [w for w in network.parameters() if w.requires_grad]
    whole = [w.detach().float().clone() for w in weights]   # 32 bits, where small steps count
    top = {id(w) for w in (network.norm, *network.head.parameters())}
    groups = [{'params': [m for m, w in zip(whole, weights) if (id(w) in top) == is_head], 'lr': rate}
              for is_head, rate in ((False, RATE), (True, HEAD_RATE))]
    optimizer, rates = torch.optim.AdamW(groups, weight_decay=.01, betas=(.9, .98), fused=device == 'cuda'), (RATE, HEAD_RATE)
    told, done = [], 0
    for part in parts:
        share = max(done / len(parts), (time.time() - begun) / seconds)
        if share >= 1: break
        for group, rate in zip(optimizer.param_groups, rates): group['lr'] = rate * min(1, (done + 1) / 60) * max(.03, 1 - share)
        loss = loss_of(network(*pairs.fed(part)), pairs.known, torch.from_numpy(part).to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        for m, w in zip(whole, weights): m.grad, w.grad = w.grad.float(), None
        optimizer.step()
        with torch.no_grad(): torch._foreach_copy_(weights, whole)
        told.append(loss.detach())
        done += 1
        if done % 100 == 0:
            print(f'{done} of {len(parts)} steps, {time.time() - begun:.0f} s, loss {torch.stack(told[-100:]).mean():.3f}', flush=True)
    return done


@torch.inference_mode()
def read(network: Large, pairs: Tokens) -> np.ndarray:
    some = np.flatnonzero(pairs.lengths)
    out = np.full((len(pairs.lengths), 5), np.nan, dtype=np.float16)
    parts = pairs.parts(some[np.argsort(pairs.lengths[some], kind='stable')], 40_000)
    said = [network(*pairs.fed(part)) for part in parts]
    out[np.concatenate(parts)] = torch.cat(said).cpu().numpy()
    return out


def learn(folder: Path, out: Path, seconds: float, steps: int):
    start = time.time()
    torch.manual_seed(0)
    network, pairs = Large(folder), Tokens(folder)
    weights, n = sum(w.numel() for w in network.parameters()), int(pairs.learn.sum(dtype=int))
    print(f'{weights:,} weights learn, {n:,} pairs, {time.time() - start:.0f} s', flush=True)
    done = learnt(network.train(), pairs, seconds, steps)
    trained = time.time() - start
    odds = read(network.eval(), pairs)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / 'stance.npy', odds[~pairs.answer, :4])
    np.save(out / 'answer.npy', odds[pairs.answer, 4])
    print(f'trained {trained:.0f} s, read {time.time() - start - trained:.0f} s', flush=True)
    tests = [dict(zip(('at', 'kind', 'way', 'finding', 'group'), t)) for t in json.loads((folder / 'tests.json').read_text())]
    said = odds[[t['at'] for t in tests], :4].astype(float)
    told = {'figures': figures(tests, said), 'steps': done, 'seconds': round(trained),
            'layers': len(network.layers), 'device': torch.cuda.get_device_name() if device == 'cuda' else 'cpu',
            'torch': torch.__version__}
    (out / 'figures.json').write_text(json.dumps(told))
    print(json.dumps(told), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=('pack', 'learn'))
    parser.add_argument('paths', type=Path, nargs='+')
    parser.add_argument('--layers', type=int, default=18)
    parser.add_argument('--out', type=Path)
    parser.add_argument('--seconds', type=float, default=240, help='of learning, at most')
    parser.add_argument('--steps', type=int, default=0, help='of learning, at most; 0: all')
    a = parser.parse_args()
    if a.what == 'learn' and not a.out: parser.error('learn needs --out, a folder for what it says')
    if a.what == 'pack': pack(*a.paths, a.layers)
    else: learn(*a.paths, a.out, a.seconds, a.steps)


if __name__ == '__main__': main()
