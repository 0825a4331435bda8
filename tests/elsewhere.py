"""What tests have done in processes of their own: builds of a library, some of which die at a moment of their choice, and readers of files.
Nothing else is imported here, since each of those processes imports it."""
import os
import shutil
from multiprocessing.connection import Connection
from pathlib import Path

from cpqa.core.records import Document
from cpqa.literature.library import build_library


class Shout:
    "A part of a library: its titles in upper case. It says when it is written."
    name = 'shout'

    def __init__(self, say: Connection): self.say = say

    def build(self, documents, folder, progress):
        with open(folder/'titles.txt', 'w') as f:
            for d in documents: f.write(d.title.upper() + '\n')
        self.say.send('part')
        return {'case': 'upper'}


def build(say: Connection, source: Path, out: Path):
    "Builds a library of terms and a part from a BEIR file."
    say.send('start')
    build_library([source], out, parts=[Shout(say)])
    say.send('end')


def dying(say: Connection, source: Path, out: Path, moment: str):
    "The same, and dies before or after the n-th rename, or while the old library is removed."
    renames, rename, rmtree = 0, Path.rename, shutil.rmtree

    def dying_rename(self, target):
        nonlocal renames
        renames += 1
        if moment == f'before rename {renames}': os._exit(9)
        result = rename(self, target)
        if moment == f'after rename {renames}': os._exit(9)
        return result

    def dying_rmtree(path, *args, **kwargs):
        if moment == 'removing' and renames == 2:
            for n, file in enumerate(sorted(Path(path).rglob('*'))):
                if n % 2 and file.is_file(): file.unlink()
            os._exit(9)
        return rmtree(path, *args, **kwargs)

    Path.rename, shutil.rmtree = dying_rename, dying_rmtree
    build(say, source, out)


def again_and_again(say: Connection, name: str, out: Path, times: int):
    "Builds the same library many times, and waits whenever somebody else does."
    for i in range(times): build_library([[Document(id=f'{name}-{i}-{j}', text='tea') for j in range(30)]], out, wait=60)


# ---- readers of a file

def failing(path): raise ZeroDivisionError('a fault')


def dead(path): os._exit(7)


def marking(path):
    yield from (Document(str(i), title='T' * 2000) for i in range(1, 5001))
    Path(f'{path}.done').touch()
