"""What cells cannot show of runs: files cut at every byte, processes at the same time, Ctrl-C, secrets, and random outcomes."""
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, cases, sample
from helpers import environment, question, some
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError, MissingExtra
from cpqa.core.records import Hit
from cpqa.evaluation import runs as module
from cpqa.evaluation.collections import LeakFree, Question, Questions
from cpqa.evaluation.runs import KIND, Outcome, Run, RunError, System, ask, header, machine, run, systems
from cpqa.evaluation.tables import per_question

SYSTEM = System('echo', {'reader': 'none'}, {'k': 2, 'deep': {'list': [1, 2.5, None, True]}})


TOYS = some(4)


def echo(q: Question) -> Outcome:
    "Answers A, and fails on q2."
    if q.id == 'q2': raise TimeoutError('too slow — μετά')
    return Outcome(q.id, 'A', (Hit('t1', 2.5), Hit('t2', -1.0)), {'search': 1.0}, {'in': 10, 'out': 2}, 0.25,
                   raw=f'Answer: “A”\u2028 for {q.id}')


def kept(r: Run) -> dict[str, dict]:
    "The outcomes without their times."
    return {o.id: o.to_dict() | {'timings_ms': sorted(o.timings_ms)} for o in r.outcomes.values()}


def never(q: Question): raise AssertionError(f'{q.id} was asked')


@pytest.fixture(scope='module')
def whole(tmp_path_factory) -> bytes:
    "The bytes of an uninterrupted run."
    path = tmp_path_factory.mktemp('whole')/'run.jsonl'
    done = run(SYSTEM, echo, TOYS, path, seed=3)
    assert (done.n_missing, done.n_failed, done.faults) == (0, 1, [])
    return path.read_bytes()


# ---- the file

def test_the_file_is_plain_json_lines(whole):
    first, *lines = [json.loads(line) for line in whole.decode().split('\n')[:-1]]
    assert first['kind'] == KIND and first['system'] == {'name': 'echo', 'parts': {'reader': 'none'},
                                                         'parameters': {'k': 2, 'deep': {'list': [1, 2.5, None, True]}}}
    assert first['dataset'] == {'name': 'toy', 'checksum': TOYS.checksum(), 'n': 4} and first['seed'] == 3
    assert [line['id'] for line in lines] == ['q0', 'q1', 'q2', 'q3']
    assert lines[0]['hits'] == [{'id': 't1', 'score': 2.5}, {'id': 't2', 'score': -1.0}] and lines[0]['raw'] == 'Answer: “A”\u2028 for q0'
    assert lines[2]['error'] == 'TimeoutError: too slow — μετά' and list(lines[2]['timings_ms']) == ['total']
    assert '“A”' in whole.decode()   # unicode stays as it is


def test_the_file_is_written_line_by_line(tmp_path):
    seen = []
    def watching(q):
        seen.append(len((tmp_path/'run.jsonl').read_bytes().splitlines()))
        return echo(q)
    steps = []
    run(SYSTEM, watching, TOYS, tmp_path/'run.jsonl', progress=lambda *step: steps.append(step))
    assert seen == [1, 2, 3, 4] and steps == [('asking', i, 4) for i in (1, 2, 3, 4)]
    assert [p.name for p in tmp_path.iterdir()] == ['run.jsonl']   # no lock is left


