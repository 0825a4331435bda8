"""What the notebooks and the package promise as text: each rule is a function, and each is shown a case that breaks it."""
import ast
import configparser
import importlib
import importlib.util
import json
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
from conftest import ROOT, NetworkRefused, cases, project_files

ROOMS = ['core', 'literature', 'retrieval', 'local_ncbi', 'testing', 'passages', 'answering', 'display', 'references', 'libraries',
         'collecting', 'pipeline', 'doctor', 'evaluation', 'training', 'terminal', 'cli_eval', 'cli_library', 'cli_longform', 'cli_ask',
         'cli', 'magic']   # arrows go left
TOP_LEVEL = {'nbs', 'cpqa', 'tests', 'benchmarks', 'settings.ini', 'setup.py', '_quarto.yml', 'README.md', 'CHANGELOG.md', 'LICENSE',
             'constraints.txt', '.ci', 'Makefile', '.gitignore', '.gitattributes', 'MANIFEST.in', 'pytest.ini'}
COMMAND = 'pip install -c constraints.txt -e ".[all]" && python -m pytest'
LAST_CELL = 'import nbdev; nbdev.nbdev_export()'
DIRECTIVES = {'default_exp', 'export', 'exports', 'exporti', 'exec_doc', 'hide', 'hide_line', 'filter_stream', 'eval', 'echo', 'output',
              'include', 'warning', 'label', 'code-fold', 'code-summary', 'fig-cap', 'fig-alt', 'fig-width', 'tbl-cap'}


# ---- notebooks as data

@dataclass
class Cell:
    kind: str
    source: str
    outputs: list = field(default_factory=list)
    execution_count: int | None = None
    id: str = ''

    @cached_property
    def directives(self) -> dict[str, str]:
        "The `#|` lines of a code cell: word -> the rest."
        found = re.findall(r'^#\|\s*([\w-]+):?[ \t]*(.*)$', self.source, re.M) if self.kind == 'code' else []
        return dict(found)

    @property
    def exported(self) -> bool: return bool(self.directives.keys() & {'export', 'exports', 'exporti'})

    @cached_property
    def code(self) -> str:
        "The code without directives, magics and blank lines."
        return '\n'.join(l for l in self.source.splitlines() if l.strip() and not re.match(r'#\||\s*[%!]', l))

    @cached_property
    def tree(self) -> ast.Module: return ast.parse(self.code if self.kind == 'code' else '')

    @property
    def imports(self) -> list[ast.stmt]: return [n for n in self.tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]

    def texts(self, leave_out: str = '') -> list[str]:
        "What the outputs of the cell say, pictures left out, and another kind of output if named."
        parts = [o.get('text', '') for o in self.outputs]
        parts += [v for o in self.outputs for kind, v in o.get('data', {}).items() if kind.startswith('text/') and kind != leave_out]
        return [''.join(p) for p in parts]


@dataclass
class Notebook:
    name: str                # as in 'core/records'
    cells: list[Cell]
    size: int = 0

    @classmethod
    def read(cls, path: Path):
        cells = [Cell(c['cell_type'], ''.join(c['source']), c.get('outputs', []), c.get('execution_count'), c.get('id', ''))
                 for c in json.loads(path.read_text(encoding='utf-8'))['cells']]
        return cls(path.relative_to(ROOT/'nbs').with_suffix('').as_posix(), cells, path.stat().st_size)

    @property
    def code(self) -> list[Cell]: return [c for c in self.cells if c.kind == 'code']

    @property
    def prose(self) -> list[Cell]: return [c for c in self.cells if c.kind == 'markdown']

    @property
    def component(self) -> bool: return self.name != 'index' and self.name.split('/')[0] not in ('tutorials', 'studies')


NOTEBOOKS = [Notebook.read(p) for p in sorted((ROOT/'nbs').rglob('*.ipynb'))
             if not any(part.startswith(('.', '_')) for part in p.relative_to(ROOT).parts)]


def names_defined(tree: ast.Module) -> list[str]:
    "The public names that a cell defines at its top level."
    names = []
    for n in tree.body:
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not any('patch' in ast.unparse(d) for d in n.decorator_list): names.append(n.name)
        for target in getattr(n, 'targets', [getattr(n, 'target', None)]):
            names += [t.id for t in ast.walk(target) if isinstance(t, ast.Name)] if target is not None else []
    return [n for n in names if not n.startswith('_')]


