"""sendMessage, checkMsgSendRT, and queryMsgById -s."""

import time
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.resend.message_copy import message_again
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.errors import BadInput, RocketLensError, SendFailed
from rocketlens.model.message import MessageExt
from rocketlens.mqadmin.printing.blocks import send_row
from rocketlens.mqadmin.printing.form import rounded
from rocketlens.mqadmin.tool import Call

GROUP: Final = "rocketlens_mqadmin"


def _producer(call: Call) -> Producer:
    connection = call.connection
    return Producer(connection.name_servers, group=GROUP, **connection.client_options)


async def resend(call: Call, msg_id: str, stored: MessageExt) -> None:
    """Send a message again, with all its properties, to its own topic.

    :raises BadInput: when it was sent in a transaction, which would never be ended, or its body
        cannot be decompressed.
    """
    message_again(stored)
    call.print(f"prepare resend msg. originalMsgId={call.form.shown(msg_id)}")
    result = await call.tool.admin.resend(stored)
    call.print(call.form.shown(result.text(with_recall_handle=call.form.is_5)))


async def send_message(call: Call) -> None:
    """Send one message."""
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
    """Send ``-a`` messages, round robin over all queues, and print how long each took.

    :raises SendFailed: when one was not stored; all rows are printed nevertheless.
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
            # The first one includes connecting.
            total_ms += took_ms if number else 0
            broker = call.form.shown(queue.broker_name)
            call.print(send_row(broker, str(queue.queue_id), is_sent, str(took_ms)))
    average = total_ms / (amount - 1) if amount > 1 else float("nan")
    call.print(f"Avg RT: {rounded(average, 2)}\n")
    if failed:
        raise SendFailed(f"{len(failed)} of {amount} messages were not stored", failed)
