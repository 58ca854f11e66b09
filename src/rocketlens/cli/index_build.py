"""``rocketlens index build``: index files and consume queues, from the log, with Spark."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.cli.options import (
    add_index_geometry,
    add_master,
    add_store,
    positive_number,
    store_directory,
)
from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from rocketlens.pipeline.dispatch import DispatchResult

_MAX_DAMAGE_LINES: Final = 20


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = (
        "The broker must be stopped, unless --out is given. Defaults come from the store's own\n"
        "files, else from RocketMQ. Old files are replaced at the end, each in one step."
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
    add_master(parser)


def run(arguments: Namespace) -> ExitCode:
    """Build the files, and print what was built."""
    from rocketlens.bulk.workspace import check_output
    from rocketlens.cli.spark import ProgressLine, session
    from rocketlens.query.offline import open_store

    store = store_directory(arguments)
    # Refuse what can be refused before Spark takes seconds to start.
    open_store(store).close()
    _refuse_queue_options(arguments)
    delays_ms = _delays_ms(arguments.delay_levels)
    out = Path(arguments.out) if arguments.out else None
    check_output(store, out, force=arguments.force)
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
    return ExitCode.OK


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
    yield f"log             {result.records:,} records, {end}"
    yield (
        f"index           {result.index_entries:,} entries in {result.index_files} files of "
        f"{geometry.slot_count:,} slots and {geometry.entry_count:,} entries, "
        f"{'with' if result.tag_index else 'without'} tags"
    )
    if with_queues:
        yield (
            f"consume queues  {result.queue_entries:,} entries in {result.queue_files} files of "
            f"{result.queues} queues"
        )
    seconds = sum(result.seconds.values())
    phases = ", ".join(f"{phase} {taken:.1f} s" for phase, taken in result.seconds.items())
    entries = result.index_entries + result.queue_entries
    # The rate of a small log means nothing.
    rate = f": {entries / seconds:,.0f} entries a second" if entries > 1_000_000 else ""
    yield f"took            {phases}{rate}"
    yield f"written to      {printable(str(result.out))}"


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
