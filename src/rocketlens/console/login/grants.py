"""Grants as the file of users has them: tables, the same for local users and a provider's.

Errors say where a mistake is, and do not quote it.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from rocketlens.console.login.viewer import Grant, Role
from rocketlens.errors import BadInput

_PATTERN: Final = re.compile(r"[^\[\],\x00-\x20]{1,255}")
"""Without brackets, so that patterns can be narrowed by other patterns."""
GRANT_KEYS: Final = frozenset({"role", "sources", "topics"})


def grant_of(where: str, table: Any) -> Grant:
    """Return the grant of a table; ``where`` names it in errors.

    :raises BadInput: if it is none.
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


def check_keys(where: str, table: Mapping[str, Any], known: AbstractSet[str]) -> None:
    """Check that a table has known keys only.

    :raises BadInput: with their number; a key may be a secret in the wrong spot.
    """
    unknown = len(table.keys() - known)
    if unknown:
        raise BadInput(f"{where}: {unknown} unknown keys: give {', '.join(sorted(known))}")
