"""Pulls that wait for messages.

Answers that wait for the disk.
An answer that fits no frame is refused before it is built, and large ones come in turn.
"""

import asyncio
import json

import pytest

from rocketlens import limits
from rocketlens.broker.delivery import held_pulls, large_answers
from rocketlens.broker.delivery.pull_reader import PullRecords
from rocketlens.broker.requests import heartbeat
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.errors import StoreFailed
from rocketlens.net.channel import Channel
from rocketlens.net.pool import ClientPool
from rocketlens.wire import declare
from rocketlens.wire.bodies.clients import HeartbeatData, ProducerData
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.broker_world import (
    World,
    bodies,
    create_topic,
    in_broker,
    properties_of,
    running,
)
from tests.support.patience import PATIENCE_S
from tests.unit.broker.heartbeats import heartbeat_of
from tests.unit.net.loopback import until

SUSPEND = 2
INLINE = 4
COMMIT = 1


class Seconds:
    """A monotonic clock that stands until it is moved."""

    def __init__(self, world):
        self.now_s = 1000.0
        self.held = world.core.held_pulls
        self.held._clock = lambda: self.now_s  # The service ticks, too; it finds nothing new.

    def move(self, seconds):
        self.now_s += seconds
        self.held.tick()


def another(world):
    """A client on a connection of its own."""
    handlers = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: lambda *_: None}
    return World(world.service, ClientPool(lambda _: True, handlers=handlers), world.clock)


async def held(world, count=1, **changes):
    """Begin pulls that are held; return what ends with their answers."""
    before = world.core.held_pulls.count
    fields = {"sysFlag": SUSPEND | INLINE, "suspendTimeoutMillis": 15_000} | changes
    begun = [asyncio.ensure_future(world.pull(**fields)) for _ in range(count)]
    await until(lambda: world.core.held_pulls.count == before + count)
    assert not any(each.done() for each in begun)
    return begun if count > 1 else begun[0]


async def empty_queue(world, topic="Orders"):
    await create_topic(world, topic=topic, readQueueNums=4, writeQueueNums=4)


def answer_of(answer):
    return answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]


async def test_a_pull_at_the_end_is_answered_by_the_next_message(world):
    await empty_queue(world)
    for number in range(3):
        begun = await held(world, offset=number)
        await world.send(body=b"%d" % number)
        answer = await begun
        assert bodies(answer) == [b"%d" % number]
        assert answer_of(answer) == (0, "FOUND", str(number + 1))
        assert answer.ext_fields["maxOffset"] == str(number + 1)
    assert world.core.held_pulls.count == world.core.held_pulls.kept_bytes == 0


async def test_every_way_to_send_wakes_it(world):
    await empty_queue(world)
    begun = await held(world)
    await world.send_batch([(b"a", ""), (b"b", "")])
    assert bodies(await begun) == [b"a", b"b"]
    begun = await held(world, offset=2)
    await world.send(properties=properties_of(DELAY=1))
    world.clock.now_ms += 1_000
    world.service._deliver()
    assert bodies(await begun) == [b"body"]


async def test_other_queues_and_topics_leave_it_alone(world):
    await empty_queue(world)
    begun = await held(world)
    await world.send(e=1)
    await world.send(topic="Others")
    await world.send(e=0)
    assert bodies(await begun) == [b"body"]


async def test_a_message_that_does_not_pass_the_filter_leaves_it_and_the_next_answers_it(world):
    await empty_queue(world)
    begun = await held(world, subscription="A || B")
    for tag in ("C", "D", ""):
        await world.send(properties=properties_of(TAGS=tag) if tag else "")
    await world.send(body=b"it", properties=properties_of(TAGS="B"))
    answer = await begun
    assert bodies(answer) == [b"it"]
    assert answer.ext_fields["nextBeginOffset"] == "4"


async def test_when_its_time_is_over_it_is_answered_once_more(world):
    seconds = Seconds(world)
    await empty_queue(world)
    early = await held(world, suspendTimeoutMillis=1_000)
    late = await held(world, suspendTimeoutMillis=2_000, queue_id=1)
    seconds.move(0.9)
    await asyncio.sleep(0)
    assert not early.done()
    seconds.move(0.5)
    assert answer_of(await early) == (19, "NO_MESSAGE_IN_QUEUE", "0")
    assert not late.done()
    seconds.move(1.1)
    assert answer_of(await late) == (19, "NO_MESSAGE_IN_QUEUE", "0")


async def test_messages_that_did_not_pass_are_behind_it_when_its_time_is_over(world):
    seconds = Seconds(world)
    await empty_queue(world)
    begun = await held(world, subscription="A", suspendTimeoutMillis=1_000)
    for _ in range(3):
        await world.send(properties=properties_of(TAGS="B"))
    seconds.move(2)
    assert answer_of(await begun) == (20, "NO_MATCHED_MESSAGE", "3")


