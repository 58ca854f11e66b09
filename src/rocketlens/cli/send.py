"""``rocketlens send``: one message."""

import re
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import Final

from rocketlens import limits
from rocketlens.client.message import Message
from rocketlens.client.producer import Producer
from rocketlens.client.route import MessageQueue
from rocketlens.client.send_result import SendResult, SendStatus
from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.net.event_loop import run as run_loop
from rocketlens.terminal.cluster_access import ClusterAccess, chosen_context, cluster_access
from rocketlens.terminal.output import note

_SENT: Final = 0
_QUEUE: Final = re.compile(r"(?:(?P<broker>.{1,255})/)?(?P<queue_id>\d{1,9})\Z", re.ASCII)


def run(arguments: Namespace) -> int:
    """Send, and print what a real producer would print."""
    if arguments.queue is not None and arguments.sharding_key is not None:
        raise BadInput("--queue and --sharding-key both choose a queue: give one of them")
    message = Message(
        arguments.topic,
        _body(arguments.body),
        tags=arguments.tags,
        keys=arguments.keys or (),
        properties=_properties(arguments.properties),
        delay_level=arguments.delay_level,
    )
    connection = cluster_access(chosen_context(arguments, takes_store=False))
    result = run_loop(_send(arguments, connection, message))
    print(printable(str(result)))
    if result.send_status is not SendStatus.SEND_OK:
        note("the message is stored, but not yet as safely as the broker is told to store it")
    return _SENT


def _body(given: str) -> bytes:
    if given != "-":
        # As it came: an argument need not be text.
        return given.encode("utf-8", "surrogateescape")
    if sys.stdin is None:
        raise BadInput("BODY is -, but there is no standard input to take it from")
    # A byte more than may be sent, so that it is refused and not cut.
    return sys.stdin.buffer.read(limits.MESSAGE_BYTES + 1)


def _properties(given: Iterable[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not (name and separator and value):
            raise BadInput(f"--property {each[:80]!r}: write NAME=VALUE")
        properties[name] = value
    return properties


async def _send(arguments: Namespace, connection: ClusterAccess, message: Message) -> SendResult:
    async with Producer(connection.name_servers, **connection.client_options) as producer:
        queue = None
        if arguments.queue is not None:
            queue = _queue(arguments.queue, await producer.write_queues(message.topic))
        return await producer.send(message, queue=queue, sharding_key=arguments.sharding_key)


def _queue(given: str, queues: tuple[MessageQueue, ...]) -> MessageQueue:
    """Give the queue that ``N`` or ``BROKER/N`` names.

    :raises BadInput: when there is none, or ``N`` is a queue of several brokers.
    """
    wanted = _QUEUE.match(given)
    if wanted is None:
        raise BadInput(f"--queue {given[:80]!r}: write its number, or BROKER/NUMBER")
    number, broker = int(wanted["queue_id"]), wanted["broker"]
    named = [q for q in queues if q.queue_id == number and broker in {None, q.broker_name}]
    if len(named) == 1:
        return named[0]
    if named:
        brokers = ", ".join(q.broker_name for q in named)
        raise BadInput(f"--queue {number}: {brokers} have one each; write BROKER/{number}")
    there = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in queues[:20])
    raise BadInput(f"--queue {given[:80]!r} is none of the topic; it has {there}")
