"""Access control of RocketMQ 5 ("ACL 2.0"): users, policies, and the precedence of their entries.

An entry of a policy allows or denies actions on a resource, optionally for some addresses only. A
resource is ``Topic:orders`` (literal), ``Topic:orders*`` (prefixed), ``Topic:*`` (any of its kind)
or ``*`` (any). A user has a permission if an entry matches one of the sufficient actions, and the
matching entry with the highest precedence says ``Allow``: literal before prefixed before any,
longer prefixes before shorter ones. Entries of the ``Default`` policy count only if none of the
``Custom`` policy matches. Users of type ``Super`` have all permissions.

If two entries have equal precedence, ``Deny`` decides here, and ``Allow`` in RocketMQ; its commands
cannot create such entries. Source: ``AclAuthorizationHandler``, ``Resource``, ``PolicyEntry``,
``Environment``, ``AuthorizationMetadataManagerImpl``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rocketlens.broker.access.addresses import Address, AddressPattern, parse_source
from rocketlens.errors import BadInput
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

E = TypeVar("E", bound=StrEnum)

USER: Final = "User:"
"""The prefix of a user's subject; RocketMQ has no other subjects."""


class UserType(StrEnum):
    """A user of type SUPER has all permissions."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """A user with status DISABLE has no permission."""

    ENABLE = "enable"
    DISABLE = "disable"


class Kind(StrEnum):
    """The kind of a resource."""

    UNKNOWN = "Unknown"
    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(Enum):
    """The form in which a resource names topics or groups, by precedence."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Action(StrEnum):
    """An operation on a resource. ALL in an entry stands for each; ANY cannot be in an entry."""

    UNKNOWN = "Unknown"
    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(StrEnum):
    """The decision of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """Entries of CUSTOM count before those of DEFAULT."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


def named(names: type[E], text: str | None) -> E | None:
    """Return the member with this value, ignoring case; None if there is none."""
    name = (text or "").lower()
    return next((each for each in names if each.value.lower() == name), None)


@dataclass(frozen=True, slots=True)
class User:
    """One user. The password is secret: no text of this class contains it."""

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    def info(self) -> UserInfo:
        """Return its form on the wire, with the password."""
        return UserInfo(
            username=self.username,
            password=self.password,
            user_type=self.user_type.value,
            user_status=self.status.value,
        )


class Resource(NamedTuple):
    """One resource, or a pattern of several."""

    kind: Kind
    name: str = ""
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        """Its text, such as ``Topic:orders*``."""
        if self.kind is Kind.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.kind.value}:{self.name}{star}"

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        if not text or not text.strip():
            return None
        if text == "*":
            return cls(Kind.ANY, "", Pattern.ANY)
        before, _, name = text.partition(":")
        kind = named(Kind, before)
        if kind is None:
            return None
        if name == "*":
            return cls(kind, "", Pattern.ANY)
        if name.endswith("*"):
            return cls(kind, name.partition("*")[0], Pattern.PREFIXED)
        return cls(kind, name)

    def matches(self, other: "Resource") -> bool:
        """Return True if ``other``, a literal resource, is this one or fits this pattern."""
        if self.kind is Kind.ANY:
            return True
        if self.kind is not other.kind:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return self.pattern is Pattern.ANY or other.name.startswith(self.name)


class Need(NamedTuple):
    """A resource, and actions of which one must be allowed."""

    resource: Resource
    actions: tuple[Action, ...]


class Entry(Struct, frozen=True):
    """One entry of a policy."""

    resource: Resource
    actions: frozenset[Action]
    decision: Decision
    info: PolicyEntryInfo
    """The form on the wire."""
    sources: tuple[AddressPattern, ...] = ()
    """Empty: any address."""

    def fits(self, need: Need, address: Address | None) -> bool:
        return (
            self.resource.matches(need.resource)
            and (Action.ALL in self.actions or not self.actions.isdisjoint(need.actions))
            and (
                not self.sources
                or (address is not None and any(matches(address) for matches in self.sources))
            )
        )

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """Precedence among entries that fit: the lowest decides."""
        return (
            self.resource.kind is Kind.ANY,
            self.resource.pattern.value,
            -len(self.resource.name),
            self.decision is Decision.ALLOW,
        )


