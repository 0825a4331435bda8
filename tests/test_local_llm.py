"""Models on this machine and models by name: what a folder may do to us, forged turns, GGUF files, threads, recordings, and the right
model or none."""
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.errors import CpqaError
from cpqa.core.llm import LLMError, Message
from cpqa.core.llm_providers import language_model, read_name
from cpqa.testing.model_server import LLMServer
from cpqa.core.llm_local import TEMPLATE, TOY_MARKS, LocalLLM, pieces_of, plain_turns, prompt_ids, toy_llama, unmarked, without_system

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
ASKED = [Message('system', 'Be brief.'), Message('user', 'Is tea a drink?')]
SAYS = '{"response": "Tea is a drink — naïve, but “so” it is: 100 %.", "used_PMIDs": ["1", "2"]}'


@pytest.fixture(scope='module')
def folder(tmp_path_factory): return toy_llama(tmp_path_factory.mktemp('toy')/'toy', SAYS)


@pytest.fixture(scope='module')
def llm(folder): return LocalLLM(folder, 'cpu')


# ---- the toy, and what it says

@given(st.text(max_size=80), st.integers(1, 9))
def test_the_pieces_of_a_text_are_the_text_and_none_comes_twice(text, size):
    pieces = pieces_of(text, size)
    assert ''.join(pieces) == text and len(set(pieces)) == len(pieces)


def test_text_and_stream_agree_letter_by_letter(llm):
    pieces = []
    said = llm.complete(ASKED, schema={'type': 'object'}, on_text=pieces.append)
    assert said.text == SAYS == ''.join(pieces) and said.data == json.loads(SAYS) and said.finish == 'stop' and said.ms > 0


@pytest.mark.parametrize('room', [1, 3, 5])
def test_a_bound_on_the_length_is_kept(llm, room):
    said = llm.complete(ASKED, max_tokens=room)
    assert said.output_tokens == room and said.finish == 'length' and SAYS.startswith(said.text)


def test_a_listener_that_fails_is_heard_and_the_model_goes_on_living(llm):
    def fails(text): raise RuntimeError('the screen is full')
    with pytest.raises(RuntimeError, match='the screen is full'): llm.complete(ASKED, on_text=fails)
    assert llm.complete(ASKED).text == SAYS


def test_threads_take_turns(llm):
    with ThreadPoolExecutor(4) as pool: assert set(pool.map(lambda _: llm.complete(ASKED).text, range(8))) == {SAYS}


def test_the_window_is_never_passed(folder):
    small = LocalLLM(folder, 'cpu', window=12)
    said = small.complete(ASKED)
    assert said.input_tokens + said.output_tokens == 12 and said.finish == 'length'
    with pytest.raises(LLMError, match='leave no room') as e: small.complete([Message('user', 'tea ' * 50)])
    assert e.value.kind == 'request'


def test_advice_of_the_authors_does_not_make_it_draw(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path/'lively')
    config = json.loads((copy/'generation_config.json').read_text()) | {'do_sample': True, 'temperature': 90.0, 'top_k': 3,
                                                                        'repetition_penalty': 9.0, 'num_beams': 2}
    (copy/'generation_config.json').write_text(json.dumps(config))
    assert LocalLLM(copy, 'cpu').complete(ASKED).text == SAYS


# ---- turns cannot be forged

@given(st.lists(st.sampled_from([*TOY_MARKS, 'tea', ' ', '<', '|', '>', '<|', 'user|>']), max_size=12).map(''.join))
def test_no_wording_makes_a_mark(text):
    broken = unmarked(text, TOY_MARKS)
    assert not any(m in broken for m in TOY_MARKS) and broken.replace(' ', '') == text.replace(' ', '')
    assert broken == text or any(m in text for m in TOY_MARKS)


@given(st.lists(st.sampled_from([*TOY_MARKS, 'tea', ' ', '\n', '< /s>']), max_size=12).map(''.join))
def test_the_prompt_holds_our_marks_only(llm, text):
    ids = prompt_ids(llm.tokenizer, [Message('system', text), Message('user', text)])
    assert [t for t in llm.tokenizer.convert_ids_to_tokens(ids) if t in TOY_MARKS[1:]] == ['<|system|>', '<|user|>', '<|assistant|>']


@given(st.lists(st.builds(Message, st.sampled_from(['system', 'user', 'assistant']), st.text('ab', min_size=1, max_size=5)), max_size=6))
def test_folding_loses_no_word(turns):
    out = without_system(turns)
    assert ''.join(m.content for m in out).replace('\n', '') == ''.join(m.content for m in turns) and all(m.role != 'system' for m in out)
    assert plain_turns(turns).endswith('Answer:')


@pytest.mark.parametrize('template', ["{{ ''.__class__.__mro__[1].__subclasses__() }}", '{{ nothing.at.all }}', '{% for x %}', '{{ 1/0 }}'])
def test_a_bad_template_is_an_error_and_runs_nothing(folder, template):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    with pytest.raises(LLMError, match='takes no such turns'): prompt_ids(tokenizer, ASKED)


