"""What cells cannot show of a library from PubMed: commands that are killed and given again, updates that are killed, and two at once."""
import gzip
import hashlib
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from conftest import NIGHTLY
from helpers import CPQA, complaint, environment, good, held, hidden, inside, write_beir
from msgspec.structs import replace

from cpqa import collecting
from cpqa.collecting import Making, baseline_library, refresh_library, update_from_files
from cpqa.core.records import Document
from cpqa.core.storage import beside
from cpqa.libraries import build_index
from cpqa.literature import library as library_room
from cpqa.literature.entrez import Entrez
from cpqa.literature.library import Intake, Library, Origin, build_library, part_sizes
from cpqa.literature.library_updates import update_library
from cpqa.literature.pubmed import Deleted
from cpqa.literature.pubmed_writer import write_pubmed
from cpqa.local_ncbi.entrez_server import EntrezServer
from cpqa.retrieval.encoders import EmbeddedEncoder
from cpqa.retrieval.openvino_models import shipped
from cpqa.retrieval.term_search import TermRetriever

FAULTS = '429=2,efetch:500=5%,efetch:cut=5%,efetch:lose=5%,esearch:html=1,epost:down=1,efetch:short=5%,slow=0.02'
N = 16_000 if NIGHTLY else 600
TODAY = datetime.now(UTC).date().isoformat()
NEW, REVISED, GONE = (500, 200, 50) if NIGHTLY else (50, 20, 5)


def paper(n: int, **more) -> Document:
    "The `n`-th paper on tea."
    r = random.Random(n)
    words = ' '.join(r.choice(('tea', 'fatigue', 'trial', 'leaf', 'dose', f'word{r.randint(1, 999)}')) for _ in range(60))
    said = {'year': 2000 + n % 24, 'revised': '2024-01-01', 'text': words} | more
    return Document(str(n), title=f'Tea, trial {n}', date=f'{said["year"]}-{1 + n % 12:02}', **said)


PAPERS = {n: paper(n) for n in range(1, N + 1)}
LATER = ({n: d for n, d in PAPERS.items() if n > GONE}
         | {n: replace(PAPERS[n], text=f'Revised. {PAPERS[n].text}', revised=TODAY) for n in range(GONE + 1, GONE + REVISED + 1)}
         | {n: paper(n, year=2024, revised=TODAY) for n in range(N + 1, N + NEW + 1)})


def searched(folder: Path) -> tuple:
    "What a library holds, whole, and what some queries find in it, with scores."
    library = Library(folder)
    library.verify()
    queries = ['tea dose', 'word7 word77', 'trial 5 leaf']
    return list(library), [[(h.id, h.score) for h in hits] for hits in TermRetriever(library).search(queries, 20)]


def killed_and_again(kills: int, most: float, *words) -> int:
    "Gives a command until it ends well, the first times with a kill after a while; how many kills there were."
    r, done = random.Random(3), 0
    for n in range(kills):
        running = subprocess.Popen([CPQA, *map(str, words)], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try: running.wait(r.uniform(0.3, 1) * most * (n + 1) / kills)
        except subprocess.TimeoutExpired:
            running.kill()
            done += 1
        running.wait()
    good(*words)
    return done


@pytest.fixture(scope='module')
def servers(tmp_path_factory):
    "A PubMed, and the same later on, both of which misbehave."
    folder = tmp_path_factory.mktemp('pubmed')
    for name, papers in (('now', PAPERS), ('later', LATER)): build_library([papers.values()], folder/name)
    with EntrezServer(folder/'now', misbehave=FAULTS) as now, EntrezServer(folder/'later', misbehave=FAULTS) as later: yield now, later


@pytest.fixture(scope='module')
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('NCBI_EMAIL', '')
        patch.setenv('NCBI_API_KEY', '')
        yield patch


def test_a_library_that_was_killed_on_its_way_is_that_of_an_undisturbed_run(servers, quick, tmp_path):
    now, later = servers
    quick.setenv('CPQA_ENTREZ_URL', now.url)
    words = ['library', 'get', 'tea AND hasabstract', '--no-vectors', '--out']
    good(*words, tmp_path/'whole', how=inside)
    killed = killed_and_again(10 if NIGHTLY else 2, 60 if NIGHTLY else 4, *words, tmp_path/'killed')
    assert killed >= (8 if NIGHTLY else 1) and hidden(tmp_path) == []
    whole = searched(tmp_path/'whole')
    assert searched(tmp_path/'killed') == whole and {d.id: d for d in whole[0]} == {d.id: d for d in PAPERS.values()}

    quick.setenv('CPQA_ENTREZ_URL', later.url)
    said = good('library', 'update', tmp_path/'killed', how=inside)
    assert said.startswith(f'{NEW:,} new, {REVISED:,} revised, {GONE:,} withdrawn')
    documents, _ = searched(tmp_path/'killed')
    assert {d.id: d for d in documents} == {d.id: d for d in LATER.values()} and hidden(tmp_path) == []
    assert json.loads(good('library', 'list', tmp_path, '--json', how=inside))[0]['questions'] == ['tea AND hasabstract']


class Dying(Intake):
    "Takes down how many documents it wrote, and dies before the next one once it wrote so many; None: never."
    log, lives = Path(), None

    def add(self, d):
        if self.lives == 0: os.kill(os.getpid(), signal.SIGKILL)
        if self.lives is not None: type(self).lives -= 1
        with open(self.log, 'a') as f: f.write(f'{d.id}\n')
        super().add(d)


def _from_baseline(out: Path, files: list[str], lives: int | None):
    Dying.log, Dying.lives = out.with_suffix('.log'), lives
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_room, 'Intake', Dying)
        patch.setattr(library_room, '_COMMIT', 100)
        baseline_library(files, out, making=Making(vectors=False))


