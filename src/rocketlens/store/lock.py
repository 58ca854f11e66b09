"""The lock that makes a store belong to one process.

It is RocketMQ's own: an advisory lock on byte 0 of the file ``lock`` in the store directory, so a
broker and a job of ours exclude each other. It goes with the process that holds it, however that
ends. Readers do not take it.
"""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from rocketlens.errors import StoreLocked

LOCK_FILE: Final = "lock"
_held: set[tuple[int, int]] = set()
"""Device and inode of every lock file this process holds: POSIX locks do not exclude their own
process, and closing any descriptor of the file drops them."""


class StoreLock:
    """Holds a store from construction to :meth:`release`."""

    def __init__(self, store: Path) -> None:
        """Take the lock at once, before anything of the store is read.

        :raises StoreLocked: at once when another process, or this one, holds it.
        :raises OSError: when the lock file cannot be opened.
        """
        path = store / LOCK_FILE
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        if found and (found.st_dev, found.st_ino) in _held:
            raise _locked(store)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            raise _locked(store) from error
        status = os.fstat(self._descriptor)
        self._identity = (status.st_dev, status.st_ino)
        _held.add(self._identity)

    def release(self) -> None:
        """Give the store up; a second call does nothing."""
        if self._identity in _held:
            _held.discard(self._identity)
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        """Give the lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the store up."""
        self.release()


def is_locked(store: Path) -> bool:
    """Say whether a process owns the store now; makes no lock file where there is none.

    Where the lock is free it is shared for an instant, too short to matter to a starting broker.

    :raises OSError: when the lock file cannot be opened.
    """
    path = store / LOCK_FILE
    try:
        found = path.stat()
        if (found.st_dev, found.st_ino) in _held:
            return True  # without opening it: closing that again would drop our lock
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked(store: Path) -> StoreLocked:
    return StoreLocked(
        f"{store} belongs to a running broker or job: stop it first, or work on a copy"
    )
