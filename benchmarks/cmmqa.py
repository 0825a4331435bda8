"""How large is CMMQA by our filter, and how often is the filter right? Against questions that were labelled by reading them.

    python benchmarks/cmmqa.py [--misses]

benchmarks/labels/cmmqa.tsv holds 1,008 labels. The questions were drawn at random (`drawn`, which this script checks against the file)
within each of the five sets and four strata: strong words (that smell of cancer) in the question, strong words elsewhere, broad words that
might, and the rest. Two sessions of a language model read each of the 518 questions of the first draw, blind to each other and to the
filter; two disagreements were settled by a third reading. A second draw of 490, from large strata in which little had been found, was read
by one session, just as blind. They were no oncologists, and two readers of one kind agree more easily than two people, so their kappa is no
proof. The lexicon was not changed after the filter was first compared with the labels.

Labels: cancer (about a malignant neoplasm), benign (about another neoplasm in the sense of MeSH's C04), mention (named in passing), none.

How many questions each cell (set, stratum, let in or not) holds is known; only the share that is about cancer is estimated, cell by cell.
The interval draws that share from its posterior under Jeffreys' prior, and the questions that nobody read from it:
a cell in which none of 30 questions was about cancer still adds to the width.
"""
import csv
import random
import re
import sys
from collections import Counter, defaultdict
from itertools import product

import numpy as np
from common import DATA, ROOT, save

from cpqa.evaluation.datasets import QUESTION_FIELDS, PAPER_SIZES, SETS, admit, sizes
from cpqa.evaluation.datasets import load
from cpqa.literature.cancer_lexicon import Lexicon

LABELS = ROOT / 'benchmarks' / 'labels' / 'cmmqa.tsv'
MEANINGS = {'cancer': {'cancer'}, 'cancer or other neoplasm': {'cancer', 'benign'}}
WHERE = {'question': QUESTION_FIELDS[:1], 'question, options': QUESTION_FIELDS[:2], 'question, options, context': QUESTION_FIELDS}
STRONG = re.compile(r'cancer|tumou?r|neopla|carcin|sarcom|lymphom|leu[kc]+a?em|melano|metasta|myelom|gliom|blastom|malignan|adenom|'
                    r'nev[iu]|cyst\b|cysts|mole\b|hamartom|'
                    r'teratom|seminom|mesothel|hodgkin|polyp|angioma|papillom|\b(ALL|AML|CML|CLL|NHL|MEN|GIST|HCC|NSCLC|CIN)\b|\bbenign|'
                    r'\bstag(e|ing)|\bgrade', re.I)
BROAD = re.compile(r'onco|chemo|radiothe|fibroid|leiomyom|meningiom|n[ae]+vus|barrett|in '
                   r'situ|dysplas|\bmass\b|lump|lesion|nodul|biops|paget|osteochond|lipom|schwann|neurofib|'
                   r'warts?\b|kaposi|paraneo|BRCA|HPV|psa\b|mammog|hyperplas|syndrome|smok|HER2|kinase|p53|inhibitor|mab\b|nib\b|'
                   r'transplant|resect|ectomy', re.I)
READ = {'strong/question': 40, 'strong/elsewhere': 22, 'broad': 16, 'rest': 30}   # questions drawn from each set
# and later
MORE = {('medmcqa', 'rest'): 220, ('mmlu', 'rest'): 70, ('medqa', 'rest'): 70, ('medmcqa', 'broad'): 60, ('medqa', 'broad'): 40,
        ('mmlu', 'broad'): 30}
DOZEN = re.compile(r'\b(?:cancers?|tumors?|neoplasms?|\w*carcinomas?|lymphomas?|leukemias?|melanomas?|\w*sarcomas?|\w*gliomas?|myelomas?|'
                   r'\w*blastomas?|metastasis)\b', re.I)


def stratum(q) -> str:
    if STRONG.search(q.question): return 'strong/question'
    rest = ' '.join([*q.options.values(), q.context])
    return 'strong/elsewhere' if STRONG.search(rest) else 'broad' if BROAD.search(f'{q.question} {rest}') else 'rest'


