"""The local Boolean engine against a naive evaluator over records in memory, and what cells cannot show: paging, ties, depth, threads,
other fields."""
import random
import re
import threading
import unicodedata
from datetime import date

import pytest
from conftest import cases, examples, sample
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from cpqa.core import storage
from cpqa.core.records import Document, MeshHeading, MeshTerm, in_order
from cpqa.literature.library import Library, LibraryError, build_library
from cpqa.literature.mesh import Descriptor, MeshTree
from cpqa.literature.pubmed import Deleted, read_beir
from cpqa.retrieval import boolean
from cpqa.retrieval.boolean import BooleanIndex, QueryError, TermTable


@pytest.fixture(scope='module', autouse=True)
def quick_disk():
    "Whether bytes reach the disk is tested elsewhere, and waiting for it takes most of the time of a small library."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, 'to_disk', lambda folder: None)
        yield


# ---- records

TREE = [('D000001', 'Growths', ('C04',), ('Lumps', 'Bad Growths')), ('D000002', 'Growths, Knee', ('C04.588.111',), ('Patellar Lump',)),
        ('D000003', 'Growths, Ear', ('C04.588.222', 'C09.111'), ()), ('D000004', 'Lobe Growths', ('C04.588.222.300',), ('MEN',)),
        ('D000005', 'Ears', ('A01',), ())]
MESH = MeshTree(Descriptor(*d) for d in TREE)
WORDS = ('tea', 'teas', 'teapot', 'green', 'greener', 'knee', 'non-small', 'Sjögren', "Crohn's", 'lumps', 'growths', 'of', 'HER2')
TYPES = ('Review', 'Systematic Review', 'Clinical Trial', 'Randomized Controlled Trial', 'Journal Article')
AUTHORS = ('Smith J', 'Smith JA', 'Smithers J', "O'Brien K", 'Wu L')
JOURNALS = (('The Journal of Tea (London, England)', 'J Tea'), ('Ear', 'Ear'), ('', ''))
DATES = ('', '2009', '2010', '2010-01', '2010-01-01', '2010-01-02', '2010-05', '2010-05-31', '2011-12-31')
QUALIFIERS = ('therapy', 'diet therapy')

text = st.lists(st.sampled_from(WORDS), max_size=7).map(lambda ws: '. '.join(' '.join(ws[i:i + 3]) for i in range(0, len(ws), 3)))
qualifiers = st.lists(st.builds(MeshTerm, st.sampled_from(QUALIFIERS), st.just('Q1'), st.booleans()), max_size=2,
                      unique_by=lambda q: q.name).map(tuple)
headings = st.lists(st.builds(lambda d, ui, major, q: MeshHeading(MeshTerm(d[1], d[0] if ui else '', major), q), st.sampled_from(TREE),
                              st.booleans(), st.booleans(), qualifiers),
                    max_size=2).map(tuple)


def few(values): return st.lists(st.sampled_from(values), max_size=2, unique=True).map(tuple)


@st.composite
def documents(draw, id):
    journal, abbr = draw(st.sampled_from(JOURNALS))
    return Document(id=id, title=draw(text), text=draw(text), mesh=draw(headings), publication_types=draw(few(TYPES)),
                    languages=draw(few(('eng', 'ger'))), authors=draw(few(AUTHORS)),
                    journal=journal, journal_abbr=abbr, date=draw(st.sampled_from(DATES)), doi=draw(st.sampled_from(('', f'10.1/X.{id}'))),
                    pmcid=draw(st.sampled_from(('', f'PMC9{id}'))))


ids = st.lists(st.sampled_from(('1', '2', '10', '11', '29226797', '29226798', 'PMC31', 'doc-1', 'doc-2', 'doc-22222222222',
                                'doc-22222222223')), min_size=1, max_size=6, unique=True)
libraries = ids.flatmap(lambda names: st.tuples(*map(documents, names)))

