"""Every notebook runs from top to bottom: its assertions are the tests of the module that it exports."""
import contextlib
import io
import sys

import nbdev.test                       # the module: pytest would collect `test_nb` itself
import pytest
from conftest import ROOT
from nbdev.config import get_config

pytestmark = pytest.mark.usefixtures('loaded_once')
NOTEBOOKS = sorted(p for p in (ROOT/'nbs').rglob('*.ipynb') if not any(part.startswith(('.', '_')) for part in p.relative_to(ROOT).parts))


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda p: p.relative_to(ROOT/'nbs').with_suffix('').as_posix())
def test_notebook(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv('IN_TEST', '1')                    # nbdev sets it too; this takes it back afterwards
    monkeypatch.setattr(sys, 'path', sys.path[:])
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        passed, _ = nbdev.test.test_nb(path, skip_flags=get_config().tst_flags.split(), basepath=ROOT)
    if not passed: pytest.fail(f'{path.relative_to(ROOT)} failed:\n{errors.getvalue()}', pytrace=False)


def test_a_failing_notebook_fails(tmp_path, monkeypatch):
    "The runner above is not blind: a notebook with a wrong assertion does not pass."
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv('IN_TEST', '1')
    monkeypatch.setattr(sys, 'path', sys.path[:])
    (tmp_path/'bad.ipynb').write_text(
        '{"cells": [{"cell_type": "code", "id": "a", "source": "assert 1 == 2", "metadata": {}, "outputs": [],'
                                      '"execution_count": null}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    with contextlib.redirect_stderr(io.StringIO()):
        assert not nbdev.test.test_nb(tmp_path/'bad.ipynb')[0]