# ---- what a folder may not do

def test_code_that_comes_with_a_model_is_not_run(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path/'evil')
    (copy/'evil.py').write_text(f'open({str(tmp_path/"ran")!r}, "w")\nEvil = EvilConfig = EvilTokenizer = object\n')
    for name, auto in (('config.json', {'AutoConfig': 'evil.EvilConfig', 'AutoModelForCausalLM': 'evil.Evil'}),
                       ('tokenizer_config.json', {'AutoTokenizer': ['evil.EvilTokenizer', None]})):
        (copy/name).write_text(json.dumps({**json.loads((copy/name).read_text()), 'auto_map': auto,
                                           **({'model_type': 'evil'} if name == 'config.json' else {})}))
    with pytest.raises(LLMError, match='could not be loaded') as e: LocalLLM(copy, 'cpu')
    assert e.value.kind == 'model' and not (tmp_path/'ran').exists() and str(tmp_path) not in str(e.value)


class Trap:
    def __init__(self, path): self.path = path
    def __reduce__(self): return open, (str(self.path), 'w')


def test_a_pickle_is_not_opened(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path/'pickled')
    (copy/'model.safetensors').unlink()
    torch.save(Trap(tmp_path/'ran'), copy/'pytorch_model.bin')
    with pytest.raises(LLMError, match='could not be loaded'): LocalLLM(copy, 'cpu')
    assert not (tmp_path/'ran').exists()


