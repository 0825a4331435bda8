"""Build the documentation site: nbdev turns nbs/ into _proc/, then Quarto or smalldocs turns _proc/ into _docs/.

    python .ci/docs.py        (or: make docs)

Quarto is used where it is on PATH, otherwise the PyPI package smalldocs; both read the top-level _quarto.yml.
Exits with 1 where a page cannot be built, a link is broken, or the sidebar and the notebooks disagree.
"""
import ast
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import yaml
from nbdev.config import get_config
from nbdev.doclinks import patch_name
from nbdev.serve import proc_nbs

ROOT = Path(__file__).resolve().parent.parent
NBS, PROC, DOCS = ROOT / 'nbs', ROOT / '_proc', ROOT / '_docs'
DEFAULT_EXP = re.compile(r'^#\|\s*default_exp\s+(\S+)', re.M)
SHOW_DOC = re.compile(r'^show_doc\(([\w.]+)', re.M)
SOURCE_LINK = re.compile(r'\[source\]\([^)]*\)\{[^}]*\}\n*')
SIGNATURE = re.compile(r'```python\n.*?\n```', re.S)
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef


def sidebar(config: dict) -> list[str]:
    "The notebooks that the sidebar names, in its order."
    def names(entry):
        if isinstance(entry, str): return [entry]
        return [entry[k] for k in ('href',) if k in entry] + [name for e in entry.get('contents', ()) for name in names(e)]
    return names(config['website']['sidebar'])


def notebooks(folder: Path = NBS) -> list[str]:
    "The notebooks of the site, as the sidebar writes them."
    found = (path.relative_to(folder) for path in folder.rglob('*.ipynb'))
    return sorted(path.as_posix() for path in found if not any(part[0] in '._' for part in path.parts))


def disagreements(named: list[str], existing: list[str]) -> list[str]:
    "A sentence for each notebook that the sidebar names in vain, leaves out or names twice."
    return ([f'{n} stands in the sidebar of _quarto.yml, but there is no such notebook' for n in named if n not in existing]
            + [f'{n} is a notebook, but the sidebar of _quarto.yml does not name it' for n in existing if n not in named]
            + [f'{n} stands twice in the sidebar of _quarto.yml' for n in sorted({n for n in named if named.count(n) > 1})])


# What nbdev's show_doc cannot say: the fields of a record (msgspec hides the signature), the methods, the source.

class Module:
    "An exported module: the syntax tree and the source of each name that a page documents."

    def __init__(self, path: Path):
        self.name = path.relative_to(ROOT).as_posix()
        self.lines = path.read_text(encoding='utf-8').splitlines()
        self.symbols = {}
        for node in ast.parse('\n'.join(self.lines)).body:
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef)): continue
            names = patch_name(node)
            self.symbols |= dict.fromkeys([names] if isinstance(names, str) else names, node)
            self.symbols |= {f'{node.name}.{m.name}': m for m in public_methods(node)}

    def source(self, node: ast.AST) -> str:
        "The lines of `node`, decorators and comments included."
        return '\n'.join(self.lines[first_line(node) - 1:node.end_lineno])

    def fields(self, node: ast.ClassDef) -> str:
        "The head of a class and its fields with their comments; '' for a class that writes its own `__init__`."
        if any(getattr(n, 'name', '') == '__init__' for n in node.body): return ''
        spans = [(n.lineno, n.end_lineno) for n in node.body if isinstance(n, (ast.AnnAssign, ast.Assign))]
        spans.insert(0, (node.lineno, max(node.lineno, node.body[0].lineno - 1)))
        return '\n'.join(re.sub(r'\s{2,}#', '  #', self.lines[i]) for start, end in spans for i in range(start - 1, end))


def first_line(node: ast.AST) -> int: return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def public_methods(node: ast.AST) -> list[ast.AST]:
    "The methods and properties of a class whose names have no underscore in front; none for a function."
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return [n for n in body if isinstance(n, FUNCTIONS) and not n.name.startswith('_')]


def method_line(cls: str, method: ast.AST) -> str:
    "A bullet for a method: its call, its docstring, and the anchor that nbdev's links use."
    kinds = {getattr(d, 'id', '') for d in method.decorator_list}
    arguments = ast.unparse(method.args) if 'staticmethod' in kinds else ast.unparse(method.args).partition(', ')[2]   # without self
    call = '' if kinds & {'property', 'cached_property'} else f'({arguments})'
    returns = f' -> {ast.unparse(method.returns)}' if method.returns else ''
    doc = ' '.join((ast.get_docstring(method) or '').split())
    return f'- <span id="{cls}.{method.name}"></span>'.lower() + f'`{method.name}{call}{returns}`' + (f': {doc}' if doc else '')