async def test_the_offset_that_it_commits_is_committed_at_once(world):
    await empty_queue(world)
    await world.send()
    await held(world, offset=1, sysFlag=SUSPEND | INLINE | COMMIT, commitOffset=1)
    assert world.core.offsets.get("readers", "Orders", 0) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"sysFlag": INLINE},
        {"suspendTimeoutMillis": 0},
        {"suspendTimeoutMillis": -5},
        {"offset": 7},
        {"subscription": " || "},
        {"queue_id": 4},
        {"topic": "Unknown"},
    ],
)
async def test_other_answers_than_nothing_yet_do_not_wait(world, changes):
    await empty_queue(world)
    fields = {"sysFlag": SUSPEND | INLINE, "suspendTimeoutMillis": 15_000} | changes
    assert (await world.pull(**fields)).code != 0
    assert world.core.held_pulls.count == 0


async def test_a_deleted_topic_answers_its_pulls(world):
    await empty_queue(world)
    await world.send(e=1)
    begun = [await held(world), await held(world, queue_id=1, offset=1)]
    await empty_queue(world, "Others")
    other = await held(world, topic="Others")
    await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    for each in begun:
        answer = await each
        assert (answer.code, answer.remark[:26]) == (17, "topic[Orders] not exist, a")
    assert not other.done()


async def test_a_topic_that_lost_the_queue_or_may_not_be_read_answers_its_pulls(world):
    await empty_queue(world)
    begun = await held(world, queue_id=3)
    await create_topic(world, topic="Orders", readQueueNums=2)
    assert (await begun).code == 29
    begun = await held(world)
    await create_topic(world, topic="Orders", perm=2)
    assert (await begun).code == 16


async def test_a_group_that_may_not_consume_or_is_deleted_answers_its_pulls(world):
    await empty_queue(world)
    begun = await held(world)
    group = {"groupName": "readers", "consumeEnable": False}
    await world.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(group).encode())
    assert (await begun).code == 16
    await world.call(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        json.dumps(group | {"consumeEnable": True}).encode(),
    )
    begun = await held(world)
    await world.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="readers")
    # It makes itself again.
    assert (await begun).code == 19


async def subscribe(world, expression, version):
    said = json.loads(heartbeat_of("c1", "Orders", version=version))
    said["consumerDataSet"][0]["subscriptionDataSet"][0]["subString"] = expression
    assert (await world.call(RequestCode.HEART_BEAT, json.dumps(said).encode())).code == 0


async def test_a_new_subscription_is_what_counts_from_then_on(world):
    await empty_queue(world)
    await subscribe(world, "A", 1)
    begun = await held(world, sysFlag=SUSPEND, subscription=None, subVersion=1)
    await world.send(body=b"b", properties=properties_of(TAGS="B"))
    await subscribe(world, "A", 2)
    assert not begun.done()
    await subscribe(world, "B", 3)
    assert bodies(await begun) == [b"b"]


async def test_a_connection_that_ends_takes_its_pulls_with_it(world):
    await empty_queue(world)
    other = another(world)
    begun = await held(other, 3)
    kept = await held(world)
    await other.pool.close()
    await asyncio.wait(begun)
    await until(lambda: world.core.held_pulls.count == 1)
    await world.send()
    assert bodies(await kept) == [b"body"]
    assert world.core.held_pulls.kept_bytes == 0
    assert world.core.network.in_flight == 0


async def test_what_many_wait_for_is_read_once(world, monkeypatch):
    reads = []
    collect = PullRecords.collect

    def counted(records, stop):
        reads.append(records.queue_offset)
        collect(records, stop)

    await empty_queue(world)
    begun = await held(world, 50)
    other = await held(world, maxMsgNums=1)
    tagged = await held(world, subscription="A")
    monkeypatch.setattr(PullRecords, "collect", counted)
    members = [(b"0", properties_of(TAGS="A")), (b"1", properties_of(TAGS="B"))]
    await world.send_batch(members, e=0)
    for answer in await asyncio.gather(*begun):
        assert (bodies(answer), answer_of(answer)) == ([b"0", b"1"], (0, "FOUND", "2"))
    assert bodies(await other) == bodies(await tagged) == [b"0"]
    assert len(reads) == 3
    assert world.core.stats.get_total == 102


async def test_a_pull_gets_no_message_of_a_topic_that_was_made_again(world):
    await empty_queue(world)
    await world.send(body=b"old")
    pulls = world.core.held_pulls
    read = held_pulls.ReadOnce()
    seen = []
    answer = pulls.answer
    pulls.answer = lambda pull, scanned, _: seen.append(pull) or answer(pull, scanned, read)
    begun = await held(world, offset=1)
    await world.send(body=b"first")
    assert bodies(await begun) == [b"first"]
    await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    await empty_queue(world)
    for _ in range(2):
        await world.send(body=b"new")
    assert bodies(answer(seen[0], 1, read)) == [b"new"]


