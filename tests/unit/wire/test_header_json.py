"""Headers in JSON and in RocketMQ's binary form, and how a frame names its codec."""

import json
import re
import struct
import tracemalloc

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, HeaderError, ProtocolError
from rocketlens.wire import frame, header_json
from rocketlens.wire import header_binary as wire_binary
from rocketlens.wire.codes import LanguageCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import decode_command
from rocketlens.wire.frame import FrameSplitter
from tests.support import binary_header as binary
from tests.support.binary_header import encode_command
from tests.support.wire_samples import HEADERS, VERSIONS, all_vectors, sample


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
        with pytest.raises(HeaderError, match="is repeated"):
            header_json.decode(text.encode())


def test_the_layout_table_is_what_the_structs_say():
    rows = re.findall(r"^(\d+)(?:\+n)? +i(\d+)", wire_binary.__doc__, re.MULTILINE)
    bits = {8: "b", 16: "h", 32: "i"}
    assert ">" + "".join(bits[int(size)] for _, size in rows[:-1]) == wire_binary.HEAD.format
    offsets = [int(offset) for offset, _ in rows]
    assert offsets[-1] == wire_binary.HEAD.size
    assert offsets == [sum(int(size) // 8 for _, size in rows[:index]) for index in range(7)]


def binary_header(remark=b"", ext=b"", remark_length=None, ext_length=None):
    head = struct.pack(
        ">hbhiii", 10, 0, 407, 1, 0, len(remark) if remark_length is None else remark_length
    )
    return head + remark + struct.pack(">i", len(ext) if ext_length is None else ext_length) + ext


def entry(name, value, name_length=None, value_length=None):
    return (
        struct.pack(">h", len(name) if name_length is None else name_length)
        + name
        + struct.pack(">i", len(value) if value_length is None else value_length)
        + value
    )


LIES = {
    "a negative remark": binary_header(remark_length=-1),
    "a negative remark that points back": binary_header(b"x" * 40, remark_length=-4),
    "a remark beyond the end": binary_header(remark_length=2**31 - 1),
    "fields beyond the end": binary_header(ext_length=2**31 - 1),
    "negative fields": binary_header(ext_length=-1),
    "bytes over": binary_header() + b"x",
    "a name beyond the end": binary_header(ext=entry(b"a", b"b", name_length=2**15 - 1)),
    "a negative name": binary_header(ext=entry(b"a", b"b", name_length=-1)),
    "a value beyond the end": binary_header(ext=entry(b"a", b"b", value_length=2**31 - 1)),
    "a negative value": binary_header(ext=entry(b"a", b"b", value_length=-1)),
    "half a length": binary_header(ext=entry(b"a", b"b") + b"\x00"),
    "nothing": b"",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_binary_length_that_lies_is_a_protocol_error(lie):
    with pytest.raises(HeaderError):
        wire_binary.decode(lie)


def test_a_value_of_no_bytes_is_empty_and_a_remark_of_none_absent():
    read = wire_binary.decode(binary_header(ext=entry(b"i", b"")))
    assert read.ext_fields == {"i": ""}
    assert read.remark is None


def test_of_a_binary_field_that_comes_twice_the_last_counts():
    # As a signing Java client of 5.x sends them.
    ext = entry(b"a", b"1") + entry(b"b", b"2") + entry(b"a", b"3")
    assert wire_binary.decode(binary_header(ext=ext)).ext_fields == {"a": "3", "b": "2"}


def test_malformed_utf_8_in_a_binary_header_is_read_as_java_reads_it():
    read = wire_binary.decode(binary_header(ext=entry(b"a", b"p\xffg")))
    assert read.ext_fields == {"a": "p\ufffdg"}


def test_a_code_over_16_bits_does_not_fit_a_binary_header():
    with pytest.raises(BadInput):
        binary.encode(RemotingCommand(200050))
    assert header_json.decode(header_json.encode(RemotingCommand(200050))).code == 200050


CODECS = {"JSON": header_json, "ROCKETMQ": binary}
REMARK = 're"mark\n€'
COMMAND = RemotingCommand(
    310, -7, 1, REMARK, {"a": "x\x01y\x02", "é": '"\\'}, b"body", LanguageCode.GO, 407
)
both = pytest.mark.parametrize("header", CODECS.values(), ids=CODECS)


@pytest.mark.parametrize(("version", "words"), all_vectors("frame"))
def test_a_header_of_the_real_rocketmq_is_read_and_written_again_byte_by_byte(version, words):
    name, java_name, hexadecimal = words
    whole = bytes.fromhex(hexadecimal)
    [received] = FrameSplitter().feed(whole)
    command = decode_command(received)
    assert (command.code, command.opaque, command.flag) == (310, -7, 0)
    assert (command.remark, command.body) == (REMARK, b"\x00\xff")
    assert (command.language, command.version) == (LanguageCode.JAVA, 407)
    codec_number = {"JSON": 0, "ROCKETMQ": 1}[name]
    assert encode_command(command, codec_number) == whole
    header = HEADERS[java_name]
    expected = sample(header.header_class, VERSIONS[version])
    assert header.decode(command.ext_fields) == expected


@both
def test_a_header_comes_back_as_it_was(header):
    assert header.decode(header.encode(COMMAND), b"body") == COMMAND
    bare = RemotingCommand(0)
    assert header.decode(header.encode(bare)) == bare


@both
def test_every_prefix_of_a_header_is_a_protocol_error(header):
    encoded = header.encode(COMMAND)
    for cut in range(len(encoded)):
        with pytest.raises(HeaderError):
            header.decode(encoded[:cut])


@both
def test_every_flipped_bit_gives_a_command_or_a_protocol_error(header):
    encoded = header.encode(COMMAND)
    for at in range(len(encoded)):
        for bit in range(8):
            flipped = bytearray(encoded)
            flipped[at] ^= 1 << bit
            try:
                read = header.decode(bytes(flipped))
            except ProtocolError:
                continue
            # What was read can be passed on.
            assert header.decode(header.encode(read)) == read


@both
def test_the_largest_and_smallest_numbers_are_kept(header):
    largest = 2**15 - 1
    for command in (
        RemotingCommand(largest, 2**31 - 1, 2**31 - 1, version=largest),
        RemotingCommand(-largest - 1, -(2**31), -(2**31), version=-largest - 1),
    ):
        assert header.decode(header.encode(command)) == command


@both
def test_a_text_that_is_no_unicode_cannot_be_sent(header):
    with pytest.raises(BadInput):
        header.encode(RemotingCommand(1, ext_fields={"a": "\ud800"}))


@both
def test_a_header_with_too_many_fields_is_refused(header):
    many = {str(number): "" for number in range(limits.MAX_EXT_FIELDS + 1)}
    with pytest.raises(HeaderError):
        header.decode(header.encode(RemotingCommand(1, ext_fields=many)))
    del many["0"]
    assert header.decode(header.encode(RemotingCommand(1, ext_fields=many))).ext_fields == many


def test_a_codec_that_nobody_knows_is_refused():
    for number in (2, 127, -1):
        with pytest.raises(HeaderError):
            decode_command((number, b"{}", b""))


def test_a_command_goes_into_a_frame_with_either_codec():
    for number in (frame.JSON_CODEC, frame.BINARY_CODEC):
        [received] = FrameSplitter().feed(encode_command(COMMAND, number))
        assert received[0] == number
        assert decode_command(received) == COMMAND
