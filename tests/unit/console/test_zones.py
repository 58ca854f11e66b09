"""Times in a chosen zone."""

from datetime import UTC

import pytest

from rocketlens.console.zones import ZONES, is_zone, offset_text, time_of, time_text, zone_named
from rocketlens.errors import BadInput

SHANGHAI = zone_named("Asia/Shanghai")
NEW_YORK = zone_named("America/New_York")
AT = 1_763_605_862_114
"""2025-11-20 02:31:02.114 UTC."""


def test_a_time_is_shown_in_its_zone():
    assert time_text(AT, UTC) == "2025-11-20 02:31:02.114"
    assert time_text(AT, SHANGHAI) == "2025-11-20 10:31:02.114"
    assert (offset_text(AT, SHANGHAI), offset_text(AT, NEW_YORK)) == ("+08:00", "-05:00")


@pytest.mark.parametrize("epoch_ms", [2**63 - 1, -(2**63)])
def test_a_time_beyond_the_calendar_is_a_number(epoch_ms):
    assert time_text(epoch_ms, SHANGHAI) == f"{epoch_ms} ms"
    assert offset_text(epoch_ms, SHANGHAI) == ""


@pytest.mark.parametrize(
    ("text", "is_end", "shown"),
    [
        ("2025-11-20 10:31:02.114", False, "2025-11-20 10:31:02.114"),
        ("2025-11-20T10:31", False, "2025-11-20 10:31:00.000"),
        ("2025-11-20T10:31", True, "2025-11-20 10:31:59.999"),
        ("2025-11-20T10:31:02", True, "2025-11-20 10:31:02.999"),
        ("2025-11-20", False, "2025-11-20 00:00:00.000"),
        ("2025-11-20", True, "2025-11-20 23:59:59.999"),
        ("2025-11-20T02:31:02Z", False, "2025-11-20 10:31:02.000"),
        (str(AT), False, "2025-11-20 10:31:02.114"),
    ],
)
def test_a_time_without_a_zone_is_of_the_chosen_one(text, is_end, shown):
    assert time_text(time_of(text, "since", SHANGHAI, is_end=is_end), SHANGHAI) == shown


@pytest.mark.parametrize("text", ["2025-02-30", "2025-11-20 25:00", "soon", "", "9" * 70])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(BadInput):
        time_of(text, "since", UTC, is_end=False)


def test_unknown_zones_are_utc():
    assert all(map(is_zone, ZONES))
    for name in ("", "Mars/Base", "../etc/passwd", "x" * 500, "Asia/Shanghai\0"):
        assert not is_zone(name)
        assert zone_named(name) is UTC
