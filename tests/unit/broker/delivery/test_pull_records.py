"""Records of a pull: the compiled kernel takes what the code for one record takes."""

import random

import pytest

from rocketlens.broker.delivery import pull_reader
from rocketlens.broker.delivery.pull_filter import ALL_MESSAGES, parse_filter
from rocketlens.broker.delivery.pull_reader import Budget, PullRecords
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES, FILLER_SIZE
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of
from tests.support.effort import sized

MANY = 1 << 40
WIDE = Budget(MANY, MANY, MANY, MANY, MANY, 0)
COUNT = 60


def collected(world, is_compiled, *, pull_filter=ALL_MESSAGES, budget=WIDE, start=0):
    """Everything that a pull gets from a queue, as comparable values."""
    queue = world.core.store.queues.get("Orders", 0)
    found = PullRecords(world.core.store, queue, pull_filter, budget, start)
    found._is_compiled &= is_compiled
    found.collect(queue.next_offset)
    content = b"".join(found.slices)
    assert len(content) == found.size_bytes
    return content, found.count, found.queue_offset, found.is_full, found.has_lost


async def fill(world):
    """Messages of two queues, by turns and in batches, over several segments."""
    for number in range(COUNT // 3):
        properties = properties_of(TAGS=f"Tag{number % 3}")
        await world.send(body=bytes(300 + number), properties=properties)
        await world.send(body=bytes(200), e=1)
        members = [(b"%d" % each, properties_of(TAGS=f"Tag{each}")) for each in range(2)]
        await world.send_batch(members, e=0)


def damage(world, rng):
    """Spoil some entries, and some bytes of the last segment."""
    queue = world.core.store.queues.get("Orders", 0)
    for _ in range(rng.randrange(6)):
        offset = rng.randrange(queue.next_offset)
        physical_offset, size, code = queue.entry(offset)
        change = rng.choice([
            (0, FILLER_SIZE, 0), (physical_offset + rng.choice([-1, 1, 7]), size, code),
            (physical_offset, size + rng.choice([-1, 1, 2**20]), code), (-1, -1, 0),
            (2**62, size, code), queue.entry(rng.randrange(queue.next_offset)),
        ])  # fmt: skip
        ENTRY.pack_into(queue.content, offset * ENTRY_BYTES, *change)
    appender = world.core.store._appender
    content, last = appender._content, appender.last
    for _ in range(rng.randrange(6)):
        position = rng.randrange(last.physical_offset % len(content))
        content[position] ^= 1 << rng.randrange(8)


@pytest.mark.parametrize("seed", range(sized(4, 12)))
@pytest.mark.broker(mappedFileSizeCommitLog=20_000)
async def test_what_is_taken_does_not_depend_on_the_kernel(world, seed):
    rng = random.Random(seed)
    await fill(world)
    if seed:
        damage(world, rng)
    end = world.core.store.end_offset
    for _ in range(40):
        limits = [rng.choice([1, 3, 8, 32, MANY]), rng.choice([1, 700, 5_000, MANY])]
        disk = [rng.choice([1, 700, 5_000, MANY]), rng.choice([1, 8, MANY])]
        budget = Budget(limits[0], limits[1], limits[0], *disk, rng.choice([0, end // 2, end]))
        subscription = rng.choice(["*", "Tag0", "Tag1 || Tag2", "absent"])
        pull_filter = parse_filter("TAG", subscription, with_sql92=False)
        start = rng.randrange(COUNT)
        given = {"pull_filter": pull_filter, "budget": budget, "start": start}
        by_kernel = collected(world, is_compiled=True, **given)
        assert by_kernel == collected(world, is_compiled=False, **given)


@within(in_broker, "tmp_path", mappedFileSizeCommitLog=20000)
async def test_records_of_several_segments_are_taken_in_order(world, /):
    await fill(world)
    assert len(list(world.core.store.layout.commit_log.iterdir())) > 1
    content, count, offset, is_full, has_lost = collected(world, is_compiled=True)
    assert (count, offset, is_full, has_lost) == (COUNT, COUNT, False, False)
    sizes = [record.total_size for record in world.stored("Orders")]
    assert len(content) == sum(sizes)


@within(in_broker, "tmp_path")
async def test_the_kernel_looks_at_the_records_of_a_queue(world, /, monkeypatch):
    await fill(world)
    looks = []
    read = pull_reader.entry_record
    monkeypatch.setattr(
        pull_reader, "entry_record", lambda *given: looks.append(given) or read(*given)
    )
    collected(world, is_compiled=True)
    assert not looks
    collected(world, is_compiled=False)
    assert len(looks) == COUNT


@within(in_broker, "tmp_path", mappedFileSizeCommitLog=20000)
async def test_messages_of_the_cleaner_s_segments_are_passed_over(world, /):
    await fill(world)
    store = world.core.store
    min(store.layout.commit_log.iterdir()).unlink()
    store._log.listed()
    for is_compiled in (True, False):
        _, count, offset, _, has_lost = collected(world, is_compiled)
        assert (0 < count < COUNT, offset, has_lost) == (True, COUNT, True)
