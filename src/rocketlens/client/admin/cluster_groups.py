"""Lists a cluster's consumer groups with members, lag, retries and dead letters; its producers.

Each broker is asked for its groups, then about each group. A broker that does not answer makes the
answer incomplete, and its part of a group's facts is missing. Groups that every broker creates
itself are listed only if one is requested by name. Slaves do not list producers, and neither do
brokers older than 4.9.3, which makes that answer incomplete.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct, field

from rocketlens.client.admin.group_calls import OF_PROXIES
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import MAX_MESSAGE_ANSWERS, BrokerAnswer, ClusterCalls
from rocketlens.client.connect.route import Broker
from rocketlens.client.connect.topology import CoverageByReason, Topology
from rocketlens.errors import BrokerError, TopicNotFound
from rocketlens.model.answer import hint
from rocketlens.model.group import (
    FoundGroup,
    GroupClient,
    GroupQueue,
    GroupsAnswer,
    ProducerGroup,
    ProducersAnswer,
)
from rocketlens.model.life import copy_topics_of
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC, is_system_group
from rocketlens.model.topic import TopicKind
from rocketlens.net.pace import at_once
from rocketlens.query.topic_choice import no_such_group
from rocketlens.wire.bodies.clients import ConsumerConnection
from rocketlens.wire.bodies.tables import ConsumeStats, MessageQueue, TopicOffset
from rocketlens.wire.codes import ResponseCode

T = TypeVar("T")

NO_MEMBERS: Final = ConsumerConnection()
NO_OFFSETS: Final = ConsumeStats()
_NO_SUCH_GROUP: Final = frozenset(
    {
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


class _Facts(Struct):
    """Accumulates facts about one group; None marks facts that a broker failed to return."""

    name: str
    members: dict[str, GroupClient] | None = field(default_factory=dict)
    message_model: str | None = None
    subscriptions: dict[str, str] = field(default_factory=dict)
    queues: list[GroupQueue] | None = field(default_factory=list)
    dead_letters: int | None = 0
    last_dead_letter_ms: int = 0

    def group(self) -> FoundGroup:
        queues = self.queues
        if queues is not None:
            queues.sort(key=lambda each: (each.topic, each.broker_name or "", each.queue_id))
        return FoundGroup(
            self.name,
            None if self.members is None else tuple(self.members.values()),
            self.message_model,
            None if self.members is None else self.subscriptions,
            None if queues is None else tuple(queues),
            self.dead_letters,
            self.last_dead_letter_ms or None,
        )


async def find_groups(cluster: ClusterCalls, topology: Topology, group: str | None) -> GroupsAnswer:
    """Return all groups of a cluster, or only `group`; empty if no broker has it."""
    return await _Groups(cluster, topology, group).find()


class _Groups:
    def __init__(self, cluster: ClusterCalls, topology: Topology, group: str | None) -> None:
        self._cluster: Final = cluster
        self._topology: Final = topology
        self._group: Final = group
        self._coverage: Final = CoverageByReason()
        self._by_name: Final[dict[str, _Facts]] = {}
        self._has_proxy = False

    async def find(self) -> GroupsAnswer:
        topology = await self._topology.brokers()
        topics = await self._topology.topics()
        self._coverage.add(*topology.coverage, *topics.coverage)
        self._has_proxy = HEARTBEAT_TOPIC in topics.value
        if self._has_proxy:
            self._coverage.add(hint("proxies", OF_PROXIES))
        brokers = list(topology.value.values())
        names = set().union(*await asyncio.gather(*map(self._names_on, brokers)))
        copies = copy_topics_of(set(topics.value), names)
        for note in copies.notes():
            self._coverage.add(hint("topics", note))
        names |= copies.by_group.keys()
        if self._group is None:
            names = {each for each in names if not is_system_group(each)}
        elif self._group in names:
            names = {self._group}
        else:
            self._coverage.add(no_such_group(self._group, names))
            names = set()
        self._by_name.update((name, _Facts(name)) for name in sorted(names))
        pairs = itertools.product(brokers, self._by_name.values())
        await at_once(lambda pair: self._add_broker(*pair), pairs, MAX_MESSAGE_ANSWERS)
        await at_once(
            lambda facts: self._add_topics(facts, copies.by_group.get(facts.name, set())),
            self._by_name.values(),
            MAX_MESSAGE_ANSWERS,
        )
        for facts in self._by_name.values():
            if self._has_proxy and not facts.members:
                facts.members = None
        groups = tuple(facts.group() for facts in self._by_name.values())
        return GroupsAnswer(groups, self._coverage.all())

    async def _names_on(self, broker: Broker) -> set[str]:
        configs = partial(broker_calls.group_configs, self._cluster)
        answer = await self._cluster.ask_broker(broker, configs)
        self._coverage.add(answer.coverage)
        return set(answer.value or ())

    async def _add_broker(self, broker: Broker, facts: _Facts) -> None:
        cluster, group = self._cluster, facts.name
        members = await cluster.ask_broker(
            broker, lambda at: _or_else(broker_calls.connections(cluster, at, group), NO_MEMBERS)
        )
        self._add_members(facts, members)
        offsets = await cluster.ask_broker(
            broker, lambda at: _or_else(broker_calls.consume_stats(cluster, at, group), NO_OFFSETS)
        )
        self._add_offsets(facts, offsets)

    def _add_members(self, facts: _Facts, answer: BrokerAnswer[ConsumerConnection]) -> None:
        self._coverage.add(answer.coverage)
        if answer.value is None:
            facts.members = None
            return
        connected = answer.value
        if facts.members is not None:
            for each in connected.connections:
                facts.members.setdefault(
                    each.client_id,
                    GroupClient(each.client_id, each.client_addr, each.language, each.version),
                )
        if connected.message_model is not None:
            facts.message_model = connected.message_model.value
        for topic, subscription in connected.subscription_table.items():
            facts.subscriptions[topic] = subscription.sub_string or ""

    def _add_offsets(self, facts: _Facts, answer: BrokerAnswer[ConsumeStats]) -> None:
        self._coverage.add(answer.coverage)
        if answer.value is None:
            facts.queues = None
            return
        if facts.queues is not None:
            facts.queues += [
                GroupQueue(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    offset.broker_offset,
                    offset.consumer_offset,
                    offset.last_timestamp_ms or None,
                )
                for queue, offset in answer.value.offset_table.items()
            ]

    async def _add_topics(self, facts: _Facts, topics: set[str]) -> None:
        """Count dead letters, and add retry queues in which the group has no offset yet."""
        for topic in sorted(topics):
            is_retry = TopicKind.of(topic) is TopicKind.RETRY
            for table in await self._stats_of(topic):
                if is_retry:
                    _add_queues(facts, table)
                elif table is None or facts.dead_letters is None:
                    facts.dead_letters = None
                else:
                    for each in table.values():
                        facts.dead_letters += each.max_offset - each.min_offset
                        last_ms = max(facts.last_dead_letter_ms, each.last_update_timestamp_ms)
                        facts.last_dead_letter_ms = last_ms

    async def _stats_of(self, topic: str) -> list[Mapping[MessageQueue, TopicOffset] | None]:
        """Return each broker's queue offsets of a topic; None for a broker that did not answer."""
        try:
            route = (await self._topology.route(topic)).value
        except TopicNotFound:
            # The topic was deleted meanwhile.
            return []
        stats = partial(broker_calls.topic_stats, self._cluster, topic=topic, missing_ok=True)
        answers = await self._cluster.ask_brokers(
            route.brokers.values(), lambda _, address: stats(address)
        )
        self._coverage.add(*(answer.coverage for answer in answers))
        return [answer.value for answer in answers]


