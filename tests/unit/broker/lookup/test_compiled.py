"""Compiled look-ups are answered byte for byte as the others, or are left to them."""

import asyncio
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketlens import limits
from rocketlens.broker.lookup import live_index
from rocketlens.broker.lookup.compiled import CODES, CompiledLookUps
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.broker.requests import query as query_requests
from rocketlens.broker.requests.answers import handlers_of
from rocketlens.errors import RocketLensError
from rocketlens.net.channel import failure
from rocketlens.net.channel_group import RunsByCode
from rocketlens.store.read.index import entry_runs, tail
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import ONE_WAY_FLAG, RemotingCommand
from rocketlens.wire.connection import Connection, RequestReceived
from tests.support.binary_header import encode_command
from tests.support.broker_world import create_topic, in_broker, records_of, text_of
from tests.support.effort import sized
from tests.support.fed_channel import commands_in, feed, replies_in
from tests.support.made_stores import flip
from tests.support.written_stores import SMALL, open_small, send, send_many
from tests.unit.broker.searches import LARGE, Peer, put_away, read_all, searching
from tests.unit.broker.sends.test_send_runs import KEY, plain_frame

COUNT = 400
END_MS = 2**63 - 1


def frame_of(command, opaque, codec=0, flag=0):
    return encode_command(
        RemotingCommand(command.code, opaque, flag, None, command.ext_fields), codec
    )


def query(key, opaque=1, codec=0, topic="Orders", **changes):
    """A query as RocketMQ's client writes it."""
    fields = {
        "maxNum": 32,
        "beginTimestamp": 0,
        "key": key,
        "_UNIQUE_KEY_QUERY": "false",
        "topic": topic,
        "endTimestamp": END_MS,
        "indexType": "K",
    } | changes
    texts = {name: str(value) for name, value in fields.items() if value is not None}
    return encode_command(RemotingCommand(12, opaque, 0, None, texts), codec)


def view(offset, opaque=1, codec=0):
    fields = {"offset": str(offset), "topic": "Orders"}
    return encode_command(RemotingCommand(33, opaque, 0, None, fields), codec)


def body_of(answer):
    """The body of a reply."""
    (command,) = commands_in(answer)
    return command.body


def mutated(rng, frame):
    """A frame with some changed bytes behind its length."""
    changed = bytearray(frame)
    for _ in range(rng.choice([1, 1, 3])):
        at = rng.randrange(4 if rng.random() < 0.1 else 8, len(frame))
        changed[at] = rng.choice([rng.randrange(256), *b'"\\{}:,0-', 1, 2])
    return bytes(changed)


def request(rng, store):
    """A request for a message, or nearly."""
    number = rng.randrange(COUNT + 20)
    if rng.random() < 0.2:
        offset = rng.choice([rng.randrange(store.end_offset + 99), rng.choice(store.sent), -1])
        return RemotingCommand(
            RequestCode.VIEW_MESSAGE_BY_ID, 1, ext_fields={"offset": f"{offset}"}
        )
    is_unique = rng.random() < 0.5
    usual = f"U{number:06}" if is_unique else f"k{number}"
    odd = [f"k{number}", f"U{number:06}", "all", "k", "caf\u00e9"]
    begin_ms = store.begin_ms + rng.randrange(-100, COUNT + 100)
    fields = {
        "topic": rng.choice(["Orders"] * 19 + ["Other", "%LMQ%Orders", "caf\u00e9", ""]),
        "key": rng.choice(odd) if rng.random() < 0.3 else usual,
        "maxNum": rng.choice([1, 2, 32, 64, 1000, 0, "x"]) if rng.random() < 0.3 else 64,
        "beginTimestamp": begin_ms if rng.random() < 0.3 else rng.choice([0, 1, -5]),
        "endTimestamp": begin_ms + rng.randrange(300) if rng.random() < 0.3 else END_MS,
        "_UNIQUE_KEY_QUERY": rng.choice([True, None]) if is_unique else rng.choice([None, False]),
        "indexType": "U" if is_unique else rng.choice([None, "K"]),
    }
    texts = {name: text_of(value) for name, value in fields.items() if value is not None}
    return RemotingCommand(RequestCode.QUERY_MESSAGE, 1, ext_fields=texts)


