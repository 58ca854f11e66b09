"""``rocketlens send``: sends one message, or one for each line of a file."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.cli.options import add_cluster, add_text_output, option, positive_number
from rocketlens.errors import BadInput
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    choose_context,
    writable_cluster_access,
)
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.output import ExitCode, note, parse_time

if TYPE_CHECKING:
    from rocketlens.client.connect.route import MessageQueue
    from rocketlens.client.send.message import Message
    from rocketlens.client.send.send_result import SendResult

_QUEUE: Final = re.compile(r"(?:(?P<broker>.{1,255})/)?(?P<queue_id>\d{1,9})\Z", re.ASCII)
EXAMPLES: Final = """
# one message with a key
rocketlens send order-paid '{"order": 42}' --keys ORDER-42 -n 127.0.0.1:9876
rocketlens send order-paid - --tags paid < body.json  # body from standard input
rocketlens send order-paid again --delay-level 3  # delivered ten seconds later
rocketlens send order-paid --jsonl paid.jsonl  # a message per line, as find prints them
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 a broker has stored it, 2 wrong usage or an error."
    parser.add_argument("topic", metavar="TOPIC", help="the topic, created if brokers allow it")
    parser.add_argument(
        "body", metavar="BODY", nargs="?", help="the text to send; - reads it from stdin"
    )
    lines = parser.add_mutually_exclusive_group()
    option(
        lines,
        "--lines FILE",
        "send a message for each line of a file, with the line as body; - is stdin",
    )
    option(
        lines,
        "--jsonl FILE",
        "send a message for each line, a JSON object with body, body_encoding (text, json or "
        "base64), tags, keys, properties, delay_level, flag, as `rocketlens find -o jsonl` prints",
    )
    add_cluster(parser, "$NAMESRV_ADDR")
    add = partial(option, parser)
    add("--tags TAG", "the message's tag")
    add("--keys KEYS", "the message's keys, separated by spaces")
    add(
        "--property K=V",
        "a property of your own; repeat for several",
        action="append",
        default=[],
        dest="properties",
    )
    add("--queue [BROKER/]N", "the queue to send to (default: round robin)")
    add("--sharding-key KEY", "messages with the same key go to the same queue")
    add("--delay-level N", "1 (a second) to 18 (2 hours)", type=positive_number, default=0)
    add(
        "--deliver-at T",
        "the time of delivery, such as 2026-11-20T10:31:02; needs brokers of RocketMQ 5",
    )
    add_text_output(
        parser, "text (default), as RocketMQ's own clients print it, or one JSON object"
    )


def run(arguments: Namespace) -> ExitCode:
    from rocketlens.client.send.message import Message
    from rocketlens.client.send.send_result import SendStatus
    from rocketlens.net.event_loop import run as run_loop

    if arguments.queue is not None and arguments.sharding_key is not None:
        raise BadInput("--queue and --sharding-key both choose a queue: give only one")
    if arguments.lines is not None or arguments.jsonl is not None:
        return _send_many(arguments)
    if arguments.body is None:
        raise BadInput("there is no body: give BODY, --lines FILE or --jsonl FILE")
    message = Message(arguments.topic, _body(arguments.body), **_defaults(arguments))
    access = writable_cluster_access(choose_context(arguments, takes_store=False))
    result = run_loop(_send(arguments, access, message))
    if arguments.output == "json":
        print(json_line(_result_fields(result)))
    else:
        print(printable(str(result)))
    if result.send_status is not SendStatus.SEND_OK:
        note(
            f"the message is stored, but the broker answered {result.send_status.name}: it may not "
            "be flushed or replicated yet"
        )
    return ExitCode.OK


def _defaults(arguments: Namespace) -> dict[str, Any]:
    """Return the arguments that all messages share."""
    at = arguments.deliver_at
    return {
        "deliver_at": None if at is None else parse_time(at, "--deliver-at", is_end=False),
        "tags": arguments.tags,
        "keys": arguments.keys or (),
        "properties": _properties(arguments.properties),
        "delay_level": arguments.delay_level,
    }


