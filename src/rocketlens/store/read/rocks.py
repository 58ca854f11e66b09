"""RocksDB databases of a store: the queues and tables of brokers with ``storeType=defaultRocksDB``.

====================================  ============  ==========================================
directory                             family        key, and value
====================================  ============  ==========================================
``consumequeue``                      ``default``   an entry of a queue
``consumequeue_rocksdb``              ``default``   the same (useSeparateStorePathForRocksdbCQ)
``config/...``                                      see `rocketlens.store.read.config_tables`
====================================  ============  ==========================================

The keys of entries are in `rocketlens.formats.rocksdb.queue_key`.

A database is opened through links in a directory of its own: nothing in the store changes, and a
broker may go on to write. What it wrote since is seen when the database is opened again.
"""

import errno
import re
import weakref
from collections.abc import Iterator
from contextlib import suppress
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
"""The file that every database has."""
_FIRST_LETTERS: Final = ("MANIFEST-", "OPTIONS-", "IDENTITY")
_ENDINGS: Final = (".sst", ".log")
_LINKS: Final = "rocketlens-rocksdb-"
"""Begins the name of the directory of links by which a database is opened."""
_TRIES: Final = 5
"""How often a database is opened: a broker can have deleted a file that was to be opened."""


def needed() -> str:
    """Return what a text says that is about to name tables or queues that cannot be read."""
    return f"in RocksDB, which needs the package rocksdict: {install_command('rocksdb')}"


def is_database(directory: Path) -> bool:
    """Return whether a directory is a RocksDB database."""
    try:
        return (directory / CURRENT).is_file()
    except OSError:
        return False


def is_readable() -> bool:
    """Return whether RocksDB databases can be read here."""
    return find_spec("rocksdict") is not None


def files_of(directory: Path) -> frozenset[tuple[str, int | None]]:
    """Return names and sizes of the files that a database is in; another set is another content.

    :raises OSError: if they cannot be listed.
    """
    return frozenset(
        (entry.name, fs.size_of(entry))
        for entry in fs.entries(directory)
        if entry.name.startswith((CURRENT, *_FIRST_LETTERS)) or entry.name.endswith(_ENDINGS)
    )


