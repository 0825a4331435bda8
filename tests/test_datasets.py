"""What the cells of evaluation/question_files, datasets and collections cannot show: the publishers' files, broken files, random ones,
and broken connections."""
import csv
import gzip
import hashlib
import http.server
import io
import json
import re
import shutil
import tarfile
import threading

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError
from cpqa.evaluation.collections import FINDINGS, QuestionsError, json_lines, read_bytes, read_collection, read_marked, read_qrels
from cpqa.evaluation.datasets import DATASETS, align, dataset, download, find, load
from cpqa.evaluation.question_files import csv_rows, read_mmlu, whole_json

# ---- the files as their publishers give them

SIZES = {'mmlu': 1089, 'medqa': 1273, 'medmcqa': 4183, 'pubmedqa': 500, 'pqa-l': 1000, 'bioasq': 532, 'bioasq-all': 1983,
         'evidence-inference': 928}
FIVE = ('mmlu', 'medqa', 'medmcqa', 'pubmedqa', 'bioasq')
SUBJECTS = {'anatomy': 135, 'clinical_knowledge': 265, 'college_biology': 144, 'college_medicine': 173, 'medical_genetics': 100,
            'professional_medicine': 272}


@cases('name', SIZES)
def test_sizes(data_dir, name):
    # a second folder beside it may hold later articles
    found = load(name, data_dir/'evidence_inference' if name == 'evidence-inference' else data_dir)
    assert (len(found), found.faults) == (SIZES[name], [])
    assert all(q.source == name for q in found) and all(q.gold for q in found if q.options)


@pytest.mark.parametrize('name', FIVE)
def test_any_folder_above_gives_the_same_set(data_dir, name):
    assert len({load(name, data_dir/below).checksum() for below in ('', 'mirage', 'mirage/rawdata', f'mirage/rawdata/{name}')}) == 1


@pytest.mark.parametrize('name', FIVE)
def test_recorded_answers_find_their_questions(data_dir, name):
    found = load(name, data_dir)
    for path in sorted((data_dir/'recorded_answers').glob(f'{name}.*.jsonl.gz')):
        ids = [row['id'] for _, row in json_lines(path, dict, [])]
        aligned = align(found, ids)
        assert len(ids) == dataset(name).n and len(aligned) == len(set(aligned.values())) == SIZES[name]
        if name != 'medmcqa': assert all(id == question for id, question in aligned.items())   # those of MedMCQA lost a character


def test_parts(data_dir):
    assert load('mmlu', data_dir).counts() == SUBJECTS
    rounds = {}
    for q in load('bioasq', data_dir): rounds[q.year] = rounds.get(q.year, 0) + 1
    assert rounds == {2019: 140, 2020: 152, 2021: 117, 2022: 123}


def test_pubmedqa_is_the_same_from_both_publishers(data_dir):
    mirage, own, labelled = load('pubmedqa', data_dir/'mirage'), load('pubmedqa', data_dir/'pubmedqa'), load('pqa-l', data_dir)
    assert mirage.checksum() == own.checksum() and own.faults == []
    assert all(q.id in labelled and q.written_from == q.gold_pmids == (q.id,) and q.context and q.answers for q in own)


def test_bioasq_all_agrees_with_its_beir_folder(data_dir):
    found, collection = load('bioasq-all', data_dir), read_collection(data_dir/'bioasq_beir')
    assert set(found.by_id) == set(collection.queries) and all(q.answers for q in found)
    # the corpus has only documents of which snippets give a text
    assert all(set(collection.qrels[q.id]) <= set(q.gold_pmids) for q in found)


def test_medquad(data_dir, tmp_path):
    found = load('medquad', data_dir)
    assert (len(found), len(found.counts())) == (16423, 9) and all(q.answers for q in found)
    why = [re.sub('.*: ', '', fault) for fault in found.faults]
    assert sorted(why) == ['it holds no questions'] * 6 + ['the question has no answer'] * 5
    with tarfile.open(data_dir/'medquad'/'medquad_1-9_xml.tar.gz') as tar:
        tar.extractall(tmp_path, [m for m in tar if '7_SeniorHealth' in m.name], filter='data')
    loose = load('medquad', tmp_path)
    assert loose.checksum() == found.only(q.id for q in found if q.part == '7_SeniorHealth_QA').checksum() and len(loose) == 769


