"""A model writes, and whatever it writes, what a person gets was checked, is marked, or is an abstention that keeps the evidence."""
import json
from collections import Counter

import pytest
from conftest import cases, examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpqa.answering.direction import direction
from cpqa.answering.question_kinds import kind_of
from cpqa.answering.model_reader import ALONE, NO_ANSWER, AdaptiveReader, LLMReader, against_itself, carried, counted
from cpqa.answering.prompts import PROMPTS
from cpqa.answering.replies import NO_LABEL
from cpqa.answering.readers import Gathered
from cpqa.core.errors import CpqaError
from cpqa.core.llm import KINDS, Completion, LLMError, Recorded, Replayed
from cpqa.core.llm_spending import added
from cpqa.core.records import CheckedClaim, Citation, Document, Evidence, Passage
from cpqa.core.remarks import remark

TEA = Document('101', 'Ginger tea after surgery',
               'We gave 80 people ginger tea. Ginger tea lowered the rate of nausea. Sleep was not measured.', year=2021)
RICE = Document('202', 'Rice and cramps', 'Rice did not relieve cramps in 40 people. Two people had heartburn.', year=2018)
SHELF = {d.id: d for d in (TEA, RICE)}
FOUND = [Evidence(Passage.of(d, 0, len(d.text)), score=1 / n, route='E3') for n, d in enumerate(SHELF.values(), 1)]
QUESTION = 'Does ginger tea lower the rate of nausea?'
SOUND = {'text': 'Ginger tea lowered the rate of nausea.', 'pmid': '101', 'quote': 'Ginger tea lowered the rate of nausea.'}
BESIDE = {'text': 'Two people who ate rice had heartburn.', 'pmid': '202', 'quote': 'Two people had heartburn.'}
PLANTED = 'SWALLOW-THE-WHOLE-BOTTLE'


class Scripted:
    "Says what `reply(messages, schema)` says, a text, an object or an error to raise; keeps what it was asked."
    def __init__(self, *replies, window=8_000, finish='', cost=None):
        self.replies, self.window, self.finish, self.cost, self.asked = list(replies), window, finish, cost, []

    def complete(self, messages, *, max_tokens=1024, temperature=0.0, schema=None, on_text=None):
        self.asked.append((messages, schema))
        said = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(said, BaseException): raise said
        text = said if isinstance(said, str) else json.dumps(said)
        if on_text:
            for at in range(0, len(text), 3): on_text(text[at:at + 3])
        return Completion(text, 'scripted', 100, 20, finish=self.finish, ms=2.0, cost=self.cost)


def answered(*replies, kind='yesno', prompt='passages', options=None, evidence=FOUND, documents=SHELF, question=QUESTION, strict=False,
             **more):
    "The answer of a reader whose model says these replies, the last of them for ever."
    return LLMReader(Scripted(*replies, **more), prompt, strict=strict).read(Gathered(question, evidence, documents, kind, options))


def found(looked: list):
    "What looks for evidence, and says in `looked` that it did."
    return lambda gathered: looked.append(1) or gathered._replace(evidence=FOUND, documents=SHELF)


def good(*claims, **more) -> dict: return {'claims': [*claims], 'status': 'answered'} | more


def declined(answer, why: str):
    "It is an abstention with this reason, which keeps the evidence and holds nothing that the model made up."
    assert (answer.abstained, answer.response, answer.label, answer.items, answer.citations) == (True, NO_ANSWER, '', (), ())
    assert answer.evidence == tuple(FOUND) and why in answer.reason and PLANTED not in answer.reason + str(answer.trace) + ''.join(
        answer.notes), answer.reason


# ---- bad replies

