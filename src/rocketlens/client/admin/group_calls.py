"""Questions about one consumer group: its clients, their progress, what they are doing.

A group's brokers are those of its retry topic, which the first heartbeat of a consumer makes on
each broker. Source: ``DefaultMQAdminExtImpl``.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import Broker
from rocketlens.errors import (
    BadAnswer,
    BrokerError,
    CallTimeout,
    ConnectionLost,
    RocketLensError,
    TopicNotFound,
)
from rocketlens.model.life import retry_topic
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC
from rocketlens.wire.bodies.clients import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rocketlens.wire.bodies.tables import ConsumeStats, MessageQueue, OffsetWrapper
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands import groups as commands

RELAYED_TIMEOUT_S: Final = 15.0
"""Seconds to wait for an answer that a broker gets from a consumer, for which it waits 10 itself:
its own report that the consumer does not answer is worth more. RocketMQ: 15 in 4.9, 5 in 5.x."""
B = TypeVar("B")

NO_CONNECTION: Final = "Not found the consumer group connection"
OF_PROXIES: Final = (
    "a proxy is in use, and the members of a proxy are not known to brokers: "
    "`rocketlens mqadmin consumerConnection -g GROUP -b PROXY` asks the remoting port of a proxy"
)
_SEE_CLIENT: Final = "look at its log, and make sure that it is a RocketMQ client, 4.x or 5.x"


async def group_brokers(cluster: ClusterCalls, group: str) -> list[Broker]:
    """Return the brokers that know a group, in the order of their names.

    :raises TopicNotFound: if none does.
    :raises RemotingError: if no name server answers.
    """
    try:
        brokers = (await cluster.route(retry_topic(group))).brokers
    except TopicNotFound as error:
        # Groups that consume by POP have other retry topics, or none before the first retry.
        brokers = await _brokers_that_list(cluster, group)
        if not brokers:
            raise TopicNotFound(
                f"group {group}: no broker knows it: no consumer of it was ever here"
            ) from error
    named = [brokers[name] for name in sorted(brokers)]
    if not any(broker.addresses for broker in named):
        raise TopicNotFound(f"group {group}: the name servers know no broker of it")
    return [broker for broker in named if broker.addresses]


async def _brokers_that_list(cluster: ClusterCalls, group: str) -> dict[str, Broker]:
    """Return the brokers that have a group in their configuration."""
    answers = await cluster.ask_brokers(
        (await cluster.all_brokers()).values(),
        lambda _, address: broker_calls.group_configs(cluster, address),
    )
    return {each.broker.name: each.broker for each in answers if group in (each.value or ())}


async def connections_of(
    cluster: ClusterCalls, group: str, broker_addr: str | None = None
) -> ConsumerConnection:
    """Do `MQAdmin.examine_consumer_connection_info`.

    Consumers tell every broker of the group about themselves. If one does not know any, or does not
    answer, the next one is asked.
    """
    addresses = [broker_addr] if broker_addr is not None else []
    if broker_addr is None:
        addresses = [each.in_order[0] for each in await group_brokers(cluster, group)]
    refused: RocketLensError | None = None
    failed: RocketLensError | None = None
    for address in addresses:
        try:
            connection = await broker_calls.connections(cluster, address, group)
        except BrokerError as error:
            refused = refused or error
        except RocketLensError as error:
            failed = failed or error
        else:
            if connection.connections:
                return connection
            code = ResponseCode.CONSUMER_NOT_ONLINE
            refused = refused or BrokerError(address, code, NO_CONNECTION, retriable=False)
    # A broker that does not answer may have known a client: it is not offline then.
    raise failed or refused or AssertionError("a group has a broker")


async def may_be_at_proxy(cluster: ClusterCalls, error: BrokerError) -> bool:
    """Return whether a group of which brokers know no client may have some at a proxy.

    Proxies make a topic in which they tell each other of their clients.
    """
    if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
        return False
    try:
        await cluster.route(HEARTBEAT_TOPIC)
    except RocketLensError:
        # It does not exist, or no name server answers, which is an error of another question.
        return False
    return True


@asynccontextmanager
async def proxies_named(cluster: ClusterCalls) -> AsyncIterator[None]:
    """Add to the error of a group without clients that a proxy may have some."""
    try:
        yield
    except BrokerError as error:
        if await may_be_at_proxy(cluster, error):
            error.args = (f"{error}: {OF_PROXIES}",)
        raise


async def running_info(
    cluster: ClusterCalls, group: str, client_id: str, *, jstack: bool = False
) -> ConsumerRunningInfo:
    """Do `MQAdmin.get_consumer_running_info`: a broker that the client is connected to asks it."""
    header = commands.GetConsumerRunningInfoRequest(
        consumer_group=group, client_id=client_id, jstack_enable=jstack
    )
    refused: BrokerError | None = None
    for broker in await group_brokers(cluster, group):
        try:
            with passed_on_to(client_id, _SEE_CLIENT):
                return await cluster.ask_for(
                    ConsumerRunningInfo,
                    broker.in_order[0],
                    commands.GET_CONSUMER_RUNNING_INFO,
                    header,
                    timeout_s=RELAYED_TIMEOUT_S,
                )
        except BrokerError as error:
            if not is_not_connected(error):
                raise
            refused = refused or error
    raise refused or AssertionError("a group has a broker")


@contextmanager
def passed_on_to(client_id: str, doubt: str) -> Iterator[None]:
    """Name the client, and what to do, in the errors of a request that a broker passes on to it.

    ``doubt`` is what to think of the client if its answer does not come, or cannot be read.
    """
    try:
        yield
    except BadAnswer as error:
        subject = (
            f"the answer of client {client_id} to {error.request}, which this broker passed on,"
        )
        error.args = (f"{error.address}: {subject} cannot be read ({error.reason}): {doubt}",)
        raise
    except (CallTimeout, ConnectionLost) as error:
        error.args = (f"{error}: client {client_id} did not answer through it: {doubt}",)
        raise
    except BrokerError as error:
        if error.code == ResponseCode.CONSUME_MSG_TIMEOUT:
            error.args = (f"{error}: client {client_id} does not answer: {doubt}",)
        elif error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            error.args = (f"{error}: client {client_id}, or the broker, cannot do that",)
        elif client_id not in str(error):
            error.args = (f"{error} (for client {client_id})",)
        raise


def is_not_connected(error: BrokerError) -> bool:
    """Return whether a broker passed a request on to no client: it has no connection to it."""
    remark = error.remark or ""
    return error.code == ResponseCode.SYSTEM_ERROR and remark.endswith(" not online")


async def consume_stats(
    cluster: ClusterCalls, group: str, topic: str | None = None
) -> ConsumeStats:
    """Do `MQAdmin.examine_consume_stats`; a broker that fails is an error, because part of the
    queues would look like all.
    """
    calls = [
        broker_calls.consume_stats(
            cluster, broker.in_order[0], group, topic, timeout_s=3 * cluster.timeout_s
        )
        for broker in await group_brokers(cluster, group)
    ]
    offsets: dict[MessageQueue, OffsetWrapper] = {}
    tps = 0.0
    for each in await asyncio.gather(*calls):
        offsets.update(each.offset_table)
        tps += each.consume_tps
    return ConsumeStats(offset_table=offsets, consume_tps=tps)


async def groups_of_topic(cluster: ClusterCalls, topic: str) -> tuple[str, ...]:
    """Return the consumer groups of a topic, in the order in which its brokers list them.

    :raises TopicNotFound: if no broker has the topic.
    :raises RocketLensError: if one of them does not answer.
    """
    calls = [
        broker_calls.groups_of_topic(cluster, each.in_order[0], topic)
        for each in await _topic_brokers(cluster, topic)
    ]
    lists = await asyncio.gather(*calls)
    return tuple(dict.fromkeys(group for each in lists for group in each))


async def _topic_brokers(cluster: ClusterCalls, topic: str) -> list[Broker]:
    """Return the brokers of a topic that have an address, one at least, in the order of names.

    :raises TopicNotFound: if no broker has the topic.
    """
    route = await cluster.route(topic)
    brokers = [each for each in route.brokers.values() if each.addresses]
    if not brokers:
        raise TopicNotFound(f"topic {topic}: the name servers know no broker of it")
    return brokers


async def producers_of(cluster: ClusterCalls, group: str, topic: str) -> ProducerConnection:
    """Do `MQAdmin.examine_producer_connection_info`: ask brokers until one knows a producer."""
    header = commands.GetProducerConnectionListRequest(producer_group=group)
    errors: list[RocketLensError] = []
    for broker in await _topic_brokers(cluster, topic):
        try:
            return await cluster.ask_for(
                ProducerConnection,
                broker.in_order[0],
                commands.GET_PRODUCER_CONNECTION_LIST,
                header,
            )
        except RocketLensError as error:
            errors.append(error)
    raise errors[0]
