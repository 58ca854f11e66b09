"""``rocketlens index build``: index files and consume queues, from the log, with Spark."""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import (
    add_dry_run,
    add_index_geometry,
    add_master,
    add_store,
    positive_number,
    store_directory,
)
from rocketlens.errors import BadInput
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note, say, size_text

if TYPE_CHECKING:
    from rocketlens.pipeline.dispatch import DispatchResult
    from rocketlens.store.layout import StoreLayout

_MAX_DAMAGE_LINES: Final = 20
EXAMPLES: Final = (
    ("rocketlens index build --store /data/rocketmq/store", "index files, as a broker writes them"),
    ("rocketlens index build --queues", "consume queues, too"),
    ("rocketlens index build --dry-run", "what would be read, written and replaced"),
    ("rocketlens index build --out /tmp/index", "somewhere else: the store is only read"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "The broker must be stopped, unless --out is given. Defaults come from the store's own\n"
        "files, else from RocketMQ. Old files are replaced at the end, each in one step, and kept\n"
        "in rocketlens/replaced/ of the store until the next build."
    )
    add_store(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="write index/ and consumequeue/ here, not into the store"
    )
    parser.add_argument("--force", action="store_true", help="write even if --out is another store")
    add_index_geometry(parser)
    parser.add_argument("--queues", action="store_true", help="rebuild the consume queues, too")
    parser.add_argument(
        "--queue-file-size",
        metavar="BYTES",
        type=positive_number,
        help="size of consume queue files",
    )
    parser.add_argument(
        "--delay-levels",
        metavar="LEVELS",
        help='the broker\'s messageDelayLevel, for example "1s 5s 10s", if not the default',
    )
    add_dry_run(parser)
    add_master(parser)


def run(arguments: Namespace) -> ExitCode:
    """Build the files, and print what was built."""
    from rocketlens.bulk.workspace import check_output
    from rocketlens.cli.index.spark import ProgressLine, session
    from rocketlens.query.offline import open_store
    from rocketlens.store.layout import StoreLayout

    store = store_directory(arguments)
    layout = StoreLayout.of(store)
    # Refuse what can be refused before Spark takes seconds to start.
    open_store(store).close()
    _refuse_queue_options(arguments)
    delays_ms = _delays_ms(arguments.delay_levels)
    out = Path(arguments.out) if arguments.out else None
    check_output(layout.root, out, force=arguments.force)
    if arguments.dry_run:
        for line in (*read_lines(layout), *_write_lines(arguments, layout, out)):
            print(line)
        print("nothing was written or started (--dry-run)")
        return ExitCode.OK
    with session(arguments.master) as spark:
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
    """Return what a job would read of a store."""
    from rocketlens.store.read.log.commitlog import CommitLog

    log = CommitLog.of(layout)
    size = size_text(sum(segment.size for segment in log.segments))
    offsets = f"physical offsets {log.min_offset:,} to at most {log.max_offset:,}"
    yield f"would read      {size} of log in {counted(len(log.segments), 'file')}, {offsets}"
    log.close()


def _write_lines(arguments: Namespace, layout: "StoreLayout", out: Path | None) -> Iterator[str]:
    """Return what would be written where, and what would be replaced.

    :raises BadInput: if it could not be.
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


def _refuse_queue_options(arguments: Namespace) -> None:
    for value, option in (
        (arguments.queue_file_size, "--queue-file-size"),
        (arguments.delay_levels, "--delay-levels"),
    ):
        if value is not None and not arguments.queues:
            raise BadInput(f"{option} needs --queues")


def _delays_ms(levels: str | None) -> tuple[int, ...] | None:
    if levels is None:
        return None
    from rocketlens.model.rocketmq import parse_delay_levels

    try:
        return parse_delay_levels(levels)
    except ValueError as error:
        raise BadInput(f"--delay-levels: {error}") from error


def result_lines(result: "DispatchResult", *, with_queues: bool) -> Iterator[str]:
    """Return what was built, in a few lines."""
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
    # The rate of a small log means nothing.
    rate = f": {written / seconds:,.0f} entries a second" if written > 1_000_000 else ""
    yield f"took            {phases}{rate}"
    yield f"written to      {printable(str(result.out))}"
    for path in result.kept:
        yield f"kept aside      {printable(str(path))}"


def print_notes(result: "DispatchResult") -> None:
    """Print notes on the log and the result to stderr."""
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
