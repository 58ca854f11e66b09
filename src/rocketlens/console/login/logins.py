"""Password logins, and the sessions of all users, in memory only.

A session is a random token in a cookie. Only its hash is kept, so a memory dump opens no session. A
session ends by logout, after MAX_SESSION_IDLE_S without use, and MAX_SESSION_S after the login. A
user has at most MAX_USER_SESSIONS, and a console MAX_SESSIONS.

After three failures, a pair of user and address has to wait, twice as long after each further one.
This never locks a user out from other addresses, nor an address for other users. IPv6 addresses
count by /64 network.

Programs send their password with each request (HTTP Basic authentication). Its hash takes tenths of
a second, so a correct password is remembered for a while, as a digest with a key of this process.
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
"""Passwords that are checked at once."""
MAX_LOGIN_FAILURES: Final = 10_000
"""Pairs of user and address with failed logins; the oldest are forgotten."""
MAX_LOGIN_WAIT_S: Final = 60.0
"""The longest wait in seconds after failed logins: no lock-out."""
MAX_USER_SESSIONS: Final = 16
"""Sessions of one user; a further login ends the least recently used one."""
MAX_SESSIONS: Final = 10_000
"""Sessions of one console; a further login ends the least recently used one."""
MAX_SESSION_IDLE_S: Final = 2 * 3600
"""Seconds without use after which a session ends."""
MAX_SESSION_S: Final = 12 * 3600
"""Seconds after which a session ends: a working day."""
_TOKEN_BYTES: Final = 32
_FREE_FAILURES: Final = 3
_FORGOTTEN_S: Final = 3600.0
"""Seconds after which failures do not count any more."""


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

    def begin(self, viewer: Viewer, id_token: str | None = None) -> str:
        """Return the token of a new session.

        :param id_token: The provider's token, which its logout needs; None for a local user.
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
        """Return the user of a session; None if there is no such session or it has ended."""
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
        """End a session, if there is one; return its id token."""
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

    def wait_s(self, user: str, address: str) -> float:
        """Return the seconds until this pair may try again."""
        failures = self._failures.get(_pair(user, address))
        if failures is None or failures.count < _FREE_FAILURES:
            return 0.0
        passed = self._clock() - failures.last
        if passed >= _FORGOTTEN_S:
            return 0.0
        wait = min(MAX_LOGIN_WAIT_S, 2.0 ** min(failures.count - _FREE_FAILURES, 30))
        return max(0.0, wait - passed)

    def failed(self, user: str, address: str) -> None:
        pair, now = _pair(user, address), self._clock()
        failures = self._failures.pop(pair, None)
        if failures is None or now - failures.last >= _FORGOTTEN_S:
            failures = _Failures(0, now)
        self._failures[pair] = _Failures(failures.count + 1, now)
        while len(self._failures) > MAX_LOGIN_FAILURES:
            self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        self._failures.pop(_pair(user, address), None)


def _pair(user: str, address: str) -> bytes:
    # A fixed size for names of any length.
    return _hash(f"{len(user)}:{user}{client_of(address)}")


_VERIFIED_S: Final = 300.0


class LoginRefused(RocketLensError):
    """The name or the password is wrong."""


class LoginTooSoon(RocketLensError):
    """The pair of user and address has to wait after failures, or too many log in at once."""

    retriable = True

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s: Final = wait_s


class Logins:
    """Checks passwords and keeps sessions."""

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
        self._verified: Final[OrderedDict[bytes, tuple[float, Viewer]]] = OrderedDict()

    @property
    def has_users(self) -> bool:
        """True if there are users with a password."""
        return len(self._users) > 0

    async def log_in(self, name: str, password: str, address: str) -> str:
        """Return the token of a new session.

        :raises LoginRefused: if the name or the password is wrong.
        :raises LoginTooSoon: if the user has to wait.
        :raises AuditFailed: if the audit log cannot be written.
        """
        viewer = await self._check_password(name, password, address)
        self._audit.record("login", user=name, address=address)
        return self.sessions.begin(viewer)

    def log_out(self, token: str, address: str) -> str | None:
        """End a session; return the id token of a provider's user."""
        viewer = self.sessions.viewer_of(token)
        id_token = self.sessions.end(token)
        if viewer is not None:
            self._audit.record("logout", user=viewer.name, address=address)
        return id_token

    async def viewer_of(self, authorization: str, address: str) -> Viewer:
        """Return the user of an Authorization header; errors as `log_in`."""
        scheme, _, encoded = authorization.partition(" ")
        try:
            decoded = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            decoded = ""
        name, colon, password = decoded.partition(":")
        if scheme.lower() != "basic" or not colon:
            raise LoginRefused("send a name and a password by HTTP's Basic authentication")
        digest = hmac.digest(self._key, decoded.encode(), hashlib.sha256)
        until, viewer = self._verified.get(digest, (0.0, None))
        if viewer is not None and self._clock() < until:
            return viewer
        viewer = await self._check_password(name, password, address)
        self._audit.record("login", user=name, address=address)
        self._verified.pop(digest, None)
        self._verified[digest] = self._clock() + _VERIFIED_S, viewer
        while len(self._verified) > len(self._users):
            self._verified.popitem(last=False)
        return viewer

    async def _check_password(self, name: str, password: str, address: str) -> Viewer:
        wait_s = self._attempts.wait_s(name, address)
        if wait_s > 0:
            self._audit.record("refused", user=name, address=address, why="too soon")
            raise LoginTooSoon(f"too many failures: try again in {wait_s:.0f} s", wait_s)
        if self._checking >= MAX_WAITING_LOGINS:
            self._audit.record("refused", user=name, address=address, why="too many at once")
            raise LoginTooSoon("too many log in at once: try again in a moment", 1.0)
        # Counted before the check, so that concurrent attempts are slowed, too.
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