# ---- the naive evaluator: it knows nothing of the index, and reads a query that is still in pieces


def words(t: str) -> list[str]:
    plain = ''.join(c for c in unicodedata.normalize('NFKD', t.lower()) if not unicodedata.combining(c))
    return re.findall('[a-z0-9]+', plain)


def places(d: Document, field: str) -> list[list[str]]:
    "The texts of a field, as words; no phrase runs from one into the next."
    title, abstract = [words(d.title)], [words(d.text)]
    mesh = [words(t.name) for h in d.mesh for t in (h.descriptor, *h.qualifiers)] + [words(t) for t in d.publication_types]
    rest = [words(t) for t in (*d.authors, d.journal, d.journal_abbr, *d.languages, d.doi, d.pmcid, d.id)]
    return {'ti': title, 'ab': abstract, 'tiab': title + abstract, 'tw': title + abstract + mesh,
            'all': title + abstract + mesh + rest}[field]


def has_phrase(found: list[str], phrase: list[str]) -> bool:
    "Does the phrase stand in these words? A word of the phrase that ends in a star stands for all that begin so."
    fits = lambda w, p: w.startswith(p[:-1]) if p.endswith('*') else w == p
    return any(all(map(fits, found[i:], phrase)) for i in range(len(found) - len(phrase) + 1))


def has_near(found: list[str], wanted: list[str], near: int) -> bool:
    spots = [[i for i, w in enumerate(found) if w == p] for p in wanted]
    def chosen(taken, rest):
        if not rest: yield taken
        for i in rest[0] if rest else (): yield from chosen([*taken, i], rest[1:]) if i not in taken else ()
    return any(max(c) - min(c) + 1 - len(c) <= near for c in chosen([], spots))


def under(name: str, explode: bool) -> set[str]:
    [(_, _, numbers, _)] = [d for d in TREE if d[1] == name]
    return {n for _, n, ts, _ in TREE if n == name or explode and any(t.startswith(f'{u}.') for t in ts for u in numbers)}


def has_heading(d: Document, name: str, explode: bool, major: bool, qualifier: str) -> bool:
    def pair(h): return any(q.name == qualifier and (not major or q.major or h.descriptor.major) for q in h.qualifiers)
    hits = [h for h in d.mesh if h.descriptor.name in under(name, explode)]
    return any(pair(h) if qualifier else not major or h.descriptor.major or any(q.major for q in h.qualifiers) for h in hits)


def day(d: Document) -> tuple[int, int, int] | None:
    "The date with the first for what is not known."
    return (*map(int, d.date.split('-')), *(1, 1))[:3] if d.date else None


TYPES_FOUND = {'Review': {'Review', 'Systematic Review'}, 'Clinical Trial': {'Clinical Trial', 'Randomized Controlled Trial'}}

# Each kind of term: how it is written, and whether a record has it.

word = st.sampled_from([w for t in WORDS for w in (t, t.upper(), t.capitalize())])
field = st.sampled_from(('ti', 'ab', 'tiab', 'tw', 'all'))
NAMES = {'ti': 'Title', 'ab': 'Abstract', 'tiab': 'Title/Abstract', 'tw': 'Text Word', 'all': 'All Fields'}


@st.composite
def word_terms(draw):
    f, tag = draw(field), ''
    phrase = draw(st.lists(word, min_size=1, max_size=3))
    stem = draw(st.sampled_from(('', 'gree*', 'teap*', 'grow*')))
    tag = draw(st.sampled_from((f, NAMES[f], f.upper())))
    wanted = [w for p in phrase for w in words(p)] + ([stem] if stem else [])
    return f'"{" ".join([*phrase, stem]).strip()}"[{tag}]', lambda d: any(has_phrase(p, wanted) for p in places(d, f))


