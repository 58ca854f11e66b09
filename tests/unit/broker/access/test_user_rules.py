"""Users and policies of RocketMQ 5: what they allow, requests about them, and their files."""

import json
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.broker.access.policy import (
    Action,
    Decision,
    Kind,
    Need,
    Pattern,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    acl_of,
    named,
    subject_of,
)
from rocketlens.broker.access.user_rules import AclTable, Refused, Users, UserTable
from rocketlens.broker.access_config import AuthConfig
from rocketlens.broker.tables.table_saver import TableSaver
from rocketlens.errors import BadInput, StoreBusy
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from tests.support.broker_world import settings_of_test
from tests.unit.broker.access.acl_world import SECRET, Signer, with_accounts, with_users

HOST = "10.0.0.7"
FIRST = '{"username":"admin","password":"s3cret"}'


def opened(directory, disk=None, save=None, **changes):
    values = {"authenticationEnabled": True, "authorizationEnabled": True, **changes}
    config = AuthConfig(initAuthenticationUser=FIRST, **values)
    return Users(config, "C", StoreLayout(directory), disk or Disk(), lambda: 7, save=save)


@asynccontextmanager
async def users_in(directory, disk=None, **changes):
    saver = TableSaver()
    users = opened(directory, disk, saver.save, **changes)
    try:
        yield users
    finally:
        saver.close()


@pytest.fixture
async def users(request, tmp_path):
    async with users_in(tmp_path, **settings_of_test(request)) as users:
        yield users


def refusal(
    users, code=RequestCode.SEND_MESSAGE_V2, user="admin", secret="s3cret", body=b"", **fields
):
    signed = signed_fields(fields, body, user, secret) if user else fields
    answer = users.decide(RemotingCommand(int(code), ext_fields=signed, body=body), HOST)
    return None if answer is None else answer.remark


def policies(*entries):
    made = tuple(
        PolicyEntryInfo(resource=resource, actions=actions, decision="Allow")
        for resource, *actions in entries
    )
    return AclInfo(policies=(PolicyInfo(policy_type="Custom", entries=made),))


async def test_a_disabled_user_is_nobody(users):
    assert refusal(users, b="T") is None
    await users.create_user("app", UserInfo(password="one"))
    assert refusal(users, 28, "app", "one") is None
    await users.update_user("app", UserInfo(user_status="Disable"))
    assert refusal(users, 28, "app", "one") == "User:app is disabled."
    await users.update_user("app", UserInfo(user_status="enable", password="two"))
    assert refusal(users, 28, "app", "one") == "check signature failed."
    assert refusal(users, 28, "app", "two") is None


@pytest.mark.broker(authorizationEnabled=False)
async def test_users_are_enough_where_nothing_is_authorized(users):
    await users.create_user("app", UserInfo(password="one"))
    assert refusal(users, user="app", secret="one", b="T") is None
    assert refusal(users, user="app", secret="two", b="T") is not None
    assert refusal(users, user="", b="T") == "username cannot be null."


@pytest.mark.broker(authorizationWhitelist="310, 320")
async def test_a_white_list_of_authorization_lets_every_user_ask(users):
    await users.create_user("app", UserInfo(password="one"))
    assert refusal(users, user="app", secret="one", b="T") is None
    assert refusal(users, user="", b="T") == "username cannot be null."
    assert refusal(users, 11, "app", "one", topic="T") is not None


@pytest.mark.broker(authenticationWhitelist="310")
async def test_a_white_list_of_authentication_gives_nobody_the_permissions_of_a_user(users):
    await users.create_user("app", UserInfo(password="one"))
    await users.put_acl("User:app", policies(("Topic:T", "Pub")))
    assert refusal(users, user="app", secret="one", b="T") is None
    for user, secret in (("app", "wrong"), ("admin", "wrong"), ("nobody", "x"), ("", "")):
        words = "Authorization failed. Please verify your access rights and try again."
        assert refusal(users, user=user, secret=secret, b="T") == words
    assert refusal(users, 28, user="") == "username cannot be null."


async def test_a_group_without_a_body_needs_what_a_group_needs(users):
    await users.create_user("app", UserInfo(password="one"))
    for body in (b"", b'{"groupName":"g"}'):
        assert refusal(users, 200, "app", "one", body=body) is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda users: users.create_user(" ", UserInfo(password="x")), "blank"),
        (lambda users: users.create_user("app", UserInfo(password=" ")), "password can not"),
        (lambda users: users.create_user("admin", UserInfo(password="x")), "existed"),
        (lambda users: users.update_user("app", UserInfo()), "not exist"),
        (lambda users: users.delete_user(" "), "blank"),
        (lambda users: users.put_acl("User:app", policies(("Topic:T", "Pub"))), "not exist"),
        (lambda users: users.put_acl("User:admin", AclInfo()), "policies is empty"),
        (lambda users: users.delete_acl(None, None, None), "subject is null"),
        (lambda users: users.delete_acl("User:app", None, None), "not exist"),
        (lambda users: users.delete_acl("User:admin", None, None), "acl is not exist"),
    ],
)
async def test_what_cannot_be_done_is_refused(users, change, words):
    with pytest.raises(Refused, match=words) as caught:
        await change(users)
    assert caught.value.code == 16


