"""Trainings beyond their notebooks: killed and resumed, in sixteen bits, with low-rank matrices, in a small budget, from damaged and
foreign checkpoints."""
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from conftest import cases
from helpers import environment
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip('torch')
for needed in ('datasets', 'accelerate', 'peft', 'sentence_transformers', 'openvino'): pytest.importorskip(needed)

from cpqa.core.records import Passage
from cpqa.passages.cross_encoders import CrossEncoderReranker, FastCrossEncoder, prepare_cross_encoder
from cpqa.testing.tiny_models import tiny_bert
from cpqa.retrieval.encoders import SentenceTransformerEncoder
from cpqa.training.training_run import work_folder
from cpqa.training.networks import BiEncoderSettings, CrossEncoderSettings, compared, train_bi_encoder, train_cross_encoder
from cpqa.training.training_run import CHECKPOINT_FILES, SEAL, last_checkpoint, read_curve, seal
from cpqa.training.examples import Group
from cpqa.training.hard_negatives import TrainingRow, TrainingError, in_steps, plan

WORDS = 'aspirin polyps tamoxifen breast cancer colonoscopy fatigue exercise walking screening risk daily'.split()


def text(seed: int, n: int = 8) -> str: return ' '.join(random.Random(seed).choices(WORDS, k=n))


def group(i: int) -> Group:
    word = WORDS[i % len(WORDS)]
    return Group(f'what of {word} {i}', (f'{word} {text(i, 3)} {word}', f'{word} {word} {text(i + 50, 20)}'),
                 tuple(f'{text(1000 * i + j, 3 + 4 * j)} {j}' for j in range(5)), 'own', str(i))


GROUPS = [group(i) for i in range(8)]
SMALL = dict(max_steps=12, groups=3, texts=3, learning_rate=1e-3, log_every=2, save_every=4, max_tokens=48, budget=256, bf16=False)
KINDS = {'cross': (CrossEncoderSettings, train_cross_encoder), 'bi': (BiEncoderSettings, train_bi_encoder)}


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> str: return str(tiny_bert(tmp_path_factory.mktemp('models')/'tiny'))


def train(kind: str, base: str, out: Path, groups=GROUPS, call=None, **changes):
    settings, function = KINDS[kind]
    return function(groups, out, settings(base=base, **SMALL | changes), **call or {})


def stopping(at: int):
    def progress(what, done, total):
        if done == at: raise KeyboardInterrupt
    return {'progress': progress}


def interrupted(kind: str, base: str, out: Path, at: int = 6, **changes) -> Path:
    "The run's folder of a training that was stopped after so many steps."
    with pytest.raises(KeyboardInterrupt): train(kind, base, out, call=stopping(at), **changes)
    return work_folder(out)


@pytest.fixture(scope='module')
def whole(tiny, tmp_path_factory):
    "Of each kind a training that nothing happened to: what came of it, and its folder."
    folder, done = tmp_path_factory.mktemp('whole'), {}
    def of(kind: str):
        if kind not in done: done[kind] = train(kind, tiny, folder/kind)
        return done[kind], folder/kind
    return of


@pytest.fixture(scope='module')
def stopped(tiny, tmp_path_factory) -> Path:
    "The run's folder of a training that was stopped after six steps."
    return interrupted('cross', tiny, tmp_path_factory.mktemp('stopped')/'out')


@pytest.fixture
def checkpoint(stopped, tmp_path) -> Path:
    "The checkpoint in a copy of it, whose training is that of `tmp_path/'out'`."
    return last_checkpoint(Path(shutil.copytree(stopped, work_folder(tmp_path/'out')))/'checkpoints')


@pytest.fixture(autouse=True)
def one_thread():
    "Tiny networks are faster with one."
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- the same weights

@cases('kind', KINDS)
@cases('changes', [{}, {'lora': 2}, {'bf16': True}])
def test_an_interrupted_training_ends_as_one_that_was_not(kind, changes, tiny, whole, tmp_path):
    expected = train(kind, tiny, tmp_path/'whole', **changes) if changes else whole(kind)[0]
    interrupted(kind, tiny, tmp_path/'again', **changes)
    again = train(kind, tiny, tmp_path/'again', **changes)
    assert again.weights == expected.weights and again.curve == expected.curve == read_curve(tmp_path/'again')
    assert [p.step for p in expected.curve] == [2, 4, 6, 8, 10, 12] and not work_folder(tmp_path/'again').exists()


