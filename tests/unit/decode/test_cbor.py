"""CBOR, read as Jackson wrote it."""

from datetime import UTC, date, datetime
from decimal import Decimal

import cbor2
import pytest
from hypothesis import given

from rocketlens.decode.cbor import may_be_cbor, read_cbor
from rocketlens.errors import BodyError
from tests.support.written_bodies import body
from tests.unit.decode.test_messagepack import values


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
        ("bf 61 61 9f 01 ff ff", {"a": [1]}),
        ("7f 61 61 62 62 63 ff", "abc"),
        ("c2 49 01 00 00 00 00 00 00 00 00", 2**64),
        ("c3 41 00", -1),
        ("c5 82 21 03", Decimal("0.75")),
        ("c5 82 02 03", Decimal(12)),
        ("c1 fb 41 d4 52 d9 e2 00 00 00", datetime(2013, 3, 21, 20, 3, 20, tzinfo=UTC)),
        ("d8 64 01", date(1970, 1, 2)),
        ("d9 03 ec 6a" + b"1970-01-02".hex(), date(1970, 1, 2)),
        ("d8 25 50" + "00" * 16, "00000000-0000-0000-0000-000000000000"),
        ("c0 61 61", {"@tag": 0, "value": "a"}),
        # What would take long to make is shown as it is stored.
        ("c4 82 1a 7f ff ff ff 03", {"@tag": 4, "value": [0x7FFFFFFF, 3]}),
        ("81 c5 82 1b 00 00 00 00 ff ff ff ff 03", [{"@tag": 5, "value": [0xFFFFFFFF, 3]}]),
    ],
)
def test_types_that_json_does_not_have_are_read(hexadecimal, value):
    assert read_cbor(bytes.fromhex(hexadecimal)) == value


@given(values)
def test_what_the_library_writes_is_read_as_the_library_reads_it(value):
    assert repr(read_cbor(cbor2.dumps(value))) == repr(value)


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("", "ends too early"),
        ("82 01", "ends too early"),
        ("81 01 02", "1 bytes are left"),
        ("9b 00 00 00 10 00 00 00 00", "ends too early"),
        ("81 ff", "no value begins with 0xff"),
        ("81 1f", "no value begins with 0x1f"),
        ("81 1c", "unknown size 28"),
        ("7f 41 00 ff", "a string goes on with 0x41"),
        ("61 ff", "not UTF-8"),
        ("81" * 5_000 + "00", "levels deep"),
    ],
)
def test_what_is_not_cbor_is_refused(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_cbor(bytes.fromhex(hexadecimal))


def test_only_maps_arrays_and_its_mark_are_taken_for_cbor():
    assert may_be_cbor(body("order.cbor"))
    assert not may_be_cbor(bytes.fromhex("d9d9f700"))
    assert not may_be_cbor(b"text")
    assert not may_be_cbor(b"")
