"""How fast is PubMed XML read, and with how much memory?

    python benchmarks/read_pubmed.py [--citations 30000] [--runs 5]
    python benchmarks/read_pubmed.py --limits [--citations 4000]      # where the time goes, in seconds of the processor, in one process

One file in the form of NLM's baseline, of as many citations as a baseline file holds. Titles and abstracts are those of the BEIR
corpus of BioASQ (some twice, under other PMIDs; where it has no title, the first 14 words); what it lacks is invented and of
realistic size: authors with affiliations, journals, MeSH headings, chemicals, keywords, history, identifiers, for every fifth citation a
list of 30 references, and for every 15th some markup in the title and abstract.
Each reader reads the whole file in a process of its own, in turn with the others, several times; the slow ones only in the first two
rounds, so that all ends in under ten minutes on two quiet cores:

- Biopython's Entrez.read, which makes objects of everything (the reference; Entrez.parse refuses article sets), a thousand records
  at a time, so that they need not all be held;
- pubmed_parser's parse_medline_xml, which reads packed files alone (the peer);
- cpqa's read_pubmed, on the packed and the unpacked file, and on two files side by side with read_files;
- cpqa's slow way, a tree for every record, which read_pubmed takes for unusual ones alone.

--limits takes the time of the parts alone, and of other parsers on the same records: bare libxml2 that builds nothing, lxml's tree, and
what PyPI has that may be faster where it is installed (pygixml, which is pugixml; selectolax, which is Lexbor, made for HTML).

All must have found the same PMIDs and, markup and white space apart, the same titles. Ratios are taken within a round, of wall-clock
time and, as `cpu`, of the processor's time, which other programs on the machine disturb less.
"""
import argparse
import gzip
import importlib
import io
import itertools
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
import zlib
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import DATA, RESULTS, interval, peak_mb, save
from lxml import etree
from lxml.builder import E
from msgspec.structs import astuple

from cpqa.core.records import Document, MeshHeading, MeshTerm
from cpqa.core.storage import cache_dir
from cpqa.literature import pubmed_fast
from cpqa.literature.pubmed_writer import PUBMED_DOCTYPE, pubmed_xml

BASELINE = 38_000_000    # citations in a whole baseline, as the issue states it
SEED = 20260101
WHOLE = 30_000           # citations in one of its files; with fewer, a trial, nothing is saved


# ---- the file

WORDS = ('tumour cell growth therapy risk gene receptor marker survival response dose protein pathway imaging lung breast colon '
         'blood bone liver').split()
NAMES = ('Anders Brandt Costa Dubois Eriksen Fischer Garcia Haddad Ivanov Jensen Kimura Lopez Moreau Novak Okafor Petrov Quist '
         'Rossi Sato Tanaka').split()


def term(kind: str, vocabulary: int, rng: random.Random) -> MeshTerm:
    "One of the terms of a vocabulary, the n-th of which is used in proportion to 1/n, as words are."
    n = int(vocabulary ** rng.random())
    words = random.Random(f'{kind}{n}')
    return MeshTerm(' '.join(words.choice(WORDS) for _ in range(2)).capitalize(), f'{kind}{n:06}', rng.random() < .2)


def invented(d: Document, n: int, rng: random.Random) -> Document:
    "`d` with what BEIR does not say about it."
    mesh = tuple(MeshHeading(term('D', 30_000, rng),
                             tuple(term('Q', 76, rng) for _ in range(rng.choice((0, 0, 1, 2))))) for _ in range(rng.randint(5, 16)))
    # a file of 30,000 comes from some thousands of journals, a few of them large
    of_journal = random.Random(f'J{int(6_000 ** rng.random())}')
    year, journal = rng.randint(1975, 2024), ' '.join(of_journal.choice(WORDS) for _ in range(4)).capitalize()
    authors = tuple(f'{rng.choice(NAMES)} {"".join(rng.sample("ABCDEFGHJKLMNPRST", rng.randint(1, 2)))}' for _ in range(rng.randint(1, 9)))
    title = d.title or ' '.join(d.text.split()[:14]).rstrip('.') + '.'
    return Document(str(n), title=title, text=d.text, year=year, date=f'{year}-{rng.randint(1, 12):02}' if rng.random() < .8 else f'{year}',
                    journal=journal, journal_abbr=' '.join(w[:4] for w in journal.split()).title(), authors=authors, mesh=mesh,
                    languages=('eng',),
                    publication_types=('Journal Article', "Research Support, Non-U.S. Gov't")[:rng.randint(1, 2)],
                    doi=f'10.1000/toy.{n}', pmcid=f'PMC{n}' if rng.random() < .25 else '')


