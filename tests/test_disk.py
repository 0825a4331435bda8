"""What happens to libraries and models while they are in use: somebody puts a letter there, a disk errs, nothing can be written, a library
is built anew, a process forks."""
import json
import multiprocessing
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import cases
from helpers import complaint, generated, hidden, inside, mount, unmount, untroubled

from cpqa.core.records import Document
from cpqa.core.storage import sha256
from cpqa.libraries import build_index, demo_library, kept_library
from cpqa.literature import library as module
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.library import Library, LibraryError, build_library
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.boolean import BooleanIndex
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.openvino_models import CARD, ModelError, preparing
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.vectors import Vectors

pytestmark = pytest.mark.usefixtures('loaded_once')
QUESTION = 'Is tisagenlecleucel effective for B-cell lymphoma?'
LETTER = 'Dear doctor'


def tea(id: str = '1') -> list[Document]: return [Document(id=id, title='Tea', text='Tea was drunk by 68 of 100 people.')]


def demo(to: Path) -> Path: return shutil.copytree(demo_library().folder, to)


# ---- what somebody put there

def letter(path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LETTER)


PLACES = {   # where something is put in the middle of a build, and how
    'a letter where nothing was': (False, lambda out: letter(out/'letter.txt')),
    'a file where nothing was': (False, letter),
    'a letter beside our files': (True, lambda out: letter(out/'letter.txt')),
    'a letter in our index': (True, lambda out: letter(out/'terms'/'letter.txt')),
    'a lock of theirs': (True, lambda out: letter(out/'theirs.lock')),
    'a folder of theirs': (True, lambda out: letter(out/'theirs'/'letter.txt')),
    'an empty folder': (True, lambda out: (out/'theirs').mkdir()),
    'a link': (True, lambda out: (out/'link').symlink_to(out.parent)),
}


def everything(folder: Path) -> dict[str, str]:
    "All that lies under a folder, by name, with what the letters say."
    return {p.relative_to(folder).as_posix(): p.read_text() if p.is_file() and p.read_bytes() == LETTER.encode() else ''
            for p in sorted(folder.rglob('*')) if p.suffix != '.lock' or p.is_file() and p.read_bytes() == LETTER.encode()}


@pytest.fixture(scope='module')
def small(tmp_path_factory) -> Path: return build_library([tea()], tmp_path_factory.mktemp('small')/'library').folder


@cases('there, put', PLACES.values())
def test_what_somebody_puts_there_during_a_build_stays(there, put, small, tmp_path):
    out, seen = tmp_path/'library', []
    if there: shutil.copytree(small, out)
    def records():
        yield from tea('2')
        put(out)
        seen.append(everything(tmp_path/'library') if out.is_dir() else out.read_text())
    with pytest.raises(LibraryError, match='was left as it is'): build_library([records()], out)
    assert seen == [everything(tmp_path/'library') if out.is_dir() else out.read_text()] and hidden(tmp_path) == []
    if there: assert Library(out).ids == ['1']


@cases('name', ['theirs.lock', 'terms/theirs.lock', 'theirs/'])
def test_a_library_that_holds_more_is_not_replaced(name, small, tmp_path):
    shutil.copytree(small, out := tmp_path/'library')
    (out/name).mkdir() if name.endswith('/') else letter(out/name)
    with pytest.raises(LibraryError, match='holds other files too'): build_library([tea('2')], out)
    assert (out/name).exists() and Library(out).ids == ['1']


def test_files_that_are_called_like_ours_stay(tmp_path):
    theirs = [tmp_path/f'.library.{name}' for name in ('lock', 'previous/letter.txt', 'building-notes/letter.txt', 'building-1-1')]
    for path in theirs: letter(path)
    for id in '12': build_library([tea(id)], tmp_path/'library')
    shutil.rmtree(tmp_path/'library')
    with pytest.raises(LibraryError, match='is not a library'): Library(tmp_path/'library')
    assert [p.read_text() for p in theirs] == [LETTER] * 4
    assert hidden(tmp_path) == sorted({p.relative_to(tmp_path).parts[0] for p in theirs})


@pytest.mark.parametrize('before', [False, True])
def test_a_model_takes_no_place_of_others(before, tmp_path):
    def make(text, meanwhile=lambda: None):
        with preparing(tmp_path/'out', 'bi-encoder') as folder:
            (folder/CARD).write_text(text)
            meanwhile()
    make('old')
    if before: letter(tmp_path/'out'/'letter.txt')
    with pytest.raises(ModelError, match='holds other files too' if before else 'was left as it is'):
        make('new', lambda: letter(tmp_path/'out'/'letter.txt'))
    assert ((tmp_path/'out'/CARD).read_text(), (tmp_path/'out'/'letter.txt').read_text(), hidden(tmp_path)) == ('old', LETTER, [])


