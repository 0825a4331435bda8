"""The papers' encoders by their names, from files laid out as the hub's client keeps them: build, search, ask; NCBI's vectors of PubMed
as a dense route; PubMed Central as a place of its own."""
import json

import numpy as np
import pytest
from entrez_toys import ARTICLES, JATS, toy_full_texts, toy_library
from helpers import inside

from cpqa.core.errors import CpqaError
from cpqa.core.records import Passage
from cpqa.libraries import build_index, remembered_encoder
from cpqa.literature.entrez import Entrez
from cpqa.local_ncbi.entrez_server import EntrezServer
from cpqa.passages.rerankers import reranker
from cpqa.pipeline import CancerQA, Finding
from cpqa.retrieval.dual_path import HSRDR, source_of
from cpqa.retrieval.encoder_contracts import CONTRACTS, Titled
from cpqa.retrieval.encoders import ENCODERS, encoder
from cpqa.retrieval.medcpt_vectors import PubMedVectors, index_medcpt
from cpqa.retrieval.openvino_models import ModelError
from cpqa.retrieval.sources import PubMedSource, Scope
from cpqa.testing.tiny_models import (in_hub_cache, pickled, tiny_bert, tiny_colbert, tiny_encoder, tiny_roberta, tiny_t5,
                                       with_spiece)
from cpqa.testing.toy_corpus import TOY

pytest.importorskip('transformers')


def run_cli(*argv) -> tuple[int, str, str]:
    "Exit status, output and errors of a command."
    done = inside(*argv)
    return done.returncode, done.stdout, done.stderr


MEDCPT = CONTRACTS['medcpt']


@pytest.fixture(scope='module')
def hub(tmp_path_factory):
    "A cache of the hub's client with MedCPT's two networks, tiny, and no way to the hub."
    from huggingface_hub import constants
    work = tmp_path_factory.mktemp('hub')
    for seed, kind in enumerate(('query', 'document')): tiny_encoder(work/'cache', MEDCPT.network(kind), work, seed)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(constants, 'HF_HUB_CACHE', str(work/'cache'))
        m.setattr(constants, 'HF_HUB_OFFLINE', True)
        yield work/'cache'


@pytest.fixture(scope='module')
def papers(tmp_path_factory):
    file = tmp_path_factory.mktemp('papers')/'papers.jsonl'
    file.write_text('\n'.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}) for d in TOY) + '\n')
    return file


def test_a_library_remembers_medcpt(hub, papers, tmp_path):
    "Built by the name, searched and asked without it; the vectors are those of pairs, of any length; another encoder is refused."
    out = tmp_path/'library'
    code, said, wrong = run_cli('index', 'build', papers, '--out', out, '--encoder', 'medcpt')
    assert code == 0 and f'{len(TOY)} documents' in said, wrong
    assert remembered_encoder(out) == 'medcpt'
    qa = CancerQA(str(out))
    assert qa.encoder.describe() == encoder('medcpt').describe() and qa.vectors.encoder is qa.encoder
    texts = [Titled(d.title, d.text) for d in TOY if d.text]
    rows = [qa.vectors.rows_of(d.id)[0] for d in TOY if d.text]
    np.testing.assert_allclose(qa.vectors.of_rows(rows), encoder('medcpt').encode(texts), atol=1e-3)
    assert np.abs(np.linalg.norm(qa.vectors.of_rows(rows), axis=1) - 1).min() > 0.1
    code, said, wrong = run_cli('search', '--library', out, '--retriever', 'dense', '--json', 'tamoxifen and breast cancer')
    ours = qa.search('tamoxifen and breast cancer', 10, 'dense')
    assert code == 0 and [hit['id'] for hit in json.loads(said)] == [h.id for h in ours], wrong
    code, said, wrong = run_cli('ask', '--library', out, '--json', 'Does tamoxifen lower the recurrence of breast cancer?')
    assert code == 0 and json.loads(said)['evidence'], wrong
    code, said, wrong = run_cli('search', '--library', out, '--encoder', 'default', 'tamoxifen')
    assert code == 1 and 'was built with another model' in wrong


def test_half_of_medcpt_is_no_encoder(hub, papers, tmp_path):
    for name in (MEDCPT.query, MEDCPT.document, f'sentence-transformers:{MEDCPT.query}'):
        code, _, wrong = run_cli('index', 'build', papers, '--out', tmp_path/'no', '--encoder', name)
        assert code == 1 and 'medcpt' in wrong and not (tmp_path/'no').exists()
    with pytest.raises(ModelError, match='are not made to be cut|write medcpt alone'): encoder('medcpt:64')


