"""`cpqa ask` with a language model of each kind, from end to end: the real SDKs against a server on 127.0.0.1, a local model, a recording,
and what can go wrong.

All of it in this process."""
import json
import re
from contextlib import nullcontext
from html import unescape
from types import SimpleNamespace

import pytest
from conftest import cases
from helpers import complaint, escapes, good, inside, screen

from cpqa.answering.readers import Reading
from cpqa.core.llm_providers import language_model
from cpqa.core.llm_spending import Limited
from cpqa.core.redaction import short
from cpqa.core.retries import Patience
from cpqa.display import answer_html, answer_in_words
from cpqa.pipeline import CancerQA
from cpqa.terminal import FAILED
from cpqa.testing.model_server import LLMServer

pytestmark = pytest.mark.usefixtures('loaded_once')
QUESTION = 'Is tisagenlecleucel effective for B-cell lymphoma?'
KEY = 'sk-ant-not-a-real-key-0123456789abcdef'


def shown(messages) -> dict:
    "The data in the last message."
    return json.loads(messages[-1].content.split('\n\n')[1])


def copying(messages, schema) -> str:
    "A model that copies the first sentence of the first passage, and invents a second claim."
    p = shown(messages)['passages'][0]
    first = re.split(r'(?<=[.])\s', p['text'])[0]
    reply = {'claims': [{'text': first, 'pmid': p['pmid'], 'quote': first},
                        {'text': 'It cures all of them.', 'pmid': '99999999', 'quote': 'All were cured.'}], 'status': 'answered'}
    if 'label' in schema['properties']: reply['label'] = schema['properties']['label']['enum'][0]
    return json.dumps(reply)


@pytest.fixture(scope='module')
def server():
    with LLMServer(copying, key=KEY) as s: yield s


def ways(server) -> dict[str, tuple[str, dict]]:
    "Names of models with the environment that they need."
    return {'anthropic': ('anthropic:toy', {'ANTHROPIC_API_KEY': KEY, 'ANTHROPIC_BASE_URL': server.url}),
            'openai': ('openai:toy', {'OPENAI_API_KEY': KEY, 'OPENAI_BASE_URL': f'{server.url}/v1'}),
            'openai at a URL': (f'openai:toy@{server.url}/v1', {'CPQA_LLM_KEY': KEY})}


def asked(*argv, env={}) -> dict: return json.loads(good('ask', QUESTION, *argv, '--json', env=env, how=inside))


@pytest.mark.parametrize('way', ['anthropic', 'openai', 'openai at a URL'])
def test_each_service_answers_and_its_claims_are_checked(way, server):
    name, env = ways(server)[way]
    answer = asked('--llm', name, env=env)
    assert answer['label'] == 'yes' and answer['kind'] == 'yesno' and not answer['abstained']
    assert [bool(c['fault']) for c in answer['claims']] == [False,
                                                            True] and '99999999' not in answer['used_PMIDs'] and len(
                                                                answer['used_PMIDs']) == 1
    assert '[not confirmed' in answer['response'] and answer['usage']['calls'] == 1 and answer['model']
    assert KEY not in json.dumps(answer)


def test_strict_leaves_out_what_fails(server):
    name, env = ways(server)['openai at a URL']
    answer = asked('--llm', name, '--strict', env=env)
    assert len(answer['claims']) == 1 and 'cures all' not in answer['response'] and answer['reason']


def test_the_terminal_shows_marks_and_no_key(server):
    name, env = ways(server)['anthropic']
    out = good('ask', QUESTION, '--llm', name, env=env, how=inside)
    assert out.count('cures all of them') == out.count('99999999') == 1 and 'Marked' not in out   # said once, with what is wrong and
    assert '(99999999 is not among the 10 documents retrieved); 1 of 2 claims confirmed' in out   # how many hold
    assert KEY not in out and not escapes(out)


def test_it_streams_to_a_terminal_and_says_that_it_is_a_draft(server):
    name, env = ways(server)['openai at a URL']
    with screen() as (terminal, said): done = inside('ask', QUESTION, '--llm', name, err=terminal, env=env)
    assert done.returncode == 0 and 'Draft, not checked yet:' in said[0] and 'cures all' in said[0]


