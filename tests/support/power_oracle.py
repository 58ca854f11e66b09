"""What a store must answer after a power cut, and what asks it."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import rocketlens
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore
from tests.support import rocketmq_walk
from tests.support.failing_disks import RestartedDisk
from tests.support.rocketmq_walk import Stored
from tests.support.simulated_disk import PowerCut, SimDisk
from tests.support.written_stores import BORN_HOST, SMALL, STORE_HOST, content_of, open_small

ASKED = 6
"""So many acknowledged messages are asked for in every way, besides the newest one."""
MAX_NESTED = 3


@dataclass
class Expected:
    """One message as it was sent; where it went is known once the append returned."""

    number: int
    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    sys_flag: int = 0
    physical_offset: int = -1
    queue_offset: int = -1

    def is_of(self, record: Stored) -> bool:
        """Say whether a record of the log is this message, whole."""
        same = (record.topic, record.queue_id, record.body, record.properties) == (
            self.topic,
            self.queue_id,
            self.body,
            self.properties,
        )
        if self.physical_offset < 0:
            return same
        return (
            same
            and record.physical_offset == self.physical_offset
            and (record.queue_offset == self.queue_offset or not record.is_queued)
        )


@dataclass
class Oracle:
    """All that was sent, in order, how much of it was acknowledged, and what was deleted.

    ``durable``: so many messages were acknowledged. ``deleted``: for each topic below which
    physical offset its messages are gone from queues; ``deleting``: where that may be so or not.
    ``cleaned``: below it the log may be gone. ``with_holes``: nobody knows what was synced,
    so what was not acknowledged may be lacking or there, one by one. ``with_zeros``: properties
    have zeros, by which a message that was not acknowledged may be taken for torn or not.
    """

    sent: list[Expected] = field(default_factory=list)
    durable: int = 0
    deleted: dict[str, int] = field(default_factory=dict)
    deleting: dict[str, int] = field(default_factory=dict)
    cleaned: int = 0
    with_holes: bool = False
    with_zeros: bool = False

    def copy(self) -> "Oracle":
        """Give it as it is now."""
        return replace(
            self,
            sent=[replace(one) for one in self.sent],
            deleted=dict(self.deleted),
            deleting=dict(self.deleting),
        )

    def acknowledged(self) -> list[Expected]:
        """Messages that must be found."""
        return [one for one in self.sent[: self.durable] if one.physical_offset >= self.cleaned]

    def is_queue_sure(self, one: Expected) -> bool:
        """Say whether a message must be in its queue."""
        gone_below = max(self.deleted.get(one.topic, 0), self.deleting.get(one.topic, 0))
        return one.sys_flag & 0xC in (0, 8) and one.physical_offset >= gone_below


def send(
    store: MessageStore,
    oracle: Oracle,
    topic: str,
    queue_id: int,
    body: bytes,
    *,
    properties: bytes | None = None,
    sys_flag: int = 0,
) -> Expected:
    """Send a message, and note it before it is stored."""
    number = len(oracle.sent)
    if properties is None:
        named = {"UNIQ_KEY": f"U{number:06}", "KEYS": f"k{number} all", "TAGS": f"T{number % 3}"}
        properties = "".join(f"{name}\x01{value}\x02" for name, value in named.items()).encode()
    one = Expected(number, topic, queue_id, body, properties, sys_flag)
    oracle.sent.append(one)
    appended = store.append(
        topic, queue_id, body, properties, BORN_HOST, born_timestamp_ms=1, sys_flag=sys_flag
    )
    one.physical_offset, one.queue_offset = appended.physical_offset, appended.queue_offset
    return one


def send_batch(
    store: MessageStore, oracle: Oracle, topic: str, queue_id: int, bodies: list[bytes]
) -> None:
    """Send a batch, as `send`."""
    first = len(oracle.sent)
    made = [
        Expected(n, topic, queue_id, body, f"UNIQ_KEY\x01U{n:06}\x02KEYS\x01k{n}\x02".encode())
        for n, body in enumerate(bodies, first)
    ]
    oracle.sent += made
    appended = store.append_batch(
        topic,
        queue_id,
        [(0, one.body, one.properties) for one in made],
        BORN_HOST,
        born_timestamp_ms=1,
    )
    for one, there in zip(made, appended, strict=True):
        one.physical_offset, one.queue_offset = there.physical_offset, there.queue_offset


def acknowledge(store: MessageStore, oracle: Oracle, flush: Callable[[], None]) -> None:
    """Flush as SYNC_FLUSH does, and note what is acknowledged when the waiter is told."""
    count, told = len(oracle.sent), []
    if not count:
        return
    store.when_durable(store.end_offset, told.append)

    # Told in the middle of the flush, maybe before all of it has ended.
    def note() -> None:
        if told == [None]:
            oracle.durable = max(oracle.durable, count)

    oracle_event = _after_each_event(store, note)
    with oracle_event:
        flush()
    assert told == [None]
    note()


class _after_each_event:  # noqa: N801 - used as a function
    """Calls ``note`` before each event of the store's disk is looked at."""

    def __init__(self, store: MessageStore, note: Callable[[], None]) -> None:
        self.disk, self.note = store._disk, note
        self.before = self.disk.on_event

    def __enter__(self) -> None:
        def on_event(what: str) -> None:
            self.note()
            self.before(what)

        self.disk.on_event = on_event

    def __exit__(self, *_: object) -> None:
        self.disk.on_event = self.before


