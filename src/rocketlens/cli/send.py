"""``rocketlens send``: one message."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.cli.options import add_cluster, positive_number
from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from rocketlens.client.message import Message
    from rocketlens.client.route import MessageQueue
    from rocketlens.client.send_result import SendResult
    from rocketlens.terminal.cluster_access import ClusterAccess

_QUEUE: Final = re.compile(r"(?:(?P<broker>.{1,255})/)?(?P<queue_id>\d{1,9})\Z", re.ASCII)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = "exit codes: 0 a broker has stored it, 2 wrong usage or an error."
    parser.add_argument("topic", metavar="TOPIC", help="created if brokers allow that")
    parser.add_argument("body", metavar="BODY", help="the text to send; - reads it from stdin")
    add_cluster(parser, "$NAMESRV_ADDR")
    parser.add_argument("--tags", metavar="TAG", help="the message's tag")
    parser.add_argument("--keys", metavar="KEYS", help="the message's keys, separated by spaces")
    parser.add_argument(
        "--property",
        metavar="K=V",
        action="append",
        default=[],
        dest="properties",
        help="a property of your own; repeat for several",
    )
    parser.add_argument(
        "--queue", metavar="[BROKER/]N", help="the queue to send to (default: round robin)"
    )
    parser.add_argument(
        "--sharding-key", metavar="KEY", help="messages with the same key go to the same queue"
    )
    parser.add_argument(
        "--delay-level",
        metavar="N",
        type=positive_number,
        default=0,
        help="1 (a second) to 18 (2 hours)",
    )


def run(arguments: Namespace) -> ExitCode:
    """Send the message, and print what a real producer would print."""
    from rocketlens.client.message import Message
    from rocketlens.client.send_result import SendStatus
    from rocketlens.net.event_loop import run as run_loop
    from rocketlens.terminal.cluster_access import chosen_context, cluster_access

    if arguments.queue is not None and arguments.sharding_key is not None:
        raise BadInput("--queue and --sharding-key both choose a queue: give only one")
    message = Message(
        arguments.topic,
        _body(arguments.body),
        tags=arguments.tags,
        keys=arguments.keys or (),
        properties=_properties(arguments.properties),
        delay_level=arguments.delay_level,
    )
    access = cluster_access(chosen_context(arguments, takes_store=False))
    result = run_loop(_send(arguments, access, message))
    print(printable(str(result)))
    if result.send_status is not SendStatus.SEND_OK:
        note(
            f"the message is stored, but the broker answered {result.send_status.name}: it may not "
            "be flushed or replicated yet"
        )
    return ExitCode.OK


def _body(given: str) -> bytes:
    if given != "-":
        # As it came: an argument need not be text.
        return given.encode("utf-8", "surrogateescape")
    if sys.stdin is None:
        raise BadInput("BODY is -, but standard input is closed")
    # A byte more than may be sent, so that it is refused and not cut.
    return sys.stdin.buffer.read(limits.MAX_MESSAGE_BYTES + 1)


def _properties(given: Iterable[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not (name and separator and value):
            raise BadInput(f"invalid --property {each[:80]!r}: expected NAME=VALUE")
        properties[name] = value
    return properties


async def _send(arguments: Namespace, access: "ClusterAccess", message: "Message") -> "SendResult":
    from rocketlens.client.producer import Producer

    async with Producer(access.name_servers, **access.client_options) as producer:
        queue = None
        if arguments.queue is not None:
            queue = _queue(arguments.queue, await producer.write_queues(message.topic))
        return await producer.send(message, queue=queue, sharding_key=arguments.sharding_key)


def _queue(given: str, queues: "tuple[MessageQueue, ...]") -> "MessageQueue":
    """Return the queue that ``N`` or ``BROKER/N`` names.

    :raises BadInput: when the topic has no such queue, or ``N`` is a queue of several brokers.
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
            f"--queue {number} is ambiguous: {brokers} have one each; give BROKER/{number}"
        )
    existing = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in queues[:20])
    raise BadInput(f"the topic has no queue {given[:80]!r}; it has {existing}")
