"""Declares configuration keys as tables that are parsed, checked and documented.

::

    @dataclass(frozen=True, slots=True)
    class StoreConfig(Configuration):
        maxMessageSize: int = key(4 * MIB, "Largest body of a message.", unit="bytes",
                                  allowed=range(1, 512 * MIB + 1))
        flushDiskType: str = key(ASYNC_FLUSH, "When a send is acknowledged.",
                                 allowed=(ASYNC_FLUSH, SYNC_FLUSH))

Each field is a key of the same name, unless ``name`` differs. The constructor rejects values
outside ``allowed``. ``broker.conf`` is read with the tables of the broker, the store and TLS,
``namesrv.conf`` with those of the name server and TLS. Keys in no table:
:mod:`rocketlens.model.rocketmq_config_keys`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Self

from rocketlens.errors import BadInput

DAY_MS: Final = 86_400_000
SINCE_5: Final = "5"
"""A key of RocketMQ 5.5.0 that 4.9.7 does not have."""
OURS: Final = "RocketLens"
"""A key that RocketMQ does not have."""

_MAX_SHOWN: Final = 100
"""Characters of a key or a value in an error."""
_INTEGER: Final = re.compile(r"-?\d{1,19}", re.ASCII)

Value = int | bool | str


class KeyForm(NamedTuple):
    """A rule for text values, with its description."""

    description: str
    accepts: Callable[[str], bool]


class Key(NamedTuple):
    """One row of a table of configuration keys."""

    name: str
    """RocketMQ's spelling."""
    attribute: str
    """The field with its value."""
    default: Value
    meaning: str
    unit: str
    allowed: range | tuple[str, ...] | KeyForm | None
    """None: any value of its type."""
    since: str
    """Servers that have it: empty for RocketMQ 4.9 and 5, else SINCE_5 or OURS."""

    @property
    def type_name(self) -> str:
        return {int: "integer", bool: "boolean", str: "text"}[type(self.default)]

    @property
    def allowed_text(self) -> str:
        """The allowed values in words; empty if every value of the type is allowed."""
        if isinstance(self.allowed, range):
            return f"{self.allowed[0]} to {self.allowed[-1]}"
        if isinstance(self.allowed, KeyForm):
            return self.allowed.description
        if self.allowed is None:
            return ""
        *others, last = self.allowed
        return f"{', '.join(others)} or {last}"

    def parse(self, text: str) -> Value:
        """Parse a value.

        :raises BadInput: if it is not of the key's type.
        """
        text = text.strip()
        if isinstance(self.default, bool):
            if text.lower() not in ("true", "false"):
                raise BadInput(f"{self.name} {text[:_MAX_SHOWN]!r} is neither true nor false")
            return text.lower() == "true"
        if isinstance(self.default, int):
            if not _INTEGER.fullmatch(text):
                wanted = f": give {self.allowed_text}" if self.allowed else ""
                raise BadInput(f"{self.name} {text[:_MAX_SHOWN]!r} is not a whole number{wanted}")
            return int(text)
        return text

    def check(self, value: Any) -> None:
        """Check that a value is allowed.

        :raises BadInput: otherwise.
        """
        if isinstance(value, str) and "\0" in value:
            raise BadInput(f"{self.name} has a zero character in it")
        if self.allowed is None:
            return
        is_allowed = (
            self.allowed.accepts(value)
            if isinstance(self.allowed, KeyForm)
            else value in self.allowed
        )
        if not is_allowed and value != self.default:
            shown = repr(value[:_MAX_SHOWN]) if isinstance(value, str) else value
            raise BadInput(f"{self.name} {shown}: give {self.allowed_text}")


_METADATA: Final = "configuration key"


def key(
    default: Value,
    meaning: str,
    *,
    unit: str = "",
    allowed: range | tuple[str, ...] | KeyForm | None = None,
    since: str = "",
    name: str = "",
) -> Any:
    """Declare a key; the default is always allowed."""
    row = Key(name, "", default, meaning, unit, allowed, since)
    return field(default=default, metadata={_METADATA: row})


def keys_of(configuration: "type[Configuration]") -> tuple[Key, ...]:
    """Return the keys of a configuration class, in the order of its fields."""
    rows = ((each.name, each.metadata.get(_METADATA)) for each in fields(configuration))  # type: ignore[arg-type]
    return tuple(
        row._replace(name=row.name or name, attribute=name) for name, row in rows if row is not None
    )


class Configuration:
    """A frozen dataclass whose fields are declared with :func:`key`."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check each value.

        :raises BadInput: if a key has an invalid value.
        """
        for row in keys_of(type(self)):
            row.check(getattr(self, row.attribute))
        self.check_together()

    def check_together(self) -> None:
        """Check conditions that involve several keys; subclasses override this."""

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Parse the entries of a file. Return the configuration, and the entries without a key.

        :raises BadInput: if a value is not allowed, or not of its key's type.
        """
        rows = {row.name: row for row in keys_of(cls)}
        mine = {
            rows[name].attribute: rows[name].parse(text)
            for name, text in values.items()
            if name in rows
        }
        return cls(**mine), {name: text for name, text in values.items() if name not in rows}

    def properties(self) -> dict[str, str]:
        """Return each key with its value in the syntax of a configuration file."""
        values = ((row.name, getattr(self, row.attribute)) for row in keys_of(type(self)))
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values
        }


def is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


IP_ADDRESS: Final = KeyForm("an IPv4 or IPv6 address", is_ip_address)
