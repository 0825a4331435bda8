"""What is somebody who asks in the middle of? Teaches a network, from questions that were marked one by one.

    python benchmarks/situations.py [--write]                                                              (a quarter of an hour)

benchmarks/labels/situations.tsv: our patients' questions that are learnt from, by their ids, and 300 that one session of a language model
wrote, 60 for each of the first four situations and 60 that only sound like one, and 350 more by another for `mixing`, `children` and `side
effect`, half of which only sound like them, 230 more by a third for `sign`, `mixing` and `side effect`, after readers had missed these
notes, and 240 by a fourth for `dying`, of which 90 tell of an emergency and 60 of neither (ids that begin with j and a key of LOOKED:
nobody looked for other situations in them than it names, which are not learnt from them), 240 by a fifth for `bereaved`, half of which
only sound like it, and 240 by a sixth for side effects that are told as a question. The last two wrote 60 more each, in other frames,
which nothing learns from (APART). A seventh wrote 180 dangers that a death is told beside, or that look like one, a third in other frames,
an eighth 240 for `waiting`, half of which only sound like it, and 60 apart. A ninth wrote 150 signs of what can be treated and looks like
the end, or like nothing, and 150 sad or frightening stories in which nobody dies, of both 40 apart (of the first and of the dangers:
LIKE_AN_END). A tenth wrote 550 as they are typed into a search box, 200 of which only sound like one, and one in six of them is apart
("keytruda diarrhea is it normal" had got no word); they came after the network in the package. The 610 ordinary messages of
danger_stories.tsv (ids that begin with pm) were marked by two more for all eight.
Sessions that knew nothing of the program marked the first; for `bereaved` those of them that hold a word of death or loss,
for `waiting` the 120 that a first fit thought likeliest. Phrases that tell of a danger (danger*.tsv) count as none of NO_DANGER; of them
SOME are learnt from.
Two layers that begin as those of the encoder in the package, on its first four, learn: each text twice, a quarter of all among sentences
of our patients in which no situation and no danger is told, of those alone that are learnt from. What is told is of questions that the
network did not learn from, one of three for each third, the real ones apart; the mean of the three where none learnt from them. The BARS
were chosen with these figures in view.
labels/last_days.tsv marks 571 demo notes, 421 near to questions of the last days and 150 that a first fit took for fit: 2 speaks of dying,
1 may be quoted there too, 0 would mislead or frighten; marked by two sessions that knew nothing of the program. Which may be quoted is
learnt from their beginnings, by a logistic regression; of those left out in ten parts is told.
`--write` puts the network into cpqa/data/models/situations, and cpqa/data/last_days.json.
"""
import random
import re
import sys
from zlib import crc32

import msgspec
import numpy as np
import torch
from common import ROOT, save
from danger import varied
from heads import Head, all_layers, own_layers
from patient_questions import table
from sklearn.linear_model import LogisticRegression
from teach_danger import Windows
from teach_selection import Student, read, trained
from tokenizers import Tokenizer
from torch.nn import functional as of
from transformers import PreTrainedTokenizerFast

from cpqa.answering.danger_network import FIRST_HELP, prepare_head
from cpqa.answering.safety import danger
from cpqa.answering.situations import SITUATIONS, PaperWeights, beginning
from cpqa.evaluation.claims import auroc
from cpqa.literature.demo_notes import demo_notes
from cpqa.retrieval.encoder_contracts import directions
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.openvino_models import About, DataUsed, Measured, shipped
from cpqa.training.recipe import made_with

FOLDER, LAST_DAYS = ROOT / 'cpqa' / 'data' / 'models' / 'situations', ROOT / 'cpqa' / 'data' / 'last_days.json'
SOFT, PARTS, FIT = 10, 10, .25   # of last_days; from FIT on a paper may be quoted beside somebody who is dying
LOOKED = {**dict.fromkeys(('ma', 'mb', 'ca', 'cb', 'sa', 'sb'), ('side effect', 'mixing', 'children')),
          **dict.fromkeys(('ga', 'gb'), ('sign',)), **dict.fromkeys(('mc', 'md'), ('mixing',)),
          **dict.fromkeys(('sc', 'sd', 'sg', 'st'), ('side effect',)), **dict.fromkeys(('da', 'db', 'dc'), ('dying',)),
          **dict.fromkeys(('ba', 'bt'), ('bereaved',)), **dict.fromkeys(('wa', 'wt'), ('waiting', 'dying')),
          **dict.fromkeys(('oa', 'ot'), ('bereaved', 'dying')),
          **dict.fromkeys(('qa', 'qt'), ('stopping', 'sign', 'side effect', 'mixing', 'waiting'))}
