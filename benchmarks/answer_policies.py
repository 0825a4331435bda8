"""Does retrieval help, and how much of that is the scorer? MIRAGE's recorded answers under each policy for unread ones.

    python benchmarks/answer_policies.py

For two models and five question sets, chain of thought alone (cot) against the same with MedRAG's retrieval (medrag), on all questions
and on the cancer questions alone (CMMQA, terms in question, options and context). BioASQ's round 11 is not at hand: 532 of its 618
questions. Holm's correction is over the comparisons of one policy on all questions: two models times five sets.
"""
from collections import Counter

from common import DATA, save

from cpqa.evaluation.datasets import SETS, cmmqa
from cpqa.evaluation.datasets import load
from cpqa.evaluation.parsing import POLICIES
from cpqa.evaluation.statistics import holm, mcnemar_counts
from cpqa.evaluation.tasks import evaluate_answers

MODELS = ('gpt-3.5', 'gpt-4')
PUBLISHED = {   # MIRAGE's tables 6 and 7, in percent
    ('gpt-3.5', 'cot'): (72.91, 65.04, 55.25, 36.00, 74.27), ('gpt-3.5', 'medrag'): (75.48, 66.61, 58.04, 67.40, 90.29),
    ('gpt-4', 'cot'): (89.44, 83.97, 69.88, 39.60, 84.30), ('gpt-4', 'medrag'): (87.24, 82.80, 66.65, 70.60, 92.56)}


def system(report: dict) -> dict:
    return {'accuracy': report['measures']['accuracy'], 'coverage': report['measures']['coverage'], 'failures': report['failures']}


def row(model: str, name: str, policy: str, questions: str, only: list[str] | None) -> dict:
    recorded = [DATA / 'recorded_answers' / f'{name}.{model}_{how}.jsonl.gz' for how in ('medrag', 'cot')]
    report = evaluate_answers(recorded[0], name, DATA, policy, against=recorded[1], only=only)
    return {'model': model, 'set': name, 'policy': policy, 'questions': questions, 'n': report['n'],
            'medrag': system(report), 'cot': system(report['against']), **report['comparison'], 'n_compared': report['comparison']['n'],
            'n': report['n']}


def pooled(rows: list[dict]) -> dict:
    "The five sets of one model, policy and choice of questions as one."
    m = mcnemar_counts(sum(r['right_only_here'] for r in rows), sum(r['right_only_against'] for r in rows),
                       sum(r['n_compared'] for r in rows))
    return {**{k: rows[0][k] for k in ('model', 'policy', 'questions')}, 'set': 'all five', 'n': sum(r['n'] for r in rows),
            'n_compared': m.n,
            'right_only_here': m.only_a, 'right_only_against': m.only_b, 'p_mcnemar': m.p, 'difference': m.difference.to_dict()}


def main():
    sets = {name: load(name, DATA) for name in SETS}
    cancer = Counter(a.question.source for a in cmmqa(sets.values()))
    ids = {name: [a.question.id for a in cmmqa([q])] for name, q in sets.items()}
    rows = [row(model, name, policy, questions, ids[name] if questions == 'cancer' else None)
            for questions in ('all', 'cancer') for policy in POLICIES for model in MODELS for name in SETS]
    for policy in POLICIES:
        family = {f'{r["model"]} {r["set"]}': r['p_mcnemar'] for r in rows if r['policy'] == policy and r['questions'] == 'all'}
        adjusted = holm(family)
        for r in rows:
            if r['policy'] == policy and r['questions'] == 'all': r['p_holm'] = adjusted[f'{r["model"]} {r["set"]}']
    together = [pooled([r for r in rows if (r['questions'], r['policy'], r['model']) == (questions, policy, model)])
                for questions in ('all', 'cancer') for policy in POLICIES for model in MODELS]
    published = [{'model': model, 'how': how, 'set': name, 'published': value,
                  'ours': round(100 * next(r for r in rows
                                           if (r['model'], r['set'], r['policy'],
                                               r['questions']) == (model, name, 'first-option', 'all'))[how]['accuracy']['value'], 2)}
                 for (model, how), values in PUBLISHED.items() for name, value in zip(SETS, values)]
    save('answer_policies', {'data': 'recorded_answers of MIRAGE', 'questions': {name: len(q) for name, q in sets.items()},
                             'cancer_questions': dict(cancer),
                             'gold_shares': {name: {label: round(n / len(q), 4) for label,
                                                    n in sorted(Counter(x.gold for x in q).items())} for name, q in sets.items()},
                             'policies': POLICIES, 'published': published, 'rows': rows, 'pooled': together},
                             packages=('cpqa', 'scipy', 'json-repair'))


if __name__ == '__main__': main()
