"""Reads RocksDB databases of a store, with the queues and tables of some brokers.

====================================  ============  ==========================================
directory                             family        key, and value
====================================  ============  ==========================================
``consumequeue``                      ``default``   an entry of a queue
``consumequeue_rocksdb``              ``default``   the same (useSeparateStorePathForRocksdbCQ)
``config/...``                                      see `rocketlens.store.read.config_tables`
====================================  ============  ==========================================

The ``storeType`` is ``defaultRocksDB``. The keys are in `rocketlens.formats.rocksdb.queue_key`.

A database is opened through links in a temporary directory, so nothing in the store changes, and a
broker can write meanwhile. Its later writes are visible after the database is opened again.
"""

import errno
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.formats.consumequeue_entry import (
    DEFAULT_FILE_BYTES,
    ENTRY_BYTES,
    QueueEntry,
    decode,
)
from rocketlens.formats.rocksdb.queue_key import QueueKey
from rocketlens.formats.rocksdb.queue_key import decode as decode_key
from rocketlens.model.installation import install_command
from rocketlens.store import fs
from rocketlens.store.layout import BATCH_QUEUES
from rocketlens.store.read.batchqueue import FileQueues
from rocketlens.store.read.consumequeue import ConsumeQueue, ConsumeQueues, QueueFile, QueueName

if TYPE_CHECKING:
    import tempfile

    from rocksdict import Rdict

_FAMILY: Final = "default"
CURRENT: Final = "CURRENT"
"""A file that every database has."""
_FIRST_LETTERS: Final = ("MANIFEST-", "OPTIONS-", "IDENTITY")
_ENDINGS: Final = (".sst", ".log")
_LINKS: Final = "rocketlens-rocksdb-"
_TRIES: Final = 5
"""Attempts to open a database: a broker can delete a file before it is opened."""


def needed() -> str:
    """Return the end of a message about tables or queues that cannot be read."""
    return f"in RocksDB, which needs the package rocksdict: {install_command('rocksdb')}"


def is_database(directory: Path) -> bool:
    with suppress(OSError):
        return (directory / CURRENT).is_file()
    return False


def is_readable() -> bool:
    return find_spec("rocksdict") is not None


def files_of(directory: Path) -> frozenset[tuple[str, int | None]]:
    """Return names and sizes of a database's files, which change with its content."""
    return frozenset(
        (entry.name, fs.size_of(entry))
        for entry in fs.entries(directory)
        if entry.name.startswith((CURRENT, *_FIRST_LETTERS)) or entry.name.endswith(_ENDINGS)
    )


class RocksDatabase:
    """A read-only view of a database at the time when it was last opened.

    All methods raise OSError if the database cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen: frozenset[tuple[str, int | None]] = frozenset()
        self._database: Rdict | None = None
        self._families: list[str] = []
        self._links: tempfile.TemporaryDirectory[str] | None = None
        self.reopen_if_changed()

    def reopen_if_changed(self) -> None:
        for remaining in reversed(range(_TRIES)):
            files = files_of(self.directory)
            if files == self._seen and self._database is not None:
                return
            try:
                self._open([name for name, _ in files])
            except OSError:
                if remaining == 0:
                    raise
            else:
                self._seen = files
                return

    def _open(self, names: list[str]) -> None:
        import tempfile

        from rocksdict import AccessType, Options, Rdict

        self.close()
        self._links = tempfile.TemporaryDirectory(prefix=_LINKS)
        links = Path(self._links.name)
        try:
            for name in names:
                if name == CURRENT:
                    # It names one of the other files, and a broker replaces it.
                    (links / name).write_bytes((self.directory / name).read_bytes())
                else:
                    (links / name).symlink_to((self.directory / name).absolute())
            self._families = Rdict.list_cf(str(links))
            self._database = Rdict(
                str(links),
                Options(raw_mode=True),
                column_families={name: Options(raw_mode=True) for name in self._families},
                access_type=AccessType.read_only(),
            )
        except Exception as error:
            self.close()
            raise _as_os_error(error, self.directory) from error

    @contextmanager
    def _os_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise _as_os_error(error, self.directory) from error

    def get(self, key: bytes) -> bytes | None:
        with self._os_errors():
            value: bytes | None = self._family().get(key)
        return value

    def items(
        self, start: bytes = b"", stop: bytes | None = None, *, family: str = _FAMILY
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, from ``start`` to below ``stop``.

        Yield nothing if the database does not have the family.
        """
        if family not in self._families:
            return
        with self._os_errors():
            for key, value in self._family(family).items(from_key=start or None):
                if stop is not None and key >= stop:
                    return
                yield key, value

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        """Return the last key from ``start`` to ``stop``, both included, or None."""
        with self._os_errors():
            cursor = self._family().iter()
            cursor.seek_for_prev(stop)
            key: bytes | None = cursor.key() if cursor.valid() else None
        return key if key is not None and key >= start else None

    def _family(self, name: str = _FAMILY) -> Any:
        if self._database is None:
            raise OSError(errno.EBADF, "the database is closed", str(self.directory))
        return self._database.get_column_family(name)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._links is not None:
            self._links.cleanup()
            self._links = None


def _as_os_error(error: Exception, directory: Path) -> OSError:
    """Convert an error of rocksdict, which raises ``Exception``, to OSError."""
    if isinstance(error, OSError):
        return error
    # The text has the paths of the links, and line ends, some of them escaped.
    text = re.sub(rf"\S*/{_LINKS}\w+", lambda _: str(directory), str(error))
    line = " ".join(text.replace("\\n", " ").split())
    return OSError(errno.EIO, f"RocksDB: {line}", str(directory))


