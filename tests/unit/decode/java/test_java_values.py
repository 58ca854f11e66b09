"""Text and times as Java has them."""

from datetime import UTC, datetime

import pytest

from rocketlens.decode.java.java_values import java_date, java_text
from rocketlens.errors import BodyError


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
