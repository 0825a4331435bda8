"""Is the quoted sentence the one that carries the finding, and is the label right?

    python benchmarks/reading.py EVIDENCE_LIBRARY [BIOASQ_LIBRARY]   (--learn: weights, --write: the threshold, into the package)
    python benchmarks/reading.py --build EVIDENCE_LIBRARY          (makes the first library: whole articles of Evidence Inference)

Nothing here was seen by the stance network: not the articles, not the questions.

| set | what is asked | kept aside to choose by | measured |
|---|---|---|---|
| evidence inference | "Does X increase (or reduce) Y compared with C?", over whole articles | 55 articles | those of `part_of` 'test' |
| bioasq | its yes/no questions, over bioasq_beir's abstracts | round 9 | round 10 |
| pubmedqa | its questions, of their own abstract without the conclusion | a fifth of the training half | the test half |

`quotes`: over the questions of Evidence Inference, is the first quote, or any of three, a sentence that physicians had marked?
An abstention counts as a miss.
`labels`: how many yes/no questions get a yes or a no, how many of these are right, and what the commoner answer of the set would get
on the very same questions; McNemar's exact test compares the two. The threshold of the
verdict is the highest with which six in ten of what is kept aside get a label; that way of choosing was found with the figures of the
other part in view. `by threshold` says what others would do, `no comparison` how many questions are not known as ones that compare.
`stated and true`: the mean score of first quotes, by bins, against the share that is marked, and how many.
"""

import argparse
import json
import random
import time
import zlib
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
from common import DATA, RESULTS, bioasq_questions, interval, save

from cpqa import CancerQA
from cpqa.answering import quoting_reader as room
from cpqa.answering.quoting_reader import (
    QuoteWeights,
    QuotingReader,
    answer_probability,
    candidates,
    quote_signs,
    section_share,
    sentence_probability,
    shipped_quote_weights,
    worth_reading,
)
from cpqa.answering.readers import Gathered
from cpqa.answering.question_kinds import kind_of
from cpqa.answering.stance import Stance, in_context, order_is_told, shipped_stance
from cpqa.answering.trial_comparisons import ps_say
from cpqa.answering.verdict import Heard, VerdictRule, asks_for_label, of_trials, shipped_verdict, verdict
from cpqa.core.records import Document, Evidence, Passage
from cpqa.core.storage import cache_dir
from cpqa.evaluation.claims import trial_parts
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.datasets import load
from cpqa.evaluation.pairs import snippet_pairs
from cpqa.evaluation.passages import part_of
from cpqa.evaluation.statistics import bootstrap, mcnemar, wilson
from cpqa.passages.sentences import sentences
from cpqa.pipeline import Timings
from cpqa.retrieval.patient_words import in_literature

DATA_FILES = Path(__file__).resolve().parent.parent / 'cpqa' / 'data'
TRUTH = {('A', 'increase'): 'yes', ('B', 'reduce'): 'yes'}  # everything else is a no


def evidence_sets():
    "The articles and questions of Evidence Inference that were kept aside: to fit, and to report."
    from cpqa.training.stance_examples import articles_set_aside

    both, more = read_marked(DATA / 'evidence_inference'), read_marked(DATA / 'evidence_inference_more')
    dev = articles_set_aside([both, more], {a for a in both.articles if part_of(a) == 'test'})
    out = {'fit': [], 'report': []}
    for m in (both, more):
        for q in m.questions:
            article = q.gold_pmids[0]
            half = 'fit' if article in dev else 'report' if m is both and part_of(article) == 'test' else ''
            if half and q.gold and (named := trial_parts(q.question)):
                c, x, y = named
                ways = ('increase', 'reduce')
                if half == 'report':
                    ways = (random.Random(q.id).choice(ways),)  # one of the two, by a draw: time
                for way in ways:
                    out[half].append(
                        {
                            'id': f'{q.id}-{way}',
                            'text': f'Does {x} {way} {y} compared with {c}?',
                            'gold': TRUTH.get((q.gold, way), 'no'),
                            'article': article,
                            'spans': {article: m.spans[q.id]},
                        }
                    )
    return out, {
        a.id: a for m in (both, more) for a in m.articles.values() if a.id in {q['article'] for some in out.values() for q in some}
    }


