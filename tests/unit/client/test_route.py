"""Routes and the choice of queues."""

import pytest

from rocketlens.client.faults import QueueChooser
from rocketlens.client.name_servers import name_server_addresses
from rocketlens.client.route import MessageQueue, Route
from rocketlens.errors import BadInput, CommandBodyError
from rocketlens.wire.bodies.route import BrokerData, QueueData, TopicRouteData


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


def test_several_name_servers_are_read_in_any_usual_form():
    assert name_server_addresses("a:1; b:2;;http://c:3,a:1") == ("a:1", "b:2", "c:3")
    assert name_server_addresses(["a:1", "b:2"]) == ("a:1", "b:2")
    with pytest.raises(BadInput):
        name_server_addresses("a")


def queues(*names):
    return [MessageQueue("T", name, number) for name in names for number in range(2)]


def test_brokers_already_tried_come_last():
    chooser = QueueChooser()
    for _ in range(8):
        assert chooser.choose(queues("a", "b", "c"), ["a", "b"]).broker_name == "c"
        assert chooser.choose(queues("a", "b"), ["a", "b"]).broker_name == "a"
        assert chooser.choose(queues("a"), ["a"]).broker_name == "a"


def test_with_isolation_slow_and_failed_brokers_are_left_alone_for_a_while():
    now = [0.0]
    chooser = QueueChooser(isolates_latency=True, clock=lambda: now[0])

    def chosen():
        return {chooser.choose(queues("a", "b", "c")).broker_name for _ in range(12)}

    chooser.took("a", 0.01, failed=True)
    chooser.took("b", 0.6, failed=False)
    assert chosen() == {"c"}
    now[0] = 2.1
    assert chosen() == {"b", "c"}
    now[0] = 10.1
    assert chosen() == {"a", "b", "c"}
    for name, seconds in (("a", 20), ("b", 4), ("c", 6)):
        chooser.took(name, seconds, failed=False)
    assert chosen() == {"b"}, "the one that is back first"
    chooser.took("c", 0.001, failed=False)
    assert chosen() == {"c"}


def test_without_isolation_nothing_is_held_against_a_broker():
    chooser = QueueChooser(clock=lambda: 0.0)
    chooser.took("a", 99, failed=True)
    assert {chooser.choose(queues("a", "b")).broker_name for _ in range(8)} == {"a", "b"}
