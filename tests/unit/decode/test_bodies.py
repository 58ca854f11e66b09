"""What a body is, found by looking at its bytes or by the rules of its topic."""

import gzip
import json
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.decode.bodies import decode_body, text_of_body
from rocketlens.decode.layers import unwrap
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from tests.support.written_bodies import DIRECTORY, NAMES, body, message
from tests.unit.decode.test_schema_registry import registry as _registry

FORMATS = {
    "classes.java-object": "java",
    "container-deflate.avro": "avro",
    "container-null.avro": "avro",
    "file.descriptor-set": "protobuf",
    "json.gbk": "json",
    "json.gzip": "json",
    "map.hessian": "hessian",
    "message.thrift-binary": "thrift",
    "message.thrift-compact": "thrift",
    "order.avsc": "json",
    "order.cbor": "cbor",
    "order.hessian": "hessian",
    "order.java-object": "java",
    "order.messagepack": "messagepack",
    "order.thrift-binary": "thrift",
    # Without a rule these could be anything.
    "order.thrift-compact": "binary",
    "record.avro": "binary",
    "single-object.avro": "binary",
    "text.gbk": "text",
    "update.canal": "canal",
}
WHY = {
    "json": "it is {charset}, and JSON",
    "text": "it is {charset}",
    "java": "it begins with ac ed 00 05",
    "avro": "it begins with Obj 01",
    "canal": "its {count} bytes are a packet of messages",
    "hessian": "its {count} bytes are a value of Hessian 2",
    "thrift": "its {count} bytes are a struct of Thrift",
    "messagepack": "its {count} bytes are a map or array of MessagePack",
    "cbor": "its {count} bytes are a map or array of CBOR",
    "protobuf": "its {count} bytes are fields of Protocol Buffers with likely numbers",
    "binary": "no format that is known reads it to its last byte",
}


@pytest.mark.parametrize("name", NAMES)
def test_what_other_libraries_wrote_is_found(name):
    decoded = decode_body(body(name))
    assert decoded.format == FORMATS[name]
    count = len(unwrap(body(name))[0])
    assert decoded.why == WHY[decoded.format].format(charset=decoded.charset, count=count)
    assert decoded.error is None
    assert (decoded.as_json() is None) == (decoded.format in {"binary", "text"})


def test_a_guess_says_that_it_is_one():
    guess = decode_body(gzip.compress(body("order.hessian")))
    assert guess.is_guess
    assert guess.described() == "gzip, hessian: its 495 bytes are a value of Hessian 2 (a guess)"
    assert not decode_body(body("order.java-object")).is_guess
    assert not decode_body(b'{"a":1}').is_guess


def test_json_keeps_its_own_digits_and_spaces():
    decoded = decode_body(b'{"amount": 19.90,"n":9007199254740993}')
    assert decoded.as_json() == '{"amount": 19.90,"n":9007199254740993}'
    assert decoded.value["n"] == 9_007_199_254_740_993
    assert decoded.is_tree
    assert decode_body(b"[1] and so on").format == "text"
    assert decode_body(b"42").text == "42"
    assert decode_body(b"").format == "text"


def test_xml_is_found_and_what_only_looks_like_it_is_text():
    decoded = decode_body(b"<a><b>1</b></a>")
    assert decoded.value == {"a": {"b": "1"}}
    assert decoded.why == "it is utf-8, and well-formed XML"
    assert decode_body(b"<a> and more").format == "text"


def test_what_a_mark_promises_and_the_rest_does_not_keep_is_binary_with_the_reason():
    decoded = decode_body(b"\xac\xed\x00\x05\x73\xff")
    assert decoded.format == "binary"
    assert decoded.error.startswith("java: at byte")


def test_layers_come_off_first_and_a_bomb_is_not_unpacked():
    assert decode_body(gzip.compress(b'{"a":1}')).layers == ("gzip",)
    bomb = gzip.compress(bytes(limits.MAX_BODY_BYTES + 1))
    assert "grows beyond" in decode_body(bomb).error


