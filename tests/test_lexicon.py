"""The lexicon that comes in the package, held against MeSH and the Disease Ontology, and the finding of its terms in texts."""
import json
import re

from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.literature.cancer_lexicon import LEXICON_FILE, TRAPS, Lexicon, cancer_descriptors, number_forms, spelled, words
from cpqa.literature.mesh import MeshTree, read_mesh

LEXICON = Lexicon.load()
SHIPPED = cancer_descriptors()


# ---- real files

def test_table_of_c04(data_dir):
    tree = MeshTree(read_mesh(data_dir/'mesh'/'mesh_c04_neoplasms.csv'))
    assert not tree.skipped and len(tree.explode('C04')) == len(tree) == len(SHIPPED)
    assert {d.ui: (d.name, d.tree_numbers) for d in SHIPPED} == {u: (d.name, d.tree_numbers) for u, d in tree.by_ui.items()}
    assert {'Breast Neoplasms, Male', 'Triple Negative Breast Neoplasms'} < {d.name for d in tree.explode('Breast Neoplasms')}


def test_disease_ontology(data_dir):
    "Of the names and exact synonyms of the Disease Ontology's cancers, how many does our lexicon see?"
    tree = MeshTree(read_mesh(data_dir/'mesh'/'DO_cancer_slim.obo'))
    names = [n for d in tree.by_ui.values() for n in (d.name, *d.terms)]
    assert len(tree) == 729 and len(tree.skipped) == 1 and len(names) > 1900
    share = lambda seen: sum(map(bool, map(seen, names))) / len(names)
    whole = lambda n: any((m.start, m.end) == (0, len(n)) for m in LEXICON.find(n, traps=False))
    assert share(lambda n: LEXICON.find(n)) > .95 and share(whole) > .35
    same = [(d.xrefs[0], m.ui) for d in tree.by_ui.values() if len(d.xrefs) == 1 and d.xrefs[0] in LEXICON.descriptors
            for m in LEXICON.find(d.name, traps=False) if (m.start, m.end) == (0, len(d.name))]
    assert len(same) > 100 and sum(a == b for a, b in same) / len(same) > .9


# ---- the lexicon in the package

def test_lexicon_file_is_in_order():
    lines = LEXICON_FILE.read_text('utf-8').splitlines()
    rows = [json.loads(line) for line in lines]
    assert LEXICON_FILE.stat().st_size < 300_000 and len(rows) == 701
    assert [r['ui'] for r in rows] == sorted({r['ui'] for r in rows})
    for line, r in zip(lines, rows):
        assert line == json.dumps(r, ensure_ascii=False) and list(r) in (['ui', 'name', 'tree_numbers', 'terms'],
            ['ui', 'name', 'tree_numbers', 'terms', 'sites'])
        assert r['tree_numbers'] and all(re.fullmatch(r'C04(\.\d{3})*', t) for t in r['tree_numbers'])
        assert r['terms'] == sorted(dict.fromkeys(r['terms']), key=lambda s: (s.lower(), s))
        for word in [w for t in (*r['terms'], *r.get('sites', ())) for w in re.split('[ -]', t)]:
            assert word == word.lower() or sum(map(str.isupper, word)) > 1 or re.fullmatch('[A-Z]|[0-9][A-Z]|[IVX]+', word), word


def test_no_term_has_two_owners():
    owners = {}
    for d in SHIPPED:
        for t in d.terms: owners.setdefault(tuple(w if w != w.lower() else spelled(w) for w, *_ in words(t)), set()).add(d.ui)
    assert not {t: u for t, u in owners.items() if len(u) > 1}
    sites = [s for d in SHIPPED for s in d.sites]
    assert len(sites) == len(set(sites))


def test_only_words_for_growths():
    for word in ('mass', 'lump', 'lesion', 'growth', 'mole', 'moles', 'benign', 'stage', 'grade', 'polyp', 'wart', 'oncology',
                 'chemotherapy',
                 'radiotherapy', 'tamoxifen', 'biopsy', 'all', 'aml', 'men', 'antitumor', 'anticancer', 'sarcomere', 'carcinoembryonic',
                 'cancerogram'):
        assert not LEXICON.find(f'the {word} is', traps=False), word


