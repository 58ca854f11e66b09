"""Runtime information of a broker (28): everything that ``clusterList`` and ``brokerStatus`` show.

Names and formats are RocketMQ's, its misspellings included. Tools of 4.9 and of 5 read different
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
"""RocketMQ has a thread pool for each; in RocketLens only look-ups are queued."""
_NOT_MEASURED: Final = {
    "getMessageEntireTimeMax": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": "null",
    "putMessageEntireTimeMax": "0",
    "putMessageFailedTimes": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
}
"""Values that are not measured: those of a broker of RocketMQ that has just started."""
_DISK_IS_KNOWN_MS: Final = 1000
"""For how long the size and use of the disk are not measured again."""
_NO_RATE: Final = ("timerEnqueueTps", "timerDequeueTps")


def runtime(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    """Return the table of runtime information."""
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
        "remainHowManyDataToFlush": _size(max(store.end_offset - store.flushed_offset, 0)),
    }


def _disk_use(core: BrokerCore) -> dict[str, str]:
    """Return the use of the disk, now or a moment ago.

    Not at each request: many of them would keep other threads from running, as each question to
    the system releases the interpreter's lock and takes it again before they wake.
    """
    now_ms = core.clock()
    if core.stats.disk_use and 0 <= now_ms - core.stats.disk_measured_ms < _DISK_IS_KNOWN_MS:
        return core.stats.disk_use
    layout = core.store.layout
    space = core.disk.space(layout.root)
    ratio = str(max(map(core.disk.used_ratio, layout.disks)))
    core.stats.disk_measured_ms = now_ms
    core.stats.disk_use = {
        "commitLogDirCapacity": f"Total : {_size_1024(space.total)}, "
        f"Free : {_size_1024(space.free)}.",
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{layout.commit_log}": ratio,
        "consumeQueueDiskRatio": ratio,
    }
    return core.stats.disk_use


def _index(core: BrokerCore) -> dict[str, str]:
    """Return which process builds index files, and up to which physical offset.

    These fields are not RocketMQ's, except ``indexBehindBytes``.
    """
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
    """Return problems of the registration; empty values if there are none. Not RocketMQ's."""
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
    """Return for each delay level the delivered and the maximum offset: ``"3,5"``."""
    table: dict[str, str] = {}
    for level in range(1, DELAY_LEVEL_COUNT + 1):
        max_offset = core.store.queues.max_offset(DELAY_TOPIC, level - 1)
        if max_offset:
            delivered = core.delay_offsets.table.get(level, 0)
            table[f"scheduleMessageOffset_{level}"] = f"{delivered},{max_offset}"
    return table


def _duration(elapsed_ms: int) -> str:
    """Return a time as RocketMQ does: ``[ 0 days, 1 hours, 2 minutes, 3 seconds ]``."""
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size: int) -> str:
    """Return a size as RocketMQ does, in decimal units: ``1.5 MB``."""
    return _in_units(size, 1000, ("kB", "MB", "GB", "TB", "PB"))


def _size_1024(size: int) -> str:
    """Return a size as RocketMQ does, in binary units: ``1.5 MiB``."""
    return _in_units(size, 1024, ("KiB", "MiB", "GiB", "TiB", "PiB"))


def _in_units(size: int, step: int, units: tuple[str, ...]) -> str:
    if size < step:
        return f"{size} B"
    value, unit = size / step, 0
    while value >= step and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    return f"{value:.1f} {units[unit]}"


HANDLERS: Final[Handlers] = {RequestCode.GET_BROKER_RUNTIME_INFO: runtime}
