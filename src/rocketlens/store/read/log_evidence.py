"""What other files of a store prove about the end of its log.

A log ends where its files end, and a copy can lack the last of them, or hold it cut or full of
zeros. The log itself does not show that; these files do:

==================  =============================================================================
file                what it proves
==================  =============================================================================
consume queues      a record began at the physical offset of their last entry
index files         a record began at the last physical offset in their header, if the first one
                    is a record of this log
``synced``          a record of a RocketLens broker was on the disk
``checkpoint``      a record of this store time was on the disk
==================  =============================================================================

A broker writes all of them after the log, so on a live store they are never ahead of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import CheckpointError, IndexFileError, RecordError
from rocketlens.formats import checkpoint
from rocketlens.formats.index_file import HEADER_BYTES, IndexHeader, decode_header
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.commitlog import CommitLog, SegmentLost
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.scan import LogWalk
from rocketlens.store.read.state import read_synced

_CLOCK_ERROR_MS: Final = 600_000
"""How far a checkpoint's time may be ahead of its file's: beyond that it is damage."""

_HEAD_BYTES: Final = 8
"""Size and magic of a record: zero where none was written."""


class Proof(NamedTuple):
    """A record that a file of the store leads to."""

    physical_offset: int
    file: str


class LostEnd(NamedTuple):
    """Messages at the end of a log that are lost: where the last of them was, if a file tells."""

    physical_offset: int | None
    text: str


class LogEvidence:
    """What the files of a store prove about the end of its log.

    The queues are looked at again when the log has another last file; until then only that the
    last record which was proved can be read.
    """

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> None:
        """Set what is compared; nothing is read yet."""
        self._layout = layout
        self._log = log
        self._queues = queues
        self._seen: tuple[int, int] | None = None
        self._last: Proof | None = None

    def lost_end(self) -> LostEnd | None:
        """Return what is known of messages behind the end of the log; None if nothing is.

        O(queues + index files) at first.
        """
        seen = self._log.version, self._log.segments[-1].base_offset
        if seen != self._seen:
            self._last = max(self._proofs(), default=None)
            self._seen = seen
        last = self._last
        if last is not None and self._is_lost(last.physical_offset):
            # Read again: a broker may have cut the log, and the queues after it, since.
            self._last = last = max(self._proofs(), default=None)
            if last is not None and self._is_lost(last.physical_offset):
                return LostEnd(
                    last.physical_offset,
                    f"{last.file} leads to a message at physical offset {last.physical_offset}, "
                    "and the log does not have it: messages at its end are lost",
                )
        return self._by_checkpoint(last)

    def _proofs(self) -> Iterator[Proof]:
        """Yield the last record that each file leads to. Files that cannot be read prove nothing,
        and entries of records that are deleted.
        """
        least = self._log.min_offset
        found = (*self._of_queues(), *self._of_index(), *self._of_synced())
        return (proof for proof in found if least <= proof.physical_offset)

    def _of_queues(self) -> Iterator[Proof]:
        try:
            names = self._queues.names()
        except OSError:
            return
        for name in names:
            try:
                queue = self._queues.queue(*name)
                entry = queue.last_entry() if queue is not None else None
            except OSError:
                continue
            if entry is not None:
                yield Proof(entry.physical_offset, f"consumequeue/{name.topic}/{name.queue_id}")

    def _of_index(self) -> Iterator[Proof]:
        try:
            files = fs.entries(self._layout.index)
        except OSError:
            return
        for file in files:
            if not file.name.isdigit():
                continue
            try:
                content = fs.read_part(self._layout.index / file.name, 0, HEADER_BYTES)
                header = decode_header(content or b"")
            except (OSError, IndexFileError):
                continue
            if header.last_entry and self._begins_here(header):
                yield Proof(header.end_offset, f"index/{file.name}")

    def _begins_here(self, header: IndexHeader) -> bool:
        """Return whether an index file can be of this log, by its first record."""
        begin = header.begin_offset
        if begin < self._log.min_offset:
            return 0 <= begin <= header.end_offset
        try:
            record = self._log.record_at(begin, check_crc=False)
        except RecordError:
            return begin <= header.end_offset and self._is_lost(begin)
        return record.store_timestamp_ms == header.begin_timestamp_ms

    def _of_synced(self) -> Iterator[Proof]:
        try:
            synced = read_synced(self._layout)
        except OSError:
            return
        if synced is not None and synced.last_record_offset >= 0:
            yield Proof(synced.last_record_offset, "rocketlens/synced")

    def _is_lost(self, physical_offset: int) -> bool:
        """Return whether the log has nothing at an offset: damage there is told by who reads it."""
        if physical_offset < self._log.min_offset:
            return False
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except SegmentLost:
            return False
        except RecordError:
            return not any(self._log.bytes_at(physical_offset, _HEAD_BYTES))
        return False

    def _by_checkpoint(self, last: Proof | None) -> LostEnd | None:
        """Compare the store time that was on the disk with that of the log's last records."""
        try:
            content = fs.read_bytes(self._layout.checkpoint, checkpoint.CHECKPOINT_BYTES)
            written_ms = self._layout.checkpoint.stat().st_mtime_ns // 1_000_000
            saved = checkpoint.decode(content or b"")
        except (OSError, CheckpointError):
            return None
        newest_ms = max(saved.physic_msg_timestamp_ms, saved.logics_msg_timestamp_ms)
        if not 0 < newest_ms <= written_ms + _CLOCK_ERROR_MS:
            return None
        start = self._last_start() if last is None else last.physical_offset
        if start is None or self._reaches(start, newest_ms):
            return None
        return LostEnd(
            None,
            f"the checkpoint names a message that was stored at {newest_ms} (epoch ms), later than "
            "all at the end of the log: messages there are lost",
        )

    def _last_start(self) -> int | None:
        """Return where the last file that is not empty begins."""
        for segment in reversed(self._log.segments):
            if any(self._log.bytes_at(segment.base_offset, _HEAD_BYTES)):
                return segment.base_offset
        return self._log.min_offset

    def _reaches(self, start: int, newest_ms: int) -> bool:
        """Return whether a record from ``start`` on is of a time, or later, or if that is not known
        because too much would have to be read.
        """
        walk = LogWalk(self._log, start, grows=True)
        for record in walk.records():
            if record.store_timestamp_ms >= newest_ms:
                return True
            if walk.position - start > limits.MAX_INTERPRETED_SCAN_BYTES:
                return True
        return bool(walk.damage) or walk.torn_at is not None or walk.unfinished_at is not None


def lost_end_of(store: Path, log: CommitLog) -> LostEnd | None:
    """Return what is known of messages behind the end of a store's log, looked at once."""
    layout = StoreLayout(store)
    queues = ConsumeQueues(layout.consume_queue)
    try:
        return LogEvidence(layout, log, queues).lost_end()
    finally:
        queues.close()
