"""Java's own serialization, read as a JDK wrote it."""

import struct

import pytest

from rocketlens.decode.java import java_object
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
        ("7e 72 00 01 54 00 00 00 00 00 00 00 00 12 00 00 78 70 70", "whose name is no text"),
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
