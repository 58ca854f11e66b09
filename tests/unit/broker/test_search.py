"""Look-ups: done at once where that is soon done, else in a thread, each connection in its turn."""

import asyncio
import dataclasses
import itertools
from contextlib import asynccontextmanager

import pytest

from rocketlens import limits
from rocketlens.broker import live_index, look_up
from rocketlens.broker import search as module
from rocketlens.broker.look_up import LookUp
from rocketlens.broker.search import LiveSearch
from rocketlens.query.verify import MessageFilter
from rocketlens.store.read import index, starts
from rocketlens.store.read.tail import Tail, load_kernels
from rocketlens.store.write.message_store import StoreOptions
from tests.unit.broker.broker_world import records_of
from tests.unit.store.written_stores import SMALL, STORE_HOST, open_small, send_many

NO_BUILDER = StoreOptions(STORE_HOST, build_index=False, threads=False)
LARGE = SMALL.__class__(
    mappedFileSizeCommitLog=1 << 20,
    mappedFileSizeConsumeQueue=6000,
    maxHashSlotNum=5000,
    maxIndexNum=10_000,
)


@asynccontextmanager
async def searching(path, **arguments):
    """Open a store and a search of it, whose background does nothing by itself."""
    store = open_small(path, **arguments)
    search = LiveSearch(store)
    try:
        await search.open()
        search._reader.cancel()
        yield store, search
    finally:
        search.close()
        store.close_abruptly()


async def read_all(search):
    """Do what the background does until there is no more."""
    while await search.between_look_ups(search.index.step):
        pass


async def places(search, key):
    """Return where the messages of a key are."""
    found = search.by_key(LookUp(MessageFilter("Orders", key=key, unique_key=key), 64))
    if asyncio.isfuture(found):
        found = await found
    assert not found.failures
    return [record.physical_offset for record in records_of(found.body)]


async def assert_found(search, sent):
    """Look for messages."""
    for number, one in enumerate(sent):
        assert await places(search, f"k{number}") == [one.physical_offset]
        assert await places(search, f"U{number:06}") == [one.physical_offset]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_the_log_answers_for_an_index_file_that_is_damaged_while_it_is_used(
    tmp_path, monkeypatch, is_at_once
):
    async def test():
        with open_small(tmp_path, config=LARGE) as store:
            sent = send_many(store, 300)
        async with searching(tmp_path, config=LARGE) as (store, search):
            if not is_at_once:
                monkeypatch.setattr(Tail, "inline_read_budget_bytes", -1)
            sent += send_many(store, 20, first=300)
            file = search.index.reader.index.sound[0]
            with file.path.open("r+b") as damaged:
                damaged.seek(file.geometry.entry_position(1))
                damaged.write(b"\xff" * (20 * 600))
            await assert_found(search, sent)

    asyncio.run(test())


def test_kernels_are_loaded_after_a_time_however_little_there_is_to_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "READ_INTERVAL_S", 0)

    async def test():
        loop, loaded = asyncio.get_running_loop(), asyncio.Event()
        store = open_small(tmp_path, config=LARGE, options=NO_BUILDER)
        search = LiveSearch(store)
        monkeypatch.setattr(module, "load_kernels", lambda: loop.call_soon_threadsafe(loaded.set))
        await search.open(load_after_s=0.01)
        await asyncio.wait_for(loaded.wait(), 60)
        search.close()
        store.close_abruptly()

    asyncio.run(test())


def test_the_background_reads_and_loads_what_it_needs_for_that(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "READ_INTERVAL_S", 0)
    monkeypatch.setattr(Tail, "is_compiled", False)

    async def test():
        loop, loaded, read = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        store = open_small(tmp_path, config=LARGE, options=NO_BUILDER)
        search = LiveSearch(store)

        def load():
            load_kernels()
            loop.call_soon_threadsafe(loaded.set)

        def step(step_once=search.index.step):
            step_once()
            if search.index.read_to == store.end_offset:
                loop.call_soon_threadsafe(read.set)

        monkeypatch.setattr(module, "load_kernels", load)
        monkeypatch.setattr(search.index, "step", step)
        await search.open()
        send_many(store, 600, body_bytes=300)
        for event in (loaded, read):
            await asyncio.wait_for(event.wait(), 60)
        search.close()
        store.close_abruptly()

    asyncio.run(test())
    assert Tail.is_compiled


