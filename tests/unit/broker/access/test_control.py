"""A whole broker with access control: requests of strangers, accounts and users."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rocketlens.broker.access.control import AccessControl
from rocketlens.errors import BadInput
from rocketlens.net.pool import ClientPool
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import NOW_MS, World, properties_of, running, send_fields
from tests.unit.broker.access.acl_world import SECRET, Signer, with_accounts, with_users
from tests.unit.broker.transactions import COMMIT, MARKS, ROLLBACK


def send(signer, topic="Orders", body=b"body", properties=""):
    fields = {k: v for k, v in send_fields(topic, properties).items() if v is not None}
    fields |= {"g": NOW_MS, "k": "false", "m": "false"}
    return signer(RequestCode.SEND_MESSAGE_V2, body, **fields)


async def test_nobody_is_asked_anything_without_access_control(tmp_path):
    async with running(tmp_path) as world:
        assert world.core.access is None
        assert (await world.send()).code == 0
        assert (await world.call(RequestCode.AUTH_LIST_USER)).code == 3


async def test_accounts_do_what_they_may_and_strangers_nothing(tmp_path):
    async with with_accounts(tmp_path) as (world, admin, app):
        assert (await send(app)).code == 0
        assert (await send(app, "Other")).code == 1
        assert (await send(admin, "Other")).code == 0
        answer = await world.send()
        assert (answer.code, answer.remark) == (
            1,
            "org.apache.rocketmq.acl.common.AclException: No accessKey is configured",
        )
        # Also of what it does not support.
        for code in RequestCode:
            assert (await world.call(code)).code == 1
        assert (await admin(RequestCode.CLEAN_UNUSED_TOPIC)).code == 3
        runtime = (await admin(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode()
        assert '"accessControl":"accounts"' in runtime
        assert SECRET not in runtime


async def test_users_do_what_policies_allow(tmp_path):
    async with with_users(tmp_path) as (world, admin):
        app = Signer(world, "app")
        assert (await send(app)).remark == "User:app is not found."
        assert (await send(admin)).code == 0
        body = f'{{"password":"{SECRET}"}}'.encode()
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username="app")).code == 0
        assert (await send(app)).code == 16
        body = (
            b'{"policies":[{"entries":[{"resource":"Topic:Orders","actions":["Pub"],'
            b'"decision":"Allow"}]}]}'
        )
        answer = await admin(RequestCode.AUTH_CREATE_ACL, body, subject="User:app")
        assert answer.code == 0
        assert (await send(app)).code == 0
        assert (await send(app, "Other")).code == 16
        assert (await world.send()).remark == "username cannot be null."
    # Users and policies are there after a restart; the first user stays as it is.
    changed = '{"username":"administrator","password":"another"}'
    async with with_users(tmp_path, initAuthenticationUser=changed) as (world, admin):
        app = Signer(world, "app")
        assert (await send(app)).code == 0
        assert (await send(app, "Other")).code == 16
        assert (await send(admin)).code == 0


async def reads_of_another_topic(world, admin, app):
    """Try to read a message of ``Other`` by its offset in each way that there is."""
    body = (
        b'{"groupName":"readers","retryQueueNums":1,"retryMaxTimes":16,'
        b'"consumeEnable":true,"brokerId":0}'
    )
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await admin(code, body)).code == 0
    assert (await send(app, body=b"mine")).code == 0
    assert (await send(admin, "Other", b"not yours")).code == 0
    (own,), (other,) = world.stored("Orders"), world.stored("Other")
    view = {"topic": "Orders", "offset": own.physical_offset}
    answer = await app(RequestCode.VIEW_MESSAGE_BY_ID, **view)
    assert (answer.code, b"mine" in answer.body) == (0, True)
    view["offset"] = other.physical_offset
    back = {
        "group": "readers",
        "offset": other.physical_offset,
        "delayLevel": 0,
        "originTopic": "Orders",
    }
    direct = {"consumerGroup": "readers", "msgId": other.offset_msg_id, "topic": "Orders"}
    codes = []
    for code, fields in (
        (RequestCode.VIEW_MESSAGE_BY_ID, view),
        (RequestCode.CONSUMER_SEND_MSG_BACK, back),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, direct),
    ):
        answer = await app(code, **fields)
        assert b"not yours" not in answer.body
        codes.append(answer.code)
        assert (await admin(code, **fields)).code in (0, 1)
    view["topic"] = "Other"
    assert b"not yours" in (await admin(RequestCode.VIEW_MESSAGE_BY_ID, **view)).body
    (again,) = world.stored("SCHEDULE_TOPIC_XXXX", 2)
    assert again.body == b"not yours", "what the administrator gave back"
    return codes


async def test_an_account_reads_no_message_of_a_topic_that_it_may_not_by_an_offset(tmp_path):
    async with with_accounts(tmp_path) as (world, admin, app):
        assert await reads_of_another_topic(world, admin, app) == [1, 1, 1]


async def test_a_user_reads_no_message_of_a_topic_that_it_may_not_by_an_offset(tmp_path):
    async with with_users(tmp_path) as (world, admin):
        app = Signer(world, "app")
        body = f'{{"password":"{SECRET}"}}'.encode()
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username="app")).code == 0
        body = (
            b'{"policies":[{"entries":[{"resource":"Topic:Orders","actions":["All"],'
            b'"decision":"Allow"},{"resource":"Group:readers","actions":["All"],'
            b'"decision":"Allow"}]}]}'
        )
        answer = await admin(RequestCode.AUTH_CREATE_ACL, body, subject="User:app")
        assert answer.code == 0
        assert await reads_of_another_topic(world, admin, app) == [16, 1, 16]


async def test_a_message_that_waits_is_read_by_its_offset_as_one_of_its_own_topic(tmp_path):
    async with with_accounts(tmp_path) as (world, admin, app):
        two_hours = properties_of(DELAY="18")
        assert (await send(app, body=b"mine", properties=two_hours)).code == 0
        assert (await send(admin, "Other", b"not yours", two_hours)).code == 0
        own, other = world.stored("SCHEDULE_TOPIC_XXXX", 17)
        view = {"topic": "Orders", "offset": own.physical_offset}
        assert b"mine" in (await app(RequestCode.VIEW_MESSAGE_BY_ID, **view)).body
        view["offset"] = other.physical_offset
        answer = await app(RequestCode.VIEW_MESSAGE_BY_ID, **view)
        assert (answer.code, answer.body) == (1, b"")
        view["topic"] = "Other"
        assert b"not yours" in (await admin(RequestCode.VIEW_MESSAGE_BY_ID, **view)).body


async def test_large_bodies_are_checked_too(tmp_path):
    size = 16 * 1024 * 1024
    async with with_accounts(tmp_path, mappedFileSizeCommitLog=size) as (world, _, app):
        large = bytes(2 * 1024 * 1024)
        assert (await send(app, body=large)).code == 0
        assert (await send(app, "Other", large)).code == 1
        assert (await send(Signer(world, "orders-app", "wrong"), body=large)).code == 1
        beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"others"}]}'
        padded = beat + b" " * 100_000
        assert (await app(RequestCode.HEART_BEAT, padded)).code == 1
        assert (await app(RequestCode.HEART_BEAT, padded.replace(b"others", b"readers"))).code == 0
        assert [len(record.body) for record in world.stored("Orders")] == [len(large)]


async def test_a_refused_one_way_request_is_not_answered_and_not_done(tmp_path):
    async with with_accounts(tmp_path) as (world, _, app):
        fields = {k: str(v) for k, v in send_fields("Orders", "").items() if v is not None}
        fields |= {"k": "false", "m": "false", "e": "0"}
        address = world.service.address
        channel = await world.pool.channel(address)
        code = int(RequestCode.SEND_MESSAGE_V2)
        channel.tell(code, signed_fields(fields, b"x", "orders-app", "wrong"), b"x")
        channel.tell(code, signed_fields(fields, b"y", "orders-app", SECRET), b"y")
        # What comes later on the same connection is answered, and in order.
        assert (await app(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
        assert [record.body for record in world.stored("Orders")] == [b"y"]


async def test_accounts_become_users(tmp_path, caplog):
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(
        f"""\
