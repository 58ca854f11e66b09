"""Routes."""

import pytest

from rocketlens.client.connect.route import MessageQueue, Route, is_address_of, set_order
from rocketlens.errors import CommandBodyError
from rocketlens.model.message import Host
from rocketlens.wire.bodies.tables import BrokerData, QueueData, TopicRouteData


def received(*counts, perm=6, order=None, addresses=None):
    names = [f"b{number}" for number in range(len(counts))]
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=n, write_queue_nums=n, perm=perm)
            for name, n in reversed(list(zip(names, counts, strict=True)))
        ),
        broker_datas=tuple(
            BrokerData(broker_name=name, broker_addrs=addresses or {0: f"{name}:1", 2: "s:2"})
            for name in names
        ),
        order_topic_conf=order,
    )


def test_queues_are_in_the_order_of_broker_and_number():
    route = Route.of("T", received(2, 1))
    assert [str(queue) for queue in route.write_queues] == [
        "MessageQueue [topic=T, brokerName=b0, queueId=0]",
        "MessageQueue [topic=T, brokerName=b0, queueId=1]",
        "MessageQueue [topic=T, brokerName=b1, queueId=0]",
    ]
    assert route.read_queues == route.write_queues
    assert route.brokers["b0"].in_order == ("b0:1", "s:2")


def test_permissions_decide_what_is_read_and_written():
    assert Route.of("T", received(1, perm=4)).write_queues == ()
    assert Route.of("T", received(1, perm=2)).read_queues == ()
    assert Route.of("T", received(1, addresses={1: "s:1"})).write_queues == ()


def test_an_ordered_topic_has_the_queues_of_its_configuration():
    route = Route.of("T", received(1, 1, order="b1:2;b0:1"))
    assert [(q.broker_name, q.queue_id) for q in route.write_queues] == [
        ("b1", 0),
        ("b1", 1),
        ("b0", 0),
    ]
    with pytest.raises(CommandBodyError):
        Route.of("T", received(1, order="b0:many"))


def test_a_route_with_absurdly_many_queues_is_refused():
    with pytest.raises(CommandBodyError, match="2147483647"):
        Route.of("T", received(2**31 - 1))


def test_queues_are_in_the_order_of_javas_maps():
    """As the real tool printed them: a set of four, and the same copied into a smaller table."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    assert [each.queue_id for each in set_order(queues)] == [2, 1, 3, 0]
    assert [each.queue_id for each in set_order(queues, is_copied=True)] == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("address", "host", "same"),
    [
        ("10.0.0.1:10911", Host("10.0.0.1", 10911), True),
        ("10.0.0.1:10912", Host("10.0.0.1", 10911), False),
        ("[fd00:0:0:0:0:0:0:2]:10911", Host("fd00::2", 10911), True),
        ("fd00::2:10911", Host("fd00::2", 10911), True),
        ("broker.example:10911", Host("10.0.0.1", 10911), False),
        ("", Host("10.0.0.1", 10911), False),
    ],
)
def test_addresses_are_compared_by_what_they_mean(address, host, same):
    assert is_address_of(address, host) is same
