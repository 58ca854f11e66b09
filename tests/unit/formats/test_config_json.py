"""The dialects of config/*.json."""

import pytest

from rocketlens.errors import ConfigError
from rocketlens.formats import config_json
from rocketlens.formats.config_json import Dialect


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
    assert config_json.loads(text) == value
    assert config_json.loads(text.encode()) == value
    assert config_json.loads(f" \r\n\t{text}\n ") == value


def test_integer_keys_stay_integers_where_asked():
    assert config_json.loads('{1:{2:3},"4":5}', integer_keys=True) == {1: {2: 3}, "4": 5}
    assert config_json.loads('{"4":5}', integer_keys=True) == {"4": 5}


def test_of_two_members_with_one_name_the_last_counts():
    assert config_json.loads('{"a":1,"a":2}') == {"a": 2}
    assert config_json.loads('{1:1,"1":2,1:3}') == {"1": 3}


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
        config_json.loads(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("key", ["007", "-0", "-01", "00", "9" * 255])
def test_a_key_of_digits_without_quotes_that_is_no_integer_is_text(key):
    assert config_json.loads(f"{{{key} : 1, 2:3}}") == {key: 1, "2": 3}
    assert config_json.loads(f"{{{key}:1,2:3,0:4}}", integer_keys=True) == {key: 1, 2: 3, 0: 4}


def test_bytes_that_are_no_utf8_are_read_with_marks_in_their_place():
    assert config_json.loads(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize("opening", ["[", '{"a":', "{1:", "[{1:"])
@pytest.mark.parametrize("levels", [130, 500, 5_000, 100_000])
def test_nesting_beyond_128_levels_is_an_error_in_every_dialect(opening, levels):
    closing = {"[": "]", '{"a":': "}", "{1:": "}", "[{1:": "}]"}[opening]
    with pytest.raises(ConfigError):
        config_json.loads(opening * levels + "1" + closing * levels)
    with pytest.raises(ConfigError):
        config_json.loads(opening * levels)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{1:"])
def test_nesting_of_128_levels_is_read(opening):
    closing = "]" if opening == "[" else "}"
    value = config_json.loads(opening * 128 + "1" + closing * 128)
    for _ in range(128):
        (value,) = value if isinstance(value, list) else value.values()
    assert value == 1
    with pytest.raises(ConfigError):
        config_json.loads(opening * 129 + "1" + closing * 129)


def test_every_prefix_of_a_file_is_an_error():
    text = config_json.dumps({"t": {1: {"a": [1, "x"]}, 2: {}}}, Dialect.FASTJSON2)
    for length in range(len(text)):
        with pytest.raises(ConfigError):
            config_json.loads(text[:length])


def test_a_flipped_bit_gives_a_value_or_a_config_error():
    content = config_json.dumps({"t@g": {1: 2, 3: [4]}}, Dialect.FASTJSON).encode()
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            try:
                config_json.loads(bytes(changed))
            except ConfigError:
                continue


TABLE = {"offsetTable": {1: 16, 3: 50}, "empty": {}, "none": [], "topics": ["T", "单"], "7": -1}


def test_plain_json_quotes_every_key():
    assert config_json.dumps(TABLE) == (
        '{"offsetTable":{"1":16,"3":50},"empty":{},"none":[],"topics":["T","单"],"7":-1}'
    )


def test_fastjson_leaves_integer_keys_bare_and_on_one_line():
    assert config_json.dumps(TABLE, Dialect.FASTJSON) == (
        '{\n\t"offsetTable":{1:16,3:50\n\t},\n\t"empty":{},\n\t"none":[],'
        '\n\t"topics":[\n\t\t"T",\n\t\t"单"\n\t],\n\t"7":-1\n}'
    )


def test_fastjson2_puts_every_member_on_its_line():
    assert config_json.dumps(TABLE, Dialect.FASTJSON2) == (
        '{\n\t"offsetTable":{\n\t\t1:16,\n\t\t3:50\n\t},\n\t"empty":{},\n\t"none":[],'
        '\n\t"topics":[\n\t\t"T",\n\t\t"单"\n\t],\n\t"7":-1\n}'
    )


@pytest.mark.parametrize("dialect", [Dialect.FASTJSON, Dialect.FASTJSON2])
def test_text_that_looks_like_a_number_keeps_its_quotes(dialect):
    value = {"007": 1, "7": 2, 7: 3, "٣": 4, "a:b": "1:2"}
    text = config_json.dumps(value, dialect)
    assert config_json.loads(text, integer_keys=True) == value
