"""Parses positions of queues: the JSON of the options ``startingOffsets`` and ``endingOffsets``.

=========================================  =====================================================
text                                       meaning
=========================================  =====================================================
``{"T":{"broker-a":{"0":23,"1":-1}}}``     by topic, broker and queue, as in other Spark sources of
                                           RocketMQ
``{"T":{"0":23}}``                         by topic and queue, as in Spark's Kafka source: of the
                                           only broker that has the topic
``-2``                                     the first offset of a queue
``-1``                                     the offset after its last message
=========================================  =====================================================

A position is the first offset to read, or the one after the last. The option does not affect queues
that it does not name.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from rocketlens import limits
from rocketlens.bulk.options import TIMES
from rocketlens.errors import BadInput
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table

EARLIEST: Final = -2
LATEST: Final = -1
_EXAMPLE: Final = '{"TOPIC":{"BROKER":{"0":23,"1":-2}}}'
_WORDS: Final = {EARLIEST: "-2 (earliest)", LATEST: "-1 (latest)"}

Queue = TypeVar("Queue", bound=tuple[str, str, int])
"""A topic, a broker's name and a queue id."""


class AskedQueue(NamedTuple):
    """A queue that an option names."""

    topic: str
    broker_name: str | None
    """None for the only broker."""
    queue_id: int

    def __str__(self) -> str:
        broker = "" if self.broker_name is None else f"{self.broker_name}, "
        return f"{broker}topic {self.topic}, queue {self.queue_id}"