def test_traps_name_what_exists():
    assert all(a in LEXICON.terms for t in TRAPS for a in t.alone)
    for u in [u for t in TRAPS for u in t.under]: assert u in LEXICON.descriptors or any(u in d.tree_numbers for d in SHIPPED), u
    assert len({t.name for t in TRAPS}) == len(TRAPS) and all(t.why for t in TRAPS)
    assert all(LEXICON.held_back(p) or p.startswith(('NOT', 'AT')) for t in TRAPS for p in t.phrases)
    assert not any(LEXICON.find(p) for t in TRAPS for p in t.phrases)


# ---- finding

GIBBERISH = st.lists(st.text('bdfkqvwxz', min_size=3, max_size=8), max_size=4).map(' '.join)
MARKS = st.sampled_from(['', ',', '.', '?', ';', ':', ')', '"', '”', '!', '...'])
TERMS = st.sampled_from(sorted(LEXICON.terms))


@given(TERMS, GIBBERISH, GIBBERISH, MARKS)
def test_every_term_is_found(term, before, after, mark):
    text = f'{before} {term}{mark} {after}'
    (m,) = LEXICON.find(text, traps=False)
    assert (text[m.start:m.end], m.ui) == (term, LEXICON.terms[term])


@given(TERMS, st.sampled_from(['({})', '"{}"', '{}.', '{}, x', 'x: {};', '[{}]', "'{}'", 'post-{}', '{}-x', 'x/{}', '{}\n',
                               '\u201c{}\u201d', '…{}…', '{}’s']))
def test_punctuation_around_does_not_matter(term, frame):
    text = frame.format(term)
    found = [(m.ui, text[m.start:m.end]) for m in LEXICON.find(text, traps=False)]
    assert (LEXICON.terms[term], term) in found or any(term in t for _, t in found)


@given(TERMS)
def test_never_inside_a_word(term):
    for text in (f'xq{term}xq', f'7{term}7'):
        assert not any((m.start, m.end) == (text.index(term), text.index(term) + len(term)) for m in LEXICON.find(text, traps=False))


@given(st.lists(st.one_of(TERMS, GIBBERISH,
                          st.sampled_from(['ALL', 'tumour necrosis factor', 'cyst', "Hodgkin's", 'ØA\u0301', '\x00', '𝒜', '—', '_'])),
                          max_size=8))
def test_matches_stand_in_order_and_apart(parts):
    text = ' '.join(parts)
    for switch in (True, False):
        found = LEXICON.find(text, traps=switch)
        assert all(0 <= a.start < a.end <= b.start for a, b in zip(found, found[1:])) and all(m.end <= len(text) for m in found)
        assert all(m.ui in LEXICON.descriptors and LEXICON.terms[m.term] == m.ui for m in found)
    spans = {(m.start, m.end) for m in LEXICON.find(text)}
    assert not spans & {(m.start, m.end) for m, _ in LEXICON.held_back(text)}


@given(st.text(max_size=200))
def test_any_text_will_do(text):
    LEXICON.find(text), LEXICON.held_back(text), words(text)


@given(st.sampled_from([t for t in sorted(LEXICON.terms) if t == t.lower()]))
def test_case_and_hyphens_do_not_matter(term):
    ui = LEXICON.terms[term]
    for text in (term.upper(), term.title().replace("'S", "'s"), term.replace(' ', '-'), term.replace('-', ' '), term.replace(' ', '\n  ')):
        assert [m.ui for m in LEXICON.find(text, traps=False)] == [ui], text


def found(text: str, **switch) -> list[str]: return [text[m.start:m.end] for m in LEXICON.find(text, **switch)]


def owner(text: str) -> str:
    (m,) = LEXICON.find(text)
    assert (m.start, m.end) == (0, len(text)), (text, m)
    return LEXICON.descriptors[m.ui].name


