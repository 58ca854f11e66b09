"""The permissions that each request needs: resources, and actions on them.

RocketMQ 5 declares them in annotations of its header classes, and in a switch for sends, pulls,
heartbeats, offsets and locks. Requests without a declaration need only a user. `STRICTER` has
permissions that only this broker requires, with the reasons. Accounts of RocketMQ 4 need
permissions for the same resources, for some requests (:mod:`rocketlens.broker.access.plain_rules`).

A retry topic stands for its group. A heartbeat or a lock that names another group's retry topic
needs permission for that group, too: RocketMQ 5 does not check it. Source:
``DefaultAuthorizationContextBuilder``, ``RocketMQAction``, ``RocketMQResource``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.access.policy import Action, Kind, Need, Resource
from rocketlens.errors import CommandBodyError
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.model.text.json_dialect import loads
from rocketlens.wire.bodies.clients import HeartbeatData, LockBatchRequest
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import read_body

_Fields = Mapping[str, str]
_SUB: Final = (Action.SUB,)
_PUB: Final = (Action.PUB,)
_GET: Final = (Action.GET,)
_UPDATE: Final = (Action.UPDATE,)
_SUB_GET: Final = (Action.SUB, Action.GET)
_SUB_UPDATE: Final = (Action.SUB, Action.UPDATE)
_SEEING: Final = (
    *(Action.PUB, Action.SUB, Action.GET, Action.LIST),
    *(Action.UPDATE, Action.CREATE, Action.DELETE),
)

_TOPIC: Final = {"topic": Kind.TOPIC}
_OF_GROUP: Final = {"consumerGroup": Kind.GROUP}
_NAMED_GROUP: Final = {"group": Kind.GROUP}
_GROUP_TOPIC: Final = {"consumerGroup": Kind.GROUP, "topic": Kind.TOPIC}
_NAMED_GROUP_TOPIC: Final = {"group": Kind.GROUP, "topic": Kind.TOPIC}

BY_FIELDS: Final[Mapping[int, tuple[tuple[Action, ...], Mapping[str, Kind]]]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: ((Action.CREATE,), _TOPIC),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (_GET, _TOPIC),
    RequestCode.GET_MAX_OFFSET: (_GET, _TOPIC),
    RequestCode.GET_MIN_OFFSET: (_GET, _TOPIC),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (_GET, _TOPIC),
    RequestCode.VIEW_MESSAGE_BY_ID: (_GET, _TOPIC),
    RequestCode.GET_TOPIC_STATS_INFO: (_GET, _TOPIC),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (_GET, _OF_GROUP),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: ((Action.DELETE,), {"groupName": Kind.GROUP}),
    RequestCode.GET_CONSUME_STATS: (_GET, {**_GROUP_TOPIC, "topicList": Kind.TOPIC}),
    RequestCode.DELETE_TOPIC_IN_BROKER: ((Action.DELETE,), _TOPIC),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (_UPDATE, _NAMED_GROUP_TOPIC),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_GET, {**_TOPIC, **_NAMED_GROUP}),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (_GET, _TOPIC),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: (_GET, _NAMED_GROUP),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (_GET, _NAMED_GROUP_TOPIC),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (_GET, _OF_GROUP),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (_SUB, _GROUP_TOPIC),
    RequestCode.CLONE_GROUP_OFFSET: (_UPDATE, {"destGroup": Kind.GROUP, "topic": Kind.TOPIC}),
    RequestCode.QUERY_CONSUME_QUEUE: (_GET, {"topic": Kind.TOPIC, "consumerGroup": Kind.GROUP}),
    RequestCode.GET_TOPIC_CONFIG: (_GET, _TOPIC),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (_GET, _NAMED_GROUP),
    RequestCode.RECALL_MESSAGE: (_PUB, _TOPIC),
    RequestCode.END_TRANSACTION: (_PUB, _TOPIC),
    RequestCode.CONSUMER_SEND_MSG_BACK: (_SUB, _NAMED_GROUP),
    RequestCode.PULL_MESSAGE: (_SUB, {"topic": Kind.TOPIC, "consumerGroup": Kind.GROUP}),
    RequestCode.QUERY_MESSAGE: (_SUB_GET, _TOPIC),
    RequestCode.UNREGISTER_CLIENT: (_SUB, _OF_GROUP),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (_SUB_GET, _OF_GROUP),
    RequestCode.QUERY_CONSUMER_OFFSET: (_SUB_GET, {"topic": Kind.TOPIC, **_OF_GROUP}),
    RequestCode.UPDATE_CONSUMER_OFFSET: (_SUB_UPDATE, {"topic": Kind.TOPIC, **_OF_GROUP}),
}
"""The fields that name resources, in the order of the checks."""

ON_THE_CLUSTER: Final[Mapping[int, tuple[Action, ...]]] = {
    **dict.fromkeys(
        (
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.VIEW_BROKER_STATS_DATA,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.AUTH_GET_USER,
            RequestCode.AUTH_LIST_USER,
            RequestCode.AUTH_GET_ACL,
            RequestCode.AUTH_LIST_ACL,
        ),
        _GET,
    ),
    **dict.fromkeys(
        (
            RequestCode.AUTH_CREATE_USER,
            RequestCode.AUTH_UPDATE_USER,
            RequestCode.AUTH_DELETE_USER,
            RequestCode.AUTH_CREATE_ACL,
            RequestCode.AUTH_UPDATE_ACL,
            RequestCode.AUTH_DELETE_ACL,
        ),
        _UPDATE,
    ),
}

_SENDS: Final[Mapping[int, tuple[str, str]]] = {
    RequestCode.SEND_MESSAGE: ("topic", "producerGroup"),
    RequestCode.SEND_MESSAGE_V2: ("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: ("b", "a"),
}


def needs_of(command: RemotingCommand, cluster: str) -> list[Need]:
    """Return all permissions that a request needs.

    :raises CommandBodyError: if its body names resources and is invalid.
    """
    code, fields = command.code, command.ext_fields
    by_fields = BY_FIELDS.get(code)
    if by_fields is not None:
        needs = list(_of_fields(fields, *by_fields))
    elif code in ON_THE_CLUSTER:
        needs = [Need(Resource(Kind.CLUSTER, cluster), ON_THE_CLUSTER[code])]
    elif code in _SENDS:
        topic, group = map(fields.get, _SENDS[code])
        needs = [_of_topic(topic or "", _PUB, _SUB)]
        if needs[0].resource.kind is Kind.GROUP and group:
            needs.append(Need(_group(group), _SUB))
    else:
        in_body = _IN_BODY.get(code)
        needs = [] if in_body is None else list(in_body(command))
    stricter = STRICTER.get(code)
    return needs if stricter is None else [*needs, *stricter(command, cluster)]


def reading_need(topic: str) -> Need:
    return _of_topic(topic, _SUB_GET, _SUB_GET)


def writing_need(topic: str) -> Need:
    return _of_topic(topic, _PUB, _SUB)


def listing_needs(topic: str) -> Iterator[Need]:
    """Yield permissions of which one suffices to see a topic, or a retry topic's group."""
    for action in _SEEING:
        yield _of_topic(topic, (action,), (action,))