@asynccontextmanager
async def searching_many(path, count):
    """Search in a store of ``count`` messages with the key ``all``, all of them in memory."""
    async with searching(path, config=LARGE, options=NO_BUILDER) as (store, search):
        sent = [one.physical_offset for one in send_many(store, count)]
        await read_all(search)
        yield store, search, sent


def test_the_newest_of_a_key_are_found_with_no_look_at_the_others(tmp_path, monkeypatch):
    looked_at = []
    record_size_if_match = look_up.FastPathMatcher.record_size_if_match

    def counted(*arguments):
        looked_at.append(arguments[-1])
        return record_size_if_match(*arguments)

    monkeypatch.setattr(look_up.FastPathMatcher, "record_size_if_match", counted)

    async def test():
        async with searching_many(tmp_path, 3000) as (_, search, sent):
            found = search.by_key(LookUp(MessageFilter("Orders", key="all"), 64))
            assert not asyncio.isfuture(found)
            assert [each.physical_offset for each in records_of(found.body)] == sent[-64:]
            assert looked_at == sent[:-65:-1]

    asyncio.run(test())


def test_a_look_up_that_has_many_candidates_goes_on_in_the_thread(tmp_path):
    async def test():
        async with searching_many(tmp_path, 3000) as (store, search, sent):
            store._clock.now_ms += 1000
            send_many(store, 300, first=3000)
            await read_all(search)
            wanted = MessageFilter("Orders", key="all", end=store._clock.now_ms - 1000)
            found = search.by_key(LookUp(wanted, 64))
            assert asyncio.isfuture(found)
            found = await found
            assert [each.physical_offset for each in records_of(found.body)] == sent[-64:]

    asyncio.run(test())


def test_a_look_up_of_large_messages_goes_on_in_the_thread(tmp_path):
    async def test():
        async with searching(tmp_path, config=LARGE, options=NO_BUILDER) as (store, search):
            sent = send_many(store, 20, body_bytes=200_000)
            await read_all(search)
            found = search.by_key(LookUp(MessageFilter("Orders", key="all"), 64))
            assert asyncio.isfuture(found)
            found = await found
            assert [each.physical_offset for each in records_of(found.body)] == [
                one.physical_offset for one in sent
            ]

    asyncio.run(test())


class Peer:
    """Who asks."""

    is_open = True


def start(search, peer, end=2**63 - 1):
    """Ask for the key that all messages have, as one of several; gives the future."""
    found = search.by_key(LookUp(MessageFilter("Orders", key="all", end=end), 64), peer)
    assert asyncio.isfuture(found)
    return found


@asynccontextmanager
async def held_up(search):
    """Keep the threads from working, so that what is asked waits."""
    holder = Peer()
    assert search.turns.try_begin(holder)
    assert search.tag_turns.try_begin(holder)
    yield
    search.turns.end()
    search.tag_turns.end()


