"""A broker that was killed on a full disk starts on it, answers queries, and stores nothing."""

from tests.crash.small_disk import run_on_a_small_disk

RUN = """
import asyncio, os, sys
from pathlib import Path
from tests.crash.small_disk import fill
from tests.support.broker_world import running, properties_of
root = Path(sys.argv[1])
FULL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 60_000}

async def until_refused(world):
    for number in range(10**6):
        fields = properties_of(KEYS=f"k{number}", UNIQ_KEY=f"U{number}")
        answer = await world.send(body=os.urandom(500), properties=fields, e=number % 4)
        if answer.code:
            assert answer.code == 14, answer.remark
            assert "disk is full" in answer.remark
            return number

async def check(world, count):
    for number in range(0, count, 37):
        assert (await world.query(f"k{number}")).code == 0, number
        assert (await world.query(f"U{number}")).code == 0, number
    assert (await world.query("none")).code == 22
    assert (await world.pull(3)).code == 0

async def main():
    async with running(root, **FULL) as world:
        for number in range(100):
            answer = await world.send(body=b"first", properties=properties_of(KEYS=f"k{number}"))
            assert answer.code == 0
    for rounds, end in enumerate(("killed", "closed", "killed")):
        async with running(root, **FULL) as world:
            fill(root)
            count = await until_refused(world)
            fill(root)
            if end == "killed":
                await world.service.close_abruptly()
        if end == "closed":
            fill(root)
        async with running(root, **FULL) as world:
            await check(world, count)
            # Room that is reserved may still be there, but none for the file of a new queue.
            refused = await world.send(f"Fresh{rounds}", properties=properties_of(KEYS="late"))
            assert refused.code == 14 and "disk is full" in refused.remark, refused
            (root / "ballast").unlink()
            answer = await world.send(properties=properties_of(KEYS=f"late{rounds}"))
            assert answer.code == 0, answer.remark
            assert (await world.query(f"late{rounds}")).code == 0
    print("stored", count)

asyncio.run(main())
"""


def test_a_broker_starts_on_a_full_disk_answers_queries_and_stores_once_there_is_room(tmp_path):
    done = run_on_a_small_disk(RUN, tmp_path, mib=48)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("stored")