def test_terms_that_were_killed_on_their_way_go_on_from_the_last_commit(tmp_path):
    "Also where records are replaced and deleted; and where the files are others, they begin anew."
    processes, files = multiprocessing.get_context('fork'), [str(tmp_path/f'{n}.xml.gz') for n in range(3)]
    newer = [replace(PAPERS[n], text=f'Newer. {PAPERS[n].text}', revised='2024-05-05') for n in range(1, 300, 3)]
    for path, some in zip(files, ([*PAPERS.values()][:300], newer, [*PAPERS.values()][300:560])):
        with gzip.open(path, 'wb') as f: write_pubmed(some, f)
    _from_baseline(tmp_path/'whole', files, None)
    codes = []
    for lives, names in ((150, files), (170, files), (120, files), (30, files[:2]), (None, files[:2])):
        run = processes.Process(target=_from_baseline, args=(tmp_path/'killed', names, lives))
        run.start()
        run.join()
        codes.append(run.exitcode)
        if lives == 120: before = len((tmp_path/'killed.log').read_text().split())
    assert codes == [-signal.SIGKILL] * 4 + [0] and before == 150 + 170 + 120
    assert len(Library(tmp_path/'killed')) == 300 and len((tmp_path/'killed.log').read_text().split()) == before + 30 + 400
    (tmp_path/'killed.log').unlink()
    for lives in (150, 170, 400, None):
        run = processes.Process(target=_from_baseline, args=(tmp_path/'killed', files, lives))
        run.start()
        run.join()
    wrote = [int(id) for id in (tmp_path/'killed.log').read_text().split()]
    every = [int(id) for id in (tmp_path/'whole.log').read_text().split()]
    assert wrote == every[:150] + every[100:270] + every[200:600] + every[600:] and len(every) == 660
    assert searched(tmp_path/'killed') == searched(tmp_path/'whole') and hidden(tmp_path) == []
    assert Library(tmp_path/'killed').ids == Library(tmp_path/'whole').ids
    told = Library(tmp_path/'killed').manifest
    assert told.counts == Library(tmp_path/'whole').manifest.counts and [*told.sources] == files


def _update(folder: Path):
    update_library(folder, [[*(d for n, d in LATER.items() if PAPERS.get(n) != d), *(Deleted(str(n)) for n in range(1, GONE + 1))]])


def test_an_update_that_is_killed_leaves_the_old_library_or_the_new(tmp_path):
    processes, out, r = multiprocessing.get_context('fork'), tmp_path/'library', random.Random(5)
    build_library([PAPERS.values()], out)
    old = held(out)
    began = time.monotonic()
    _update(build_library([PAPERS.values()], tmp_path/'measured').folder)
    total, new = time.monotonic() - began, held(tmp_path/'measured')
    seen = set()
    for _ in range(12):
        mortal = processes.Process(target=_update, args=(out,))
        mortal.start()
        time.sleep(r.random() * total)
        os.kill(mortal.pid, signal.SIGKILL)
        mortal.join()
        found = held(out)
        assert found in (old, new)
        seen.add(found == new)
        if found == new: build_library([PAPERS.values()], out)
    _update(out)
    assert held(out) == new and [name for name in hidden(tmp_path) if 'lock' not in name] == []


