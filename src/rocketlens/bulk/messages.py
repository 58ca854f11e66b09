"""Reads the messages of a store, or the damage of its log, as Arrow record batches.

:class:`BatchScan` plans the ranges to read, and reads one. The data source ``rocketmq`` reads them
in Spark's tasks, and :func:`read_batches` one after the other. The options are in
:data:`rocketlens.bulk.options.OPTIONS`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from rocketlens.bulk.options import (
    BODY_VALUES,
    TopicSelection,
    check_topics,
    choice_option,
    flag_option,
    known_options,
    number_option,
    time_option,
    topic_option,
)
from rocketlens.bulk.positions import (
    EARLIEST,
    LATEST,
    AskedQueue,
    Positions,
    StoreQueues,
    check_one_broker,
    check_range,
    positions_option,
)
from rocketlens.bulk.ranges import (
    NOTHING_WRITTEN,
    LogRange,
    RangeEnding,
    RangeReader,
    Walked,
    cut,
    is_unwritten,
    open_range,
    true_start,
)
from rocketlens.errors import BadInput, StoreError
from rocketlens.formats import batch_rows, columns
from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import message_of
from rocketlens.formats.rows import Rows
from rocketlens.late import np, npt, pa
from rocketlens.model.arrow import batches_of
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.query.store_reader import StoreReader
from rocketlens.query.tiered import outside_log
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.log_evidence import LostEnd, lost_begin_of, lost_end_of
from rocketlens.store.read.log.scan import NO_SEGMENT, Damage, first_copies

_log = logging.getLogger(__name__)

TABLES: Final = ("messages", "damage")
PARTITION_BYTES: Final = 128 << 20
DAMAGE_COLUMNS: Final = "physical_offset bigint, length bigint, reason string"
INT64: Final = (-(2**63), 2**63 - 1)
_ANYWHERE: Final = INT64
_OFFSETS: Final = ("startingOffset", "endingOffset")

_CRC: Final = "its checksum is wrong"
_BATCH: Final = "it is a batch that cannot be taken apart into its messages"
_DELETED: Final = "the broker deleted this segment while it was read"


def read_batches(
    store: str | PathLike[str] | None = None, **options: str | int | bool | PathLike[str]
) -> "Iterator[pa.RecordBatch]":
    """Return the messages of a store as Arrow record batches, without Spark.

    ``store`` is its directory or its ``broker.conf``. The option ``brokerConf`` can name the latter
    instead.

    Columns, options and the messages left out are those of ``spark.read.format("rocketmq")``:
    ``read_batches(DIR, topic="Orders", startingTimestamp=1_700_000_000_000, body=False)``, or
    ``read_batches(DIR, table="damage")``. The batches are in log order, with at most 16,384 rows
    each, and are read lazily: about 0.1 s for 64 MiB of log. Needs pyarrow.

    :raises NotAStore: if there is no commit log.
    :raises BadInput: if an option or its value is not valid, or the store does not have the topic.
    :raises StoreError: while reading, if the broker deletes a segment before it is read and
        ``failOnDataLoss`` is set; without the option a warning is logged, and the rest is read.
    :raises OSError: while reading, if a segment cannot be opened.
    """
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    named = {} if store is None else {"store": str(store)}
    scan = BatchScan(named | known_options(texts, "read_batches"))
    shares = scan.shares()
    return (batch for share in shares for batch in scan.read(share))


class Losses(Struct):
    """Fails the job for messages that cannot be read, or logs each loss once."""

    fails: bool
    lines: list[str] | None = None
    """Collects losses instead of logging them, unless it is None."""
    _logged: set[str] = field(default_factory=set)

    def add(self, what: str, remedy: str = "reads what is there", *, where: str = "") -> None:
        """Record that messages in ``where`` are lost.

        :raises StoreError: if ``fails``. ``remedy``: the effect of the option that avoids the
            error.
        """
        if self.fails:
            raise StoreError(f'{what}. option("failOnDataLoss", "false") {remedy}')
        if self.lines is not None:
            self.lines.append(what)
        else:
            self.warn(f"{where}: {what}" if where else what)

    def warn(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            _log.warning("%s", text)


class Share(NamedTuple):
    """The work of one task.

    ``zeros_end_log``: zeros at the end of the range are the log's end, not missing records.
    ``damage``: damage found by the planner. ``known_start``: a position at or before the range's
    start at which a record begins. ``placed_end``: the physical offset up to which positions of
    queues count. ``is_of_queue``: the range is in the log of one queue, in tiered storage.
    """

    log_range: LogRange | None
    zeros_end_log: bool = True
    damage: tuple[Damage, ...] = ()
    known_start: int = 0
    placed_end: int = INT64[1]
    is_of_queue: bool = False


def _store_option(options: Mapping[str, str]) -> str:
    """Return the path of the store in the options."""
    named = {name: options[name] for name in ("store", "brokerConf", "path") if options.get(name)}
    if not named:
        raise BadInput('the option store is missing: .option("store", DIRECTORY)')
    if "brokerConf" in named and len(named) > 1:
        raise BadInput("both store and brokerConf are given: give only one")
    return next(iter(named.values()))


class BatchScan:
    """Plans the ranges of the log that can have matching messages, and reads one."""

    def __init__(self, options: Mapping[str, str], *, is_stream: bool = False) -> None:
        """Check the values of options, whose names :func:`known_options` has checked."""
        self.store: Final = _store_option(options)
        self.with_derived = True
        """Whether batches have the columns of `rocketlens.formats.columns.DERIVED`, too. Those with
        members of batch records always have them.
        """
        self.is_damage = choice_option(options, "table", TABLES) == "damage"
        self.losses: Final = Losses(fails=flag_option(options, "failOnDataLoss", default=False))
        self._lost_ends: Final = Losses(fails=flag_option(options, "failOnDataLoss", default=True))
        form = choice_option(options, "body", BODY_VALUES)
        self.with_body: Final = form != "false"
        self.with_text = form == "true"
        self.check_crc = flag_option(options, "checkCrc", default=True)
        self.min_partitions = number_option(options, "minPartitions", 1)
        self.partition_bytes = number_option(options, "maxPartitionBytes", PARTITION_BYTES)
        self.topics = topic_option(options)
        self.allows_unknown = flag_option(options, "allowUnknownTopic", default=False)
        has_topic = None if self.topics is None else self.topics.matches
        refused = None if is_stream else LATEST
        starts, ends = "startingOffsets", "endingOffsets"
        self.starts = positions_option(options, starts, refused=refused, has_topic=has_topic)
        self.ends = positions_option(options, ends, refused=EARLIEST, has_topic=has_topic)
        self.placed = _placed(self.starts, self.ends)
        if self.placed and self.is_damage:
            raise BadInput("the table damage has no queues, so positions of queues do not apply")
        # Messages in tiered storage have no offsets in the log.
        self.is_part_of_log: Final = not options.keys().isdisjoint(_OFFSETS)
        self.bounds: Final = {
            "store_timestamp_ms": (
                time_option(options, "startingTimestamp", INT64[0]),
                time_option(options, "endingTimestamp", INT64[1]),
            ),
            "physical_offset": (
                number_option(options, "startingOffset", 0, 0),
                number_option(options, "endingOffset", INT64[1], 0) - 1,
            ),
        }
        """The lowest and highest values of columns, both inclusive."""

    def shares(self) -> list[Share]:
        """Return the ranges that can have matching rows, in log order.

        :raises NotAStore: if there is no commit log.
        :raises BadInput: if the store does not have a topic.
        :raises StoreError: if other files of the store show that messages at either end of the log
            are lost, unless ``failOnDataLoss`` is ``false``.
        """
        layout = StoreLayout.of(Path(self.store))
        log = CommitLog.of(layout)
        self.check_topics()
        for what in self.positions_outside():
            self.losses.add(what, where=self.store)
        before, after = self._lost_begin(layout, log), lost_end_of(layout, log, self._has_topic)
        if self.is_damage:
            return _whole_segments(log, before, after)
        for text in (before, after and after.text):
            if text:
                self._lost_ends.add(f"{self.store}: {text}", "reads the others")
        low, high = self.bounds["physical_offset"]
        of_log = [
            Share(one)
            for one in cut(log, self.partition_bytes, self.min_partitions)
            if one.base_offset + one.start <= high and low < one.base_offset + one.stop
        ]
        return of_log if self.is_part_of_log else [*self._tiered(layout), *of_log]

    def _tiered(self, layout: StoreLayout) -> Iterator[Share]:
        """Yield the files of messages that only tiered storage has.

        :raises StoreError: if a file is lost, unless ``failOnDataLoss`` is ``false``.
        """
        with closing(StoreReader(layout)) as reader:
            begin, _ = self.bounds["store_timestamp_ms"]
            if not reader.tiered.is_needed(begin):
                return
            logs, lost = reader.tiered.logs(lambda queue: self._has_topic(queue.topic))
            for each in lost:
                self._lost_ends.add(f"{self.store}: {each.error}", "reads the others")
            for _, log in logs:
                whole = log.log.max_offset
                yield from (Share(one, is_of_queue=True) for one in cut(log.log, whole))

    def _lost_begin(self, layout: StoreLayout, log: CommitLog) -> str | None:
        """Return `lost_begin_of` if messages before the log could be rows."""
        bounds = self.bounds
        if bounds["physical_offset"][0] >= log.min_offset:
            return None
        return lost_begin_of(layout, log, bounds["store_timestamp_ms"][0])

    def check_topics(self) -> None:
        """Check that the store has the topics."""
        if not self.allows_unknown:
            check_topics(self.store, self.topics)
            if self.placed:
                topics = frozenset(topic for topic, _ in self.placed)
                check_topics(self.store, TopicSelection(topics, ()))

    def positions_outside(self) -> list[str]:
        """Return a line for each position outside its queue.

        :raises BadInput: if the store does not have a queue.
        """
        if not self.placed:
            return []
        lines: list[str] = []
        with closing(StoreQueues(self.store)) as queues:
            for positions in (self.starts, self.ends):
                for (topic, queue_id), offset in positions.of_one_broker().items():
                    queue = AskedQueue(topic, None, queue_id)
                    bounds = queues.bounds(topic, queue_id)
                    if bounds is not None and offset >= 0:
                        lines += positions.outside(queue, offset, bounds)
                    elif not self.allows_unknown and queues.is_unknown(topic, queue_id):
                        raise positions.missing(queue, "the store")
        return lines

    def read(self, share: Share) -> Iterator[Any]:
        """Yield the record batches of one share, in any process.

        :raises StoreError: if the broker deleted the segment and ``failOnDataLoss`` is set.
        """
        if share.log_range is None:
            return
        try:
            yield from self._read(share, share.log_range)
        except FileNotFoundError:
            low = share.log_range.base_offset + share.log_range.start
            high = share.log_range.base_offset + share.log_range.stop
            what = f"physical offsets {low} to {high} were deleted while they were read"
            self.losses.add(what, "leaves them out", where=share.log_range.path)
            if self.is_damage:
                yield from _damage_batches([*share.damage, Damage(low, high, _DELETED)])

    def _read(self, share: Share, planned: LogRange) -> Iterator[Any]:
        with open_range(planned) as mapped:
            log_range = true_start(planned, mapped.view, share.known_start)
            if log_range is not None:
                reader = RangeReader(log_range, mapped.view)
                damage = list(share.damage)
                yield from self._messages(reader, damage, share)
                if self.losses.lines is not None:
                    # All of the range was written: it ends at the end of a record.
                    damage += _damage_of(reader.walked, zeros_end_log=False)
                    self.losses.lines.extend(map(str, sorted(damage)))
                elif self.is_damage:
                    damage += _damage_of(reader.walked, zeros_end_log=share.zeros_end_log)
                    yield from _damage_batches(damage)

    def _messages(self, reader: RangeReader, damage: list[Damage], share: Share) -> Iterator[Any]:
        """Yield the batches of a range, and add its damage; for a scan of damage, yield nothing."""
        last, offsets = -1, None
        for read in reader:
            rows = read
            if share.is_of_queue:
                mask, last = first_copies(read.column("queue_offset"), last)
                rows = read.compress(mask)
            for is_batch, run in batch_rows.runs(rows):
                if is_batch and not self.is_damage:
                    sound = self._sound(run, damage)
                    if self.losses.lines is not None:
                        damage += _unread_batches(sound)
                    yield from self._of_batches(sound, share)
                    continue
                chosen = self._sound(run.compress(self._choose(run, share).tobytes()), damage)
                if is_batch:
                    damage += _unread_batches(chosen)
                if share.is_of_queue:
                    offsets = np.full(len(chosen), NOT_IN_LOG, np.int64)
                if not self.is_damage:
                    yield from columns.batches(
                        chosen,
                        with_body=self.with_body,
                        with_derived=self.with_derived,
                        with_text=self.with_text,
                        physical_offsets=offsets,
                    )

    def _of_batches(self, rows: Rows, share: Share) -> Iterator[Any]:
        """Yield the messages of batch records as Arrow batches."""
        for piece, messages in batch_rows.messages_of(rows):
            chosen = compress(messages, self._choose(piece, share))
            records = map(outside_log, chosen) if share.is_of_queue else chosen
            messages_read = map(message_of, records)
            yield from batches_of(messages_read, with_body=self.with_body, with_text=self.with_text)

    def _sound(self, rows: Rows, damage: list[Damage]) -> Rows:
        """Return the rows with correct checksums, and add the others to ``damage``."""
        if not self.check_crc or not len(rows):
            return rows
        mask = rows.sound()
        sizes = rows.column("store_size")
        for number, is_sound in enumerate(mask if 0 in mask else ()):
            if not is_sound:
                start = rows.column("physical_offset")[number]
                damage.append(Damage(start, start + sizes[number], _CRC))
        return rows.compress(mask)

    def _choose(self, rows: Rows, share: Share) -> "npt.NDArray[np.bool_]":
        """Return for each row whether it matches the filter, before any column is built."""
        fields = rows.as_array
        is_chosen = np.ones(len(rows), np.bool_)
        for column, (low, high) in self.bounds.items():
            is_known = not (share.is_of_queue and column == "physical_offset")
            if (low, high) != INT64 and is_known:
                is_chosen &= (fields[column] >= low) & (fields[column] <= high)
        if self.topics is not None:
            topics = rows.topics()
            of_topic = np.array(list(map(self._has_topic, topics.names)), np.bool_)
            is_chosen &= of_topic[topics.number_of_row]
        if self.placed and len(rows):
            names, number_of_row = rows.queue_names()
            placed = np.array([self.placed.get(name, _ANYWHERE) for name in names], np.int64)
            low, high = placed[number_of_row].T
            is_in = (fields["queue_offset"] >= low) & (fields["queue_offset"] < high)
            is_chosen &= is_in | (fields["physical_offset"] >= share.placed_end)
        return is_chosen

    def _has_topic(self, topic: str) -> bool:
        return self.topics is None or self.topics.matches(topic)


def _placed(starts: Positions, ends: Positions) -> dict[tuple[str, int], tuple[int, int]]:
    """Return for queues of a store the first queue offset to read, and the one after the last.

    :raises BadInput: if the first is after the last, or several brokers are named.
    """
    check_one_broker(starts, ends)
    of_starts, of_ends = starts.of_one_broker(), ends.of_one_broker()
    placed: dict[tuple[str, int], tuple[int, int]] = {}
    for name in of_starts | of_ends:
        start, end = of_starts.get(name, EARLIEST), of_ends.get(name, LATEST)
        check_range(AskedQueue(name[0], None, name[1]), starts, start, ends, end)
        low = INT64[1] if start == LATEST else start
        placed[name] = low, INT64[1] if end == LATEST else end
    return placed


def _whole_segments(log: CommitLog, before: str | None, after: LostEnd | None) -> list[Share]:
    """Return a share for each segment, so that its damage is reported as a whole.

    The first and the last share also have the messages lost before and after the log.
    """
    shares: list[Share] = []
    zeros_end_log = True
    following: int | None = None
    for segment in reversed(log.segments):
        end = segment.end_offset
        whole = LogRange(
            str(segment.path), segment.base_offset, segment.size, 0, segment.size, known=True
        )
        gap: tuple[Damage, ...] = ()
        if following is not None and following > end:
            gap = (Damage(end, following, NO_SEGMENT),)
        shares.append(Share(whole, zeros_end_log, gap))
        zeros_end_log = zeros_end_log and is_unwritten(segment)
        following = segment.base_offset
    if after is not None:
        end = log.max_offset
        stop = end if after.physical_offset is None else max(after.physical_offset, end)
        shares[0] = shares[0]._replace(damage=(Damage(end, stop, after.text),))
    if before is not None:
        damage = (Damage(0, log.min_offset, before), *shares[-1].damage)
        shares[-1] = shares[-1]._replace(damage=damage)
    return shares[::-1]


def _unread_batches(rows: Rows) -> Iterator[Damage]:
    """Yield the batch records that cannot be split into their messages."""
    for record in rows.records():
        start = record.physical_offset
        if not records_in(record):
            yield Damage(start, start + record.total_size, _BATCH)


def _damage_of(walked: Walked, *, zeros_end_log: bool) -> list[Damage]:
    """Return the damage of a whole range, including its end."""
    damage = list(walked.damage)
    base, rest = walked.log_range.base_offset, walked.log_range.stop - walked.next_position
    is_end = zeros_end_log and walked.reason == NOTHING_WRITTEN
    if walked.ending is RangeEnding.OPEN and rest > 0 and not is_end:
        damage.append(
            Damage(base + walked.next_position, base + walked.log_range.stop, walked.reason)
        )
    return damage


def _damage_batches(damage: Sequence[Damage]) -> Iterator[Any]:
    if damage:
        rows = [(one.start, one.stop - one.start, one.reason) for one in sorted(damage)]
        offsets, lengths, reasons = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(offsets, pa.int64()),
                pa.array(lengths, pa.int64()),
                pa.array(reasons, pa.string()),
            ],
            ["physical_offset", "length", "reason"],
        )
