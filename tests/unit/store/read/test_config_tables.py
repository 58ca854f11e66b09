"""The tables of ``config/``: files, backups, files of changes, and RocksDB.

Tables in RocksDB, of each kind of broker. Those of real ones are in tests/golden.
"""

import itertools
import json
import os
import zlib

import pytest
from rocksdict import Options, Rdict

from rocketlens.errors import ConfigError
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.formats.rocksdb.config_key import GROUPS, OFFSETS, PULL_OFFSETS, TOPICS, ConfigKey
from rocketlens.formats.rocksdb.queue_key import QueueKey
from rocketlens.limits import MAX_QUEUE_OFFSET
from rocketlens.store.read import config_tables
from rocketlens.store.read.batchqueue import FileQueues
from rocketlens.store.read.config_tables import (
    OFFSETS_FILE,
    OFFSETS_MEMBER,
    TOPICS_FILE,
    TOPICS_MEMBER,
    database_of,
    entries_of,
    read_table,
    stamp_of,
)
from rocketlens.store.read.consumequeue import QueueName
from rocketlens.store.read.rocks import RocksDatabase, RocksQueues, queues_in, table_in
from rocketlens.store.read.table_changes import (
    Change,
    Changes,
    TableMark,
    changes_path,
    decode,
    mark_of,
    read_changes,
)
from tests.support.changes_files import encode_change, encode_compaction, encode_first

