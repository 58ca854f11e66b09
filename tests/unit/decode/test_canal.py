"""Canal's packets, read as its own library wrote them."""

import pytest

from rocketlens.decode.canal import read_canal
from rocketlens.errors import BodyError
from tests.support.written_bodies import body


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
        ("18 06 2a 00", "no packet of messages: type 'GET'"),
        ("18 07", "no packet of messages"),
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
