"The tests' own tools: rows of the table of durations and what exceeds them, many cases in one test, samples that stay the same."
import json

import conftest
import durations
import pytest
from conftest import cases, sample
from durations import ByRow, longest_first, over, row

NOTEBOOK = 'tests/test_notebooks.py::test_notebook[core/records]'


class Item:
    def __init__(self, nodeid: str): self.nodeid = nodeid


def test_a_test_has_the_row_of_its_file_and_a_notebook_one_of_its_own():
    assert row('tests/test_a.py::test_b[c::d]') == 'tests/test_a.py' and row(NOTEBOOK) == 'nbs/core/records.ipynb'
    assert row('tests/test_notebooks.py::test_a_failing_notebook_fails') == 'tests/test_notebooks.py'
    assert ByRow._split_scope(None, NOTEBOOK) != ByRow._split_scope(None, NOTEBOOK.replace('records', 'toy'))


def test_only_what_has_grown_by_far_is_over():
    rows = {'a': 10.0, 'b': 0.1}
    assert over({'a': 150, 'b': 90.6, 'new': 240}, rows) == []
    found = over({'a': 150.1, 'b': 90.7, 'new': 241}, rows)
    assert [line.split()[0] for line in found] == ['a', 'b', 'new'] and all('--write-durations' in line for line in found)


def test_the_longest_come_first_and_files_stay_together():
    items = [Item('x.py::1'), Item('y.py::1'), Item('x.py::2'), Item('z.py::1')]
    assert [i.nodeid for i in longest_first(items, {'y.py': 3.0, 'z.py': 9.0})] == ['z.py::1', 'y.py::1', 'x.py::1', 'x.py::2']


def test_writing_keeps_the_rows_of_files_that_did_not_run_and_drops_those_that_are_gone(tmp_path, monkeypatch):
    (tmp_path/'tests').mkdir()
    for name in ('test_a.py', 'test_b.py'): (tmp_path/'tests'/name).touch()
    monkeypatch.setattr(durations, 'TABLE', tmp_path/'tests'/'durations.json')
    (tmp_path/'tests'/'durations.json').write_text(json.dumps({'tests/test_a.py': 1.0, 'tests/test_gone.py': 2.0}))
    durations.write({'tests/test_b.py': 3.14159})
    assert durations.table() == {'tests/test_a.py': 1.0, 'tests/test_b.py': 3.1}
    durations.write({'tests/test_a.py': 7.0, 'tests/test_b.py': 1.0}, whole=False)   # its release tests alone
    assert durations.table() == {'tests/test_a.py': 7.0, 'tests/test_b.py': 3.1}


def test_all_cases_that_fail_are_told_and_each_has_a_place_of_its_own(tmp_path, monkeypatch):
    seen = []

    @cases('a, b', [(1, 1), (2, 3), (4, 4), (5, 6)])
    @cases('c', 'xy')
    def rows(a, b, c, tmp_path):
        assert not list(tmp_path.iterdir())
        (tmp_path/'mine').touch()
        seen.append((a, c))
        assert a == b

    with pytest.raises(AssertionError, match=r"(?s)2 of 4 cases fail.*\(2, 3\).*\(5, 6\)") as e: rows(tmp_path=tmp_path)
    assert len(seen) == 8 and '(4, 4)' not in str(e.value)
    with pytest.raises(AssertionError, match='has no rows'): cases('a', [])(lambda a: None)
    with pytest.raises(pytest.skip.Exception): cases('a', [1])(lambda a: pytest.skip('nothing here'))()


def test_a_sample_is_the_same_each_time_and_all_at_night(monkeypatch):
    monkeypatch.setattr(conftest, 'NIGHTLY', False)
    some = sample(range(100), 7)
    assert some == sample(iter(range(100)), 7) == sorted(some) and len(set(some)) == 7 and sample('abc', 9) == ['a', 'b', 'c']
    monkeypatch.setattr(conftest, 'NIGHTLY', True)
    assert sample(range(100), 7) == list(range(100))
