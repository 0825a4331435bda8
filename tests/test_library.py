"""What cells cannot show of a library on disk: builds that are killed, builds at the same time, random streams, damaged and hostile
files."""
import hashlib
import json
import multiprocessing
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import NIGHTLY, cases
from elsewhere import again_and_again, build, dying
from filelock import FileLock
from helpers import generated, held, hidden, write_beir
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core import storage
from cpqa.core.records import Document, in_order
from cpqa.literature import library as module
from cpqa.literature.library import Library, LibraryError, build_library
from cpqa.literature.pubmed import Deleted, Skipped
from cpqa.retrieval.term_search import TermRetriever

# ---- builds that are killed

# Forty processes: a server that has imported what they need forks them.
PROCESSES = multiprocessing.get_context('forkserver')
PROCESSES.set_forkserver_preload(['cpqa.literature.library'])
SIZE = 600


class Build:
    "What `elsewhere` can do, in a process of its own, and the times at which it says something."
    def __init__(self, work: Callable, *args):
        self.ear, mouth = PROCESSES.Pipe(duplex=False)
        self.running, self.heard = PROCESSES.Process(target=work, args=(mouth, *args)), {}
        self.running.start()
        mouth.close()

    def until(self, word: str):
        with suppress(EOFError):
            while word not in self.heard: self.heard[self.ear.recv()] = time.monotonic()
        return self

    def end(self) -> int:
        self.running.join()
        return self.running.exitcode

    def kill(self) -> int:
        self.running.kill()
        return self.end()


@pytest.fixture(scope='module')
def generations(tmp_path_factory) -> dict[str, Path]:
    "Two corpora that share no document."
    folder = tmp_path_factory.mktemp('corpora')
    return {name: write_beir(folder/f'{name}.jsonl', generated(SIZE, prefix=f'{name}-', seed=n)) for n, name in enumerate(('odd', 'even'))}


def generation(folder: Path) -> str:
    "Which of the two corpora a library holds: all of it, with its part, and nothing else."
    documents = held(folder)
    name = documents[0][0].split('-')[0]
    assert [id for id, _ in documents] == [f'{name}-{i}' for i in range(SIZE)]
    assert (folder/'shout'/'titles.txt').read_text().splitlines() == [title.upper() for _, title in documents]
    return name


def other(name: str) -> str: return {'odd': 'even', 'even': 'odd'}[name]


def test_a_killed_build_leaves_the_old_library_or_the_new(generations, tmp_path):
    out, r = tmp_path/'library', random.Random(7)
    measured = Build(build, generations['odd'], out).until('end')
    assert measured.end() == 0
    total, last = (measured.heard['end'] - measured.heard[word] for word in ('start', 'part'))
    now, killed = generation(out), 0
    for n in range(20):
        mortal = Build(build, generations[other(now)], out)
        mortal.until('part' if n % 2 else 'start')               # every second one dies where files are moved into place
        time.sleep(r.random() * (last if n % 2 else total))
        killed += mortal.kill() == -signal.SIGKILL
        found = generation(out)
        assert found in (now, other(now))
        now = found
    assert killed >= 10
    assert Build(build, generations[other(now)], out).end() == 0
    assert generation(out) == other(now) and hidden(tmp_path) == []


MOMENTS = {'before rename 1': 'odd', 'after rename 1': 'odd', 'before rename 2': 'odd', 'after rename 2': 'even', 'removing': 'even'}


def dead(generations, out: Path, moment: str):
    "A library that holds 'odd', and a build of 'even' that died at this moment."
    assert Build(build, generations['odd'], out).end() == 0
    assert Build(dying, generations['even'], out, moment).end() == 9


@pytest.mark.parametrize('moment, survivor', MOMENTS.items(), ids=MOMENTS)
def test_a_build_that_dies_at_each_step_of_the_swap(moment, survivor, generations, tmp_path):
    out = tmp_path/'library'
    dead(generations, out, moment)
    assert generation(out) == survivor and generation(out) == survivor
    assert Build(build, generations['odd'], out).end() == 0
    assert generation(out) == 'odd' and hidden(tmp_path) == []


@pytest.mark.parametrize('moment', ['after rename 1', 'removing'])
def test_a_bad_build_after_one_that_died(moment, generations, tmp_path):
    "The next thing that happens is not an opening, but a build that fails."
    out = tmp_path/'library'
    dead(generations, out, moment)
    with pytest.raises(LibraryError): build_library([[Skipped('record 1', 'it is bad')]], out)
    assert generation(out) == MOMENTS[moment]


