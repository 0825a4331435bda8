"""What is it worth to answer a question with the answers of questions like it, without and with a model that writes (RAG-BioQA)?

Pairs of PubMedQA's long answers (the 1,000 that experts labelled) and MedQuAD, split 70, 15 and 15 percent so that pairs that are alike
stay in one part, and once more plainly, as the paper says it does. The training part is the store; every question of the test part is
asked. The measures are those of the paper's Table 1, each with its interval, for each set by itself.

    python benchmarks/longform.py                  # the writers that copy; writes results/longform.json, goes on where it stopped
    python benchmarks/longform.py --embed pair     # question and answer embedded together, as in the paper: minutes more
    python benchmarks/longform.py --grid           # k and n too, on PubMedQA
    python benchmarks/longform.py --quotes         # the quoting reader too: a second a question
    python benchmarks/longform.py --stored pqa-l --words    # PubMedQA alone, without BERTScore and synonyms: under a minute of processor
    python benchmarks/longform.py --whole MODEL    # a base model, LoRA and full training of it, and all rerankers: needs a GPU

WordNet's part of METEOR is measured where nltk finds WordNet. MedQuAD's answers are long, so BERTScore
is on PubMedQA alone. A row that lacks a measure is scored again from the answers that were kept in --work.
"""
import argparse
import json
import sys
import time
from pathlib import Path

from common import DATA, RESULTS, save

from cpqa.answering.longform import PairRetriever, PairStore
from cpqa.answering.longform_writers import longform_writer
from cpqa.core.storage import cache_dir
from cpqa.evaluation.longform import LongformError, bertscore, meteor
from cpqa.evaluation.longform_runs import answer_pairs, longform_table
from cpqa.passages.rerankers import reranker
from cpqa.retrieval.encoders import encoder
from cpqa.retrieval.openvino_models import load_network
from cpqa.training.generator import GeneratorSettings, train_generator, training_texts
from cpqa.training.longform_pairs import build_longform, read_longform, read_part

SETS = ('pqa-l', 'medquad')
COPYING = [('strict', 'nearest', 'none', 16, 4), ('strict', 'sentences:2', 'none', 16, 4), ('strict', 'nearest', 'bm25', 16, 4),
           ('strict', 'sentences:2', 'bm25', 16, 4), ('plain', 'nearest', 'none', 16, 4)]
GRID = [('strict', 'sentences:2', by, k, n)
        for by, k, n in (('bm25', 8, 4), ('bm25', 32, 4), ('none', 16, 1), ('none', 16, 2), ('none', 16, 8))]
RERANKERS = ('none', 'bm25', 'colbert:colbertv2', 'monot5:base')


def folder_of(split: str, work: Path, given, embed: str, stored: str) -> Path:
    "The folder of a split, made if it is not there."
    folder = work / f'{split}-{embed}-{stored}'
    if not (folder / 'split.json').is_file():
        build_longform(DATA, folder, given, stored.split(','), embed, together=split == 'strict')
    return folder


def measures(name: str, words: bool = False) -> list:
    if words: return ['bleu1', 'rouge1_recall', 'rouge1', 'meteor']
    if name == 'medquad': return ['bleu1', 'rouge1_recall', 'rouge1', 'meteor']
    try: synonyms = [meteor(wordnet=True)]
    except LongformError: synonyms = []
    return ['bleu1', 'rouge1_recall', 'rouge1', 'meteor', *synonyms, bertscore()]


def row(system: tuple, name: str, folder: Path, store: PairStore, words: bool) -> dict:
    "One system on the test questions of one set."
    split, writer, by, k, n = system
    found = PairRetriever(store, None if by == 'none' else reranker(by, lambda: store.encoder), k, n)
    pairs = [p for p in read_part(folder, 'test') if p.source == name]
    file, begin = folder / f'{writer}-{by}-{k}-{n}-{name}.jsonl'.replace('/', '_').replace(':', '_'), time.perf_counter()
    done = answer_pairs(pairs, found, longform_writer(writer, lambda: store.encoder), file, f'test {name}')
    asked = time.perf_counter() - begin
    rows, scores = longform_table(done, pairs, measures(name, words))
    r = rows[-1]
    return {'set': name, 'split': split, 'writer': writer, 'reranker': by, 'k': k, 'n_contexts': n, 'n': r.n,
            'without an answer': r.missing, 'failed': done.n_failed, 'words': r.words, 'reference words': r.reference_words,
            'seconds': round(asked, 1),
            'flagged as opposed': len(scores.flagged),
            'measures': {scores[key].name: {'value': round(i.value, 4), 'interval': [round(i.low, 4), round(i.high, 4)]}
                         for key, i in r.measures.items()}}


