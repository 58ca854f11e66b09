"""Where a topic is: its brokers and queues, as a client sees them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from rocketlens import limits
from rocketlens.errors import CommandBodyError, TopicNotFound
from rocketlens.model.rocketmq import MASTER_ID, PERM_READ, PERM_WRITE
from rocketlens.wire.bodies.route import BrokerData, QueueData, TopicRouteData


class MessageQueue(NamedTuple):
    """One queue of a topic; printed as RocketMQ prints it."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Return ``MessageQueue [topic=T, brokerName=b, queueId=0]``."""
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )


@dataclass(frozen=True, slots=True)
class Broker:
    """The master and slaves of one broker name. ``addresses``: broker id to address."""

    name: str
    addresses: Mapping[int, str]
    cluster_name: str = ""

    @property
    def master(self) -> str | None:
        """The address of the master, None while there is none."""
        return self.addresses.get(MASTER_ID)

    @property
    def in_order(self) -> tuple[str, ...]:
        """All addresses: the master's first, then those of slaves."""
        return tuple(self.addresses[number] for number in sorted(self.addresses))


def brokers_of(broker_datas: Iterable[BrokerData]) -> dict[str, Broker]:
    """Return brokers by name, in the order of their names.

    :raises CommandBodyError: when there are more, or more addresses of one, than are believed.
    """
    broker_datas = list(broker_datas)
    if len(broker_datas) > limits.MAX_ROUTE_BROKERS:
        raise CommandBodyError(f"{len(broker_datas)} brokers, {limits.MAX_ROUTE_BROKERS} believed")
    for each in broker_datas:
        if len(each.broker_addrs) > limits.MAX_BROKER_ADDRESSES:
            raise CommandBodyError(
                f"{len(each.broker_addrs)} addresses of broker {each.broker_name[:80]}, "
                f"{limits.MAX_BROKER_ADDRESSES} believed"
            )
    brokers = [
        Broker(
            each.broker_name,
            {n: a for n, a in each.broker_addrs.items() if n >= MASTER_ID},
            each.cluster or "",
        )
        for each in broker_datas
    ]
    return {each.name: each for each in sorted(brokers, key=lambda each: each.name)}


@dataclass(frozen=True, slots=True)
class Route:
    """Where one topic is.

    Queues are in the order of broker name and queue id, so that every client which maps a
    sharding key to a queue finds the same one. Only queues whose broker has a master can be
    written to.
    """

    topic: str
    brokers: Mapping[str, Broker]
    read_queues: tuple[MessageQueue, ...]
    write_queues: tuple[MessageQueue, ...]

    @classmethod
    def of(cls, topic: str, received: TopicRouteData) -> Self:
        """Make a route of a name server's answer.

        :raises CommandBodyError: when it has more queues than are believed.
        """
        _check_count(topic, received.queue_datas)
        brokers = brokers_of(received.broker_datas)
        queue_datas = sorted(received.queue_datas, key=lambda each: each.broker_name)
        readable = _queues(topic, queue_datas, PERM_READ)
        if received.order_topic_conf:
            writable = _ordered_queues(topic, received.order_topic_conf)
        else:
            writable = _queues(topic, queue_datas, PERM_WRITE)
        masters = {name for name, broker in brokers.items() if broker.master is not None}
        return cls(
            topic,
            brokers,
            tuple(queue for queue in readable if queue.broker_name in brokers),
            tuple(queue for queue in writable if queue.broker_name in masters),
        )

    def brokers_in(self, cluster_name: str | None) -> list[Broker]:
        """Return all brokers, or those of one cluster.

        :raises TopicNotFound: when none of them is in that cluster.
        """
        brokers = [
            each for each in self.brokers.values() if cluster_name in {None, each.cluster_name}
        ]
        if cluster_name is not None and not brokers:
            raise TopicNotFound(f"topic {self.topic}: not on a broker of cluster {cluster_name}")
        return brokers

    def as_default_of(self, topic: str, most_queues: int) -> Self:
        """Return the route that ``topic`` will have once a broker makes it, if this is TBW102's."""
        writable = [
            queue._replace(topic=topic)
            for queue in self.write_queues
            if queue.queue_id < most_queues
        ]
        return type(self)(topic, self.brokers, tuple(writable), tuple(writable))


def _queues(topic: str, queue_datas: list[QueueData], permission: int) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for each in queue_datas:
        if each.perm & permission:
            count = each.read_queue_nums if permission == PERM_READ else each.write_queue_nums
            queues += _of_broker(topic, each.broker_name, count)
    return queues


def _check_count(topic: str, queue_datas: tuple[QueueData, ...]) -> None:
    """Look at the sum before a queue is made: each takes 200 bytes."""
    count = sum(max(0, each.read_queue_nums, each.write_queue_nums) for each in queue_datas)
    if count > limits.MAX_ROUTE_QUEUES:
        raise CommandBodyError(
            f"a route with {count} queues of topic {topic} on {len(queue_datas)} brokers, "
            f"{limits.MAX_ROUTE_QUEUES} believed"
        )


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    """Read ``broker-a:4;broker-b:4``: which queues an ordered topic has, whatever brokers say."""
    queues: list[MessageQueue] = []
    for part in filter(None, order_topic_conf.split(";")):
        if len(queues) > limits.MAX_ROUTE_QUEUES:
            raise CommandBodyError(f"over {limits.MAX_ROUTE_QUEUES} ordered queues of {topic}")
        name, _, count = part.partition(":")
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise CommandBodyError(f"order configuration {part[:80]!r} of topic {topic}")
        queues += _of_broker(topic, name, int(count))
    return queues


def _of_broker(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    if count > limits.MAX_TOPIC_QUEUES:
        raise CommandBodyError(
            f"a route with {count} queues of topic {topic} on {broker_name}, "
            f"{limits.MAX_TOPIC_QUEUES} believed"
        )
    return [MessageQueue(topic, broker_name, number) for number in range(count)]
