"""Schema registries: kinds of schemas, logins, and what a registry can answer wrongly."""

import json
import pickle
import sys
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from rocketlens.decode import json_schema, schema_registry
from rocketlens.decode.descriptors import link, message_schema
from rocketlens.decode.json_schema import schema_check
from rocketlens.decode.protobuf import read_protobuf
from rocketlens.decode.rules import BodyRules
from rocketlens.decode.schema_registry import MAX_SCHEMA_BYTES, SchemaRegistry
from rocketlens.errors import BadInput, BodyError
from rocketlens.net.tls import server_context
from tests.support.effort import sized
from tests.support.written_bodies import body, message


class Registry:
    """Serves ``answers``: JSON, or a status, or raw bytes for each path."""

    def __init__(self, tls=None):
        self.answers, self.asked, self.login = {}, [], None
        self.goes_on = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                answer = outer.answers.get(self.path, 404)
                if answer == "wait":
                    outer.goes_on.wait()
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    return
                if self.headers["Authorization"] != outer.login:
                    answer = 401
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(
                    answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                )

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"{'https' if tls else 'http'}://{self.address}"

    def close(self):
        self.goes_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def registry():
    served = Registry()
    yield served
    served.close()


def asking(registry, path, url=None, **more):
    return SchemaRegistry({"registry": url or registry.url} | more, path / "bodies.toml")


def framed(number, stored):
    return bytes(1) + number.to_bytes(4, "big") + stored


def proto_file(name, package, messages, imports=()):
    """Return a file of messages by their names, as ``{"Order": ["repeated .shop.Item items"]}``."""
    file = FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    made = {}
    for full_name, fields in messages.items():
        outer, _, own = full_name.rpartition(".")
        made[full_name] = (made[outer].nested_type if outer else file.message_type).add(name=own)
        if own.endswith("Entry"):
            made[full_name].options.map_entry = True
        for number, declared in enumerate(fields, 1):
            *repeated, kind, field_name = declared.split()
            field = made[full_name].field.add(name=field_name, number=number)
            field.label = 3 if repeated else 1
            if "." in kind or kind[0].isupper():
                field.type_name = kind
            else:
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    return file


ITEM = proto_file("default", "shop", {"Item": ["string sku", "int64 count"]})
ORDER = proto_file(
    "default",
    "shop.v2",
    {
        "Other": ["string other"],
        "Order": [
            *("string id", "repeated .shop.Item items", "google.protobuf.Timestamp at"),
            *("google.protobuf.Struct more", "repeated .shop.v2.Order.TagsEntry tags"),
        ],
        "Order.TagsEntry": ["string key", "sint32 value"],
        "Order.Inner": ["bytes data"],
    },
    ["item.proto", "google/protobuf/timestamp.proto", "google/protobuf/struct.proto", "meta.proto"],
)


def encoded(name, value, **files):
    """Return a message as the package writes it."""
    named = {key.replace("_", "."): FileDescriptorProto() for key in files}
    for key, file in files.items():
        named[key.replace("_", ".")].CopyFrom(file)
    kind = message_factory.GetMessageClass(link(named).FindMessageTypeByName(name))
    return json_format.ParseDict(value, kind()).SerializeToString()


def proto_answers(path, file, references=()):
    serialized = b64encode(file.SerializeToString()).decode()
    return {
        path: {"schema": "syntax = ...", "schemaType": "PROTOBUF", "references": list(references)},
        f"{path}?format=serialized": {"schema": serialized, "schemaType": "PROTOBUF"},
    }


def reference(name, subject="sub/ject", version=2):
    return {"name": name, "subject": subject, "version": version}


