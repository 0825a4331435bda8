"A library on the disk: builds that are killed, bytes that flip, files that are none."
import gzip
import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from .process import CPQA, QUESTION, environment, ran
from .requests import articles
from .tally import Tally


def _ids(folder: Path) -> list[str] | str:
    "The ids that a library holds, every byte read; or what is wrong with it."
    from cpqa.literature.library import Library
    try:
        library = Library(folder)
        library.verify()
        return [d.id for d in library]
    except Exception as e: return f'{type(e).__name__}: {e}'


def kills(quick: bool = False) -> Tally:
    """`kill -9` at a moment drawn by chance, while a library is built in the place of another: the one before stays, or the new one is
    there."""
    from cpqa.libraries import build_index
    tally, r = Tally('builds killed'), random.Random(1)
    with tempfile.TemporaryDirectory() as place:
        folder, new = Path(place) / 'library', Path(place) / 'new.jsonl'
        build_index(list(articles(20)), folder, vectors=False)
        n = 300 if quick else 1500
        new.write_text(''.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) + '\n' for d in articles(n)))
        before, after = _ids(folder), [d.id for d in articles(n)]
        words = ('index', 'build', str(new), '--out', str(folder), '--no-vectors')
        start = time.monotonic()
        shutil.copytree(folder, Path(place) / 'trial')
        ran(*words[:-2], str(Path(place) / 'trial'), '--no-vectors')
        whole = time.monotonic() - start
        for i in range(3 if quick else 18):
            child = subprocess.Popen([*CPQA, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
            wait = whole * (.3 + .7 * r.random())
            try: child.wait(wait)
            except subprocess.TimeoutExpired: child.send_signal(signal.SIGKILL)
            child.wait()
            found = _ids(folder)
            tally.add(f'after {wait:.2f} s', '' if found in (before, after) else f'the library: {str(found)[:150]}', wait)
            if found == after: build_index(list(articles(20)), folder, vectors=False)
        done = ran(*words)
        tally.add('the next build', done.fault() or ('' if _ids(folder) == after else 'it is not the new library'), done.seconds, done.mb)
    return tally


# ---- flipped bytes

def answer_of(folder: Path, question: str = QUESTION) -> tuple:
    "What is said of a question, as far as a reader sees it; or ('error', the sentence)."
    from cpqa import CancerQA
    from cpqa.core.errors import CpqaError
    from cpqa.pipeline import Finding
    try:
        a = CancerQA(str(folder), Finding(reranker='cosine')).ask(question)
        return 'answer', a.response, tuple((c.pmid, c.quote) for c in a.citations)
    except CpqaError as e: return 'error', str(e)
    except Exception as e: return 'foreign', f'{type(e).__name__}: {e}'


def judged(found: tuple, right: tuple) -> str:
    "What is wrong with an answer from a damaged library; '' where it is the same, or a sentence that says no."
    if found == right or found[0] == 'error' and '\n' not in found[1].strip(): return ''
    if found[0] != 'answer': return f'{found[0]}: {found[1][:150]}'
    changed = [q for q in found[2] if q not in right[2]]
    return f'a changed answer: {changed[0][1][:100]!r}' if changed else 'a changed answer'


def _flipper(whole: Path, folder: Path, pipe):
    "Answers from copies of a library in each of which one bit is turned, as the other side of the pipe asks for."
    while (asked := pipe.recv()) is not None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        file, at, bit = asked
        if file:
            data = bytearray((folder / file).read_bytes())
            data[at] ^= 1 << bit
            (folder / file).write_bytes(data)
        pipe.send(answer_of(folder))


class Flipper:
    "A process that reads damaged libraries, and is begun anew where one has ended it."
    def __init__(self, whole: Path, folder: Path): self.whole, self.folder, self.child = whole, folder, None

    def __call__(self, file: str = '', at: int = 0, bit: int = 0) -> tuple:
        spawn = multiprocessing.get_context('spawn')
        if self.child is None:
            self.pipe, theirs = spawn.Pipe()
            self.child = spawn.Process(target=_flipper, args=(self.whole, self.folder, theirs))
            self.child.start()
            theirs.close()
        try:
            self.pipe.send((file, at, bit))
            if self.pipe.poll(120): return self.pipe.recv()
            said = 'no answer in 120 s'
        except (EOFError, OSError): said = 'the process died'
        self.close()
        return 'foreign', said

    def close(self):
        if self.child is not None: self.child.kill(); self.child.join()
        self.child = None


def flips(quick: bool = False) -> Tally:
    "One bit of a file of a library is turned: the answer is the same, or one sentence says no; never another quote."
    from cpqa.libraries import demo_library
    tally, r = Tally('flipped bits'), random.Random(3)
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / 'whole'
        shutil.copytree(demo_library().folder, whole)
        ask = Flipper(whole, Path(place) / 'library')
        try:
            right = ask()
            if right[0] != 'answer': raise SystemExit(f'the whole library gives no answer: {right}')
            files = sorted(p.relative_to(whole).as_posix() for p in whole.rglob('*') if p.is_file() and p.stat().st_size)
            kinds: dict[str, list[int]] = {}
            for _ in range(12 if quick else 150):
                file = r.choice(files)
                at, bit, start = r.randrange((whole / file).stat().st_size), r.randrange(8), time.monotonic()
                said = judged(ask(file, at, bit), right)
                tally.add(f'{file} at {at}', said, time.monotonic() - start)
                found = kinds.setdefault(Path(file).suffix or file, [0, 0])
                found[0] += 1
                found[1] += bool(said)
        finally: ask.close()
        tally.notes = {'tried_and_fallen_by_kind_of_file': kinds}
    return tally


# ---- odd files

PUBMED = ('<?xml version="1.0"?><PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article><ArticleTitle>{0}</ArticleTitle>'
          '<Abstract><AbstractText>{0} helped 12 of 20 '
          'patients.</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle></PubmedArticleSet>')


def _line(**more) -> bytes: return json.dumps({'_id': '1', 'title': 'Tea', 'text': 'Tea helped.', **more}).encode() + b'\n'


def odd_files(folder: Path) -> dict[str, Path]:
    "Files that are wrong in ways of their own."
    good, out = PUBMED.format('Tea').encode(), {}
    lol = '<!DOCTYPE x [<!ENTITY a "ha">' + ''.join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9)) + ']>'
    data = {
        'empty.xml': b'', 'bom.xml': b'\xef\xbb\xbf', 'blank.xml': b' \n' * 1000, 'half.xml': good[:len(good) // 2],
        'utf16.xml': good.decode().encode('utf-16'),
        'latin.xml': good.replace(b'Tea', b'T\xe9'), 'nul.xml': good.replace(b'Tea', b'T\x00a'), 'garbage.xml': bytes(range(256)) * 100,
        'laughs.xml': good.replace(b'<PubmedArticleSet>', lol.encode() + b'<PubmedArticleSet>').replace(b'Tea', b'&j;'),
        'outside.xml': good.replace(b'<PubmedArticleSet>',
                                    b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><PubmedArticleSet>').replace(b'Tea', b'&a;'),
        'deep.xml': b'<PubmedArticleSet>' + b'<a>' * 300_000, 'page.xml': b'<!DOCTYPE html><html><title>No</title></html>',
        'other.xml': b'<weather><sky>blue</sky></weather>', 'dashes.xml': b'<eFetchResult><ERROR>' + b'-' * 19_900
        + b'</ERROR></eFetchResult>',
        'errors.xml': b'<eFetchResult>' + b'<ERROR>' * 100_000, 'huge.xml': good.replace(b'Tea', b'tea ' * 10_000_000),
        'newlines.xml': good.replace(b'Tea helped', b'Tea' + b'\n' * 80_000), 'dots.xml': good.replace(b'Tea helped', b'.' * 50_000),
        'attributes.xml': good.replace(b'<Article>', b'<Article %s>' % b' '.join(b'a%d="1"' % i for i in range(50_000))),
        'twice.xml': good.replace(b'</PubmedArticleSet>', b'') * 2, 'idless.xml': good.replace(b'<PMID>1</PMID>', b''),
        'longid.xml': good.replace(b'<PMID>1<', b'<PMID>' + b'9' * 100_000 + b'<'),
        'bidi.xml': good.replace(b'Tea', '\u202eTea\u2066'.encode()),
        'gz.xml': gzip.compress(good), 'half.xml.gz': gzip.compress(good)[:-20], 'garbage.xml.gz': b'\x1f\x8b' + bytes(range(256)),
        'plain.xml.gz': good, 'bomb.xml.gz': gzip.compress(b'<PubmedArticleSet>' + bytes(300 << 20), 1),
        'empty.jsonl': b'', 'list.jsonl': b'[1, 2]\n', 'number.jsonl': b'1\n', 'broken.jsonl': b'{"_id": \n',
        'nan.jsonl': _line(year=float('nan')),
        'noid.jsonl': b'{"title": "x"}\n', 'deep.jsonl': b'[' * 200_000 + b'\n', 'surrogate.jsonl': b'{"_id": "1", "text": "\\ud800"}\n',
        'digits.jsonl': b'{"_id": 1' + b'0' * 10_000 + b'}\n', 'twice.jsonl': _line() * 2, 'types.jsonl': _line(text=['x'], title={}),
        'spaces.jsonl': _line(_id='a b c'), 'wide.jsonl': b'{' + b','.join(b'"k%d": 1' % i for i in range(100_000)) + b'}\n',
        'line.jsonl': _line(text='tea ' * 9_000_000), 'words.jsonl': _line(text='a' * 5_000_000), 'one.csv': b'a,b\n1,2\n',
    }
    for name, content in data.items():
        (folder / name).write_bytes(content)
        out[name] = folder / name
    with zipfile.ZipFile(folder / 'zip.xml', 'w') as z: z.writestr('a.xml', good)
    (folder / 'folder.xml').mkdir()
    (folder / 'loop.xml').symlink_to(folder / 'loop.xml')
    (folder / 'nowhere.xml').symlink_to(folder / 'not there')
    return out | {n: folder / n for n in ('zip.xml', 'folder.xml', 'loop.xml', 'nowhere.xml')} | {'/dev/zero': Path('/dev/zero')}


def files(quick: bool = False) -> Tally:
    """A library is built from an odd file: it ends in time with a library or a sentence, and what stood at --out is unchanged where it
    fails."""
    tally = Tally('odd files')
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place) / 'odd').mkdir()
        for name, path in list(odd_files(folder).items())[::6 if quick else 1]:
            out = Path(place) / 'library'
            shutil.rmtree(out, ignore_errors=True)
            done = ran('index', 'build', path, '--out', out, '--no-vectors', limit=120)
            said = done.fault() or ('' if done.code or out.is_dir() else 'it says well, and there is no library')
            if not said and done.code and out.exists(): said = 'it failed, and left something behind'
            tally.add(name, said, done.seconds, done.mb)
    return tally


def run_kills(quick: bool = False) -> Iterator[Tally]: yield kills(quick)
def run_flips(quick: bool = False) -> Iterator[Tally]: yield flips(quick)
def run_files(quick: bool = False) -> Iterator[Tally]: yield files(quick)
