"""Messages with a delivery time of their own come when they are due, each once, and in order."""

import random
from contextlib import asynccontextmanager

import pytest

from rocketlens.broker.delivery import timers as timers_module
from rocketlens.broker.delivery.timers import ROLL_WINDOW_MS, out_time_ms, slot_ms
from rocketlens.errors import MessageIllegal, StoreFailed, StoreFull
from rocketlens.formats import timer_checkpoint
from rocketlens.formats.commitlog_record import decode
from rocketlens.formats.timer_checkpoint import TimerCheckpoint
from rocketlens.model import properties as props
from tests.support import broker_world
from tests.support.broker_world import NOW_MS, Clock, properties_of

TIMERS = "rmq_sys_wheel_timer"
DAY_MS = 86_400_000


@asynccontextmanager
async def running(directory, **named):
    """Run a broker without its periodic work: what a test does decides."""
    async with broker_world.running(directory, **named) as world:
        world.service._cancel_timers()
        yield world


@pytest.fixture
async def world(request, tmp_path):
    async with running(tmp_path, **broker_world.settings_of_test(request)) as world:
        yield world


def deliver(world, at_once=10_000):
    """Read and deliver without waiting for the broker's own timer; returns what was delivered."""
    before = len(world.stored("Orders", 1))
    while world.core.timers.step(at_once):
        pass
    return [record.body for record in world.stored("Orders", 1)[before:]]


async def send_at(world, body, deliver_ms, **named):
    answer = await world.send(
        body=body, e=1, properties=properties_of(TIMER_DELIVER_MS=deliver_ms, **named)
    )
    assert answer.code == 0, answer.remark
    return answer


async def test_a_message_comes_when_its_second_is_over_and_not_before(world):
    await send_at(world, b"later", NOW_MS + 10_000)
    await send_at(world, b"soon", NOW_MS + 1_500, KEYS="k")
    assert (await world.query("k")).code == 22
    assert (await world.query("k", TIMERS)).code == 0
    for now_ms in (NOW_MS, NOW_MS + 1_500, NOW_MS + 1_999):
        world.clock.now_ms = now_ms
        assert deliver(world) == []
    world.clock.now_ms = NOW_MS + 2_000
    assert deliver(world) == [b"soon"]
    assert (await world.query("k")).code == 0
    world.clock.now_ms = NOW_MS + 9_999
    assert deliver(world) == []
    world.clock.now_ms = NOW_MS + 10_000
    assert deliver(world) == [b"later"]


async def test_it_has_the_properties_that_rocketmq_gives_it(world):
    answer = await world.send(
        body=b"body",
        e=1,
        properties=properties_of(TIMER_DELAY_SEC=3, KEYS="sec", TAGS="A", UNIQ_KEY="KEY"),
    )
    assert answer.ext_fields["queueId"] == "1"
    assert answer.ext_fields["recallHandle"]
    world.clock.now_ms += 3_007
    assert deliver(world) == [b"body"]
    (record,), (waited,) = world.stored("Orders", 1), world.stored(TIMERS)
    before = properties_of(
        TIMER_DELAY_SEC=3,
        TIMER_OUT_MS=NOW_MS + 2_000,
        MSG_REGION="DefaultRegion",
        UNIQ_KEY="KEY",
        CLUSTER="DefaultCluster",
        TAGS="A",
        KEYS="sec",
        TRACE_ON="true",
        REAL_TOPIC="Orders",
        REAL_QID=1,
    )
    assert waited.properties.decode() == before
    after = before.replace("TAGS", f"TIMER_ENQUEUE_MS\x01{NOW_MS}\x02TAGS")
    after = after.replace("REAL_TOPIC", f"TIMER_DEQUEUE_MS\x01{NOW_MS + 3_007}\x02REAL_TOPIC")
    assert record.properties.decode() == after
    assert record.born_host == waited.born_host
    assert record.born_timestamp_ms == waited.born_timestamp_ms


@pytest.mark.parametrize(
    ("named", "topic"),
    [
        ({"TIMER_DELIVER_MS": NOW_MS - 4_000}, "Orders"),
        ({"TIMER_DELAY_SEC": 0}, "Orders"),
        ({"TIMER_OUT_MS": NOW_MS + 3_000, "TIMER_DELAY_SEC": 3}, "Orders"),
        ({"DELAY": 2, "TIMER_DELAY_SEC": 3, "TIMER_DELAY_MS": 4}, "SCHEDULE_TOPIC_XXXX"),
    ],
)
async def test_what_need_not_wait_is_stored_at_once_and_a_delay_level_counts_more(
    world, named, topic
):
    answer = await world.send(e=1, properties=properties_of(**named))
    assert "recallHandle" not in answer.ext_fields
    (record,) = world.stored(topic, 1)
    kept = props.parse(record.properties.decode())
    assert bool(props.TIMER_NAMES & kept.keys()) is (topic == "Orders" and "DELAY" not in named)
    assert world.stored(TIMERS) == []


