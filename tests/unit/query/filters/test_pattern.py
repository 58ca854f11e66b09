"""Patterns by which text is searched cannot take long, whatever they are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import BadInput, PackageMissing, WrongType
from rocketlens.query.filters import pattern
from rocketlens.query.filters.pattern import MAX_PATTERN_CHARACTERS, TextPattern, TextTooLong


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        ("ORDER-42", "an ORDER-42!", "order-42"),
        ("(?i)order-4\\d", "ORDER-42", "ORDER-52"),
        ("^上.$", "上海", "在上海"),
        (r"\p{Han}{2}", "a上海", "a上b"),
        ("a|b", "xb", "xc"),
        ("x*", "", None),
        ("(?s)a.b", "a\nb", "ab"),
        ("10%", "at 10%", "at 10"),
    ],
)
def test_a_text_has_a_pattern_or_not(text, has, has_not):
    assert TextPattern(text).is_in(has)
    assert has_not is None or not TextPattern(text).is_in(has_not)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the pattern is empty"),
        ("(", "missing )"),
        ("a(?=b)", "invalid perl operator"),
        (r"(a)\1", "invalid escape"),
        ("(a{1000}){1000}", "repetition size"),
        (".{1000}.{1000}", "instructions"),
        ("a" * (MAX_PATTERN_CHARACTERS + 1), "characters"),
    ],
)
def test_what_is_no_pattern_or_too_costly_is_refused(text, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        TextPattern(text)


def test_a_pattern_is_a_text():
    with pytest.raises(WrongType):
        TextPattern(b"a")


def test_a_pattern_that_takes_hours_elsewhere_is_decided_at_once():
    assert not TextPattern("^(a|aa)+$").is_in("a" * 100_000 + "b")


def test_a_text_too_long_for_a_pattern_is_not_searched():
    long = TextPattern("(ab?){300}c")
    with pytest.raises(TextTooLong, match="bytes of text are too many for this pattern"):
        long.is_in("x" * (4 << 20))
    assert not TextPattern("no such").is_in("x" * (4 << 20))
    assert not TextPattern("no.such").is_in("x" * (4 << 20))


def test_a_plain_text_needs_no_package(monkeypatch):
    def missing(name, extra, what):
        raise PackageMissing(f"{what} needs {name}: {extra}", name=name)

    monkeypatch.setattr("rocketlens.model.arrow.package", missing)
    pattern._compiled.cache_clear()
    assert TextPattern("ORDER-42").is_in("ORDER-42")
    with pytest.raises(PackageMissing, match="re2"):
        TextPattern("ORDER-4.")


def test_patterns_of_one_text_are_equal():
    assert TextPattern("a.") == TextPattern("a.") != TextPattern("b.")
    assert len({TextPattern("a."), TextPattern("a.")}) == 1
    assert repr(TextPattern("a.")) == "TextPattern('a.')"


@given(st.text(max_size=20), st.text(max_size=40))
def test_any_text_is_a_pattern_or_refused(text, searched):
    try:
        compiled = TextPattern(text)
    except BadInput:
        return
    assert isinstance(compiled.is_in(searched), bool)


@given(st.text(min_size=1, max_size=5, alphabet="ab上é"), st.text(max_size=20, alphabet="ab上é"))
def test_a_text_is_found_as_python_finds_it(text, searched):
    assert TextPattern(text).is_in(searched) == (text in searched)
    assert TextPattern(f"(?:{text})").is_in(searched) == (text in searched)
