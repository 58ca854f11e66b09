"""Protocol Buffers, read by a descriptor set that protobuf-java wrote."""

import pytest

from rocketlens.decode.canal import read_canal
from rocketlens.decode.protobuf import message_schema
from rocketlens.decode.protobuf_wire import read_protobuf
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

SET = body("file.descriptor-set")
PACKAGE = "com.alibaba.otter.canal.protocol"


def test_a_message_is_read_by_the_names_of_its_descriptor():
    schema = message_schema(SET, f"{PACKAGE}.Entry")
    packet = read_protobuf(body("update.canal"))
    (entry,) = [read_protobuf(packet["5"], {})] if isinstance(packet["5"], bytes) else [packet["5"]]
    stored = read_protobuf(_entry_bytes(), schema)
    assert entry["1"] == 11
    assert stored["header"]["tableName"] == "orders"
    assert stored["header"]["eventType"] == "UPDATE"
    assert stored["entryType"] == "ROWDATA"
    assert isinstance(stored["storeValue"], bytes)


def test_a_set_reads_what_is_also_read_by_the_built_in_names():
    schema = message_schema(SET, f".{PACKAGE}.RowChange")
    entry = read_protobuf(_entry_bytes(), message_schema(SET, f"{PACKAGE}.Entry"))
    change = read_protobuf(entry["storeValue"], schema)
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
    packet = read_protobuf(body("update.canal"), {5: _field("body", "bytes")})
    return read_protobuf(packet["body"], messages)["messages"]


def _field(name, kind):
    from rocketlens.decode.protobuf_wire import ProtobufField

    return ProtobufField(name, kind)
