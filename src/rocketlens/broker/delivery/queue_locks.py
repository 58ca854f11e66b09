"""Locks of queues, by which an orderly consumer has a queue to itself: lock (41), unlock (42).

A lock is of a group and a queue. It lasts 60 s from when its client last asked for it, and ends
before that only when the client releases it: neither unregistering nor the end of its connection
ends it, because the client may still be consuming. A queue that is not here is not locked, and
whatever broker name a queue is asked for with is answered. Source: ``RebalanceLockManager``.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import LARGE_BODY_BYTES, in_thread
from rocketlens.wire.bodies.consumer import LockBatchRequest, LockBatchResponse
from rocketlens.wire.bodies.stats import MessageQueueBody
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import read_body, write_body

if TYPE_CHECKING:
    from rocketlens.broker.core import BrokerCore

Pending = Response | Awaitable[Response | None]


class QueueLock(NamedTuple):
    """The client that has a queue to itself, and since when it did not ask again."""

    client_id: str
    renewed_s: float


class QueueLocks:
    """All locks, the one that was not renewed for longest first."""

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
        while len(self._locks) >= limits.MAX_QUEUE_LOCKS:
            key, oldest = next(iter(self._locks.items()))
            if not _is_over(oldest, now_s):
                return False
            self._drop(key)
        return True


def _is_over(lock: QueueLock, now_s: float) -> bool:
    return now_s - lock.renewed_s > limits.QUEUE_LOCK_S


class QueueLockProcessor:
    """Answers codes 41 and 42."""

    def __init__(self, core: "BrokerCore") -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.LOCK_BATCH_MQ: lambda command, channel: _read(command, channel, self.lock),
            RequestCode.UNLOCK_BATCH_MQ: lambda command, channel: _read(
                command, channel, self.unlock
            ),
        }

    def lock(self, request: LockBatchRequest) -> Response:
        """Return the queues that the client has to itself."""
        group, client_id = request.consumer_group, request.client_id
        locked = tuple(
            queue
            for queue in self._known(request.queues)
            if self.core.queue_locks.lock(group, queue.topic, queue.queue_id, client_id)
        )
        return Response(body=write_body(LockBatchResponse(locked_queues=locked)))

    def unlock(self, request: LockBatchRequest) -> Response:
        """Unlock queues."""
        for queue in request.queues:
            self.core.queue_locks.unlock(
                request.consumer_group, queue.topic, queue.queue_id, request.client_id
            )
        return Response()

    def _known(self, queues: Iterable[MessageQueueBody]) -> Iterable[MessageQueueBody]:
        for queue in queues:
            topic = self.core.topics.get(queue.topic)
            if topic is not None and 0 <= queue.queue_id < max(
                topic.read_queue_count, topic.write_queue_count
            ):
                yield queue


def _read(
    command: RemotingCommand, channel: Channel, answer: Callable[[LockBatchRequest], Response]
) -> Pending:
    if len(command.body) > LARGE_BODY_BYTES:
        return _read_large(command, channel, answer)
    return answer(_parse(command.body))


async def _read_large(
    command: RemotingCommand, channel: Channel, answer: Callable[[LockBatchRequest], Response]
) -> Response | None:
    return answer(await in_thread(lambda: _parse(command.body), owner=channel))


def _parse(body: bytes) -> LockBatchRequest:
    request = read_body(LockBatchRequest, body, limits.MAX_CLIENT_JSON_BODY_BYTES)
    for name, text, limit in (
        ("consumerGroup", request.consumer_group, limits.MAX_GROUP_CHARACTERS),
        ("clientId", request.client_id, limits.MAX_CLIENT_ID_CHARACTERS),
    ):
        if len(text) > limit:
            raise BadInput(f"{name} has {len(text)} characters, {limit} are allowed")
    return request
