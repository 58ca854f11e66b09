"""JSON in RocketMQ's dialects, and the JDK's ways with texts and numbers."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import CommandBodyError, ConfigError
from rocketlens.model.text import java, json_dialect
from rocketlens.model.text.json_dialect import PIECE_CHARACTERS, STRICT_DECODER, loads
from tests.support.group_world import CONFIG

TOPIC = {"topicName": 'é消\U0001f4a9\n"{[', "perm": 6, "order": False, "x": [1.5, None, {}]}
LONG = {
    "topics": {f"topic{number}": TOPIC for number in range(200)},
    "numbers": list(range(5000)),
    "texts": ["x" * 3 * PIECE_CHARACTERS, ""],
    "deep": [[[[[list(range(3000))]]]]],
    "": {},
}


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"ensure_ascii": False}])
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_long_text_is_read_as_a_short_one(options, is_plain):
    text = json.dumps(LONG, **options)
    assert loads(f" {text}\r\n", CommandBodyError, is_plain=is_plain) == LONG
    for part in LONG.values():
        assert loads(json.dumps(part, **options).encode(), CommandBodyError) == part


def test_no_long_list_or_object_is_read_in_one_piece(monkeypatch):
    """Meanwhile no other thread could run."""
    lengths = []

    class Watched:
        def raw_decode(self, text, start=0):
            if text[start] in "[{":
                lengths.append(len(text))
            return STRICT_DECODER.raw_decode(text, start)

    monkeypatch.setattr(json_dialect, "_WIRE", json_dialect._WIRE._replace(decoder=Watched()))
    assert loads(json.dumps(LONG), CommandBodyError) == LONG
    assert max(lengths) <= PIECE_CHARACTERS


def test_keys_without_quotes_are_read_in_long_texts_where_they_are_in_short_ones():
    text = "{" + ",".join(f'{n}:{{{{"queueId":{n}}}:{n}}}' for n in range(3000)) + "}"
    assert loads(text, CommandBodyError)["2999"] == {'{"queueId":2999}': 2999}
    with pytest.raises(CommandBodyError, match="not JSON"):
        loads(text, CommandBodyError, is_plain=True)


@pytest.mark.parametrize(
    "bad",
    [
        '{"a":1,"a":2}',
        "[1 2]",
        "[NaN]",
        '"\\ud800"',
        "[" * 70 + "]" * 70,
        "9" * 5000,
        "nul",
        '{"a"}',
        "{1:2}x",
        "[",
        "[1,]",
        "",
    ],
)
def test_what_is_refused_in_a_short_text_is_refused_in_a_long_one(bad):
    filler = json.dumps(list(range(5000)))
    for text in (f"[{filler},{bad}]", f"[{bad},{filler}]", f'{{"x":{filler},"y":{bad}}}'):
        with pytest.raises(CommandBodyError, match="not JSON"):
            loads(text, CommandBodyError)


def test_a_long_text_has_a_bounded_number_of_values(monkeypatch):
    monkeypatch.setattr("rocketlens.model.text.json_dialect.MAX_JSON_VALUES", 5000)
    text = json.dumps([[]] * 5000)
    assert len(loads(text, CommandBodyError)) == 5000
    with pytest.raises(CommandBodyError, match="more than 5000 values"):
        loads(json.dumps([[]] * 5001), CommandBodyError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"offsetTable":{1:16,3:50}}', {"offsetTable": {"1": 16, "3": 50}}),
        ("{0:127,1:126\n\t\t}", {"0": 127, "1": 126}),
        ("{-1:1}", {"-1": 1}),
        ('{ 1 : [ {2 : "a"} , {} , [ ] ] }', {"1": [{"2": "a"}, {}, []]}),
        ('{"a":"{1:2}",3:4}', {"a": "{1:2}", "3": 4}),
        ('{1:{},2:[],3:""}', {"1": {}, "2": [], "3": ""}),
        ("{4:null,5:true,6:-1.5}", {"4": None, "5": True, "6": -1.5}),
        ('{{"topic":"t","queueId":0}:{1:2}}', {'{"queueId":0,"topic":"t"}': {"1": 2}}),
        ('{"\\u8ba2\\"单":1,2:3}', {'订"单': 1, "2": 3}),
        ("[]", []),
        ("7", 7),
        ('""', ""),
    ],
)
def test_every_dialect_is_read(text, value):
    assert json_dialect.loads_file(text) == value
    assert json_dialect.loads_file(text.encode()) == value
    assert json_dialect.loads_file(f" \r\n\t{text}\n ") == value


def test_integer_keys_stay_integers_where_asked():
    assert json_dialect.loads_file('{1:{2:3},"4":5}', integer_keys=True) == {1: {2: 3}, "4": 5}
    assert json_dialect.loads_file('{"4":5}', integer_keys=True) == {"4": 5}


def test_of_two_members_with_one_name_the_last_counts():
    assert json_dialect.loads_file('{"a":1,"a":2}') == {"a": 2}
    assert json_dialect.loads_file('{1:1,"1":2,1:3}') == {"1": 3}


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "}", "[", "]", "{1", "{1:", "{1:2", "{1:2,", "{1:2,}", "{,}", "[1,]"),
        *("{1 2}", "{1:2 3:4}", "{1:2]", "[1}", "{1:2}}", "{1:2} x", "{a:1}", "{'a':1}", "nul"),
        *('{"a', '{"a":"', '{"a":"\\', '{"a":"\\u12', '{"a":1', "{true:1}", "{null:1}", "{1.5:1}"),
        *("{[]:1}", "{--1:2}", "{٣:1}", "\x00", "\ufeff{}", "//x", "{1:0x10}", "#"),
        "9" * 5000,
        "{" + "9" * 5000 + ":1}",
    ],
)
def test_what_is_no_json_is_one_clear_line(text):
    with pytest.raises(ConfigError) as caught:
        json_dialect.loads_file(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("key", ["007", "-0", "-01", "00", "9" * 255])
def test_a_key_of_digits_without_quotes_that_is_no_integer_is_text(key):
    assert json_dialect.loads_file(f"{{{key} : 1, 2:3}}") == {key: 1, "2": 3}
    assert json_dialect.loads_file(f"{{{key}:1,2:3,0:4}}", integer_keys=True) == {
        key: 1,
        2: 3,
        0: 4,
    }


def test_bytes_that_are_no_utf8_are_read_with_marks_in_their_place():
    assert json_dialect.loads_file(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize("opening", ["[", '{"a":', "{1:", "[{1:"])
@pytest.mark.parametrize("levels", [130, 500, 5_000, 100_000])
def test_nesting_beyond_128_levels_is_an_error_in_every_dialect(opening, levels):
    closing = {"[": "]", '{"a":': "}", "{1:": "}", "[{1:": "}]"}[opening]
    with pytest.raises(ConfigError):
        json_dialect.loads_file(opening * levels + "1" + closing * levels)
    with pytest.raises(ConfigError):
        json_dialect.loads_file(opening * levels)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{1:"])
def test_nesting_of_128_levels_is_read(opening):
    closing = "]" if opening == "[" else "}"
    value = json_dialect.loads_file(opening * 128 + "1" + closing * 128)
    for _ in range(128):
        (value,) = value if isinstance(value, list) else value.values()
    assert value == 1
    with pytest.raises(ConfigError):
        json_dialect.loads_file(opening * 129 + "1" + closing * 129)


def test_every_prefix_of_a_file_is_an_error():
    text = json_dialect.dumps_file({"t": {1: {"a": [1, "x"]}, 2: {}}})
    for length in range(len(text)):
        with pytest.raises(ConfigError):
            json_dialect.loads_file(text[:length])


def test_a_flipped_bit_gives_a_value_or_a_config_error():
    content = json_dialect.dumps_file({"t@g": {1: 2, 3: [4]}}).encode()
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            try:
                json_dialect.loads_file(bytes(changed))
            except ConfigError:
                continue


TABLE = {"offsetTable": {1: 16, 3: 50}, "empty": {}, "none": [], "topics": ["T", "单"], "7": -1}


def test_a_file_has_every_member_on_its_line():
    assert json_dialect.dumps_file(TABLE) == (
        '{\n\t"offsetTable":{\n\t\t1:16,\n\t\t3:50\n\t},\n\t"empty":{},\n\t"none":[],'
        '\n\t"topics":[\n\t\t"T",\n\t\t"单"\n\t],\n\t"7":-1\n}'
    )


def test_text_that_looks_like_a_number_keeps_its_quotes():
    value = {"007": 1, "7": 2, 7: 3, "٣": 4, "a:b": "1:2"}
    text = json_dialect.dumps_file(value)
    assert json_dialect.loads_file(text, integer_keys=True) == value


def test_the_dialect_table_reads_as_it_says():
    rows = re.findall(r"^``(\S+)`` +``(\S+)``", json_dialect.__doc__, re.MULTILINE)
    assert len(rows) == 4
    for written, read_as in rows:
        assert json_dialect.dumps(json_dialect.loads_file(written)) == read_as
        assert json_dialect.dumps(loads(written, CommandBodyError)) == read_as


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":"\\ud800"}', "[NaN]", "[" * 70 + "]" * 70])
def test_a_file_may_hold_what_a_request_may_not(text):
    json_dialect.loads_file(text)
    with pytest.raises(CommandBodyError):
        loads(text, CommandBodyError)


def test_integer_keys_stand_without_quotes_and_everything_is_indented_by_tabs():
    assert json_dialect.dumps_file({"a": {1: 2}, "b": [], "c": {}, "d": [1, "\u6807"]}) == (
        '{\n\t"a":{\n\t\t1:2\n\t},\n\t"b":[],\n\t"c":{},\n\t"d":[\n\t\t1,\n\t\t"\u6807"\n\t]\n}'
    )


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
