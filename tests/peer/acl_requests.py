"""Requests to a broker with access control: who asks what, the same for each broker."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rocketlens.net.pool import ClientPool
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.codes import RequestCode

SECRETS = MappingProxyType(
    {
        "administrator": "12345678",
        "orders-app": "0rders-secret",
        "denied-all": "denied-secret",
        "white-listed": "white-secret",
    }
)
PLAIN_ACL = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: administrator
  secretKey: 12345678
  admin: true
- accessKey: orders-app
  secretKey: 0rders-secret
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Orders=PUB
  - ReadOnly=SUB
  groupPerms:
  - orders-group=SUB
- accessKey: denied-all
  secretKey: denied-secret
- accessKey: white-listed
  secretKey: white-secret
  whiteRemoteAddress: 127.0.0.*
"""
_PACKAGE = "org.apache.rocketmq.auth."
AUTH_SETTINGS = MappingProxyType(
    {
        "authenticationEnabled": True,
        "authenticationProvider": (
            f"{_PACKAGE}authentication.provider.DefaultAuthenticationProvider"
        ),
        "authenticationMetadataProvider": (
            f"{_PACKAGE}authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "initAuthenticationUser": '{"username":"administrator","password":"12345678"}',
        "innerClientAuthenticationCredentials": (
            '{"accessKey":"administrator","secretKey":"12345678"}'
        ),
        "authorizationEnabled": True,
        "authorizationProvider": f"{_PACKAGE}authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": (
            f"{_PACKAGE}authorization.provider.LocalAuthorizationMetadataProvider"
        ),
    }
)
ORDERS, READ_ONLY, OTHER = "Orders", "ReadOnly", "Other"
GROUP, OTHER_GROUP = "orders-group", "other-group"


@dataclass(frozen=True)
class Request:
    """One request, signed by a user of `SECRETS`, or by none."""

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    note: str = ""
    """What else tells it from the others of its code."""

    def __str__(self):
        shown = ",".join(f"{k}={v}" for k, v in self.fields.items() if k in SHOWN)
        note = f" {self.note}" if self.note else ""
        return f"{RequestCode(self.code).name}({shown}){note}"


SHOWN = {"topic", "b", "consumerGroup", "group", "groupName", "username", "subject", "a"}


def send(topic, group="producers"):
    fields = {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "UNIQ_KEY\x01AC11000200004AA9A5AB0000\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return Request(RequestCode.SEND_MESSAGE_V2, fields, b"body")


def send_long(topic, group="producers"):
    names = {
        "a": "producerGroup",
        "b": "topic",
        "c": "defaultTopic",
        "d": "defaultTopicQueueNums",
        "e": "queueId",
        "f": "sysFlag",
        "g": "bornTimestamp",
        "h": "flag",
        "i": "properties",
        "j": "reconsumeTimes",
        "k": "unitMode",
        "m": "batch",
    }
    fields = {names[name]: value for name, value in send(topic, group).fields.items()}
    return Request(RequestCode.SEND_MESSAGE, fields, b"body")


def pull(topic, group):
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return Request(RequestCode.PULL_MESSAGE, fields)


def heartbeat(group, *topics):
    subscriptions = [
        {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
        for topic in topics
    ]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    data = {
        "clientID": "c@1",
        "producerDataSet": [],
        "consumerDataSet": [consumer] if group else [],
    }
    return Request(RequestCode.HEART_BEAT, {}, json.dumps(data).encode())


def query(topic):
    fields = {
        "topic": topic,
        "key": "k",
        "maxNum": "1",
        "beginTimestamp": "0",
        "endTimestamp": str(2**62),
    }
    return Request(RequestCode.QUERY_MESSAGE, fields)


def update_topic(topic):
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return Request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def locks(group, topic, code=RequestCode.LOCK_BATCH_MQ):
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    data = {"consumerGroup": group, "clientId": "c@1", "mqSet": [queue]}
    return Request(code, {}, json.dumps(data).encode())


def offset(code, group, topic):
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    if code == RequestCode.UPDATE_CONSUMER_OFFSET:
        fields["commitOffset"] = "0"
    return Request(code, fields)


def of_topic(code, topic, **others):
    return Request(code, {"topic": topic, "queueId": "0", **others})


def update_group(name):
    members = {"groupName": name, "consumeEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1}
    body = json.dumps(members).encode()
    return Request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)


def batch(topic):
    # One member: size, magic, checksum, flag, body, properties.
    member = (4 + 4 + 4 + 4 + 4 + 4 + 2).to_bytes(4, "big") + bytes(12) + (4).to_bytes(4, "big")
    member += b"body" + bytes(2)
    request = send(topic)
    return Request(RequestCode.SEND_BATCH_MESSAGE, {**request.fields, "m": "true"}, member)


def with_properties(request, properties, note, code=None):
    """The same request with properties in either form of the header."""
    name = "i" if "i" in request.fields else "properties"
    fields = {**request.fields, name: properties}
    return Request(code or request.code, fields, request.body, note)


def half_message():
    """The first message of the log: a half message of a topic that only administrators use."""
    properties = (
        "UNIQ_KEY\x01AC11000200004AA9A5AB0001\x02TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
    )
    request = with_properties(send(OTHER), properties, "half")
    return replace(request, fields={**request.fields, "f": "4"})


def end_transaction(**topic):
    fields = {
        "producerGroup": "producers",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        **topic,
    }
    return Request(RequestCode.END_TRANSACTION, fields)


def producer_heartbeat():
    data = {
        "clientID": "c@1",
        "producerDataSet": [{"groupName": "producers"}],
        "consumerDataSet": [],
    }
    return Request(RequestCode.HEART_BEAT, {}, json.dumps(data).encode(), "of a producer")


WAITING_TOPICS = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC")


def past_topics():
    """Requests that reach messages past the topic that they name."""
    code = RequestCode
    forged = "REAL_TOPIC\x01Other\x02REAL_QID\x010\x02TIMER_OUT_MS\x011\x02"
    for topic in (ORDERS, OTHER, "rmq_sys_wheel_timer"):
        reply = with_properties(send(topic), forged, "forged", code.SEND_REPLY_MESSAGE_V2)
        yield reply
        yield with_properties(send_long(topic), forged, "forged", code.SEND_REPLY_MESSAGE)
    for topic in (ORDERS, "rmq_sys_wheel_timer"):
        yield with_properties(send(topic), forged, "forged")
    copy = "RETRY_TOPIC\x01Other\x02"
    yield with_properties(send(f"%RETRY%{GROUP}", GROUP), copy, "copy of another topic's")
    yield producer_heartbeat()
    for topic in WAITING_TOPICS:
        yield pull(topic, GROUP)
        yield replace(pull(topic, GROUP), code=code.LITE_PULL_MESSAGE)
        yield query(topic)
    yield replace(pull(READ_ONLY, OTHER_GROUP), code=code.LITE_PULL_MESSAGE)
    yield end_transaction()
    yield end_transaction(topic=ORDERS)
    yield end_transaction(topic=OTHER)
    for fields in ({}, {"topic": ORDERS}, {"topic": OTHER}):
        yield Request(code.VIEW_MESSAGE_BY_ID, {"offset": "0", **fields})
    direct = {"consumerGroup": GROUP, "msgId": "7F00000100002A9F0000000000000000", "clientId": "c"}
    yield Request(code.CONSUME_MESSAGE_DIRECTLY, direct)


def of_administrators_here():
    """Requests that some version lets every account ask; such as change nothing."""
    code = RequestCode
    yield Request(code.RECALL_MESSAGE, {"topic": OTHER, "recallHandle": "x"})
    reset = {"topic": READ_ONLY, "group": OTHER_GROUP, "timestamp": "1", "isForce": "true"}
    yield Request(code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    yield Request(code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, reset)
    clone = {"srcGroup": OTHER_GROUP, "destGroup": GROUP, "topic": READ_ONLY, "offline": "true"}
    yield Request(code.CLONE_GROUP_OFFSET, clone)
    yield Request(code.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": OTHER_GROUP, "clientId": "c@9"})
    yield Request(code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": OTHER_GROUP})
    yield Request(code.GET_BROKER_CONFIG)
    yield Request(code.UPDATE_BROKER_CONFIG)
    for each in (
        code.TRIGGER_DELETE_FILES,
        code.CLEAN_EXPIRED_CONSUMEQUEUE,
        code.CLEAN_UNUSED_TOPIC,
        code.DELETE_EXPIRED_COMMITLOG,
        code.GET_BROKER_CLUSTER_ACL_CONFIG,
        code.UPDATE_AND_CREATE_ACL_CONFIG,
        code.DELETE_ACL_CONFIG,
        code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    ):
        yield Request(each)
    topics = {"topicConfigList": [{"topicName": "Made"}]}
    yield Request(code.UPDATE_AND_CREATE_TOPIC_LIST, {}, json.dumps(topics).encode())
    groups = {"groupConfigList": [{"groupName": OTHER_GROUP}]}
    yield Request(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, json.dumps(groups).encode())


_FORGED_REPLIES = {
    f"{name}{topic}) forged"
    for name in ("SEND_REPLY_MESSAGE(topic=", "SEND_REPLY_MESSAGE_V2(a=producers,b=")
    for topic in (ORDERS, OTHER, "rmq_sys_wheel_timer")
}
_STRICTER_BOTH = {
    *_FORGED_REPLIES,
    f"SEND_MESSAGE_V2(a={GROUP},b=%RETRY%{GROUP}) copy of another topic's",
    *(f"LITE_PULL_MESSAGE(consumerGroup={GROUP},topic={topic})" for topic in WAITING_TOPICS),
    f"LITE_PULL_MESSAGE(consumerGroup={OTHER_GROUP},topic={READ_ONLY})",
    "END_TRANSACTION()",
    f"END_TRANSACTION(topic={ORDERS})",
    "VIEW_MESSAGE_BY_ID()",
    f"CONSUME_MESSAGE_DIRECTLY(consumerGroup={GROUP})",
    "GET_BROKER_CONFIG()",
    "TRIGGER_DELETE_FILES()",
    "CLEAN_EXPIRED_CONSUMEQUEUE()",
    "CLEAN_UNUSED_TOPIC()",
    "DELETE_EXPIRED_COMMITLOG()",
    "UPDATE_AND_CREATE_TOPIC_LIST()",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST()",
}
STRICTER_4 = _STRICTER_BOTH | {
    "LOCK_BATCH_MQ()",
    "UNLOCK_BATCH_MQ()",
    f"SEND_BATCH_MESSAGE(a=producers,b={READ_ONLY})",
    f"SEND_BATCH_MESSAGE(a=producers,b={ORDERS})",
    f"END_TRANSACTION(topic={OTHER})",
    f"VIEW_MESSAGE_BY_ID(topic={ORDERS})",
    f"VIEW_MESSAGE_BY_ID(topic={OTHER})",
    f"RECALL_MESSAGE(topic={OTHER})",
    f"INVOKE_BROKER_TO_RESET_OFFSET(topic={READ_ONLY},group={OTHER_GROUP})",
    f"INVOKE_BROKER_TO_GET_CONSUMER_STATUS(topic={READ_ONLY},group={OTHER_GROUP})",
    f"CLONE_GROUP_OFFSET(topic={READ_ONLY})",
    f"GET_CONSUMER_RUNNING_INFO(consumerGroup={OTHER_GROUP})",
    f"GET_SUBSCRIPTIONGROUP_CONFIG(group={OTHER_GROUP})",
    "GET_BROKER_CLUSTER_ACL_CONFIG()",
    "UPDATE_AND_CREATE_ACL_CONFIG()",
    "DELETE_ACL_CONFIG()",
    "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG()",
}
"""What RocketMQ 4.9.7 lets an account do, or does not know, and ours refuses."""
STRICTER_5 = _STRICTER_BOTH | {
    f"PULL_MESSAGE(consumerGroup={GROUP},topic=%RETRY%{OTHER_GROUP})",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP()",
    "UPDATE_BROKER_CONFIG()",
}
"""What RocketMQ 5.5.0 lets a user do, and ours refuses."""


def common_requests():
    """Those that both generations of access control are asked, after `half_message`."""
    retry, other_retry = f"%RETRY%{GROUP}", f"%RETRY%{OTHER_GROUP}"
    code = RequestCode
    yield from (send(topic) for topic in (ORDERS, READ_ONLY, OTHER, "RMQ_SYS_TRACE_TOPIC"))
    yield from (send_long(topic) for topic in (ORDERS, READ_ONLY))
    yield from (batch(topic) for topic in (ORDERS, READ_ONLY))
    yield send(retry, GROUP)
    yield send(other_retry, OTHER_GROUP)
    yield from (pull(topic, GROUP) for topic in (ORDERS, READ_ONLY, OTHER, retry, other_retry))
    yield pull(READ_ONLY, OTHER_GROUP)
    yield from (query(topic) for topic in (ORDERS, READ_ONLY, OTHER))
    yield heartbeat("", ORDERS)
    yield heartbeat(GROUP, READ_ONLY, retry)
    yield heartbeat(GROUP, OTHER)
    yield heartbeat(OTHER_GROUP, READ_ONLY)
    for group in (GROUP, OTHER_GROUP):
        yield Request(code.UNREGISTER_CLIENT, {"clientID": "c@1", "consumerGroup": group})
        yield Request(code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        yield Request(
            code.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": group, "delayLevel": "0"}
        )
        yield Request(code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        yield Request(code.GET_CONSUME_STATS, {"consumerGroup": group})
        yield Request(code.DELETE_SUBSCRIPTIONGROUP, {"groupName": f"{group}-2"})
        for topic in (READ_ONLY, OTHER):
            yield offset(code.QUERY_CONSUMER_OFFSET, group, topic)
            yield offset(code.UPDATE_CONSUMER_OFFSET, group, topic)
            yield locks(group, topic)
            yield locks(group, topic, code.UNLOCK_BATCH_MQ)
    yield Request(code.UNREGISTER_CLIENT, {"clientID": "c@1", "producerGroup": "producers"})
    for topic in (ORDERS, READ_ONLY, OTHER):
        yield of_topic(code.GET_MAX_OFFSET, topic)
        yield of_topic(code.GET_MIN_OFFSET, topic)
        yield of_topic(code.SEARCH_OFFSET_BY_TIMESTAMP, topic, timestamp="1")
        yield of_topic(code.GET_EARLIEST_MSG_STORETIME, topic)
        yield of_topic(code.GET_TOPIC_STATS_INFO, topic)
        yield of_topic(code.QUERY_TOPIC_CONSUME_BY_WHO, topic)
    yield update_topic("Made")
    yield of_topic(code.DELETE_TOPIC_IN_BROKER, "Made")
    yield update_group(GROUP)
    yield update_group(OTHER_GROUP)
    yield Request(code.GET_BROKER_RUNTIME_INFO)
    yield Request(code.GET_ALL_TOPIC_CONFIG)
    yield Request(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    yield Request(code.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "x"})
    yield Request(code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "producers"})
    yield from past_topics()
    yield from of_administrators_here()


async def ask(pool, address, request, user=None, secret=None):
    """Ask as a user, with its secret or another one."""
    fields = dict(request.fields)
    if user is not None:
        fields = signed_fields(fields, request.body, user, secret or SECRETS[user])
    return await pool.call(address, int(request.code), fields, request.body, timeout_s=60)


def answers(address, asked):
    """Ask a broker each of ``(who, request)``; return the answers in their order."""

    async def main():
        pool = ClientPool(lambda _: True)
        try:
            return [await ask(pool, address, request, *who) for who, request in asked]
        finally:
            await pool.close()

    return asyncio.run(main())


def create_user(username, password, user_type="Normal"):
    body = {"username": username, "password": password, "userType": user_type}
    return Request(RequestCode.AUTH_CREATE_USER, {"username": username}, json.dumps(body).encode())


def acl_body(subject, *entries, policy_type="Custom"):
    rows = [
        {"resource": resource, "actions": actions.split(","), "decision": decision, **more}
        for resource, actions, decision, more in entries
    ]
    return {"subject": subject, "policies": [{"policyType": policy_type, "entries": rows}]}


def create_acl(subject, *entries, code=RequestCode.AUTH_CREATE_ACL, policy_type="Custom"):
    body = json.dumps(acl_body(subject, *entries, policy_type=policy_type)).encode()
    return Request(code, {"subject": subject}, body)


def set_up_2_0():
    """What an administrator does first, for the same permissions as in `PLAIN_ACL`."""
    yield create_user("orders-app", SECRETS["orders-app"])
    yield create_user("denied-all", SECRETS["denied-all"])
    yield create_acl(
        "User:orders-app",
        ("Topic:Orders", "Pub", "Allow", {}),
        ("Topic:ReadOnly", "Sub", "Allow", {}),
        ("Topic:Read*", "All", "Deny", {}),
        ("Group:orders-group", "Sub", "Allow", {"sourceIps": ["127.0.0.0/8"]}),
        ("Group:other-group", "Sub", "Allow", {"sourceIps": ["192.168.0.1"]}),
    )


def user_requests():
    """Requests about users and their permissions, in an order in which they make sense."""
    code = RequestCode
    yield create_user("", "x")
    yield create_user("someone", "")
    yield create_user("someone", "s3cret-s3cret")
    yield create_user("someone", "s3cret-s3cret")
    yield create_user("second-admin", "s3cret-s3cret", "Super")
    yield Request(code.AUTH_GET_USER, {"username": "someone"})
    yield Request(code.AUTH_GET_USER, {"username": "nobody-here"})
    yield Request(code.AUTH_GET_USER, {"username": " "})
    yield Request(code.AUTH_LIST_USER, {"filter": "some"})
    yield Request(code.AUTH_LIST_USER)
    yield Request(code.AUTH_UPDATE_USER, {"username": "someone"}, b'{"userStatus":"disable"}')
    yield Request(code.AUTH_UPDATE_USER, {"username": "nobody-here"}, b'{"password":"x"}')
    yield Request(code.AUTH_UPDATE_USER, {"username": ""}, b'{"password":"x"}')
    yield Request(code.AUTH_GET_USER, {"username": "someone"})
    ip = {"sourceIps": ["10.0.0.0/8", "192.168.1.1"]}
    yield create_acl("User:someone", ("Topic:a*", "Pub,Sub", "Allow", ip))
    yield create_acl("User:someone", ("Topic:b", "Pub", "Deny", {}), ("*", "Get", "allow", {}))
    yield create_acl("User:nobody-here", ("Topic:a*", "Pub,Sub", "Allow", {}))
    yield create_acl("Role:someone", ("Topic:a*", "Pub,Sub", "Allow", {}))
    yield create_acl("User:someone", ("Queue:a*", "Pub,Sub", "Allow", {}))
    yield create_acl("User:someone", ("Topic:a*", "Wave", "Allow", {}))
    yield create_acl("User:someone", ("Topic:a*", "Any", "Allow", {}))
    yield create_acl("User:someone", ("Topic:a*", "Pub", "Maybe", {}))
    yield create_acl("User:someone", ("Topic:a*", "Pub", "Allow", {"sourceIps": ["x"]}))
    yield create_acl("User:someone")
    yield Request(code.AUTH_CREATE_ACL, {"subject": "User:someone"})
    yield Request(code.AUTH_GET_ACL, {"subject": "User:someone"})
    yield create_acl("User:someone", ("Topic:a*", "Sub", "Deny", {}), code=code.AUTH_UPDATE_ACL)
    yield create_acl("User:someone", ("Group:*", "Sub", "Allow", {}), policy_type="Default")
    yield Request(code.AUTH_GET_ACL, {"subject": "User:someone"})
    yield Request(code.AUTH_GET_ACL, {"subject": "User:second-admin"})
    yield Request(code.AUTH_LIST_ACL, {"subjectFilter": "some"})
    yield Request(code.AUTH_LIST_ACL, {"resourceFilter": "Topic:a"})
    yield Request(code.AUTH_LIST_ACL)
    yield Request(code.AUTH_DELETE_ACL, {"subject": "User:someone", "resource": "Topic:a*"})
    yield Request(code.AUTH_DELETE_ACL, {"subject": "User:someone", "resource": "Topic:none"})
    yield Request(code.AUTH_GET_ACL, {"subject": "User:someone"})
    yield Request(code.AUTH_DELETE_ACL, {"subject": "User:someone"})
    yield Request(code.AUTH_DELETE_ACL, {"subject": "User:someone"})
    yield Request(code.AUTH_DELETE_ACL, {"subject": "User:nobody-here"})
    yield Request(code.AUTH_GET_ACL, {"subject": "User:someone"})
    yield Request(code.AUTH_DELETE_USER, {"username": "someone"})
    yield Request(code.AUTH_DELETE_USER, {"username": "someone"})
    yield Request(code.AUTH_DELETE_USER, {"username": "second-admin"})