@st.composite
def near_terms(draw):
    f, wanted, n = draw(st.sampled_from(('ti', 'tiab'))), draw(st.lists(st.sampled_from(('tea', 'green', 'knee')), min_size=2,
                                                                        max_size=3)), draw(st.integers(0, 3))
    return f'"{" ".join(wanted)}"[{f}:~{n}]', lambda d: any(has_near(p, wanted, n) for p in places(d, f))


@st.composite
def mesh_terms(draw):
    ui, name, _, others = draw(st.sampled_from(TREE))
    typed = draw(st.sampled_from((ui, name, name.lower(), f'"{name}"', *others)))
    explode, tag, qualifier = draw(st.booleans()), draw(st.sampled_from(('mh', 'majr'))), draw(st.sampled_from(('', *QUALIFIERS)))
    shown = f'"{typed.strip(chr(34))}/{qualifier}"' if qualifier else typed
    return f'{shown}[{tag}{"" if explode else ":noexp"}]', lambda d: has_heading(d, name, explode, tag == 'majr', qualifier)


@st.composite
def fact_terms(draw):
    kind = draw(st.sampled_from(('pt', 'la', 'ta', 'sh', 'sb', 'aid', 'uid', 'pmcid')))
    if kind == 'pt':
        t = draw(st.sampled_from(TYPES))
        return f'{t.lower()}[Publication Type]', lambda d: bool(TYPES_FOUND.get(t, {t}) & set(d.publication_types))
    if kind == 'la':
        name, code = draw(st.sampled_from((('english', 'eng'), ('German', 'ger'), ('ger', 'ger'))))
        return f'{name}[la]', lambda d: code in d.languages
    if kind == 'ta':
        name, abbr = draw(st.sampled_from((('j tea', 'J Tea'), ('Journal of Tea (London, England)', 'J Tea'),
                                           ('the journal of tea', 'J Tea'), ('Ear', 'Ear'))))
        return f'"{name}"[{draw(st.sampled_from(("ta", "Journal", "jour")))}]', lambda d: d.journal_abbr == abbr
    if kind == 'sh':
        q = draw(st.sampled_from(QUALIFIERS))
        return f'{q}[sh]', lambda d: any(x.name == q for h in d.mesh for x in h.qualifiers)
    if kind == 'sb':
        return draw(
            st.sampled_from(
                (
                    ('hasabstract', lambda d: bool(d.text)),
                    ('english[filter]', lambda d: 'eng' in d.languages),
                    ('all[sb]', lambda d: True),
                    ('"review"[Filter]', lambda d: bool({'Review', 'Systematic Review'} & set(d.publication_types))),
                )
            )
        )
    id = draw(st.sampled_from(('1', '29226797', 'doc-1', 'PMC31')))
    if kind == 'aid': return f'"10.1/x.{id}"[doi]', lambda d: d.doi == f'10.1/X.{id}'
    if kind == 'pmcid': return f'PMC9{id}[pmcid]', lambda d: d.pmcid.lower() == f'pmc9{id}'.lower() or d.id == f'PMC9{id}'
    return f'{id}[pmid]', lambda d: d.id == id


def surname(a: str) -> list[str]: return words(a)


@st.composite
def author_terms(draw):
    tag = draw(st.sampled_from(('au', '1au', 'lastau')))
    typed, quoted = draw(st.sampled_from(('smith', 'Smith J', "o'brien k", 'wu', 'smith ja', 'wu l'))), draw(st.booleans())
    def fits(a):
        a, t = ' '.join(words(a)), ' '.join(words(typed))
        return a == t if quoted else a == t or a.startswith(t + ' ') or len(t.split()[-1]) < 3 and ' ' in t and a.startswith(t)
    chosen = {'au': lambda d: d.authors, '1au': lambda d: d.authors[:1], 'lastau': lambda d: d.authors[-1:]}[tag]
    return (f'"{typed}"' if quoted else typed) + f'[{tag}]', lambda d: any(map(fits, chosen(d)))


