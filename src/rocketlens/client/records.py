"""Stored records in an answer's body: verified one by one before they are shown.

A broker finds by hash and does not compare; what it gives is believed only as far as it checks
out: a whole record with its checksum, of the topic asked for, that really has the key.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import (
    SIZE_AND_MAGIC,
    Reason,
    Record,
    decode,
    message_of,
)
from rocketlens.model.message import MessageExt
from rocketlens.query.verify import Wanted


@dataclass(slots=True)
class Verified:
    """What came out of answers so far."""

    messages: dict[int, MessageExt] = field(default_factory=dict)
    """By physical offset, so each once; a record with a repeated key comes twice."""
    damage: list[str] = field(default_factory=list)
    """What was wanted, and could not be read."""
    body_bytes: int = 0

    def take(self, record: Record, wanted: Wanted) -> None:
        """Keep the message in a record, if it is wanted."""
        offset = record.physical_offset
        if offset in self.messages or not wanted.matches(record):
            return
        message = message_of(record)
        self.messages[offset] = message
        self.body_bytes += len(message.body)


def records_in(body: bytes, damage: list[str]) -> Iterator[Record]:
    """Give the records of an answer one after another; one with a bad checksum goes to ``damage``.

    What follows bytes that are no record cannot be found, and goes there as well.
    """
    position = 0
    while position < len(body):
        try:
            record = decode(body, position)
        except RecordError as error:
            damage.append(str(error))
            if error.reason != Reason.CRC:
                return
            position += SIZE_AND_MAGIC.unpack_from(body, position)[0]
            continue
        position += record.total_size
        yield record
