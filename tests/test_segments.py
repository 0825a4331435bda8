"""What the cells of the segmenters cannot show: real articles, hostile texts, random documents, and TextTiling beside NLTK's."""
import os
import re
import zlib
from bisect import bisect_left
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import NIGHTLY, ROOT, cases, examples, sample
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.records import Document, Passage, Section
from cpqa.evaluation.collections import read_articles
from cpqa.literature.demo_notes import demo_notes
from cpqa.literature.pmc import read_jats
from cpqa.literature.pubmed import read_pubmed
from cpqa.passages import segmenters, seos, texttiling
from cpqa.passages.segmenters import SEGMENTERS, segmenter
from cpqa.passages.sentences import sentences
from cpqa.passages.segmenters import METADATA, SentenceWindow, as_read, heading, token_offsets
from cpqa.passages.texttiling import TextTiling, boundaries
from cpqa.retrieval.encoders import EmbeddedEncoder

DATA = Path(os.environ.get('CPQA_DATA') or ROOT.parent/'shared'/'data')
HAVE = (DATA/'evidence_inference').is_dir() and (DATA/'pmc').is_dir()
real = pytest.mark.skipif(not HAVE, reason='no real articles at hand')


class Hashing:
    "A stand-in for a model: the words of a text, hashed into 64 counts, as a unit vector; the same on every machine."
    dim = 64

    def encode(self, texts, kind='document') -> np.ndarray:
        return np.stack([self.vector(t) for t in texts]) if len(texts) else np.empty((0, 64), np.float32)

    @staticmethod
    @lru_cache(maxsize=1 << 18)
    def vector(text: str) -> np.ndarray:
        counts = np.bincount([zlib.crc32(word.encode()) % 64 for word in re.findall(r'\w+', text.lower())], minlength=64).astype(np.float32)
        return counts/max(1, np.linalg.norm(counts))

    def describe(self): return {'model': 'hashing', 'dim': self.dim}


def words(text: str) -> int: return len(text.split())


@lru_cache(maxsize=8)
def offsets(text: str) -> list[tuple[int, int]]: return token_offsets(text)


@lru_cache(maxsize=8)
def quick_offsets(text: str) -> list[tuple[int, int]]:
    "A stand-in for the model's tokens: pieces of words of up to four letters, and signs."
    return [m.span() for m in re.finditer(r'\w{1,4}|[^\w\s]', text)]


def tokens(text: str) -> int: return len(offsets(text))


CUTS_SENTENCES = ('fixed', 'tokens')
BOUNDS = {   # name -> most in a passage, most shared, unit; None: unbounded
    'sentences': (128, 32, words), 'sentences:512:0': (512, 0, words), 'sentences:20:19': (20, 19, words),
    'fixed:512:0': (512, 0, words), 'fixed:512:32': (512, 32, words), 'fixed:512:128': (512, 128, words), 'fixed:7:3': (7, 3, words),
    'tokens:512:0': (512, 0, tokens), 'tokens:512:128': (512, 128, tokens), 'tokens:9:4': (9, 4, tokens),
    'window:3': (0, 0, words), 'window:0': (0, 0, words),
    'texttiling': (None, 0, words), 'texttiling:128': (128, 0, words), 'texttiling:60:20': (60, 20, words),
    'seos': (128, 32, words), 'seos:64:16': (64, 16, words), 'seos:30:0': (30, 0, words),
}
every = cases('name', BOUNDS)
assert {name.partition(':')[0] for name in BOUNDS} <= set(SEGMENTERS.names)


def named(name: str): return segmenter(name, Hashing)


def within_words(text: str, start: int, end: int) -> bool:
    "Does a span begin or end within a word?"
    return bool(start and not text[start - 1].isspace() or text[end:end + 1].strip())