async def test_flags_of_a_transaction_decide_as_in_rocketmq(world):
    topics = {}
    for sys_flag in (4, 8, 12):
        answer = await world.send(f=sys_flag, properties=properties_of(TIMER_DELAY_SEC=3))
        offset = int(answer.ext_fields["msgId"][16:], 16)
        topics[sys_flag] = decode(world.core.store.record(offset, 0)).topic
    assert topics == {4: "Orders", 8: TIMERS, 12: "Orders"}


async def test_a_batch_with_a_delivery_time_is_refused_and_its_members_times_do_not_count(world):
    sent = properties_of(TIMER_DELAY_SEC=3)
    refused = await world.send_batch([(b"1", ""), (b"2", "")], i=sent)
    assert (refused.code, world.core.store.end_offset) == (13, 0)
    assert (await world.send_batch([(b"1", sent), (b"2", sent)])).code == 0
    assert [each.body for each in world.stored("Orders")] == [b"1", b"2"]


@pytest.mark.broker(timerWheelEnable=False)
async def test_where_they_are_switched_off_a_message_with_a_time_is_refused(world):
    answer = await world.send(properties=properties_of(TIMER_DELAY_SEC=3))
    words = "accurate timer message is not enabled, timerWheelEnable is false"
    assert (answer.code, answer.remark) == (1, words)