def test_a_damaged_library_of_the_cache_makes_room(tmp_path, monkeypatch):
    "It is made again, and what else lay there is kept."
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path))
    make = lambda folder: build_library([tea()], folder)
    folder = kept_library('tea', 'tea', make).folder
    (folder/'manifest.json').write_text('{')
    letter(folder/'letter.txt')
    assert kept_library('tea', 'tea', make).ids == ['1']
    assert [p.read_text() for p in tmp_path.rglob('letter.txt')] == [LETTER]


# ---- bit rot

def rot(path: Path, at: int, bit: int):
    "Changes a bit of a file where it is, so that who has it mapped into memory sees it."
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ bit]))


def test_no_changed_document_is_read(tmp_path):
    "The files changed after they were looked at: each document is what it was, or it is refused."
    documents = generated(40)
    folder, refused = build_library([documents], tmp_path/'library').folder, 0
    [store] = folder.glob('terms/*.store')
    for d in documents:
        if (at := store.read_bytes().find(d.text[100:125].encode())) < 0: continue   # it is packed
        rot(store, at + 9, 2)
        fresh = module.Documents(folder)   # has nothing in its memory yet
        with pytest.raises(LibraryError, match=f"document '{d.id}' is not what was written; .*--verify"): fresh.get(d.id)
        with pytest.raises(LibraryError, match='--verify'): TermRetriever(fresh).search([d.title], 1)
        with pytest.raises(LibraryError, match='--verify'): BooleanIndex(fresh).search(d.title.split()[0])
        rot(store, at + 9, 2)
        refused += 1
    assert refused >= 5 and list(Library(folder)) == documents


def test_a_byte_that_changes_is_seen_at_opening(tmp_path):
    folder, missed = tmp_path/'library', []
    build_index([n.document() for n in demo_notes()[:200]], folder)   # of larger vectors the ends are read at opening, and all at --verify
    for path in sorted(p for p in folder.rglob('*') if p.is_file() and p.stat().st_size):
        for at in (0, path.stat().st_size // 2, path.stat().st_size - 1):
            rot(path, at, 1)
            try: Library(folder)
            except LibraryError as e: missed += [] if '--verify' in str(e) or 'another version' in str(e) else [str(e)]
            else: missed.append(path.name)
            rot(path, at, 1)
    assert missed == [] and Library(folder).verify() is None


def test_a_damaged_document_is_never_quoted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, '_ends', lambda path: 0)   # as in a library so large that opening it sees none of this
    monkeypatch.setattr(module, '_manifest_wrong', lambda folder: '')
    folder = demo(tmp_path/'library')
    manifest = json.loads((folder/'manifest.json').read_text())
    for entry in manifest['files'].values(): entry['ends'] = 0
    (folder/'manifest.json').write_text(json.dumps(manifest))
    assert '30501490' in inside('search', QUESTION, '--retriever', 'bm25', '--library', folder).stdout
    [store] = folder.glob('terms/*.store')
    with open(store, 'r+b') as f:
        spoilt = re.sub(b'([a-z]{2})[a-z]( [a-z]{4})', rb'\1x\2', f.read())
        f.seek(0)
        f.write(spoilt)
    for argv in (['ask', QUESTION, '--library', folder], ['ask', QUESTION, '--source', folder],
                 ['search', QUESTION, '--retriever', 'bm25', '--library', folder]):
        assert '--verify' in complaint(inside(*argv))


