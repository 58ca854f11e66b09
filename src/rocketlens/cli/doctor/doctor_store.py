"""Checks of ``rocketlens doctor`` for a store directory, which is only read."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocketlens.cli.doctor.doctor_machine import (
    FREE_BYTES_NEEDED,
    Check,
    about,
    fail,
    free_space,
    listed,
    ok,
    warn,
)
from rocketlens.cli.doctor.doctor_sources import clock_check, offset_check
from rocketlens.cli.status import tap_words
from rocketlens.errors import RocketLensError
from rocketlens.model.status import StoreClosing
from rocketlens.model.text.counted import counted
from rocketlens.query.facts.examination import QueueFault, StoreExamination
from rocketlens.terminal.output import moment_text, size_text

_MAX_NOTE_BYTES: Final = 1 << 20
_MAX_TAIL_SECONDS: Final = 2.0
_MAX_LAG_BYTES: Final = 1 << 30
_MAX_STILL_SECONDS: Final = 60.0
_MAX_USED_RATIO: Final = 0.9
"""Disk usage at which RocketMQ refuses messages by default."""
_REBUILD: Final = "rocketlens index build --queues --store"
_REPAIR: Final = "restore those files from a backup; lost messages cannot be rebuilt"


def store_checks(store: Path) -> Iterator[Check]:
    """Check log, queues, index, tables, offsets, disk and clock of a store."""
    from rocketlens.query.facts.examination import Depth, StoreExamination
    from rocketlens.query.store_reader import StoreReader
    from rocketlens.store.layout import StoreLayout

    try:
        layout = StoreLayout.of(store)
        reader = StoreReader(layout)
    except (RocketLensError, OSError) as error:
        yield fail("store", str(error), "name the directory that holds commitlog/: --store DIR")
        return
    store = layout.root
    try:
        examined = StoreExamination(reader, Depth.LOG)
        yield from _log_files(examined)
        yield _owner(examined)
        yield from _tap(examined)
        contents = examined.contents
        yield from listed(_damage(examined))
        yield from _queues(examined)
        yield from _index(examined)
        yield from _builder(examined)
        yield from _tables(store)
        yield from listed(map(offset_check, examined.offset_faults()))
        yield from _name_taken(store)
        yield from _missing(store)
        yield from _disk(examined)
        if contents is not None and contents.newest_ms is not None:
            yield clock_check(contents.newest_ms, time.time_ns() // 1_000_000)
        detail = (
            "every record was read; entries of queues and index were not all compared: "
            "`rocketlens index verify` does"
        )
        if contents is None:
            detail = "not read, because it is long: `rocketlens index verify` reads all of it"
        yield about("log content", detail)
    except OSError as error:
        what = f"{error.filename or store}: {error.strerror or error}"
        yield fail("store", what, "make it readable, or check the disk")
    finally:
        reader.close()


def _log_files(examined: StoreExamination) -> Iterator[Check]:
    log = examined.reader.log
    yield ok(
        "store",
        f"{examined.layout.root}: {len(log.segments)} commit log files, "
        f"{size_text(examined.log_bytes)}, from physical offset {log.min_offset}, "
        f"written by {examined.written_by}",
    )
    if log.odd_files:
        names = ", ".join(log.odd_files[:10])
        detail = f"not read, because they are not commit log files: {names}"
        yield warn("commit log", detail, "move them out of commitlog/")


def _owner(examined: StoreExamination) -> Check:
    """Check whether a broker has the store open, or was killed."""
    closing = examined.closing
    if closing is StoreClosing.IN_USE:
        detail = "a broker or job is running: searching works, a rebuild needs --out or a copy"
        return ok("owner", detail)
    if closing is StoreClosing.KILLED:
        detail = (
            "no broker runs, but the file abort exists: it was killed, or this is a copy of a live "
            "store; searching works, the ends of its files may be unfinished"
        )
        return warn("owner", detail, "start its broker, which recovers the store")
    return ok("owner", "no broker runs, and the last one closed the store")


def _tap(examined: StoreExamination) -> Iterator[Check]:
    """Check the progress of a copy of a broker's log, and its gaps."""
    tap = examined.tap
    if tap is None:
        return
    detail = ", ".join(tap_words(tap))
    is_in_use = examined.closing is StoreClosing.IN_USE
    is_late = tap.behind_bytes > _MAX_LAG_BYTES or (bool(tap.problem) and is_in_use)
    if tap.gaps:
        yield warn(
            "tap", detail, "run the tap continuously, or let the broker keep messages longer"
        )
    elif is_late:
        yield warn(
            "tap", detail, "read the log of the tap; the broker deletes messages without waiting"
        )
    else:
        yield ok("tap", detail)


