"""The stance network beyond its notebook: no PyTorch at run time, any text, company and batches, damaged folders, sentences in context."""
import json
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import cases
from helpers import environment
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.stance import InContext, StanceModel, in_context, prepare_stance, shipped_stance, stances
from cpqa.core.errors import MissingExtra
from cpqa.core.records import Document, Section
from cpqa.passages.sentences import sentences
from cpqa.retrieval.openvino_models import CARD, FILES, ModelError, shipped
from cpqa.testing.toy_corpus import TOY
from cpqa.testing.tiny_models import tiny_stance

pytest.importorskip('openvino')
SAID = [InContext(d.text[a:b], title=d.title) for d in TOY for a, b in sentences(d)]
ASKED = 'Does aspirin lower the risk of polyps?'


@pytest.fixture(scope='module')
def network(tmp_path_factory): return tiny_stance(tmp_path_factory.mktemp('model')/'tiny')


@pytest.fixture(scope='module')
def folders(network, tmp_path_factory):
    return {p: prepare_stance(*network, tmp_path_factory.mktemp('made')/p, p, label='tiny') for p in ('f32', 'w8')}


@pytest.fixture(scope='module')
def tiny(folders): return StanceModel(folders['f32'])


def numbers(found) -> np.ndarray: return np.array(found)


def test_a_stance_depends_on_its_pair_alone(tiny, folders):
    together = numbers(tiny.read(ASKED, SAID))
    for other in (tiny.read(ASKED, SAID[::-1])[::-1], [tiny.read(ASKED, [s])[0] for s in SAID], tiny.read_pairs([(ASKED, s) for s in SAID]),
                  StanceModel(folders['f32'], budget=64, threads=1).read(ASKED, SAID)):
        np.testing.assert_allclose(numbers(other), together, atol=1e-4)
    assert np.corrcoef(numbers(StanceModel(folders['w8']).read(ASKED, SAID)).ravel(), together.ravel())[0, 1] > 0.97


def test_what_stands_beside_a_sentence_is_read(tiny):
    bare, beside = tiny.read(ASKED, [InContext('It fell.'), InContext('It fell.', 'Aspirin lowered the risk.', 'RESULTS')])
    assert bare != beside


@cases('asked, said', [('', ''), ('\x00\ud800', 'a\x07b'), ('tea ' * 50_000, 'it ' * 50_000), ('茶', '🫖' * 300)])
def test_any_text_has_a_stance(asked, said, tiny):
    one, = tiny.read(asked, [InContext(said, said, said, said)])
    assert all(0 <= x <= 1 for x in (*one, one.unclear)) and one.yes + one.no <= 1 + 1e-6


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), max_size=5))
def test_any_numbers_become_shares(rows):
    found = stances(np.array(rows).reshape(-1, 4))
    assert len(found) == len(rows) and all(0 <= x <= 1 for s in found for x in (*s, s.unclear))
    assert all(abs(s.yes + s.no + s.unclear - 1) < 1e-6 for s in found)


def test_it_runs_without_pytorch(folders):
    "In a process in which torch and transformers cannot be imported, and with another number of threads."
    code = '''
        import json, sys
        sys.modules |= dict.fromkeys(['torch', 'transformers', 'nncf', 'sentence_transformers'])
        from cpqa.answering.stance import InContext, StanceModel
        print(json.dumps(StanceModel(sys.argv[1], threads=1).read('Does it?', [InContext('It does.')])))
    '''
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(code), str(folders['f32'])], capture_output=True, text=True,
                          env=environment())
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), StanceModel(folders['f32']).read('Does it?', [InContext('It does.')]), atol=1e-4)


def test_a_missing_package_names_its_extra(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, 'openvino', None)
    with pytest.raises(MissingExtra, match=r'cpqa\[offline\]'): StanceModel(folders['f32'])


@cases('name', (CARD, *FILES))
def test_a_damaged_folder_is_told(name, folders, tmp_path):
    copy = shutil.copytree(folders['w8'], tmp_path/'copy')
    os.truncate(copy/name, 10)
    with pytest.raises(ModelError, match='prepare it again with prepare_stance'): StanceModel(copy)


def test_a_folder_of_another_kind_is_told(folders):
    with pytest.raises(ModelError, match='holds a bi-encoder, not a stance'): StanceModel(shipped('bi-encoder'))


def test_preparing_leaves_the_network_alone(network, tmp_path):
    before = {k: v.clone() for k, v in network[0].state_dict().items()}
    one, two = (prepare_stance(*network, tmp_path/name, 'w8') for name in 'ab')
    assert all((before[k] == v).all() for k, v in network[0].state_dict().items())
    assert StanceModel(one).describe() == StanceModel(two).describe()


# ---- sentences in their documents

def test_every_sentence_has_its_context():
    text = 'METHODS: We asked about pain every day. A nurse wrote it down for us.\nRESULTS: Pain was lower with tea in the end. It lasted.'
    methods, results = Section('METHODS', 9, text.index('\n')), Section('RESULTS', text.index('Pain'), len(text))
    document = Document('1', 'Tea', text, (methods, results))
    found = [in_context(document, span) for span in sentences(document)]
    assert [(s.section, s.before[:4]) for s in found] == [('METHODS', ''), ('METHODS', 'We a'), ('RESULTS', ''), ('RESULTS', 'Pain')]
    assert {s.title for s in found} == {'Tea'}


def test_a_long_neighbour_and_a_long_sentence_are_cut():
    document = Document('1', text='Pain ' + 'and pain ' * 200 + 'was lower. ' + 'Tea ' * 400)
    one = in_context(document, (document.text.index('Tea'), len(document.text)))
    assert len(one.sentence) == 500 and len(one.before) <= 160 and one.before.endswith('was lower.')


@given(st.text(alphabet='ab. \n', max_size=80), st.integers(0, 80), st.integers(0, 80))
def test_any_span_has_a_context(text, a, b):
    a, b = sorted((min(a, len(text)), min(b, len(text))))
    found = in_context(Document('1', text=text), (a, b))
    assert found.sentence == ' '.join(text[a:b].split())[:500] and found.section == found.title == ''


# ---- the one that comes with cpqa

@pytest.mark.skipif(shipped('stance') is None, reason='no stance model is shipped')
@cases('asked, quote, way', [
    ('Tea reduced pain compared with coffee.', 'Pain was significantly lower in the tea group than in the coffee group (p = 0.01).', 'yes'),
    ('Tea increased pain compared with coffee.', 'Pain was significantly lower in the tea group than in the coffee group (p = 0.01).',
     'no'),
    ('Does tea reduce pain?', 'There was no significant difference in pain between tea and coffee (p = 0.61).', 'no'),
    ('Does exercise reduce fatigue?', 'Patients who exercised reported less fatigue than controls.', 'yes'),
])
def test_the_shipped_network_reads_plain_sentences(asked, quote, way):
    one, = shipped_stance().read(asked, [InContext(quote)])
    assert getattr(one, way) == max(one.yes, one.no, one.unclear)
