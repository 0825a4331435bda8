"""The papers' tables of answers, with whatever model is at hand: table V of He et al., tables III and IV of Stuhlmann et al.

    python benchmarks/paper_answers.py he LIBRARY --llm openai:NAME@http://127.0.0.1:8081/v1 --runs DIR [--each 24]
    python benchmarks/paper_answers.py stuhlmann LIBRARY --llm ... --runs DIR [--questions 100]
    python benchmarks/paper_answers.py ids --runs DIR

`he` draws so many cancer questions from each of CMMQA's five sets with a fixed seed, and asks their three systems (chain of thought alone,
the first five documents by meaning, the pipeline), as they are written and with each claim confirmed, as `cpqa ask` does it (`confirmed`),
and the quoting reader, which needs no model. What a question was written from is left out. An answer that cannot be read is wrong. The
negative questions are those that both baselines had wrong. Beside them stand the recorded answers of GPT-3.5 and GPT-4 of MIRAGE to the
very same questions.
`stuhlmann` draws yes/no questions of BioASQ (round 10, then 9) and asks their final system to depth 20, 50 and 100: BM25 alone, with
the cross-encoder, and both routes with it. The cross-encoder is ours, and so are library and model, so figures are no copy of theirs.
`ids` writes which questions both draw, DIR/mmlu.ids and so on, for `cpqa eval answers --only`, which makes any cell alone.
LIBRARY is one of bioasq_beir's corpus. DIR keeps the runs, and the same command goes on with them. Seconds of stages are those of this
machine; where the model's replies come from a recording, the seconds of writing say nothing, and are left out by --recorded-replies.
In `stuhlmann` a prompt that came before word for word, as it often does at another depth, is not sent again: DIR/replies.jsonl has its
reply, and how long it took then, which is what the seconds of a reply are made of.
"""
import argparse
import json
import random
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, bioasq_questions, cancer_questions, save

from cpqa.core.llm import Recorded, Replayed, request_key
from cpqa.core.llm_providers import language_model
from cpqa.evaluation.answer_systems import answering, answering_report, ask_all
from cpqa.evaluation.collections import LeakFree, Questions
from cpqa.evaluation.datasets import SETS, load
from cpqa.evaluation.parsing import apply_policy, read_answer
from cpqa.evaluation.runs import Run
from cpqa.evaluation.statistics import mcnemar, wilson
from cpqa.evaluation.tasks import evaluate_answers

class Once:
    "Sends a request that it has not seen; of others it knows the reply from the recording at `path`."
    def __init__(self, llm, path: Path, prompts: bool = True):
        self.llm, self.window, self.model = Recorded(llm, path, prompts), llm.window, llm.model
        self.before = Replayed(path) if path.exists() and path.stat().st_size else None
        self.known = {}
        self.took: list[float] = []   # seconds of each reply since this was emptied

    def complete(self, messages, *, max_tokens=1024, temperature=0.0, schema=None, on_text=None):
        key = request_key(messages, max_tokens, temperature, schema)
        if key not in self.known:
            llm = self.before if self.before and key in self.before.answers else self.llm
            self.known[key] = llm.complete(messages, max_tokens=max_tokens, temperature=temperature, schema=schema, on_text=on_text)
        self.took.append(self.known[key].ms / 1000)
        return self.known[key]


SYSTEMS = ('cot', 'naive', 'pipeline', 'confirmed', 'quotes')
RECORDED = [(model, how) for model in ('gpt-3.5', 'gpt-4') for how in ('cot', 'medrag')]
DEPTHS = (20, 50, 100)
WAYS = {'BM25': {'reranker': 'none'}, 'BM25, cross-encoder': {}, 'both routes, cross-encoder': {'first': 'hybrid'}}


def told(which: str):
    "Says how far a run is, a line for each ten questions."
    begun = time.monotonic()
    def progress(what: str, done: int, total: int):
        if done % 10 == 0 or done == total: print(f'{time.monotonic() - begun:6.0f} s  {which}: {done} of {total}', flush=True)
    return progress