def test_a_large_body_is_text_or_binary_and_not_taken_apart():
    size = limits.MAX_SHOWN_JSON_BYTES
    large = decode_body(b"[" + b"1," * (size // 2) + b"1]")
    assert (large.format, large.error) == ("text", "it has over 4 MiB, and is not parsed")
    assert decode_body(b"\xff\x00" * (size // 2 + 1)).format == "binary"
    assert "over 8 MiB" in decode_body(b"a" * (limits.MAX_DECODED_BYTES + 1)).error


@given(st.binary(max_size=200) | st.sampled_from(NAMES).map(body).map(lambda data: data[:400]))
@example(b"\x82\x81\x00")
def test_any_bytes_are_decoded_and_can_be_written_as_json(data):
    decoded = decode_body(data)
    if decoded.format not in ("text", "binary"):
        json.loads(decoded.as_json(), strict=False)


@given(st.sampled_from(NAMES), st.data())
def test_damaged_bodies_are_decoded_to_something(name, data):
    whole = bytearray(body(name)[:3_000])
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    decode_body(bytes(whole)).as_json()


@given(
    st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
    | st.text(max_size=40, alphabet="订单已支付ab1").map(lambda text: text.encode("gbk"))
    | st.sampled_from(NAMES).map(body)
)
def test_the_text_of_a_body_alone_is_that_of_the_decoded_one(some):
    for each in (some, gzip.compress(some)):
        assert text_of_body(each) == decode_body(each).text


def test_what_clients_say_they_did_is_a_list_of_records():
    words = "Pub 1700000000000 R g Orders U1 TagA order-42 10.0.0.1:10911 5 3 0 OFF true"
    record = words.replace(" ", "\x01") + "\x02"
    found = decode_body(record.encode() * 2)
    assert (found.format, found.is_guess, found.error) == ("trace", False, None)
    assert [each["keys"] for each in found.value] == ["order-42"] * 2
    assert json.loads(found.as_json())[0]["trace_type"] == "Pub"
    cut = decode_body(record.encode() + record.encode()[:40])
    assert (cut.format, cut.error) == ("trace", None)
    assert cut.value[0]["keys"] == "order-42"
    assert cut.value[1] == {"unread": words[:40]}
    unknown = decode_body(record.encode() + b"Later\x01field")
    assert unknown.value[1] == {"unread": "Later field"}
    not_text = decode_body(record.encode() + "订".encode()[:1])
    assert (not_text.format, not_text.error is not None) == ("binary", True)


registry = _registry
DESCRIPTORS = DIRECTORY / "file.descriptor-set"
PACKAGE = "com.alibaba.otter.canal.protocol"
PAIRS = f"""
[[body]]
topic = "T"
format = "protobuf"
descriptor_set = "{DESCRIPTORS}"
message = "{PACKAGE}.Pair"
"""
"""Reads `Pair` by a descriptor set."""


def rules(tmp_path, text):
    path = tmp_path / "bodies.toml"
    path.write_text(text, "utf-8")
    return BodyRules.from_file(path)


def test_the_first_rule_that_fits_a_topic_decides(tmp_path):
    made = rules(
        tmp_path,
        f"""
        [[body]]
        topic = "order-*"
        format = "avro"
        schema = "{DIRECTORY}/order.avsc"

        [[body]]
        topic = "*"
        charset = "big5"
        """,
    )
    decoded = made.decode(message(topic="order-paid", body=body("record.avro")))
    assert (decoded.format, decoded.value["id"]) == ("avro", "ORDER-20261120-0042")
    assert decoded.why == "the rule for topics order-* says so"
    assert not decoded.is_guess
    assert made.decode(message(topic="other", body="訂單".encode("big5"))).text == "訂單"


def test_a_message_that_is_there_again_is_read_by_the_rule_for_its_first_topic(tmp_path):
    made = rules(tmp_path, '[[body]]\ntopic = "T"\nformat = "thrift"')
    again = message(
        topic="%RETRY%g", body=body("order.thrift-compact"), properties={"RETRY_TOPIC": "T"}
    )
    assert made.decode(again).format == "thrift"
    assert made.decode(replace(again, properties={})).format == "binary"


def test_what_a_rule_cannot_read_is_shown_without_it_with_the_reason(tmp_path):
    made = rules(tmp_path, '[[body]]\ntopic = "T"\nformat = "hessian"')
    decoded = made.decode(message(topic="T", body=b'{"a":1}'))
    assert decoded.format == "json"
    assert decoded.error.startswith("rule for T: at byte")


def test_protobuf_is_read_by_a_descriptor_set(tmp_path):
    made = rules(
        tmp_path,
        f"""
        {PAIRS}

        [[body]]
        topic = "raw"
        format = "protobuf"
        """,
    )
    pair = bytes.fromhex("0a 01 61 12 01 62")
    assert made.decode(message(topic="T", body=pair)).value == {"key": "a", "value": "b"}
    assert made.decode(message(topic="raw", body=pair)).value == {"1": "a", "2": "b"}


def test_rules_go_to_other_processes_with_what_they_read_by(tmp_path, registry):
    registry.answers["/schemas/ids/258"] = {"schema": '"int"'}
    made = rules(
        tmp_path,
        f"""
        registry = "{registry.url}"
        {PAIRS}

        [[body]]
        topic = "A"
        format = "avro"
        schema = "{DIRECTORY}/order.avsc"

        [[body]]
        topic = "R"
        format = "avro"
        """,
    )
    taken = pickle.loads(pickle.dumps(made))
    for topic, content in (
        ("T", bytes.fromhex("0a 01 61 12 01 62")),
        ("A", body("record.avro")),
        ("R", bytes.fromhex("00 00000102 0e")),
    ):
        decoded = taken.decode(message(topic=topic, body=content))
        assert (decoded, decoded.error) == (made.decode(message(topic=topic, body=content)), None)


def test_binary_is_never_taken_apart(tmp_path):
    made = rules(tmp_path, '[[body]]\ntopic = "T"\nformat = "binary"')
    assert made.decode(message(topic="T", body=b'{"a":1}')).as_json() is None


def test_a_body_that_could_not_be_unpacked_is_binary_with_the_reason():
    decoded = BodyRules().decode(message(body=b"x", body_error="it is no zlib"))
    assert (decoded.format, decoded.error) == ("binary", "it is no zlib")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[body", "bodies.toml"),
        ("bodies = 1", "unknown bodies"),
        ('registry = "here"', "registry: give an address"),
        ('[[body]]\ntopic = "T"\nformat = "registry"', "needs the address registry"),
        ('[[body]]\nformat = "json"', "a rule without topic"),
        ('[[body]]\ntopic = "T"\nformat = "jsno"', "format 'jsno': give one of avro"),
        ('[[body]]\ntopic = "T"\nfromat = "x"', "unknown fromat"),
        ('[[body]]\ntopic = "T"\ncharset = 7', "charset must be text"),
        ('[[body]]\ntopic = "T"\ncharset = "utf-9"', "charset 'utf-9' is not known"),
        ('[[body]]\ntopic = "T"\nformat = "avro"\nschema = "none.avsc"', "none.avsc"),
        ('[[body]]\ntopic = "T"\nformat = "protobuf"\ndescriptor_set = "d"\nmessage = "m"', "d"),
        (
            f'[[body]]\ntopic = "T"\nformat = "protobuf"\ndescriptor_set = "{DESCRIPTORS}"',
            "needs message",
        ),
        (
            f'[[body]]\ntopic = "T"\nformat = "avro"\nschema = "{DIRECTORY}/text.gbk"',
            "schema cannot be read",
        ),
    ],
)
def test_a_rule_that_is_wrong_is_refused_with_its_reason(tmp_path, text, says):
    with pytest.raises(BadInput, match=says):
        rules(tmp_path, text)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"none\.toml"):
        BodyRules.from_file(tmp_path / "none.toml")