def test_two_at_once_and_a_disk_that_refuses(servers, quick, tmp_path):
    quick.setenv('CPQA_ENTREZ_URL', servers[0].url)
    from cpqa.core.storage import locked
    words = ['library', 'get', 'tea', '--most', '5', '--no-vectors', '--out', tmp_path/'library']
    with locked(beside(tmp_path/'library', 'getting')): assert 'another build' in complaint(inside(*words))
    (tmp_path/'library').mkdir()
    (tmp_path/'library'/'letter').write_text('Dear doctor')
    assert 'is not a library' in complaint(inside(*words))
    (tmp_path/'library'/'letter').unlink()
    assert good(*words, how=inside).startswith('5 documents')


def test_hard_links_that_are_refused(tmp_path, monkeypatch):
    "A file system that knows no links costs a copy, and nothing else."
    def refuse(*args, **kwargs): raise OSError(95, 'Operation not supported')
    monkeypatch.setattr(os, 'link', refuse)
    build_library([PAPERS.values()], tmp_path/'library')
    _update(tmp_path/'library')
    assert {d.id: d for d in Library(tmp_path/'library')} == {d.id: d for d in LATER.values()}


def test_whoever_reads_the_old_library_reads_on(tmp_path):
    old = build_library([PAPERS.values()], tmp_path/'library')
    before, ids = TermRetriever(old).search(['tea dose'], 10), old.ids
    _update(tmp_path/'library')
    assert old.replaced() and TermRetriever(old).search(['tea dose'], 10) == before
    assert old.documents(ids) == list(PAPERS.values())


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_): pass


@pytest.fixture
def nlm(tmp_path, monkeypatch):
    "A folder that is served in the place of NLM's: a file of it is written by its folder, number and documents."
    def write(folder: str, n: int, documents):
        (tmp_path/'nlm'/folder).mkdir(parents=True, exist_ok=True)
        path = tmp_path/'nlm'/folder/f'pubmed26n{n:04}.xml.gz'
        with gzip.open(path, 'wb') as f: write_pubmed(documents, f)
        path.with_name(f'{path.name}.md5').write_text(f'MD5({path.name})= {hashlib.md5(path.read_bytes()).hexdigest()}')
    server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Quiet, directory=str(tmp_path/'nlm')))
    monkeypatch.setattr(collecting, 'NLM', f'http://127.0.0.1:{server.server_port}/')
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield write
    server.shutdown()
    server.server_close()


def test_each_command_finds_numbered_files_in_the_folder_that_nlm_keeps_them_in(nlm, tmp_path):
    nlm('baseline', 1, [PAPERS[1], PAPERS[2]])
    nlm('updatefiles', 2, [PAPERS[3]])
    out = tmp_path/'library'
    good('library', 'baseline', '--files', '1', '--out', out, '--no-vectors', how=inside)
    assert good('library', 'update', out, '--files', '2', how=inside).startswith('1 new, 0 revised, 0 withdrawn: 3 documents')
    assert 'updatefiles/ has no file number 1: it has 2 to 2' in complaint(inside('library', 'update', out, '--files', '1'))
    assert 'baseline/ has no file number 2' in complaint(inside('library', 'baseline', '--files', '2', '--out', tmp_path/'other'))


def test_a_library_of_files_knows_them_and_goes_on_from_the_next(nlm, tmp_path):
    for n in (1, 2): nlm('baseline', n, [PAPERS[n]])
    for n in (3, 4): nlm('updatefiles', n, [PAPERS[n]])
    out = tmp_path/'library'
    good('library', 'baseline', '--files', '1-2', '--out', out, '--no-vectors', how=inside)
    named = lambda *numbers: [f'pubmed26n{n:04}.xml.gz' for n in numbers]
    sums = lambda: {name: entry.sha256 for name, entry in Library(out).manifest.sources.items()}
    there = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path/'nlm').rglob('*.xml.gz')}
    assert sums() == {name: there[name] for name in named(1, 2)}
    assert ', '.join(named(1, 2)) in good('library', 'info', out, how=inside)
    assert good('library', 'update', out, how=inside).startswith('2 new, 0 revised, 0 withdrawn: 4 documents')
    assert sums() == {name: there[name] for name in named(1, 2, 3, 4)} == there
    assert good('library', 'update', out, '--files', 'next', how=inside).startswith('0 new, 0 revised, 0 withdrawn: 4 documents')
    nlm('updatefiles', 5, [PAPERS[5]])
    assert good('library', 'update', out, '--files', 'next', how=inside).startswith('1 new')
    (tmp_path/'nlm'/'updatefiles'/'pubmed27n0001.xml.gz').touch()
    assert 'counts anew (pubmed27n0001.xml.gz)' in complaint(inside('library', 'update', out))
    build_library([[PAPERS[1]]], tmp_path/'other')
    assert 'took in no file of NLM' in complaint(inside('library', 'update', tmp_path/'other', '--files', 'next'))


