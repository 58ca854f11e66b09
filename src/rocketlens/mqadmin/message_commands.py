"""Messages: queryMsg commands, queryMsgTraceById, printMsg, consumeMessage, decodeMessageId,
sendMessage, checkMsgSendRT and sendMsgStatus.
"""

import time
from typing import Final

from rocketlens import limits
from rocketlens.client.admin.group_calls import ConsumedDirectly
from rocketlens.client.connect.cluster import failures
from rocketlens.client.connect.route import MessageQueue, Route, set_order
from rocketlens.client.search.view import offset_id_of
from rocketlens.client.send.message import Message, message_again
from rocketlens.client.send.producer import Producer
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError, SendFailed
from rocketlens.formats.trace_body import TraceRecord, TraceType
from rocketlens.formats.trace_body import decode as decode_trace
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import UniqueKey, pack_address
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import LMQ_PREFIX, TRACE_TOPIC
from rocketlens.mqadmin.printing.blocks import key_table, message_block, send_row, track_block
from rocketlens.mqadmin.printing.body_files import bodies_directory, write_body
from rocketlens.mqadmin.printing.form import (
    NULL,
    body_pieces,
    columns,
    flag_text,
    message_pieces,
    rounded,
    seconds_of,
)
from rocketlens.mqadmin.printing.running_info import is_push
from rocketlens.mqadmin.tool import Call, Failed, PulledMessages, incomplete
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.terminal.notes import body_note
from rocketlens.terminal.output import note, parse_time, say, time_text
from rocketlens.wire.commands.messages import QueryMessageRequest

SHOWN_OF_UNIQUE_KEY: Final = 32
DASHES: Final = "-" * 56
_PULLED_AT_ONCE: Final = 32
_NO_BODY: Final = ("NOT PRINT BODY",)
_TRACE_WIDTHS: Final = (10, 20, 20, 20, 10, 10)
Row = tuple[TraceRecord, str]
"""A record, and the address that its client had."""
GROUP: Final = "rocketlens_mqadmin"


async def by_id(call: Call) -> None:
    """Print messages by id; without a topic the ids must be offset message ids.

    With -g and -d they are consumed by a client instead, with ``-s true`` sent again; another -s
    does nothing. The remaining messages are processed if one fails.

    :raises MessageNotFound: if one does not exist; those before it are printed.
    """
    given = call.given
    ids = [each.strip() for each in given.required("i").split(",") if each.strip()]
    if not ids:
        raise BadInput("-i has no id in it")
    topic = given.text("t") or None
    is_push = "g" in given and "d" in given
    if not is_push and "s" in given and not given.flag("s"):
        return
    if not is_push and "s" not in given:
        for msg_id in ids:
            await _print_with_offset_id(call, await _message_of_id(call, topic, msg_id))
        return
    failed: list[tuple[str, RocketLensError]] = []
    for msg_id in ids:
        try:
            if is_push:
                await hand_over(call, topic, msg_id)
            else:
                await resend(call, msg_id, await _message_of_id(call, topic, msg_id))
        except RocketLensError as error:
            failed.append((msg_id, error))
    if len(failed) > 1:
        reasons = "; ".join(f"{msg_id}: {error}" for msg_id, error in failed)
        raise RocketLensError(f"{len(failed)} of {len(ids)} messages failed: {reasons}")
    if failed:
        raise failed[0][1]


async def _message_of_id(call: Call, topic: str | None, msg_id: str) -> MessageExt:
    admin = call.admin
    if topic is None:
        return await admin.view_message(msg_id)
    return await admin.source.view_in_topic(topic, msg_id, _cluster_name(call, topic))


