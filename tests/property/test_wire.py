"""Whatever comes over a connection: events or a protocol error, and the same however it is cut."""

import contextlib
import itertools
import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import CommandBodyError, FieldError, ProtocolError
from rocketlens.model.text.json_dialect import dumps, loads
from rocketlens.wire import frame, header_json
from rocketlens.wire.codes import LanguageCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import Connection, ConnectionFailed
from rocketlens.wire.declare import read_body, write_body
from tests.support import binary_header
from tests.support.binary_header import encode_command
from tests.support.wire_samples import CLASSES, COMMANDS, VERSIONS, all_vectors, bodies

I32 = st.integers(-(2**31), 2**31 - 1)
I16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

COMMAND_VALUES = st.builds(
    RemotingCommand,
    code=I16,
    opaque=I32,
    flag=I32,
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.dictionaries(TEXT, TEXT, max_size=6),
    body=st.binary(max_size=64),
    language=st.sampled_from(LanguageCode),
    version=I16,
)
CODECS = st.sampled_from([frame.JSON_CODEC, frame.BINARY_CODEC])

FRAMES = [bytes.fromhex(words[2]) for _, words in all_vectors("frame")]
SHORT_FRAMES = [one for one in FRAMES if len(one) < 200] + [
    encode_command(RemotingCommand(33, 5, 0, None, {"offset": "4711"}, b"body"), number)
    for number in (frame.JSON_CODEC, frame.BINARY_CODEC)
]
EDGES = [0, 1, 3, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def events_of(chunks):
    """What a server sees, in a form that can be compared."""
    connection = Connection()
    return [
        (type(event).__name__, str(event.error)) if isinstance(event, ConnectionFailed) else event
        for chunk in chunks
        for event in connection.receive(chunk)
    ]


def cut(stream, cuts):
    bounds = [0, *sorted(min(each, len(stream)) for each in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(bounds)]


@given(COMMAND_VALUES, CODECS)
def test_any_command_comes_back_as_it_was(command, codec_number):
    header = header_json if codec_number == frame.JSON_CODEC else binary_header
    assert header.decode(header.encode(command), command.body) == command


@given(
    st.lists(st.tuples(COMMAND_VALUES, CODECS), max_size=4),
    st.binary(max_size=12),
    st.lists(st.integers(0, 1000), max_size=12),
)
def test_any_cut_gives_the_same_events(commands, rest, cuts):
    stream = b"".join(encode_command(command, number) for command, number in commands) + rest
    assert events_of(cut(stream, cuts)) == events_of([stream])
    assert events_of([stream[at : at + 1] for at in range(len(stream))]) == events_of([stream])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_as_it_was_written(value):
    assert loads(dumps(value), CommandBodyError) == value


@given(
    st.binary(max_size=200) | TEXT.map(str.encode) | JSON.map(lambda value: dumps(value).encode())
)
def test_anything_for_a_header_or_body_is_read_or_a_protocol_error(content):
    for read in (header_json.decode, binary_header.decode):
        try:
            command = read(content)
        except ProtocolError:
            continue
        for known in COMMANDS.values():
            for header in (known.request, known.response):
                with contextlib.suppress(FieldError):
                    header.decode(command.ext_fields)
    for cls in {type(body) for body in bodies()}:
        with contextlib.suppress(CommandBodyError):
            read_body(cls, content)


@given(st.text(alphabet='{}[]:,"0123456789ab\\ue.-+ntf', max_size=60))
def test_any_json_like_text_is_read_or_a_protocol_error(text):
    with contextlib.suppress(CommandBodyError):
        loads(text, CommandBodyError)


def mutated(draw, frames):
    """One or two frames with a few changes of the kinds that happen, or are made on purpose."""
    stream = bytearray(draw.choice(frames))
    if draw.random() < 0.3:
        stream += draw.choice(frames)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(stream))
        match draw.randrange(7):
            case 0:
                stream[at] ^= 1 << draw.randrange(8)
            case 1:
                stream[at] = draw.randrange(256)
            case 2:
                del stream[at : at + draw.randrange(1, 9)]
            case 3:
                stream[at:at] = draw.randbytes(draw.randrange(1, 9))
            case 4:
                stream[at : at + 4] = draw.choice(EDGES).to_bytes(4)
            case 5:
                stream[0:4] = (len(stream) - 4).to_bytes(4)
            case 6:
                other = draw.choice(frames)
                stream[at : at + 8] = other[at : at + draw.randrange(1, 16)]
        if not stream:
            stream += b"\x00"
    return bytes(stream)


def feed_mutated_frames(count, seed, frames):
    """Feed each mutated stream in three ways; give how many failed and how many did not."""
    draw = random.Random(seed)
    failed = 0
    for number in range(count):
        stream = mutated(draw, frames)
        whole = events_of([stream])
        single = events_of([stream[at : at + 1] for at in range(len(stream))])
        chunks = events_of(cut(stream, [draw.randrange(len(stream) + 1) for _ in range(3)]))
        assert whole == single == chunks, f"seed={seed} number={number} {stream.hex()}"
        failed += (
            bool(whole) and isinstance(whole[-1], tuple) and whole[-1][0] == "ConnectionFailed"
        )
    return failed


def test_five_thousand_mutated_frames_give_events_or_a_protocol_error():
    failed = feed_mutated_frames(4_000, 1, SHORT_FRAMES) + feed_mutated_frames(1_000, 2, FRAMES)
    assert 1_000 < failed < 4_500


@pytest.mark.slow
def test_a_million_mutated_frames_give_events_or_a_protocol_error_in_little_memory():
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failed = feed_mutated_frames(1_000_000, 3, SHORT_FRAMES)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert 200_000 < failed < 900_000
    assert grown_kib < 32 * 1024


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_bodies_of_the_real_rocketmq_are_read_or_an_error(version):
    draw = random.Random(4)
    written = [(words[0], words[1]) for each, words in all_vectors("body") if each == version]
    for _ in range(3_000):
        java_name, hexadecimal = draw.choice(written)
        content = mutated(draw, [bytes.fromhex(hexadecimal)])
        try:
            made = read_body(CLASSES[java_name], content)
        except CommandBodyError:
            continue
        assert read_body(CLASSES[java_name], write_body(made)) == made
