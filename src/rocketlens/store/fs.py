"""The file system, as much of it as a store needs.

Every other module asks this one, so that a test can see or fail each operation in one place.
"""

import errno
import mmap
import os
import resource
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Self

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
        """Give the size in bytes when the file was mapped."""
        return len(self.content)

    def array(self) -> "npt.NDArray[np.uint8]":
        """Give the content as a read-only array of bytes, without copying."""
        import numpy as np

        return np.frombuffer(self.content, dtype=np.uint8)

    def is_cut(self) -> bool:
        """Say whether the file is shorter now: to read behind its end would end the process."""
        return isinstance(self.content, mmap.mmap) and self.content.size() < len(self.content)

    def will_scan(self) -> None:
        """Tell the kernel that the file will be read from front to back."""
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
        """Give the mapping."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap."""
        self.close()


def most_open_files() -> int:
    """Give how many files this process may have open at once, up to 65,536."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, limits.MAX_OPEN_FILES) if soft >= 0 else limits.MAX_OPEN_FILES


_OTHER_FILES: Final = 64
"""Of a store besides its queues and segments: notes, index files, directories being listed."""
_MIN_QUEUES: Final = 64
_MIN_MAPPED: Final = 8
_LOGS: Final = 4
"""Readers of one log in a broker: the store, its index builder, look-ups, and new look-ups."""


def most_open_queues() -> int:
    """Return how many queues of a store may have a file open at once, two descriptors each."""
    return max((most_open_files() - 256) // 8, _MIN_QUEUES)


def most_mapped_files() -> int:
    """Return how many segments one reader of a log may keep mapped, a descriptor each."""
    return min(max(most_open_files() // 16, _MIN_MAPPED), limits.MAX_MAPPED_FILES)


def store_open_files() -> int:
    """Return how many open files a store that is written may need, with its readers."""
    return 2 * most_open_queues() + _LOGS * most_mapped_files() + _OTHER_FILES


def allow_open_files() -> int:
    """Let this process have open as many files as it may; gives how many, as above.

    Each connection of a server is one. Usual are 1,024, and leave to take many more.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where it is refused, as on systems whose limit is not the whole truth, it stays as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return most_open_files()


def process_number() -> int:
    """Give the number of this process."""
    return os.getpid()


def next_written(path: Path, start: int) -> int | None:
    """Give the first position at or after ``start`` that is not in a hole of the file.

    None when only a hole follows. Where the file system cannot tell, that is ``start`` itself.
    """
    with path.open("rb") as file:
        try:
            return os.lseek(file.fileno(), start, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else start


def written_parts(path: Path, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Give the parts of ``start .. stop - 1`` that are not in a hole of the file, ascending.

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
    """Give the position of the last byte from ``start`` on that is not zero; None without one.

    ``content`` is the mapped file; its holes are not looked at.
    """
    last = None
    position: int | None = start
    while position is not None and position < len(content):
        position = next_written(path, position)
        if position is not None:
            piece = bytes(content[position : position + _CLEAR_BYTES]).rstrip(b"\0")
            if piece:
                last = position + len(piece) - 1
            position += _CLEAR_BYTES
    return last


def entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Give what is in a directory by name; nothing when there is no such directory.

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
    """Say whether a directory is the one that got a stamp, with the same names in it.

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
    """Give the size of a file that was listed; 0 when it is none, or was deleted since."""
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


def allocate_file(path: Path, size: int) -> None:
    """Make a file of ``size`` zero bytes whose blocks are reserved.

    Reserving them makes a full disk an error here, and not a SIGBUS when a mapping is written.

    :raises OSError: when the disk is full, with no file left behind.
    """
    with new_file(path) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            path.unlink()
            raise


def map_for_writing(path: Path) -> "npt.NDArray[np.uint8]":
    """Map an existing file for writing, shared with all other mappings of it."""
    import numpy as np

    return np.memmap(path, dtype=np.uint8, mode="r+")


def sync_file(path: Path) -> None:
    """Wait until a file's bytes are on the disk, whichever process wrote them.

    :raises SyncFailed: when they may not be.
    :raises OSError: when the file cannot be opened; nothing is known of its bytes then.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_descriptor(descriptor, path)
    finally:
        os.close(descriptor)


def sync_descriptor(descriptor: int, path: Path, *, with_metadata: bool = True) -> None:
    """Wait until the bytes of an open file are on the disk; ``path`` is for the error.

    :raises SyncFailed: when they may not be.
    """
    try:
        if with_metadata:
            os.fsync(descriptor)
        else:
            os.fdatasync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, str(path)) from error


def sync_for_reading(path: Path) -> None:
    """Wait until a file's bytes are on the disk, so that what was read of it stays true.

    A file system that is read-only, or cannot sync, has nothing to wait for.

    :raises OSError: when the bytes cannot be written, or the file is not there.
    """
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EINVAL, errno.ENOTSUP):
            raise


def is_same(first: Path, second: Path) -> bool:
    """Return whether two paths lead to one file or directory, however they are written.

    :raises OSError: when one of them cannot be looked at for another reason than missing.
    """
    try:
        return first.samefile(second)
    except (FileNotFoundError, NotADirectoryError):
        return False


def check_writable(directory: Path) -> None:
    """Make a directory, or make sure that files can be made in the one that is there.

    A directory that is there is not touched.

    :raises OSError: when they cannot; a directory that was made for it is gone again.
    """
    if directory.is_dir():
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
        return
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    try:
        make_directories(directory)
    except OSError:
        for one in missing:
            with suppress(OSError):
                one.rmdir()
        raise


def make_directories(directory: Path) -> None:
    """Make a directory, and those above it, for this user alone; what is there stays as it is."""
    missing: list[Path] = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for one in reversed(missing):
        one.mkdir(PRIVATE_DIRECTORY, exist_ok=True)


def new_file(path: Path, like: Path | None = None) -> BinaryIO:
    """Open a file to be written from its begin, for this user alone.

    ``like``: a file whose permissions it gets instead, if that is there.
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


def remove_tree(directory: Path) -> None:
    """Delete a directory and everything below it; nothing when it is not there."""
    import shutil

    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
