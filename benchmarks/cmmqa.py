"""How large is CMMQA by our filter, and how often is the filter right? Against questions that were labelled by reading them.

    python benchmarks/cmmqa.py

benchmarks/labels/cmmqa.tsv holds 518 labels, made before the filter was run on these questions: drawn at random within each set from
three strata (words that smell of cancer, in the question or elsewhere; words that might; none), each row with the number of questions
that it stands for. Two sessions of a language model read each question, blind to each other and to the filter, and two disagreements
were settled by a third reading. They were not oncologists, and two readers of one kind agree more easily than two people.

Labels: cancer (about a malignant neoplasm), benign (about another neoplasm in the sense of MeSH's C04), mention (named in passing), none.
"""
import csv
import re
import sys
from collections import Counter
from itertools import product

import numpy as np
from common import DATA, ROOT, save

from cpqa.evaluation.cmmqa import FIELDS, PAPER_SIZES, SETS, admit, cmmqa, sizes
from cpqa.evaluation.datasets import load
from cpqa.literature.lexicon import Lexicon

LABELS = ROOT / 'benchmarks' / 'labels' / 'cmmqa.tsv'
MEANINGS = {'cancer': {'cancer'}, 'cancer or other neoplasm': {'cancer', 'benign'}}
DOZEN = (r'(?i)\b(?:cancers?|tumors?|neoplasms?|\w*carcinomas?|lymphomas?|leukemias?|melanomas?|\w*sarcomas?|\w*gliomas?|myelomas?|\w*blastomas?|metastasis)\b')
WHERE = {'question': FIELDS[:1], 'question, options': FIELDS[:2], 'question, options, context': FIELDS}


def share(weights: np.ndarray, of: np.ndarray, that: np.ndarray) -> np.ndarray:
    "The weighted share of `of` that is `that`, for each row of weights."
    return (weights * (of & that)).sum(-1) / np.maximum((weights * of).sum(-1), 1e-12)


def resampled(strata: list, weights: np.ndarray, times: int = 10_000, seed: int = 0) -> np.ndarray:
    "Weights of bootstrap samples, drawn within each stratum: shape (times, n)."
    rng, out = np.random.default_rng(seed), np.zeros((times, len(weights)))
    for s in sorted(set(strata)):
        at = np.array([i for i, x in enumerate(strata) if x == s])
        out[:, at] = rng.multinomial(len(at), np.full(len(at), 1 / len(at)), size=times)
    return out * weights


def figure(weights, draws, of, that) -> dict:
    low, high = np.percentile(share(draws, of, that), [2.5, 97.5])
    return {'value': round(float(share(weights, of, that)), 4), 'low': round(float(low), 4), 'high': round(float(high), 4), 'n': int(of.sum())}


def kappa(a: list, b: list) -> float:
    agreed, chance = np.mean([x == y for x, y in zip(a, b)]), sum(a.count(c) * b.count(c) for c in set(a)) / len(a) ** 2
    return round(float((agreed - chance) / (1 - chance)), 3)


def main():
    lexicon, sets = Lexicon.load(), {name: load(name, DATA) for name in SETS}
    with open(LABELS) as f: rows = list(csv.DictReader(f, delimiter='\t'))
    questions = [sets[r['set']][r['id']] for r in rows]
    weights, strata = np.array([float(r['weight']) for r in rows]), [(r['set'], r['stratum']) for r in rows]
    draws = resampled(strata, weights)
    def figures(in_: np.ndarray, labels: set) -> dict:
        about = np.array([r['label'] in labels for r in rows])
        return {'precision': figure(weights, draws, in_, about), 'recall': figure(weights, draws, about, in_)}

    variants = []
    for (where, fields), traps in product(WHERE.items(), (True, False)):
        table = sizes(cmmqa(sets.values(), fields, traps, lexicon))
        in_ = np.array([admit(q, lexicon, fields, traps) is not None for q in questions])
        row = {'fields': where, 'traps': traps, 'sizes': {s: sum(table[s].values()) for s in SETS}, 'by_field': table}
        row['all'] = sum(row['sizes'].values())
        variants.append(row | {meaning: figures(in_, labels) for meaning, labels in MEANINGS.items()})
    holds = lambda q: re.search(DOZEN, q.question) is not None   # words chosen after their sizes were seen
    dozen = {'sizes': {s: sum(map(holds, questions_)) for s, questions_ in sets.items()},
             **{m: figures(np.array([holds(q) for q in questions]), labels) for m, labels in MEANINGS.items()}}
    about = {m: float((weights * np.array([r['label'] in labels for r in rows])).sum()) for m, labels in MEANINGS.items()}
    save('cmmqa', {'data': {s: len(q) for s, q in sets.items()}, 'labelled': len(rows), 'labels': dict(Counter(r['label'] for r in rows)),
                   'agreed_by_two_readers': sum(r['reader_1'] == r['reader_2'] for r in rows),
                   'kappa': kappa([r['reader_1'] for r in rows], [r['reader_2'] for r in rows]),
                   'interval': '95 %, bootstrap within strata, 10,000 resamples', 'estimated_questions': {m: round(v) for m, v in about.items()},
                   'paper_sizes': PAPER_SIZES, 'variants': variants, 'dozen_words': dozen}, packages=('cpqa', 'numpy'))
    if '--misses' in sys.argv:   # to look at, on the standard error: the questions are not ours to publish
        for r, q in zip(rows, questions):
            got = admit(q, lexicon)
            if (got is not None) != (r['label'] in ('cancer', 'benign')):
                print(f'{"wrongly in" if got else "missed"} [{r["label"]}, weight {float(r["weight"]):.0f}] {got and (got.term, got.field)} {q.source}: {q.question[:160]!r}', file=sys.stderr)


if __name__ == '__main__': main()
