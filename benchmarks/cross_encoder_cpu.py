"""How fast does a cross-encoder of MiniLM's size (6 layers, 384 wide) score passages of 128 words on the CPU, and does the order survive?

    python benchmarks/cross_encoder_cpu.py [--questions 20] [--quality 100] [--depths 10 20 50 100 200 500] [--name cross_encoder_cpu]

The network: the weights of all-MiniLM-L6-v2 as the body, and a head fitted here on its first token's output for pairs of BioASQ rounds 7 to
9 (a question with a gold document, and with documents near it in BM25). It stands in for a trained cross-encoder, of which none comes as a
package: times depend on the sizes alone; its quality is not claimed, it is only shown to be no noise, and not to change in eight bits.

The reference, on the same pairs in the same run: sentence-transformers' `CrossEncoder.predict` with its defaults (float32, batches of 32).
Runs that read fewer tokens of a pair stand beside those that read all. The systems take turns, question by question, after two questions to
warm up. Above depth 100 the reference has fewer questions.
"""
import argparse
import random
import time
from functools import partial
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers
from common import DATA, PACKAGES, bioasq_questions, interval, quantiles, save
from evidence_quality import relevant
from scipy.stats import spearmanr

from cpqa.core.records import Document, Passage
from cpqa.core.storage import cache_dir
from cpqa.literature.article_files import documents
from cpqa.literature.library import build_library
from cpqa.passages.cross_encoders import FastCrossEncoder, encode_pairs, pair_text, prepare_cross_encoder
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.encoders import batches, minilm_folder
from cpqa.retrieval.openvino_models import hushed

ROUNDS = ('7', '8', '9')
WORDS = 128


def passage(document: Document) -> Passage: return Passage.of(document, 0, len(document.text))


def round_of(question: dict) -> str: return question['batch'].partition('B')[0]


class Data:
    def __init__(self, folder: Path):
        self.documents = {d.id: d for d in documents(DATA / 'bioasq_beir' / 'corpus.jsonl.gz') if d.text}   # a few are titles alone
        self.gold = relevant()
        drawn = random.Random(0).sample(bioasq_questions(), len(bioasq_questions()))
        self.train, self.test = [q for q in drawn if round_of(q) in ROUNDS], [q for q in drawn if round_of(q) == '10']
        self.terms = TermRetriever(build_library([self.documents.values()], folder))

    def near(self, question: dict, k: int) -> list[Document]:
        return [self.documents[h.id] for h in self.terms.search([question['text']], k)[0]]

    def pairs(self, question: dict, others: int) -> tuple[list[Document], list[bool]]:
        "A gold document and `others` near ones that are not gold."
        gold = [self.documents[i] for i in sorted(self.gold[question['_id']]) if i in self.documents][:1]
        found = [d for d in self.near(question, others + 50) if d.id not in self.gold[question['_id']]][:others]
        return gold + found, [True] * len(gold) + [False] * len(found)

    def glued(self, question: dict, n: int) -> list[Passage]:
        "`n` passages of 128 words, made of the documents nearest to the question, and of any others where these are too few."
        found = self.near(question, 2 * n + 20)
        words = [w for d in found for w in d.text.split()]
        for d in self.documents.values():   # where the question finds too few
            if len(words) >= WORDS * n: break
            words += d.text.split()
        texts = [' '.join(words[WORDS * i:WORDS * (i + 1)]) for i in range(n)]
        return [Passage(doc_id=str(i), start=0, end=len(t), text=t) for i, t in enumerate(texts)]


