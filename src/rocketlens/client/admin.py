"""Questions to a running cluster: what ``rocketlens.MQAdmin`` and every producer can be asked.

All brokers of the route are asked at once, each one's master first and its slaves if it is gone.
A broker that fails makes an answer incomplete and is named in its coverage.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar, overload

from rocketlens import limits
from rocketlens.client.cluster import ClusterCalls, Credentials, fields_of
from rocketlens.client.cluster_source import ClusterSource
from rocketlens.client.message import check_topic
from rocketlens.client.route import MessageQueue
from rocketlens.client.seen_brokers import SeenBrokers
from rocketlens.client.survey import Survey
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model.answer import Answer
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import PERM_READ_WRITE
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest, Kind, check_key, check_max_num, time_range
from rocketlens.query.verify import MessageFilter
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
    from os import PathLike

Q = TypeVar("Q")
A = TypeVar("A")


class ClusterClient:
    """What admins and producers have in common. An async context manager; of one event loop.

    ``name_servers`` is ``"host:9876;host2:9876"``, or several addresses; without it the
    environment's ``NAMESRV_ADDR`` counts. Topics are those of ``namespace``, if one is given.
    ``timeout_s`` is for each answer waited for, connecting included.

    ``seen_brokers`` is a file in which the brokers that answers come from are remembered for 30
    days: one that is not registered any more then makes answers incomplete, for it may have had
    messages. Without a file (the default: a library writes none unasked) only what is registered
    now is asked, and a broker that is gone is not missed. The command line has one in the user's
    state directory.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        namespace: str = "",
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = limits.ADMIN_TIMEOUT_S,
        connect_timeout_s: float = limits.CONNECT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        seen_brokers: "str | PathLike[str] | None" = None,
    ) -> None:
        self.namespace: Final = namespace
        self._cluster: Final = ClusterCalls(
            name_servers,
            credentials=credentials,
            tls=tls,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            clock=clock,
        )
        seen = None
        if seen_brokers is not None:
            seen = SeenBrokers(Path(seen_brokers), self._cluster.name_servers)
        survey = Survey(self._cluster, seen, clock)
        self.source: Final = ClusterSource(self._cluster, survey, namespace)
        """What `rocketlens.find` asks."""

    @overload
    async def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    async def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    async def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic.

        With a topic the id is taken as an offset message id first, then as a unique key; of
        several records with one unique key, the oldest is given. An address in the id is never
        dialled unless the name servers know it as a broker's.

        :raises MessageNotFound: when there is none.
        :raises AnswerIncomplete: when there is none where one could look, and a broker failed.
        :raises BadInput: when there is no topic, and the id is no offset message id.
        :raises TopicNotFound: when no broker has the topic.
        :raises RemotingError: when no name server answers.
        """
        if second is None:
            return await self.source.view_by_offset_id(check_text(first, "msg_id"))
        topic = self._full_topic(check_text(first, "topic"))
        return await self.source.view_in_topic(topic, check_text(second, "msg_id"))

    async def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        *,
        kind: Kind = "auto",
        begin: "int | datetime | None" = None,
        end: "int | datetime | None" = None,
        max_num: int | None = None,
    ) -> Answer:
        """Find messages by whatever is at hand; arguments and errors as `Store.find` has them.

        Without a topic every topic that the name servers know is searched, of the namespace if
        there is one. Messages are in the order of their store times, with their topics' full
        names.

        :raises RemotingError: if no name server answers.
        """
        request = FindRequest.parse(text, topic, kind=kind, begin=begin, end=end, max_num=max_num)
        return await find(request, self.source)

    async def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime" = 0,
        end: "int | datetime" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``.

        ``begin`` and ``end`` are store times in epoch milliseconds or datetimes, both included, and
        are met to the millisecond. ``max_num`` may be any number, None for all. Messages are in the
        order of their store times.

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
        begin: "int | datetime" = 0,
        end: "int | datetime" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, whatever their age.

        Resent messages keep it, so there can be several. Otherwise as `query_message`.
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
        """Forget a broker that is gone for good, so that answers can be complete without it.

        False if it is not remembered, or could not be forgotten.
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
        """Return the offset in a queue of about the first message stored at a time or later.

        :raises BrokerError: when the broker will not.
        :raises TopicNotFound: when no broker has the topic, or the queue's broker does not.
        :raises RemotingError: when neither the broker nor a slave of it answers.
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
        """Return the offset that a queue's next message will have; errors as `search_offset`."""
        topic = self._full_topic(queue.topic)
        header = GetMaxOffsetRequest(topic=topic, queue_id=queue.queue_id)
        return (await self._ask_queue(queue, GET_MAX_OFFSET, header)).queue_offset

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """Return when the oldest message of a queue was stored, -1 for none, in epoch milliseconds.

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
        """Make a topic, or change it, on all masters of the name servers, or of one cluster.

        :raises MessageIllegal: when it is no name for a topic.
        :raises BadInput: when there is no such cluster, or the number of queues is none.
        :raises BrokerError: when a broker will not; the error's notes say what became of the rest.
        :raises RemotingError: when a broker does not answer (likewise), or no name server does.
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
        """Nothing has to be done before the first call."""

    async def close(self) -> None:
        """End all connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        """Start, and return this client."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # How it is done.

    def _full_topic(self, topic: str) -> str:
        """Return the topic's name on brokers."""
        return self.source.full_topic(topic)

    async def _by_key(self, message_filter: MessageFilter, max_num: int | None) -> Answer:
        check_key(message_filter.index_key)
        findings = Findings(AnswerMessages(check_max_num(max_num)))
        await self.source.find_by_key(message_filter, findings)
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


class MQAdmin(ClusterClient):
    """Asks a running RocketMQ cluster, ours or any other.

    ::

        async with rocketlens.MQAdmin("127.0.0.1:9876") as admin:
            answer = await admin.query_message("Orders", "ORDER-20261120-0042")
            for message in answer:
                print(message.msg_id, message.body)
    """
