"""What a reader chooses is kept, and nothing else is."""

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rocketlens.console.preferences import Preferences, choose, local_path


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
