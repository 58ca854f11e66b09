"""A queue is read from its newest end; what is not read of it is looked at by samples."""

import pytest

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_read import QueueReader, read_queue
from rocketlens.errors import BrokerError
from rocketlens.net.channel import Response
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import T0, ask
from tests.support.patience import PATIENCE_S

QUEUE = MessageQueue("T", "broker-a", 0)


async def read_in_order(cluster, address, queue, *, findings, queue_count, **options):
    """Read as `read_queue` does, from the oldest message on."""

    async def take(*_):
        pass

    samples = max(limits.MIN_ORDER_SAMPLES, limits.MAX_ORDER_SAMPLES // queue_count)
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
    monkeypatch.setattr(limits, "MAX_EMPTY_PULLS", 3)

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
    assert "nothing at 4 offsets in a row: it is not read on" in damage


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
@pytest.mark.parametrize("part", [0.02, 0.15, 0.3, 0.5, 0.7, 0.85, 0.98])
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
    assert pulls(broker) <= 2 * (limits.MIN_ORDER_SAMPLES + 1) + 4


@both_ways
@pytest.mark.parametrize("times", [{}, {"begin": T0 + 5}, {"end": T0 + 300}, {"begin": T0 + 600}])
def test_a_queue_that_is_read_whole_relies_on_nothing(times, how):
    _, damage, broker = read(as_it_is, count=500, how=how, **times)
    assert (damage, broker.relies_on_order) == ([], False)
