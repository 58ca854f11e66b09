"""``rocketlens archive run``: copies messages of stores or a cluster into an archive."""

import signal
import threading
import time
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.jobs.spark import ProgressLine, task_context
from rocketlens.cli.options import (
    add_body_rules,
    add_cluster,
    add_master,
    add_topics,
    option,
    positive_number,
    reader_options,
)
from rocketlens.errors import BadInput
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.output import ExitCode, note, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketlens.archive.files import DataFile
    from rocketlens.archive.journal import ArchiveTables
    from rocketlens.archive.maintenance import MergeTask
    from rocketlens.decode.rules import BodyRules
    from rocketlens.pipeline.archive import ArchivedSource, RunTasks, ShareTask, WrittenShare

RUN_EXAMPLES: Final = """
# archive the messages of a store, and exit
rocketlens archive run --table /lake/rocketmq --store /data/store --once
# archive topics of a running cluster, continuously
rocketlens archive run --table /lake/rocketmq -n 127.0.0.1:9876 --topic 'order-*'
# archive the store of a tap, continuously
rocketlens archive run --table /lake/rocketmq --store /data/tap/broker-a
"""
_SECONDS: Final = 10
_MAINTENANCE_S: Final = 3600.0


def run_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "A job that was killed can be run again: it neither repeats nor leaves out messages.\n"
        "Messages that expired before they were archived are reported, here and in each answer.\n"
        "Exit code 3: messages are missing, or a known broker did not answer."
    )
    add = partial(option, parser)
    add(
        "--table DIR",
        "the archive, a directory or s3://BUCKET/PREFIX; created if it does not exist",
        required=True,
    )
    add(
        "--store [BROKER=]DIR",
        "a store, with the name of its broker if its topics file does not contain it; repeat for "
        "several",
        action="append",
    )
    add_cluster(parser, "none; a cluster is read by pulling, and needs --topic")
    add(
        "--forget-broker NAME",
        "a broker that has left the cluster for good: its missing messages are reported as lost, "
        "and the job no longer waits for it; repeat for several",
        action="append",
        default=[],
    )
    add_topics(parser, "archive only these topics", default="all of a store")
    add(
        "--cluster NAME",
        "the name of the cluster (default: from the topics file of the store, else DefaultCluster)",
    )
    add("--once", "exit when the existing messages are archived")
    add(
        "--interval S",
        f"seconds between two polls for new messages (default: {_SECONDS})",
        type=positive_number,
        default=_SECONDS,
    )
    add(
        "--keep-days N",
        "delete messages older than N days (UTC) (default: keep all)",
        type=positive_number,
    )
    add(
        "--decoded",
        "also archive decoded bodies, in their own columns, as `find --body decoded` prints them",
    )
    add_body_rules(parser)
    add_master(parser)


