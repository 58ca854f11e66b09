"""Batches that cannot be taken apart: which messages are in them is not known.

Such a record is in answers as it is, and makes them incomplete: other messages than it may match.
"""

from threading import Lock
from typing import Final

from rocketlens import limits
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.text.counted import counted

_SHOWN: Final = 3


class UnreadBatches:
    """Counts the batches of one search that cannot be taken apart. Threads may add to it."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._positions: Final[dict[tuple[object, int], str]] = {}
        self._lock: Final = Lock()

    def add(self, record: Record) -> None:
        """Count a batch, once."""
        with self._lock:
            if len(self._positions) < limits.MAX_FILTER_FAILURES:
                where = record.store_host, record.physical_offset
                position = f"{record.topic}/{record.queue_id}/{record.queue_offset}"
                self._positions[where] = position

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the batches as one failure; nothing if there is none."""
        if not self._positions:
            return ()
        positions = list(self._positions.values())
        shown = ", ".join(positions[:_SHOWN]) + (", ..." if positions[_SHOWN:] else "")
        error = (
            f"{counted(len(positions), 'record')} cannot be taken apart into the messages of a "
            f"batch, which were not searched: {shown}"
        )
        return (Coverage("batches", SourceKind.FILTER, SourceState.FAILED, None, error),)
