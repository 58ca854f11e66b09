"""Queues that orderly consumers have to themselves: lock (41), unlock (42).

A queue that is not here is not locked, and whatever broker name a queue is asked for with is
answered. Source: ``AdminBrokerProcessor``.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.errors import BadInput
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import LARGE_BODY_BYTES, in_thread
from rocketlens.wire.bodies.clients import LockBatchRequest, LockBatchResponse
from rocketlens.wire.bodies.tables import MessageQueue
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import read_body, write_body

Pending = Response | Awaitable[Response | None]


class QueueLockProcessor:
    """Answers codes 41 and 42."""

    def __init__(self, core: BrokerCore) -> None:
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
            for queue in self._local(request.queues)
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

    def _local(self, queues: Iterable[MessageQueue]) -> Iterable[MessageQueue]:
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