def test_no_secret_and_no_name_in_a_file(tmp_path, monkeypatch):
    key, secret, home = 'sk-ant-' + 'api03-abcdef', 'correct horse battery'.replace(' ', '-'), '/home/alice'
    monkeypatch.setenv('HOME', home)
    monkeypatch.setenv('SOME_API_KEY', secret)
    monkeypatch.setenv('HARMLESS', 'a-value-of-the-environment')
    monkeypatch.setattr(sys, 'argv', [f'{home}/bin/cpqa', 'eval', '--out', f'{home}/runs/a.jsonl', '--api-key', 'hunter2',
                                      f'--library={home}/lib/x', key])
    def leaky(q):
        if q.id == 'q0':
            raise RuntimeError(f'401: bad key {key} in {{"x-api-key": "hunter2"}} of {home}/.config/key.txt, {secret}, Authorization: '
                               'Bearer hunter2')
        if q.id == 'q1':
            return Outcome(q.id, f'my key is {key}', raw=f'{secret} and {key}', error=f'https://alice:hunter2@example.org {"A1b2" * 20}')
        raise RuntimeError('x' * 100_000 + key)
    path = tmp_path/'run.jsonl'
    run(SYSTEM, leaky, TOYS, path)
    text = path.read_text(encoding='utf-8')
    for word in (key, 'abcdef', 'hunter2', secret, 'alice', 'a-value-of-the-environment', 'A1b2A1b2',
                 *[name for name in (socket.gethostname(), getpass.getuser()) if len(name) > 5]):
        assert word not in text, word
    assert Run.read(path).header.command == 'cpqa eval --out ~/runs/a.jsonl --api-key [cut] --library=~/lib/x [cut]'
    assert max(len(o.error) for o in Run.read(path).outcomes.values()) == 200


# ---- going on

def test_a_file_cut_at_any_byte_is_continued(tmp_path, monkeypatch):
    for name in ('versions', 'machine'): monkeypatch.setattr(module, name, dict)   # fewer bytes, and faster
    monkeypatch.setattr(os, 'fsync', lambda fd: None)
    path = tmp_path/'run.jsonl'
    run(SYSTEM, echo, TOYS, path, seed=3)
    path.write_bytes(b''.join(path.read_bytes().splitlines(keepends=True)[:3]))
    run(SYSTEM, echo, TOYS, path, seed=3)
    whole = path.read_bytes()   # a file of two sittings
    assert ['kind' in json.loads(line) for line in whole.splitlines()] == [True, False, False, True, False, False]
    expected = kept(Run.read(path))
    # and what stands around each end of a line
    ends = [n for at, byte in enumerate(whole) if byte == ord('\n') for n in (at, at + 1, at + 2)]
    for cut in sorted({0, *ends} & set(range(len(whole) + 1)) | set(sample(range(len(whole) + 1), 150))):
        path.write_bytes(whole[:cut])
        present = {json.loads(line)['id'] for line in whole[:cut].split(b'\n') if _is_outcome(line)}
        asked = []
        done = run(SYSTEM, lambda q: (asked.append(q.id), echo(q))[1], TOYS, path, seed=3)
        assert kept(done) == expected and not present & set(asked) and len(present) + len(asked) == 4, cut
        again = Run.read(path)
        assert kept(again) == expected and again.faults == [] and again.n_missing == 0, cut
        assert len(done.faults) == (cut > 0 and not whole[:cut].endswith(b'\n') and not _is_json(whole[:cut].split(b'\n')[-1])), cut


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _is_json(line: bytes) -> bool:
    try: return isinstance(json.loads(line), dict)
    except ValueError: return False


def _is_outcome(line: bytes) -> bool: return _is_json(line) and 'kind' not in json.loads(line)


def test_a_tail_of_zeros_is_cut_away(whole, tmp_path):
    path = _written(tmp_path/'run.jsonl', whole[:-30] + bytes(500))   # as after a power cut
    done = run(SYSTEM, echo, TOYS, path, seed=3)
    assert done.faults == ['line 5 is cut and counts as not written'] and done.n_missing == 0 and b'\0' not in path.read_bytes()


def test_a_finished_run_asks_nothing_and_stays_as_it_is(whole, tmp_path):
    path = _written(tmp_path/'run.jsonl', whole)
    assert run(SYSTEM, never, TOYS, path, seed=3).n_failed == 1 and path.read_bytes() == whole


