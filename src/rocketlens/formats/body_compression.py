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

RocketMQ decompresses without a bound; here a body that grows beyond ``limit`` bytes is an error,
found before the memory is taken. Source: ``MessageSysFlag``, ``CompressionType``.
"""

import zlib
from typing import Final

from rocketlens import limits
from rocketlens.errors import BodyError

COMPRESSED: Final = 0x1
TYPE_MASK: Final = 0x700
LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300

_LZ4_STEP: Final = 1 << 20
_ZSTD_STEP: Final = 256
"""Input bytes taken at once: a block of 4 bytes can stand for 128 KiB, so this bounds a step
to 8 MiB of output, which the library does not."""


def decompress(body: bytes, sys_flag: int, limit: int = limits.BODY_BYTES) -> bytes:
    """Give the body as the producer had it; unchanged when the flag says it is not compressed.

    :raises BodyError: when the bytes are not of the named kind, end early, or grow beyond
        ``limit`` bytes.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & TYPE_MASK
    if kind == LZ4:
        return _decompress_lz4(body, limit)
    if kind == ZSTD:
        return _decompress_zstd(body, limit)
    if kind in (0, ZLIB):
        return _decompress_zlib(body, limit)
    message = f"body is compressed in an unknown way (system flag {sys_flag:#x})"
    raise BodyError(message)


def compress(body: bytes, sys_flag: int, level: int = 5) -> bytes:
    """Compress as ``sys_flag`` says, at RocketMQ's default level; unchanged without its bit."""
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
    message = f"there is no compression for system flag {sys_flag:#x}"
    raise BodyError(message)


def _too_large(limit: int) -> BodyError:
    return BodyError(f"body grows beyond {limit} bytes when decompressed")


def _decompress_zlib(body: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        message = f"body is not zlib data: {error}"
        raise BodyError(message) from error
    if len(plain) > limit:
        raise _too_large(limit)
    if not decompressor.eof:
        message = "body ends in the middle of its zlib data"
        raise BodyError(message)
    return plain


def _decompress_lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    rest: bytes = body
    try:
        while not decompressor.eof:
            part = decompressor.decompress(rest, max_length=_LZ4_STEP)
            if not part and decompressor.needs_input and not decompressor.eof:
                message = "body ends in the middle of its LZ4 frame"
                raise BodyError(message)
            rest = b""
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
    except (RuntimeError, EOFError) as error:
        message = f"body is not an LZ4 frame: {error}"
        raise BodyError(message) from error
    return b"".join(parts)


def _decompress_zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(body), _ZSTD_STEP):
            parts.append(decompressor.decompress(body[start : start + _ZSTD_STEP]))
            size += len(parts[-1])
            if size > limit:
                raise _too_large(limit)
            if decompressor.eof:
                return b"".join(parts)
    except zstandard.ZstdError as error:
        message = f"body is not a Zstandard frame: {error}"
        raise BodyError(message) from error
    message = "body ends in the middle of its Zstandard frame"
    raise BodyError(message)
