"""Messages handed to consumers (queryMsgById, queryMsgByUniqueKey -g -d), and consumeMessage."""

import time
from typing import Final

from rocketlens import limits
from rocketlens.client.admin.consume_directly import ConsumedDirectly
from rocketlens.client.connect.route import MessageQueue, Route, set_order
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.mqadmin.printing.form import NULL, body_pieces, flag_text, message_pieces
from rocketlens.mqadmin.printing.running_info import is_push
from rocketlens.mqadmin.tool import Call, PulledMessages
from rocketlens.terminal.notes import body_note
from rocketlens.terminal.output import say
from rocketlens.terminal.times import parse_time

_DEFAULT_COUNT: Final = 128


async def hand_over_by_id(call: Call, topic: str | None, msg_id: str) -> None:
    """Let the client of -g and -d consume a message, and print what it made of it.

    The tool of RocketMQ 5 asks the client first whether it is a push consumer.

    :raises BadInput: if it is not; said in RocketMQ's words, too.
    """
    client_id = call.given.required("d")
    if call.form.is_5:
        info = await call.tool.admin.get_consumer_running_info(call.given.required("g"), client_id)
        if not is_push(info):
            shown = call.form.shown(client_id)
            call.print(f"this {shown} client is not push consumer ,not support direct push \n")
            raise _not_push(client_id)
    await _hand_over(call, topic, msg_id)


async def hand_over_by_unique_key(call: Call, topic: str, msg_id: str) -> None:
    """Do as `hand_over_by_id`; of a client that does not say what it is the words are the same."""
    client_id = call.given.required("d")
    if call.form.is_5:
        refused = await _refusal(call, client_id)
        if refused is not None:
            call.print(
                f"get consumer info failed or this {call.form.shown(client_id)} client is not push "
                "consumer, not support direct push \n"
            )
            raise refused
    await _hand_over(call, topic, msg_id)


async def _refusal(call: Call, client_id: str) -> RocketLensError | None:
    """Return why a client cannot be handed a message, None if it can."""
    try:
        info = await call.tool.admin.get_consumer_running_info(call.given.required("g"), client_id)
    except RocketLensError as error:
        shown = call.form.shown(client_id)
        call.print(f"get consumer runtime info for {shown} client failed \n")
        return error
    return None if is_push(info) else _not_push(client_id)


def _not_push(client_id: str) -> BadInput:
    return BadInput(f"client {client_id} is not a push consumer: nothing was handed to it")


async def _hand_over(call: Call, topic: str | None, msg_id: str) -> None:
    admin, given = call.tool.admin, call.given
    if topic is None:
        topic = (await admin.view_message(msg_id)).topic
    result = await admin.consume_message_directly(
        given.required("g"), given.required("d"), topic, msg_id
    )
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
    """Print the messages of a topic, a queue, or from an offset on: at most -c of them."""
    given = call.given
    topic, count = given.required("t"), given.number("c", _DEFAULT_COUNT, 1)
    if "i" in given and "b" not in given:
        raise BadInput("Please set the brokerName before queueId!")
    if "o" in given and "i" not in given:
        raise BadInput("Please set queueId before offset!")
    begin_ms, end_ms = _time_range(call)
    route = await call.tool.cluster.route(topic)
    if "i" in given:
        queue_id = given.number("i", 0, 0, limits.MAX_INT)
        queue = MessageQueue(topic, given.required("b"), queue_id)
        offset = given.number("o", 0, 0)
        first, last = await _bounds(call, queue, begin_ms, end_ms)
        if offset > last:
            call.print(f"{call.form.shown(str(queue))} no matched msg, offset={offset}\n")
            return
        first = max(first, offset)
        if last - first > count:
            call.print(f"The oldler {count} message will be provided\n")
            last = first + count - 1
        await _print_queue(call, route, queue, first, last)
        return
    remaining = count
    for queue in set_order(list(route.read_queues)):
        if remaining == 0:
            return
        first, last = await _bounds(call, queue, begin_ms, end_ms)
        if last - first > remaining:
            number = queue.queue_id
            call.print(f"The older {remaining} message of the {number} queue will be provided\n")
            last = first + remaining - 1
            remaining = 0
        else:
            # As the real tool counts: an empty queue costs one, and beyond 0 it goes on.
            remaining -= last - first + 1
        await _print_queue(call, route, queue, first, last)


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


async def _bounds(call: Call, queue: MessageQueue, begin_ms: int, end_ms: int) -> tuple[int, int]:
    admin = call.tool.admin
    first, last = await admin.min_offset(queue), await admin.max_offset(queue)
    if begin_ms > 0:
        first = await admin.search_offset(queue, begin_ms)
    if end_ms > 0:
        last = await admin.search_offset(queue, end_ms)
    return first, last


async def _print_queue(
    call: Call, route: Route, queue: MessageQueue, offset: int, last: int
) -> None:
    name = call.form.shown(str(queue))
    group = call.given.text("g")
    while offset <= last:
        max_num = min(last - offset + 1, limits.MAX_INT)
        pulled = await call.tool.pull(route, queue, offset, max_num, group=group)
        is_stuck = pulled.next_offset <= offset
        offset = pulled.next_offset
        if pulled.status == "FOUND":
            call.print("Consume ok\n")
            print_messages_of(call, queue, pulled)
        elif pulled.status == "NO_MATCHED_MSG":
            call.print(f"{name} no matched msg. status={pulled.status}, offset={offset}\n")
        else:
            call.print(f"{name} print msg finished. status={pulled.status}, offset={offset}\n")
            return
        if is_stuck:
            raise BadInput(f"{queue}: the broker goes on at {offset}, where it was")


def print_messages_of(
    call: Call, queue: MessageQueue, pulled: PulledMessages, charset: str | None = None
) -> None:
    """Print each message of an answer as a line, with its body."""
    for message in pulled.messages():
        if message.body_error is not None:
            say(body_note(message))
        call.print(f"MSGID: {call.form.shown(message.msg_id)} ")
        for piece in message_pieces(call.form, queue.broker_name, message):
            call.print(piece)
        call.print(" BODY: ")
        call.print_shown(body_pieces(message.body, charset))
        call.print("\n")
