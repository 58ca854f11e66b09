"""What a consumer holds of a queue, how far it may commit, and from which broker it pulls."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.client.connect import queue_puller
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consumer_settings import ConsumerSettings
from rocketlens.client.consume.process_queue import ProcessQueue
from rocketlens.client.consume.pulling import messages_in
from rocketlens.client.consume.session import GroupSession
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.commands.messages import COMMIT_OFFSET_FLAG
from tests.support.async_tests import within
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.consumer_broker import (
    ConsumerBroker,
    consumer_of,
    fill,
    serving,
    until,
)
from tests.unit.client.consume.consumer_messages import encoded, message

QUEUE = MessageQueue("T", "broker-a", 0)


def holding(*offsets, begin=0):
    pq = ProcessQueue(QUEUE, begin, 5)
    pq.put([message(each) for each in offsets], max(offsets, default=begin - 1) + 1)
    return pq


def test_the_smallest_offset_that_is_held_is_committed():
    pq = holding(0, 1, 2, 3)
    assert pq.offset_to_commit == 0
    assert pq.remove([message(2)]) == 0
    assert pq.remove([message(0)]) == 1
    assert pq.remove([message(1)]) == 3
    assert pq.remove([message(3)]) == 4


def test_offsets_that_were_filtered_are_passed_once_nothing_before_them_is_held():
    pq = holding(0)
    pq.put([], 9)
    assert pq.offset_to_commit == 0
    assert pq.remove([message(0)]) == 9


def test_a_message_that_comes_twice_is_held_once():
    pq = holding(0, 1)
    assert [each.queue_offset for each in pq.put([message(1), message(2)], 3)] == [2]
    pq.remove([message(0)])
    assert pq.put([message(0)], 3) == []
    assert len(pq) == 2


def test_messages_that_come_in_disorder_are_held_in_order():
    pq = ProcessQueue(QUEUE, 0, 5)
    fresh = pq.put([message(2), message(0), message(1)], 3)
    assert [each.queue_offset for each in fresh] == [0, 1, 2]
    assert pq.offset_to_commit == 0


@given(st.permutations(range(12)))
def test_whatever_the_order_in_which_messages_are_done_none_is_skipped(order):
    pq = holding(*range(12))
    left = set(range(12))
    for offset in order:
        left.discard(offset)
        assert pq.remove([message(offset)]) == min(left, default=12)
    assert pq.held_bytes == 0


def bounds(messages=1000, size=100 << 20, span=2000):
    return ConsumerSettings(
        group="g",
        max_cached_messages_of_queue=messages,
        max_cached_bytes_of_queue=size,
        max_span_of_queue=span,
    )


def test_pulling_pauses_at_so_many_messages_bytes_or_offsets():
    assert holding(0, 1).is_full(bounds(messages=2))
    assert not holding(0).is_full(bounds(messages=2))
    assert holding(0).is_full(bounds(size=limits.MESSAGE_OVERHEAD_BYTES + 1))
    assert not holding(0).is_full(bounds(size=limits.MESSAGE_OVERHEAD_BYTES + 2))
    assert holding(0, 11).is_full(bounds(span=10))
    assert not holding(0, 10).is_full(bounds(span=10))
    assert not holding().is_full(bounds(1, 1, 0))


def test_the_thresholds_are_rocketmqs():
    assert ConsumerSettings(group="g") == bounds()


def test_messages_of_a_listener_that_hangs_are_found_from_the_front():
    pq = holding(0, 1, 2)
    pq.begin([message(0)], 10.0)
    pq.begin([message(2)], 10.0)
    assert [each.queue_offset for each in pq.expired(11.0)] == [0]
    assert pq.expired(10.0) == []


def test_a_message_that_was_let_go_is_not_begun_again():
    pq = holding(0, 1)
    pq.remove([message(0)])
    assert [each.queue_offset for each in pq.begin([message(0), message(1)], 1.0)] == [1]
    assert not pq.holds(message(0))
    assert pq.holds(message(1))


def test_an_ordered_queue_is_taken_from_the_front_and_committed():
    pq = holding(0, 1, 2)
    assert [each.queue_offset for each in pq.take(2)] == [0, 1]
    assert pq.offset_to_commit == 0
    assert pq.commit_taken() == 2
    assert [each.queue_offset for each in pq.take(5)] == [2]
    assert not pq.has_waiting
    assert pq.commit_taken() == 3
    assert (len(pq), pq.held_bytes) == (0, 0)


def test_what_was_put_back_is_taken_first_again():
    pq = holding(0, 1, 2)
    taken = pq.take(2)
    pq.put_back(taken)
    assert pq.offset_to_commit == 0
    assert [each.queue_offset for each in pq.take(3)] == [0, 1, 2]


def test_rocketmqs_tools_are_shown_what_it_holds():
    pq = holding(3, 4, 5, begin=3)
    pq.take(1)
    pq.is_locked, pq.locked_at_ms = True, 77
    shown = pq.snapshot(3)
    assert (shown.commit_offset, shown.cached_msg_count) == (3, 3)
    assert (shown.cached_msg_min_offset, shown.cached_msg_max_offset) == (3, 5)
    assert (shown.transaction_msg_min_offset, shown.transaction_msg_count) == (3, 1)
    assert (shown.locked, shown.last_lock_timestamp_ms, shown.dropped) == (True, 77, False)
    assert holding().snapshot(0).cached_msg_min_offset == 0


QUEUES = {0, 1, 2, 3}


class SuggestingBroker(ConsumerBroker):
    """A broker that suggests in each answer which one to pull from next."""

    suggests = 0
    is_empty = False
    """Whether it answers as real slaves do that do not have the offset (yet)."""

    async def pull(self, header, command):
        if self.is_empty:
            return self.pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset)
        answer = await super().pull(header, command)
        if "suggestWhichBrokerId" not in answer.ext_fields:
            return answer
        fields = {**answer.ext_fields, "suggestWhichBrokerId": str(self.suggests)}
        return answer._replace(ext_fields=fields)

    @property
    def pulls(self):
        return [each for each in self.headers(RequestCode.PULL_MESSAGE) if each.topic == "T"]


@asynccontextmanager
async def replicated():
    """A name server, a master that suggests its slave, and that slave, which suggests itself."""
    async with serving() as (name_server, _):
        master, slave = (SuggestingBroker(name_server) for _ in range(2))
        for each in (master, slave):
            each.suggests = 1
            await each.start()
        name_server.brokers = {master.name: {0: master, 1: slave}}
        try:
            yield name_server, master, slave
        finally:
            for each in (master, slave):
                await each.server.stop(grace_s=0)


def run(scenario):
    """Run ``await scenario(name server, master, slave)``."""

    async def main():
        async with asyncio.timeout(PATIENCE_S), replicated() as servers:
            return await scenario(*servers)

    return asyncio.run(main())


def fill_both(master, slave, count):
    for each in (master, slave):
        fill(each, count)


def asked_queues(pulls):
    return {each.queue_id for each in pulls}


class Counting:
    """A listener that keeps the bodies it gets."""

    def __init__(self):
        self.bodies = set()

    async def __call__(self, messages, _):
        self.bodies |= {int(each.body) for each in messages}


@within(run)
async def test_pulls_go_to_the_slave_that_is_suggested_and_back_and_commit_on_the_master_alone(
    name_server, master, slave, /
):
    fill_both(master, slave, 40)
    listener = Counting()
    async with consumer_of(name_server.address, listener):
        await until(lambda: asked_queues(slave.pulls) == QUEUES)
        await until(lambda: len(listener.bodies) == 40)
        assert len(master.pulls) == 4
        slave.suggests = 0
        fill_both(master, slave, 4)
        await until(lambda: asked_queues(master.pulls[4:]) == QUEUES)
    assert asked_queues(slave.pulls) == QUEUES
    assert not any(each.sys_flag & COMMIT_OFFSET_FLAG for each in slave.pulls)
    assert all(each.sys_flag & COMMIT_OFFSET_FLAG for each in master.pulls[4:])
    assert master.committed("g") == dict.fromkeys(QUEUES, 11)
    assert slave.committed("g") == {}


@within(run)
async def test_a_slave_that_is_suggested_and_not_registered_is_not_needed(
    name_server, master, slave, /
):
    name_server.brokers = {master.name: {0: master}}
    fill(master)
    listener = Counting()
    async with consumer_of(name_server.address, listener):
        await until(lambda: len(listener.bodies) == 40)
        await until(lambda: asked_queues(master.pulls[4:]) == QUEUES)
        fill(master, 4)
        await until(lambda: asked_queues(master.pulls[8:]) == QUEUES)
    assert slave.asked == []
    assert all(each.sys_flag & COMMIT_OFFSET_FLAG for each in master.pulls[8:])


@pytest.mark.parametrize("failure", ["dead", "refusing"])
@within(run)
async def test_pulls_go_to_the_master_when_its_slave_fails_though_it_is_registered(
    name_server, master, slave, /, failure
):
    fill_both(master, slave, 40)
    listener = Counting()
    async with consumer_of(name_server.address, listener):
        await until(lambda: asked_queues(slave.pulls) == QUEUES)
        if failure == "dead":
            await slave.die()
        else:
            slave.answers_to_pulls = [Response(ResponseCode.NO_PERMISSION, remark="no")] * 400
            fill(slave, 4)
        fill(master, 48)
        await until(lambda: len(listener.bodies) == 48)


def test_a_slave_that_has_nothing_more_does_not_make_its_consumers_wait(monkeypatch):
    monkeypatch.setattr(queue_puller, "PULL_PAUSES_S", (2 * PATIENCE_S, 2 * PATIENCE_S))

    async def scenario(name_server, master, slave):
        fill(master, 160)
        slave.is_empty = True
        listener = Counting()
        async with consumer_of(name_server.address, listener):
            await until(lambda: len(listener.bodies) == 160)
        assert asked_queues(slave.pulls) == QUEUES

    run(scenario)


@within(run)
async def test_a_queue_goes_on_where_a_slave_says_and_at_the_broker_that_it_suggests(
    name_server, master, slave, /
):
    fill_both(master, slave, 40)
    listener = Counting()
    async with consumer_of(name_server.address, listener):
        await until(lambda: asked_queues(slave.pulls) == QUEUES)
        slave.suggests = 0
        slave.begins_at = 11
        fill_both(master, slave, 8)
        await until(lambda: asked_queues(master.pulls[4:]) == QUEUES)
    back = {each.queue_id: each.queue_offset for each in reversed(master.pulls[4:])}
    assert back == dict.fromkeys(QUEUES, 11)


# The messages of an answer, as listeners get them.


def test_all_records_of_an_answer_are_read_in_order():
    messages, damage = messages_in(encoded(3) + encoded(4, b"y" * 100))
    assert [(each.queue_offset, each.body) for each in messages] == [(3, b"x"), (4, b"y" * 100)]
    assert damage is None
    assert messages_in(b"") == ([], None)


def test_what_stands_before_damage_is_read_and_the_damage_named():
    whole = encoded(3) + encoded(4)
    for cut in (1, 30, len(encoded(4)) - 1):
        messages, damage = messages_in(whole[:-cut])
        assert [each.queue_offset for each in messages] == [3]
        assert damage


def test_a_body_without_its_checksum_is_delivered_as_in_java():
    record = bytearray(encoded(3, b"body"))
    record[record.index(b"body")] ^= 1
    [delivered], _ = messages_in(bytes(record))
    assert delivered.body == b"cody"


def shown(given, group, namespace=""):
    settings = ConsumerSettings(group="g", namespace=namespace)
    session = GroupSession(
        cluster=None, settings=settings, group=group, client_id="", store=None, trace=None
    )
    return session.message_for_user(given)


def test_a_message_of_the_retry_topic_shows_the_topic_it_was_sent_to():
    retried = message(0, topic="%RETRY%g", retry_topic="T")
    assert shown(retried, "g").topic == "T"
    assert shown(retried, "other").topic == "%RETRY%g"
    assert shown(message(0, topic="%RETRY%g"), "g").topic == "%RETRY%g"


def test_no_topic_shows_its_namespace():
    assert shown(message(0, topic="ns%T"), "ns%g", "ns").topic == "T"
    retried = message(0, topic="%RETRY%ns%g", retry_topic="ns%T")
    assert shown(retried, "ns%g", "ns").topic == "T"


def test_both_ids_are_there():
    found = message(5, uniq_key="7F000001" * 4)
    assert found.unique_key == found.msg_id == "7F000001" * 4
    assert found.offset_msg_id == "7F00000100002A9F0000000000001388"
