"""updateTopic, printed as RocketMQ's tools do."""

import asyncio

import pytest

from rocketlens.mqadmin.topic import update_topic
from tests.unit.mqadmin.fake_tool import call

SUCCESS = "create topic to 10.0.0.1:10911 success.\n"
ORDER = "set cluster orderConf. isOrder=true, orderConf=[broker-a:4]"
CONFIG = (
    "TopicConfig [topicName=T, readQueueNums=8, writeQueueNums=4, perm=RW-, "
    "topicFilterType=SINGLE_TAG, topicSysFlag=0, order="
)
ON_A_BROKER = {"b": "10.0.0.1:10911"}
ORDERED_IN_A_CLUSTER = {"c": "DefaultCluster", "o": "true"}


@pytest.mark.parametrize(
    ("version", "options", "printed"),
    [
        ("4.9", ON_A_BROKER, f"{SUCCESS}{CONFIG}false]"),
        ("5.5", ON_A_BROKER, f"{SUCCESS}{CONFIG}false, attributes={{}}]\n"),
        ("4.9", ORDERED_IN_A_CLUSTER, f"{SUCCESS}{ORDER}{CONFIG}true]"),
        ("5.5", ORDERED_IN_A_CLUSTER, f"{SUCCESS}{ORDER}\n{CONFIG}true, attributes={{}}]\n"),
    ],
)
def test_what_was_asked_for_is_printed_with_the_line_ends_of_each_release(
    version, options, printed, capsys
):
    asyncio.run(update_topic(call(version, t="T", w="4", **options)))
    assert capsys.readouterr().out == printed
