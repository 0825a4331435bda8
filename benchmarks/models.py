"""What do the models that come with cpqa buy? BM25, all-MiniLM-L6-v2 and they themselves, on the same questions.

    python benchmarks/models.py [--only retrieval,passages,general,time,caps,short] [--rounds 7,8,9,10] [--data FOLDER]
                                [--bi FOLDER] [--cross FOLDER] [--trained-bi FOLDER --trained-cross FOLDER] [--questions N] [--name models]
    python benchmarks/models.py --cards      # then puts the figures on the models' cards

retrieval  bioasq_beir by round (7 to 9 were trained on, 10 was chosen on): BM25, dense, hybrid, hybrid and reranker, all by
           `CancerQA.search`.
passages   Evidence Inference, the articles that were not trained on: is the marked sentence in the first five passages of its article?
general    MedQuAD, the topics that were held out: is the start of a question's answer found among all of them?
time       milliseconds to score 50 passages of 128 words, by how many tokens of a pair are read; for a quiet machine.
caps       nDCG@10 on round 10 by how many tokens of a pair are read.
short      what eight bits cost, against the folders that training wrote (--trained-bi, --trained-cross; not part of the default).

Each part is added to one result file. One that was measured with other weights is taken out of it, and so are rounds that were. Scores of
the reranker are kept in cpqa's cache by the checksum of its weights, libraries by that of their encoder, so a run that was stopped goes on.
With --questions every part takes so many questions, evenly drawn, and says so in the file: to try it, not to report.
"""
import argparse
import copy
import hashlib
import json
import os
import sys
import time
from datetime import date
from itertools import chain, cycle
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, RESULTS, quantiles, save

from cpqa.core.records import Hit, Passage
from cpqa.core.storage import cache_dir
from cpqa.evaluation.collections import read_collection, read_marked
from cpqa.evaluation.metrics import covers, retrieval_values
from cpqa.evaluation.passages import part_of
from cpqa.evaluation.tables import file_name, made_of
from cpqa.evaluation.statistics import bootstrap, holm, paired_bootstrap, paired_by_group, permutation
from cpqa.libraries import build_index, kept_library
from cpqa.literature.library import build_library
from cpqa.passages.cross_encoders import EmbeddedCrossEncoder, FastCrossEncoder, encode_pairs, pair_text, prepare_cross_encoder
from cpqa.passages.passage_index import PassageIndex, passage_documents, passage_of, whole
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.passages.two_stage import TwoStage, rerank_documents
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder, FastEncoder, prepare_encoder
from cpqa.retrieval.openvino_models import Measured, shipped
from cpqa.retrieval.vectors import VectorPart
from cpqa.training.examples import TRAINED, medquad_groups
from cpqa.training.recipe import with_figures

PARTS = ('retrieval', 'passages', 'general', 'time', 'caps', 'short')
MEASURES = ('nDCG@10', 'R@10', 'MRR@10')
CAPS = (256, 160)
DEPTH, WORDS, TIMED, RERANKED = 50, 128, 30, 200
POOLED, UNSEEN = 'rounds 7 to 9', 'round 10, no relevant document shared'
NEW, BASES = ('dense', 'hybrid', 'hybrid + reranker alone', 'hybrid + reranker'), ('bm25', 'minilm hybrid')
PAIRS = [(s, b) for s in NEW for b in BASES] + [('hybrid + reranker', 'hybrid'), ('hybrid + reranker', 'hybrid + reranker alone')]
INTERVAL = '95 %, bootstrap over {}, 10,000 resamples'
TEST = 'sign-flip permutation, Holm over all pairs of one measure on one set of questions'


def say(text: str, begun: float = time.monotonic()): print(f'{time.monotonic() - begun:7.0f} s  {text}', file=sys.stderr, flush=True)


def told(i) -> dict: return {'value': round(i.value, 4), 'interval': [round(i.low, 4), round(i.high, 4)]}