SUBJECT = "/subjects/sub%2Fject/versions/2"
ORDERS = proto_answers("/schemas/ids/258", ORDER, [reference("item.proto")])
ORDERS |= proto_answers(SUBJECT, ITEM)
VALUE = {
    "id": "o-1",
    "items": [{"sku": "a", "count": 7}],
    "at": "2026-11-28T10:00:00.500Z",
    "more": {"a": [1.0, None, {"b": True}]},
    "tags": {"k": -4},
}
FIRST = {"other": "x"}
NAMED = {"item_proto": ITEM, "order_proto": ORDER}
RULES = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "required": ["id"],
    "properties": {
        "id": {"pattern": "^[a-z]+$"},
        "amount": {"type": "number"},
        "part": {"$ref": "part"},
    },
    "patternProperties": {"^x-": {"type": "number"}},
    "additionalProperties": False,
}
PART = {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"n": {"maximum": 5}}}
JSON_ANSWERS = {
    "/schemas/ids/258": {
        "schema": json.dumps(RULES),
        "schemaType": "JSON",
        "references": [reference("part")],
    },
    SUBJECT: {"schema": json.dumps(PART), "schemaType": "JSON"},
}
AVRO_ANSWERS = {
    "/schemas/ids/258": {
        "schema": '{"type": "array", "items": "shop.Cents"}',
        "references": [reference("shop.Cents")],
    },
    SUBJECT: {"schema": '{"type": "fixed", "name": "shop.Cents", "size": 1}'},
}
KINDS = {
    "avro": (AVRO_ANSWERS, b"\x02a\x00", "avro", [b"a"]),
    "avro file": ({}, None, "avro", None),
    "protobuf": (ORDERS, b"\2\2" + encoded("shop.v2.Order", VALUE, **NAMED), "protobuf", VALUE),
    "protobuf, first message": (
        ORDERS, b"\0" + encoded("shop.v2.Other", FIRST, **NAMED), "protobuf", FIRST
    ),
    "protobuf, inner message": (ORDERS, b"\4\2\0\x0a\1\xff", "protobuf", {"data": b"\xff"}),
    "protobuf, unknown field": (ORDERS, b"\x00\x10\x05", "protobuf", {"2": 5}),
    "json": (JSON_ANSWERS, b'{"id": "a", "x-1": 1.50}', "json", {"id": "a", "x-1": 1.5}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_is_read_by_the_schema_that_it_names_which_is_asked_for_once(
    kind, registry, tmp_path
):
    registry.answers, stored, name, value = KINDS[kind]
    whole = body("container-null.avro") if stored is None else framed(258, stored)
    (tmp_path / "bodies.toml").write_text(
        f'registry = "{registry.url}/"\n[[body]]\ntopic = "T"\nformat = "registry"'
    )
    rules = BodyRules.from_file(tmp_path / "bodies.toml")
    for _ in range(2):
        decoded = rules.decode(message(topic="T", body=whole))
        assert (decoded.format, decoded.error, decoded.rule) == (name, None, "T")
        assert value is None or decoded.value == value
    assert sorted(registry.asked) == sorted(registry.answers)


def test_messages_are_read_as_the_package_writes_them_in_json():
    scalars = [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
    ]
    scalars += ["fixed64", "sfixed32", "sfixed64", "bool", "string"]
    known = ["Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue"]
    known += [f"{each}Value" for each in ("Bool", "Int64", "String", "Double")]
    fields = [
        *(f"{each} a{each}" for each in scalars),
        *(f"repeated {each} b{each}" for each in scalars),
    ]
    fields += [f"google.protobuf.{each} c{each}" for each in known]
    imports = [f"google/protobuf/{each}.proto" for each in ("duration", "field_mask", "struct")]
    imports += ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    file = proto_file("all.proto", "", {"All": fields}, imports)
    value = {f"a{each}": 3 for each in scalars} | {f"b{each}": [3, 5] for each in scalars}
    value |= {"aint32": -3, "asint64": -(2**62), "afixed64": 2**63, "adouble": 0.1}
    value |= {"abool": True, "bbool": [True, False], "astring": "é", "bstring": ["a", ""]}
    value |= {"cTimestamp": "1969-12-31T23:59:59.000000001Z", "cDuration": "-1.500s"}
    value |= {
        "cFieldMask": "a,bC",
        "cStruct": {"s": {"l": [{}]}},
        "cValue": None,
        "cListValue": [1.0],
    }
    value |= {"cBoolValue": False, "cInt64Value": 2**60, "cStringValue": "", "cDoubleValue": 0.5}
    stored = encoded("All", value, all_proto=file)
    schema = message_schema(FileDescriptorSet(file=[file]).SerializeToString(), "All")
    assert read_protobuf(stored, schema=pickle.loads(pickle.dumps(schema))) == value
    pool = link({"all.proto": file})
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("All"))
    written = json_format.MessageToDict(kind.FromString(stored), preserving_proto_field_name=True)
    assert {name: each for name, each in written.items() if name[0] == "c"} == {
        name: str(each) if name == "cInt64Value" else each
        for name, each in value.items()
        if name[0] == "c"
    }


def test_a_message_without_a_form_in_json_is_shown_by_its_fields():
    file = proto_file(
        "t.proto", "", {"T": ["google.protobuf.Timestamp at"]}, ["google/protobuf/timestamp.proto"]
    )
    schema = message_schema(FileDescriptorSet(file=[file]).SerializeToString(), "T")
    far = b"\x08" + b"\xff" * 8 + b"\x7f"
    assert read_protobuf(b"\x0a" + bytes([len(far)]) + far, schema=schema) == {
        "at": {"seconds": 2**63 - 1}
    }


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"id": "a"}, None),
        ({"id": "SECRET"}, '$.id breaks pattern of its schema: "^[a-z]+$"'),
        ({"id": "a", "amount": "SECRET"}, '$.amount breaks type of its schema: "number"'),
        ({"amount": 1}, "$ breaks required of its schema: 'id' is a required property"),
        ({"id": "a", "x-1": "SECRET"}, "$['x-1'] breaks type of its schema: \"number\""),
        ({"id": "a", "part": {"n": 6}}, "$.part.n breaks maximum of its schema: 5"),
        ({"id": "a", "q": 1}, "$ breaks additionalProperties of its schema: Additional properties"),
    ],
)
def test_a_document_that_breaks_a_rule_is_shown_with_the_rule_and_its_place(
    value, says, registry, tmp_path
):
    registry.answers, text = JSON_ANSWERS, json.dumps(value)
    decoded = asking(registry, tmp_path).decode(framed(258, text.encode()))
    assert (decoded.value, decoded.text) == (value, text)
    assert decoded.error == says or decoded.error.startswith(says)
    assert "SECRET" not in (decoded.error or "")


