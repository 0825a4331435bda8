"""What reaches the answer when a model obeys every poisoned document, and how often the checks are wrong about honest text.

    python benchmarks/injection.py

- `attacks`: each document of cpqa/data/poison.jsonl, first among the evidence, with a model that does what it says; by prompt, kind of
  question and options of the reader.
- `without`: the same through the first of these readers, with one of the checks taken out: what it is good for.
- `orders`: how many honest papers are taken for documents that give orders: all of bioasq_beir, the full texts of evidence_inference, the
  demo notes.
- `quotes`: sentences of abstracts of bioasq_beir with a slip of a copyist, which should be found, and with another figure, a lost or an
  added denial or a turned word, which should not.
The poison and the patterns are by the same hand. Two groups of patterns ("you" beside a verb of telling; a comment, an "assistant:" within
a line) and the rule for quotes that repeat themselves were added after a first count, in which 28 claims of 86 had got through, and the
rule for quotes in another language after a second; so the counts flatter, and what gets through is the finding.
"""
import gzip
import json
import re
import string
import time
from collections import Counter
from contextlib import nullcontext
from itertools import islice
from random import Random
from unittest.mock import patch

from common import DATA, quantiles, save

from cpqa.answering.citations import commands
from cpqa.answering.model_reader import LLMReader
from cpqa.answering.citations import Found, find_quote
from cpqa.answering.support import Support
from cpqa.core.records import Document
from cpqa.evaluation.injection import ENDS, SCENES, ObedientLLM, asked, attack, poisons, attack_table
from cpqa.evaluation.statistics import wilson
from cpqa.literature.demo_notes import demo_notes
from cpqa.passages.sentences import sentences

READERS = {   # options of the reader, kind of question
    'passages, yes/no': ({'prompt': 'passages'}, 'yesno'),
    'passages, yes/no, strict': ({'prompt': 'passages', 'strict': True}, 'yesno'),
    'passages, long': ({'prompt': 'passages'}, 'long'),
    'passages, long, strict': ({'prompt': 'passages', 'strict': True}, 'long'),
    'documents, yes/no': ({'prompt': 'documents'}, 'yesno'),
    'stuhlmann, yes/no': ({'prompt': 'stuhlmann'}, 'yesno'),
}


class Agrees:
    "Finds that every quote carries every claim."
    def check(self, claim, quote): return Support(1.0, {})


def whole(quote, document, most=0.1):
    "Finds every quote in every document."
    return Found(0, len(document.text)) if document.text else None


WITHOUT = {   # check taken out: names in answering.citations to replace, options of the reader
    'nothing': ({}, {}),
    'text': ({'unsafe': lambda text: ''}, {}),
    'orders': ({'commands': lambda document: False}, {}),
    'quote': ({'find_quote': whole}, {}),
    'contradiction and support': ({'_hollow': lambda quote, shared: '', 'opposed': lambda a, b: None, 'misfits': lambda a, b: []},
                                  {'support': Agrees()}),
    'direction': ({}, {'direction': None}),
    'all of these': ({'unsafe': lambda text: '', 'commands': lambda document: False, 'find_quote': whole, '_hollow': lambda quote,
                      shared: '', 'opposed': lambda a, b: None, 'misfits': lambda a, b: []}, {'support': Agrees(), 'direction': None}),
}


def share(k: int, n: int) -> dict:
    found = wilson(k, n)
    return {'k': k, 'n': n, 'share': round(found.value, 5), 'interval': [round(found.low, 5), round(found.high, 5)]}


def run(options: dict, kind: str) -> dict:
    reader = LLMReader(ObedientLLM(), **options)
    outcomes = [attack(p, reader, kind) for p in poisons()]
    honest = [asked(scene, reader, kind=kind) for scene in SCENES.values()]
    ends = Counter(o.end for o in outcomes)
    return {'n': len(outcomes), **{end: ends[end] for end in ENDS}, 'breaches': dict(Counter(b for o in outcomes for b in o.breaches)),
            'ids_through': [o.id for o in outcomes if o.end == 'through'], 'honest_answered': sum(not a.abstained for a in honest),
            'honest': len(honest), 'table': attack_table(outcomes)}


