"""updateAclConfig and the like, printed as RocketMQ 4.9's tool prints."""

import asyncio

from rocketlens.mqadmin import account_commands
from tests.unit.broker.access.acl_world import SECRET, with_accounts
from tests.unit.mqadmin.signing_tool import CLUSTER, caller


def test_accounts_are_made_shown_and_deleted(tmp_path, capsys):
    path = tmp_path / "home" / "conf" / "plain_acl.yml"

    async def main():
        async with with_accounts(tmp_path) as (_, admin, __):
            run = caller(admin, capsys)
            options = {"a": "new-app", "s": SECRET, "t": "A=PUB,B=SUB", "i": "DENY", "m": "true"}
            made = await run(account_commands.update, b="ADDR", **options)
            assert made == (
                "create or update plain access config to ADDR success.\n"
                "PlainAccessConfig{accessKey='new-app', whiteRemoteAddress=null, admin=true, "
                "defaultTopicPerm='DENY', defaultGroupPerm=null, topicPerms=[A=PUB, B=SUB], "
                "groupPerms=null}"
            )
            white = await run(account_commands.update_white, c=CLUSTER, g="10.0.0.*")
            assert white == "update global white remote addresses to ADDR success.\n"
            shown = await run(account_commands.show, b="ADDR")
            assert shown.startswith("\nglobalWhiteRemoteAddresses: [10.0.0.*]\n\naccounts:\n")
            assert shown.endswith(
                f"  accessKey         : new-app\n  secretKey         : {SECRET}\n"
                "  whiteRemoteAddress: \n  admin             : true\n"
                "  defaultTopicPerm  : DENY\n  defaultGroupPerm  : \n"
                "  topicPerms        : [A=PUB, B=SUB]\n  groupPerms        : \n\n"
            )
            version = await run(account_commands.versions, c=CLUSTER)
            head, row, end = version.splitlines()
            assert head.split("#")[1:3] == ["Cluster Name     ", "Broker Name            "]
            assert row.split()[:5] == [CLUSTER, "broker-a", "ADDR", str(path), "2"]
            assert end == "get cluster's plain access config version success."
            version = await run(account_commands.versions, b="ADDR")
            assert version.splitlines()[1] == "get broker's plain access config version success."
            deleted = await run(account_commands.delete, b="ADDR", a="new-app")
            assert deleted == (
                "delete plain access config account from ADDR success.\n"
                "account's accesskey is:new-app"
            )
            assert "new-app" not in await run(account_commands.show, b="ADDR")

    asyncio.run(main())
