"""Does a language model's ladder of queries find more than the rules'? The same questions by both, paired.

    python benchmarks/ladders.py LIBRARY --llm openai:NAME@http://127.0.0.1:8081/v1 [--questions 100] [--save]
                                 [--record FILE | --replay FILE]

100 questions of BioASQ's round 10 over LIBRARY, which is one of bioasq_beir's corpus, where the experts' papers count; and 100 questions in
patients' words over the demo notes, where notes count of which a blind reader found a sentence of use (benchmarks/labels/quote_grades.tsv).
Both are drawn with a fixed seed. Each ladder is walked down until 20 documents are found, by the local Boolean engine. Recall is that of
these documents; a ladder that finds nothing counts nought. `rules instead` are questions for which the model made no ladder.
"""
import argparse
import json
import random
from collections import defaultdict

import numpy as np
from common import PACKAGES, bioasq_questions, save
from dual_path import gold, mean, recall
from patient_questions import table

from cpqa import CancerQA
from cpqa.core.llm_providers import language_model
from cpqa.literature.library import Library
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.retrieval.query_ladder import walk
from cpqa.retrieval.rewriters import rewriter

ENOUGH, SEED = 20, 0   # documents at which a walk stops; what questions are drawn with


def researchers() -> list[tuple[str, set[str]]]:
    truth = gold()
    return [(q['text'], truth[q['_id']]) for q in bioasq_questions() if q['batch'].startswith('10') and truth[q['_id']]]


def patients() -> list[tuple[str, set[str]]]:
    "Questions of fewer than fifty words, with the notes that are of use."
    use = defaultdict(set)
    for r in table('quote_grades.tsv'):
        if r['library'] == 'demo' and r['grade'] != '0': use[r['id']].add(r['doc'])
    return [(r['question'], use[r['id']]) for r in table('patient_questions.tsv') if use[r['id']] and len(r['question'].split()) < 50]


def compared(questions: list[tuple[str, set[str]]], index: BooleanIndex, llm, n: int) -> dict:
    some, found, notes = random.Random(SEED).sample(questions, min(n, len(questions))), defaultdict(list), []
    for text, truth in some:
        for name, how in (('rules', rewriter('rules')), ('model', rewriter('llm', llm))):
            ladder = how.rewrite(text)
            ids = list(walk(ladder.rungs, index.search, enough=ENOUGH, most=ENOUGH).ids)
            found[name].append((recall(ids, truth), bool(set(ids) & truth), len(ids)))
        notes.append(ladder)
    of = {name: np.array(rows, dtype=float) for name, rows in found.items()}
    return {'questions': len(some), **{name: {'recall': mean(x[:, 0]), 'one found at least': mean(x[:, 1]), 'documents': mean(x[:, 2])}
                                       for name, x in of.items()},
            'model less rules': {'recall': mean(of['model'][:, 0] - of['rules'][:, 0]),
                                 'better': int((of['model'][:, 0] > of['rules'][:, 0]).sum()),
                                 'worse': int((of['model'][:, 0] < of['rules'][:, 0]).sum())},
            'rules instead': sum('the rules made it' in ' '.join(x.notes) for x in notes),
            'rungs repaired': sum('; repaired' in r.why for x in notes for r in x.rungs),
            'rungs dropped': sum('was dropped' in note for x in notes for note in x.notes)}


def main():
    p = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    p.add_argument('library')
    p.add_argument('--llm', required=True)
    p.add_argument('--name', default='', help='of the model and its way, for the result file')
    p.add_argument('--questions', type=int, default=100)
    p.add_argument('--record')
    p.add_argument('--replay')
    p.add_argument('--save', action='store_true')
    a = p.parse_args()
    llm = language_model(a.llm, timeout=600, record=a.record, replay=a.replay, window=8192)
    result = {'model': a.name, 'enough': ENOUGH, 'seed': SEED,
              'BioASQ round 10': compared(researchers(), BooleanIndex(Library(a.library)), llm, a.questions),
              'patients, demo notes': compared(patients(), BooleanIndex(CancerQA().library), llm, a.questions)}
    if a.save: save('ladders', result, (*PACKAGES, 'openai', 'xllamacpp'))
    else: print(json.dumps(result, indent=1))


if __name__ == '__main__': main()
