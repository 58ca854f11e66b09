"""Reads the tables in ``config/*.json`` of a store, or in its RocksDB databases.

A table is a member of the file, with the changes made since it was written
(`rocketlens.store.read.table_changes`). If the file is missing, empty, damaged or without the
member, its ``.bak`` is used; if that is, too, the changes alone. A broker reads its tables by the
same rule. A broker with light topics (``enableLmq=true``) has ``lmqConsumerOffset.json`` instead of
``consumerOffset.json``. The offsets of light topics are a table of their own in it, without queue
ids.

Brokers without ``config/*.json`` have these tables in RocksDB:

===============================  ==================================  ===============================
directory                        of brokers with                     family: key, and value
===============================  ==================================  ===============================
``config/topics``                ``storeType=defaultRocksDB``        ``default``: a topic, JSON
``config/subscriptionGroups``    the same                            ``default``: a group, JSON
``config/consumerOffsets``       the same                            ``default``: TOPIC@GROUP,
                                                                     ``{"offsetTable":{0:5}}``
``config/metadata``              and                                 ``topic``,
                                 ``useSingleRocksDBForAllConfigs``   ``subscriptionGroup``,
                                                                     ``consumerOffset``: the same
``config/rdb``                   ``configManagerVersion=v2``         ``default``: all three, see
                                                                     `rocketlens.formats.rocksdb.config_key`
===============================  ==================================  ===============================

A broker whose settings were changed leaves files and databases that it no longer uses: the one
written last counts. Source: RocketMQ 5.5.0, ``org.apache.rocketmq.broker.config``.
"""

from collections.abc import Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import ConfigError
from rocketlens.formats.rocksdb import config_key
from rocketlens.model.text import json_dialect
from rocketlens.store import fs
from rocketlens.store.read import rocks
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
_VERSION_2: Final = "rdb"
_SINGLE: Final = "metadata"
_DEFAULT: Final = "default"


class DatabaseTable(NamedTuple):
    """The location of a table in each kind of database."""

    directory: str
    family: str
    number: int
    members: Mapping[str, int] = MappingProxyType({})
    """Members that are part of each value, and the number of their table in version 2."""


