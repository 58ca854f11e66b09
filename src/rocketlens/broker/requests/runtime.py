"""The runtime information of a broker (28), for ``clusterList`` and ``brokerStatus``.

Names and formats are RocketMQ's, including its misspellings. Tools of 4.9 and 5 read different
names. Source: ``AdminBrokerProcessor.prepareRuntimeInfo``.
"""

from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers
from rocketlens.formats.commitlog_record import store_timestamp_at
from rocketlens.model.rocketmq import DELAY_LEVEL_COUNT, DELAY_TOPIC
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.bodies.tables import KvTable
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import OUR_VERSION, RemotingCommand
from rocketlens.wire.declare import write_body

_QUEUES: Final = ("send", "pull", "litePull", "query", "ack")
"""RocketMQ's thread pools; in RocketLens only look-ups are queued."""
_NOT_MEASURED: Final = {
    "getMessageEntireTimeMax": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": "null",
    "putMessageEntireTimeMax": "0",
    "putMessageFailedTimes": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
}
"""Values that are not measured, as in a RocketMQ broker that has just started."""
_DISK_IS_KNOWN_MS: Final = 1000
"""Milliseconds until the disk is measured again."""
_NO_RATE: Final = ("timerEnqueueTps", "timerDequeueTps")


def runtime(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    table = {
        **_service(core),
        **_counts(core),
        **_log(core),
        **_disk_use(core),
        **_index(core),
        **_name_servers(core),
        **_bounded_tables(core),
        **_delays(core),
        **_network(core),
        **(core.access.runtime() if core.access else {}),
    }
    return Response(body=write_body(KvTable(table=dict(sorted(table.items())))))


def _service(core: BrokerCore) -> dict[str, str]:
    stats = core.stats
    table = {
        "brokerVersionDesc": "V5_5_0",
        "brokerVersion": str(OUR_VERSION),
        "brokerActive": "true",
        "bootTimestamp": str(stats.started_ms),
        "startAcceptSendRequestTimeStamp": "0",
        "runtime": _duration(core.clock() - stats.started_ms),
        "pageCacheLockTimeMills": "0",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
    }
    for name in _QUEUES:
        table[f"{name}ThreadPoolQueueSize"] = "0"
        table[f"{name}ThreadPoolQueueCapacity"] = "10000"
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    table["queryThreadPoolQueueSize"] = str(core.search.waiting)
    table["queryThreadPoolQueueCapacity"] = str(limits.MAX_LOOK_UPS)
    table.update(_NOT_MEASURED)
    timers = core.timers
    table["timerReadBehind"] = str(timers.behind_ms // 1000)
    table["timerOffsetBehind"] = str(timers.unread)
    table["timerCongestNum"] = str(timers.waiting)
    table.update(dict.fromkeys(_NO_RATE, "0.0"))
    return table


def _counts(core: BrokerCore) -> dict[str, str]:
    stats = core.stats
    return {
        "putMessageTimesTotal": str(stats.put_total),
        **stats.rates(),
        "msgPutTotalYesterdayMorning": str(stats.put_until_previous_midnight),
        "msgPutTotalTodayMorning": str(stats.put_until_midnight),
        "msgPutTotalTodayNow": str(stats.put_total),
        "msgGetTotalYesterdayMorning": str(stats.get_until_previous_midnight),
        "msgGetTotalTodayMorning": str(stats.get_until_midnight),
        "msgGetTotalTodayNow": str(stats.get_total),
    }


def _log(core: BrokerCore) -> dict[str, str]:
    store = core.store
    first = store.record(store.min_offset, 0)
    written = store.appended_bytes
    return {
        "putMessageSizeTotal": str(written),
        "putMessageAverageSize": str(written / max(core.stats.put_total, 1)),
        "commitLogMinOffset": str(store.min_offset),
        "commitLogMaxOffset": str(store.end_offset),
        "earliestMessageTimeStamp": str(-1 if first is None else store_timestamp_at(first)),
        "dispatchMaxBuffer": "0",
        "dispatchBehindBytes": "0",
        "remainHowManyDataToFlush": _in_units(
            max(store.end_offset - store.flushed_offset, 0), 1000, _DECIMAL
        ),
    }


def _disk_use(core: BrokerCore) -> dict[str, str]:
    """Return the use of the disk from a recent measurement.

    A measurement for each request would slow other threads: each system call releases the
    interpreter's lock, and takes it again before they wake.
    """
    now_ms = core.clock()
    if core.stats.disk_use and 0 <= now_ms - core.stats.disk_measured_ms < _DISK_IS_KNOWN_MS:
        return core.stats.disk_use
    layout = core.store.layout
    space = core.disk.space(layout.root)
    ratio = str(max(map(core.disk.used_ratio, layout.disks)))
    core.stats.disk_measured_ms = now_ms
    core.stats.disk_use = {
        "commitLogDirCapacity": f"Total : {_in_units(space.total, 1024, _BINARY)}, "
        f"Free : {_in_units(space.free, 1024, _BINARY)}.",
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{layout.commit_log}": ratio,
        "consumeQueueDiskRatio": ratio,
    }
    return core.stats.disk_use


def _index(core: BrokerCore) -> dict[str, str]:
    """Return the builder of index files and its progress. Only the last field is RocketMQ's."""
    store = core.store
    indexed = store.indexed_offset
    process = core.index_process
    builder = "inline" if store.builds_index else "none"
    return {
        "indexBuilder": builder if process is None else f"spark, {process.state}",
        "indexBuilderFailures": "0" if process is None else str(process.failures),
        "indexSafeOffset": str(indexed),
        "indexBehindBytes": str(max(store.end_offset - indexed, 0)),
    }


def _name_servers(core: BrokerCore) -> dict[str, str]:
    """Return problems of registration; empty values if there are none. Not RocketMQ's fields."""
    conflicts = (
        f"{server} leads to {other}" for server, other in core.name_servers.name_taken.items()
    )
    return {
        "brokerNameTaken": "; ".join(conflicts),
        "brokerNameTakenTimes": str(core.name_servers.name_taken_times),
        "nameServersNotTold": "; ".join(
            f"{each}: {why}" for each, why in core.name_servers.failures.items()
        ),
    }


def _bounded_tables(core: BrokerCore) -> dict[str, str]:
    """Return sizes of tables that clients fill, and refusals. Not RocketMQ's fields."""
    return {
        "topics": str(len(core.topics.topics)),
        "topicsRefused": str(core.topics.room.refused),
        "groups": str(len(core.groups.table.entries)),
        "groupsRefused": str(core.groups.room.refused),
        "clientGroupsBytes": str(core.clients.total_bytes),
        "clientsClosedForGroups": str(core.clients.closed_largest),
        "heartbeatsRefused": str(core.clients.refused),
        "offsetsRefused": str(core.offsets.refused),
        "queueLocks": str(core.queue_locks.count),
        "queueLocksRefused": str(core.queue_locks.refused),
        "heldPulls": str(core.held_pulls.count),
        "heldPullsBytes": str(core.held_pulls.kept_bytes),
        "pullsNotHeld": str(core.held_pulls.not_held),
        "replicas": str(core.replicas.count),
        "replicasBehindBytes": str(core.replicas.behind_bytes),
    }


def _network(core: BrokerCore) -> dict[str, str]:
    network = core.network
    return {
        "connections": str(len(network.channels)),
        "connectionsRefused": str(network.refused),
        "connectionsClosedIdle": str(network.closed_idle),
        "connectionsClosedLarge": str(network.closed_large),
        "connectionsBufferedBytes": str(network.buffered),
        "requestsInFlight": str(network.in_flight),
    }


def _delays(core: BrokerCore) -> dict[str, str]:
    """Return the delivered and the maximum offset of each delay level: ``"3,5"``."""
    table: dict[str, str] = {}
    for level in range(1, DELAY_LEVEL_COUNT + 1):
        max_offset = core.store.queues.max_offset(DELAY_TOPIC, level - 1)
        if max_offset:
            delivered = core.delay_offsets.table.get(level, 0)
            table[f"scheduleMessageOffset_{level}"] = f"{delivered},{max_offset}"
    return table


def _duration(elapsed_ms: int) -> str:
    """Format a time as RocketMQ does: ``[ 0 days, 1 hours, 2 minutes, 3 seconds ]``."""
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


_DECIMAL: Final = ("kB", "MB", "GB", "TB", "PB")
_BINARY: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def _in_units(size: int, step: int, units: tuple[str, ...]) -> str:
    """Format a size as RocketMQ does: ``1.5 MB``."""
    if size < step:
        return f"{size} B"
    value, unit = size / step, 0
    while value >= step and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    return f"{value:.1f} {units[unit]}"


HANDLERS: Final[Handlers] = {RequestCode.GET_BROKER_RUNTIME_INFO: runtime}
