"""Measures what cpqa/answering/safety finds on phrases that it was not fitted to, and fits the model of marks.

    python benchmarks/danger.py fit               # writes cpqa/data/danger.npz, the model of marks
    python benchmarks/danger.py test FILE.jsonl ...   # sets of phrases of somebody else (kind, text), with the models in the package
    python benchmarks/train_danger.py             # the network

Harmless text of others is read from the data folder and stays there: half of MeQSum's messages (by a checksum of the text), LiveQA's,
and part of the questions of BioASQ, PubMedQA and MedQuAD. The other half of MeQSum is for measuring only.
"""
import argparse
import json
import random
import re
import sys
import time
import xml.etree.ElementTree as ET
from zlib import crc32

import numpy as np
from common import DATA, RESULTS, ROOT, save
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from cpqa.answering import safety
from cpqa.answering.safety import DangerModel, danger, danger_model, marks_chances, network_chances, readings, word_marks

LABELS = ROOT / 'benchmarks' / 'labels'
KINDS = ('none', *safety.HARM, *safety.FIRST_HELP)
FOLDS, STRENGTH, COPIES, TEMPLATES = 3, 20, 2, 6
DRUGS = '''paclitaxel docetaxel carboplatin cisplatin oxaliplatin capecitabine xeloda 5fu gemcitabine irinotecan folfox folfiri folfirinox
doxorubicin epirubicin cyclophosphamide vincristine vinorelbine etoposide temozolomide temodal methotrexate pemetrexed abvd bendamustine
rituximab obinutuzumab trastuzumab herceptin pertuzumab kadcyla enhertu nivolumab opdivo pembrolizumab keytruda ipilimumab yervoy
atezolizumab tecentriq durvalumab imfinzi bevacizumab avastin cetuximab panitumumab ramucirumab imatinib glivec gleevec dasatinib sprycel
nilotinib bosutinib osimertinib tagrisso erlotinib afatinib alectinib lorlatinib crizotinib sunitinib pazopanib votrient axitinib
cabozantinib lenvatinib lenvima sorafenib nexavar regorafenib vemurafenib dabrafenib trametinib encorafenib palbociclib ibrance
ribociclib kisqali abemaciclib verzenio everolimus afinitor alpelisib olaparib lynparza niraparib rucaparib lenalidomide revlimid
thalidomide pomalidomide bortezomib velcade carfilzomib daratumumab ibrutinib acalabrutinib zanubrutinib venetoclax azacitidine
decitabine cytarabine fludarabine tamoxifen letrozole anastrozole exemestane fulvestrant enzalutamide xtandi abiraterone zytiga
apalutamide lupron zoladex neratinib tucatinib lapatinib sacituzumab enfortumab lonsurf ruxolitinib blinatumomab teclistamab'''.split()
KIN = '''mum mom mother dad father husband wife partner son daughter brother sister grandma grandpa gran friend boyfriend girlfriend aunt
uncle nan hubby child kid'''.split()


def table(name: str) -> list[list[str]]:
    return [line.split('\t') for line in (LABELS / f'{name}.tsv').read_text(encoding='utf-8').splitlines()[1:]]


def half(text: str) -> int: return crc32(text.encode())%2


def fold(text: str) -> int: return crc32(text.encode())//7%FOLDS


def messages(which: int) -> list[str]:
    "The messages of one half of MeQSum, which is measured on (1) or learnt from (0)."
    lines = (DATA / 'patients' / 'meqsum.jsonl').read_text(encoding='utf-8').splitlines()
    return [text for text in (json.loads(line)['message'] for line in lines) if half(text) == which]


def liveqa() -> dict[str, str]:
    "LiveQA's messages, by their number."
    said = lambda q: ' '.join(q.findtext(f'Original-Question/{tag}') or '' for tag in ('SUBJECT', 'MESSAGE'))
    return {q.get('qid'): said(q) for q in ET.parse(DATA / 'patients' / 'liveqa_2017_test.xml').iter('NLM-QUESTION')}


def asked_for_help() -> list[tuple[str, str]]:
    "The messages of MeQSum and LiveQA to which the words that help are apt, as somebody read them who knew no result, each with its kind."
    lines = map(json.loads, (DATA / 'patients' / 'meqsum.jsonl').read_text(encoding='utf-8').splitlines())
    every = {str(line['id']): line['message'] for line in lines} | liveqa()
    return [(every[n], kind) for name in ('meqsum_danger', 'liveqa_danger') for n, kind, *_ in table(name)]


def real_messages() -> list[tuple[str, str]]:
    "The messages of others that are learnt from, each (kind, text)."
    apt = dict(asked_for_help())
    return [(apt.get(text, 'none'), text) for text in dict.fromkeys([*messages(0), *liveqa().values()])]