def build(out: str):
    from cpqa.literature.library import build_library
    from cpqa.passages.segmenters import segmenter
    from cpqa.retrieval.encoders import EmbeddedEncoder
    from cpqa.retrieval.vectors import VectorPart

    encoder = EmbeddedEncoder()
    cut = segmenter('sentences', lambda: encoder)
    build_library([list(evidence_sets()[1].values())], out, parts=[VectorPart(encoder, cut.split, cut.describe())])


def bioasq_sets():
    gold = {q.id: q.gold for q in load('bioasq', DATA / 'mirage') if q.gold}
    marked: dict[str, dict] = defaultdict(lambda: defaultdict(list))
    for p in snippet_pairs(DATA / 'bioasq_beir'):
        marked[p.question_id][p.doc_id].append(p.text)
    out = {'fit': [], 'report': []}
    for q in bioasq_questions():
        half = {9: 'fit', 10: 'report'}.get(int(q['batch'].split('B')[0]))
        if half:
            out[half].append(
                {
                    'id': q['_id'],
                    'text': q['text'],
                    'gold': {'A': 'yes', 'B': 'no'}.get(gold.get(q['_id'], ''), ''),
                    'article': q['_id'],
                    'snippets': {d: list(ts) for d, ts in marked[q['_id']].items()},
                }
            )
    return out


def pubmedqa_sets():
    test = {q.id for q in load('pubmedqa', DATA / 'pubmedqa' / 'ori_pqal.json')}
    out = {'fit': [], 'report': []}
    for q in load('pqa-l', DATA / 'pubmedqa' / 'ori_pqal.json'):
        half = 'report' if q.id in test else 'fit' if int(q.id) % 5 == 0 else ''
        if half:
            out[half].append(
                {
                    'id': q.id,
                    'text': q.question,
                    'gold': {'A': 'yes', 'B': 'no', 'C': 'maybe'}[q.gold],
                    'article': q.id,
                    'context': q.context,
                }
            )
    return out


FORM = 5   # of the rows that are kept


class Reads:
    "What the network says of the candidate sentences of each question, kept in a file."

    def __init__(self, name: str):
        self.stance = shipped_stance()
        self.path = cache_dir() / 'reading' / f'{name}-{self.stance.describe()["weights"]}-{FORM}.jsonl'
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.known = dict(json.loads(line) for line in self.path.read_text().splitlines()) if self.path.exists() else {}

    def rows(self, q: dict, gather) -> list[dict]:
        """For each candidate, in the order of the evidence: place, signs, what the network says, is it marked?, section and title,
        do its figures say that there is no difference, and does the paper hold what the question names first?"""
        if q['id'] not in self.known:
            g = gather(q)
            asked = in_literature(q['text'])
            found = worth_reading(asked, room._on_subject(asked, candidates(g.evidence, g.documents)))
            read = [in_context(d, span) for d, span in found]
            speaks = {id: room._speaks_of(q['text'], d) for id, d in {d.id: d for d, _ in found}.items()}
            said = self.stance.read(asked, read)
            network = kind_of(q['text']) == 'yesno'   # as the reader does
            alone = sentence_probability(q['text'], found, g.reranker) if network else np.full(len(found), np.nan)
            finding = np.array([s.finding if network else np.nan for s in said])
            weights = shipped_quote_weights(q['text'], 'papers')
            signs = quote_signs(q['text'], found, g, finding, alone, weights)
            if weights.weights.get('answers') and found: signs['answers'], _ = room._answers(QuotingReader(), asked, found)
            self.known[q['id']] = [
                {'doc': d.id, 'start': a, 'end': b, 'stance': list(s), 'marked': marked(q, d, a, b), 'section': c.section, 'title': c.title,
                 'even': ps_say(d.text[a:b], set(), {}) > 0, 'speaks': speaks[d.id],
                 'signs': {name: None if np.isnan(v[i]) else float(v[i]) for name, v in signs.items()}}
                for i, ((d, (a, b)), s, c) in enumerate(zip(found, said, read))
            ]
            with open(self.path, 'a') as f:
                f.write(json.dumps([q['id'], self.known[q['id']]]) + '\n')
        return self.known[q['id']]


