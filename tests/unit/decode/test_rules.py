"""Rules name the format of bodies by topic."""

import pickle
from dataclasses import replace

import pytest

from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from tests.support.written_bodies import DIRECTORY, body, message
from tests.unit.decode.test_schema_registry import registry as _registry

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


def test_avro_bodies_name_their_schema_in_a_registry(tmp_path, registry):
    registry.answers["/schemas/ids/258"] = (200, b'{"schema": "\\"int\\""}')
    made = rules(tmp_path, f'registry = "{registry.url}"\n[[body]]\ntopic = "T"\nformat = "avro"')
    assert made.decode(message(topic="T", body=bytes.fromhex("00 00000102 0e"))).value == 7
    assert "names no schema" in made.decode(message(topic="T", body=b"\x01" * 6)).error
    assert "cannot be fetched" in made.decode(message(topic="T", body=bytes(6))).error
    assert len(made.decode(message(topic="T", body=body("container-null.avro"))).value) == 2


def test_rules_go_to_other_processes_with_what_they_read_by(tmp_path, registry):
    registry.answers["/schemas/ids/258"] = (200, b'{"schema": "\\"int\\""}')
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
        ('registry = "here"', "schema registry"),
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
