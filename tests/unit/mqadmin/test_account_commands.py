"""updateAclConfig and the like, printed as RocketMQ 4.9's tool prints.

createUser to copyAcl; the peer tests compare what they print with the real tool.
"""

import pytest

from rocketlens.errors import BadInput, BrokerError
from rocketlens.mqadmin import account_commands, auth_commands
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from tests.unit.broker.access.acl_world import ACCOUNTS, SECRET, Signer, with_accounts, with_users
from tests.unit.mqadmin.signing_tool import CLUSTER, caller

CHANGES = (
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
)


class ChangingBroker:
    """Takes changes of accounts as a broker of RocketMQ 4 does, and notes them."""

    def __init__(self, signer):
        self.world = signer.world
        self.signer = signer
        self.changes = []

    async def __call__(self, code, body=b"", /, **fields):
        if code not in CHANGES:
            return await self.signer(code, body, **fields)
        self.changes.append(fields)
        return RemotingCommand(0)


async def test_accounts_are_made_and_deleted_at_brokers_that_take_changes(tmp_path, capsys):
    async with with_accounts(tmp_path) as (_, admin, __):
        broker = ChangingBroker(admin)
        run = caller(broker, capsys)
        options = {"a": "new-app", "s": SECRET, "t": "A=PUB,B=SUB", "i": "DENY", "m": "true"}
        made = await run(account_commands.update, b="ADDR", **options)
        assert made == (
            "create or update plain access config to ADDR success.\n"
            "PlainAccessConfig{accessKey='new-app', whiteRemoteAddress=null, admin=true, "
            "defaultTopicPerm='DENY', defaultGroupPerm=null, topicPerms=[A=PUB, B=SUB], "
            "groupPerms=null}"
        )
        assert broker.changes[0]["accessKey"] == "new-app"
        white = await run(account_commands.update_white, c=CLUSTER, g="10.0.0.*")
        assert white == "update global white remote addresses to ADDR success.\n"
        assert broker.changes[1]["globalWhiteAddrs"] == "10.0.0.*"
        deleted = await run(account_commands.delete, b="ADDR", a="new-app")
        assert deleted == (
            "delete plain access config account from ADDR success.\naccount's accesskey is:new-app"
        )
        assert broker.changes[2]["accessKey"] == "new-app"


async def test_our_broker_refuses_changes_with_what_to_do(tmp_path, capsys):
    async with with_accounts(tmp_path) as (_, admin, __):
        with pytest.raises(BrokerError, match="migrateAuthFromV1Enabled=true"):
            await caller(admin, capsys)(account_commands.delete, b="ADDR", a="orders-app")


async def test_accounts_and_versions_of_their_files_are_shown(tmp_path, capsys):
    path = tmp_path / "home" / "conf" / "plain_acl.yml"
    more = f"- {{accessKey: new-app, secretKey: {SECRET}, admin: true, defaultTopicPerm: DENY}}\n"
    text = (
        f"globalWhiteRemoteAddresses: [10.0.0.*]\n{ACCOUNTS}{more}dataVersion: [{{counter: 2}}]\n"
    )
    async with with_accounts(tmp_path, text) as (_, admin, __):
        run = caller(admin, capsys)
        shown = await run(account_commands.show, b="ADDR")
        assert shown.startswith("\nglobalWhiteRemoteAddresses: [10.0.0.*]\n\naccounts:\n")
        assert "  topicPerms        : [Orders=PUB|SUB]\n" in shown
        assert shown.endswith(
            f"  accessKey         : new-app\n  secretKey         : {SECRET}\n"
            "  whiteRemoteAddress: \n  admin             : true\n"
            "  defaultTopicPerm  : DENY\n  defaultGroupPerm  : \n"
            "  topicPerms        : \n  groupPerms        : \n\n"
        )
        version = await run(account_commands.versions, c=CLUSTER)
        head, row, last = version.splitlines()
        assert head.split("#")[1:3] == ["Cluster Name     ", "Broker Name            "]
        assert row.split()[:5] == [CLUSTER, "broker-a", "ADDR", str(path), "2"]
        assert last == "get cluster's plain access config version success."
        version = await run(account_commands.versions, b="ADDR")
        assert version.splitlines()[1] == "get broker's plain access config version success."


USER_HEAD = (
    "#UserName         #Password               #UserType               #UserStatus           \n"
)
ACL_HEAD = (
    "#Subject          #PolicyType  #Resource               #Actions              "
    "#SourceIp                 #Decision \n"
)


