"""How long does a warm `CancerQA.ask` take, stage by stage?

    python benchmarks/ask_latency.py LIBRARY [--questions 100]

100 questions of BioASQ, drawn with a fixed seed, after 5 others to warm up; depth 50.
The reference, in the same run: embedding the candidate passages at question time, as systems without stored passage vectors must.
"""
import argparse
import random
import time

from common import bioasq_questions, quantiles, save

from cpqa import CancerQA
from cpqa.passages.rerankers import CosineReranker
from cpqa.passages.two_stage import TwoStage


def main(folder: str, n: int):
    qa = CancerQA(folder)
    drawn = [q['text'] for q in random.Random(0).sample(bioasq_questions(), n + 5)]
    for question in drawn[:5]: qa.ask(question)
    totals, stages, live, abstained, passages = [], {}, [], 0, []
    stage, reranker = TwoStage(qa.vectors), CosineReranker(qa.encoder)
    for question in drawn[5:]:
        start = time.perf_counter()
        answer = qa.ask(question)
        totals.append((time.perf_counter() - start) * 1000)
        abstained += answer.abstained
        for name, ms in answer.timings_ms.items(): stages.setdefault(name, []).append(ms)
        found, _ = stage.candidates(qa.library.documents(h.id for h in qa.search(question, qa.finding.depth)))
        passages.append(len(found))
        start = time.perf_counter()
        reranker.score(question, found)
        live.append((time.perf_counter() - start) * 1000)
    save('ask_latency', {
        'library': f'{len(qa.library):,} documents', 'n': n, 'depth': qa.finding.depth, 'unit': 'ms', 'total': quantiles(totals),
        'stages': {name: quantiles(ms) for name, ms in stages.items()}, 'abstained': abstained,
        'candidate_passages': quantiles(passages),
        'reference_embedding_the_candidates_live': quantiles(live),
        'ratio_reference_to_rank_passages_p50': round(quantiles(live)['p50'] / quantiles(stages['rank_passages'])['p50'], 1)})


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('library')
    p.add_argument('--questions', type=int, default=100)
    a = p.parse_args()
    main(a.library, a.questions)
