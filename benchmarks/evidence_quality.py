"""How often does the evidence come from a relevant document, and when is a question declined?

    python benchmarks/evidence_quality.py LIBRARY

On all questions of bioasq_beir, depth 50. Passages: the share of the first 1, 3 and 10 that come from a document that experts marked as
relevant, for several second stages; a missing passage counts as not relevant. And how many questions are answered among a few that no
medical library can answer. The quotes of the reader are measured by reading.py and answers.py.
"""
import csv
import sys

import numpy as np
from common import DATA, bioasq_questions, interval, save
from rank_bm25 import BM25Okapi, BM25Plus

from cpqa import CancerQA
from cpqa.core.records import Hit
from cpqa.core.text_analysis import ENGLISH
from cpqa.passages.two_stage import TwoStage
from cpqa.retrieval.term_search import reciprocal_rank_fusion
from cpqa.retrieval.vectors import embedded_text

OFF_TOPIC = ('How do I bake sourdough bread?', 'What is the capital of France?', 'Who won the 1998 football world cup?',
             'How do I change a bicycle tyre?',
             'What is the best laptop for students?', 'Is it going to rain tomorrow?', 'How do I train a puppy?',
             'Explain quantum entanglement.',
             'What are good names for a cat?', 'How much is a flight to Rome?', 'asdf qwer zxcv', 'Hello', 'What does my horoscope say?',
             'When was the Eiffel tower built?', 'How can I fix a leaking tap?', 'What is a list comprehension in Python?',
             'What is a blockchain?',
             'Where is the best pizza in Naples?', 'How do I open a game of chess?', 'Which shares should I buy?')


def relevant() -> dict[str, set]:
    out: dict[str, set] = {}
    with open(DATA / 'bioasq_beir' / 'qrels' / 'test.tsv') as f:
        for row in csv.DictReader(f, delimiter='\t'): out.setdefault(row['query-id'], set()).add(row['corpus-id'])
    return out


def order(scores) -> list[Hit]: return [Hit(str(i), 0.0) for i in np.argsort(-np.asarray(scores), kind='stable')]


def fused(*rankings, k: float = 60) -> list[int]: return [int(h.id) for h in reciprocal_rank_fusion(rankings, k)]


def stages(question: str, passages, cosines) -> dict[str, list[int]]:
    "The candidates in the order of each second stage."
    terms = [ENGLISH.analyze(embedded_text(p.title, p.text)) for p in passages]
    query = list(dict.fromkeys(ENGLISH.analyze(question)))
    okapi, plus = (order(form(terms).get_scores(query)) for form in (BM25Okapi, BM25Plus))
    dense, first = order(cosines), [Hit(str(i), 0.0) for i in range(len(passages))]
    return {'first stage alone': fused(first), 'cosine alone': fused(dense), 'okapi + cosine': fused(okapi, dense),
            'bm25+ + cosine': fused(plus, dense),
            'bm25+ + cosine + first stage (cpqa)': fused(plus, dense, first)}


def share(owners: list[str], gold: set, n: int) -> float: return sum(o in gold for o in owners[:n]) / n


def main(folder: str):
    qa, gold, questions = CancerQA(folder), relevant(), bioasq_questions()
    stage, rows = TwoStage(qa.vectors), {}
    for q in questions:
        vector = qa.encoder.encode([q['text']], 'query')[0]
        documents = {d.id: d for d in qa.library.documents(h.id for h in qa.search(q['text'], qa.finding.depth))}
        passages, found = stage.candidates(list(documents.values()))
        for name, indices in stages(q['text'], passages, qa.vectors.of_rows(found) @ vector).items():
            owners = [passages[i].doc_id for i in indices]
            for n in (1, 3, 10): rows.setdefault(name, {}).setdefault(n, []).append(share(owners, gold[q['_id']], n))
    summary = lambda v: {'mean': round(float(np.mean(v)), 4), 'interval': interval(v)}
    save('evidence_quality', {
        'data': 'bioasq_beir', 'n': len(questions), 'depth': qa.finding.depth,
        'interval': '95 %, bootstrap over questions, 10,000 resamples',
        'passages_from_relevant_documents': {name: {f'P@{n}': summary(v) for n, v in by_n.items()} for name, by_n in rows.items()},
        'off_topic_questions': len(OFF_TOPIC),
        'off_topic_answered': sum(not qa.ask(q).abstained for q in OFF_TOPIC)})


if __name__ == '__main__': main(sys.argv[1])
