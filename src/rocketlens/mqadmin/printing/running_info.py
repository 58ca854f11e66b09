"""The report of a consumer as consumerStatus prints and checks it.

Source: ``ConsumerRunningInfo``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens.model.text.java import concurrent_map_order
from rocketlens.mqadmin.printing.form import NULL, Form, compact_time_of, flag_text, padded, rounded
from rocketlens.wire.bodies.clients import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketlens.wire.bodies.tables import MessageQueue

CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"
CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
_STARTED_MS: Final = 120_000
"""A consumer that started within this time may not have all subscriptions yet."""
_BLOCKED_MS: Final = 60_000
_STATUS_HEAD: Final = (
    f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} "
    f"{'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}\n"
)


def queue_order(queue: MessageQueue) -> tuple[str, str, int]:
    """Return the sort key of Java's ``MessageQueue``."""
    return queue.topic, queue.broker_name, queue.queue_id


def is_push(running: ConsumerRunningInfo) -> bool:
    """Return True for a push consumer, which can be handed messages."""
    return running.properties.get(CONSUME_TYPE) == ConsumeType.CONSUME_PASSIVELY.name


def running_info_text(form: Form, running: ConsumerRunningInfo) -> str:
    shown = form.shown
    names = concurrent_map_order(running.properties)
    parts = ["#Consumer Properties#\n"]
    parts += [f"{padded(shown(name), 40)}: {shown(running.properties[name])}\n" for name in names]
    parts.append("\n\n#Consumer Subscription#\n")
    parts += [
        f"{number:03d} Topic: {padded(shown(each.topic), 40)} "
        f"ClassFilter: {flag_text(each.class_filter_mode):<8} "
        f"SubExpression: {shown(NULL if each.sub_string is None else each.sub_string)}\n"
        for number, each in enumerate(sorted(running.subscriptions, key=_subscription_order), 1)
    ]
    queues = sorted(running.queue_table, key=queue_order)
    parts.append("\n\n#Consumer Offset#\n" + _row(64, "#Consumer Offset", 20))
    parts += [
        _queue_row(form, 32, queue, f"{running.queue_table[queue].commit_offset:<20}")
        for queue in queues
    ]
    parts.append("\n\n#Consumer MQ Detail#\n" + _row(64, "#ProcessQueueInfo", 20))
    parts += [
        _queue_row(form, 64, queue, process_queue_text(running.queue_table[queue]))
        for queue in queues
    ]
    if form.is_5:
        parts.append("\n\n#Consumer Pop Detail#\n" + _row(32, "#ProcessQueueInfo", 20))
        parts += [
            _queue_row(form, 32, queue, _pop_text(running.pop_table[queue]))
            for queue in sorted(running.pop_table, key=queue_order)
        ]
    parts.append(f"\n\n#Consumer RT&TPS#\n{_STATUS_HEAD}")
    parts += [
        _status_row(form, name, running.status_table[name]) for name in sorted(running.status_table)
    ]
    if form.is_5 and running.user_consumer_info is not None:
        parts.append("\n\n#User Consume Info#\n")
        parts += [
            f"{padded(shown(name), 40)}: {shown(running.user_consumer_info[name])}\n"
            for name in sorted(running.user_consumer_info)
        ]
    if running.jstack is not None:
        parts.append(f"\n\n#Consumer jstack#\n{running.jstack}")
    return "".join(parts)


def _subscription_order(subscription: SubscriptionData) -> str:
    return f"{subscription.topic}@{subscription.sub_string}"


def _row(width: int, last: str, last_width: int) -> str:
    return f"{'#Topic':<{width}}  {'#Broker Name':<32}  {'#QID':<4}  {last:<{last_width}}\n"


def _queue_row(form: Form, width: int, queue: MessageQueue, last: str) -> str:
    topic, broker = form.shown(queue.topic), form.shown(queue.broker_name)
    return f"{padded(topic, width)}  {padded(broker, 32)}  {queue.queue_id:<4}  {last}\n"


def process_queue_text(queue: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={queue.commit_offset}, "
        f"cachedMsgMinOffset={queue.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={queue.cached_msg_max_offset}, "
        f"cachedMsgCount={queue.cached_msg_count}, "
        f"cachedMsgSizeInMiB={queue.cached_msg_size_mib}, "
        f"transactionMsgMinOffset={queue.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={queue.transaction_msg_max_offset}, "
        f"transactionMsgCount={queue.transaction_msg_count}, locked={flag_text(queue.locked)}, "
        f"tryUnlockTimes={queue.try_unlock_times}, "
        f"lastLockTimestamp={compact_time_of(queue.last_lock_timestamp_ms)}, "
        f"droped={flag_text(queue.dropped)}, "
        f"lastPullTimestamp={compact_time_of(queue.last_pull_timestamp_ms)}, "
        f"lastConsumeTimestamp={compact_time_of(queue.last_consume_timestamp_ms)}]"
    )


def _pop_text(queue: PopProcessQueueInfo) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{queue.wait_ack_count}, "
        f"droped:{flag_text(queue.dropped)}, lastPopTimestamp:{queue.last_pop_timestamp_ms}]"
    )


def _status_row(form: Form, topic: str, status: ConsumeStatus) -> str:
    return (
        f"{padded(form.shown(topic), 32)}  {rounded(status.pull_rt, 2):>14} "
        f"{rounded(status.pull_tps, 2):>14} {rounded(status.consume_rt, 2):>14} "
        f"{rounded(status.consume_ok_tps, 2):>14} {rounded(status.consume_failed_tps, 2):>18} "
        f"{status.consume_failed_msgs:>25}\n"
    )


def is_subscribed_alike(form: Form, infos: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Return True unless the clients of a group have different subscriptions.

    As in RocketMQ, only push consumers are checked, and only if the first, by client id, has run
    for two minutes. RocketMQ 4.9 also rejects a last client without subscriptions.
    """
    in_order = [infos[client_id] for client_id in sorted(infos)]
    first = in_order[0]
    started = first.properties.get(START_TIMESTAMP, "")
    if not is_push(first) or not started.isdecimal() or now_ms - int(started) <= _STARTED_MS:
        return True
    subscribed = [set(map(_subscription_order, running.subscriptions)) for running in in_order]
    if any(each != subscribed[0] for each in subscribed):
        return False
    return form.is_5 or bool(subscribed[-1])


def stuck_queues_text(form: Form, client_id: str, running: ConsumerRunningInfo, now_ms: int) -> str:
    """Return a line for each queue of a push consumer that seems to be stuck."""
    if not is_push(running):
        return ""
    is_orderly = running.properties.get(CONSUME_ORDERLY, "").lower() == "true"
    lines = []
    for key in sorted(running.queue_table, key=queue_order):
        queue = running.queue_table[key]
        name = (
            f"{form.shown(client_id)} MessageQueue [topic={form.shown(key.topic)}, "
            f"brokerName={form.shown(key.broker_name)}, queueId={key.queue_id}]"
        )
        since_ms = now_ms - queue.last_consume_timestamp_ms
        if is_orderly and not queue.locked:
            unlocked_ms = now_ms - queue.last_lock_timestamp_ms
            lines.append(f"{name} can't lock for a while, {unlocked_ms}ms\n")
        elif is_orderly and queue.dropped and queue.try_unlock_times > 0:
            lines.append(f"{name} unlock {queue.try_unlock_times} times, still failed\n")
        elif not is_orderly and since_ms > _BLOCKED_MS and queue.cached_msg_count > 0:
            lines.append(f"{name} can't consume for a while, maybe blocked, {since_ms}ms\n")
    return "".join(lines)
