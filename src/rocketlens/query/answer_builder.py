"""Builds one answer: distinct messages in order, limited in number and bytes.

`AnswerMessages` keeps the newest (or oldest) messages, up to the requested number and
`rocketlens.limits.MAX_ANSWER_BYTES`. Each source adds messages and coverage to its own `Findings`;
the `Findings` of several sources share one `AnswerMessages`.

A message that would be dropped is not decompressed: a body of 64 KB can expand to 64 MiB.
"""

import sys
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.formats.commitlog_record import Origin, Record, message_of
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import both
from rocketlens.query.tally import SearchTally
from rocketlens.wire.bodies.static_topics import StaticTopic

if TYPE_CHECKING:
    from rocketlens.errors import TopicNotFound

TEXT_OVERHEAD_BYTES: Final = 100
"""Memory of a property besides its two texts, in bytes."""
_Rank = tuple[Any, ...]
"""Sort key and identity of a message: the lowest is dropped first."""


class AnswerMessages:
    """The newest (or with ``oldest`` the oldest) messages, up to ``max_num`` (None: all).

    Ordered by store time, then by broker and offset; with ``in_log_order``, all messages are from
    one log and in its order. ``truncated`` is true after a message was dropped. Thread-safe.
    """

    def __init__(
        self,
        max_num: int | None,
        *,
        oldest: bool = False,
        in_log_order: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        """``max_bytes`` limits the memory (None: `rocketlens.limits.MAX_ANSWER_BYTES`)."""
        self.max_num: Final = max_num
        self.oldest: Final = oldest
        self._max_bytes: Final = limits.MAX_ANSWER_BYTES if max_bytes is None else max_bytes
        self.truncated = False
        self.is_over_bytes = False
        """Whether a message was dropped because of the memory limit."""
        self._sign: Final = -1 if oldest else 1
        self._order: Final = _order_in_log if in_log_order else order_in_time
        self._messages: dict[_Rank, MessageExt] = {}
        self._holders: Final[dict[_Rank, tuple[str, ...]]] = {}
        self._ranks: list[_Rank] = []
        """A heap after the first message was dropped."""
        self._is_heap = False
        self._bytes = 0
        self._left_out: _Rank | None = None
        """The highest dropped rank: lower ones are not kept."""
        self._lock: Final = Lock()

    def __len__(self) -> int:
        return len(self._messages)

    def is_past(self, store_timestamp_ms: int) -> bool:
        """Return True if messages up to this time can be skipped.

        For sources that read from the newest message on.
        """
        return not self.oldest and not self.may_keep(store_timestamp_ms)

    def may_keep(self, store_timestamp_ms: int) -> bool:
        kept: bool = self._left_out is None or self._sign * store_timestamp_ms >= self._left_out[0]
        return kept

    def is_past_rank(self, rank: _Rank) -> bool:
        """Return True if messages with lower ranks (`order_in_time`) can be skipped."""
        with self._lock:
            if self._left_out is None or self.oldest or not self._ranks:
                return False
            self._make_heap()
            past: bool = rank <= self._ranks[0]
            return past

    def take(self, record: Record, source: str = "") -> MessageExt | None:
        """Add a record's message and return it; None if it is dropped or already added.

        ``source`` is the name of the source, if there are several.
        """
        rank = self._order(record, self._sign)
        with self._lock:
            if self._is_there(rank, source) or not self._would_keep(rank):
                return None
            return self._add(rank, message_of(record), source)

    def add(self, message: MessageExt, source: str = "") -> MessageExt | None:
        """Add a message and return it; None if it is dropped or already added.

        A copy whose body could be decompressed replaces one whose body could not.
        """
        rank = self._order(message, self._sign)
        with self._lock:
            if self._is_there(rank, source):
                if self._messages[rank].body_error and not message.body_error:
                    self._messages[rank] = message
                return None
            return self._add(rank, message, source) if self._would_keep(rank) else None

    def _is_there(self, rank: _Rank, source: str) -> bool:
        if rank not in self._messages:
            return False
        holders = self._holders.get(rank, ())
        if source not in holders:
            self._holders[rank] = (*holders, source)
        return True

    def in_order(self) -> tuple[MessageExt, ...]:
        with self._lock:
            # A source can still add messages after its timeout.
            messages = dict(self._messages)
        if self._sign > 0:
            return tuple(map(messages.__getitem__, sorted(messages)))
        return tuple(sorted(messages.values(), key=self._order))

    def holders_of(
        self, messages: Sequence[MessageExt], sources: Sequence[str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return for each message the names of its sources; empty for a single source."""
        if len(sources) < 2:
            return ()
        held = (self._holders.get(self._order(each, self._sign), ()) for each in messages)
        return tuple(tuple(name for name in sources if name in names) for names in held)

    def _would_keep(self, rank: _Rank) -> bool:
        if self._left_out is not None and rank < self._left_out:
            self.truncated = True
            return False
        if self.max_num is None or len(self._ranks) < self.max_num:
            return True
        self.truncated = True
        self._make_heap()
        if self._ranks and rank > self._ranks[0]:
            return True
        self._left_out = rank if self._left_out is None else max(self._left_out, rank)
        return False

    def _add(self, rank: _Rank, message: MessageExt, source: str) -> MessageExt:
        self._messages[rank] = message
        if source:
            self._holders[rank] = (source,)
        if self._is_heap:
            heappush(self._ranks, rank)
        else:
            self._ranks.append(rank)
        self._bytes += memory_bytes(message)
        most = len(self._ranks) if self.max_num is None else self.max_num
        while len(self._ranks) > most or self._bytes > self._max_bytes:
            self.is_over_bytes |= self._bytes > self._max_bytes
            self._make_heap()
            left_out = heappop(self._ranks)
            self._bytes -= memory_bytes(self._messages.pop(left_out))
            self._holders.pop(left_out, None)
            self._left_out = left_out if self._left_out is None else max(self._left_out, left_out)
            self.truncated = True
        return message

    def _make_heap(self) -> None:
        if not self._is_heap:
            heapify(self._ranks)
            self._is_heap = True


OnRead = Callable[[int, int | None, int], object]
"""Called with the bytes read so far, the bytes to read (None if unknown) and the messages read."""


def to_logical(record: Record, static: StaticTopic | None, broker_name: str) -> Record:
    """Return the record of a static topic with its logical queue position, others unchanged."""
    if static is None:
        return record
    there = static.logical(broker_name, record.queue_id, record.queue_offset)
    if there is None:
        return record
    return replace(record, queue_id=there.queue_id, queue_offset=there.queue_offset)


class Findings:
    """The messages and the coverage of one source.

    ``unknown`` has an error for each requested topic or pattern that the source does not have.
    ``indexed_to_ms`` is the store time of the newest message that was searched.
    """

    def __init__(
        self,
        messages: AnswerMessages,
        on_added: Callable[[MessageExt], None] | None = None,
        on_read: OnRead | None = None,
        *,
        source: str = "",
        tally: SearchTally | None = None,
    ) -> None:
        """``messages`` can be shared by several sources; ``source`` is the name of this one.

        ``on_added`` is called with each added message, in the thread that adds it; the message can
        be dropped later. ``on_read`` is called while a source reads many messages.
        """
        self.messages: Final = messages
        self.on_added: Final = on_added
        self._source: Final = source
        self._on_read: Final = on_read
        self._read_bytes = 0
        self._read_count = 0
        self.count = 0
        """Messages that this source added, including dropped ones."""
        self.tally: Final = tally or SearchTally()
        """Messages that filters left out or could not decide on; part of the coverage."""
        self.unknown: dict[str, TopicNotFound] = {}
        self.indexed_to_ms = 0
        self.has_kept = False
        """Whether the source also searched the messages that brokers keep for the topics."""
        self.to_logical: Callable[[Record], Record] | None = None
        """Converts the position of a record to that in its logical queue."""
        self.is_abandoned = False
        """Whether the caller no longer waits: a long search ends at its next step."""
        self._coverage: tuple[Coverage, ...] | list[Coverage] = ()
        self._numbers: dict[tuple[str | None, ...], int] = {}
        """The index of each entry without offsets in the coverage."""

    def take(self, record: Record) -> bool:
        """Add a record's message; return False if the source can stop.

        It can after more than ``max_num`` messages, in any order, or if the memory limit is hit.
        """
        self.count += 1
        if self.to_logical is not None:
            record = self.to_logical(record)
        added = self.messages.take(record, self._source)
        if self.on_added is not None:
            self._report(added)
        return self._may_take_more

    def take_all(self, records: Sequence[Record]) -> bool:
        """Add the messages of one record, starting with those that are kept; return as `take`."""
        if len(records) == 1:
            return self.take(records[0])
        return all(map(self.take, records if self.messages.oldest else reversed(records)))

    def add(self, message: MessageExt) -> bool:
        """Add a message; return as `take`."""
        self.count += 1
        self._report(self.messages.add(message, self._source))
        return self._may_take_more

    def _report(self, added: MessageExt | None) -> None:
        if added is not None and self.on_added is not None:
            self.on_added(added)

    def add_read(self, stored_bytes: int, count: int) -> bool:
        """Report that a source read more messages; return False to stop it."""
        self._read_bytes += stored_bytes
        self._read_count += count
        return self.report_read(self._read_bytes, None, self._read_count)

    def report_read(self, read_bytes: int, total_bytes: int | None, messages: int) -> bool:
        """Report the total progress of a source; return False to stop it."""
        goes_on = None
        if self._on_read is not None:
            goes_on = self._on_read(read_bytes, total_bytes, messages)
        return not self.is_abandoned and goes_on is not False

    def add_part(self, part: "Findings") -> None:
        """Add the count and coverage of a part of this source, which shares its tally."""
        self.count += part.count
        self.cover(part.searched)
        self.indexed_to_ms = max(self.indexed_to_ms, part.indexed_to_ms)

    def is_past(self, store_timestamp_ms: int) -> bool:
        """Return True if messages up to this time can be skipped."""
        return self.messages.is_past(store_timestamp_ms)

    @property
    def _may_take_more(self) -> bool:
        max_num = self.messages.max_num
        return (max_num is None or self.count <= max_num) and not self.messages.is_over_bytes

    def cover(self, coverage: tuple[Coverage, ...]) -> None:
        """Add coverage; repeated brokers and failures are merged.

        The first tuple is kept unchanged: a store can have thousands of files.
        """
        if not self._coverage:
            self._coverage = coverage
            return
        if isinstance(self._coverage, tuple):
            first, self._coverage = self._coverage, []
            self._merge(self._coverage, first)
        self._merge(self._coverage, coverage)

    def _merge(self, merged: list[Coverage], coverage: tuple[Coverage, ...]) -> None:
        for each in coverage:
            if each.begin_offset is not None:
                # No two searches read the same range of a log.
                merged.append(each)
                continue
            state = each.source, each.state, each.error, each.note
            number = self._numbers.setdefault(state, len(merged))
            if number == len(merged):
                merged.append(each)
                continue
            relies_on = both(merged[number].relies_on, each.relies_on)
            if (each.indexed_to_ms or 0) > (merged[number].indexed_to_ms or 0):
                merged[number] = each
            if merged[number].relies_on != relies_on:
                merged[number] = replace(merged[number], relies_on=relies_on)

    @property
    def searched(self) -> tuple[Coverage, ...]:
        """The coverage without the entries of the tally."""
        return tuple(self._coverage)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage, including the entries of the tally."""
        undecided = self.tally.coverage()
        return (*self.searched, *undecided) if undecided else self.searched

    @property
    def is_complete(self) -> bool:
        return Answer("", (), self.coverage).complete

    def answer(self, query: str) -> Answer:
        return Answer(
            query,
            self.messages.in_order(),
            self.coverage,
            truncated=self.messages.truncated,
            index_last_update_timestamp_ms=self.indexed_to_ms,
        )


class PlacedFindings(Findings):
    """Adds one broker's records to other findings, with origin and logical position."""

    def __init__(self, findings: Findings, static: StaticTopic | None, origin: Origin) -> None:
        super().__init__(findings.messages, tally=findings.tally)
        self._findings: Final = findings
        self._static: Final = static
        self._origin: Final = origin

    def take(self, record: Record) -> bool:
        record = to_logical(record, self._static, self._origin[1] or "")
        return self._findings.take(replace(record, origin=self._origin))

    def add_read(self, stored_bytes: int, count: int) -> bool:
        return self._findings.add_read(stored_bytes, count)


def memory_bytes(message: MessageExt) -> int:
    """Estimate the memory of a message in bytes. O(properties and keys).

    Properties of 32 KB can be 8,000 texts, which take ten times as much.
    """
    texts = (*message.properties, *message.properties.values(), *message.keys)
    overhead = limits.MESSAGE_OVERHEAD_BYTES + TEXT_OVERHEAD_BYTES * len(message.properties)
    return overhead + len(message.body) + sum(map(sys.getsizeof, texts))


def _order_in_log(stored: Record | MessageExt, sign: int = 1) -> _Rank:
    # Messages of a batch have the same physical offset.
    return sign * stored.physical_offset, sign * stored.queue_offset


def order_in_time(stored: Record | MessageExt, sign: int = 1) -> _Rank:
    """Return the store time, followed by the rest of the message's identity; ``sign`` is -1 for
    descending time.

    Brokers in different networks can have the same address and offsets.
    """
    return (
        sign * stored.store_timestamp_ms,
        stored.store_host,
        sign * stored.physical_offset,
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.body_crc,
    )
