"""Disks that fail on purpose, below the store: syncs that fail, and the power that goes."""

import errno
from collections import Counter

from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.fs import SyncFailed

SECTOR_BYTES = 512


class QuickFile(WritableFile):
    """A file whose syncs do nothing: for tests of what comes after a crash, not of the crash."""

    def sync(self):
        """Do nothing."""


class QuickDisk(Disk):
    """A disk whose syncs do nothing, so that thousands of stores can be opened."""

    def open_file(self, path):
        """Map a file."""
        return QuickFile(path)

    def write_durably(self, path, content):
        """Write a small file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def sync_file(self, path):
        """Do nothing."""

    def sync_directory(self, directory):
        """Do nothing."""


class RestartedDisk(QuickDisk):
    """A disk after the machine was started again."""

    def boot_id(self):
        """Name another start of the machine."""
        return "restarted"


class RecordingFile(WritableFile):
    """A file that tells its disk what it was synced with."""

    def __init__(self, path, disk):
        super().__init__(path)
        self.disk = disk

    def sync(self):
        """Note what is durable now."""
        self.disk.durable[self.path] = bytes(self.content)
        self.disk.sync_counts[self.path] += 1


class RecordingDisk(QuickDisk):
    """Knows what each mapped file was synced with last."""

    def __init__(self):
        self.durable = {}
        self.sync_counts = Counter()

    def open_file(self, path):
        """Map a file."""
        return RecordingFile(path, self)


class FailingFile(WritableFile):
    """A file whose syncs are counted, and fail from some count on."""

    def __init__(self, path, disk):
        super().__init__(path)
        self.disk = disk

    def sync(self):
        """Sync or fail."""
        self.disk.count(self.path)
        super().sync()

    def reserve(self, start, stop):
        """Reserve or fail."""
        self.disk.count_reserve(self.path)
        super().reserve(start, stop)


class FailingDisk(QuickDisk):
    """The syncs of some kind of file fail: the one counted ``fails_at``, and only that one."""

    def __init__(self, fails_at=None, kind="", full_at=()):
        self.fails_at = fails_at
        self.kind = kind
        self.syncs = 0
        self.full_at = full_at
        self.reserves = 0
        self.failed = None

    def count(self, path):
        """Fail when it is the turn of this sync."""
        if self.kind in str(path):
            self.syncs += 1
            if self.syncs == self.fails_at:
                self.failed = str(path)
                raise SyncFailed(errno.EIO, "Input/output error", str(path))

    def count_reserve(self, path):
        """Fail when it is the turn of this reservation."""
        self.reserves += 1
        if self.reserves in self.full_at:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def open_file(self, path):
        """Map a file."""
        return FailingFile(path, self)

    def write_durably(self, path, content):
        """Write a small file, or fail."""
        self.count(path)
        super().write_durably(path, content)

    def sync_file(self, path):
        """Sync or fail."""
        self.count(path)

    def sync_directory(self, directory):
        """Sync or fail."""
        self.count(directory)
