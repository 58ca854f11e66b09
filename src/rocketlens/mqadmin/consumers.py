"""Clients and progress: consumerConnection, consumerProgress, brokerConsumeStats, consumerStatus,
producerConnection and producer.
"""

import os
import time
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.client.connect import broker_calls
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.model.text.java import concurrent_map_order
from rocketlens.mqadmin.printing.body_files import safe_name
from rocketlens.mqadmin.printing.form import NULL, columns, padded, rounded, seconds_of
from rocketlens.mqadmin.printing.running_info import (
    is_subscribed_alike,
    queue_order,
    running_info_text,
    stuck_queues_text,
)
from rocketlens.mqadmin.tool import Call, Failed
from rocketlens.wire.bodies.clients import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
)
from rocketlens.wire.codes import ResponseCode, version_name
from rocketlens.wire.commands.groups import GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequest

_NOT_ONLINE: Final = (
    "Not found the consumer group consume stats, because return offset table is empty, maybe the "
    "consumer not {}"
)


async def consumer_connection(call: Call) -> None:
    group, shown = call.given.required("g"), call.form.shown
    connections = await call.admin.examine_consumer_connection_info(group, call.given.text("b"))
    call.print(f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version\n")
    for each in connections.connections:
        call.print(_connection_row(call, each, (36, 22, 10)))
    call.print(f"\nBelow is subscription:\n{'#Topic':<20} #SubExpression\n")
    for name in concurrent_map_order(connections.subscription_table):
        each_topic = connections.subscription_table[name]
        expression = NULL if each_topic.sub_string is None else each_topic.sub_string
        call.print(f"{padded(shown(each_topic.topic), 20)} {shown(expression)}\n")
    kinds = (
        ("ConsumeType", connections.consume_type),
        ("MessageModel", connections.message_model),
        ("ConsumeFromWhere", connections.consume_from_where),
    )
    call.print("\n" + "".join(f"{name}: {each.name if each else NULL}\n" for name, each in kinds))


def _connection_row(call: Call, each: ClientConnection, widths: tuple[int, int, int]) -> str:
    cells = (each.client_id, each.client_addr, each.language or NULL)
    shown = columns(map(call.form.shown, cells), widths, " ")
    return f"{shown} {version_name(each.version)}\n"


async def producer_connection(call: Call) -> None:
    group, topic = call.given.required("g"), call.given.required("t")
    connections = await call.admin.examine_producer_connection_info(group, topic)
    for number, each in enumerate(connections.connections, 1):
        call.print(f"{number:04d}  {_connection_row(call, each, (32, 22, 8))}")


async def all_producers(call: Call) -> None:
    address, shown = call.given.required("b"), call.form.shown
    await call.cluster.all_brokers()
    table = await broker_calls.producers(call.cluster, address)
    for group in java_order(dict.fromkeys(table.groups, ""), 16):
        producers = table.groups[group]
        if not producers:
            call.print(f"producer group ({shown(group)}) instances are empty\n")
        for each in producers:
            call.print(
                f"producer group ({shown(group)}) instance : clientId={shown(each.client_id)},"
                f"remoteIP={shown(each.remote_ip)}, language={shown(each.language or NULL)}, "
                f"version={each.version}, lastUpdateTimestamp={each.last_update_timestamp_ms}\n"
            )


async def consumer_status(call: Call) -> None:
    """Print the state of a client, or write one file for each client of a group.

    :raises AnswerIncomplete: if a client does not answer; the others are printed.
    """
    given, admin = call.given, call.admin
    group, jstack = given.required("g"), "s" in given
    connections = await admin.examine_consumer_connection_info(group, given.text("b"))
    client_id = given.text("i")
    if client_id is not None:
        info = await admin.get_consumer_running_info(group, client_id, jstack=jstack)
        call.print(running_info_text(call.form, info))
        return
    now_ms = time.time_ns() // 1_000_000
    infos: dict[str, ConsumerRunningInfo] = {}
    failed = Failed()
    call.print(f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile\n")
    # A client that is connected twice is listed twice.
    index = 0
    for each in connections.connections:
        with failed.noted(each.client_id):
            info = await admin.get_consumer_running_info(group, each.client_id, jstack=jstack)
            infos[each.client_id] = info
            text = running_info_text(call.form, info)
            path = _write_file(Path(str(now_ms)), each.client_id, text)
            client, version = call.form.shown(each.client_id), version_name(each.version)
            index += 1
            call.print(f"{index:<10} {padded(client, 40)} {version:<20} {path}\n")
    if infos:
        call.print(_group_verdict(call, infos))
    failed.check()


def _group_verdict(call: Call, infos: dict[str, ConsumerRunningInfo]) -> str:
    now_ms = time.time_ns() // 1_000_000
    if not is_subscribed_alike(call.form, infos, now_ms):
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    stuck = [stuck_queues_text(call.form, name, infos[name], now_ms) for name in sorted(infos)]
    return "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n" + "".join(stuck)


def _write_file(directory: Path, client_id: str, text: str) -> Path:
    """Write the report of a client to a new file in the working directory; return its path.

    The file is named by the client id, as by RocketMQ's tool, or by the SHA-256 of an id that is
    not a safe name.
    """
    plain = client_id.replace("@", "").replace("#", "").replace(".", "").replace(":", "")
    is_plain = safe_name(plain) == plain and not client_id.startswith(".")
    path = directory / (client_id if is_plain else safe_name(client_id))
    directory.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


async def consumer_progress(call: Call) -> None:
    """Print the progress of a group in each queue, or the lag of all groups.

    :raises BrokerError: 206 if the group has no offsets.
    :raises AnswerIncomplete: if a request fails; all rows are printed.
    """
    group = call.given.text("g")
    if group is None:
        await _all_groups(call)
    else:
        await _one_group(call, group)


async def _one_group(call: Call, group: str) -> None:
    admin = call.admin
    stats = await admin.examine_consume_stats(group, call.given.text("t"))
    if not stats.offset_table:
        await _refuse_empty(call, group)
    clients: dict[MessageQueue, str] | None = None
    failed = Failed()
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
    failed.check()


async def _refuse_empty(call: Call, group: str) -> None:
    """Refuse a group without offsets, as the tool of each release does.

    RocketMQ 5 prints an empty table if the group is online and clustering.

    :raises BrokerError: 206, or 213 for a broadcasting group.
    """
    name_server = call.cluster.name_servers[0]
    text = _NOT_ONLINE.format("online" if call.form.is_5 else "consume any message")
    code = ResponseCode.CONSUMER_NOT_ONLINE
    if call.form.is_5:
        try:
            connections = await call.admin.examine_consumer_connection_info(group)
        except RocketLensError as error:
            raise BrokerError(name_server, code, text, retriable=False) from error
        if connections.message_model is not MessageModel.BROADCASTING:
            return
        code = ResponseCode.BROADCAST_CONSUMPTION
        text = text.replace(
            "maybe the consumer not online", "the consumer is under the broadcast mode"
        )
    raise BrokerError(name_server, code, text, retriable=False)


async def _clients_of_queues(call: Call, group: str, failed: Failed) -> dict[MessageQueue, str]:
    """Return the client that reads each queue, by the address in its client id."""
    admin = call.admin
    clients: dict[MessageQueue, str] = {}
    with failed.noted():
        connections = await admin.examine_consumer_connection_info(group)
        for each in connections.connections:
            info = await admin.get_consumer_running_info(group, each.client_id)
            for queue in info.queue_table:
                clients[queue] = each.client_id.partition("@")[0]
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


def _row(call: Call, queue: MessageQueue, offset: OffsetWrapper, client: str | None) -> str:
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
    failed = Failed()
    for topic in java_order(dict.fromkeys(await call.topic_names(), ""), 16):
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            call.print(_group_row(call, group, *await _state_of(call, group, failed)))
    failed.check()


async def _state_of(
    call: Call, group: str, failed: Failed
) -> tuple[ConsumeStats | None, ConsumerConnection | None]:
    """Return the stats and clients of a group; None for what RocketMQ's tool cannot read either.

    It treats a group without offsets as unreadable, except in RocketMQ 5 a clustering group.
    """
    stats: ConsumeStats | None = None
    connections: ConsumerConnection | None = None
    try:
        stats = await call.admin.examine_consume_stats(group)
    except RocketLensError as error:
        failed.append(f"{group}: {error}")
    try:
        connections = await call.admin.examine_consumer_connection_info(group)
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


async def broker_consume_stats(call: Call) -> None:
    given, shown = call.given, call.form.shown
    address, least = given.required("b"), given.number("l", 0, -limits.MAX_LONG, limits.MAX_LONG)
    await call.cluster.all_brokers()
    answer = await call.cluster.ask_for(
        ConsumeStatsList,
        address,
        GET_BROKER_CONSUME_STATS,
        GetBrokerConsumeStatsRequest(is_order=given.flag("o")),
        timeout_s=given.number("t", 50_000, 1) / 1000,
    )
    call.print(
        f"{'#Topic':<64}  {'#Group':<64}  {'#Broker Name':<32}  {'#QID':<4}  "
        f"{'#Broker Offset':<20}  {'#Consumer Offset':<20}  {'#Diff':<20}  #LastTime\n"
    )
    rows = (
        (group, queue, part.offset_table[queue])
        for of_group in answer.consume_stats_list
        for group, parts in of_group.items()
        for part in parts
        for queue in sorted(part.offset_table, key=queue_order)
    )
    for group, queue, offset in rows:
        diff = offset.broker_offset - offset.consumer_offset
        if diff >= least and offset.last_timestamp_ms > 0:
            names = map(shown, (queue.topic[:64], group, queue.broker_name[:32]))
            offsets = (queue.queue_id, offset.broker_offset, offset.consumer_offset, diff)
            last = seconds_of(offset.last_timestamp_ms)
            call.print(columns((*names, *offsets, last), (64, 64, 32, 4, 20, 20, 20, 0)) + "\n")
    call.print(f"\nDiff Total: {answer.total_diff}\n")
