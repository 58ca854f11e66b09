"""The metrics of a broker for Prometheus, and its problems.

Names and labels are those of RocketMQ 5's own exporter (``metricsExporterType=PROM``) if it has the
value; the others begin with ``rocketlens_``. Values are read on request; nothing is counted for
them alone. Source: ``BrokerMetricsManager``, ``DefaultStoreMetricsManager``.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rocketlens.broker.requests.offset import store_time
from rocketlens.broker.tables.offsets import GROUP_SEPARATOR
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import decode, message_of, store_timestamp_at
from rocketlens.model.life import cause_of
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX
from rocketlens.net.pace import Pace
from rocketlens.net.server import network_metrics
from rocketlens.query.facts.letter_causes import (
    MAX_CAUSE_LABELS,
    MAX_CAUSES_READ,
    LetterCause,
    LetterCauses,
    cause_metrics,
)
from rocketlens.wire.codes import version_name

if TYPE_CHECKING:
    from prometheus_client import Metric

    from rocketlens.broker.core import BrokerCore
    from rocketlens.net.channel import Channel

MAX_METRIC_SERIES: Final = 20_000
"""Values by topic and group in one response: 2 MiB. RocketMQ: no limit, or 50,000."""
NODE_LABELS: Final = ("cluster", "node_type", "node_id")
"""Labels of every value: cluster, ``broker``, and the broker's name."""
_NAME_CHARACTERS: Final = 120


_OF_DEAD_LETTERS: Final = (
    ("rocketlens_dead_letters", "Dead letters of a group that are not deleted."),
    (
        "rocketmq_send_to_dlq_messages",
        "Dead letters that a group ever had, those that were deleted included.",
    ),
    (
        "rocketlens_dead_letters_oldest_timestamp_seconds",
        "When the oldest dead letter of a group was stored.",
    ),
    (
        "rocketlens_dead_letters_newest_timestamp_seconds",
        "When the newest dead letter of a group was stored.",
    ),
)
"""Values of groups with dead letters, in the order of `_dead_letters`."""
_MAX_CAUSE_GROUPS: Final = 100
"""Groups whose dead letters are read for their causes, in 20 MB."""
_MAX_LETTERS_READ: Final = 1_000
"""Dead letters that are read for one response; the next ones read the rest."""
_COUNTERS: Final = frozenset({"rocketmq_messages_in", "rocketmq_send_to_dlq_messages"})
"""Counters by topic or group."""


class Value(NamedTuple):
    """One value of the whole broker."""

    name: str
    is_counter: bool
    meaning: str
    read: "Callable[[BrokerCore], float]"


_Read: TypeAlias = "str | Callable[[BrokerCore], float]"
"""An attribute of the core, or a function of it."""


def _gauge(name: str, meaning: str, read: _Read, *, is_counter: bool = False) -> Value:
    return Value(name, is_counter, meaning, attrgetter(read) if isinstance(read, str) else read)


def _counter(name: str, meaning: str, read: _Read) -> Value:
    return _gauge(name, meaning, read, is_counter=True)


