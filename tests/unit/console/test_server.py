"""Over real sockets: unfinished requests of one address, and which proxies are believed."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from rocketlens.console.server import listening, parse_proxy, serve
from rocketlens.model.message import Host
from rocketlens.net.event_loop import StopRequest
from tests.support.console_client import console_client, store_at
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
        trusted = [parse_proxy(each) for each in proxies]
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
    assert "the stop ended a request: /search" in caplog.text
    assert "Traceback" not in caplog.text
