"""What the cells of the cached encoder cannot show: several threads and processes, a file damaged anywhere, a full disk, random texts."""
import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, cases, examples
from hypothesis import given
from hypothesis import strategies as st

from cpqa.retrieval.encoders import CachedEncoder
from helpers import mount, unmount


class Noting:
    "An encoder that writes down what it is asked for; `said` is what it says of itself."
    dim = 8

    def __init__(self, **said): self.asked, self.said = [], said

    def encode(self, texts, kind='document') -> np.ndarray:
        self.asked += texts
        salt = json.dumps([self.said, kind])
        return np.array([np.frombuffer((salt + t).encode('utf-8', 'replace')[-8:].rjust(8), dtype=np.uint8) for t in texts],
                        dtype=np.float32).reshape(-1, 8)

    def describe(self): return {'model': 'noting', **self.said}


def expected(texts, kind='document', **said): return Noting(**said).encode(list(texts), kind)


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db: return db.execute('SELECT count(*) FROM vectors').fetchone()[0]


@examples(60)
@given(calls=st.lists(st.tuples(st.sampled_from(['query', 'document']), st.lists(st.text(max_size=6), max_size=6)), max_size=6),
       most=st.integers(1, 8))
def test_never_another_vector(calls, most, tmp_path_factory):
    path = tmp_path_factory.mktemp('any')/'v.sqlite'
    for max_tokens in (8, 16):
        cached = CachedEncoder(Noting(max_tokens=max_tokens), path, most=most, kinds=('query', 'document'))
        for kind, texts in calls:
            found = cached.encode(texts, kind)
            assert found.dtype == np.float32 and np.array_equal(found, expected(texts, kind, max_tokens=max_tokens))
            assert not path.exists() or rows(path) <= most
        assert cached.trouble == ''


def test_what_is_asked_again(tmp_path):
    noting = Noting()
    cached = CachedEncoder(noting, tmp_path/'v.sqlite')
    texts = [f'text {i}' for i in range(1500)]   # more than one statement takes
    for _ in range(2): assert np.array_equal(cached.encode(texts[::-1]), expected(texts[::-1]))
    assert sorted(noting.asked) == sorted(texts) and rows(tmp_path/'v.sqlite') == 1500
    assert cached.encode(('text 3', 'half a pair \ud800')).shape == (2, 8)
    for different in ({'max_tokens': 9}, {'sha256': 'f00'}):
        other = Noting(**different)
        CachedEncoder(other, tmp_path/'v.sqlite').encode(['text 3'])
        assert other.asked == ['text 3']


def test_no_text_is_stored(tmp_path):
    secret = 'Does my colleague have melanoma?'
    CachedEncoder(Noting(), tmp_path/'v.sqlite', kinds=('query', 'document')).encode([secret], 'query')
    kept = b''.join(p.read_bytes() for p in tmp_path.iterdir())
    assert rows(tmp_path/'v.sqlite') == 1 and not any(part.encode() in kept for part in ('colleague', 'melanoma', secret))


def test_threads(tmp_path):
    cached, texts = CachedEncoder(Noting(), tmp_path/'v.sqlite'), [f'text {i}' for i in range(60)]
    with ThreadPoolExecutor(8) as pool: found = list(pool.map(cached.encode, [texts[i % 7:] for i in range(40)]))
    assert all(np.array_equal(f, expected(texts[i % 7:])) for i, f in enumerate(found)) and rows(tmp_path/'v.sqlite') == 60


CHILD = '''
import sys
sys.path.insert(0, sys.argv[1])
from test_cached_encoder import CachedEncoder, Noting, expected
texts = [f'text {i}' for i in range(40)]
for n in range(25):
    cached = CachedEncoder(Noting(), sys.argv[2], most=30)
    assert (cached.encode(texts[n % 9:n % 9 + 20]) == expected(texts[n % 9:n % 9 + 20])).all()
'''


def test_processes(tmp_path):
    "Several programs write and let go at once, one of them finds the file damaged at first; each gets its vectors."
    path = tmp_path/'v.sqlite'
    path.write_bytes(b'rubbish'*999)
    children = [subprocess.Popen([sys.executable, '-c', CHILD, ROOT/'tests', path], cwd=ROOT/'tests', stderr=subprocess.PIPE,
                                 text=True) for _ in range(3)]
    assert [(c.communicate()[1], c.returncode) for c in children] == [('', 0)]*3
    assert rows(path) <= 30 and CachedEncoder(Noting(), path).encode(['text 3']).shape == (1, 8)


