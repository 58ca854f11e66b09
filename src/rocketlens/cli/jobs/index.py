"""``rocketlens index``: builds index files and consume queues with Spark, or checks them."""

import os
import shlex
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, astuple

from rocketlens.cli.jobs.spark import ProgressLine, sql_session, task_context
from rocketlens.cli.options import (
    add_dry_run,
    add_index_geometry,
    add_list_output,
    add_log_options,
    add_master,
    add_metrics_port,
    add_store,
    option,
    positive_number,
    store_directory,
)
from rocketlens.cli.printing import print_csv
from rocketlens.cli.servers.servers import status_port
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import parse_delay_levels
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import json_line
from rocketlens.terminal.output import ExitCode, note, say, size_text

if TYPE_CHECKING:
    from prometheus_client import Metric

    from rocketlens.net.status_port import StatusSource
    from rocketlens.pipeline.dispatch import DispatchResult
    from rocketlens.pipeline.follow import IndexFollower
    from rocketlens.pipeline.verify import VerifyReport
    from rocketlens.store.layout import StoreLayout

_MAX_DAMAGE_LINES: Final = 20
BUILD_EXAMPLES: Final = """
rocketlens index build --store /data/rocketmq/store  # index files, as a broker writes them
rocketlens index build --queues  # and consume queues
rocketlens index build --dry-run  # print what would be read, written and replaced
rocketlens index build --out /tmp/index  # write to another directory
"""


def build_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "The broker must be stopped, unless --out is given. Defaults are those of the store's own\n"
        "files, else RocketMQ's. Old directories are replaced atomically at the end, and kept in\n"
        "rocketlens/replaced/ of the store until the next build."
    )
    add_store(parser)
    add = partial(option, parser)
    add("--out DIR", "write index/ and consumequeue/ to this directory, not to the store")
    add("--force", "write even if --out is another store")
    add_index_geometry(parser)
    add("--queues", "also rebuild the consume queues")
    add("--queue-file-size BYTES", "size of consume queue files", type=positive_number)
    add(
        "--delay-levels LEVELS",
        'the broker\'s messageDelayLevel, for example "1s 5s 10s", if not the default',
    )
    add_dry_run(parser)
    add_master(parser)


def run_build(arguments: Namespace) -> ExitCode:
    from rocketlens.bulk.workspace import check_output
    from rocketlens.query.offline import open_store
    from rocketlens.store.layout import StoreLayout

    store = store_directory(arguments)
    layout = StoreLayout.of(store)
    # Find errors before Spark starts, which takes seconds.
    open_store(store).close()
    for name in ("queue_file_size", "delay_levels"):
        if getattr(arguments, name) is not None and not arguments.queues:
            raise BadInput(f"--{name.replace('_', '-')} needs --queues")
    delays_ms = _delays_ms(arguments.delay_levels)
    out = Path(arguments.out) if arguments.out else None
    check_output(layout.root, out, force=arguments.force)
    if arguments.dry_run:
        for line in (*read_lines(layout), *_write_lines(arguments, layout, out)):
            print(line)
        print("nothing was written or started (--dry-run)")
        return ExitCode.OK
    spark = task_context(arguments.master)

    from rocketlens.pipeline.dispatch import dispatch

    result = dispatch(
        spark,
        store,
        out=out,
        force=arguments.force,
        slot_count=arguments.slots,
        entry_count=arguments.entries,
        tag_index=arguments.tag_index,
        queues=arguments.queues,
        queue_file_size=arguments.queue_file_size,
        delays_ms=delays_ms,
        progress=ProgressLine(),
    )
    for line in result_lines(result, with_queues=arguments.queues):
        print(line)
    print_notes(result)
    if out is None:
        say(f"next: rocketlens index verify --store {shlex.quote(printable(str(store)))}")
    return ExitCode.OK


def read_lines(layout: "StoreLayout") -> Iterator[str]:
    from rocketlens.store.read.log.commitlog import CommitLog

    log = CommitLog.of(layout)
    size = size_text(sum(segment.size for segment in log.segments))
    offsets = f"physical offsets {log.min_offset:,} to at most {log.max_offset:,}"
    yield f"would read      {size} of log in {counted(len(log.segments), 'file')}, {offsets}"
    log.close()