def _damage(examined: StoreExamination) -> Iterator[Check]:
    """List missing and damaged ranges of the log."""
    result = "messages there are lost, and answers that may lack them are incomplete"
    if examined.contents is None:
        for start, stop in examined.missing_log():
            detail = f"physical offsets {start} to {stop}: no segment has these offsets"
            yield fail("commit log", f"{detail}: {result}", _REPAIR)
    for damage in examined.damage():
        yield fail("commit log", f"{damage}: {result}", _REPAIR)


def _queues(examined: StoreExamination) -> Iterator[Check]:
    """Check that the queues exist and reach the end of the log."""
    from rocketlens.bulk.store_settings import queues_are_in_rocksdb
    from rocketlens.store.read.rocks import is_readable, needed

    name, path = "consume queues", examined.layout.root
    if queues_are_in_rocksdb(path):
        detail = "in RocksDB: entries that the broker has not written yet are looked up in the log"
        if not is_readable():
            detail = f"{needed()}; positions are looked up in the log"
        yield about(name, detail)
        return
    topics = examined.reader.queues.topics()
    if not topics:
        detail = "consumequeue/ is missing or empty: positions are looked up in the log"
        mend = f"{_REBUILD} {path}, or start its broker, which rebuilds it"
        yield warn(name, detail, mend)
        return
    faults = list(examined.queue_faults())
    if not faults:
        reach = (
            "as far as the log" if examined.contents is not None else "their last entries are right"
        )
        yield ok(name, f"{counted(len(topics), 'topic')}, {reach}")
    yield from listed(_queue_check(path, fault) for fault in faults)


def _queue_check(store: Path, fault: QueueFault) -> Check:
    from rocketlens.query.facts.examination import QueueFaultKind

    queue = f"consumequeue/{fault.name.topic}/{fault.name.queue_id}"
    messages = f"messages {fault.first} to {fault.stop - 1}"
    if fault.kind is QueueFaultKind.NOT_YET:
        detail = f"{queue} lacks the newest {messages}: a broker adds them when it starts"
        return about("consume queues", detail)
    what = {
        QueueFaultKind.MISSING: f"{queue} is missing: it should have {messages}, unless its topic "
        "was deleted and created again",
        QueueFaultKind.SHORT: f"{queue} ends at {fault.first}, and the log has {messages}",
        QueueFaultKind.HOLE: f"{queue} has no file for {messages}",
        QueueFaultKind.ASTRAY: f"{queue}: its last entry, {fault.first}, is no message of it",
    }[fault.kind]
    mend = f"{_REBUILD} {store}"
    if fault.kind is QueueFaultKind.MISSING:
        # Like a broker, a job treats a topic without queues as deleted.
        aside = f"mv {store}/consumequeue {store}/consumequeue.old"
        mend = f"stop its broker; {aside}; {mend}"
    return warn("consume queues", f"{what}; consumers do not receive them", mend)


