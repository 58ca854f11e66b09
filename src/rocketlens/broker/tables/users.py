"""``config/authUsers.json`` and ``config/authAcls.json``: RocketMQ 5's users and policies.

RocketMQ keeps both in RocksDB; these files are ours. Members are named as on the wire. The
passwords are in clear, for signatures are made with them: the files are for the broker's user only.
An entry that cannot be read is left out, and so allows nothing.
"""

from collections.abc import Mapping
from typing import Any

from rocketlens.broker.access.policy import (
    USER,
    Acl,
    User,
    UserStatus,
    UserType,
    acl_of,
    named,
)
from rocketlens.broker.tables.entry_table import EntryTable
from rocketlens.errors import BadInput
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo


class UserTable(EntryTable[User]):
    """The users, by name."""

    FILE = "authUsers.json"
    MEMBER = "users"

    def decode_entry(self, value: Any) -> User | None:
        """Return the user that a member of the table is, or None if it is not one."""
        names = ("username", "password", "userType", "userStatus")
        if not isinstance(value, dict):
            return None
        texts = [value.get(name) for name in names]
        if not all(isinstance(text, str) and text for text in texts):
            return None
        user_type, status = named(UserType, texts[2]), named(UserStatus, texts[3])
        if user_type is None or status is None:
            return None
        return User(str(texts[0]), str(texts[1]), user_type, status)

    def encode_entry(self, entry: User) -> dict[str, Any]:
        """Return a user as it stands in the file."""
        return {
            "password": entry.password,
            "userStatus": entry.status.value,
            "userType": entry.user_type.value,
            "username": entry.username,
        }


class AclTable(EntryTable[Acl]):
    """What subjects may do, by subject: ``User:alice``."""

    FILE = "authAcls.json"
    MEMBER = "acls"

    def decode_entry(self, value: Any) -> Acl | None:
        """Return what a subject may do; None if any of it cannot be read."""
        if not isinstance(value, dict) or not str(value.get("subject")).startswith(USER):
            return None
        try:
            policies = tuple(map(_policy_of, value["policies"]))
            return acl_of(AclInfo(policies=policies), value["subject"])
        except (BadInput, KeyError, TypeError, ValueError, AttributeError):
            return None

    def encode_entry(self, entry: Acl) -> dict[str, Any]:
        """Return what a subject may do as it stands in the file."""
        return {
            "policies": [
                {
                    "entries": [_entry_members(each.info) for each in entries],
                    "policyType": policy_type.value,
                }
                for policy_type, entries in entry.policies.items()
            ],
            "subject": entry.subject,
        }


def _policy_of(value: Mapping[str, Any]) -> PolicyInfo:
    if value["policyType"] not in {"Custom", "Default"}:
        raise ValueError("unknown policyType")
    return PolicyInfo(
        policy_type=value["policyType"],
        entries=tuple(
            PolicyEntryInfo(
                resource=each["resource"],
                actions=tuple(each["actions"]),
                source_ips=tuple(each.get("sourceIps") or ()),
                decision=each["decision"],
            )
            for each in value["entries"]
        ),
    )


def _entry_members(entry: PolicyEntryInfo) -> dict[str, Any]:
    members: dict[str, Any] = {
        "actions": list(entry.actions or ()),
        "decision": entry.decision,
        "resource": entry.resource,
    }
    return {**members, "sourceIps": list(entry.source_ips)} if entry.source_ips else members