LONG = "a" * 40_000 + "b"
CHECKS = sized(10_000, json_schema.MAX_SCHEMA_CHECKS)
TWICE = {f"a{n}": {"anyOf": 2 * [{"$ref": f"#/definitions/a{n + 1}"}]} for n in range(60)}


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        ({"$ref": "#/definitions/a0", "definitions": {**TWICE, "a60": False}}, 1, "checks"),
        ({"uniqueItems": True}, [{"n": n} for n in range(20_000)], "checks"),
        ({"items": {"$schema": RULES["$schema"], "type": "object"}}, [{}] * 2 * CHECKS, "checks"),
        ({"$ref": "#"}, 1, "recursion"),
        ({"$ref": "http://127.0.0.1:1/other"}, 1, "Unresolvable"),
        ({"pattern": "(?=a)"}, "a", "RE2 does not support the pattern"),
        ({"type": "odd"}, 1, None),
        ({"properties": {"a": False}}, {"a": 1}, "is not allowed by its schema"),
        ({"pattern": "^(a+)+$"}, LONG, "breaks pattern"),
        ({"patternProperties": {"^(a+)+$": False}}, {LONG: 1}, ""),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {LONG: 1}, "add"),
    ],
)  # fmt: skip
def test_the_work_of_a_check_is_bounded(schema, value, says, monkeypatch):
    monkeypatch.setattr(json_schema, "MAX_SCHEMA_CHECKS", CHECKS)
    if says is None:
        with pytest.raises(BodyError, match="it is not a JSON schema"):
            schema_check(json.dumps(schema), {})
        return
    error = schema_check(json.dumps(schema), {})(value)
    assert says in error if says else error is None


