"""What decoders share: bytes within bounds, layers of compression, text, and values as JSON."""

import gzip
import json
import struct
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.decode.byte_reader import ByteReader
from rocketlens.decode.layers import unwrap
from rocketlens.decode.plain_text import find_text
from rocketlens.decode.text_formats import may_be_json, read_json, read_xml
from rocketlens.decode.tree import exact_decimal, json_ready, name_text, tree_of
from rocketlens.errors import BodyError, BodyTooLarge
from rocketlens.terminal.json_text import JsonPart, layout_json
from tests.support.written_bodies import body


@pytest.mark.parametrize(
    ("value", "ready"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("19.90"), "19.90"),
        (b"\x00\xff", {"@base64": "AP8="}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        ({"a": [b""]}, {"a": [{"@base64": ""}]}),
    ],
)
def test_each_value_has_its_form_in_json(value, ready):
    assert json_ready(value) == ready
    json.dumps(json_ready(value), allow_nan=False)


def test_an_integer_of_thousands_of_digits_is_written_in_hexadecimal():
    assert json_ready(1 << 20_000) == hex(1 << 20_000)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "a"),
        (b"a\xff", r"a\xff"),
        (1, "1"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        (date(2026, 1, 2), "2026-01-02"),
        ([1, "a"], '[1,"a"]'),
        ({"a": b""}, '{"a":{"@base64":""}}'),
    ],
)
def test_members_that_are_named_by_other_values_have_their_text(name, text):
    assert name_text(name) == text


def test_a_graph_becomes_a_tree_that_names_where_a_value_was_first():
    shared = [1]
    graph = {"a": shared, "b": {"c": [0, shared]}}
    graph["b"]["d"] = graph
    assert tree_of(graph) == {"a": [1], "b": {"c": [0, {"@same": "$.a"}], "d": {"@same": "$"}}}
    itself = []
    itself.append(itself)
    assert name_text(itself) == '[{"@same":"$"}]'