def documented(markdown: str, name: str, module: Module) -> str:
    "The output of `show_doc(name)`, with fields, methods and source."
    markdown, node = SOURCE_LINK.sub('', markdown), module.symbols[name]
    methods = public_methods(node)
    if isinstance(node, ast.ClassDef):
        if fields := module.fields(node): markdown = SIGNATURE.sub(lambda _: f'```python\n{fields}\n```', markdown, count=1)
        markdown = markdown.replace('```python\ndef ', '```python\nclass ', 1)
    parts = [markdown, *(['\n'.join(method_line(name, m) for m in methods)] if methods else [])]
    parts.append(f'<details class="source">\n<summary>{module.name}, line {first_line(node)}</summary>\n\n'
                 f'```python\n{module.source(node)}\n```\n\n</details>')
    return '\n\n'.join(parts)


def exported_module(notebook: Path) -> Module | None:
    "The module that a notebook of nbs/ exports, if any."
    found = DEFAULT_EXP.search('\n'.join(''.join(c['source']) for c in json.loads(notebook.read_text(encoding='utf-8'))['cells']))
    return Module(ROOT / 'cpqa' / f"{found[1].replace('.', '/')}.py") if found else None


def shown_name(cell: dict, module: Module | None) -> str | None:
    "The name that a show_doc cell documents; None for any other cell."
    found = SHOW_DOC.search(''.join(cell['source'])) if module and cell['cell_type'] == 'code' else None
    return found[1] if found and found[1] in module.symbols else None


def in_source_order(cells: list[dict], module: Module | None) -> list[dict]:
    "The cells, with each run of show_doc cells (nbdev leaves them backwards) in the order of the source."
    out = []
    for shown, run in groupby(cells, key=lambda c: shown_name(c, module) is not None):
        out += sorted(run, key=lambda c: first_line(module.symbols[shown_name(c, module)])) if shown else run
    return out


def local_links(markdown: str, own_site: str) -> str:
    "Links to pages of this site lead to the page beside, wherever the site is put; nbdev's links to private names lead nowhere and go."
    markdown = re.sub(r'\[(`[^`\n]+`)\]\(' + re.escape(own_site) + r'/[^)#]*#(?:[\w.]*\.)?_\w*\)', r'\1', markdown)
    return re.sub(re.escape(own_site) + r'/([\w./-]+)\.html', r'/\1.ipynb', markdown)


def finish(name: str, own_site: str):
    "Make a processed notebook of _proc/ ready for the site."
    nb, module = json.loads((PROC / name).read_text(encoding='utf-8')), exported_module(NBS / name)
    nb['cells'] = in_source_order(nb['cells'], module)
    for cell in nb['cells']:
        source, shown = ''.join(cell['source']), shown_name(cell, module)
        # always the notebook's name here
        if cell['cell_type'] == 'raw': cell['source'] = re.sub(r'^output-file:.*\n', '', source, flags=re.M)
        if cell['cell_type'] == 'markdown': cell['source'] = local_links(source, own_site)
        for data in (o['data'] for o in cell.get('outputs', ()) if 'text/markdown' in o.get('data', {})):
            text = ''.join(data['text/markdown']).replace(f'{ROOT}/', '')   # of a default value; it says nothing to others
            data['text/markdown'] = local_links(documented(text, shown, module) if shown else text, own_site)
    (PROC / name).write_text(json.dumps(nb, ensure_ascii=False, indent=1), encoding='utf-8')


def main() -> int:
    os.chdir(ROOT)                                              # where nbdev looks for settings.ini
    problems = disagreements(sidebar(yaml.safe_load((ROOT / '_quarto.yml').read_text(encoding='utf-8'))), notebooks())
    cfg = get_config()
    shutil.rmtree(PROC, ignore_errors=True)                     # pages of notebooks that were renamed must not linger
    proc_nbs(path='nbs')                                        # relative: nbdev skips every path with a dot folder in it
    shutil.copyfile(ROOT / '_quarto.yml', PROC / '_quarto.yml')
    for name in notebooks(PROC): finish(name, f'{cfg.doc_host}{cfg.doc_baseurl}')
    quarto = shutil.which('quarto')
    tool = [quarto, 'render', str(PROC), '--no-execute'] if quarto else [sys.executable, '-m', 'smalldocs.cli', 'render', '--strict',
        str(PROC)]
    built = subprocess.run(tool, cwd=ROOT)
    if (PROC / DOCS.name / 'index.html').exists():
        shutil.rmtree(DOCS, ignore_errors=True)
        shutil.move(PROC / DOCS.name, DOCS)
        print(f"The site is in {DOCS}: open {DOCS / 'index.html'}, or serve it with  python -m http.server -d {DOCS.name}")
    if built.returncode: problems.append(f"{'quarto' if quarto else 'smalldocs'} reported the problems above")
    for problem in problems: print(f'docs: {problem}', file=sys.stderr)
    return 1 if problems else 0


if __name__ == '__main__': sys.exit(main())
