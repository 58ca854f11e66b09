"""Thrift, read without its IDL as its Java library wrote it."""

import pytest

from rocketlens.decode.thrift import may_be_thrift, read_thrift
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

FIELDS = {
    "1": "ORDER-20261120-0042",
    "2": True,
    "3": -123_456,
    "40": 12.25,
    "41": [1 << 40, -1],
    "42": {"channel": -3},
    "43": [True, False],
}


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_a_struct_and_a_message_are_read(protocol):
    assert read_thrift(body(f"order.thrift-{protocol}")) == FIELDS
    message = {"name": "pay", "type": "call", "seqid": 7, "fields": FIELDS}
    assert read_thrift(body(f"message.thrift-{protocol}")) == message


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("0b 00 01 00 00 00 01 ff 00", {"1": b"\xff"}),
        ("06 ff ff 00 07 00", {"-1": 7}),
        ("0e 00 01 0c 00 00 00 01 03 00 01 05 00 00", {"1": [{"1": 5}]}),
        ("0d 00 01 08 08 00 00 00 01 00 00 00 01 00 00 00 02 00", {"1": {"1": 2}}),
        ("1b 00 00", {"1": {}}),
        ("19 f3 01 07 00", {"1": [7]}),
        ("03 02 05 00", {"1": 5}),
    ],
)
def test_each_type_is_read(hexadecimal, value):
    assert read_thrift(bytes.fromhex(hexadecimal)) == value


@pytest.mark.parametrize(
    "hexadecimal",
    [
        "",
        "0b 00 01 7f ff ff ff",
        "0f 00 01 08 7f ff ff ff",
        "0f 00 01 08 ff ff ff ff",
        "63 00 01 00",
        "06 00 01 05 05 06 00 01 05 05 00",
        "13 05 03 02 05 00",
        "0c 00 01" * 200,
        "1c" * 200,
    ],
)
def test_what_is_neither_protocol_is_refused_by_both(hexadecimal):
    with pytest.raises(BodyError, match=r"binary: .*; compact: "):
        read_thrift(bytes.fromhex(hexadecimal))


def test_a_compact_struct_is_not_guessed():
    assert may_be_thrift(body("order.thrift-binary"))
    assert may_be_thrift(body("message.thrift-compact"))
    assert not may_be_thrift(body("order.thrift-compact"))
    assert not may_be_thrift(b"\0")
    assert not may_be_thrift(b"")
