"""Lists a cluster's topics, with their queues, message counts and times; settings of one topic.

Name servers list the topics; each broker of a topic reports its queues. A broker that does not
answer makes the answer incomplete, and leaves the queues of its topics unknown. No broker lists
lite topics (since 5.5): their names are read from messages of the parent topic. Brokers return
topic configurations since 5.0.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from msgspec.structs import replace

from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import (
    MAX_MESSAGE_ANSWERS,
    BrokerAnswer,
    ClusterCalls,
    failed_broker,
)
from rocketlens.client.connect.namespace import is_in_namespace, with_namespace, without_namespace
from rocketlens.client.connect.route import Broker, MessageQueue, brokers_of
from rocketlens.client.connect.topology import CoverageByReason, Topology
from rocketlens.client.search.queue_offsets import former_messages
from rocketlens.client.search.topic_tail import TopicTail
from rocketlens.errors import BrokerError, RocketLensError, TopicNotFound
from rocketlens.model.answer import Coverage
from rocketlens.model.properties import LITE_TOPIC
from rocketlens.model.rocketmq import LITE_PREFIX, lite_parent, lite_topic, reply_topic
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import FoundTopic, LiteTopics, TopicQueue, TopicsAnswer, TopicSettings
from rocketlens.net.pace import at_once
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.topic_choice import is_pattern, matching_topics, unknown_topic
from rocketlens.wire.bodies.tables import QueueData, TopicConfig, TopicRouteData
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands import brokers as commands
from rocketlens.wire.declare import NoFields
from rocketlens.wire.lite import (
    GET_BROKER_LITE_INFO,
    GET_PARENT_TOPIC_INFO,
    BrokerLiteInfo,
    GetParentTopicInfoRequest,
    ParentTopicInfo,
)

MAX_LITE_MESSAGES: Final = 10_000
"""Newest messages of a parent topic that are read to find the names of its lite topics."""
MAX_COUNT_REQUESTS: Final = 1_024
"""Requests to count a topic's messages by time: one for each queue and time."""


async def find_topics(
    cluster: ClusterCalls, topology: Topology, patterns: Collection[str], namespace: str
) -> TopicsAnswer:
    """Return all topics of a cluster's namespace, or those that names and patterns match.

    :raises TopicNotFound: if a name or pattern matches no topic, and all name servers answered.
    """
    return await _Topics(cluster, topology, namespace).find(patterns)


def topics_of_brokers(brokers: Collection[Broker]) -> set[str]:
    """Return the topics that brokers create under their own and their cluster's name."""
    clusters = {each.cluster_name for each in brokers}
    return {*(each.name for each in brokers), *clusters, *map(reply_topic, clusters)}