TABLES = (
    (config_tables.TOPICS, TOPICS_MEMBER),
    (config_tables.GROUPS, "subscriptionGroupTable"),
    (config_tables.OFFSETS, OFFSETS_MEMBER),
    (config_tables.OFFSETS, "pullOffsetTable"),
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


@pytest.fixture
def store(tmp_path):
    (tmp_path / "config").mkdir()
    return tmp_path


def encoded(*names):
    return json.dumps({TOPICS_MEMBER: {name: {"readQueueNums": 4} for name in names}}).encode()


def write(store, content, backup=None, changes=(), of=None):
    path = store / TOPICS_FILE
    if content is not None:
        path.write_bytes(content)
    if backup is not None:
        path.with_name("topics.json.bak").write_bytes(backup)
    if changes:
        lines = [encode_first(mark_of(content if of is None else of)), *map(encode_change, changes)]
        changes_path(path).write_bytes(b"".join(lines))


def read(store):
    return read_table(store, TOPICS_FILE, TOPICS_MEMBER)


def test_a_whole_file_is_the_table_and_names_of_the_backup_alone_are_former(store):
    write(store, encoded("A", "B"), encoded("A", "Gone"))
    table = read(store)
    assert set(table.entries) == {"A", "B"}
    assert (table.path, table.problem) == (store / TOPICS_FILE, "")
    assert table.former == {"Gone"}


@pytest.mark.parametrize(
    "content", [None, b"", b" \n", b"{", b"[]", b"{}", b'{"topicConfigTable":7}']
)
def test_the_backup_is_used_where_the_file_cannot_be(store, content):
    write(store, content, encoded("A"))
    table = read(store)
    assert set(table.entries) == {"A"}
    assert table.path == store / "config" / "topics.json.bak"
    assert table.problem
    assert table.is_damaged == (content not in (None, b"", b" \n", b"{}"))


def test_a_store_without_configuration_has_an_empty_table_and_says_so(store):
    table = read(store)
    assert (dict(table.entries), table.path, table.is_damaged) == ({}, None, False)
    assert table.problem == "the file is missing or empty"


def test_a_file_that_cannot_be_opened_is_damaged(store):
    (store / TOPICS_FILE).symlink_to("topics.json")
    table = read(store)
    assert table.is_damaged
    assert "symbolic links" in table.problem


def test_changes_of_the_file_are_made_in_their_order(store):
    changes = [
        Change(None, {"New": {}, "Old": {}}, ["A"]),
        Change(None, {"A": {"readQueueNums": 9}}, ["Old"]),
    ]
    write(store, encoded("A", "B"), changes=changes)
    table = read(store)
    assert {name: entry.get("readQueueNums") for name, entry in table.entries.items()} == {
        "A": 9,
        "B": 4,
        "New": None,
    }
    assert table.former == {"Old"}


def test_changes_of_another_file_are_not_made(store):
    write(store, encoded("A"), changes=[Change(None, {"New": {}}, [])], of=encoded("Other"))
    assert set(read(store).entries) == {"A"}


def test_changes_of_a_damaged_file_are_made_to_the_backup(store):
    write(store, b"{", encoded("A"), changes=[Change(None, {"New": {}}, [])], of=encoded("A", "B"))
    assert set(read(store).entries) == {"A", "New"}


def test_a_broker_with_light_topics_has_its_offsets_in_a_file_of_another_name(store):
    path = store / "config" / "lmqConsumerOffset.json"
    offsets = {"offsetTable": {"Orders@g": {"1": 7}}, "lmqOffsetTable": {"%LMQ%a@g": 5}}
    path.write_text(json.dumps(offsets))
    table = read_table(store, OFFSETS_FILE, OFFSETS_MEMBER)
    assert table.entries == {"Orders@g": {"1": 7}, "%LMQ%a@g": {"0": 5}}
    assert (table.path, table.problem) == (path, "")
    path.with_name("consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{"1":9}}}')
    assert read_table(store, OFFSETS_FILE, OFFSETS_MEMBER).entries == {"Orders@g": {"1": 9}}


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
    assert database_of(config / "topics.json", config_tables.TOPICS) is None


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


def test_a_file_with_an_empty_table_is_whole_and_takes_its_own_changes_only(store):
    write(store, encoded(), changes=[Change(None, {"Gone": {}}, [])], of=encoded("Other"))
    assert read(store).entries == {}
    write(store, encoded(), changes=[Change(None, {"New": {}}, [])])
    assert read(store).entries == {"New": {}}


MARK = mark_of(b"{}")
CHANGES = [
    Change({"counter": 1}, {"T": {"perm": 6}, "\u6807": {"a": [1, None]}}, []),
    Change({"counter": 2}, {}, ["T", "007"]),
]


def content_of(changes=CHANGES, mark=MARK):
    return encode_first(mark) + b"".join(map(encode_change, changes))


def test_changes_are_read_as_they_were_written():
    read = decode(content_of())
    assert (read.since(MARK), read.problem) == (CHANGES, "")


def test_a_mark_differs_with_every_content():
    assert mark_of(b"{}") == TableMark(2, zlib.crc32(b"{}"))
    assert len({mark_of(content) for content in (b"", b"{}", b"[]", b"{} ")}) == 4


def test_a_last_line_cut_anywhere_was_never_acknowledged_and_is_left_out():
    content = content_of()
    start = len(content_of(CHANGES[:1]))
    for end in range(start, len(content)):
        read = decode(content[:end])
        assert (read.changes, read.problem) == (CHANGES[:1], "")


def test_a_changed_byte_costs_its_own_line_alone_and_is_reported():
    content = content_of()
    first, second = len(encode_first(MARK)), len(content_of(CHANGES[:1]))
    for at, bit in itertools.product(range(first, second - 1), (1, 32)):
        hurt = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        read = decode(hurt)
        assert (read.changes, read.problem) == (CHANGES[1:], "1 of its 2 lines are damaged")


LATER = mark_of(b"later")


def compacted(lines=1):
    """A file of two changes, of which another file of the table has the first."""
    announced = encode_compaction(LATER, lines)
    return content_of(CHANGES[:1]) + announced + encode_change(CHANGES[1])


def test_a_file_announced_lacks_the_changes_behind_those_it_has():
    read = decode(compacted())
    assert read.problem == ""
    assert read.since(MARK) == CHANGES
    assert read.since(LATER) == CHANGES[1:]
    assert read.since(mark_of(b"other")) is None
    # A damaged table begins with its backup, which may be any of them.
    assert read.since(None) == CHANGES
    assert decode(compacted(lines=0)).since(LATER) == CHANGES
    assert decode(compacted(lines=99)).since(LATER) == CHANGES[1:]


def test_an_announcement_counts_lines_that_are_damaged():
    content = compacted().replace(b"perm", b"wrong")
    read = decode(content)
    assert (read.problem, read.since(LATER)) == ("1 of its 3 lines are damaged", CHANGES[1:])


def test_a_changed_byte_of_an_announcement_is_damage():
    content = compacted()
    first = len(content_of(CHANGES[:1]))
    end = content.index(b"\n", first)
    for at, bit in itertools.product(range(first, end), (1, 32)):
        hurt = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        read = decode(hurt)
        assert (read.since(MARK), read.since(LATER)) == (CHANGES, None)
        assert read.problem == "1 of its 3 lines are damaged"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"rocketlens-changes 2 2 00000000",
        b"rocketlens-changes 1 2",
        b"rocketlens-changes 1 x y",
    ],
)
def test_without_its_first_line_no_change_is_believed(first):
    read = decode(first + b"\n" + encode_change(CHANGES[0]))
    assert (read.since(MARK), list(read.changes)) == (None, [])
    assert "first line" in read.problem


def test_changes_stand_beside_their_table_and_are_none_without_a_file(tmp_path):
    table = tmp_path / "topics.json"
    assert read_changes(table) == Changes()
    assert changes_path(table) == tmp_path / "topics.json.changes"
    changes_path(table).write_bytes(content_of())
    assert read_changes(table).changes == CHANGES


