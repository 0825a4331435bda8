"""Tables, comparisons, pictures and times of runs, against pencil and statistics; and texts that LaTeX and Markdown show as they are."""
from pathlib import Path

import pytest
from helpers import question, some

from cpqa.evaluation.collections import Questions
from cpqa.evaluation.runs import Outcome, Run, RunError, System, run
from cpqa.evaluation.statistics import holm, mcnemar, paired_bootstrap, permutation, wilson
from cpqa.core.markup import latex, markdown
from cpqa.evaluation.tables import compare, forest, latency, per_question, table_rows, table, to_latex, to_markdown


def made(folder: Path, name: str, right: str, n: int = 10, failing: str = '') -> tuple[Run, dict]:
    "A run that answers the questions of these digits rightly and fails on some, and its accuracy."
    questions = some(n)
    def do(q):
        if q.id[1:] in failing: raise TimeoutError('late')
        return Outcome(q.id, q.gold if q.id[1:] in right else 'X')
    r = run(System(name), do, questions, folder/f'{len(list(folder.iterdir()))}.jsonl')
    return r, {'accuracy': per_question(r, questions, lambda q, o: o.prediction == q.gold)}


def test_a_table_by_hand(tmp_path):
    a, b = made(tmp_path, 'a', '01234567'), made(tmp_path, 'b & c_d|e', '0123', failing='9')
    b[1]['gain'] = {f'q{i}': i / 10 for i in range(5)}
    frame = table([a, b], 'a')
    assert list(frame.columns) == ['n', 'failed', 'missing', 'accuracy', 'gain'] and frame.index.name == 'system'
    assert frame.loc['a'].tolist() == [10, 0, 0, f'0.800 [{wilson(8, 10).low:.3f}, {wilson(8, 10).high:.3f}]', '']
    assert frame.loc['a', 'accuracy'] == '0.800 [0.490, 0.943]'     # Wilson's formula with z = 1.96, by pencil
    assert frame.loc['b & c_d|e', ['n', 'failed', 'missing']].tolist() == [10, 1, 0] and frame.loc['b & c_d|e',
        'gain'].startswith('0.200 [0.') and frame.loc['b & c_d|e', 'gain'].endswith('] (n = 5)')
    assert 'after Holm\'s correction for 1 comparison.' in frame.attrs['caption'] and 'bootstrap for gain' in frame.attrs['caption']


def test_a_question_that_failed_or_was_never_asked_stays_in_the_mean(tmp_path):
    r, values = made(tmp_path, 'a', '0123456789', failing='23')
    lines = r.path.read_bytes().splitlines(keepends=True)
    r.path.write_bytes(b''.join(lines[:-1]))
    cut = Run.read(r.path)
    values = {'accuracy': per_question(cut, some(10), lambda q, o: 1.0)}
    row = table_rows([(cut, values)])[0]
    assert (row.n, row.failed, row.missing, row.measures['accuracy']) == (10, 2, 1, wilson(7, 10))
    assert per_question(cut, some(10), lambda q, o: None) == {'q2': 0.0, 'q3': 0.0, 'q9': 0.0}
    assert per_question(cut, some(10), lambda q, o: 1.0, failed=-1)['q9'] == -1.0
    with pytest.raises(RunError, match='checksums differ'): per_question(cut, some(9), lambda q, o: 1.0)


def test_comparisons_are_those_of_the_statistics(tmp_path):
    a, b, c = made(tmp_path, 'a', '0123456789'), made(tmp_path, 'b', ''), made(tmp_path, 'c', '012345678')
    for i, (_, values) in enumerate((a, b, c)): values['gain'] = {f'q{j}': ((j * (i + 3)) % 7) / 7 for j in reversed(range(10))}
    found = compare([b, a, c], 'a')
    assert [(x.system, x.measure, x.n, x.test) for x in found] == [('b', 'accuracy', 10, 'mcnemar'), ('b', 'gain', 10, 'permutation'),
                                                                   ('c', 'accuracy', 10, 'mcnemar'), ('c', 'gain', 10, 'permutation')]
    values = {name: [r[1]['gain'][f'q{j}'] for j in range(10)] for name, r in zip('abc', (a, b, c))}
    assert found[1].p == permutation(values['b'], values['a']) and found[1].difference == paired_bootstrap(values['b'], values['a'])
    assert found[0].p == mcnemar([False] * 10, [True] * 10).p == 2 / 2**10 and found[0].difference.value == -1
    assert [x.adjusted for x in found] == list(holm({str(i): x.p for i, x in enumerate(found)}).values())
    assert table([a, b, c], 'a').loc['b', 'accuracy'].endswith(']**') and '*' not in table([a, b, c]).loc['b', 'accuracy']


