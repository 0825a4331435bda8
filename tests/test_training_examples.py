"""Examples to train on: what the real sets give, that nothing of a test is among them, and collections of one's own with every kind of
bad line."""
import gzip
import json
from collections import Counter

import numpy as np
import pytest
from conftest import cases, sample
from hypothesis import example, given
from hypothesis import strategies as st

import cpqa.training.examples as ex
import cpqa.training.held_out as ho   # not its names: pytest would take `test_questions` for a test
from cpqa.core.errors import CpqaError
from cpqa.core.records import Document
from cpqa.evaluation.collections import read_collection, read_marked
from cpqa.evaluation.datasets import load
from cpqa.evaluation.pairs import snippet_pairs
from cpqa.evaluation.passages import part_of
from cpqa.passages.segmenters import SentenceSplitter
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder

SIZES = {'bioasq': 1497, 'evidence-inference': 399, 'medquad': 11662, 'pubmedqa': 500, 'titles': 1773}   # groups read
TESTS = {'bioasq': 486, 'mirage-mmlu': 1089, 'mirage-medqa': 1273, 'mirage-medmcqa': 4183, 'mirage-pubmedqa': 500, 'mirage-bioasq': 123,
         'pubmedqa': 500,
         'evidence-inference': 529, 'medquad': 3264}
HELD = {'titles: its question or document is reserved': 353, 'pubmedqa: it holds a text of a reserved document': 1}
LEAKS = {'bioasq': 2, 'medquad': 1264}   # by words alone

FOLDERS = ('bioasq_beir', 'evidence_inference', 'medquad', 'pubmedqa', 'mirage')


@pytest.fixture(scope='module')
def data(data_dir):
    if missing := [f for f in FOLDERS if not (data_dir/f).is_dir()]: pytest.skip(f'needs {", ".join(missing)}')
    return data_dir


@pytest.fixture(scope='module')
def faults() -> list[str]: return []


@pytest.fixture(scope='module')
def groups(data, faults): return {source: list(reader(data/folder, faults=faults)) for source, (folder, reader) in ho.GROUP_READERS.items()}


@pytest.fixture(scope='module')
def medquad(data): return load('medquad', data/'medquad')


@pytest.fixture(scope='module')
def reserved(data): return ho.reserved(data)


@pytest.fixture(scope='module')
def tests(data): return ho.test_questions(data)


def words(text: str) -> set[str]: return set(ho._words(text))


# ---- the real sets

def test_the_sets_give_so_many_groups(groups):
    assert {source: len(found) for source, found in groups.items()} == SIZES
    assert all(g.source == source and g.key for source, found in groups.items() for g in found)


def test_bioasq_has_gold_documents_and_about_half_of_the_snippets(data, groups):
    c, round_of = read_collection(data/'bioasq_beir'), {p.question_id: p.round for p in snippet_pairs(data/'bioasq_beir')}
    assert Counter(round_of[g.key] for g in groups['bioasq']) == {7: 500, 8: 500, 9: 497}
    texts = {d.id: ex.embedded_text(d.title, d.text) for d in c.documents()}
    for g in groups['bioasq']: assert {texts[d] for d, grade in c.qrels[g.key].items() if grade > 0} <= set(g.positives) and not g.negatives
    n = [sum(len(g.positives) for g in ex.bioasq_groups(data/'bioasq_beir', share=share)) for share in (0, 0.5, 1)]
    assert n[0] < n[1] < n[2] and 0.45 < (n[1] - n[0]) / (n[2] - n[0]) < 0.55
    assert groups['bioasq'] == list(ex.bioasq_groups(data/'bioasq_beir'))   # the same ones each time


def test_evidence_is_of_the_dev_half_and_no_negative_touches_a_mark(data, groups):
    m = read_marked(data/'evidence_inference')
    asked = {(q.question, q.gold_pmids[0]): m.spans[q.id] for q in m.questions}
    assert {part_of(g.key) for g in groups['evidence-inference']} == {'dev'}
    for g in groups['evidence-inference'][::8]:
        article = m.articles[g.key]
        passages = {ex.embedded_text(p.title, p.text): p for p in SentenceSplitter(128, 32).split(article)}
        spans = [s for (question, key), found in asked.items() if (question, key) == (g.query, g.key) for s in found]
        for n in g.negatives: assert not any(passages[n].start < end and start < passages[n].end for start, end in spans)
        for p in g.positives: assert ex.covers(passages[p], spans)
        near = {n: len(words(n) & words(g.query)) for n in passages if n not in g.positives}
        assert not g.negatives or np.mean([near[n] for n in g.negatives[:8]]) >= np.mean(list(near.values()))   # nearest in words first