def damage(rng, directory, name, count):
    """Change some bytes in the files of a store."""
    for _ in range(count):
        path = rng.choice(sorted((directory / name).iterdir()))
        position = rng.randrange(min(path.stat().st_size, 40 * COUNT))
        flip(path, position, rng.choice([0xFF, 1 << rng.randrange(8)]))


def written(rng, directory, *, is_indexed, config=LARGE):
    """A store of messages, most of them in index files, with a clock that goes on."""
    store = open_small(directory, config=config)
    store.begin_ms, store.sent = store._clock.now_ms, []
    for number in range(COUNT):
        store._clock.now_ms += 1
        again = number if rng.random() < 0.9 else rng.randrange(COUNT)
        one = send(store, again, queue_id=number % 3, body=rng.randbytes(rng.randrange(90)))
        store.sent.append(one.physical_offset)
        if number == COUNT // 2 and is_indexed:
            store.flush()
            while not store.build_index():
                pass
    return store


class Refusing:
    """Runs of other requests, which handle none."""

    def answer(self, _channel, _received):
        return None


class Compiled:
    """A search whose look-ups are compiled where they can be, and a processor as the reference."""

    def __init__(self, store):
        self.search = LiveSearch(store)
        config = SimpleNamespace(defaultQueryMaxNum=32, maxMsgsNumBatch=64)
        core = SimpleNamespace(config=config, access=None, search=self.search, store=store)
        self.handlers = handlers_of(core, query_requests.HANDLERS)
        self.peer, self.connection = Peer(), Connection()
        self.look_ups = CompiledLookUps(store, self.search, config)
        self.runs = RunsByCode({CODES: self.look_ups}, Refusing())
        self.answered = 0

    async def reply(self, command):
        """The bytes of the processor's reply."""
        try:
            answer = self.handlers[command.code](command, self.peer)
            if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
                answer = await answer
                await put_away(self.search)
        except RocketLensError as error:
            answer = failure(command, error, lambda: False)
        code, fields, body, remark = answer
        return self.connection.respond(command, code, fields, body, remark=remark)

    async def assert_same(self, frame):
        """Ask both ways, first compiled: the other one reads the log into memory."""
        answer = self.runs.answer(self.peer, frame)
        if answer is None:
            return
        self.answered += 1
        (event,) = Connection().receive(frame)
        assert type(event) is RequestReceived
        assert answer == await self.reply(event.command), event.command
        await put_away(self.search)
        # Asked again, where nothing was appended in between one call may answer.
        assert self.look_ups.answer(self.peer, frame) in {answer, None}
        assert self.look_ups.answer(self.peer, frame) in {answer, None}
        with memoryview(frame + b"\0\0") as received:
            assert self.look_ups.take(self.peer, received, 9) == (1, len(frame), answer)


async def change(rng, store, side, number):
    """Do something to a store, and to what a search has read of it."""
    kind = rng.randrange(6)
    if kind <= 1:
        store._clock.now_ms += 1
        send_many(store, rng.choice([1, 3, 90]), first=COUNT + number)
    elif kind == 2:
        await side.search.between_look_ups(side.search.index.step)
    elif kind == 3:
        store.flush()
        while not store.build_index():
            pass
        await read_all(side.search)
    elif kind == 4 and len(segments := store._log.list_segments()) > 3:
        segments[0].path.unlink()
        store._log.list_segments()
        side.search.refresh_readers()


async def compare(rng, store, count, damaged=(), odd=0.2):
    """Ask many times, with changes in between; return how many look-ups were compiled."""
    side = Compiled(store)
    await side.search.between_look_ups(side.search.index.open)
    await read_all(side.search)
    for number in range(count):
        if rng.random() < 0.1:
            await change(rng, store, side, number)
        if damaged and number == count // 2:
            damage(rng, *damaged)
        command = request(rng, store)
        flag = ONE_WAY_FLAG if rng.random() < odd / 4 else 0
        frame = frame_of(command, rng.randrange(2**31), rng.choice([0, 0, 1]), flag)
        await side.assert_same(mutated(rng, frame) if rng.random() < odd else frame)
    side.search.close()
    return side.answered