@pytest.mark.parametrize(('reply', 'fault', 'why'), [
    ('', 'empty', 'there is no text'),
    (PLANTED, 'not json', 'no JSON object'),
    ('{"claims": [{"text": "' + PLANTED, 'half json', 'does not end'),
    ("{'claims': [], 'label': 'yes'}", 'not json', 'no JSON object'),
    ('[1, 2]', 'not json', 'no JSON object'),
    (good(SOUND, label=PLANTED), 'no label', 'not one of yes, no, maybe'),
    (good(SOUND, label=3), 'shape', "'label' is no text"),
    (good(SOUND), 'missing', "no 'label'"),
    (good(label='yes'), 'no claims', 'there are none'),
    ({'label': 'yes', 'claims': PLANTED}, 'shape', 'is no object'),
    ({'label': 'yes', 'claims': [[PLANTED]]}, 'shape', 'is no object'),
    (good({'text': '', 'pmid': '101', 'quote': 'x'}, label='yes'), 'missing', "no 'text'"),
    (good(SOUND, label='yes', status=PLANTED), 'shape', "'status' is not one of"),
    (good(SOUND, SOUND | {'text': PLANTED * 1250}, label='yes'), 'long', 'more than 2,000 letters'),   # 30,000 letters
    (good(SOUND, SOUND | {'quote': PLANTED * 1250}, label='yes'), 'long', 'more than 5,000 letters'),
    (good(SOUND | {'pmid': 10**400}, label='yes'), 'long', 'more than 18 digits'),
    (good(*[SOUND | {'text': f'{PLANTED} {n}'} for n in range(201)], label='yes'), 'long', 'more than 200 entries'),
    ('{"label": "yes", "claims": []}' + ' ' * 1_000_000, 'long', 'more of it than anybody would read'),
])
def test_a_bad_reply_is_asked_for_once_more_and_then_declined(reply, fault, why):
    model = Scripted(reply)
    answer = LLMReader(model).read(Gathered(QUESTION, FOUND, SHELF, 'yesno'))
    declined(answer, why)
    assert answer.trace['reader']['faults'] == [fault, fault] and answer.usage['calls'] == 2 == len(model.asked)
    first, second = (messages for messages, _ in model.asked)
    assert second[0] == first[0] and second[1].content.startswith(first[1].content) and why in second[1].content
    assert PLANTED not in second[1].content   # what a document may have put into its mouth is not said again
    mended = answered(reply, good(SOUND, label='yes'))
    assert (mended.label, mended.used_PMIDs, mended.usage['calls']) == ('yes', ('101',), 2)


def test_fifty_copies_of_a_claim_are_one():
    copies = [SOUND | {'text': SOUND['text'].upper() if n % 2 else SOUND['text'] + '.' * (n % 3)} for n in range(50)]
    once, fifty = answered(good(SOUND, label='yes')), answered(good(*copies, label='yes'))
    assert (fifty.claims, fifty.reason, fifty.response) == (once.claims, once.reason, once.response) and len(once.claims) == 1
    prose = {'response': f'{SOUND["text"]} ' * 50, 'used_PMIDs': ['101'], 'label': 'yes', 'status': 'answered', 'reasoning': ''}
    assert len(answered(prose, prompt='stuhlmann').claims) == 1


def test_what_is_said_of_two_papers_is_one_claim_with_two_sources():
    also = {'303': Document('303', 'Again', 'We repeated it. Ginger tea lowered the rate of nausea in this study too.')}
    other = SOUND | {'text': 'Ginger tea LOWERED the nausea rate', 'pmid': '999'}
    twice = answered(good(SOUND, SOUND | {'pmid': '303'}, other, label='yes'),
                     documents=SHELF | also, evidence=[*FOUND, Evidence(Passage.of(also['303'], 0, 20), 0.1)])
    assert [(c.holds, [x.pmid for x in c.citations]) for c in twice.claims] == [(True, ['101', '303']), (False, [])]
    assert twice.response.count(SOUND['text']) == 1 and '[PMID 101; PMID 303]' in twice.response


def test_claims_that_all_fail_are_asked_for_once_more_and_shorter():
    many = {str(n): Document(str(n), text=f'Tea number {n} lowered the rate of nausea.') for n in range(1, 7)}
    found = [Evidence(Passage.of(d, 0, len(d.text)), 1 / int(id)) for id, d in many.items()]
    lost, kept = ({'text': 'Tea lowered the rate of nausea.', 'pmid': '2', 'quote': f'Tea number {n} lowered the rate of nausea.'}
                  for n in (7, 2))
    model = Scripted(good(lost, label='yes'), good(kept, label='yes'))
    answer = LLMReader(model).read(Gathered(QUESTION, found, many, 'yesno'))
    assert (answer.label, answer.used_PMIDs, answer.trace['reader']['faults']) == ('yes', ('2',), ['none confirmed'])
    (first, narrow), (second, narrower) = model.asked
    shown = [json.loads(messages[1].content.split('\n\n')[1])['passages'] for messages in (first, second)]
    assert [len(s) for s in shown] == [6, 3] and 'could not be used: none of its claims' in second[1].content
    assert narrow['properties']['claims']['items']['properties']['pmid']['enum'] == [*many]
    assert narrower['properties']['claims']['minItems'] == 1 and narrower['properties']['claims']['maxItems'] == 6


