"""``config/consumerOffset.json`` and ``config/delayOffset.json``: offsets of groups and levels.

Offsets change with every pull, so they are kept in memory; ``is_changed`` means that the file is
out of date. The broker writes consumer offsets every few seconds and when it stops: after a crash,
consumers read the messages in between again. It writes delay offsets soon after a delivery, because
after a crash those messages are delivered again.

Both files outlive a replaced log, but then their offsets belong to other queues. So each has a
member that identifies the log: `LOG_MEMBER`. RocketMQ does not know this member, and drops it when
it writes the file.

The log may also have lost its end. An offset beyond the end of its queue would hide new messages
until the queue is longer, so `fit_to_store` corrects offsets:

=====================  =====================================================================
log                    corrected offset
=====================  =====================================================================
the same               at most the queue's end; a delay offset at least the queue's begin
another one            the queue's begin: messages are read or delivered twice, not lost
=====================  =====================================================================

For the same log, RocketMQ corrects delay offsets in this way. Source:
``ScheduleMessageService.correctDelayOffset``.
"""

import logging
import re
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.broker.tables.config_table import ConfigFile, encode_table, table_of, version_in
from rocketlens.broker.tables.table_saver import Table
from rocketlens.errors import BadInput
from rocketlens.formats.commitlog_record import HEADS, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from rocketlens.model.rocketmq import DELAY_TOPIC
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import SEGMENT_NAME_DIGITS
from rocketlens.store.write.message_store import MessageStore
from rocketlens.wire.declare import members_of

MAX_IDENTITY_SEGMENTS: Final = 16
"""Number of segments that identify a log. Logs without a common segment count as the same."""
RESET_KEPT_MS: Final = 600_000
"""Milliseconds for which commits of a group without consumers are ignored after a reset: its
consumers may reconnect. RocketMQ: until a pull, or a restart.
"""
_MAX_BYTES: Final = 4096
"""Bytes of the first record of a segment that are read."""
_HEAD: Final = HEADS[0].struct_of("total_size", "magic", "physical_offset")
_SEGMENT: Final = re.compile(rf"[0-9]{{{SEGMENT_NAME_DIGITS}}}")
_PAIR: Final = re.compile(r"(\d{1,19}):(\d{1,10})", re.ASCII)

SegmentChecksums = Mapping[int, int]
"""The CRC32 of the first record of each segment, by base offset."""


