"""Recognizes what a message body is: by a rule for its topic, or by looking at its bytes.

Compression is undone first. Then the body has the first of these formats that it can have:

=====================  =======================================================================
format                 taken when
=====================  =======================================================================
``java``, ``avro``     it begins with their marks (``ac ed 00 05``, ``Obj`` 01), or with that
and ``cbor``           of CBOR, ``d9 d9 f7``
``trace``              it is records of what clients did, as they send them to the trace topic
``json``, ``xml``,     it is text (:mod:`rocketlens.decode.plain_text`): an object, array or
``text``               string of JSON, an XML document, or neither
``canal``              it is a packet of messages
``hessian``            it is a map, list or object of Hessian 2, to its last byte
``thrift``             it is a struct of the binary protocol, or a message, likewise
``messagepack``        it is a map or an array, likewise
``cbor``               likewise
``protobuf``           it is a message whose fields have likely numbers, likewise
``binary``             it is none of these
=====================  =======================================================================

Formats below text have no mark, so a guess can be wrong, and says that it is one: a rule
(:mod:`rocketlens.decode.rules`) decides. The bytes are never changed.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.decode import avro, canal, cbor, json_body, messagepack, protobuf, thrift, xml_body
from rocketlens.decode.java import hessian, java_object
from rocketlens.decode.layers import unwrap
from rocketlens.decode.plain_text import find_text
from rocketlens.decode.tree import Tree, json_ready
from rocketlens.errors import BodyError, BodyTooLarge
from rocketlens.formats import trace_body
from rocketlens.formats.trace_body import TraceType
from rocketlens.model.text.sentences import Sentence

JSON: Final = "json"
XML: Final = "xml"
TEXT: Final = "text"
BINARY: Final = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBody:
    """A body as its readers see it."""

    format: str
    """Its name in the table above."""
    value: Tree = None
    """Its content, as types of :mod:`rocketlens.decode.tree`; the text itself if it is text."""
    text: str | None = None
    """The text of a body that is text, as it was stored."""
    charset: str | None = None
    """The charset that the text was read with."""
    layers: tuple[str, ...] = ()
    """The compressions that were undone, the outermost first."""
    why: str = ""
    """Why it is taken to have this format, in one line."""
    is_guess: bool = False
    """Whether another format could have had the same bytes."""
    error: str | None = None
    """Why a rule, or the format that it begins as, could not read it."""
    rule: str | None = None
    """The pattern of topics whose rule decided."""

    @property
    def is_tree(self) -> bool:
        """Return whether it has members or elements."""
        return isinstance(self.value, dict | list)

    def as_json(self) -> str | None:
        """Return what it holds as JSON; None if it is text alone, or binary.

        A body that is JSON is returned as it was stored, with its digits, escapes and spaces.
        """
        if self.format == JSON:
            return self.text
        if self.format in (TEXT, BINARY):
            return None
        return json.dumps(json_ready(self.value), ensure_ascii=False)

    def described(self) -> str:
        """Return its format and the reason for it, in one line."""
        layers = "".join(f"{each}, " for each in self.layers)
        guess = " (a guess)" if self.is_guess else ""
        failed = f"; {self.error}" if self.error else ""
        return f"{layers}{self.format}: {self.why}{guess}{failed}"


class _Guess(NamedTuple):
    name: str
    may_be: Callable[[bytes], bool]
    read: Callable[[bytes], Tree]
    why: Sentence


def _begins(mark: bytes) -> Callable[[bytes], bool]:
    return lambda body: body.startswith(mark)


def _may_be_trace(body: bytes) -> bool:
    return body.startswith(
        tuple(f"{each.value}{trace_body.FIELD_END}".encode() for each in TraceType)
    )


def _read_trace(body: bytes) -> Tree:
    """Return each record with the fields that it has; one that cannot be read is its text.

    :raises BodyError: if the body is not UTF-8.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(f"it is not UTF-8 at byte {error.start}") from error
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


