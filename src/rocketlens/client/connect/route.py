"""The route of a topic: its brokers and queues; and a cache with the lifetime of routes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Self, TypeVar

from msgspec import Struct

from rocketlens import limits
from rocketlens.errors import BadInput, CommandBodyError, TopicNotFound
from rocketlens.model.message import Host
from rocketlens.model.message_id import pack_address
from rocketlens.model.rocketmq import MASTER_ID, PERM_READ, PERM_WRITE
from rocketlens.model.text.java import string_hash
from rocketlens.wire.bodies import tables
from rocketlens.wire.bodies.static_topics import StaticTopic
from rocketlens.wire.bodies.tables import BrokerData, QueueData, TopicRouteData

ROUTE_REFRESH_S: Final = 30.0
"""Seconds for which a client uses a topic's route, unless a send fails. RocketMQ: 30."""
MAX_ROUTE_BROKERS: Final = 10_000
"""Brokers that a client accepts in one answer; the limit of RocketLens' name server."""
MAX_BROKER_ADDRESSES: Final = 64
"""Addresses of one broker, master and slaves, that a client accepts. RocketMQ: any."""
MAX_TOPOLOGY_ROUTES: Final = 10_000
"""Topic routes that a querying client caches."""
MessageQueue = tables.MessageQueue
T = TypeVar("T")
K = TypeVar("K")


class Broker(Struct, frozen=True):
    """A master and its slaves. ``addresses`` maps broker ids to addresses."""

    name: str
    addresses: Mapping[int, str]
    cluster_name: str = ""

    @property
    def master(self) -> str | None:
        """The address of the master; None if there is none."""
        return self.addresses.get(MASTER_ID)

    @property
    def origin(self) -> tuple[str | None, str]:
        """The names of its cluster, None if unknown, and of the broker."""
        return self.cluster_name or None, self.name

    @property
    def in_order(self) -> tuple[str, ...]:
        """All addresses: the master's first, then those of slaves."""
        return tuple(self.addresses[number] for number in sorted(self.addresses))


def set_order(queues: Sequence[MessageQueue], *, is_copied: bool = False) -> list[MessageQueue]:
    """Sort queues in the iteration order of Java's ``HashSet`` or ``HashMap``.

    ``is_copied``: after `putAll` from such a map into an empty one, which has a smaller table.
    """
    size = 16
    while len(queues) * 4 > size * 3:
        size *= 2
    in_order = sorted(queues, key=lambda queue: _spread_hash(queue) & (size - 1))
    if not is_copied:
        return in_order
    size = 1
    while size < len(queues) * 4 // 3 + 1:
        size *= 2
    return sorted(in_order, key=lambda queue: _spread_hash(queue) & (size - 1))


def _spread_hash(queue: MessageQueue) -> int:
    hashed = 31 + string_hash(queue.broker_name)
    hashed = hashed * 31 + queue.queue_id
    hashed = (hashed * 31 + string_hash(queue.topic)) & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def is_address_of(address: str, host: Host) -> bool:
    """Return True if a broker's registered address is that of a host.

    Only numeric addresses are compared: host names are not resolved.
    """
    name, _, port = address.rpartition(":")
    try:
        packed = pack_address(name.removeprefix("[").removesuffix("]"))
        return (packed, port) == (pack_address(host.address), str(host.port))
    except BadInput:
        return False


