"""Hands one stored message to consumers again, past their queues: ``consumeMessageDirectly``.

The broker that has the message passes it on to a client of the group and returns what its listener
made of it. No offset moves, and nothing is retried: a client that fails has had the message, and
the result says so.

| what happens | error |
|---|---|
| the group has no client that is online at that broker | `BrokerError` 206 |
| the client left meanwhile | `BrokerError` 1, `The Consumer <g> <c> not online` |
| it does not answer the broker in 10 s | `BrokerError` 207; it may have consumed the message |
| it consumes by pulling, so that it has no listener | `BadInput`: nothing was handed over |
| its answer cannot be read | `BadAnswer` |
"""

import asyncio
from typing import Final

from msgspec import Struct

from rocketlens.client.admin.group_calls import (
    RELAYED_TIMEOUT_S,
    connections_of,
    is_not_connected,
    passed_on_to,
    proxies_named,
)
from rocketlens.client.connect.cluster import ClusterCalls, failures
from rocketlens.client.search.view import offset_id_of, view_on
from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    BrokerError,
    MessageNotFound,
    RocketLensError,
)
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.wire.bodies import clients as bodies
from rocketlens.wire.commands.groups import CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequest

_MAY_BE_CONSUMED: Final = "it may have consumed the message; look at its log before trying again"


class ConsumedDirectly(Struct, frozen=True):
    """What one client of a group made of a message that it was handed.

    ``consume_result`` is None if the client returned none that RocketMQ knows. ``spent_time_ms``
    and ``remark`` (such as the text of an exception) are the client's own.
    """

    consumer_group: str
    client_id: str
    consume_result: bodies.ConsumeResult | None
    remark: str | None
    spent_time_ms: int
    order: bool
    """Whether its listener is one for messages in order."""
    auto_commit: bool

    @property
    def is_consumed(self) -> bool:
        """Whether the listener returned success, or commit where it commits by itself."""
        return self.consume_result in {
            bodies.ConsumeResult.CR_SUCCESS,
            bodies.ConsumeResult.CR_COMMIT,
        }


async def consume_directly(
    cluster: ClusterCalls, group: str, client_id: str | None, message: MessageExt
) -> ConsumedDirectly:
    """Do `MQAdmin.consume_message_directly`; if the first client left meanwhile, try the next."""
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
    """Do `MQAdmin.consume_message_directly_by_all`."""
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
    """Let a broker pass a message of its own on to a client.

    :raises RocketLensError: as the table above says.
    """
    header = ConsumeMessageDirectlyRequest(
        consumer_group=group, client_id=client_id, msg_id=message.offset_msg_id, topic=message.topic
    )
    with passed_on_to(client_id, _MAY_BE_CONSUMED):
        result = await cluster.ask_for(
            bodies.ConsumeMessageDirectlyResult,
            address,
            CONSUME_MESSAGE_DIRECTLY,
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
    """Return the clients of a group that a broker has, sorted.

    :raises BrokerError: 206 if it has none.
    :raises BadInput: if they consume by pulling.
    """
    async with proxies_named(cluster):
        connections = await connections_of(cluster, group, address)
    check_push(connections, group)
    return sorted(each.client_id for each in connections.connections)


def check_push(connections: bodies.ConsumerConnection, group: str) -> None:
    """Check that a group's clients have a listener to hand a message to.

    :raises BadInput: if they do not.
    """
    if connections.consume_type is not bodies.ConsumeType.CONSUME_PASSIVELY:
        kind = connections.consume_type.name if connections.consume_type else "nothing known"
        raise BadInput(
            f"group {group} has no push consumers ({kind}): a message cannot be handed to it"
        )


async def address_of(cluster: ClusterCalls, message: MessageExt) -> str:
    """Return the address of the broker that has a message.

    The broker at the message's address may be another by now, so the record is looked up.

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
        problem = f"which broker has {message.offset_msg_id} now cannot be learnt: {failed}"
        raise AnswerIncomplete(problem, Answer("", (), ()))
    raise MessageNotFound(f"no broker has {message.offset_msg_id} any more")
