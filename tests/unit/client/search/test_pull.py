"""As which group queues are read."""

import asyncio
import logging

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.pull import OWN_TOOLS_GROUP, pull_answer
from rocketlens.errors import BrokerError
from rocketlens.model.rocketmq import TOOLS_GROUP
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand

QUEUE = MessageQueue("T", "broker-a", 0)
DISABLED = ResponseCode.NO_PERMISSION, "subscription group no permission, "
MISSING = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist, "


class Broker:
    """Gives nothing, and refuses some groups."""

    def __init__(self, refusal, groups):
        self.refusal = refusal
        self.groups = groups
        self.asked = []

    async def call(self, address, _, header):
        group = header.consumer_group
        self.asked.append((address, group))
        code, remark = self.refusal if group in self.groups else (0, "FOUND")
        return RemotingCommand(int(code), 1, remark=f"{remark}{group}")


@pytest.mark.parametrize("refusal", [DISABLED, MISSING])
def test_where_the_tools_group_may_not_consume_another_is_used_and_said(refusal, caplog):
    cluster = Broker(refusal, {TOOLS_GROUP})

    async def ask(address):
        assert (await pull_answer(cluster, address, QUEUE, 0)).code == ResponseCode.SUCCESS

    with caplog.at_level(logging.WARNING, "rocketlens.client"):
        for address in ("a:1", "a:1", "b:1"):
            asyncio.run(ask(address))
    assert cluster.asked == [
        ("a:1", TOOLS_GROUP),
        ("a:1", OWN_TOOLS_GROUP),
        ("a:1", OWN_TOOLS_GROUP),
        ("b:1", TOOLS_GROUP),
        ("b:1", OWN_TOOLS_GROUP),
    ]
    assert [record.message for record in caplog.records] == [
        f"{address}: {refusal[1]}{TOOLS_GROUP}; asking as {OWN_TOOLS_GROUP} instead"
        for address in ("a:1", "b:1")
    ]


def test_where_no_group_may_consume_both_refusals_are_said():
    cluster = Broker(DISABLED, {TOOLS_GROUP, OWN_TOOLS_GROUP})
    words = f"no permission, {TOOLS_GROUP}; nor as {OWN_TOOLS_GROUP}: .* {OWN_TOOLS_GROUP}"
    with pytest.raises(BrokerError, match=words):
        asyncio.run(pull_answer(cluster, "a:1", QUEUE, 0))


def test_another_refusal_is_not_taken_for_the_groups():
    cluster = Broker(
        (ResponseCode.NO_PERMISSION, "the topic[T] pulling is forbidden "), {TOOLS_GROUP}
    )
    with pytest.raises(BrokerError, match="is forbidden"):
        asyncio.run(pull_answer(cluster, "a:1", QUEUE, 0))
    assert len(cluster.asked) == 1
