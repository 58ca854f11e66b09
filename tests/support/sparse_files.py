"""Copies and hashes of files that are mostly zeros, as a timer wheel of 38 MB is."""

import hashlib
import shutil
from pathlib import Path

PIECE_BYTES = 1 << 18
_ZEROS = bytes(PIECE_BYTES)


def _pieces(file):
    """Yield position and bytes of each piece of an open file that is not all zeros."""
    position, piece = 0, bytearray(PIECE_BYTES)
    while count := file.readinto(piece):
        if count < PIECE_BYTES or piece != _ZEROS:
            yield position, memoryview(piece)[:count]
        position += count


def copy(source, target):
    """Copy a file as :func:`shutil.copy2` does, with holes for zeros."""
    with (
        Path(source).open("rb", buffering=0) as read,
        Path(target).open("wb", buffering=0) as written,
    ):
        for position, piece in _pieces(read):
            written.seek(position)
            written.write(piece)
        written.truncate(read.tell())
    shutil.copystat(source, target)
    return target


def digest(path):
    """Return the SHA-256 of where a file has what, the same for files of equal content."""
    hashed = hashlib.sha256()
    with path.open("rb", buffering=0) as read:
        for position, piece in _pieces(read):
            hashed.update(position.to_bytes(8))
            hashed.update(piece)
        hashed.update(read.tell().to_bytes(8))
    return hashed.hexdigest()
