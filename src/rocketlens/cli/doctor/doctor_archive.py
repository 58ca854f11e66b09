"""What ``rocketlens doctor`` checks of an archive, without changing anything in it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocketlens.archive.tables import KEYS, MESSAGES
from rocketlens.cli.doctor.doctor_check import Check, about, fail, listed, ok, warn
from rocketlens.errors import RocketLensError
from rocketlens.model.text.counted import counted
from rocketlens.terminal.output import size_text
from rocketlens.terminal.times import time_text

if TYPE_CHECKING:
    from rocketlens.archive.lists import DataFile
    from rocketlens.archive.source import ArchiveSource
    from rocketlens.model.status import ArchivedSourceStatus

_MAX_FILES: Final = 2_000
"""Files that are opened: 1 ms each."""


def archive_checks(root: str) -> Iterator[Check]:
    """Check an archive: its tables, what was archived of each source, its gaps and its files."""
    from rocketlens.archive.source import ArchiveSource

    try:
        source = ArchiveSource(root)
    except (RocketLensError, OSError) as error:
        yield fail("archive", str(error), "name its directory or address: --archive DIR")
        return
    try:
        status = source.status()
        yield ok(
            "archive",
            f"{root}: {counted(status.topics, 'topic')}, {counted(status.files, 'file')}, "
            f"{size_text(status.size_bytes)}",
        )
        if not status.sources:
            yield warn("source", "nothing was archived yet", "rocketlens archive run")
        yield from listed(map(_source, status.sources))
        yield from listed(_behind(status.sources))
        yield from listed(_gaps(status.sources))
        yield from listed(_tables(source))
        yield from _unfinished(source)
        yield from listed(_files(source))
    except (RocketLensError, OSError) as error:
        yield fail("archive", str(error), "make it readable, and check again")
    finally:
        source.close()


def _source(source: "ArchivedSourceStatus") -> Check:
    held = "no messages"
    if source.oldest_ms is not None and source.newest_ms is not None:
        held = (
            f"{counted(source.messages, 'message')} archived, kept from "
            f"{time_text(source.oldest_ms)} to {time_text(source.newest_ms)}"
        )
    topics = f" ({', '.join(source.topics)})" if source.topics else ""
    text = (
        f"{source.name}{topics}: {held}; the last batch was added {time_text(source.archived_ms)}"
    )
    return about("source", text)


def _behind(sources: "tuple[ArchivedSourceStatus, ...]") -> Iterator[Check]:
    mend = "run `rocketlens archive run` again, and see that all brokers are registered"
    found = [
        warn("behind", f"{each.name}: {what}", mend) for each in sources for what in each.behind
    ]
    yield from found or [
        ok("behind", "all was archived that sources had when they were asked last")
    ]


def _gaps(sources: "tuple[ArchivedSourceStatus, ...]") -> Iterator[Check]:
    mend = "archive more often than brokers delete; what they deleted is lost"
    found = [warn("gap", f"{each.name}: {gap}", mend) for each in sources for gap in each.gaps]
    yield from found or [ok("gaps", "nothing is missing between what was archived")]


def _tables(source: "ArchiveSource") -> Iterator[Check]:
    mend = "restore the archive from a backup; answers say that they are incomplete"
    for problem in source.reader.problems:
        yield fail("table", problem, mend)


def _unfinished(source: "ArchiveSource") -> Iterator[Check]:
    if source.reader.tables.missing_keys(source.reader.listing.batches):
        detail = "a job ended before it had added the keys of its last batch; look-ups read them"
        yield warn("last batch", detail, "run the same `rocketlens archive run` again")


def _files(source: "ArchiveSource") -> Iterator[Check]:
    """Open files, the newest first; one that was replaced meanwhile is none of the archive."""
    tables = {MESSAGES: source.reader.listing.messages, KEYS: source.reader.keys}
    chosen = sorted(
        ((table, file) for table, files in tables.items() for file in files),
        key=lambda of_table: of_table[1].day,
    )[: -_MAX_FILES - 1 : -1]
    found = {file.path: _problem(source, table, file) for table, file in chosen}
    problems = {path: reason for path, reason in found.items() if reason is not None}
    if problems:
        source.refresh()
        there = {each.path for each in (*source.reader.listing.messages, *source.reader.keys)}
        problems = {path: reason for path, reason in problems.items() if path in there}
    for path, reason in problems.items():
        mend = "restore it from a backup: its messages are missing from answers, which say so"
        yield fail("file", f"{path}: {reason}", mend)
    if not problems:
        yield ok("files", f"{counted(len(chosen), 'file')} can be opened")


def _problem(source: "ArchiveSource", table: str, file: "DataFile") -> str | None:
    from rocketlens.archive.tables import check_file

    location = source.reader.tables.location
    try:
        with location.parquet(file.path) as opened:
            check_file(opened, table, file.path, file.rows)
    except (OSError, ValueError) as error:
        return location.reason(error)
    return None
