"""Compiled hashes, order and filters of the keys of an archive.

The numbers that belong to hashes and filters are arguments: they stand in
:mod:`rocketlens.archive.tables` and :mod:`rocketlens.archive.bloom`, which read without numba, too.
"""

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from rocketlens.formats.compiled.kernels_device import (
    INT32S,
    INT64S,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    ByteArray,
    kernel,
)

INLINED: Final = "92349362b25a04a9"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

UINT32S: Final = types.Array(types.uint32, 1, "C")
READ_ONLY_UINT64S: Final = types.Array(types.uint64, 1, "C", readonly=True)
READ_ONLY_UINT32S: Final = types.Array(types.uint32, 1, "C", readonly=True)

_DIGIT_BITS: Final = 11
_DIGITS: Final = 6
_VALUES: Final = 1 << _DIGIT_BITS
_SIGN: Final = np.uint64(1 << 63)
_LOW_DIGIT: Final = np.uint64(_VALUES - 1)
_LOW_HALF: Final = np.uint64(0xFFFF_FFFF)


@kernel(types.void, READ_ONLY_BYTES, READ_ONLY_INT32S, types.uint64, types.uint64, INT64S)
def hash_texts(
    content: ByteArray,
    offsets: NDArray[np.int32],
    basis: np.uint64,
    prime: np.uint64,
    hashes: NDArray[np.int64],
) -> None:
    """Write FNV-1a of each text; ``offsets`` are those of an Arrow array, one more than texts.

    A text whose offsets are outside of ``content`` has the hash of an empty one.
    """
    for index in range(len(hashes)):
        hashed = basis
        start, stop = offsets[index], offsets[index + 1]
        if start >= 0 and stop <= len(content):
            for at in range(start, stop):
                hashed = (hashed ^ np.uint64(content[at])) * prime
        hashes[index] = np.int64(hashed)


@kernel(types.void, READ_ONLY_INT64S, INT32S)
def sort_order(numbers: NDArray[np.int64], order: NDArray[np.int32]) -> None:
    """Write the indexes that sort numbers; equal ones keep their order. O(n) by radix."""
    count = len(numbers)
    counts = np.zeros((_DIGITS, _VALUES), np.int64)
    keys, keys_before = np.empty(count, np.uint64), np.empty(count, np.uint64)
    indexes, indexes_before = np.empty(count, np.int32), np.empty(count, np.int32)
    for index in range(count):
        key = np.uint64(numbers[index]) ^ _SIGN
        keys_before[index] = key
        indexes_before[index] = index
        for digit in range(_DIGITS):
            counts[digit, np.int64(key >> np.uint64(digit * _DIGIT_BITS) & _LOW_DIGIT)] += 1
    for digit in range(_DIGITS):
        by = np.uint64(digit * _DIGIT_BITS)
        target = 0
        for value in range(_VALUES):
            target, counts[digit, value] = target + counts[digit, value], target
        for index in range(count):
            key = keys_before[index]
            value = np.int64(key >> by & _LOW_DIGIT)
            target = counts[digit, value]
            counts[digit, value] = target + 1
            keys[target] = key
            indexes[target] = indexes_before[index]
        keys, keys_before = keys_before, keys
        indexes, indexes_before = indexes_before, indexes
    order[:] = indexes_before


@kernel(types.void, READ_ONLY_INT64S, READ_ONLY_UINT64S, types.uint64, READ_ONLY_UINT32S, UINT32S)
def set_filter_bits(
    numbers: NDArray[np.int64],
    primes: NDArray[np.uint64],
    start: np.uint64,
    salts: NDArray[np.uint32],
    words: NDArray[np.uint32],
) -> None:
    """Set the bits of numbers in a Bloom filter as Parquet has them, by XXH64 of their bytes.

    ``primes``: the first four of XXH64; ``start``: its state before the number; ``salts``: one for
    each word of a block. ``words`` are those of all blocks, of which there are fewer than 2**32.
    """
    width = len(salts)
    blocks = np.uint64(len(words) // width)
    first, second, third, fourth = primes[0], primes[1], primes[2], primes[3]
    for index in range(len(numbers)):
        word = np.uint64(numbers[index]) * second
        word = (word << np.uint64(31) | word >> np.uint64(33)) * first ^ start
        hashed = (word << np.uint64(27) | word >> np.uint64(37)) * first + fourth
        hashed = (hashed ^ hashed >> np.uint64(33)) * second
        hashed = (hashed ^ hashed >> np.uint64(29)) * third
        hashed = hashed ^ hashed >> np.uint64(32)
        block = np.int64((hashed >> np.uint64(32)) * blocks >> np.uint64(32)) * width
        low = hashed & _LOW_HALF
        for at in range(width):
            bit = (low * np.uint64(salts[at]) & _LOW_HALF) >> np.uint64(27)
            words[block + at] |= np.uint32(1) << np.uint32(bit)
