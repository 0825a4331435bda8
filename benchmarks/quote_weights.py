"""Which sentences are worth quoting to a patient? Learns the weights of the quoting reader from sentences that were graded one by one.

    python benchmarks/quote_weights.py sentences OUT NAME=LIBRARY ...   (what is still to be graded; NAME= alone: the demo notes)
    python benchmarks/quote_weights.py fit NAME=LIBRARY ... researchers=LIBRARY [papers=LIBRARY] [--most NAME:N,...]
                                          [--parts papers,researchers] [--write]

The questions are those of benchmarks/labels/patient_questions.tsv whose `part` is fit, in patients' words. Of each question and library the
sentences that any one of several orders puts first are graded (benchmarks/labels/quote_grades.tsv) by a reader who does not know how they
were chosen: 2 answers the question or its main part, 1 is on the subject and of use, 0 is beside the point. The readers were sessions of a
language model. Texts are not kept in that table, places in documents are.
With --most no more than so many graded questions of a library count, drawn with a fixed seed: reading the signs of one takes seconds.
`papers` are questions put to abstracts and whole papers together: some that were written for papers (paper_questions.tsv) which the answer
network left out, and some of patients; what was quoted was graded by somebody blind (paper_grades.tsv).
`researchers` are questions of BioASQ's round 9 over its abstracts, as benchmarks/reading.py keeps them; a sentence that experts marked
counts as of use, any other as of none.

A logistic regression is fitted to grade 1 or 2 against 0, for patients' questions to papers, and for those that are put in the words of
papers, by whomever; but for the last, all researchers' sentences together weigh a tenth of the patients', since
with more of a say they make it promise patients too much. What it is worth on questions that it did not see is told by tenfold
cross-validation over questions; `--write` puts the weights into cpqa/data/quotes.json, with --parts those of some alone. The weights for
comparisons there are those of benchmarks/reading.py, chosen by hand.
Those for notes are learnt by known_answers.py, from fifteen times as many.
Those for papers are of one of November 27 (with that of the 28th, of 110
questions kept aside that were written for papers, put to 16,625, 59 were answered and 23 first quotes were marked; with the one before 65
and 26): learnt with that of
the evening, from sentences of which few are of use, they made of 100 questions that were held out 40 answered, 27 of use; as they were,
with that network, 46 and 35 (48 and 35 with the network before; all first quotes graded blind in one shuffled row, by two sessions).
"""
import json
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
from common import DATA, RESULTS, ROOT, save
from msgspec.structs import replace
from patient_questions import table
from reading import Reads, bioasq_sets, drawn, from_library

from cpqa import CancerQA
from cpqa.answering import quoting_reader as room
from cpqa.answering.answer_selection import shipped_answer
from cpqa.answering.question_kinds import kind_of
from cpqa.answering.stance import in_context, shipped_stance
from cpqa.answering.verdict import in_papers_words
from cpqa.core.storage import cache_dir
from cpqa.evaluation.claims import auroc
from cpqa.evaluation.statistics import bootstrap
from cpqa.literature.article_files import documents
from cpqa.pipeline import Timings, asked_in
from cpqa.retrieval.patient_words import both_forms, in_literature

LABELS, QUOTES = ROOT / 'benchmarks' / 'labels', ROOT / 'cpqa' / 'data' / 'quotes.json'
OF_ONE = .4           # what a researchers' sentence weighs where patients use their words
MOST, SAY = 60, 0.1   # questions of researchers, and what their sentences weigh together
ORDERS, EACH = ('score', 'answers', 'title', 'said', 'passage', 'held'), 2   # sentences that each order gives to be graded


FORM = 2   # of what is kept