VALUES: Final = (
    _gauge(
        "rocketmq_broker_permission",
        "What clients may do: 4 read, 2 write.",
        "config.brokerPermission",
    ),
    _gauge("rocketmq_topic_number", "Topics.", lambda core: len(core.topics.topics)),
    _gauge(
        "rocketmq_consumer_group_number",
        "Consumer groups.",
        lambda core: len(core.groups.table.entries),
    ),
    _gauge(
        "rocketmq_storage_size_bytes",
        "Bytes of the log that are not deleted.",
        lambda core: core.store.end_offset - core.store.min_offset,
    ),
    _gauge(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes of the log that are not synced yet.",
        lambda core: max(core.store.end_offset - core.store.flushed_offset, 0),
    ),
    _gauge(
        "rocketmq_storage_message_reserve_time_milliseconds",
        "Milliseconds since the oldest message was stored.",
        lambda core: 0 if core.store.end_offset <= core.store.min_offset else _reserve_ms(core),
    ),
    _gauge(
        "rocketmq_timer_enqueue_lag",
        "Messages with a delivery time that are not read yet.",
        "timers.unread",
    ),
    _gauge(
        "rocketmq_timing_messages", "Messages that wait for their delivery time.", "timers.waiting"
    ),
    _counter(
        "rocketmq_messages_out",
        "Messages delivered to consumers since the start.",
        "stats.get_total",
    ),
    _counter(
        "rocketmq_throughput_in",
        "Bytes appended to the log since the start.",
        "store.appended_bytes",
    ),
    _counter("rocketlens_messages_put", "Messages stored since the start.", "stats.put_total"),
    _counter("rocketlens_pulls_found", "Pulls that returned messages.", "stats.get_found"),
    _counter("rocketlens_pulls_missed", "Pulls that returned none.", "stats.get_missed"),
    _gauge(
        "rocketlens_disk_used_ratio",
        "How full the disk of the store is, 0 to 1.",
        lambda core: max(map(core.disk.used_ratio, core.store.layout.disks)),
    ),
    _gauge(
        "rocketlens_store_writable",
        "1 if messages are stored, 0 if they are refused.",
        lambda core: core.store.refusal is None,
    ),
    _counter(
        "rocketlens_slow_syncs",
        "Syncs of the log that took half a second or longer.",
        "store.slow_syncs",
    ),
    _gauge(
        "rocketlens_index_behind_bytes",
        "Bytes of the log that index files do not cover yet.",
        lambda core: max(core.store.end_offset - core.store.indexed_offset, 0),
    ),
    _counter(
        "rocketlens_index_builder_failures",
        "How often the index builder of another process ended.",
        lambda core: 0 if core.index_process is None else core.index_process.failures,
    ),
    _gauge("rocketlens_look_ups_waiting", "Look-ups that wait for their turn.", "search.waiting"),
    _gauge(
        "rocketlens_timer_behind_seconds",
        "How long the oldest message with a delivery time is overdue.",
        lambda core: core.timers.behind_ms / 1000,
    ),
    _gauge("rocketlens_held_pulls", "Pulls that wait.", "held_pulls.count"),
    _gauge("rocketlens_held_pulls_bytes", "Memory of pulls that wait.", "held_pulls.kept_bytes"),
    _counter(
        "rocketlens_pulls_not_held", "Pulls that found no room to wait.", "held_pulls.not_held"
    ),
    _counter("rocketlens_topics_refused", "Topics refused.", "topics.room.refused"),
    _counter("rocketlens_groups_refused", "Groups refused.", "groups.room.refused"),
    _gauge(
        "rocketlens_client_groups_bytes",
        "Memory of the groups of all connections.",
        "clients.total_bytes",
    ),
    _counter(
        "rocketlens_clients_closed_for_groups",
        "Connections closed because they had the most groups.",
        "clients.closed_largest",
    ),
    _counter("rocketlens_heartbeats_refused", "Heartbeats refused.", "clients.refused"),
    _counter("rocketlens_offsets_refused", "Offsets refused.", "offsets.refused"),
    _gauge("rocketlens_queue_locks", "Queues locked.", "queue_locks.count"),
    _counter("rocketlens_queue_locks_refused", "Locks of queues refused.", "queue_locks.refused"),
    _counter(
        "rocketlens_requests_refused",
        "Requests refused by access control.",
        lambda core: 0 if core.access is None else core.access.refused,
    ),
    _gauge(
        "rocketlens_name_servers_not_told",
        "Name servers at which the broker could not be registered.",
        lambda core: len(core.name_servers.failures),
    ),
    _gauge(
        "rocketlens_broker_name_taken",
        "Name servers at which another broker has this broker's name.",
        lambda core: len(core.name_servers.name_taken),
    ),
)
"""Values of the whole broker. The exporter appends ``_total`` to the name of a counter."""