def test_the_oddities_that_the_notebook_tells_of(data_dir):
    doubtful = [q for q in load('medmcqa', data_dir) if len(set(q.options.values())) < 4]
    texts = [q.question.strip().lower() for q in load('bioasq-all', data_dir)]
    assert (len(doubtful), len(texts) - len(set(texts))) == (21, 5)
    with tarfile.open(data_dir/'medquad'/'medquad_1-9_xml.tar.gz') as tar:
        pages = [(m.name.split('/')[-1][:-4], tar.extractfile(m).read()) for m in tar if m.isfile()]
    wrong = [qid for stem, page in pages for qid in re.findall(rb'qid="([^"]*)"', page) if not qid.startswith(stem.encode() + b'-')]
    odd = [page.count(b'<pair ') for _, page in pages if b'<pair ' in page]
    assert (len(wrong), len(odd), sum(odd)) == (35, 4, 16)


def test_beir(data_dir):
    collection = read_collection(data_dir/'bioasq_beir').strict()
    assert (collection.n_documents, len(collection.queries), sum(map(len, collection.qrels.values())),
            collection.unjudged) == (16296, 1983, 11399, 0)
    assert sum(1 for _ in collection.documents()) == 16296


def test_evidence_inference(data_dir):
    marked = read_marked(data_dir/'evidence_inference')
    assert (len(marked.articles), len(marked.questions), len(marked.spans), marked.faults) == (362, 928, 928, [])
    assert all(a.title and a.text.startswith('TITLE:') for a in marked.articles.values())
    assert {q.answers[0] for q in marked.questions} == set(FINDINGS.values())


def test_checksums_of_downloads_are_those_of_the_files(data_dir):
    for name in (*FIVE, 'pqa-l'):
        known = dict(DATASETS[name].files)
        for path in find(dataset(name), data_dir):
            hash = next(h for p, h in known.items() if p.endswith(path.name))
            assert hash == hashlib.sha256(path.read_bytes()).hexdigest()


# ---- broken files

CHOICE = {'id': 'c1', 'question': 'Which is cold?', 'opa': 'fire', 'opb': 'steam', 'opc': 'lava', 'opd': 'ice', 'cop': 4}
ABSTRACT = {'QUESTION': 'Does tea help?', 'CONTEXTS': ['We gave tea.'], 'final_decision': 'yes'}
GOLDEN = {'questions': [{'id': 'y1', 'body': 'Is ice cold?', 'type': 'yesno', 'documents': [], 'exact_answer': 'yes'}]}
ASKED = {'question': 'Which is red?', 'options': {'A': 'grass', 'B': 'blood'}, 'answer_idx': 'B'}
MARKED = {'id': 1, 'pmcid': 'PMC1', 'question': 'And pain?', 'evidence': [[0, 3]]}
GOOD = {'mmlu': ('anatomy_test.csv', 'Which beats?,heart,skin,ear,eye,A\n'), 'medqa': ('phrases_no_exclude_test.jsonl', json.dumps(ASKED)),
        'medmcqa': ('dev.json', json.dumps(CHOICE)), 'pubmedqa': ('test_set.json', json.dumps({'7': ABSTRACT})),
        'pqa-l': ('ori_pqal.json', json.dumps({'7': ABSTRACT})),
        'bioasq': ('7B1_golden.json', json.dumps(GOLDEN)), 'bioasq-all': ('7B1_golden.json', json.dumps(GOLDEN)),
        'healthsearchqa': ('healthsearchqa.csv', 'id,question\n1,Why is ice cold?\n')}


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data if isinstance(data, bytes) else data.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == '.gz' else data)
    return path


@cases('name', GOOD)
def test_a_small_file_is_read_packed_or_not(tmp_path, name):
    file, text = GOOD[name]
    plain, packed = load(name, put(tmp_path/'a'/file, text)), load(name, put(tmp_path/'b'/f'{file}.gz', '\ufeff' + text).parent)
    assert plain.checksum() == packed.checksum() and len(plain) == 1 and not [f for f in packed.faults if 'is missing' not in f]


@cases('name', GOOD)
@cases('data, why', [
    (b'', 'empty'), (b' \n ', 'empty'), (b'version https://git-lfs.github.com/spec/v1\noid sha256:0\n', 'Git LFS'),
    ('Is it?'.encode('utf-16'), 'UTF-16'),
    (b'<!DOCTYPE html><html></html>', 'web page'), (gzip.compress(b'{}', mtime=0), 'gzip under another name')])
def test_a_file_of_something_else(tmp_path, name, data, why):
    with pytest.raises(QuestionsError, match=why): load(name, put(tmp_path/GOOD[name][0], data))