async def test_more_than_are_kept_are_refused(world, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.delivery.timers.MAX_WAITING_TIMERS", 2)
    for _ in range(2):
        await send_at(world, b"", NOW_MS + 5_000)
    answer = await world.send(properties=properties_of(TIMER_DELAY_SEC=3))
    assert answer.code == 1
    assert "timer message is under flow control, max num limit is 2" in answer.remark
    world.clock.now_ms += 5_000
    assert len(deliver(world)) == 2
    await send_at(world, b"", NOW_MS + 15_000)


async def test_a_deletion_deletes_what_is_due_in_the_same_second_in_any_topic(world):
    due_ms = NOW_MS + 5_200
    await send_at(world, b"deleted", due_ms, UNIQ_KEY="A1")
    await send_at(world, b"kept", due_ms, UNIQ_KEY="A2")
    await world.send("Other", b"", properties_of(TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY="A1"))
    await send_at(world, b"", due_ms + 1_000, TIMER_DEL_UNIQKEY="A2")
    world.clock.now_ms += 20_000
    assert deliver(world) == [b"kept"]
    assert world.stored("Other") == []


async def test_messages_come_in_the_order_of_their_times(tmp_path):
    clock, rng = Clock(), random.Random(3)
    seconds = [rng.randrange(1, 60) for _ in range(200)]
    expected = [b"%d" % second for second in sorted(seconds)]
    async with running(tmp_path, clock=clock) as world:
        for second in seconds[:120]:
            await send_at(world, b"%d" % second, NOW_MS + second * 1_000)
        clock.now_ms = NOW_MS + 500
        assert deliver(world) == []
    async with running(tmp_path, clock=clock) as world:
        for second in seconds[120:]:
            await send_at(world, b"%d" % second, NOW_MS + second * 1_000)
        clock.now_ms = NOW_MS + 60_000
        assert deliver(world, at_once=7) == expected


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_restart_or_a_kill_loses_nothing_and_delivers_nothing_twice(tmp_path, is_killed):
    clock, rng = Clock(), random.Random(11)
    sent, due, delivered = 0, {}, []
    for _ in range(12):
        async with running(tmp_path, clock=clock) as world:
            delivered += deliver(world, at_once=rng.randrange(1, 5))
            for _ in range(rng.randrange(8)):
                due[b"%d" % sent] = clock.now_ms + rng.randrange(1, 9_000)
                await send_at(world, b"%d" % sent, due[b"%d" % sent])
                sent += 1
            clock.now_ms += rng.randrange(3_000)
            before = len(world.stored("Orders", 1))
            for _ in range(rng.randrange(4)):
                world.core.timers.step(rng.randrange(1, 4))
            delivered += [each.body for each in world.stored("Orders", 1)[before:]]
            if is_killed:
                await world.core.saver.save(world.core.timers.progress)
                await world.service.close_abruptly()
        assert all(due[body] <= clock.now_ms for body in delivered)
    clock.now_ms += 10_000
    async with running(tmp_path, clock=clock) as world:
        delivered += deliver(world)
        assert sorted(delivered) == sorted(due)


async def test_a_kill_before_the_file_is_written_delivers_again_and_loses_nothing(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        await send_at(world, b"once", NOW_MS + 1_000)
        await send_at(world, b"later", NOW_MS + 9_000)
        clock.now_ms += 2_000
        assert deliver(world) == [b"once"]
        await world.service.close_abruptly()
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == [b"once"]
        clock.now_ms += 9_000
        assert deliver(world) == [b"later"]


async def test_a_stop_before_the_queue_was_read_again_loses_nothing(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        for number in range(300):
            await send_at(world, b"%d" % number, NOW_MS + 5_000)
        assert deliver(world) == []
    for steps in (0, 1):
        async with running(tmp_path, clock=clock) as world:
            for _ in range(steps):
                world.core.timers.step(1)
            world.core.timers.progress.save()
    clock.now_ms += 5_000
    async with running(tmp_path, clock=clock) as world:
        assert len(deliver(world)) == 300


async def test_how_far_it_came_is_never_on_the_disk_before_what_was_delivered(world):
    await send_at(world, b"body", NOW_MS + 1_000)
    world.clock.now_ms += 2_000
    world.core.store._durability.group_commit.fail(StoreFailed("no disk"))
    assert deliver(world) == [b"body"]
    await world.core.saver.save(world.core.timers.progress)
    assert not world.core.timers.progress.path.exists()
    assert world.core.timers.progress.is_changed


async def test_with_a_full_disk_they_wait_and_none_is_passed_over(world):
    for number in range(3):
        await send_at(world, b"%d" % number, NOW_MS + 1_000)
    world.clock.now_ms += 2_000
    assert world.core.timers.step(1) == 4  # three are read, one is delivered
    world.core.store._appender.refusal = StoreFull("full")
    assert world.core.timers.step(10) == 0
    world.core.store._appender.refusal = None
    assert deliver(world) == [b"1", b"2"]


async def test_that_they_wait_is_a_line_when_it_begins_and_one_when_it_is_over(world, caplog):
    def words():
        return [each for each in caplog.messages if each.startswith("messages with a delivery")]

    await send_at(world, b"body", NOW_MS + 1_000)
    world.clock.now_ms += 2_000
    world.core.store._appender.refusal = StoreFull("full")
    for _ in range(10):
        world.core.timers.step(10)
    assert words() == ["messages with a delivery time wait: full"]
    world.core.store._appender.refusal = None
    assert deliver(world) == [b"body"]
    assert len(words()) == 2
    assert words()[1].startswith("messages with a delivery time are delivered again; writes")


async def test_a_clock_that_was_ahead_makes_nothing_come_early(tmp_path):
    clock = Clock(NOW_MS + DAY_MS)
    async with running(tmp_path, clock=clock) as world:
        await send_at(world, b"ahead", clock.now_ms + 1_000)
        clock.now_ms += 5_000
        assert deliver(world) == [b"ahead"]
        await send_at(world, b"far", clock.now_ms + DAY_MS)
        clock.now_ms = NOW_MS
        await send_at(world, b"soon", NOW_MS + 3_000)
        assert deliver(world) == []
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == []
        clock.now_ms += 3_000
        assert deliver(world) == [b"soon"]
        await send_at(world, b"next", NOW_MS + 9_000)
        assert deliver(world) == []
        clock.now_ms = NOW_MS + 9_000
        assert deliver(world) == [b"next"]
    clock.now_ms = NOW_MS + 3 * DAY_MS
    async with running(tmp_path, clock=clock) as world:
        delivered = deliver(world)
        assert delivered[-1] == b"far"


async def test_once_nothing_waits_a_clock_that_was_ahead_is_forgotten(tmp_path):
    clock = Clock(NOW_MS + DAY_MS)
    async with running(tmp_path, clock=clock) as world:
        await send_at(world, b"ahead", clock.now_ms + 1_000)
        clock.now_ms += 5_000
        deliver(world)
        clock.now_ms = NOW_MS
        assert deliver(world) == []
        await send_at(world, b"soon", NOW_MS + 3_000)
        clock.now_ms += 5_000
        assert deliver(world) == [b"soon"]
        await send_at(world, b"waits", NOW_MS + 9_000)
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == []
        clock.now_ms = NOW_MS + 9_000
        assert deliver(world) == [b"waits"]


async def test_what_waits_for_days_is_stored_again_on_the_way(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        await send_at(world, b"far", NOW_MS + 3 * DAY_MS, UNIQ_KEY="KEY")
        clock.now_ms += 2 * DAY_MS + 999
        assert deliver(world) == []
        assert len(world.stored(TIMERS)) == 1
        clock.now_ms += 1
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == []
        first, again = world.stored(TIMERS)
        assert (
            props.parse(again.properties.decode()).items()
            >= {
                "TIMER_ROLL_TIMES": "1",
                "TIMER_OUT_MS": str(NOW_MS + 3 * DAY_MS - 1_000),
                "UNIQ_KEY": "KEY",
            }.items()
        )
        assert (again.body, again.born_host) == (first.body, first.born_host)
        clock.now_ms = NOW_MS + 3 * DAY_MS - 1
        assert deliver(world) == []
        clock.now_ms += 1
        assert deliver(world) == [b"far"]
        assert len(world.stored(TIMERS)) == 2


async def test_what_has_no_time_or_no_topic_is_passed_over(world, caplog):
    store = world.core.store
    for named in (
        {},
        {"TIMER_OUT_MS": "x", "REAL_TOPIC": "Orders", "REAL_QID": 1},
        {"TIMER_OUT_MS": NOW_MS, "REAL_TOPIC": "../x", "REAL_QID": 0},
        {"XTIMER_OUT_MS": NOW_MS, "REAL_TOPIC": "Orders", "REAL_QID": 1},
    ):
        arguments = (TIMERS, 0, b"", properties_of(**named).encode(), world.core.store_host)
        store.append(*arguments, born_timestamp_ms=NOW_MS)
    await send_at(world, b"sound", NOW_MS + 1_000)
    world.clock.now_ms += 5_000
    assert deliver(world) == [b"sound"]
    assert caplog.text.count("has no TIMER_OUT_MS") == 3
    assert caplog.text.count("is skipped: its real topic") == 1


async def test_many_wait_in_eight_bytes_each(world):
    for number in range(1_000):
        await send_at(world, b"", NOW_MS + 1_000 + number % 3 * 1_000)
    world.core.timers.step(0)
    while world.core.timers.unread:
        world.core.timers.step(0)
    assert world.core.timers.waiting == 1_000
    slots = world.core.timers._slots.values()
    assert len(slots) == 3
    assert {each.queue_offsets.itemsize for each in slots} == {8}


async def test_the_tables_of_the_broker_say_how_many_wait_and_how_late_it_is(world, monkeypatch):
    monkeypatch.setattr(timers_module, "READ_AT_ONCE", 3)
    for _ in range(5):
        await send_at(world, b"", NOW_MS + 1_000)
    world.clock.now_ms += 9_000
    timers = world.core.timers
    timers.step(0)
    assert (timers.waiting, timers.unread, timers.behind_ms) == (3, 2, 8_000)


async def test_a_store_of_rocketmq_is_taken_over_where_its_file_says(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        for number in range(1, 7):
            await send_at(world, b"%d" % number, NOW_MS + number * 1_000)
        path, root = world.core.timers.progress.path, world.core.store.layout.root
    # RocketMQ has delivered what is due before second 3, and read five of six.
    theirs = TimerCheckpoint(NOW_MS + 2_000, 260, 5, 5, 0, NOW_MS, 3)
    path.write_bytes(theirs.encode()[:56].ljust(4096, b"\0"))
    (root / "timerlog").mkdir()
    (root / "timerlog" / f"{0:020}").write_bytes(bytes(100))
    (root / "timerwheel").write_bytes(bytes(100))
    clock.now_ms += 60_000
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == [b"3", b"4", b"5", b"6"]
    assert not (root / "timerlog").exists()
    assert not (root / "timerwheel").exists()


async def test_rocketmq_finds_where_the_first_that_waits_is(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        for second in (1, 2, 9, 3, 8):
            await send_at(world, b"%d" % second, NOW_MS + second * 1_000)
        clock.now_ms += 5_000
        assert deliver(world) == [b"1", b"2", b"3"]
        path = world.core.timers.progress.path
    found = timer_checkpoint.decode(path.read_bytes())
    assert (found.queue_offset, found.master_queue_offset) == (2, 2)
    assert found.timer_log_flushed_offset == 0
    assert found.read_time_ms == NOW_MS + 3_000
    assert found.is_own


async def test_in_another_log_everything_waits(tmp_path):
    clock = Clock()
    async with running(tmp_path / "one", clock=clock) as world:
        for number in range(5):
            await send_at(world, b"%d" % number, NOW_MS + 1_000)
        clock.now_ms += 9_000
        assert len(deliver(world)) == 5
        content = world.core.timers.progress.path
    content = content.read_bytes()
    clock.now_ms = NOW_MS
    async with running(tmp_path / "two", clock=clock) as world:
        await send_at(world, b"other", NOW_MS + 1_000)
        path = world.core.timers.progress.path
    path.write_bytes(content)
    clock.now_ms += 20_000
    async with running(tmp_path / "two", clock=clock) as world:
        assert deliver(world) == [b"other"]


class CountedSlots(dict):
    """Counts the slots that are looked at."""

    seen = 0

    def get(self, key, default=None):
        self.seen += 1
        return super().get(key, default)

    def __getitem__(self, key):
        self.seen += 1
        return super().__getitem__(key)

    def values(self):
        self.seen += len(self)
        return super().values()


async def test_a_save_does_not_look_at_every_second_that_waits(world):
    for second in range(30):
        await send_at(world, b"%d" % second, NOW_MS + 1_000 * (60 - second))
    timers = world.core.timers
    assert deliver(world) == []
    slots = timers._slots = CountedSlots(timers._slots)
    assert timers._oldest_waiting() == 0
    timers.progress.checkpoint()
    assert slots.seen <= 3
    world.clock.now_ms = NOW_MS + 41_000
    assert deliver(world)
    assert timers._oldest_waiting() == 0
    world.clock.now_ms = NOW_MS + 61_000
    deliver(world)
    assert timers._oldest_waiting() == 30


AT_MS = 1_795_357_003_992
DAYS_MS = 259_200_000


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 1_795_357_006_000),
        ({"TIMER_DELAY_SEC": "+2"}, 1_795_357_005_000),
        ({"TIMER_DELAY_MS": "3500"}, 1_795_357_007_000),
        ({"TIMER_DELIVER_MS": "1795357007902"}, 1_795_357_007_000),
        ({"TIMER_DELIVER_MS": "1795357007000"}, 1_795_357_006_000),
        ({"TIMER_DELIVER_MS": "1795357007001"}, 1_795_357_007_000),
        (
            {"TIMER_DELIVER_MS": "1795357043902", "TIMER_DELAY_MS": "2000", "TIMER_DELAY_SEC": "5"},
            1_795_357_008_000,
        ),
        ({"TIMER_DELIVER_MS": "1795357043902", "TIMER_DELAY_MS": "2000"}, 1_795_357_005_000),
        ({"TIMER_DELAY_SEC": "259200"}, 1_795_616_203_000),
        ({"TIMER_DELAY_SEC": "0"}, None),
        ({"TIMER_DELAY_SEC": "-5"}, None),
        ({"TIMER_DELIVER_MS": str(AT_MS)}, None),
        ({"TIMER_DELAY_SEC": str(2**63 - 1)}, None),
        ({"TIMER_DELAY_MS": str(2**63 - 1)}, None),
    ],
)
def test_a_delivery_time_is_rounded_down_to_the_second_before(properties, expected):
    assert out_time_ms(properties, AT_MS, DAYS_MS) == expected


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_SEC": ""},
        {"TIMER_DELAY_SEC": str(2**63)},
        {"TIMER_DELAY_SEC": "x", "TIMER_DELIVER_MS": str(AT_MS + 5)},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_MS": "259200001"},
        {"TIMER_DELIVER_MS": str(2**63 - 1)},
        {"TIMER_DELIVER_MS": str(AT_MS), "TIMER_DEL_UNIQKEY": "key"},
    ],
)
def test_what_is_no_time_or_too_far_off_is_refused_in_rocketmqs_words(properties):
    with pytest.raises(MessageIllegal) as refused:
        out_time_ms(properties, AT_MS, DAYS_MS)
    assert refused.value.code == 13
    assert str(refused.value) == (
        "timer message illegal, the delay time should not be bigger than the max delay "
        "259200000ms; or if set del msg, the delay time should be bigger than the current time"
    )


def test_what_waits_longer_than_two_days_is_stored_again_on_the_way():
    since_ms = AT_MS // 1000 * 1000
    assert slot_ms(since_ms + ROLL_WINDOW_MS - 1000, AT_MS) == since_ms + ROLL_WINDOW_MS - 1000
    assert slot_ms(since_ms + ROLL_WINDOW_MS, AT_MS) == since_ms + ROLL_WINDOW_MS // 2
    assert slot_ms(since_ms + 2 * ROLL_WINDOW_MS, AT_MS) == since_ms + ROLL_WINDOW_MS