@st.composite
def date_terms(draw):
    a, b = sorted(draw(st.lists(st.tuples(st.integers(2008, 2012), st.sampled_from((0, 1, 5, 12)), st.sampled_from((0, 1, 2, 31))),
                                min_size=2, max_size=2)))
    a, b = ((y, m, x if m else 0) for y, m, x in (a, b))
    low, high = ((y, m or first, x or last) for (y, m, x), first, last in ((a, 1, 1), (b, 12, 31)))
    if low > high: low, high, a, b = low, (b[0], 12, 31), a, (b[0], 0, 0)
    shown = ['/'.join(str(n) if i == 0 else f'{n:02}' for i, n in enumerate(x) if n) for x in (a, b)]
    form = draw(st.sampled_from(('{}:{}[dp]', '"{}"[dp] : "{}"[dp]', '{}:{}[Date - Publication]', '"{}:{}"[pdat]')))
    return form.format(*shown), lambda d: bool(d.date) and low <= day(d) <= high


@st.composite
def loose_words(draw):
    "Untagged words: a name of a heading is the heading or its words."
    chosen = draw(st.lists(st.sampled_from(('tea', 'of', 'lump', 'ears', 'knee growths', 'greener', 'non-small', 'gree*', '"green tea"',
                                            'men', 'MEN')), min_size=1, max_size=3))
    named = {'lump': 'Growths', 'ears': 'Ears', 'knee growths': 'Growths, Knee', 'MEN': 'Lobe Growths'}
    natural = {'Growths, Knee': 'knee growths', 'Lobe Growths': 'lobe growths'}
    def one(t, d):
        if t == 'of': return True
        texts = places(d, 'all')
        typed = [w for w in words(t)]
        if t not in named: return any(has_phrase(p, ['gree*'] if t == 'gree*' else typed) for p in texts)
        both = [typed, words(natural.get(named[t], named[t]))]
        return has_heading(d, named[t], True, False, '') or any(all(any(w in p for p in texts) for w in ws) for ws in both)
    return ' AND '.join(chosen), lambda d: all(one(t, d) for t in chosen)


terms = st.one_of(word_terms(), near_terms(), mesh_terms(), fact_terms(), author_terms(), date_terms())


def in_brackets(inner):
    @st.composite
    def row(draw):
        parts = draw(st.lists(st.tuples(st.sampled_from(('AND', 'OR', 'NOT', '')), inner), min_size=1, max_size=4))
        shown, negated = '', draw(st.booleans())
        for i, (op, (query, _)) in enumerate(parts): shown += (f' {op} ' if op else ' ') * (i > 0) + query
        def has(d):
            found = parts[0][1][1](d) != negated
            for op, (_, term) in parts[1:]:
                found = {'AND': found and term(d), '': found and term(d), 'OR': found or term(d), 'NOT': found and not term(d)}[op]
            return found
        return f'({"NOT " * negated}{shown})', has
    return row()


queries = st.recursive(terms, in_brackets, max_leaves=10)


def index(records, folder, today=None): return BooleanIndex(build_library([records], folder/'library'), MESH, today)


def date_key(d: Document) -> tuple:
    digits = re.search('[0-9]+', d.id)
    return int(d.date.replace('-', '').ljust(8, '0')) if d.date else 0, int(digits[0]) if digits else 0, d.id


@examples(30, 8)
@given(libraries, st.lists(queries, min_size=8, max_size=14))
def test_as_a_naive_evaluator(tmp_path_factory, records, asked):
    made = index(records, tmp_path_factory.mktemp('naive'))
    for query, has in asked:
        expected = [d for d in records if has(d)]
        found = made.search(query, k=100)
        assert (set(found.ids), found.count) == ({d.id for d in expected}, len(expected)), query
        assert list(found.hits) == in_order(found.hits)
        assert made.search(query, k=100, sort='date').ids == tuple(d.id for d in sorted(expected, key=date_key, reverse=True))
        assert [i for n in range(0, len(expected) + 1, 2) for i in made.search(query, k=2, start=n).ids] == list(found.ids)
        assert set(made.search(found.translation, k=100).ids) == set(found.ids), (query, found.translation)