def test_a_name_that_looks_like_a_pattern(generations, tmp_path):
    "A build that died is tidied up after, and no other library's, whatever the library is called."
    storage.beside(tmp_path/'other', 'building-1').mkdir()
    for name in ('library [1]', '*', 'l?'):
        storage.beside(tmp_path/name, 'building-1').mkdir()
        build_library([[Document(id='1', text='tea')]], tmp_path/name)
    assert hidden(tmp_path) == ['.other.cpqa-building-1']


def failing(n: int, error: BaseException):
    yield from generated(n)
    raise error


@pytest.mark.parametrize('error', [LibraryError('a bad file'), OSError('a bad disk'), KeyboardInterrupt(), ZeroDivisionError()],
                         ids=lambda e: type(e).__name__)
def test_a_build_that_fails_leaves_nothing_behind(error, tmp_path):
    before = build_library([[Document(id='1', text='tea')]], tmp_path/'library').ids
    for n in (1, 50) * (15 if NIGHTLY else 4):                   # the term index writes in threads of its own
        with pytest.raises(BaseException) as caught: build_library([failing(n, error)], tmp_path/'library')
        assert isinstance(caught.value, LibraryError if isinstance(error, OSError) else type(error))
        assert [p.name for p in tmp_path.iterdir()] == ['library']
    assert Library(tmp_path/'library').ids == before


# ---- several at once

def tea(id: str) -> list[Document]: return [Document(id=id, text='tea')]


class Paused:
    "Records that stop coming until they are told to go on."
    def __init__(self, id: str): self.id, self.reached, self.go = id, threading.Event(), threading.Event()

    def __iter__(self):
        yield Document(id=self.id, text='tea')
        self.reached.set()
        assert self.go.wait(60)


def in_background(build, *args, **kwargs) -> threading.Thread:
    "The build in a thread, with its `outcome`: the library or the error."
    def run():
        try: thread.outcome = build(*args, **kwargs)
        except Exception as e: thread.outcome = e
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_second_build_is_refused_or_waits(tmp_path):
    slow = Paused('slow')
    first = in_background(build_library, [slow], tmp_path/'library')
    assert slow.reached.wait(60)
    with pytest.raises(LibraryError, match='another build'): build_library([tea('hasty')], tmp_path/'library')
    build_library([tea('elsewhere')], tmp_path/'another')        # no other place is locked
    patient = in_background(build_library, [tea('patient')], tmp_path/'library', wait=60)
    slow.go.set()
    for thread in (first, patient):
        thread.join(60)
        assert isinstance(thread.outcome, Library), thread.outcome
    assert Library(tmp_path/'library').ids == ['patient'] and hidden(tmp_path) == []


def test_a_lock_that_is_handed_on_still_locks(tmp_path, monkeypatch):
    "The moment one build lets go, a waiting one takes the lock: a third must not get it as well."
    waiting = []
    class HandedOn(FileLock):
        def release(self, *args, **kwargs):
            super().release(*args, **kwargs)
            if not waiting:
                waiting.append(FileLock(self.lock_file))         # what a second build does in its own process
                waiting[0].acquire(timeout=10)
    monkeypatch.setattr(storage, 'FileLock', HandedOn)
    build_library([tea('first')], tmp_path/'library')
    assert waiting[0].is_locked
    try:
        with pytest.raises(LibraryError, match='another build'): build_library([tea('third')], tmp_path/'library')
    finally: waiting[0].release()


def test_many_builds_that_wait_for_each_other(tmp_path):
    crowd = [Build(again_and_again, str(n), tmp_path/'library', 25 if NIGHTLY else 8) for n in range(4)]
    assert [process.end() for process in crowd] == [0] * 4
    assert len(held(tmp_path/'library')) == 30 and hidden(tmp_path) == []


def test_a_library_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    "Whoever opens a library gets the old one or the new one, and is not told that it is damaged."
    build_library([generated(20, prefix='old-')], tmp_path/'library')
    read, done = module._read_manifest, []
    def slow_read(folder):
        manifest = read(folder)
        if not done:
            done.append(True)
            build_library([generated(300, prefix='new-')], tmp_path/'library')
        return manifest
    monkeypatch.setattr(module, '_read_manifest', slow_read)
    ids = Library(tmp_path/'library').ids
    assert ids in ([f'old-{i}' for i in range(20)], [f'new-{i}' for i in range(300)])


