"""consumerConnection, consumerStatus, producerConnection and producer."""

import os
import time
from pathlib import Path

from rocketlens.client.connect.cluster import as_it_is
from rocketlens.errors import RocketLensError
from rocketlens.model.properties import java_order
from rocketlens.model.text.java import concurrent_map_order
from rocketlens.mqadmin.printing.body_files import safe_name
from rocketlens.mqadmin.printing.form import NULL, padded
from rocketlens.mqadmin.printing.running_info import (
    is_subscribed_alike,
    running_info_text,
    stuck_queues_text,
)
from rocketlens.mqadmin.tool import Call, incomplete
from rocketlens.wire.bodies.consumer import ClientConnection, ConsumerRunningInfo, ProducerTable
from rocketlens.wire.codes import version_name
from rocketlens.wire.commands.admin import GET_ALL_PRODUCER_INFO
from rocketlens.wire.commands.command_table import NoFields


async def consumer_connection(call: Call) -> None:
    """Print the clients of a group, and what they subscribe to."""
    group, shown = call.given.required("g"), call.form.shown
    connections = await call.tool.admin.examine_consumer_connection_info(
        group, call.given.text("b")
    )
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
    shown = call.form.shown
    client_id, address, language = widths
    return (
        f"{padded(shown(each.client_id), client_id)} {padded(shown(each.client_addr), address)} "
        f"{padded(shown(each.language or NULL), language)} {version_name(each.version)}\n"
    )


async def producer_connection(call: Call) -> None:
    """Print the producers of a group."""
    group, topic = call.given.required("g"), call.given.required("t")
    connections = await call.tool.admin.examine_producer_connection_info(group, topic)
    for number, each in enumerate(connections.connections, 1):
        call.print(f"{number:04d}  {_connection_row(call, each, (32, 22, 8))}")


async def all_producers(call: Call) -> None:
    """Print the producers that are connected to a broker."""
    address, shown = call.given.required("b"), call.form.shown
    await call.tool.cluster.all_brokers()
    table = await call.tool.cluster.ask_for(
        as_it_is, ProducerTable, address, GET_ALL_PRODUCER_INFO, NoFields()
    )
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
    """Print what a client is doing, or write it to a file for each client of a group.

    :raises AnswerIncomplete: if a client does not answer; the others are printed.
    """
    given, admin = call.given, call.tool.admin
    group, jstack = given.required("g"), "s" in given
    connections = await admin.examine_consumer_connection_info(group, given.text("b"))
    client_id = given.text("i")
    if client_id is not None:
        info = await admin.get_consumer_running_info(group, client_id, jstack=jstack)
        call.print(running_info_text(call.form, info))
        return
    now_ms = time.time_ns() // 1_000_000
    infos: dict[str, ConsumerRunningInfo] = {}
    failed: list[str] = []
    call.print(f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile\n")
    # A client that is connected twice is listed twice.
    index = 0
    for each in connections.connections:
        try:
            info = await admin.get_consumer_running_info(group, each.client_id, jstack=jstack)
        except RocketLensError as error:
            failed.append(f"{each.client_id}: {error}")
            continue
        infos[each.client_id] = info
        path = _write_file(Path(str(now_ms)), each.client_id, running_info_text(call.form, info))
        client, version = call.form.shown(each.client_id), version_name(each.version)
        index += 1
        call.print(f"{index:<10} {padded(client, 40)} {version:<20} {path}\n")
    if infos:
        call.print(_judged(call, infos))
    if failed:
        raise incomplete("; ".join(failed))


def _judged(call: Call, infos: dict[str, ConsumerRunningInfo]) -> str:
    now_ms = time.time_ns() // 1_000_000
    if not is_subscribed_alike(call.form, infos, now_ms):
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    stuck = [stuck_queues_text(call.form, name, infos[name], now_ms) for name in sorted(infos)]
    return "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n" + "".join(stuck)


def _write_file(directory: Path, client_id: str, text: str) -> Path:
    """Write what a client said to a new file in the working directory, and return its path.

    The file has the client's id as its name, as the real tool does it, unless that could lead
    elsewhere: then the SHA-256 of the id.
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