class _Topics:
    def __init__(self, cluster: ClusterCalls, topology: Topology, namespace: str) -> None:
        self._cluster: Final = cluster
        self._topology: Final = topology
        self._namespace: Final = namespace
        self._coverage: Final = CoverageByReason()
        self._unread: Final[set[str]] = set()
        """Parents of lite topics with more than MAX_LITE_MESSAGES messages."""

    async def find(self, patterns: Collection[str]) -> TopicsAnswer:
        brokers = await self._topology.brokers()
        listed = await self._topology.topics()
        self._coverage.add(*brokers.coverage, *listed.coverage)
        full_names = {
            without_namespace(self._namespace, name): name
            for name in listed.value
            if is_in_namespace(self._namespace, name)
        }
        lite = {each for each in patterns if each.startswith(LITE_PREFIX)}
        names: list[str] = []
        if not lite or lite < set(patterns):
            names = self._choose(set(patterns) - lite, full_names, listed.coverage)
        for name in sorted(lite):
            more = await self._lite_topics(with_namespace(self._namespace, name))
            full_names |= {without_namespace(self._namespace, each): each for each in more}
            names += [each for each in full_names if full_names[each] in more]
        own = topics_of_brokers(brokers.value.values())
        topics = await at_once(
            lambda name: self._find(name, full_names[name], own), names, MAX_MESSAGE_ANSWERS
        )
        found = [each for each in topics if each is not None]
        chosen = {*(full_names[name] for name in names), *self._unread}
        parents = await self._parents(brokers.value.values(), chosen)
        has_failed = any(each.is_failure for each in self._coverage.all())
        for name in lite - {each.name for each in found}:
            if not (is_pattern(name) or has_failed):
                raise unknown_topic(name, (), "this cluster")
        queues = Counter(
            lite_parent(full_names[each.name]) for each in found for _ in each.queues or ()
        )
        for parent in self._unread:
            if parent not in parents or queues[parent] < (parents[parent].count or 0):
                why = Sentence("lite_names", parent=parent, count=MAX_LITE_MESSAGES)
                self._coverage.add(failed_broker("lite topics", why))
        return TopicsAnswer(
            tuple(replace(each, lite=parents.get(full_names[each.name])) for each in found),
            self._coverage.all(),
        )

    async def _lite_topics(self, pattern: str) -> list[str]:
        """Return the lite topics that match a full name or pattern, sorted.

        No broker lists them, so their names are read from messages of the parent topic.
        """
        parent = lite_parent(pattern)
        if parent is None or not is_pattern(pattern):
            return [pattern]
        tail = TopicTail(
            self._cluster,
            self._topology,
            MessageFilter(topic=parent),
            newest=MAX_LITE_MESSAGES,
            follow=False,
            on_event=lambda _: None,
        )
        names: set[str] = set()
        count = 0
        async for message in tail:
            count += 1
            names.add(lite_topic(parent, message.properties.get(LITE_TOPIC, "")))
        self._coverage.add(*tail.coverage)
        if count == MAX_LITE_MESSAGES:
            self._unread.add(parent)
        return sorted(name for name in names if lite_parent(name) and fnmatchcase(name, pattern))

    async def _parents(
        self, brokers: Iterable[Broker], chosen: Collection[str]
    ) -> dict[str, LiteTopics]:
        """Return the lite topics of each chosen topic that is a parent, by name."""

        async def ask(_: Broker, address: str) -> dict[str, ParentTopicInfo]:
            ask_for = self._cluster.ask_for
            try:
                known = await ask_for(BrokerLiteInfo, address, GET_BROKER_LITE_INFO, NoFields())
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                # The broker is older than 5.5.
                return {}
            infos = {}
            for name in known.topic_meta.keys() & chosen:
                header = GetParentTopicInfoRequest(topic=name)
                infos[name] = await ask_for(ParentTopicInfo, address, GET_PARENT_TOPIC_INFO, header)
            return infos

        failed = {each.source for each in self._coverage.all() if each.is_failure}
        by_name: dict[str, list[ParentTopicInfo]] = defaultdict(list)
        for answer in await self._cluster.ask_brokers(brokers, ask):
            if answer.coverage.source not in failed:
                self._coverage.add(answer.coverage)
            for name, info in (answer.value or {}).items():
                by_name[name].append(info)
        return {
            name: LiteTopics(
                sum(each.lite_topic_count for each in infos),
                infos[0].ttl,
                tuple(sorted({group for each in infos for group in each.groups})),
            )
            for name, infos in by_name.items()
        }

    def _choose(
        self, patterns: Collection[str], all_names: Collection[str], failed: Collection[Coverage]
    ) -> list[str]:
        if not patterns:
            return sorted(all_names)
        names, unknown = matching_topics(patterns, all_names)
        unknown |= {
            name: unknown_topic(name, all_names, "this cluster")
            for name in names
            if name not in all_names
        }
        for error in unknown.values():
            if not failed:
                raise error
        return [name for name in names if name in all_names]

    async def _find(
        self, name: str, full_name: str, of_brokers: Collection[str]
    ) -> FoundTopic | None:
        """Return a topic; None if it was deleted after the topics were listed."""
        try:
            route = await self._topology.route(full_name)
        except TopicNotFound:
            return None
        self._coverage.add(*route.coverage)

        async def ask(broker: Broker, address: str) -> list[TopicQueue]:
            for problem in await former_messages(
                self._cluster, address, broker.name, route.value, None
            ):
                self._coverage.add(failed_broker(broker.name, problem))
            return await self._queues(full_name, address)

        answers = await self._cluster.ask_brokers(route.value.brokers.values(), ask)
        queues = self._merged(answers)
        if lite_parent(full_name) and queues is not None:
            queues = tuple(each for each in queues if each.max_offset)
            if not queues:
                return None
        return FoundTopic(name, queues, is_of_broker=full_name in of_brokers)

    def _merged(
        self, answers: list[BrokerAnswer[list[TopicQueue]]]
    ) -> tuple[TopicQueue, ...] | None:
        self._coverage.add(*(answer.coverage for answer in answers))
        if any(answer.value is None for answer in answers):
            return None
        queues = [queue for answer in answers for queue in answer.value or ()]
        return tuple(sorted(queues, key=lambda each: (each.broker_name or "", each.queue_id)))

    async def _queues(self, topic: str, address: str) -> list[TopicQueue]:
        queues = []
        table = await broker_calls.topic_stats(self._cluster, address, topic, missing_ok=True)
        for queue, offsets in table.items():
            topic_queue = TopicQueue(
                queue.broker_name,
                queue.queue_id,
                offsets.min_offset,
                offsets.max_offset,
                newest_ms=offsets.last_update_timestamp_ms or None,
            )
            if topic_queue.messages:
                oldest_ms = await broker_calls.oldest_ms(self._cluster, address, queue)
                topic_queue = replace(topic_queue, oldest_ms=None if oldest_ms < 0 else oldest_ms)
            queues.append(topic_queue)
        return queues


