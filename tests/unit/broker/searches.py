"""A search of a store, and those who ask."""

from contextlib import asynccontextmanager

from rocketlens.broker.lookup.look_up import LookUp
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.store.write.message_store import StoreOptions
from tests.support.broker_world import records_of
from tests.support.written_stores import SMALL, STORE_HOST, open_small, send_many

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
    await put_away(search)


async def put_away(search):
    """Wait until the thread has put all its work away: it answers before, and keeps its lock."""
    await search.between_look_ups(lambda: None)
    with search.turns._working:
        pass


async def places(search, key):
    """Return where the messages of a key are."""
    found = await search.by_key(LookUp(MessageFilter("Orders", key=key, unique_key=key), 64))
    assert not found.failures
    return [record.physical_offset for record in records_of(found.body)]


async def assert_found(search, sent):
    """Look for messages."""
    for number, one in enumerate(sent):
        assert await places(search, f"k{number}") == [one.physical_offset]
        assert await places(search, f"U{number:06}") == [one.physical_offset]


@asynccontextmanager
async def searching_many(path, count):
    """Search in a store of ``count`` messages with the key ``all``, all of them in memory."""
    async with searching(path, config=LARGE, options=NO_BUILDER) as (store, search):
        sent = [one.physical_offset for one in send_many(store, count)]
        await read_all(search)
        yield store, search, sent


class Peer:
    """Who asks."""

    is_open = True


def start(search, peer, end=2**63 - 1):
    """Ask for the key that all messages have, as one of several; gives the future."""
    return search.by_key(LookUp(MessageFilter("Orders", key="all", end=end), 64), peer)


@asynccontextmanager
async def held_up(search):
    """Keep the threads from working, so that what is asked waits."""
    holder = Peer()
    assert search.turns.try_begin(holder)
    assert search.tag_turns.try_begin(holder)
    yield
    search.turns.end()
    search.tag_turns.end()