@pytest.mark.parametrize(('reply', 'label', 'held'), [
    (f'Yes. {SOUND["text"]} It also whitens teeth within days.', 'yes', [True, False]),
    (f'**Answer: yes**\n\n- {SOUND["text"]} [101]', 'yes', [True]),
    ('{"claims": [' + json.dumps(SOUND) + ', {"text": "It wh', '', [True]),
    ('The answer is no: ginger tea raised the rate of nausea.', 'no', [False]),
])
def test_prose_is_cut_into_claims_and_each_is_checked(reply, label, held):
    answer = answered(reply)
    assert [c.holds for c in answer.claims] == held or not any(held)
    if any(held): assert (answer.label, answer.used_PMIDs, answer.usage['calls']) == (label, ('101',), 1)
    else: assert answer.abstained and answer.usage['calls'] == 2


def test_a_draft_without_end_is_not_shown_to_its_end():
    heard = []
    LLMReader(Scripted(good(SOUND | {'text': 'm' * 30_000}))).read(Gathered(QUESTION, FOUND, SHELF, on_text=heard.append))
    assert max(map(len, ''.join(heard).split('…'))) <= 20_000


def test_no_retries_and_three():
    assert [answered('no').usage['calls']] == [2]
    for retries in (0, 3):
        model = Scripted('no')
        declined(LLMReader(model, retries=retries).read(Gathered(QUESTION, FOUND, SHELF, 'yesno')), 'no JSON object')
        assert len(model.asked) == retries + 1


@pytest.mark.parametrize('reply', ["I'm sorry, but I can't help with that.", 'I cannot answer medical questions.', 'As an AI, I will not.'])
def test_a_refusal_is_not_asked_again(reply):
    answer = answered(reply)
    declined(answer, 'refuses')
    assert answer.usage['calls'] == 1


def test_finish_reasons_count():
    answer = answered(good(SOUND, label='yes'), finish='refusal')
    declined(answer, 'refuses')
    declined(answered('{"claims": [', finish='length'), 'cut off after 1,024 tokens')


@pytest.mark.parametrize('status', ['off topic', 'partial', 'disagree', 'unclear', 'unknown'])
def test_a_model_may_decline_in_our_words_alone(status):
    answer = answered({'claims': [SOUND | {'text': PLANTED}], 'label': 'yes', 'status': status, 'reason': PLANTED})
    declined(answer, 'The language model declines: ')
    assert answer.usage['calls'] == 1
    declined(answered(good(SOUND, label='none')), 'none of the options')


@cases('kind', KINDS)
def test_an_error_of_the_service_keeps_the_evidence(kind):
    answer = answered(LLMError('it went wrong with key sk-ant-api03-abcdefgh', kind))
    declined(answer, 'The language model did not answer: it went wrong')
    assert answer.trace['reader']['faults'] == [kind] and answer.usage['calls'] == 0 and 'sk-ant' not in answer.to_json()
    second = answered('no JSON', LLMError('the line went dead', kind))
    declined(second, 'the line went dead')
    assert second.usage == {'calls': 1, 'input_tokens': 100, 'output_tokens': 20, 'ms': 2.0} and second.model == 'scripted'


def test_what_is_no_fault_of_the_model_is_raised():
    for error in (KeyboardInterrupt(), TypeError('a bug')):
        with pytest.raises(type(error)): answered(error)
    with pytest.raises(CpqaError, match='needs its options'): answered('{}', kind='choice')


def test_nothing_to_read_is_not_asked():
    model = Scripted(good(SOUND))
    gone = replace(TEA, publication_types=('Retracted Publication',))
    whole = ' '.join(['word'] * 40_000)
    huge = Document('303', text=whole)
    for evidence, documents, question, why in [([], {}, QUESTION, 'nothing was found'),
                                               (FOUND[:1], {'101': gone}, QUESTION, 'has been retracted'),
                                               ([Evidence(Passage.of(huge, 0, len(whole)), 1.0)], {'303': huge}, QUESTION, 'larger window'),
                                               (FOUND, SHELF, 'Why? ' * 9_000, 'ask in fewer words')]:
        answer = LLMReader(model).read(Gathered(question, evidence, documents))
        assert answer.abstained and why in answer.reason and answer.evidence == tuple(evidence) and answer.usage.get('calls', 0) == 0
    assert not model.asked