@cases('name', GOOD)
def test_a_packed_file_cut_off(tmp_path, name):
    file, text = GOOD[name]
    (tmp_path/f'{file}.gz').write_bytes(gzip.compress(text.encode() * 50)[:-9])
    with pytest.raises(QuestionsError, match='cannot be read to its end'): load(name, tmp_path)


@cases('name', ['pubmedqa', 'pqa-l', 'bioasq', 'bioasq-all'])
@cases('data', ['{"7": {"QUESTION": "Wh', '[1, 2]', '"text"', '[' * 100_000, '{"7": NaN', b'{"7": "caf\xe9"}'])
def test_json_that_breaks_off(tmp_path, name, data):
    with pytest.raises(QuestionsError): load(name, put(tmp_path/GOOD[name][0], data))


@cases('name, good, bad, why', [
    ('mmlu', 'Which beats?,heart,skin,ear,eye,A', 'Which?,a,b,c,d,e', "anatomy_test.csv:2: the label 'e' is unknown"),
    ('mmlu', 'Which beats?,heart,skin,ear,eye,A', 'Which?,a,b', 'anatomy_test.csv:2: 3 columns'),
    ('mmlu', 'Which beats?,heart,skin,ear,eye,A', b'Caf\xe9?,a,b,c,d,A', 'anatomy_test.csv:2: it is not in UTF-8'),
    ('medqa', json.dumps(ASKED), b'{"question": "Caf\xe9?"}', 'test.jsonl:2: it is not in UTF-8'),
    ('medqa', json.dumps(ASKED), json.dumps(ASKED | {'answer_idx': ''}), "test.jsonl:2: the label '' is unknown"),
    ('medqa', json.dumps(ASKED), json.dumps(ASKED)[:-9], 'test.jsonl:2: Input data was truncated'),
    ('medmcqa', json.dumps(CHOICE), json.dumps(CHOICE), 'c1: a second question with this id'),
    ('medmcqa', json.dumps(CHOICE), json.dumps(CHOICE | {'cop': 5}), 'dev.json:2: the label 5 is unknown'),
    ('medmcqa', json.dumps(CHOICE), json.dumps(CHOICE | {'cop': '4'}), 'dev.json:2: Expected `int`, got `str`'),
    ('medmcqa', json.dumps(CHOICE), json.dumps({'id': 'c2'}), 'dev.json:2: Object missing required field'),
    ('healthsearchqa', 'id,question\n1,Why?', '2,', 'healthsearchqa.csv:3: there is no question'),
    ('healthsearchqa', 'id,question\n1,Why?', '2,Why?,me', 'healthsearchqa.csv:3: 3 columns, its header has 2'),
    ('healthsearchqa', 'id,question\n1,Why?', b'2,caf\xe9', 'healthsearchqa.csv:3: it is not in UTF-8')])
def test_a_bad_line_is_one_fault(tmp_path, name, good, bad, why):
    found = load(name, put(tmp_path/GOOD[name][0], good.encode() + b'\n' + (bad if isinstance(bad, bytes) else bad.encode()) + b'\n'))
    faults = [f for f in found.faults if 'is missing' not in f]
    assert len(found) == 1 and len(faults) == 1 and why in faults[0], faults
    with pytest.raises(CpqaError): found.strict()


@pytest.mark.parametrize('change, why', [
    ({'final_decision': 'often'}, "the label 'often'"), ({'final_decision': None}, "the label ''"),
    ({'CONTEXTS': 'text'}, 'Expected `array`'),
    ({'QUESTION': ''}, 'needs an id and a text'), ({'QUESTION': 'Is \ud800 it?'}, 'not in UTF-8')])
def test_a_bad_abstract_is_one_fault(tmp_path, change, why):
    found = load('pqa-l', put(tmp_path/'ori_pqal.json', json.dumps({'7': ABSTRACT, '8': ABSTRACT | change})))
    assert list(found.by_id) == ['7'] and len(found.faults) == 1 and why in found.faults[0] and '.json:8: ' in found.faults[0]


def test_pubmedqa_needs_its_ground_truth(tmp_path):
    put(tmp_path/'ori_pqal.json', json.dumps({'7': ABSTRACT, '8': ABSTRACT}))
    with pytest.raises(QuestionsError, match='test_ground_truth.json is missing'): load('pubmedqa', tmp_path)
    put(tmp_path/'test_ground_truth.json', json.dumps({'8': 'yes'}))
    assert list(load('pubmedqa', tmp_path).by_id) == ['8']
    unlabelled = {k: v for k, v in ABSTRACT.items() if k != 'final_decision'}
    put(tmp_path/'test_set.json', json.dumps({'8': unlabelled}))
    assert load('pubmedqa', tmp_path)['8'].gold == 'A'


