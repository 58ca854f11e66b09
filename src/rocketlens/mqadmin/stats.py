"""statsAll: how much each topic got and each of its groups consumed, as brokers count it.

A module of its own: `group_options` imports it when it runs, as every command.
"""

from dataclasses import dataclass, field
from typing import Final

from rocketlens.client.admin.group_calls import groups_of_topic
from rocketlens.client.connect.cluster import as_it_is
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.model.text.java import concurrent_map_order
from rocketlens.mqadmin.printing.form import padded, rounded
from rocketlens.mqadmin.tool import Call, incomplete
from rocketlens.wire.bodies.tables import BrokerStatsData, TopicList
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import GET_ALL_TOPIC_LIST_FROM_NAMESERVER
from rocketlens.wire.commands.groups import VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest
from rocketlens.wire.declare import NoFields

_TOPIC_PUTS: Final = "TOPIC_PUT_NUMS"
_GROUP_GETS: Final = "GROUP_GET_NUMS"
"""What brokers call the counts of messages; the key of the second is ``topic@group``."""
_NAME_WIDTH: Final = 64


@dataclass(slots=True)
class _Counts:
    """The sums of what the masters of a topic count."""

    per_second: float = 0.0
    in_24_hours: int = 0


@dataclass(slots=True)
class _Topic:
    name: str
    masters: list[str]
    failed: list[str] = field(default_factory=list)


async def stats_all(call: Call) -> None:
    """Print rate, count of a day and lag of each topic and group, but of retries.

    :raises AnswerIncomplete: if something could not be asked; the real tool prints 0 for it.
    """
    listed = await call.tool.cluster.ask_name_servers_for(
        as_it_is, TopicList, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoFields()
    )
    call.print(
        f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11} "
        f"{'#OutTPS':>11} {'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}\n"
    )
    only = call.given.text("t")
    failed: list[str] = []
    for name in concurrent_map_order(listed.topic_list):
        if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) or only not in {None, "", name}:
            continue
        try:
            failed += await _print_topic(call, name)
        except RocketLensError as error:
            failed.append(f"{name}: {error}")
    if failed:
        raise incomplete("; ".join(failed))


async def _print_topic(call: Call, name: str) -> list[str]:
    """Print the rows of a topic; return what could not be asked."""
    route = await call.tool.cluster.route(name)
    masters = [each.master for each in route.brokers.values() if each.master is not None]
    topic = _Topic(name, masters)
    only_active = "a" in call.given
    came = await _count(call, topic, _TOPIC_PUTS, name)
    groups = await groups_of_topic(call.tool.cluster, name)
    for group in java_order(dict.fromkeys(groups, ""), 16):
        went = await _count(call, topic, _GROUP_GETS, f"{name}@{group}")
        lag = await _lag(call, topic, group)
        if not only_active or came.in_24_hours > 0 or went.in_24_hours > 0:
            cells = (rounded(went.per_second, 2), str(went.in_24_hours))
            call.print(_row(call, (name, group), lag, came, cells))
    if not groups and (not only_active or came.in_24_hours > 0):
        call.print(_row(call, (name, ""), 0, came, ("", "NO_CONSUMER")))
    return topic.failed


def _row(call: Call, names: tuple[str, str], lag: int, came: _Counts, went: tuple[str, str]) -> str:
    first, second = (padded(call.form.shown(text[:_NAME_WIDTH]), _NAME_WIDTH) for text in names)
    return (
        f"{first}  {second} {lag:>12} {rounded(came.per_second, 2):>11} {went[0]:>11} "
        f"{came.in_24_hours:>14} {went[1]:>14}\n"
    )


async def _count(call: Call, topic: _Topic, stats_name: str, stats_key: str) -> _Counts:
    """Return what all masters count; a broker that counted nothing says that there is no count."""
    counts = _Counts()
    header = ViewBrokerStatsDataRequest(stats_name=stats_name, stats_key=stats_key)
    for address in topic.masters:
        try:
            broker_counts = await call.tool.cluster.ask_for(
                as_it_is, BrokerStatsData, address, VIEW_BROKER_STATS_DATA, header
            )
        except BrokerError as error:
            remark = error.remark or ""
            if error.code != ResponseCode.SYSTEM_ERROR or not remark.endswith("not exist"):
                topic.failed.append(f"{topic.name}: {error}")
        except RocketLensError as error:
            topic.failed.append(f"{topic.name}: {error}")
        else:
            counts.per_second += broker_counts.minute.per_second
            counts.in_24_hours += (
                broker_counts.day.sum or broker_counts.hour.sum or broker_counts.minute.sum
            )
    return counts


async def _lag(call: Call, topic: _Topic, group: str) -> int:
    try:
        stats = await call.tool.admin.examine_consume_stats(group, topic.name)
    except RocketLensError as error:
        topic.failed.append(f"{topic.name}, group {group}: {error}")
        return 0
    offsets = stats.offset_table.values()
    return max(sum(each.broker_offset - each.consumer_offset for each in offsets), 0)