def test_an_update_that_is_older_than_the_library_takes_nothing_back(nlm, tmp_path):
    "Older texts, and versions from before the query found them, are counted and told; a deletion, which has no date, counts."
    nlm('baseline', 1, [replace(PAPERS[n], revised='2025-01-01') for n in (1, 2, 3)])
    nlm('updatefiles', 2, [replace(PAPERS[1], text='tea of old'), replace(PAPERS[2], text='dill'), PAPERS[4]])
    out = tmp_path/'library'
    good('library', 'baseline', '--files', '1', '--keep', 'tea[ab]', '--out', out, '--no-vectors', how=inside)
    said = good('library', 'update', out, '--files', '2', how=inside)
    assert said.startswith('1 new, 0 revised, 0 withdrawn, 2 older than what is there and left out: 4 documents')
    assert {d.id: d.text for d in Library(out)} == {str(n): PAPERS[n].text for n in (1, 2, 3, 4)}


def test_a_library_of_files_goes_on_from_the_next_and_one_of_a_question_asks_pubmed_again(nlm, tmp_path, monkeypatch):
    "Whatever query the files were sifted by, and though the other took in a numbered file."
    dill = lambda n: replace(PAPERS[n], title='Dill', text='Dill.')
    nlm('baseline', 1, [PAPERS[1], PAPERS[2], dill(3)])
    nlm('updatefiles', 2, [PAPERS[4], dill(5)])
    nlm('apart', 3, [PAPERS[6], dill(7)])
    build_library([[PAPERS[1]]], tmp_path/'now')
    build_library([[PAPERS[1], PAPERS[8]]], tmp_path/'later')
    files, asked = tmp_path/'files', tmp_path/'asked'
    kept = lambda folder: {int(id) for id in Library(folder).ids}
    with EntrezServer(tmp_path/'now') as server:
        monkeypatch.setenv('CPQA_ENTREZ_URL', server.url)
        good('library', 'get', 'tea[tiab]', '--out', asked, '--no-vectors', how=inside)
    with EntrezServer(tmp_path/'later') as server:
        monkeypatch.setenv('CPQA_ENTREZ_URL', server.url)
        good('library', 'baseline', '--files', '1', '--keep', 'tea[tiab]', '--out', files, '--no-vectors', how=inside)
        assert good('library', 'update', files, how=inside).startswith('1 new, 0 revised, 0 withdrawn: 3 documents')
        assert good('library', 'update', asked, '--files', '2', how=inside).startswith('1 new')
        assert kept(files) == {1, 2, 4} and sum(server.requests.values()) == 0
        good('library', 'update', asked, how=inside)
        assert kept(asked) >= {1, 8} and 6 not in kept(asked) and sum(server.requests.values()) > 0
    apart = ('library', 'update', files, '--from', tmp_path/'nlm'/'apart')
    assert good(*apart, how=inside).startswith('1 new, 0 revised, 0 withdrawn: 4 documents')
    assert kept(files) == {1, 2, 4, 6}
    nlm('apart', 4, [dill(7)])
    assert good(*apart, '--keep', 'dill[ti]', how=inside).startswith('1 new')


def test_what_is_not_there_is_named_with_what_was_expected(tmp_path):
    words = ('library', 'baseline', '--out', tmp_path/'out', '--no-vectors', '--files')
    assert '/nofile.xml is not there: expected a file, a folder of files, or numbers' in complaint(inside(*words, '/nofile.xml'))
    (tmp_path/'empty').mkdir()
    told = complaint(inside(*words, '1', '--from', tmp_path/'empty'))
    assert f'{tmp_path}/empty holds no file of NLM: expected names such as pubmed26n0001.xml.gz' in told
    assert not hidden(tmp_path)


