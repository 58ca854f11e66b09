"""Avro, read as its Java library wrote it."""

import json
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pytest
import zstandard

from rocketlens.decode.avro import parse_schema, read_avro, read_body, read_container
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

SCHEMA = parse_schema(body("order.avsc"))


def check_order(order, *, is_inner=False):
    assert list(order) == [
        *("id", "number", "note", "state", "items", "tags", "sum", "amount", "at", "day", "before")
    ]
    assert (order["id"], order["number"]) == ("ORDER-20261120-0042", -123_456)
    assert order["note"] == (None if is_inner else "王小明")
    assert (order["state"], order["items"], order["tags"]) == (
        "PAID",
        [1 << 40, -1],
        {"weight": 0.25},
    )
    assert (order["sum"], order["amount"]) == (b"\1\2", Decimal("-19.90"))
    assert order["at"] == datetime(2025, 11, 20, 0, 53, 20, 123000, tzinfo=UTC)
    assert order["day"] == date(2024, 10, 4)


def test_a_record_is_read_by_its_schema():
    order = read_avro(body("record.avro"), SCHEMA)
    check_order(order)
    check_order(order["before"], is_inner=True)
    assert order["before"]["before"] is None


@pytest.mark.parametrize("name", ["container-null.avro", "container-deflate.avro"])
def test_a_container_file_is_read_by_the_schema_that_it_holds(name):
    first, second = read_container(body(name))
    check_order(first)
    check_order(second, is_inner=True)


def test_a_reader_takes_a_record_bare_behind_its_fingerprint_and_in_a_container():
    read = partial(read_body, schema=SCHEMA)
    bare = read(body("record.avro"))
    assert read(body("single-object.avro")) == bare
    assert read(body("container-null.avro"))[0] == bare


def read(declared, hexadecimal):
    return read_avro(bytes.fromhex(hexadecimal), parse_schema(json.dumps(declared)))


@pytest.mark.parametrize(
    ("declared", "hexadecimal", "value"),
    [
        ("null", "", None),
        ("boolean", "01", True),
        ("long", "ff ff ff ff ff ff ff ff ff 01", -(2**63)),
        ("float", "00 00 00 3f", 0.5),
        ("double", "00 00 00 00 00 00 e0 3f", 0.5),
        ("bytes", "04 00 ff", b"\x00\xff"),
        ({"type": "array", "items": "int"}, "03 04 02 04 02 06 00", [1, 2, 3]),
        ({"type": "map", "values": "int"}, "02 02 61 02 00", {"a": 1}),
        ({"type": "string", "logicalType": "uuid"}, "02 61", "a"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            "00",
            datetime(1970, 1, 1, tzinfo=UTC),
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, "fe" + "ff" * 8 + "01", 2**63 - 1),
        ({"type": {"type": "int"}}, "02", 1),
        ({"type": ["null", "int"]}, "02 02", 1),
        ({"type": "error", "name": "E", "fields": []}, "", {}),
    ],
)
def test_each_type_is_read(declared, hexadecimal, value):
    assert read(declared, hexadecimal) == value


def test_names_are_found_in_their_namespace():
    inner = {"type": "enum", "name": "State", "symbols": ["NEW"]}
    fields = [
        {"name": "a", "type": inner},
        {"name": "b", "type": "State"},
        {"name": "c", "type": "shop.State"},
    ]
    declared = {"type": "record", "name": "shop.Order", "fields": fields}
    assert read(declared, "00 00 00") == {"a": "NEW", "b": "NEW", "c": "NEW"}


@pytest.mark.parametrize(
    ("declared", "hexadecimal", "says"),
    [
        ("int", "", "ends too early"),
        ("int", "02 02", "1 bytes are left"),
        ("bytes", "01", "ends too early"),
        ("string", "02 ff", "not UTF-8"),
        (["null"], "02", "choice 1 of 1"),
        ({"type": "enum", "name": "E", "symbols": []}, "00", "choice 0 of 0"),
        ({"type": "array", "items": "null"}, "fe ff ff ff 0f 00", "more than"),
    ],
)
def test_what_a_schema_does_not_read_is_refused(declared, hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read(declared, hexadecimal)


def test_records_that_hold_each_other_are_read_to_a_bounded_depth():
    link = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    assert read(link, "02 02 00") == {"n": {"n": {"n": None}}}
    with pytest.raises(BodyError, match="levels deep"):
        read(link, "02" * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[" * 5_000, '"none"', "7", '{"type":"record"}', '{"type":{"type":{}}}', "{}"),
        '{"type":' * 200 + '"int"' + "}" * 200,
    ],
)
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(BodyError, match="schema cannot be read"):
        parse_schema(text)


def container(codec, block, *, mark=bytes(16)):
    """Return a file of one block of ints."""

    def text(value):
        return bytes([2 * len(value)]) + value

    head = b"Obj\1" + b"\x04" + text(b"avro.schema") + text(b'"int"') + text(b"avro.codec")
    head += text(codec) + b"\0" + bytes(16)
    return head + bytes([4, 2 * len(block)]) + block + mark


def test_blocks_are_unpacked_within_a_bound():
    assert read_container(container(b"null", b"\x02\x04")) == [1, 2]
    zstd = zstandard.ZstdCompressor().compress(b"\x02\x04")
    assert read_container(container(b"zstandard", zstd)) == [1, 2]
    with pytest.raises(BodyError, match="snappy, which is not read"):
        read_container(container(b"snappy", b""))
    with pytest.raises(BodyError, match="not deflated"):
        read_container(container(b"deflate", b"\xff\xff"))
    packer = zlib.compressobj(9, wbits=-15)
    bomb = packer.compress(bytes(100 << 20)) + packer.flush()
    with pytest.raises(BodyError, match="grows beyond"):
        read_container(
            container(b"deflate", b"").replace(bytes([4, 0]), _head(bomb), 1)[:-16] + bomb
        )
    with pytest.raises(BodyError, match="the file's mark"):
        read_container(container(b"null", b"\x02\x04", mark=b"x" * 16))
    with pytest.raises(BodyError, match="does not begin"):
        read_container(b"nothing")


def _head(block):
    """Return the head of a block of two records."""
    number, head = 2 * len(block), bytes([4])
    while number > 0x7F:
        head += bytes([number & 0x7F | 0x80])
        number >>= 7
    return head + bytes([number])
