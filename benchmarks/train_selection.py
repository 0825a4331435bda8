"""Makes the network that says whether a sentence answers a question: what it learns from, and the finished form.

    python benchmarks/train_selection.py pairs DIR demo= rct=LIBRARY bioasq=LIBRARY both=LIBRARY [--labelled]
                                                                           what is learnt from (NAME= alone: the demo notes)
    python benchmarks/teach_large.py ...                                   a large network learns; on a GPU
    python benchmarks/teach_selection.py DIR --said SAID --out TAUGHT      a small one learns from it, on the GPU too; without --said from
                                                                           what is known, and what it said before of all else
    python benchmarks/train_selection.py ship DIR TAUGHT [--share .7] [--out FOLDER]    the network with its card, and the column left_out

Pairs of a question and a sentence with the title of its document are of five kinds. Written ones: questions that sessions of a language
model wrote, as patients ask, for sentences of the demo notes (answer_questions.tsv among the labels; a fifth tell of a person first);
sentences near to a question that are not its own count little; and sentences that were judged for a question: those that the network
before took for answers, those of notes that share a question's subject and words and do not answer it, and those that searchers found for
questions of the tests of earlier days (answer_grades.tsv). Graded ones: sentences that patients' questions found in each library, each
graded by somebody blind (quote_grades.tsv). Those of papers: questions written for a paper, beside sentences of it that answer, are of some
use, or do not answer, as the writer graded them (paper_questions.tsv). Known ones: what was judged for the known questions
(known_answers.py), of which one group in five is kept from the network, so that weights can be fitted to them. And others that nobody
judged, sentences of notes and of papers near to all these questions: what the large network says of them is passed on.
Which are near is told by the vectors of the encoder in the package.
One patients' question in five is kept from both networks. What ships may be the mean of the weights that it began as and those taught
(`--share`, chosen among five with these figures in view; they are of the weights before they are put into eight bits). Its log odds for
these sentences, the mean of both wordings of the question, go into the column left_out of quote_grades.tsv, which quote_weights.py weighs
beside the other signs; of the others it is empty.
"""
import argparse
import csv
import json
import random
import re
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from common import ROOT, save
from danger import mistyped
from heads import Head, above, all_layers, own_layers
from known_answers import judged as known_judged
from known_answers import kept_aside
from quote_weights import grades, learnt_from, named, table
from teach_selection import Student, as_student, both_wordings, tested, told
from tokenizers import Tokenizer

from cpqa.answering import quoting_reader as room
from cpqa.answering.answer_selection import prepare_answer, sentence_and_title
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.library import Library
from cpqa.passages.sentences import sentences
from cpqa.pipeline import asked_in
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, shipped
from cpqa.retrieval.patient_words import in_literature
from cpqa.training.recipe import made_with

LABELS = ROOT / 'benchmarks' / 'labels'
FROZEN, TOKENS = 2, 160
WORTH = {0: .02, 1: .8, 2: 1.0}          # what a grade counts, as in teach_selection.py
OF_PAPERS = 15_000                       # sentences of papers, drawn
WRITTEN = .6                             # the share of the written questions that is drawn
NEAR, FAR, SAME = 2, 1, .25              # wrong sentences of the nearest 12 and of the next 70; what the next best of the same note counts
LATEST, EARLIER = 6, .4                  # wrong sentences that were judged last for a known question, and the share of those before
OPEN = {'notes': (4, 2), 'papers': (4, 2)}   # sentences that nobody judged: of the nearest twenty, and of the forty after them
LIMITS = ('It says how well a sentence answers, not whether the sentence is true.',
          'It learnt from English: from our own notes, and from trials.')


def slipped(question: str, rng: random.Random) -> str:
    "The question with a word mistyped, as a speller may leave it."
    long = [w for w in re.findall('[a-z]+', question) if len(w) > 4]
    return re.sub(rf'\b{word}\b', mistyped(word, rng), question, count=1) if long and (word := rng.choice(long)) else question


def texts(documents, place: str, most: int = 0, letters: tuple[int, int] = (0, 10_000)) -> list[dict]:
    "The sentences of documents, or so many that are drawn, with their titles."
    said = [(d, ' '.join(d.text[a:b].split()), k) for d in documents for k, (a, b) in enumerate(sentences(d), 1)
            if letters[0] <= b - a < letters[1]]
    if most and most < len(said): said = random.Random(0).sample(said, most)
    return [{'place': place, 'doc': d.id, 'sentence': k, 'text': text, 'title': ' '.join(d.title.split())} for d, text, k in said]


def written(notes: list[dict]) -> list[dict]:
    "The questions that were written for sentences of the notes, each with its own."
    own = {(t['doc'], t['sentence']): t for t in notes}
    with open(LABELS / 'answer_questions.tsv', encoding='utf-8') as f: rows = list(csv.DictReader(f, delimiter='\t'))
    at = ((r['question'], own.get((r['doc'], int(r['sentence'])))) for r in rows)
    return [{'kind': 'written', 'question': question, 'worth': 1.0, 'weight': 1.0, **{k: t[k] for k in ('doc', 'text', 'title')}}
            for question, t in at if t]