@cases('text, name', [
    ('cancer of the breast', 'Breast Neoplasms'), ('Mammary carcinomas', 'Breast Neoplasms'), ('Carcinoma breast', 'Breast Neoplasms'),
    ('Ca cervix', 'Uterine Cervical Neoplasms'), ('bowel cancer', 'Colonic Neoplasms'), ('womb cancer', 'Uterine Neoplasms'),
    ('NSCLC', 'Carcinoma, Non-Small-Cell Lung'), ('non–small-cell lung cancers', 'Carcinoma, Non-Small-Cell Lung'),
    ("Hodgkin's disease", 'Hodgkin Disease'),
    ('Hodgkin’s lymphoma', 'Hodgkin Disease'), ('non-Hodgkin lymphomas', 'Lymphoma, Non-Hodgkin'), ('leukaemias', 'Leukemia'),
    ('leukaemic', 'Leukemia'),
    ('tumours of the oesophagus', 'Esophageal Neoplasms'), ('phaeochromocytomata', 'Pheochromocytoma'), ('naevi', 'Nevus'),
    ('Sézary syndrome', 'Sezary Syndrome'),
    ('metastases', 'Neoplasm Metastasis'), ('metastasised', 'Neoplasm Metastasis'), ('malignancies', 'Neoplasms'),
    ('neoplastic', 'Neoplasms'),
    ('chronic lymphocytic leukaemia', 'Leukemia, Lymphocytic, Chronic, B-Cell'), ('GISTs', 'Gastrointestinal Stromal Tumors'),
    ('Carcinoma, Renal Cell', 'Carcinoma, Renal Cell'), ('hydatidiform mole', 'Hydatidiform Mole'), ('uterine fibroids', 'Leiomyoma'),
    ('MALT lymphoma', 'Lymphoma, B-Cell, Marginal Zone'),
])
def test_names_that_people_use(text, name): assert owner(text) == name


@cases('text', [
    'The crab Cancer pagurus', 'Sailing below the Tropic of Cancer', 'Benign prostatic hyperplasia', 'benign paroxysmal positional vertigo',
    'benign intracranial hypertension', 'two moles of glucose', 'cystic fibrosis', 'an ovarian cyst', 'stage 3, grade 2',
    'malignant hypertension',
    'Malignant Hyperthermia', 'neuroleptic malignant syndrome', 'malignant otitis externa', 'tumour necrosis factor-alpha',
    'tumor-necrosis-factor', 'oncotic pressure',
    'a wart and a polyp', 'ALL of the following EXCEPT', 'The National Cancer Institute', 'a mass, a lump, a lesion', 'MEN and women',
    'Myasthenia gravis',
    'non-cancerous', 'spider naevi', 'a brown tumour', 'the Goldman-Hodgkin-Katz equation', 'liver disease secondary to alcohol',
    'ALL patients are seen',
    'Dupuytren contracture', 'polycystic ovary syndrome', 'metastatic calcification', 'Is ALL well in the NET?'])
def test_traps(text): assert found(text) == []


@cases('text, want', [
    ('Is ALL a leukaemia?', ['ALL', 'leukaemia']), ('AML', ['AML']), ('aml', []), ('Tumor necrosis factor in a tumor', ['tumor']),
    ('breast cancer, not cancers', ['breast cancer', 'cancers']), ('small-cell and renal cell carcinoma', ['renal cell carcinoma']),
    ('carcinoma. Breast', ['carcinoma']), ('CIN (cervical intraepithelial neoplasia)', ['CIN', 'cervical intraepithelial neoplasia']),
    ('malignant hypertension in malignant melanoma', ['malignant melanoma']), ('WHICH OF ALL THESE MEN HAS A CANCER?', ['CANCER']),
    ('breast/ovarian cancer', ['ovarian cancer']), ('anti-tumour', ['tumour']), ('antitumour', []),
    ('The Cancer Genome Atlas', ['Cancer'])])
def test_finds(text, want): assert found(text) == want


def test_the_plain_rule_has_no_traps():
    assert found('Tumor necrosis factor, a cyst and ALL', traps=False) == ['Tumor', 'cyst', 'ALL']
    assert [(m.term, t) for m, t in LEXICON.held_back('An ovarian cyst')] == [('ovarian cyst', 'cysts')]


def test_own_traps():
    bare = Lexicon(SHIPPED, traps=[t for t in TRAPS if t.name != 'cysts'])
    assert [m.term for m in bare.find('An ovarian cyst')] == ['ovarian cyst'] and Lexicon.load() is LEXICON
    assert Lexicon([]).find('cancer') == []


def test_number():
    assert number_forms('carcinomata') >= {'carcinoma', 'carcinomas'} and number_forms('metastasis') == {'metastasis', 'metastases'}
    assert number_forms('disease') == {'disease', 'diseases'} == number_forms('diseases') and number_forms('syndromes') == {'syndrome',
        'syndromes'}
