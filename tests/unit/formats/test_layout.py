"""What is derived from declared fields."""

from typing import NamedTuple

import numpy as np
import pytest

from rocketlens.formats.layout import Layout, declared_types
from rocketlens.model.message import I32, I64


class Declared(NamedTuple):
    first: I32
    second: I64
    third: I32
    only_in_memory: int = 0


LAYOUT = Layout.of(Declared)
PACKED = bytes.fromhex("00000001 ffffffffffffffff 00000003")


def test_fields_without_a_width_are_not_part_of_a_layout():
    assert declared_types(Declared) == [("first", "i32"), ("second", "i64"), ("third", "i32")]


def test_fields_follow_one_another_without_gaps_big_endian():
    assert LAYOUT.offsets == {"first": 0, "second": 4, "third": 12}
    assert LAYOUT.size == len(PACKED)
    assert LAYOUT.struct.unpack(PACKED) == (1, -1, 3)
    assert np.frombuffer(PACKED * 2, LAYOUT.dtype).tolist() == [(1, -1, 3)] * 2


def test_a_struct_of_some_fields_skips_the_others_and_ends_behind_the_last():
    assert LAYOUT.struct_of("first", "third").unpack(PACKED) == (1, 3)
    assert LAYOUT.struct_of("second").unpack(PACKED[:12]) == (-1,)
    assert LAYOUT.struct_of("first", "third").pack(1, 3) == PACKED[:4] + bytes(8) + PACKED[12:]


def test_a_dtype_of_some_fields_has_them_where_they_are():
    row = np.frombuffer(PACKED[:12], LAYOUT.dtype_of("second"))
    assert row["second"].tolist() == [-1]
    with pytest.raises(KeyError):
        LAYOUT.dtype_of("fourth")
