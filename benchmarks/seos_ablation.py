"""Which choices of SEOS matter, and does it win over plain whole sentences at equal words read? On the physicians' marks of Evidence
Inference.

    python benchmarks/seos_ablation.py                                  # all articles that are asked about
    python benchmarks/seos_ablation.py --articles 60 --half dev         # a sample of one half of them
    python benchmarks/seos_ablation.py --half test --retrievers bm25    # the other half, without embedding passages: minutes

Each choice is varied by itself around the default. All passages of the article asked about are ranked, by words (bm25s over the passages of
all articles sampled), and for the main variants also by vectors of the embedded model and by both (reciprocal rank fusion). A passage
counts when it covers at least half of a marked span. Longer passages cover more, so the measures that decide are `Hits@320words` and
`Hits@640words`: has half of a span been seen once so many words have been read? And since shorter passages spend those words better
whatever their borders, `against_same_size` compares each variant with the plain sentence splitter at the same mean length (question by
question, between the two plain splitters that are next to it in length, in proportion; those without overlap for a variant without, those
with a quarter for one with). The variants called random are SEOS with an encoder that knows nothing: what they lack against the true ones
is what the meaning is worth. Whole articles are resampled, for the intervals and for the paired differences.
"""
import argparse
import hashlib
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import bm25s
import numpy as np
from common import DATA, PACKAGES, save

from cpqa.core.records import Hit, Passage
from cpqa.core.text_analysis import ENGLISH
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.metrics import covers, passage_values, words_needed
from cpqa.evaluation.passages import part_of
from cpqa.evaluation.statistics import bootstrap
from cpqa.passages.seos import SEOS
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.retrieval.encoders import RememberingEncoder
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.term_search import reciprocal_rank_fusion
from cpqa.retrieval.vectors import embedded_text

DEFAULT = 'seos'
RETRIEVERS = ('bm25', 'dense', 'hybrid')
WORDS_READ = (320, 640)
WORDS_OF_FIVE = 'words in five'
EMBEDDED = {DEFAULT, 'random', 'sentences 128:32', 'overlap 0', 'random, overlap 0', 'sentences 128:0', 'sentences 80:0', 'sentences 96:0',
            'sentences 80:20', 'sentences 96:24',
            'seos, no title', 'sentences 128:32, no title'}   # ranked by vectors too


class NoMeaning:
    "An encoder whose vectors are drawn by the digest of a text."
    dim = 16
    def describe(self): return {'model': 'random', 'dim': self.dim}
    def encode(self, texts, kind='document'):
        return np.array([np.random.default_rng(digest(t)).normal(size=self.dim) for t in texts], dtype=np.float32).reshape(-1, self.dim)


def digest(text: str) -> int: return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def variants(encoder) -> dict:
    "Name -> (segmenter, is the title embedded with the passage?), the default first; each differs from it in what its name says."
    seos, random = partial(SEOS, encoder), partial(SEOS, NoMeaning())
    rows = {DEFAULT: seos(), 'random': random(), 'random, overlap 0': random(128, 0)}
    rows |= {f'overlap {n}': seos(128, n) for n in (0, 16, 64)}
    rows |= {f'words {n}': seos(n) for n in (64, 96, 192, 256)}
    rows |= {f'block {n}': seos(block=n) for n in (1, 2, 5, 8)}
    rows |= {f'smooth {n}': seos(smooth=n) for n in (0, 2)}
    rows |= {f'share {x}': seos(share=x) for x in (-1.0, 0.0, 1.0)}
    rows |= {f'least {n}': seos(least=n) for n in (0, 16, 32, 64, 96)}
    rows |= {'blocks by their text': seos(blocks='text')}
    rows |= {f'sentences {n}:{n // part if part else 0}': SentenceSplitter(n, n // part if part else 0) for part in (0, 4) for n in (40, 64,
        80, 96, 128, 192, 256)}
    return {name: (s, True) for name,
            s in rows.items()} | {f'{name}, no title': (rows[name], False) for name in (DEFAULT, 'sentences 128:32')}


