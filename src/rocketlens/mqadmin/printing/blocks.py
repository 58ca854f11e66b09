"""Messages, topics and routes as RocketMQ's tool prints them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rocketlens.client.admin.track import MessageTrack
from rocketlens.model.message import MessageExt
from rocketlens.model.text.json_dialect import quote
from rocketlens.mqadmin.printing.form import NULL, Form, columns, host_of, padded, time_of
from rocketlens.wire.bodies.tables import MessageQueue, TopicOffset, TopicRouteData

NO_CONSUMER: Final = "\n\nWARN: No Consumer"
_HOUR_MS: Final = 3_600_000
_ROUTE_COLUMNS: Final = (45, 32, 50, 10, 11, 5)
_STATUS_COLUMNS: Final = (32, 4, 20, 22, 0)


class KeyRow(NamedTuple):
    """The columns of queryMsgByKey."""

    msg_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


def track_text(form: Form, track: MessageTrack) -> str:
    """Return the text of RocketMQ's ``MessageTrack``."""
    if not form.is_5:
        track = track.as_4_9()
    exception = NULL if track.exception_desc is None else form.shown(track.exception_desc)
    return (
        f"MessageTrack [consumerGroup={form.shown(track.consumer_group)}, "
        f"trackType={track.track_type.name}, exceptionDesc={exception}]"
    )


def message_block(
    form: Form, message: MessageExt, body_path: str, *, with_offset_id: bool = True
) -> str:
    """Return a message without its body, one line per field."""
    rows: list[tuple[str, str | int]] = [
        ("Topic:", form.shown(message.topic)),
        ("Tags:", f"[{form.shown(message.properties.get('TAGS', NULL))}]"),
        ("Keys:", f"[{form.shown(message.properties.get('KEYS', NULL))}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.physical_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", time_of(message.born_timestamp_ms)),
        ("Store Timestamp:", time_of(message.store_timestamp_ms)),
        ("Born Host:", host_of(message.born_host)),
        ("Store Host:", host_of(message.store_host)),
        ("System Flag:", form.sys_flag(message)),
        ("Properties:", form.properties(message)),
        ("Message Body Path:", body_path),
    ]
    if with_offset_id:
        rows.insert(0, ("OffsetID:", message.offset_msg_id))
    return "".join(f"{label:<20} {value}\n" for label, value in rows)


def track_block(form: Form, tracks: Sequence[MessageTrack], *, with_line_ends: bool) -> str:
    """Return the consumer groups below a message.

    `with_line_ends`: each on its own line, as queryMsgById does since RocketMQ 5.
    """
    if not tracks:
        return NO_CONSUMER
    end = "\n" if with_line_ends else ""
    return "\n\n" + "".join(track_text(form, track) + end for track in tracks)


def key_table(
    form: Form, messages: Iterable[KeyRow | MessageExt], topic: str, key: str, index_type: str
) -> str:
    """Return the rows of queryMsgByKey; the last column (for -l) only since RocketMQ 5.5."""
    head = f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}"
    lines = [f"{head} {'#IndexKey':<200}" if form.is_5 else head]
    for message in messages:
        row = (
            f"{padded(form.shown(message.msg_id), 50)} {message.queue_id:>4} "
            f"{message.queue_offset:>40}"
        )
        if form.is_5:
            hour = message.store_timestamp_ms // _HOUR_MS * _HOUR_MS
            index_key = (
                f"{hour}@{topic}@{index_type}@{key}@{message.msg_id}@{message.physical_offset}"
            )
            row = f"{row} {padded(form.shown(index_key), 200)}"
        lines.append(row)
    return "\n".join([*lines, ""])