def size(unit, text: str, start: int, end: int, spans=None) -> int:
    "The words of a span, those of its sentences alone if `spans` has them, or the tokens that the whole text has there."
    if spans: return sum(words(text[a:b]) for a, b in spans[bisect_left(spans, (start, 0)):bisect_left(spans, (end, 0))])
    if unit is words: return words(text[start:end])
    return bisect_left(offsets(text), (end, 0)) - bisect_left(offsets(text), (start, 0))


def problems(name: str, document: Document, passages: list[Passage], spans: list[tuple[int, int]]):
    "What is wrong with the passages of a document, whose sentences have these spans."
    most, shared, unit = BOUNDS[name]
    text, cuts = document.text, name.startswith(CUTS_SENTENCES)
    starts, ends, whole = [a for a, _ in spans], {b for _, b in spans}, set(spans)
    first = set(starts)
    if bool(passages) != bool(text.strip() if cuts else spans): yield f'{len(passages)} passages of {len(spans)} sentences'
    for p in passages:
        if p.doc_id != document.id or p.text != text[p.start:p.end] or not p.text.strip():
            yield f'{p.start}:{p.end} breaks the offset contract'
        if not cuts and not (p.start in first and p.end in ends): yield f'{p.start}:{p.end} cuts a sentence'
        if unit is words and within_words(text, p.start, p.end) and cuts: yield f'{p.start}:{p.end} cuts a word'
        n = size(unit, text, p.start, p.end, None if cuts else spans)
        if most and n > most and (cuts or (p.start, p.end) not in whole):
            yield f'{p.start}:{p.end} has {n}, more than {most}, and is no single sentence'
    for a, b in pairwise(passages):
        if not (a.start < b.start and a.end < b.end): yield f'{a.start}:{a.end} and {b.start}:{b.end} are out of order'
        if b.start < a.end and (n := size(unit, text, b.start, a.end, None if cuts else spans)) > shared:
            yield f'{a.start}:{a.end} and {b.start}:{b.end} share {n}, more than {shared}'
        between = b.start > a.end and text[a.end:b.start].strip() if cuts else bisect_left(starts, b.start) > bisect_left(starts, a.end)
        if between: yield f'nothing holds {a.end}:{b.start}'
    if passages and spans and (passages[0].start > spans[0][0] or passages[-1].end < spans[-1][1]):
        yield 'an end of the text is in no passage'


def check(name: str, document: Document, again: bool = True):
    made, spans = named(name), sentences(document)
    passages = made.split(document)
    assert list(problems(name, document, passages, spans)) == [], document.id
    if again: assert [(p.start, p.end) for p in named(name).split(document)] == [(p.start, p.end) for p in passages]
    for p in {*passages[:2], *passages[-2:]}:
        r = made.read(document, p)
        assert r.start <= p.start and p.end <= r.end and document.text[r.start:r.end] == r.text


# ---- real articles

@cache
def articles() -> list[Document]:
    "The articles of Evidence Inference and of PMC."
    faults: list[str] = []
    trials = list(read_articles(next((DATA/'evidence_inference').glob('articles.jsonl*')), faults))
    full = [d for path in sorted((DATA/'pmc').glob('*.nxml')) for d in read_jats(path) if isinstance(d, Document)]
    full += [d for d in read_pubmed(DATA/'pmc'/'pubmed-29768149.xml') if isinstance(d, Document)]
    assert not faults and (len(trials), len(full)) == (362, 41)
    return trials + full


@pytest.fixture
def shared_work(monkeypatch):
    "Each article is cut into sentences and tokens once for all segmenters, and each comparison of its words made once."
    for module in (segmenters, texttiling, seos): monkeypatch.setattr(module, 'sentences', spans_of)
    monkeypatch.setattr(segmenters, 'token_offsets', quick_offsets)
    monkeypatch.setitem(globals(), 'offsets', quick_offsets)   # of the checks; the model's own tokens take half a minute for all articles
    scores = TextTiling.scores
    monkeypatch.setattr(TextTiling, 'scores', lambda self, found: scored(scores, self, found))


