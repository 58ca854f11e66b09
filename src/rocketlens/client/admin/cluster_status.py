"""The state of a cluster: its brokers, masters and slaves, and what its groups do.

Each broker is asked at each of its addresses. One that does not answer is in the result with its
error, and makes it incomplete.

| asked for | what |
|---|---|
| cluster information (106), of name servers | brokers, masters and slaves |
| runtime information (28) | version, rates, disk, offsets, start |
| producers (328), of masters | how many are connected; brokers of 4.9 before 4.9.3 do not answer |
| groups (`rocketlens.client.admin.cluster_groups`) | members, lag |
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from rocketlens.client.admin.cluster_groups import find_groups
from rocketlens.client.admin.cluster_topics import topics_of_brokers
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import ClusterCalls, failed_broker, runtime_table
from rocketlens.client.connect.route import Broker
from rocketlens.client.connect.topology import CoverageByReason, Topology
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import TopicKind
from rocketlens.net.pace import at_once

MAX_BROKERS_ASKED: Final = 256
"""Brokers that a client asks for their state at once; the others wait their turn. RocketMQ's tools
ask one after another.
"""
_MAX_NUMBER: Final = 1e18
_GET_RATES: Final = ("getTransferredTps", "getTransferedTps")
"""RocketMQ 5's name and 4.9's, which has a letter less."""


async def find_status(cluster: ClusterCalls, topology: Topology) -> ClusterStatus:
    """Return the state of a cluster.

    :raises RemotingError: if no name server answers.
    """
    coverage = CoverageByReason()
    listed = await topology.topics()
    brokers = await find_brokers(cluster, topology, counts_producers=True)
    groups = await find_groups(cluster, topology, None)
    coverage.add(*listed.coverage, *brokers.coverage, *groups.coverage)
    registered = (await topology.brokers()).value.values()
    normal = {topic for topic in listed.value if TopicKind.of(topic) is TopicKind.NORMAL}
    return ClusterStatus(
        tuple(cluster.name_servers),
        brokers.brokers,
        len(normal),
        len(normal & topics_of_brokers(registered)),
        groups.groups,
        coverage.all(),
    )


async def find_brokers(
    cluster: ClusterCalls,
    topology: Topology,
    *,
    counts_producers: bool = False,
    on_answer: Callable[[BrokerStatus], None] | None = None,
) -> BrokersAnswer:
    """Return the brokers of a cluster, each asked once for its runtime information.

    ``counts_producers`` asks masters for their producers, too. ``on_answer`` is called with each
    broker when it has answered or failed.

    :raises RemotingError: if no name server answers.
    """
    coverage = CoverageByReason()
    brokers = await topology.brokers()
    coverage.add(*brokers.coverage)

    async def ask(asked: tuple[Broker, int, str]) -> BrokerStatus:
        status = await _ask(cluster, coverage, *asked)
        if counts_producers and status.is_master and status.error is None:
            status = replace(status, producers=await _producers(cluster, asked[2]))
        if on_answer is not None:
            on_answer(status)
        return status

    addresses = [
        (broker, number, address)
        for broker in brokers.value.values()
        for number, address in sorted(broker.addresses.items())
    ]
    statuses = await at_once(ask, addresses, MAX_BROKERS_ASKED)
    by_name = sorted(statuses, key=lambda each: (each.cluster_name, each.name, each.broker_id))
    return BrokersAnswer(tuple(by_name), coverage.all())


def runtime_number(text: str | None) -> float | None:
    """Return a number of the runtime information; None if it is absent or not one."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < _MAX_NUMBER else None


async def _ask(
    cluster: ClusterCalls, coverage: CoverageByReason, broker: Broker, number: int, address: str
) -> BrokerStatus:
    where = (broker.cluster_name, broker.name, number, address)
    source = f"{broker.name} ({address})"
    try:
        table = await runtime_table(cluster, address)
    except RocketLensError as error:
        coverage.add(failed_broker(source, str(error)))
        return BrokerStatus(*where, error=str(error))
    coverage.add(Coverage(source, SourceKind.BROKER, SourceState.SEARCHED))
    rate = next((table[name] for name in _GET_RATES if name in table), None)
    return BrokerStatus(
        *where,
        version=table.get("brokerVersionDesc"),
        put_per_second=_first_rate(table.get("putTps")),
        get_per_second=_first_rate(rate),
        disk_ratio=_at_least_0(runtime_number(table.get("commitLogDiskRatio"))),
        min_offset=_whole(table.get("commitLogMinOffset")),
        end_offset=_whole(table.get("commitLogMaxOffset")),
        oldest_ms=_whole(table.get("earliestMessageTimeStamp")),
        started_ms=_whole(table.get("bootTimestamp")),
        put_total=_whole(table.get("msgPutTotalTodayNow")),
        put_today=_since_midnight(table, "Put"),
        get_today=_since_midnight(table, "Get"),
        dispatch_behind_bytes=_whole(table.get("dispatchBehindBytes")),
        index_behind_bytes=_whole(table.get("indexBehindBytes")),
        index_builder=table.get("indexBuilder"),
    )


def _since_midnight(table: Mapping[str, str], what: str) -> int | None:
    """Return messages in or out since midnight; None if a broker does not count them."""
    now = _whole(table.get(f"msg{what}TotalTodayNow"))
    morning = _whole(table.get(f"msg{what}TotalTodayMorning"))
    return None if now is None or morning is None else max(now - morning, 0)


async def _producers(cluster: ClusterCalls, address: str) -> int | None:
    """Return how many producers are connected to a broker; None if it cannot say."""
    try:
        producers = await broker_calls.producers(cluster, address)
    except BrokerError:
        return None
    return len({each.client_id for members in producers.groups.values() for each in members})


def _first_rate(text: str | None) -> float | None:
    """Return the first of the rates of 10 seconds, a minute and 10 minutes."""
    rates = (text or "").split()
    return _at_least_0(runtime_number(rates[0])) if rates else None


def _at_least_0(number: float | None) -> float | None:
    return None if number is None or number < 0 else number


def _whole(text: str | None) -> int | None:
    """Return a whole number from 0 on; brokers say -1 for what there is not."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if text is not None and is_number else None
