"""PubMed's language: documented examples as data, what its help says of operators and tags, and texts that are no queries."""
from datetime import date

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.retrieval.pubmed_query import (EVERYTHING, QUERY_FIELDS, TAGS, Node, QueryError, QueryTerm, date_range, lint, parse, words_of,
                                         written)

# Queries of the kinds that PubMed's help shows, and what each of them means.
EXAMPLES = {
    'common cold AND (vitamin c OR zinc)': Node('AND', (QueryTerm('common cold'), Node('OR', (QueryTerm('vitamin c'), QueryTerm('zinc'))))),
    '(heat OR humidity) AND multiple sclerosis': Node('AND',
                                                      (Node('OR', (QueryTerm('heat'), QueryTerm('humidity'))),
                                                       QueryTerm('multiple sclerosis'))),
    'arthritis NOT letter[pt]': Node('NOT', (QueryTerm('arthritis'), QueryTerm('letter', 'pt'))),
    '"kidney allograft"': QueryTerm('kidney allograft', quoted=True),
    '"kidney allograft"[tiab]': QueryTerm('kidney allograft', 'tiab', True),
    'kidney allograft[tiab]': QueryTerm('kidney allograft', 'tiab'),
    'breast feed*[tiab]': QueryTerm('breast feed*', 'tiab'),
    '"breast feed*"': QueryTerm('breast feed*', quoted=True),
    '"hip pain"[Title:~2]': QueryTerm('hip pain', 'ti', True, near=2),
    '"rationing healthcare"[Title/Abstract:~0]': QueryTerm('rationing healthcare', 'tiab', True, near=0),
    'neoplasms/diet therapy[mh]': QueryTerm('neoplasms/diet therapy', 'mh'),
    'hypertension[majr:noexp]': QueryTerm('hypertension', 'majr', explode=False),
    'hypertension[MeSH Terms:NoExp]': QueryTerm('hypertension', 'mh', explode=False),
    'therapy[sh]': QueryTerm('therapy', 'sh'),
    "o'brien j[au]": QueryTerm("o'brien j", 'au'),
    '"smith j"[au]': QueryTerm('smith j', 'au', True),
    'smith j[1au] AND jones k[lastau]': Node('AND', (QueryTerm('smith j', '1au'), QueryTerm('jones k', 'lastau'))),
    'gene ther[ta]': QueryTerm('gene ther', 'ta'),
    'N Engl J Med[Journal]': QueryTerm('N Engl J Med', 'ta'),
    '2000:2004[dp]': QueryTerm('2000:2004', 'dp'),
    '2004/05/31:2005/06/01[dp]': QueryTerm('2004/05/31:2005/06/01', 'dp'),
    '"2009/05/01"[Date - Publication] : "3000"[Date - Publication]': QueryTerm('2009/05/01', 'dp', True, to='3000'),
    '2010[dp]:2015[dp]': QueryTerm('2010', 'dp', to='2015'),
    '"last 10 years"[dp]': QueryTerm('last 10 years', 'dp', True),
    'systematic[sb]': QueryTerm('systematic', 'sb'),
    'hasabstract[text]': QueryTerm('hasabstract', 'sb'),
    '"randomized controlled trial"[Publication Type]': QueryTerm('randomized controlled trial', 'pt', True),
    '17170002[uid] OR 16381840[pmid]': Node('OR', (QueryTerm('17170002', 'uid'), QueryTerm('16381840', 'uid'))),
    '10.1056/NEJMoa1200303[doi]': QueryTerm('10.1056/NEJMoa1200303', 'aid'),
    'humans[mh] english[la]': Node('AND', (QueryTerm('humans', 'mh'), QueryTerm('english', 'la'))),
    'asthma "house dust" mites[ti]': Node('AND', (QueryTerm('asthma'), QueryTerm('house dust', quoted=True), QueryTerm('mites', 'ti'))),
    'NOT rats': Node('NOT', (EVERYTHING, QueryTerm('rats'))),
    'asthma AND NOT rats': Node('NOT', (QueryTerm('asthma'), QueryTerm('rats'))),
    'asthma OR NOT rats': Node('OR', (QueryTerm('asthma'), Node('NOT', (EVERYTHING, QueryTerm('rats'))))),
    '“kidney allograft”[ti]': QueryTerm('kidney allograft', 'ti', True)}


