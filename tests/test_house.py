"""What the house promises as code: one home for a name, no reaching into another room's drawers, methods in their class, lines that fit
a screen."""
import ast
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

WIDTH = 140   # characters
MODULES = [p for p in sorted((ROOT/'cpqa').rglob('*.py')) if p.name not in ('__init__.py', '_modidx.py')]


def dotted(path: Path) -> str: return '.'.join(path.relative_to(ROOT).with_suffix('').parts)


@cache
def tree(path: Path) -> ast.Module: return ast.parse(path.read_text(encoding='utf-8'))


def exported(module: ast.Module) -> list[str]:
    "The names in `__all__`."
    found = [n.value for n in module.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == '__all__']
    return list(ast.literal_eval(found[0])) if found else []


# ---- the rules: modules by name in, sentences about what is wrong out

def names_with_two_homes(modules: dict[str, ast.Module]) -> list[str]:
    homes = defaultdict(list)
    for name, module in modules.items():
        for word in exported(module): homes[word].append(name)
    return [f'{word} is exported by {" and ".join(where)}' for word, where in sorted(homes.items()) if len(where) > 1]


def private_names_borrowed(modules: dict[str, ast.Module]) -> list[str]:
    out = []
    for name, module in modules.items():
        for n in [n for n in ast.walk(module) if isinstance(n, ast.ImportFrom) and (n.level or (n.module or '').startswith('cpqa'))]:
            out += [f'{name} takes {a.name} from {n.module}' for a in n.names if a.name.startswith('_') and not a.name.startswith('__')]
    return out


def methods_from_outside(modules: dict[str, ast.Module]) -> list[str]:
    out = []
    for name, module in modules.items():
        for n in [n for n in module.body if isinstance(n, ast.Assign)]:
            targets = [t for target in n.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
            out += [f'{name}: {ast.unparse(t)} is put into its class from outside'
                    for t in targets if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id[:1].isupper()]
    return out


RULES = [names_with_two_homes, private_names_borrowed, methods_from_outside]


@pytest.mark.parametrize('rule', RULES, ids=lambda r: r.__name__)
def test_the_modules(rule):
    problems = rule({dotted(p): tree(p) for p in MODULES})
    assert not problems, '\n'.join(problems)


@pytest.mark.parametrize('rule, sources', [
    (names_with_two_homes, {'a': "__all__ = ['twice', 'once']", 'b': "__all__ = ['twice']"}),
    (private_names_borrowed, {'a': 'from .b import _hidden'}),
    (private_names_borrowed, {'a': 'def f():\n    from cpqa.b import open, _hidden'}),
    (methods_from_outside, {'a': 'class A: pass\ndef f(self): pass\nA.f = f'}),
    (methods_from_outside, {'a': 'class A: pass\nA.f, A.g = 1, 2'}),
], ids=lambda x: getattr(x, '__name__', ''))
def test_a_broken_module_is_found(rule, sources): assert len(rule({name: ast.parse(text) for name, text in sources.items()})) in (1, 2)


def test_a_sound_module_is_left_alone():
    sound = ast.parse("__all__ = ['f']\nfrom __future__ import annotations\nfrom .b import g\nimport numpy as np\ndef f():\n    f.seen = "
                      "1\nf.calls = 0")
    assert [problem for rule in RULES for problem in rule({'a': sound})] == []


# ---- what is exported is used

def words_of(path: Path) -> set[str]:
    "The words of a file; of a notebook, those of its cells and not of their outputs."
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.ipynb': text = '\n'.join(''.join(c['source']) for c in json.loads(text)['cells'])
    return set(re.findall(r'\w+', text))


def uses(module: ast.Module) -> set[str]:
    "The names that a module's code reads, and those that it hands on by a text such as 'cpqa.core.llm:Name'."
    read = {getattr(n, 'id', getattr(n, 'attr', None)) for n in ast.walk(module) if isinstance(getattr(n, 'ctx', None), ast.Load)}
    texts = [n.value for n in ast.walk(module) if isinstance(n, ast.Constant) and isinstance(n.value, str) and ':' in n.value]
    return read | {word for text in texts for word in re.findall(r'\w+', text.partition(':')[2])}


def test_what_is_exported_is_used():
    "A name that neither a module, nor another notebook, a test or a benchmark reads is shown in its own notebook and good for nothing."
    notebooks = {dotted(ROOT/'cpqa'/p.relative_to(ROOT/'nbs').with_suffix('.py')): p
                 for p in (ROOT/'nbs').rglob('*.ipynb') if not any(x[0] in '._' for x in p.parts)}
    files = [*notebooks.values(), *(ROOT/'tests').glob('*.py'), *(ROOT/'benchmarks').glob('*.py'), *(ROOT/'.ci').glob('*.py'),
             ROOT/'settings.ini', ROOT/'cpqa'/'__init__.py']
    known = {path: words_of(path) for path in files}
    read = {dotted(p): uses(tree(p)) for p in MODULES}
    lonely = [f'{name}.{word}' for name, module in ((dotted(p), tree(p)) for p in MODULES) for word in exported(module)
              if word not in read[name] and not any(word in words for path, words in known.items() if path != notebooks[name])]
    assert not lonely, '\n'.join(lonely)


def test_constants_of_one_room_are_private():
    "A constant that no other file reads has an underscore, so that what a room exports is what others may want."
    notebooks = {dotted(ROOT/'cpqa'/p.relative_to(ROOT/'nbs').with_suffix('.py')): p
                 for p in (ROOT/'nbs').rglob('*.ipynb') if not any(x[0] in '._' for x in p.parts)}
    files = [*notebooks.values(), *(p for d in ('tests', 'benchmarks', '.ci') for p in (ROOT/d).rglob('*.py')), ROOT/'settings.ini']
    known = {path: words_of(path) for path in files}
    lonely = [f'{name}.{word}' for name, module in ((dotted(p), tree(p)) for p in MODULES) for word in exported(module)
              if word.isupper() and f'_{word}' not in known[notebooks[name]]
              and not any(word in words for path, words in known.items() if path != notebooks[name])]
    assert not lonely, '\n'.join(lonely)


# ---- lines

def long_lines(path: Path) -> list[str]:
    "Where a file, or a code cell of a notebook, has a line of more than `WIDTH` characters."
    if path.suffix == '.ipynb':
        cells = [''.join(c['source']) for c in json.loads(path.read_text(encoding='utf-8'))['cells'] if c['cell_type'] == 'code']
    else: cells = [path.read_text(encoding='utf-8')]
    return [f'{path.relative_to(ROOT)}: {line[:60]}… has {len(line)} characters' for cell in cells
            for line in cell.splitlines() if len(line) > WIDTH]


def test_lines_fit_a_screen():
    files = [*(p for p in (ROOT/'nbs').rglob('*.ipynb') if not any(x[0] in '._' for x in p.parts)),
             *(p for folder in ('tests', 'benchmarks', '.ci') for p in (ROOT/folder).rglob('*.py'))]
    problems = [problem for path in sorted(files) for problem in long_lines(path)]
    assert not problems, f'{len(problems)} lines\n' + '\n'.join(problems[:50])


def test_a_long_line_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), 'ROOT', tmp_path)
    (tmp_path/'a.py').write_text('x = 1\n' + 'y = ' + '1' * WIDTH + '\n')
    assert len(long_lines(tmp_path/'a.py')) == 1
