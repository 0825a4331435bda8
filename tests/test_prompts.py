"""Prompts: nothing that was retrieved leaves its place, the question is never cut, and what fits is known beforehand."""
import json

import pytest
from conftest import cases, examples
from hypothesis import given
from hypothesis import strategies as st

from cpqa.answering.prompts import PROMPTS, PromptError, as_data, estimated_tokens, fitted, schema_of
from cpqa.answering.replies import NO_LABEL, ReplyError, Spoken, find_object, labelled, plain_text, read_label, read_reply
from cpqa.core.records import Document, Evidence, Passage

KINDS = ('yesno', 'choice', 'factoid', 'list', 'long')
DRUGS = {'A': 'tamoxifen', 'B': 'letrozole', 'C': 'neither'}
TURNS = ('<|im_start|>system', '<|eot_id|>', '</s>', '<s>', '[INST]', '[/INST]', '<<SYS>>', '<start_of_turn>user', '<｜User｜>',
         '<|assistant|>', '<think>')


def shelf(n: int, words: int = 40) -> tuple[list[Evidence], dict[str, Document]]:
    "Invented documents, and a passage of each as evidence."
    documents = {str(i): Document(str(i), f'Trial {i}', ' '.join(f'word{i}x{j}' for j in range(words)) + '.',
                                  year=2000 + i) for i in range(1, n + 1)}
    return [Evidence(Passage.of(d, 0, len(d.text)), score=1 / int(d.id), route='E1') for d in documents.values()], documents


def data_of(made) -> dict: return json.loads(made.messages[1].content.split('\n\n', 1)[1])


@examples(60)
@given(st.text(max_size=200), st.text(max_size=60), st.sampled_from(TURNS), st.sampled_from(sorted(PROMPTS)))
def test_whatever_a_document_holds_it_stays_a_text_in_the_users_message(text, title, turn, name):
    body = f'{text}{turn}"}}]}} {title}'
    document = Document('7', title + turn, body)
    made = fitted(name, f'Does it help? {turn}', [Evidence(Passage.of(document, 0, len(body)), score=1.0)], {'7': document}, window=50_000)
    bare = fitted(name, 'Does it help?', window=50_000)
    assert [m.role for m in made.messages] == ['system', 'user']
    assert made.messages[0] == bare.messages[0] and turn not in made.messages[1].content
    data = data_of(made)
    assert data['question'] == plain_text(f'Does it help? {turn}', 'question')
    shown = data.get('passages') or data.get('documents') or []
    texts = [s.get('text', s.get('content')) for s in (shown.values() if isinstance(shown, dict) else shown)]
    assert texts == ([plain_text(body, 'text')] if PROMPTS[name].context != 'none' else [])


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)))
def test_data_reads_back_as_it_was(value): assert json.loads(as_data(value)) == value


def test_turns_of_chat_models_are_broken_and_comparisons_are_not():
    assert not [t for t in TURNS if t in as_data(f'"x" {t} y')]
    for text in ('p < 0.05', 'p<0.05', 'p <.001', 'p<=0.01', 'a <- b', '[1, 2]', '[Interval]'): assert text in as_data(text)


@examples(40)
@given(st.integers(0, 12), st.integers(300, 4000), st.sampled_from(('passages', 'documents', 'stuhlmann')), st.sampled_from(KINDS),
       st.sampled_from((estimated_tokens, lambda t: len(t.split()), len)))
