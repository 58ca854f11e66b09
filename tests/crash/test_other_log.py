"""A log that is not the one its queues and index files were made of: gone, emptied or swapped."""

import asyncio
import shutil

import pytest

import rocketlens
from rocketlens.client.connect.route import MessageQueue
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.state import read_state
from tests.crash.broker_load import (
    Load,
    assert_found,
    clients_of,
    found_by_key,
    found_by_offset_id,
    found_by_unique_key,
)
from tests.support.broker_process import BrokerProcess
from tests.support.written_stores import records_of

SEED = 20_241_123
SLOW = [pytest.mark.slow]
OLD = 100
NOTING = {"flushIntervalConsumeQueue": 20}
"""Which log it is is noted with the queues."""


async def send(broker, load, count):
    """Send until there are so many, and the broker has noted which log they are in."""
    async with clients_of(broker.name_server) as (producer, _):
        while load.next_number < count or not is_noted(broker):
            await load.send_one(producer)


def is_noted(broker):
    state = read_state(StoreLayout(broker.store))
    return state.last_record_offset is not None


def other_store(directory):
    """Make the log of another broker, with messages of its own; gives it and what is in it."""
    load = Load(SEED + 1)
    load.next_number = 10_000
    with BrokerProcess(directory, **NOTING) as other:
        other.start()
        asyncio.run(send(other, load, 10_000 + OLD // 2))
        other.stop()
    return other.store / "commitlog", load


def take_away(broker, *_):
    shutil.move(broker.store / "commitlog", broker.directory / "moved")
    return []


def empty(broker, *_):
    for file in (broker.store / "commitlog").iterdir():
        file.unlink()
    return []


def zero(broker, *_):
    for file in (broker.store / "commitlog").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    return []


def swap(broker, directory, _):
    log, load = other_store(directory)
    shutil.rmtree(broker.store / "commitlog")
    shutil.copytree(log, broker.store / "commitlog")
    return load.acknowledged


def roll_back(broker, _, load):
    """Put the log back as it was when half of it was written."""
    records = records_of(broker.store)
    end = records[len(records) // 2].physical_offset
    for file in (broker.store / "commitlog").iterdir():
        content = file.read_bytes()
        kept = min(max(end - int(file.name), 0), len(content))
        file.write_bytes(content[:kept].ljust(len(content), b"\0"))
        if not kept:
            file.unlink()
    return [sent for sent in load.acknowledged if sent.physical_offset < end]


CHANGES = {
    "moved": take_away,
    "emptied": empty,
    "zeroed": zero,
    "rolled-back": roll_back,
    "swapped": swap,
}


async def assert_only_new(broker, load, old, kept):
    """What is new, or came with the log, is found in every way; what is old, in none."""
    async with clients_of(broker.name_server) as (_, admin):
        await asyncio.gather(*(assert_found(admin, sent) for sent in load.acknowledged))
        # Their queue offsets and addresses are of another broker: they are found by key.
        for sent in kept:
            for way in (found_by_key, found_by_unique_key):
                (message,) = await way(admin, sent)
                assert message.offset_msg_id == sent.offset_msg_id
        again = {sent.number for sent in load.acknowledged}
        # An offset id is an offset: where another record begins now, it is that one's.
        same_id = {sent.offset_msg_id for sent in load.acknowledged}
        for sent in old:
            assert not await found_by_unique_key(admin, sent)
            if sent.number not in again:
                assert not await found_by_key(admin, sent)
            if sent.offset_msg_id not in same_id:
                with pytest.raises(MessageNotFound):
                    await found_by_offset_id(admin, sent)


def assert_reader_is_right(store_path, present, absent, *errors):
    """The same, for a reader of the directory; ``errors`` are said of what is not there."""
    with rocketlens.open_store(store_path) as store:
        for sent in present:
            for message in (
                *store.query_message("Orders", sent.key),
                store.view_message("Orders", sent.unique_key),
                store.view_message(sent.offset_msg_id),
            ):
                assert message.offset_msg_id == sent.offset_msg_id
        again = {sent.key for sent in present}
        same_id = {sent.offset_msg_id for sent in present}
        for sent in absent:
            with pytest.raises(errors):
                store.view_message("Orders", sent.unique_key)
            if sent.offset_msg_id not in same_id:
                with pytest.raises(errors):
                    store.view_message(sent.offset_msg_id)
            if sent.key not in again:
                assert store.query_message("Orders", sent.key).messages == ()


QUICK = ("moved", "stopped")


@pytest.mark.parametrize(
    ("change", "end"),
    [
        pytest.param(change, end, marks=[] if (change, end) == QUICK else SLOW)
        for change in CHANGES
        for end in ("stopped", "killed")
    ],
)
def test_with_another_log_all_that_is_in_it_is_found_and_nothing_of_the_old_one(
    tmp_path, change, end
):
    # The first of the new ones have keys of old ones. They go to one queue, so that the others
    # must end before they did. There are more than the old ones: their offsets are used again, and
    # passed.
    before, load = Load(SEED), Load(SEED + 2, MessageQueue("Orders", "broker-a", 1))
    with BrokerProcess(tmp_path / "broker", **NOTING) as broker:
        broker.start()
        asyncio.run(send(broker, before, OLD))
        # On a slow machine more were sent before one of them was noted.
        first = load.next_number = before.next_number * 2 // 3
        (broker.stop if end == "stopped" else broker.kill)()
        kept = CHANGES[change](broker, tmp_path / "other", before)
        old = [sent for sent in before.acknowledged if sent not in kept]
        if change not in ("moved", "emptied"):
            # Index files know of messages whose place in the log is empty: no whole answer.
            errors = (MessageNotFound, AnswerIncomplete)
            assert_reader_is_right(broker.store, kept, old, *errors)
        said = len(broker.said())
        broker.start()
        for until in (first + 8, before.next_number * 2):
            asyncio.run(send(broker, load, until))
            asyncio.run(assert_only_new(broker, load, old, kept))
            broker.stop()
            broker.start()
        asyncio.run(assert_only_new(broker, load, old, kept))
        broker.stop()
        lines = [
            line
            for line in broker.said()[said:].splitlines()
            if "it was not closed cleanly" not in line and "slow disk" not in line
        ]
        # What was noted before a kill may be of the part that is still there.
        assert len(lines) == 1 or (change, end, lines) == ("rolled-back", "killed", []), lines
        assert all("the log is not the one that was here before" in line for line in lines)
    present = [*kept, *load.acknowledged]
    assert_reader_is_right(broker.store, present, old, MessageNotFound)
    records = records_of(broker.store)
    assert index_offsets(broker.store) == {record.physical_offset for record in records}
    assert queue_entries(broker.store) == {
        (record.topic, record.queue_id, record.queue_offset): record.physical_offset
        for record in records
    }


def queue_entries(store):
    """What all queues have: physical offset by topic, queue id and queue offset."""
    queues = ConsumeQueues(store / "consumequeue")
    found = {
        (*name, queue_offset): entry.physical_offset
        for name in queues.names()
        for queue_offset, entry in queues.queue(*name).entries()
    }
    queues.close()
    return found


def index_offsets(store):
    """The physical offsets that index files have entries for."""
    from rocketlens.formats.index_file import ENTRY, Geometry

    found = set()
    geometry = Geometry(50, 200)
    for file in (store / "index").iterdir():
        content = file.read_bytes()
        start, stop = (
            geometry.entry_position(n) for n in (1, int.from_bytes(content[36:40], "big"))
        )
        found |= {entry[1] for entry in ENTRY.iter_unpack(content[start:stop])}
    return found
