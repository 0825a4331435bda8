"""Does the confidence of an answer tell questions that the library can answer from those that it cannot?

    python benchmarks/abstention.py LIBRARY [--questions N] [--collect] [--write]

LIBRARY is one of bioasq_beir's corpus with the encoder that comes with cpqa. Its evidence is read as `CancerQA.ask` reads it: two routes,
50 documents, 10 passages, under each of three rerankers. Questions are asked of
with gold     the whole library,
gold out      the library without all documents that experts marked for the question (those that follow move up),
near out      the same without the documents, too, that have a passage with a cosine of at least `NEAR` to one of theirs (the tested half
              of round 10).
Beside them, of the whole library: questions that have nothing to do with medicine, and questions about medicines that do not exist; and of
the demo notes, questions that they answer and questions of medicine that they do not.

What is predicted: does any passage read hold a snippet that experts marked for the question (`cpqa.evaluation.pairs.holds`)?
With gold out that is no by construction, although another document may answer. How often one does: labels/abstention.tsv holds what one
reader, a language model, found in the three most probable passages of questions that chance drew from the tested half, without seeing their
confidence (of a few, the probabilities of the passages had been seen before).

The models that come with cpqa were trained on rounds 7 to 9. So the logistic model is fitted twice, on rounds 7 to 9 and on one half of
round 10. The first is kept, unless its log loss on that half is higher by more than the interval than that of the second, cross-validated
over the questions there; the other half of round 10 tests both. The halves are those of calibration.py. The features were picked while
looking at a part of round 10, so the figures flatter them a little. `ABSTAIN_BELOW` is the highest twentieth at which at least `AIM` of the
questions with gold are answered on the first half.

Scores of the cross-encoder are kept in cpqa's cache by the checksum of its weights, and the evidence beside them: a run that was stopped
goes on. --questions takes so many of each of rounds 7 to 9 (round 10 is always whole); --collect only reads the evidence; --write puts the
models into the package.
"""
import argparse
import csv
import json
import random
import re
from datetime import date
from functools import cached_property

import numpy as np
from calibration import Parts, told
from common import DATA, ROOT, bioasq_questions, save
from evidence_quality import OFF_TOPIC, relevant
from models import Kept, say
from msgspec.structs import replace
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from cpqa.answering.abstention import ABSTAIN_BELOW, CONFIDENCE_FILE, FEATURES, ConfidenceModel, evidence_features
from cpqa.core.records import Evidence, Hit, Passage
from cpqa.core.storage import cache_dir
from cpqa.core.text_analysis import folded
from cpqa.evaluation.metrics import aurc, ideal_aurc, risk_coverage
from cpqa.evaluation.pairs import gold_spans, holds, snippet_pairs
from cpqa.evaluation.statistics import bootstrap, wilson
from cpqa.passages.calibration import calibration_values, reliability
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.dual_path import HSRDR
from cpqa.retrieval.openvino_models import shipped

RERANKERS, NEAR, AIM, FOLDS, RIDGE = ('default', 'cosine', 'bm25'), 0.5, 0.90, 5, 10.0
WITH, OUT, FAR = 'with gold', 'gold out', 'near out'
LABELS = ROOT / 'benchmarks' / 'labels' / 'abstention.tsv'
ROUNDS = {'rounds 7 to 9': (7, 8, 9), 'round 10': (10,)}
MADE_UP = ('What is the mechanism of action of zelvorafinib?', 'Is trudaxomab effective in ulcerative colitis?',
           'Which receptor does olivastine block?', 'What are the side effects of brenducilast?',
           'Which gene is mutated in Harnquist-Oberley syndrome?', 'Is pelmorexin approved for narcolepsy?',
           'What is the role of the QZXR4 gene in heart failure?', 'Does ferrocandin improve survival in sepsis?',
           'What is the target of the antibody nuvirelimab?', 'Which enzyme is inhibited by cardoxetine?',
           'List drugs that interact with valtrenazole.', 'Is the Kessvik score used in stroke?',
           'What is the function of the protein TRNQ77?', 'Does Lortimer disease run in families?',
           'What is measured by the Bexhill-Amory test?', 'Can mivastanol cause liver injury?',
           'Which tumours express the antigen KLV-19?', 'Is dorsiplatin better than cisplatin in lung cancer?',
           'What causes Penhallow anaemia?', 'Which vaccine is sold as Immurexa?')
