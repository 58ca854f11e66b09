"""Values at paths, as Python's own JSON and floats read them."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketlens.formats.compiled import kernels_values as kernels
from tests.support.effort import sized

DECODER = json.JSONDecoder(strict=False)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(-1000, 1000).map(str),
    st.floats(allow_nan=True).map(json.dumps),
    st.sampled_from(["-0", "-0.0", "0.0", "1e5", "1E+5", "2.5e-3", "1e22", "1e23", "0.1", "1.0"]),
    st.sampled_from(["01", "1.", "-", ".5", "1e", "+1", "9" * 5000, "123456789012345.6e-30"]),
)
TEXTS = st.one_of(
    st.text(max_size=20).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(['"a\\n"', '"\\""', '"\\\\"', '"\\x"', '"a', '"12345678\\', '"a\nb"', '""']),
)
NAMES = st.sampled_from(['"a"', '"b"', '"ab"', '""', '"a\\/"', '"é"', "a", '"a" '])
BLANKS = st.sampled_from(["", "", "", " ", "\n\t\r ", "\x0b"])
LEAVES = st.one_of(NUMBERS, TEXTS, st.sampled_from(["null", "true", "false", "nul", "NaN", "]"]))


def _padded(blanks, text):
    return blanks + text + blanks


def _containers(values):
    commas = st.sampled_from([",", ",", ",", ",,", ", "])
    padded = st.builds(_padded, BLANKS, values)
    members = st.builds(lambda name, value: f"{name}:{value}", NAMES, padded)
    return st.one_of(
        st.builds(lambda comma, each: f"[{comma.join(each)}]", commas, st.lists(padded)),
        st.builds(lambda comma, each: f"{{{comma.join(each)}}}", commas, st.lists(members)),
    )


DOCUMENTS = st.recursive(LEAVES, _containers, max_leaves=12)
PATHS = st.lists(st.sampled_from(["a", "b", "", "é", 0, 1]), min_size=1, max_size=3)


def values_at(bodies, path):
    """The kind of each body's value, and the value: None where the caller has to look."""
    content = b"".join(bodies)
    ends = np.cumsum([0, *map(len, bodies)]).astype(np.int32)
    names = [each.encode() if isinstance(each, str) else b"" for each in path]
    kinds = np.zeros(len(bodies), np.uint8)
    starts, lengths, integers = (np.zeros(len(bodies), np.int64) for _ in range(3))
    reals = np.zeros(len(bodies))
    kernels.values_at(
        np.frombuffer(content, np.uint8),
        ends,
        np.ones(len(bodies), np.bool_),
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([0, *map(len, names)]).astype(np.int32),
        np.array([-1 if isinstance(each, str) else each for each in path], np.int64),
        kinds,
        starts,
        lengths,
        integers,
        reals,
    )
    found = []
    for row, kind in enumerate(kinds.tolist()):
        token = content[starts[row] : starts[row] + lengths[row]].decode()
        values = {
            kernels.INTEGER: lambda row=row: integers[row].item(),
            kernels.REAL: lambda row=row: reals[row].item(),
            kernels.TEXT: lambda token=token: token[1:-1],
            kernels.OTHER: lambda token=token: DECODER.decode(token),
        }
        found.append((kind, values.get(kind, lambda: None)()))
    return found


def expected_at(text, path):
    try:
        value = DECODER.decode(text)
    except ValueError:
        return None
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            return None
    return value


@settings(max_examples=sized(400, 10_000))
@given(st.lists(DOCUMENTS, max_size=4), PATHS)
@example(['{"a": {"b": 1}, "a": {"c": 2}}', '{"a": [1, {"b": 2}]}'], ["a", "b"])
@example(["[[1, 2], [3, [4]]]", "[1]", "[0, 7"], [1, 0])
@example(['{"a": 1} 2', '{"a": 1} ', '"a"', "a", "", " [5]", "\ufeff<a/>"], ["a"])
def test_what_is_found_is_what_python_reads(texts, path):
    found = values_at([each.encode("utf-8", "replace") for each in texts], path)
    for text, (kind, value) in zip(texts, found, strict=True):
        if "\\u" in text or kind == kernels.UNSURE:
            continue
        expected = expected_at(text.encode("utf-8", "replace").decode(), path)
        assert (value, type(value), str(value)) == (expected, type(expected), str(expected))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"a": 5}', kernels.INTEGER),
        ('{"b": [{"a": 1}], "a": -5.5e3 }', kernels.REAL),
        ('{"a": "x", "b": {}}', kernels.TEXT),
        ('{"a": "x\\n"}', kernels.OTHER),
        ('{"a": [5]}', kernels.OTHER),
        ('{"a": 0.0}', kernels.OTHER),
        ('{"a": 1234567890123456789}', kernels.OTHER),
        ('{"a": null}', kernels.ABSENT),
        ('{"b": {"a": 5}}', kernels.ABSENT),
        ('["a"]', kernels.ABSENT),
        ("text", kernels.ABSENT),
        (" ", kernels.ABSENT),
        ("{a: 5}", kernels.UNSURE),
        ('{"b\\n": 1, "a": 5}', kernels.UNSURE),
        (" <a>5</a>", kernels.UNSURE),
        ('{"a": NaN}', kernels.UNSURE),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", kernels.UNSURE),
        ('{"a": ' + "[" * 58 + "]" * 58 + "}", kernels.OTHER),
        ('{"a": 5}' + " " * 200_000, kernels.UNSURE),
    ],
)
def test_the_ordinary_is_found_and_the_rest_is_left_to_the_caller(body, kind):
    ((found, _),) = values_at([body.encode()], ["a"])
    assert found == kind


def test_bodies_that_are_not_read_or_not_there_are_left_to_the_caller():
    kinds, numbers, reals = np.zeros(3, np.uint8), np.zeros(3, np.int64), np.zeros(3)
    content = np.frombuffer(b'{"a": 1}', np.uint8)
    is_read = np.array([False, True, True])
    names, name_offsets = np.frombuffer(b"a", np.uint8), np.array([0, 1], np.int32)
    offsets = np.array([0, 8, 9, 4], np.int32)
    steps = np.array([-1])
    kernels.values_at(
        content, offsets, is_read, names, name_offsets, steps, kinds, *([numbers] * 3), reals
    )
    assert kinds.tolist() == [kernels.UNSURE] * 3


@settings(max_examples=sized(200, 5000))
@given(st.lists(st.one_of(NUMBERS, st.text(max_size=5))))
def test_texts_that_are_numbers_have_the_values_that_python_reads(texts):
    encoded = [each.encode("utf-8", "replace") for each in texts]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    kinds = np.zeros(len(texts), np.uint8)
    integers, reals = np.zeros(len(texts), np.int64), np.zeros(len(texts))
    kernels.numbers_of(np.frombuffer(b"".join(encoded), np.uint8), offsets, kinds, integers, reals)
    for row, kind in enumerate(kinds.tolist()):
        if kind == kernels.INTEGER:
            assert integers[row] == int(texts[row])
        elif kind == kernels.REAL:
            assert reals[row] == float(texts[row])
        else:
            assert kind == kernels.OTHER
