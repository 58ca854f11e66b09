"""The rights of a user, to see and to act: roles, by source and topic pattern.

========  =======================================================================
role      what it may do with the topics of its grant
========  =======================================================================
viewer    search and look at messages; what is masked stays masked
operator  also act: send, send again, have a client consume
admin     also see what is masked
========  =======================================================================

`current_viewer()` is the user of the current request, also in the coroutines and tasks that it
starts: `LOCAL` in a console without users. Outside of requests it is a viewer that sees nothing.

Patterns have ``*`` for any characters and ``?`` for one. Only what a grant names can be seen, so a
grant of ``order-*`` does not have retries and dead letters: patterns with their prefixes do, and of
these topics each message can be seen whose original topic can.

Grants are tables of the file of users, the same for local users and for those of a provider. Errors
say where a mistake of one is, and do not quote it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from rocketlens.errors import BadInput
from rocketlens.model.topic import TopicKind

_ALL: Final = "*"
_PATTERN: Final = re.compile(r"[^\[\],\x00-\x20]{1,255}")
"""Without brackets, so that patterns can be narrowed by other patterns."""
GRANT_KEYS: Final = frozenset({"role", "sources", "topics"})


class Role(IntEnum):
    """The roles, each with all that the ones before it may do."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class Grant(Struct, frozen=True):
    """A role for the topics of some sources, both by pattern."""

    role: Role
    sources: tuple[str, ...] = (_ALL,)
    topics: tuple[str, ...] = (_ALL,)

    def has_source(self, source: str) -> bool:
        """Return whether it is for a source."""
        return any(fnmatchcase(source, each) for each in self.sources)

    def has(self, source: str, topic: str) -> bool:
        """Return whether it is for a topic of a source."""
        return self.has_source(source) and any(fnmatchcase(topic, each) for each in self.topics)


class Viewer(Struct, frozen=True):
    """The one who asks: a name for the audit log, and grants; without any, nothing is seen."""

    name: str
    grants: tuple[Grant, ...] = ()

    def may_see_source(self, source: str) -> bool:
        """Return whether anything of a source may be seen."""
        return any(each.has_source(source) for each in self.grants)

    def may_see(self, source: str, topic: str) -> bool:
        """Return whether the messages of a topic may be seen."""
        return self._has(Role.VIEWER, source, topic)

    def may_act(self, source: str, topic: str) -> bool:
        """Return whether messages of a topic may be sent, and sent again."""
        return self._has(Role.OPERATOR, source, topic)

    def may_act_in(self, source: str) -> bool:
        """Return whether messages of any topic of a source may be sent."""
        return any(each.role >= Role.OPERATOR and each.has_source(source) for each in self.grants)

    @property
    def is_operator(self) -> bool:
        """Whether messages of any topic may be sent."""
        return any(each.role >= Role.OPERATOR for each in self.grants)

    def may_unmask(self, source: str, topic: str) -> bool:
        """Return whether what is masked may be seen."""
        return self._has(Role.ADMIN, source, topic)

    def may_unmask_all(self, source: str) -> bool:
        """Return whether everything of a source may be seen unmasked."""
        return any(
            each.role is Role.ADMIN and each.has_source(source) and _ALL in each.topics
            for each in self.grants
        )

    @property
    def is_admin(self) -> bool:
        """Whether everything of some source may be seen and done."""
        return any(each.role is Role.ADMIN and _ALL in each.topics for each in self.grants)

    def may_see_message(self, source: str, topic: str, origins: Collection[str]) -> bool:
        """Return whether a message may be seen: its topic, and those it was a copy of."""
        if not self.may_see(source, topic):
            return False
        # What a producer set on a message of an ordinary topic says nothing of it.
        kind = TopicKind.of(topic)
        if kind is TopicKind.NORMAL:
            return True
        if not origins and kind in {TopicKind.RETRY, TopicKind.DEAD_LETTER}:
            # It can be of any topic.
            return self.sees_all(source)
        return all(self.may_see(source, each) for each in origins)

    def sees_all(self, source: str) -> bool:
        """Return whether every topic of a source may be seen."""
        return _ALL in self.patterns(source)

    def patterns(self, source: str) -> tuple[str, ...]:
        """Return the patterns of the topics of a source that may be seen."""
        topics = (topic for each in self.grants if each.has_source(source) for topic in each.topics)
        return tuple(dict.fromkeys(topics))

    def _has(self, role: Role, source: str, topic: str) -> bool:
        return any(each.role >= role and each.has(source, topic) for each in self.grants)


LOCAL: Final = Viewer("local", (Grant(Role.ADMIN),))
"""Who asks a console without users, which listens on the loopback interface only."""
NOBODY: Final = Viewer("")
"""Who asks without having logged in."""
_CURRENT: Final[ContextVar[Viewer]] = ContextVar("viewer", default=NOBODY)

_ADDRESS: Final[ContextVar[str]] = ContextVar("address", default="")


def current_viewer() -> Viewer:
    """Return whose request is being answered."""
    return _CURRENT.get()


def current_address() -> str:
    """Return where the request came from that is being answered; empty outside of one."""
    return _ADDRESS.get()


@contextmanager
def seen_by(viewer: Viewer, address: str = "") -> Iterator[None]:
    """Answer for a viewer, whose request came from an address."""
    tokens = _CURRENT.set(viewer), _ADDRESS.set(address)
    try:
        yield
    finally:
        _CURRENT.reset(tokens[0])
        _ADDRESS.reset(tokens[1])


def grant_of(where: str, table: Any) -> Grant:
    """Return the grant of a table; ``where`` names it in errors.

    :raises BadInput: if it is not one.
    """
    if not isinstance(table, dict):
        raise BadInput(f"{where} must be a table with a role")
    check_keys(where, table, GRANT_KEYS)
    roles = {each.name.lower(): each for each in Role}
    role = table.get("role")
    if not isinstance(role, str) or role not in roles:
        raise BadInput(f"{where}: role must be one of {', '.join(roles)}")
    given = {
        key: patterns_in(where, key, table[key]) for key in ("sources", "topics") if key in table
    }
    return Grant(roles[role], **given)


def patterns_in(where: str, key: str, value: Any) -> tuple[str, ...]:
    """Return a list of patterns of a file.

    :raises BadInput: if it is empty, or is none.
    """
    is_list = isinstance(value, list) and value and all(isinstance(each, str) for each in value)
    if not is_list or not all(map(_PATTERN.fullmatch, value)):
        raise BadInput(f'{where}: {key} must be a list of patterns with * and ?, as ["order-*"]')
    return tuple(value)


def check_keys(where: str, table: Mapping[str, Any], allowed: AbstractSet[str]) -> None:
    """Check that a table has known keys only.

    :raises BadInput: with their number; a key may be a secret in the wrong spot.
    """
    unknown = len(table.keys() - allowed)
    if unknown:
        raise BadInput(f"{where}: {unknown} unknown keys: give {', '.join(sorted(allowed))}")
