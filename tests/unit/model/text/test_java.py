"""`new String(bytes, UTF_8)`, `String.hashCode` and `Integer.parseInt`, as the JDK has them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.model.text import java
from tests.support.group_world import CONFIG

PRINTED = Path(__file__).parents[2] / "mqadmin" / "printed"
VECTORS = Path(__file__).parent / "java_text_vectors.txt"


def vectors():
    """Bytes, UTF-16 units, hashCode, parseInt or None: what JDK 17 said (see tests/peer)."""
    for line in VECTORS.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            encoded, units, hash_code, number = line.split("\t")
            yield (
                bytes.fromhex(encoded),
                bytes.fromhex(units).decode("utf-16-be"),
                int(hash_code),
                None if number == "-" else int(number),
            )


def test_bytes_decode_as_the_jdk_decodes_them():
    assert [java.decode_utf8(encoded) for encoded, *_ in vectors()] == [
        text for _, text, *_ in vectors()
    ]


def test_text_hashes_as_the_jdk_hashes_it():
    for encoded, text, hash_code, _ in vectors():
        assert java.string_hash(text) == hash_code
        assert java.utf8_string_hash(encoded, 0, len(encoded), 0) == hash_code & 0xFFFFFFFF


def test_numbers_parse_as_the_jdk_parses_them():
    for encoded, _, _, number in vectors():
        parsed = java.utf8_parse_int(encoded, 0, len(encoded))
        assert parsed == (java.NOT_AN_INTEGER if number is None else number)


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        ("E4B8", "\ufffd"),
        ("E4B841", "\ufffdA"),
        ("E08041", "\ufffd\ufffdA"),
        ("F09F9841", "\ufffdA"),
        ("F09F98", "\ufffd"),
        ("EDA080", "\ufffd"),
        ("EDA0", "\ufffd"),
        ("F4908080", "\ufffd" * 4),
        ("C0AF", "\ufffd\ufffd"),
        ("F09F9880", "\U0001f600"),
        ("C3A9", "é"),
        ("00", "\0"),
        ("", ""),
    ],
)
def test_malformed_runs_become_one_replacement_each(encoded, text):
    assert java.decode_utf8(bytes.fromhex(encoded)) == text


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_decoding_parts_between_ascii_separators_is_decoding_the_whole(left, right):
    whole = java.decode_utf8(left + b"\x02" + right)
    assert whole == java.decode_utf8(left) + "\x02" + java.decode_utf8(right)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_a_hash_can_be_continued_where_a_character_ends(encoded, cut):
    head, tail = encoded[:cut] + b"#", encoded[cut:]
    seed = java.utf8_string_hash(head, 0, len(head), 0)
    hashed = java.utf8_string_hash(tail, 0, len(tail), seed)
    text = java.decode_utf8(head) + java.decode_utf8(tail)
    assert hashed == java.string_hash(text) & 0xFFFFFFFF


@given(st.text())
def test_well_formed_text_decodes_as_python_decodes_it(text):
    encoded = text.encode("utf-8")
    assert java.decode_utf8(encoded) == text
    assert java.utf8_string_hash(encoded, 0, len(encoded), 0) == java.string_hash(text) & 0xFFFFFFFF


def test_a_lone_surrogate_counts_as_one_unit():
    assert java.string_hash("\udc80") == 0xDC80


@pytest.mark.parametrize("length", [0, 1, 510, 511, 512, 513, 2000])
def test_a_hash_is_the_same_however_long_a_text_is(length):
    text = "".join(chr(33 + number * 7 % 94) for number in range(length))
    state = 0
    for character in text:
        state = (state * 31 + ord(character)) & 0xFFFFFFFF
    assert java.string_hash(text) & 0xFFFFFFFF == state


def test_an_index_hash_is_the_absolute_value_and_zero_for_the_smallest_int():
    assert java.index_hash("SpecTopic#k1") == 618776053
    assert java.string_hash("polygenelubricants") == -(2**31)
    assert java.index_hash("polygenelubricants") == 0


@given(st.lists(st.text(max_size=9), max_size=4), st.text(max_size=20))
def test_the_hashes_of_a_key_in_several_topics_are_those_of_each(topics, key):
    assert java.key_hashes(topics, key) == {java.index_hash(f"{each}#{key}") for each in topics}
    ends_at_least = ["polygenelubricants"[:-3], "\ud83d"]
    for topic in ends_at_least:
        assert java.key_hashes([topic], key) == {java.index_hash(f"{topic}#{key}")}


def test_colliding_keys_have_one_hash():
    assert java.string_hash("AaBB") == java.string_hash("BBAa") == java.string_hash("AaAa")


def test_an_astral_character_is_two_units():
    assert java.string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_names_are_in_the_order_of_a_concurrent_map_that_grew():
    """In which the real tool printed the 63 values of a broker's configuration."""
    text = (PRINTED / "groups-5.5.txt").read_text(encoding="utf-8")
    block = text.split("$ getBrokerConfig -b {broker}\n")[1].split("\n$ ")[0]
    expected = [line.split("=")[0].strip() for line in block.splitlines()[1:]]
    names = [line.partition("=")[0] for line in CONFIG.splitlines()]
    assert len(expected) > 60
    assert sorted(names) == sorted(expected) != expected
    assert java.concurrent_map_order(names) == expected
    assert java.concurrent_map_order(["b", "a"]) == ["a", "b"]
    assert java.concurrent_map_order([]) == []
