"""Whatever a broker accepts as a body costs little to decode, or is refused with a reason.

Work is counted and not timed: calls of functions (of Python and of C, some 0.1 us each), the bytes
that decompressors read, and the bytes of memory that are in use at once.
"""

import gzip
import struct
import sys
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from rocketlens.decode import bodies, layers
from rocketlens.decode.bodies import FORMATS, decode_body, text_of_body
from rocketlens.decode.java import java_object
from rocketlens.decode.rules import BodyRule
from tests.support.effort import sized

LARGEST = 4 << 20
"""RocketMQ: ``maxMessageSize``."""
UNPACKED = 64 << 20
"""The largest body that RocketMQ's own compression may hold."""
MAX_CALLS = 1_000_000
MAX_MEMORY = 64 << 20


def filled(begin, unit, end=b"", size=LARGEST):
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


def gzip_members(size):
    member = gzip.compress(b"a")
    return member * (size // len(member))


def nested_protobuf(inner):
    for _ in range(90):
        length, number = b"", len(inner)
        while True:
            length += bytes([number & 0x7F | (0x80 if number > 0x7F else 0)])
            number >>= 7
            if not number:
                break
        inner = b"\x0a" + length + inner
    return inner


def java_chain():
    """Return a few classes each of which extends the one before, and many objects of the last."""
    classes, handle = 6_000, 0x7E0000
    chain = [b"vr\x00\x01a" + bytes(8) + b"\x02\x00\x00xp"]
    for number in range(1, classes):
        above = struct.pack(">i", handle + 2 * number - 2)
        chain.append(b"vr\x00\x01a" + bytes(8) + b"\x02\x00\x00xq" + above)
    begin = java_object.MAGIC + b"".join(chain)
    return filled(begin, b"sq" + struct.pack(">i", handle + 2 * classes - 2))


def hessian_keys():
    """Return a long list that names the members of a map."""
    members = filled(b"H", b"Q\x91\x91", b"Z", LARGEST - 40_000)
    return b"X\x92" + filled(b"W", b"\x91", b"Z", 30_000) + members


def shared_text(text=b"a" * 60_000):
    """Return Java texts that are one, and refer to the first."""
    first = b"\xac\xed\x00\x05t" + struct.pack(">H", len(text)) + text
    return filled(first, b"q\x00\x7e\x00\x00", size=len(first) + 5 * 39_000)


def avro_container(schema, blocks):
    def long(number):
        number, out = number << 1, b""
        while number > 0x7F:
            out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
        return out + bytes([number])

    held = long(1) + long(11) + b"avro.schema" + long(len(schema)) + schema + long(0)
    return filled(b"Obj\x01" + held + bytes(16), blocks)


NULLS = b'{"type":"array","items":"null"}'
NULL_BLOCK = b"\x02\x14" + b"\x80" * 8 + b"\x02\x00" + bytes(16)
WORST = {
    "gzip of zeros": lambda: gzip.compress(bytes(UNPACKED), 1),
    "gzip of many members": lambda: gzip_members(LARGEST),
    "gzip in gzip": lambda: gzip.compress(gzip.compress(gzip.compress(bytes(UNPACKED)))),
    "zlib of zeros": lambda: zlib.compress(bytes(UNPACKED), 1),
    "zstd of zeros": lambda: zstandard.ZstdCompressor().compress(bytes(UNPACKED)),
    "lz4 of zeros": lambda: lz4.frame.compress(bytes(UNPACKED)),
    "control characters": lambda: b"\x01" * UNPACKED,
    "control characters at the end": lambda: filled(b"", b"a", b"\x01" * 100_000),
    "wide text": lambda: filled(b"", b"a", "😀".encode(), UNPACKED),
    "wide text to the bound": lambda: filled(b"", b"a", "😀".encode(), 8 << 20),
    "Chinese": lambda: filled(b"", "订".encode("gb18030"), b"", 8 << 20),
    "Chinese that ends": lambda: filled(b"", "订".encode("gb18030"), b"\xff\xff"),
    "UTF-16": lambda: b"\xff\xfe" + "订".encode("utf-16-le") * (LARGEST // 2 - 2),
    "JSON numbers": lambda: filled(b"[", b"1,", b"1]"),
    "JSON texts": lambda: filled(b"[", b'"ab",', b"1]"),
    "JSON lists": lambda: filled(b"[", b"[],", b"1]"),
    "JSON objects": lambda: filled(b"[", b'{"a":{}},', b"1]", 9 * 95_000),
    "JSON, deep": lambda: b"[" * (LARGEST // 2) + b"]" * (LARGEST // 2),
    "JSON that ends": lambda: filled(b"[", b"[],", b"x"),
    "XML elements": lambda: filled(b"<a>", b"<b/>", b"</a>"),
    "XML elements to the bound": lambda: filled(b"<a>", b"<b/>", b"</a>", 4 * 199_000),
    "XML texts": lambda: filled(b"<a>", b"x<!---->", b"</a>"),
    "XML attributes": lambda: (
        b"<a " + b" ".join(b'a%d=""' % number for number in range(300_000)) + b"/>"
    ),
    "traces": lambda: filled(b"", b"Pub\x01\x02"),
    "traces of long records": lambda: filled(b"Pub", b"\x01a", b"\x02"),
    "CBOR numbers": lambda: filled(b"\x9a" + struct.pack(">I", LARGEST), b"\x01"),
    "CBOR lists": lambda: filled(b"\x9f", b"\x80", b"\xff"),
    "CBOR texts in parts": lambda: filled(b"\x81\x7f", b"\x60", b"\xff"),
    "CBOR patterns": lambda: filled(b"\x9f", b"\xd8\x23\x78\xff" + b"(a|b)" * 51, b"\xff"),
    "CBOR fractions": lambda: (
        b"\x81\xd8\x1e\x82" + 2 * (b"\xc2\x5a\x00\x1f\xff\x00" + b"\xfb" * 0x1FFF00)
    ),
    "MessagePack lists": lambda: filled(b"\xdd" + struct.pack(">I", LARGEST), b"\x90"),
    "MessagePack maps": lambda: filled(b"\xdd" + struct.pack(">I", LARGEST), b"\x81\x01\x90"),
    "Hessian numbers": lambda: filled(b"W", b"\x91", b"Z"),
    "Hessian maps": lambda: filled(b"W\xd4", b"HZ", b"Z"),
    "Hessian text": lambda: filled(b"W", b"R\xff\xff" + b"\xc3\xa9" * 0xFFFF, b"\x00Z"),
    "Hessian names": hessian_keys,
    "Thrift structs": lambda: (
        b"\x0f\x00\x01\x0c" + struct.pack(">i", LARGEST - 8) + bytes(LARGEST - 8)
    ),
    "Protocol Buffers": lambda: filled(b"", b"\x08\x01"),
    "Protocol Buffers in others": lambda: filled(b"", b"\x0a\x02\x08\x01"),
    "Protocol Buffers, deep": lambda: nested_protobuf(filled(b"", b"a", b"\x01", LARGEST - 1_000)),
    "Java nulls": lambda: filled(java_object.MAGIC, b"p"),
    "Java resets": lambda: filled(java_object.MAGIC, b"y"),
    "Java numbers": lambda: filled(
        java_object.MAGIC
        + b"ur\x00\x02[I" + bytes(8) + b"\x02\x00\x00xp"
        + struct.pack(">i", 10**6),
        bytes(4),
    ),
    "Java classes": java_chain,
    "Java texts": shared_text,
    "Avro nulls": lambda: avro_container(NULLS, NULL_BLOCK),
    "Avro blocks": lambda: avro_container(b'"null"', bytes(18)),
    "Avro schema": lambda: avro_container(b'["null"' + b',"null"' * 500_000 + b"]", bytes(18)),
}  # fmt: skip
"""Each is made when it is asked for: together they are 300 MB."""
NO_FORMAT = {"Chinese that ends", "control characters at the end"}
"""What has no known format, and was read as far as that needs."""
OF_RULES = {name: BodyRule("t", name, read=each.read) for name, each in FORMATS.items()}


def check(decode, body, monkeypatch):
    """Decode twice: count memory, and then calls and the bytes that zlib reads."""
    tracemalloc.start()
    decoded = decode(body)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    calls = read = 0
    make = zlib.decompressobj

    class Counting:
        def __init__(self, window):
            self._own = make(window)

        def decompress(self, data, size):
            nonlocal read
            read += len(data)
            return self._own.decompress(data, size)

        def __getattr__(self, name):
            return getattr(self._own, name)

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in {"call", "c_call"}

    monkeypatch.setattr(layers.zlib, "decompressobj", Counting)
    sys.setprofile(count)
    try:
        decode(body)
    finally:
        sys.setprofile(None)
    assert memory < MAX_MEMORY
    assert calls < MAX_CALLS
    # Steps of 16 KiB: what a member of gzip leaves is read again.
    assert read < 2 * len(body) + (16 << 20)
    return decoded


@pytest.mark.parametrize("name", WORST)
def test_the_worst_body_is_decoded_within_bounds_or_refused_with_a_reason(name, monkeypatch):
    body = WORST[name]()
    decoded = check(decode_body, body, monkeypatch)
    if decoded.format == bodies.BINARY:
        assert decoded.error or name in NO_FORMAT
    assert decoded.text == text_of_body(body)


WRONG = ("control characters at the end", "Java classes", "Avro blocks")


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (rule, name)
        for number, rule in enumerate(OF_RULES)
        for name in sized((WRONG[number % len(WRONG)],), WRONG)
    ],
)
def test_a_rule_with_a_wrong_format_costs_no_more(rule, name, monkeypatch):
    check(OF_RULES[rule].decode, WORST[name](), monkeypatch)


@pytest.mark.parametrize("name", ["Java texts", "Hessian names"])
def test_what_is_decoded_of_shared_values_can_be_written(name):
    assert len(decode_body(WORST[name]()).as_json() or "") < MAX_MEMORY
