"""Requests about one consumer group: its clients and progress, direct delivery, offset resets.

A group's brokers are those of its retry topic, which every broker creates at the first heartbeat of
a consumer. `reset_running` resets offsets at running clients (222), `reset_table` in the broker's
table (15).

`consume_directly` delivers one stored message to a group's clients again. The broker that has the
message forwards it to a client, and returns the listener's result. Offsets do not change and
nothing is retried. A failed client has received the message; its result reports the failure.

| case | error |
|---|---|
| the group has no client online at that broker | `BrokerError` 206 |
| the client has left meanwhile | `BrokerError` 1, `The Consumer <g> <c> not online` |
| the client does not answer in 10 s | `BrokerError` 207; it may have consumed the message |
| the group's clients pull, so they have no listener | `BadInput`; the message was not delivered |
| the answer cannot be read | `BadAnswer` |

Source: ``DefaultMQAdminExtImpl``: ``resetOffsetByTimestamp``, ``resetOffsetByTimestampOld``,
``consumeMessageDirectly``.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from msgspec import Struct

from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import ClusterCalls, failures
from rocketlens.client.connect.route import Broker, set_order
from rocketlens.client.search.view import offset_id_of, view_on
from rocketlens.errors import (
    AnswerIncomplete,
    BadAnswer,
    BadInput,
    BrokerError,
    CallTimeout,
    ConnectionLost,
    MessageNotFound,
    RocketLensError,
    TopicNotFound,
)
from rocketlens.model.answer import Answer
from rocketlens.model.life import retry_topic
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC
from rocketlens.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    ProducerConnection,
)
from rocketlens.wire.bodies.tables import ConsumeStats, MessageQueue, OffsetWrapper, ResetOffsets
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands import groups as commands

RELAYED_TIMEOUT_S: Final = 15.0
"""Seconds to wait for an answer that a broker gets from a consumer. The broker itself waits 10 s,
and its error says more than a timeout here. RocketMQ: 15 in 4.9, 5 in 5.x.
"""
NO_CONNECTION: Final = "Not found the consumer group connection"
OF_PROXIES: Final = (
    "a proxy is in use, and the members of a proxy are not known to brokers: "
    "`rocketlens mqadmin consumerConnection -g GROUP -b PROXY` asks the remoting port of a proxy"
)
_SEE_CLIENT: Final = "look at its log, and make sure that it is a RocketMQ client, 4.x or 5.x"


async def group_brokers(cluster: ClusterCalls, group: str) -> list[Broker]:
    """Return the brokers that know a group, in the order of their names.

    :raises TopicNotFound: if no broker knows it.
    """
    try:
        brokers = (await cluster.route(retry_topic(group))).brokers
    except TopicNotFound as error:
        # POP groups have other retry topics, or none before the first retry.
        brokers = await _brokers_that_list(cluster, group)
        if not brokers:
            raise TopicNotFound(
                f"group {group}: no broker knows it; none of its consumers has ever connected"
            ) from error
    named = [brokers[name] for name in sorted(brokers)]
    if not any(broker.addresses for broker in named):
        raise TopicNotFound(f"group {group}: the name servers know no broker of it")
    return [broker for broker in named if broker.addresses]


async def _brokers_that_list(cluster: ClusterCalls, group: str) -> dict[str, Broker]:
    answers = await cluster.ask_brokers(
        (await cluster.all_brokers()).values(),
        lambda _, address: broker_calls.group_configs(cluster, address),
    )
    return {each.broker.name: each.broker for each in answers if group in (each.value or ())}


async def connections_of(
    cluster: ClusterCalls, group: str, broker_addr: str | None = None
) -> ConsumerConnection:
    """Run `MQAdmin.examine_consumer_connection_info`.

    Consumers send heartbeats to every broker of the group, so one broker with clients is enough.
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
    # A broker that did not answer may know a client, so its error comes first.
    raise failed or refused or AssertionError("a group has a broker")


async def may_be_at_proxy(cluster: ClusterCalls, error: BrokerError) -> bool:
    """Return True if no broker knows a client of the group, but a proxy in use may.

    Proxies create a topic to exchange their clients.
    """
    if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
        return False
    try:
        await cluster.route(HEARTBEAT_TOPIC)
    except RocketLensError:
        # The topic does not exist, or no name server answers.
        return False
    return True


