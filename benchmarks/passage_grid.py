"""Which way to cut articles, search the passages and reorder them finds the sentences that physicians marked? All combinations on Evidence
Inference.

    python benchmarks/passage_grid.py [--articles dev|test|all] [--cells FILE] [--segmenters a,b,c] [--metadata title,section] [--name NAME]

14 segmenters x bm25, dense and hybrid x no reranker, bm25 and cosine x within the article and in all articles: 252 systems, 928 questions.
Parameters of segmenters were chosen by questions about the articles of the half 'dev'; the half 'test' says what they are worth.
Every cell is kept in FILE as soon as it is done (by default under .cache), so the run can be interrupted and goes on; a file with all
questions gives the results of both halves without asking anything again. Needs the extras eval and offline; about an hour on two quiet
cores the first time. Intervals and tests draw whole articles; p is adjusted over all comparisons of a kind on a measure (Holm).
"""
import argparse
import sys
import time

from common import DATA, ROOT, save

from cpqa.evaluation.passages import BASELINE, STANDARD, evaluate_passage_grid, grid_lines, names


def show(begun: float = time.monotonic()):
    "Prints progress: a line for each stage, and for each cell."
    last = {}

    def progress(stage: str, done: int, total: int | None):
        now = time.monotonic()
        if stage == 'cells' or now - last.get(stage, -100) > 30:
            last[stage] = now
            print(f'{now - begun:7.0f} s  {stage} {done:,}' + (f' of {total:,}' if total else ''), file=sys.stderr, flush=True)
    return progress


def compact(report: dict) -> dict:
    "The report with its numbers in short rows: of measures value, low and high; of comparisons difference, low, high, p and p adjusted."
    short = lambda m, *keys: [round(m[key], 4) for key in keys]
    text = lambda row, keys: ' | '.join(row[key] for key in keys)
    cell = ('segmenter', 'retriever', 'reranker', 'scope')
    rows = {text(r, cell): {**{name: str(short(m, 'value', 'low', 'high'))[1:-1] for name, m in r['measures'].items()},
                            'words_per_passage': r['words_per_passage'], 'words_read': r['words_read'],
                            'fewer_than_k': round(r['fewer_than_k'], 4), 'failed': r['n_failed']} for r in report['rows']}
    cut = {r['segmenter']: {'passages': r['n_passages'], 'passages_per_document': r['passages_per_document'],
                            **({'chance': r['chance']} if r['chance'] else {})} for r in sorted(report['rows'], key=lambda r: r['scope'],
                                reverse=True)}
    compared = {f'{c["what"]}: {text(c, cell)} | against {c["against"]}': {
        name: str(short(m, 'difference', 'low', 'high', 'p', 'p_holm'))[1:-1] for name,
        m in c['measures'].items()} for c in report['comparisons']}
    kept = ('articles', 'n_questions', 'n_articles', 'n_articles_searched', 'k', 'depth', 'metadata', 'baseline', 'family', 'interval')
    return {name: report[name] for name in kept} | {'segmenters': cut,
                                                    'columns': {'rows': 'value, low, high',
                                                                'comparisons': 'difference, low, high, p, p adjusted'}, 'rows': rows,
                                                                'comparisons': compared}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--articles', choices=('dev', 'test', 'all'), default='all')
    parser.add_argument('--cells', default=str(ROOT / '.cache' / 'passage_grid.jsonl'))
    parser.add_argument('--segmenters', default='all')
    parser.add_argument('--metadata', default='title')
    parser.add_argument('--name', default='passage_grid', help='of the result')
    args = parser.parse_args()
    segmenters, metadata = names(args.segmenters, STANDARD, 'segmenter', others=True), [f for f in args.metadata.split(',') if f]
    baseline = BASELINE if BASELINE in segmenters else segmenters[0]
    ROOT.joinpath('.cache').mkdir(exist_ok=True)
    begun = time.monotonic()
    report = lambda articles: evaluate_passage_grid(DATA / 'evidence_inference', segmenters, baseline=baseline, metadata=metadata,
                                                    out=args.cells, progress=show(), articles=articles)
    first = report(None if args.articles == 'all' else args.articles)
    print('\n'.join(grid_lines(first)), file=sys.stderr)
    result = compact(first)
    if args.articles == 'all':   # the same cells, the questions of one half: what the tuned segmenters are worth
        held = compact(report('test'))
        result['test_half'] = {key: held[key] for key in ('n_questions', 'n_articles', 'rows')} | {'comparisons': {c: m for c,
            m in held['comparisons'].items() if c.startswith('segmenter: seos')}}
    save(args.name, {'data': 'evidence_inference', **result, 'seconds': round(time.monotonic() - begun)})


if __name__ == '__main__': main()