def sample(data, half: str, articles: int | None, seed: int) -> list[str]:
    "The ids of the articles asked about: those of a half ('dev', 'test' or 'all'), or so many of them, drawn by the seed."
    asked = sorted({q.gold_pmids[0] for q in data.questions})
    ids = [a for a in asked if half == 'all' or part_of(a) == half]
    if articles is None or articles >= len(ids): return ids
    return [ids[i] for i in np.sort(np.random.default_rng(seed).permutation(len(ids))[:articles])]


def by_words(passages: list[Passage], of: dict, questions: list) -> dict[str, list[int]]:
    "For each question the passages of its article, best first, by BM25 with the rarity of words over all passages."
    analyzed = {q.id: [t for t in dict.fromkeys(ENGLISH.analyze(q.question))] for q in questions}
    index = bm25s.BM25(method='lucene', k1=1.2, b=0.75)
    index.index([ENGLISH.analyze(embedded_text(p.title, p.text)) or [''] for p in passages], show_progress=False)
    found = {}
    for q in questions:
        rows = of[q.gold_pmids[0]]
        known = [t for t in analyzed[q.id] if t in index.vocab_dict]
        scores = index.get_scores(known)[rows] if known else np.zeros(len(rows))
        found[q.id] = [rows[i] for i in np.argsort(-scores, kind='stable') if scores[i] > 0]   # as a term search returns them
    return found


def by_vectors(passages: list[Passage], of: dict, questions: list, encoder, title: bool) -> dict[str, list[int]]:
    "The same by the inner product of vectors."
    vectors = encoder.encoder.encode([embedded_text(p.title if title else '', p.text) for p in passages], 'document')
    asked = encoder.encode([q.question for q in questions], 'query')
    return {q.id: [of[q.gold_pmids[0]][i] for i in np.argsort(-(vectors[of[q.gold_pmids[0]]] @ v), kind='stable')] for q,
            v in zip(questions, asked)}


def fused(*rankings: dict[str, list[int]]) -> dict[str, list[int]]:
    "Reciprocal rank fusion of rankings, question by question, of the first 50 of each."
    return {q: [int(h.id) for h in reciprocal_rank_fusion([[Hit(str(i), 0.0) for i in r[q][:50]] for r in rankings])] for q in rankings[0]}


def measured(rankings: dict[str, list[Passage]], data, questions: list) -> dict[str, dict[str, float]]:
    "Measure -> question -> value."
    spans = {q.id: (q.gold_pmids[0], data.spans[q.id]) for q in questions}
    values = passage_values({id: r[:5] for id, r in rankings.items()}, spans)
    needed = {id: words_needed(rankings[id], article, marked) for id, (article, marked) in spans.items()}
    values |= {f'Hits@{n}words': {id: float(0 < w <= n) for id, w in needed.items()} for n in WORDS_READ}
    values[WORDS_OF_FIVE] = {id: float(sum(len(p.text.split()) for p in r[:5])) for id, r in rankings.items()}
    return values


def run_variant(segmenter, title: bool, data, ids: list[str], questions: list, encoder, retrievers: Sequence[str]) -> tuple[dict, dict]:
    "What a variant's passages are like, and its values by retriever."
    start = time.perf_counter()
    passages = [p for id in ids for p in segmenter.split(data.articles[id])]
    of = {}
    for i, p in enumerate(passages): of.setdefault(p.doc_id, []).append(i)
    words = [len(p.text.split()) for p in passages]
    covered = [any(covers(passages[i], data.spans[q.id]) for i in of[q.gold_pmids[0]]) for q in questions]
    rankings = {'bm25': by_words(passages, of, questions)}
    if set(retrievers) - {'bm25'}:
        rankings['dense'] = by_vectors(passages, of, questions, encoder, title)
        rankings['hybrid'] = fused(rankings['bm25'], rankings['dense'])
    values = {r: measured({q: [passages[i] for i in order] for q, order in rankings[r].items()}, data, questions) for r in retrievers}
    about = {'passages_per_article': round(len(passages) / len(ids), 1), 'words_per_passage': round(float(np.mean(words)), 1),
             'deviation_of_words': round(float(np.std(words)), 1),
             'questions_with_evidence_in_one_passage': round(float(np.mean(covered)), 4),
             'describe': segmenter.describe(), 'title': title, 'seconds': round(time.perf_counter() - start, 1)}
    return about, values


