"""Compiled pulls where access control is on: what it decides is what it decides one by one."""

import random

import pytest

from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import bodies
from tests.support.effort import sized
from tests.support.fed_channel import feed
from tests.unit.broker.access.acl_world import (
    SECRET,
    change_account,
    check_rights_taken_away,
    with_accounts,
    with_users,
)
from tests.unit.broker.delivery.test_compiled_pulls import Both, any_pull, fill, pull, replies_in
from tests.unit.broker.lookup.test_compiled import mutated
from tests.unit.broker.sends.test_signed_runs import signed

ACCOUNTS = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- accessKey: orders-app
  secretKey: {SECRET}
  topicPerms: [Orders=SUB, Other=SUB]
  groupPerms: [readers=SUB, heard=SUB]
- {{accessKey: other-app, secretKey: {SECRET}, topicPerms: [Orders=SUB], groupPerms: [heard=SUB]}}
- {{accessKey: near-app, secretKey: {SECRET}, whiteRemoteAddress: 10.0.0.*}}
"""
USERS = ("orders-app", "other-app", "near-app")


def policies(action="Sub"):
    entries = [
        f'{{"resource":"{resource}","actions":["{action}"],"decision":"Allow"}}'
        for resource in ("Topic:Orders", "Group:readers")
    ]
    return f'{{"policies":[{{"entries":[{",".join(entries)}]}}]}}'.encode()


async def add_users(admin):
    """Make users, the first of which may read."""
    body = f'{{"password":"{SECRET}"}}'.encode()
    for user in USERS:
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username=user)).code == 0
    await allow(admin)


async def allow(admin, action="Sub"):
    """Replace what the first user may."""
    subject = f"User:{USERS[0]}"
    await admin(RequestCode.AUTH_DELETE_ACL, b"", subject=subject)
    body = policies(action)
    assert (await admin(RequestCode.AUTH_CREATE_ACL, body, subject=subject)).code == 0


def oddly_signed(rng, frame):
    """A pull that is mostly signed as it should be."""
    if rng.random() < 0.7:
        return signed(frame, USERS[0])
    kind = rng.randrange(7)
    if kind == 0:
        return frame
    if kind == 1:
        return signed(frame, USERS[0], "another-secret")
    if kind == 2:
        return signed(frame, USERS[0], token="token")
    if kind == 3:
        return mutated(rng, signed(frame, USERS[0]))
    return signed(frame, rng.choice([*USERS[1:], "administrator", "nobody-at-all", "caf\u00e9"]))


async def assert_same(world, admin, seed, change_rights):
    """Pull both ways, rights changing in between; return how many pulls were compiled."""
    rng, world.call = random.Random(seed), admin
    await fill(world)
    both = Both(world)
    end = world.core.store.queues.get("Orders", 0).next_offset
    for _ in range(150):
        if rng.random() < 0.08:
            await change_rights(rng)
        frames = [
            oddly_signed(rng, any_pull(rng, opaque, end, 0.1))
            for opaque in range(rng.choice([1, 1, 1, 5]))
        ]
        peer = rng.choice([("10.0.0.9", 1), ("10.1.0.9", 1), ("fe80::1", 1)])
        await both.assert_same([b"".join(frames)], peer)
    return both.answered


@pytest.mark.parametrize("seed", range(sized(1, 3)))
async def test_pulls_of_accounts_are_what_they_are_one_by_one(tmp_path, seed):
    async with with_accounts(tmp_path, ACCOUNTS) as (world, admin, _):

        async def change_rights(rng):
            perm = rng.choice(["SUB", "SUB", "PUB", "DENY"])
            await change_account(
                world,
                USERS[0],
                defaultTopicPerm=perm,
                topicPerms=[rng.choice(["Orders=SUB", "Orders=SUB", "Orders=DENY"])],
                groupPerms=[rng.choice(["readers=SUB"] * 3 + ["heard=SUB"])],
            )

        assert await assert_same(world, admin, seed, change_rights) > 10


@pytest.mark.parametrize("seed", range(sized(1, 3)))
@pytest.mark.parametrize(
    "settings", [{}, {"authorizationEnabled": False}, {"authenticationWhitelist": "361"}]
)
async def test_pulls_of_users_are_what_they_are_one_by_one(tmp_path, seed, settings):
    async with with_users(tmp_path, **settings) as (world, admin):
        await add_users(admin)

        async def change_rights(rng):
            await allow(admin, rng.choice(["Sub", "Sub", "Get", "Pub"]))

        assert await assert_same(world, admin, seed, change_rights) > 10


async def answer_to(world, both, frame):
    """The answer to a pull, and whether it was compiled."""
    before = both.answered
    written, _ = await feed(world, [frame])
    (answer,) = replies_in(written)
    return answer, both.answered > before


def test_a_right_that_is_taken_away_counts_from_the_next_pull_on(tmp_path):
    async def check(world, admin, take_away):
        world.call = admin
        await fill(world)
        both, frame = Both(world), signed(pull(5, 1, maxMsgNums=3), USERS[0])
        stored = [record.body for record in world.stored("Orders", 1)]
        for _ in range(3):
            answer, is_compiled = await answer_to(world, both, frame)
            assert (bodies(answer), is_compiled) == (stored[5:8], True)
        await take_away()
        answer, is_compiled = await answer_to(world, both, frame)
        assert (answer.code != 0, answer.body, is_compiled) == (True, b"", False)

    check_rights_taken_away(tmp_path, add_users, ACCOUNTS, check)


async def test_copies_are_left_to_those_who_compare_their_origins(tmp_path):
    async with with_accounts(tmp_path, ACCOUNTS) as (world, admin, _):
        world.call = admin
        group = b'{"groupName":"readers","consumeEnable":true,"retryQueueNums":1}'
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await admin(code, group)).code == 0
        assert (await world.send("%RETRY%readers", b"again", l=16)).code == 0
        frame = signed(pull(0, topic="%RETRY%readers"), "administrator")
        answer, is_compiled = await answer_to(world, Both(world), frame)
        assert (bodies(answer), is_compiled) == ([b"again"], False)