def _write_lines(arguments: Namespace, layout: "StoreLayout", out: Path | None) -> Iterator[str]:
    """Yield what would be written and replaced.

    :raises BadInput: if it cannot be written.
    """
    from rocketlens.bulk import store_settings
    from rocketlens.bulk.workspace import KEPT
    from rocketlens.pipeline.dispatch import chosen_geometry
    from rocketlens.store.disk import Disk
    from rocketlens.store.read.log.commitlog import CommitLog

    store = layout.root
    root = store if out is None else out
    if arguments.queues and root == store and store_settings.queues_are_in_rocksdb(store):
        raise BadInput(f"the consume queues of {store} are in RocksDB, which is not rebuilt here")
    geometry = chosen_geometry(store, arguments.slots, arguments.entries)
    with_tags = arguments.tag_index
    if with_tags is None:
        with closing(CommitLog.of(layout)) as log:
            with_tags = store_settings.has_tag_entries(store, log, geometry)
    where = printable(str(root))
    tags = "with" if with_tags else "without"
    yield (
        f"would write     {where}/index: files of {geometry.slot_count:,} slots and "
        f"{geometry.entry_count:,} entries, {tags} tags"
    )
    if arguments.queues:
        size = arguments.queue_file_size or store_settings.queue_file_bytes(store)
        yield f"would write     {where}/consumequeue: files of {size:,} bytes"
    for name in ("index", "consumequeue")[: 1 + arguments.queues]:
        if (root / name).is_dir():
            kept = f", kept as {where}/{KEPT}/{name}" if root == store else ""
            yield f"would replace   {where}/{name}{kept}"
    free = size_text(Disk().space(root if root.is_dir() else root.parent).free)
    yield f"free            {free} on the disk of {where}"


def _delays_ms(levels: str | None) -> tuple[int, ...] | None:
    if levels is None:
        return None

    try:
        return parse_delay_levels(levels)
    except ValueError as error:
        raise BadInput(f"--delay-levels: {error}") from error


def result_lines(result: "DispatchResult", *, with_queues: bool) -> Iterator[str]:
    geometry = result.geometry
    end = f"up to physical offset {result.log_end_offset:,}"
    yield f"log             {counted(result.records, 'record')}, {end}"
    entries = counted(result.index_entries, "entry", "entries")
    yield (
        f"index           {entries} in {counted(result.index_files, 'file')} of "
        f"{geometry.slot_count:,} slots and {geometry.entry_count:,} entries, "
        f"{'with' if result.tag_index else 'without'} tags"
    )
    if with_queues:
        entries = counted(result.queue_entries, "entry", "entries")
        yield (
            f"consume queues  {entries} in {counted(result.queue_files, 'file')} of "
            f"{counted(result.queues, 'queue')}"
        )
    seconds = sum(result.seconds.values())
    phases = ", ".join(f"{phase} {taken:.1f} s" for phase, taken in result.seconds.items())
    written = result.index_entries + result.queue_entries
    # The rate of a small log is meaningless.
    rate = f": {written / seconds:,.0f} entries a second" if written > 1_000_000 else ""
    yield f"took            {phases}{rate}"
    yield f"written to      {printable(str(result.out))}"
    for path in result.kept:
        yield f"kept aside      {printable(str(path))}"


def print_notes(result: "DispatchResult") -> None:
    for damage in result.damage[:_MAX_DAMAGE_LINES]:
        where = f"{damage.length} bytes at physical offset {damage.start}"
        note(f"damaged log, left out: {where}: {damage.reason}")
    if result.damage_count > _MAX_DAMAGE_LINES:
        note(f"{result.damage_count} damaged ranges in all: see rocketlens index verify")
    if result.torn is not None:
        note(f"unfinished write at the end of the log, left out: {result.torn}")
    if result.delay_levels is not None:
        note(f"delay levels: from {result.delay_levels.source}")
    for text in result.notes:
        note(text)


_MAX_LISTED_OF_A_KIND: Final = 5
VERIFY_EXAMPLES: Final = """
rocketlens index verify --store /data/rocketmq/store  # compare log, queues and index
rocketlens index verify -o json  # each finding, as JSON
rocketlens index verify --master 'spark://host:7077'  # on a Spark cluster
"""


