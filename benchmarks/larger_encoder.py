"""Is a larger encoder worth its time and room? A prepared one beside the embedded encoder, on BioASQ, round 10, with and without reranker.

    python benchmarks/larger_encoder.py MODEL [--precision w8] [--every 4] [--questions N] [--relevant-of N] [--depth 50] [--work DIR]
                                        [--data FOLDER] [--name larger_encoder]

MODEL is a folder or a name, such as a folder of all-mpnet-base-v2; it is prepared in --precision, or taken as it is if it is prepared.
With --every N the documents are every Nth of the collection and all relevant ones of round 10, with --relevant-of N those of so many of
its questions, evenly drawn, and with --every 0 no others: fewer wrong documents make each figure higher than on the whole, for both
encoders alike. Vectors are kept in --work, so a run that was stopped goes on.
"""
import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, bioasq_questions, interval, peak_mb, save
from models import Kept, compared, say, some

from cpqa.evaluation.collections import read_collection
from cpqa.evaluation.metrics import retrieval_values
from cpqa.libraries import build_index
from cpqa.literature.library import Library, LibraryError
from cpqa.passages.prepared_models import sample_texts
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.encoders import CachedEncoder, EmbeddedEncoder, FastEncoder, prepare_encoder
from cpqa.retrieval.openvino_models import CARD, shipped
from cpqa.retrieval.vectors import embedded_text

MEASURES = ('nDCG@10', 'R@10', 'MRR@10')
WAYS, BLOCK, TIMED = ('dense', 'hybrid'), 512, 20


def megabytes(folder: Path) -> float: return round(sum(f.stat().st_size for f in folder.iterdir()) / 1e6, 1)


def prepared(model: str, precision: str, work: Path) -> Path:
    "The prepared folder, made now unless it is there."
    if (Path(model) / CARD).is_file(): return Path(model)
    folder = work / f'{Path(model).name}-{precision}'
    if (folder / CARD).is_file(): return folder
    return prepare_encoder(model, folder, precision, sample_texts())


def passages_of(documents) -> list[str]:
    "What an encoder reads of these documents."
    rows = [(d, p) for d in documents for p in SentenceSplitter().split(d) or [None]]
    return [embedded_text(d.title, p.text if p else '') for d, p in rows]


def in_blocks(encoder: CachedEncoder, texts: list[str], name: str) -> dict:
    "Embeds what is not embedded yet, and says how long that took."
    cpu, wall, new = 0.0, 0.0, 0
    for at in range(0, len(texts), BLOCK):
        block = texts[at:at + BLOCK]
        before, started = time.process_time(), time.perf_counter()
        encoder.encode(block)
        spent = time.perf_counter() - started
        if spent > 0.05 * len(block):   # otherwise they came from the file
            cpu, wall, new = cpu + time.process_time() - before, wall + spent, new + len(block)
        if at // BLOCK % 2 == 0: say(f'{name}: {at + len(block):,} of {len(texts):,} passages')
    return {'passages': len(texts), 'made_in_this_run': new, 'processor_ms_a_passage': round(1000 * cpu / new, 1) if new else None,
            'wall_ms_a_passage': round(1000 * wall / new, 1) if new else None}