def crowd(n: int, seed: int) -> list[Document]:
    "Many random records, so that each kind of term meets what it must and must not find."
    r = random.Random(seed)
    def some(values, most=2): return tuple(r.sample(values, r.randint(0, most)))
    def line(): return '. '.join(' '.join(r.choices(WORDS, k=3)) for _ in range(r.randint(0, 3)))
    def mesh(d):
        return MeshHeading(MeshTerm(d[1], d[0] if r.random() < .5 else '', r.random() < .3),
                           tuple(MeshTerm(q, 'Q1', r.random() < .3) for q in some(QUALIFIERS)))
    return [Document(id=str(i), title=line(), text=line(), mesh=tuple(map(mesh, some(TREE))), publication_types=some(TYPES),
                     languages=some(('eng', 'ger')), authors=some(AUTHORS),
                     date=r.choice(DATES)) for i in range(n)]


@pytest.fixture(scope='module')
def crowded(tmp_path_factory):
    records = crowd(150, 3)
    return index(records, tmp_path_factory.mktemp('crowd')), records


@examples(100)
@given(st.tuples(word_terms(), near_terms(), mesh_terms(), fact_terms(), author_terms(), date_terms(), queries))
def test_each_kind_of_term_as_a_naive_evaluator(crowded, asked):
    made, records = crowded
    for query, has in asked: assert set(made.search(query, k=200).ids) == {d.id for d in records if has(d)}, query


@examples(30, 8)
@given(libraries, st.lists(loose_words(), min_size=6, max_size=9))
def test_words_without_tags_as_a_naive_evaluator(tmp_path_factory, records, asked):
    made = index(records, tmp_path_factory.mktemp('loose'))
    for query, has in asked:
        if set(query.split(' AND ')) == {'of'}:
            assert made.search(query).count == 0 and 'too common' in made.search(query).warnings[0]
            continue
        expected = {d.id for d in records if has(d)}
        assert set(made.search(query).ids) == expected, query
        spaced = made.search(query.replace(' AND ', ' , '))
        assert set(spaced.ids) == expected or 'knee growths' in str(spaced.translations) or '"' in query, query


# ---- limits

def many(n: int) -> list[Document]:
    return [Document(id=str(1000 + i), title=f'feed{i:05} tea', text='breast milk', date=f'20{i % 20:02}',
                     mesh=(MeshHeading(MeshTerm('Ears', 'D000005')),)) for i in range(n)]


@pytest.fixture(scope='module')
def large(tmp_path_factory): return index([*many(3000), Document(id='1', text='breast feed99 feedback')], tmp_path_factory.mktemp('large'))


def test_truncation_to_thousands_of_words_is_exact(large, monkeypatch):
    assert large.search('feed*[ti]').count == 3000
    assert large.search('feed*[tiab]').count == 3001
    for most in (8000, 400):
        monkeypatch.setattr(boolean, '_MOST_WORDS', most)
        assert large.search('"feed* tea"[ti]').count == 3000
        assert large.search('"feed02* tea"[ti]').count == 1000
        assert large.search('"breast feed*"[ab]').ids == ('1',)
        assert large.search('"feed99 feedback*"[ab]').ids == ('1',)


@cases('page', [1, 3, 100, 5000])
@cases('query', ['tea', 'breast', 'ears[mh]', 'ears[mh] OR feed99', 'all[sb]', '2005[dp]', 'feed00007 OR ears[mh] OR 1[uid]'])
def test_ties_are_broken_as_everywhere_whatever_the_page(large, query, page, monkeypatch):
    whole = large.search(query, k=4000)
    assert list(whole.hits) == in_order(whole.hits) and len(whole.hits) == whole.count
    monkeypatch.setattr(boolean, '_PAGE', max(page, 50) if whole.count > 1000 else page)
    for start, k in ((0, 1), (0, 7), (5, 20), (2990, 30)): assert large.search(query, k=k, start=start).ids == whole.ids[start:start + k]
    newest = large.search(query, k=4000, sort='date').ids
    assert large.search(query, k=20, start=10, sort='date').ids == newest[10:30]


