"""Avro and Protocol Buffers, with and without their schemas."""

import json
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pytest
import zstandard

from rocketlens.decode.avro import parse_schema, read_avro, read_body, read_container
from rocketlens.decode.canal import read_canal
from rocketlens.decode.descriptors import message_schema
from rocketlens.decode.protobuf import ProtobufField, read_protobuf
from rocketlens.decode.text_formats import MAX_DECODED_VALUES
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
        ("int", "02 02", "1 bytes follow its end"),
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
    with pytest.raises(BodyError, match="snappy, which is not supported"):
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


SET = body("file.descriptor-set")
PACKAGE = "com.alibaba.otter.canal.protocol"


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("08 96 01", {"1": 150}),
        ("08 ff ff ff ff ff ff ff ff ff 01", {"1": -1}),
        ("09 00 00 00 00 00 00 e0 3f", {"1": 0.5}),
        ("09 01 00 00 00 00 00 00 80", {"1": 1 - 2**63}),
        ("0d 00 00 00 3f", {"1": 0.5}),
        ("0d 01 00 00 00", {"1": 1}),
        ("12 07 74 65 73 74 69 6e 67", {"2": "testing"}),
        ("12 00", {"2": ""}),
        ("1a 03 08 96 01", {"3": {"1": 150}}),
        ("12 01 ff", {"2": b"\xff"}),
        ("12 02 00 01", {"2": "\x00\x01"}),
        ("08 01 08 02 08 03", {"1": [1, 2, 3]}),
        ("0b 10 05 0c", {"1": {"2": 5}}),
        ("12 03 61 0a 62", {"2": "a\nb"}),
    ],
)
def test_fields_are_read_as_what_they_may_be(hexadecimal, value):
    assert read_protobuf(bytes.fromhex(hexadecimal)) == value


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("08", "ends too early"),
        ("00", "field number 0"),
        ("0a 05 61", "ends after its message"),
        ("0e", "type 6"),
        ("0c", "end of group 1"),
        ("0b 10 05", "ends after its message"),
        ("0b" * 200, "levels deep"),
    ],
)
def test_what_is_no_message_is_refused(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_protobuf(bytes.fromhex(hexadecimal))


def test_values_are_bounded():
    with pytest.raises(BodyError, match="more than"):
        read_protobuf(b"\x08\x00" * (MAX_DECODED_VALUES + 1))


def test_names_make_known_messages_readable():
    item = {1: ProtobufField("sku", "text"), 2: ProtobufField("counts", "int", is_list=True)}
    known = {
        1: ProtobufField("state", values={1: "NEW"}),
        2: ProtobufField("items", item, is_list=True),
        3: ProtobufField("rest", "bytes"),
        4: ProtobufField("gift", "bool"),
        5: ProtobufField(
            "tags",
            {1: ProtobufField("key", "text"), 2: ProtobufField("value", "zigzag")},
            is_list=True,
            is_map=True,
        ),
        6: ProtobufField("price", "double"),
    }
    hexadecimal = (
        "08 01 12 09 0a 02 41 39 12 03 01 02 03 1a 01 61 20 01"
        " 2a 05 0a 01 77 10 03 31 00 00 00 00 00 00 e0 3f 38 07"
    )
    assert read_protobuf(bytes.fromhex(hexadecimal), schema=known) == {
        "state": "NEW",
        "items": [{"sku": "A9", "counts": [1, 2, 3]}],
        "rest": b"a",
        "gift": True,
        "tags": {"w": -2},
        "price": 0.5,
        "7": 7,
    }
    with pytest.raises(BodyError, match="stored as another type"):
        read_protobuf(bytes.fromhex("30 01"), schema=known)
    with pytest.raises(BodyError, match="ends too early"):
        read_protobuf(
            bytes.fromhex("32 01 00"), schema={6: ProtobufField("f", "float", is_list=True)}
        )


def test_only_messages_with_likely_numbers_are_taken_for_protobuf():
    unlikely = bytes.fromhex("f8 ff ff ff 0f 00")
    assert read_protobuf(body("update.canal"), is_guess=True)
    assert read_protobuf(unlikely)
    with pytest.raises(BodyError, match="field number"):
        read_protobuf(unlikely, is_guess=True)
    assert read_protobuf(bytes.fromhex("f8 ff ff ff 0f 00"))


def test_a_message_is_read_by_the_names_of_its_descriptor():
    schema = message_schema(SET, f"{PACKAGE}.Entry")
    packet = read_protobuf(body("update.canal"))
    (entry,) = (
        [read_protobuf(packet["5"], schema={})] if isinstance(packet["5"], bytes) else [packet["5"]]
    )
    stored = read_protobuf(_entry_bytes(), schema=schema)
    assert entry["1"] == 11
    assert stored["header"]["tableName"] == "orders"
    assert stored["header"]["eventType"] == "UPDATE"
    assert stored["entryType"] == "ROWDATA"
    assert isinstance(stored["storeValue"], bytes)


def test_a_set_reads_what_is_also_read_by_the_built_in_names():
    schema = message_schema(SET, f".{PACKAGE}.RowChange")
    entry = read_protobuf(_entry_bytes(), schema=message_schema(SET, f"{PACKAGE}.Entry"))
    change = read_protobuf(entry["storeValue"], schema=schema)
    assert change == read_canal(body("update.canal"))["body"]["messages"][0]["storeValue"]


def test_a_message_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(BodyError, match=rf"no message shop.Order; it has {PACKAGE}.Column"):
        message_schema(SET, "shop.Order")


@pytest.mark.parametrize(
    "data", [b"", b"\xff", bytes.fromhex("0a 04 22 02 0a 00"), b"\x0a\x02\x22\x00"]
)
def test_what_is_no_set_is_refused(data):
    with pytest.raises(BodyError):
        message_schema(data, "shop.Order")


def _entry_bytes():
    messages = {1: _field("batch_id", "int"), 2: _field("messages", "bytes")}
    packet = read_protobuf(body("update.canal"), schema={5: _field("body", "bytes")})
    return read_protobuf(packet["body"], schema=messages)["messages"]


def _field(name, kind):
    from rocketlens.decode.protobuf import ProtobufField

    return ProtobufField(name, kind)
