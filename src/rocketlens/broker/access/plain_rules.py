"""Access control of RocketMQ 4 ("ACL 1.0"): accounts, and whether one may do what a request asks.

A request is let through if its address is in a white list, all accounts' or its own account's.
Otherwise it must be signed with the secret of an account that may do what it asks: for some codes
be an administrator's, for others have a permission (PUB or SUB) for topics and groups. What an
account says of a name counts, else its default, else DENY.

=====================  ============================================================================
request                needs
=====================  ============================================================================
send (10, 310, 320)    PUB for the topic; to a retry topic, SUB for its group
recall (370)           PUB for the topic
send back (36)         SUB for the group
pull (11, 361)         SUB for topic and group
by key (12)            SUB for the topic
heartbeat (34)         SUB for each group that consumes, and each topic of its subscriptions
35, 38, 307, 309, 352  SUB for the group
offset of a group (15, SUB for topic and group
222), its clients' (223)
clone offsets (314)    SUB for both groups, and the topic if it names one
lock queues (41, 42)   SUB for the group and each topic
17, 18, 25, 26, 27,    an administrator
200, 207, 215, 225,
306, 316, 329, 50, 51,
53, 54
others                 an account
=====================  ============================================================================

RocketMQ 4.9.7 checks nothing for 320, 361, 41, 42, 222, 223, 307, 309, 314, 352 and 370, lets every
account read and change all accounts (50, 51, 53, 54), read the configuration (26) and delete files
(27, 306, 316, 329), and knows no 18 and 225. Which messages of a topic of copies are read, and
whose transaction is ended, is decided when the message is known: `decide_reading`,
`decide_writing`. Source: ``PlainPermissionManager``, ``PlainAccessValidator``,
``Permission``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

from rocketlens import limits
from rocketlens.broker.access.addresses import AddressPattern, parse_address, parse_pattern
from rocketlens.errors import BadInput, CommandBodyError
from rocketlens.model.rocketmq import RETRY_PREFIX, TRACE_TOPIC
from rocketlens.net.channel import Response
from rocketlens.wire import acl
from rocketlens.wire.bodies.auth import PlainAccessConfig
from rocketlens.wire.bodies.clients import HeartbeatData, LockBatchRequest
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.declare import read_body

_MAX_SHOWN: Final = 100
_KEY_CHARACTERS: Final = 7
"""An access key and a secret have so many at least, as in RocketMQ."""
_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""How RocketMQ's remarks begin; clients may look for it."""


class Permission(IntFlag):
    """The permission of an account for a topic or a group."""

    DENY = 1
    PUB = 4
    SUB = 8


_DENY: Final = int(Permission.DENY)
_PERMISSIONS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}