def test_only_a_page_is_ever_read(large, monkeypatch):
    "Of thousands that tie, no more are fetched than are needed."
    read = []
    monkeypatch.setattr(boolean, '_PAGE', 100)
    monkeypatch.setattr(boolean._Top, 'id', lambda self, a: read.append(a) or self.searcher.doc(a)['id'][0])
    for query in ('ears[mh]', 'all[sb]', 'tea'):
        read.clear()
        assert len(large.search(query, k=10).ids) == 10 and len(read) < 1000


DEEP = {'brackets': '(' * 1000 + 'tea' + ')' * 1000, 'a comb': 'tea AND (tea OR (' * 500 + 'tea' + '))' * 500,
        'a chain': ' '.join(['tea AND', 'milk OR'] * 2000) + ' tea',
        'nots': 'NOT ' * 3000 + 'tea', 'open': '(' * 5000, 'closed': ')' * 5000, 'tags': '[ti]' * 3000, 'quotes': '"' * 5001,
        'stars': '*' * 5000, 'one word': 'a' * 100_000,
        'words': 'tea ' * 20_000, 'ors': ' OR '.join(f'w{i}[ti]' for i in range(5000)),
        'phrases': ' '.join(f'"tea {i}"' for i in range(500))}


def test_a_list_of_pmids_finds_each(tmp_path):
    made = index([Document(id=i, title='tea') for i in ('29226797', '16083', 'PMC31')], tmp_path)
    assert set(made.search('29226797 16083').ids) == {'29226797', '16083'}
    found = made.search('PMC31[pmid]')
    assert found.ids == made.search(found.translation).ids == ('PMC31',)


def test_the_usual_name_of_a_cancer_is_its_heading(tmp_path):
    "By the headings that come in the package."
    made = BooleanIndex(build_library([[Document(id='1', title='tea')]], tmp_path/'library'))
    for typed, name in (('breast cancer', 'breast neoplasms'), ('lung cancer', 'lung neoplasms'), ('ovarian tumors', 'ovarian neoplasms')):
        assert f'"{name}"[MeSH Terms]' in made.search(typed).translation


@cases('name', DEEP)
def test_deep_and_long_queries_end_in_an_answer_or_a_query_error(name, large):
    def ask():
        try: answers.append(large.search(DEEP[name]).count)
        except QueryError as e: answers.append(str(e))
    answers = []
    ask()
    threading.Thread(target=ask).start()          # threads have smaller stacks than the main one
    [t.join() for t in threading.enumerate() if t is not threading.current_thread() and t.name.startswith('Thread-')]
    assert len(answers) == 2 and answers[0] == answers[1]


@examples(300)
@given(st.one_of(st.text(max_size=60),
                 st.lists(st.sampled_from(['AND', 'OR', 'NOT', '(', ')', '"', '[ti]', '[dp]', '[mh]', '[au]', '[sb]', '[tiab:~2]', 'tea',
                                           'feed*', '2005', ':', '2007',
                                                                 'ears', '/', '*', '[', ']', '\\', '.*', '\0', 'é', '٣', 'ﬁ', '😀']),
                                                                 max_size=12).map(' '.join)))
def test_any_text_is_answered_or_refused(large, query):
    try: found = large.search(query)
    except QueryError as e: assert len(str(e)) < 700
    else: assert len(found.ids) == min(20, found.count)