APART = ('st', 'bt', 'wt', 'ot', 'qt')
LIKE_AN_END = {'be': 'beside a death', 'bx': 'beside a death, apart', 'ue': 'treatable', 'ux': 'treatable, apart'}   # dangers
BARS = {'stopping': .4, 'sign': .25, 'side effect': .25, 'mixing': .25, 'children': .35, 'bereaved': .5, 'dying': .45, 'waiting': .5}
NO_DANGER = ('bereaved', 'dying')     # of which phrases of danger count as none
FROZEN, OWN, TOKENS = 4, 2, 192
LEARNS = (4, 48, 2e-4, 1e-3)          # epochs, texts a step, rate of the layers and of the head
FOLDS, SOME, WORDS = 3, .35, 140      # the share of dangers; words of a text with what stands around it
LIMITS = ('It misses many who are in such a situation, and hears some who are not.',
          'It learnt from questions that sessions of a language model marked, and in part wrote, in English.')


class Marked:
    "The texts, what is told in them, what was looked for, and what each is: shapes (n,), (n, 8)."
    def __init__(self):
        asked, every = {r['id']: r['question'] for r in table('patient_questions.tsv')}, table('situations.tsv')
        rows = [r for r in every if r['situations'] != 'danger']
        found = [r for name in ('danger', 'danger_roundabout', 'danger_stories') for r in table(f'{name}.tsv') if r['kind'] != 'none']
        found += [r | {'kind': LIKE_AN_END[r['id'][1:3]]} for r in every if r['situations'] == 'danger']
        self.n, self.kinds = len(rows), np.array([''] * len(rows) + [r['kind'] for r in found])
        self.texts = [' '.join((r['text'] or asked[r['id']]).split()) for r in rows] + [' '.join(r['text'].split()) for r in found]
        self.real = np.array([not r['text'] for r in rows] + [False] * len(found))
        own = [r['id'][1:3] if r['text'] else '' for r in rows]
        self.apart = np.array([o in APART for o in own] + [r['kind'].endswith('apart') for r in found])
        self.sad = np.array([o == 'ot' for o in own] + [False] * len(found))
        at_random = np.random.default_rng(0).permutation(self.n) % FOLDS
        self.part = np.append(at_random, [crc32(t.encode()) % FOLDS for t in self.texts[self.n:]])
        told = [[name in r['situations'].split(', ') for name in SITUATIONS] for r in rows]
        looked = [[name in LOOKED.get(o, SITUATIONS) for name in SITUATIONS] for o in own]
        self.told = np.array(told + [[False] * len(SITUATIONS)] * len(found))
        self.looked = np.array(looked + [[name in NO_DANGER for name in SITUATIONS]] * len(found))


def among(text: str, beside: list[str], r: random.Random) -> str:
    "The text, with a few harmless sentences before or behind it."
    for _ in range(r.choice((1, 2, 3, 5, 7))):
        other = r.choice(beside)
        if len(text.split()) + len(other.split()) > WORDS: break
        text = f'{text}{"" if text[-1:] in ".?!" else "."} {other}' if r.random() < .5 else f'{other} {text}'
    return text


