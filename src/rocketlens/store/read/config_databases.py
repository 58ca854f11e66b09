"""Tables of topics, groups and offsets in RocksDB, of brokers that have no ``config/*.json``.

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

A broker whose settings were changed leaves the files and databases that it does not use any more:
the one that was written last counts. Source: RocketMQ 5.5.0, ``org.apache.rocketmq.broker.config``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rocketlens.errors import ConfigError
from rocketlens.formats.rocksdb import config_key
from rocketlens.model.text import json_dialect
from rocketlens.store import fs
from rocketlens.store.read import rocks

_VERSION_2: Final = "rdb"
_SINGLE: Final = "metadata"
_DEFAULT: Final = "default"


class DatabaseTable(NamedTuple):
    """Where a table is in each kind of database."""

    directory: str
    family: str
    number: int
    members: Mapping[str, int] = MappingProxyType({})
    """Members that each value has by itself, and which table each of them is in version 2."""


TOPICS: Final = DatabaseTable("topics", "topic", config_key.TOPICS)
GROUPS: Final = DatabaseTable("subscriptionGroups", "subscriptionGroup", config_key.GROUPS)
OFFSETS: Final = DatabaseTable(
    "consumerOffsets",
    "consumerOffset",
    config_key.OFFSETS,
    {"offsetTable": config_key.OFFSETS, "pullOffsetTable": config_key.PULL_OFFSETS},
)


def database_of(path: Path, table: DatabaseTable) -> Path | None:
    """Return the database that has a table instead of a file such as ``config/topics.json``.

    None if there is none, or the file was written after it. O(files of the databases).
    """
    directories = [path.with_name(each) for each in (_SINGLE, table.directory, _VERSION_2)]
    written = {each: _written_ns(each) for each in directories if rocks.is_database(each)}
    newest = max(written, key=lambda each: written[each], default=None)
    try:
        of_file = path.stat().st_mtime_ns
    except OSError:
        return newest
    return newest if newest is not None and written[newest] > of_file else None


def entries_of(database: Path, table: DatabaseTable, member: str) -> dict[str, Any]:
    """Return a table of a database by name, as its file would have it.

    :raises OSError: if the database cannot be read.
    :raises ConfigError: if a value is not JSON, or no offset.
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
            raise ConfigError(f"the value of {key.name} is of a form that is not known")
    return entries


def _written_ns(directory: Path) -> int:
    """Return when a file of a database was written last."""
    return max(_times(directory), default=0)


def _times(directory: Path) -> Iterator[int]:
    try:
        for entry in fs.entries(directory):
            yield entry.stat().st_mtime_ns
    except OSError:
        return
