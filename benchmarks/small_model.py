"""Do answers survive a small language model?

    python benchmarks/small_model.py LIBRARY --llm openai:NAME@http://127.0.0.1:8081/v1 [--questions 60] [--minutes 15] [--passages 10]
                                     [--record FILE [--no-prompts]] [--replay FILE]

LIBRARY is one of bioasq_beir's corpus, built by `cpqa index build`. Questions of five kinds are drawn with a fixed seed and asked in turn
as `cpqa ask --llm` does: yes/no, factoid, list and summary of BioASQ's round 10, and as a fifth multiple choice, cancer questions
of MMLU, MedQA and MedMCQA in turn, for which nobody named papers. After so many minutes no further one is begun, and `asked` says how many
were. With --claims the confirmed and unconfirmed claims are written to a file, with their quotes, for people to label.

Where none of the model's claims holds, or too little was found to ask it (`too thin to ask`), sentences of the papers answer (`quoted
instead`). `errors` are exceptions, and models that were silent or wrote nothing that can be read; `without an answer though evidence held
one` counts those without a confirmed claim or a sentence while a paper that the experts named was among those shown, or among those
found, where the model was not asked; `claims shown twice` counts claims of one answer that say the same. `papers
right` are answers that cite a paper the experts named. `asked once more`, `rescued` and `found by the nearest span` say what it took.
"""
import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, bioasq_questions, cancer_questions, quantiles, save
from paper_answers import Once

from cpqa import CancerQA
from cpqa.answering.readers import Reading
from cpqa.core.llm_providers import language_model
from cpqa.core.remarks import UNANSWERED
from cpqa.core.text_analysis import ENGLISH
from cpqa.evaluation.answer_systems import as_asked, drawn_by_kind
from cpqa.evaluation.datasets import load
from cpqa.pipeline import Finding