def test_it_fits_or_says_so_and_leaves_out_from_the_end(n, window, name, kind, count):
    evidence, documents = shelf(n)
    question = 'Which of the drugs lowers the risk?'
    try: made = fitted(name, question, evidence, documents, kind, DRUGS if kind == 'choice' else None, window, 200, count)
    except PromptError as e:
        assert 'ask in fewer words' in str(e)
        with pytest.raises(PromptError): fitted(name, question, (), {}, kind, DRUGS if kind == 'choice' else None, window, 200, count)
        return
    assert sum(count(m.content) for m in made.messages) <= made.tokens <= window - 200
    wanted = [str(i) for i in range(1, min(n, PROMPTS[name].most or n) + 1)]
    assert [*made.used] == wanted[:len(made.used)] and len(made.used) + made.left_out == len(wanted)
    if made.left_out:
        next_one = fitted(name, question, evidence[:len(made.used) + 1], dict(list(documents.items())[:len(made.used) + 1]), kind,
                          DRUGS if kind == 'choice' else None, 10**6, 200, count)
        assert next_one.tokens > window - 200    # one more would not have fitted
    assert data_of(made)['question'] == question


def test_a_long_question_is_never_cut():
    question = ' '.join(f'because{i}' for i in range(900)) + '?'
    evidence, documents = shelf(5)
    made = fitted('passages', question, evidence, documents, window=8000)
    assert data_of(made)['question'] == question
    tight = fitted('passages', question, evidence, documents, window=made.tokens + 1024 - 200)
    assert data_of(tight)['question'] == question and tight.left_out > 0
    with pytest.raises(PromptError, match='take a model with a larger window'):
        fitted('passages', question, evidence, documents, window=3000)


def test_schemas_are_what_the_providers_take():
    jsonschema = pytest.importorskip('jsonschema')
    def strict(schema):
        if schema.get('type') == 'object':
            assert schema['additionalProperties'] is False and schema['required'] == list(schema['properties'])
            for part in schema['properties'].values(): strict(part)
        if schema.get('type') == 'array': strict(schema['items'])
        assert not {'minItems', 'maxItems', 'pattern', 'minLength', 'anyOf', 'oneOf', '$ref'} & set(schema)
        assert all(schema.get('enum', ['x']))   # some providers refuse an empty word
    for prompt in PROMPTS.values():
        for kind in KINDS:
            schema = prompt.schema(kind, DRUGS if kind == 'choice' else None)
            jsonschema.Draft202012Validator.check_schema(schema)
            strict(schema)


def test_what_fits_the_schema_can_be_read():
    claim = {'text': 'It lowers the risk.', 'pmid': '1', 'quote': 'The risk was lower.'}
    parts = {'reasoning': 'First.', 'claims': [claim], 'response': 'It lowers the risk.', 'used_PMIDs': ['1'], 'certain': True,
             'status': 'answered', 'items': ['tamoxifen']}
    for prompt in PROMPTS.values():
        for kind in KINDS:
            schema = prompt.schema(kind, DRUGS if kind == 'choice' else None)
            for label in schema['properties'].get('label', {'enum': ['-']})['enum']:
                reply = {k: label if k == 'label' else parts[k] for k in schema['properties']}
                draft = read_reply(json.dumps(reply), kind, DRUGS if kind == 'choice' else None, prompt.keys)
                assert draft.label == ('' if label in ('-', NO_LABEL) else label)
                assert draft.abstained == (label == NO_LABEL)


def test_no_option_begins_as_the_way_out_of_all_does():
    # "none" was it once: held to a form, a model that wrote "no" in its response wrote "none" as its label, 104 times of 104
    assert not any(NO_LABEL.startswith(word[:1]) for word in labelled('yesno'))
    assert read_label('None.', labelled('yesno')) == read_label('Cannot say', labelled('yesno')) == ''


def test_the_first_five_documents_and_the_ten_best():
    evidence, documents = shelf(12)
    by_rank = evidence[::-1]
    made = {name: fitted(name, 'Which drug?', by_rank, documents, window=100_000) for name in PROMPTS}
    assert made['documents'].used == tuple('12345')                                   # as the search found them
    assert made['stuhlmann'].used == tuple(str(i) for i in range(12, 2, -1))          # as they were reranked
    assert made['passages'].used == tuple(str(i) for i in range(12, 0, -1))
    assert made['cot'].used == made['adaptive'].used == ()
    assert list(data_of(made['stuhlmann'])['documents']['doc1']) == ['PMID', 'title', 'content', 'relevance_score']
    nothing = fitted('stuhlmann', 'Which drug?', [], documents, window=100_000)   # no passage had a positive score
    assert nothing.used == () and fitted('documents', 'Which drug?', [], documents, window=100_000).used == tuple('12345')


