"""Finds the brokers that a complete answer needs, and reports those that cannot be asked.

A producer uses the first name server that responds. A query asks all of them and merges their
answers: a broker may be registered at only one, or a topic known to only one. So these make the
coverage fail:

* a name server that does not answer, even if a cached route is used or others know the topic
* no registered broker, or a broker that was seen before and is not registered now
* a broker without a registered master: its slaves may not have all topics yet
* a slave that answers for its master: it may lack the newest messages. With
  ``supportActingMaster``, name servers of RocketMQ 5 list a slave as master in routes

If no name server knows a topic and one failed, the failure is raised: that one might know it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.broker_history import SeenBroker, SeenBrokers
from rocketlens.client.connect.cluster import ClusterCalls, failed_broker
from rocketlens.client.connect.compacted_topics import (
    broker_config,
    static_topic,
    topic_attributes,
    topic_config,
)
from rocketlens.client.connect.route import (
    MAX_TOPOLOGY_ROUTES,
    ROUTE_REFRESH_S,
    Broker,
    MessageQueue,
    Route,
    brokers_of,
)
from rocketlens.errors import BrokerError, RemotingError, RocketLensError, TopicNotFound
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.life import time_text
from rocketlens.model.rocketmq import BATCH_QUEUE, LMQ_PREFIX, PERM_WRITE, QUEUE_TYPE
from rocketlens.model.text.nearest import suggestion
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.query.answer_builder import to_logical
from rocketlens.wire.bodies.tables import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands import brokers as commands
from rocketlens.wire.declare import A, Command, NoFields, Q

B = TypeVar("B")
T = TypeVar("T")


NAME_SERVERS: Final = "name servers"
"""The source in coverage that stands for all name servers."""
_NO_BROKER: Final = failed_broker(NAME_SERVERS, "no broker is registered")


class TopologyResult(NamedTuple, Generic[T]):
    """The merged answers of all name servers, with the coverage of failures."""

    value: T
    coverage: tuple[Coverage, ...]


_Listed = tuple[float, TopologyResult[dict[str, Broker]]]
"""All brokers, and the time of the request."""

_INDEX_SETTINGS: Final = ("messageIndexEnable", "indexFileWriteEnable", "indexFileReadEnable")
"""If one of these is false, a broker has no index files, or does not read them.