class RocksQueue(ConsumeQueue):
    """One queue of a database. `RocksQueues` opens the database again.

    ``directory``: the path that the queue's files would have.
    """

    def __init__(self, directory: Path, database: RocksDatabase, name: QueueName) -> None:
        self._database = database
        self._name = name
        super().__init__(directory)

    def refresh(self) -> None:
        begin, end = self._bounds()
        first_key = next((key for key, _ in self._database.items(begin, end)), b"")
        first = decode_key(first_key)
        last = decode_key(self._database.last(begin, end) or b"")
        self.files = []
        if first is not None and last is not None:
            count = last.queue_offset + 1 - first.queue_offset
            self.files = [QueueFile(self.directory, first.queue_offset, count)]

    def refresh_if_changed(self) -> None:
        self.refresh()

    def entry(self, queue_offset: int) -> QueueEntry | None:
        if not 0 <= queue_offset <= limits.MAX_QUEUE_OFFSET:
            return None
        value = self._database.get(QueueKey(*self._name, queue_offset).encode())
        return None if value is None or len(value) < ENTRY_BYTES else decode(memoryview(value), 0)

    @property
    def max_offset(self) -> int:
        return sum((file.first_queue_offset + file.entry_count for file in self.files), 0)

    def contents(self) -> Iterator[tuple[int, memoryview]]:
        """Yield runs of consecutive entries, each with the queue offset of its first."""
        first, run = 0, bytearray()
        for key, value in self._database.items(*self._bounds()):
            queue = decode_key(key)
            if queue is None or len(value) < ENTRY_BYTES:
                continue
            is_next = queue.queue_offset == first + len(run) // ENTRY_BYTES
            if run and (not is_next or len(run) >= DEFAULT_FILE_BYTES):
                yield first, memoryview(run)
                run = bytearray()
            if not run:
                first = queue.queue_offset
            run += value[:ENTRY_BYTES]
        if run:
            yield first, memoryview(run)

    def _bounds(self) -> tuple[bytes, bytes]:
        first, last = (QueueKey(*self._name, n) for n in (0, limits.MAX_QUEUE_OFFSET))
        return first.encode(), last.encode()


class RocksQueues(ConsumeQueues):
    """All queues of a database, which is opened when it is first needed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._database: RocksDatabase | None = None
        self._is_checked = False

    def _open_database(self) -> RocksDatabase:
        """Return the database, opened again if it has changed since :meth:`invalidate`."""
        if self._database is None:
            self._database = RocksDatabase(self.directory)
            weakref.finalize(self, self._database.close)
        elif not self._is_checked:
            self._database.reopen_if_changed()
        self._is_checked = True
        return self._database

    def names(self) -> list[QueueName]:
        database, names, start = self._open_database(), [], b""
        while (item := next(database.items(start), None)) is not None:
            key = decode_key(item[0])
            last = item[0]
            if key is not None:
                names.append(QueueName(key.topic, key.queue_id))
                last = key._replace(queue_offset=limits.MAX_QUEUE_OFFSET).encode()
            start = last + b"\x00"
        return sorted(names)

    def topics(self) -> list[str]:
        self.unlisted = None
        try:
            return list(dict.fromkeys(name.topic for name in self.names()))
        except OSError as error:
            self.unlisted = f"{self.directory} cannot be read: {error.strerror}"
            return []

    def invalidate(self) -> None:
        super().invalidate()
        self._is_checked = False

    def _open_queue(self, name: QueueName) -> ConsumeQueue:
        directory = self.directory / name.topic / str(name.queue_id)
        return RocksQueue(directory, self._open_database(), name)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        self._open_database()
        return super().queue(topic, queue_id)

    def close(self) -> None:
        super().close()
        if self._database is not None:
            self._database.close()
            self._database = None


class QueuesInBoth(FileQueues):
    """Queues in files, and those of light topics in a database beside them."""

    def __init__(self, directory: Path, database: Path) -> None:
        super().__init__(directory, directory.with_name(BATCH_QUEUES))
        self._others = RocksQueues(database)

    def names(self) -> list[QueueName]:
        """List all queues; those that only the database has are last."""
        return list(dict.fromkeys([*super().names(), *self._others.names()]))

    def topics(self) -> list[str]:
        topics = list(dict.fromkeys([*super().topics(), *self._others.topics()]))
        self.unlisted = self.unlisted or self._others.unlisted
        return [] if self.unlisted else topics

    def invalidate(self) -> None:
        super().invalidate()
        self._others.invalidate()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queue = super().queue(topic, queue_id)
        return queue if queue is None or queue.files else self._others.queue(topic, queue_id)

    def close(self) -> None:
        super().close()
        self._others.close()


def queue_database(directory: Path) -> Path | None:
    """Return ``consumequeue/`` or the directory beside it if it is a database with queues."""
    candidates = directory, directory.with_name("consumequeue_rocksdb")
    return next(filter(is_database, candidates), None)


def queues_in(directory: Path) -> ConsumeQueues:
    """Return the queues of ``consumequeue/``, in files or in RocksDB, and batch queues.

    Without the package rocksdict, the queues in RocksDB are left out, with the reason in
    ``missing``.
    """
    database = queue_database(directory)
    if database is not None and is_readable():
        return (
            RocksQueues(directory) if database == directory else QueuesInBoth(directory, database)
        )
    queues = FileQueues(directory, directory.with_name(BATCH_QUEUES))
    if database is not None:
        queues.missing = f"they are {needed()}; the log was read"
    return queues


def table_in(directory: Path, family: str = _FAMILY) -> list[tuple[bytes, bytes]]:
    database = RocksDatabase(directory)
    try:
        return list(database.items(family=family))
    finally:
        with suppress(OSError):
            database.close()