def test_a_recording_replays_without_server_and_key(server, tmp_path):
    name, env = ways(server)['anthropic']
    tape = tmp_path/'tape.jsonl'
    first = asked('--llm', name, '--record', tape, env=env)
    assert KEY not in tape.read_text()
    again = asked('--llm', name, '--replay', tape, env={'ANTHROPIC_API_KEY': None, 'ANTHROPIC_BASE_URL': None})
    assert {k: first[k] for k in ('response', 'claims', 'label', 'citations')} == {k: again[k] for k in ('response', 'claims', 'label',
        'citations')}
    assert 'holds no answer' in complaint(inside('ask', QUESTION, '--llm', name, '--replay', tape, '--prompt', 'stuhlmann'))


def test_a_choice_and_a_model_alone(server):
    name, env = ways(server)['openai at a URL']
    answer = asked('--llm', name, '--option', 'it is', '--option', 'it is not', env=env)
    assert (answer['kind'], answer['label']) == ('choice', 'A')
    with LLMServer(lambda messages,
                   schema: json.dumps({'reasoning': 'It is known.', 'response': 'Yes, in many.', 'label': 'yes',
                                       'status': 'answered'})) as alone:
        answer = asked('--llm', f'openai:toy@{alone.url}/v1', '--prompt', 'cot')
    assert answer['label'] == 'yes' and answer['citations'] == answer['evidence'] == [] and 'rests on no document' in answer['reason']


def test_adaptive_looks_up_only_where_it_must():
    def says(sure):
        def reply(messages, schema):
            if 'certain' in schema['properties']:
                return json.dumps({'reasoning': '', 'response': 'Yes.', 'label': 'yes', 'certain': sure, 'status': 'answered'})
            return copying(messages, schema)
        return reply
    for sure in (True, False):
        with LLMServer(says(sure)) as server: answer = asked('--llm', f'openai:toy@{server.url}/v1', '--adaptive', '--trace')
        assert answer['trace']['adaptive']['retrieved'] is not sure and bool(answer['citations']) is not sure


def ways_of(answer) -> set[str]: return {c['route'] for c in answer['trace']['candidates']}


def test_the_model_writes_the_ladder_and_then_the_answer():
    "The two steps of the rewriter and the answer are three calls of the same model; the ladder's trace has its strings."
    def reply(messages, schema):
        parts = schema['properties']
        if 'intent' in parts:
            return json.dumps({'question': QUESTION, 'concepts': ['tisagenlecleucel'], 'relations': [], 'intent': 'therapy'})
        if 'queries' in parts: return json.dumps({'queries': [{'query': '(tisagenlecleucel[tiab] AND lymphoma[tiab]', 'why': 'both'},
                                                              {'query': 'tisagenlecleucel[tiab]', 'why': 'the drug'}]})
        return copying(messages, schema)
    with LLMServer(reply) as server:
        answer = asked('--rewriter', 'llm', '--llm', f'openai:toy@{server.url}/v1', '--trace')
        assert len(server.log) == 3 and answer['label'] == 'yes' and answer['trace']['rewriter'] == 'llm'
    assert answer['usage']['calls'] == 3 and answer['trace']['usage']['calls'] == 2   # all that was asked for it
    rungs = answer['trace']['audit']
    assert 'the model wrote: (tisagenlecleucel[tiab] AND lymphoma[tiab]' in rungs[0]['why'] and rungs[0]['hits'] > 0


@cases('how', ['query2doc', 'hyde', 'rag-fusion'])
def test_texts_of_the_model_are_counted_too(how):
    texts = json.dumps({'texts': ['Tisagenlecleucel led to remission.', 'Is CAR T-cell therapy effective?']})
    with LLMServer(lambda messages, schema: texts if 'texts' in schema['properties'] else copying(messages, schema)) as server:
        answer = asked('--rewriter', how, '--llm', f'openai:toy@{server.url}/v1', '--trace')
        assert answer['usage']['calls'] == len(server.log) == 2 and answer['trace']['rewriter'] == how
    tokens = ('input_tokens', 'output_tokens')
    assert all(answer['usage'][k] > answer['trace']['usage'][k] > 0 for k in tokens)


@cases('calls', [1, 2])
def test_a_cap_within_the_ladder_is_a_cap(calls):
    "It is kept apart from the failures of a model; a person sees what was found, as where the reader meets a cap."
    step = json.dumps({'question': QUESTION, 'concepts': [], 'relations': [], 'intent': ''})
    with LLMServer(lambda messages, schema: step) as server:
        model = Limited(language_model(f'openai:toy@{server.url}/v1'), max_calls=calls)
        qa = CancerQA(llm=model, rewrite='llm')
        found, answer = qa.retrieve(QUESTION), qa.ask(QUESTION)
    assert ('are spent' in found.spent, found.usage['calls'], found.rewriter) == (calls == 1, calls, 'rules')
    assert answer.trace['spent'] and answer.abstained and answer.evidence and 'are spent' in answer.reason


