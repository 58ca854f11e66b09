"""``rocketlens groups``: consumer groups, their members, and how far they came."""

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from rocketlens.cli.options import add_list_output, add_source, positive_number
from rocketlens.model.text.counted import span_text
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode

if TYPE_CHECKING:
    from rocketlens.cli.table import Moment
    from rocketlens.model.group import FoundGroup, GroupsAnswer

_TITLES: Final = (
    "group",
    "members",
    "model",
    "lag",
    "behind",
    "to_retry",
    "dead_letters",
    "last_consumed",
)
_WATCH_SECONDS: Final = 5
_CLEAR: Final = "\x1b[H\x1b[2J"
"""Moves to the begin of a terminal, and clears it."""
_MEMBER_TITLES: Final = ("client_id", "address", "language", "version")
_QUEUE_TITLES: Final = (
    "topic",
    "broker",
    "queue_id",
    "max_offset",
    "consumer_offset",
    "lag",
    "last_consumed",
)

EXAMPLES: Final = (
    ("rocketlens groups -n 127.0.0.1:9876", "all groups, and how far each came"),
    ("rocketlens groups --watch 10", "again every ten seconds"),
    ("rocketlens groups billing", "one group: its members and queues"),
    (
        "rocketlens groups billing --store /data/rocketmq/store -o json",
        "what the files of a store say of it",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        f"{SEARCH_EXIT_CODES}\n? is what could not be learnt: no file of a store names members.\n"
        "behind: how old what was consumed last is, in the queue that is furthest behind."
    )
    parser.add_argument(
        "group", metavar="GROUP", nargs="?", help="show this group with its members and queues"
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=positive_number,
        const=_WATCH_SECONDS,
        help=f"print it again every so many seconds ({_WATCH_SECONDS} if none are given), until "
        "Ctrl-C: exit code 130",
    )
    add_source(parser)
    add_list_output(parser)


def run(arguments: Namespace) -> ExitCode:
    """Print groups, once or again and again."""
    if arguments.watch is None:
        return _run_once(arguments)
    while True:
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        _run_once(arguments)
        time.sleep(arguments.watch)


def _run_once(arguments: Namespace) -> ExitCode:
    """Print groups; the exit code says whether all brokers or files could be read."""
    from rocketlens.cli.find import exit_code
    from rocketlens.cli.table import print_csv, print_rows
    from rocketlens.model.answer import Answer
    from rocketlens.terminal.notes import print_notes

    found = _find(arguments)
    if arguments.output == "json":
        _print_json(found)
    elif arguments.output == "csv":
        print_csv(_TITLES, map(_row, found.groups))
    elif arguments.group is None:
        if found.groups:
            print_rows(_TITLES, map(_row, found.groups))
    else:
        for group in found.groups:
            _print_group(group)
    sys.stdout.flush()
    count = len(found.groups)
    answer = Answer(arguments.group or "", (), found.coverage)
    if not answer.complete:
        print_notes(answer, count)
    elif not count:
        from rocketlens.terminal.output import note

        missing = f"group {arguments.group} does not exist; `rocketlens groups` lists all"
        note(missing if arguments.group else "there are no groups")
    return exit_code(answer, count)


def _find(arguments: Namespace) -> "GroupsAnswer":
    from rocketlens.cli.source import ask_source

    group: str | None = arguments.group
    return ask_source(
        arguments, lambda store: store.groups(group), lambda admin: admin.groups(group)
    )


def _row(group: "FoundGroup") -> tuple[object, ...]:
    return (
        group.name,
        None if group.members is None else len(group.members),
        group.message_model,
        group.lag,
        _behind(group),
        group.to_retry,
        group.dead_letters,
        _time(group.last_consumed_ms),
    )


def _behind(group: "FoundGroup") -> str | None:
    """Return how far a group is behind in time; empty if it is not."""
    behind_ms = group.behind_ms(time.time_ns() // 1_000_000)
    return span_text(behind_ms) if behind_ms else (None if behind_ms is None else "")


def _print_group(group: "FoundGroup") -> None:
    from rocketlens.cli.table import print_rows
    from rocketlens.model.text.escape import printable
    from rocketlens.wire.codes import version_name

    print_rows(_TITLES, [_row(group)])
    if group.members:
        print()
        rows = (
            (m.client_id, m.address, m.language, version_name(m.version)) for m in group.members
        )
        print_rows(_MEMBER_TITLES, rows)
    for topic, expression in sorted((group.subscriptions or {}).items()):
        print(f"\nsubscribes to {printable(topic)}: {printable(expression)}", end="")
    if group.subscriptions:
        print()
    if group.queues:
        print()
        print_rows(
            _QUEUE_TITLES,
            (
                (
                    each.topic,
                    each.broker_name,
                    each.queue_id,
                    each.max_offset,
                    each.consumer_offset if each.consumer_offset >= 0 else None,
                    each.lag,
                    _time(each.last_consumed_ms),
                )
                for each in group.queues
            ),
        )


def _time(epoch_ms: int | None) -> "Moment | None":
    from rocketlens.cli.table import Moment

    return None if epoch_ms is None else Moment(epoch_ms)


def group_fields(group: "FoundGroup") -> dict[str, Any]:
    """Return a group as JSON values."""
    from dataclasses import asdict

    return {
        **asdict(group),
        "lag": group.lag,
        "behind_ms": group.behind_ms(time.time_ns() // 1_000_000),
        "to_retry": group.to_retry,
        "last_consumed_ms": group.last_consumed_ms,
    }


def _print_json(found: "GroupsAnswer") -> None:
    from rocketlens.terminal.as_json import coverage_fields, json_line

    groups = [group_fields(group) for group in found.groups]
    coverage = [coverage_fields(each) for each in found.coverage]
    print(json_line({"complete": found.complete, "groups": groups, "coverage": coverage}))
