"""updateAclConfig and the like, printed as RocketMQ 4.9's tool prints."""

import pytest

from rocketlens.errors import BrokerError
from rocketlens.mqadmin import account_commands
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from tests.unit.broker.access.acl_world import ACCOUNTS, SECRET, with_accounts
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
