"""Logging in with a name and a password, and sessions of users who logged in; in memory only.

A session is a random token, which the browser keeps; here is its hash, so a dump of the memory
opens none. It ends by a logout, when it was not used for MAX_SESSION_IDLE_S, and MAX_SESSION_S
after its login. A user has at most MAX_USER_SESSIONS, and a console MAX_SESSIONS.

A pair of user and address waits after its third failure, twice as long after each: another address
is never kept from logging in as the same user, nor another user from the same address. Addresses
of one IPv6 network of 64 bits count as one.

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

from msgspec import Struct

from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Viewer
from rocketlens.console.server import client_of
from rocketlens.errors import RocketLensError

MAX_WAITING_LOGINS: Final = 32
"""Passwords that wait for their hash at once; more are refused, with a status that says so."""
MAX_LOGIN_FAILURES: Final = 10_000
"""Pairs of user and address whose failed logins are counted; the oldest are forgotten."""
MAX_LOGIN_WAIT_S: Final = 60.0
"""Seconds that a pair of user and address waits after many failed logins: no lock-out."""
MAX_USER_SESSIONS: Final = 16
"""Sessions of one user of the console; another login ends the one that was not used for longest."""
MAX_SESSIONS: Final = 10_000
"""Sessions of one console: a provider can have any number of users. The one that was not used for
longest ends.
"""
MAX_SESSION_IDLE_S: Final = 2 * 3600
"""Seconds after which a session of the console ends that is not used."""
MAX_SESSION_S: Final = 12 * 3600
"""Seconds after which a session of the console ends: a working day."""
_TOKEN_BYTES: Final = 32
_FREE_FAILURES: Final = 3
_FORGOTTEN_S: Final = 3600.0
"""Seconds after which failures count no more."""


class _Session(Struct):
    viewer: Viewer
    begun: float
    used: float
    id_token: str | None = None


class Sessions:
    """The sessions of a console."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock: Final = clock
        self._by_hash: Final[dict[bytes, _Session]] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def begin(self, viewer: Viewer, id_token: str | None = None) -> str:
        """Return the token of a new session.

        :param id_token: What a provider is told at its end; None for a local user's.
        """
        now = self._clock()
        expired = [key for key, each in self._by_hash.items() if self._has_ended(each, now)]
        for key in expired:
            del self._by_hash[key]
        own = [key for key, each in self._by_hash.items() if each.viewer.name == viewer.name]
        if len(own) >= MAX_USER_SESSIONS:
            del self._by_hash[min(own, key=lambda key: self._by_hash[key].used)]
        elif len(self._by_hash) >= MAX_SESSIONS:
            del self._by_hash[min(self._by_hash, key=lambda key: self._by_hash[key].used)]
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._by_hash[_hash(token)] = _Session(viewer, now, now, id_token)
        return token

    def viewer_of(self, token: str) -> Viewer | None:
        """Return whose session a token opens; None if it opens none, or none any more."""
        key, now = _hash(token), self._clock()
        session = self._by_hash.get(key)
        if session is None:
            return None
        if self._has_ended(session, now):
            del self._by_hash[key]
            return None
        session.used = now
        return session.viewer

    def end(self, token: str) -> str | None:
        """End a session, if there is one; return the id token that it began with, if it did."""
        session = self._by_hash.pop(_hash(token), None)
        return None if session is None else session.id_token

    @staticmethod
    def _has_ended(session: _Session, now: float) -> bool:
        idle_s, age_s = now - session.used, now - session.begun
        return idle_s >= MAX_SESSION_IDLE_S or age_s >= MAX_SESSION_S


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class _Failures(Struct):
    count: int
    last: float


class Attempts:
    """Failed logins by user and address."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock: Final = clock
        self._failures: Final[OrderedDict[bytes, _Failures]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def wait_s(self, user: str, address: str) -> float:
        """Return the seconds until this pair may try again; 0 for now."""
        failures = self._failures.get(_pair(user, address))
        if failures is None or failures.count < _FREE_FAILURES:
            return 0.0
        passed = self._clock() - failures.last
        if passed >= _FORGOTTEN_S:
            return 0.0
        wait = min(MAX_LOGIN_WAIT_S, 2.0 ** min(failures.count - _FREE_FAILURES, 30))
        return max(0.0, wait - passed)

    def failed(self, user: str, address: str) -> None:
        """Count a failure."""
        pair, now = _pair(user, address), self._clock()
        failures = self._failures.pop(pair, None)
        if failures is None or now - failures.last >= _FORGOTTEN_S:
            failures = _Failures(0, now)
        self._failures[pair] = _Failures(failures.count + 1, now)
        while len(self._failures) > MAX_LOGIN_FAILURES:
            self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        """Forget the failures of a pair."""
        self._failures.pop(_pair(user, address), None)


def _pair(user: str, address: str) -> bytes:
    # Of a fixed size, whatever is tried as a name.
    return _hash(f"{len(user)}:{user}{client_of(address)}")


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
        if self._checking >= MAX_WAITING_LOGINS:
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