def trained(base: str, folder: Path, store: PairStore, lora: int) -> str:
    "The folder of a generator trained on the training part, the paper's settings."
    settings = GeneratorSettings(base=base, lora=lora)
    out = folder / f'{Path(base).name}-{"lora" if lora else "full"}'
    tokenizer = load_network('AutoModelForSeq2SeqLM', base)[1]
    train_generator(training_texts(PairRetriever(store), read_part(folder, 'train'), tokenizer), out, settings)
    return f'model:{out}'


def whole(base: str, folder: Path, store: PairStore) -> list[tuple]:
    "The rows of the paper's Table 1, with the same trained generator for each reranker, and full training beside LoRA."
    lora, full = (trained(base, folder, store, rank) for rank in (16, 0))
    return [('strict', f'model:{base}', 'none', 16, 4), *(('strict', lora, by, 16, 4) for by in RERANKERS), ('strict', full, 'none', 16, 4),
            *(('strict', lora, 'none', k, n) for k, n in ((8, 4), (16, 1), (16, 2), (16, 8)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--embed', choices=('question', 'pair'), default='question')
    parser.add_argument('--encoder', help='as for cpqa index build')
    parser.add_argument('--work', type=Path, default=cache_dir() / 'longform')
    parser.add_argument('--stored', default=','.join(SETS), help='the sets that are split and stored')
    parser.add_argument('--sets', help='those of them whose test part is asked (default: all)')
    parser.add_argument('--words', action='store_true', help='measures of words and stems alone, which take no model and no WordNet')
    for flag in ('--grid', '--quotes'): parser.add_argument(flag, action='store_true')
    parser.add_argument('--whole', metavar='MODEL')
    args = parser.parse_args()
    given, stores = encoder(args.encoder), {}
    kept = RESULTS / 'longform.json'
    before = json.loads(kept.read_text()) if kept.is_file() else {'rows': [], 'parts': {}}
    rows, made = before['rows'], before['parts']
    systems = [*COPYING, *(GRID if args.grid else ()), *([('strict', 'quotes', 'none', 16, 4)] if args.quotes else ())]
    def store_of(split: str) -> tuple[Path, PairStore]:
        if split not in stores:
            folder = folder_of(split, args.work, given, args.embed, args.stored)
            stores[split] = folder, PairStore(folder / 'store', given)
        return stores[split]

    if args.whole: systems += whole(args.whole, *store_of('strict'))
    for name in (args.sets or args.stored).split(','):
        for system in systems:
            if system in GRID and name != 'pqa-l': continue
            key = {**dict(zip(('split', 'writer', 'reranker', 'k', 'n_contexts'), system)), 'set': name, 'embed': args.embed,
                   'stored': args.stored}
            place = next((i for i, r in enumerate(rows) if all(r.get(k) == v for k, v in key.items())), None)
            known = {} if place is None else rows[place]
            if len(known.get('measures', ())) >= len(measures(name, args.words)): continue
            made_now = {**row(system, name, *store_of(system[0]), args.words), 'embed': args.embed, 'stored': args.stored}
            if known: rows[place] = made_now | {'seconds': known['seconds']}   # answered before, and only scored anew
            else: rows.append(made_now)
            print(json.dumps(made_now), file=sys.stderr, flush=True)
            made |= {f'{s}, {args.stored}': read_longform(f).to_dict() for s, (f, _) in stores.items()}
            save('longform', {'encoder': given.describe(), 'parts': made, 'rows': rows})


if __name__ == '__main__': main()
