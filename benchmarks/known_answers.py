"""Which sentences of our notes answer the known questions, and what is a sentence worth to somebody who asks alike?

    python benchmarks/known_answers.py candidates FOLDER [PARTS]   (what is to be judged yet of the six sentences nearest to a question)
    python benchmarks/known_answers.py again FOLDER [PARTS]        (six more for each, by what the answer network says of the next ones)
    python benchmarks/known_answers.py read FOLDER                 (adds what was judged to cpqa/data/known_answers.tsv)
    python benchmarks/known_answers.py written                     (the vectors of the questions that were written for sentences)
    python benchmarks/known_answers.py fit [--write] [--before FOLDER]     (six minutes; FOLDER: an answer network to compare with)

Of each known question (cpqa/data/known_questions.txt) the sentences of the demo notes that lie nearest, two of a note at most, were read by
sessions of a language model that knew nothing of the program: which of them, quoted alone, would a nurse be content with as the answer?
cpqa/data/known_answers.tsv holds for each question the places of the answers (a note's id and the number of a sentence), best first, and of
the others that were shown.

For the sentences of the notes sessions also wrote what somebody might ask to whom just that one is the answer (labels/answer_questions.tsv,
one or more for each); `written` makes their vectors.

`fit` learns the weights of the quoting reader for notes, from the questions that the answer network does not learn from (`kept_aside`), all
that was shown for each: does the sentence answer the question? Of the vote of known questions (`votes`) the question itself is no part.
What the weights are worth on questions that they did not see is told by tenfold cross-validation over questions, with and without the
vote and the questions written for sentences, beside the weights of before, and with the network before where its folder is given. A
sentence may be of use and no answer, so that a probability is moved by `MOVED` log odds before it is told; `--write` puts the weights into
cpqa/data/quotes.json. The weights there are of that afternoon, fitted by the script of commit b3df792 to 1,500 questions and their six
nearest sentences; those fitted anew (known_answers.json, `weights`) refused good answers that the tests hold, and were taken back.
"""
import json
import re
import sys
from datetime import date
from functools import cache
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np
from common import ROOT, save
from msgspec.structs import replace
from patient_questions import table
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.linear_model import LogisticRegression

from cpqa.answering import known_answers as room
from cpqa.answering import quoting_reader as reader
from cpqa.answering.answer_selection import AnswerNetwork, shipped_answer
from cpqa.answering.known_questions import known_questions
from cpqa.answering.question_words import share_held
from cpqa.core.text_analysis import ENGLISH
from cpqa.evaluation.claims import auroc
from cpqa.evaluation.statistics import wilson
from cpqa.libraries import DEMO_VECTORS
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.study_kinds import study_kind
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.passages.sentences import sentences
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.encoders import EmbeddedEncoder, KnownVectors
from cpqa.retrieval.patient_words import both_forms, in_literature
from cpqa.retrieval.vectors import embedded_text

DATA, QUOTES, WRITTEN = (ROOT / 'cpqa' / 'data' / name for name in ('known_answers.tsv', 'quotes.json', 'written_questions.npz'))
SHOWN, OF_ONE, NEAREST, FOLDS = 6, 2, 50, 10
ALIKE, ASIDE = .8, 5     # the cosine from which on two are of one group; one group in so many
MOVED, LEAST = .4, .5
SIGNS = ('near', 'title', 'held', 'page', 'opens', 'answers', 'voted', 'asked')


def judged() -> dict[str, tuple[list[str], list[str]]]:
    "For each question the places of answers, and of what was shown beside them."
    if not DATA.exists(): return {}
    return {q: (yes.split(), no.split()) for q, yes, no in (line.split('\t') for line in DATA.read_text(encoding='utf-8').splitlines())}