ADMIN_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    }
)
_SENDS: Final = {
    RequestCode.SEND_MESSAGE: ("topic", "producerGroup"),
    RequestCode.SEND_MESSAGE_V2: ("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: ("b", "a"),
    RequestCode.RECALL_MESSAGE: ("topic", ""),
}
_OF_TOPIC_AND_GROUP: Final = {
    RequestCode.PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ("topic", "group"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("topic", "group"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: ("", "consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ("", "consumerGroup"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: ("", "group"),
    RequestCode.QUERY_MESSAGE: ("topic", ""),
    RequestCode.UNREGISTER_CLIENT: ("", "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ("", "consumerGroup"),
    RequestCode.CONSUMER_SEND_MSG_BACK: ("", "group"),
}
_LOCKS: Final = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)


@dataclass(frozen=True, slots=True)
class Account:
    """One account, checked."""

    access_key: str
    secret_key: str = field(repr=False)
    white_addresses: AddressPattern | None = None
    is_admin: bool = False
    default_topic: Permission = Permission.DENY
    default_group: Permission = Permission.DENY
    permissions: Mapping[str, Permission] = field(default_factory=dict)
    """By topic, groups by their retry topics."""

    def may(self, resource: str, needed: Permission) -> bool:
        """Return whether it has a permission for a topic, or for the group of a retry topic."""
        owned = self.permissions.get(resource)
        if owned is None:
            is_group = resource.startswith(RETRY_PREFIX)
            owned = self.default_group if is_group else self.default_topic
        # As integers: operators of flags take longer than all the rest of a decision.
        bits = int(owned)
        return not bits & _DENY and bits & int(needed) != 0


class PlainRules:
    """All accounts of a broker. Never changed: another state of the files is another object."""

    def __init__(
        self,
        accounts: Mapping[str, Account] | None = None,
        white_addresses: tuple[AddressPattern, ...] = (),
    ) -> None:
        """Take accounts by their access keys, and the addresses that need none."""
        self.accounts: Final = accounts or {}
        self._white_addresses: Final = white_addresses

    def decide(self, command: RemotingCommand, host: str) -> Response | None:
        """Return the refusal of a request from an address; None if it is let through."""
        problem = self._problem(command, host)
        if problem is None:
            return None
        return Response(ResponseCode.SYSTEM_ERROR, remark=_EXCEPTION + problem)

    def secret_for(self, command: RemotingCommand, host: str) -> str | None:
        """Return the secret that a request must be signed with to be let through.

        Empty if it need not be signed; None if it is refused, or `decide` must say. Neither its
        body nor its signature is looked at.
        """
        account = self.accounts.get(command.ext_fields.get(acl.ACCESS_KEY, ""))
        if self._is_white(account, host):
            return ""
        if account is None or _permission_problem(account, command) is not None:
            return None
        return account.secret_key

    def decide_reading(self, command: RemotingCommand, host: str, topic: str) -> Response | None:
        """Return the refusal of a request that was let through, and reads a message of a topic."""
        return self._decide_topic(command, host, topic, Permission.SUB)

    def decide_writing(self, command: RemotingCommand, host: str, topic: str) -> Response | None:
        """Return the refusal of a request that was let through, and decides on a message of a
        topic: it stores one there, or ends or checks its transaction.
        """
        is_retry = topic.startswith(RETRY_PREFIX)
        return self._decide_topic(
            command, host, topic, Permission.SUB if is_retry else Permission.PUB
        )

    def may_see(self, command: RemotingCommand, host: str, topic: str) -> bool:
        """Return whether a topic, or the group of a retry topic, is in a list that is asked for."""
        either = Permission.PUB | Permission.SUB
        return self._decide_topic(command, host, topic, either) is None

    def _decide_topic(
        self, command: RemotingCommand, host: str, topic: str, needed: Permission
    ) -> Response | None:
        access_key = command.ext_fields.get(acl.ACCESS_KEY, "")
        account = self.accounts.get(access_key)
        if self._is_white(account, host):
            return None
        if account is None:
            # Deleted since its request was let through.
            problem: str | None = f"No acl config for {access_key[:_MAX_SHOWN]}"
        else:
            problem = _lacking(account, [(topic, needed)])
        if problem is None:
            return None
        return Response(ResponseCode.SYSTEM_ERROR, remark=_EXCEPTION + problem)

    def _is_white(self, account: Account | None, host: str) -> bool:
        """Return whether an address needs no account, or no permissions of this one."""
        address = parse_address(host)
        if address is None:
            return False
        own = (
            () if account is None or account.white_addresses is None else (account.white_addresses,)
        )
        return any(matches(address) for matches in (*self._white_addresses, *own))

    def _problem(self, command: RemotingCommand, host: str) -> str | None:
        fields = command.ext_fields
        if self._is_white(None, host):
            return None
        access_key = fields.get(acl.ACCESS_KEY)
        if access_key is None:
            return "No accessKey is configured"
        account = self.accounts.get(access_key)
        if account is None:
            return f"No acl config for {access_key[:_MAX_SHOWN]}"
        if self._is_white(account, host):
            return None
        if not acl.verify(fields, command.body, account.secret_key):
            return f"Check signature failed for accessKey={access_key}"
        return _permission_problem(account, command)


def _permission_problem(account: Account, command: RemotingCommand) -> str | None:
    try:
        needed = list(_needed(command))
    except CommandBodyError as error:
        return str(error)
    if (TRACE_TOPIC, Permission.PUB) in needed:
        # Every account may say what became of its messages.
        return None
    if command.code in ADMIN_CODES and not account.is_admin:
        return (
            f"Need admin permission for request code={command.code}, "
            f"but accessKey={account.access_key} is not"
        )
    return _lacking(account, needed)


def _lacking(account: Account, needed: Iterable[tuple[str, Permission]]) -> str | None:
    """Return which permission an account lacks, in RocketMQ's words."""
    if account.is_admin and not account.permissions:
        return None
    for resource, permission in needed:
        if not account.may(resource, permission):
            kind, name = "topic", resource
            if resource.startswith(RETRY_PREFIX):
                kind, name = "group", resource.removeprefix(RETRY_PREFIX)
            return f"No default permission for {kind}:{name[:_MAX_SHOWN]}"
    return None


def _needed(command: RemotingCommand) -> Iterator[tuple[str, Permission]]:
    """Return what a request needs, groups as their retry topics.

    :raises CommandBodyError: when its body names topics or groups, and cannot be read.
    """
    code, fields = command.code, command.ext_fields
    send = _SENDS.get(code)  # type: ignore[call-overload]
    if send is not None:
        topic, group = fields.get(send[0]), fields.get(send[1])
        if topic is not None and topic.startswith(RETRY_PREFIX):
            yield topic, Permission.SUB
            if group:
                yield RETRY_PREFIX + group, Permission.SUB
        elif topic is not None:
            yield topic, Permission.PUB
        return
    names = _OF_TOPIC_AND_GROUP.get(code)  # type: ignore[call-overload]
    if names is not None:
        topic, group = fields.get(names[0]), fields.get(names[1])
        if topic is not None:
            yield topic, Permission.SUB
        if group is not None:
            yield RETRY_PREFIX + group, Permission.SUB
    elif code == RequestCode.CLONE_GROUP_OFFSET:
        for name in ("srcGroup", "destGroup"):
            yield RETRY_PREFIX + fields.get(name, ""), Permission.SUB
        if fields.get("topic"):
            yield fields["topic"], Permission.SUB
    elif code in _LOCKS:
        request = read_body(LockBatchRequest, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
        yield RETRY_PREFIX + (request.consumer_group or ""), Permission.SUB
        for queue in request.queues:
            yield queue.topic, Permission.SUB
    elif code == RequestCode.HEART_BEAT:
        data = read_body(
            HeartbeatData, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES, is_plain=True
        )
        for consumer in data.consumer_datas:
            yield RETRY_PREFIX + consumer.group_name, Permission.SUB
            for subscription in consumer.subscription_datas:
                yield subscription.topic, Permission.SUB


def account_of(config: PlainAccessConfig) -> Account:
    """Return an account, checked.

    :raises BadInput: when a key is too short, or a permission or an address cannot be read. No
        secret is in its text.
    """
    access_key, secret_key = config.access_key or "", config.secret_key or ""
    if min(len(access_key), len(secret_key)) < _KEY_CHARACTERS:
        raise BadInput(
            f"The accessKey={access_key[:_MAX_SHOWN]} and secretKey=*** cannot be null and length "
            "should longer than 6"
        )
    permissions: dict[str, Permission] = {}
    for kind, prefix, perms in (
        ("group", RETRY_PREFIX, config.group_perms),
        ("topic", "", config.topic_perms),
    ):
        for each in perms or ():
            pair = [word for word in each.split("=") if word]
            if len(pair) != 2:
                raise BadInput(f"Parse resource permission failed for {kind}:{each[:_MAX_SHOWN]}")
            permissions[prefix + pair[0].strip()] = _permission(pair[1])
    return Account(
        access_key,
        secret_key,
        parse_pattern(config.white_remote_address),
        config.admin,
        _permission(config.default_topic_perm),
        _permission(config.default_group_perm),
        permissions,
    )


def _permission(text: Any) -> Permission:
    return _PERMISSIONS.get(str(text or "").strip(), Permission.DENY)
