"""The second stage as a question meets it: names, budgets, thresholds, failing rerankers, odd documents, documents that come live."""
import json
import sys

import numpy as np
import pytest

from conftest import cases
from cpqa import pipeline
from cpqa.core.errors import CpqaError, MissingExtra
from cpqa.core.records import Document
from cpqa.testing.toy_corpus import TOY
from cpqa.libraries import build_index
from cpqa.literature.entrez import Entrez
from cpqa.literature.library import LibraryError
from cpqa.passages.calibration import calibrator
from cpqa.passages.cross_encoders import EmbeddedCrossEncoder
from cpqa.passages.rerankers import NoReranker
from cpqa.passages.segmenters import SEGMENTERS, segmenter
from cpqa.testing.tiny_models import tiny_bert
from cpqa.passages.two_stage import Reranked, TwoStage, title_passages
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.sources import Scope
from cpqa.retrieval import encoders, openvino_models
from cpqa.retrieval.encoders import MINILM, EmbeddedEncoder, FastEncoder, prepare_encoder
from cpqa.local_ncbi.entrez_server import EntrezServer

pytestmark = pytest.mark.usefixtures('loaded_once')
QUESTION = 'Does tamoxifen lower the recurrence of breast cancer?'
LOWERED = 'Tamoxifen for five years lowered breast cancer recurrence.'
ODD = {
    'a title': '', 'a long sentence': 'tamoxifen ' * 1200 + 'end.', 'no end': 'tamoxifen goes on and on ' * 60,
    'a table': 'Arm\tn\tHR\nTamoxifen\t12\t0.5 (0.3-0.8)\n' * 6,
    'Chinese': '患者接受了他莫昔芬治疗。肿瘤没有复发。' * 6, 'Arabic': 'تم علاج المرضى. لم يعد الورم. ' * 6,
    'control characters': 'Tamoxifen\x00 helped\x1b[2J. \x02\x03\x1f So\x7f it was\x85. ' * 4, 'a long word': 'ACGT' * 300,
}
STRANGE = [Document(f'{900 + i}', f'Tamoxifen, {name}', text, year=2020) for i, (name, text) in enumerate(ODD.items())]


class Counted:
    "The model, and how many documents' texts it was given."
    def __init__(self, model): self.model, self.dim, self.texts = model, model.dim, 0
    def describe(self): return self.model.describe()

    def encode(self, texts, kind='document'):
        self.texts += len(texts) * (kind == 'document')
        return self.model.encode(texts, kind)


class Failing:
    "A reranker of lengths that goes wrong at the `n`-th call."
    def __init__(self, how: str, n: int = 1): self.how, self.n, self.calls = how, n, 0
    def describe(self): return {'reranker': 'failing'}

    def score(self, query, passages):
        self.calls += 1
        scores = np.array([len(p.text) for p in passages], dtype=np.float32)
        if self.calls < self.n: return scores
        if self.how == 'raises': raise RuntimeError('out of\nmemory')
        if self.how == 'short': return scores[1:]
        return scores * np.nan


@pytest.fixture(scope='module')
def encoder(): return EmbeddedEncoder()


@pytest.fixture(scope='module')
def libraries(encoder, tmp_path_factory):
    "The toy articles, cut by the segmenter of a name."
    made, folder = {}, tmp_path_factory.mktemp('cut')

    def of(name: str):
        if name not in made: made[name] = build_index([TOY], folder/name.replace(':', '-'), encoder=encoder, segmenter=name)
        return made[name]
    return of


def sound(answer, documents=(*TOY, *STRANGE)):
    "Quotes and evidence stand where they say."
    texts = {d.id: d.text for d in documents}
    for c in answer.citations: assert texts[c.pmid][c.start:c.end] == c.quote
    for e in answer.evidence: assert texts[e.passage.doc_id][e.passage.start:e.passage.end] == e.passage.text
    json.dumps(answer.to_dict(), allow_nan=False)


# ---- odd documents, cut in every way

