"""Makes the network that says whether a sentence answers a question: a head on the cross-encoder's first layers.

    python benchmarks/train_selection.py NAME=LIBRARY ... --teacher FOLDER [--out DIR] [--afresh]    (NAME= alone: the demo notes)

What takes long, pairs of written questions and the head that learnt from them, is kept in the cache; --afresh makes it again.

It learns first from benchmarks/labels/answer_questions.tsv, questions that sessions of a language model wrote, as patients ask, for
sentences of the demo notes; sentences near to a question that are not its own count as wrong. Of these pairs, and of others of the same
questions with sentences of papers, it learns at the same time how near --teacher takes question and sentence, and question and title, to
be: all-mpnet-base-v2, a general sentence model of 110 million weights, which knows how people talk.
Then from quote_grades.tsv: sentences that patients' questions found in each library, each graded by somebody blind. A head that did not
learn from a question says what it thinks of its sentences (two folds); those log odds go into the column left_out of quote_grades.tsv,
which quote_weights.py weighs beside the other signs.
"""
import argparse
import csv
import json
import random
import shutil
import sys
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from common import ROOT, save
from heads import Head, Trunk, outputs, own_layers, trained
from quote_weights import Kept, grades, learnt_from, named, table
from tokenizers import Tokenizer

from cpqa.answering.answer_selection import ANSWER_READS_AT, prepare_answer, sentence_and_title
from cpqa.core.storage import cache_dir
from cpqa.evaluation.claims import auroc
from cpqa.literature.demo_notes import demo_notes
from cpqa.passages.cross_encoders import encode_pairs
from cpqa.passages.sentences import sentences
from cpqa.retrieval.encoders import EmbeddedEncoder, FastEncoder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, shipped
from cpqa.retrieval.patient_words import in_literature
from cpqa.training.recipe import made_with

LABELS = ROOT / 'benchmarks' / 'labels'
OWN, FOLDS, TOKENS = 2, 2, 160
FIRST, THEN = 2, 2                       # epochs over written questions, and over grades
LONG, TAUGHT = 600, .5                   # letters of a sentence of papers, at most; what the teacher counts
NEAR, FAR, SAME = 3, 3, .25              # wrong sentences of the nearest 12 and of the next 70; what the next best of the same note counts
WORTH = {0: .02, 1: .8, 2: 1.0}          # what a grade counts
LIMITS = ('It says how well a sentence answers, not whether the sentence is true.',
          'It learnt from English: from our own notes, and from trials.')


def written() -> list[tuple[str, str, str, float, float]]:
    "Question, sentence, title, what it counts and how much, of the written questions; the pairs are kept, since the nearest take minutes."
    kept = cache_dir() / 'selection' / 'pairs.json'
    if kept.exists(): return json.loads(kept.read_text())
    docs = [n.document() for n in demo_notes()]
    said = [(d.id, d.title, d.text[a:b]) for d in docs for a, b in sentences(d)]
    place = {(d.id, i): at for at, (d, i) in enumerate((d, i) for d in docs for i, _ in enumerate(sentences(d), 1))}
    with open(LABELS / 'answer_questions.tsv', encoding='utf-8') as f: rows = list(csv.DictReader(f, delimiter='\t'))
    asked = [(r['question'], place[r['doc'], int(r['sentence'])]) for r in rows if (r['doc'], int(r['sentence'])) in place]
    encoder, r, out = EmbeddedEncoder(), random.Random(0), []
    near = unit(encoder.encode([in_literature(q) for q, _ in asked], 'query')) @ (
        unit(encoder.encode([s for _, _, s in said])) + unit(encoder.encode([f'{t}. {s}' for _, t, s in said]))).T
    for (question, own), cosines in zip(asked, near):
        order = [int(i) for i in np.argsort(-cosines)[:82]]
        out.append((question, said[own][2], said[own][1], 1.0, 1.0))
        out += [(question, said[i][2], said[i][1], SAME, .5) for i in order if said[i][0] == said[own][0] and i != own][:1]
        other = [i for i in order if said[i][0] != said[own][0]]
        out += [(question, said[i][2], said[i][1], .05, 1.0) for i in r.sample(other[:12], NEAR) + r.sample(other[12:], FAR)]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(out))
    return out