RocketMQ 5.5 can have an index in RocksDB instead. It lacks messages without a unique key, and
returns nothing for time ranges longer than ``maxRocksDBIndexQueryDays``.
"""


class Topology:
    """Asks all name servers of a cluster. ``clock`` returns monotonic seconds."""

    def __init__(
        self, cluster: ClusterCalls, seen_brokers: SeenBrokers | None, clock: Callable[[], float]
    ) -> None:
        self._cluster: Final = cluster
        self._seen_brokers: Final = seen_brokers
        self._clock: Final = clock
        self._routes: dict[str, tuple[float, TopologyResult[Route]]] = {}
        self._brokers: _Listed | None = None
        self._listing: asyncio.Task[_Listed] | None = None
        self._listed_s = clock()
        """The time of the last route or list of topics from a name server."""

    async def route_of_name(self, topic: str) -> TopologyResult[Route]:
        """Return `route`, or raise its TopicNotFound with suggestions."""
        try:
            return await self.route(topic)
        except TopicNotFound as error:
            topics: list[str] = []
            with suppress(RocketLensError):
                topics = (await self.topics()).value
            raise TopicNotFound(f"{error}{suggestion(topic, topics)}") from None

    async def route(self, topic: str) -> TopologyResult[Route]:
        """Return the route of a topic, at most 30 s old; the coverage includes that of `brokers`.

        :raises TopicNotFound: if all name servers were asked, and none knows it.
        """
        if topic.startswith(LMQ_PREFIX):
            return await self._light_route(topic)
        cached = self._routes.get(topic)
        if cached is None or self._clock() - cached[0] >= ROUTE_REFRESH_S:
            if len(self._routes) > MAX_TOPOLOGY_ROUTES:
                self._routes.clear()
            cached = await self._fetch_route(topic, None if cached is None else cached[1].value)
        route, coverage = cached[1]
        if self._seen_brokers is not None:
            named = {each.source for each in coverage}
            more = (await self.brokers()).coverage
            coverage = (*coverage, *(each for each in more if each.source not in named))
        return TopologyResult(route, coverage)

    async def _light_route(self, topic: str) -> TopologyResult[Route]:
        """Return the route of a light topic: each broker may have its one queue."""
        route, coverage = await self.route_by_brokers(topic)
        queues = tuple(MessageQueue(topic, name, 0) for name in route.brokers)
        return TopologyResult(replace(route, read_queues=queues), coverage)

    async def route_by_brokers(self, topic: str) -> TopologyResult[Route]:
        """Return all brokers as the route of a topic, without queues: errors as `brokers`."""
        brokers, coverage = await self.brokers()
        return TopologyResult(Route(topic, brokers, (), ()), coverage)

    async def brokers(self) -> TopologyResult[dict[str, Broker]]:
        """Return every broker registered at any name server, by name, at most 30 s old.

        An empty result is not cached: a starting cluster soon has its first broker.
        """
        listed = self._brokers
        if listed is None or self._clock() - listed[0] >= ROUTE_REFRESH_S:
            if self._listing is None:
                self._listing = asyncio.create_task(self._list_brokers())
                self._listing.add_done_callback(self._end_listing)
            # Shielded: other callers wait for the same answer.
            listed = await asyncio.shield(self._listing)
        return listed[1]

    async def _list_brokers(self) -> _Listed:
        listed = self._clock(), await self._fetch_brokers()
        self._brokers = listed if listed[1].value else None
        return listed

    def _end_listing(self, task: "asyncio.Task[_Listed]") -> None:
        self._listing = None
        if not task.cancelled():
            # Waiting callers get the error.
            task.exception()

    async def recheck_missing_brokers(self) -> tuple[Coverage, ...]:
        """List the brokers again after a search, if the list is older than its routes or topics.

        Name servers forget a stopped broker together with its topics, so neither a new route nor an
        older list of brokers shows that it is missing. Return the coverage of the new list.
        """
        listed = self._brokers
        if self._seen_brokers is None or listed is None or listed[0] >= self._listed_s:
            return ()
        if self._listing is not None:
            # A running request may be older than the routes.
            await asyncio.wait([self._listing])
        self._brokers = None
        try:
            return (await self.brokers()).coverage
        except RemotingError as error:
            return (failed_broker(NAME_SERVERS, str(error)),)

    async def topics(self) -> TopologyResult[list[str]]:
        command = commands.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        try:
            answers, failed = await self._ask(TopicList, command, NoFields())
        except BrokerError as error:
            if not self._behind_proxy():
                raise
            source, kind = "other topics", SourceKind.TOPICS
            not_listed = Coverage(source, kind, SourceState.FAILED, None, str(error))
            return TopologyResult(sorted(self._routes), (not_listed,))
        self._listed_s = self._clock()
        listed = {topic for body in answers for topic in body.topic_list}
        return TopologyResult(sorted(listed), failed)

    async def has_batches(self, topic: str, address: str) -> bool:
        """Return True if a broker can store batches of a topic as one record each.

        Its index has the ids of these batches, but no keys of their messages. At most 30 s old.
        """
        attributes = await topic_attributes(self._cluster, topic, address)
        return attributes.get(QUEUE_TYPE) == BATCH_QUEUE

    async def to_logical(self, record: Record, broker: Broker, address: str) -> Record:
        """Return a broker's record with its origin and the position returned to its producer."""
        record = replace(record, origin=broker.origin)
        try:
            config = await topic_config(self._cluster, record.topic, address)
        except BrokerError:
            return record
        if config.mapping_detail is None:
            return record
        return to_logical(record, (await self.route(record.topic)).value.static, broker.name)

    async def has_index(self, address: str) -> bool:
        """Return True if a broker answers by key from index files, at most 30 s old.

        Also return True if the broker does not return its configuration.
        """
        config = await broker_config(self._cluster, address)
        return all(config.get(key) != "false" for key in _INDEX_SETTINGS)

    def names_at(self, address: str) -> Collection[str]:
        return () if self._seen_brokers is None else self._seen_brokers.names_at(address)

    def forget(self, broker_name: str) -> bool:
        """Remove a remembered broker; return False if it is not remembered."""
        self._brokers = None
        return self._seen_brokers is not None and self._seen_brokers.forget(broker_name)

    async def _fetch_route(
        self, topic: str, cached: Route | None
    ) -> tuple[float, TopologyResult[Route]]:
        now_s = self._clock()
        header = commands.GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        try:
            routes, failed = await self._ask(
                TopicRouteData,
                commands.GET_ROUTEINFO_BY_TOPIC,
                header,
                unknown=ResponseCode.TOPIC_NOT_EXIST,
                check=partial(Route.of, topic),
            )
        except RemotingError as error:
            if cached is None:
                raise
            problem = f"topic {topic} may be on other brokers than it was: {error}"
            # Not cached: the next call asks again.
            return now_s, TopologyResult(cached, (failed_broker(NAME_SERVERS, problem),))
        self._listed_s = self._clock()
        if not routes:
            self._routes.pop(topic, None)
            raise TopicNotFound(f"topic {topic}: no name server knows a broker that has it")
        route = await self._with_true_ids(Route.of(topic, _union(routes)), routes)
        self._cluster.allow(route.brokers)
        if any(each.topic_queue_mapping_by_broker for each in routes):
            route, missing = await self._with_logical_queues(route)
            failed = (*failed, *missing)
        queues = {each.broker_name for body in routes for each in body.queue_datas}
        no_address = "the topic has queues on it, and no name server knows an address of it"
        unknown = (failed_broker(each, no_address) for each in sorted(queues - set(route.brokers)))
        no_broker = () if queues or route.brokers else (_NO_BROKER,)
        self._routes[topic] = now_s, TopologyResult(route, (*failed, *unknown, *no_broker))
        return self._routes[topic]

    async def _with_true_ids(self, route: Route, received: Iterable[TopicRouteData]) -> Route:
        """Replace the ids of brokers that may have an acting master by the registered ones."""
        doubtful = _may_have_acting_master(received)
        if not doubtful:
            return route
        registered = (await self.brokers()).value
        true = {name: registered[name] for name in doubtful & registered.keys()}
        return replace(route, brokers={**route.brokers, **true})

    async def _with_logical_queues(self, route: Route) -> tuple[Route, tuple[Coverage, ...]]:
        """Add the brokers' mappings of a static topic; also return the missing brokers."""
        static, failures = await static_topic(self._cluster, route)
        away = (
            failed_broker(name, f"no name server knows it, and it has messages of {route.topic}")
            for name in sorted(static.broker_names - route.brokers.keys())
        )
        return replace(route, static=static), (*failures, *away)

    async def _fetch_brokers(self) -> TopologyResult[dict[str, Broker]]:
        try:
            infos, failed = await self._ask(
                ClusterInfo, commands.GET_BROKER_CLUSTER_INFO, NoFields()
            )
        except BrokerError:
            if behind_proxy := self._behind_proxy():
                return TopologyResult(behind_proxy, ())
            raise
        datas: dict[str, BrokerData] = {}
        for info in infos:
            for each in info.broker_addr_table.values():
                datas[each.broker_name] = _with_addresses(each, datas.get(each.broker_name))
        brokers = brokers_of(datas.values())
        self._cluster.allow(brokers)
        coverage = list(failed)
        seen = self._seen_brokers
        if seen is not None:
            missing = await in_thread(lambda: seen.missing(brokers))
            coverage += map(_missing_coverage, missing)
        no_master = "its master is not registered: its slaves may not have heard of all topics"
        coverage += [
            failed_broker(each.name, no_master) for each in brokers.values() if each.master is None
        ]
        if not brokers:
            coverage.append(_NO_BROKER)
        return TopologyResult(brokers, tuple(coverage))

    def _behind_proxy(self) -> dict[str, Broker]:
        """Return the brokers that a proxy listed in cached routes, with its own address."""
        proxies = set(self._cluster.name_servers)
        return {
            broker.name: broker
            for _, (route, _) in self._routes.values()
            for broker in route.brokers.values()
            if proxies.issuperset(broker.addresses.values())
        }

    async def _ask(
        self,
        body: type[B],
        command: Command[Q, A],
        header: Q,
        *,
        unknown: int | None = None,
        check: Callable[[B], object] | None = None,
    ) -> tuple[list[B], tuple[Coverage, ...]]:
        """Ask all name servers at once; return the bodies received, and the failures.

        ``check`` is passed to `ClusterCalls.ask_for`. A response with the code ``unknown`` is no
        failure.

        :raises RocketLensError: the first failure, if there is no body and one failed.
        """
        ask, addresses = self._cluster.ask_for, self._cluster.name_servers
        calls = [ask(body, each, command, header, check=check) for each in addresses]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        bodies: list[B] = []
        failed: list[Coverage] = []
        errors: list[RocketLensError] = []
        for address, answer in zip(addresses, answers, strict=True):
            if not isinstance(answer, BaseException):
                bodies.append(answer)
            elif not isinstance(answer, RocketLensError):
                raise answer
            elif not (isinstance(answer, BrokerError) and answer.code == unknown):
                errors.append(answer)
                what = f"name server {address}", SourceKind.TOPICS, SourceState.FAILED, None
                problem = f"{answer}; brokers and topics that only it knows are not searched"
                failed.append(Coverage(*what, problem))
        if errors and not bodies:
            error = errors[0]
            if isinstance(error, BrokerError):
                error = await self._cluster.refusal_of_name_server(error)
            raise error
        return bodies, tuple(failed)