@cases('exact, gold', [('yes', 'A'), ('Yes', 'A'), ('NO', 'B'), ('no.', 'B'), (['yes'], 'A'), ([['No']], 'B')])
def test_spellings_of_yes_and_no(tmp_path, exact, gold):
    q = GOLDEN['questions'][0] | {'exact_answer': exact,
                                  'documents': ['https://pubmed.ncbi.nlm.nih.gov/12/', 'http://www.ncbi.nlm.nih.gov/pubmed/3', 'elsewhere']}
    found = load('bioasq', put(tmp_path/'11B2_golden.json', json.dumps({'questions': [q]})))
    assert (found['y1'].gold, found['y1'].gold_pmids, found['y1'].part, found['y1'].year) == (gold, ('12', '3'), '11B2', 2023)
    assert found.faults == ["11B2_golden.json:1: the document 'elsewhere' is no link to PubMed"]


def test_bioasq_in_order_of_its_batches_and_repeated_ids(tmp_path):
    for n in (10, 9, 11):
        put(tmp_path/f'Task{n}BGoldenEnriched'/f'{n}B1_golden.json',
            json.dumps({'questions': [GOLDEN['questions'][0] | {'id': f'y{n // 10}'}]}))
    found = load('bioasq', tmp_path)
    assert [q.part for q in found] == ['9B1', '10B1'] and found.faults == ['y1: a second question with this id was left out']
    shutil.copytree(tmp_path/'Task9BGoldenEnriched', tmp_path/'copy')
    with pytest.raises(QuestionsError, match='two files that could be bioasq: .*9B1_golden.json'): load('bioasq', tmp_path)


def test_a_header_does_not_move_the_rows(tmp_path):
    found = load('mmlu', put(tmp_path/'anatomy_test.csv', 'question,A,B,C,D,answer\nWhich beats?,heart,skin,ear,eye,A\n'))
    assert list(found.by_id) == ['anatomy-000'] and 'a header' in ' '.join(found.faults)


def test_a_part_of_mmlu_that_is_missing_is_a_fault(tmp_path):
    path = put(tmp_path/'anatomy_test.csv', 'Which beats?,heart,skin,ear,eye,A\n')
    assert len(load('mmlu', tmp_path).faults) == 5 and load('mmlu', path).faults == []


def test_medmcqa_that_counts_from_zero(tmp_path):
    lines = '\n'.join(json.dumps(CHOICE | {'id': str(n), 'cop': n % 4}) for n in range(8))
    with pytest.raises(QuestionsError, match='count from 0'): load('medmcqa', put(tmp_path/'dev.json', lines))


@pytest.mark.parametrize('name, text', [('healthsearchqa.tsv', 'Question\tid\nWhy, now?\t1\n'),
                                        ('healthsearchqa.jsonl', '{"id": 1, "question": "Why, now?"}\n'),
                                        ('HealthSearchQA.txt', 'Why, now?\n'), ('healthsearchqa/all.csv', 'id,question\n1,"Why, now?"\n')])
def test_forms_of_healthsearchqa(tmp_path, name, text):
    assert [(q.id, q.question) for q in load('healthsearchqa', put(tmp_path/name, text).parents[name.count('/')])] == [('1', 'Why, now?')]


def test_a_table_without_questions(tmp_path):
    with pytest.raises(QuestionsError, match="no column 'question', but 'id', 'text'"):
        load('healthsearchqa', put(tmp_path/'healthsearchqa.csv', 'id,text\n1,Why?\n'))


PAGE = '<Document><QAPairs><QAPair><Question qid="1-1">What is ice ?</Question><Answer>Water.</Answer></QAPair></QAPairs></Document>'