@cases('name', ['sentences', 'fixed:7:2', 'tokens:9:3', 'window:1', 'texttiling', 'seos:16:4'])
def test_a_library_cut_in_any_way_is_asked_and_searched(name, libraries, encoder):
    library = libraries(name)
    answer = CancerQA(library, Finding(encoder)).ask(QUESTION)
    sound(answer)
    assert LOWERED in [c.quote for c in answer.citations]   # though passages of seven words hold no whole sentence
    told = answer.trace['passages']
    assert told['segmenter'] == library.manifest.parts['vectors']['splitter'] and told['segmenter']['segmenter'] == name.partition(':')[0]
    assert (told['reranked'], told['stopped'], told['reranker']['reranker']) == (told['candidates'], 'all', 'default')
    for reranker in ('bm25', 'cosine', 'default'):
        assert CancerQA(library, Finding(encoder)).search(QUESTION, 3, 'bm25', reranker)[0].id == 't3'


def test_every_kind_of_segmenter_keeps_the_offsets_and_says_its_name():
    assert {'sentences', 'fixed', 'tokens', 'window', 'texttiling', 'seos'} <= set(SEGMENTERS.names)
    for row in SEGMENTERS.own:   # also one whose row was added later
        made = segmenter(row.name)
        assert made.describe()['segmenter'] == row.name
        for document in TOY:
            assert all(document.text[p.start:p.end] == p.text for p in made.split(document)) and (document.text == ''
                or made.split(document))


def test_single_sentences_are_read_with_their_neighbours(libraries, encoder):
    answer = CancerQA(libraries('window:1'), Finding(encoder)).ask(QUESTION)
    found = next(e for e in answer.evidence if e.passage.doc_id == 't3')
    assert found.passage.text == TOY[2].text   # both of its sentences


@pytest.mark.parametrize('name', ['sentences', 'fixed:512:0', 'seos'])
def test_a_library_of_strange_documents(name, encoder, tmp_path):
    "Without text, without sentence ends, longer than the model: quotes stand where they say, or there are none."
    library = build_index([STRANGE], tmp_path/'strange', encoder=encoder, segmenter=name)
    for reranker in ('bm25', 'cosine', 'none', 'default'):
        answer = CancerQA(library, Finding(encoder, reranker=reranker)).ask(QUESTION)
        sound(answer)
        assert answer.trace['passages']['stopped'] == 'all' and answer.evidence


# ---- what goes wrong

@cases('how', ['raises', 'nan', 'short'])
@cases('n, budget', [(1, None), (2, 60_000)])
def test_a_reranker_that_fails_leaves_the_first_order(how, n, budget, libraries, encoder):
    library, reranker = libraries('fixed:7:2'), Failing(how, n)
    answer = CancerQA(library, Finding(encoder, reranker=reranker, budget_ms=budget)).ask(QUESTION)
    again = CancerQA(library, Finding(encoder, reranker=Failing('raises'))).ask(QUESTION)
    sound(answer)
    assert reranker.calls == n and [e.passage for e in answer.evidence] == [e.passage for e in again.evidence] != []
    told = answer.trace['passages']
    assert (told['stopped'], told['reranked'], told['reranker']) == ('failed', 0, {'reranker': 'failing'})
    assert len(answer.notes) == 1 and 'Failing failed' in answer.notes[
        0] and 'the order of the first stage stands' in answer.notes[0] and '\n' not in answer.notes[0]


def test_a_budget_ends_the_reranking(libraries, encoder):
    reranker = Failing('', n=10**9)
    answer = CancerQA(libraries('fixed:7:2'), Finding(encoder, reranker=reranker, budget_ms=0)).ask(QUESTION)
    told = answer.trace['passages']
    assert (told['stopped'], told['reranked'], reranker.calls) == ('time', 8, 1) and told['candidates'] > 8 and not answer.notes


@cases('options, why', [
    (dict(reranker='magic'), "'magic' is not a reranker: choose"), (dict(reranker=''), 'is not a reranker'),
    (dict(reranker='monot5'), 'needs a model behind a colon'),
    (dict(segmenter='magic'), "'magic' is not a segmenter: choose"), (dict(segmenter='seos:5:5'), 'less than its size'),
    (dict(threshold=1.5), 'a probability from 0 to 1'), (dict(threshold=float('nan')), 'a probability from 0 to 1'),
    (dict(budget_ms=-1), 'at least 0'), (dict(budget_ms=float('nan')), 'at least 0'),
])
def test_what_makes_no_sense_is_refused_before_anything_is_loaded(options, why, monkeypatch, tmp_path):
    monkeypatch.setattr(encoders, 'EmbeddedEncoder', None)
    with pytest.raises(CpqaError, match=why): Finding(**options)
    if 'segmenter' in options:
        with pytest.raises(CpqaError, match=why): build_index([TOY], tmp_path/'out', **options)
        assert not (tmp_path/'out').exists()


