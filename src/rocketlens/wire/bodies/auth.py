"""Users, their permissions, and the accounts of plain_acl.yml.

Of RocketMQ 5: a user (3001, 3002, 3004), what a subject may do (3006, 3007, 3009), and lists of
both (3005, 3010), which are arrays and read as such: :func:`read_users`, :func:`read_acls`. Of
RocketMQ 4: all accounts of a broker (54).
"""

from collections.abc import Mapping
from typing import Any, Final

from rocketlens import limits
from rocketlens.errors import CommandBodyError
from rocketlens.model.text.json_dialect import loads
from rocketlens.wire.bodies.topic import DataVersion
from rocketlens.wire.codes import V5_0_0
from rocketlens.wire.declare import (
    BOOLEAN,
    TEXT,
    Shape,
    array_of,
    declare,
    map_of,
    member,
    object_of,
)


@declare("UserInfo")
class UserInfo:
    """A user. ``user_type``: Super or Normal; ``user_status``: enable or disable."""

    username: str | None = member("username", TEXT, default=None, since=V5_0_0)
    password: str | None = member("password", TEXT, default=None, since=V5_0_0)
    user_type: str | None = member("userType", TEXT, default=None, since=V5_0_0)
    user_status: str | None = member("userStatus", TEXT, default=None, since=V5_0_0)


@declare("PolicyEntryInfo")
class PolicyEntryInfo:
    """The actions that are allowed or denied on a resource (``Topic:orders*``), and from where."""

    resource: str | None = member("resource", TEXT, default=None, since=V5_0_0)
    actions: tuple[str, ...] | None = member("actions", array_of(TEXT), default=None, since=V5_0_0)
    source_ips: tuple[str, ...] | None = member(
        "sourceIps", array_of(TEXT), default=None, since=V5_0_0
    )
    decision: str | None = member("decision", TEXT, default=None, since=V5_0_0)


@declare("PolicyInfo")
class PolicyInfo:
    """Entries of one kind. ``policy_type``: Custom, or Default for where no other applies."""

    policy_type: str | None = member("policyType", TEXT, default=None, since=V5_0_0)
    entries: tuple[PolicyEntryInfo, ...] | None = member(
        "entries", array_of(object_of(PolicyEntryInfo)), default=None, since=V5_0_0
    )


@declare("AclInfo")
class AclInfo:
    """All policies of a subject, such as ``User:alice``."""

    subject: str | None = member("subject", TEXT, default=None, since=V5_0_0)
    policies: tuple[PolicyInfo, ...] | None = member(
        "policies", array_of(object_of(PolicyInfo)), default=None, since=V5_0_0
    )


@declare("PlainAccessConfig")
class PlainAccessConfig:
    """An account of plain_acl.yml. Permissions: DENY, PUB, SUB, PUB|SUB; ``name=PERMISSION``."""

    access_key: str | None = member("accessKey", TEXT, default=None)
    secret_key: str | None = member("secretKey", TEXT, default=None)
    white_remote_address: str | None = member("whiteRemoteAddress", TEXT, default=None)
    admin: bool = member("admin", BOOLEAN, default=False)
    default_topic_perm: str | None = member("defaultTopicPerm", TEXT, default=None)
    default_group_perm: str | None = member("defaultGroupPerm", TEXT, default=None)
    topic_perms: tuple[str, ...] | None = member("topicPerms", array_of(TEXT), default=None)
    group_perms: tuple[str, ...] | None = member("groupPerms", array_of(TEXT), default=None)


@declare("GetBrokerClusterAclConfigResponseBody")
class PlainAccessTable:
    """All accounts of a broker, and the addresses that need none."""

    global_white_addrs: tuple[str, ...] = member("globalWhiteAddrs", array_of(TEXT), default=())
    plain_access_configs: tuple[PlainAccessConfig, ...] = member(
        "plainAccessConfigs", array_of(object_of(PlainAccessConfig)), default=()
    )


@declare()
class AclVersions:
    """Which state each file of accounts is in (52), by its path. In a header, as JSON."""

    files: Mapping[str, DataVersion] = member(
        "files", map_of(TEXT, object_of(DataVersion)), default_factory=dict
    )


_USERS: Final = array_of(object_of(UserInfo))
_ACLS: Final = array_of(object_of(AclInfo))


def write_users(users: tuple[UserInfo, ...]) -> bytes:
    """Write a list of users."""
    return _USERS.write(users).encode()


def write_acls(acls: tuple[AclInfo, ...]) -> bytes:
    """Write a list of what subjects may do."""
    return _ACLS.write(acls).encode()


def read_users(content: bytes) -> tuple[UserInfo, ...]:
    """Read a list of users; an empty body is an empty list.

    :raises CommandBodyError: when it is not one.
    """
    users: tuple[UserInfo, ...] = _read_array(_USERS, content)
    return users


def read_acls(content: bytes) -> tuple[AclInfo, ...]:
    """Read a list of what subjects may do; an empty body is an empty list.

    :raises CommandBodyError: when it is not one.
    """
    acls: tuple[AclInfo, ...] = _read_array(_ACLS, content)
    return acls


def _read_array(shape: Shape, content: bytes) -> Any:
    if len(content) > limits.MAX_JSON_BODY_BYTES:
        raise CommandBodyError(
            f"a body of {len(content)} bytes, {limits.MAX_JSON_BODY_BYTES} allowed"
        )
    value = loads(content, CommandBodyError) if content else []
    try:
        return shape.read(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise CommandBodyError(f"not a list of users or permissions: {error}"[:200]) from None