async def test_a_resource_that_is_none_removes_no_policies(users):
    await users.put_acl("User:admin", policies(("Topic:T", "Pub"), ("Topic:S", "Pub")))
    with pytest.raises(Refused, match="resource is null"):
        await users.delete_acl("User:admin", None, "Queue:T")
    await users.delete_acl("User:admin", "Custom", "Topic:T")
    assert len(users.acls.entries["User:admin"].info().policies[0].entries) == 1
    await users.delete_acl("User:admin", None, "Topic:S")
    assert users.acls.entries == {}


async def test_the_number_of_users_is_bounded(users, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.access.user_rules.MAX_USERS", 2)
    await users.create_user("app", UserInfo(password="x"))
    with pytest.raises(Refused, match="2 are allowed"):
        await users.create_user("third", UserInfo(password="x"))


async def test_a_change_is_on_the_disk_when_it_is_answered(users, tmp_path):
    await users.create_user("app", UserInfo(password="x"))
    await users.put_acl("User:app", policies(("Topic:T", "Pub")))
    again = opened(tmp_path)
    assert again.users.entries.keys() == {"admin", "app"}
    assert again.acls.entries.keys() == {"User:app"}
    await users.delete_user("app")
    again = opened(tmp_path)
    assert again.users.entries.keys() == {"admin"}
    assert again.acls.entries == {}


async def test_a_change_that_cannot_be_written_is_not_answered_with_success(tmp_path):
    class FullDisk(Disk):
        is_full = False

        def write_durably(self, path, content):
            if self.is_full:
                raise OSError(28, "No space left on device", str(path))
            super().write_durably(path, content)

    disk = FullDisk()
    async with users_in(tmp_path, disk) as users:
        disk.is_full = True
        with pytest.raises(StoreBusy, match="could not be written yet"):
            await users.create_user("app", UserInfo(password="x"))
        assert users.users.is_changed
        disk.is_full = False
        await users.create_user("other", UserInfo(password="x"))
        assert opened(tmp_path).users.entries.keys() == {"admin", "app", "other"}


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
    if value in {7, "nonsense"} and member in {"username", "password"}:
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


ADDRESS = ip_address("10.0.0.7")


def entry(resource, actions="Pub", decision="Allow", *sources):
    return PolicyEntryInfo(
        resource=resource,
        actions=tuple(actions.split(",")),
        source_ips=sources or None,
        decision=decision,
    )


def acl(*entries, default=()):
    policies = [PolicyInfo(policy_type="Custom", entries=entries)]
    if default:
        policies.append(PolicyInfo(policy_type="default", entries=tuple(default)))
    return acl_of(AclInfo(policies=tuple(policies)), "User:app")


def need(name="Orders", *actions):
    return Need(Resource(Kind.TOPIC, name), actions or (Action.PUB,))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("*", Resource(Kind.ANY, "", Pattern.ANY)),
        ("Topic:*", Resource(Kind.TOPIC, "", Pattern.ANY)),
        ("topic:Orders", Resource(Kind.TOPIC, "Orders")),
        ("GROUP:a*", Resource(Kind.GROUP, "a", Pattern.PREFIXED)),
        ("Cluster:c:d", Resource(Kind.CLUSTER, "c:d")),
        ("Topic:", Resource(Kind.TOPIC, "")),
        ("Queue:a", None),
        (" ", None),
        (None, None),
    ],
)
def test_a_resource_is_read_as_it_is_written(text, parsed):
    assert Resource.parse(text) == parsed
    if parsed is not None:
        assert Resource.parse(parsed.key) == parsed


@pytest.mark.parametrize(
    ("entries", "decision"),
    [
        ((entry("Topic:Orders"), entry("*", decision="Deny")), Decision.ALLOW),
        ((entry("Topic:Orders", decision="Deny"), entry("Topic:*")), Decision.DENY),
        ((entry("Topic:Or*", decision="Deny"), entry("Topic:O*")), Decision.DENY),
        ((entry("Topic:O*", decision="Deny"), entry("Topic:Or*")), Decision.ALLOW),
        ((entry("Topic:*"), entry("*", "All", "Deny")), Decision.ALLOW),
        ((entry("Topic:Orders", "Sub"),), None),
        ((entry("Group:Orders"), entry("Topic:Other")), None),
        ((entry("Topic:Orders", "All"),), Decision.ALLOW),
        ((entry("Topic:Orders", "Pub", "Allow", "10.0.0.0/8"),), Decision.ALLOW),
        ((entry("Topic:Orders", "Pub", "Allow", "11.0.0.0/8", "::1"),), None),
    ],
)
def test_the_entry_that_fits_best_decides(entries, decision):
    for ordered in (entries, entries[::-1]):
        assert acl(*ordered).decision(need(), ADDRESS) is decision


