"""Offsets are moved to a time, forward only with force, and the result says to where."""

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import BrokerError, TopicNotFound
from rocketlens.net.channel import Response
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    OffsetWrapper,
    ResetOffsets,
    TopicOffset,
    TopicStatsTable,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, ask
from tests.unit.client.admin.test_group_calls import GROUP, answer


def queue_of(number, topic="T", broker="broker-a"):
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def commits(broker):
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    return {each.queue_id: each.commit_offset for asked, each in broker.asked if asked == code}


def prepare(broker, offsets):
    for number in range(3):
        broker.store("T", b"%d" % number, queue_id=0)
    table = {
        queue_of(number): OffsetWrapper(broker_offset=3, consumer_offset=offset)
        for number, offset in offsets.items()
    }
    table[queue_of(0, "Other")] = OffsetWrapper(consumer_offset=9)
    body = write_body(ConsumeStats(offset_table=table))
    answer(broker, RequestCode.GET_CONSUME_STATS, Response(body=body))
    answer(broker, RequestCode.UPDATE_CONSUMER_OFFSET, Response())
    status = {
        queue_of(number): TopicOffset(min_offset=0, max_offset=3 * (number == 0))
        for number in range(4)
    }
    body = write_body(TopicStatsTable(offset_table=status))
    answer(broker, RequestCode.GET_TOPIC_STATS_INFO, Response(body=body))


@within(ask, masters=2)
async def test_running_clients_are_told_a_time_and_say_where_they_go_on(cluster, admin, /):
    for number, broker in enumerate(cluster.masters):
        offsets = {queue_of(0, broker=broker.name): number + 1}
        body = write_body(ResetOffsets(offset_table=offsets))
        answer(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, Response(body=body))
    made = await admin.reset_offset_by_time(GROUP, "T", T0, is_force=False)
    assert made == {MessageQueue("T", "broker-a", 0): 1, MessageQueue("T", "broker-b", 0): 2}
    (_, header) = cluster.masters[0].asked[-1]
    assert (header.timestamp_ms, header.is_force, header.queue_id) == (T0, False, None)
    words = Response(ResponseCode.CONSUMER_NOT_ONLINE, remark="Consumer not online")
    answer(cluster.masters[1], RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, words)
    with pytest.raises(BrokerError) as refused:
        await admin.reset_offset_by_time(GROUP, "T", T0)
    assert refused.value.code == 206
    with pytest.raises(TopicNotFound):
        await admin.reset_offset_by_time(GROUP, "Nowhere", T0)


@pytest.mark.parametrize(("is_force", "reached"), [(True, {0: 2, 1: 0}), (False, {1: 0})])
@within(ask)
async def test_the_table_is_moved_forward_only_with_force(cluster, admin, /, is_force, reached):
    (broker,) = cluster.masters
    prepare(broker, {0: 1, 1: 5})
    made = await admin.reset_offset_by_time_old(GROUP, "T", T0 + 3, is_force=is_force)
    assert commits(broker) == reached
    by_queue = {each.queue_id: each for each in made}
    assert by_queue.keys() == {0, 1}
    assert (by_queue[0].consumer_offset, by_queue[0].timestamp_offset) == (1, 2)
    assert by_queue[0].rollback_offset == (2 if is_force else 1)
    assert by_queue[1].rollback_offset == 0


@within(ask)
async def test_a_group_that_never_consumed_is_set_in_every_queue_and_minus_one_is_the_end(
    cluster, admin, /
):
    (broker,) = cluster.masters
    prepare(broker, {})
    made = await admin.reset_offset_by_time_old(GROUP, "T", -1)
    assert [each.queue_id for each in made] == [0, 1, 2, 3]
    assert commits(broker) == {0: 3, 1: 0, 2: 0, 3: 0}