def test_values_do_not_depend_on_the_order_of_questions(tmp_path):
    a = made(tmp_path, 'a', '0123')
    gain = {f'q{j}': j / 7 for j in range(10)}
    assert table_rows([(a[0], {'gain': gain})]) == table_rows([(a[0], {'gain': dict(reversed(gain.items()))})])


def test_what_does_not_belong_into_one_table(tmp_path):
    a, b, other = made(tmp_path, 'a', '01'), made(tmp_path, 'a', '02'), made(tmp_path, 'c', '01', n=9)
    with pytest.raises(RunError, match='two systems are called'): table_rows([a, b])
    with pytest.raises(RunError, match='another set'): compare([a, other], 'a')
    with pytest.raises(RunError, match='at least one'): table([])
    with pytest.raises(RunError, match='is empty'): table_rows([(a[0], {'x': {}})])
    c = made(tmp_path, 'd', '01')
    with pytest.raises(RunError, match='no question in common'): compare([(a[0], {'x': {'q1': 1.0}}), (c[0], {'x': {'q2': 1.0}})], 'a')


def test_escapes(tmp_path):
    assert (
        latex('50% of a_b & c|d #1 {x} ~ ^ $5 \\ <b>')
        == r'50\% of a\_b \& c\textbar{}d \#1 \{x\} \textasciitilde{} \textasciicircum{} \$5 \textbackslash{} \textless{}b\textgreater{}'
    )
    assert latex('[x] a--b\nc') == '{[}x] a-{}-b c' and latex('') == '' and latex('*') == '{*}'
    assert markdown('a|b_c*d`e<f\\g$h~i\nj & &amp; 5%') == r'a\|b\_c\*d\`e\<f\\g\$h\~i j & &amp;amp; 5%'
    a, b = made(tmp_path, 'a_b & c|d 5%', '0123456789'), made(tmp_path, 'b', '')
    frame = table([a, b], 'b')
    lines = to_latex(frame, 'tab:x').splitlines()
    assert [line.count(' & ') for line in lines if line.endswith(r'\\')] == [4, 4,
        4] and r'a\_b \& c\textbar{}d 5\% & 10' in to_latex(frame)
    assert lines[0] == r'\begin{table}' and lines[-1] == r'\end{table}' and r'\label{tab:x}' in lines
    head, rule, *body = to_markdown(frame).split('\n\n')[0].splitlines()
    unescaped = [line.replace(r'\|', '').count('|') for line in (head, rule, *body)]
    assert set(unescaped) == {6} and body[0].startswith(r'| a\_b & c\|d 5% | 10 |') and body[0].endswith(r'\*\* |')
    assert to_markdown(frame).endswith(markdown(frame.attrs['caption']))


def test_any_frame_can_be_written():
    pandas = pytest.importorskip('pandas')
    frame = pandas.DataFrame({'a|b': [1, 2.5]}, index=['x', 'y&z'])
    assert to_markdown(frame) == '|  | a\\|b |\n| --- | --: |\n| x | 1.0 |\n| y&z | 2.5 |' and r'y\&z & 2.5 \\' in to_latex(
        frame) and 'caption' not in to_latex(frame)


def test_the_picture_shows_the_rows(tmp_path):
    a, b = made(tmp_path, 'a', '0123'), made(tmp_path, 'b', '01')
    b[1]['gain'] = {'q1': .5}
    fig = forest([a, b])
    assert [ax.get_xlabel() for ax in fig.axes] == ['accuracy', 'gain'] and [t.get_text() for t in fig.axes[0].get_yticklabels()] == ['a',
        'b']
    assert [line.get_xdata()[0] for line in fig.axes[0].lines[1::2]] == [.4, .2]
    with pytest.raises(RunError, match='no measure to draw'): forest([(a[0], {})])


def test_percentiles_leave_out_the_cold_question_of_each_sitting(tmp_path):
    path = tmp_path/'run.jsonl'
    times = dict(zip('q0 q1 q2 q3 q4 q5'.split(), (5000., 1., 2., 4000., 3., 4.)))
    asked = []
    def do(q):
        asked.append(q.id)
        if len(asked) == 4: raise KeyboardInterrupt
        return Outcome(q.id, timings_ms={'search': times[q.id]})
    with pytest.raises(KeyboardInterrupt): run(System('echo'), do, some(6), path)
    done = run(System('echo'), do, some(6), path)
    assert done.cold == ['q0', 'q3']
    assert latency([done]).loc[('echo', 'search')].tolist() == pytest.approx([4, 2.5, 3.85, 4500])
    lone = run(System('echo'), do, Questions('one', [question(1)]), tmp_path/'one.jsonl')
    assert latency([lone]).loc[('echo', 'search'), 'n'] == 0 and latency([lone]).loc[('echo', 'search'), 'cold'] == 1
