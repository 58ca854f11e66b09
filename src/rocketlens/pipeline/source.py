"""The data source ``rocketmq``: a store's messages as a Spark table, read as Arrow batches.

::

    spark.read.format("rocketmq").option("store", DIR).load()

====================  ===========================================================================
option                meaning (names are case-insensitive)
====================  ===========================================================================
store                 the store directory, which all executors must see; ``load(DIR)`` does too
topic                 only these topics, separated by commas; ``*`` and ``?`` match any characters
allowUnknownTopic     ``true``: a topic that neither configuration nor consume queues name is no
                      error; messages of a deleted topic may still be in the log
startingTimestamp     only messages stored at or after this, epoch milliseconds
endingTimestamp       only messages stored at or before this, epoch milliseconds
startingOffset        only messages at or after this physical offset
endingOffset          only messages before this physical offset
minPartitions         at least so many partitions, if the log is large enough
maxPartitionBytes     at most so many bytes of log in a partition; 128 MiB
body                  ``false``: the columns ``body`` and ``body_error`` are null
checkCrc              ``false``: records are not compared with their checksums
failOnDataLoss        ``true``: the job fails when a broker deletes a segment that it is to read
table                 ``messages``, or ``damage``: what could not be read, see below
filterPushdown        ``true``: prune by the query's own filters, see below
====================  ===========================================================================

Options that are not in this table, and topics that the store does not have, are refused.

``spark.readStream`` gives the messages as they are appended: :mod:`rocketlens.pipeline.stream`.

**What cannot be read is left out, never an error, and never silent:** the same read with
``table=damage`` gives a row for each place of the log without a readable record, and each record
that does not have its checksum. It is empty for a sound log. A body that cannot be decompressed is
no damage: it is there as it is stored, and ``body_error`` says why. What a running broker deletes
between the planning of a read and the reading is left out, too, and a warning in the executor's log
names it; with ``failOnDataLoss=true`` the job fails instead. A segment that cannot be opened for
any other reason always fails the task, which Spark repeats.

**Pruning.** The options skip work without any setting: partitions outside the offsets are not
made, and of records outside the topics and times no column is built. With ``filterPushdown=true``
and the conf ``spark.sql.python.filterPushdown.enabled=true`` (both are needed) filters on topic,
times and offsets do the same. Spark evaluates every filter again, so they are never half applied.

That option is off unless asked for because of Spark (seen in 4.1 to 4.2): it keeps *one* pruned
plan for each ``load()``, so a DataFrame that is filtered in two ways, or first filtered and then
not, answers from the wrong plan. Ask for it where every query has a ``load()`` of its own.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from rocketlens.errors import BadInput, StoreError
from rocketlens.pipeline.index_entries import INDEX_ENTRY_COLUMNS
from rocketlens.pipeline.options import (
    check_names,
    check_topics,
    choice_option,
    flag_option,
    number_option,
    topic_option,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from rocketlens.pipeline.columns import Place
    from rocketlens.pipeline.ranges import Bytes, LogRange, RangeReader, Rows, Walked
    from rocketlens.store.read.commitlog import CommitLog

_log = logging.getLogger(__name__)

PARTITION_BYTES: Final = 128 << 20
PUSHING_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark runs this module, in a process of its own, when and only when filters may be pushed."""

_INT64: Final = (-(2**63), 2**63 - 1)
_NUMBERS: Final = (
    "physical_offset",
    "store_timestamp_ms",
    "born_timestamp_ms",
    "queue_id",
    "queue_offset",
)
TABLES: Final = ("messages", "damage", "index_entries")
DAMAGE_COLUMNS: Final = "physical_offset bigint, length bigint, reason string"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages to give: bounds are inclusive; no topics means all."""

    topics: frozenset[str] | None = None
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def within(self, column: str, low: int = _INT64[0], high: int = _INT64[1]) -> "Wanted":
        """Narrow a column's bounds."""
        before = self.bounds.get(column, _INT64)
        bounds = {**self.bounds, column: (max(before[0], low), min(before[1], high))}
        return replace(self, bounds=bounds)

    def of_topics(self, topics: Iterable[str]) -> "Wanted":
        """Narrow the topics."""
        these = frozenset(topics)
        return replace(self, topics=these if self.topics is None else self.topics & these)

    def also(self, condition: Filter) -> "Wanted":
        """Narrow by a filter of Spark's, as far as that is understood."""
        value: Any = getattr(condition, "value", None)
        attribute: tuple[str, ...] = getattr(condition, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else ""
        values: tuple[Any, ...] = tuple(value) if isinstance(condition, In) else (value,)
        if column == "topic" and all(isinstance(one, str) for one in values):
            if isinstance(condition, EqualTo | EqualNullSafe | In):
                return self.of_topics(values)
        elif column in _NUMBERS and values and all(type(one) is int for one in values):
            if isinstance(condition, EqualTo | EqualNullSafe | In):
                return self.within(column, min(values), max(values))
            if isinstance(condition, GreaterThan | GreaterThanOrEqual):
                return self.within(column, values[0] + isinstance(condition, GreaterThan))
            if isinstance(condition, LessThan | LessThanOrEqual):
                return self.within(column, high=values[0] - isinstance(condition, LessThan))
        return self


class RocketMQDataSource(DataSource):
    """Spark makes one for each ``load()``. The module's docstring has the options."""

    @classmethod
    def name(cls) -> str:
        """Give the name for ``format(...)``."""
        return "rocketmq"

    def schema(self) -> str:
        """Give the columns of the table asked for."""
        from rocketlens.pipeline.columns import COLUMNS

        table = choice_option(self.options, "table", TABLES)
        if table == "damage":
            return DAMAGE_COLUMNS
        if table == "index_entries":
            return INDEX_ENTRY_COLUMNS
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: "StructType") -> "RocketMQReader":  # noqa: ARG002 - it is ours
        """Give the reader; one that takes filters only where Spark would not refuse it."""
        pushing = PUSHING_WORKER in sys.modules
        if pushing and flag_option(self.options, "filterPushdown", default=False):
            return PushingReader(self.options)
        return RocketMQReader(self.options)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: ARG002, N802
        """Give the reader of a stream. Spark's name."""
        from rocketlens.pipeline.stream import RocketMQStreamReader

        return RocketMQStreamReader(self.options)