def _of_fields(
    fields: _Fields, actions: tuple[Action, ...], kinds: Mapping[str, Kind]
) -> Iterator[Need]:
    of_retry_topics = []
    for name, kind in kinds.items():
        value = fields.get(name)
        if value is None or not value.strip():
            continue
        for each in value.split(";") if name == "topicList" else (value,):
            if kind is Kind.TOPIC and each.startswith(RETRY_PREFIX):
                of_retry_topics.append(Need(_group(each), actions))
            else:
                resource = Resource(kind, each) if kind is Kind.TOPIC else _group(each)
                yield Need(resource, actions)
    # RocketMQ does not check them if the request names a group, even another one.
    yield from of_retry_topics


def _of_topic(topic: str, actions: tuple[Action, ...], of_group: tuple[Action, ...]) -> Need:
    if topic.startswith(RETRY_PREFIX):
        return Need(_group(topic), of_group)
    return Need(Resource(Kind.TOPIC, topic), actions)


def _group(name: str) -> Resource:
    return Resource(Kind.GROUP, name.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX))


def _heartbeat(command: RemotingCommand) -> Iterator[Need]:
    limit = limits.MAX_CLIENT_JSON_BODY_BYTES
    data = read_body(HeartbeatData, command.body, limit, is_plain=True)
    for consumer in data.consumer_datas:
        yield Need(_group(consumer.group_name), _SUB)
        for subscription in consumer.subscription_datas:
            if subscription.topic != RETRY_PREFIX + consumer.group_name:
                yield _of_topic(subscription.topic, _SUB, _SUB)