async def find_topic_settings(cluster: ClusterCalls, topic: str) -> tuple[TopicSettings, ...]:
    """Return the settings of a topic by broker name; ``topic`` includes its namespace.

    If a broker does not answer, its settings come from the name servers, and ``error`` has the
    reason. Brokers of RocketMQ 4 do not know the request; ``error`` is empty for them. O(brokers)
    requests.

    :raises TopicNotFound: if no name server knows the topic.
    """
    route = await _route(cluster, topic)
    brokers = _brokers(cluster, route)

    async def settings(queues: QueueData) -> TopicSettings:
        name = queues.broker_name
        routed = TopicSettings(name, queues.perm, queues.read_queue_nums, queues.write_queue_nums)
        header = commands.TopicRequest(topic=topic)
        try:
            address = _master(brokers.get(name))
            config = await cluster.ask_for(TopicConfig, address, commands.GET_TOPIC_CONFIG, header)
        except RocketLensError as error:
            is_old = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            return routed if is_old else replace(routed, error=str(error))
        return TopicSettings(
            name,
            config.perm,
            config.read_queue_nums,
            config.write_queue_nums,
            config.order,
            dict(config.attributes or {}),
        )

    listed = sorted(route.queue_datas, key=lambda each: each.broker_name)
    return tuple(await asyncio.gather(*map(settings, listed)))


async def stored_since(
    cluster: ClusterCalls, topic: str, queues: tuple[TopicQueue, ...], times_ms: Sequence[int]
) -> list[int] | None:
    """Return the approximate number of messages stored in `queues` since each time.

    Return None if a broker does not answer, or if more than `MAX_COUNT_REQUESTS` would be needed.
    The times are compared with the brokers' clocks. O(queues * times) requests.
    """
    if len(queues) * len(times_ms) > MAX_COUNT_REQUESTS:
        return None
    try:
        brokers = _brokers(cluster, await _route(cluster, topic))

        async def count(queue: TopicQueue, since_ms: int) -> int:
            if queue.newest_ms is None or queue.newest_ms < since_ms:
                # RocketMQ 4 returns the last message if none is that new.
                return 0
            address = _master(brokers.get(queue.broker_name or ""))
            at = MessageQueue(topic, queue.broker_name or "", queue.queue_id)
            begin = await broker_calls.offset_at_time(cluster, address, at, since_ms)
            return max(0, queue.max_offset - max(begin, queue.min_offset))

        asked = [count(queue, each) for each in times_ms for queue in queues]
        counts = iter(await asyncio.gather(*asked))
        return [sum(islice(counts, len(queues))) for _ in times_ms]
    except RocketLensError:
        return None


async def _route(cluster: ClusterCalls, topic: str) -> TopicRouteData:
    header = commands.GetRouteInfoRequest(topic=topic)
    try:
        return await cluster.ask_name_servers_for(
            TopicRouteData, commands.GET_ROUTEINFO_BY_TOPIC, header
        )
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFound(f"there is no topic {topic!r}") from error
        raise


def _brokers(cluster: ClusterCalls, route: TopicRouteData) -> dict[str, Broker]:
    """Return the brokers of a route, and allow connections to them."""
    brokers = brokers_of(route.broker_datas)
    cluster.allow(brokers)
    return brokers


def _master(broker: Broker | None) -> str:
    """Return the address of a broker's master.

    :raises TopicNotFound: if no master is registered. Slaves may lack the newest messages.
    """
    if broker is None or broker.master is None:
        raise TopicNotFound("its master is not registered")
    return broker.master
