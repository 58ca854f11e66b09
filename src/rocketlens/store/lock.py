"""The lock that makes a store belong to one process.

It is RocketMQ's own: an advisory lock on byte 0 of the file ``lock`` in the store directory, so a
broker and a job of ours exclude each other. It goes with the process that holds it, however that
ends. Readers do not take it.

RocketMQ writes its text into the file whenever a broker starts. So a text of ours says, however
the broker that came next ended, and wherever the store was copied to, that none has started since.
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
"""What RocketMQ writes into it, too."""
OUR_TEXT: Final = b"lens"
"""What a broker of this project puts in its place. RocketMQ writes its own at each start, and reads
neither."""
_HELD_ERRORS: Final = (errno.EAGAIN, errno.EACCES)
_FLOCK: Final = struct.Struct("hhlli4x")
"""type, whence, start, length, process: Linux's ``struct flock`` on 64-bit machines."""

_held: set[tuple[int, int]] = set()
"""Device and inode of every lock file this process holds: locks of a process do not exclude it
itself."""


class StoreLock:
    """Holds a store from construction to :meth:`release`."""

    def __init__(self, store: Path, name: str = LOCK_FILE) -> None:
        """Take the lock at once, before anything of the store is read.

        ``name``: the lock file, where it is not the store as a whole that is locked.

        :raises StoreLocked: at once when another process, or this one, holds it.
        :raises OSError: when the lock file cannot be opened, or locks cannot be had there.
        """
        path = self._path = store / name
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        if found and (found.st_dev, found.st_ino) in _held:
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
            # Who locks it needs no text in it, so a full disk is no reason to stop.
            with suppress(OSError):
                os.write(self._descriptor, LOCK_TEXT)
        self._identity = (status.st_dev, status.st_ino)
        _held.add(self._identity)

    def is_marked(self) -> bool:
        """Return whether no real broker has started on the store since :meth:`mark`."""
        return os.pread(self._descriptor, len(OUR_TEXT), 0) == OUR_TEXT

    def mark(self, disk: Disk) -> None:
        """Note durably that what is beside the log is what a broker of this project wrote.

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

    Where the lock is free it is shared for an instant, too short to matter to a starting broker.

    :raises OSError: when the lock file cannot be opened.
    """
    path = store / name
    try:
        found = path.stat()
        if (found.st_dev, found.st_ino) in _held:
            return True  # without opening it: closing that again would drop our lock
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
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
    closed, so that whoever reads the file in this process would give the store up.

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