class CoverageByReason:
    """Collects the coverage of many requests to the same brokers without duplicates."""

    def __init__(self) -> None:
        self._by_reason: Final[dict[tuple[str | None, ...], Coverage]] = {}

    def add(self, *coverage: Coverage) -> None:
        """Add new entries; the number of failures is bounded."""
        for each in coverage:
            if len(self._by_reason) < limits.MAX_DAMAGE_REPORTS or not each.is_failure:
                self._by_reason.setdefault((each.source, each.error, each.note), each)

    def replace(self, coverage: Coverage) -> None:
        """Replace the entry with the same source, error and note."""
        self._by_reason[coverage.source, coverage.error, coverage.note] = coverage

    def all(self) -> tuple[Coverage, ...]:
        return tuple(self._by_reason.values())


def _missing_coverage(broker: SeenBroker) -> Coverage:
    time, addresses = time_text(broker.seen_ms), ", ".join(broker.addresses)
    error = Sentence("broker_missing", time=time, addresses=addresses, name=broker.name)
    return failed_broker(broker.name, error)


def _with_addresses(broker: BrokerData, more: BrokerData | None) -> BrokerData:
    if more is None:
        return broker
    addresses = {**broker.broker_addrs, **more.broker_addrs}
    return replace(broker, broker_addrs=addresses, cluster=more.cluster or broker.cluster)


