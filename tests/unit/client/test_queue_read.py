"""A queue is read from its newest end, and for as long only as what it has can be kept."""

import pytest

from rocketlens import limits
from rocketlens.client.queue_read import read_queue
from rocketlens.client.route import MessageQueue
from rocketlens.errors import BrokerError
from rocketlens.net.channel import Response
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.verify import MessageFilter
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.unit.client.fake_cluster import T0, ask

QUEUE = MessageQueue("T", "broker-a", 0)


def read(scenario, count=100, max_num=None, **times):
    """Run ``scenario(broker)`` and then a read; return the bodies, the damage and the broker."""

    async def main(cluster, admin):
        broker = cluster.masters[0]
        for number in range(count):
            broker.store("T", b"%d" % number)
        scenario(broker)
        await admin.message_queues("T")
        findings, damage = Findings(AnswerMessages(max_num)), []
        await read_queue(
            admin.source.cluster,
            broker.address,
            QUEUE,
            message_filter=MessageFilter(topic="T", **times),
            findings=findings,
            damage=damage,
        )
        return [int(each.body) for each in findings.answer("").messages], damage, broker

    return ask(main, timeout_s=60)


def pulls(broker):
    return broker.codes().count(RequestCode.PULL_MESSAGE)


def as_it_is(_):
    pass


@pytest.mark.parametrize(("begin", "end"), [(1, 100), (1, 1), (33, 65), (100, 100), (101, 200)])
def test_all_messages_between_two_times_are_read_and_no_others(begin, end):
    found, damage, _ = read(as_it_is, begin=T0 + begin, end=T0 + end)
    assert found == [number for number in range(100) if begin <= number + 1 <= end]
    assert damage == []


def test_the_newest_few_are_read_without_the_rest():
    found, damage, broker = read(as_it_is, max_num=5)
    assert (found, damage) == ([95, 96, 97, 98, 99], [])
    assert pulls(broker) < 100 // limits.MAX_PULL_MESSAGES


def test_a_message_that_came_after_a_clock_was_set_back_a_little_is_found():
    def set_back(broker):
        broker.step_ms = -10
        broker.store("T", b"100")

    found, _, _ = read(set_back, begin=T0 + 90, end=T0 + 90)
    assert found == [89, 100]


def test_what_is_appended_meanwhile_is_not_read():
    def growing(broker):
        plain = broker.pull

        def pull(header, command):
            broker.store("T", b"999")
            return plain(header, command)

        broker.pull = pull
        broker.server.handlers.update(broker.handlers())

    found, damage, _ = read(growing)
    assert (found, damage) == (list(range(100)), [])


def test_a_broker_that_gives_nothing_at_place_after_place_is_left_and_named(monkeypatch):
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

    found, (damage,), broker = read(empty)
    assert found == []
    assert broker.address in damage
    assert "nothing at 4 places in a row: it is not read on" in damage


def test_a_broker_that_will_not_is_an_error():
    with pytest.raises(BrokerError, match="it broke"):
        read(lambda broker: broker.err())