class Positions(NamedTuple):
    """The positions of one option."""

    option: str
    offsets: Mapping[AskedQueue, int]

    def by_queue(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Return the positions of queues of a cluster.

        ``queues``: all queues of the topics that are read.

        :raises BadInput: if a queue does not exist, or its broker is ambiguous.
        """
        existing = {AskedQueue(*each): each for each in queues}
        offsets: dict[Queue, int] = {}
        for requested, offset in self.offsets.items():
            named = self._with_broker(requested, existing)
            queue = existing.get(named)
            if queue is None:
                raise self.missing(requested, "the cluster")
            if queue in offsets:
                raise BadInput(f"option {self.option} has two positions of {named}")
            offsets[queue] = offset
        return offsets

    def _with_broker(self, queue: AskedQueue, existing: Iterable[AskedQueue]) -> AskedQueue:
        if queue.broker_name is not None:
            return queue
        brokers = sorted({str(each.broker_name) for each in existing if each.topic == queue.topic})
        if len(brokers) > 1:
            raise BadInput(
                f"option {self.option}: topic {queue.topic} is on {len(brokers)} brokers "
                f"({', '.join(brokers[:5])}), so name the broker of each queue: {_EXAMPLE}"
            )
        return queue._replace(broker_name=brokers[0] if brokers else None)

    def of_one_broker(self) -> dict[tuple[str, int], int]:
        """Return the positions of queues of a store, by topic and queue id."""
        offsets: dict[tuple[str, int], int] = {}
        for queue, offset in self.offsets.items():
            if (queue.topic, queue.queue_id) in offsets:
                raise BadInput(f"option {self.option} has two positions of {queue}")
            offsets[queue.topic, queue.queue_id] = offset
        return offsets

    def outside(self, queue: object, offset: int, bounds: tuple[int, int]) -> list[str]:
        """Return a line if an offset is outside the bounds of a queue."""
        first, end = bounds
        if offset < first:
            return [f"{queue} begins at offset {first}, but {self.option} is {offset}"]
        if offset > end:
            return [f"{queue} ends at offset {end}, but {self.option} is {offset}"]
        return []

    def missing(self, queue: AskedQueue, where: str) -> BadInput:
        return BadInput(f"option {self.option}: {where} has no such queue: {queue}")


def positions_option(
    options: Mapping[str, str],
    name: str,
    *,
    refused: int | None,
    has_topic: Callable[[str], bool] | None,
) -> Positions:
    """Parse an option with positions; without it there are none.

    ``refused``: a word that the option cannot have. ``has_topic`` returns whether a topic is read;
    None for all topics.

    :raises BadInput: if it has another form, names a topic that is not read, or a time is given,
        too.
    """
    text = options.get(name)
    if text is None:
        return Positions(name, {})
    if TIMES[name] in options:
        raise BadInput(f"give either {name} or {TIMES[name]}, not both options")
    offsets = _parse(name, text)
    for queue, offset in offsets.items():
        if offset == refused:
            raise BadInput(f"option {name} cannot be {_WORDS[offset]}, as for {queue}")
        if has_topic is not None and not has_topic(queue.topic):
            raise BadInput(f"option {name} names topic {queue.topic}, which is not read")
    return Positions(name, offsets)


def _parse(name: str, text: str) -> dict[AskedQueue, int]:
    try:
        by_topic = json.loads(text, object_pairs_hook=_refuse_repeated)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"option {name} is not JSON ({error}): expected {_EXAMPLE}") from None
    offsets: dict[AskedQueue, int] = {}
    for topic, of_topic in _members(name, by_topic):
        members = list(_members(name, of_topic))
        if all(type(each) is int for _, each in members):
            members = [(None, of_topic)]
        for broker_name, of_broker in members:
            for queue_id, offset in _members(name, of_broker):
                is_queue = queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= 10
                is_offset = type(offset) is int and EARLIEST <= offset <= limits.MAX_QUEUE_OFFSET
                if not (is_queue and is_offset and int(queue_id) <= limits.MAX_INT):
                    raise BadInput(
                        f"option {name}: {queue_id[:40]!r}: {str(offset)[:40]} of topic "
                        f"{topic[:80]} is not a queue id and an offset: expected {_EXAMPLE}"
                    )
                queue = AskedQueue(topic, broker_name, int(queue_id))
                if queue in offsets:
                    raise BadInput(f"option {name} has two positions of {queue}")
                offsets[queue] = offset
    return offsets


def _refuse_repeated(members: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in members]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:80]!r} is there twice")
    return dict(members)


def _members(name: str, value: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, dict) or not value:
        raise BadInput(f"option {name} has {json.dumps(value)[:80]}: expected {_EXAMPLE}")
    return value.items()


def check_one_broker(*positions: Positions) -> None:
    """Check that positions name at most one broker, of any name: a store has one."""
    broker_names = [queue.broker_name for each in positions for queue in each.offsets]
    names = sorted({name for name in broker_names if name is not None})
    if len(names) > 1:
        options = " and ".join(each.option for each in positions if each.offsets)
        shown = ", ".join(names[:5])
        raise BadInput(f"{options}: {len(names)} brokers ({shown}) are named, but a store has one")


def check_range(queue: object, starts: Positions, start: int, ends: Positions, end: int) -> None:
    """Check the first and last position of a queue."""
    if start > end >= 0:
        raise BadInput(f"{queue}: {starts.option} is {start}, but {ends.option} is {end}")


class StoreQueues:
    """The queues of a store, by its files, without its log."""

    def __init__(self, store: str) -> None:
        self._reader: Final = StoreReader(Path(store))
        self._queues: Final = self._reader.queues
        self._configured: Final = read_table(self._reader.path, TOPICS_FILE, TOPICS_MEMBER).entries

    def close(self) -> None:
        self._reader.close()

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return the first queue offset in the log or in tiered storage, and the next one.

        Return None if the queue has no files.
        """
        queue = self._queues.queue(topic, queue_id)
        if queue is None or not queue.files:
            return None
        end = queue.max_offset
        first = self._reader.tiered.first_of(topic, queue_id)
        if first is None:
            first = queue.first_kept(self._reader.log.min_offset)
        return min(first, end), end

    def is_unknown(self, topic: str, queue_id: int) -> bool:
        """Return whether the topic is known and does not have this queue."""
        queue_ids = [each.queue_id for each in self._queues.names() if each.topic == topic]
        entry = self._configured.get(topic)
        if isinstance(entry, dict):
            counts = (entry.get("readQueueNums"), entry.get("writeQueueNums"))
            queue_ids += [each - 1 for each in counts if type(each) is int]
        return bool(queue_ids) and queue_id > max(queue_ids)
