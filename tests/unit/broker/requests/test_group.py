"""Groups as operators and tools meet them."""

import json

import pytest

from rocketlens.broker.tables.entry_table import MAX_CONFIG_ENTRY_BYTES
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, text_of


async def update(world, **members):
    body = json.dumps({"groupName": "g"} | members).encode()
    return await world.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


async def shown(world, group="g"):
    answer = await world.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group)
    return json.loads(answer.body)


def groups_on_disk(world):
    file = world.core.store.layout.config / "subscriptionGroup.json"
    return json.loads(file.read_text())["subscriptionGroupTable"]


@within(in_broker, "tmp_path")
async def test_a_group_is_made_changed_as_a_whole_shown_and_deleted(world, /):
    assert (await update(world, retryMaxTimes=3, consumeEnable=False, future=[1])).code == 0
    assert groups_on_disk(world)["g"] == await shown(world)
    assert {"retryMaxTimes": 3, "consumeEnable": False, "future": [1]}.items() <= (
        await shown(world)
    ).items()
    assert (await update(world, retryQueueNums=2)).code == 0
    found = await shown(world)
    assert (found["retryMaxTimes"], found["retryQueueNums"]) == (16, 2)
    everything = await world.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = json.loads(everything.body)
    assert table["subscriptionGroupTable"]["g"] == found
    assert table["dataVersion"]["counter"] > 0
    answer = await world.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")
    assert answer.code == 0
    assert "g" not in groups_on_disk(world)


@pytest.mark.parametrize("name", ["cleanOffset", "removeOffset"])
@within(in_broker, "tmp_path")
async def test_offsets_go_with_a_group_only_when_that_is_asked(world, /, name):
    await update(world)
    world.core.offsets.put("g", "Orders", 0, 5)
    for is_asked in (False, True):
        fields = {name: text_of(is_asked)}
        await world.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", **fields)
        assert (world.core.offsets.get("g", "Orders", 0) is None) == is_asked


@within(in_broker, "tmp_path")
async def test_many_groups_are_made_at_once_or_none_of_them(world, /):
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    groups = [{"groupName": "one"}, {"groupName": "two", "retryMaxTimes": -1}]
    bad = json.dumps({"groupConfigList": [*groups, {"groupName": "a b"}]}).encode()
    assert (await world.call(code, bad)).code == 29
    assert "one" not in world.core.groups.table.entries
    good = json.dumps({"groupConfigList": groups}).encode()
    assert (await world.call(code, good)).code == 0
    assert groups_on_disk(world)["two"]["retryMaxTimes"] == -1


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"groupName": ""}, "The specified group is blank."),
        ({"groupName": "../x"}, "The specified group: ../x, contains illegal characters, allowing"),
        (
            {"groupName": "g" * 121},
            f"The specified group: {'g' * 121}, is longer than group max le",
        ),
        ({"retryQueueNums": 65_537}, "retryQueueNums 65537: give 0 to 65536"),
        ({"retryMaxTimes": -2}, "retryMaxTimes -2: give -1 to"),
        ({"retryMaxTimes": "16"}, "retryMaxTimes '16'"),
        ({"consumeEnable": 1}, "consumeEnable 1"),
        ({"retryQueueNums": True}, "retryQueueNums True"),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_group_that_cannot_be_is_not_made(world, /, members, words):
    before = dict(world.core.groups.table.entries)
    answer = await update(world, **members)
    assert answer.code != 0
    assert words in answer.remark
    assert world.core.groups.table.entries == before


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b"[" * 5000])
@within(in_broker, "tmp_path")
async def test_a_body_that_is_no_group_is_refused(world, /, body):
    for code in (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    ):
        assert (await world.call(code, body)).code == 1


@within(in_broker, "tmp_path", autoCreateSubscriptionGroup=False)
async def test_a_group_that_may_not_make_itself_is_not_shown(world, /):
    answer = await world.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="none")
    assert (answer.code, answer.remark) == (26, "No group in this broker")


@within(in_broker, "tmp_path")
async def test_topics_and_subscriptions_of_a_group_are_told(world, /):
    world.core.offsets.put("g", "Orders", 0, 5)
    topics = await world.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g")
    assert json.loads(topics.body)["topicList"] == ["Orders"]
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    wanted = await world.call(code, group="g", topic="Orders")
    assert json.loads(wanted.body) == {"group": "g", "topic": "Orders"}


@within(in_broker, "tmp_path")
async def test_a_group_that_would_not_be_read_back_is_refused_and_not_kept(world, /):
    answer = await update(world, groupName="large", x="A" * MAX_CONFIG_ENTRY_BYTES)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "'large' in subscriptionGroup.json" in answer.remark
    assert "large" not in world.core.groups.table.entries


@within(in_broker, "tmp_path")
async def test_groups_that_tools_need_are_neither_disabled_nor_deleted(world, /):
    await world.send()
    group = "TOOLS_CONSUMER"
    answer = await update(world, groupName=group, consumeEnable=False)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == f"{group} is a group of RocketMQ's own: consumeEnable stays true"
    answer = await world.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (await update(world, groupName=group, retryMaxTimes=2)).code == 0
    assert (await world.pull(consumerGroup=group)).code == 0
    # As a real broker may have left it.
    world.core.groups.table.put(group, consumeEnable=False)
    assert (await world.pull(consumerGroup=group)).code == 0
    world.core.groups.table.put("g", consumeEnable=False)
    assert (await world.pull(consumerGroup="g")).code == ResponseCode.NO_PERMISSION