def test_many_threads_at_once(large):
    wanted = {q: large.search(q) for q in ('tea', 'feed000* OR milk', 'ears AND 2005:2007[dp]', '"breast milk" NOT tea[ab]')}
    wrong = []
    def work():
        for q, found in list(wanted.items()) * 2:
            if large.search(q) != found: wrong.append(q)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not wrong


def test_search_prints_nothing(large, capfd):
    large.search('tea AND the OR "x y"')
    assert capfd.readouterr() == ('', '')


def test_last_years_count_from_today(tmp_path):
    records = [Document(id=str(i), title='tea', date=d) for i, d in enumerate(('2020', '2021-07-01', '2024', '2026-03-01', '2030'))]
    made = index(records, tmp_path, today=date(2026, 3, 15))
    assert set(made.search('"last 5 years"[dp]').ids) == {'1', '2', '3'}
    assert set(made.search('tea AND last 30 days[pdat]').ids) == {'3'}


def test_dates_of_a_search_limit_it(tmp_path):
    made = index([Document(id='1', title='tea', date='2010'), Document(id='2', title='tea', year=2012), Document(id='3', title='tea')],
                 tmp_path)
    for how, wanted in (({'since': 2010}, {'1', '2'}), ({'since': '2010/01/01'}, {'1', '2'}), ({'since': '2010/02'}, {'2'}),
                        ({'until': 2011}, {'1'}),
                        ({'since': '2012', 'until': '2012/06/30'}, {'2'}), ({}, {'1', '2', '3'})):
        assert set(made.search('tea', **how).ids) == wanted, how
    assert made.search('tea', since=2010, until=2012).translation == '"tea"[All Fields] AND 2010/01/01:2012/12/31[Date - Publication]'


def test_pages_follow_each_other_where_ids_begin_alike(tmp_path):
    "Ids of one score and one rank, which is made of their first nine letters: found by the test of the naive evaluator."
    ears = (MeshHeading(MeshTerm('Ears', 'D000005')),)
    records = [Document(id=i, journal='The Journal of Tea', mesh=ears if i == '10' else ())
               for i in ('doc-22222222222', '1', '2', '10', '11', 'doc-22222222223')]
    made, query = index(records, tmp_path), '(NOT "tea"[ti] OR D000005[mh:noexp])'
    whole = made.search(query, k=100).ids
    assert whole == ('10', 'doc-22222222223', 'doc-22222222222', '2', '11', '1')
    assert tuple(i for n in range(0, 7, 2) for i in made.search(query, k=2, start=n).ids) == whole


def test_what_was_deleted_or_replaced_is_not_found(tmp_path):
    made = index([Document(id='1', title='tea'), Document(id='2', title='tea'), Document(id='1', title='coffee'), Deleted('2')], tmp_path)
    assert (made.search('tea').count, made.search('coffee').ids, made.search('NOT tea').ids) == (0, ('1',), ('1',))


def test_a_library_of_the_old_form_is_to_be_built_again(tmp_path):
    folder = build_library([[Document(id='1', title='tea')]], tmp_path/'old').folder
    manifest = folder/'manifest.json'
    manifest.write_text(manifest.read_text().replace('"format": 3', '"format": 1'))
    with pytest.raises(LibraryError, match='build it again'): Library(folder)


def test_the_table_of_names():
    table = TermTable(MESH)
    assert [getattr(table.get(t), 'name', None) for t in ('Lumps', 'bad growth', 'Growths, Knee', 'knee growths', 'MEN', 'men', 'Ear', '',
                                                          '...')] == \
        ['Growths', 'Growths', 'Growths, Knee', 'Growths, Knee', 'Lobe Growths', None, 'Ears', None, None]


def test_a_word_that_is_an_author_with_initials(tmp_path):
    made = index([Document(id='1', title='tea', authors=('Smith JA',)), Document(id='2', title='smith ja tea'),
                  Document(id='3', title='vitamin d')], tmp_path)
    assert made.search('smith ja tea').ids == ('1',)
    assert made.search('vitamin d').ids == ('3',)


