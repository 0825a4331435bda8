"""Makes the stance network that comes with cpqa: what it learns further from, and the finished form.

    python benchmarks/taught_stance.py pairs DIR [--epochs 3] [--begin FOLDER]    what is learnt from (two minutes)
    python benchmarks/teach_large.py ...                                          a large network learns; on a GPU
    python benchmarks/teach_stance.py DIR --said SAID --out TAUGHT                a small one learns from it, on the GPU too
    python benchmarks/taught_stance.py ship DIR TAUGHT [--share .5 --beside FOLDER] [--out FOLDER]     the network with its card

It begins as the network in FOLDER or the package: as 815a80925d4d, which train_stance.py made of the same sources. Pairs
are drawn anew for each epoch as there: made findings with claims on them, marked sentences of Evidence Inference and others of the same
article, those of BioASQ and PubMedQA, claims that were written beside sentences. Then there are claims as a small careless model writes
them (claims_like_models.tsv), and claims as people tell them (claims_as_told.tsv): written by sessions of a language model from the title
of a paper alone, without its text, and put beside sentences that a search found for them; what each sentence says of the claim other
sessions judged, who knew no more than the two.
What nobody judged is read by the large network: questions on the prompts of 3,177 articles beside sentences of these, and claims as told
beside further sentences. Nothing is drawn from the test half of Evidence Inference, its abstracts in PubMed among them, the 55 articles
kept aside, reserved documents, HealthVer or NLI4CT; the last two are carried along to be told figures of. What ships is the mean of two
networks that began alike (`--share`, chosen among four with figures of all but NLI4CT in view), which tells better than either what
contradicts our own claims, and as well as the better one which way a finding goes: one taught here, and c6d5ea0f63b9 of November 27,
whose large network of 110 million weights had read 860 claims beside abstracts of that half. 815a80925d4d had learnt from 85 claims
beside abstracts of 18 of the 55.
"""
import argparse
import gzip
import json
import lzma
import random
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from common import DATA, ROOT, save
from heads import stored_network
from msgspec.structs import replace
from stance import healthver, nli4ct
from teach_selection import Pairs, read
from teach_stance import MEASURED, TOKENS, Small
from teach_stance import figures as stance_told
from tokenizers import Tokenizer
from train_stance import LIMITS, MIT
from transformers import AutoTokenizer

from cpqa.answering.stance import InContext, StanceModel, linked, prepare_stance
from cpqa.core.records import Document
from cpqa.core.text_analysis import ENGLISH
from cpqa.evaluation.claims import MIRROR, statements
from cpqa.evaluation.collections import read_marked
from cpqa.literature.pubmed import read_beir
from cpqa.passages.sentences import sentences
from cpqa.retrieval.openvino_models import About, DataUsed, shipped
from cpqa.training.made_findings import ComparedArms, made_claim, true_to_tell
from cpqa.training.recipe import made_with
from cpqa.training.stance_examples import (StanceExample, StanceMix, claim_examples, parts_of, stance_epoch, stance_material)
from cpqa.training.stance_network import agreement, stance_figures, stance_network

LABELS = ROOT / 'benchmarks' / 'labels'
MIX = StanceMix(made=6000, fours=2000, on_marked=4, marked_fours=2, yes_no=1, general=0)
USED = (
    (DataUsed('made findings and claims', f'arms and outcomes of prompts of Evidence Inference: {MIT}', 0,
              'sentences of frames, no text of papers'), ('made',)),
    (DataUsed('Evidence Inference, half of the articles and 367 further ones', MIT, 0,
              'marked and other sentences, claims made of the prompts'), ('trials',)),
    (DataUsed('BioASQ, rounds 7 and 8; PubMedQA, four in five of the 500 that are no test', 'CC BY 2.5; MIT', 0,
              'questions, snippets, conclusions'), ('yes-no',)),
    (DataUsed('written claims', 'Apache-2.0; the sentences are of abstracts of PubMed, PMC open access and BioASQ', 0,
              'by sessions of a language model: in their own words, as a careless model, as people tell them'),
     ('claims', 'like_models', 'as_told')),
    (DataUsed('ConjNLI, training', 'MIT', 0, 'pairs of general sentences'), ('general',)),
    (DataUsed('what a network of 842 million weights says, taught by all of these', 'Apache-2.0', 0,
              'of claims beside sentences that nobody judged; its base is the first 18 layers of Qwen2.5-Coder-1.5B-Instruct. What is of '
              'c6d5ea0f63b9 was taught by a network of 110 million, which had read 860 claims beside abstracts of the test half of '
              'Evidence Inference'), ('open',)))
LEFT = ('HealthVer and NLI4CT, which state no licence: to test with alone', 'BioASQ, rounds 9 and 10, and PubMedQA\'s test half',
        '55 articles, for the figures; the network that this began as had read 85 claims beside abstracts of 18 of them')
OF_ARTICLE = 3, 3    # prompts of an article that nobody judged, and sentences near to each


