"""Which bodies are text, and which JSON: compiled code decides as Python and `is_json` do."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketlens.formats import columns
from rocketlens.formats.compiled import text
from rocketlens.limits import MAX_SHOWN_JSON_BYTES
from rocketlens.model.fields import is_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
DOCUMENTS = st.builds(
    lambda value, is_ascii, separators: json.dumps(
        value, ensure_ascii=is_ascii, separators=separators
    ).encode("utf-8", "surrogatepass"),
    VALUES,
    st.booleans(),
    st.sampled_from([(",", ":"), (" ,\n", "\t: \r")]),
)
CHANGED = st.builds(
    lambda body, start, count, new: body[:start] + new + body[start + count :],
    DOCUMENTS,
    st.integers(0, 60),
    st.integers(0, 3),
    st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"\\ud800", b"]", b"}", b",", b"\0"]),
)
TOKENS = st.lists(
    st.sampled_from(b'{ } [ ] , : "a" "" 0 -1 - . e+9 1e400 true false null nul \xe5 " \\'.split()),
    max_size=9,
).map(b"".join)
NUMBERS = b"0 -0 01 -01 1. .5 1.5 1.e5 1e 1e+ 1E+05 1e-99 1e-400 1e99 1e308 1e309 +1 -".split()
DIGITS = [b"9" * count for count in (19, 20, 200, 308, 309, 400)]
ESCAPES = rb"\n \/ \x \u0000 \u12 \u12g4 \ud800 \udc00 \ud83d\ude00 \ud83d\ud83d \uD83Dx".split()
HOSTILE = [
    *(b"[" + number + b"]" for number in NUMBERS + DIGITS),
    *(b'["' + escape + b'"]' for escape in ESCAPES),
    *(b"[" * depth + b"]" * depth for depth in (1, 63, 64, 65, 1023, 1024, 1025, 100_000)),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (64, 65)),
    *(b"true", b"false", b"null", b"fals", b"truex", b"NaN", b"[NaN]", b"Infinity", b" 1 ", b"1 2"),
    *(b'{"a":1,"a":2}', b"{,}", b"[,]", b"[1,]", b'{"a":1,}', b'{"a"}', b"{1:2}", b"[1:2]"),
    *(b'{"a":1]', b'["a"}', b'["a":1]', b"[]]", b"[[]", b'{"a":{}', b'"\x1f"', b'"\x7f"', b'"\0"'),
    *(
        b"\xef\xbb\xbf{}",
        b'"\xef\xbf\xbd"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"\xe5\x9f"',
        b"\xe5",
    ),
    *(b'"' + b"x" * (MAX_SHOWN_JSON_BYTES - 2 + more) + b'"' for more in (0, 1)),
]


def validity_of(bodies):
    made = columns.text_columns(pa.array(bodies, pa.binary()), with_text=True)
    for name in made:
        made[name].validate(full=True)
    return [tuple(each.is_valid().to_pylist()) for each in made.values()]


@given(st.lists(DOCUMENTS | CHANGED | TOKENS, min_size=1, max_size=20))
@example(HOSTILE)
@example(NUMBERS + DIGITS)
def test_bodies_are_text_and_json_as_their_definition_has_it(bodies):
    are_texts = tuple(body.decode(errors="ignore").encode() == body for body in bodies)
    assert validity_of(bodies) == [are_texts, tuple(map(is_json, bodies))]


def test_bodies_of_the_usual_kinds_are_decided_by_compiled_code(monkeypatch):
    monkeypatch.delattr(columns, "is_json")
    usual = [b'{"id": 1, "price": -9.5e3, "tags": ["a", true], "city": "\xe5\x9f\x8e"}', b"null"]
    others = [b"2026-11-28 paid", b"{name=Ann}", b"text", b"\x08\xff", b"[" * 9]
    _, are_json = validity_of(usual + others)
    assert are_json == (True,) * len(usual) + (False,) * len(others)


@pytest.mark.parametrize("offsets", [[0, 2], [-1, 1], [1, 0], [0, 1, 0]])
def test_texts_outside_of_the_buffer_are_refused(offsets):
    checked = np.empty((2, 2), np.uint8)
    with pytest.raises(ValueError, match="lies outside"):
        text.check_texts(np.zeros(1, np.uint8), np.array(offsets, np.int32), 9, *checked)