def marked(q: dict, d: Document, a: int, b: int) -> bool:
    "Does a sentence share more than half of itself, or of a marked span, with one that experts marked?"
    if 'spans' in q:
        return any(min(b, e) - max(a, s) > 0.5 * min(b - a, e - s) for s, e in q['spans'].get(d.id, ()))
    said = ' '.join(d.text[a:b].split())
    return any(said in ' '.join(t.split()) or ' '.join(t.split()) in said for t in q.get('snippets', {}).get(d.id, ()))


def from_library(qa: CancerQA): return lambda q: qa.gather(q['text'], Timings())


def from_abstract(q: dict) -> Gathered:
    d = Document(q['id'], '', q['context'])
    return Gathered(q['text'], [Evidence(Passage.of(d, a, b), score=1.0) for a, b in sentences(d)], {d.id: d})


def scores(q: dict) -> np.ndarray:
    rows, weights = q['rows'], shipped_quote_weights(q['text'], 'papers')
    signs = {name: np.array([np.nan if r['signs'][name] is None else r['signs'][name] for r in rows], float) for name in weights.weights}
    return answer_probability(signs, weights) * section_share([r['section'] for r in rows], of_trials(q['text']))


def said_by(q: dict, row: dict, p: float) -> Heard:
    return Heard(row['doc'], float(p), Stance(*row['stance']), order_is_told(q['text'], row['title']), row['even'])


def heard(q: dict) -> list[Heard]:
    rows = q['rows']
    if not rows:
        return []
    p = scores(q)
    order = np.argsort(-np.round(p, 2), kind='stable')
    return [said_by(q, rows[i], p[i]) for i in order if rows[i]['speaks']]


ENOUGH = 0.6   # of the part to choose by should get a label


def chosen(some: list[dict]) -> VerdictRule:
    "The highest hundredth of a mean leaning from which on, for a yes as for a no, `ENOUGH` get a label, and how many of them are right."
    rule = shipped_verdict()
    for least in range(90, 0, -1):
        rule = msgspec.structs.replace(rule, yes=least / 100, no=least / 100)
        found = labels(some, rule)
        if found['labelled']['value'] >= ENOUGH:
            break
    given = found['labelled']['value'] * found['n']
    return msgspec.structs.replace(
        rule, labels=round(given), right=round(given * found['right']['value']), date=time.strftime('%Y-%m-%d'),
        chosen_on=f'{found["n"]} questions on 55 articles of Evidence Inference, kept aside: the highest hundredth with which six in ten '
                  'get a label, for a yes as for a no; this way of choosing with the figures of report in view')


def rate(k: int, n: int) -> dict | None:
    if not n:
        return None
    found = wilson(k, n)
    return {'value': round(k / n, 4), 'interval': [round(found.low, 4), round(found.high, 4)], 'n': n}


def labels(rows: list[dict], rule: VerdictRule) -> dict:
    some = [q for q in rows if q['gold']]
    said = [verdict(heard(q), rule).label if asks_for_label(q['text']) else '' for q in some]
    given = [(q['gold'], label) for q, label in zip(some, said) if label in ('yes', 'no')]
    common = max(('yes', 'no', 'maybe'), key=lambda way: sum(q['gold'] == way for q in some))
    test = mcnemar([g == label for g, label in given], [g == common for g, _ in given]) if given else None
    of = lambda way: rate(sum(g == way for g, label in given if label == way), sum(label == way for _, label in given))
    return {
        'n': len(some),
        'labelled': rate(len(given), len(some)),
        'right': rate(sum(g == label for g, label in given), len(given)),
        'right of yes': of('yes'),
        'right of no': of('no'),
        'maybe': said.count('maybe'),
        'commoner answer': common,
        'commoner there': rate(sum(g == common for g, _ in given), len(given)),
        'p': test and float(f'{test.p:.3g}'),
    }


