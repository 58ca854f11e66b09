"""Signed sends: those that access control lets through are in runs, and others are refused."""

import asyncio

import pytest

from rocketlens.errors import ProtocolError
from rocketlens.wire.acl import UNSIGNED_FLAG, signed_fields
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.connection import decode_command
from tests.support.binary_header import encode_command
from tests.support.broker_world import create_topic
from tests.support.fed_channel import commands_in, feed
from tests.support.patience import PATIENCE_S
from tests.unit.broker.access.acl_world import (
    ACCOUNTS,
    SECRET,
    USERS,
    Signer,
    change_account,
    with_accounts,
    with_users,
)
from tests.unit.broker.sends.test_send_runs import assert_same, mutated, plain_frame, streams_of

MORE_ACCOUNTS = f"""\
{ACCOUNTS}\
- {{accessKey: reading-app, secretKey: {SECRET}, topicPerms: [Orders=SUB]}}
- {{accessKey: near-app, secretKey: {SECRET}, whiteRemoteAddress: 10.0.0.*}}
"""
POLICIES = (
    b'{"policies":[{"entries":[{"resource":"Topic:Orders","actions":["Pub"],"decision":"Allow"}]}]}'
)


def signed(frame, user="orders-app", secret=SECRET, **more):
    """A frame with the signature of a user, unless it is none."""
    head = 8 + int.from_bytes(frame[5:8])
    try:
        command = decode_command((frame[4], frame[8:head], frame[head:]))
    except ProtocolError:
        return frame
    token = more.pop("token", None)
    fields = signed_fields(command.ext_fields | more, command.body, user, secret, token)
    return encode_command(command._replace(ext_fields=fields), frame[4])


def oddly_signed(rng, frame):
    """A frame that is mostly signed as it should be."""
    if rng.random() < 0.9:
        return signed(frame)
    kind = rng.randrange(8)
    if kind == 0:
        return frame
    if kind == 1:
        return signed(frame, secret="another-secret")
    if kind == 2:
        return signed(frame, token="token")
    if kind == 3:
        return signed(frame, **{UNSIGNED_FLAG: "true"})
    if kind == 4:
        return mutated(rng, signed(frame))
    return signed(frame, rng.choice(["reading-app", "near-app", "nobody-at-all", "caf\u00e9-app"]))


async def as_accounts(world):
    """Let an administrator make topics."""
    world.call = Signer(world, "administrator")


async def as_users(world):
    """Make users, one of which may send to one topic."""
    await as_accounts(world)
    await add_users(world.call)


async def add_users(admin):
    """Make users as an administrator."""
    body = f'{{"password":"{SECRET}"}}'.encode()
    for user in ("orders-app", "reading-app"):
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username=user)).code == 0
    answer = await admin(RequestCode.AUTH_CREATE_ACL, POLICIES, subject="User:orders-app")
    assert answer.code == 0


def write_accounts(directory, text=MORE_ACCOUNTS):
    """Write the file of accounts of a broker; return its settings."""
    conf = directory / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(text)
    (conf / "plain_acl.yml").chmod(0o600)
    return {"aclEnable": True, "rocketmqHome": directory / "home"}


def test_signed_sends_of_accounts_are_what_they_are_one_by_one(tmp_path):
    settings = write_accounts(tmp_path)
    streams = list(streams_of(3, 16, 0.05, oddly_signed))
    messages, _ = assert_same(tmp_path, streams, prepare=as_accounts, **settings)
    assert messages > 100


def test_signed_sends_of_users_are_what_they_are_one_by_one(tmp_path):
    streams = list(streams_of(4, 16, 0.05, oddly_signed))
    messages, _ = assert_same(tmp_path, streams, prepare=as_users, **USERS)
    # How many are in runs differs: 95 to 181 were seen.
    assert messages > 50


async def codes_of(world, frames):
    """The codes of the answers to frames that come at once, and how many were in runs."""
    runs, taken = world.core.network.runs, []
    take = runs.take
    runs.take = lambda *given: taken.append(take(*given)) or taken[-1]
    written, _ = await feed(world, [b"".join(frames)])
    runs.take = take
    answers = commands_in(written)
    assert [each.opaque for each in answers] == list(range(len(frames)))
    return [each.code for each in answers], sum(count for count, _, _ in taken)


async def until_known(world):
    """Send until all queues are known, so that what is plain is in runs."""
    async with asyncio.timeout(PATIENCE_S):
        while (await codes_of(world, orders(8)))[1] < 8:
            pass


def stored_in(world):
    """How many messages there are."""
    return sum(world.core.store.queues.max_offset("Orders", number) for number in range(4))


def orders(count):
    return [signed(plain_frame(number)) for number in range(count)]


def test_a_right_that_is_taken_away_counts_from_the_next_message_on(tmp_path):
    async def users():
        async with with_users(tmp_path / "users") as (world, admin):
            await add_users(admin)

            async def take_away():
                code = RequestCode.AUTH_DELETE_USER
                assert (await admin(code, b"", username="orders-app")).code == 0

            await check(world, admin, take_away)

    async def accounts():
        async with with_accounts(tmp_path / "accounts") as (world, admin, _):
            await check(world, admin, lambda: change_account(world, "orders-app"))

    async def check(world, admin, take_away):
        world.call = admin
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        world.core.load_kernels()
        await until_known(world)
        await take_away()
        codes, in_runs = await codes_of(world, orders(8))
        assert (0 in codes, in_runs) == (False, 0)

    asyncio.run(users())
    asyncio.run(accounts())


@pytest.mark.parametrize("number", [0, 3, 7])
async def test_a_message_that_is_refused_leaves_the_run_in_order(tmp_path, number):
    async with with_accounts(tmp_path) as (world, admin, _):
        world.call = admin
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        world.core.load_kernels()
        await until_known(world)
        stored = stored_in(world)
        frames = orders(8)
        frames[number] = signed(plain_frame(number), secret="another-secret")
        codes, in_runs = await codes_of(world, frames)
        assert codes == [1 if each == number else 0 for each in range(8)]
        assert in_runs >= number
        assert world.core.access.refused == 1
        assert stored_in(world) == stored + 7