def element(tag, *inside, **attributes): return E(tag, attributes, *inside)


def fuller(e: etree._Element, n: int, rng: random.Random) -> etree._Element:
    "A record with the parts that a baseline has and a Document does not keep."
    c, number = e.find('MedlineCitation'), lambda: str(rng.randint(1, 400))
    c.insert(1, element('DateCompleted', element('Year', '2001'), element('Month', '02'), element('Day', '03')))
    journal, issue = c.find('Article/Journal'), c.find('Article/Journal/JournalIssue')
    journal.insert(0, element('ISSN', '1234-5678', IssnType='Electronic'))
    issue[:] = [element('Volume', number()), element('Issue', '3'), *issue]
    c.find('Article').insert(2, element('Pagination', element('StartPage', number()), element('EndPage', number()),
                                        element('MedlinePgn', '113-25')))
    for a in c.iterfind('Article/AuthorList/Author'):
        a.insert(1, element('ForeName', rng.choice(NAMES)))
        place = (f'Department of {rng.choice(WORDS).title()} Research, University of {rng.choice(NAMES)}, 12 {rng.choice(NAMES)} Street, '
                 'Toytown, Toyland.')
        if rng.random() < .7: a.append(element('AffiliationInfo', element('Affiliation', place)))
    info = c.find('MedlineJournalInfo')
    info.insert(0, element('Country', 'United States')), info.extend([element('NlmUniqueID', '9891830'),
                                                                      element('ISSNLinking', '1234-5678')])
    chemicals = [element('Chemical', element('RegistryNumber', '0'),
                         element('NameOfSubstance', rng.choice(WORDS).title(), UI='D000970')) for _ in range(rng.randint(0, 5))]
    if chemicals: info.addnext(element('ChemicalList', *chemicals))
    keywords = [element('Keyword', rng.choice(WORDS), MajorTopicYN='N') for _ in range(rng.randint(0, 6))]
    if keywords: c.append(element('KeywordList', *keywords, Owner='NOTNLM'))
    if n % 5 == 0: e.find('PubmedData').append(element('ReferenceList', *(reference(rng) for _ in range(30))))
    if n % 15 == 0:
        for t in (c.find('Article/ArticleTitle'), c.find('Article/Abstract/AbstractText')): mark(t)
    etree.indent(e.find('PubmedData'), level=2)
    for part in c.iter('Author', 'Journal', 'Article', 'MedlineJournalInfo', 'MedlineCitation'): part.text = '\n        '
    return e


def reference(rng: random.Random) -> etree._Element:
    words = ' '.join(rng.choice(WORDS) for _ in range(12)).capitalize()
    return element('Reference',
                   element('Citation', f'{rng.choice(NAMES)} A, {rng.choice(NAMES)} B. {words}. J Toy Res. '
                                       f'2010;{rng.randint(1, 99)}:11-19.'),
                   element('ArticleIdList', element('ArticleId', str(rng.randrange(10**8)), IdType='pubmed')))


def mark(e: etree._Element | None):
    "Sets the second word of `e` in italics."
    if e is None or e.text.count(' ') < 2: return
    first, second, rest = e.text.split(' ', 2)
    i = element('i', second)
    e.text, i.tail = first + ' ', ' ' + rest
    e.append(i)


