"""Rules that give the format of bodies by topic, read from a TOML file.

::

    registry = "https://user@registry:8081"
    registry_password_file = "registry.secret"  # or $ROCKETLENS_REGISTRY_PASSWORD
    registry_ca = "ca.pem"                 # signs its certificate, unless the system trusts it

    [[body]]
    topic = "events-*"
    format = "registry"                    # bodies name a schema: Avro, Protocol Buffers or JSON

    [[body]]
    topic = "order-*"                      # a pattern with * and ?; the first match applies
    format = "protobuf"
    descriptor_set = "orders.desc"         # beside this file; made by protoc --include_imports
    message = "shop.v2.Order"

    [[body]]
    topic = "clicks"
    format = "avro"
    schema = "click.avsc"                  # without it, as "registry", if there is one

    [[body]]
    topic = "legacy-*"
    charset = "gbk"                        # of text; JSON and XML are recognized as always

The rule for a copy (a retry, a dead letter, a delayed message) is that of the topic to which the
message was first sent. A body that its rule cannot read is decoded without the rule, with the
reason.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.decode import avro, bodies
from rocketlens.decode.bodies import DecodedBody, decode_body, read_text
from rocketlens.decode.byte_reader import DecodingWork
from rocketlens.decode.layers import unwrap
from rocketlens.decode.protobuf import read_protobuf
from rocketlens.decode.tree import Tree, tree_of
from rocketlens.errors import BadInput, BodyError, BodyTooLarge
from rocketlens.model.life import origin_topics
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence

if TYPE_CHECKING:
    from rocketlens.decode.schema_registry import SchemaRegistry

_Reader = Callable[[bytes, DecodingWork], Tree | DecodedBody]

REGISTRY: Final = "registry"
FORMATS: Final = tuple(sorted({*bodies.FORMATS, "binary", "text", REGISTRY} - {"trace"}))
"""The formats that a rule can name."""
_KEYS: Final = frozenset({"topic", "format", "charset", "schema", "descriptor_set", "message"})


class BodyRule(Struct, frozen=True):
    """The format of the bodies of topics that match a pattern; ``read`` reads them."""

    topic: str
    format: str | None = None
    charset: str = "utf-8"
    read: _Reader | None = None

    def decode(self, body: bytes) -> DecodedBody:
        """Decode a body by this rule; if it does not fit, without it, with the reason."""
        work = DecodingWork()
        try:
            inner, layers = unwrap(body)
            decoded = self._decode(inner, work)
        except (BodyError, UnicodeDecodeError) as error:
            return replace(decode_body(body, work), error=f"rule for {self.topic}: {error}")
        why = Sentence("body_by_rule", topic=self.topic)
        return replace(decoded, layers=layers, why=why, rule=self.topic)

    def _decode(self, inner: bytes, work: DecodingWork) -> DecodedBody:
        if self.format == bodies.BINARY:
            return DecodedBody(format=bodies.BINARY)
        bound = limits.MAX_DECODED_BYTES if self.read is None else limits.MAX_SHOWN_JSON_BYTES
        if len(inner) > bound:
            raise BodyTooLarge(f"it has over {bound} bytes")
        if self.read is None:
            return read_text(inner.decode(self.charset), self.charset)
        value = self.read(inner, work)
        if isinstance(value, DecodedBody):
            return value
        return DecodedBody(format=str(self.format), value=tree_of(value))


class BodyRules:
    """An ordered list of rules; the first one that matches applies."""

    def __init__(self, rules: Sequence[BodyRule] = ()) -> None:
        self._rules: Final = tuple(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> "BodyRules":
        """Read a file of rules.

        :raises BadInput: if the file, or a file that it names, cannot be read, or a rule is wrong;
            the message says which.
        """
        path = Path(path)
        try:
            declared = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"rules for bodies, {path}: {error}") from error
        registry = None
        if others := declared.keys() - {"body"}:
            from rocketlens.decode.schema_registry import KEYS, SchemaRegistry

            if unknown := ", ".join(sorted(others - set(KEYS))):
                raise BadInput(f"{path}: unknown {unknown}: give body, {', '.join(KEYS)}")
            registry = SchemaRegistry(declared, path)
        reader = _RuleReader(path, registry)
        return cls([reader.rule(each) for each in declared.get("body", [])])

    def decode(self, message: MessageExt) -> DecodedBody:
        return self.decode_body(message.topic, message.properties, message.body, message.body_error)

    def decode_body(
        self, topic: str, properties: Mapping[str, str], body: bytes, error: str | None = None
    ) -> DecodedBody:
        """Decode a decompressed body of a topic.

        ``error``: why it could not be decompressed; then the body is as it was stored.
        """
        if error is not None:
            return DecodedBody(format=bodies.BINARY, why=Sentence("body_as_stored"), error=error)
        topics = [topic, *origin_topics(topic, properties)] if self._rules else ()
        for rule in self._rules:
            if any(fnmatchcase(each, rule.topic) for each in topics):
                return rule.decode(body)
        return decode_body(body)


class _RuleReader:
    def __init__(self, path: Path, registry: "SchemaRegistry | None") -> None:
        self._path: Final = path
        self._registry: Final = registry

    def rule(self, declared: Any) -> BodyRule:
        if not isinstance(declared, dict) or not isinstance(declared.get("topic"), str):
            raise self._error("a rule without topic")
        topic = declared["topic"]
        for name, value in declared.items():
            if name not in _KEYS:
                raise self._error(f"{topic}: unknown {name}: give {', '.join(sorted(_KEYS))}")
            if not isinstance(value, str):
                raise self._error(f"{topic}: {name} must be text")
        name = declared.get("format")
        if name is not None and name not in FORMATS:
            raise self._error(f"{topic}: format {name!r}: give one of {', '.join(FORMATS)}")
        charset = declared.get("charset", "utf-8")
        try:
            "".encode(charset)
        except LookupError:
            raise self._error(f"{topic}: charset {charset!r} is not known") from None
        try:
            return BodyRule(topic, name, charset, self._reader(name, declared))
        except BodyError as error:
            raise self._error(f"{topic}: {error}") from error

    def _reader(self, name: str | None, declared: Mapping[str, str]) -> _Reader | None:
        if name == "protobuf":
            if "descriptor_set" not in declared:
                return read_protobuf
            if "message" not in declared:
                raise self._error(f"{declared['topic']}: a descriptor set needs message, a name")
            from rocketlens.decode.descriptors import message_schema

            schema = message_schema(self._file(declared["descriptor_set"]), declared["message"])
            return partial(read_protobuf, schema=schema)
        if name == "avro" and "schema" in declared:
            text = self._file(declared["schema"])
            return partial(avro.read_body, schema=avro.parse_schema(text))
        if name in ("avro", REGISTRY) and self._registry is not None:
            return self._registry.decode
        if name == REGISTRY:
            raise self._error(f"{declared['topic']}: format registry needs the address registry")
        return None if name in (None, "text", "binary") else bodies.FORMATS[name].read

    def _file(self, name: str) -> bytes:
        path = self._path.parent / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._error(f"{path}: {error}") from error

    def _error(self, what: str) -> BadInput:
        return BadInput(f"rules for bodies, {self._path}: {what}")
