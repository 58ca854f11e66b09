"""Limits how many requests run at once and how many bytes they hold, per user and in total.

Each kind of `Work` has limits for all users and for one (`_bounds`). Requests also share
MAX_HELD_BYTES of memory, MAX_USER_HELD_BYTES per user, for request bodies, pages of exports, and
answers until the client has received them. A request over a limit gets status 429. Routes in `FREE`
are not limited.

`room_for` is a dependency of the whole application, so new routes are limited, too. A request holds
its share until all but the last piece of its answer is sent.
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
"""Exports and body downloads of the console at once."""
MAX_USER_EXPORTS: Final = 4
"""Exports and body downloads of one user at once."""
MAX_CONSOLE_LOOK_UPS: Final = 64
"""Requests to the console at once, apart from searches and files."""
MAX_USER_LOOK_UPS: Final = 16
"""The same for one user: a browser opens six connections, a program usually one."""
MAX_HELD_BYTES: Final = 512 << 20
"""Bytes of bodies, export pages and answers that requests hold until these are sent."""
MAX_USER_HELD_BYTES: Final = 128 << 20
"""The same for one user: two bodies of the largest size."""
MAX_CONSOLE_SEARCHES: Final = 64
"""Searches of the console at once."""
MAX_USER_SEARCHES: Final = 16
"""Searches of one user at once: a browser has a few, in several tabs."""
_log: Final = logging.getLogger("rocketlens.console")


class ConsoleBusy(RocketLensError):
    """Too many requests run, or they hold too many bytes."""

    retriable = True


class Work(Enum):
    """The kind of work of a request. Each kind has its own limits."""

    SEARCH = "search"
    FILE = "file"
    LOOK_UP = "look_up"


MESSAGE: Final = "/{source}/{topic}/{broker}/{queue_id}/{queue_offset}"
_SEARCHES: Final = (
    *("/", "/search", "/search/rows", "/search/more", "/api/search", "/api/search/stream"),
    *("/resend", "/api/resend/search", "/api/resend/search/plan"),
)
_FILES: Final = ("/api/export", f"/m{MESSAGE}/body", f"/api/message{MESSAGE}/body")
WORK_OF: Final = {**dict.fromkeys(_SEARCHES, Work.SEARCH), **dict.fromkeys(_FILES, Work.FILE)}
"""The kind of work by route. All other routes are look-ups."""
FREE: Final = frozenset(
    {
        # Needed even if the console is busy.
        *("/livez", "/readyz", "/metrics"),
        # Read no source; `login.logins` limits their rate.
        *("/login", "/login/oidc", "/login/oidc/callback", "/logout", "/preferences"),
    }
)
"""Routes without limits, besides those that FastAPI and Starlette serve from memory and files."""


class RequestRoom:
    """Counts running requests and the bytes that they hold, per user and in total."""

    def __init__(self) -> None:
        self._users: Final[dict[Work, Counter[str]]] = {each: Counter() for each in Work}
        self._bytes_of: Final[Counter[str]] = Counter()

    @contextmanager
    def take(self, work: Work, user: str, address: str = "") -> Iterator[Callable[[int], None]]:
        """Count a request while it runs. Requests without a user are counted per address.

        Yield a function that reports the bytes that the request holds; the largest value counts
        until the request ends. The function raises `ConsoleBusy` if that exceeds a limit.

        :raises ConsoleBusy: if too many requests of this kind run.
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
    """Return the name of the refusal's sentence, and the limits for all users and for one."""
    if work is Work.SEARCH:
        return "searches_busy", MAX_CONSOLE_SEARCHES, MAX_USER_SEARCHES
    if work is Work.FILE:
        return "exports_busy", MAX_EXPORTS, MAX_USER_EXPORTS
    return "look_ups_busy", MAX_CONSOLE_LOOK_UPS, MAX_USER_LOOK_UPS


_KEEP: Final[ContextVar[Callable[[int], None] | None]] = ContextVar("keep", default=None)


def hold(size: int) -> None:
    """Report the bytes that the current request holds. No effect outside of a counted request.

    :raises ConsoleBusy: if all requests, or those of the user, hold too many.
    """
    keep = _KEEP.get()
    if keep is not None:
        keep(size)


def is_counted() -> bool:
    """Return False on `FREE` routes, whose bytes are not counted."""
    return _KEEP.get() is not None


def room_for(room: RequestRoom) -> Callable[[Request], AsyncIterator[None]]:
    """Return the dependency that counts each request of an application."""

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
    """ASGI middleware that sends large answers in pieces: each piece waits until the connection
    takes it. What is not sent yet counts as held.

    When the server stops, it cancels requests that take too long. They are answered as busy, or cut
    off if a part of the answer was sent.
    """

    def __init__(self, app: "ASGIApp", on_busy: Callable[[Request, ConsoleBusy], Response]) -> None:
        """:param on_busy: Makes the response if an answer cannot be held or finished."""
        self._app: Final = app
        self._on_busy: Final = on_busy

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        # Status and headers wait for the first piece, which can be too large.
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
            rest, most = memoryview(content), limits.MAX_EXPORT_PIECE_BYTES
            while len(rest) > most:
                await send({**message, "body": bytes(rest[:most]), "more_body": True})
                rest = rest[most:]
            await send({**message, "body": bytes(rest)})

        try:
            await self._app(scope, receive, send_pieces)
        except CancelledError:
            _log.info("cancelled a request at the stop: %s", printable(scope["path"]))
            if not is_sent and not is_refused:
                busy = ConsoleBusy(Sentence("console_stops"))
                await self._on_busy(Request(scope), busy)(scope, receive, send)
