"""Users and policies on the disk: what was written comes back, what is damaged allows nothing."""

import json

import pytest

from rocketlens.broker.access.policy import User, UserStatus, UserType, acl_of
from rocketlens.broker.access.user_rules import AclTable, UserTable
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

ENTRY = PolicyEntryInfo(
    resource="Topic:a*", actions=("Pub", "Sub"), source_ips=("10.0.0.0/8",), decision="Deny"
)
POLICIES = (
    PolicyInfo(policy_type="Custom", entries=(ENTRY,)),
    PolicyInfo(
        policy_type="Default",
        entries=(PolicyEntryInfo(resource="Group:*", actions=("Sub",), decision="Allow"),),
    ),
)


def tables(directory):
    layout = StoreLayout(directory)
    return UserTable(layout, Disk(), lambda: 7), AclTable(layout, Disk(), lambda: 7)


def test_users_and_policies_come_back_as_they_were(tmp_path):
    users, acls = tables(tmp_path)
    alice = User("alice", "s3cret", UserType.SUPER, UserStatus.DISABLE)
    bob = acl_of(AclInfo(policies=POLICIES), "User:bob")
    users.put_all({"alice": alice})
    acls.put_all({"User:bob": bob})
    users.save()
    acls.save()
    users, acls = tables(tmp_path)
    assert users.entries == {"alice": alice}
    assert acls.entries["User:bob"].info() == bob.info()
    for name in ("authUsers.json", "authAcls.json"):
        assert (tmp_path / "config" / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("member", ["username", "password", "userType", "userStatus"])
@pytest.mark.parametrize("value", [None, "", 7, "nonsense"])
def test_a_damaged_user_is_none(tmp_path, member, value):
    users, _ = tables(tmp_path)
    whole = users.encode_entry(User("alice", "s3cret"))
    assert users.decode_entry(whole) == User("alice", "s3cret")
    damaged = users.decode_entry({**whole, member: value})
    if value == "nonsense" and member in {"username", "password"}:
        assert damaged is not None
    else:
        assert damaged is None
    assert users.decode_entry([whole]) is None


def test_a_subject_of_which_anything_is_damaged_may_do_nothing(tmp_path):
    _, acls = tables(tmp_path)
    whole = acls.encode_entry(acl_of(AclInfo(policies=POLICIES), "User:bob"))
    assert acls.decode_entry(whole) is not None

    def damage(value):
        """Replace each member in turn by what it is not."""
        if isinstance(value, dict):
            for name, each in value.items():
                yield {**value, name: 7}
                for damaged in damage(each):
                    yield {**value, name: damaged}
        elif isinstance(value, list):
            for number, each in enumerate(value):
                for damaged in [7, *damage(each)]:
                    yield [*value[:number], damaged, *value[number + 1 :]]

    tried = list(damage(whole))
    assert len(tried) > 15
    for damaged in tried:
        assert acls.decode_entry(json.loads(json.dumps(damaged))) is None, damaged
