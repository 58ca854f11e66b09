"""Protocol Buffers by a descriptor set, which ``protoc --descriptor_set_out`` writes.

A descriptor set (with ``--include_imports``) is itself a message of Protocol Buffers, so it is read
by the same reader as the bodies, with a schema that stands here. Only fields that are stored are
shown; those that have their default are not. Source: ``descriptor.proto``.
"""

from typing import Final

from rocketlens.decode.protobuf_wire import ProtobufField, Schema, read_protobuf
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError

_ENUM_VALUE: Final[Schema] = {1: ProtobufField("name", "text"), 2: ProtobufField("number")}
_ENUM: Final[Schema] = {
    1: ProtobufField("name", "text"),
    2: ProtobufField("value", _ENUM_VALUE, is_list=True),
}
_FIELD: Final[Schema] = {
    1: ProtobufField("name", "text"),
    3: ProtobufField("number"),
    4: ProtobufField("label"),
    5: ProtobufField("type"),
    6: ProtobufField("type_name", "text"),
}
_OPTIONS: Final[Schema] = {7: ProtobufField("map_entry", "bool")}
_MESSAGE: dict[int, ProtobufField] = {
    1: ProtobufField("name", "text"),
    2: ProtobufField("field", _FIELD, is_list=True),
    4: ProtobufField("enum_type", _ENUM, is_list=True),
    7: ProtobufField("options", _OPTIONS),
}
_MESSAGE[3] = ProtobufField("nested_type", _MESSAGE, is_list=True)
_FILE: Final[Schema] = {
    1: ProtobufField("name", "text"),
    2: ProtobufField("package", "text"),
    4: ProtobufField("message_type", _MESSAGE, is_list=True),
    5: ProtobufField("enum_type", _ENUM, is_list=True),
}
_SET: Final[Schema] = {1: ProtobufField("file", _FILE, is_list=True)}

_REPEATED: Final = 3
_KINDS: Final = {
    1: "double",
    2: "float",
    3: "int",
    4: "uint",
    5: "int",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "text",
    12: "bytes",
    13: "uint",
    15: "sfixed32",
    16: "sfixed64",
    17: "zigzag",
    18: "zigzag",
}
_GROUP, _HELD, _ENUM_TYPE = 10, 11, 14


def message_schema(descriptor_set: bytes, name: str) -> Schema:
    """Return the schema of a message; ``name`` has its package, as in ``shop.v2.Order``.

    :raises BodyError: when the set cannot be read, or does not have it.
    """
    try:
        return _message_schema(descriptor_set, name)
    except (KeyError, TypeError, AttributeError) as error:
        raise BodyError(f"it is no descriptor set: {error!r}") from error


def _message_schema(descriptor_set: bytes, name: str) -> Schema:
    messages: dict[str, Tree] = {}
    enums: dict[str, dict[int, str]] = {}
    for file in read_protobuf(descriptor_set, _SET).get("file", []):
        _collect(file, f".{file['package']}" if file.get("package") else "", messages, enums)
    wanted = f".{name.lstrip('.')}"
    if wanted not in messages:
        known = ", ".join(sorted(each[1:] for each in messages)[:10])
        raise BodyError(f"the descriptor set has no message {name}; it has {known or 'none'}")
    schemas: dict[str, dict[int, ProtobufField]] = {each: {} for each in messages}
    for each, declared in messages.items():
        for field in declared.get("field", []):
            schemas[each][field["number"]] = _field(field, messages, schemas, enums)
    return schemas[wanted]


def _collect(
    holder: Tree, prefix: str, messages: dict[str, Tree], enums: dict[str, dict[int, str]]
) -> None:
    for each in holder.get("enum_type", []):
        values = {value.get("number", 0): value["name"] for value in each.get("value", [])}
        enums[f"{prefix}.{each['name']}"] = values
    for each in [*holder.get("message_type", []), *holder.get("nested_type", [])]:
        name = f"{prefix}.{each['name']}"
        messages[name] = each
        _collect(each, name, messages, enums)


def _field(
    declared: Tree,
    messages: dict[str, Tree],
    schemas: dict[str, dict[int, ProtobufField]],
    enums: dict[str, dict[int, str]],
) -> ProtobufField:
    number, type_name = declared["type"], declared.get("type_name", "")
    is_list = declared.get("label") == _REPEATED
    if number in (_HELD, _GROUP):
        options = messages.get(type_name, {}).get("options", {})
        is_map = is_list and options.get("map_entry", False)
        return ProtobufField(declared["name"], schemas.get(type_name, {}), is_list, is_map=is_map)
    if number == _ENUM_TYPE:
        return ProtobufField(declared["name"], "int", is_list, values=enums.get(type_name, {}))
    return ProtobufField(declared["name"], _KINDS.get(number, "int"), is_list)
