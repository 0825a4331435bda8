"""SEOS on invented and on bad text, with a stand-in encoder: what holds for any document and any parameters. Its steps are asserted in
its notebook."""
import hashlib
import re

import numpy as np
import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError
from cpqa.core.records import Document
from cpqa.passages.sentences import sentences
from cpqa.passages.seos import SEOS, depth_scores, join_short, sizes_for, split_long, valleys
from cpqa.retrieval.encoders import EmbeddedEncoder

SUBJECTS = ('polyp', 'walk', 'lung', 'sleep')


class StandIn:
    "A vector for each text that depends on that text alone: the counts of four words, and a little of its digest."
    dim = 12
    def __init__(self, spoil=lambda vectors: vectors): self.spoil, self.calls, self.seen = spoil, 0, []
    def describe(self): return {'model': 'stand-in', 'dim': self.dim}

    def encode(self, texts, kind='document'):
        self.calls += 1
        self.seen += texts
        return self.spoil(np.array([self.one(t) for t in texts], dtype=np.float32).reshape(-1, self.dim))

    @staticmethod
    def one(text):
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], dtype=np.uint8) / 2550
        v = np.concatenate([[text.lower().count(w) for w in SUBJECTS], digest])
        return v / np.linalg.norm(v)


def spans(passages): return [(p.start, p.end) for p in passages]


def sound(document, segmenter):
    "The passages, after they were held against the contract: offsets, order, whole sentences, each covered, sizes."
    found, whole = segmenter.split(document), sentences(document)
    starts, ends = {a for a, _ in whole}, {b for _, b in whole}
    for p in found:
        assert document.text[p.start:p.end] == p.text and p.start in starts and p.end in ends
        inside = [document.text[a:b] for a, b in whole if p.start <= a < p.end]
        assert sum(map(segmenter.count, inside)) <= segmenter.words or len(inside) == 1
    for p, q in zip(found, found[1:]):
        assert p.start < q.start and p.end < q.end
        shared = [document.text[a:b] for a, b in whole if q.start <= a < p.end]
        assert sum(map(segmenter.count, shared)) <= segmenter.overlap
    assert all(any(p.start <= a and b <= p.end for p in found) for a, b in whole)
    return found


def written(subjects: str, words: int = 8) -> str:
    "A text with a sentence of so many words for each letter, about the subject that it stands for."
    return ' '.join(f'The {SUBJECTS["abcd".index(s)]} ' + ' '.join(f'w{i}{j}' for j in range(words - 3)) + ' ends.' for i,
                    s in enumerate(subjects))


# ---- where it cuts

@pytest.mark.parametrize('blocks', ['mean', 'text'])
def test_cuts_where_the_subject_changes(blocks):
    text = written('aaaaabbbbbccccc')
    found = sound(Document(id='1', text=text), SEOS(StandIn(), 64, 0, block=2, smooth=0, blocks=blocks))
    assert [re.findall('|'.join(SUBJECTS), p.text) for p in found] == [[s] * 5 for s in SUBJECTS[:3]]


def test_what_is_before_and_after_has_no_say_in_what_is_far_away():
    "The cuts within a text stay when another subject is put before it, sizes allowing."
    alone, prefixed = Document(id='1', text=written('aaaabbbb')), Document(id='2', text=written('dddd') + ' ' + written('aaaabbbb'))
    seos = SEOS(StandIn(), 40, 0, block=2, smooth=0, least=8)
    assert [p.text for p in seos.split(prefixed)][-2:] == [p.text for p in seos.split(alone)]


