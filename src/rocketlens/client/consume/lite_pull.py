"""``rocketlens.LitePullConsumer``, which returns a group's messages from `poll`.

Source: ``DefaultLitePullConsumer``.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.connection_settings import takes_settings
from rocketlens.client.connect.queue_puller import PullMode
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.consume_service import ConsumeService
from rocketlens.client.consume.consumer_client import ConsumerClient
from rocketlens.client.consume.consumer_settings import (
    MAX_CACHED_MESSAGES,
    LitePullSettings,
    MessageSelector,
    check_range,
)
from rocketlens.client.consume.pulling import OwnedQueue, PullStyle
from rocketlens.client.send.trace import SUCCESS
from rocketlens.errors import BadInput, WrongUse
from rocketlens.model.message import MessageExt
from rocketlens.wire.bodies.clients import ConsumeType


class LitePullConsumer(ConsumerClient):
    """Polls messages as a member of a group, or from assigned queues. Bound to one event loop.

    ::

        async with rocketlens.LitePullConsumer("127.0.0.1:9876", group="audit") as consumer:
            consumer.subscribe("Orders")
            while True:
                for message in await consumer.poll():
                    print(message.msg_id, message.offset_msg_id, message.body)

    With ``subscribe``, the members of the group share the queues; with ``assign``, the program
    chooses them. The messages of a `poll` count as consumed at the next `poll` or `commit`, so each
    is consumed at least once. With ``auto_commit`` offsets are stored every 5 s, when a queue moves
    to another member, and by `close`; otherwise only by `commit`. If a ``with`` block ends with an
    exception, the messages of its last `poll` stay unconsumed. Methods raise `RemotingError` if no
    name server or broker answers.
    """

    _consume_type = ConsumeType.CONSUME_ACTIVELY

    @takes_settings(LitePullSettings)
    def __init__(self, settings: LitePullSettings) -> None:
        super().__init__(settings)
        self._settings: Final = settings
        self._ready: Final = asyncio.Event()
        self._poll_turn: Final = asyncio.Lock()
        self._next_queue = 0
        self._chosen_queues: frozenset[MessageQueue] | None = None

    @property
    def auto_commit(self) -> bool:
        """True if the offsets of polled messages are stored every 5 s."""
        return self._settings.auto_commit

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic; see `ConsumerClient.subscribe`.

        :raises WrongUse: if queues were assigned.
        """
        if self._chosen_queues is not None:
            raise WrongUse("this consumer has assigned queues: subscribe or assign, not both")
        super().subscribe(topic, expression)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume only these queues; a later call replaces them.

        :raises WrongUse: if a topic was subscribed to.
        """
        if self._subscriptions:
            raise WrongUse("this consumer has subscribed: subscribe or assign, not both")
        self._chosen_queues = frozenset(map(self._full_queue, queues))
        if self._queues is not None:
            topics = {queue.topic for queue in self._chosen_queues}
            self._tasks.run(self._join_topics(topics))

    async def start(self) -> None:
        """Join the group, and start to pull the subscribed topics or assigned queues.

        :raises WrongUse: if the consumer was started or closed before.
        """
        self._check_startable()
        try:
            style = PullStyle(
                hold_s=timing.LITE_PULL_HOLD_S,
                mode=PullMode.LITE,
                commits=False,
                stores_moves=self.auto_commit,
                max_cached_messages=self._settings.max_cached_messages,
            )
            await self._start(_PollService(self._ready), style)
        except BaseException:
            await self.close()
            raise

    async def poll(
        self, timeout_s: float = 5.0, max_messages: int = limits.MAX_PULL_MESSAGES
    ) -> list[MessageExt]:
        """Return the next messages; an empty list if none arrives within ``timeout_s``.

        Messages of one queue are in order. Messages of the previous call now count as consumed.

        :raises WrongUse: if the consumer is not started, or closed.
        """
        self._check_open()
        if self._queues is None:
            raise WrongUse("this consumer is not started: use `async with consumer`")
        check_range("max_messages", max_messages, MAX_CACHED_MESSAGES)
        async with self._poll_turn:
            if self.auto_commit:
                self._note_consumed()
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        self._ready.clear()
                        taken = self._take(max_messages)
                        if taken or self._is_closing:
                            return taken
                        await self._ready.wait()
            except TimeoutError:
                return []

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Poll a queue from an offset on; cached messages are dropped.

        :raises BadInput: if this consumer does not have the queue, or the queue does not have the
            offset.
        :raises BrokerError: if the broker does not return the queue's offsets.
        """
        first, last = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not first <= queue_offset <= last:
            raise BadInput(f"{queue}: offset {queue_offset} is not within {first} to {last}")
        self._restart(queue, queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll a queue from its first message on; errors as `seek`."""
        self._restart(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll only new messages of a queue; errors as `seek`."""
        self._restart(queue, await self.max_offset(queue))

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Poll a queue from the first message stored at a time or later; errors as `seek`."""
        self._restart(queue, await self.search_offset(queue, timestamp_ms))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the approximate offset of the first message stored at a time or later."""
        return await self.search_offset(queue, timestamp_ms)

    async def commit(self) -> None:
        """Count all polled messages as consumed, and store the offsets.

        A failure is logged, and the offset is stored next time.
        """
        self._note_consumed()
        await super().commit()

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset; None if it has none.

        :raises RocketLensError: if the offset cannot be read.
        """
        return await self._store.read(self._full_queue(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling and returning messages of these queues until they are resumed.

        :raises BadInput: if this consumer does not have a queue.
        """
        for queue in queues:
            self._owned_queue(queue).is_paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume paused queues; errors as `pause`."""
        for queue in queues:
            owned = self._owned_queue(queue)
            owned.is_paused = False
            owned.changed.set()
        self._ready.set()

    async def close(self) -> None:
        """Stop pulling, commit polled messages (with ``auto_commit``), and leave the group.

        A second call has no effect.
        """
        await self._close(commits=self.auto_commit)

    async def __aexit__(self, *raised: object) -> None:
        """Close; after an exception the messages of the last `poll` stay unconsumed."""
        await self._close(commits=self.auto_commit and raised[0] is None)

    @property
    def _assigned(self) -> frozenset[MessageQueue] | None:
        return self._chosen_queues

    def _named_topics(self) -> list[str]:
        queues = self._chosen_queues or frozenset()
        return [*self._subscriptions, *{queue.topic for queue in queues}]

    def _is_wanted(self, queue: MessageQueue) -> bool:
        if self._chosen_queues is None:
            return super()._is_wanted(queue)
        return not self._is_closing and queue in self._chosen_queues

    async def _close(self, *, commits: bool) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._ready.set()
        await self._stop_pulling()
        if self._queues is not None:
            if commits:
                self._note_consumed()
            if self.auto_commit:
                await super().commit()
            await self._member.leave()
        await self._end_connections()

    async def _commit_periodically(self) -> None:
        while True:
            await asyncio.sleep(timing.COMMIT_S)
            if self.auto_commit:
                # The last polled messages are not counted: they may not be processed yet.
                await super().commit()

    def _note_consumed(self) -> None:
        for queue, owned in self._owned.items():
            self._offsets.put(queue, owned.pq.offset_to_commit, increase_only=False)

    def _take(self, max_messages: int) -> list[MessageExt]:
        taken: list[MessageExt] = []
        owned = list(self._owned.values())
        for number in range(len(owned)):
            each = owned[(self._next_queue + number) % len(owned)]
            if each.is_paused or not each.pq.has_waiting:
                continue
            messages = each.pq.take(max_messages - len(taken))
            each.pq.commit_taken()
            each.changed.set()
            taken += map(self._session.message_for_user, messages)
            if len(taken) >= max_messages:
                # The next poll starts with the next queue.
                self._next_queue = (self._next_queue + number + 1) % len(owned)
                break
        if taken and self._trace is not None:
            # As in RocketMQ, although the program's result is unknown here.
            self._trace.end_consume(self._trace.start_consume(taken), SUCCESS)
        return taken

    def _restart(self, queue: MessageQueue, queue_offset: int) -> None:
        owned = self._owned_queue(queue)
        if self._queues is not None:
            self._queues.puller.restart(owned, queue_offset)
        self._offsets.put(owned.queue, queue_offset, increase_only=False)

    def _owned_queue(self, queue: MessageQueue) -> OwnedQueue:
        owned = self._owned.get(self._full_queue(queue))
        if owned is None:
            raise BadInput(f"this consumer does not have {queue} now: see its assignment")
        return owned

    def _properties(self) -> dict[str, str]:
        return super()._properties() | {
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "autoCommit": str(self.auto_commit).lower(),
            "pullBatchSize": str(self._settings.pull_batch),
        }


class _PollService(ConsumeService):
    """Wakes a waiting `poll` when messages arrive."""

    def __init__(self, ready: asyncio.Event) -> None:
        self._ready: Final = ready

    def deliver(self, owned: OwnedQueue, messages: Sequence[MessageExt]) -> None:
        del owned, messages
        self._ready.set()
