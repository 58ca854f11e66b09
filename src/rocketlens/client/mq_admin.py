"""Queries to a running cluster, which ``rocketlens.MQAdmin`` and every producer have.

All brokers of the route are asked at once, each one's master first, and its slaves if it fails. A
broker that fails makes an answer incomplete and is named in its coverage.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from rocketlens import limits
from rocketlens.client.admin.group_admin import GroupAdmin
from rocketlens.client.admin.groups import find_groups, find_producers
from rocketlens.client.admin.status import find_brokers, find_status
from rocketlens.client.admin.topics import find_topics
from rocketlens.client.connect.broker_history import SeenBrokers
from rocketlens.client.connect.cluster import ClusterCalls, fields_of
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.connect.settings import AdminSettings, takes_settings
from rocketlens.client.connect.survey import Survey
from rocketlens.client.resend.resend import RESEND_GROUP, message_again
from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.index_samples import IndexSamples
from rocketlens.client.search.scan import ScanAdmin
from rocketlens.client.search.tail import TailRequest, TopicTail
from rocketlens.client.send.message import check_topic
from rocketlens.client.send.send_result import SendResult
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model.answer import Answer
from rocketlens.model.arguments import check_text
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import PERM_READ_WRITE
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import TopicsAnswer
from rocketlens.net.pool import NO_HANDLERS
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find
from rocketlens.query.lookup.verify import MessageFilter
from rocketlens.query.options import FindOptions, StoryOptions, TailOptions, takes
from rocketlens.query.request import (
    FindRequest,
    StoryRequest,
    check_key,
    check_max_num,
    tail_filter,
    time_range,
)
from rocketlens.query.topic_choice import asked_topics
from rocketlens.wire.bodies.topic import TopicFilterType
from rocketlens.wire.commands.command_table import Command
from rocketlens.wire.commands.offset import (
    GET_EARLIEST_MSG_STORETIME,
    GET_MAX_OFFSET,
    GET_MIN_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP,
    GetEarliestStoreTimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    SearchOffsetRequest,
)
from rocketlens.wire.commands.topic import UPDATE_AND_CREATE_TOPIC, CreateTopicRequest

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from rocketlens.client.send.producer import Producer
    from rocketlens.client.send.trace import TraceWriter
    from rocketlens.query.story.story import Story

Q = TypeVar("Q")
A = TypeVar("A")


class ClusterClient:
    """The base of admins and producers. An async context manager; belongs to one event loop.

    ``name_servers`` is ``"host:9876;host2:9876"``, or several addresses; without it the
    environment's ``NAMESRV_ADDR`` is used. Topics are those of ``namespace``, if one is given.
    ``timeout_s`` is for each answer waited for, connecting included. ``handlers`` answer what
    brokers ask of clients, by request code.

    ``seen_brokers`` is a file in which the brokers that answers come from are remembered for 30
    days: one that is not registered any more then makes answers incomplete, for it may have had
    messages. Without a file (the default: a library writes none unasked) only what is registered
    now is asked, and a broker that is gone is not missed. The command line has one in the user's
    state directory.
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
        seen = None
        if settings.seen_brokers is not None:
            seen = SeenBrokers(Path(settings.seen_brokers), self._cluster.name_servers)
        survey = Survey(self._cluster, seen, settings.clock)
        samples = IndexSamples(self._cluster, settings.clock)
        self.source: Final = ClusterSource(self._cluster, survey, samples, settings.namespace)
        """The source for `rocketlens.find`."""

    @overload
    async def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    async def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    async def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic.

        With a topic the id is first used as an offset message id, then as a unique key; of several
        records with one unique key, the oldest is returned. The address in an id is never dialled
        unless the name servers know it as a broker's.

        :raises MessageNotFound: if there is none.
        :raises AnswerIncomplete: if none was found, and a broker failed.
        :raises BadInput: if there is no topic, and the id is not an offset message id.
        :raises TopicNotFound: if no broker has the topic.
        :raises RemotingError: if no name server responds.
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
        **options: "Unpack[FindOptions]",
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content, as `Store.find` does.

        The keywords are those of `rocketlens.query.options.FindOptions`.
        Without a topic every topic that the name servers know is searched, of the namespace if
        there is one, but RocketMQ's own only with ``all_topics``. Messages are in the order of
        their store times, with their topics' full names.

        A search by topic and time relies on the store times of a queue rising, which it checks by
        samples: ``relies_on`` of the coverage says so. With ``exhaustive`` it reads whole queues.

        :raises RemotingError: if no name server answers.
        """
        request = FindRequest.parse(text, topic, **options)
        return await find(request, self.source)

    @takes(StoryOptions, StoryRequest.parse)
    async def story(
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[StoryOptions]",
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, what each group did with it.

        ``text`` is an id, a key or ``TOPIC/QUEUE/OFFSET``, and found as `find` does; ``message`` of
        the story is None if there is no such message. The keywords are those of
        `rocketlens.query.options.StoryOptions`. All topics are searched for copies: O(topics)
        requests.

        :raises BadInput: if the text cannot be what ``kind`` says.
        :raises TopicNotFound: if nothing is found, and there is no such topic.
        :raises RemotingError: if no name server answers.
        """
        from rocketlens.client.search.cluster_story import ClusterStorySource
        from rocketlens.query.story.story_search import find_story

        request = StoryRequest.parse(text, topic, **options)
        return await find_story(request, [ClusterStorySource(self.source)])

    async def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``.

        ``begin`` and ``end`` are store times in epoch milliseconds, datetimes or words such as
        ``2h``, both included, and are met to the millisecond. ``max_num`` may be any number, None
        for all. Messages are in the order of their store times.

        :raises BadInput: when the key is empty or too long, or a number is negative.
        :raises TopicNotFound: when no broker has the topic.
        :raises RemotingError: when no name server answers.
        """
        full_topic = self._full_topic(check_text(topic, "topic"))
        low, high = time_range(begin, end)
        message_filter = MessageFilter(
            topic=full_topic,
            key=check_text(key, "key"),
            unique_key=key,
            begin=low,
            end=high,
        )
        return await self._by_key(message_filter, max_num)

    async def query_message_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, whatever their age.

        Resent messages keep their unique key, so there can be several. Otherwise as
        `query_message`.
        """
        full_topic = self._full_topic(check_text(topic, "topic"))
        low, high = time_range(begin, end)
        message_filter = MessageFilter(
            topic=full_topic,
            unique_key=check_text(unique_key, "unique_key"),
            begin=low,
            end=high,
        )
        return await self._by_key(message_filter, max_num)

    def forget_broker(self, broker_name: str) -> bool:
        """Remove a broker that is gone for good, so that answers can be complete without it.

        Returns False if it is not remembered, or could not be removed.
        """
        return self.source.survey.forget(broker_name)

    async def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that can be read, in the order of broker name and queue id.

        :raises TopicNotFound: when no broker has the topic.
        :raises RemotingError: when no name server answers.
        """
        route = await self._cluster.route(self._full_topic(topic))
        return tuple(queue._replace(topic=topic) for queue in route.read_queues)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return about the offset of the first message in a queue stored at a time or later.

        :raises BrokerError: if the broker refuses.
        :raises TopicNotFound: if no broker has the topic, or the queue's broker does not.
        :raises RemotingError: if neither the broker nor a slave of it responds.
        """
        topic = self._full_topic(queue.topic)
        header = SearchOffsetRequest(
            topic=topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms
        )
        return (await self._ask_queue(queue, SEARCH_OFFSET_BY_TIMESTAMP, header)).queue_offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue; errors as `search_offset`."""
        topic = self._full_topic(queue.topic)
        header = GetMinOffsetRequest(topic=topic, queue_id=queue.queue_id)
        return (await self._ask_queue(queue, GET_MIN_OFFSET, header)).queue_offset

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's next message; errors as `search_offset`."""
        topic = self._full_topic(queue.topic)
        header = GetMaxOffsetRequest(topic=topic, queue_id=queue.queue_id)
        return (await self._ask_queue(queue, GET_MAX_OFFSET, header)).queue_offset

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of a queue's oldest message, in epoch milliseconds; -1 if it is
        empty.

        Errors as `search_offset`.
        """
        topic = self._full_topic(queue.topic)
        header = GetEarliestStoreTimeRequest(topic=topic, queue_id=queue.queue_id)
        return (await self._ask_queue(queue, GET_EARLIEST_MSG_STORETIME, header)).timestamp_ms

    async def create_topic(
        self,
        topic: str,
        queue_nums: int = 8,
        *,
        cluster_name: str | None = None,
        perm: int = PERM_READ_WRITE,
        order: bool = False,
    ) -> None:
        """Create a topic, or change it, on all masters of the name servers, or of one cluster.

        :raises MessageIllegal: if it is not a valid topic name.
        :raises BadInput: if there is no such cluster, or the number of queues is out of range.
        :raises BrokerError: if a broker refuses; the error's notes have the results of the others.
        :raises RemotingError: if a broker does not respond (likewise), or no name server does.
        """
        full_topic = self._full_topic(topic)
        check_topic(full_topic)
        if not 1 <= queue_nums <= limits.MAX_TOPIC_QUEUES:
            raise BadInput(f"{queue_nums} queues: give 1 .. {limits.MAX_TOPIC_QUEUES}")
        brokers = await self._cluster.all_brokers(cluster_name)
        masters = [each.master for each in brokers.values() if each.master is not None]
        if not masters:
            where = f"cluster {cluster_name!r}" if cluster_name else "the cluster"
            raise BadInput(f"{where} has no broker to make a topic on")
        header = CreateTopicRequest(
            topic=full_topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_filter_type=TopicFilterType.SINGLE_TAG.name,
            topic_sys_flag=0,
            order=order,
        )
        made = [self._cluster.ask(each, UPDATE_AND_CREATE_TOPIC, header) for each in masters]
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        self._cluster.forget_route(full_topic)
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        if errors:
            for address, outcome in zip(masters, outcomes, strict=True):
                errors[0].add_note(
                    f"{address}: {outcome if isinstance(outcome, BaseException) else 'made'}"
                )
            raise errors[0]

    async def start(self) -> None:
        """Do nothing: connections are opened by the first call."""

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        """Start, and return this client."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # Implementation.

    def _full_topic(self, topic: str) -> str:
        """Return the topic's name on brokers."""
        return self.source.full_topic(topic)

    def _trace_writer(self, group: str, *, trace: bool | str) -> "TraceWriter | None":
        """Return what writes the trace of a group's client, None if it is switched off.

        :raises BadInput: if ``trace`` is not a valid topic name.
        """
        from rocketlens.client.send.trace import TRACE_GROUP, TraceWriter, trace_topic_of

        topic = trace_topic_of(trace=trace)
        if topic is None:
            return None

        def make_producer() -> "Producer":
            from rocketlens.client.send.producer import Producer

            name_servers = self._cluster.name_servers
            return Producer(name_servers, group=TRACE_GROUP, **self._connection)

        return TraceWriter(topic, make_producer, group=group, namespace=self.namespace)

    async def _by_key(self, message_filter: MessageFilter, max_num: int | None) -> Answer:
        check_key(message_filter.index_key)
        findings = Findings(AnswerMessages(check_max_num(max_num)))
        await self.source.find_by_key(message_filter, findings)
        findings.cover(await self.source.survey.gone_since())
        return findings.answer(message_filter.index_key)

    async def _ask_queue(self, queue: MessageQueue, command: Command[Q, A], header: Q) -> A:
        route = await self._cluster.route(self._full_topic(queue.topic))
        broker = route.brokers.get(queue.broker_name)
        if broker is None or not broker.addresses:
            raise TopicNotFound(f"topic {queue.topic}: not on broker {queue.broker_name}")
        errors: list[Exception] = []

        async def ask(address: str) -> A:
            try:
                answer = await self._cluster.ask(address, command, header)
                return fields_of(address, command, answer)
            except Exception as error:
                errors.append(error)
                raise

        answer = await self._cluster.ask_broker(broker, ask)
        if answer.value is None:
            raise errors[0]
        return answer.value


