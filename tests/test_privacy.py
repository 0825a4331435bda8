"""What a question leaves behind: files that nobody else can read, that end when they should, and that one command deletes."""
import json
import os
import stat
import time
from io import StringIO
from pathlib import Path

import pytest
from helpers import complaint, good, inside
from test_entrez import client, library as answering, serving

from cpqa.core.errors import CpqaError
from cpqa.core.llm import Completion, Message, Recorded, Replayed
from cpqa.core.records import Passage
from cpqa.core.storage import Tape, kept_questions
from cpqa.doctor import questions_check
from cpqa.evaluation.pairs import generate_pairs
from cpqa.libraries import build_index
from cpqa.literature.entrez import Entrez
from cpqa.literature.polite_http import Cache
from cpqa.retrieval.encoders import CachedEncoder
from cpqa.testing.model_server import LLMServer
from cpqa.testing.toy_corpus import TOY

pytestmark = pytest.mark.usefixtures('loaded_once')
WORD = 'quibbleberry'   # of a question, and of nothing else


def mode(path: Path) -> str: return f'{stat.S_IMODE(path.stat().st_mode):o}'


@pytest.fixture(autouse=True)
def open_handed():
    "Whatever is made may be read by everyone, unless its maker says otherwise."
    before = os.umask(0)
    yield
    os.umask(before)


class Counting:
    asked, model, window = 0, 'counting', 8000
    def complete(self, messages, *, max_tokens=1024, temperature=0.0):
        self.asked += 1
        return Completion('Yes.', 'counting')


# ---- recordings

def test_a_recording_is_its_owners_alone(tmp_path):
    tape, old = tmp_path/'tapes'/'tape.jsonl', tmp_path/'old.jsonl'
    old.write_text('')
    for path in (tape, old): Recorded(Counting(), path).complete([Message('user', WORD)])
    with serving(answering) as server: client(server, record=tmp_path/'ncbi.jsonl').search(WORD)
    assert {mode(p) for p in (tape, old, tmp_path/'ncbi.jsonl')} == {'600'} and mode(tape.parent) == '700'
    assert Replayed(tape).complete([Message('user', WORD)]).text == 'Yes.'
    before = mode(Path(os.devnull))
    Tape(os.devnull).add(b'{}')   # no file of anybody's
    assert mode(Path(os.devnull)) == before


def test_a_recording_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path/'file').write_text('no folder')
    bad, model = tmp_path/'file'/'tape.jsonl', Counting()
    with pytest.raises(CpqaError, match='the recording cannot be written'): Recorded(model, bad).complete([Message('user', 'Why?')])
    with serving(answering) as server:
        with pytest.raises(CpqaError, match='the recording cannot be written'): client(server, record=bad).search('toys')
        assert (model.asked, server.asked) == (0, [])
    passages = [Passage(d.id, 0, len(d.text), d.text) for d in TOY if d.text]
    with pytest.raises(CpqaError, match='the recording cannot be written'): generate_pairs(passages, model, path=bad)
    assert model.asked == 0
    with LLMServer(lambda messages, schema: 'Yes.') as server:
        said = complaint(inside('ask', 'Does tamoxifen help?', '--llm', f'openai:toy@{server.url}/v1', '--record', bad))
        assert 'cannot be written' in said and len(server.log) == 0


# ---- NCBI's replies

def test_replies_are_deleted_at_their_expiry(tmp_path):
    with serving(answering) as server:
        entrez = client(server, cache=tmp_path)
        entrez.search('toys'); entrez.fetch(['1', '2'])
        assert len(entrez.cache.files()) == 3 and entrez.cache.expire() == 0
        later = sorted(p.stat().st_mtime - time.time() for p in entrez.cache.files())   # when each is to be deleted
        assert later[0] < 86_400 < 29 * 86_400 < later[1] == pytest.approx(later[2], abs=60)
        for p in entrez.cache.files(): os.utime(p, (0, p.stat().st_mtime - 2 * 86_400))   # two days pass
        assert len(client(server, cache=tmp_path).cache.files()) == 2                     # whoever comes next sweeps
        assert client(server, cache=tmp_path, expiry=-1).cache.get(json.dumps([server.url, 'pubmed', '1']), -1) is None
        assert len(entrez.cache.files()) == 1                                             # what was too old is gone


