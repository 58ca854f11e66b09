"""Which queue a producer sends to next."""

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.producer import QueueChooser


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
