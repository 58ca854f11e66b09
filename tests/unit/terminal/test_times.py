"""Times as people write them."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.terminal.output import iso_text, parse_time, range_text, time_text, zone_text

NOW_MS = 1_790_000_000_123
HOUR_MS = 3_600_000


def parsed(text, *, is_end=False):
    return parse_time(text, "--since", is_end=is_end, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        *[("now", 0), ("90s", 90_000), ("30m", HOUR_MS // 2), ("30min", HOUR_MS // 2)],
        *[("2h", 2 * HOUR_MS), ("1.5h", 3 * HOUR_MS // 2), ("3d", 72 * HOUR_MS)],
        *[("1w", 7 * 24 * HOUR_MS), (" 2h ", 2 * HOUR_MS)],
    ],
)
def test_a_span_is_that_long_ago(text, ago_ms):
    assert parsed(text) == NOW_MS - ago_ms


def test_digits_are_epoch_milliseconds():
    assert parsed("1795228834563") == 1795228834563
    assert parsed("0") == 0


@pytest.mark.parametrize(
    "text", ["1795228834563", "1795228834563000", "1795228834563999999", "20261121024034563"]
)
def test_the_number_of_digits_says_in_which_form_a_time_is(text, zone):
    zone("UTC")
    assert parsed(text) == 1795228834563


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1795228834", "2026-11-21T02:40:34"),
        ("20261121024034", "2026-11-21T02:40:34"),
        ("202611210240", "2026-11-21T02:40"),
        ("20261121", "2026-11-21"),
    ],
)
def test_seconds_and_calendar_digits_are_read(text, same, zone):
    zone("UTC")
    assert parsed(text) == parsed(same)
    assert parsed(text, is_end=True) == parsed(same, is_end=True)


@pytest.mark.parametrize("text", ["5", "179522883", "17952288345", "20261321024034", "9" * 30])
def test_digits_that_are_no_time_of_any_form_are_refused(text):
    with pytest.raises(BadInput, match="is not a time"):
        parsed(text)


def test_a_range_is_told_as_it_was_read(zone):
    zone("UTC")
    begin, end = parsed("20261121024034"), parsed("2026-11-22", is_end=True)
    first, last = "2026-11-21 02:40:34.000 +00:00", "2026-11-22 23:59:59.999 +00:00"
    assert range_text(begin, end) == f"stored from {first} to {last}"
    assert range_text(begin, None) == f"stored at or after {first}"
    assert range_text(None, end) == f"stored at or before {last}"


def test_iso_8601_with_a_zone_is_that_moment(zone):
    zone("America/New_York")
    for text in ("2026-11-21T02:40:34.563Z", "2026-11-21 10:40:34.563+08:00"):
        assert parsed(text) == 1795228834563


def test_iso_8601_without_a_zone_is_local_time(zone):
    zone("Asia/Shanghai")
    assert parsed("2026-11-21T10:40:34.563") == 1795228834563
    zone("UTC")
    assert parsed("2026-11-21T02:40:34.563") == 1795228834563


def test_the_notation_of_rocketmqs_own_tool_is_read(zone):
    zone("UTC")
    assert parsed("2026-11-21#02:40:34:563") == 1795228834563


def test_a_day_alone_is_all_of_that_day(zone):
    zone("Europe/Berlin")
    begin, end = parsed("2026-10-25"), parsed("2026-10-25", is_end=True)
    assert end - begin + 1 == 25 * HOUR_MS  # clocks go back
    assert parsed("2026-10-26") == end + 1


@pytest.mark.parametrize(
    "text",
    [
        *["", "tomorrow", "2x", "--2h", "2h 30x", "2026-13-01", "2026-11-21T25:00", "1e9", "٣h"],
        *["9" * 30, "9" * 100_000, "\x1b[31m", "nan", "inf", "9999-12-31T23:59:59-23:59"],
    ],
)
def test_what_is_no_time_is_refused_in_one_line(text, zone):
    zone("UTC")
    with pytest.raises(BadInput) as refused:
        parsed(text, is_end=True)
    assert len(str(refused.value)) < 300


def test_a_span_longer_than_history_is_the_beginning():
    assert parsed("999999999999999d") == 0


def test_times_are_shown_to_the_millisecond_with_their_zone(zone):
    zone("Asia/Shanghai")
    assert time_text(1795228834063) == "2026-11-21 10:40:34.063"
    assert zone_text(1795228834063) == "+08:00"
    assert iso_text(1795228834063) == "2026-11-21T10:40:34.063+08:00"
    zone("America/St_Johns")
    assert zone_text(1795228834063) == "-03:30"


@pytest.mark.parametrize("epoch_ms", [2**63 - 1, -(2**63), -1])
def test_any_number_in_a_record_can_be_shown(epoch_ms):
    assert time_text(epoch_ms)
    assert zone_text(epoch_ms)
    assert iso_text(epoch_ms)
