"""What is the stance network worth on articles, claims and pairs that it was not trained on, and what does it cost?

    python benchmarks/stance.py [MODEL]     (about two minutes; MODEL is a folder of prepare_stance, or else the network of the package)

Evidence Inference: prompts of 55 articles that were set aside; is a marked sentence first among those of its article, and is the way right?
Written claims: those of the table whose part is dev; does a supported claim score above a contradicted one, and above one of neither?
The score is yes minus no. HealthVer and NLI4CT state no licence: nothing here learnt from them. An evidence of NLI4CT is a list of lines,
which are read in pieces of at most 400 characters; the piece that says most decides. Intervals are bootstraps, for the first set of
articles.
"""
import csv
import io
import json
import sys
import tarfile
import time
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from common import DATA, ROOT, quantiles, save

from cpqa.answering.stance import InContext, StanceModel, shipped_stance
from cpqa.evaluation.claims import auroc
from cpqa.training.stance_examples import stance_material
from cpqa.training.stance_network import stance_figures

RESAMPLED = 1000


def ends(drawn: Sequence[float]) -> list[float]:
    "Those of the 95 % interval."
    return [round(float(q), 4) for q in np.percentile(drawn, (2.5, 97.5))]


def told(high: Sequence[float], low: Sequence[float]) -> dict:
    "The AUROC of scores that should be high against those that should be low, with its interval."
    rng, a, b = np.random.default_rng(0), np.asarray(high), np.asarray(low)
    drawn = [auroc(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(RESAMPLED)]
    return {'value': round(auroc(a, b), 4), 'interval': ends(drawn), 'n': len(a) + len(b)}


def by_article(model: StanceModel, dev: Sequence) -> list[dict]:
    "`stance_figures` on the articles set aside; for the intervals whole articles are drawn."
    rows = {f.what: {'value': round(f.value, 4), 'n': f.n} for f in stance_figures(model.read_pairs, dev)}
    of = {a: [t for t in dev if t.article == a] for a in sorted({t.article for t in dev})}
    parts = {a: {f.what: (f.value * f.n, f.n) for f in stance_figures(model.read_pairs, some)} for a, some in of.items()}
    rng, articles = np.random.default_rng(0), list(parts)
    drawn = [[articles[i] for i in rng.integers(len(articles), size=len(articles))] for _ in range(RESAMPLED)]
    for what, row in rows.items():
        sums = [tuple(map(sum, zip(*(parts[a].get(what, (0, 0)) for a in some)))) for some in drawn]
        row['interval'] = ends([k / n for k, n in sums if n])
    return [{'what': what, **row} for what, row in rows.items()]


def scored(model: StanceModel, pairs: Sequence[tuple[str, str]]) -> list[float]:
    return [s.yes - s.no for s in model.read_pairs([(claim, InContext(' '.join(said.split()))) for claim, said in pairs])]


def healthver() -> list[tuple[str, str, str]]:
    with open(DATA / 'entailment' / 'healthver_dev.csv', newline='', encoding='utf-8') as f:
        return [(r['claim'], r['evidence'], r['label']) for r in csv.DictReader(f)]


def pieces(lines: Iterable[str], most: int = 400) -> list[str]:
    "The lines, put together to pieces of at most so many characters."
    out = ['']
    for line in (' '.join(x.split())[:most] for x in lines):
        if len(out[-1]) + len(line) > most: out.append('')
        out[-1] = f'{out[-1]} {line}'.strip()
    return [p for p in out if p]


def nli4ct() -> list[tuple[str, list[str], str]]:
    with tarfile.open(DATA / 'entailment' / 'nli4ct.tar.gz') as packed:
        read = lambda name: json.load(io.TextIOWrapper(packed.extractfile(name), 'utf-8'))
        trial = lambda row, which, section: read(f'CT json/{row[f"{which}_id"]}.json')[section]
        rows = list(read('dev.json').values())
        both = [[trial(r, which, r['Section_id']) for which in ('Primary', 'Secondary') if r.get(f'{which}_id')] for r in rows]
        return [(r['Statement'], pieces(chain.from_iterable(lines)), r['Label']) for r, lines in zip(rows, both)]


def cost(model: StanceModel) -> dict:
    "Milliseconds for a question and 32 sentences with their context."
    said = [InContext(f'Fatigue fell more with exercise than with usual care in trial {n} (P = 0.0{n % 9 + 1}), after twelve weeks.',
                      'Patients filled in a questionnaire each week.', 'RESULTS', 'Exercise during chemotherapy') for n in range(32)]
    times = []
    for _ in range(22):
        start = time.perf_counter()
        model.read('Does exercise reduce fatigue during chemotherapy?', said)
        times.append(1000 * (time.perf_counter() - start))
    return quantiles(times[2:])


def main(folder: str):
    model = StanceModel(folder) if folder else shipped_stance()
    material = stance_material(DATA, ROOT / 'benchmarks' / 'labels' / 'claims.tsv', ('trials', 'claims'))
    articles = by_article(model, material.dev)
    ways = {1: [], 0: [], -1: []}
    for score, (c, _) in zip((s.yes - s.no for s in model.read_pairs([(c.claim, said) for c, said in material.dev_claims])),
                             material.dev_claims): ways[c.way].append(score)
    some = healthver()
    found = scored(model, [(claim, said) for claim, said, _ in some])
    health = {label: [s for s, (*_, own) in zip(found, some) if own == label] for label in ('Supports', 'Refutes', 'Neutral')}
    trials = nli4ct()
    parts = iter(scored(model, [(statement, piece) for statement, said, _ in trials for piece in said]))
    whole = [max((next(parts) for _ in said), key=abs) for _, said, _ in trials]
    holds = {label: [s for s, (*_, own) in zip(whole, trials) if own == label] for label in ('Entailment', 'Contradiction')}
    save('stance', {'stance': model.describe(), 'evidence inference, 55 articles': articles, 'auroc': {
        'written claims: supported, contradicted': told(ways[1], ways[-1]), 'written claims: supported, neither': told(ways[1], ways[0]),
        'HealthVer dev: supports, refutes': told(health['Supports'], health['Refutes']),
        'HealthVer dev: supports, neutral': told(health['Supports'], health['Neutral']),
        'NLI4CT dev: entailment, contradiction': told(holds['Entailment'], holds['Contradiction'])}, 'ms for 32 sentences': cost(model)})


if __name__ == '__main__': main(sys.argv[1] if len(sys.argv) > 1 else '')
