"""Records of a pull: the compiled kernel takes what the code for one record takes.

Which messages a pull gets.
"""

import random

import pytest

from rocketlens.broker.delivery import pull_filter, pull_reader
from rocketlens.broker.delivery.pull_filter import (
    ALL_MESSAGES,
    PullFilter,
    PullRefused,
    parse_filter,
)
from rocketlens.broker.delivery.pull_reader import Budget, PullRecords
from rocketlens.formats import commitlog_record
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES, FILLER_SIZE, QueueEntry
from rocketlens.model.text.java import string_hash
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
            (physical_offset, size, -(2**63) + offset), (physical_offset, size, -(2**31)),
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
    store._log.list_segments()
    for is_compiled in (True, False):
        _, count, offset, _, has_lost = collected(world, is_compiled)
        assert (0 < count < COUNT, offset, has_lost) == (True, COUNT, True)


def parse(kind, expression, *, with_sql92=True):
    return pull_filter.parse_filter(kind, expression, with_sql92=with_sql92)


def entry(tag):
    return QueueEntry(0, 100, string_hash(tag))


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_everything_passes_without_tags(expression):
    assert parse("TAG", expression) is ALL_MESSAGES
    assert ALL_MESSAGES.passes_entry(entry("any"))


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_tags_pass_by_their_hash_codes(kind):
    parsed = parse(kind, " A ||B|| ")
    assert [parsed.passes_entry(entry(tag)) for tag in ("A", "B", "C", "")] == [
        True,
        True,
        False,
        False,
    ]
    # An address in consumequeue_ext says nothing of the tags.
    assert parse(kind, "A").passes_entry(QueueEntry(0, 100, -(2**63) + 20))
    # These two have one hash code.
    assert parse(kind, "Aa").passes_entry(entry("BB"))


def test_a_tags_code_that_is_no_hash_code_is_cut_to_32_bits():
    assert PullFilter(frozenset({-1})).passes_entry(QueueEntry(0, 100, 2**32 - 1))


def test_equal_subscriptions_are_equal_filters():
    assert parse("TAG", "A || B") == parse(None, "B||A")
    assert hash(parse("TAG", "A || B")) == hash(parse(None, "B||A"))


@pytest.mark.parametrize(
    ("kind", "expression", "code"),
    [
        ("TAG", " || ", 23),
        ("TAG", "A" * 32_768, 23),
        ("OTHER", "A", 1),
        ("SQL92", "", 23),
        ("SQL92", None, 23),
        ("SQL92", "a >", 23),
    ],
)
def test_what_cannot_be_used_is_refused(kind, expression, code):
    with pytest.raises(PullRefused) as refused:
        parse(kind, expression)
    assert refused.value.code == code


def test_an_expression_passes_by_properties(make_record):
    def record(**properties):
        raw = properties_of(**properties).encode()
        return memoryview(commitlog_record.encode(make_record(0, properties=raw)))

    parsed = parse("SQL92", "a > 5 AND TAGS = 'x'")
    assert parsed.passes_entry(entry("any"))
    assert not parsed.is_all
    assert parsed == parse("SQL92", "a > 5 AND TAGS = 'x'")
    for properties, passes in (
        ({"a": "6", "TAGS": "x"}, True),
        ({"a": "5", "TAGS": "x"}, False),
        ({"a": "six", "TAGS": "x"}, False),
        ({}, False),
    ):
        assert parsed.passes_record(record(**properties)) is passes
    assert ALL_MESSAGES.passes_record(record())


def test_a_long_expression_is_evaluated_for_fewer_messages_at_once():
    short, long = parse("SQL92", "a = 5"), parse("SQL92", "a = 5 OR " * 900 + "a = 6")
    assert pull_filter.ENTRIES_PER_PULL > short.entries_at_once > long.entries_at_once >= 16


def test_expressions_are_refused_where_they_are_not_allowed():
    with pytest.raises(PullRefused) as refused:
        parse("SQL92", "a = 5", with_sql92=False)
    words = "The broker does not support consumer to filter message by SQL92"
    assert (refused.value.code, refused.value.remark) == (1, words)
