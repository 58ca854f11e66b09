"""A store that lives through anything, in any order, against a plain list of what it was given."""

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import rocketlens
from rocketlens.errors import MessageNotFound
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import BORN_HOST, QUIET, properties_of

CONFIG = StoreConfig(
    mappedFileSizeCommitLog=4_096,
    mappedFileSizeConsumeQueue=200,
    maxHashSlotNum=5,
    maxIndexNum=20,
    fileReservedTime=1,
    deleteWhen=";".join(map(str, range(24))),
    diskMaxUsedSpaceRatio=99,
    diskSpaceCleanForciblyRatio=99,
    diskSpaceWarningLevelRatio=100,
)
TOPICS = st.sampled_from(["Orders", "Refunds"])
QUEUES = st.integers(0, 1)
BODIES = st.binary(max_size=300)
HOURS_MS = 2 * 3_600_000


class Known(NamedTuple):
    """A message that the store was given."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes


class RunningStore(RuleBasedStateMachine):
    """Rules are what befalls a store; after each, one reader that was open all the time is asked.

    That a message is acknowledged does not depend on whether it was synced: processes are killed
    here, not machines.
    """

    def __init__(self):
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="running-store-"))
        self.now_ms = 0
        self.known: list[Known] = []
        self.gone: list[Known] = []
        self.next_number = 0
        self.reader = None

    @initialize()
    def begin(self):
        """Open an empty store, which a reader can only find once something is in it."""
        self.store = self.opened()
        self.send("Orders", 0, b"first", resend=False)
        self.reader = rocketlens.open_store(self.path)

    def opened(self):
        return MessageStore(self.path, CONFIG, QUIET, disk=QuickDisk(), clock=self.clock_ms)

    def clock_ms(self):
        return time.time_ns() // 1_000_000 + self.now_ms

    def number(self, *, resend):
        """Give the number of the next message, or of the one before once more."""
        if not resend:
            self.next_number += 1
        return self.next_number

    def learn(self, number, topic, queue_id, body, appended):
        self.known.append(
            Known(number, topic, queue_id, appended.queue_offset, appended.physical_offset, body)
        )

    @rule(topic=TOPICS, queue_id=QUEUES, body=BODIES, resend=st.booleans())
    def send(self, topic, queue_id, body, resend):
        number = self.number(resend=resend)
        properties = properties_of(number)
        appended = self.store.append(
            topic, queue_id, body, properties, BORN_HOST, born_timestamp_ms=1
        )
        self.learn(number, topic, queue_id, body, appended)

    @rule(topic=TOPICS, queue_id=QUEUES, bodies=st.lists(BODIES, min_size=1, max_size=5))
    def send_batch(self, topic, queue_id, bodies):
        numbers = [self.number(resend=False) for _ in bodies]
        members = [
            (0, body, properties_of(number)) for number, body in zip(numbers, bodies, strict=True)
        ]
        done = self.store.append_batch(topic, queue_id, members, BORN_HOST, born_timestamp_ms=1)
        for number, body, appended in zip(numbers, bodies, done, strict=True):
            self.learn(number, topic, queue_id, body, appended)

    @rule(topic=TOPICS)
    def roll(self, topic):
        for _ in range(12):
            self.send(topic, 0, b"x" * 300, resend=False)

    @rule()
    def flush(self):
        self.store.flush()

    @rule(at_most_bytes=st.sampled_from([500, 5_000, 1 << 20]))
    def build_index(self, at_most_bytes):
        self.store.flush_log()
        self.store.build_index(at_most_bytes=at_most_bytes)

    @rule()
    def restart(self):
        self.store.close()
        assert not (self.path / "abort").exists()
        self.store = self.opened()
        assert self.store.recovered.record_count == 0

    @rule()
    def kill(self):
        self.store.close_abruptly()
        self.store = self.opened()
        assert self.store.recovered.damage == []
        assert self.store.recovered.cut is None

    @rule()
    def expire(self):
        self.now_ms += HOURS_MS
        self.store.clean()
        low = self.store.min_offset
        self.gone += [each for each in self.known if each.physical_offset < low]
        self.known = [each for each in self.known if each.physical_offset >= low]

    @rule()
    def open_another_reader(self):
        self.reader.close()
        self.reader = rocketlens.open_store(self.path)

    @invariant()
    def every_question_is_answered_right(self):
        if self.reader is None:
            return
        # The newest, the oldest, one that is gone, and one that never was.
        for number in {self.next_number, self.next_number + 1, self.oldest, self.oldest - 1}:
            for topic in ("Orders", "Refunds"):
                self.check_key(topic, number)
        for known in (*self.known[:2], *self.known[-3:]):
            self.check_places(known)
        newest = [each.physical_offset for each in self.known][-3:]
        scanned = [message.physical_offset for message in self.reader.scan()]
        assert scanned[len(scanned) - len(newest) :] == newest

    @property
    def oldest(self):
        return self.known[0].number if self.known else 0

    def check_key(self, topic, number):
        # What a reader had open when it was deleted, it may go on to find.
        gone, expected = (
            [
                (each.physical_offset, each.body)
                for each in messages
                if (each.topic, each.number) == (topic, number)
            ]
            for messages in (self.gone, self.known)
        )
        for key in (f"k{number}", f"U{number:06}"):
            answer = self.reader.query_message(topic, key, None)
            found = [(m.physical_offset, m.body) for m in answer]
            assert found[len(found) - len(expected) :] == expected
            assert set(found) <= {*gone, *expected}
            assert found == sorted(set(found))
            assert answer.complete

    def check_places(self, known):
        by_queue = self.reader.query_by_queue_offset(
            known.topic, known.queue_id, known.queue_offset
        )
        by_id = self.reader.view_message(by_queue.offset_msg_id)
        for message in (by_queue, by_id):
            assert (message.physical_offset, message.body) == (known.physical_offset, known.body)
        with pytest.raises(MessageNotFound):
            self.reader.query_by_queue_offset(known.topic, known.queue_id + 7, 0)

    def teardown(self):
        if self.reader is not None:
            self.reader.close()
            with suppress(OSError):
                self.store.close_abruptly()
        shutil.rmtree(self.path)


def state_machine(examples, steps):
    case = RunningStore.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=steps, suppress_health_check=list(HealthCheck)
    )
    return case


class TestAStoreThatLivesThroughAnythingAnswersRight(state_machine(10, 25)):
    """Some hundred steps; ``test_...`` comes from Hypothesis."""


@pytest.mark.slow
def test_a_store_that_lives_through_fifty_thousand_things_answers_right():
    case = state_machine(500, 100)
    case("runTest").runTest()