def archive(path, pages):
    with tarfile.open(path, 'w:gz') as tar:
        for name, text in pages.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_an_archive_cut_off(tmp_path):
    data = archive(tmp_path/'medquad.tar.gz', {f'1_Ice_QA/{n}.xml': PAGE + ' ' * n * 997 for n in range(30)}).read_bytes()
    assert len(load('medquad', tmp_path).faults) == 0
    for cut in (10, len(data) // 2, len(data) - 12, len(data) - 1):
        (tmp_path/'medquad.tar.gz').write_bytes(data[:cut])
        with pytest.raises(QuestionsError, match='cannot be read to its end'): load('medquad', tmp_path)


def test_hostile_xml(tmp_path):
    bomb = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;"><!ENTITY c SYSTEM "file:///etc/hostname">]>' + PAGE.replace('Water.',
        '&b;&c;')
    found = load('medquad', archive(tmp_path/'medquad.tar.gz',
                                    {'1_Ice_QA/1.xml': PAGE, '../2_Tea_QA/1.xml': bomb, '2_Tea_QA/2.xml': 'none',
                                     '2_Tea_QA/._2.xml': '\0'}))
    assert list(found.by_id) == ['1_Ice_QA/1-1'] and len(found.faults) == 2 and 'declares a DTD' in found.faults[0]
    archive(tmp_path/'medquad-2.tar.gz', {})
    with pytest.raises(QuestionsError, match='could both be medquad'): load('medquad', tmp_path)


def test_names_and_places(tmp_path):
    with pytest.raises(QuestionsError, match='there is no set called .*: expected one of mmlu, medqa'): load('mmlux', tmp_path)
    with pytest.raises(QuestionsError, match='looked for anatomy_test.csv.*download'): load('MMLU', tmp_path)
    with pytest.raises(QuestionsError, match='is no folder with files'): load('medqa', tmp_path/'none')
    for folder in ('a', 'b'): put(tmp_path/folder/'dev.json', json.dumps(CHOICE))
    with pytest.raises(QuestionsError, match='two files that could be medmcqa'): load('medmcqa', tmp_path)
    put(tmp_path/'MedMCQA'/'data'/'dev.json', json.dumps(CHOICE | {'id': 'right'}))
    assert list(load('medmcqa', tmp_path).by_id) == ['right']


# ---- random files

WORDS = st.text(st.characters(exclude_categories=['Cs', 'Cc']),
                min_size=1).map(str.strip).filter(lambda t: t and not t.startswith('\ufeff'))


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS, st.sampled_from('ABCD')), min_size=1, max_size=5))
def test_mmlu_comes_back_as_it_was_written(tmp_path_factory, rows):
    path, text = tmp_path_factory.mktemp('mmlu')/'anatomy_test.csv', io.StringIO()
    csv.writer(text).writerows([('Which?' + row[0], *row[1:]) for row in rows])
    path.write_text(text.getvalue(), encoding='utf-8', newline='')
    faults = []
    assert [(q.question[6:], *q.options.values(), q.gold) for q in read_mmlu([path], faults)] == rows and faults == []


@given(st.binary(max_size=300))
def test_any_bytes_give_a_set_or_a_clear_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp('any')
    for name, (file, _) in GOOD.items():
        try: load(name, put(folder/name/file, data))
        except QuestionsError: pass


@given(st.dictionaries(st.tuples(st.from_regex('[a-z0-9]{1,4}', fullmatch=True).filter(lambda id: id != 'qid'),   # a header's name
                                 st.from_regex('[a-z0-9]{1,4}', fullmatch=True)),
                       st.integers(-1, 3), min_size=1))
def test_qrels_come_back_in_each_form(tmp_path_factory, grades):
    path = tmp_path_factory.mktemp('qrels')/'test.tsv'
    wanted = [(f'q{q}', f'd{d}', grade) for (q, d), grade in grades.items()]
    forms = (lambda q, d, g: f'{q}\t{d}\t{g}', lambda q, d, g: f'{q} 0 {d} {g}', lambda q, d, g: f'{q}\t0\t{d}\t{g}\r', lambda q, d,
             g: f'{q}\t{d}\t{g}.0')
    for form in forms:
        for header in ('query-id\tcorpus-id\tscore\n', ''):
            path.write_text(header + '\n'.join(form(*row) for row in wanted), newline='')
            faults = []
            assert [row[1:] for row in read_qrels(path, faults)] == wanted and faults == []


# ---- collections

def beir(folder, corpus, queries, qrels, split='test'):
    put(folder/'corpus.jsonl', '\n'.join(x if isinstance(x, str) else json.dumps(x) for x in corpus))
    put(folder/'queries.jsonl', '\n'.join(x if isinstance(x, str) else json.dumps(x) for x in queries))
    put(folder/'qrels'/f'{split}.tsv', qrels)
    return folder


DOCUMENTS = [{'_id': 'd1', 'title': '', 'text': 'One.', 'metadata': {'url': 'x'}}, {'_id': 'd2', 'title': 'Two', 'text': ''}]
QUERIES = [{'_id': 'q2', 'text': 'Two?', 'metadata': {}}, {'_id': 7, 'text': 'Seven?'}, {'_id': 'q1', 'text': 'One?'}]


