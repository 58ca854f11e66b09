"""Requests of RocketMQ 4's tools about accounts."""

import asyncio
import json

import yaml

from rocketlens.broker.requests.accounts import (
    DELETE_FAILED,
    UPDATE_FAILED,
    UPDATE_WHITE_FAILED,
)
from rocketlens.wire.codes import RequestCode
from tests.unit.broker.access.acl_world import SECRET, Signer, with_accounts


def test_accounts_are_made_changed_listed_and_deleted(tmp_path):
    path = tmp_path / "home" / "conf" / "plain_acl.yml"
    code = RequestCode

    async def main():
        async with with_accounts(tmp_path) as (world, admin, app):
            new = {"accessKey": "new-app", "secretKey": SECRET, "topicPerms": "A=PUB,B=SUB"}
            assert (await app(code.UPDATE_AND_CREATE_ACL_CONFIG, **new)).code == 1
            assert (await admin(code.UPDATE_AND_CREATE_ACL_CONFIG, **new)).code == 0
            assert (await Signer(world, "new-app")(code.GET_BROKER_RUNTIME_INFO)).code == 0
            listed = json.loads((await admin(code.GET_BROKER_CLUSTER_ACL_CONFIG)).body)
            assert [each["accessKey"] for each in listed["plainAccessConfigs"]] == [
                "administrator",
                "orders-app",
                "new-app",
            ]
            assert listed["plainAccessConfigs"][2]["topicPerms"] == ["A=PUB", "B=SUB"]
            assert (await app(code.GET_BROKER_CLUSTER_ACL_CONFIG)).code == 1
            versions = (await app(code.GET_BROKER_CLUSTER_ACL_INFO)).ext_fields
            assert json.loads(versions["version"])["counter"] == 1
            assert list(json.loads(versions["allAclFileVersion"])) == [str(path)]
            assert versions["brokerAddr"] == world.service.address
            answer = await admin(code.DELETE_ACL_CONFIG, accessKey="new-app")
            assert answer.code == 0
            answer = await admin(code.DELETE_ACL_CONFIG, accessKey="new-app")
            assert answer.code == DELETE_FAILED
            assert answer.remark == (
                "The accesskey[new-app] corresponding to accessConfig has been deleted failed."
            )
            assert (await Signer(world, "new-app")(code.GET_BROKER_RUNTIME_INFO)).code == 1

    asyncio.run(main())


def test_what_cannot_be_done_is_answered_with_rocketmqs_codes(tmp_path):
    async def main():
        async with with_accounts(tmp_path) as (_, admin, __):
            update = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
            answer = await admin(update, accessKey="new-app", secretKey="short")
            assert answer.code == UPDATE_FAILED
            assert "short" not in answer.remark.replace("shoul", "")
            answer = await admin(update, accessKey="new-app", secretKey=SECRET, topicPerms="A")
            assert answer.code == UPDATE_FAILED
            white = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
            answer = await admin(white, globalWhiteAddrs="10.0")
            assert answer.code == UPDATE_WHITE_FAILED
            answer = await admin(white, globalWhiteAddrs="*", aclFileFullPath="/etc/passwd")
            assert answer.code == UPDATE_WHITE_FAILED
            answer = await admin(white, globalWhiteAddrs="10.0.0.1,10.0.1.*")
            assert answer.code == 0
        value = yaml.safe_load((tmp_path / "home" / "conf" / "plain_acl.yml").read_text())
        assert value["globalWhiteRemoteAddresses"] == ["10.0.0.1", "10.0.1.*"]

    asyncio.run(main())
