"""MessagePack, CBOR, Thrift and Canal's packets, read as their own libraries wrote them."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import cbor2
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.decode.canal import read_canal
from rocketlens.decode.cbor import may_be_cbor, read_cbor
from rocketlens.decode.messagepack import may_be_messagepack, read_messagepack
from rocketlens.decode.thrift import may_be_thrift, read_thrift
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.text(min_size=200, max_size=300)
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20)
    ),
    max_leaves=30,
)


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
    ("hexadecimal", "says"),
    [
        ("", "ends too early"),
        ("92 01", "ends too early"),
        ("91 01 02", "1 bytes follow its end"),
        ("dd ff ff ff ff", "ends too early"),
        ("c1", "no value begins with 0xc1"),
        ("91" * 5_000, "levels deep"),
    ],
)
def test_what_is_not_messagepack_is_refused(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_messagepack(bytes.fromhex(hexadecimal))


@given(values)
def test_what_the_library_writes_is_read_as_the_library_reads_it(value):
    packed = msgpack.packb(value, datetime=True, unicode_errors="surrogatepass")
    assert repr(read_messagepack(packed)) == repr(value)


def test_times_have_each_of_their_three_lengths():
    for second in (0, 1, 1 << 33, -1):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        assert read_messagepack(msgpack.packb(moment, datetime=True)) == moment


def test_only_maps_and_arrays_are_taken_for_messagepack():
    assert may_be_messagepack(body("order.messagepack"))
    assert may_be_messagepack(b"\xdd\0\0\0\0")
    assert not may_be_messagepack(b"\xa1a")
    assert not may_be_messagepack(b"")


def test_a_map_in_cbor_is_read():
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
        ("a1 01 02", {"1": 2}),
        ("bf 61 61 9f 01 ff ff", {"a": [1]}),
        ("7f 61 61 62 62 63 ff", "abc"),
        ("c2 49 01 00 00 00 00 00 00 00 00", 2**64),
        ("c3 41 00", -1),
        ("c1 fb 41 d4 52 d9 e2 00 00 00", datetime(2013, 3, 21, 20, 3, 20, tzinfo=UTC)),
        ("d8 64 01", date(1970, 1, 2)),
        ("d9 03 ec 6a" + b"1970-01-02".hex(), date(1970, 1, 2)),
        ("d8 25 50" + "00" * 16, "00000000-0000-0000-0000-000000000000"),
        ("c0 61 61", {"@tag": 0, "value": "a"}),
        # What would take long to make is shown as it is stored.
        ("c4 82 1a 7f ff ff ff 03", {"@tag": 4, "value": [0x7FFFFFFF, 3]}),
        ("81 c5 82 21 03", [{"@tag": 5, "value": [-2, 3]}]),
    ],
)
def test_types_that_json_does_not_have_are_read(hexadecimal, value):
    assert read_cbor(bytes.fromhex(hexadecimal)) == value


@given(values)
def test_what_the_cbor_library_writes_is_read_as_it_reads_it(value):
    assert repr(read_cbor(cbor2.dumps(value))) == repr(value)


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("", "ends too early"),
        ("82 01", "ends too early"),
        ("81 01 02", "1 bytes follow its end"),
        ("9b 00 00 00 10 00 00 00 00", "ends too early"),
        ("81 ff", "no value begins with 0xff"),
        ("81 1f", "no value begins with 0x1f"),
        ("81 1c", "unknown size 28"),
        ("7f 41 00 ff", "a string continues with 0x41"),
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


def test_a_packet_is_read_down_to_its_columns():
    packet = read_canal(body("update.canal"))
    assert (packet["magic_number"], packet["version"], packet["type"]) == (17, 1, "MESSAGES")
    assert packet["body"]["batch_id"] == 11
    (entry,) = packet["body"]["messages"]
    assert entry["header"] == {
        "logfileName": "mysql-bin.000042",
        "logfileOffset": 1234,
        "executeTime": 1_763_600_000_000,
        "schemaName": "shop",
        "tableName": "orders",
        "eventType": "UPDATE",
    }
    (row,) = entry["storeValue"]["rowDatas"]
    assert row["beforeColumns"][0]["value"] == "NEW"
    (after,) = row["afterColumns"]
    assert (after["name"], after["value"], after["updated"]) == ("state", "PAID", True)


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("18 06 2a 00", "not a packet of messages: type 'GET'"),
        ("18 07", "not a packet of messages"),
        ("18 07 20 02 2a 00", "compressed: ZLIB"),
        ("18 07 2a 02 10 05", "an entry that is a number"),
    ],
)
def test_what_is_no_packet_of_messages_is_refused(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_canal(bytes.fromhex(hexadecimal))


def test_an_entry_of_several_types_keeps_what_is_stored_as_it_is():
    packet = read_canal(bytes.fromhex("18 07 2a 09 12 07 12 02 01 02 1a 01 41"))
    (entry,) = packet["body"]["messages"]
    assert (len(entry["entryType"]), entry["storeValue"]) == (2, b"A")
