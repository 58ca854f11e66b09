"""Objects of Java's own classes, as a JDK wrote them.

Text and times as Java has them.
"""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from rocketlens.decode.java import java_object
from rocketlens.decode.java.java_classes import java_date, java_text, java_value
from rocketlens.decode.tree import tree_of
from rocketlens.errors import BodyError
from tests.support.written_bodies import body


def read_java_object(data):
    return tree_of(java_object.read_java_object(data))


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