class CauseReader:
    """Reads dead letters for their causes, each once."""

    def __init__(self) -> None:
        self._queues: Final[dict[tuple[str, int], deque[tuple[int, int, str]]]] = {}
        """Queue offset, store time and cause of the newest letters of a queue."""

    async def read(self, core: "BrokerCore", pace: Pace) -> list[tuple[str, list[LetterCause]]]:
        left = _MAX_LETTERS_READ
        groups: list[tuple[str, list[LetterCause]]] = []
        queues, topics = core.store.queues, dict(core.topics.topics)
        for gone in [each for each in self._queues if each[0] not in topics]:
            del self._queues[gone]
        for topic, config in topics.items():
            if not topic.startswith(DEAD_LETTER_PREFIX) or len(groups) == _MAX_CAUSE_GROUPS:
                continue
            causes = LetterCauses(core.clock())
            for queue_id in range(config.queue_count):
                first, end = queues.min_offset(topic, queue_id), queues.max_offset(topic, queue_id)
                kept = self._queues.setdefault((topic, queue_id), deque(maxlen=MAX_CAUSES_READ))
                if kept and kept[-1][0] >= end:
                    kept.clear()  # The topic was deleted and created again.
                after = kept[-1][0] + 1 if kept else 0
                for at in range(max(after, first, end - MAX_CAUSES_READ), end)[:left]:
                    left -= 1
                    kept.append((at, *_cause_at(core, topic, queue_id, at)))
                    await pace.turn()
                for at, stored_ms, cause in kept:
                    if at >= first and cause:
                        causes.add(cause, stored_ms)
                await pace.turn()
            if most := causes.most(MAX_CAUSE_LABELS):
                groups.append((topic.removeprefix(DEAD_LETTER_PREFIX), most))
        return groups


def _cause_at(core: "BrokerCore", topic: str, queue_id: int, queue_offset: int) -> tuple[int, str]:
    queue = core.store.queues.get(topic, queue_id)
    entry = None if queue is None else queue.entry(queue_offset)
    if entry is None or entry.is_filler:
        return 0, ""
    record = core.store.record(entry.physical_offset, entry.store_size)
    try:
        letter = None if record is None else message_of(decode(record), body_limit=0)
    except RecordError:
        letter = None
    return (0, "") if letter is None else (letter.store_timestamp_ms, cause_of(letter))


