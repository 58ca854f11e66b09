"""A copy of a message is read by those who may read the topic of the message."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rocketlens.broker.access.control import topics_of
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import properties_of, send_fields
from tests.unit.broker.access.acl_world import SECRET, Signer, with_accounts, with_users

SCHEDULED, TIMERS = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF, TRACES = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"
ACCOUNTS = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- accessKey: app-user
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
  topicPerms: [Secret=DENY]
"""
POLICY = b"""{"policies":[{"entries":[
    {"resource":"Topic:*","actions":["All"],"decision":"Allow"},
    {"resource":"Group:*","actions":["All"],"decision":"Allow"},
    {"resource":"Topic:Secret","actions":["All"],"decision":"Deny"}]}]}"""
TWO_HOURS = 18


@pytest.mark.parametrize(
    ("topic", "named", "topics"),
    [
        ("Orders", {"REAL_TOPIC": "Secret", "RETRY_TOPIC": "Secret"}, ["Orders"]),
        (TRACES, {"REAL_TOPIC": "Orders"}, [TRACES]),
        (SCHEDULED, {"REAL_TOPIC": "Secret"}, ["Secret"]),
        (SCHEDULED, {}, [SCHEDULED]),
        (TIMERS, {"REAL_TOPIC": "Secret"}, ["Secret"]),
        (HALF, {"REAL_TOPIC": "Secret"}, ["Secret"]),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "Secret"}, ["Secret"]),
        ("%RETRY%g", {"RETRY_TOPIC": "Secret"}, ["%RETRY%g", "Secret"]),
        ("%RETRY%g", {"REAL_TOPIC": "Secret"}, ["%RETRY%g"]),
        ("%DLQ%g", {"RETRY_TOPIC": "a", "DLQ_ORIGIN_TOPIC": "b"}, ["%DLQ%g", "a", "b"]),
        ("%DLQ%g", {}, ["%DLQ%g"]),
        (SCHEDULED, {"REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "Secret"}, ["%RETRY%g", "Secret"]),
        ("%RETRY%shop%g", {"RETRY_TOPIC": "Orders"}, ["%RETRY%shop%g", "shop%Orders"]),
        ("%RETRY%shop%g", {"RETRY_TOPIC": "Other"}, ["%RETRY%shop%g", "Other"]),
    ],
)
def test_a_copy_is_of_the_topic_that_it_was_copied_from(topic, named, topics):
    found = topics_of(topic, properties_of(**named).encode(), {"shop%Orders"}.__contains__)
    assert list(found) == topics


@asynccontextmanager
async def with_a_hidden_topic(kind, directory, **settings):
    """Run a broker whose app may do everything but use the topic ``Secret``."""
    if kind == "accounts":
        async with with_accounts(directory, ACCOUNTS, **settings) as (world, admin, _):
            yield world, admin, Signer(world, "app-user")
        return
    async with with_users(directory, **settings) as (world, admin):
        body = f'{{"password":"{SECRET}"}}'.encode()
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username="app")).code == 0
        assert (await admin(RequestCode.AUTH_CREATE_ACL, POLICY, subject="User:app")).code == 0
        yield world, admin, Signer(world, "app")


async def send(signer, topic, body, flag=0, **named):
    fields = {k: v for k, v in send_fields(topic, properties_of(**named)).items() if v is not None}
    fields |= {"k": "false", "m": "false", "f": flag}
    answer = await signer(RequestCode.SEND_MESSAGE_V2, body, **fields)
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["msgId"][16:], 16)


def pull_fields(topic, queue_id=0, **changes):
    return {
        "consumerGroup": "TOOLS_CONSUMER",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
    } | changes


