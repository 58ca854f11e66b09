"""The lock that gives a store to one process.

It is RocketMQ's own: an advisory lock on byte 0 of the file ``lock`` in the store directory, so
brokers and jobs of RocketMQ and RocketLens exclude each other. It is released with the process,
however that ends. Readers do not lock.

RocketMQ writes its text into the file whenever a broker starts. So the text of RocketLens shows
that no other broker has started since, wherever the store was copied to.
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
"""Text that RocketMQ writes into the file."""
OUR_TEXT: Final = b"lens"
"""Text that RocketLens writes. RocketMQ writes its own at each start; neither reads it."""
_HELD_ERRORS: Final = (errno.EAGAIN, errno.EACCES)
_FLOCK: Final = struct.Struct("hhlli4x")
"""type, whence, start, length, process: Linux's ``struct flock`` on 64-bit machines."""

_held: set[tuple[int, int]] = set()
"""Device and inode of the lock files of this process, because its own locks do not exclude it."""


class StoreLock:
    """Locks a store from construction to :meth:`release`."""

    def __init__(self, store: Path, name: str = LOCK_FILE) -> None:
        """Lock at once, before anything of the store is read.

        ``name``: the lock file, if not the whole store is locked.

        :raises StoreLocked: at once, if another process, or this one, has the lock.
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
            # Who locks it needs no text in it, so a full disk is not a reason to stop.
            with suppress(OSError):
                os.write(self._descriptor, LOCK_TEXT)
        self._identity = (status.st_dev, status.st_ino)
        _held.add(self._identity)

    def is_marked(self) -> bool:
        """Return whether no real broker has started on the store since :meth:`mark`."""
        return os.pread(self._descriptor, len(OUR_TEXT), 0) == OUR_TEXT

    def mark(self, disk: Disk) -> None:
        """Write durably that the files beside the log are those of a broker of RocketLens.

        :raises OSError: when that cannot be written.
        """
        if not self.is_marked():
            os.pwrite(self._descriptor, OUR_TEXT, 0)
            disk.sync_descriptor(self._descriptor, self._path)

    def release(self) -> None:
        """Release the store; a second call does nothing."""
        if self._identity in _held:
            _held.discard(self._identity)
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the store."""
        self.release()


def is_locked(store: Path, name: str = LOCK_FILE) -> bool:
    """Return whether a process owns the store now; makes no lock file where there is none.

    ``name``: the lock file, where it is not the store as a whole that is asked about.

    On Linux that takes no lock; elsewhere a free lock is shared for an instant.

    :raises OSError: when the lock file cannot be opened.
    """
    path = store / name
    try:
        status = path.stat()
        if (status.st_dev, status.st_ino) in _held:
            return True  # without opening it: closing that again would drop our lock
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

    One of the open file description where there are such (Linux): a lock of the process, which is
    what RocketMQ takes and the fallback, is dropped when any other descriptor of the file is
    closed, so that reading the file in this process would release the store.

    :raises OSError: when another has it.
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
