"""Java's own serialization and Hessian 2, read as a JDK and Caucho's library wrote them."""

import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from rocketlens import limits
from rocketlens.decode.java import hessian, java_object
from rocketlens.decode.java.hessian import may_be_hessian
from rocketlens.decode.java.java_classes import java_date, java_text, java_value
from rocketlens.decode.java.java_object import MAGIC
from rocketlens.decode.tree import tree_of
from rocketlens.errors import BodyError
from tests.support.written_bodies import body


def read_java_object(data):
    return tree_of(java_object.read_java_object(data))


def test_an_object_becomes_its_fields_those_of_its_superclass_first():
    order = read_java_object(body("order.java-object"))
    assert list(order)[:2] == ["@type", "id"]
    assert order["@type"] == "shop.Order"
    assert order["buyer"] == "王小明 😀"
    assert (order["small"], order["medium"], order["large"]) == (-3, -300, 9_007_199_254_740_993)
    assert (order["gift"], order["letter"], order["ratio"]) == (True, "中", 0.5)
    assert (order["state"], order["token"]) == ("PAID", b"\x00\x01\xff")
    assert order["names"] == ["a", None, "b"]


def test_an_object_that_holds_itself_is_shown_once():
    order = read_java_object(body("order.java-object"))
    assert order["first"]["order"] == {"@same": "$"}
    assert order["items"][0] == {"@same": "$.first"}


def text(value):
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def class_of(name, flags, fields=b"", count=0):
    """Return a class without a superclass."""
    head = b"\x72" + text(name) + bytes(8) + bytes([flags]) + struct.pack(">H", count)
    return head + fields + b"\x78\x70"


def test_what_writeobject_wrote_stands_beside_the_fields():
    written = b"\x77\x02ab" + b"\x74" + text("more")
    stream = MAGIC + b"\x73" + class_of("T", 3) + written + b"\x78"
    assert read_java_object(stream) == {"@type": "T", "@written": [b"ab", "more"]}


def test_what_an_externalizable_class_wrote_is_read_where_its_end_is_marked():
    in_blocks = MAGIC + b"\x73" + class_of("T", 12) + b"\x77\x01a\x78"
    assert read_java_object(in_blocks)["@written"] == [b"a"]
    with pytest.raises(BodyError, match="only T itself"):
        read_java_object(MAGIC + b"\x73" + class_of("T", 4) + b"a")


def test_a_proxy_a_reset_and_several_objects_are_read():
    proxy = b"\x7d" + struct.pack(">i", 1) + text("java.util.Map") + b"\x78\x70"
    assert read_java_object(MAGIC + b"\x73" + proxy) == {"@type": "java.lang.reflect.Proxy"}
    assert read_java_object(MAGIC + b"\x74\x00\x01a\x79\x74\x00\x01b") == ["a", "b"]
    assert read_java_object(MAGIC + b"\x7a\x00\x00\x00\x01a") == b"a"


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("", "has no object"),
        ("73", "ends too early"),
        ("73 70", "expected a class, not null"),
        ("71 00 7e 00 00", "handle 0 of 0"),
        ("71 ff ff ff ff", "handle"),
        ("74 00 05 61", "ends too early"),
        ("74 00 01 ff", "not UTF-8"),
        ("7c 7f ff ff ff ff ff ff ff", "ends too early"),
        ("7a ff ff ff ff", "ends too early"),
        ("7b", "no content begins with 0x7b"),
        ("73 74", "no class begins with 0x74"),
        ("74 00 01 61 73 71 00 7e 00 00", "a reference to a value"),
        ("76 72 00 01 54 00 00 00 00 00 00 00 00 02 00 00 78 70 71 00 7e 00 00", "to a class"),
        ("73 72 00 01 54 00 00 00 00 00 00 00 00 02 00 01 51 00 01 61", "type 'Q'"),
        ("75 72 00 01 5b 00 00 00 00 00 00 00 00 02 00 00 78 70 00 00 00 01", "an array of"),
        ("75 72 00 02 5b 49 00 00 00 00 00 00 00 00 02 00 00 78 70 7f ff ff ff", "too early"),
        ("7e 72 00 01 54 00 00 00 00 00 00 00 00 12 00 00 78 70 70", "whose name is not text"),
    ],
)
def test_what_is_not_such_a_stream_is_refused(rest, says):
    with pytest.raises(BodyError, match=says):
        read_java_object(MAGIC + bytes.fromhex(rest))