# Looking at what is left.


def check_image(
    image: Path, oracle: Oracle, randomness: random.Random, config: StoreConfig = SMALL
) -> None:
    """Look at an image as it is, recover it, and look again: nothing acknowledged may be lost.

    The image is used up.

    :raises AssertionError: when it is.
    """
    check_raw(image, oracle, randomness)
    straight = image.with_name(image.name + ".straight")
    is_nested = randomness.random() < 0.25
    if is_nested:
        shutil.copytree(image, straight)
        recover_with_cuts(image, randomness, config)
    recover(image, config)
    if is_nested:
        recover(straight, config)
        check_log_and_queues(straight, oracle)
        if not oracle.with_zeros:
            check_same(image, straight)
        shutil.rmtree(straight)
    check_log_and_queues(image, oracle)
    before = content_of(image)
    recover(image, config)
    assert content_of(image) == before, "recovering twice"
    check_goes_on(image, oracle, randomness, config)


def check_same(image: Path, straight: Path) -> None:
    """A recovery in which the power went ends as one in which it did not."""
    assert content_of(image, "commitlog") == content_of(straight, "commitlog"), "nested log"
    assert queues_of(image) == queues_of(straight), "nested queues"


def check_raw(image: Path, oracle: Oracle, randomness: random.Random) -> None:
    """Ask a reader that changes nothing: it finds what was acknowledged, or says "incomplete"."""
    wanted = some_of(oracle.acknowledged(), randomness)
    if not wanted or not any((image / "commitlog").iterdir()):
        assert not wanted, "the log is gone"
        return
    with rocketlens.open_store(image) as reader:
        for one in wanted:
            check_answers(reader, one, oracle, must_be_complete=False)
        for one in oracle.sent[oracle.durable :][:2]:
            for message in reader.query_message(one.topic, f"k{one.number}").messages:
                assert message.body == one.body, f"{one.number} in pieces"


def some_of(messages: list[Expected], randomness: random.Random) -> list[Expected]:
    """Choose a few, the newest among them."""
    return [*randomness.sample(messages, min(ASKED, len(messages))), *messages[-1:]]


def recover(image: Path, config: StoreConfig) -> None:
    """Open a store as after a power cut, and end it as if killed."""
    open_small(image, config, disk=RestartedDisk()).close_abruptly()


