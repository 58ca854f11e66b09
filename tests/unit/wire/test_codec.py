"""What a header is in both codecs, and how a frame names its codec."""

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, HeaderError, ProtocolError
from rocketlens.wire import frame, header_binary, header_json
from rocketlens.wire.codes import LanguageCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import decode_command, encode_command
from rocketlens.wire.frame import FrameSplitter
from tests.support.wire_samples import HEADERS, VERSIONS, all_vectors, sample

CODECS = {"JSON": header_json, "ROCKETMQ": header_binary}

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
