"""Writes message bodies to a directory that is private to the user.

RocketMQ's tool writes to ``/tmp/rocketmq/msgbodys/<id>``: another user who creates that directory
first can read the bodies, or have any file overwritten through a link, and an id can be any text.
Here the directory belongs to the user, and a name has neither separators nor dots.
"""

import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.store.fs import user_cache

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z", re.ASCII)


def bodies_directory() -> Path:
    return user_cache() / "rocketlens" / "msgbodys"


def safe_name(msg_id: str) -> str:
    """Return an id if it is a safe file name, else its SHA-256 in hex."""
    if _PLAIN_NAME.match(msg_id):
        return msg_id
    return hashlib.sha256(msg_id.encode("utf-8", "surrogatepass")).hexdigest()


def write_body(directory: Path, msg_id: str, body: bytes, number: int = 0) -> Path:
    """Write a body to a new file that only the user can read; return its path.

    A file or link of that name is replaced, never followed. `number` distinguishes messages with
    the same id.

    :raises BadInput: if the directory is a link, or belongs to another user.
    :raises OSError: if the body cannot be written.
    """
    name = safe_name(msg_id) + (f"_{number}" if number else "")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        opened = os.open(directory, flags)
    except NotADirectoryError as error:
        raise BadInput(f"{directory} is not a directory, or is a link: remove it") from error
    try:
        status = os.fstat(opened)
        if status.st_uid != os.geteuid():
            raise BadInput(f"{directory} belongs to another user: remove it")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(opened, 0o700)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=opened)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=opened), "wb") as file:
            file.write(body)
    finally:
        os.close(opened)
    return directory / name