@cases('first,routes', [('bm25', {'E2'}), ('dense', {'E1'}), ('hybrid', {'E1', 'E2', 'E3'})])
def test_the_first_stage_can_be_chosen(first, routes):
    found = asked('--first', first, '--depth', '9', '--trace')
    assert ways_of(found) <= routes and found['evidence']


def test_combine_and_above_are_those_of_the_reranker():
    scores = lambda *more: [e['reranked'] for e in asked('--depth', '9', '--passages', '9', *more)['evidence']]
    ordered = scores('--combine', 'reranker')
    assert len(ordered) == 9 and ordered == sorted(ordered, reverse=True) != scores('--combine', 'sum')
    limit = (ordered[2] + ordered[3]) / 2
    assert scores('--combine', 'reranker', '--above', str(limit)) == ordered[:3]


@cases('verdict,said', [('supports', 'doubts none of 1'), ('neither', 'doubts 1 of 1')])
def test_the_model_reads_its_claims_once_more(verdict, said):
    def reply(messages, schema):
        return json.dumps({'words': '', 'verdict': verdict}) if 'verdict' in schema['properties'] else copying(messages, schema)
    with LLMServer(reply) as server:
        answer = asked('--llm', f'openai:toy@{server.url}/v1', '--check', 'llm', '--trace')
        assert len(server.log) == 2 and answer['usage']['calls'] == 2   # the one claim that holds
    assert answer['timings_ms']['read_again'] > 0
    assert answer['label'] == 'yes' and answer['trace']['reader']['doubted'] == (verdict != 'supports')
    assert said in answer['reason']


@cases('verdict,alone', [(verdict, alone) for verdict in ('supports', 'contradicts') for alone in (False, True)])
def test_the_model_reads_what_the_check_refused_and_lets_nothing_through(verdict, alone):
    "Text, JSON and card tell the disagreement; also where no claim holds and sentences are quoted instead."
    def reply(messages, schema):
        if 'verdict' in schema['properties']:
            return json.dumps({'words': '', 'verdict': verdict if ' 99 %' in messages[-1].content else 'supports'})
        reply = json.loads(copying(messages, schema))
        sound = reply['claims'][0]
        wrong.append(sound['text'].rstrip('.') + ' in 99 % of them.')
        return json.dumps(reply | {'claims': [sound] * (not alone) + [sound | {'text': wrong[-1]}]})
    wrong = list[str]()
    with LLMServer(reply) as server:
        answer = CancerQA(reading=Reading(language_model(f'openai:toy@{server.url}/v1'), check='llm')).ask(QUESTION)
        assert len(server.log) == answer.usage['calls'] == 3   # two replies and the refused claim, or one and both claims
    told, data, card = (' '.join(x.split()) for x in (answer_in_words(answer), answer.to_dict()['reason'], unescape(answer_html(answer))))
    assert answer.timings_ms['read_again'] > 0 and wrong[-1] not in [c.text for c in answer.claims if c.holds]
    backed = f'1 of 1 that did not pass the check: “{short(wrong[-1], 100)}” (supports in PMID'
    said = backed if verdict == 'supports' else 'none of 1 that did not pass the check.'
    assert all(f'finds support for {said}' in one for one in (told, data, card))
    assert all(('the check decides' in one) == (verdict == 'supports') for one in (told, data, card))
    reader = answer.trace['model' if alone else 'reader']
    assert (reader['doubted'], reader['backed'], reader['failed']) == (0, verdict == 'supports', 1)


def test_a_local_model(tmp_path):
    pytest.importorskip('torch')
    from cpqa.core.llm_local import toy_llama
    folder = toy_llama(tmp_path/'toy', 'Tea helps, they say.', window=8192)
    done = inside('ask', QUESTION, '--llm', f'local:{folder}', '--json')
    answer = json.loads(done.stdout)
    assert done.returncode == FAILED
    assert answer['abstained'] and 'JSON' in answer['reason'] and answer['evidence'] and answer['usage']['calls'] == 2 and answer['usage'][
        'cost'] == 0


@cases('fault,reason', [('401', 'key'), ('500', 'failed'), ('gone', 'model'), ('quota', 'spent'), ('notjson', 'JSON'), ('half', 'JSON'),
                        ('empty', 'no text'), ('nobody', 'cannot be reached'), ('refusal', 'refuses')])
