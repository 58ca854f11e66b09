"""Queues: printMsgByQueue, queryCq and dumpCompactionLog."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import BadInput, RecordError, TopicNotFound
from rocketlens.formats.commitlog_record import Reason, Record, decode, message_of
from rocketlens.model.properties import java_order
from rocketlens.model.text.json_dialect import quote
from rocketlens.mqadmin.message_commands import bounds_of_times, print_pulled
from rocketlens.mqadmin.printing.blocks import json_array, json_object
from rocketlens.mqadmin.printing.form import NULL, flag_text, message_pieces, padded
from rocketlens.mqadmin.tool import Call
from rocketlens.wire.bodies.clients import ConsumeQueueAnswer, ConsumeQueueData, SubscriptionData
from rocketlens.wire.commands.groups import QUERY_CONSUME_QUEUE, QueryConsumeQueueRequest

_PULLED_AT_ONCE: Final = 32
_LINE: Final = "=" * 38


async def print_by_queue(call: Call) -> None:
    """Read a queue; print its messages with -p, and the count of each tag with -f."""
    given = call.given
    topic, broker_name = given.required("t"), given.required("a")
    queue = MessageQueue(topic, broker_name, given.number("i", 0, 0, limits.MAX_INT))
    route, gone = await call.route_and_failures(topic)
    if broker_name not in route.brokers:
        raise TopicNotFound(f"topic {topic}: not on broker {broker_name}{gone and f' ({gone})'}")
    offset, stop = await bounds_of_times(call, queue)
    tags: Counter[str] = Counter()
    while offset < stop:
        pulled = await call.pull(route, queue, offset, _PULLED_AT_ONCE, given.text("s") or "*")
        if pulled.status != "FOUND":
            break
        if pulled.next_offset <= offset:
            raise BadInput(f"{queue}: the broker returned the same offset {offset} again")
        offset = pulled.next_offset
        if given.flag("f"):
            tags.update(each.tags for each in pulled.messages() if each.tags and each.tags.strip())
        if given.flag("p"):
            print_pulled(call, queue, pulled, given.text("c"), with_body=given.flag("d"))
    in_java_order = java_order(dict.fromkeys(tags, ""), 16)
    for tag in sorted(in_java_order, key=lambda tag: -tags[tag]):
        call.print(f"Tag: {padded(call.form.shown(tag), 30)} Count: {tags[tag]}\n")


async def entries(call: Call) -> None:
    """Print entries of a queue; without -b of the topic's first broker."""
    given, shown = call.given, call.form.shown
    topic, index = given.required("t"), given.number("i", 0, 0)
    address = given.text("b")
    if address is None:
        brokers = list((await call.cluster.route(topic)).brokers.values())
        address = brokers[0].master if brokers else None
        if address is None:
            raise TopicNotFound(f"topic {topic}: its first broker has no master: give -b")
    else:
        await call.cluster.all_brokers()
    header = QueryConsumeQueueRequest(
        topic=topic,
        queue_id=given.number("q", 0, 0, limits.MAX_INT),
        index=index,
        count=given.number("c", 10, 0, limits.MAX_INT),
        consumer_group=given.text("g"),
    )
    answer = await call.cluster.ask_for(ConsumeQueueAnswer, address, QUERY_CONSUME_QUEUE, header)
    if answer.subscription is not None:
        text = subscription_json(answer.subscription)
        call.print(f"Subscription data: \n{shown(text)}\n{_LINE}\n")
    if answer.filter_data is not None:
        call.print(f"Filter data: \n{shown(answer.filter_data)}\n{_LINE}\n")
    call.print(f"Queue data: \nmax: {answer.max_offset}, min: {answer.min_offset}\n{_LINE}\n")
    for number, entry in enumerate(answer.entries or (), index):
        call.print(f"idx: {number}\n{shown(entry_text(entry))}\n{_LINE}\n")


def subscription_json(subscription: SubscriptionData) -> str:
    members = {
        "classFilterMode": flag_text(subscription.class_filter_mode),
        "codeSet": json_array(list(map(str, subscription.codes)), 1),
        "expressionType": quote(subscription.expression_type or ""),
        "subString": quote(subscription.sub_string or ""),
        "subVersion": str(subscription.sub_version),
        "tagsSet": json_array(list(map(quote, subscription.tags)), 1),
        "topic": quote(subscription.topic),
    }
    return json_object(members, 0)


def entry_text(entry: ConsumeQueueData) -> str:
    quoted = {
        name: f"{name}='{NULL if value is None else value}'"
        for name, value in (
            ("extendDataJson", entry.extend_data_json),
            ("bitMap", entry.bit_map),
            ("msg", entry.message),
        )
    }
    return (
        f"ConsumeQueueData{{physicOffset={entry.physical_offset}, physicSize={entry.store_size}, "
        f"tagsCode={entry.tags_code}, {quoted['extendDataJson']}, {quoted['bitMap']}, "
        f"eval={flag_text(entry.is_passing)}, {quoted['msg']}}}"
    )


async def dump_compaction_log(call: Call) -> None:
    for record in _records_of(call.given.text("f")):
        # RocketMQ leaves bodies out.
        message = message_of(replace(record, body=b""))
        call.print_shown(message_pieces(call.form, NULL, message))
        call.print("\n")


def _records_of(name: str | None) -> Iterator[Record]:
    if name is None:
        raise BadInput("miss dump log file name: give -f FILE")
    path, position = Path(name), 0
    if path.is_dir():
        raise BadInput(f"file {name} is a directory.")
    if not path.exists():
        raise BadInput(f"file {name} not exist.")
    content = path.read_bytes()
    while True:
        try:
            record = decode(content, position)
        except RecordError as error:
            if error.reason in {Reason.END, Reason.BLANK}:
                return
            raise BadInput(f"{name}: no message begins at byte {position}: {error}") from error
        yield record
        position += record.total_size