def _may_have_acting_master(routes: Iterable[TopicRouteData]) -> set[str]:
    """Return the brokers whose master in a route may be a slave: none of them can be written to.

    Source: ``RouteInfoManager.pickupTopicRouteData``.
    """
    return {
        broker.broker_name
        for route in routes
        for broker in route.broker_datas
        if broker.enable_acting_master
        and not any(
            queue.perm & PERM_WRITE
            for queue in route.queue_datas
            if queue.broker_name == broker.broker_name
        )
    }


def _union(routes: list[TopicRouteData]) -> TopicRouteData:
    if len(routes) == 1:
        return routes[0]
    queues: dict[str, QueueData] = {}
    brokers: dict[str, BrokerData] = {}
    for route in routes:
        for queue in route.queue_datas:
            other = queues.get(queue.broker_name)
            if other is None or other.read_queue_nums < queue.read_queue_nums:
                queues[queue.broker_name] = queue
        for broker in route.broker_datas:
            brokers[broker.broker_name] = _with_addresses(broker, brokers.get(broker.broker_name))
    order = next(filter(None, (route.order_topic_conf for route in routes)), None)
    return TopicRouteData(
        queue_datas=tuple(queues.values()),
        broker_datas=tuple(brokers.values()),
        order_topic_conf=order,
    )
