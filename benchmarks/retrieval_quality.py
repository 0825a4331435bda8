"""How well do term, dense and hybrid search rank? On all questions of bioasq_beir, scored by ir-measures.

    python benchmarks/retrieval_quality.py LIBRARY      # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --out LIBRARY

The k of the fusion is chosen on rounds 7 to 9 and then reported on round 10, on which nothing was chosen.
A question for which a system finds nothing stays in the mean, with nought.
"""
import csv
import sys

import bm25s
import ir_measures
import numpy as np
import tantivy
from common import DATA, bioasq_questions, interval, save
from ir_measures import R, RR, nDCG

from cpqa.core.records import Hit
from cpqa.core.text_analysis import ENGLISH
from cpqa.literature.library import Library
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.term_search import reciprocal_rank_fusion
from cpqa.retrieval.vectors import DenseRetriever, Vectors

MEASURES = [nDCG @ 10, RR @ 10, R @ 100]
FUSION_K = (1, 2, 5, 10, 20, 60)
DEPTH = 100


def qrels() -> list:
    with open(DATA / 'bioasq_beir' / 'qrels' / 'test.tsv') as f:
        return [ir_measures.Qrel(r['query-id'], r['corpus-id'], int(r['score'])) for r in csv.DictReader(f, delimiter='\t')]


def scores(run: dict, truth: list, questions: list[dict]) -> dict[str, np.ndarray]:
    "One value a question and measure, in the order of `questions`; nought where the system found nothing."
    docs = [ir_measures.ScoredDoc(q, hit.id, -rank) for q, hits in run.items() for rank, hit in enumerate(hits)]
    found = {(m.measure, m.query_id): m.value for m in ir_measures.iter_calc(MEASURES, truth, docs)}
    return {str(m): np.array([found.get((m, q['_id']), 0.0) for q in questions]) for m in MEASURES}


class TwoFields(TermRetriever):
    "BM25 of the title plus BM25 of the text, instead of one joint field."
    def query(self, text: str) -> tantivy.Query:
        parts = [TermRetriever(self.library, field).query(text) for field in ('title', 'text')]
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, q) for q in parts])


def reference(library: Library, questions: list[dict]) -> dict:
    "bm25s on the same terms: an independent implementation of the same formula."
    documents = list(library)
    index = bm25s.BM25(method='lucene', k1=1.2, b=0.75)
    index.index([ENGLISH.analyze(f'{d.title}\n{d.text}') for d in documents], show_progress=False)
    tokens = [list(dict.fromkeys(ENGLISH.analyze(q['text']))) for q in questions]
    rows, values = index.retrieve(tokens, k=DEPTH, show_progress=False)
    return {q['_id']: [Hit(documents[i].id, float(v)) for i, v in zip(r, vs) if v > 0] for q, r, vs in zip(questions, rows, values)}


def main(folder: str):
    library, encoder, questions, truth = Library(folder), EmbeddedEncoder(), bioasq_questions(), qrels()
    texts, ids = [q['text'] for q in questions], [q['_id'] for q in questions]
    terms = TermRetriever(library).search(texts, DEPTH)
    dense = DenseRetriever(Vectors(library, encoder)).search(texts, DEPTH)
    runs = {'bm25': dict(zip(ids, terms)), 'bm25s (reference)': reference(library, questions),
            'bm25, two fields': dict(zip(ids, TwoFields(library).search(texts, DEPTH))), 'dense': dict(zip(ids, dense))}
    for k in FUSION_K:
        runs[f'hybrid k={k}'] = {i: reciprocal_rank_fusion(pair, k)[:DEPTH] for i, pair in zip(ids, zip(terms, dense))}
    rounds = np.array([int(q['batch'].split('B')[0]) for q in questions])
    parts = {'all': rounds > 0, 'rounds 7-9': rounds < 10, 'round 10': rounds == 10}
    rows, values = [], {name: scores(run, truth, questions) for name, run in runs.items()}
    for name, by_measure in values.items():
        for part, mask in parts.items():
            rows.append({'system': name, 'questions': part, 'n': int(mask.sum()), 'without_hits': sum(not runs[name][i] for i in ids),
                         **{m: {'mean': round(float(v[mask].mean()), 4), 'interval': interval(v[mask])} for m, v in by_measure.items()}})
    def gain(system: str, base: str) -> dict:
        "The difference of two systems on round 10, question by question, with its paired interval."
        d = (values[system]['nDCG@10'] - values[base]['nDCG@10'])[parts['round 10']]
        return {'system': system, 'against': base, 'questions': 'round 10', 'n': len(d), 'nDCG@10': round(float(d.mean()), 4),
                'interval': interval(d)}

    chosen = max(FUSION_K, key=lambda k: values[f'hybrid k={k}']['nDCG@10'][parts['rounds 7-9']].mean())
    save('retrieval_quality', {'data': 'bioasq_beir', 'documents': len(library), 'depth': DEPTH,
                               'interval': '95 %, bootstrap over questions, 10,000 resamples',
                               'fusion_k_chosen_on_rounds_7_to_9': chosen, 'rows': rows,
                               'gains': [gain(f'hybrid k={chosen}', base) for base in ('bm25', 'dense', 'hybrid k=60')]})


if __name__ == '__main__': main(sys.argv[1])
