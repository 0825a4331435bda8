"""Which words of a question should a person hear of, if nothing quoted mentions them? Learns it from words that were judged one by one.

    python benchmarks/unmentioned.py [--write]

benchmarks/labels/word_matters.tsv holds words of patients' questions, judged by sessions of a language model that knew nothing of the
program: is it worth a warning that nothing mentions this word? For most only the question was seen. Where `near` stands, the quotes were
seen too, in which the reader of November 27 found the word in no form; it is the cosine of the word and the nearest word of these quotes,
whose texts are not kept. The signs are those of `cpqa.answering.question_words`. Told is what the regression is worth on questions that it
did not see, in ten parts, beside how rare a word is, and beside naming all such words, as was done before; `--write` puts the weights into
cpqa/data/unmentioned.json.
"""
import sys
from collections import defaultdict

import msgspec
import numpy as np
from common import ROOT, save
from patient_questions import table
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict

from cpqa.answering.question_words import WordWeights, what_asks, word_signs
from cpqa.evaluation.claims import auroc
from cpqa.retrieval.encoders import EmbeddedEncoder

WORDS, SOFT, LEAST = ROOT / 'cpqa' / 'data' / 'unmentioned.json', .3, .6
SCALE = 4   # of the numbers of a meaning, which are small


def main():
    asked = {r['id']: r['question'] for r in table('patient_questions.tsv')}
    by_question, encoder = defaultdict(list), EmbeddedEncoder()
    for r in table('word_matters.tsv'): by_question[r['question']].append(r)
    rows, signs, group = [], [], []
    for id, some in by_question.items():
        meant, others = word_signs(encoder, what_asks(asked[id]), [r['word'] for r in some], [])
        others[:, 2] = [float(r['near'] or 0) for r in some]
        rows, group = rows + some, group + [id] * len(some)
        signs.append(np.column_stack([meant * SCALE, others, [bool(r['near']) for r in some]]))
    x, y, seen = np.concatenate(signs), np.array([r['matters'] == '1' for r in rows]), np.array([bool(r['near']) for r in rows])
    model = LogisticRegression(C=SOFT, max_iter=3000)
    p = cross_val_predict(model, x, y, groups=group, cv=GroupKFold(10), method='predict_proba')[:, 1]
    tell = lambda values, some: round(auroc(values[some & y], values[some & ~y]), 4)
    named = seen & (p >= LEAST)
    figures = {
        'words': len(y), 'questions': len(by_question), 'with their quotes': int(seen.sum()),
        'of these worth a warning': int(y[seen].sum()),
        'auroc': {'of the question alone': tell(p, ~seen), 'with its quotes': tell(p, seen), 'by rarity': tell(x[:, -3], seen)},
        'named': int(named.sum()), 'rightly': int(y[named].sum())}
    save('unmentioned', figures)
    print(figures)
    if '--write' not in sys.argv: return
    w = model.fit(x, y).coef_[0].tolist()
    short = lambda values: tuple(round(float(v), 4) for v in values)
    weights = WordWeights(short(np.array(w[:-4]) * SCALE), *short([*w[-4:-1], model.intercept_[0] + w[-1]]), LEAST,
                          encoder.describe()['sha256'][:12], f'{len(y):,} words of {len(by_question)} questions, benchmarks/unmentioned.py')
    WORDS.write_bytes(msgspec.json.encode(weights) + b'\n')


if __name__ == '__main__': main()
