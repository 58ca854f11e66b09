"""A message is checked before it is sent, and says what is wrong with it.

A message is sent again as it was, or not at all.
"""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

import rocketlens
from rocketlens.client.send.message import Message, encoded_properties, message_again
from rocketlens.errors import BadInput, MessageIllegal, WrongType
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import check_topic
from tests.support.async_tests import within
from tests.support.fake_cluster import ask, sends


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        ("a", "a"),
        ("a b", "a b"),
        (["a", "b"], "a b"),
        (("订单-1",), "订单-1"),
        ([], None),
        ("", None),
    ],
)
def test_keys_are_one_text_or_a_collection(given, joined):
    assert Message("T", "x", keys=given).properties.get("KEYS") == joined


@pytest.mark.parametrize("keys", [["a b"], [""], [1], ["a", " "], ["a\x01b"], "a\x02"])
def test_a_key_that_would_be_another_is_refused(keys):
    with pytest.raises(BadInput):
        Message("T", "x", keys=keys)


@pytest.mark.parametrize("topic", ["", " ", "a b", "../../x", "x" * 128, "é", "a\n"])
def test_a_topic_that_rocketmq_refuses_is_refused(topic):
    with pytest.raises(MessageIllegal):
        Message(topic, "x")


@pytest.mark.parametrize("body", [5, True, 1.5, None, [1, 2], {"a": 1}])
def test_a_body_of_another_type_than_text_or_bytes_is_refused(body):
    """``bytes(5)`` would be five NUL bytes."""
    with pytest.raises(TypeError, match="body must be bytes or a str"):
        Message("Orders", body)


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x"), "x"])
def test_a_body_is_text_or_anything_that_holds_bytes(body):
    assert Message("Orders", body).body == b"x"


@pytest.mark.parametrize("topic", [None, 7, b"Orders", ["Orders"]])
def test_a_topic_that_is_no_text_is_refused_by_its_type(topic):
    with pytest.raises(WrongType, match="topic must be a str, not"):
        Message(topic, "x")


@pytest.mark.parametrize(
    "options", [{"keys": 5}, {"flag": "1"}, {"delay_level": "3"}, {"deliver_at": 1.5}]
)
def test_an_option_of_another_type_is_refused(options):
    with pytest.raises(WrongType, match=f"{next(iter(options))} must be"):
        Message("Orders", "x", **options)


def test_topics_of_groups_may_be_longer():
    check_topic("%RETRY%" + "g" * 248)
    with pytest.raises(MessageIllegal):
        check_topic("%RETRY%" + "g" * 249)


@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY", "DELAY", "TIMER_DELAY_MS", "", " ", "a\x01"])
def test_names_of_properties_that_are_not_the_users_are_refused(name):
    with pytest.raises(BadInput):
        Message("T", "x", properties={name: "v"})


@pytest.mark.parametrize("value", ["", " ", "a\x02b", "\ud800", 5])
def test_values_that_would_be_lost_are_refused(value):
    with pytest.raises(BadInput):
        Message("T", "x", properties={"name": value})


@pytest.mark.parametrize(
    "options",
    [
        {"flag": 2**31},
        {"delay_level": 19},
        {"delay_level": -1},
        {"tags": ""},
        {"deliver_at": 1_795_357_009},
        {"deliver_at": -1},
        {"deliver_at": 1_795_357_009_000, "delay_level": 1},
    ],
)
def test_numbers_out_of_range_are_refused(options):
    with pytest.raises(BadInput):
        Message("T", "x", **options)


def test_a_message_says_what_it_was_given():
    message = Message("T", "ü", tags="A", keys="k", flag=-1, delay_level=3, unique_key="U")
    assert (message.body, message.tags, message.keys) == ("ü".encode(), "A", ("k",))
    assert (message.flag, message.delay_level, message.unique_key) == (-1, 3, "U")
    assert "2 bytes" in repr(message)
    assert Message("T", "x", wait_store=False).properties == {"WAIT": "false"}


@pytest.mark.parametrize(
    "deliver_at", [1_795_357_009_123, datetime(2026, 11, 22, 14, 16, 49, 123_000, tzinfo=UTC)]
)
def test_a_message_has_its_delivery_time_where_rocketmq_has_it(deliver_at):
    message = Message("T", "x", deliver_at=deliver_at)
    assert message.properties == {"WAIT": "true", "TIMER_DELIVER_MS": "1795357009123"}


def test_properties_longer_than_a_record_holds_are_refused():
    with pytest.raises(MessageIllegal, match="32767"):
        encoded_properties({"name": "v" * 32_767})
    text = encoded_properties({"a": "1", "b": "2"})
    assert props.parse(text) == {"a": "1", "b": "2"}


def test_a_message_that_was_stored_is_not_sent_and_a_text_neither(golden):
    """It has the unique key of the first, and two messages would have one."""
    producer = rocketlens.SyncProducer("127.0.0.1:1")
    with rocketlens.open_store(golden("5.5.0").store) as store:
        (stored,) = store.find("PayTopic/1/0")
    again = "one that was stored is sent again as a new one"
    with producer:
        for message, said in (
            (stored, again),
            ("hello", r"must be a rocketlens\.Message, not str"),
        ):
            with pytest.raises(WrongType, match=said):
                producer.send(message)


@within(ask)
async def test_a_message_is_sent_again_with_everything_it_had(cluster, admin, /):
    (broker,) = cluster.masters
    broker.store("T", b"x" * 9, keys="k1 k2", unique_key="U1", flag=7, more={"colour": "red"})
    found = await admin.view_message("T", "U1")
    for _ in range(2):
        result = await admin.resend(found)
        assert result.msg_id == "U1"
    assert len(sends(broker)) == 2
    again = broker.records[-1]
    first = broker.records[0]
    assert (again.topic, again.body, again.flag) == (first.topic, first.body, first.flag)
    assert b"colour\x01red" in again.properties
    assert b"KEYS\x01k1 k2" in again.properties
    assert again.physical_offset != first.physical_offset


@within(ask)
async def test_what_cannot_be_sent_as_it_was_is_refused(cluster, admin, /):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1", more={"TRAN_MSG": "true"})
    found = await admin.view_message("T", "U1")
    with pytest.raises(BadInput, match="transaction"):
        await admin.resend(found)
    with pytest.raises(BadInput, match="cannot be sent again"):
        message_again(replace(found, body_error="not zlib"))
    assert sends(broker) == []
