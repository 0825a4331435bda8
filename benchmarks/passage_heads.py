"""What is it worth to put the title, or title and section, before a passage that is indexed? Question by question, on Evidence Inference.

    python benchmarks/passage_grid.py --segmenters sentences:128:32,seos:128:32 --metadata "" --cells .cache/passage_grid_bare.jsonl --name
    passage_grid_bare python benchmarks/passage_grid.py --segmenters sentences:128:32,seos:128:32 --metadata title,section --cells
    .cache/passage_grid_section.jsonl --name passage_grid_section python benchmarks/passage_grid.py
    python benchmarks/passage_heads.py

Reads the cells that the three runs of the grid keep in .cache, those without a reranker, and compares nothing and title + section with the
title alone on the same 928 questions. Whole articles are drawn; p is adjusted over all comparisons of one head on one measure (Holm).
"""
import json
from itertools import product

from common import DATA, ROOT, save

from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.statistics import holm, paired_by_group

FILES = {'title': 'passage_grid', 'nothing': 'passage_grid_bare', 'title + section': 'passage_grid_section'}
CELLS = [(*c, 'none', scope) for *c, scope in product(('sentences:128:32', 'seos:128:32'), ('bm25', 'dense', 'hybrid'),
                                                      ('article', 'global'))]
MEASURES = {'Hits@5': ('first', 5), 'Hits@320words': ('needed', 320), 'Hits@640words': ('needed', 640)}


def read(name: str) -> tuple[dict, dict]:
    "The header, and cell -> its line, of a file of cells."
    header, *lines = [json.loads(line) for line in (ROOT / '.cache' / f'{FILES[name]}.jsonl').read_text().splitlines()]
    return header, {tuple(line['cell']): line for line in lines}


def within(line: dict, measure: str) -> list[float]:
    "1 for each question whose evidence is read within the measure's limit, else 0; 0 means not found."
    key, most = MEASURES[measure]
    return [float(0 < n <= most) for n in line[key]]


def main():
    headers, cells = zip(*map(read, FILES))
    assert len({(h['data'], h['sections'], h['model'],
                 h['depth']) for h in headers}) == 1, 'the runs are of different data, models or depths'
    of = dict(zip(FILES, cells))
    articles = [q.gold_pmids[0] for q in read_marked(DATA / 'evidence_inference').questions]
    pairs = {f'{head} | {" | ".join(c)} | {m}': (within(of[head][c], m), within(of['title'][c], m)) for head in FILES if head != 'title'
             for c in CELLS for m in MEASURES}
    found = paired_by_group(pairs, articles, resamples=20_000)
    adjusted = {}
    for head, m in product(FILES, MEASURES):
        if family := {k: p.p for k, p in found.items() if k.startswith(f'{head} | ') and k.endswith(f' | {m}')}: adjusted |= holm(family)
    save('passage_heads', {'data': 'evidence_inference', 'questions': len(articles), 'articles': len(set(articles)), 'against': 'title',
                           'reranker': 'none',
                           'columns': 'difference, low, high, p, p adjusted',
                           'interval': '95 %, bootstrap over the articles, each drawn with all its questions; differences paired',
                           'comparisons': {k: [round(x, 4) for x in (p.difference.value, p.difference.low, p.difference.high, p.p,
                                                                     adjusted[k])] for k, p in found.items()}})


if __name__ == '__main__': main()
