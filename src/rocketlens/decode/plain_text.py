"""Recognizes text in a body, and its charset.

=====================================  =======================================================
charset                                condition
=====================================  =======================================================
UTF-8, UTF-16 and UTF-32 with a byte   all of it can be decoded
order mark
UTF-8                                  all of it can be decoded, and few characters are control
                                       characters
GB18030                                all of it can be decoded, it has no control characters,
                                       and nine in ten of the characters beyond ASCII in its
                                       first 64 KiB are common in Chinese (those of GB 2312)
=====================================  =======================================================

Other charsets need a rule.
"""

import codecs
import re
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before UTF-16: its mark is the first half of this one.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS: Final = bytes((*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F))
"""Without the characters of text layout, and the escape that begins colours. None of them is part
of another character in UTF-8 or GB18030."""
_MAX_CONTROL_SHARE: Final = 0.02
_GB2312: Final = re.compile(rb"[\xa1-\xa3\xb0-\xf7][\xa1-\xfe]")
_MIN_GB2312_SHARE: Final = 0.9
_SAMPLE_BYTES: Final = 64 << 10


def find_text(body: bytes) -> tuple[str, str] | None:
    """Return the text of a body and its charset; None if it is probably not text."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            try:
                return body.decode(charset), charset.removesuffix("-sig")
            except UnicodeDecodeError:
                break
    controls = len(body) - len(body.translate(None, _CONTROLS))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None if controls else _chinese(body)
    return (text, "utf-8") if controls <= _MAX_CONTROL_SHARE * len(text) else None


def _chinese(body: bytes) -> tuple[str, str] | None:
    sample = body[:_SAMPLE_BYTES]
    try:
        # The incremental decoder ignores a character that the sample cuts.
        known = codecs.getincrementaldecoder("gb18030")().decode(sample)
        others = len(known) - len(known.encode("ascii", "ignore"))
        if len(_GB2312.findall(sample)) < _MIN_GB2312_SHARE * others:
            return None
        return body.decode("gb18030"), "gb18030"
    except UnicodeDecodeError:
        return None
