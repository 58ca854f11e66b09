"""A queue is read from its newest end; what is not read of it is looked at by samples.

Offsets of a queue, as one broker has them.
Records of an answer are believed only as far as they check out.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.client.connect.broker_calls import max_offset, min_offset, offset_at_time
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_read import (
    MAX_ORDER_SAMPLES,
    MIN_ORDER_SAMPLES,
    QueueReader,
    read_queue,
)
from rocketlens.client.search.records import add_page
from rocketlens.errors import AnswerIncomplete, BadAnswer, BrokerError
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.model.text.java import index_hash
from rocketlens.net.channel import Response
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from tests.support.async_tests import within
from tests.support.effort import sized
from tests.support.fake_cluster import T0, ask, bodies, damage_body
from tests.support.patience import PATIENCE_S

QUEUE = MessageQueue("T", "broker-a", 0)


async def read_in_order(cluster, address, queue, *, findings, queue_count, **options):
    """Read as `read_queue` does, from the oldest message on."""

    async def take(*_):
        pass

    samples = max(MIN_ORDER_SAMPLES, MAX_ORDER_SAMPLES // queue_count)
    reader = QueueReader(
        cluster, address, queue, findings=findings, samples=samples, on_pull=take, **options
    )
    message_filter = options["message_filter"]
    await reader.read_in_order(message_filter.begin or 0, message_filter.end)
    return reader.relies_on_order


def read(scenario, count=100, max_num=None, queue_count=1, *, how=read_queue, **times):
    """Run ``scenario(broker)`` and then a read; return the bodies, the damage and the broker."""

    async def main(cluster, admin):
        broker = cluster.masters[0]
        for number in range(count):
            broker.store("T", b"%d" % number)
        scenario(broker)
        await admin.message_queues("T")
        exhaustive = times.pop("exhaustive", False)
        findings, damage = Findings(AnswerMessages(max_num)), []
        broker.relies_on_order = await how(
            admin.source.cluster,
            broker.address,
            QUEUE,
            message_filter=MessageFilter(topic="T", **times),
            findings=findings,
            damage=damage,
            queue_count=queue_count,
            exhaustive=exhaustive,
        )
        return [int(each.body) for each in findings.answer("").messages], damage, broker

    return ask(main, timeout_s=PATIENCE_S)


def pulls(broker):
    return broker.codes().count(RequestCode.PULL_MESSAGE)


def as_it_is(_):
    pass


both_ways = pytest.mark.parametrize("how", [read_queue, read_in_order])


@both_ways
@pytest.mark.parametrize(("begin", "end"), [(1, 100), (1, 1), (33, 65), (100, 100), (101, 200)])
def test_all_messages_between_two_times_are_read_and_no_others(begin, end, how):
    found, damage, _ = read(as_it_is, begin=T0 + begin, end=T0 + end, how=how)
    assert found == [number for number in range(100) if begin <= number + 1 <= end]
    assert damage == []


def test_the_newest_few_are_read_without_the_rest():
    found, damage, broker = read(as_it_is, max_num=5)
    assert (found, damage) == ([95, 96, 97, 98, 99], [])
    assert pulls(broker) < 100 // limits.MAX_PULL_MESSAGES


@both_ways
def test_a_message_that_came_after_a_clock_was_set_back_a_little_is_found(how):
    def set_back(broker):
        broker.step_ms = -10
        broker.store("T", b"100")

    found, _, _ = read(set_back, begin=T0 + 90, end=T0 + 90, how=how)
    assert found == [89, 100]


@both_ways
def test_what_is_appended_meanwhile_is_not_read(how):
    def growing(broker):
        plain = broker.pull

        def pull(header, command):
            broker.store("T", b"999")
            return plain(header, command)

        broker.pull = pull
        broker.server.handlers.update(broker.handlers())

    found, damage, _ = read(growing, how=how)
    assert (found, damage) == (list(range(100)), [])


@both_ways
def test_a_broker_that_gives_nothing_at_place_after_place_is_left_and_named(monkeypatch, how):
    monkeypatch.setattr("rocketlens.client.search.queue_read.MAX_EMPTY_PULLS", 3)

    def empty(broker):
        def pull(header, _):
            fields = {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(header.queue_offset + 1),
                "minOffset": "0",
                "maxOffset": "100",
            }
            return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, fields)

        broker.pull = pull
        broker.server.handlers.update(broker.handlers())

    found, (damage,), broker = read(empty, how=how)
    assert found == []
    assert broker.address in damage
    assert "nothing at 4 consecutive offsets: reading ended" in damage


@both_ways
def test_a_broker_that_will_not_is_an_error(how):
    with pytest.raises(BrokerError, match="it broke"):
        read(lambda broker: broker.err(), how=how)


# Clocks that were set back.


def stored_at(broker, times):
    """Store a message at each of some times, in that order."""
    for stored_ms in times:
        broker.now_ms = stored_ms - broker.step_ms
        broker.store("T", b"%d" % len(broker.records))


def search_at(times, begin, end, **options):
    """Return the numbers of the messages that a read finds, and how much is to be believed."""

    def scenario(broker):
        stored_at(broker, times)

    return read(scenario, count=0, begin=begin, end=end, **options)


MINUTE_MS = 60_000
CLOCKS = {
    "twice": [*range(600), *range(200, 900)],
    "far back": [*range(5_000, 6_000), *range(1_000)],
    "ahead for a while": [*range(700), *range(9_000, 9_300), *range(700, 1_400)],
    "behind for a while": [*range(5_000, 5_700), *range(100, 400), *range(5_700, 6_400)],
    "in steps": [at for step in range(10) for at in range(70 * step, 70 * step + 140)],
}


@both_ways
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("part", sized([0.02, 0.3, 0.85], [0.02, 0.15, 0.3, 0.5, 0.7, 0.85, 0.98]))
def test_a_clock_that_was_set_back_by_minutes_hides_no_message(clock, part, how):
    """A second for each message: from 33 to several hundred of them are out of order."""
    times = [T0 + 1000 * each for each in CLOCKS[clock]]
    begin = times[int(part * len(times))]
    end = begin + MINUTE_MS
    matching = [number for number, at in enumerate(times) if begin <= at <= end]
    found, damage, _ = search_at(times, begin, end, how=how)
    assert sorted(found) == matching or "store times are not in order" in damage[0]
    searched = search_at(times, begin, end, exhaustive=True, how=how)
    assert (sorted(searched[0]), searched[1]) == (matching, [])
    assert not searched[2].relies_on_order


@both_ways
@pytest.mark.parametrize("wrong_by", [-400, 400])
def test_a_broker_that_finds_a_time_far_from_where_it_is_is_not_believed(wrong_by, how):
    """RocketMQ 4 chooses a queue file by when it was modified, which a copy of it changes."""

    def scenario(broker):
        stored_at(broker, [T0 + number for number in range(3_000)])
        plain = broker.search_offset

        def search(header, command):
            found = int(plain(header, command).ext_fields["offset"])
            return Response(ext_fields={"offset": str(max(0, found + wrong_by))})

        broker.search_offset = search
        broker.server.handlers.update(broker.handlers())

    found, damage, _ = read(scenario, count=0, begin=T0 + 1500, end=T0 + 1600, how=how)
    assert found == list(range(1500, 1601)) or damage


@both_ways
def test_a_range_of_a_long_queue_costs_as_much_as_the_range_and_says_on_what_it_relies(how):
    times = [T0 + 1000 * number for number in range(9_000)]
    found, damage, broker = search_at(times, times[4_500], times[4_509], queue_count=16, how=how)
    assert (found, damage, broker.relies_on_order) == (list(range(4_500, 4_510)), [], True)
    assert pulls(broker) <= 2 * (MIN_ORDER_SAMPLES + 1) + 4


@both_ways
@pytest.mark.parametrize("times", [{}, {"begin": T0 + 5}, {"end": T0 + 300}, {"begin": T0 + 600}])
def test_a_queue_that_is_read_whole_relies_on_nothing(times, how):
    _, damage, broker = read(as_it_is, count=500, how=how, **times)
    assert (damage, broker.relies_on_order) == ([], False)


# All queues of a topic, and a full scan beside them.


@st.composite
def topics(draw, steps):
    """Return how many queues a topic has, its messages as queues and steps of the clock, how many
    of the oldest of each queue are deleted, and what is asked.
    """
    queue_count = draw(st.sampled_from([1, 3, 8, 17, 40]))
    size = draw(st.sampled_from([0, 5, 60, 400, 1_500]))
    chosen = draw(st.randoms(use_true_random=False))
    # Some queues have no message, and some most of them.
    used = chosen.sample(range(queue_count), chosen.randint(1, queue_count))
    stored = [(chosen.choice(used), chosen.choice(steps)) for _ in range(size)]
    deleted = {queue_id: chosen.choice([0, 0, 3, 10_000]) for queue_id in used}
    span = sum(step for _, step in stored)
    times = sorted(T0 + chosen.randint(-5, max(span, 0) + 5) for _ in range(2))
    asked = dict(zip(("begin", "end"), times, strict=True))
    for name in chosen.sample(("begin", "end"), chosen.randint(0, 2)):
        del asked[name]
    return queue_count, stored, deleted, asked | {"max_num": chosen.choice([1, 5, 20, 10_000])}


async def compare(cluster, admin, topic, **options):
    """Return an answer, and the bodies and whether there are more that a scan of all leads to."""
    queue_count, stored, deleted, asked = topic
    broker = cluster.masters[0]
    changed = {"read_queue_nums": queue_count, "write_queue_nums": queue_count}
    cluster.name_servers[0].queue_data["T"] = changed
    for number, (queue_id, step_ms) in enumerate(stored):
        broker.step_ms = step_ms
        broker.store("T", b"%d" % number, queue_id=queue_id)
    for queue_id, count in deleted.items():
        broker.deleted["T", queue_id] = min(count, len(broker.queues["T", queue_id]))
    answer = await admin.find(topic="T", **asked, **options)
    matching = [
        each
        for each in broker.records
        if each.queue_offset >= broker.deleted["T", each.queue_id]
        and asked.get("begin", 0) <= each.store_timestamp_ms <= asked.get("end", limits.MAX_LONG)
    ]
    matching.sort(key=lambda each: (each.store_timestamp_ms, each.physical_offset))
    kept = matching[-asked["max_num"] :]
    return answer, [each.body for each in kept], len(kept) < len(matching)


@given(topics([0, 0, 1, 1, 2, 50]))
def test_the_newest_of_all_queues_are_those_of_a_full_scan(topic):
    async def scenario(cluster, admin):
        answer, expected, is_more = await compare(cluster, admin, topic)
        assert (bodies(answer), answer.truncated) == (expected, is_more)
        assert answer.complete

    ask(scenario, timeout_s=PATIENCE_S)


@given(topics([0, 1, 1, 1, 5, -3, -40, -2_000, 3_000]))
def test_a_clock_that_was_set_back_hides_nothing_that_the_answer_does_not_name(topic):
    async def scenario(cluster, admin):
        answer, expected, _ = await compare(cluster, admin, topic)
        assert bodies(answer) == expected or answer.relies_on or not answer.complete
        answer = await admin.find(topic="T", **topic[-1], exhaustive=True)
        assert (bodies(answer), answer.complete, answer.relies_on) == (expected, True, ())

    ask(scenario, timeout_s=PATIENCE_S)


def spread(broker, count, queue_count):
    for number in range(count):
        broker.store("T", b"%d" % number, queue_id=number % queue_count)


@pytest.mark.parametrize("times", [{}, {"begin": T0 + 3_000}])
@within(ask, timeout_s=PATIENCE_S)
async def test_of_many_queues_only_those_with_the_newest_messages_are_read(
    cluster, admin, /, times
):
    broker = cluster.masters[0]
    cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": 400}
    spread(broker, 4_000, 400)
    answer = await admin.find(topic="T", max_num=20, **times)
    assert [int(each) for each in bodies(answer)] == list(range(3_980, 4_000))
    assert (answer.complete, answer.truncated) == (True, True)
    # 16 queues of which samples are taken, and those that have the others of the 20.
    assert len(broker.asked) < 100
    assert broker.codes().count(RequestCode.GET_MAX_OFFSET) == 0


@within(ask, timeout_s=PATIENCE_S)
async def test_of_many_queues_each_costs_one_request_to_find_a_time_within_them(cluster, admin, /):
    broker = cluster.masters[0]
    cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": 400}
    spread(broker, 8_000, 400)
    answer = await admin.find(topic="T", max_num=20, end=T0 + 5_000)
    assert [int(each) for each in bodies(answer)] == list(range(4_980, 5_000))
    asked = broker.codes()
    assert asked.count(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP) == 400
    assert asked.count(RequestCode.PULL_MESSAGE) < 400 + 16 * 8


@pytest.mark.parametrize("queue_count", [8, 40])
def test_a_broker_that_finds_the_nearest_message_of_a_time_hides_none(queue_count):
    """As RocketMQ 4 does: between two messages it finds the one whose time is nearer."""

    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": queue_count}
        broker.step_ms = 100
        spread(broker, 50 * queue_count, queue_count)
        plain = broker.search_offset

        def nearest(header, command):
            found = int(plain(header, command).ext_fields["offset"])
            queue = broker.queue(header.topic, header.queue_id)
            around = range(max(found - 1, 0), min(found + 1, len(queue)))
            times = [abs(queue[each].store_timestamp_ms - header.timestamp_ms) for each in around]
            return Response(ext_fields={"offset": str(around[times.index(min(times))])})

        broker.search_offset = nearest
        broker.server.handlers.update(broker.handlers())
        for end in range(T0 + 2_000, T0 + 2_000 + 200 * queue_count, 150):
            answer = await admin.find(topic="T", max_num=10, end=end)
            last = (end - T0) // 100
            assert [int(each) for each in bodies(answer)] == list(range(last - 10, last))

    ask(scenario, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("refused", [True, False])
@within(ask, timeout_s=PATIENCE_S)
async def test_queues_are_asked_one_by_one_if_a_broker_does_not_list_them(
    cluster, admin, /, refused
):
    broker = cluster.masters[0]
    spread(broker, 40, 4)
    if refused:
        broker.refused.add(RequestCode.GET_TOPIC_STATS_INFO)
    else:
        broker.topic_stats = lambda *_: Response(body=b"[]")
        broker.server.handlers.update(broker.handlers())
    answer = await admin.find(topic="T", max_num=5, begin=T0 + 10, end=T0 + 30)
    assert [int(each) for each in bodies(answer)] == list(range(25, 30))
    assert answer.complete


@pytest.mark.parametrize("queue_count", [8, 40])
@within(ask, timeout_s=PATIENCE_S)
async def test_messages_that_arrive_while_queues_are_read_are_not_in_the_answer(
    cluster, admin, /, queue_count
):
    broker = cluster.masters[0]
    cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": queue_count}
    spread(broker, 10 * queue_count, queue_count)
    plain = broker.pull

    def pull(header, command):
        broker.store("T", b"999999", queue_id=header.queue_id)
        return plain(header, command)

    broker.pull = pull
    broker.server.handlers.update(broker.handlers())
    answer = await admin.find(topic="T", max_num=20)
    expected = range(10 * queue_count - 20, 10 * queue_count)
    assert [int(each) for each in bodies(answer)] == list(expected)
    assert (answer.complete, answer.truncated) == (True, True)


@within(ask, timeout_s=PATIENCE_S)
async def test_an_error_of_one_queue_ends_the_reading_of_the_others(cluster, admin, /):
    broker = cluster.masters[0]
    spread(broker, 400, 4)
    plain = broker.pull

    def pull(header, command):
        if header.queue_id == 2:
            return Response(ResponseCode.SYSTEM_ERROR, remark="it broke")
        return plain(header, command)

    broker.pull = pull
    broker.server.handlers.update(broker.handlers())
    answer = await admin.find(topic="T", max_num=20)
    assert not answer.complete
    assert "it broke" in answer.failures[0].error


TIME_MS = 1_700_000_000_000
QUEUES = [
    MessageQueue("T", "broker-a", 1),
    MessageQueue(topic="T", broker_name="broker-a", queue_id=1),
]
WAYS = [
    (min_offset, (), RequestCode.GET_MIN_OFFSET),
    (max_offset, (), RequestCode.GET_MAX_OFFSET),
    (offset_at_time, (TIME_MS,), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
]


class Answering:
    """A cluster that answers whatever it is asked with the same fields."""

    def __init__(self, **fields):
        self.fields = fields
        self.asked = []

    async def ask(self, address, command, header):
        self.asked.append((address, command.code, header.topic, header.queue_id))
        self.times = getattr(header, "timestamp_ms", None)
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=self.fields)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize(("way", "values", "code"), WAYS)
def test_the_broker_at_an_address_is_asked_for_an_offset_of_the_queue(way, values, code, queue):
    cluster = Answering(offset="42")
    assert asyncio.run(way(cluster, "a:1", queue, *values)) == 42
    assert cluster.asked == [("a:1", code, "T", 1)]
    assert cluster.times == (values[0] if values else None)


@pytest.mark.parametrize("fields", [{}, {"offset": "many"}])
@pytest.mark.parametrize(("way", "values", "code"), WAYS)
def test_an_answer_without_an_offset_is_refused_and_names_who_gave_it(way, values, code, fields):
    with pytest.raises(BadAnswer, match=code.name):
        asyncio.run(way(Answering(**fields), "a:1", QUEUES[0], *values))


@within(ask)
async def test_hash_twins_are_told_apart(cluster, admin, /):
    broker = cluster.masters[0]
    assert index_hash("T#Aa") == index_hash("T#BB")
    broker.store("T", b"mine", keys="Aa", unique_key="X-Aa")
    broker.store("T", b"twin", keys="BB", unique_key="X-BB")
    assert bodies(await admin.query_message("T", "Aa")) == [b"mine"]
    assert bodies(await admin.query_message_by_unique_key("T", "X-BB")) == [b"twin"]


@within(ask)
async def test_a_damaged_record_costs_one_record_and_is_reported(cluster, admin, /):
    broker = cluster.masters[0]
    stored = [broker.store("T", b"body-%d" % n, keys="k") for n in range(3)]
    damage_body(broker, stored[1])
    answer = await admin.query_message("T", "k")
    assert bodies(answer) == [b"body-0", b"body-2"]
    assert not answer.complete
    assert "checksum" in answer.failures[0].error
    with pytest.raises(AnswerIncomplete):
        await admin.view_message(stored[1].offset_msg_id)


@pytest.mark.parametrize(
    ("message_filter", "count"),
    [
        (MessageFilter(topic="T", begin=T0 + 11, end=T0 + 14), 4),
        (MessageFilter(topic="Other"), 0),
        # The newest five, and the one that shows that there are more.
        (MessageFilter(topic="T"), 6),
    ],
)
def test_no_more_records_are_taken_apart_than_the_answer_needs(monkeypatch, message_filter, count):
    async def scenario(cluster, _):
        broker = cluster.masters[0]
        for _ in range(30):
            broker.store("T")
        return bytes(broker.log)

    body = ask(scenario)
    taken_apart = []
    plain = RecordView.record
    monkeypatch.setattr(RecordView, "record", lambda view: taken_apart.append(view) or plain(view))
    findings, damage = Findings(AnswerMessages(5)), []
    page = asyncio.run(add_page(body, message_filter, findings, damage))
    # The oldest one shows where the page begins.
    assert (len(taken_apart) - 1, page.records, damage) == (count, 30, [])