def row(e: StanceExample, kind: str, group: int, said: str = '') -> dict:
    "An example as plain values; -1 is not known."
    known = lambda value, off=0: -1 if value is None else int(value) + off
    parts = {name: value for name, value in e.parts._asdict().items() if value is not None}
    return {'asked': e.asked, 'said': said or linked(e.asked, e.said.text), 'kind': kind, 'group': group,
            'finding': known(e.finding), 'way': known(e.way, 1), **({'parts': parts} if parts else {})}


def open_articles(comparisons: set[ComparedArms], rng: random.Random) -> list[StanceExample]:
    "Claims and questions on prompts beside sentences of their article: those with most of its words, and one by chance."
    of, out, stems = defaultdict(set), [], lambda text: frozenset(ENGLISH.analyze(text))
    with gzip.open(DATA / 'rct' / 'prompts.jsonl.gz', 'rt') as f:
        for p in map(json.loads, f):
            arms = ComparedArms(*(' '.join(p[name].split()).strip(' .,;') for name in ('intervention', 'comparator', 'outcome')))
            if arms in comparisons: of[p['pmcid']].add(arms)
    with gzip.open(DATA / 'rct' / 'articles.jsonl.gz', 'rt') as f:
        for a in map(json.loads, f):
            asked = sorted(of.get(a['pmcid'], ()))[:OF_ARTICLE[0]]
            if not asked: continue
            text = a['text'][:60_000]
            said = [' '.join(text[s:e].split()) for s, e in sentences(Document(a['pmcid'], text=text)) if 40 < e - s < 500]
            words = [stems(s) for s in said]
            for arms in asked:
                named = stems(' '.join(arms))
                order = sorted(range(len(said)), key=lambda i: -len(named & words[i]) / (8 + len(words[i])) ** .5)
                for i in [*order[:OF_ARTICLE[1]], *rng.sample(order, min(1, len(order)))]:
                    claims = (made_claim(rng, rng.choice('+-0'), arms) for _ in range(2))
                    out += [StanceExample(c.text, InContext(said[i]), None, None, 'open', parts_of(c)) for c in claims if c]
    return out


def open_told(rows: list, documents: dict, rng: random.Random) -> list[StanceExample]:
    "Claims as told, beside other sentences of the document that was found for them."
    out = []
    for c, said in rows:
        text = documents[c.source, c.document].text
        others = [' '.join(text[a:b].split()) for a, b in sentences(documents[c.source, c.document]) if 50 < b - a < 500]
        out += [StanceExample(c.claim, InContext(s), None, None, 'open') for s in rng.sample(others, min(4, len(others)))
                if s != said.sentence]
    return out


def measured(material, others: dict) -> list[dict]:
    "Pairs that figures are told of."
    out, ask = [], lambda of, word: f'Does {of.intervention} {word} {of.outcome} compared with {of.comparator}?'
    for n, t in enumerate(material.dev):
        off = [*(s for s, _ in t.near), *(s for s in [*t.far, *t.other] if s not in t.on)]
        out += [row(StanceExample(ask(t.of, 'reduce'), s, s in t.on, None, ''), 'dev finding', n) for s in [*t.on, *off]]
        out += [row(StanceExample(ask(of, word), t.on[0], None, 1 if true_to_tell(value, told) else -1, ''), kind, n)
                for kind, of, value in (('dev way', t.of, t.value), ('dev way, exchanged', t.of.exchanged, MIRROR[t.value]))
                if kind == 'dev way' or t.of.controlled for told, word in (('+', 'increase'), ('-', 'reduce'))]
    for name, rows in {'claims': material.dev_claims, **others}.items():
        out += [row(StanceExample(c.claim, said, None, c.way, ''), f'dev {name}', 0) for c, said in rows]
    aside = {t.article for t in material.dev}
    for name in ('evidence_inference', 'evidence_inference_more'):
        out += [row(StanceExample(m.text, InContext(' '.join(m.quote.split())), None, 1 if m.true else -1, ''), f'statements {m.flip}', 0)
                for m in statements(read_marked(DATA / name)) if m.article in aside]
    ways = {'Supports': 1, 'Refutes': -1, 'Neutral': 0}
    some = [(c, said, ways[label], 'healthver', 0) for c, said, label in healthver()]
    some += [(c, s, 1 if label == 'Entailment' else -1, 'nli4ct', n) for n, (c, said, label) in enumerate(nli4ct()) for s in said]
    return out + [row(StanceExample(c, InContext(' '.join(s.split())), None, way, ''), kind, n) for c, s, way, kind, n in some]