class Lesson:
    "What networks learn from: each text twice, mostly as it stands, and the second time half of them among others."
    def __init__(self, marked: Marked, tokenizer):
        self.marked, self.tokenizer = marked, tokenizer
        calm = marked.real & ~marked.told.any(1)
        self.harmless = np.array([bool(c) and not danger(text) for c, text in zip(calm, marked.texts)])
        self.plain, self.begun = self.tokens(marked.texts), {f'bert.{name}': w.float() for name, w in all_layers('bi-encoder').items()}

    def tokens(self, texts: list[str]) -> Windows:
        return Windows(self.tokenizer, [np.array(ids) for ids in self.tokenizer(texts, truncation=True, max_length=TOKENS)['input_ids']])

    def network(self, some: np.ndarray, told: str) -> Student:
        "A network that learnt from some of the texts, and saw no other."
        torch.manual_seed(0)
        r, m = random.Random(0), self.marked
        calm = [s for i in np.flatnonzero(some & self.harmless) for s in re.split(r'(?<=[.?!])\s+', m.texts[i])]
        beside = [s for s in calm if 3 < len(s.split()) < 25]
        ours = (m.kinds == '') | np.isin(m.kinds, [*LIKE_AN_END.values()])
        of_text = np.repeat(np.flatnonzero(some & (ours | (np.random.default_rng(0).random(len(ours)) < SOME))), 2)
        other = lambda text: varied(text, r) if r.random() < .4 else text
        texts = [among(other(m.texts[i]), beside, r) if k % 2 and r.random() < .5 else other(m.texts[i]) for k, i in enumerate(of_text)]
        is_told, looked = (torch.tensor(values[of_text], dtype=torch.float) for values in (m.told, m.looked))
        def loss(out, part):
            each = of.binary_cross_entropy_with_logits(out, .02 + .96 * is_told[part], reduction='none') * looked[part]
            return 4 * each.sum() / looked[part].sum()
        student = Student(self.begun, self.tokenizer, OWN, FROZEN, len(SITUATIONS))
        return trained(student, self.tokens(texts), np.arange(len(texts)), loss, LEARNS, told, 0)

    def chances(self, network: Student, rows: np.ndarray) -> np.ndarray: return 1 / (1 + np.exp(-read(network, self.plain, rows)))


def left_out(lesson: Lesson) -> np.ndarray:
    "The chances of each text by a network that did not learn from it; of those apart the mean of all."
    m = lesson.marked
    out = np.zeros((len(m.texts), len(SITUATIONS)))
    for k in range(FOLDS):
        network = lesson.network((m.part != k) & ~m.apart, f'fold {k + 1}')
        p = lesson.chances(network, np.flatnonzero((m.part == k) | m.apart))
        out[(m.part == k) & ~m.apart] = p[(m.part == k) & ~m.apart]
        out[m.apart] += p[m.apart] / FOLDS
    return out


def alarms(texts: list[str], p: np.ndarray, bar: float) -> dict:
    "How many of these bring an alarm, and how many of the alarms would fall silent if a death that is told silenced them."
    kinds = [danger(text) for text in texts]
    return {'texts': len(texts), 'alarms': sum(map(bool, kinds)),
            'a death would silence': sum(kind in (*FIRST_HELP, 'overdose') and chance >= bar for kind, chance in zip(kinds, p.tolist()))}


def last_days(encoder) -> tuple[dict, PaperWeights]:
    "Which papers may be quoted beside the dying, of demo notes that were marked: what is told of those left out, and the weights."
    notes, marked = {n.id: n for n in demo_notes()}, table('last_days.tsv')
    read_at = encoder.encode([beginning(notes[r['id']].title, notes[r['id']].text) for r in marked], 'document')
    x, grades = directions(read_at, encoder.describe().get('similarity')), np.array([int(r['grade']) for r in marked])
    learnt, fit = lambda some: LogisticRegression(C=SOFT, max_iter=3000).fit(x[some], fit[some]), grades > 0
    p, part = np.zeros(len(marked)), np.random.default_rng(0).permutation(len(marked)) % PARTS
    for k in range(PARTS): p[part == k] = learnt(part != k).predict_proba(x[part == k])[:, 1]
    model = learnt(slice(None))
    weights = PaperWeights(tuple(round(float(v), 4) for v in model.coef_[0]), round(float(model.intercept_[0]), 4), FIT,
                           encoder.describe()['sha256'][:12], f'{len(marked)} demo notes, benchmarks/situations.py')
    return ({'notes': len(marked), 'fit': int(fit.sum()), 'told': int((p >= FIT).sum()), 'rightly': int((fit & (p >= FIT)).sum()),
             'on dying': [int(((grades == 2) & (p >= FIT)).sum()), int((grades == 2).sum())], 'auroc': round(auroc(p[fit], p[~fit]), 4)},
            weights)


