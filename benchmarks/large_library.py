"""What does a library of ten thousand, a hundred thousand or a million documents take to build, and to ask?

    python benchmarks/large_library.py FOLDER REAL [--documents 1000000] [--questions 50] [--pairs]

REAL is a library of bioasq_beir's 16,296 documents with the vectors of cpqa's encoder, built by `cpqa index build`. FOLDER gets a library
of these documents and of others drawn from their words and lengths (benchmarks/stores.py), each word alone or, with `--pairs`, each as it
follows another. To embed a million texts takes a night on two
cores, so vectors are drawn too: each is one of the real ones, with noise until their cosine is about .8, so that they lie in heaps as
real ones do. Everything else is what `cpqa index build` does: terms, sentences and passages, and the form that suits so many vectors. A
library that is there already is only asked. Each size has a file of results of its own.

Then questions of bioasq_beir are asked, warm, one at a time, end to end with reranking and quotes, and without the reading. Drawn texts
say nothing, so how good the answers are is not measured here; what the form of the vectors leaves out is (`recall`, when it is built).
"""
import argparse
import os
import resource
import threading
import time
from itertools import chain
from pathlib import Path

import numpy as np
from common import bioasq_questions, peak_mb, quantiles, save
from stores import drawn, real

from cpqa import CancerQA
from cpqa.libraries import build_index
from cpqa.literature.library import Library
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.vectors import Vectors

NEAR = .8   # cosine of a drawn vector and the real one that it lies by


class Drawn(EmbeddedEncoder):
    "Documents get the vectors given, in this order, and then drawn ones."

    def __init__(self, own: np.ndarray):
        super().__init__()
        self.own, self.at, self.rng = own, 0, np.random.default_rng(0)

    def encode(self, texts, kind='document'):
        if kind == 'query': return super().encode(texts, kind)
        out, at = self.own[self.at:self.at + len(texts)], self.at
        self.at = at + len(texts)
        heart = self.own[self.rng.integers(len(self.own), size=len(texts) - len(out))]
        noise = self.rng.standard_normal(heart.shape, dtype=np.float32)
        noise -= (noise * heart).sum(1, keepdims=True) * heart
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        return np.concatenate([out, NEAR * heart + (1 - NEAR**2)**.5 * noise]).astype(np.float32)


class Private(threading.Thread):
    "The most memory of its own that this process had, in MB, looked at five times a second: pages of mapped files can be given back."

    def __init__(self):
        super().__init__(daemon=True)
        self.most = 0

    def run(self):
        while True:
            said = next(line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('RssAnon'))
            self.most = max(self.most, int(said.split()[1]) // 1024)
            time.sleep(.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('folder', type=Path)
    parser.add_argument('real', type=Path)
    parser.add_argument('--documents', type=int, default=1_000_000)
    parser.add_argument('--questions', type=int, default=50)
    parser.add_argument('--pairs', action='store_true')
    args, small, build = parser.parse_args(), Library(parser.parse_args().real), {}
    if not args.folder.exists():
        known, began, cpu = real(), time.perf_counter(), time.process_time()
        vectors = Vectors(small, EmbeddedEncoder())
        rows = len(vectors.spans)
        own = np.concatenate([vectors.of_rows(np.arange(i, min(i + 10_000, rows))) for i in range(0, rows, 10_000)])
        memory, before = Private(), peak_mb(resource.RUSAGE_SELF)
        memory.start()
        more = drawn(known, args.documents - len(known), pairs=args.pairs)
        build_index(chain(known[:args.documents], more), args.folder, encoder=Drawn(own))
        build = {'seconds': round(time.perf_counter() - began), 'processor_seconds': round(time.process_time() - cpu),
                 'peak_mb': peak_mb(resource.RUSAGE_SELF),
                 'of which private_mb': memory.most, 'before it began, mb': before}
    library = Library(args.folder)
    sizes = {}
    for name, file in library.manifest.files.items():
        part = name.partition('/')[0] if '/' in name else 'other'
        sizes[part] = sizes.get(part, 0) + file.bytes
    questions = [q['text'] for q in bioasq_questions()][-args.questions - 3:]
    qa, stages = CancerQA(args.folder), []
    now = lambda: 1000 * np.array([time.perf_counter(), time.process_time()])
    ms, search = np.empty((len(questions), 2)), np.empty((len(questions), 2))   # by the clock, and by the processor
    for n, q in enumerate(questions):
        began = now()
        stages.append(qa.ask(q).timings_ms)
        asked = now()
        qa.search(q)
        ms[n], search[n] = asked - began, now() - asked
    size = '' if len(library) == 1_000_000 else f'_{len(library)}'
    save(f'large_library{size}{"_pairs" if args.pairs else ""}', {
        'documents': len(library), 'drawn': max(0, len(library) - len(small)), 'vectors': library.manifest.parts['vectors'], 'build': build,
        'bytes_a_document': {k: round(v / len(library), 1) for k, v in sizes.items()}, 'gb': round(sum(sizes.values()) / 1e9, 2),
        'n': len(questions) - 3, 'ask_ms': quantiles(ms[3:, 0]), 'search_ms': quantiles(search[3:, 0]),
        'ask_cpu_ms': quantiles(ms[3:, 1]), 'search_cpu_ms': quantiles(search[3:, 1]),
        'load_average': [round(x, 1) for x in os.getloadavg()],
        'stages_ms': {k: quantiles([s.get(k, 0.0) for s in stages[3:]]) for k in stages[-1]},
        'peak_mb_of_asking': None if build else peak_mb(resource.RUSAGE_SELF)})


if __name__ == '__main__': main()
