"""A broker with access control in this process, and requests signed by its users."""

import asyncio
from contextlib import asynccontextmanager

import yaml

from rocketlens.wire.acl import signed_fields
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import running
from tests.support.patience import PATIENCE_S

SECRET = "s3cret-s3cret"
ACCOUNTS = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- accessKey: orders-app
  secretKey: {SECRET}
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [readers=SUB]
"""
USERS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": f'{{"username":"administrator","password":"{SECRET}"}}',
}


class Signer:
    """Asks a broker as a user."""

    def __init__(self, world, user, secret=SECRET):
        self.world = world
        self.user = user
        self.secret = secret

    async def __call__(self, code, body=b"", /, **fields):
        texts = {name: str(value) for name, value in fields.items()}
        signed = signed_fields(texts, body, self.user, self.secret)
        address = self.world.service.address
        return await self.world.pool.call(address, int(code), signed, body, timeout_s=PATIENCE_S)


@asynccontextmanager
async def with_accounts(directory, text=ACCOUNTS, **settings):
    """Run a broker with accounts; gives it, its administrator and its application."""
    conf = directory / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    if not (conf / "plain_acl.yml").exists():
        (conf / "plain_acl.yml").write_text(text)
        (conf / "plain_acl.yml").chmod(0o600)
    home = directory / "home"
    async with running(directory, aclEnable=True, rocketmqHome=home, **settings) as world:
        yield world, Signer(world, "administrator"), Signer(world, "orders-app")


async def change_account(world, access_key, /, **members):
    """Change an account in the file as an operator does, or remove it; wait until that counts."""
    path = world.core.access.accounts.default_file
    value = yaml.safe_load(path.read_text())
    accounts = {each["accessKey"]: each for each in value["accounts"]}
    account = accounts.pop(access_key, {"accessKey": access_key, "secretKey": SECRET})
    if members:
        accounts[access_key] = {**account, **members}
    beside = path.with_suffix(".new")
    beside.write_text(yaml.safe_dump({**value, "accounts": [*accounts.values()]}))
    beside.chmod(0o600)
    beside.replace(path)
    await world.core.access.accounts.read_again()


@asynccontextmanager
async def with_users(directory, **settings):
    """Run a broker with users; gives it and its first one."""
    async with running(directory, **{**USERS, **settings}) as world:
        yield world, Signer(world, "administrator")


def check_rights_taken_away(directory, add_users, accounts, check):
    """Run ``check(world, admin, take_away)`` with users that ``add_users`` adds, and with accounts.

    ``take_away`` takes all rights of ``orders-app`` away.
    """

    async def of_users():
        async with with_users(directory / "users") as (world, admin):
            await add_users(admin)

            async def take_away():
                answer = await admin(RequestCode.AUTH_DELETE_ACL, b"", subject="User:orders-app")
                assert answer.code == 0

            await check(world, admin, take_away)

    async def of_accounts():
        async with with_accounts(directory / "accounts", accounts) as (world, admin, _):
            await check(world, admin, lambda: change_account(world, "orders-app"))

    asyncio.run(of_users())
    asyncio.run(of_accounts())
