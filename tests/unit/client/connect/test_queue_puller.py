"""What an answer to a pull means, and the ids that messages of compacted topics have."""

import asyncio
import logging

import pytest

from rocketlens.client.connect import queue_puller
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.compacted_topics import is_compacted, topic_attributes
from rocketlens.client.connect.queue_puller import (
    OWN_TOOLS_GROUP,
    Pulled,
    PullMode,
    PullStatus,
    QueuePuller,
    tools_puller,
)
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.resend.resend_job import Target, plan_message
from rocketlens.console.message.message_view import decoded_ids
from rocketlens.errors import BadAnswer, BadInput, BrokerError
from rocketlens.model.rocketmq import CLEANUP_POLICY, COMPACTION, SQL92_TYPE, TOOLS_GROUP
from rocketlens.query.request import name_of
from rocketlens.wire.bodies.clients import SubscriptionData
from rocketlens.wire.bodies.tables import TopicConfig
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import (
    COMMIT_OFFSET_FLAG,
    LITE_PULL_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
)
from tests.support.fake_cluster import running
from tests.support.layouts import ids

QUEUE = MessageQueue("T", "broker-a", 3)
SQL = SubscriptionData(topic="T", sub_string="a > 1", sub_version=9, expression_type=SQL92_TYPE)
DISABLED = ResponseCode.NO_PERMISSION, "subscription group no permission, "
MISSING = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist, "


class Broker:
    """Answers with codes, one after the other and the last one again, or refuses some groups."""

    timeout_s = 5.0

    def __init__(self, *codes, next_offset=7, max_offset=7, refusal=(0, ""), groups=()):
        self.codes = list(codes) or [ResponseCode.SUCCESS]
        self.refusal, self.groups = refusal, groups
        self.brokers_refusing_tools = set()
        self.fields = {
            "suggestWhichBrokerId": "1",
            "nextBeginOffset": str(next_offset),
            "minOffset": "2",
            "maxOffset": str(max_offset),
        }
        self.asked = []

    class topic_configs:  # noqa: N801 - as a cluster has it
        get = staticmethod(lambda *_: asyncio.sleep(0, TopicConfig(topic_name="T")))

    class broker_configs:  # noqa: N801 - as a cluster has it
        get = staticmethod(lambda *_: asyncio.sleep(0, {}))

    async def call(self, address, command, header, *, timeout_s):
        self.asked.append((address, command.code, header, timeout_s))
        if header.consumer_group in self.groups:
            code, remark = self.refusal
            remark += header.consumer_group
        else:
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            remark = "no"
        return RemotingCommand(int(code), 1, remark=remark, ext_fields=self.fields, body=b"body")

    @property
    def headers(self):
        return [header for _, _, header, _ in self.asked]


def pull_once(broker, mode=PullMode.TOOL, offset=7, **arguments):
    puller = QueuePuller(broker, TOOLS_GROUP if mode is PullMode.TOOL else "g", mode)
    return asyncio.run(puller.pull("a:1", QUEUE, offset, **arguments))


FOUND, NO_NEW, NO_MATCH, MOVED = 0, 19, 20, 21
EVERYONE = tuple(PullMode)
MEMBERS = (PullMode.PUSH, PullMode.LITE)
# A code, the offset that the broker names (7 was asked for), and what becomes of that.
ANSWERS = [
    (EVERYONE, FOUND, 8, (PullStatus.FOUND, 8)),
    (EVERYONE, FOUND, 40, (PullStatus.FOUND, 40)),
    (EVERYONE, FOUND, 7, "continues at 7, which is not after its messages"),
    (EVERYONE, FOUND, 0, "continues at 0, which is not after its messages"),
    (EVERYONE, FOUND, -5, "continues at -5, which is not after its messages"),
    (EVERYONE, NO_NEW, 7, (PullStatus.NO_NEW_MSG, 7)),
    (EVERYONE, NO_NEW, 0, (PullStatus.NO_NEW_MSG, 7)),
    (EVERYONE, NO_NEW, -1, (PullStatus.NO_NEW_MSG, 7)),
    (EVERYONE, NO_NEW, 9, (PullStatus.NO_NEW_MSG, 9)),
    (EVERYONE, NO_MATCH, 7, (PullStatus.NO_MATCHED_MSG, 7)),
    (EVERYONE, NO_MATCH, 0, (PullStatus.NO_MATCHED_MSG, 7)),
    (EVERYONE, NO_MATCH, 90, (PullStatus.NO_MATCHED_MSG, 90)),
    (EVERYONE, MOVED, 9, (PullStatus.OFFSET_ILLEGAL, 9)),
    (EVERYONE, MOVED, 0, (PullStatus.OFFSET_ILLEGAL, 0)),
    (EVERYONE, MOVED, 7, (PullStatus.OFFSET_ILLEGAL, 7)),
    (EVERYONE, MOVED, -1, "moves from queue offset 7 to -1"),
    (MEMBERS, ResponseCode.SUBSCRIPTION_NOT_EXIST, 9, (PullStatus.NOT_SUBSCRIBED, 7)),
    (MEMBERS, ResponseCode.SUBSCRIPTION_NOT_LATEST, 9, (PullStatus.NOT_SUBSCRIBED, 7)),
    ((PullMode.TOOL,), ResponseCode.SUBSCRIPTION_NOT_EXIST, 9, BrokerError),
    ((PullMode.TOOL,), ResponseCode.SUBSCRIPTION_NOT_LATEST, 9, BrokerError),
    (EVERYONE, ResponseCode.SYSTEM_ERROR, 9, BrokerError),
    (EVERYONE, ResponseCode.SUBSCRIPTION_PARSE_FAILED, 9, BrokerError),
    (EVERYONE, ResponseCode.NO_PERMISSION, 9, BrokerError),
    (EVERYONE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, 9, BrokerError),
    (EVERYONE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 9, BrokerError),
    (EVERYONE, 77, 9, BrokerError),
]