async def test_users_are_made_changed_shown_and_deleted(tmp_path, capsys):
    async with with_users(tmp_path) as (_, admin):
        run = caller(admin, capsys)
        made = await run(auth_commands.create_user, b="ADDR", u="app", p="one", t="Normal")
        assert made == "create user to ADDR success.\n"
        row = f"{'app':<16}  {'one':<22}  {'Normal':<22}  {'enable':<22}\n"
        assert await run(auth_commands.get_user, c=CLUSTER, u="app") == USER_HEAD + row
        assert await run(auth_commands.get_user, c=CLUSTER, u="nobody") == ""
        changed = await run(auth_commands.update_user, c=CLUSTER, u="app", s="disable")
        assert changed == "update user to ADDR success.\n"
        row = row.replace("enable ", "disable")
        assert await run(auth_commands.list_users, b="ADDR", f="ap") == USER_HEAD + row
        listed = await run(auth_commands.list_users, c=CLUSTER, f="ap")
        assert listed == f"{USER_HEAD}{row}get user from ADDR success.\n"
        with pytest.raises(BadInput, match="one of -p, -t and -s"):
            await run(auth_commands.update_user, b="ADDR", u="app", s="enable", p="two")
        deleted = await run(auth_commands.delete_user, b="ADDR", u="app")
        assert deleted == "delete user to ADDR success.\n"
        assert await run(auth_commands.list_users, c=CLUSTER, f="ap") == ""
        with pytest.raises(BadInput, match="no broker in cluster Other"):
            await run(auth_commands.list_users, c="Other")


async def test_policies_are_made_changed_shown_and_deleted(tmp_path, capsys):
    async with with_users(tmp_path) as (world, admin):
        run = caller(admin, capsys)
        await run(auth_commands.create_user, b="ADDR", u="app", p="one")
        options = {"s": "User:app", "r": "Topic:a*, Group:g", "a": "Pub,Sub", "d": "Allow"}
        made = await run(auth_commands.create_acl, c=CLUSTER, i="10.0.0.0/8,::1", **options)
        assert made == "create acl to ADDR success.\n"
        rows = "".join(
            f"{'User:app':<16}  {'Custom':<10}  {resource:<22}  {'[Pub, Sub]':<20}  "
            f"{'[10.0.0.0/8, ::1]':<24}  {'Allow':<10}\n"
            for resource in ("Topic:a*", "Group:g")
        )
        assert await run(auth_commands.get_acl, b="ADDR", s="User:app") == ACL_HEAD + rows
        assert await run(auth_commands.list_acls, c=CLUSTER) == ACL_HEAD + rows
        assert await run(auth_commands.list_acls, c=CLUSTER, s="nobody") == ""
        options |= {"r": "Topic:a*", "d": "Deny"}
        changed = await run(auth_commands.update_acl, b="ADDR", **options)
        assert changed == "update acl to ADDR success.\n"
        shown = await run(auth_commands.list_acls, b="ADDR", r="Topic")
        assert shown.splitlines()[1].split() == [
            *("User:app", "Custom", "Topic:a*", "[Pub,", "Sub]", "null", "Deny")
        ]
        deleted = await run(auth_commands.delete_acl, b="ADDR", s="User:app", r="Topic:a*")
        assert deleted == "delete acl to ADDR success.\n"
        assert "Topic:a*" not in await run(auth_commands.get_acl, b="ADDR", s="User:app")
        await run(auth_commands.delete_acl, b="ADDR", s="User:app")
        assert await run(auth_commands.get_acl, b="ADDR", s="User:app") == ""
        with pytest.raises(BrokerError, match="has no permission to access"):
            await caller(Signer(world, "app", "one"), capsys)(auth_commands.list_users, b="ADDR")


async def test_users_and_policies_are_copied(tmp_path, capsys):
    async with with_users(tmp_path) as (_, admin):
        run = caller(admin, capsys)
        for name in ("one", "two"):
            await run(auth_commands.create_user, b="ADDR", u=name, p="secret")
            options = {"s": f"User:{name}", "r": "*", "a": "All", "d": "Allow"}
            await run(auth_commands.create_acl, b="ADDR", **options)
        copied = await run(auth_commands.copy_users, f="A", t="B", u="one,nobody")
        assert copied == "copy user of one from A to B success.\n"
        copied = await run(auth_commands.copy_users, f="A", t="B")
        assert copied.count("success") == 3
        copied = await run(auth_commands.copy_acls, f="A", t="B", s="User:two,User:nobody")
        assert copied == "copy acl of User:two from A to B success.\n"
        copied = await run(auth_commands.copy_acls, f="A", t="B")
        assert copied.count("success") == 2
