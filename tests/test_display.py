"""Answers as people see them: a page that a real parser reads, a terminal that nothing steers, and one record behind both."""
import json
import re
from datetime import date

import pytest
from conftest import cases
from helpers import escapes
from hypothesis import given
from hypothesis import strategies as st
from lxml import html
from msgspec.structs import replace
from rich.console import Console

from cpqa.core.records import NOT_ADVICE, Answer, CheckedClaim, Citation, Document
from cpqa.core.remarks import remark, said
from cpqa.testing.toy_corpus import TOY
from cpqa.display import (answer_html, answer_markdown, answer_text, confidence_in_words, counts_in_words, dates_in_words, model_line,
                          source_line)
from cpqa.libraries import build_index
from cpqa.literature.demo_notes import PUBLISHERS
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.sources import Scope

pytestmark = pytest.mark.usefixtures('loaded_once')
EVIL = ('</p></div><script>alert(1)</script><img src=x onerror=alert(1)><a '
        'href="javascript:alert(1)">"\'&amp;\x1b[2J\x1b]0;owned\x07\u202e[bold red]y[/bold red]')
TAGS = {'div', 'p', 'br', 'strong', 'ol', 'ul', 'li', 'a', 'small', 'details', 'summary'}


def cited(quote: str, **more) -> Citation:
    return Citation(**{'pmid': '7', 'quote': quote, 'start': 3, 'end': 3 + len(quote), 'score': 0.7, 'title': 'A paper', 'year': 2019,
                       'url': 'https://pubmed.ncbi.nlm.nih.gov/7/'} | more)


def everything(text: str) -> Answer:
    "An answer that holds `text` wherever a text may stand."
    one = cited(text or 'x', pmid=text or '7', title=text, journal=text, url='https://evil.example/' + text)
    claims = (CheckedClaim(text, (one,), support=0.8), CheckedClaim(text, (one, cited('y')), why=said(text or 'no quote')))
    return Answer(text, text, (one,), why=(said(text),), library=text, note=text, notes=(text,), kind='yesno', label=text,
                  items=(text, text), claims=claims, counts={'for': 1, 'against': 2, 'unclear': 3},
                  confidence=0.5, model=text or 'm', usage={'calls': 1, 'ms': 3.0}, first=text, terms={text: text})


def shown(answer: Answer, width: int = 100, details: bool = False, **how) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured: console.print(answer_text(answer, details), **how)
    return captured.get()


def page(answer: Answer): return html.fragment_fromstring(answer_html(answer))


ANSWER = everything('Tamoxifen helped.')


# ---- safe

@cases('text', [EVIL, '', 'plain', '<!-- -->', '&lt;b&gt;', '{0.__class__} %s', 'تاموكسيفين', 'a' * 5000])
def test_a_parser_finds_our_elements_alone(text):
    tree = page(everything(text))
    assert tree.tag == 'div' and {e.tag for e in tree.iter()} <= TAGS
    assert {(e.tag, name) for e in tree.iter() for name in e.attrib} <= {('div', 'class'), ('div', 'style'), ('a', 'href')}
    assert all(e.get('href').startswith('https://') for e in tree.iter('a'))
    said = ' '.join(tree.text_content().split())
    want = ' '.join(''.join(c if c.isprintable() else ' ' for c in text).split())
    assert want in said and said.count('Of 6 papers read') == 1    # nothing is lost, and nothing unescaped


@given(st.text(max_size=60))
def test_any_text_stays_text(text):
    answer = everything(text)
    tree = page(answer)
    assert {e.tag for e in tree.iter()} <= TAGS and not escapes(tree.text_content())
    assert not escapes(shown(answer, 60))


@cases('url', ['javascript:alert(1)', 'http://example.org', 'data:text/html,x', '//evil', '', ' https://x'])
def test_only_https_is_linked(url): assert list(page(replace(ANSWER, citations=(cited('q', url=url),))).iter('a')) == []


def test_no_colour_is_fixed():
    "Light and dark themes bring their own colours; a mark is a word."
    made = answer_html(ANSWER)
    assert re.findall(r'style|color|colour|background|#[0-9a-f]{3,6}\b|rgb|font|prefers-color-scheme|class="(?!cpqa-answer")',
                      made.replace(' style="', ' ', 1), re.I) == []   # the card alone has a style, which names no colour
    assert made.count('NOT SUPPORTED') == 1 and '<strong>NOT SUPPORTED' in made


