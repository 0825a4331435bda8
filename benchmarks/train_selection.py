"""Makes the network that says whether a sentence answers a question: what it learns from, and the finished form.

    python benchmarks/train_selection.py pairs DIR demo= rct=LIBRARY       what is learnt from (half an hour; NAME= alone: the demo notes)
    python benchmarks/teach_selection.py DIR --teacher FOLDER --out TAUGHT          on a GPU
    python benchmarks/train_selection.py ship DIR TAUGHT [--out FOLDER]    the network with its card, and the column left_out

Pairs of a question and a sentence with the title of its document are of three kinds. Written ones: questions that sessions of a language
model wrote, as patients ask, for sentences of the demo notes (answer_questions.tsv among the labels); sentences near to a question that are
not its own count little; and what graders said of those that the network before took for answers, with questions that were written to share
a sentence's subject and words and not to be answered by it (answer_grades.tsv). Graded ones: sentences that patients' questions found in
each library, each graded by somebody blind (quote_grades.tsv). And others that nobody judged, sentences of notes and of papers near to all
these questions: what the large network says of them is passed on.
The log odds of a network that did not learn from a question go into the column left_out of quote_grades.tsv, which quote_weights.py weighs
beside the other signs.
Each pair is learnt three times: with the question as papers would put it, as it was asked, and with a word mistyped.
"""
import argparse
import csv
import json
import random
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from common import ROOT, save
from danger import mistyped
from heads import Head, all_layers, own_layers
from quote_weights import grades, learnt_from, named, table
from tokenizers import Tokenizer

from cpqa.answering import quoting_reader as room
from cpqa.answering.answer_selection import prepare_answer, sentence_and_title
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.library import Library
from cpqa.passages.sentences import sentences
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, shipped
from cpqa.retrieval.patient_words import in_literature
from cpqa.training.recipe import made_with

LABELS = ROOT / 'benchmarks' / 'labels'
FROZEN, TOKENS = 2, 160
WORTH = {0: .02, 1: .8, 2: 1.0}          # what a grade counts, as in teach_selection.py
NEAR, FAR, SAME = 3, 3, .25              # wrong sentences of the nearest 12 and of the next 70; what the next best of the same note counts
OF_PAPERS = 15_000                       # sentences of papers, drawn
LIMITS = ('It says how well a sentence answers, not whether the sentence is true.',
          'It learnt from English: from our own notes, and from trials.')


def slipped(question: str, rng: random.Random) -> str:
    "The question with a word mistyped, as a speller may leave it."
    long = [w for w in re.findall('[a-z]+', question) if len(w) > 4]
    return re.sub(rf'\b{word}\b', mistyped(word, rng), question, count=1) if long and (word := rng.choice(long)) else question


def unit(m: np.ndarray) -> np.ndarray: return m / np.linalg.norm(m, axis=1, keepdims=True)


class Near:
    "Sentences with their documents, and how near questions are to them: to the sentence, and to it behind its title."
    def __init__(self, documents, encoder, most: int = 0, letters: tuple[int, int] = (0, 10_000)):
        said = [(d, ' '.join(d.text[a:b].split()), (a, b)) for d in documents for a, b in sentences(d) if letters[0] <= b - a < letters[1]]
        self.said = random.Random(0).sample(said, most) if most and most < len(said) else said
        self.titles = [' '.join(d.title.split()) for d, _, _ in self.said]
        texts = [s for _, s, _ in self.said]
        self.vectors = unit(encoder.encode(texts)) + unit(encoder.encode([f'{t}. {s}' for t, s in zip(self.titles, texts)]))

    def order(self, vector: np.ndarray, most: int) -> list[int]: return [int(i) for i in np.argsort(-(self.vectors @ vector))[:most]]


