"""``rocketlens status``: prints the state of a store or a cluster."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from rocketlens.cli.find import exit_code
from rocketlens.cli.groups import group_fields
from rocketlens.cli.options import add_list_output, add_source, add_watch, refuse_archive, watch
from rocketlens.cli.printing import NOT_KNOWN, Moment, print_csv, print_rows
from rocketlens.cli.source import choose_source
from rocketlens.model.answer import Answer
from rocketlens.model.group import FoundGroup
from rocketlens.model.status import (
    BrokerStatus,
    ClusterStatus,
    IndexStatus,
    StoreClosing,
    StoreStatus,
    TapStatus,
)
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import (
    BOLD,
    SEARCH_EXIT_CODES,
    ExitCode,
    coloured,
    moment_text,
    size_text,
    wrap_lines,
)

_BROKER_TITLES: Final = (
    "broker",
    "role",
    "address",
    "version",
    "put/s",
    "get/s",
    "log",
    "disk",
    "oldest",
)
_GROUP_TITLES: Final = ("group", "members", "lag", "to_retry", "dead_letters")
_LABEL_WIDTH: Final = 11
EXAMPLES: Final = """
rocketlens status --store /data/rocketmq/store  # messages, log, queues and index of a store
rocketlens status -n 127.0.0.1:9876  # brokers, rates, disks and groups of a cluster
rocketlens status --watch 10  # repeat every ten seconds
rocketlens status -n 127.0.0.1:9876 -o json  # the same as JSON
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        f"{SEARCH_EXIT_CODES}\n?: not known. `rocketlens topics` lists topics, `rocketlens doctor` "
        "checks a store."
    )
    add_watch(parser)
    add_source(parser)
    refuse_archive(
        parser,
        "an archive has no status: `rocketlens topics --archive DIR` shows its topics and times",
    )
    add_list_output(parser)


def run(arguments: Namespace) -> ExitCode:
    return watch(lambda: _run_once(arguments), arguments.watch)


def _run_once(arguments: Namespace) -> ExitCode:
    source = choose_source(arguments)
    status = source.ask(lambda store: store.status(), lambda admin: admin.status())
    if arguments.output == "json":
        _print_json(status)
    elif arguments.output == "csv":
        _print_csv(status)
    elif isinstance(status, StoreStatus):
        for label, text in store_lines(status):
            _print_line(label, text)
        _print_groups(status.groups)
    else:
        _print_cluster(status)
    sys.stdout.flush()
    answer = Answer("status", (), status.coverage)
    if not answer.complete:
        print_notes(answer, 1, "store" if isinstance(status, StoreStatus) else "cluster")
    return exit_code(answer, 1)


def store_lines(status: StoreStatus) -> Iterator[tuple[str, str]]:
    """Yield the label and text of each line about a store."""
    closed = {
        StoreClosing.CLEAN: "cleanly",
        StoreClosing.KILLED: "no: its broker was killed, or this is a copy of a store in use",
        StoreClosing.IN_USE: "no: a broker or job has it open",
    }
    yield "store", status.path
    yield "written by", status.written_by
    if status.tap is not None:
        yield "tap of", ", ".join(tap_words(status.tap))
    yield "closed", closed[status.closing]
    topics = _topics(status, "the broker's")
    yield "messages", f"{_count(status.messages)} in {topics}, {_times(status)}"
    offsets = f"physical offsets {status.min_offset} to {status.end_offset}"
    yield "log", f"{size_text(status.log_bytes)} in {_files(status.log_files)}, {offsets}"
    yield "queues", size_text(status.queue_bytes)
    yield "index", ", ".join(_index_words(status.index))
    yield (
        "disk",
        f"{size_text(status.disk_free_bytes)} free of {size_text(status.disk_total_bytes)}",
    )


def tap_words(tap: TapStatus) -> Iterator[str]:
    """Yield the parts of a text on a copy: its broker, its progress, and what it lacks."""
    yield f"broker {tap.broker_name} ({tap.address})"
    if tap.written_ms:
        behind = f"{_bytes_text(tap.behind_bytes)} behind"
        if tap.behind_bytes:
            behind += f" and {tap.behind_ms / 1000:,.0f} s"
        yield f"{behind} at {moment_text(tap.written_ms)}"
    if tap.gaps:
        start, stop = tap.gaps[-1]
        yield (
            f"{counted(len(tap.gaps), 'gap')}, the last one from physical offset {start} to "
            f"{stop}: the broker deleted these messages before they were copied"
        )
    if tap.replaced:
        yield f"the broker had other logs before, copied in {', '.join(tap.replaced)}"
    if tap.problem:
        yield tap.problem


