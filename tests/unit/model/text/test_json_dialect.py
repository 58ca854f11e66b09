"""JSON in RocketMQ's dialects: texts that are too long to be read at once, and files."""

import json
import re

import pytest

from rocketlens.errors import CommandBodyError, ConfigError
from rocketlens.model.text import json_dialect
from rocketlens.model.text.json_dialect import PIECE_CHARACTERS, STRICT_DECODER, loads

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
