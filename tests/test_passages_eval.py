"""Passage evaluation: three invented articles and four questions that a pencil can follow, the grid against single systems, and what a
file of cells survives."""
import json
import random
from itertools import product

import numpy as np
import pytest

from conftest import cases, sample
from cpqa.core.errors import CpqaError
from cpqa.core.records import Document, Passage
from cpqa.evaluation import metrics
from cpqa.evaluation import passages as module
from cpqa.evaluation.collections import marked_sections, read_marked
from cpqa.evaluation.metrics import words_needed
from cpqa.evaluation.passages import RETRIEVERS, evaluate_passage_grid, evaluate_passages, grid_lines, names, part_of
from cpqa.evaluation.statistics import StatisticsError, bootstrap, paired_bootstrap, paired_by_group
from cpqa.evaluation.tasks import report_lines
from cpqa.passages.sentences import sentences


class Counting:
    "A model of twelve words: a text is how often it holds each. Documents that it was asked to embed are counted."
    words, dim = 'pain sleep mood drug placebo fell rose ginger weeks people group same'.split(), 12

    def __init__(self): self.documents = self.queries = 0

    def encode(self, texts, kind='document'):
        if kind == 'query': self.queries += len(texts)
        else: self.documents += len(texts)
        counts = np.array([[t.lower().count(w) for w in self.words] for t in texts], dtype=np.float32).reshape(-1, self.dim) + 0.01
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)

    def describe(self): return {'model': 'counting', 'dim': self.dim, 'max_tokens': 100}


TEXTS = {'PMC1': 'TITLE:\nGinger for pain\n\nBODY.METHODS:\nForty people took ginger for six weeks. The others took '
                 'placebo.\n\nBODY.RESULTS:\nPain fell by half in the ginger group. Sleep was the same in both.',
         'PMC2': 'TITLE:\nA drug for sleep\n\nBODY.METHODS:\nTen people were asked. Nobody paid.\n\nBODY.RESULTS:\nWith the drug sleep '
                 'rose by an hour. Mood fell a little.',
         'PMC3': 'TITLE:\nMood and placebo\n\nBODY.RESULTS:\nMood rose with placebo. Pain was not asked about.'}
ASKED = [('q1', 'PMC1', 'Does ginger change pain?', 'Pain fell by half'), ('q2', 'PMC1', 'Does ginger change sleep?', 'Sleep was the same'),
         ('q3', 'PMC2', 'What does the drug do to sleep?', 'sleep rose by an hour'),
         ('q4', 'PMC3', 'What does placebo do to mood?', 'Mood rose with placebo')]
SEGMENTERS = ['fixed:6:2', 'sentences:10:0', 'window:1']


def folder_of(folder, texts=TEXTS, asked=ASKED):
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{'id': q, 'pmcid': a, 'question': text, 'label': 'no significant difference',
             'evidence': [[texts[a].index(words), texts[a].index(words) + len(words)]]} for q, a, text, words in asked]
    for name, some in (('articles', [{'pmcid': id, 'text': t} for id, t in texts.items()]), ('questions', rows)):
        (folder/f'{name}.jsonl').write_text('\n'.join(map(json.dumps, some)) + '\n')
    return folder