def test_a_writer_that_holds_the_file(tmp_path):
    path = tmp_path/'v.sqlite'
    cached = CachedEncoder(Noting(), path)
    cached.encode(['known'])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute('BEGIN EXCLUSIVE')
        assert np.array_equal(cached.encode(['known', 'new']), expected(['known', 'new'])) and 'locked' in cached.trouble
        db.execute('ROLLBACK')
    assert rows(path) == 1 and not path.with_name('v.sqlite.damaged').exists()   # busy is not damaged


@cases('harm', ['empty', 'cut', 'head', 'noise', 'row', 'folder', 'another database', 'text'])
def test_damage_is_never_an_error(harm, tmp_path):
    path, texts = tmp_path/'v.sqlite', [f'text {i}' for i in range(300)]
    CachedEncoder(Noting(), path).encode(texts)
    data = bytearray(path.read_bytes())
    if harm == 'empty': path.write_bytes(b'')
    elif harm == 'cut': path.write_bytes(data[:len(data)//2])
    elif harm == 'head': path.write_bytes(bytes(4096) + data[4096:])
    elif harm == 'noise':
        for at in range(5000, len(data), 97): data[at] ^= 255
        path.write_bytes(data)
    elif harm == 'row':
        with closing(sqlite3.connect(path)) as db, db: db.execute("UPDATE vectors SET vector = zeroblob(36) WHERE id % 2")
    elif harm == 'folder':
        path.unlink()
        path.mkdir()
    elif harm == 'another database':
        path.unlink()
        with closing(sqlite3.connect(path)) as db, db: db.execute('CREATE TABLE vectors (other)')
    elif harm == 'text': path.write_text('no database at all')
    for _ in range(3):
        noting = Noting()
        assert np.array_equal(CachedEncoder(noting, path).encode(texts), expected(texts))
    if harm not in ('folder', 'another database'): assert noting.asked == []   # the file serves again


def test_vectors_that_are_no_numbers_are_not_kept(tmp_path):
    class Wrong(Noting):
        def encode(self, texts, kind='document'): return super().encode(texts, kind)*(np.nan if len(self.asked) == 2 else 1)
    wrong = Wrong()
    cached = CachedEncoder(wrong, tmp_path/'v.sqlite')
    assert np.isnan(cached.encode(['a', 'b'])).all() and rows(tmp_path/'v.sqlite') == 0
    assert np.isfinite(cached.encode(['a', 'b'])).all() and np.isfinite(cached.encode(['a', 'b'])).all() and len(wrong.asked) == 4


def test_a_failing_encoder_says_so(tmp_path):
    class Failing(Noting):
        def encode(self, texts, kind='document'): raise RuntimeError('out of memory')
    with pytest.raises(RuntimeError, match='out of memory'): CachedEncoder(Failing(), tmp_path/'v.sqlite').encode(['a'])


def test_a_full_disk(tmp_path):
    "What does not fit is made anew; what is there stays."
    disk = tmp_path/'disk'
    if not mount(disk, 64 << 10): pytest.skip('needs the right to mount')
    try:
        cached, texts = CachedEncoder(Noting(), disk/'v.sqlite'), [f'text {i}' for i in range(2000)]
        for _ in range(2): assert np.array_equal(cached.encode(texts), expected(texts))
        assert 'full' in cached.trouble or 'I/O' in cached.trouble
        assert not (disk/'v.sqlite.damaged').exists()
    finally: unmount(disk)


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0 and not Path('/proc').is_dir(),
                    reason='needs a place that nobody can write')
def test_a_place_that_cannot_be_written():
    cached = CachedEncoder(Noting(), '/proc/cpqa/v.sqlite')
    for _ in range(2): assert np.array_equal(cached.encode(['a', 'b']), expected(['a', 'b']))
    assert cached.trouble and cached.encoder.asked == ['a', 'b']*2


def test_a_file_that_cannot_be_written_is_still_read(tmp_path):
    path = tmp_path/'v.sqlite'
    CachedEncoder(Noting(), path).encode(['known'])
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        cached = CachedEncoder(Noting(), path)
        for _ in range(2): assert np.array_equal(cached.encode(['known', 'new']), expected(['known', 'new']))
        assert 'known' not in cached.encoder.asked   # root may write all the same
    finally: tmp_path.chmod(0o755)


def test_the_default_place(monkeypatch, tmp_path):
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path/'cache'))
    CachedEncoder(Noting()).encode(['a'])
    assert [p.name for p in (tmp_path/'cache'/'vectors').iterdir()] == ['vectors-1.sqlite']
