"""Bloom filters of Parquet files, which pyarrow writes and does not read.

The filter of a row group is a header and blocks of 32 bytes: eight words of 32 bits, in each of
which a value sets one bit. XXH64 of the value, with seed 0, chooses the block with its upper half
and the bits with its lower half. Source: parquet-format, BloomFilter.md.

Parquet has no checksum of filters, and a filter that lost a bit would hide a key. So the metadata
of a file has the checksums of its filters, under `CHECKSUMS`.
"""

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

CHECKSUMS: Final = "rocketlens.filters"
"""The key of a list with an object for each row group: the CRC-32 of its filter, without the
header, by the size that the filter can have. pyarrow shrinks a filter while its error rate allows.
"""
FILTER_OPTIONS: Final = {"ndv": 1 << 14, "fpp": 0.002}
"""Two bytes a value; one of 500 row groups without the key is read in vain."""
_MAX_FILTER_BYTES: Final = 1 << 15
BLOCK_BYTES: Final = 32
_SALTS: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_START: Final = 0x27D4EB2F165667C5 + 8
_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_32: Final = 0xFFFF_FFFF


def xxh64(number: int) -> int:
    """Return XXH64 of a signed 64-bit integer, hashed as the 8 bytes that Parquet stores."""
    word = (number & _64) * _PRIME_2 & _64
    word = (word << 31 | word >> 33) * _PRIME_1 & _64 ^ _START
    hashed = ((word << 27 | word >> 37) & _64) * _PRIME_1 + _PRIME_4 & _64
    hashed = (hashed ^ hashed >> 33) * _PRIME_2 & _64
    hashed = (hashed ^ hashed >> 29) * _PRIME_3 & _64
    return hashed ^ hashed >> 32


def block_of(hashed: int, size: int) -> int:
    """Return the position of a value's block in a filter of ``size`` bytes, by its `xxh64`."""
    return ((hashed >> 32) * (size // BLOCK_BYTES) >> 32) * BLOCK_BYTES


def can_have(block: bytes, hashed: int) -> bool:
    """Return False if the value is not in the row group."""
    low = hashed & _32
    for at, salt in enumerate(_SALTS):
        bit = (low * salt & _32) >> 27
        if not block[at * 4 + bit // 8] >> bit % 8 & 1:
            return False
    return True


def filter_bytes(length: int) -> int:
    """Return the size of a filter, given its length with the header."""
    return 1 << length.bit_length() - 1


def checksums(values: npt.NDArray[np.int64]) -> dict[str, int]:
    """Return the checksums of the filter for a row group of sorted values, by filter size."""
    from rocketlens.formats.compiled import archive

    primes = np.array((_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4), np.uint64)
    bits = np.zeros((_MAX_FILTER_BYTES // BLOCK_BYTES, len(_SALTS)), np.uint32)
    salts = np.array(_SALTS, np.uint32)
    archive.set_filter_bits(values, primes, np.uint64(_START), salts, bits.reshape(-1))
    expected = 2 * (1 + int(np.count_nonzero(np.diff(values))))
    of_sizes = {}
    while len(bits):
        if expected // 2 < bits.nbytes <= expected * 4 or bits.nbytes == BLOCK_BYTES:
            of_sizes[str(bits.nbytes)] = crc32(bits.tobytes())
        # Halving a filter merges neighbouring blocks.
        bits = bits[::2] | bits[1::2] if len(bits) > 1 else bits[:0]
    return of_sizes