SCHEMA_1 = "/schemas/ids/1"
SOURCE = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
CHAIN = {
    f"/subjects/s/versions/{n}": {"schema": "7", "references": [reference(f"n{n}", "s", n + 1)]}
    for n in range(1, 200)
}


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({}, "schema 1 of {url}: it answers /schemas/ids/1 with status 404"),
        ({SCHEMA_1: "no json"}, "{url} has no schema 1: JSONDecodeError"),
        ({SCHEMA_1: []}, "{url} has no schema 1: AttributeError"),
        ({SCHEMA_1: {"schema": 7}}, "{url} has no schema 1: TypeError"),
        ({SCHEMA_1: {"schemaType": "XSD"}}, "its kind is 'XSD', and not AVRO"),
        ({SCHEMA_1: " " * (MAX_SCHEMA_BYTES + 1)}, "has over 1048576 bytes"),
        ({SCHEMA_1: CHAIN["/subjects/s/versions/1"], **CHAIN}, "more than 100"),
        ({SCHEMA_1: 302, "/elsewhere": {"schema": '"int"'}}, "status 302"),
        ({SCHEMA_1: 500}, "schema 1 of {url}: it answers /schemas/ids/1 with status 500"),
        ({SCHEMA_1: b"no HTTP at all\r\n"}, "the schema registry {url} cannot be asked"),
        ({SCHEMA_1: b""}, "the schema registry {url} cannot be asked"),
        ({SCHEMA_1: "wait"}, "the schema registry {url} takes over 0.2 s"),
        (dict.fromkeys(proto_answers(SCHEMA_1, ITEM), SOURCE), "text of a .proto file"),
        (proto_answers(SCHEMA_1, ORDER), "schema 1 of {url}: its descriptors cannot be linked"),
        ({SCHEMA_1: {"schema": "{", "schemaType": "JSON"}}, "{url}: it is not a JSON schema"),
    ],
    ids=range(15),
)  # fmt: skip
def test_what_a_registry_answers_wrongly_is_one_sentence(
    answers, says, registry, tmp_path, monkeypatch
):
    if "wait" in answers.values():
        monkeypatch.setattr(schema_registry, "_SCHEMA_S", 0.2)
    registry.answers, asked = answers, asking(registry, tmp_path)
    for _ in range(2):
        with pytest.raises(BodyError) as caught:
            asked.decode(framed(1, b"\0"))
        assert says.format(url=registry.url) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert registry.asked.count("/schemas/ids/1") == 1
    assert "/elsewhere" not in registry.asked


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (b"\x02\x06", "its schema has no message (3,)"),
        (b"\x02\x01", "its schema has no message (-1,)"),
        (b"\x01", "a count of -1"),
        (b"\xfe\xff\xff\xff\x0f", "more than 40000 values"),
        (b"", "ends too early"),
    ],
)
def test_a_message_that_a_schema_does_not_have_is_refused(stored, says, registry, tmp_path):
    registry.answers = ORDERS
    with pytest.raises(BodyError) as caught:
        asking(registry, tmp_path).decode(framed(258, stored))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "others"), [(404, 1), (b"", 0)], ids=["one schema", "the registry"]
)
def test_what_could_not_be_had_is_asked_for_again_later(answer, others, registry, tmp_path):
    now_s = [0.0]
    path = tmp_path / "bodies.toml"
    asked = SchemaRegistry({"registry": registry.url}, path, clock=lambda: now_s[0])
    registry.answers = {"/schemas/ids/1": answer, "/schemas/ids/2": {"schema": '"int"'}}
    with pytest.raises(BodyError):
        asked.decode(framed(1, b"\2"))
    if others:
        assert asked.decode(framed(2, b"\2")).value == 1
    else:
        # A table of messages does not wait for each of them.
        with pytest.raises(BodyError, match="cannot be asked"):
            asked.decode(framed(2, b"\2"))
    assert len(registry.asked) == 1 + others
    registry.answers["/schemas/ids/1"] = {"schema": '"int"'}
    now_s[0] = 31.0
    assert asked.decode(framed(1, b"\2")).value == 1


