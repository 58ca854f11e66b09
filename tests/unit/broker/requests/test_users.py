"""Requests of RocketMQ 5's tools about users and policies; the peer tests ask all of them.

Requests of RocketMQ 4's tools about accounts.
"""

import json

from rocketlens.wire.codes import RequestCode
from tests.unit.broker.access.acl_world import SECRET, Signer, with_accounts, with_users

CODE = RequestCode


def body(**members):
    return json.dumps(members).encode()


ENTRY = {"resource": "Cluster:DefaultCluster", "actions": ["Update", "Get"], "decision": "Allow"}


async def test_only_a_super_user_makes_changes_or_removes_one(tmp_path):
    async with with_users(tmp_path) as (world, admin):
        create, update = CODE.AUTH_CREATE_USER, CODE.AUTH_UPDATE_USER
        answer = await admin(create, body(password=SECRET), username="keeper")
        assert answer.code == 0
        policies = body(policies=[{"entries": [ENTRY]}])
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