def test_a_collection_with_each_fault(tmp_path):
    folder = beir(tmp_path, [*DOCUMENTS, DOCUMENTS[0], 'not JSON', {'_id': [3], 'text': 'x'}],
                  [*QUERIES, QUERIES[0], {'_id': 'q3', 'text': ' '}, '{"_id": "q4"}'],
                  'query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td1\t1\nq1\td9\t1\nq8\td1\t1\n7\td2\t0\nq1\td2\tx\nq1\td2\n')
    c = read_collection(folder)
    assert list(c.queries) == ['7', 'q1'] and c.qrels == {'7': {'d2': 0},
                                                          'q1': {'d1': 2, 'd9': 1}} and (c.n_documents, c.unjudged) == (2, 3)
    assert len(c.faults) == 11 and [d.id for d in c.documents()] == ['d1', 'd2', 'd1']


def test_the_checksum_of_a_collection_holds_what_a_score_depends_on(tmp_path):
    qrels = 'q1 0 d1 1\nq2 0 d2 1\n'
    plain = read_collection(beir(tmp_path/'a', DOCUMENTS, QUERIES, qrels))
    packed = read_collection(beir(tmp_path/'b', DOCUMENTS, QUERIES[::-1], 'query-id\tcorpus-id\tscore\nq2\td2\t1\nq1\td1\t1', 'dev'))
    put(tmp_path/'b'/'corpus.jsonl.gz', (tmp_path/'b'/'corpus.jsonl').read_bytes())
    with pytest.raises(QuestionsError, match='holds both corpus.jsonl and corpus.jsonl.gz'): read_collection(tmp_path/'b')
    (tmp_path/'b'/'corpus.jsonl').unlink()
    assert plain.checksum() == packed.checksum() == read_collection(tmp_path/'b').checksum() and (packed.split, plain.faults) == ('dev', [])
    others = [(DOCUMENTS[:1], QUERIES, 'q1 0 d1 1\n'), (DOCUMENTS, QUERIES, 'q1 0 d1 2\nq2 0 d2 1\n'),
              (DOCUMENTS, [{**q, 'text': 'Else?'} for q in QUERIES], qrels)]
    sums = {read_collection(beir(tmp_path/str(n), *other)).checksum() for n, other in enumerate(others)}
    assert len(sums | {plain.checksum()}) == 4


def test_splits(tmp_path):
    folder = beir(tmp_path, DOCUMENTS, QUERIES, 'q1 0 d1 1', 'train')
    assert read_collection(folder).split == 'train'
    with pytest.raises(QuestionsError, match="split 'test': in its folder qrels there is train.tsv"): read_collection(folder, 'test')
    put(folder/'qrels'/'dev.tsv', 'q2 0 d1 1')
    with pytest.raises(QuestionsError, match='dev.tsv, train.tsv'): read_collection(folder)
    assert list(read_collection(folder, 'dev').queries) == ['q2']
    put(folder/'qrels'/'none.tsv', 'q9 0 d1 1')
    with pytest.raises(QuestionsError, match='no query is judged here: none.tsv:1: the query q9'): read_collection(folder, 'none')
    shutil.rmtree(folder/'qrels')
    with pytest.raises(QuestionsError, match='there is nothing'): read_collection(folder)


def test_marked_with_each_fault(tmp_path):
    put(tmp_path/'articles.jsonl',
        '\n'.join(json.dumps(a) for a in ({'pmcid': 'PMC1', 'text': 'Pain fell.\r\n'}, {'pmcid': 'PMC1', 'text': 'x'}, {'pmcid': 'PMC2'})))
    rows = [MARKED, MARKED, MARKED | {'id': 2, 'evidence': [[3, 3], [0, 12]]}, MARKED | {'id': 3, 'evidence': [[0, 13]]},
            MARKED | {'id': 4, 'pmcid': 'PMC2'},
            MARKED | {'id': 5, 'label': 'so so'}, MARKED | {'id': 6, 'evidence': [['a', 'b']]}, MARKED | {'id': 7, 'label': None}]
    put(tmp_path/'questions.jsonl', '\n'.join(map(json.dumps, rows)))
    marked = read_marked(tmp_path)
    assert marked.spans == {'1': ((0, 3),), '2': ((0, 12),), '5': ((0, 3),),
                            '7': ((0, 3),)} and list(marked.questions.by_id) == ['1', '2', '5', '7']
    assert marked.articles['PMC1'].text == 'Pain fell.\r\n' and len(marked.faults) == 8
    assert load('evidence-inference', tmp_path).checksum() == marked.questions.checksum()
    assert load('evidence-inference', tmp_path).faults == marked.faults


