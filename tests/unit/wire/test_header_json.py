"""Headers in JSON, as RocketMQ's servers read them."""

import json
import tracemalloc

import pytest

from rocketlens import limits
from rocketlens.errors import HeaderError
from rocketlens.wire import header_json
from rocketlens.wire.codes import LanguageCode
from rocketlens.wire.command import RemotingCommand


def json_header(**changed):
    members = {"code": 10, "flag": 0, "language": "JAVA", "opaque": 1, "version": 407}
    return json.dumps(members | changed).encode()


def test_members_come_in_any_order_with_space_and_unknown_ones():
    text = b' \n{ "version" : 407 , "new" : {"a":[1]} , "opaque":5,"extFields" : {"x" :"y"}}\t'
    assert header_json.decode(text) == RemotingCommand(
        0, 5, 0, None, {"x": "y"}, b"", LanguageCode.JAVA, 407
    )


def test_an_empty_object_is_a_command_with_nothing_in_it():
    assert header_json.decode(b"{}") == RemotingCommand(0, language=LanguageCode.JAVA, version=0)


def test_numbers_and_booleans_are_taken_as_text_and_nulls_as_absent():
    text = json_header(
        code="310", remark=None, extFields={"a": 5, "b": True, "c": None, "d": False, "e": 1.5}
    )
    read = header_json.decode(text)
    assert read.code == 310
    assert read.remark is None
    assert read.ext_fields == {"a": "5", "b": "true", "d": "false", "e": "1.5"}


@pytest.mark.parametrize(
    ("language", "expected"),
    [("GO", "GO"), ("COBOL", "OTHER"), (3, "PYTHON"), (99, "OTHER"), (None, "JAVA"), ([], "OTHER")],
)
def test_a_language_is_a_name_or_a_number(language, expected):
    assert header_json.decode(json_header(language=language)).language.name == expected


def test_malformed_utf_8_is_read_as_java_reads_it():
    text = json_header(extFields={"a": "p?g"}).replace(b"?", b"\xff\xc3")
    assert header_json.decode(text).ext_fields == {"a": "p\ufffd\ufffdg"}


def test_control_characters_may_stand_in_texts_as_they_are():
    text = json_header(extFields={"a": "x?y"}).replace(b"?", b"\x01")
    assert header_json.decode(text).ext_fields == {"a": "x\x01y"}


def test_quotes_in_texts_are_no_end_of_them():
    fields = {'"': '\\"', "a": '{"b":"c"}', "z": "\\"}
    assert header_json.decode(json_header(extFields=fields)).ext_fields == fields


HOSTILE = {
    "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep and open": b'{"a":' * 100_000,
    "a huge integer": json_header().replace(b"10", b"9" * 10_000),
    "an integer of 33 bits": json_header(opaque=2**31),
    "another": json_header(flag=-(2**31) - 1),
    "hidden by a negative one": json_header(opaque=2**40, flag=-1),
    "NaN": json_header().replace(b"10", b"NaN"),
    "infinity": json_header().replace(b"10", b"-Infinity"),
    "a fraction": json_header(code=1.5),
    "true for a number": json_header(code=True),
    "a lone surrogate": json_header(extFields={"a": "\ud800"}),
    "a lone surrogate in a name": json_header(extFields={"\udfff": "a"}),
    "a lone surrogate in a remark": json_header(remark="\ud83d"),
    "a field twice": b'{"code":1,"extFields":{"a":"1","a":"2"}}',
    "a name twice": b'{"code":1,"code":2}',
    "a name twice among others": json_header().replace(b"{", b'{"code":11,'),
    "an unquoted key": b'{0:"a"}',
    "an unquoted key inside": b'{"extFields":{0:"a"}}',
    "an object as a key": b'{{"a":1}:2}',
    "an array": b"[]",
    "a number": b"1",
    "nothing": b"",
    "space": b"  ",
    "two objects": b"{}{}",
    "text behind": b"{} x",
    "an array of fields": json_header(extFields=["a"]),
    "a text of fields": json_header(extFields="abc"),
    "an object in a field": json_header(extFields={"a": {}}),
    "an object for a remark": json_header(remark={}),
    "a long text for a number": json_header(code="1" * 5000),
    "a text for a number": json_header(code="x"),
    "an object for a number": json_header(opaque={}),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "zero bytes": bytes(100),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_a_protocol_error_and_nothing_else(hostile):
    with pytest.raises(HeaderError) as caught:
        header_json.decode(hostile)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1.5,", b'"a",'])
def test_the_largest_header_that_a_server_reads_costs_at_most_32_mib(unit):
    count = (limits.MAX_REQUEST_HEADER_BYTES - 10) // len(unit)
    hostile = b'{"x":[' + unit * count + b"1]}"
    tracemalloc.start()
    header_json.decode(hostile)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * 1024 * 1024


TRICKS = (
    '"remark":5',
    '"remark":"x\\\\"',
    '"remark":"\\"y"',
    '"serializeTypeCurrentRPC":5',
    '"serializeTypeCurrentRPC":"JSON"',
    '"extFields":{"k":"v\\\\"}',
    '"extFields":{"k":"\\"","j":"\\\\"}',
    '"extFields":{"k":1}',
    '"x":"y"',
    '"x":{"z":"\\"\\""}',
)


@pytest.mark.parametrize("first", TRICKS)
@pytest.mark.parametrize("second", TRICKS)
def test_no_number_of_quotes_hides_a_name_that_comes_twice(first, second):
    plain = '"code":0,"opaque":1,"flag":0,"version":1,"language":"JAVA"'
    for twice in ('"code":1', '"flag":0', '"language":"JAVA"', '"y":1,"y":2'):
        text = f"{{{first},{plain},{second},{twice}}}"
        with pytest.raises(HeaderError, match="comes twice"):
            header_json.decode(text.encode())
