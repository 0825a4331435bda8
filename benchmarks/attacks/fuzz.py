"Mutated inputs through the public readers: what comes out is a value or a `CpqaError`, in time."
import gzip
import io
import json
import random
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from .tally import Tally

LIMIT = 10.0   # seconds for one input
TOKENS = [b'<', b'>', b'&', b'"', b"'", b'{', b'}', b'[', b']', b'(', b')', b'\\', b'\x00', b'\xff', b'\xed\xa0\x80', b'\xe2\x80\xae',
          b'&#0;', b'-1',
          b'9' * 400, b'1e999', b'null', b'NaN', b'<!--', b']]>', b'<![CDATA[', b'AND', b' OR ', b'NOT', b'[ti]', b'*', b'~', b'\n', b'\r',
          b'%s']


def mutated(data: bytes, r: random.Random) -> bytes:
    "The input with a few places changed, left out, said twice, or with something put in."
    data = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 4, 16))):
        at = r.randrange(len(data) + 1)
        until = min(len(data), at + r.choice((1, 2, 8, 64)))
        match r.randrange(5):
            case 0 if at < len(data): data[at] ^= 1 << r.randrange(8)
            case 1: del data[at:until]
            case 2: data[at:at] = data[at:until] * r.choice((1, 2, 50))
            case 3: data[at:at] = r.choice(TOKENS)
            case _: data[at:until] = r.choice(TOKENS)
    return bytes(data)


class TooLong(BaseException): "The time for an input is over."


def tried(read: Callable[[bytes], object], data: bytes, own: tuple[type, ...]) -> tuple[str, float]:
    "What was wrong with reading an input, '' for nothing, and the seconds; a generator is read to its end."
    on, start, said = [True], time.perf_counter(), ''

    def ring(*_):
        if on and time.perf_counter() - start > LIMIT / 2: raise TooLong

    signal.signal(signal.SIGALRM, ring)   # it stays: what rings late finds a listener, and does not end the process
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        found = read(data)
        if isinstance(found, Iterator): deque(found, maxlen=0)
        on.clear()
    except own: pass
    except TooLong: said = f'over {LIMIT:.0f} s'
    except Exception as e: said = f'{type(e).__name__}: {e}'[:150]
    finally:
        on.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
    return said, time.perf_counter() - start


def fuzzed(name: str, read: Callable[[bytes], object], seeds: list[bytes], n: int, own: tuple[type, ...] = ()) -> Tally:
    "`n` mutants of the seeds through a reader."
    from cpqa.core.errors import CpqaError
    tally, r = Tally(f'mutants: {name}'), random.Random(11)
    for i in range(n):
        data = mutated(r.choice(seeds), r)
        said, seconds = tried(read, data, (CpqaError, *own))
        tally.add(f'{data[:60]!r}' if said else '', said, seconds)
    return tally


def readers(folder: Path) -> dict[str, tuple[Callable[[bytes], object], list[bytes]]]:
    "The public readers, each as a function of bytes, with good inputs."
    from cpqa.answering.citations import commands, unsafe
    from cpqa.answering.question_kinds import kind_of
    from cpqa.answering.replies import read_reply
    from cpqa.answering.safety import help_for
    from cpqa.core.llm_providers import read_name
    from cpqa.core.records import Document
    from cpqa.evaluation.parsing import read_answer
    from cpqa.literature.article_files import read_file
    from cpqa.literature.entrez import read_info, read_links, read_post, read_search, read_spelling, read_summaries
    from cpqa.literature.pubmed_writer import write_pubmed
    from cpqa.retrieval.pubmed_query import parse
    from cpqa.testing.toy_corpus import TOY
    text = lambda f: lambda data: f(data.decode('utf-8', 'replace'))
    def file(name: str):
        def read(data: bytes):
            (folder / name).write_bytes(data)
            return read_file(folder / name)
        return read
    stream = io.BytesIO()
    write_pubmed((Document(f'{i}', d.title, d.text, year=d.year) for i, d in enumerate(TOY, 1)), stream)
    xml = stream.getvalue()
    beir = b''.join(json.dumps({'_id': d.id, 'title': d.title, 'text': d.text}).encode() + b'\n' for d in TOY)
    reply = json.dumps({'label': 'yes',
                        'claims': [{'text': 'Aspirin helped.', 'quote': 'Daily aspirin lowered the risk', 'pmid': '1'}]}).encode()
    jats = (b'<?xml version="1.0"?><article article-type="review-article"><front><article-meta><article-id '
            b'pub-id-type="pmc">508</article-id>'
            b'<title-group><article-title>Polyps</article-title></title-group><abstract><p>Harmless '
            b'[1,2].</p></abstract></article-meta></front>'
            b'<body><sec><title>Methods</title><p>We read <italic>all</italic> there is <xref '
            b'ref-type="bibr">3</xref>.</p></sec></body></article>')
    search = (b'<eSearchResult><Count>2</Count><RetMax>2</RetMax><RetStart>0</RetStart>'
              b'<QueryKey>1</QueryKey><WebEnv>x</WebEnv><IdList><Id>1</Id><Id>2</Id></IdList></eSearchResult>')
    replies = [search, b'<ePostResult><QueryKey>1</QueryKey><WebEnv>x</WebEnv></ePostResult>',
               b'<eSpellResult><Query>a</Query><CorrectedQuery>b</CorrectedQuery></eSpellResult>',
               b'<eInfoResult><DbList><DbName>pubmed</DbName></DbList></eInfoResult>']
    questions = [b'Is aspirin effective against colon polyps?',
                 b'What helps against nausea, I cannot keep anything down and have 39 fever?']
    options = {'A': 'yes', 'B': 'no', 'C': 'maybe'}
    return {
        'PubMed XML': (file('a.xml'), [xml]), 'PubMed XML, packed': (file('a.xml.gz'), [gzip.compress(xml, mtime=0)]),
        'BEIR': (file('a.jsonl'), [beir]),
        'JATS': (file('a.nxml'), [jats]), 'a model\'s reply': (text(lambda t: read_reply(t, 'yesno')), [reply]),
        'NCBI\'s replies': (lambda data: [_quiet(f, data) for f in (read_search, read_post, read_spelling, read_info, read_summaries,
                                                                    read_links)], replies),
        'queries': (text(parse), [b'(lung cancer[ti] OR "small cell"[tiab]) AND survival[mh:noexp] NOT mice*',
                                  b'"tea cancer"[ti:~3] AND 2010:2020[dp]']),
        'questions': (text(lambda t: (help_for(t), kind_of(t))), questions),
        'recorded answers': (text(lambda t: read_answer(t, options)), [b'The answer is (B) no, because it failed.', b'{"answer": "A"}']),
        'names of models': (text(read_name), [b'openai:gpt-4@http://127.0.0.1:1/v1', b'anthropic:claude-x', b'local:/some/where']),
        'claims': (text(lambda t: (unsafe(t), commands(Document('1', text=t)))),
                   [b'Tea did not help 12% of 40 patients (p = 0.04), see [1].']),
    }


def _quiet(read: Callable[[bytes], object], data: bytes):
    from cpqa.core.errors import CpqaError
    from cpqa.literature.polite_http import Trouble   # which the client makes a sentence of
    try: return read(data)
    except (CpqaError, Trouble): return None


def run(quick: bool = False) -> Iterator[Tally]:
    with tempfile.TemporaryDirectory() as folder:
        for name, (read, seeds) in readers(Path(folder)).items(): yield fuzzed(name, read, seeds, 60 if quick else 2000)
