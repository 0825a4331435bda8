"""Can the cosine of the encoder tell that two claims of a model say the same?

    python benchmarks/same_claims.py REPLIES [--save]

REPLIES are JSON lines with what a model wrote as `text`; those with several claims count. Pairs of claims of one reply that differ in words
(`cpqa.answering.citations` joins the others already) get their cosine. Then each claim is altered in one word, so that it says another
thing: the first number is raised by one, the first word of a direction turned, or the first verb denied; and it gets its cosine with itself
before. If the altered ones lie as near as paraphrases do, no threshold can join the one and leave the other.
"""
import argparse
import itertools
import json
import re

import numpy as np
from common import PACKAGES, save

from cpqa.answering.citations import _statement
from cpqa.core.records import CheckedClaim
from cpqa.retrieval.encoders import EmbeddedEncoder

TURNED = {a: b for x, y in (('increased', 'reduced'), ('increases', 'reduces'), ('higher', 'lower'), ('positive', 'negative'),
                            ('improved', 'worsened'), ('improves', 'worsens')) for a, b in ((x, y), (y, x))}
NUMBER, VERB = re.compile(r'(?<![\w-])\d+(?![\w-])'), re.compile(r'\b(?:is|are|was|were|can|may)\b(?! not)')
WAY = re.compile(rf'\b(?:{"|".join(TURNED)})\b')


def claims_of(text: str) -> list[dict]:
    try: said = json.JSONDecoder().raw_decode(text, text.index('{'))[0]
    except ValueError: return []
    made = said.get('claims') if isinstance(said, dict) else None
    return [c for c in made or [] if isinstance(c, dict) and isinstance(c.get('text'), str) and c['text'].strip()]


def pairs(drafts: list[list[dict]]) -> dict[tuple[str, str], bool]:
    "Two texts of one reply that differ in words -> do they quote the same of the same paper?"
    found = {}
    for a, b in (pair for claims in drafts for pair in itertools.combinations(claims, 2)):
        x, y = sorted((a['text'], b['text']))
        if _statement(CheckedClaim(x)) == _statement(CheckedClaim(y)): continue
        found[x, y] = all(str(a.get(part)) == str(b.get(part)) for part in ('pmid', 'quote'))
    return found


def altered(texts: list[str]) -> dict[str, list[tuple[str, str]]]:
    ways = {'another number': (NUMBER, lambda m: str(int(m[0]) + 1)), 'the other direction': (WAY, lambda m: TURNED[m[0]]),
            'denied': (VERB, lambda m: f'{m[0]} not')}
    return {name: [(t, how.sub(to, t, count=1)) for t in texts if how.search(t)] for name, (how, to) in ways.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    p.add_argument('replies')
    p.add_argument('--save', action='store_true')
    a, encoder = p.parse_args(), EmbeddedEncoder()
    with open(a.replies, encoding='utf-8') as f: drafts = [c for line in f if len(c := claims_of(json.loads(line)['text'])) > 1]
    found = pairs(drafts)
    texts = sorted({t for pair in found for t in pair})
    near = lambda both: (encoder.encode([x for x, _ in both], 'passage') * encoder.encode([y for _, y in both], 'passage')).sum(1)
    told = lambda c: {'n': len(c), 'median': round(float(np.median(c)), 3), 'at least .95': int((c >= .95).sum()),
                      'at least .9': int((c >= .9).sum())}
    result = {'replies': len(drafts), 'claims': sum(map(len, drafts)), 'in other words': told(near([*found])),
              'in other words, of the same quote': told(near([pair for pair, same in found.items() if same])),
              **{name: told(near(both)) for name, both in altered(texts).items()}}
    if a.save: save('same_claims', result, PACKAGES)
    else: print(json.dumps(result, indent=1))


if __name__ == '__main__': main()
