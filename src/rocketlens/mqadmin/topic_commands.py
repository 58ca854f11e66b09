"""Topics: topicList, topicClusterList, topicRoute, topicStatus, updateTopic, updateTopicPerm,
deleteTopic and statsAll.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.admin.group_calls import groups_of_topic
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.route import Broker
from rocketlens.errors import BadInput, BrokerError, MessageNotFound
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    ORDER_TOPIC_NAMESPACE,
    RETRY_PREFIX,
    check_topic,
    perm_text,
)
from rocketlens.model.text.java import concurrent_map_order
from rocketlens.mqadmin.printing.blocks import route_json, route_table, status_table
from rocketlens.mqadmin.printing.form import NULL, columns, map_text, padded, rounded
from rocketlens.mqadmin.tool import Call, Failed, incomplete, masters_of
from rocketlens.wire.bodies.tables import BrokerStatsData, MessageQueue, TopicOffset
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import (
    DELETE_TOPIC_IN_BROKER,
    DELETE_TOPIC_IN_NAMESRV,
    GET_KV_CONFIG,
    PUT_KV_CONFIG,
    UPDATE_AND_CREATE_TOPIC,
    CreateTopicRequest,
    DeleteTopicFromNamesrvRequest,
    KvKeyRequest,
    PutKvConfigRequest,
    TopicRequest,
)
from rocketlens.wire.commands.groups import VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest

_GROUP_TOPICS: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_NO_GROUP: Final[tuple[str, ...]] = ("",)


async def topic_list(call: Call) -> None:
    topics = await call.topic_names()
    shown = call.form.shown
    if "c" not in call.given:
        call.print("".join(f"{shown(topic)}\n" for topic in topics))
        return
    clusters = (await call.cluster_info()).cluster_addr_table
    call.print(f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}\n")
    failed = Failed()
    for topic in topics:
        if topic.startswith(_GROUP_TOPICS):
            continue
        cluster, groups = "", _NO_GROUP
        with failed.noted(topic):
            route = await call.route_data(topic)
            name = route.broker_datas[0].broker_name if route.broker_datas else ""
            cluster = next((each for each, names in clusters.items() if name in names), "")
            groups = await groups_of_topic(call.cluster, topic) or _NO_GROUP
        for group in groups:
            cells = (cluster[:20], topic[:64], group[:64])
            call.print(columns(map(shown, cells), (20, 64, 64)) + "\n")
    failed.check()


async def topic_clusters(call: Call) -> None:
    route = await call.route_data(call.given.required("t"))
    name = route.broker_datas[0].broker_name if route.broker_datas else ""
    clusters = (await call.cluster_info()).cluster_addr_table
    for cluster, names in clusters.items():
        if name in names:
            call.print(f"{call.form.shown(cluster)}\n")


async def topic_route(call: Call) -> None:
    route = await call.route_data(call.given.required("t"))
    call.print((route_table if "l" in call.given else route_json)(call.form, route))


async def topic_status(call: Call) -> None:
    """:raises AnswerIncomplete: if a broker fails; the rows of the others are printed."""
    topic = call.given.required("t")
    route = await call.cluster.route(call.given.text("c") or topic)

    async def ask(_: Broker, address: str) -> Mapping[MessageQueue, TopicOffset]:
        return await broker_calls.topic_stats(call.cluster, address, topic)

    tables, failed = await call.ask_all(list(route.brokers.values()), ask)
    offsets: dict[MessageQueue, TopicOffset] = {}
    for table in tables:
        offsets.update(table)
    if offsets:
        call.print(status_table(call.form, offsets))
    if failed:
        raise incomplete(failed)
    if not offsets:
        raise MessageNotFound(f"no broker has queues of topic {topic}")


async def update_topic(call: Call) -> None:
    given = call.given
    topic = given.required("t")
    check_topic(topic)
    header = CreateTopicRequest(
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=given.number("r", 8, 0, limits.MAX_INT),
        write_queue_nums=given.number("w", 8, 0, limits.MAX_INT),
        perm=given.number("p", 6, 0, 7),
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=given.flag("u") | given.flag("s") << 1,
        order=given.flag("o"),
        attributes=given.text("a") or "",
    )
    masters = await masters_of(call)
    address = given.text("b")
    for master in masters.values():
        await call.cluster.ask(master, UPDATE_AND_CREATE_TOPIC, header)
        if address is None:
            call.print(f"create topic to {master} success.\n")
    if header.order:
        await _set_order_conf(call, topic, list(masters), header.write_queue_nums)
    if address is not None:
        call.print(f"create topic to {address} success.\n")
    call.print(config_text(call, header) + _line_end(call))


async def _set_order_conf(call: Call, topic: str, names: list[str], count: int) -> None:
    """Register the queues of an ordered topic with the name servers, and print them."""
    cluster = call.cluster
    value = ";".join(f"{name}:{count}" for name in names)
    kept = value
    if "b" in call.given:
        header = KvKeyRequest(namespace=ORDER_TOPIC_NAMESPACE, key=topic)
        old = ""
        try:
            answer = await cluster.first_of_name_servers(
                lambda address, timeout_s: cluster.ask(
                    address, GET_KV_CONFIG, header, timeout_s=timeout_s
                )
            )
            old = GET_KV_CONFIG.response.decode(answer.ext_fields).value or ""
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
        parts = {part.partition(":")[0]: part for part in f"{old};{value}".split(";") if part}
        kept = ";".join(parts.values())
    put = PutKvConfigRequest(namespace=ORDER_TOPIC_NAMESPACE, key=topic, value=kept)
    for address in cluster.name_servers:
        await cluster.ask(address, PUT_KV_CONFIG, put)
    what = "broker" if "b" in call.given else "cluster"
    call.print(
        f"set {what} orderConf. isOrder=true, orderConf=[{call.form.shown(value)}]{_line_end(call)}"
    )


def _line_end(call: Call) -> str:
    """Return the newline that RocketMQ 4.9 leaves out."""
    return "\n" if call.form.is_5 else ""


def config_text(call: Call, header: CreateTopicRequest) -> str:
    text = (
        f"TopicConfig [topicName={call.form.shown(header.topic)}, "
        f"readQueueNums={header.read_queue_nums}, writeQueueNums={header.write_queue_nums}, "
        f"perm={perm_text(header.perm)}, topicFilterType=SINGLE_TAG, "
        f"topicSysFlag={header.topic_sys_flag}, "
        f"order={'true' if header.order else 'false'}"
    )
    if not call.form.is_5:
        return f"{text}]"
    pairs = [part.partition("=") for part in (header.attributes or "").split(",") if part]
    attributes = {name: value if equals else NULL for name, equals, value in pairs}
    return f"{text}, attributes={call.form.shown(map_text(attributes))}]"


async def update_permission(call: Call) -> None:
    """Change the permission of a topic on one broker, or on all masters of a cluster.

    As in RocketMQ, all brokers get the queue counts and flags of the route's first queue data, and
    the topic is no longer ordered.
    """
    given = call.given
    topic, perm = given.required("t"), given.number("p", 0, 0, 7)
    queues = (await call.route_data(topic)).queue_datas
    if not queues:
        raise BadInput(f"the route of topic {topic} has no queues")
    header = CreateTopicRequest(
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=queues[0].read_queue_nums,
        write_queue_nums=queues[0].write_queue_nums,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=queues[0].topic_sys_flag,
        order=False,
        attributes="",
    )
    old = {each.broker_name: each.perm for each in queues}
    for name, address in (await masters_of(call)).items():
        before = queues[0].perm
        if "b" in given:
            before = old.get(name, 0)
            if before == perm:
                call.print("new perm equals to the old one!\n")
                return
        await call.cluster.ask(address, UPDATE_AND_CREATE_TOPIC, header)
        call.print(f"update topic perm from {before} to {perm} in {address} success.\n")
        if "b" in given:
            call.print(f"{config_text(call, header)}.\n")


async def delete_topic(call: Call) -> None:
    await delete_everywhere(call, call.given.required("t"))


async def delete_everywhere(call: Call, topic: str, *, is_silent: bool = False) -> None:
    """Delete a topic on all masters of the cluster of -c, then its route on name servers.

    :raises RocketLensError: if one of them fails.
    """
    cluster = call.cluster
    cluster_name = call.given.required("c")
    for master in (await masters_of(call)).values():
        await cluster.ask(master, DELETE_TOPIC_IN_BROKER, TopicRequest(topic=topic))
    shown = call.form.shown
    if not is_silent:
        call.print(f"delete topic [{shown(topic)}] from cluster [{shown(cluster_name)}] success.\n")
    header = DeleteTopicFromNamesrvRequest(topic=topic, cluster_name=cluster_name)
    for address in cluster.name_servers:
        await cluster.ask(address, DELETE_TOPIC_IN_NAMESRV, header)
    if not is_silent:
        call.print(f"delete topic [{shown(topic)}] from NameServer success.\n")


_TOPIC_PUTS: Final = "TOPIC_PUT_NUMS"
_GROUP_GETS: Final = "GROUP_GET_NUMS"
"""Names of brokers' counters; the key of the second is ``topic@group``."""
_STATS_WIDTH: Final = 64