class Share(NamedTuple):
    """The work of one task. ``places``: damage that was seen when planning.

    ``ends_log``: zeros at the end of the range are the log's end, not records that are missing.
    ``walk_from``: a position at or before its start at which a record is known to begin.
    """

    log_range: "LogRange | None"
    ends_log: bool = True
    places: "tuple[Place, ...]" = ()
    walk_from: int = 0


class SharePartition(InputPartition):
    """A share, as Spark wants it."""

    def __init__(self, share: Share) -> None:
        """Take the share."""
        super().__init__(share)


class RocketMQReader(DataSourceReader):
    """Plans ranges of the log, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options.

        :raises BadInput: naming the option that can't be used.
        """
        check_names(options, streams=False)
        self.store = options.get("store") or options.get("path") or ""
        if not self.store:
            raise BadInput('say which store to read: .option("store", DIRECTORY)')
        table = choice_option(options, "table", TABLES)
        if table == "index_entries":
            raise BadInput("the table index_entries is for streams: use readStream")
        self.is_damage = table == "damage"
        self.fails_on_loss = flag_option(options, "failOnDataLoss", default=False)
        self.with_body = flag_option(options, "body", default=True)
        self.check_crc = flag_option(options, "checkCrc", default=True)
        self.min_partitions = number_option(options, "minPartitions", 1)
        self.partition_bytes = number_option(options, "maxPartitionBytes", PARTITION_BYTES)
        wanted = Wanted()
        self.asked = topic_option(options)
        self.allows_unknown = flag_option(options, "allowUnknownTopic", default=False)
        wanted = wanted.within(
            "store_timestamp_ms",
            number_option(options, "startingTimestamp", _INT64[0], _INT64[0]),
            number_option(options, "endingTimestamp", _INT64[1], _INT64[0]),
        )
        self.wanted = wanted.within(
            "physical_offset",
            number_option(options, "startingOffset", 0, 0),
            number_option(options, "endingOffset", _INT64[1], 0) - 1,
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges that can hold what is wanted.

        :raises NotAStore: when there is no commit log.
        :raises BadInput: when the store has no topic that was asked for.
        """
        from pathlib import Path

        from rocketlens.pipeline.ranges import cut
        from rocketlens.store.read.commitlog import CommitLog

        log = CommitLog(Path(self.store, "commitlog"))
        self.check_topics()
        if self.is_damage:
            return [SharePartition(share) for share in _whole_segments(log)]
        low, high = self.wanted.bounds["physical_offset"]
        shares = [
            Share(one)
            for one in cut(log, self.partition_bytes, self.min_partitions)
            if one.base_offset + one.start <= high and low < one.base_offset + one.stop
        ]
        return [SharePartition(share) for share in shares or [Share(None)]]

    def check_topics(self) -> None:
        """Refuse topics that the store does not have.

        :raises BadInput: naming the topic, and what was probably meant.
        """
        if not self.allows_unknown:
            check_topics(self.store, self.asked)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the record batches of one share; runs in an executor.

        :raises StoreError: when the broker deleted its segment, if ``failOnDataLoss`` is set.
        :raises OSError: when the segment cannot be opened for another reason; Spark tries again.
        """
        from rocketlens.pipeline.columns import Place

        share: Share = partition.value
        if share.log_range is None:
            return
        try:
            yield from self._read(share, share.log_range)
        except FileNotFoundError as error:
            low = share.log_range.base_offset + share.log_range.start
            length = share.log_range.stop - share.log_range.start
            what = f"physical offsets {low} to {low + length} were deleted while they were read"
            if self.fails_on_loss:
                raise StoreError(
                    f'{what}. option("failOnDataLoss", "false") leaves them out'
                ) from error
            _log.warning("%s: %s", share.log_range.path, what)
            if self.is_damage:
                yield from _damage_batches([*share.places, Place(low, length, _DELETED)])

    def _read(self, share: Share, planned: "LogRange") -> Iterator[Any]:
        from rocketlens.pipeline import ranges

        mapped, content = ranges.open_range(planned)
        with mapped:
            log_range = ranges.true_start(planned, content, share.walk_from)
            if log_range is not None:
                reader = ranges.RangeReader(log_range, content)
                lost = list(share.places)
                yield from self._messages(reader, content, lost)
                if self.is_damage:
                    lost += _unreadable(reader.walked, ends_log=share.ends_log)
                    yield from _damage_batches(lost)
            del content

    def _messages(
        self, reader: "RangeReader", content: "Bytes", lost: "list[Place]"
    ) -> Iterator[Any]:
        """Give the wanted messages of a range, unless only damage is, which goes to ``lost``."""
        from rocketlens.formats import kernels
        from rocketlens.pipeline import columns

        base_offset = reader.walked.log_range.base_offset
        for rows in reader:
            taken = self._choose(rows, content, base_offset)
            if self.check_crc and len(taken):
                is_sound = kernels.crc_ok(content, base_offset, taken)
                lost += [
                    columns.Place(int(row["physical_offset"]), int(row["store_size"]), _CRC)
                    for row in taken[~is_sound]
                ]
                taken = taken if is_sound.all() else taken[is_sound]
            if not self.is_damage:
                yield from columns.batches(content, base_offset, taken, with_body=self.with_body)

    def _choose(self, rows: "Rows", content: "Bytes", base_offset: int) -> "Rows":
        """Give the wanted rows: by their own fields, before any column is built."""
        import numpy as np

        from rocketlens.formats import commitlog_record, kernels

        is_wanted = np.ones(len(rows), np.bool_)
        for column, (low, high) in self.wanted.bounds.items():
            if (low, high) != _INT64:
                is_wanted &= (rows[column] >= low) & (rows[column] <= high)
        if self.wanted.topics is not None or self.asked is not None:
            groups = kernels.group_rows(content, base_offset, rows, by_queue=False)
            starts = (rows["physical_offset"][groups.first_rows] - base_offset).tolist()
            decode = commitlog_record.decode
            topics = [decode(content.data, start, check_crc=False).topic for start in starts]
            of_group = np.array([self._is_wanted(topic) for topic in topics], np.bool_)
            is_wanted &= of_group[groups.group_of_row]
        return rows if is_wanted.all() else rows[is_wanted]

    def _is_wanted(self, topic: str) -> bool:
        pushed = self.wanted.topics
        return (pushed is None or topic in pushed) and (
            self.asked is None or self.asked.matches(topic)
        )


class PushingReader(RocketMQReader):
    """A reader that Spark gives the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Prune by what is understood; have Spark evaluate everything all the same."""
        for condition in filters:
            self.wanted = self.wanted.also(condition)
            yield condition


_CRC: Final = "it does not have its checksum"
_DELETED: Final = "the broker deleted this segment while it was read"


def _whole_segments(log: "CommitLog") -> list[Share]:
    """Give a share for each segment, whose damage is so told as a whole."""
    from rocketlens.pipeline.columns import Place
    from rocketlens.pipeline.ranges import LogRange, is_unwritten

    shares: list[Share] = []
    ends_log = True
    following: int | None = None
    for segment in reversed(log.segments):
        whole = LogRange(
            str(segment.path), segment.base_offset, segment.size, 0, segment.size, known=True
        )
        missing = 0 if following is None else following - segment.end_offset
        gap = Place(segment.end_offset, missing, "no segment file holds these")
        shares.append(Share(whole, ends_log, (gap,) if missing > 0 else ()))
        ends_log = ends_log and is_unwritten(segment)
        following = segment.base_offset
    return shares[::-1]


def _unreadable(walked: "Walked", *, ends_log: bool) -> "list[Place]":
    """Give the damaged places of a whole segment."""
    from rocketlens.pipeline.columns import Place
    from rocketlens.pipeline.ranges import NOTHING_WRITTEN, Ending

    lost = [
        Place(place.start_offset, place.stop_offset - place.start_offset, place.reason)
        for place in walked.damage
    ]
    rest = walked.log_range.stop - walked.next_position
    is_end = ends_log and walked.reason == NOTHING_WRITTEN
    if walked.ending is Ending.OPEN and rest > 0 and not is_end:
        lost.append(Place(walked.log_range.base_offset + walked.next_position, rest, walked.reason))
    return lost


def _damage_batches(lost: "Sequence[Place]") -> Iterator[Any]:
    import pyarrow as pa

    if lost:
        offsets, lengths, reasons = zip(*sorted(lost), strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(offsets, pa.int64()),
                pa.array(lengths, pa.int64()),
                pa.array(reasons, pa.string()),
            ],
            ["physical_offset", "length", "reason"],
        )
