"""The file system, as much of it as a store needs.

Every other module asks this one, so that a test can see or fail each operation in one place.
"""

import errno
import mmap
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_CLEAR_BYTES: Final = 1 << 20
_LOOK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_LOOK_BYTES)
_STAMP_STEP_NS: Final = 50_000_000
_COARSE_STAMP_STEP_NS: Final = 2_000_000_000
_OLD_ASIDE: Final = re.compile(r"(index|consumequeue)\.[0-9]+\.old")
"""As an earlier version named a directory that it was replacing."""

DISK_FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers that say that there is no room."""

CANNOT_NOW_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
"""Error numbers that say nothing about a file: opening or mapping it may succeed later."""


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


class WritableFile:
    """An existing file of fixed size, mapped for writing and shared with all other mappings of it.

    ``content`` has slicing, ``find`` and ``len`` like a bytearray. A byte may be written only
    where :meth:`reserve` was asked before: on a full disk that fails, where writing to a hole
    would end the process (SIGBUS).
    """

    def __init__(self, path: Path) -> None:
        """Map ``path``, which must not be empty.

        :raises OSError: as ``open`` does.
        """
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(self._descriptor).st_size
            self.content: mmap.mmap | bytearray = mmap.mmap(self._descriptor, size)
        except (OSError, ValueError):
            os.close(self._descriptor)
            raise

    def __len__(self) -> int:
        """Give the size in bytes."""
        return len(self.content)

    def array(self) -> "npt.NDArray[np.uint8]":
        """Give the content as a writable array of bytes, without copying."""
        import numpy as np

        return np.frombuffer(self.content, dtype=np.uint8)

    def reserve(self, start: int, stop: int) -> None:
        """Make the disk keep room for bytes ``start .. stop - 1``; what is there stays.

        :raises OSError: when the disk is full.
        """
        if stop > start:
            os.posix_fallocate(self._descriptor, start, stop - start)

    def sync(self) -> None:
        """Wait until what was written is on the disk.

        :raises OSError: when it may not be, now or ever.
        """
        os.fdatasync(self._descriptor)

    def touch(self) -> None:
        """Set the modification time to now: writes through a mapping need not."""
        os.utime(self._descriptor)

    def clear(self, start: int) -> None:
        """Make every byte from ``start`` on zero, without filling holes. O(bytes not in holes)."""
        position = start
        while position < len(self):
            try:
                position = os.lseek(self._descriptor, position, os.SEEK_DATA)
                stop = os.lseek(self._descriptor, position, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                stop = len(self)
            while position < stop:
                end = min(position + _CLEAR_BYTES, stop)
                if any(self.content[position:end]):
                    self.content[position:end] = bytes(end - position)
                position = end

    def close(self) -> None:
        """Unmap, unless someone still holds a view: then the mapping goes with the last view.

        A second call does nothing: the number of the descriptor may be another file's by then.
        """
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        try:
            if isinstance(self.content, mmap.mmap):
                self.content.close()
        except BufferError:
            pass


class Space(NamedTuple):
    """Bytes of a file system, and how many of them may be written yet."""

    total: int
    free: int


class Disk:
    """What a store that is written asks of the file system; a test gives one that fails."""

    def make_file(self, path: Path, size: int, scratch: Path) -> None:
        """Make a file of ``size`` zero bytes that take no room yet, there whole or not at all.

        It is made in directory ``scratch`` of the same file system. Its name is not synced.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        beside = scratch / f"{path.name}.{os.getpid()}.new"
        with beside.open("wb") as file:
            file.truncate(size)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.rename(path)

    def open_file(self, path: Path) -> WritableFile:
        """Map an existing file for writing."""
        return WritableFile(path)

    def make_directory(self, directory: Path) -> None:
        """Make a directory, and those above it, and wait until their names are on the disk."""
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            self.sync_directory(one.parent)

    def write_durably(self, path: Path, content: bytes) -> None:
        """Write a small file beside ``path``, sync it, and put it in its place in one step.

        :raises OSError: when it may not be on the disk.
        """
        self.make_directory(path.parent)
        beside = path.with_name(f".{path.name}.{os.getpid()}.new")
        with beside.open("wb") as file:
            file.write(content)
        self.sync_file(beside)
        beside.replace(path)
        self.sync_directory(path.parent)

    def set_size(self, path: Path, size: int) -> None:
        """Cut a file, or lengthen it by zeros that take no room."""
        os.truncate(path, size)

    def move(self, path: Path, target: Path) -> None:
        """Rename a file or directory within a file system, in one step; it is not synced."""
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)

    def link_file(self, path: Path, target: Path) -> None:
        """Give a file a second name within a file system; it is not synced.

        A name that is there already is replaced.

        :raises OSError: when the file system has no such links, too.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.hardlink_to(path)

    def remove_tree(self, directory: Path) -> None:
        """Delete a directory and everything below it; nothing when it is not there."""
        remove_tree(directory)

    def remove_file(self, path: Path) -> None:
        """Delete a file; nothing when it is not there."""
        path.unlink(missing_ok=True)

    def sync_file(self, path: Path) -> None:
        """Wait until a file's bytes are on the disk, whichever process wrote them."""
        sync_file(path)

    def sync_descriptor(self, descriptor: int) -> None:
        """Wait until the bytes of an open file are on the disk."""
        os.fsync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        sync_file(directory)

    def sync_tree(self, directory: Path) -> None:
        """Wait until everything below a directory is on the disk, its own name excepted."""
        for parent, _, names in os.walk(directory):
            for name in names:
                self.sync_file(Path(parent, name))
            self.sync_directory(Path(parent))

    def exchange_directories(self, new: Path, current: Path) -> None:
        """Put directory ``new``, which must be synced, at ``current`` in one step, and sync that.

        What was there is then at ``new``. Where ``current`` does not exist this is a rename.

        :raises OSError: when it may not be on the disk.
        """
        exchange_directories(new, current)
        self.sync_directory(current.parent)

    def boot(self) -> str:
        """Name the current start of the machine; always another where that cannot be known."""
        content = read_bytes(_BOOT, 64)
        return content.decode("ascii", "replace").strip() if content else os.urandom(8).hex()

    def space(self, path: Path) -> Space:
        """Give how large the file system of ``path`` is, and how much may be written to it."""
        status = os.statvfs(path)
        return Space(status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)

    def used_ratio(self, path: Path) -> float:
        """Give how full the file system of ``path`` is, 0 to 1, as ``df`` counts."""
        status = os.statvfs(path)
        used = status.f_blocks - status.f_bfree
        return used / max(used + status.f_bavail, 1)


