"""``rocketlens index follow``: builds index files with Spark while a broker appends to its log.

``rocketlens serve`` runs this in a process of its own.
"""

import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import (
    add_index_geometry,
    add_log_options,
    add_master,
    add_metrics_port,
    add_store,
    store_directory,
)
from rocketlens.cli.servers.servers import status_port
from rocketlens.model.text.escape import printable
from rocketlens.terminal.exit_code import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric

    from rocketlens.net.status_port import StatusSource
    from rocketlens.pipeline.follow import IndexFollower

_NICE: Final = 5
_MEMORY: Final = "512m"
"""The JVM sees offsets and entries of one micro-batch, never messages."""

EXAMPLES: Final = (
    (
        "rocketlens index follow --store /data/rocketlens/store",
        "build index files while a broker of ours runs",
    ),
    ("rocketlens index follow --master 'local[1]'", "with one thread"),
    ("rocketlens index follow --tag-index", "with entries for tags"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "`rocketlens serve` runs this itself. It resumes where the last builder stopped, runs at\n"
        "low priority, and stops on SIGTERM. Messages that are not indexed yet are found all the\n"
        "same."
    )
    add_store(parser)
    add_index_geometry(parser)
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="stop when standard input ends, too"
    )
    add_master(parser)
    add_log_options(parser)
    add_metrics_port(parser)


def run(arguments: Namespace) -> ExitCode:
    """Build index files until a signal comes, or standard input ends if that was asked for."""
    import logging

    from rocketlens.cli.index.spark import sql_session
    from rocketlens.cli.servers.log_lines import log_to_stderr
    from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry
    from rocketlens.pipeline.follow import IndexFollower
    from rocketlens.pipeline.session import check_available
    from rocketlens.store.write.message_store import system_clock

    log_to_stderr(arguments)
    # It logs each call.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    store = store_directory(arguments)
    check_available()
    # The broker on this machine comes first: unindexed messages are found all the same.
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
        sql_session(arguments.master, memory=_MEMORY) as spark,
    ):
        if status is not None:
            status.add(_status_source(follower))
        offset = follower.writer.safe_offset
        print(f"ready: indexes {printable(str(store))} from {offset} on", flush=True)
        follower.follow(spark, stop)
    return ExitCode.OK


def _status_source(follower: "IndexFollower") -> "StatusSource":
    """Return what the builder says of itself, to the port of ``--metrics-port``."""
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
