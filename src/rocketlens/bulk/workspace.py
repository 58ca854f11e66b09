"""The work directory of a job, whose complete result replaces the old one atomically."""

import uuid
from pathlib import Path
from typing import Final, Self

from rocketlens.errors import BadInput, StoreLocked
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.lock import StoreLock, is_locked

KEPT: Final = "rocketlens/replaced"
"""The directory of replaced directories: RocketMQ would open any file in `index/`."""
WORK_PREFIX: Final = ".rocketlens-work-"
"""RocketMQ ignores directories with this prefix in its store."""

_OF_A_STORE: Final = ("commitlog", "checkpoint", "abort", "config")
"""Any of these distinguishes a broker's store from a directory of results."""
_READ_WHOLE: Final = ("commitlog", "consumequeue", "index", "config")
"""Directories of a store in which RocketMQ opens every file."""


def check_output(
    store: Path, out: Path | None, *, force: bool = False, disk: Disk | None = None
) -> None:
    """Check that results can be written to a directory.

    ``out``: the directory, or None for the store itself. ``force``: allow another store, whose
    index files and consume queues are then replaced.

    :raises BadInput: if the directory is another store, inside one, or not writable.
    :raises StoreLocked: if a broker or a job runs in it.
    """
    root = store if out is None else out
    try:
        if out is not None and not fs.is_same(store, out):
            _refuse_stores(out, force=force)
        (disk or Disk()).check_writable(root)
        if is_locked(root):
            raise StoreLocked(
                f"{root} belongs to a running broker or job: stop it first, or give --out"
            )
    except OSError as error:
        raise BadInput(f"{root} cannot be written to: {error.strerror or error}") from error


def _refuse_stores(out: Path, *, force: bool) -> None:
    parts = [name for name in _OF_A_STORE if (out / name).exists()]
    if parts and not force:
        raise BadInput(
            f"{out} is another store, with {parts[0]} in it: its index would be replaced by one "
            "of other messages; give another directory, or --force to replace it"
        )
    resolved = out.resolve()
    for parent in resolved.parents:
        inside = resolved.relative_to(parent).parts[0]
        if inside in _READ_WHOLE and (parent / "commitlog").is_dir():
            raise BadInput(
                f"{out} is in {inside} of the store {parent}, where a broker opens every file: "
                "give another directory"
            )


class Workspace:
    """A work directory inside ``root``, the directory of the results.

    ``root`` is locked while the workspace is open, so no broker or other job runs in it. Work
    directories of killed jobs are deleted, and interrupted exchanges of directories are completed.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        """Create ``root`` if needed, and lock it.

        :raises StoreLocked: if a broker or a job runs in it; nothing has changed then.
        """
        self.root = root
        self.disk: Final = disk or Disk()
        self.disk.make_directory(root)
        self._lock = StoreLock(root)
        try:
            self.disk.restore_directories(root)
            for entry in fs.entries(root):
                if entry.name.startswith(WORK_PREFIX):
                    self.disk.remove_tree(Path(entry.path))
            self._directory = root / f"{WORK_PREFIX}{uuid.uuid4().hex[:12]}"
            self.parts = self._directory / "parts"
            self.disk.make_directory(self.parts)
        except BaseException:
            self._lock.release()
            raise

    def new(self, name: str) -> Path:
        path = self.new_path(name)
        self.disk.make_directory(path)
        return path

    def new_path(self, name: str) -> Path:
        return self._directory / name

    def sync(self, name: str) -> None:
        self.disk.sync_tree(self.new_path(name))

    def swap_in(self, name: str, *, keep: bool = False) -> Path | None:
        """Replace the old directory ``name`` by the new one, which must be synced.

        With ``keep``, move the old one to `KEPT`, and return its path. Otherwise it is deleted with
        the work directory.
        """
        old = self.new_path(name)
        self.disk.exchange_directories(old, self.root / name)
        if not keep or not old.is_dir():
            return None
        kept = self.root / KEPT / name
        self.disk.remove_tree(kept)
        self.disk.move(old, kept)
        return kept

    def close(self) -> None:
        try:
            self.disk.remove_tree(self._directory)
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