def share(right: Iterable[bool]) -> dict:
    right = list(right)
    if not right: return {'n': 0}
    i = wilson(sum(right), len(right))
    return {'value': round(i.value, 4), 'interval': [round(i.low, 4), round(i.high, 4)], 'n': i.n}


def right_in(done: Run, questions: Questions) -> dict[str, bool]:
    "Is the answer to each question right? One that cannot be read, or was not given, is not."
    readings = [read_answer(done.outcomes[q.id].prediction, q.options) for q in questions]
    return {q.id: label == q.gold for q, label in zip(questions, apply_policy(readings, list(questions), 'wrong'))}


def against(a: dict[str, bool], b: dict[str, bool]) -> dict:
    m = mcnemar([a[id] for id in a], [b[id] for id in a])
    d = m.difference
    return {'only the first right': m.only_a, 'only the second right': m.only_b, 'p': round(m.p, 4), 'n': m.n,
            'difference': [round(x, 4) for x in (d.value, d.low, d.high)]}


def drawn_he(a) -> dict[str, Questions]: return {name: cancer_questions(load(name, DATA), a.each) for name in SETS}


def drawn_stuhlmann(a) -> Questions:
    "Yes/no questions of BioASQ, those of round 10 first, then of round 9."
    rounds = {q['_id']: int(q['batch'].split('B')[0]) for q in bioasq_questions()}
    every = load('bioasq', DATA / 'mirage')
    some = [q.id for r in (10, 9) for q in random.Random(0).sample(list(every), len(every)) if rounds.get(q.id) == r and q.gold]
    return every.only(some[:a.questions])


def write_ids(a):
    "The draws of both, as files that name ids."
    for name, questions in {**drawn_he(a), 'stuhlmann': drawn_stuhlmann(a)}.items():
        (a.runs / f'{name}.ids').write_text(''.join(f'{q.id}\n' for q in questions))


def he(a) -> dict:
    drawn = drawn_he(a)
    llm, right, rows = language_model(a.llm, timeout=600, window=8192), {}, []
    for system in SYSTEMS:
        qa = answering(system, llm if system != 'quotes' else None, None if system == 'cot' else a.library)
        for name, questions in drawn.items():
            done = ask_all(system, qa, questions, a.runs / f'{system}-{name}.jsonl', 0, LeakFree(), told(f'{system}, {name}'))
            report = answering_report(done, questions)
            right.setdefault(system, {}).update({f'{name} {id}': ok for id, ok in right_in(done, questions).items()})
            rows.append({'system': system, 'set': name, 'n': len(questions), 'accuracy': share(right_in(done, questions).values()),
                         'answered': report['measures']['answered']['value'], 'failed': report['n_failed'],
                         'tokens': report['tokens'], **({} if a.recorded_replies else {'seconds': report['seconds']})})
    negative = [id for id, ok in right['cot'].items() if not ok and not right['naive'][id]]
    for model, how in RECORDED:
        for name, questions in drawn.items():
            path = DATA / 'recorded_answers' / f'{name}.{model}_{how}.jsonl.gz'
            measured = evaluate_answers(path, name, DATA, 'wrong', only=[q.id for q in questions])['measures']['accuracy']
            rows.append({'system': f'{model} {how}, recorded', 'set': name, 'n': measured['n'],
                         'accuracy': {'value': round(measured['value'], 4), 'interval': [round(measured[k], 4) for k in ('low', 'high')],
                                      'n': measured['n']}})
    commonest = {name: max(sum(q.gold == g for q in some) for g in {q.gold for q in some}) for name, some in drawn.items()}
    return {'each': a.each, 'seed': 0, 'rows': rows, 'commonest label': {n: [k, len(drawn[n])] for n, k in commonest.items()},
            'all': {system: share(found.values()) for system, found in right.items()},
            'pairs': {f'{x}, {y}': against(right[x], right[y]) for x, y in (('pipeline', 'naive'), ('pipeline', 'cot'), ('naive', 'cot'),
                                                                           ('pipeline', 'confirmed'), ('confirmed', 'quotes'))},
            'negative': {'questions': len(negative), 'ids': negative,
                         **{s: share(right[s][id] for id in negative) for s in ('pipeline', 'confirmed', 'quotes')}}}