def _result_fields(result: "SendResult") -> dict[str, Any]:
    queue = result.message_queue
    return {
        "send_status": result.send_status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "queue_offset": result.queue_offset,
    }


def _send_many(arguments: Namespace) -> ExitCode:
    from rocketlens.cli.send_many import (
        ManySender,
        SendSummary,
        json_line_reader,
        open_lines,
        pieces_of,
        text_line_reader,
    )
    from rocketlens.client.send.producer import Producer
    from rocketlens.net.event_loop import run as run_loop

    if arguments.body is not None or arguments.sharding_key is not None:
        raise BadInput("--lines and --jsonl exclude BODY and --sharding-key")
    make_reader = text_line_reader if arguments.jsonl is None else json_line_reader
    read_line = make_reader(arguments.topic, _defaults(arguments))
    access = writable_cluster_access(choose_context(arguments, takes_store=False))
    given = arguments.lines if arguments.jsonl is None else arguments.jsonl
    summary = SendSummary(0, 0, None)

    async def send() -> None:
        nonlocal summary
        async with Producer(access.name_servers, **access.client_options) as producer:
            queues = await producer.write_queues(arguments.topic)
            queue = None if arguments.queue is None else _queue(arguments.queue, queues)
            sender = ManySender(producer, read_line, note, queue)
            try:
                await sender.send(pieces_of(stream))
            finally:
                summary = sender.summary

    with open_lines(given, sys.stdin) as stream:
        try:
            run_loop(send())
        finally:
            if arguments.output == "json":
                print(json_line(summary._asdict()))
            note(f"sent {counted(summary.sent, 'message')}, {summary.failed} failed")
    if summary.stopped_at is not None:
        note(
            f"lines from {summary.stopped_at} on were not sent, except batches already on their way"
        )
    return ExitCode.FAILED if summary.failed else ExitCode.OK


def _body(given: str) -> bytes:
    if given != "-":
        # An argument can contain bytes that are not text.
        return given.encode("utf-8", "surrogateescape")
    if sys.stdin is None:
        raise BadInput("BODY is -, but standard input is closed")
    # One byte more than the limit, so that a larger body is refused, not cut.
    return sys.stdin.buffer.read(limits.MAX_MESSAGE_BYTES + 1)


def _properties(given: Iterable[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not (name and separator and value):
            raise BadInput(f"invalid --property {each[:80]!r}: expected NAME=VALUE")
        properties[name] = value
    return properties


async def _send(arguments: Namespace, access: ClusterAccess, message: "Message") -> "SendResult":
    from rocketlens.client.send.producer import Producer

    async with Producer(access.name_servers, **access.client_options) as producer:
        queue = None
        if arguments.queue is not None:
            queue = _queue(arguments.queue, await producer.write_queues(message.topic))
        return await producer.send(message, queue=queue, sharding_key=arguments.sharding_key)


def _queue(given: str, queues: "tuple[MessageQueue, ...]") -> "MessageQueue":
    """Return the queue that ``N`` or ``BROKER/N`` names.

    :raises BadInput: if the topic has no such queue, or several brokers have a queue ``N``.
    """
    match = _QUEUE.match(given)
    if match is None:
        raise BadInput(f"invalid --queue {given[:80]!r}: expected NUMBER or BROKER/NUMBER")
    number, broker = int(match["queue_id"]), match["broker"]
    named = [q for q in queues if q.queue_id == number and broker in {None, q.broker_name}]
    if len(named) == 1:
        return named[0]
    if named:
        brokers = ", ".join(q.broker_name for q in named)
        raise BadInput(
            f"--queue {number} is ambiguous: {brokers} each have one; give BROKER/{number}"
        )
    existing = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in queues[:20])
    raise BadInput(f"the topic has no queue {given[:80]!r}: expected one of {existing}")