# ---- the same in both, and in the order a person needs

def test_page_and_terminal_say_the_same():
    one = Answer('Does it help?', 'It does.', (cited('Tamoxifen helped.', year=1999),), why=(said('Close.'),), library='toy', kind='yesno',
                 label='yes', counts={'for': 2}, confidence=0.91, model='m-1',
                 usage={'calls': 1, 'input_tokens': 10, 'output_tokens': 5, 'ms': 900.0, 'cost': 0.002}, first='Call 112.',
                 terms={'relapse': 'It came back.'}, notes=('A route failed',),
                 claims=(CheckedClaim('It helps.', (cited('Tamoxifen helped.'),), support=0.9),
                         CheckedClaim('It cures.', why=said('no quote carries it'))))
    order = ['Call 112.', 'Note: A route failed', 'Does it help?', 'Answer: yes', 'Of 2 papers read, 2 point to yes.', 'It does.',
             '1 of 2 claims passed the check; do not rely on the others:', 'It helps. [1] (support 0.90 of 1)',
             'NOT SUPPORTED: It cures. (no quote carries it)', '“Tamoxifen helped.”', 'A paper. 1999. PMID 7', 'Close.',
             'What is quoted here is from 1999. Treatment may have changed since',
             'Written by the language model m-1 (1 call, 10 tokens read, 5 tokens written, 0.9 s, 0.0020 US dollars).',
             'Details', 'about 91 are answered', 'characters 3–20', 'In plain words',
             'relapse', 'It came back.', 'Searched: toy.', NOT_ADVICE]
    for text in (page(one).text_content(), shown(one, 2000, details=True)):
        places = [text.find(part) for part in order]
        assert -1 not in places and places == sorted(places), dict(zip(order, places))
    data = json.loads(one.to_json())
    assert data['first'] == 'Call 112.' and data['claims'][1]['fault'] == 'no quote carries it' and Answer.from_json(one.to_json()) == one


def test_a_plain_answer_has_nothing_new():
    "Without label, claims, terms and model: question, response, sources, reason, note."
    plain = Answer('Q?', '“q” [PMID 7]', (cited('q', year=None),), why=(said('Close.'),), library='toy')
    lines = [line.strip(' │╭╮╰╯─') for line in shown(plain).splitlines()]
    assert [line for line in lines if line][:5] == ['Q?', '1. “q”', 'A paper. PMID 7', 'https://pubmed.ncbi.nlm.nih.gov/7/', 'Close.']
    assert 'characters 3–4, match 0.70' in shown(plain, details=True) and 'characters' not in shown(plain)
    for word in ('Answer', 'claim', 'Written', 'plain words', 'Of 100', 'None', 'is from'): assert word not in shown(plain)


def test_a_message_and_its_second_question():
    second = Answer('And tea?', 'Nothing on tea.', abstained=True, notes=('tea was not found',))
    one = Answer('A long story. ' * 160, '“q” [PMID 7]', (cited('q'),), library='toy', read_as='Does it help?', further=(second,))
    for text in (shown(one, 2000), page(one).text_content()):
        order = [text.find(part) for part in ('Note: tea was not found', 'A long story.', 'Searched for: Does it help?', '“q”', 'And tea?',
                                              'Nothing on tea.', 'Searched: toy.')]
        assert -1 not in order and order == sorted(order) and text.count('A long story.') < 110 and text.count('Searched:') == 1
    assert Answer.from_json(one.to_json()) == one


def test_a_question_is_whole_in_a_file_whose_lines_are_not_wrapped():
    asked = 'I had a lump in my testicle out and they say seminoma stage 1, do I need the chemo ' + 'x' * 90 + ' now?'
    for answer in (Answer(asked, 'No.'), Answer('A long story. ' * 30, 'No.', read_as=asked)):
        box = shown(answer, 80, soft_wrap=True).partition('╯')[0]
        assert asked.replace(' ', '') in re.sub(r'[\s│─╭╮╰]', '', box)


def test_an_empty_answer(): assert shown(Answer('Q', '')) and page(Answer('Q', '')).text_content().startswith('Q')


