"""How long does a cross-encoder of BERT-base's size take on a GPU, our way and the published one, and what share of the GPU is used?

Ours (`CrossEncoderReranker`): rows sorted by length, batches bounded by tokens, bf16. The published way is that of Stuhlmann et al. (IV),
who rerank 20, 50 and 100 documents by MedCPT's cross-encoder on an A30; their code puts all pairs in one batch, padded to the longest of
them and cut at 512 tokens, in 32 bits. Both turn the same texts into tokens with the same tokenizer, inside the time taken. The weights are
random, so this says nothing about quality: times, memory, and whether both ways give the same order.

`share_of_peak` is the multiplications of the tokens that are no padding, over the time and what the card can do in that precision
(`PEAK`, dense, from its maker's data sheet): the published way works in fp32 and is measured against fp32's own peak.

Texts are synthetic: words of a fixed vocabulary, four in ten of two tokens, as in biomedical text. 'passages' have about 128 words (normal
around 115 with a deviation of 20, cut to 30 to 150, as whole sentences up to 128 words have), 'full' ones 600 words, more than 512 tokens.

    python benchmarks/cross_encoder_gpu.py                # writes results/cross_encoder_gpu.json
    python benchmarks/cross_encoder_gpu.py --compile      # the same through torch.compile
    python benchmarks/cross_encoder_gpu.py --device cpu --layers 2 --depths 5,10 --repeats 1    # does it run at all? writes nothing

It needs a GPU and a PyTorch with CUDA, and cpqa[models].
"""
import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import save

from cpqa.core.records import Passage
from cpqa.passages.cross_encoders import CrossEncoderReranker, pair_logits
from cpqa.retrieval.openvino_models import hushed

USED = ('cpqa', 'numpy', 'tokenizers', 'torch', 'transformers')   # of which the versions are told
WORDS = [f'w{n}' for n in range(20_000)]
QUESTION_WORDS = 12
GOAL = {'times faster at 50': 10, 'Stuhlmann et al., table IV, 50 documents on an A30 less the 82 ms of BM25, s': 0.74}
PEAK = {'A30': (165e12, 10.3e12), 'A100': (312e12, 19.5e12), 'H100': (989e12, 67e12), 'H200': (989e12, 67e12)}   # bf16, fp32: a second
KINDS = {'passages': (115, 20, 30, 150), 'full': (600, 0, 600, 600)}   # words of a text: mean, deviation, least, most


def text(rng: np.random.Generator, words: int) -> str:
    "So many words, four in ten with an ending that is a token of its own."
    return ' '.join(WORDS[i] + ('x' if two else '') for i, two in zip(rng.integers(0, len(WORDS), words), rng.random(words) < 0.4))


def passages(kind: str, n: int, seed: int) -> list[Passage]:
    rng, (mean, deviation, least, most) = np.random.default_rng(seed), KINDS[kind]
    texts = [text(rng, int(np.clip(rng.normal(mean, deviation), least, most))) for _ in range(n)]
    return [Passage(str(i), 0, len(t), t) for i, t in enumerate(texts)]


def write_model(folder: Path, layers: int):
    "BERT-base with random weights and a vocabulary of the synthetic words."
    import tokenizers as tk
    import torch
    import transformers
    vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '##x', *WORDS]
    tokenizer = tk.Tokenizer(tk.models.WordPiece({w: n for n, w in enumerate(vocabulary)}, unk_token='[UNK]'))
    tokenizer.pre_tokenizer, tokenizer.post_processor = tk.pre_tokenizers.Whitespace(), tk.processors.BertProcessing(('[SEP]', 3),
        ('[CLS]', 2))
    torch.manual_seed(0)
    with hushed():
        transformers.BertForSequenceClassification(transformers.BertConfig(
            vocab_size=30522, num_hidden_layers=layers, num_labels=1, initializer_range=0.05)).save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            model_max_length=512,
            pad_token='[PAD]',
            unk_token='[UNK]',
            cls_token='[CLS]',
            sep_token='[SEP]',
            model_input_names=['input_ids', 'token_type_ids', 'attention_mask'],
        ).save_pretrained(folder)


