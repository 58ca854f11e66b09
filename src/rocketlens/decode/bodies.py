"""Recognizes the format of a message body: by a rule for its topic, or from its bytes.

Compression is undone first. Then the first format applies whose condition holds:

=====================  =======================================================================
format                 condition
=====================  =======================================================================
``java``, ``avro``     it begins with their marks (``ac ed 00 05``, ``Obj`` 01), or with that
and ``cbor``           of CBOR, ``d9 d9 f7``
``trace``              it has records of clients' actions, as clients send them to the trace topic
``json``, ``xml``,     it is text (:mod:`rocketlens.decode.plain_text`): an object, array or
``text``               string of JSON, an XML document, or neither
``canal``              it is a packet of messages
``hessian``            it is a map, list or object of Hessian 2, to its last byte
``thrift``             it is a struct of the binary protocol, or a message, likewise
``messagepack``        it is a map or an array, likewise
``cbor``               likewise
``protobuf``           it is a message whose fields have likely numbers, likewise
``binary``             otherwise
=====================  =======================================================================

Formats below text have no mark. They are guesses, are marked as such, and can be wrong; a rule
(:mod:`rocketlens.decode.rules`) decides. The bytes never change.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from rocketlens import limits
from rocketlens.decode import avro, canal, cbor, messagepack, protobuf, text_formats, thrift
from rocketlens.decode.byte_reader import DecodingWork
from rocketlens.decode.java import hessian, java_object
from rocketlens.decode.layers import unwrap
from rocketlens.decode.plain_text import find_text
from rocketlens.decode.tree import Tree, json_ready, tree_of
from rocketlens.errors import BodyError, BodyTooLarge
from rocketlens.formats import trace_body
from rocketlens.formats.trace_body import TraceType
from rocketlens.model.text.sentences import Sentence

JSON: Final = "json"
XML: Final = "xml"
TEXT: Final = "text"
BINARY: Final = "binary"

_NOT_TAKEN_APART: Final = f"it has over {limits.MAX_SHOWN_JSON_BYTES >> 20} MiB, and is not parsed"
_RECORD_VALUES: Final = 10
"""A trace record costs as much time as this many values."""


class DecodedBody(Struct, frozen=True, kw_only=True):
    """A decoded body with its format."""

    format: str
    """Its name in the table above."""
    value: Tree = None
    """Its content, as types of :mod:`rocketlens.decode.tree`; for text, the text."""
    text: str | None = None
    """The text of a text body, as it was stored."""
    charset: str | None = None
    """The charset of the text."""
    layers: tuple[str, ...] = ()
    """The compressions that were undone, the outermost first."""
    why: str = ""
    """The reason for this format, in one line."""
    is_guess: bool = False
    """Another format could have the same bytes."""
    error: str | None = None
    """Why the body could not be read by a rule, or as the format of its first bytes."""
    rule: str | None = None
    """The topic pattern of the rule that decided."""

    @property
    def is_tree(self) -> bool:
        """True if it has members or elements."""
        return isinstance(self.value, dict | list)

    def as_json(self) -> str | None:
        """Return the content as JSON; None for plain text and binary bodies.

        A JSON body is returned as it was stored, with its digits, escapes and spaces.
        """
        if self.format == JSON:
            return self.text
        if self.format in (TEXT, BINARY):
            return None
        return json.dumps(json_ready(self.value), ensure_ascii=False)

    def described(self) -> str:
        """Return the format and the reason for it, in one line."""
        layers = "".join(f"{each}, " for each in self.layers)
        guess = " (a guess)" if self.is_guess else ""
        failed = f"; {self.error}" if self.error else ""
        return f"{layers}{self.format}: {self.why}{guess}{failed}"


class Format(NamedTuple):
    """Recognizes and reads one format.

    ``read`` raises BodyError if the body is not of the format to its last byte, or is larger than
    the bounds.
    """

    may_be: Callable[[bytes], bool]
    read: Callable[[bytes, DecodingWork], Tree]
    why: Sentence
    guess: Callable[[bytes, DecodingWork], Tree] | None = None
    """Reads the body if no rule names the format; None means `read`."""


def _begins(*marks: bytes) -> Callable[[bytes], bool]:
    return lambda body: body.startswith(marks)


_TRACE_MARKS: Final = tuple(f"{each.value}{trace_body.FIELD_END}".encode() for each in TraceType)


def _read_trace(body: bytes, work: DecodingWork) -> Tree:
    """Return the fields of each record; an unreadable record as its text."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(f"it is not UTF-8 at byte {error.start}") from error
    work.spend(_RECORD_VALUES * text.count(trace_body.RECORD_END))
    work.spend(text.count(trace_body.FIELD_END))
    return [_trace_record(line) for line in text.split(trace_body.RECORD_END) if line]


def _trace_record(line: str) -> Tree:
    damage: list[str] = []
    records = trace_body.decode(line.encode("utf-8"), damage)
    if damage or not records:
        return {"unread": line.replace(trace_body.FIELD_END, " ")}
    return {
        name: value.value if isinstance(value, TraceType) else value
        for name, value in asdict(records[0]).items()
        if value not in {None, ""}
    }


