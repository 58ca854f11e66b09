"""``rocketlens tail``: prints the newest messages of a topic, and with -f those that arrive."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.cli.find import exit_code
from rocketlens.cli.options import (
    add_content,
    add_source,
    content_of,
    count,
    option,
    refuse_archive,
)
from rocketlens.cli.printing import MessageOutput, add_output
from rocketlens.cli.source import choose_source
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.terminal.cluster_access import ClusterAccess, ask_cluster
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import SEARCH_EXIT_CODES, TIMES_HELP, ExitCode, note, parse_time

if TYPE_CHECKING:
    from rocketlens.client.mq_admin import MQAdmin

_BEGINNING: Final = "beginning"
_END: Final = "end"
EXAMPLES: Final = """
rocketlens tail order-paid  # the newest ten messages
rocketlens tail order-paid -f --tag 'paid || refunded'  # and new ones, with one of two tags
rocketlens tail order-paid --sql "amount > 100" --since 1h  # the last hour, by a property
# by a value in decoded bodies
rocketlens tail order-paid -f --where 'body.$.amount > 100'
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        f"{TIMES_HELP}\n{SEARCH_EXIT_CODES}\n"
        "With -f it runs until Ctrl-C: exit code 130. It joins no consumer group and stores no\n"
        "offsets."
    )
    parser.add_argument("topic_name", metavar="TOPIC", nargs="?", help="the topic")
    add = partial(option, parser)
    add("-t --topic TOPIC", "the topic, as in other commands")
    add_source(parser)
    refuse_archive(
        parser,
        "an archive cannot be tailed: `rocketlens find --archive DIR -t TOPIC --max N` prints the "
        "newest messages",
    )
    add("-f --follow", "print messages as they arrive")
    add(
        "--max --newest N",
        "begin with the newest N messages that match "
        f"(default: {limits.DEFAULT_TAIL_MESSAGES}; all with --since or --from beginning)",
        dest="newest",
        type=count,
    )
    add(
        "--from",
        "begin with the oldest message of each queue, or with new messages",
        choices=(_BEGINNING, _END),
        dest="begin_at",
    )
    add("--since T", "only messages stored at or after this time")
    add("--tag TAGS", "only messages with this tag, or one of several: 'A || B'")
    add(
        "--sql EXPRESSION",
        "only messages whose properties match this SQL92 expression, which is evaluated by "
        "this command, not the broker",
    )
    add("--key KEY", "only messages with this key or unique key")
    add_content(parser)
    add_output(
        parser,
        outputs=("table", "csv", "json", "jsonl"),
        help_text="table (default; tab-separated when piped), CSV, or one JSON line per message "
        "(json and jsonl)",
    )


def run(arguments: Namespace) -> ExitCode:
    if (arguments.topic_name is None) == (arguments.topic is None):
        raise BadInput("give one topic: rocketlens tail TOPIC")
    arguments.topic = arguments.topic_name or arguments.topic
    if (arguments.namesrv or "").isdigit():
        # `tail -n 10` of files.
        raise BadInput(f"-n is the name server: for {arguments.namesrv[:20]} messages give --max")
    begin = parse_time(arguments.since, "--since", is_end=False) if arguments.since else None
    if arguments.begin_at is not None and (arguments.newest or begin is not None):
        raise BadInput("--from and --max or --since name different beginnings: give only one")
    if arguments.begin_at == _END and not arguments.follow:
        raise BadInput("--from end prints only new messages: give -f")
    # A JSON object needs an end, and following has none.
    arguments.output = "jsonl" if arguments.output == "json" else arguments.output
    print_message = MessageOutput.of(arguments, arguments.key).line_printer
    source = choose_source(arguments)
    if source.cluster is not None:
        return _tail_cluster(source.cluster, arguments, begin, print_message)
    if arguments.follow:
        raise BadInput("-f follows a cluster, not a store: give --namesrv")
    from rocketlens.query.offline import open_store

    with open_store(source.directory) as store:
        answer = store.tail(
            arguments.topic,
            _newest(arguments),
            begin=begin,
            **_filter(arguments),
            **content_of(arguments),
        )
    for message in answer.messages:
        print_message(message)
    sys.stdout.flush()
    if not answer.complete or not answer.messages:
        print_notes(answer)
    return exit_code(answer)


def _newest(arguments: Namespace) -> int | None:
    """Return the number of messages to begin with; None for all."""
    if arguments.begin_at is not None:
        return 0 if arguments.begin_at == _END else None
    if arguments.newest is not None:
        return int(arguments.newest)
    return None if arguments.since else limits.DEFAULT_TAIL_MESSAGES


def _filter(arguments: Namespace) -> dict[str, str | None]:
    return {"tags": arguments.tag, "sql": arguments.sql, "key": arguments.key}


def _tail_cluster(
    access: ClusterAccess,
    arguments: Namespace,
    begin: int | None,
    print_message: Callable[[MessageExt], None],
) -> ExitCode:
    async def show(admin: "MQAdmin") -> ExitCode:
        tailed = admin.tail(
            arguments.topic,
            _newest(arguments),
            follow=arguments.follow,
            begin=begin,
            on_event=note,
            **_filter(arguments),
            **content_of(arguments),
        )
        printed = 0
        async with tailed:
            async for message in tailed:
                print_message(message)
                # A program that reads a pipe gets each message at once.
                if arguments.follow:
                    sys.stdout.flush()
                printed += 1
        answer = Answer(arguments.topic, (), tailed.coverage)
        sys.stdout.flush()
        if not answer.complete or not printed:
            print_notes(answer, printed)
        return exit_code(answer, printed)

    return ask_cluster(access, show)
