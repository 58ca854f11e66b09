"""Room for requests: how many of each user, and of all, are answered at once, and with how much.

==========  ====================================  ==============================================
work        routes                                at once, in total and of one user
==========  ====================================  ==============================================
search      `WORK_OF`: searches, and plans of one MAX_CONSOLE_SEARCHES, MAX_USER_SEARCHES
file        `WORK_OF`: exports and bodies         MAX_EXPORTS, MAX_USER_EXPORTS
look_up     every other one                       MAX_CONSOLE_LOOK_UPS, MAX_USER_LOOK_UPS
==========  ====================================  ==============================================

All of them together keep MAX_HELD_BYTES in memory, those of one user MAX_USER_HELD_BYTES: bodies
that were read, pages of exports, answers until their readers have taken them. What takes more is
refused with status 429. `FREE` has the routes that take no room.

An application takes room by a dependency of all of its routes (`room_for`), so a new route has a
bound, too. The room is left when the answer was sent, the last piece of it apart.
"""

import logging
from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from fastapi import Request
from starlette.responses import Response

from rocketlens import limits
from rocketlens.console.connections import client_of
from rocketlens.console.login.viewer import current_address, current_viewer
from rocketlens.errors import RocketLensError
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log: Final = logging.getLogger("rocketlens.console")

T = TypeVar("T")


class ConsoleBusy(RocketLensError):
    """More is asked than a console answers at once."""

    retriable = True


class Work(Enum):
    """The kind of work of a request; as many of one kind run at once as its number says."""

    SEARCH = "search"
    FILE = "file"
    LOOK_UP = "look_up"


_MESSAGE: Final = "/{source}/{topic}/{broker}/{queue_id}/{queue_offset}"
WORK_OF: Final = {
    **dict.fromkeys(
        (
            *("/", "/search", "/search/rows", "/search/more", "/api/search", "/api/search/stream"),
            *("/resend", "/api/resend/search", "/api/resend/search/plan"),
        ),
        Work.SEARCH,
    ),
    **dict.fromkeys(
        ("/api/export", f"/m{_MESSAGE}/body", f"/api/message{_MESSAGE}/body"), Work.FILE
    ),
}
"""The work of routes; that of others is to look up something."""
FREE: Final = frozenset(
    {
        # Say how the console is, when it is busy, too.
        *("/livez", "/readyz", "/metrics"),
        # Read nothing of a source; how fast they can be asked is bounded by `login.logins`.
        *("/login", "/login/oidc", "/login/oidc/callback", "/logout", "/preferences"),
    }
)
"""Routes that take no room, beside those that FastAPI and Starlette serve from memory and files."""


class TakenRoom:
    """The room that one request has taken."""

    def __init__(self, room: "RequestRoom", user: str) -> None:
        self._room: Final = room
        self.user: Final = user
        self.held_bytes = 0

    def hold(self, size: int) -> None:
        """Keep so many bytes in memory until the request has ended; the largest number counts.

        :raises ConsoleBusy: if all requests, or those of the user, keep too many.
        """
        self._room.hold(self, size)


class RequestRoom:
    """Counts what requests do, and the bytes that they keep, by user and in total."""

    def __init__(self) -> None:
        self._of_user: Final[Counter[tuple[Work, str]]] = Counter()
        self._in_total: Final[Counter[Work]] = Counter()
        self._bytes_of: Final[Counter[str]] = Counter()

    @contextmanager
    def take(self, work: Work, user: str, address: str = "", size: int = 0) -> Iterator[TakenRoom]:
        """Take room for a request that keeps ``size`` bytes; those without a user share by address.

        :raises ConsoleBusy: if there is none.
        """
        name = user or f" {client_of(address)}"
        most, most_of_user = _most(work)
        if self._of_user[work, name] >= most_of_user:
            count = self._of_user[work, name]
            raise ConsoleBusy(Sentence(f"user_{_SENTENCES[work]}", count=count))
        if self._in_total[work] >= most:
            raise ConsoleBusy(Sentence(_SENTENCES[work], count=self._in_total[work]))
        share = TakenRoom(self, name)
        share.hold(size)
        self._of_user[work, name] += 1
        self._in_total[work] += 1
        try:
            yield share
        finally:
            self._in_total[work] -= 1
            _subtract(self._of_user, (work, name), 1)
            _subtract(self._bytes_of, name, share.held_bytes)

    def hold(self, share: TakenRoom, size: int) -> None:
        """Keep more bytes for a request; errors as `TakenRoom.hold`."""
        more = size - share.held_bytes
        if more <= 0:
            return
        is_own_full = self._bytes_of[share.user] + more > limits.MAX_USER_HELD_BYTES
        if is_own_full or self._bytes_of.total() + more > limits.MAX_HELD_BYTES:
            raise ConsoleBusy(Sentence("user_held_busy" if is_own_full else "held_busy"))
        self._bytes_of[share.user] += more
        share.held_bytes = size


