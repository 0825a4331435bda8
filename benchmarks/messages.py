"""Is the question in a message found? Fits the weights of cpqa/data/messages.json, and says what they are worth.

    python benchmarks/messages.py

Data: MeQSum (shared/data/patients), 966 messages to the US National Library of Medicine, each with the question as an expert put it. What
is right for a message is the sentence that shares most with that question (F1 of stems): among those that may ask for `asks`, among all
for `about`. Five folds by message; the figures are of messages that a fold did not learn from, with at least three sentences: how often the
right sentence is taken, the mean F1 of what is read with the expert's question, and the share of that question's stems that it holds: what
stands before the question is read with it, which costs the one and is meant to buy the other. The weights in the package are fitted on all.
"""
import json
from datetime import date
from hashlib import sha256

import msgspec
import numpy as np
from common import DATA, ROOT, save
from sklearn.linear_model import LogisticRegression

from cpqa.answering.messages import (SENTENCE_SIGNS, MessageWeights, SentenceWeights, may_ask, message_of, message_parts, questions_in,
                                     sentence_signs)
from cpqa.core.text_analysis import ENGLISH

FOLDS, LEAST, DRAWS = 5, 3, 2000
FITTED_ON = 'MeQSum, CC BY 4.0: messages with the question as an expert put it'


def fold(text: str) -> int: return sha256(text.encode()).digest()[0] % FOLDS


def f1(a: str, b: str) -> float:
    x, y = set(ENGLISH.analyze(a)), set(ENGLISH.analyze(b))
    return 2 * len(x & y) / (len(x) + len(y)) if x and y else 0.0


def held(text: str, question: str) -> float:
    x, y = set(ENGLISH.analyze(text)), set(ENGLISH.analyze(question))
    return len(x & y) / len(y) if y else 0.0


def weights_of(x: list[np.ndarray], y: list[np.ndarray]) -> SentenceWeights:
    model = LogisticRegression(max_iter=3000).fit(np.concatenate(x), np.concatenate(y))
    return SentenceWeights(tuple(round(float(w), 4) for w in model.coef_[0]), round(float(model.intercept_[0]), 4))


def best(shared: np.ndarray) -> np.ndarray: return (shared == shared.max(initial=0)) & (shared > 0)


def fitted(rows) -> MessageWeights:
    signs = [sentence_signs(said) for said, _, _ in rows]
    some = [may_ask(s) for s in signs]
    asks = weights_of([s[m] for s, m in zip(signs, some)], [best(shared[m]) for (_, shared, _), m in zip(rows, some)])
    about = weights_of(signs, [best(shared) for _, shared, _ in rows])
    return MessageWeights(asks, about, FITTED_ON, len(rows), date.today().isoformat())


def told(values: list[float]) -> dict:
    a = np.array(values, float)
    drawn = np.random.default_rng(0).choice(a, (DRAWS, len(a))).mean(1)
    return {'value': round(float(a.mean()), 4), 'interval': [round(float(q), 4) for q in np.percentile(drawn, (2.5, 97.5))], 'n': len(a)}


def main():
    lines = [json.loads(line) for line in (DATA / 'patients' / 'meqsum.jsonl').read_text(encoding='utf-8').splitlines()]
    rows = [(said, np.array([f1(s, r['question']) for s in said]), r) for r in lines if (said := message_of(r['message']).sentences)]
    right: dict[str, list[bool]] = {}
    read: dict[str, list[float]] = {}
    kept: dict[str, list[float]] = {}
    for k in range(FOLDS):
        weights = fitted([row for row in rows if fold(row[2]['message']) != k])
        for said, shared, r in (row for row in rows if fold(row[2]['message']) == k and len(row[0]) >= LEAST):
            parts, some = message_parts(said, weights), may_ask(sentence_signs(said))
            marked = [i for i, s in enumerate(said) if '?' in s] or [0]
            if some.any():
                asking = np.where(some, shared, -1.0)
                for name, i in (('asks', parts.asks[0]), ('asks: the first with a mark', marked[0]), ('asks: the last one', marked[-1])):
                    right.setdefault(name, []).append(asking[i] == asking.max())
            for name, i in (('about', parts.about), ('about: the first sentence', 0)):
                right.setdefault(name, []).append(shared[i] == shared.max())
            for name, text in (('questions_in', questions_in(r['message'], weights)[0]), ('the sentence that asks', said[parts.asks[0]]),
                               ('the first with a mark', said[marked[0]]), ('the whole message', ' '.join(said))):
                read.setdefault(name, []).append(f1(text, r['question']))
                kept.setdefault(name, []).append(held(text, r['question']))
    weights = fitted(rows)
    (ROOT / 'cpqa' / 'data' / 'messages.json').write_bytes(msgspec.json.encode(weights) + b'\n')
    save('messages', {'data': 'MeQSum', 'messages': len(rows), 'interval': f'95 %, bootstrap of messages, {DRAWS:,} draws',
                      'signs': {'asks': dict(zip(SENTENCE_SIGNS, weights.asks.weights)),
                                'about': dict(zip(SENTENCE_SIGNS, weights.about.weights))},
                      'right sentence': {name: told(found) for name, found in right.items()},
                      'F1 with the expert\'s question': {name: told(found) for name, found in read.items()},
                      'of its stems held': {name: told(found) for name, found in kept.items()}})


if __name__ == '__main__': main()
