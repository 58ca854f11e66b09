"""Messages on their way: checked, cut into batches, with a key, to a queue, over the wire."""

import os
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send import unique_key
from rocketlens.client.send.message import Message, encoded_properties, message_again
from rocketlens.client.send.producer import QueueChooser
from rocketlens.client.send.send_request import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    Compression,
    cut_batches,
)
from rocketlens.client.send.unique_key import (
    UniqueKeys,
    choose_address,
    in_java_order,
    local_addresses,
    new_unique_key,
    own_address,
)
from rocketlens.errors import BadInput, MessageIllegal, WrongType
from rocketlens.formats.body_compression import decompress
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model import properties as props
from rocketlens.model.message_id import UniqueKey, pack_address
from rocketlens.model.rocketmq import check_topic
from tests.support.fake_cluster import produce, sends, stored
from tests.support.patched import change_for


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


async def test_a_message_is_sent_again_with_everything_it_had(cluster, admin):
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


async def test_what_cannot_be_sent_as_it_was_is_refused(cluster, admin):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1", more={"TRAN_MSG": "true"})
    found = await admin.view_message("T", "U1")
    with pytest.raises(BadInput, match="transaction"):
        await admin.resend(found)
    with pytest.raises(BadInput, match="cannot be sent again"):
        message_again(replace(found, body_error="not zlib"))
    assert sends(broker) == []


# 2026-11-15 12:00 UTC, far from any month's end in any zone.
NOW_MS = 1_794_744_000_000


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["127.0.0.1", "10.0.0.5", "192.168.1.2"], "10.0.0.5"),
        (["10.0.0.5", "8.8.4.4"], "8.8.4.4"),
        (["10.0.0.5", "fd00::1"], "fd00::1"),
        (["fe80::1", "::1", "fec0::1", "172.16.0.9"], "172.16.0.9"),
        (["172.32.0.9", "2001:db8::1"], "172.32.0.9"),
        (["127.0.0.1"], "127.0.0.1"),
        (["0.0.0.0", "224.0.0.1", "10.0.0.255"], None),
        ([], None),
    ],
)
def test_the_address_is_the_one_that_java_takes(addresses, chosen):
    assert choose_address(addresses) == chosen


def test_interfaces_and_addresses_are_in_javas_order():
    kernel = [(1, "127.0.0.1"), (2, "10.0.0.1"), (2, "10.0.0.2"), (1, "::1"), (2, "fd00::1")]
    assert in_java_order(kernel) == ["fd00::1", "10.0.0.2", "10.0.0.1", "::1", "127.0.0.1"]


def test_this_machine_has_an_address():
    assert local_addresses()
    assert len(pack_address(own_address())) in {4, 16}


def test_keys_of_one_process_differ_in_the_counter_which_wraps():
    keys = UniqueKeys(address="10.0.0.1", now_ms=lambda: NOW_MS)
    made = [UniqueKey.decode(keys.make()) for _ in range(65_537)]
    assert [key.counter for key in made] == [*range(65_536), 0]
    assert {key.process_number for key in made} == {os.getpid() & 0xFFFF}
    assert len({(key.address, key.client_hash, key.month_millis) for key in made}) == 1


def test_time_counts_from_the_local_month_and_a_clock_set_back_is_borne():
    now = [NOW_MS]
    keys = UniqueKeys(address="10.0.0.1", now_ms=lambda: now[0])
    mid_month = UniqueKey.decode(keys.make()).month_millis
    assert 13 * 86_400_000 < mid_month < 16 * 86_400_000
    now[0] -= 1000
    assert UniqueKey.decode(keys.make()).month_millis == mid_month - 1000
    now[0] = NOW_MS - mid_month - 5
    assert UniqueKey.decode(keys.make()).month_millis == 0
    now[0] = NOW_MS + 20 * 86_400_000
    assert UniqueKey.decode(keys.make()).month_millis < 6 * 86_400_000


def test_an_ipv6_address_makes_keys_of_56_digits():
    assert len(UniqueKeys(address="fd00::2", now_ms=lambda: NOW_MS).make()) == 56
    assert new_unique_key() != new_unique_key()


def test_a_forked_process_makes_other_keys(monkeypatch):
    keys = UniqueKeys(address="10.0.0.1", now_ms=lambda: NOW_MS)
    before = UniqueKey.decode(keys.make())
    change_for(monkeypatch, unique_key, "os", getpid=lambda: before.process_number + 1)
    assert UniqueKey.decode(keys.make()).process_number != before.process_number


def queues(*names):
    return [MessageQueue("T", name, number) for name in names for number in range(2)]


def test_brokers_already_tried_come_last():
    chooser = QueueChooser()
    for _ in range(8):
        assert chooser.choose(queues("a", "b", "c"), ["a", "b"]).broker_name == "c"
        assert chooser.choose(queues("a", "b"), ["a", "b"]).broker_name == "a"
        assert chooser.choose(queues("a"), ["a"]).broker_name == "a"


def test_with_isolation_slow_and_failed_brokers_are_left_alone_for_a_while():
    now = [0.0]
    chooser = QueueChooser(isolates_latency=True, clock=lambda: now[0])

    def chosen():
        return {chooser.choose(queues("a", "b", "c")).broker_name for _ in range(12)}

    chooser.record("a", 0.01, failed=True)
    chooser.record("b", 0.6, failed=False)
    assert chosen() == {"c"}
    now[0] = 2.1
    assert chosen() == {"b", "c"}
    now[0] = 10.1
    assert chosen() == {"a", "b", "c"}
    for name, seconds in (("a", 20), ("b", 4), ("c", 6)):
        chooser.record(name, seconds, failed=False)
    assert chosen() == {"b"}, "the one that is back first"
    chooser.record("c", 0.001, failed=False)
    assert chosen() == {"c"}


