"""How fast is PubMed XML read, and with how much memory?

    python benchmarks/read_pubmed.py [--records 4000]

The real efetch records of the data folder, repeated; each reader in a process of its own, so that peak memory is its own.
The reference, in the same run: Biopython's Entrez.read on the same file. It keeps all records in memory, since its streaming
Entrez.parse refuses article sets.
"""
import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import DATA, peak_mb, save
from lxml import etree


def write(path: Path, n: int):
    "A PubmedArticleSet of `n` records, taken in turn from the real ones."
    trees = [etree.parse(str(p)) for p in sorted((DATA / 'entrez').glob('pubmed*.xml'))]
    records = [etree.tostring(a, encoding='unicode', with_tail=False) for t in trees for a in t.iter('PubmedArticle')]
    head = trees[0].docinfo.doctype
    with open(path, 'w', encoding='utf-8') as f:
        f.write(f'<?xml version="1.0" ?>\n{head}\n<PubmedArticleSet>\n')
        f.writelines(r + '\n' for r in itertools.islice(itertools.cycle(records), n))
        f.write('</PubmedArticleSet>\n')


def read(which: str, path: str):
    "Reads the file once and prints how many records, how long, and the peak memory of this process."
    start = time.perf_counter()
    if which == 'cpqa':
        from cpqa.literature.pubmed import read_pubmed
        n = sum(1 for _ in read_pubmed(path))
    else:
        from Bio import Entrez
        with open(path, 'rb') as f: n = len(Entrez.read(f)['PubmedArticle'])
    print(json.dumps({'records': n, 'seconds': time.perf_counter() - start,
                      'peak_memory_mb': peak_mb(resource.RUSAGE_SELF)}))


def main(n: int):
    with tempfile.TemporaryDirectory() as work:
        path, rows = Path(work) / 'set.xml', {}
        write(path, n)
        size = path.stat().st_size / 1e6
        for which in ('cpqa', 'biopython (reference)'):
            done = subprocess.run([sys.executable, __file__, '--read', which, str(path)], capture_output=True, text=True, check=True)
            row = json.loads(done.stdout)
            rows[which] = {'records': row['records'], 'seconds': round(row['seconds'], 2), 'records_per_second': round(row['records'] / row['seconds']),
                           'mb_per_second': round(size / row['seconds'], 1), 'peak_memory_mb': row['peak_memory_mb']}
    ours, theirs = rows.values()
    save('read_pubmed', {'n': n, 'file_mb': round(size, 1), 'rows': rows, 'ratio_to_reference': round(ours['records_per_second'] / theirs['records_per_second'], 2)},
         packages=('cpqa', 'lxml', 'biopython'))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--records', type=int, default=4000)
    p.add_argument('--read', nargs=2)
    a = p.parse_args()
    if a.read: read(*a.read)
    else: main(a.records)
