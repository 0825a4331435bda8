"""What did each choice of the training buy? Small trainings of equal length that differ in one thing, measured on the same questions.

    python benchmarks/training_choices.py --made DIR [--kind cross-encoder|bi-encoder] [--only NAME,NAME] [--steps N] [--questions N]

DIR is what benchmarks/train_models.py wrote: its groups are trained on, its bi-encoder is the base of the cross-encoders and finds what
they order. A cross-encoder orders the first 50 documents of hybrid search; a bi-encoder orders the documents that BM25 and the plain model
found for any of the questions (their first 50 by each) and the relevant ones, which is easier than all documents, but the same for all.
nDCG@10 on BioASQ's round 10, every n-th question. A variant that is in the result file already is passed over, so a run that was stopped
goes on; each has its seconds and its curve.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, RESULTS, save
from msgspec.structs import replace

from cpqa.core.records import Hit, Passage
from cpqa.core.storage import cache_dir
from cpqa.evaluation.collections import read_collection
from cpqa.evaluation.metrics import retrieval_values
from cpqa.evaluation.tables import file_name, made_of
from cpqa.evaluation.statistics import bootstrap, paired_bootstrap, permutation
from cpqa.libraries import build_index, kept_library
from cpqa.passages.cross_encoders import EmbeddedCrossEncoder, FastCrossEncoder, prepare_cross_encoder
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.passages.two_stage import rerank_documents
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder, FastEncoder, prepare_encoder
from cpqa.retrieval.vectors import DenseRetriever, Vectors, embedded_text
from cpqa.training.networks import train_bi_encoder, train_cross_encoder
from cpqa.training.examples import Group
from cpqa.training.recipe import BI_ENCODER, CROSS_ENCODER, MADE_BEFORE

NAME, ROUND, DEPTH, POOL = 'training_choices', '10', 50, 50
STEPS = {'cross-encoder': 160, 'bi-encoder': 32}


def without_negatives(groups): return [replace(g, negatives=()) for g in groups]


def only(*sources): return lambda groups: [g for g in groups if g.source in sources]


# what is said of a variant, the settings that differ, and what is done to the groups
VARIANTS = {
    'cross-encoder': {
        'as shipped': ('the recipe, but short', {}, None),
        'from the plain model': ('starts from all-MiniLM-L6-v2, not from the bi-encoder', {'base': ''}, None),
        'negatives by chance': ('answers to other questions in the place of what the search found', {}, without_negatives),
        'pointwise': ('each pair alone is right or wrong (binary cross-entropy)', {'loss': 'bce'}, None),
        'LoRA': ('a change of rank 16 in the place of all weights, at ten times the rate', {'lora': 16, 'learning_rate': 8e-4}, None),
        'six layers': ('all six layers, not the first four', {'layers': 0}, None),
    },
    'bi-encoder': {
        'as shipped': ('the recipe, but short', {}, None),
        'negatives by chance': ('only the answers to the other questions of a step', {'texts': 1}, without_negatives),
        'BioASQ alone': ('without titles, PubMedQA, Evidence Inference and MedQuAD', {}, only('bioasq')),
        'LoRA': ('a change of rank 16 in the place of all weights, at ten times the rate', {'lora': 16, 'learning_rate': 5e-4}, None),
    }}


def say(text: str, begun: float = time.monotonic()): print(f'{time.monotonic() - begun:7.0f} s  {text}', file=sys.stderr, flush=True)


class Asked:
    "Every n-th question of the round, and what the first stages find for it."
    def __init__(self, a):
        self.c, data = read_collection(a.data / 'bioasq_beir'), a.data / 'bioasq_beir' / 'queries.jsonl'
        with open(data, encoding='utf-8') as f: ids = [q['_id'] for q in map(json.loads, f) if q['batch'].partition('B')[0] == ROUND]
        self.ids = [ids[i * len(ids) // a.questions] for i in range(a.questions)] if a.questions < len(ids) else ids
        self.questions, self.documents = [self.c.queries[q] for q in self.ids], {d.id: d for d in self.c.documents()}
        self.encoders = {'plain': EmbeddedEncoder(model=MINILM), 'made': FastEncoder(a.made / 'bi-encoder')}

    def vectors(self, name: str) -> Vectors:
        encoder = self.encoders[name]
        return Vectors(kept_library(file_name(self.c.name), made_of(self.c.corpus_checksum, SentenceSplitter(), True, encoder),
                                    lambda folder: build_index([self.c.corpus], folder, encoder=encoder)), encoder)

    def values(self, ranked: dict[str, list[Hit]]) -> np.ndarray:
        "nDCG@10 of each question."
        found = retrieval_values(ranked, {q: self.c.qrels[q] for q in self.ids}, ['nDCG@10'])['nDCG@10']
        return np.array([found[q] for q in self.ids])


def cross_values(asked: Asked, folder: Path, out: Path) -> dict[str, np.ndarray]:
    "nDCG@10 of each question: by the cross-encoder alone, and with the first stage."
    model = FastCrossEncoder(prepare_cross_encoder(folder, out, 'w8', titles=True, max_tokens=160))
    qa = CancerQA(asked.vectors('made').library, Finding(asked.encoders['made'], depth=DEPTH))
    alone, both = {}, {}
    for id, question in zip(asked.ids, asked.questions):
        hits = qa.search(question, DEPTH, 'hybrid')
        passages = [Passage.of(d, 0, len(d.text)) for d in (asked.documents[h.id] for h in hits) if d.text]
        kept = Scores(dict(zip([p.doc_id for p in passages], model.score(question, passages))))
        alone[id], both[id] = rerank_documents(question, hits, passages,
                                               kept), rerank_documents(question, hits, passages, kept.beside(EmbeddedCrossEncoder.first))
    return {'alone': asked.values(alone), 'with the first stage': asked.values(both)}


class Scores:
    "Scores that are known already, as a reranker; `first` is the weight of the first stage beside them."
    def __init__(self, known: dict, first: float = 0.0): self.known, self.first = known, first
    def beside(self, first: float): return Scores(self.known, first)
    def score(self, query: str, passages) -> np.ndarray: return np.array([self.known[p.doc_id] for p in passages], dtype=np.float32)
    def describe(self) -> dict: return {'reranker': 'known'}


def bi_values(asked: Asked, folder: Path, out: Path) -> dict[str, np.ndarray]:
    "nDCG@10 of each question by the cosine alone, among what was found for any."
    encoder, plain = FastEncoder(prepare_encoder(folder, out, 'w8', max_tokens=256)), asked.vectors('plain')
    found = [hits for search in (TermRetriever(plain.library), DenseRetriever(plain)) for hits in search.search(asked.questions, POOL)]
    pool = sorted({h.id for hits in found for h in hits} | {d for q in asked.ids for d,
                                                            grade in asked.c.qrels[q].items() if grade > 0 and d in asked.documents})
    texts = encoder.encode([embedded_text(asked.documents[i].title, asked.documents[i].text) for i in pool])
    near = encoder.encode(asked.questions, 'query') @ texts.T
    return {'alone': asked.values({q: [Hit(pool[i], float(row[i])) for i in np.argsort(-row, kind='stable')[:10]] for q,
                                   row in zip(asked.ids, near)})}


def measure(kind: str, name: str, a, asked: Asked) -> tuple[dict, dict[str, np.ndarray]]:
    about, knobs, change = VARIANTS[kind][name]
    recipe = (CROSS_ENCODER if kind == 'cross-encoder' else BI_ENCODER).with_knobs(**knobs, max_steps=a.steps or STEPS[kind], log_every=10,
        save_every=100)
    settings = replace(recipe.settings,
                       base=str(a.made / 'work' / 'bi-encoder')) if recipe.settings.base == MADE_BEFORE else recipe.settings
    groups = [Group.from_json(line) for line in (a.made / 'work' / f'groups-{kind}' / 'groups.jsonl').read_text().splitlines()]
    work = cache_dir() / 'choices' / f'{kind}-{name.replace(" ", "-")}-{settings.max_steps}'
    start = time.perf_counter()
    trained = (train_cross_encoder if kind == 'cross-encoder' else train_bi_encoder)(change(groups) if change else groups, work, settings)
    seconds = time.perf_counter() - start
    values = (cross_values if kind == 'cross-encoder' else bi_values)(asked, work, work.with_name(f'{work.name}-w8'))
    return {'about': about, 'knobs': knobs, 'steps': trained.steps, 'groups': trained.groups, 'seconds': round(seconds, 1),
            'curve': [[p.step, round(p.loss, 4)] for p in trained.curve if p.loss is not None]}, values


def told(values: dict[str, np.ndarray], against: dict[str, list] | None) -> dict:
    out = {}
    for how, v in values.items():
        i = bootstrap(v)
        out[how] = {'value': round(i.value, 4), 'interval': [round(i.low, 4), round(i.high, 4)]}
        if against:
            d, p = paired_bootstrap(v, np.array(against[how])), permutation(v, np.array(against[how]))
            out[how] |= {'difference': round(d.value, 4), 'of': [round(d.low, 4), round(d.high, 4)], 'p': round(p, 4)}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--made', type=Path, required=True)
    parser.add_argument('--data', type=Path, default=DATA)
    parser.add_argument('--kind', choices=tuple(VARIANTS), nargs='*', default=list(VARIANTS))
    parser.add_argument('--only', default='')
    parser.add_argument('--steps', type=int, default=0)
    parser.add_argument('--questions', type=int, default=162)
    a = parser.parse_args()
    a.made = a.made.resolve()
    file, asked = RESULTS / f'{NAME}.json', Asked(a)
    made_from = json.loads((a.made / 'made.json').read_text())['models']
    says = {'made from': {kind: m['trained']['weights'] for kind, m in made_from.items()}, 'questions': len(asked.ids)}
    there = json.loads(file.read_text()) if file.is_file() else {}
    rows = there.get('variants', {}) if all(there.get(k) == v for k, v in says.items()) else {}
    each = cache_dir() / 'choices' / 'values.json'
    kept = json.loads(each.read_text()) if rows and each.is_file() else {}
    for kind in a.kind:
        for name in VARIANTS[kind]:
            if a.only and name not in a.only.split(',') or name in rows.get(kind, {}): continue
            say(f'{kind}: {name}')
            row, values = measure(kind, name, a, asked)
            kept.setdefault(kind, {})[name] = {how: v.tolist() for how, v in values.items()}
            rows.setdefault(kind, {})[name] = row | {'nDCG@10': told(values,
                                                                     kept[kind].get('as shipped') if name != 'as shipped' else None)}
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_text(json.dumps(kept))
            save(NAME, {**says, 'round': int(ROUND), 'variants': rows, 'interval': '95 %, bootstrap over questions',
                        'test': 'sign-flip permutation against "as shipped", no correction'}, PACKAGES)
            say(json.dumps(rows[kind][name]['nDCG@10']))


if __name__ == '__main__': main()
