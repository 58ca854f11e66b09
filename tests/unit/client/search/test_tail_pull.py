"""How a queue is pulled for ``tail``: what is asked, and what becomes of each answer."""

import asyncio

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.tail_pull import TailPage, TailPuller
from rocketlens.errors import BadAnswer, BrokerError
from rocketlens.model.rocketmq import TOOLS_GROUP
from rocketlens.query.filters.tail_filter import tail_filter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.pull import SUBSCRIPTION_FLAG, SUSPEND_FLAG

QUEUE = MessageQueue("T", "broker-a", 3)


class Broker:
    """Answers with codes, one after the other, and the fields of a pull's answer."""

    timeout_s = 5.0

    def __init__(self, *codes, next_offset=7, max_offset=7, remark="no"):
        self.codes = list(codes)
        self.remark = remark
        self.fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": str(max_offset),
        }
        self.asked = []

    async def call(self, _, command, header, *, timeout_s):
        self.asked.append((command.code, header, timeout_s))
        return RemotingCommand(
            int(self.codes.pop(0)), 1, remark=self.remark, ext_fields=self.fields
        )


def pull(broker, offset=7, hold_s=0, **conditions):
    puller = TailPuller(broker, tail_filter("T", **conditions))
    return asyncio.run(puller.pull("a:1", QUEUE, offset, 32, hold_s))


def subscriptions(broker):
    return [(each.expression_type, each.subscription) for _, each, _ in broker.asked]


def test_a_pull_is_of_the_tools_group_and_commits_nothing():
    broker = Broker(ResponseCode.PULL_NOT_FOUND)
    assert pull(broker, hold_s=15, tags="B||A") == TailPage([], 7, has_more=False)
    ((_, header, timeout_s),) = broker.asked
    assert (header.consumer_group, header.sys_flag) == (
        TOOLS_GROUP,
        SUBSCRIPTION_FLAG | SUSPEND_FLAG,
    )
    assert (header.suspend_timeout_ms, timeout_s) == (15_000, 20.0)
    assert subscriptions(broker) == [("TAG", "A || B")]


def test_what_is_not_held_is_not_suspended():
    broker = Broker(ResponseCode.PULL_RETRY_IMMEDIATELY, next_offset=9, max_offset=20)
    assert pull(broker) == TailPage([], 9, has_more=True)
    assert broker.asked[0][1].sys_flag == SUBSCRIPTION_FLAG


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED]
)
def test_a_broker_without_sql92_is_asked_for_everything(code):
    broker = Broker(code, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_NOT_FOUND)
    puller = TailPuller(broker, tail_filter("T", sql="a > 1"))

    async def twice():
        for _ in range(2):
            await puller.pull("a:1", QUEUE, 7, 32)

    asyncio.run(twice())
    assert subscriptions(broker) == [("SQL92", "a > 1"), ("TAG", "*"), ("TAG", "*")]


def test_an_offset_that_is_not_in_the_queue_moves():
    moved = ResponseCode.PULL_OFFSET_MOVED
    for next_offset in (0, 9):
        page = pull(Broker(moved, next_offset=next_offset))
        assert page == TailPage([], next_offset, has_more=True, is_moved=True)
    for next_offset in (7, -1):
        with pytest.raises(BadAnswer, match="moves from queue offset 7"):
            pull(Broker(moved, next_offset=next_offset))


def test_answers_that_do_not_go_on_are_refused():
    with pytest.raises(BadAnswer, match="goes on at 7"):
        pull(Broker(ResponseCode.SUCCESS))
    # An empty queue's broker names 0, which is no reason to begin again.
    assert pull(Broker(ResponseCode.PULL_NOT_FOUND, next_offset=0)).next_offset == 7


def test_a_refusal_is_raised_and_no_other_group_is_tried():
    broker = Broker(ResponseCode.NO_PERMISSION, remark="subscription group no permission")
    with pytest.raises(BrokerError, match="subscription group no permission"):
        pull(broker)
    assert len(broker.asked) == 1
