"What the doctor sees: damage, keys that it never shows, services that are slow, and that it looks without touching."
import json
import os
import shutil
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from conftest import ROOT, cases
from helpers import environment
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from cpqa.cli import main
from cpqa.testing.model_server import LLMServer
from cpqa.doctor import (Check, cache_check, check_lines, checks, key_check, keys, model_checks, package_check, requirements,
                         service_check, service_checks, services, unfit)
from cpqa.retrieval import openvino_models

KEYS, SERVICES = keys(), services()

RUN = 'import sys; from cpqa.cli import main; sys.exit(main(["doctor", *sys.argv[1:]]))'


def run(*argv, code=RUN, **env) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, '-c', code, *argv], cwd=ROOT, env=environment(**env), capture_output=True, text=True,
                          timeout=120)


# ---- it looks and does not touch

def test_it_imports_nothing_heavy_and_makes_nothing(tmp_path):
    heavy = ('torch', 'transformers', 'anthropic', 'openai', 'openvino', 'faiss', 'pandas')
    after = ('import sys; from cpqa.doctor import checks; found = checks(); '
             f"print(sorted(m for m in sys.modules if m.split('.')[0] in {heavy}))")
    done = run(code=after, CPQA_CACHE=str(tmp_path/'cache'))
    assert done.returncode == 0 and done.stdout.strip() == '[]', done
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_lines_or_json_and_no_key(tmp_path):
    secrets = {name: f'sk-ant-api03-{name}-0123456789' for name in KEYS} | {'NCBI_EMAIL': 'someone@example.org'}
    text, data = (run(*argv, CPQA_CACHE=str(tmp_path), CPQA_DATA=None, **secrets) for argv in ([], ['--json']))
    for done in (text, data):
        said = done.stdout + done.stderr
        assert 'Python' in said and not any(v in said or v[-6:] in said for v in secrets.values())
    found = [Check.from_dict(c) for c in json.loads(data.stdout)]
    assert {c.name: c.ok for c in found if c.name in KEYS} == dict.fromkeys(KEYS, True)
    assert (data.returncode == 0) == (text.returncode == 0) == (not [c for c in found if c.ok is False])
    assert all(c.hint for c in found if c.ok is False)


@given(st.text(min_size=4, max_size=60))
def test_a_key_is_never_shown(value):
    check = key_check('OPENAI_API_KEY', {'OPENAI_API_KEY': value})
    assert check.said in {key_check('OPENAI_API_KEY', {'OPENAI_API_KEY': v}).said for v in ('', 'not-a-real-key', '"')}


@cases('value, ok',
                         [('not-a-real-key', True), ('', None), ('  ', None), ('not-a-real-key\n', False), ('"not-a-real-key"', False),
                                       ('not a key', False), ('not-a-real-kéy', False), ('not-a-real-key\u200b', False)])
def test_a_badly_copied_key_is_told(value, ok): assert key_check('OPENAI_API_KEY', {'OPENAI_API_KEY': value}).ok is ok


@given(st.lists(st.builds(Check, st.text(max_size=20), st.sampled_from([True, False, None]), st.text(max_size=60), st.text(max_size=60)),
                max_size=5))
def test_lines_are_lines_whatever_is_said(found):
    assert all(line.isprintable() for line in check_lines(found)) and len(check_lines(found)) == sum(1 + bool(c.hint) for c in found)


# ---- damage

@pytest.mark.parametrize('harm', ['cut', 'gone', 'card', 'all'])
def test_a_damaged_model_is_found(harm, tmp_path, monkeypatch):
    assert [c.ok for c in model_checks()] == [True] * len(openvino_models.MODEL_KINDS)
    folder = shutil.copytree(openvino_models.MODELS, tmp_path/'models')/'bi-encoder'
    monkeypatch.setattr(openvino_models, 'MODELS', tmp_path/'models')
    tokenizer = folder/'tokenizer.json'
    if harm == 'cut': tokenizer.write_bytes(tokenizer.read_bytes()[:-1])
    elif harm == 'gone': tokenizer.unlink()
    elif harm == 'card': (folder/'card.json').write_text('{"model": 1}')
    else: shutil.rmtree(folder)
    found = model_checks()
    assert [c.ok for c in found] == [False, *[True] * (len(found) - 1)] and found[0].hint and str(tmp_path) not in found[0].said


def test_a_cache_that_is_a_file_is_told(tmp_path):
    (tmp_path/'file').write_text('')
    assert cache_check(tmp_path/'file').ok is False and cache_check(tmp_path).ok is True


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    if os.geteuid() == 0: pytest.skip('root may write everywhere')
    tmp_path.chmod(0o500)
    assert cache_check(tmp_path).ok is False


