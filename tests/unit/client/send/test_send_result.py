"""A result has RocketMQ's fields and printed form."""

from rocketlens.client import Message
from rocketlens.formats.commitlog_record import message_of
from tests.support.async_tests import within
from tests.support.fake_cluster import produce, sends, stored


@within(produce)
async def test_a_result_has_the_fields_and_the_printed_form_of_java(cluster, producer, /):
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
