"""Compiled look-ups where access control is on: what it decides is what it decides one by one."""

import random

import pytest

from rocketlens.model.message_id import OffsetMessageId
from rocketlens.wire.acl import UNSIGNED_FLAG, signed_fields
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.connection import decode_command
from tests.support.binary_header import encode_command
from tests.support.broker_world import create_topic, records_of
from tests.support.effort import sized
from tests.support.fed_channel import commands_in, feed, replies_in
from tests.unit.broker.access.acl_world import (
    SECRET,
    change_account,
    check_rights_taken_away,
    with_accounts,
    with_users,
)
from tests.unit.broker.lookup.test_compiled import mutated, query, view
from tests.unit.broker.searches import put_away, read_all
from tests.unit.broker.sends.test_send_runs import KEY, plain_frame
from tests.unit.broker.sends.test_signed_runs import signed

ACCOUNTS = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- accessKey: orders-app
  secretKey: {SECRET}
  topicPerms: [Orders=SUB]
  groupPerms: [readers=SUB]
- {{accessKey: secret-app, secretKey: {SECRET}, topicPerms: [Secret=SUB], defaultTopicPerm: PUB}}
- {{accessKey: near-app, secretKey: {SECRET}, whiteRemoteAddress: 10.0.0.*}}
"""
READERS = {"orders-app": "Orders", "secret-app": "Secret"}
TOPICS = ("Orders", "Secret", "%RETRY%readers")
STORED = 24


def topic_of(number):
    return TOPICS[number % 8 % 3]


def policies(topic, *actions):
    names = ",".join(f'"{action}"' for action in actions or ("Sub", "Get"))
    entry = f'{{"resource":"Topic:{topic}","actions":[{names}],"decision":"Allow"}}'
    return f'{{"policies":[{{"entries":[{entry}]}}]}}'.encode()


async def add_users(admin):
    """Make a user for each topic, and one without rights."""
    body = f'{{"password":"{SECRET}"}}'.encode()
    for user in (*READERS, "near-app"):
        assert (await admin(RequestCode.AUTH_CREATE_USER, body, username=user)).code == 0
    for user, topic in READERS.items():
        subject, code = f"User:{user}", RequestCode.AUTH_CREATE_ACL
        assert (await admin(code, policies(topic), subject=subject)).code == 0


async def store_messages(world, admin):
    """Make topics, and send messages to each; return their offsets."""
    world.call = admin
    for topic in TOPICS[:2]:
        await create_topic(world, topic=topic, writeQueueNums=4, readQueueNums=4)
    group = b'{"groupName":"readers","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
    assert (await admin(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).code == 0
    offsets = []
    for number in range(STORED):
        topic = topic_of(number)
        changes = {"e": 0} if topic.startswith("%") else {}
        frame = signed(plain_frame(number, b=topic, **changes), "administrator")
        (command,) = commands_in((await feed(world, [frame]))[0])
        assert command.code == 0, command
        message_id = OffsetMessageId.decode(command.ext_fields["msgId"])
        offsets.append(message_id.physical_offset)
    world.core.load_kernels()
    await read_all(world.core.search)
    return offsets


def signed_without_flag(frame, user):
    """Sign as clients from before 4.9.4 do, which add one field later."""
    command = decode_command((frame[4], frame[8:], b""))
    fields = dict(command.ext_fields)
    flag = fields.pop(UNSIGNED_FLAG)
    fields = signed_fields(fields, b"", user, SECRET) | {UNSIGNED_FLAG: flag}
    return encode_command(command._replace(ext_fields=fields), frame[4])


def asked(rng, offsets):
    """A look-up, signed in one way or another."""
    number, codec, opaque = rng.randrange(STORED), rng.choice([0, 1]), rng.randrange(99)
    topic = topic_of(number)
    if rng.random() < 0.2:
        topic = rng.choice([*TOPICS, "None", " "])
    user = rng.choice([*READERS])
    if rng.random() < 0.3:
        user = rng.choice(["near-app", "administrator", "nobody-at-all", "caf\u00e9"])
    kind = rng.randrange(4)
    if kind == 0:
        wanted = rng.choice([*[str(offsets[number])] * 6, "1", None])
        fields = {"offset": wanted, "topic": rng.choice([topic, None])}
        command = decode_command((0, view(0, opaque)[8:], b""))
        texts = {name: text for name, text in fields.items() if text is not None}
        frame = encode_command(command._replace(ext_fields=texts), codec)
    elif kind == 1:
        frame = query(f"{KEY}{number:04d}", opaque, codec, topic, _UNIQUE_KEY_QUERY="true")
    else:
        frame = query(f"k{number}", opaque, codec, topic)
    way = rng.randrange(16)
    if way == 0:
        return frame
    if way == 1:
        return signed(frame, user, "another-secret")
    if way == 2:
        return signed(frame, user, token="token")
    if way == 3:
        return mutated(rng, signed(frame, user))
    if way <= 6 and kind:
        return signed_without_flag(frame, user)
    return signed(frame, user)


async def assert_same(world, rng, offsets, count, change_rights):
    """Ask both ways, rights changing in between; return how many look-ups were compiled."""
    network, access = world.core.network, world.core.access
    runs, answered = network.runs, [0]
    answer, take = runs.answer, runs.take

    def counted_answer(*given):
        reply = answer(*given)
        answered[0] += reply is not None
        return reply

    def counted_take(*given):
        taken = take(*given)
        answered[0] += taken[0]
        return taken

    runs.answer, runs.take = counted_answer, counted_take
    for number in range(count):
        if rng.random() < 0.1:
            await change_rights(rng)
        frames = [asked(rng, offsets) for _ in range(rng.choice([1, 1, 1, 5]))]
        peer = rng.choice([("10.0.0.9", 1), ("10.1.0.9", 1), ("fe80::1", 1)])
        outcomes = []
        for each in (runs, None):
            network.runs, before = each, access.refused
            await put_away(world.core.search)
            written, is_closed = await feed(world, [b"".join(frames)], peer)
            outcomes.append((sorted(replies_in(written)), is_closed, access.refused - before))
        assert outcomes[0] == outcomes[1], (number, frames)
    network.runs = runs
    return answered[0]


@pytest.mark.parametrize("seed", range(sized(1, 3)))
async def test_look_ups_of_accounts_are_what_they_are_one_by_one(tmp_path, seed):
    async with with_accounts(tmp_path, ACCOUNTS) as (world, admin, _):
        offsets = await store_messages(world, admin)

        async def change_rights(rng):
            user, perm = rng.choice([*READERS]), rng.choice(["SUB", "SUB", "PUB", "DENY"])
            topic_perm = rng.choice(["Orders=SUB", "Orders=DENY", "Secret=PUB|SUB"])
            await change_account(world, user, defaultTopicPerm=perm, topicPerms=[topic_perm])

        rng = random.Random(seed)
        assert await assert_same(world, rng, offsets, 150, change_rights) > 10


@pytest.mark.parametrize("seed", range(sized(1, 3)))
@pytest.mark.parametrize(
    "settings", [{}, {"authorizationEnabled": False}, {"authenticationWhitelist": "33"}]
)
async def test_look_ups_of_users_are_what_they_are_one_by_one(tmp_path, seed, settings):
    async with with_users(tmp_path, **settings) as (world, admin):
        await add_users(admin)
        offsets = await store_messages(world, admin)

        async def change_rights(rng):
            user, topic = rng.choice([*READERS.items()])
            body = policies(rng.choice([topic, topic, "Orders"]))
            if rng.random() < 0.3:
                body = policies(topic, rng.choice(["Sub", "Get", "Pub"]))
            subject = f"User:{user}"
            await admin(RequestCode.AUTH_DELETE_ACL, b"", subject=subject)
            assert (await admin(RequestCode.AUTH_CREATE_ACL, body, subject=subject)).code == 0

        rng = random.Random(seed)
        assert await assert_same(world, rng, offsets, 150, change_rights) > 10


async def code_and_way(world, frame):
    """The code of the answer to a look-up, and whether it was compiled."""
    runs, answers = world.core.network.runs, []
    answer = runs.answer
    runs.answer = lambda *given: answers.append(answer(*given)) or answers[-1]
    written, _ = await feed(world, [frame])
    runs.answer = answer
    (command,) = commands_in(written)
    return command.code, answers[-1] is not None


def test_a_right_that_is_taken_away_counts_from_the_next_look_up_on(tmp_path):
    async def check(world, admin, take_away):
        offsets = await store_messages(world, admin)
        frames = [signed(query("k0"), "orders-app"), signed(view(offsets[0]), "orders-app")]
        for frame in (*frames, *frames, *frames):
            assert await code_and_way(world, frame) == (0, True)
        await take_away()
        for frame in frames:
            code, is_compiled = await code_and_way(world, frame)
            assert code != 0
            assert not is_compiled

    check_rights_taken_away(tmp_path, add_users, ACCOUNTS, check)


async def test_the_topic_of_a_message_decides_who_may_view_it_and_not_the_one_that_is_named(
    tmp_path,
):
    async with with_users(tmp_path) as (world, admin):
        await add_users(admin)
        offsets = await store_messages(world, admin)
        for _ in range(3):
            of_orders = signed(view(offsets[0]), "orders-app")
            assert await code_and_way(world, of_orders) == (0, True)
            of_secret = signed(view(offsets[1]), "orders-app")
            code, is_compiled = await code_and_way(world, of_secret)
            assert (code != 0, is_compiled) == (True, False)


async def test_a_message_of_a_group_is_left_to_those_who_compare_its_origin(tmp_path):
    async with with_accounts(tmp_path, ACCOUNTS) as (world, admin, _):
        offsets = await store_messages(world, admin)
        frames = [query("k2", topic="%RETRY%readers"), view(offsets[2])]
        for frame in frames:
            content, _ = await feed(world, [signed(frame, "administrator")])
            (command,) = commands_in(content)
            (record,) = records_of(command.body)
            assert record.topic == "%RETRY%readers"
            assert await code_and_way(world, signed(frame, "administrator")) == (0, False)
