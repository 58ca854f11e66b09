"""Build beside, swap in whole: a job's result is all there or not there at all."""

import uuid
from pathlib import Path
from typing import Final, Self

from rocketlens.store import fs
from rocketlens.store.fs import Disk
from rocketlens.store.lock import StoreLock

WORK_PREFIX: Final = ".rocketlens-work-"
"""RocketMQ looks at no directory of this name in its store."""


class Workspace:
    """A work directory inside ``root``, the directory that holds or will hold the results.

    ``root`` is locked as a store while the workspace is open, so no broker or other job runs in
    it; work directories that a killed job left there are deleted.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        """Lock ``root``, which is made if it isn't there.

        :raises StoreLocked: at once, with nothing changed, when a broker or a job runs in it.
        """
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self._disk: Final = disk or Disk()
        self._lock = StoreLock(root)
        try:
            for entry in fs.entries(root):
                if entry.name.startswith(WORK_PREFIX):
                    self._disk.remove_tree(Path(entry.path))
            self._directory = root / f"{WORK_PREFIX}{uuid.uuid4().hex[:12]}"
            self.parts = self._directory / "parts"
            self.parts.mkdir(parents=True)
        except BaseException:
            self._lock.release()
            raise

    def new(self, name: str) -> Path:
        """Make the directory that will become ``root/name``."""
        path = self.new_path(name)
        path.mkdir()
        return path

    def new_path(self, name: str) -> Path:
        """Give the path of the directory that will become ``root/name``."""
        return self._directory / name

    def sync(self, name: str) -> None:
        """Wait until the new directory ``name`` is on the disk."""
        self._disk.sync_tree(self.new_path(name))

    def swap_in(self, name: str) -> None:
        """Put the new directory ``name``, which must be synced, in the place of the old one."""
        self._disk.exchange_directories(self.new_path(name), self.root / name)

    def close(self) -> None:
        """Delete the work directory with the old results in it, and unlock."""
        try:
            self._disk.remove_tree(self._directory)
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        """Give the workspace."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