def recover_with_cuts(image: Path, randomness: random.Random, config: StoreConfig) -> None:
    """Recover a store while the power goes again and again."""
    for attempt in range(randomness.randint(1, MAX_NESTED)):
        cut_at = randomness.randint(1, 40)
        following = image.with_name(f"{image.name}.{attempt}")
        disk = SimDisk(image, boot_name=f"start {attempt}")

        def on_event(_: str, disk: SimDisk = disk, to: Path = following, at: int = cut_at) -> None:
            if disk.events == at:
                disk.image(to, randomness)
                raise PowerCut

        disk.on_event = on_event
        try:
            open_small(image, config, disk=disk).close_abruptly()
        except PowerCut:
            shutil.rmtree(image)
            following.rename(image)
        finally:
            disk.close()


def queues_of(image: Path) -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
    """Give all queues that have entries."""
    return {name: found for name, found in rocketmq_walk.queue_entries(image).items() if found}


def check_log_and_queues(image: Path, oracle: Oracle) -> list[Stored]:
    """Hold log and queues to what was sent: a prefix, whole, with all that was acknowledged."""
    records = rocketmq_walk.log_records(image, with_holes=oracle.with_holes)
    assert not records or records[0].physical_offset <= oracle.cleaned, "the log begins too late"
    there = set(matched(records, oracle))
    for one in oracle.sent[: oracle.durable]:
        is_there = one.number in there or 0 <= one.physical_offset < oracle.cleaned
        assert is_there, f"{one.number} is lost, {oracle.durable} of {len(oracle.sent)} are durable"
    check_queues(image, records, oracle)
    return records


def matched(records: list[Stored], oracle: Oracle) -> list[int]:
    """Give the number of each record's message: none is left out but what the cleaner took."""
    numbers: list[int] = []
    number = 0
    for record in records:
        gone_below = record.physical_offset
        if not oracle.with_holes:
            gone_below = min(gone_below, oracle.cleaned)
        while number < len(oracle.sent) and 0 <= oracle.sent[number].physical_offset < gone_below:
            number += 1
        assert number < len(oracle.sent), f"more than was sent: {record}"
        # Without its note a store cannot tell that a part of what was not synced is lacking.
        may_lack = oracle.with_holes and number >= oracle.durable
        assert may_lack or oracle.sent[number].is_of(record), f"{number} became {record}"
        numbers.append(number)
        number += 1
    return numbers


def check_queues(image: Path, records: list[Stored], oracle: Oracle) -> None:
    """Each record that has a queue is in it, and nothing else is there."""
    found = queues_of(image)
    first = records[0].physical_offset if records else 0
    wanted: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for record in records:
        if not record.is_queued or record.physical_offset < oracle.deleted.get(record.topic, 0):
            continue
        queue = wanted.setdefault((record.topic, record.queue_id), {})
        place = (record.physical_offset, record.size)
        if record.physical_offset < oracle.deleting.get(record.topic, 0):
            if found.get((record.topic, record.queue_id), {}).get(record.queue_offset) == place:
                queue[record.queue_offset] = place
            continue
        queue[record.queue_offset] = place
    there = {
        (*name, at, *place)
        for name, queue in found.items()
        for at, place in queue.items()
        if place[0] >= first
    }
    missing = {(*name, at, *place) for name, queue in wanted.items() for at, place in queue.items()}
    missing, extra = sorted(missing - there), sorted(there - missing)
    if oracle.with_holes:
        # What was lost in a hole can have left its entry; it is damage, and reported as that.
        offsets = {record.physical_offset for record in records}
        extra = [one for one in extra if one[3] in offsets]
    assert [missing, extra] == [[], []], f"queues lack {missing} and have {extra}"