@asynccontextmanager
async def mention_proxies(cluster: ClusterCalls) -> AsyncIterator[None]:
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
    """Run `MQAdmin.get_consumer_running_info` at a broker to which the client is connected."""
    header = commands.GetConsumerRunningInfoRequest(
        consumer_group=group, client_id=client_id, jstack_enable=jstack
    )
    refused: BrokerError | None = None
    for broker in await group_brokers(cluster, group):
        try:
            with relay_errors(client_id, _SEE_CLIENT):
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
def relay_errors(client_id: str, doubt: str) -> Iterator[None]:
    """Add the client, and advice, to the errors of a request that a broker forwards to a client.

    ``doubt`` is the advice if the client's answer is missing or cannot be read.
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
    """Return True if a broker refused to forward a request: the client is not connected."""
    remark = error.remark or ""
    return error.code == ResponseCode.SYSTEM_ERROR and remark.endswith(" not online")


async def consume_stats(
    cluster: ClusterCalls, group: str, topic: str | None = None
) -> ConsumeStats:
    """Run `MQAdmin.examine_consume_stats`.

    A failed broker raises an error: the remaining queues would look like all.
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
    :raises RocketLensError: if one of its brokers does not answer.
    """
    calls = [
        broker_calls.groups_of_topic(cluster, each.in_order[0], topic)
        for each in await _topic_brokers(cluster, topic)
    ]
    lists = await asyncio.gather(*calls)
    return tuple(dict.fromkeys(group for each in lists for group in each))


async def _topic_brokers(cluster: ClusterCalls, topic: str) -> list[Broker]:
    """Return the brokers of a topic that have an address, in the order of their names.

    :raises TopicNotFound: if no broker has the topic, or none has an address.
    """
    route = await cluster.route(topic)
    brokers = [each for each in route.brokers.values() if each.addresses]
    if not brokers:
        raise TopicNotFound(f"topic {topic}: the name servers know no broker of it")
    return brokers


async def producers_of(cluster: ClusterCalls, group: str, topic: str) -> ProducerConnection:
    """Run `MQAdmin.examine_producer_connection_info`: ask brokers until one knows a producer."""
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


_MAY_BE_CONSUMED: Final = "it may have consumed the message; look at its log before trying again"


class ConsumedDirectly(Struct, frozen=True):
    """The result that one client of a group returned for a message delivered to it directly.

    ``consume_result`` is None if RocketMQ does not define the returned value. The client itself
    reports ``spent_time_ms`` and ``remark``, such as the text of an exception.
    """

    consumer_group: str
    client_id: str
    consume_result: ConsumeResult | None
    remark: str | None
    spent_time_ms: int
    order: bool
    """True if the listener consumes messages in order."""
    auto_commit: bool

    @property
    def is_consumed(self) -> bool:
        """True if the listener returned success, or committed explicitly."""
        return self.consume_result in {ConsumeResult.CR_SUCCESS, ConsumeResult.CR_COMMIT}


async def consume_directly(
    cluster: ClusterCalls, group: str, client_id: str | None, message: MessageExt
) -> ConsumedDirectly:
    """Run `MQAdmin.consume_message_directly`; if the first client has left, try the next one."""
    address = await address_of(cluster, message)
    if client_id is not None:
        return await hand_over(cluster, address, group, client_id, message)
    not_connected: BrokerError | None = None
    for each in await online_clients(cluster, address, group):
        try:
            return await hand_over(cluster, address, group, each, message)
        except BrokerError as error:
            if not is_not_connected(error):
                raise
            not_connected = not_connected or error
    raise not_connected or AssertionError("a group that is online has a client")


async def consume_directly_by_all(
    cluster: ClusterCalls, group: str, message: MessageExt
) -> dict[str, ConsumedDirectly | RocketLensError]:
    address = await address_of(cluster, message)
    client_ids = await online_clients(cluster, address, group)

    async def hand(client_id: str) -> ConsumedDirectly | RocketLensError:
        try:
            return await hand_over(cluster, address, group, client_id, message)
        except RocketLensError as error:
            return error

    results = await asyncio.gather(*map(hand, client_ids))
    return dict(zip(client_ids, results, strict=True))


async def hand_over(
    cluster: ClusterCalls, address: str, group: str, client_id: str, message: MessageExt
) -> ConsumedDirectly:
    """Let a broker forward one of its messages to a client.

    :raises RocketLensError: as in the table above.
    """
    header = commands.ConsumeMessageDirectlyRequest(
        consumer_group=group, client_id=client_id, msg_id=message.offset_msg_id, topic=message.topic
    )
    with relay_errors(client_id, _MAY_BE_CONSUMED):
        result = await cluster.ask_for(
            ConsumeMessageDirectlyResult,
            address,
            commands.CONSUME_MESSAGE_DIRECTLY,
            header,
            timeout_s=RELAYED_TIMEOUT_S,
        )
    return ConsumedDirectly(
        consumer_group=group,
        client_id=client_id,
        consume_result=result.consume_result,
        remark=result.remark,
        spent_time_ms=result.spent_time_ms,
        order=result.order,
        auto_commit=result.auto_commit,
    )


async def online_clients(cluster: ClusterCalls, address: str, group: str) -> list[str]:
    """Return the clients of a group that are connected to a broker, sorted.

    :raises BrokerError: 206 if no client is connected.
    :raises BadInput: if the clients pull.
    """
    async with mention_proxies(cluster):
        connections = await connections_of(cluster, group, address)
    check_push(connections, group)
    return sorted(each.client_id for each in connections.connections)


def check_push(connections: ConsumerConnection, group: str) -> None:
    """Check that a group's clients have a listener.

    :raises BadInput: if they pull.
    """
    if connections.consume_type is not ConsumeType.CONSUME_PASSIVELY:
        kind = connections.consume_type.name if connections.consume_type else "nothing known"
        raise BadInput(
            f"group {group} has no push consumers ({kind}), so a message cannot be delivered to it"
        )


async def address_of(cluster: ClusterCalls, message: MessageExt) -> str:
    """Return the address of the broker that has a message.

    Another broker may have taken over the address in the message, so the record is looked up.

    :raises MessageNotFound: if no broker has it any more.
    :raises AnswerIncomplete: if a broker that may have it failed.
    """
    offset_id = offset_id_of(message.offset_msg_id)
    if offset_id is None:
        raise BadInput(f"{message.offset_msg_id[:80]!r} is not an offset message id")
    answers = await view_on(cluster, await cluster.all_brokers(), offset_id, message.topic)
    for answer in answers:
        for record in answer.value or ():
            if record.store_timestamp_ms == message.store_timestamp_ms:
                return answer.broker.in_order[0]
    failed = failures([answer.coverage for answer in answers])
    if failed:
        problem = f"cannot find the broker that has {message.offset_msg_id} now: {failed}"
        raise AnswerIncomplete(problem, Answer("", (), ()))
    raise MessageNotFound(f"no broker has {message.offset_msg_id} any more")


TO_THE_END: Final = -1
"""Passed in place of a time: reset to the end of the queue."""


class RollbackStats(Struct, frozen=True):
    """The offsets of one queue before and after a reset in the broker's table."""

    broker_name: str
    queue_id: int
    broker_offset: int
    """The end of the queue."""
    consumer_offset: int
    """The group's offset before the reset."""
    timestamp_offset: int
    """The first message of that time."""
    rollback_offset: int
    """The group's offset after the reset; without force never later than before."""


