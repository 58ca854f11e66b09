"""Look-ups are done in a thread, each connection in its turn."""

import asyncio
import itertools

import pytest
from msgspec.structs import replace

from rocketlens.broker.lookup import live_index, look_up
from rocketlens.broker.lookup import search as module
from rocketlens.broker.lookup.look_up import LookUp
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.formats import commitlog_record
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.store.read.index import index
from rocketlens.store.read.index import tail as tail_module
from rocketlens.store.read.log import scan
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, bodies, in_broker, properties_of, records_of
from tests.support.written_stores import SMALL, open_small, send_many
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


async def test_the_log_answers_for_an_index_file_that_is_damaged_while_it_is_used(tmp_path):
    with open_small(tmp_path, config=LARGE) as store:
        sent = send_many(store, 300)
    async with searching(tmp_path, config=LARGE) as (store, search):
        sent += send_many(store, 20, first=300)
        file = search.index.reader.index.sound[0]
        with file.path.open("r+b") as damaged:
            damaged.seek(file.geometry.entry_position(1))
            damaged.write(b"\xff" * (20 * 600))
        await assert_found(search, sent)


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
        found = await search.by_key(LookUp(wanted, 64))
        assert [each.physical_offset for each in records_of(found.body)] == sent[-64:]


async def test_a_look_up_of_large_messages_goes_on_in_the_thread(tmp_path):
    async with searching(tmp_path, config=LARGE, options=NO_BUILDER) as (store, search):
        sent = send_many(store, 20, body_bytes=200_000)
        await read_all(search)
        found = await search.by_key(LookUp(MessageFilter("Orders", key="all"), 64))
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


async def test_look_ups_by_key_and_id_never_wait_for_those_by_tag(tmp_path, monkeypatch):
    async with searching_many(tmp_path, 300) as (store, search, sent):
        assert search.tag_turns.try_begin(Peer())
        by_tag = search.by_tag(LookUp(MessageFilter("Orders", tags=frozenset("a")), 64), Peer())
        assert await places(search, "k7") == [sent[7]]
        record = search.index.reader.log.record_at(sent[7])
        monkeypatch.setattr(store.queues, "get", lambda *_: None)
        assert await search.is_record_start(record, Peer())
        assert not by_tag.done()
        search.tag_turns.end()
        monkeypatch.undo()
        assert (await by_tag).count == 0


async def test_the_newest_of_a_key_are_found_with_no_look_at_the_others(tmp_path, monkeypatch):
    looked_at = []
    read_candidate = look_up.read_candidate

    def counted(log, message_filter, offset, *others, **options):
        looked_at.append(offset)
        return read_candidate(log, message_filter, offset, *others, **options)

    monkeypatch.setattr(look_up, "read_candidate", counted)
    async with searching_many(tmp_path, 3000) as (_, search, sent):
        found = await search.by_key(LookUp(MessageFilter("Orders", key="all"), 64))
        assert [each.physical_offset for each in records_of(found.body)] == sent[-64:]
        assert looked_at == sent[:-65:-1]


