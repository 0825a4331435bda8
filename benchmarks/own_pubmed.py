"""Is a library from PubMed that was killed on its way the same as an undisturbed one, and what do getting and updating it cost?

    python benchmarks/own_pubmed.py [FOLDER]

16,000 documents of bioasq_beir, with made dates, lie behind `cpqa entrez serve` with faults on; it has 15,767 with a text, and some of
them come twice, under other PMIDs. `cpqa library get` fetches them without disturbance, and again with ten kills -9 on the way, one after
each tenth of the pages, the last while the library is built; then 500 are new, 200 revised and 50 deleted, and `cpqa library update` is
given, once undisturbed and once with four kills, one after each page. The server is on the same machine, so what NCBI takes to answer is
not in these times.
"""
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from common import DATA, peak_mb, save
from msgspec.structs import replace

from cpqa.core.records import Document
from cpqa.core.storage import beside
from cpqa.literature.article_files import documents
from cpqa.literature.library import Library, build_library
from cpqa.literature.pubmed_records import tidy
from cpqa.local_ncbi.entrez_server import EntrezServer
from cpqa.retrieval.term_search import TermRetriever

N, NEW, REVISED, GONE = 16_000, 500, 200, 50
FAULTS = '429=3,efetch:500=3%,efetch:cut=3%,efetch:lose=3%,efetch:short=2%,esearch:html=1,epost:down=1'
TODAY = datetime.now(UTC).date().isoformat()
PAGE = 200                                        # records of a page of the spool
QUERIES = ('tamoxifen breast cancer', 'vitamin D', 'which genes are mutated in melanoma', 'statins mortality', 'IL-2')


def dated(d: Document, n: int, revised: str = '2024-01-01') -> Document:
    "The document with a date: the corpus has none."
    return replace(d, id=d.id if d.id.isdigit() else str(90_000_000 + n), year=1990 + n % 34, date=f'{1990 + n % 34}-{1 + n % 12:02}',
                   revised=revised)


def again(some: list[Document], first: int, **more) -> list[Document]:
    "The same documents under other PMIDs."
    return [replace(d, id=str(first + n), **more) for n, d in enumerate(some)]


def corpora() -> tuple[list[Document], list[Document]]:
    "What PubMed holds now, and later."
    every = [dated(d, n) for n, d in enumerate(documents(DATA / 'bioasq_beir' / 'corpus.jsonl.gz')) if d.text.strip()]
    every = list({d.id: d for d in every}.values())
    now = [*every, *again(every[:N - len(every)], 70_000_000)]
    later = [*(replace(d, text=f'Revised. {d.text}', revised=TODAY) if n < GONE + REVISED else d for n, d in enumerate(now) if n >= GONE),
             *again(every[5000:5000 + NEW], 80_000_000, revised=TODAY)]
    return now, later


def killed_after(pages: int, folder: Path, command: list[str], env: dict[str, str]) -> bool:
    "Runs a command that fills the spool of a library, and kills it -9 when so many pages are there; was it still running?"
    running, spool = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL), beside(folder, 'getting')
    while running.poll() is None and len(list(spool.glob('*.page'))) < pages: time.sleep(0.02)
    alive = running.poll() is None
    running.kill()
    running.wait()
    return alive


def ran(*words, folder: Path, url: str, kills: int = 0, pages: int = 0) -> tuple[float, int]:
    "Runs a command of cpqa to its end, the first times with a kill -9 on its way; seconds of the last run, and how many were killed."
    env = {**os.environ, 'CPQA_ENTREZ_URL': url}
    command = [sys.executable, '-c', 'import sys; from cpqa.cli import main; sys.exit(main(sys.argv[1:]))', *words, str(folder)]
    killed = sum(killed_after(pages * (n + 1) // kills, folder, command, env) for n in range(kills))
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True)
    return time.perf_counter() - began, killed


def texts(some) -> dict[str, str]:
    "The text of each document, by PMID, as a reader of PubMed's XML tidies it: one of them holds a character that is not seen."
    return {d.id: tidy(d.text) for d in some}


def searched(folder: Path) -> tuple:
    library = Library(folder)
    library.verify()
    return list(library), [[(h.id, h.score) for h in hits] for hits in TermRetriever(library).search(QUERIES, 50)]


def main(folder: Path):
    now, later = corpora()
    for name, held in (('now', now), ('later', later)): build_library([held], folder / name)
    words = ['library', 'get', 'hasabstract', '--no-vectors', '--out']
    with EntrezServer(folder / 'now', misbehave=FAULTS) as server:
        seconds, _ = ran(*words, folder=folder / 'whole', url=server.url)
        last, killed = ran(*words, folder=folder / 'killed', url=server.url, kills=10, pages=-(-N // PAGE))
        faults = dict(server.misbehaviour.counts)
    whole, broken = searched(folder / 'whole'), searched(folder / 'killed')
    shutil.copytree(folder / 'whole', folder / 'updated')
    update = ['library', 'update']
    with EntrezServer(folder / 'later', misbehave=FAULTS) as server:
        update_seconds, _ = ran(*update, folder=folder / 'updated', url=server.url)
        _, update_killed = ran(*update, folder=folder / 'killed', url=server.url, kills=4, pages=-(-(NEW + REVISED + GONE) // PAGE))
    updated, again = searched(folder / 'updated'), searched(folder / 'killed')
    size = sum(p.stat().st_size for p in (folder / 'whole').rglob('*') if p.is_file())
    save('own_pubmed', {
        'documents': len(now), 'later': {'new': len({d.id for d in later} - {d.id for d in now}), 'revised': REVISED, 'deleted': GONE},
        'faults': faults, 'get': {'seconds': round(seconds, 1), 'documents_a_second': round(len(now) / seconds, 1),
                                  'bytes_a_document': round(size / len(now)), 'kills': killed, 'last_run_seconds': round(last, 1)},
        'same_documents': whole[0] == broken[0], 'same_hits_and_scores': whole[1] == broken[1],
        'all_of_pubmed': texts(whole[0]) == texts(now),
        'update': {'seconds': round(update_seconds, 1), 'kills': update_killed},
        'updated_is_later': texts(updated[0]) == texts(later), 'killed_update_is_later': texts(again[0]) == texts(later),
        'peak_mb_of_a_command': peak_mb(resource.RUSAGE_CHILDREN),
        'note': 'terms without vectors; server and client share the machine, so NCBI\'s own time to answer is not in these figures'},
        ('cpqa', 'tantivy', 'lxml'))


if __name__ == '__main__':
    if len(sys.argv) > 1: main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place: main(Path(place))