NOTED = ('Is tisagenlecleucel effective for B-cell lymphoma?', 'Can radiation for childhood leukaemia lead to a meningioma later?',
         'Which drug was approved for bile duct cancer with FGFR2 changes?',
         'Does a head CT raise the risk of a brain tumour?', 'What is pexidartinib approved for?',
         'Do older people with cancer fall more often?', 'Does selinexor help in multiple myeloma that came back?',
         'What is niraparib used for in ovarian cancer?', 'Can sunitinib cause a collapsed lung?',
         'Do mutations of the hepatitis B virus matter for liver cancer?', 'Is cabozantinib effective in advanced liver cancer?',
         'Does gilteritinib work in acute myeloid leukaemia?', 'Who should have radiofrequency ablation for a Barrett oesophagus?',
         'How good is keyhole surgery for bowel cancer after five years?', 'What are the side effects of icotinib?')
NOT_NOTED = ('Does metformin lower blood sugar in type 2 diabetes?', 'Which inhaler is best for asthma?',
             'Does vitamin D prevent fractures?', 'Do triptans help against migraine?', 'Is lithium effective for bipolar disorder?',
             'Does sacubitril help in heart failure?', 'How is a Wilms tumour treated?', 'How is neuroblastoma treated in infants?',
             'Does mirvetuximab help in ovarian cancer?', 'How long does whooping cough last?',
             'Which antibiotic treats Lyme disease?', 'Can gout be prevented by allopurinol?', 'What causes cystic fibrosis?',
             'Does psoriasis respond to light therapy?', 'How is glaucoma diagnosed?')


class Default(Kept):
    "The cross-encoder that comes with cpqa, with scores kept in a file."
    def __init__(self): super().__init__(shipped('cross-encoder'))
    def describe(self) -> dict: return {**{k: v for k, v in self.model.describe().items() if k != 'runs_in'}, 'reranker': 'default'}


class Without:
    "Both routes in a library as if some of its documents were not there."
    def __init__(self, route: HSRDR, gone: set[str]): self.route, self.gone = route, gone

    def words(self, query: str, k: int):
        found = self.route.search(query, k + len(self.gone))
        return replace(found, ids=tuple(i for i in found.ids if i not in self.gone)[:k])

    def search(self, queries, k: int) -> list[list[Hit]]:
        return [[h for h in hits if h.id not in self.gone][:k] for hits in self.route.dense.search(queries, k + len(self.gone))]

    def retrieve(self, question: str):
        r = self.route
        return HSRDR(self.words, self, r.fetch, r.rewriter, depth=r.depth, keep=r.keep).retrieve(question)