def test_an_open_library_stays_what_it_was(tmp_path):
    "A library that was opened before it was replaced holds the old documents, or says that it must be opened again."
    build_library([[Document(id='old', title='Old', text='tea')]], tmp_path/'library')
    opened = Library(tmp_path/'library')
    build_library([[Document(id='new', title='New', text='tea')]], tmp_path/'library')
    assert opened.get('old').title == 'Old' and opened.get('new') is None
    assert [h.id for h in TermRetriever(opened).search(['tea'], 5)[0]] == ['old']
    try: assert opened.ids == ['old']
    except LibraryError as e: assert 'open it again' in str(e)


# ---- random streams

words = st.text(max_size=30)
odd_ids = st.text(min_size=1, max_size=6).filter(lambda s: s.isprintable() and ' ' not in s)


@st.composite
def streams(draw):
    "Records about a handful of ids, in one to three sources."
    pool = st.sampled_from(draw(st.lists(st.one_of(odd_ids, st.integers(1, 99).map(str)), min_size=1, max_size=6, unique=True)))
    record = st.one_of(st.builds(Document, id=pool, title=words, text=words), st.builds(Document, id=pool, title=words, text=words),
                       st.builds(Deleted, pool), st.builds(Skipped, words, words))
    return draw(st.lists(st.lists(record, max_size=12), min_size=1, max_size=3))


def reference(sources) -> tuple[dict[str, Document], dict[str, int], list[str]]:
    "The documents that a dict ends up with, the counts, and the bad records."
    live, counts, bad = {}, dict.fromkeys(('documents', 'replaced', 'deleted', 'skipped'), 0), []
    for r in [r for source in sources for r in source]:
        if isinstance(r, Skipped): bad.append(f'{r.where}: {r.why}')
        elif live.pop(r.id, None): counts['deleted' if isinstance(r, Deleted) else 'replaced'] += 1
        if isinstance(r, Document): live[r.id] = r
    return live, counts | {'documents': len(live), 'skipped': len(bad)}, bad


@given(streams())
def test_a_library_holds_what_a_dict_would(tmp_path_factory, sources):
    out = tmp_path_factory.mktemp('stream')/'library'
    live, counts, bad = reference(sources)
    if not live:
        with pytest.raises(LibraryError, match='no document'): build_library(sources, out)
        assert not out.exists()
        return
    library = build_library(sources, out)
    assert list(library) == list(live.values()) and library.ids == list(live) and len(library) == len(live)
    assert library.manifest.counts == counts and list(library.manifest.skipped) == bad
    assert all(id in library and library.get(id) == document for id, document in live.items())
    assert all(r.id in library or r.id not in live for source in sources for r in source if not isinstance(r, Skipped))
    library.verify()
    shutil.rmtree(out)


def test_an_open_library_writes_nothing_into_a_folder_that_goes(tmp_path):
    library = build_library([generated(3)], tmp_path/'library')
    assert len(library) == 3 and library.get(library.ids[0])
    for path in (terms := library.folder/'terms').iterdir(): path.unlink()
    time.sleep(1.2)   # a thread that looks for changes looks twice a second
    assert not list(terms.iterdir())


@pytest.fixture(scope='module')
def forty(tmp_path_factory) -> Library: return build_library([generated(40)], tmp_path_factory.mktemp('forty')/'library')


@given(st.lists(st.integers(0, 39), max_size=60))
def test_documents_come_in_the_order_asked(forty, numbers):
    assert [d.id for d in forty.documents(str(n) for n in numbers)] == [str(n) for n in numbers]


@given(st.text(min_size=1, max_size=8))
def test_an_id_is_never_taken_for_another(forty, id):
    assert (id in forty) == (id in forty.ids) and (forty.get(id) is None) == (id not in forty.ids)


def test_an_id_of_any_length_is_kept_or_left_out(tmp_path):
    lines = [json.dumps({'_id': '9' * n, 'text': 'tea'}) for n in (1, 100, 1000, 65_530, 70_000)]
    library = build_library([write_beir(tmp_path/'long.jsonl', [], *lines)], tmp_path/'library')
    assert [d.id for d in library] == library.ids and '9' in library and len(library) + len(library.manifest.skipped) == len(lines)