_SPANS, _SCORES = {}, {}


def spans_of(document: Document) -> list[tuple[int, int]]:
    key = document.id, document.text   # some articles are there twice
    if key not in _SPANS: _SPANS[key] = sentences(document)
    return _SPANS[key]


def scored(scores, tiling: TextTiling, found: list[str]) -> np.ndarray:
    key = (tiling.w, tiling.k, tiling.smooth, tiling.stem, zlib.crc32(' '.join(found).encode()))
    if key not in _SCORES: _SCORES[key] = scores(tiling, found)
    return _SCORES[key]


@real
@pytest.mark.parametrize('name, step', [('sentences', 1), ('fixed:512:32', 1), ('tokens:512:128', 1), ('tokens:9:4', 20), ('window:3', 1),
                                        ('texttiling', 1), ('texttiling:60:20', 5),
                                        ('seos', 1), ('seos:30:0', 5)])
def test_every_article(name, step, shared_work):
    made, wrong, n = named(name), [], 0
    read = sample(articles()[::step], 25)
    for i, d in enumerate(read):
        passages = made.split(d)
        n += len(passages)
        wrong += [f'{d.id}: {p}' for p in problems(name, d, passages, spans_of(d))]
        if i % 25 == 0: assert named(name).split(d) == passages
        for p in passages[::40]: assert (r := made.read(d, p)).text == d.text[r.start:r.end] and r.start <= p.start < p.end <= r.end
    assert not wrong and n > len(read), wrong[:5]


@real
def test_the_tokens_of_the_model_itself():
    for d in articles()[::40]:
        for name in ('tokens:512:128', 'tokens:9:4'): assert list(problems(name, d, named(name).split(d), sentences(d))) == []


@real
def test_seos_with_the_model_itself():
    encoder = EmbeddedEncoder()
    for d in sorted(articles(), key=lambda d: len(d.text))[10:11]:
        passages = segmenter('seos', lambda: encoder).split(d)
        assert list(problems('seos', d, passages, sentences(d))) == [] and len(passages) > 1


# ---- texts that nobody would write

HOSTILE = {
    'empty': '', 'blanks': ' \n\t \r\n', 'one word': 'Cancer', 'one sentence of 5,000 words': 'word '*4999 + 'end.',
    'no sentence end': 'this goes on and on\n'*300,
    'a table': 'Arm\tn\tHR (95% CI)\nA\t12\t0.5 (0.3-0.8)\nB\t13\t1.0\n'*60, 'numbers': '1 2 3 4 5 6 7 8 9 10. '*200,
    'Chinese': '患者接受了治疗。肿瘤没有复发。'*200, 'German': 'Die Häufigkeit war größer. Übelkeit trat z. B. selten auf. '*80,
    'Arabic': 'تم علاج المرضى. لم يعد الورم. '*80,
    'control characters': 'A\x00b\x01. \x02\x03\x1f C\x7f d\x85e. '*80, 'unseen signs': '\u200b\ufeff\u202e. \u200b \u0301\u0301. '*80,
    'stops': '. ... ! ?! . '*200,
    'one long word': 'ACGT'*5000, 'long words': 'ACGTTTGA'*40 + ' and ' + 'GGGC,'*300 + ' end. ', 'the same again': 'The drug worked. '*500,
    'emoji': '👩‍⚕️ said yes. 🇩🇪 no! '*100,
}


@every
@cases('text', HOSTILE.values())
def test_hostile_texts(name, text): check(name, Document(id='x', title='Only a title', text=text))


@cases('name', ['sentences', 'fixed', 'tokens:512:32', 'window:3', 'texttiling', 'texttiling:128', 'seos'])
def test_a_very_long_text(name):
    r = np.random.default_rng(1)
    text = '. '.join(' '.join(f'w{n}' for n in r.zipf(1.4, 18) % 9999) for _ in range(5_000))[:250_000 if NIGHTLY else 100_000].strip()
    assert named(name).split(Document(id='x', text=text))[-1].end == len(text)


