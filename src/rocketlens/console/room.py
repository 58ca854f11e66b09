"""Limits how many requests run at once, per user and in all, and how many bytes they hold.

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
from typing import TYPE_CHECKING, Final

from fastapi import Request
from starlette.responses import Response

from rocketlens import limits
from rocketlens.console.login.viewer import current_address, current_viewer
from rocketlens.console.server import client_of
from rocketlens.errors import RocketLensError
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_EXPORTS: Final = 16
"""Files that the console sends at once, exports and bodies; more are refused, with a status that
says so.
"""
MAX_USER_EXPORTS: Final = 4
"""Of these, and of bodies that are downloaded, for one user."""
MAX_CONSOLE_LOOK_UPS: Final = 64
"""Requests at once to the console for all but searches and files; more are refused, likewise."""
MAX_USER_LOOK_UPS: Final = 16
"""Of these for one user: a browser has six connections, a program asks one after another."""
MAX_HELD_BYTES: Final = 512 << 20
"""Of bodies, pages of files and answers that requests to the console keep until they were sent."""
MAX_USER_HELD_BYTES: Final = 128 << 20
"""Of these for one user: two bodies of the largest size."""
MAX_CONSOLE_SEARCHES: Final = 64
"""Searches of the console at once; more are refused, with a status that says so."""
MAX_USER_SEARCHES: Final = 16
"""Of these for one user: a browser has a few, in several tabs."""
_log: Final = logging.getLogger("rocketlens.console")


class ConsoleBusy(RocketLensError):
    """More is asked than a console answers at once."""

    retriable = True


class Work(Enum):
    """The kind of work of a request; as many of one kind run at once as its number says."""

    SEARCH = "search"
    FILE = "file"
    LOOK_UP = "look_up"


MESSAGE: Final = "/{source}/{topic}/{broker}/{queue_id}/{queue_offset}"
WORK_OF: Final = {
    **dict.fromkeys(
        (
            *("/", "/search", "/search/rows", "/search/more", "/api/search", "/api/search/stream"),
            *("/resend", "/api/resend/search", "/api/resend/search/plan"),
        ),
        Work.SEARCH,
    ),
    **dict.fromkeys(("/api/export", f"/m{MESSAGE}/body", f"/api/message{MESSAGE}/body"), Work.FILE),
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


class RequestRoom:
    """Counts what requests do, and the bytes that they keep, by user and in total."""

    def __init__(self) -> None:
        self._users: Final[dict[Work, Counter[str]]] = {each: Counter() for each in Work}
        self._bytes_of: Final[Counter[str]] = Counter()

    @contextmanager
    def take(self, work: Work, user: str, address: str = "") -> Iterator[Callable[[int], None]]:
        """Take room for a request; those without a user share by address.

        Yield what keeps so many bytes in memory until the request has ended; the largest number
        counts. It raises `ConsoleBusy` if all requests, or those of the user, keep too many.

        :raises ConsoleBusy: if there is no room.
        """
        name = user or f" {client_of(address)}"
        running, kept = self._users[work], self._bytes_of
        sentence, most, most_of_user = _bounds(work)
        if running[name] >= most_of_user:
            raise ConsoleBusy(Sentence(f"user_{sentence}", count=running[name]))
        if running.total() >= most:
            raise ConsoleBusy(Sentence(sentence, count=running.total()))
        own = 0

        def keep(size: int) -> None:
            nonlocal own
            more = max(size - own, 0)
            is_own_full = kept[name] + more > MAX_USER_HELD_BYTES
            if more and (is_own_full or kept.total() + more > MAX_HELD_BYTES):
                raise ConsoleBusy(Sentence("user_held_busy" if is_own_full else "held_busy"))
            kept[name] += more
            own += more

        running[name] += 1
        try:
            yield keep
        finally:
            for counter, count in ((running, 1), (kept, own)):
                counter[name] -= count
                if not counter[name]:
                    del counter[name]


def _bounds(work: Work) -> tuple[str, int, int]:
    """Return the sentence of a refusal, and how many are answered at once: of all, of one user."""
    if work is Work.SEARCH:
        return "searches_busy", MAX_CONSOLE_SEARCHES, MAX_USER_SEARCHES
    if work is Work.FILE:
        return "exports_busy", MAX_EXPORTS, MAX_USER_EXPORTS
    return "look_ups_busy", MAX_CONSOLE_LOOK_UPS, MAX_USER_LOOK_UPS


_KEEP: Final[ContextVar[Callable[[int], None] | None]] = ContextVar("keep", default=None)


def hold(size: int) -> None:
    """Keep so many bytes in memory for the request that is answered, if there is one.

    :raises ConsoleBusy: if all requests, or those of the user, keep too many.
    """
    keep = _KEEP.get()
    if keep is not None:
        keep(size)


def is_counted() -> bool:
    """Return whether the bytes that a request keeps are counted: not on `FREE` routes."""
    return _KEEP.get() is not None


def room_for(room: RequestRoom) -> Callable[[Request], AsyncIterator[None]]:
    """Return the dependency of all routes of an application, which takes room for a request."""

    async def take_room(request: Request) -> AsyncIterator[None]:
        path = request.scope["route"].path
        if path in FREE:
            yield
            return
        work = WORK_OF.get(path, Work.LOOK_UP)
        with room.take(work, current_viewer().name, current_address()) as keep:
            token = _KEEP.set(keep)
            try:
                yield
            finally:
                _KEEP.reset(token)

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