async def by_key(call: Call) -> None:
    """Print a row for each message of a key or tag.

    :raises MessageNotFound: if there are no messages.
    :raises AnswerIncomplete: if a broker fails; the rows of the others are printed.
    """
    given = call.given
    index_type = (given.text("p") or "K").upper()
    if index_type not in {"K", "T"}:
        raise BadInput("-p is K for keys or T for tags")
    max_num = given.number("m", limits.DEFAULT_QUERY_MESSAGES, 1, limits.MAX_INT)
    request = QueryMessageRequest(
        topic=given.required("t"),
        key=given.required("k"),
        index_type=index_type,
        max_num=max_num,
        begin_timestamp_ms=given.number("b", 0, 0),
        end_timestamp_ms=given.number("e", limits.MAX_TIMESTAMP_MS, 0),
        last_key=given.text("l"),
    )
    cluster_name = _cluster_name(call, request.topic)
    rows, failed, may_be_cut = await call.rows_of_key(request, cluster_name)
    if rows:
        call.print(key_table(call.form, rows, request.topic, request.key, index_type))
    if may_be_cut and not rows:
        failed = failed or "brokers returned their maximum of messages, none with this key"
    if failed:
        raise incomplete(failed)
    if not rows:
        raise MessageNotFound(f"no message of topic {request.topic} has the key {request.key}")
    if may_be_cut:
        note(f"{len(rows)} rows, and there may be more: see -m, and `rocketlens find`")


async def by_unique_key(call: Call) -> None:
    """Print the oldest message of an id, or with -a all; also by offset message id.

    With -g and -d it is consumed by a client instead.

    :raises MessageNotFound: if there is no message.
    :raises AnswerIncomplete: if a broker fails; the messages of the others are printed.
    """
    given = call.given
    topic, msg_id = given.required("t"), given.required("i")
    if "g" in given and "d" in given:
        await hand_over(call, topic, msg_id, is_by_key=True)
        return
    cluster_name = _cluster_name(call, topic)
    if ("s" in given) != ("e" in given):
        raise BadInput("give both -s and -e, or neither to search all times")
    begin = given.number("s", 0, 0)
    end = given.number("e", limits.MAX_TIMESTAMP_MS, 0)
    max_num = SHOWN_OF_UNIQUE_KEY if "a" in given else 1
    message_filter = MessageFilter(topic=topic, unique_key=msg_id, begin=begin or None, end=end)
    answer = await call.messages_of_unique_key(message_filter, cluster_name, max_num)
    messages = list(answer.messages)
    if not messages and offset_id_of(msg_id) is not None:
        messages = [await call.admin.view_message(topic, msg_id)]
    for number, message in enumerate(messages):
        _note_body_error(message)
        path = write_body(bodies_directory(), message.msg_id, message.body, number)
        call.print(message_block(call.form, message, str(path), with_offset_id=False))
        await _print_tracks(call, message, with_line_ends=False)
    if not answer.complete:
        raise incomplete(failures(answer.coverage))
    if not messages:
        raise MessageNotFound(f"no message of topic {topic} has the id {msg_id}")


async def by_offset(call: Call) -> None:
    """:raises MessageNotFound: if the queue has no message at the offset."""
    given = call.given
    topic = given.required("t")
    queue_id = given.number("i", 0, 0, 2**31 - 1)
    queue = MessageQueue(topic, given.required("b"), queue_id)
    offset = given.number("o", 0, 0)
    route = await call.cluster.route(given.text("r") or topic)
    pulled = await call.pull(route, queue, offset, 1)
    message = next(pulled.messages(), None)
    if message is None:
        raise MessageNotFound(f"{queue} has no message at offset {offset}")
    await _print_with_offset_id(call, message)


async def print_messages(call: Call) -> None:
    """Print all messages of a topic, queue by queue.

    :raises AnswerIncomplete: if a queue could not be read to its end.
    """
    given = call.given
    topic = given.required("t")
    route, gone = await call.route_and_failures(given.text("l") or topic)
    queues = [queue._replace(topic=topic) for queue in route.read_queues]
    failed = Failed([gone] if gone else [])
    for queue in set_order(queues):
        try:
            offset, stop = await bounds_of_times(call, queue)
            name = call.form.shown(str(queue))
            call.print(f"minOffset={offset}, maxOffset={stop}, {name}\n")
            await _print_range(call, route, queue, (offset, stop))
        except BadInput:
            raise
        except RocketLensError as error:
            failed.append(f"{queue}: {error}")
        call.print(f"{DASHES}\n")
    failed.check()


