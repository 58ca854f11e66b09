"""Reads the file system, classifies its errors, and keeps a bounded number of files mapped.

:class:`rocketlens.store.disk.Disk` makes all changes.
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
"""Maximum number of open files, even if the system allows more. Linux allows 65,530 mappings."""
MAX_MAPPED_FILES: Final = 256
"""Segments that one reader of a log keeps mapped, each an open file. RocketMQ maps all of them."""
_PIECE_BYTES: Final = 1 << 20
_LOOK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_LOOK_BYTES)
_STAMP_STEP_NS: Final = 50_000_000
_COARSE_STAMP_STEP_NS: Final = 2_000_000_000

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
"""Mode of new files of a store: only the broker's user can read messages."""

DISK_FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)

CANNOT_NOW_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
"""Error numbers that do not depend on the file: opening or mapping it may succeed later."""


class SyncFailed(OSError):
    """A failed sync: the state of the file on the disk is unknown from then on.

    Linux reports a page that could not be written only once. So a later sync that succeeds proves
    nothing, whatever the error number was.
    """


def may_pass(error: OSError) -> bool:
    """Return True if the same call can succeed later, because disk space, descriptors or memory ran
    out. Always False for a failed sync.
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

    Each mapping holds an open file, and a process often has a limit of 1,024. A file of at most
    ``copy_bytes`` is read into memory instead, and holds no open file.
    """

    def __init__(self, path: Path, size: int | None = None, *, copy_bytes: int = 0) -> None:
        self.path = path
        self.zeros_from: int = sys.maxsize
        """The file had only zeros from this byte offset on when it was last read to the end."""
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
        return len(self.content)

    def array(self) -> "npt.NDArray[np.uint8]":
        """Return the content as a read-only array of bytes, without copying."""
        return np.frombuffer(self.content, dtype=np.uint8)

    def is_cut(self) -> bool:
        """Return True if the file is shorter now: a read after its end would raise SIGBUS."""
        return isinstance(self.content, mmap.mmap) and self.content.size() < len(self.content)

    def will_scan(self) -> None:
        if isinstance(self.content, mmap.mmap):
            self.content.madvise(mmap.MADV_SEQUENTIAL)

    def close(self) -> None:
        """Unmap; while views exist, the mapping stays until the last one is released."""
        try:
            self.view.release()
            if isinstance(self.content, mmap.mmap):
                self.content.close()
        except BufferError:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def max_open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, MAX_OPEN_FILES) if soft >= 0 else MAX_OPEN_FILES


_MIN_QUEUES: Final = 64
_MIN_MAPPED: Final = 8