class Kept:
    "The candidate sentences of questions over a library: place, text as it would be quoted, and signs, kept in a file."

    def __init__(self, name: str, folder: str | None):
        self.name, self.qa = name, CancerQA(folder)
        self.path = cache_dir() / 'quote_weights' / f'{name}-{len(self.qa.library)}-{FORM}.jsonl'
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.known = dict(json.loads(line) for line in self.path.read_text().splitlines()) if self.path.exists() else {}

    def rows(self, question: str) -> list[dict]:
        if question not in self.known:
            g = self.qa.gather(question, Timings())
            asked = in_literature(g.meant or question)
            found = room.worth_reading(asked, room._on_subject(asked, room.candidates(g.evidence, g.documents)))
            network = kind_of(question) == 'yesno' and found
            said = shipped_stance().read(asked, [in_context(d, span) for d, span in found]) if network else []
            finding, unknown = np.array([s.finding for s in said] or [np.nan] * len(found)), np.full(len(found), np.nan)
            weights = room.shipped_quote_weights(question, room.among(d for d, _ in found))
            signs = room.quote_signs(g.meant or question, found, g, finding, unknown, weights)
            self.known[question] = [
                {'doc': d.id, 'start': a, 'end': b, 'title': ' '.join(d.title.split()),
                 'text': ' '.join(d.text[slice(*room.standing(d, (a, b)))].split()),
                 'section': room.section_of(d, a),
                 'signs': {name: None if np.isnan(v[i]) else float(v[i]) for name, v in signs.items()}}
                for i, (d, (a, b)) in enumerate(found)]
            with open(self.path, 'a') as f: f.write(json.dumps([question, self.known[question]]) + '\n')
        return self.known[question]


def signs_of(rows: list[dict]) -> dict[str, np.ndarray]:
    return {name: np.array([np.nan if r['signs'].get(name) is None else r['signs'][name] for r in rows], float) for name in room.SIGNS}


def learnt_from() -> list[tuple[str, str]]:
    "Id and text of each question that weights are learnt from; a message may hold two."
    return [(r['id'], q) for r in table('patient_questions.tsv') if r['part'] == 'fit' for q in asked_in(r['question'])]


def network_says(question: str, rows: list[dict]) -> np.ndarray:
    "What the answer network says of each row, the mean of both wordings, shape (n,)."
    said = [(r['text'], r['title']) for r in rows]
    return np.mean([shipped_answer().log_odds(asked, said) for asked in both_forms(question)], axis=0)


def to_grade(out: Path, libraries: dict[str, str | None]):
    known = {(r['library'], r['id'], r['doc'], r['start'], r['end']) for r in grades()}
    with open(out, 'w', encoding='utf-8') as f:
        for name, folder in libraries.items():
            kept = Kept(name, folder)
            for id, question in learnt_from():
                if not (rows := kept.rows(question)): continue
                signs = signs_of(rows) | {'answers': network_says(question, rows)}
                weights = room.shipped_quote_weights(question, 'papers' if folder else 'notes')
                orders = signs | {'score': room.answer_probability(signs, weights)}
                for i in sorted({int(i) for o in ORDERS for i in np.argsort(-np.nan_to_num(orders[o]), kind='stable')[:EACH]}):
                    place = (name, id, rows[i]['doc'], str(rows[i]['start']), str(rows[i]['end']))
                    if place not in known: f.write('\t'.join([*place, question, rows[i]['title'], rows[i]['text']]) + '\n')


def grades() -> list[dict]: return table('quote_grades.tsv') if (LABELS / 'quote_grades.tsv').exists() else []


def counted(name: str, most: int) -> set[str]:
    "The ids of the graded questions of a library that count."
    ids = sorted({r['id'] for r in grades() if r['library'] == name and r['left_out']})
    return set(random.Random(0).sample(ids, len(ids))[:most or None])


def as_asked(question: str) -> dict[str, bool]: return {'papers words': in_papers_words(question)}


def patients(libraries: dict[str, str | None], most: dict[str, int]):
    "Signs, is it of use?, group and library of each graded sentence that is still found and whose question the answer network left out."
    at = defaultdict(dict)
    for r in grades():
        if r['left_out']: at[r['library'], r['id']][r['doc'], int(r['start']), int(r['end'])] = int(r['grade']), float(r['left_out'])
    for name, folder in libraries.items():
        kept, some = Kept(name, folder), counted(name, most.get(name, 0))
        for id, question in learnt_from():
            if id not in some: continue
            known = at[name, id]
            for r in kept.rows(question):
                if (place := (r['doc'], r['start'], r['end'])) not in known: continue
                grade, odds = known[place]
                yield r['signs'] | {'answers': odds} | as_asked(question), grade > 0, id, name


