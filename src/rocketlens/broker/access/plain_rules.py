"""Access control of RocketMQ 4 ("ACL 1.0"): accounts and their permissions.

A request is admitted if its address is in the global white list, or in that of its account.
Otherwise it must be signed with the secret of an account that has the permission: some codes need
an administrator, others a permission (PUB or SUB) for topics and groups. The account's permission
for the name counts, else its default, else DENY.

=====================  ============================================================================
request                needs
=====================  ============================================================================
send (10, 310, 320)    PUB for the topic; to a retry topic, SUB for its group
recall (370)           PUB for the topic
send back (36)         SUB for the group
pull (11, 361)         SUB for topic and group
by key (12)            SUB for the topic
heartbeat (34)         SUB for each group that consumes, and each topic of its subscriptions
35, 38, 307, 352       SUB for the group
consume directly (309) SUB for the group, and the topic if it names one
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
(27, 306, 316, 329), and does not have 18 and 225. `refuse_need` checks permissions that depend on
the message: to read copies, and to end a transaction. :mod:`rocketlens.broker.access.needs` has the
fields that name topics and groups. Source: ``PlainPermissionManager``, ``PlainAccessValidator``,
``Permission``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

from rocketlens.broker.access.addresses import AddressPattern, parse_address, parse_pattern
from rocketlens.broker.access.needs import BY_FIELDS, STRICTER, needs_of
from rocketlens.broker.access.policy import Action, Kind, Need
from rocketlens.errors import BadInput, CommandBodyError
from rocketlens.model.rocketmq import RETRY_PREFIX, TRACE_TOPIC
from rocketlens.net.channel import Response
from rocketlens.wire import acl
from rocketlens.wire.bodies.auth import PlainAccessConfig
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand

_MAX_SHOWN: Final = 100
_KEY_CHARACTERS: Final = 7
"""Minimum length of an access key and of a secret, as in RocketMQ."""
_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""The beginning of RocketMQ's remarks; clients can depend on it."""


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
_CHECKED: Final = frozenset(
    {
        *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
        *(RequestCode.RECALL_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK),
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_MESSAGE),
        *(RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT),
        *(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ),
        *(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.CLONE_GROUP_OFFSET),
        *(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG),
        *(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.GET_CONSUMER_RUNNING_INFO),
        *(RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.GET_CONSUMER_LIST_BY_GROUP),
    }
)
"""Requests that need permissions for the resources that they name."""
_BY_FIELDS: Final = {
    code: tuple((name, RETRY_PREFIX if kind is Kind.GROUP else "") for name, kind in kinds.items())
    for code, (actions, kinds) in BY_FIELDS.items()
    if code in _CHECKED - STRICTER.keys() and actions != (Action.PUB,)
}
"""Requests that need SUB for the names in some fields, with the prefix of groups: a shortcut."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account with parsed permissions."""

    access_key: str
    secret_key: str = field(repr=False)
    white_addresses: AddressPattern | None = None
    is_admin: bool = False
    default_topic: Permission = Permission.DENY
    default_group: Permission = Permission.DENY
    permissions: Mapping[str, Permission] = field(default_factory=dict)
    """By topic; for groups, by retry topic."""

    def may(self, resource: str, needed: Permission) -> bool:
        owned = self.permissions.get(resource)
        if owned is None:
            is_group = resource.startswith(RETRY_PREFIX)
            owned = self.default_group if is_group else self.default_topic
        # As integers: operators of flags take longer than the rest of a decision.
        bits = int(owned)
        return not bits & _DENY and bits & int(needed) != 0


class PlainRules:
    """All accounts of a broker. Immutable: changed files make a new object."""

    def __init__(
        self,
        accounts: Mapping[str, Account] | None = None,
        white_addresses: tuple[AddressPattern, ...] = (),
    ) -> None:
        """``accounts`` are by access key; ``white_addresses`` need no account."""
        self.accounts: Final = accounts or {}
        self._white_addresses: Final = white_addresses

    def decide(self, command: RemotingCommand, host: str) -> Response | None:
        """Return the refusal of a request from an address; None if it is admitted."""
        return _refusal(self._problem(command, host))

    def secret_for(self, command: RemotingCommand, host: str) -> str | None:
        """Return the secret that must sign a request; empty if no signature is needed.

        Return None if the request is refused, or if only `decide` can check it. Ignores the
        request's body and signature.
        """
        account = self.accounts.get(command.ext_fields.get(acl.ACCESS_KEY, ""))
        if self._is_white(account, host):
            return ""
        if account is None or _permission_problem(account, command) is not None:
            return None
        return account.secret_key

    def refuse_need(self, command: RemotingCommand, host: str, need: Need) -> Response | None:
        """Return the refusal of an admitted request that needs a further permission."""
        return _refusal(self._lack(command, host, [_permission_of(need)]))

    def may_see(self, command: RemotingCommand, host: str, topic: str) -> bool:
        """Return True if a list can show a topic, or the group of a retry topic."""
        either = Permission.PUB | Permission.SUB
        return self._lack(command, host, [(topic, either)]) is None

    def _lack(
        self, command: RemotingCommand, host: str, needed: Iterable[tuple[str, Permission]]
    ) -> str | None:
        access_key = command.ext_fields.get(acl.ACCESS_KEY, "")
        account = self.accounts.get(access_key)
        if self._is_white(account, host):
            return None
        if account is None:
            # The account was deleted after its request was admitted.
            return f"No acl config for {access_key[:_MAX_SHOWN]}"
        return _lacking(account, needed)

    def _is_white(self, account: Account | None, host: str) -> bool:
        """Return True if an address needs no account, or no permissions of this account."""
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


def _refusal(problem: str | None) -> Response | None:
    if problem is None:
        return None
    return Response(ResponseCode.SYSTEM_ERROR, remark=_EXCEPTION + problem)


def _permission_problem(account: Account, command: RemotingCommand) -> str | None:
    try:
        needed = list(_needed(command))
    except CommandBodyError as error:
        return str(error)
    if (TRACE_TOPIC, Permission.PUB) in needed:
        # Every account can send traces of its messages.
        return None
    if command.code in ADMIN_CODES and not account.is_admin:
        return (
            f"Need admin permission for request code={command.code}, "
            f"but accessKey={account.access_key} is not"
        )
    return _lacking(account, needed)


def _lacking(account: Account, needed: Iterable[tuple[str, Permission]]) -> str | None:
    """Return the first permission that an account lacks, in RocketMQ's words."""
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
    """Yield the permissions that a request needs; groups by their retry topics.

    :raises CommandBodyError: if its body names topics or groups, and is invalid.
    """
    names = _BY_FIELDS.get(command.code)
    if names is not None:
        for name, prefix in names:
            value = command.ext_fields.get(name)
            if value:
                yield prefix + value, Permission.SUB
    elif command.code in _CHECKED:
        yield from map(_permission_of, needs_of(command, ""))


def _permission_of(need: Need) -> tuple[str, Permission]:
    if need.resource.kind is Kind.GROUP:
        return RETRY_PREFIX + need.resource.name, Permission.SUB
    is_sent_to = need.actions == (Action.PUB,)
    return need.resource.name, Permission.PUB if is_sent_to else Permission.SUB


def account_of(config: PlainAccessConfig) -> Account:
    """:raises BadInput: if a part is invalid. The message has no secret."""
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