def test_real_documents_fit(data_dir):
    from cpqa.literature.article_files import documents as read_documents
    documents = {}
    for d in read_documents(data_dir/'bioasq_beir'/'corpus.jsonl.gz'):
        documents[d.id] = d
        if len(documents) == 60: break
    evidence = [Evidence(Passage.of(d, 0, len(d.text)), score=0.5) for d in documents.values() if d.text]
    used = []
    for window in (2_000, 8_000, 32_000):
        made = fitted('passages', 'Does it help?', evidence, documents, 'yesno', window=window, max_tokens=500)
        assert made.tokens <= window - 500
        for told, e in zip(data_of(made)['passages'], evidence, strict=False): assert told['text'] == plain_text(e.passage.text, 'text')
        used.append(len(made.used))
    assert used == sorted(used) and used[0] > 0 and used[-1] == len(evidence)


# ---- replies

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(['claims', 'text', 'pmid', 'quote', 'label', 'items', 'response', 'used_PMIDs', 'status', 'certain']), inner,
    max_size=6), max_leaves=20)


@examples(200)
@given(JSON, st.sampled_from(KINDS), st.sampled_from(sorted(PROMPTS)))
def test_any_json_is_a_draft_or_a_reply_error(value, kind, name):
    for reply in (json.dumps(value), value if isinstance(value, dict) else '{}'):
        try: draft = read_reply(reply, kind, DRUGS if kind == 'choice' else None, PROMPTS[name].keys)
        except ReplyError as e: assert len(str(e)) < 300
        else:
            assert draft.abstained or kind == 'long' or draft.label in (*DRUGS, 'yes', 'no', 'maybe') and draft.label or draft.items
            draft.to_json()


@given(st.text(max_size=300))
def test_any_text_is_a_reply_error_or_holds_an_object(text):
    try: assert isinstance(find_object(text, ['claims']), dict)
    except ReplyError as e: assert e.kind in ('empty', 'refusal', 'not json', 'half json')


@cases('text', ['{"a":' * 100_000, '[' * 100_000, '{' * 100_000, '{"claims": ' + '[' * 100_000, '"' * 100_000, '\\' * 99_999,
                '{"claims": "' + 'x' * 500_000])
def test_a_reply_that_never_ends_is_refused(text):
    with pytest.raises(ReplyError): read_reply(text)


@given(st.text(max_size=30), st.dictionaries(st.sampled_from('ABCDE'), st.text(min_size=1, max_size=12), min_size=2, max_size=5))
def test_a_label_is_an_option_or_no_answer(written, options):
    try: assert read_label(written, options) in (*options, '')
    except ReplyError as e: assert e.kind == 'no label'


@examples(100)
@given(st.text(max_size=80), st.lists(st.integers(1, 7), max_size=60), st.booleans())
def test_what_streams_is_what_is_read(text, cuts, escaped):
    reply = json.dumps({'claims': [{'pmid': 'text', 'text': text, 'quote': '{"text": "no"}'}], 'label': 'response'}, ensure_ascii=escaped)
    heard: list[str] = []
    spoken, at = Spoken(heard.append), 0
    for step in [*cuts, len(reply)]:
        spoken(reply[at:at + step])
        at += step
    assert plain_text(''.join(heard), 'text') == plain_text(text, 'text')


def test_schema_names_only_what_is_asked():
    assert list(schema_of(('response',), 'long')['properties']) == ['response']
    assert schema_of(('claims',), 'choice', ['none', 'all'])['properties']['label']['enum'] == ['A', 'B', NO_LABEL]
