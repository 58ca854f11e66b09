"""Schemas of Protocol Buffers from descriptors, which compilers and registries write.

The package ``protobuf`` reads and links descriptor files. `read_protobuf` reads the messages: the
package has no bound on the memory for a message, writes 64-bit numbers as text in JSON, and drops
fields that a schema does not have. Those messages of ``google.protobuf`` that have a special JSON
form are written by the package.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from rocketlens.decode.protobuf import ProtobufField, Schema
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError
from rocketlens.model.arrow import package

_WITH_JSON: Final = {
    f"google/protobuf/{each}.proto": f"{each}_pb2"
    for each in ("duration", "field_mask", "struct", "timestamp", "wrappers")
}
"""Files whose messages have a special JSON form, with their modules."""
_KINDS: Final = (
    *("", "double", "float", "int", "uint", "int", "fixed64", "fixed32", "bool", "text"),
    *("", "", "bytes", "uint", "int", "sfixed32", "sfixed64", "zigzag", "zigzag"),
)
"""Kinds of fields by their types in descriptor.proto; groups and messages have none."""


def _protobuf(module: str) -> Any:
    return package(f"google.protobuf.{module}", "decode", "a schema of Protocol Buffers")


def message_schema(descriptor_set: bytes, name: str) -> Schema:
    """Return the schema of a message; ``name`` has its package, as in ``shop.v2.Order``.

    :raises BodyError: if the set cannot be read, or lacks the message.
    :raises PackageMissing: if protobuf is not installed.
    """
    files = {each.name: each for each in parse_message("FileDescriptorSet", descriptor_set).file}
    pool = link(files)
    try:
        return schema_of(pool.FindMessageTypeByName(name.lstrip(".")))
    except KeyError:
        found = (pool.FindFileByName(each).message_types_by_name.values() for each in files)
        names = ", ".join(sorted(each.full_name for file in found for each in file)[:10])
        what = f"the descriptor set has no message {name}; it has {names or 'none'}"
        raise BodyError(what) from None


def parse_message(kind: str, stored: bytes) -> Any:
    """Return a message of descriptor.proto.

    :raises BodyError: if the bytes are not one.
    :raises PackageMissing: if protobuf is not installed.
    """
    try:
        return getattr(_protobuf("descriptor_pb2"), kind).FromString(stored)
    except _protobuf("message").DecodeError as error:
        raise BodyError(f"it is not a {kind}: {error!s:.200}") from None


def link(files: Mapping[str, Any]) -> Any:
    """Return a pool of files, which are given by name in any order, and of the package's own files.

    A missing import counts as an empty file: some are only needed for options.

    :raises BodyError: if the files contradict each other, or lack a type.
    """
    make = _protobuf("descriptor_pb2").FileDescriptorProto
    modules = map(_protobuf, (*_WITH_JSON.values(), "any_pb2", "descriptor_pb2", "empty_pb2"))
    known = {each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb for each in modules}
    pool, seen = _protobuf("descriptor_pool").DescriptorPool(), set[str]()

    def add(names: Iterable[str]) -> None:
        for name in names:
            if name not in seen:
                seen.add(name)
                file = files.get(name) or make.FromString(known.get(name, b""))
                # The name that others import it by: registries do not keep it.
                file.name = name
                add(file.dependency)
                pool.Add(file)

    try:
        add(files)
    except (TypeError, RecursionError) as error:
        raise BodyError(f"its descriptors cannot be linked: {error!s:.300}") from None
    return pool


def schema_of(message: Any) -> Schema:
    """Return the schema of a descriptor, with those of the messages that it holds."""
    schemas: dict[str, dict[int, ProtobufField]] = {message.full_name: {}}
    waiting = [message]
    while waiting:
        each = waiting.pop()
        for field in (*each.fields, *each.file.pool.FindAllExtensions(each)):
            held, enum, as_json = field.message_type, field.enum_type, None
            if held is not None and held.full_name not in schemas:
                schemas[held.full_name] = {}
                waiting.append(held)
            # Not nested: each level would parse all their bytes again.
            if held and held.file.name in _WITH_JSON and each.file.name not in _WITH_JSON:
                as_json = partial(_as_json, _WITH_JSON[held.file.name], held.name)
            schemas[each.full_name][field.number] = ProtobufField(
                f"[{field.full_name}]" if field.is_extension else field.name,
                _KINDS[field.type] if held is None else schemas[held.full_name],
                field.is_repeated,
                enum and {number: value.name for number, value in enum.values_by_number.items()},
                held is not None and held.GetOptions().map_entry,
                as_json,
            )
    return schemas[message.full_name]


def _as_json(module: str, name: str, stored: bytes, fields: Tree) -> Tree:
    """Return a message in the package's JSON form; its fields if that fails."""
    json_format = _protobuf("json_format")
    try:
        message = getattr(_protobuf(module), name).FromString(stored)
        # Wrapped 64-bit numbers stay numbers.
        return message.value if hasattr(message, "value") else json_format.MessageToDict(message)
    except (ValueError, OverflowError, json_format.Error, _protobuf("message").Error):
        return fields
