"Prices, sums and limits: the table as data, many threads at once, and the real client libraries against a server on this machine."
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
from conftest import ROOT, cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.llm_hosted import AnthropicLLM, OpenAILLM
from cpqa.core.llm import Completion, LLMError, Message, Recorded
from cpqa.testing.model_server import LLMServer
from cpqa.core.llm_spending import WINDOW, Limited, cost_of, price_of, prices, window_of

ASKED = (Message('user', 'Is tea a drink?'),)
NAMES = [p.model for p in prices().rows]


class Counting:
    "Answers after a moment, and knows how many were under way at once."
    def __init__(self, model='', fail=0, **more):
        self.__dict__.update(more)
        if model: self.model = model
        self.name, self.fail, self.calls, self.now, self.most, self.lock = model, fail, 0, 0, 0, Lock()

    def complete(self, messages, *, max_tokens=1024, temperature=0.0):
        with self.lock: self.calls, self.now, self.most = self.calls + 1, self.now + 1, max(self.most, self.now + 1)
        time.sleep(0.002)
        with self.lock:
            self.now -= 1
            if self.calls <= self.fail: raise LLMError('the service is busy: try again later', 'rate', again=True)
        return Completion('Yes.', self.name, 1000, 100)


def attempt(llm) -> str:
    try: return llm.complete(ASKED).text
    except LLMError as e: return e.kind


# ---- the table

def test_every_row_is_sound():
    raw = json.loads((ROOT/'cpqa'/'data'/'prices.json').read_text(encoding='utf-8'))
    assert [r['model'] for r in raw['rows']] == sorted(set(NAMES)) and raw['date'] == max(r['date'] for r in raw['rows'])
    for p in prices().rows:
        assert 0 < p.input <= p.output and p.window > WINDOW and p.source and p.date, p
        assert (p.above is None) == (p.input_above == p.output_above == 0), p
        if p.above is not None: assert 0 < p.above < p.window and p.input_above > p.input and p.output_above > p.output, p
        if p.checked: assert p.source.startswith(('https://platform.claude.com/', 'https://developers.openai.com/')), p


@given(st.sampled_from(NAMES), st.text('abcdefgh-.0123456789', min_size=1, max_size=12))
def test_a_longer_name_is_another_model(name, more):
    found = price_of(name + more)
    assert found is None or found.model in (name + more, name) and (found.model != name
                                                                    or more.startswith('-2') or more[1:].isdigit() or more == '-latest')


@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_more_tokens_never_cost_less(name, read, wrote, more):
    cost = cost_of(name, read, wrote)
    assert (cost is None) == (read == wrote == 0)
    if cost is not None: assert 0 < cost <= cost_of(name, read + more, wrote) and cost <= cost_of(name, read, wrote + more)


@cases('name', ['', 'claude', 'gpt', 'gpt-', 'qwen3:4b', 'claude-opus-99', '-2024-05-13', 'GPT-4O'])
def test_an_unknown_model_has_no_price_and_the_small_window(name):
    assert price_of(name) is None and cost_of(name, 10, 10) is None and window_of(name) == WINDOW


# ---- limits, with many threads

@pytest.mark.parametrize('concurrent', [1, 3])
def test_the_limit_on_calls_is_exact_with_many_threads(concurrent):
    inner = Counting('gpt-4o')
    llm = Limited(inner, max_calls=20, concurrent=concurrent)
    with ThreadPoolExecutor(12) as pool: said = list(pool.map(attempt, [llm] * 40))
    assert sorted(said) == ['Yes.'] * 20 + ['budget'] * 20 and inner.calls == 20 and inner.most <= concurrent
    assert llm.usage['calls'] == 20 and llm.usage['input_tokens'] == 20_000 and llm.usage['cost'] == pytest.approx(20 * cost_of('gpt-4o',
        1000, 100))


def test_the_cost_passes_its_limit_by_no_more_than_what_runs_at_once():
    one, concurrent = cost_of('gpt-4o', 1000, 100), 3
    llm = Limited(Counting('gpt-4o'), max_cost=5.5 * one, concurrent=concurrent)
    with ThreadPoolExecutor(12) as pool: said = list(pool.map(attempt, [llm] * 40))
    assert 6 <= said.count('Yes.') <= 5 + concurrent and llm.usage['cost'] <= 5.5 * one + concurrent * one
    assert set(said) == {'Yes.', 'budget'}


def test_a_failed_call_counts_and_gives_its_place_back():
    llm = Limited(Counting('gpt-4o', fail=2), max_calls=3, concurrent=1)
    assert [attempt(llm) for _ in range(4)] == ['rate', 'rate', 'Yes.', 'budget']
    assert llm.usage['calls'] == 3 and llm.usage['output_tokens'] == 100


@pytest.mark.parametrize('llm, before', [(Counting('qwen3:4b'), 0), (Counting(price=None), 0), (Counting('gpt-4o', price=None), 0),
                                         (Counting(), 1)])
def test_a_limit_on_an_unknown_price_is_refused_before_more_is_spent(llm, before):
    limited = Limited(llm, max_cost=100)
    assert [attempt(limited) for _ in range(3)] == ['Yes.'] * before + ['budget'] * (3 - before) and llm.calls == before


def test_one_unknown_price_makes_the_sum_unknown():
    r = random.Random(0)
    class Mixed(Counting):
        def complete(self, messages, **options):
            self.name = r.choice(['gpt-4o', 'who-knows'])
            return super().complete(messages, **options)
    llm = Limited(Mixed())
    costs = [llm.complete(ASKED).cost for _ in range(12)]
    assert None in costs and any(costs) and 'cost' not in llm.usage and llm.usage['calls'] == 12


def test_what_a_completion_says_of_its_cost_counts():
    class Told(Counting):
        def complete(self, messages, **options): return Completion('Yes.', 'gpt-4o', 1000, 100, cost=0.25)
    llm = Limited(Told(), max_cost=0.5)
    assert [attempt(llm) for _ in range(3)] == ['Yes.', 'Yes.', 'budget'] and llm.usage['cost'] == 0.5


# ---- with the real libraries

@pytest.mark.parametrize('kind, model', [(AnthropicLLM, 'claude-haiku-4-5'), (OpenAILLM, 'gpt-4o')])
def test_the_clients_of_the_services_are_priced_and_stopped(kind, model, tmp_path):
    pytest.importorskip(kind.__name__.removesuffix('LLM').lower())
    with LLMServer(lambda messages, schema: Completion('Yes.', input_tokens=2000, output_tokens=300), key='not-a-real-key') as server:
        limited = Limited(kind(model, 'not-a-real-key', server.url), max_cost=1.5 * cost_of(model, 2000, 300))
        llm, pieces = Recorded(limited, tmp_path/'tape.jsonl'), []
        said = llm.complete(ASKED)
        assert said.cost == pytest.approx(cost_of(said.model, said.input_tokens, said.output_tokens)) and said.cost > 0
        assert llm.complete(ASKED, on_text=pieces.append).text == ''.join(pieces) == 'Yes.'
        for _ in range(9):
            if attempt(llm) == 'budget': break
        else: raise AssertionError('it was never stopped')
    assert limited.usage['cost'] >= limited.max_cost and len(server.log) == limited.usage['calls'] and limited.usage['ms'] > 0
    assert 'not-a-real-key' not in (tmp_path/'tape.jsonl').read_text() + repr(vars(limited))
