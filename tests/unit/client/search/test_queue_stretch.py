"""Queues in bulk: which offsets they have, and all messages of a stretch."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.queue_puller import MAX_AROUND_MESSAGES, records_in
from rocketlens.client.connect.route import Broker, MessageQueue
from rocketlens.client.search.queue_stretch import QueueStretch, StretchReader, cut
from rocketlens.errors import RemotingError
from rocketlens.model.rocketmq import TOOLS_GROUP
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, ask, fail
from tests.support.patience import PATIENCE_S

QUEUE = MessageQueue("T", "broker-a", 0)
BROKER = Broker("broker-a", {0: "a:1"})
ALL = (-(2**63), limits.MAX_TIMESTAMP_MS)


def with_reader(scenario, count=100, slaves=0, timeout_s=PATIENCE_S):
    """Run ``await scenario(reader, broker, cluster)`` where a queue has ``count`` messages."""

    async def main(cluster, admin):
        for broker in (*cluster.masters, *cluster.slaves):
            for number in range(count):
                broker.store("T", b"%d" % number)
        cluster_calls = admin.source.cluster
        broker = (await cluster_calls.route("T")).brokers["broker-a"]
        return await scenario(StretchReader(cluster_calls), broker, cluster)

    return ask(main, slaves=slaves, timeout_s=timeout_s)


def offsets_of(chunk):
    damage = []
    found = [each.queue_offset for body in chunk.bodies for each in records_in(body, damage)]
    assert damage == []
    return found


@within(with_reader)
async def test_a_stretch_is_read_whole_and_leaves_no_group(reader, broker, cluster, /):
    chunk = await reader.read(broker, QueueStretch(QUEUE, 7, 93))
    assert offsets_of(chunk) == list(range(7, 93))
    assert chunk.next_offset == 93
    assert chunk.warning is None
    pulls = [each for code, each in cluster.masters[0].asked if code == RequestCode.PULL_MESSAGE]
    assert {each.consumer_group for each in pulls} == {TOOLS_GROUP}
    # The flag that commits an offset is 1.
    assert not any(each.sys_flag & 1 for each in pulls)
    asked = {code for code, _ in cluster.masters[0].asked}
    assert asked == {
        RequestCode.PULL_MESSAGE,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
    }


@pytest.mark.parametrize("bound", ["MAX_CHUNK_RECORDS", "MAX_CHUNK_BYTES"])
def test_a_chunk_is_bounded_and_says_where_to_go_on(monkeypatch, bound):
    monkeypatch.setattr(f"rocketlens.client.search.queue_stretch.{bound}", 40)

    async def main(reader, broker, _):
        found, start = [], 0
        while start < 100:
            chunk = await reader.read(broker, QueueStretch(QUEUE, start, 100))
            assert 0 < len(chunk.bodies) <= 2
            found += offsets_of(chunk)
            start = chunk.next_offset
        assert found == list(range(100))

    with_reader(main)


@pytest.mark.parametrize(("begin", "end"), [(1, 9), (600, 700), (1900, 5000), (2001, 3000)])
@within(with_reader, count=2000)
async def test_the_stretch_of_a_time_has_its_messages_and_some_around_it(
    reader, broker, unused, /, begin, end
):
    stretch, warning = await reader.stored(broker, QUEUE, T0 + begin, T0 + end)
    # Message n was stored in millisecond n + 1.
    low, high = begin - 1, min(end, 2000)
    assert stretch.start <= min(low, 2000)
    assert stretch.stop >= high
    # The millisecond before is looked for.
    around = 1 + 2 * MAX_AROUND_MESSAGES
    assert stretch.stop - stretch.start <= max(high - low, 0) + around
    assert warning is None


@within(with_reader)
async def test_without_times_the_stretch_is_the_whole_queue(reader, broker, cluster, /):
    assert (await reader.stored(broker, QUEUE, *ALL))[0] == QueueStretch(QUEUE, 0, 100)
    assert RequestCode.SEARCH_OFFSET_BY_TIMESTAMP not in cluster.masters[0].codes()


@pytest.mark.parametrize("how", ["dead", "erring"])
@within(with_reader, slaves=1)
async def test_a_slave_is_read_when_the_master_fails_and_the_reader_hears_of_it(
    reader, broker, cluster, /, how
):
    await fail(cluster.masters[0], how)
    stretch, warning = await reader.stored(broker, QUEUE, *ALL)
    assert stretch == QueueStretch(QUEUE, 0, 100)
    assert "its slave" in warning
    chunk = await reader.read(broker, stretch)
    assert offsets_of(chunk) == list(range(100))
    assert "its slave" in chunk.warning


@within(with_reader, slaves=1)
async def test_a_slave_that_lacks_what_was_planned_is_no_answer(reader, broker, cluster, /):
    await fail(cluster.masters[0], "erring")
    with pytest.raises(RemotingError, match=r"broker-a: .*it broke.*ends before offset 100"):
        await reader.read(broker, QueueStretch(QUEUE, 90, 110))


@within(with_reader)
async def test_a_broker_that_does_not_answer_is_named(reader, broker, cluster, /):
    await cluster.masters[0].die()
    with pytest.raises(RemotingError, match="broker-a: "):
        await reader.read(broker, QueueStretch(QUEUE, 0, 5))
    with pytest.raises(RemotingError, match="broker-a: "):
        await reader.stored(broker, QUEUE, *ALL)


class Calls:
    """Answers pulls of ``broker-a`` at ``a:1`` with codes and the offset to go on at."""

    timeout_s = 5.0

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def ask_broker(self, broker, ask):
        return await ClusterCalls.ask_broker(self, broker, ask)

    def turn(self, _):
        return asyncio.Lock()

    async def ask(self, *_):
        return RemotingCommand(0, 1, ext_fields={"offset": str(self.answers.pop(0))})

    async def call(self, _, __, header, *, timeout_s):
        assert timeout_s == self.timeout_s
        self.asked.append(header.queue_offset)
        code, after = self.answers.pop(0)
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(after),
            "minOffset": "0",
            "maxOffset": "0",
        }
        return RemotingCommand(int(code), 1, remark="no", ext_fields=fields)


def read_of(*answers, start=5, stop=50):
    calls = Calls(*answers)
    chunk = asyncio.run(StretchReader(calls).read(BROKER, QueueStretch(QUEUE, start, stop)))
    return chunk, calls.asked


@pytest.mark.parametrize("code", [ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND])
def test_where_nothing_is_read_goes_on_where_the_broker_says(code):
    chunk, asked = read_of((code, 30), (ResponseCode.SUCCESS, 50))
    assert asked == [5, 30]
    assert (len(chunk.bodies), chunk.next_offset) == (1, 50)


@pytest.mark.parametrize("after", [0, 5])
@pytest.mark.parametrize("code", [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND])
def test_a_queue_that_ends_before_the_stretch_ends_the_read(code, after):
    chunk, asked = read_of((code, after))
    assert (chunk.bodies, chunk.next_offset, asked) == ([], 50, [5])


def test_a_broker_that_sends_readers_back_is_not_believed():
    with pytest.raises(RemotingError, match="continues at 5, which is not after"):
        read_of((ResponseCode.SUCCESS, 5))


def test_a_broker_that_names_an_end_beyond_belief_is_not_believed():
    calls = Calls(0, limits.MAX_QUEUE_OFFSET + 1)
    with pytest.raises(RemotingError, match="is accepted"):
        asyncio.run(StretchReader(calls).stored(BROKER, QUEUE, *ALL))


@pytest.mark.parametrize(("first", "end"), [(-1, 0), (0, -1), (9, 3)])
def test_offsets_that_make_no_stretch_make_an_empty_one(first, end):
    stretch, _ = asyncio.run(StretchReader(Calls(first, end)).stored(BROKER, QUEUE, *ALL))
    assert stretch.start == stretch.stop == max(first, 0)


def test_a_stretch_says_what_it_is():
    assert str(QueueStretch(QUEUE, 3, 9)) == "broker-a, topic T, queue 0: offsets 3 to 8"


@pytest.mark.parametrize(
    ("most", "least", "lengths"),
    [(100, 1, [70, 30]), (40, 1, [35, 35, 30]), (100, 10, [10] * 10), (1, 1, [1] * 100)],
)
def test_stretches_are_cut_into_parts_of_about_equal_size(most, least, lengths):
    other = MessageQueue("T", "broker-a", 1)
    whole = [QueueStretch(QUEUE, 5, 75), QueueStretch(other, 9, 9), QueueStretch(other, 0, 30)]
    parts = cut(whole, most, least)
    assert [each.stop - each.start for each in parts] == lengths
    covered = [(each.queue, n) for each in parts for n in range(each.start, each.stop)]
    assert covered == [(each.queue, n) for each in whole for n in range(each.start, each.stop)]


def test_a_plan_is_bounded_however_long_queues_are(monkeypatch):
    monkeypatch.setattr("rocketlens.client.search.queue_stretch.MAX_CLUSTER_PARTITIONS", 10)
    assert len(cut([QueueStretch(QUEUE, 0, limits.MAX_QUEUE_OFFSET)], 1)) == 10
    assert cut([], 5) == []
