"""What was acknowledged and what was done to the store, in the order in which it happened.

One process writes the ledger, a file of JSON lines; every reader process follows it with a view of
its own. A line is written after the acknowledgement came, so a question that is asked after the
line was read must be answered with the message.

A message has a *place*: the lineage of the store directory that took it. A lineage begins empty or
as a copy of another, and one of them stands at the path that readers look at. While a store is
moved none does.
"""

import json
import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.oracle.messages import content_of


class Acked(NamedTuple):
    """An acknowledged send, as the producer and the broker told it."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    offset_msg_id: str
    unique_key: str
    begun_ms: int
    acked_ms: int
    times_deleted: int
    """How often the topic had been deleted when it was sent."""
    lineage: int


class Ledger:
    """Writes the file. Any threads may share one."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.seed = seed
        self.acked_count = 0
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.lineage = 0
        self.times_deleted: defaultdict[str, int] = defaultdict(int)
        self._line("seed", seed)

    def ack(self, acked: Acked) -> None:
        """Note an acknowledged send."""
        with self._lock:
            self._line("ack", *acked)
            self.acked_count += 1

    def deleting(self, topic: str) -> None:
        """Note that the topic's messages may vanish from now on."""
        with self._lock:
            self.times_deleted[topic] += 1
            self._line("deleting", topic)

    def deleted(self, topic: str) -> None:
        """Note that the broker has deleted the topic."""
        self._line("deleted", topic)

    def moving(self) -> None:
        """Note that the directory may be anything from now on."""
        self._line("moving")

    def placed(self, lineage: int, parent: int | None = None) -> None:
        """Note which lineage is at the path; with ``parent`` it begins as a copy of that one."""
        self.lineage = lineage
        self._line("placed", lineage, parent)

    def broker(self, address: str | None, *, is_ours: bool) -> None:
        """Note the name server of the broker that serves now, None when none does."""
        self._line("broker", address, is_ours)

    def settle(self, number: int) -> None:
        """Have each reader look up everything once more, and say when it is done."""
        self._line("settle", number)

    def end(self) -> None:
        """Have each reader end."""
        self._line("end")
        os.close(self._file)

    def _line(self, *words: object) -> None:
        os.write(self._file, json.dumps(words).encode() + b"\n")


class LedgerView:
    """The ledger as far as it was read, and what follows from it for the store at the path."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.seed = 0
        self.lineage: int | None = 0
        self._parents: dict[int, int | None] = {0: None}
        self._by_lineage: defaultdict[int, dict[int, Acked]] = defaultdict(dict)
        self._by_key: defaultdict[str, set[int]] = defaultdict(set)
        self._queues: defaultdict[tuple[str, int, int], int] = defaultdict(int)
        self.times_deleted: defaultdict[str, int] = defaultdict(int)
        self.moves = 0
        self._dropped: defaultdict[int, set[int]] = defaultdict(set)
        self.new: deque[int] = deque()
        """Numbers that came with the reads, in order; whoever uses them empties it."""
        self.broker: str | None = None
        self.broker_is_ours = False
        self.broker_changes = 0
        self.settle_number = 0
        self.has_ended = False
        self.read_count = 0

    def close(self) -> None:
        self._file.close()

    def read(self) -> None:
        """Take in what was written since; lines that are not whole yet wait."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._take(*json.loads(line))

    def _take(self, what: str, *words) -> None:
        match what:
            case "ack":
                acked = Acked(*words)
                self.read_count += 1
                self._by_lineage[acked.lineage][acked.number] = acked
                for key in (acked.unique_key, *content_of(self.seed, acked.number).keys):
                    self._by_key[key].add(acked.number)
                queue = (acked.topic, acked.queue_id, acked.lineage)
                self._queues[queue] = max(self._queues[queue], acked.times_deleted)
                self.new.append(acked.number)
            case "deleting":
                self.times_deleted[words[0]] += 1
            case "moving":
                self.lineage = None
                self.moves += 1
            case "placed":
                self.lineage = words[0]
                if words[0] not in self._parents:
                    self._branch(*words)
            case "broker":
                self.broker, self.broker_is_ours = words
                self.broker_changes += 1
            case "settle":
                self.settle_number = words[0]
            case "end":
                self.has_ended = True
            case "seed":
                self.seed = words[0]

    def _branch(self, lineage: int, parent: int | None) -> None:
        self._parents[lineage] = parent
        if parent is None:
            return
        # A copy has all that was acknowledged before, and goes its own way from here.
        self._by_lineage[lineage] = dict(self._by_lineage[parent])
        for (topic, queue_id, of), times in list(self._queues.items()):
            if of == parent:
                self._queues[topic, queue_id, lineage] = times

    def here(self) -> dict[int, Acked]:
        """Return the messages of the lineage at the path, by number."""
        return {} if self.lineage is None else self._by_lineage[self.lineage]

    def with_key(self, key: str, topic: str | None) -> Iterator[Acked]:
        """Yield the messages at the path with a key or unique key."""
        here = self.here()
        for number in self._by_key.get(key, ()):
            acked = here.get(number)
            if acked is not None and topic in (None, acked.topic):
                yield acked

    def is_elsewhere(self, number: int) -> bool:
        """Say whether a message was acknowledged into a lineage other than that at the path."""
        if self.lineage is None or number in self._dropped[self.lineage]:
            return False
        return any(number in messages for messages in self._by_lineage.values())

    def is_current(self, acked: Acked) -> bool:
        """Say whether the message's topic was not deleted since it was sent."""
        return acked.times_deleted == self.times_deleted[acked.topic]

    def deletions_before(self, topic: str, queue_id: int) -> int:
        """Count the deletions of a topic before the newest messages of one of its queues."""
        return self._queues.get((topic, queue_id, self.lineage or 0), 0)

    def drop_below(self, physical_offset: int) -> None:
        """Forget messages of the lineage at the path that the store has deleted."""
        here = self.here()
        gone = [n for n, acked in here.items() if acked.physical_offset < physical_offset]
        for number in gone:
            del here[number]
        if self.lineage is not None:
            self._dropped[self.lineage].update(gone)
        kept = set().union(*self._by_lineage.values())
        for number in set(gone) - kept:
            for keys in (self._by_key[key] for key in content_of(self.seed, number).keys):
                keys.discard(number)