subjects = st.text('abcd', min_size=0, max_size=40)
sizes = st.integers(8, 80).flatmap(lambda words: st.tuples(st.just(words), st.integers(0, words // 2)))


@given(subjects, sizes, st.integers(1, 5), st.integers(0, 3), st.floats(-2, 2), st.sampled_from(['mean', 'text']))
def test_the_contract_holds_for_any_parameters(subjects, sizes, block, smooth, share, blocks):
    sound(Document(id='1', text=written(subjects)), SEOS(StandIn(), *sizes, block=block, smooth=smooth, share=share, blocks=blocks))


@given(subjects, st.lists(st.sampled_from([' ', '\n', '\n\n', ' \t']), min_size=1))
def test_white_space_between_sentences_changes_no_cut(subjects, gaps):
    plain = written(subjects)
    other = ''.join(s + gaps[i % len(gaps)] for i, s in enumerate(re.split(r'(?<=ends\.) ', plain))) if plain else ''
    tidy = lambda text: [re.sub(r'\s+', ' ', p.text) for p in SEOS(StandIn(), 32, 8).split(Document(id='1', text=text))]
    assert tidy(other) == tidy(plain)


# ---- each step, for any numbers

scores = st.lists(st.floats(-1, 1), max_size=60).map(np.array)


@given(scores, st.floats(-2, 2), st.floats(-2, 2))
def test_valleys_are_low_deep_and_more_with_a_greater_share(scores, one, other):
    few, many = (valleys(scores, share) for share in sorted((one, other)))
    assert set(few) <= set(many)
    for i in many: assert depth_scores(scores)[i] > 0 and all(scores[i] <= scores[j] for j in (i - 1, i + 1) if 0 <= j < len(scores))


@given(scores, st.floats(.1, 10), st.floats(-5, 5))
def test_depth_knows_neither_level_nor_direction(scores, scale, level):
    depths = depth_scores(scores)
    assert (depths >= 0).all()
    np.testing.assert_allclose(depth_scores(scores[::-1])[::-1], depths)
    if len(np.unique(np.round(scores, 6))) == len(scores):
        np.testing.assert_allclose(depth_scores(scale * scores + level), scale * depths, atol=1e-6)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 60), st.integers(0, 60), st.randoms(use_true_random=False))
def test_no_part_is_too_long_and_no_segment_too_short(lengths, most, least, random):
    gaps = np.array([random.random() for _ in lengths[1:]])
    ends = [0, *split_long(0, len(lengths), lengths, gaps, most, least), len(lengths)]
    assert all(b - a == 1 or sum(lengths[a:b]) <= most for a, b in zip(ends, ends[1:])) and ends == sorted(set(ends))
    joined = join_short(list(range(1, len(lengths))), lengths, gaps, least)
    ends = [0, *joined, len(lengths)]
    assert not joined or min(sum(lengths[a:b]) for a, b in zip(ends, ends[1:])) >= least


# ---- what it asks of the encoder

def test_each_sentence_is_embedded_once_in_one_batch():
    encoder = StandIn()
    document = Document(id='1', text=written('aaaabbbb'))
    SEOS(encoder).split(document)
    assert encoder.calls == 1 and encoder.seen == [document.text[a:b] for a, b in sentences(document)]


def test_documents_have_no_say_in_one_another():
    documents = [Document(id=str(i), text=written(s)) for i, s in enumerate(('aaaabbbb', 'cdcdcdcd', 'abcd' * 6))]
    one = SEOS(StandIn(), 32, 8)
    together = [spans(one.split(d)) for d in documents]
    assert together[::-1] == [spans(one.split(d)) for d in documents[::-1]] == [
        spans(SEOS(StandIn(), 32, 8).split(d)) for d in documents[::-1]]


def test_vectors_need_not_be_of_unit_length():
    document = Document(id='1', text=written('aaaabbbbcccc'))
    assert spans(SEOS(StandIn(lambda v: 7 * v), 32, 8).split(document)) == spans(SEOS(StandIn(), 32, 8).split(document))


@cases('wrong, what', [(lambda v: v * np.nan, 'NaN'), (lambda v: v / 0, 'NaN or infinity'), (lambda v: v[:-1], 'one vector each'),
                       (lambda v: v[0], 'one vector each')])
@cases('blocks', ['mean', 'text'])
def test_an_encoder_that_gives_no_vectors_is_refused(wrong, what, blocks):
    with np.errstate(all='ignore'), pytest.raises(CpqaError, match=what) as e:
        SEOS(StandIn(wrong), blocks=blocks).split(Document(id='1', text=written('ab')))
    assert 'stand-in' in str(e.value) and '\n' not in str(e.value)


@pytest.mark.parametrize('blocks', ['mean', 'text'])
def test_an_encoder_that_knows_nothing_leaves_the_sizes(blocks):
    document = Document(id='1', text=written('abcd' * 4))
    assert len(sound(document, SEOS(StandIn(np.zeros_like), 32, 0, blocks=blocks))) == 4


# ---- documents as they should not be

ODD = {'empty': '', 'white space': ' \n\t ', 'one word': 'word', 'one sentence': 'It helped.', 'two sentences': 'It helped. It did not.',
       'no sentence end': 'word ' * 5000, 'one long sentence': 'word ' * 4999 + 'end.',
       'long among short': f'It helped. {"word " * 5000}end. Nobody died.',
       'table': '\n'.join(f'arm {i}\t{i}.5\t(0.{i})' for i in range(300)),
       'table in one line': ' | '.join(f'{i}.5 ± 0.{i}' for i in range(600)),
       'stops': '. ' * 300, 'Chinese': '阿司匹林降低了风险。没有人死亡。' * 60, 'Arabic': 'انخفض الخطر كثيرا. لم يمت أحد. ' * 60,
       'Russian': 'Риск снизился. Никто не умер. ' * 60,
       'emoji': '🙂 helped. 👩‍⚕️ died. ' * 60, 'control characters': '\x00It\x07 helped.\x1b[31m \x85It\u2028 did not.\x00 ' * 60,
       'carriage returns': 'It helped.\r\nIt did not.\r' * 60,
       'the same again': 'It helped. ' * 400}


@cases('text', ODD.values())
@cases('options', [{}, {'words': 16, 'overlap': 4}, {'words': 64, 'overlap': 0, 'blocks': 'text'},
                   {'words': 100, 'overlap': 20, 'count': len}])
def test_odd_documents(text, options):
    found = sound(Document(id='1', title='A title', text=text), SEOS(StandIn(), **options))
    assert bool(found) == bool(sentences(Document(id='1', text=text)))


def test_a_title_alone_has_no_passage(): assert SEOS(StandIn()).split(Document(id='1', title='A title')) == []


@given(st.text(max_size=300))
def test_any_text(text): sound(Document(id='1', text=text), SEOS(StandIn(), 16, 4))


# ---- parameters

@cases('options', [{'words': 0}, {'words': 10, 'overlap': 10}, {'words': 10, 'overlap': -1}, {'words': 16, 'overlap': 4, 'least': 13},
                   {'least': -1},
                                     {'block': 0}, {'smooth': -1}, {'blocks': 'bag'}, {'share': float('nan')}])
def test_parameters_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError): SEOS(StandIn(), **options)