@pytest.mark.parametrize('counts, said',
                         [({'for': 1, 'against': 1},
                           'Of 2 papers read, 1 points to yes and 1 points to no. They disagree, so read both sides.'),
                           ({'against': 1}, 'Of 1 paper read, 1 points to no.'),
                                          ({'for': 0, 'against': 0, 'unclear': 0}, ''), ({'unclear': 1}, 'Of 1 paper read, 1 is unclear.'),
                                          ({'for': -3, 'other': 4}, '')])
def test_counts(counts, said): assert counts_in_words(counts) == said


@pytest.mark.parametrize('p, n', [(0.0, '1'), (0.004, '1'), (0.5, '50'), (0.834, '83'), (1.0, '99')])
def test_no_confidence_is_certainty(p, n): assert f'about {n} are' in confidence_in_words(p)


def test_what_is_old_is_said_to_be():
    old = [cited('a', year=2001), cited('b', pmid='8', year=2009)]
    assert 'from 2001 to 2009.' in dates_in_words((*old,)) and 'from 2001.' in dates_in_words((old[0],))
    assert not any(dates_in_words((*old, cited('c', pmid='9', year=year))) for year in (date.today().year, None)) and not dates_in_words(())


def test_a_refusal_names_people_once_and_no_figure():
    thin = remark('improbable', score=0.04, least=0.5)
    one = Answer('Will it shrink?', 'Nothing.', abstained=True, why=(thin,), covers='Mostly tea.', library='toy')
    two = replace(one, further=(replace(one, question='And tea?'),))
    for text in (shown(two, 2000), page(two).text_content(), answer_markdown(two)):
        once = ('0808 808', 'Mostly tea.', '--source pubmed', 'Nothing.', 'this part well enough either')
        assert [text.count(said) for said in once] == [1] * 5
        assert text.find('Nothing.') < text.find('0808') < text.find('And tea?') < text.find('Mostly tea.')
    assert ' in 100' not in shown(two) and 'about 4 in 100' in shown(two, details=True) and 'about 4 in 100' in page(two).text_content()
    given = shown(replace(one, abstained=False))   # an answer says only who talks it over
    assert (given.count('0808'), given.count('nhs.uk'), given.count('Mostly tea.')) == (1, 0, 0)


def test_a_price_that_is_not_known_is_not_zero():
    assert 'cost not known' in model_line(Answer('q', 'r', model='m')) and '0.0000 US dollars' in model_line(Answer('q', 'r', model='m',
        usage={'cost': 0.0}))


# ---- retracted papers

def test_a_retracted_paper_is_never_cited(tmp_path):
    "The best match of all has been retracted: it is not quoted, not read and not shown."
    gone = Document(id='66', title='Tamoxifen cures every breast cancer recurrence', year=2022,
                    publication_types=('Retracted Publication',),
                    text='Tamoxifen for five years abolished breast cancer recurrence in all women. What tamoxifen does to recurrence is '
                         'to abolish it.')
    question = 'What does tamoxifen for five years do to breast cancer recurrence?'
    both = build_index([[*TOY, gone]], tmp_path/'both')
    for qa in (CancerQA(both), CancerQA(Scope(str(tmp_path/'both'))), CancerQA(both, Finding(reranker='none'))):
        answer = qa.ask(question)
        seen = shown(answer, 2000) + answer_html(answer) + answer.to_json().replace('"66": "retracted"', '').replace('"66":"retracted"', '')
        assert answer.used_PMIDs[0] == 't3' and 'abolish' not in seen and '66' not in answer.used_PMIDs and not any(e.retracted
            or e.passage.doc_id == '66' for e in answer.evidence)
    again = build_index([[*TOY, replace(gone, publication_types=())]], tmp_path/'sound')
    assert '66' in CancerQA(again).ask(question).used_PMIDs    # were it not retracted, it would be


def test_a_page_for_patients_is_called_that():
    "The place of such a note stands in recorded prompts as it is; on the screen it says less of how it was collected."
    for place in PUBLISHERS.values():
        page = cited('It may ease.', pmid='NCI-1', source='note', year=None, journal=place, study='information page')
        assert source_line(page).endswith(' for patients, not a paper') and 'MedQuAD' not in source_line(page)