@pytest.mark.parametrize('kind', KINDS)
def test_another_seed_gives_other_weights(kind, tiny, whole, tmp_path):
    assert train(kind, tiny, tmp_path/'out', seed=1).weights != whole(kind)[0].weights


def test_what_was_drawn_before_does_not_matter_and_what_comes_after_is_not_disturbed(tiny, tmp_path):
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = float(torch.rand(1)), random.random(), float(np.random.rand())
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    first = train('cross', tiny, tmp_path/'a', max_steps=2)
    assert (float(torch.rand(1)), random.random(), float(np.random.rand())) == expected
    assert train('cross', tiny, tmp_path/'b', max_steps=2).weights == first.weights


KILLED = """
    import os, sys
    sys.path.insert(0, sys.argv[3])
    from test_training_fit import train
    from pathlib import Path
    def progress(what, done, total):
        if done == 7: os.kill(os.getpid(), 9)
    train('cross', sys.argv[1], Path(sys.argv[2]), call={'progress': progress})
"""


def copying(at: int, out: Path, to: Path):
    "What a process that is killed at this step leaves of the training of `out`, kept as that of `to`."
    def progress(what, done, total):
        if done == at: shutil.copytree(work_folder(out), work_folder(to))
    return {'progress': progress}


def test_what_a_kill_leaves_loses_what_came_after_its_checkpoint_and_no_more(tiny, tmp_path):
    whole = train('cross', tiny, tmp_path/'whole', call=copying(7, tmp_path/'whole', tmp_path/'killed'))
    assert last_checkpoint(work_folder(tmp_path/'killed')/'checkpoints').name == 'checkpoint-4'
    steps = []
    killed = train('cross', tiny, tmp_path/'killed', call={'progress': lambda what, done, total: steps.append(done)})
    assert steps == list(range(5, 13)) and killed.weights == whole.weights


@pytest.mark.nightly
def test_a_killed_process_loses_what_came_after_its_checkpoint_and_no_more(tiny, whole, tmp_path):
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(KILLED), tiny, str(tmp_path/'killed'), str(Path(__file__).parent)],
                          capture_output=True, text=True, env=environment(OMP_NUM_THREADS='1'))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path/'killed').exists() and last_checkpoint(work_folder(tmp_path/'killed')/'checkpoints').name == 'checkpoint-4'
    steps = []
    killed = train('cross', tiny, tmp_path/'killed', call={'progress': lambda what, done, total: steps.append(done)})
    assert steps == list(range(5, 13)) and killed.weights == whole('cross')[0].weights


# ---- sixteen bits

@pytest.mark.parametrize('kind', KINDS)
def test_sixteen_bits_are_used_and_change_little(kind, tiny, tmp_path, monkeypatch):
    seen = set()
    linear = torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, 'forward', lambda self, x: (lambda y: (seen.add(y.dtype), y)[1])(linear(self, x)))
    long = train(kind, tiny, tmp_path/'long', dropout=0, learning_rate=1e-4)
    assert seen == {torch.float32}
    short = train(kind, tiny, tmp_path/'short', dropout=0, learning_rate=1e-4, bf16=True)
    assert torch.bfloat16 in seen and short.weights != long.weights
    assert [p.loss for p in short.curve] == pytest.approx([p.loss for p in long.curve], rel=0.05, abs=0.02)


# ---- budgets, layers, forms

@pytest.mark.parametrize('kind', KINDS)
def test_how_a_step_is_cut_into_pieces_does_not_matter(kind, tiny, tmp_path):
    one, many = (train(kind, tiny, tmp_path/str(budget), budget=budget, dropout=0, learning_rate=1e-4) for budget in (48, 8192))
    assert [p.loss for p in one.curve] == pytest.approx([p.loss for p in many.curve], rel=1e-3)


def test_a_trained_folder_can_be_prepared(whole, tmp_path):
    out = whole('cross')[1]
    fast = FastCrossEncoder(prepare_cross_encoder(out, tmp_path/'fast', 'f32', max_tokens=48))
    passages = [Passage('x', 0, len(t), t) for g in GROUPS for t in (*g.positives, *g.negatives)]
    slow = CrossEncoderReranker(out, max_tokens=48)
    assert fast.score('what of aspirin', passages) == pytest.approx(slow.score('what of aspirin', passages), abs=1e-3)