def _most(work: Work) -> tuple[int, int]:
    """Return how many requests are answered at once, of all and of one user."""
    if work is Work.SEARCH:
        return limits.MAX_CONSOLE_SEARCHES, limits.MAX_USER_SEARCHES
    if work is Work.FILE:
        return limits.MAX_EXPORTS, limits.MAX_USER_EXPORTS
    return limits.MAX_CONSOLE_LOOK_UPS, limits.MAX_USER_LOOK_UPS


_SENTENCES: Final = {
    Work.SEARCH: "searches_busy",
    Work.FILE: "exports_busy",
    Work.LOOK_UP: "look_ups_busy",
}


def _subtract(counts: Counter[T], key: T, count: int) -> None:
    counts[key] -= count
    if not counts[key]:
        del counts[key]


_SHARE: Final[ContextVar[TakenRoom | None]] = ContextVar("share", default=None)


def hold(size: int) -> None:
    """Keep so many bytes in memory for the request that is answered; errors as `TakenRoom.hold`.

    Outside of one nothing is counted.
    """
    share = _SHARE.get()
    if share is not None:
        share.hold(size)


def room_for(room: RequestRoom) -> Callable[[Request], AsyncIterator[None]]:
    """Return the dependency of all routes of an application, which takes room for a request."""

    async def take_room(request: Request) -> AsyncIterator[None]:
        path = request.scope["route"].path
        if path in FREE:
            yield
            return
        work = WORK_OF.get(path, Work.LOOK_UP)
        with room.take(work, current_viewer().name, current_address()) as share:
            token = _SHARE.set(share)
            try:
                yield
            finally:
                _SHARE.reset(token)

    return take_room


class InPieces:
    """Sends large answers of an application in pieces: each waits until there is room for it in
    the connection, and what is left counts as kept.

    The server cancels what its stop does not wait for: that is answered as busy, or, when some of
    the answer was sent, breaks off.
    """

    def __init__(self, app: "ASGIApp", on_busy: Callable[[Request, ConsoleBusy], Response]) -> None:
        """Wrap an application; ``on_busy`` makes the answer if one cannot be kept or made."""
        self._app: Final = app
        self._on_busy: Final = on_busy

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Status and headers wait for the first piece: it can be too large to be sent.
        begun: list[Message] = []
        is_refused = is_sent = False

        async def send_pieces(message: "Message") -> None:
            nonlocal is_refused, is_sent
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            content = message.get("body", b"")
            if begun and not message.get("more_body", False):
                try:
                    hold(len(content))
                except ConsoleBusy as error:
                    begun.clear()
                    is_refused = True
                    await self._on_busy(Request(scope), error)(scope, receive, send)
            if is_refused:
                return
            is_sent = True
            while begun:
                await send(begun.pop())
            while len(content) > limits.MAX_EXPORT_PIECE_BYTES:
                piece, content = (
                    content[: limits.MAX_EXPORT_PIECE_BYTES],
                    memoryview(content)[limits.MAX_EXPORT_PIECE_BYTES :],
                )
                await send({**message, "body": bytes(piece), "more_body": True})
            await send({**message, "body": bytes(content)})

        try:
            await self._app(scope, receive, send_pieces)
        except CancelledError:
            _log.info("the stop ended a request: %s", printable(scope["path"]))
            if not is_sent and not is_refused:
                busy = ConsoleBusy(Sentence("console_stops"))
                await self._on_busy(Request(scope), busy)(scope, receive, send)
