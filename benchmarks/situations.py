"""What is somebody who asks in the middle of? Learns it from questions that were marked one by one.

    python benchmarks/situations.py [--write]

benchmarks/labels/situations.tsv: our patients' questions that are learnt from, by their ids, and 300 that one session of a language model
wrote, 60 for each of the first four situations and 60 that only sound like one, and 350 more by another for `mixing`, `children` and
`side effect`, half of which only sound like them, 230 more by a third for `sign`, `mixing` and `side effect`, after readers had missed
these notes, and 240 by a fourth for `dying`, of which 90 tell of an emergency and 60 of neither (ids that begin with j and a key of
LOOKED: nobody looked for other situations in them than it names, which are not learnt from them), 240 by a fifth for `bereaved`, half of
which only sound like it, and 240 by a sixth for side effects that are told as a question. The last two wrote 60 more each, in other
frames, which nothing learns from (APART). A seventh wrote 180 dangers that a death is told beside, or that look like one, a third in other
frames (BESIDE_A_DEATH), an eighth 240 for `waiting`, half of which only sound like it, and 60 apart. Sessions that knew nothing of the
program marked the first; for `bereaved` those of them that hold a word of death or loss, for `waiting` the 120 that a first fit thought
likeliest. What is told is of questions left out in ten parts, of the real ones apart. Phrases that tell of a danger (danger*.tsv) count as
none of NO_DANGER, and of them those left out are told as well; the bar of `dying` is .4, so that four of 829 emergencies are taken for it.
labels/last_days.tsv marks 571 demo notes, 421 near to questions of the last days and 150 that a first fit took for fit: 2 speaks of dying,
1 may be quoted there too, 0 would mislead or frighten; marked by two sessions that knew nothing of the program. Which may be quoted is
learnt from their beginnings.
`--write` puts the weights into cpqa/data/situations.json and last_days.json.
"""
import sys
from zlib import crc32

import msgspec
import numpy as np
from common import ROOT, save
from patient_questions import table
from sklearn.linear_model import LogisticRegression

from cpqa.answering.danger_network import DANGERS, FIRST_HELP
from cpqa.answering.safety import danger
from cpqa.answering.situations import SituationWeights, beginning
from cpqa.evaluation.claims import auroc
from cpqa.literature.demo_notes import demo_notes
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.encoders import EmbeddedEncoder

FILE, LAST_DAYS, SOFT, PARTS = *(ROOT / 'cpqa' / 'data' / f'{name}.json' for name in ('situations', 'last_days')), 10, 10
LOOKED = {**dict.fromkeys(('ma', 'mb', 'ca', 'cb', 'sa', 'sb'), ('side effect', 'mixing', 'children')),
          **dict.fromkeys(('ga', 'gb'), ('sign',)), **dict.fromkeys(('mc', 'md'), ('mixing',)),
          **dict.fromkeys(('sc', 'sd', 'sg', 'st'), ('side effect',)), **dict.fromkeys(('da', 'db', 'dc'), ('dying',)),
          **dict.fromkeys(('ba', 'bt'), ('bereaved',)), **dict.fromkeys(('wa', 'wt'), ('waiting', 'dying'))}
APART = ('st', 'bt', 'wt')
BESIDE_A_DEATH = {'be': 'beside a death', 'bx': 'beside a death, apart'}   # dangers
BARS = {'stopping': .5, 'sign': .2, 'side effect': .35, 'mixing': .3, 'children': .3, 'bereaved': .25, 'dying': .4, 'waiting': .4}
FIT = .25   # from which on a paper may be quoted beside somebody who is dying
NO_DANGER = ('bereaved', 'dying')   # of which phrases of danger count as none


def learnt(x: np.ndarray, y: np.ndarray) -> LogisticRegression: return LogisticRegression(C=SOFT, max_iter=3000).fit(x, y)


def left_out(x: np.ndarray, y: np.ndarray, part: np.ndarray, some: np.ndarray | slice = slice(None)) -> np.ndarray:
    "The probability of each by what is learnt of `some` without its part."
    p, use = np.zeros(len(x)), np.zeros(len(x), bool)
    use[some] = True
    for k in range(PARTS): p[part == k] = learnt(x[use & (part != k)], y[use & (part != k)]).predict_proba(x[part == k])[:, 1]
    return p


def alarms(texts: list[str], p: np.ndarray, bar: float) -> dict:
    "How many of these bring an alarm, and how many of the alarms would fall silent if a death that is told silenced them."
    kinds = [danger(text) for text in texts]
    return {'texts': len(texts), 'alarms': sum(map(bool, kinds)),
            'a death would silence': sum(kind in (*FIRST_HELP, 'overdose') and chance >= bar for kind, chance in zip(kinds, p.tolist()))}


