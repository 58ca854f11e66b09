"""Users, policies, and the accounts of plain_acl.yml."""

from rocketlens.wire.declare import WireStruct


class UserInfo(WireStruct):
    """A user. ``user_type``: Super or Normal; ``user_status``: enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(WireStruct):
    """The actions allowed or denied on a resource (``Topic:orders*``), by source address."""

    resource: str | None = None
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


class PolicyInfo(WireStruct):
    """Entries of one kind. ``policy_type``: Custom, or Default, which applies if no other does."""

    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] | None = None


class AclInfo(WireStruct):
    """All policies of a subject, such as ``User:alice``."""

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] | None = None


class PlainAccessConfig(WireStruct):
    """An account of plain_acl.yml. Permissions: DENY, PUB, SUB, PUB|SUB; ``name=PERMISSION``."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None


class PlainAccessTable(WireStruct, java="GetBrokerClusterAclConfigResponseBody"):
    """All accounts of a broker, and the addresses that need none."""

    global_white_addrs: tuple[str, ...] = ()
    plain_access_configs: tuple[PlainAccessConfig, ...] = ()
