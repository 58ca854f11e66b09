"""Decides which brokers must be asked for a complete answer, and reports those that cannot be.

A producer uses the first name server that responds. A query asks all of them: a broker may be
registered at only one, and a topic known only there. Their knowledge is merged.

====================================  ==========================================================
case                                  in the coverage
====================================  ==========================================================
a name server does not answer         failed: a broker may be registered there alone
none of them answers                  the error is raised; a route that was known before is used,
                                      and named as failed: there may be other brokers by now
a topic that none knows, and one      that one's error is raised: it might know the topic
did not answer
no broker is registered               failed
a broker was seen before, and is      failed, with when and where it was seen
not registered now
a broker's master is not registered   failed: a slave may not have heard of a topic yet
a slave answers for its master        failed, with both: it may lack what the master acknowledged
                                      last (`~rocketlens.client.connect.cluster.ClusterCalls`)
a slave is in a route as the master   as any slave: name servers of RocketMQ 5 with
                                      ``supportActingMaster`` name it so, once its master is gone
====================================  ==========================================================
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime
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
from rocketlens.model.rocketmq import BATCH_QUEUE, LMQ_PREFIX, PERM_WRITE, QUEUE_TYPE
from rocketlens.model.text.nearest import suggestion
from rocketlens.model.text.sentences import Sentence, TimeText
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
"""The source in coverage that stands for all of them."""
_NO_BROKER: Final = failed_broker(NAME_SERVERS, "no broker is registered")


class TopologyResult(NamedTuple, Generic[T]):
    """The union of what all name servers know, and the doubts about it."""

    value: T
    coverage: tuple[Coverage, ...]


_Listed = tuple[float, TopologyResult[dict[str, Broker]]]
"""All brokers, and since when that is so."""

_INDEX_SETTINGS: Final = ("messageIndexEnable", "indexFileWriteEnable", "indexFileReadEnable")
"""A broker has no index files, or does not read them, if one of these is false.

