"""Queue locks, which orderly consumers need to read a queue.

A lock belongs to a group and a queue. It expires 60 s after its client last requested it, or when
the client releases it. It outlives the client's registration and connection, because the client may
still be consuming. Source: ``RebalanceLockManager``.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_QUEUE_LOCKS: Final = 200_000
"""Queue locks of a broker: 80 MiB. RocketMQ: no limit."""
QUEUE_LOCK_S: Final = 60.0
"""Seconds until a lock expires. RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime, 60."""


class QueueLock(NamedTuple):
    """The client that holds a lock, and the time of its last renewal."""

    client_id: str
    renewed_s: float


class QueueLocks:
    """All locks, the one with the oldest renewal first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Create an empty table; ``clock`` is monotonic, in seconds."""
        self._clock: Final = clock
        self._locks: Final[OrderedDict[tuple[str, str, int], QueueLock]] = OrderedDict()
        self._of_group: Final[dict[str, dict[tuple[str, str, int], None]]] = {}
        self.refused = 0
        """Number of locks refused because the table was full."""

    @property
    def count(self) -> int:
        return len(self._locks)

    def lock(self, group: str, topic: str, queue_id: int, client_id: str) -> bool:
        """Lock a queue for a client, or renew its lock; return False if another client holds it."""
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
        key = group, topic, queue_id
        lock = self._locks.get(key)
        if lock is not None and lock.client_id == client_id:
            self._drop(key)

    def has(self, group: str) -> bool:
        """Return True if a member of a group holds a lock. Drop expired locks of the group."""
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
