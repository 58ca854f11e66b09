"""A real JDK judges :mod:`rocketlens.model.text.java`: every malformed byte string, the same text.

`python -m tests.peer.test_java_text JAVA` writes the fixed vectors of the unit tests anew.
"""

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlens.model.text import java
from tests.support.effort import sized

PROGRAM = Path(__file__).parent / "java" / "JavaText.java"
VECTORS = Path(__file__).parents[1] / "unit" / "model" / "text" / "java_text_vectors.txt"

# Bytes at which the decoder's tests turn, so that short random strings hit every branch.
EDGES = bytes.fromhex(
    "00 41 7F 80 8F 90 9F A0 BF C0 C1 C2 C3 DF E0 E4 EC ED EE EF F0 F1 F3 F4 F5 F8 FF"
)
NUMBERS = [
    *["0", "7", "+7", "-7", "-0", "+", "-", "", " 1", "1 ", "1_0", "0x1", "--1", "+-1", "1.0"],
    *["2147483647", "2147483648", "-2147483648", "-2147483649", "0" * 40 + "18", "9" * 30],
    *["\u0663", "-\u0967\u0968", "\uff11\uff18", "\U0001d7d8", "\u00b2", "\u4e09"],
]


def ask_java(java_command, strings):
    """UTF-16 text, hashCode and parseInt (None where it throws) of each byte string."""
    asked = b"".join(struct.pack(">i", len(one)) + one for one in strings)
    done = subprocess.run(
        [java_command, str(PROGRAM)], input=asked, capture_output=True, check=True
    )
    answers = []
    cursor = 0
    for _ in strings:
        (units,) = struct.unpack_from(">i", done.stdout, cursor)
        cursor += 4
        text = done.stdout[cursor : cursor + 2 * units].decode("utf-16-be")
        cursor += 2 * units
        hash_code, is_number, number = struct.unpack_from(">i?i", done.stdout, cursor)
        cursor += 9
        answers.append((text, hash_code, number if is_number else None))
    assert cursor == len(done.stdout)
    return answers


def hard_strings(count, seed):
    """Random strings of edge bytes, of any bytes, and of good text with one byte changed."""
    draw = random.Random(seed)
    for index in range(count):
        length = draw.randrange(13)
        if index % 3 == 0:
            yield bytes(draw.choices(EDGES, k=length))
        elif index % 3 == 1:
            yield draw.randbytes(length)
        else:
            text = "".join(
                chr(draw.choice([0x41, 0xE9, 0x4E2D, 0xFFFD, 0x1F600])) for _ in range(5)
            )
            changed = bytearray(text.encode())
            changed[draw.randrange(len(changed))] = draw.choice(EDGES)
            yield bytes(changed)


def every_digit():
    """All 65536 units of the plane that parseInt knows, surrogates aside."""
    for code_point in range(0x10000):
        if not 0xD800 <= code_point < 0xE000:
            yield chr(code_point).encode()


@pytest.mark.peer
def test_hard_strings_decode_hash_and_parse_as_in_the_jdk(jdk):
    strings = [
        *hard_strings(sized(40_000, 300_000), seed=1),
        *every_digit(),
        *(one.encode() for one in NUMBERS),
    ]
    answers = ask_java(jdk.java, strings)
    for encoded, (text, hash_code, number) in zip(strings, answers, strict=True):
        assert java.decode_utf8(encoded) == text, encoded.hex()
        assert java.string_hash(text) == hash_code, encoded.hex()
        hashed = java.utf8_string_hash(encoded, 0, len(encoded), 0)
        assert hashed == hash_code & 0xFFFFFFFF, encoded.hex()
        parsed = java.utf8_parse_int(encoded, 0, len(encoded))
        assert parsed == (java.NOT_AN_INTEGER if number is None else number), encoded.hex()


def write_vectors(java_command):
    """Ask this JDK about a fixed choice of strings and keep its answers."""
    strings = [
        *(bytes([first, second]) for first in EDGES for second in EDGES),
        *hard_strings(600, seed=2),
        *(one.encode() for one in NUMBERS),
    ]
    lines = ["# bytes, UTF-16 units, hashCode, parseInt (- where it throws): what JDK 17 answered"]
    for encoded, (text, hash_code, number) in zip(
        strings, ask_java(java_command, strings), strict=True
    ):
        units = text.encode("utf-16-be").hex()
        lines.append(f"{encoded.hex()}\t{units}\t{hash_code}\t{'-' if number is None else number}")
    VECTORS.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    write_vectors(sys.argv[1])