def test_keys_that_stand_twice(tmp_path):
    faults = []
    assert whole_json(put(tmp_path/'a.json', '{"a": {"b": 1, "b": 2}, "a": 3}'), faults) == {'a': {'b': 1}} and len(faults) == 2


def test_a_csv_that_never_ends_its_quotation(tmp_path):
    path = put(tmp_path/'a.csv', 'a,b\n"c,d\n' + 'e,f\n' * 100_000)
    with pytest.raises(QuestionsError, match='is no CSV from line 2 on'): list(csv_rows(path))


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(QuestionsError, match='Is a directory'): read_bytes(tmp_path)


# ---- downloads

class Server(http.server.BaseHTTPRequestHandler):
    "Serves `body`, at most `limit` bytes at a time, and notes where each request starts."
    body, limit, etag, seen, status, ranges = b'', 10**9, '"1"', [], 200, True
    def do_GET(self):
        if self.status != 200: return self.send_error(self.status)
        asked = re.fullmatch('bytes=([0-9]+)-', self.headers.get('Range', ''))
        start = int(asked[1]) if asked and self.ranges and self.headers.get('If-Range', self.etag) == self.etag else 0
        self.seen.append(start)
        if start >= len(self.body): return self.send_error(416)
        self.send_response(206 if start else 200)
        if start: self.send_header('Content-Range', f'bytes {start}-{len(self.body) - 1}/{len(self.body)}')
        if self.etag: self.send_header('ETag', self.etag)
        self.send_header('Content-Length', str(len(self.body) - start))
        self.end_headers()
        self.wfile.write(self.body[start:start + self.limit])
    def log_message(self, *args): pass


@pytest.fixture
def server():
    class Own(Server): seen = []
    served = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Own)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    Own.url = f'http://127.0.0.1:{served.server_port}'
    yield Own
    served.shutdown()
    served.server_close()


@pytest.fixture
def medquad(tmp_path):
    return archive(tmp_path/'made.tar.gz',
                   {f'MedQuAD-master/1_Ice_QA/{n}.xml': PAGE + f'<!-- {hashlib.sha256(bytes([n, 7])).hexdigest()} -->'
                    for n in range(250)}).read_bytes()


def test_a_download_goes_on_where_it_broke(server, medquad, tmp_path):
    server.body, server.limit = medquad, len(medquad) // 2 + 1
    folder = download('medquad', tmp_path/'medquad', server.url)
    assert (folder/'master.tar.gz').read_bytes() == medquad and server.seen[0] == 0 and 0 < server.seen[1] <= server.limit and len(
        server.seen) <= 3
    assert len(load('medquad', folder)) == 250 and [p.name for p in folder.iterdir() if p.suffix in ('.part', '.tag')] == []
    download('medquad', folder, server.url)
    assert len(server.seen) <= 3   # nothing is fetched twice


def test_a_download_goes_on_in_another_run(server, medquad, tmp_path):
    server.body, server.limit = medquad, 1100
    with pytest.raises(QuestionsError, match='broke 5 times; [0-9,]+ bytes are kept'): download('medquad', tmp_path/'a', server.url)
    kept, server.limit = server.seen[-1], 10**9
    assert 4000 < kept + 1024 <= 5500
    download('medquad', tmp_path/'a', server.url)
    assert server.seen[-1] == kept + 1024 and (tmp_path/'a'/'master.tar.gz').read_bytes() == medquad


def test_a_file_that_changed_meanwhile_starts_again(server, medquad, tmp_path):
    server.body, server.limit = b'x' * len(medquad), 1100
    with pytest.raises(QuestionsError): download('medquad', tmp_path/'a', server.url)
    server.body, server.limit, server.etag = medquad, 10**9, '"2"'
    assert (download('medquad', tmp_path/'a', server.url)/'master.tar.gz').read_bytes() == medquad


@pytest.mark.parametrize('etag, ranges', [('', True), ('W/"1"', True), ('"1"', False)])
def test_without_a_sure_mark_or_ranges_it_starts_again(server, medquad, tmp_path, etag, ranges):
    server.body, server.limit, server.etag, server.ranges = medquad, 1100, etag, ranges
    with pytest.raises(QuestionsError): download('medquad', tmp_path/'a', server.url)
    server.limit = 10**9
    assert (download('medquad', tmp_path/'a', server.url)/'master.tar.gz').read_bytes() == medquad and set(server.seen) == {0}


