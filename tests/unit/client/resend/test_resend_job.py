"""A job sends each message once, wherever it was ended before.

The dead letters that a job sends, in an order that two looks at them share.
"""

import asyncio
import errno
import logging
from types import SimpleNamespace

import pytest

from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.resend.dead_letters import plan_dead_letters
from rocketlens.client.resend.resend_job import (
    MARKER,
    ResendJob,
    Target,
    check_targets,
    copy_of,
    plan_message,
    producer_options,
)
from rocketlens.client.resend.resend_journal import (
    FAILED,
    SENT,
    UNKNOWN,
    EarlierSend,
    JobHeader,
    ResendJournal,
)
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.errors import (
    BadInput,
    BrokerError,
    CallTimeout,
    ConnectFailed,
    MessageNotFound,
    SendFailed,
    TopicNotFound,
)
from rocketlens.testing import cluster
from tests.support.async_tests import within
from tests.support.failing_disks import QuickDisk
from tests.support.fake_cluster import T0, ask

COUNT = 3
NOW_S = 1_000_000.0
TOPIC = "%DLQ%g"


def stored(number, **changes):
    fields = {
        "topic": "T",
        "queue_id": 0,
        "queue_offset": number,
        "offset_msg_id": f"id-{number}",
        "unique_key": f"U{number}",
        "msg_id": f"U{number}",
        "body": b"%d" % number,
        "body_error": None,
        "flag": 0,
        "properties": {"UNIQ_KEY": f"U{number}", "WAIT": "false", "colour": "red"},
    }
    return SimpleNamespace(**{**fields, **changes})


class World:
    """A cluster with some messages: what was sent to it, and how it answers."""

    def __init__(self):
        self.messages = {f"id-{n}": stored(n) for n in range(1, COUNT + 1)}
        self.copies = []
        self.send_error = None
        self.stores_all_the_same = False
        self.find_is_complete = True
        self.source = SimpleNamespace(full_topic=lambda topic: topic)

    async def view_message(self, msg_id):
        """Return a message."""
        try:
            return self.messages[msg_id]
        except KeyError:
            raise MessageNotFound(msg_id) from None

    async def find(self, key, topic, *, kind):
        """Return the copies with a unique key."""
        assert kind == "unique-key"
        found = [
            SimpleNamespace(properties=each.properties, msg_id=key, offset_msg_id=f"copy-{n}")
            for n, each in enumerate(self.copies)
            if (each.topic, each.unique_key) == (topic, key)
        ]
        failed = SimpleNamespace(is_failure=True, source="broker-b", error="refused")
        return SimpleNamespace(
            messages=found if self.find_is_complete else [],
            complete=self.find_is_complete,
            truncated=False,
            coverage=() if self.find_is_complete else (failed,),
        )

    async def send(self, message):
        """Store a copy, or fail."""
        if self.send_error is None or self.stores_all_the_same:
            self.copies.append(message)
        if self.send_error is not None:
            raise self.send_error
        return SimpleNamespace(msg_id=message.unique_key, offset_msg_id=f"copy-{len(self.copies)}")


HEADER = JobHeader(
    job="job",
    count=COUNT,
    selection="ids",
    target="their topics",
    cluster="c:9876",
    namespace="",
    reason="they were lost",
    user="me",
    time="now",
)


def make(path, world, disk=None):
    plan = [plan_message(each, Target(), str) for each in world.messages.values()]
    return ResendJournal.create(path, HEADER, plan, disk or QuickDisk())


def run(journal, world, *, now_s=NOW_S, slept=None, **options):
    async def sleep(seconds):
        (slept if slept is not None else []).append(seconds)

    async def run_all():
        job = ResendJob(
            journal,
            world,
            world,
            rate=options.pop("rate", 1000),
            wall_clock=lambda: now_s,
            clock=lambda: 0.0,
            sleep=sleep,
            **options,
        )
        return [each async for each in job.run()]

    return [(each.number, each.outcome.state) for each in asyncio.run(run_all())]


def markers(world):
    return sorted(each.properties[MARKER] for each in world.copies)


ALL = [f"job/{n}" for n in range(1, COUNT + 1)]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.job"