class Reading:
    "Evidence read for a question, under each reranker, kept in a file."
    def __init__(self, folder: str):
        first = CancerQA(folder, Finding(reranker='bm25'))
        library, encoder = first.library, first.encoder
        self.first, self.qas = first, {
            name: CancerQA(library, Finding(encoder, reranker=Default() if name == 'default' else name)) for name in RERANKERS
        }
        weights = self.qas['default']._reranker.model.card.sha256['model.bin'][:12]
        self.path, self.known = cache_dir() / 'abstention' / f'{library.folder.name}-{weights}.jsonl', {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            for line in self.path.read_text(encoding='utf-8').splitlines():
                try: row = json.loads(line)
                except ValueError: continue
                self.known[row['id'], row['variant']] = row['read']

    @cached_property
    def matrix(self) -> np.ndarray: return self.first.vectors.of_rows(range(self.first.vectors.index.ntotal))

    def near(self, gold: set[str]) -> set[str]:
        "The documents that have a passage near one of the gold documents', these included."
        v = self.first.vectors
        rows = [r for d in gold if d in v.ids for r in v.rows_of(d)]
        close = np.flatnonzero((self.matrix @ self.matrix[rows].T).max(1) >= NEAR) if rows else []
        return {v.ids[int(v.spans[r, 0])] for r in close} | gold

    def read(self, id: str, text: str, variant: str, gone: set[str]):
        if (id, variant) in self.known: return
        vector = self.first.encoder.encode([text], 'query')[0]
        found = Without(self.first.dual_path({text: vector}), gone).retrieve(text)
        route, out = {c.id: c.route for c in found.candidates}, {}
        for name, qa in self.qas.items():
            qa.opened.__dict__.setdefault('vectors', self.first.vectors)
            chosen = qa.two_stage(self.first.vectors).choose(text, vector, found.documents, qa.finding.passages, route)
            assert chosen.stopped == 'all' and not chosen.notes
            out[name] = [[e.passage.doc_id, e.passage.start, e.passage.end, round(e.score, 5), e.probability,
                          e.route] for e in chosen.evidence]
        self.known[id, variant] = out
        with open(self.path, 'a', encoding='utf-8') as f: f.write(json.dumps({'id': id, 'variant': variant, 'read': out}) + '\n')

    def evidence(self, id: str, variant: str, reranker: str) -> list[Evidence]:
        documents = self.first.library
        return [Evidence(Passage.of(documents.get(d), start, end), score, route, probability=p) for d, start, end, score, p,
                route in self.known[id, variant][reranker]]


def asked(questions: list[dict], n: int | None) -> list[dict]:
    "Round 10 whole, then the others in turn, in an order that chance drew, so that a run that was stopped has some of each."
    by = {r: [q for q in questions if int(q['batch'].split('B')[0]) == r] for r in range(7, 11)}
    for r, some in by.items(): random.Random(r).shuffle(some)
    return by[10] + [by[r][i] for i in range(min(max(map(len, by.values())), n or 10_000)) for r in (7, 8, 9) if i < len(by[r])]


def marked(pairs, known) -> tuple[dict[str, dict], dict]:
    """Question -> document -> the spans that experts marked in it, none where it counts whole; from the judgements and the snippets,
    which differ for a few questions."""
    spans, places = gold_spans(pairs, known)
    return {q: {**{d: () for d in found}, **spans.get(q, {})} for q, found in relevant().items()}, places


def collect(reading: Reading, questions: list[dict], gold: dict[str, dict]):
    test = Parts(questions, halves=True).test
    for text in (*OFF_TOPIC, *MADE_UP): reading.read(text, text, WITH, set())
    for n, q in enumerate(questions):
        reading.read(q['_id'], q['text'], WITH, set())
        reading.read(q['_id'], q['text'], OUT, set(gold[q['_id']]))
        if test[n]: reading.read(q['_id'], q['text'], FAR, reading.near(set(gold[q['_id']])))
        if n % 50 == 49: say(f'{n + 1} of {len(questions)} questions')


class Table:
    "One row a reading: features under each reranker, whether it holds an answer, which question, which variant."
    def __init__(self, reading: Reading, questions: list[dict], gold: dict[str, dict]):
        have = [(q, v) for q in questions for v in (WITH, OUT, FAR) if (q['_id'], v) in reading.known]
        self.questions, self.variant = [q for q, _ in have], np.array([v for _, v in have])
        self.ids, self.round = np.array([q['_id'] for q in self.questions]), np.array(
            [int(q['batch'].split('B')[0]) for q in self.questions])
        self.fit, self.test = Parts(self.questions, halves=True).fit, Parts(self.questions, halves=True).test
        self.read = {name: [reading.evidence(q['_id'], v, name) for q, v in have] for name in RERANKERS}
        self.x = {name: np.array([list(evidence_features(q['text'], e).values()) for (q, _), e in zip(have, found)]) for name,
                  found in self.read.items()}
        self.y = {name: np.array([any(holds(p.passage, gold[q['_id']]) for p in e) for (q, _), e in zip(have, found)]) for name,
                  found in self.read.items()}
        self.twins = np.isin(self.variant, (WITH, OUT))


# ---- fitting

class Fit:
    "A logistic model of the features, in their own units."
    def __init__(self, x, y):
        middle, spread = x.mean(0), x.std(0)
        spread = np.where(spread > 0, spread, 1)
        found = LogisticRegression(C=RIDGE, max_iter=1000).fit((x - middle) / spread, y)
        self.standard = found.coef_[0]
        self.weights = self.standard / spread
        self.intercept = float(found.intercept_[0] - (self.weights * middle).sum())

    def __call__(self, x) -> np.ndarray: return 1 / (1 + np.exp(-(x @ self.weights + self.intercept)))


def cross_validated(x, y, of) -> np.ndarray:
    out = np.empty(len(y))
    for rest, held in GroupKFold(FOLDS, shuffle=True, random_state=0).split(x, y, of): out[held] = Fit(x[rest], y[rest])(x[held])
    return out


def loss(p, y) -> np.ndarray: return -np.log(np.where(y, p, 1 - p).clip(1e-12))


# ---- measuring

def share(mask) -> dict | None:
    if not len(mask): return None
    w = wilson(int(np.sum(mask)), len(mask))
    return {**told(w), 'n': w.n}


def auroc(p, y, of) -> dict:
    "With an interval over resamples of whole questions."
    (_, place), draw, found = np.unique(of, return_inverse=True), np.random.default_rng(0), []
    order, size = np.argsort(p, kind='stable'), place.max() + 1
    values, n = np.unique(p[order], return_index=True)
    step = lambda w: np.add.reduceat(w[order], n)
    for times in (np.ones(size), *(np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(1_000))):
        right, wrong = step(times[place] * y), step(times[place] * ~y)
        found.append((right * (np.cumsum(wrong) - wrong / 2)).sum() / (right.sum() * wrong.sum()))
    return {'value': round(float(found[0]), 4), 'interval': [round(float(v), 4) for v in np.quantile(found[1:], [.025, .975])]}


def at(p, variant, below: float) -> dict:
    "What a threshold does with questions that have their documents and those that have not."
    return {'below': round(float(below), 4), 'answered': share(p[variant == WITH] >= below), 'abstained': share(p[variant == OUT] < below)}


def worth(p, y, variant, of) -> dict:
    "All measures of confidences of both twins of some questions."
    low = {name: float(np.quantile(p[variant == WITH], 1 - wanted)) for name, wanted in (('answering 90 %', .90), ('answering 95 %', .95))}
    low['abstaining on 80 %'] = float(np.quantile(p[variant == OUT], .80, method='higher'))
    calibrated = {m: round(v, 4) for m, v in calibration_values(p, y).items()} if p.max() <= 1 and p.min() >= 0 else None
    return {'n': len(y), 'AUROC': auroc(p, y, of), 'calibration': calibrated,
            'thresholds': {name: at(p, variant, t) for name, t in low.items()}}


def curve(p, y, points: int = 60) -> dict:
    "The risk-coverage curve, thinned."
    coverage, risk = risk_coverage(y, p)
    keep = np.unique(np.linspace(0, len(coverage) - 1, points).round().astype(int))
    return {'coverage': coverage[keep].round(4).tolist(), 'risk': risk[keep].round(4).tolist(), 'AURC': round(aurc(y, p), 4),
            'least possible': round(ideal_aurc(y), 4)}


def trade(p, variant, points: int = 41) -> list[dict]:
    "For thresholds from 0 to 1: how many with gold are answered, and how many with gold out, and near out, are not."
    names = [(name, v) for name, v in (('answered', WITH), ('abstained', OUT), ('abstained, near out', FAR)) if (variant == v).any()]
    return [{'below': round(float(t), 3),
             **{name: round(float((p[variant == v] >= t).mean() if v == WITH else (p[variant == v] < t).mean()), 4) for name, v in names}}
            for t in np.linspace(0, 1, points)]


# ---- how wrong the labels are

def exact_answers(ids: set[str]) -> dict[str, list[str]]:
    "Question of a fact -> the answers that experts gave, as BioASQ publishes them, but for such as stand in the question."
    out = {}
    for file in sorted((DATA / 'mirage' / 'rawdata' / 'bioasq').glob('*/*.json')):
        for q in json.loads(file.read_text(encoding='utf-8'))['questions']:
            if q['id'] not in ids or q['type'] != 'factoid': continue
            names = [n for some in q.get('exact_answer') or [] for n in (some if isinstance(some, list) else [some])]
            kept = [folded(n) for n in names if folded(n) and f' {folded(n)} ' not in f' {folded(q["body"])} ']
            if kept: out[q['id']] = kept
    return out


def runs_of(text: str, n: int = 5) -> set[tuple]:
    words = re.findall(r'\w+', text.lower())
    return {tuple(words[i:i + n]) for i in range(len(words) - n + 1)}


def noise(table: Table, reading: Reading, gold: dict[str, dict], p: np.ndarray) -> dict:
    "How often a reading without the marked documents answers all the same."
    ten, out = table.round == 10, {}
    answers = exact_answers(set(table.ids[ten]))
    said = lambda i: any(f' {a} ' in f' {folded(" ".join(f"{e.passage.title} {e.passage.text}" for e in table.read["default"][i]))} '
                         for a in answers[table.ids[i]])
    out['exact answer stands in the passages read'] = {
        v: share([said(i) for i in np.flatnonzero(ten & (table.variant == v)) if table.ids[i] in answers]) for v in (WITH, OUT, FAR)}
    documents, near = reading.first.library, []
    for i in np.flatnonzero(ten & (table.variant == OUT)):
        theirs = [r for d in gold[table.ids[i]] if (found := documents.get(d)) and (r := runs_of(found.text))]
        near.append(any(len(r & g) >= .5 * min(len(r),
                                               len(g)) for e in table.read['default'][i] if (r := runs_of(e.passage.text)) for g in theirs))
    out['gold out, half of the five-word runs of a passage read stand in a marked document'] = share(near)
    with open(LABELS, encoding='utf-8') as f: label = {row['id']: row['answered'] == 'yes' for row in csv.DictReader(f, delimiter='\t')}
    rows = [i for i in np.flatnonzero(table.variant == OUT) if table.ids[i] in label]
    really, low = np.array([label[table.ids[i]] for i in rows]), np.array([p[i] < ABSTAIN_BELOW for i in rows])
    out['read one by one, gold out'] = {'answered by other documents': share(really),
                                        'abstained where they do not answer': share(low[~really]),
                                        'abstained where they do': share(low[really]),
                                          'mean confidence where they do not': round(
                                              float(np.mean([p[i] for i, r in zip(rows, really) if not r])), 4),
                                              'where they do': round(float(np.mean([p[i] for i, r in zip(rows, really) if r])), 4)}
    return out


def demo() -> dict:
    "Questions to the demo notes: confidences."
    qa, out = CancerQA(), {}
    for name, some in (('answered by a note', NOTED), ('not answered', NOT_NOTED)):
        found = []
        for text in some:
            vector = qa.encoder.encode([text], 'query')[0]
            hits = qa.dual_path({text: vector}).retrieve(text)
            stage = qa.two_stage(qa.vectors)
            e = stage.choose(text, vector, hits.documents, qa.finding.passages, {c.id: c.route for c in hits.candidates}).evidence
            found.append(evidence_features(text, e))
        out[name] = found
    return out


# ---- one result

def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument('library')
    ask.add_argument('--questions', type=int, default=250, help='of each of rounds 7 to 9')
    ask.add_argument('--collect', action='store_true', help='only read the evidence')
    ask.add_argument('--have', action='store_true', help='read no more evidence: use what is there')
    ask.add_argument('--write', action='store_true', help='put the models into the package')
    a = ask.parse_args()
    reading, questions = Reading(a.library), asked(bioasq_questions(), a.questions)
    gold, places = marked(snippet_pairs(DATA / 'bioasq_beir'), {d.id: d for d in reading.first.library})
    if not a.have: collect(reading, questions, gold)
    if a.collect: return
    t, rows, models, chosen = Table(reading, questions, gold), [], [], {}
    result = {'data': 'bioasq_beir', 'documents': len(reading.first.library), 'passages_read': reading.first.finding.passages, 'near': NEAR,
              'aim': AIM, 'abstain_below': ABSTAIN_BELOW, 'features': FEATURES,
              'readings': {where: {v: int((np.isin(t.round, r) & (t.variant == v)).sum()) for v in (WITH, OUT, FAR)} for where,
                           r in ROUNDS.items()},
              'with_gold_and_a_marked_snippet_read': {where: share(t.y['default'][np.isin(t.round, r) & (t.variant == WITH)]) for where,
                                                      r in ROUNDS.items()},
              'interval': "95 %: Wilson's for shares, bootstrap over questions for AUROC (1,000 resamples)"}
    for name in RERANKERS:
        x, y = t.x[name], t.y[name]
        old, half, test = t.twins & (t.round < 10), t.twins & t.fit, t.twins & t.test
        on_old, on_half = Fit(x[old], y[old]), Fit(x[half], y[half])
        p = {'rounds 7 to 9': on_old(x[half]), 'one half of round 10': cross_validated(x[half], y[half], t.ids[half])}
        losses = {k: loss(v, y[half]) for k, v in p.items()}
        gain = bootstrap(losses['rounds 7 to 9'] - losses['one half of round 10'], groups=list(t.ids[half]))
        kept = 'one half of round 10' if gain.low > 0 else 'rounds 7 to 9'
        fits = {'rounds 7 to 9': on_old, 'one half of round 10': on_half}
        limits = [b for b in np.arange(1, 20) / 20 if (p[kept][t.variant[half] == WITH] >= b).mean() >= AIM]
        for source, fit in fits.items():
            q = fit(x[test])
            rows.append({'reranker': name, 'fitted_on': source, 'kept': source == kept,
                         'weights': dict(zip(FEATURES, fit.weights.round(4).tolist())),
                         'standardised': dict(zip(FEATURES, fit.standard.round(3).tolist())), 'intercept': round(fit.intercept, 4),
                         'log loss on the first half of round 10': round(float(losses[source].mean()), 4),
                         'tested on the other half': worth(q, y[test], t.variant[test], t.ids[test]),
                         'at abstain_below': at(q, t.variant[test], ABSTAIN_BELOW)})
        best = fits[kept]
        chosen[name] = {'kept': kept, 'log loss of rounds 7 to 9 less that of one half of round 10': told(gain),
                        'limit that answers the aim on that half': float(max(limits, default=0.05)),
                        'there': at(p[kept], t.variant[half], ABSTAIN_BELOW)}
        for single in ('best', 'nearest'):
            i = FEATURES.index(single)
            rows.append({'reranker': name, 'fitted_on': f'nothing: {single} alone', 'kept': False,
                         'tested on the other half': worth(x[test][:, i], y[test], t.variant[test], t.ids[test])})
        q = best(x)
        here = at(q[test], t.variant[test], ABSTAIN_BELOW)
        used = half if kept == 'one half of round 10' else old
        describe = reading.qas[name].two_stage(reading.first.vectors).reranker.describe()
        models.append(ConfidenceModel(dict(zip(FEATURES, (float(f'{w:.6g}') for w in best.weights))), float(f'{best.intercept:.6g}'),
                                      describe, reading.first.encoder.describe(),
                                      f'BioASQ, {kept}, with and without the documents that answer, among {len(reading.first.library):,} '
                                      'abstracts',
                                      len(set(t.ids[used])), round(float(y[used].mean()), 4),
                                      f'BioASQ, {"the other" if kept == "one half of round 10" else "one"} half of round 10',
                                      round(calibration_values(q[test], y[test])['ECE (equal count)'], 4), here['answered']['value'],
                                      here['abstained']['value'], date.today().isoformat()))
        if name != 'default': continue
        answered = q[test] >= ABSTAIN_BELOW
        far = t.test & (t.variant == FAR)
        result['tested'] = {'answered': here['answered'], 'abstained, gold out': here['abstained'],
                            'abstained, near out': share(q[far] < ABSTAIN_BELOW), 'coverage of both twins': share(answered),
                            'selective accuracy': share(y[test][answered]), 'accuracy if all were answered': share(y[test]),
                            'risk_coverage': curve(q[test], y[test]),
                            'risk_coverage, nearest alone': curve(x[test][:, FEATURES.index('nearest')], y[test]),
                            'trade': trade(q[t.test], t.variant[t.test]),
                            'reliability': [{k: round(v, 4) for k, v in b.to_dict().items()} for b in reliability(q[test], y[test])]}
        result['by_round'] = {f'round {r}': {**at(q[t.twins & (t.round == r)], t.variant[t.twins & (t.round == r)], ABSTAIN_BELOW),
                                             'AUROC': auroc(q[t.twins & (t.round == r)], y[t.twins & (t.round == r)],
                                                            t.ids[t.twins & (t.round == r)]),
                                             **{f'mean confidence, {v}': round(float(q[(t.variant == v) & (t.round == r)].mean()),
                                                 4) for v in (WITH, OUT)}} for r in range(7, 11) if (t.round == r).any()}
        result['noise'] = noise(t, reading, gold, q)
        off = {k: best(np.array([list(evidence_features(text, reading.evidence(text, WITH, name)).values()) for text in some])) for k,
               some in (('off topic', OFF_TOPIC), ('made up', MADE_UP)) if all((text, WITH) in reading.known for text in some)}
        off |= {k: best(np.array([list(f.values()) for f in found])) for k, found in demo().items()}
        result['other questions'] = {k: {'below': share(v < ABSTAIN_BELOW), 'confidences': sorted(v.round(3).tolist())} for k,
                                     v in off.items()}
    save('abstention', {**result, 'chosen': chosen, 'snippets': places, 'rows': rows}, ('cpqa', 'openvino', 'numpy', 'scikit-learn'))
    if a.write: CONFIDENCE_FILE.write_text('[\n' + ',\n'.join(m.to_json() for m in models) + '\n]\n', encoding='utf-8')


if __name__ == '__main__': main()
