"""Static topics of RocketMQ 5: logical queues, and the brokers' queues that have their messages.

A logical queue is a list of parts. Each part is a queue of one broker, which counts its messages
from 0 on; ``remappingStaticTopic`` adds a part on another broker. Producers and consumers use the
offsets of the logical queue, which leave a gap between two parts::

    logical queue 0     0 ... 39                10,000 ...
    messages are in     broker-a, queue 0       broker-b, queue 1
    offsets there       0 ... 39                0 ...

Records, consume queues and the offsets of groups have the ids and offsets of the brokers' queues.
Each broker keeps the current and former parts of its logical queues in
``config/topicQueueMapping.json``. Source: ``LogicQueueMappingItem``, ``TopicQueueMappingDetail``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import field

from rocketlens.errors import CommandBodyError
from rocketlens.wire.declare import I32, I64, WireStruct, shape_of


class LogicalPart(WireStruct, java="LogicQueueMappingItem"):
    """A part of a logical queue: a range of offsets of one broker's queue."""

    broker_name: str = field(name="bname")
    queue_id: I32
    logic_offset: I64 = -1
    """The offset of its first message in the logical queue; negative until it is decided."""
    start_offset: I64 = 0
    end_offset: I64 = -1
    """The offset after its last message; not above ``start_offset`` while the part is open."""

    @property
    def delta(self) -> int:
        """The offset in the logical queue minus that in the broker's queue."""
        return self.logic_offset - self.start_offset

    def has(self, queue_offset: int) -> bool:
        """Return True if a message of the broker's queue is in this part."""
        is_closed = self.end_offset > self.start_offset
        return queue_offset >= self.start_offset and not (
            is_closed and queue_offset >= self.end_offset
        )


class QueueMapping(WireStruct, java="TopicQueueMappingDetail"):
    """The logical queues of a static topic that one broker has, or had, a part of."""

    broker_name: str = field(name="bname")
    epoch: I64 = 0
    """The mapping with the largest epoch is the newest."""
    hosted_queues: Mapping[I64, tuple[LogicalPart, ...]] = {}


class LogicalPosition(NamedTuple):
    """A position in a logical queue."""

    queue_id: int
    queue_offset: int


class StaticTopic:
    """The logical queues of one topic, as far as the mappings of its brokers have them."""

    def __init__(self, mappings: Iterable[QueueMapping]) -> None:
        """Take the parts of each logical queue from the newest mapping that has it.

        Of two mappings with the same epoch, the one of the last part's broker is taken: the broker
        of the part before does not learn at which offset the next part begins.
        """
        newest: dict[int, tuple[tuple[int, bool], tuple[LogicalPart, ...]]] = {}
        for mapping in mappings:
            for number, parts in mapping.hosted_queues.items():
                is_last = bool(parts) and parts[-1].broker_name == mapping.broker_name
                rank = mapping.epoch, is_last
                if number not in newest or newest[number][0] < rank:
                    newest[number] = rank, parts
        self.queues: Final[dict[int, list[LogicalPart]]] = {}
        """The parts of each logical queue whose offsets are decided, in order."""
        self.goes_on: Final[dict[int, str]] = {}
        """Brokers with a next part of a queue whose first offset is not in the mapping."""
        self._of_brokers: Final[dict[tuple[str, int], list[tuple[int, LogicalPart]]]] = {}
        for number, (_, parts) in newest.items():
            self.queues[number] = []
            for part in parts:
                if part.logic_offset < 0:
                    self.goes_on[number] = part.broker_name
                    continue
                self.queues[number].append(part)
                where = part.broker_name, part.queue_id
                self._of_brokers.setdefault(where, []).append((number, part))

    @property
    def broker_names(self) -> set[str]:
        """The brokers that have messages of the topic."""
        return {name for name, _ in self._of_brokers}

    def logical(self, broker_name: str, queue_id: int, queue_offset: int) -> LogicalPosition | None:
        """Return the logical position of a broker's queue position; None if it is in no part."""
        for number, part in self._of_brokers.get((broker_name, queue_id), ()):
            if part.has(queue_offset):
                return LogicalPosition(number, queue_offset + part.delta)
        return None

    def stored(self, queue_id: int, queue_offset: int) -> tuple[str, int, int] | None:
        """Return broker, queue id and offset there for a logical position.

        None if it is in no part. An open part can end before the position.
        """
        for part in reversed(self.queues.get(queue_id, ())):
            offset = queue_offset - part.delta
            if part.logic_offset <= queue_offset:
                return (part.broker_name, part.queue_id, offset) if part.has(offset) else None
        return None

    def group_offset(
        self, queue_id: int, offsets: Mapping[tuple[str, int], tuple[int, int]]
    ) -> int | None:
        """Return the offset at which a group continues in a logical queue; None if it has none
        there.

        ``offsets`` are those that brokers have for their queues, by broker name and queue id, each
        with the end of the queue. The offset of the last part counts, as in RocketMQ.
        """
        for part in reversed(self.queues.get(queue_id, ())):
            offset, end = offsets.get((part.broker_name, part.queue_id), (-1, 0))
            if offset >= 0:
                # A pull commits the untranslated logical offset, which is beyond the queue's end.
                return offset if offset > end else offset + part.delta
        return None


def parse_mapping(value: Any) -> QueueMapping:
    """Read a mapping of a parsed ``topicQueueMapping.json``; raise CommandBodyError if invalid."""
    try:
        mapping: QueueMapping = shape_of(QueueMapping).read(value)
    except (TypeError, ValueError) as error:
        raise CommandBodyError(str(error)) from None
    return mapping