def test_each_is_sent_once_with_an_audit_line(path, world, caplog):
    caplog.set_level(logging.INFO, "rocketlens.audit")
    slept = []
    with make(path, world) as journal:
        assert run(journal, world, slept=slept, rate=10) == [(n, SENT) for n in (1, 2, 3)]
        assert run(journal, world) == []
    assert markers(world) == ALL
    assert slept == pytest.approx([0.1, 0.2])
    said = caplog.text
    assert "they were lost" in said
    assert "of me begins" in said
    assert "ends: ids; 3 messages to c:9876: 3 sent, 0 failed, 0 unknown, 0 left" in said
    assert path.read_text().count('"audit"') == 4


def test_messages_can_be_read_from_elsewhere(path, world):
    elsewhere, world.messages = world.messages, {}

    async def read(message):
        return elsewhere[message.offset_msg_id]

    plan = [plan_message(each, Target(), str) for each in elsewhere.values()]
    with ResendJournal.create(path, HEADER, plan, QuickDisk()) as journal:
        assert run(journal, world, read=read) == [(n, SENT) for n in (1, 2, 3)]
    assert markers(world) == ALL


def test_wherever_the_file_is_cut_nothing_is_sent_twice_or_lost(path, world):
    with make(path, world) as journal:
        begun = path.stat().st_size
        run(journal, world)
    content = path.read_bytes()
    for size in range(begun, len(content)):
        cut = content[:size]
        whole = cut[: cut.rfind(b"\n") + 1]
        begins = [b'{"n":%d,"sending"' % n in whole for n in range(1, COUNT + 1)]
        ends = [b'{"n":%d,"sent"' % n in whole for n in range(1, COUNT + 1)]
        open_ones = sum(begins) - sum(ends)
        for was_stored in (False, True) if open_ones else (True,):
            again = World()
            sent = sum(begins) if was_stored else sum(ends)
            again.copies = world.copies[:sent]
            path.write_bytes(cut)
            with ResendJournal.resume(path, QuickDisk()) as journal:
                run(journal, again, now_s=NOW_S + 60)
                assert journal.counts()[SENT] == COUNT
            assert markers(again) == ALL


def test_what_cannot_be_looked_up_is_left_and_reported(path, world):
    world.send_error = SendFailed("x", [("broker-a", CallTimeout("a", "no answer"))])
    world.stores_all_the_same = True
    with make(path, world) as journal:
        assert run(journal, world) == [(n, UNKNOWN) for n in (1, 2, 3)]
        world.send_error, world.find_is_complete = None, False
        assert run(journal, world) == [(n, UNKNOWN) for n in (1, 2, 3)]
        assert "broker-b: refused" in journal.outcome(1).value
        assert markers(world) == ALL
        world.find_is_complete = True
        slept = []
        assert run(journal, world, slept=slept) == [(n, SENT) for n in (1, 2, 3)]
        assert slept == [10.0] * 3
    assert markers(world) == ALL


def test_only_if_it_is_allowed_an_unknown_one_is_sent_again(path, world):
    world.send_error = SendFailed("x", [("broker-a", CallTimeout("a", "no answer"))])
    world.stores_all_the_same = True
    with make(path, world) as journal:
        run(journal, world)
        world.find_is_complete, world.stores_all_the_same = False, False
        world.send_error = SendFailed("x", [("broker-a", ConnectFailed("a", "refused"))])
        # This attempt surely stored nothing; the first one may have.
        allowed = run(journal, world, resend_unknown=True)
        assert allowed == [(n, UNKNOWN) for n in (1, 2, 3)]
        world.send_error = None
        assert run(journal, world, resend_unknown=True) == [(n, SENT) for n in (1, 2, 3)]
    assert markers(world) == sorted(ALL * 2)


@pytest.mark.parametrize(
    "error",
    [
        BrokerError("a", 16, "no permission", retriable=False),
        SendFailed("x", [("broker-a", ConnectFailed("a", "refused"))]),
    ],
)
def test_what_surely_failed_is_sent_when_the_job_is_resumed(path, world, error):
    world.send_error = error
    with make(path, world) as journal:
        assert run(journal, world) == [(n, FAILED) for n in (1, 2, 3)]
        world.send_error, world.find_is_complete = None, False
        assert run(journal, world) == [(n, SENT) for n in (1, 2, 3)]
    assert markers(world) == ALL


def test_a_message_that_is_not_there_or_another_one_is_not_sent(path, world):
    with make(path, world) as journal:
        del world.messages["id-1"]
        world.messages["id-2"] = stored(7)
        assert run(journal, world) == [(1, FAILED), (2, FAILED), (3, SENT)]
        assert "no longer the planned message" in journal.outcome(2).value
    assert markers(world) == ["job/3"]


