"""Tells a PMID when PubMed took it in? Finds the lowest PMID of each year, and how near the year told by them is to that of the record.

    python benchmarks/pmid_years.py

Data: PMIDs with their years, of shared/data (rct and PubMedQA). The lowest PMID of a year is where fewest papers lie on the wrong side.
Half of the papers, drawn with a fixed seed, say where that is, the other half how near it comes; those in the package are of all.
"""
import gzip
import json

import numpy as np
from common import DATA, save

from cpqa.evaluation.statistics import wilson
from cpqa.literature.pmid_years import FIRST_PMIDS

EVERY = 10_000   # the lowest PMIDs are given to so many


def known() -> np.ndarray:
    "PMID and year, shape (n, 2), by PMID."
    found = {}
    with gzip.open(DATA / 'rct' / 'corpus.jsonl.gz', 'rt', encoding='utf-8') as f:
        for r in map(json.loads, f):
            if r['metadata'].get('year'): found[int(r['_id'])] = int(r['metadata']['year'])
    for id, r in json.loads((DATA / 'pubmedqa' / 'ori_pqal.json').read_text(encoding='utf-8')).items():
        if r.get('YEAR'): found[int(id)] = int(r['YEAR'])
    return np.array(sorted(found.items()))


def lowest(rows: np.ndarray) -> dict[int, int]:
    "For each year the PMID from which on a paper is rather of it or later."
    out = {}
    for year in range(min(FIRST_PMIDS), max(FIRST_PMIDS) + 1):
        later = rows[:, 1] >= year
        wrong = np.concatenate([[0], np.cumsum(later)]) + (~later).sum() - np.concatenate([[0], np.cumsum(~later)])
        out[year] = int(rows[min(int(wrong.argmin()), len(rows) - 1), 0]) // EVERY * EVERY
    return out


def main():
    rows = known()
    order = np.random.default_rng(0).permutation(len(rows))
    learnt, rest = np.sort(order[::2]), np.sort(order[1::2])
    first = lowest(rows[learnt])
    told = rows[rest][(rows[rest, 0] >= min(first.values())) & (rows[rest, 0] < max(first.values()))]
    years = np.array(sorted(first))[np.searchsorted(sorted(first.values()), told[:, 0], 'right') - 1]
    off = np.abs(years - told[:, 1])
    near = {f'within {n} years': {'value': round(w.value, 4), 'interval': [round(w.low, 4), round(w.high, 4)], 'n': len(off)}
            for n in (0, 1, 2) for w in [wilson(int((off <= n).sum()), len(off))]}
    save('pmid_years', {'papers': len(rows), 'of years told': near, 'lowest PMIDs, of all': lowest(rows),
                        'as in the package': lowest(rows) == FIRST_PMIDS}, ('cpqa', 'numpy'))


if __name__ == '__main__': main()
