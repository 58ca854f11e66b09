"""Requests of the commands, as RocketMQ's tool sends them, with verified answers."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, broker_error, failures
from rocketlens.client.connect.queue_puller import QueuePuller, records_in, tools_puller
from rocketlens.client.connect.route import Broker, MessageQueue, Route
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.search.key_search import query_limit
from rocketlens.errors import AnswerIncomplete, BadInput, BodyError, RocketLensError, TopicNotFound
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.model.properties import UNIQUE_KEY, parse
from rocketlens.model.rocketmq import TAG_TYPE
from rocketlens.model.text.java import decode_utf8
from rocketlens.mqadmin.command_line import Given
from rocketlens.mqadmin.printing.blocks import KeyRow
from rocketlens.mqadmin.printing.form import Form
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import check_key
from rocketlens.terminal.cluster_access import ClusterAccess
from rocketlens.wire.bodies.clients import SubscriptionData
from rocketlens.wire.bodies.tables import ClusterInfo, TopicList, TopicRouteData
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import (
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    GET_BROKER_CLUSTER_INFO,
    GET_ROUTEINFO_BY_TOPIC,
    GetRouteInfoRequest,
)
from rocketlens.wire.commands.messages import QUERY_MESSAGE, QueryMessageRequest
from rocketlens.wire.declare import NoFields

A = TypeVar("A")


class PulledMessages(Struct, frozen=True):
    """An answer to a pull: status, records and next offset."""

    status: str
    records: tuple[Record, ...]
    next_offset: int
    tags: frozenset[str]
    """The tags that match; empty for all."""
    bounds: Mapping[str, str]
    """Properties that a consumer adds to each message."""

    def messages(self) -> Iterator[MessageExt]:
        """Yield the messages; together they can have 2 GiB."""
        for record in self.records:
            message = message_of(record)
            if not self.tags or message.tags in self.tags:
                yield replace(message, properties={**message.properties, **self.bounds})


class Call(Struct, frozen=True):
    """One invocation of a command: its options, layout and cluster, with the tool's requests."""

    given: Given
    form: Form
    admin: MQAdmin
    connection: ClusterAccess

    @property
    def cluster(self) -> ClusterCalls:
        return self.admin.source.cluster

    def print(self, text: str) -> None:
        sys.stdout.write(text)

    def print_shown(self, pieces: Iterable[str]) -> None:
        """Print text of a message, made safe for a terminal piece by piece."""
        for piece in pieces:
            self.print(self.form.shown(piece))

    async def route_data(self, topic: str) -> TopicRouteData:
        """Return a route as the name server sends it; also registers its brokers.

        :raises TopicNotFound: if no name server knows the topic.
        """
        await self.cluster.route(topic)
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        return await self.cluster.ask_name_servers_for(
            TopicRouteData, GET_ROUTEINFO_BY_TOPIC, header
        )

    async def route_and_failures(self, topic: str) -> tuple[Route, str]:
        """Return a route, and a line about missing brokers that may have had the topic.

        :raises TopicNotFound: if no name server knows the topic.
        """
        route, doubts = await self.admin.source.topology.route(topic)
        return route, failures(doubts)

    async def cluster_info(self) -> ClusterInfo:
        """Return the brokers as the name server sends them; also registers them."""
        await self.cluster.all_brokers()
        return await self.cluster.ask_name_servers_for(
            ClusterInfo, GET_BROKER_CLUSTER_INFO, NoFields()
        )

    async def topic_names(self) -> tuple[str, ...]:
        listed = await self.cluster.ask_name_servers_for(
            TopicList, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoFields()
        )
        return listed.topic_list

    async def ask_all(
        self, brokers: Sequence[Broker], ask: Callable[[Broker, str], Awaitable[A]]
    ) -> tuple[list[A], str]:
        """Ask brokers concurrently; return the answers in order, and a line about failures."""
        answers = await self.cluster.ask_brokers(brokers, ask)
        values = [each.value for each in answers if each.value is not None]
        return values, failures([each.coverage for each in answers])

    async def messages_of_unique_key(
        self, message_filter: MessageFilter, cluster_name: str | None, max_num: int
    ) -> Answer:
        """Return the oldest messages of a unique key in a topic, or in one cluster.

        :raises TopicNotFound: if no broker, or none of the cluster, has the topic.
        """
        check_key(message_filter.index_key)
        findings = Findings(AnswerMessages(max_num, oldest=True))
        await self.admin.source.find_by_key(message_filter, findings, cluster_name)
        return findings.answer(message_filter.index_key)

    async def rows_of_key(
        self, request: QueryMessageRequest, cluster_name: str | None
    ) -> tuple[list[KeyRow], str, bool]:
        """Return the rows of a key, a line about failures, and whether there may be more.

        Bodies are not read. A message that the index contains several times is returned as often,
        as in RocketMQ; messages with only the same hash are filtered out.

        :raises TopicNotFound: if no broker, or none of the cluster, has the topic.
        """
        route, doubts = await self.admin.source.topology.route(request.topic)
        is_tag = request.index_type == "T"
        message_filter = MessageFilter(
            topic=request.topic,
            key=None if is_tag else request.key,
            tags=frozenset({request.key}) if is_tag else None,
        )
        may_be_cut = False

        async def ask(_: Broker, address: str) -> list[KeyRow]:
            nonlocal may_be_cut
            limit = await query_limit(self.cluster, address, is_unique_key=False)
            async with self.cluster.turn(address):
                answer = await self.cluster.call(
                    address, QUERY_MESSAGE, request, timeout_s=limits.ADMIN_TIMEOUT_S
                )
                if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
                    raise broker_error(address, answer)
                records = _records(answer.body)
                may_be_cut |= len(records) >= min(limit, request.max_num)
                return list(map(_row_of, filter(message_filter.matches, records)))

        pages, failed = await self.ask_all(route.brokers_in(cluster_name), ask)
        failed = "; ".join(filter(None, [failed, failures(doubts)]))
        return [row for part in pages for row in part], failed, may_be_cut

    async def pull(
        self,
        route: Route,
        queue: MessageQueue,
        offset: int,
        max_num: int,
        tags: str = "*",
        *,
        group: str | None = None,
    ) -> PulledMessages:
        """Pull messages from an offset on; they get MIN_OFFSET and MAX_OFFSET, as in Java.

        `group` is the reading group; None is RocketMQ's group of tools.

        :raises TopicNotFound: if the queue's broker is not in the route.
        :raises BrokerError: if the broker refuses.
        :raises RemotingError: if the broker does not answer.
        """
        broker = route.brokers.get(queue.broker_name)
        if broker is None or not broker.addresses:
            raise TopicNotFound(f"topic {queue.topic}: not on broker {queue.broker_name}")
        puller = tools_puller(self.cluster) if group is None else QueuePuller(self.cluster, group)
        subscription = SubscriptionData(
            topic=queue.topic, sub_string=tags, expression_type=TAG_TYPE
        )
        pulled = await puller.pull(
            broker.in_order[0], queue, offset, count=max_num, subscription=subscription
        )
        accepted = frozenset(tag.strip() for tag in tags.split("||") if tags != "*") - {""}
        bounds = {"MIN_OFFSET": str(pulled.min_offset), "MAX_OFFSET": str(pulled.max_offset)}
        records = tuple(_records(pulled.body))
        return PulledMessages(pulled.status.value, records, pulled.next_offset, accepted, bounds)