def of_papers(questions: list[str], libraries: dict[str, str | None]) -> list[tuple[str, str, str]]:
    "Each question with 5 sentences of papers, three near and two less so, and their titles: what the teacher alone judges."
    pool = {}
    for name, folder in libraries.items():
        for rows in Kept(name, folder).known.values() if folder else ():
            for r in rows:
                if len(r['text']) < LONG: pool.setdefault(r['text'], r['title'])
    texts, encoder, r, out = sorted(pool), EmbeddedEncoder(), random.Random(0), []
    for question, cosines in zip(questions, cosine(encoder, questions) @ unit(encoder.encode(texts)).T):
        order = [int(i) for i in np.argsort(-cosines)[:120]]
        out += [(question, texts[i], pool[texts[i]]) for i in r.sample(order[:15], 3) + r.sample(order[15:], 2)]
    return out


def unit(m: np.ndarray) -> np.ndarray: return m / np.linalg.norm(m, axis=1, keepdims=True)


def cosine(encoder, questions: list[str]) -> np.ndarray: return unit(encoder.encode([in_literature(q) for q in questions], 'query'))


def as_the_teacher(pairs: list[tuple[str, str, str]], folder: str) -> np.ndarray:
    "How near the teacher takes question and sentence, and question and title, to be, shape (n, 2), each of mean 0 and deviation 1."
    teacher = FastEncoder(folder)
    asked, said = sorted({q for q, _, _ in pairs}), sorted({text for pair in pairs for text in pair[1:]})
    queries, texts = cosine(teacher, asked), unit(teacher.encode(said))
    at, place = ({text: i for i, text in enumerate(every)} for every in (asked, said))
    near = np.array([[queries[at[q]] @ texts[place[s]], queries[at[q]] @ texts[place[t]]] for q, s, t in pairs], dtype=np.float32)
    return (near - near.mean(0)) / near.std(0)


def graded(libraries: dict[str, str | None]) -> list[dict]:
    "The graded sentences that the libraries still give, each with its question, sentence and title."
    at, out = {}, []
    for row in grades(): at.setdefault((row['library'], row['id']), {})[row['doc'], row['start'], row['end']] = row
    for name, folder in libraries.items():
        kept = Kept(name, folder)
        for id, question in learnt_from():
            found = at.get((name, id), {})
            for r in kept.rows(question) if found else []:
                row = found.get((r['doc'], str(r['start']), str(r['end'])))
                if row: out.append(row | {'question': question, 'text': r['text'], 'title': r['title']})
    return out


