"""MessagePack, read as its Java library wrote it."""

import sys
from datetime import UTC, datetime

import pytest

from rocketlens.decode.cbor import read_cbor
from rocketlens.decode.messagepack import may_be_messagepack, read_messagepack
from rocketlens.errors import BodyError
from tests.support.written_bodies import body


def test_a_map_is_read():
    assert read_messagepack(body("order.messagepack")) == {
        "id": "ORDER-20261120-0042",
        "number": 9_007_199_254_740_993,
        "items": [1, 2.5, None],
        "at": datetime(2025, 11, 20, 0, 53, 20, 123000, tzinfo=UTC),
    }


def test_an_extension_type_has_its_number():
    assert read_messagepack(bytes.fromhex("91 d4 05 ff")) == [{"@ext": 5, "data": b"\xff"}]
    assert read_messagepack(bytes.fromhex("81 01 c4 01 00")) == {"1": b"\x00"}


@pytest.mark.parametrize(
    "hexadecimal", ["", "92 01", "91 01 02", "dd ff ff ff ff", "c1", "91" * 5_000, "81 90 01"]
)
def test_what_is_not_messagepack_is_refused(hexadecimal):
    with pytest.raises(BodyError, match="not MessagePack"):
        read_messagepack(bytes.fromhex(hexadecimal))


def test_only_maps_and_arrays_are_taken_for_messagepack():
    assert may_be_messagepack(body("order.messagepack"))
    assert may_be_messagepack(b"\xdd\0\0\0\0")
    assert not may_be_messagepack(b"\xa1a")
    assert not may_be_messagepack(b"")


@pytest.mark.parametrize(("read", "library"), [(read_messagepack, "msgpack"), (read_cbor, "cbor2")])
def test_without_the_library_the_error_says_what_to_install(read, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BodyError, match=r"pip install .*\[decode\]"):
        read(b"\x80")