def status_table(form: Form, offsets: Mapping[MessageQueue, TopicOffset]) -> str:
    names = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    lines = [columns(names, _STATUS_COLUMNS)]
    in_order = sorted(offsets, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    for queue in in_order:
        offset = offsets[queue]
        updated_ms = offset.last_update_timestamp_ms
        updated = time_of(updated_ms) if updated_ms > 0 else ""
        name = form.shown(queue.broker_name[:32])
        cells = (name, queue.queue_id, offset.min_offset, offset.max_offset, updated)
        lines.append(columns(cells, _STATUS_COLUMNS))
    if form.is_5:
        # RocketMQ merges the offsets of all brokers, but not this value.
        lines += ["", "Topic Put TPS: 0.0"]
    return "\n".join([*lines, ""])


def route_json(form: Form, route: TopicRouteData) -> str:
    """Return a route as the release's JSON library indents it."""
    brokers = []
    for broker in route.broker_datas:
        fields = {
            "brokerAddrs": _addresses(form, broker.broker_addrs),
            "brokerName": form.shown(quote(broker.broker_name)),
        }
        if broker.cluster is not None:
            fields["cluster"] = form.shown(quote(broker.cluster))
        if form.is_5:
            fields["enableActingMaster"] = "true" if broker.enable_acting_master else "false"
            if broker.zone_name is not None:
                fields["zoneName"] = form.shown(quote(broker.zone_name))
        brokers.append(json_object(fields, 2))
    queues = [
        json_object(
            {
                "brokerName": form.shown(quote(queue.broker_name)),
                "perm": str(queue.perm),
                "readQueueNums": str(queue.read_queue_nums),
                "topicSysFlag": str(queue.topic_sys_flag),
                "writeQueueNums": str(queue.write_queue_nums),
            },
            2,
        )
        for queue in route.queue_datas
    ]
    servers = {
        address: json_array([form.shown(quote(each)) for each in names], 2)
        for address, names in route.filter_server_table.items()
    }
    members = {"brokerDatas": json_array(brokers, 1), "filterServerTable": json_object(servers, 1)}
    if route.order_topic_conf is not None:
        members["orderTopicConf"] = form.shown(quote(route.order_topic_conf))
    members["queueDatas"] = json_array(queues, 1)
    return json_object(members, 0) + "\n"


def _addresses(form: Form, addresses: Mapping[int, str]) -> str:
    """Return broker ids and addresses; RocketMQ 4's library writes no newline before a number."""
    pairs = [f"{number}:{form.shown(quote(addresses[number]))}" for number in sorted(addresses)]
    if not pairs:
        return "{}"
    if form.is_5:
        return _block("{", pairs, "}", 3)
    return "{" + ",".join(pairs) + "\n\t\t\t}"


def json_object(members: Mapping[str, str], depth: int) -> str:
    """Return an object as RocketMQ's JSON library indents it, `depth` tabs deep."""
    return _block("{", [f'"{name}":{value}' for name, value in members.items()], "}", depth)


def json_array(items: Sequence[str], depth: int) -> str:
    return _block("[", items, "]", depth)


def _block(opening: str, items: Sequence[str], closing: str, depth: int) -> str:
    if not items:
        return opening + closing
    tabs = "\t" * depth
    inner = ",".join(f"\n{tabs}\t{item}" for item in items)
    return f"{opening}{inner}\n{tabs}{closing}"


def route_table(form: Form, route: TopicRouteData) -> str:
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    names = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    lines = [columns(names, _ROUTE_COLUMNS, " ")]
    readable = writable = 0
    for broker in sorted(route.broker_datas, key=lambda each: each.broker_name):
        queue = queues.get(broker.broker_name)
        if queue is None:
            continue
        readable += queue.read_queue_nums
        writable += queue.write_queue_nums
        addresses = ", ".join(f"{n}={broker.broker_addrs[n]}" for n in sorted(broker.broker_addrs))
        row = map(form.shown, (broker.cluster or NULL, broker.broker_name, f"{{{addresses}}}"))
        numbers = (queue.read_queue_nums, queue.write_queue_nums, queue.perm)
        lines.append(columns((*row, *numbers), _ROUTE_COLUMNS, " "))
    lines.append("-" * 158)
    total = ("Total:", len(queues), "", readable, writable, "")
    lines.append(columns(total, _ROUTE_COLUMNS, " "))
    return "\n".join([*lines, ""])


def send_row(broker: str, queue: str, result: str, last: str) -> str:
    return f"{padded(broker, 32)}  {queue:<4}  {result:<20}    {last}\n"
