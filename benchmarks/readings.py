"""How often does our reader of answers err? Recorded answers against one who read them.

    python benchmarks/readings.py

benchmarks/labels/readings.tsv holds what a session of a language model, blind to our reader, took each of 301 recorded answers for:
a letter, or a kind of failure. They were drawn at random within the kinds that our reader had given them, the rare kinds more densely,
so the shares are by kind. The rules of the reader had been tuned on the same files before, and were not changed after.
"""
import csv
from collections import defaultdict

from common import DATA, ROOT, save

from cpqa.evaluation.datasets import align, load
from cpqa.evaluation.statistics import wilson
from cpqa.evaluation.tasks import read_recorded, read_texts

LABELS = ROOT / 'benchmarks' / 'labels' / 'readings.tsv'


def main():
    with open(LABELS) as f: rows = list(csv.DictReader(f, delimiter='\t'))
    sets, files = {r['set']: load(r['set'], DATA) for r in rows}, {}
    by_kind, differ = defaultdict(list), []
    for r in rows:
        name, q = f'{r["set"]}.{r["system"]}', sets[r['set']][r['id']]
        if name not in files:
            recorded = read_recorded(DATA / 'recorded_answers' / f'{name}.jsonl.gz', [])
            files[name] = {known: recorded[id] for id, known in align(sets[r['set']], recorded).items()}
        ours = read_texts(files[name][r['id']], q.options)
        by_kind[ours.kind].append((ours.label or ours.kind) == r['read_as'])
        if not by_kind[ours.kind][-1]:
            differ.append({'ours': 'a label' if ours.label else ours.kind, 'reader': 'a label' if len(r['read_as']) == 1 else r['read_as']})
    save('readings', {'data': 'recorded_answers of MIRAGE', 'n': len(rows), 'agreed': sum(map(sum, by_kind.values())),
                      'by_kind': {k: wilson(sum(v), len(v)).to_dict() for k, v in sorted(by_kind.items())}, 'differ': differ,
                      'reader': 'one session of a language model, blind to our reader'}, packages=('cpqa', 'scipy'))


if __name__ == '__main__': main()