def verify_options(parser: ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 they agree, 1 they differ, 2 wrong usage or an error."
    add_store(parser)
    add_list_output(parser, "text (default), CSV of the findings, or one JSON object")
    add_dry_run(parser)
    add_master(parser)


def run_verify(arguments: Namespace) -> ExitCode:
    from rocketlens.query.offline import open_store

    store = store_directory(arguments)
    # Find errors before Spark starts, which takes seconds.
    open_store(store).close()
    if arguments.dry_run:
        from rocketlens.store.layout import StoreLayout

        for line in read_lines(StoreLayout.of(store)):
            print(line)
        print("nothing was compared or started (--dry-run)")
        return ExitCode.OK
    spark = task_context(arguments.master)

    from rocketlens.pipeline.verify import verify

    report = verify(spark, store, progress=ProgressLine())
    if arguments.output == "json":
        print(json_line(report_fields(report)))
    elif arguments.output == "csv":
        from rocketlens.bulk.report import Finding

        print_csv(Finding.__struct_fields__, map(astuple, report.findings))
    else:
        for line in report_lines(report):
            print(line)
    for text in report.notes:
        note(text)
    return ExitCode.OK if report.is_sound else ExitCode.NO


def report_fields(report: "VerifyReport") -> dict[str, Any]:
    return {
        "store": str(report.store),
        "agrees": report.is_sound,
        "records": report.records,
        "log_end_offset": report.log_end_offset,
        "queues": report.queues,
        "queue_entries": report.queue_entries,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
        "counts": {str(kind): count for kind, count in report.counts.items()},
        "findings": [asdict(finding) for finding in report.findings],
        "not_compared": report.not_compared,
        "notes": report.notes,
    }


def report_lines(report: "VerifyReport") -> Iterator[str]:
    """Yield a report as text: what was compared, some findings of each kind, the verdict."""
    end = f"up to physical offset {report.log_end_offset:,}"
    yield f"log             {counted(report.records, 'record')}, {end}"
    entries = counted(report.queue_entries, "entry", "entries")
    yield f"consume queues  {entries} in {counted(report.queues, 'queue')}"
    entries = counted(report.index_entries, "entry", "entries")
    yield f"index           {entries} in {counted(report.index_files, 'file')}"
    for kind, count in report.counts.items():
        yield f"{kind}: {count:,}"
        listed = [finding for finding in report.findings if finding.kind == kind]
        for finding in listed[:_MAX_LISTED_OF_A_KIND]:
            # The heading is the kind.
            yield f"  {printable(str(finding).removeprefix(f'{kind}: '))}"
        if count > _MAX_LISTED_OF_A_KIND:
            yield f"  ... (-o json lists {len(listed):,})"
    for text in report.not_compared:
        yield f"not compared: {printable(text)}"
    if report.is_sound and report.not_compared:
        yield "log, consume queues and index agree, as far as they were compared"
    elif report.is_sound:
        yield "log, consume queues and index agree"
    else:
        total = report.counts.total()
        yield f"they differ: {counted(total, 'finding')}"
        store = shlex.quote(printable(str(report.store)))
        yield (
            "to mend: stop the broker, then: rocketlens index build --queues --store "
            f"{store} (it keeps the replaced files); damaged log cannot be rebuilt"
        )


_NICE: Final = 5
_MEMORY: Final = "512m"
"""The JVM sees offsets and entries of one micro-batch, never messages."""

FOLLOW_EXAMPLES: Final = """
# build index files while a RocketLens broker runs
rocketlens index follow --store /data/rocketlens/store
rocketlens index follow --master 'local[1]'  # with one thread
rocketlens index follow --tag-index  # with entries for tags
"""


def follow_options(parser: ArgumentParser) -> None:
    parser.epilog = (
        "`rocketlens serve` runs this command. It resumes where the last builder stopped, runs at\n"
        "low priority, and stops on SIGTERM. Searches also find messages that are not indexed yet."
    )
    add_store(parser)
    add_index_geometry(parser)
    option(parser, "--until-stdin-ends", "also stop when standard input ends")
    add_master(parser)
    add_log_options(parser)
    add_metrics_port(parser)


def run_follow(arguments: Namespace) -> ExitCode:
    """Build index files until a signal, or with --until-stdin-ends until standard input ends."""
    import logging

    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry
    from rocketlens.pipeline.follow import IndexFollower
    from rocketlens.pipeline.session import check_available
    from rocketlens.store.write.message_store import system_clock

    log_to_stderr(arguments)
    # py4j logs each call.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    store = store_directory(arguments)
    check_available(with_sql=True)
    # The broker has priority: searches also find messages that are not indexed.
    os.nice(_NICE)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if arguments.until_stdin_ends:
        threading.Thread(target=_wait_for_end_of_stdin, args=(stop,), daemon=True).start()
    geometry = Geometry(
        arguments.slots or DEFAULT_GEOMETRY.slot_count,
        arguments.entries or DEFAULT_GEOMETRY.entry_count,
    )
    with (
        status_port(arguments) as status,
        IndexFollower.open(
            store, geometry, with_tags=arguments.tag_index is not False, clock=system_clock
        ) as follower,
    ):
        spark = sql_session(arguments.master, memory=_MEMORY)
        if status is not None:
            status.add(_status_source(follower))
        offset = follower.writer.safe_offset
        print(f"ready: indexes {printable(str(store))} from {offset} on", flush=True)
        follower.follow(spark, stop)
    return ExitCode.OK


def _status_source(follower: "IndexFollower") -> "StatusSource":
    """Return the builder's metrics for --metrics-port."""
    from rocketlens.net.status_port import StatusSource
    from rocketlens.store.layout import StoreLayout
    from rocketlens.store.read.state import read_synced_offset

    async def collect() -> "Iterable[Metric]":
        from prometheus_client.core import GaugeMetricFamily

        safe_offset = follower.writer.safe_offset
        synced_offset = read_synced_offset(StoreLayout(follower.store)) or 0
        metrics: list[Metric] = []
        for name, meaning, number in (
            ("rocketlens_index_safe_offset", "Log covered by index files.", safe_offset),
            (
                "rocketlens_index_behind_bytes",
                "Bytes of the log that index files do not cover yet.",
                max(synced_offset - safe_offset, 0),
            ),
        ):
            metric = GaugeMetricFamily(name, meaning, labels=("node_type", "node_id"))
            metric.add_metric(("index_builder", str(follower.store)), float(number))
            metrics.append(metric)
        return metrics

    return StatusSource("index builder", None, collect, list)


def _wait_for_end_of_stdin(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    stop.set()
