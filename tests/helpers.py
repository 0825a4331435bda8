"""What the tests of the command line, the library and the package share: a way to run `cpqa`, invented files, and what an error must
look like."""
import gzip
import io
import json
import os
import pty
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from html import escape
from pathlib import Path
from typing import TextIO

import pytest
from conftest import SCRIPTS

from cpqa.cli import main
from cpqa.core.records import Document
from cpqa.evaluation.collections import YES_NO, Question, Questions
from cpqa.literature.library import Library

CPQA = SCRIPTS/'cpqa'
TRACES = ('Traceback', 'Exception ignored', 'panicked')


def environment(**changes: str | None) -> dict[str, str]:
    "The environment of this process, a wide terminal, and the changes; None takes a name out."
    found = {**os.environ, 'COLUMNS': '2000', **changes}
    return {name: str(value) for name, value in found.items() if value is not None}


def cpqa(*argv, env: dict[str, str | None] = {}, **options) -> subprocess.CompletedProcess:
    "Runs the console script `cpqa` in a process of its own."
    words = [a if isinstance(a, bytes) else str(a) for a in argv]
    options = {'stdin': subprocess.DEVNULL, 'capture_output': True, 'text': True, 'encoding': 'utf-8', 'timeout': 300} | options
    return subprocess.run([CPQA, *words], env=environment(**env), **options)


def inside(*argv, env: dict[str, str | None] = {}, cwd: Path | None = None, input: str | None = None, out: TextIO | None = None,
           err: TextIO | None = None) -> subprocess.CompletedProcess:
    """Runs `cpqa` in this process, in a tenth of the time: for all cases but the first of their kind, which run the console script.
    `out` and `err` are other places for what it says, such as a pipe or a terminal."""
    out, err = out or io.StringIO(), err or io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in ({'COLUMNS': '2000'} | env).items():
            patch.setenv(name, str(value)) if value is not None else patch.delenv(name, raising=False)
        if cwd: patch.chdir(cwd)
        if input is not None: patch.setattr(sys, 'stdin', io.StringIO(input))
        try: code = main([str(a) for a in argv])
        except SystemExit as e: code = e.code
    said, told = (s.getvalue() if isinstance(s, io.StringIO) else '' for s in (out, err))
    return subprocess.CompletedProcess(argv, code, said, told)


@contextmanager
def screen():
    "A terminal to write to, and a list that holds what was written there when it is left."
    ours, theirs = pty.openpty()
    said: list[str] = []

    def read():
        data = b''
        with suppress(OSError):              # Linux: the other end is closed
            while more := os.read(ours, 65536): data += more
        said.append(data.decode())
    reader = threading.Thread(target=read)
    reader.start()
    with open(theirs, 'w', encoding='utf-8') as terminal: yield terminal, said
    reader.join()
    os.close(ours)


def good(*argv, how=cpqa, **options) -> str:
    "What a `cpqa` command that succeeds prints."
    done = how(*argv, **options)
    assert done.returncode == 0 and untroubled(done), done
    return done.stdout


def untroubled(done: subprocess.CompletedProcess) -> bool: return not any(t in done.stderr for t in TRACES)


def complaint(done: subprocess.CompletedProcess, code: int = 1) -> str:
    "The one sentence that a command which went wrong, as it should, writes to the standard error."
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == code and untroubled(done) and done.stdout == '', done
    assert len(lines) == 1 and lines[0].startswith('cpqa: '), done.stderr
    return lines[0].removeprefix('cpqa: ')


def escapes(text: str) -> list[str]:
    "The control characters in a text other than line breaks: what could steer a terminal."
    return re.findall(r'[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]', text)


# ---- files

def write_beir(path: Path, documents: Iterable[Document], *more: str) -> Path:
    "A BEIR corpus, packed if its name says so; `more` are further lines as they stand."
    lines = [json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) for d in documents]
    data = ''.join(f'{line}\n' for line in (*lines, *more)).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == '.gz' else data)
    return path


def article(document: Document) -> str:
    "A PubmedArticle; a document without a PMID has the id '-'."
    pmid = f'<PMID Version="1">{document.id}</PMID>' if document.id != '-' else ''
    kinds = ''.join(f'<PublicationType UI="">{escape(kind)}</PublicationType>' for kind in document.publication_types)
    abstract = f'<Abstract><AbstractText>{escape(document.text)}</AbstractText></Abstract>' if document.text else ''
    return (
        f'<PubmedArticle><MedlineCitation>{pmid}<Article><Journal><JournalIssue><PubDate><Year>{document.year or 2020}</Year></PubDate>'
        '</JournalIssue>'
        f'<Title>{escape(document.journal)}</Title></Journal><ArticleTitle>{escape(document.title)}</ArticleTitle>{abstract}'
        f'<PublicationTypeList>{kinds}</PublicationTypeList></Article></MedlineCitation></PubmedArticle>'
    )


def write_xml(path: Path, documents: Iterable[Document], deleted: Iterable[str] = ()) -> Path:
    "A PubMed XML file of these records, with a DeleteCitation block at its end."
    gone = ''.join(f'<PMID Version="1">{pmid}</PMID>' for pmid in deleted)
    path.write_text('<?xml version="1.0"?>\n<PubmedArticleSet>' + '\n'.join(map(article, documents))
                    + (f'<DeleteCitation>{gone}</DeleteCitation>' if gone else '') + '</PubmedArticleSet>', encoding='utf-8')
    return path


def generated(n: int, words: int = 60, prefix: str = '', seed: int = 1) -> list[Document]:
    "`n` documents of words that nobody speaks."
    r = random.Random(seed)
    vocabulary = [''.join(r.choices('bcdfghklmnprstvz', k=r.randint(3, 9))) for _ in range(3000)]
    return [Document(id=f'{prefix}{i}', title=' '.join(r.choices(vocabulary, k=6)), text=' '.join(r.choices(vocabulary, k=words)))
            for i in range(n)]


# ---- folders

def held(folder: Path) -> list[tuple[str, str]]:
    "What a library holds, after it was opened and every byte of it read: ids and titles in their order."
    library = Library(folder)
    library.verify()
    assert library.ids == [d.id for d in library] and len(library) == len(library.ids)
    return [(d.id, d.title) for d in library]


def hidden(folder: Path) -> list[str]:
    "What a build has left beside its library."
    return sorted(p.name for p in folder.iterdir() if p.name.startswith('.'))


def mount(folder: Path, size: int) -> bool:
    "Makes `folder` a file system of its own, in memory, of `size` bytes; False where that is not allowed."
    folder.mkdir()
    if not shutil.which('mount'): return False
    return subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', folder], capture_output=True).returncode == 0


def unmount(folder: Path): subprocess.run(['umount', '-l', folder], check=True)


# ---- questions

def question(i: int, **more) -> Question:
    "The `i`-th invented question of yes or no."
    return Question(f'q{i}', f'Is {i} a number, and is the µg “µ”?', 'yesno', 'toy', YES_NO, gold='AB'[i % 2], **more)


def some(n: int, name: str = 'toy') -> Questions: return Questions(name, [question(i) for i in range(n)])