def test_medquad_keeps_a_fifth_of_its_topics(data, groups, medquad):
    topics = {ex.topic_of(q) for q in medquad}
    held = {t for t in topics if ex.medquad_held(t)}
    assert 0.18 < len(held) / len(topics) < 0.22
    kept, out = groups['medquad'], list(ex.medquad_groups(data/'medquad', held=True))
    assert not {g.key for g in kept} & held and {g.key for g in out} <= held
    assert len({ex.folded(g.query) for g in kept}) == len(kept)   # a question once
    assert max(len(t.split()) for g in kept for t in (*g.positives,
                                                      *g.negatives)) <= 128 and {len(g.negatives) for g in kept} <= set(range(5, 9))
    answers = {(ex.folded(q.question), ' '.join(q.answers[0].split()[:128])) for q in medquad if ex.topic_of(q) not in held}
    texts = {t for _, t in answers}
    for g in kept:
        query = ex.folded(g.query)
        assert all((query, t) in answers for t in g.positives) and not [t for t in g.negatives if t not in texts or (query, t) in answers]


def test_pubmedqa_is_the_half_that_is_no_test(data, groups):
    truth = json.loads((data/'pubmedqa'/'test_ground_truth.json').read_text())
    assert len(groups['pubmedqa']) == 500 and not {g.key for g in groups['pubmedqa']} & set(truth)


def test_faults_are_told(groups, faults):
    assert sum(f.partition('/')[0].endswith('_QA') for f in faults) == 11 and faults[
        -1] == '14,523 of 16,296 documents have no title of 3 words, or no text' and len(faults) == 12


# ---- what is held out

def test_documents_of_tests_alone_are_reserved(data, reserved):
    gold = Counter(why for why in reserved.documents.values())   # of the test half of Evidence Inference, PubMedQA, BioASQ's round 10
    assert sorted(gold.values()) == [198, 500, 3186] and (len(reserved.questions), len(reserved.pmids)) == (486, 500)


def test_the_rules_hold_in_what_is_kept(data, groups, medquad, reserved):
    kept, reasons = ho.without_held_out([g for found in groups.values() for g in found], reserved)
    assert len(kept) + sum(reasons.values()) == sum(map(len, groups.values()))
    assert reasons == HELD   # an abstract of PubMedQA, not of its test, is gold in round 10
    corpus = {d.id: d for d in read_collection(data/'bioasq_beir').documents()}
    texts = {t for g in kept for t in (g.query, *g.positives, *g.negatives)} - {''}
    for id in reserved.documents:   # looked up in another way than the module does it
        if id in corpus: assert not {corpus[id].text, ex.embedded_text(corpus[id].title, corpus[id].text)} & texts
    dev = list(ex.bioasq_groups(data/'bioasq_beir', rounds=[10]))
    assert len(dev) == 486 and ho.without_held_out(dev, reserved)[0] == []
    assert ho.without_held_out((ex.Group(q, ('x',), (), 'medquad', q) for q in map(ex.topic_of, medquad)),
                               reserved)[1].keys() == {'medquad: its topic is held out'}


def test_a_mined_negative_of_round_10_is_found(data, groups, reserved):
    id = next(id for id in reserved.documents)
    document = next(d for d in read_collection(data/'bioasq_beir').documents() if d.id == id)
    g = groups['bioasq'][0]
    for text in (document.text, ex.embedded_text(document.title, document.text), ex.pair_read(document.title, document.text)):
        assert ho.held_out(ex.Group(g.query, g.positives, (text,), 'bioasq', g.key), reserved).endswith('a text of a reserved document')
    assert ho.held_out(g, reserved) == ''


# ---- leaks

def test_the_tests_that_are_there(tests):
    assert {name: len(found) for name, found in tests.items()} == TESTS


def test_no_question_of_a_test_is_left_in_training(groups, tests, reserved):
    kept, _ = ho.without_held_out([g for found in groups.values() for g in found], reserved)
    clean, leaks = ho.without_leaks(kept, tests)
    assert Counter(g.source for g in kept) - Counter(g.source for g in clean) == LEAKS
    asked = {ex.folded(q) for found in tests.values() for q in found}
    assert not [g for g in clean if ex.folded(g.query) in asked] and [g for g in kept if ex.folded(g.query) in asked]
    assert all(leak.share >= 0.8 and leak.by == 'words' for leak in leaks)
    some = [g.query for g in clean if g.source in ('bioasq', 'pubmedqa')]
    bags = [(len(w), w) for q in tests['bioasq'] + tests['pubmedqa'] if (w := words(q))]
    for q in some[::7]: assert max(len(w & words(q)) / len(w | words(q)) for _, w in bags) < 0.8   # all with all
    some = sample(clean, 2000)
    assert ho.without_leaks(some, tests) == (some, [])