def test_the_default_policy_counts_where_no_other_entry_fits():
    both = acl(entry("Topic:Orders", decision="Deny"), default=[entry("Topic:*")])
    assert both.decision(need(), ADDRESS) is Decision.DENY
    assert both.decision(need("Other"), ADDRESS) is Decision.ALLOW
    assert both.decision(need("Other", Action.SUB), ADDRESS) is None


def test_an_entry_with_sources_does_not_fit_an_unknown_address():
    made = acl(entry("Topic:Orders", "Pub", "Allow", "0.0.0.0/0"))
    assert made.decision(need(), None) is None


def test_an_update_replaces_the_entries_of_the_same_resources():
    old = acl(entry("Topic:a"), entry("Topic:b*"))
    changed = old.updated(acl(entry("Topic:b*", "Sub", "Deny"), entry("Topic:c")))
    shown = [(e.resource, e.decision) for e in changed.info().policies[0].entries]
    assert shown == [("Topic:a", "Allow"), ("Topic:b*", "Deny"), ("Topic:c", "Allow")]
    rest = changed.without(PolicyType.CUSTOM, Resource.parse("Topic:b*"))
    assert [e.resource for e in rest.info().policies[0].entries] == ["Topic:a", "Topic:c"]
    only = acl(entry("Topic:a")).without(PolicyType.CUSTOM, Resource.parse("Topic:a"))
    assert not only.policies
    assert changed.info("b*").policies[0].entries[0].resource == "Topic:b*"
    assert changed.info("nothing").policies == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resource": "Queue:a"}, "The resource is null."),
        ({"actions": ("Wave",)}, "The actions is empty."),
        ({"actions": ("Pub", "Any")}, "The actions can not be Any."),
        ({"decision": "Maybe"}, "The decision is null or illegal."),
        ({"source_ips": ("10.0.0",)}, "The source ip is invalid."),
        ({"source_ips": (" ",)}, "The source ip is empty."),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_in_rocketmqs_words(changes, words):
    members = {"resource": "Topic:a", "actions": ("Pub",), "decision": "Allow", **changes}
    policy = PolicyInfo(policy_type="Custom", entries=(PolicyEntryInfo(**members),))
    with pytest.raises(BadInput, match=words):
        acl_of(AclInfo(policies=(policy,)), "User:app")
    with pytest.raises(BadInput, match="The policies is empty"):
        acl_of(AclInfo(), "User:app")


def test_a_subject_is_a_user():
    assert subject_of("user:a:b") == "User:a:b"
    assert subject_of("Role:a") is None
    assert subject_of(None) is None
    assert named(Action, "pUB") is Action.PUB
    assert named(Action, None) is None
    assert "s3cret" not in repr(User("a", "s3cret"))


resources = st.sampled_from(["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Topic:abc"])
entries = st.builds(
    entry, resources, st.sampled_from(["Pub", "Sub", "All"]), st.sampled_from(["Allow", "Deny"])
)


@given(st.lists(entries, min_size=1, max_size=6, unique_by=lambda each: each.resource), st.data())
def test_the_order_of_entries_decides_nothing(some, data):
    asked = need(data.draw(st.sampled_from(["a", "ab", "abc", "x"])))
    shuffled = data.draw(st.permutations(some))
    assert acl(*some).decision(asked, ADDRESS) is acl(*shuffled).decision(asked, ADDRESS)


CODE = RequestCode


def body(**members):
    return json.dumps(members).encode()


RULE_ENTRY = {
    "resource": "Cluster:DefaultCluster",
    "actions": ["Update", "Get"],
    "decision": "Allow",
}