def beside(rows: list[dict], asked: list[dict], texts: list[dict]) -> list[dict]:
    "Sentences near to each question: for written ones some that are not their own, and for all some that nobody judged."
    rng, out, encoder = random.Random(0), [], EmbeddedEncoder()
    vectors = lambda some, side: directions(encoder.encode(some, side), encoder.describe().get('similarity'))
    questions, own = vectors([q['asked'] for q in asked], 'query'), {r['question']: r for r in rows if r['kind'] == 'written'}
    for place, (some, more) in OPEN.items():
        here = [t for t in texts if t['place'] == place]
        near = vectors([t['text'] for t in here], 'document') + vectors([f"{t['title']}. {t['text']}" for t in here], 'document')
        for q, vector in zip(asked, questions):
            order = np.argsort(-(near @ vector), kind='stable')[:82].tolist()
            row = lambda i, kind, worth=0.0, weight=0.0: q | {'said': here[i]['said'], 'kind': kind, 'worth': worth, 'weight': weight}
            if place == 'notes' and (r := own.get(q['question'])):
                same, other = ([i for i in order if (here[i]['doc'] == r['doc']) == mine] for mine in (True, False))
                out += [row(i, 'written', SAME, .5) for i in [i for i in same if here[i]['text'] != r['text']][:1]]
                out += [row(i, 'written', .05, 1.0) for i in rng.sample(other[:12], NEAR) + rng.sample(other[12:], FAR)]
            out += [row(i, 'open') for i in rng.sample(order[:20], some) + rng.sample(order[20:60], more)]
    return out


def known(notes: list[dict]) -> list[dict]:
    "What was judged for the known questions."
    own, rng, out = {f"{t['doc']}:{t['sentence'] - 1}": t for t in notes}, random.Random(0), []
    for question, (yes, no) in known_judged().items():
        wrong = [p for k, p in enumerate(no) if k < LATEST or rng.random() < EARLIER]
        out += [{'kind': 'known', 'question': question, 'text': own[p]['text'], 'title': own[p]['title'], 'worth': worth, 'weight': 2.0}
                for places, worth in ((yes, WORTH[2]), (wrong, WORTH[0])) for p in places if p in own]
    return out


def text_of(d, r: dict) -> str: return ' '.join(d.text[slice(*room.standing(d, (int(r['start']), int(r['end']))))].split())


def judged(documents: dict[str, dict]) -> list[dict]:
    "The sentences that were judged for written questions, of documents that are there."
    there = ((documents.get(r['library'], {}).get(r['doc']), r) for r in table('answer_grades.tsv'))
    return [{'kind': 'judged', 'question': r['question'], 'text': text_of(d, r), 'title': ' '.join(d.title.split()),
             'worth': WORTH[int(r['grade'])], 'weight': 1.0} for d, r in there if d]


def of_papers(documents: dict[str, dict]) -> list[dict]:
    "The questions that were written for papers, beside the sentences that answer them, those of some use, and others of the same paper."
    out, worth = [], {'answers': WORTH[2], 'useful': WORTH[1], 'beside': WORTH[0]}
    for r in table('paper_questions.tsv'):
        if (d := documents.get(r['library'], {}).get(r['doc'])) is None: continue
        at = [(text_of(d, dict(zip(('start', 'end'), span.split('-')))), w) for name, w in worth.items() for span in r[name].split()]
        asked = asked_in(r['question'])   # as it is read in an answer
        out += [{'kind': 'papers', 'question': asked[0] if len(asked) == 1 else r['question'], 'text': text,
                 'title': ' '.join(d.title.split()), 'worth': w, 'weight': 1.0,
                 'place': 'own', 'doc': d.id, 'library': r['library']} for text, w in at]
    return out


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


def pairs(out: Path, libraries: dict[str, str | None], labelled: bool):
    rng = random.Random(0)
    documents = {name: {d.id: d for d in (Library(folder) if folder else (n.document() for n in demo_notes()))}
                 for name, folder in libraries.items()}
    notes = texts(documents['demo'].values(), 'notes')
    of_papers_alone = {id: d for name, of in documents.items() if name != 'demo' for id, d in of.items()}   # a library may hold another
    papers = [] if labelled else texts(of_papers_alone.values(), 'papers', OF_PAPERS, (40, 420))
    rows = graded(documents) + [r for r in written(notes) if rng.random() < WRITTEN] + judged(documents) + of_papers(documents)
    rows += known(notes)
    of = {q: id for id, q in learnt_from()} | {r['question']: r['id'] for r in rows if r['kind'] == 'graded'}   # of two questions, too
    asked = {q: {'question': q, 'asked': in_literature(q), 'also': [q, slipped(q, rng)], 'id': of.get(q, '')}
             for q in dict.fromkeys([*of, *(r['question'] for r in rows)])}
    out.mkdir(parents=True, exist_ok=True)
    (out / 'tokens.npz').unlink(missing_ok=True)   # of other pairs
    with_said = lambda r: r | {'said': sentence_and_title(r['text'], r['title'])}
    aside = kept_aside()
    rows = [with_said(asked[r['question']] | r | {'aside': r['question'] in aside}) for r in rows]
    if not labelled:
        rows += beside(rows, [q for q in asked.values() if q['question'] not in known_judged()], [with_said(t) for t in notes + papers])
    with open(out / 'pairs.jsonl', 'w', encoding='utf-8') as f: f.writelines(json.dumps(r) + '\n' for r in rows)
    below = {f'bert.{name}': w for name, w in all_layers('stance').items() if not name.startswith('encoder.layer.')
             or int(name.split('.')[2]) < FROZEN}
    torch.save({name: w.half() for name, w in (below | above('answer', FROZEN)).items()}, out / 'begun.pt')
    shutil.copy(shipped('stance') / 'tokenizer.json', out)
    (out / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'BertTokenizerFast', 'model_max_length': 512}))
    print(Counter(r['kind'] for r in rows))


