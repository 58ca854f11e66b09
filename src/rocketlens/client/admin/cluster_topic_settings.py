"""How a topic is configured on each of its brokers, and how many messages came to it lately.

| asked for | what |
|---|---|
| route (105), of a name server | the brokers, with permission and numbers of queues |
| topic configuration (351), since 5.0 | the same, whether it is ordered, and attributes |
| offset by time (29) | the first message of each queue since then |
"""

import asyncio
from dataclasses import replace

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, as_it_is, fields_of
from rocketlens.client.connect.route import Broker, brokers_of
from rocketlens.errors import BrokerError, RocketLensError, TopicNotFound
from rocketlens.model.topic import TopicQueue, TopicSettings
from rocketlens.wire.bodies.route import QueueData, TopicRouteData
from rocketlens.wire.bodies.topic import TopicConfig
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.namesrv import GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest
from rocketlens.wire.commands.offset import SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequest
from rocketlens.wire.commands.topic import GET_TOPIC_CONFIG, GetTopicConfigRequest


async def find_topic_settings(cluster: ClusterCalls, topic: str) -> tuple[TopicSettings, ...]:
    """Return the settings of a topic by broker name; ``topic`` has its namespace.

    What a broker does not say is from the name servers, with the reason in ``error``; brokers of
    RocketMQ 4 do not know the request, which is not an error. O(brokers) requests.

    :raises TopicNotFound: if no name server knows the topic.
    :raises RemotingError: if no name server answers.
    """
    route = await _route(cluster, topic)
    brokers = _brokers(cluster, route)

    async def settings(queues: QueueData) -> TopicSettings:
        name = queues.broker_name
        routed = TopicSettings(name, queues.perm, queues.read_queue_nums, queues.write_queue_nums)
        try:
            config = await _config(cluster, topic, brokers.get(name))
        except BrokerError as error:
            is_old = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            return routed if is_old else replace(routed, error=str(error))
        except RocketLensError as error:
            return replace(routed, error=str(error))
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
    cluster: ClusterCalls, topic: str, queues: tuple[TopicQueue, ...], since_ms: int
) -> int | None:
    """Return about how many messages of some queues were stored at a time or later.

    None if a broker does not say it, or there are more queues than `limits.MAX_RATED_QUEUES`. The
    time is compared with the brokers' clocks. O(queues) requests.
    """
    if len(queues) > limits.MAX_RATED_QUEUES:
        return None
    try:
        brokers = _brokers(cluster, await _route(cluster, topic))

        async def count(queue: TopicQueue) -> int:
            if queue.newest_ms is None or queue.newest_ms < since_ms:
                # RocketMQ 4 answers with the last message where none is so new.
                return 0
            header = SearchOffsetRequest(
                topic=topic, queue_id=queue.queue_id, timestamp_ms=since_ms
            )
            address = _master(brokers.get(queue.broker_name or ""))
            answer = await cluster.ask(address, SEARCH_OFFSET_BY_TIMESTAMP, header)
            begin = fields_of(address, SEARCH_OFFSET_BY_TIMESTAMP, answer).queue_offset
            return max(0, queue.max_offset - max(begin, queue.min_offset))

        return sum(await asyncio.gather(*map(count, queues)))
    except RocketLensError:
        return None


async def _route(cluster: ClusterCalls, topic: str) -> TopicRouteData:
    header = GetRouteInfoRequest(topic=topic)
    try:
        return await cluster.ask_name_servers_for(
            as_it_is, TopicRouteData, GET_ROUTEINFO_BY_TOPIC, header
        )
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFound(f"there is no topic {topic!r}") from error
        raise


def _brokers(cluster: ClusterCalls, route: TopicRouteData) -> dict[str, Broker]:
    """Return the brokers of a route, which may be dialled from now on."""
    brokers = brokers_of(route.broker_datas)
    cluster.allow(brokers)
    return brokers


async def _config(cluster: ClusterCalls, topic: str, broker: Broker | None) -> TopicConfig:
    header = GetTopicConfigRequest(topic=topic)
    return await cluster.ask_for(as_it_is, TopicConfig, _master(broker), GET_TOPIC_CONFIG, header)


def _master(broker: Broker | None) -> str:
    """Return the address of a broker's master.

    :raises TopicNotFound: if there is none: its slaves may lack what is new.
    """
    if broker is None or broker.master is None:
        raise TopicNotFound("its master is not registered")
    return broker.master