# Words that no stemmer shortens and that are no stop words, and what they look like to a reader.
VOCABULARY = ['qado', 'wefu', 'zomi', 'kolu', 'vanu', 'rubo']
corpora = st.lists(st.lists(st.sampled_from([*VOCABULARY, 'the', 'of', 'KOLU', 'Zomi,', '(vanu)', 'rubo.']), max_size=8), min_size=1,
                   max_size=25)


def terms(text: str) -> set[str]: return {w.strip('(),.').lower() for w in text.split()} & set(VOCABULARY)


@given(corpora, st.lists(st.sampled_from([*VOCABULARY, 'the', 'absent', 'QADO', '"zomi']), max_size=4), st.integers(1, 10))
def test_term_search_finds_what_shares_a_term(tmp_path_factory, texts, query, k):
    out = tmp_path_factory.mktemp('terms')/'library'
    documents = [Document(id=f'd{n}', title=' '.join(text[:2]), text=' '.join(text[2:])) for n, text in enumerate(texts)]
    library = build_library([documents, [Deleted('d0')], documents[:1]], out)        # d0 is deleted and comes again, as the last
    asked = terms(' '.join(w.strip('"') for w in query))
    sharing = {d.id for d in documents if terms(f'{d.title} {d.text}') & asked}
    hits = TermRetriever(library).search([' '.join(query)], 1000)[0]
    assert len(hits) == len(sharing) and {h.id for h in hits} == sharing
    assert hits == in_order(hits) and all(h.score > 0 for h in hits)
    assert [h.id for h in TermRetriever(library).search([' '.join(query)], k)[0]] == [h.id for h in hits[:k]]
    shutil.rmtree(out, ignore_errors=True)   # tantivy's threads may still be removing a file


# ---- damaged and hostile libraries

@pytest.fixture(scope='module')
def sound(tmp_path_factory) -> Path:
    return build_library([generated(30)], tmp_path_factory.mktemp('sound')/'library').folder


def put(path: Path, data: bytes):
    "Another file in the place of this one; whoever has it mapped into memory keeps the old one."
    (path.parent/'new').write_bytes(data)
    (path.parent/'new').rename(path)


def flipped(path: Path, n: int):
    "For `n` places in a file: the file with one bit changed."
    data, r = path.read_bytes(), random.Random(path.suffix)
    for at in {0, len(data) - 1, *(r.randrange(len(data)) for _ in range(n))}:
        put(path, data[:at] + bytes([data[at] ^ 1 << r.randrange(8)]) + data[at + 1:])
        yield at
    put(path, data)


def test_a_changed_byte_is_noticed(sound, tmp_path):
    library, missed = shutil.copytree(sound, tmp_path/'library'), []
    files = sorted(p for p in library.rglob('*') if p.is_file() and p.stat().st_size)
    assert {'manifest.json', 'ids.txt', 'meta.json'} <= {p.name for p in files} and len(files) > 7
    for path in files:
        for at in flipped(path, 40 if path.name == 'manifest.json' else 5):
            try: Library(library).verify()
            except LibraryError: continue
            except BaseException as e: missed.append(f'{path.name} at {at}: {type(e).__name__}')     # a panic of Rust is no Exception
            else: missed.append(f'{path.name} at {at}')
    assert not missed, '; '.join(missed)
    held(library)


SECRET = b'The name of the patient is not to be read.'


def hostile(library: Path, name: str):
    "A manifest that names a file elsewhere, with its right size and hash."
    manifest = json.loads((library/'manifest.json').read_text())
    manifest['files'][name] = {'bytes': len(SECRET), 'sha256': hashlib.sha256(SECRET).hexdigest()}
    (library/'manifest.json').write_text(json.dumps(manifest))
    (library/'manifest.sha256').write_text(storage.sha256(library/'manifest.json'))


@cases('name', ['../secret', 'terms/../../secret', '{}', './/{}', '~/secret', ''])
def test_a_manifest_that_names_files_elsewhere(name, sound, tmp_path):
    library = shutil.copytree(sound, tmp_path/'library')
    (tmp_path/'secret').write_bytes(SECRET)
    hostile(library, name.format(tmp_path/'secret'))
    with pytest.raises(LibraryError): Library(library).verify()


def test_a_manifest_does_not_say_how_large_files_elsewhere_are(sound, tmp_path):
    library = shutil.copytree(sound, tmp_path/'library')
    (tmp_path/'secret').write_bytes(SECRET * 3)
    hostile(library, '../secret')
    with pytest.raises(LibraryError) as caught: Library(library)
    assert str(len(SECRET) * 3) not in str(caught.value)