def make(path: Path, n: int):
    "A baseline file of `n` citations, and the same packed."
    rng = random.Random(SEED)
    with gzip.open(DATA / 'bioasq_beir' / 'corpus.jsonl.gz', 'rt') as f: lines = [json.loads(line) for line in f]
    part = path.with_suffix('.part')
    with open(part, 'wb') as f:
        f.write(f'<?xml version="1.0" encoding="utf-8"?>\n{PUBMED_DOCTYPE}\n<PubmedArticleSet>\n'.encode())
        for i, line in enumerate(itertools.islice(itertools.cycle(lines), n), 1):
            e = pubmed_xml(invented(Document(str(i), title=line['title'], text=line['text']), i, rng))
            fuller(e, i, rng)
            etree.indent(e, level=1)
            f.write(b'  ' + etree.tostring(e, encoding='utf-8') + b'\n')
        f.write(b'</PubmedArticleSet>\n')
    with open(part, 'rb') as f, gzip.open(f'{path}.gz', 'wb', 6) as packed:
        while block := f.read(2**20): packed.write(block)
    part.rename(path)


# ---- the readers: each yields PMID and title

def biopython(path):
    from Bio import Entrez
    opening = b''
    with open(path, 'rb') as f:
        while not opening.endswith(b'<PubmedArticleSet>\n'): opening += f.readline()
        block, n = [], 0
        for line in f:
            block.append(line)
            n += line == b'  </PubmedArticle>\n'
            if n == 1000 or line == b'</PubmedArticleSet>\n':
                if n:
                    for a in Entrez.read(io.BytesIO(opening
                                                    + b''.join(block) + (b'</PubmedArticleSet>' if n == 1000
                                                        and line != b'</PubmedArticleSet>\n' else b'')))['PubmedArticle']:
                        yield str(a['MedlineCitation']['PMID']), str(a['MedlineCitation']['Article']['ArticleTitle'])
                block, n = [], 0


def pubmed_parser(path):
    from pubmed_parser import parse_medline_xml
    for a in parse_medline_xml(path): yield a['pmid'], a['title']


def cpqa(path):
    from cpqa.literature.pubmed import read_pubmed
    for d in read_pubmed(path): yield d.id, d.title


def cpqa_tree(path):
    from cpqa.literature.pubmed import read_slowly
    for d in read_slowly(Path(path)): yield d.id, d.title


def cpqa_two_files(path):
    from cpqa.literature.parallel_reading import read_files
    for d in read_files([path, path], workers=2): yield d.id, d.title


READERS = {   # name: the reader, what it is given, how many times it reads the file
    'biopython (reference)': (biopython, '', 1), 'pubmed_parser, packed (peer)': (pubmed_parser, '.gz', 1), 'cpqa': (cpqa, '', 1),
    'cpqa, packed': (cpqa, '.gz', 1),
    'cpqa, a tree each': (cpqa_tree, '', 1), 'cpqa, packed, two files side by side': (cpqa_two_files, '.gz', 2)}
SLOW, SLOW_RUNS = ('biopython (reference)', 'pubmed_parser, packed (peer)', 'cpqa, a tree each'), 2


MODULES = {'biopython': 'Bio.Entrez', 'pubmed_parser': 'pubmed_parser', 'cpqa': 'cpqa.literature.parallel_reading'}


def squeezed(title: str) -> str: return re.sub(r'<[^<>]*>|[\s^_]', '', title)


def read(which: str, path: str):
    "Reads the file once and prints how many records, how long, peak memory, and a sum of the PMIDs and titles."
    reader, packed, _ = READERS[which]
    importlib.import_module(next(m for name, m in MODULES.items() if which.startswith(name)))      # loading is not reading
    found, n, digest, start, cpu = [], 0, 0, time.perf_counter(), time.process_time()
    for pmid, title in reader(path + packed):
        n += 1
        if n <= CHECKED: found.append((pmid, squeezed(title or '')))
        digest = (digest * 31 + int(pmid)) % (2**61 - 1)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({'records': n, 'seconds': seconds, 'cpu_seconds': cpu, 'peak_memory_mb': peak_mb(resource.RUSAGE_SELF),
                      'pmids': digest,
                      'titles': zlib.crc32(repr(found).encode())}))


CHECKED = 5_000     # titles compared, so that a list of them does not count as the reader's memory or time