def test_a_spoilt_line_is_a_fault_and_its_question_is_asked_again(whole, tmp_path):
    lines = whole.splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"cost":0.25', b'"cost":-1')
    path = _written(tmp_path/'run.jsonl', b''.join(lines))
    before = Run.read(path)
    assert before.missing(TOYS) == ['q1'] and len(before.faults) == 1 and 'line 3 cannot be read (cost of q1 is -1' in before.faults[0]
    asked = []
    done = run(SYSTEM, lambda q: (asked.append(q.id), echo(q))[1], TOYS, path, seed=3)
    assert asked == ['q1'] and done.n_missing == 0 and len(done.faults) == 1 and done.faults == Run.read(path).faults


@cases('line', [b'\xff\xfe', b'[1]', b'7', b'null', b'{"id":""}', b'{"id":"q1","cost":NaN}', b'[' * 100_000,
                b'{"id":"q9","hits":[{"id":"a","score":1e999}]}'])
def test_lines_that_are_no_outcomes_are_faults(whole, tmp_path, line):
    found = Run.read(_written(tmp_path/'run.jsonl', whole + line + b'\n\n'))
    assert len(found.faults) == 1 and found.n_missing == 0 and found.faults[0].startswith('line 6 cannot be read')


def test_a_second_outcome_is_a_fault_unless_the_first_failed(whole, tmp_path):
    lines = whole.splitlines(keepends=True)
    other = lines[1].replace(b'"prediction":"A"', b'"prediction":"B"')
    path = _written(tmp_path/'run.jsonl', whole + other)
    found = Run.read(path)
    assert found.faults == ['line 6: a second outcome of q0, of which the first counts'] and found.outcomes[
        'q0'].prediction == 'A' and found.retried == 0
    found = Run.read(_written(path, whole + other.replace(b'"q0"', b'"q2"')))
    assert found.faults == [] and found.retried == 1 and found.n_failed == 0 and found.spent == {'in': 40, 'out': 8, 'dollars': 1.0}


def test_an_outcome_of_no_question_is_a_fault(whole, tmp_path):
    path = _written(tmp_path/'run.jsonl', whole.replace(b'"id":"q1"', b'"id":"q7"'))
    done = run(SYSTEM, echo, TOYS, path, seed=3)
    assert done.faults == ['q7: the file holds an outcome of no question of toy, which was left out'] and sorted(done.outcomes) == ['q0',
        'q1', 'q2', 'q3'] and done.n_missing == 0
    assert sorted(per_question(Run.read(path), TOYS, lambda q, o: 1.0)) == ['q0', 'q1', 'q2', 'q3']


def test_errors_are_asked_again_only_if_told(whole, tmp_path):
    path = _written(tmp_path/'run.jsonl', whole)
    asked = []
    done = run(SYSTEM, lambda q: (asked.append(q.id), Outcome(q.id, 'B'))[1], TOYS, path, seed=3, retry_errors=True)
    assert asked == ['q2'] and done.n_failed == 0 and done.outcomes['q2'].prediction == 'B' and path.read_bytes().startswith(whole)
    assert kept(Run.read(path)) == kept(done) and done.cold == ['q0', 'q2']


# ---- files of others

@cases('change, what', [
    (dict(system=System('echo')), 'system'), (dict(system=System('other', SYSTEM.parts, SYSTEM.parameters)), 'system'),
    (dict(questions=some(5)), 'dataset'),
    (dict(questions=Questions('toy', [question(0, part='other'), *list(TOYS)[1:]])), 'dataset'), (dict(seed=4), 'seed'),
    (dict(seed=None), 'seed'),
    (dict(switches=LeakFree()), 'switches')])
def test_another_run_is_never_mixed_in(whole, tmp_path, change, what):
    path = _written(tmp_path/'run.jsonl', whole)
    with pytest.raises(RunError, match=f'is a run of another {what} .*choose another file'):
        run(**dict(system=SYSTEM, do=never, questions=TOYS, path=path, seed=3) | change)
    assert path.read_bytes() == whole and [p.name for p in tmp_path.iterdir()] == ['run.jsonl']


