"""Lite topics: getBrokerLiteInfo, getParentTopicInfo, getLiteTopicInfo, getLiteClientInfo,
getLiteGroupInfo and triggerLiteDispatch.
"""

import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from rocketlens import limits
from rocketlens.client.connect.route import Route
from rocketlens.errors import AnswerIncomplete, RocketLensError
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import lite_topic
from rocketlens.mqadmin.printing.form import NULL, columns, flag_text, padded, time_of
from rocketlens.mqadmin.tool import Call, Failed, masters_of
from rocketlens.wire.bodies.tables import OffsetWrapper
from rocketlens.wire.declare import Command, NoFields, Q
from rocketlens.wire.lite import (
    GET_BROKER_LITE_INFO,
    GET_LITE_CLIENT_INFO,
    GET_LITE_GROUP_INFO,
    GET_LITE_TOPIC_INFO,
    GET_PARENT_TOPIC_INFO,
    TRIGGER_LITE_DISPATCH,
    BrokerLiteInfo,
    GetLiteClientInfoRequest,
    GetLiteGroupInfoRequest,
    GetLiteTopicInfoRequest,
    GetParentTopicInfoRequest,
    LiteClientInfo,
    LiteGroupInfo,
    LiteLag,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatchRequest,
)

B = TypeVar("B")
_BROKER_WIDTHS: Final = (30, 17, 10, 14, 20, 17, 15, 18, 15)
_BROKER_NAMES: Final = (
    *("#Broker", "#Store Type", "#Max LMQ", "#Current LMQ", "#SubscriptionCount"),
    *("#OrderInfoCount", "#CQTableSize", "#OffsetTableSize", "#eventMapSize"),
)
_PARENT_WIDTHS: Final = (50, 8, 14, 14, 100)
_TOPIC_WIDTHS: Final = (50, 14, 14, 30, 12, 18)
_CLIENT_WIDTHS: Final = (30, 20, 30, 30)
_GROUP_WIDTHS: Final = (50, 16, 16, 16, 30)
_LAG_WIDTHS: Final = (6, 40, 12, 30)
_NAME_CHARACTERS: Final = 40


def _print_row(call: Call, widths: tuple[int, ...], *cells: object, end: str = "\n") -> None:
    """Print a row; `end` follows the last column."""
    call.print(columns((call.form.shown(str(cell)) for cell in cells), widths, " ") + end)


def _when(epoch_ms: int, absent: str) -> str:
    return time_of(epoch_ms) if epoch_ms > 0 else absent


def _list(texts: tuple[str, ...]) -> str:
    """Return texts as Java prints a set."""
    return f"[{', '.join(java_order(dict.fromkeys(texts, ''), 16))}]"


async def broker_info(call: Call) -> None:
    """:raises AnswerIncomplete: if a master of the cluster fails."""
    _print_row(call, _BROKER_WIDTHS, *_BROKER_NAMES)
    failed = Failed()
    for address in (await masters_of(call)).values():
        try:
            info = await call.cluster.ask_for(
                BrokerLiteInfo, address, GET_BROKER_LITE_INFO, NoFields()
            )
        except RocketLensError as error:
            if "b" in call.given:
                raise
            call.print(f"[{address}] error.\n")
            failed.append(str(error))
            continue
        cells = (info.max_lmq_num, info.current_lmq_num, info.lite_subscription_count)
        sizes = (info.order_info_count, info.cq_table_size, info.offset_table_size)
        kind = info.store_type or NULL
        _print_row(call, _BROKER_WIDTHS, address, kind, *cells, *sizes, info.event_map_size)
        if "d" in call.given:
            groups = {name: list(topics) for name, topics in info.group_meta.items()}
            for what, meta in (("Topic", dict(info.topic_meta)), ("Group", groups)):
                text = json.dumps(meta, ensure_ascii=False, separators=(",", ":"))
                call.print(f"{what} Meta: {call.form.shown(text)}\n")
            call.print("\n")
    failed.check()


