"The recipes beyond their notebook: damaged keepings, interrupted stages, the real sets; and collections of one's own."
import json
import os

import pytest

from cpqa.core.errors import CpqaError
from cpqa.testing.tiny_models import tiny_bert
from cpqa.retrieval.encoders import FastEncoder
from cpqa.training import recipe, your_own
from cpqa.training.examples import Group, medquad_groups

GATHERED = recipe.GatheredExamples({'own': 1}, {'own': 1}, {}, {}, {}, {}, 0)
GROUPS = [Group('Why?', ('So.',), ('No.',))]
SHORT = dict(max_steps=2, log_every=1, save_every=1, max_tokens=32, budget=256, bf16=False, groups=3)


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> str: return str(tiny_bert(tmp_path_factory.mktemp('models')/'tiny'))


@pytest.fixture
def collection(tmp_path):
    file = tmp_path/'mine.jsonl'
    file.write_text('\n'.join(json.dumps({'query': f'what is {n} times {n}', 'positives': [f'{n * n} it is'],
                                          'negatives': [f'not {n}']}) for n in range(40)))
    return file


def test_the_shipped_recipes_can_be_written_and_read_and_their_settings_are_sound():
    for r in (recipe.BI_ENCODER, recipe.CROSS_ENCODER):
        assert recipe.Recipe.from_json(r.to_json()) == r and r.settings.dropout == 0 and r.precision == 'w8' and r.label
    assert set(recipe.MINED) < set(recipe.BI_ENCODER.sources) and recipe.CROSS_ENCODER.settings.base == recipe.MADE_BEFORE


@pytest.mark.parametrize('damage', [lambda f: (f/'groups.jsonl').unlink(), lambda f: (f/'groups.json').write_text('{'),
                                    lambda f: (f/'groups.json').write_text('{}'),
                                    lambda f: (f/'groups.jsonl').write_text(GROUPS[0].to_json()[:-3])])
def test_damaged_keepings_are_made_again(tmp_path, damage):
    made = []
    make = lambda: made.append(1) or (GROUPS, GATHERED)
    for _ in range(2): assert recipe.kept_groups(tmp_path, 'a', make) == (GROUPS, GATHERED)
    assert len(made) == 1
    damage(tmp_path)
    assert recipe.kept_groups(tmp_path, 'a', make) == (GROUPS, GATHERED) and len(made) == 2


def test_the_data_is_known_by_names_and_contents(tmp_path):
    (tmp_path/'pubmedqa').mkdir()
    (tmp_path/'pubmedqa'/'a').write_text('1')
    first = recipe.data_digest(tmp_path)
    (tmp_path/'other').mkdir()
    (tmp_path/'other'/'a').write_text('1')
    assert recipe.data_digest(tmp_path) == first
    (tmp_path/'pubmedqa'/'a').write_text('2')
    assert recipe.data_digest(tmp_path) != first


def test_time_is_added_up_where_a_stage_fails_too(tmp_path):
    with pytest.raises(KeyError), recipe.timed(tmp_path/'work', 'one'): raise KeyError
    with recipe.timed(tmp_path/'work', 'two'): pass
    assert set(json.loads((tmp_path/'work'/'seconds.json').read_text())) == {'one', 'two'}


def test_medquad_is_drawn_and_the_rest_stays_in_order(data_dir):
    if not (data_dir/'medquad').is_dir(): pytest.skip('needs medquad')
    groups = list(medquad_groups(data_dir/'medquad'))
    some = recipe.drawn([*groups, *GROUPS], ('own', 'medquad'), recipe.BI_ENCODER.most)
    assert some[0] == GROUPS[0] and len(some) == 1 + recipe.BI_ENCODER.most['medquad'] and set(some[1:]) < set(groups)
    assert some == recipe.drawn([*groups, *GROUPS], ('own', 'medquad'), recipe.BI_ENCODER.most) and some[1:] != groups[:len(some) - 1]


# ---- collections of one's own

def test_queries_alike_and_sharing_a_key_do_not_meet():
    groups = [Group(f'what is the number {n} made of', (f'a{n}', f'b{n}'), (), 'own', f'k{n // 2}') for n in range(80)]
    train, held, alike = your_own.hold_out(groups)
    assert not {g.key for g in train} & {g.key for g in held} and len({g.key for g in held}) == your_own.LEAST_HELD
    assert len(train) + len(held) + alike == 80


def test_who_is_put_aside_stays_so_in_a_larger_collection():
    groups = [Group(f'{n} {n + 1} {n + 2}', (f'a{n}',)) for n in range(0, 3000, 3)]
    small, large = your_own.hold_out(groups[:500])[1], your_own.hold_out(groups)[1]
    assert {g.query for g in small} <= {g.query for g in large} and 70 < len(large) < 130


def test_lists_hold_no_right_answer_as_a_wrong_one():
    groups = [Group('same', ('a',), (), 'own', '1'), Group('same', ('b',), (), 'own', '2'),
              *(Group(str(n), (f't{n}',), (), 'own', str(n)) for n in range(9, 40))]
    for g in your_own.filled(groups[:2], groups): assert len(g.negatives) == 20 and not {'a', 'b'} & set(g.negatives)


def test_a_bi_encoder_of_ones_own_with_documents(tmp_path, tiny, collection):
    documents = tmp_path/'more.jsonl'
    documents.write_text('\n'.join(json.dumps({'_id': str(n), 'title': '', 'text': f'times {n} and {n + 1}'}) for n in range(60)))
    made, = your_own.train_own(collection, tmp_path/'out', ['bi-encoder'], [documents], tiny, SHORT, licence='CC0')
    card = FastEncoder(made.folder).card
    assert card.about.data[0].licence == 'CC0' and card.about.data[
        0].n == made.queries and card.about.figures == made.figures and card.precision == 'w8'
    assert all(f.low <= f.value <= f.high and f.n == made.held for f in made.figures) and made.queries + made.held + made.alike == 40


def test_bad_lines_are_named_and_may_be_skipped(tmp_path, tiny, collection):
    with collection.open('a') as f: f.write('\n{"query": "x"}\nnonsense')
    with pytest.raises(CpqaError, match='2 faults beside 40 groups'):
        your_own.train_own(collection, tmp_path/'out', ['bi-encoder'], base=tiny, knobs=SHORT)
    assert not os.path.exists(tmp_path/'out')
    made, = your_own.train_own(collection, tmp_path/'out', ['bi-encoder'], base=tiny, knobs=SHORT, skip=True)
    assert len(made.faults) == 2 and '2 bad lines' in FastEncoder(made.folder).card.about.left_out


def test_a_run_that_was_stopped_goes_on(tmp_path, tiny, collection):
    class Stop(Exception): pass

    def stop(stage, done, total):
        if stage == 'training' and done == 2: raise Stop
    settings = SHORT | {'max_steps': 4}
    with pytest.raises(Stop): your_own.train_own(collection, tmp_path/'out', ['bi-encoder'], base=tiny, knobs=settings, progress=stop)
    seen = []
    made, = your_own.train_own(collection, tmp_path/'out', ['bi-encoder'], base=tiny, knobs=settings, progress=lambda stage, done,
                               total: seen.append((stage, done)))
    assert made.trained.steps == 4 and ('training', 1) not in seen