def test_what_goes_wrong_is_an_abstention_with_the_evidence(fault, reason, monkeypatch):
    "A model that failed has an exit status of its own, and what was found is listed, in text as in JSON; a refusal is an answer."
    monkeypatch.setattr(Patience, 'wait', lambda *args: 0)
    nobody = nullcontext(SimpleNamespace(url='http://127.0.0.1:9'))
    with nobody if fault == 'nobody' else LLMServer(copying, misbehave=f'{fault}=99') as server:
        done, said = (inside('ask', QUESTION, '--llm', f'openai:toy@{server.url}/v1', *more) for more in (['--json'], []))
    assert {done.returncode, said.returncode} == {0 if fault == 'refusal' else FAILED} and done.stderr == said.stderr == ''
    answer = json.loads(done.stdout)
    assert answer['abstained'] and answer['evidence'] and not answer['citations'] and reason.lower() in answer['reason'].lower()
    assert 'What was found is listed' in said.stdout and answer['reason'] in said.stdout
    for e in answer['evidence']: assert e['passage']['title'] in said.stdout and e['url'] in said.stdout


@cases('argv,said', [
    (['--llm', 'magic'], 'no language model'), (['--llm', 'openai:'], 'no language model'), (['--strict'], 'give --llm too'),
    (['--option', 'a'], 'give --llm too'),
    (['--llm', 'openai:toy@http://127.0.0.1:9/v1', '--option', 'a'], '2 to 26 options'),
    (['--llm', 'openai:toy@http://127.0.0.1:9/v1', '--record', 'a', '--replay', 'b'], 'give one of them'),
    (['--llm', 'none', '--max-cost', '1'], 'give --llm too'), (['--llm', 'anthropic:claude-x'], 'ANTHROPIC_API_KEY')])
def test_what_cannot_be_meant(argv, said):
    assert said in complaint(inside('ask', QUESTION, *argv, env={'ANTHROPIC_API_KEY': None, 'OPENAI_API_KEY': None}))


def test_a_cap_on_a_model_of_unknown_price_is_refused(server):
    name, env = ways(server)['openai at a URL']
    done = inside('ask', QUESTION, '--llm', name, '--max-cost', '0.5', '--json', env=env)
    answer = json.loads(done.stdout)
    assert done.returncode == FAILED and answer['abstained'] and 'price' in answer['reason']
    assert 'calls' not in {k for k, v in answer['usage'].items() if v}


def test_what_is_too_thin_is_not_sent(server):
    name, env = ways(server)['openai at a URL']
    before = len(server.log)
    answer = json.loads(good('ask', 'How do I bake sourdough bread?', '--llm', name, '--json', env=env, how=inside))
    assert answer['abstained'] and len(server.log) == before


def test_danger_comes_first_whoever_answers(server):
    name, env = ways(server)['openai at a URL']
    for question in ('My mother cannot breathe, is it the tamoxifen?', 'Fever of 38.6 since my chemo, what can cause a fever?'):
        for more in ([], ['--llm', name]):
            answer = json.loads(good('ask', question, *more, '--json', env=env, how=inside))
            assert 'emergency number' in answer['first'] and (answer['kind'], answer['citations']) == ('help', [])
    asked = 'long pauses between breaths, mum is at the end, is she in pain'   # beside the dying nothing is to be saved by hurry
    out = good('ask', asked, how=inside)
    assert out.index('district nurses') < out.index('Searched')


def test_words_that_stand_alone_stand_alone_whoever_answers(server):
    (name, env), before = ways(server)['openai at a URL'], len(server.log)
    for more in ([], ['--llm', name]):
        said = json.loads(good('ask', 'I took all my morphine tablets at once, what now?', *more, '--json', env=env, how=inside))
        assert 'emergency number' in said['first'] and said['kind'] == 'help' and not said['citations'] and not said['response']
    out = good('ask', 'I took all my morphine tablets at once, what now?', how=inside)
    assert 'emergency number' in out and 'Searched' not in out and len(server.log) == before


def test_the_doctor_sees_keys_and_shows_none():
    out = good('doctor', env={'ANTHROPIC_API_KEY': KEY}, how=inside)
    assert KEY not in out and KEY[-6:] not in out and 'ANTHROPIC_API_KEY' in out
    assert isinstance(json.loads(good('doctor', '--json', how=inside)), list)
