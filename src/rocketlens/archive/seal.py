"""The seal of a Parquet file: a checksum of its footer.

Parquet has checksums of pages, and none of the footer. The footer says where each column is, how it
is encoded, and which row groups a search can skip: a flipped bit there would give wrong messages,
or too few, and can end the process. So the files of an archive end like this:

=======================  ======  =================================================================
at                       size    what
=======================  ======  =================================================================
end - 8 - length - 12    8       ``RLfooter``
end - 8 - length - 4     4       CRC-32 of the footer, little-endian
end - 8 - length         length  the footer, as Parquet has it
end - 8                  4       its length, little-endian
end - 4                  4       ``PAR1``
=======================  ======  =================================================================

Other readers of Parquet find the footer by its length, and do not see the seal. The file name marks
a sealed file, since a damaged length would hide the seal. Files of earlier versions have no seal.
"""

import struct
from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

from rocketlens.late import pa, pq

SEALED: Final = ".sealed.parquet"
"""The suffix of a sealed file."""
_SEAL: Final = struct.Struct("<8sI")
_MARKER: Final = b"RLfooter"
_END: Final = struct.Struct("<I4s")
_MAGIC: Final = b"PAR1"
_READ_AHEAD: Final = 64 << 10
"""Bytes read at the end of a file at once; most footers are shorter."""


class SealingSink:
    """The sink of a ``ParquetWriter``; it holds back what is written after `hold`."""

    closed: Final = False

    def __init__(self, write: Callable[[Any], Any], tell: Callable[[], int]) -> None:
        self._write: Final = write
        self._tell: Final = tell
        self._held: list[bytes] | None = None

    def hold(self) -> None:
        """Hold back all writes until `seal`."""
        self._held = []

    def write(self, content: bytes) -> int:
        if self._held is None:
            self._write(content)
        else:
            self._held.append(bytes(content))
        return len(content)

    def tell(self) -> int:
        return self._tell() + sum(map(len, self._held or ()))

    def flush(self) -> None:
        """No effect: the file is synced when it is finished."""

    def seal(self) -> None:
        """Write what was held back, with a seal before the footer."""
        end = b"".join(self._held or ())
        self._held = None
        length, _ = _END.unpack(end[-_END.size :])
        begin = len(end) - _END.size - length
        checksum = crc32(end[begin : begin + length])
        self._write(end[:begin] + _SEAL.pack(_MARKER, checksum) + end[begin:])


def read_sealed_metadata(file: "pa.NativeFile") -> Any:
    """Return the metadata of a sealed Parquet file.

    :raises OSError: if it cannot be read.
    :raises ValueError: if it is damaged or truncated.
    """
    size = file.size()
    end = file.read_at(min(size, _READ_AHEAD), size - min(size, _READ_AHEAD))
    if len(end) >= _SEAL.size + _END.size:
        length, magic = _END.unpack(end[-_END.size :])
        whole = _SEAL.size + length + _END.size
        if magic == _MAGIC and whole <= size:
            if whole > len(end):
                end = file.read_at(whole, size - whole)
            end = end[len(end) - whole :]
            marker, checksum = _SEAL.unpack_from(end)
            footer = memoryview(end)[_SEAL.size : -_END.size]
            if marker == _MARKER and crc32(footer) == checksum:
                return pq.read_metadata(pa.BufferReader(end))
    raise ValueError("its end is damaged or truncated")
