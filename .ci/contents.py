"""Write what is said in two places from the one that knows it: the index's table of notebooks, and the README's figures.

    python .ci/contents.py        (or: make export)

The sidebar in _quarto.yml is the list of notebooks; titles and sentences are those of the notebooks themselves.
The figures are read from benchmarks/results/. With --check nothing is written, and what is not up to date is an error.
"""
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
INDEX, README, RESULTS = ROOT / 'nbs' / 'index.ipynb', ROOT / 'README.md', ROOT / 'benchmarks' / 'results'
TABLE = '88cdf368'   # the id of the index's cell that holds the table
FIGURES = re.compile(r'(?<=<!-- figures: written by make export -->\n).*?(?=<!-- end of figures -->)', re.S)


def sections() -> Iterator[tuple[str, list[str]]]:
    "The sections of the sidebar with their notebooks, a section inside another named after both."
    def walk(entry: dict, above: str) -> Iterator[tuple[str, list[str]]]:
        name = f'{above}: {entry["section"].lower()}' if above else entry['section']
        pages = [e if isinstance(e, str) else e.get('href', '') for e in entry['contents'] if not isinstance(e, dict) or 'section' not in e]
        if pages: yield name, pages
        for e in entry['contents']:
            if isinstance(e, dict) and 'section' in e: yield from walk(e, name)
    for entry in yaml.safe_load((ROOT / '_quarto.yml').read_text(encoding='utf-8'))['website']['sidebar']['contents']:
        yield from walk(entry, '')


def headline(notebook: str) -> tuple[str, str]:
    "The title of a notebook and the sentence below it."
    cells = json.loads((ROOT / 'nbs' / notebook).read_text(encoding='utf-8'))['cells']
    first = next(''.join(c['source']) for c in cells if c['cell_type'] == 'markdown')
    title, said = re.match(r'# (.+)\n\n> (.+)', first).groups()
    return title.strip(), said.strip()


def table() -> str:
    "The notebooks of the site, section by section, in one line each."
    parts = ['## The notebooks']
    for name, pages in sections():
        rows = ['| [{}]({}) | {} |'.format(*(x.replace('|', '\\|') for x in (headline(p)[0], p, headline(p)[1]))) for p in pages
                if p != 'index.ipynb']
        parts.append('\n'.join([f'### {name}', '', '| notebook | in one line |', '|---|---|', *rows]))
    return '\n\n'.join(parts)


def share(row: dict) -> str:
    "A share with its interval, in percent."
    value, low, high = (100 * x for x in (row['value'], *row['interval']))
    return f'{value:.1f} % [{low:.1f}, {high:.1f}]'


def measure(row: dict) -> str:
    "A measure from 0 to 1 with its interval."
    low, high = row['interval']
    return f'{row["value"]:.3f} [{low:.3f}, {high:.3f}]'


def figures() -> str:
    "Results with n and interval, as the benchmarks wrote them."
    answers, abstention, claims, models, reading, patients = (
        json.loads((RESULTS / f'{n}.json').read_text(encoding='utf-8'))
        for n in ('answers', 'abstention', 'claim_support', 'models', 'reading', 'patient_questions'))
    found = {r['system']: r for r in reversed(models['parts']['retrieval']['rows'][:7])}
    cited, tested, all_kinds = answers['cited']['round 10'], abstention['tested'], claims['test']['rules and models']['all']
    quotes, labels = reading['quotes']['report'], reading['labels']['report']
    given = [(labels['evidence inference'], 'questions on full texts, Evidence Inference')]
    of_use, asked_of = 'first quote useful, of those answered', patients['libraries']
    stricter = asked_of['demo, notes read and judged, second grader'][of_use]
    asked = [('the demo notes', asked_of['demo, notes read and judged'], f'; by a stricter grader {share(stricter)}',
              'questions that patients ask most'),
             ('a library of papers', asked_of['rct, November 27, evening'], '', 'questions in patients\' words')]
    best, words = found['hybrid + reranker'], found['bm25']
    rows = [
        ('The right papers first: nDCG@10', f'{measure(best["nDCG@10"])}, by words alone {measure(words["nDCG@10"])}',
         f'{best["n"]} questions of BioASQ, round 10', 'nbs/studies/models.ipynb'),
        ('Answers that cite a paper the experts named', share(cited['cites_gold']),
         f'{cited["cites_gold"]["n"]} of the same', 'benchmarks/results/answers.json'),
        ('The first quote is a sentence that physicians had marked; any of three',
         f'{share(quotes["first marked"])}; {share(quotes["any of three marked"])}',
         f'{quotes["first marked"]["n"]} questions on full texts, Evidence Inference', 'nbs/studies/reading.ipynb'),
        *(('Yes or no, where one is given (for {:.0f} % of questions)'.format(100 * row['labelled']['value']),
           f'{share(row["right"])} right; always {row["commoner answer"]} {share(row["commoner there"])}',
           f'{row["right"]["n"]} of {row["n"]} yes/no {of}', 'nbs/studies/reading.ipynb') for row, of in given),
        *(('A patient asks {}: the first quote is of use, where one is given (for {:.0f} % of questions)'.format(
            library, 100 * row['answered']['value']), share(row[of_use]) + more,
           f'{row[of_use]["n"]} of {row["answered"]["n"]} {of}',
           'benchmarks/results/patient_questions.json') for library, row, more, of in asked),
        ('Declines where the library holds no answer (with the reader of November 22)',
         f'{share(tested["abstained, gold out"])}; answers {share(tested["answered"])} of the others',
         f'{tested["answered"]["n"]} of the same, each also without its papers', 'nbs/studies/abstention.ipynb'),
        ('True claims told from false ones: AUROC',
         measure({'value': all_kinds['auroc'], 'interval': [all_kinds['low'], all_kinds['high']]}),
         f'{all_kinds["true"]:,} true, {all_kinds["false"]:,} false, made from Evidence Inference', 'nbs/studies/claims.ipynb'),
    ]
    lines = [f'| {what} | {value} | {n} ([more]({where})) |' for what, value, n, where in rows]
    return '\n'.join(['| measured | with 95 % interval | on |', '|---|---|---|', *lines]) + '\n'


def index() -> str:
    "The index with its table."
    nb = json.loads(INDEX.read_text(encoding='utf-8'))
    next(c for c in nb['cells'] if c['id'] == TABLE)['source'] = table().splitlines(keepends=True)
    return json.dumps(nb, ensure_ascii=False, indent=1) + '\n'


def main(check: bool) -> int:
    wanted = {INDEX: index(), README: FIGURES.sub(lambda _: figures(), README.read_text(encoding='utf-8'))}
    stale = [path for path, text in wanted.items() if path.read_text(encoding='utf-8') != text]
    for path in stale:
        if check: print(f'{path.relative_to(ROOT)} is not what .ci/contents.py writes: run  make export', file=sys.stderr)
        else: path.write_text(wanted[path], encoding='utf-8')
    return 1 if check and stale else 0


if __name__ == '__main__': sys.exit(main('--check' in sys.argv[1:]))