def run(directory, seed, damaged="nothing", count=200, odd=0.2):
    """Compare over a store that is made of a seed."""
    rng = random.Random(f"{seed} {damaged}")

    async def test():
        is_indexed = seed % 3 > 0
        store = written(rng, directory, is_indexed=is_indexed, config=SMALL if seed % 2 else LARGE)
        after = ()
        if damaged == "commitlog" or (damaged == "index" and is_indexed):
            damage(rng, directory, damaged, 1 + 2 * seed)
            after = directory, damaged, 2
        answered = await compare(rng, store, count, after, odd)
        store.close_abruptly()
        return answered

    return asyncio.run(test())


@pytest.mark.parametrize("seed", range(sized(2, 6)))
@pytest.mark.parametrize("damaged", ["nothing", "index", "commitlog"])
def test_compiled_look_ups_are_those_of_the_steps_that_define_them(
    tmp_path, monkeypatch, seed, damaged
):
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    if seed % 2:
        # What the memory has is packed soon.
        monkeypatch.setattr(tail, "_MAX_DICTIONARY_ENTRIES", 50)
    answered = run(tmp_path, seed, damaged)
    if damaged == "nothing":
        assert answered > 8


def with_many(directory, act, count=3000):
    """Run ``await act(store, side, sent)`` in a store of messages that all have the key ``all``."""

    async def test():
        async with searching(directory, config=LARGE) as (store, _):
            sent = [one.physical_offset for one in send_many(store, count)]
            side = Compiled(store)
            await side.search.between_look_ups(side.search.index.open)
            await act(store, side, sent)
            side.search.close()

    asyncio.run(test())


@pytest.mark.parametrize("where", ["unsorted", "sorted", "files", "between"])
def test_the_newest_of_a_key_of_many_messages_are_found_by_looking_at_no_more(
    tmp_path, monkeypatch, where
):
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    if where == "unsorted":
        monkeypatch.setattr(entry_runs.EntryRuns, "compact", lambda _: None)

    async def act(store, side, sent):
        if where in {"files", "between"}:
            store.flush()
            while not store.build_index():
                pass
        await read_all(side.search)
        if where in {"files", "between"}:
            # Now that memory has what files cover.
            await read_all(side.search)
            assert side.search.index.reader.index.sound
        if where == "between":
            sent = sent + [one.physical_offset for one in send_many(store, 40, first=5000)]
        for wanted in (1, 32, 64):
            frame = query("all", maxNum=wanted)
            answer = side.look_ups.answer(side.peer, frame)
            (event,) = Connection().receive(frame)
            assert answer == await side.reply(event.command)
            found = [each.physical_offset for each in records_of(body_of(answer))]
            assert found == sent[-wanted:]
            assert side.search.turns.try_begin(None)
            assert side.look_ups.answer(side.peer, frame) == answer, "by one call"
            side.search.turns.end()

    with_many(tmp_path, act, 1000)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lists what is mapped")
def test_no_look_up_keeps_the_bytes_of_a_deleted_segment_on_the_disk(tmp_path, monkeypatch):

    def deleted():
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        # What the store itself has mapped, to write to it, a cleaner drops.
        readers = (line for line in mapped if " r--s " in line)
        return [line for line in readers if str(tmp_path) in line and "deleted" in line]

    async def test():
        async with searching(tmp_path, config=SMALL) as (store, other):
            send_many(store, 300)
            side = Compiled(store)
            await side.search.between_look_ups(side.search.index.open)
            await read_all(side.search)
            assert side.look_ups.answer(side.peer, query("all", maxNum=1))
            assert side.search.snapshot is not None
            store._log.list_segments()[0].path.unlink()
            store._log.list_segments()
            for search in (side.search, other):
                search.refresh_readers()
                await search.between_look_ups(lambda: None)
            kept = deleted()
            side.search.close()
        return kept

    assert not asyncio.run(test())


