"""What each request code needs, and that those who have not got it neither read nor change."""

import copy
import itertools
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketlens.broker.access.needs import needs_of
from rocketlens.broker.access.plain_rules import ADMIN_CODES, Permission, _needed
from rocketlens.errors import CommandBodyError
from rocketlens.formats import batch_body
from rocketlens.model.rocketmq import NOT_ALLOWED_SEND_TOPICS, TIMER_TOPIC
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from tests.peer.acl_requests import STRICTER_4, STRICTER_5
from tests.support.broker_world import NOW_MS, properties_of, send_fields
from tests.support.effort import sized
from tests.unit.broker.access.acl_world import SECRET, Signer, with_accounts, with_users

R = RequestCode
ADMIN, ANY = "administrator", "any account"
"""What accounts of RocketMQ 4 need beside permissions."""
NONE = "any user"
"""What users of RocketMQ 5 need without a policy."""
SEND = ("Pub T", "PUB T")
PULL = ("Sub T, Sub g", "SUB T, SUB g")
OF_QUEUE = ("Get T", ANY)
OF_GROUP = ("Get g", ANY)
CLUSTER_GET, CLUSTER_UPDATE = ("Get cluster", ANY), ("Update cluster", ANY)

RIGHTS = {
    # What a broker answers: with policies; with accounts. Where a message decides, too, it says so.
    R.SEND_MESSAGE: SEND,
    R.SEND_MESSAGE_V2: SEND,
    R.SEND_BATCH_MESSAGE: SEND,
    R.PULL_MESSAGE: (*PULL, "of each copy: its own topic"),
    R.LITE_PULL_MESSAGE: (*PULL, "of each copy: its own topic"),
    R.QUERY_MESSAGE: ("Sub|Get T", "SUB T", "of each copy: its own topic"),
    R.VIEW_MESSAGE_BY_ID: ("Get T", ANY, "of the message: its topic"),
    R.QUERY_CONSUMER_OFFSET: ("Sub|Get T, Sub|Get g", ANY),
    R.UPDATE_CONSUMER_OFFSET: ("Sub|Update T, Sub|Update g", "SUB T, SUB g"),
    R.UPDATE_AND_CREATE_TOPIC: ("Create T", ADMIN),
    R.UPDATE_AND_CREATE_TOPIC_LIST: ("Create T", ADMIN),
    R.GET_ALL_TOPIC_CONFIG: (NONE, ANY, "lists what one may use"),
    R.UPDATE_BROKER_CONFIG: ("Update cluster", ADMIN),
    R.GET_BROKER_CONFIG: ("Get cluster", ADMIN),
    R.TRIGGER_DELETE_FILES: ("Update cluster", ADMIN),
    R.GET_BROKER_RUNTIME_INFO: (NONE, ANY),
    R.SEARCH_OFFSET_BY_TIMESTAMP: OF_QUEUE,
    R.GET_MAX_OFFSET: OF_QUEUE,
    R.GET_MIN_OFFSET: OF_QUEUE,
    R.GET_EARLIEST_MSG_STORETIME: OF_QUEUE,
    R.HEART_BEAT: ("Sub g, Sub T", "SUB g, SUB T", "of a half message: its topic"),
    R.UNREGISTER_CLIENT: ("Sub g", "SUB g"),
    R.CONSUMER_SEND_MSG_BACK: ("Sub g", "SUB g", "of the message: its topic"),
    R.END_TRANSACTION: ("Pub T", ANY, "of the message: its topic"),
    R.GET_CONSUMER_LIST_BY_GROUP: ("Sub|Get g", "SUB g"),
    R.LOCK_BATCH_MQ: ("Sub g, Sub T", "SUB g, SUB T"),
    R.UNLOCK_BATCH_MQ: ("Sub g, Sub T", "SUB g, SUB T"),
    R.CHECK_CLIENT_CONFIG: (NONE, ANY),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ("Update g", ADMIN),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ("Update g", ADMIN),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (NONE, ANY, "lists what one may use"),
    R.GET_TOPIC_STATS_INFO: OF_QUEUE,
    R.GET_CONSUMER_CONNECTION_LIST: OF_GROUP,
    R.GET_PRODUCER_CONNECTION_LIST: CLUSTER_GET,
    R.GET_ALL_PRODUCER_INFO: CLUSTER_GET,
    R.DELETE_SUBSCRIPTIONGROUP: ("Delete g", ADMIN),
    R.GET_CONSUME_STATS: ("Get g, Get T", ANY),
    R.GET_BROKER_CONSUME_STATS: CLUSTER_GET,
    R.DELETE_TOPIC_IN_BROKER: ("Delete T", ADMIN),
    R.INVOKE_BROKER_TO_RESET_OFFSET: ("Update g, Update T", "SUB g, SUB T"),
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("Get T, Get g", "SUB T, SUB g"),
    R.QUERY_TOPIC_CONSUME_BY_WHO: OF_QUEUE,
    R.QUERY_TOPICS_BY_CONSUMER: OF_GROUP,
    R.QUERY_SUBSCRIPTION_BY_CONSUMER: ("Get g, Get T", ANY),
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (NONE, ANY),
    R.CLEAN_EXPIRED_CONSUMEQUEUE: ("Update cluster", ADMIN),
    R.CLEAN_UNUSED_TOPIC: ("Update cluster", ADMIN),
    R.DELETE_EXPIRED_COMMITLOG: ("Update cluster", ADMIN),
    R.GET_CONSUMER_RUNNING_INFO: ("Get g", "SUB g"),
    R.CONSUME_MESSAGE_DIRECTLY: ("Sub g, Sub T", "SUB g, SUB T", "of the message: its topic"),
    R.CLONE_GROUP_OFFSET: ("Update g, Update T, Sub|Get s", "SUB g, SUB T, SUB s"),
    R.VIEW_BROKER_STATS_DATA: CLUSTER_GET,
    R.QUERY_CONSUME_QUEUE: ("Get T, Get g", ANY),
    R.SEND_REPLY_MESSAGE: (NONE, ANY, "of the reply: its topic"),
    R.SEND_REPLY_MESSAGE_V2: (NONE, ANY, "of the reply: its topic"),
    R.GET_TOPIC_CONFIG: OF_QUEUE,
    R.GET_SUBSCRIPTIONGROUP_CONFIG: ("Get g", "SUB g"),
    R.RECALL_MESSAGE: ("Pub T", "PUB T"),
    R.GET_ALL_CONSUMER_OFFSET: (NONE, ANY, "lists what one may use"),
    R.GET_ALL_DELAY_OFFSET: (NONE, ANY),
    R.GET_TIMER_CHECK_POINT: (NONE, ANY),
    R.GET_TIMER_METRICS: (NONE, ANY),
    R.GET_ALL_MESSAGE_REQUEST_MODE: (NONE, ANY),
    # Of one kind of access control only; the other does not know them.
    R.UPDATE_AND_CREATE_ACL_CONFIG: (NONE, ADMIN),
    R.DELETE_ACL_CONFIG: (NONE, ADMIN),
    R.GET_BROKER_CLUSTER_ACL_INFO: (NONE, ANY),
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (NONE, ADMIN),
    R.GET_BROKER_CLUSTER_ACL_CONFIG: (NONE, ADMIN),
    R.AUTH_CREATE_USER: CLUSTER_UPDATE,
    R.AUTH_UPDATE_USER: CLUSTER_UPDATE,
    R.AUTH_DELETE_USER: CLUSTER_UPDATE,
    R.AUTH_GET_USER: CLUSTER_GET,
    R.AUTH_LIST_USER: CLUSTER_GET,
    R.AUTH_CREATE_ACL: CLUSTER_UPDATE,
    R.AUTH_UPDATE_ACL: CLUSTER_UPDATE,
    R.AUTH_DELETE_ACL: CLUSTER_UPDATE,
    R.AUTH_GET_ACL: CLUSTER_GET,
    R.AUTH_LIST_ACL: CLUSTER_GET,
}
NOT_ANSWERED = {
    # Of name servers, controllers and clients, or not of this broker.
    *(R.QUERY_BROKER_OFFSET, R.GET_TOPIC_CONFIG_LIST, R.GET_TOPIC_NAME_LIST),
    *(R.CHECK_TRANSACTION_STATE, R.NOTIFY_CONSUMER_IDS_CHANGED, R.GET_CLIENT_CONFIG),
    *(R.PUT_KV_CONFIG, R.GET_KV_CONFIG, R.DELETE_KV_CONFIG, R.REGISTER_BROKER),
    *(R.UNREGISTER_BROKER, R.GET_ROUTEINFO_BY_TOPIC, R.GET_BROKER_CLUSTER_INFO),
    *(R.WIPE_WRITE_PERM_OF_BROKER, R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, R.SUSPEND_CONSUMER),
    *(R.RESUME_CONSUMER, R.RESET_CONSUMER_OFFSET_IN_CONSUMER, R.RESET_CONSUMER_OFFSET_IN_BROKER),
    *(R.ADJUST_CONSUMER_THREAD_POOL, R.WHO_CONSUME_THE_MESSAGE, R.DELETE_TOPIC_IN_NAMESRV),
    *(R.REGISTER_TOPIC_IN_NAMESRV, R.GET_KVLIST_BY_NAMESPACE, R.RESET_CONSUMER_CLIENT_OFFSET),
    *(R.GET_CONSUMER_STATUS_FROM_CLIENT, R.GET_TOPICS_BY_CLUSTER, R.REGISTER_FILTER_SERVER),
    *(R.REGISTER_MESSAGE_FILTER_CLASS, R.QUERY_CONSUME_TIME_SPAN, R.GET_SYSTEM_TOPIC_LIST_FROM_NS),
    *(R.QUERY_CORRECTION_OFFSET, R.GET_UNIT_TOPIC_LIST, R.GET_HAS_UNIT_SUB_TOPIC_LIST),
    *(R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, R.UPDATE_NAMESRV_CONFIG, R.GET_NAMESRV_CONFIG),
    *(R.QUERY_DATA_VERSION, R.RESUME_CHECK_HALF_MESSAGE, R.PUSH_REPLY_MESSAGE_TO_CLIENT),
    *(R.ADD_WRITE_PERM_OF_BROKER, R.UPDATE_AND_GET_GROUP_FORBIDDEN),
    *(R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, R.EXPORT_ROCKSDB_CONFIG_TO_JSON, R.QUERY_ASSIGNMENT),
    R.SET_MESSAGE_REQUEST_MODE,
    *(R.UPDATE_AND_CREATE_STATIC_TOPIC, R.GET_BROKER_MEMBER_GROUP, R.ADD_BROKER, R.REMOVE_BROKER),
    *(R.BROKER_HEARTBEAT, R.NOTIFY_MIN_BROKER_ID_CHANGE, R.EXCHANGE_BROKER_HA_INFO),
    *(R.GET_BROKER_HA_STATUS, R.RESET_MASTER_FLUSH_OFFSET, R.CONTROLLER_ALTER_SYNC_STATE_SET),
    *(R.CONTROLLER_ELECT_MASTER, R.CONTROLLER_REGISTER_BROKER, R.CONTROLLER_GET_REPLICA_INFO),
    *(R.CONTROLLER_GET_METADATA_INFO, R.CONTROLLER_GET_SYNC_STATE_DATA, R.GET_BROKER_EPOCH_CACHE),
    *(R.NOTIFY_BROKER_ROLE_CHANGED, R.UPDATE_CONTROLLER_CONFIG, R.GET_CONTROLLER_CONFIG),
    *(R.CLEAN_BROKER_DATA, R.CONTROLLER_GET_NEXT_BROKER_ID, R.CONTROLLER_APPLY_BROKER_ID),
    *(R.BROKER_CLOSE_CHANNEL_REQUEST, R.CHECK_NOT_ACTIVE_BROKER_REQUEST),
    *(R.GET_BROKER_LIVE_INFO_REQUEST, R.GET_SYNC_STATE_DATA_REQUEST),
    *(R.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST, R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG),
    *(R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, R.GET_COLD_DATA_FLOW_CTR_INFO),
    *(R.SET_COMMITLOG_READ_MODE, R.SWITCH_TIMER_ENGINE, R.POP_MESSAGE, R.ACK_MESSAGE),
    *(R.PEEK_MESSAGE, R.CHANGE_MESSAGE_INVISIBLETIME, R.NOTIFICATION, R.POLLING_INFO),
    *(R.POP_ROLLBACK, R.POP_LITE_MESSAGE, R.LITE_SUBSCRIPTION_CTL, R.ACK_LITE_MESSAGE),
    *(R.NOTIFY_UNSUBSCRIBE_LITE, R.GET_BROKER_LITE_INFO, R.GET_PARENT_TOPIC_INFO),
    *(R.GET_LITE_TOPIC_INFO, R.GET_LITE_CLIENT_INFO, R.GET_LITE_GROUP_INFO),
    *(R.TRIGGER_LITE_DISPATCH, R.BATCH_ACK_MESSAGE),
}
WITHOUT_HANDLER = {R.UPDATE_AND_CREATE_TOPIC_LIST, R.TRIGGER_DELETE_FILES, R.CLEAN_UNUSED_TOPIC}
WITHOUT_HANDLER |= {R.DELETE_EXPIRED_COMMITLOG}
"""In the table because they would change what others use, and not answered yet."""
FIGURES = {code for code, rights in RIGHTS.items() if rights[1:] == (ANY,)}
"""What every account of RocketMQ 4 may ask for: no messages."""


