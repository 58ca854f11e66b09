"""``rocketlens archive run``: copies messages of stores, or of a cluster, into an archive."""

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
# archive what a store has now, and end
rocketlens archive run --table /lake/rocketmq --store /data/store --once
# archive topics of a running cluster, and what is sent to them
rocketlens archive run --table /lake/rocketmq -n 127.0.0.1:9876 --topic 'order-*'
# archive the store of a tap as it grows
rocketlens archive run --table /lake/rocketmq --store /data/tap/broker-a
"""
_SECONDS: Final = 10
_MAINTENANCE_S: Final = 3600.0


def run_options(parser: ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "A job that was killed, or is run again, archives nothing twice and leaves out nothing.\n"
        "Messages that expired before they were read are named, here and in each answer.\n"
        "Exit code 3: something is missing, or a broker that is known could not be asked."
    )
    add = partial(option, parser)
    add(
        "--table DIR",
        "the archive, a directory or s3://BUCKET/PREFIX; made if it is not there",
        required=True,
    )
    add(
        "--store [BROKER=]DIR",
        "a store, and the name of its broker if its file of topics does not say it (repeat it "
        "for several)",
        action="append",
    )
    add_cluster(parser, "none; it is read by pull, and needs --topic")
    add(
        "--forget-broker NAME",
        "a broker of the cluster that is gone for good: what it had last is named as lost, "
        "and it is not waited for any more (repeat it for several)",
        action="append",
        default=[],
    )
    add_topics(parser, "archive only these topics", default="all of a store")
    add(
        "--cluster NAME",
        "the name of the cluster (default: that of the store's file of topics, else "
        "DefaultCluster)",
    )
    add("--once", "end when all is archived that is there now")
    add(
        "--interval S",
        f"seconds between two looks for new messages (default: {_SECONDS})",
        type=positive_number,
        default=_SECONDS,
    )
    add(
        "--keep-days N",
        "delete messages of days (UTC) before the last N (default: none)",
        type=positive_number,
    )
    add(
        "--decoded",
        "archive bodies decoded, too, in columns of their own, as `find --body decoded` shows them",
    )
    add_body_rules(parser)
    add_master(parser)


def run_run(arguments: Namespace) -> ExitCode:
    """Archive until a signal comes, or all is archived; INCOMPLETE if something is missing."""
    from rocketlens.archive.journal import ArchiveTables
    from rocketlens.archive.location import ArchiveLocation
    from rocketlens.archive.maintenance import maintain, vacuum, write_merged
    from rocketlens.pipeline import jobs
    from rocketlens.pipeline.session import check_available

    check_available()
    # It needs pyspark.
    from rocketlens.pipeline.archive import write_share

    sources, body_rules = _sources(arguments), _body_rules(arguments)
    location = ArchiveLocation.of(arguments.table)
    if not location.check_conditional_put():
        note(
            f"{location.root}: whether the object store keeps one archiver from overwriting what "
            "another committed was not checked: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
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
    """Archive what a source has now; return whether something of it is missing."""
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
    # What was lost is said once, and what can still come as often as it is waited for.
    known = {each.key for each in before if each.high_ms is not None}
    behind = [each for each in behind_of(tables.last_batch(source.name)) if each.key not in known]
    for each in behind:
        if each.what not in noted:
            noted.add(each.what)
            note(f"{source.name}: {each.what}")
    return has_gaps or bool(behind)


def _body_rules(arguments: Namespace) -> "BodyRules | None":
    """Return the rules by which bodies are archived decoded; None if they are not."""
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
            raise BadInput("which topics? Give --topic, or --topic '*' for all of the cluster")
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
        raise BadInput("what to archive? Give --store DIR, or --namesrv ADDR with --topic")
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
    """Check the name of a cluster or a broker, which names a source of the archive."""
    if not name or not name.isprintable() or "/" in name:
        raise BadInput(
            f"{option}: {printable(name)[:80]!r} is no name: expected text without / and control "
            "characters"
        )


def _named_store(text: str, cluster: str | None) -> tuple[str, str, str]:
    """Return the cluster, unless it was given, the broker and the path of an option ``--store``."""
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
            f"which broker wrote {text}? Its file of topics does not say: give --store "
            f"BROKER={text}, and --cluster NAME. Its messages are known by these names"
        )
    for name in (names.broker, cluster):
        _check_name("--store", name)
    return cluster, names.broker, text
