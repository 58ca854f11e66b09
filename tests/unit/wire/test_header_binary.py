"""Headers in RocketMQ's binary form."""

import re
import struct

import pytest

from rocketlens.errors import BadInput, HeaderError
from rocketlens.wire import header_binary, header_json
from rocketlens.wire.command import RemotingCommand


def test_the_layout_table_is_what_the_structs_say():
    rows = re.findall(r"^(\d+)(?:\+n)? +i(\d+)", header_binary.__doc__, re.MULTILINE)
    bits = {8: "b", 16: "h", 32: "i"}
    assert ">" + "".join(bits[int(size)] for _, size in rows[:-1]) == header_binary.HEAD.format
    offsets = [int(offset) for offset, _ in rows]
    assert offsets[-1] == header_binary.HEAD.size
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
        header_binary.decode(lie)


def test_a_value_of_no_bytes_is_empty_and_a_remark_of_none_absent():
    read = header_binary.decode(binary_header(ext=entry(b"i", b"")))
    assert read.ext_fields == {"i": ""}
    assert read.remark is None


def test_of_a_binary_field_that_comes_twice_the_last_counts():
    # As a signing Java client of 5.x sends them.
    ext = entry(b"a", b"1") + entry(b"b", b"2") + entry(b"a", b"3")
    assert header_binary.decode(binary_header(ext=ext)).ext_fields == {"a": "3", "b": "2"}


def test_malformed_utf_8_in_a_binary_header_is_read_as_java_reads_it():
    read = header_binary.decode(binary_header(ext=entry(b"a", b"p\xffg")))
    assert read.ext_fields == {"a": "p\ufffdg"}


def test_a_code_over_16_bits_does_not_fit_a_binary_header():
    with pytest.raises(BadInput):
        header_binary.encode(RemotingCommand(200050))
    assert header_json.decode(header_json.encode(RemotingCommand(200050))).code == 200050