def interval(values: dict[str, float], groups: list[str], against: dict[str, float] | None = None) -> list[float]:
    "Mean and ends of the 95 % interval over articles; of the differences where there is something to compare with."
    x = bootstrap([v - (against[q] if against else 0.0) for q, v in values.items()], groups=groups, resamples=2_000)
    return [round(i, 4) for i in (x.value, x.low, x.high)]


def same_size(words: float, plain: list[tuple[float, dict]]) -> dict | None:
    "What a plain splitter with passages of so many words would have, from (words, values) of two that lie around it."
    for (w, a), (x, b) in pairwise(sorted(plain, key=lambda p: p[0])):
        if w <= words <= x: return {m: {q: a[m][q] + (words - w) / (x - w) * (b[m][q] - a[m][q]) for q in a[m]} for m in a}
    return None


def compared(values: dict, other: dict | None, groups: list[str]) -> dict:
    "Each measure's difference to another variant's."
    return {m: interval(v, groups, other[m]) for m, v in values.items()} if other and other is not values else {}


def study(data, ids: list[str], chosen: dict, encoder, retrievers: Sequence[str], say=print) -> list[dict]:
    "All rows: each variant by each retriever, against the first variant and against plain sentences of the same mean length."
    questions = [q for q in data.questions if q.gold_pmids[0] in set(ids)]
    groups, found, rows = [q.gold_pmids[0] for q in questions], {}, []
    for name, (segmenter, title) in chosen.items():
        found[name] = run_variant(segmenter, title, data, ids, questions, encoder,
                                  [r for r in retrievers if r == 'bm25' or name in EMBEDDED])
        about, values = found[name]
        for r, v in values.items():
            say(f'{r:7} {name:28} {about["words_per_passage"]:6.1f} w  '
                + '  '.join(f'{m} {np.mean(list(x.values())):.3f}' for m, x in v.items()) + f'  {about["seconds"]:.0f} s', flush=True)
    for name, (about, values) in found.items():
        shares = bool(about['describe']['overlap'])
        for r, v in values.items():
            plain = [(a['words_per_passage'], x[r]) for n, (a, x) in found.items() if a['describe']['segmenter'] == 'sentences'
                     and a['title'] == about['title']
                     and bool(a['describe']['overlap']) == shares and r in x]
            scored = {m: x for m, x in v.items() if m != WORDS_OF_FIVE}
            rows.append({'variant': name, 'retriever': r, **about,
                         'words_in_five': round(float(np.mean(list(v[WORDS_OF_FIVE].values()))), 1),
                         'measures': {m: interval(x, groups) for m, x in scored.items()},
                         'against_default': compared(scored, found[DEFAULT][1][r] if name != DEFAULT else None, groups),
                         'against_same_size': compared(scored,
                                                       same_size(about['words_per_passage'],
                                                                 plain) if about['describe']['segmenter'] != 'sentences' else None,
                                                                 groups)})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--articles', type=int, help='so many articles of the half, drawn by the seed; all of them unless told')
    p.add_argument('--half', choices=('dev', 'test', 'all'), default='all')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--retrievers', nargs='+', choices=RETRIEVERS, default=RETRIEVERS)
    p.add_argument('--variants', nargs='+', help='names of variants; all unless told, and always the default')
    p.add_argument('--out', default='seos_ablation', help='name of the result')
    a = p.parse_args()
    data, encoder, began = read_marked(DATA / 'evidence_inference'), RememberingEncoder(EmbeddedEncoder()), time.perf_counter()
    ids, rows = sample(data, a.half, a.articles, a.seed), variants(encoder)
    if unknown := set(a.variants or ()) - set(rows): p.error(f'{sorted(unknown)} are no variants: choose from {", ".join(rows)}')
    chosen = {name: v for name, v in rows.items() if not a.variants or name in a.variants or name == DEFAULT}
    found = study(data, ids, chosen, encoder, a.retrievers)
    questions = sum(q.gold_pmids[0] in set(ids) for q in data.questions)
    save(a.out, {'data': 'evidence_inference', 'scope': 'article', 'half': a.half, 'articles': len(ids), 'questions': questions,
                 'seed': a.seed,
                 'interval': '95 %, bootstrap over the articles, each drawn with all its questions; differences paired',
                 'minutes': round((time.perf_counter() - began) / 60, 1), 'rows': found},
         PACKAGES + ('bm25s',))


if __name__ == '__main__': main()
