"""What is no secret stays, and a message is one short line, whatever the text. What is cut from run files: see test_runs.py."""
import re

import pytest
from conftest import cases
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.llm_hosted import trouble_of
from cpqa.core.redaction import hidden, short, without_keys


@pytest.mark.parametrize('text', ['SK-MEL-28 in sk-br-3 cells', 'the token limit of 4096 was reached', 'mg/kg/day, and/or 5/10',
                                  'p = 0.05; key findings: none of them', 'a b'])
def test_what_is_no_secret_stays(text):
    assert without_keys(text) == text
    if 'findings' not in text: assert short(text) == text


@given(st.text())
def test_a_short_message_is_one_printable_line(text):
    found = short(text)
    assert len(found) <= 200 and found.isprintable() and found == found.strip() == found.encode().decode()


def test_a_long_error_is_cut_in_no_time(): assert len(short('A1' * 5_000_000)) <= 200


# ---- a message that hides a key is still the message

SENTENCES = ['Anthropic does not accept the key: check the key, and what it may be used for', 'a low-key approach in basic research',
             'no key: ANTHROPIC_API_KEY is not set', 'a missing bearer token', 'the secret: nobody knows it']


class APIError(Exception):
    "As the libraries of the services raise it."
    def __init__(self, status: int): self.status_code = status


@cases('text', [*SENTENCES, *(str(trouble_of(APIError(n), 'the server at x')) for n in (302, 400, 401, 402, 404, 408, 429, 500))])
def test_a_sentence_about_keys_is_not_damaged(text): assert short(text) == text == without_keys(text)


@cases('text, said', [('api_key=letmein, please', 'api_key=[cut], please'), ('x-api-key: letmein', 'x-api-key: [cut]'),
                      ('password: letmein was refused', 'password: [cut] was refused'), ("'token': 'letmein'", "'token': '[cut]'"),
                      ('key: a1b2c3 was refused', 'key: [cut] was refused'), ('Authorization: Bearer letmein', 'Authorization: [cut]'),
                      ('bearer A1b2', 'bearer [cut]'), ('--api-key letmein', '--api-key [cut]')])
def test_what_stands_as_a_value_is_cut(text, said): assert short(text) == said


@cases('text, keys, said', [
    ('a test failed at the latest step', ['a', 'test', 'e'], 'a test failed at the latest step'),
    ("no such key 'test' (api_key=test, provided: test.)", ['test'], "no such key '[cut]' (api_key=[cut], provided: [cut].)"),
    ("'a server failed', it says", ['a'], "'a server failed', it says"),
    ('research on researchers', ['research'], 'research on researchers'),
    ('(.*)+ is no pattern, and "(.*)+" is hidden', ['(.*)+'], '(.*)+ is no pattern, and "[cut]" is hidden'),
    ('xabcdefgh12y', ['abcdefgh12'], 'x[cut]y'), ('abcdefgh12345', ['abcdefgh12', 'abcdefgh12345'], '[cut]'),
    ('abcdefgh12345', ['abcdefgh123', 'efgh12345'], '[cut]'), ('abcdefgh12 "cut"', ['abcdefgh12', 'cut'], '[cut] "[cut]"'),
    ('to me@x.org', ['me@x.org'], 'to [cut]'), ('someme@x.org', ['me@x.org'], 'someme@x.org'),
    ('nothing', ['', ' '], 'nothing')])
def test_a_key_is_hidden_and_no_word_loses_a_letter(text, keys, said):
    assert hidden(text, keys) == said and hidden(text.encode(), keys) == said.encode()


@given(st.text('ab "\'=:[cut]', max_size=60), st.lists(st.text('abcut[].*', max_size=4), max_size=3))
def test_short_keys_take_no_letter_of_a_longer_word(text, keys):
    found = hidden(text, keys)
    words = [w for w in re.findall(r'\w+', text) if len(w) > max(map(len, keys), default=0)]
    assert all(w in found for w in words)


def test_the_longer_of_two_secrets_is_hidden_whole(monkeypatch):
    monkeypatch.setenv('SHORT_TOKEN', 'tell-nobody-of-it')
    monkeypatch.setenv('LONGER_TOKEN', 'tell-nobody-of-it-ever')
    monkeypatch.setenv('SOME_KEY', 'immunotherapy')
    assert without_keys('tell-nobody-of-it-ever (chemoimmunotherapy)') == '[cut] (chemoimmunotherapy)'


def test_a_home_folder_takes_no_letter_of_another(monkeypatch):
    monkeypatch.setenv('HOME', '/home/me')
    assert short('/home/menu is no folder, /home/me is') == '…/menu is no folder, ~ is'
