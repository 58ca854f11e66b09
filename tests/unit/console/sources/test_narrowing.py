"""Patterns narrowed by patterns match what both match, and nothing else."""

import itertools
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.console.sources.narrowing import narrowed_topics
from rocketlens.errors import BadInput

PATTERNS = st.text("ab*?", min_size=1, max_size=5)
NAMES = ["".join(each) for n in range(1, 6) for each in itertools.product("ab", repeat=n)]


@given(PATTERNS, st.lists(PATTERNS, min_size=1, max_size=3))
def test_what_is_left_matches_what_both_match(asked, seen):
    left = narrowed_topics([asked], seen)[asked]
    for name in NAMES:
        both = fnmatchcase(name, asked) and any(fnmatchcase(name, each) for each in seen)
        assert any(fnmatchcase(name, each) for each in left) is both, name


@pytest.mark.parametrize(
    ("asked", "seen", "left"),
    [
        ("order-paid", ["order-*"], ("order-paid",)),
        ("salary", ["order-*"], ()),
        ("*", ["order-*", "pay"], ("order-*", "pay")),
        ("*paid*", ["order-*"], ("order-*paid*",)),
        ("ab*", ["*bc"], ("ab*bc", "abc")),
        ("x*", ["y*"], ()),
        ("%RETRY%g", ["%RETRY%*"], ("%RETRY%g",)),
    ],
)
def test_examples(asked, seen, left):
    assert narrowed_topics([asked], seen) == {asked: left}


@pytest.mark.parametrize(
    "asked",
    ["order-[ab]", "*".join("abcdefgh"), "*" + "x" * limits.MAX_TOPIC_CHARACTERS],
)
def test_a_pattern_that_takes_much_work_is_refused(asked):
    with pytest.raises(BadInput):
        narrowed_topics([asked], ["*a*"])


def test_a_long_name_is_no_work():
    name = "x" * limits.MAX_CONSOLE_TEXT
    assert narrowed_topics([name], ["y*"]) == {name: ()}
