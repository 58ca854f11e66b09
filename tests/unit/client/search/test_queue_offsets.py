"""Offsets of a queue, as one broker has them."""

import asyncio

import pytest

from rocketlens.client.connect.broker_calls import max_offset, min_offset, offset_at_time
from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import BadAnswer
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand

TIME_MS = 1_700_000_000_000
QUEUES = [
    MessageQueue("T", "broker-a", 1),
    MessageQueue(topic="T", broker_name="broker-a", queue_id=1),
]
WAYS = [
    (min_offset, (), RequestCode.GET_MIN_OFFSET),
    (max_offset, (), RequestCode.GET_MAX_OFFSET),
    (offset_at_time, (TIME_MS,), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
]


class Answering:
    """A cluster that answers whatever it is asked with the same fields."""

    def __init__(self, **fields):
        self.fields = fields
        self.asked = []

    async def ask(self, address, command, header):
        self.asked.append((address, command.code, header.topic, header.queue_id))
        self.times = getattr(header, "timestamp_ms", None)
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=self.fields)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize(("way", "values", "code"), WAYS)
def test_the_broker_at_an_address_is_asked_for_an_offset_of_the_queue(way, values, code, queue):
    cluster = Answering(offset="42")
    assert asyncio.run(way(cluster, "a:1", queue, *values)) == 42
    assert cluster.asked == [("a:1", code, "T", 1)]
    assert cluster.times == (values[0] if values else None)


@pytest.mark.parametrize("fields", [{}, {"offset": "many"}])
@pytest.mark.parametrize(("way", "values", "code"), WAYS)
def test_an_answer_without_an_offset_is_refused_and_names_who_gave_it(way, values, code, fields):
    with pytest.raises(BadAnswer, match=code.name):
        asyncio.run(way(Answering(**fields), "a:1", QUEUES[0], *values))