def asked_of_papers(folder: str):
    """The same of questions that were written for papers which the answer network did not see: sentences of the paper that it was written
    for, and of other papers, each graded by somebody who knew neither the network nor the paper."""
    spans = lambda r, name: [tuple(map(int, span.split('-'))) for span in r[name].split()]
    own = {asked: {(r['doc'], *span): grade for name, grade in (('beside', 0), ('useful', 1), ('answers', 2)) for span in spans(r, name)}
           for r in table('paper_questions.tsv') for asked in asked_in(r['question'])}
    others = defaultdict(dict)
    for r in table('paper_grades.tsv'): others[r['question']][r['doc'], int(r['start']), int(r['end'])] = int(r['grade'])
    kept = Kept('papers', folder)
    for question, graded in others.items():
        known = own.get(question, {}) | graded
        rows = [r for r in kept.rows(question) if (r['doc'], r['start'], r['end']) in known]
        more = as_asked(question)
        for r, o in zip(rows, network_says(question, rows)):
            yield r['signs'] | {'answers': float(o)} | more, known[r['doc'], r['start'], r['end']] > 0, question, 'papers'


def researchers(library: str):
    "The same of questions of BioASQ, from what benchmarks/reading.py keeps."
    reads, gather, network = Reads('bioasq'), lambda q: from_library(CancerQA(library))(q), shipped_answer()
    texts = {d.id: d for d in documents(DATA / 'bioasq_beir' / 'corpus.jsonl.gz')}
    for q in drawn('bioasq', bioasq_sets()['fit'], 150)[-MOST:]:
        rows = reads.rows(q, gather)
        said = [(texts[r['doc']].text[slice(*room.standing(texts[r['doc']], (r['start'], r['end'])))], r['title']) for r in rows]
        odds = network.log_odds(in_literature(q['text']), said)
        for r, o in zip(rows, odds): yield r['signs'] | {'answers': float(o)}, r['marked'], q['id'], 'researchers'


def matrix(examples: list, names: list[str], usual: dict[str, float]) -> np.ndarray:
    return np.array([[usual.get(n, 0.0) if e[0].get(n) is None else e[0][n] for n in names] for e in examples])


def fitted(x: np.ndarray, y: np.ndarray, w: np.ndarray):
    from sklearn.linear_model import LogisticRegression
    return LogisticRegression(C=1.0, max_iter=2000).fit(x, y, sample_weight=w)


def learnt(examples: list, names: list[str], say: float = SAY) -> tuple[dict, dict]:
    "What the weights come to, with the intercept and what is usual; and what they are worth on questions that they did not see."
    known = lambda n: [e[0][n] for e in examples if e[3] != 'researchers' and e[0].get(n) is not None]
    usual = {n: round(float(np.mean(known(n))), 3) for n in ('near', 'title', 'said', 'answers')}
    x, y = matrix(examples, names, usual), np.array([e[1] for e in examples])
    group, kind = np.array([e[2] for e in examples]), np.array([e[3] for e in examples])
    other = kind == 'researchers'
    w = np.where(other, say * (~other).sum() / max(1, other.sum()), 1.0)
    while (against := [n for n, c in zip(names, fitted(x, y, w).coef_[0]) if c < 0 and n != 'open']):   # more of a sign never counts less
        names = [n for n in names if n not in against]
        x = matrix(examples, names, usual)
    ids = sorted(set(group))
    fold_of = dict(zip(np.random.RandomState(0).permutation(ids), np.arange(len(ids)) % 10))
    folds = np.array([fold_of[g] for g in group])
    p = np.zeros(len(y))
    for k in range(10): p[folds == k] = fitted(x[folds != k], y[folds != k], w[folds != k]).predict_proba(x[folds == k])[:, 1]
    model = fitted(x, y, w)
    weights = {n: round(float(c), 3) for n, c in zip(names, model.coef_[0])}
    from_whom = (f"{int((~other).sum()):,} sentences graded for {len(set(group[~other]))} patients' questions, "
                 f"{int(other.sum()):,} marked or not for {len(set(group[other]))} of BioASQ's")
    return ({'weights': weights, 'intercept': round(float(model.intercept_[0]), 3), 'usual': usual, 'chosen_on': from_whom},
            {name: told(p[kind == name], y[kind == name], group[kind == name]) for name in dict.fromkeys(kind)})


