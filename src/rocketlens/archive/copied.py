"""The ranges of queues that batches copied, and the messages that an archive is known to lack.

An answer is complete only if no missing message can be part of it. Offsets show what can be
missing: the copied range of each queue, and the end of the queue when the source was asked. Times
only narrow this: a `Missing` has the store times of its messages, if the clock of their broker was
not set back while they were stored.

If a queue was created again (its topic, or its broker), it is another *generation*: it has another
record at the offset of the last copied one. Messages of earlier generations stay in the archive.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from rocketlens.archive.journal import ArchivedBatch

_EARLIER: Final = (
    "an earlier version archived it without the offsets of its queues, so messages can be missing: "
)
_AGAIN: Final = "run `rocketlens archive run` with this archive again"
_ANEW: Final = "archive it anew with `rocketlens archive run --table` and another directory"


class LastRecord(NamedTuple):
    """The last copied record of a queue, which identifies the queue's generation."""

    queue_offset: int
    store_timestamp_ms: int
    physical_offset: int
    store_host: str


class QueueRange(NamedTuple):
    """The copied offsets ``start`` to ``stop - 1`` of a queue.

    It has ``rows`` messages with store times from ``first_ms`` to ``last_ms``; both are 0 if it
    has none.
    """

    broker: str
    topic: str
    queue_id: int
    generation: int
    start: int
    stop: int
    rows: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last: LastRecord | None = None

    @property
    def key(self) -> "Queue":
        return self.topic, self.broker, self.queue_id

    def join(self, other: Self) -> Self:
        """Return the range from the first to the last offset of two ranges of one queue."""
        times = [(each.first_ms, each.last_ms) for each in (self, other) if each.rows]
        lasts = [each.last for each in (self, other) if each.last is not None]
        return self._replace(
            start=min(self.start, other.start),
            stop=max(self.stop, other.stop),
            rows=self.rows + other.rows,
            first_ms=min((first for first, _ in times), default=0),
            last_ms=max((last for _, last in times), default=0),
            last=max(lasts, default=None),
        )


Queue = tuple[str, str, int]
"""Topic, broker and queue id."""


class Missing(NamedTuple):
    """Messages that a source has, or had, and the archive does not.

    ``what`` describes them in one line. An empty ``broker`` or ``topic`` stands for any. ``part``
    names a queue and its generation if only that one is affected. ``low_ms`` and ``high_ms`` are
    their store times if the clock was not set back; None is unbounded.
    """

    what: str
    broker: str = ""
    topic: str = ""
    part: str = ""
    low_ms: int | None = None
    high_ms: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Broker, topic and part: unique among those of one source."""
        return self.broker, self.topic, self.part

    def is_of(self, topics: Collection[str]) -> bool:
        """Return True if they can be of one of these topics; an empty collection means all."""
        return not self.topic or not topics or self.topic in topics

    def is_within(self, begin: int, end: int) -> bool:
        """Return True if messages stored from ``begin`` to ``end`` can be among them."""
        return (self.high_ms is None or begin <= self.high_ms) and (
            self.low_ms is None or self.low_ms <= end
        )

    def to_json(self) -> str:
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(*json.loads(text))


def join_ranges(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """Return one range for each generation of a queue."""
    found: dict[tuple[Any, ...], QueueRange] = {}
    for each in ranges:
        key = (*each.key, each.generation)
        found[key] = found[key].join(each) if key in found else each
    return [found[key] for key in sorted(found)]


def ranges_to_json(ranges: Iterable[QueueRange]) -> str:
    return json.dumps(list(ranges), separators=(",", ":"))


def ranges_from_json(text: str) -> list[QueueRange]:
    """Parse ranges of the journal; raise ValueError if ``text`` is invalid."""
    try:
        return [
            QueueRange._make((*values, None if last is None else LastRecord(*last)))
            for *values, last in json.loads(text or "[]")
        ]
    except TypeError as error:
        raise ValueError("its ranges of queues are invalid") from error


def contradiction(batch: "ArchivedBatch", ranges: Iterable[QueueRange]) -> str | None:
    """Return how the ranges of a batch contradict its files; None if they do not."""
    rows = 0
    files = batch.new_files("messages")
    for each in ranges:
        rows += each.rows
        where = f"queue {each.queue_id} of topic {each.topic} on {each.broker}"
        if each.start > each.stop or each.rows < 0 or bool(each.rows) != bool(each.last):
            return f"{where} has no range"
        if each.last is None:
            continue
        exact = {
            "broker": each.broker,
            "topic": each.topic,
            "queue_id": each.queue_id,
            "queue_offset": each.last.queue_offset,
            "physical_offset": each.last.physical_offset,
            "store_timestamp_ms": each.last.store_timestamp_ms,
        }
        is_there = any(
            all(low <= exact[name] <= high for name, (low, high) in file.bounds.items())
            for file in files
        )
        if not is_there or not each.start <= each.last.queue_offset < each.stop:
            return f"no file has the last record of {where}"
    return None if rows == batch.messages else f"its queues have {rows} messages"


class Copied:
    """The ranges of each queue that a source's batches copied, and its current generation."""

    def __init__(self) -> None:
        self.number = 0
        self.queues: Final[dict[Queue, dict[int, QueueRange]]] = {}
        self.current: Final[dict[Queue, int]] = {}

    def add(self, batches: "Iterable[ArchivedBatch]") -> None:
        """Add batches in their order; batches that were added before are skipped."""
        for batch in batches:
            if batch.number <= self.number:
                continue
            self.number = batch.number
            for each in batch.ranges or _old_ranges(batch):
                generations = self.queues.setdefault(each.key, {})
                known = generations.get(each.generation)
                generations[each.generation] = each if known is None else known.join(each)
                self.current[each.key] = each.generation

    def newest_ms(self, broker: str) -> int | None:
        """Return the store time of a broker's last copied record in log order; None without one."""
        records = [
            (known.last.physical_offset, known.last.store_timestamp_ms)
            for key, number in self.current.items()
            if key[1] == broker and (known := self.queues[key][number]).last is not None
        ]
        return max(records)[1] if records else None


