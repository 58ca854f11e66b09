"""JSON laid out keeps every number and name as it was sent."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rocketlens.terminal.json_text import JsonPart, laid_out

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_has_the_same_value(value):
    assert json.loads("".join(text for _, text in laid_out(json.dumps(value)))) == value


def test_names_and_values_are_told_apart():
    parts = [part for part in laid_out('{"a":["b",1.10],"a":{}}') if part[0] is not JsonPart.LAYOUT]
    assert parts == [("name", '"a"'), ("string", '"b"'), ("other", "1.10"), ("name", '"a"')]


def test_it_is_indented():
    assert "".join(text for _, text in laid_out('{"a":[1,{}]}')) == (
        '{\n  "a": [\n    1,\n    {}\n  ]\n}'
    )