def test_ready_vectors_are_a_dense_route(hub, tmp_path):
    "`--source pubmed --vectors DIR`: what MedCPT finds in all of PubMed is fetched from PubMed, and stands as E1 or E3."
    source, out = tmp_path/'ncbi', tmp_path/'vectors'
    source.mkdir()
    made = encoder('medcpt')
    for n, some in enumerate((ARTICLES[:5], ARTICLES[5:])):
        np.save(source/f'embeds_chunk_{n}.npy', made.encode([Titled(d.title, d.text) for d in some]))
        (source/f'pmids_chunk_{n}.json').write_text(json.dumps([d.id for d in some]))
    code, said, wrong = run_cli('index', 'medcpt', '--chunks', '0-1', '--from', source, '--out', out)
    assert code == 0 and f'{len(ARTICLES)} vectors of 2 chunks' in said, wrong
    question = 'Does walking ease fatigue?'
    with EntrezServer(toy_library(tmp_path/'library')) as server:
        entrez = Entrez(server.url, email='', key='')
        qa = CancerQA(Scope('pubmed', tmp_path/'library', entrez=entrez, vectors=out), Finding(rewrite='as-is'))
        found = qa.retrieve(question)
    nearest = PubMedVectors(out, made).search([question], len(ARTICLES))[0]
    ranks = {h.id: n for n, h in enumerate(nearest, 1)}
    assert {c.dense_rank for c in found.candidates} - {None} and all(c.dense_rank == ranks[c.id] for c in found.candidates)
    assert {c.route for c in found.candidates} <= {'E1', 'E3'} and 'E1' in {c.route for c in found.candidates}
    assert found.dropped.get('1006') == 'retracted'   # a vector does not say so, PubMed does
    with pytest.raises(CpqaError, match='go with the source pubmed or auto'): Scope(vectors=out)


def test_chunks_go_on_where_they_were_stopped(tmp_path):
    rng, source = np.random.default_rng(1), tmp_path/'ncbi'
    source.mkdir()
    for n in range(2):
        np.save(source/f'embeds_chunk_{n}.npy', rng.normal(size=(50, 16)).astype(np.float32))
        (source/f'pmids_chunk_{n}.json').write_text(json.dumps([str(100 * (n + 1) + i) for i in range(50)]))
    (source/'pmids_chunk_1.json').rename(source/'away')
    code, _, wrong = run_cli('index', 'medcpt', '--chunks', '0-1', '--from', source, '--out', tmp_path/'out')
    assert code == 1 and 'pmids_chunk_1.json' in wrong and (tmp_path/'out'/'chunk_0'/'chunk.json').is_file()
    (source/'away').rename(source/'pmids_chunk_1.json')
    kept = (tmp_path/'out'/'chunk_0'/'index.faiss').stat().st_mtime_ns
    assert [c.vectors for c in index_medcpt([0, 1], source, tmp_path/'out')] == [50, 50]
    assert (tmp_path/'out'/'chunk_0'/'index.faiss').stat().st_mtime_ns == kept


ALONE = JATS
for old, new in ((b'<article-id pub-id-type="pmid">1008</article-id>', b''), (b'>508<', b'>777<'),
                 (b'a review of what is known', b'a tale'), (b'We read all there is', b'Quinine was given daily'),
                 (b'review-article', b'research-article')):
    ALONE = ALONE.replace(old, new)


def test_pubmed_central_is_a_place_of_its_own(tmp_path):
    "A word of a full text alone finds the article: by its PMID where PubMed has it, otherwise by its PMCID; nothing comes twice."
    library, folder = toy_library(tmp_path/'library'), toy_full_texts(tmp_path/'pmc')
    (folder/'PMC508.nxml').write_bytes(JATS.replace(b'We read all there is', b'Quinine was not given'))
    (folder/'PMC777.nxml').write_bytes(ALONE)
    with EntrezServer(library, pmc=folder) as server:
        def retrieve(question, **scope):
            means = type('Means', (), {'scope': Scope('pubmed', library, entrez=Entrez(server.url, email='', key=''), **scope),
                                       'library': library, 'place': 'the toys'})()
            means.entrez = means.scope.entrez
            source = PubMedSource(means)
            return HSRDR(source.search, None, source.fetch, full=source.full_texts, also=source.by_full_text).retrieve(question), source
        without, _ = retrieve('quinine')
        found, source = retrieve('quinine', pmc=True)
        both, _ = retrieve('polyps', pmc=True)
        assert [d.id for d in without.documents] == []
        assert {d.id: source_of(d) for d in found.documents} == {'1008': 'D1', 'PMC508': 'D2', 'PMC777': 'D3'}
        assert source.by_full_text == {'1008': 'PMC508', 'PMC777': 'PMC777'}
        assert 'PubMed Central: 2 full texts match' in ' '.join(found.audit[0].warnings)
        ids = [c.id for c in both.candidates]
        assert len(ids) == len(set(ids)) and {'1001', '1008', 'PMC777'} <= set(ids)
    with pytest.raises(CpqaError, match='searched beside PubMed'): Scope(pmc=True)


