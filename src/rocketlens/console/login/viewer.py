"""The rights of users: roles for sources and topics by pattern.

========  =======================================================================
role      rights on the topics of its grant
========  =======================================================================
viewer    search and read messages; masked parts stay masked
operator  also act: send, send again, have a client consume
admin     also see masked parts
========  =======================================================================

`current_viewer()` is the user of the current request, also in its coroutines and tasks: `LOCAL` in
a console without users. Outside of requests it sees nothing.

In patterns, ``*`` stands for any characters and ``?`` for one. Only what a grant names is visible:
``order-*`` does not include retries and dead letters. These need patterns with their prefixes, and
show only messages whose original topic is visible, too.

Local users and users of a provider have the same grant tables. Errors name the position of a
mistake, and do not quote it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any, Final, TypeGuard

from msgspec import Struct

from rocketlens.errors import BadInput
from rocketlens.model.topic import TopicKind

_ALL: Final = "*"
_PATTERN: Final = re.compile(r"[^\[\],\x00-\x20]{1,255}")
"""Without brackets, so that other patterns can narrow it."""
GRANT_KEYS: Final = frozenset({"role", "sources", "topics"})


class Role(IntEnum):
    """The roles. Each includes the rights of those before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class Grant(Struct, frozen=True):
    """A role for topics and sources, both by pattern."""

    role: Role
    sources: tuple[str, ...] = (_ALL,)
    topics: tuple[str, ...] = (_ALL,)

    def has_source(self, source: str) -> bool:
        return any(fnmatchcase(source, each) for each in self.sources)

    def has(self, source: str, topic: str) -> bool:
        return self.has_source(source) and any(fnmatchcase(topic, each) for each in self.topics)


class Viewer(Struct, frozen=True):
    """A user with grants. Without grants nothing is visible."""

    name: str
    grants: tuple[Grant, ...] = ()

    def may_see_source(self, source: str) -> bool:
        return any(each.has_source(source) for each in self.grants)

    def may_see(self, source: str, topic: str) -> bool:
        return self._has(Role.VIEWER, source, topic)

    def may_act(self, source: str, topic: str) -> bool:
        return self._has(Role.OPERATOR, source, topic)

    def may_act_in(self, source: str) -> bool:
        """Return whether the user may act on any topic of a source."""
        return any(each.role >= Role.OPERATOR and each.has_source(source) for each in self.grants)

    @property
    def is_operator(self) -> bool:
        """True if the user may act on any topic."""
        return any(each.role >= Role.OPERATOR for each in self.grants)

    def may_unmask(self, source: str, topic: str) -> bool:
        return self._has(Role.ADMIN, source, topic)

    def may_unmask_all(self, source: str) -> bool:
        return any(
            each.role is Role.ADMIN and each.has_source(source) and _ALL in each.topics
            for each in self.grants
        )

    @property
    def is_admin(self) -> bool:
        """True if the user is admin of all topics of any source."""
        return any(each.role is Role.ADMIN and _ALL in each.topics for each in self.grants)

    def may_see_message(self, source: str, topic: str, origins: Collection[str]) -> bool:
        """Return whether a message is visible: its topic, and the topics that it is a copy of."""
        if not self.may_see(source, topic):
            return False
        # Properties of ordinary messages are set by producers, and prove nothing.
        kind = TopicKind.of(topic)
        if kind is TopicKind.NORMAL:
            return True
        if not origins and kind in {TopicKind.RETRY, TopicKind.DEAD_LETTER}:
            # Its original topic is unknown.
            return self.sees_all(source)
        return all(self.may_see(source, each) for each in origins)

    def sees_all(self, source: str) -> bool:
        """Return whether all topics of a source are visible."""
        return _ALL in self.patterns(source)

    def patterns(self, source: str) -> tuple[str, ...]:
        """Return the visible topics of a source as patterns."""
        topics = (topic for each in self.grants if each.has_source(source) for topic in each.topics)
        return tuple(dict.fromkeys(topics))

    def _has(self, role: Role, source: str, topic: str) -> bool:
        return any(each.role >= role and each.has(source, topic) for each in self.grants)


LOCAL: Final = Viewer("local", (Grant(Role.ADMIN),))
"""The user of a console without users, which listens on the loopback interface only."""
NOBODY: Final = Viewer("")
"""A user who is not logged in."""
_CURRENT: Final[ContextVar[Viewer]] = ContextVar("viewer", default=NOBODY)

_ADDRESS: Final[ContextVar[str]] = ContextVar("address", default="")


def current_viewer() -> Viewer:
    return _CURRENT.get()


def current_address() -> str:
    """Return the client address of the current request; empty outside of one."""
    return _ADDRESS.get()


@contextmanager
def seen_by(viewer: Viewer, address: str = "") -> Iterator[None]:
    """Set the viewer and the client address of the current request."""
    tokens = _CURRENT.set(viewer), _ADDRESS.set(address)
    try:
        yield
    finally:
        _CURRENT.reset(tokens[0])
        _ADDRESS.reset(tokens[1])


def grant_of(where: str, value: Any) -> Grant:
    """Parse a grant table. ``where`` names it in errors.

    :raises BadInput: if it is not valid.
    """
    table = checked_table(where, value, 'role = "viewer"', GRANT_KEYS)
    roles = {each.name.lower(): each for each in Role}
    role = table.get("role")
    if not isinstance(role, str) or role not in roles:
        raise BadInput(f"{where}: role must be one of {', '.join(roles)}")
    given = {
        key: patterns_in(where, key, table[key]) for key in ("sources", "topics") if key in table
    }
    return Grant(roles[role], **given)


def is_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def patterns_in(where: str, key: str, value: Any) -> tuple[str, ...]:
    """Return the list of patterns at a key.

    :raises BadInput: if it is not a list of patterns, or empty.
    """
    if not is_texts(value) or not value or not all(map(_PATTERN.fullmatch, value)):
        raise BadInput(f'{where}: {key} must be a list of patterns with * and ?, as ["order-*"]')
    return tuple(value)


def checked_table(where: str, value: Any, form: str, keys: AbstractSet[str]) -> Mapping[str, Any]:
    """Return a value that is a table with known keys.

    :raises BadInput: if it is not. Unknown keys are counted, not named: one can be a secret.
    """
    if not isinstance(value, dict):
        raise BadInput(f"{where} must be a table: {form}")
    unknown = len(value.keys() - keys)
    if unknown:
        raise BadInput(f"{where}: {unknown} unknown keys: give {', '.join(sorted(keys))}")
    return value
