"""PubMed's language: documented examples as data, what its help says of operators and tags, and texts that are no queries."""
from datetime import date

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.retrieval.pubmed_query import EVERYTHING, FIELDS, TAGS, Node, QueryError, Term, date_range, lint, parse, words_of, written

# Queries of the kinds that PubMed's help shows, and what each of them means.
EXAMPLES = {
    'common cold AND (vitamin c OR zinc)': Node('AND', (Term('common cold'), Node('OR', (Term('vitamin c'), Term('zinc'))))),
    '(heat OR humidity) AND multiple sclerosis': Node('AND', (Node('OR', (Term('heat'), Term('humidity'))), Term('multiple sclerosis'))),
    'arthritis NOT letter[pt]': Node('NOT', (Term('arthritis'), Term('letter', 'pt'))),
    '"kidney allograft"': Term('kidney allograft', quoted=True),
    '"kidney allograft"[tiab]': Term('kidney allograft', 'tiab', True),
    'kidney allograft[tiab]': Term('kidney allograft', 'tiab'),
    'breast feed*[tiab]': Term('breast feed*', 'tiab'),
    '"breast feed*"': Term('breast feed*', quoted=True),
    '"hip pain"[Title:~2]': Term('hip pain', 'ti', True, near=2),
    '"rationing healthcare"[Title/Abstract:~0]': Term('rationing healthcare', 'tiab', True, near=0),
    'neoplasms/diet therapy[mh]': Term('neoplasms/diet therapy', 'mh'),
    'hypertension[majr:noexp]': Term('hypertension', 'majr', explode=False),
    'hypertension[MeSH Terms:NoExp]': Term('hypertension', 'mh', explode=False),
    'therapy[sh]': Term('therapy', 'sh'),
    "o'brien j[au]": Term("o'brien j", 'au'),
    '"smith j"[au]': Term('smith j', 'au', True),
    'smith j[1au] AND jones k[lastau]': Node('AND', (Term('smith j', '1au'), Term('jones k', 'lastau'))),
    'gene ther[ta]': Term('gene ther', 'ta'),
    'N Engl J Med[Journal]': Term('N Engl J Med', 'ta'),
    '2000:2004[dp]': Term('2000:2004', 'dp'),
    '2004/05/31:2005/06/01[dp]': Term('2004/05/31:2005/06/01', 'dp'),
    '"2009/05/01"[Date - Publication] : "3000"[Date - Publication]': Term('2009/05/01', 'dp', True, to='3000'),
    '2010[dp]:2015[dp]': Term('2010', 'dp', to='2015'),
    '"last 10 years"[dp]': Term('last 10 years', 'dp', True),
    'systematic[sb]': Term('systematic', 'sb'),
    'hasabstract[text]': Term('hasabstract', 'sb'),
    '"randomized controlled trial"[Publication Type]': Term('randomized controlled trial', 'pt', True),
    '17170002[uid] OR 16381840[pmid]': Node('OR', (Term('17170002', 'uid'), Term('16381840', 'uid'))),
    '10.1056/NEJMoa1200303[doi]': Term('10.1056/NEJMoa1200303', 'aid'),
    'humans[mh] english[la]': Node('AND', (Term('humans', 'mh'), Term('english', 'la'))),
    'asthma "house dust" mites[ti]': Node('AND', (Term('asthma'), Term('house dust', quoted=True), Term('mites', 'ti'))),
    'NOT rats': Node('NOT', (EVERYTHING, Term('rats'))),
    'asthma AND NOT rats': Node('NOT', (Term('asthma'), Term('rats'))),
    'asthma OR NOT rats': Node('OR', (Term('asthma'), Node('NOT', (EVERYTHING, Term('rats'))))),
    '“kidney allograft”[ti]': Term('kidney allograft', 'ti', True)}


@cases('query', EXAMPLES)
def test_documented_examples(query):
    tree = parse(query)
    assert tree == EXAMPLES[query]
    assert lint(query) == ()
    again = written(parse(written(tree)))
    assert again == written(tree)


@cases('query, brackets', [
    ('a AND b OR c', '(a AND b) OR c'), ('a OR b AND c', '(a OR b) AND c'), ('a OR b NOT c AND d', '((a OR b) NOT c) AND d'), ('a b OR c', 'a b OR c'),
    ('a[ti] b[ti] OR c', '("a"[Title] AND "b"[Title]) OR c'), ('a AND (b OR c) NOT d', '(a AND (b OR c)) NOT d'), ('((a))', 'a'), ('a and b', 'a and b'),
    ('NOT a NOT b', '("all"[Filter] NOT a) NOT b'), ('a NOT NOT b', 'a NOT ("all"[Filter] NOT b)')])
