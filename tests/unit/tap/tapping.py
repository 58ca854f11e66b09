"""Runs a tap that copies masters, all in this process."""

import asyncio
from contextlib import asynccontextmanager

from rocketlens.tap.service import Tap, TapOptions
from tests.support.fake_master import FakeMaster, followed
from tests.support.patience import PATIENCE_S
from tests.support.written_stores import SMALL, content_of

SEGMENT = SMALL.mappedFileSizeCommitLog


def log_of(path, begin, end):
    files = sorted((path / "commitlog").iterdir())
    log = b"".join(file.read_bytes() for file in files)
    first = int(files[0].name)
    return log[begin - first : end - first]


def master_of(log, min_offset=0, **arguments):
    return FakeMaster(log[min_offset:], min_offset, config=SMALL, **arguments)


@asynccontextmanager
async def tapping(address, home, *brokers, **options):
    """Run a tap of a cluster; a test that hangs fails."""
    async with asyncio.timeout(PATIENCE_S):
        tap = Tap(address, TapOptions(home, brokers, **options))
        try:
            await tap.start()
            yield tap
        finally:
            await tap.stop()


@asynccontextmanager
async def tapped(home, log, *, min_offset=0, **options):
    """Run a master with a log, and a tap that copies it: gives both."""
    master = master_of(log, min_offset)
    async with followed(master) as address, tapping(address, home, **options) as tap:
        yield master, tap


async def start(address, home, *brokers, **options):
    """Start a tap and stop it."""
    async with tapping(address, home, *brokers, **options):
        pass


async def until(condition):
    """Wait for what no event tells."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def reaches(tap, offset):
    """Wait until the copy of the first broker is so long."""
    await until(lambda: (store := tap.followers[0].copy.store) and store.position >= offset)


def assert_copied(copy, path, *more):
    """Compare the log of a copy, and other directories, with those of a store."""
    assert content_of(copy, "commitlog", *more) == content_of(path, "commitlog", *more)
