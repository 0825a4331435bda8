"""Where does passage search stand? Hits@5 and MRR@5 on the physicians' marks of Evidence Inference, within the article and in all of them.

    python benchmarks/passage_quality.py

A passage counts when it covers at least half of a marked span. Vectors are those of the embedded model; nothing was tuned on these questions.
Whole articles are resampled for the intervals. Longer passages cover more, so beside the measures stand the mean words of a passage that was returned and,
within the article, what a random order of its passages would have.
"""
from itertools import product

from common import DATA, save

from cpqa.evaluation.tasks import evaluate_passages

SYSTEMS = [('sentences', 'bm25', None), ('sentences', 'dense', None), ('sentences', 'hybrid', None), ('sentences', 'hybrid', 'bm25'), ('fixed', 'bm25', None)]


def main():
    rows = []
    for scope, (segmenter, retriever, reranker) in product(('article', 'global'), SYSTEMS):
        r = evaluate_passages(DATA / 'evidence_inference', segmenter, retriever, reranker, scope=scope)
        rows.append({'scope': scope, 'segmenter': segmenter, 'retriever': retriever, 'reranker': reranker or 'none', 'n': r['n_questions'],
                     'failed': r['n_failed'], 'passages': r['n_passages'], 'words_per_passage': r['words_per_passage'], **r['measures'], 'chance': r['chance']})
    save('passage_quality', {'data': 'evidence_inference', 'articles': r['n_articles'], 'depth': 50, 'interval': r['interval'], 'rows': rows})


if __name__ == '__main__': main()
