"""What is somebody who asks in the middle of? Learns it from questions that were marked one by one.

    python benchmarks/situations.py [--write]

benchmarks/labels/situations.tsv: our patients' questions that are learnt from, by their ids, and 300 that one session of a language model
wrote, 60 for each of the first four situations and 60 that only sound like one, and 350 more by another for `mixing`, `children` and
`side effect`, half of which only sound like them, 230 more by a third for `sign`, `mixing` and `side effect`, after readers had missed
these notes, and 240 by a fourth for `dying`, of which 90 tell of an emergency and 60 of neither (ids that begin with j and a key of
LOOKED: nobody looked for other situations in them than it names, which are not learnt from them). Sessions that knew nothing of the
program marked the first. What is told is of questions left out in ten parts, of the real ones apart. For `dying`, phrases that tell of a
danger (danger*.tsv) count as none, and of them those left out are told as well; its bar is .4, so that five of 829 emergencies are taken
for it, as many as before these 240. `--write` puts the weights into cpqa/data/situations.json.
"""
import sys
from zlib import crc32

import msgspec
import numpy as np
from common import ROOT, save
from patient_questions import table
from sklearn.linear_model import LogisticRegression

from cpqa.answering.danger_network import DANGERS
from cpqa.answering.situations import SituationWeights
from cpqa.evaluation.claims import auroc
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.encoders import EmbeddedEncoder

FILE, SOFT, PARTS = ROOT / 'cpqa' / 'data' / 'situations.json', 10, 10
LOOKED = {**dict.fromkeys(('ma', 'mb', 'ca', 'cb', 'sa', 'sb'), ('side effect', 'mixing', 'children')),
          **dict.fromkeys(('ga', 'gb'), ('sign',)), **dict.fromkeys(('mc', 'md'), ('mixing',)),
          **dict.fromkeys(('sc', 'sd'), ('side effect',)), **dict.fromkeys(('da', 'db', 'dc'), ('dying',))}
BARS = {'stopping': .5, 'sign': .2, 'side effect': .3, 'mixing': .3, 'children': .3, 'dying': .4}


def learnt(x: np.ndarray, y: np.ndarray) -> LogisticRegression: return LogisticRegression(C=SOFT, max_iter=3000).fit(x, y)


def main():
    asked, encoder = {r['id']: r['question'] for r in table('patient_questions.tsv')}, EmbeddedEncoder()
    rows, kinds = table('situations.tsv'), [k for k in DANGERS if k != 'none']
    dangers = [r for name in ('danger', 'danger_roundabout', 'danger_stories') for r in table(f'{name}.tsv') if r['kind'] in kinds]
    vectors = lambda texts: directions(encoder.encode(texts, 'query'), encoder.describe().get('similarity'))
    x, others = vectors([r['text'] or asked[r['id']] for r in rows]), vectors([r['text'] for r in dangers])
    real = np.array([not r['text'] for r in rows] + [False] * len(dangers))
    part = np.append(np.random.default_rng(0).permutation(len(rows)) % PARTS, [crc32(r['text'].encode()) % PARTS for r in dangers])
    told, written, models = {}, {}, {}
    for name, bar in BARS.items():
        every = np.concatenate([x, others]) if name == 'dying' else x
        n = len(every)
        marked = np.array([name in LOOKED.get(r['id'][1:3] if r['text'] else '', BARS) for r in rows] + [True] * (n - len(rows)))
        y, p = np.array([name in r['situations'].split(', ') for r in rows] + [False] * (n - len(rows))), np.zeros(n)
        for k in range(PARTS):
            here = part[:n] == k
            p[here] = learnt(every[~here & marked], y[~here & marked]).predict_proba(every[here])[:, 1]
        models[name] = learnt(every[marked], y[marked])
        figures = lambda some: {'questions': int(some.sum()), 'there': int(y[some].sum()), 'told': int((p[some] >= bar).sum()),
                                'rightly': int((y & (p >= bar))[some].sum()), 'auroc': round(auroc(p[some & y], p[some & ~y]), 4)}
        told[name], written[name] = figures(real[:n]), figures(~real[:n] & marked & (np.arange(n) < len(rows)))
    of_danger = p[len(rows):]   # dying is the last
    of_kind = {k: np.array([r['kind'] == k for r in dangers]) for k in kinds}
    wrongly = {k: [int((of_danger[some] >= bar).sum()), int(some.sum())] for k, some in of_kind.items()}
    save('situations', {'bars': BARS, 'real': told, 'written': written, 'dangers taken for dying': wrongly})
    print(told, written, wrongly, sep='\n')
    if '--write' not in sys.argv: return
    short = lambda values: tuple(round(float(v), 4) for v in values)
    weights = SituationWeights({n: short(m.coef_[0]) for n, m in models.items()}, {n: short(m.intercept_)[0] for n, m in models.items()},
                               BARS, encoder.describe()['sha256'][:12], f'{len(rows):,} questions, benchmarks/situations.py')
    FILE.write_bytes(msgspec.json.encode(weights) + b'\n')


if __name__ == '__main__': main()
