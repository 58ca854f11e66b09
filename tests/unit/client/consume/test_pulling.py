"""Pulls go to the master or the slave, as brokers suggest it; offsets go to masters alone."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rocketlens.client.connect import queue_puller
from rocketlens.client.consume.pulling import messages_in
from rocketlens.client.consume.session import as_sent
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
    assert [(each.queue_offset, each.body) for each in messages] == [
        (3, b"x"),
        (4, b"y" * 100),
    ]
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


def test_a_message_of_the_retry_topic_shows_the_topic_it_was_sent_to():
    retried = message(0, topic="%RETRY%g", retry_topic="T")
    assert as_sent(retried, "g", "").topic == "T"
    assert as_sent(retried, "other", "").topic == "%RETRY%g"
    assert as_sent(message(0, topic="%RETRY%g"), "g", "").topic == "%RETRY%g"


def test_no_topic_shows_its_namespace():
    assert as_sent(message(0, topic="ns%T"), "ns%g", "ns").topic == "T"
    retried = message(0, topic="%RETRY%ns%g", retry_topic="ns%T")
    assert as_sent(retried, "ns%g", "ns").topic == "T"


def test_both_ids_are_there():
    found = message(5, uniq_key="7F000001" * 4)
    assert found.unique_key == found.msg_id == "7F000001" * 4
    assert found.offset_msg_id == "7F00000100002A9F0000000000001388"