def _old_ranges(batch: "ArchivedBatch") -> list[QueueRange]:
    """Return the ranges of a batch of an earlier version, which has only the end of each queue."""
    end: Mapping[str, Any] = {} if batch.asked_ms or not batch.is_of_cluster else batch.end_offsets
    return [
        QueueRange(broker, topic, int(queue_id), 0, 0, stop)
        for topic, of_topic in end.items()
        for broker, of_broker in of_topic.items()
        for queue_id, stop in of_broker.items()
    ]


def lost_between(
    what: str,
    before_ms: int | None,
    ranges: Sequence[QueueRange],
    asked_ms: int,
    *,
    is_end_copied: bool,
) -> Missing:
    """Return the loss between a record stored at ``before_ms`` and the records of ``ranges``.

    ``is_end_copied``: the source's last record was copied, so nothing after it is lost.
    """
    first = [each.first_ms for each in ranges if each.rows]
    newest_ms = max((each.last_ms for each in ranges if each.rows), default=asked_ms)
    low_ms = None if before_ms is None else min([before_ms, *first])
    high_ms = newest_ms if is_end_copied else max(newest_ms, asked_ms)
    return Missing(what, low_ms=low_ms, high_ms=high_ms)


def lost_of(batch: "ArchivedBatch") -> list[Missing]:
    """Return the messages that a batch could not read."""
    if batch.asked_ms:
        return list(map(Missing.from_json, batch.lost))
    if not batch.gaps:
        return []
    # The offset in a log ends with its last record: "physical_offset:last_offset:crc:timestamp".
    begin = json.loads(batch.begin)
    anchors = str(begin.get("anchors", "") if isinstance(begin, dict) else "").split()
    before = [int(each.rpartition(":")[2]) for each in anchors[:1]]
    first = [batch.first_ms] if batch.messages else []
    low_ms = min(before + first) if before else None
    high_ms = batch.last_ms if batch.messages else None
    return [Missing(each, low_ms=low_ms, high_ms=high_ms) for each in batch.gaps]


def behind_of(batch: "ArchivedBatch | None") -> list[Missing]:
    """Return the messages that the source had when it was asked, and that no batch copied."""
    return [] if batch is None else list(map(Missing.from_json, batch.behind))


def not_copied(batches: "Sequence[ArchivedBatch]") -> list[Missing]:
    """Return the messages that a source had, or may have had, when it was asked last."""
    last = batches[-1]
    if last.is_of_cluster and not all(each.asked_ms for each in batches):
        return [Missing(f"{_EARLIER}{_ANEW}"), *behind_of(last)]
    return behind_of(last) if last.asked_ms else [Missing(f"{_EARLIER}{_AGAIN}")]


def known_missing(batches: "Sequence[ArchivedBatch]") -> list[Missing]:
    return [*(each for batch in batches for each in lost_of(batch)), *not_copied(batches)]
