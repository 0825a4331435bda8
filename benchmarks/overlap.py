"""Do the two routes of a question overlap in time? 50 questions against `cpqa entrez serve`, a process of its own, in pubmed mode.

    python benchmarks/overlap.py LIBRARY      # built by: cpqa index build .../bioasq_beir/corpus.jsonl.gz --out LIBRARY

Each question is asked three ways, in an order that turns from question to question: by the term route alone, by the dense route alone, and
by both at once. NCBI is far away and the server is near, so it is asked to wait before it answers a request; what no wait and short waits
give is reported too. What running at once can save is the time of the quicker route; `saved` is what it does save, the sum less the time of
both. No cache, no rate limit.
"""
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
from common import bioasq_questions, interval, quantiles, save

from cpqa.literature.entrez import Entrez
from cpqa.literature.library import Library
from cpqa.pipeline import CancerQA
from cpqa.retrieval.sources import Scope

N, WAITS = 50, (0.0, 0.01, 0.05)


@contextmanager
def server(folder: str, wait: float):
    "`cpqa entrez serve` in a process of its own; yields its address."
    options = ['--misbehave', f'slow={wait}'] if wait else []
    process = subprocess.Popen([sys.executable, '-c', 'import sys; from cpqa.cli import main; sys.exit(main())', 'entrez', 'serve',
                                '--library', folder, *options],
                               stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        for line in process.stdout:
            if found := re.search(r'http://\S+/entrez/eutils/', line): yield found[0]; break
    finally:
        process.terminate()
        process.wait()


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(folder: str):
    questions = [q['text'] for q in bioasq_questions()[::40]][:N]
    library, rows = Library(folder), []
    for wait in WAITS:
        with server(folder, wait) as url:
            qa = CancerQA(Scope('pubmed', library, entrez=Entrez(url, cache=False)))
            path = qa.dual_path()
            path.both(path.rewriter.rewrite(questions[0]))   # models and connections are warm
            times = {'term': [], 'dense': [], 'both': []}
            ways = [('term', path.terms), ('dense', path.meaning), ('both', path.both)]
            for n, rewriting in enumerate(map(path.rewriter.rewrite, questions)):
                for name, way in ways[n % 3:] + ways[:n % 3]: times[name].append(seconds(lambda: way(rewriting)))
        term, dense, both = (np.array(times[name]) for name in ('term', 'dense', 'both'))
        slower, quicker, total = np.maximum(term, dense), np.minimum(term, dense), term + dense
        rows.append({'wait_s': wait, 'n': N,
                     **{name: quantiles(1000 * t) for name,
                        t in (('term', term), ('dense', dense), ('both', both), ('slower', slower), ('sum', total))},
                     'both / slower': {'mean': round(float((both / slower).mean()), 3), 'interval': interval(both / slower)},
                     'both / sum': {'mean': round(float((both / total).mean()), 3), 'interval': interval(both / total)},
                     'could save': {'mean_ms': round(1000 * float(quicker.mean()), 2)},
                     'saved': {'mean_ms': round(1000 * float((total - both).mean()), 2), 'interval': interval(1000 * (total - both))}})
    save('overlap', {'n': N, 'library': {'documents': len(library)}, 'rows': rows})


if __name__ == '__main__': main(*sys.argv[1:])