def test_a_threshold_leaves_out_and_says_so(libraries, encoder):
    library = libraries('sentences')
    some = CancerQA(library, Finding(encoder, reranker='bm25', threshold=0.2)).ask(QUESTION)
    assert 0 < len(some.evidence) and all(e.probability >= 0.2 for e in some.evidence)
    none = CancerQA(library, Finding(encoder, reranker='bm25', threshold=1.0)).ask(QUESTION)
    assert none.abstained and none.evidence == () and none.reason.startswith(
        'None of the ') and 'probability of 1 or more' in none.reason and 'below 1' in none.notes[0]
    with pytest.raises(CpqaError, match='rerank by .*bm25.*, or leave out the threshold'):
        CancerQA(library, Finding(encoder, reranker=NoReranker(), threshold=0.2)).ask(QUESTION)


def test_a_threshold_holds_for_the_default_if_its_weights_are_calibrated(libraries, encoder):
    qa = CancerQA(libraries('sentences'), Finding(encoder, threshold=0.0))
    if calibrator(EmbeddedCrossEncoder().describe()): assert all(0 <= e.probability <= 1 for e in qa.ask(QUESTION).evidence)
    else:
        with pytest.raises(CpqaError, match='the scores of the reranker default have none: rerank by bm25'): qa.ask(QUESTION)


# ---- the models that come with cpqa

def test_the_default_decides_by_its_score_and_the_first_stage(libraries, encoder):
    qa = CancerQA(libraries('sentences'), Finding(encoder))
    stage, vector = qa.two_stage(qa.vectors), encoder.encode([QUESTION], 'query')[0]
    assert isinstance(stage.reranker, EmbeddedCrossEncoder) and stage.combine == 'sum'
    documents = qa.library.documents(h.id for h in qa.search(QUESTION, 9))
    passages, _ = stage.candidates(documents)
    scale = lambda x: (x - x.min()) / np.ptp(x)
    place = np.array([[d.id for d in documents].index(p.doc_id) + 1 for p in passages])
    value = scale(stage.reranker.score(QUESTION, passages)) + stage.reranker.first * scale(1 / (5 + place))
    assert [e.passage for e in stage.select(QUESTION, vector, documents, 99)] == [passages[i] for i in np.argsort(-value, kind='stable')]


def test_search_orders_documents_as_reranked_does(libraries, encoder):
    qa, reranker = CancerQA(libraries('sentences'), Finding(encoder)), EmbeddedCrossEncoder()
    def passages_of(ids):
        documents = list(qa.library.documents(ids))
        found, _ = TwoStage(qa.vectors).candidates(documents)
        return [*found, *title_passages(documents, found)]
    class First:
        def search(self, queries, k): return [qa.search(q, k) for q in queries]
    again = Reranked(First(), reranker, passages_of, depth=50).search([QUESTION], 9)[0]
    assert qa.search(QUESTION, 9, reranker='default') == qa.search(QUESTION, 9, reranker=reranker) == again


def test_a_budget_holds_for_the_default(libraries, encoder):
    library = libraries('fixed:7:2')
    tight, free = (CancerQA(library, Finding(encoder, budget_ms=ms)).ask(QUESTION).trace['passages'] for ms in (0, 600_000))
    assert (tight['stopped'], tight['reranked']) == ('time', 8) and free['stopped'] in ('all',
        'settled') and tight['candidates'] == free['candidates'] > 8


