"""Locks of queues, by which an orderly consumer has a queue to itself.

A lock is of a group and a queue. It lasts 60 s from when its client last asked for it, and ends
before that only when the client releases it: neither unregistering nor the end of its connection
ends it, because the client may still be consuming. Source: ``RebalanceLockManager``.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_QUEUE_LOCKS: Final = 200_000
"""Locks of queues, groups times queues, that a broker keeps: 80 MiB. RocketMQ: no limit."""
QUEUE_LOCK_S: Final = 60.0
"""Seconds that a lock of a queue lasts. RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime, 60."""


class QueueLock(NamedTuple):
    """The client that has a queue to itself, and when it renewed that."""

    client_id: str
    renewed_s: float


class QueueLocks:
    """All locks, the one with the oldest renewal first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Hold none; ``clock`` is monotonic, in seconds."""
        self._clock: Final = clock
        self._locks: Final[OrderedDict[tuple[str, str, int], QueueLock]] = OrderedDict()
        self._of_group: Final[dict[str, dict[tuple[str, str, int], None]]] = {}
        self.refused = 0
        """Locks that there was no room for."""

    @property
    def count(self) -> int:
        """Number of locks, including expired ones."""
        return len(self._locks)

    def lock(self, group: str, topic: str, queue_id: int, client_id: str) -> bool:
        """Lock a queue for a client, or renew its lock; False if another client has it."""
        key, now_s = (group, topic, queue_id), self._clock()
        lock = self._locks.get(key)
        if lock is not None and lock.client_id != client_id and not _is_over(lock, now_s):
            return False
        if lock is None and not self._has_room(now_s):
            self.refused += 1
            return False
        self._locks[key] = QueueLock(client_id, now_s)
        self._of_group.setdefault(group, {})[key] = None
        self._locks.move_to_end(key)
        return True

    def unlock(self, group: str, topic: str, queue_id: int, client_id: str) -> None:
        """Unlock a queue, if this client has locked it."""
        key = group, topic, queue_id
        lock = self._locks.get(key)
        if lock is not None and lock.client_id == client_id:
            self._drop(key)

    def has(self, group: str) -> bool:
        """Return whether a member of a group has a queue locked. Drops expired locks on the way."""
        now_s = self._clock()
        while group in self._of_group:
            key = next(iter(self._of_group[group]))
            if not _is_over(self._locks[key], now_s):
                return True
            self._drop(key)
        return False

    def _drop(self, key: tuple[str, str, int]) -> None:
        del self._locks[key]
        keys = self._of_group[key[0]]
        del keys[key]
        if not keys:
            del self._of_group[key[0]]

    def _has_room(self, now_s: float) -> bool:
        while len(self._locks) >= MAX_QUEUE_LOCKS:
            key, oldest = next(iter(self._locks.items()))
            if not _is_over(oldest, now_s):
                return False
            self._drop(key)
        return True


def _is_over(lock: QueueLock, now_s: float) -> bool:
    return now_s - lock.renewed_s > QUEUE_LOCK_S