def ms_a_question(encoder: FastEncoder, questions: list[str]) -> dict:
    "Milliseconds to embed one question."
    walls, cpus = [], []
    encoder.encode(questions[:1], 'query')
    for q in questions[:TIMED]:
        wall, cpu = time.perf_counter(), time.process_time()
        encoder.encode([q], 'query')
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    return {'n': len(walls), 'wall_p50': round(statistics.median(walls), 1), 'processor_p50': round(statistics.median(cpus), 1)}


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model')
    p.add_argument('--precision', default='w8')
    p.add_argument('--every', type=int, default=1)
    p.add_argument('--questions', type=int)
    p.add_argument('--relevant-of', type=int)
    p.add_argument('--depth', type=int, default=50)
    p.add_argument('--work', type=Path)
    p.add_argument('--data', type=Path, default=DATA)
    p.add_argument('--name', default='larger_encoder')
    a = p.parse_args(argv)
    work = a.work or Path(tempfile.mkdtemp(prefix='larger-encoder-'))
    work.mkdir(parents=True, exist_ok=True)
    c = read_collection(a.data / 'bioasq_beir')
    all_asked = [q['_id'] for q in bioasq_questions() if q['batch'].startswith('10B')]
    asked, drawn = some(all_asked, a.questions), some(all_asked, a.relevant_of)
    gold = {d for q in [*asked, *drawn] for d, grade in c.qrels[q].items() if grade > 0}
    every = list(c.documents())
    documents, total = [d for n, d in enumerate(every) if a.every and n % a.every == 0 or d.id in gold], len(every)
    folder = prepared(a.model, a.precision, work)
    larger, ours = FastEncoder(folder), EmbeddedEncoder()
    texts = passages_of(documents)
    encoders = {name: CachedEncoder(e, work / f'{name}.sqlite', most=1_000_000) for name, e in (('embedded', ours), ('larger', larger))}
    encoding = {name: in_blocks(e, texts, name) for name, e in encoders.items()}
    systems = {}
    second = Kept(shipped('cross-encoder'))
    for name, e in encoders.items():
        place = work / f'library-{name}-{len(documents)}'
        try: library = Library(place)
        except LibraryError: library = build_index(documents, place, encoder=e)
        qa = CancerQA(library, Finding(e, depth=a.depth))
        if name == 'embedded': systems['bm25'] = (qa, 'bm25', None)
        systems |= {f'{name}, {way}{" + reranker" if r else ""}': (qa, way, r) for way in WAYS for r in (None, second)}
    found = {name: {} for name in systems}
    for n, q in enumerate(asked, 1):
        for name, (qa, way, reranker) in systems.items(): found[name][q] = qa.search(c.queries[q], 10, way, reranker)
        if n % 25 == 0: say(f'{n} of {len(asked)} questions')
    qrels = {q: c.qrels[q] for q in asked}
    values = {name: retrieval_values(hits, qrels, list(MEASURES)) for name, hits in found.items()}
    rows = [{'system': name, 'measures': {m: {'value': round(float(np.mean([by[m][q] for q in asked])), 4),
                                              'interval': interval([by[m][q] for q in asked])} for m in MEASURES}}
            for name, by in values.items()]
    pairs = [(f'larger, {way}{r}', f'embedded, {way}{r}') for way in WAYS for r in ('', ' + reranker')]
    questions = [c.queries[q] for q in asked]
    save(a.name, {
        'data': 'bioasq_beir, round 10', 'n_questions': len(asked), 'n_documents': len(documents), 'of_documents': total,
        'documents': (f'every {a.every}th and ' if a.every else '') + f'all relevant ones of {len(drawn)} questions of round 10',
        'depth': a.depth,
        'encoders': {name: {**e.describe(), 'precision': net.card.precision, 'runs_in': net.runs_in, 'mb': megabytes(net.folder),
                            'encoding': encoding[name], 'ms_a_question': ms_a_question(net, questions),
                            'index_mb': megabytes(systems[f'{name}, dense'][0].library.folder / 'vectors')}
                     for name, e, net in (('embedded', encoders['embedded'], ours), ('larger', encoders['larger'], larger))},
        'reranker': second.describe(), 'systems': rows, 'differences': compared(values, pairs, asked),
        'interval': '95 %, bootstrap over questions', 'test': 'sign-flip permutation, Holm over the four pairs of one measure',
        'peak_mb': peak_mb(resource.RUSAGE_SELF),
        'note': 'Times are of a machine that others used at the same time: processor times are those to compare.',
    }, PACKAGES)


if __name__ == '__main__': main()