def test_what_is_kept_is_bounded(registry, tmp_path, monkeypatch):
    monkeypatch.setattr(schema_registry, "MAX_REGISTRY_SCHEMAS", 2)
    registry.answers = {f"/schemas/ids/{n}": {"schema": '"int"'} for n in (1, 2, 3)}
    asked = asking(registry, tmp_path)
    for number in (1, 2, 3, 1):
        asked.decode(framed(number, b"\2"))
    assert registry.asked.count("/schemas/ids/1") == 2


@pytest.mark.parametrize("by", ["address", "file", "variable"])
def test_a_registry_is_asked_with_user_and_password_which_no_text_has(
    by, registry, tmp_path, monkeypatch
):
    registry.login = "Basic " + b64encode(b"a@b:p:w/d").decode()
    registry.answers = {"/schemas/ids/1": {"schema": '"int"'}}
    (tmp_path / "secret").write_text("p:w/d\n")
    user = "a%40b:p:w%2Fd" if by == "address" else "a%40b"
    more = {"registry_password_file": "secret"} if by == "file" else {}
    monkeypatch.setenv("ROCKETLENS_REGISTRY_PASSWORD", "p:w/d" if by == "variable" else "wrong")
    asked = asking(registry, tmp_path, f"http://{user}@{registry.address}", **more)
    assert pickle.loads(pickle.dumps(asked)).decode(framed(1, b"\2")).value == 1
    registry.login = "Basic other"
    with pytest.raises(BodyError) as caught:
        asked.decode(framed(1, b"\2"))
    assert str(caught.value) == (
        f"schema 1 of {registry.url}: it answers /schemas/ids/1 with status 401: "
        "name the user in registry, and check registry_password_file"
    )
    assert "p:w" not in repr(asked)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"registry": "htps://u:SECRET@h"}, "registry: give an address"),
        ({"registry": "http://u:SECRET@h:port"}, "registry: give an address"),
        ({"registry": "http://["}, "registry: give an address"),
        ({"registry": "file:///etc/passwd"}, "registry: give an address"),
        ({"registry_ca": "ca.pem"}, "registry: give an address"),
        ({"registry": "http://h", "registry_password_file": "s"}, "name the user"),
        ({"registry": "http://u@h", "registry_password_file": "SECRET"}, "cannot be read"),
        ({"registry": "https://h", "registry_ca": "none.pem"}, "none.pem: No such file"),
    ],
)
def test_a_registry_that_is_declared_wrongly_is_refused_without_its_password(
    declared, says, tmp_path
):
    with pytest.raises(BadInput) as caught:
        SchemaRegistry(declared, tmp_path / "bodies.toml")
    assert says in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_the_certificate_of_a_registry_is_checked(certificate, tmp_path):
    made, key = certificate
    served = Registry(server_context(made, key))
    try:
        served.answers = {"/schemas/ids/1": {"schema": '"int"'}}
        asked = asking(served, tmp_path, registry_ca=str(made))
        assert asked.decode(framed(1, b"\2")).value == 1
        with pytest.raises(BodyError, match="CERTIFICATE_VERIFY_FAILED"):
            asking(served, tmp_path).decode(framed(1, b"\2"))
    finally:
        served.close()


@pytest.mark.parametrize("kind", ["protobuf", "json"])
def test_a_missing_package_is_named_with_its_extra(kind, registry, tmp_path, monkeypatch):
    registry.answers, package = {
        "protobuf": (ORDERS, "google.protobuf"),
        "json": (JSON_ANSWERS, "jsonschema"),
    }[kind]
    for name in (package, f"{package}.descriptor_pb2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BodyError, match=rf"needs {package}: .*\[decode\]"):
        asking(registry, tmp_path).decode(framed(258, b"{}"))
