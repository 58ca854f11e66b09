"""The data source ``rocketmq`` as a stream: messages as a broker appends them.

::

    spark.readStream.format("rocketmq").option("store", DIR).load()

The options are in :data:`rocketlens.bulk.options.OPTIONS`. ``docs/reference/spark.md`` has the
guarantees of a stream: it fails if messages were lost before it read them, and returns no message
before it is synced.

The offset of the stream (:mod:`rocketlens.bulk.stream_offset`) identifies the log. With
``failOnDataLoss=false``, a stream that lost messages continues after the last of its records that
still exists, or at the start of the log.

A RocketLens broker writes down how far it has synced. The files of other brokers show it a minute
late, so the stream itself syncs the segments that it is about to read, which does not change them.
Index entries are returned only after the RocketLens broker of the store synced their record, so
that after a power cut an index has no entry for a record that the log lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from rocketlens.bulk import index_entries
from rocketlens.bulk.messages import BatchScan, Share
from rocketlens.bulk.options import (
    OPTIONS,
    STREAMS,
    choice_option,
    flag_option,
    known_options,
    number_option,
)
from rocketlens.bulk.ranges import open_range, stretches, true_start, walk_log
from rocketlens.bulk.stream_offset import (
    StreamOffset,
    deletion,
    is_replaced,
    is_whole,
    last_common,
    last_record,
    missing,
    replacement,
)
from rocketlens.errors import BadInput, NotAStore, StoreError
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.state import read_state, read_synced_offset

MAX_STREAM_TRIGGER_BYTES: Final = 256 << 20
"""The default of ``maxBytesPerTrigger``: bytes of log in one batch of a stream."""
LATEST: Final = 2**63 - 1
"""Beyond the end of every log."""
TABLES: Final = ("messages", "damage", "index_entries")
"""The values of the option ``table``."""


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports the end of the log, plans ranges of it, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options; raise BadInput if one is not valid."""
        checked = known_options(options, "streams")
        table = choice_option(checked, "table", TABLES)
        if table == "damage":
            raise BadInput("the table damage is not for streams: use read")
        self._of_entries = table == "index_entries"
        self._with_unsynced = flag_option(checked, "includeUnsynced", default=False)
        self._with_tags = flag_option(checked, "tagIndex", default=True)
        self._max_bytes = number_option(checked, "maxBytesPerTrigger", MAX_STREAM_TRIGGER_BYTES)
        given = "maxOffsetsPerTrigger" in checked
        self._most = number_option(checked, "maxOffsetsPerTrigger", 1) if given else None
        if checked.get("startingOffset") == "latest":
            checked["startingOffset"] = str(LATEST)
        self._first = number_option(checked, "startingOffset", 0, 0)
        own = {option.name for option in OPTIONS if option.readers == STREAMS}
        others = {n: value for n, value in checked.items() if n not in {*own, "startingOffset"}}
        fails = flag_option(checked, "failOnDataLoss", default=True)
        # Deleted records need no index; the stream of entries fails only if the log was replaced.
        others["failOnDataLoss"] = str(fails and not self._of_entries).lower()
        self._messages = BatchScan(others, is_stream=True)
        if self._messages.placed and self._of_entries:
            raise BadInput("the table index_entries is of all queues: leave out startingOffsets")
        self._layout = StoreLayout.of(Path(self._messages.store))
        self._store = self._layout.root
        self._target: int | None = None
        self._starts: Final[list[int]] = []

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of the stream: the first record at or after the starting offset, or the
        log's end.

        :raises NotAStore: if there is no commit log.
        :raises BadInput: if the store lacks a requested topic or queue.
        :raises StoreError: if a queue does not have its starting position, unless
            ``failOnDataLoss`` is false.
        """
        with self._log() as log:
            self._messages.check_topics()
            begin = log.min_offset
            if self._messages.placed:
                for what in self._messages.positions_outside():
                    self._report_loss(what)
                end = self._next_offset(log, StreamOffset(begin), LATEST).physical_offset
                return StreamOffset(begin, placed_end=end).to_json()
            if self._first == LATEST:
                return self._next_offset(log, StreamOffset(begin), LATEST).to_json()
            segment = log.segment_of(self._first)
            if segment is not None:
                begin = segment.base_offset
            first = walk_log(log, begin, max(self._first, begin))
            return (
                StreamOffset(begin).moved_to(first, last_record(log, begin, first), log).to_json()
            )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current end of the log."""
        with self._log() as log:
            self._target = walk_log(log, log.min_offset, LATEST)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the next offset: after whole, synced records, within the limit or one record more.

        :raises StoreError: if messages were lost, unless ``failOnDataLoss`` is false.
        """
        with self._log() as log:
            begin = self._resume(log, StreamOffset.from_json(start))
            stop, most = LATEST, self._most
            if isinstance(limit, ReadMaxBytes):
                stop = begin.physical_offset + limit.max_bytes
            elif isinstance(limit, ReadAllAvailable):
                most = None
            else:
                stop = begin.physical_offset + self._max_bytes
            end = self._next_offset(log, begin, stop, most)
            return start if end.physical_offset <= begin.physical_offset else end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split the range between two offsets; errors as `latestOffset`."""
        with self._log() as log:
            begin, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
            if begin.physical_offset != last.physical_offset:
                begin = self._resume(log, begin)
            if self._is_replaced(log, last):
                # The log changed after the planning: the next micro-batch repeats this range.
                return []
            if not self._of_entries:
                for low, high in missing(log, begin.physical_offset, last.physical_offset):
                    self._report_loss(deletion(log, low, high, begin))
            return [
                InputPartition(Share(one, known_start=known_start, placed_end=begin.placed_end))
                for one, known_start in stretches(
                    log,
                    begin.physical_offset,
                    last.physical_offset,
                    self._messages.partition_bytes,
                    self._starts,
                )
            ]

    def _resume(self, log: CommitLog, offset: StreamOffset) -> StreamOffset:
        """Return the offset to continue from: ``offset`` itself if the log was not replaced."""
        if self._is_replaced(log, offset):
            offset = last_common(log, offset)
        begin = max(offset.physical_offset, log.min_offset)
        if offset.physical_offset < begin and not self._of_entries:
            self._report_loss(deletion(log, offset.physical_offset, begin, offset))
        return offset._replace(physical_offset=begin)

    def _is_replaced(self, log: CommitLog, offset: StreamOffset) -> bool:
        """Return True if the log is not the one that ``offset`` was read from."""
        if not is_replaced(log, offset):
            return False
        if self._of_entries:
            raise StoreError(replacement(log, offset))
        self._report_loss(replacement(log, offset))
        return True

    def _report_loss(self, what: str) -> None:
        where = str(self._store)
        self._messages.losses.add(what, "goes on with what is there", where=where)

    def _next_offset(
        self, log: CommitLog, begin: StreamOffset, stop: int, most: int | None = None
    ) -> StreamOffset:
        """Return the offset up to which whole, synced records can be read.

        It is about ``stop``, or ``most`` records after ``begin``.
        """
        first = begin.physical_offset
        if self._target is not None:
            stop = min(stop, self._target)
        synced = self._synced()
        if synced is not None:
            stop = min(stop, synced)
        self._starts.clear()
        end = walk_log(log, first, stop, self._starts, most) if stop > first else first
        last = last_record(log, first, end, self._starts) if end > first else None
        if last is not None and not is_whole(
            log, last, is_closed=not (self._store / "abort").exists()
        ):
            end = last.physical_offset
            last = last_record(log, first, end, self._starts) if end > first else None
        if end > first and synced is None and not self._with_unsynced:
            for segment in log.segments:
                if segment.base_offset < end and first < segment.end_offset:
                    Disk().sync_for_reading(segment.path)
        return begin.moved_to(end, last, log) if end > first else begin

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the record batches of one stretch; runs in an executor."""
        if not self._of_entries:
            yield from self._messages.read(partition.value)
            return
        share: Share = partition.value
        assert share.log_range is not None  # noqa: S101 - see partitions
        try:
            mapped = open_range(share.log_range)
        except FileNotFoundError:
            # Deleted since it was planned: its records no longer need an index.
            nothing = memoryview(b"")
            yield from index_entries.batches(share.log_range, None, nothing, with_tags=False)
            return
        with mapped:
            first = true_start(share.log_range, mapped.view, share.known_start)
            yield from index_entries.batches(
                share.log_range, first, mapped.view, with_tags=self._with_tags
            )

    def _log(self) -> closing[CommitLog]:
        return closing(CommitLog.of(self._layout))

    def _synced(self) -> int | None:
        """Return the offset up to which the broker synced the log; None if it does not record that.

        :raises NotAStore: for index entries, if no RocketLens broker wrote to the store.
        """
        layout = self._layout
        synced = read_synced_offset(layout)
        if self._of_entries:
            if synced is None:
                raise NotAStore(f"{self._store} is not the store of a RocketLens broker")
            return synced
        state = read_state(layout)
        if self._with_unsynced or (state is not None and not state.is_last_writer(layout)):
            return None
        return synced