def test_the_same_questions_under_another_name_are_the_same_dataset(whole, tmp_path):
    assert run(SYSTEM, never, some(4, 'renamed'), _written(tmp_path/'run.jsonl', whole), seed=3).n_missing == 0


@cases('data', [b'Buy milk', b'Buy milk\n', b'{"id":"q1"}\n', b'{"kind":"other"}\n', b'{"kind":7}\n', b'{"kind":"cpqa run"}\n',
                b'{"kind":"cpqa run","format":2}\n',
                                  b'{"kind":"cpqa run","format":1,"system":{}}\n', b'\x89PNG\r\n', b'\n\n[]\n',
                                  b'{"kind":"cpqa run","format":1,"sys\n'])
def test_other_files_are_refused_and_left_alone(tmp_path, data):
    path = _written(tmp_path/'run.jsonl', data)
    with pytest.raises(RunError): run(SYSTEM, never, TOYS, path)
    with pytest.raises(RunError): Run.read(path)
    assert path.read_bytes() == data


def test_two_runs_in_one_file_are_refused(whole, tmp_path):
    run(System('other'), echo, TOYS, tmp_path/'other.jsonl', seed=3)
    path = _written(tmp_path/'both.jsonl', whole + (tmp_path/'other.jsonl').read_bytes())
    with pytest.raises(RunError, match='holds two runs, since line 6 begins one of another system'): Run.read(path)


@pytest.mark.parametrize('cut', [0, 1, 20, 40, 300])
def test_a_file_that_ends_in_its_header_is_no_run_to_read(whole, tmp_path, cut):
    with pytest.raises(RunError, match='ends within its header'): Run.read(_written(tmp_path/'run.jsonl', whole[:cut]))


def test_what_cannot_be_read_or_written_is_said(tmp_path):
    with pytest.raises(RunError, match='cannot be read'): Run.read(tmp_path/'none.jsonl')
    with pytest.raises(RunError, match='cannot be read'): Run.read(tmp_path)
    with pytest.raises(RunError): run(SYSTEM, never, TOYS, tmp_path)
    _written(tmp_path/'file', b'')
    with pytest.raises(RunError, match='cannot write'): run(SYSTEM, never, TOYS, tmp_path/'file'/'run.jsonl')
    assert run(SYSTEM, echo, TOYS, tmp_path/'new'/'folder'/'run.jsonl').n_missing == 0
    assert issubclass(RunError, CpqaError)


def test_a_full_disk_leaves_what_was_written(tmp_path, monkeypatch):
    path, real = tmp_path/'run.jsonl', module._Writer.write
    def write(self, record):
        if getattr(record, 'id', '') == 'q2': raise OSError(28, 'No space left on device')
        real(self, record)
    monkeypatch.setattr(module._Writer, 'write', write)
    with pytest.raises(RunError, match='No space left on device.*goes on from there'): run(SYSTEM, echo, TOYS, path)
    monkeypatch.undo()
    assert list(Run.read(path).outcomes) == ['q0', 'q1'] and run(SYSTEM, echo, TOYS, path).n_missing == 0


# ---- processes

# Runs a slow system and says on the standard output what it asked.
SLOW = '''
import sys, time
from cpqa.evaluation.collections import Question, Questions
from cpqa.evaluation.runs import Outcome, System, run
def slow(q):
    print(q.id, flush=True)
    time.sleep(float(sys.argv[2]))
    return Outcome(q.id, 'A')
questions = Questions('toy', [Question(f'q{i}', 'Is it?', 'open', 'toy') for i in range(6)])
print('start', flush=True)
done = run(System('slow'), slow, questions, sys.argv[1], wait=float(sys.argv[3]))
print('end', done.n_missing, flush=True)
'''


def slow(path: Path, seconds: float, wait: float = 0) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, '-c', SLOW, path, str(seconds), str(wait)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True,
                            env=environment(PYTHONPATH=str(ROOT)))


def until(process: subprocess.Popen, word: str) -> list[str]:
    "What a process said up to this word."
    heard = []
    while word not in heard and (line := process.stdout.readline()): heard.append(line.strip())
    assert heard[-1:] == [word], (heard, process.stderr.read())
    return heard


