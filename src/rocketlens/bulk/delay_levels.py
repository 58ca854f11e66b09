"""Determines the durations of delay levels, which are in the broker's configuration, not its store.

A consume queue entry of the topic of delay levels has the delivery time: store time plus the delay
of the message's level. The sources for each level, in this order: the caller's argument; the
store's consume queues of that topic; delivered messages, whose copy in the real topic has the same
unique key and a later store time; RocketMQ's defaults.
"""

import heapq
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rocketlens.bulk.ranges import LogRange, RangeReader, open_range
from rocketlens.formats import commitlog_record
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import DELAY_LEVELS, DELAY_TOPIC, parse_delay_levels
from rocketlens.model.text import java

ARGUMENT: Final = "argument"
QUEUES: Final = "consume queues"
COPIES: Final = "delivered copies"
DEFAULTS: Final = "RocketMQ's defaults"

_SAMPLES_PER_RANGE: Final = 400


class DelayLevels(NamedTuple):
    """``delays_ms[n]``: the delay of level n (0 is unused). ``sources``: by used level."""

    delays_ms: tuple[int, ...]
    sources: dict[int, str]

    @property
    def source(self) -> str:
        """All sources in one line."""
        return ", ".join(sorted(set(self.sources.values())))


def resolve(
    used: set[int], argument: Sequence[int] | None, queues: dict[int, int], copies: dict[int, int]
) -> DelayLevels:
    """Return the delay of every level from the best source that has it."""
    if argument is not None:
        return DelayLevels(tuple(argument), dict.fromkeys(sorted(used), ARGUMENT))
    delays = list(parse_delay_levels(DELAY_LEVELS))
    sources = {}
    for level in sorted(used | set(queues) | set(copies)):
        if level >= 1 << 16:
            continue
        delays += [delays[-1]] * (level + 1 - len(delays))
        if level in queues:
            delays[level], source = queues[level], QUEUES
        elif level in copies:
            delays[level], source = copies[level], COPIES
        else:
            source = DEFAULTS
        if level in used:
            sources[level] = source
    return DelayLevels(tuple(delays), sources)


class DelayedMessage(NamedTuple):
    """A delayed message, waiting or delivered."""

    rank: int
    """Hash of the unique key: every range keeps the lowest ranks, so that samples match."""
    unique_key: bytes
    level: int
    store_timestamp_ms: int
    is_waiting: bool


def delays_of_copies(samples: Sequence[Sequence[DelayedMessage]]) -> dict[int, int]:
    """Return the delays of delivered messages by level, from the samples of all ranges.

    Delivery is never early and seldom a second late, so the least difference in whole seconds is
    the delay.
    """
    waiting = {s.unique_key: s for sample in samples for s in sample if s.is_waiting}
    delays: dict[int, int] = {}
    for sample in samples:
        for copy in sample:
            sent = waiting.get(copy.unique_key)
            if sent is None or copy.is_waiting or copy.level != sent.level:
                continue
            late_ms = copy.store_timestamp_ms - sent.store_timestamp_ms
            if late_ms >= 0:
                delay = late_ms // 1000 * 1000
                delays[sent.level] = min(delay, delays.get(sent.level, delay))
    return delays


def sample_delayed_messages(log_range: LogRange) -> list[DelayedMessage]:
    """Return delayed messages of a range, a bounded number for each level and state."""
    kept: dict[tuple[int, bool], list[Any]] = {}
    with open_range(log_range) as mapped:
        for rows in RangeReader(log_range, mapped.view):
            fields = rows.as_array
            is_delayed = (fields["delay_level"] > 0) & (fields["unique_key_length"] > 0)
            for offset in rows.compress(is_delayed.tobytes()).offsets():
                sample = _delayed_message(mapped.view, offset - log_range.base_offset)
                if sample is None:
                    continue
                heap = kept.setdefault((sample.level, sample.is_waiting), [])
                item = (-sample.rank, sample)
                if len(heap) < _SAMPLES_PER_RANGE:
                    heapq.heappush(heap, item)
                else:
                    heapq.heappushpop(heap, item)
    return [sample for heap in kept.values() for _, sample in heap]


def _delayed_message(content: memoryview, position: int) -> DelayedMessage | None:
    record = commitlog_record.decode(content, position, check_crc=False)
    properties = props.parse(java.decode_utf8(record.properties))
    unique_key = properties[props.UNIQUE_KEY]
    is_waiting = record.topic == DELAY_TOPIC
    if not is_waiting and properties.get(props.REAL_TOPIC) != record.topic:
        return None
    return DelayedMessage(
        java.string_hash(unique_key) & 0xFFFFFFFF,
        unique_key.encode("utf-8", "surrogatepass"),
        int(properties[props.DELAY]),
        record.store_timestamp_ms,
        is_waiting,
    )