MOST_OPEN_FILES: Final = 65_536
"""So many are made use of, however many are allowed: Linux maps about as many files at once."""


def most_open_files() -> int:
    """Give how many files this process may have open at once, up to 65,536."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, MOST_OPEN_FILES) if soft >= 0 else MOST_OPEN_FILES


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
    with path.open("wb") as file:
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
    """Wait until a file's bytes are on the disk, whichever process wrote them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


_ASIDE_PREFIX: Final = ".rocketlens-old-"
"""Begins the name of a directory that is being replaced where that is not one step."""


def exchange_directories(new: Path, current: Path) -> None:
    """Put directory ``new`` at ``current`` in one step; what was there is then at ``new``.

    It is not synced: :class:`Disk` does that. Where ``current`` does not exist this is a rename.
    Elsewhere it is one atomic exchange on Linux; on systems and file systems without one, it is
    three renames, and :func:`restore_directories` puts right what a kill between them left.

    :raises OSError: with nothing changed.
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


def missing_directories(root: Path) -> list[str]:
    """List the directories of ``root`` that an exchange took away without putting in others."""
    return [name for name, _ in _asides(root) if not (root / name).exists()]


def restore_directories(root: Path) -> list[str]:
    """End the exchanges in ``root`` that a kill interrupted; return the names put back.

    A directory that is missing is put back as it was. Where the new one is in its place the old
    one is deleted. The caller has ``root`` locked.
    """
    restored: list[str] = []
    for name, aside in _asides(root):
        if (root / name).exists():
            if aside.name.startswith(_ASIDE_PREFIX):
                remove_tree(aside)
        else:
            aside.rename(root / name)
            restored.append(name)
    if restored:
        sync_file(root)
    return restored


def _asides(root: Path) -> list[tuple[str, Path]]:
    """List what stands aside in ``root``: the name that it had, and where it is."""
    found: list[tuple[str, Path]] = []
    for entry in entries(root):
        name = entry.name.removeprefix(_ASIDE_PREFIX)
        if name != entry.name:
            found.append((name, Path(entry.path)))
        elif match := _OLD_ASIDE.fullmatch(entry.name):
            found.append((match[1], Path(entry.path)))
    return found


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names atomically; False where the system cannot."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)  # the C library that Python itself runs on
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


def is_same(first: Path, second: Path) -> bool:
    """Return whether two paths lead to one file or directory, however they are written.

    :raises OSError: when one of them cannot be looked at for another reason than missing.
    """
    try:
        return first.samefile(second)
    except (FileNotFoundError, NotADirectoryError):
        return False


def check_writable(directory: Path) -> None:
    """Make a directory, if it is not there, and make sure that files can be made in it.

    :raises OSError: when they cannot; a directory that was made for it is gone again.
    """
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".rocketlens-probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        for one in missing:
            with suppress(OSError):
                one.rmdir()
        raise


def remove_tree(directory: Path) -> None:
    """Delete a directory and everything below it; nothing when it is not there."""
    import shutil

    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