def drawn(sets: dict) -> set:
    "The questions to be read, as they were drawn: (set, id, stratum, first or second draw)."
    groups = defaultdict(list)
    for name in SETS:
        for q in sorted(sets[name], key=lambda q: q.part if name == 'bioasq' else ''): groups[name, stratum(q)].append(q.id)
    rng = random.Random(20261122)
    order = sorted(groups, key=lambda g: (g[0], g[1].partition('/')[0], g[1].partition('/')[2]))
    first = {(name, id, s, '1') for name, s in order for id in rng.sample(groups[name, s], min(READ[s], len(groups[name, s])))}
    left = {g: [id for id in ids if (*g[:1], id, g[1], '1') not in first] for g, ids in groups.items()}
    return first | {(name, id, s, '2') for (name, s), n in MORE.items() for id in rng.sample(left[name, s], n)}


class Estimate:
    "Shares among all questions, of which only some were read: `in_` and `about` say of a question whether it is let in, and about cancer."
    def __init__(self, population: list, read: dict, in_: dict, about: dict, draws: int = 10_000, seed: int = 0):
        rng, self.cells = np.random.default_rng(seed), []
        members = defaultdict(list)
        for key, cell in population: members[(*cell, in_[key])].append(key)
        for cell, keys in sorted(members.items()):
            seen = [about[k] for k in keys if k in read]
            n, k, size = len(seen), sum(seen), len(keys)
            point = k / n * size if n else None   # a cell of which nobody read a question: see below
            self.cells.append((cell, size, n, point, k + rng.binomial(size - n, rng.beta(k + .5, n - k + .5, draws))))
        pooled = lambda flag: sum(p for c, *_, p, _ in self.cells if c[-1] == flag and p is not None) / max(1,
            sum(s for c, s, _, p, _ in self.cells if c[-1] == flag and p is not None))
        self.cells = [(c, s, n, pooled(c[-1]) * s if p is None else p, d) for c, s, n, p, d in self.cells]

    def _sum(self, which: int, only=None, set_: str | None = None):
        return sum((c[which] for c in self.cells if (only is None or c[0][-1] == only) and (set_ is None or c[0][0] == set_)),
                   start=np.zeros(1) if which == 4 else 0)

    def _told(self, point: float, draws, n: int) -> dict:
        low, high = np.percentile(draws, [2.5, 97.5])
        return {'value': round(float(point), 4), 'low': round(float(min(low, point)), 4), 'high': round(float(max(high, point)), 4),
                'read': n}

    def precision(self, set_: str | None = None) -> dict | None:
        size = self._sum(1, True, set_)
        return self._told(self._sum(3, True, set_) / size, self._sum(4, True, set_) / size, self._sum(2, True, set_)) if size else None

    def recall(self, set_: str | None = None) -> dict | None:
        total, draws = self._sum(3, None, set_), self._sum(4, None, set_)
        return self._told(self._sum(3, True, set_) / total, self._sum(4, True, set_) / np.maximum(draws, 1e-9),
                          self._sum(2, None, set_)) if total else None

    def total(self) -> dict: return self._told(self._sum(3), self._sum(4), self._sum(2))


def kappa(a: list, b: list) -> float:
    agreed, chance = np.mean([x == y for x, y in zip(a, b)]), sum(a.count(c) * b.count(c) for c in set(a)) / len(a) ** 2
    return round(float((agreed - chance) / (1 - chance)), 3)


def rated(population: list, read: dict, in_: dict) -> dict:
    "Precision and recall, overall and by set, for each meaning of the labels."
    out = {}
    for meaning, labels in MEANINGS.items():
        e = Estimate(population, read, in_, {k: label in labels for k, label in read.items()})
        out[meaning] = {'precision': e.precision(), 'recall': e.recall(),
                        'by_set': {s: {'precision': e.precision(s), 'recall': e.recall(s)} for s in SETS}}
    return out