def pairs(out: Path, epochs: int, begin: Path | None):
    rng, material = random.Random(0), stance_material(DATA, LABELS / 'claims.tsv')
    beside = {name: stance_material(DATA, LABELS / f'claims_{name}.tsv', ('claims',)) for name in ('like_models', 'as_told')}
    rows = []
    for epoch in range(epochs):
        seeded = random.Random(1000 + epoch)
        groups = stance_epoch(material, MIX, 500 + epoch)
        rows += [row(e, e.source, epoch) for group in groups for e in group]
        rows += [row(e, name, epoch) for name, m in beside.items() for group in claim_examples(seeded, m.claims) for e in group]
    rows += [row(e, e.source, 0) for e in material.general]
    documents = {('rct', d.id): d for d in read_beir(next((DATA / 'rct').glob('corpus.jsonl*'))) if isinstance(d, Document)}
    told = [r for r in beside['as_told'].claims if (r[0].source, r[0].document) in documents]
    opened = open_articles(set(material.comparisons), rng) + open_told(told, documents, rng)
    rows += [row(e, e.source, 0) for e in opened] + measured(material, {name: m.dev_claims for name, m in beside.items()})
    out.mkdir(parents=True, exist_ok=True)
    (out / 'tokens.npz').unlink(missing_ok=True)   # of other pairs
    with lzma.open(out / 'pairs.jsonl.xz', 'wt', encoding='utf-8', preset=6) as f: f.writelines(json.dumps(r) + '\n' for r in rows)
    torch.save({name: w.half() for name, w in stored_network('stance', begin).items()}, out / 'begun.pt')
    torch.save(agreement(), out / 'truth.pt')
    shutil.copy(shipped('stance') / 'tokenizer.json', out)
    (out / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'BertTokenizerFast', 'model_max_length': 512}))
    print(json.dumps(Counter(r['kind'] for r in rows), indent=1), (out / 'pairs.jsonl.xz').stat().st_size)


def ship(folder: Path, taught: Path, out: Path, share: float, beside: Path):
    state, other = stored_network('stance', beside), json.loads((beside / 'card.json').read_text())['weights']   # what was not learnt stays
    learnt = torch.load(taught / 'stance.pt', map_location='cpu', weights_only=True)
    state |= {name: share * w.float() + (1 - share) * state[name] for name, w in learnt.items()}
    network, told = stance_network()[0], json.loads((taught / 'figures.json').read_text())
    with lzma.open(folder / 'pairs.jsonl.xz', 'rt', encoding='utf-8') as f: rows = [json.loads(line) for line in f]
    tests, words = np.flatnonzero([r['kind'].startswith(MEASURED) for r in rows]), AutoTokenizer.from_pretrained(folder)
    whole = Small(state, torch.load(folder / 'truth.pt', weights_only=True), words)
    odds = read(whole, Pairs(words, rows, most=TOKENS, kept=folder / 'tokens.npz'), tests)[tests]
    told['figures']['ships'] = stance_told([rows[i] for i in tests], odds)
    odd = network.load_state_dict(state, strict=False)
    if odd.unexpected_keys or set(odd.missing_keys) - {'bert.embeddings.position_ids'}: raise SystemExit(f'not the same network: {odd}')
    material = stance_material(DATA, LABELS / 'claims.tsv', ('trials', 'claims'))
    left_out = Counter(material.left_out)
    for name in ('like_models', 'as_told'):
        beside = 'claims beside a document that is reserved or kept aside'
        left_out[beside] += stance_material(DATA, LABELS / f'claims_{name}.tsv', ('claims',)).left_out[beside]
    tokenizer = Tokenizer.from_file(str(folder / 'tokenizer.json'))
    used = tuple(replace(u, n=sum(told['pairs'].get(k, 0) for k in kinds)) for u, kinds in USED)
    def prepared(figures=()):
        left = (*(f'{n:,} {what}' for what, n in left_out.items() if n), *LEFT)
        mean = f' ({share:.0%} of each weight; the rest of {other})' if share < 1 else ''
        about = About(f'a stance network of cpqa (815a80925d4d), itself from all-MiniLM-L6-v2{mean}', 'Apache-2.0',
                      'Apache-2.0', used, left, tuple(figures), made_with(),
                      ' '.join(['python', 'benchmarks/taught_stance.py', *sys.argv[1:]]), LIMITS)
        prepare_stance(network, tokenizer, out, 'w8', label='cpqa-stance', about=about)
    prepared()
    prepared(stance_figures(StanceModel(out).read_pairs, material.dev, material.dev_claims))
    save('taught_stance', {'figures': told['figures'], 'pairs': told['pairs'], 'share': share, 'taught on': told['device'],
                           'torch there': told['torch']},
         ('cpqa', 'openvino', 'torch'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('what', choices=('pairs', 'ship'))
    parser.add_argument('folder', type=Path)
    parser.add_argument('taught', type=Path, nargs='?')
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--begin', type=Path, help='a prepared stance network to begin as, in place of that in the package')
    parser.add_argument('--share', type=float, default=1, help='of the taught weights; the rest is of --beside')
    parser.add_argument('--beside', type=Path, default=shipped('stance'), help='a prepared stance network, in place of that in the package')
    parser.add_argument('--out', type=Path, default=ROOT / 'cpqa' / 'data' / 'models' / 'stance')
    a = parser.parse_args()
    if a.what == 'pairs': pairs(a.folder, a.epochs, a.begin)
    else: ship(a.folder, a.taught, a.out, a.share, a.beside)


if __name__ == '__main__': main()
