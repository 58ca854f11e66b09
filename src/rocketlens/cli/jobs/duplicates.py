"""``rocketlens duplicates``: lists unique keys that are stored more than once."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from rocketlens.cli.find import exit_code
from rocketlens.cli.jobs.spark import sql_session
from rocketlens.cli.options import (
    add_archive,
    add_list_output,
    add_master,
    add_source,
    add_times,
    add_topics,
    option,
    positive_number,
    reader_options,
    time_range,
)
from rocketlens.cli.printing import Moment, print_csv, print_rows
from rocketlens.cli.source import one_source
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.text.counted import counted
from rocketlens.terminal.contexts import Context
from rocketlens.terminal.json_text import answer_fields, json_line
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import SEARCH_EXIT_CODES, ExitCode, note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketlens.pipeline.duplicates import DuplicateReport

EXAMPLES: Final = """
rocketlens duplicates --store /data/rocketmq/store  # in a whole store, by topic
# in topics of a running cluster, for the last day
rocketlens duplicates -n 127.0.0.1:9876 -t 'order-*' --since 1d
rocketlens duplicates --archive /lake/rocketmq -o json  # in an archive, as JSON
"""
_MAX_NUM: Final = 1_000
_TITLES: Final = (
    *("topic", "unique key", "count", "cause", "producer"),
    *("first", "stored", "last stored"),
)
_CSV_TITLES: Final = (
    *("topic", "unique_key", "count", "cause", "producer"),
    *("first_position", "first_store_timestamp_ms", "last_store_timestamp_ms"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Retry and dead-letter topics, and RocketMQ's own, contain copies by design and are left\n"
        f"out.\n{SEARCH_EXIT_CODES}"
    )
    add_source(parser)
    add_archive(parser, with_others=False)
    add_topics(parser, "only these topics")
    add_times(parser)
    option(
        parser,
        "--max N",
        f"list up to N unique keys; all are counted (default: {_MAX_NUM})",
        type=positive_number,
        default=_MAX_NUM,
    )
    add_list_output(parser)
    add_master(parser)


def run(arguments: Namespace) -> ExitCode:
    from rocketlens.pipeline.duplicates import archived_messages, find_duplicates
    from rocketlens.pipeline.jobs import shorten_errors
    from rocketlens.pipeline.session import check_available

    check_available(with_sql=True)
    begin, end = time_range(arguments)
    source, searched = _source(arguments)
    spark = sql_session(arguments.master)
    with shorten_errors():
        topics = ",".join(arguments.topic or ())
        if source.archive is not None:
            table, problems = archived_messages(spark, source.archive, topics, begin, end)
        else:
            table, problems = _read(spark, source, topics, begin, end)
        report = find_duplicates(table, arguments.max)
    kind, failed = searched[0].kind, SourceState.FAILED
    searched += tuple(Coverage(searched[0].source, kind, failed, None, each) for each in problems)
    answer = Answer("duplicates", (), searched)
    _print(report, arguments.output, answer)
    print_notes(answer, report.unique_keys, "unique key")
    return exit_code(answer, report.unique_keys)


def _source(arguments: Namespace) -> tuple[Context, tuple[Coverage, ...]]:
    """Return the source to search and its coverage.

    This finds a wrong source before Spark starts, which takes seconds.
    """
    source = one_source(arguments, "--archive stands alone: leave out the other source")
    if source.archive is not None:
        from rocketlens.archive.archive import open_archive

        with open_archive(source.archive) as archive:
            covered = archive.status().coverage
    elif source.store is not None:
        from rocketlens.query.offline import open_store

        with open_store(source.store) as store:
            names = [name for each in arguments.topic or () for name in each.split(",")]
            listed = store.topics(names or None).coverage
            logs = (each for each in listed if each.kind is SourceKind.COMMIT_LOG)
            # The whole log is read, so queues do not matter.
            covered = tuple(replace(each, source=source.store, relies_on=None) for each in logs)
    elif source.namesrv is None:
        raise BadInput("no source is named: give --store DIR, --namesrv ADDR or --archive DIR")
    elif not arguments.topic:
        raise BadInput("a cluster needs --topic: give '*' for all topics")
    else:
        covered = (Coverage(source.namesrv, SourceKind.BROKER, SourceState.SEARCHED),)
    return source, tuple(each for each in covered if not each.is_failure)


def _read(
    spark: "SparkSession", source: Context, topics: str, begin: int | None, end: int | None
) -> "tuple[DataFrame, list[str]]":
    """Return the messages of a store or cluster, and its unreadable parts."""
    from rocketlens.bulk.messages import INT64
    from rocketlens.bulk.options import known_options
    from rocketlens.pipeline.cluster_scan import ClusterScan

    # Fail if messages are missing, unless the damage is already known.
    options = {"body": "false", "failOnDataLoss": "true"}
    if topics:
        options["topic"] = topics
    if begin is not None:
        options["startingTimestamp"] = str(begin)
    if end is not None:
        options["endingTimestamp"] = str(end)
    reader = spark.read.format("rocketmq")
    if source.store is None:
        options |= {"namesrv": str(source.namesrv), **reader_options(source)}
        scan = ClusterScan(known_options(options, "cluster reads"))
        scan.stored(*INT64)
        if scan.missing:
            options["failOnDataLoss"] = "false"
        return reader.options(**options).load(), scan.missing
    store = {"brokerConf" if Path(source.store).is_file() else "store": source.store}
    damage = spark.read.format("rocketmq").options(**store, table="damage").load().collect()
    problems = [
        f"{row.length} bytes of the log at {row.physical_offset}: {row.reason}" for row in damage
    ]
    if problems:
        options["failOnDataLoss"] = "false"
    return reader.options(**store, **options).load(), problems


def _print(report: "DuplicateReport", output: str, answer: Answer) -> None:
    if output == "json":
        copies: list[dict[str, Any]] = [
            asdict(each) | {"copies": [copy._asdict() for copy in each.copies]}
            for each in report.duplicates
        ]
        groups = [asdict(each) for each in report.groups]
        counts = {"messages": report.messages, "unique_keys": report.unique_keys}
        values = {**counts, "groups": groups, "duplicates": copies}
        searched = answer_fields(answer)
        print(json_line(values | {name: searched[name] for name in ("complete", "coverage")}))
        return
    rows = []
    for each in report.duplicates:
        first, last = each.copies[0], each.copies[-1]
        position = f"{each.topic}/{first.queue_id}/{first.queue_offset}"
        rows.append(
            (
                *(each.topic, each.unique_key, each.count, each.cause.value, each.producer),
                position,
                *(first.store_timestamp_ms, last.store_timestamp_ms),
            )
        )
    if output == "csv":
        print_csv(_CSV_TITLES, rows)
        return
    if rows:
        print_rows(_TITLES, [(*row[:-2], *map(Moment, row[-2:])) for row in rows])
    for group in report.groups:
        note(
            f"{group.topic}, producer {group.producer}, {group.cause}: "
            f"{counted(group.unique_keys, 'unique key')}, "
            f"{counted(group.copies, 'copy', 'copies')} beyond the first"
        )
    listed = len(report.duplicates)
    if listed < report.unique_keys:
        note(f"{listed} of {report.unique_keys} unique keys are listed (--max)")
    count = counted(report.unique_keys, "unique key")
    note(f"{counted(report.messages, 'message')} compared, {count} stored more than once")