LAYOUTS = {   # name on the command line -> name at Hugging Face, and its tiny twin in the files that the real one has there
    'cross-encoder:medcpt': ('ncbi/MedCPT-Cross-Encoder', lambda f: pickled(tiny_bert(f))),
    'cross-encoder:bge-v2-m3': ('BAAI/bge-reranker-v2-m3', tiny_roberta),
    'monot5:base': ('castorini/monot5-base-msmarco', lambda f: with_spiece(pickled(tiny_t5(f), vocabulary=False))),
    'colbert:colbertv2': ('colbert-ir/colbertv2.0', tiny_colbert),
}


@pytest.fixture(scope='module')
def all_of_them(tmp_path_factory):
    "A cache with every encoder and reranker of the papers, tiny, as the hub's client lays it out, and no way to the hub."
    from huggingface_hub import constants
    work = tmp_path_factory.mktemp('all')
    names = sorted({c.network(kind) for c in CONTRACTS.values() for kind in ('query', 'document')})
    for seed, name in enumerate(names): tiny_encoder(work/'cache', name, work, seed)
    for place, (name, make) in LAYOUTS.items(): in_hub_cache(work/'cache', name, make(work/place.replace(':', '-')))
    with pytest.MonkeyPatch.context() as m:
        m.setattr(constants, 'HF_HUB_CACHE', str(work/'cache'))
        m.setattr(constants, 'HF_HUB_OFFLINE', True)
        yield work/'cache'


@pytest.mark.parametrize('name', [*CONTRACTS, 'pubmedbert-matryoshka:64', 'minilm'])
def test_each_named_encoder_loads_from_the_cache_of_the_hub(all_of_them, name):
    made, texts = encoder(name), [Titled(d.title, d.text) for d in TOY]
    for kind in ('query', 'document'):
        vectors = made.encode(texts, kind)
        assert vectors.shape == (len(TOY), made.dim) and np.isfinite(vectors).all() and len(np.unique(vectors, axis=0)) == len(TOY)


def test_no_encoder_of_the_issue_is_missing():
    wanted = {'medcpt', 'biobert', 'pubmedbert-matryoshka', 'uae-large', 'bge-large-en-v1.5', 'sfr-mistral', 'mpnet'}
    assert wanted <= set(CONTRACTS) and wanted | {'minilm', 'default', 'sentence-transformers'} <= set(ENCODERS.names)


def test_medcpt_is_not_the_mean_of_one_network(all_of_them):
    from cpqa.retrieval.encoder_contracts import finished, pooled
    from cpqa.retrieval.encoders import rectangle
    import torch
    made, texts = encoder('medcpt'), [Titled(d.title, d.text) for d in TOY]
    ours, net = made.encode(texts), made.networks['query']
    batch = rectangle([ids for ids, _ in net.rows(texts)], 0)
    with torch.no_grad(): hidden = net.model(**{k: torch.from_numpy(v) for k, v in batch.items()}).last_hidden_state
    mean = finished(pooled(hidden, torch.from_numpy(batch['attention_mask']), 'mean').numpy(), 'cosine', 'document')
    assert np.abs((ours / np.linalg.norm(ours, axis=1, keepdims=True) * mean).sum(1)).max() < .9


@pytest.mark.parametrize('name', LAYOUTS)
def test_each_named_reranker_loads_from_the_cache_of_the_hub(all_of_them, name):
    made = reranker(name, lambda: None)
    passages = [Passage(d.id, 0, len(d.text), d.text, d.title) for d in TOY if d.text]
    scores = made.score('What are the side effects of tamoxifen?', passages)
    assert scores.shape == (len(passages),) and np.isfinite(scores).all() and len(set(scores.tolist())) == len(passages)
    assert made.describe()['model'] == LAYOUTS[name][0]