def _add_queues(facts: _Facts, table: Mapping[MessageQueue, TopicOffset] | None) -> None:
    if table is None or facts.queues is None:
        facts.queues = None
        return
    queues = {(each.topic, each.broker_name, each.queue_id) for each in facts.queues}
    facts.queues += [
        GroupQueue(*queue, offset.max_offset, -1, None, offset.min_offset)
        for each, offset in table.items()
        if (queue := (each.topic, each.broker_name, each.queue_id)) not in queues
    ]


async def _or_else(call: Awaitable[T], default: T) -> T:
    """Return the answer, or ``default`` if the broker does not have the group."""
    try:
        return await call
    except BrokerError as error:
        if error.code in _NO_SUCH_GROUP:
            return default
        raise


async def find_producers(cluster: ClusterCalls, topology: Topology) -> ProducersAnswer:
    coverage = CoverageByReason()
    brokers = await topology.brokers()
    coverage.add(*brokers.coverage)
    groups: dict[str, dict[str, GroupClient]] = {}
    answers = await cluster.ask_brokers(
        brokers.value.values(), lambda _, address: broker_calls.producers(cluster, address)
    )
    for answer in answers:
        coverage.add(answer.coverage)
        for group, members in answer.value.groups.items() if answer.value else ():
            clients = groups.setdefault(group, {})
            for member in members:
                client = GroupClient(
                    member.client_id, member.remote_ip, member.language, member.version
                )
                clients.setdefault(member.client_id, client)
    return ProducersAnswer(
        tuple(ProducerGroup(name, tuple(groups[name].values())) for name in sorted(groups)),
        coverage.all(),
    )