def incomplete(text: str) -> AnswerIncomplete:
    return AnswerIncomplete(f"not all was searched: {text}", Answer("", (), ()))


class Failed(list[str]):
    """The failures of a command that continues after them."""

    @contextmanager
    def noted(self, what: str = "") -> Iterator[None]:
        """Record an error, with the name of its subject, and continue."""
        try:
            yield
        except RocketLensError as error:
            self.append(f"{what}: {error}" if what else str(error))

    def check(self) -> None:
        """:raises AnswerIncomplete: if there are failures; it lists them."""
        if self:
            raise incomplete("; ".join(self))


async def masters_of(call: Call) -> dict[str, str]:
    """Return the masters by broker name: of the broker of -b, or of the cluster of -c.

    :raises BadInput: if the name servers know none.
    """
    address, cluster = call.given.text("b"), call.given.text("c")
    brokers = await call.cluster.all_brokers(cluster)
    masters = {
        name: each.master
        for name, each in brokers.items()
        if each.master is not None and address in {None, each.master}
    }
    if not masters:
        where = f"cluster {cluster}" if address is None else f"address {address}"
        raise BadInput(f"the name server knows no master of {where}")
    return masters


def _records(body: bytes) -> list[Record]:
    """:raises BodyError: if a record is damaged."""
    damage: list[str] = []
    records = list(records_in(body, damage))
    if damage:
        raise BodyError(damage[0])
    return records


def _row_of(record: Record) -> KeyRow:
    unique_key = parse(decode_utf8(record.properties)).get(UNIQUE_KEY)
    return KeyRow(
        unique_key or record.offset_msg_id,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.store_timestamp_ms,
    )
