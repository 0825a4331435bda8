"""Is a language model right as a second reader, on claims that people labelled and on statements made from trials?

    python benchmarks/second_reader.py --llm openai:NAME@http://127.0.0.1:8081/v1 [--pairs 200] [--minutes 60] [--record FILE]
    python benchmarks/second_reader.py --as-in second_reader            what the model said then, beside the checks of today

So many pairs of each set, drawn with a fixed seed, in turn from each label: claims beside quotes of HealthVer's dev set (Supports, Refutes,
Neutral), statements beside the lines of NLI4CT's dev set that people marked (Entailment, Contradiction), and true and false statements made
from Evidence Inference's test half beside a marked span (cpqa.evaluation.claims). Each is one call that sees nothing else
(`cpqa.answering.second_reader`), and two checks read the same pairs: the one that ships with CancerQA, with its encoder and stance
network (`check`), and the rules alone (`rules`). Counted are how often support is told from the rest by each, the verdicts, pairs without
an opinion, which stay in, and seconds a pair. `pair by pair` holds the labels (s, c, n; i: is false), the model's verdicts (s, c, n; -:
none) and whether each check confirms (1), in the order drawn. Neither HealthVer nor NLI4CT taught the check anything; of Evidence
Inference it was fitted on the other half.
"""
import argparse
import json
import random
import time

from common import DATA, PACKAGES, ROOT, quantiles, save
from stance import healthver, nli4ct

from cpqa.answering.replies import ReplyError
from cpqa.answering.second_reader import second_opinion
from cpqa.answering.support import ClaimSupport
from cpqa.core.llm import LLMError
from cpqa.core.llm_providers import language_model
from cpqa.evaluation.claims import statements
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.statistics import mcnemar, wilson
from cpqa.retrieval.encoders import EmbeddedEncoder

SEED, VERDICTS = 0, ('supports', 'contradicts', 'neither')
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
    for some in by.values(): random.Random(SEED).shuffle(some)
    return [by[label][i] for i in range(max(map(len, by.values()))) for label in by if i < len(by[label])][:n]


def told(right: list[bool]) -> dict:
    i = wilson(sum(right), len(right))
    return {'right': sum(right), 'interval': [round(i.low, 4), round(i.high, 4)]}


def timed(of, *args):
    "What a call gives, and how many seconds it took."
    start = time.perf_counter()
    return of(*args), time.perf_counter() - start


def read(verdict, checks: dict[str, ClaimSupport], pairs: list[tuple[str, str, str]], until: float) -> dict:
    gold, said, seconds = [], [], {who: [] for who in ('model', *checks)}
    holds: dict[str, list[bool]] = {who: [] for who in checks}
    for claim, quote, label in pairs:
        if time.monotonic() > until: break
        gold.append(label)
        for who, of in {'model': verdict, **{name: c.check for name, c in checks.items()}}.items():
            found, took = timed(of, claim, quote)
            seconds[who].append(took)
            if who == 'model': said.append(found)
            else: holds[who].append(not found.fault)
    if not gold: return {'n': 0}
    supported = [g == 'supports' for g in gold]
    passed = {'model': [s == 'supports' for s in said], **holds}
    right = {who: [ok == true for ok, true in zip(some, supported)] for who, some in passed.items()}
    both = [m and c for m, c in zip(passed['model'], passed['check'])]
    return {'n': len(gold), 'no opinion': sum(not s for s in said),
            **{f'supported or not, by the {who}': told(some) for who, some in right.items()},
            'p_mcnemar': {f'{a}, {b}': round(mcnemar(right[a], right[b]).p, 4) for a, b in (('model', 'check'), ('model', 'rules'),
                                                                                        ('check', 'rules'))},
            'supported or not, where it takes both': told([b == true for b, true in zip(both, supported)]),
            'of those not supported, confirmed by': {who: sum(ok and not true for ok, true in zip(some, supported))
                                                     for who, some in {**passed, 'both': both}.items()},
            'verdicts': {f'{label}, told {s or "nothing"}': sum((g, v) == (label, s) for g, v in zip(gold, said))
                         for label in dict.fromkeys(gold) for s in (*VERDICTS, '')},
            'pair by pair': {'label': ''.join(g[0] for g in gold), 'model': ''.join((s or '-')[0] for s in said),
                             **{who: ''.join(f'{ok:d}' for ok in some) for who, some in holds.items()}},
            'seconds': {who: quantiles(some) for who, some in seconds.items()}}


def asking(llm):
    "The verdict of a model; '' where it has none."
    def verdict(*pair) -> str:
        try: return second_opinion(llm, *pair).verdict
        except (LLMError, ReplyError): return ''
    return verdict


def again(said: str):
    "The verdicts that stand in a result, in their order."
    words, letters = {v[0]: v for v in VERDICTS}, iter(said)
    return lambda *pair: words.get(next(letters), '')


def main(a):
    until, before = time.monotonic() + 60 * a.minutes if a.llm else float('inf'), {}
    if a.as_in: before = json.loads((ROOT / 'benchmarks' / 'results' / f'{a.as_in}.json').read_text())
    else: llm = language_model(a.llm, timeout=600, record=a.record)
    if before: a.pairs, a.name, a.save_as, a.recorded_replies = before['wanted of each'], before['model'], a.as_in, True
    checks = {'check': ClaimSupport(EmbeddedEncoder()), 'rules': ClaimSupport()}
    checks['check'].check('Tea helps.', 'Tea helped.')   # loads what it reads with
    of_set = lambda name: again(before[name]['pair by pair']['model']) if before else asking(llm)
    result = {name: read(of_set(name), checks, in_turn(pairs, len(before[name]['pair by pair']['model']) if before else a.pairs), until)
              for name, pairs in every().items()}
    if a.recorded_replies:
        for name, found in result.items():
            found.get('seconds', {}).pop('model', None)
            if asked := before.get(name, {}).get('seconds', {}).get('model'): found['seconds']['model'] = asked
    labels = lambda sets, name: sets[name]['pair by pair']['label']
    if before and any(labels(result, name) != labels(before, name) for name in result): raise SystemExit(f'{a.as_in} is of other pairs')
    if before: result['the model was asked'] = before.get('the model was asked') or {k: before[k] for k in ('command', 'date', 'versions')}
    save(a.save_as, {'model': a.name, 'seed': SEED, 'wanted of each': a.pairs, **result}, (*PACKAGES, 'openai', 'xllamacpp'))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--llm')
    p.add_argument('--as-in', help='a result in benchmarks/results whose verdicts of the model are taken again')
    p.add_argument('--name', default='', help='of the model, for the result file')
    p.add_argument('--pairs', type=int, default=200)
    p.add_argument('--minutes', type=float, default=60)
    p.add_argument('--recorded-replies', action='store_true', help='the seconds of the model say nothing and are left out')
    p.add_argument('--record')
    p.add_argument('--save-as', default='second_reader', metavar='NAME', help='of the result file')
    a = p.parse_args()
    if bool(a.llm) == bool(a.as_in): p.error('give --llm or --as-in')
    main(a)