_MARKED: Final[Mapping[str, Format]] = {
    "java": Format(
        _begins(java_object.MAGIC),
        java_object.read_java_object,
        Sentence("body_begins", mark="ac ed 00 05"),
    ),
    "avro": Format(
        _begins(avro.CONTAINER), avro.read_container, Sentence("body_begins", mark="Obj 01")
    ),
    "cbor": Format(_begins(cbor.MAGIC), cbor.read_cbor, Sentence("body_begins", mark="d9 d9 f7")),
    "trace": Format(_begins(*_TRACE_MARKS), _read_trace, Sentence("trace_records")),
}
_UNMARKED: Final[Mapping[str, Format]] = {
    "canal": Format(bool, canal.read_canal, Sentence("canal_packet")),
    "hessian": Format(hessian.may_be_hessian, hessian.read_hessian, Sentence("hessian_value")),
    "thrift": Format(
        thrift.may_be_thrift,
        thrift.read_thrift,
        Sentence("thrift_struct"),
        partial(thrift.read_thrift, is_guess=True),
    ),
    "messagepack": Format(
        messagepack.may_be_messagepack, messagepack.read_messagepack, Sentence("messagepack_values")
    ),
    "cbor": Format(cbor.may_be_cbor, cbor.read_cbor, Sentence("cbor_values")),
    "protobuf": Format(
        bool,
        protobuf.read_protobuf,
        Sentence("protobuf_fields"),
        partial(protobuf.read_protobuf, is_guess=True),
    ),
}
FORMATS: Final[Mapping[str, Format]] = {**_MARKED, **_UNMARKED}


def decode_body(body: bytes, work: DecodingWork | None = None) -> DecodedBody:
    """Decode a body in its most likely format, at worst as binary; never fails.

    All attempts together cost at most ``work``.
    """
    work = work or DecodingWork()
    try:
        inner, layers = unwrap(body)
        _check_size(inner)
    except BodyTooLarge as error:
        return DecodedBody(format=BINARY, why=Sentence("body_too_large"), error=str(error))
    failed: str | None = None
    is_taken_apart = len(inner) <= limits.MAX_SHOWN_JSON_BYTES
    for name, each in _MARKED.items() if is_taken_apart else ():
        if each.may_be(inner):
            try:
                value = tree_of(each.read(inner, work))
            except BodyError as error:
                failed = f"{name}: {error}"
            else:
                return DecodedBody(format=name, value=value, layers=layers, why=each.why)
    text_and_charset = find_text(inner)
    if text_and_charset is not None:
        return read_text(*text_and_charset, layers)
    for name, each in _UNMARKED.items() if is_taken_apart else ():
        if each.may_be(inner):
            try:
                value = tree_of((each.guess or each.read)(inner, work))
            except BodyError as error:
                if work.values < 0:
                    failed = failed or f"{name}: {error}"
                continue
            if value:
                why = Sentence("body_bytes", count=len(inner), what=each.why)
                return DecodedBody(format=name, value=value, layers=layers, why=why, is_guess=True)
    if not is_taken_apart:
        return DecodedBody(
            format=BINARY, layers=layers, why=Sentence("body_not_text"), error=_NOT_TAKEN_APART
        )
    why = Sentence("no_known_format")
    return DecodedBody(format=BINARY, layers=layers, why=why, error=failed)


def text_of_body(body: bytes) -> str | None:
    """Return the text of a body that `decode_body` finds to be text, without parsing it."""
    try:
        inner, _ = unwrap(body)
        _check_size(inner)
    except BodyTooLarge:
        return None
    if any(each.may_be(inner) for each in _MARKED.values()):
        return None
    text_and_charset = find_text(inner)
    return None if text_and_charset is None else text_and_charset[0]


def _check_size(inner: bytes) -> None:
    if len(inner) > limits.MAX_DECODED_BYTES:
        raise BodyTooLarge(f"it has over {limits.MAX_DECODED_BYTES >> 20} MiB, and is not decoded")


class _Markup(NamedTuple):
    name: str
    may_be: Callable[[str], bool]
    read: Callable[[str], Tree]
    why: Sentence


_MARKUP: Final = (
    _Markup(JSON, text_formats.may_be_json, text_formats.read_json, Sentence("json_document")),
    _Markup(XML, text_formats.may_be_xml, text_formats.read_xml, Sentence("xml_document")),
)


def read_text(text: str, charset: str, layers: tuple[str, ...] = ()) -> DecodedBody:
    """Decode a text as JSON, XML, or plain text."""
    too_large = _NOT_TAKEN_APART if len(text) > limits.MAX_SHOWN_JSON_BYTES else None
    for name, may_be, read, why in () if too_large else _MARKUP:
        if not may_be(text):
            continue
        try:
            value = read(text)
        except BodyTooLarge as error:
            too_large = f"{name}: {error}"
        except BodyError:
            pass
        else:
            return DecodedBody(
                format=name,
                value=value,
                text=text,
                charset=charset,
                layers=layers,
                why=_of_charset(charset, why),
            )
    return DecodedBody(
        format=TEXT,
        value=text,
        text=text,
        charset=charset,
        layers=layers,
        why=_of_charset(charset),
        error=too_large,
    )


@lru_cache(maxsize=64)
def _of_charset(charset: str, what: Sentence | None = None) -> Sentence:
    """Return the reason for a text; cached, since filters decode millions of bodies."""
    if what is None:
        return Sentence("body_in_charset", charset=charset)
    return Sentence("body_in_charset_and", charset=charset, what=what)
