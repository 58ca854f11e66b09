"""The keys of RocketMQ 5's configuration database with ``configManagerVersion=v2``.

N and T are lengths of names. All integers are big-endian.

========  ====  ==============================================================================
offset    size  field
========  ====  ==============================================================================
0         1     1
1         2     table: 1 offsets of groups, 2 the same of pulls, 3 topics, 4 groups
3         1     2: an entry of the table. 1: the number of changes of the table
4         2     N
6         N     name of the topic or the group, UTF-8
========  ====  ==============================================================================

Keys of offsets continue:

========  ====  ==============================================================================
offset    size  field
========  ====  ==============================================================================
6 + N     1     1
7 + N     2     T
9 + N     T     topic, UTF-8
9 + N+T   1     1
10 + N+T  4     queue id
========  ====  ==============================================================================

The value is an offset of 8 bytes; for a topic or a group, 1 and its configuration as JSON.

Source: ``ConfigHelper`` and ``TableId`` of ``org.apache.rocketmq.broker.config.v2``, 5.5.0.
"""

from struct import Struct
from typing import Final, NamedTuple

OFFSETS: Final = 1
PULL_OFFSETS: Final = 2
TOPICS: Final = 3
GROUPS: Final = 4
JSON_VALUE: Final = b"\x01"
"""The first byte of a JSON value."""
OFFSET_VALUE: Final = Struct(">q")

_HEAD: Final = Struct(">BHB")
_LENGTH: Final = Struct(">H")
_QUEUE_ID: Final = Struct(">I")
_TABLE: Final = 1
_ENTRY: Final = 2
_SEPARATOR: Final = b"\x01"


class ConfigKey(NamedTuple):
    """The table and name of an entry; for an offset also its queue."""

    table: int
    name: str
    topic: str = ""
    queue_id: int = 0

    def encode(self) -> bytes:
        key = _HEAD.pack(_TABLE, self.table, _ENTRY) + _named(self.name)
        if self.table in (OFFSETS, PULL_OFFSETS):
            queue = _named(self.topic) + _SEPARATOR + _QUEUE_ID.pack(self.queue_id)
            key += _SEPARATOR + queue
        return key


def _named(text: str) -> bytes:
    name = text.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(name)) + name


def decode(key: bytes) -> ConfigKey | None:
    """Parse a key; None if it is not that of an entry."""
    if len(key) < _HEAD.size + _LENGTH.size:
        return None
    table = _HEAD.unpack_from(key)[1]
    try:
        name, stop = _name_at(key, _HEAD.size)
        decoded = ConfigKey(table, name)
        if table in (OFFSETS, PULL_OFFSETS):
            topic, _ = _name_at(key, stop + len(_SEPARATOR))
            queue_id = int.from_bytes(key[-_QUEUE_ID.size :], "big")
            decoded = ConfigKey(table, name, topic, queue_id)
    except (UnicodeDecodeError, ValueError):
        return None
    return decoded if decoded.encode() == key else None


def _name_at(key: bytes, start: int) -> tuple[str, int]:
    """Return a name and the position after it; raise ValueError if the key ends before."""
    length = int.from_bytes(key[start : start + _LENGTH.size], "big")
    stop = start + _LENGTH.size + length
    if stop > len(key):
        raise ValueError(start)
    return key[start + _LENGTH.size : stop].decode("utf-8"), stop