class _Counts(Struct):
    """Sums over the masters of a topic."""

    per_second: float = 0.0
    in_24_hours: int = 0


async def stats_all(call: Call) -> None:
    """Print rates, daily counts and lag of each topic and group, without retry topics.

    :raises AnswerIncomplete: if a request fails; RocketMQ prints 0.
    """
    topics = await call.topic_names()
    call.print(
        f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11} "
        f"{'#OutTPS':>11} {'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}\n"
    )
    only = call.given.text("t")
    failed = Failed()
    for name in concurrent_map_order(topics):
        if name.startswith(_GROUP_TOPICS) or only not in {None, "", name}:
            continue
        with failed.noted(name):
            await _print_topic(call, name, failed)
    failed.check()


async def _print_topic(call: Call, name: str, failed: Failed) -> None:
    route = await call.cluster.route(name)
    masters = [each.master for each in route.brokers.values() if each.master is not None]
    only_active = "a" in call.given
    in_counts = await _count(call, masters, failed, (_TOPIC_PUTS, name))
    groups = await groups_of_topic(call.cluster, name)
    for group in java_order(dict.fromkeys(groups, ""), 16):
        out_counts = await _count(call, masters, failed, (_GROUP_GETS, f"{name}@{group}"))
        lag = 0
        with failed.noted(f"{name}, group {group}"):
            stats = await call.admin.examine_consume_stats(group, name)
            offsets = stats.offset_table.values()
            lag = max(sum(each.broker_offset - each.consumer_offset for each in offsets), 0)
        if not only_active or in_counts.in_24_hours > 0 or out_counts.in_24_hours > 0:
            cells = (rounded(out_counts.per_second, 2), str(out_counts.in_24_hours))
            call.print(_stats_row(call, (name, group), lag, in_counts, cells))
    if not groups and (not only_active or in_counts.in_24_hours > 0):
        call.print(_stats_row(call, (name, ""), 0, in_counts, ("", "NO_CONSUMER")))


