"""What a disk does to the copy of a tap, and a kill at any moment, costs no byte of it."""

import asyncio
import random
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from rocketlens.errors import StoreFailed
from rocketlens.tap import follower
from rocketlens.tap.service import Tap, TapOptions
from tests.crash.small_disk import run_on_a_small_disk
from tests.support.failing_disks import FailingDisk
from tests.support.fake_master import FakeMaster, followed
from tests.support.patience import PATIENCE_S
from tests.support.written_stores import SMALL, content_of, open_small, send_many

MAX_RECORD_BYTES = 1_000
"""No record of the log is larger."""
PROGRAM = (sys.executable, "-W", "error", "-m", "rocketlens.main", "tap")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Make what a tap does now and then be done at once."""
    for name in ("REPORT_S", "POLL_S", "ROOM_S", "FIRST_PAUSE_S"):
        monkeypatch.setattr(follower, name, 0.02)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store, and the bytes of its log."""
    path = tmp_path_factory.mktemp("original") / "store"
    with open_small(path) as store:
        send_many(store, 300)
        end = store.end_offset
    files = sorted((path / "commitlog").iterdir())
    return path, b"".join(file.read_bytes() for file in files)[:end]


def run(scenario, patience_s=PATIENCE_S):
    async def bounded():
        async with asyncio.timeout(patience_s):
            return await scenario()

    return asyncio.run(bounded())


@asynccontextmanager
async def tapping(address, home, **options):
    tap = Tap(address, TapOptions(home), **options)
    try:
        await tap.start()
        yield tap
    finally:
        await tap.stop()


async def copy_all(log, home):
    """Follow until all is acknowledged."""
    master = FakeMaster(log, config=SMALL)
    async with followed(master) as address, tapping(address, home):
        await master.acknowledged(len(log))


def assert_is_copy(home, path):
    names = ("commitlog", "consumequeue")
    assert content_of(home / "broker-a", *names) == content_of(path, *names)


async def copy_until_it_fails(log, home, disk):
    """Follow until all is acknowledged, or the store failed; then the tap ends by itself."""
    master = FakeMaster(log, config=SMALL)
    master.cuts = True
    async with followed(master) as address:
        tap = Tap(address, TapOptions(home), disk=disk)
        try:
            await tap.start()
            ways = [
                asyncio.create_task(one) for one in (master.acknowledged(len(log)), tap.ended())
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for one in ways:
                one.cancel()
            store = tap.followers[0].copy.store
            # What was not synced yet may fail now.
            await asyncio.to_thread(store.flush)
            if store.failure is not None:
                await tap.ended()
                assert disk.failed in str(tap.failure)
                assert max(master.reports, default=0) <= max(store.flushed_offset, 1)
        except (StoreFailed, OSError) as error:
            assert disk.failed in str(error)  # noqa: PT017 - it need not fail
        finally:
            await tap.stop()


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "state", ""])
def test_nothing_is_acknowledged_after_a_sync_of_a_copy_that_failed(in_memory, original, kind):
    path, log = original
    for fails_at in (1, 2, 3, 5, 8):
        home, disk = in_memory / f"home{fails_at}", FailingDisk(fails_at, kind)
        run(lambda home=home, disk=disk: copy_until_it_fails(log, home, disk))
        assert disk.failed or fails_at > 2
        run(lambda home=home: copy_all(log, home))
        assert_is_copy(home, path)


def test_a_copy_waits_for_room_at_every_reservation_and_goes_on(in_memory, original):
    path, log = original
    for full_at in (2, 3, 5, 8, 13, 21):
        home, disk = in_memory / f"home{full_at}", FailingDisk(full_at=range(full_at, full_at + 3))

        async def scenario(home=home, disk=disk):
            master = FakeMaster(log, config=SMALL)
            async with followed(master) as address, tapping(address, home, disk=disk) as tap:
                await master.acknowledged(len(log))
                assert tap.failure is None

        run(scenario)
        assert disk.reserves > full_at + 2
        assert_is_copy(home, path)


class Killed:
    """A tap in a process of its own, that is killed."""

    def __init__(self, address, home):
        self.process = subprocess.Popen(
            [*PROGRAM, "-n", address, "--home", str(home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_tap_that_is_killed_at_any_moment_has_all_that_it_acknowledged(
    in_memory, original, kills
):
    path, log = original
    rng = random.Random(kills)

    async def scenario():
        master = FakeMaster(log[:1_000], config=SMALL)
        master.cuts = True
        async with followed(master) as address:
            for number in range(1, kills + 1):
                tap = Killed(address, in_memory)
                connections, goal = len(master.starts), len(log) * number // kills
                while len(master.starts) == connections:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.01)
                # It asks for what it has: all that it acknowledged before is there.
                assert master.starts[-1] > max(master.reports, default=0) - 16_384
                acknowledged = max(master.reports, default=0)
                while len(master.log) < goal:
                    master.append(log[len(master.log) : goal][: rng.randrange(1, 2_000)])
                    await asyncio.sleep(rng.random() / 50)
                if rng.random() < 0.5 and goal > acknowledged + MAX_RECORD_BYTES:
                    await master.acknowledged(acknowledged + 1)
                await asyncio.to_thread(tap.end)
        await copy_all(log, in_memory)

    run(scenario, PATIENCE_S * kills)
    assert_is_copy(in_memory, path)
    assert [each.name for each in in_memory.iterdir()] == ["broker-a"]


FILL = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from rocketlens.tap import follower
from rocketlens.tap.service import Tap, TapOptions
from tests.crash.small_disk import fill
from tests.support.fake_master import FakeMaster, followed
from tests.support.written_stores import *
root = Path(sys.argv[1])
follower.ROOM_S = follower.REPORT_S = 0.05
config = replace(SMALL, mappedFileSizeCommitLog=1 << 20, mappedFileSizeConsumeQueue=60_000)

async def main(log):
    master = FakeMaster(log[:100_000], config=config)
    async with followed(master) as address:
        for killed in (True, False):
            tap = Tap(address, TapOptions(root / "home"))
            await tap.start()
            fill(root)
            master.append(log[len(master.log) :][: len(log) // 2])
            while not any("full" in one for one in tap.problems()):
                await asyncio.sleep(0.01)
                fill(root)
            if killed:
                for task in tap._tasks:
                    task.cancel()
                await asyncio.wait(tap._tasks)
                await tap.followers[0].close(abruptly=True)
                await tap._cluster.close()
                (root / "ballast").unlink()
                continue
            (root / "ballast").unlink()
            master.append(log[len(master.log) :])
            await master.acknowledged(len(log))
            await tap.stop()

original = root.parent / "original"
with open_small(original, config) as store:
    for number in range(3_000):
        send(store, number, body=bytes([number % 251]) * 1_000)
    end = store.end_offset
files = sorted((original / "commitlog").iterdir())
log = b"".join(file.read_bytes() for file in files)[:end]
asyncio.run(main(log))
names = ("commitlog", "consumequeue")
assert content_of(root / "home/broker-a", *names) == content_of(original, *names)
print("copied", end)
"""


def test_a_tap_on_a_disk_that_is_really_full_waits_and_copies_all_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = run_on_a_small_disk(FILL, disk, mib=16)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("copied")