def test_left_to_right(query, brackets): assert written(parse(query)) == brackets


def test_words_before_a_date_stand_for_themselves():
    assert parse('asthma 2010[dp] : 2012[dp] french[la]') == Node('AND', (Term('asthma'), Term('2010', 'dp', to='2012'), Term('french', 'la')))
    assert parse('asthma in children 2010:2012[dp]') == Node('AND', (Term('asthma in children'), Term('2010:2012', 'dp')))


def test_every_tag_is_known_in_any_case():
    for tag, key in TAGS.items():
        text = {'date': '2010', 'filter': 'review'}.get(FIELDS[key].kind, 'abcd')
        for shown in (tag, tag.upper(), tag.title(), f' {tag} '): assert parse(f'{text}[{shown}]') == Term(text, key), tag


REFUSED = {
    'x[foo]': 'not a tag of PubMed', 'x[ti:~2]': 'near each other', '"x y"[mh:~2]': 'near each other', '"feed* x"[ti:~2]': 'truncated', 'fee*': 'at least four', '"a fee*"[ti]': 'at least four',
    '(a': 'never closed', 'a)': 'closes nothing', 'a AND': 'on its right', 'a AND OR b': 'on its left', 'AND': 'on its left', 'NOT': 'on its right', '': 'nothing to search', '()': 'nothing to search',
    '[ti]': 'follows no term', '(a)[ti]': 'follows no term', 'a[ti][ab]': 'follows no term', 'May[dp]': 'not a date', '2010/13[dp]': 'not a date', '2010/01/32[dp]': 'not a date', '2010:[dp]': 'not a date',
    '2011:2010[dp]': 'before they begin', 'last 9999 years[dp]': 'before the year 1', '1[uid]:5[uid]': 'dates alone', 'zzz[sb]': 'not a filter', '"!"[ti]': 'no word'}


@cases('query', REFUSED)
def test_what_cannot_run_is_refused_with_a_reason(query):
    for act in (parse, lint):
        with pytest.raises(QueryError, match=REFUSED[query]): act(query)


ODD = {'cats or dogs': 'no operator', '"a b': 'no partner', 'a]': 'no partner', 'x[ad]': 'Affiliation', 'wom*n[ti]': 'star inside', 'elvish[la]': 'not a language', 'CD4(+)': 'hold no word', 'asthma 2010[dp]': 'the last words alone'}


@cases('query', ODD)
def test_what_is_odd_is_a_warning(query):
    [warning] = lint(query)
    assert ODD[query] in warning


def test_relative_dates():
    today = date(2024, 2, 29)
    assert date_range('last 1 year', today=today) == (20230228, 20240229)
    assert date_range('Last 2 months', today=today) == (20231228, 20240229)
    assert date_range('last 10 days', today=today) == (20240219, 20240229)


def test_words_are_those_of_the_library():
    assert words_of('Non-Small*, Sjögren’s') == [('non', False), ('small', True), ('sjogren', False), ('s', False)]


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    try: tree = parse(text)
    except QueryError: return
    assert written(tree)


parts = st.sampled_from(['a', 'b c', '"d e"', 'feed*', 'f[ti]', '"g h"[tiab:~2]', 'Growths, Knee[mh]', '"neoplasms/diet therapy"[majr:noexp]', 'smith j[au]', '"smith j"[au]', '2010:2011/05[dp]',
                         '2010/02/03[dp]', '"last 5 years"[dp]', 'review[sb]', '1 2[uid]', '10.1/x[doi]', 'eng[la]', 'ear nose*[ta]', 'x[ad]'])
trees = st.recursive(parts, lambda inner: st.lists(st.tuples(st.sampled_from((' AND ', ' OR ', ' NOT ', ' ')), inner), min_size=1, max_size=4).map(
    lambda row: '(' + ''.join(op * (i > 0) + q for i, (op, q) in enumerate(row)) + ')'), max_leaves=12)


@given(trees)
def test_what_is_written_reads_the_same(query):
    first = written(parse(query))
    assert written(parse(first)) == first