@pytest.mark.nightly
def test_paraphrases_are_found_by_vectors(groups, tests):
    by_words, by_both = (ho.without_leaks(groups['bioasq'][::3], {'bioasq': tests['bioasq']},
                                          e) for e in (None, EmbeddedEncoder(model=MINILM)))
    assert {g.key for g in by_both[0]} < {g.key for g in by_words[0]}
    assert {leak.by for leak in by_both[1]} >= {'vectors'} and all(leak.share >= 0.8 for leak in by_both[1])


# ---- near duplicates against all pairs

TEXT = st.lists(st.sampled_from('aa bb cc dd ee ff gg'.split()), max_size=7).map(' '.join)


@given(st.lists(TEXT, max_size=8), st.lists(TEXT, max_size=8), st.floats(0.05, 1))
@example(['aa bb cc dd ee'], ['aa bb cc dd'], 0.8)
@example(['aa bb cc'], ['cc'], 1 / 3)
@example(['', 'AA'], ['', 'aa aa'], 1)
def test_no_pair_is_missed(queries, others, share):
    naive = {(i, j): ho.jaccard(a, b) for i, a in enumerate(queries) for j, b in enumerate(others) if ho.jaccard(a, b) >= share - 1e-9}
    found = ho.near_duplicates(queries, others, share)
    assert {(i, j): s for i, j, s in found} == naive and len(found) == len(naive)
    assert found == sorted(found, key=lambda f: (f[0], -f[2], f[1]))


class Letters:
    "Counts letters, so that anagrams have one vector."
    dim = 26

    def encode(self, texts, kind='document'):
        counts = np.array([[t.lower().count(chr(97 + i)) for i in range(26)] for t in texts], dtype=np.float32).reshape(-1, 26)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)

    def describe(self): return {'model': 'letters'}


def test_vectors_compare_all_with_all_in_blocks():
    queries, others = ['listen now'] + [f'filler {c * 9}' for c in 'abcdefghij'] * 300, ['now silent', 'zzz']
    found = ho.near_duplicates(queries, others, 0.99, Letters())
    assert [(i, j) for i, j, _ in found] == [(0, 0)] and ho.near_duplicates([], others, 0.9, Letters()) == ho.near_duplicates(queries, [],
        0.9, Letters()) == []
    groups = [ex.Group(q, ('yes',)) for q in ('listen now', 'sleep well')]
    kept, leaks = ho.without_leaks(groups, {'one': ['now silent'], 'two': ['silent now', 'listen now'], 'three': ['xyz']}, Letters())
    assert [g.query for g in kept] == ['sleep well']
    assert [(leak.test, leak.by, leak.other) for leak in leaks] == [('two', 'words', 'listen now'), ('one', 'vectors', 'now silent'),
                                                                    ('two', 'vectors', 'silent now')]


def test_a_toy_training_set_is_kept_apart(tmp_path):
    (tmp_path/'medquad'/'1_Toy_QA').mkdir(parents=True)
    stems = {held: next(f'{n:07d}' for n in range(99) if ex.medquad_held(f'1_Toy_QA/{n:07d}') == held) for held in (True, False)}
    for held, stem in stems.items():
        (tmp_path/'medquad'/'1_Toy_QA'/f'{stem}.xml').write_text(
            f'<Document><QAPair><Question qid="{stem}-1">What is gout ?</Question><Answer>Pain in a toe, '
            f'{held}.</Answer></QAPair></Document>')
    found = ho.training_groups(tmp_path)   # the same question in a topic that is held out
    assert (found.read, found.groups, [(leak.source, leak.test, leak.share) for leak in found.leaks]) == ({'medquad': 1}, (),
        [('medquad', 'medquad', 1.0)])
    with pytest.raises(CpqaError, match='holds no test set'): ho.training_groups(tmp_path/'elsewhere')


# ---- one's own

GOOD = '{"query": "Is ice cold?", "positives": ["Ice is cold."]}'


@cases('line, why', [
    ('{"query": "Why?"}', 'missing required field `positives`'), ('{"query": "Why?", "positives": "So."}', 'Expected `array`'),
    ('{"query": "Why?", "positives": []}', 'at least one positive'),
    ('{"query": " ", "positives": ["a"]}', 'a query that is not empty'),
    ('{"query": "Why?", "positives": ["a", " "]}', 'one of the texts is empty'),
    ('{"query": "Why?", "positives": ["a"], "negatives": ["a"]}', 'positive and negative at once'),
    ('{"query": "Why?", "positives": ["a"], "negative": ["b"]}', 'unknown field `negative`'),
    ('["Why?"]', 'Expected `object`'), ('not JSON', 'malformed'), ('{"query": "Why?", "positives": ["a"]', 'truncated')])
