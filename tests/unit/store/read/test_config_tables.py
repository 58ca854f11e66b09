"""The tables of ``config/``: file, backup and changes by one rule."""

import json

import pytest

from rocketlens.store.read.config_tables import (
    OFFSETS_FILE,
    OFFSETS_MEMBER,
    TOPICS_FILE,
    TOPICS_MEMBER,
    read_table,
)
from rocketlens.store.read.table_changes import (
    Change,
    changes_path,
    encode_change,
    encode_first,
    mark_of,
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
    assert table.problem == "there is no such file, or it is empty"


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
