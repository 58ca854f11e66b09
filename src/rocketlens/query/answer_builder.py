"""Builds one answer: its messages in order, each once, within the bounds of number and bytes.

`AnswerMessages` keeps the newest messages, or the oldest: as many as were asked for, and as fit
into `rocketlens.limits.MAX_ANSWER_BYTES`. Each source adds to its own `Findings`: messages, and
where it looked. Several sources share one `AnswerMessages`.

What is left out is neither decompressed nor kept: a body of 64 KB can grow to 64 MiB, so whether a
message would be kept is decided before its body is looked at.
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
"""What a property takes in memory beside its two texts: its part of a table."""
_Rank = tuple[Any, ...]
"""Order and identity of messages: the lowest is dropped first."""


class AnswerMessages:
    """The newest ``max_num`` messages (None: all), and no more than an answer can hold.

    With ``oldest`` the oldest are kept instead. They are ordered by store time, then broker by
    broker in the order of their logs; with ``in_log_order`` all are of one log, and are in its
    order. ``truncated`` says whether a message was left out. Several threads may add to it.
    """

    def __init__(
        self,
        max_num: int | None,
        *,
        oldest: bool = False,
        in_log_order: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        """Create an empty collection, whose messages take up to ``max_bytes`` of memory (None:
        `rocketlens.limits.MAX_ANSWER_BYTES`).
        """
        self.max_num: Final = max_num
        self.oldest: Final = oldest
        self._max_bytes: Final = limits.MAX_ANSWER_BYTES if max_bytes is None else max_bytes
        self.truncated = False
        self.is_over_bytes = False
        """Whether a message was dropped because the others take so much memory."""
        self._sign: Final = -1 if oldest else 1
        self._order: Final = _order_in_log if in_log_order else order_in_time
        self._messages: dict[_Rank, MessageExt] = {}
        self._holders: Final[dict[_Rank, tuple[str, ...]]] = {}
        self._ranks: list[_Rank] = []
        """A heap, once a message was dropped."""
        self._is_heap = False
        self._bytes = 0
        self._left_out: _Rank | None = None
        """The highest rank that was dropped: nothing below it is kept any more."""
        self._lock: Final = Lock()

    def __len__(self) -> int:
        return len(self._messages)

    def is_past(self, store_timestamp_ms: int) -> bool:
        """Return whether no message from that time or from before it would be kept any more.

        For messages that are ordered by time, and read from the newest on.
        """
        return not self.oldest and not self.may_keep(store_timestamp_ms)

    def may_keep(self, store_timestamp_ms: int) -> bool:
        """Return whether a message from that time could still be kept."""
        kept: bool = self._left_out is None or self._sign * store_timestamp_ms >= self._left_out[0]
        return kept

    def is_past_rank(self, rank: _Rank) -> bool:
        """Return whether no message below a rank (`order_in_time`) would be kept any more."""
        with self._lock:
            if self._left_out is None or self.oldest or not self._ranks:
                return False
            self._make_heap()
            past: bool = rank <= self._ranks[0]
            return past

    def take(self, record: Record, source: str = "") -> MessageExt | None:
        """Add the message in a record, and return it; None if it does not fit, or is there.

        ``source`` is the one that has it, of several.
        """
        rank = self._order(record, self._sign)
        with self._lock:
            if self._is_there(rank, source) or not self._would_keep(rank):
                return None
            return self._add(rank, message_of(record), source)

    def add(self, message: MessageExt, source: str = "") -> MessageExt | None:
        """Add a message; return as `take` does.

        Of two copies the one whose body could be decompressed is kept.
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
        """Return the messages in order."""
        with self._lock:
            # A source whose time is over can still add.
            messages = dict(self._messages)
        if self._sign > 0:
            return tuple(map(messages.__getitem__, sorted(messages)))
        return tuple(sorted(messages.values(), key=self._order))

    def holders_of(
        self, messages: Sequence[MessageExt], sources: Sequence[str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return which of several sources have each of some messages; of one nothing."""
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
"""Is called with the bytes that were read so far, those to read if they are known, and messages."""


def placed(record: Record, static: StaticTopic | None, broker_name: str) -> Record:
    """Return the record of a broker with the position that its producer was told.

    That is another one where the topic is static.
    """
    if static is None:
        return record
    there = static.logical(broker_name, record.queue_id, record.queue_offset)
    if there is None:
        return record
    return replace(record, queue_id=there.queue_id, queue_offset=there.queue_offset)


class Findings:
    """The messages of one source, and its coverage.

    ``unknown`` has an error for each name or pattern of the request that the source is sure to
    have no topic for. ``indexed_to_ms`` is the store time of the newest message that was searched.
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
        """Create empty findings; `messages` may be shared with other sources, and `source` is this.

        ``tally`` is that of the search, where it is shared or was made before.
        ``on_added`` is called with each message that was added, in the thread that added it. It may
        be dropped later for others. ``on_read`` is called while a source reads many messages.
        """
        self.messages: Final = messages
        self.on_added: Final = on_added
        self._source: Final = source
        self._on_read: Final = on_read
        self._read_bytes = 0
        self._read_count = 0
        self.count = 0
        """Messages that this source added, kept or not."""
        self.tally: Final = tally or SearchTally()
        """What filters left out or could not decide on: part of the coverage."""
        self.unknown: dict[str, TopicNotFound] = {}
        self.indexed_to_ms = 0
        self.has_kept = False
        """Whether the source searched for what brokers keep for the topics, too."""
        self.as_told: Callable[[Record], Record] | None = None
        """Returns a record with the position that its producer was told."""
        self.is_left = False
        """Whether nothing waits for what is still to be found: a source that reads much ends."""
        self._coverage: tuple[Coverage, ...] | list[Coverage] = ()
        self._numbers: dict[tuple[str | None, ...], int] = {}
        """Where in the list each broker and each failure is."""

    def take(self, record: Record) -> bool:
        """Add the message in a record; return False once a source may stop.

        That is when it added more than ``max_num``, in whatever order it reads, or when no more
        fit into the answer.
        """
        self.count += 1
        if self.as_told is not None:
            record = self.as_told(record)
        added = self.messages.take(record, self._source)
        if self.on_added is not None:
            self._report(added)
        return self._may_take_more

    def take_all(self, records: Sequence[Record]) -> bool:
        """Add the messages of one record, of which those that are kept come first; return as `take`
        does.
        """
        if len(records) == 1:
            return self.take(records[0])
        return all(map(self.take, records if self.messages.oldest else reversed(records)))

    def add(self, message: MessageExt) -> bool:
        """Add a message; return as `take` does."""
        self.count += 1
        self._report(self.messages.add(message, self._source))
        return self._may_take_more

    def _report(self, added: MessageExt | None) -> None:
        if added is not None and self.on_added is not None:
            self.on_added(added)

    def add_read(self, stored_bytes: int, count: int) -> bool:
        """Report that a source read more messages; return whether to read on."""
        self._read_bytes += stored_bytes
        self._read_count += count
        return self.report_read(self._read_bytes, None, self._read_count)

    def report_read(self, read_bytes: int, total_bytes: int | None, messages: int) -> bool:
        """Report how much a source read so far, and of how much; return whether to read on."""
        goes_on = None
        if self._on_read is not None:
            goes_on = self._on_read(read_bytes, total_bytes, messages)
        return not self.is_left and goes_on is not False

    def add_part(self, part: "Findings") -> None:
        """Add what was found and searched in a part of this source, which has the same tally."""
        self.count += part.count
        self.cover(part.searched)
        self.indexed_to_ms = max(self.indexed_to_ms, part.indexed_to_ms)

    def is_past(self, store_timestamp_ms: int) -> bool:
        """Return whether no message from that time or from before it would be kept any more."""
        return self.messages.is_past(store_timestamp_ms)

    @property
    def _may_take_more(self) -> bool:
        max_num = self.messages.max_num
        return (max_num is None or self.count <= max_num) and not self.messages.is_over_bytes

    def cover(self, coverage: tuple[Coverage, ...]) -> None:
        """Add coverage; a broker or failure that was added before is not repeated.

        The first tuple is kept as it is: that of a store can have thousands of files.
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
                # Parts of a log: no two searches look at the same.
                merged.append(each)
                continue
            told = each.source, each.state, each.error, each.note
            number = self._numbers.setdefault(told, len(merged))
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
        """The coverage so far, without what filters left out or could not decide on."""
        return tuple(self._coverage)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage so far, with what filters left out or could not decide on."""
        undecided = self.tally.coverage()
        return (*self.searched, *undecided) if undecided else self.searched

    @property
    def is_complete(self) -> bool:
        """Whether everything was searched so far."""
        return Answer("", (), self.coverage).complete

    def answer(self, query: str) -> Answer:
        """Return the answer, if this is the only source."""
        return Answer(
            query,
            self.messages.in_order(),
            self.coverage,
            truncated=self.messages.truncated,
            index_last_update_timestamp_ms=self.indexed_to_ms,
        )


class PlacedFindings(Findings):
    """Adds what one broker has of a topic to other findings, with its origin: see `placed`."""

    def __init__(self, findings: Findings, static: StaticTopic | None, origin: Origin) -> None:
        """Add to ``findings``."""
        super().__init__(findings.messages, tally=findings.tally)
        self._findings: Final = findings
        self._static: Final = static
        self._origin: Final = origin

    def take(self, record: Record) -> bool:
        """Add the message in a record; as `Findings.take`."""
        record = placed(record, self._static, self._origin[1] or "")
        return self._findings.take(replace(record, origin=self._origin))

    def add_read(self, stored_bytes: int, count: int) -> bool:
        """Report that a source read more messages; as `Findings.add_read`."""
        return self._findings.add_read(stored_bytes, count)


def memory_bytes(message: MessageExt) -> int:
    """Return about how many bytes a message takes in memory: O(properties and keys).

    Properties of 32 KB can be 8,000 texts, and those take ten times as much.
    """
    texts = (*message.properties, *message.properties.values(), *message.keys)
    overhead = limits.MESSAGE_OVERHEAD_BYTES + TEXT_OVERHEAD_BYTES * len(message.properties)
    return overhead + len(message.body) + sum(map(sys.getsizeof, texts))


def _order_in_log(stored: Record | MessageExt, sign: int = 1) -> _Rank:
    # Messages of a batch have one place in the log.
    return sign * stored.physical_offset, sign * stored.queue_offset


def order_in_time(stored: Record | MessageExt, sign: int = 1) -> _Rank:
    """Return the time, and what else makes up a message's identity; ``sign`` -1: the oldest last.

    Two brokers can have one address, each in a network of its own, and then the same offsets.
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