def ship(folder: Path, taught: Path, out: Path, share: float):
    rows = [json.loads(line) for line in open(folder / 'pairs.jsonl', encoding='utf-8')]
    made = json.loads((taught / 'figures.json').read_text())
    begun, pairs, tokenizer = as_student(folder, rows)
    state = {name: share * w.float() + (1 - share) * begun[name]
             for name, w in torch.load(taught / 'answer.pt', map_location='cpu', weights_only=True).items()}
    (tests, fresh), network = tested(rows), Student(begun | state, tokenizer)
    odds = both_wordings(network, pairs, np.unique(np.concatenate(list(tests.values()))))
    made['figures']['ships'] = told(odds, rows, tests)
    head = Head(own_layers('stance', FROZEN), 1)
    place = lambda name: name.replace('bert.encoder.layer.', '')
    layers = {f'{int(n) - FROZEN}.{rest}': w.float() for name, w in state.items() if name.startswith('bert')
              for n, _, rest in [place(name).partition('.')]}
    head.layers.load_state_dict(layers)
    head.head.load_state_dict({name.removeprefix('head.'): w.float() for name, w in state.items() if name.startswith('head.')})
    left_out = {rows[i]['row']: round(float(odds[i]), 3) for i in np.flatnonzero(fresh)}
    every = table('quote_grades.tsv')
    with open(LABELS / 'quote_grades.tsv', 'w', encoding='utf-8', newline='') as f:
        table_out = csv.DictWriter(f, [*[c for c in every[0] if c != 'left_out'], 'left_out'], delimiter='\t', lineterminator='\n')
        table_out.writeheader()
        for n, r in enumerate(every): table_out.writerow(r | {'left_out': left_out.get(n, '')})
    count, large = made['pairs'], 'what a network of 842 million weights says, taught by notes and grades'
    teacher = large if 'the large network' in made['figures'] else f'what the network before says, which learnt {large}'
    n = sum(r['kind'] == 'written' and r['worth'] == 1 for r in rows)
    used = (DataUsed('questions written for sentences of the demo notes', 'Apache-2.0', n, 'by sessions of a language model'),
            DataUsed('questions written for papers', 'Apache-2.0', len({r['question'] for r in rows if r['kind'] == 'papers'}),
                     'by sessions of a language model, which graded the sentences of the paper'),
            DataUsed('sentences found for patients\' questions', 'Apache-2.0', count['graded'], 'graded by sessions of a language model'),
            DataUsed('sentences of the demo notes shown for known questions', 'Apache-2.0', count.get('known', 0),
                     'judged by sessions of a language model'),
            DataUsed(teacher, 'Apache-2.0', sum(count.values()), 'of pairs many of which nobody judged; the base of the large network was '
                     'the first 18 layers of Qwen2.5-Coder-1.5B-Instruct'
                     + f'. {1 - share:.0%} of each weight is of the network before' * (share < 1)))
    figures = [Measured(f'AUROC in {name}, of use or not, of questions left out', value, len(tests[name]))
               for name, value in made['figures']['ships'].items()]
    about = About('the stance network of cpqa', 'Apache-2.0', 'Apache-2.0', used, (), tuple(figures),
                  made_with(), ' '.join(['python', 'benchmarks/train_selection.py', *sys.argv[1:]]), LIMITS)
    prepare_answer(head, Tokenizer.from_file(str(shipped('stance') / 'tokenizer.json')), out, max_tokens=TOKENS, about=about)
    save('answer_selection', made['figures'] | {'share': share, 'pairs': count, 'taught on': made['device'], 'torch there': made['torch'],
                                                'bytes': sum(f.stat().st_size for f in out.iterdir())}, ('cpqa', 'openvino', 'torch'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=('pairs', 'ship'))
    parser.add_argument('folder', type=Path)
    parser.add_argument('rest', nargs='+', help='libraries; or the folder of teach_selection.py')
    parser.add_argument('--labelled', action='store_true', help='no pairs that nobody judged')
    parser.add_argument('--share', type=float, default=1, help='of the taught weights; the rest is of those that it began as')
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'answer')
    a = parser.parse_args()
    if a.what == 'pairs': pairs(a.folder, named(a.rest), a.labelled)
    else: ship(a.folder, Path(a.rest[0]), a.out, a.share)


if __name__ == '__main__': main()
