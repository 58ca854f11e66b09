"""Mutated bytes through the kernels of sends, as many as wanted: nothing is kept of them."""

import asyncio
import random

from tests.support.broker_world import create_topic, in_broker
from tests.support.fed_channel import feed
from tests.unit.broker.access.acl_world import USERS
from tests.unit.broker.sends.test_send_runs import batch_frame, mutated, odd_frame, plain_frame
from tests.unit.broker.sends.test_signed_runs import as_users, signed

ROOM = {"mappedFileSizeCommitLog": 1 << 26, "mappedFileSizeConsumeQueue": 400_000}


class FromNowhere:
    """As much of a connection as a run looks at."""

    address = "10.0.0.9:4711"


def pieces(rng, change):
    """Sends, most of them plain, and batches, as they are before they are mutated."""
    for number in range(50):
        yield change(plain_frame(number, rng.choice([0, 1]), rng.choice([10, 310])))
    for number in range(20):
        yield change(odd_frame(rng, number))
        yield batch_frame(rng, number)


def damaged(rng, content):
    """Bytes of which some are others, or are missing, or come twice."""
    kind = rng.randrange(10)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    if kind == 1:
        at = rng.randrange(len(content))
        return content[:at] + content[max(at - rng.randrange(40), 0) :]
    if kind == 2:
        at = rng.randrange(0, len(content), 4)
        number = rng.choice([-1, 0, 1 << 31, (1 << 31) - 1, len(content)])
        return content[:at] + (number & 0xFFFFFFFF).to_bytes(4) + content[at + 4 :]
    return mutated(rng, content) if len(content) > 30 else content


def take_mutated(directory, seed, count, *, is_signed):
    """Give a broker's kernels ``count`` mutated buffers; return how many messages they took."""
    rng = random.Random(seed)

    async def test(world):
        if is_signed:
            await as_users(world)
        change = signed if is_signed else bytes
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        for number in range(8):
            await feed(world, [change(plain_frame(number))])
        core = world.core
        core.load_kernels()
        for number in range(4):
            await feed(world, [change(plain_frame(number)) * 20])
        channel, runs = FromNowhere(), core.network.runs
        # All is written to the same place again and again.
        core.store.append_run = lambda _entries, commit, _last: commit()
        frames = list(pieces(rng, change))
        bodies = [each[8 + int.from_bytes(each[5:8]) :] for each in frames]
        taken = 0
        for _ in range(count):
            content = damaged(rng, b"".join(rng.choices(frames, k=rng.choice([1, 2, 5]))))
            done, end, _ = runs.take(channel, memoryview(content), 64)
            assert 0 <= end <= len(content)
            taken += done
            body = damaged(rng, rng.choice(bodies) or b"x")
            batch = core.batches.store(
                channel, "Orders", 1, body, born_timestamp_ms=1, sys_flag=0, reconsume_times=0
            )
            taken += batch is not None
        await asyncio.sleep(0)
        return taken

    settings = USERS if is_signed else {}
    return in_broker(directory, test, **ROOM, **settings)