async def make_copies(world, admin):
    """Give messages of two topics to all topics of copies; returns where they are."""
    group = b'{"groupName":"readers","retryQueueNums":1,"retryMaxTimes":16,"consumeEnable":true}'
    assert (await admin(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).code == 0
    for topic, body in (("Secret", b"hidden"), ("Orders", b"open")):
        keys = {"KEYS": "k", "TAGS": "t"}
        await send(admin, topic, body + b" delayed", DELAY=TWO_HOURS, **keys)
        await send(admin, topic, body + b" timed", TIMER_DELAY_SEC=3600, **keys)
        await send(admin, topic, body + b" half", flag=4, TRAN_MSG="true", PGROUP="p", **keys)
        offset = await send(admin, topic, body + b" plain", **keys)
        for level in (1, 18, -1):
            back = {"group": "readers", "offset": offset, "delayLevel": level}
            back |= {"originTopic": topic, "originMsgId": "x"}
            assert (await admin(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
    world.clock.now_ms += 2_000
    world.service._deliver()
    return [
        (SCHEDULED, 0),
        (SCHEDULED, TWO_HOURS - 1),
        (TIMERS, 0),
        (HALF, 0),
        ("%RETRY%readers", 0),
        ("%DLQ%readers", 0),
    ]


BOTH_KINDS = pytest.mark.parametrize("kind", ["accounts", "users"])


@BOTH_KINDS
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_a_pull_leaves_out_copies_of_messages_that_one_may_not_read(tmp_path, kind, code):
    async with with_a_hidden_topic(kind, tmp_path) as (world, admin, app):
        for topic, queue_id in await make_copies(world, admin):
            asked = pull_fields(topic, queue_id)
            everything = await admin(code, **asked)
            assert (b"hidden" in everything.body, b"open" in everything.body) == (True, True)
            answer = await app(code, **asked)
            assert (answer.code, answer.remark) == (0, "FOUND")
            assert (b"hidden" in answer.body, b"open" in answer.body) == (False, True)
            # It goes on behind those that were left out, too.
            end = int(everything.ext_fields["nextBeginOffset"])
            first = await app(code, **asked | {"queueOffset": 0, "maxMsgNums": 1})
            assert b"open" in first.body
            assert int(answer.ext_fields["nextBeginOffset"]) == end


@BOTH_KINDS
async def test_a_pull_that_waits_is_not_woken_by_what_one_may_not_read(tmp_path, kind):
    async with with_a_hidden_topic(kind, tmp_path) as (world, admin, app):
        asked = pull_fields(SCHEDULED, 17, sysFlag=6, suspendTimeoutMillis=20_000)
        held = asyncio.create_task(app(RequestCode.PULL_MESSAGE, **asked))
        while not world.core.held_pulls.count:  # noqa: ASYNC110 - its request is under way
            await asyncio.sleep(0)
        await send(admin, "Secret", b"hidden", DELAY=TWO_HOURS)
        # Answered behind the look at what has come, which takes its turn in the loop.
        assert (await admin(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
        assert world.core.held_pulls.count == 1
        await send(admin, "Orders", b"open", DELAY=TWO_HOURS)
        answer = await held
        assert (b"hidden" in answer.body, b"open" in answer.body) == (False, True)


@BOTH_KINDS
async def test_a_look_up_leaves_out_copies_of_messages_that_one_may_not_read(tmp_path, kind):
    async with with_a_hidden_topic(kind, tmp_path) as (world, admin, app):
        for topic in {topic for topic, _ in await make_copies(world, admin)}:
            asked = {"topic": topic, "key": "k", "maxNum": 32}
            asked |= {"beginTimestamp": 0, "endTimestamp": 2**62}
            everything = await admin(RequestCode.QUERY_MESSAGE, **asked)
            if everything.code:
                # Half messages have no key in the index.
                assert topic == HALF
                continue
            assert (b"hidden" in everything.body, b"open" in everything.body) == (True, True)
            answer = await app(RequestCode.QUERY_MESSAGE, **asked)
            assert (b"hidden" in answer.body, b"open" in answer.body) == (False, True)


@BOTH_KINDS
async def test_no_copy_is_read_by_its_offset_by_those_who_may_not_read_its_topic(tmp_path, kind):
    async with with_a_hidden_topic(kind, tmp_path) as (world, admin, app):
        for topic, queue_id in await make_copies(world, admin):
            for record in world.stored(topic, queue_id):
                asked = {"topic": topic, "offset": record.physical_offset}
                assert (await admin(RequestCode.VIEW_MESSAGE_BY_ID, **asked)).code == 0
                answer = await app(RequestCode.VIEW_MESSAGE_BY_ID, **asked)
                assert (answer.code == 0) == record.body.startswith(b"open"), topic
                end = world.core.store.end_offset
                back = {"group": "readers", "offset": record.physical_offset, "delayLevel": 1}
                answer = await app(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
                is_stored = world.core.store.end_offset > end
                assert is_stored == record.body.startswith(b"open"), topic


@BOTH_KINDS
async def test_a_message_deletes_waiting_ones_of_its_own_topic_only(tmp_path, kind):
    async with with_a_hidden_topic(kind, tmp_path) as (world, admin, app):
        at = {"TIMER_DELAY_SEC": 3600}
        for topic in ("Secret", "Orders"):
            for key in ("1", "2"):
                await send(admin, topic, b"waiting " + key.encode(), UNIQ_KEY=key, **at)
        await send(app, "Orders", b"deletes", UNIQ_KEY="d", TIMER_DEL_UNIQKEY="1", **at)
        world.clock.now_ms += 3_700_000
        world.service._deliver()
        assert len(world.stored("Secret")) == 2
        assert [record.body for record in world.stored("Orders")] == [b"waiting 2"]


@pytest.mark.parametrize(("secret", "is_asked"), [(SECRET, True), ("wrong", False)])
async def test_a_producer_of_a_heartbeat_that_needs_no_user_is_asked_if_it_is_signed(
    tmp_path, secret, is_asked
):
    settings = {"authenticationWhitelist": RequestCode.HEART_BEAT.value}
    async with with_users(tmp_path, **settings) as (world, _):
        body = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}'
        beat = Signer(world, "administrator", secret)
        assert (await beat(RequestCode.HEART_BEAT, body)).code == 0
        (channel,) = world.core.clients.producers["p"]
        assert world.core.access.may_check(channel, "Orders") is is_asked


async def test_a_white_list_of_authentication_lets_nobody_read_copies_as_another_user(tmp_path):
    settings = {"authenticationWhitelist": RequestCode.VIEW_MESSAGE_BY_ID.value}
    async with with_a_hidden_topic("users", tmp_path, **settings) as (world, admin, _):
        offset = await send(admin, "Secret", b"hidden", DELAY=TWO_HOURS)
        asked = {"topic": SCHEDULED, "offset": offset, "AccessKey": "administrator"}
        answer = await world.call(RequestCode.VIEW_MESSAGE_BY_ID, **asked)
        assert (answer.code, answer.body) == (16, b"")
        del asked["AccessKey"]
        assert b"hidden" in (await admin(RequestCode.VIEW_MESSAGE_BY_ID, **asked)).body