def precision_and_recall(done: Run, questions: Questions) -> dict:
    "Of yes and of no, and their mean."
    said = [(q.gold, read_answer(done.outcomes[q.id].prediction, q.options).label) for q in questions]
    out = {}
    for key, word in (('A', 'yes'), ('B', 'no')):
        given, there = [g == key for g, p in said if p == key], [p == key for g, p in said if g == key]
        out[word] = {'precision': share(given), 'recall': share(there)}
    recalls = [out[w]['recall']['value'] for w in ('yes', 'no') if out[w]['recall']['n']]   # of labels that are there
    out['macro recall'] = round(float(np.mean(recalls)), 4)
    return out


def stuhlmann(a) -> dict:
    questions, rows, right = drawn_stuhlmann(a), [], {}
    llm = Once(language_model(a.llm, timeout=600, window=8192), a.runs / 'replies.jsonl')
    for way, fields in WAYS.items():
        for depth in DEPTHS:
            run_file = a.runs / f'{way.replace(", ", "-").replace(" ", "-")}-{depth}.jsonl'
            llm.took.clear()
            qa = answering('stuhlmann', llm, a.library, depth=depth, **fields)
            done = ask_all('stuhlmann', qa, questions, run_file, 0, None, told(f'{way}, {depth}'))
            report, ok = answering_report(done, questions), right_in(done, questions)
            right[way, depth] = ok
            seconds = {k: v for k, v in report['seconds'].items() if k not in ('read', 'total')}
            if (took := llm.took) and not a.recorded_replies:
                seconds['reply'] = {'mean': round(float(np.mean(took)), 3), 'p50': round(float(np.median(took)), 3), 'n': len(took)}
            rows.append({'first stage': way, 'depth': depth, 'accuracy': share(ok.values()), **precision_and_recall(done, questions),
                         'answered': report['measures']['answered'], 'failed': report['n_failed'],
                         'papers used': round(float(np.mean([len(o.hits) for o in done.outcomes.values()])), 2),
                         **{k: v for k, v in report['measures'].items() if k.startswith('papers')},
                         'seconds': seconds, 'tokens': report['tokens']})
    gold = [q.gold for q in questions]
    return {'questions': len(questions), 'seed': 0, 'gold': {w: gold.count(k) for k, w in (('A', 'yes'), ('B', 'no'))}, 'rows': rows,
            'pairs': {f'{x[0]} {x[1]}, {y[0]} {y[1]}': against(right[x], right[y]) for x, y in (
                (('BM25, cross-encoder', 50), ('BM25', 50)), (('BM25, cross-encoder', 100), ('BM25, cross-encoder', 20)),
                (('both routes, cross-encoder', 50), ('BM25, cross-encoder', 50)))}}


def main():
    p = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    p.add_argument('which', choices=('he', 'stuhlmann', 'ids'))
    p.add_argument('library', nargs='?')
    p.add_argument('--llm')
    p.add_argument('--runs', type=Path, required=True)
    p.add_argument('--each', type=int, default=24)
    p.add_argument('--questions', type=int, default=100)
    p.add_argument('--name', default='', help='of the model and its way, for the result file')
    p.add_argument('--recorded-replies', action='store_true')
    p.add_argument('--save', action='store_true')
    a = p.parse_args()
    a.runs.mkdir(parents=True, exist_ok=True)
    if a.which == 'ids': return write_ids(a)
    if not (a.library and a.llm): p.error(f'{a.which} needs a LIBRARY and --llm')
    result = {'model': a.name, **{'he': he, 'stuhlmann': stuhlmann}[a.which](a)}
    if a.save: save(f'answers_{a.which}', result, (*PACKAGES, 'openai', 'xllamacpp'))
    else: print(json.dumps(result, indent=1))


if __name__ == '__main__': main()
