"""Is a language model right as a second reader, on claims that people labelled?

    python benchmarks/second_reader.py --llm openai:NAME@http://127.0.0.1:8081/v1 [--pairs 200] [--minutes 60] [--record FILE]

Claims beside quotes of HealthVer's dev set (Supports, Refutes, Neutral), drawn with a fixed seed, as many of each label. Each is one call
that sees nothing else (`cpqa.answering.second_reader`), and the shipped check reads the same pairs. Counted are three verdicts against
three labels, how often "supports" is told from the rest by each, pairs without an opinion, which stay in, and seconds.
"""
import argparse
import csv
import random
import time

from common import DATA, PACKAGES, quantiles, save

from cpqa.answering.replies import ReplyError
from cpqa.answering.second_reader import second_opinion
from cpqa.answering.support import ClaimSupport
from cpqa.core.llm import LLMError
from cpqa.core.llm_providers import language_model
from cpqa.evaluation.statistics import mcnemar, wilson

LABELS = {'Supports': 'supports', 'Refutes': 'contradicts', 'Neutral': 'neither'}


def pairs(n: int) -> list[tuple[str, str, str]]:
    "Claim, quote and verdict: in turn from each label."
    with open(DATA / 'entailment' / 'healthver_dev.csv', encoding='utf-8') as f: rows = [*csv.DictReader(f)]
    by: dict[str, list] = {label: [] for label in LABELS}
    for r in rows: by[r['label']].append((r['claim'], r['evidence'], LABELS[r['label']]))
    for some in by.values(): random.Random(0).shuffle(some)
    return [by[label][i] for i in range(-(-n // 3)) for label in LABELS][:n]


def main(a):
    llm, rules, rows, begun = language_model(a.llm, timeout=600, record=a.record), ClaimSupport(), [], time.monotonic()
    for claim, quote, gold in pairs(a.pairs):
        if time.monotonic() - begun > 60 * a.minutes: break
        start = time.monotonic()
        try: verdict = second_opinion(llm, claim, quote).verdict
        except (LLMError, ReplyError): verdict = ''
        rows.append((gold, verdict, not rules.check(claim, quote).fault, time.monotonic() - start))
    told = lambda right: {'right': sum(right), 'interval': [round(x, 4) for x in (wilson(sum(right), len(right)).low,
                                                                                  wilson(sum(right), len(right)).high)]}
    model, check = ([(s == 'supports') == (gold == 'supports') for gold, s, *_ in rows],
                    [holds == (gold == 'supports') for gold, _, holds, _ in rows])
    save('second_reader', {'model': a.name, 'data': 'HealthVer dev, seed 0, in turn from each label', 'wanted': a.pairs, 'n': len(rows),
                           'no opinion': sum(not s for _, s, *_ in rows), 'supported or not, by the model': told(model),
                           'supported or not, by the check': told(check), 'p_mcnemar': mcnemar(model, check).p,
                           'three verdicts right': told([s == gold for gold, s, *_ in rows]),
                           'confusion': {f'{gold}, told {s or "nothing"}': sum((g, v) == (gold, s) for g, v, *_ in rows)
                                         for gold in LABELS.values() for s in (*LABELS.values(), '')},
                           'seconds': quantiles([s for *_, s in rows])}, PACKAGES)


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--llm', required=True)
    p.add_argument('--name', default='', help='of the model, for the result file')
    p.add_argument('--pairs', type=int, default=200)
    p.add_argument('--minutes', type=float, default=60)
    p.add_argument('--record')
    main(p.parse_args())
