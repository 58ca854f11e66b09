"""Reads files with one secret each: of access control, or of a login at a provider.

Errors show neither the content nor the name of the file: the name may be the secret itself, written
in the wrong place.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from rocketlens.errors import BadInput

MAX_SECRET_BYTES: Final = 4096
"""The largest size of a file with a secret key, in bytes."""


def read_secret_file(
    path: Path, where: str, *, on_opened: Callable[[int, Path], None] = lambda _mode, _path: None
) -> str:
    """Return the secret in a file, without trailing line ends.

    :param where: The name of the file in errors.
    :param on_opened: Called with the file's mode from `os.stat`, and its path.
    :raises BadInput: if the file is empty, too long or cannot be read.
    """
    try:
        with open_regular(path, where) as file:
            on_opened(os.fstat(file.fileno()).st_mode, path)
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{where} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise BadInput(f"{where} is not a secret: it has over {MAX_SECRET_BYTES} bytes")
    try:
        secret = content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        # Without the cause, which holds the content.
        raise BadInput(f"{where} is not a secret: it is not UTF-8") from None
    if not secret:
        raise BadInput(f"{where} is empty")
    return secret


def open_regular(path: Path, where: str) -> BinaryIO:
    """Open a regular file (or the null device), which never blocks on reading.

    :raises BadInput: if it is another kind of file; ``where`` names it in the message.
    :raises OSError: if it cannot be opened.
    """
    if "\0" in str(path):
        raise BadInput(f"{where} has a zero character in its path")
    # Opening a pipe without a writer would block.
    opened = os.open(path.expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(opened).st_mode
    if not stat.S_ISREG(mode) and not os.path.samestat(os.fstat(opened), Path(os.devnull).stat()):
        os.close(opened)
        raise BadInput(f"{where} is not a regular file")
    return os.fdopen(opened, "rb")