TOPICS: Final = DatabaseTable("topics", "topic", config_key.TOPICS)
GROUPS: Final = DatabaseTable("subscriptionGroups", "subscriptionGroup", config_key.GROUPS)
OFFSETS: Final = DatabaseTable(
    "consumerOffsets",
    "consumerOffset",
    config_key.OFFSETS,
    {"offsetTable": config_key.OFFSETS, "pullOffsetTable": config_key.PULL_OFFSETS},
)
IN_DATABASES: Final = {TOPICS_FILE: TOPICS, GROUPS_FILE: GROUPS, OFFSETS_FILE: OFFSETS}
"""The location in databases of each file's table."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class ConfigTable(NamedTuple):
    """One table."""

    entries: Mapping[str, Any]
    """By name, as in the JSON; not validated."""
    path: Path | None
    """The file, backup or database of the table; None if none has it."""
    problem: str = ""
    """The reason why the table is not from the file itself."""
    is_damaged: bool = False
    """The file, or the backup that was tried instead, exists but cannot be used."""
    former: frozenset[str] = frozenset()
    """Names removed lately: only the backup has them, or the changes remove them."""


class _Found(NamedTuple):
    entries: dict[str, Any] | None
    content: bytes
    problem: str
    is_damaged: bool


def read_table(store: Path, file: str, member: str) -> ConfigTable:
    """Read a table of a store, such as ``config/topics.json``; never raises."""
    path, table = store / file, IN_DATABASES.get(file)
    database = database_of(path, table)
    if table is not None and database is not None:
        return _read_database(database, table, member)
    light = store / _LIGHT_OFFSETS_FILE
    if file == OFFSETS_FILE and not path.exists() and light.exists():
        return _with_light_offsets(light, _read_file(light, member))
    return _read_file(path, member)


def files_of_table(store: Path, file: str) -> list[Path]:
    """Return the files of a table: at least one is changed, created or deleted with the table.

    A table in a database can change without any of these: see `is_in_database`.
    """
    path = store / file
    names = [path.name, f"{path.name}{BACKUP}"]
    if file == OFFSETS_FILE:
        names.append(Path(_LIGHT_OFFSETS_FILE).name)
    return [path.with_name(name) for name in names] + [
        directory / rocks.CURRENT for directory in _databases(path, IN_DATABASES.get(file))
    ]


def is_in_database(store: Path, file: str) -> bool:
    return database_of(store / file, IN_DATABASES.get(file)) is not None


def stamp_of(store: Path, file: str) -> Hashable:
    """Return a value that changes when a table is written again; None if it cannot be read."""
    path = store / file
    database = database_of(path, IN_DATABASES.get(file))
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
    main, backup = (_read(each, member) for each in (path, path.with_name(path.name + BACKUP)))
    used = backup if main.entries is None else main
    entries = {} if used.entries is None else used.entries
    problem = main.problem
    mark = None if main.entries is None else mark_of(main.content)
    try:
        changes = read_changes(path).since(mark)
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
    is_damaged = main.is_damaged or (used is backup and backup.is_damaged)
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
            return _Found(None, content, "the file is missing or empty", is_damaged=False)
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


def database_of(path: Path, table: DatabaseTable | None) -> Path | None:
    """Return the database that has a table instead of a file such as ``config/topics.json``.

    Return None if no database has it, or the file was written later. O(files of the databases).
    """
    directories = filter(rocks.is_database, _databases(path, table))
    written = {each: _written_ns(each) for each in directories}
    newest = max(written, key=lambda each: written[each], default=None)
    try:
        of_file = path.stat().st_mtime_ns
    except OSError:
        return newest
    return newest if newest is not None and written[newest] > of_file else None


def _databases(path: Path, table: DatabaseTable | None) -> list[Path]:
    if table is None:
        return []
    return [path.with_name(each) for each in (_SINGLE, table.directory, _VERSION_2)]


def entries_of(database: Path, table: DatabaseTable, member: str) -> dict[str, Any]:
    """Return the entries of a table by name, in the form of its file.

    :raises ConfigError: if a value is neither JSON nor an offset.
    """
    if database.name == _VERSION_2:
        return _of_version_2(database, table.members.get(member, table.number))
    family = table.family if database.name == _SINGLE else _DEFAULT
    values = {
        key.decode("utf-8", "replace"): json_dialect.loads_file(value)
        for key, value in rocks.table_in(database, family)
    }
    if member not in table.members:
        return values
    return {
        name: value[member]
        for name, value in values.items()
        if isinstance(value, dict) and member in value
    }


def _of_version_2(database: Path, number: int) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for content, value in rocks.table_in(database, _DEFAULT):
        key = config_key.decode(content)
        if key is None or key.table != number:
            continue
        is_offset = number in (config_key.OFFSETS, config_key.PULL_OFFSETS)
        if is_offset and len(value) == config_key.OFFSET_VALUE.size:
            offsets = entries.setdefault(f"{key.topic}@{key.name}", {})
            (offsets[str(key.queue_id)],) = config_key.OFFSET_VALUE.unpack(value)
        elif not is_offset and value.startswith(config_key.JSON_VALUE):
            entries[key.name] = json_dialect.loads_file(value[len(config_key.JSON_VALUE) :])
        else:
            raise ConfigError(f"the value of {key.name} has an unknown form")
    return entries


def _written_ns(directory: Path) -> int:
    """Return the time of the last write to a file of a database; 0 if none can be read."""
    written = 0
    with suppress(OSError):
        for entry in fs.entries(directory):
            written = max(written, entry.stat().st_mtime_ns)
    return written
