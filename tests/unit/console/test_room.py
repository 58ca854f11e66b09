"""Room for requests: every route takes some, and no user takes that of others."""

import asyncio
import re

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from rocketlens import limits
from rocketlens.console.room import (
    FREE,
    MAX_HELD_BYTES,
    WORK_OF,
    ConsoleBusy,
    InPieces,
    RequestRoom,
    Work,
    hold,
    room_for,
)
from tests.support.console_client import console_client, log_in, store_at
from tests.support.console_users import users
from tests.support.made_stores import Sent, make_store
from tests.unit.console.sources.test_visible import routes_of

SERVED_FROM_MEMORY = {"/api/openapi.json", "/static"}
VALUES = {"queue_id": "0", "queue_offset": "0", "verb": "pause", "broker": "-", "source": "s"}
BOUNDS = {
    Work.SEARCH: ("MAX_CONSOLE_SEARCHES", "MAX_USER_SEARCHES"),
    Work.FILE: ("MAX_EXPORTS", "MAX_USER_EXPORTS"),
    Work.LOOK_UP: ("MAX_CONSOLE_LOOK_UPS", "MAX_USER_LOOK_UPS"),
}


@pytest.fixture
def store(tmp_path):
    sent = [Sent(keys=f"k ORDER-{n}", body=b"%d" % n * 1000) for n in range(3)]
    return store_at(make_store(tmp_path / "store", sent).path, "s")


def methods_of(app):
    """Give the methods and the path of every route, those of included routers too."""
    waiting, found = list(app.api.routes), set()
    while waiting:
        route = waiting.pop()
        inner = getattr(route, "original_router", None)
        waiting += inner.routes if inner is not None else []
        if inner is None:
            for method in getattr(route, "methods", None) or {"GET"}:
                found.add((method, route.path))
    return found


def _is_logout(route):
    return route[1] == "/logout"


@pytest.mark.parametrize("which", [0, 1], ids=["in total", "of one user"])
def test_every_route_is_refused_where_there_is_no_room(store, monkeypatch, which):
    async def run():
        async with console_client(store, users=users()) as client:
            await log_in(client, "root")
            for bounds in BOUNDS.values():
                monkeypatch.setattr(f"rocketlens.console.room.{bounds[which]}", 0)
            answered = {}
            for method, path in sorted(methods_of(client.console), key=_is_logout):
                filled = re.sub(r"\{(\w+)\}", lambda m: VALUES.get(m[1], "x"), path)
                content = {"json": {}} if method not in {"GET", "HEAD"} else {}
                found = await client.request(method, filled, **content)
                answered[method, path] = found.status_code
            return answered, routes_of(client.console)

    answered, routes = asyncio.run(run())
    assert {path for _, path in answered} == routes
    open_routes = {path for (_, path), status in answered.items() if status != 429}
    assert open_routes == (FREE & routes) | SERVED_FROM_MEMORY
    assert set(WORK_OF) <= routes


@pytest.mark.parametrize("work", list(Work))
def test_one_user_takes_so_much_room_and_leaves_the_rest_to_others(monkeypatch, work):
    monkeypatch.setattr(f"rocketlens.console.room.{BOUNDS[work][0]}", 3)
    monkeypatch.setattr(f"rocketlens.console.room.{BOUNDS[work][1]}", 2)
    room = RequestRoom()

    def is_refused(name):
        try:
            with room.take(work, name):
                return ""
        except ConsoleBusy as error:
            return str(error)

    with room.take(work, "li"):
        with room.take(work, "li"):
            assert re.search("^2 of your|^you download 2", is_refused("li"))
            with room.take(work, "wu"):
                assert is_refused("mo").startswith("3 ")
            assert not is_refused("mo")
            for other in set(Work) - {work}:
                with room.take(other, "li"):
                    pass
        assert not is_refused("li")


def test_those_who_have_not_logged_in_share_by_address_and_not_with_a_user(monkeypatch):
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_LOOK_UPS", 1)
    room = RequestRoom()
    with room.take(Work.LOOK_UP, "", "2001:db8::1"):
        with pytest.raises(ConsoleBusy), room.take(Work.LOOK_UP, "", "2001:db8::2"):
            pass
        with room.take(Work.LOOK_UP, "", "2001:db9::1"), room.take(Work.LOOK_UP, "2001:db8::1"):
            pass


