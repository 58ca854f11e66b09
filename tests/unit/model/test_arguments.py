"""What callers pass in is checked, never guessed at."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rocketlens.errors import BadInput, WrongType
from rocketlens.model.arguments import check_int, check_text, epoch_ms

NOON_MS = 1_790_000_000_000


def test_a_number_is_epoch_milliseconds():
    assert epoch_ms(NOON_MS, "begin") == NOON_MS
    assert epoch_ms(0, "begin") == 0


def test_a_datetime_is_that_moment_to_the_millisecond():
    moment = datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(microseconds=1999)
    assert epoch_ms(moment, "begin") == NOON_MS + 1
    assert epoch_ms(moment.astimezone(timezone(timedelta(hours=8))), "begin") == NOON_MS + 1


def test_a_datetime_without_a_zone_is_local_time():
    local = datetime.fromtimestamp(NOON_MS / 1000, UTC).astimezone().replace(tzinfo=None)
    assert epoch_ms(local, "begin") == NOON_MS


def test_epoch_seconds_are_refused_and_what_to_pass_is_said():
    with pytest.raises(BadInput, match=r"end=1790000000 looks like epoch seconds.*1790000000000"):
        epoch_ms(NOON_MS // 1000, "end")


def test_the_float_of_time_time_is_refused():
    with pytest.raises(TypeError, match=r"begin must be an int .*, a datetime.*in seconds"):
        epoch_ms(1_790_000_000.5, "begin")


@pytest.mark.parametrize("value", [True, "2026-11-20", None, b"1"])
def test_other_types_are_no_times(value):
    with pytest.raises(WrongType, match="begin must be"):
        epoch_ms(value, "begin")


def test_a_wrong_type_is_a_type_error_and_bad_input():
    for check, value in ((check_text, 5), (check_int, "5"), (check_int, True)):
        with pytest.raises(WrongType) as raised:
            check(value, "key")
        assert isinstance(raised.value, TypeError)
        assert isinstance(raised.value, BadInput)
