"""What decoders return, and how it is written as JSON."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from rocketlens import limits
from rocketlens.decode.tree import json_ready, name_text, scaled, tree_of
from rocketlens.errors import BodyError


@pytest.mark.parametrize(
    ("value", "ready"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("19.90"), "19.90"),
        (b"\x00\xff", {"@base64": "AP8="}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        ({"a": [b""]}, {"a": [{"@base64": ""}]}),
    ],
)
def test_each_value_has_its_form_in_json(value, ready):
    assert json_ready(value) == ready
    json.dumps(json_ready(value), allow_nan=False)


def test_an_integer_of_thousands_of_digits_is_written_in_hexadecimal():
    assert json_ready(1 << 20_000) == hex(1 << 20_000)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "a"),
        (b"a\xff", r"a\xff"),
        (1, "1"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        (date(2026, 1, 2), "2026-01-02"),
        ([1, "a"], '[1,"a"]'),
        ({"a": b""}, '{"a":{"@base64":""}}'),
    ],
)
def test_members_that_are_named_by_other_values_have_their_text(name, text):
    assert name_text(name) == text


def test_a_graph_becomes_a_tree_that_names_where_a_value_was_first():
    shared = [1]
    graph = {"a": shared, "b": {"c": [0, shared]}}
    graph["b"]["d"] = graph
    assert tree_of(graph) == {
        "a": [1],
        "b": {"c": [0, {"@same": "$.a"}], "d": {"@same": "$"}},
    }
    itself = []
    itself.append(itself)
    assert name_text(itself) == '[{"@same":"$"}]'


def test_values_levels_and_text_of_a_tree_are_bounded():
    with pytest.raises(BodyError, match="more than 40000 values"):
        tree_of([0] * limits.MAX_BINARY_VALUES)
    deep = []
    for _ in range(2 * limits.MAX_DECODED_LEVELS):
        deep = [deep]
    with pytest.raises(BodyError, match="levels deep"):
        tree_of(deep)
    long = "a" * (limits.MAX_DECODED_BYTES // 2)
    tree_of([long])
    for many in ([long] * 3, [{long: 1}, {long: 2}, {long: 3}]):
        with pytest.raises(BodyError, match="characters"):
            tree_of(many)
    deep_names = shared = []
    for _ in range(90):
        deep_names = {"a" * 10_000: deep_names}
    with pytest.raises(BodyError, match="characters"):
        tree_of([deep_names, *[shared] * 10])


def test_a_number_of_too_many_digits_has_no_decimal_point():
    assert scaled(-120, 5) == Decimal("-0.00120")
    with pytest.raises(ValueError, match="bits"):
        scaled(1 << 20_000, 1)