def test_a_broker_answers_the_same_however_requests_come(tmp_path):
    """Alone, together, among sends, in pieces: with compiled look-ups and without."""

    async def test(world):
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        sends = b"".join(plain_frame(number) for number in range(40))
        await feed(world, [sends])
        world.core.load_kernels()
        await read_all(world.core.search)
        network, store = world.core.network, world.core.store
        runs, counts = network.runs, [0, 0]
        answer, take = runs.answer, runs.take

        def counted_answer(*given):
            reply = answer(*given)
            counts[0] += reply is not None
            return reply

        def counted_take(*given):
            taken = take(*given)
            counts[1] += taken[0]
            return taken

        runs.answer, runs.take = counted_answer, counted_take
        offset = world.core.store.min_offset
        rng = random.Random(5)
        for number in range(60):
            frames = []
            for opaque in range(rng.choice([1, 1, 6, 30])):
                codec, wanted = rng.choice([0, 1]), rng.randrange(44)
                frames.append(
                    rng.choice(
                        [
                            query(f"k{wanted}", opaque, codec),
                            query(f"{KEY}{wanted:04d}", opaque, codec, _UNIQUE_KEY_QUERY="true"),
                            view(offset, opaque, codec),
                            mutated(rng, query(f"k{wanted}", opaque, codec)),
                        ]
                    )
                )
            content = b"".join(frames)
            cut = rng.randrange(len(content))
            chunks = [content] if rng.random() < 0.7 else [content[:cut], content[cut:]]
            outcomes = []
            for each in (runs, None):
                network.runs = each
                await put_away(world.core.search)
                written, is_closed = await feed(world, chunks)
                outcomes.append((sorted(replies_in(written)), is_closed))
            assert outcomes[0] == outcomes[1], number
        assert min(counts) > 15, counts
        network.runs = runs
        before = store.end_offset
        await feed(world, [query("k1") + b"".join(map(plain_frame, range(100, 104))) + query("k2")])
        assert store.end_offset > before

    in_broker(tmp_path, test)