def _index_words(index: IndexStatus) -> Iterator[str]:
    yield f"{size_text(index.size_bytes)} in {_files(index.files + index.damaged_files)}"
    if index.damaged_files:
        yield f"{index.damaged_files} of them damaged"
    yield counted(index.entries, "entry", "entries")
    if index.newest_ms is not None:
        yield f"up to {moment_text(index.newest_ms)}"
    yield f"{_bytes_text(index.uncovered_bytes)} of log without entries"
    if index.builder is not None:
        behind = _bytes_text(index.builder.behind_bytes)
        yield f"builder {'running' if index.builder.is_running else 'stopped'}, {behind} behind"


def _bytes_text(count: int) -> str:
    text = size_text(count)
    return f"{text} bytes" if text.isdigit() else text


def _files(count: int) -> str:
    return counted(count, "file")


def _count(number: int | None) -> str:
    return NOT_KNOWN if number is None else f"{number:,}"


def _topics(status: StoreStatus | ClusterStatus, whose: str) -> str:
    count = counted(status.topics, "topic")
    return f"{count}, {status.broker_topics} of them {whose} own" if status.broker_topics else count


def _times(status: StoreStatus) -> str:
    if status.oldest_ms is None or status.newest_ms is None:
        return "without times"
    return f"{moment_text(status.oldest_ms)} to {moment_text(status.newest_ms)}"


def _print_cluster(status: ClusterStatus) -> None:
    clusters = sorted({each.cluster_name for each in status.brokers if each.cluster_name})
    _print_line("cluster", ", ".join(clusters) or "?")
    _print_line("nameserver", "; ".join(status.name_servers))
    _print_line("topics", _topics(status, "the brokers'"))
    _print_line(
        "clients", f"{_count(status.producers)} producers, {_count(status.consumers)} consumers"
    )
    if status.brokers:
        print()
        print_rows(_BROKER_TITLES, map(_broker_row, status.brokers))
    _print_groups(status.groups)


def _broker_row(broker: BrokerStatus) -> Sequence[object]:
    version, ratio, oldest_ms = broker.version, broker.disk_ratio, broker.oldest_ms
    # The broker has no messages, or did not answer.
    unknown = "" if broker.error is None else None
    return (
        broker.name,
        "master" if broker.is_master else f"slave {broker.broker_id}",
        broker.address,
        None if version is None else version.removeprefix("V").replace("_", "."),
        _rate(broker.put_per_second),
        _rate(broker.get_per_second),
        None if broker.log_bytes is None else size_text(broker.log_bytes),
        None if ratio is None else f"{ratio:.0%}",
        unknown if oldest_ms is None else Moment(oldest_ms),
    )


def _rate(number: float | None) -> str | None:
    return None if number is None else f"{number:,.1f}"


def _print_groups(groups: Sequence[FoundGroup]) -> None:
    if groups:
        print()
        print_rows(_GROUP_TITLES, map(_group_row, groups))


def _group_row(group: FoundGroup) -> Sequence[object]:
    members = None if group.members is None else len(group.members)
    return (group.name, members, group.lag, group.to_retry, group.dead_letters)


def _print_line(label: str, text: str) -> None:
    """Print a labelled line: in columns on a terminal, else with a tab."""
    if not sys.stdout.isatty():
        print(f"{label}\t{printable(text)}")
        return
    for line in wrap_lines(printable(text), _LABEL_WIDTH):
        print(f"{coloured(label.ljust(_LABEL_WIDTH), BOLD, sys.stdout)} {line}")
        label = ""


def _print_csv(status: StoreStatus | ClusterStatus) -> None:
    """Print the brokers of a cluster, or one row about a store."""
    if not isinstance(status, StoreStatus):
        print_csv(_BROKER_TITLES, map(_broker_row, status.brokers))
        return
    values = dict(store_lines(status))
    print_csv(list(values), [list(values.values())])


def _print_json(status: StoreStatus | ClusterStatus) -> None:
    fields: dict[str, Any] = {
        **asdict(status),
        "complete": status.complete,
        "groups": [group_fields(each) for each in status.groups],
    }
    print(json_line(fields))