def published_way(folder: Path, device: str) -> Callable[[str, list[Passage]], np.ndarray]:
    "All pairs in one batch, padded to the longest of them, in fp32."
    import torch
    import transformers
    with hushed():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True,
            dtype=torch.float32).eval().to(device)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def score(query, found):
        batch = tokenizer([query] * len(found), [p.text for p in found], padding=True, truncation=True, max_length=512,
                          return_tensors='pt')
        with torch.inference_mode(): return pair_logits(model(**batch.to(device)).logits.float()).cpu().numpy()
    return score


def measured(score, query: str, found: list[Passage], device: str, repeats: int) -> tuple[dict, np.ndarray | None]:
    "Median seconds of some runs after a warm-up, peak memory, and the scores; where memory runs out, that is the result."
    import torch
    gpu, times = device.startswith('cuda'), []
    wait = torch.cuda.synchronize if gpu else lambda: None
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        for _ in range(1 + repeats):
            wait()
            begin = time.perf_counter()
            scores = score(query, found)
            wait()
            times.append(time.perf_counter() - begin)
    except torch.OutOfMemoryError: return {'s': None, 'note': 'out of memory'}, None
    peak = {'peak_mb': torch.cuda.max_memory_allocated() // 2**20} if gpu else {}
    return {'s': round(statistics.median(times[1:]), 5), 's_least': round(min(times[1:]), 5), 's_most': round(max(times[1:]), 5),
            **peak}, scores


def operations(folder: Path, query: str, found: list[Passage], layers: int) -> float:
    "Multiplications and additions of the tokens of these pairs, without padding: 24 h^2 + 4 h s a token of s, and layer."
    import transformers
    lengths = [len(ids) for ids in transformers.AutoTokenizer.from_pretrained(folder)([query] * len(found), [p.text for p in found],
               truncation=True, max_length=512)['input_ids']]
    return float(sum(s * layers * (24 * 768**2 + 4 * 768 * s) for s in lengths))


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(x, kind='stable'), kind='stable') for x in (a, b)]
    return round(float(np.corrcoef(*ranks)[0, 1]), 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--layers', type=int, default=12, help='of BERT-base (12)')
    parser.add_argument('--depths', default='20,50,100,200,500,1000')
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--compile', action='store_true', help='through torch.compile')
    args = parser.parse_args()
    try: import torch
    except ModuleNotFoundError: sys.exit('this needs PyTorch and transformers: pip install "cpqa[models]"')
    gpu = args.device.startswith('cuda')
    if gpu and not torch.cuda.is_available():
        sys.exit('this needs a GPU and a PyTorch with CUDA, and finds none: run it on such a machine, or see that it runs with  --device '
                 'cpu --layers 2 --depths 5,10 --repeats 1')

    name = torch.cuda.get_device_name() if gpu else 'cpu'
    peak = next((PEAK[card] for card in PEAK if card in name), None)
    depths, rows = [int(d) for d in args.depths.split(',')], []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)/'bert-base-random'
        write_model(folder, args.layers)
        ours, theirs = CrossEncoderReranker(folder, args.device, 'bf16' if gpu else None), published_way(folder, args.device)
        if args.compile: ours.net.model = torch.compile(ours.net.model, dynamic=True)
        query = text(np.random.default_rng(1), QUESTION_WORDS)
        for kind in KINDS:
            for depth in depths:
                found = passages(kind, depth, seed=depth)
                (fast, scores), (plain, reference) = (measured(way, query, found, args.device,
                                                               args.repeats) for way in (ours.score, theirs))
                row = {'texts': kind, 'depth': depth, 'ours': fast, 'published': plain}
                for way, precision in ((fast, 0), (plain, 1)):
                    if peak and way['s']:
                        way['share_of_peak'] = round(operations(folder, query, found, args.layers) / way['s'] / peak[precision], 4)
                if scores is not None and reference is not None:
                    row |= {'times_faster': round(plain['s'] / fast['s'], 2), 'spearman': spearman(scores, reference)}
                rows.append(row)
                print(json.dumps(row), file=sys.stderr)
        told = ours.describe()
    result = {'model': f'BERT-base, {args.layers} layers, random weights: times only',
              'device': name, 'peak_a_second': peak, 'cuda': torch.version.cuda,
              'precision': {'ours': told['precision'], 'published': 'fp32'}, 'compiled': args.compile, 'budget': ours.budget,
              'repeats': args.repeats,
              'words': KINDS, 'goals': GOAL, 'rows': rows}
    if gpu: save('cross_encoder_gpu', result, USED)
    else: print(json.dumps(result, indent=1))


if __name__ == '__main__': main()