# ---- real data

def test_translations_are_those_of_pubmed(data_dir, tmp_path):
    "A name of a heading is translated as NCBI translated it when its answer was recorded."
    answer = etree.parse(data_dir/'entrez'/'esearch5.xml')
    typed, made_of = answer.findtext('.//Translation/From'), answer.findtext('.//Translation/To')
    name = typed.title()
    mesh = MeshTree([Descriptor('D000001', name, ('A11',))])
    made = BooleanIndex(build_library([[Document(id='1', title=typed, text='x')]], tmp_path/'library'), mesh)
    found = made.search(f'{typed} hasabstract')
    assert found.translations == ((typed, made_of),)
    assert found.translation == answer.findtext('QueryTranslation')
    assert found.ids == ('1',)


def test_a_single_word_is_translated_as_pubmed_does(data_dir, tmp_path):
    shown = etree.parse(data_dir/'entrez'/'esearch1.xml').findtext('QueryTranslation')
    word = shown.split('"')[1]
    assert index([Document(id='1', title=word)], tmp_path).search(word).translation == shown


def test_the_work_of_a_query_is_bounded_and_a_long_strategy_is_not_too_much(tmp_path):
    "What a filter, a heading or a bracket hides is counted as well; two hundred truncated words are no more than a librarian writes."
    made = index([Document(id='1', title='Tea for the knee')], tmp_path)
    for query in (' OR '.join(f'(cancer[sb] NOT word{i})' for i in range(300)),
                  ' OR '.join(f'"word{i}* teapot*"[tiab]' for i in range(300)),
                  ' '.join(f'{"abcdefghij"[i % 10]}{i}' for i in range(12_000)), ' OR '.join(f'{i}[uid]' for i in range(3000)),
                  ' OR '.join(f'"tea knee {i}"[tiab:~9]' for i in range(20))):
        with pytest.raises(QueryError, match='too much work'): made.search(query)
    assert made.search(' OR '.join(f'word{i}*[tiab]' for i in range(200)) + ' OR tea').count == 1
    assert made.search(' '.join(str(12345 + i) for i in range(5000)) + '[uid]').count == 0


@pytest.fixture(scope='module')
def bioasq(data_dir, tmp_path_factory):
    documents = sample(read_beir(data_dir/'bioasq_beir'/'corpus.jsonl.gz'), 1500)
    made = BooleanIndex(build_library([documents], tmp_path_factory.mktemp('bioasq')/'library'))
    return made, {d.id: [words(d.title), words(d.text)] for d in made.library}


@pytest.mark.parametrize('query', ['breast cancer AND tamoxifen', '"gene expression"[tiab:~2]', 'immunother*[tiab] NOT melanoma[tiab]',
                                   'p53 OR "tumor suppress*"[tiab]', 'NOT protein'])
def test_real_abstracts(bioasq, query):
    "The number found is the number of a full scan."
    made, texts = bioasq
    found = made.search(query, k=len(texts))
    has = {'breast cancer AND tamoxifen': lambda t: any('tamoxifen' in p
                                                        for p in t) and any(all(any(w in p for p in t) for w in ws) for ws in (('breast',
                                                            'cancer'), ('breast', 'neoplasms'))),
           '"gene expression"[tiab:~2]': lambda t: any(has_near(p, ['gene', 'expression'], 2) for p in t),
           'immunother*[tiab] NOT melanoma[tiab]': lambda t: any(has_phrase(p, ['immunother*']) for p in t) and not any('melanoma' in p
               for p in t),
           'p53 OR "tumor suppress*"[tiab]': lambda t: any('p53' in p for p in t) or any(has_phrase(p, ['tumor', 'suppress*']) for p in t),
           'NOT protein': lambda t: not any('protein' in p for p in t)}[query]
    assert found.count > 0 and set(found.ids) == {id for id, t in texts.items() if has(t)}