def entry_of(number):
    return QueueEntry(number % 1000 * 100, 100, 7)


class Writer:
    """A broker that writes entries: its database is open all the time."""

    def __init__(self, directory):
        self.database = Rdict(str(directory), Options(raw_mode=True))

    def put(self, topic, queue_id, *queue_offsets):
        for number in queue_offsets:
            key = QueueKey(topic, queue_id, number).encode()
            self.database[key] = entry_of(number).encode() + bytes(8)
        self.database.flush_wal(sync=True)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "consumequeue"


@pytest.fixture
def writer(directory):
    writer = Writer(directory)
    yield writer
    writer.database.close()


def test_queues_are_listed_and_read_as_those_in_files(writer, directory):
    writer.put("Orders", 1, *range(3, 9))
    writer.put("Orders", 10, 0)
    writer.put("%RETRY%group", 0, 0, 1)
    queues = queues_in(directory)
    assert isinstance(queues, RocksQueues)
    assert queues.topics() == ["%RETRY%group", "Orders"]
    assert queues.names() == [
        QueueName("%RETRY%group", 0),
        QueueName("Orders", 1),
        QueueName("Orders", 10),
    ]
    queue = queues.queue("Orders", 1)
    assert queue.max_offset == 9
    assert [queue.entry(number) for number in (2, 3, 8, 9, -1)] == [
        *(None, entry_of(3), entry_of(8)),
        *(None, None),
    ]
    assert list(queue.entries()) == [(number, entry_of(number)) for number in range(3, 9)]
    assert queue.first_where(lambda entry: entry.physical_offset >= 500) == 5
    assert queue.first_kept(450) == 5
    assert queue.last_entry() == entry_of(8)
    assert queues.queue("Payments", 0).max_offset == 0
    assert queues.queue("Payments", 0).last_entry() is None
    assert queues.queue("../Orders", 0) is None
    queues.close()


def test_a_hole_between_entries_is_no_entry(writer, directory):
    writer.put("Orders", 0, 2, 3, 6)
    queues = queues_in(directory)
    queue = queues.queue("Orders", 0)
    assert [number for number, _ in queue.entries()] == [2, 3, 6]


def test_an_offset_that_is_damage_takes_no_memory(writer, directory):
    far = MAX_QUEUE_OFFSET - 1
    writer.put("Orders", 0, 0, 1, far)
    queues = queues_in(directory)
    queue = queues.queue("Orders", 0)
    assert [(first, len(content)) for first, content in queue.contents()] == [(0, 40), (far, 20)]
    assert queue.max_offset == far + 1
    assert queue.entry(1) == entry_of(1)


def test_a_name_that_is_no_text_is_read_all_the_same(tmp_path):
    database = Rdict(str(tmp_path / "topics"), Options(raw_mode=True))
    database[b"Ord\xffers"] = b"{}"
    database.close()
    assert table_in(tmp_path / "topics") == [(b"Ord\xffers", b"{}")]
    assert table_in(tmp_path / "topics", "none") == []


def test_what_is_written_meanwhile_is_seen_at_the_next_look(writer, directory):
    writer.put("Orders", 0, 0)
    queues = queues_in(directory)
    assert queues.queue("Orders", 0).max_offset == 1
    writer.put("Orders", 0, 1, 2)
    writer.put("Payments", 0, 0)
    assert queues.queue("Orders", 0).max_offset == 1
    queues.invalidate()
    assert queues.queue("Orders", 0).max_offset == 3
    assert queues.topics() == ["Orders", "Payments"]
    writer.database.flush()
    writer.database.compact_range(None, None)
    queues.invalidate()
    assert queues.queue("Orders", 0).entry(2) == entry_of(2)


def test_nothing_is_written_into_the_directory(writer, directory):
    writer.put("Orders", 0, *range(10))
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    queues = queues_in(directory)
    assert queues.queue("Orders", 0).max_offset == 10
    queues.close()
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_a_database_that_cannot_be_read_is_an_os_error_with_its_path(writer, directory):
    writer.put("Orders", 0, 0)
    (directory / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    queues = queues_in(directory)
    with pytest.raises(OSError, match="RocksDB") as raised:
        queues.queue("Orders", 0)
    assert raised.value.filename == str(directory)
    assert queues.topics() == []
    assert "RocksDB" in queues.unlisted
    with pytest.raises(OSError, match="RocksDB"):
        table_in(directory)


def test_a_closed_database_is_an_os_error(writer, directory):
    database = RocksDatabase(directory)
    database.close()
    with pytest.raises(OSError, match="closed"):
        database.get(b"x")


def test_queues_in_files_are_no_database(directory):
    directory.mkdir()
    assert type(queues_in(directory)) is FileQueues
