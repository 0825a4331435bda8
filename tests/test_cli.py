"""The `cpqa` command from end to end: good questions, odd questions, and everything that can be wrong with a file.

What a process alone can show (terminals, pipes, signals, full disks, the first use) is run in one of its own;
the others run in this one."""
import ast
import gzip
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from conftest import cases
from helpers import (CPQA, complaint, cpqa, environment, escapes, generated, good, held, inside, mount, screen, unmount,
                     untroubled, write_beir, write_xml)

from cpqa import __version__
from cpqa.answering.safety import first_words
from cpqa.cli import main
from cpqa.core.errors import CpqaError
from cpqa.core.records import NOT_ADVICE, Document
from cpqa.core.storage import cache_dir
from cpqa.libraries import demo_library
from cpqa.literature.demo_notes import demo_notes
from cpqa.terminal import print_json
from cpqa.testing.tiny_models import tiny_bert
from cpqa.retrieval.encoders import EmbeddedEncoder, prepare_encoder

pytestmark = pytest.mark.usefixtures('loaded_once')
QUESTION = 'Do aromatase inhibitors harm the heart in women with breast cancer?'
SHALLOW = ('--depth', '1')               # one article is read, where it does not matter what is found: a third of the time
OFF_TOPIC = 'How do I bake sourdough bread in a cast-iron pot?'

# Invented records: they only look like PubMed's.
FIRST = [
    Document(id='101', title='Ginger tea and chemotherapy nausea', year=2012, journal='Journal of Invented Trials',
             text='Ginger tea eased nausea after chemotherapy in 40 people with lung cancer. Sleep did not change.'),
    Document(id='102', title='Yoga and sleep', text='Yoga improved sleep in people with colon cancer. This version is outdated.'),
    Document(id='103', title='Vitamin Q', text='Vitamin Q prevented bladder cancer in mice.'),
    Document(id='104', title='Mistletoe drops and kidney cancer', text='Mistletoe drops cured kidney cancer in all 12 patients.',
             publication_types=('Retracted Publication',)),
]
LATER = [
    Document(id='102', title='Yoga and sleep, corrected',
             text='Yoga improved sleep in 31 of 60 people with colon cancer. Nobody was harmed.'),
    Document(id='201', title='Walking groups', text='Walking groups lessened fatigue after breast cancer. Attendance fell in winter.'),
]
HELD = ['101', '104', '102', '201']      # in the order in which they were last read


