"""How many texts a second become vectors on a GPU, by a BERT of base size, in fp32 and bf16?

Mean pooling, batches bounded by tokens and sorted by length. The weights are random, so this says nothing about quality. Texts are those of
cross_encoder_gpu.py: questions of 12 words, and passages of about 115. Tokens are counted without padding.

    python benchmarks/encoding_gpu.py                                          # writes results/encoding_gpu.json
    python benchmarks/encoding_gpu.py --device cpu --layers 1 --texts 8        # does it run at all? writes nothing

It needs a GPU and a PyTorch with CUDA, and cpqa[models].
"""
import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import save
from cross_encoder_gpu import QUESTION_WORDS, USED, passages, text, write_model

from cpqa.passages.pretrained_models import DTYPES
from cpqa.retrieval.encoders import batches
from cpqa.retrieval.openvino_models import hushed


def encode(model, tokenizer, texts: list[str], budget: int) -> tuple[np.ndarray, int]:
    "Unit vectors of texts, and how many tokens were read."
    import torch
    rows = tokenizer(texts, truncation=True, max_length=512)['input_ids']
    out = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    for piece in batches([len(r) for r in rows], budget):
        fed = tokenizer.pad({'input_ids': [rows[i] for i in piece]}, return_tensors='pt').to(model.device)
        with torch.inference_mode():
            hidden, mask = model(**fed).last_hidden_state, fed['attention_mask'][..., None]
            vectors = torch.nn.functional.normalize(((hidden * mask).sum(1) / mask.sum(1)).float(), dim=1)
        out[piece] = vectors.cpu().numpy()
    return out, sum(map(len, rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--layers', type=int, default=12)
    parser.add_argument('--texts', type=int, default=20_000)
    parser.add_argument('--budget', type=int, default=131_072, help='tokens of a batch')
    parser.add_argument('--repeats', type=int, default=3)
    args = parser.parse_args()
    try: import torch
    except ModuleNotFoundError: sys.exit('this needs PyTorch and transformers: pip install "cpqa[models]"')
    import transformers
    gpu, rows, first = args.device.startswith('cuda'), [], {}
    if gpu and not torch.cuda.is_available():
        sys.exit('this needs a GPU and a PyTorch with CUDA, and finds none: see that it runs with  --device cpu --layers 1 --texts 8')
    rng = np.random.default_rng(0)
    texts = {'questions': [text(rng, QUESTION_WORDS) for _ in range(args.texts)],
             'passages': [p.text for p in passages('passages', args.texts, 0)]}
    with tempfile.TemporaryDirectory() as work:
        write_model(Path(work), args.layers)
        tokenizer = transformers.AutoTokenizer.from_pretrained(work)
        for precision in ('fp32', 'bf16'):
            with hushed(): model = transformers.AutoModel.from_pretrained(work, dtype=getattr(torch, DTYPES[precision])).eval()
            model.to(args.device)
            for kind, some in texts.items():
                times = []
                for _ in range(1 + args.repeats):   # the first one warms up
                    begin = time.perf_counter()
                    vectors, tokens = encode(model, tokenizer, some, args.budget)
                    times.append(time.perf_counter() - begin)
                s = statistics.median(times[1:])
                rows.append({'texts': kind, 'precision': precision, 'n': len(some), 's': round(s, 3),
                             'texts_a_second': round(len(some) / s), 'tokens_a_second': round(tokens / s),
                             'least_cosine_with_fp32': round(float((first.setdefault(kind, vectors) * vectors).sum(1).min()), 4)})
                print(json.dumps(rows[-1]), file=sys.stderr)
    result = {'model': f'BERT-base, {args.layers} layers, random weights: times only', 'budget': args.budget, 'repeats': args.repeats,
              'device': torch.cuda.get_device_name() if gpu else 'cpu', 'cuda': torch.version.cuda, 'rows': rows}
    if gpu: save('encoding_gpu', result, USED)
    else: print(json.dumps(result, indent=1))


if __name__ == '__main__': main()