SIX = Questions('toy', [Question(f'q{i}', 'Is it?', 'open', 'toy') for i in range(6)])


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_an_ended_process_leaves_a_run_that_goes_on(tmp_path, number):
    path = tmp_path/'run.jsonl'
    process = slow(path, 0.2)
    until(process, 'q2')
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode and 'end' not in said and (number != signal.SIGINT or errors.rstrip().endswith('KeyboardInterrupt'))
    before = Run.read(path)
    assert {'q0', 'q1'} <= before.outcomes.keys() and before.n_missing >= 2 and before.faults == []
    asked = []
    done = run(System('slow'), lambda q: (asked.append(q.id), Outcome(q.id, 'A'))[1], SIX, path)
    assert asked == before.missing(SIX) and done.n_missing == 0 and done.faults == [] and len(done.headers) == 2


def test_two_processes_do_not_write_one_file(tmp_path):
    path = tmp_path/'run.jsonl'
    first = slow(path, 0.3)
    until(first, 'q0')
    with pytest.raises(RunError, match='another process is writing'): run(System('slow'), never, SIX, path)
    waiting = slow(path, 0, wait=60)
    said, errors = waiting.communicate(timeout=120)
    assert said.split() == ['start', 'end', '0'] and errors == ''   # it asked nothing
    assert first.communicate(timeout=60)[0].split()[-2:] == ['end', '0']
    assert len(path.read_bytes().splitlines()) == 7 and len(Run.read(path).headers) == 1


def test_many_processes_at_once_ask_each_question_once(tmp_path):
    path = tmp_path/'run.jsonl'
    processes = [slow(path, 0.01, wait=60) for _ in range(3)]
    said = [p.communicate(timeout=120) for p in processes]
    assert all(out.endswith('end 0\n') and not errors for out, errors in said)
    assert sorted(word for out, _ in said for word in out.split() if word.startswith('q')) == [f'q{i}' for i in range(6)]
    assert len(Run.read(path).outcomes) == 6


# ---- asking

def test_what_concerns_no_question_stops_a_run(tmp_path):
    def lacking(q): raise MissingExtra('needs an extra')
    with pytest.raises(MissingExtra): run(SYSTEM, lacking, TOYS, tmp_path/'run.jsonl')
    def leaving(q): sys.exit(3)
    with pytest.raises(SystemExit): run(SYSTEM, leaving, TOYS, tmp_path/'run.jsonl')
    with pytest.raises(RunError, match="asked q0, the system gave 'NoneType'"): run(SYSTEM, lambda q: None, TOYS, tmp_path/'run.jsonl')
    assert run(SYSTEM, echo, TOYS, tmp_path/'run.jsonl').n_missing == 0


class PanicException(BaseException): "What PyO3 raises when Rust panics, by its name."


@cases('error', [ValueError(''), RecursionError('deep'), MemoryError(), UnicodeDecodeError('utf-8', b'\xff', 0, 1, 'bad'), StopIteration(),
                 PanicException('index')])
def test_any_exception_is_an_outcome(error):
    def failing(q): raise error
    assert ask(failing, question(1)).error.startswith(type(error).__name__)


@pytest.mark.parametrize('outcome', [dict(prediction=None), dict(prediction=3), dict(hits=(Hit('\ud800', 1.0),)), dict(raw=None),
                                     dict(tokens={'in': 1.5})])
def test_what_json_cannot_keep_is_refused_before_it_is_lost(outcome):
    with pytest.raises(RunError, match='cannot be kept as JSON'): ask(lambda q: Outcome('q1', **outcome), question(1))


def test_lone_surrogates_of_a_model_do_not_stop_a_run():
    assert ask(lambda q: Outcome('q1', 'A \ud83d', raw='\udc00'), question(1)).prediction == 'A ?'


# ---- records

