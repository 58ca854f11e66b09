"""The string form of properties, keys, and the order in which Java writes them."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.model import properties as props
from rocketlens.model.text.java import NOT_AN_INTEGER, string_hash, utf8_parse_int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\1b\2", {"a": "b"}),
        ("a\1b", {"a": "b"}),
        ("a\1b\2c\1d", {"a": "b", "c": "d"}),
        ("a\1b\2c\1d\2", {"a": "b", "c": "d"}),
        ("a\1b\2a\1c\2", {"a": "c"}),
        ("a\1\2", {}),
        ("\1b\2", {}),
        ("\1\2", {}),
        ("\2\2\2", {}),
        ("ab\2", {}),
        ("a\1b\1c\2", {"a": "b\1c"}),
        ("a\2\1b\2c\1d", {"c": "d"}),
        ("a\1\2b\1c", {"b": "c"}),
        ("a\1b\2a\1\2", {"a": "b"}),
        ("KEYS\1 x \2", {"KEYS": " x "}),
        ("a\1b\2c", {"a": "b"}),
        ("a\1b\2c\1", {"a": "b"}),
        ("订\1单\2🚀\1🚀", {"订": "单", "🚀": "🚀"}),
    ],
)
def test_properties_are_read_as_rocketmq_reads_them(text, expected):
    assert props.parse(text) == expected


def test_properties_keep_the_order_of_first_appearance():
    assert list(props.parse("b\x011\2a\x012\2b\x013\2").items()) == [("b", "3"), ("a", "2")]


@pytest.mark.parametrize(
    ("trailing_separator", "text"), [(True, "a\1b\2c\1d\2"), (False, "a\1b\2c\1d")]
)
def test_both_separator_styles_are_written(trailing_separator, text):
    written = props.format_properties(
        {"a": "b", "": "x", "e": "", "c": "d"}, trailing_separator=trailing_separator
    )
    assert written == text
    assert props.format_properties({}, trailing_separator=trailing_separator) == ""


@pytest.mark.parametrize("piece", ["\2", "\1", "a\1\2", "a\2", "a\1b\2"])
def test_a_string_of_a_million_separators_takes_no_longer_than_any_other(piece):
    # Quadratic work on this would take an hour.
    assert len(props.parse(piece * 1_000_000)) <= 1


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (None, ()),
        ("", ()),
        ("   ", ()),
        ("a", ("a",)),
        ("  spaced   keys  1", ("spaced", "keys", "1")),
        ("a a", ("a", "a")),
        ("a\tb\u3000c\nd", ("a\tb\u3000c\nd",)),
        ("🚀 订单", ("🚀", "订单")),
    ],
)
def test_keys_are_cut_at_single_spaces_and_repeats_stay(text, keys):
    assert props.split_keys(text) == keys


# Where names stand in a table of 128, as seen in properties that RocketMQ 5 wrote.
BUCKETS = {
    "INSTANCE_ID": 15,
    "ORIGIN_MESSAGE_ID": 20,
    "RETRY_TOPIC": 21,
    "MSG_REGION": 23,
    "UNIQ_KEY": 28,
    "CLUSTER": 28,
    "PGROUP": 29,
    "DELAY": 61,
    "TAGS": 62,
    "TRAN_MSG": 73,
    "KEYS": 87,
    "WAIT": 93,
    "TRACE_ON": 100,
    "REAL_TOPIC": 113,
    "REAL_QID": 127,
}


def test_java_order_is_the_order_of_the_buckets():
    assert list(props.java_order(dict.fromkeys(reversed(BUCKETS)))) == [
        # Two in one bucket keep the order they were given in.
        name
        if name not in ("UNIQ_KEY", "CLUSTER")
        else {"UNIQ_KEY": "CLUSTER"}.get(name, "UNIQ_KEY")
        for name in BUCKETS
    ]
    for name, bucket in BUCKETS.items():
        hashed = string_hash(name) & 0xFFFFFFFF
        assert (hashed ^ hashed >> 16) & 127 == bucket


def test_java_order_of_a_small_table_differs():
    names = dict.fromkeys(["TAGS", "WAIT", "UNIQ_KEY", "KEYS"], "x")
    assert list(props.java_order(names, 16)) == ["KEYS", "UNIQ_KEY", "WAIT", "TAGS"]
    assert list(props.java_order(names)) == ["UNIQ_KEY", "TAGS", "KEYS", "WAIT"]


def test_the_table_doubles_above_three_quarters():
    twelve = dict.fromkeys([*"abcdefghijk", "KEYS"], "x")
    assert list(props.java_order(twelve, 16)) == sorted(
        twelve, key=lambda name: (string_hash(name) ^ string_hash(name) >> 16) & 15
    )
    thirteen = {**twelve, "TAGS": "x"}
    assert props.java_order(thirteen, 16) == thirteen
    assert list(props.java_order(thirteen, 16)) == list(props.java_order(thirteen, 32))
    assert list(props.java_order(thirteen, 1)) == list(props.java_order(thirteen, 32))


def test_values_stay_with_their_names():
    assert props.java_order({"TAGS": "t", "KEYS": "k"}) == {"TAGS": "t", "KEYS": "k"}


@pytest.mark.parametrize("table_size", [0, -16, 3, 100])
def test_a_size_that_no_java_table_has_is_refused(table_size):
    with pytest.raises(BadInput, match="power of two"):
        props.java_order({}, table_size)


def test_every_name_that_rocketmq_keeps_from_its_users_is_a_system_property():
    """``MessageConst.STRING_HASH_SET`` of 5.5.0, which has all of 4.9.7's."""
    names = """
    1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG
    CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO
    INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG
    MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME
    REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL
    TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS
    TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON TRANSFER_FLAG TRAN_MSG
    TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT _SYS_MSG_PRIORITY_ __BORNHOST __CRC32# __LITE_TOPIC
    """
    assert set(names.split()) <= props.SYSTEM_PROPERTIES


@pytest.mark.parametrize(
    ("text", "level"),
    [
        *(("3", 3), ("+3", 3), ("003", 3), ("\u0663", 3), ("-3", -3), ("2147483647", 2**31 - 1)),
        *(("", 0), ("x", 0), (" 3", 0), ("2147483648", 0), ("9" * 5000, 0), ("\u00b3", 0)),
        *(("\ud800", 0), ("+", 0)),
    ],
)
def test_the_delay_level_is_what_java_and_the_kernels_read(text, level):
    assert props.delay_level({props.DELAY: text}) == level
    encoded = text.encode("utf-8", "replace")
    parsed = utf8_parse_int(encoded, 0, len(encoded))
    assert level == (0 if parsed == NOT_AN_INTEGER else parsed)
    assert props.delay_level({}) == 0
