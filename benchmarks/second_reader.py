"""Is a language model right as a second reader, on claims that people labelled and on statements made from trials?

    python benchmarks/second_reader.py --llm openai:NAME@http://127.0.0.1:8081/v1 [--pairs 200] [--minutes 60] [--record FILE]

So many pairs of each set, drawn with a fixed seed, in turn from each label: claims beside quotes of HealthVer's dev set (Supports, Refutes,
Neutral), statements beside the lines of NLI4CT's dev set that people marked (Entailment, Contradiction), and true and false statements made
from Evidence Inference's test half beside a marked span (cpqa.evaluation.claims). Each is one call that sees nothing else
(`cpqa.answering.second_reader`), and the shipped check reads the same pairs. Counted are how often support is told from the rest by each,
the verdicts, pairs without an opinion, which stay in, and seconds. Neither HealthVer nor NLI4CT taught the check anything; of Evidence
Inference it was fitted on the other half.
"""
import argparse
import random
import time

from common import DATA, PACKAGES, quantiles, save
from stance import healthver, nli4ct

from cpqa.answering.replies import ReplyError
from cpqa.answering.second_reader import second_opinion
from cpqa.answering.support import ClaimSupport
from cpqa.core.llm import LLMError
from cpqa.core.llm_providers import language_model
from cpqa.evaluation.claims import statements
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.statistics import mcnemar, wilson

VERDICTS = ('supports', 'contradicts', 'neither')
LABELS = {'Supports': 'supports', 'Refutes': 'contradicts', 'Neutral': 'neither', 'Entailment': 'supports', 'Contradiction': 'contradicts'}


def every() -> dict[str, list[tuple[str, str, str]]]:
    "Claim, quote and label of each pair, by set."
    made = statements(read_marked(DATA / 'evidence_inference'), 'test')
    return {'HealthVer dev': [(claim, said, LABELS[label]) for claim, said, label in healthver()],
            'NLI4CT dev': [(claim, ' '.join(said), LABELS[label]) for claim, said, label in nli4ct()],
            'made statements, test half': [(m.text, m.quote, 'supports' if m.true else 'is false') for m in made]}


def in_turn(rows: list[tuple[str, str, str]], n: int) -> list[tuple[str, str, str]]:
    "`n` of the pairs, in turn from each label."
    by: dict[str, list] = {}
    for r in rows: by.setdefault(r[2], []).append(r)
    for some in by.values(): random.Random(0).shuffle(some)
    return [by[label][i] for i in range(max(map(len, by.values()))) for label in by if i < len(by[label])][:n]


def told(right: list[bool]) -> dict:
    i = wilson(sum(right), len(right))
    return {'right': sum(right), 'interval': [round(i.low, 4), round(i.high, 4)]}


def read(llm, rules: ClaimSupport, pairs: list[tuple[str, str, str]], until: float) -> dict:
    rows = []
    for claim, quote, gold in pairs:
        if time.monotonic() > until: break
        start = time.monotonic()
        try: verdict = second_opinion(llm, claim, quote).verdict
        except (LLMError, ReplyError): verdict = ''
        rows.append((gold, verdict, not rules.check(claim, quote).fault, time.monotonic() - start))
    if not rows: return {'n': 0}
    model, check = ([(s == 'supports') == (gold == 'supports') for gold, s, *_ in rows],
                    [holds == (gold == 'supports') for gold, _, holds, _ in rows])
    both = [s == 'supports' and holds for _, s, holds, _ in rows]
    return {'n': len(rows), 'no opinion': sum(not s for _, s, *_ in rows), 'supported or not, by the model': told(model),
            'supported or not, by the check': told(check), 'p_mcnemar': round(mcnemar(model, check).p, 4),
            'supported or not, where it takes both': told([b == (gold == 'supports') for b, (gold, *_) in zip(both, rows)]),
            'of those not supported, confirmed by': {
                name: sum(ok for ok, (gold, *_) in zip(by, rows) if gold != 'supports')
                for name, by in (('model', [s == 'supports' for _, s, *_ in rows]), ('check', [h for *_, h, _ in rows]), ('both', both))},
            'verdicts': {f'{gold}, told {s or "nothing"}': sum((g, v) == (gold, s) for g, v, *_ in rows)
                         for gold in dict.fromkeys(g for g, *_ in rows) for s in (*VERDICTS, '')},
            'seconds': quantiles([s for *_, s in rows])}


def main(a):
    llm, rules, until = language_model(a.llm, timeout=600, record=a.record), ClaimSupport(), time.monotonic() + 60 * a.minutes
    result = {name: read(llm, rules, in_turn(pairs, a.pairs), until) for name, pairs in every().items()}
    if a.recorded_replies:
        for found in result.values(): found.pop('seconds', None)
    save('second_reader', {'model': a.name, 'seed': 0, 'wanted of each': a.pairs, **result}, PACKAGES)


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--llm', required=True)
    p.add_argument('--name', default='', help='of the model, for the result file')
    p.add_argument('--pairs', type=int, default=200)
    p.add_argument('--minutes', type=float, default=60)
    p.add_argument('--recorded-replies', action='store_true', help='seconds say nothing and are left out')
    p.add_argument('--record')
    main(p.parse_args())
