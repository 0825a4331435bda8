"""Do the rules for yes and no (`answering.direction`) beat the answer that is most common, and how should a reader score sentences?

    python benchmarks/direction.py LIBRARY [--questions 60] [--only-rules]

LIBRARY is one of bioasq_beir's corpus with the encoder that comes with cpqa. Four parts, each on a half to build on and a half to report:
- `snippets`: BioASQ's questions of yes or no, the sentences of all snippets that experts marked, with the titles of their articles. No
  retrieval, no model.
- `cited`: the same questions; what is read are the passages that the pipeline finds (both routes, 50 documents, 10 passages, the
  cross-encoder), by `QuotingReader`. --questions limits those of the rounds to build on, drawn with a fixed seed; round 10 is whole.
- `pubmedqa`: PQA-L, rules alone. Read are the sentences of the abstract without its conclusion (`abstract`), of the conclusion alone, or of
  both; the abstract's headings are not there. Experts answered with the conclusion in view. There is no title, since it is the question.
- `sentences`: which score should choose the sentences to quote, on BioASQ's questions of all kinds.
BioASQ's rounds 7 to 9 were looked at while the rules were written, and round 10 was not; of PubMedQA the half that is not the test set
counts as built on (but `answering.polarity` was written with half of all its conclusions in view, whichever set they are in: see
benchmarks/polarity.py). The models that come with cpqa were trained on rounds 7 to 9, so the evidence found there is better than it would
be elsewhere.

`coverage`: the share that got yes or no; a label of maybe or none is no answer. `accuracy` is of those answered, `majority_there` that of
the most common answer of the questions of the half, on the same questions; `with_majority` takes the most common answer where the rules
give none, over all questions, against `majority`, by the exact McNemar test. Where experts answered maybe, every yes or no is wrong.
Evidence is kept in cpqa's cache: a run that was stopped goes on.
"""
import argparse
import json
import random
import time
from collections import Counter

import numpy as np
from common import DATA, bioasq_questions, interval, quantiles, save
from models import Kept, say

from cpqa.answering.direction import LEAST_WEIGHT, RATIO, Sentence, direction, verdict
from cpqa.answering.quoting_reader import MOST, PROBABILITY, QuotingReader, candidates, mean_of, passage_probability
from cpqa.answering.readers import Gathered
from cpqa.core.records import Document, Evidence, Passage
from cpqa.core.storage import cache_dir
from cpqa.core.text_analysis import ENGLISH
from cpqa.evaluation.datasets import load
from cpqa.evaluation.pairs import gold_spans, snippet_pairs
from cpqa.evaluation.statistics import mcnemar, wilson
from cpqa.literature.library import Library
from cpqa.passages.calibration import calibrator
from cpqa.passages.sentences import sentences
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.openvino_models import shipped
from cpqa.retrieval.vectors import embedded_text

WORDS = {'A': 'yes', 'B': 'no', 'C': 'maybe'}


def half(round: int) -> str: return 'report' if round == 10 else 'build'


def rate(k: int, n: int) -> dict | None:
    if not n: return None
    found = wilson(k, n)
    return {'value': round(found.value, 4), 'interval': [round(found.low, 4), round(found.high, 4)], 'n': n}


