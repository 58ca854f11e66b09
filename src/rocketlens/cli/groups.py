"""``rocketlens groups``: lists consumer groups, their members and their progress."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import asdict

from rocketlens.cli.find import exit_code
from rocketlens.cli.options import add_list_output, add_source, add_watch, refuse_archive, watch
from rocketlens.cli.printing import Moment, print_list, print_listing, print_rows
from rocketlens.cli.source import choose_source
from rocketlens.model.answer import Answer
from rocketlens.model.group import FoundGroup, GroupsAnswer
from rocketlens.model.text.counted import span_text
from rocketlens.model.text.escape import printable
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import SEARCH_EXIT_CODES, ExitCode, note

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

EXAMPLES: Final = """
rocketlens groups -n 127.0.0.1:9876  # all groups and their progress
rocketlens groups --watch 10  # repeat every ten seconds
rocketlens groups billing  # one group: its members and queues
# a group in the files of a store
rocketlens groups billing --store /data/rocketmq/store -o json
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        f"{SEARCH_EXIT_CODES}\n?: not known, such as the members of a group in a store.\n"
        "behind: the lag in time, of the queue that is furthest behind.\n"
        "consumed/s: with --watch, the rate since the last print; ? the first time."
    )
    parser.add_argument(
        "group", metavar="GROUP", nargs="?", help="show this group with its members and queues"
    )
    add_watch(parser)
    add_source(parser)
    refuse_archive(
        parser,
        "an archive has no consumer groups: name a store or a cluster; `rocketlens story ID "
        "--archive DIR` shows archived retries and dead letters",
    )
    add_list_output(parser)


def run(arguments: Namespace) -> ExitCode:
    rates = None if arguments.watch is None else _Rates()
    return watch(lambda: _run_once(arguments, rates), arguments.watch)


class _Rates:
    """Rates at which groups consume, between two prints of --watch."""

    def __init__(self) -> None:
        self._samples: Final[dict[str, tuple[float, dict[tuple[object, ...], int]]]] = {}
        self.by_group: Final[dict[str, float]] = {}
        """Messages per second; without groups that have one sample, or whose offsets were reset."""

    def add(self, groups: Sequence[FoundGroup]) -> None:
        now_s = time.monotonic()
        self.by_group.clear()
        for group in groups:
            offsets: dict[tuple[object, ...], int] = {
                (each.topic, each.broker_name, each.queue_id): each.consumer_offset
                for each in group.queues or ()
                if each.consumer_offset >= 0
            }
            at_s, before = self._samples.get(group.name, (now_s, {}))
            steps = [offset - before[queue] for queue, offset in offsets.items() if queue in before]
            if now_s > at_s and min(steps, default=0) >= 0:
                self.by_group[group.name] = sum(steps) / (now_s - at_s)
            self._samples[group.name] = now_s, offsets


def _run_once(arguments: Namespace, rates: _Rates | None = None) -> ExitCode:
    name: str | None = arguments.group
    source = choose_source(arguments)
    listing = source.ask(lambda store: store.groups(name), lambda admin: admin.groups(name))
    if rates is not None:
        rates.add(listing.groups)
    titles, rows = _table(listing.groups, rates)
    if arguments.output == "json":
        _print_json(listing, rates)
    elif arguments.group is None or arguments.output == "csv":
        print_list(arguments.output, titles, rows)
    else:
        for group in listing.groups:
            _print_group(group, rates)
    sys.stdout.flush()
    count = len(listing.groups)
    answer = Answer(arguments.group or "", (), listing.coverage)
    if not answer.complete or (name and not count):
        print_notes(answer, count, "group")
    elif not count:
        note("there are no groups")
    return exit_code(answer, count)


def _table(
    groups: Sequence[FoundGroup], rates: _Rates | None
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    if rates is None:
        return _TITLES, [_row(each) for each in groups]
    shown = [(each, rates.by_group.get(each.name)) for each in groups]
    rows = [(*_row(each), None if rate is None else f"{rate:,.1f}") for each, rate in shown]
    return (*_TITLES, "consumed/s"), rows


def _row(group: FoundGroup) -> tuple[object, ...]:
    return (
        group.name,
        None if group.members is None else len(group.members),
        group.message_model,
        group.lag,
        _lag_time(group),
        group.to_retry,
        group.dead_letters,
        _time(group.last_consumed_ms),
    )


def _lag_time(group: FoundGroup) -> str | None:
    behind_ms = group.behind_ms(time.time_ns() // 1_000_000)
    return span_text(behind_ms) if behind_ms else (None if behind_ms is None else "")


def _print_group(group: FoundGroup, rates: _Rates | None) -> None:
    from rocketlens.wire.codes import version_name

    print_rows(*_table([group], rates))
    if group.members:
        print()
        members = group.members
        rows = ((m.client_id, m.address, m.language, version_name(m.version)) for m in members)
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


def _time(epoch_ms: int | None) -> Moment | None:
    return None if epoch_ms is None else Moment(epoch_ms)


def group_fields(group: FoundGroup) -> dict[str, Any]:
    return {
        **asdict(group),
        "lag": group.lag,
        "behind_ms": group.behind_ms(time.time_ns() // 1_000_000),
        "to_retry": group.to_retry,
        "last_consumed_ms": group.last_consumed_ms,
    }


def _print_json(answer: GroupsAnswer, rates: _Rates | None) -> None:
    groups = [
        group_fields(each)
        | ({} if rates is None else {"consumed_per_second": rates.by_group.get(each.name)})
        for each in answer.groups
    ]
    print_listing("groups", groups, answer.coverage, complete=answer.complete)
