"""``config/consumerOffset.json`` and ``config/delayOffset.json``: who has read how far.

Offsets change with every pull, so they are kept in memory and written by :meth:`save`, which the
broker calls every few seconds and when it stops. What is lost in between is read again.
"""

from collections.abc import Callable
from typing import Any, Final

from rocketlens.store.config_table import ConfigFile, DataVersion, table_of
from rocketlens.store.fs import Disk
from rocketlens.store.layout import StoreLayout

GROUP_SEPARATOR: Final = "@"


def _numbers(value: Any) -> dict[int, int] | None:
    if not isinstance(value, dict):
        return None
    return {
        int(name): offset
        for name, offset in value.items()
        if name.lstrip("-").isdigit() and isinstance(offset, int)
    }


class ConsumerOffsets:
    """For each ``topic@group`` and queue id the queue offset that is to be read next.

    A topic has no ``@`` in its name, a group neither.
    """

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file.

        :raises ConfigError: when it and its backup are damaged.
        """
        self._file = ConfigFile(layout.config / "consumerOffset.json", disk)
        self._clock = clock
        self._others = self._file.read()
        self.table: dict[str, dict[int, int]] = table_of(self._others.get("offsetTable"), _numbers)
        self.data_version = DataVersion.decode(self._others.get("dataVersion"), clock())

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Give an offset, None when the group has none in that queue."""
        return self.table.get(f"{topic}{GROUP_SEPARATOR}{group}", {}).get(queue_id)

    def put(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set an offset; :meth:`save` writes it."""
        self.table.setdefault(f"{topic}{GROUP_SEPARATOR}{group}", {})[queue_id] = queue_offset

    def topics_of(self, group: str) -> list[str]:
        """List the topics in which a group has offsets."""
        pairs = (name.rpartition(GROUP_SEPARATOR) for name in self.table)
        return [topic for topic, _, found in pairs if found == group]

    def groups_of(self, topic: str) -> list[str]:
        """List the groups that have offsets in a topic."""
        pairs = (name.rpartition(GROUP_SEPARATOR) for name in self.table)
        return [group for found, _, group in pairs if found == topic]

    def remove(self, group: str, topic: str | None = None) -> None:
        """Forget the offsets of a group, in one topic or in all."""
        for name in list(self.table):
            found, _, owner = name.rpartition(GROUP_SEPARATOR)
            if owner == group and topic in (None, found):
                del self.table[name]

    def save(self) -> None:
        """Write the file, if anything changed.

        :raises OSError: when it cannot be written.
        """
        self._file.write(
            {
                **self._others,
                "dataVersion": self.data_version.encode(),
                "offsetTable": self.table,
            }
        )


class DelayOffsets:
    """For each delay level the queue offset in SCHEDULE_TOPIC_XXXX that is delivered next."""

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file.

        :raises ConfigError: when it and its backup are damaged.
        """
        self._file = ConfigFile(layout.config / "delayOffset.json", disk)
        value = self._file.read()
        self.table: dict[int, int] = _numbers(value.get("offsetTable")) or {}
        self.data_version = DataVersion.decode(value.get("dataVersion"), clock())

    def save(self) -> None:
        """Write the file, if anything changed.

        :raises OSError: when it cannot be written.
        """
        self._file.write({"dataVersion": self.data_version.encode(), "offsetTable": self.table})
