"""The types of the package hold: mypy finds nothing in it, and a program that uses it is told what fits."""
import os
from pathlib import Path

import pytest
from conftest import ROOT

api = pytest.importorskip('mypy.api')
pytestmark = pytest.mark.release

# Packages of others that say nothing of their types are taken as they come.
OPTIONS = ['--ignore-missing-imports', '--no-error-summary', '--no-color-output', '--hide-error-context']

USED = '''from cpqa import Answer, CancerQA, Document, build_index
from cpqa.core.records import Hit

qa = CancerQA('DIR', reading='anthropic:m')
answer: Answer = CancerQA().ask('x')
hits: list[Hit] = qa.search('x')
document: Document = Document('1', title='A title', text='A text.')
build_index([document], 'DIR')
reveal_type(answer.response)
reveal_type(qa.search('x'))
'''


def checked(folder: Path, *what: str) -> list[str]:
    "What mypy says, a line each."
    said, trouble, _ = api.run([*OPTIONS, '--cache-dir', str(folder / 'cache'), *what])
    assert not trouble, trouble
    return said.splitlines()


@pytest.fixture(scope='module')
def place(tmp_path_factory, request) -> Path:
    "A folder for what is checked; mypy finds the package from the project's own folder."
    before = Path.cwd()
    os.chdir(ROOT)
    request.addfinalizer(lambda: os.chdir(before))
    return tmp_path_factory.mktemp('types')


def program(place: Path, text: str) -> list[str]:
    (place / 'program.py').write_text(text, encoding='utf-8')
    return [line.partition('program.py:')[2] for line in checked(place, str(place / 'program.py'))]


def test_the_package_has_no_wrong_type(place):
    assert (ROOT / 'cpqa' / 'py.typed').is_file()
    assert not (said := checked(place, '-p', 'cpqa')), '\n'.join(said)


def test_a_program_that_uses_the_package_is_right(place):
    said = program(place, USED)
    assert [line.partition('type is ')[2] for line in said] == ['"str"', '"list[cpqa.core.records.Hit]"'], '\n'.join(said)


@pytest.mark.parametrize('wrong, of', [('CancerQA().ask(3)', 'expected "str"'), ('CancerQA().search(3)', 'expected "str"'),
                                       ('answer.respones', 'has no attribute "respones"'), ("n: int = answer.response", 'has type "str"')])
def test_a_wrong_use_is_refused(place, wrong, of):
    (said,) = program(place, USED.replace('reveal_type', 'print') + wrong + '\n')
    assert f'{len(USED.splitlines()) + 1}: error: ' in said and of in said