def in_a_process(which: str, path: Path) -> dict:
    done = subprocess.run([sys.executable, __file__, '--read', which, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def row(runs: list[dict], times: int, size: float, n: int) -> dict:
    seconds = float(np.median([r['seconds'] for r in runs]))
    # that of workers is not counted
    cpu = {'cpu_seconds': round(float(np.median([r['cpu_seconds'] for r in runs])), 2)} if times == 1 else {}
    return {'seconds': round(seconds, 2), 'all_seconds': [round(r['seconds'], 2) for r in runs], **cpu,
            'mb_per_second': round(times * size / seconds, 1),
            'citations_per_second': round(times * n / seconds), 'peak_memory_mb': max(r['peak_memory_mb'] for r in runs),
            'hours_for_a_baseline': round(BASELINE / (times * n / seconds) / 3600, 2)}


def ratio(ours: list[dict], theirs: list[dict]) -> dict:
    "How many times faster, in each round that both ran in, with the interval of the mean; and the same of the processor's time alone."
    each, cpu = ([t[key] / o[key] for o, t in zip(ours, theirs)] for key in ('seconds', 'cpu_seconds'))
    return {'mean': round(float(np.mean(each)), 2), 'interval': interval(each), 'runs': [round(x, 2) for x in each],
            'cpu': round(float(np.mean(cpu)), 2)}


# ---- the limits

FIELDS = '//PMID|//ArticleTitle|//AbstractText|//LastName|//Initials|//DescriptorName|//PublicationType|//Language|//ArticleId'
FALSE = {'an unknown entity': b'<a>&nothing;</a>', 'an attribute twice': b'<a b="1" b="2"/>', 'bytes that are no UTF-8': b'<a>\xff\xfe</a>',
         'a control character': b'<a>\x01</a>', 'a bare &': b'<a>this & that</a>', 'a tag left open': b'<a><b></a>'}


def bare(data: bytes):
    "Bare libxml2: everything is parsed, and nothing is built."
    parser = etree.XMLParser(target=pubmed_fast._NoTree(), **pubmed_fast.SAFE_XML)
    for i in range(0, len(data), 2**17): parser.feed(data[i:i + 2**17])
    parser.close()


def trees(path: Path):
    for _, e in etree.iterparse(str(path), events=('end',), tag='PubmedArticle', **pubmed_fast.SAFE_XML): e.clear()


def fields(records: list[bytes]):
    import pygixml
    wanted = pygixml.XPathQuery(FIELDS)
    for r in records:
        tree = pygixml.parse_string(r.decode())   # held: a node whose document is gone ends the process
        for x in wanted.evaluate_node_set(tree.root): x.node.text()


def refused(parse) -> list[str]:
    "What a parser refuses of what is no XML."
    out = []
    for name, xml in FALSE.items():
        try: parse(xml)
        except (ValueError, etree.XMLSyntaxError): out.append(name)
    return out


def limits(n: int) -> dict:
    "Seconds of the processor, the least of three, for each part of our reader and for other parsers."
    path = made(n)
    data, sound = path.read_bytes(), pubmed_fast._WellFormed()
    with open(path, 'rb') as f: records = [piece for _, piece, _ in pubmed_fast.record_pieces(f)]
    documents = [pubmed_fast._document(r.removesuffix(pubmed_fast._END)) for r in records]
    kept = [astuple(d) for d in documents]
    ways = {'cpqa, all of it': lambda: sum(1 for _ in pubmed_fast.quick_records(io.BytesIO(data))),
            'of which: is it XML? (libxml2, record by record)': lambda: [sound(r) for r in records],
            'of which: fields found, decoded, made into documents':
                lambda: [pubmed_fast._document(r.removesuffix(pubmed_fast._END)) for r in records],
            'of that: objects of fields that are there': lambda: [Document(*k) for k in kept],
            'libxml2 alone, nothing built': lambda: bare(data), 'lxml, a tree each, nothing read': lambda: trees(path)}
    checks = {'libxml2': refused(lambda xml: etree.fromstring(xml, etree.XMLParser(**pubmed_fast.SAFE_XML)))}
    if find_spec('pygixml'):
        import pygixml
        ways['pygixml, a tree each, nothing read'] = lambda: [pygixml.parse_string(r.decode()) and None for r in records]
        ways['pygixml, nine fields of each as text'] = lambda: fields(records)
        checks['pygixml'] = refused(lambda xml: pygixml.parse_string(xml.decode()))
    if find_spec('selectolax'):
        from selectolax.lexbor import LexborHTMLParser
        ways['selectolax, a tree each, nothing read'] = lambda: [LexborHTMLParser(r) and None for r in records]
    took = {name: min(seconds_of(way) for _ in range(3)) for name, way in ways.items()}
    return {'n': n, 'file_mb': round(len(data) / 1e6, 1), 'date': date.today().isoformat(), 'load_average': round(os.getloadavg()[0], 1),
            'rows': {name: {'cpu_seconds': round(s, 3), 'mb_per_second': round(len(data) / 1e6 / s, 1)} for name, s in took.items()},
            'not_xml': list(FALSE), 'refused': checks,
            'versions': {p: version(p) for p in ('lxml', 'pygixml', 'selectolax') if find_spec(p)}}


def seconds_of(way) -> float:
    began = time.process_time()
    way()
    return time.process_time() - began


def made(n: int) -> Path:
    path = cache_dir() / f'benchmark_{SEED}_{n}.xml'
    if not path.exists(): path.parent.mkdir(parents=True, exist_ok=True), make(path, n)
    return path


def add_limits(n: int):
    "Puts the limits beside what was measured before."
    path = RESULTS / 'read_pubmed.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | {'limits': limits(n)}, indent=1, ensure_ascii=False) + '\n')


def main(n: int, times: int):
    path = made(n)
    runs: dict[str, list[dict]] = {which: [] for which in READERS}
    for turn in range(times):
        for which in READERS:
            if turn < SLOW_RUNS or which not in SLOW: runs[which].append(in_a_process(which, path))
        print(f'run {turn + 1} of {times}', file=sys.stderr)
    single = {which: r[0] for which, r in runs.items() if READERS[which][2] == 1}
    for key in ('records', 'pmids', 'titles'):
        assert len({r[key] for r in single.values()}) == 1, f'the readers found different {key}: {single}'
    assert runs['cpqa, packed, two files side by side'][0]['records'] == 2 * n == 2 * single['cpqa']['records']
    size = path.stat().st_size / 1e6
    result = {
        'n': n, 'runs': times, 'runs_of_the_slow': min(times, SLOW_RUNS), 'file_mb': round(size, 1),
        'packed_mb': round(Path(f'{path}.gz').stat().st_size / 1e6, 1), 'bytes_per_citation': round(size * 1e6 / n),
        'rows': {which: row(r, READERS[which][2], size, n) for which, r in runs.items()},
        'ratio_to_biopython': ratio(runs['cpqa'], runs['biopython (reference)']),
        'ratio_to_pubmed_parser': ratio(runs['cpqa, packed'], runs['pubmed_parser, packed (peer)']),
        'ratio_to_a_tree_each': ratio(runs['cpqa'], runs['cpqa, a tree each']),
        'baseline': {'citations': BASELINE, 'gb_if_all_are_of_this_size': round(BASELINE * size / n / 1000),
                     'assumption': 'citations of the size of these, all files packed, one core'}}
    kept = json.loads((RESULTS / 'read_pubmed.json').read_text()).get('limits')
    if kept: result['limits'] = kept
    if n == WHOLE: save('read_pubmed', result, packages=('cpqa', 'lxml', 'numpy', 'biopython', 'pubmed_parser'))
    else: print(json.dumps(result, indent=1))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--citations', type=int, default=WHOLE)
    p.add_argument('--runs', type=int, default=5)
    p.add_argument('--limits', action='store_true')
    p.add_argument('--read', nargs=2)
    a = p.parse_args()
    if a.read: read(*a.read)
    elif a.limits: add_limits(a.citations if a.citations != WHOLE else 4_000)
    else: main(a.citations, a.runs)
