"""The headers that the commands declare, each held against the classes of RocketMQ."""

import pytest

from rocketlens.errors import FieldError
from rocketlens.wire.commands import COMMANDS, offset, pull, query, send, topic
from rocketlens.wire.declare import (
    BOOLEAN,
    I32,
    I64,
    TEXT,
    fields_of,
    java_names_of,
)
from tests.support.wire_samples import (
    GENERIC_FIELDS,
    HEADERS,
    VERSIONS,
    sample,
    vectors_of,
)

JAVA_TYPES = {
    "String": TEXT,
    "BoundaryType": TEXT,
    "Integer": I32,
    "int": I32,
    "Long": I64,
    "long": I64,
    "Boolean": BOOLEAN,
    "boolean": BOOLEAN,
}

# A client puts it beside the header.
NOT_IN_JAVA = {"_UNIQUE_KEY_QUERY"}

# 4.9's name of cleanOffset.
RENAMED = {"removeOffset"}

CODECS = [codec for command in COMMANDS.values() for codec in (command.request, command.response)]

each_codec = pytest.mark.parametrize(
    "codec", CODECS, ids=lambda codec: f"{codec.header_class.__name__}-{len(codec.wire_names)}"
)


def java_fields(version):
    for java_name, *words in vectors_of(version, "fields"):
        yield java_name, dict(word.split("=") for word in words if word)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_table_has_the_fields_and_types_of_rocketmqs_class(version):
    compared = 0
    for java_name, theirs in java_fields(version):
        codec = HEADERS[java_name]
        rows = {codec.wire_names[field.name]: field for field in fields_of(codec.header_class)}
        expected = {name for name, row in rows.items() if row.since <= VERSIONS[version]}
        if version == "4.9.7":
            # What it has not, we must know to be newer.
            assert set(theirs) >= expected - NOT_IN_JAVA, java_name
        assert expected - NOT_IN_JAVA <= set(theirs), java_name
        assert set(theirs) - GENERIC_FIELDS - RENAMED <= expected, java_name
        for name, java_type in theirs.items():
            if name in rows:
                assert rows[name].shape == JAVA_TYPES[java_type.rstrip("!")], name
                # We ask for no more than RocketMQ declares.
                assert not rows[name].is_mandatory or java_type.endswith("!"), (java_name, name)
        compared += 1
    assert compared > 30


def test_every_header_class_is_one_of_rocketmqs_or_says_that_it_has_none():
    # RocketMQ 5 has none for the accounts of 4.
    known = {java_name for version in VERSIONS for java_name, _ in java_fields(version)}
    assert {name for codec in CODECS for name in java_names_of(codec.header_class)} <= known
    without = {codec.header_class.__name__ for codec in CODECS} - {
        codec.header_class.__name__ for codec in CODECS if java_names_of(codec.header_class)
    }
    assert without == {"NoFields", "HeartbeatResponse"}


@each_codec
@pytest.mark.parametrize("version", VERSIONS.values())
def test_a_header_comes_back_as_it_was(codec, version):
    header = sample(codec.header_class, version)
    assert codec.decode(codec.encode(header)) == header


@each_codec
def test_a_wire_name_stands_for_one_field(codec):
    names = list(codec.wire_names.values())
    assert len(set(names)) == len(names)


@each_codec
def test_a_mandatory_field_that_is_missing_is_named_in_rocketmqs_words(codec):
    ext_fields = codec.encode(sample(codec.header_class, 1000))
    for field in fields_of(codec.header_class):
        wire_name = codec.wire_names[field.name]
        rest = {name: value for name, value in ext_fields.items() if name != wire_name}
        if field.is_mandatory:
            with pytest.raises(FieldError) as caught:
                codec.decode(rest)
            assert caught.value.field == wire_name
            assert not caught.value.closes
            assert caught.value.code == 1
            assert caught.value.remark.endswith(f"the custom field <{wire_name}> is null")
            with pytest.raises(FieldError):
                codec.picker(field.name)(rest)
        else:
            assert getattr(codec.decode(rest), field.name) == field.default
            assert codec.picker(field.name)(rest) == (field.default,)


@each_codec
def test_fields_that_nobody_knows_are_ignored(codec):
    header = sample(codec.header_class, 1000)
    extra = {"bname2": "b", "ns": "n", "lo": "false", "__ZONE_NAME": "z", "Signature": "s"}
    assert codec.decode(codec.encode(header) | extra) == header


@each_codec
def test_a_number_that_is_none_is_refused_with_rocketmqs_remark(codec):
    ext_fields = codec.encode(sample(codec.header_class, 1000))
    for field in fields_of(codec.header_class):
        wire_name = codec.wire_names[field.name]
        if field.shape in (I32, I64):
            for wrong in ("x", "", "1.5", " 1", "1_0", "9" * 30, "9" * 10_000, "--1", "\ud800"):
                with pytest.raises(FieldError) as caught:
                    codec.decode(ext_fields | {wire_name: wrong})
                assert caught.value.remark.startswith(
                    f'java.lang.NumberFormatException: For input string: "{wrong[:1]}'
                    if wrong != "\ud800"
                    else "java.lang.NumberFormatException"
                )
                assert len(caught.value.remark) < 200
                caught.value.remark.encode()


def test_both_send_commands_carry_one_header_under_two_sets_of_names():
    header = sample(send.SendMessageRequest, 1000)
    long = send.SEND_MESSAGE.request.encode(header)
    short = send.SEND_MESSAGE_V2.request.encode(header)
    assert set(short) == set("abcdefghijklmn")
    assert sorted(long.values()) == sorted(short.values())
    assert send.SEND_MESSAGE.request.decode(long) == send.SEND_MESSAGE_V2.request.decode(short)
    assert (short["b"], short["m"]) == (long["topic"], long["batch"])


@pytest.mark.parametrize(
    ("codec", "left_out"),
    [
        # Each was left out of a request to the brokers of 4.9.7 and 5.5.0, and both served it.
        (send.SEND_MESSAGE_V2.request, {"a", "c", "d"}),
        (send.SEND_MESSAGE.request, {"producerGroup", "defaultTopic", "defaultTopicQueueNums"}),
        (query.QUERY_MESSAGE.request, {"topic", "key"}),
        (pull.PULL_MESSAGE.request, {"commitOffset", "suspendTimeoutMillis", "subVersion"}),
        (offset.QUERY_CONSUMER_OFFSET.request, {"consumerGroup"}),
        (topic.UPDATE_AND_CREATE_TOPIC.request, {"defaultTopic", "order"}),
    ],
    ids=lambda value: getattr(getattr(value, "header_class", None), "__name__", None),
)
def test_a_request_is_read_without_what_rocketmqs_brokers_do_without(codec, left_out):
    ext_fields = codec.encode(sample(codec.header_class, 1000))
    assert left_out <= set(ext_fields)
    for name in left_out:
        codec.decode({other: value for other, value in ext_fields.items() if other != name})
