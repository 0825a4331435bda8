"""By which route, and from which source, come the first five documents: table II of He et al., and the same by source, on three sets.

    python benchmarks/routes.py LIBRARY [--save]

LIBRARY is one of bioasq_beir's abstracts and the full texts of shared/data/rct (`cpqa library merge`). The questions are those of LiveQA's
test set (messages to a library, as patients wrote them), 150 of BioASQ's round 10, and the negative ones: those that both baselines of
`paper_answers.py he` had wrong, as benchmarks/results/answers_he.json names them. Each set goes through `cpqa.evaluation.routes`, the same
as `cpqa eval routes FILE`. Sources are those of the paper: abstracts (D1), full texts of reviews (D2) and other full texts (D3).
"""
import argparse
import json
import random
import time
from collections.abc import Iterator

from common import DATA, PACKAGES, RESULTS, bioasq_questions, save
from danger import liveqa

from cpqa import CancerQA
from cpqa.evaluation.datasets import load
from cpqa.evaluation.routes import evaluate_routes, routes_lines

MOST, SEED = 150, 0   # questions of researchers, and what they are drawn with


def negative() -> Iterator[str]:
    "The questions that both baselines had wrong."
    named, sets = json.loads((RESULTS / 'answers_he.json').read_text())['negative']['ids'], {}
    for word in named:
        name, _, id = word.partition(' ')
        if name not in sets: sets[name] = {q.id: q for q in load(name, DATA)}
        yield sets[name][id].question


def main():
    p = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    p.add_argument('library')
    p.add_argument('--save', action='store_true')
    a = p.parse_args()
    qa, result = CancerQA(a.library), {}
    researchers = [q['text'] for q in bioasq_questions() if q['batch'].startswith('10')]
    for name, questions in {'LiveQA': liveqa().values(), 'negative': negative(),
                            'BioASQ round 10': random.Random(SEED).sample(researchers, MOST)}.items():
        begun = time.monotonic()
        result[name] = evaluate_routes([*dict.fromkeys(questions)], qa)
        print(name, *routes_lines(result[name]), f'{time.monotonic() - begun:.0f} s', sep='\n', flush=True)
    if a.save: save('routes', {'documents': len(qa.library), 'seed': SEED, 'sets': result}, PACKAGES)


if __name__ == '__main__': main()
