"""Look-ups: done at once where that is soon done, else in a thread, each connection in its turn."""

import asyncio

import pytest

from rocketlens.broker.lookup import search as module
from rocketlens.broker.lookup.look_up import LookUp
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.store.read.index.tail import Tail
from tests.support.broker_world import records_of
from tests.support.written_stores import open_small, send_many
from tests.unit.broker.searches import (
    LARGE,
    NO_BUILDER,
    Peer,
    assert_found,
    held_up,
    places,
    read_all,
    searching,
    searching_many,
    start,
)


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_the_log_answers_for_an_index_file_that_is_damaged_while_it_is_used(
    tmp_path, monkeypatch, is_at_once
):
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


async def test_kernels_are_loaded_when_a_broker_is_used_however_little_there_is_to_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "READ_INTERVAL_S", 0)
    loop, loaded, looked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Semaphore(0)
    uses = [False] * 5

    def is_used():
        looked.release()
        return not uses or uses.pop()

    store = open_small(tmp_path, config=LARGE, options=NO_BUILDER)
    search = LiveSearch(store, lambda: loop.call_soon_threadsafe(loaded.set), is_used)
    await search.open(load_after_s=0.0)
    for _ in range(5):
        await asyncio.wait_for(looked.acquire(), 60)
        assert not loaded.is_set()
    await asyncio.wait_for(loaded.wait(), 60)
    search.close()
    store.close_abruptly()


async def test_kernels_are_loaded_for_a_broker_that_is_only_asked_for_messages(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "READ_INTERVAL_S", 0)
    loop, loaded = asyncio.get_running_loop(), asyncio.Event()
    store = open_small(tmp_path, config=LARGE, options=NO_BUILDER)
    search = LiveSearch(store, lambda: loop.call_soon_threadsafe(loaded.set), lambda: False)
    await search.open(load_after_s=0.0)
    search.by_key(LookUp(MessageFilter("Orders", key="k"), 1))
    await asyncio.wait_for(loaded.wait(), 60)
    search.close()
    store.close_abruptly()


async def test_the_background_reads_what_is_appended(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "READ_INTERVAL_S", 0)
    loop, read = asyncio.get_running_loop(), asyncio.Event()
    store = open_small(tmp_path, config=LARGE, options=NO_BUILDER)
    search = LiveSearch(store)

    def step(step_once=search.index.step):
        step_once()
        if search.index.read_to == store.end_offset:
            loop.call_soon_threadsafe(read.set)

    monkeypatch.setattr(search.index, "step", step)
    await search.open()
    send_many(store, 600, body_bytes=300)
    await asyncio.wait_for(read.wait(), 60)
    search.close()
    store.close_abruptly()


async def test_a_look_up_that_has_many_candidates_goes_on_in_the_thread(tmp_path):
    async with searching_many(tmp_path, 3000) as (store, search, sent):
        store._clock.now_ms += 1000
        send_many(store, 300, first=3000)
        await read_all(search)
        wanted = MessageFilter("Orders", key="all", end=store._clock.now_ms - 1000)
        found = search.by_key(LookUp(wanted, 64))
        assert asyncio.isfuture(found)
        found = await found
        assert [each.physical_offset for each in records_of(found.body)] == sent[-64:]


async def test_a_look_up_of_large_messages_goes_on_in_the_thread(tmp_path):
    async with searching(tmp_path, config=LARGE, options=NO_BUILDER) as (store, search):
        sent = send_many(store, 20, body_bytes=200_000)
        await read_all(search)
        found = search.by_key(LookUp(MessageFilter("Orders", key="all"), 64))
        assert asyncio.isfuture(found)
        found = await found
        assert [each.physical_offset for each in records_of(found.body)] == [
            one.physical_offset for one in sent
        ]


async def test_a_look_up_by_key_waits_for_a_piece_of_each_other_connections(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rocketlens.broker.lookup.turns.MAX_LOOK_UP_TURN_S", -1
    )  # each candidate is a piece
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


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_look_ups_by_key_and_id_never_wait_for_those_by_tag(
    tmp_path, monkeypatch, is_at_once
):
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


async def test_a_search_that_stops_refuses_nothing_to_those_who_let_it_read(tmp_path):
    async with searching(tmp_path) as (store, search):
        send_many(store, 3)
        search.turns.close()
        search.read_soon()
        assert search.index.read_to == 0
