"""How far does a network get that reads a claim beside its quote and nothing else? What it learns from.

    python benchmarks/train_claims.py DIR                                     what is learnt from (some minutes)
    python benchmarks/teach_claims.py DIR --teacher FOLDER --out TAUGHT       on a GPU; figures in TAUGHT/figures.json

It is not part of the package yet: benchmarks/results/claims_taught.json has what it was worth. It learns from claims that sessions of a
language model wrote beside sentences of abstracts (benchmarks/labels/claims.tsv): in their own words, and as a small careless model
writes them, that takes words of the question for what was found; from claims made of the prompts of Evidence Inference and of made
findings, as the stance network does; and from pairs of general sentences. HealthVer and NLI4CT, and the claims of a model that two
readers labelled (model_claims.tsv), are to measure with alone.
"""
import argparse
import json
import random
import shutil
from pathlib import Path

import torch
from common import DATA, ROOT
from heads import all_layers
from stance import healthver, nli4ct

from cpqa.answering.stance import linked
from cpqa.retrieval.openvino_models import shipped
from cpqa.training.stance_examples import StanceMix, stance_epoch, stance_material

LABELS = ROOT / 'benchmarks' / 'labels'
SOURCES, MIX, MADE = ('made', 'trials', 'claims', 'general'), StanceMix(made=8000, on_marked=4, yes_no=0, claims=0), 30_000


def pairs(out: Path):
    material = stance_material(DATA, LABELS / 'claims.tsv', SOURCES)
    like_models = stance_material(DATA, LABELS / 'claims_like_models.tsv', ('claims',))
    row = lambda kind, claim, text, way, **more: {'kind': kind, 'asked': claim, 'said': linked(claim, text), 'way': way + 1, **more}
    made = [e for group in stance_epoch(material, MIX) for e in group if e.way is not None and not e.asked.rstrip().endswith('?')]
    written = [row('dev' if c.part == 'dev' else 'written', c.claim, said.text, c.way, manner=manner)
               for manner, of in (('own words', material), ('as models', like_models))
               for c, said in of.claims + of.dev_claims if not c.claim.rstrip().endswith('?')]
    rows = written + [row('made', e.asked, e.said.text, e.way) for e in random.Random(0).sample(made, min(MADE, len(made)))]
    ways = {'Supports': 1, 'Refutes': -1, 'Neutral': 0}
    rows += [row('healthver', claim, ' '.join(said.split()), ways[label]) for claim, said, label in healthver()]
    rows += [row('nli4ct', claim, ' '.join(s.split()), 1 if label == 'Entailment' else -1, group=str(n))
             for n, (claim, said, label) in enumerate(nli4ct()) for s in said]
    out.mkdir(parents=True, exist_ok=True)
    with open(out / 'pairs.jsonl', 'w', encoding='utf-8') as f: f.writelines(json.dumps(r) + '\n' for r in rows)
    torch.save({name: w.half() for name, w in all_layers('stance').items()}, out / 'trunk.pt')
    shutil.copy(shipped('stance') / 'tokenizer.json', out)
    (out / 'tokenizer_config.json').write_text(json.dumps({'tokenizer_class': 'BertTokenizerFast', 'model_max_length': 512}))
    print({kind: sum(r['kind'] == kind for r in rows) for kind in dict.fromkeys(r['kind'] for r in rows)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('out', type=Path, help='the folder to write')
    pairs(parser.parse_args().out)


if __name__ == '__main__': main()