def test_a_body_without_its_mark_is_refused():
    with pytest.raises(BodyError, match="ac ed 00 05"):
        read_java_object(b"\x00\x01\x02\x03")


def test_levels_are_bounded():
    nested = (b"\x75" + class_of("[Ljava.lang.Object;", 2) + struct.pack(">i", 1)) * 200
    with pytest.raises(BodyError, match="levels deep"):
        read_java_object(MAGIC + nested)


def test_a_class_that_is_its_own_superclass_is_read():
    own = b"\x72" + text("T") + bytes(8) + b"\x02\x00\x00\x78" + b"\x71\x00\x7e\x00\x00"
    assert read_java_object(MAGIC + b"\x73" + own) == {"@type": "T"}


MOMENT = datetime(2025, 11, 20, 0, 53, 20, 123000, tzinfo=UTC)


@pytest.fixture(scope="module")
def classes():
    return read_java_object(body("classes.java-object"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("list", [1, "two", 3.5]),
        ("linked", ["x", "y"]),
        ("deque", ["x", "y"]),
        ("set", ["only"]),
        ("tree set", ["a", "b"]),
        ("as list", ["p", "q"]),
        ("list of", [1, 2, 3]),
        ("map of", {"k": "v"}),
        ("tree map", {"k": 1}),
        ("table", {"k": "v"}),
        ("concurrent", {"k": "v"}),
        ("big", -123456789012345678901234567890),
        ("decimal", Decimal("-0.00120")),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("date", MOMENT),
        ("timestamp", MOMENT),
        ("instant", datetime(2025, 11, 20, 0, 53, 20, 123456, tzinfo=UTC)),
        ("day", date(2026, 11, 20)),
        ("time", "10:31:00"),
        ("moment", "2026-11-20T10:31:02.114000"),
        ("class", {"@type": "java.lang.Class", "name": "java.lang.String"}),
        ("character", "中"),
        ("nul", "a\0b"),
        ("long text", "x" * 70_000),
    ],
)
def test_objects_of_java_become_what_they_stand_for(classes, name, value):
    assert classes[name] == value
    assert type(classes[name]) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        {"@type": "java.util.ArrayList", "size": 3, "@written": [b"\0\0\0\1", "a"]},
        {"@type": "java.util.HashMap", "@written": [b"\0\0\0\2", "a", "b"]},
        {"@type": "java.util.Date"},
        {"@type": "java.math.BigDecimal", "intVal": "x", "scale": 1},
        {"@type": "java.math.BigDecimal", "intVal": 10**5000, "scale": 1},
        {"@type": "java.math.BigInteger", "magnitude": b"\xff\xff\xff", "signum": "x"},
        {"@type": "java.math.BigInteger", "magnitude": b"\xff\xff\xff", "signum": [1]},
        {"@type": "java.time.Ser", "@written": [b"\x63"]},
        {"@type": "java.time.Ser", "@written": [b"\x03\0\0\0\1\x20\x20"]},
        {"@type": "java.util.concurrent.ConcurrentHashMap", "@written": ["a", "b"]},
        {"@type": "java.sql.Timestamp", "nanos": 0, "@written": [b"\x7f" * 8]},
        {"@type": "shop.Order"},
    ],
)
def test_another_version_of_a_class_is_shown_as_its_fields(value):
    assert java_value(value) is value


def test_surrogates_that_are_stored_apart_become_a_character():
    assert (
        java_text("a😀".encode("utf-16-be").decode("utf-16-be", "surrogatepass").encode()) == "a😀"
    )
    assert java_text(b"\xed\xa0\xbd\xed\xb8\x80") == "😀"
    assert java_text(b"\xed\xa0\xbd") == "\ud83d"
    with pytest.raises(BodyError, match="not UTF-8"):
        java_text(b"\xff")


def test_a_time_that_python_does_not_have_stays_a_number():
    assert java_date(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert java_date(2**62) == 2**62


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
        ("91 91", "1 bytes follow its end"),
        ("60", "class 0 of 0"),
        ("51 91", "value 1 of 0"),
        ("75 90", "type 0 of 0"),
        ("40", "no value begins with 0x40"),
        ("58 4e", "expected an int, not 0x4e"),
        ("4d 4e 5a", "a name that is not text"),
        ("52 00 01 61 4e", "text continues with 0x4e"),
        ("41 00 01 61 4e", "bytes continue with 0x4e"),
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