class RocksDatabase:
    """One database, as it was when it was opened or opened again."""

    def __init__(self, directory: Path) -> None:
        """Open the database, for reading only.

        :raises OSError: if it cannot be read.
        """
        self.directory = directory
        self._seen: frozenset[tuple[str, int | None]] = frozenset()
        self._database: Rdict | None = None
        self._families: list[str] = []
        self._links: tempfile.TemporaryDirectory[str] | None = None
        self.reopen_if_changed()

    def reopen_if_changed(self) -> None:
        """Open it again if a file of it is new, longer or gone.

        :raises OSError: if it cannot be read.
        """
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
                    # It is replaced by a broker, and names one of the other files.
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

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if it is not there.

        :raises OSError: if it cannot be read.
        """
        try:
            value: bytes | None = self._family().get(key)
        except Exception as error:
            raise _as_os_error(error, self.directory) from error
        return value

    def items(
        self, start: bytes = b"", stop: bytes | None = None, *, family: str = _FAMILY
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, from ``start`` on to before ``stop``.

        There are none in a family that the database does not have.

        :raises OSError: if they cannot be read.
        """
        try:
            if family not in self._families:
                return
            items = self._family(family).items(from_key=start or None)
            for key, value in items:
                if stop is not None and key >= stop:
                    return
                yield key, value
        except OSError:
            raise
        except Exception as error:
            raise _as_os_error(error, self.directory) from error

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        """Return the last key of a range, both ends included; None if there is none.

        :raises OSError: if it cannot be read.
        """
        try:
            cursor = self._family().iter()
            cursor.seek_for_prev(stop)
            key: bytes | None = cursor.key() if cursor.valid() else None
        except Exception as error:
            raise _as_os_error(error, self.directory) from error
        return key if key is not None and key >= start else None

    def _family(self, name: str = _FAMILY) -> Any:
        if self._database is None:
            raise OSError(errno.EBADF, "it is closed", str(self.directory))
        return self._database.get_column_family(name)

    def close(self) -> None:
        """Close it, and remove the links."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._links is not None:
            self._links.cleanup()
            self._links = None


def _as_os_error(error: Exception, directory: Path) -> OSError:
    """Return an error of rocksdict, which are of class ``Exception``, as what callers expect."""
    if isinstance(error, OSError):
        return error
    # It names the links that it was opened by, and has line ends as they are or written out.
    text = re.sub(rf"\S*/{_LINKS}\w+", lambda _: str(directory), str(error))
    line = " ".join(text.replace("\\n", " ").split())
    return OSError(errno.EIO, f"RocksDB: {line}", str(directory))


class RocksQueue(ConsumeQueue):
    """One queue of a database; the database's owner opens it again."""

    def __init__(self, directory: Path, database: RocksDatabase, name: QueueName) -> None:
        """Look up the bounds. ``directory`` is where the queue's files would be."""
        self._database = database
        self._name = name
        super().__init__(directory)

    def refresh(self) -> None:
        """Look up the bounds again.

        :raises OSError: if the database cannot be read.
        """
        begin, end = self._bounds()
        first_key = next((key for key, _ in self._database.items(begin, end)), b"")
        first = decode_key(first_key)
        last = decode_key(self._database.last(begin, end) or b"")
        self.files = []
        if first is not None and last is not None:
            count = last.queue_offset + 1 - first.queue_offset
            self.files = [QueueFile(self.directory, first.queue_offset, count)]

    def refresh_if_changed(self) -> None:
        """Do as `refresh`."""
        self.refresh()

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return entry ``queue_offset``; None if there is none.

        :raises OSError: if the database cannot be read.
        """
        if not 0 <= queue_offset <= limits.MAX_QUEUE_OFFSET:
            return None
        value = self._database.get(QueueKey(*self._name, queue_offset).encode())
        return None if value is None or len(value) < ENTRY_BYTES else decode(memoryview(value), 0)

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""
        return sum((file.first_queue_offset + file.entry_count for file in self.files), 0)

    def contents(self) -> Iterator[tuple[int, memoryview]]:
        """Return runs of entries that follow one another, each with the offset of its first.

        :raises OSError: if the database cannot be read.
        """
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
        """Return the least key that an entry can have, and the largest."""
        first, last = (QueueKey(*self._name, n) for n in (0, limits.MAX_QUEUE_OFFSET))
        return first.encode(), last.encode()


class RocksQueues(ConsumeQueues):
    """All queues of a database. It is opened when it is first needed."""

    def __init__(self, directory: Path) -> None:
        """Set the directory."""
        super().__init__(directory)
        self._database: RocksDatabase | None = None
        self._is_looked_at = False

    def _opened(self) -> RocksDatabase:
        """Return the database, opened again if it was changed since it was last looked at."""
        if self._database is None:
            self._database = RocksDatabase(self.directory)
            weakref.finalize(self, self._database.close)
        elif not self._is_looked_at:
            self._database.reopen_if_changed()
        self._is_looked_at = True
        return self._database

    def names(self) -> list[QueueName]:
        """List all queues, by topic and number. O(queues)."""
        database, names, start = self._opened(), [], b""
        while (item := next(database.items(start), None)) is not None:
            key = decode_key(item[0])
            last = item[0]
            if key is not None:
                names.append(QueueName(key.topic, key.queue_id))
                last = key._replace(queue_offset=limits.MAX_QUEUE_OFFSET).encode()
            start = last + b"\x00"
        return sorted(names)

    def topics(self) -> list[str]:
        """List the topics that have queues; none, and ``unlisted``, when that fails."""
        self.unlisted = None
        try:
            return list(dict.fromkeys(name.topic for name in self.names()))
        except OSError as error:
            self.unlisted = f"{self.directory} cannot be read: {error.strerror}"
            return []

    def look_again(self) -> None:
        """Look at the database again before a queue is next returned."""
        super().look_again()
        self._is_looked_at = False

    def _open_queue(self, name: QueueName) -> ConsumeQueue:
        directory = self.directory / name.topic / str(name.queue_id)
        return RocksQueue(directory, self._opened(), name)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return one queue; None if there can be none of that name.

        :raises OSError: if the database cannot be read.
        """
        self._opened()
        return super().queue(topic, queue_id)

    def close(self) -> None:
        """Close the database."""
        super().close()
        if self._database is not None:
            self._database.close()
            self._database = None


class QueuesInBoth(FileQueues):
    """Queues in files, and in a database beside them, which has light topics alone."""

    def __init__(self, directory: Path, database: Path) -> None:
        """Set both directories."""
        super().__init__(directory, directory.with_name(BATCH_QUEUES))
        self._others = RocksQueues(database)

    def names(self) -> list[QueueName]:
        """List all queues; those that only the database has come last."""
        return list(dict.fromkeys([*super().names(), *self._others.names()]))

    def topics(self) -> list[str]:
        """List the topics that have queues; none, and ``unlisted``, when that fails."""
        topics = list(dict.fromkeys([*super().topics(), *self._others.topics()]))
        self.unlisted = self.unlisted or self._others.unlisted
        return [] if self.unlisted else topics

    def look_again(self) -> None:
        """Look at files and database again before a queue is next returned."""
        super().look_again()
        self._others.look_again()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return one queue; None if there can be none of that name.

        :raises OSError: if its directory or the database cannot be read.
        """
        queue = super().queue(topic, queue_id)
        return queue if queue is None or queue.files else self._others.queue(topic, queue_id)

    def close(self) -> None:
        """Unmap everything, and close the database."""
        super().close()
        self._others.close()


def queue_database(directory: Path) -> Path | None:
    """Return the database with queues that ``consumequeue/`` is, or that is beside it, if any."""
    both = directory, directory.with_name("consumequeue_rocksdb")
    return next(filter(is_database, both), None)


def queues_in(directory: Path) -> ConsumeQueues:
    """Return the queues of ``consumequeue/``, in files or in RocksDB, and those of batches.

    Where RocksDB cannot be read here there are none of it, and ``missing`` says why.
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
    """Return all keys and values of a family of a database of configuration, read once.

    :raises OSError: if it cannot be read.
    """
    database = RocksDatabase(directory)
    try:
        return list(database.items(family=family))
    finally:
        with suppress(OSError):
            database.close()
