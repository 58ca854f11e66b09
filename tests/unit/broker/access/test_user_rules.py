"""Users: who a request is of, and changes that are on the disk when they are answered."""

import asyncio

import pytest

from rocketlens.broker.access.user_rules import Refused, Users
from rocketlens.broker.access_config import AuthConfig
from rocketlens.broker.tables.table_saver import TableSaver
from rocketlens.errors import StoreBusy
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand

HOST = "10.0.0.7"
FIRST = '{"username":"admin","password":"s3cret"}'


def opened(directory, disk=None, save=None, **changes):
    values = {"authenticationEnabled": True, "authorizationEnabled": True, **changes}
    config = AuthConfig(initAuthenticationUser=FIRST, **values)
    return Users(config, "C", StoreLayout(directory), disk or Disk(), lambda: 7, save=save)


def run(work, directory, disk=None, **changes):
    async def main():
        saver = TableSaver()
        users = opened(directory, disk, saver.save, **changes)
        try:
            await work(users)
        finally:
            saver.close()

    asyncio.run(main())


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


def test_a_disabled_user_is_nobody(tmp_path):
    async def work(users):
        assert refusal(users, b="T") is None
        await users.create_user("app", UserInfo(password="one"))
        assert refusal(users, 28, "app", "one") is None
        await users.update_user("app", UserInfo(user_status="Disable"))
        assert refusal(users, 28, "app", "one") == "User:app is disabled."
        await users.update_user("app", UserInfo(user_status="enable", password="two"))
        assert refusal(users, 28, "app", "one") == "check signature failed."
        assert refusal(users, 28, "app", "two") is None

    run(work, tmp_path)


def test_users_are_enough_where_nothing_is_authorized(tmp_path):
    async def work(users):
        await users.create_user("app", UserInfo(password="one"))
        assert refusal(users, user="app", secret="one", b="T") is None
        assert refusal(users, user="app", secret="two", b="T") is not None
        assert refusal(users, user="", b="T") == "username cannot be null."

    run(work, tmp_path, authorizationEnabled=False)


def test_a_white_list_of_authorization_lets_every_user_ask(tmp_path):
    async def work(users):
        await users.create_user("app", UserInfo(password="one"))
        assert refusal(users, user="app", secret="one", b="T") is None
        assert refusal(users, user="", b="T") == "username cannot be null."
        assert refusal(users, 11, "app", "one", topic="T") is not None

    run(work, tmp_path, authorizationWhitelist="310, 320")


def test_a_white_list_of_authentication_gives_nobody_the_permissions_of_a_user(tmp_path):
    async def work(users):
        await users.create_user("app", UserInfo(password="one"))
        await users.put_acl("User:app", policies(("Topic:T", "Pub")))
        assert refusal(users, user="app", secret="one", b="T") is None
        for user, secret in (("app", "wrong"), ("admin", "wrong"), ("nobody", "x"), ("", "")):
            words = "Authorization failed. Please verify your access rights and try again."
            assert refusal(users, user=user, secret=secret, b="T") == words
        assert refusal(users, 28, user="") == "username cannot be null."

    run(work, tmp_path, authenticationWhitelist="310")


def test_a_group_without_a_body_needs_what_a_group_needs(tmp_path):
    async def work(users):
        await users.create_user("app", UserInfo(password="one"))
        for body in (b"", b'{"groupName":"g"}'):
            assert refusal(users, 200, "app", "one", body=body) is not None

    run(work, tmp_path)


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
def test_what_cannot_be_done_is_refused(tmp_path, change, words):
    async def work(users):
        with pytest.raises(Refused, match=words) as caught:
            await change(users)
        assert caught.value.code == 16

    run(work, tmp_path)


def test_a_resource_that_is_none_removes_no_policies(tmp_path):
    async def work(users):
        await users.put_acl("User:admin", policies(("Topic:T", "Pub"), ("Topic:S", "Pub")))
        with pytest.raises(Refused, match="resource is null"):
            await users.delete_acl("User:admin", None, "Queue:T")
        await users.delete_acl("User:admin", "Custom", "Topic:T")
        assert len(users.acls.entries["User:admin"].info().policies[0].entries) == 1
        await users.delete_acl("User:admin", None, "Topic:S")
        assert users.acls.entries == {}

    run(work, tmp_path)


def test_the_number_of_users_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.access.user_rules.MAX_USERS", 2)

    async def work(users):
        await users.create_user("app", UserInfo(password="x"))
        with pytest.raises(Refused, match="there are 2"):
            await users.create_user("third", UserInfo(password="x"))

    run(work, tmp_path)


def test_a_change_is_on_the_disk_when_it_is_answered(tmp_path):
    async def work(users):
        await users.create_user("app", UserInfo(password="x"))
        await users.put_acl("User:app", policies(("Topic:T", "Pub")))
        again = opened(tmp_path)
        assert again.users.entries.keys() == {"admin", "app"}
        assert again.acls.entries.keys() == {"User:app"}
        await users.delete_user("app")
        again = opened(tmp_path)
        assert again.users.entries.keys() == {"admin"}
        assert again.acls.entries == {}

    run(work, tmp_path)


def test_a_change_that_cannot_be_written_is_not_answered_with_success(tmp_path):
    class FullDisk(Disk):
        is_full = False

        def write_durably(self, path, content):
            if self.is_full:
                raise OSError(28, "No space left on device", str(path))
            super().write_durably(path, content)

    disk = FullDisk()

    async def work(users):
        disk.is_full = True
        with pytest.raises(StoreBusy, match="could not be written yet"):
            await users.create_user("app", UserInfo(password="x"))
        assert users.users.is_changed
        disk.is_full = False
        await users.create_user("other", UserInfo(password="x"))
        assert opened(tmp_path).users.entries.keys() == {"admin", "app", "other"}

    run(work, tmp_path, disk)
