"""What a broker tells of itself (28): everything that ``clusterList`` and ``brokerStatus`` show.

Names and formats are RocketMQ's, its misspellings included; tools of 4.9 and 5 read different
ones. Source: ``AdminBrokerProcessor.prepareRuntimeInfo``.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.formats.commitlog_record import store_timestamp_at
from rocketlens.model.rocketmq import DELAY_LEVEL_COUNT, SCHEDULE_TOPIC
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.wire.bodies.key_value import KvTable
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import OUR_VERSION, RemotingCommand
from rocketlens.wire.declare import write_body

_QUEUES: Final = ("send", "pull", "litePull", "query", "ack")
"""RocketMQ has a thread pool for each; here only look-ups wait."""
_NOT_MEASURED: Final = {
    "getMessageEntireTimeMax": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": "null",
    "putMessageEntireTimeMax": "0",
    "putMessageFailedTimes": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
}
"""What a broker of RocketMQ says that has measured nothing."""
_NONE: Final = ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")
_NO_RATE: Final = ("timerEnqueueTps", "timerDequeueTps")


class RuntimeProcessor:
    """Tells what there is to tell."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime}

    def runtime(self, _: RemotingCommand, __: Channel) -> Response:
        """Return the table."""
        table = {
            **self._service(),
            **self._counts(),
            **self._log(),
            **self._index(),
            **self._name_servers(),
            **self._kept(),
            **self._delays(),
            **self._network(),
        }
        return Response(body=write_body(KvTable(table=dict(sorted(table.items())))))

    def _service(self) -> dict[str, str]:
        figures = self.core.figures
        table = {
            "brokerVersionDesc": "V5_5_0",
            "brokerVersion": str(OUR_VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(figures.started_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "runtime": _duration(self.core.clock() - figures.started_ms),
            "pageCacheLockTimeMills": "0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "100000",
        }
        for name in _QUEUES:
            table[f"{name}ThreadPoolQueueSize"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = "10000"
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table["queryThreadPoolQueueSize"] = str(self.core.search.waiting)
        table["queryThreadPoolQueueCapacity"] = str(limits.MAX_LOOK_UPS)
        table.update(_NOT_MEASURED)
        table.update(dict.fromkeys(_NONE, "0"))
        table.update(dict.fromkeys(_NO_RATE, "0.0"))
        return table

    def _counts(self) -> dict[str, str]:
        figures = self.core.figures
        got = figures.got_rates()
        return {
            "putMessageTimesTotal": str(figures.put),
            "putTps": figures.put_rates(),
            "getTransferredTps": got,
            "getTransferedTps": got,
            "getFoundTps": figures.found_rates(),
            "getMissTps": figures.missed_rates(),
            "getTotalTps": figures.asked_rates(),
            "msgPutTotalYesterdayMorning": str(figures.put_yesterday),
            "msgPutTotalTodayMorning": str(figures.put_morning),
            "msgPutTotalTodayNow": str(figures.put),
            "msgGetTotalYesterdayMorning": str(figures.got_yesterday),
            "msgGetTotalTodayMorning": str(figures.got_morning),
            "msgGetTotalTodayNow": str(figures.got),
        }

    def _log(self) -> dict[str, str]:
        store = self.core.store
        first = store.record(store.min_offset, 0)
        ratio = str(self.core.disk.used_ratio(store.layout.root))
        space = self.core.disk.space(store.layout.root)
        written = store.appended_bytes
        return {
            "commitLogDirCapacity": f"Total : {_size_1024(space.total)}, "
            f"Free : {_size_1024(space.free)}.",
            "putMessageSizeTotal": str(written),
            "putMessageAverageSize": str(written / max(self.core.figures.put, 1)),
            "commitLogMinOffset": str(store.min_offset),
            "commitLogMaxOffset": str(store.end_offset),
            "earliestMessageTimeStamp": str(-1 if first is None else store_timestamp_at(first)),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.layout.commit_log}": ratio,
            "consumeQueueDiskRatio": ratio,
            "dispatchMaxBuffer": "0",
            "dispatchBehindBytes": "0",
            "remainHowManyDataToFlush": _size(max(store.end_offset - store.flushed_offset, 0)),
        }

    def _index(self) -> dict[str, str]:
        """Return who builds index files, and how far they are; not RocketMQ's fields, but for
        ``indexBehindBytes``.
        """
        store = self.core.store
        indexed = store.indexed_offset
        process = self.core.index_process
        builder = "inline" if store.builds_index else "none"
        return {
            "indexBuilder": builder if process is None else f"spark, {process.state}",
            "indexBuilderFailures": "0" if process is None else str(process.failures),
            "indexSafeOffset": str(indexed),
            "indexBehindBytes": str(max(store.end_offset - indexed, 0)),
        }

    def _name_servers(self) -> dict[str, str]:
        """Return what is wrong with the registration, nothing if all is well. All of it is ours."""
        core = self.core
        taken = (f"{server} leads to {other}" for server, other in core.name_taken.items())
        return {
            "brokerNameTaken": "; ".join(taken),
            "brokerNameTakenTimes": str(core.name_taken_times),
            "nameServersNotTold": "; ".join(
                f"{each}: {why}" for each, why in core.not_told.items()
            ),
        }

    def _kept(self) -> dict[str, str]:
        """Return what clients make this broker keep, and what was refused. All of it is ours."""
        core = self.core
        return {
            "topics": str(len(core.topics.topics)),
            "topicsRefused": str(core.topics.room.refused),
            "groups": str(len(core.groups.table.groups)),
            "groupsRefused": str(core.groups.room.refused),
            "clientGroupsBytes": str(core.clients.kept_bytes),
            "clientsClosedForGroups": str(core.clients.ended),
            "heartbeatsRefused": str(core.clients.refused),
            "offsetsRefused": str(core.offsets.refused),
        }

    def _network(self) -> dict[str, str]:
        """Return how many connections there are, and how many were refused or ended."""
        network = self.core.network
        if network is None:
            return {}
        return {
            "connections": str(len(network.channels)),
            "connectionsRefused": str(network.refused),
            "connectionsClosedIdle": str(network.closed_idle),
            "connectionsClosedLarge": str(network.closed_large),
            "connectionsBufferedBytes": str(network.buffered),
            "requestsInFlight": str(network.in_flight),
        }

    def _delays(self) -> dict[str, str]:
        """Return of each delay level what was delivered and what there is: ``"3,5"``."""
        table: dict[str, str] = {}
        for level in range(1, DELAY_LEVEL_COUNT + 1):
            high = self.core.store.queues.max_offset(SCHEDULE_TOPIC, level - 1)
            if high:
                done = self.core.delay_offsets.table.get(level, 0)
                table[f"scheduleMessageOffset_{level}"] = f"{done},{high}"
        return table


def _duration(passed_ms: int) -> str:
    """Write a time as RocketMQ does: ``[ 0 days, 1 hours, 2 minutes, 3 seconds ]``."""
    minutes, seconds = divmod(max(passed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size: int) -> str:
    """Write a size as RocketMQ does, in decimal units: ``1.5 MB``."""
    return _in_units(size, 1000, ("kB", "MB", "GB", "TB", "PB"))


def _size_1024(size: int) -> str:
    """Write a size as RocketMQ does, in binary units: ``1.5 MiB``."""
    return _in_units(size, 1024, ("KiB", "MiB", "GiB", "TiB", "PiB"))


def _in_units(size: int, step: int, units: tuple[str, ...]) -> str:
    if size < step:
        return f"{size} B"
    value, place = size / step, 0
    while value >= step and place < len(units) - 1:
        value, place = value / step, place + 1
    return f"{value:.1f} {units[place]}"
