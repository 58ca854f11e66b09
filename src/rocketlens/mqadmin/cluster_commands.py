"""Brokers: clusterList, brokerStatus, haStatus, getBrokerConfig, updateBrokerConfig, wipeWritePerm
and addWritePerm.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final

from rocketlens.client.admin.cluster_status import runtime_number
from rocketlens.client.connect.cluster import runtime_table
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.formats import java_properties
from rocketlens.model.text.java import concurrent_map_order
from rocketlens.mqadmin.printing.form import NULL, Form, padded, padded_left, rounded, time_of
from rocketlens.mqadmin.tool import Call, Failed, masters_of
from rocketlens.terminal.output import note
from rocketlens.wire.bodies.tables import HaStatus, SlaveStatus
from rocketlens.wire.commands.brokers import (
    ADD_WRITE_PERM_OF_BROKER,
    WIPE_WRITE_PERM_OF_BROKER,
    WritePermissionRequest,
)
from rocketlens.wire.commands.groups import GET_BROKER_HA_STATUS, UPDATE_BROKER_CONFIG
from rocketlens.wire.declare import Command, NoFields

_HOUR_MS: Final = 3_600_000
_IN_OUT: Final = ("Put", "Get")
_HEAD_5: Final = (
    f"{'#Cluster Name':<22}  {'#Broker Name':<22}  {'#BID':<4}  {'#Addr':<22} {'#Version':<16}  "
    f"{'#InTPS(LOAD)':>16}  {'#OutTPS(LOAD)':>30}  {'#Timer(Progress)':<22}  {'#PCWait(ms)':<11}  "
    f"{'#Hour':<12}  {'#SPACE':<8}  {'#ACTIVATED':<10}\n"
)
_HEAD_4: Final = (
    f"{'#Cluster Name':<16}  {'#Broker Name':<22}  {'#BID':<4}  {'#Addr':<22} {'#Version':<16} "
    f"{'#InTPS(LOAD)':>19} {'#OutTPS(LOAD)':>19} {'#PCWait(ms)':>10} {'#Hour':>5} {'#SPACE':>6}\n"
)
_MORE: Final = (
    f"{'#Cluster Name':<16}  {'#Broker Name':<32} {'#InTotalYest':>14} {'#OutTotalYest':>14} "
    f"{'#InTotalToday':>14} {'#OutTotalToday':>14}\n"
)


async def cluster_list(call: Call) -> None:
    """Print a row for each broker; with -i repeatedly, noting errors.

    :raises AnswerIncomplete: if a broker does not answer; its row is printed without values.
    """
    await _print_again(call, _print_rows)


async def _print_again(call: Call, print_once: Callable[[Call], Awaitable[None]]) -> None:
    seconds = call.given.number("i", 0, 1, 86_400)
    while seconds:
        try:
            await print_once(call)
        except RocketLensError as error:
            note(str(error))
        await asyncio.sleep(seconds)
    await print_once(call)


async def _print_rows(call: Call) -> None:
    clusters = (table := await call.cluster_info()).cluster_addr_table
    cluster_name = call.given.text("c")
    is_more = "m" in call.given
    head = _HEAD_5 if call.form.is_5 else _HEAD_4
    call.print(_MORE if is_more else head)
    failed = Failed()
    for cluster in [cluster_name] if cluster_name else clusters:
        for name in sorted(clusters.get(cluster, ())):
            broker = table.broker_addr_table.get(name)
            for number, address in sorted(broker.broker_addrs.items() if broker else ()):
                stats: Mapping[str, str] = {}
                with failed.noted():
                    stats = await runtime_table(call.cluster, address)
                if is_more:
                    call.print(more_row(call.form, cluster, name, stats))
                else:
                    now_ms = time.time_ns() // 1_000_000
                    row = broker_row(call.form, (cluster, name, number, address), stats, now_ms)
                    call.print(row)
    failed.check()


def broker_row(
    form: Form, where: tuple[str, str, int, str], stats: Mapping[str, str], now_ms: int
) -> str:
    """Return the row of a broker; `where` is cluster, broker name, broker id and address."""
    cluster, name, number, address = where
    # RocketMQ prints empty values if there is no answer, and null if an answer lacks a value.
    none = NULL if stats else ""
    out_name = "getTransferredTps" if form.is_5 else "getTransferedTps"
    sending = _load(stats, "putTps", "send", none)
    pulling = _load(stats, out_name, "pull", none)
    wait = stats.get("pageCacheLockTimeMills", none)
    earliest = _number(stats.get("earliestMessageTimeStamp"))
    hours = (now_ms - earliest) / _HOUR_MS if stats.get("earliestMessageTimeStamp") else 0.0
    hour = rounded(hours, 2)
    space = rounded(_number(stats.get("commitLogDiskRatio")), 4)
    version = form.shown(stats.get("brokerVersionDesc", none))
    begin = f"{padded(form.shown(name), 22)}  {number:<4}  {padded(form.shown(address), 22)} "
    begin += padded(version, 16)
    if not form.is_5:
        return (
            f"{padded(form.shown(cluster), 16)}  {begin} {padded_left(f'{sending})', 19)} "
            f"{padded_left(f'{pulling})', 19)} {wait:>10} {hour:>5} {space:>6}\n"
        )
    absent = "N" if stats else ""
    size = stats.get("ackThreadPoolQueueSize", absent)
    head_wait = stats.get("ackThreadPoolQueueHeadWaitTimeMills", absent)
    active = "true" if stats.get("brokerActive", "").lower() == "true" else "false"
    return (
        f"{padded(form.shown(cluster), 22)}  {begin}  {padded_left(f'{sending})', 16)}  "
        f"{padded_left(f'{pulling}|{size},{head_wait}ms)', 30)}  {padded(_timer(stats), 22)}  "
        f"{wait:>11}  {hour:<12}  {space:<8}  {active:>10}\n"
    )


def _load(stats: Mapping[str, str], tps: str, pool: str, none: str) -> str:
    rates = stats.get(tps, "").split(" ")
    size = stats.get(f"{pool}ThreadPoolQueueSize", none)
    wait = stats.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", none)
    return f"{padded_left(rounded(_number(rates[0]), 2), 9)}({size},{wait}ms"


def _timer(stats: Mapping[str, str]) -> str:
    names = ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")
    behind, offset, congested = (int(_number(stats.get(name))) for name in names)
    enqueue = rounded(_number(stats.get("timerEnqueueTps")), 1)
    dequeue = rounded(_number(stats.get("timerDequeueTps")), 1)
    return f"{behind}-{offset}({rounded(congested / 10_000, 1)}w, {enqueue}, {dequeue})"


def _number(text: str | None) -> float:
    return runtime_number(text) or 0.0


def more_row(form: Form, cluster: str, name: str, stats: Mapping[str, str]) -> str:
    """Return the row of ``clusterList -m``: messages in and out, yesterday and today."""

    def total(what: str, when: str) -> int:
        return int(_number(stats.get(f"msg{what}Total{when}")))

    spans = (("YesterdayMorning", "TodayMorning"), ("TodayMorning", "TodayNow"))
    totals = [total(what, stop) - total(what, start) for start, stop in spans for what in _IN_OUT]
    numbers = " ".join(f"{each:>14}" for each in totals)
    return f"{padded(form.shown(cluster), 16)}  {padded(form.shown(name), 32)} {numbers}\n"


async def broker_status(call: Call) -> None:
    """:raises AnswerIncomplete: if a broker of the cluster does not answer."""
    address, cluster = call.given.text("b"), call.given.text("c")
    brokers = await call.cluster.all_brokers(cluster)
    if address is not None:
        stats = await runtime_table(call.cluster, address)
        call.print(status_lines(call.form, stats, ""))
        return
    if not brokers:
        raise BadInput(f"cluster {cluster} does not exist")
    failed = Failed()
    for broker in brokers.values():
        for each in broker.in_order:
            with failed.noted():
                stats = await runtime_table(call.cluster, each)
                call.print(status_lines(call.form, stats, f"{each:<24} "))
    failed.check()


def status_lines(form: Form, stats: Mapping[str, str], before: str) -> str:
    return "".join(
        f"{before}{padded(form.shown(name), 32)}: {form.shown(stats[name])}\n"
        for name in sorted(stats)
    )


async def broker_config(call: Call) -> None:
    """:raises AnswerIncomplete: if a broker of the cluster does not answer."""
    address, cluster = call.given.text("b"), call.given.text("c")
    if address is not None:
        call.print(f"============{address}============\n")
        call.print(await _config_lines(call, address))
        return
    if cluster is None:
        raise BadInput("give exactly one of -b, -c")
    brokers = await call.cluster.all_brokers(cluster)
    if not brokers:
        raise BadInput(f"cluster {cluster} does not exist")
    failed = Failed()
    for broker in brokers.values():
        master = broker.master or "NO_MASTER"
        call.print(f"============Master: {master}============\n")
        for each in broker.in_order:
            if each != master:
                call.print(f"============My Master: {master}=====Slave: {each}============\n")
            with failed.noted():
                call.print(await _config_lines(call, each))
    failed.check()


async def _config_lines(call: Call, address: str) -> str:
    values = await call.admin.get_broker_config(address)
    shown = call.form.shown
    rows = [
        f"{padded(shown(name), 50)}=  {shown(values[name])}\n"
        for name in concurrent_map_order(values)
    ]
    return "".join(rows) + "\n"


async def ha_status(call: Call) -> None:
    """Print the replication of a broker, or of each master of a cluster; with -i repeatedly."""
    await _print_again(call, _print_ha)


async def _print_ha(call: Call) -> None:
    addresses = [call.given.text("b")] if "b" in call.given else (await masters_of(call)).values()
    await call.cluster.all_brokers()
    for address in filter(None, addresses):
        answer = await call.cluster.ask_for(HaStatus, address, GET_BROKER_HA_STATUS, NoFields())
        call.print(ha_text(call.form, address, answer))


def ha_text(form: Form, address: str, status: HaStatus) -> str:
    """Return the report of a master about its slaves, or of a slave about itself."""
    if not status.master:
        slave = status.slave or SlaveStatus()
        rate = rounded(slave.transferred_byte_in_second / 1024, 2)
        return (
            f"\n#MasterAddr\t{form.shown(slave.master_addr or NULL)}\n"
            f"#CommitLogMaxOffset\t{slave.max_offset}\n#TransferSpeed(KB/s)\t{rate}\n"
            f"#LastReadTime\t{time_of(slave.last_read_timestamp)}\n"
            f"#LastWriteTime\t{time_of(slave.last_write_timestamp)}\n"
            f"#MasterFlushOffset\t{slave.master_flush_offset}\n"
        )
    text = (
        f"\n#MasterAddr\t{address}\n"
        f"#MasterCommitLogMaxOffset\t{status.master_commit_log_max_offset}\n"
        f"#SlaveNum\t{len(status.slaves)}\n#InSyncSlaveNum\t{status.in_sync_slave_nums}\n"
        f"{'#SlaveAddr':<32}  {'#SlaveAckOffset':<16} {'#Diff':>16} {'#TransferSpeed(KB/s)':>16} "
        f"{'#Status':>16} {'#TransferFromWhere':>16}\n"
    )
    for each in status.slaves:
        rate = rounded(each.transferred_byte_in_second / 1024, 2)
        state = "OK" if each.in_sync else "Fall Behind"
        text += (
            f"{padded(form.shown(each.addr or NULL), 32)}  {each.slave_ack_offset:<16} "
            f"{each.diff:>16} {rate:>16} {state:>16} {each.transfer_from_where:>16}\n"
        )
    return text


async def update_config(call: Call) -> None:
    """Change a setting of a broker, of the masters of a cluster, or with -a also of its slaves.

    :raises AnswerIncomplete: if a broker of the cluster refuses; the others are changed and
        printed.
    """
    given, cluster = call.given, call.cluster
    setting = {given.required("k"): given.required("v")}
    content = java_properties.dumps_unescaped(setting).encode()
    if "b" in given:
        await cluster.all_brokers()
        addresses = [given.required("b")]
    elif "c" not in given:
        raise BadInput("give exactly one of -b, -c")
    elif "a" in given:
        brokers = await cluster.all_brokers(given.text("c"))
        addresses = [each for broker in brokers.values() for each in broker.in_order]
    else:
        addresses = list((await masters_of(call)).values())
    failed = Failed()
    for address in addresses:
        with nullcontext() if "b" in given else failed.noted():
            await cluster.ask(address, UPDATE_BROKER_CONFIG, NoFields(), content)
            call.print(f"update broker config success, {address}\n")
    failed.check()


async def wipe_write_permission(call: Call) -> None:
    await _change_write_permission(call, "wipe", WIPE_WRITE_PERM_OF_BROKER, "wipe_topic_count")


async def add_write_permission(call: Call) -> None:
    await _change_write_permission(call, "add", ADD_WRITE_PERM_OF_BROKER, "add_topic_count")


async def _change_write_permission(
    call: Call, verb: str, command: Command[WritePermissionRequest, Any], count: str
) -> None:
    """:raises AnswerIncomplete: if a name server fails; the others are changed and printed."""
    name, failed = call.given.required("b"), Failed()
    shown = call.form.shown(name)
    for address in call.cluster.name_servers:
        text = f"{verb} write perm of broker[{shown}] in name server[{address}]"
        try:
            answer = await call.cluster.ask(
                address, command, WritePermissionRequest(broker_name=name)
            )
        except RocketLensError as error:
            call.print(f"{text} Failed\n")
            failed.append(str(error))
        else:
            header = command.response.decode(answer.ext_fields)
            call.print(f"{text} OK, {getattr(header, count)}\n")
    failed.check()
