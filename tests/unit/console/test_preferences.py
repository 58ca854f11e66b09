"""What a reader chooses is kept, and nothing else is.

Times in a chosen zone.
"""

from datetime import UTC

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rocketlens.console.preferences import (
    ZONES,
    Preferences,
    choose,
    is_zone,
    local_path,
    offset_text,
    time_of,
    time_text,
    zone_named,
)
from rocketlens.errors import BadInput

SHANGHAI = zone_named("Asia/Shanghai")
NEW_YORK = zone_named("America/New_York")
AT = 1_763_605_862_114
"""2025-11-20 02:31:02.114 UTC."""


def request(cookie="", accepted=""):
    headers = [(b"cookie", cookie.encode()), (b"accept-language", accepted.encode())]
    return Request({"type": "http", "headers": headers})


def test_what_was_chosen_comes_back():
    response = Response()
    chosen = {"language": "zh", "theme": "dark", "zone": "Asia/Shanghai", "other": "x"}
    choose(response, chosen, is_https=True)
    cookies = [value.decode() for name, value in response.raw_headers if name == b"set-cookie"]
    assert len(cookies) == 3
    assert all("Secure" in each and "SameSite=lax" in each for each in cookies)
    found = Preferences.of(request("; ".join(each.partition(";")[0] for each in cookies)))
    assert (found.language, found.theme, found.zone_name) == ("zh", "dark", "Asia/Shanghai")


@pytest.mark.parametrize("value", ["x", "../../etc", "a;b", "\r\nSet-Cookie: a=b"])
def test_what_is_not_known_is_ignored(value):
    response = Response()
    choose(response, dict.fromkeys(("language", "theme", "zone"), value), is_https=False)
    assert "set-cookie" not in response.headers
    found = Preferences.of(request(f"rl_language={value}; rl_theme={value}; rl_zone={value}"))
    assert found == Preferences()


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/search?q=x", "/search?q=x"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nb", "/"),
        ("", "/"),
    ],
)
def test_the_way_back_stays_here(path, local):
    assert local_path(path) == local


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