async def reset_running(
    cluster: ClusterCalls, group: str, topic: str, timestamp_ms: int, *, is_force: bool
) -> dict[MessageQueue, int]:
    """Run `MQAdmin.reset_offset_by_time`; after an error some brokers may have reset theirs."""
    route = await cluster.route(topic)
    header = commands.ResetOffsetRequest(
        topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=is_force
    )
    offsets: dict[MessageQueue, int] = {}
    for broker in route.brokers.values():
        for address in broker.in_order[:1]:
            command = commands.INVOKE_BROKER_TO_RESET_OFFSET
            read = await cluster.ask_for(ResetOffsets, address, command, header)
            offsets.update(read.offset_table)
    return offsets


async def reset_table(
    cluster: ClusterCalls, group: str, topic: str, timestamp_ms: int, *, is_force: bool
) -> tuple[RollbackStats, ...]:
    """Run `MQAdmin.reset_offset_by_time_old`: clients read the offsets when they start.

    If the group has no offset in the topic, every queue is reset.
    """
    route = await cluster.route(topic)
    results: list[RollbackStats] = []
    for broker in route.brokers.values():
        for address in broker.in_order[:1]:
            table = await _offsets(cluster, address, group, route.queues_of(broker.name))
            for queue, before in table.items():
                if timestamp_ms == TO_THE_END:
                    target = await broker_calls.max_offset(cluster, address, queue)
                else:
                    target = await broker_calls.offset_at_time(
                        cluster, address, queue, timestamp_ms
                    )
                is_moved = is_force or target <= before.consumer_offset
                if is_moved:
                    await broker_calls.commit_offset(cluster, address, group, queue, target)
                results.append(
                    RollbackStats(
                        broker_name=queue.broker_name,
                        queue_id=queue.queue_id,
                        broker_offset=before.broker_offset,
                        consumer_offset=before.consumer_offset,
                        timestamp_offset=target,
                        rollback_offset=target if is_moved else before.consumer_offset,
                    )
                )
    return tuple(results)


async def _offsets(
    cluster: ClusterCalls, address: str, group: str, queues: list[MessageQueue]
) -> dict[MessageQueue, OffsetWrapper]:
    """Return a group's offsets in a broker's queues of a topic; the first ones if it has none."""
    if not queues:
        return {}
    topic = queues[0].topic
    stats = await broker_calls.consume_stats(cluster, address, group)
    # RocketMQ's tool resets and prints queues in this order.
    in_order = set_order(list(stats.offset_table))
    committed = {each: stats.offset_table[each] for each in in_order if each.topic == topic}
    if committed:
        return committed
    table = await broker_calls.topic_stats(cluster, address, topic)
    return {
        each: OffsetWrapper(broker_offset=ends.max_offset, consumer_offset=ends.min_offset)
        for each in queues
        if (ends := table.get(each)) is not None
    }
