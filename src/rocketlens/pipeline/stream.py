"""The data source ``rocketmq`` as a stream: messages as a broker appends them.

::

    spark.readStream.format("rocketmq").option("store", DIR).load()

The options are in :data:`rocketlens.bulk.options.OPTIONS`. ``docs/reference/spark.md`` says what a
stream guarantees: it fails when messages were lost before it read them, and returns none before
it is synced.

The offset of the stream (:mod:`rocketlens.bulk.stream_offset`) tells whether the log is the one
that was read before. With ``failOnDataLoss=false`` a stream that lost messages continues after the
last of its records that is still there, or at the begin of the log.

What is synced: a broker of this project writes it down. Another broker's files tell it only a
minute late, so the stream syncs the segments that it is about to read itself, which changes nothing
in them. Index entries are returned only once their record was synced by the broker of this project
that runs there, so that an index never knows more than the log does after a power cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from rocketlens.client.search.queue_stretch import QueueStretch

MAX_STREAM_TRIGGER_BYTES: Final = 256 << 20
"""Log in one batch of a stream, in bytes, unless ``maxBytesPerTrigger`` says otherwise."""
LATEST: Final = 2**63 - 1
"""Behind the end of every log."""
TABLES: Final = ("messages", "damage", "index_entries")
"""The values of the option ``table``."""


class SharePartition(InputPartition):
    """A share of the work of a batch read or a stream, in the type that Spark asks for."""

    def __init__(self, share: "Share | QueueStretch | None") -> None:
        """Wrap ``share``."""
        super().__init__(share)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports the end of the log, plans ranges of it, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options.

        :raises BadInput: naming the option that is not valid.
        """
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
        # An index is built of the log that is there; only another log makes it fail.
        others["failOnDataLoss"] = str(fails and not self._of_entries).lower()
        self._messages = BatchScan(others, is_stream=True)
        if self._messages.placed and self._of_entries:
            raise BadInput("the table index_entries is of all queues: leave out startingOffsets")
        self._layout = StoreLayout.of(Path(self._messages.store))
        self._store = self._layout.root
        self._target: int | None = None
        self._starts: Final[list[int]] = []

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the stream begins: the first record there or after, or the log's end.

        :raises NotAStore: when there is no commit log.
        :raises BadInput: when the store does not have a topic, or a queue, that is asked for.
        :raises StoreError: when a queue does not have the position that is asked for, unless
            ``failOnDataLoss`` is false.
        """
        log = self._log()
        try:
            self._messages.check_topics()
            begin = log.min_offset
            if self._messages.placed:
                for what in self._messages.positions_outside():
                    self._lost(what)
                end = self._moved(log, StreamOffset(begin), LATEST).physical_offset
                return StreamOffset(begin, placed_end=end).to_json()
            if self._first == LATEST:
                return self._moved(log, StreamOffset(begin), LATEST).to_json()
            segment = log.segment_of(self._first)
            if segment is not None:
                begin = segment.base_offset
            first = walk_log(log, begin, max(self._first, begin))
            return (
                StreamOffset(begin).moved_to(first, last_record(log, begin, first), log).to_json()
            )
        finally:
            log.close()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set."""
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current end of the log."""
        log = self._log()
        self._target = walk_log(log, log.min_offset, LATEST)
        log.close()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the offset to read up to: whole, synced records, within the limit or one more.

        :raises StoreError: when messages were lost, unless ``failOnDataLoss`` is false.
        """
        log = self._log()
        try:
            begin = self._resumed(log, StreamOffset.from_json(start))
            stop, most = LATEST, self._most
            if isinstance(limit, ReadMaxBytes):
                stop = begin.physical_offset + limit.max_bytes
            elif isinstance(limit, ReadAllAvailable):
                most = None
            else:
                stop = begin.physical_offset + self._max_bytes
            end = self._moved(log, begin, stop, most)
            return start if end.physical_offset <= begin.physical_offset else end.to_json()
        finally:
            log.close()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split the range between two offsets.

        :raises StoreError: when messages were lost, unless ``failOnDataLoss`` is false.
        """
        log = self._log()
        try:
            begin, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
            if begin.physical_offset != last.physical_offset:
                begin = self._resumed(log, begin)
            if self._is_replaced(log, last):
                # Planned before the log changed: the next micro-batch continues where this one
                # began.
                return []
            if not self._of_entries:
                for low, high in missing(log, begin.physical_offset, last.physical_offset):
                    self._lost(deletion(log, low, high, begin))
            return [
                SharePartition(Share(one, known_start=known_start, placed_end=begin.placed_end))
                for one, known_start in stretches(
                    log,
                    begin.physical_offset,
                    last.physical_offset,
                    self._messages.partition_bytes,
                    self._starts,
                )
            ]
        finally:
            log.close()

    def _resumed(self, log: CommitLog, offset: StreamOffset) -> StreamOffset:
        """Return the offset to continue from: the same one, if the log is still the same."""
        if self._is_replaced(log, offset):
            offset = last_common(log, offset)
        begin = max(offset.physical_offset, log.min_offset)
        if offset.physical_offset < begin and not self._of_entries:
            self._lost(deletion(log, offset.physical_offset, begin, offset))
        return offset._replace(physical_offset=begin)

    def _is_replaced(self, log: CommitLog, offset: StreamOffset) -> bool:
        """Return whether the log is not the one of an offset, according to an earlier check."""
        if not is_replaced(log, offset):
            return False
        if self._of_entries:
            raise StoreError(replacement(log, offset))
        self._lost(replacement(log, offset))
        return True

    def _lost(self, what: str) -> None:
        where = str(self._store)
        self._messages.losses.add(what, "goes on with what is there", where=where)

    def _moved(
        self, log: CommitLog, begin: StreamOffset, stop: int, most: int | None = None
    ) -> StreamOffset:
        """Return the offset that can be read up to from ``begin``, about ``stop`` or ``most``
        records behind it: whole and synced.
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
            # Deleted since it was planned: its records need no index any more.
            nothing = memoryview(b"")
            yield from index_entries.batches(share.log_range, None, nothing, with_tags=False)
            return
        with mapped:
            first = true_start(share.log_range, mapped.view, share.known_start)
            yield from index_entries.batches(
                share.log_range, first, mapped.view, with_tags=self._with_tags
            )

    def _log(self) -> CommitLog:
        return CommitLog.of(self._layout)

    def _synced(self) -> int | None:
        """Return the offset up to which the broker synced the log; None if only RocketLens's
        brokers tell.

        :raises NotAStore: for index entries, when no broker of this project wrote to the store.
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
