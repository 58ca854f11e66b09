"""The base of ``rocketlens.MQAdmin``, producers and consumers: queries to a running cluster.

All brokers of the route are asked concurrently, each one's master first, and its slaves if it
fails. A failed broker makes an answer incomplete and is named in its coverage.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, overload

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.broker_history import SeenBrokers
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.connection_settings import AdminSettings, takes_settings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.connect.topology import Topology
from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.key_search import IndexSamples
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound
from rocketlens.model.answer import Answer
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import PERM_READ_WRITE, check_topic
from rocketlens.net.pool import NO_HANDLERS
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find, one_message
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.options import FindOptions, StoryOptions, takes
from rocketlens.query.request import FindRequest, StoryRequest, check_key, check_max_num, time_range
from rocketlens.query.source import run_in_loop
from rocketlens.wire.bodies.tables import TopicFilterType
from rocketlens.wire.commands.brokers import UPDATE_AND_CREATE_TOPIC, CreateTopicRequest

if TYPE_CHECKING:
    from rocketlens.query.story.story import Story


class ClusterClient:
    """The base of all clients. An async context manager, bound to one event loop.

    ``name_servers`` is ``"host:9876;host2:9876"``, or several addresses; by default the
    environment's ``NAMESRV_ADDR``. Topics are those of ``namespace``, if one is given.
    ``timeout_s`` is for each answer, connecting included. ``handlers`` answer requests of brokers,
    by request code. Methods raise `RemotingError` if no name server or broker answers.

    ``seen_brokers`` is a file that remembers the brokers of answers for 30 days. A remembered
    broker that is no longer registered makes answers incomplete, because it may have had messages.
    Without a file (the default) only registered brokers are asked, and a missing one is not
    noticed. The command line has a file in the user's state directory.
    """

    @takes_settings(AdminSettings)
    def __init__(self, settings: AdminSettings) -> None:
        self.namespace: Final = settings.namespace
        self._connection: Final[dict[str, Any]] = {
            name: getattr(settings, name)
            for name in ("credentials", "tls", "timeout_s", "connect_timeout_s")
        }
        self._cluster: Final = ClusterCalls(
            settings.name_servers,
            handlers=settings.handlers or NO_HANDLERS,
            clock=settings.clock,
            **self._connection,
        )
        seen_brokers = None
        if settings.seen_brokers is not None:
            seen_brokers = SeenBrokers(Path(settings.seen_brokers), self._cluster.name_servers)
        topology = Topology(self._cluster, seen_brokers, settings.clock)
        samples = IndexSamples(self._cluster, settings.clock)
        self.source: Final = ClusterSource(self._cluster, topology, samples, settings.namespace)
        """The source for `rocketlens.find`."""

    @overload
    async def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    async def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    async def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic.

        With a topic the id is used as an offset message id first, then as a unique key. If several
        records have the unique key, the oldest is returned. The client connects to the address in
        an id only if the name servers list it as a broker's.

        :raises MessageNotFound: if the message does not exist.
        :raises AnswerIncomplete: if it was not found, and a broker failed.
        :raises BadInput: if there is no topic, and the id is not an offset message id.
        :raises TopicNotFound: if no broker has the topic.
        """
        if second is None:
            return await self.source.view_by_offset_id(check_text(first, "msg_id"))
        topic = self._full_topic(check_text(first, "topic"))
        return await self.source.view_in_topic(topic, check_text(second, "msg_id"))

    @takes(FindOptions, FindRequest.parse)
    async def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: Unpack[FindOptions],
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content, as `Store.find` does.

        The keywords are those of `rocketlens.query.options.FindOptions`. Without a topic, every
        topic that the name servers list is searched, within the namespace if there is one;
        RocketMQ's own topics only with ``all_topics``. Messages are in the order of their store
        times, with full topic names.

        A search by topic and time relies on rising store times in a queue, which it checks by
        samples, and reports as ``relies_on`` in the coverage. With ``exhaustive`` it reads whole
        queues.
        """
        request = FindRequest.parse(text, topic, **options)
        return await find(request, self.source)

    @takes(StoryOptions, StoryRequest.parse)
    async def story(
        self, text: str, topic: str | Iterable[str] | None = None, **options: Unpack[StoryOptions]
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, and its result in each group.

        ``text`` is an id, a key or ``TOPIC/QUEUE/OFFSET``, and is found as by `find`. ``message``
        of the story is None if nothing is found. The keywords are those of
        `rocketlens.query.options.StoryOptions`. All topics are searched for copies: O(topics)
        requests.

        :raises BadInput: if the text does not match ``kind``.
        :raises TopicNotFound: if nothing is found, and the topic does not exist.
        """
        from rocketlens.client.cluster_story import ClusterStorySource
        from rocketlens.query.story.story_search import find_story

        request = StoryRequest.parse(text, topic, **options)
        return await find_story(request, [ClusterStorySource(self.source)])

    async def expect(
        self,
        key: str,
        topic: str | Iterable[str] | None = None,
        *,
        by: int | datetime | str,
        consumed_by: str | None = None,
        on_event: Callable[[str], None] | None = None,
    ) -> MessageExt:
        """Wait until a message with a key is stored, or a group has consumed it; return it.

        The message may be older than the call. The cluster is queried every two seconds, less often
        if it is slow, and may be unreachable meanwhile. ``by`` is the deadline: epoch milliseconds,
        a datetime, or words such as ``09:00`` (today) and ``in 2h``. ``on_event`` gets a line when
        the reason for waiting changes.

        :raises MessageNotFound: if the deadline passes without the message.
        :raises AnswerIncomplete: if the deadline passes, and a broker did not answer.
        :raises BadInput: if ``by`` is not in the future, or the text is not a valid key.
        """
        from rocketlens.client.cluster_story import ClusterStorySource
        from rocketlens.query.expect import ExpectRequest, expect_steps

        request = ExpectRequest.parse(key, topic, by=by, consumed_by=consumed_by)
        steps = expect_steps(
            request, lambda: ClusterStorySource(self.source), asyncio.sleep, on_event
        )
        return await run_in_loop(steps)

    async def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: int | datetime | str = 0,
        end: int | datetime | str = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``.

        ``begin`` and ``end`` are store times in epoch milliseconds, datetimes or words such as
        ``2h``. Both are inclusive, and exact to the millisecond. ``max_num`` is any number, or None
        for all. Messages are in the order of their store times.

        :raises BadInput: if the key is empty or too long, or a number is negative.
        :raises TopicNotFound: if no broker has the topic.
        """
        key_filter = MessageFilter(key=check_text(key, "key"), unique_key=key)
        return await self._by_key(topic, key_filter, max_num, time_range(begin, end))

    async def query_message_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: int | datetime | str = 0,
        end: int | datetime | str = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, of any age.

        Resent messages keep their unique key, so several can have it. Otherwise as `query_message`.
        """
        key_filter = MessageFilter(unique_key=check_text(unique_key, "unique_key"))
        return await self._by_key(topic, key_filter, max_num, time_range(begin, end))

    async def query_by_queue_offset(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> MessageExt:
        """Return the message at one offset of one queue.

        :raises MessageNotFound: if the message or topic does not exist.
        :raises AnswerIncomplete: if it was not found, and a broker failed.
        :raises BadInput: if `topic` is not a valid topic name, a number is negative, or several
            brokers have a message there.
        """
        answer = await find(FindRequest.at(topic, queue_id, queue_offset), self.source)
        return one_message(answer, "the cluster")

    def forget_broker(self, broker_name: str) -> bool:
        """Remove a broker that is gone for good, so that answers can be complete without it.

        Return False if it is not remembered, or could not be removed.
        """
        return self.source.topology.forget(broker_name)

    async def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues, in the order of broker name and queue id.

        :raises TopicNotFound: if no broker has the topic.
        """
        route = await self._cluster.route(self._full_topic(topic))
        return tuple(queue._replace(topic=topic) for queue in route.read_queues)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the approximate offset of the first message in a queue stored at a time or later.

        :raises BrokerError: if the broker refuses.
        :raises TopicNotFound: if no broker has the topic, or the queue's broker does not.
        """
        return await self._ask_queue(
            queue,
            lambda address, full_queue: broker_calls.offset_at_time(
                self._cluster, address, full_queue, timestamp_ms
            ),
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue; errors as `search_offset`."""
        return await self._ask_queue(queue, partial(broker_calls.min_offset, self._cluster))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's next message; errors as `search_offset`."""
        return await self._ask_queue(queue, partial(broker_calls.max_offset, self._cluster))

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of a queue's oldest message in epoch ms, or -1 if it is empty.

        Errors as `search_offset`.
        """
        return await self._ask_queue(queue, partial(broker_calls.oldest_ms, self._cluster))

    async def create_topic(
        self,
        topic: str,
        queue_nums: int = 8,
        *,
        cluster_name: str | None = None,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
    ) -> None:
        """Create or change a topic, on all registered masters, or those of one cluster.

        :raises MessageIllegal: if it is not a valid topic name.
        :raises BadInput: if the cluster does not exist, or the number of queues is out of range.
        :raises BrokerError: if a broker refuses; the error's notes have the results of the others.
        :raises RemotingError: if a broker does not respond (likewise), or no name server does.
        """
        full_topic = self._full_topic(topic)
        check_topic(full_topic)
        if not 1 <= queue_nums <= limits.MAX_TOPIC_QUEUES:
            raise BadInput(f"{queue_nums} queues: give 1 .. {limits.MAX_TOPIC_QUEUES}")
        masters = await self._masters(cluster_name, None)
        header = CreateTopicRequest(
            topic=full_topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_filter_type=TopicFilterType.SINGLE_TAG.name,
            topic_sys_flag=0,
            order=order,
        )
        try:
            await self._cluster.ask_all(masters, UPDATE_AND_CREATE_TOPIC, header)
        finally:
            self._cluster.forget_route(full_topic)

    async def start(self) -> None:
        """Has no effect: the first call opens the connections."""

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _full_topic(self, topic: str) -> str:
        return self.source.full_topic(topic)

    async def _masters(self, cluster_name: str | None, broker_addr: str | None) -> list[str]:
        if cluster_name is not None and broker_addr is not None:
            raise BadInput("cluster_name or broker_addr can be given, not both")
        brokers = await self._cluster.all_brokers(cluster_name)
        masters = [each.master for each in brokers.values() if each.master is not None]
        if broker_addr is not None:
            masters = [each for each in masters if each == broker_addr]
        if not masters:
            where = f"cluster {cluster_name}" if cluster_name else (broker_addr or "the cluster")
            raise BadInput(f"the name servers know no master of {where}")
        return masters

    async def _by_key(
        self,
        topic: str,
        key_filter: MessageFilter,
        max_num: int | None,
        times: tuple[int | None, int],
    ) -> Answer:
        full_topic = self._full_topic(check_text(topic, "topic"))
        check_key(key_filter.index_key)
        findings = Findings(AnswerMessages(check_max_num(max_num)))
        begin, end = times
        message_filter = replace(
            key_filter, topic=full_topic, begin=begin, end=end, tally=findings.tally
        )
        await self.source.find_by_key(message_filter, findings)
        findings.cover(await self.source.topology.recheck_missing_brokers())
        return findings.answer(key_filter.index_key)

    async def _ask_queue(
        self, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[int]]
    ) -> int:
        full_queue = queue._replace(topic=self._full_topic(queue.topic))
        route = await self._cluster.route(full_queue.topic)
        broker = route.brokers.get(queue.broker_name)
        if broker is None or not broker.addresses:
            raise TopicNotFound(f"topic {queue.topic}: not on broker {queue.broker_name}")
        errors: list[RocketLensError] = []

        async def ask_at(address: str) -> int:
            try:
                return await ask(address, full_queue)
            except RocketLensError as error:
                errors.append(error)
                raise

        answer = await self._cluster.ask_broker(broker, ask_at)
        if answer.value is None:
            raise errors[0]
        return answer.value
