"A name is found in each form that people write, and its neighbours are not; a word in both spellings."
import json
from pathlib import Path

import pytest

from cpqa.core.records import Document
from cpqa.literature.library import build_library
from cpqa.retrieval.term_search import TermRetriever

ROWS = [json.loads(line) for line in (Path(__file__).parent / 'name_forms.jsonl').read_text(encoding='utf-8').splitlines()]


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    "For each row, the ordered pairs of forms, which other forms and which near names each form finds, in a library of nothing else."
    folder = tmp_path_factory.mktemp('terms')
    made = [Document(f'{i}-{what}-{j}', text=f'We looked at {w} in this group.') for i, r in enumerate(ROWS) for what in ('forms', 'near')
            for j, w in enumerate(r[what])]
    (folder / 'made.jsonl').write_text('\n'.join(json.dumps({'_id': d.id, 'title': '', 'text': d.text}) for d in made), encoding='utf-8')
    library = build_library([folder / 'made.jsonl'], folder / 'library')
    asked = [(i, j, w) for i, r in enumerate(ROWS) for j, w in enumerate(r['forms'])]
    hits = TermRetriever(library).search([w for *_, w in asked], len(made))
    return {(i, j): {h.id: h.score for h in some} for (i, j, _), some in zip(asked, hits)}


def shares(found, kind: str) -> tuple[float, float]:
    "Of the ordered pairs of forms, those found before every near name; of the near names, those found at all."
    first, near = list[bool](), list[bool]()
    for i, r in enumerate(ROWS):
        if r['kind'] != kind: continue
        for j in range(len(r['forms'])):
            scores = [found[i, j].get(f'{i}-near-{k}', 0.0) for k in range(len(r['near']))]
            near += [s > 0 for s in scores]
            first += [found[i, j].get(f'{i}-forms-{k}', 0.0) > max(scores, default=0.0) for k in range(len(r['forms'])) if k != j]
    return sum(first) / len(first), sum(near) / max(1, len(near))


def test_the_table_is_wide():
    names = [r for r in ROWS if r['kind'] == 'name']
    assert len(names) >= 40 and all(len(set(r['forms'])) == len(r['forms']) >= 3 and r['near'] for r in names)
    assert not [r for r in names if {f.lower() for f in r['forms']} & {f.lower() for f in r['near']}]


def test_names_are_found_in_their_forms_and_neighbours_are_not(found):
    first, near = shares(found, 'name')
    assert first >= 0.9 and near <= 0.2


def test_words_are_found_in_both_spellings(found): assert shares(found, 'spelling')[0] >= 0.95


@pytest.mark.parametrize('asked,wanted,near', [('IL-2', 'IL2', 'IL-12'), ('il2', 'IL-2', 'IL-12'), ('BRCA1', 'BRCA-1', 'BRCA2'),
                                               ('TNFα', 'TNF-alpha', 'TNF-beta'), ('PDL1', 'PD-L1', 'PD-L2'), ('5FU', '5-FU', '5-HT')])
def test_a_form_finds_another_and_no_neighbour(found, asked, wanted, near):
    i, j = next((i, r['forms'].index(asked)) for i, r in enumerate(ROWS) if asked in r['forms'] and wanted in r['forms'])
    r = ROWS[i]
    assert f"{i}-forms-{r['forms'].index(wanted)}" in found[i, j] and f"{i}-near-{r['near'].index(near)}" not in found[i, j]