def test_without_the_shipped_reranker_the_error_says_what_to_do(libraries, encoder, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(openvino_models, 'MODELS', tmp_path)
        with pytest.raises(CpqaError, match='no cross-encoder came with this copy of cpqa: .*another reranker, such as bm25'):
            CancerQA(libraries('sentences'), Finding(encoder)).ask(QUESTION)
    assert CancerQA(libraries('sentences'), Finding(encoder, reranker='bm25')).ask(QUESTION).citations


def test_without_the_extra_the_error_names_it(libraries, encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, 'openvino', None)
    with pytest.raises(MissingExtra, match=r'cpqa\[offline\]'): CancerQA(libraries('sentences'), Finding(encoder)).ask(QUESTION)
    with pytest.raises(MissingExtra, match=r'cpqa\[offline\]'): CancerQA(libraries('sentences')).ask(QUESTION)


def test_an_encoder_by_its_folder(tmp_path, libraries):
    folder = prepare_encoder(tiny_bert(tmp_path/'tiny'), tmp_path/'own', 'f32', pooling='mean')
    library = build_index([TOY], tmp_path/'library', encoder=folder)
    assert library.manifest.parts['vectors']['encoder'] == FastEncoder(folder).describe()
    for named in (folder, str(folder), FastEncoder(folder)): sound(CancerQA(library, Finding(named)).ask(QUESTION))
    sound(CancerQA(library).ask(QUESTION))   # without a name the library's own is taken
    for qa in (CancerQA(library, Finding('default')), CancerQA(libraries('sentences'), Finding(folder))):
        with pytest.raises(LibraryError, match='built with another model .*tiny'): qa.ask(QUESTION)
    with pytest.raises(CpqaError, match='no sound fast encoder'): CancerQA(library, Finding(tmp_path/'tiny'))
    with pytest.raises(CpqaError, match='holds a cross-encoder, not a bi-encoder'):
        CancerQA(library, Finding(openvino_models.shipped('cross-encoder')))


def test_a_library_of_before_is_asked_by_the_model_of_before(tmp_path):
    library = build_index([TOY], tmp_path/'before', encoder=MINILM)
    assert library.manifest.parts['vectors']['encoder']['model'] == MINILM
    for named in (MINILM, None): assert LOWERED in [c.quote for c in CancerQA(library, Finding(named)).ask(QUESTION).citations]
    with pytest.raises(LibraryError, match=f'built with another model .*{MINILM}'): CancerQA(library, Finding('default')).ask(QUESTION)


# ---- more names

def test_no_reranker_leaves_the_order_as_it_is(encoder, tmp_path):
    gone = Document('5', 'Tamoxifen side effects', 'Tamoxifen has side effects.', publication_types=('Retracted Publication',))
    qa = CancerQA(build_index([[*TOY, gone]], tmp_path/'all', encoder=encoder), Finding(encoder))
    for way in ('bm25', 'hybrid'): assert qa.search(QUESTION, 5, way, 'none') == qa.search(QUESTION, 5, way)


def test_a_named_reranker_is_loaded_once(libraries, encoder, monkeypatch):
    made = []
    monkeypatch.setattr(pipeline, 'named_reranker', lambda name, encoder: made.append(name) or NoReranker())
    qa = CancerQA(libraries('sentences'), Finding(encoder, reranker='monot5:some/model'))
    for _ in range(2): qa.ask(QUESTION)
    assert made == ['monot5:some/model']


# ---- documents that come live

@pytest.fixture
def live(libraries, encoder, monkeypatch, tmp_path):
    "A `CancerQA` that searches a server of the toy articles; its cache is `tmp_path`, its encoder is new."
    monkeypatch.setenv('CPQA_CACHE', str(tmp_path))
    with EntrezServer(libraries('sentences')) as server:
        client = Entrez(url=server.url, email='', key='', cache=False, tries=2, backoff=0.001, timeout=5.0, deadline=10.0)
        yield lambda **options: CancerQA(Scope('pubmed', libraries('sentences'), entrez=client), Finding(Counted(encoder), **options))


@pytest.mark.parametrize('name', ['sentences', 'fixed:5:0', 'window:1', 'seos:16:4'])
def test_live_documents_are_embedded_once(name, live, tmp_path):
    first, second = live(segmenter=name), live(segmenter=name)
    answer = first.ask(QUESTION)
    sound(answer)
    assert LOWERED in [c.quote for c in answer.citations] and answer.trace['passages']['segmenter']['segmenter'] == name.partition(':')[0]
    assert first.finding.encoder.texts > 3
    again = second.ask(QUESTION)   # another day
    assert (again.citations, again.evidence) == (answer.citations, answer.evidence) and second.finding.encoder.texts == 0
    kept = b''.join(p.read_bytes() for p in tmp_path.rglob('*') if p.is_file())
    assert b'tamoxifen' not in kept.lower() and b'hot flushes' not in kept.lower() and len(kept) > 5000


def test_other_ways_of_cutting_share_no_vector_wrongly(live):
    "What one segmenter left in the cache does not change what another finds."
    after = [live(segmenter=name).ask(QUESTION) for name in ('seos:16:4', 'sentences')][1]
    fresh = live(segmenter='sentences').ask(QUESTION)
    assert after.evidence == fresh.evidence