def summary(rows: list[tuple[str, str]]) -> dict:
    "`rows`: the experts' answer and the label."
    common = Counter(gold for gold, _ in rows).most_common(1)[0][0]
    said = [(gold, label) for gold, label in rows if label in ('yes', 'no')]
    filled, constant = [(label if label in ('yes', 'no') else common) == gold for gold, label in rows], [gold == common for gold, _ in rows]
    test = mcnemar(filled, constant)
    return {'n': len(rows), 'gold': dict(Counter(gold for gold, _ in rows)), 'labels': dict(Counter(label or 'none' for _, label in rows)),
            'most_common': common,
            'coverage': rate(len(said), len(rows)), 'accuracy': rate(sum(g == p for g, p in said), len(said)),
            'majority_there': rate(sum(g == common for g, _ in said), len(said)),
            'right_of_yes': rate(sum(g == 'yes' for g, p in said if p == 'yes'), sum(p == 'yes' for _, p in said)),
            'right_of_no': rate(sum(g == 'no' for g, p in said if p == 'no'), sum(p == 'no' for _, p in said)),
            'with_majority': rate(sum(filled), len(filled)), 'majority': rate(sum(constant), len(constant)),
            'with_majority_against_majority': {'only_rules': test.only_a, 'only_majority': test.only_b, 'p': float(f'{test.p:.3g}'),
                                               'difference': [round(x, 4) for x in (test.difference.value, test.difference.low,
                                                   test.difference.high)]}}


def of_text(paper: str, text: str, title: str = '') -> list[Sentence]:
    return [Sentence(paper, text[a:b], title) for a, b in sentences(Document('text', text=text))]


def snippets(library: Library, gold: dict[str, str]) -> dict:
    by: dict[str, list] = {}
    for p in snippet_pairs(DATA / 'bioasq_beir'):
        if p.question_id in gold: by.setdefault(p.question_id, []).append(p)
    titles = {d.id: d.title for d in library.documents({p.doc_id for some in by.values() for p in some})}
    rows: dict[str, list] = {}
    for id, some in by.items():
        read = [s for p in some for s in of_text(p.doc_id, p.text, titles.get(p.doc_id, ''))]
        rows.setdefault(half(some[0].round), []).append((gold[id], verdict(some[0].question, read).label))
    return {part: summary(r) for part, r in sorted(rows.items())}


def pubmedqa() -> dict:
    test, rows = {q.id for q in load('pubmedqa', DATA / 'pubmedqa' / 'ori_pqal.json')}, {}
    for q in load('pqa-l', DATA / 'pubmedqa' / 'ori_pqal.json'):
        read = {'abstract': q.context, 'conclusion': ' '.join(q.answers), 'both': '\n'.join([q.context, *q.answers])}
        for what, text in read.items():
            rows.setdefault(what, {}).setdefault('report' if q.id in test else 'build',
                                                 []).append((WORDS[q.gold], verdict(q.question, of_text(q.id, text)).label))
    return {what: {part: summary(r) for part, r in sorted(by.items())} for what, by in rows.items()}


