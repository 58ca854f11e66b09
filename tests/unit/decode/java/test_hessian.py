"""Hessian 2, read as Caucho's library wrote it."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from rocketlens import limits
from rocketlens.decode.java import hessian
from rocketlens.decode.java.hessian import may_be_hessian
from rocketlens.decode.tree import tree_of
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

PAID = datetime(2025, 11, 20, 0, 53, 20, 123000, tzinfo=UTC)


def read_hessian(data):
    return tree_of(hessian.read_hessian(data))


def test_an_object_becomes_its_fields_with_the_name_of_its_class():
    order = read_hessian(body("order.hessian"))
    assert order["@type"] == "shop.Order"
    assert order["id"] == "ORDER-20261120-0042"
    assert order["buyer"] == "王小明 😀"
    assert (order["small"], order["medium"], order["number"]) == (-3, -300, 123_456)
    assert order["large"] == 9_007_199_254_740_993
    assert (order["ratio"], order["total"], order["letter"]) == (0.5, 12.25, "中")
    assert order["amount"] == Decimal("19.90")
    assert order["paid"] == PAID
    assert order["token"] == b"\x00\x01\xff"
    assert order["state"] == {"@type": "shop.Order$State", "name": "PAID"}


def test_numbers_are_read_in_each_of_their_lengths():
    order = read_hessian(body("order.hessian"))
    assert order["numbers"] == [-16, 47, 48, 2047, -2049, 262_143, 262_144]
    assert order["longs"] == [-8, 15, 16, 2047, 2048, 262_143, 262_144, 1 << 40]
    assert order["doubles"] == [0, 1, -128, 32_767, 0.001, 1e300]


def test_what_is_there_twice_is_shown_once():
    order = read_hessian(body("order.hessian"))
    assert order["items"][0] == {"@same": "$.first"} or order["first"] == {"@same": "$.items[0]"}
    item = order["items"][0] if "sku" in order["items"][0] else order["first"]
    assert item["order"] == {"@same": "$"}


def test_a_map_text_and_bytes_of_many_chunks_and_dates_of_both_kinds_are_read():
    value = read_hessian(body("map.hessian"))
    assert value["long text"] == "x" * 20_000
    assert value["many bytes"] == bytes(20_000)
    assert value["at"] == PAID
    assert value["minute"] == datetime(2025, 11, 20, 0, 54, tzinfo=UTC)
    assert (value["gift"], value["note"], value["total"]) == (True, None, 12.25)


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("57 91 92 5a", [1, 2]),
        ("55 05 5b 69 6e 74 5d 91 5a", [1]),
        ("56 05 5b 69 6e 74 5d 91 92", [2]),
        ("58 91 92", [2]),
        ("79 4e", [None]),
        ("71 05 5b 69 6e 74 5d 91", [1]),
        ("4d 01 54 91 01 61 5a", {"@type": "T", "1": "a"}),
        ("48 91 51 90 5a", {"1": {"@same": "$"}}),
        ("7a 52 00 01 61 01 62 53 00 01 63", ["ab", "c"]),
        ("7a 41 00 01 61 21 62 42 00 01 63", [b"ab", b"c"]),
        ("79 49 80 00 00 00", [-(2**31)]),
        ("79 4c 80 00 00 00 00 00 00 00", [-(2**63)]),
        ("79 59 00 00 00 07", [7]),
    ],
)
def test_forms_that_the_library_seldom_writes_are_read(hexadecimal, value):
    assert read_hessian(bytes.fromhex(hexadecimal)) == value


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("", "ends too early"),
        ("58", "ends too early"),
        ("58 c8 05", "ends too early"),
        ("91 91", "1 bytes are left"),
        ("60", "class 0 of 0"),
        ("51 91", "value 1 of 0"),
        ("75 90", "type 0 of 0"),
        ("40", "no value begins with 0x40"),
        ("58 4e", "expected an int, not 0x4e"),
        ("4d 4e 5a", "a name that is no text"),
        ("52 00 01 61 4e", "text goes on with 0x4e"),
        ("41 00 01 61 4e", "bytes go on with 0x4e"),
        ("01 ff", "no character begins with 0xff"),
        ("01 c3 41", "not UTF-8"),
    ],
)
def test_what_is_not_hessian_is_refused_with_its_position(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_hessian(bytes.fromhex(hexadecimal))


def test_levels_and_values_are_bounded():
    with pytest.raises(BodyError, match="levels deep"):
        read_hessian(b"\x57" * 100_000)
    with pytest.raises(BodyError, match="more than"):
        read_hessian(b"\x57" + b"N" * (limits.MAX_BINARY_VALUES + 1) + b"Z")


def test_a_class_cannot_name_more_fields_than_values_are_decoded():
    with pytest.raises(BodyError, match="more than"):
        read_hessian(bytes.fromhex("43 01 61 49 7f ff ff ff"))


def test_only_maps_lists_and_objects_are_taken_for_hessian():
    assert may_be_hessian(body("order.hessian"))
    assert may_be_hessian(body("map.hessian"))
    assert not may_be_hessian(b"\x05hello")
    assert not may_be_hessian(b"")