# ---- claims

def test_pmids_come_as_numbers_and_texts():
    for pmid in (101, '101', 'PMID: 101', 101.0, '[101]'):
        assert answered(good(SOUND | {'pmid': pmid}, label='Yes.')).used_PMIDs == ('101',)


@cases('claim', [
    SOUND | {'pmid': '999'}, SOUND | {'pmid': ''}, SOUND | {'pmid': '202'}, SOUND | {'quote': ''},
    SOUND | {'quote': 'Ginger tea cured nausea in all who drank it.'},
    SOUND | {'text': 'Ginger tea raised the rate of nausea.'}, SOUND | {'text': 'Ginger tea did not lower the rate of nausea.'},
    {'text': 'Rice relieved cramps in 40 people.', 'pmid': '202', 'quote': 'Rice did relieve cramps in 40 people.'},
    {'text': 'Rice did not relieve cramps in 400 people.', 'pmid': '202', 'quote': 'Rice did not relieve cramps in 400 people.'},
])
def test_a_claim_that_fails_is_marked_dropped_and_never_enough(claim):
    alone = answered(good(claim, label='yes'))
    declined(alone, 'none could be confirmed: ')
    assert [c.holds for c in alone.claims] == [False]
    marked, dropped = (answered(good(BESIDE, claim, label='yes'), strict=strict) for strict in (False, True))
    assert marked.label == dropped.label == 'yes' and marked.used_PMIDs == dropped.used_PMIDs == ('202',)
    assert marked.response.count('[not confirmed: ') == 1 and 'Marked: 1' in marked.reason
    assert 'not confirmed' not in dropped.response and len(dropped.claims) == 1 and 'Left out: 1' in dropped.reason
    assert (marked.trace['reader']['dropped'], dropped.trace['reader']['dropped']) == (0, 1)


def test_what_was_not_shown_cannot_be_cited():
    far = Document('404', text='Ginger tea lowered the rate of nausea.')
    answer = answered(good(SOUND | {'pmid': '404'}, label='yes'), documents=SHELF | {'404': far})
    declined(answer, '404')


def test_retracted_papers_are_neither_shown_nor_cited():
    gone = replace(TEA, publication_types=('Retracted Publication',))
    model = Scripted(good(SOUND, label='yes'))
    answer = LLMReader(model).read(Gathered(QUESTION, FOUND, SHELF | {'101': gone}, 'yesno'))
    assert answer.abstained and answer.citations == () and '1 retracted' in answer.notes[0]
    assert 'Ginger tea after surgery' not in model.asked[0][0][1].content


def test_items_need_a_claim_that_names_them():
    answer = answered(good(BESIDE, items=['Heartburn', 'nausea', '<b>heartburn</b>', 'heart', 7]), kind='list')
    assert answer.items == ('Heartburn',) and '4 named without' in answer.reason and answer.response.startswith('Heartburn.\n')
    declined(answered(good(BESIDE, items=['nausea']), kind='factoid'), 'no confirmed claim')
    assert carried(['a'], [CheckedClaim('Vitamin A helps.')]) == ('a',) and carried(['a'], [CheckedClaim('Tea helps.')]) == ()


def test_every_kind_and_every_prompt():
    for name, prompt in PROMPTS.items():
        for kind, short in [('yesno', {'label': 'yes'}), ('choice', {'label': 'B'}), ('factoid', {'items': ['ginger tea']}),
                            ('list', {'items': ['ginger tea']}), ('long', {})]:
            reply = {'reasoning': PLANTED, 'claims': [SOUND], 'response': SOUND['text'], 'used_PMIDs': ['101'], 'status': 'answered',
                     'certain': True} | short
            answer = answered({k: v for k, v in reply.items() if k in prompt.keys or k in short}, kind=kind, prompt=name,
                              options={'A': 'rice', 'B': 'ginger tea'} if kind == 'choice' else None)
            assert not answer.abstained and answer.kind == kind and PLANTED not in answer.to_json(), (name, kind, answer.reason)
            assert answer.used_PMIDs == (() if prompt.context == 'none' else ('101',))
            assert (answer.why == (ALONE,)) == (prompt.context == 'none')
            assert answer.label == short.get('label', '') and answer.items == tuple(short.get('items', ()))
            for c in answer.citations: assert SHELF[c.pmid].text[c.start:c.end] == c.quote


