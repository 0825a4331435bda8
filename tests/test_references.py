"What an answer cites, read back by the parsers that reference managers use; and no title ends its field."
import re

import pytest
from helpers import complaint, good, inside
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.records import Answer, Citation
from cpqa.display import plain
from cpqa.references import bibtex, ris

bibtexparser, rispy = pytest.importorskip('bibtexparser'), pytest.importorskip('rispy')
# the signs that mean something in either form, and letters of all kinds
TEXTS = st.text(st.sampled_from('ab Z9{}\\\\%&$#_~^"\'@,=-–éβ\n\r\x1b\u2028') | st.characters(codec='utf-8'), max_size=30)


def cited(pmid: str = '7', **more) -> Citation:
    return Citation(**{'pmid': pmid, 'quote': 'Tea helped.', 'start': 0, 'end': 11, 'score': .7, 'title': 'A paper', 'year': 2019,
                       'journal': 'J Toy', 'url': f'https://pubmed.ncbi.nlm.nih.gov/{pmid}/', 'doi': '10.1000/a_(b)1'} | more)


def entries(*citations: Citation) -> list:
    "The entries that a parser of BibTeX finds, LaTeX decoded."
    from bibtexparser.middlewares import LatexDecodingMiddleware
    found = bibtexparser.parse_string(bibtex(Answer('Q', 'R', citations)), append_middleware=[LatexDecodingMiddleware()])
    assert found.failed_blocks == [] and found.comments == [] and len(found.blocks) == len(found.entries)
    return found.entries


def records(*citations: Citation) -> list[dict]: return rispy.loads(ris(Answer('Q', 'R', citations)))


def test_what_is_known_of_a_paper_comes_back():
    c = cited('29226797', authors=('Neelapu SS', 'van der Berg Å Jr', 'ZUMA-1 Investigators'), title='CAR T-cells: 82% & more, x_y',
              study='trial', status='corrected')
    [entry], [record] = entries(c), records(c)
    assert (entry.key, entry.entry_type) == ('pmid29226797', 'article') and record['type_of_reference'] == 'JOUR'
    fields = {f.key: f.value for f in entry.fields}
    assert fields['author'] == 'Neelapu, SS and van der Berg, Jr, Å and ZUMA-1 Investigators'
    assert 'and {ZUMA-1 Investigators}' in bibtex(Answer('Q', 'R', (c,)))   # one name
    assert fields['title'] == c.title and fields['journal'] == 'J Toy'
    assert (fields['year'], fields['doi'], fields['url']) == ('2019', c.doi, c.url)
    assert fields['note'] == 'PMID 29226797. Trial. Corrected'
    assert record['authors'] == ['Neelapu, SS', 'van der Berg, Å, Jr', 'ZUMA-1 Investigators']
    assert (record['title'], record['year'], record['doi'], record['accession_number']) == (c.title, '2019', c.doi, '29226797')


def test_each_paper_once_in_the_order_of_the_answer():
    one, two, three = cited('1'), cited('2', quote='Tea did.', end=8), cited('3')
    answer = Answer('Q', 'R', (two, one, two), further=(Answer('Q2', 'R', (three, one)),))
    assert re.findall('@article{pmid([0-9])', bibtex(answer)) == re.findall('AN  - ([0-9])', ris(answer)) == ['2', '1', '3']


def test_what_is_no_paper_is_not_said_to_be_one():
    ours, page, full = cited('5', source='note'), cited('NCI-1_2', journal='Page of the NCI'), cited('PMC9')
    assert [e.entry_type for e in entries(ours, page, full)] == ['misc', 'misc', 'article']
    assert [r['type_of_reference'] for r in records(ours, page, full)] == ['GEN', 'GEN', 'JOUR']
    assert "cpqa's own note on PMID 5" in records(ours)[0]['title'] and 'journal' not in {f.key for f in entries(page)[0].fields}


def test_two_ids_never_share_a_key():
    keys = [e.key for e in entries(cited('a.b'), cited('a-b'), cited('a_b'))]
    assert len({*keys}) == 3


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_ends_its_field(title, author, journal):
    c = cited(title=title, authors=(author,) * bool(plain(author)), journal=journal, url='https://a.example/' + title, doi=title)
    [entry], [record] = entries(c), records(c)
    assert {f.key for f in entry.fields} <= {'author', 'title', 'journal', 'year', 'doi', 'url', 'note'}
    assert record.get('title', '') == plain(title) and 'unknown_tag' not in record
    raw = bibtexparser.parse_string(bibtex(Answer('Q', 'R', (c,)))).entries[0]
    assert raw.key == 'pmid7' and all(f.value.count('{') == f.value.count('}') for f in raw.fields)


@pytest.mark.usefixtures('loaded_once')
def test_the_command_line_lists_what_it_cites():
    asked = ('ask', 'What is tamoxifen?', '--format')
    listed = good(*asked, 'bibtex', how=inside)
    assert listed.startswith('@') and len(bibtexparser.parse_string(listed).entries) == listed.count('@')
    assert good(*asked, 'ris', how=inside).startswith('TY  - ')
    assert good(*asked, 'markdown', how=inside).startswith('## What is tamoxifen?\n\n1. ')
    assert good(*asked, 'json', how=inside) and 'must be one of text, markdown, json, bibtex, ris' in complaint(inside(*asked, 'bib'), 2)
    assert 'give one of them' in complaint(inside(*asked, 'ris', '--json'))


@pytest.mark.usefixtures('loaded_once')
def test_nothing_to_list_is_said_beside_the_list():
    run = inside('ask', 'zzxy qqwv', '--format', 'bibtex')
    assert (run.returncode, run.stdout) == (0, '') and 'cites no paper' in run.stderr
    run = inside('ask', 'I want to kill myself', '--format', 'ris')
    assert run.stdout == '' and run.stderr.strip() and 'cites no paper' not in run.stderr
