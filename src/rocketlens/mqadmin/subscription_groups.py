"""Consumer groups: updateSubGroup, deleteSubGroup, getConsumerConfig, setConsumeMode,
resetOffsetByTime, skipAccumulatedMessage and cloneGroupOffset.
"""

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.admin.group_calls import TO_THE_END, RollbackStats
from rocketlens.client.connect.route import MessageQueue, set_order
from rocketlens.errors import BadInput, BrokerError, CommandBodyError
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.mqadmin.printing.form import NULL, Form, columns, flag_text, map_text
from rocketlens.mqadmin.tool import Call, Failed, masters_of
from rocketlens.mqadmin.topic_commands import delete_everywhere
from rocketlens.terminal.output import parse_time
from rocketlens.wire.bodies.tables import GroupRetryPolicy, SubscriptionGroupConfig
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.groups import (
    GET_SUBSCRIPTIONGROUP_CONFIG,
    INVOKE_BROKER_TO_RESET_OFFSET,
    SET_MESSAGE_REQUEST_MODE,
    UPDATE_CONSUMER_OFFSET,
    GroupRequest,
    ResetOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rocketlens.wire.declare import NoFields, read_body

_ONLY_5: Final = frozenset(
    {
        *("consumeMessageOrderly", "groupRetryPolicy", "groupSysFlag", "consumeTimeoutMinute"),
        *("subscriptionDataSet", "attributes"),
    }
)


async def update_group(call: Call) -> None:
    """:raises AnswerIncomplete: if a broker of the cluster fails; the others are changed and
    printed.
    """
    given, admin = call.given, call.admin
    config = _config(call)
    failed = Failed()
    for address in await _addresses(call):
        with nullcontext() if "b" in given else failed.noted():
            await admin.create_and_update_subscription_group(config, broker_addr=address)
            call.print(f"create subscription group to {address} success.\n")
    call.print(config_text(call.form, config))
    failed.check()


async def _addresses(call: Call) -> list[str]:
    """Return the broker of -b, or the masters of the cluster of -c."""
    if "b" in call.given:
        return [call.given.required("b")]
    if "c" not in call.given:
        raise BadInput("give -b, the address of a broker, or -c, the name of a cluster")
    return list((await masters_of(call)).values())


def _config(call: Call) -> SubscriptionGroupConfig:
    given = call.given
    # The tool's defaults differ from those of groups that brokers create.
    config = SubscriptionGroupConfig(
        group_name=given.required("g"),
        consume_enable=given.flag("s", default=True),
        consume_from_min_enable=given.flag("m"),
        consume_broadcast_enable=given.flag("d"),
        consume_message_orderly=given.flag("o"),
        retry_queue_nums=given.number("q", 1, 0, limits.MAX_INT),
        retry_max_times=given.number("r", 16, -1, limits.MAX_INT),
        broker_id=given.number("i", 0, 0),
        which_broker_when_consume_slowly=given.number("w", 1, 0),
        notify_consumer_ids_changed_enable=given.flag("a", default=True),
    )
    policy = given.text("p")
    if policy is not None:
        try:
            read = read_body(GroupRetryPolicy, policy.encode())
        except CommandBodyError as error:
            raise BadInput(f"invalid -p: {error}") from error
        config = replace(config, group_retry_policy=read)
    return replace(config, attributes=_attributes(given.text("attributes")))


def _attributes(text: str | None) -> dict[str, str]:
    """Parse ``+a=b,+c=d,-e``: set, set, remove."""
    attributes: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        name, equals, value = part.partition("=")
        if not name.startswith("+" if equals else "-"):
            raise BadInput(f"invalid --attributes {part[:40]!r}: expected +name=value or -name")
        if name in attributes:
            raise BadInput(f"invalid --attributes: {name[:40]!r} is given twice")
        attributes[name] = value
    return attributes


def config_parts(form: Form, config: SubscriptionGroupConfig) -> dict[str, str]:
    """Return the fields of ``SubscriptionGroupConfig``, in its order, as Java prints them."""
    parts = {
        "groupName": form.shown(config.group_name),
        "consumeEnable": flag_text(config.consume_enable),
        "consumeFromMinEnable": flag_text(config.consume_from_min_enable),
        "consumeBroadcastEnable": flag_text(config.consume_broadcast_enable),
        "consumeMessageOrderly": flag_text(config.consume_message_orderly),
        "retryQueueNums": str(config.retry_queue_nums),
        "retryMaxTimes": str(config.retry_max_times),
        "groupRetryPolicy": _policy_text(config.group_retry_policy),
        "brokerId": str(config.broker_id),
        "whichBrokerWhenConsumeSlowly": str(config.which_broker_when_consume_slowly),
        "notifyConsumerIdsChangedEnable": flag_text(config.notify_consumer_ids_changed_enable),
        "groupSysFlag": str(config.group_sys_flag),
        "consumeTimeoutMinute": str(config.consume_timeout_minute),
        "subscriptionDataSet": NULL,
        "attributes": form.shown(map_text(java_order(config.attributes, 16))),
    }
    return {name: text for name, text in parts.items() if form.is_5 or name not in _ONLY_5}


def config_text(form: Form, config: SubscriptionGroupConfig) -> str:
    text = map_text(config_parts(form, config))
    return f"SubscriptionGroupConfig{text if form.is_5 else f' [{text[1:-1]}]'}"


def _policy_text(policy: GroupRetryPolicy) -> str:
    exponential, customized = policy.exponential, policy.customized
    parts = {"type": policy.type.name, "exponentialRetryPolicy": NULL}
    if exponential is not None:
        delays = {
            "initial": str(exponential.initial_ms),
            "max": str(exponential.max_ms),
            "multiplier": str(exponential.multiplier),
        }
        parts["exponentialRetryPolicy"] = f"ExponentialRetryPolicy{map_text(delays)}"
    parts["customizedRetryPolicy"] = NULL
    if customized is not None:
        numbers = json.dumps(list(customized.next_ms))
        parts["customizedRetryPolicy"] = f"CustomizedRetryPolicy{{next={numbers}}}"
    return f"GroupRetryPolicy{map_text(parts)}"


async def delete_group(call: Call) -> None:
    """Delete a group on one broker, or on all masters of a cluster with its own topics."""
    given, admin, shown = call.given, call.admin, call.form.shown
    group, clean_offset = given.required("g"), given.flag("r")
    if "b" in given:
        address = given.required("b")
        await admin.delete_subscription_group(group, clean_offset=clean_offset, broker_addr=address)
        call.print(f"delete subscription group [{shown(group)}] from broker [{address}] success.\n")
        return
    cluster_name = given.text("c") or ""
    for address in await _addresses(call):
        await admin.delete_subscription_group(group, clean_offset=clean_offset, broker_addr=address)
        call.print(
            f"delete subscription group [{shown(group)}] from broker [{address}] in cluster "
            f"[{shown(cluster_name)}] success.\n"
        )
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        # RocketMQ 5 prints nothing here.
        await delete_everywhere(call, prefix + group, is_silent=call.form.is_5)


async def reset_offset(call: Call) -> None:
    """Reset a group to a time: its online clients, or without any its offsets."""
    given, form, admin = call.given, call.form, call.admin
    group, topic, text = given.required("g"), given.required("t"), given.required("s")
    time_ms = _time_ms(text, is_5=form.is_5)
    is_force = given.flag("f", default=True)
    what = f"group[{form.shown(group)}], topic[{form.shown(topic)}], "
    when = f"timestamp(string)[{form.shown(text)}], timestamp(long)[{time_ms}]\n"
    queue_id = given.number("q", -1, -1, limits.MAX_INT)
    if "b" in given and queue_id >= 0:
        await _reset_queue(call, queue_id, time_ms, (what, when))
        return
    forced = f"force[{flag_text(is_force)}], "
    try:
        offsets = await admin.reset_offset_by_time(group, topic, time_ms, is_force=is_force)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        made = await admin.reset_offset_by_time_old(group, topic, time_ms, is_force=is_force)
        verb = "reset" if form.is_5 else "rollback"
        call.print(f"{verb} consumer offset by specified consumerGroup[{form.shown(group)}], ")
        call.print(f"topic[{form.shown(topic)}], {forced}{when}")
        _print_table(call, made, f"#{verb}Offset")
        return
    start = "start reset" if form.is_5 else "rollback"
    call.print(f"{start} consumer offset by specified{', ' if form.is_5 else ' '}")
    call.print(f"{what}{forced}{when}")
    _print_offsets(call, offsets)


def _print_offsets(call: Call, offsets: Mapping[MessageQueue, int]) -> None:
    widths = (40,) * 3
    call.print(columns(("#brokerName", "#queueId", "#offset"), widths) + "\n")
    for queue in set_order(list(offsets), is_copied=True):
        name = call.form.shown(queue.broker_name[:32])
        call.print(columns((name, queue.queue_id, offsets[queue]), widths) + "\n")


def _time_ms(text: str, *, is_5: bool) -> int:
    if text == "now":
        return time.time_ns() // 1_000_000 if is_5 else TO_THE_END
    if text.removeprefix("-").isdecimal() and len(text) < 20:
        return int(text)
    return parse_time(text, "-s", is_end=False)


def _print_table(call: Call, made: Iterable[RollbackStats], last_name: str) -> None:
    names = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset")
    widths = (20,) * 6
    call.print(columns((*names, last_name), widths) + "\n")
    for each in made:
        name, queue_id = call.form.shown(each.broker_name[:32]), each.queue_id
        offsets = (each.broker_offset, each.consumer_offset, each.timestamp_offset)
        cells = (name, queue_id, *offsets, each.rollback_offset)
        call.print(columns(cells, widths) + "\n")


async def skip_accumulated(call: Call) -> None:
    """Reset a group to the end: its online clients, or without any its offsets."""
    given, admin = call.given, call.admin
    group, topic, is_force = given.required("g"), given.required("t"), given.flag("f", default=True)
    try:
        offsets = await admin.reset_offset_by_time(group, topic, TO_THE_END, is_force=is_force)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        made = await admin.reset_offset_by_time_old(group, topic, TO_THE_END, is_force=is_force)
        _print_table(call, made, "#rollbackOffset")
    else:
        _print_offsets(call, offsets)


async def clone_offset(call: Call) -> None:
    """Copy the offsets of a group, in all its topics, to another group.

    :raises BadInput: if the topic's route lacks a broker of these offsets; RocketMQ's tool fails.
    """
    given, cluster, shown = call.given, call.cluster, call.form.shown
    source, target, topic = given.required("s"), given.required("d"), given.required("t")
    stats = await call.admin.examine_consume_stats(source)
    brokers = (await cluster.route(topic)).brokers if stats.offset_table else {}
    for queue, offset in stats.offset_table.items():
        if queue.broker_name not in brokers:
            raise BadInput(f"topic {topic} is not on broker {queue.broker_name}, which has {queue}")
        if offset.consumer_offset >= 0:
            header = UpdateConsumerOffsetRequest(
                consumer_group=target,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offset.consumer_offset,
            )
            address = brokers[queue.broker_name].in_order[0]
            await cluster.ask(address, UPDATE_CONSUMER_OFFSET, header)
    call.print(
        f"clone group offset success. srcGroup[{shown(source)}], destGroup=[{shown(target)}], "
        f"topic[{shown(topic)}]"
    )


async def consumer_config(call: Call) -> None:
    group, shown = call.given.required("g"), call.form.shown
    for broker in (await call.cluster.all_brokers()).values():
        config = await call.cluster.ask_for(
            SubscriptionGroupConfig,
            broker.in_order[0],
            GET_SUBSCRIPTIONGROUP_CONFIG,
            GroupRequest(group=group),
        )
        line = "=" * 29
        call.print(f"{line}{shown(broker.cluster_name or NULL)}:{shown(broker.name)}{line}\n")
        for field, value in config_parts(call.form, config).items():
            call.print(f"{field:<40}=  {'' if value == NULL else value}\n")


async def set_mode(call: Call) -> None:
    """Choose POP or PULL for a group and topic, on one broker or a cluster.

    :raises AnswerIncomplete: if a broker of the cluster fails; the others are changed and printed.
    """
    given, shown = call.given, call.form.shown
    topic, group, mode = given.required("t"), given.required("g"), given.required("m")
    if mode not in {"PULL", "POP"}:
        raise BadInput(f"invalid -m {mode[:20]!r}: expected PULL or POP")
    count = given.number("q", 0, 0, limits.MAX_INT)
    body = {"consumerGroup": group, "mode": mode, "popShareQueueNum": count, "topic": topic}
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    failed = Failed()
    await call.cluster.all_brokers()
    for address in await _addresses(call):
        with nullcontext() if "b" in given else failed.noted():
            await call.cluster.ask(address, SET_MESSAGE_REQUEST_MODE, NoFields(), content)
            call.print(f"set consume mode to {address} success.\n")
    call.print(
        f"topic[{shown(topic)}] group[{shown(group)}] consume mode[{mode}] "
        f"popShareQueueNum[{count}]"
    )
    failed.check()


async def _reset_queue(call: Call, queue_id: int, time_ms: int, texts: tuple[str, str]) -> None:
    """Reset one queue of one broker: the stored offset, and the group's clients."""
    given, cluster = call.given, call.cluster
    group, topic, address = given.required("g"), given.required("t"), given.required("b")
    await cluster.all_brokers()
    call.print(
        f"start reset consumer offset by specified, {texts[0]}queueId[{queue_id}], "
        f"broker[{address}], {texts[1]}"
    )
    offset = given.number("o", -1, 0)
    if "o" not in given:
        offset = await _offset_of_time(call, address, queue_id, time_ms)
    call.print(f"reset consumer offset to {offset}\n")
    update = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    await cluster.ask(address, UPDATE_CONSUMER_OFFSET, update)
    header = ResetOffsetRequest(
        topic=topic, group=group, queue_id=queue_id, offset=offset, timestamp_ms=0, is_force=False
    )
    await cluster.ask(address, INVOKE_BROKER_TO_RESET_OFFSET, header)


async def _offset_of_time(call: Call, address: str, queue_id: int, time_ms: int) -> int:
    topic = call.given.required("t")
    route = await call.cluster.route(topic)
    for broker in route.brokers.values():
        if address in broker.addresses.values():
            queue = MessageQueue(topic, broker.name, queue_id)
            return await call.admin.search_offset(queue, time_ms)
    raise BadInput(f"broker {address} does not have topic {topic}")