accounts:
- accessKey: old-admin
  secretKey: {SECRET}
  admin: true
  whiteRemoteAddress: 10.0.0.1
- accessKey: old-app
  secretKey: {SECRET}
  topicPerms: [Orders=PUB|SUB, Closed=DENY, Typo=PUBSUB]
  defaultTopicPerm: PUB
"""
    )
    (conf / "plain_acl.yml").chmod(0o600)
    settings = {"migrateAuthFromV1Enabled": True, "rocketmqHome": tmp_path / "home"}
    async with with_users(tmp_path, **settings) as (world, _):
        app = Signer(world, "old-app")
        codes = [(await send(app, topic)).code for topic in ("Orders", "Other", "Closed", "Typo")]
        assert codes == [0, 0, 16, 16]
        assert (await Signer(world, "old-admin")(RequestCode.AUTH_LIST_USER)).code == 0
        assert "old-admin is not migrated" in caplog.text


def test_a_broker_whose_accounts_cannot_be_read_does_not_start(tmp_path, monkeypatch):
    async def start(text):
        async with with_accounts(tmp_path, text):
            pytest.fail("it started")

    with pytest.raises(BadInput, match="is not valid YAML"):
        asyncio.run(start("accounts: ["))
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)

    async def without_home():
        async with running(tmp_path / "b", aclEnable=True):
            pytest.fail("it started")

    with pytest.raises(BadInput, match="rocketmqHome"):
        asyncio.run(without_home())


async def test_files_are_watched_while_it_runs(tmp_path, monkeypatch):
    async with with_accounts(tmp_path) as (world, _, app):
        access = world.core.access
        assert isinstance(access, AccessControl)
        path = tmp_path / "home" / "conf" / "plain_acl.yml"
        path.write_text("accounts: []\n")
        access.watch()
        await access.accounts._reload
        assert (await send(app)).remark.endswith("No acl config for orders-app")
        path.write_text("accounts: [\n")
        access.watch()
        await access.accounts._reload
        assert "line 2 is not valid YAML" in access.runtime()["accessControlProblem"]


POLICY = b"""{"policies":[{"entries":[
    {"resource":"Topic:Orders","actions":["All"],"decision":"Allow"},
    {"resource":"Group:readers","actions":["All"],"decision":"Allow"}]}]}"""


@asynccontextmanager
async def with_an_app(kind, directory):
    """Run a broker with access control of a kind, whose app may use ``Orders`` and ``readers``."""
    if kind == "accounts":
        async with with_accounts(directory) as (world, admin, app):
            yield world, admin, app
        return
    async with with_users(directory) as (world, admin):
        body = f'{{"password":"{SECRET}"}}'.encode()
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username="app")).code == 0
        assert (await admin(RequestCode.AUTH_CREATE_ACL, POLICY, subject="User:app")).code == 0
        yield world, admin, Signer(world, "app")


BOTH_KINDS = pytest.mark.parametrize("kind", ["accounts", "users"])


@BOTH_KINDS
async def test_a_reply_stores_nothing_in_a_topic_that_its_sender_may_not_write_to(tmp_path, kind):
    async with with_an_app(kind, tmp_path) as (world, admin, app):
        assert (await send(admin, "Other")).code == 0

        async def reply(topic, **changes):
            fields = {k: v for k, v in send_fields(topic, "").items() if v is not None}
            fields |= {"g": NOW_MS, "k": "false", "m": "false", **changes}
            return await app(RequestCode.SEND_REPLY_MESSAGE_V2, b"forged", **fields)

        end = world.core.store.end_offset
        timer = properties_of(REAL_TOPIC="Other", REAL_QID="0")
        for topic in (
            "Other",
            "%RETRY%others",
            "%DLQ%others",
            "NotThereYet",
            "rmq_sys_wheel_timer",
            "SCHEDULE_TOPIC_XXXX",
        ):
            assert (await reply(topic, i=timer)).code != 0
            assert world.core.store.end_offset == end, topic
        assert world.core.topics.get("NotThereYet") is None
        # A reply that nobody waits for is stored all the same, where replies are.
        await reply("DefaultCluster_REPLY_TOPIC")
        await reply("Orders")
        assert len(world.stored("Orders")) == 1


async def send_half_of(signer, topic):
    """Send a half message of the group ``producers``; return the response."""
    fields = {k: v for k, v in send_fields(topic, "").items() if v is not None}
    fields |= {"g": NOW_MS, "k": "false", "m": "false", "f": 4}
    fields["i"] = properties_of(TRAN_MSG="true", PGROUP="producers")
    return await signer(RequestCode.SEND_MESSAGE_V2, b"half", **fields)


def end_of(sent, state):
    """The fields that end the transaction of a half message."""
    return {
        "producerGroup": "producers",
        "tranStateTableOffset": sent.ext_fields["queueOffset"],
        "commitLogOffset": int(sent.ext_fields["msgId"][16:], 16),
        "commitOrRollback": state,
    }


@BOTH_KINDS
async def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(tmp_path, kind):
    async with with_an_app(kind, tmp_path) as (world, admin, app):
        sent = await send_half_of(admin, "Other")
        assert sent.code == 0
        end = end_of(sent, ROLLBACK)
        for named in ({}, {"topic": "Orders"}, {"topic": "Other"}):
            assert (await app(RequestCode.END_TRANSACTION, **end, **named)).code != 0
        assert not world.stored(MARKS)
        end["commitOrRollback"] = COMMIT
        assert (await admin(RequestCode.END_TRANSACTION, **end, topic="Other")).code == 0
        assert [record.body for record in world.stored("Other")] == [b"half"]


@asynccontextmanager
async def a_producer(world, user):
    """A user's own connection in the group ``producers``; return what it is asked about (39)."""
    bodies = []
    handlers = {RequestCode.CHECK_TRANSACTION_STATE: lambda command, _: bodies.append(command.body)}
    pool = ClientPool(lambda _: True, handlers=handlers)
    signer = Signer(World(world.service, pool, world.clock), user)
    heartbeat = b'{"clientID":"%s","producerDataSet":[{"groupName":"producers"}]}' % user.encode()
    try:
        assert (await signer(RequestCode.HEART_BEAT, heartbeat)).code == 0
        yield signer, bodies
    finally:
        await pool.close()


