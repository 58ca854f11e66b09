"""Tables in RocksDB, of each kind of broker. Those of real ones are in tests/golden."""

import os

import pytest
from rocksdict import Options, Rdict

from rocketlens.errors import ConfigError
from rocketlens.formats.rocksdb.config_key import GROUPS, OFFSETS, PULL_OFFSETS, TOPICS, ConfigKey
from rocketlens.store.read import config_databases
from rocketlens.store.read.config_databases import database_of, entries_of
from rocketlens.store.read.config_tables import (
    OFFSETS_FILE,
    OFFSETS_MEMBER,
    TOPICS_FILE,
    TOPICS_MEMBER,
    read_table,
    stamp_of,
)

TABLES = (
    (config_databases.TOPICS, TOPICS_MEMBER),
    (config_databases.GROUPS, "subscriptionGroupTable"),
    (config_databases.OFFSETS, OFFSETS_MEMBER),
    (config_databases.OFFSETS, "pullOffsetTable"),
)
EXPECTED = [
    {"Orders": {"perm": 6}},
    {"g": {"retryMaxTimes": 16}},
    {"Orders@g": {"0": 5, "1": 7}},
    {"Orders@g": {"1": 3}},
]
VALUES = (
    ("topics", "topic", b"Orders", b'{"perm":6}'),
    ("subscriptionGroups", "subscriptionGroup", b"g", b'{"retryMaxTimes":16}'),
    (
        "consumerOffsets",
        "consumerOffset",
        b"Orders@g",
        b'{"offsetTable":{0:5,1:7},"pullOffsetTable":{1:3}}',
    ),
)


def open_database(path, *families):
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - it has no name
    options.create_missing_column_families(True)  # noqa: FBT003 - the same
    return Rdict(str(path), options, {name: Options(raw_mode=True) for name in families} or None)


def write_separate(config):
    for directory, _, name, value in VALUES:
        database = open_database(config / directory)
        database[name] = value
        database.close()


def write_single(config, perm=6):
    families = [family for _, family, _, _ in VALUES]
    database = open_database(config / "metadata", *families, "topicVersion")
    for _, family, name, value in VALUES:
        database.get_column_family(family)[name] = value.replace(b"6}", b"%d}" % perm, 1)
    database.get_column_family("topicVersion")[b"kvDataVersionKey"] = b'{"counter":3}'
    database.close()


def write_version_2(config):
    database = open_database(config / "rdb")
    database[ConfigKey(TOPICS, "Orders").encode()] = b'\x01{"perm":6}'
    database[ConfigKey(GROUPS, "g").encode()] = b'\x01{"retryMaxTimes":16}'
    database[b"\x01\x00\x03\x01data_version"] = bytes(24)
    for table, queue_id, offset in ((OFFSETS, 0, 5), (OFFSETS, 1, 7), (PULL_OFFSETS, 1, 3)):
        key = ConfigKey(table, "g", "Orders", queue_id).encode()
        database[key] = offset.to_bytes(8, "big")
    database.close()


def date(path, seconds):
    """Give a file, or all in a directory, a time."""
    for each in [path, *path.rglob("*")]:
        os.utime(each, (seconds, seconds))


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


@pytest.mark.parametrize("write", [write_separate, write_single, write_version_2])
def test_each_kind_of_database_has_the_tables_of_the_files(config, write):
    write(config)
    for (table, member), expected in zip(TABLES, EXPECTED, strict=True):
        database = database_of(config / "topics.json", table)
        assert entries_of(database, table, member) == expected
    assert read_table(config.parent, OFFSETS_FILE, OFFSETS_MEMBER).entries == EXPECTED[2]


def test_of_several_the_one_that_was_written_last_counts(config):
    write_separate(config)
    write_single(config, perm=4)
    path = config / "topics.json"
    path.write_text('{"topicConfigTable":{"Orders":{"perm":2}}}')

    def perm():
        return read_table(config.parent, TOPICS_FILE, TOPICS_MEMBER).entries["Orders"]["perm"]

    for times, expected in (
        ((100, 200, 300), 2),
        ((100, 300, 200), 4),
        ((300, 200, 100), 6),
        # As in a copy without times: a file was always believed first.
        ((100, 100, 100), 2),
    ):
        for each, seconds in zip(
            (config / "topics", config / "metadata", path), times, strict=True
        ):
            date(each, seconds)
        assert perm() == expected
    path.unlink()
    assert perm() == 4


def test_without_a_database_there_is_none(config):
    (config / "topics").mkdir()
    assert database_of(config / "topics.json", config_databases.TOPICS) is None


@pytest.mark.parametrize("value", [b"\x01{", b"\x02xyz", b""])
def test_a_value_that_is_no_json_is_an_error_and_its_table_is_damaged(config, value):
    database = open_database(config / "rdb")
    database[ConfigKey(TOPICS, "Orders").encode()] = value
    database[ConfigKey(OFFSETS, "g", "Orders", 0).encode()] = b"\x00"
    database.close()
    for table, member in (TABLES[0], TABLES[2]):
        with pytest.raises(ConfigError):
            entries_of(config / "rdb", table, member)
    table = read_table(config.parent, TOPICS_FILE, TOPICS_MEMBER)
    assert table.is_damaged
    assert table.problem.startswith("rdb: ")
    assert not table.entries


@pytest.mark.parametrize("write", [write_separate, write_single])
def test_the_stamp_of_a_table_is_another_one_when_its_database_was_written_and_not_when_it_was_read(
    tmp_path, write
):
    config = tmp_path / "config"
    config.mkdir()
    assert stamp_of(tmp_path, OFFSETS_FILE) is None
    write(config)
    stamp = stamp_of(tmp_path, OFFSETS_FILE)
    assert stamp is not None
    assert read_table(tmp_path, OFFSETS_FILE, OFFSETS_MEMBER).entries
    assert stamp_of(tmp_path, OFFSETS_FILE) == stamp
    write(config)
    assert stamp_of(tmp_path, OFFSETS_FILE) != stamp