def _disk(examined: StoreExamination) -> Iterator[Check]:
    store = examined.layout.root
    usage = shutil.disk_usage(store)
    ratio = usage.used / usage.total if usage.total else 0.0
    if ratio >= _MAX_USED_RATIO:
        detail = f"{store}: {ratio:.0%} of the disk is used: a broker refuses messages"
        mend = "make room, or keep messages for less time (fileReservedTime in broker.conf)"
        yield warn("disk", detail, mend)
        return
    yield free_space("disk", store, max(FREE_BYTES_NEEDED, examined.log_bytes // 2))


def _builder(examined: StoreExamination) -> Iterator[Check]:
    """Check the index builder of a RocketLens broker."""
    builder = examined.index_builder
    if builder is None:
        return
    behind = builder.behind_bytes
    detail = (
        f"{'running' if builder.is_running else 'not running'}; index files are synced up to "
        f"physical offset {builder.safe_offset}, {size_text(behind)} behind the log"
    )
    is_late = behind > _MAX_LAG_BYTES or (behind > 0 and not builder.is_running)
    silent_seconds = time.time() - builder.silent_since_ms / 1000
    if builder.is_running and behind > 0 and silent_seconds > _MAX_STILL_SECONDS:
        is_late = True
        detail += f"; it has written nothing for {silent_seconds:.0f} s, so it may hang"
    if is_late:
        mend = "restart its broker, or build them: rocketlens index build"
        yield warn("index builder", detail, mend)
    else:
        yield ok("index builder", detail)


def _tables(store: Path) -> Iterator[Check]:
    from rocketlens.broker.tables.config_table import damaged_tables

    for problem in damaged_tables(store / "config"):
        mend = "start its broker, which keeps the damaged file; or restore the file from a backup"
        yield warn("config", problem, mend)


def _name_taken(store: Path) -> Iterator[Check]:
    """Report another broker that registered under this broker's name."""
    from rocketlens.store.fs import read_bytes
    from rocketlens.store.layout import StoreLayout

    try:
        note = json.loads(read_bytes(StoreLayout(store).name_taken, _MAX_NOTE_BYTES) or b"null")
        if note is None:
            return
        now = "; ".join(f"{server} leads to {other}" for server, other in note["takenBy"].items())
        detail = (
            f"another broker registered under the name {note['brokerName']}, last "
            f"{note['lastBy']} at {moment_text(note['lastTimestampMs'])}; "
            f"{now or 'all name servers lead to this broker again'}"
        )
        yield warn("broker name", detail, "set brokerName to a name of its own in broker.conf")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        detail = f"rocketlens/name_taken.json cannot be read: {error!r}"
        yield warn("broker name", detail, f"rm {store}/rocketlens/name_taken.json")


def _missing(store: Path) -> Iterator[Check]:
    """List directories that a killed job removed and did not replace."""
    from rocketlens.store.disk import missing_directories

    for name in missing_directories(store):
        detail = (
            f"{name}/ is missing: the job that was replacing it was killed; answers come from the "
            "log until a broker or job opens the store"
        )
        yield warn(name, detail, f"{_REBUILD} {store}")


def _index(examined: StoreExamination) -> Iterator[Check]:
    """Check the index files, and how long it takes to read the log that they do not cover."""
    reader = examined.reader
    states = reader.index.states
    damaged = [state for state in states if state.file is None]
    sound = reader.index.sound
    entries = sum(file.header.last_entry for file in sound)
    detail = f"{counted(len(sound), 'file')}, {counted(entries, 'entry', 'entries')}"
    mend = f"rocketlens index build --store {reader.path}"
    if states:
        yield ok("index", detail)
    else:
        yield warn("index", "no index files: searching reads the log", mend)
    yield from listed(
        warn(
            "index", f"{state.path.name} is damaged: {state.error}; answers come from the log", mend
        )
        for state in damaged
    )
    begin = time.monotonic()
    _ = reader.tail
    seconds = time.monotonic() - begin
    detail = f"each search first reads the log that the index does not cover: {seconds:.1f} s"
    yield (
        ok("not indexed", detail)
        if seconds < _MAX_TAIL_SECONDS
        else warn("not indexed", detail, mend)
    )