def written(notes: Near, encoder) -> list[dict]:
    "The pairs of questions that were written for sentences of the notes."
    rng, out, nth, place = random.Random(0), [], defaultdict(int), {}
    for at, (d, _, _) in enumerate(notes.said):
        nth[d.id] += 1
        place[d.id, nth[d.id]] = at
    with open(LABELS / 'answer_questions.tsv', encoding='utf-8') as f: rows = list(csv.DictReader(f, delimiter='\t'))
    asked = [(r['question'], place[r['doc'], int(r['sentence'])]) for r in rows if (r['doc'], int(r['sentence'])) in place]
    vectors = unit(encoder.encode([in_literature(q) for q, _ in asked], 'query'))
    for (question, own), vector in zip(asked, vectors):
        row = lambda i, worth, weight: {'kind': 'written', 'question': question, 'text': notes.said[i][1], 'title': notes.titles[i],
                                        'worth': worth, 'weight': weight}
        mine, order = notes.said[own][0].id, notes.order(vector, 82)
        same, other = ([i for i in order if (notes.said[i][0].id == mine) == is_mine] for is_mine in (True, False))
        out += [row(own, 1.0, 1.0), *(row(i, SAME, .5) for i in [i for i in same if i != own][:1])]
        out += [row(i, .05, 1.0) for i in rng.sample(other[:12], NEAR) + rng.sample(other[12:], FAR)]
    return out


def text_of(d, r: dict) -> str: return ' '.join(d.text[slice(*room.standing(d, (int(r['start']), int(r['end']))))].split())


def judged(documents: dict[str, dict]) -> list[dict]:
    "The sentences that were judged for written questions, of documents that are there."
    there = ((documents.get(r['library'], {}).get(r['doc']), r) for r in table('answer_grades.tsv'))
    return [{'kind': 'written', 'question': r['question'], 'text': text_of(d, r), 'title': ' '.join(d.title.split()),
             'worth': WORTH[int(r['grade'])], 'weight': 1.0} for d, r in there if d]


def graded(documents: dict[str, dict]) -> list[dict]:
    "The graded sentences of documents that are there."
    asked, out = defaultdict(list), []
    for id, question in learnt_from(): asked[id].append(question)
    for n, r in enumerate(grades()):
        d = documents.get(r['library'], {}).get(r['doc'])
        if d is None or r['id'] not in asked: continue
        out.append({'kind': 'graded', 'question': ' '.join(asked[r['id']]), 'text': text_of(d, r), 'title': ' '.join(d.title.split()),
                    'grade': int(r['grade']), 'library': r['library'], 'id': r['id'], 'row': n})
    return out


def pairs(out: Path, libraries: dict[str, str | None]):
    encoder, rng = EmbeddedEncoder(), random.Random(0)
    documents = {name: {d.id: d for d in (Library(folder) if folder else (n.document() for n in demo_notes()))}
                 for name, folder in libraries.items()}
    notes = Near(documents['demo'].values(), encoder)
    papers = Near([d for name, of in documents.items() if name != 'demo' for d in of.values()], encoder, OF_PAPERS, (40, 420))
    rows = graded(documents) + written(notes, encoder)
    of = {q: id for id, q in learnt_from()}
    asked = list(dict.fromkeys([q for _, q in learnt_from()] + [r['question'] for r in rows if r['kind'] == 'written']))
    rows += judged(documents)
    for question, vector in zip(asked, unit(encoder.encode([in_literature(q) for q in asked], 'query'))):
        for near, first, some, more in ((notes, 8, 8, 4), (papers, 15, 3, 2)):
            order = near.order(vector, 60)
            picked = (order[:first] if some == first else rng.sample(order[:first], some)) + rng.sample(order[first:], more)
            rows += [{'kind': 'open', 'question': question, 'text': near.said[i][1], 'title': near.titles[i]} for i in picked]
    out.mkdir(parents=True, exist_ok=True)
    with open(out / 'pairs.jsonl', 'w', encoding='utf-8') as f:
        for r in rows:
            said = {'asked': in_literature(r['question']), 'also': [r['question'], slipped(r['question'], rng)],
                    'said': sentence_and_title(r['text'], r['title'])}
            f.write(json.dumps(said | {'id': of.get(r['question'], '')} | r) + '\n')
    torch.save({name: w.half() for name, w in all_layers('stance').items()}, out / 'trunk.pt')
    shutil.copy(shipped('stance') / 'tokenizer.json', out)
    (out / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'BertTokenizerFast', 'model_max_length': 512}))
    print({kind: sum(r['kind'] == kind for r in rows) for kind in ('written', 'graded', 'open')})