def told(p: np.ndarray, y: np.ndarray, group: np.ndarray) -> dict:
    "How well a probability puts sentences of use first, and is true of the first one of a question."
    best = {g: max(np.flatnonzero(group == g), key=lambda i: p[i]) for g in dict.fromkeys(group)}
    first = bootstrap([float(y[i]) for i in best.values()])
    edges = (0, .2, .3, .4, .5, .55, .6, .65, 1.01)
    bins = [[i for i in best.values() if low <= p[i] < high] for low, high in zip(edges, edges[1:])]
    return {'sentences': len(y), 'of use': round(float(y.mean()), 4), 'AUROC': round(auroc(p[y], p[~y]), 4),
            'the best one is of use': {'value': round(first.value, 4), 'interval': [round(first.low, 4), round(first.high, 4)],
                                       'n': len(best)},
            'stated and true': [[round(float(np.mean([p[i] for i in b])), 3), round(float(np.mean([y[i] for i in b])), 3), len(b)]
                                for b in bins if b]}


PAGES = ('page', 'opens')   # signs of information pages


def fit(libraries: dict[str, str | None], write: bool, most: dict[str, int], wanted: list[str]):
    start, experts, asked = time.perf_counter(), list(researchers(libraries.pop('researchers'))), libraries.pop('papers', None)
    papers = {name for name, folder in libraries.items() if folder}   # the demo notes hold information pages as well
    some = [*patients(libraries, most), *(asked_of_papers(asked) if asked else ())]
    papers |= {'papers'} if asked else set()
    parts = {name: [e for e in some if e[3] in papers and e[0]['papers words'] == so] for name, so in (('papers', False),
                                                                                                    ('researchers', True))}
    left_out = ('sentence', 'finding', 'voted', *PAGES)
    before = json.loads((RESULTS / 'quote_weights.json').read_text())
    result, every = {name: before[name] for name in parts if name in before}, json.loads(QUOTES.read_text())
    for name, examples in parts.items():
        if not examples or name not in wanted: continue
        say = OF_ONE * len(experts) / len(examples) if name == 'researchers' else SAY
        found, worth = learnt([*examples, *experts], [n for n in room.SIGNS if n not in left_out], say)
        result[name] = found | {'held out by question': worth}
        old = msgspec.convert(every.get(name, every['questions']), room.QuoteWeights)
        every[name] = msgspec.to_builtins(replace(old, **found, encoder=str(CancerQA().encoder.describe()['sha256'])[:12],
                                                  date=time.strftime('%Y-%m-%d')))
    if write: QUOTES.write_text(json.dumps(every, indent=1) + '\n')
    save('quote_weights', result | {'seconds': round(time.perf_counter() - start)}, packages=('cpqa', 'scikit-learn', 'openvino', 'numpy'))


def named(words: list[str]) -> dict[str, str | None]:
    "The libraries that are given as NAME=LIBRARY."
    return {n: folder or None for n, _, folder in (w.partition('=') for w in words if '=' in w)}


def most_of(words: list[str]) -> dict[str, int]:
    "How many questions of each library count, where that is said."
    if '--most' not in words: return {}
    return {name: int(n) for name, _, n in (part.partition(':') for part in words[words.index('--most') + 1].split(','))}


def main(words: list[str]):
    libraries = named(words)
    if words[:1] == ['sentences'] and len(words) > 2: return to_grade(Path(words[1]), libraries)
    if words[:1] != ['fit'] or 'researchers' not in libraries: sys.exit(__doc__)
    parts = words[words.index('--parts') + 1].split(',') if '--parts' in words else ['papers', 'researchers']
    fit(libraries, '--write' in words, most_of(words), parts)


if __name__ == '__main__': main(sys.argv[1:])
