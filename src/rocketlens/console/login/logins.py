"""Logging in: with a name and a password, by the page for a session, or with each request.

Programs send their password with each request (HTTP's Basic authentication). Its hash takes some
tenths of a second, so that it was right is remembered for a while, by a digest with a key that only
this process has.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final

from rocketlens import limits
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.sessions import Attempts, Sessions
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Viewer
from rocketlens.errors import RocketLensError

_BELIEVED_S: Final = 300.0


class LoginRefused(RocketLensError):
    """The name or the password is wrong."""


class LoginTooSoon(RocketLensError):
    """After failures this pair of user and address has to wait, or too many log in at once."""

    retriable = True

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s: Final = wait_s


class Logins:
    """Checks users, and keeps their sessions."""

    def __init__(
        self, users: LocalUsers, audit: AuditLog, clock: Callable[[], float] = monotonic
    ) -> None:
        self.sessions: Final = Sessions(clock)
        self._users: Final = users
        self._audit: Final = audit
        self._clock: Final = clock
        self._attempts: Final = Attempts(clock)
        self._checking = 0
        self._key: Final = secrets.token_bytes(32)
        self._believed: Final[OrderedDict[bytes, tuple[float, Viewer]]] = OrderedDict()

    @property
    def has_users(self) -> bool:
        """Whether anyone can log in with a password."""
        return len(self._users) > 0

    async def log_in(self, name: str, password: str, address: str) -> str:
        """Return the token of a new session.

        :raises LoginRefused: if the name or the password is wrong.
        :raises LoginTooSoon: if it has to be tried later.
        :raises AuditFailed: if it cannot be written down.
        """
        viewer = await self._checked(name, password, address)
        self._audit.record("login", user=name, address=address)
        return self.sessions.begin(viewer)

    def log_out(self, token: str, address: str) -> str | None:
        """End a session; return the id token that it began with, if a provider's user had it."""
        viewer = self.sessions.viewer_of(token)
        id_token = self.sessions.end(token)
        if viewer is not None:
            self._audit.record("logout", user=viewer.name, address=address)
        return id_token

    async def viewer_of(self, authorization: str, address: str) -> Viewer:
        """Return who sends a request with an Authorization header; errors as `log_in`."""
        scheme, _, encoded = authorization.partition(" ")
        try:
            decoded = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            decoded = ""
        name, colon, password = decoded.partition(":")
        if scheme.lower() != "basic" or not colon:
            raise LoginRefused("send a name and a password by HTTP's Basic authentication")
        digest = hmac.digest(self._key, decoded.encode(), hashlib.sha256)
        until, viewer = self._believed.get(digest, (0.0, None))
        if viewer is not None and self._clock() < until:
            return viewer
        viewer = await self._checked(name, password, address)
        self._audit.record("login", user=name, address=address)
        self._believed.pop(digest, None)
        self._believed[digest] = self._clock() + _BELIEVED_S, viewer
        while len(self._believed) > len(self._users):
            self._believed.popitem(last=False)
        return viewer

    async def _checked(self, name: str, password: str, address: str) -> Viewer:
        wait_s = self._attempts.wait_s(name, address)
        if wait_s > 0:
            self._audit.record("refused", user=name, address=address, why="too soon")
            raise LoginTooSoon(f"too many failures: try again in {wait_s:.0f} s", wait_s)
        if self._checking >= limits.MAX_WAITING_LOGINS:
            self._audit.record("refused", user=name, address=address, why="too many at once")
            raise LoginTooSoon("too many log in at once: try again in a moment", 1.0)
        # Counted before it is checked: many at once are slowed, too.
        self._attempts.failed(name, address)
        self._checking += 1
        try:
            viewer = await self._users.viewer_of(name, password)
        finally:
            self._checking -= 1
        if viewer is None:
            self._audit.record("refused", user=name, address=address, why="wrong password")
            raise LoginRefused("the name or the password is wrong")
        self._attempts.succeeded(name, address)
        return viewer
