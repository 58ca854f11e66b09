"""Compiled hashes and filters of the keys of an archive.

The constants of hashes and filters are arguments: :mod:`rocketlens.archive.tables` and
:mod:`rocketlens.archive.bloom` define them.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    read_bytes,
    read_int32s,
    read_int64s,
    read_uint32s,
    read_uint64s,
    write_int64s,
    write_uint32s,
)


def hash_texts(
    content: object,
    offsets: object,
    basis: cython.ulonglong,
    prime: cython.ulonglong,
    hashes: object,
) -> None:
    """Write FNV-1a of each text; ``offsets`` are those of an Arrow array, one more than texts.

    A text whose offsets are outside ``content`` has the hash of an empty text.
    """
    limit: cython.longlong = 0
    offset_count: cython.longlong = 0
    count: cython.longlong = 0
    index: cython.longlong
    at: cython.longlong
    hashed: cython.ulonglong
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, content, cython.address(limit))
    ends = read_int32s(held, offsets, cython.address(offset_count))
    out: cython.p_longlong = write_int64s(held, hashes, cython.address(count))
    if count > 0 and offset_count < count + 1:
        raise ValueError(f"{offset_count} offsets are too few for {count} texts")
    with cython.nogil:
        for index in range(count):
            hashed = basis
            if ends[index] >= 0 and ends[index + 1] <= limit:
                for at in range(ends[index], ends[index + 1]):
                    hashed = (hashed ^ memory[at]) * prime
            out[index] = cython.cast(cython.longlong, hashed)


def set_filter_bits(
    numbers: object, primes: object, start: cython.ulonglong, salts: object, words: object
) -> None:
    """Set the bits of numbers in a Parquet Bloom filter, by XXH64 of their bytes.

    ``primes``: the first four of XXH64; ``start``: its state before the number; ``salts``: one for
    each word of a block. ``words``: all blocks; there are fewer than 2**32 of them.
    """
    count: cython.longlong = 0
    prime_count: cython.longlong = 0
    width: cython.longlong = 0
    word_count: cython.longlong = 0
    index: cython.longlong
    at: cython.longlong
    block: cython.ulonglong
    blocks: cython.ulonglong
    word: cython.ulonglong
    held: HeldArrays = HeldArrays()
    keys = read_int64s(held, numbers, cython.address(count))
    prime = read_uint64s(held, primes, cython.address(prime_count))
    salt = read_uint32s(held, salts, cython.address(width))
    bits: cython.p_uint = write_uint32s(held, words, cython.address(word_count))
    if prime_count < 4 or width < 1 or (count > 0 and word_count < width):
        raise ValueError("a filter has four primes, salts, and a block of words at least")
    with cython.nogil:
        blocks = cython.cast(cython.ulonglong, word_count // width)
        for index in range(count):
            word = cython.cast(cython.ulonglong, keys[index]) * prime[1]
            word = (word << 31 | word >> 33) * prime[0] ^ start
            word = (word << 27 | word >> 37) * prime[0] + prime[3]
            word = (word ^ word >> 33) * prime[1]
            word = (word ^ word >> 29) * prime[2]
            word = word ^ word >> 32
            block = ((word >> 32) * blocks >> 32) * cython.cast(cython.ulonglong, width)
            for at in range(width):
                bits[block + at] |= cython.cast(cython.uint, 1) << (
                    cython.cast(cython.uint, word) * salt[at] >> 27
                )