def asked(part: int, every: int) -> list[str]:
    "Questions of BioASQ, PubMedQA and MedQuAD; tests/test_safety.py reads part 0 of 4."
    from cpqa.evaluation.datasets import load
    found = [json.loads(line)['text'] for line in (DATA / 'bioasq_beir' / 'queries.jsonl').read_text(encoding='utf-8').splitlines()]
    found += [r['QUESTION'] for r in json.loads((DATA / 'pubmedqa' / 'ori_pqal.json').read_text(encoding='utf-8')).values()]
    found += list(dict.fromkeys(q.question if hasattr(q, 'question') else q.text for q in load('medquad', DATA)))
    return found[part::every]


def mistyped(word: str, r: random.Random) -> str:
    k, way = r.randrange(1, len(word) - 1), r.random()
    if way < 0.35: return word[:k] + word[k + 1:]
    if way < 0.65: return word[:k] + word[k + 1] + word[k] + word[k + 2:]
    return word[:k] + word[k]*2 + word[k + 1:] if way < 0.8 else word[:k] + r.choice('aeioustr') + word[k + 1:]


def varied(text: str, r: random.Random) -> str:
    "The text with other drugs and relatives, and some words mistyped."
    words = re.findall(r'\w+|\W+', text)
    for i, word in enumerate(words):
        low = word.lower()
        if low in DRUGS and r.random() < 0.9: words[i] = r.choice(DRUGS)
        elif low in ('chemo', 'immunotherapy', 'taxol', 'chemotherapy') and r.random() < 0.3:
            words[i] = r.choice([*DRUGS, *['chemo']*30, *['immunotherapy', 'treatment']*10])
        elif low in KIN and r.random() < 0.6: words[i] = r.choice(KIN)
        elif len(low) > 4 and low.isalpha() and r.random() < 0.12: words[i] = mistyped(low, r)
    return ''.join(words)


def made(r: random.Random) -> list[tuple[str, str]]:
    "Phrases from the templates, their slots filled."
    slots = {name: words.split('|') for name, words in table('danger_slots')}
    return [(kind, ' '.join(re.sub(r'\{(\w+)\}', lambda m: r.choice(slots[m[1]]), template).split()))
            for kind, weight, template in table('danger_templates') for _ in range(int(weight)*TEMPLATES)]


def matrix(rows: list[tuple[np.ndarray, np.ndarray]]) -> csr_matrix:
    ends = np.cumsum([0, *(len(found) for found, _ in rows)])
    return csr_matrix((np.concatenate([w for _, w in rows]), np.concatenate([found for found, _ in rows]), ends),
                      shape=(len(rows), 2**safety._BITS))


def fitted(labelled: list[tuple[str, str]], real: set[str]) -> DangerModel:
    """Logistic regression; of a message in danger that is read in parts, the part that a first model finds most telling stands for it,
    and of a harmless one each part is harmless. The real messages weigh double."""
    read = [(KINDS.index(kind), [word_marks(piece.words) for piece in readings(text)], 1.0 + (text in real)) for kind, text in labelled]
    first = None
    for rounds in (15, 50):
        rows, kinds, weights = [], [], []
        for kind, parts, weight in read:
            if kind and len(parts) > 1:
                if first is None: continue
                parts = [parts[int(first.predict_proba(matrix(parts))[:, kind].argmax())]]
            rows += parts
            kinds += [kind]*len(parts)
            weights += [weight]*len(parts)
        first = LogisticRegression(C=STRENGTH, max_iter=rounds, tol=1e-3).fit(matrix(rows), kinds, weights)
    return DangerModel(KINDS, first.coef_.T.astype(np.float32), first.intercept_.astype(np.float32), np.array([[1, 0], [1, 0]], np.float32),
                       np.array([0.5, 0.5], np.float32))


def whole(model: DangerModel) -> dict:
    "The arrays of the file: weights as whole numbers."
    scale = np.float32(np.quantile(np.abs(model.weights), 0.9999)/127)
    return {'kinds': np.array(KINDS), 'weights': np.clip(np.rint(model.weights/scale), -127, 127).astype(np.int8), 'scale': scale,
            'begin': model.begin, 'curve': model.curve, 'bar': model.bar}


def scores(model: DangerModel, texts: list[str]) -> np.ndarray:
    "The two outputs of each text before they are made probabilities, as log odds."
    return np.array([safety.danger_outputs(model, text)[0] for text in texts])


def wilson(found: int, n: int) -> list[float]:
    p, z = found/n, 1.96
    mid, wide = (p + z*z/2/n)/(1 + z*z/n), z*np.sqrt(p*(1 - p)/n + z*z/4/n/n)/(1 + z*z/n)
    return [round(float(max(mid - wide, 0)), 4), round(float(min(mid + wide, 1)), 4)]


def row(alarms: list[bool]) -> dict: return {'found': int(sum(alarms)), 'n': len(alarms), 'interval': wilson(int(sum(alarms)), len(alarms))}


