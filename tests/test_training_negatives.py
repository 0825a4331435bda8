"""Mining beyond its notebook: invented libraries, and the real questions of BioASQ, whose reserved documents must never come."""
import numpy as np
import pytest
from helpers import generated
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.records import Document, Hit
from cpqa.evaluation.collections import read_collection
from cpqa.literature.library import build_library
from cpqa.retrieval.term_search import TermRetriever
from cpqa.retrieval.vectors import embedded_text
from cpqa.training.examples import Group, bioasq_groups
from cpqa.training.held_out import Reserved, reserved, without_held_out
from cpqa.training.hard_negatives import Mined, bar, mine, ranked, right_texts

DOCUMENTS = {d.id: d for d in generated(60)}
TEXTS = {id: embedded_text(d.title, d.text) for id, d in DOCUMENTS.items()}


class Fixed:
    "A retriever with one ranking for all."
    def __init__(self, ids): self.ids = list(ids)
    def search(self, queries, k): return [[Hit(id, -float(n)) for n, id in enumerate(self.ids)][:k] for _ in queries]


class Judge:
    "A reranker that has a score for each text."
    def __init__(self, scores): self.scores = scores
    def score(self, query, passages): return np.array([self.scores[p.text] for p in passages], dtype=np.float32)
    def describe(self): return {'reranker': 'judge'}


ids = st.lists(st.sampled_from(sorted(DOCUMENTS)), unique=True, min_size=1)


@given(ids, ids, ids, st.integers(1, 20), st.integers(0, 5))
def test_what_is_mined_is_ranked_and_neither_right_nor_excluded(ranking, positives, excluded, depth, skip):
    group = Group('what', tuple(TEXTS[i] for i in positives), (), 'own', 'k')
    mined = mine([group], DOCUMENTS, [Fixed(ranking)], depth, skip, excluded, look=100)
    wanted = [TEXTS[i] for i in ranking if i not in positives and i not in excluded][:depth + skip]
    assert list(mined.groups[0].negatives) == wanted[skip:] and mined.counts['kept'] == len(wanted[skip:])
    assert mined.counts['skipped'] == min(skip, len(wanted)) and mined.groups[0].positives == group.positives
    assert Mined.from_json(mined.to_json()) == mined


@given(st.lists(st.floats(-9, 9, width=32), min_size=5, max_size=5), st.sampled_from(['worst', 'median', 'best']))
def test_no_negative_is_scored_above_the_bar(scores, above):
    ranking = ['0', '1', '2']
    group = Group('what', (TEXTS['3'], TEXTS['4']))
    judge = Judge({TEXTS[str(n)]: s for n, s in enumerate(scores)})
    mined = mine([group], DOCUMENTS, [Fixed(ranking)], reranker=judge, above=above)
    highest = np.float32(bar(scores[3:], above))
    assert list(mined.groups[0].negatives) == [TEXTS[i] for i in ranking if np.float32(scores[int(i)]) <= highest]
    assert mined.counts['kept'] + mined.counts.get('too good', 0) == 3


def test_own_negatives_stay_in_front_and_are_not_doubled():
    group = Group('what', (TEXTS['3'],), ('of my own', TEXTS['1']))
    assert mine([group], DOCUMENTS, [Fixed('012')]).groups[0].negatives == ('of my own', TEXTS['1'], TEXTS['0'], TEXTS['2'])


def test_a_document_is_right_for_a_snippet_of_it_for_another_form_and_for_a_sister_question():
    part = DOCUMENTS['0'].text.split(' ', 5)[5].upper()
    sentence = f'{DOCUMENTS["1"].title}. {DOCUMENTS["1"].text}'
    groups = [Group('what', (part,)), Group('WHAT', (sentence,)), Group('other', (TEXTS['2'],), key='k'),
              Group('third', (TEXTS['3'],), key='k')]
    mined = mine(groups, DOCUMENTS, [Fixed('0123')])
    assert [g.negatives for g in mined.groups] == [(TEXTS['2'], TEXTS['3'])] * 2 + [(TEXTS['0'], TEXTS['1'])] * 2
    assert mined.counts['right'] == 8 and len(right_texts(groups)[0]) == 2


def test_reserved_texts_are_left_out_under_any_id():
    copy = Document(id='copy', title='', text=f'  {DOCUMENTS["0"].text.upper()} ')
    given = Reserved(documents={'0': 'gold'}, texts=frozenset({DOCUMENTS['0'].text}))
    mined = mine([Group('what', ('that',))], {**DOCUMENTS, 'copy': copy}, [Fixed(['copy', '0', '1'])], exclude=given)
    assert mined.groups[0].negatives == (TEXTS['1'],) and mined.counts['excluded'] == 2


def test_documents_without_text_are_counted_and_twins_come_once():
    more = {'none': Document(id='none', title='A title'), 'twin': DOCUMENTS['0']}
    mined = mine([Group('what', ('that',))], DOCUMENTS | more, [Fixed(['none', '0', 'twin', '1'])])
    assert mined.groups[0].negatives == (TEXTS['0'], TEXTS['1']) and mined.counts['empty'] == 1


def test_two_searches_are_fused():
    found = [h.id for h in ranked(['what'], [Fixed('012'), Fixed('210')], 3)[0]]
    assert found == ['0', '2', '1'] and [h.id for h in ranked(['what'], [Fixed('012')], 2)[0]] == ['0', '1']


def test_nothing_of_round_10_is_mined_on_the_real_questions(data_dir, tmp_path):
    folder = data_dir/'bioasq_beir'
    if not folder.is_dir(): pytest.skip('needs bioasq_beir')
    documents = {d.id: d for d in read_collection(folder).documents()}
    library = build_library([documents.values()], tmp_path/'bioasq')
    kept_out, groups = reserved(data_dir), list(bioasq_groups(folder))[::15]
    mined = mine(groups, documents, [TermRetriever(library)], depth=30, exclude=kept_out)
    assert len(without_held_out(mined.groups, kept_out)[0]) == len(groups) > 50
    assert mined.counts['excluded'] > 0 and mined.counts['right'] > len(groups) and mined.counts['groups without a negative'] == 0
    assert all(len(g.negatives) <= 30 and not set(g.negatives) & set(g.positives) for g in mined.groups)
