"""How many passages of fifty full texts must the cross-encoder read, and who picks them?

    python benchmarks/passage_budget.py LIBRARY [--read 24] [--kept FILE]

Evidence Inference: one question of each article whose part is 'dev' (drawn with a fixed seed); the library holds these articles and is
built where it is not there. Hybrid search finds fifty of them, and all their passages are candidates. A passage counts as marked if it
covers half of a span that physicians marked for the question, in the question's own article. Kept: the share of the marked passages that
are among those picked, and the share of questions with one at least, for several judges (words: BM25 over the candidates, with their
titles; meaning: the cosine; place: the rank of the document) and two constants of the fusion; 'no place kept' leaves no room to the best
passage of each document. Read: the first `read` questions; the cross-encoder reads the 300 passages picked first (a smaller number is
their beginning), and its score and the document's rank order them as in an answer; Hits@k: a marked passage is among the first k.
`kept` keeps the candidates of a run for the next.
"""
import argparse
import json
import random
from pathlib import Path

import numpy as np
from common import DATA, PACKAGES, interval, save

from cpqa import CancerQA
from cpqa.core.records import Passage
from cpqa.evaluation.collections import read_marked
from cpqa.evaluation.metrics import covers
from cpqa.evaluation.passages import part_of
from cpqa.libraries import build_index
from cpqa.passages.cross_encoders import EmbeddedCrossEncoder
from cpqa.passages.rerankers import BM25Reranker
from cpqa.passages.two_stage import TwoStage, picked, with_first

BUDGETS = (50, 75, 100, 150, 200, 300)
DEPTH, FIRST = 50, (1, 3, 10)
WAYS = {'words': ('terms',), 'meaning': ('cos',), 'words, meaning': ('terms', 'cos'), 'words, meaning, place': ('terms', 'cos', 'doc')}


def asked(marked) -> list:
    "One question of each article, in a random order."
    of: dict[str, list] = {}
    for q in marked.questions:
        if part_of(q.gold_pmids[0]) == 'dev': of.setdefault(q.gold_pmids[0], []).append(q)
    drawn, articles = random.Random(0), sorted(of)
    drawn.shuffle(articles)
    return [drawn.choice(of[a]) for a in articles]


def found(qa, stage, marked, q) -> dict:
    "The candidates for a question: where each stands, what each judge says, and which are marked."
    documents = list(qa.library.documents(h.id for h in qa.search(q.question, DEPTH)))
    passages, rows = stage.candidates(documents)
    place, article, spans = {d.id: n for n, d in enumerate(documents)}, q.gold_pmids[0], marked.spans[q.id]
    return {'id': q.id, 'question': q.question, 'spans': [(p.doc_id, p.start, p.end) for p in passages],
            'doc': np.array([place[p.doc_id] for p in passages]), 'terms': BM25Reranker().score(q.question, passages),
            'cos': qa.vectors.of_rows(rows) @ qa.encoder.encode([q.question], 'query')[0],
            'gold': np.array([p.doc_id == article and covers(p, spans) for p in passages])}


def in_order(c: dict, judges, k: int, keep: bool) -> np.ndarray:
    "All candidates in the order in which a budget takes them."
    ranks = lambda v: np.argsort(np.argsort(-v, kind='stable'), kind='stable') + 1
    value = sum(1 / (k + (c['doc'] + 1 if j == 'doc' else ranks(c[j]))) for j in judges)
    order = np.argsort(-value, kind='stable')
    if not keep: return order
    best = {c['doc'][i]: i for i in order[::-1]}   # the last one set is the best
    first = [best[d] for d in sorted(best)]
    return np.array(first + [i for i in order if best[c['doc'][i]] != i])


def kept(candidates: list[dict]) -> list[dict]:
    "A row for each way and budget."
    out = []
    for name, judges in WAYS.items():
        for k, keep in ((5, True), (60, True), (5, False)):
            orders = [in_order(c, judges, k, keep) for c in candidates]
            for budget in BUDGETS:
                marks = [c['gold'][o[:budget]] for c, o in zip(candidates, orders)]
                share = [m.sum() / max(1, c['gold'].sum()) for m, c in zip(marks, candidates)]
                out.append({'picked_by': name, 'k': k, 'best_of_each_document': keep, 'budget': budget,
                            'marked_kept': round(float(np.mean(share)), 4), 'interval': interval(share),
                            'questions_with_one': round(float(np.mean([m.any() for m in marks])), 4)})
    return out


def read(library, candidates: list[dict]) -> list[dict]:
    "A row for each budget: what is first after the cross-encoder."
    reranker, orders, most = EmbeddedCrossEncoder(), {}, max(BUDGETS)
    for n, c in enumerate(candidates):
        order = in_order(c, WAYS['words, meaning, place'], 5, True)[:most]
        for budget in BUDGETS: assert sorted(order[:budget]) == _by_cpqa(c, budget)
        documents = {d.id: d for d in library.documents(dict.fromkeys(c['spans'][i][0] for i in order))}
        scores = reranker.score(c['question'], [Passage.of(documents[id], a, b) for id, a, b in (c['spans'][i] for i in order)])
        for budget in BUDGETS:
            some = np.sort(order[:budget])
            at = np.array([{i: s for i, s in zip(order, scores)}[i] for i in some])
            orders[n, budget] = some[np.argsort(-with_first(at, c['doc'][some] + 1, reranker.first), kind='stable')]
        print(n + 1, 'questions read', flush=True)
    out = []
    for budget in BUDGETS:
        row = {'budget': budget, 'n': len(candidates)}
        for k in FIRST:
            hits = [float(c['gold'][orders[n, budget][:k]].any()) for n, c in enumerate(candidates)]
            row[f'Hits@{k}'] = {'mean': round(float(np.mean(hits)), 4), 'interval': interval(hits)}
        same = [len({*orders[n, budget][:10]} & {*orders[n, most][:10]}) / 10 for n in range(len(candidates))]
        out.append(row | {'first_ten_as_with_most': round(float(np.mean(same)), 4)})
    return out


def _by_cpqa(c: dict, budget: int) -> list[int]:
    return picked([Passage(id, a, b, 'x' * (b - a)) for id, a, b in c['spans']], [c['terms'], c['cos']], budget)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument('library', type=Path)
    ask.add_argument('--read', type=int, default=24)
    ask.add_argument('--kept', type=Path)
    args = ask.parse_args()
    marked = read_marked(DATA / 'evidence_inference')
    if not args.library.exists(): build_index([[a for a in marked.articles.values() if part_of(a.id) == 'dev']], args.library)
    qa = CancerQA(args.library)
    if args.kept and args.kept.exists(): candidates = json.loads(args.kept.read_text())
    else:
        stage = TwoStage(qa.vectors)
        candidates = [found(qa, stage, marked, q) for q in asked(marked)]
        if args.kept: args.kept.write_text(json.dumps(candidates, default=np.ndarray.tolist))
    candidates = [{k: np.array(v) if k in ('doc', 'terms', 'cos', 'gold') else v for k, v in c.items()} for c in candidates]
    save('passage_budget', {
        'data': "evidence_inference, articles of the part 'dev'", 'n': len(candidates), 'documents': len(qa.library), 'depth': DEPTH,
        'candidate_passages_p50': float(np.median([len(c['cos']) for c in candidates])),
        'interval': '95 %, bootstrap over questions, one an article', 'reranker': EmbeddedCrossEncoder().describe(),
        'kept': kept(candidates), 'read': read(qa.library, candidates[:args.read])}, PACKAGES)


if __name__ == '__main__': main()