def brokers_of(broker_datas: Iterable[BrokerData]) -> dict[str, Broker]:
    """Return brokers by name, in the order of their names.

    :raises CommandBodyError: if there are more brokers, or more addresses of one, than the bounds.
    """
    broker_datas = list(broker_datas)
    if len(broker_datas) > MAX_ROUTE_BROKERS:
        raise CommandBodyError(
            f"{len(broker_datas)} brokers; at most {MAX_ROUTE_BROKERS} are accepted"
        )
    for each in broker_datas:
        if len(each.broker_addrs) > MAX_BROKER_ADDRESSES:
            raise CommandBodyError(
                f"{len(each.broker_addrs)} addresses of broker {each.broker_name[:80]}; "
                f"at most {MAX_BROKER_ADDRESSES} are accepted"
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


class Route(Struct, frozen=True):
    """The route of one topic.

    Queues are in the order of broker name and queue id, so that every client maps a sharding key to
    the same queue. Only queues of brokers with a master can be written to.
    """

    topic: str
    brokers: Mapping[str, Broker]
    read_queues: tuple[MessageQueue, ...]
    write_queues: tuple[MessageQueue, ...]
    unreadable_queues: tuple[MessageQueue, ...] = ()
    """Queues that can have messages but cannot be pulled: the topic has no read permission, or
    fewer read queues than write queues.
    """
    static: StaticTopic | None = None
    """The logical queues of a static topic, if brokers were asked for them. The route's queues are
    those of the brokers.
    """

    @classmethod
    def of(cls, topic: str, received: TopicRouteData) -> Self:
        """Return the route in a name server's response.

        :raises CommandBodyError: if it has more queues than the bound.
        """
        _check_count(topic, received.queue_datas)
        brokers = brokers_of(received.broker_datas)
        queue_datas = sorted(received.queue_datas, key=lambda each: each.broker_name)
        readable = _queues(topic, queue_datas, PERM_READ)
        if received.order_topic_conf:
            writable = _ordered_queues(topic, received.order_topic_conf)
        else:
            writable = _queues(topic, queue_datas, PERM_WRITE)
        unreadable = [
            queue
            for each in queue_datas
            for queue in _of_broker(
                topic, each.broker_name, max(each.read_queue_nums, each.write_queue_nums)
            )
            if not each.perm & PERM_READ or queue.queue_id >= each.read_queue_nums
        ]
        masters = {name for name, broker in brokers.items() if broker.master is not None}
        return cls(
            topic,
            brokers,
            tuple(queue for queue in readable if queue.broker_name in brokers),
            tuple(queue for queue in writable if queue.broker_name in masters),
            tuple(queue for queue in unreadable if queue.broker_name in brokers),
        )

    def queues_of(self, broker_name: str) -> list[MessageQueue]:
        """Return the readable queues of one broker."""
        return [each for each in self.read_queues if each.broker_name == broker_name]

    def brokers_in(self, cluster_name: str | None) -> list[Broker]:
        """Return all brokers, or those of one cluster.

        :raises TopicNotFound: if none of them is in that cluster.
        """
        brokers = [
            each for each in self.brokers.values() if cluster_name in {None, each.cluster_name}
        ]
        if cluster_name is not None and not brokers:
            raise TopicNotFound(f"topic {self.topic}: not on a broker of cluster {cluster_name}")
        return brokers

    def as_default_of(self, topic: str, most_queues: int) -> Self:
        """Return the route that ``topic`` will have once a broker creates it; self is TBW102's."""
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
    """Check the total before queues are created: each takes 200 bytes."""
    count = sum(max(0, each.read_queue_nums, each.write_queue_nums) for each in queue_datas)
    if count > limits.MAX_ROUTE_QUEUES:
        raise CommandBodyError(
            f"a route with {count} queues of topic {topic} on {len(queue_datas)} brokers; "
            f"at most {limits.MAX_ROUTE_QUEUES} are accepted"
        )


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    """Parse ``broker-a:4;broker-b:4``: an ordered topic's queues, which override the brokers'."""
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
            f"a route with {count} queues of topic {topic} on {broker_name}; "
            f"at most {limits.MAX_TOPIC_QUEUES} are accepted"
        )
    return [MessageQueue(topic, broker_name, number) for number in range(count)]


class Recent(Generic[K, T]):
    """Caches values for 30 s, by key. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._values: Final[dict[K, tuple[float, T]]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        """Return a value; if none is cached, await ``ask``, whose errors are raised."""
        cached = self._values.get(key)
        if cached is None or self._clock() - cached[0] >= ROUTE_REFRESH_S:
            if len(self._values) > MAX_TOPOLOGY_ROUTES:
                self._values.clear()
            cached = self._clock(), await ask()
            self._values[key] = cached
        return cached[1]
