"""``config/consumerOffset.json`` and ``config/delayOffset.json``: who has read how far.

Offsets change with every pull, so they are kept in memory; ``is_changed`` says that the file does
not have them. The broker writes consumer offsets every few seconds and when it stops: what is lost
in between is read again. Delay offsets it writes soon after a delivery, as what is lost of those is
delivered again.

Both files stay when the log is replaced, and then tell of queues that are not there any more. So
each has a member that RocketMQ does not know and leaves out when it writes the file: by what the
log is recognized (:mod:`rocketlens.broker.tables.log_identity`).
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from rocketlens import limits
from rocketlens.broker.tables.config_table import ConfigFile, TableVersion, table_of
from rocketlens.broker.tables.log_identity import (
    SegmentChecksums,
    format_checksums,
    parse_checksums,
)
from rocketlens.errors import BadInput
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout

GROUP_SEPARATOR: Final = "@"
_INTEGER: Final = re.compile(r"-?\d{1,19}", re.ASCII)
_OFFSET_BYTES: Final = 48
"""What one offset takes in the file, at most: tabs, queue id, offset, and what is between."""
_NAME_BYTES: Final = 16
"""What stands around a name in the file."""
LOG_MEMBER: Final = "logSegmentChecksums"


def _numbers(value: Any) -> dict[int, int] | None:
    if not isinstance(value, dict):
        return None
    return {
        int(name): offset
        for name, offset in value.items()
        if _INTEGER.fullmatch(str(name)) and type(offset) is int
    }


def _size_of(name: str) -> int:
    """Return what a name takes in the file, at most: a character may be six bytes, escaped."""
    return len(name) * 6 + _NAME_BYTES


class ConsumerOffsets:
    """For each ``topic@group`` and queue id the queue offset that is to be read next.

    A topic has no ``@`` in its name, a group neither. ``log`` has the checksums of the log that the
    file was written for, empty when it does not say, and ``log_checksums`` returns those of now.
    """

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file.

        :raises ConfigError: when it is larger than any that is read.
        """
        self._file = ConfigFile(layout.config / "consumerOffset.json", disk)
        self._others = self._file.read()
        self.is_changed = False
        self.log: SegmentChecksums = parse_checksums(self._others.pop(LOG_MEMBER, None))
        self.log_checksums: Callable[[], SegmentChecksums] = dict
        self.table: dict[str, dict[int, int]] = table_of(self._others.get("offsetTable"), _numbers)
        self.data_version = TableVersion.decode(self._others.get("dataVersion"), clock())
        self._bytes = 0
        self.refused = 0
        """Offsets that were not kept: there was no room, or no such queue."""
        self._count_bytes()

    def _count_bytes(self) -> None:
        """Count how many bytes the offsets take in the file, at most."""
        self._bytes = sum(
            _size_of(name) + len(offsets) * _OFFSET_BYTES for name, offsets in self.table.items()
        )

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return an offset, None when the group has none in that queue."""
        return self.table.get(f"{topic}{GROUP_SEPARATOR}{group}", {}).get(queue_id)

    def put(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set an offset; :meth:`save` writes it.

        :raises BadInput: when there is no room for another one in the table.
        """
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

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each topic and group with offsets, as they are now."""
        for name in list(self.table):
            topic, _, group = name.rpartition(GROUP_SEPARATOR)
            yield topic, group

    def topics_of(self, group: str) -> list[str]:
        """List the topics in which a group has offsets."""
        end = f"{GROUP_SEPARATOR}{group}"
        return [name[: -len(end)] for name in self.table if name.endswith(end)]

    def groups_of(self, topic: str) -> list[str]:
        """List the groups that have offsets in a topic."""
        begin = f"{topic}{GROUP_SEPARATOR}"
        return [name[len(begin) :] for name in self.table if name.startswith(begin)]

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets of all groups in a topic."""
        for group in self.groups_of(topic):
            del self.table[f"{topic}{GROUP_SEPARATOR}{group}"]
            self.is_changed = True

    def remove(self, group: str, topic: str | None = None) -> None:
        """Forget the offsets of a group, in one topic or in all."""
        for name in list(self.table):
            found, _, owner = name.rpartition(GROUP_SEPARATOR)
            if owner == group and topic in (None, found):
                del self.table[name]
                self.is_changed = True
        self._count_bytes()

    def snapshot(self) -> Callable[[], None]:
        """Take the offsets of now; what is returned writes them, in any thread.

        That raises OSError when they cannot be written, or the log cannot be read, by which the
        next start knows whether they are of its log.
        """
        value = {**self._others, "dataVersion": self.data_version.encode()}
        table = dict(self.table)

        def write() -> None:
            log = _log_member(self.log_checksums())
            # A group that is copied a moment later may have come farther, which is as good.
            offsets = {name: dict(offsets) for name, offsets in table.items()}
            self._file.write(value | log | {"offsetTable": offsets})

        return write

    def save(self) -> None:
        """Write the file now.

        :raises OSError: when it cannot be written.
        """
        self.snapshot()()
        self.is_changed = False


class DelayOffsets:
    """For each delay level the queue offset in SCHEDULE_TOPIC_XXXX that is delivered next.

    ``delivered``: waits until what was delivered is durable, and raises if it will never be. An
    offset may not be durable before the message that was delivered, or that is lost with the power.
    ``log`` and ``log_checksums`` are as in :class:`ConsumerOffsets`.
    """

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        clock: Callable[[], int],
        delivered: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the file.

        :raises ConfigError: when it is larger than any that is read.
        """
        self._file = ConfigFile(layout.config / "delayOffset.json", disk)
        self._delivered = delivered
        self.is_changed = False
        value = self._file.read()
        self.log: SegmentChecksums = parse_checksums(value.get(LOG_MEMBER))
        self.log_checksums: Callable[[], SegmentChecksums] = dict
        self.table: dict[int, int] = _numbers(value.get("offsetTable")) or {}
        self.data_version = TableVersion.decode(value.get("dataVersion"), clock())

    def put(self, level: int, queue_offset: int) -> None:
        """Set the offset of a level."""
        if self.table.get(level) != queue_offset:
            self.table[level] = queue_offset
            self.is_changed = True

    def snapshot(self) -> Callable[[], None]:
        """Take the offsets of now; what is returned writes them, in any thread.

        That raises OSError as that of :class:`ConsumerOffsets`, and what ``delivered`` raises.
        """
        value = {
            "dataVersion": self.data_version.encode(),
            "offsetTable": dict(self.table),
        }

        def write() -> None:
            self._delivered()
            self._file.write(value | _log_member(self.log_checksums()))

        return write

    def save(self) -> None:
        """Write the file now; raises what writing a snapshot does."""
        self.snapshot()()
        self.is_changed = False


def _log_member(checksums: SegmentChecksums) -> dict[str, Any]:
    """Return the member of a file that says which log it was written for."""
    return {LOG_MEMBER: format_checksums(checksums)} if checksums else {}
