"""Does the speller put right what patients misspell, and leave alone what is right? And the list of words that papers use.

    python benchmarks/spelling.py measure [--save]
    python benchmarks/spelling.py words           writes cpqa/data/words/scientific.txt from the texts in ../shared/data

benchmarks/labels/misspelled.tsv holds 360 questions in patients' words with one or two words misspelled, and as they are meant;
spelled_right.tsv 240 with rare but right words: medicines, genes, names, dialect. A session of a language model wrote both and knew
nothing of the speller. The lines with an odd number were not looked at while it was written.
A word is `right` if it came out as meant, `left` if it stayed as it was, `wrong` if it became another; a right word that was changed is
`spoiled`. Spellings of both sides of the Atlantic are one.
The list holds words that four texts or more hold, but that no list of the speller does; one that is a slip away from a far more frequent
word is left out.
"""
import argparse
import csv
import gzip
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator

from common import DATA, PACKAGES, ROOT, save

from cpqa.evaluation.statistics import wilson
from cpqa.literature.cancer_lexicon import spelled
from cpqa.retrieval.spelling import Speller, slips

LABELS, WORDS = ROOT / 'benchmarks' / 'labels', ROOT / 'cpqa' / 'data' / 'words' / 'scientific.txt'
TEXTS, COMMONER = 4, 100   # that hold a word; how much commoner its neighbour may be


def column(name: str, of: str) -> list[str]:
    with open(LABELS / f'{name}.tsv', encoding='utf-8') as f: return [r[of] for r in csv.DictReader(f, delimiter='\t')]


def words_of(text: str) -> list[str]: return [spelled(w.lower()) for w in re.findall(r"[^\W_]+(?:[-'’][^\W_]+)*", text)]


def outcomes(speller: Speller, asked: list[str], meant: list[str]) -> Counter[str]:
    "How many words came out right, were left, became wrong ones; how many right ones were spoiled."
    found = Counter()
    for a, m in zip(asked, meant, strict=True):
        for was, wanted, is_now in zip(words_of(a), words_of(m), words_of(speller.correct(a)[0])):
            if was == wanted: found['spoiled'] += is_now != was
            else: found['right' if is_now == wanted else 'left' if is_now == was else 'wrong'] += 1
    return found


def measured() -> dict:
    asked, meant, right = column('misspelled', 'asked'), column('misspelled', 'meant'), column('spelled_right', 'asked')
    speller, out = Speller(), {}
    for name, first in (('looked at', 0), ('not looked at', 1)):
        n, fine = outcomes(speller, asked[first::2], meant[first::2]), [not speller.correct(q)[1] for q in right[first::2]]
        misspelled = n['right'] + n['left'] + n['wrong']
        share = lambda k, of: {'value': round((i := wilson(k, of)).value, 4), 'interval': [round(i.low, 4), round(i.high, 4)], 'n': of}
        out[name] = {'right': share(n['right'], misspelled), 'wrong': share(n['wrong'], misspelled), 'spoiled': n['spoiled'],
                     'right questions left alone': share(sum(fine), len(fine))}
    return out


def texts() -> Iterator[str]:
    "Each text of the data once."
    def strings(value) -> Iterator[str]:
        if isinstance(value, str): yield value
        elif isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value: yield from strings(part)
    for path in ('bioasq_beir/corpus', 'rct/corpus', 'evidence_inference/articles', 'evidence_inference_more/articles'):
        with gzip.open(DATA / f'{path}.jsonl.gz', 'rt', encoding='utf-8') as f:
            yield from (' '.join(strings(json.loads(line))) for line in f)
    yield from (' '.join(strings(one)) for one in json.loads((DATA / 'pubmedqa' / 'ori_pqal.json').read_text()).values())
    with tarfile.open(DATA / 'medquad' / 'medquad_1-9_xml.tar.gz') as packed:
        for member in packed:
            if member.isfile(): yield re.sub('<[^>]*>', ' ', packed.extractfile(member).read().decode('utf-8', 'ignore'))


def scientific() -> list[str]:
    WORDS.write_text('')   # what is known without it
    speller, count = Speller(), Counter()
    for text in texts(): count.update(set(re.findall(r'(?<![\w-])[a-z]{5,24}(?![\w-])', text)))
    unknown = [w for w, n in count.items() if n >= TEXTS and not speller.known(w)]
    return sorted(w for w in unknown if max((count[s] for s in slips(w) if s in count), default=0) < COMMONER * count[w])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=('measure', 'words'))
    parser.add_argument('--save', action='store_true')
    a = parser.parse_args()
    if a.what == 'words': WORDS.write_text('\n'.join(scientific()) + '\n', encoding='ascii')
    elif a.save: save('spelling', measured(), PACKAGES)
    else: print(json.dumps(measured(), indent=1))


if __name__ == '__main__': main()
