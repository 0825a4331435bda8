"""What does one vector a document, the mean of its passages', save, and what does it cost?

    python benchmarks/one_vector.py ABSTRACTS FULL-TEXTS      # both built by  cpqa index build ... --out LIBRARY

ABSTRACTS is a library of bioasq_beir's corpus, asked all its questions; FULL-TEXTS one of rct's full texts on cancer, asked the questions
that were put to these articles (intervention, comparator, outcome, as one question), each of which is to find its own article. What
`--segmenter document` keeps is made from the passages' vectors of these libraries, without embedding anything again. Searched is all,
exactly, by meaning alone and fused with words as `cpqa ask` does. A question for which nothing is found stays in the mean, with nought.
"""
import gzip
import json
import sys

import ir_measures
import numpy as np
from common import DATA, PACKAGES, bioasq_questions, interval, save
from retrieval_quality import DEPTH, qrels, scores

from cpqa.core.records import Hit
from cpqa.libraries import encoder_of, remembered_encoder
from cpqa.literature.library import Library
from cpqa.retrieval.term_search import TermRetriever, fuse
from cpqa.retrieval.vectors import Vectors, _means


def prompts(ids: set[str]) -> tuple[list[dict], list]:
    "The questions put to the articles of a library, and which article each is to find."
    with gzip.open(DATA / 'rct' / 'prompts.jsonl.gz', 'rt') as f: known = [p for p in map(json.loads, f) if p['pmcid'] in ids]
    said = 'Does {intervention} change {outcome} compared with {comparator}?'
    questions = [{'_id': p['id'], 'text': said.format(**p)} for p in known]
    return questions, [ir_measures.Qrel(p['id'], p['pmcid'], 1) for p in known]


def found(scores_of: np.ndarray, numbers: np.ndarray, ids: list[str]) -> list[Hit]:
    "The best documents by their best row."
    best = np.full(len(ids), -np.inf)
    np.maximum.at(best, numbers, scores_of)
    return [Hit(ids[n], float(best[n])) for n in np.argsort(-best, kind='stable')[:DEPTH]]


def mean(values: np.ndarray) -> dict: return {'mean': round(float(values.mean()), 4), 'interval': interval(values)}


def measured(folder: str, questions: list[dict] | None = None, truth: list | None = None) -> dict:
    library = Library(folder)
    vectors, ids = Vectors(library, encoder_of(remembered_encoder(library))), list(library.ids)
    if questions is None: questions, truth = prompts(set(ids))
    rows = np.vstack([vectors.of_rows(range(n, min(n + 4096, len(vectors.spans)))) for n in range(0, len(vectors.spans), 4096)])
    means, _ = _means(rows, np.column_stack([vectors.spans, np.zeros((len(rows), 2), dtype=np.int64)]))
    asked = vectors.encoder.encode([q['text'] for q in questions], 'query')
    words = TermRetriever(library).search([q['text'] for q in questions], DEPTH)
    out, before = {'documents': len(ids), 'n': len(questions)}, {}
    for name, matrix, numbers in (('passages', rows, vectors.spans[:, 0]), ('one a document', means, np.arange(len(ids)))):
        dense = [found(matrix @ q, numbers, ids) for q in asked]
        told = {'vectors': len(matrix), 'bytes': matrix.nbytes}
        for way, hits in (('by meaning', dense), ('fused with words', [fuse(w, d) for w, d in zip(words, dense)])):
            values = scores({q['_id']: h for q, h in zip(questions, hits)}, truth, questions)['nDCG@10']
            told[way] = {'nDCG@10': mean(values), 'less passages': mean(values - before.setdefault(way, values))}
        out[name] = told
    return out


if __name__ == '__main__':
    abstracts, full = sys.argv[1:]
    save('one_vector', {'interval': '95 %, bootstrap over questions', 'abstracts': measured(abstracts, bioasq_questions(), qrels()),
                        'full texts': measured(full)}, PACKAGES)
