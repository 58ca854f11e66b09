"""Queues are asked in the order of RocketMQ's tools."""

import re

from rocketlens.client.connect.route import MessageQueue, set_order
from tests.unit.mqadmin.printed_by_rocketmq import both, printed


@both
def test_print_msg_takes_queues_in_the_order_of_the_real_tool(golden, version):
    first = printed(golden, version, "printMsg").splitlines()[0]
    topic = re.search(r"topic=(\w+)", first)[1]
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    assert first.endswith(f", {set_order(queues)[0]}")