async def run_checks(world, *producers):
    """Check open transactions once their time has come; return when all checks have arrived."""
    world.clock.now_ms += world.core.config.transactionTimeOut + 1
    await world.service._checks.run_round()
    for signer in producers:
        # What is sent on a connection arrives in order, a check before the answer to this.
        await signer(RequestCode.GET_BROKER_RUNTIME_INFO)


@BOTH_KINDS
async def test_a_half_message_is_sent_to_producers_that_may_send_to_its_topic(tmp_path, kind):
    async with with_an_app(kind, tmp_path) as (world, admin, app), AsyncExitStack() as stack:
        half = await send_half_of(admin, "Other")
        assert half.code == 0
        its_app, to_app = await stack.enter_async_context(a_producer(world, app.user))
        await run_checks(world, its_app)
        assert to_app == [], "it is alone in the group"
        its_admin, to_admin = await stack.enter_async_context(a_producer(world, admin.user))
        for _ in range(3):
            await run_checks(world, its_app, its_admin)
        assert [b"half" in body for body in to_admin] == [True] * 3
        assert to_app == []
        end = end_of(half, ROLLBACK) | {"topic": "Other"}
        assert (await admin(RequestCode.END_TRANSACTION, **end)).code == 0
        # Of a topic that both may send to, each is asked in turn.
        assert (await send_half_of(app, "Orders")).code == 0
        for _ in range(4):
            await run_checks(world, its_app, its_admin)
        assert [b"Orders" in body and b"half" in body for body in to_app] == [True] * 2
        assert len(to_admin) == 5


async def take_rights_away(kind, world, admin, directory):
    """Leave the app without a permission, as an administrator does."""
    if kind == "users":
        answer = await admin(RequestCode.AUTH_DELETE_ACL, subject="User:app")
        assert answer.code == 0
        return
    path = directory / "home" / "conf" / "plain_acl.yml"
    path.write_text(path.read_text().replace("Orders=PUB|SUB", "Orders=DENY"))
    world.core.access.watch()
    await world.core.access.accounts._reload


@BOTH_KINDS
async def test_a_producer_that_lost_its_right_is_sent_no_half_message(tmp_path, kind):
    async with (
        with_an_app(kind, tmp_path) as (world, admin, app),
        a_producer(world, app.user) as (its_app, to_app),
    ):
        assert (await send_half_of(app, "Orders")).code == 0
        await run_checks(world, its_app)
        assert len(to_app) == 1
        await take_rights_away(kind, world, admin, tmp_path)
        for _ in range(3):
            await run_checks(world, its_app)
        assert len(to_app) == 1
        assert not world.stored(MARKS)
