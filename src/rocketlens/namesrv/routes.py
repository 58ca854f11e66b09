"""The tables of a name server, without input or output; the caller passes the time.

The rules are RocketMQ's. A broker's topics are written if its broker id is new, its DataVersion has
changed, or they are missing. Only the master writes them; if brokers permit slaves to act as
master, the slave with the smallest id does, read-only. Topics that a later registration lacks stay.
A broker is dropped when it unregisters, when its connection closes, and after 120 s without a
registration or heartbeat. The last broker of a name takes its topics with it.

Differences from RocketMQ: a broker is superseded only by one with a later state version in the
range of a controller, and only if it has a state version itself, so that a forged number does not
exclude a broker for ever. A broker that returns after it was superseded writes all its topics
again. One name can be reserved for the broker in the same process. Routes have no filter servers,
which RocketMQ does not have any more. Source: ``RouteInfoManager``.
"""

import logging
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import (
    MASTER_ID,
    PERM_READ_WRITE,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUB_FLAG,
)
from rocketlens.wire.bodies.tables import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicList,
    TopicRouteData,
)
from rocketlens.wire.commands.brokers import RegisterBrokerRequest, RegisterBrokerResponse

MAX_NAMESRV_QUEUE_DATAS: Final = 1_000_000
"""Topics times brokers of a name server. RocketMQ: no limit."""
MAX_NAMESRV_BROKERS: Final = 10_000
"""Brokers of a name server. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.namesrv")

EXPIRY_S: Final = 120.0
"""Default seconds without a registration or heartbeat after which a broker is dropped."""

TOPICS_AT_ONCE: Final = 500
"""Topics of a registration written in one step: 1 to 2 ms."""

BrokerKey = tuple[str, str]
"""Cluster and address."""


class _Live(Struct):
    """A registered broker."""

    broker_name: str
    ha_server_addr: str
    data_version: DataVersion
    channel: Hashable
    last_heard_s: float
    expiry_s: float


class _Name(Struct):
    """The brokers of one name."""

    cluster: str
    enable_acting_master: bool = False
    broker_addrs: dict[int, str] = field(default_factory=dict)


class Reserved(NamedTuple):
    """A name reserved for one broker."""

    broker_name: str
    address: str
    is_owner: Callable[[Hashable], bool]
    """Returns True for a channel of that broker."""


class RouteTable:
    """Registered brokers and their topics. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        """Queues by topic and broker name."""
        self._names: dict[str, _Name] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        """Broker names by cluster, in the order of registration."""
        self._live: dict[BrokerKey, _Live] = {}
        self._channels: dict[Hashable, set[BrokerKey]] = {}
        self._queue_datas = 0
        self._topics_of: dict[str, set[str]] = {}
        """Topics by broker name."""
        self.reserved: Reserved | None = None

    def register(
        self,
        request: RegisterBrokerRequest,
        body: RegisterBrokerBody,
        channel: Hashable,
        now_s: float,
    ) -> Generator[None, None, RegisterBrokerResponse | None]:
        """Register a broker in small steps, between which other requests can be handled. O(its
        topics).

        If the broker is dropped in between, its remaining topics are skipped. Returns None if the
        registration is refused: an unknown broker with exactly one topic registers that topic too
        early. It has no effect then, or if another broker has the same id with a later state.

        :raises BadInput: if a name is too long or reserved, or a table is full.
        """
        name, address = request.broker_name, request.broker_addr
        key = request.cluster_name, address
        self._check_reserved(name, address, channel)
        # First: other brokers can register and leave in between.
        yield from self._check_room(request, body)
        version = body.topic_config_table.data_version
        topics = body.topic_config_table.topic_config_table.values()
        registered_name = self._names.get(name)
        addrs = {
            broker_id: each
            for broker_id, each in (registered_name.broker_addrs if registered_name else {}).items()
            if each != address or broker_id == request.broker_id
        }
        if self._is_superseded(
            request.cluster_name, addrs.get(request.broker_id), address, version
        ):
            self._forget_live(key)
            return RegisterBrokerResponse()
        is_new = request.broker_id not in addrs
        is_back = addrs.get(request.broker_id, address) != address
        if is_new and len(topics) == 1:
            return None
        addrs[request.broker_id] = address
        entry = registered_name or _Name(request.cluster_name)
        entry.broker_addrs = addrs
        entry.enable_acting_master = bool(request.enable_acting_master)
        self._names[name] = entry
        self._clusters.setdefault(request.cluster_name, {})[name] = None
        before = self._live.get(key)
        changed = is_new or is_back or before is None or before.data_version != version
        self._forget_live(key)
        self._live[key] = _Live(
            name,
            request.ha_server_addr,
            version,
            channel,
            now_s,
            EXPIRY_S
            if request.heartbeat_timeout_ms is None
            else request.heartbeat_timeout_ms / 1000,
        )
        if before is None:
            line = "broker %s (id %d) of %s at %s is registered with %d topics"
            _log.info(line, name, request.broker_id, request.cluster_name, address, len(topics))
        self._channels.setdefault(channel, set()).add(key)
        yield from self._write_topics(request, topics, entry, changed=changed)
        return self._registration_response(request, entry)

    def leave(self, cluster: str, address: str, broker_name: str, channel: Hashable) -> None:
        """:raises BadInput: if the name or address is reserved."""
        self._check_reserved(broker_name, address, channel)
        if (cluster, address) in self._live:
            _log.info("broker %s of %s at %s unregisters", broker_name, cluster, address)
        self.unregister(cluster, address, broker_name)

    def unregister(self, cluster: str, address: str, broker_name: str) -> None:
        """Drop a broker; no effect if it is not registered."""
        self._forget_live((cluster, address))
        name = self._names.get(broker_name)
        if name is None:
            return
        name.broker_addrs = {
            broker_id: each for broker_id, each in name.broker_addrs.items() if each != address
        }
        if not name.broker_addrs:
            del self._names[broker_name]
            for each, names in list(self._clusters.items()):
                names.pop(broker_name, None)
                if not names:
                    del self._clusters[each]
            self._drop_topics([broker_name], list(self._topics_of.get(broker_name, ())))
        elif name.enable_acting_master and min(name.broker_addrs) != MASTER_ID:
            self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def touch(self, cluster: str, address: str, now_s: float) -> None:
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_heard_s = now_s

    def channel_closed(self, channel: Hashable) -> list[str]:
        """Drop the brokers that registered over this channel last; return their addresses."""
        brokers = list(self._channels.get(channel, ()))
        for cluster, address in brokers:
            self.unregister(cluster, address, self._live[cluster, address].broker_name)
        return [address for _, address in brokers]

    def expire(self, now_s: float) -> list[Hashable]:
        """Drop expired brokers; return their channels, which the caller closes."""
        expired = [
            (key, live)
            for key, live in self._live.items()
            if now_s - live.last_heard_s > live.expiry_s
        ]
        for (cluster, address), live in expired:
            self.unregister(cluster, address, live.broker_name)
        return [live.channel for _, live in expired]

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Register the queues of a topic; no effect if one of the brokers is not registered.

        :raises BadInput: if the name is too long, or a table is full.
        """
        queues = list(queue_datas)
        if any(each.broker_name not in self._names for each in queues):
            return
        self._check_topic(topic)
        self._check_count(len(queues))
        for each in queues:
            self._put(topic, each)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, in one cluster or all; a broker's next change registers it again."""
        names = (
            list(self._topics.get(topic, ())) if not cluster else self._clusters.get(cluster, ())
        )
        self._drop_topics(names, [topic])

    def wipe_write_permission(self, broker_name: str) -> int:
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Add read and write permission to all topics of a broker; return their number."""
        return self._set_perm(broker_name, lambda _: PERM_READ_WRITE)

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        queues = self._topics.get(topic)
        if not queues:
            return None
        return TopicRouteData(
            queue_datas=tuple(queues.values()),
            broker_datas=tuple(self._broker_data(name) for name in queues),
            order_topic_conf=order_topic_conf,
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in self._names},
            cluster_addr_table={each: tuple(names) for each, names in self._clusters.items()},
        )

    def member_addrs(self, broker_name: str) -> dict[int, str]:
        name = self._names.get(broker_name)
        return dict(name.broker_addrs) if name is not None else {}

    @property
    def broker_count(self) -> int:
        return len(self._live)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def topic_names(self) -> Iterator[str | None]:
        """Yield the names of all current topics; the tables can change in between."""
        return iter(list(self._topics))

    def topics_of_cluster(self, cluster: str) -> Iterator[str | None]:
        """Yield for each topic its name, or None if it is not in the cluster."""
        names = self._clusters.get(cluster, {})
        for topic in list(self._topics):
            yield None if names.keys().isdisjoint(self._topics.get(topic, ())) else topic

    def system_topics(self) -> TopicList:
        """Return the names of clusters and brokers, which are topics, too."""
        listed: dict[str, None] = {}
        for cluster, names in self._clusters.items():
            listed |= {cluster: None, **names}
        addresses = [each for name in self._names.values() for each in name.broker_addrs.values()]
        return TopicList(topic_list=tuple(listed), broker_addr=addresses[0] if addresses else None)

    def unit_topics(self, *, unit: bool | None, unit_sub: bool | None) -> Iterator[str | None]:
        """Yield each topic's name, or None if its unit flags differ; a flag None matches both."""
        for topic in list(self._topics):
            queues = next(iter(self._topics.get(topic, {}).values()), None)
            flag = 0 if queues is None else queues.topic_sys_flag
            is_chosen = unit in (None, bool(flag & UNIT_FLAG)) and unit_sub in (
                None,
                bool(flag & UNIT_SUB_FLAG),
            )
            yield topic if is_chosen and queues is not None else None

    def _is_superseded(
        self, cluster: str, holder: str | None, address: str, version: DataVersion
    ) -> bool:
        """Return True if another broker has the same id with a later state."""
        if holder is None or holder == address:
            return False
        live = self._live.get((cluster, holder))
        # Without a controller the state version is 0 and has no meaning.
        return live is not None and live.data_version.state_version > version.state_version > 0

    def _check_reserved(self, name: str, address: str, channel: Hashable) -> None:
        reserved = self.reserved
        if reserved is None or reserved.is_owner(channel):
            return
        if name == reserved.broker_name:
            raise BadInput(
                f"the name {name} is reserved for the broker in the process of this name server: "
                "use another brokerName"
            )
        if address == reserved.address:
            raise BadInput(f"the address {address} is reserved for broker {reserved.broker_name}")

    def _check_room(
        self, request: RegisterBrokerRequest, body: RegisterBrokerBody
    ) -> Iterator[None]:
        for text in (request.cluster_name, request.broker_name, request.broker_addr):
            if not 0 < len(text) <= limits.MAX_ADDRESS_CHARACTERS:
                raise BadInput(
                    f"names and addresses have 1 to {limits.MAX_ADDRESS_CHARACTERS} characters, "
                    f"not {len(text)}"
                )
        if len(request.ha_server_addr) > limits.MAX_ADDRESS_CHARACTERS:
            raise BadInput(f"an address has at most {limits.MAX_ADDRESS_CHARACTERS} characters")
        state = body.topic_config_table.data_version.state_version
        if state > limits.MAX_STATE_VERSION:
            raise BadInput(f"stateVersion {state}: {limits.MAX_STATE_VERSION} at most")
        key = request.cluster_name, request.broker_addr
        if key not in self._live and len(self._live) >= MAX_NAMESRV_BROKERS:
            raise BadInput(f"{len(self._live)} brokers are registered, the maximum")
        added = 0
        for number, each in enumerate(body.topic_config_table.topic_config_table.values(), 1):
            self._check_topic(each.topic_name)
            added += request.broker_name not in self._topics.get(each.topic_name, ())
            if number % TOPICS_AT_ONCE == 0:
                yield
        if self.reserved is None or request.broker_name != self.reserved.broker_name:
            self._check_count(added)

    def _check_topic(self, topic: str) -> None:
        if not 0 < len(topic) <= limits.MAX_TOPIC_CHARACTERS:
            raise BadInput(
                f"a topic has 1 to {limits.MAX_TOPIC_CHARACTERS} characters, not {len(topic)}"
            )

    def _check_count(self, added: int) -> None:
        if self._queue_datas + added > MAX_NAMESRV_QUEUE_DATAS:
            raise BadInput(
                f"{self._queue_datas} topics are registered, and {added} more exceed the maximum"
            )

    def _write_topics(
        self,
        request: RegisterBrokerRequest,
        topics: Iterable[TopicConfig],
        entry: _Name,
        *,
        changed: bool,
    ) -> Iterator[None]:
        broker_id = request.broker_id
        acts = (
            request.enable_acting_master is not None
            and broker_id != MASTER_ID
            and broker_id == min(entry.broker_addrs)
        )
        if broker_id != MASTER_ID and not acts:
            return
        kept = ~PERM_WRITE if acts and entry.enable_acting_master else ~0
        name = request.broker_name
        for number, each in enumerate(topics, 1):
            if number % TOPICS_AT_ONCE == 0:
                yield
                if self._names.get(name) is not entry:
                    return
            if changed or name not in self._topics.get(each.topic_name, ()):
                queues = QueueData(
                    broker_name=name,
                    read_queue_nums=each.read_queue_nums,
                    write_queue_nums=each.write_queue_nums,
                    perm=each.perm & kept,
                    topic_sys_flag=each.topic_sys_flag,
                )
                self._put(each.topic_name, queues)

    def _registration_response(
        self, request: RegisterBrokerRequest, entry: _Name
    ) -> RegisterBrokerResponse:
        """Return the master's addresses to a slave; empty for a master."""
        master = entry.broker_addrs.get(MASTER_ID)
        if request.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResponse()
        live = self._live.get((request.cluster_name, master))
        if live is None:
            return RegisterBrokerResponse()
        return RegisterBrokerResponse(ha_server_addr=live.ha_server_addr, master_addr=master)

    def _put(self, topic: str, queues: QueueData) -> None:
        brokers = self._topics.setdefault(topic, {})
        self._queue_datas += queues.broker_name not in brokers
        self._topics_of.setdefault(queues.broker_name, set()).add(topic)
        brokers[queues.broker_name] = queues

    def _drop_topics(self, broker_names: Iterable[str], topics: Iterable[str]) -> None:
        names = list(broker_names)
        for topic in topics:
            brokers = self._topics.get(topic, {})
            for name in names:
                if brokers.pop(name, None) is not None:
                    self._queue_datas -= 1
                    self._topics_of[name].discard(topic)
                    if not self._topics_of[name]:
                        del self._topics_of[name]
            if not brokers:
                self._topics.pop(topic, None)

    def _set_perm(self, broker_name: str, perm_of: Callable[[int], int]) -> int:
        topics = self._topics_of.get(broker_name, ())
        for topic in topics:
            brokers = self._topics[topic]
            queues = brokers[broker_name]
            brokers[broker_name] = replace(queues, perm=perm_of(queues.perm))
        return len(topics)

    def _forget_live(self, key: BrokerKey) -> None:
        live = self._live.pop(key, None)
        if live is not None:
            keys = self._channels[live.channel]
            keys.discard(key)
            if not keys:
                del self._channels[live.channel]

    def _broker_data(self, broker_name: str) -> BrokerData:
        name = self._names[broker_name]
        return BrokerData(
            broker_name=broker_name,
            broker_addrs=dict(sorted(name.broker_addrs.items())),
            cluster=name.cluster,
            enable_acting_master=name.enable_acting_master,
        )
