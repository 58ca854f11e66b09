"""MessagePack, read as its Java library wrote it."""

from datetime import UTC, datetime, timedelta

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.decode.messagepack import may_be_messagepack, read_messagepack
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.text(min_size=200, max_size=300)
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20)
    ),
    max_leaves=30,
)


def test_a_map_is_read():
    assert read_messagepack(body("order.messagepack")) == {
        "id": "ORDER-20261120-0042",
        "number": 9_007_199_254_740_993,
        "items": [1, 2.5, None],
        "at": datetime(2025, 11, 20, 0, 53, 20, 123000, tzinfo=UTC),
    }


def test_an_extension_type_has_its_number():
    assert read_messagepack(bytes.fromhex("91 d4 05 ff")) == [{"@ext": 5, "data": b"\xff"}]
    assert read_messagepack(bytes.fromhex("81 01 c4 01 00")) == {"1": b"\x00"}


@pytest.mark.parametrize(
    ("hexadecimal", "says"),
    [
        ("", "ends too early"),
        ("92 01", "ends too early"),
        ("91 01 02", "1 bytes are left"),
        ("dd ff ff ff ff", "ends too early"),
        ("c1", "no value begins with 0xc1"),
        ("91" * 5_000, "levels deep"),
    ],
)
def test_what_is_not_messagepack_is_refused(hexadecimal, says):
    with pytest.raises(BodyError, match=says):
        read_messagepack(bytes.fromhex(hexadecimal))


@given(values)
def test_what_the_library_writes_is_read_as_the_library_reads_it(value):
    packed = msgpack.packb(value, datetime=True, unicode_errors="surrogatepass")
    assert repr(read_messagepack(packed)) == repr(value)


def test_times_have_each_of_their_three_lengths():
    for second in (0, 1, 1 << 33, -1):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        assert read_messagepack(msgpack.packb(moment, datetime=True)) == moment


def test_only_maps_and_arrays_are_taken_for_messagepack():
    assert may_be_messagepack(body("order.messagepack"))
    assert may_be_messagepack(b"\xdd\0\0\0\0")
    assert not may_be_messagepack(b"\xa1a")
    assert not may_be_messagepack(b"")