def test_a_question_offline_sweeps_too(tmp_path):
    cache = Cache(tmp_path/'entrez')
    cache.put('old', b'reply', -1)
    cache.put('new', b'reply', 60)
    good('search', 'tea', '--library', build_index(TOY, tmp_path/'toy').folder, how=inside, env={'CPQA_CACHE': str(tmp_path)})
    assert cache.get('new', 60) and len(cache.files()) == 1


def test_words_of_a_question_are_in_no_address():
    others = {'espell': b'<eSpellResult><CorrectedQuery/></eSpellResult>', 'elink': b'<eLinkResult/>', 'esummary': b'<eSummaryResult/>'}
    with serving(lambda verb, fields: others.get(verb) or answering(verb, fields)) as server:
        entrez = client(server)
        entrez.search(WORD); entrez.spell(WORD); entrez.fetch(['1']); entrez.links(['1']); entrez.summaries(['1'])
        assert len(server.raw) == 5 and not [path for _, path, _ in server.raw if '?' in path]
        assert [fields['term'] for verb, fields in server.asked if verb in ('esearch', 'espell')] == [[WORD]] * 2


# ---- the cache, and how it is forgotten

class Plain:
    "An encoder of one number."
    dim = 1
    def describe(self): return {'encoder': 'plain'}
    def encode(self, texts, kind='document'): return [[1.0]] * len(texts)


@pytest.fixture
def used(tmp_path, monkeypatch) -> Path:
    "A cache that has been used, with things in it that are not of questions."
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path/'cache'))
    with serving(answering) as server:
        entrez = Entrez(server.url, cache=True, rate=1000, email='', key='')
        entrez.search(WORD); entrez.fetch(['1'])
    CachedEncoder(Plain()).encode(['A text that was found.'])
    for name in ('libraries/demo/manifest.json', 'datasets/set.jsonl', 'notes.jsonl', 'vectors/mine.txt', 'entrez/ab/mine.txt'):
        (tmp_path/'cache'/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/'cache'/name).write_text('{"my": "own"}\n')
    Recorded(Counting(), tmp_path/'cache'/'tape.jsonl').complete([Message('user', WORD)])
    return tmp_path/'cache'


def test_what_is_kept_is_its_owners_alone(used):
    files = [p for k in kept_questions() for p in k.files]
    assert len(files) == 4 and {mode(p) for p in files} == {'600'}
    assert {mode(p) for p in (used/'entrez', used/'vectors', *(p.parent for p in files if p.suffix == '.reply'))} == {'700'}


def test_the_doctor_says_where_questions_are_kept_and_one_command_forgets_them(used):
    check = questions_check()
    assert check.ok and str(used/'entrez') in check.said and 'replies of NCBI: 2' in check.said and 'cpqa forget' in check.hint
    ours = {p for p in used.rglob('*') if p.is_file()}
    said = good('forget', how=inside)
    left = {p.relative_to(used).as_posix() for p in used.rglob('*') if p.is_file() and 'rate_' not in p.name}
    assert left == {'libraries/demo/manifest.json', 'datasets/set.jsonl', 'notes.jsonl', 'vectors/mine.txt', 'entrez/ab/mine.txt'}
    assert len(ours) > len(left)
    assert all(name in said for name in (str(used/'entrez'), str(used/'vectors'), 'tape.jsonl', 'replies of NCBI: 2'))
    assert not [p for p in used.rglob('*') if p.is_file() and WORD in p.read_text(errors='replace')]
    assert 'nothing' in questions_check().said and questions_check().hint == ''
    assert 'Nothing was kept' in good('forget', how=inside) and kept_questions() == []


def test_what_cannot_be_deleted_is_said(used, monkeypatch):
    def stuck(self, missing_ok=False): raise PermissionError(1, 'Operation not permitted')
    monkeypatch.setattr(Path, 'unlink', stuck)
    assert 'could not be deleted' in complaint(inside('forget'))


def test_a_question_from_the_standard_input_is_written_nowhere(tmp_path, monkeypatch):
    "Neither into the words of the process, which `ps` shows, nor into a file."
    toy = build_index(TOY, tmp_path/'toy')
    for name in ('CPQA_CACHE', 'HOME', 'TMPDIR'):
        (tmp_path/name).mkdir()
        monkeypatch.setenv(name, str(tmp_path/name))
    monkeypatch.setattr('sys.stdin', StringIO(f'Does tamoxifen with {WORD} help?'))
    argv = ['ask', '-', '--library', str(toy.folder)]
    assert WORD in good(*argv, how=inside) and WORD not in ' '.join(argv)
    assert not [p for p in tmp_path.rglob('*') if p.is_file() and WORD.encode() in p.read_bytes()]
