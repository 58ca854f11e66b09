"""Writes to the file system: every change that a store or a job makes on the disk.

All of them go through one :class:`Disk`, so a test can make each operation fail, wait or vanish.
"""

import errno
import mmap
import os
import re
import stat
import weakref
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from rocketlens.late import np, npt
from rocketlens.store import fs
from rocketlens.store.fs import PRIVATE_DIRECTORY, PRIVATE_FILE

_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_CLEAR_BYTES: Final = 1 << 20
_ASIDE_PREFIX: Final = ".rocketlens-old-"
"""Prefix of a directory that is being replaced in more than one step."""
_OLD_ASIDE: Final = re.compile(r"(index|consumequeue)\.[0-9]+\.old")
"""The same prefix in an earlier version."""


class WritableFile:
    """An existing file of fixed size, not empty, mapped for writing.

    ``content`` has slicing, ``find`` and ``len`` like a bytearray. Write only to bytes that
    :meth:`reserve` has reserved: on a full disk it raises, but a write to a hole kills the process
    (SIGBUS).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        # A store that fails to open does not close its files explicitly.
        self._close_descriptor = weakref.finalize(self, os.close, self._descriptor)
        size = os.fstat(self._descriptor).st_size
        try:
            self.content: mmap.mmap | bytearray = mmap.mmap(self._descriptor, size)
        except (OSError, ValueError) as error:
            self._close_descriptor()
            if isinstance(error, OSError):
                error.filename = str(path)
            raise

    def __len__(self) -> int:
        return len(self.content)

    def array(self) -> "npt.NDArray[np.uint8]":
        """Return the content as a writable array of bytes, without copying."""
        return np.frombuffer(self.content, dtype=np.uint8)

    def reserve(self, start: int, stop: int) -> None:
        """Reserve disk blocks for bytes ``start .. stop - 1``; their content stays."""
        if stop > start:
            try:
                os.posix_fallocate(self._descriptor, start, stop - start)
            except OSError as error:
                error.filename = str(self.path)
                raise

    def write(self, start: int, written: memoryview) -> None:
        """Write many reserved bytes from byte ``start`` on; ``content`` has them at once.

        Unlike a write through ``content``, this neither faults in nor zeroes a page that it
        overwrites.

        :raises OSError: if not all of them could be written.
        """
        while written:
            try:
                count = os.pwrite(self._descriptor, written, start)
            except OSError as error:
                error.filename = str(self.path)
                raise
            start, written = start + count, written[count:]

    def sync(self) -> None:
        """Wait until all written bytes are on the disk.

        Another thread can close the file meanwhile, and then records that it must be synced.

        :raises SyncFailed: if the bytes may never reach the disk.
        """
        try:
            _sync(self._descriptor, self.path, with_metadata=False)
        except fs.SyncFailed:
            if self._descriptor >= 0:
                raise

    def touch(self) -> None:
        """Set the modification time to now: a write through a mapping does not always."""
        os.utime(self._descriptor)

    def clear(self, start: int) -> None:
        """Zero all bytes from ``start`` on, without filling holes."""
        for low, high in fs.data_extents(self.path, start, len(self)):
            for position in range(low, high, _CLEAR_BYTES):
                end = min(position + _CLEAR_BYTES, high)
                if any(self.content[position:end]):
                    self.content[position:end] = bytes(end - position)

    def close(self) -> None:
        """Unmap; while views exist, the mapping stays until the last one is released.

        A second call has no effect: the descriptor may then belong to another file.
        """
        self._close_descriptor()
        self._descriptor = -1
        try:
            if isinstance(self.content, mmap.mmap):
                self.content.close()
        except BufferError:
            pass


class Space(NamedTuple):
    """The size of a file system, and its free space, in bytes."""

    total: int
    free: int


class Disk:
    """All file operations of a store that write. Tests replace it.

    It has no state, so tasks in other processes get a pickled copy.
    """

    def make_file(self, path: Path, size: int, scratch: Path) -> None:
        """Create a sparse file of ``size`` zero bytes atomically; its name is not synced.

        ``scratch``: a directory on the same file system, in which the file is prepared.
        """
        self.make_directory(scratch)
        beside = scratch / f"{path.name}.{os.getpid()}.new"
        try:
            with self.new_file(beside) as file:
                file.truncate(size)
            self.make_directory(path.parent)
            beside.rename(path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            if error.filename is None:
                error.filename = str(path)
            raise

    def open_file(self, path: Path) -> WritableFile:
        return WritableFile(path)

    def new_file(self, path: Path, like: Path | None = None) -> BinaryIO:
        """Create or truncate a file that only this user can read; it is not synced.

        ``like``: a file whose permissions the new one gets instead, if it exists.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            if like is not None:
                with suppress(FileNotFoundError):
                    os.fchmod(descriptor, stat.S_IMODE(like.stat().st_mode))
            return os.fdopen(descriptor, "wb")
        except BaseException:
            os.close(descriptor)
            raise

    def make_reserved_file(self, path: Path, size: int) -> None:
        """Create a file of ``size`` zero bytes with reserved blocks; it is not synced.

        :raises OSError: if the disk is full; no file is left then.
        """
        with self.new_file(path) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                path.unlink()
                error.filename = str(path)
                raise

    def make_directory(self, directory: Path) -> None:
        """Create a directory and its parents for this user alone; their names are not synced."""
        for one in _missing(directory):
            one.mkdir(PRIVATE_DIRECTORY, exist_ok=True)

    def make_directory_durably(self, directory: Path) -> None:
        """Create a directory and its parents, and wait until their names are on the disk."""
        for one in _missing(directory):
            one.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
            self.sync_directory(one.parent)

    def check_writable(self, directory: Path) -> None:
        """Check that a directory can be created, or an existing one is writable; change nothing."""
        if directory.is_dir():
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
            return
        missing = _missing(directory)
        try:
            self.make_directory(directory)
        finally:
            for one in reversed(missing):
                with suppress(OSError):
                    one.rmdir()

    def write_durably(self, path: Path, content: bytes) -> None:
        """Write a small file beside ``path``, sync it, and rename it to ``path``.

        :raises OSError: if the file may not be on the disk. The old file stays, unless only the
            sync of the name failed.
        """
        self.make_directory_durably(path.parent)
        beside = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            with self.new_file(beside, like=path) as file:
                file.write(content)
            self.sync_file(beside)
            beside.replace(path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            if isinstance(error, fs.SyncFailed) and error.errno in fs.DISK_FULL_ERRORS:
                # The next attempt writes another file, so this one does not matter.
                raise OSError(error.errno, error.strerror, str(path)) from error
            if error.filename is None:
                error.filename = str(path)
            raise
        self.sync_directory(path.parent)

    def append_durably(self, path: Path, content: bytes) -> None:
        """Append to an existing small file, and sync it.

        :raises OSError: if the content may not be on the disk, or only a part of it.
        """
        with path.open("ab") as file:
            file.write(content)
        self.sync_file(path)

    def set_size(self, path: Path, size: int) -> None:
        """Truncate a file, or extend it by a hole."""
        os.truncate(path, size)

    def move(self, path: Path, target: Path) -> None:
        self.make_directory(target.parent)
        path.rename(target)

    def link_file(self, path: Path, target: Path) -> None:
        """Create or replace a hard link within a file system; it is not synced.

        :raises OSError: also if the file system does not support links.
        """
        self.make_directory(target.parent)
        target.unlink(missing_ok=True)
        target.hardlink_to(path)

    def remove_tree(self, directory: Path) -> None:
        """Delete a directory and everything below it; ignored if it does not exist."""
        import shutil

        with suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def remove_file(self, path: Path) -> None:
        """Delete a file; ignored if it does not exist."""
        path.unlink(missing_ok=True)

    def sync_file(self, path: Path) -> None:
        """Wait until a file's bytes are on the disk, whichever process wrote them.

        :raises SyncFailed: if the bytes may not be on the disk.
        :raises OSError: if the file cannot be opened: its state is unknown.
        """
        _sync_path(path)

    def sync_for_reading(self, path: Path) -> None:
        """Wait until a file's bytes are on the disk, so that bytes read from it cannot vanish.

        Do nothing on a file system that is read-only or cannot sync.
        """
        try:
            self.sync_file(path)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EINVAL, errno.ENOTSUP):
                raise

    def sync_descriptor(self, descriptor: int, path: Path) -> None:
        """Wait until the bytes of an open file are on the disk; ``path`` is for the error."""
        _sync(descriptor, path)

    def sync_directory(self, directory: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        _sync_path(directory)

    def sync_tree(self, directory: Path) -> None:
        """Wait until everything below a directory is on the disk, except its own name."""
        for parent, _, names in os.walk(directory):
            for name in names:
                self.sync_file(Path(parent, name))
            self.sync_directory(Path(parent))

    def exchange_directories(self, new: Path, current: Path) -> None:
        """Replace ``current`` by directory ``new``, which must be synced, and sync the names.

        The old directory is then at ``new``. If ``current`` does not exist, this is a rename;
        otherwise an atomic exchange on Linux, and three renames on systems and file systems
        without one. :meth:`restore_directories` repairs the state that a process killed between
        them leaves.

        :raises OSError: if the exchange failed, or may not be on the disk.
        """
        if not current.exists():
            new.rename(current)
        elif not _exchange(new, current):
            aside = current.with_name(_ASIDE_PREFIX + current.name)
            current.rename(aside)
            try:
                new.rename(current)
            except BaseException:
                aside.rename(current)
                raise
            aside.rename(new)
        self.sync_directory(current.parent)

    def restore_directories(self, root: Path) -> None:
        """Complete exchanges in ``root`` that a killed process left.

        The old directory is deleted if the new one has its name, and put back otherwise. The caller
        must hold the lock of ``root``.
        """
        for name, aside in _asides(root):
            if not (root / name).exists():
                aside.rename(root / name)
                self.sync_directory(root)
            elif aside.name.startswith(_ASIDE_PREFIX):
                self.remove_tree(aside)

    def boot_id(self) -> str:
        """Return an id of the machine's current boot; a new one each time if it is unknown."""
        content = fs.read_bytes(_BOOT, 64)
        return content.decode("ascii", "replace").strip() if content else os.urandom(8).hex()

    def space(self, path: Path) -> Space:
        status = os.statvfs(path)
        return Space(status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)

    def used_ratio(self, path: Path) -> float:
        """Return the used part of the file system of ``path``, 0 to 1, as ``df`` computes it."""
        status = os.statvfs(path)
        used = status.f_blocks - status.f_bfree
        return used / max(used + status.f_bavail, 1)


def _missing(directory: Path) -> list[Path]:
    """Return the missing parents of a directory and itself, outermost first."""
    missing: list[Path] = []
    while not directory.is_dir():
        missing.insert(0, directory)
        directory = directory.parent
    return missing


def _sync(descriptor: int, path: Path, *, with_metadata: bool = True) -> None:
    """Wait until the bytes of an open file are on the disk; ``path`` is for the error.

    :raises SyncFailed: if the bytes may not be on the disk.
    """
    try:
        if with_metadata:
            os.fsync(descriptor)
        else:
            os.fdatasync(descriptor)
    except OSError as error:
        raise fs.SyncFailed(error.errno, error.strerror, str(path)) from error


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(descriptor, path)
    finally:
        os.close(descriptor)


def missing_directories(root: Path) -> list[str]:
    """Return the names of directories of ``root`` that an unfinished exchange removed."""
    return [name for name, _ in _asides(root) if not (root / name).exists()]


def _asides(root: Path) -> list[tuple[str, Path]]:
    """Return the old directories of unfinished exchanges in ``root``, and their original names."""
    directories: list[tuple[str, Path]] = []
    for entry in fs.entries(root):
        name = entry.name.removeprefix(_ASIDE_PREFIX)
        if name != entry.name:
            directories.append((name, Path(entry.path)))
        elif match := _OLD_ASIDE.fullmatch(entry.name):
            directories.append((match[1], Path(entry.path)))
    return directories


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names atomically; return False if the system does not support it."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)  # the C library of the running Python
    if not hasattr(libc, "renameat2"):
        return False
    result = libc.renameat2(
        _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE
    )
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))