async def test_only_a_super_user_makes_changes_or_removes_one(tmp_path):
    async with with_users(tmp_path) as (world, admin):
        create, update = CODE.AUTH_CREATE_USER, CODE.AUTH_UPDATE_USER
        answer = await admin(create, body(password=SECRET), username="keeper")
        assert answer.code == 0
        policies = body(policies=[{"entries": [RULE_ENTRY]}])
        answer = await admin(CODE.AUTH_CREATE_ACL, policies, subject="User:keeper")
        assert answer.code == 0
        keeper = Signer(world, "keeper")
        answer = await keeper(create, body(password="x"), username="normal")
        assert answer.code == 0
        as_super = body(password="x", userType="super")
        answer = await keeper(create, as_super, username="second")
        assert (answer.code, answer.remark) == (
            1,
            "The super user can only be create by super user",
        )
        assert (await keeper(update, as_super, username="normal")).code == 1
        for code in (update, CODE.AUTH_DELETE_USER):
            answer = await keeper(code, body(password="x"), username="administrator")
            assert answer.code == 16
        assert (await admin(create, as_super, username="second")).code == 0
        assert (await admin(CODE.AUTH_DELETE_USER, username="second")).code == 0
        # A user that is gone can do nothing, and its policies are gone with it.
        assert (await admin(CODE.AUTH_DELETE_USER, username="keeper")).code == 0
        assert (await keeper(CODE.AUTH_LIST_USER)).code == 16
        assert (await admin(CODE.AUTH_GET_ACL, subject="User:keeper")).body == b""


async def test_a_white_list_makes_nobody_a_super_user(tmp_path):
    codes = "3001,3002,3003,3004"
    settings = {"authenticationWhitelist": codes, "authorizationWhitelist": codes}
    async with with_users(tmp_path, **settings) as (world, _):
        as_super = body(password="x", userType="Super")
        forged = {"AccessKey": "administrator", "username": "second"}
        answer = await world.call(CODE.AUTH_CREATE_USER, as_super, **forged)
        assert answer.code == 1
        answer = await world.call(CODE.AUTH_CREATE_USER, as_super, username="second")
        assert answer.code == 1
        answer = await world.call(
            CODE.AUTH_DELETE_USER, AccessKey="administrator", username="administrator"
        )
        assert answer.code == 16
        answer = await world.call(CODE.AUTH_CREATE_USER, body(password="x"), username="one")
        assert answer.code == 0


async def test_lists_are_in_order_and_filtered(tmp_path):
    async with with_users(tmp_path) as (_, admin):
        for name in ("zoe", "äl", "bob"):
            user = body(password="x")
            assert (await admin(CODE.AUTH_CREATE_USER, user, username=name)).code == 0
        listed = json.loads((await admin(CODE.AUTH_LIST_USER)).body)
        names = [each["username"] for each in listed]
        assert names == ["administrator", "bob", "zoe", "äl"]
        assert (await admin(CODE.AUTH_LIST_USER, filter="nobody")).body == b""
        assert (await admin(CODE.AUTH_LIST_ACL)).body == b""
        answer = await admin(CODE.AUTH_GET_ACL, subject="Role:x")
        assert answer.code == 1


async def test_bodies_that_cannot_be_read_are_refused(tmp_path):
    async with with_users(tmp_path) as (_, admin):
        for code in (CODE.AUTH_CREATE_USER, CODE.AUTH_UPDATE_USER, CODE.AUTH_CREATE_ACL):
            for sent in (b"", b"[]", b"{", b'{"policies":7,"password":[]}'):
                answer = await admin(code, sent, username="x", subject="User:administrator")
                assert answer.code != 0


async def test_accounts_are_listed_and_no_request_changes_them(tmp_path):
    path = tmp_path / "home" / "conf" / "plain_acl.yml"
    code = RequestCode
    changes = {
        code.UPDATE_AND_CREATE_ACL_CONFIG: (209, {"accessKey": "new-app", "secretKey": SECRET}),
        code.DELETE_ACL_CONFIG: (210, {"accessKey": "orders-app"}),
        code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (211, {"globalWhiteAddrs": "*"}),
    }
    async with with_accounts(tmp_path) as (world, admin, app):
        content = path.read_bytes()
        for change, (refusal, fields) in changes.items():
            assert (await app(change, **fields)).code == 1
            answer = await admin(change, **fields)
            assert answer.code == refusal
            assert "migrateAuthFromV1Enabled=true" in answer.remark
        assert path.read_bytes() == content
        listed = json.loads((await admin(code.GET_BROKER_CLUSTER_ACL_CONFIG)).body)
        assert [each["accessKey"] for each in listed["plainAccessConfigs"]] == [
            "administrator",
            "orders-app",
        ]
        assert listed["plainAccessConfigs"][1]["topicPerms"] == ["Orders=PUB|SUB"]
        assert (await app(code.GET_BROKER_CLUSTER_ACL_CONFIG)).code == 1
        versions = (await app(code.GET_BROKER_CLUSTER_ACL_INFO)).ext_fields
        assert json.loads(versions["version"])["counter"] == 0
        assert list(json.loads(versions["allAclFileVersion"])) == [str(path)]
        assert versions["brokerAddr"] == world.service.address
