"""The lock that gives a store to one process.

As in RocketMQ, it is an advisory lock on byte 0 of the file ``lock`` in the store directory, so
brokers and jobs of RocketMQ and RocketLens exclude each other. The system releases it when the
process ends. Readers do not lock.

RocketMQ writes its own text into the file whenever a broker starts. The text of RocketLens
therefore shows that no RocketMQ broker has started since, also in a copy of the store.
"""

import errno
import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from rocketlens.errors import StoreLocked
from rocketlens.store.disk import Disk

LOCK_FILE: Final = "lock"
LOCK_TEXT: Final = b"lock"
OUR_TEXT: Final = b"lens"
_HELD_ERRORS: Final = (errno.EAGAIN, errno.EACCES)
_FLOCK: Final = struct.Struct("hhlli4x")
"""type, whence, start, length, process: Linux's ``struct flock`` on 64-bit machines."""

_held: set[tuple[int, int]] = set()
"""Device and inode of the files that this process has locked: a process does not exclude itself."""


class StoreLock:
    """A lock on a store, held from construction to :meth:`release`."""

    def __init__(self, store: Path, name: str = LOCK_FILE) -> None:
        """``name``: the lock file, if only a part of the store is locked.

        :raises StoreLocked: without waiting, if this or another process holds the lock.
        :raises OSError: if the lock file cannot be opened, or the file system has no locks.
        """
        path = self._path = store / name
        try:
            held = path.stat()
        except FileNotFoundError:
            held = None
        if held and (held.st_dev, held.st_ino) in _held:
            raise _locked(store)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_first_byte(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in _HELD_ERRORS:
                raise _locked(store) from error
            raise OSError(error.errno, f"cannot be locked: {error.strerror}", str(path)) from error
        status = os.fstat(self._descriptor)
        if not status.st_size:
            # The lock works without the text, so a full disk is not an error.
            with suppress(OSError):
                os.write(self._descriptor, LOCK_TEXT)
        self._identity = (status.st_dev, status.st_ino)
        _held.add(self._identity)

    def is_marked(self) -> bool:
        """Return True if no RocketMQ broker has started on the store since :meth:`mark`."""
        return os.pread(self._descriptor, len(OUR_TEXT), 0) == OUR_TEXT

    def mark(self, disk: Disk) -> None:
        """Record durably that a RocketLens broker wrote the files beside the log."""
        if not self.is_marked():
            os.pwrite(self._descriptor, OUR_TEXT, 0)
            disk.sync_descriptor(self._descriptor, self._path)

    def release(self) -> None:
        """Release the store; a second call has no effect."""
        if self._identity in _held:
            _held.discard(self._identity)
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(store: Path, name: str = LOCK_FILE) -> bool:
    """Return whether a process holds the lock; never create the lock file.

    On Linux this takes no lock; elsewhere it takes a shared lock for an instant.
    """
    path = store / name
    try:
        status = path.stat()
        if (status.st_dev, status.st_ino) in _held:
            return True  # Not opened: closing it again would release the lock of this process.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    query = getattr(fcntl, "F_OFD_GETLK", None)
    try:
        if query is not None:
            found = fcntl.fcntl(descriptor, query, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        if error.errno in _HELD_ERRORS:
            return True
        raise
    finally:
        os.close(descriptor)
    return False


def _lock_first_byte(descriptor: int) -> None:
    """Take an advisory lock that excludes RocketMQ's.

    On Linux the lock belongs to the open file description. A lock of the process, as RocketMQ
    takes it, is the fallback: closing any other descriptor of the file releases that one.

    :raises OSError: if another process holds it.
    """
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    else:
        fcntl.fcntl(descriptor, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _locked(store: Path) -> StoreLocked:
    return StoreLocked(
        f"{store} belongs to a running broker or job: stop it first, or work on a copy"
    )
