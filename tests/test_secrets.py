"""What is no secret stays, and a message is one short line, whatever the text. What is cut from run files: see test_runs.py."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpqa.core.redaction import short, without_keys


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
