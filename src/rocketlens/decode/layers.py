"""Undoes compression inside a body, which is recognized by its first bytes.

===============  =================  =============================
begins with      layer              content
===============  =================  =============================
1f 8b 08         gzip (RFC 1952)    one or several members
28 b5 2f fd      zstd               a frame
04 22 4d 18      lz4                a frame
78, and a sum    zlib (RFC 1950)    data that ends with the body
===============  =================  =============================

These are a producer's own layers, inside the compression of RocketMQ's clients.
"""

import zlib
from typing import Final

from rocketlens import limits
from rocketlens.errors import BodyError, BodyTooLarge
from rocketlens.formats import body_compression

_MAX_LAYERS: Final = 3
_GZIP: Final = 16 + zlib.MAX_WBITS
_STEP: Final = 1 << 14
"""Bytes read and produced in one step. Bytes after a member's end are read again for the next."""
_MAX_MEMBERS: Final = 1_000


def unwrap(body: bytes, limit: int = limits.MAX_DECODED_BYTES) -> tuple[bytes, tuple[str, ...]]:
    """Return the content inside all layers, and their names, the outermost first.

    Bytes that only begin like a layer are returned unchanged.

    :raises BodyTooLarge: if the layers produce more than ``limit`` bytes together.
    """
    names: list[str] = []
    while len(names) < _MAX_LAYERS and (name := _layer_of(body)) is not None:
        try:
            body = _unpack(body, name, limit)
        except _NotCompressed:
            break
        limit -= len(body)
        names.append(name)
    return body, tuple(names)


class _NotCompressed(Exception):
    """The body begins like a layer, but is none."""


def _layer_of(body: bytes) -> str | None:
    for magic, name in _MAGICS:
        if body.startswith(magic):
            return name
    is_zlib = len(body) > 6 and body[0] == 0x78 and int.from_bytes(body[:2], "big") % 31 == 0
    return "zlib" if is_zlib and not body[1] & 0x20 else None


_MAGICS: Final = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
_FLAGS: Final = {
    "zstd": body_compression.COMPRESSED | body_compression.ZSTD,
    "lz4": body_compression.COMPRESSED | body_compression.LZ4,
}


def _unpack(body: bytes, name: str, limit: int) -> bytes:
    if name in ("gzip", "zlib"):
        return _inflate(body, _GZIP if name == "gzip" else zlib.MAX_WBITS, limit)
    try:
        return body_compression.decompress(body, _FLAGS[name], limit)
    except BodyTooLarge:
        raise
    except BodyError as error:
        raise _NotCompressed from error


def _inflate(body: bytes, window: int, limit: int) -> bytes:
    """Return the content of all members; raise `_NotCompressed` if other bytes follow them."""
    parts: list[bytes] = []
    size = position = 0
    for _ in range(_MAX_MEMBERS):
        member = zlib.decompressobj(window)
        packed = b""
        while not member.eof:
            if not packed:
                packed = body[position : position + _STEP]
                position += len(packed)
                if not packed:
                    raise _NotCompressed
            try:
                parts.append(member.decompress(packed, _STEP))
            except zlib.error as error:
                raise _NotCompressed from error
            packed = member.unconsumed_tail
            size += len(parts[-1])
            if size > limit:
                raise BodyTooLarge(f"body grows beyond {limit} bytes when decompressed")
        position -= len(member.unused_data)
        if position == len(body):
            return b"".join(parts)
    raise BodyTooLarge(f"body has more than {_MAX_MEMBERS} compressed members")