# ---- the rules: a notebook in, sentences about what is wrong out

def has_title(nb):
    first = nb.prose[0].source if nb.prose else ''
    if not re.fullmatch(r'# \S.*\n\n> \S.*[.!?](\n\n?(- [\w-]+: .+\n?)+)?', first.strip()):
        yield f'the first markdown cell must be an H1 and one quoted sentence, and is {first[:80]!r}'


def exports_its_module(nb):
    found = [c.directives['default_exp'].strip() for c in nb.code if 'default_exp' in c.directives]
    wanted = [nb.name.replace('/', '.')] if nb.component else []
    if found != wanted: yield f'default_exp is {found}, expected {wanted}'
    if nb.component and nb.code[-1].code != LAST_CELL: yield f'the last cell must be `#| hide` and `{LAST_CELL}`'


def keeps_imports_apart(nb):
    for c in nb.code:
        if c.imports and len(c.imports) < len(c.tree.body) and c.code != LAST_CELL:
            yield f'imports and other code in one cell: {c.code[:60]!r}'


def uses_what_it_exports(nb):
    "A function must be called or shown in an ordinary cell; for a class or a constant, `its name` in the prose is enough."
    used = {getattr(n, 'id', getattr(n, 'attr', None)) for c in nb.code if not c.exported for n in ast.walk(c.tree)}
    told = {word for c in nb.prose for quoted in re.findall(r'`([^`\n]+)`', c.source) for word in re.findall(r'\w+', quoted)}
    for c in [c for c in nb.code if c.exported and 'exporti' not in c.directives]:
        functions = {n.name for n in c.tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        for name in names_defined(c.tree):
            if name not in (used if name in functions else used | told): yield f'{name} is exported, but no other cell shows or asserts it'


def keeps_export_cells_short(nb):
    for c in nb.code:
        if c.exported and (n := len(c.code.splitlines())) > 45: yield f'an export cell of {n} lines: {c.code[:60]!r}'


def defines_in_components_only(nb):
    if nb.component: return
    for n in [n for c in nb.code for n in ast.walk(c.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]:
        if n.end_lineno - n.lineno >= 3: yield f'{n.name} has over three lines: define it in a component'


def knows_its_directives(nb):
    ini = configparser.ConfigParser(delimiters=['='])
    ini.read(ROOT/'settings.ini', encoding='utf-8')
    for word in [w for c in nb.code for w in c.directives]:
        if word not in DIRECTIVES | set(ini['DEFAULT']['tst_flags'].split()):
            yield f'#| {word} is neither a directive of nbdev nor in tst_flags'


def is_small(nb):
    if nb.size > 300_000: yield f'{nb.size} bytes'
    for c in nb.code:
        for text in c.texts(leave_out='text/html'):   # a table's HTML has a line a cell; its text stands beside it
            if (n := len(text.splitlines())) > 30: yield f'an output of {n} lines, below {c.code[-60:]!r}'


def is_clean(nb):
    for c in nb.code:
        if c.execution_count is not None or any(o.get('execution_count') is not None for o in c.outputs):
            yield f'an execution count at {c.code[:60]!r}'
        for o in c.outputs:
            if o.get('name') == 'stderr' or o.get('output_type') == 'error':
                yield f'an error or a warning in the outputs of {c.code[:60]!r}'


def says_the_same_anywhere(nb):
    for found in [m for c in nb.code for text in c.texts() for m in re.findall(r'/tmp/|/root/|/home/|/Users/|\b0x[0-9a-fA-F]{4,}', text)]:
        yield f'an output holds {found!r}, which another machine would not print'


def has_unique_ids(nb):
    ids = [c.id for c in nb.cells]
    if not all(ids): yield 'a cell without an id'
    for i in sorted({i for i in ids if ids.count(i) > 1}): yield f'cell id {i!r} stands twice'


def loads_nothing_remote(nb):
    for text in [c.source for c in nb.prose] + [t for c in nb.code for t in c.texts()]:
        for found in re.findall(
            r'!\[[^\]]*\]\(\s*(?:https?:)?//|<(?:img|script|iframe|link|video)\b[^>]*(?:src|href)\s*=\s*["\']?(?:https?:)?//', text, re.I):
            yield f'something from another host: {found!r}'


def writes_formulas_as_text(nb):
    for text in [c.source for c in nb.prose] + [t for c in nb.code for o in c.outputs
                                                for t in [''.join(o.get('data', {}).get('text/markdown', ''))]]:
        plain = re.sub(r'```.*?```|`[^`\n]*`', '', text, flags=re.S)
        for found in re.findall(r'\$\$|(?<![\\$])\$(?=\S)[^$\n]*?(?<=\S)\$(?!\d)', plain):
            yield f'{found!r} would load KaTeX from a CDN: write it as text or code'
        if re.search(r'```\s*\{?mermaid', text): yield 'a Mermaid diagram would be drawn by a script from a CDN: use a table or an SVG'


RULES = [has_title, exports_its_module, keeps_imports_apart, uses_what_it_exports, keeps_export_cells_short, defines_in_components_only,
         knows_its_directives, is_small, is_clean, says_the_same_anywhere, has_unique_ids, loads_nothing_remote, writes_formulas_as_text]


@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
def test_notebooks(rule):
    problems = [f'{nb.name}: {problem}' for nb in NOTEBOOKS for problem in rule(nb)]
    assert not problems, '\n'.join(problems)


md, code = (lambda *a, **k: Cell('markdown', *a, **k)), (lambda *a, **k: Cell('code', *a, **k))
printed = lambda text: [{'output_type': 'stream', 'name': 'stdout', 'text': [text]}]
shown = lambda text: [{'output_type': 'execute_result', 'data': {'text/markdown': [text]}}]
BROKEN = [
    (has_title, md('# A title without a sentence')),
    (has_title, md('## Too low\n\n> A sentence.')),
    (has_title, md('# A title\n\n> No full stop')),
    (exports_its_module, code('#| default_exp core.other')),
    (keeps_imports_apart, code('import re\nx = 1')),
    (keeps_imports_apart, code('#| hide\nimport nbdev; nbdev.nbdev_export(); x = 1')),
    (uses_what_it_exports, code('#| export\ndef lonely(): pass')),
    (uses_what_it_exports, code('#| export\nLONELY = 1')),
    (uses_what_it_exports, code('#| export\nclass Lonely: pass')),
    (keeps_export_cells_short, code('#| export\n' + 'x = 1\n' * 46)),
    (defines_in_components_only, code('def f():\n  a = 1\n  b = 2\n  return a')),
    (knows_its_directives, code('#| exprot\nx = 1')),
    (is_small, code('x', printed('line\n' * 31))),
    (is_clean, code('x', execution_count=3)),
    (is_clean, code('x', [{'output_type': 'stream', 'name': 'stderr', 'text': ['warning']}])),
    (says_the_same_anywhere, code('x', printed('/tmp/abc'))),
    (says_the_same_anywhere, code('x', printed('<object at 0x7f3b2c>'))),
    (has_unique_ids, md('no id')),
    (loads_nothing_remote, md('![a cat](https://example.org/cat.png)')),
    (loads_nothing_remote, code('x', shown('<img width="3" src="//example.org/cat.png">'))),
    (writes_formulas_as_text, md('The score is $x^2$ here.')),
    (writes_formulas_as_text, code('x', shown('$$x$$'))),
    (writes_formulas_as_text, md('```mermaid\ngraph TD\n```')),
]


@cases('rule, cell', BROKEN)
def test_a_broken_notebook_is_found(rule, cell):
    nb = Notebook('studies/broken' if rule is defines_in_components_only else 'core/broken', [cell])
    assert list(rule(nb))


GOOD = Notebook('core/good', [
    code('#| default_exp core.good', id='1'), md('# Good\n\n> One sentence, and no more.', id='2'),
    md('It costs $5, or $6 at most, and `$x$` is code.', id='3'),
    code('#| export\nimport re\nfrom typing import Any', id='4'), code('#| export\ndef f(): return 1', id='5'),
    code('f()', printed('1'), id='6'),
    md('![a plot](plot.svg) and [a link](https://example.org)', id='7'), code(f'#| hide\n{LAST_CELL}', id='8')])


@cases('rule', RULES)
def test_a_good_notebook_is_left_alone(rule): assert list(rule(GOOD)) == []


# ---- the same code twice

def repeated(notebooks) -> list[str]:
    "Code cells of over two lines that stand twice; cells of imports may."
    seen, out = {}, []
    for nb in notebooks:
        for c in nb.code:
            if len(c.code.splitlines()) <= 2 or len(c.imports) == len(c.tree.body): continue
            if c.code in seen: out.append(f'{nb.name} repeats a cell of {seen[c.code]}: {c.code[:80]!r}')
            seen.setdefault(c.code, nb.name)
    return out


def test_no_cell_stands_twice():
    assert repeated(NOTEBOOKS) == []
    cell = code('a = 1\nb = 2\nc = 3')
    assert repeated([Notebook('a', [cell]), Notebook('b', [cell])])


# ---- the arrows between the rooms

SHOWS = {'cpqa.core.records imports cpqa.display'}   # an answer shows itself: no other arrow goes back


def room(module: str) -> str: return [*module.split('.'), ''][1]


def arrows(name: str, source: str) -> list[str]:
    "The imports of module `name` (dotted) that lead to a later room, wherever in the module they stand."
    out = []
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, ast.Import): targets = [a.name for a in n.names]
        elif isinstance(n, ast.ImportFrom):
            base = '.'.join(name.split('.')[:-n.level]) if n.level else ''
            stem = '.'.join(filter(None, [base, n.module]))
            targets = [f'{stem}.{a.name}' for a in n.names]
        else: continue
        for t in (t for t in targets if t.split('.')[0] == 'cpqa' and room(t) in ROOMS):
            if ROOMS.index(room(t)) > ROOMS.index(room(name)): out.append(f'{name} imports {t}')
    return out


def test_data_moves_forward_only():
    wrong, files = [], [p for p in sorted((ROOT/'cpqa').rglob('*.py')) if p not in (ROOT/'cpqa'/'__init__.py', ROOT/'cpqa'/'_modidx.py')]
    for path in files:
        name = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
        assert room(name) in ROOMS, f'{name} is in no room of {ROOMS}'
        wrong += [a for a in arrows(name, path.read_text(encoding='utf-8')) if a not in SHOWS]
    assert wrong == [] and files


@pytest.mark.parametrize('source', ['from cpqa.answering.quoting_reader import Reader', 'from ..pipeline import CancerQA',
                                    'import cpqa.pipeline',
                                    'def f():\n    from cpqa import display'])
def test_a_backward_arrow_is_found(source):
    assert arrows('cpqa.retrieval.term_search', source) and not arrows('cpqa.evaluation.runs', source)
    assert not arrows('cpqa.retrieval.term_search', 'from ..core.records import Hit\nfrom .fusion import rrf\nimport numpy')


# ---- the project as a whole

def test_the_top_level_is_exactly_the_list():
    assert {name.split('/')[0] for name in project_files()} == TOP_LEVEL


def test_the_command_of_the_readme_is_what_ci_runs():
    readme, script = ((ROOT/f).read_text(encoding='utf-8').splitlines() for f in ('README.md', '.ci/run'))
    assert COMMAND in [line.strip() for line in readme] and COMMAND in script


def test_import_takes_no_heavy_package():
    heavy = ['torch', 'openvino', 'faiss', 'transformers', 'sentence_transformers', 'tokenizers', 'pandas', 'matplotlib', 'nbdev',
             'anthropic', 'openai']
    show = 'import cpqa, json, sys; print(json.dumps(sorted({m.split(".")[0] for m in sys.modules})))'
    loaded = subprocess.run([sys.executable, '-c', show], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert 'cpqa' in json.loads(loaded) and set(heavy).isdisjoint(json.loads(loaded))


def test_the_network_is_closed():
    with pytest.raises(NetworkRefused): socket.create_connection(('192.0.2.1', 80), timeout=1)
    with pytest.raises(NetworkRefused): socket.getaddrinfo('example.org', 80)
    with socket.create_server(('127.0.0.1', 0)) as server: socket.create_connection(server.getsockname(), timeout=5).close()


def test_what_benchmarks_import_is_there():
    "A benchmark that is seldom run must not find out after months that a name has gone."
    missing = []
    for path in sorted((ROOT/'benchmarks').rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[0] == 'cpqa':
                home = importlib.import_module(node.module)
                missing += [f'{path.name}: {node.module}.{a.name}' for a in node.names if not hasattr(home, a.name)
                            and importlib.util.find_spec(f'{node.module}.{a.name}') is None]
    assert missing == []