def queue_of(topic):
    return {"topic": topic, "brokerName": "broker-a", "queueId": 0}


def request_of(code, topic, group, source=None, offset=0):
    """Fields and body of a request that names a topic and a group."""
    both = {"topic": topic, "consumerGroup": group, "group": group, "queueId": "0"}
    both |= {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "subscription": "*"}
    both |= {"timestamp": "1", "commitOffset": "1", "offset": str(offset), "isForce": "true"}
    both |= {"srcGroup": source or group, "destGroup": group, "groupName": group, "count": "9"}
    both |= {
        "topicList": topic,
        "key": "k",
        "maxNum": "9",
        "beginTimestamp": "0",
        "subVersion": "0",
    }
    both |= {"endTimestamp": str(2**62), "delayLevel": "1", "originTopic": topic, "index": "0"}
    both |= {"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    both |= {
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "producerGroup": "p",
        "clientID": "c",
    }
    both |= {"clientId": "c", "jstackEnable": "true", "statsName": "x", "statsKey": topic}
    both |= {"tranStateTableOffset": "0", "commitLogOffset": str(offset), "commitOrRollback": "8"}
    both |= {"defaultTopicQueueNums": "4", "bornTimestamp": "1", "flag": "0", "properties": ""}
    both |= {"bornHost": "127.0.0.1:1", "storeHost": "127.0.0.1:1", "storeTimestamp": "1"}
    both |= {"msgId": f"7F00000100000001{offset:016X}", "recallHandle": "x", "username": "new"}
    both |= {"accessKey": "new-user-1", "globalWhiteAddrs": "*", "subject": "User:app"}
    short = {
        name: str(value) for name, value in send_fields(topic, "").items() if value is not None
    }
    body = b"forged"
    if code in {R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE, R.SEND_REPLY_MESSAGE_V2}:
        return short | {"k": "false", "m": "false"}, body
    if code in {R.SEND_MESSAGE, R.SEND_REPLY_MESSAGE}:
        return both | {"sysFlag": "0"}, body
    bodies = {
        R.HEART_BEAT: {
            "clientID": "c",
            "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [{"topic": topic}]}],
        },
        R.LOCK_BATCH_MQ: {"consumerGroup": group, "clientId": "c", "mqSet": [queue_of(topic)]},
        R.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [{"topicName": topic}]},
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": group, "retryMaxTimes": 1},
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": group}]},
        R.AUTH_CREATE_USER: {"password": "forged"},
        R.AUTH_CREATE_ACL: {
            "policies": [{"entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]}]
        },
    }
    bodies[R.UNLOCK_BATCH_MQ] = bodies[R.LOCK_BATCH_MQ]
    bodies[R.AUTH_UPDATE_USER] = bodies[R.AUTH_CREATE_USER]
    bodies[R.AUTH_UPDATE_ACL] = bodies[R.AUTH_CREATE_ACL]
    return both, json.dumps(bodies[code]).encode() if code in bodies else b""


def words_of_policies(code):
    fields, body = request_of(code, "T", "g", "s")
    needs = needs_of(RemotingCommand(int(code), ext_fields=fields, body=body), "cluster")
    found = [
        f"{'|'.join(map(str, need.actions))} {need.resource.name}" for need in dict.fromkeys(needs)
    ]
    return ", ".join(found) or NONE


def words_of_accounts(code):
    if code in ADMIN_CODES:
        return ADMIN
    fields, body = request_of(code, "T", "g", "s")
    needed = list(_needed(RemotingCommand(int(code), ext_fields=fields, body=body)))
    names = {Permission.PUB: "PUB", Permission.SUB: "SUB"}
    found = [f"{names[need]} {name.removeprefix('%RETRY%')}" for name, need in needed]
    return ", ".join(found) or ANY


def test_every_request_code_has_a_row_that_says_what_it_needs():
    assert RIGHTS.keys() | NOT_ANSWERED == set(RequestCode)
    assert not RIGHTS.keys() & NOT_ANSWERED


@pytest.mark.parametrize("code", RIGHTS, ids=lambda code: code.name)
def test_a_request_needs_what_its_row_says(code):
    assert (words_of_policies(code), words_of_accounts(code)) == RIGHTS[code][:2]


def documented_codes(column):
    """The codes that docs/operations.md says are refused, and not by RocketMQ."""
    text = (Path(__file__).parents[4] / "docs" / "operations.md").read_text()
    table = text.partition("\n| request | from accounts")[2].partition("\n\n")[0]
    rows = [row.strip("|").split("|") for row in table.splitlines()[2:]]
    return {
        int(code)
        for row in rows
        if row[column].strip() == "yes"
        for codes in re.findall(r"\(([\d, ]+)\)", row[0])
        for code in codes.split(", ")
    }


@pytest.mark.parametrize(("column", "stricter"), [(1, STRICTER_4), (2, STRICTER_5)])
def test_what_is_refused_unlike_by_rocketmq_is_documented(column, stricter):
    compared = {int(RequestCode[request.partition("(")[0]]) for request in stricter}
    assert documented_codes(column) == compared


POLICY = b"""{"policies":[{"entries":[
    {"resource":"Topic:Orders","actions":["All"],"decision":"Allow"},
    {"resource":"Group:readers","actions":["All"],"decision":"Allow"}]}]}"""
ACCOUNTS = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- {{accessKey: nothing-1, secretKey: {SECRET}}}
- accessKey: orders-app
  secretKey: {SECRET}
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [readers=SUB]
"""
HIDDEN = ("Secret", "others")


@asynccontextmanager
async def with_everyone(kind, directory):
    """Run a broker with what is hidden; gives it, a user without rights and one with some."""
    if kind == "accounts":
        async with with_accounts(directory, ACCOUNTS) as (world, admin, app):
            yield world, admin, Signer(world, "nothing-1"), app
        return
    async with with_users(directory) as (world, admin):
        for name in ("nothing", "app"):
            body = f'{{"password":"{SECRET}"}}'.encode()
            assert (await admin(R.AUTH_CREATE_USER, body, username=name)).code == 0
        assert (await admin(R.AUTH_CREATE_ACL, POLICY, subject="User:app")).code == 0
        yield world, admin, Signer(world, "nothing"), Signer(world, "app")


async def hide_things(admin):
    """Make topics and groups, and messages that others may not read; returns their offsets."""
    for group in ("readers", "others"):
        made = b'{"groupName":"%s","retryQueueNums":1,"retryMaxTimes":16}' % group.encode()
        assert (await admin(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, made)).code == 0
    offsets = []
    for properties, flag in (
        ({}, 0),
        ({"DELAY": 18}, 0),
        ({"TIMER_DELAY_SEC": 3600}, 0),
        ({"TRAN_MSG": "true", "PGROUP": "p"}, 4),
    ):
        fields = send_fields("Secret", properties_of(KEYS="k", **properties))
        fields = {name: value for name, value in fields.items() if value is not None}
        fields |= {"f": flag, "k": "false", "m": "false"}
        answer = await admin(R.SEND_MESSAGE_V2, b"hidden", **fields)
        assert answer.code == 0
        offsets.append(int(answer.ext_fields["msgId"][16:], 16))
    fields |= {"b": "Orders", "f": 0, "i": ""}
    own = int((await admin(R.SEND_MESSAGE_V2, b"open", **fields)).ext_fields["msgId"][16:], 16)
    for level in (1, -1):
        back = {"group": "readers", "offset": own, "delayLevel": level, "originTopic": "Orders"}
        assert (await admin(R.CONSUMER_SEND_MSG_BACK, **back)).code == 0
    back = {"group": "others", "offset": offsets[0], "delayLevel": -1, "originTopic": "Secret"}
    assert (await admin(R.CONSUMER_SEND_MSG_BACK, **back)).code == 0
    commit = {"topic": "Secret", "consumerGroup": "others", "queueId": 0, "commitOffset": 1}
    assert (await admin(R.UPDATE_CONSUMER_OFFSET, **commit)).code == 0
    end = int(answer.ext_fields["msgId"][16:], 16)
    return [*offsets, end]


def state_of(world, home):
    """All that requests can change, but for the connections that they come from."""
    core = world.core
    files = {
        path: path.read_bytes() for path in home.rglob("*") if path.suffix in {".yml", ".yaml"}
    }
    return (
        core.store.end_offset,
        [table.value() for table in core.tables if hasattr(table, "value")],
        core.offsets.table,
        core.offsets.resets,
        core.delay_offsets.table,
        sorted(core.clients.consumers),
        list(core.queue_locks._locks),
        sorted(core.topics.topics),
        core.settings.properties_in_effect(core.store.store_host.port),
        files,
    )


def variants(code, offsets):
    """Requests that name what is hidden, or use what is not to reach a hidden message."""
    places = [
        HIDDEN,
        ("Orders", "others"),
        ("Secret", "readers"),
        ("%RETRY%others", "others"),
        ("%DLQ%others", "others"),
        ("SCHEDULE_TOPIC_XXXX", "others"),
        ("rmq_sys_wheel_timer", "others"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "others"),
        ("NotThereYet", "not-there-yet"),
    ]
    for topic, group in places:
        yield request_of(code, topic, group, "others", offsets[0])
    forged = properties_of(REAL_TOPIC="Secret", REAL_QID="0", TIMER_OUT_MS="1")
    for topic in ("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"):
        yield with_properties(request_of(code, topic, "readers", "others"), forged)
    copy_of_hidden = properties_of(RETRY_TOPIC="Secret", DLQ_ORIGIN_TOPIC="Secret")
    yield with_properties(request_of(code, "%RETRY%readers", "readers"), copy_of_hidden)
    for offset in offsets:
        yield request_of(code, "Orders", "readers", "others", offset)
        fields, body = request_of(code, "Orders", "readers", "others", offset)
        yield {name: each for name, each in fields.items() if name != "topic"}, body
    yield {}, b""


def with_properties(request, properties):
    fields, body = request
    changes = {"i": properties, "properties": properties, "a": "readers"}
    return {**fields, **changes, "producerGroup": "readers"}, body


OF_A_MESSAGE = {
    *(R.VIEW_MESSAGE_BY_ID, R.CONSUMER_SEND_MSG_BACK, R.END_TRANSACTION),
    R.CONSUME_MESSAGE_DIRECTLY,
}
"""Requests that name a message, which decides, too."""
REPLIES = {R.SEND_REPLY_MESSAGE, R.SEND_REPLY_MESSAGE_V2}
SENDS = {R.SEND_MESSAGE, R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE, *REPLIES}


def is_own(kind, code, fields, body):
    """Whether a request is about the second user's own topic and group alone."""
    if code in OF_A_MESSAGE or (code in SENDS and "Secret" in fields.get("properties", "")):
        return False
    if code in REPLIES:
        return "Orders" in (fields.get("topic"), fields.get("b"))
    command = RemotingCommand(int(code), ext_fields=fields, body=body)
    try:
        if kind == "users":
            names = {need.resource.name for need in needs_of(command, "cluster")}
        else:
            names = {name.removeprefix("%RETRY%") for name, _ in _needed(command)}
            names |= {ADMIN} if code in ADMIN_CODES else set()
    except CommandBodyError:
        return False
    return bool(names) and names <= {"Orders", "readers"}


@pytest.mark.parametrize("kind", ["accounts", "users"])
@pytest.mark.parametrize("who", ["nothing", "another topic"])
async def test_no_request_stores_changes_or_reads_what_its_sender_may_not(tmp_path, kind, who):
    async with with_everyone(kind, tmp_path) as (world, admin, nothing, app):
        offsets = await hide_things(admin)
        attacker = nothing if who == "nothing" else app
        home = tmp_path / "home"
        # What the broker does by itself changes nothing from now on.
        world.service._cancel_timers()
        before = copy.deepcopy(state_of(world, home))
        for number, code in enumerate(RequestCode, 1):
            for fields, body in variants(code, offsets):
                if attacker is app and is_own(kind, code, fields, body):
                    continue
                answer = await attacker(code, body, **fields)
                shown = f"{code.name} {fields} {answer.code} {answer.remark}"
                assert b"hidden" not in answer.body, shown
                if answer.code == 0 and not (kind == "accounts" and code in FIGURES):
                    assert not any(each.encode() in answer.body for each in HIDDEN), shown
            if number % sized(10, 1) == 0 or number == len(RequestCode):
                assert state_of(world, home) == before, code


@pytest.mark.parametrize("kind", ["accounts", "users"])
async def test_an_administrator_does_what_others_may_not(tmp_path, kind):
    async with with_everyone(kind, tmp_path) as (_, admin, _, app):
        await hide_things(admin)
        fields, _ = request_of(R.PULL_MESSAGE, "Secret", "others")
        assert b"hidden" in (await admin(R.PULL_MESSAGE, **fields)).body
        for code, name in (
            (R.GET_ALL_TOPIC_CONFIG, b"Secret"),
            (R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, b"others"),
        ):
            assert name in (await admin(code)).body
        assert b"readers" in (await app(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body
        answered = {int(each) for each in RIGHTS.keys() - WITHOUT_HANDLER}
        unsupported = [code for code in RequestCode if (await admin(code, **fields)).code == 3]
        one_kind = set(range(50, 55)) if kind == "users" else set(range(3001, 3011))
        assert set(unsupported) == set(map(int, RequestCode)) - answered | one_kind


DENY_LIST = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- {{accessKey: nothing-1, secretKey: {SECRET}}}
- accessKey: orders-app
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  topicPerms: [Secret=DENY]
  groupPerms: [readers=SUB]
"""
DENY_POLICY = b"""{"policies":[{"entries":[
    {"resource":"Topic:*","actions":["All"],"decision":"Allow"},
    {"resource":"Topic:Secret","actions":["All"],"decision":"Deny"},
    {"resource":"Group:readers","actions":["All"],"decision":"Allow"}]}]}"""


@pytest.fixture
def deny_list(monkeypatch):
    """The second user may use every topic but one."""
    monkeypatch.setattr(f"{__name__}.ACCOUNTS", DENY_LIST)
    monkeypatch.setattr(f"{__name__}.POLICY", DENY_POLICY)


WRITTEN_BY_BROKERS = NOT_ALLOWED_SEND_TOPICS | {TIMER_TOPIC}


def send_to(code, topic, properties):
    """A send that RocketMQ would store in a topic, with properties of its own."""
    fields, body = with_properties(request_of(code, topic, "readers"), properties)
    if code == R.SEND_BATCH_MESSAGE:
        body = batch_body.encode([batch_body.BatchMember(0, body, properties.encode())])
    return fields, body


@pytest.mark.usefixtures("deny_list")
@pytest.mark.parametrize("kind", ["accounts", "users"])
async def test_no_send_reaches_a_topic_past_its_permissions_through_the_brokers_own(tmp_path, kind):
    async with with_everyone(kind, tmp_path) as (world, admin, _, app):
        await hide_things(admin)
        world.service._cancel_timers()
        reached = len(world.stored("Secret"))
        end = world.core.store.end_offset
        forged = properties_of(
            REAL_TOPIC="Secret", REAL_QID="0", DELAY="1", TIMER_OUT_MS=str(NOW_MS + 1000)
        )
        for code, topic in itertools.product(sorted(SENDS), sorted(WRITTEN_BY_BROKERS)):
            fields, body = send_to(code, topic, forged)
            answer = await app(code, body, **fields)
            assert answer.code == ResponseCode.NO_PERMISSION, (code, topic, answer)
            assert world.core.store.end_offset == end, (code, topic)
        # Nor is a message taken for a copy of one that its sender may not read.
        copy_of_hidden = properties_of(RETRY_TOPIC="Secret", DLQ_ORIGIN_TOPIC="Secret")
        refused = ResponseCode.NO_PERMISSION if kind == "users" else 1
        for code, topic in itertools.product(sorted(SENDS), ("%RETRY%readers", "%DLQ%readers")):
            fields, body = send_to(code, topic, copy_of_hidden)
            answer = await app(code, body, **fields)
            is_batch_retry = code == R.SEND_BATCH_MESSAGE and topic == "%RETRY%readers"
            assert answer.code == (13 if is_batch_retry else refused), (code, topic, answer)
            assert world.core.store.end_offset == end, (code, topic)
        world.clock.now_ms += 3 * 3_600_000
        world.service._schedule.deliver_due(500)
        while world.core.timers.step(100):
            pass
        delivered = [record.body for record in world.stored("Secret")[reached:]]
        assert delivered == [b"hidden"] * 2, "what the administrator had delayed"
        fields, body = send_to(R.SEND_MESSAGE, "%RETRY%readers", "RETRY_TOPIC\x01Orders\x02")
        assert (await app(R.SEND_MESSAGE, body, **fields)).code == 0
