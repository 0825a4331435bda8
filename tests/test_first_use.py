"""The library as one first writes it: what stands at the top of `cpqa`, what it costs, and what somebody sees who watches."""
import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from conftest import ROOT
from helpers import environment, good, inside, screen, write_beir

import cpqa
from cpqa.core.records import Answer, Document
from cpqa.testing.toy_corpus import TOY
from cpqa.literature.library import LibraryError


def python(code: str, **options) -> subprocess.CompletedProcess:
    "Runs code in a process of its own."
    options = {'capture_output': True, 'stdin': subprocess.DEVNULL} | options
    return subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True, env=environment(), timeout=300, **options)


def test_the_names_at_the_top():
    from cpqa.libraries import build_index
    from cpqa.pipeline import CancerQA
    assert (cpqa.CancerQA, cpqa.build_index, cpqa.Document, cpqa.Answer) == (CancerQA, build_index, Document, Answer)
    assert set(cpqa.__all__) <= set(dir(cpqa)) and 'build_index' in cpqa.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"): cpqa.nothing


def test_a_name_imports_what_it_needs_and_no_more():
    code = 'import sys, cpqa; cpqa.Document(id="1"); print(sorted(m for m in sys.modules if m.startswith("cpqa.")), "numpy" in sys.modules)'
    done = python(code)
    needed = ['cpqa.core', 'cpqa.core.records', 'cpqa.core.redaction', 'cpqa.core.remarks']
    assert done.returncode == 0 and done.stdout.strip() == f'{needed} False', done


def test_the_version_is_said_without_the_pipeline():
    code = ('import sys; from cpqa.cli import main; main(["-V"]); print(sorted({"numpy", "lxml", "rich", "cpqa.pipeline"} & '
            'set(sys.modules)))')
    assert python(code).stdout.splitlines()[1:] == ['[]']


def test_a_wrong_library_is_refused_by_the_constructor(tmp_path):
    for wrong in ('no-such-library', tmp_path):
        with pytest.raises(LibraryError, match='is not a library'): cpqa.CancerQA(wrong)
    with pytest.raises(LibraryError, match='is not a library'): cpqa.CancerQA(str(tmp_path))


def test_a_printed_answer_is_what_the_terminal_shows(monkeypatch, loaded_once):
    question = 'Is tisagenlecleucel effective for B-cell lymphoma?'
    monkeypatch.setenv('COLUMNS', '2000')
    with redirect_stdout(io.StringIO()) as printed: print(cpqa.CancerQA().ask(question))
    words = lambda text: ' '.join(text.replace('─', '').replace('╭', '').replace('╮', '').replace('│', '').split())
    assert '\x1b' not in printed.getvalue() and words(printed.getvalue()) == words(good('ask', question, how=inside)) != ''


def test_progress_shows_on_a_terminal_and_nowhere_else(tmp_path, monkeypatch, loaded_once):
    file = write_beir(tmp_path/'toy.jsonl', TOY)
    monkeypatch.setenv('TERM', 'xterm-256color')
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err: cpqa.build_index(file, tmp_path/'piped')
    assert (out.getvalue(), err.getvalue()) == ('', '')
    with screen() as (terminal, said), redirect_stdout(io.StringIO()) as out, redirect_stderr(terminal):
        cpqa.build_index(file, tmp_path/'seen')
    assert out.getvalue() == '' and 'reading' in said[0]