def ship(folder: Path, taught: Path, out: Path):
    rows = [json.loads(line) for line in (folder / 'pairs.jsonl').read_text().splitlines()]
    told = json.loads((taught / 'odds.json').read_text())
    state, head = torch.load(taught / 'answer.pt', map_location='cpu', weights_only=True), Head(own_layers('stance', FROZEN), 1)
    place = lambda name: name.replace('bert.encoder.layer.', '')
    layers = {f'{int(n) - FROZEN}.{rest}': w.float() for name, w in state.items() if name.startswith('bert')
              for n, _, rest in [place(name).partition('.')]}
    head.layers.load_state_dict(layers)
    head.head.load_state_dict({name.removeprefix('head.'): w.float() for name, w in state.items() if name.startswith('head.')})
    left_out = {rows[int(i)]['row']: round(float(np.mean(odds)), 3) for i, odds in told['left_out'].items()}   # of both wordings
    every = table('quote_grades.tsv')
    if not left_out: left_out = {n: r['left_out'] for n, r in enumerate(every)}   # no student left questions out: those of before stay
    with open(LABELS / 'quote_grades.tsv', 'w', encoding='utf-8', newline='') as f:
        table_out = csv.DictWriter(f, [*[c for c in every[0] if c != 'left_out'], 'left_out'], delimiter='\t', lineterminator='\n')
        table_out.writeheader()
        for n, r in enumerate(every): table_out.writerow(r | {'left_out': left_out.get(n, '')})
    count, of_library = lambda kind: sum(r['kind'] == kind for r in rows), lambda name: sum(r.get('library') == name for r in rows)
    used = (DataUsed('questions written for sentences of the demo notes', 'Apache-2.0', sum(r.get('worth') == 1 for r in rows),
                     'by sessions of a language model'),
            DataUsed('sentences found for patients\' questions', 'Apache-2.0', count('graded'), 'graded by sessions of a language model'),
            DataUsed('what a network of 110 million weights says, taught by these two', 'Apache-2.0', len(rows),
                     f'of these pairs and of {count("open"):,} that nobody judged; its base is all-mpnet-base-v2'))
    about = About('the stance network of cpqa', 'Apache-2.0', 'Apache-2.0', used, (),
                  tuple(Measured(f'AUROC in {name}, of use or not, questions left out in turn', value, of_library(name))
                        for name, value in told['figures'].get('student left out, the mean of both', {}).items()),
                  made_with(), ' '.join(['python', 'benchmarks/train_selection.py', *sys.argv[1:]]), LIMITS)
    tokenizer = Tokenizer.from_file(str(shipped('stance') / 'tokenizer.json'))
    prepare_answer(head, tokenizer, out, max_tokens=TOKENS, about=about)
    save('answer_selection', told['figures'] | {'pairs': {kind: count(kind) for kind in ('written', 'graded', 'open')},
                                                'taught on': told['device'], 'torch there': told['torch'],
                                                'bytes': sum(f.stat().st_size for f in out.iterdir())}, ('cpqa', 'openvino', 'torch'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=('pairs', 'ship'))
    parser.add_argument('folder', type=Path)
    parser.add_argument('rest', nargs='+', help='libraries; or the folder of teach_selection.py')
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'answer')
    a = parser.parse_args()
    if a.what == 'pairs': pairs(a.folder, named(a.rest))
    else: ship(a.folder, Path(a.rest[0]), a.out)


if __name__ == '__main__': main()