@cases('name', ['vectors/spans.npy', 'ids.txt'])
def test_places_and_ids_are_read_whole(name, tmp_path, monkeypatch):
    folder = demo(tmp_path/'library')
    opened = Library(folder)
    rot(folder/name, (folder/name).stat().st_size // 2, 1)
    with pytest.raises(LibraryError, match=f'{name} has another SHA-256'): Vectors(opened, EmbeddedEncoder())


def test_verify_names_what_is_wrong(tmp_path):
    folder = demo(tmp_path/'library')
    for pattern in ('terms/*.pos', 'terms/*.term'): rot(next(folder.glob(pattern)), 5000, 1)
    said = complaint(inside('index', 'info', folder, '--verify'))
    assert '.pos' in said or '.term' in said
    with pytest.raises(LibraryError, match=r'SHA-256 than when it was written, and 1 more'): sound_verify(folder)


def sound_verify(folder: Path):
    "`verify` of a library that was open before it was damaged."
    opened = object.__new__(Library)
    opened.folder, opened.manifest = folder, module._read_manifest(folder)
    opened.verify()


def test_a_library_of_the_form_before_can_be_read(tmp_path):
    "It has no checksum of a document, and none of beginnings and ends."
    folder = build_library([generated(20)], tmp_path/'library').folder
    manifest = json.loads((folder/'manifest.json').read_text()) | {'format': 2}
    for entry in manifest['files'].values(): del entry['ends']
    (folder/'manifest.json').write_text(json.dumps(manifest))
    (folder/'manifest.sha256').write_text(sha256(folder/'manifest.json'))
    old = Library(folder)
    assert list(old) == generated(20) and not old.summed and old.verify() is None


# ---- where nothing can be written

@pytest.fixture
def shut(tmp_path):
    "A folder to fill, and a function after which nothing can be written there."
    disk = tmp_path/'disk'
    mounted = mount(disk, 20_000_000)
    if not mounted and os.geteuid() == 0: pytest.skip('whoever is root can write anywhere, and may not mount a file system here')
    def shut():
        if mounted: return subprocess.run(['mount', '-o', 'remount,ro', disk], check=True)
        for folder in [disk, *(p for p in disk.rglob('*') if p.is_dir())]: folder.chmod(0o555)
    yield disk, shut
    if mounted: return unmount(disk)
    for folder in [disk, *(p for p in disk.rglob('*') if p.is_dir())]: folder.chmod(0o755)


def test_a_library_where_one_may_only_read(shut, tmp_path):
    disk, close = shut
    build_library([generated(20)], disk/'library')
    for lock in (disk/'library').rglob('*.lock'): lock.unlink()
    close()
    opened = Library(disk/'library')
    assert list(opened) == generated(20) and BooleanIndex(opened).search(opened.get('3').title.split()[0]).count
    with pytest.raises(LibraryError, match='choose another directory'): build_library([tea()], disk/'library')


def test_a_cache_where_one_may_only_read(shut, monkeypatch):
    disk, close = shut
    demo(disk/'libraries'/demo_library().folder.name)
    close()
    done = inside('ask', QUESTION, env={'CPQA_CACHE': str(disk)})
    assert done.returncode == 0 and untroubled(done) and done.stderr == ''


def test_an_empty_cache_where_one_may_only_read(shut):
    disk, close = shut
    close()
    assert 'set CPQA_CACHE to a directory of yours' in complaint(inside('ask', QUESTION, env={'CPQA_CACHE': str(disk)}))


# ---- a library that is built anew

def test_who_holds_a_library_asks_the_new_one(tmp_path):
    out = tmp_path/'library'
    held = [CancerQA(out if n else build_index(tea('old'), out)) for n in range(2)]   # an open one, and its directory
    find = lambda qa, way='hybrid': [h.id for h in qa.search('tea', retriever=way)]
    assert [find(qa) for qa in held] == [['old']] * 2
    models = [qa.encoder for qa in held]
    build_index(tea('new'), out)
    for qa in held: assert [find(qa, way) for way in ('bm25', 'dense', 'boolean')] == [['new']] * 3
    assert [{e.passage.doc_id for e in qa.ask('Does tea help?').evidence} for qa in held] == [{'new'}] * 2
    assert [qa.encoder for qa in held] == models
    before = [qa.opened for qa in held]
    for qa in held: find(qa)
    assert [qa.opened for qa in held] == before                             # and is opened once


def test_a_question_under_way_ends_with_the_library_it_began_with(tmp_path):
    class Meanwhile(CancerQA):
        def dual_path(self, *args):
            build_index(tea('new'), tmp_path/'library')
            return super().dual_path(*args)
    qa = Meanwhile(build_index(tea('old'), tmp_path/'library'))
    assert {e.passage.doc_id for e in qa.ask('Does tea help?').evidence} == {'old'}
    assert qa.library.ids == ['old'] and qa.search('tea')[0].id == 'new'


def test_a_library_that_goes_while_it_is_opened(small, tmp_path, monkeypatch):
    "Between any two looks at it."
    for name in ('_read_manifest', '_manifest_wrong', '_wrong', '_open_terms'):
        shutil.copytree(small, out := tmp_path/name)
        with monkeypatch.context() as m:
            before = getattr(module, name)
            m.setattr(module, name, lambda *args, **more: [before(*args, **more), shutil.rmtree(out, ignore_errors=True)][0])
            with pytest.raises(LibraryError): Library(out)
    shutil.copytree(small, out)
    opened = Library(out)
    shutil.rmtree(out)
    assert not opened.replaced() and opened.get('1') == tea()[0]
    with pytest.raises(LibraryError): opened.ids


# ---- fork

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no process forks here')
def test_a_process_that_forks_after_the_first_question(monkeypatch):
    "As a pool of workers does, or a server that loads all it needs and then forks."
    monkeypatch.setattr(Forked, 'qa', CancerQA(finding=Finding(depth=4)), raising=False)
    Forked.ask('Does tamoxifen help?')
    with multiprocessing.get_context('fork').Pool(1) as pool: there = pool.apply_async(Forked.ask, [QUESTION]).get(100)
    assert there == Forked.ask(QUESTION) != ''


class Forked:
    "What a process that is forked inherits."
    qa: CancerQA
    @staticmethod
    def ask(question: str) -> str: return Forked.qa.ask(question).response