def test_a_look_up_by_key_waits_for_a_piece_of_each_other_connections(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_LOOK_UP_TURN_S", -1)  # each candidate is a piece

    async def test():
        async with searching_many(tmp_path, 3000) as (_, search, sent):
            ended = []
            async with held_up(search):
                busy = [start(search, peer, end=1) for peer in [Peer()] * 5 + [Peer()]]
                one = search.by_key(LookUp(MessageFilter("Orders", key="k7"), 64), Peer())
            for name, future in [("one", one), *(("busy", each) for each in busy)]:
                future.add_done_callback(lambda _, name=name: ended.append(name))
            found = await one
            assert [each.physical_offset for each in records_of(found.body)] == [sent[7]]
            assert {each.count for each in await asyncio.gather(*busy)} == {0}
            assert ended == ["one"] + ["busy"] * 6

    asyncio.run(test())


@pytest.mark.parametrize("is_at_once", [True, False])
def test_look_ups_by_key_and_id_never_wait_for_those_by_tag(tmp_path, monkeypatch, is_at_once):
    async def test():
        async with searching_many(tmp_path, 300) as (store, search, sent):
            assert search.tag_turns.try_begin(Peer())
            by_tag = search.by_tag(LookUp(MessageFilter("Orders", tags=frozenset("a")), 64), Peer())
            if not is_at_once:
                monkeypatch.setattr(Tail, "inline_read_budget_bytes", -1)
            assert await places(search, "k7") == [sent[7]]
            record = search.index.reader.log.record_at(sent[7])
            monkeypatch.setattr(store.queues, "get", lambda *_: None)
            assert await search.is_record_start(record, Peer())
            assert not by_tag.done()
            search.tag_turns.end()
            monkeypatch.undo()
            assert (await by_tag).count == 0

    asyncio.run(test())


def test_look_ups_between_the_pieces_of_another_change_nothing_it_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_LOOK_UP_TURN_S", -1)
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)

    async def test():
        async with searching(tmp_path) as (store, search):
            sent = send_many(store, 300)
            await read_all(search)
            store.flush()
            while not store.build_index():
                pass
            clock_ms = store._clock.now_ms
            store._clock.now_ms += 1000
            late = [one.physical_offset for one in send_many(store, 300, first=300)]
            await read_all(search)
            async with held_up(search):
                asked = [start(search, Peer(), end=clock_ms) for _ in range(8)]
            before = search.index.reader
            # The index files are opened anew, and the memory drops what they have, meanwhile.
            store.flush()
            while not store.build_index():
                pass
            send_many(store, 200, first=600)
            await read_all(search)
            expected = [one.physical_offset for one in sent[-64:]]
            for found in await asyncio.gather(*asked):
                assert not found.failures
                assert [each.physical_offset for each in records_of(found.body)] == expected
            assert search.index.reader is not before
            assert search.index.users == 0
            assert await places(search, "k599") == late[-1:]

    asyncio.run(test())


def test_a_look_up_whose_time_is_over_says_what_it_did_not_search(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_LOOK_UP_TURN_S", -1)

    async def test():
        async with searching_many(tmp_path, 300) as (_, search, sent):
            times = itertools.chain([0] * 20, itertools.repeat(100))
            monkeypatch.setattr(search.turns, "_clock", lambda: next(times))
            async with held_up(search):
                asked = start(search, Peer())
            found = await asked
            assert 0 < found.count < 64
            given = [each.physical_offset for each in records_of(found.body)]
            assert given == sent[-found.count :]
            (failure,) = found.failures
            assert failure.startswith("the look-up took too long and was ended: the log before ")

    asyncio.run(test())


def test_a_slot_that_other_keys_crowd_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_LOOK_UP_TURN_S", -1)
    monkeypatch.setattr(index, "_STEPS_TO_PAUSE", 1)
    one_slot = SMALL.__class__(
        mappedFileSizeCommitLog=1 << 20,
        mappedFileSizeConsumeQueue=6000,
        maxHashSlotNum=1,
        maxIndexNum=10_000,
    )

    async def test():
        with open_small(tmp_path, config=one_slot) as store:
            sent = [one.physical_offset for one in send_many(store, 300)]
        async with searching(tmp_path, config=one_slot) as (_, search):
            for long_chain in (20_000, 10):
                monkeypatch.setattr(index, "_LONG_CHAIN", long_chain)
                monkeypatch.setattr(index, "_ENTRIES_TO_PAUSE", 7)
                async with held_up(search):
                    asked = search.by_key(LookUp(MessageFilter("Orders", key="k3"), 64), Peer())
                pieces = search.turns._turn
                found = await asked
                assert search.turns._turn - pieces > 50
                (record,) = records_of(found.body)
                assert record.physical_offset == sent[3]

    asyncio.run(test())


def test_a_walk_to_a_record_without_an_entry_is_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "_STEP_BYTES", 5000)

    async def test():
        async with searching(tmp_path, config=LARGE, options=NO_BUILDER) as (store, search):
            sent = send_many(store, 600)
            monkeypatch.setattr(store.queues, "get", lambda *_: None)
            monkeypatch.setattr(search.index.reader, "_is_queued", lambda _: None)
            record = search.index.reader.log.record_at(sent[500].physical_offset)
            pieces = search.turns._turn
            assert await search.is_record_start(record, Peer())
            assert search.turns._turn - pieces > 10
            inside = dataclasses.replace(record, physical_offset=record.physical_offset + 8)
            assert not await search.is_record_start(inside, Peer())

    asyncio.run(test())