@pytest.mark.parametrize(
    ("mode", "code", "named", "outcome"),
    [(mode, *row) for modes, *row in ANSWERS for mode in modes],
    ids=str,
)
def test_each_answer_to_a_pull_means_one_thing(mode, code, named, outcome):
    broker = Broker(code, next_offset=named)
    if outcome is BrokerError:
        with pytest.raises(BrokerError, match="no"):
            pull_once(broker, mode)
    elif isinstance(outcome, str):
        with pytest.raises(BadAnswer, match=outcome):
            pull_once(broker, mode)
    else:
        pulled = pull_once(broker, mode)
        assert (pulled.status, pulled.next_offset) == outcome
        assert pulled.body == (b"body" if pulled.status is PullStatus.FOUND else b"")
        if pulled.status is not PullStatus.NOT_SUBSCRIBED:
            assert (pulled.min_offset, pulled.max_offset) == (2, 7)
            assert pulled.suggested_broker_id == 1


def test_an_answer_without_its_fields_is_refused():
    broker = Broker(FOUND)
    del broker.fields["nextBeginOffset"]
    with pytest.raises(BadAnswer, match="PULL_MESSAGE"):
        pull_once(broker)


@pytest.mark.parametrize(
    ("status", "next_offset", "has_more"),
    [
        (PullStatus.FOUND, 9, True),
        (PullStatus.FOUND, 10, False),
        (PullStatus.NO_NEW_MSG, 10, False),
        (PullStatus.NO_MATCHED_MSG, 9, True),
        (PullStatus.OFFSET_ILLEGAL, 10, True),
    ],
)
def test_a_pull_need_not_be_held_while_the_queue_has_more(status, next_offset, has_more):
    assert Pulled(status, next_offset, max_offset=10).has_more is has_more


def test_a_pull_of_a_tool_is_of_the_tools_group_and_commits_nothing():
    broker = Broker(NO_NEW)
    pull_once(broker)
    pull_once(broker, count=9, hold_s=15)
    first, second = broker.headers
    assert (first.consumer_group, first.sys_flag) == (TOOLS_GROUP, SUBSCRIPTION_FLAG)
    assert (first.expression_type, first.subscription, first.max_message_nums) == ("TAG", "*", 32)
    assert (second.sys_flag, second.max_message_nums) == (SUBSCRIPTION_FLAG | SUSPEND_FLAG, 9)
    assert (second.suspend_timeout_ms, broker.asked[1][3]) == (15_000, 20.0)
    assert broker.asked[0][3] == 5.0


def test_a_pull_of_a_push_consumer_commits_and_leaves_the_expression_to_its_heartbeats():
    broker = Broker(NO_NEW)
    arguments = {"hold_s": 15, "timeout_s": 30, "commit_offset": 5}
    pull_once(broker, PullMode.PUSH, subscription=SQL, **arguments)
    ((_, code, header, timeout_s),) = broker.asked
    assert (code, timeout_s) == (RequestCode.PULL_MESSAGE, 30)
    assert (header.consumer_group, header.sys_flag, header.commit_offset) == (
        "g",
        SUSPEND_FLAG | COMMIT_OFFSET_FLAG,
        5,
    )
    assert (header.expression_type, header.subscription, header.subscription_version) == (
        SQL92_TYPE,
        None,
        9,
    )


