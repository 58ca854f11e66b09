"""Whoever starts on a store that another process has is refused at once, and touches nothing."""

import asyncio
import hashlib
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.broker_load import Load, assert_found, clients_of, undisturbed
from tests.crash.test_broker_kill import check_log
from tests.support.broker_process import PROGRAM, BrokerProcess
from tests.support.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
SEED = 20_241_122


def listing(root, paths=None):
    """Give inode, size, modification time and hash of files, of all by default."""
    found = {}
    for path in sorted(root.rglob("*")) if paths is None else paths:
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        # Whoever reads a directory changes nothing in it; its time says when names changed.
        found[path] = (status.st_ino, status.st_size, status.st_mtime_ns, digest)
    return found


def finished_files(store):
    """Files that the live broker has written to their end."""
    files = []
    for directory in (store / "commitlog", store / "index", *store.glob("consumequeue/*/*")):
        with suppress(FileNotFoundError):
            files += sorted(directory.iterdir())[:-2]
    return [*files, store / "lock"]


def starter_of(kind, broker):
    """The command line of a second starter."""
    conf = broker.directory / "second.conf"
    lines = {"listenPort": 0, "storePathRootDir": broker.store}
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return {
        "store": [sys.executable, "-m", "tests.crash.store_starter", str(broker.store)],
        "broker": [*PROGRAM, "broker", "-c", str(conf), "-n", broker.name_server],
        "serve": [
            *[*PROGRAM, "serve", "--home", str(broker.directory / "second")],
            *["--namesrv-port", "0", "-c", str(conf)],
        ],
    }[kind]


async def refused(command):
    """Run a starter; return the seconds it says that it was refused in, if it does.

    One that waited for the first to do anything would wait for as long as that stands still.
    """
    process = await asyncio.create_subprocess_exec(
        *command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 2, (command, out, err)
    if b"store_starter" in b" ".join(word.encode() for word in command):
        return float(out)
    assert (out, err.count(b"\n")) == (b"", 1), (command, out, err)
    assert b"belongs to a running broker" in err
    return 0.0


async def start_second_ones(broker, load, count):
    """Start others at random moments of a broker under load; gives the longest refusal."""
    randomness = random.Random(SEED)
    longest_s = 0.0
    async with clients_of(broker.name_server, PATIENCE_S) as clients:
        tasks = load.tasks(clients)
        for number in range(count):
            await undisturbed(tasks, randomness.randrange(10, 300) / 1000)
            stands_still = number % 2 == 0
            if stands_still:
                broker.pause()
                before = listing(broker.store)
            else:
                before = listing(broker.store, finished_files(broker.store))
            kind = ("store", "broker", "serve")[number % 3]
            longest_s = max(longest_s, await refused(starter_of(kind, broker)))
            after = listing(broker.store, None if stands_still else list(before))
            assert after == before, (number, kind, SEED)
            if stands_still:
                broker.resume()
        await undisturbed(tasks, 0.05)
        newest = load.acknowledged[-100:]
        await asyncio.gather(*(assert_found(clients[1], sent) for sent in newest))
        broker.kill()
        await asyncio.gather(*tasks)
    return longest_s


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_second_starters_are_refused_at_once_touch_nothing_and_cost_the_first_nothing(
    tmp_path, count, record_property
):
    load = Load(SEED)
    with BrokerProcess(tmp_path) as broker:
        broker.start()
        longest_s = asyncio.run(start_second_ones(broker, load, count))
        record_property("refusal_seconds_longest", longest_s)
        record_property("acknowledged", len(load.acknowledged))
        check_log(broker, load, SEED)


def test_the_lock_of_a_killed_process_keeps_nobody_out(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        for _ in range(2):
            broker.start()
            assert (broker.store / "lock").exists()
            broker.kill()
            starter = starter_of("store", broker)
            subprocess.run(starter, cwd=REPOSITORY, check=True)