def _stats_row(
    call: Call, names: tuple[str, str], lag: int, in_counts: _Counts, out_counts: tuple[str, str]
) -> str:
    first, second = (padded(call.form.shown(text[:_STATS_WIDTH]), _STATS_WIDTH) for text in names)
    return (
        f"{first}  {second} {lag:>12} {rounded(in_counts.per_second, 2):>11} {out_counts[0]:>11} "
        f"{in_counts.in_24_hours:>14} {out_counts[1]:>14}\n"
    )


async def _count(call: Call, masters: list[str], failed: Failed, stats: tuple[str, str]) -> _Counts:
    """Return the sums over all masters; brokers without a counter reply with an error."""
    counts = _Counts()
    header = ViewBrokerStatsDataRequest(stats_name=stats[0], stats_key=stats[1])
    for address in masters:
        with failed.noted(stats[1].partition("@")[0]):
            try:
                broker_counts = await call.cluster.ask_for(
                    BrokerStatsData, address, VIEW_BROKER_STATS_DATA, header
                )
            except BrokerError as error:
                is_system = error.code == ResponseCode.SYSTEM_ERROR
                if is_system and (error.remark or "").endswith("not exist"):
                    continue
                raise
            counts.per_second += broker_counts.minute.per_second
            counts.in_24_hours += (
                broker_counts.day.sum or broker_counts.hour.sum or broker_counts.minute.sum
            )
    return counts
