"""Tokens of forms: tied to a session or a cookie, and forms are read within bounds."""

import pytest

from rocketlens import limits
from rocketlens.console.forms import (
    FormToken,
    fields_in,
    form_token,
    forms_with,
    pairs_in,
)
from rocketlens.errors import BadInput


def test_a_token_fits_its_session_only():
    token = str(FormToken("one", None))
    assert FormToken("one", "any").fits(token)
    assert not FormToken("other", None).fits(token)
    assert not FormToken(None, "one").fits(token)


def test_without_a_session_it_is_tied_to_a_cookie_that_the_answer_sets():
    first = FormToken(None, None)
    token = str(first)
    assert first.is_used
    assert FormToken(None, first.new_cookie).fits(token)
    assert not FormToken(None, "another").fits(token)


def test_without_session_and_cookie_no_token_fits():
    token = FormToken(None, None)
    assert not token.fits(str(token))


@pytest.mark.parametrize("given", ["", "x", "é", "\ud800", "0" * 64])
def test_what_was_not_made_here_does_not_fit(given):
    assert not FormToken("one", None).fits(given)


def test_a_token_that_no_page_has_needs_no_cookie():
    assert not FormToken(None, None).is_used


def test_templates_have_the_token_of_their_answer():
    token = FormToken("one", None)
    assert form_token() == ""
    with forms_with(token):
        assert form_token() == str(FormToken("one", None))
    assert form_token() == ""


def test_fields_are_read_and_the_last_of_a_name_counts():
    assert fields_in(b"a=1&b=%E4%B8%AD&a=&c") == {"a": "", "b": "中", "c": ""}
    assert fields_in(b"") == {}


@pytest.mark.parametrize(
    "content", [b"a=%ff", b"\xff", b"&".join([b"a=1"] * (limits.MAX_FORM_FIELDS + 1))]
)
def test_what_is_no_form_is_refused(content):
    with pytest.raises(BadInput):
        fields_in(content)


def test_a_name_can_be_there_several_times_and_its_last_value_is_that_of_the_field():
    content = b"chosen=a%2F1&chosen=b&csrf=&chosen=a%2F1"
    chosen = [value for name, value in pairs_in(content) if name == "chosen"]
    assert chosen == ["a/1", "b", "a/1"]
    assert fields_in(content) == {"chosen": "a/1", "csrf": ""}
