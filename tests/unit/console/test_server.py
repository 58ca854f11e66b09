"""Over real sockets: unfinished requests of one address, and which proxies are believed.

Health, metrics and static files; a mistake of the program tells nobody what it was about.
"""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from rocketlens.console.run import proxy_network
from rocketlens.console.server import listening, serve
from rocketlens.model.message import Host
from rocketlens.net.event_loop import StopRequest
from tests.support.console_client import answer, answers, console_client, store_at
from tests.support.made_stores import Sent, make_store


async def application(scope, receive, send):
    request = Request(scope, receive)
    await request.body()
    text = f"{request.url.scheme} {request.client.host}"
    await PlainTextResponse(text)(scope, receive, send)


@asynccontextmanager
async def serving(*proxies, app=application, ending=None):
    ending = ending or StopRequest()
    with listening(Host("127.0.0.1", 0)) as listener:
        trusted = [proxy_network(each) for each in proxies]
        server = asyncio.create_task(serve(app, listener, ending, trusted))
        try:
            yield listener.getsockname()[1]
        finally:
            ending.ended.set()
            ending.hurried.set()
            await server


async def send(port, data, address="127.0.0.1"):
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, local_addr=(address, 0), limit=1 << 20
    )
    writer.write(data)
    return reader, writer


async def get(port, *headers, address="127.0.0.1"):
    lines = ["GET / HTTP/1.1", "host: localhost", "connection: close", *headers, "", ""]
    reader, writer = await send(port, "\r\n".join(lines).encode(), address)
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_unfinished_requests_of_one_address_leave_others_served():
    async with serving() as port:
        unfinished = b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na"
        slow = [await send(port, unfinished, "127.0.0.2") for _ in range(262)]
        assert "200 OK" in await get(port)
        for _, writer in slow:
            writer.close()


@pytest.mark.parametrize(
    ("proxies", "address", "seen"),
    [
        ((), "127.0.0.1", "http 127.0.0.1"),
        (("127.0.0.2",), "127.0.0.1", "http 127.0.0.1"),
        (("127.0.0.2",), "127.0.0.2", "https 10.9.9.9"),
        (("127.0.0.0/8", "10.0.0.0/8"), "127.0.0.2", "https 198.51.100.1"),
    ],
)
async def test_forwarded_addresses_are_believed_from_trusted_proxies_only(proxies, address, seen):
    headers = ("x-forwarded-for: 198.51.100.1, 10.9.9.9", "x-forwarded-proto: https")
    async with serving(*proxies) as port:
        assert (await get(port, *headers, address=address)).endswith(f"\r\n\r\n{seen}")


def test_a_stop_answers_the_request_that_it_does_not_wait_for(tmp_path, monkeypatch, caplog):
    """And the log has a line of it, not the traceback of what was cancelled."""
    has_begun, ending = asyncio.Event(), StopRequest()

    async def search_for_ever(*_, **__):
        has_begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("rocketlens.console.server._STOP_S", 0)
    monkeypatch.setattr("rocketlens.console.search.search.find_in_all", search_for_ever)
    store = store_at(make_store(tmp_path / "store", [Sent(keys="k")]).path, "s")

    async def run():
        async with (
            console_client(store) as client,
            serving(app=client.console, ending=ending) as port,
        ):
            reader, writer = await send(
                port, b"GET /search?q=k HTTP/1.1\r\nhost: localhost\r\n\r\n"
            )
            await has_begun.wait()
            ending.ask()
            answered = await reader.read()
            writer.close()
        return answered.decode()

    with caplog.at_level(logging.INFO, "rocketlens.console"):
        answered = asyncio.run(run())
    assert answered.startswith("HTTP/1.1 429 ")
    assert "The console stops: try again when it has started" in answered
    assert "cancelled a request at the stop: /search" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.fixture
def served_store(tmp_path):
    return store_at(make_store(tmp_path / "store", [Sent(keys="k")]).path, "s")


def test_it_is_alive_and_ready(served_store):
    assert [each.text for each in answers(["/livez", "/readyz"], served_store)] == ["ok\n", "ok\n"]


def test_metrics_count_requests_by_route_and_searches_by_result(served_store):
    paths = ["/search?q=k", "/api/search?q=k", "/m/s/Orders/-/0/0", "/nonsense", "/metrics"]
    *_, metrics = answers(paths, served_store)
    assert metrics.headers["content-type"].startswith("text/plain")
    text = metrics.text
    assert 'rocketlens_console_searches_total{result="complete"} 2.0' in text
    assert 'rocketlens_console_requests_total{route="/api/search",status="200"} 1.0' in text
    assert 'rocketlens_console_requests_total{route="other",status="404"} 1.0' in text
    assert "Orders" not in text
    assert "rocketlens_console_sources 1.0" in text


def test_static_files_are_ours_only(served_store):
    found = answers(
        ["/static/console.js", "/static/../app.py", "/static/%2e%2e/app.py", "/static/nope"],
        served_store,
    )
    assert [each.status_code for each in found] == [200, 404, 404, 404]
    assert found[0].headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", ["/api/search?q=k", "/search?q=k"])
def test_a_mistake_of_the_program_is_an_answer_without_its_details(served_store, path, monkeypatch):
    def fail(*_, **__):
        raise KeyError("secret")

    monkeypatch.setattr("rocketlens.console.search.search.row_of", fail)
    found = answer(path, served_store)
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "KeyError" in found.text
    assert found.headers["x-content-type-options"] == "nosniff"


def test_methods_that_change_something_are_refused(served_store):
    found = answer("/search?q=k", served_store)
    assert found.status_code == 200
    assert "POST" not in found.headers.get("allow", "")