@pytest.fixture(scope='session')
def firsts(tmp_path_factory) -> tuple[list[subprocess.CompletedProcess], Path]:
    "What two processes said that asked the usual question at the same time, the first that were ever asked; and their cache."
    cache = tmp_path_factory.mktemp('first use')
    running = [subprocess.Popen([CPQA, 'ask', QUESTION, '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment(CPQA_CACHE=cache)) for _ in range(2)]
    said = [r.communicate(timeout=300) for r in running]
    return [subprocess.CompletedProcess(r.args, r.returncode, *s) for r, s in zip(running, said)], cache


@pytest.fixture(scope='session')
def usual(firsts) -> dict:
    "The answer to the usual question."
    (first, _), _ = firsts
    assert first.returncode == 0 and untroubled(first), first
    return json.loads(first.stdout)


@pytest.fixture(scope='session')
def demo(usual) -> dict[str, str]:
    "The demo notes' texts by PMID."
    return {note.id: note.text for note in demo_notes()}


@pytest.fixture(scope='session')
def files(tmp_path_factory) -> list[Path]:
    "A PubMed XML file, a BEIR file with a later version of a record, and an update that withdraws another."
    folder = tmp_path_factory.mktemp('files')
    return [write_xml(folder/'first.xml', FIRST), write_beir(folder/'later.jsonl.gz', LATER),
            write_xml(folder/'update.xml', [], deleted=['103'])]


@pytest.fixture(scope='session')
def mixed(files) -> Path:
    "A library of them, with vectors, in a folder with an odd name."
    out = files[0].parent/'a library ü 😀'
    said = here('index', 'build', *files, '--out', out)
    assert '4 documents' in said and '1 replaced' in said and '1 deleted' in said and '0 bad records' in said
    return out


@pytest.fixture(scope='session')
def bare(files) -> Path:
    "The same without vectors."
    out = files[0].parent/'bare'
    here('index', 'build', *files, '--out', out, '--no-vectors')
    return out


@pytest.fixture
def old(bare, tmp_path) -> Path:
    "A library to be lost, if anything goes wrong."
    return shutil.copytree(bare, tmp_path/'old')


def unharmed(library: Path): assert [id for id, _ in held(library)] == HELD


def here(*argv, **options) -> str: return good(*argv, how=inside, **options)


def asked(*argv, **options) -> dict: return json.loads(here('ask', '--json', *argv, **options))


def resolves(answer: dict, texts: dict[str, str]):
    "Every quote stands in its document where the answer says."
    assert answer['used_PMIDs'] == list(dict.fromkeys(c['pmid'] for c in answer['citations']))
    for c in answer['citations']:
        assert {'pmid', 'quote', 'start', 'end', 'score'} <= c.keys()
        assert texts[c['pmid']][c['start']:c['end']] == c['quote'] != ''
        assert 0 <= c['score'] <= 1


# ---- ask

def test_ask_in_json(usual, demo):
    assert {'question', 'response', 'used_PMIDs', 'abstained', 'citations', 'evidence', 'library', 'timings_ms'} <= usual.keys()
    assert usual['question'] == QUESTION and not usual['abstained'] and '18041059' in usual['used_PMIDs']
    assert all(c['quote'] in usual['response'] for c in usual['citations'])
    assert f'{len(demo):,} documents' in usual['library'] and usual['note'] == NOT_ADVICE
    assert usual['timings_ms'] and all(ms >= 0 for ms in usual['timings_ms'].values())
    assert all(demo[p['doc_id']][p['start']:p['end']] == p['text'] for p in (e['passage'] for e in usual['evidence']))
    resolves(usual, demo)


def test_ask_in_words(usual):
    said = here('ask', QUESTION)
    for c in usual['citations']:   # of a page the address alone is shown
        assert c['quote'] in said and c['url'] in said and (c['pmid'] in said or not c['pmid'].isdigit())
    assert QUESTION in said and NOT_ADVICE in said and usual['library'] in said


def test_depth_passages_and_quotes(usual):
    sources = lambda answer: {e['passage']['doc_id'] for e in answer['evidence']}
    assert len(sources(usual)) > 1 and len(usual['evidence']) == 25
    assert len(sources(asked(QUESTION, '--depth', 1))) == 1
    fewer = asked(QUESTION, '--passages', 2, '--quotes', 1)
    assert fewer['evidence'] == usual['evidence'][:2] and len(fewer['citations']) == 1
    of_two = 'Is tisagenlecleucel effective for B-cell lymphoma?'
    assert len(asked(of_two)['citations']) > 1 and len(asked(of_two, '--quotes', 1)['citations']) == 1


def test_a_question_beside_the_point_is_declined_in_plain_words(demo):
    answer, said = asked(OFF_TOPIC, *SHALLOW), here('ask', OFF_TOPIC, *SHALLOW)
    assert answer['abstained'] and answer['used_PMIDs'] == answer['citations'] == []
    assert answer['response'] in said and NOT_ADVICE in said and answer['reason'] not in said   # a figure, for who asks for details
    assert answer['reason'] in here('ask', OFF_TOPIC, *SHALLOW, '--details')
    assert '0808 808 00 00' in said and 'larger library' in said           # what to do


def timeless(said: str) -> dict: return {k: v for k, v in json.loads(said).items() if k != 'timings_ms'}


def test_words_without_quotes_and_from_the_standard_input(usual):
    given = timeless(json.dumps(usual))
    assert timeless(here('ask', *QUESTION.split(), '--json')) == given
    assert timeless(here('ask', '--json', '-', input=QUESTION + '\n')) == given
    assert asked('- ' + QUESTION, *SHALLOW)['question'] == '- ' + QUESTION
    assert 'the question is empty' in complaint(cpqa('ask', '-', stdin=None, input=' \n'))
    assert 'the question is empty' in complaint(inside('ask', '-', input=''))
    assert '20,000' in complaint(inside('ask', '-', input='why ' * 300_000))
    assert complaint(subprocess.run(['sh', '-c', 'exec "$@" <&-', 'sh', CPQA, 'ask', '-'], capture_output=True, text=True,
                                    env=environment()))
    assert here('search', 'aromatase', 'inhibitors', '-k', 2) == here('search', 'aromatase inhibitors', '-k', 2)


ODD = {
    'Chinese': '芳香化酶抑制剂会增加乳腺癌患者的心血管风险吗？',
    'emoji': '🎗️ aromatase inhibitors and 🫀 in breast cancer? 👩‍⚕️',
    'markup': '[bold red]Do[/bold red] [link=https://example.org]aromatase inhibitors[/link] [/nonsense] :warning: '
              'harm <b>the heart</b>? <script>alert(1)</script>',
    'syntax': 'title:"aromatase inhibitors" AND (heart OR -cancer)^2 +[* TO x] ~~ '
              '\\ { =cmd|"/C calc"!A0 $(reboot) `reboot` ../../etc/passwd %s {0}',
}


@pytest.mark.parametrize('question', ODD.values(), ids=ODD.keys())
def test_odd_questions(question, demo):
    answer = asked(question, *SHALLOW)
    assert answer['question'] == question
    resolves(answer, demo)


def test_markup_is_shown_and_not_obeyed(demo): assert ODD['markup'] in here('ask', ODD['markup'], *SHALLOW)


STEERING = 'Do \x1b[31maromatase\x1b[0m inhibitors\x07 harm \x1b]0;owned\x07the \x9b2Jheart\x08\x7f \u202e in breast cancer?'


def test_control_characters_never_reach_the_terminal(demo):
    said = here('ask', STEERING, *SHALLOW)
    assert 'aromatase' in said and escapes(said) == []
    assert '\x1b' not in here('ask', STEERING, '--json', *SHALLOW)


def test_a_hostile_document_steers_no_terminal(tmp_path):
    lines = [json.dumps({'_id': id, 'title': 'Aspirin\x1b]0;owned\x07 and \x9b2Jpolyps',
                         'text': 'Aspirin \x1b[8mprevents\u202e polyps.\x08\x08'})
             for id in ('PMC\x1b[31m7', 'PMC8', '\x1b[1m 9')]
    build = inside('index', 'build', write_beir(tmp_path/'hostile\x1b[31m.jsonl', [], *lines, '{"_id": "\x1b[1m"}'), '--out',
                 tmp_path/'library')
    said = [build.stdout + build.stderr.replace(str(tmp_path), ''), here('index', 'info', tmp_path/'library'),
            here('search', 'aspirin', '--library', tmp_path/'library', '--retriever', 'bm25'),
            here('ask', 'Does aspirin prevent polyps?', '--library', tmp_path/'library')]
    assert 'polyps' in said[2] and 'PMC8' in said[3]
    as_json = [here(*argv, '--library', tmp_path/'library', '--json') for argv in (('search', 'aspirin', '--retriever', 'bm25'),
                                                                                   ('ask', 'Does aspirin prevent polyps?'))]
    assert json.loads(as_json[0])[0]['title'] == 'Aspirin\x1b]0;owned\x07 and \x9b2Jpolyps'   # escaped, and not lost
    assert '\u202e' in json.loads(as_json[1])['evidence'][0]['passage']['text']
    assert [escapes(s) for s in (*said, *as_json)] == [[]] * 6


@cases('hidden', ['\x7f', '\x80', '\x9b', '\xad', '\u061c', '\u200b', '\u200e', '\u2028', '\u202e', '\u2066', '\u2069', '\ufeff', '\ud800',
                  '\U000e0041'])
def test_json_escapes_what_steers_or_hides(hidden, capsys):
    print_json({f'a{hidden}': [f'µg {hidden}']})
    said = capsys.readouterr().out
    assert hidden not in said and 'µg' in said and json.loads(said) == {f'a{hidden}': [f'µg {hidden}']}


def test_a_pipe_gets_no_escape_codes(demo):
    assert escapes(here('ask', QUESTION, env={'TERM': 'xterm-256color', 'COLORTERM': 'truecolor'})) == []


def on_a_terminal(*argv, code: int = 0, how=inside, **env) -> str:
    "What a command writes to a terminal."
    env = {'TERM': 'xterm-256color', **env}
    with screen() as (terminal, said):
        if how is inside: done = inside(*argv, out=terminal, err=terminal, env=env)
        else: done = cpqa(*argv, capture_output=False, stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    assert done.returncode == code
    return said[0]


def test_a_terminal_with_NO_COLOR_gets_no_colour(demo):
    said = on_a_terminal('ask', STEERING, *SHALLOW, NO_COLOR='1')
    codes = [code for part in said.split('\x1b[')[1:] for code in part.partition('m')[0].split(';')]
    assert 'aromatase' in said and not any(code.isdigit() and (30 <= int(code) <= 49 or 90 <= int(code) <= 107) for code in codes)
    assert '\x1b]' not in said and '\x9b' not in said and '\x07' not in said


def test_a_command_that_went_well_says_nothing_on_stderr(mixed, tmp_path, files):
    for argv in (['ask', 'Does ginger ease nausea?', '--library', mixed], ['search', 'ginger', '--library', mixed],
                 ['index', 'info', mixed], ['index', 'build', *files, '--out', tmp_path/'out', '--no-vectors']):
        assert inside(*argv).stderr == ''


# ---- words for a person in danger

DANGER = 'My mother cannot breathe. Do aromatase inhibitors harm the heart in women with breast cancer?'
WORDS = first_words(DANGER)
WRONG = {
    'no library': (('--library', 'no-such-library'), 'not a library'), 'no key': (('--llm', 'anthropic:claude-x'), 'ANTHROPIC_API_KEY'),
    'no model': (('--llm', 'magic'), 'no language model'),
    'a model for nothing': (('--strict',), 'give --llm too'),
    'one option': (('--llm', 'openai:toy@http://127.0.0.1:9/v1', '--option', 'a'), '2 to 26 options'),
    'a segmenter without a source': (('--segmenter', 'seos'), 'give --source'), 'no reranker': (('--reranker', 'magic'), 'not a reranker'),
    'years exchanged': (('--since', '2020', '--until', '2010'), 'exchange them'),
}


def uncoloured(text: str) -> str: return re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', text)


@cases('form', [(), ('--json',)])
@cases('options, why', WRONG.values())
def test_words_for_a_person_in_danger_come_before_any_error(options, why, form, tmp_path):
    env = {'ANTHROPIC_API_KEY': None, 'OPENAI_API_KEY': None, 'CPQA_CACHE': str(tmp_path)}
    assert why in complaint(inside('ask', QUESTION, *options, *form, env=env))   # and nothing else, where nobody is in danger
    done = inside('ask', DANGER, *options, *form, env=env)
    assert (done.returncode, done.stdout) == (1, '') and untroubled(done)
    said, error = done.stderr.split('\n\n')
    assert said == WORDS and error.startswith('cpqa: ') and why in error


def test_words_for_a_person_in_danger_are_said_once(demo):
    for done in (inside('ask', DANGER, *SHALLOW), inside('ask', DANGER, '--json', *SHALLOW)):
        assert (done.returncode, done.stderr, done.stdout.count(WORDS)) == (0, '', 1)
    assert json.loads(done.stdout)['first'] == WORDS
    said = uncoloured(on_a_terminal('ask', DANGER, *SHALLOW))
    assert said.startswith(WORDS) and said.count(WORDS) == 1   # what the notes say comes after them


def test_on_a_terminal_they_come_at_once_and_in_front_of_json(demo):
    said = uncoloured(on_a_terminal('ask', DANGER, '--library', 'no-such-library', code=1, how=cpqa))
    assert said.startswith(WORDS) and said.count(WORDS) == 1 and 'not a library' in said
    for argv, out in ((SHALLOW, 1), ((*SHALLOW, '--json'), 1), (('--library', 'no-such-library'), 0)):
        # the standard output goes to a file, which holds the whole answer
        with screen() as (terminal, shown): done = inside('ask', DANGER, *argv, err=terminal)
        said = uncoloured(shown[0])
        assert said.startswith(WORDS) and said.count(WORDS) == 1 and done.stdout.count(WORDS) == out


@cases('wrong, code',
                         [(KeyboardInterrupt(), 130), (CpqaError('odd'), 1), (OSError('odd'), 1), (ZeroDivisionError('odd'), 1),
                          (MemoryError(), 1)])
@cases('question', [DANGER, QUESTION])
def test_words_for_a_person_in_danger_survive_every_kind_of_error(question, wrong, code, monkeypatch, capsys):
    def fails(*args, **kwargs): raise wrong
    monkeypatch.setattr('cpqa.pipeline.CancerQA', fails)
    assert main(['ask', question]) == code
    out, err = capsys.readouterr()
    assert out == '' and err.startswith(WORDS if question == DANGER else 'cpqa: ') and err.count('\ncpqa: ') == (question == DANGER)


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='there is no /dev/full')
def test_words_for_a_person_in_danger_survive_a_full_disk(demo):
    with open('/dev/full', 'w') as full: done = cpqa('ask', DANGER, *SHALLOW, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and untroubled(done) and done.stderr.startswith(WORDS) and 'cpqa: ' in done.stderr


@pytest.mark.parametrize('argv', [('ask', DANGER, '--depth', '0'), (*DANGER.split(),), (DANGER,), ('ask', DANGER, '--magic')],
                         ids=['depth', 'no command, no quotes', 'no command', 'no option'])
def test_words_for_a_person_in_danger_follow_a_command_that_is_none(argv):
    done = inside(*argv)
    assert done.returncode == 2 and done.stdout == '' and re.fullmatch(f'cpqa: [^\n]+\n\n{re.escape(WORDS)}\n\n', done.stderr)


# ---- where the output goes

def test_a_reader_that_leaves_early(demo):
    done = subprocess.run(['bash', '-o', 'pipefail', '-c', f'"{CPQA}" search tamoxifen --retriever bm25 --json | head -1'],
                          capture_output=True, text=True,
                          env=environment())
    assert done.returncode == 0 and untroubled(done) and done.stdout == '[\n'


@pytest.mark.parametrize('argv', [('ask', QUESTION, *SHALLOW), ('search', 'tamoxifen', '--retriever', 'bm25'), ('--help',)],
                         ids=' '.join)
def test_a_reader_that_has_left(argv, demo):
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, 'w', encoding='utf-8') as pipe:
        done = (cpqa(*argv, capture_output=False, stdout=pipe, stderr=subprocess.PIPE) if argv[0] == 'search'
                else inside(*argv, out=pipe))
    assert done.returncode == 0 and untroubled(done) and not done.stderr.strip()


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='there is no /dev/full')
def test_output_to_a_full_disk(demo):
    with suppress(OSError), open('/dev/full', 'w') as full: done = inside('ask', QUESTION, *SHALLOW, out=full)
    assert done.returncode == 1 and untroubled(done) and done.stderr.strip().startswith('cpqa: ')


def test_output_to_nowhere(mixed):
    done = subprocess.run(['sh', '-c', 'exec "$@" >&-', 'sh', CPQA, 'index', 'info', mixed], capture_output=True, text=True,
                          env=environment())
    assert untroubled(done)
    with pytest.MonkeyPatch.context() as patch:              # what Python makes of a standard output that is closed
        patch.setattr(sys, 'stdout', None)
        assert main(['search', 'ginger', '--library', str(mixed), '--retriever', 'bm25']) == 0


def test_output_that_cannot_hold_every_character(mixed):
    for argv in (['ask', 'Does ginger ease nausea?', '--library', mixed],
                 ['ask', 'Does ginger ease nausea?', '--json', '--library', mixed]):
        with io.TextIOWrapper(io.BytesIO(), encoding='ascii') as out:          # as PYTHONIOENCODING makes it
            done = inside(*argv, out=out)
            said = out.buffer.getvalue().decode('ascii')
        assert done.returncode == 0 and untroubled(done) and 'Ginger tea eased nausea' in said


# ---- search

def test_search(mixed):
    for way in ('bm25', 'dense', 'hybrid'):
        hits = json.loads(here('search', 'walking groups against fatigue', '--library', mixed, '--retriever', way, '--json'))
        assert hits[0]['id'] == '201' and [h['rank'] for h in hits] == [*range(1, len(hits) + 1)]
        assert hits[0].keys() >= {'rank', 'id', 'score', 'title', 'year',
                                  'url'} and hits[0]['url'] == 'https://pubmed.ncbi.nlm.nih.gov/201/'
        assert sorted((h['score'] for h in hits), reverse=True) == [h['score'] for h in hits]
    assert len(hits) == len(HELD)
    assert {h['score_kind'] for h in hits} == {'rank fusion'}
    line, *_ = here('search', 'walking groups against fatigue', '--library', mixed, '-k', 1).splitlines()
    assert re.fullmatch(r' +1  201 +Walking groups', line) and _ == []


def test_search_without_a_hit(mixed):
    for query in ('zebrafish', 'of the ???'):
        assert 'Nothing in this library' in here('search', query, '--library', mixed, '--retriever', 'bm25')
    assert json.loads(here('search', 'zebrafish', '--library', mixed, '--retriever', 'bm25', '--json')) == []


def test_a_place_is_not_read_as_a_cry_for_help():
    where = '/tmp/i cannot breathe/my library'   # in CI the temporary folder pytest-40 was taken for a fever
    assert first_words(where) and complaint(inside('search', 'cancer', '--library', where, '-k', 2**63), 2).startswith('-k must be')


@pytest.mark.parametrize('k, way', [(10**9, 'hybrid'), (2**63, 'bm25'), (2**63, 'dense'), (10**30, 'hybrid')],
                         ids=['10^9', '2^63 terms', '2^63 dense', '10^30'])
def test_search_for_more_than_anybody_reads(k, way, mixed):
    done = inside('search', 'cancer', '--library', mixed, '--retriever', way, '--json', '-k', k)
    if done.returncode: assert complaint(done, 2).startswith('-k must be a whole number')
    else: assert len(json.loads(done.stdout)) == len(HELD)


# ---- index

def test_a_mixed_library(mixed):
    assert held(mixed) == [('101', FIRST[0].title), ('104', FIRST[3].title), ('102', LATER[0].title), ('201', LATER[1].title)]
    said = here('index', 'info', mixed, '--verify')
    for word in ('documents    4', EmbeddedEncoder().describe()['model'], 'first.xml', 'later.jsonl.gz', 'update.xml',
                 'all files verified'): assert word in said
    assert re.search('first.xml  [0-9,]+ bytes', here('index', 'info', mixed, '--files'))
    manifest = json.loads(here('index', 'info', mixed, '--json'))
    assert manifest['counts'] == {'documents': 4, 'replaced': 1, 'deleted': 1, 'skipped': 0} and len(manifest['sources']) == 3


def test_the_latest_version_is_what_is_found(mixed):
    answer = asked('Does yoga improve sleep in people with colon cancer?', '--library', mixed)
    assert any('31 of 60' in c['quote'] for c in answer['citations'])
    assert 'outdated' not in json.dumps(answer) and here('search', 'outdated', '--library', mixed, '--retriever',
                                                         'bm25').startswith('Nothing')
    assert '103' not in [h['id'] for h in json.loads(here('search', 'vitamin Q bladder cancer mice', '--library', mixed, '--retriever',
                                                          'bm25', '--json'))]


def test_a_retracted_article_is_found_but_never_quoted(mixed):
    question = 'Do mistletoe drops cure kidney cancer?'
    assert json.loads(here('search', question, '--library', mixed, '--retriever', 'bm25', '--json'))[0]['id'] == '104'
    answer = asked(question, '--library', mixed)
    assert '104' not in answer['used_PMIDs'] and '104' not in [e['passage']['doc_id'] for e in answer['evidence']]


def test_a_library_without_vectors(bare):
    assert 'Ginger' in here('search', 'ginger', '--library', bare, '--retriever', 'bm25')
    assert 'vectors      none' in here('index', 'info', bare)
    for argv in (['search', 'ginger', '--retriever', 'dense'], ['ask', 'Does ginger help?']):
        said = complaint(inside(*argv, '--library', bare))
        assert 'bm25' in said and 'cpqa library embed' in said


def test_a_library_of_titles_only(tmp_path):
    titles = write_beir(tmp_path/'titles.jsonl', [Document(id='1', title='Ginger and nausea'), Document(id='2', title='Yoga and sleep')])
    here('index', 'build', titles, '--out', tmp_path/'library')
    assert asked('Does ginger ease nausea?', '--library', tmp_path/'library')['abstained']


def test_relative_places(files, tmp_path):
    here('index', 'build', *map(os.path.relpath, files, [tmp_path]*3), '--out', 'here/there/', '--no-vectors', cwd=tmp_path)
    unharmed(tmp_path/'here'/'there')
    assert 'Ginger' in here('search', 'ginger', '--library', './here/there', '--retriever', 'bm25', cwd=tmp_path)


def test_a_link_to_a_library_can_be_replaced_again_and_again(old, files, tmp_path):
    (tmp_path/'link').symlink_to(old)
    for _ in range(3):
        here('index', 'build', files[0], '--out', tmp_path/'link', '--no-vectors')
        assert [id for id, _ in held(tmp_path/'link')] == ['101', '102', '103', '104']


def test_a_library_on_a_read_only_file_system(bare, tmp_path):
    if not mount(tmp_path/'disk', 2**20): pytest.skip('may not mount a file system here')
    try:
        shutil.copytree(bare, tmp_path/'disk'/'library')
        subprocess.run(['mount', '-o', 'remount,ro', tmp_path/'disk'], check=True)
        done = inside('search', 'ginger', '--library', tmp_path/'disk'/'library', '--retriever', 'bm25')
        assert 'Ginger' in done.stdout or 'copy it' in complaint(done)
    finally: unmount(tmp_path/'disk')


def test_real_records(data_dir, tmp_path):
    found = sorted((data_dir/'entrez').glob('pubmed*.xml'))
    here('index', 'build', *found, '--out', tmp_path/'real')
    library = held(tmp_path/'real')
    assert len(library) > 5
    for (id, title), way in zip(library[::3], ('bm25', 'dense', 'hybrid')):
        assert json.loads(here('search', title, '--library', tmp_path/'real', '--retriever', way, '--json', '-k', 1))[0]['id'] == id


# ---- a bad record among good ones

BAD = ['{"text": "No id."}', 'not JSON', '{"_id": "7", "title": 3}', '{"_id": "a b"}', '{"_id": "\\ud800"}', '[' * 100_000,
       '{"_id": "8", "extra": ' + '[' * 100_000 + ']' * 100_000 + '}', json.dumps({'_id': '9' * 70_000, 'title': 'Far too long an id'})]


def test_bad_records_are_left_out_and_named(tmp_path):
    corpus = write_beir(tmp_path/'some.jsonl', FIRST[:1], *BAD)
    xml = write_xml(tmp_path/'some.xml', [Document(id='-', title='Without a number'), *LATER])
    for vectors in ([], ['--no-vectors']):
        done = inside('index', 'build', corpus, xml, '--out', tmp_path/'library', *vectors)
        assert done.returncode == 0 and untroubled(done), done
        assert [id for id, _ in held(tmp_path/'library')] == ['101', '102', '201'] and f'{len(BAD) + 1} bad records' in done.stdout
        lines = done.stderr.strip().splitlines()
        assert len(lines) == len(BAD) + 1 and all(line.startswith('cpqa: left out ') for line in lines)
        for n, line in enumerate(lines[:-1], 2): assert f'some.jsonl, line {n}:' in line
        assert 'some.xml, record 1' in lines[-1] and 'no PMID' in lines[-1]
    assert f'{len(BAD) + 1} left out' in here('index', 'info', tmp_path/'library')


def test_more_bad_records_than_one_wants_to_read(tmp_path):
    done = inside('index', 'build', write_beir(tmp_path/'some.jsonl', FIRST, *['?'] * 500), '--out', tmp_path/'library', '--no-vectors')
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 0 and '500 bad records' in done.stdout and len(lines) == 11 and '490 more' in lines[-1]


def test_strict(tmp_path, old):
    done = inside('index', 'build', write_beir(tmp_path/'some.jsonl', FIRST, BAD[0]), '--out', old, '--no-vectors', '--strict')
    assert done.returncode == 1 and untroubled(done) and '--strict' in done.stderr.strip().splitlines()[-1]
    here('index', 'build', write_beir(tmp_path/'fine.jsonl', FIRST), '--out', old, '--no-vectors', '--strict')


# ---- bad input: one sentence, and the library that was there is unharmed

def cut(data: bytes, at: float | int) -> bytes: return data[:int(len(data) * at)] if isinstance(at, float) else data[:at]


PACKED = gzip.compress(json.dumps({'_id': '1', 'text': 'x ' * 20 + str(list(range(2000)))}).encode(), mtime=0)
XML = ('<PubmedArticleSet>' + '<PubmedArticle><MedlineCitation><PMID>1</PMID></MedlineCitation></PubmedArticle>' * 40
       + '</PubmedArticleSet>').encode()
BROKEN = {
    'unknown type': ('notes.docx', b'PK words'), 'no type': ('corpus', b'{"_id": "1"}'), 'empty': ('a.jsonl', b''),
    'empty gzip': ('a.xml.gz', b''),
    'gzip of nothing': ('a.jsonl.gz', gzip.compress(b'', mtime=0)), 'not gzip': ('a.jsonl.gz', b'{"_id": "1"}'),
    'gzip without its name': ('a.jsonl', PACKED),
    **{f'gzip cut at {at}': ('a.jsonl.gz', cut(PACKED, at)) for at in (1, 12, 0.5, -8, -1)},
    **{f'XML cut at {at}': ('a.xml', cut(XML, at)) for at in (5, 0.5, -19, -1)},
    'packed XML cut': ('a.xml.gz', gzip.compress(cut(XML, 0.5), mtime=0)),
    'a web page': ('a.xml', b'<html><body>Too many requests</body></html>'), 'XML in JSON lines': ('a.jsonl', XML),
    'JSON lines in XML': ('a.xml', b'{"_id": "1"}'),
    'an entity bomb': ('a.xml', b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><PubmedArticleSet>&b;</PubmedArticleSet>'),
    'UTF-16': ('a.xml', '<PubmedArticleSet/>'.encode('utf-16')),
}
HOLLOW = {
    'no PMID anywhere': ('a.xml', b'<PubmedArticleSet><PubmedArticle><MedlineCitation/></PubmedArticle></PubmedArticleSet>'),
    'no record': ('a.xml', b'<PubmedArticleSet/>'),
    'no id anywhere': ('a.jsonl', b'{"title": "A"}\n{"title": "B"}\n'), 'noise': ('a.jsonl', bytes(range(128, 256)) * 9),
}


@cases('name, data', BROKEN.values())
def test_a_broken_file_after_a_good_one(name, data, old, files, tmp_path):
    (tmp_path/name).write_bytes(data)
    assert name in complaint(inside('index', 'build', files[1], tmp_path/name, '--out', old, '--no-vectors'))
    unharmed(old)


@pytest.mark.parametrize('name, data', HOLLOW.values(), ids=HOLLOW.keys())
def test_a_file_without_a_document(name, data, old, tmp_path):
    (tmp_path/name).write_bytes(data)
    assert name in complaint(inside('index', 'build', tmp_path/name, '--out', old, '--no-vectors'))
    unharmed(old)


def test_a_file_that_is_not_there(old, files, tmp_path):
    assert 'nowhere.xml' in complaint(inside('index', 'build', files[0], tmp_path/'nowhere.xml', '--out', old, '--no-vectors'))
    (tmp_path/'folder.xml').mkdir()
    for folder in (tmp_path, tmp_path/'folder.xml'):
        assert 'directory' in complaint(inside('index', 'build', folder, '--out', old, '--no-vectors'))
    unharmed(old)


def test_names_that_are_not_text(old):
    assert 'no such file' in complaint(cpqa('index', 'build', b'caf\xe9.xml', '--out', old, '--no-vectors'))
    unharmed(old)
    for argv in (['ask', os.fsdecode(b'caf\xe9 aromatase inhibitors'), *SHALLOW],
                 ['search', os.fsdecode(b'caf\xe9'), '--library', old, '--retriever', 'bm25']):
        done = inside(*argv)
        assert done.returncode == 0 and untroubled(done) or complaint(done)


@pytest.mark.parametrize('question, word', [('', 'empty'), (' \t\n', 'empty'), ('why ' * 10_000, '1,000')],
                         ids=['empty', 'blank', '10,000 words'])
def test_a_question_that_is_none(question, word):
    for command in ('ask', 'search'): assert word in complaint(inside(command, question))


def test_a_word_of_many_letters(bare):
    assert 'Nothing' in here('search', 'why' * 40_000, '--library', bare, '--retriever', 'bm25')


USAGE = [('ask',), ('index',), ('index', 'build', 'a.xml'), ('nonsense',), ('search', 'x', '-k', '-1'), ('search', 'x', '-k', 'many'),
         ('search', 'x', '--retriever', 'magic'), ('ask', 'x', '--depth', '0'), ('ask', 'x', '--quotes', '1.5')]


@cases('argv', USAGE)
def test_a_command_that_is_none(argv):
    reason = complaint(inside(*argv), 2)
    assert 'cpqa help' in reason and ' _' not in reason   # where to read on, and no name from the inside of the program


def test_help():
    for argv in (('--help',), ('ask', '--help'), ('index', 'build', '--help')):
        assert here(*argv).startswith('usage: cpqa')
    assert good() == here('help') == here('--help') == here('-h')
    assert here('help', 'index', 'build') == here('index', 'build', '--help') and here('-V') == here('--version') == f'cpqa {__version__}\n'


def test_the_help_of_ask_begins_with_what_people_use_most():
    said = here('ask', '--help', env={'COLUMNS': '80'})
    first, rest = said.split('What is searched:')
    assert re.findall(r'^  (--[a-z-]+)', first, re.M) == ['--library', '--source', '--llm', '--since', '--json', '--details', '--trace']
    assert re.findall(r'^(\w.+):$', rest, re.M) == ['How it is found', 'How it is answered', 'With a language model', 'Other options']
    assert max(map(len, said.splitlines())) <= 80 and '{}' not in said


@cases('argv, meant',
                         [(('aks', 'Why?'), 'ask'), (('help', 'serch'), 'search'), (('index', 'bild'), 'build'),
                          (('ask', 'Why?', '--libary', 'x'), '--library'),
                                         (('eval', 'retrieval', '--retreiver', 'bm25'), '--retriever')])
def test_what_was_meant(argv, meant): assert f'did you mean {meant}' in complaint(inside(*argv), 2)


# ---- bad libraries

def edited(library: Path, **changes):
    path = library/'manifest.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def first(library: Path, pattern: str) -> Path: return next(library.glob(pattern))


def spoil(path: Path):
    "Other bytes where the file begins; its size stays."
    data = path.read_bytes()
    path.write_bytes(bytes(b ^ 0x5a for b in data[:200]) + data[200:])


REPLACED = b'created', b'cre\xe9ted'
DAMAGES = {                      # what is done to the library, and a word of the sentence that should follow
    'another format': (lambda f: edited(f, format=99), 'another version'),
    'another analyzer': (lambda f: edited(f, analyzer='klingon'), 'another version'),
    'no manifest': (lambda f: (f/'manifest.json').unlink(), 'not a library'),
    'an empty manifest': (lambda f: (f/'manifest.json').write_text(''), 'build'),
    'a list for a manifest': (lambda f: (f/'manifest.json').write_text('[]'), 'build'),
    'a manifest of brackets': (lambda f: (f/'manifest.json').write_text('[' * 100_000), 'build'),
    'a manifest that is not text': (lambda f: (f/'manifest.json').write_bytes((f/'manifest.json').read_bytes().replace(*REPLACED)),
                                    'build'),
    'a manifest without the model': (lambda f: edited(f, parts={'vectors': {}}), 'build'),
    'a manifest without files': (lambda f: (edited(f, files={}), (f/'vectors'/'index.faiss').unlink()), 'build'),
    'a manifest with a number for files': (lambda f: edited(f, files=5), 'build'),
    'no term index': (lambda f: shutil.rmtree(f/'terms'), 'missing'),
    'no spans': (lambda f: (f/'vectors'/'spans.npy').unlink(), 'spans.npy is missing'),
    'half the vectors': (lambda f: os.truncate(f/'vectors'/'index.faiss', 100), 'index.faiss has 100 bytes'),
    'half a term file': (lambda f: os.truncate(first(f, 'terms/*.store'), 40), 'bytes'),
    'half the ids': (lambda f: os.truncate(f/'ids.txt', 3), 'ids.txt has 3 bytes'),
    'spoilt vectors': (lambda f: spoil(f/'vectors'/'index.faiss'), 'build'),
    'spoilt spans': (lambda f: spoil(f/'vectors'/'spans.npy'), 'build'),
    'spoilt documents': (lambda f: spoil(first(f, 'terms/*.store')), 'build'),
    'spoilt terms': (lambda f: spoil(first(f, 'terms/*.term')), 'build'),
    'spoilt term settings': (lambda f: spoil(f/'terms'/'meta.json'), 'build'),
}


@cases('damage, word', DAMAGES.values())
def test_a_damaged_library(damage, word, mixed, tmp_path):
    broken = shutil.copytree(mixed, tmp_path/'broken')
    damage(broken)
    assert word in complaint(inside('ask', 'Does ginger ease nausea?', '--library', broken))


@pytest.mark.parametrize('change',
                         [{'counts': {}}, {'parts': {'vectors': {}}}, {'files': {}},
                          {'parts': {'vectors': {'vectors': 'x', 'encoder': 3}}}], ids=str)
def test_a_manifest_that_says_less(change, mixed, tmp_path):
    edited(broken := shutil.copytree(mixed, tmp_path/'broken'), **change)
    done = inside('index', 'info', broken, '--verify')
    assert done.returncode == 0 and untroubled(done) or complaint(done)


@pytest.mark.parametrize('damage', ['another format', 'no spans'])
def test_a_damaged_library_can_be_built_again(damage, mixed, files, tmp_path):
    DAMAGES[damage][0](broken := shutil.copytree(mixed, tmp_path/'broken'))
    here('index', 'build', *files, '--out', broken, '--no-vectors')
    unharmed(broken)


@pytest.mark.parametrize('damage',
                         ['an empty manifest', 'a manifest of brackets', 'a manifest that is not text',
                          'a manifest with a number for files'])
def test_what_may_be_a_library_is_replaced_or_left_alone(damage, mixed, files, tmp_path):
    DAMAGES[damage][0](broken := shutil.copytree(mixed, tmp_path/'broken'))
    done = inside('index', 'build', *files, '--out', broken, '--no-vectors')
    if done.returncode: assert str(broken) in complaint(done) and (broken/'vectors'/'spans.npy').exists()
    else: unharmed(broken)


def test_what_is_no_library(tmp_path, files):
    (tmp_path/'letter.txt').write_text('Dear doctor')
    for place, argv in ((tmp_path, ['ask', 'Does tea help?', '--library']), (tmp_path/'letter.txt', ['search', 'tea', '--library']),
                        (tmp_path/'nowhere', ['index', 'info'])):
        assert 'not a library' in complaint(inside(*argv, place))
    for place in (tmp_path, tmp_path/'letter.txt',
                  tmp_path/'letter.txt'/'x'): complaint(inside('index', 'build', *files, '--out', place, '--no-vectors'))
    assert (tmp_path/'letter.txt').read_text() == 'Dear doctor' and [p.name for p in tmp_path.iterdir()] == ['letter.txt']


def test_places_where_nothing_can_be_written(files, tmp_path):
    for place in ('/proc/cpqa', tmp_path/('x' * 250), tmp_path/('x' * 300), '/dev/null/x'):
        said = complaint(inside('index', 'build', *files, '--out', place, '--no-vectors'))
        assert 'another build' not in said                       # that is not the reason
    assert 'proc' in complaint(inside('ask', QUESTION, env={'CPQA_CACHE': '/proc/cpqa'}))


# ---- the disk is full

@pytest.fixture
def tight(tmp_path):
    "Runs `cpqa` where at most `size` bytes can be written: in a small file system if we may mount one, else with a limit on each file."
    disk = tmp_path/'disk'
    def run(size: int, library: Path, *argv, how=cpqa):
        if mount(disk, size): limit = {}
        else: how, limit = cpqa, {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}
        shutil.copytree(library, disk/'library')
        return disk/'library', how(*argv, '--out', disk/'library', **limit)
    yield run
    if os.path.ismount(disk): unmount(disk)


def test_a_full_disk_while_terms_are_written(tight, bare, tmp_path):
    library, done = tight(700_000, bare, 'index', 'build', write_beir(tmp_path/'big.jsonl', generated(3000)), '--no-vectors')
    complaint(done)
    unharmed(library)


def test_a_full_disk_while_vectors_are_written(tight, bare, tmp_path):
    library, done = tight(250_000, bare, 'index', 'build', write_beir(tmp_path/'many.jsonl', generated(120, words=2)), how=inside)
    complaint(done)
    unharmed(library)


# ---- Ctrl-C

def waiting_for(pipe: Path, running: subprocess.Popen) -> int:
    "The writing end of a named pipe, as soon as the process reads from it."
    while running.poll() is None:
        try: return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError: time.sleep(0.02)
    raise AssertionError(running.communicate())


def asleep(running: subprocess.Popen) -> bool:
    "Does it wait, and is not busy with an import? Where there is no /proc, nobody knows."
    try: return Path(f'/proc/{running.pid}/stat').read_text().rpartition(')')[2].split()[0] == 'S'
    except OSError: return True


def interrupted(pipe: Path, *argv) -> subprocess.CompletedProcess:
    "Ctrl-C to a `cpqa` that waits for more from `pipe`."
    os.mkfifo(pipe)
    running = subprocess.Popen([CPQA, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    end = waiting_for(pipe, running)
    os.write(end, b'{"_id": "1", "text": "The first of many."}\n')
    for _ in range(10):   # it has read the line, and waits for the next
        while not asleep(running): time.sleep(0.02)
        time.sleep(0.02)
    for _ in range(6):   # the first can fall into an import that swallows it, as a person's can
        running.send_signal(signal.SIGINT)
        try: out, err = running.communicate(timeout=20)
        except subprocess.TimeoutExpired: continue
        break
    else: pytest.fail('six times Ctrl-C did not end it')
    os.close(end)
    return subprocess.CompletedProcess(argv, running.returncode, out, err)


@pytest.mark.parametrize('vectors', [[], ['--no-vectors']], ids=['with vectors', 'without'])
def test_ctrl_c_while_a_library_is_built(vectors, old, files, tmp_path):
    said = complaint(interrupted(tmp_path/'slow.jsonl', 'index', 'build', *files, tmp_path/'slow.jsonl', '--out', old, *vectors), 130)
    assert said.startswith('interrupted: the library is as it was before')
    unharmed(old)


def test_ctrl_c_while_a_question_is_answered(bare, tmp_path):
    broken = shutil.copytree(bare, tmp_path/'broken')
    (broken/'manifest.json').unlink()
    assert 'interrupted: no answer was given' in complaint(interrupted(broken/'manifest.json', 'ask', QUESTION, '--library', broken), 130)


@pytest.mark.parametrize('module, moment',
                         [('cpqa.retrieval.encoders', 'EmbeddedEncoder'), ('cpqa.answering.quoting_reader', 'QuotingReader')])
def test_ctrl_c_at_each_stage_of_an_answer(module, moment, demo, monkeypatch):
    class Late(getattr(import_module(module), moment)):
        def __init__(self, *args, **kwargs):
            os.kill(os.getpid(), signal.SIGINT)
            super().__init__(*args, **kwargs)
    monkeypatch.setattr(f'{module}.{moment}', Late)
    complaint(inside('ask', QUESTION), 130)


# ---- passages: how they are cut, and what orders them

@pytest.fixture(scope='module')
def single(files, tmp_path_factory) -> Path:
    "A library cut into single sentences."
    out = tmp_path_factory.mktemp('single')/'library'
    here('index', 'build', *files, '--out', out, '--segmenter', 'window:2')
    return out


@pytest.fixture(scope='module')
def own(files, tmp_path_factory) -> tuple[Path, Path]:
    "An encoder of one's own, of random weights, and a library that was built with it."
    folder = tmp_path_factory.mktemp('own')
    encoder = prepare_encoder(tiny_bert(folder/'tiny'), folder/'my-encoder', 'f32', pooling='mean')
    here('index', 'build', *files, '--out', folder/'library', '--encoder', encoder)
    return encoder, folder/'library'


def test_an_encoder_of_ones_own(own):
    encoder, library = own
    assert 'of tiny' in here('index', 'info', library)
    hits = json.loads(here('search', 'walking groups', '--library', library, '--encoder', encoder, '--json'))
    assert len(hits) == len(HELD) and hits[0]['id'] == '201'   # BM25 knows, though the vectors mean nothing
    ranked = json.loads(here('search', 'walking groups', '--library', library, '--encoder', encoder, '--reranker', 'default', '--json'))
    assert ranked[0]['id'] == '201' and sorted(h['id'] for h in ranked) == sorted(h['id'] for h in hits)
    assert asked('Do walking groups lessen fatigue?', '--library', library, '--encoder',
                 encoder)['library'].startswith('library, 4 documents')


def test_a_library_of_another_encoder_is_refused_by_both_names(own, mixed):
    encoder, library = own
    ours = EmbeddedEncoder().describe()['model']
    for argv in (('--library', library, '--encoder', 'default'), ('--library', mixed, '--encoder', encoder)):
        for command in (('search', 'tea', '--retriever', 'dense'), ('ask', 'Does tea help?')):
            said = complaint(inside(*command, *argv))
            assert 'was built with another model' in said and 'tiny' in said and ours in said


def test_a_library_says_how_it_was_cut(single, bare):
    assert re.search(r'^passages +cut by window: version \d+, window 2$', here('index', 'info', single), re.M)
    assert 'cut by' not in here('index', 'info', bare)


@pytest.mark.parametrize('options, ranked',
                         [((), 'default'), (('--reranker', 'bm25'), 'bm25'), (('--reranker', 'cosine', '--budget', '100000'), 'cosine'),
                          (('--reranker', 'none'), 'none')], ids=['usual', 'bm25', 'cosine', 'none'])
def test_the_trace_tells_what_ordered_the_passages(options, ranked, single):
    told = asked(QUESTION, '--library', single, '--trace', *options)['trace']['passages']
    assert told['reranker']['reranker'] == ranked and told['segmenter']['window'] == 2
    assert 0 < told['reranked'] <= told['candidates'] and told['stopped'] in ('all', 'settled')
    assert f"Passages: {told['reranked']} of {told['candidates']} ranked by {ranked}" in here('ask', QUESTION, '--library', single,
                                                                                              '--trace', *options)


@cases('argv, why', [
    (('ask', 'Why?', '--reranker', 'magic'), "'magic' is not a reranker: choose none, bm25"),
    (('ask', 'Why?', '--reranker', ''), "'' is not a reranker"),
    (('ask', 'Why?', '--reranker', 'cross-encoder:/no/such'), 'give a folder that holds a model'),
    (('ask', 'Why?', '--reranker', 'monot5'), 'needs a model behind a colon'),
    (('ask', 'Why?', '--segmenter', 'seos'), 'give --source pubmed or auto with it'),
    (('ask', 'Why?', '--source', 'pubmed', '--segmenter', 'magic'), "'magic' is not a segmenter"),
    (('ask', 'Why?', '--reranker', 'none', '--threshold', '0.3'), ', or leave out the threshold'),
    (('ask', 'Why?', '--reranker', 'default:mine'), "'default' has no model: write default alone"),
    (('ask', 'Why?', '--encoder', 'none'), 'none is no sound fast encoder'),
    (('search', 'tea', '--encoder', ''), 'no sound fast encoder'),
    (('index', 'build', 'x.xml', '--out', 'y', '--encoder', 'none'), 'none is no sound fast encoder'),
    (('index', 'build', 'x.xml', '--out', 'y', '--encoder', 'none', '--no-vectors'), 'give one of them'),
    (('search', 'tea', '--reranker', 'magic'), "'magic' is not a reranker"),
    (('index', 'build', 'x.xml', '--out', 'y', '--segmenter', 'magic'), "'magic' is not a segmenter"),
    (('index', 'build', 'x.xml', '--out', 'y', '--segmenter', 'fixed:5:5'), 'less than its size (5), got 5'),
    (('index', 'build', 'x.xml', '--out', 'y', '--no-vectors', '--segmenter', 'seos'), 'leave out the segmenter'),
])
def test_ways_that_are_none(argv, why, tmp_path):
    assert why in complaint(inside(*argv, cwd=tmp_path, env={'CPQA_CACHE': str(tmp_path/'cache')}))
    assert list(tmp_path.iterdir()) == []   # no demo library, no model was made first


# ---- the cache

def test_an_answer_loads_no_training_library_and_writes_nothing_into_the_home_folder(demo, tmp_path):
    code = (f'import sys; from cpqa.cli import main; code = main(["ask", {QUESTION!r}, "--depth", "1"]); '
            'print(sorted({m.split(".")[0] for m in sys.modules})); sys.exit(code)')
    env = environment(HOME=tmp_path, CPQA_CACHE=cache_dir(), XDG_CONFIG_HOME=None)
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, env=env)
    loaded = ast.literal_eval(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and done.stderr == '' and 'openvino' in loaded
    assert {'torch', 'transformers', 'sentence_transformers', 'pandas', 'nbdev', 'openvino_telemetry'}.isdisjoint(loaded)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('damage', ['no spans', 'no manifest'])
def test_a_damaged_demo_library_heals_itself(damage, demo, tmp_path):
    theirs = demo_library().folder
    own = shutil.copytree(theirs, tmp_path/'libraries'/theirs.name)
    (tmp_path/'models').symlink_to(Path(os.environ['CPQA_CACHE'])/'models')
    DAMAGES[damage][0](own)
    answer = asked(QUESTION, env={'CPQA_CACHE': str(tmp_path)})
    assert not answer['abstained']
    resolves(answer, demo)
    assert held(own) == held(theirs)


def test_two_first_questions_at_the_same_time(firsts):
    running, cache = firsts
    answers = [json.loads(r.stdout) for r in running]
    assert [r.returncode for r in running] == [0, 0] and answers[0]['citations'] == answers[1]['citations'] != []
    assert [p for p in cache.rglob('.*') if p.parent.name != 'terms'] == []              # nothing half-made stays behind


def test_a_full_disk_when_the_demo_library_is_built(tmp_path):
    if not mount(tmp_path/'disk', 2**18): pytest.skip('may not mount a file system here')
    try:
        complaint(inside('ask', QUESTION, env={'CPQA_CACHE': tmp_path/'disk'}))
        assert [p for p in (tmp_path/'disk').rglob('*') if p.is_file()] == []
    finally: unmount(tmp_path/'disk')