def kept_aside() -> set[str]:
    "The known questions that the answer network does not learn from: one in five groups of questions that are alike."
    known = known_questions()
    alike = connected_components(csr_matrix(known.vectors @ known.vectors.T >= ALIKE), directed=False)[1]
    first = dict(zip(alike[::-1].tolist(), known.questions[::-1]))   # a group is told by the first of its questions
    return {q for q, group in zip(known.questions, alike.tolist()) if crc32(first[group].encode()) % ASIDE == 0}


def candidates(folder: Path, parts: int):
    "Writes files for readers: of the sentences nearest to each question those not shown yet, the questions of one sort side by side."
    known, documents = known_questions(), [n.document() for n in demo_notes()]
    told = {f'{d.id}:{k}': (d.title, d.text[a:b]) for d in documents for k, (a, b) in enumerate(sentences(d))}
    places, vectors, done = list(told), EmbeddedEncoder().encode([embedded_text(*told[p]) for p in told]), judged()
    near, number = known.vectors @ vectors.T, {q: i for i, q in enumerate(known.questions)}
    shown = {}
    for row in sorted(range(len(near)), key=lambda row: (near[row].argmax(), row)):   # by the nearest sentence
        question = known.questions[row]
        before = {p for sort in done.get(question, ()) for p in sort}
        new = [p for p in apart([places[j] for j in np.argsort(-near[row], kind='stable')[:NEAREST]]) if p not in before]
        if new: shown[question] = new
    write(folder, parts, shown, told, number)


def apart(order: list[str]) -> list[str]:
    "The first places of an order, no more than some of one note."
    taken: list[str] = []
    for place in order:
        if sum(place.partition(':')[0] == p.partition(':')[0] for p in taken) < OF_ONE: taken.append(place)
        if len(taken) == SHOWN: break
    return taken