def stand_in(data: Data, questions: int) -> Path:
    "The folder of the network described above, made once."
    folder = cache_dir() / 'models' / f'benchmark-cross-encoder-{questions}'
    if (folder / 'model.safetensors').exists(): return folder
    torch.manual_seed(0)
    with hushed():
        tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder())
        model = transformers.BertForSequenceClassification.from_pretrained(minilm_folder(), num_labels=1).eval()
    features, labels = [], []
    for question in data.train[:questions]:
        documents, gold = data.pairs(question, 4)
        pairs = encode_pairs(tokenizer.backend_tokenizer, question['text'], [pair_text(passage(d)) for d in documents], 192)
        out = torch.empty(len(pairs), 384)
        for rows in batches([len(p.ids) for p in pairs], 2048):
            fed = tokenizer.pad({'input_ids': [pairs[i].ids for i in rows], 'token_type_ids': [pairs[i].type_ids for i in rows]},
                                return_tensors='pt')
            with torch.inference_mode(): out[rows] = model.bert(**fed).last_hidden_state[:, 0]
        features.append(out)
        labels += gold
    fit_head(model, torch.cat(features), torch.tensor(labels, dtype=torch.float32))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def fit_head(model, x, y, steps: int = 400):
    "Fits the pooler and the classifier to the first token's outputs `x` by logistic loss, both classes weighing alike."
    head = torch.nn.ModuleList([model.bert.pooler.dense, model.classifier])
    best = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.05)
    weight = (y == 0).sum() / (y == 1).sum()
    for _ in range(steps):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model.classifier(torch.tanh(model.bert.pooler.dense(x)))[:, 0], y,
                                                                    pos_weight=weight)
        best.zero_grad()
        loss.backward()
        best.step()


class Reference:
    "sentence-transformers, as it comes."
    def __init__(self, folder: Path):
        with hushed(): self.model = sentence_transformers.CrossEncoder(str(folder), device='cpu')

    def score(self, query: str, passages) -> np.ndarray:
        return self.model.predict([(query, p.text) for p in passages], activation_fn=torch.nn.Identity(), show_progress_bar=False)


def timed(score, *args) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    out = score(*args)
    return (time.perf_counter() - start) * 1000, out