def figures(m: Marked, p: np.ndarray) -> dict:
    "What is told of the left out: real questions, written ones, those apart; and of dangers."
    ours, result = np.arange(len(m.texts)) < m.n, {'real': {}, 'written': {}, 'written apart': {}, 'sad stories, apart': {}}
    for j, (name, bar) in enumerate(BARS.items()):
        for told, some in (('real', m.real), ('written', ~m.real & ~m.apart), ('written apart', m.apart)):
            some, y, q = some & ours & m.looked[:, j], m.told[:, j], p[:, j]
            if not (y & some).any(): continue
            result[told][name] = {'questions': int(some.sum()), 'there': int(y[some].sum()), 'told': int((q[some] >= bar).sum()),
                                  'rightly': int((y & (q >= bar))[some].sum()), 'auroc': round(auroc(q[some & y], q[some & ~y]), 4)}
        sad = m.sad & m.looked[:, j]
        if sad.any(): result['sad stories, apart'][name] = [int((p[sad, j] >= bar).sum()), int(sad.sum())]
        if name in NO_DANGER:
            each = {k: m.kinds == k for k in dict.fromkeys(m.kinds[m.n:])}
            result[f'dangers taken for {name}'] = {k: [int((p[some, j] >= bar).sum()), int(some.sum())] for k, some in each.items()}
    j, beside = SITUATIONS.index('bereaved'), np.isin(m.kinds, [LIKE_AN_END['be'], LIKE_AN_END['bx']])
    of_these = lambda some: alarms([m.texts[i] for i in np.flatnonzero(some)], p[some, j], BARS['bereaved'])
    result['alarms'] = {'bereaved': of_these(m.told[:, j] & m.looked[:, j]), 'dangers beside a death': of_these(beside)}
    return result


def write(network: Student, tokenizer: Tokenizer, m: Marked, told: dict):
    "The network, as it comes with the package."
    head, state = Head(own_layers('bi-encoder', FROZEN), len(SITUATIONS)), network.state_dict()
    place = lambda name: name.removeprefix('bert.encoder.layer.').partition('.')
    head.layers.load_state_dict({f'{int(n) - FROZEN}.{rest}': w for name, w in state.items() if name.startswith('bert.encoder.layer.')
                                 for n, _, rest in [place(name)] if int(n) >= FROZEN})
    head.head.load_state_dict({name.removeprefix('head.'): w for name, w in state.items() if name.startswith('head.')})
    shown = tuple(Measured(f'AUROC, {name}, real questions left out', f['auroc'], f['questions']) for name, f in told['real'].items())
    used = (DataUsed('questions of our patients, and written ones', 'Apache-2.0', int((~m.apart[:m.n]).sum()), 'marked by sessions of a '
                     'language model, which wrote some'),
            DataUsed('phrases that tell of a danger', 'Apache-2.0', int((~m.apart[m.n:]).sum()), f'a share of {SOME}; dying and bereaved'))
    about = About('the encoder of cpqa', 'Apache-2.0', 'Apache-2.0', used, (), shown, made_with(),
                  'python benchmarks/situations.py --write', LIMITS)
    prepare_head(head.eval(), tokenizer, FOLDER, 'situations', FROZEN, tuple(BARS.values()), max_tokens=TOKENS, about=about)


def main():
    assert (*BARS,) == SITUATIONS
    encoder, marked = EmbeddedEncoder(), Marked()
    tokenizer = Tokenizer.from_file(str(shipped('bi-encoder') / 'tokenizer.json'))
    tokenizer.no_padding(), tokenizer.no_truncation()
    lesson = Lesson(marked, PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token='[PAD]'))
    told = figures(marked, left_out(lesson))
    notes, weights = last_days(encoder)
    if '--write' in sys.argv:
        write(lesson.network(~marked.apart, 'all'), tokenizer, marked, told)
        LAST_DAYS.write_bytes(msgspec.json.encode(weights) + b'\n')
    save('situations', {'bars': BARS, **told, 'notes for the last days': notes, 'bytes': sum(f.stat().st_size for f in FOLDER.iterdir())},
         ('cpqa', 'openvino', 'torch', 'transformers', 'scikit-learn'))


if __name__ == '__main__': main()
