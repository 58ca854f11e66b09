"""The keys of a consume queue in RocksDB: RocketMQ 5 with ``storeType=defaultRocksDB``.

T is the length of the topic's name. All integers are big-endian.

========  ====  ==============================================================================
offset    size  field
========  ====  ==============================================================================
0         4     T
4         1     1
5         T     topic, UTF-8
5 + T     1     1
6 + T     4     queue id
10 + T    1     1
11 + T    8     queue offset
========  ====  ==============================================================================

The value is an entry as in a file (`rocketlens.formats.consumequeue_entry`), and 8 bytes of store
time. In byte order, the keys of one queue are in the order of its offsets.

Source: ``RocksDBConsumeQueueTable``.
"""

from struct import Struct
from typing import Final, NamedTuple

from rocketlens import limits

_LENGTH: Final = Struct(">I")
_QUEUE_ID: Final = Struct(">I")
_QUEUE_OFFSET: Final = Struct(">Q")
_SEPARATOR: Final = b"\x01"
_TOPIC_START: Final = _LENGTH.size + len(_SEPARATOR)
_REST: Final = len(_SEPARATOR) + _QUEUE_ID.size + len(_SEPARATOR) + _QUEUE_OFFSET.size


class QueueKey(NamedTuple):
    """The topic, the queue and the offset of an entry."""

    topic: str
    queue_id: int
    queue_offset: int

    def encode(self) -> bytes:
        name = self.topic.encode("utf-8", "surrogatepass")
        parts = (
            _LENGTH.pack(len(name)),
            name,
            _QUEUE_ID.pack(self.queue_id),
            _QUEUE_OFFSET.pack(self.queue_offset),
        )
        return _SEPARATOR.join(parts)


def decode(key: bytes) -> QueueKey | None:
    """Parse a key; None if it is not that of an entry."""
    if len(key) < _TOPIC_START + _REST:
        return None
    (length,) = _LENGTH.unpack_from(key)
    stop = _TOPIC_START + length
    if len(key) != stop + _REST:
        return None
    try:
        topic = key[_TOPIC_START:stop].decode("utf-8")
    except UnicodeDecodeError:
        return None
    (queue_id,) = _QUEUE_ID.unpack_from(key, stop + 1)
    (queue_offset,) = _QUEUE_OFFSET.unpack_from(key, stop + _REST - _QUEUE_OFFSET.size)
    decoded = QueueKey(topic, queue_id, queue_offset)
    is_sound = queue_offset <= limits.MAX_QUEUE_OFFSET and decoded.encode() == key
    return decoded if is_sound else None
