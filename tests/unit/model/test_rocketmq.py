"""RocketMQ's words and configuration keys, and how arguments of callers are checked."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from docs.generate import key_table
from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.errors import BadInput, WrongType
from rocketlens.model import rocketmq
from rocketlens.model.arguments import check_int, check_text, epoch_ms
from rocketlens.model.config_keys import IP_ADDRESS, OURS, Configuration, key, keys_of
from rocketlens.model.rocketmq import (
    DELAY_LEVEL_COUNT,
    DELAY_LEVELS,
    group_problem,
    is_group_topic,
    is_system_topic,
    is_topic_name,
    parse_delay_levels,
    perm_text,
    topic_problem,
)
from rocketlens.model.rocketmq_config_keys import ROCKETMQ_KEYS, check_unknown_keys
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.net.tls import TlsConfig
from rocketlens.store.write.config import StoreConfig

LEGAL = "allowing only ^[%|a-zA-Z0-9_-]+$"
DEAD_LETTERS = "%DLQ%" + "g" * 251
DEAD_LETTERS_WORDS = (
    f"The specified topic is DLQ or Retry topic: {DEAD_LETTERS}, "
    "and it's longer than topic max length: 255"
)


@pytest.mark.parametrize("topic", ["a", "A-b_c|9", "t" * 127, "%DLQ%g", "%RETRY%" + "g" * 248])
def test_topics_that_rocketmq_creates_have_no_problem(topic):
    assert topic_problem(topic) is None
    assert is_topic_name(topic)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", f"The specified topic: a b, contains illegal characters, {LEGAL}"),
        ("../x", f"The specified topic: ../x, contains illegal characters, {LEGAL}"),
        ("a\n", f"The specified topic: a\n, contains illegal characters, {LEGAL}"),
        ("t" * 128, f"The specified topic: {'t' * 128}, is longer than topic max length: 127"),
        (DEAD_LETTERS, DEAD_LETTERS_WORDS),
        # A prefix stands in front, or it is none.
        (
            "t%RETRY%" + "g" * 120,
            f"The specified topic: t%RETRY%{'g' * 120}, is longer than topic max length: 127",
        ),
    ],
)
def test_a_refused_topic_is_refused_in_the_words_of_rocketmq_5_5(topic, words):
    assert topic_problem(topic) == words


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("g" * 120, None),
        ("", "The specified group is blank."),
        ("a/b", f"The specified group: a/b, contains illegal characters, {LEGAL}"),
        ("g" * 121, f"The specified group: {'g' * 121}, is longer than group max length: 120"),
    ],
)
def test_a_refused_group_is_refused_in_the_words_of_rocketmq_5_5(group, words):
    assert group_problem(group, limits.MAX_NEW_GROUP_CHARACTERS) == words


def test_a_group_that_a_client_brings_along_may_be_longer():
    assert group_problem("g" * 255) is None
    assert group_problem("g" * 256) is not None


def test_a_long_name_of_others_is_cut_in_the_words():
    assert len(topic_problem("/" * 1_000_000) or "") < 500
    assert len(group_problem("/" * 1_000_000) or "") < 500


def test_a_store_may_have_topics_that_cannot_be_created():
    """Brokers of other versions and configurations take longer names (``maxTopicLength``)."""
    assert is_topic_name("t" * 255)
    assert not any(map(is_topic_name, ("", "t" * 256, "a/b", "..", "a b", "a\n", "主题")))


def test_retry_topics_of_pop_have_a_plus():
    assert is_topic_name("%RETRY%group+topic")
    assert topic_problem("%RETRY%group+topic") is not None
    assert not any(map(is_topic_name, ("a+b", "%RETRY%a+", "%RETRY%a+b+c", "%RETRY%a+../b")))


def test_only_a_prefix_makes_a_topic_one_of_a_group():
    assert is_group_topic("%RETRY%g")
    assert is_group_topic("%DLQ%g")
    assert not is_group_topic("Orders%RETRY%g")
    assert not is_group_topic("%LMQ%g")


def test_the_topics_of_rocketmq_are_those_of_its_topic_validator():
    """``TopicValidator`` of 5.5.0, which has all of 4.9.7's."""
    not_allowed_send = {
        *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
    }
    others = {"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}
    assert not_allowed_send == rocketmq.NOT_ALLOWED_SEND_TOPICS
    assert not_allowed_send | others == rocketmq.SYSTEM_TOPICS


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_a_topic_of_rocketmq_is_a_system_topic(topic):
    assert is_system_topic(topic)


@pytest.mark.parametrize("topic", ["Orders", "RMQ_SYS_ORDERS", "%RETRY%rmq_sys_g", "tbw102"])
def test_a_topic_that_only_looks_like_one_of_rocketmq_is_not_a_system_topic(topic):
    assert not is_system_topic(topic)


def test_permissions_are_printed_as_rocketmq_prints_them():
    texts = [perm_text(perm) for perm in range(8)]
    assert texts == ["---", "--X", "-W-", "-WX", "R--", "R-X", "RW-", "RWX"]


def test_the_default_delay_levels_are_those_of_rocketmq():
    delays_ms = parse_delay_levels(DELAY_LEVELS)
    assert len(delays_ms) == DELAY_LEVEL_COUNT + 1
    assert (delays_ms[1], delays_ms[5], delays_ms[18]) == (1_000, 60_000, 7_200_000)


def test_delay_levels_are_read_with_the_digits_that_java_reads():
    assert parse_delay_levels(" 1s  ٢m 3h\t4d ") == (0, 1000, 120_000, 10_800_000, 345_600_000)
    assert parse_delay_levels("") == (0,)


@pytest.mark.parametrize("word", ["soon", "s", "5", "-5s", "5S", "²s", "1.5s", "9" * 11 + "d"])
def test_what_is_not_a_delay_is_refused(word):
    with pytest.raises(BadInput, match="is not a delay such as 10s, 5m or 2h"):
        parse_delay_levels(f"1s {word}")


def test_the_longest_delay_fits_64_bits_with_a_time_stamp():
    assert parse_delay_levels("9" * 10 + "d")[1] + 2**42 < 2**63


def test_a_huge_delay_is_refused_without_reading_its_number():
    with pytest.raises(BadInput, match="is not a delay"):
        parse_delay_levels("9" * 1_000_000 + "s")


def test_topic_names_are_those_that_rocketmq_takes():
    assert all(map(is_topic_name, ("A", "%RETRY%g", "a_b-9", "x" * 255, "%LMQ%a|b", "%LMQ%$p$a-7")))
    assert not any(map(is_topic_name, ("", "a/b", "..", "a b", "x" * 256, "主题", "a\n")))


NOON_MS = 1_790_000_000_000


def test_a_number_is_epoch_milliseconds():
    assert epoch_ms(NOON_MS, "begin") == NOON_MS
    assert epoch_ms(0, "begin") == 0


def test_a_datetime_is_that_moment_to_the_millisecond():
    moment = datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(microseconds=1999)
    assert epoch_ms(moment, "begin") == NOON_MS + 1
    assert epoch_ms(moment.astimezone(timezone(timedelta(hours=8))), "begin") == NOON_MS + 1


def test_a_datetime_without_a_zone_is_local_time():
    local = datetime.fromtimestamp(NOON_MS / 1000, UTC).astimezone().replace(tzinfo=None)
    assert epoch_ms(local, "begin") == NOON_MS


def test_epoch_seconds_are_refused_and_what_to_pass_is_said():
    with pytest.raises(BadInput, match=r"end=1790000000 looks like epoch seconds.*1790000000000"):
        epoch_ms(NOON_MS // 1000, "end")


def test_the_float_of_time_time_is_refused():
    with pytest.raises(TypeError, match=r"begin must be an int .*, a datetime.*in seconds"):
        epoch_ms(1_790_000_000.5, "begin")


@pytest.mark.parametrize("value", [True, "2026-11-20", None, b"1"])
def test_other_types_are_no_times(value):
    with pytest.raises(WrongType, match="begin must be"):
        epoch_ms(value, "begin")


def test_a_wrong_type_is_a_type_error_and_bad_input():
    for check, value in ((check_text, 5), (check_int, "5"), (check_int, True)):
        with pytest.raises(WrongType) as raised:
            check(value, "key")
        assert isinstance(raised.value, TypeError)
        assert isinstance(raised.value, BadInput)


TABLES = (BrokerConfig, StoreConfig, NameServerConfig, TlsConfig)


@dataclass(frozen=True, slots=True)
class Sample(Configuration):
    """A table with a key of each kind."""

    count: int = key(8, "Queues.", unit="queues", allowed=range(1, 17))
    isOn: bool = key(False, "Whether it is on.")  # noqa: N815
    mode: str = key("a|b", "Which way.", allowed=("a|b", "c"), since="5")
    address: str = key("", "Where.", allowed=IP_ADDRESS, since=OURS, name="the.address")
    not_a_key: int = 3


@pytest.mark.parametrize("table", TABLES)
def test_each_key_is_rocketmqs_or_said_to_be_ours(table):
    for row in keys_of(table):
        is_rocketmqs = row.name in ROCKETMQ_KEYS or row.name.startswith("tls.")
        assert row.since == OURS or is_rocketmqs, row.name
        assert row.meaning.endswith("."), row.name


@pytest.mark.parametrize("table", TABLES)
def test_a_table_written_and_read_again_is_the_same(table):
    values = {name: text for name, text in table().properties().items() if text}
    config, others = table.from_properties(values)
    assert (config, others) == (table(), {})


def test_no_key_is_in_two_tables_that_are_read_from_one_file():
    for tables in ((BrokerConfig, StoreConfig, TlsConfig), (NameServerConfig, TlsConfig)):
        names = [row.name for table in tables for row in keys_of(table)]
        assert len(names) == len(set(names))


def test_values_are_read_by_type_and_other_entries_given_back():
    config, others = Sample.from_properties(
        {"count": " 9 ", "isOn": "TRUE", "mode": "c", "the.address": "::1", "more": "1"}
    )
    assert config == Sample(9, True, "c", "::1")  # noqa: FBT003
    assert others == {"more": "1"}
    assert config.properties() == {"count": "9", "isOn": "true", "mode": "c", "the.address": "::1"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("count", "17", "count 17: give 1 to 16"),
        ("count", "1" * 20, "count '11111111111111111111' is not a whole number"),
        ("count", "\u0661", "count '\u0661' is not a whole number"),
        ("isOn", "yes", "isOn 'yes' is neither true nor false"),
        ("mode", "d", "mode 'd': give a|b or c"),
        ("mode", "a\0b", "mode has a zero character in it"),
        ("the.address", "localhost", "the.address 'localhost': give an IPv4 or IPv6 address"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_the_name_of_its_key(name, text, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        Sample.from_properties({name: text})


def test_a_value_is_checked_however_the_configuration_is_made():
    with pytest.raises(BadInput, match="count 0"):
        Sample(count=0)
    with pytest.raises(BadInput, match="count 0"):
        replace(Sample(), count=0)


def test_a_table_prints_itself_as_markdown():
    assert key_table(Sample).splitlines() == [
        "| Key | Type | Unit | Allowed | Default | RocketMQ | Meaning |",
        "|---|---|---|---|---|---|---|",
        "| `count` | integer | queues | 1 to 16 | `8` | 4.9, 5 | Queues. |",
        "| `isOn` | boolean |  |  | `false` | 4.9, 5 | Whether it is on. |",
        "| `mode` | text |  | a\\|b or c | `a\\|b` | 5 | Which way. |",
        "| `the.address` | text |  | an IPv4 or IPv6 address |  | no | Where. |",
    ]


@pytest.mark.parametrize("table", TABLES)
def test_each_key_has_one_row_of_seven_cells(table):
    rows = key_table(table).splitlines()[2:]
    assert len(rows) == len(keys_of(table))
    for row in rows:
        assert len(re.split(r"(?<!\\)\|", row)) == 9, row


def test_a_key_in_no_table_is_refused_when_it_looks_like_one():
    with pytest.raises(
        BadInput, match=r"x\.conf: counts is not a key of RocketMQ; did you mean count"
    ):
        check_unknown_keys({"counts": "1"}, ["count"], "x.conf")
    assert check_unknown_keys({"zzz": "1", "aclEnable": "false"}, ["count"], "x.conf") == (
        "aclEnable",
        "zzz",
    )
