"""What nbdev makes of the notebooks is what stands in the package, and notebooks are clean: in a copy of the project, so that nothing is
mended on the way."""
import hashlib
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, copy_project, run_in

pytestmark = pytest.mark.release


def contents(folder: Path) -> dict[str, str]:
    "Every file below `folder`, caches left out, with a hash of what it holds."
    files = [p for p in folder.rglob('*') if p.is_file() and '__pycache__' not in p.parts]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def clean_and_export(folder: Path) -> list[str]:
    "The files that `nbdev_clean` and `nbdev_export` change, add or remove in this copy of the project."
    before = contents(folder)
    for command in ('nbdev_clean', 'nbdev_export'):
        done = run_in(folder, SCRIPTS/command)
        assert done.returncode == 0, done.stderr
    after = contents(folder)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def test_clean_and_export_change_nothing(tmp_path):
    "But for what was changed by hand, which becomes again what stands here."
    copy, name = copy_project(tmp_path/'copy'), 'cpqa/testing/toy_corpus.py'
    (copy/name).write_text('changed by hand')
    assert clean_and_export(copy) == [name] and (copy/name).read_bytes() == (ROOT/name).read_bytes()
