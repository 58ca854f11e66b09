"""The tables of ``config/*.json``, read in RocketMQ's dialects and written in its layout.

Written is what RocketMQ 5 writes: tab-indented, a member a line, integer keys without quotes. The
file as it was before is kept as ``.bak``, and both are replaced in one step, synced, so that
there always is a whole one.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rocketlens.errors import ConfigError
from rocketlens.formats import config_json
from rocketlens.store import fs
from rocketlens.store.fs import Disk

_LARGEST_FILE: Final = 256 * 1024 * 1024
_INTEGER: Final = re.compile(r"-?\d+\Z", re.ASCII)


class DataVersion:
    """RocketMQ's count of changes to a table: brokers and name servers compare it."""

    def __init__(self, timestamp_ms: int, counter: int = 0, state_version: int = 0) -> None:
        """Take the three parts."""
        self.timestamp_ms = timestamp_ms
        self.counter = counter
        self.state_version = state_version

    def next(self, timestamp_ms: int) -> None:
        """Count a change."""
        self.timestamp_ms = timestamp_ms
        self.counter += 1

    def encode(self) -> dict[str, int]:
        """Give it as RocketMQ writes it."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }

    @classmethod
    def decode(cls, value: Any, now_ms: int) -> "DataVersion":
        """Read it; one of now where there is none."""
        if not isinstance(value, dict):
            return cls(now_ms)
        numbers = [value.get(name, 0) for name in ("timestamp", "counter", "stateVersion")]
        if not all(isinstance(number, int) for number in numbers):
            return cls(now_ms)
        return cls(*numbers)


def dumps(value: Any) -> str:
    """Write JSON as RocketMQ does: tabs, and integer keys without quotes."""
    return "".join(_pieces(value, 0))


def _pieces(value: Any, depth: int) -> list[str]:
    if isinstance(value, dict) and value:
        tab = "\t" * (depth + 1)
        pieces = ["{\n"]
        for place, (name, inner) in enumerate(value.items()):
            key = str(name) if _INTEGER.match(str(name)) else json.dumps(name, ensure_ascii=False)
            pieces += [",\n" if place else "", tab, key, ":", *_pieces(inner, depth + 1)]
        return [*pieces, "\n", "\t" * depth, "}"]
    if isinstance(value, (list, tuple)) and value:
        tab = "\t" * (depth + 1)
        pieces = ["[\n"]
        for place, inner in enumerate(value):
            pieces += [",\n" if place else "", tab, *_pieces(inner, depth + 1)]
        return [*pieces, "\n", "\t" * depth, "]"]
    return [json.dumps(value, ensure_ascii=False)]


class ConfigFile:
    """One file of a store's ``config`` directory."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Name it; nothing is read yet."""
        self.path = path
        self._disk = disk
        self._written: bytes | None = None

    @property
    def backup(self) -> Path:
        """The file as it was before the last change."""
        return self.path.with_name(f"{self.path.name}.bak")

    def read(self) -> dict[str, Any]:
        """Give its members, those of the backup when it is damaged; empty when neither is there.

        :raises ConfigError: when what is there is damaged, backup included.
        """
        failure: ConfigError | None = None
        for path in (self.path, self.backup):
            content = fs.read_bytes(path, _LARGEST_FILE)
            if not content or not content.strip():
                continue
            try:
                value = config_json.loads(content)
            except ConfigError as error:
                failure = failure or ConfigError(f"{path}: {error}")
                continue
            if isinstance(value, dict):
                self._written = content if path == self.path else None
                return value
            failure = failure or ConfigError(f"{path}: holds no JSON object")
        if failure is not None:
            raise failure
        return {}

    def write(self, value: dict[str, Any]) -> bool:
        """Replace the content, durably; False when it is that already.

        :raises OSError: when it cannot be; the old content stays.
        """
        content = dumps(value).encode()
        if content == self._written:
            return False
        before = fs.read_bytes(self.path, _LARGEST_FILE)
        if before:
            self._disk.write_durably(self.backup, before)
        self._disk.write_durably(self.path, content)
        self._written = content
        return True


def table_of(value: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Read each member of a JSON object with ``read``, leaving out those it gives None for."""
    if not isinstance(value, dict):
        return {}
    pairs = ((str(name), read(inner)) for name, inner in value.items())
    return {name: inner for name, inner in pairs if inner is not None}
