"""Whatever a broker acknowledges of topics, groups and offsets it has after every start."""

import asyncio
import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import running
from tests.support.failing_disks import QuickDisk

DIGITS = ["007", "-01", "00", "-0", "0", "1", "-1", "9" * 30, "1_0", "true", "null", "%RETRY%007"]
names = st.text(st.sampled_from("%|azAZ059_-"), min_size=1, max_size=8) | st.sampled_from(DIGITS)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
members = st.dictionaries(names, values, max_size=2)
steps = st.one_of(
    st.tuples(st.just("send"), names),
    st.tuples(st.just("create"), names, st.integers(0, 65_536)),
    st.tuples(st.just("beat"), names),
    st.tuples(st.just("group"), names, members),
    st.tuples(st.just("commit"), names, names, st.integers(0, 2**63 - 1)),
    st.tuples(st.sampled_from(["delete", "ungroup"]), names),
)


async def ask(world, what, name, *rest):
    """Do a step; the code of the answer."""
    if what == "send":
        return (await world.send(name)).code
    if what == "create":
        fields = {"defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
        counts = {"readQueueNums": rest[0], "writeQueueNums": rest[0], "order": False}
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        return (await world.call(code, topic=name, **fields, **counts)).code
    if what == "beat":
        consumer = {"groupName": name, "subscriptionDataSet": []}
        said = {"clientID": "c", "consumerDataSet": [consumer]}
        return (await world.call(RequestCode.HEART_BEAT, json.dumps(said).encode())).code
    if what == "group":
        body = json.dumps({**rest[0], "groupName": name}).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return (await world.call(code, body)).code
    if what == "commit":
        await ask(world, "create", name, 1)
        await ask(world, "beat", rest[0])
        fields = {"consumerGroup": rest[0], "topic": name, "queueId": 0, "commitOffset": rest[1]}
        return (await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code
    if what == "delete":
        return (await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)).code
    fields = {"groupName": name, "cleanOffset": True}
    return (await world.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **fields)).code


def tables_of(core):
    """What a broker has, as it would be told."""
    topics = {name: topic.encode() for name, topic in core.topics.topics.items()}
    offsets = {name: dict(each) for name, each in core.offsets.table.items() if each}
    return topics, dict(core.groups.table.entries), offsets


CYCLES = st.lists(st.tuples(st.booleans(), st.lists(steps, max_size=6)), max_size=3)
"""What is done between a start and an end, and whether that is a kill."""


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(cycles=CYCLES)
def test_a_broker_has_after_each_start_what_it_acknowledged(cycles, caplog):
    check_cycles(cycles, caplog)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(cycles=CYCLES)
def test_a_broker_has_after_any_starts_what_it_acknowledged(cycles, caplog):
    check_cycles(cycles, caplog)


def check_cycles(cycles, caplog):
    """Do what each cycle has, and look after each start."""
    with TemporaryDirectory() as directory:

        async def main():
            before = None
            for is_killed, cycle in [*cycles, (False, [])]:
                async with running(Path(directory), disk=QuickDisk()) as world:
                    found = tables_of(world.core)
                    assert before is None or found == before
                    for step in cycle:
                        await ask(world, *step)
                    # What is not waited for is written by the next save.
                    for table in world.core.tables:
                        await world.core.saver.save(table)
                    before = fitted(world.core)
                    if is_killed:
                        await world.service.close_abruptly()

        asyncio.run(main())
        for each in caplog.records:
            # The store's own says that it was not closed cleanly.
            if each.levelno >= logging.WARNING and each.name.startswith("rocketlens.broker"):
                assert "did not fit the queues" in each.getMessage()


def fitted(core):
    """What a broker has after its next start: no offset is behind the end of its queue."""
    topics, groups, offsets = tables_of(core)
    for name, each in offsets.items():
        topic = name.rpartition("@")[0]
        for queue_id, offset in each.items():
            each[queue_id] = min(offset, core.store.queues.max_offset(topic, queue_id))
    return topics, groups, offsets
