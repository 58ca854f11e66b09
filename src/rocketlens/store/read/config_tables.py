"""The tables of ``config/*.json`` as every reader of a store sees them.

==========================================  ======================================================
the file                                    its table
==========================================  ======================================================
is whole                                    its member, with the changes made since it was written
                                            (`rocketlens.store.read.table_changes`)
is missing, empty, damaged, or lacks the    that of its ``.bak``, with the changes
member
and so is the ``.bak``                      the changes alone, or nothing
==========================================  ======================================================

A broker reads them by the same rule, so this is what it would start with. Tables in RocksDB are
in `rocketlens.store.read.config_databases`. A broker with
light topics (``enableLmq=true``) has ``lmqConsumerOffset.json`` instead of ``consumerOffset.json``,
in which offsets of light topics, without a queue, are a table of their own.
"""

from collections.abc import Hashable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import ConfigError
from rocketlens.model.text import json_dialect
from rocketlens.store import fs
from rocketlens.store.read import config_databases, rocks
from rocketlens.store.read.config_databases import DatabaseTable, database_of, entries_of
from rocketlens.store.read.table_changes import mark_of, read_changes

TOPICS_FILE: Final = "config/topics.json"
GROUPS_FILE: Final = "config/subscriptionGroup.json"
OFFSETS_FILE: Final = "config/consumerOffset.json"
TOPICS_MEMBER: Final = "topicConfigTable"
GROUPS_MEMBER: Final = "subscriptionGroupTable"
OFFSETS_MEMBER: Final = "offsetTable"
_LIGHT_OFFSETS_FILE: Final = "config/lmqConsumerOffset.json"
_LIGHT_OFFSETS_MEMBER: Final = "lmqOffsetTable"
BACKUP: Final = ".bak"
_IN_DATABASES: Final = {
    TOPICS_FILE: config_databases.TOPICS,
    GROUPS_FILE: config_databases.GROUPS,
    OFFSETS_FILE: config_databases.OFFSETS,
}
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class ConfigTable(NamedTuple):
    """One table."""

    entries: Mapping[str, Any]
    """By name, as they are in JSON: nothing about them is checked."""
    path: Path | None
    """The file or backup that it is from; None if neither has it."""
    problem: str = ""
    """Why it is not from the file itself."""
    is_damaged: bool = False
    """The file, or the backup that was tried for it, is there and cannot be used."""
    former: frozenset[str] = frozenset()
    """Names that were removed lately: only the backup has them, or the changes remove them."""


class _Found(NamedTuple):
    entries: dict[str, Any] | None
    content: bytes
    problem: str
    is_damaged: bool


def read_table(store: Path, file: str, member: str) -> ConfigTable:
    """Read a table of a store, such as ``config/topics.json``; never raises."""
    path = store / file
    in_databases = _IN_DATABASES.get(file)
    database = None if in_databases is None else database_of(path, in_databases)
    if in_databases is not None and database is not None:
        return _read_database(database, in_databases, member)
    light = store / _LIGHT_OFFSETS_FILE
    if file == OFFSETS_FILE and not path.exists() and light.exists():
        return _with_light_offsets(light, _read_file(light, member))
    return _read_file(path, member)


def stamp_of(store: Path, file: str) -> Hashable:
    """Return what is another value when a table was written again; None if that cannot be told."""
    path = store / file
    in_databases = _IN_DATABASES.get(file)
    database = None if in_databases is None else database_of(path, in_databases)
    try:
        if database is not None:
            return database, rocks.files_of(database)
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _with_light_offsets(path: Path, table: ConfigTable) -> ConfigTable:
    of_light_topics = _read(path, _LIGHT_OFFSETS_MEMBER).entries or {}
    in_queue_0 = {name: {"0": offset} for name, offset in of_light_topics.items()}
    return table._replace(entries={**in_queue_0, **table.entries})


def _read_file(path: Path, member: str) -> ConfigTable:
    found, backup = (_read(each, member) for each in (path, path.with_name(path.name + BACKUP)))
    used = backup if found.entries is None else found
    entries = {} if used.entries is None else used.entries
    problem = found.problem
    try:
        changes = read_changes(path).since(mark_of(found.content) if found.entries else None)
    except OSError as error:
        changes, problem = (), problem or f"its changes cannot be read: {error.strerror or error}"
    removed = set(backup.entries or ())
    for change in changes or ():
        entries.update(change.put)
        for name in change.remove:
            entries.pop(name, None)
            removed.add(name)
    source = None if used.entries is None else path
    if source is not None and used is backup:
        source = path.with_name(path.name + BACKUP)
    is_damaged = found.is_damaged or (used is backup and backup.is_damaged)
    return ConfigTable(entries, source, problem, is_damaged, frozenset(removed.difference(entries)))


def _read_database(database: Path, table: DatabaseTable, member: str) -> ConfigTable:
    if not rocks.is_readable():
        return ConfigTable(_NOTHING, None, f"it is {rocks.needed()}", is_damaged=True)
    try:
        entries = entries_of(database, table, member)
    except (OSError, ConfigError) as error:
        return ConfigTable(_NOTHING, None, f"{database.name}: {error}", is_damaged=True)
    return ConfigTable(entries, database)


def _read(path: Path, member: str) -> _Found:
    content = b""
    try:
        content = fs.read_bytes(path, limits.MAX_CONFIG_READ_BYTES) or b""
        if not content.strip():
            # RocketMQ creates a file before it writes it.
            return _Found(None, content, "there is no such file, or it is empty", is_damaged=False)
        value: Any = json_dialect.loads_file(content)
    except ConfigError as error:
        return _Found(None, content, f"it cannot be read: {error}", is_damaged=True)
    except OSError as error:
        return _Found(None, content, error.strerror or str(error), is_damaged=True)
    if not isinstance(value, dict):
        return _Found(None, content, "it is not a JSON object", is_damaged=True)
    if member not in value:
        return _Found(None, content, f"it has no {member}", is_damaged=False)
    table = value[member]
    if not isinstance(table, dict):
        return _Found(None, content, f"its {member} is not a JSON object", is_damaged=True)
    return _Found(
        {str(name): entry for name, entry in table.items()}, content, "", is_damaged=False
    )
