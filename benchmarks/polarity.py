"""How often is an opposition found by the rules of polarity one, and how many do they find?

    python benchmarks/polarity.py

On labels that people gave, never on sentences made by the rules:
- `conclusions`: PubMedQA's questions read as statements, against the authors' conclusion; opposed where the experts' answer is no
  ('maybe' left out). The task also holds conclusions that say no without a cue.
- `claims`: Evidence Inference; "X increased Y" and "X decreased Y", filled in from the question, against the first span that
  physicians marked; opposed unless the label says so. `no_effect`: "X did not affect Y" likewise.
- `same_answer`: two spans marked for the same question, which must not be opposed.
The rules were written while looking at one half of the articles and questions (`seen`, by the hash of the id); `held_out` is the other. One
phrase, "with or without", was added after its errors had been read, which took one pair from `flagged_wrongly` there.
Words such as "halved" and "alleviated" were added later, from sentences of our own (tests/test_told.py).
`any_negation` is what stands to reason: opposed if just one of the two texts holds a "no", "not" or "without".
Several pairs come from one question and several questions from one article, so beside Wilson's interval, which takes each pair for a draw
of its own, stands one of a bootstrap that draws whole articles (`by_article`; PubMedQA has one pair an article).
`share_on_seen` varies `SHARE`, on the seen half alone. The 0.5 was set by hand before that table was made, and not changed after it.
"""
import gzip
import json
import re
from hashlib import sha1
from time import perf_counter

import numpy as np
from common import DATA, save

from cpqa.answering.polarity import WORD_SHARE, opposed
from cpqa.evaluation.statistics import wilson

LABELS = {'significantly increased': '+', 'significantly increase': '+', 'significantly decreased': '-', 'no significant difference': '0'}
CLAIMS = {'+': '{x} increased {y}.', '-': '{x} decreased {y}.', '0': '{x} did not affect {y}.'}
SHARES = (.3, .4, .5, .6, .7)
NEGATION = re.compile(r"\b(?:no|not|without)\b|n't\b", re.I)


def seen(id: str) -> bool: return int(sha1(id.encode()).hexdigest(), 16) % 2 == 0


def lines(name: str) -> list[dict]:
    with gzip.open(DATA/'evidence_inference'/name, 'rt', encoding='utf-8') as f: return [json.loads(line) for line in f]


def pairs():
    "Task, id, two texts, and whether they are opposed."
    for id, q in json.loads((DATA/'pubmedqa'/'ori_pqal.json').read_text(encoding='utf-8')).items():
        if q['final_decision'] != 'maybe': yield 'conclusions', id, q['QUESTION'], q['LONG_ANSWER'], q['final_decision'] == 'no'
    articles = {a['pmcid']: a['text'] for a in lines('articles.jsonl.gz')}
    for q in lines('questions.jsonl.gz'):
        text, spans = articles[q['pmcid']], sorted({tuple(s) for s in q['evidence']})
        x, y = re.fullmatch(r'Compared with .*, what is the effect of (.*) on (.*)\?', q['question'], re.S).groups()
        for value, claim in CLAIMS.items():
            yield 'no_effect' if value == '0' else 'claims', q['pmcid'], claim.format(x=x,
                y=y), text[slice(*spans[0])], value != LABELS[q['label']]
        apart = [
            (s, t)
            for i, s in enumerate(spans)
            for t in spans[i + 1 :]
            if s[1] <= t[0] and text[slice(*s)].strip() != text[slice(*t)].strip()
        ]
        for s, t in apart[:1]: yield 'same_answer', q['pmcid'], text[slice(*s)], text[slice(*t)], False


def by_article(ids: list[str], hits: np.ndarray, of: np.ndarray) -> list[float]:
    "The 95 % percentile interval of sum(hits) / sum(of) when articles are drawn, 10,000 times."
    at = np.unique(ids, return_inverse=True)[1]
    hits, of = np.bincount(at, hits), np.bincount(at, of)
    drawn = np.random.default_rng(0).multinomial(len(of), np.full(len(of), 1 / len(of)), size=10_000)
    with np.errstate(invalid='ignore'): return [round(float(x), 4) for x in np.nanpercentile(drawn @ hits / (drawn @ of), [2.5, 97.5])]


def rate(ids: list[str], hits: np.ndarray, of: np.ndarray) -> dict | None:
    n = int(of.sum())
    if not n: return None
    found = wilson(int(hits.sum()), n)
    return {'value': round(found.value, 4), 'low': round(found.low, 4), 'high': round(found.high, 4), 'n': n,
            'by_article': by_article(ids, hits, of)}


def summary(rows: list[tuple[str, bool, bool]]) -> dict:
    "`rows`: article, opposed by the label, opposed by the rules."
    ids = [id for id, _, _ in rows]
    gold, flagged = np.array([[g, p] for _, g, p in rows]).T
    return {'pairs': len(rows), 'articles': len(set(ids)), 'opposed': int(gold.sum()), 'flagged': int(flagged.sum()),
            'precision': rate(ids, flagged & gold, flagged) if gold.any() else None, 'recall': rate(ids, flagged & gold, gold),
            'flagged_wrongly': rate(ids, flagged & ~gold, ~gold)}


def by_share(known: list[tuple]) -> dict:
    "Share -> task -> the three rates of the rules on `known` pairs."
    out = {}
    for least in SHARES:
        rows = {}
        for task, id, a, b, gold in known: rows.setdefault(task, []).append((id, gold, opposed(a, b, least) is not None))
        out[str(least)] = {task: {k: v['value'] if isinstance(v, dict) else v for k,
                                  v in summary(r).items() if k in ('flagged', 'precision', 'recall', 'flagged_wrongly')}
                           for task, r in sorted(rows.items())}
    return out


def main():
    judges = {'rules': lambda a, b: opposed(a, b) is not None, 'any_negation': lambda a,
              b: bool(NEGATION.search(a)) != bool(NEGATION.search(b))}
    rows, spent, n, all_pairs = {}, 0.0, 0, list(pairs())
    for task, id, a, b, gold in all_pairs:
        for name, judge in judges.items():
            start = perf_counter()
            found = judge(a, b)
            if name == 'rules': spent, n = spent + perf_counter() - start, n + 1
            rows.setdefault('seen' if seen(id) else 'held_out', {}).setdefault(task, {}).setdefault(name, []).append((id, gold, found))
    save('polarity', {'data': 'pubmedqa/ori_pqal.json and evidence_inference', 'share': WORD_SHARE,
                      'interval': '95 %, Wilson; by_article: percentile bootstrap of articles',
                      'ms_per_pair': round(1000 * spent / n, 2),
                      **{half: {task: {name: summary(r) for name, r in by.items()} for task, by in sorted(tasks.items())} for half,
                         tasks in sorted(rows.items())},
                      'share_on_seen': by_share([p for p in all_pairs if seen(p[1])])})


if __name__ == '__main__': main()