def test_a_run_ends_if_message_after_message_fails(path, world):
    world.messages = {f"id-{n}": stored(n) for n in range(30)}
    plan = [plan_message(each, Target(), str) for each in world.messages.values()]
    header = JobHeader(**{name: getattr(HEADER, name) for name in HEADER.__slots__} | {"count": 30})
    world.send_error = BrokerError("a", 16, "no permission", retriable=False)
    with ResendJournal.create(path, header, plan, QuickDisk()) as journal:
        assert len(run(journal, world)) == 10
        assert journal.counts() == {SENT: 0, FAILED: 10, UNKNOWN: 0, "left": 20}


class FailingAppends(QuickDisk):
    """One of the appends fails, with half of its line written."""

    def __init__(self, fails_at):
        self.left = fails_at

    def append_durably(self, path, content):
        """Write, or fail."""
        self.left -= 1
        if self.left == 0:
            super().append_durably(path, content[: len(content) // 2])
            raise OSError(errno.EIO, "Input/output error", str(path))
        super().append_durably(path, content)


def test_each_write_may_fail(path):
    writes = 2 + 2 * COUNT
    for fails_at in range(1, writes + 1):
        world = World()
        with make(path, world, FailingAppends(fails_at)) as journal:
            with pytest.raises(OSError, match="Input/output"):
                run(journal, world)
            # The first line is the audit's, then there are two for each message.
            assert len(world.copies) == (fails_at - 1) // 2
        with ResendJournal.resume(path, QuickDisk()) as journal:
            run(journal, world, now_s=NOW_S + 60)
        assert markers(world) == ALL
        path.unlink()


def test_the_copy_in_a_retry_topic_is_one_that_the_group_had():
    dead = stored(
        1,
        topic="%DLQ%g",
        properties={
            "UNIQ_KEY": "U1",
            "KEYS": "k1 k2",
            "TAGS": "A",
            "WAIT": "false",
            "DELAY": "5",
            "RETRY_TOPIC": "Orders",
            "ORIGIN_MESSAGE_ID": "first",
            "RECONSUME_TIME": "16",
        },
    )
    copy = copy_of(dead, "%RETRY%g", "j/1")
    assert copy.properties == {
        "UNIQ_KEY": "U1",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "WAIT": "true",
        MARKER: "j/1",
        "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": "first",
        "RECONSUME_TIME": "0",
    }
    copy = copy_of(dead, "Orders", "j/1")
    assert copy.topic == "Orders"
    assert not {"RETRY_TOPIC", "RECONSUME_TIME", "DELAY"} & copy.properties.keys()
    plain = copy_of(stored(2, properties={}), "%RETRY%g", "j/1")
    assert plain.properties["RETRY_TOPIC"] == "T"
    assert plain.properties["ORIGIN_MESSAGE_ID"] == "id-2"
    assert plain.unique_key
    with pytest.raises(BadInput, match="transaction"):
        copy_of(stored(1, properties={"TRAN_MSG": "true"}), "T", "j/1")


def test_targets(path, world):
    dead = stored(1, topic="%DLQ%g", properties={"RETRY_TOPIC": "Orders"})
    for target, topic, said in (
        (Target(), "ns%%DLQ%g", "their topics"),
        (Target(topic="X"), "ns%X", "topic X"),
        (Target(group="g"), "ns%%RETRY%g", "group g alone"),
        (Target(original=True), "ns%Orders", "first consumed from"),
    ):
        assert plan_message(dead, target, lambda name: f"ns%{name}").target == topic
        assert said in str(target)
    world.messages = {f"id-{n}": stored(n) for n in range(1, COUNT + 1)}
    plan = [plan_message(each, Target(original=True), str) for each in world.messages.values()]
    with ResendJournal.create(path, HEADER, plan, QuickDisk()) as journal:
        assert run(journal, world) == [(n, FAILED) for n in (1, 2, 3)]
        assert "RETRY_TOPIC" in journal.outcome(1).value


def test_with_a_broker_each_step_can_be_the_last(path):
    with cluster() as rocketmq:
        with rocketmq.producer() as producer:
            ids = [
                producer.send(Message("T", f"{n}", keys="k")).offset_msg_id for n in range(COUNT)
            ]

        async def scenario():
            async with (
                MQAdmin(rocketmq.name_server) as admin,
                Producer(rocketmq.name_server, **producer_options()) as sender,
            ):
                found = [await admin.view_message(each) for each in ids]
                plan = [plan_message(each, Target(), admin.source.full_topic) for each in found]
                await check_targets(admin, plan)
                for missing in ("Nowhere", "%RETRY%nobody"):
                    with pytest.raises(TopicNotFound, match=missing.removeprefix("%RETRY%")):
                        await check_targets(
                            admin, [plan_message(found[0], Target(topic=missing), str)]
                        )
                ResendJournal.create(path, HEADER, plan).close()
                finished = False
                while not finished:
                    finished = True
                    with ResendJournal.resume(path) as journal:
                        job = ResendJob(
                            journal, admin, sender, rate=1000, wall_clock=lambda: NOW_S, sleep=wake
                        )
                        async for _ in job.run():
                            finished = False
                            break
                    # As if the process was killed before it could write what it knew.
                    if not finished:
                        lines = path.read_bytes().splitlines(keepends=True)
                        if b'"sent"' in lines[-1] and b'"key"' in lines[-2]:
                            path.write_bytes(b"".join(lines[:-1]))
                return await admin.find("k", "T", kind="key")

        async def wake(_):
            pass

        answer = asyncio.run(scenario())
    copies = [each for each in answer.messages if MARKER in each.properties]
    assert sorted(each.properties[MARKER] for each in copies) == ALL
    assert sorted(each.body for each in copies) == [b"0", b"1", b"2"]


def test_where_one_message_goes_is_said_of_one():
    assert (Target().words(1), str(Target())) == ("its topic", "their topics")
    one = Target(original=True).words(1)
    assert one == "the topic that it was first consumed from"
    assert Target(topic="T").words(1) == Target(topic="T").words(3) == "topic T"


@within(ask, masters=3)
async def test_a_plan_has_the_letters_of_all_queues_and_brokers_in_the_order_of_their_times(
    cluster, admin, /
):
    cluster.name_servers[0].topics[TOPIC] = [each.name for each in cluster.masters]
    stored = []
    for number in range(40):
        broker = cluster.masters[number % 3]
        broker.now_ms = T0 + number - broker.step_ms
        stored.append(broker.store(TOPIC, b"%d" % number, queue_id=number % 4))
    expected = [each.offset_msg_id for each in stored]
    sent = {each: EarlierSend(HEADER, 1, 0) for each in expected[:3]}
    for earlier, most in (({}, 100), (sent, 100), ({}, 7)):
        letters = await plan_dead_letters(
            admin, "g", Target(group="g"), earlier=earlier, max_num=most
        )
        wanted = [each for each in expected if each not in earlier]
        assert [each.offset_msg_id for each in letters.messages] == wanted[-most:]
        assert len(letters.skipped) == len(earlier)
        assert (letters.older, letters.again, letters.is_cut) == (0, [], len(wanted) > most)


@within(ask)
async def test_of_several_records_of_a_message_the_newest_is_sent_unless_a_job_has_sent_it(
    cluster, admin, /
):
    """U1 failed again after job/1 sent it; U2 was sent; U3 failed twice and was never sent."""
    (broker,) = cluster.masters
    cluster.name_servers[0].topics[TOPIC] = [broker.name]

    def store(key, **more):
        return broker.store(TOPIC, unique_key=key, more=more).offset_msg_id

    store("U1"), store("U2"), store("U3")
    again, newest = store("U1", **{MARKER: "job/1"}), store("U3")
    sends = {f"U{n}": EarlierSend(HEADER, n, n) for n in (1, 2)}
    options = {"target": Target(group="g"), "max_num": 9}
    letters = await plan_dead_letters(admin, "g", earlier=sends, **options)
    assert [each.offset_msg_id for each in letters.messages] == [again, newest]
    assert (letters.older, letters.again) == (1, [sends["U1"]])
    assert letters.skipped == [sends["U2"]]
    every = await plan_dead_letters(admin, "g", earlier={}, **options)
    assert ([each.unique_key for each in every.messages], every.older) == (["U2", "U1", "U3"], 2)
    first = await plan_dead_letters(admin, "g", earlier={}, **{**options, "max_num": 1})
    assert ([each.offset_msg_id for each in first.messages], first.is_cut) == ([newest], True)
    chosen = await plan_dead_letters(admin, "g", earlier=sends, only=[newest], **options)
    assert [each.offset_msg_id for each in chosen.messages] == [newest]