def run_run(arguments: Namespace) -> ExitCode:
    """Archive until a signal, or with --once until the sources are archived."""
    from rocketlens.archive.journal import ArchiveTables
    from rocketlens.archive.location import ArchiveLocation
    from rocketlens.archive.maintenance import maintain, vacuum, write_merged
    from rocketlens.pipeline import jobs
    from rocketlens.pipeline.session import check_available

    check_available()
    # This module needs pyspark.
    from rocketlens.pipeline.archive import write_share

    sources, body_rules = _sources(arguments), _body_rules(arguments)
    location = ArchiveLocation.of(arguments.table)
    if not location.check_conditional_put():
        note(
            f"{location.root}: not checked whether the object store prevents concurrent commits "
            "from overwriting each other: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    tables = ArchiveTables(location, create=True)
    vacuum(tables)
    stop = threading.Event()
    if not arguments.once:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    spark = task_context(arguments.master)
    progress = ProgressLine()
    due = 0.0
    noted: set[str] = set()

    def write(tasks: "Sequence[ShareTask]") -> "list[WrittenShare]":
        return jobs.run(spark, "archive", tasks, write_share, progress)

    def merge(tasks: "Sequence[MergeTask]") -> "list[list[DataFile]]":
        return jobs.run(spark, "compact", tasks, write_merged, progress)

    while True:
        is_behind = [
            _archive_all(tables, source, write, stop, body_rules=body_rules, noted=noted)
            for source in sources
        ]
        if time.monotonic() >= due and not stop.is_set():
            due = time.monotonic() + _MAINTENANCE_S
            maintain(tables, merge, arguments.keep_days)
        if arguments.once or stop.wait(arguments.interval):
            break
    return ExitCode.INCOMPLETE if any(is_behind) else ExitCode.OK


def _archive_all(
    tables: "ArchiveTables",
    source: "ArchivedSource",
    run_tasks: "RunTasks",
    stop: threading.Event,
    *,
    body_rules: "BodyRules | None",
    noted: set[str],
) -> bool:
    """Archive the new messages of a source; return True if messages are missing."""
    from rocketlens.archive.copied import behind_of
    from rocketlens.pipeline.archive import archive_next

    has_gaps, before = False, behind_of(tables.last_batch(source.name))
    while not stop.is_set():
        batch = archive_next(tables, source, run_tasks, body_rules)
        if batch is None:
            break
        has_gaps |= bool(batch.gaps)
        say(f"{source.name}: batch {batch.number}, {counted(batch.messages, 'message')}")
        for gap in batch.gaps:
            note(f"{source.name}: {gap}")
    # Lost messages are reported once, missing ones as long as they can still arrive.
    known = {each.key for each in before if each.high_ms is not None}
    behind = [each for each in behind_of(tables.last_batch(source.name)) if each.key not in known]
    for each in behind:
        if each.what not in noted:
            noted.add(each.what)
            note(f"{source.name}: {each.what}")
    return has_gaps or bool(behind)


def _body_rules(arguments: Namespace) -> "BodyRules | None":
    """Return the rules for decoded bodies; None if bodies are not archived decoded."""
    if not arguments.decoded and arguments.body_rules is None:
        return None
    from rocketlens.query.filters.content_filter import rules_of

    return rules_of(arguments.body_rules)


def _sources(arguments: Namespace) -> "list[ArchivedSource]":
    from rocketlens.client.connect.broker_history import seen_brokers_path
    from rocketlens.pipeline.archive import DEFAULT_CLUSTER, ArchivedStore
    from rocketlens.pipeline.archive_cluster import ArchivedCluster

    given: str | None = arguments.cluster
    cluster = DEFAULT_CLUSTER if given is None else given
    _check_name("--cluster", cluster)
    topics = arguments.topic or []
    if arguments.namesrv and arguments.store:
        raise BadInput("--store archives a directory and --namesrv a cluster: give only one")
    if arguments.namesrv:
        if not topics:
            raise BadInput("a cluster needs --topic: give '*' for all topics")
        named = {"namesrv": arguments.namesrv, "subscribe": ",".join(topics)}
        return [
            ArchivedCluster(
                named | reader_options(arguments),
                cluster=cluster,
                seen_brokers=seen_brokers_path(),
                forgotten=arguments.forget_broker,
            )
        ]
    if not arguments.store:
        raise BadInput("no source is named: give --store DIR, or --namesrv ADDR with --topic")
    named_stores = [_named_store(text, given) for text in arguments.store]
    for what, values in (
        ("broker", [f"{cluster}/{broker}" for cluster, broker, _ in named_stores]),
        ("directory", [str(Path(path).resolve()) for _, _, path in named_stores]),
    ):
        twice = next((each for each in values if values.count(each) > 1), None)
        if twice is not None:
            raise BadInput(f"--store names the {what} {printable(twice)[:200]} twice")
    return [
        ArchivedStore(path, broker, cluster=cluster, topics=topics)
        for cluster, broker, path in named_stores
    ]


def _check_name(option: str, name: str) -> None:
    """Check the name of a cluster or broker, which is part of a source's name."""
    if not name or not name.isprintable() or "/" in name:
        raise BadInput(
            f"invalid name {printable(name)[:80]!r} of {option}: expected text without / and "
            "control characters"
        )


def _named_store(text: str, cluster: str | None) -> tuple[str, str, str]:
    """Return cluster, broker and path of a ``--store`` option."""
    from rocketlens.pipeline.archive import DEFAULT_CLUSTER
    from rocketlens.query.facts.topic_list import writer_names
    from rocketlens.store.layout import StoreLayout
    from rocketlens.store.read.tap_note import read_tap_note

    broker, is_named, path = text.partition("=")
    if is_named and broker and "/" not in broker:
        _check_name("--store", broker)
        return cluster or DEFAULT_CLUSTER, broker, path
    layout = StoreLayout.of(Path(text))
    tapped = read_tap_note(layout)
    if tapped is not None:
        return cluster or DEFAULT_CLUSTER, tapped.broker_name, text
    names = writer_names(layout.root)
    cluster = cluster or names.cluster
    if names.broker is None or cluster is None:
        raise BadInput(
            f"the topics file of {text} does not name its broker: give --store BROKER={text}, and "
            "--cluster NAME, which name the source in the archive"
        )
    for name in (names.broker, cluster):
        _check_name("--store", name)
    return cluster, names.broker, text
