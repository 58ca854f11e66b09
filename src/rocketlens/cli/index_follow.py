"""``rocketlens index follow``: builds index files with Spark while a broker appends to its log.

``rocketlens serve`` runs this in a process of its own.
"""

import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from typing import Final

from rocketlens.cli.options import add_index_geometry, add_master, add_store, store_directory
from rocketlens.model.escape import printable
from rocketlens.terminal.exit_code import ExitCode

_NICE: Final = 5
_MEMORY: Final = "512m"
"""The JVM sees offsets and entries of one micro-batch, never messages."""


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


def run(arguments: Namespace) -> ExitCode:
    """Build index files until a signal comes, or standard input ends if that was asked for."""
    from rocketlens.cli.spark import session
    from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry
    from rocketlens.pipeline.follow import IndexFollower
    from rocketlens.pipeline.session import check_available
    from rocketlens.store.write.message_store import system_clock

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
        IndexFollower.open(
            store, geometry, with_tags=arguments.tag_index is not False, clock=system_clock
        ) as follower,
        session(arguments.master, memory=_MEMORY) as spark,
    ):
        offset = follower.writer.safe_offset
        print(f"ready: indexes {printable(str(store))} from {offset} on", flush=True)
        follower.follow(spark, stop)
    return ExitCode.OK


def _wait_for_end_of_stdin(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    stop.set()
