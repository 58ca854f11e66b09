"""Where a consumer begins, as RocketMQ's RebalancePushImpl computes it."""

import asyncio

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.begin import first_offset
from rocketlens.wire.bodies.heartbeat import ConsumeFromWhere as From

RETRY = "%RETRY%g"


class Stored:
    def __init__(self, offset):
        self.offset = offset

    async def read(self, _):
        return self.offset


def begin(stored, where, topic="T"):
    async def max_offset(_):
        return 900

    async def offset_at_begin(_):
        return 400

    queue = MessageQueue(topic, "broker-a", 0)
    return asyncio.run(first_offset(Stored(stored), queue, where, max_offset, offset_at_begin))


@pytest.mark.parametrize("where", list(From))
@pytest.mark.parametrize("topic", ["T", RETRY])
def test_what_is_stored_counts_whatever_is_asked_for(where, topic):
    assert begin(7, where, topic) == 7
    assert begin(0, where, topic) == 0


@pytest.mark.parametrize(
    ("where", "of_topic", "of_retry"),
    [
        (From.CONSUME_FROM_LAST_OFFSET, 900, 0),
        (From.CONSUME_FROM_MIN_OFFSET, 900, 0),
        (From.CONSUME_FROM_FIRST_OFFSET, 0, 0),
        (From.CONSUME_FROM_TIMESTAMP, 400, 900),
    ],
)
def test_a_new_group_begins_where_java_does(where, of_topic, of_retry):
    assert begin(None, where) == of_topic
    assert begin(None, where, RETRY) == of_retry
