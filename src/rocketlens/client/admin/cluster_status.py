"""Reports the state of a cluster: its masters and slaves, and its groups.

Each broker is asked at each of its addresses. A broker that does not answer is listed with its
error, and makes the result incomplete.
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
"""Concurrent runtime requests to brokers. RocketMQ's tools ask one broker after another."""
_MAX_NUMBER: Final = 1e18
_GET_RATES: Final = ("getTransferredTps", "getTransferedTps")
"""The name in RocketMQ 5, and the misspelled one in 4.9."""


async def find_status(cluster: ClusterCalls, topology: Topology) -> ClusterStatus:
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

    ``counts_producers`` also counts the producers of each master. ``on_answer`` is called when a
    broker has answered or failed.
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
    """Parse a number of the runtime information; return None if it is absent or invalid."""
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
    now = _whole(table.get(f"msg{what}TotalTodayNow"))
    morning = _whole(table.get(f"msg{what}TotalTodayMorning"))
    return None if now is None or morning is None else max(now - morning, 0)


async def _producers(cluster: ClusterCalls, address: str) -> int | None:
    try:
        producers = await broker_calls.producers(cluster, address)
    except BrokerError:
        return None
    return len({each.client_id for members in producers.groups.values() for each in members})


def _first_rate(text: str | None) -> float | None:
    """Return the first of three rates: of 10 seconds, one minute and 10 minutes."""
    rates = (text or "").split()
    return _at_least_0(runtime_number(rates[0])) if rates else None


def _at_least_0(number: float | None) -> float | None:
    return None if number is None or number < 0 else number


def _whole(text: str | None) -> int | None:
    """Parse a number from 0; return None for -1, with which brokers mark a missing value."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if text is not None and is_number else None