class Acl(Struct, frozen=True):
    """All policies of a subject; entries in the order of the request."""

    subject: str
    policies: Mapping[PolicyType, tuple[Entry, ...]]

    def decision(self, need: Need, address: Address | None) -> Decision | None:
        for policy_type in PolicyType:
            fitting = [
                each for each in self.policies.get(policy_type, ()) if each.fits(need, address)
            ]
            if fitting:
                return min(fitting, key=lambda each: each.rank).decision
        return None

    def updated(self, other: "Acl") -> "Acl":
        """Return a copy with the entries of ``other``, which replace those of the same resource."""
        policies = dict(self.policies)
        for policy_type, entries in other.policies.items():
            by_resource = {each.resource: each for each in policies.get(policy_type, ())}
            by_resource.update({each.resource: each for each in entries})
            policies[policy_type] = tuple(by_resource.values())
        return replace(self, policies=policies)

    def without(self, policy_type: PolicyType, resource: Resource) -> "Acl":
        """Return a copy without the entry of a resource; drop a policy that becomes empty."""
        policies = dict(self.policies)
        kept = tuple(each for each in policies.get(policy_type, ()) if each.resource != resource)
        if kept:
            policies[policy_type] = kept
        else:
            policies.pop(policy_type, None)
        return replace(self, policies=policies)

    def info(self, resource_filter: str = "") -> AclInfo:
        """Return the form on the wire, with entries whose resource contains ``resource_filter``."""
        policies = []
        for policy_type, entries in self.policies.items():
            chosen = [each.info for each in entries if resource_filter in each.resource.key]
            if chosen:
                policies.append(PolicyInfo(policy_type=policy_type.value, entries=tuple(chosen)))
        return AclInfo(subject=self.subject, policies=tuple(policies))


def acl_of(acl: AclInfo, subject: str) -> Acl:
    """:raises BadInput: if an entry is invalid, in RocketMQ's words."""
    policies: dict[PolicyType, tuple[Entry, ...]] = {}
    for policy in acl.policies or ():
        if policy.entries:
            policy_type = named(PolicyType, policy.policy_type) or PolicyType.CUSTOM
            entries = (*policies.get(policy_type, ()), *map(_entry_of, policy.entries))
            # The last of several with one resource counts.
            policies[policy_type] = tuple({each.resource: each for each in entries}.values())
    if not policies:
        raise BadInput("The policies is empty.")
    return Acl(subject, policies)


def _entry_of(policy_entry: PolicyEntryInfo) -> Entry:
    resource = Resource.parse(policy_entry.resource)
    if resource is None:
        raise BadInput("The resource is null.")
    actions = tuple(filter(None, (named(Action, each) for each in policy_entry.actions or ())))
    if not actions:
        raise BadInput("The actions is empty.")
    if Action.ANY in actions:
        raise BadInput("The actions can not be Any.")
    sources = tuple(policy_entry.source_ips or ())
    if not all(each.strip() for each in sources):
        raise BadInput("The source ip is empty.")
    patterns = tuple(map(parse_source, sources))
    decision = named(Decision, policy_entry.decision)
    if decision is None:
        raise BadInput("The decision is null or illegal.")
    kept = PolicyEntryInfo(
        resource=resource.key,
        actions=tuple(each.value for each in actions),
        source_ips=sources or None,
        decision=decision.value,
    )
    return Entry(resource, frozenset(actions), decision, kept, patterns)


def subject_of(text: str | None) -> str | None:
    """Return a subject as ``User:name``; None if the text is not a subject."""
    before, _, name = (text or "").partition(":")
    return USER + name if before.lower() == "user" else None
