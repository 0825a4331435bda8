"""Does `cpqa ask` answer with every kind of language model over a real library?

    python benchmarks/llm_ways.py LIBRARY [--questions 10] [--gguf FILE]

LIBRARY is one of bioasq_beir's corpus. Each kind is asked the same questions of BioASQ's round 10, drawn with a fixed seed, by the command
itself: Claude's and OpenAI's SDKs speak HTTP to a server on 127.0.0.1, whose model copies the first sentence of the first passage and
invents a second claim; the local models are a Llama of a few weights that says one text, and a T5 with weights at random. So this is a test
of the way, end to end, and says nothing about how well a model answers. FILE is a model that llama.cpp runs, a real one for instance.

`errors` are commands that failed; `sound` answers hold the copied claim and mark the invented one; `declined` had too thin evidence, or the
copied sentence was refused as well; `asked` is how often the model was asked.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from common import bioasq_questions, save

from cpqa.testing.model_server import LLMServer
from cpqa.core.llm_local import toy_llama
from cpqa.testing.tiny_models import tiny_t5

KEY = 'sk-ant-not-a-real-key-0123456789abcdef'
TEXT = '{"claims": [], "status": "unknown"}'   # of the local model, which can say no other


def copying(messages, schema) -> str:
    "A model that copies, and invents."
    passage = json.loads(messages[-1].content.split('\n\n')[1])['passages'][0]
    first = re.split(r'(?<=[.])\s', passage['text'])[0]
    reply = {'claims': [{'text': first, 'pmid': passage['pmid'], 'quote': first},
                        {'text': 'It cures all of them.', 'pmid': '99999999', 'quote': 'All were cured.'}], 'status': 'answered'}
    properties = schema['properties']
    if 'label' in properties: reply['label'] = properties['label']['enum'][0]
    if 'items' in properties: reply['items'] = [first.split()[0]]
    return json.dumps(reply)


def asked(question: str, library: str, name: str, env: dict) -> dict | None:
    "The answer of one command; None where it failed."
    done = subprocess.run([Path(sys.executable).with_name('cpqa'), 'ask', question, '--library', library, '--llm', name, '--json'],
                          capture_output=True, text=True, env={**os.environ, **env})
    return json.loads(done.stdout) if done.returncode == 0 else print(done.stderr, file=sys.stderr)


def summed(answers: list[dict | None]) -> dict:
    there = [a for a in answers if a]
    sound = lambda a: not a['abstained'] and (not a['claims'] or [bool(c['fault']) for c in a['claims']] == [False,
        True]) and '99999999' not in a['used_PMIDs']
    return {'n': len(answers), 'errors': len(answers) - len(there), 'sound': sum(map(sound, there)),
            'declined': sum(a['abstained'] for a in there), 'asked': sum(a['usage'].get('calls', 0) for a in there)}


def main(library: str, n: int, gguf: str | None):
    questions = random.Random(0).sample([q['text'] for q in bioasq_questions() if q['batch'].startswith('10')], n)
    with tempfile.TemporaryDirectory() as folder, LLMServer(copying, key=KEY) as server:
        local = toy_llama(Path(folder) / 'toy', TEXT, window=8192)
        ways = {'none': ('none', {}), 'anthropic:MODEL': ('anthropic:toy', {'ANTHROPIC_API_KEY': KEY, 'ANTHROPIC_BASE_URL': server.url}),
                'openai:MODEL': ('openai:toy', {'OPENAI_API_KEY': KEY, 'OPENAI_BASE_URL': f'{server.url}/v1'}),
                'openai:MODEL@URL': (f'openai:toy@{server.url}/v1', {'CPQA_LLM_KEY': KEY}), 'local:PATH': (f'local:{local}', {}),
                'local:T5': (f'local:{tiny_t5(Path(folder) / "t5")}', {}), **({'local:FILE.gguf': (f'local:{gguf}', {})} if gguf else {})}
        rows = {}
        for way, (name, env) in ways.items():
            rows[way] = summed([asked(q, library, name, env) for q in questions])
            print(way, rows[way], file=sys.stderr, flush=True)
    save('llm_ways', {'library': Path(library).name, 'gguf': gguf and Path(gguf).name, 'ways': rows},
         ('cpqa', 'anthropic', 'openai', 'transformers', 'torch', 'xllamacpp'))


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('library')
    p.add_argument('--questions', type=int, default=10)
    p.add_argument('--gguf', help='a file of llama.cpp to ask as well')
    a = p.parse_args()
    main(a.library, a.questions, a.gguf)
