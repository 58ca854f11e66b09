"""Messages and batches as they go over the wire, and which of them do not."""

import pytest

from rocketlens.client import Compression, Message
from rocketlens.errors import BadInput, MessageIllegal
from rocketlens.formats.body_compression import decompress
from rocketlens.formats.commitlog_record import message_of
from tests.support.async_tests import within
from tests.support.fake_cluster import produce, sends, stored


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


@within(produce)
async def test_a_batch_is_stored_side_by_side_with_an_id_for_each(cluster, producer, /):
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


@within(produce)
async def test_batches_that_brokers_refuse_are_refused_before_anything_is_sent(
    cluster, producer, /
):
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
@within(produce)
async def test_messages_that_brokers_refuse_are_not_sent(cluster, producer, /, message):
    with pytest.raises(MessageIllegal):
        await producer.send(message)
    with pytest.raises(MessageIllegal):
        await producer.send_oneway(message)
    assert cluster.masters[0].asked == []