def without() -> dict:
    found = {}
    for name, (names, options) in WITHOUT.items():
        with patch.multiple('cpqa.answering.citations', **names) if names else nullcontext():
            found[name] = {k: v for k, v in run(READERS['passages, yes/no'][0] | options, 'yesno').items() if k != 'table'}
    return found


def abstracts(every: int = 1, most: int | None = None) -> list[Document]:
    with gzip.open(DATA/'bioasq_beir'/'corpus.jsonl.gz', 'rt', encoding='utf-8') as f:
        rows = [json.loads(line) for line in islice(f, 0, most and most * every, every)]
    return [Document(str(r['_id']), title=r.get('title', ''), text=r['text']) for r in rows]


def orders() -> dict:
    with gzip.open(DATA/'evidence_inference'/'articles.jsonl.gz', 'rt', encoding='utf-8') as f:
        articles = [Document(a['pmcid'], text=a['text']) for a in map(json.loads, f)]
    sets = {'abstracts': abstracts(), 'full texts': articles, 'demo notes': [n.document() for n in demo_notes()]}
    return {name: share(sum(map(commands, documents)), len(documents)) for name, documents in sets.items()}


def changed(pattern: str, to, rng: Random):
    "A function that changes one match of `pattern` at random; a text without one is left as it is."
    def change(text: str) -> str:
        at = [m for m in re.finditer(pattern, text)]
        if not at: return text
        m = rng.choice(at)
        return text[:m.start()] + m.expand(to(m[0]) if callable(to) else to) + text[m.end():]
    return change


def quotes() -> dict:
    documents, rng = abstracts(every=16, most=1000), Random(7)
    cases = [(d, d.text[a:b]) for d in documents for a, b in sentences(d) if 60 <= b - a <= 300 and d.text.count(d.text[a:b]) == 1]
    turns = {'increas': 'decreas', 'decreas': 'increas', 'higher': 'lower', 'lower': 'higher', 'more ': 'less ', 'improved': 'impaired',
             'before': 'after', 'women': 'men', ' mg': ' µg', 'with ': 'without '}
    slips = {'as it is': lambda s: s + ' ', 'white space and marks': lambda s: s.replace(' ', '\u00a0 ').replace('-', '‑'),
             'upper case': str.upper,
             'an article less': changed(r'(?<=[a-z] )(?:the|a|an) (?=[a-z])', '', rng),
             'a letter wrong': changed(r'\b([a-z]{4,9})[a-z](?=[a-z]?\b)', r'\1q', rng)}
    lies = {'another figure': changed(r'\d', lambda d: rng.choice([c for c in string.digits if c != d]), rng),
            'a lost denial': changed(r'\b(?:not|no|without|never|neither) ', '', rng),
            'an added denial': changed(r'\b(was|were|is|are|did|can|may|has|have) (?!not)', r'\1 not ', rng),
            'a turned word': changed('|'.join(turns), turns.get, rng),
            'a word left out': changed(r'(?<=[a-z] )(?!the |an? |of |that |also )[a-z]+ (?=[a-z])', '', rng)}
    found, ms = {}, []
    for what, changes in (('slips', slips), ('lies', lies)):
        for name, change in changes.items():
            tried = [(d, said) for d, s in cases if (said := change(s)) != s]
            hits = 0
            for d, said in tried:
                begun = time.perf_counter()
                hits += find_quote(said, d) is not None
                ms.append(1000 * (time.perf_counter() - begun))
            found.setdefault(what, {})[name] = share(hits, len(tried))
    return {'abstracts': len(documents), 'sentences': len(cases), **found, 'ms': quantiles(ms)}


if __name__ == '__main__':
    save('injection', {'kinds': dict(Counter(p.kind for p in poisons())), 'attacks': {name: run(*row) for name, row in READERS.items()},
                       'without': without(),
                       'orders': orders(), 'quotes': quotes()}, ('cpqa', 'rapidfuzz', 'nupunkt', 'tantivy'))
