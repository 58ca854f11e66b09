"""Reads the file system, tells its errors apart, and keeps a bounded number of files mapped.

All changes go through :class:`rocketlens.store.disk.Disk`.
"""

import errno
import mmap
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from msgspec import Struct

from rocketlens.late import np, npt

MAX_OPEN_FILES: Final = 65_536
"""Files that a process has open, even if more are allowed: Linux maps about as many at once."""
MAX_MAPPED_FILES: Final = 256
"""Segments that one reader of a log keeps mapped, an open file each. RocketMQ: all of them."""
_CLEAR_BYTES: Final = 1 << 20
_LOOK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_LOOK_BYTES)
_STAMP_STEP_NS: Final = 50_000_000
_COARSE_STAMP_STEP_NS: Final = 2_000_000_000

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
"""Permissions of new files of a store: only the broker's user may read messages."""

DISK_FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk or quota."""

CANNOT_NOW_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
"""Error numbers that do not depend on the file: opening or mapping it may succeed later."""


class SyncFailed(OSError):
    """A failed sync: the state of the file on the disk is unknown from then on.

    Linux reports a page that could not be written only once. So a later sync that succeeds proves
    nothing, whatever the error number was.
    """


def may_pass(error: OSError) -> bool:
    """Return whether the same call can succeed later: no disk space, descriptor or memory was left.

    Always False for a failed sync.
    """
    return not isinstance(error, SyncFailed) and error.errno in (
        *DISK_FULL_ERRORS,
        *CANNOT_NOW_ERRORS,
    )


class FileId(NamedTuple):
    """Identity of a file under any name; unique while the file is open."""

    device: int
    inode: int


class DirectoryStamp(NamedTuple):
    """Changes when a directory is replaced, or a name is added to it or removed."""

    device: int
    inode: int
    modified_ns: int


class MappedFile:
    """A file mapped into memory for reading, whole or its first ``size`` bytes.

    The mapping stays valid when the file is deleted. ``content`` has ``find``, slicing and
    ``len`` like bytes; an empty file is empty bytes. Cost of opening: O(1) in the file's size.

    Each mapping holds an open file, of which a process has perhaps 1,024. A file of at most
    ``copy_bytes`` is read instead, as it is now, and holds none.
    """

    def __init__(self, path: Path, size: int | None = None, *, copy_bytes: int = 0) -> None:
        """Map ``path``.

        :raises OSError: as ``open`` does.
        """
        self.path = path
        self.zeros_from: int = sys.maxsize
        """From this byte offset on the file had only zeros when it was last read to the end."""
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            self.file_id = FileId(status.st_dev, status.st_ino)
            length = status.st_size
            if size is not None:
                length = min(length, size)
            self.content: bytes | mmap.mmap = (
                mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
                if length > copy_bytes
                else file.read(length)
            )
        self.view = memoryview(self.content)

    def __len__(self) -> int:
        """Return the size in bytes at the time of mapping."""
        return len(self.content)

    def array(self) -> "npt.NDArray[np.uint8]":
        """Return the content as a read-only array of bytes, without copying."""
        return np.frombuffer(self.content, dtype=np.uint8)

    def is_cut(self) -> bool:
        """Return whether the file is shorter now: reading behind its end would end the process
        (SIGBUS).
        """
        return isinstance(self.content, mmap.mmap) and self.content.size() < len(self.content)

    def will_scan(self) -> None:
        """Advise the kernel that the file will be read from front to back."""
        if isinstance(self.content, mmap.mmap):
            self.content.madvise(mmap.MADV_SEQUENTIAL)

    def close(self) -> None:
        """Unmap; if a view is still held, the mapping is freed with the last view."""
        try:
            self.view.release()
            if isinstance(self.content, mmap.mmap):
                self.content.close()
        except BufferError:
            pass

    def __enter__(self) -> Self:
        """Return this mapping."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap."""
        self.close()


def max_open_files() -> int:
    """Return how many files this process may have open at once, up to 65,536."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, MAX_OPEN_FILES) if soft >= 0 else MAX_OPEN_FILES


_MIN_QUEUES: Final = 64
_MIN_MAPPED: Final = 8


def max_open_queues() -> int:
    """Return how many queues of a store may have a file open at once, two descriptors each."""
    return max((max_open_files() - 256) // 8, _MIN_QUEUES)


def max_mapped_files() -> int:
    """Return how many segments one reader of a log may keep mapped, a descriptor each."""
    return min(max(max_open_files() // 16, _MIN_MAPPED), MAX_MAPPED_FILES)


def raise_open_file_limit() -> int:
    """Raise the limit of open files to its maximum; return that, at most 65,536.

    Each connection of a server needs one. The usual 1,024 are not enough for many.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # If that is refused, as on systems with other limits, it stays as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max_open_files()


