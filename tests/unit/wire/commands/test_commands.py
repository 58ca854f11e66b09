"""Commands, their codes, and the headers they declare, against the classes of RocketMQ."""

import pytest

from rocketlens.errors import FieldError
from rocketlens.wire import codes
from rocketlens.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketlens.wire.command import ONE_WAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.commands.brokers import UPDATE_AND_CREATE_TOPIC
from rocketlens.wire.commands.groups import QUERY_CONSUMER_OFFSET
from rocketlens.wire.commands.messages import (
    PULL_MESSAGE,
    QUERY_MESSAGE,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SendMessageRequest,
)
from rocketlens.wire.declare import BOOLEAN, INT32, INT64, TEXT, fields_of
from tests.support.wire_samples import (
    COMMANDS,
    GENERIC_FIELDS,
    HEADERS,
    VERSIONS,
    fields_of_java,
    sample,
    vectors_of,
)

JAVA_TYPES = {
    "String": TEXT,
    "BoundaryType": TEXT,
    "Integer": INT32,
    "int": INT32,
    "Long": INT64,
    "long": INT64,
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


def test_every_class_has_the_fields_and_types_of_rocketmqs_class():
    older, newer = (fields_of_java(version) for version in VERSIONS)
    assert len(older.keys() | newer.keys()) > 30
    for java_name in older.keys() | newer.keys():
        codec = HEADERS[java_name]
        rows = {codec.wire_names[field.name]: field for field in fields_of(codec.header_class)}
        theirs = {**older.get(java_name, {}), **newer.get(java_name, {})}
        assert set(rows) - NOT_IN_JAVA <= set(theirs), java_name
        assert set(theirs) - GENERIC_FIELDS - RENAMED <= set(rows), java_name
        for version in (older, newer):
            for name, row in rows.items():
                java_type = version.get(java_name, {}).get(name)
                if java_type is not None:
                    assert row.shape == JAVA_TYPES[java_type.rstrip("!")], name
                # We ask for no more than each version declares.
                if java_name in version and not (java_type or "").endswith("!"):
                    assert not row.is_mandatory, (java_name, name)


def test_every_header_class_is_one_of_rocketmqs_or_says_that_it_has_none():
    # RocketMQ 5 has none for the accounts of 4.
    known = {java_name for version in VERSIONS for java_name in fields_of_java(version)}
    assert {name for codec in CODECS for name in codec.header_class.java_names} <= known
    without = {codec.header_class.__name__ for codec in CODECS} - {
        codec.header_class.__name__ for codec in CODECS if codec.header_class.java_names
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
    extra = {"bname2": "b", "ns": "n", "__ZONE_NAME": "z", "Signature": "s"}
    assert codec.decode(codec.encode(header) | extra) == header


@each_codec
def test_a_number_that_is_none_is_refused_with_rocketmqs_remark(codec):
    ext_fields = codec.encode(sample(codec.header_class, 1000))
    for field in fields_of(codec.header_class):
        wire_name = codec.wire_names[field.name]
        if field.shape in (INT32, INT64):
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
    header = sample(SendMessageRequest, 1000)
    long = SEND_MESSAGE.request.encode(header)
    short = SEND_MESSAGE_V2.request.encode(header)
    assert set(short) == set("abcdefghijklmn")
    assert sorted(long.values()) == sorted(short.values())
    assert SEND_MESSAGE.request.decode(long) == SEND_MESSAGE_V2.request.decode(short)
    assert (short["b"], short["m"]) == (long["topic"], long["batch"])


@pytest.mark.parametrize(
    ("codec", "left_out"),
    [
        # Each was left out of a request to the brokers of 4.9.7 and 5.5.0, and both served it.
        (SEND_MESSAGE_V2.request, {"a", "c", "d"}),
        (SEND_MESSAGE.request, {"producerGroup", "defaultTopic", "defaultTopicQueueNums"}),
        (QUERY_MESSAGE.request, {"topic", "key"}),
        (PULL_MESSAGE.request, {"commitOffset", "suspendTimeoutMillis", "subVersion"}),
        (QUERY_CONSUMER_OFFSET.request, {"consumerGroup"}),
        (UPDATE_AND_CREATE_TOPIC.request, {"defaultTopic", "order"}),
    ],
    ids=lambda value: getattr(getattr(value, "header_class", None), "__name__", None),
)
def test_a_request_is_read_without_what_rocketmqs_brokers_do_without(codec, left_out):
    ext_fields = codec.encode(sample(codec.header_class, 1000))
    assert left_out <= set(ext_fields)
    for name in left_out:
        codec.decode({other: value for other, value in ext_fields.items() if other != name})


def test_commands_are_found_by_their_code():
    assert COMMANDS[RequestCode.PULL_MESSAGE] is PULL_MESSAGE
    assert COMMANDS[RequestCode(320)] is SEND_BATCH_MESSAGE
    for code, command in COMMANDS.items():
        assert command.code is code
    assert repr(PULL_MESSAGE) == "Command(PULL_MESSAGE)"


@pytest.mark.parametrize("other_bits", [0, 4, -(2**31)])
def test_the_second_bit_of_the_flag_tells_one_way_requests(other_bits):
    assert not RemotingCommand(10, flag=other_bits).is_one_way
    assert not RemotingCommand(0, flag=other_bits | RESPONSE_FLAG).is_one_way
    assert RemotingCommand(10, flag=other_bits | ONE_WAY_FLAG).is_one_way
    assert (RESPONSE_FLAG, ONE_WAY_FLAG) == (1, 2)


# 4.9's access control; 5.x gave these numbers another meaning.
LEFT_OUT = {
    "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
    "DELETE_ACL_CONFIG_FAILED",
    "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ours", [RequestCode, ResponseCode])
def test_codes_are_those_of_rocketmq(version, ours):
    [words] = [words for words in vectors_of(version, "codes") if words[0] == ours.__name__]
    theirs = dict(word.split("=") for word in words[1:])
    assert theirs
    for name, number in theirs.items():
        if ours is RequestCode or name in ResponseCode.__members__:
            assert name in LEFT_OUT or ours[name] == int(number)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_has_the_number_that_rocketmq_gave_it(version):
    [names] = vectors_of(version, "versions")
    assert list(codes.VERSION_NAMES) == names
    for number, name in enumerate(names):
        assert codes.version_name(number) == name
        assert codes.version_number(name) == number


def test_releases_are_known_under_the_names_people_write():
    assert codes.version_number("4.9.7") == 407
    assert codes.version_number("5.5.0") == 513
    assert codes.version_number("5.5.1-SNAPSHOT") == 514
    with pytest.raises(KeyError):
        codes.version_number("6.0.0")


def test_from_4_0_0_on_the_number_follows_from_the_release():
    for major, minor, patch in ((4, 0, 0), (4, 9, 7), (5, 0, 0), (5, 5, 0), (5, 9, 9)):
        number = 213 + 2 * (major * 100 + minor * 10 + patch - 400)
        assert codes.version_number(f"{major}.{minor}.{patch}") == number


@pytest.mark.parametrize("number", [-1, -(2**31), 613, 2**31 - 1])
def test_a_number_nobody_knows_is_a_higher_version(number):
    assert codes.version_name(number) == "HIGHER_VERSION"


def test_languages_have_their_numbers_on_the_wire():
    assert [language.name for language in LanguageCode][:5] == [
        "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI",
    ]  # fmt: skip
    assert codes.LANGUAGE_OF_NUMBER[13] is LanguageCode.NODE_JS