def only_first(head: Head) -> Head:
    "The head with its first output alone."
    last, head = head.head, deepcopy(head)
    head.head = torch.nn.Linear(last.in_features, 1)
    head.head.load_state_dict({'weight': last.weight[:1], 'bias': last.bias[:1]})
    return head


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('libraries', nargs='+')
    parser.add_argument('--teacher', required=True, help='a folder that cpqa prepared')
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'answer')
    parser.add_argument('--afresh', action='store_true')
    args, began = parser.parse_args(), time.time()
    if args.afresh: shutil.rmtree(cache_dir() / 'selection', ignore_errors=True)
    libraries = named(args.libraries)
    some, rows = written(), graded(libraries)
    tokenizer = Tokenizer.from_file(str(shipped('cross-encoder') / 'tokenizer.json'))
    tokens = lambda q, s, t: encode_pairs(tokenizer, in_literature(q), [sentence_and_title(s, t)], TOKENS)[0]
    trunk = Trunk('cross-encoder', ANSWER_READS_AT)
    layers = own_layers('cross-encoder', OWN)
    lossy, first, kept = torch.nn.functional.binary_cross_entropy_with_logits, Head(layers, 3), cache_dir() / 'selection' / 'first.pt'
    if kept.exists(): first.load_state_dict(torch.load(kept, weights_only=True))
    else:
        asked = list(dict.fromkeys([q for q, *_ in some] + [q for name, f in libraries.items() if f for q in Kept(name, f).known]))
        pairs = [*some, *((q, s, t, 0., 0.) for q, s, t in of_papers(asked, libraries))]
        taught = torch.tensor(as_the_teacher([p[:3] for p in pairs], args.teacher))
        numbers = trunk.read([tokens(q, s, t) for q, s, t, _, _ in pairs])
        print(f'{time.process_time():6.0f} s  {len(pairs):,} pairs', file=sys.stderr, flush=True)
        worth, weight = (torch.tensor([r[i] for r in pairs], dtype=torch.float) for i in (3, 4))
        hard = lambda said, part: (lossy(said, worth[part], reduction='none') * weight[part]).sum() / max(1, weight[part].sum())
        loss = lambda said, part: hard(said[:, 0], part) + TAUGHT * ((said[:, 1:] - taught[part]) ** 2).mean()
        first = trained(first, numbers, loss, FIRST, 'written', body=2e-4, end=1e-3)
        torch.save(first.state_dict(), kept)
    first = only_first(first)
    numbers = trunk.read([tokens(r['question'], r['text'], r['title']) for r in rows])
    target = torch.tensor([WORTH[int(r['grade'])] for r in rows])
    use, ids, place = np.array([int(r['grade']) > 0 for r in rows]), sorted({r['id'] for r in rows}), np.array([r['library'] for r in rows])
    fold_of = dict(zip(np.random.RandomState(0).permutation(ids), np.arange(len(ids)) % FOLDS))
    folds, odds = np.array([fold_of[r['id']] for r in rows]), np.zeros(len(rows))
    def then(keep: np.ndarray, told: str) -> Head:
        chosen = np.flatnonzero(keep)
        loss = lambda said, part: lossy(said[:, 0], target[chosen[part]])
        return trained(deepcopy(first), [numbers[i] for i in chosen], loss, THEN, told, body=5e-5, end=2e-4)
    before = outputs(first, numbers)[:, 0]
    for k in range(FOLDS):
        rest = np.flatnonzero(folds == k)
        odds[rest] = outputs(then(folds != k, f'fold {k + 1}'), [numbers[i] for i in rest])[:, 0]
    said = {tuple(r[k] for k in ('library', 'id', 'doc', 'start', 'end')): round(float(o), 3) for r, o in zip(rows, odds)}
    every = table('quote_grades.tsv')
    with open(LABELS / 'quote_grades.tsv', 'w', encoding='utf-8', newline='') as f:
        out = csv.DictWriter(f, [*[c for c in every[0] if c != 'left_out'], 'left_out'], delimiter='\t', lineterminator='\n')
        out.writeheader()
        for r in every: out.writerow(r | {'left_out': said.get(tuple(r[k] for k in ('library', 'id', 'doc', 'start', 'end')), '')})
    worth = lambda said, here: round(auroc(said[use & here], said[~use & here]), 4)
    figures = {name: {'of use': int(use[here].sum()), 'n': int(here.sum()), 'questions': len({r['id'] for r, h in zip(rows, here) if h}),
                      'AUROC': worth(odds, here), 'AUROC after written questions alone': worth(before, here)}
               for name in dict.fromkeys(place) for here in [place == name]}
    used = (DataUsed('questions written for sentences of the demo notes', 'Apache-2.0', sum(r[3] == 1 for r in some),
                     'by sessions of a language model'),
            DataUsed('sentences found for patients\' questions', 'Apache-2.0', len(rows), 'graded by sessions of a language model'),
            DataUsed('cosines of all-mpnet-base-v2', 'Apache-2.0', 2 * len(some), 'for these pairs and as many of papers'))
    about = About('the cross-encoder of cpqa', 'Apache-2.0', 'Apache-2.0', used, (),
                  tuple(Measured(f'AUROC in {name}, of use or not, questions left out in turn', each['AUROC'], each['n'])
                        for name, each in figures.items()), made_with(),
                  ' '.join(['python', 'benchmarks/train_selection.py', *sys.argv[1:]]), LIMITS)
    prepare_answer(then(np.ones(len(rows), bool), 'all'), tokenizer, args.out, max_tokens=TOKENS, about=about)
    save('answer_selection', figures | {'seconds': round(time.time() - began),
                                        'bytes': sum(f.stat().st_size for f in args.out.iterdir())}, ('cpqa', 'openvino', 'torch'))


if __name__ == '__main__': main()