@pytest.mark.parametrize('line, extra, package, least', [
    ('numpy', '', 'numpy', ''), ('urllib3>=2', '', 'urllib3', '2'), ('nbdev==2.4.14; extra == "dev"', 'dev', 'nbdev', ''),
    ('pandas<3,>=2.1.0 ; python_version > "3.10" and extra == \'eval\'', 'eval', 'pandas', '2.1.0'),
    ('ibm-x[a,b]>=1; extra == "all"', 'all', 'ibm-x', '1')])
def test_lines_of_metadata_are_read(line, extra, package, least):
    found = requirements([line], ['dev', 'eval', 'all'])
    assert [(e, n.name, [s.version for s in n.specifier if s.operator == '>=']) for e,
            needs in found.items() for n in needs] == [(extra, package, [least] if least else [])]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_versions_are_compared_by_their_numbers(a, b):
    long = lambda n: n + [0] * (4 - len(n))
    assert (unfit(Requirement(f'x>={".".join(map(str, b))}'), '.'.join(map(str, a))) == 'too old') == (long(a) < long(b))


def test_a_missing_extra_says_what_cannot_be_chosen_without_it():
    said = package_check('llm', [Requirement('anthropic>=2')], lambda name: None).said
    assert said == '0 of 1 packages; not installed: anthropic; for anthropic:MODEL, openai:MODEL[@URL]'


def test_the_keys_and_services_are_those_of_the_rows():
    assert {'ANTHROPIC_API_KEY', 'OPENAI_API_KEY', 'CPQA_LLM_KEY', 'NCBI_API_KEY', 'NCBI_EMAIL', 'MILVUS_TOKEN',
            'ELASTIC_API_KEY'} == set(KEYS)
    assert {(s.name, s.moved_by) for s in SERVICES} == {('Anthropic', 'ANTHROPIC_BASE_URL'), ('OpenAI', 'OPENAI_BASE_URL'),
                                                        ('NCBI', 'CPQA_ENTREZ_URL')}


# ---- services

class _Ear(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.heard.append((self.path, dict(self.headers)))
        self.send_response(self.server.status)
        self.send_header('Location', 'https://example.org/')
        self.end_headers()
    def log_message(self, *_): pass


@pytest.fixture
def ear():
    server = HTTPServer(('127.0.0.1', 0), _Ear)
    server.heard, server.status, server.url = [], 401, f'http://127.0.0.1:{server.server_address[1]}'
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_no_key_is_sent_and_a_refusal_is_an_answer(ear, monkeypatch):
    for name in KEYS: monkeypatch.setenv(name, 'not-a-real-key')
    found = service_checks({s.moved_by: ear.url for s in SERVICES}, online=True)
    assert [c.ok for c in found] == [True] * 3 and len(ear.heard) == 3 and 'not-a-real-key' not in str(ear.heard)


@pytest.mark.parametrize('status, ok', [(200, True), (302, True), (403, True), (404, True), (429, True), (500, False), (503, False)])
def test_only_a_failure_of_its_own_is_none(ear, status, ok):
    ear.status = status
    check = service_check('here', ear.url, 'v1/models')
    assert check.ok is ok and bool(check.hint) != ok and len(ear.heard) == 1   # a redirect is not followed


def test_a_slow_service_is_left_in_time():
    import socket
    with socket.create_server(('127.0.0.1', 0)) as silent:
        began = time.monotonic()
        check = service_check('silent', f'http://127.0.0.1:{silent.getsockname()[1]}', timeout=0.3)
    assert check.ok is False and 'in time' in check.said and time.monotonic() - began < 20


@cases('url', ['', 'nonsense', 'http://', 'ftp://127.0.0.1', 'http://[1', 'http://me:letmein@127.0.0.1:1'])
def test_an_address_of_no_use_is_told_without_its_password(url):
    check = service_check('odd', url, timeout=1)
    assert check.ok is False and 'letmein' not in check.said + check.hint


def test_nothing_goes_online_unasked():
    with LLMServer(lambda messages, schema: '') as server: found = checks(environ={s.moved_by: server.url for s in SERVICES})
    assert found[-1].name == 'services' and found[-1].ok is None and server.log == []


def test_a_bad_timeout_is_refused(capsys):
    for wrong in ('0', 'nan', '1e9', 'soon'): assert main(['doctor', '--timeout', wrong]) == 2
    assert capsys.readouterr().err.count('seconds above 0') == 4
