"""consumerProgress: the progress of consumer groups."""

from typing import Final

from rocketlens.client.connect.cluster import as_it_is
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.mqadmin.printing.form import padded, rounded, seconds_of
from rocketlens.mqadmin.printing.running_info import queue_order
from rocketlens.mqadmin.tool import Call, incomplete
from rocketlens.wire.bodies.consumer import ConsumerConnection
from rocketlens.wire.bodies.heartbeat import ConsumeType, MessageModel
from rocketlens.wire.bodies.route import TopicList
from rocketlens.wire.bodies.stats import ConsumeStats, MessageQueueBody, OffsetWrapper
from rocketlens.wire.codes import ResponseCode, version_name
from rocketlens.wire.commands.command_table import NoFields
from rocketlens.wire.commands.namesrv import GET_ALL_TOPIC_LIST_FROM_NAMESERVER

_NOT_ONLINE: Final = (
    "Not found the consumer group consume stats, because return offset table is empty, maybe the "
    "consumer not {}"
)


async def consumer_progress(call: Call) -> None:
    """Print the progress of a group in each queue, or how far behind each group is.

    :raises BrokerError: 206 if the group has no offsets.
    :raises AnswerIncomplete: if something of a group could not be learnt; all rows are printed.
    """
    group = call.given.text("g")
    if group is None:
        await _all_groups(call)
    else:
        await _one_group(call, group)


async def _one_group(call: Call, group: str) -> None:
    admin = call.tool.admin
    stats = await admin.examine_consume_stats(group, call.given.text("t"))
    if not stats.offset_table:
        await _refuse_empty(call, group)
    clients: dict[MessageQueueBody, str] | None = None
    failed: list[str] = []
    if call.given.flag("s"):
        clients = await _clients_of_queues(call, group, failed)
    call.print(_head(is_5=call.form.is_5, with_client=clients is not None))
    behind = in_flight = 0
    for queue in sorted(stats.offset_table, key=queue_order):
        offset = stats.offset_table[queue]
        behind += offset.broker_offset - offset.consumer_offset
        in_flight += (offset.pull_offset or 0) - offset.consumer_offset
        client = None if clients is None else clients.get(queue, "N/A")
        call.print(_row(call, queue, offset, client))
    call.print(f"\nConsume TPS: {rounded(stats.consume_tps, 2)}\n")
    if call.form.is_5:
        call.print(f"Consume Diff Total: {behind}\nConsume Inflight Total: {in_flight}\n")
    else:
        call.print(f"Diff Total: {behind}\n")
    if failed:
        raise incomplete("; ".join(failed))


async def _refuse_empty(call: Call, group: str) -> None:
    """Refuse a group without offsets, as the tool of each release does.

    :raises BrokerError: 206, or 213 if the group is broadcasting; never of a group that is online
        in RocketMQ 5, which prints an empty table.
    """
    name_server = call.tool.cluster.name_servers[0]
    text = _NOT_ONLINE.format("online" if call.form.is_5 else "consume any message")
    code = ResponseCode.CONSUMER_NOT_ONLINE
    if call.form.is_5:
        try:
            connections = await call.tool.admin.examine_consumer_connection_info(group)
        except RocketLensError as error:
            raise BrokerError(name_server, code, text, retriable=False) from error
        if connections.message_model is not MessageModel.BROADCASTING:
            return
        code = ResponseCode.BROADCAST_CONSUMPTION
        text = text.replace(
            "maybe the consumer not online", "the consumer is under the broadcast mode"
        )
    raise BrokerError(name_server, code, text, retriable=False)


async def _clients_of_queues(
    call: Call, group: str, failed: list[str]
) -> dict[MessageQueueBody, str]:
    """Return the address, as its client id has it, of the client that has each queue."""
    admin = call.tool.admin
    clients: dict[MessageQueueBody, str] = {}
    try:
        connections = await admin.examine_consumer_connection_info(group)
        for each in connections.connections:
            info = await admin.get_consumer_running_info(group, each.client_id)
            for queue in info.queue_table:
                clients[queue] = each.client_id.partition("@")[0]
    except RocketLensError as error:
        failed.append(str(error))
    return clients