class MQAdmin(ClusterClient, GroupAdmin, ScanAdmin):
    """Queries a running RocketMQ cluster, RocketLens or any other, and acts on it.

    ::

        async with rocketlens.MQAdmin("127.0.0.1:9876") as admin:
            answer = await admin.query_message("Orders", "ORDER-20261120-0042")
            for message in answer:
                print(message.msg_id, message.body)
    """

    _resender: "Producer | None" = None

    @property
    def _source(self) -> ClusterSource:
        return self.source

    async def resend(self, message: MessageExt) -> SendResult:
        """Send a stored message again: to its own topic, with its properties and unique key.

        Every group of the topic gets it again, and two records have its unique key then.

        :raises BadInput: if it was sent in a transaction, or its body cannot be decompressed.
        :raises TopicNotFound: if no broker has its topic any more.
        :raises BrokerError: if a broker refuses it, and another would, too.
        :raises SendFailed: if all attempts failed; whether it is stored again is not known then.
        """
        from rocketlens.client.send.producer import Producer

        again = message_again(message)
        if self._resender is None:
            name_servers = self._cluster.name_servers
            self._resender = Producer(name_servers, group=RESEND_GROUP, **self._connection)
            await self._resender.start()
        return await self._resender.send(again)

    async def close(self) -> None:
        """End all connections."""
        if self._resender is not None:
            await self._resender.close()
        await super().close()

    async def topics(self, topic: str | Iterable[str] | None = None) -> TopicsAnswer:
        """Return the topics of the cluster, or some of them, each with its queues.

        ``topic`` is as `find` has it. A broker that cannot be asked makes the answer incomplete,
        and ``queues`` of its topics None. O(topics * brokers + queues) requests.

        :raises WrongType: if `topic` is of a type that cannot be used.
        :raises TopicNotFound: if the cluster has no topic of a name, or none matches a pattern.
        :raises RemotingError: if no name server answers.
        """
        asked = asked_topics(topic)
        return await find_topics(self._cluster, self.source.survey, asked, self.source.namespace)

    async def groups(self, group: str | None = None) -> GroupsAnswer:
        """Return all consumer groups of the cluster, or one: members, lag, retries, dead letters.

        A broker that cannot be asked makes the answer incomplete and is in its coverage; what it
        could have said of a group is None there. Groups that every broker has from the start are
        returned only if they are asked for. O(groups * brokers) requests.

        :raises RemotingError: if no name server answers.
        """
        full_group = None if group is None else self._full_topic(check_text(group, "group"))
        return await find_groups(self._cluster, self.source.survey, full_group)

    async def producers(self) -> ProducersAnswer:
        """Return the producers that are connected to the cluster, by group. O(brokers) requests.

        A master that cannot be asked, or does not know the request, makes the answer incomplete.

        :raises RemotingError: if no name server answers.
        """
        return await find_producers(self._cluster, self.source.survey)

    async def brokers(
        self, *, on_answer: Callable[[BrokerStatus], None] | None = None
    ) -> BrokersAnswer:
        """Return the brokers of the cluster: versions, rates, disks, and how far they are behind.

        Each master and slave is asked once, all of them side by side. One that does not answer is
        in the answer with its error, and makes it incomplete. ``on_answer`` is called with each
        when it has answered or failed. O(brokers) requests.

        :raises RemotingError: if no name server answers.
        """
        return await find_brokers(self._cluster, self.source.survey, on_answer=on_answer)

    async def status(self) -> ClusterStatus:
        """Return the state of the cluster: brokers with versions, rates and disks, and groups.

        A broker that does not answer is in it with its error, and makes it incomplete.
        O(brokers * groups) requests.

        :raises RemotingError: if no name server answers.
        """
        return await find_status(self._cluster, self.source.survey)

    @takes(TailOptions, tail_filter)
    def tail(
        self,
        topic: str,
        newest: int | None = limits.DEFAULT_TAIL_MESSAGES,
        *,
        follow: bool = False,
        on_event: Callable[[str], None] | None = None,
        **options: "Unpack[TailOptions]",
    ) -> TopicTail:
        """Return an async iterator over the newest messages of a topic, oldest of them first.

        With ``follow`` it goes on with the messages that arrive, and ends only when it is closed:
        use it as an async context manager. It needs no group, and leaves nothing at the brokers.

        ``newest`` None is all messages, in the order of each queue. The other keywords are those of
        `rocketlens.query.options.TailOptions`: all conditions given must hold. ``on_event`` is
        called with a line for each broker that fails or is back, and for messages that were deleted
        before they were read; without it they are logged. ``complete`` and ``coverage`` of the
        result say what could be read.

        The iteration raises TopicNotFound if no broker has the topic, and RemotingError if no name
        server answers.

        :raises BadInput: if a condition is not well-formed, or a number is negative.
        """
        message_filter = tail_filter(self._full_topic(check_text(topic, "topic")), **options)
        request = TailRequest(
            message_filter=message_filter, newest=check_max_num(newest), follow=follow
        )
        return TopicTail(self._cluster, self.source.survey, request, on_event=on_event)