@examples(80)
@given(st.lists(st.fixed_dictionaries({'text': st.sampled_from([SOUND['text'], PLANTED]) | st.text(max_size=40),
                                       'pmid': st.sampled_from([101, '202', '999', None]),
                                       'quote': st.sampled_from([SOUND['quote'], 'Sleep was not measured.', '']) | st.text(max_size=40)}),
                                       max_size=4),
       st.sampled_from(['yes', 'no', 'none', 'perhaps', '']), st.booleans())
def test_no_answer_without_a_quote_that_stands_where_it_says(claims, label, strict):
    answer = answered(good(*claims, label=label), strict=strict)
    assert answer.abstained == (not answer.citations) and answer.evidence == tuple(FOUND)
    for c in answer.citations: assert SHELF[c.pmid].text[c.start:c.end] == c.quote
    assert not any(PLANTED in line and 'not confirmed' not in line for line in answer.response.split('\n'))
    assert type(answer).from_json(answer.to_json()) == answer


# ---- which way

def test_a_label_against_its_quotes_is_marked_and_under_strict_declined():
    loose, strict = (answered(good(SOUND, label='no'), strict=s) for s in (False, True))
    assert loose.counts == {'for': 1, 'against': 0, 'unclear': 0} and loose.label == 'no' and 'the other way' in loose.reason
    declined(strict, 'the other way')
    off = LLMReader(Scripted(good(SOUND, label='no')), strict=True, direction=None).read(Gathered(QUESTION, FOUND, SHELF, 'yesno'))
    assert (off.label, off.counts) == ('no', {})


def test_a_paper_counts_once():
    cite = lambda pmid, quote: Citation(pmid, quote, 0, len(quote), 0.9)
    claims = [CheckedClaim('a', (cite('1', 'for'), cite('1', 'against'), cite('2', 'for'), cite('2', 'unclear'))),
              CheckedClaim('b', (cite('3', 'against'),)), CheckedClaim('c', (cite('4', 'for'),), why=remark('no paper'))]
    assert counted('?', claims, lambda question, quote: quote) == {'for': 1, 'against': 1, 'unclear': 1}


