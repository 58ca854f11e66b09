"""``synced`` (:mod:`rocketlens.store.read.state`), written after every sync of the log."""

from rocketlens.store import fs
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.state import SYNCED_BYTES, Synced, newest_slot


class SyncedFile:
    """``synced``, open for writing."""

    def __init__(self, layout: StoreLayout, disk: Disk) -> None:
        """Open the file, or create it.

        :raises OSError: when the disk is full.
        """
        content = fs.read_bytes(layout.synced, SYNCED_BYTES + 1) or b""
        if len(content) != SYNCED_BYTES:
            disk.make_file(layout.synced, SYNCED_BYTES, layout.scratch)
            content = b""
        self._number = newest_slot(content)[0]
        self._file: WritableFile = disk.open_file(layout.synced)
        try:
            self._file.reserve(0, SYNCED_BYTES)
        except OSError:
            self._file.close()
            raise

    def write(self, synced: Synced) -> None:
        """Write the offset below which the log is synced. No system call."""
        self._number += 1
        start, slot = synced.encode(self._number)
        self._file.content[start : start + len(slot)] = slot

    def sync(self) -> None:
        """Wait until it is on the disk.

        :raises OSError: when it may not be.
        """
        self._file.sync()

    def close(self) -> None:
        """Unmap it."""
        self._file.close()
