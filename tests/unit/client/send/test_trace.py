"""Traces are written in batches, and whatever becomes of them, sends and listeners go on."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send import trace as tracing
from rocketlens.client.send.message import Message
from rocketlens.client.send.send_result import SendResult, SendStatus
from rocketlens.client.send.trace import (
    EXCEPTION,
    FAILED,
    MAX_TRACE_BATCH,
    MAX_TRACE_BYTES,
    MAX_TRACE_KEYS_BYTES,
    MAX_TRACE_QUEUE,
    SUCCESS,
    TIME_OUT,
    TraceWriter,
    trace_topic_of,
)
from rocketlens.errors import BadInput, SendFailed
from rocketlens.formats.commitlog_record import message_of
from rocketlens.formats.trace_body import TraceType, decode
from rocketlens.model.properties import format_properties
from tests.unit.conftest import NOON_MS, record

QUEUE = MessageQueue("T", "broker-a", 0)


class Broker:
    """A producer whose messages are kept, or which fails."""

    def __init__(self, error=None):
        self.error, self.messages, self.is_closed = error, [], False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.is_closed = True

    async def send(self, message, *, timeout_s):
        assert timeout_s > 0
        if self.error == "hangs":
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.messages.append(message)

    @property
    def records(self):
        damage = []
        found = [each for message in self.messages for each in decode(message.body, damage)]
        assert damage == []
        return found


def writing(broker, what, topic="RMQ_SYS_TRACE_TOPIC", namespace=""):
    """Do something with a writer, close it, and give it."""

    async def scenario():
        writer = TraceWriter(
            topic, lambda: broker, group="g", namespace=namespace, now_ms=lambda: NOON_MS + 9
        )
        await (what(writer) or asyncio.sleep(0))
        await writer.close()
        return writer

    return asyncio.run(scenario())


def message(**properties):
    given = {"UNIQ_KEY": "U1", "KEYS": "k1 k2", "MSG_REGION": "R", **properties}
    return message_of(record(0, properties=format_properties(given).encode(), reconsume_times=2))


def result(status=SendStatus.SEND_OK, ids="U1", **given):
    return SendResult(status, ids, "OFF1,OFF2" if "," in ids else "OFF", QUEUE, 0, **given)


def test_a_send_is_one_record_found_by_its_id_and_keys():
    broker = Broker()
    sent = Message("T", b"hello", tags="A", keys=["k1", "k2"])
    writer = writing(broker, lambda w: w.sent([sent], result(), "10.0.0.5:10911", NOON_MS))
    [stored] = broker.messages
    assert (stored.topic, stored.properties["KEYS"]) == ("RMQ_SYS_TRACE_TOPIC", "U1 k1 k2")
    [pub] = broker.records
    assert (pub.trace_type, pub.msg_id, pub.offset_msg_id) == (TraceType.PUB, "U1", "OFF")
    assert (pub.timestamp_ms, pub.cost_ms, pub.is_success) == (NOON_MS, 9, True)
    assert (pub.group, pub.topic, pub.tags, pub.keys) == ("g", "T", "A", "k1 k2")
    assert (pub.store_host, pub.body_length, pub.message_type) == (
        "10.0.0.5:10911",
        5,
        "Normal_Msg",
    )
    assert (writer.dropped, broker.is_closed) == (0, True)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [({"TRAN_MSG": "true"}, "Trans_Msg_Half"), ({"DELAY": "3"}, "Delay_Msg")],
)
def test_the_type_of_a_message_is_told(properties, kind):
    broker, sent = Broker(), Message("T", b"")
    for name, value in properties.items():
        sent.put(name, value)
    writing(broker, lambda w: w.sent([sent], result(SendStatus.FLUSH_DISK_TIMEOUT), "a:1", 0))
    assert [(each.message_type, each.is_success) for each in broker.records] == [(kind, False)]


def test_each_message_of_a_batch_has_a_record():
    broker = Broker()
    batch = [Message("T", b"1"), Message("T", b"2")]
    writing(broker, lambda w: w.sent(batch, result(ids="U1,U2"), "a:1", NOON_MS))
    assert [(each.msg_id, each.offset_msg_id) for each in broker.records] == [
        ("U1", "OFF1"),
        ("U2", "OFF2"),
    ]


def test_traces_are_not_traced_nor_what_brokers_do_not_want_traced():
    broker, own = Broker(), Message("RMQ_SYS_TRACE_TOPIC", b"")

    def what(writer):
        writer.sent([own], result(), "a:1", 0)
        writer.sent([Message("T", b"")], result(trace_on=False), "a:1", 0)
        assert writer.start_consume([message(TRACE_ON="false")]).messages == ()

    writing(broker, what)
    assert broker.messages == []
    assert not broker.is_closed


def test_a_clock_that_jumps_leaves_a_cost_that_java_can_read():
    broker = Broker()
    writing(broker, lambda w: w.sent([Message("T", b"")], result(), "a:1", 0))
    writing(broker, lambda w: w.sent([Message("T", b"")], result(), "a:1", 2 * NOON_MS))
    assert [each.cost_ms for each in broker.records] == [limits.MAX_INT, 0]


@pytest.mark.parametrize("code", [SUCCESS, TIME_OUT, EXCEPTION, FAILED])
def test_a_call_of_a_listener_has_a_begin_and_an_end(code):
    broker = Broker()
    writing(broker, lambda w: w.end_consume(w.start_consume([message()]), code))
    before, after = broker.records
    assert (before.trace_type, before.retry_times, before.region_id) == (
        TraceType.SUB_BEFORE,
        2,
        "R",
    )
    assert (after.trace_type, after.context_code, after.is_success) == (
        TraceType.SUB_AFTER,
        code,
        code == SUCCESS,
    )
    assert before.request_id == after.request_id
    assert {before.group, after.group, before.msg_id, after.msg_id} == {"g", "U1"}


def test_the_end_of_a_transaction_names_the_topic_that_it_is_for():
    broker = Broker()
    half = message(REAL_TOPIC="ns%T")

    def what(writer):
        writer.transaction_ended(
            half,
            "U1",
            state="COMMIT_MESSAGE",
            broker_address="a:1",
            transaction_id="U1",
            from_check=True,
        )

    writing(broker, what, namespace="ns")
    [end] = broker.records
    assert (end.topic, end.transaction_state, end.from_transaction_check) == (
        "T",
        "COMMIT_MESSAGE",
        True,
    )


def test_many_records_are_few_messages_within_bounds():
    broker, count = Broker(), 250
    long_keys = message(KEYS=" ".join("k" * 200 + str(n) for n in range(30)))

    def what(writer):
        for _ in range(count):
            writer.start_consume([long_keys])
        huge = message(KEYS="x" * (MAX_TRACE_KEYS_BYTES + 1))
        writer.start_consume([huge])

    writer = writing(broker, what)
    assert (len(broker.records), writer.dropped) == (count + 1, 0)
    assert len(broker.messages) <= count // MAX_TRACE_BATCH + 15
    for each in broker.messages:
        assert len(each.body) <= MAX_TRACE_BYTES
        assert len(each.properties["KEYS"]) <= MAX_TRACE_KEYS_BYTES


def test_more_than_may_wait_are_dropped_and_counted():
    broker = Broker()

    def what(writer):
        for _ in range(MAX_TRACE_QUEUE + 3):
            writer.start_consume([message()])

    writer = writing(broker, what)
    assert (writer.dropped, len(broker.records)) == (3, MAX_TRACE_QUEUE)


@pytest.mark.parametrize("error", [SendFailed("no broker", []), RuntimeError("a defect"), "hangs"])
def test_a_trace_that_cannot_be_sent_harms_nothing_and_is_counted(error, monkeypatch):
    monkeypatch.setattr(tracing, "_SEND_TIMEOUT_S", 0.05)
    broker = Broker(error)
    writer = writing(broker, lambda w: w.end_consume(w.start_consume([message()]), SUCCESS))
    assert (writer.dropped, broker.is_closed) == (2, True)


def test_a_defect_of_the_trace_is_not_the_callers():
    def what(writer):
        writer.sent([Message("T", b"")], None, "a:1", 0)
        writer.sent([object()], result(), "a:1", 0)

    assert writing(Broker(), what).dropped >= 1


def test_nothing_is_taken_after_the_close():
    broker = Broker()

    async def scenario():
        writer = TraceWriter("t", lambda: broker, group="g", namespace="")
        await writer.close()
        writer.start_consume([message()])
        return writer.dropped

    assert asyncio.run(scenario()) == 1


def test_the_option_names_a_topic_and_is_off_by_default():
    assert trace_topic_of(trace=False) is None
    assert trace_topic_of(trace="") is None
    assert trace_topic_of(trace=True) == "RMQ_SYS_TRACE_TOPIC"
    assert trace_topic_of(trace="traces") == "traces"
    with pytest.raises(BadInput):
        trace_topic_of(trace="a topic")
