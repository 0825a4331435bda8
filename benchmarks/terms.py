"""What do terms find? Forms of names and spellings, the weights of BM25, and words of one meaning.

    python benchmarks/terms.py names
    python benchmarks/terms.py synonyms
    python benchmarks/terms.py weights LIBRARY      # cpqa index build .../bioasq_beir/corpus.jsonl.gz --no-vectors --out LIBRARY

Names: each form of tests/name_forms.jsonl in a document of its own, among the demo notes; each form is asked, and each document with
another form should be found before those with a near name. The table was written before the rules, by whoever wrote them.
Weights: tantivy's Python package does not let k1 and b be set, so the formula is computed here, over the same terms, for each setting and
for a title that counts once more; today's is k1 = 1.2, b = 0.75. Chosen on rounds 7 to 9 of BioASQ, told on round 10.
Synonyms: for each pair of benchmarks/labels/synonyms.txt two documents of one sentence, among every second demo note: is the one with
the other word among the first three? The pairs were written by one who had seen a part of the table of patients' words.
A question for which nothing is found stays in the mean, with nought.
"""
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
from common import RESULTS, ROOT, bioasq_questions, interval, save
from retrieval_quality import qrels
from scipy import sparse

from cpqa.core.records import Document
from cpqa.core.text_analysis import ENGLISH
from cpqa.libraries import DEMO_VECTORS, build_index
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.library import Library, build_library
from cpqa.retrieval.encoders import EmbeddedEncoder, KnownVectors
from cpqa.retrieval.term_search import TermRetriever, fuse, in_both_forms
from cpqa.retrieval.vectors import DenseRetriever, Vectors

DEPTH = 100
K1, B, TITLE, TODAY = (0.6, 0.9, 1.2, 1.5, 2.0), (0.3, 0.45, 0.6, 0.75, 0.9), (0.1, 0.25, 0.5, 1.0), (1.2, 0.75)

COUNTED = ('names', 'pairs', 'found', 'found_first', 'near_pairs', 'near_found', 'near_first')


def written(documents: list[Document], folder: Path) -> list[Path]:
    path = folder / 'made.jsonl'
    path.write_text('\n'.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) for d in documents))
    return [path]


def names() -> dict:
    "Per kind: ordered pairs of forms, those found, those found before every near name, and near names found at all or first."
    rows = [json.loads(line) for line in (ROOT / 'tests' / 'name_forms.jsonl').read_text(encoding='utf-8').splitlines()]
    said = lambda i, what, forms: [Document(f'{what}{i}-{j}', text=f'We looked at {w} in this group.') for j, w in enumerate(forms)]
    made = [d for i, r in enumerate(rows) for d in said(i, 'form', r['forms']) + said(i, 'near', r['near'])]
    out, misses = {}, []
    with tempfile.TemporaryDirectory() as work:
        library = build_library(written(made + [n.document() for n in demo_notes()], Path(work)), Path(work) / 'library')
        search = TermRetriever(library).search
        for i, r in enumerate(rows):
            n = out.setdefault(r['kind'], dict.fromkeys(COUNTED, 0))
            n['names'] += 1
            for j, hits in enumerate(search(r['forms'], len(library))):
                place = {h.id: h.score for h in hits}
                others = [place.get(f'form{i}-{k}', 0.0) for k in range(len(r['forms'])) if k != j]
                near = [place.get(f'near{i}-{k}', 0.0) for k in range(len(r['near']))]
                n['pairs'] += len(others); n['found'] += sum(s > 0 for s in others)
                n['found_first'] += sum(s > max(near, default=0.0) for s in others)
                n['near_pairs'] += len(near); n['near_found'] += sum(s > 0 for s in near)
                n['near_first'] += sum(s > 0 and s >= min(others) for s in near)
                misses += [[r['forms'][j], w] for k, w in enumerate(r['forms']) if k != j
                           and not place.get(f'form{i}-{k}', 0.0) > max(near, default=0.0)]
    return {'rows': [{'kind': kind, **n} for kind, n in out.items()], 'missed': misses}


def counted(texts: list[list[str]], vocabulary: dict[str, int]) -> sparse.csr_matrix:
    "How often each text holds each term of the vocabulary."
    at = [(i, vocabulary[t], n) for i, terms in enumerate(texts) for t, n in Counter(terms).items() if t in vocabulary]
    rows, columns, values = (np.array(c) for c in zip(*at))
    return sparse.csr_matrix((values.astype(float), (rows, columns)), (len(texts), len(vocabulary)))


def bm25(found: sparse.csr_matrix, lengths: np.ndarray, k1: float, b: float) -> sparse.csr_matrix:
    "What each term of a document earns it, by the formula of the term search room."
    held = np.diff(found.tocsc().indptr)
    idf = np.log1p((found.shape[0] - held + 0.5) / (held + 0.5))
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    out = found.copy()
    out.data = idf[found.indices] * found.data * (k1 + 1) / (found.data + np.repeat(norm, np.diff(found.indptr)))
    return out


