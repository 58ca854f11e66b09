"""Sessions of users who logged in, and how fast passwords may be tried. Kept in memory only.

A session is a random token, which the browser keeps; here is its hash, so a dump of the memory
opens none. It ends by a logout, when it was not used for MAX_SESSION_IDLE_S, and MAX_SESSION_S
after its login. A user has at most MAX_USER_SESSIONS, and a console MAX_SESSIONS.

A pair of user and address waits after its third failure, twice as long after each: another address
is never kept from logging in as the same user, nor another user from the same address. Addresses
of one IPv6 network of 64 bits count as one.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from rocketlens import limits
from rocketlens.console.connections import client_of
from rocketlens.console.login.viewer import Viewer

_TOKEN_BYTES: Final = 32
_FREE_FAILURES: Final = 3
_FORGOTTEN_S: Final = 3600.0
"""Seconds after which failures count no more."""


@dataclass(slots=True)
class _Session:
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
        """Count those that are kept."""
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
        if len(own) >= limits.MAX_USER_SESSIONS:
            del self._by_hash[min(own, key=lambda key: self._by_hash[key].used)]
        elif len(self._by_hash) >= limits.MAX_SESSIONS:
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
        return idle_s >= limits.MAX_SESSION_IDLE_S or age_s >= limits.MAX_SESSION_S


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class _Failures:
    count: int
    last: float


class Attempts:
    """Failed logins by user and address."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock: Final = clock
        self._failures: Final[OrderedDict[bytes, _Failures]] = OrderedDict()

    def __len__(self) -> int:
        """Count the pairs that are remembered."""
        return len(self._failures)

    def wait_s(self, user: str, address: str) -> float:
        """Return the seconds until this pair may try again; 0 for now."""
        failures = self._failures.get(_pair(user, address))
        if failures is None or failures.count < _FREE_FAILURES:
            return 0.0
        passed = self._clock() - failures.last
        if passed >= _FORGOTTEN_S:
            return 0.0
        wait = min(limits.MAX_LOGIN_WAIT_S, 2.0 ** min(failures.count - _FREE_FAILURES, 30))
        return max(0.0, wait - passed)

    def failed(self, user: str, address: str) -> None:
        """Count a failure."""
        pair, now = _pair(user, address), self._clock()
        failures = self._failures.pop(pair, None)
        if failures is None or now - failures.last >= _FORGOTTEN_S:
            failures = _Failures(0, now)
        self._failures[pair] = _Failures(failures.count + 1, now)
        while len(self._failures) > limits.MAX_LOGIN_FAILURES:
            self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        """Forget the failures of a pair."""
        self._failures.pop(_pair(user, address), None)


def _pair(user: str, address: str) -> bytes:
    # Of a fixed size, whatever is tried as a name.
    return _hash(f"{len(user)}:{user}{client_of(address)}")
