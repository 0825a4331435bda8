"""Quotes: what a copyist may get wrong is found, and a changed figure or a lost "not" never is, on invented and on real texts. Claims:
what a model can do to get past the checks."""
import gzip
import json
import random
import re
import string
from itertools import islice

import pytest
from conftest import ROOT, cases, examples
from helpers import escapes
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.citations import FAULTS, WITHHELD, check_draft, commands, fault, fault_group, unsafe
from cpqa.answering.citations import LEAST_QUOTE, find_quote, near_quote
from cpqa.answering.replies import Draft, DraftClaim
from cpqa.core.records import Document
from cpqa.testing.toy_corpus import TOY
from cpqa.literature.demo_notes import demo_notes
from cpqa.passages.sentences import sentences

DATA = ROOT.parent/'shared'/'data'
RETRIEVED = {d.id: d for d in TOY}
SENTENCE = 'Tamoxifen for five years lowered breast cancer recurrence.'


def abstracts(n: int) -> list[Document]:
    "Every 50th abstract of bioasq_beir, up to `n` of them."
    path = DATA/'bioasq_beir'/'corpus.jsonl.gz'
    if not path.exists(): pytest.skip('needs ../shared/data')
    with gzip.open(path, 'rt', encoding='utf-8') as f: rows = [json.loads(line) for line in islice(f, 0, 50 * n, 50)]
    return [Document(str(r['_id']), title=r.get('title', ''), text=r['text']) for r in rows]


def quotable(document: Document) -> list[str]:
    "Sentences of 60 to 300 letters that stand once in the document."
    found = [document.text[a:b] for a, b in sentences(document)]
    return [s for s in found if 60 <= len(s) <= 300 and document.text.count(s) == 1]


@pytest.fixture(scope='module')
def quotes() -> list[tuple[Document, str]]: return [(d, s) for d in abstracts(150) for s in quotable(d)]


# ---- quotes, on real abstracts

def test_a_real_sentence_is_found_where_it_stands(quotes):
    assert len(quotes) > 500
    for document, said in quotes:
        found = find_quote(said, document)
        assert found and found.distance == 0 and said.strip(' ."\'') in document.text[found.start:found.end], (document.id, found)


def test_slips_of_a_copyist_are_found(quotes):
    slips = {'an article less': lambda s: re.sub(r'(?<=[a-z] )(?:the|a) (?=[a-z])', '', s, count=1), 'upper case': str.upper,
             'other marks': lambda s: s.replace('-', '‑').replace("'", '’').replace(' ', '\u00a0 '),
             'no full stop': lambda s: s.rstrip('.'), 'dots': lambda s: f'... {s.rstrip(".")} ...',
             'a wrong letter': lambda s: re.sub(r'\b(pat[a-z]{3})[a-z]', r'\1x', s, count=1)}
    for name, slip in slips.items():
        cases = [(d, slip(s)) for d, s in quotes if slip(s) != s]
        missed = [d.id for d, s in cases if not find_quote(s, d)]
        assert len(cases) > 50 and len(missed) <= 0.01 * len(cases), (name, len(cases), missed)


def test_a_changed_figure_is_never_found(quotes):
    rng = random.Random(1)
    def other(s: str) -> str:
        at = rng.choice([m.start() for m in re.finditer(r'\d', s)])
        return s[:at] + rng.choice([c for c in string.digits if c != s[at]]) + s[at + 1:]
    cases = [(d, other(s)) for d, s in quotes if re.search(r'\d', s)]
    assert len(cases) > 200
    assert [(d.id, s) for d, s in cases if find_quote(s, d) or near_quote(s, d)] == []


def test_a_lost_or_added_denial_is_never_found(quotes):
    lost = [(d, re.sub(r'\b(?:not|no|without|never) ', '', s, count=1)) for d, s in quotes if re.search(r'\b(?:not|no|without|never) ', s)]
    added = [(d, re.sub(r'\b(was|were|is|are|did|can|may) ', r'\1 not ', s, count=1)) for d,
             s in quotes if re.search(r'\b(?:was|were|is|are|did|can|may) (?!not)', s)]
    assert len(lost) > 20 and len(added) > 200
    assert [(d.id, s) for d, s in lost + added if find_quote(s, d) or near_quote(s, d)] == []