class Found:
    "The evidence for questions of bioasq_beir, kept in a file."
    def __init__(self, folder: str):
        self.scorer = Kept(shipped('cross-encoder'))
        self.qa = CancerQA(folder, Finding(reranker=self.scorer))
        self.sure = calibrator({k: v for k, v in self.scorer.describe().items() if k != 'runs_in'} | {'reranker': 'default'})
        self.path, self.known = (
            cache_dir() / 'direction' / f'{self.qa.library.folder.name}-{self.scorer.model.card.sha256["model.bin"][:12]}.jsonl',
            {},
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists(): self.known = dict(json.loads(line) for line in self.path.read_text().splitlines() if line.endswith(']'))

    def evidence(self, q: dict) -> tuple[list[Evidence], dict[str, Document]]:
        if q['_id'] not in self.known:
            vector = self.qa.encoder.encode([q['text']], 'query')[0]
            docs = self.qa.dual_path({q['text']: vector}).retrieve(q['text']).documents
            stage = self.qa.two_stage(self.qa.vectors)
            stage.calibrator = self.sure
            chosen = stage.choose(q['text'], vector, docs, self.qa.finding.passages)
            self.known[q['_id']] = [[e.passage.doc_id, e.passage.start, e.passage.end, e.score, e.probability] for e in chosen.evidence]
            with open(self.path, 'a') as f: f.write(json.dumps([q['_id'], self.known[q['_id']]]) + '\n')
        rows = self.known[q['_id']]
        docs = {d.id: d for d in self.qa.library.documents(dict.fromkeys(r[0] for r in rows))}
        return [Evidence(Passage.of(docs[d], a, b), score, probability=p) for d, a, b, score, p in rows], docs


def cited(found: Found, questions: list[dict], gold: dict[str, str]) -> dict:
    reader, rows, ms, pointing = QuotingReader(found.qa.encoder, reranker=found.scorer, calibration=found.sure), {}, [], []
    for n, q in enumerate(questions, 1):
        evidence, docs = found.evidence(q)
        vector, start = found.qa.encoder.encode([q['text']], 'query')[0], time.perf_counter()
        answer = reader.read(Gathered(q['text'], evidence, docs, vector=vector))
        ms.append((time.perf_counter() - start) * 1000)
        rows.setdefault(half(int(q['batch'].split('B')[0])), []).append((gold[q['_id']], answer.label))
        if answer.label in ('yes', 'no'):
            pointing.append(any(direction(q['text'], c.quote, c.title) == {'yes': 'for',
                'no': 'against'}[answer.label] for c in answer.citations))
        if n % 25 == 0: say(f'cited: {n} of {len(questions)}')
    return {part: summary(r) for part, r in sorted(rows.items())} | {'labels_with_a_quote_that_points_so': rate(sum(pointing),
        len(pointing)), 'ms_reading': quantiles(ms)}


def ranked(scores) -> np.ndarray: return np.argsort(np.argsort(-np.asarray(scores), kind='stable'))


def ways(found: Found, question: str, evidence, some) -> dict[str, np.ndarray]:
    "Scores of the sentences by each way to score them, higher is better."
    make = lambda title, start, end, d: Passage(d.id, start, end, d.text[start:end], title)
    alone, titled = ([make(d.title if t else '', a, b, d) for d, (a, b) in some] for t in (False, True))
    around = []
    for d, (a, b) in some:
        spans = sentences(d)
        i = spans.index((a, b))
        around.append(make(d.title, spans[max(0, i - 1)][0], spans[min(len(spans) - 1, i + 1)][1], d))
    p = {name: found.sure.probability(found.scorer.score(question, ps)) for name,
         ps in (('alone', alone), ('with title', titled), ('with title and neighbours', around))}
    passage = passage_probability(evidence, some)
    cosines = found.qa.encoder.encode([embedded_text(d.title, d.text[a:b]) for d, (a, b) in some]) @ found.qa.encoder.encode([question],
        'query')[0]
    return p | {'order of the passages': -np.arange(len(some)), 'cosine with title': cosines,
                'fused order and cosine': 1 / (6 + np.arange(len(some))) + 1 / (6 + ranked(cosines)),
                'alone and passage (cpqa)': mean_of(p['alone'], passage), 'with title and passage': mean_of(p['with title'], passage),
                'alone and with title': mean_of(p['alone'], p['with title']),
                'with title and cosine': mean_of(p['with title'], (1 + cosines) / 2)}


def chosen(scores, some) -> list[int]:
    """The best three by the same simple filters for every way: two of a document at most, and none that shares four fifths of its words
    with another."""
    taken: list[int] = []
    terms = [set(ENGLISH.analyze(d.text[a:b])) for d, (a, b) in some]
    for i in np.argsort(-np.asarray(scores), kind='stable'):
        crowded = sum(some[j][0].id == some[i][0].id for j in taken) > 1
        repeated = any(len(terms[i] & terms[j]) >= 0.8 * max(1, min(len(terms[i]), len(terms[j]))) for j in taken)
        if not crowded and not repeated: taken.append(int(i))
        if len(taken) == 3: break
    return taken


def choice(found: Found, questions: list[dict]) -> dict:
    """Share of the quotes that overlap a marked snippet by half, and share of the words of the experts' answer (without the question's)
    that the quotes hold."""
    answers = {q.id: q.answers for q in load('bioasq-all', DATA / 'mirage')}
    ideal = {q['id']: ' '.join(q['ideal_answer'] if isinstance(q['ideal_answer'], list) else [q['ideal_answer']]) for q in golden()}
    wanted, rows = {q['_id'] for q in questions}, {}
    pairs = [p for p in snippet_pairs(DATA / 'bioasq_beir') if p.question_id in wanted]
    spans, _ = gold_spans(pairs, {d.id: d for d in found.qa.library.documents({p.doc_id for p in pairs})})
    for n, q in enumerate(questions, 1):
        evidence, docs = found.evidence(q)
        some, marked = candidates(evidence, docs)[:MOST], spans.get(q['_id'], {})
        if not some or q['_id'] not in answers: continue
        hit = lambda d, a, b: d.id in marked and (not marked[d.id] or any(min(b, t) - max(a, s) >= 0.5 * min(b - a, t - s) for s,
            t in marked[d.id]))
        asked = set(ENGLISH.analyze(q['text']))
        words = set(ENGLISH.analyze(ideal.get(q['_id'], ''))) - asked
        for name, scores in ways(found, q['text'], evidence, some).items():
            taken = chosen(scores, some)
            held = set(ENGLISH.analyze(' '.join(some[i][0].text[slice(*some[i][1])] for i in taken)))
            by = rows.setdefault(half(int(q['batch'].split('B')[0])), {}).setdefault(name, {'marked': [], 'first_marked': [], 'words': []})
            by['marked'].append(np.mean([hit(some[i][0], *some[i][1]) for i in taken]))
            by['first_marked'].append(hit(some[taken[0]][0], *some[taken[0]][1]))
            if words: by['words'].append(len(words & held) / len(words))
        if n % 25 == 0: say(f'sentences: {n} of {len(questions)}')
    return {part: {name: {k: {'value': round(float(np.mean(v)), 4), 'interval': interval(v), 'n': len(v)} for k, v in by.items()} for name,
                   by in sorted(ways.items())} for part, ways in sorted(rows.items())}


def golden() -> list[dict]:
    "The questions with their ideal answers, as BioASQ gives them."
    files = sorted((DATA / 'mirage' / 'rawdata' / 'bioasq').rglob('*_golden.json'))
    return [q for path in files for q in json.loads(path.read_text(encoding='utf-8'))['questions'] if q.get('ideal_answer')]


def main(a: argparse.Namespace):
    gold = {q.id: WORDS[q.gold] for q in load('bioasq', DATA / 'mirage') if q.gold}
    drawn = random.Random(0)
    asked = {part: [q for q in bioasq_questions() if half(int(q['batch'].split('B')[0])) == part] for part in ('build', 'report')}
    for some in asked.values(): drawn.shuffle(some)
    yes_no = {part: [q for q in some if q['_id'] in gold] for part, some in asked.items()}
    others = {part: [q for q in some if q['_id'] not in gold][:a.questions] for part, some in asked.items()}
    result = {'data': 'bioasq_beir, rounds 7 to 9 to build and 10 to report; pubmedqa/ori_pqal.json, the test set to report',
              'least': LEAST_WEIGHT, 'ratio': RATIO,
              'threshold': PROBABILITY.least, 'interval': '95 %, Wilson; for sentences bootstrap over questions, 10,000 resamples',
              'snippets': snippets(Library(a.library), gold)}
    say('snippets')
    result['pubmedqa'] = pubmedqa()
    say('pubmedqa')
    if not a.only_rules:
        found = Found(a.library)
        result['cited'] = cited(found, yes_no['report'] + yes_no['build'][:a.questions], gold)
        result['sentences'] = choice(found, [q for part in ('build', 'report') for q in others[part] + yes_no[part][:a.questions]])
    save('direction', result) if not a.only_rules else print(json.dumps(result, indent=1))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('library')
    p.add_argument('--questions', type=int, default=60)
    p.add_argument('--only-rules', action='store_true', help='no evidence is looked for, and nothing is written')
    main(p.parse_args())