def missed(rows: list, questions: dict, in_: dict, lexicon: Lexicon, weight: dict) -> dict:
    "The cancer questions whose own text names none: where else a term stands, in estimated questions."
    where = Counter()
    for r in rows:
        key = (r['set'], r['id'])
        if r['label'] != 'cancer' or in_[key]: continue
        q = questions[key]
        if q.gold and lexicon.find(q.options[q.gold]): where['in the right option'] += weight[key]
        else: where['in another field' if admit(q, lexicon) else 'in no field'] += weight[key]
    return {k: round(v, 1) for k, v in where.most_common()}


def main():
    lexicon, sets = Lexicon.load(), {name: load(name, DATA) for name in SETS}
    with open(LABELS) as f: rows = list(csv.DictReader(f, delimiter='\t'))
    if {(r['set'], r['id'], r['stratum'], r['draw']) for r in rows} != drawn(sets):
        raise SystemExit('the labels are not those of the questions that are drawn')
    twice = [r for r in rows if r['reader_2']]
    questions = {(name, q.id): q for name, qs in sets.items() for q in qs}
    population = [(key, (key[0], stratum(q))) for key, q in questions.items()]
    read = {(r['set'], r['id']): r['label'] for r in rows}
    variants = []
    for (where, fields), traps in product(WHERE.items(), (True, False)):
        admitted = [(key, admit(q, lexicon, fields, traps)) for key, q in questions.items()]
        table = sizes(a for _, a in admitted if a)
        variants.append({'fields': where, 'traps': traps, 'sizes': {s: sum(table[s].values()) for s in SETS},
                         'all': sum(a is not None for _, a in admitted),
                         'by_field': table, **rated(population, read, {key: a is not None for key, a in admitted})})
        if (where, traps) == ('question', True): in_question = {key: a is not None for key, a in admitted}
    holds = {'question': lambda q: q.question, 'question, options': lambda q: ' '.join([q.question, *q.options.values()])}
    dozen = [{'fields': where, 'sizes': {s: sum(bool(DOZEN.search(text(q))) for q in qs) for s, qs in sets.items()},
              **rated(population, read, {key: bool(DOZEN.search(text(q))) for key, q in questions.items()})} for where,
              text in holds.items()]
    cells = Counter((cell, in_question[key]) for key, cell in population)
    seen = Counter((cell, in_question[key]) for key, cell in population if key in read)
    weight = {key: cells[cell, in_question[key]] / seen[cell, in_question[key]] for key, cell in population if key in read}
    totals = {m: Estimate(population, read, in_question, {k: label in labels for k, label in read.items()}).total() for m,
              labels in MEANINGS.items()}
    save('cmmqa', {'data': {s: len(q) for s, q in sets.items()}, 'labelled': len(rows), 'labels': dict(Counter(r['label'] for r in rows)),
                   'readers': 'sessions of a language model, blind to each other and to the filter; no oncologists',
                   'read_by_two': len(twice), 'agreed_by_two_readers': sum(r['reader_1'] == r['reader_2'] for r in twice),
                   'kappa': kappa([r['reader_1'] for r in twice], [r['reader_2'] for r in twice]),
                   'interval': "95 %, posterior under Jeffreys' prior in cells of set, stratum and let in or not; known cell sizes",
                   'estimated_questions': totals,
                   'missed_by_the_question': missed(rows, questions, in_question, lexicon, weight),
                   'paper_sizes': PAPER_SIZES, 'variants': variants, 'dozen_words': dozen}, packages=('cpqa', 'numpy'))
    if '--misses' in sys.argv:   # to look at, on the standard error: the questions are not ours to publish
        for r in rows:
            q = questions[r['set'], r['id']]
            got = admit(q, lexicon)
            if (got is not None) != (r['label'] in ('cancer', 'benign')):
                print(f'{"wrongly in" if got else "missed"} [{r["label"]}] {got and (got.term, got.field)} {q.source}: '
                      f'{q.question[:160]!r}', file=sys.stderr)


if __name__ == '__main__': main()
