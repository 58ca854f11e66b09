"""A broker that is killed or stopped at any moment, as its clients and its next start find it."""

import asyncio
import random
import statistics
from contextlib import suppress

import pytest

import rocketlens
from rocketlens.model import properties as props
from tests.crash.broker_load import BROKER_GONE, WAYS, Load, assert_found, clients_of, undisturbed
from tests.crash.test_store_kill import check_index_has_each_entry_once
from tests.support.broker_process import BrokerProcess
from tests.support.written_stores import records_of

SEED = 20_241_121
NEWEST = 24
CHECKED_IN_THE_END = 300
FULL_CHECK_EVERY = 25
FLUSH_TYPES = ("SYNC_FLUSH", "ASYNC_FLUSH")


async def load_and_kill(broker, load, randomness, has_written):
    """Check what the last run acknowledged, go on, and be killed at some moment after
    ``has_written``.
    """
    async with clients_of(broker.name_server) as clients:
        newest = load.acknowledged[-NEWEST:]
        await asyncio.gather(*(assert_found(clients[1], sent) for sent in newest))
        tasks = load.tasks(clients)
        await undisturbed(tasks, randomness.randrange(5, 400) / 1000, has_written)
        match randomness.randrange(4):
            case 0:  # stopped, and killed while it is
                broker.pause()
                await undisturbed(tasks, 0.05)
            case 1:  # stopped, and let go on for a while
                broker.pause()
                await undisturbed(tasks, randomness.randrange(10, 200) / 1000)
                broker.resume()
                await undisturbed(tasks, randomness.randrange(5, 100) / 1000)
        broker.kill()
        await asyncio.gather(*tasks)


def has_rolled(broker, cycles):
    """Say whether there are three segments and two index files for each cycle."""
    counts = [len(list((broker.store / name).iterdir())) for name in ("commitlog", "index")]
    return counts[0] >= 3 * cycles and counts[1] >= 2 * cycles


def check_log(broker, load, seed):
    """Nothing is in the log twice, queues have no gap, and what was acknowledged is all there."""
    records = records_of(broker.store)
    properties = [props.parse(record.properties.decode()) for record in records]
    numbers = [int(each["KEYS"].split()[0][1:]) for each in properties]
    assert len(set(numbers)) == len(numbers), seed
    assert len({each["UNIQ_KEY"] for each in properties}) == len(numbers), seed
    offsets = {}
    for record in records:
        offsets.setdefault(record.queue_id, []).append(record.queue_offset)
    for found in offsets.values():
        assert found == list(range(len(found))), seed
    places = {record.physical_offset for record in records}
    assert all(sent.physical_offset in places for sent in load.acknowledged), seed


def some_of(load):
    """Messages from all over the log."""
    return load.acknowledged[:: max(len(load.acknowledged) // CHECKED_IN_THE_END, 1)]


async def check_some(broker, load):
    async with clients_of(broker.name_server) as (_, admin):
        await asyncio.gather(*(assert_found(admin, sent) for sent in some_of(load)))


@pytest.mark.parametrize("cycles", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_broker_has_all_it_acknowledged_once_and_every_question_finds_it(
    tmp_path, cycles, record_property
):
    randomness = random.Random(SEED)
    load = Load(SEED)
    starts_s = []
    with BrokerProcess(tmp_path) as broker:
        for cycle in range(cycles):
            starts_s.append(broker.start(flushDiskType=FLUSH_TYPES[cycle % 2]))

            # Half of them are killed at any moment once there is something to ask for, and the
            # others write what those did not.
            def has_written(cycle=cycle):
                return load.acknowledged and (cycle % 2 == 0 or has_rolled(broker, cycle + 1))

            asyncio.run(load_and_kill(broker, load, randomness, has_written))
            assert (broker.store / "abort").exists()
            if (cycle + 1) % FULL_CHECK_EVERY == 0:
                check_log(broker, load, (SEED, cycle))
        assert has_rolled(broker, cycles)
        check_log(broker, load, SEED)
        broker.start()
        asyncio.run(check_some(broker, load))
        broker.stop()
        check_index_has_each_entry_once(broker.store)
        assert not (broker.store / "abort").exists()
        assert "ERROR" not in broker.said()
    with rocketlens.open_store(broker.store) as store:
        for sent in some_of(load):
            (message,) = store.find(sent.key)
            assert sent.is_shown_by(message)
    record_property("acknowledged", len(load.acknowledged))
    record_property("start_seconds_longest", round(max(starts_s), 3))
    record_property("start_seconds_median", round(statistics.median(starts_s), 3))


def test_a_broker_that_stood_still_goes_on_where_it_was(tmp_path):
    load = Load(SEED)

    async def stand_still(broker):
        async with clients_of(broker.name_server, timeout_s=0.3) as clients:
            # On a busy machine a broker that runs takes longer, too.
            while not load.acknowledged:
                with suppress(*BROKER_GONE):
                    await load.send_one(clients[0])
            before = len(load.acknowledged)
            broker.pause()
            for _ in range(3):
                with pytest.raises(BROKER_GONE):
                    await load.send_one(clients[0])
                with pytest.raises(BROKER_GONE):
                    await assert_found(clients[1], load.acknowledged[0])
            broker.resume()
        async with clients_of(broker.name_server) as clients:
            for _ in range(20):
                await load.send_one(clients[0])
            for sent in load.acknowledged:
                await assert_found(clients[1], sent)
        assert len(load.acknowledged) > before

    with BrokerProcess(tmp_path) as broker:
        broker.start()
        asyncio.run(stand_still(broker))
        broker.stop()
        check_log(broker, load, SEED)


def test_while_no_broker_is_there_nothing_is_said_to_be_nowhere(tmp_path):
    async def ask(broker):
        load = Load(SEED)
        async with clients_of(broker.name_server) as (producer, admin):
            await load.send_one(producer)
            broker.kill()
            for way in WAYS:
                with pytest.raises(BROKER_GONE):
                    await way(admin, load.acknowledged[0])
        # One that knows no route yet.
        async with clients_of(broker.name_server) as (_, admin):
            for way in WAYS:
                with pytest.raises(BROKER_GONE):
                    await way(admin, load.acknowledged[0])

    with BrokerProcess(tmp_path) as broker:
        broker.start()
        asyncio.run(ask(broker))