@cases('change', [{'words': 64}, {'overlap': 8}, {'block': 2}, {'smooth': 0}, {'share': 1.0}, {'least': 8}, {'blocks': 'text'},
                  {'count': len}])
def test_each_parameter_is_told(change):
    usual, changed = SEOS(StandIn()).describe(), SEOS(StandIn(), **change).describe()
    assert changed != usual and changed['version'] == SEOS.version and changed['encoder'] == {'model': 'stand-in', 'dim': 12}


# ---- the real thing

def test_the_real_model_counts_its_tokens_and_parts_two_subjects():
    encoder = EmbeddedEncoder()
    class Long:
        "The embedded model under the name of one that reads long texts."
        dim, tokenizer, encode = encoder.dim, encoder.tokenizer, encoder.encode
        def describe(self): return encoder.describe() | {'max_tokens': 8192}
    assert sizes_for(encoder).size == 128 and SEOS(Long()).unit == 'tokens'
    polyps = ('The colonoscopy showed a polyp. The polyp was removed with a snare. Its histology was benign. Another colonoscopy follows '
              'in five years. ')
    walking = (
        'Walking every day eased fatigue. The patients walked for half an hour. Those who exercised slept better. Exercise did no harm.'
    )
    found = sound(Document(id='1', text=polyps + walking), SEOS(encoder, 48, 0, block=2, least=16))
    assert [p.text[:7] for p in found] == ['The col', 'Walking']
    assert len(sound(Document(id='2', text=(polyps + walking) * 10), SEOS(Long()))) > 1