def max_open_queues() -> int:
    """Return the maximum number of queues with an open file, each of which has two descriptors."""
    return max((max_open_files() - 256) // 8, _MIN_QUEUES)


def max_mapped_files() -> int:
    """Return the maximum number of segments that one reader keeps mapped, a descriptor each."""
    return min(max(max_open_files() // 16, _MIN_MAPPED), MAX_MAPPED_FILES)


def raise_open_file_limit() -> int:
    """Raise the limit of open files to its maximum; return the new limit, at most 65,536.

    A server needs a descriptor for each connection, so the usual 1,024 are not enough.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse this because of other limits.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max_open_files()


def user_cache() -> Path:
    """Return the user's cache directory: XDG_CACHE_HOME or ~/.cache.

    A relative XDG_CACHE_HOME is ignored, as the XDG specification requires.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen) if chosen.startswith("/") else Path.home() / ".cache"


def pid() -> int:
    return os.getpid()


def data_extents(path: Path, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``start .. stop - 1`` that are not in a hole of the file, ascending.

    Yield the whole range if the file system does not report holes, or the file is gone. The file
    is opened again for each part, so a reader that stops early leaves nothing open.
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
    """Return the offset of the last nonzero byte of a mapped file from ``start`` on, or None."""
    last = None
    for low, high in data_extents(path, start, len(content)):
        for position in range(low, high, _PIECE_BYTES):
            end = min(position + _PIECE_BYTES, high)
            if piece := bytes(content[position:end]).rstrip(b"\0"):
                last = position + len(piece) - 1
    return last


def entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a directory in name order; nothing if it does not exist.

    :raises OSError: if it exists but cannot be read.
    """
    try:
        with os.scandir(directory) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return


def directory_stamp(directory: Path) -> DirectoryStamp | None:
    """Return the stamp of a directory; None if it does not exist or cannot be read.

    Return None also if the directory was modified so recently that another change could leave the
    same stamp: file times have steps of up to 10 ms, on old file systems of a second.
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
    """Return whether a directory still has the same stamp, and so the same names.

    One system call, because each look-up calls this.
    """
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return (status.st_dev, status.st_ino, status.st_mtime_ns) == stamp


class FileWatch:
    """Detects changes of files and of the names in directories, with a system call for each.

    A missing path is watched through its nearest existing parent. A file that changed so recently
    that another change could leave the same times counts as changed.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths: Final = tuple(map(os.fspath, paths))
        self._stamps: list[tuple[str, tuple[int, ...]]] = []

    def has_changed(self) -> bool:
        """Return True if something was added, removed or written since the last call."""
        for path, stamp in self._stamps:
            try:
                if _stamp_of(os.stat(path)) != stamp:
                    break
            except OSError:
                break
        else:
            if self._stamps:
                return False
        self._stamps = self._read_stamps()
        return True

    def _read_stamps(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the stamps; empty if another change could leave one of them the same."""
        stamps: dict[str, tuple[int, ...]] = {}
        for path in self._paths:
            existing = path
            while existing not in stamps:
                try:
                    stamps[existing] = _stamp_of(os.stat(existing))
                except OSError:
                    existing = os.path.dirname(existing) or os.curdir
        now_ns = time.time_ns()
        are_old = (now_ns - each[-1] > _step_ns(each[-1]) for each in stamps.values())
        return [*stamps.items()] if all(are_old) else []


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def _step_ns(time_ns: int) -> int:
    """Return the resolution of a file time: a later change within it can leave the same time."""
    return _STAMP_STEP_NS if time_ns % 1_000_000_000 else _COARSE_STAMP_STEP_NS


def file_id(entry: "os.DirEntry[str]") -> FileId | None:
    """Return the identity of a listed file; None if it was deleted meanwhile."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return FileId(status.st_dev, status.st_ino)


def size_of(entry: "os.DirEntry[str]") -> int:
    """Return the size of a listed file; 0 if it is no regular file, or was deleted meanwhile."""
    try:
        return entry.stat().st_size if entry.is_file() else 0
    except FileNotFoundError:
        return 0


def exists(path: str) -> bool:
    return os.access(path, os.F_OK)


def file_size(path: Path) -> int | None:
    """Return the size of a file, or None if it does not exist."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_part(path: Path | str, start: int, count: int) -> bytes:
    """Read up to ``count`` bytes from byte ``start`` of a file; empty if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    try:
        return os.pread(descriptor, count, start)
    finally:
        os.close(descriptor)


def has_bytes_from(path: Path | str, start: int) -> bool:
    """Return whether a byte from ``start`` on is not zero. Holes are not read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = start
        while True:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return False
                # The file system does not report holes: read everything.
            part = os.pread(descriptor, _LOOK_BYTES, position)
            if not part:
                return False
            # A comparison is a hundred times faster than `any`.
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
    """Return whether two paths lead to the same file or directory; False if one is missing."""
    try:
        return first.samefile(second)
    except (FileNotFoundError, NotADirectoryError):
        return False


class _Kept(Struct):
    size: int
    mapped: MappedFile
    checked_in: int


class MappedFiles:
    """A cache of mapped files. A dropped file stays mapped as long as a caller holds it.

    Another process can replace or truncate a file. Callers therefore pass the identity of the file
    they mean, and :meth:`invalidate` makes the next :meth:`get` of each file check it.
    """

    def __init__(self) -> None:
        self._files: dict[FileId | Path, _Kept] = {}
        """By identity, which no other file can have while this one is mapped."""
        self._round = 0

    def get(self, path: Path, size: int, file_id: FileId | None = None) -> MappedFile:
        """Return the first ``size`` bytes of a file; map it again if another size is needed.

        ``file_id``: the expected file, if known.

        :raises OSError: if the file cannot be opened; with ESTALE if another file has its name
            now, or it was truncated after it was mapped.
        """
        key = path if file_id is None else file_id
        entry = self._files.get(key)
        if entry is not None and entry.size == size:
            if entry.checked_in == self._round:
                return entry.mapped
            entry.checked_in = self._round
            if not entry.mapped.is_cut():
                return entry.mapped
            del self._files[key]
            raise OSError(errno.ESTALE, "the file was truncated", str(path))
        mapped = self._mapped(path, size)
        if file_id is not None and mapped.file_id != file_id:
            raise OSError(errno.ESTALE, "another file has this name now", str(path))
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
        # The mappings in this cache use up the descriptors.
        self._files.clear()
        return MappedFile(path, size)

    def invalidate(self) -> None:
        """Check each file before it is next returned: it can have been truncated."""
        self._round += 1

    def drop(self, file: "FileId | Path") -> None:
        self._files.pop(file, None)

    def close(self) -> None:
        for kept in self._files.values():
            kept.mapped.close()
        self._files.clear()
