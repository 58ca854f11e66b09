"""JSON bodies, laid out again without being changed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import BadInput
from rocketlens.terminal import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='aé订 \\"/\n\x01') | st.just(0.5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab{[,:"), inner),
)


@given(VALUES, st.booleans())
def test_the_layout_changes_no_value(value, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert json.loads(json_text.compact(text)) == value
    assert json.loads(json_text.compact(text, is_ascii=True)) == value
    assert json_text.compact(text, is_ascii=True).isascii()
    indented = "".join(json_text.indented(text))
    assert indented == json.dumps(value, ensure_ascii=False, indent=2)


def test_numbers_keep_their_digits_and_repeated_names_stay():
    text = '{"sum": 1.10, "sum": 1e400, "big": 12345678901234567890.0}'
    assert json_text.compact(text) == '{"sum":1.10,"sum":1e400,"big":12345678901234567890.0}'


@pytest.mark.parametrize("body", [b"", b"x", b"NaN", b'{"a":}', b"\xff", b"[" * 600 + b"]" * 600])
def test_what_is_not_json_is_refused(body):
    assert json_text.json_of(body) is None
    with pytest.raises(BadInput, match=r"JSON|nested"):
        json_text.checked_json(body)
