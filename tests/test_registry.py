"Rows of other packages: found when they are wanted, refused where two have one name, named where they are broken."
import subprocess
import sys

import pytest

from cpqa.core.errors import CpqaError, MissingExtra
from cpqa.core.registry import Registry, Row

OWN = [Row('bm25', 'counts words', 'builtins:str'), Row('colbert', 'late interaction', 'builtins:str', argument='a folder', extra='models')]


def package(folder, name: str, entry: str, code: str):
    "A folder that looks like an installed package with one entry point of the group cpqa.rerankers."
    info = folder/f'{name}-1.0.dist-info'
    info.mkdir()
    (info/'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    (info/'entry_points.txt').write_text(f'[cpqa.rerankers]\n{name} = {entry}\n')
    (folder/f'{name.replace("-", "_")}.py').write_text(code)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in [m for m, found in sys.modules.items() if str(tmp_path) in str(getattr(found, '__file__', ''))]: del sys.modules[module]


ROW = 'from cpqa.core.registry import Row\n'


def test_another_package_adds_a_row(site):
    package(site, 'their-oracle', 'their_oracle:ROW', ROW +
            'ROW = Row("oracle", "knows it all", "their_oracle:made", argument="its seat", optional=True)\n'
            'def made(argument, *more): return ("oracle", argument, *more)')
    registry = Registry('reranker', OWN)
    assert registry.split('bm25')[0] == OWN[0] and 'their_oracle' not in sys.modules   # nobody has asked for it
    assert registry.names == ('bm25', 'colbert', 'oracle')
    assert registry.make('oracle:delphi', 3) == ('oracle', 'delphi', 3)
    assert registry.lines()[-1] == 'oracle[:MODEL]  knows it all'
    with pytest.raises(CpqaError, match=r'did you mean oracle\[:MODEL\]\?'): registry.split('oracel')
    assert Registry('segmenter', OWN).names == ('bm25', 'colbert')   # another kind has another group


def test_a_name_that_is_taken_is_refused_and_ours_still_works(site):
    package(site, 'second', 'second:ROWS', ROW + 'ROWS = [Row("new", "new", "a:b"), Row("colbert", "another", "a:b")]')
    registry = Registry('reranker', OWN)
    assert registry.make('colbert:x') == 'x'
    with pytest.raises(CpqaError, match="two of the kind reranker with the name 'colbert'"): registry.lines()


@pytest.mark.parametrize('code, said', [('raise RuntimeError("half installed")', 'half installed'), ('ROW = "bm25"', 'is not a Row'),
                                        ('', 'has no attribute')])
def test_a_broken_package_is_named(site, code, said):
    package(site, 'torn', 'torn:ROW', code)
    with pytest.raises(CpqaError, match=f"the installed package 'torn' cannot be used with cpqa.*{said}"): Registry('reranker', OWN).names


def test_a_row_that_lacks_its_packages_names_the_extra(site):
    (site/'heavy.py').write_text('import a_large_package')
    rows = [Row('heavy', 'x', 'heavy:x', extra='models'), Row('gone', 'x', 'not_there:x', extra='models')]
    with pytest.raises(MissingExtra, match=r'cpqa\[models\]'): Registry('reranker', rows).make('heavy')
    with pytest.raises(CpqaError, match="No module named 'not_there'"): Registry('reranker', rows).make('gone')


def test_no_plug_in_is_looked_for_at_import():
    code = 'import importlib.metadata as m; m.entry_points = None; import cpqa.core.registry, cpqa.pipeline, cpqa.cli'
    assert subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stderr == ''


def test_a_broken_package_does_not_stop_the_help(site):
    package(site, 'torn', 'torn:ROW', 'import no_such_package')
    assert Registry('reranker', OWN).choices() == 'bm25 (counts words), colbert:MODEL (late interaction)'