async def _print_range(
    call: Call,
    route: Route,
    queue: MessageQueue,
    offsets: tuple[int, int],
    *,
    is_consumed: bool = False,
) -> None:
    """Print the messages in a range of a queue, as printMsg or consumeMessage does."""
    given, name = call.given, call.form.shown(str(queue))
    offset, stop = offsets
    tags = "*" if is_consumed else given.text("s") or "*"
    group = given.text("g") if is_consumed else None
    while offset < stop:
        most = min(stop - offset, limits.MAX_INT) if is_consumed else _PULLED_AT_ONCE
        pulled = await call.pull(route, queue, offset, most, tags, group=group)
        is_stuck = pulled.next_offset <= offset
        offset = pulled.next_offset
        if pulled.status == "NO_MATCHED_MSG":
            call.print(f"{name} no matched msg. status={pulled.status}, offset={offset}\n")
        elif pulled.status != "FOUND":
            call.print(f"{name} print msg finished. status={pulled.status}, offset={offset}\n")
            return
        elif is_consumed:
            call.print("Consume ok\n")
            print_pulled(call, queue, pulled)
        else:
            with_body = given.flag("d", default=True)
            print_pulled(call, queue, pulled, given.text("c"), with_body=with_body)
        if is_stuck:
            raise BadInput(f"{queue}: the broker returned the same offset {offset} again")


async def _print_with_offset_id(call: Call, message: MessageExt) -> None:
    charset = call.given.text("f")
    body = None if charset is None else body_pieces(message.body, charset)
    _note_body_error(message)
    path = write_body(bodies_directory(), message.msg_id, message.body)
    call.print(message_block(call.form, message, str(path)))
    if body is not None:
        call.print(f"{'Message Body:':<20} ")
        call.print_shown(body)
        call.print("\n")
    await _print_tracks(call, message, with_line_ends=call.form.is_5)


async def _print_tracks(call: Call, message: MessageExt, *, with_line_ends: bool) -> None:
    try:
        tracks = await call.admin.message_track_detail(message)
    except RocketLensError as error:
        note(f"its consumer groups are unknown: {error}")
        return
    by_group = {track.consumer_group: track for track in tracks}
    in_order = [by_group[group] for group in java_order(dict.fromkeys(by_group, ""), 16)]
    call.print(track_block(call.form, in_order, with_line_ends=with_line_ends))


def _note_body_error(message: MessageExt) -> None:
    if message.body_error is not None:
        say(body_note(message))


def _cluster_name(call: Call, topic: str) -> str | None:
    """Return the cluster whose brokers are asked; None for all brokers of the topic."""
    name = call.given.text("c")
    if name and topic.startswith(LMQ_PREFIX):
        raise BadInput(f"-c cannot be the parent of a light topic ({LMQ_PREFIX}...) here")
    return name or None