def check_goes_on(
    image: Path, oracle: Oracle, randomness: random.Random, config: StoreConfig
) -> None:
    """Use the recovered store: what is sent is found, and the index has everything once."""
    records = rocketmq_walk.log_records(image, with_holes=oracle.with_holes)
    first = records[0].physical_offset if records else 0
    numbers = matched(records, oracle)
    later = oracle.copy()
    for number, record in zip(numbers, records, strict=True):
        one = later.sent[number]
        one.physical_offset, one.queue_offset = record.physical_offset, record.queue_offset
    del later.sent[numbers[-1] + 1 if numbers else 0 :]
    later.durable = 0
    with open_small(image, config, disk=RestartedDisk()) as store:
        for topic in ("Orders", "After"):
            send(store, later, topic, 1, randomness.randbytes(200))
    later.durable = 0 if later.with_holes else len(later.sent)
    records = check_log_and_queues(image, later)
    there = {record.physical_offset for record in records}
    pairs = rocketmq_walk.index_pairs(image, config.geometry.slot_count)
    found = Counter(pair for pair in pairs if pair[1] >= first)
    expected = Counter(
        (one, record.physical_offset) for record in records for one in record.hashes()
    )
    lacking, extra = expected - found, found - expected
    assert found == expected, f"the index lacks {dict(lacking)}, and has {dict(extra)}"
    with rocketlens.open_store(image) as reader:
        in_doubt = range(oracle.durable, numbers[-1] + 1 if numbers else 0)
        # Nothing tells readers that a sector of properties is lacking, so a message that was not
        # acknowledged may be there without its ids: then it is not found by them.
        torn = {
            record.physical_offset
            for number, record in zip(numbers, records, strict=False)
            if number in in_doubt and record.properties != later.sent[number].properties
        }
        kept = [o for o in later.sent if o.physical_offset in there - torn]
        for one in some_of(kept, randomness):
            # Without its note a store cannot tell a torn record from a damaged one: it stays.
            is_in_doubt = oracle.with_holes and one.number in in_doubt
            check_answers(reader, one, later, must_be_complete=not is_in_doubt)
        everything = reader.query_message(None, "all", max_num=None)
        named = [r for r in records if "all" in r.named().get("KEYS", "") and r.hashes()]
        sure = (
            {one.physical_offset for one in oracle.acknowledged()} if oracle.with_holes else there
        )
        found_offsets = [m.physical_offset for m in everything.messages]
        assert [offset for offset in found_offsets if offset in sure] == [
            one.physical_offset for one in named if one.physical_offset in sure
        ], "all of a key"


def check_answers(
    reader: "rocketlens.Store", one: Expected, oracle: Oracle, *, must_be_complete: bool
) -> None:
    """Ask for a message by each of its ids, by its key and by its place in its queue."""
    for name, ask in _questions(reader, one, oracle, must_be_complete=must_be_complete):
        try:
            found = ask()
        except (AnswerIncomplete, MessageNotFound) as error:
            if must_be_complete or isinstance(error, MessageNotFound):
                raise AssertionError(f"{one.number} by {name}: {error}") from error
            continue
        assert found == [(one.physical_offset, one.body)], f"{one.number} by {name}: {found}"


def _questions(
    reader: "rocketlens.Store", one: Expected, oracle: Oracle, *, must_be_complete: bool
) -> Iterator[tuple[str, Callable[[], list[tuple[int, bytes]]]]]:
    offset_id = OffsetMessageId(STORE_HOST, one.physical_offset).encode()

    def by_id(text: str) -> list[tuple[int, bytes]]:
        message = reader.view_message(text)
        return [(message.physical_offset, message.body)]

    def by_key() -> list[tuple[int, bytes]]:
        answer = reader.query_message(one.topic, f"k{one.number}")
        if not answer.messages:
            if answer.complete:
                raise MessageNotFound("complete")
            raise AnswerIncomplete("incomplete", answer)
        return [(message.physical_offset, message.body) for message in answer.messages]

    def by_queue() -> list[tuple[int, bytes]]:
        message = reader.query_by_queue_offset(one.topic, one.queue_id, one.queue_offset)
        return [(message.physical_offset, message.body)]

    yield "offset id", lambda: by_id(offset_id)
    if one.sys_flag & 0xC != 0xC:
        # As in RocketMQ, what was rolled back has no key.
        yield "unique key", lambda: by_id(f"U{one.number:06}")
        yield "key", by_key
    # Until it is recovered, the disk may have the queue of a deleted topic under its name.
    is_settled = must_be_complete or one.topic not in {*oracle.deleted, *oracle.deleting}
    if is_settled and oracle.is_queue_sure(one):
        yield "queue offset", by_queue