def _head(*, is_5: bool, with_client: bool) -> str:
    begin = (
        f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  "
        f"{'#Consumer Offset':<20}  "
    )
    client = f"{'#Client IP':<20} " if with_client else ""
    if is_5:
        return f"{begin}{client}{'#Diff':<20} {'#Inflight':<20}#LastTime\n"
    return f"{begin}{client}{'#Diff':<20}  #LastTime\n"


def _row(call: Call, queue: MessageQueueBody, offset: OffsetWrapper, client: str | None) -> str:
    shown = call.form.shown
    begin = (
        f"{padded(shown(queue.topic[:64]), 64)}  {padded(shown(queue.broker_name[:32]), 32)}  "
        f"{queue.queue_id:<4}  {offset.broker_offset:<20}  {offset.consumer_offset:<20}  "
    )
    if client is not None:
        begin += f"{padded(shown(client), 20)} "
    last_ms = offset.last_timestamp_ms
    last = seconds_of(last_ms) if last_ms else "N/A"
    diff = offset.broker_offset - offset.consumer_offset
    if call.form.is_5:
        in_flight = (offset.pull_offset or 0) - offset.consumer_offset
        return f"{begin}{diff:<20} {in_flight:<20} {last}\n"
    return f"{begin}{diff:<20}  {last}\n"


async def _all_groups(call: Call) -> None:
    call.print(
        f"{'#Group':<64}  {'#Count':<6}  {'#Version':<24} {'#Type':<5}  {'#Model':<14}  "
        f"{'#TPS':<7}  #Diff Total\n"
    )
    listed = await call.tool.cluster.ask_name_servers_for(
        as_it_is, TopicList, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoFields()
    )
    failed: list[str] = []
    for topic in java_order(dict.fromkeys(listed.topic_list, ""), 16):
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            call.print(_group_row(call, group, *await _known_of(call, group, failed)))
    if failed:
        raise incomplete("; ".join(failed))


async def _known_of(
    call: Call, group: str, failed: list[str]
) -> tuple[ConsumeStats | None, ConsumerConnection | None]:
    """Return the progress of a group and its clients, None for what the real tool fails to learn.

    It takes a group without offsets for one that failed: in RocketMQ 5 unless its clients share
    the messages.
    """
    stats: ConsumeStats | None = None
    connections: ConsumerConnection | None = None
    try:
        stats = await call.tool.admin.examine_consume_stats(group)
    except RocketLensError as error:
        failed.append(f"{group}: {error}")
    try:
        connections = await call.tool.admin.examine_consumer_connection_info(group)
    except RocketLensError as error:
        if not isinstance(error, BrokerError) or error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            failed.append(f"{group}: {error}")
    if stats is not None and not stats.offset_table:
        is_shared = (
            connections is not None and connections.message_model is not MessageModel.BROADCASTING
        )
        if not (call.form.is_5 and is_shared):
            stats = None
    return stats, connections


def _group_row(
    call: Call, group: str, stats: ConsumeStats | None, connections: ConsumerConnection | None
) -> str:
    tps = int(stats.consume_tps) if stats else 0
    offsets = stats.offset_table.values() if stats else ()
    behind = sum(each.broker_offset - each.consumer_offset for each in offsets)
    count, version, kind, model = 0, "OFFLINE", "", ""
    if connections is not None:
        count = len(connections.connections)
        version = version_name(min(each.version for each in connections.connections))
        kind = "PULL" if connections.consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"
        is_push = connections.consume_type is ConsumeType.CONSUME_PASSIVELY
        model = connections.message_model.name if is_push and connections.message_model else ""
    return (
        f"{padded(call.form.shown(group[:64]), 64)}  {count:<6}  {version:<24} {kind:<5}  "
        f"{model:<14}  {tps:<7}  {behind}\n"
    )