async def decode_id(call: Call) -> None:
    """Print address and time of a unique key, without a newline.

    RocketMQ 4.9 and 5.5 contain the class of this command, but no longer register its name.
    """
    call.print(decoded_id(call.given.required("i"), time.time_ns() // 1_000_000))


def decoded_id(msg_id: str, now_ms: int) -> str:
    """:raises BadInput: if the id is not a unique key."""
    key = UniqueKey.decode(msg_id)
    address = key.address
    if ":" in address:
        address = pack_address(address).hex(":", 2)
    made = time_text(key.nearly_time_ms(now_ms, None))
    return f"ip={address}date={made.replace(' ', '#').replace('.', ':')}"


async def trace_by_id(call: Call) -> None:
    """Print the traces of a message's producer and consumers.

    :raises MessageNotFound: if it has no traces.
    :raises AnswerIncomplete: if a broker fails; the traces of the others are printed.
    """
    given = call.given
    msg_id, topic = given.required("i"), given.text("t") or TRACE_TOPIC
    now_ms = time.time_ns() // 1_000_000
    answer = await call.admin.query_message(
        topic,
        msg_id,
        given.number("c", limits.DEFAULT_QUERY_MESSAGES, 1, limits.MAX_INT),
        given.number("b", 0, 0),
        given.number("e", limits.MAX_TIMESTAMP_MS if call.form.is_5 else now_ms, 0),
    )
    rows: list[Row] = []
    damage: list[str] = []
    for message in answer:
        records = decode_trace(message.body, damage)
        rows += [(each, message.born_host.address) for each in records if each.msg_id == msg_id]
    call.print(trace_text(call, rows))
    for each in damage:
        note(f"a trace message has {each}")
    if not answer.complete:
        raise incomplete(failures(answer.coverage))
    if not answer.messages:
        raise MessageNotFound(f"topic {topic} has no trace of {msg_id}")


def trace_text(call: Call, rows: list[Row]) -> str:
    """Return a table for each send, then one for each consumer group."""
    consumed: dict[str, list[Row]] = {}
    parts = []
    for row in rows:
        if row[0].trace_type is TraceType.PUB:
            parts += [_head("#ProducerGroup", "#SendTime"), _row(call, "Pub", row), "\n"]
        elif row[0].trace_type is TraceType.SUB_AFTER:
            consumed.setdefault(row[0].group or "", []).append(row)
    for group in java_order(dict.fromkeys(consumed, ""), 16):
        parts.append(_head("#ConsumerGroup", "#ConsumerTime"))
        parts += [_row(call, "Sub", row) for row in consumed[group]]
        parts.append("\n")
    return "".join(parts)


def _head(group: str, when: str) -> str:
    cells = ("#Type", group, "#ClientHost", when, "#CostTimes", "#Status")
    return columns(cells, _TRACE_WIDTHS, " ") + "\n"


def _row(call: Call, kind: str, row: Row) -> str:
    record, host = row
    shown = call.form.shown
    # Records of old consumers have no time: RocketMQ prints the current time.
    when_ms = time.time_ns() // 1_000_000 if record.timestamp_ms is None else record.timestamp_ms
    status = "success" if record.is_success else "failed"
    group, when = shown(record.group or ""), seconds_of(when_ms)
    cells = (kind, group, host, when, f"{record.cost_ms}ms", status)
    return columns(cells, _TRACE_WIDTHS, " ") + "\n"


def _producer(call: Call) -> Producer:
    connection = call.connection
    return Producer(connection.name_servers, group=GROUP, **connection.client_options)


async def resend(call: Call, msg_id: str, stored: MessageExt) -> None:
    """Send a message again, with all its properties, to its own topic.

    :raises BadInput: if it was sent in a transaction, or its body cannot be decompressed.
    """
    message_again(stored)
    call.print(f"prepare resend msg. originalMsgId={call.form.shown(msg_id)}")
    result = await call.admin.resend(stored)
    call.print(call.form.shown(result.text(with_recall_handle=call.form.is_5)))


async def send_message(call: Call) -> None:
    given = call.given
    if "i" in given and "b" not in given:
        raise BadInput("Broker name must be set if the queue is chosen!")
    if given.flag("m"):
        raise BadInput("-m true (message trace) is not supported yet")
    topic = given.required("t")
    message = Message(
        topic, given.required("p"), tags=given.text("c") or None, keys=given.text("k") or ()
    )
    queue = None
    if "i" in given:
        queue = MessageQueue(topic, given.required("b"), given.number("i", 0, 0, 2**31 - 1))
    async with _producer(call) as producer:
        result = await producer.send(message, queue=queue)
    call.print(send_row("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    stored = result.message_queue
    broker = call.form.shown(stored.broker_name)
    call.print(send_row(broker, str(stored.queue_id), result.send_status.name, result.msg_id))


async def check_send_time(call: Call) -> None:
    """Send -a messages, round robin over all queues, and print the latencies.

    :raises SendFailed: if one was not stored; all rows are printed.
    """
    given = call.given
    topic = given.required("t")
    amount = given.number("a", 100, 1, 2**31 - 1)
    body = b"a" * given.number("s", 128, 0, limits.MAX_MESSAGE_BYTES)
    call.print(send_row("#Broker Name", "#QID", "#Send Result", "#RT"))
    total_ms = 0
    failed: list[tuple[str, RocketLensError]] = []
    async with _producer(call) as producer:
        queues = await producer.write_queues(topic)
        if not queues:
            raise BadInput(f"topic {topic} has no writable queue")
        for number in range(amount):
            queue = queues[number % len(queues)]
            start = time.monotonic_ns()
            is_sent = "true"
            try:
                await producer.send(Message(topic, body), queue=queue)
            except BadInput:
                raise
            except RocketLensError as error:
                is_sent = "false"
                failed.append((queue.broker_name, error))
            took_ms = (time.monotonic_ns() - start) // 1_000_000
            # The first send includes connecting.
            total_ms += took_ms if number else 0
            broker = call.form.shown(queue.broker_name)
            call.print(send_row(broker, str(queue.queue_id), is_sent, str(took_ms)))
    average = total_ms / (amount - 1) if amount > 1 else float("nan")
    call.print(f"Avg RT: {rounded(average, 2)}\n")
    if failed:
        raise SendFailed(f"{len(failed)} of {amount} messages were not stored", failed)


async def send_status(call: Call) -> None:
    """Send messages to the topic that is named as a broker, and print the latencies."""
    given = call.given
    topic, size = given.required("b"), given.number("s", 128, 0, limits.MAX_MESSAGE_BYTES)
    text = b"hello jodie"
    async with _producer(call) as producer:
        await producer.send(Message(topic, text * 2))
        for _ in range(given.number("c", 50, 0, limits.MAX_INT)):
            start = time.monotonic_ns()
            result = await producer.send(Message(topic, text * -(-size // len(text))))
            took_ms = (time.monotonic_ns() - start) // 1_000_000
            sent = result.text(with_recall_handle=call.form.is_5)
            call.print(f"rt={took_ms}ms, SendResult={call.form.shown(sent)}\n")


_DEFAULT_COUNT: Final = 128


async def hand_over(call: Call, topic: str | None, msg_id: str, *, is_by_key: bool = False) -> None:
    """Let the client of -g and -d consume a message, and print the result.

    RocketMQ 5's tool first checks that the client is a push consumer. For a unique key, a client
    that does not answer is treated as none.

    :raises BadInput: if the client is not a push consumer; RocketMQ's text is also printed.
    """
    admin, group = call.admin, call.given.required("g")
    client_id = call.given.required("d")
    shown = f"{call.form.shown(client_id)} client"
    refusal: RocketLensError | None = None
    if call.form.is_5:
        try:
            if not is_push(await admin.get_consumer_running_info(group, client_id)):
                text = f"client {client_id} is not a push consumer: nothing was handed to it"
                refusal = BadInput(text)
        except RocketLensError as error:
            if not is_by_key:
                raise
            call.print(f"get consumer runtime info for {shown} failed \n")
            refusal = error
    if refusal is not None:
        call.print(
            f"get consumer info failed or this {shown} is not push consumer, not support direct "
            "push \n"
            if is_by_key
            else f"this {shown} is not push consumer ,not support direct push \n"
        )
        raise refusal
    if topic is None:
        topic = (await admin.view_message(msg_id)).topic
    result = await admin.consume_message_directly(group, client_id, topic, msg_id)
    call.print(call.form.shown(result_text(result)))


def result_text(result: ConsumedDirectly) -> str:
    """Return the text of ``ConsumeMessageDirectlyResult.toString``."""
    consumed = result.consume_result.name if result.consume_result else NULL
    return (
        f"ConsumeMessageDirectlyResult [order={flag_text(result.order)}, "
        f"autoCommit={flag_text(result.auto_commit)}, consumeResult={consumed}, "
        f"remark={NULL if result.remark is None else result.remark}, "
        f"spentTimeMills={result.spent_time_ms}]"
    )


async def consume_message(call: Call) -> None:
    """Print up to -c messages of a topic or queue, from an offset on."""
    given = call.given
    topic, count = given.required("t"), given.number("c", _DEFAULT_COUNT, 1)
    if "i" in given and "b" not in given:
        raise BadInput("Please set the brokerName before queueId!")
    if "o" in given and "i" not in given:
        raise BadInput("Please set queueId before offset!")
    begin_ms, end_ms = _time_range(call)
    route = await call.cluster.route(topic)
    if "i" in given:
        queue_id = given.number("i", 0, 0, limits.MAX_INT)
        queue = MessageQueue(topic, given.required("b"), queue_id)
        offset = given.number("o", 0, 0)
        first, last = await _queue_bounds(call, queue, begin_ms or None, end_ms or None)
        if offset > last:
            call.print(f"{call.form.shown(str(queue))} no matched msg, offset={offset}\n")
            return
        first = max(first, offset)
        if last - first > count:
            call.print(f"The oldler {count} message will be provided\n")
            last = first + count - 1
        await _print_range(call, route, queue, (first, last + 1), is_consumed=True)
        return
    remaining = count
    for queue in set_order(list(route.read_queues)):
        if remaining == 0:
            return
        first, last = await _queue_bounds(call, queue, begin_ms or None, end_ms or None)
        if last - first > remaining:
            number = queue.queue_id
            call.print(f"The older {remaining} message of the {number} queue will be provided\n")
            last = first + remaining - 1
            remaining = 0
        else:
            # RocketMQ counts one for an empty queue, and continues below 0.
            remaining -= last - first + 1
        await _print_range(call, route, queue, (first, last + 1), is_consumed=True)


def _time_range(call: Call) -> tuple[int, int]:
    given = call.given
    now_ms = time.time_ns() // 1_000_000
    begin_ms = end_ms = 0
    if "s" in given:
        begin_ms = parse_time(given.required("s"), "-s", is_end=False)
        if begin_ms > now_ms:
            raise BadInput("Please set the beginTimestamp before now!")
    if "e" in given:
        end_ms = parse_time(given.required("e"), "-e", is_end=True)
        if end_ms > now_ms:
            raise BadInput("Please set the endTimestamp before now!")
        if begin_ms > end_ms:
            raise BadInput(
                "Please make sure that the beginTimestamp is less than or equal to the endTimestamp"
            )
    return begin_ms, end_ms


async def _queue_bounds(
    call: Call, queue: MessageQueue, begin_ms: int | None, end_ms: int | None
) -> tuple[int, int]:
    """Return the offsets of two times in a queue; None means its begin and end."""
    admin = call.admin
    first, last = await admin.min_offset(queue), await admin.max_offset(queue)
    if begin_ms is not None:
        first = await admin.search_offset(queue, begin_ms)
    if end_ms is not None:
        last = await admin.search_offset(queue, end_ms)
    return first, last


async def bounds_of_times(call: Call, queue: MessageQueue) -> tuple[int, int]:
    begin, end = call.given.text("b"), call.given.text("e")
    begin_ms = None if begin is None else parse_time(begin, "-b", is_end=False)
    end_ms = None if end is None else parse_time(end, "-e", is_end=True)
    return await _queue_bounds(call, queue, begin_ms, end_ms)


def print_pulled(
    call: Call,
    queue: MessageQueue,
    pulled: PulledMessages,
    charset: str | None = None,
    *,
    with_body: bool = True,
) -> None:
    for message in pulled.messages():
        _note_body_error(message)
        call.print(f"MSGID: {call.form.shown(message.msg_id)} ")
        for piece in message_pieces(call.form, queue.broker_name, message):
            call.print(piece)
        call.print(" BODY: ")
        call.print_shown(body_pieces(message.body, charset) if with_body else _NO_BODY)
        call.print("\n")