words = st.text(min_size=1, max_size=20)
numbers = st.floats(0, 1e12, allow_nan=False)
outcomes = st.builds(Outcome, id=words, prediction=st.text(),
                     hits=st.lists(st.builds(Hit, words, st.floats(-1e9, 1e9)), unique_by=lambda h: h.id).map(tuple),
                     timings_ms=st.dictionaries(words, numbers),
                     tokens=st.dictionaries(st.sampled_from(['in', 'out']), st.integers(0, 2**53)),
                     cost=st.none() | numbers, error=st.text(max_size=50), raw=st.text())
plain = st.recursive(st.none() | st.booleans() | st.integers(-2**62, 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=10)


@given(outcomes)
def test_outcomes_go_to_json_and_back(o):
    assert Outcome.from_json(o.to_json()) == o and '\n' not in o.to_json() and json.loads(o.to_json()) == o.to_dict() | {
        'hits': [h.to_dict() for h in o.hits], 'ways': [*o.ways]}


@given(st.dictionaries(words, words), st.dictionaries(st.text(), plain), st.none() | st.integers(-2**31, 2**31),
       st.none() | st.builds(LeakFree, st.booleans(), st.none() | st.integers(1800, 2100)))
def test_headers_go_to_json_and_back(parts, parameters, seed, switches):
    h = header(System('s', parts, parameters), TOYS, seed, switches)
    assert module.Header.from_json(h.to_json()) == h and module.differs(h,
                                                                        header(System('s', parts, parameters), TOYS, seed, switches)) == ''


@given(st.lists(outcomes, unique_by=lambda o: o.id, min_size=1, max_size=6))
def test_runs_keep_any_outcome(tmp_path_factory, found):
    path = tmp_path_factory.mktemp('run')/'run.jsonl'
    by_id = {o.id: o for o in found}
    questions = Questions('random', [Question(id, 'Is it?', 'open', 'toy') for id in by_id])
    made = run(SYSTEM, lambda q: by_id[q.id], questions, path)
    assert list(made.outcomes) == list(by_id) and made.n_missing == 0 and made.faults == []
    again = Run.read(path)   # what was returned is what is in the file
    assert (again.outcomes, again.headers, again.cold, again.spent, again.faults) == (made.outcomes, made.headers, made.cold, made.spent,
        [])
    for o in found: assert (made.outcomes[o.id].hits, made.outcomes[o.id].tokens, made.outcomes[o.id].cost) == (o.hits, o.tokens, o.cost)
    assert run(SYSTEM, never, questions, path).outcomes == made.outcomes


@cases('value', [float('inf'), {1: 2}, {'a': [float('nan')]}, object(), {1, 2}, 2**64, b'bytes', Path('x')])
def test_parameters_are_plain(value):
    with pytest.raises(ValueError, match='expected what JSON can keep'): System('s', parameters={'k': value})


def test_tuples_among_parameters_do_not_make_another_system(tmp_path):
    s = System('s', parameters={'fields': ('title', 'text')})
    run(s, echo, TOYS, tmp_path/'run.jsonl')
    assert run(s, never, TOYS, tmp_path/'run.jsonl').n_missing == 0


def test_names_of_systems_stand_once():
    with pytest.raises(RunError, match="two systems are called 'echo'"): systems([SYSTEM, System('b'), SYSTEM.__copy__()])
    for name in ('', ' ', 'a\nb', 'x' * 201):
        with pytest.raises(ValueError): System(name)


def test_the_machine_is_described_and_not_named():
    assert set(machine()) == {'cpu', 'cores', 'python'} and machine()['cores'] >= 1 and machine()['cpu']


def test_import_is_light():
    show = ('import cpqa.evaluation.runs, cpqa.evaluation.tables, sys; print(sorted({m.split(".")[0] for m in sys.modules} & {"pandas", '
            '"scipy", "matplotlib", "jinja2", "torch", "faiss"}))')
    assert subprocess.run([sys.executable, '-c', show], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True,
                          check=True).stdout.strip() == '[]'