async def test_look_ups_between_the_pieces_of_another_change_nothing_it_finds(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("rocketlens.broker.lookup.turns.MAX_LOOK_UP_TURN_S", -1)
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
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
        assert not search.index._users
        assert await places(search, "k599") == late[-1:]


async def test_a_look_up_whose_time_is_over_says_what_it_did_not_search(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.lookup.turns.MAX_LOOK_UP_TURN_S", -1)
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
        assert failure.startswith("the look-up exceeded its time: the log before ")


async def test_a_slot_that_other_keys_crowd_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.lookup.turns.MAX_LOOK_UP_TURN_S", -1)
    monkeypatch.setattr(index, "_STEPS_TO_PAUSE", 1)
    one_slot = SMALL.__class__(
        mappedFileSizeCommitLog=1 << 20,
        mappedFileSizeConsumeQueue=6000,
        maxHashSlotNum=1,
        maxIndexNum=10_000,
    )
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


async def test_a_walk_to_a_record_without_an_entry_is_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "_STEP_BYTES", 5000)
    async with searching(tmp_path, config=LARGE, options=NO_BUILDER) as (store, search):
        sent = send_many(store, 600)
        monkeypatch.setattr(store.queues, "get", lambda *_: None)
        monkeypatch.setattr(search.index.reader, "_is_queued", lambda _: None)
        record = search.index.reader.log.record_at(sent[500].physical_offset)
        pieces = search.turns._turn
        assert await search.is_record_start(record, Peer())
        assert search.turns._turn - pieces > 10
        inside = replace(record, physical_offset=record.physical_offset + 8)
        assert not await search.is_record_start(inside, Peer())


@within(in_broker, "tmp_path")
async def test_a_key_of_the_same_hash_or_another_topic_is_not_given(world, /):
    await world.send(body=b"right", properties=properties_of(KEYS="x Aa"))
    await world.send(body=b"twin", properties=properties_of(KEYS="BB"))
    await world.send("Others", body=b"elsewhere", properties=properties_of(KEYS="Aa"))
    assert bodies(await world.query("Aa")) == [b"right"]


@within(in_broker, "tmp_path")
async def test_both_ends_of_a_time_range_are_exact(world, /):
    for number in range(5):
        world.clock.now_ms = NOW_MS + number
        await world.send(body=b"%d" % number, properties=properties_of(KEYS="k"))
    answer = await world.query("k", beginTimestamp=NOW_MS + 1, endTimestamp=NOW_MS + 3)
    assert bodies(answer) == [b"1", b"2", b"3"]


@within(in_broker, "tmp_path", mappedFileSizeCommitLog=32 * 1024 * 1024)
async def test_no_answer_is_larger_than_a_frame(world, /):
    body = bytes(3_000_000)
    for _ in range(7):
        await world.send(body=body, properties=properties_of(KEYS="large"))
    answer = await world.query("large")
    assert bodies(answer) == [body] * 5


@within(in_broker, "tmp_path")
async def test_an_offset_inside_a_record_is_no_message(world, /):
    await world.send()
    inner = bytearray(world.core.store.record(0, 0))
    size = len(inner)
    # A record that says it belongs where it will be, in the body of another.
    start = size + 88
    inner[28:36] = start.to_bytes(8, "big")
    await world.send(body=bytes(inner))
    assert commitlog_record.decode(world.core.store.record(start, 0), physical_offset=start)
    end = world.core.store.end_offset
    for offset in (start, 1, size + 1, -1, end, end + 8, 2**62):
        answer = await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"can not find message by the offset, {offset}"
    assert (await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=size)).code == 0


@within(in_broker, "tmp_path")
async def test_a_damaged_message_is_an_error_and_never_an_empty_answer(world, /):
    await world.send(properties=properties_of(KEYS="broken"), body=b"body that breaks")
    await world.send(properties=properties_of(KEYS="sound"))
    content = world.core.store._appender._content
    place = content.find(b"body that breaks")
    content[place : place + 4] = b"BODY"
    view = await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=0)
    assert view.code == ResponseCode.SYSTEM_ERROR
    assert "checksum" in view.remark
    answer = await world.query("broken")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith("the search is incomplete: ")
    assert (await world.query("sound")).code == 0


@within(in_broker, "tmp_path")
async def test_an_answer_without_a_damaged_message_says_what_could_not_be_searched(world, /):
    for number in range(3):
        await world.send(body=b"number %d" % number, properties=properties_of(KEYS="k"))
    (segment,) = (world.core.store.layout.commit_log).iterdir()
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(content.index(b"number 1"))
        file.write(b"X")
    answer = await world.query("k")
    assert bodies(answer) == [b"number 0", b"number 2"]
    assert "checksum" in answer.ext_fields["notSearched"]


@pytest.mark.parametrize("in_files", [False, True])
async def test_a_key_of_many_messages_costs_no_more_for_times_that_none_of_them_has(
    tmp_path, monkeypatch, in_files
):
    compared = []
    read_candidate = look_up.read_candidate
    monkeypatch.setattr(
        look_up,
        "read_candidate",
        lambda *given, **options: compared.append(given[2]) or read_candidate(*given, **options),
    )
    monkeypatch.setattr(tail_module, "_BLOCK_BYTES", 1000)
    monkeypatch.setattr(index, "_ENTRIES_OF_TIME", 16)
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100 if in_files else 1_000_000)
    monkeypatch.setattr("rocketlens.store.read.log.scan.CHUNK_ROWS", 32)
    async with searching(tmp_path, config=LARGE) as (store, search):
        sent = send_many(store, 1500)
        set_back_ms = store._clock.now_ms + 60_000
        store._clock.now_ms += 120_000
        late = send_many(store, 1, first=1500)[0].physical_offset
        store._clock.now_ms -= 60_000
        last = send_many(store, 1, first=1501)[0].physical_offset
        await read_all(search)
        if in_files:
            store.flush()
            while not store.build_index():
                pass
            await read_all(search)
            assert search.index.tail.entry_count < 1000

        async def found(begin, end=2**63 - 1):
            query = LookUp(MessageFilter("Orders", key="all", begin=begin, end=end), 64)
            answer = await search.by_key(query, Peer())
            assert not answer.failures
            return [record.physical_offset for record in records_of(answer.body)]

        assert await found(set_back_ms + 60_001) == []
        assert await found(set_back_ms + 1) == [late]
        assert await found(set_back_ms) == [late, last]
        assert len(compared) < 100
        assert await found(1, set_back_ms - 1) == [one.physical_offset for one in sent[-64:]]