async def test_held_pulls_keep_nobody_from_being_served(world):
    await empty_queue(world)
    begun = await held(world, 200)
    assert world.core.network.in_flight == 0
    assert {each.connection.unanswered for each in world.core.network.channels} == {0}
    assert (await world.send(e=1)).code == 0
    await world.send()
    assert {bodies(await each)[0] for each in begun} == {b"body"}
    assert world.core.network.in_flight == 0
    assert {each.connection.unanswered for each in world.core.network.channels} == {0}


async def test_there_is_room_for_so_many_and_the_others_are_answered_at_once(world, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.delivery.held_pulls.MAX_HELD_PULLS_OF_CONNECTION", 3)
    await empty_queue(world)
    await held(world, 3)
    fields = {"sysFlag": SUSPEND | INLINE, "suspendTimeoutMillis": 15_000}
    assert (await world.pull(**fields)).code == 19
    other = another(world)
    await held(other, 1)
    size = world.core.held_pulls.kept_bytes
    monkeypatch.setattr("rocketlens.broker.delivery.held_pulls.MAX_HELD_PULLS_BYTES", size + 10)
    assert (await other.pull(**fields)).code == 19
    assert world.core.held_pulls.not_held == 2
    await other.pool.close()


async def test_a_peer_that_does_not_read_gets_its_messages_when_it_does(world, monkeypatch):
    await empty_queue(world)
    begun = await held(world)
    behind = [True]
    monkeypatch.setattr(Channel, "is_behind", property(lambda _: behind[0]))
    world.core.store.append("Orders", 0, b"late", b"", b"\x7f\0\0\1\0\0\0\1", born_timestamp_ms=1)
    pulls = world.core.held_pulls
    await until(lambda: pulls._behind)
    assert pulls.count == 1
    behind[0] = False
    pulls.tick()
    assert bodies(await begun) == [b"late"]
    assert pulls.count == 0


async def test_work_for_many_is_done_in_turns(world, monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIECE_S", 0.0)
    turns = []
    taken = held_pulls.HeldPulls._take_turn
    monkeypatch.setattr(
        held_pulls.HeldPulls, "_take_turn", lambda pulls: (turns.append(1), taken(pulls))
    )
    await empty_queue(world)
    begun = await held(world, 50)
    await world.send()
    assert {bodies(await each)[0] for each in begun} == {b"body"}
    assert len(turns) >= 50


async def test_a_broker_that_stops_answers_them(tmp_path):
    async with running(tmp_path) as world:
        await empty_queue(world)
        begun = await held(world, 3)
        await world.service.stop()
        assert {(await each).code for each in begun} == {19}


@pytest.mark.broker(longPollingEnable=False, shortPollingTimeMills=200)
async def test_without_long_polling_they_wait_a_short_time_whatever_arrives(world):
    seconds = Seconds(world)
    await empty_queue(world)
    begun = await held(world)
    await world.send()
    await world.send(e=1)
    assert not begun.done()
    seconds.move(0.5)
    assert bodies(await begun) == [b"body"]


async def test_filters_are_looked_at_together_and_each_finds_its_own(world):
    await empty_queue(world)
    some = [await held(world, 2, subscription=f"T{number}") for number in range(5)]
    everything = await held(world, 2)
    assert len(world.core.held_pulls.queues["Orders", 0]) == 6
    for number in reversed(range(5)):
        await world.send(body=b"%d" % number, properties=properties_of(TAGS=f"T{number}"))
        for each in some[number]:
            assert bodies(await each) == [b"%d" % number]
    for each in everything:
        assert bodies(await each) == [b"4"]
    assert world.core.held_pulls.queues == {}


@pytest.mark.broker(enablePropertyFilter=True)
async def test_an_expression_is_evaluated_for_what_arrives(world):
    await empty_queue(world)
    begun = await held(world, expressionType="SQL92", subscription="n > 5")
    for number in (1, 2):
        await world.send(properties=properties_of(n=number))
    assert not begun.done()
    await world.send(body=b"it", properties=properties_of(n=6))
    answer = await begun
    assert (bodies(answer), answer.ext_fields["nextBeginOffset"]) == ([b"it"], "3")


@within(in_broker, "tmp_path", flushDiskType="SYNC_FLUSH")
async def test_with_sync_flush_an_answer_comes_when_the_message_is_on_the_disk(world, /):
    store = world.core.store
    answers = await asyncio.gather(*(world.send() for _ in range(20)))
    assert {answer.code for answer in answers} == {0}
    assert store.flushed_offset == store.end_offset


@within(in_broker, "tmp_path", flushDiskType="SYNC_FLUSH", syncFlushTimeout=1)
async def test_with_sync_flush_a_slow_disk_is_told_and_a_failed_one_refuses(world, /):
    core = world.core
    core.replies._when_durable = lambda *_: None
    late = await world.send()
    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert late.ext_fields["queueOffset"] == "0"
    assert (await world.send(properties=properties_of(WAIT="false"))).code == 0
    core.replies._when_durable = lambda _, waiter: waiter(StoreFailed("the disk is gone"))
    failed = await world.send()
    assert (failed.code, failed.remark) == (14, "the disk is gone")


QUESTIONS = {
    RequestCode.GET_TOPIC_STATS_INFO: {"topic": "Wide"},
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": "group0"},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": False},
    RequestCode.GET_ALL_PRODUCER_INFO: {},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
    RequestCode.GET_ALL_TOPIC_CONFIG: {},
}


async def fill(world, queue_count=200, count=30):
    """Make a topic of many queues, groups that read it, and producers."""
    core = world.core
    core.topics.table.put(StoredTopic("Wide", queue_count, queue_count))
    for number in range(count):
        core.topics.table.put(StoredTopic(f"Topic{number}", 1, 1))
        core.groups.table.put(f"group{number}")
        core.offsets.put(f"group{number}", "Wide", 0, 1)
    producers = tuple(ProducerData(group_name=f"producer{number}") for number in range(count))
    body = write_body(HeartbeatData(client_id="me", producer_datas=producers))
    assert (await world.call(RequestCode.HEART_BEAT, body)).code == 0


def not_built(*_):
    raise AssertionError("it was built")


@pytest.mark.parametrize("code", QUESTIONS)
@within(in_broker, "tmp_path")
async def test_an_answer_that_fits_no_frame_is_refused_before_it_is_built(
    world, /, monkeypatch, code
):
    await fill(world)
    whole = await world.call(code, **QUESTIONS[code])
    assert whole.code == 0
    # What is estimated is at least a third of what there is, and never more.
    monkeypatch.setattr(limits, "MAX_ANSWER_FRAME_BYTES", len(whole.body))
    assert (await world.call(code, **QUESTIONS[code])).body == whole.body
    monkeypatch.setattr(limits, "MAX_ANSWER_FRAME_BYTES", len(whole.body) // 3)
    monkeypatch.setattr(declare, "write_object", not_built)
    monkeypatch.setattr(large_answers, "row_bytes", lambda *_: 90)
    for module in ("heartbeat", "topic"):
        monkeypatch.setattr(f"rocketlens.broker.requests.{module}.row_bytes", lambda *_: 90)
    monkeypatch.setattr(heartbeat, "_progress_in", not_built)
    refused = await world.call(code, **QUESTIONS[code])
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert f"{len(whole.body) // 3} are allowed: " in refused.remark


async def test_the_progress_of_20_groups_in_65536_queues_is_refused_at_once(world, monkeypatch):
    monkeypatch.setattr(heartbeat, "_progress_in", not_built)
    await fill(world, 65_536, 20)
    answer = await world.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.endswith("ask for one group and topic at a time (208)")


async def test_large_answers_are_built_one_at_a_time_and_few_of_a_connection_wait(
    world, monkeypatch
):
    monkeypatch.setattr(
        "rocketlens.broker.delivery.large_answers.MAX_LARGE_ANSWERS_OF_CONNECTION", 2
    )
    monkeypatch.setattr("rocketlens.broker.delivery.large_answers.MAX_LARGE_ANSWERS", 3)
    monkeypatch.setattr(large_answers, "SMALL_ANSWER_BYTES", 10_000)
    await fill(world)
    large, code = world.core.large_answers, RequestCode.GET_TOPIC_STATS_INFO
    async with large._building:
        asked = [asyncio.ensure_future(world.call(code, topic="Wide")) for _ in range(3)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result().code for each in done] == [ResponseCode.SYSTEM_BUSY]
        assert (await world.call(code, topic="Topic1")).code == 0
        own, world.pool = world.pool, ClientPool(lambda _: True)
        waiting.add(asyncio.ensure_future(world.call(code, topic="Wide")))
        async with asyncio.timeout(PATIENCE_S):
            while large._waiting.total() < 3:  # noqa: ASYNC110 - it is told by nobody
                await asyncio.sleep(0)
        assert (await world.call(code, topic="Wide")).code == ResponseCode.SYSTEM_BUSY
    assert {each.code for each in await asyncio.gather(*waiting)} == {0}
    assert not large._waiting
    await world.pool.close()
    world.pool = own
