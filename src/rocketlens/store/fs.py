"""The file system as it is read, and what it can refuse.

What changes it is asked of a :class:`rocketlens.store.disk.Disk`.
"""

import errno
import mmap
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from rocketlens import limits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CLEAR_BYTES: Final = 1 << 20
_LOOK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_LOOK_BYTES)
_STAMP_STEP_NS: Final = 50_000_000
_COARSE_STAMP_STEP_NS: Final = 2_000_000_000

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
"""Permissions of what is made in a store: messages are for who runs the broker alone."""

DISK_FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers that say that there is no room."""

CANNOT_NOW_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
"""Error numbers that say nothing about a file: opening or mapping it may succeed later."""


class SyncFailed(OSError):
    """A sync that failed: what the disk has of the file is unknown from then on, and final.

    Linux reports a page that could not be written once. So another sync that succeeds proves
    nothing, whatever the number of the error is.
    """


def may_pass(error: OSError) -> bool:
    """Return whether the same call can succeed later: there was no room, no descriptor, no memory.

    Never true of a sync that failed.
    """
    return not isinstance(error, SyncFailed) and error.errno in (
        *DISK_FULL_ERRORS,
        *CANNOT_NOW_ERRORS,
    )


class FileId(NamedTuple):
    """What a file is, whatever its name: no other file has it as long as this one is open."""

    device: int
    inode: int


class DirectoryStamp(NamedTuple):
    """What changes when a name is added to a directory or taken away, or the directory replaced."""

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
        """From this position on a reader saw zeros only, when it last read to the end."""
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
        """Return the size in bytes when the file was mapped."""
        return len(self.content)

    def array(self) -> "npt.NDArray[np.uint8]":
        """Return the content as a read-only array of bytes, without copying."""
        import numpy as np

        return np.frombuffer(self.content, dtype=np.uint8)

    def is_cut(self) -> bool:
        """Return whether the file is shorter now: to read behind its end would end the process."""
        return isinstance(self.content, mmap.mmap) and self.content.size() < len(self.content)

    def will_scan(self) -> None:
        """Advise the kernel that the file will be read from front to back."""
        if isinstance(self.content, mmap.mmap):
            self.content.madvise(mmap.MADV_SEQUENTIAL)

    def close(self) -> None:
        """Unmap, unless someone still holds a view: then the mapping goes with the last view."""
        try:
            self.view.release()
            if isinstance(self.content, mmap.mmap):
                self.content.close()
        except BufferError:
            pass

    def __enter__(self) -> Self:
        """Return the mapping."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap."""
        self.close()


def max_open_files() -> int:
    """Return how many files this process may have open at once, up to 65,536."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, limits.MAX_OPEN_FILES) if soft >= 0 else limits.MAX_OPEN_FILES


_OTHER_FILES: Final = 64
"""Of a store besides its queues and segments: notes, index files, directories being listed."""
_MIN_QUEUES: Final = 64
_MIN_MAPPED: Final = 8
_LOGS: Final = 4
"""Readers of one log in a broker: the store, its index builder, look-ups, and new look-ups."""


def max_open_queues() -> int:
    """Return how many queues of a store may have a file open at once, two descriptors each."""
    return max((max_open_files() - 256) // 8, _MIN_QUEUES)


def max_mapped_files() -> int:
    """Return how many segments one reader of a log may keep mapped, a descriptor each."""
    return min(max(max_open_files() // 16, _MIN_MAPPED), limits.MAX_MAPPED_FILES)


def store_open_files() -> int:
    """Return how many open files a store that is written may need, with its readers."""
    return 2 * max_open_queues() + _LOGS * max_mapped_files() + _OTHER_FILES


def raise_open_file_limit() -> int:
    """Raise the limit of open files as far as it may go; return how many that are, as above.

    Each connection of a server is one. Usual are 1,024, and leave to take many more.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where it is refused, as on systems whose limit is not the whole truth, it stays as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max_open_files()


def pid() -> int:
    """Return the number of this process."""
    return os.getpid()


def next_data_offset(path: Path, start: int) -> int | None:
    """Return the first position at or after ``start`` that is not in a hole of the file.

    None when only a hole follows. Where the file system cannot tell, that is ``start`` itself.
    """
    with path.open("rb") as file:
        try:
            return os.lseek(file.fileno(), start, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else start


def data_extents(path: Path, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Return the parts of ``start .. stop - 1`` that are not in a hole of the file, ascending.

    Where the file system cannot tell, or the file is gone, that is all of it. The file is opened
    anew for each part, so that a reader which stops early holds nothing open.
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
    """Return the position of the last byte from ``start`` on that is not zero; None without one.

    ``content`` is the mapped file; its holes are not looked at.
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
    """Return what is in a directory by name; nothing when there is no such directory.

    :raises OSError: when it cannot be read for another reason.
    """
    try:
        with os.scandir(directory) as found:
            yield from sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return


def directory_stamp(directory: Path) -> DirectoryStamp | None:
    """Return the stamp of a directory; None when it is not there or cannot be looked at.

    None also when it was modified so lately that a change right now could leave the same stamp:
    times move in steps of 10 ms at most, on old file systems of a second.
    """
    try:
        status = directory.stat()
    except OSError:
        return None
    modified_ns = status.st_mtime_ns
    step_ns = _STAMP_STEP_NS if modified_ns % 1_000_000_000 else _COARSE_STAMP_STEP_NS
    if not time.time_ns() - modified_ns > step_ns:
        return None
    return DirectoryStamp(status.st_dev, status.st_ino, modified_ns)


def is_as_stamped(directory: str, stamp: DirectoryStamp) -> bool:
    """Return whether a directory is the one that got a stamp, with the same names in it.

    A look-up pays for this: one system call.
    """
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return (status.st_dev, status.st_ino, status.st_mtime_ns) == stamp


def file_id(entry: "os.DirEntry[str]") -> FileId | None:
    """Return what a listed file is; None when it was deleted since."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return FileId(status.st_dev, status.st_ino)


def size_of(entry: "os.DirEntry[str]") -> int:
    """Return the size of a file that was listed; 0 when it is none, or was deleted since."""
    try:
        return entry.stat().st_size if entry.is_file() else 0
    except FileNotFoundError:
        return 0


def file_size(path: Path) -> int | None:
    """Return the size of a file, or None when there is none.

    :raises OSError: when that cannot be known now.
    """
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_part(path: Path | str, start: int, count: int) -> bytes:
    """Read up to ``count`` bytes from byte ``start`` of a file; none when it is not there.

    :raises OSError: when it cannot be read now.
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
    """Return whether a byte from ``start`` on is not zero; the file's holes are not looked at.

    :raises OSError: when it cannot be read.
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
                # Where the file system cannot tell, all of it is read.
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
    """Read at most ``limit`` bytes of a small file; None when it is not there."""
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def is_same(first: Path, second: Path) -> bool:
    """Return whether two paths lead to one file or directory, however they are written.

    :raises OSError: when one of them cannot be looked at for another reason than missing.
    """
    try:
        return first.samefile(second)
    except (FileNotFoundError, NotADirectoryError):
        return False
