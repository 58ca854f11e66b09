"""``rocketlens doctor``: checks of this machine and of a store."""

import os
import platform
import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens.cli.options import add_store
from rocketlens.cli.table import size_text
from rocketlens.errors import RocketLensError
from rocketlens.model.escape import printable
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import BOLD, GREEN, RED, YELLOW, coloured

if TYPE_CHECKING:
    from rocketlens.query.store_reader import StoreReader

_OK, _WARN, _FAIL, _NOTE = "ok", "warn", "fail", "note"
_COLOURS: Final = {_OK: GREEN, _WARN: YELLOW, _FAIL: RED, _NOTE: BOLD}
_MAX_LISTED: Final = 10
_MAX_NOTE_BYTES: Final = 1 << 20
_MIN_FREE_BYTES: Final = 1 << 30
_MAX_TAIL_SECONDS: Final = 2.0
_MAX_LAG_BYTES: Final = 1 << 30
_MAX_STILL_SECONDS: Final = 60.0


class Check(NamedTuple):
    """One line: a state, what was checked, and the finding or what to do."""

    state: str
    name: str
    detail: str


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = "exit codes: 0 healthy, 1 a check failed, 2 wrong usage or an error."
    add_store(parser)


def run(arguments: Namespace) -> ExitCode:
    """Print a line for each check; the exit code is NO if one failed."""
    checks = [*machine_checks()]
    if arguments.store:
        checks += store_checks(Path(arguments.store))
    for check in checks:
        state = coloured(f"{check.state:5}", _COLOURS[check.state], sys.stdout)
        print(f"{state} {check.name:14} {printable(check.detail)}")
    return ExitCode.NO if any(check.state == _FAIL for check in checks) else ExitCode.OK


def machine_checks() -> Iterator[Check]:
    """Check what is needed to search, then what Spark needs."""
    for check in (_python, _kernels, _java, _pyspark, _workers, _temporary):
        yield from _guarded(check)


