"""Key-value pairs by namespace and key, among them the order of topics.

The file is RocketMQ's ``kvConfig.json``: ``{"configTable":{namespace:{key:value}}}``, so each
server can use the other's file. A change is written before it is answered; a change that cannot be
written has no effect. A thread writes the file with all changes that arrived during the previous
write.

If the file is damaged, RocketMQ's backup is used, or the table is empty. A warning is logged, and
the damaged file is copied.
"""

import asyncio
import logging
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput, ConfigError, RocketLensError, StoreFailed
from rocketlens.model.text import json_dialect
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.store.disk import Disk
from rocketlens.store.fs import read_bytes

MAX_KV_BYTES: Final = 4 * 1024 * 1024
"""UTF-8 bytes of all key-value pairs of a name server. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.namesrv")

_DISK_THREAD: Final = WorkThreads(1, "kv")
"""Writes the file; other requests do not wait for it."""
_FIXED_BYTES: Final = 64
"""Maximum bytes around the namespaces in the file, and around a namespace or a value."""

Table = Mapping[str, Mapping[str, str]]
"""Never changed in place."""


class _Change(NamedTuple):
    """A change that waits to be written. ``value`` None: the key is deleted."""

    namespace: str
    key: str
    value: str | None
    done: asyncio.Future[None]


class KvConfig:
    """The values in memory and, with ``path``, in a file.

    :raises OSError: if the file exists and cannot be read.
    :raises ConfigError: if it exceeds the bound for reading.
    """

    def __init__(self, path: Path | None = None, disk: Disk | None = None) -> None:
        self.path: Final = path
        self._disk: Final = disk or Disk()
        self._table: Table = {} if path is None else _load(path, self._disk)
        self._bytes = _bytes_of(self._table)
        self._waiting: list[_Change] = []
        self._writing: asyncio.Task[None] | None = None

    async def put(self, namespace: str, key: str, value: str | None) -> None:
        """Set a value; None deletes it.

        :raises BadInput: if the table is full.
        :raises StoreFailed: if the file cannot be written; the old value stays.
        """
        loop = asyncio.get_running_loop()
        change = _Change(namespace, key, value, loop.create_future())
        self._waiting.append(change)
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        await asyncio.shield(change.done)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all values of a namespace; None if it has never had one.

        The mapping is never changed in place: the same object has the same values.
        """
        return self._table.get(namespace)

    async def close(self) -> None:
        """Wait until all requested changes are written, or have failed."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                changes, self._waiting = self._waiting, []
                await self._write(changes)
        finally:
            self._writing = None

    async def _write(self, changes: list[_Change]) -> None:
        table, size, made = self._apply(changes)
        failure: RocketLensError | None = None
        if made and table is not self._table:
            try:
                await self._save(table)
                self._table, self._bytes = table, size
            except OSError as error:
                failure = StoreFailed(f"{self.path} cannot be written: {error.strerror}")
            except Exception as error:  # noqa: BLE001 - raised in the waiting callers
                failure = StoreFailed(f"{self.path} cannot be written: {error!r}")
        for change in made:
            _end(change, failure)

    def _apply(self, changes: list[_Change]) -> tuple[Table, int, list[_Change]]:
        """Return the table after the changes, its size, and the changes that fit."""
        copies: dict[str, dict[str, str]] = {}
        size, made = self._bytes, []
        for change in changes:
            namespace, key, value, _ = change
            values = copies.get(namespace, self._table.get(namespace))
            added = _entry_bytes(key, value) - _entry_bytes(key, (values or {}).get(key))
            added += _entry_bytes(namespace, "") if values is None and value is not None else 0
            if added > 0 and size + added > MAX_KV_BYTES:
                problem = f"{size + added} bytes of values, {MAX_KV_BYTES} allowed"
                _end(change, BadInput(problem))
                continue
            size += added
            made.append(change)
            if value is None and (values is None or key not in values):
                continue
            if namespace not in copies:
                copies[namespace] = dict(values or {})
            if value is None:
                del copies[namespace][key]
            else:
                copies[namespace][key] = value
        return ({**self._table, **copies} if copies else self._table), size, made

    async def _save(self, table: Table) -> None:
        path, disk = self.path, self._disk
        if path is None:
            return

        def write() -> None:
            text = json_dialect.dumps_file({"configTable": table})
            disk.write_durably(path, text.encode("utf-8", "backslashreplace"))

        await in_thread(write, _DISK_THREAD)


def _end(change: _Change, failure: RocketLensError | None) -> None:
    if change.done.done():
        return
    if failure is None:
        change.done.set_result(None)
    else:
        change.done.set_exception(failure)
        # Mark it as retrieved: the caller may be gone.
        change.done.exception()


def _entry_bytes(key: str, value: str | None) -> int:
    """Return the maximum bytes of a value, or of a namespace's name, in the file."""
    if value is None:
        return 0
    quoted = json_dialect.quote(key) + json_dialect.quote(value)
    return len(quoted.encode("utf-8", "backslashreplace")) + _FIXED_BYTES


def _bytes_of(table: Table) -> int:
    return sum(
        _entry_bytes(namespace, "") + sum(_entry_bytes(key, value) for key, value in names.items())
        for namespace, names in table.items()
    )


def _load(path: Path, disk: Disk) -> Table:
    problems: list[str] = []
    backup = path.with_name(f"{path.name}.bak")
    table: Table = {}
    for each in (path, backup):
        content = read_bytes(each, limits.MAX_CONFIG_BYTES + 1)
        if not content or not content.strip():
            continue
        if len(content) > limits.MAX_CONFIG_BYTES:
            raise ConfigError(f"{each} is over {limits.MAX_CONFIG_BYTES} bytes")
        try:
            table = _parse(content)
            break
        except ConfigError as error:
            problems.append(f"{each}: {error}")
            disk.write_durably(
                each.with_name(f"{each.name}.damaged-{zlib.crc32(content):08x}"), content
            )
    if problems:
        instead = f"{backup.name} is used" if table else "there are no values"
        _log.warning("%s; %s; damaged files are copied", "; ".join(problems), instead)
    return table


def _parse(content: bytes) -> Table:
    top: Any = json_dialect.loads_file(content)
    table = top.get("configTable") if isinstance(top, dict) else None
    if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
        raise ConfigError("has no configTable of namespaces")
    return {
        str(namespace): {str(key): str(value) for key, value in names.items()}
        for namespace, names in table.items()
    }
