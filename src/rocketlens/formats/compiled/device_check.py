"""Exports functions of ``device.pxd`` and ``records.pxd`` for their tests."""

import cython
from cython.cimports.rocketlens.formats.compiled import device, records


@cython.cfunc
@cython.exceptval(-1)
def check(count: cython.longlong, at: cython.longlong, length: cython.longlong) -> cython.int:
    if at < 0 or at > count - length:
        raise IndexError("outside the buffer")
    return 0


def loads(content: object, at: cython.longlong) -> tuple[int, ...]:
    held: device.HeldArrays = device.HeldArrays()
    count: cython.longlong = 0
    memory: cython.p_uchar = device.write_bytes(held, content, cython.address(count))
    check(count, at, 8)
    return (
        device.load_i8(memory, at),
        device.load_i16(memory, at),
        device.load_i32(memory, at),
        device.load_i64(memory, at),
        device.load_word(memory, at),
    )


def stores(content: object, at: cython.longlong, value: cython.longlong) -> None:
    held: device.HeldArrays = device.HeldArrays()
    count: cython.longlong = 0
    memory: cython.p_uchar = device.write_bytes(held, content, cython.address(count))
    check(count, at, 22)
    device.store_i16(memory, at, value)
    device.store_i32(memory, at + 2, value)
    device.store_i64(memory, at + 6, value)
    device.store_word(memory, at + 14, cython.cast(cython.ulonglong, value))


def mask(content: object, at: cython.longlong, wanted: cython.int) -> tuple[int, int]:
    """Return a mask of the 64 bytes that equal ``wanted``, and the index of the first, or -1."""
    held: device.HeldArrays = device.HeldArrays()
    count: cython.longlong = 0
    memory: cython.p_uchar = device.write_bytes(held, content, cython.address(count))
    check(count, at, 64)
    found: cython.ulonglong = device.byte_mask(memory, at, wanted)
    return found, device.lowest_bit(found) if found else -1


def text(content: object, at: cython.longlong, seed: cython.longlong) -> tuple[int, ...]:
    """Return the hash of a text from ``at`` on, its number as Java parses it, and its CRC-32."""
    held: device.HeldArrays = device.HeldArrays()
    count: cython.longlong = 0
    if at < 8:
        raise IndexError("a text begins at byte 8 or later")
    memory: device.Bytes = device.read_bytes(held, content, cython.address(count))
    return (
        device.hash_text(memory, at, count, seed),
        device.utf8_parse_int(memory, at, count),
        records.crc32(memory, at, count),
    )


def index_hash(state: cython.longlong) -> int:
    return device.index_hash(state)


def rules(sys_flag: cython.longlong) -> tuple[bool, bool]:
    return bool(records.is_indexed(sys_flag)), bool(records.has_queue_entry(sys_flag))


def read_outside(content: object, at: cython.longlong) -> int:
    """Read four bytes unchecked: a sanitizer must end the process if they are outside."""
    held: device.HeldArrays = device.HeldArrays()
    count: cython.longlong = 0
    memory: device.Bytes = device.read_bytes(held, content, cython.address(count))
    return device.load_i32(memory, at)
