"""The usual look-up is answered byte for byte as by the steps that define it, or not at all."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from rocketlens import limits
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.broker.lookup.usual import KeyLookUp
from rocketlens.broker.requests.query import QueryProcessor
from rocketlens.errors import RocketLensError
from rocketlens.net.response import failure
from rocketlens.store.read.index import tail
from rocketlens.store.read.index.tail import Tail
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import Connection
from tests.support.broker_world import records_of, text_of
from tests.support.made_stores import flip
from tests.support.written_stores import open_small, send, send_many
from tests.unit.broker.searches import LARGE, Peer, put_away, read_all, searching

COUNT = 400
END_MS = 2**63 - 1


class Access:
    """Lets every other message be read."""

    def reader_of(self, *_):
        return SimpleNamespace(may_read=lambda record: sum(record) % 2 == 0)

    def decide_reading(self, *_):
        return None


class Side:
    """A search and the processor that asks it; the reference never takes the usual way."""

    def __init__(self, store, *, is_reference):
        self.search = LiveSearch(store)
        self.usual_count = 0
        if is_reference:
            self.search.usual_by_key = lambda *_: None
            self.search.is_in_queue = lambda _: False
        else:
            self._usual, self.search.usual_by_key = self.search.usual_by_key, self.counted
        config = SimpleNamespace(defaultQueryMaxNum=32, maxMsgsNumBatch=64)
        self.core = SimpleNamespace(config=config, access=None, search=self.search, store=store)
        self.handlers = QueryProcessor(self.core).handlers()
        self.peer, self.connection = Peer(), Connection()

    def counted(self, *asked):
        found = self._usual(*asked)
        self.usual_count += found is not None
        return found

    async def reply(self, command):
        """The bytes of the reply."""
        try:
            answer = self.handlers[command.code](command, self.peer)
            if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
                answer = await answer
                await put_away(self.search)
        except RocketLensError as error:
            answer = failure(command, error, lambda: False)
        code, fields, body, remark = answer
        return self.connection.respond(command, code, fields, body, remark=remark)


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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("damaged", ["nothing", "index", "commitlog"])
def test_answers_are_those_of_the_look_up_in_pieces_byte_for_byte(
    tmp_path, monkeypatch, seed, damaged
):
    rng = random.Random(f"{seed} {damaged}")
    monkeypatch.setattr(Tail, "is_compiled", seed % 2 > 0)
    if seed % 2:
        # What the memory has is packed soon.
        monkeypatch.setattr(tail, "_MAX_DICTIONARY_ENTRIES", 50)

    async def test():
        store = written(rng, tmp_path, is_indexed=seed % 3 > 0)
        if damaged == "commitlog" or (damaged == "index" and seed % 3):
            damage(rng, tmp_path, damaged, 1 + 2 * seed)
        sides = [Side(store, is_reference=False), Side(store, is_reference=True)]
        for side in sides:
            await side.search.between_look_ups(side.search.index.open)
            await read_all(side.search)
        for number in range(150):
            if number == 60 and damaged == "commitlog":
                damage(rng, tmp_path, damaged, 2)
            if number % 40 == 0:
                send_many(store, 2, first=COUNT + number // 20)
            for side in sides:
                side.core.access = None if number % 5 else Access()
            command = request(rng, store)
            assert await sides[0].reply(command) == await sides[1].reply(command), command
        if damaged == "nothing":
            assert sides[0].usual_count > 20
        for side in sides:
            side.search.close()
        store.close_abruptly()

    asyncio.run(test())


def asked_of(key, **changes):
    wanted = {"is_unique": False, "begin": None, "end": END_MS, "max_num": 64} | changes
    return KeyLookUp("Orders", key, **wanted)


def test_what_takes_more_than_the_usual_is_left_to_look_ups_in_pieces(tmp_path, monkeypatch):
    async def test():
        async with searching(tmp_path, config=LARGE) as (store, search):
            (first, *_) = send_many(store, 20)
            found = search.usual_by_key(asked_of("k0"))
            assert [each.physical_offset for each in records_of(found.body)] == [
                first.physical_offset
            ]
            assert search.usual_by_key(asked_of("none")) is None
            assert search.usual_by_key(asked_of("k0", end=1)) is None
            peer = Peer()
            assert search.turns.try_begin(peer)
            assert search.usual_by_key(asked_of("k0"), peer) is None, "another works"
            search.turns.end()
            assert search.usual_by_key(asked_of("k0"), peer) is not None
            with monkeypatch.context() as patched:
                patched.setattr(limits, "MAX_LOOP_CANDIDATES", 10)
                assert search.usual_by_key(asked_of("all")) is None
            with monkeypatch.context() as patched:
                patched.setattr(limits, "MAX_LOOP_LOOK_UP_BYTES", 1000)
                assert search.usual_by_key(asked_of("all")) is None
            assert search.usual_by_key(asked_of("all")).count == 20

    asyncio.run(test())
