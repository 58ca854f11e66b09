"""Hashes and filters of keys: the compiled ones are those of plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.archive import bloom
from rocketlens.formats.compiled import archive

INT64S = st.integers(-(2**63), 2**63 - 1)
FNV_1A = (0xCBF29CE484222325, 0x100000001B3)


def hashes_of(content, offsets):
    hashes = np.empty(len(offsets) - 1, np.int64)
    texts = np.frombuffer(content, np.uint8)
    archive.hash_texts(texts, np.array(offsets, np.int32), *FNV_1A, hashes)
    return hashes.tolist()


def test_no_byte_outside_of_the_texts_is_read():
    empty, a = hashes_of(b"a", [0, 0, 1])
    assert hashes_of(b"a", [0, 1, 2]) == [a, empty]
    assert hashes_of(b"a", [-1, 1, 1]) == [empty, empty]


@given(st.lists(INT64S, max_size=50), st.integers(0, 6))
def test_a_filter_has_the_bits_of_its_numbers_and_no_others(numbers, power):
    salts, words = np.array(bloom._SALTS, np.uint32), np.zeros(8 << power, np.uint32)
    primes = np.array([bloom._PRIME_1, bloom._PRIME_2, bloom._PRIME_3, bloom._PRIME_4], np.uint64)
    archive.set_filter_bits(np.array(numbers, np.int64), primes, bloom._START, salts, words)
    expected = bytearray(words.nbytes)
    for number in numbers:
        hashed = bloom.xxh64(number)
        at = bloom.block_of(hashed, words.nbytes)
        assert bloom.can_have(words.tobytes()[at : at + bloom.BLOCK_BYTES], hashed)
        for word, salt in enumerate(bloom._SALTS):
            bit = (hashed * salt & 0xFFFFFFFF) >> 27
            expected[at + word * 4 + bit // 8] |= 1 << bit % 8
    assert words.tobytes() == expected
