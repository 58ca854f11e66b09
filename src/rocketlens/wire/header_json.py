"""The JSON header of a command.

================== ======= =====================================================================
name               type    notes
================== ======= =====================================================================
code               i32
extFields          object  text to text; absent when empty
flag               i32     bit 0 response, bit 1 one-way
language           text    a name of LanguageCode; others are read as OTHER
opaque             i32
remark             text    absent when there is none
serializeType-     text    "JSON"; not read, because the frame names the codec
CurrentRPC
version            i32
================== ======= =====================================================================

Members come in any order, and unknown ones are ignored. As in RocketMQ's JSON library, numbers are
accepted as text, and numbers and booleans as text of ``extFields``; nulls count as absent.

Drawback: slow. Reading a header of 380 bytes takes about 3 µs here. Source: ``RemotingCommand``,
``RemotingSerializable``.
"""

from typing import Any, Final

from rocketlens import limits
from rocketlens.errors import BadInput, HeaderError
from rocketlens.model.text.java import decode_utf8
from rocketlens.model.text.json_dialect import FAST_DECODER, LONE_SURROGATE, STRICT_DECODER, quote
from rocketlens.wire.codes import LANGUAGE_OF_NUMBER, LanguageCode
from rocketlens.wire.command import RemotingCommand

_LANGUAGES: Final = {language.name: language for language in LanguageCode}
_LANGUAGE_NAMES: Final = {language: language.name for language in LanguageCode}
_SMALLEST: Final = -(2**31)
_decode: Final = FAST_DECODER.raw_decode


def decode(header: bytes, body: bytes = b"") -> RemotingCommand:
    """Read a header; raise HeaderError, and no other error, if the bytes are invalid."""
    try:
        text = header.decode()
        top, end = _decode(text)
        code, opaque, flag, version = top["code"], top["opaque"], top["flag"], top["version"]
        language = _LANGUAGES[top["language"]]
        remark = top.get("remark")
        ext_fields = top.get("extFields") or {}
        # Raises a TypeError unless all values are texts.
        "".join(ext_fields.values())
        texts = 1 + (remark is not None) + (top.get("serializeTypeCurrentRPC") == "JSON")
        quotes = text.count('"')
        if '\\"' in text and "\\\\" not in text:
            quotes -= text.count('\\"')
        if (
            # Each name and each text has two quotes. If there are more, a name occurs twice, or
            # an unknown member has a text.
            quotes == 2 * (len(top) + texts) + 4 * len(ext_fields)
            and end == len(text)
            and len(ext_fields) <= limits.MAX_EXT_FIELDS
            and (remark is None or type(remark) is str)
            and type(code) is type(opaque) is type(flag) is type(version) is int
            and 0 <= code | opaque | flag | version <= limits.MAX_INT
            # A lone surrogate can only be written as an escape.
            and "\\ud" not in text
            and "\\uD" not in text
        ):
            return RemotingCommand(code, opaque, flag, remark, ext_fields, body, language, version)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        pass
    return _decode_slowly(header, body)


def encode(command: RemotingCommand) -> bytes:
    """Write the header of ``command``; raise BadInput if a text cannot be encoded as UTF-8."""
    code, opaque, flag, remark, ext_fields, _body, language, version = command
    ext = f',"extFields":{{{_members(ext_fields)}}}' if ext_fields else ""
    remark_member = "" if remark is None else f',"remark":{quote(remark)}'
    text = (
        f'{{"code":{code}{ext},"flag":{flag},"language":"{_LANGUAGE_NAMES[language]}",'
        f'"opaque":{opaque}{remark_member},"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    )
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"a header with text that is not valid Unicode: {error}") from None


def _members(ext_fields: dict[str, str]) -> str:
    """Write the members of an object; most answers have no character that must be escaped."""
    members = ",".join([f'"{name}":"{value}"' for name, value in ext_fields.items()])
    if members.isprintable() and members.count('"') == 4 * len(ext_fields) and "\\" not in members:
        return members
    return ",".join([f"{quote(name)}:{quote(value)}" for name, value in ext_fields.items()])


def _decode_slowly(header: bytes, body: bytes) -> RemotingCommand:
    """Read a header that RocketMQ does not write, but its JSON library reads."""
    try:
        top = STRICT_DECODER.decode(decode_utf8(header))
        if type(top) is not dict:
            raise ValueError("not one JSON object")  # noqa: TRY301 - as for other errors
        remark = top.get("remark")
        return RemotingCommand(
            _number(top.get("code")),
            _number(top.get("opaque")),
            _number(top.get("flag")),
            None if remark is None else _text(remark),
            _fields(top.get("extFields")),
            body,
            _language(top.get("language")),
            _number(top.get("version")),
        )
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"header: {str(error)[:200] or 'nested too deep'}") from None


def _fields(ext_fields: Any) -> dict[str, str]:
    if ext_fields is None:
        return {}
    if type(ext_fields) is not dict:
        raise ValueError("extFields is not an object")
    if len(ext_fields) > limits.MAX_EXT_FIELDS:
        raise ValueError(f"{len(ext_fields)} extFields, {limits.MAX_EXT_FIELDS} allowed")
    return {_text(name): _text(value) for name, value in ext_fields.items() if value is not None}


def _text(value: Any) -> str:
    if type(value) is str:
        if LONE_SURROGATE.search(value):
            raise ValueError("a lone surrogate")
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in {int, float}:
        return str(value)
    raise ValueError(f"{type(value).__name__} where a text belongs")


def _number(value: Any) -> int:
    if value is None:
        return 0
    if type(value) is str and len(value) <= 11 and value.isascii():
        value = int(value)
    if type(value) is not int or not _SMALLEST <= value <= limits.MAX_INT:
        raise ValueError("expected a number of 32 bits")
    return value


def _language(value: Any) -> LanguageCode:
    if value is None:
        # RocketMQ's default for a missing member.
        return LanguageCode.JAVA
    if type(value) is str:
        return _LANGUAGES.get(value, LanguageCode.OTHER)
    return (
        LANGUAGE_OF_NUMBER.get(value, LanguageCode.OTHER)
        if type(value) is int
        else LanguageCode.OTHER
    )