def asked_twice(broker, puller, **arguments):
    async def twice():
        for _ in range(2):
            await puller.pull("a:1", QUEUE, 7, **arguments)

    asyncio.run(twice())
    return broker.asked


def test_a_broker_without_lite_pulls_gets_plain_ones_from_then_on():
    broker = Broker(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, NO_NEW)
    asked = asked_twice(broker, QueuePuller(broker, "g", PullMode.LITE), subscription=SQL)
    assert [code for _, code, _, _ in asked] == [
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.PULL_MESSAGE,
    ]
    flags = [header.sys_flag for header in broker.headers]
    assert flags == [SUBSCRIPTION_FLAG | LITE_PULL_FLAG, SUBSCRIPTION_FLAG, SUBSCRIPTION_FLAG]
    assert {header.subscription for header in broker.headers} == {"a > 1"}


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED]
)
def test_a_broker_without_sql92_is_asked_for_everything(code):
    broker = Broker(code, NO_NEW)
    asked_twice(broker, QueuePuller(broker), subscription=SQL)
    forms = [(each.expression_type, each.subscription) for each in broker.headers]
    assert forms == [("SQL92", "a > 1"), ("TAG", "*"), ("TAG", "*")]


@pytest.mark.parametrize("refusal", [DISABLED, MISSING])
def test_where_the_tools_group_may_not_consume_another_is_used_and_said(refusal, caplog):
    broker = Broker(refusal=refusal, groups={TOOLS_GROUP}, next_offset=8)

    async def ask(address):
        pulled = await tools_puller(broker).pull(address, QUEUE, 0)
        assert pulled.status is PullStatus.FOUND

    with caplog.at_level(logging.WARNING, "rocketlens.client"):
        for address in ("a:1", "a:1", "b:1"):
            asyncio.run(ask(address))
    assert [(address, header.consumer_group) for address, _, header, _ in broker.asked] == [
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
    broker = Broker(refusal=DISABLED, groups={TOOLS_GROUP, OWN_TOOLS_GROUP})
    text = f"no permission, {TOOLS_GROUP}; nor as {OWN_TOOLS_GROUP}: .* {OWN_TOOLS_GROUP}"
    with pytest.raises(BrokerError, match=text):
        asyncio.run(tools_puller(broker).pull("a:1", QUEUE, 0))


def test_another_refusal_is_not_taken_for_the_groups():
    refusal = ResponseCode.NO_PERMISSION, "the topic[T] pulling is forbidden "
    broker = Broker(refusal=refusal, groups={TOOLS_GROUP})
    with pytest.raises(BrokerError, match="is forbidden"):
        asyncio.run(tools_puller(broker).pull("a:1", QUEUE, 0))
    assert len(broker.asked) == 1


def test_a_reader_without_a_spare_group_tries_no_other_group():
    broker = Broker(refusal=DISABLED, groups={TOOLS_GROUP})
    with pytest.raises(BrokerError, match="subscription group no permission"):
        pull_once(broker)
    assert len(broker.asked) == 1


def test_pauses_double_up_to_the_last_until_something_succeeds(monkeypatch):
    pauses = []

    async def note(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(queue_puller, "PULL_PAUSES_S", (1, 3))
    monkeypatch.setattr(asyncio, "sleep", note)

    async def pause():
        backoff = queue_puller.Backoff()
        for _ in range(3):
            await backoff.pause()
        backoff.reset()
        await backoff.pause()

    asyncio.run(pause())
    assert pauses == [1, 2, 3, 1]


COUNT = 40


def fill(cluster):
    """Store messages in a compacted queue, and others between them; return those of the queue."""
    (broker,) = cluster.masters
    broker.topic_attributes = {"T": {CLEANUP_POLICY: COMPACTION}}
    stored = []
    for number in range(COUNT):
        broker.store("Other", b"other" * 9)
        stored.append(broker.store("T", b"x", keys=f"k{number}", unique_key=f"u{number}"))
    return stored


async def test_each_way_to_a_message_of_a_compacted_topic_has_the_id_of_the_commit_log(
    cluster, admin
):
    stored = fill(cluster)
    every = [each.offset_msg_id for each in stored]
    for question in ({"topic": "T"}, {"topic": "T", "begin": 1}, {"where": "topic = 'T'"}):
        answer = await admin.find(**question)
        assert (ids(answer), answer.complete) == (every, True)
    for read in (admin.scan("T"), admin.tail("T", COUNT)):
        assert [each.offset_msg_id async for each in read] == every
    for number in (0, 7, COUNT - 1):
        for exhaustive in (False, True):
            answer = await admin.find(f"k{number}", "T", exhaustive=exhaustive)
            assert (ids(answer), answer.complete) == ([every[number]], True)
        assert ids(await admin.find(f"T/0/{number}")) == [every[number]]
        assert ids(await admin.find(every[number])) == [every[number]]


async def test_what_is_pulled_from_tiered_storage_has_the_id_of_the_commit_log_or_none(
    cluster, admin
):
    (broker,) = cluster.masters
    plug_in = "org.apache.rocketmq.tieredstore.TieredMessageStore"
    broker.config = {"messageStorePlugIn": plug_in}
    stored = fill(cluster)
    broker.topic_attributes = {}
    every = [each.offset_msg_id for each in stored]
    answer = await admin.find(topic="T")
    assert (ids(answer), answer.complete) == (every, True)
    assert ids(await admin.find("T/0/7")) == [every[7]]
    broker.refused = {RequestCode.QUERY_CONSUME_QUEUE}
    assert ids(await admin.find("T/0/7")) == [""]


async def test_a_position_that_is_not_pulled_any_more_is_found_in_the_commit_log(cluster, admin):
    stored = fill(cluster)
    (broker,) = cluster.masters
    broker.replaced = [stored[3], stored[-1]]
    for each in broker.replaced:
        answer = await admin.find(f"T/0/{each.queue_offset}")
        assert (ids(answer), answer.complete) == ([each.offset_msg_id], True)
    answer = await admin.find(f"T/0/{COUNT}")
    assert (len(answer.messages), answer.complete) == (0, True)


async def test_a_list_without_the_messages_that_were_replaced_is_incomplete(cluster, admin):
    stored = fill(cluster)
    (broker,) = cluster.masters
    broker.replaced = stored[3:20]
    expected = [each.offset_msg_id for each in stored if each not in broker.replaced]
    for question in ({"topic": "T"}, {"topic": "T", "begin": 1}, {"where": "topic = 'T'"}):
        answer = await admin.find(**question)
        assert "T/0: the broker compacts" in " ".join(each.error for each in answer.failures)
        assert ids(answer) == expected
    for read in (admin.scan("T"), admin.tail("T", COUNT)):
        assert [each.offset_msg_id async for each in read] == expected
        assert not read.complete
    # What was read of the queue has no gap.
    answer = await admin.find(topic="T", begin=stored[20].store_timestamp_ms)
    assert len(answer) == COUNT - 20
    for each in stored[:5]:
        answer = await admin.find(f"k{each.queue_offset}", "T")
        assert (ids(answer), answer.complete) == ([each.offset_msg_id], True)


@pytest.mark.parametrize("code", [RequestCode.QUERY_CONSUME_QUEUE, RequestCode.VIEW_MESSAGE_BY_ID])
async def test_a_position_that_cannot_be_found_there_makes_an_answer_incomplete(
    cluster, admin, code
):
    stored = fill(cluster)
    (broker,) = cluster.masters
    broker.replaced = [stored[3]]
    broker.refused = {code}
    answer = await admin.find("T/0/3")
    assert not answer.messages
    assert not answer.complete
    (failure,) = answer.failures
    assert "T/0/3: the broker compacts this topic" in failure.error


async def test_a_message_that_no_queue_leads_to_has_no_offset_message_id(cluster, admin):
    fill(cluster)
    (broker,) = cluster.masters
    broker.refused = {RequestCode.QUERY_CONSUME_QUEUE}
    answer = await admin.find(topic="T")
    assert ids(answer) == [""] * COUNT
    assert [each.msg_id for each in answer] == [f"u{number}" for number in range(COUNT)]
    message = answer.first
    assert [each.name for each in decoded_ids(message)] == ["unique_key"]
    name, kind = name_of(message)
    assert (await admin.story(name, "T", kind=kind)).events
    with pytest.raises(BadInput, match="T/0/0 cannot be sent again"):
        plan_message(message, Target(), str)


async def test_the_attributes_of_a_topic_are_asked_for_once_and_so_is_a_refusal():
    asked = []
    async with running() as cluster:
        calls = ClusterCalls(cluster.given)
        (broker,) = cluster.masters
        calls.allow({"broker-a": type("B", (), {"addresses": {0: broker.address}})()})
        for tells, expected in ((True, True), (False, False)):
            broker.topic_attributes = {"T": {CLEANUP_POLICY: COMPACTION}}
            broker.tells_attributes = tells
            topic = "T" if tells else "U"
            for _ in range(2):
                assert await is_compacted(calls, topic, broker.address) is expected
        with pytest.raises(BrokerError):
            await topic_attributes(calls, "U", broker.address)
        asked.extend(broker.codes())
        await calls.close()
    assert asked == [RequestCode.GET_TOPIC_CONFIG] * 2
