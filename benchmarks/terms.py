"""What do terms find? Forms of names and spellings, the weights of BM25, and words of one meaning.

    python benchmarks/terms.py LIBRARY      # terms only: cpqa index build .../bioasq_beir/corpus.jsonl.gz --no-vectors --out LIBRARY

Names: each form of tests/name_forms.jsonl in a document of its own, among the demo notes; each form is asked, and each document with another
form should be found before those with a near name. The table was written before the rules, by whoever wrote them.
Weights: title boost on tantivy; k1 and b, which tantivy does not let one set, on bm25s. Chosen on rounds 7 to 9 of BioASQ, told on round 10.
Synonyms: for each pair two documents of one sentence, among the demo notes: is the one with the other word among the first three?
A question for which nothing is found stays in the mean, with nought.
"""
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import bm25s
import numpy as np
import tantivy
from common import DATA, ROOT, bioasq_questions, interval, save
from retrieval_quality import qrels, scores

from cpqa.core.records import Document, Hit
from cpqa.core.text_analysis import ENGLISH
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.library import Library, build_library
from cpqa.retrieval.term_search import TermRetriever

DEPTH = 100
K1, B, TITLE = (0.6, 0.9, 1.2, 1.5, 2.0), (0.3, 0.45, 0.6, 0.75, 0.9), (0.0, 0.1, 0.25, 0.5, 1.0)


def written(documents: list[Document], folder: Path) -> list[Path]:
    path = folder / 'made.jsonl'
    path.write_text('\n'.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) for d in documents))
    return [path]


def names() -> list[dict]:
    "Per kind: ordered pairs of forms, those found, those found before every near name, and near names found at all or first."
    rows = [json.loads(line) for line in (ROOT / 'tests' / 'name_forms.jsonl').read_text(encoding='utf-8').splitlines()]
    said = lambda i, what, forms: [Document(f'{what}{i}-{j}', text=f'We looked at {w} in this group.') for j, w in enumerate(forms)]
    made = [d for i, r in enumerate(rows) for d in said(i, 'form', r['forms']) + said(i, 'near', r['near'])]
    out, misses = {}, []
    with tempfile.TemporaryDirectory() as work:
        library = build_library(written(made + [n.document() for n in demo_notes()], Path(work)), Path(work) / 'library')
        search = TermRetriever(library).search
        for i, r in enumerate(rows):
            n = out.setdefault(r['kind'], dict.fromkeys(('names', 'pairs', 'found', 'found_first', 'near_pairs', 'near_found', 'near_first'), 0))
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
    return [{'kind': kind, **n} for kind, n in out.items()], misses


class Titled(TermRetriever):
    "The joint field, and the title once more with a weight."
    boost = 0.0
    def query(self, text: str) -> tantivy.Query:
        q, should = tantivy.Query, tantivy.Occur.Should
        title = TermRetriever(self.library, 'title').query(text)
        return q.boolean_query([(should, super().query(text)), (should, q.boost_query(title, self.boost))]) if self.boost else super().query(text)


def weighted(library: Library, questions: list[dict]) -> Iterator[tuple[str, dict]]:
    "The run of each setting."
    texts = [q['text'] for q in questions]
    for boost in TITLE:
        retriever = Titled(library)
        retriever.boost = boost
        yield f'title {boost}', dict(zip((q['_id'] for q in questions), retriever.search(texts, DEPTH)))
    documents = list(library)
    terms = bm25s.tokenize([' '.join(ENGLISH.analyze(f'{d.title}\n{d.text}')) for d in documents], token_pattern=r'\S+', stopwords=None,
                           show_progress=False)
    asked = [list(dict.fromkeys(ENGLISH.analyze(t))) for t in texts]
    for k1 in K1:
        for b in B:
            index = bm25s.BM25(method='lucene', k1=k1, b=b)
            index.index(terms, show_progress=False)
            rows, values = index.retrieve(asked, k=DEPTH, show_progress=False)
            yield f'k1 {k1}, b {b}', {q['_id']: [Hit(documents[i].id, float(v)) for i, v in zip(r, vs) if v > 0]
                                      for q, r, vs in zip(questions, rows, values)}


def weights(library: Library) -> list[dict]:
    "nDCG@10 and R@100 of each setting on rounds 7 to 9 and on round 10, and the paired difference from today's."
    questions, truth = bioasq_questions(), qrels()
    rounds = np.array([int(q['batch'].split('B')[0]) for q in questions])
    parts, rows, bases = {'rounds 7-9': rounds < 10, 'round 10': rounds == 10}, [], {}
    values = {name: scores(run, truth, questions) for name, run in weighted(library, questions)}
    for name, found in values.items():
        base = values['title 0.0' if name.startswith('title') else 'k1 1.2, b 0.75']
        for part, mask in parts.items():
            row = {'setting': name, 'questions': part, 'n': int(mask.sum())}
            for m in ('nDCG@10', 'R@100'):
                d = (found[m] - base[m])[mask]
                row[m] = {'mean': round(float(found[m][mask].mean()), 4), 'interval': interval(found[m][mask]),
                          'gain': round(float(d.mean()), 4), 'gain_interval': interval(d)}
            rows.append(row)
    return rows


if __name__ == '__main__':
    if sys.argv[1] == 'names': print(json.dumps(names(), indent=0, ensure_ascii=False))
    if sys.argv[1] == 'weights': Path('/tmp/t23weights.json').write_text(json.dumps(weights(Library(sys.argv[2]))))
