"""Writes the broker's tables in a thread of their own, so that no request waits for the disk.

What is written is a table as it is when its turn comes, taken on the event loop; putting it into
words, writing and syncing are the thread's. So one file is written at a time, no older state ever
follows a newer one, and of several changes that wait only the last is written. A table that could
not be written is logged and stays changed: it is written with the next save of it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

_log: Final = logging.getLogger("rocketlens.broker")

TABLE_THREAD: Final = "rocketlens-tables"


class Table(Protocol):
    """What is kept in memory and in one file."""

    is_changed: bool
    """Whether memory has more than the file."""

    def snapshot(self) -> Callable[[], None]:
        """Take the state of now; what is given writes it, in any thread, and may raise OSError."""

    def save(self) -> None:
        """Write all of it now; may raise OSError."""


class TableSaver:
    """Saves tables; belongs to the running event loop."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._loop: Final = asyncio.get_running_loop()
        self._thread: Final = ThreadPoolExecutor(1, TABLE_THREAD)
        self._waiting: Final[dict[Table, asyncio.Future[bool]]] = {}
        self._is_writing = False

    def save(self, table: Table) -> asyncio.Future[bool]:
        """Have a table written as it is now, or later; the future says whether it could be."""
        ended = self._waiting.get(table)
        if ended is None:
            ended = self._waiting[table] = self._loop.create_future()
            if not self._is_writing:
                self._write_next()
        return ended

    def save_changed(self, tables: Iterable[Table]) -> None:
        """Have those written that changed."""
        for table in tables:
            if table.is_changed:
                self.save(table)

    def _write_next(self) -> None:
        self._is_writing = bool(self._waiting)
        if not self._is_writing:
            return
        table = next(iter(self._waiting))
        ended = self._waiting.pop(table)
        table.is_changed = False
        write = table.snapshot()
        written = self._loop.run_in_executor(self._thread, _tried, table, write)
        written.add_done_callback(lambda done: self._written(ended, is_written=done.result()))

    def _written(self, ended: asyncio.Future[bool], *, is_written: bool) -> None:
        _end(ended, is_written=is_written)
        self._write_next()

    def close(self, tables: Iterable[Table] = ()) -> None:
        """End after the write that runs; then write those of ``tables`` that changed, here."""
        self._thread.shutdown(wait=True)
        for table, ended in self._waiting.items():
            table.is_changed = True
            _end(ended, is_written=False)
        self._waiting.clear()
        for table in tables:
            if table.is_changed:
                table.is_changed = False
                _tried(table, table.save)


def _end(ended: asyncio.Future[bool], *, is_written: bool) -> None:
    if not ended.done():
        ended.set_result(is_written)


def _tried(table: Table, write: Callable[[], None]) -> bool:
    """Write, and say whether it could be done."""
    try:
        write()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are written
        table.is_changed = True
        _log.warning("a table could not be written and will be tried again: %s", error)
        return False
    return True