def measured(asked: sparse.csr_matrix, earned: sparse.csr_matrix, gold: list[set[int]]) -> dict[str, np.ndarray]:
    "nDCG@10 and R@100 of each question."
    totals, out = (asked @ earned.T).tocsr(), {'nDCG@10': [], 'R@100': []}
    gains = 1 / np.log2(np.arange(2, 12))
    for i, right in enumerate(gold):
        row = slice(totals.indptr[i], totals.indptr[i + 1])
        best = totals.indices[row][np.lexsort((totals.indices[row], -totals.data[row]))][:DEPTH]
        is_right = np.isin(best, list(right))
        out['nDCG@10'].append(float((gains[:len(best)] * is_right[:10]).sum() / gains[:len(right)].sum()))
        out['R@100'].append(is_right.sum() / len(right))
    return {m: np.array(v) for m, v in out.items()}


def settings(library: Library, questions: list[dict]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    "The values of each setting: a grid of k1 and b, and the title's own BM25 added with a weight."
    documents = list(library)
    place, right = {d.id: i for i, d in enumerate(documents)}, defaultdict(set)
    for q in qrels():
        if q.relevance > 0: right[q.query_id].add(place.get(q.doc_id, -1))
    gold, asked = [right[q['_id']] for q in questions], [list(dict.fromkeys(ENGLISH.analyze(q['text']))) for q in questions]
    vocabulary = {t: i for i, t in enumerate(sorted({t for terms in asked for t in terms}))}
    titles, bodies = ([ENGLISH.analyze(getattr(d, f)) for d in documents] for f in ('title', 'text'))
    joint = counted([t + b for t, b in zip(titles, bodies)], vocabulary)
    long = np.array([len(t) + len(b) for t, b in zip(titles, bodies)])
    wanted, alone = counted(asked, vocabulary), bm25(counted(titles, vocabulary), np.array([len(t) for t in titles]), *TODAY)
    for k1, b in product(K1, B): yield f'k1 {k1}, b {b}', measured(wanted, bm25(joint, long, k1, b), gold)
    for boost in TITLE: yield f'title {boost}', measured(wanted, bm25(joint, long, *TODAY) + boost * alone, gold)


def weights(library: Library) -> list[dict]:
    "nDCG@10 and R@100 of each setting on rounds 7 to 9 and on round 10, and the paired difference from today's."
    questions = bioasq_questions()
    rounds = np.array([int(q['batch'].split('B')[0]) for q in questions])
    parts, rows, values = {'rounds 7-9': rounds < 10, 'round 10': rounds == 10}, [], dict(settings(library, questions))
    base = values['k1 {}, b {}'.format(*TODAY)]
    for name, found in values.items():
        for part, mask in parts.items():
            row = {'setting': name, 'questions': part, 'n': int(mask.sum())}
            for m, value in found.items():
                d = (value - base[m])[mask]
                row[m] = {'mean': round(float(value[mask].mean()), 4), 'interval': interval(value[mask]),
                          'gain': round(float(d.mean()), 4), 'gain_interval': interval(d)}
            rows.append(row)
    return rows


def synonyms() -> list[dict]:
    "Per search, with the table of patients' words and without: of how many pairs is the other word's document not among the first three?"
    pairs = [line.split(' | ') for line in (ROOT / 'benchmarks' / 'labels' / 'synonyms.txt').read_text().splitlines()]
    said = ('Notes on {} were kept on the ward.', 'A report looked at {} over five years.')
    made = [Document(f'pair{i}-{j}', text=said[j].format(w)) for i, pair in enumerate(pairs) for j, w in enumerate(pair)]
    asked = [(f'What is known about {w}?', f'pair{i}-{1 - j}') for i, pair in enumerate(pairs) for j, w in enumerate(pair)]
    rows, encoder = [], KnownVectors(EmbeddedEncoder(), DEMO_VECTORS)
    with tempfile.TemporaryDirectory() as work:
        library = build_index(made + [n.document() for n in demo_notes()[::2]], Path(work) / 'library', encoder=encoder)
        terms, dense = TermRetriever(library).search, in_both_forms(DenseRetriever(Vectors(library, encoder)).search)
        both = lambda queries, k: [fuse(a, b) for a, b in zip(terms(queries, DEPTH), dense(queries, DEPTH))]
        for table in (True, False):
            with nullcontext() if table else patch('cpqa.retrieval.patient_words.patients_phrases', lambda text: []):
                for name, search in (('bm25', terms), ('dense', dense), ('hybrid', both)):
                    found = search([q for q, _ in asked], DEPTH)
                    failed = [id not in [h.id for h in hits[:3]] for (_, id), hits in zip(asked, found)]
                    rows.append({'search': name, 'table': table, 'n': len(asked), 'failed': sum(failed),
                                 'share': round(sum(failed) / len(asked), 3), 'interval': interval(np.array(failed, float)),
                                 'lay asked': sum(failed[::2]), 'clinical asked': sum(failed[1::2]),
                                 'failures': [q for (q, _), bad in zip(asked, failed) if bad]})
    return rows


def main(part: str, *folder: str):
    "Measures one part and keeps the others as they were."
    path = RESULTS / 'terms.json'
    kept = {k: v for k, v in json.loads(path.read_text()).items() if k in PARTS} if path.exists() else {}
    kept[part] = PARTS[part](*map(Library, folder))
    save('terms', {'interval': '95 %, bootstrap, 10,000 resamples', **kept})


PARTS = {'names': names, 'weights': weights, 'synonyms': synonyms}
if __name__ == '__main__': main(*sys.argv[1:])
