"""Disks that fail on purpose, below the store: syncs that fail, and the power that goes."""

import errno
import random
import shutil
from collections import Counter
from pathlib import Path

from rocketlens.store.fs import Disk, WritableFile

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

    def boot(self):
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
                raise OSError(errno.EIO, "Input/output error", str(path))

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


class PowerFile(WritableFile):
    """A file of a disk whose power may go."""

    def __init__(self, path, disk):
        super().__init__(path)
        self.disk = disk

    def sync(self):
        """Make what is written durable."""
        self.disk.now_durable(self.path, bytes(self.content))


class PowerDisk(Disk):
    """Knows what is durable, and makes images of what a power cut may leave.

    A sector that was written and not synced may have its old content or its new, or garbage; a
    name that was made or removed and not synced may be there or not.
    """

    def __init__(self, root, on_event=lambda: None):
        self.root = Path(root)
        self.durable = {}
        self.names = set()
        self.on_event = on_event

    def now_durable(self, path, content):
        """Note durable content."""
        self.on_event()
        self.durable[path] = content

    def make_file(self, path, size, scratch):
        """Make a file whose name is not durable yet."""
        super().make_file(path, size, scratch)
        self.durable[path] = bytes(size)

    def open_file(self, path):
        """Map a file."""
        return PowerFile(path, self)

    def write_durably(self, path, content):
        """Write a small file in one step."""
        self.on_event()
        QuickDisk.write_durably(self, path, content)
        self.durable[path] = content
        self.names |= set(path.parent.iterdir())

    def set_size(self, path, size):
        """Cut or lengthen a file, durably."""
        super().set_size(path, size)
        self.durable[path] = path.read_bytes()

    def sync_file(self, path):
        """Make what is written durable."""
        self.now_durable(path, path.read_bytes())

    def sync_directory(self, directory):
        """Make the names in a directory durable."""
        self.on_event()
        self.names = {name for name in self.names if name.parent != directory}
        self.names |= set(directory.iterdir())

    def image(self, target, seed):
        """Write what the disk may hold if the power goes now to a new directory."""
        randomness = random.Random(seed)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        mood = randomness.choice(("kept", "dropped", "mixed", "torn"))
        current = set(self.root.rglob("*"))
        for path in sorted(current | self.names):
            if "scratch" in path.parts:
                continue
            is_sure = path in self.names and path in current
            is_there = is_sure or {"kept": path in current, "dropped": path in self.names}.get(
                mood, randomness.random() < 0.5
            )
            copy = target / path.relative_to(self.root)
            if not is_there or not copy.parent.is_dir():
                continue
            if path.is_dir() or (path not in current and path not in self.durable):
                copy.mkdir()
            else:
                copy.write_bytes(self._content(path, mood, randomness))

    def _content(self, path, mood, randomness):
        durable = self.durable.get(path)
        written = path.read_bytes() if path.is_file() else durable
        if durable is None or mood == "kept":
            return written
        if mood == "dropped" or len(written) != len(durable):
            return durable
        content = bytearray(durable)
        for start in range(0, len(durable), SECTOR_BYTES):
            sector = slice(start, start + SECTOR_BYTES)
            if durable[sector] != written[sector]:
                choice = randomness.random()
                if choice < 0.5:
                    content[sector] = written[sector]
                elif mood == "torn" and choice < 0.6 and "commitlog" not in path.parts:
                    # In the log nothing but a record's own checksums could tell garbage.
                    content[sector] = randomness.randbytes(len(content[sector]))
        return bytes(content)