def write(folder: Path, parts: int, shown: dict[str, list[str]], told: dict[str, tuple[str, str]], number: dict[str, int]):
    questions = list(shown)
    for part in range(parts):
        lines = []
        for q in questions[part * len(questions) // parts:(part + 1) * len(questions) // parts]:
            lines.append(f'#{number[q]} {q}')
            lines += [f'  {"abcdef"[k]} ({p}) [{told[p][0][:60]}] {told[p][1]}' for k, p in enumerate(shown[q])]
        (folder / f'part{part}.txt').write_text('\n'.join(lines) + '\n', encoding='utf-8')


def again(folder: Path, parts: int):
    "Writes files for readers as well, of sentences not shown yet: the likeliest of the nearest, as the answer network reads them."
    known, documents, network, done = known_questions(), [n.document() for n in demo_notes()], shipped_answer(), judged()
    told = {f'{d.id}:{k}': (d.title, d.text[a:b]) for d in documents for k, (a, b) in enumerate(sentences(d))}
    places, vectors = list(told), EmbeddedEncoder().encode([embedded_text(*told[p]) for p in told])
    shown, number = {}, {q: i for i, q in enumerate(known.questions)}
    for question, before in done.items():
        near = [places[j] for j in np.argsort(-(vectors @ known.vectors[number[question]]), kind='stable')[:NEAREST]]
        near = [p for p in near if not any(p in sort for sort in before)]
        odds = network.log_odds(in_literature(question), [told[p][::-1] for p in near])
        shown[question] = apart([near[j] for j in np.argsort(-odds, kind='stable')])
    write(folder, parts, shown, told, number)


def read(folder: Path):
    "Adds what part?.answers say: a number, and letters, best first, or -."
    known, done = known_questions(), judged()
    for file in sorted(folder.glob('part*.txt')):
        shown: dict[int, dict[str, str]] = {}
        for line in file.read_text(encoding='utf-8').splitlines():
            if line[0] == '#': at = shown.setdefault(int(line[1:].split()[0]), {})
            else: at[line[2]] = re.search(r'\((\S+)\)', line)[1]
        for number, *letters in map(str.split, file.with_suffix('.answers').read_text(encoding='utf-8').splitlines()):
            places = shown[int(number.strip('#'))]
            yes = [places[x] for x in dict.fromkeys(''.join(letters)) if x in places]
            before, others = done.get(question := known.questions[int(number.strip('#'))], ([], []))
            done[question] = [*yes, *before], [*(p for p in places.values() if p not in yes), *others]
    DATA.write_text('\n'.join(f'{q}\t{" ".join(yes)}\t{" ".join(no)}' for q, (yes, no) in sorted(done.items())) + '\n', encoding='utf-8')
    print(len(done), 'questions')


def signs(questions: list[str], done: dict, networks: list[AnswerNetwork]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    "Of all that was shown for these questions the signs, those of each network, whether it answers, and the number of the question."
    encoder, known, x, y, group = EmbeddedEncoder(), known_questions(), [], [], []
    stored, documents = KnownVectors(encoder, DEMO_VECTORS), {n.id: n.document() for n in demo_notes()}
    number, told, (of, vectors) = {q: i for i, q in enumerate(known.questions)}, room.known_answers(), room._written()
    titles = cache(lambda title: stored.encode([title])[0])
    for n, question in enumerate(questions):
        forms = both_forms(question)
        read_as, own = encoder.encode(forms, 'query'), number[question]
        cosines, written_for = (known.vectors @ read_as.T).max(1), (vectors @ read_as.T).max(1)
        places = [(documents[id], int(k), at) for sort in done[question] for at in sort for id, _, k in [at.partition(':')]]
        said = [(d.text[slice(*reader.standing(d, sentences(d)[k]))], d.title) for d, k, _ in places]
        odds = np.array([np.mean([network.log_odds(asked, said) for asked in forms], axis=0) for network in networks])
        for i, (d, k, at) in enumerate(places):
            a, b = sentences(d)[k]
            around = [p for p in SentenceSplitter().split(d) if p.start <= a and b <= p.end] or list(SentenceSplitter().split(d))
            near = (stored.encode([embedded_text(p.title, p.text) for p in around]) @ read_as.T).max()
            title = (titles(d.title) @ read_as.T).max()
            others = room.Judged(*(tuple(i for i in part if i != own) for part in told[d.id, k]))
            page = study_kind(d) == 'information page'
            x.append([[near, title, share_held(question, {*ENGLISH.analyze(f'{d.title} {d.text[a:b]}')}), page, page and k == 0, said_odds,
                       room.vote(cosines, others), written_for[of[d.id, k]].max() if (d.id, k) in of else np.nan]
                      for said_odds in odds[:, i]])
            y.append(at in done[question][0])
            group.append(n)
    x = np.array(x, float)
    x[..., -1] = np.where(np.isnan(x[..., -1]), np.nanmedian(x[..., -1]), x[..., -1])
    return x.transpose(1, 0, 2), np.array(y), np.array(group)


def told(p: np.ndarray, y: np.ndarray, group: np.ndarray) -> dict:
    "How well answers are told from the others, and how many of the likeliest sentences of the n surest questions answer."
    first = sorted((max(np.flatnonzero(group == g), key=lambda i: p[i]) for g in {*group.tolist()}), key=lambda i: -p[i])
    def right(rows: list) -> dict:
        share = wilson(int(y[rows].sum()), len(rows))
        return {'value': round(share.value, 4), 'interval': [round(share.low, 4), round(share.high, 4)], 'n': len(rows)}
    return {'AUROC': round(auroc(p[y], p[~y]), 4),
            **{f'answer of the {n} surest': right(first[:n]) for n in (len(first) // 4, len(first) // 2)},
            **{f'answer from {bar} on': right([i for i in first if p[i] >= bar]) for bar in (LEAST, .55, .75)}}


def written():
    "Writes the vectors of the questions that were written for sentences (labels/answer_questions.tsv), and their places."
    rows = [(r['question'], f"{r['doc']}:{int(r['sentence']) - 1}") for r in table('answer_questions.tsv')]
    there = {f'{n.id}:{k}' for n in demo_notes() for k in range(len(sentences(n.document())))}
    rows, encoder = [r for r in rows if r[1] in there], EmbeddedEncoder()
    vectors = directions(encoder.encode([q for q, _ in rows], 'query'), encoder.describe().get('similarity'))
    np.savez_compressed(WRITTEN, places=np.array([p for _, p in rows]), vectors=np.round(vectors * 127).astype(np.int8))
    print(f'{len(rows):,} questions for {len({p for _, p in rows}):,} of {len(there):,} sentences, {WRITTEN.stat().st_size / 1e6:.1f} MB')


def fitted(x: np.ndarray, y: np.ndarray): return LogisticRegression(max_iter=3000).fit(x, y)


def moved(p: np.ndarray) -> np.ndarray: return 1 / (1 + np.exp(-(np.log(p) - np.log1p(-p) + MOVED)))


def fit(write: bool, before: str):
    done = judged()
    questions = sorted(kept_aside() & done.keys())
    x, y, group = signs(questions, done, [shipped_answer(), *([AnswerNetwork(before)] if before else [])])
    part, found, of = np.random.default_rng(0).permutation(len(questions)) % FOLDS, {}, lambda *but: [s not in but for s in SIGNS]
    kinds = [('all signs', 0, of()), ('without the vote', 0, of('voted')), ('without the questions written', 0, of('asked')),
             ('without either', 0, of('voted', 'asked')), *([('with the network before', 1, of())] if before else [])]
    for name, network, columns in kinds:
        found[name] = np.zeros(len(y))
        for k in range(FOLDS):
            rest, its = part[group] == k, x[network][:, np.array(columns)]
            found[name][rest] = moved(fitted(its[~rest], y[~rest]).predict_proba(its[rest])[:, 1])
    quotes = msgspec.json.decode(QUOTES.read_bytes(), type=dict[str, reader.QuoteWeights])
    found['the weights before'] = reader.answer_probability({s: x[-1][:, i] for i, s in enumerate(SIGNS)}, quotes['questions'])
    model = fitted(x[0], y)
    weights = {s: round(float(w), 3) for s, w in zip(SIGNS, model.coef_[0])}
    if write:
        usual = {s: round(float(np.median(x[0][:, SIGNS.index(s)])), 3) for s in ('voted', 'asked')}
        quotes['questions'] = replace(quotes['questions'], weights=weights, least=LEAST,
                                      intercept=round(float(model.intercept_[0]) + MOVED, 3),
                                      usual=quotes['questions'].usual | usual,
                                      chosen_on=f'{len(y):,} sentences judged for {len(questions):,} known questions',
                                      date=date.today().isoformat())
        QUOTES.write_text(json.dumps(msgspec.to_builtins(quotes), indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
    has = {g for g in {*group.tolist()} if y[group == g].any()}
    save('known_answers', {'questions judged': len(done), 'with an answer': sum(bool(yes) for yes, _ in done.values()),
                           'sentences shown': sum(len(yes) + len(no) for yes, no in done.values()), 'questions': len(questions),
                           'of these with an answer': len(has), 'sentences': len(y), 'of these answers': int(y.sum()), 'weights': weights,
                           **{name: told(p, y, group) for name, p in found.items()}}, ('cpqa', 'scikit-learn', 'openvino'))


if __name__ == '__main__':
    if sys.argv[1] == 'candidates': candidates(Path(sys.argv[2]), int((sys.argv[3:] or ['8'])[0]))
    elif sys.argv[1] == 'again': again(Path(sys.argv[2]), int((sys.argv[3:] or ['8'])[0]))
    elif sys.argv[1] == 'read': read(Path(sys.argv[2]))
    elif sys.argv[1] == 'written': written()
    else: fit('--write' in sys.argv, sys.argv[sys.argv.index('--before') + 1] if '--before' in sys.argv else '')
