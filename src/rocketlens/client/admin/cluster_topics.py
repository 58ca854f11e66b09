"""All topics of a cluster: their queues, with messages and times.

The name servers are asked for the topics, and each broker of a topic for its queues. A broker that
does not answer makes the answer incomplete, and the queues of its topics are not known.

| asked for | what |
|---|---|
| topics (206), route (105), of name servers | names, and the brokers of each |
| topic stats (202) | the offsets of each queue, and the time of its newest message |
| earliest store time (32) | the time of its oldest message |
| consume queue (321) | messages of queues that a topic had before it was given fewer |
"""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.cluster import BrokerAnswer, ClusterCalls, as_it_is, fields_of
from rocketlens.client.connect.namespace import is_in_namespace, without_namespace
from rocketlens.client.connect.route import Broker
from rocketlens.client.connect.topology import CoverageByReason, Topology
from rocketlens.client.search.queue_offsets import former_messages
from rocketlens.errors import BrokerError, TopicNotFound
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.rocketmq import reply_topic
from rocketlens.model.topic import FoundTopic, TopicQueue, TopicsAnswer
from rocketlens.query.topic_choice import matching_topics, unknown_topic
from rocketlens.wire.bodies.stats import TopicStatsTable
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.offset import (
    GET_EARLIEST_MSG_STORETIME,
    GetEarliestStoreTimeRequest,
)
from rocketlens.wire.commands.topic import GET_TOPIC_STATS_INFO, GetTopicStatsRequest


async def find_topics(
    cluster: ClusterCalls, topology: Topology, patterns: Collection[str], namespace: str
) -> TopicsAnswer:
    """Return all topics of a cluster's namespace, or those that names and patterns match.

    :raises TopicNotFound: if no topic has a name, or matches a pattern, and all name servers
        answered.
    :raises RemotingError: if no name server answers.
    """
    return await _Topics(cluster, topology, namespace).find(patterns)


def topics_of_brokers(brokers: Collection[Broker]) -> set[str]:
    """Return the topics that brokers create by themselves, under their and their cluster's name."""
    clusters = {each.cluster_name for each in brokers}
    return {*(each.name for each in brokers), *clusters, *map(reply_topic, clusters)}


class _Topics:
    def __init__(self, cluster: ClusterCalls, topology: Topology, namespace: str) -> None:
        self._cluster: Final = cluster
        self._topology: Final = topology
        self._namespace: Final = namespace
        self._coverage: Final = CoverageByReason()
        self._turns: Final = asyncio.Semaphore(limits.MAX_MESSAGE_ANSWERS)

    async def find(self, patterns: Collection[str]) -> TopicsAnswer:
        brokers = await self._topology.brokers()
        listed = await self._topology.topics()
        for each in (*brokers.coverage, *listed.coverage):
            self._coverage.add(each)
        full_names = {
            without_namespace(self._namespace, name): name
            for name in listed.value
            if is_in_namespace(self._namespace, name)
        }
        names = self._choose(patterns, full_names, listed.coverage)
        own = topics_of_brokers(brokers.value.values())
        topics = await asyncio.gather(*(self._find(name, full_names[name], own) for name in names))
        return TopicsAnswer(
            tuple(topic for topic in topics if topic is not None), self._coverage.all()
        )

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
        if unknown:
            # A name server that did not answer may know them.
            for each in failed:
                self._coverage.replace(replace(each, state=SourceState.FAILED))
        return [name for name in names if name in all_names]

    async def _find(
        self, name: str, full_name: str, of_brokers: Collection[str]
    ) -> FoundTopic | None:
        """Return a topic; None if it was deleted since the topics were listed."""
        async with self._turns:
            try:
                route = await self._topology.route(full_name)
            except TopicNotFound:
                return None
            for each in route.coverage:
                self._coverage.add(each)

            async def ask(broker: Broker, address: str) -> list[TopicQueue]:
                for problem in await former_messages(
                    self._cluster, address, broker.name, route.value, None
                ):
                    failed = SourceState.FAILED
                    self._coverage.add(
                        Coverage(broker.name, SourceKind.BROKER, failed, None, problem)
                    )
                return await self._queues(full_name, address)

            answers = await self._cluster.ask_brokers(route.value.brokers.values(), ask)
        is_of_broker = full_name in of_brokers
        return FoundTopic(name, self._merged(answers), is_of_broker=is_of_broker)

    def _merged(
        self, answers: list[BrokerAnswer[list[TopicQueue]]]
    ) -> tuple[TopicQueue, ...] | None:
        for answer in answers:
            self._coverage.add(answer.coverage)
        if any(answer.value is None for answer in answers):
            return None
        queues = [queue for answer in answers for queue in answer.value or ()]
        return tuple(sorted(queues, key=lambda each: (each.broker_name or "", each.queue_id)))

    async def _queues(self, topic: str, address: str) -> list[TopicQueue]:
        try:
            table = await self._cluster.ask_for(
                as_it_is,
                TopicStatsTable,
                address,
                GET_TOPIC_STATS_INFO,
                GetTopicStatsRequest(topic=topic),
            )
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            raise
        queues = []
        for queue, offsets in table.offset_table.items():
            topic_queue = TopicQueue(
                queue.broker_name,
                queue.queue_id,
                offsets.min_offset,
                offsets.max_offset,
                newest_ms=offsets.last_update_timestamp_ms or None,
            )
            if topic_queue.messages:
                oldest_ms = await self._oldest_ms(topic, queue.queue_id, address)
                topic_queue = replace(topic_queue, oldest_ms=oldest_ms)
            queues.append(topic_queue)
        return queues

    async def _oldest_ms(self, topic: str, queue_id: int, address: str) -> int | None:
        header = GetEarliestStoreTimeRequest(topic=topic, queue_id=queue_id)
        answer = await self._cluster.ask(address, GET_EARLIEST_MSG_STORETIME, header)
        timestamp_ms = fields_of(address, GET_EARLIEST_MSG_STORETIME, answer).timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else None
