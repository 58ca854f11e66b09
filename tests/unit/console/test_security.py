"""Every answer has the headers that protect it, and requests of other sites are refused."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from rocketlens.console.security import MAX_CONSOLE_BODY_BYTES, Guard
from tests.support.console_client import console_client, store_at
from tests.support.made_stores import Sent, make_store


def ask(method="GET", headers=None, names=()):
    reached = []

    async def app(scope, receive, send):
        reached.append(scope["path"])
        await PlainTextResponse("done")(scope, receive, send)

    async def run():
        transport = httpx.ASGITransport(Guard(app, names))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, "/x", headers=headers)

    return asyncio.run(run()), reached


def test_every_answer_forbids_what_is_not_ours():
    for headers in ({}, {"host": "evil.example"}):
        answer, _ = ask(headers=headers)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8088", "127.0.0.1:9", "[::1]:8088", "10.1.2.3", "Console.Example:80"],
)
def test_addresses_and_known_names_are_answered(host):
    answer, reached = ask(headers={"host": host}, names=["console.example"])
    assert (answer.status_code, reached) == (200, ["/x"])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
        "a@localhost.x",
        "[::1",
        "x:y",
        "evil.example@127.0.0.1",
        "user:password@localhost",
        "127.0.0.1/evil.example",
        "evil.example?@127.0.0.1",
        "evil.example#@localhost",
        "127.0.0.1:80:90",
        " localhost",
    ],
)
def test_names_that_were_made_to_point_here_are_refused(host):
    answer, reached = ask(headers={"host": host})
    assert (answer.status_code, reached) == (421, [])
    assert answer.json()["error"]["code"] == "wrong_host"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:81"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_changes_that_pages_of_others_ask_for_are_refused(method, headers):
    answer, reached = ask(method, headers)
    assert (answer.status_code, reached) == (403, [])


SESSION = {"cookie": "rl_language=en; rl_session=abc"}


@pytest.mark.parametrize("cookies", [{}, SESSION])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
        {"origin": "http://localhost"},
        {"sec-fetch-site": "same-origin"},
    ],
)
def test_changes_that_our_pages_ask_for_are_passed_on(headers, cookies):
    answer, reached = ask("POST", headers | cookies)
    assert (answer.status_code, reached) == (200, ["/x"])


@pytest.mark.parametrize("cookies", [{}, {"cookie": "rl_language=en"}])
def test_changes_that_programs_ask_for_need_no_header_of_browsers(cookies):
    answer, reached = ask("POST", cookies)
    assert (answer.status_code, reached) == (200, ["/x"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_change_with_the_cookie_of_a_session_names_the_site_that_asks_for_it(method):
    answer, reached = ask(method, SESSION)
    assert (answer.status_code, reached) == (403, [])
    assert "Origin or Sec-Fetch-Site" in answer.json()["error"]["message"]
    assert ask("GET", SESSION)[1] == ["/x"]


@pytest.mark.parametrize("path", ["/api/resend", "/jobs/x/stop"])
def test_a_body_over_its_bound_is_refused_however_it_comes(tmp_path, path):
    store = store_at(make_store(tmp_path / "s", [Sent(keys="k")]).path, "s")
    kind = "application/json" if path.startswith("/api") else "application/x-www-form-urlencoded"
    piece = b"x" * (1 << 20)

    async def pieces():
        for _ in range(MAX_CONSOLE_BODY_BYTES // len(piece) + 1):
            yield piece

    async def ask():
        async with console_client(store) as client:
            headers = {"content-type": kind}
            whole = await client.post(
                path, content=piece * 17, headers={**headers, "content-length": str(17 << 20)}
            )
            chunked = await client.post(path, content=pieces(), headers=headers)
            return whole.status_code, chunked.status_code

    assert asyncio.run(ask()) == (413, 413)