def _guarded(check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Turn whatever a check raises into a failure of that check."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - a broken installation can raise anything
        yield Check(_FAIL, check.__name__.strip("_"), f"{type(error).__name__}: {error}")


def _python() -> Iterator[Check]:
    version = platform.python_version()
    state = _OK if sys.version_info >= (3, 11) else _FAIL
    yield Check(state, "Python", f"{version} ({sys.executable}), needs 3.11 or newer")


def _kernels() -> Iterator[Check]:
    from importlib import metadata

    import numpy as np

    from rocketlens.formats import kernels

    found = kernels.find_record(np.zeros(64, np.uint8), 0, 0, 64)
    state = _OK if found == -1 else _FAIL
    versions = f"numpy {np.__version__}, numba {metadata.version('numba')}"
    yield Check(
        state, "kernels", f"{versions}: compiled code {'works' if found == -1 else 'fails'}"
    )


def _java() -> Iterator[Check]:
    from rocketlens.pipeline.session import INSTALL_JDK, OLDEST_JDK, find_java

    try:
        java, version = find_java()
    except RocketLensError as error:
        yield Check(_WARN, "Java", f"{error} (only `index build` and `index verify` need it)")
        return
    state = _OK if version >= OLDEST_JDK else _WARN
    detail = f"{version} ({java})"
    yield Check(state, "Java", detail if state == _OK else f"{detail}: {INSTALL_JDK}")


def _pyspark() -> Iterator[Check]:
    from importlib import metadata

    from rocketlens.pipeline.session import INSTALL_PYSPARK

    versions = []
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield Check(_WARN, "PySpark", f"{name} is not installed: {INSTALL_PYSPARK}")
            return
    yield Check(_OK, "PySpark", ", ".join(versions))


def _workers() -> Iterator[Check]:
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is None:
        found = shutil.which("python3")
        same = found is not None and Path(found).resolve() == Path(sys.executable).resolve()
        hint = "" if same else f"; for Spark sessions of your own set it to {sys.executable}"
        yield Check(_OK, "PYSPARK_PYTHON", f"not set, which is fine for the commands here{hint}")
        return
    path = shutil.which(chosen)
    if path is None:
        yield Check(
            _WARN, "PYSPARK_PYTHON", f"{chosen} is not a program: set it to {sys.executable}"
        )
    elif Path(path).resolve() != Path(sys.executable).resolve():
        detail = (
            f"{chosen} is not the Python that runs this; the commands here use {sys.executable}"
        )
        yield Check(_WARN, "PYSPARK_PYTHON", detail)
    else:
        yield Check(_OK, "PYSPARK_PYTHON", chosen)


def _temporary() -> Iterator[Check]:
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(b"rocketlens")
    yield _free_space("temp dir", Path(tempfile.gettempdir()))


def _free_space(name: str, directory: Path, needed_bytes: int = _MIN_FREE_BYTES) -> Check:
    free = shutil.disk_usage(directory).free
    detail = f"{directory}: {size_text(free)} free"
    if free < needed_bytes:
        return Check(_WARN, name, f"{detail}; a rebuild may need {size_text(needed_bytes)}")
    return Check(_OK, name, detail)


def store_checks(store: Path) -> Iterator[Check]:
    """Check a store directory, without changing anything in it."""
    from rocketlens.query.store_reader import StoreReader

    try:
        source = StoreReader(store)
    except (RocketLensError, OSError) as error:
        yield Check(_FAIL, "store", f"{error}: give the directory that holds commitlog/")
        return
    log = source.log
    log_bytes = sum(segment.size for segment in log.segments)
    yield Check(
        _OK,
        "store",
        f"{store}: {len(log.segments)} commit log files, {size_text(log_bytes)}, "
        f"from physical offset {log.min_offset}",
    )
    if log.odd_files:
        names = ", ".join(log.odd_files[:_MAX_LISTED])
        yield Check(
            _WARN, "commit log", f"not read, because they are not commit log files: {names}"
        )
    try:
        yield _owner(store)
        yield from _holes(source)
        yield _queues(source)
        yield from _index(source)
        yield from _builder(store)
        yield from _tables(store)
        yield from _name_taken(store)
        yield from _missing(store)
        yield _free_space("disk", store, needed_bytes=max(_MIN_FREE_BYTES, log_bytes // 2))
        detail = "only what is not indexed was read: `rocketlens index verify` reads all of the log"
        yield Check(_NOTE, "log content", detail)
    except OSError as error:
        yield Check(_FAIL, "store", f"{error.filename or store}: {error.strerror or error}")
    finally:
        source.close()


def _owner(store: Path) -> Check:
    """Check the lock, and ``abort``: whether a broker runs, or was killed."""
    from rocketlens.store.lock import is_locked

    if is_locked(store):
        detail = "a broker or job is running: searching works, a rebuild needs --out or a copy"
        return Check(_OK, "owner", detail)
    if (store / "abort").exists():
        detail = (
            "no broker runs, but the file abort exists: it was killed, or this is a copy of a live "
            "store; searching works, the ends of its files may be unfinished"
        )
        return Check(_WARN, "owner", detail)
    return Check(_OK, "owner", "no broker runs, and the last one closed the store")


def _holes(source: "StoreReader") -> Iterator[Check]:
    """List the ranges of the log whose files are missing."""
    segments = source.log.segments
    holes = [
        (before.end_offset, after.base_offset)
        for before, after in pairwise(segments)
        if before.end_offset < after.base_offset
    ]
    for start, stop in holes[:_MAX_LISTED]:
        detail = f"no file has physical offsets {start} to {stop}: messages there are lost"
        yield Check(_WARN, "commit log", f"{detail}, and answers that may lack them are incomplete")
    if len(holes) > _MAX_LISTED:
        yield Check(_WARN, "commit log", f"{len(holes)} ranges are missing in all")


def _queues(source: "StoreReader") -> Check:
    """Check that the store has consume queues."""
    from rocketlens.bulk.store_settings import queues_are_in_rocksdb

    if queues_are_in_rocksdb(source.path):
        detail = "in RocksDB, which is not read: positions are looked up in the log"
        return Check(_NOTE, "consume queues", detail)
    topics = source.queues.topics()
    if topics:
        detail = f"{len(topics)} topics; `rocketlens index verify` compares them with the log"
        return Check(_OK, "consume queues", detail)
    detail = (
        "consumequeue/ is empty: positions are looked up in the log; a broker rebuilds it when it "
        "starts, and so does `rocketlens index build --queues`"
    )
    return Check(_WARN, "consume queues", detail)


def _builder(store: Path) -> Iterator[Check]:
    """Check how far a RocketLens broker's index is behind its log, and whether a builder runs."""
    from rocketlens.store.layout import INDEX_LOCK, StoreLayout
    from rocketlens.store.lock import is_locked
    from rocketlens.store.read.index_state import safe_offset_of
    from rocketlens.store.read.state import read_synced_offset

    layout = StoreLayout(store)
    synced = read_synced_offset(layout)
    if synced is None:
        return
    safe = safe_offset_of(layout)
    runs = is_locked(layout.own, INDEX_LOCK)
    behind = max(synced - safe, 0)
    detail = (
        f"{'running' if runs else 'not running'}; index files are synced up to physical offset "
        f"{safe}, {size_text(behind)} behind the log"
    )
    is_late = behind > _MAX_LAG_BYTES or (behind > 0 and not runs)
    changed = layout.index_state if layout.index_state.exists() else layout.own
    still_seconds = time.time() - changed.stat().st_mtime
    if runs and behind > 0 and still_seconds > _MAX_STILL_SECONDS:
        is_late = True
        detail += f"; it has written nothing for {still_seconds:.0f} s, so it may hang"
    yield Check(_WARN if is_late else _OK, "index builder", detail)


def _tables(store: Path) -> Iterator[Check]:
    """List the damaged tables of topics, groups and offsets."""
    from rocketlens.broker.tables.config_table import damaged_tables

    for problem in damaged_tables(store / "config"):
        yield Check(_WARN, "config", problem)


def _name_taken(store: Path) -> Iterator[Check]:
    """Report another broker that registered under the name of this store's broker."""
    import json

    from rocketlens.store.fs import read_bytes
    from rocketlens.store.layout import StoreLayout
    from rocketlens.terminal.times import iso_text

    try:
        note = json.loads(read_bytes(StoreLayout(store).name_taken, _MAX_NOTE_BYTES) or b"null")
        if note is None:
            return
        now = "; ".join(f"{server} leads to {other}" for server, other in note["takenBy"].items())
        detail = (
            f"another broker registered under the name {note['brokerName']}, last "
            f"{note['lastBy']} at {iso_text(note['lastTimestampMs'])}; "
            f"{now or 'all name servers lead to this broker again'}"
        )
        yield Check(_WARN, "broker name", f"{detail}; each broker needs a brokerName of its own")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        yield Check(_WARN, "broker name", f"rocketlens/name_taken.json cannot be read: {error!r}")


def _missing(store: Path) -> Iterator[Check]:
    """List the directories that a killed job removed without putting in new ones."""
    from rocketlens.store.disk import missing_directories

    for name in missing_directories(store):
        detail = f"{name}/ is missing: the job that was replacing it was killed; answers come"
        yield Check(_WARN, name, f"{detail} from the log until a broker or job opens the store")


def _index(source: "StoreReader") -> Iterator[Check]:
    """Check which index files can be used, and how much log each search reads without them."""
    states = source.index.states
    damaged = [state for state in states if state.file is None]
    sound = source.index.sound
    entries = sum(file.header.last_entry for file in sound)
    detail = f"{len(sound)} files, {entries:,} entries"
    if not states:
        detail = "no index files: searching reads the log; `rocketlens index build` builds them"
    yield Check(_OK if states else _WARN, "index", detail)
    for state in damaged[:_MAX_LISTED]:
        detail = f"{state.path.name} is damaged: {state.error}; answers come from the log"
        yield Check(_WARN, "index", f"{detail}; `rocketlens index build` replaces it")
    if len(damaged) > _MAX_LISTED:
        yield Check(_WARN, "index", f"{len(damaged)} files are damaged in all")
    begin = time.monotonic()
    tail = source.tail
    seconds = time.monotonic() - begin
    detail = f"each search first reads the log that the index does not cover: {seconds:.1f} s"
    yield Check(_OK if seconds < _MAX_TAIL_SECONDS else _WARN, "not indexed", detail)
    for damage in tail.damage[:_MAX_LISTED]:
        yield Check(_WARN, "commit log", f"{damage}: answers that may lack it are incomplete")