def quotes_of(rows: list[dict], rule: VerdictRule) -> dict:
    "By the reader itself, on what the network said."
    first, any_, stated = [], [], []
    for q in rows:
        taken = read(q, rule)
        first.append(bool(taken) and taken[0][1])
        any_.append(any(hit for _, hit in taken))
        if taken:
            stated.append((taken[0][0], taken[0][1]))
    groups = [q['article'] for q in rows]

    def told(v):
        found = bootstrap(v, groups=groups)
        return {'value': round(found.value, 4), 'interval': [round(found.low, 4), round(found.high, 4)], 'n': len(v)}

    edges = [(low, high) for low, high in ((0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.01))]
    bins = [[s for s in stated if low <= s[0] < high] for low, high in edges]
    return {
        'first marked': told(first),
        'any of three marked': told(any_),
        'no quote': len(rows) - len(stated),
        'stated and true': [
            [round(float(np.mean([p for p, _ in b])), 3), round(float(np.mean([h for _, h in b])), 3), len(b)] for b in bins if b
        ],
    }


def read(q: dict, rule: VerdictRule) -> list[tuple[float, bool]]:
    "Score and mark of each quote that the reader would take."
    rows = q['rows']
    if not rows:
        return []
    p, weights = scores(q), shipped_quote_weights(q['text'], 'papers')
    if p.max() < weights.least:
        return []
    given = room._Scored(p, sorted(range(len(p)), key=lambda i: (-round(float(p[i]), 2), i)), weights, [Stance(*r['stance']) for r in rows])
    said, ways = None, [''] * len(rows)
    if asks_for_label(q['text']):
        order = [i for i in given.order if rows[i]['speaks']]
        said = verdict([said_by(q, rows[i], p[i]) for i in order], rule)
        for i, way in zip(order, said.ways):
            ways[i] = way
    found = [
        (Document(r['doc'], '', ' ' * r['start'] + f'{n}' * (r['end'] - r['start'])), (r['start'], r['end'])) for n, r in enumerate(rows)
    ]  # no two repeat each other
    taken, _ = room._quotes(QuotingReader(), q['text'], given, found, said, ways)
    return [(float(p[i]), rows[i]['marked']) for i in taken]


LEARNT, FOLDS = ('finding', 'passage', 'sentence'), 4
FLOORS = {'least': .05, 'keep': .05, 'of_one': 3}   # a third sentence of the same trial is marked in one case of five


def learnt(rows: list[dict]) -> QuoteWeights:
    """Weights of the signs, from all sentences of the part to choose by: is one marked? The best of many sentences is likelier marked than
    it looks by itself, so the intercept is moved until what is stated of first quotes is true of them, articles left out in turn.
    A sign that would count against a sentence is left out."""
    from sklearn.linear_model import LogisticRegression

    some = [q for q in rows if q['rows']]
    x_of = lambda q: np.array([[r['signs'][name] or 0.0 for name in names] for r in q['rows']])
    fold = lambda q: zlib.crc32(q['article'].encode()) % FOLDS
    def fitted(part: list[dict]):
        return LogisticRegression().fit(np.concatenate([x_of(q) for q in part]), [r['marked'] for q in part for r in q['rows']])
    names, best = LEARNT, []
    while len(speak := tuple(name for name, w in zip(names, fitted(some).coef_[0]) if w > 0)) < len(names): names = speak
    for k in range(FOLDS):
        model = fitted([q for q in some if fold(q) != k])
        for q in (q for q in some if fold(q) == k):
            odds = model.decision_function(x_of(q))
            best.append((odds.max(), q['rows'][int(odds.argmax())]['marked']))
    odds, right = (np.array(v, float) for v in zip(*best))
    moved = min(np.arange(-1, 2, .05), key=lambda by: abs((1 / (1 + np.exp(-odds - by))).mean() - right.mean()))
    model = fitted(some)
    weights = {name: round(float(w), 3) for name, w in zip(names, model.coef_[0])}
    return msgspec.structs.replace(
        shipped_quote_weights('Is A better than B?', 'papers'), weights=weights, intercept=round(float(model.intercept_[0] + moved), 3),
        date=time.strftime('%Y-%m-%d'), **FLOORS,
        chosen_on=f'the sentences of {len(some)} questions on 55 articles of Evidence Inference, kept aside; '
                  'the floors by hand, report in view')