PIECES = st.sampled_from(['word', 'Tumour', 'p = 0.05', 'et al.', 'Fig. 2', '.', '. ', '? ', '\n', '\n\n', '; ', '\t', 'IL-2', '患者。', 'é',
                          '\x00', '\u200b', '0.5 mg ', ' '])


@st.composite
def documents(draw) -> Document:
    text = ' '.join(draw(st.lists(PIECES, max_size=60))) if draw(st.booleans()) else draw(st.text(max_size=200))
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    sections = tuple(Section(draw(st.sampled_from(['', 'AIM', 'RESULT'])), a, b) for a, b in list(pairwise(ends))[::2])
    return Document(id='x', title='Title', text=text, sections=sections)


RANDOM = ['sentences:5:2', 'fixed:7:3', 'tokens:9:4', 'window:1', 'texttiling:9:3', 'seos:9:3']
BOUNDS |= {'sentences:5:2': (5, 2, words), 'window:1': (0, 0, words), 'texttiling:9:3': (9, 3, words), 'seos:9:3': (9, 3, words)}


@examples(60)
@given(document=documents())
@pytest.mark.parametrize('name', RANDOM)
def test_any_text(name, document): check(name, document)


# ---- reading

@given(n=st.integers(1, 12), window=st.integers(0, 4), ranking=st.permutations(range(12)))
def test_what_is_read_of_a_ranking(n, window, ranking):
    d = Document(id='x', text=' '.join(f'Sentence number {i} is here.' for i in range(n)))
    splitter = SentenceWindow(window)
    found = splitter.split(d)
    ranked = [found[i] for i in ranking if i < n]
    read = as_read(splitter, {'x': d}, ranked)
    assert len(found) == n and read[0] == splitter.read(d, ranked[0])
    for p in ranked: assert any(r.start <= p.start and p.end <= r.end for r in read)   # nothing found is lost
    assert {i for r in read for i in range(n) if r.start <= found[i].start < r.end} == set(range(n))


def test_what_stands_before_a_passage():
    d = Document(id='PMC1', title='Title', text='One. Two.', sections=(Section('AIM', 0, 4),), year=2001)
    first, second = SentenceWindow().split(d)
    assert heading(d, first) == 'Title; AIM; 2001; full text' and heading(d, second) == 'Title; 2001; full text'
    assert heading(d, first, METADATA[::-1]) == 'full text; 2001; AIM; Title'


# ---- TextTiling beside NLTK's

def plain(text: str) -> str:
    "A text in which both find the same words: letters alone, and every line a paragraph."
    return re.sub(r' *\n[ \n]*', '\n\n', re.sub(r'[^a-z\n]+', ' ', text.lower())).strip()


def compare(text: str) -> tuple[int, int]:
    "Asserts that NLTK has the same scores and the same boundaries; how many gaps and boundaries there are."
    nltk = pytest.importorskip('nltk.tokenize.texttiling')
    found = re.findall(r'\w+', text)
    stops = {w for w in found if not texttiling._term(w, False)}
    _, smooth, depths, theirs = nltk.TextTilingTokenizer(stopwords=stops, demo_mode=True).tokenize(text)
    scores = TextTiling(stem=False).scores(found)
    assert np.allclose(scores[1:-1], smooth[1:-1])   # NLTK mirrors the two ends
    ours = boundaries(scores)
    assert ours == np.flatnonzero(theirs).tolist()
    return len(scores), len(ours)


def test_texttiling_agrees_on_our_notes():
    notes = [n.text for n in demo_notes()]
    compared = [compare(plain('\n'.join(notes[i:i + 12]))) for i in range(0, 48, 12)]
    assert min(n for _, n in compared) > 1


@real
def test_texttiling_agrees_on_articles():
    compared = [compare(plain(d.text[:9000])) for d in articles()[5:400:100]]
    assert sum(n for _, n in compared) > 10
