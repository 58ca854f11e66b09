"""Times as words. More of them: tests/unit/terminal/test_times.py."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.model.text.time_words import parse_time

NOW_MS = 1_795_228_834_563
"""2026-11-21T02:40:34.563Z."""
HOUR_MS = 3_600_000


def parsed(text, *, is_end=False):
    return parse_time(text, "begin", is_end=is_end, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("1d12h", 36 * HOUR_MS),
        ("1d 12h", 36 * HOUR_MS),
        ("2h ago", 2 * HOUR_MS),
        ("-2h", 2 * HOUR_MS),
        ("-1d12h", 36 * HOUR_MS),
        ("1h30m5s", HOUR_MS + 1_805_000),
    ],
)
def test_spans_are_added(text, ago_ms):
    assert parsed(text) == NOW_MS - ago_ms


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("today", "2026-11-21"),
        ("yesterday", "2026-11-20"),
        ("02:40", "2026-11-21T02:40"),
        ("02:40:34.5", "2026-11-21T02:40:34.500"),
    ],
)
@pytest.mark.parametrize("is_end", [False, True])
def test_days_and_times_of_today_are_those_of_the_local_zone(text, same, is_end):
    assert parsed(text, is_end=is_end) == parsed(same, is_end=is_end)


@pytest.mark.parametrize(
    "text",
    [
        "ago",
        "2 ago",
        "2hago3",
        "1d12",
        "25:00",
        "1x2h",
        "tomorrow",
        "2:4",
        "12h" * 9,
        "-",
        "--2h",
        "-2",
        "2h-1h",
    ],
)
def test_other_words_are_refused_by_name(text):
    with pytest.raises(BadInput, match=r"begin .* is not a time"):
        parsed(text)
