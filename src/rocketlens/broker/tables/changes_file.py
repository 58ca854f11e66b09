"""Appends the changes of a large table to the file beside it, and removes those that are written.

The format is that of :mod:`rocketlens.store.read.table_changes`. Changes are appended in one thread
while another writes the table's file; a lock orders what both do to the file of changes, and is
held for no longer than it takes to write and sync a few changes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rocketlens import limits
from rocketlens.broker.tables.config_table import ConfigFile
from rocketlens.errors import ConfigError
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.read.table_changes import (
    Changes,
    Compaction,
    TableMark,
    changes_path,
    encode_compaction,
    encode_first,
    without_first,
)


class ChangesFile:
    """The file of changes beside the file of a table."""

    def __init__(self, table: ConfigFile, disk: Disk, found: Changes) -> None:
        """Continue the file that was ``found``."""
        self.path: Final = changes_path(table.path)
        self._table: Final = table
        self._disk: Final = disk
        self._lock: Final = threading.Lock()
        self._exists = bool(found.content)
        belongs = table.mark is not None and found.since(table.mark) is not None
        is_sound = belongs and found.content.endswith(b"\n") and not found.problem
        self.is_broken = self._exists and not is_sound
        """Whether nothing can be appended until the table is written: lines behind a cut line could
        not be read.
        """
        self.size = len(found.content) if is_sound else 0
        """Bytes of the file; 0 if there is none that belongs to the table's file."""
        self.line_count = found.content.count(b"\n") - 1 if self.size else 0
        """Lines behind the first one."""

    def append(self, line: bytes) -> None:
        """Append a line durably.

        :raises OSError: if it may not be on the disk; nothing can be appended then.
        """
        with self._lock:
            self._append(line)

    def announce(self, compaction: Compaction) -> bool:
        """Name a file that is about to become the table's; return False if that is not possible.

        :raises OSError: as :meth:`append`.
        """
        with self._lock:
            if self.is_broken:
                return False
            self._append(encode_compaction(compaction))
        return True

    def remove_first(self, line_count: int) -> None:
        """Remove the first lines, whose changes the table's file has now.

        :raises OSError: if the disk fails; nothing can be appended then.
        """
        with self._lock, self._broken_by_failure():
            content = fs.read_bytes(self.path, limits.MAX_CONFIG_READ_BYTES) or b""
            later = without_first(content, line_count)
            if later:
                later = encode_first(self._mark()) + later
                self._disk.write_durably(self.path, later)
                self.size, self.line_count = len(later), later.count(b"\n") - 1
            else:
                self._remove()

    def remove(self) -> None:
        """Remove the file after the whole table was written.

        :raises OSError: if it cannot be removed.
        """
        with self._lock:
            self._remove()
            self.is_broken = False

    def _mark(self) -> TableMark:
        if self._table.mark is None:
            raise ConfigError(f"{self._table.path} has no sound content, so it has no changes")
        return self._table.mark

    @contextmanager
    def _broken_by_failure(self) -> Iterator[None]:
        # Not before it fails: the event loop asks meanwhile whether it can append.
        try:
            yield
        except BaseException:
            self.is_broken = True
            raise

    def _append(self, line: bytes) -> None:
        self._exists = True
        with self._broken_by_failure():
            if self.size:
                self._disk.append_durably(self.path, line)
            else:
                line = encode_first(self._mark()) + line
                self._disk.write_durably(self.path, line)
        self.size += len(line)
        self.line_count += 1

    def _remove(self) -> None:
        self.size = self.line_count = 0
        if self._exists:
            self._disk.remove_file(self.path)
            self._exists = False