def test_values_levels_and_text_of_a_tree_are_bounded():
    with pytest.raises(BodyError, match="more than 40000 values"):
        tree_of([0] * limits.MAX_BINARY_VALUES)
    deep = []
    for _ in range(2 * limits.MAX_DECODED_LEVELS):
        deep = [deep]
    with pytest.raises(BodyError, match="levels deep"):
        tree_of(deep)
    long = "a" * (limits.MAX_DECODED_BYTES // 2)
    tree_of([long])
    for many in ([long] * 3, [{long: 1}, {long: 2}, {long: 3}]):
        with pytest.raises(BodyError, match="characters"):
            tree_of(many)
    deep_names = shared = []
    for _ in range(90):
        deep_names = {"a" * 10_000: deep_names}
    with pytest.raises(BodyError, match="characters"):
        tree_of([deep_names, *[shared] * 10])


def test_a_number_of_too_many_digits_has_no_decimal_point():
    assert exact_decimal(-120, 5) == Decimal("-0.00120")
    with pytest.raises(ValueError, match="bits"):
        exact_decimal(1 << 20_000, 1)


def test_numbers_are_read_one_after_another():
    reader = ByteReader(bytes.fromhex("01 ff fe ff fe 00 00 00 02 ac 02"))
    assert reader.peek() == reader.byte() == 1
    assert reader.signed(2) == -2
    assert reader.unsigned(2) == 0xFFFE
    assert reader.unpack(struct.Struct(">i")) == 2
    assert reader.varint() == 300
    reader.to_end(None)


def test_what_ends_too_early_is_refused_with_its_position():
    reader = ByteReader(b"\x80")
    with pytest.raises(BodyError, match="at byte 0: it ends too early: 2 bytes are named, 1 are"):
        reader.take(2)
    with pytest.raises(BodyError, match="at byte 0"):
        reader.take(-1)
    with pytest.raises(BodyError, match="at byte 1: it ends too early"):
        reader.varint()
    with pytest.raises(BodyError, match="at byte 0: 1 bytes follow its end"):
        ByteReader(b"a").to_end(None)


def test_a_varint_has_64_bits_at_most():
    assert ByteReader(b"\xff" * 9 + b"\x01").varint() == 2**64 - 1
    with pytest.raises(BodyError, match="64 bits"):
        ByteReader(b"\xff" * 9 + b"\x02").varint()
    with pytest.raises(BodyError, match="10 bytes"):
        ByteReader(b"\xff" * 11).varint()


def test_values_are_counted_in_the_whole():
    whole = ByteReader(b"")
    part = ByteReader(b"", whole.work)
    part.count(limits.MAX_BINARY_VALUES)
    with pytest.raises(BodyError, match="more than"):
        whole.count()
    with pytest.raises(BodyError, match="count of -1"):
        whole.count(-1)


def test_a_level_that_failed_is_counted_no_more():
    reader = ByteReader(b"")
    for _ in range(limits.MAX_DECODED_LEVELS + 1):
        with pytest.raises(BodyError, match="early"), reader.level():
            reader.byte()


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


@pytest.mark.parametrize(
    "text", ["{", "", "nope", '{"a":1}x', "[" * 100_000, "[" * 101 + "]" * 101]
)
def test_what_is_not_json_or_too_deep_is_refused(text):
    with pytest.raises(BodyError):
        read_json(text)


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(BodyError, match="not JSON"):
        read_json("1" * 5_000)


def test_only_objects_arrays_and_strings_are_taken_for_json():
    assert all(map(may_be_json, ['{"a":1}', " [1]", '"a"']))
    assert not any(map(may_be_json, ["17", "true", "hello", ""]))


def test_what_has_too_many_values_is_refused_before_they_are_made():
    with pytest.raises(BodyTooLarge, match="more than 200000 values"):
        read_json("[" + "0," * 250_000 + "0]")
    with pytest.raises(BodyTooLarge, match="more than 200000 values"):
        read_json("[" + "[]," * 450_000)
    assert read_json(json.dumps({"csv": "1," * 300_000}))["csv"][-2:] == "1,"


def test_elements_attributes_and_text_are_read():
    text = '<order id="7"><item>A9</item><item n="2">B1</item><note/> tail </order>'
    assert read_xml(text) == {
        "order": {
            "@id": "7",
            "item": ["A9", {"@n": "2", "#text": "B1"}],
            "note": "",
            "#text": " tail ",
        }
    }
    assert read_xml("<?xml version='1.0' encoding='gbk'?><a>王 &amp; &#x41;</a>") == {"a": "王 & A"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<a>", "not well-formed"),
        ("<a></b>", "not well-formed"),
        ("", "not well-formed"),
        ("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>", "document type"),
        ("<!DOCTYPE a><a/>", "document type"),
        ("<a>&b;</a>", "not well-formed"),
        ("<a>" * 200, "levels deep"),
        ("<a>" + "<b/>" * 200_001 + "</a>", "more than"),
    ],
)
def test_what_is_not_read_of_xml_is_refused(text, says):
    with pytest.raises(BodyError, match=says):
        read_xml(text)


CHINESE = "订单已支付,等待发货。"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", ("", "utf-8")),
        (b"plain", ("plain", "utf-8")),
        ("王小明 😀".encode(), ("王小明 😀", "utf-8")),
        (b"\xef\xbb\xbfa", ("a", "utf-8")),
        ("a王".encode("utf-16"), ("a王", "utf-16")),
        ("a王".encode("utf-32"), ("a王", "utf-32")),
        (b"\x1b[31mred\x1b[0m\r\n", ("\x1b[31mred\x1b[0m\r\n", "utf-8")),
        (CHINESE.encode("gb18030"), (CHINESE, "gb18030")),
        (body("text.gbk"), (CHINESE, "gb18030")),
    ],
)
def test_text_is_found_with_its_charset(data, found):
    assert find_text(data) == found


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02",
        b"\x08\x96\x01",
        b"caf\xe9",
        b"\xff\xfe\x00",
        "囍鑫龘".encode("gb18030") + b"\x01",
        bytes(range(0x81, 0xFF)),
        body("order.java-object"),
        body("order.messagepack"),
        body("record.avro"),
    ],
)
def test_other_bytes_are_no_text(data):
    assert find_text(data) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_has_the_same_value(value):
    assert json.loads("".join(text for _, text in layout_json(json.dumps(value)))) == value


def test_names_and_values_are_told_apart():
    parts = [
        part for part in layout_json('{"a":["b",1.10],"a":{}}') if part[0] is not JsonPart.LAYOUT
    ]
    assert parts == [("name", '"a"'), ("string", '"b"'), ("other", "1.10"), ("name", '"a"')]


def test_it_is_indented():
    assert "".join(text for _, text in layout_json('{"a":[1,{}]}')) == (
        '{\n  "a": [\n    1,\n    {}\n  ]\n}'
    )