@pytest.mark.parametrize('command', ['get', 'baseline', 'embed', 'update'])
def test_help_says_which_encoder_a_new_library_gets_and_what_a_gpu_serves(command):
    said = ' '.join(good('library', command, '--help', how=inside).split())
    assert ('that of the library' in said.partition('--encoder')[2].partition('--segmenter')[0]) == (command == 'update')
    assert ('on a GPU where it finds one' in said) == (command == 'embed')


class Mortal:
    "An encoder that writes into a file what it is given, and is killed before the `lives` + 1st time."
    dim = 8

    def __init__(self, log: Path, lives: int): self.log, self.lives = log, lives

    def describe(self): return {'model': 'tests/mortal'}

    def encode(self, texts, kind='document'):
        self.lives -= 1
        if self.lives < 0: os.kill(os.getpid(), signal.SIGKILL)
        with open(self.log, 'a') as f: f.writelines(f'{json.dumps(t)}\n' for t in texts)
        found = np.array([[hash((t, n)) % 97 + 1 for n in range(self.dim)] for t in texts], dtype=np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def _refreshed(folder: Path, lives: int, url: str):
    entrez = Entrez(url, email='', key='', cache=False, backoff=0.001)
    refresh_library(folder, Making(encoder=Mortal(folder.parent/'log', lives)), entrez)


def _from_file(folder: Path, lives: int, path: str):
    update_from_files(folder, [path], making=Making(encoder=Mortal(folder.parent/'log', lives)))


@pytest.mark.parametrize('way', [_refreshed, _from_file])
def test_an_update_that_is_killed_while_it_embeds_encodes_no_text_twice(way, tmp_path):
    processes, out = multiprocessing.get_context('fork'), tmp_path/'library'
    new = [Document(str(n), title=f'Tea {n}', text='Tea helps.') for n in range(10, 2600)]
    build_index([PAPERS[1]], out, encoder=Mortal(tmp_path/'first', 9), origins=[Origin('tea', '2024-01-01')])
    with gzip.open(tmp_path/'new.xml.gz', 'wb') as f: write_pubmed(new, f)
    build_library([[PAPERS[1], *new]], tmp_path/'pubmed')
    with EntrezServer(tmp_path/'pubmed') as server:
        given = server.url if way is _refreshed else str(tmp_path/'new.xml.gz')
        codes = []
        for lives in (1, 1, 9):
            run = processes.Process(target=way, args=(out, lives, given))
            run.start()
            run.join()
            codes.append(run.exitcode)
    texts = (tmp_path/'log').read_text().splitlines()
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0] and len(Library(out)) == len(new) + 1
    assert len(texts) == len(set(texts)) == len(new) and hidden(tmp_path) == []


def test_what_a_build_takes_is_told(tmp_path):
    m = build_library([PAPERS.values()], tmp_path/'library').manifest
    assert m.sizes == part_sizes(m.files) and sum(m.sizes.values()) == sum(f.bytes for f in m.files.values())
    assert set(m.sizes) == {'documents', 'terms'} and set(m.rates) == {'terms'} and m.rates['terms'] > 0
    told = good('library', 'info', tmp_path/'library', how=inside)
    assert re.search(r'a document +[\d,]+ bytes \(documents [\d,]+, terms [\d,]+\)\n', told) and ' documents of terms' in told
    _update(tmp_path/'library')
    assert Library(tmp_path/'library').manifest.rates == m.rates


def _built(folder: Path, some: slice, *words) -> Path:
    write_beir(folder.with_suffix('.jsonl'), list(PAPERS.values())[some])
    good('index', 'build', folder.with_suffix('.jsonl'), '--out', folder, *words, how=inside)
    return folder


def test_how_many_records_there_will_be_is_reckoned_from_the_files_that_were_read(tmp_path):
    files, told = [tmp_path/f'{n}.xml.gz' for n in range(3)], []
    for n, path in enumerate(files):
        with gzip.open(path, 'wb') as f: write_pubmed([*PAPERS.values()][200 * n:200 * n + 200], f)
    making = Making(vectors=False, progress=lambda *said: told.append(said))
    baseline_library([str(path) for path in files], tmp_path/'library', making=making)
    assert [t for stage, *t in told if stage == 'reading'] == [[200, None], [400, 600], [600, 600], [600, 600]]


