"""Compression inside of bodies comes off, within a bound."""

import gzip
import zlib

import lz4.frame
import pytest
import zstandard

from rocketlens.decode.layers import unwrap
from rocketlens.errors import BodyError
from tests.support.written_bodies import body

PACKED = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_each_layer_comes_off(name):
    assert unwrap(PACKED[name](b"some text")) == (b"some text", (name,))


def test_layers_come_off_one_after_another():
    assert unwrap(gzip.compress(zlib.compress(b"a"))) == (b"a", ("gzip", "zlib"))
    assert unwrap(body("json.gzip"))[1] == ("gzip",)
    four = b"a"
    for _ in range(4):
        four = gzip.compress(four)
    inner, layers = unwrap(four)
    assert (gzip.decompress(inner), len(layers)) == (b"a", 3)


def test_several_members_of_gzip_are_one_body():
    assert unwrap(gzip.compress(b"a") + gzip.compress(b"b")) == (b"ab", ("gzip",))


@pytest.mark.parametrize("name", PACKED)
def test_what_grows_beyond_the_bound_is_refused(name):
    with pytest.raises(BodyError, match="grows beyond 1000 bytes"):
        unwrap(PACKED[name](bytes(1_000_000)), 1_000)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("change", [lambda data: data[:-3], lambda data: data[:7] + b"x" * 20])
def test_what_only_begins_as_a_layer_stays(name, change):
    damaged = change(PACKED[name](b"some text that is not short" * 3))
    assert unwrap(damaged) == (damaged, ())


@pytest.mark.parametrize("plain", [b"", b"x", b"x\x9c", b"x\x9chello, no", b"\x1f\x8b\x08"])
def test_what_is_no_layer_stays(plain):
    assert unwrap(plain) == (plain, ())


def test_what_is_left_behind_a_layer_means_that_it_is_none():
    data = gzip.compress(b"a") + b"rest"
    assert unwrap(data) == (data, ())
