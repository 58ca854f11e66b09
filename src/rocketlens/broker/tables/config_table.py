"""Reads the tables of ``config/*.json`` in RocketMQ's dialects, and writes them in its layout.

The layout is that of RocketMQ 5: tab-indented, one member a line. An integer key (a queue id, a
delay level) has no quotes; a text key has them, even if it consists of digits. The previous content
is kept as ``.bak``. Files are replaced atomically and synced.

If a table is damaged, its backup is used, or the table begins empty. A warning is logged, and the
damaged file is copied to ``rocketlens/aside/``.
"""

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rocketlens import limits
from rocketlens.errors import ConfigError
from rocketlens.model.text import json_dialect
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.table_changes import TableMark, changes_path, mark_of, read_changes
from rocketlens.wire.bodies.tables import DataVersion
from rocketlens.wire.declare import read_member

TABLES: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
"""The tables that a broker needs."""
_log: Final = logging.getLogger(__name__)
_KEPT_BYTES: Final = 1024 * 1024
"""Files up to this size are cached in memory until the next write."""


def version_in(table: Mapping[str, Any], now_ms: int) -> DataVersion:
    """Return ``dataVersion`` of a table; a new one if it is missing."""
    version = read_member(DataVersion, table.get("dataVersion"))
    return DataVersion(timestamp_ms=now_ms) if version is None else version


class ConfigFile:
    """One file of a store's ``config`` directory."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._written: bytes | None = None
        self.mark: TableMark | None = None
        """Identity of the file when it was last read or written; None if it is missing or damaged.
        """

    @property
    def backup(self) -> Path:
        return self.path.with_name(f"{self.path.name}.bak")

    def read(self) -> dict[str, Any]:
        """Return the members of the file, or of the backup if it is damaged; empty if both are.

        Integer keys without quotes are ``int``. Damage is logged, and the damaged file is copied
        aside.

        :raises OSError: if a file exists and cannot be read.
        :raises ConfigError: if a file exceeds `limits.MAX_CONFIG_READ_BYTES`.
        """
        problems: list[str] = []
        table: dict[str, Any] = {}
        for path in (self.path, self.backup):
            value, content, problem = _read_object(path)
            if problem:
                problems.append(problem)
                self.keep_aside(path, content)
            if value is not None:
                if path == self.backup and not problems:
                    problems.append(_nothing_in(self.path))
                table = value
                if path == self.path:
                    self._remember(content)
                break
        if problems:
            instead = f"{self.backup.name} is used" if table else "the table begins empty"
            _log.warning("%s; %s; damaged bytes are kept aside", "; ".join(problems), instead)
        return table

    def keep_aside(self, path: Path, content: bytes) -> None:
        name = f"{path.name}.{zlib.crc32(content):08x}"
        aside = StoreLayout(self.path.parents[1]).aside / name
        if not aside.exists():
            self._disk.write_durably(aside, content)

    def write(self, content: bytes) -> bool:
        """Replace the content durably; return False if it is unchanged.

        :raises OSError: if it cannot be written; the old content stays.
        :raises ConfigError: if it exceeds `limits.MAX_CONFIG_BYTES`; the old content stays.
        """
        if content == self._written:
            return False
        if len(content) > limits.MAX_CONFIG_BYTES:
            raise ConfigError(
                f"{self.path} would have {len(content)} bytes, {limits.MAX_CONFIG_BYTES} allowed"
            )
        # Only a file known to be sound may replace a sound backup.
        sound = self._sound_content()
        if sound:
            self._disk.write_durably(self.backup, sound)
        self._disk.write_durably(self.path, content)
        self._remember(content)
        return True

    def _remember(self, content: bytes) -> None:
        self.mark = mark_of(content)
        self._written = content if len(content) <= _KEPT_BYTES else None

    def _sound_content(self) -> bytes | None:
        """Return the content written last; None if there is none, or if the file changed since."""
        if self._written is not None or self.mark is None:
            return self._written
        content = fs.read_bytes(self.path, self.mark.size + 1)
        return content if content and mark_of(content) == self.mark else None


def _nothing_in(path: Path) -> str:
    return f"{path} is missing or empty"


def encode_table(value: Any) -> bytes:
    """Encode a table. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    return json_dialect.dumps_file(value).encode("utf-8", "backslashreplace")


def _read_object(path: Path) -> tuple[dict[str, Any] | None, bytes, str]:
    """Return the members of a file, its bytes, and the damage; None if it is missing or damaged."""
    content = fs.read_bytes(path, limits.MAX_CONFIG_READ_BYTES + 1)
    if content is None or not content.strip():
        # RocketMQ creates a file before it writes it: an empty file is not damaged.
        return None, b"", ""
    if len(content) > limits.MAX_CONFIG_READ_BYTES:
        raise ConfigError(f"{path} has over {limits.MAX_CONFIG_READ_BYTES} bytes")
    try:
        value = json_dialect.loads_file(content, integer_keys=True)
    except ConfigError as error:
        return None, content, f"{path}: {error}"
    if not isinstance(value, dict):
        return None, content, f"{path}: not a JSON object"
    return value, content, ""


def damaged_tables(config: Path) -> Iterator[str]:
    for name in TABLES:
        path = config / name
        value, _, problem = _read_object(path)
        backup, _, _ = _read_object(path.with_name(f"{name}.bak"))
        if value is None and backup is not None and not problem:
            problem = _nothing_in(path)
        if problem:
            instead = "its .bak is used" if backup is not None else "there is no sound .bak"
            yield f"{problem}; {instead}"
        problem = read_changes(path).problem
        if problem:
            yield f"{changes_path(path)}: {problem}"


def table_of(value: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Parse each member of a JSON object with ``read``; leave out those that are None."""
    if not isinstance(value, dict):
        return {}
    pairs = ((str(name), read(inner)) for name, inner in value.items())
    return {name: inner for name, inner in pairs if inner is not None}