def test_without_isolation_nothing_is_held_against_a_broker():
    chooser = QueueChooser(clock=lambda: 0.0)
    chooser.record("a", 99, failed=True)
    assert {chooser.choose(queues("a", "b")).broker_name for _ in range(8)} == {"a", "b"}


def batches_of(*messages):
    """The numbers of messages in batches."""
    rows = list(enumerate(messages))
    return [[number for number, _ in batch] for batch in cut_batches(rows, lambda row: row[1])]


def message(size=1, **more):
    return Message("Orders", b"x" * size, **more)


def test_a_batch_has_so_many_messages_and_bytes_at_most_and_all_are_in_order():
    many = batches_of(*[message()] * (2 * BATCH_MESSAGES + 1))
    assert [len(batch) for batch in many] == [BATCH_MESSAGES, BATCH_MESSAGES, 1]
    assert [number for batch in many for number in batch] == list(range(2 * BATCH_MESSAGES + 1))
    half = BATCH_BYTES // 2
    assert batches_of(message(half), message(half), message()) == [[0, 1], [2]]
    assert batches_of(message(BATCH_BYTES + 1), message(BATCH_BYTES), message()) == [[0], [1], [2]]
    assert batches_of() == []


def test_a_message_with_a_delay_is_alone():
    late, timed = message(delay_level=3), message(deliver_at=4_000_000_000_000)
    assert batches_of(message(), late, message(), message(), timed) == [[0], [1], [2, 3], [4]]


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_000])
@pytest.mark.parametrize("compression", [None, *Compression])
def test_bodies_of_4_kib_and_more_are_compressed(size, compression):
    flags = {Compression.ZLIB: 0x301, Compression.LZ4: 0x101, Compression.ZSTD: 0x201, None: 0}

    async def scenario(cluster, producer):
        body = b"ab" * size
        await producer.send(Message("T", body[:size]))
        (record,) = stored(*cluster.masters)
        expected = flags[compression] if size >= 4096 else 0
        assert record.sys_flag == expected
        assert (len(record.body) < size) == bool(expected)
        assert decompress(record.body, record.sys_flag) == body[:size]

    produce(scenario, compression=compression)


async def test_a_batch_is_stored_side_by_side_with_an_id_for_each(cluster, producer):
    messages = [Message("T", b"x" * 5000, keys=f"k{n}", flag=n) for n in range(10)]
    result = await producer.send_batch(messages)
    records = stored(*cluster.masters)
    assert [record.flag for record in records] == list(range(10))
    assert [record.sys_flag for record in records] == [0] * 10
    assert result.msg_ids == tuple(message.unique_key for message in messages)
    # What the batch's header says is appended to each member, and must not hide its own.
    assert result.msg_ids == tuple(message_of(record).unique_key for record in records)
    assert result.offset_msg_ids == tuple(record.offset_msg_id for record in records)
    assert {record.queue_id for record in records} == {result.message_queue.queue_id}
    assert result.queue_offset == 0
    (header,) = sends(cluster.masters[0])
    assert header.batch


async def test_batches_that_brokers_refuse_are_refused_before_anything_is_sent(cluster, producer):
    one = Message("T", "x")
    for other in (
        Message("U", "x"),
        Message("T", "x", delay_level=1),
        Message("T", "x", deliver_at=1_795_357_009_123),
        Message("T", "x", wait_store=False),
        Message("T", b"x" * 4_194_000),
    ):
        with pytest.raises(MessageIllegal):
            await producer.send_batch([one, one, other, Message("T", b"y" * 400)])
    with pytest.raises(BadInput):
        await producer.send_batch([])
    retry = Message("%RETRY%g", "x")
    with pytest.raises(MessageIllegal):
        await producer.send_batch([retry, retry])
    assert cluster.masters[0].asked == []


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b""),
        Message("T", b"x" * (4 * 1024 * 1024 + 1)),
        Message("SCHEDULE_TOPIC_XXXX", "x"),
    ],
    ids=["empty", "large", "system"],
)
async def test_messages_that_brokers_refuse_are_not_sent(cluster, producer, message):
    with pytest.raises(MessageIllegal):
        await producer.send(message)
    with pytest.raises(MessageIllegal):
        await producer.send_oneway(message)
    assert cluster.masters[0].asked == []


async def test_a_result_has_the_fields_and_the_printed_form_of_java(cluster, producer):
    message = Message("T", "hello", tags="A", keys=["k1", "k2"])
    result = await producer.send(message)
    (record,) = stored(*cluster.masters)
    assert result.msg_id == message.unique_key == message_of(record).unique_key
    assert result.offset_msg_id == record.offset_msg_id
    queue = result.message_queue
    assert str(result) == (
        f"SendResult [sendStatus=SEND_OK, msgId={result.msg_id}, "
        f"offsetMsgId={result.offset_msg_id}, messageQueue=MessageQueue [topic=T, "
        f"brokerName=broker-a, queueId={queue.queue_id}], queueOffset=0, recallHandle=null]"
    )
    assert result.text(with_recall_handle=False).endswith("queueOffset=0]")
    assert (result.region_id, result.trace_on) == ("DefaultRegion", True)
    (header,) = sends(cluster.masters[0])
    assert (header.producer_group, header.default_topic) == ("g", "TBW102")
    assert (header.default_topic_queue_nums, header.broker_name) == (4, "broker-a")
    # In the order of Java's HashMap of 16 buckets.
    assert list(message_of(record).properties) == ["KEYS", "UNIQ_KEY", "WAIT", "TAGS"]
