"""How many of the examples to train on would give away a test: by the rules of what is held out, and by questions that are alike?

    python benchmarks/training_leaks.py [--no-vectors] [--name training_leaks]

For each source: the groups read, those that a rule leaves out (and why), and of the rest those whose query is like a question of a test
set, at several shares of words in common (Jaccard, stop words kept) and several cosines of the embedded sentence model, by test set.
`looked_at` are the pairs that the index on rare words left to compare, `all_pairs` what comparing all with all would have been. Numbers
alone are written, no text.
"""
import argparse
from collections import Counter

import numpy as np
from common import DATA, save

from cpqa.retrieval.encoders import CachedEncoder
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder
from cpqa.training.held_out import (
    GROUP_READERS,
    candidate_pairs,
    near_duplicates,
    reserved,
    test_questions,
    without_held_out,
    without_leaks,
)

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6)
COSINES = (0.98, 0.95, 0.9, 0.85, 0.8, 0.75)
SHARE, COSINE = 0.8, 0.8   # the defaults of without_leaks


def by_words(queries, tests):
    "The largest share of each query with a question of each test, those below the least of `SHARES` as 0."
    best = {name: np.zeros(len(queries)) for name in tests}
    for name, questions in tests.items():
        for i, _, share in near_duplicates(queries, questions, min(SHARES)): best[name][i] = max(best[name][i], share)
    return best


def by_vectors(queries, tests, encoder):
    "The largest cosine of each query with a question of each test."
    vectors = encoder.encode(queries, 'query')
    return {name: (vectors @ encoder.encode(questions, 'query').T).max(1) for name, questions in tests.items()}


def counts(best, levels):
    "At each level, the groups that would be left out: for any test, and for each that has some."
    found = {}
    for level in levels:
        over = {name: int((values >= level - 1e-9).sum()) for name, values in best.items()}
        found[str(level)] = {'any': int((np.max(list(best.values()), axis=0) >= level - 1e-9).sum()),
                             **{name: n for name, n in over.items() if n}}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--no-vectors', action='store_true', help='compare words alone, in seconds')
    parser.add_argument('--name', default='training_leaks')
    args = parser.parse_args()
    tests, rest = test_questions(DATA), reserved(DATA)
    questions = [q for found in tests.values() for q in found]
    # the tests' questions are asked for with each source
    encoder = None if args.no_vectors else CachedEncoder(EmbeddedEncoder(model=MINILM), kinds=('query',))
    sources = {}
    for source, (folder, reader) in GROUP_READERS.items():
        faults = []
        groups = list(reader(DATA / folder, faults=faults))
        allowed, reasons = without_held_out(groups, rest)
        queries = [g.query for g in allowed]
        kept, leaks = without_leaks(allowed, tests, encoder, SHARE, COSINE)
        words = counts(by_words(queries, tests), SHARES)
        vectors = counts(by_vectors(queries, tests, encoder), COSINES) if encoder else None
        sources[source] = {
            'groups': len(groups), 'positives': sum(len(g.positives) for g in groups), 'negatives': sum(len(g.negatives) for g in groups),
            'faults': len(faults),
            'held_out': reasons, 'allowed': len(allowed), 'left_out_by_words': words, 'left_out_by_vectors': vectors,
            'looked_at': {str(s): sum(1 for _ in candidate_pairs(queries, questions, s)) for s in SHARES},
            'all_pairs': len(queries) * len(questions),
            'left_out': len(allowed) - len(kept), 'leaks_by': dict(Counter(leak.by for leak in leaks)), 'kept': len(kept),
            'kept_positives': sum(len(g.positives) for g in kept)}
        assert words[str(SHARE)]['any'] <= len(allowed) - len(kept)
    save(args.name, {
        'tests': {name: len(found) for name, found in tests.items()}, 'reserved_documents': dict(Counter(rest.documents.values())),
        'share': SHARE, 'cosine': None if encoder is None else COSINE,
        'encoder': encoder and encoder.describe(), 'sources': sources, 'kept': sum(s['kept'] for s in sources.values())})


if __name__ == '__main__': main()