def fit():
    began, r = time.time(), random.Random(0)
    own = [(kind, text) for kind, text in table('danger')]
    real = [('none', text) for text in [*messages(0), *liveqa().values()]]
    general = [('none', text) for text in asked(1, 12)]
    templates, ours = made(r), set(own)
    def learnt(rows: list[tuple[str, str]]) -> DangerModel:
        mine = [row for row in rows if row in ours]
        copies = [(kind, varied(text, r)) for _ in range(COPIES) for kind, text in mine]
        return fitted([*rows, *copies, *templates, *general], {text for _, text in real})
    out, both = {}, own + real
    for i in range(FOLDS):
        model = learnt([row for row in both if fold(row[1]) != i])
        rest = [row for row in both if fold(row[1]) == i]
        out.update(zip(rest, scores(model, [text for _, text in rest])))
        print('fold', i, round(time.time() - began), 's', file=sys.stderr, flush=True)
    kinds, s = np.array([kind for kind, _ in both]), np.array([out[row] for row in both])
    curve, bar = [], []
    is_real = np.arange(len(both)) >= len(own)
    for j, group in enumerate((safety.HARM, safety.FIRST_HELP)):
        known = LogisticRegression(C=1e3).fit(s[:, j:j + 1], np.isin(kinds, group))
        curve.append([known.coef_[0, 0], known.intercept_[0]])
        p = 1/(1 + np.exp(-curve[j][0]*s[:, j] - curve[j][1]))
        bar.append(float(np.sort(p[is_real])[-(1 + ALLOWED[j])]) + 1e-4)   # so many real messages alarm when left out
    model = learnt(both)._replace(curve=np.array(curve, np.float32), bar=np.array(bar, np.float32))
    np.savez_compressed(ROOT / 'cpqa' / 'data' / 'danger.npz', **whole(model))
    p = 1/(1 + np.exp(-np.array(curve)[:, 0]*s - np.array(curve)[:, 1]))
    alarm = (p >= np.array(bar)).any(1)
    for kind in KINDS: print(kind, row(list(alarm[(kinds == kind) & ~is_real])))
    print('none, real messages', row(list(alarm[is_real])))


# danger.npz was fitted so, before the phrases of November 25 came to danger.tsv
ALLOWED = (8, 7)   # real messages of 586 that may alarm when left out, for either output; some of them do speak of danger


def report(left: dict, seconds: int | None, n: int, bars: list[float]):
    "Writes what the network in the package is worth."
    safety.shipped_danger.cache_clear()
    danger.cache_clear()
    kept = messages(1)
    alarms = [text for text in kept if danger(text)]
    for text in alarms: print(danger(text), [round(p, 2) for p, _ in network_chances(text)], ' '.join(text.split())[:400], file=sys.stderr)
    apt = dict(asked_for_help())
    harmless = {'MeQSum, the half that was kept': row([bool(danger(t)) for t in kept if t not in apt]),
                'the same, of those that call for help': row([bool(danger(t)) for t in kept if t in apt]),
                'questions of test sets': row([bool(danger(t)) for t in asked(0, 4)])}
    old = json.loads((RESULTS / 'danger.json').read_text()) if (RESULTS / 'danger.json').exists() else {}
    began = time.process_time()
    for text in kept: network_chances(text)
    seconds = old.get('seconds') if seconds is None else seconds
    save('danger', {'n': n, 'seconds': seconds, 'ms': round((time.process_time() - began)/len(kept)*1000, 2),
                    'bytes': sum(f.stat().st_size for f in (ROOT / 'cpqa' / 'data' / 'models' / 'danger').iterdir()), 'bars': bars,
                    'left out in turn': left, 'harmless': harmless, 'somebody else': old.get('somebody else', {})},
         ('cpqa', 'openvino', 'torch', 'transformers'))


def found_in(path: str) -> dict:
    "What is found of the phrases in a file: alarms, words that stand alone, and alarms by marks."
    rows = [json.loads(line) for line in open(path, encoding='utf-8')]
    text = next(key for key in ('text', 'question', 'message') if key in rows[0])
    of = lambda kind: [row_[text] for row_ in rows if row_['kind'] == kind]
    kinds = list(dict.fromkeys(row_['kind'] for row_ in rows))
    marks = lambda question: any(p >= bar for (p, _), bar in zip(marks_chances(question), danger_model().bar))
    return ({kind: row([bool(danger(each)) for each in of(kind)]) for kind in kinds} |
            {f'{kind}, words alone': row([bool(safety.words_alone(each)) for each in of(kind)]) for kind in kinds} |
            {f'{kind}, by marks': row([marks(each) for each in of(kind)]) for kind in kinds})


def test(paths: list[str]):
    result = json.loads((RESULTS / 'danger.json').read_text())
    result['somebody else'] = {f'set {n}': found_in(path) for n, path in enumerate(paths, 1)}
    (RESULTS / 'danger.json').write_text(json.dumps(result, indent=1, ensure_ascii=False) + '\n')
    print(json.dumps(result['somebody else'], indent=1))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('what', choices=('fit', 'test'))
    parser.add_argument('files', nargs='*')
    given = parser.parse_args()
    fit() if given.what == 'fit' else test(given.files)