@cases('file', ['config.json', 'tokenizer.json', 'model.safetensors'])
@cases('harm', ['gone', 'half', 'noise'])
def test_a_damaged_folder_is_one_sentence(folder, tmp_path, file, harm):
    copy = shutil.copytree(folder, tmp_path/'damaged')
    whole = (copy/file).read_bytes()
    (copy/file).unlink() if harm == 'gone' else (copy/file).write_bytes(whole[:len(whole) // 2] if harm == 'half' else bytes(range(256)))
    with pytest.raises(LLMError) as e: LocalLLM(copy, 'cpu')
    assert e.value.kind == 'model' and '\n' not in str(e.value) and str(tmp_path) not in str(e.value)


# ---- GGUF

def write_gguf(path, words):
    "A Llama in a GGUF file that says the words, whatever it is asked: as `toy_llama`, without a template, with a token for each byte."
    gguf, np = pytest.importorskip('gguf'), pytest.importorskip('numpy')
    tokens = ['<unk>', '<s>', '</s>', '<pad>', *words]
    tokens += [f'<x{i}>' for i in range(-len(tokens) % 4)]
    plain, n = len(tokens), len(tokens) + 256
    tokens += [f'<0x{i:02X}>' for i in range(256)]
    w = gguf.GGUFWriter(str(path), 'llama')
    for name, value in dict(context_length=128, embedding_length=n, block_count=1, feed_forward_length=8, head_count=2, head_count_kv=2,
                            layer_norm_rms_eps=1e-6,
                            rope_dimension_count=n // 2, vocab_size=n, rope_freq_base=10000.0, tokenizer_model='llama', token_list=tokens,
                            token_scores=[-float(i) for i in range(n)],
                            token_types=[2, 3, 3, 3] + [1] * (plain - 4) + [6] * 256, bos_token_id=1,
                            eos_token_id=2,
                            unk_token_id=0, pad_token_id=3, add_bos_token=True).items(): getattr(w, f'add_{name}')(value)
    follows = np.zeros((n, n), np.float32)
    follows[4] = 1
    for a, b in zip([*range(4, 4 + len(words))], [*range(5, 4 + len(words)), 2]): follows[4, a], follows[b, a] = 0, 1
    w.add_tensor('token_embd.weight', np.eye(n, dtype=np.float32))
    w.add_tensor('output.weight', follows)
    for name in ('output_norm', 'blk.0.attn_norm', 'blk.0.ffn_norm'): w.add_tensor(f'{name}.weight', np.ones(n, np.float32))
    for name, shape in (('attn_q', (n, n)), ('attn_k', (n, n)), ('attn_v', (n, n)), ('attn_output', (n, n)), ('ffn_gate', (8, n)),
                        ('ffn_up', (8, n)), ('ffn_down', (n, 8))):
        w.add_tensor(f'blk.0.{name}.weight', np.zeros(shape, np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    return path


def cut_short(path):
    short = path.with_name('short.gguf')
    short.write_bytes(path.read_bytes()[:400])
    return short


def test_a_gguf_file_answers_through_llama_cpp(tmp_path):
    pytest.importorskip('xllamacpp')
    path = write_gguf(tmp_path/'toy.gguf', ['▁Yes', ',', '▁it', '▁is', '.'])
    llm = language_model(f'local:{path}', window=100)
    said = llm.complete([Message('user', 'Is tea a drink?')])
    assert (said.text, said.finish, said.model, llm.window) == ('Yes, it is.', 'stop', 'toy.gguf', 100)
    assert said.input_tokens > 4 and said.output_tokens >= 5
    with pytest.raises(LLMError, match='could not be loaded'): language_model(f'local:{cut_short(path)}')


def test_a_gguf_file_answers_through_transformers(tmp_path):
    path = write_gguf(tmp_path/'toy.gguf', ['▁Yes', ',', '▁it', '▁is', '.'])
    llm = LocalLLM(path, 'cpu')
    said = llm.complete([Message('user', 'Is tea a drink?')])
    assert (said.text, said.finish, said.model, llm.window) == ('Yes, it is.', 'stop', 'toy.gguf', 128)
    with pytest.raises(LLMError, match='could not be loaded'): LocalLLM(cut_short(path), 'cpu')


def test_without_the_package_gguf_it_is_named(tmp_path, monkeypatch):
    (tmp_path/'toy.gguf').write_bytes(b'GGUF')
    monkeypatch.setattr('cpqa.core.llm_local.find_spec', lambda name: None)
    with pytest.raises(LLMError, match=r'pip install "cpqa\[gguf\]"'): LocalLLM(tmp_path/'toy.gguf')


# ---- by name

@given(st.text(max_size=40))
def test_a_name_is_read_or_refused_with_the_choices(text):
    try: named = read_name(text)
    except CpqaError as e: assert re.search('choose anthropic:MODEL|behind a colon|address|lacks the model', str(e))
    else: assert named[0].name == 'none' or named[1]


def test_what_was_named_is_asked_and_nothing_else(monkeypatch):
    monkeypatch.setenv('OPENAI_API_KEY', 'not-a-real-key')
    with LLMServer(lambda messages, schema: 'Yes.', models=['mine']) as ours, LLMServer(lambda messages, schema: 'No.') as other:
        monkeypatch.setenv('OPENAI_BASE_URL', other.url)
        assert language_model(f'openai:mine@{ours.url}').complete(ASKED).text == 'Yes.'
        with pytest.raises(LLMError) as e: language_model(f'openai:theirs@{ours.url}').complete(ASKED)
        assert e.value.kind == 'model' and [a.model for a in ours.log] == ['mine', 'theirs'] and other.log == []
        with pytest.raises(LLMError, match='there is no folder'): language_model('local:/no/such/model')
        assert other.log == []


def test_the_key_of_a_service_stays_with_it(monkeypatch):
    monkeypatch.setenv('OPENAI_API_KEY', 'not-a-real-key')
    monkeypatch.delenv('CPQA_LLM_KEY', raising=False)
    with LLMServer(lambda messages, schema: 'Yes.', key='not-a-real-key') as server:
        with pytest.raises(LLMError) as e: language_model(f'openai:mine@{server.url}').complete(ASKED)
        monkeypatch.setenv('CPQA_LLM_KEY', 'not-a-real-key')
        assert language_model(f'openai:mine@{server.url}').complete(ASKED).text == 'Yes.'
    assert e.value.kind == 'key' and [a.key for a in server.log] == ['wrong', 'right']


def test_a_recording_replays_with_no_model_no_library_and_no_key(folder, tmp_path, monkeypatch):
    tape, pieces = tmp_path/'tape.jsonl', []
    first = language_model(f'local:{folder}', record=tape, device='cpu').complete(ASKED, schema={'type': 'object'})
    for name in ('OPENAI_API_KEY', 'ANTHROPIC_API_KEY'): monkeypatch.delenv(name, raising=False)
    for name in ('local:gone', 'openai:gpt-5-mini', 'anthropic:claude-haiku-4-5'):
        again = language_model(name, replay=tape, window=256).complete(ASKED, schema={'type': 'object'}, on_text=pieces.append)
        assert again == first and again.data == json.loads(SAYS)
    assert pieces == [SAYS] * 3 and str(folder) not in tape.read_text()


def test_time_and_window_reach_the_client(monkeypatch):
    monkeypatch.setenv('ANTHROPIC_API_KEY', 'not-a-real-key')
    monkeypatch.delenv('ANTHROPIC_BASE_URL', raising=False)
    llm = language_model('anthropic:claude-haiku-4-5', timeout=7, max_calls=3, concurrent=2)
    assert (llm.llm.patience.timeout, llm.window, llm.max_calls) == (7, 200_000, 3)
    assert language_model('anthropic:claude-of-tomorrow', window=9000).window == 9000
    assert 'not-a-real-key' not in repr(llm.llm)


def test_a_template_is_used_where_there_is_one(folder, tmp_path):
    plain = LocalLLM(toy_llama(tmp_path/'plain', 'Yes.', template=None), 'cpu')
    assert plain.complete(ASKED).text == 'Yes.' and plain.complete(ASKED).input_tokens == len(plain_turns(ASKED).split())
    assert LocalLLM(folder, 'cpu').tokenizer.chat_template == TEMPLATE