def weights(models: dict, bars: dict, encoder, learnt_from: str) -> bytes:
    "What was learnt, as it is kept in the package."
    short = lambda values: tuple(round(float(v), 4) for v in values)
    return msgspec.json.encode(SituationWeights({n: short(m.coef_[0]) for n, m in models.items()},
                                                {n: short(m.intercept_)[0] for n, m in models.items()}, bars,
                                                encoder.describe()['sha256'][:12], f'{learnt_from}, benchmarks/situations.py')) + b'\n'


def last_days(vectors) -> tuple[dict, LogisticRegression]:
    "Which papers may be quoted beside the dying, of demo notes that were marked: what is told of those left out, and the model."
    notes, marked = {n.id: n for n in demo_notes()}, table('last_days.tsv')
    x, grades = vectors([beginning(notes[r['id']].title, notes[r['id']].text) for r in marked]), np.array([int(r['grade']) for r in marked])
    p = left_out(x, fit := grades > 0, np.random.default_rng(0).permutation(len(marked)) % PARTS)
    return ({'notes': len(marked), 'fit': int(fit.sum()), 'told': int((p >= FIT).sum()), 'rightly': int((fit & (p >= FIT)).sum()),
             'on dying': [int(((grades == 2) & (p >= FIT)).sum()), int((grades == 2).sum())], 'auroc': round(auroc(p[fit], p[~fit]), 4)},
            learnt(x, fit))


def main():
    asked, encoder = {r['id']: r['question'] for r in table('patient_questions.tsv')}, EmbeddedEncoder()
    every_row, kinds = table('situations.tsv'), [*(k for k in DANGERS if k != 'none'), *BESIDE_A_DEATH.values()]
    rows = [r for r in every_row if r['situations'] != 'danger']
    dangers = [r for name in ('danger', 'danger_roundabout', 'danger_stories') for r in table(f'{name}.tsv') if r['kind'] in kinds]
    dangers += [r | {'kind': BESIDE_A_DEATH[r['id'][1:3]]} for r in every_row if r['situations'] == 'danger']
    vectors = lambda texts: directions(encoder.encode(texts, 'query'), encoder.describe().get('similarity'))
    texts = [r['text'] or asked[r['id']] for r in rows] + [r['text'] for r in dangers]
    every_vector = vectors(texts)
    x = every_vector[:len(rows)]
    real = np.array([not r['text'] for r in rows] + [False] * len(dangers))
    part = np.append(np.random.default_rng(0).permutation(len(rows)) % PARTS, [crc32(r['text'].encode()) % PARTS for r in dangers])
    apart = np.array([bool(r['text']) and r['id'][1:3] in APART for r in rows] + [r['kind'] == BESIDE_A_DEATH['bx'] for r in dangers])
    told, written, alone, wrongly, models = {}, {}, {}, {}, {}
    of_kind = {k: np.array([r['kind'] == k for r in dangers]) for k in kinds}
    for name, bar in BARS.items():
        every = every_vector if name in NO_DANGER else x
        n = len(every)
        known = np.array([name in LOOKED.get(r['id'][1:3] if r['text'] else '', BARS) for r in rows] + [True] * (n - len(rows)))
        marked = known & ~apart[:n]
        y = np.array([name in r['situations'].split(', ') for r in rows] + [False] * (n - len(rows)))
        p = left_out(every, y, part[:n], marked)
        models[name] = learnt(every[marked], y[marked])
        p[apart[:n]] = models[name].predict_proba(every[apart[:n]])[:, 1]
        figures = lambda some: {'questions': int(some.sum()), 'there': int(y[some].sum()), 'told': int((p[some] >= bar).sum()),
                                'rightly': int((y & (p >= bar))[some].sum()), 'auroc': round(auroc(p[some & y], p[some & ~y]), 4)}
        told[name], written[name] = figures(real[:n]), figures(~real[:n] & marked & (np.arange(n) < len(rows)))
        if (y & (some := known & apart[:n] & (np.arange(n) < len(rows)))).any(): alone[name] = figures(some)
        if name in NO_DANGER:
            taken = p[len(rows):] >= bar
            if name == 'bereaved':
                told_beside = [i for i, d in enumerate(dangers, len(rows)) if d['kind'] in BESIDE_A_DEATH.values()]
                silenced = {'bereaved': alarms([texts[i] for i in np.flatnonzero(y & known)], p[y & known], bar),
                            'dangers beside a death': alarms([texts[i] for i in told_beside], p[told_beside], bar)}
            wrongly[f'dangers taken for {name}'] = {k: [int(taken[some].sum()), int(some.sum())] for k, some in of_kind.items()}
    notes, of_notes = last_days(vectors)
    save('situations', {'bars': BARS, 'real': told, 'written': written, 'written apart': alone,
                        **wrongly, 'alarms': silenced, 'notes for the last days': notes})
    print(told, written, alone, wrongly, notes, sep='\n')
    if '--write' not in sys.argv: return
    FILE.write_bytes(weights(models, BARS, encoder, f'{len(every_row):,} questions'))
    LAST_DAYS.write_bytes(weights({'fit': of_notes}, {'fit': FIT}, encoder, f"{notes['notes']} demo notes"))


if __name__ == '__main__': main()
