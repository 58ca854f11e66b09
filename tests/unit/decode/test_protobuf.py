"""Protocol Buffers, read with and without their schema."""

import pytest

from rocketlens.decode.canal import read_canal
from rocketlens.decode.protobuf import (
    ProtobufField,
    message_schema,
    read_protobuf,
)
from rocketlens.decode.text_formats import MAX_DECODED_VALUES
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

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
        ("0a 05 61", "ends behind its message"),
        ("0e", "type 6"),
        ("0c", "end of group 1"),
        ("0b 10 05", "ends behind its message"),
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
