"""Which short question stands for a long message? Writes the vectors of the known questions, and fits what makes one likely.

    python benchmarks/known_questions.py [--write]                                                          (five minutes)

benchmarks/labels/message_questions.tsv: messages, and of each the known questions that lay nearest, judged by sessions of a language
model that knew nothing of the program: 2, the question is nearly what is asked; 1, a good answer to it would be of use; 0, it asks
something else, or the answer would mislead. Of the messages 472 were written as ordinary ones among dangers (danger_stories.tsv; `message`
is then the first ten digits of the SHA-256 of the text), and ask much that nobody else asks; the others (`text`) as to a forum.
A logistic regression is fitted to 1 or 2 against 0; what it is worth on messages that it did not see is told by tenfold cross-validation
over messages, and for both sorts apart: of how many the likeliest question reaches the bar, and how many of these are 2, 1 and 0.
`--write` puts vectors and weights into cpqa/data.
"""
import sys
from collections import defaultdict
from hashlib import sha256

import msgspec
import numpy as np
from common import ROOT, save
from patient_questions import table
from sklearn.linear_model import LogisticRegression

from cpqa.answering import known_questions as room
from cpqa.answering.known_questions import LIKENESS, KnownWeights, alike
from cpqa.answering.messages import SentenceWeights, questions_in
from cpqa.evaluation.claims import auroc
from cpqa.evaluation.statistics import wilson
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.encoders import EmbeddedEncoder

DATA, LEAST, FOLDS = ROOT / 'cpqa' / 'data', .58, 10


def vectors(encoder: EmbeddedEncoder, write: bool):
    questions = (DATA / 'known_questions.txt').read_text(encoding='utf-8').splitlines()
    made = directions(encoder.encode(questions, 'query'), encoder.describe().get('similarity'))
    if write: np.savez_compressed(DATA / 'known_questions.npz', vectors=np.round(made * 127).astype(np.int8))
    return questions, made


def judged() -> dict[str, tuple[bool, dict[str, int]]]:
    "For each message whether it was written as to a forum, and the grades of known questions."
    stories = {sha256(r['text'].encode()).hexdigest()[:10]: r['text'] for r in table('danger_stories.tsv')}
    found: dict[str, tuple[bool, dict[str, int]]] = defaultdict(lambda: (False, {}))
    for r in table('message_questions.tsv'):
        text = ' '.join((r['text'] or stories[r['message']]).split())
        if text not in found: found[text] = bool(r['text']), {}
        found[text][1][r['question']] = int(r['grade'])
    return dict(found)


def fitted(x: np.ndarray, y: np.ndarray): return LogisticRegression(C=1, max_iter=3000).fit(x, y)


def told(p: np.ndarray, grades: np.ndarray, group: np.ndarray) -> dict:
    first = [max(np.flatnonzero(group == g), key=lambda i: p[i]) for g in dict.fromkeys(group)]
    sure = [i for i in first if p[i] >= LEAST]
    useful, reached = wilson(int((grades[sure] > 0).sum()), len(sure)), wilson(len(sure), len(first))
    share = lambda found: {'value': round(found.value, 4), 'interval': [round(found.low, 4), round(found.high, 4)]}
    return {'messages': len(first), 'pairs': len(p), 'AUROC': round(auroc(p[grades > 0], p[grades == 0]), 4), 'likely enough': len(sure),
            'share likely enough': share(reached), 'share of these of use': share(useful),
            'of these 2, 1, 0': [int((grades[sure] == g).sum()) for g in (2, 1, 0)],
            'likeliest of all 2, 1, 0': [int((grades[first] == g).sum()) for g in (2, 1, 0)]}


def main():
    encoder, write = EmbeddedEncoder(), '--write' in sys.argv
    questions, _ = vectors(encoder, write)
    room.known_questions.cache_clear()
    rows, number = [], {q: i for i, q in enumerate(questions)}
    for n, (text, (forum, grades)) in enumerate(judged().items()):
        for part in questions_in(text):
            near = alike(text, part, encoder)
            at = {int(i): s for i, s in zip(near.which, near.signs)}
            rows += [(at[number[q]], grade, n, forum) for q, grade in grades.items() if number.get(q) in at]
    x, grades = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    group, forum = np.array([r[2] for r in rows]), np.array([r[3] for r in rows])
    part, p = np.random.default_rng(0).permutation(group.max() + 1) % FOLDS, np.zeros(len(rows))
    for k in range(FOLDS):
        rest = part[group] == k
        p[rest] = fitted(x[~rest], grades[~rest] > 0).predict_proba(x[rest])[:, 1]
    model = fitted(x, grades > 0)
    weights = KnownWeights(SentenceWeights(tuple(round(float(w), 3) for w in model.coef_[0]), round(float(model.intercept_[0]), 3)), LEAST,
                           encoder.describe()['sha256'][:12], f'{len(rows):,} judged pairs of {group.max() + 1} messages')
    if write: (DATA / 'known_questions.json').write_bytes(msgspec.json.encode(weights) + b'\n')
    save('known_questions', {'questions': len(questions), 'weights': dict(zip(LIKENESS, weights.likeness.weights)), 'least': LEAST,
                             'ordinary messages among dangers': told(p[~forum], grades[~forum], group[~forum]),
                             **({'messages as to a forum': told(p[forum], grades[forum], group[forum])} if forum.any() else {})},
         ('cpqa', 'scikit-learn', 'openvino'))


if __name__ == '__main__': main()
