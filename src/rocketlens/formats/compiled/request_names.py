"""Arguments of kernels that read requests: names of members and fields, and settings."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats.compiled.request_constants import LONG_CODE, NAME_BYTES, SETTING_COUNT
from rocketlens.formats.compiled.rows import ByteArray
from rocketlens.limits import MAX_FRAME_BYTES, MAX_REQUEST_HEADER_BYTES

Numbers = NDArray[np.int64]
Hosts = tuple[ByteArray, int, int, int]
"""The producer's and the broker's address as bytes, the length of each, and their flags."""

_MEMBERS: Final = (
    *("code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC"),
    "version",
)


def name_cells(names: Iterable[str | None]) -> ByteArray:
    """Return the cells of a header's members and of further ASCII names; None matches no name."""
    cells = bytearray()
    for name in (*_MEMBERS, *names):
        text = b"\xff" * (NAME_BYTES - 1) if name is None else name.encode()
        cells += bytes([len(text)]) + text.ljust(NAME_BYTES - 1)
    return np.frombuffer(cells, np.uint8)


def settings_without_body(short_code: int, long_code: int) -> Numbers:
    """Return the settings for requests of two codes that have no body."""
    settings = np.zeros(SETTING_COUNT, np.int64)
    settings[: LONG_CODE + 1] = MAX_REQUEST_HEADER_BYTES, MAX_FRAME_BYTES, 0, short_code, long_code
    return settings
