"""Stored records in an answer's body: verified one by one before they are shown.

A broker finds by hash and does not compare; what it gives is believed only as far as it checks
out: a whole record with its checksum, of the topic asked for, that really has the key.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import SIZE_AND_MAGIC, Reason, Record, decode
from rocketlens.query.answer_builder import Findings
from rocketlens.query.verify import MessageFilter


class Page(NamedTuple):
    """What an answer had: the records themselves are not kept."""

    records: int = 0
    stored_bytes: int = 0
    oldest_offset: int = 0
    """Physical offset of the record that stands first in the log, and its store time."""
    oldest_ms: int = 0
    least_ms: int = 0
    """The smallest store time."""
    most_ms: int = 0
    """The greatest store time."""

    @property
    def held_bytes(self) -> int:
        """What its messages take in memory, at least."""
        return self.stored_bytes + self.records * limits.MESSAGE_OVERHEAD_BYTES


def take_page(
    body: bytes, message_filter: MessageFilter, findings: Findings, damage: list[str]
) -> Page:
    """Add those of an answer's records that match, the newest first.

    So a body that would be left out for newer ones is never decompressed. Takes the memory of
    the answer once more while it runs.
    """
    records = sorted(records_in(body, damage), key=_age, reverse=True)
    if not records:
        return Page()
    for record in records:
        if message_filter.matches(record):
            findings.take(record)
    oldest = min(records, key=lambda record: record.physical_offset)
    return Page(
        len(records),
        sum(record.total_size for record in records),
        oldest.physical_offset,
        oldest.store_timestamp_ms,
        records[-1].store_timestamp_ms,
        records[0].store_timestamp_ms,
    )


def _age(record: Record) -> tuple[int, int]:
    return record.store_timestamp_ms, record.physical_offset


def records_in(body: bytes, damage: list[str]) -> Iterator[Record]:
    """Iterate over the records of an answer; one with a bad checksum goes to ``damage``.

    What follows bytes that are no record cannot be found, and goes there as well.
    """
    position = 0
    while position < len(body):
        try:
            record = decode(body, position)
        except RecordError as error:
            add_damage(damage, str(error))
            if error.reason != Reason.CRC:
                return
            position += SIZE_AND_MAGIC.unpack_from(body, position)[0]
            continue
        position += record.total_size
        yield record


def add_damage(damage: list[str], text: str) -> None:
    """Add a line, unless there are as many as are shown."""
    if len(damage) < limits.MAX_DAMAGE_REPORTS:
        damage.append(text)