async def _ask_brokers(
    call: Call, route: Route, body: type[B], command: Command[Q, Any], header: Q
) -> AsyncIterator[tuple[str, B]]:
    """Yield the answer of each broker of a route with its name; print a line for each failure.

    :raises AnswerIncomplete: at the end, if a broker failed.
    """
    failed = Failed()
    for name, broker in route.brokers.items():
        try:
            info = await call.cluster.ask_for(body, broker.in_order[0], command, header)
        except RocketLensError as error:
            call.print(f"[{call.form.shown(name)}] error.\n")
            failed.append(f"{name}: {error}")
        else:
            yield name, info
    failed.check()


async def parent_topic_info(call: Call) -> None:
    parent = call.given.required("p")
    route = await call.cluster.route(parent)
    call.print(f"Parent Topic Info: [{call.form.shown(parent)}]\n")
    names = ("#Broker Name", "#TTL", "#Lite Count", "#LMQ NUM", "#GROUPS")
    _print_row(call, _PARENT_WIDTHS, *names, end=" \n")
    header = GetParentTopicInfoRequest(topic=parent)
    async for name, info in _ask_brokers(
        call, route, ParentTopicInfo, GET_PARENT_TOPIC_INFO, header
    ):
        cells = (info.ttl, info.lite_topic_count, info.lmq_num, _list(info.groups))
        _print_row(call, _PARENT_WIDTHS, name[:_NAME_CHARACTERS], *cells, end=" \n")


async def topic_info(call: Call) -> None:
    parent, lite = call.given.required("p"), call.given.required("l")
    route = await call.cluster.route(parent)
    shown = call.form.shown
    call.print(f"Lite Topic Info: [{shown(parent)}] [{shown(lite)}] ")
    call.print(f"[{shown(lite_topic(parent, lite))}]\n")
    names = ("#Broker Name", "#MinOffset", "#MaxOffset", "#LastUpdate", "#Sharding")
    _print_row(call, _TOPIC_WIDTHS, *names, "#SubClientCount", end=" \n")
    header = GetLiteTopicInfoRequest(parent_topic=parent, lite_topic=lite)
    async for name, info in _ask_brokers(call, route, LiteTopicInfo, GET_LITE_TOPIC_INFO, header):
        offset = info.topic_offset
        when = _when(offset.last_update_timestamp_ms, "-")
        cells = (offset.min_offset, offset.max_offset, when, flag_text(info.sharding_to_broker))
        shown_name = name[:_NAME_CHARACTERS]
        _print_row(call, _TOPIC_WIDTHS, shown_name, *cells, len(info.subscriber), end=" \n")
        if "s" in call.given:
            clients = ", ".join(f"{each.client_id}@{each.group}" for each in info.subscriber)
            call.print(f"[{shown(clients)}]\n")


async def client_info(call: Call) -> None:
    given, shown = call.given, call.form.shown
    parent, group, client_id = given.required("p"), given.required("g"), given.required("c")
    route = await call.cluster.route(parent)
    call.print(f"Lite Client Info: [{shown(parent)}] [{shown(group)}] [{shown(client_id)}]\n")
    names = ("#Broker", "#LiteTopicCount", "#LastAccessTime", "#LastConsumeTime")
    _print_row(call, _CLIENT_WIDTHS, *names, end=" \n")
    header = GetLiteClientInfoRequest(parent_topic=parent, group=group, client_id=client_id)
    async for name, info in _ask_brokers(call, route, LiteClientInfo, GET_LITE_CLIENT_INFO, header):
        count = info.lite_topic_count if info.lite_topic_count > 0 else "N/A"
        times = (_when(each, "N/A") for each in (info.last_access_time, info.last_consume_time))
        _print_row(call, _CLIENT_WIDTHS, name, count, *times, end=" \n")
        if "s" in given and info.lite_topic_set is not None:
            call.print(f"Lite Topics: {shown(_list(info.lite_topic_set))}\n\n")