@pytest.fixture(scope='module', autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('CPQA_CACHE', str(tmp_path_factory.mktemp('cache')))
        # enough for four questions
        patch.setattr(module, 'paired_by_group', lambda *a, **_: paired_by_group(*a, resamples=2_000))
        patch.setattr(metrics, 'bootstrap', lambda *a, **more: bootstrap(*a, **{'resamples': 1_000} | more))
        yield


@pytest.fixture(scope='module')
def folder(tmp_path_factory): return folder_of(tmp_path_factory.mktemp('grid')/'ginger')


@pytest.fixture(scope='module')
def whole(folder):
    "A grid of all combinations, its file, and the model that it used."
    encoder, out = Counting(), folder.parent/'cells.jsonl'
    return evaluate_passage_grid(folder, SEGMENTERS, baseline='sentences:10:0', depth=8, words=(6, 12), encoder=encoder,
                                 out=out), out, encoder


def cell(report, segmenter, retriever, reranker, scope):
    return next(r for r in report['rows'] if (r['segmenter'], r['retriever'], r['reranker'],
                                              r['scope']) == (segmenter, retriever, reranker, scope))


# ---- a grid is what single systems are

def test_a_grid_has_every_cell_once(whole):
    report, _, _ = whole
    keys = [(r['segmenter'], r['retriever'], r['reranker'], r['scope']) for r in report['rows']]
    assert keys == list(product(SEGMENTERS, RETRIEVERS, ('none', 'bm25', 'cosine'), ('article', 'global'))) and (report['n_questions'],
        report['n_articles']) == (4, 3)


@pytest.mark.parametrize('segmenter', SEGMENTERS)
def test_a_cell_is_that_system_alone(segmenter, folder, whole):
    for retriever, reranker, scope in product(RETRIEVERS, (None, 'bm25', 'cosine'), ('article', 'global')):
        alone = evaluate_passages(folder, segmenter, retriever, reranker, depth=8, scope=scope, encoder=Counting(), words=(6, 12))
        found = cell(whole[0], segmenter, retriever, reranker or 'none', scope)
        for name in ('measures', 'words_per_passage', 'words_read', 'fewer_than_k', 'chance', 'n_passages', 'passages_per_document',
                     'n_failed', 'errors'):
            assert found[name] == alone[name], (retriever, reranker, scope, name)


def test_nothing_is_embedded_twice(folder, whole):
    report, _, encoder = whole
    passages = {r['segmenter']: r['n_passages'] for r in report['rows']}
    assert encoder.queries == 4 and encoder.documents == sum(passages.values())


def test_measures_by_hand(folder):
    found = evaluate_passages(folder, 'window:0', 'bm25', scope='article', words=(30,))
    assert found['n_failed'] == 0 and found['measures']['Hits@5']['value'] == found['measures']['Hits@30words']['value'] == 1
    q3 = evaluate_passages(folder_of(folder.parent/'one', asked=ASKED[2:3]), 'window:0', 'bm25', scope='article',
                           words=(8, 9, 10))['measures']
    # The title, four short words with 'drug' and 'sleep', comes first. Then 'With the drug sleep rose by an hour.': half of the 21 marked
    # characters are read with its sixth word.
    assert [q3[f'Hits@{n}words']['value'] for n in (8, 9, 10)] == [0, 0, 1] and q3['MRR@5']['value'] == 1 / 2


def test_what_is_searched_and_what_is_read(folder):
    "A window finds a sentence and reads its neighbours: more words a passage, from the same library of sentences."
    alone, read = (evaluate_passages(folder, f'window:{n}', 'bm25', scope='article') for n in (0, 1))
    assert alone['n_passages'] == read['n_passages'] == sum(len(sentences(a)) for a in read_marked(folder).articles.values())
    assert read['words_per_passage'] > alone['words_per_passage'] and read['measures']['MRR@5']['value'] >= alone['measures']['MRR@5'][
        'value']


def test_a_question_that_fails_is_counted_in_both(tmp_path):
    blank = folder_of(tmp_path/'blank', TEXTS | {'PMC4': 'x' + ' ' * 9}, [*ASKED, ('q5', 'PMC4', 'What of this?', 'x')])
    (blank/'articles.jsonl').write_text((blank/'articles.jsonl').read_text().replace('x         ', '          '))
    grid = evaluate_passage_grid(blank, ['sentences:10:0'], ['bm25'], ['none', 'bm25'], ['article', 'global'])
    for r in grid['rows']:
        alone = evaluate_passages(blank, 'sentences:10:0', 'bm25', r['reranker'], scope=r['scope'])
        assert (r['n_failed'], r['errors'], r['measures']) == (alone['n_failed'], alone['errors'], alone['measures'])
    assert [r['n_failed'] for r in grid['rows']] == [1, 0, 1, 0] and all(r['measures']['Hits@5'] ['n'] == 5 for r in grid['rows'])


# ---- words read

def pieces(text: str, *parts: str) -> list[Passage]:
    d = Document('d', text=text)
    return [Passage.of(d, text.index(p), text.index(p) + len(p)) for p in parts]


@cases('parts, span, needed', [
    (['alpha beta', 'gamma delta'], 'gamma', 3),                    # read whole, then one word
    (['gamma delta', 'alpha beta'], 'gamma', 1),
    (['alpha beta', 'gamma delta'], 'beta gamma', 3),               # 4 of 10 characters end the first, 'gamma' makes it 9
    (['alpha beta', 'epsilon'], 'beta gamma', 0),                   # 4 of 10 are too few
    # what is found twice is read once: 'alpha', then 'beta gamma' (5 of 10 need 'gamma')
    (['alpha', 'alpha', 'beta gamma'], 'beta gamma', 3),
    (['alpha beta', 'beta gamma'], 'gamma', 4),                     # an overlap is read again
    ([], 'gamma', 0)])
def test_words_needed_by_hand(parts, span, needed):
    text = 'alpha beta gamma delta epsilon'
    start = text.index(span)
    assert words_needed(pieces(text, *parts), 'd', [(start, start + len(span))]) == needed


def test_words_needed_counts_other_documents_and_any_span():
    text = 'alpha beta gamma'
    other = Passage('e', 0, 9, 'one two 3')
    assert words_needed([other, *pieces(text, 'gamma')], 'd', [(0, 5), (11, 16)]) == 4
    assert words_needed([other], 'd', [(0, 5)]) == 0


def test_words_needed_is_what_reading_word_by_word_finds():
    r, text = random.Random(1), ' '.join('word' + 'x' * random.Random(n).randint(0, 9) for n in range(60))
    for _ in range(60):
        cuts = [sorted(r.sample(range(len(text)), 2)) for _ in range(6)]
        ranking = [Passage.of(Document('d', text=text), a, b) for a, b in cuts]
        a, b = sorted(r.sample(range(len(text)), 2))
        seen, n, expected = set(), 0, 0
        for p in dict.fromkeys(ranking):
            ends = [i for i in range(len(p.text) + 1) if i and not p.text[i - 1].isspace() and (i == len(p.text) or p.text[i].isspace())]
            for end in ends:
                n += 1
                seen |= set(range(p.start, p.start + end))
                if not expected and 2 * len(seen & set(range(a, b))) >= b - a: expected = n
            seen |= set(range(p.start, p.end))
        found = words_needed(ranking, 'd', [(a, b)])
        assert found == expected or abs(found - expected) <= 1 and text[a:b] != text[a:b].strip()   # white space at the end of a passage


# ---- paired tests

def test_paired_by_group_agrees_with_the_paired_bootstrap_and_with_sense():
    r = np.random.default_rng(0)
    a = r.normal(.3, 1, 200)
    single, found = paired_bootstrap(a, np.zeros(200)), paired_by_group({'x': (a, np.zeros(200)), 'back': (np.zeros(200), a)}, range(200),
                                                                        resamples=10_000)
    x, back = found['x'], found['back']
    assert x.difference.value == pytest.approx(single.value) and x.difference.low == pytest.approx(single.low,
        abs=.02) and x.difference.high == pytest.approx(single.high, abs=.02)
    assert (x.p < .05) == (x.difference.low > 0) and back.p == x.p and back.difference.low == pytest.approx(-x.difference.high)
    # four articles of fifty questions say less
    shared = paired_by_group({'x': (a, np.zeros(200))}, [n // 50 for n in range(200)], resamples=2_000)['x']
    assert shared.difference.n == 200 and shared.p >= 2 / 2_001


def test_groups_that_agree_within_are_fewer_than_their_questions():
    a = [1.0] * 50 + [0.0] * 50 + [1.0] * 50 + [-1.0] * 50
    alone, together = (paired_by_group({'x': (a, [0.0] * 200)}, groups)['x'] for groups in (range(200), [n // 50 for n in range(200)]))
    assert alone.p < .01 < .2 < together.p and together.difference.high - together.difference.low > 2 * (
        alone.difference.high - alone.difference.low)


def test_pairs_that_cannot_be_compared():
    with pytest.raises(StatisticsError, match='no pair'): paired_by_group({}, [1])
    with pytest.raises(StatisticsError, match='2 values and 1 groups'): paired_by_group({'x': ([1, 2], [1, 2])}, [1])
    with pytest.raises(StatisticsError, match='the first system has 1 values'): paired_by_group({'x': ([1], [1, 2])}, [1, 2])
    with pytest.raises(StatisticsError, match='finite'): paired_by_group({'x': ([1, float('nan')], [1, 2])}, [1, 2])


def test_comparisons_of_a_grid(whole):
    report, _, _ = whole
    kinds = {kind: [c for c in report['comparisons'] if c['what'] == kind] for kind in ('segmenter', 'reranker')}
    assert len(kinds['segmenter']) == 2 * 3 * 3 * 2 and len(kinds['reranker']) == 3 * 3 * 2 * 2
    assert {c['against'] for c in kinds['segmenter']} == {'sentences:10:0'} and {c['against'] for c in kinds['reranker']} == {'none'}
    for c in report['comparisons']:
        other = {'segmenter': c['segmenter'], 'retriever': c['retriever'], 'reranker': c['reranker'],
                 'scope': c['scope']} | {c['what']: c['against']}
        here, there = (cell(report, *(row[name] for name in ('segmenter', 'retriever', 'reranker', 'scope'))) for row in (c, other))
        for name, m in c['measures'].items():
            assert m['difference'] == pytest.approx(here['measures'][name]['value'] - there['measures'][name]['value'], abs=2e-6)
            assert m['low'] <= m['difference'] <= m['high'] and 0 < m['p'] <= m['p_holm'] <= 1


# ---- the file of cells

def without(report, *keys): return {key: value for key, value in report.items() if key not in keys}


@pytest.mark.parametrize('share', [0, 0.3, 0.71, 1])
def test_a_grid_goes_on_where_it_was_interrupted(share, folder, whole, tmp_path):
    report, out, _ = whole
    data, own, encoder = out.read_bytes(), tmp_path/'cells.jsonl', Counting()
    own.write_bytes(data[:int(len(data) * share)])
    found = evaluate_passage_grid(folder, SEGMENTERS, baseline='sentences:10:0', depth=8, words=(6, 12), encoder=encoder, out=own)
    assert without(found, 'faults') == without(report, 'faults') and found['faults']['count'] <= 1
    assert encoder.queries == (4 if share < 1 else 0) and encoder.documents == 0
    kept = [json.loads(line) for line in own.read_bytes().splitlines()]
    assert len(kept) == len(data.splitlines())


def test_an_interruption_keeps_what_was_done(folder, tmp_path):
    def stop(stage, done, total):
        if stage == 'cells' and done == 7: raise KeyboardInterrupt
    out, args = tmp_path/'cells.jsonl', dict(baseline='sentences:10:0', depth=8, encoder=Counting())
    with pytest.raises(KeyboardInterrupt): evaluate_passage_grid(folder, SEGMENTERS, out=out, progress=stop, **args)
    assert sum(len(json.loads(line).get('cell', '')) == 4 for line in out.read_text().splitlines()) == 7
    assert evaluate_passage_grid(folder, SEGMENTERS, out=out, **args) == evaluate_passage_grid(folder, SEGMENTERS, **args)


def test_a_damaged_line_is_asked_again(folder, whole, tmp_path):
    report, out, _ = whole
    lines = out.read_bytes().splitlines(keepends=True)
    (tmp_path/'cells').write_bytes(b''.join(lines[:5] + [b'{"cell": \xff\n'] + lines[6:]))
    found = evaluate_passage_grid(folder, SEGMENTERS, baseline='sentences:10:0', depth=8, words=(6, 12), encoder=Counting(),
                                  out=tmp_path/'cells')
    assert without(found, 'faults') == without(report, 'faults') and 'line 6' in found['faults']['first'][0]


def test_a_half_is_taken_from_a_file_of_all(tmp_path):
    texts = {f'PMC{n}': TEXTS['PMC1'].replace('Ginger', f'Ginger{n}') for n in range(8)}
    asked = [(f'q{n}', f'PMC{n}', ASKED[0][2], ASKED[0][3]) for n in range(8)]
    folder, args = folder_of(tmp_path/'eight', texts, asked), dict(segmenters=['sentences:10:0'], retrievers=['bm25'],
                                                                   rerankers=['none', 'bm25'])
    evaluate_passage_grid(folder, out=tmp_path/'all', **args)
    before = (tmp_path/'all').read_bytes()
    for half in ('dev', 'test'):
        taken, own = evaluate_passage_grid(folder, out=tmp_path/'all', articles=half,
                                           **args), evaluate_passage_grid(folder, out=tmp_path/half, articles=half, **args)
        assert taken == own and own['n_questions'] == sum(part_of(id) == half for id in texts) and own['n_articles_searched'] == 8
    assert (tmp_path/'all').read_bytes() == before
    with pytest.raises(CpqaError, match='a grid with another articles'):
        evaluate_passage_grid(folder, out=tmp_path/'dev', articles='test', **args)


def test_a_file_of_something_else(folder, whole, tmp_path):
    args = dict(segmenters=['window:1'], retrievers=['bm25'], rerankers=['none'])
    for more, what in (({'k': 3}, 'k'), ({'metadata': ()}, 'metadata'), ({'depth': 9}, 'depth')):
        with pytest.raises(CpqaError, match=f'with another {what}'):
            evaluate_passage_grid(folder, **args, **({'depth': 8, 'encoder': Counting()} | more), out=whole[1])
    for text in ('{"id": 1}\n', 'noise\n', '[1]\n'):
        (tmp_path/'other').write_text(text)
        with pytest.raises(CpqaError, match='is no grid of cpqa'): evaluate_passage_grid(folder, **args, out=tmp_path/'other')
        assert (tmp_path/'other').read_text() == text
    with pytest.raises(CpqaError, match='cannot be'): evaluate_passage_grid(folder, **args, out=tmp_path/'nowhere'/'cells')


# ---- names

@cases('more, why', [
    ({'segmenters': ['sentences:10:0', 'magic']}, "'magic' is not a segmenter"),
    ({'segmenters': ['sentences:10:0', 'fixed:5:5']}, 'is not a segmenter'), ({'segmenters': []}, 'at least one'),
    ({'segmenters': 'window:1'}, 'a list'), ({'segmenters': ['window:1', 'window:1']}, 'different'),
    ({'baseline': 'fixed'}, "the baseline 'fixed' is not among"),
    ({'retrievers': ['bm25', 'boolean']}, "'boolean' is not a retriever"),
    ({'rerankers': ['none', 'oracle']}, "'oracle' is not a reranker"), ({'scopes': ['library']}, 'is not a scope'),
    ({'articles': 'train'}, 'no half'), ({'k': 0}, 'k must be'), ({'depth': 0}, 'depth must be'),
    ({'metadata': ('colour',)}, "'colour' is not known")])
def test_bad_names_are_refused_before_anything_is_built(more, why, folder, tmp_path, monkeypatch):
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path/'cache'))
    class Untouched(Counting):
        def encode(self, *_): raise AssertionError('something was embedded')
    with pytest.raises(CpqaError, match=why):
        evaluate_passage_grid(folder,
                              **({'segmenters': SEGMENTERS, 'baseline': 'sentences:10:0', 'encoder': Untouched(),
                                  'out': tmp_path/'cells'} | more))
    assert not (tmp_path/'cache').exists() and not (tmp_path/'cells').exists()


def test_lists_of_names():
    assert names('all', RETRIEVERS, 'retriever') == list(RETRIEVERS) and names(' dense ,bm25,dense', RETRIEVERS, 'retriever') == ['dense',
        'bm25']
    for text, why in (('', 'no retriever is named'), ('all,bm25', "'all' is not a retriever"), ('BM25', "'BM25' is not")):
        with pytest.raises(CpqaError, match=why): names(text, RETRIEVERS, 'retriever')


# ---- heads, sections, lines

def test_what_stands_before_a_passage_is_searched(folder):
    "'METHODS' stands in no passage of five words after a heading, but in the heads of those of that section."
    asked = folder_of(folder.parent/'methods', asked=[('q1', 'PMC1', 'methods', 'The others took placebo')])
    plain, headed = (evaluate_passages(asked, 'window:0', 'bm25', scope='article',
                                       metadata=fields) for fields in (('title',), ('title', 'section')))
    assert plain['measures']['Hits@5']['value'] == 0 and headed['measures']['Hits@5']['value'] == 1
    assert plain['n_passages'] == headed['n_passages'] and headed['words_per_passage'] < 9   # heads are not counted as words read


def test_sections_of_real_articles(data_dir):
    articles = sample(read_marked(data_dir/'evidence_inference').articles.values(), 60)
    for a in articles:
        assert all(x.end <= y.start for x,
                   y in zip(a.sections, a.sections[1:])) and all(a.text[s.start:].startswith(('ABSTRACT.', 'BODY.')) for s in a.sections)
        assert a.sections == marked_sections(a.text) and not any(s.label.endswith(':') or '\n' in s.label for s in a.sections)
    assert sum(bool(a.sections) for a in articles) >= 0.98 * len(articles)
    some = next(iter(articles))
    assert sentences(some) == sentences(Document(some.id, some.title, some.text))   # each heading stood on a line of its own before


def test_lines_for_the_command(whole):
    report, _, _ = whole
    lines = grid_lines(report, most=3)
    assert report_lines(report)[0] == lines[0] and '4 questions about 3 articles, 54 systems; best by Hits@6words' in lines[0]
    table = [line for line in lines if line.startswith(('article', 'global'))]
    assert 6 <= len(table) <= 8 and any('sentences:10:0' in line for line in table) and all(len(line) < 140 for line in lines)
    assert any('comparisons' in line for line in lines)
