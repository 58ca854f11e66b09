"""Writes the broker's tables in threads, so that no request waits for the disk.

The event loop takes a snapshot of a table; a thread encodes, writes and syncs it. Only one thread
writes a table at a time, so a newer state is never overwritten by an older one. Changes that arrive
during a write are saved together afterwards. Tables do not wait for each other. A failed write is
logged, and the table stays changed until the next save.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

_log: Final = logging.getLogger("rocketlens.broker")

TABLE_THREAD: Final = "rocketlens-tables"
WRITER_COUNT: Final = 4
"""Tables written at once: a large table, or one that waits for the log, must not delay topics."""


class Table(Protocol):
    """A table in memory that is saved in one file."""

    is_changed: bool = False
    """True if the file lacks changes in memory."""

    @abstractmethod
    def snapshot(self) -> Callable[[], None]:
        """Return a function that writes the current state, in any thread.

        The function raises OSError if it cannot write, or cannot read the log.
        """

    def save(self) -> None:
        """Write the table now; raises what the function of :meth:`snapshot` raises."""
        self.snapshot()()
        self.is_changed = False


class TableSaver:
    """Saves tables. Belongs to the running event loop."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._threads: Final = ThreadPoolExecutor(WRITER_COUNT, TABLE_THREAD)
        self._queue: Final[dict[Table, asyncio.Future[bool]]] = {}
        self._writing: Final[set[Table]] = set()

    def save(self, table: Table) -> asyncio.Future[bool]:
        """Save a table, after the current write; the result is False if that failed."""
        result = self._queue.get(table)
        if result is None:
            result = self._queue[table] = self._loop.create_future()
            if table not in self._writing:
                self._write(table)
        return result

    def save_changed(self, tables: Iterable[Table]) -> None:
        for table in tables:
            if table.is_changed:
                self.save(table)

    def _write(self, table: Table) -> None:
        result = self._queue.pop(table)
        self._writing.add(table)
        table.is_changed = False
        write = table.snapshot()
        written = self._loop.run_in_executor(self._threads, _try_write, table, write)
        written.add_done_callback(
            lambda done: self._on_written(table, result, is_written=done.result())
        )

    def _on_written(self, table: Table, result: asyncio.Future[bool], *, is_written: bool) -> None:
        self._writing.discard(table)
        _end(result, is_written=is_written)
        if table in self._queue:
            self._write(table)

    def close(self, tables: Iterable[Table] = ()) -> None:
        """Wait for the current writes, then write changed ``tables`` in this thread."""
        self._threads.shutdown(wait=True)
        for table, result in self._queue.items():
            table.is_changed = True
            _end(result, is_written=False)
        self._queue.clear()
        for table in tables:
            if table.is_changed:
                table.is_changed = False
                _try_write(table, table.save)


def _end(result: asyncio.Future[bool], *, is_written: bool) -> None:
    if not result.done():
        result.set_result(is_written)


def _try_write(table: Table, write: Callable[[], None]) -> bool:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - the other tables must still be written
        table.is_changed = True
        _log.warning("a table could not be written and will be tried again: %s", error)
        return False
    return True
