"""Compressed message bodies.

======  ================  =============================================
sysFlag  mask             meaning
======  ================  =============================================
0x1     0x1               the stored body is compressed
0x000   0x700             zlib (RFC 1950), as RocketMQ 4.x writes it
0x100   0x700             LZ4 frame
0x200   0x700             Zstandard frame
0x300   0x700             zlib (RFC 1950), named
======  ================  =============================================

RocketMQ decompresses without a bound. Here a body that grows beyond ``limit`` bytes is an error,
which is found before the memory is allocated: a body of more than 16 MiB is first decompressed only
to count its bytes. Source: ``MessageSysFlag``, ``CompressionType``.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Final

from rocketlens import limits
from rocketlens.errors import BodyError, BodyTooLarge

COMPRESSED: Final = 0x1
TYPE_MASK: Final = 0x700
LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300

_KEPT_UNCOUNTED: Final = 16 << 20
"""The size up to which a body is kept while its bytes are counted."""
_STEP: Final = 1 << 20
_ZLIB_STEP: Final = 1 << 16
"""Input bytes of one step; what the step does not use is copied for the next."""
_ZSTD_STEP: Final = 256
"""Input bytes of one step: the library does not bound the output, and a block of 4 bytes can
produce 128 KiB, so a step produces at most 8 MiB."""


def decompress(body: bytes, sys_flag: int, limit: int = limits.MAX_BODY_BYTES) -> bytes:
    """Return the producer's body; unchanged if the flag says that it is not compressed.

    :raises BodyTooLarge: if it grows beyond ``limit`` bytes.
    :raises BodyError: if the bytes are not of the named kind, or end early.
    """
    if not sys_flag & COMPRESSED:
        return body
    unpack = _UNPACKERS.get(sys_flag & TYPE_MASK)
    if unpack is None:
        raise BodyError(f"body has an unknown compression (system flag {sys_flag:#x})")
    parts: list[bytes] = []
    size = 0
    for part in unpack(body):
        size += len(part)
        if size > limit:
            raise BodyTooLarge(f"body grows beyond {limit} bytes when decompressed")
        parts.append(part)
        if size > _KEPT_UNCOUNTED:
            parts.clear()
    return b"".join(unpack(body) if size > _KEPT_UNCOUNTED else parts)


def compress(body: bytes, sys_flag: int, level: int = 5) -> bytes:
    """Compress in the format of ``sys_flag`` at RocketMQ's default level; unchanged without it."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & TYPE_MASK
    if kind == LZ4:
        import lz4.frame

        return bytes(lz4.frame.compress(body, compression_level=level))
    if kind == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    if kind in (0, ZLIB):
        return zlib.compress(body, level)
    raise BodyError(f"there is no compression for system flag {sys_flag:#x}")


def _unpack_zlib(body: bytes) -> Iterator[bytes]:
    decompressor = zlib.decompressobj()
    try:
        for start in range(0, len(body), _ZLIB_STEP):
            rest = body[start : start + _ZLIB_STEP]
            while rest:
                yield decompressor.decompress(rest, _STEP)
                rest = decompressor.unconsumed_tail
            if decompressor.eof:
                return
    except zlib.error as error:
        raise BodyError(f"body is not zlib data: {error}") from error
    raise BodyError("body ends in the middle of its zlib data")


def _unpack_lz4(body: bytes) -> Iterator[bytes]:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    rest: bytes = body
    try:
        while not decompressor.eof:
            part = decompressor.decompress(rest, max_length=_STEP)
            if not part and decompressor.needs_input and not decompressor.eof:
                raise BodyError("body ends in the middle of its LZ4 frame")
            rest = b""
            yield part
    except (RuntimeError, EOFError) as error:
        raise BodyError(f"body is not an LZ4 frame: {error}") from error


def _unpack_zstd(body: bytes) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        for start in range(0, len(body), _ZSTD_STEP):
            yield decompressor.decompress(body[start : start + _ZSTD_STEP])
            if decompressor.eof:
                return
    except zstandard.ZstdError as error:
        raise BodyError(f"body is not a Zstandard frame: {error}") from error
    raise BodyError("body ends in the middle of its Zstandard frame")


_UNPACKERS: Final[dict[int, Callable[[bytes], Iterator[bytes]]]] = {
    0: _unpack_zlib,
    LZ4: _unpack_lz4,
    ZSTD: _unpack_zstd,
    ZLIB: _unpack_zlib,
}
"""Each yields a body in parts of at most some MiB."""