RocketMQ 5.5 can have an index in RocksDB in their place: it has no message without a unique key,
and returns nothing for times further apart than ``maxRocksDBIndexQueryDays``.
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
        """When a name server returned a route or the topics last."""

    async def route_of_name(self, topic: str) -> TopologyResult[Route]:
        """Return what `route` does; the error of a topic that is not there suggests others."""
        try:
            return await self.route(topic)
        except TopicNotFound as error:
            topics: list[str] = []
            with suppress(RocketLensError):
                topics = (await self.topics()).value
            raise TopicNotFound(f"{error}{suggestion(topic, topics)}") from None

    async def route(self, topic: str) -> TopologyResult[Route]:
        """Return the route of a topic, at most 30 s old; the coverage is that of `brokers`, too.

        :raises TopicNotFound: if no name server knows it, and all were asked.
        :raises RemotingError: if no name server responds and no route is cached.
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
        """Return the route of a light topic: no name server has one, and each broker can have its
        one queue.
        """
        route, coverage = await self.route_by_brokers(topic)
        queues = tuple(MessageQueue(topic, name, 0) for name in route.brokers)
        return TopologyResult(replace(route, read_queues=queues), coverage)

    async def route_by_brokers(self, topic: str) -> TopologyResult[Route]:
        """Return all brokers as the route of a topic, without queues: errors as `brokers`."""
        brokers, coverage = await self.brokers()
        return TopologyResult(Route(topic, brokers, (), ()), coverage)

    async def brokers(self) -> TopologyResult[dict[str, Broker]]:
        """Return every broker registered at any name server, by name, at most 30 s old.

        That none is registered is not remembered: a cluster that starts has its first one soon.

        :raises RemotingError: if no name server responds.
        """
        listed = self._brokers
        if listed is None or self._clock() - listed[0] >= ROUTE_REFRESH_S:
            if self._listing is None:
                self._listing = asyncio.create_task(self._list_brokers())
                self._listing.add_done_callback(self._listed)
            # Shielded: others may wait for the same answer when one is cancelled.
            listed = await asyncio.shield(self._listing)
        return listed[1]

    async def _list_brokers(self) -> _Listed:
        listed = self._clock(), await self._fetch_brokers()
        self._brokers = listed if listed[1].value else None
        return listed

    def _listed(self, task: "asyncio.Task[_Listed]") -> None:
        self._listing = None
        if not task.cancelled():
            # Callers that wait get the error.
            task.exception()

    async def recheck_missing_brokers(self) -> tuple[Coverage, ...]:
        """After a search, list the brokers again if the list is older than the routes or topics
        that were used; return the coverage of those that are missing.

        Name servers forget a broker that ended together with its topics: a route that lacks it
        shows nothing, and neither do brokers that were listed before.
        """
        listed = self._brokers
        if self._seen_brokers is None or listed is None or listed[0] >= self._listed_s:
            return ()
        if self._listing is not None:
            # It may have begun before that.
            await asyncio.wait([self._listing])
        self._brokers = None
        try:
            return (await self.brokers()).coverage
        except RemotingError as error:
            return (failed_broker(NAME_SERVERS, str(error)),)

    async def topics(self) -> TopologyResult[list[str]]:
        """Return the topics that any name server knows.

        :raises RemotingError: if no name server responds.
        """
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
        """Return whether a broker can have batches of a topic that are one record each.

        Its index has the ids of these, and no key of a message in them. At most 30 s old.

        :raises BrokerError: if the broker refuses to answer.
        :raises RemotingError: if there is no response.
        """
        attributes = await topic_attributes(self._cluster, topic, address)
        return attributes.get(QUEUE_TYPE) == BATCH_QUEUE

    async def to_logical(self, record: Record, broker: Broker, address: str) -> Record:
        """Return a record that a broker has with its origin and the position its producer was told.

        :raises RemotingError: if there is no response.
        """
        record = replace(record, origin=broker.origin)
        try:
            config = await topic_config(self._cluster, record.topic, address)
        except BrokerError:
            return record
        if config.mapping_detail is None:
            return record
        return to_logical(record, (await self.route(record.topic)).value.static, broker.name)

    async def has_index(self, address: str) -> bool:
        """Return whether a broker answers by key from index files, at most 30 s old.

        It is taken to if it does not tell its configuration.

        :raises RemotingError: if there is no response.
        """
        config = await broker_config(self._cluster, address)
        return all(config.get(key) != "false" for key in _INDEX_SETTINGS)

    def were_at(self, address: str) -> Collection[str]:
        """Return the names of the brokers that are remembered to have had an address."""
        return () if self._seen_brokers is None else self._seen_brokers.were_at(address)

    def forget(self, broker_name: str) -> bool:
        """Remove a broker from the remembered ones; return False if it is not remembered."""
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
            # The next question asks for it again.
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
        """Replace the ids of brokers by those of the registered ones, where they can differ.

        :raises RemotingError: if no name server responds.
        """
        doubtful = _may_have_acting_master(received)
        if not doubtful:
            return route
        registered = (await self.brokers()).value
        true = {name: registered[name] for name in doubtful & registered.keys()}
        return replace(route, brokers={**route.brokers, **true})

    async def _with_logical_queues(self, route: Route) -> tuple[Route, tuple[Coverage, ...]]:
        """Add the mappings that the brokers have of a static topic; return why some lack."""
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
        """Return the brokers that a proxy named in the routes in use: with its own address."""
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

        ``check`` is that of `ClusterCalls.ask_for`. The code ``unknown`` is a response without a
        body.

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
    """The coverage of many questions to the same brokers: each source and failure once."""

    def __init__(self) -> None:
        self._by_reason: Final[dict[tuple[str | None, ...], Coverage]] = {}

    def add(self, *coverage: Coverage) -> None:
        """Add what is not there, and of failures no more than a bound."""
        for each in coverage:
            if len(self._by_reason) < limits.MAX_DAMAGE_REPORTS or not each.is_failure:
                self._by_reason.setdefault((each.source, each.error, each.note), each)

    def replace(self, coverage: Coverage) -> None:
        """Add a coverage in place of the one with its source, error and note."""
        self._by_reason[coverage.source, coverage.error, coverage.note] = coverage

    def all(self) -> tuple[Coverage, ...]:
        """Return them in the order in which they were added."""
        return tuple(self._by_reason.values())


def _missing_coverage(broker: SeenBroker) -> Coverage:
    moment = datetime.fromtimestamp(broker.seen_ms / 1000, UTC)
    seen, addresses = f"{moment:%Y-%m-%dT%H:%M:%SZ}", ", ".join(broker.addresses)
    time = TimeText(seen, broker.seen_ms)
    error = Sentence("broker_missing", time=time, addresses=addresses, name=broker.name)
    return failed_broker(broker.name, error)


def _with_addresses(broker: BrokerData, more: BrokerData | None) -> BrokerData:
    if more is None:
        return broker
    addresses = {**broker.broker_addrs, **more.broker_addrs}
    return replace(broker, broker_addrs=addresses, cluster=more.cluster or broker.cluster)


def _may_have_acting_master(routes: Iterable[TopicRouteData]) -> set[str]:
    """Return the brokers whose master in a route may be a slave: none of these can be written to.

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
    """Return the union of what several name servers know of one topic."""
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