def test_low_rank_training_keeps_the_shape_and_layers_are_left_out(tiny, tmp_path):
    train('bi', tiny, tmp_path/'low', lora=2, max_steps=2)
    train('bi', tiny, tmp_path/'short', layers=1, max_steps=2)
    low, short = SentenceTransformerEncoder(tmp_path/'low'), SentenceTransformerEncoder(tmp_path/'short')
    count = lambda e: sum(p.numel() for p in e.model.parameters())
    assert count(low) == count(SentenceTransformerEncoder(tiny, 'mean')) > count(short)
    assert np.allclose(np.linalg.norm(low.encode(['aspirin', 'polyps']), axis=1), 1, atol=1e-5)


# ---- folders of others

def test_another_training_is_not_gone_on_with(tiny, checkpoint, tmp_path):
    with pytest.raises(TrainingError, match='settings.learning_rate 0.001 against 0.002'):
        train('cross', tiny, tmp_path/'out', learning_rate=0.002)
    with pytest.raises(TrainingError, match='texts .* against'): train('cross', tiny, tmp_path/'out', groups=GROUPS[1:] + [group(9)])
    with pytest.raises(TrainingError, match='kind cross-encoder against bi-encoder'): train('bi', tiny, tmp_path/'out')
    other = str(tiny_bert(tmp_path/'other', seed=1))
    with pytest.raises(TrainingError, match='base '): train('cross', other, tmp_path/'out')
    assert train('cross', tiny, tmp_path/'out').steps == 12


@pytest.mark.parametrize('name', sorted(CHECKPOINT_FILES))
def test_a_checkpoint_that_is_not_as_it_was_sealed_is_refused(name, tiny, checkpoint, tmp_path):
    path = checkpoint/name
    path.write_bytes(path.read_bytes()[:-1] + b'?')
    with pytest.raises(TrainingError, match='is not as this training wrote it'): train('cross', tiny, tmp_path/'out')


class Evil:
    def __init__(self, path): self.path = path
    def __reduce__(self): return os.mkdir, (self.path,)


@pytest.mark.parametrize('name', ['optimizer.pt', 'scheduler.pt', 'rng_state.pth'])
def test_nothing_in_a_checkpoint_is_executed_even_if_it_was_sealed_again(name, tiny, checkpoint, tmp_path):
    torch.save({'state': Evil(str(tmp_path/'executed'))}, checkpoint/name)
    (checkpoint/SEAL).unlink()
    seal(checkpoint)
    with pytest.raises(TrainingError, match='more than numbers'): train('cross', tiny, tmp_path/'out')
    assert not (tmp_path/'executed').exists()
    with pytest.raises(FileNotFoundError): pickle.loads(pickle.dumps(Evil(str(tmp_path/'a'/'b'))))   # it would have been


def test_a_file_that_training_does_not_write_is_refused(tiny, checkpoint, tmp_path):
    (checkpoint/'pytorch_model.bin').write_bytes(b'')
    with pytest.raises(TrainingError, match='is not as this training wrote it'): train('cross', tiny, tmp_path/'out')


def test_a_checkpoint_cut_off_by_a_crash_gives_way_to_the_one_before(tiny, whole, tmp_path):
    run = interrupted('cross', tiny, tmp_path/'out', at=10)
    newest = last_checkpoint(run/'checkpoints')
    (newest/SEAL).unlink()
    (newest/'optimizer.pt').unlink()
    assert newest.name == 'checkpoint-8' and last_checkpoint(run/'checkpoints').name == 'checkpoint-4' and not newest.exists()
    assert train('cross', tiny, tmp_path/'out').weights == whole('cross')[0].weights


def test_a_run_that_was_cut_off_while_finishing_is_finished(tiny, tmp_path, monkeypatch):
    def full(self, target): raise OSError(28, 'No space left on device')
    with monkeypatch.context() as m:
        m.setattr(Path, 'rename', full)
        with pytest.raises(TrainingError, match='make room'): train('cross', tiny, tmp_path/'out')
    steps = []
    assert train('cross', tiny, tmp_path/'out', call={'progress': lambda what, done, total: steps.append(done)}).steps == 12 and steps == []