def test_files_read_side_by_side_make_the_same_library(nlm, tmp_path):
    for n in range(1, 5): nlm('baseline', n, [*PAPERS.values()][60 * n:60 * n + 70])   # some of them twice
    for workers in ('1', '2'):
        good('library', 'baseline', '--files', '1-4', '--out', tmp_path/workers, '--no-vectors', '--workers', workers, how=inside)
    one, two = (Library(tmp_path/workers) for workers in ('1', '2'))
    assert list(one) == list(two) and len(one.ids) == 250 and one.manifest.counts == two.manifest.counts
    assert one.manifest.sources == two.manifest.sources and not [*tmp_path.glob('.*getting*')]
    assert '--workers must be' in complaint(inside('library', 'baseline', '--files', '1', '--out', tmp_path/'x', '--workers', '0'), 2)


def test_a_merged_library_is_made_as_its_libraries_were(tmp_path, monkeypatch):
    "Segmenter, encoder and memory are those of the first that has vectors, though one without stands before it; no text is embedded twice."
    how = ('--segmenter', 'fixed:40:10', '--encoder', f'prepared:{shipped("bi-encoder")}', '--memory', '2kB')
    bare = _built(tmp_path/'bare', slice(0, 1), '--no-vectors')
    a, b = _built(tmp_path/'a', slice(0, 3), *how), _built(tmp_path/'b', slice(3, 5), *how[:4])
    asked, encode = [], EmbeddedEncoder.encode
    monkeypatch.setattr(EmbeddedEncoder, 'encode', lambda self, texts, kind='document': asked.extend(texts) or encode(self, texts, kind))
    said = good('library', 'merge', bare, a, b, '--out', tmp_path/'out', how=inside)
    one, of_a = (Library(folder).manifest.parts['vectors'] for folder in (tmp_path/'out', a))
    assert not asked and 'vectors: sq8, ' in said and 'of the 2.0 kB allowed' in said.replace('more than the', 'of the')
    assert {key: one[key] for key in ('splitter', 'encoder', 'named', 'memory')} == {key: of_a[key] for key in
                                                                                   ('splitter', 'encoder', 'named', 'memory')}
    assert one['splitter'] == {'segmenter': 'fixed', 'words': 40, 'overlap': 10} and len(Library(tmp_path/'out')) == 5
    good('library', 'merge', a, b, '--memory', '1MB', '--out', tmp_path/'out', how=inside)
    assert (said := Library(tmp_path/'out').manifest.parts['vectors'])['memory'] == 1_000_000 and said['form'] == 'exact'


def test_libraries_that_were_made_differently_are_merged_as_is_said(tmp_path):
    a, b = _built(tmp_path/'a', slice(0, 2)), _built(tmp_path/'b', slice(2, 4), '--segmenter', 'fixed:40:10')
    told = complaint(inside('library', 'merge', a, b, '--out', tmp_path/'out'))
    assert 'the vectors of a and b are of passages cut in different ways' in told and 'say by --segmenter which is meant' in told
    good('library', 'merge', a, b, '--segmenter', 'fixed:30:5', '--out', tmp_path/'out', how=inside)
    assert Library(tmp_path/'out').manifest.parts['vectors']['splitter'] == {'segmenter': 'fixed', 'words': 30, 'overlap': 5}


def test_vectors_of_some_documents_stay_so_and_terms_stay_alone(tmp_path):
    bare = [_built(tmp_path/f'bare-{n}', slice(n, n + 5), '--no-vectors') for n in (0, 5)]
    assert good('library', 'merge', *bare, '--out', tmp_path/'out', how=inside) == f'10 documents in {tmp_path/"out"}\n'
    assert Library(tmp_path/'out').manifest.parts == {}
    assert 'none of these libraries has vectors' in complaint(inside('library', 'merge', *bare, '--memory', '1MB', '--out', tmp_path/'out'))
    some, where = [_built(tmp_path/f'some-{n}', slice(n, n + 5), '--no-vectors') for n in (0, 5)], '"trial 2"[ti] OR "trial 7"[ti]'
    for folder in some: good('library', 'embed', folder, '--where', where, how=inside)
    said = good('library', 'merge', *some, '--out', tmp_path/'out', how=inside)
    assert f"vectors of the 2 documents that match {where!r} alone" in said
    good('library', 'embed', bare[0], how=inside)
    told = complaint(inside('library', 'merge', bare[0], some[1], '--out', tmp_path/'out'))
    assert f'(all and {where})' in told and 'cpqa library embed --afresh' in told
    good('library', 'merge', *bare, '--encoder', 'default', '--out', tmp_path/'both', how=inside)
    assert Library(tmp_path/'both').manifest.parts['vectors']['vectors'] == 10