class LogIdentity:
    """Caches the checksums of the log in one directory. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._cache: dict[int, int] = {}

    def checksums(self) -> SegmentChecksums:
        """Return the checksums of the newest segments that start with a record.

        Lists one directory, and reads each new segment once.

        :raises OSError: if the log cannot be read.
        """
        checksums: dict[int, int] = {}
        segments = [each for each in fs.entries(self._directory) if _SEGMENT.fullmatch(each.name)]
        for segment in segments[-MAX_IDENTITY_SEGMENTS:]:
            base_offset = int(segment.name)
            checksum = self._cache.get(base_offset)
            if checksum is None:
                content = fs.read_bytes(Path(segment.path), _MAX_BYTES) or b""
                checksum = _checksum(content, base_offset)
            if checksum is not None:
                checksums[base_offset] = checksum
        self._cache = checksums
        return checksums


def is_another_log(noted: SegmentChecksums, current: SegmentChecksums) -> bool:
    """Return True if two logs have common base offsets, but no common checksum."""
    shared = noted.keys() & current.keys()
    return bool(shared) and all(noted[each] != current[each] for each in shared)


def parse_checksums(text: Any) -> dict[int, int]:
    """Parse base offsets and checksums, as in ``0:3405691582,1073741824:17``; empty if invalid."""
    pairs = _PAIR.findall(text) if isinstance(text, str) else ()
    return {int(base_offset): int(checksum) for base_offset, checksum in pairs}


def format_checksums(checksums: SegmentChecksums) -> str:
    return ",".join(f"{base_offset}:{checksums[base_offset]}" for base_offset in sorted(checksums))


def _checksum(content: bytes, base_offset: int) -> int | None:
    if len(content) < MIN_RECORD_BYTES:
        return None
    size, magic, physical_offset = _HEAD.unpack_from(content)
    if size < MIN_RECORD_BYTES or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    return None if physical_offset != base_offset else zlib.crc32(content[:size])


GROUP_SEPARATOR: Final = "@"
_INTEGER: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_OFFSET_BYTES: Final = 48
"""Maximum bytes of one offset in the file: tabs, queue id, offset, and separators."""
_NAME_BYTES: Final = 16
"""Bytes around a name in the file."""
LOG_MEMBER: Final = "logSegmentChecksums"
_log: Final = logging.getLogger("rocketlens.broker")


def _numbers(value: Any) -> dict[int, int] | None:
    if not isinstance(value, dict):
        return None
    return {
        int(name): offset
        for name, offset in value.items()
        if _INTEGER.fullmatch(str(name)) and type(offset) is int
    }


def _size_of(name: str) -> int:
    """Return the maximum bytes of a name in the file: an escaped character needs up to six."""
    return len(name) * 6 + _NAME_BYTES


class Reset(NamedTuple):
    """The offset at which a group continues after a reset, and the time of the reset."""

    queue_offset: int
    since_ms: int


class ConsumerOffsets(Table):
    """The next queue offset to read, for each ``topic@group`` and queue id.

    Names of topics and groups cannot have ``@``. ``log`` has the checksums of the log that the file
    was written for, empty if the file has none; ``log_checksums`` returns the current ones.
    """

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        clock: Callable[[], int],
        log_checksums: Callable[[], SegmentChecksums] = dict,
    ) -> None:
        """:raises ConfigError: if the file exceeds the bound for reading."""
        self._file = ConfigFile(layout.config / "consumerOffset.json", disk)
        self._others = self._file.read()
        self.log: SegmentChecksums = parse_checksums(self._others.pop(LOG_MEMBER, None))
        self.log_checksums: Final = log_checksums
        self.table: dict[str, dict[int, int]] = table_of(self._others.get("offsetTable"), _numbers)
        self.data_version = version_in(self._others, clock())
        self._clock: Final = clock
        self.resets: Final[dict[tuple[str, str, int], Reset]] = {}
        """By group, topic and queue id: the offset at which the group's next pull continues,
        whatever offset it has. Not in the file, because `table` has these offsets, too.
        """
        self._bytes = 0
        self.refused = 0
        """Number of offsets refused: the table was full, or the queue does not exist."""
        self._count_bytes()

    def _count_bytes(self) -> None:
        self._bytes = sum(
            _size_of(name) + len(offsets) * _OFFSET_BYTES for name, offsets in self.table.items()
        )

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.table.get(f"{topic}{GROUP_SEPARATOR}{group}", {}).get(queue_id)

    def put(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """:raises BadInput: if the offset is new and the table is full."""
        name = f"{topic}{GROUP_SEPARATOR}{group}"
        offsets = self.table.get(name)
        if offsets is None or queue_id not in offsets:
            size = _OFFSET_BYTES + (_size_of(name) if offsets is None else 0)
            if self._bytes + size > limits.MAX_CONFIG_BYTES // 2:
                self.refused += 1
                raise BadInput(f"consumerOffset.json is full: it has {self._bytes} bytes")
            self._bytes += size
            offsets = self.table.setdefault(name, {})
        offsets[queue_id] = queue_offset
        self.is_changed = True

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the offset at which the group's next pull continues. Raises as :meth:`put`."""
        self.put(group, topic, queue_id, queue_offset)
        self.resets[group, topic, queue_id] = Reset(queue_offset, self._clock())

    def expire_resets(self, online: Container[str]) -> None:
        """Forget resets older than `RESET_KEPT_MS` of groups that are not ``online``."""
        before_ms = self._clock() - RESET_KEPT_MS
        for key, reset in list(self.resets.items()):
            if reset.since_ms < before_ms and key[0] not in online:
                del self.resets[key]

    def clone(self, group: str, topic: str, other_group: str) -> None:
        """Copy the offsets in one topic to another group. Raises as :meth:`put`."""
        offsets = self.table.get(f"{topic}{GROUP_SEPARATOR}{group}", {})
        for queue_id, queue_offset in offsets.items():
            self.put(other_group, topic, queue_id, queue_offset)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each topic and group with offsets, from a snapshot of the table."""
        for name in list(self.table):
            topic, _, group = name.rpartition(GROUP_SEPARATOR)
            yield topic, group

    def topics_of(self, group: str) -> list[str]:
        end = f"{GROUP_SEPARATOR}{group}"
        return [name[: -len(end)] for name in self.table if name.endswith(end)]

    def groups_of(self, topic: str) -> list[str]:
        prefix = f"{topic}{GROUP_SEPARATOR}"
        return [name[len(prefix) :] for name in self.table if name.startswith(prefix)]

    def remove(self, *, group: str | None = None, topic: str | None = None) -> None:
        for each_topic, each_group in self.pairs():
            if group in (None, each_group) and topic in (None, each_topic):
                del self.table[f"{each_topic}{GROUP_SEPARATOR}{each_group}"]
                self.is_changed = True
        for key in list(self.resets):
            if group in (None, key[0]) and topic in (None, key[1]):
                del self.resets[key]
        self._count_bytes()

    def value(self) -> dict[str, Any]:
        return self._head() | {"offsetTable": {name: dict(of) for name, of in self.table.items()}}

    def _head(self) -> dict[str, Any]:
        return {**self._others, "dataVersion": members_of(self.data_version)}

    def snapshot(self) -> Callable[[], None]:
        value = self._head()
        table = dict(self.table)

        def write() -> None:
            log = _log_member(self.log_checksums())
            # The loop may change an offset in the meantime; either value is right.
            offsets = {name: dict(offsets) for name, offsets in table.items()}
            self._file.write(encode_table(value | log | {"offsetTable": offsets}))

        return write


class DelayOffsets(Table):
    """The next queue offset to deliver, for each delay level.

    ``delivered`` waits until delivered messages are durable, and raises if that is impossible. An
    offset must not be durable before the delivered message, or a power failure loses the message.
    ``log`` and ``log_checksums`` are as in :class:`ConsumerOffsets`.
    """

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        clock: Callable[[], int],
        delivered: Callable[[], None] = lambda: None,
        log_checksums: Callable[[], SegmentChecksums] = dict,
    ) -> None:
        """:raises ConfigError: if the file exceeds the bound for reading."""
        self._file = ConfigFile(layout.config / "delayOffset.json", disk)
        self._delivered = delivered
        value = self._file.read()
        self.log: SegmentChecksums = parse_checksums(value.get(LOG_MEMBER))
        self.log_checksums: Final = log_checksums
        self.table: dict[int, int] = _numbers(value.get("offsetTable")) or {}
        self.data_version = version_in(value, clock())

    def put(self, level: int, queue_offset: int) -> None:
        if self.table.get(level) != queue_offset:
            self.table[level] = queue_offset
            self.is_changed = True

    def value(self) -> dict[str, Any]:
        return {"dataVersion": members_of(self.data_version), "offsetTable": dict(self.table)}

    def snapshot(self) -> Callable[[], None]:
        value = self.value()

        def write() -> None:
            self._delivered()
            self._file.write(encode_table(value | _log_member(self.log_checksums())))

        return write


def _log_member(checksums: SegmentChecksums) -> dict[str, Any]:
    return {LOG_MEMBER: format_checksums(checksums)} if checksums else {}


def fit_to_store(store: MessageStore, consumers: ConsumerOffsets, delays: DelayOffsets) -> None:
    checksums = delays.log_checksums()
    is_another = is_another_log(consumers.log, checksums)
    consumers.is_changed |= is_another
    groups = _fit_consumers(store, consumers, is_another=is_another)
    is_another = is_another_log(delays.log, checksums)
    delays.is_changed |= is_another
    levels = _fit_delays(store, delays, is_another=is_another)
    for count, of_what in ((groups, "consumer groups"), (levels, "delay levels")):
        if count:
            line = "%d offsets of %s did not fit the queues of this log and were corrected"
            _log.warning(line, count, of_what)


def _fit_delays(store: MessageStore, delays: DelayOffsets, *, is_another: bool) -> int:
    corrected = 0
    for level, offset in list(delays.table.items()):
        low = store.queues.min_offset(DELAY_TOPIC, level - 1)
        high = store.queues.max_offset(DELAY_TOPIC, level - 1)
        fitting = low if is_another else min(max(offset, low), high)
        if fitting != offset:
            delays.put(level, fitting)
            corrected += 1
    return corrected


def _fit_consumers(store: MessageStore, consumers: ConsumerOffsets, *, is_another: bool) -> int:
    corrected = 0
    for name, offsets in consumers.table.items():
        topic = name.rpartition(GROUP_SEPARATOR)[0]
        for queue_id, offset in offsets.items():
            if offset < 0:
                continue
            fitting = min(offset, store.queues.max_offset(topic, queue_id))
            if is_another:
                fitting = store.queues.min_offset(topic, queue_id)
            if fitting != offset:
                offsets[queue_id] = fitting
                consumers.is_changed = True
                corrected += 1
    return corrected
