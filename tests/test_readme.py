"""What the README shows is what happens: its answer, its Python, its links, its figures."""
import json
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT, SCRIPTS, copy_project, run_in
from helpers import good, inside

README = (ROOT/'README.md').read_text(encoding='utf-8')


def blocks(language: str) -> list[str]: return re.findall(rf'^```{language}\n(.*?)^```', README, re.M | re.S)


def settled(text: str) -> list[str]:
    """The lines of an answer without line ends' white space and without the decimals of scores, the second of which a processor's
    arithmetic may change."""
    return [re.sub(r'(?<![\d.])[01]\.\d\d\b', '0.##', line.rstrip()) for line in text.strip().splitlines()]


def test_the_answer_is_the_one_that_cpqa_prints(loaded_once):
    [block] = blocks('console')
    command, shown = block.split('\n', 1)
    program, *words = shlex.split(command.removeprefix('$ '))
    assert (SCRIPTS/program).exists()
    printed = settled(good(*words, env={'COLUMNS': '100'}, how=inside))
    assert printed[:len(settled(shown))] == settled(shown) and len(printed) > 20   # the README shows how it begins
    assert settled('x match 0.81 \n') == settled('x match 0.79') != settled('y match 0.81')
    assert settled('a probability of 0.91).') == settled('a probability of 0.92).') == settled('a probability of 1.00).')
    assert settled('19.25') != settled('19.26') and settled('0.5') != settled('0.6'), 'figures of other kinds stay as they are'


def test_the_first_command_asks_the_question_whose_answer_is_shown():
    [block] = blocks('console')
    assert blocks('bash')[0].strip().endswith('&& ' + block.split('\n')[0].removeprefix('$ '))


@pytest.mark.parametrize('code', blocks('python'))
def test_the_python_runs(code, loaded_once, capsys):
    exec(compile(code, 'README.md', 'exec'), {'__name__': '__main__'})
    assert capsys.readouterr().out.strip()


def test_the_links_lead_somewhere():
    found = [link for link in re.findall(r'\]\(([^)\s]+)\)', README) if '://' not in link]
    assert len(found) > 10
    assert [link for link in found if not (ROOT/link).exists()] == []


def test_the_figures_and_the_table_of_notebooks_are_those_of_their_sources():
    done = subprocess.run([sys.executable, '.ci/contents.py', '--check'], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_seconds_of_a_million_documents_are_those_that_were_measured():
    said = re.search(r'Two cores with VNNI search a million documents .* in ([\d.]+) s, recall@10 ([\d.]+), and answer in ([\d.]+) s; '
                     r'without VNNI, by an earlier version, in ([\d.]+) s', README)
    files = (ROOT/f'benchmarks/results/large_library{name}.json' for name in ('_pairs', ''))
    measured, before = (json.loads(path.read_text(encoding='utf-8')) for path in files)
    assert measured['documents'] == before['documents'] == 1_000_000 and measured['machine']['cores'] == before['machine']['cores'] == 2
    search, ask, recall = measured['search_ms']['p50'] / 1000, measured['ask_ms']['p50'] / 1000, measured['vectors']['recall']['@10']
    assert said.groups() == (f'{search:.2f}', f'{recall:.2f}'[1:], f'{ask:.2f}', f"{before['ask_ms']['p50'] / 1000:.1f}")


def test_a_figure_that_nobody_measured_is_found(tmp_path):
    copy = copy_project(tmp_path/'cpqa')
    text = (copy/'README.md').read_text(encoding='utf-8')
    (copy/'README.md').write_text(re.sub(r'\| 0\.\d+ \[', '| 0.999 [', text, count=1), encoding='utf-8')
    done = run_in(copy, sys.executable, '.ci/contents.py', '--check')
    assert done.returncode == 1 and 'README.md' in done.stderr


def test_the_readme_is_one_screen_and_a_half():
    "What does not fit is a page of the site."
    assert len(README) < 6_500