def drawn(name: str, some: list[dict], most: int | None) -> list[dict]:
    "At most so many questions of a set, by a draw with a fixed seed; of BioASQ's, those of yes or no all the same, and some others."
    if not most or name == 'pubmedqa': return some
    kept, rest = ([q for q in some if q['gold']], [q for q in some if not q['gold']]) if name == 'bioasq' else ([], some)
    return [*kept, *random.Random(1).sample(rest, min(most // 4 if name == 'bioasq' else most, len(rest)))]


def main(evidence: str, bioasq: str, write: bool, most: int | None, fit: int | None, learn: bool):
    start, sets = (
        time.perf_counter(),
        {'evidence inference': (evidence_sets()[0], evidence)},
    )
    if bioasq: sets |= {'bioasq': (bioasq_sets(), bioasq), 'pubmedqa': (pubmedqa_sets(), '')}
    asked: dict[str, dict[str, list]] = {'fit': {}, 'report': {}}
    for name, (halves, folder) in sets.items():
        reads, gather = Reads(name), from_library(CancerQA(folder)) if folder else from_abstract
        for half, some in halves.items():
            some = drawn(name, some, most)[:fit if half == 'fit' else None]
            asked[half][name] = [q | {'rows': reads.rows(q, gather)} for q in some]
            print(name, half, len(some), f'{time.perf_counter() - start:.0f} s', flush=True)
    if learn:
        path, every = DATA_FILES / 'quotes.json', json.loads((DATA_FILES / 'quotes.json').read_text())
        every['comparisons'] = msgspec.to_builtins(learnt(asked['fit']['evidence inference']))
        path.write_text(json.dumps(every, indent=1) + '\n')
        room._shipped.cache_clear()
    rule = shipped_verdict()
    if write:
        rule = chosen(asked['fit']['evidence inference'])
        (DATA_FILES / 'verdict.json').write_bytes(msgspec.json.format(msgspec.json.encode(rule), indent=1) + b'\n')
    result = {
        'stance': shipped_stance().describe(),
        'sampled': most,
        'of the part to choose by': fit,
        'interval': '95 %: Wilson for labels, bootstrap by article for quotes',
        'weights': {'comparisons': msgspec.to_builtins(shipped_quote_weights('Is A better than B?', 'papers')),
                    'verdict': msgspec.to_builtins(rule)},
        'quotes': {half: quotes_of(some['evidence inference'], rule) for half, some in asked.items()},
        'no comparison': {half: sum(not of_trials(q['text']) for q in some['evidence inference']) for half, some in asked.items()},
        'by threshold': {half: {t: {k: labels(some['evidence inference'], msgspec.structs.replace(rule, yes=t, no=t))[k]
                                    for k in ('labelled', 'right')} for t in (0.2, 0.3, 0.4)} for half, some in asked.items()},
        'labels': {half: {name: labels(rows, rule) for name, rows in some.items()} for half, some in asked.items()},
    }
    save('reading', result)


if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('libraries', nargs='*')
    p.add_argument('--build', metavar='OUT')
    p.add_argument('--write', action='store_true', help='choose the threshold on the part kept aside, into cpqa/data/verdict.json')
    p.add_argument('--learn', action='store_true', help='weights of signs for comparisons, from the part kept aside, go into the package')
    p.add_argument(
        '--most', type=int, help="questions of each part, drawn with a fixed seed; of BioASQ's in addition to those of yes or no"
    )
    p.add_argument('--fit', type=int, help='at most so many of the part that was kept aside to choose by')
    args = p.parse_args()
    if args.build:
        build(args.build)
    else:
        main(*[*args.libraries, ''][:2], args.write, args.most, args.fit, args.learn)
