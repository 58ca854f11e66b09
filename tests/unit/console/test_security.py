"""Every answer has the headers that protect it, and requests of other sites are refused."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from rocketlens.console.security import Guard


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
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_changes_that_pages_of_others_ask_for_are_refused(method, headers):
    answer, reached = ask(method, headers)
    assert (answer.status_code, reached) == (403, [])


def test_changes_that_our_pages_ask_for_are_passed_on():
    for headers in ({}, {"origin": "http://localhost", "sec-fetch-site": "same-origin"}):
        answer, reached = ask("POST", headers)
        assert (answer.status_code, reached) == (200, ["/x"])