def user_cache() -> Path:
    """Return the directory for the user's files that can be made again: XDG_CACHE_HOME or ~/.cache.

    A relative XDG_CACHE_HOME is ignored, as its specification says.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen) if chosen.startswith("/") else Path.home() / ".cache"


def pid() -> int:
    """Return the id of this process."""
    return os.getpid()


def next_data_offset(path: Path, start: int) -> int | None:
    """Return the first byte offset at or after ``start`` that is not in a hole; None if there is
    none.

    If the file system cannot tell, that is ``start`` itself.
    """
    with path.open("rb") as file:
        try:
            return os.lseek(file.fileno(), start, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else start


def data_extents(path: Path, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``start .. stop - 1`` that are not in a hole of the file, ascending.

    If the file system cannot tell, or the file is gone, that is the whole range. The file is opened
    again for each part, so that a reader that stops early has nothing open.
    """
    position = start
    while position < stop:
        try:
            with path.open("rb") as file:
                position = os.lseek(file.fileno(), position, os.SEEK_DATA)
                end = os.lseek(file.fileno(), position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            end = stop
        if position < stop:
            yield position, min(end, stop)
        position = end


def last_written(path: Path, content: memoryview, start: int) -> int | None:
    """Return the offset of the last nonzero byte from ``start`` on; None if there is none.

    ``content`` is the mapped file; its holes are not read.
    """
    last = None
    position: int | None = start
    while position is not None and position < len(content):
        position = next_data_offset(path, position)
        if position is not None:
            piece = bytes(content[position : position + _CLEAR_BYTES]).rstrip(b"\0")
            if piece:
                last = position + len(piece) - 1
            position += _CLEAR_BYTES
    return last


def entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Return the entries of a directory by name; empty if it does not exist.

    :raises OSError: if it cannot be read for another reason.
    """
    try:
        with os.scandir(directory) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return


def directory_stamp(directory: Path) -> DirectoryStamp | None:
    """Return the stamp of a directory; None if it does not exist or cannot be read.

    None also if it was modified so recently that a change now could give the same stamp: times have
    steps of up to 10 ms, on old file systems of a second.
    """
    try:
        status = directory.stat()
    except OSError:
        return None
    modified_ns = status.st_mtime_ns
    if not time.time_ns() - modified_ns > _step_ns(modified_ns):
        return None
    return DirectoryStamp(status.st_dev, status.st_ino, modified_ns)


def is_as_stamped(directory: str, stamp: DirectoryStamp) -> bool:
    """Return whether a directory still has the same stamp, so the same names.

    Each look-up calls this: one system call.
    """
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return (status.st_dev, status.st_ino, status.st_mtime_ns) == stamp


class FileWatch:
    """Sees whether some files, and directories' names, are as they were when it last looked.

    What is missing is watched by the nearest directory above it. Costs a system call for each file.
    What was changed so recently that a change now could leave the same times counts as changed.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        """Look at nothing yet."""
        self._paths: Final = tuple(map(os.fspath, paths))
        self._stamps: list[tuple[str, tuple[int, ...]]] = []

    def has_changed(self) -> bool:
        """Return whether something was added, removed or written since the last call."""
        for path, stamp in self._stamps:
            try:
                if _stamp_of(os.stat(path)) != stamp:
                    break
            except OSError:
                break
        else:
            if self._stamps:
                return False
        self._stamps = self._looked_at()
        return True

    def _looked_at(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the stamps; none if one of them could stay the same over a change now."""
        stamps: dict[str, tuple[int, ...]] = {}
        for path in self._paths:
            there = path
            while there not in stamps:
                try:
                    stamps[there] = _stamp_of(os.stat(there))
                except OSError:
                    there = os.path.dirname(there) or os.curdir
        now_ns = time.time_ns()
        are_old = (now_ns - each[-1] > _step_ns(each[-1]) for each in stamps.values())
        return [*stamps.items()] if all(are_old) else []


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def _step_ns(time_ns: int) -> int:
    """Return within how long after a time of a file a change may leave it the same."""
    return _STAMP_STEP_NS if time_ns % 1_000_000_000 else _COARSE_STAMP_STEP_NS


def file_id(entry: "os.DirEntry[str]") -> FileId | None:
    """Return the identity of a listed file; None if it was deleted meanwhile."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return FileId(status.st_dev, status.st_ino)


def size_of(entry: "os.DirEntry[str]") -> int:
    """Return the size of a listed file; 0 if it is not a file, or was deleted meanwhile."""
    try:
        return entry.stat().st_size if entry.is_file() else 0
    except FileNotFoundError:
        return 0


def exists(path: str) -> bool:
    """Return whether a path leads to something."""
    return os.access(path, os.F_OK)


def file_size(path: Path) -> int | None:
    """Return the size of a file, or None if it does not exist.

    :raises OSError: if the size cannot be read.
    """
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_part(path: Path | str, start: int, count: int) -> bytes:
    """Read up to ``count`` bytes from byte ``start`` of a file; empty if it does not exist.

    :raises OSError: if it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    try:
        return os.pread(descriptor, count, start)
    finally:
        os.close(descriptor)


def has_bytes_from(path: Path | str, start: int) -> bool:
    """Return whether a byte from ``start`` on is not zero; holes are not read.

    :raises OSError: if the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = start
        while True:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return False
                # If the file system cannot tell holes, all of it is read.
            part = os.pread(descriptor, _LOOK_BYTES, position)
            if not part:
                return False
            # Comparing is a hundred times faster than counting zeros.
            if part != (_ZEROS if len(part) == _LOOK_BYTES else bytes(len(part))):
                return True
            position += len(part)
    finally:
        os.close(descriptor)


def read_bytes(path: Path, limit: int) -> bytes | None:
    """Read at most ``limit`` bytes of a small file; None if it does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def is_same(first: Path, second: Path) -> bool:
    """Return whether two paths lead to the same file or directory.

    :raises OSError: if one of them cannot be read for another reason than missing.
    """
    try:
        return first.samefile(second)
    except (FileNotFoundError, NotADirectoryError):
        return False


class _Kept(Struct):
    size: int
    mapped: MappedFile
    looked_at: int
    """The round in which the file was last checked."""


class MappedFiles:
    """Mapped files by path. A dropped one stays mapped as long as a caller holds it.

    Another process may put another file in a file's place, or cut it. So a caller says which file
    it means, and :meth:`look_again` has each one looked at again when it is next asked for.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self._files: dict[FileId | Path, _Kept] = {}
        """By the file that is meant; while it is mapped, its number is no other file's."""
        self._round = 0

    def get(self, path: Path, size: int, file_id: FileId | None = None) -> MappedFile:
        """Return the first ``size`` bytes of a file; map it again if another size is needed.

        ``file_id``: the file that is meant, when that is known.

        :raises OSError: when it cannot be opened; ESTALE when another file is there now, or this
            one was cut after it was mapped.
        """
        key = path if file_id is None else file_id
        entry = self._files.get(key)
        if entry is not None and entry.size == size:
            if entry.looked_at == self._round:
                return entry.mapped
            entry.looked_at = self._round
            if not entry.mapped.is_cut():
                return entry.mapped
            del self._files[key]
            raise OSError(errno.ESTALE, "the file was cut short", str(path))
        mapped = self._mapped(path, size)
        if file_id is not None and mapped.file_id != file_id:
            raise OSError(errno.ESTALE, "another file is there now", str(path))
        self._files.pop(key, None)
        if len(self._files) >= max_mapped_files():
            del self._files[next(iter(self._files))]
        self._files[key] = _Kept(size, mapped, self._round)
        return mapped

    def _mapped(self, path: Path, size: int) -> MappedFile:
        try:
            return MappedFile(path, size)
        except OSError as error:
            if error.errno not in CANNOT_NOW_ERRORS or not self._files:
                raise
        # Mappings in this cache use the descriptors that are needed now.
        self._files.clear()
        return MappedFile(path, size)

    def look_again(self) -> None:
        """Check each file again before it is next returned: it may have been cut."""
        self._round += 1

    def drop(self, file: "FileId | Path") -> None:
        """Drop one file from the cache."""
        self._files.pop(file, None)

    def close(self) -> None:
        """Unmap all files that no caller holds."""
        for kept in self._files.values():
            kept.mapped.close()
        self._files.clear()