def test_bytes_are_counted_by_user_and_in_total_and_given_back(monkeypatch):
    monkeypatch.setattr("rocketlens.console.room.MAX_HELD_BYTES", 150)
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_HELD_BYTES", 100)
    room = RequestRoom()
    with room.take(Work.FILE, "li") as first:
        first(60)
        first(50)
        first(70)
        with room.take(Work.FILE, "li") as second:
            with pytest.raises(ConsoleBusy, match="to you already"):
                second(31)
            second(30)
            with room.take(Work.FILE, "wu") as third:
                with pytest.raises(ConsoleBusy, match="too much is being sent already"):
                    third(51)
                third(50)
    with room.take(Work.FILE, "li") as again:
        again(100)


def test_room_of_a_request_that_keeps_too_much_is_given_back(monkeypatch):
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_HELD_BYTES", 100)
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_EXPORTS", 1)
    room = RequestRoom()
    with pytest.raises(ConsoleBusy), room.take(Work.FILE, "li") as keep:
        keep(101)
    with room.take(Work.FILE, "li") as keep:
        keep(100)


@pytest.mark.parametrize(
    "path", ["/api/message/s/Orders/-/0/1", "/api/message/s/Orders/-/0/1/body"]
)
def test_a_body_counts_as_kept_until_it_was_sent(store, monkeypatch, path):
    async def run():
        async with console_client(store) as client:
            monkeypatch.setattr("rocketlens.console.room.MAX_USER_HELD_BYTES", 999)
            refused = await client.get(path)
            monkeypatch.setattr("rocketlens.console.room.MAX_USER_HELD_BYTES", 10_000)
            return refused, [await client.get(path) for _ in range(20)]

    refused, answered = asyncio.run(run())
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
    assert {each.status_code for each in answered} == {200}


class SentAnswer:
    """What an application sent, and what was kept when each piece went."""

    def __init__(self):
        self.messages = []

    async def __call__(self, message):
        self.messages.append(message)

    @property
    def status(self):
        return self.messages[0]["status"]

    @property
    def pieces(self):
        return [each["body"] for each in self.messages[1:]]


def asked(app, on_busy=lambda _request, error: PlainTextResponse(str(error), 429)):
    sent = SentAnswer()

    async def receive():
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(InPieces(app, on_busy)(scope, receive, sent))
    return sent


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 25])
def test_a_large_answer_is_sent_in_pieces_with_the_same_bytes(monkeypatch, size):
    monkeypatch.setattr(limits, "MAX_EXPORT_PIECE_BYTES", 10)
    content = bytes(range(size))
    sent = asked(Response(content, 203))
    assert sent.status == 203
    assert b"".join(sent.pieces) == content
    assert all(len(each) <= 10 for each in sent.pieces)
    assert [each["more_body"] for each in sent.messages[1:-1]] == [True] * (len(sent.pieces) - 1)
    assert not sent.messages[-1].get("more_body")


def test_a_stream_is_sent_as_it_comes(monkeypatch):
    monkeypatch.setattr(limits, "MAX_EXPORT_PIECE_BYTES", 10)

    async def parts():
        yield b"a" * 12
        yield b"b"

    sent = asked(StreamingResponse(parts()))
    assert sent.pieces == [b"a" * 10, b"aa", b"b", b""]


def test_an_answer_that_cannot_be_kept_is_refused_before_it_begins(monkeypatch):
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_HELD_BYTES", 100)
    take = room_for(RequestRoom())

    async def app(scope, receive, send):
        request = Request({**scope, "route": type("R", (), {"path": "/topics"})})
        taken = take(request)
        await anext(taken)
        await Response(b"x" * 101)(scope, receive, send)
        await taken.aclose()

    sent = asked(app)
    assert sent.status == 429
    assert sent.pieces[0].startswith(b"too much is being sent to you already")


def test_outside_of_a_request_nothing_is_counted():
    hold(MAX_HELD_BYTES + 1)
