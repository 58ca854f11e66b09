"""Frames: the commands on a connection, one after another.

======  =====  ==============  ===============================================================
offset  type   field           notes
======  =====  ==============  ===============================================================
0       i32    length          of everything after this field
4       i8     header_codec    0 JSON, 1 binary; each frame names its own
5       i24    header_length   at most length - 4
8       n      header
8+n     rest   body            may be empty
======  =====  ==============  ===============================================================

All integers are big-endian. There is no greeting. A first byte of 0x16 is a TLS handshake: as a
length it would be far over the limit, so the two cannot be confused.

Drawback: no checksum, so a truncated or changed frame is found only by its lengths and its header.
Source: ``NettyDecoder``, ``RemotingCommand``.
"""

import struct
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput, FrameError

JSON_CODEC: Final = 0
BINARY_CODEC: Final = 1
TLS_HANDSHAKE: Final = 0x16
"""First byte of a connection that begins with TLS."""
_HTTP2: Final = int.from_bytes(b"PRI ")
"""The first bytes of a client's HTTP/2 connection, as a length."""
_HTTP2_SETTINGS: Final = 4
"""The type of the first frame of an HTTP/2 server."""

LENGTH_BYTES: Final = 4
PREFIX_BYTES: Final = 8
MIN_LENGTH: Final = PREFIX_BYTES - LENGTH_BYTES
_MAX_LENGTH: Final = limits.MAX_FRAME_BYTES - LENGTH_BYTES
HEADER_LENGTH_MASK: Final = 0xFFFFFF
NO_LIMIT: Final = 1 << 62

PREFIX: Final = struct.Struct(">ii")
LENGTH: Final = struct.Struct(">i")

Frame = tuple[int, bytes, bytes]
"""Header codec, header, body."""


def _begins_http2(length: int) -> bool:
    """Return True if a length followed by zeros is of HTTP/2: its last byte is the type there."""
    return length & 0xFF == _HTTP2_SETTINGS and length > MIN_LENGTH


def encode(header: bytes, body: bytes = b"", codec: int = JSON_CODEC) -> bytes:
    """Encode a frame; raise BadInput if it would be larger than 16 MiB, which no peer reads."""
    header_length = len(header)
    length = MIN_LENGTH + header_length + len(body)
    if length > _MAX_LENGTH:
        raise BadInput(f"a frame of {length} bytes is over the limit of {limits.MAX_FRAME_BYTES}")
    return PREFIX.pack(length, codec << 24 | header_length) + header + body


def is_whole(received: bytes) -> bool:
    """Return True if bytes are one frame, according to its length."""
    return int.from_bytes(received[:LENGTH_BYTES]) == len(received) - LENGTH_BYTES


class FrameSplitter:
    """Splits a stream of bytes into frames, wherever its chunks end.

    It holds at most one frame, one chunk, and bytes that were fed while frames waited. Lengths are
    checked as soon as they arrive, before memory is used for them.
    """

    __slots__ = ("_held", "_needed", "failure", "has_more", "max_header_bytes")

    def __init__(self, max_header_bytes: int = limits.MAX_HEADER_BYTES) -> None:
        self.max_header_bytes = max_header_bytes
        self.failure: FrameError | None = None
        """Why no more frames follow; set once, permanently."""
        self.has_more = False
        """There are bytes that the last `feed` did not parse."""
        self._held = bytearray()
        self._needed = LENGTH_BYTES

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete frame, and of waiting frames; 0 between frames."""
        return len(self._held)

    def holds_run(self, chunk: bytes) -> bool:
        """Return True if a whole frame waits; for a new ``chunk``, also a part of another."""
        first = self._held or chunk
        if len(first) < LENGTH_BYTES:
            return False
        length: int = LENGTH.unpack_from(first)[0] + LENGTH_BYTES
        return 0 < length < len(self._held) + len(chunk) + (not chunk)

    def held(self) -> memoryview:
        """Return the waiting bytes; nothing may be fed or dropped before the view is released."""
        return memoryview(self._held)

    def drop(self, byte_count: int) -> None:
        """Remove whole frames from the start of the waiting bytes."""
        del self._held[:byte_count]
        self._needed = 0
        self.has_more = bool(self._held)

    def clear(self) -> None:
        """Drop all waiting bytes."""
        self._held = bytearray()
        self.has_more = False

    def feed(self, chunk: bytes, max_frames: int = NO_LIMIT) -> list[Frame]:
        """Parse the next bytes; return the frames that they complete, in order.

        After ``max_frames`` the rest waits: `has_more` is True, and an empty chunk continues. Never
        raises: after an invalid length, ``failure`` is set, and all further bytes are dropped.
        Costs O(len(chunk)), and a copy of the held bytes when a frame completes.
        """
        if self.failure is not None:
            return []
        frames: list[Frame] = []
        held = self._held
        if not held:
            end = self._split(chunk, frames, max_frames)
            if end < len(chunk) and self.failure is None:
                held += chunk[end:]
            return frames
        held += chunk
        if len(held) >= self._needed:
            with memoryview(held) as view:
                end = self._split(view, frames, max_frames)
            del held[:end]
            if self.failure is not None:
                held.clear()
        return frames

    def _split(self, buffer: bytes | memoryview, frames: list[Frame], max_frames: int) -> int:
        """Append complete frames; return the position after the last one."""
        start = 0
        size = len(buffer)
        while True:
            if len(frames) >= max_frames:
                self._needed = 0
                self.has_more = start < size
                return start
            rest = size - start
            if rest < PREFIX_BYTES:
                self.has_more = False
                self._needed = PREFIX_BYTES
                if rest < LENGTH_BYTES:
                    self._needed = LENGTH_BYTES
                else:
                    (length,) = LENGTH.unpack_from(buffer, start)
                    if not MIN_LENGTH <= length <= _MAX_LENGTH:
                        self._refuse(length, 0)
                return start
            length, word = PREFIX.unpack_from(buffer, start)
            header_length = word & HEADER_LENGTH_MASK
            end = start + LENGTH_BYTES + length
            if not (
                MIN_LENGTH + header_length <= length <= _MAX_LENGTH
                and header_length <= self.max_header_bytes
                and (word or not _begins_http2(length))
            ):
                self._refuse(length, header_length)
                return start
            if end > size:
                self.has_more = False
                self._needed = end - start
                return start
            header_end = start + PREFIX_BYTES + header_length
            header = bytes(buffer[start + PREFIX_BYTES : header_end])
            frames.append((word >> 24, header, bytes(buffer[header_end:end])))
            start = end

    def _refuse(self, length: int, header_length: int) -> None:
        if length == _HTTP2:
            reason = (
                "it speaks HTTP/2, as gRPC clients of RocketMQ 5 do: they need a proxy, and this "
                "is a port for remoting clients"
            )
        elif header_length == 0 and _begins_http2(length):
            reason = (
                "it speaks HTTP/2, as the gRPC port of a RocketMQ proxy does, which a proxy in "
                "local mode names in routes: give the address of a name server"
            )
        elif not MIN_LENGTH <= length <= _MAX_LENGTH:
            reason = f"a frame says it has {length} bytes, the limit is {limits.MAX_FRAME_BYTES}"
        elif header_length > length - MIN_LENGTH:
            reason = f"a frame of {length} bytes says its header has {header_length}"
        else:
            reason = f"a header says it has {header_length} bytes, {self.max_header_bytes} allowed"
        self.has_more = False
        self.failure = FrameError(reason)