async def test_an_error_releases_what_was_received(world, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    world.core.load_kernels()
    frame = query("key")
    look_ups = world.core.network.runs._of(frame)
    monkeypatch.setattr(look_ups, "_ask", fail)
    received = bytearray(frame)
    with memoryview(received) as held, pytest.raises(ZeroDivisionError) as caught:
        look_ups.take(object(), held, 9)
    received.clear()
    assert caught.traceback


def test_what_was_sent_is_found_at_once_while_no_index_has_it(tmp_path, monkeypatch):
    async def act(store, side, sent):
        await read_all(side.search)
        assert side.look_ups.answer(side.peer, query("k1")) is not None
        read_to = side.search.index.read_to
        for number in range(20):
            (one,) = send_many(store, 1, first=5000 + number)
            answer = side.look_ups.answer(side.peer, query(f"k{5000 + number}"))
            assert [each.physical_offset for each in records_of(body_of(answer))] == [
                one.physical_offset
            ]
        assert side.search.index.read_to == read_to

    with_many(tmp_path, act, 10)


def test_the_first_look_up_is_left_to_others_while_the_thread_of_look_ups_works(
    tmp_path, monkeypatch
):

    async def act(store, side, sent):
        await read_all(side.search)
        assert side.search.turns.try_begin(None)
        assert side.look_ups.answer(side.peer, query("k1")) is None
        side.search.turns.end()
        assert side.look_ups.answer(side.peer, query("k1")) is not None

    with_many(tmp_path, act, 10)


def test_one_call_answers_while_the_thread_of_look_ups_works(tmp_path, monkeypatch):

    async def act(store, side, sent):
        await read_all(side.search)
        frames = [query("k1"), query("U000002", _UNIQUE_KEY_QUERY="true"), view(sent[3])]
        answers = [side.look_ups.answer(side.peer, frame) for frame in frames]
        assert None not in answers
        assert side.search.turns.try_begin(None)
        assert [side.look_ups.answer(side.peer, frame) for frame in frames] == answers
        together = b"".join(frames)
        with memoryview(together) as received:
            taken = side.look_ups.take(side.peer, received, 9)
        assert taken == (3, len(together), b"".join(answers))
        side.search.turns.end()

    with_many(tmp_path, act, 10)


def test_what_is_appended_is_read_by_a_look_up_once_it_is_too_long_to_compare(tmp_path):

    async def act(store, side, sent):
        await read_all(side.search)
        index, look_ups = side.search.index, side.look_ups
        assert body_of(look_ups.answer(side.peer, query("k1")))
        read_to = index.read_to
        for count, first, is_read in ((440, 5000, False), (800, 6000, True)):
            send_many(store, count, first=first)
            is_long = store.end_offset - read_to > limits.MAX_LOOP_NEW_BYTES
            assert is_long == is_read
            reply = look_ups.answer(side.peer, query(f"k{first + count - 1}"))
            assert records_of(body_of(reply))[0].physical_offset > read_to
            assert index.read_to == (store.end_offset if is_read else read_to)
        assert not side.search.waiting

    with_many(tmp_path, act, 10)


def test_a_record_in_a_body_is_not_viewed(tmp_path, monkeypatch):

    async def act(store, side, sent):
        (first,) = send_many(store, 1, first=7000)
        content = bytearray(store.record(first.physical_offset, 0))
        body_at = bytes(content).index(b"7000,")
        # Whatever it says of itself is true, but for where it begins.
        content[28:36] = (first.physical_offset + first.store_size + body_at).to_bytes(8)
        hidden = send(store, 7001, body=bytes(content))
        offset = int.from_bytes(content[28:36])
        assert offset == hidden.physical_offset + body_at
        assert bytes(store.record(offset, 0)) == content
        await read_all(side.search)
        for _ in range(3):
            assert side.look_ups.answer(side.peer, view(hidden.physical_offset)) is not None
            assert side.look_ups.answer(side.peer, view(offset)) is None

    with_many(tmp_path, act, 10)


def test_one_call_answers_and_what_is_appended_since_is_found(tmp_path, monkeypatch):

    async def act(store, side, sent):
        await read_all(side.search)
        look_ups = side.look_ups
        # The first questions find out that nothing changes between them.
        first = [look_ups.answer(side.peer, query("all", maxNum=64)) for _ in range(3)]
        assert len(set(first)) == 1
        with monkeypatch.context() as patched:
            patched.setattr(look_ups, "_snapshot_now", None)
            for wanted in (1, 5, 64):
                found = records_of(body_of(look_ups.answer(side.peer, query("all", maxNum=wanted))))
                assert [each.physical_offset for each in found] == sent[-wanted:]
            for codec in (0, 1):
                frame = query("U000007", 9, codec, _UNIQUE_KEY_QUERY="true", maxNum=0)
                assert look_ups.answer(side.peer, frame) is None
                frame = query("U000007", 9, codec, _UNIQUE_KEY_QUERY="true")
                (event,) = Connection().receive(frame)
                assert look_ups.answer(side.peer, frame) == await side.reply(event.command)
            segment = store._log.list_segments()[-1].base_offset
            last = [offset for offset in sent if offset >= segment]
            for frame in (view(last[0], 7), view(last[-1], 8, 1)):
                (event,) = Connection().receive(frame)
                assert look_ups.answer(side.peer, frame) == await side.reply(event.command)
        assert look_ups.answer(side.peer, view(last[0] + 1)) is None
        store.queues.get("Orders", (len(sent) - 1) % 3).cut(0)
        for number in range(3):
            (one,) = send_many(store, 1, first=5000 + number)
            with monkeypatch.context() as patched:
                patched.setattr(look_ups, "_snapshot_now", None)
                (found,) = records_of(body_of(look_ups.answer(side.peer, query("all", maxNum=1))))
                frame = view(one.physical_offset)
                assert records_of(body_of(look_ups.answer(side.peer, frame))) == [found]
            assert found.physical_offset == one.physical_offset
            if number == 1:
                await read_all(side.search)

    with_many(tmp_path, act, 1000)
