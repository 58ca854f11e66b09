"""CBOR, read as Jackson wrote it."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from rocketlens.decode.cbor import may_be_cbor, read_cbor
from rocketlens.errors import BodyError
from tests.support.written_bodies import body


def test_a_map_is_read():
    order = read_cbor(body("order.cbor"))
    assert order == {
        "id": "ORDER-20261120-0042",
        "buyer": "王小明 😀",
        "number": -123_456,
        "large": 9_007_199_254_740_993,
        "total": 12.25,
        "gift": True,
        "note": None,
        "token": b"\x00\x01\xff",
        "items": [1, 2, 3],
    }


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("d9 d9 f7 81 01", [1]),
        (
            "81 c0 74" + b"2026-11-20T10:31:02Z".hex(),
            [datetime(2026, 11, 20, 10, 31, 2, tzinfo=UTC)],
        ),
        ("81 c4 82 21 19 07 c6", [Decimal("19.90")]),
        ("81 d8 40 41 01", [{"@tag": 64, "value": b"\x01"}]),
        ("81 f8 ff", [{"@simple": 255}]),
        ("81 f7", [None]),
        ("81 d8 23 63" + b"a+b".hex(), ["a+b"]),
        ("81 d8 1e 82 01 05", ["1/5"]),
        ("a1 01 02", {"1": 2}),
    ],
)
def test_types_that_json_does_not_have_are_read(hexadecimal, value):
    assert read_cbor(bytes.fromhex(hexadecimal)) == value


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("", "not CBOR"),
        ("82 01", "not CBOR"),
        ("81 01 02", "1 bytes are left"),
        ("9b 00 00 00 10 00 00 00 00", "not CBOR"),
        ("81 c5 82 1b 00 00 00 00 ff ff ff ff 03", "not CBOR"),
        ("d8 1c 81 d8 1d 00", "levels deep"),
        ("81" * 5_000 + "00", "not CBOR"),
    ],
)
def test_what_is_not_cbor_is_refused(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_cbor(bytes.fromhex(hexadecimal))


def test_only_maps_arrays_and_its_mark_are_taken_for_cbor():
    assert may_be_cbor(body("order.cbor"))
    assert may_be_cbor(bytes.fromhex("d9d9f700"))
    assert not may_be_cbor(b"text")
    assert not may_be_cbor(b"")