def test_checksums(server, medquad, tmp_path):
    server.body = medquad
    with pytest.raises(QuestionsError, match='is not the one expected, by its SHA-256'): download('medqa', tmp_path/'medqa', server.url)
    assert not [p for p in (tmp_path/'medqa').rglob('*.jsonl*')]
    download('medquad', tmp_path/'medquad', server.url)
    (tmp_path/'medquad'/'master.tar.gz').write_bytes(b'changed')
    download('medquad', tmp_path/'medquad', server.url)
    assert (tmp_path/'medquad'/'master.tar.gz').read_bytes() == medquad
    (tmp_path/'medquad'/'master.tar.gz').unlink()
    server.body = medquad + b'more'   # not what the first download found
    with pytest.raises(QuestionsError, match='is not the one expected'): download('medquad', tmp_path/'medquad', server.url)


def test_a_kept_part_that_is_too_long_starts_again(server, medquad, tmp_path):
    server.body = medquad
    put(tmp_path/'a'/'.master.tar.gz.part', b'x' * (len(medquad) + 1))
    put(tmp_path/'a'/'.master.tar.gz.part.tag', '"1"')
    assert (download('medquad', tmp_path/'a', server.url)/'master.tar.gz').read_bytes() == medquad


def test_servers_that_refuse(server, tmp_path):
    server.status = 404
    with pytest.raises(QuestionsError, match='answers 404'): download('medquad', tmp_path/'a', server.url)
    with pytest.raises(QuestionsError, match='cannot be fetched'): download('medquad', tmp_path/'a', 'nowhere')
    with pytest.raises(QuestionsError, match='no connection'): download('medquad', tmp_path/'a', 'http://127.0.0.1:9')
    with pytest.raises(QuestionsError, match='cannot be downloaded by its name'): download('evidence-inference', tmp_path/'a')


def test_the_cache_is_where_load_looks(server, medquad, tmp_path, monkeypatch):
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path/'cache'))
    with pytest.raises(QuestionsError, match="or with download\\('medquad'\\)"): load('medquad')
    server.body = medquad
    download('medquad', base=server.url)
    assert len(load('medquad')) == 250


def test_the_real_files_from_a_mirror(data_dir, server, tmp_path):
    server.body = find(dataset('medmcqa'), data_dir)[0].read_bytes()
    assert len(load('medmcqa', download('medmcqa', tmp_path/'medmcqa', server.url))) == 4183


@pytest.mark.parametrize('lines, wanted', [
    ('query-id\tcorpus-id\tscore\titeration\nq1\td1\t2\t0\n', [('q1', 'd1', 2)]),
    ('query-id\tcorpus-id\tscore\tannotator\nq1\td1\t2\tbob\nq1\td2\t0\tbob\n', [('q1', 'd1', 2), ('q1', 'd2', 0)]),
    ('query_id\tscore\tdoc_id\nq1\t2\td1\n', [('q1', 'd1', 2)])])
def test_a_header_of_qrels_is_obeyed(tmp_path, lines, wanted):
    path, faults = tmp_path/'test.tsv', []
    path.write_text(lines)
    assert [row[1:] for row in read_qrels(path, faults)] == wanted and faults == []


@pytest.mark.parametrize('text', ['', ' ', None, 5])
def test_a_judged_query_without_text_stays(tmp_path, text):
    c = read_collection(beir(tmp_path, DOCUMENTS, [*QUERIES, {'_id': 'q9', 'text': text}], 'q1 0 d1 1\nq9 0 d2 1\n'))
    assert c.queries == {'q1': 'One?', 'q9': ''} and list(c.qrels) == ['q1', 'q9'] and len(c.faults) == 1


@pytest.mark.parametrize('label, gold', [(1, 'A'), (-1, 'B'), (0, 'C'), ('0', 'C'), (None, '')])
def test_articles_and_labels_that_are_numbers(tmp_path, label, gold):
    put(tmp_path/'articles.jsonl', json.dumps({'pmcid': 12, 'text': 'Tea helps.'}).encode())
    put(tmp_path/'questions.jsonl',
        json.dumps({'id': 1, 'pmcid': 12, 'question': 'Does it?', 'evidence': [[0, 3]], 'label': label}).encode())
    m = read_marked(tmp_path)
    assert [(q.id, q.gold, q.gold_pmids) for q in m.questions] == [('1', gold, ('12',))] and m.faults == []