def test_what_is_written_holds_no_pickles_and_no_paths_of_this_machine(tiny, whole):
    out = whole('cross')[1]
    names = {p.name for p in out.rglob('*') if p.is_file()}
    assert names == {'config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json', 'curve.jsonl', 'run.json',
                     'trained.json'}
    assert json.loads((out/'run.json').read_text())['settings.max_steps'] == 12
    assert not any(str(folder) in (out/name).read_text() for folder in (out.parent,
                                                                        Path(tiny).parent) for name in ('config.json', 'trained.json'))


# ---- dev figures and teachers

@pytest.mark.parametrize('kind', KINDS)
def test_looking_at_dev_figures_does_not_change_the_training(kind, tiny, whole, tmp_path):
    blind = whole(kind)[0]
    looked = train(kind, tiny, tmp_path/'looked', dev_every=3, call={'dev': GROUPS[:2]})
    assert looked.weights == blind.weights and [p.step for p in looked.curve if p.dev] == [3, 6, 9, 12]
    assert [p.loss for p in looked.curve if p.loss is not None] == [p.loss for p in blind.curve]


def test_a_teacher_is_asked_for_the_texts_of_the_steps_alone(tiny, tmp_path):
    asked = set()
    def teacher(query, texts):
        asked.update((query, t) for t in texts)
        return [float(len(t)) for t in texts]
    train('cross', tiny, tmp_path/'out', loss='distill', call={'teacher': teacher})
    steps = plan(GROUPS, 3, max_steps=12, texts=3)
    assert asked == {(r.query, t) for step in steps.steps for r in step for t in r.texts}


# ---- rows

groups_strategy = st.lists(st.integers(1, 5), min_size=1, max_size=9)


def numbered(sizes: list[int]) -> list[Group]:
    return [Group(f'q{n}', tuple(f'p{n}.{i}' for i in range(size)), tuple(f'n{n}.{i}' for i in range(2 * size)), 'own', f'k{n}') for n,
            size in enumerate(sizes)]


@given(groups_strategy, st.integers(1, 6), st.booleans(), st.integers(0, 3))
def test_a_whole_epoch_shows_each_positive_once_or_says_what_is_left(sizes, size, apart, seed):
    groups = numbered(sizes)
    found = plan(groups, size, apart=apart, seed=seed, texts=4)
    shown = [r.texts[0] for step in found.steps for r in step]
    assert len(shown) == len(set(shown)) == sum(sizes) - found.left and set(shown) <= {p for g in groups for p in g.positives}
    for step in found.steps:
        assert len(step) <= size and (not apart or len({r.group for r in step}) == len(step))
        for row in step:
            assert row.query == groups[row.group].query and row.texts[
                0] in groups[row.group].positives and len(set(row.texts)) == len(row.texts)


@given(groups_strategy, st.integers(1, 6), st.booleans(), st.integers(1, 30))
def test_so_many_steps_as_asked(sizes, size, apart, steps):
    assert len(plan(numbered(sizes), size, max_steps=steps, apart=apart, texts=3).steps) == steps


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 7))
def test_steps_hold_all_rows_and_keep_groups_apart(numbers, size):
    rows = [TrainingRow('q', (str(i),), n) for i, n in enumerate(numbers)]
    for apart in (False, True):
        steps = list(in_steps(rows, size, apart))
        assert sorted(r.texts[0] for s in steps for r in s) == sorted(r.texts[0] for r in rows) and all(steps)
        assert not apart or all(len({r.group for r in s}) == len(s) <= size for s in steps)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6))
def test_no_positive_of_the_same_question_or_key_is_ever_a_negative(chosen):
    groups = [Group(f'q{n}', ('shared', f'p{n}'), (f'n{n}', f'p{(n + 1) % 4}'), 'own', f'k{n // 2}') for n in range(4)]
    rows = [TrainingRow(groups[n].query, (groups[n].positives[i % 2], *groups[n].negatives[:i]), n) for n, i in chosen]
    kept, texts = compared(rows, groups), [(t, r.group, place == 0) for r in rows for place, t in enumerate(r.texts)]
    first = np.cumsum([0, *(len(r.texts) for r in rows[:-1])])
    for i, row in enumerate(rows):
        assert kept[i, first[i]]
        for j, (t, owner, positive) in enumerate(texts):
            if j == first[i]: continue
            wrong = t in groups[row.group].positives or positive and groups[owner].key == groups[row.group].key
            assert kept[i, j] == (not wrong)