async def group_info(call: Call) -> None:
    """Print the lag of a group in the lite topics of a parent, or in one of them."""
    given, shown = call.given, call.form.shown
    parent, group, lite = given.required("p"), given.required("g"), given.text("l") or None
    route = await call.cluster.route(parent)
    call.print(f"Lite Group Info: [{shown(group)}] [{shown(parent)}]\n")
    if lite is not None:
        names = ("#Broker Name", "#BrokerOffset", "#ConsumeOffset", "#LagCount", "#LastUpdate")
        _print_row(call, _GROUP_WIDTHS, *names)
    now_ms = earliest_ms = time.time_ns() // 1_000_000
    total = 0
    by_count: list[LiteLag] = []
    by_time: list[LiteLag] = []
    header = GetLiteGroupInfoRequest(
        group=group, lite_topic=lite, top_k=given.number("k", 20, 0, limits.MAX_INT)
    )
    problem: AnswerIncomplete | None = None
    try:
        async for name, info in _ask_brokers(
            call, route, LiteGroupInfo, GET_LITE_GROUP_INFO, header
        ):
            total += max(info.total_lag_count, 0)
            if info.earliest_unconsumed_timestamp > 0:
                earliest_ms = min(earliest_ms, info.earliest_unconsumed_timestamp)
            if lite is not None:
                cells = _offset_cells(info.lite_topic_offset_wrapper)
                _print_row(call, _GROUP_WIDTHS, name, *cells)
            by_count += info.lag_count_top_k
            by_time += info.lag_timestamp_top_k
    except AnswerIncomplete as error:
        problem = error
    ago_s = (now_ms - earliest_ms) // 1000
    call.print(f"Total Lag Count: {total}\n")
    call.print(f"Min Unconsumed Timestamp: {earliest_ms} ({ago_s} s ago)\n\n")
    if lite is None:
        by_count.sort(key=lambda lag: -lag.lag_count)
        by_time.sort(key=lambda lag: lag.earliest_unconsumed_timestamp)
        call.print("------TopK by lag count-----\n")
        _print_lags(call, by_count)
        call.print("\n------TopK by lag time------\n")
        _print_lags(call, by_time)
    if problem is not None:
        raise problem


def _offset_cells(offset: OffsetWrapper | None) -> tuple[object, ...]:
    if offset is None:
        return ("-",) * 4
    behind = offset.broker_offset - offset.consumer_offset
    when = _when(offset.last_timestamp_ms, "-")
    return (offset.broker_offset, offset.consumer_offset, behind, when)


def _print_lags(call: Call, lags: list[LiteLag]) -> None:
    _print_row(call, _LAG_WIDTHS, "NO", "Lite Topic", "Lag Count", "UnconsumedTimestamp")
    for number, lag in enumerate(lags, 1):
        when = _when(lag.earliest_unconsumed_timestamp, "-")
        _print_row(call, _LAG_WIDTHS, number, lag.lite_topic or NULL, lag.lag_count, when)


async def trigger_dispatch(call: Call) -> None:
    """Make brokers dispatch lite topics again, for a group or one client.

    :raises AnswerIncomplete: if a broker fails.
    """
    given, shown = call.given, call.form.shown
    parent, group = given.required("p"), given.required("g")
    route = await call.cluster.route(parent)
    call.print(f"Group And Topic Info: [{shown(group)}] [{shown(parent)}]\n\n")
    header = TriggerLiteDispatchRequest(group=group, client_id=given.text("c"))
    failed = Failed()
    for name, broker in route.brokers.items():
        if given.text("b") in {None, name}:
            result = "dispatched"
            try:
                await call.cluster.ask(broker.in_order[0], TRIGGER_LITE_DISPATCH, header)
            except RocketLensError as error:
                result = "error"
                failed.append(f"{name}: {error}")
            call.print(f"{padded(shown(name), 30)} {padded(result, 12)}\n")
    failed.check()