@cases('query', EXAMPLES)
def test_documented_examples(query):
    tree = parse(query)
    assert tree == EXAMPLES[query]
    assert lint(query) == ()
    again = written(parse(written(tree)))
    assert again == written(tree)


@cases('query, brackets', [
    ('a AND b OR c', '(a AND b) OR c'), ('a OR b AND c', '(a OR b) AND c'), ('a OR b NOT c AND d', '((a OR b) NOT c) AND d'),
    ('a b OR c', 'a b OR c'),
    ('a[ti] b[ti] OR c', '("a"[Title] AND "b"[Title]) OR c'), ('a AND (b OR c) NOT d', '(a AND (b OR c)) NOT d'), ('((a))', 'a'),
    ('a and b', 'a and b'),
    ('NOT a NOT b', '("all"[Filter] NOT a) NOT b'), ('a NOT NOT b', 'a NOT ("all"[Filter] NOT b)')])
def test_left_to_right(query, brackets): assert written(parse(query)) == brackets


def test_words_before_a_date_stand_for_themselves():
    assert parse('asthma 2010[dp] : 2012[dp] french[la]') == Node('AND',
                                                                  (QueryTerm('asthma'), QueryTerm('2010', 'dp', to='2012'),
                                                                   QueryTerm('french', 'la')))
    assert parse('asthma in children 2010:2012[dp]') == Node('AND', (QueryTerm('asthma in children'), QueryTerm('2010:2012', 'dp')))


def test_every_tag_is_known_in_any_case():
    for tag, key in TAGS.items():
        text = {'date': '2010', 'filter': 'review'}.get(QUERY_FIELDS[key].kind, 'abcd')
        for shown in (tag, tag.upper(), tag.title(), f' {tag} '): assert parse(f'{text}[{shown}]') == QueryTerm(text, key), tag


REFUSED = {
    'x[foo]': 'not a tag of PubMed', 'x[ti:~2]': 'near each other', '"x y"[mh:~2]': 'near each other', '"feed* x"[ti:~2]': 'truncated',
    'fee*': 'at least four', '"a fee*"[ti]': 'at least four',
    '(a': 'never closed', 'a)': 'closes nothing', 'a AND': 'on its right', 'a AND OR b': 'on its left', 'AND': 'on its left',
    'NOT': 'on its right', '': 'nothing to search', '()': 'nothing to search',
    '[ti]': 'follows no term', '(a)[ti]': 'follows no term', 'a[ti][ab]': 'follows no term', 'May[dp]': 'not a date',
    '2010/13[dp]': 'not a date', '2010/01/32[dp]': 'not a date', '2010:[dp]': 'not a date',
    '2011:2010[dp]': 'before they begin', 'last 9999 years[dp]': 'before the year 1', '1[uid]:5[uid]': 'dates alone',
    'zzz[sb]': 'not a filter', '"!"[ti]': 'no word'}


@cases('query', REFUSED)
def test_what_cannot_run_is_refused_with_a_reason(query):
    for act in (parse, lint):
        with pytest.raises(QueryError, match=REFUSED[query]): act(query)


ODD = {'cats or dogs': 'no operator', '"a b': 'no partner', 'a]': 'no partner', 'x[ad]': 'Affiliation', 'wom*n[ti]': 'star inside',
       'elvish[la]': 'not a language', 'CD4(+)': 'hold no word', 'asthma 2010[dp]': 'the last words alone'}


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


parts = st.sampled_from(['a', 'b c', '"d e"', 'feed*', 'f[ti]', '"g h"[tiab:~2]', 'Growths, Knee[mh]',
                         '"neoplasms/diet therapy"[majr:noexp]', 'smith j[au]', '"smith j"[au]', '2010:2011/05[dp]',
                         '2010/02/03[dp]', '"last 5 years"[dp]', 'review[sb]', '1 2[uid]', '10.1/x[doi]', 'eng[la]', 'ear nose*[ta]',
                         'x[ad]'])
trees = st.recursive(parts, lambda inner: st.lists(st.tuples(st.sampled_from((' AND ', ' OR ', ' NOT ', ' ')), inner), min_size=1,
                                                   max_size=4).map(
    lambda row: '(' + ''.join(op * (i > 0) + q for i, (op, q) in enumerate(row)) + ')'), max_leaves=12)


@given(trees)
def test_what_is_written_reads_the_same(query):
    first = written(parse(query))
    assert written(parse(first)) == first
