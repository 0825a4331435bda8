"""The library as one first writes it: what stands at the top of `cpqa`, what it costs, and what somebody sees who watches."""
import os
import pty
import subprocess
import sys

import pytest
from conftest import ROOT
from helpers import environment, write_beir

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


def test_a_printed_answer_is_what_the_terminal_shows():
    question = 'Is tisagenlecleucel effective for B-cell lymphoma?'
    printed = python(f'from cpqa import CancerQA; print(CancerQA().ask({question!r}))').stdout
    shown = python(f'import sys; from cpqa.cli import main; sys.exit(main(["ask", {question!r}]))').stdout
    words = lambda text: ' '.join(text.replace('─', '').replace('╭', '').replace('╮', '').replace('│', '').split())
    assert '\x1b' not in printed and words(printed) == words(shown) != ''


BUILD = 'import sys; from cpqa import build_index; build_index(sys.argv[1], sys.argv[2])'


def test_progress_shows_on_a_terminal_and_nowhere_else(tmp_path):
    file = write_beir(tmp_path/'toy.jsonl', TOY)
    piped = subprocess.run([sys.executable, '-c', BUILD, file, tmp_path/'piped'], capture_output=True, text=True, env=environment())
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, '', '')
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, '-c', BUILD, file, tmp_path/'seen'], stdout=subprocess.PIPE, stderr=theirs,
                          stdin=subprocess.DEVNULL,
                          env=environment(TERM='xterm-256color'))
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0 and done.stdout == b'' and 'reading' in said