def _locks(command: RemotingCommand) -> Iterator[Need]:
    request = read_body(LockBatchRequest, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
    yield Need(_group(request.consumer_group or ""), _SUB)
    for queue in request.queues:
        if queue.topic != RETRY_PREFIX + (request.consumer_group or ""):
            yield _of_topic(queue.topic, _SUB, _SUB)


_IN_BODY: Final[Mapping[int, Callable[[RemotingCommand], Iterator[Need]]]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
}
JSON_CODES: Final = frozenset(
    {
        *_IN_BODY,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)
"""Requests whose bodies name their resources."""


_NAMELESS: Final[tuple[Mapping[str, object], ...]] = ({},)
"""Replaces an empty list, so that a request that names nothing needs a permission, too."""


def _topics_in_body(command: RemotingCommand, _: str) -> Iterator[Need]:
    for each in _list(_members(command.body).get("topicConfigList")) or _NAMELESS:
        yield _of_topic(_text(each.get("topicName")), (Action.CREATE,), (Action.CREATE,))


def _group_in_body(command: RemotingCommand, _: str) -> Iterator[Need]:
    members = _members(command.body) if command.body else {}
    yield Need(_group(_text(members.get("groupName"))), _UPDATE)


def _groups_in_body(command: RemotingCommand, _: str) -> Iterator[Need]:
    for each in _list(_members(command.body).get("groupConfigList")) or _NAMELESS:
        yield Need(_group(_text(each.get("groupName"))), _UPDATE)


def _update_cluster(_: RemotingCommand, cluster: str) -> Iterator[Need]:
    yield Need(Resource(Kind.CLUSTER, cluster), _UPDATE)


def _get_cluster(_: RemotingCommand, cluster: str) -> Iterator[Need]:
    yield Need(Resource(Kind.CLUSTER, cluster), _GET)


def _view_without_topic(command: RemotingCommand, cluster: str) -> Iterator[Need]:
    if not command.ext_fields.get("topic", "").strip():
        yield from _get_cluster(command, cluster)


def _source_group(command: RemotingCommand, _: str) -> Iterator[Need]:
    yield Need(_group(command.ext_fields.get("srcGroup", "")), _SUB_GET)


def _pull(command: RemotingCommand, _: str) -> Iterator[Need]:
    return _of_fields(command.ext_fields, *BY_FIELDS[RequestCode.PULL_MESSAGE])


STRICTER: Final[Mapping[int, Callable[[RemotingCommand, str], Iterator[Need]]]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topics_in_body,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_in_body,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups_in_body,
    RequestCode.UPDATE_BROKER_CONFIG: _update_cluster,
    RequestCode.GET_BROKER_CONFIG: _get_cluster,
    RequestCode.TRIGGER_DELETE_FILES: _update_cluster,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _update_cluster,
    RequestCode.CLEAN_UNUSED_TOPIC: _update_cluster,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _update_cluster,
    RequestCode.VIEW_MESSAGE_BY_ID: _view_without_topic,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.CLONE_GROUP_OFFSET: _source_group,
}
"""Requests that RocketMQ checks less or not at all, although they change what others use, or read
messages of any topic: 361 pulls, 33 without a topic reads any offset, and 314 reveals the progress
of another group.
"""


def _members(body: bytes) -> dict[str, object]:
    if len(body) > limits.MAX_CLIENT_JSON_BODY_BYTES:
        raise CommandBodyError(f"{len(body)} bytes, {limits.MAX_CLIENT_JSON_BODY_BYTES} allowed")
    value = loads(body, CommandBodyError)
    if not isinstance(value, dict):
        raise CommandBodyError("not a JSON object")
    return value


def _list(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return str(value or "")