async def collect(core: "BrokerCore", reader: CauseReader) -> "list[Metric]":
    """Return all metrics. Runs in the broker's event loop, in pieces of some milliseconds."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    node = (core.config.brokerClusterName, "broker", core.config.brokerName)
    metrics: list[Metric] = []
    for value in VALUES:
        family = CounterMetricFamily if value.is_counter else GaugeMetricFamily
        metric = family(value.name, value.meaning, labels=NODE_LABELS)
        metric.add_metric(node, float(value.read(core)))
        metrics.append(metric)
    metrics += network_metrics(core.network, NODE_LABELS, node)
    pace = Pace()
    left_out = 0
    letters = await _dead_letters(core, pace)
    by_group: list[tuple[str, str, tuple[str, ...], Mapping[tuple[str, ...], float]]] = [
        (name, meaning, ("consumer_group",), letters[name]) for name, meaning in _OF_DEAD_LETTERS
    ]
    for name, meaning, labels, rows in (
        (
            "rocketmq_messages_in",
            "Messages stored in the queues of a topic, those that were deleted included.",
            ("topic",),
            await _stored(core, pace),
        ),
        (
            "rocketmq_consumer_lag_messages",
            "Messages of a topic that a group has not consumed.",
            ("topic", "consumer_group"),
            await _lags(core, pace),
        ),
        (
            "rocketmq_producer_connections",
            "Connections of producers.",
            ("language", "version"),
            await _producers(core, pace),
        ),
        (
            "rocketmq_consumer_connections",
            "Connections of a group of consumers.",
            ("consumer_group", "language", "version", "consume_mode"),
            await _consumers(core, pace),
        ),
        *by_group,
    ):
        is_counter = name in _COUNTERS
        family = CounterMetricFamily if is_counter else GaugeMetricFamily
        metric = family(name, meaning, labels=(*NODE_LABELS, *labels))
        for texts, number in rows.items():
            if len(metric.samples) < MAX_METRIC_SERIES:
                shown = (text[:_NAME_CHARACTERS] for text in texts)
                metric.add_metric((*node, *shown), float(number))
            else:
                left_out += 1
            await pace.turn()
        metrics.append(metric)
    metric = GaugeMetricFamily(
        "rocketlens_metrics_left_out",
        "Values by topic and group that were too many for one answer.",
        labels=NODE_LABELS,
    )
    metric.add_metric(node, float(left_out))
    by_cause = cause_metrics(await reader.read(core, pace), NODE_LABELS, node)
    return [*metrics, *by_cause, metric]


def problems(core: "BrokerCore") -> list[str]:
    """Return the reasons why a broker cannot do its work now; empty if it can."""
    reasons: list[str] = []
    if core.store.refusal is not None:
        reasons.append(f"messages are refused: {core.store.refusal}")
    servers = core.config.namesrv_addresses
    if servers and all(server in core.name_servers.failures for server in servers):
        reasons.append(f"registered at none of {len(servers)} name servers")
    return reasons


async def _stored(core: "BrokerCore", pace: Pace) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for topic, next_offset in core.store.queues.lengths():
        counts[topic,] += next_offset
        await pace.turn()
    return counts


async def _lags(core: "BrokerCore", pace: Pace) -> dict[tuple[str, ...], int]:
    lags: dict[tuple[str, ...], int] = {}
    for name, offsets in list(core.offsets.table.items()):
        topic, _, group = name.partition(GROUP_SEPARATOR)
        lag = 0
        for queue_id, offset in list(offsets.items()):
            lag += max(core.store.queues.max_offset(topic, queue_id) - offset, 0)
            await pace.turn()
        if topic in core.topics.topics:
            lags[topic, group] = lag
    return lags


async def _dead_letters(core: "BrokerCore", pace: Pace) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of `_OF_DEAD_LETTERS` by group; times are of letters not deleted."""
    values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name, _ in _OF_DEAD_LETTERS}
    kept, ever, oldest, newest = values.values()
    queues = core.store.queues
    for topic, config in list(core.topics.topics.items()):
        if not topic.startswith(DEAD_LETTER_PREFIX):
            continue
        ends = [
            (queue_id, queues.min_offset(topic, queue_id), queues.max_offset(topic, queue_id))
            for queue_id in range(config.queue_count)
        ]
        group = (topic.removeprefix(DEAD_LETTER_PREFIX),)
        if any(end for _, _, end in ends):
            kept[group] = sum(end - first for _, first, end in ends)
            ever[group] = sum(end for _, _, end in ends)
        times_ms = [
            store_time(core, topic, queue_id, at)
            for queue_id, first, end in ends
            for at in ((first, end - 1) if first < end else ())
        ]
        # -1 for a message that cannot be read.
        if min(times_ms, default=-1) >= 0:
            oldest[group], newest[group] = min(times_ms) / 1000, max(times_ms) / 1000
        await pace.turn()
    return values


async def _producers(core: "BrokerCore", pace: Pace) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    counted: set[Channel] = set()
    for members in list(core.clients.producers.values()):
        for channel, client in list(members.items()):
            if channel not in counted:
                counted.add(channel)
                counts[client.language.name.lower(), _version(client.version)] += 1
            await pace.turn()
    return counts


async def _consumers(core: "BrokerCore", pace: Pace) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for name, group in list(core.clients.consumers.items()):
        mode = "" if group.consume_type is None else group.consume_type.value.lower()
        for client in list(group.members.values()):
            counts[name, client.language.name.lower(), _version(client.version), mode] += 1
            await pace.turn()
    return counts


def _version(number: int) -> str:
    return version_name(number).lower()


def _reserve_ms(core: "BrokerCore") -> int:
    first = core.store.record(core.store.min_offset, 0)
    return 0 if first is None else max(core.clock() - store_timestamp_at(first), 0)


def markdown_rows() -> Iterable[str]:
    yield "| Name | Type | Meaning |"
    yield "| --- | --- | --- |"
    for value in VALUES:
        name = f"{value.name}_total" if value.is_counter else value.name
        yield f"| `{name}` | {'counter' if value.is_counter else 'gauge'} | {value.meaning} |"