def test_a_bad_line_is_named(tmp_path, line, why):
    path = tmp_path/'mine.jsonl'
    path.write_text(f'{GOOD}\n\n{line}\n{GOOD}\n')
    with pytest.raises(ex.ExamplesError) as e: ex.own_groups(path)
    assert 'mine.jsonl: 1 faults beside 2 groups' in str(e.value) and 'mine.jsonl:3: ' in str(e.value) and why in str(e.value)
    faults = []
    assert len(ex.own_groups(path, faults=faults)) == 2 and len(faults) == 1 and faults[0].startswith('mine.jsonl:3: ')
    path.write_text(line)
    with pytest.raises(ex.ExamplesError, match='beside 0 groups'): ex.own_groups(path, faults=[])


def test_many_bad_lines_are_counted_and_three_are_named(tmp_path):
    (tmp_path/'mine.jsonl').write_text('\n'.join([GOOD, *['{}'] * 7]))
    with pytest.raises(ex.ExamplesError, match='7 faults beside 1 groups') as e: ex.own_groups(tmp_path/'mine.jsonl')
    assert str(e.value).count('mine.jsonl:') == 4 and '\n' not in str(e.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(CpqaError, match='is not there'): ex.own_groups(tmp_path/'nothing.jsonl')
    (tmp_path/'empty.jsonl').write_text('\n')
    with pytest.raises(CpqaError, match='is empty'): ex.own_groups(tmp_path/'empty.jsonl')
    with pytest.raises(CpqaError, match='holds no corpus.jsonl'): ex.own_groups(tmp_path)


def test_what_to_json_writes_is_read_again_packed_too(tmp_path):
    groups = [ex.Group('Is ice cold?', ('It is.', 'Yes – “cold”.'), ('No.',), 'medquad', 'topic'), ex.Group('Why?', ('So.',), key='k')]
    (tmp_path/'mine.jsonl.gz').write_bytes(gzip.compress('\n'.join(g.to_json() for g in groups).encode()))
    assert ex.own_groups(tmp_path/'mine.jsonl.gz') == groups


def beir(folder, **splits):
    (folder/'qrels').mkdir()
    (folder/'corpus.jsonl').write_text('\n'.join(json.dumps({'_id': f'd{i}', 'title': f'T{i}', 'text': f'text {i}'}) for i in range(4)))
    (folder/'queries.jsonl').write_text('\n'.join(json.dumps({'_id': f'q{i}', 'text': f'query {i}'}) for i in range(4)))
    for name, rows in splits.items():
        (folder/'qrels'/f'{name}.tsv').write_text('query-id\tcorpus-id\tscore\n' + ''.join(f'{q}\t{d}\t{s}\n' for q, d, s in rows))


def test_a_folder_gives_judged_texts_and_trains_on_train(tmp_path):
    beir(tmp_path, train=[('q0', 'd0', 2), ('q0', 'd1', 0), ('q1', 'd2', 1)], test=[('q2', 'd3', 1)])
    found = ex.own_groups(tmp_path)
    assert [(g.key, g.positives, g.negatives) for g in found] == [('q0', ('T0 text 0',), ('T1 text 1',)), ('q1', ('T2 text 2',), ())]
    assert [g.positives for g in ex.own_groups(tmp_path, 'test', read=ex.pair_read)] == [('T3. text 3',)]


def test_a_folder_without_train_asks_which_split(tmp_path):
    beir(tmp_path, dev=[('q0', 'd0', 1)], test=[('q2', 'd3', 1)])
    with pytest.raises(CpqaError, match="no file with qrels of the split 'train': in its folder qrels there is dev.tsv, test.tsv"):
        ex.own_groups(tmp_path)
    (tmp_path/'qrels'/'test.tsv').unlink()
    assert [g.key for g in ex.own_groups(tmp_path)] == ['q0']


def test_a_query_without_an_answer_is_a_fault_of_a_folder(tmp_path):
    beir(tmp_path, train=[('q0', 'd0', 1), ('q1', 'd1', 0), ('q2', 'd9', 1)])
    # d9 is not there, q1 and q2 have no answer
    with pytest.raises(ex.ExamplesError, match='3 faults beside 1 groups'): ex.own_groups(tmp_path)
    faults = []
    assert [g.key for g in ex.own_groups(tmp_path, faults=faults)] == ['q0'] and len(faults) == 3


def test_titles_that_ask_nothing_are_counted():
    faults = []
    documents = [Document('1', '[Aspirin against polyps].', 'It helps.'), Document('2', 'Editorial', 'We think.'),
                 Document('3', 'A title without text'), Document('4', '', 'x')]
    assert [(g.query, g.positives, g.key) for g in ex.title_groups(documents,
                                                                   faults=faults)] == [('Aspirin against polyps', ('It helps.',), '1')]
    assert faults == ['3 of 4 documents have no title of 3 words, or no text']
