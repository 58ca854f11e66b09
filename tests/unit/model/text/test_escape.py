"""Text of others is shown as it is or as an escape: no character acts, and none hides."""

import json
import sys
import unicodedata

import pytest

from rocketlens.model.text.escape import printable, safe_json

SEEN = {
    *range(0x600, 0x606),
    0x6DD,
    0x70F,
    *range(0x890, 0x892),
    0x8E2,
    0x110BD,
    0x110CD,
    *range(0x13430, 0x13440),
}
"""Format characters with a shape of their own: signs of numbers and of hieroglyphs."""
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u3164\ufe00\ufe0f\uffa0\U000e0100"
"""Letters and marks, by their category, that are shown as nothing."""


def all_that_act_or_hide():
    categories = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    found = [
        chr(number)
        for number in range(sys.maxunicode + 1)
        if number not in SEEN and unicodedata.category(chr(number)) in categories
    ]
    return [*found, *FILLERS]


def test_every_character_that_acts_or_hides_is_escaped():
    for character in all_that_act_or_hide():
        shown = printable(f"a{character}b")
        assert shown.isascii(), hex(ord(character))
        assert shown.isprintable()
        assert shown != "ab"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\t\n\r", r"\t\n\r"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("\u061c", r"\u061c"),
        ("\u200b\ufeff", r"\u200b\ufeff"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
    ],
)
def test_an_escape_is_the_one_of_python(text, shown):
    assert printable(text) == shown


def test_other_text_is_left_as_it_is():
    for text in ("plain", "支付 ünï ok", "नमस्ते", "سلام", "😀", "e\u0301", "\u00a0"):
        assert printable(text) == safe_json(text) == text
    assert printable("a\tb\nc", keep="\t\n") == "a\tb\nc"


def test_escaped_json_is_ascii_where_it_was_unsafe_and_has_the_same_value():
    unsafe = [each for each in all_that_act_or_hide() if unicodedata.category(each) != "Cs"]
    for character in unsafe:
        text = safe_json(json.dumps({"k": f"a{character}b"}, ensure_ascii=False))
        assert text.isascii(), hex(ord(character))
        assert text.isprintable()
        assert json.loads(text) == {"k": f"a{character}b"}