def times(systems: dict, data: Data, depths: list[int], n: int) -> list[dict]:
    "One row a depth: time of each system, how much faster than the reference, and how alike the order is."
    questions, rows = data.test[-n - 2:], []
    for depth in depths:
        ms, rho, ratios = {}, {}, {}
        asked = n if depth <= 100 else max(2, n // 4)
        for number, question in enumerate(questions[:2 + asked]):
            passages = data.glued(question, depth)
            found = {name: timed(s.score, question['text'], passages) for name, s in systems.items()}
            if number < 2: continue
            for name, (took, scores) in found.items():
                ms.setdefault(name, []).append(took)
                ratios.setdefault(name, []).append(found['reference'][0] / took)
                rho.setdefault(name, []).append(float(spearmanr(scores, found['reference'][1])[0]))
        rows.append({'depth': depth, 'questions': asked} | {name: quantiles(ms[name]) | {
            'fastest': round(min(ms[name]), 2), 'times_faster': round(float(np.median(ratios[name])), 2),
            'spearman': round(float(np.mean(rho[name])), 4), 'spearman_lowest': round(min(rho[name]), 4)}
            for name in systems})
        print(rows[-1], flush=True)
    return rows


def parts(fast: FastCrossEncoder, question: dict, passages) -> dict:
    "Where the time goes: text to tokens, the network, and the network again for new shapes."
    make = partial(encode_pairs, fast.tokenizer, question['text'], [pair_text(p) for p in passages], fast.max_tokens)
    tokens, pairs = min((timed(make) for _ in range(5)), key=lambda t: t[0])
    network = min(timed(fast._infer, pairs)[0] for _ in range(5))
    return {'tokens_ms': round(tokens, 1), 'network_ms': round(network, 1),
            'tokens_a_pair': round(float(np.mean([len(p.ids) for p in pairs])), 1)}


def loading(folder: Path, question: dict, passages) -> dict:
    start = time.perf_counter()
    fast = FastCrossEncoder(folder)
    load = (time.perf_counter() - start) * 1000
    return {'load_ms': round(load), 'first_question_ms': round(timed(fast.score, question['text'], passages)[0]),
            'folder_mb': sum(f.stat().st_size for f in folder.iterdir()) // 2**20}


def auc(scores, labels) -> float:
    scores, labels = np.asarray(scores), np.asarray(labels)
    differ = scores[labels][:, None] - scores[~labels][None]
    return float((differ > 0).mean() + (differ == 0).mean() / 2)


def ndcg(scores, labels, k: int = 10) -> float:
    gains = np.asarray(labels)[np.argsort(-np.asarray(scores), kind='stable')][:k] / np.log2(np.arange(2, min(k, len(labels)) + 2))
    return float(gains.sum() / (1 / np.log2(np.arange(2, min(k, sum(labels)) + 2))).sum())


def quality(systems: dict, data: Data, n: int) -> dict:
    """AUC and nDCG@10 of one gold document among 19 near ones, of each system, on the same questions, and the differences from the
    reference."""
    found: dict[str, dict[str, list]] = {}
    for question in data.test[:n]:
        documents, gold = data.pairs(question, 19)
        if not any(gold): continue
        passages = [passage(d) for d in documents]
        for name, system in systems.items():
            scores = system.score(question['text'], passages)
            found.setdefault(name, {}).setdefault('auc', []).append(auc(scores, gold))
            found[name].setdefault('ndcg@10', []).append(ndcg(scores, gold))
    loss = lambda name, m: np.subtract(found[name][m], found['reference'][m])
    return {name: {m: {'mean': round(float(np.mean(v)), 4), 'less_reference': round(float(loss(name, m).mean()), 4),
                       'interval': interval(loss(name, m))}
                   for m, v in measures.items()} | {'n': len(measures['auc'])} for name, measures in found.items()}


def main(a):
    import tempfile
    with tempfile.TemporaryDirectory() as work:
        data = Data(Path(work) / 'library')
        source = stand_in(data, a.train)
        examples = [(q['text'], p) for q in data.train[-a.calibration:] for p in data.glued(q, 2)]
        folders = {p: prepare_cross_encoder(source, Path(work) / p, p, examples) for p in ('bf16', 'int8', 'f32')}
        first, passages = data.test[-1], data.glued(data.test[-1], 50)
        loads = {p: loading(f, first, passages) for p, f in folders.items()}
        fast = {p: FastCrossEncoder(f) for p, f in folders.items()}
        fast |= {f'bf16, {n} tokens': FastCrossEncoder(folders['bf16'], max_tokens=n) for n in a.tokens}
        systems = {'reference': Reference(source), **fast}
        save(a.name, {
            'data': 'bioasq_beir', 'network': 'all-MiniLM-L6-v2 with a head fitted in the benchmark: times are real, quality is not '
                                              'claimed',
            'reference': "sentence-transformers' CrossEncoder.predict, float32, its defaults (batches of 32)",
            'passages': f'{WORDS} words, glued from the documents nearest to the question in BM25', 'unit': 'ms',
            'threads': fast['int8'].threads,
            'runs_in': {p: s.runs_in for p, s in fast.items()}, 'calibration_pairs': len(examples), 'loading': loads,
            'parts_at_50': {p: parts(s, first, passages) for p, s in fast.items()},
            'times': times(systems, data, a.depths, a.questions), 'quality': quality(systems, data, a.quality)},
            (*PACKAGES, 'torch', 'sentence-transformers', 'nncf'))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--questions', type=int, default=20)
    p.add_argument('--quality', type=int, default=100)
    p.add_argument('--train', type=int, default=300, help='questions to fit the head on')
    p.add_argument('--calibration', type=int, default=64, help='questions to calibrate eight bits on, two passages each')
    p.add_argument('--depths', type=int, nargs='+', default=[10, 20, 50, 100, 200, 500])
    p.add_argument('--tokens', type=int, nargs='*', default=[128, 160], help='of question and passage, for runs that cut longer pairs')
    p.add_argument('--name', default='cross_encoder_cpu', help='of the file in results')
    main(p.parse_args())
