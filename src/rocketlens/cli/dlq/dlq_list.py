"""``rocketlens dlq list``: the groups that have dead letters."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from rocketlens.cli.dlq import no_dead_letters
from rocketlens.cli.options import add_cluster, add_list_output
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketlens.client.mq_admin import MQAdmin

EXAMPLES: Final = (
    ("rocketlens dlq list", "the groups that have dead letters"),
    ("rocketlens dlq list billing", "how many one group has (dlq show billing shows them)"),
    ("rocketlens dlq list -n 127.0.0.1:9876 -o json", "of a cluster, for programs"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "sent_again: how many of them jobs of this user have sent again, or may have (dlq "
        f"redrive).\n{SEARCH_EXIT_CODES}"
    )
    parser.add_argument("group", metavar="GROUP", nargs="?", help="only this consumer group")
    add_cluster(parser, "$NAMESRV_ADDR")
    add_list_output(parser, "table (default), CSV, or one JSON line per group")


def run(arguments: Namespace) -> ExitCode:
    """Print a row for each group with dead letters: how many, and when the newest was stored."""
    from rocketlens.terminal.cluster_access import ask_cluster, chosen_context, cluster_access

    access = cluster_access(chosen_context(arguments, takes_store=False))
    return ask_cluster(access, lambda admin: _list(arguments, admin))


async def _list(arguments: Namespace, admin: "MQAdmin") -> ExitCode:
    from rocketlens.client.connect.namespace import is_in_namespace

    listed, failed = await admin.source.topology.topics()
    # A broker that is gone may have had some, too.
    _, surveyed = await admin.source.topology.brokers()
    failed = tuple(each for each in (*failed, *surveyed) if each.is_failure)
    only = None
    if arguments.group:
        only = admin.source.full_topic(DEAD_LETTER_PREFIX + arguments.group)
    topics = [
        topic
        for topic in listed
        if topic.startswith(DEAD_LETTER_PREFIX)
        and is_in_namespace(admin.namespace, topic)
        and only in {None, topic}
    ]
    for each in failed:
        note(f"INCOMPLETE: {each.source}: {each.error}")
    is_complete = not failed
    groups: list[dict[str, Any]] = []
    for topic in topics:
        fields = await _fields(admin, topic)
        is_complete &= fields["error"] is None
        if fields["messages"] or fields["error"]:
            groups.append(fields)
    _print(arguments, groups)
    if not is_complete:
        return ExitCode.INCOMPLETE
    if not groups:
        note(
            str(no_dead_letters(arguments.group))
            if arguments.group
            else "no group has dead letters"
        )
    return ExitCode.OK if groups else ExitCode.NO


async def _fields(admin: "MQAdmin", topic: str) -> dict[str, Any]:
    """Return how many dead letters a group has, and when the newest was stored."""
    from rocketlens.client.connect.namespace import without_namespace

    group = without_namespace(admin.namespace, topic).removeprefix(DEAD_LETTER_PREFIX)
    fields: dict[str, Any] = {
        "group": group,
        "messages": 0,
        "sent_again": _sent_again(admin, group),
        "newest_ms": None,
        "error": None,
    }
    try:
        queues = await admin.message_queues(topic)
        if not queues:
            fields["error"] = "its topic cannot be read: give it permission 6"
        for queue in queues:
            first = await admin.min_offset(queue)
            fields["messages"] += max(await admin.max_offset(queue) - first, 0)
        async with admin.tail(topic, 1) as tail:
            async for message in tail:
                fields["newest_ms"] = message.store_timestamp_ms
        failed = next((each for each in tail.coverage if each.is_failure), None)
        if failed is not None:
            fields["error"] = f"{failed.source}: {failed.error}"
    except RocketLensError as error:
        fields["error"] = str(error)
    return fields


def _sent_again(admin: "MQAdmin", group: str) -> int | None:
    """Return how many dead letters of a group jobs have sent; None if a job's file is damaged."""
    from rocketlens.client.resend.resend_job import dead_letter_selection
    from rocketlens.client.resend.resend_journal import earlier_jobs
    from rocketlens.terminal.cluster_access import jobs_directory

    selection = dead_letter_selection(group)
    try:
        jobs = earlier_jobs(jobs_directory(), selection, admin.source.name, admin.namespace)
    except (BadInput, OSError) as error:
        note(f"sent_again is not known: {error}")
        return None
    return len(jobs.sent)


def _print(arguments: Namespace, groups: "Sequence[dict[str, Any]]") -> None:
    if arguments.output == "json":
        from rocketlens.terminal.as_json import json_line

        for fields in groups:
            print(json_line(fields))
        return
    from rocketlens.cli.table import Moment, print_csv, print_rows

    # Most lists have no error.
    titles = ["group", "messages", "sent_again", "newest"]
    titles += ["error"] if any(fields["error"] for fields in groups) else []
    rows = [
        (
            fields["group"],
            fields["messages"],
            fields["sent_again"],
            "" if fields["newest_ms"] is None else Moment(fields["newest_ms"]),
            fields["error"] or "",
        )[: len(titles)]
        for fields in groups
    ]
    if arguments.output == "csv":
        print_csv(titles, rows)
    elif rows:
        print_rows(titles, rows)