def test_how_often_a_wrong_label_is_noticed(data_dir):
    noticed: Counter = Counter()
    for path in sorted((data_dir/'mirage'/'rawdata'/'bioasq').glob('Task*/*.json')):
        for q in json.loads(path.read_bytes())['questions']:
            gold = q.get('exact_answer')
            if q['type'] != 'yesno' or (gold := str(gold[0] if isinstance(gold, list) else gold).lower()) not in ('yes', 'no'): continue
            quotes = [Citation(s['document'].rsplit('/', 1)[-1], s['text'], 0, len(s['text']), 0.9) for s in q['snippets'][:3]]
            counts = counted(q['body'], [CheckedClaim('x', tuple(quotes))], direction)
            for label in ('yes', 'no'): noticed[label, label == gold, against_itself(label, counts)] += 1
    share = {key: noticed[(*key, True)] / (noticed[(*key, True)] + noticed[(*key, False)]) for key in [('yes', True), ('yes', False),
        ('no', True), ('no', False)]}
    print({f'{label}, {"right" if right else "wrong"}': round(x, 3) for (label, right), x in share.items()}, sum(noticed.values()) // 2)
    assert share['no', False] > 0.45 and share['yes', False] > 0.12 and share['yes', True] < 0.03 and share['no', True] < 0.22


# ---- around the model

def test_it_streams_words_and_fits_the_schema():
    heard: list[str] = []
    model = Scripted(good(SOUND, label='yes'))
    LLMReader(model).read(Gathered(QUESTION, FOUND, SHELF, 'yesno', on_text=heard.append))
    assert ''.join(heard).strip() == SOUND['text'] and len(heard) > 3
    assert model.asked[0][1]['properties']['label']['enum'] == ['yes', 'no', 'maybe', NO_LABEL]


def test_a_recording_gives_the_same_answer_and_lacks_nothing_in_silence(tmp_path):
    live = LLMReader(Recorded(Scripted(good(SOUND, label='yes')), tmp_path/'tape.jsonl')).read(Gathered(QUESTION, FOUND, SHELF, 'yesno'))
    again = LLMReader(Replayed(tmp_path/'tape.jsonl', window=8_000))
    assert again.read(Gathered(QUESTION, FOUND, SHELF, 'yesno')) == live and live.label == 'yes'
    with pytest.raises(CpqaError, match='holds no answer'): again.read(Gathered('Does rice help?', FOUND, SHELF, 'yesno'))


@pytest.mark.parametrize('api', ['anthropic', 'openai'])
def test_through_the_real_libraries(api, monkeypatch):
    pytest.importorskip(api)
    from cpqa.core.llm_hosted import AnthropicLLM, OpenAILLM
    from cpqa.testing.model_server import LLMServer
    with LLMServer(lambda messages, schema: json.dumps(good(SOUND, label='yes'))) as server:
        llm = (AnthropicLLM if api == 'anthropic' else OpenAILLM)('a-model', key='not-a-key', base_url=server.url)
        answer = LLMReader(llm).read(Gathered(QUESTION, FOUND, SHELF, 'yesno'))
        assert (answer.label, answer.used_PMIDs, answer.usage['calls']) == ('yes', ('101',), 1), answer.reason
        assert [asked.schema['required'] for asked in server.log] == [['claims', 'label', 'status']]
    dead = LLMReader((AnthropicLLM if api == 'anthropic' else OpenAILLM)('a-model', key='not-a-key', base_url=server.url,
        retries=0)).read(Gathered(QUESTION, FOUND, SHELF, 'yesno'))
    declined(dead, 'The language model did not answer')


# ---- adaptive retrieval

ALONE_REPLY = {'reasoning': 'It is known.', 'response': 'Ginger is used.', 'label': 'yes', 'status': 'answered'}


@pytest.mark.parametrize(('first', 'searches'), [
    (ALONE_REPLY | {'certain': True}, 0), (ALONE_REPLY | {'certain': False}, 1), (ALONE_REPLY | {'certain': True, 'status': 'unknown'}, 1),
    (ALONE_REPLY | {'certain': True, 'label': 'none'}, 1), (LLMError('gone', 'network'), 1),
], ids=['certain', 'uncertain', 'unknown', 'no label', 'error'])
def test_it_looks_up_only_where_it_must(first, searches):
    looked = []
    model = Scripted(first, good(SOUND, label='yes'), cost=0.25)
    answer = AdaptiveReader(LLMReader(model), found(looked)).read(Gathered(QUESTION, kind='yesno'))
    assert len(looked) == searches and answer.trace['adaptive']['retrieved'] == bool(searches)
    assert (answer.label, answer.used_PMIDs) == ('yes', ('101',) if searches else ())
    assert (answer.why == (ALONE,)) == (not searches) and QUESTION in model.asked[0][0][1].content and 'surgery' not in model.asked[0][0][
        1].content
    assert answer.usage['calls'] == len(model.asked) - isinstance(first, LLMError) and answer.usage['cost'] == 0.25 * answer.usage['calls']


def test_a_bad_word_on_certainty_is_not_taken_for_yes():
    looked = []
    for certain in ('true', 1, None):
        AdaptiveReader(LLMReader(Scripted(ALONE_REPLY | {'certain': certain})), found(looked)).read(Gathered(QUESTION, kind='yesno'))
    assert len(looked) == 3


def test_unknown_costs_stay_unknown():
    assert 'cost' not in answered('no', good(SOUND, label='yes')).usage
    assert added({}, {'calls': 1, 'cost': 0.5, 'ms': 1.0}) == {'calls': 1, 'input_tokens': 0, 'output_tokens': 0, 'ms': 1.0, 'cost': 0.5}


# ---- kinds of questions

def test_kinds_agree_with_those_of_bioasq(data_dir):
    agree: dict[bool, Counter] = {True: Counter(), False: Counter()}
    for line in (data_dir/'bioasq_beir'/'queries.jsonl').read_text().splitlines():
        q = json.loads(line)
        agree[q['batch'].startswith('10')][q['type'].replace('summary', 'long'), kind_of(q['text'])] += 1
    for held_out, least in ((False, 0.86), (True, 0.81)):
        n = agree[held_out].total()
        right = sum(v for (a, b), v in agree[held_out].items() if a == b)
        yes_no = sum(v for (a, b), v in agree[held_out].items() if 'yesno' in (a, b) and a != b)
        print(f'{"round 10" if held_out else "rounds 7-9"}: {right} of {n} agree, {yes_no} differ on yes/no')
        assert right / n > least and yes_no / n < 0.02


@given(st.text(max_size=200))
def test_any_question_has_a_kind(question): assert kind_of(question) in ('yesno', 'factoid', 'list', 'long')