def test_a_turned_word_is_never_found(quotes):
    turns = [('increas', 'decreas'), ('decreas', 'increas'), ('higher', 'lower'), ('lower', 'higher'), ('more', 'less'),
             ('improved', 'impaired'), ('effective', 'ineffective'),
             ('before', 'after'), ('women', 'men'), ('mg', 'µg'), ('positive', 'negative'), ('with ', 'without '), ('<', '>')]
    cases = [(d, s.replace(a, b, 1)) for d, s in quotes for a, b in turns if a in s]
    assert len(cases) > 200
    assert [(d.id, s) for d, s in cases if find_quote(s, d) or near_quote(s, d)] == []


def test_a_sentence_of_another_abstract_is_not_found(quotes):
    documents = list({d.id: d for d, _ in quotes}.values())
    wrong = [(d.id, s) for i, (own, s) in enumerate(quotes[::5]) for d in (documents[i % len(documents)],) if d is not own
             and s not in d.text and (find_quote(s, d) or near_quote(s, d))]
    assert wrong == []


def test_what_a_small_model_loses_is_found_with_what_differs(quotes):
    rng = random.Random(0)
    def without(s: str) -> str:
        words = s.split()
        del words[rng.randrange(1, len(words) - 1)]
        return ' '.join(words)
    def gap(s: str) -> str: return ' '.join([*s.split()[:len(s.split()) // 3], '...', *s.split()[2 * len(s.split()) // 3:]])
    slips = {'a word': (without, 0.7), 'brackets': (lambda s: re.sub(r' \([^()]*\)', '', s), 0.8), 'a third': (gap, 0.9),
             'more before it': (lambda s: f'The authors found that {s}', 0.9)}
    for name, (slip, least) in slips.items():
        cases = [(d, s, slip(s)) for d, s in quotes if slip(s) != s]
        found = [(d, s, f) for d, s, made in cases if not find_quote(made, d) and (f := near_quote(made, d))]
        missed = len(cases) - len(found) - sum(bool(find_quote(made, d)) for d, _, made in cases)
        assert len(cases) > 100 and missed <= (1 - least) * len(cases), (name, len(cases), missed)
        for d, s, (span, differs) in found: assert differs and d.text[span.start:span.end] in s


@cases('changed', ['Ginger', 'Olaparib', 'olaparib', 'carboplatin and', 'no', 'hardly'])
def test_a_medicine_more_or_less_is_never_found(changed):
    said = f'In this trial {changed} therapy improved the survival of women with ovarian cancer'
    less, more = said.replace(f'{changed} ', ''), Document('m', text=said)
    assert near_quote(less, more) is None and (changed == 'Ginger' or near_quote(said, Document('l', text=less)) is None)
    assert near_quote(said.replace(changed, 'niraparib'), more) is None


# ---- quotes, on invented texts

@examples(150)
@given(st.text(max_size=200), st.text(max_size=80))
def test_any_text_can_be_looked_up(text, quote):
    document = Document('x', text=text)
    found = find_quote(quote, document)
    if found: assert 0 <= found.start < found.end <= len(text) and sum(c.isalpha() for c in quote) >= LEAST_QUOTE - len(quote)
    whole = find_quote(text, document)
    assert whole is None or whole.distance == 0


@cases('text', ['a ' * 50_000, 'ab' * 50_000, '\u200b' * 50_000, ' ' * 100_000, '<' * 50_000, 'tea, ' * 20_000, '1.5 ' * 20_000])
def test_a_strange_text_ends(text):
    for quote in ('tea, ' * 100, 'ab' * 200, 'tea sleep risk adults', text[:500]): find_quote(quote, Document('x', text=text))


@cases('quote, text', [
    ('effective in adults with pain', 'Tea was ineffective in adults with pain.'),
    ('small cell lung cancer shrank', 'non-small cell lung cancer shrank.'),
    ('5 mg of tea a day helped', '1.5 mg of tea a day helped.'),
    ('tea lowered risk by 1', 'tea lowered risk by 1.5 points.'),
    ('a risk of 102 per million adults', 'a risk of 10² per million adults'),
    ('groups had p = 0.05 throughout', 'groups had p ≠ 0.05 throughout'),
    ('The used drug raised the risk of falls', 'The never used drug raised the risk of falls.'),
    ('Tea ... improved sleep in adults', 'Tea has never improved sleep in adults'),
])
def test_a_part_of_a_word_or_figure_is_no_quote(quote, text): assert find_quote(quote, Document('x', text=text)) is None


# ---- claims

def checked(*claims: DraftClaim, documents=RETRIEVED, **options): return check_draft(Draft(claims=claims), documents, **options)


def test_ids_are_read_alike_and_never_guessed():
    numbered = {'123': Document('123', text=SENTENCE)}
    for id in ('123', ' 123 ', 'PMID: 123', 'pmid 123', '[123]'):
        assert checked(DraftClaim('Tamoxifen lowered breast cancer recurrence.', id, SENTENCE), documents=numbered).faults == (), id
    for id in ('12', '1234', '0123', '123.0', '123 124', 'PMC123', '1 23', '', 'doi:123', '../123'):
        result = checked(DraftClaim('Tamoxifen lowered breast cancer recurrence.', id, SENTENCE), documents=numbered)
        assert fault_group(result.claims[0].why) == 'paper' and result.citations == (), id


def test_what_is_cited_passes_the_older_check():
    result = checked(DraftClaim('Tamoxifen lowered breast cancer recurrence.', 't3', SENTENCE.upper()),
                     DraftClaim('Aspirin lowered the risk of polyps.', 't1', 'lowered the risk of colon polyps'))
    assert len(result.citations) == 2 and not any(fault(c, RETRIEVED) for c in result.citations)
    assert result.citations[1].quote == 'Daily aspirin lowered the risk of colon polyps.'   # the whole sentence


@pytest.mark.parametrize('claim', ['Tamoxifen did not lower breast cancer recurrence.', 'Tamoxifen raised breast cancer recurrence.',
                                   'Tamoxifen increased recurrence of breast cancer.',
                                   'No lower recurrence of breast cancer was seen with tamoxifen.',
                                   'Tamoxifen for 15 years lowered breast cancer recurrence by 40%.'])
def test_a_negated_answer_does_not_pass(claim):
    result = checked(DraftClaim(claim, 't3', SENTENCE))
    assert not result.claims[0].holds and result.citations == ()
    assert checked(DraftClaim(claim, 't3', SENTENCE), strict=True).dropped == 1


def test_a_quote_out_of_its_sentence_does_not_pass():
    denied = {'n': Document('n', text='It is not true that tamoxifen lowered breast cancer recurrence. Tea was not studied.')}
    assert not checked(DraftClaim('Tamoxifen lowered breast cancer recurrence.', 'n', 'tamoxifen lowered breast cancer recurrence'),
                       documents=denied).claims[0].holds


@cases('bad', ['<script>x()</script>', '![i](http://a.example/?q)', 'see www.shop.example', '\x1b[31m', '\u202e', '<!-- x -->',
               'sk-ant-' + 'api03-NotAKeyAtAll'])
def test_what_is_unsafe_goes_no_further(bad):
    result = checked(DraftClaim(f'Tamoxifen lowered breast cancer recurrence {bad}', 't3', SENTENCE))
    assert unsafe(f'Tea {bad}') and result.claims[0].text == WITHHELD and fault_group(result.claims[0].why) == 'text'
    assert bad not in result.to_json() and json.dumps(bad)[1:-1] not in result.to_json()


def test_a_fault_does_not_repeat_what_was_hidden_in_an_id():
    result = checked(*(DraftClaim('Tea.', id, SENTENCE) for id in ('<img src=x>', '\x1b[2Jx', 'a-secret-of-more-than-twelve', '1' * 40)))
    assert not any(part in ' '.join(map(str, result.faults)) for part in ('<', 'secret', '1111111111111')) and escapes(
        ''.join(map(str, result.faults))) == []


def test_a_draft_without_quotes_gets_ours_and_says_so():
    result = checked(DraftClaim('Aspirin lowered the risk of colon polyps.', pmids=('t1', 't2', '99')),
                     DraftClaim('Bread rises at night.', pmids=('t1',)))
    assert (result.picked, [c.holds for c in result.claims], result.citations[0].pmid) == (1, [True, False], 't1')
    assert any(str(f).startswith('99 is not among') for f in result.faults) and {fault_group(f) for f in result.faults} <= set(FAULTS)


def test_honest_papers_give_no_orders():
    assert not any(commands(n.document()) for n in demo_notes())
    flagged = [d.id for d in abstracts(300) if commands(d)]
    assert flagged == []