def five_kinds(n: int) -> list:
    "Questions in turn: four of BioASQ's, one of multiple choice."
    rounds = {q['_id'] for q in bioasq_questions() if q['batch'].startswith('10')}
    every = load('bioasq-all', DATA / 'mirage' / 'rawdata' / 'bioasq')
    free, choices = list(drawn_by_kind(every.only(rounds), n - n // 5, seed=0)), []
    for some in (cancer_questions(load(name, DATA), 24) for name in ('mmlu', 'medqa', 'medmcqa')): choices.append(list(some))
    choices = [q for some in zip(*choices) for q in some][:n // 5]
    return [q for at, some in enumerate(choices) for q in (*free[4 * at:4 * at + 4], some)] + free[4 * len(choices):]


def row(question, answer, seconds: float) -> dict:
    "What is counted of an answer."
    told, gold = answer.trace.get('model') or answer.trace.get('reader', {}), set(question.gold_pmids)
    why = answer.why[0].kind if answer.why else ''
    thin = 'too thin' in (why, told.get('why'))
    shown = {e.passage.doc_id for e in answer.evidence} if thin else set(told.get('shown', ()))
    texts = [' '.join(ENGLISH.analyze(c.text)) for c in answer.claims]
    label = answer.label if answer.kind == 'choice' else next((k for k, text in question.options.items() if text == answer.label), '')
    return {'kind': question.kind, 'seconds': round(seconds, 1), 'abstained': answer.abstained,
            'error': any(r.kind in UNANSWERED for r in answer.why), 'shown': bool(gold & shown),
            'right paper': bool(gold & set(answer.used_PMIDs)), 'twice': len(texts) - len(set(texts)), 'claims': len(texts),
            'held': sum(c.holds for c in answer.claims), 'near': sum(bool(c.differs) for c in answer.citations),
            'tries': told.get('tries', 0), 'rescued': told.get('rescued', ''), 'why': why, 'thin': thin, 'quoted': 'model' in answer.trace,
            'label': (label == question.gold) if question.gold and label else None,
            'tokens': answer.usage.get('output_tokens', 0)}


def told_claims(out: Path, question, answer):
    "Adds the claims of an answer, with their quotes, how well these carry them and whether the check lets them through, to a file."
    with open(out, 'a', encoding='utf-8') as f:
        for n, claim in enumerate(answer.claims):
            f.write(json.dumps({'question': question.id, 'claim': n, 'text': claim.text, 'quotes': [c.quote for c in claim.citations],
                                'support': claim.support, 'confirmed': claim.holds, 'fault': claim.fault}) + '\n')


def summed(rows: list[dict]) -> dict:
    held = [r for r in rows if r['shown']]
    labels = [r['label'] for r in rows if r['label'] is not None]
    return {'asked': len(rows), 'kinds': dict(Counter(r['kind'] for r in rows)), 'errors': sum(r['error'] for r in rows),
            'answered': sum(not r['abstained'] for r in rows), 'quoted instead': sum(r['quoted'] for r in rows),
            'without an answer': dict(Counter(r['why'] for r in rows if r['abstained'])),
            'evidence held one': len(held), 'without an answer though evidence held one': sum(r['abstained'] for r in held),
            'too thin to ask': sum(r['thin'] for r in rows),
            'claims': sum(r['claims'] for r in rows), 'claims confirmed': sum(r['held'] for r in rows),
            'claims shown twice': sum(r['twice'] for r in rows), 'papers right': sum(r['right paper'] for r in rows),
            'labels right': sum(labels), 'labels': len(labels), 'asked once more': sum(r['tries'] > 1 for r in rows),
            'rescued': sum(bool(r['rescued']) for r in rows), 'found by the nearest span': sum(r['near'] for r in rows),
            'seconds': quantiles([r['seconds'] for r in rows]) if rows else {},
            'tokens written': float(np.mean([r['tokens'] for r in rows])) if rows else 0.0}


def main(a):
    before = {q.id for q in five_kinds(a.without)} if a.without else set()
    questions = [q for q in five_kinds(a.questions) if q.id not in before]
    llm = language_model(a.llm, timeout=600, replay=a.replay, window=8192)
    if a.record: llm = Once(llm, a.record, a.prompts)
    qa, rows, begun = CancerQA(a.library, Finding(passages=a.passages), Reading(llm)), [], time.monotonic()
    for q in questions:
        if time.monotonic() - begun > 60 * a.minutes: break
        start, (kind, options) = time.monotonic(), as_asked(q)
        answer = qa.ask(q.question, kind, options)
        rows.append(row(q, answer, time.monotonic() - start))
        if a.claims: told_claims(a.claims, q, answer)
        print(json.dumps(rows[-1]), flush=True)
    told = summed(rows)
    if a.recorded_replies: told.pop('seconds')
    if a.save: save('small_model', {'model': a.name, 'seed': 0, 'questions': 'BioASQ round 10 and CMMQA, seed 0, in turn from each kind',
                                    'passages': a.passages, 'wanted': a.questions, 'minutes': a.minutes, **told},
                     (*PACKAGES, 'openai', 'xllamacpp'))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('library')
    p.add_argument('--llm', required=True)
    p.add_argument('--name', default='', help='of the model, for the result file')
    p.add_argument('--questions', type=int, default=60)
    p.add_argument('--without', type=int, default=0, help='leave out the questions that --questions of this number draws: for more claims')
    p.add_argument('--minutes', type=float, default=15)
    p.add_argument('--passages', type=int, default=10)
    p.add_argument('--record', type=Path, help='a file that gets the replies; those that it holds are not asked for again')
    p.add_argument('--no-prompts', dest='prompts', action='store_false', help='the record keeps nothing that was sent: to be handed on')
    p.add_argument('--replay')
    p.add_argument('--claims', type=Path, help='a file that gets the claims with their quotes')
    p.add_argument('--recorded-replies', action='store_true', help='seconds say nothing and are left out')
    p.add_argument('--save', action='store_true', help='write benchmarks/results/small_model.json')
    given = p.parse_args()
    if given.without and given.save: p.error('--save is for the whole of a draw')
    main(given)
