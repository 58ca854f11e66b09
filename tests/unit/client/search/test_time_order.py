"""All queues of topics are one stream in the order of store times, in bounded memory."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.client.search import topic_scan
from rocketlens.client.search.queue_read import QueueReader
from rocketlens.model.answer import SourceKind
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.fake_cluster import QUEUES, T0, ask, fail

QUESTIONS = [
    {},
    {"begin": T0 + 100},
    {"end": T0 + 100},
    {"begin": T0 + 50, "end": T0 + 60},
    {"begin": T0 + 5000},
    {"where": "tag = 'B'"},
]


def fill(cluster, count=300):
    """Store messages of T by turns on the brokers, and in queues without any pattern."""
    for number in range(count):
        broker = cluster.masters[number * 7 % len(cluster.masters)]
        broker.now_ms = T0 + number - broker.step_ms
        broker.store(
            "T", b"%d" % number, queue_id=number * 5 // 3 % QUEUES, more={"TAGS": "ABC"[number % 3]}
        )


def pulls(*brokers):
    return sum(each.codes().count(RequestCode.PULL_MESSAGE) for each in brokers)


def brokers_in(answer):
    return {each.source for each in answer.coverage if each.kind is SourceKind.BROKER}


async def numbers(scan):
    return [int(message.body) async for message in scan]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("masters", [1, 3])
def test_messages_come_in_the_order_in_which_find_has_them(question, masters):
    async def scenario(cluster, admin):
        fill(cluster)
        answer = await admin.find(topic="T", **question)
        scan = admin.scan("T", **question)
        assert await numbers(scan) == [int(each.body) for each in answer]
        assert (scan.complete, answer.complete) == (True, True)
        assert brokers_in(scan) == brokers_in(answer)

    ask(scenario, masters=masters)


@pytest.mark.parametrize("how", ["dead", "erring"])
@within(ask, masters=2)
async def test_a_broker_that_fails_leaves_the_others_and_is_named_as_by_find(
    cluster, admin, /, how
):
    fill(cluster)
    await fail(cluster.masters[1], how)
    answer = await admin.find(topic="T")
    scan = admin.scan("T")
    assert await numbers(scan) == [int(each.body) for each in answer]
    assert [each.source for each in scan.failures] == ["broker-b"]
    assert not scan.complete


@within(ask, slaves=1)
async def test_a_slave_goes_on_where_its_master_failed_and_no_message_comes_twice(
    cluster, admin, /
):
    master, slave = cluster.masters[0], cluster.slaves[0]
    for number in range(200):
        for each in (master, slave):
            each.now_ms = T0 + number - each.step_ms
            each.store("T", b"%d" % number)
    plain = master.pull

    def pull(header, command):
        if header.queue_offset >= 100:
            master.err()
            return master.fails_with
        return plain(header, command)

    master.pull = pull
    master.server.handlers.update(master.handlers())
    scan = admin.scan("T")
    assert await numbers(scan) == list(range(200))
    assert not scan.complete
    assert "its slave" in scan.failures[0].error


@within(ask)
async def test_no_queue_is_read_ahead_by_more_than_two_pulls(cluster, admin, /):
    broker = cluster.masters[0]
    # All of queue 0 is older than all of the others.
    for number in range(4000):
        broker.store("T", b"%d" % number, queue_id=number * QUEUES // 4000)
    count = 0
    async for message in admin.scan("T"):
        assert int(message.body) == count
        count += 1
        read = count // limits.MAX_PULL_MESSAGES + 1
        assert pulls(broker) <= read + 2 * QUEUES


@within(ask)
async def test_a_queue_in_which_nothing_matches_holds_up_no_row(cluster, admin, /):
    broker = cluster.masters[0]
    for number in range(2000):
        broker.store("T", b"%d" % number, queue_id=number % 2, more={"TAGS": "AB"[number % 2]})
    scan = aiter(admin.scan("T", tag="A"))
    assert int((await anext(scan)).body) == 0
    assert pulls(broker) <= 6
    await scan.aclose()


async def test_pulls_of_many_queues_get_smaller_and_bring_all(cluster, admin, monkeypatch):
    monkeypatch.setattr(
        "rocketlens.client.search.topic_scan.MAX_MERGED_BYTES", 2 * QUEUES * 3 * 4096
    )
    broker = cluster.masters[0]
    for number in range(80):
        broker.store("T", b"%4d" % number + b" " * 8000, queue_id=number % QUEUES)
    assert await numbers(admin.scan("T")) == list(range(80))
    sizes = [
        header.max_message_nums for code, header in broker.asked if code == RequestCode.PULL_MESSAGE
    ]
    assert set(sizes[:QUEUES]) == {3}
    assert set(sizes[QUEUES : 8 * QUEUES]) == {1}


@within(ask)
async def test_a_caller_that_wants_no_more_gets_what_waits_and_is_told_that_it_was_interrupted(
    cluster, admin, /
):
    fill(cluster)
    scan = admin.scan("T")
    scan.on_read = lambda _bytes, _total, count: count < 100
    found = await numbers(scan)
    assert 0 < len(found) < 300
    assert found == sorted(found)
    assert [each.error for each in scan.failures] == ["interrupted"]


@within(ask)
async def test_nothing_is_read_any_more_once_its_caller_went_away(cluster, admin, /):
    fill(cluster, 1000)
    scan = aiter(admin.scan("T"))
    await anext(scan)
    before = asyncio.all_tasks()
    await scan.aclose()
    assert len(asyncio.all_tasks()) < len(before)
    # What was on its way is handled before this.
    await admin.find("T/0/1")
    read = pulls(*cluster.masters)
    assert read < 1000 // limits.MAX_PULL_MESSAGES
    await admin.find("T/0/1")
    assert pulls(*cluster.masters) == read + 1


def test_an_error_of_the_program_itself_is_raised(monkeypatch):
    async def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(QueueReader, "read_in_order", broken)

    async def scenario(cluster, admin):
        fill(cluster)
        with pytest.raises(ZeroDivisionError):
            await numbers(admin.scan("T"))

    ask(scenario)


def test_all_topics_are_one_stream():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        names = [f"T{number}" for number in range(20)]
        cluster.name_servers[0].topics |= {name: ["broker-a"] for name in names}
        for number in range(200):
            broker.store(names[number % 20], b"%d" % number, queue_id=number % QUEUES)
        assert await numbers(admin.scan()) == list(range(200))
        assert await numbers(admin.scan("T1?")) == [n for n in range(200) if n % 20 > 9]

    ask(scenario)
    assert topic_scan.TOPICS_AT_ONCE < 20