_MARKED: Final = (
    _Guess(
        "java",
        _begins(java_object.MAGIC),
        java_object.read_java_object,
        Sentence("body_begins", mark="ac ed 00 05"),
    ),
    _Guess(
        "avro",
        _begins(avro.CONTAINER),
        avro.read_container,
        Sentence("body_begins", mark="Obj 01"),
    ),
    _Guess("cbor", _begins(cbor.MAGIC), cbor.read_cbor, Sentence("body_begins", mark="d9 d9 f7")),
    _Guess("trace", _may_be_trace, _read_trace, Sentence("trace_records")),
)
_UNMARKED: Final = (
    _Guess("canal", protobuf.may_be_protobuf, canal.read_canal, Sentence("canal_packet")),
    _Guess("hessian", hessian.may_be_hessian, hessian.read_hessian, Sentence("hessian_value")),
    _Guess("thrift", thrift.may_be_thrift, thrift.read_thrift, Sentence("thrift_struct")),
    _Guess(
        "messagepack",
        messagepack.may_be_messagepack,
        messagepack.read_messagepack,
        Sentence("messagepack_values"),
    ),
    _Guess("cbor", cbor.may_be_cbor, cbor.read_cbor, Sentence("cbor_values")),
    _Guess(
        "protobuf",
        protobuf.may_be_protobuf,
        protobuf.read_protobuf,
        Sentence("protobuf_fields"),
    ),
)


class _Markup(NamedTuple):
    name: str
    may_be: Callable[[str], bool]
    read: Callable[[str], Tree]
    why: Sentence


_MARKUP: Final = (
    _Markup(JSON, json_body.may_be_json, json_body.read_json, Sentence("json_document")),
    _Markup(XML, xml_body.may_be_xml, xml_body.read_xml, Sentence("xml_document")),
)


def decode_body(body: bytes) -> DecodedBody:
    """Return what a body most likely is; never fails, as at worst it is binary."""
    try:
        inner, layers = unwrap(body)
    except BodyTooLarge as error:
        return DecodedBody(format=BINARY, why=Sentence("body_compressed"), error=str(error))
    if len(inner) > limits.MAX_SHOWN_JSON_BYTES:
        return _large(inner, layers)
    failed: str | None = None
    for each in _MARKED:
        if each.may_be(inner):
            try:
                value = each.read(inner)
            except BodyError as error:
                failed = f"{each.name}: {error}"
            else:
                return DecodedBody(format=each.name, value=value, layers=layers, why=each.why)
    text_and_charset = find_text(inner)
    if text_and_charset is not None:
        return read_text(*text_and_charset, layers)
    for each in _UNMARKED:
        if each.may_be(inner):
            try:
                value = each.read(inner)
            except BodyError:
                continue
            if value:
                why = Sentence("body_bytes", count=len(inner), what=each.why)
                return DecodedBody(
                    format=each.name, value=value, layers=layers, why=why, is_guess=True
                )
    why = Sentence("no_known_format")
    return DecodedBody(format=BINARY, layers=layers, why=why, error=failed)


def text_of_body(body: bytes) -> str | None:
    """Return the text of a body that `decode_body` finds to be text, without taking that apart."""
    try:
        inner, _ = unwrap(body)
    except BodyTooLarge:
        return None
    if any(each.may_be(inner) for each in _MARKED):
        return None
    text_and_charset = find_text(inner)
    return None if text_and_charset is None else text_and_charset[0]


def read_text(text: str, charset: str, layers: tuple[str, ...] = ()) -> DecodedBody:
    """Return what a text is: JSON, XML, or neither."""
    too_large: str | None = None
    for name, may_be, read, why in _MARKUP:
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
    """Return why a body is text; filters decode millions, of a few charsets."""
    if what is None:
        return Sentence("body_in_charset", charset=charset)
    return Sentence("body_in_charset_and", charset=charset, what=what)


def _large(inner: bytes, layers: tuple[str, ...]) -> DecodedBody:
    """Return a body that is too large to take apart: as text, or binary."""
    error = f"it has over {limits.MAX_SHOWN_JSON_BYTES >> 20} MiB, and is not taken apart"
    text_and_charset = find_text(inner)
    if text_and_charset is None:
        return DecodedBody(format=BINARY, layers=layers, why=Sentence("body_not_text"), error=error)
    text, charset = text_and_charset
    why = _of_charset(charset)
    return DecodedBody(
        format=TEXT, value=text, text=text, charset=charset, layers=layers, why=why, error=error
    )