def some(things: list, n: int | None) -> list:
    "`n` of them, evenly drawn, or all."
    return [things[i * len(things) // n] for i in range(n)] if n and n < len(things) else list(things)


# ---- the models

class Kept:
    "A prepared cross-encoder whose scores are kept in a file; `first` is the weight of the first stage beside its score."
    first = EmbeddedCrossEncoder.first

    def __init__(self, folder: Path, max_tokens: int | None = None):
        self.model, self.known = FastCrossEncoder(folder, max_tokens), {}
        self.path = (
            cache_dir() / 'scores' / f'{self.model.card.sha256["model.bin"][:16]}-{self.model.max_tokens}-{self.model.runs_in}.jsonl'
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, 'a+', encoding='utf-8') as f:
            f.seek(0)
            lines = f.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith('\n'): f.write('\n')   # the run before was stopped while it wrote
        for line in lines:
            try: self.known.update(json.loads(line))
            except ValueError: say(f'a line of {self.path.name} cannot be read: its passages are scored again')

    def score(self, query: str, passages) -> np.ndarray:
        keys = [hashlib.sha256(json.dumps([query, p.title, p.text]).encode()).hexdigest()[:20] for p in passages]
        new = {k: p for k, p in zip(keys, passages) if k not in self.known}
        if new:
            found = dict(zip(new, map(float, self.model.score(query, list(new.values())))))
            self.known |= found
            with open(self.path, 'a', encoding='utf-8') as f: f.write(json.dumps(found) + '\n')
        return np.array([self.known[k] for k in keys], dtype=np.float32)

    def alone(self):
        "The same, deciding alone."
        other = copy.copy(self)
        other.first = 0
        return other

    def describe(self) -> dict: return self.model.describe()


class Models:
    "The models under test and the one they were trained from, loaded when they are asked for."
    def __init__(self, a):
        self.a, self.loaded = a, {}
        self.folders = {'bi-encoder': Path(a.bi or shipped('bi-encoder') or 'none'),
                        'cross-encoder': Path(a.cross or shipped('cross-encoder') or 'none')}

    def _once(self, name, make):
        if name not in self.loaded: self.loaded[name] = make()
        return self.loaded[name]

    @property
    def plain(self): return self._once('plain', lambda: EmbeddedEncoder(model=MINILM))

    @property
    def bi(self): return self._once('bi', lambda: FastEncoder(self.folders['bi-encoder']))

    @property
    def cross(self) -> Kept: return self._once('cross', lambda: Kept(self.folders['cross-encoder'], self.a.max_tokens))

    @property
    def encoders(self) -> dict: return {'minilm': self.plain, 'shipped': self.bi}

    def described(self) -> dict:
        "What tells the models of this run from others."
        of = lambda model, **more: {'model': model.card.model, 'file': model.card.sha256['model.bin'], 'precision': model.card.precision,
                                    'max_tokens': model.max_tokens, 'runs_in': model.runs_in, **more}
        mb = lambda kind: round(sum(f.stat().st_size for f in self.folders[kind].iterdir()) / 1e6, 1)
        return {'bi-encoder': of(self.bi, mb=mb('bi-encoder')),
                'cross-encoder': of(self.cross.model, mb=mb('cross-encoder'), first=self.cross.first)}


# ---- documents: BioASQ by round

class BioASQ:
    "The questions with their rounds, and one library for each encoder."
    def __init__(self, a, models: Models):
        self.c, self.models = read_collection(a.data / 'bioasq_beir'), models
        with open(a.data / 'bioasq_beir' / 'queries.jsonl', encoding='utf-8') as f:
            self.round_of = {q['_id']: int(q['batch'].split('B')[0]) for q in map(json.loads, f)}
        relevant = lambda wanted: {d for q, grades in self.c.qrels.items() if (self.round_of[q] in TRAINED) == wanted for d,
                                   g in grades.items() if g > 0}
        self.trained, self.other = relevant(True), relevant(False)

        self.sample = a.questions
        self.source, self.content = self.c.corpus, self.c.corpus_checksum
        if self.sample: self._cut([q for r in range(7, 11) for q in self.asked([r])])

    def _cut(self, asked: list[str]):
        "For a sample: the relevant documents of its questions, and a few others."
        wanted = {d for q in asked for d, g in self.c.qrels[q].items() if g > 0}
        self.source = [d for n, d in enumerate(self.c.documents()) if d.id in wanted or n % 400 == 0]
        self.content = ' '.join(d.id for d in self.source)

    def asked(self, rounds) -> list[str]:
        return [q for r in rounds for q in some([q for q in self.c.queries if self.round_of[q] == r], self.sample)]

    def library(self, name: str):
        encoder = self.models.encoders[name]
        say(f'{name}: the library')
        build = lambda folder: build_index([self.source], folder, True, encoder, wait=600)
        return kept_library(file_name(self.c.name), made_of(self.content, SentenceSplitter(), True, encoder), build)

    def qa(self, name: str) -> CancerQA: return CancerQA(self.library(name), Finding(self.models.encoders[name], depth=DEPTH))

    def unseen(self, q: str) -> bool: return not any(g > 0 and d in self.trained for d, g in self.c.qrels[q].items())


def found_by(systems: dict, texts: dict[str, str]) -> dict[str, dict[str, list[Hit]]]:
    "System -> question -> its first ten documents."
    out: dict = {name: {} for name in systems}
    for n, (q, text) in enumerate(texts.items()):
        for name, (qa, way, reranker) in systems.items(): out[name][q] = qa.search(text, 10, way, reranker)
        if n % 50 == 49: say(f'{n + 1} of {len(texts)} questions')
    return out


def compared(values: dict, pairs, ids: list[str]) -> list[dict]:
    "Differences of pairs of systems, question by question, with p adjusted for all pairs of a measure."
    rows = [{'system': s, 'against': b, 'measures': {}} for s, b in pairs]
    for m in MEASURES:
        both = [[np.array([values[name][m][q] for q in ids]) for name in pair] for pair in pairs]
        p = {str(i): permutation(*x) for i, x in enumerate(both)}
        for i, adjusted in holm(p).items():
            rows[int(i)]['measures'][m] = {**told(paired_bootstrap(*both[int(i)])), 'p': round(p[i], 5), 'p, Holm': round(adjusted, 5)}
    return rows


def retrieval(a, models: Models) -> dict:
    data = BioASQ(a, models)
    plain, own = data.qa('minilm'), data.qa('shipped')
    systems = {'bm25': (plain, 'bm25', None), 'minilm dense': (plain, 'dense', None), 'minilm hybrid': (plain, 'hybrid', None),
               'dense': (own, 'dense', None),
               'hybrid': (own, 'hybrid', None), 'hybrid + reranker alone': (own, 'hybrid', models.cross.alone()),
               'hybrid + reranker': (own, 'hybrid', models.cross)}
    sets = {f'round {r}': data.asked([r]) for r in a.rounds}
    ids = [q for found in sets.values() for q in found]
    if set(TRAINED) <= set(a.rounds): sets[POOLED] = [q for q in ids if data.round_of[q] in TRAINED]
    if 10 in a.rounds: sets[UNSEEN] = [q for q in sets['round 10'] if data.unseen(q)]
    found = found_by(systems, {q: data.c.queries[q] for q in ids})
    values = {name: retrieval_values(hits, {q: data.c.qrels[q] for q in ids}, MEASURES) for name, hits in found.items()}
    rows, tests = [], []
    for name, asked in sets.items():
        if not asked: continue
        seen = {'questions': name, 'n': len(asked), 'trained_on': any(data.round_of[q] in TRAINED for q in asked)}
        rows += [{**seen, 'system': s, 'without_hits': sum(not found[s][q] for q in asked),
                  **{m: told(bootstrap([values[s][m][q] for q in asked])) for m in MEASURES}} for s in systems]
        tests += [{**seen, **row} for row in compared(values, PAIRS, asked)]
        say(f'{name}: ' + ', '.join(f'{r["system"]} {r["nDCG@10"]["value"]:.3f}' for r in rows if r['questions'] == name))
    return {'data': 'bioasq_beir', 'documents': len(own.library), 'passages': own.vectors.index.ntotal, 'depth': DEPTH,
            'first': models.cross.first,
            'relevant_of_round_10': len(data.other), 'of_these_relevant_in_rounds_7_to_9': len(data.other & data.trained),
            'interval': INTERVAL.format('questions'), 'tests_are': TEST, 'rows': rows, 'tests': tests}


# ---- passages: Evidence Inference within the article

def evidence_index(articles, name: str, encoder) -> PassageIndex:
    splitter = SentenceSplitter()
    content = hashlib.sha256(json.dumps([(d.id, d.title, d.text) for d in articles]).encode()).hexdigest()
    build = lambda folder: build_library([passage_documents(articles, splitter)], folder, [VectorPart(encoder, whole, splitter.describe())],
                                         wait=600)
    say(f'{name}: passages of {len(articles)} articles')
    return PassageIndex(kept_library('models-evidence', made_of(content, splitter, True, encoder), build), encoder)


def passages(a, models: Models) -> dict:
    m = read_marked(a.data / 'evidence_inference')
    asked = some([q for q in m.questions if part_of(q.gold_pmids[0]) == 'test'], a.questions)
    articles = [m.articles[id] for id in dict.fromkeys(q.gold_pmids[0] for q in asked)]
    plain, own = (evidence_index(articles, name, encoder) for name, encoder in models.encoders.items())
    passage = {d.id: passage_of(d) for d in own.library}
    first: dict[str, list[int]] = {}
    for number, q in enumerate(asked):
        article = q.gold_pmids[0]
        rank = lambda index, way: [h.id for h in index.rank(q.question, len(index.of[article]), way, article)]
        order = {'minilm dense': rank(plain, 'dense'), 'bm25': rank(plain, 'bm25'), 'minilm hybrid': rank(plain, 'hybrid'),
                 'dense': rank(own, 'dense'), 'hybrid': rank(own, 'hybrid')}
        every = order['hybrid'] + [id for id in own.of[article] if id not in order['hybrid']]
        scores = dict(zip(every, models.cross.score(q.question, [passage[id] for id in every])))
        best = lambda ids: sorted(ids, key=lambda id: -scores[id])   # equal ones keep their order
        order |= {'reranker of all': best(every), f'hybrid {DEPTH} + reranker': best(order['hybrid'][:DEPTH]) + order['hybrid'][DEPTH:]}
        for name, ids in order.items():
            first.setdefault(name, []).append(next((n for n, id in enumerate(ids, 1) if covers(passage[id], m.spans[q.id])), 0))
        if number % 50 == 49: say(f'{number + 1} of {len(asked)} questions')
    groups = [q.gold_pmids[0] for q in asked]
    values = {'Hits@5': {name: [float(0 < r <= 5) for r in ranks] for name, ranks in first.items()},
              'MRR@5': {name: [1 / r if 0 < r <= 5 else 0. for r in ranks] for name, ranks in first.items()}}
    rows = [{'system': name, 'n': len(asked), **{k: told(bootstrap(v[name], groups=groups)) for k, v in values.items()}} for name in first]
    say(', '.join(f'{r["system"]} {r["Hits@5"]["value"]:.3f}' for r in rows))
    return {'data': 'evidence_inference', 'articles': len(articles), 'questions': len(asked), 'passages': len(own.library),
            'passages_an_article': round(len(own.library) / len(articles), 1), 'fusion_k': own.rrf_k,
            'questions_without_a_passage': sum(r == 0 for r in first['dense']),
            'interval': INTERVAL.format('articles, each drawn with all its questions'),
            'tests_are': 'bootstrap over articles, Holm over all systems on one measure', 'rows': rows,
            'tests': by_group(values, groups, 'minilm dense')}


def by_group(values: dict, groups: list[str], base: str) -> list[dict]:
    "Each system against one of them, by the bootstrap over whole groups."
    rows: dict[str, dict] = {}
    for measure, by_system in values.items():
        found = paired_by_group({name: (v, by_system[base]) for name, v in by_system.items() if name != base}, groups)
        for name, p in holm({name: d.p for name, d in found.items()}).items():
            row = rows.setdefault(name, {'system': name, 'against': base, 'measures': {}})
            row['measures'][measure] = {**told(found[name].difference), 'p': round(found[name].p, 5), 'p, Holm': round(p, 5)}
    return list(rows.values())


# ---- general questions: MedQuAD

def ranked_values(ranks: list[int]) -> dict[str, list[float]]:
    "Rank of the first right answer, 0 for none -> one value a question and measure."
    return {'MRR@10': [1 / r if 0 < r <= 10 else 0. for r in ranks], 'Hit@1': [float(r == 1) for r in ranks],
            'Hit@5': [float(0 < r <= 5) for r in ranks]}


def general(a, models: Models) -> dict:
    groups = list(medquad_groups(a.data / 'medquad', held=True))
    asked, pool = some(groups, a.questions), list(dict.fromkeys(t for g in groups for t in g.positives))
    if a.questions: pool = [t for g in asked for t in g.positives] + pool[:60]
    pool = list(dict.fromkeys(pool))
    texts = {str(i): Passage(str(i), 0, len(t), t) for i, t in enumerate(pool)}
    right = [{str(i) for i in map(pool.index, g.positives)} for g in asked]
    place = lambda ids, good: next((n for n, id in enumerate(ids, 1) if id in good), 0)
    order: dict[str, list[list[str]]] = {}
    for name, encoder in models.encoders.items():
        matrix, queries = encoder.encode(pool, 'document'), encoder.encode([g.query for g in asked], 'query')
        order[name] = [list(map(str, np.argsort(-(matrix @ q), kind='stable')[:20])) for q in queries]
        say(f'{name}: {len(pool)} answers')
    measured = lambda ranks, keys, base: (
        [{'system': s, 'n': len(keys), **{m: told(bootstrap(v, groups=keys)) for m, v in ranked_values(r).items()}} for s,
         r in ranks.items()],
                                          by_group({m: {s: ranked_values(r)[m] for s, r in ranks.items()} for m in ranked_values([])}, keys,
                                                   base))
    ranks = {f'{name} dense': [place(ids, good) for ids, good in zip(found, right)] for name, found in order.items()}
    rows, tests = measured(ranks, [g.key for g in asked], 'minilm dense')
    few = some(list(range(len(asked))), RERANKED)
    second: dict[str, list[int]] = {'minilm dense': [ranks['minilm dense'][i] for i in few]}
    for name, reranker in (('minilm dense + reranker alone', models.cross.alone()), ('minilm dense + reranker', models.cross)):
        second[name] = [
            place(
                [
                    h.id
                    for h in rerank_documents(
                        asked[i].query,
                        [Hit(id, -n) for n, id in enumerate(order['minilm'][i])],
                        [texts[id] for id in order['minilm'][i]],
                        reranker,
                    )
                ],
                right[i],
            )
            for i in few
        ]
    second_rows, second_tests = measured(second, [asked[i].key for i in few], 'minilm dense')
    say(', '.join(f'{r["system"]} {r["MRR@10"]["value"]:.3f}' for r in rows + second_rows))
    return {'data': 'medquad, held-out topics', 'questions': len(asked), 'topics': len({g.key for g in asked}), 'answers': len(pool),
            'words_of_an_answer': 128,
            'interval': INTERVAL.format('topics, each drawn with all its questions'),
            'tests_are': 'bootstrap over topics, Holm over the systems on one measure',
            'rows': rows, 'tests': tests, 'reranked': {'questions': len(few), 'depth': 20, 'rows': second_rows, 'tests': second_tests}}


# ---- how much of a pair to read

def glued(library, question: str) -> list[Passage]:
    "Passages of `WORDS` words, made of the documents nearest to the question, and of any where these are too few."
    hits, words = TermRetriever(library).search([question], 4 * DEPTH)[0], []
    for d in chain(library.documents(h.id for h in hits), cycle(library)):
        if len(words) >= WORDS * DEPTH: break
        words += d.text.split()
    texts = [' '.join(words[WORDS * i:WORDS * (i + 1)]) for i in range(DEPTH)]
    return [Passage(str(i), 0, len(t), t) for i, t in enumerate(texts)]


def caps_of(models: Models) -> list[int]: return [c for c in CAPS if c <= models.cross.model.card.max_tokens]


def timing(a, models: Models) -> dict:
    data = BioASQ(a, models)
    library, networks = data.library('minilm'), {c: FastCrossEncoder(models.folders['cross-encoder'], c) for c in caps_of(models)}
    ms, tokens = {c: [] for c in networks}, {c: [] for c in networks}
    for number, q in enumerate(some(data.asked([10]), TIMED + 2)):
        made, text = glued(library, data.c.queries[q]), data.c.queries[q]
        for cap, network in networks.items():   # they take turns
            start = time.perf_counter()
            network.score(text, made)
            took = (time.perf_counter() - start) * 1000
            if number < 2: continue   # two to warm up
            ms[cap].append(took)
            tokens[cap].append(
                float(
                    np.mean(
                        [len(p.ids) for p in encode_pairs(network.tokenizer, text, [pair_text(p, network.card.titles) for p in made], cap)]
                    )
                )
            )
    rows = [{'max_tokens': c, 'questions': len(ms[c]), **quantiles(ms[c]), 'fastest': round(min(ms[c]), 1),
             'tokens_a_pair': round(float(np.mean(tokens[c])), 1)} for c in networks]
    say(', '.join(f'{r["max_tokens"]}: {r["p50"]:.0f} ms' for r in rows))
    return {'passages': DEPTH, 'words': WORDS, 'load_average_at_end': [round(x, 1) for x in os.getloadavg()], 'rows': rows}


def caps(a, models: Models) -> dict:
    data = BioASQ(a, models)
    own, asked = data.qa('shipped'), data.asked([10])
    rerankers = {c: Kept(models.folders['cross-encoder'], c) for c in caps_of(models)}
    found = found_by({str(c): (own, 'hybrid', r) for c, r in rerankers.items()}, {q: data.c.queries[q] for q in asked})
    values = {c: retrieval_values(hits, {q: data.c.qrels[q] for q in asked}, MEASURES) for c, hits in found.items()}
    most = str(max(rerankers))
    one = lambda c, m: [values[c][m][q] for q in asked]
    rows = [{'max_tokens': int(c), 'n': len(asked), **{m: told(bootstrap(one(c, m))) for m in MEASURES},
             'against_the_most': {m: told(paired_bootstrap(one(c, m), one(most, m))) for m in MEASURES}} for c in found]
    say(', '.join(f'{r["max_tokens"]}: {r["nDCG@10"]["value"]:.3f}' for r in rows))
    return {'data': 'bioasq_beir, round 10', 'depth': DEPTH, 'first': models.cross.first, 'interval': INTERVAL.format('questions'),
            'rows': rows}


# ---- what eight bits cost

def whole_numbers(a, models: Models) -> dict:
    "The trained weights in 32 bits, made ready as the shipped ones were."
    out = {}
    for kind, folder, load, ready in (('bi-encoder', a.trained_bi, FastEncoder, prepare_encoder),
                                      ('cross-encoder', a.trained_cross, FastCrossEncoder, prepare_cross_encoder)):
        if not folder: continue
        short = models.bi if kind == 'bi-encoder' else models.cross.model
        digest = hashlib.sha256((Path(folder) / 'model.safetensors').read_bytes()).hexdigest()[:12]
        to, more = cache_dir() / 'models' / f'benchmark-{kind}-{digest}-f32', {
            'titles': short.card.titles} if kind == 'cross-encoder' else {}
        if not (to / 'card.json').is_file(): ready(folder, to, 'f32', max_tokens=short.card.max_tokens, **more)
        out[kind] = load(to, short.max_tokens)
    if not out: raise SystemExit('short needs --trained-bi or --trained-cross: the folders that training wrote')
    return out


def short(a, models: Models) -> dict:
    from scipy.stats import spearmanr
    data, exact = BioASQ(a, models), whole_numbers(a, models)
    own, asked = data.qa('shipped'), some(data.asked([10]), 100)
    score = {kind: {'32 bits': f, 'shipped': s} for kind, f,
             s in [(k, _scorer(k, exact[k]), _scorer(k, models.bi if k == 'bi-encoder' else models.cross)) for k in exact]}
    rho, hits = {kind: [] for kind in exact}, {kind: {form: {} for form in ('32 bits', 'shipped')} for kind in exact}
    for q in asked:
        text = data.c.queries[q]
        first = own.search(text, DEPTH, 'hybrid')
        candidates, _ = TwoStage(own.vectors).candidates(own.library.documents(h.id for h in first))
        for kind, forms in score.items():
            s = {form: f(text, candidates) for form, f in forms.items()}
            rho[kind].append(float(spearmanr(s['32 bits'], s['shipped'])[0]))
            for form, values in s.items():
                best: dict[str, float] = {}
                for p, v in zip(candidates, values): best[p.doc_id] = max(best.get(p.doc_id, -np.inf), float(v))
                hits[kind][form][q] = [Hit(d, v) for d, v in sorted(best.items(), key=lambda x: -x[1])]
    rows = []
    for kind in exact:
        ndcg = {form: list(retrieval_values(found, {q: data.c.qrels[q] for q in asked}, ['nDCG@10'])['nDCG@10'].values()) for form,
                found in hits[kind].items()}
        card = models.bi.card if kind == 'bi-encoder' else models.cross.model.card
        rows.append({'kind': kind, 'n': len(asked), 'same_weights': exact[kind].card.weights == card.weights,
                     'spearman': round(float(np.mean(rho[kind])), 4), 'spearman_lowest': round(min(rho[kind]), 4),
                     **{f'nDCG@10, {form}': told(bootstrap(v)) for form, v in ndcg.items()},
                     'shipped_less_32_bits': told(paired_bootstrap(ndcg['shipped'], ndcg['32 bits']))})
    say(str(rows))
    return {'data': f'bioasq_beir, round 10, the passages of the first {DEPTH} documents, ordered by the score alone',
            'interval': INTERVAL.format('questions'), 'rows': rows}


def _scorer(kind: str, model):
    if kind == 'cross-encoder': return model.score
    return lambda text, found: model.encode([f'{p.title} {p.text}'.strip() for p in found]) @ model.encode([text], 'query')[0]


# ---- one file

def figures(parts: dict) -> dict[str, list[Measured]]:
    "What the cards of the two models say of them, of the parts that were measured on all questions."
    out: dict[str, list[Measured]] = {'bi-encoder': [], 'cross-encoder': []}
    wanted = {'retrieval': (('nDCG@10', 'R@10', 'MRR@10'), 'BioASQ round 10, on which choices were looked at',
                            {'dense': 'bi-encoder', 'hybrid': 'bi-encoder', 'hybrid + reranker alone': 'cross-encoder',
                             'hybrid + reranker': 'cross-encoder'}),
              'passages': (('Hits@5',), 'within an article, Evidence Inference, articles not trained on',
                           {'minilm dense': 'bi-encoder', 'dense': 'bi-encoder', 'hybrid': 'bi-encoder',
                            'reranker of all': 'cross-encoder'}),
              'general': (('MRR@10',), 'MedQuAD, topics not trained on', {'minilm dense': 'bi-encoder', 'shipped dense': 'bi-encoder'})}
    for part, (measures, where, systems) in wanted.items():
        if part not in parts or parts[part]['sample']: continue
        for row in parts[part]['rows']:
            if row['system'] not in systems or row.get('questions', 'round 10') != 'round 10': continue
            out[systems[row['system']]] += [Measured(f'{m}, {where}: {row["system"]}', row[m]['value'], row['n'],
                                                     *row[m]['interval']) for m in measures]
    return out


DO = {'retrieval': retrieval, 'passages': passages, 'general': general, 'time': timing, 'caps': caps, 'short': short}
USES = {name: ('cross-encoder',) if name == 'time' else ('bi-encoder', 'cross-encoder') for name in PARTS}


def before(path: Path, described: dict) -> dict:
    "The parts of the result file that were measured with these models."
    parts = json.loads(path.read_text(encoding='utf-8')).get('parts', {}) if path.exists() else {}
    kept = {name: part for name, part in parts.items() if name in DO
            and all(part['models'][kind] == described[kind] for kind in USES[name])}
    for name in parts.keys() - kept.keys(): say(f'the part {name} was measured with other models and is taken out: measure it again')
    return kept


def joined(old: dict | None, new: dict) -> dict:
    "A part with those sets of questions that were measured before and not now. A sample is not mixed with anything."
    if not old or old['sample'] or new['sample']: return new
    measured = {row['questions'] for row in new['rows']}
    rest = {key: [row for row in old[key] if row['questions'] not in measured] for key in ('rows', 'tests')}
    return {**new, **{key: rest[key] + new[key] for key in rest},
            'commands_before': sorted({*old.get('commands_before', []), old['command']} - {new['command']}) if rest['rows'] else []}


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument('--data', type=Path, default=DATA)
    ask.add_argument('--only', default='retrieval,passages,general,time,caps', help='parts, with commas between')
    ask.add_argument('--rounds', default='7,8,9,10', help='of BioASQ')
    for name in ('bi', 'cross', 'trained-bi', 'trained-cross'): ask.add_argument(f'--{name}', help='folder')
    ask.add_argument('--max-tokens', type=int, help='that the reranker reads of a pair; none is what its card says')
    ask.add_argument('--questions', type=int, help='so many for each part, to try it')
    ask.add_argument('--name', default='models', help='of the result')
    ask.add_argument('--cards', action='store_true',
                     help='measure nothing: write the figures of the result file on the cards of the models')
    a = ask.parse_args()
    a.rounds = sorted({int(r) for r in a.rounds.split(',')})
    wanted = [p.strip() for p in a.only.split(',')]
    if unknown := [p for p in wanted if p not in DO]: raise SystemExit(f'{unknown[0]!r} is no part: choose among {", ".join(PARTS)}')
    models, path = Models(a), RESULTS / f'{a.name}.json'
    described = models.described()
    if a.cards:
        for kind, found in figures(before(path, described)).items(): with_figures(models.folders[kind], found)
        return
    for name in wanted:
        start, load = time.monotonic(), [round(x, 1) for x in os.getloadavg()]
        say(f'{name} begins')
        part = {'command': ' '.join(['python', *sys.argv]), 'date': date.today().isoformat(), 'sample': a.questions,
                'load_average_at_start': load, 'models': {kind: described[kind] for kind in USES[name]}, **DO[name](a, models)}
        part['seconds'] = round(time.monotonic() - start)
        parts = before(path, described)
        parts[name] = joined(parts.get(name), part) if name == 'retrieval' else part
        save(a.name, {'models': described, 'parts': {p: parts[p] for p in PARTS if p in parts}}, (*PACKAGES, 'ir-measures', 'scipy'))


if __name__ == '__main__': main()
