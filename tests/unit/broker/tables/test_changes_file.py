"""The file of changes is appended to in one thread, and cut in another, and loses nothing."""

import threading

import pytest

from rocketlens.broker.tables.config_table import ConfigFile
from rocketlens.broker.tables.entry_table import ChangesFile
from rocketlens.errors import ConfigError
from rocketlens.store.disk import Disk
from rocketlens.store.read.table_changes import (
    Change,
    Compaction,
    encode_change,
    mark_of,
    read_changes,
)

NEXT = b'{"a":2}'


def opened(directory):
    """The file of changes of a table that has been read."""
    table = ConfigFile(directory / "config" / "t.json", Disk())
    table.read()
    return table, ChangesFile(table, Disk(), read_changes(table.path))


def line(number):
    return encode_change(Change({"counter": number}, {f"N{number}": {}}, []))


def numbers(changes):
    return [change.data_version["counter"] for change in changes]


@pytest.fixture
def written(tmp_path):
    ConfigFile(tmp_path / "config" / "t.json", Disk()).write({"a": 1})
    return tmp_path


def test_lines_are_counted_as_they_are_after_a_start(written):
    _, changes = opened(written)
    assert (changes.size, changes.line_count, changes.is_broken) == (0, 0, False)
    for number in range(3):
        changes.append(line(number))
    table, again = opened(written)
    assert (again.size, again.line_count) == (changes.size, 3) == (changes.size, changes.line_count)
    assert numbers(read_changes(table.path).since(table.mark)) == [0, 1, 2]


def test_only_the_lines_that_the_new_file_lacks_are_left(written):
    table, changes = opened(written)
    for number in range(3):
        changes.append(line(number))
    assert changes.announce(Compaction(mark_of(NEXT), 2))
    changes.append(line(3))
    assert numbers(read_changes(table.path).since(mark_of(NEXT))) == [2, 3]
    table.write_content(NEXT)
    changes.remove_first(2)
    found = read_changes(table.path)
    assert found.mark == mark_of(NEXT)
    assert numbers(found.since(table.mark)) == [2, 3]
    assert (changes.size, changes.line_count) == (len(found.content), 2)
    changes.remove_first(2)
    assert not changes.path.exists()
    changes.append(line(4))
    assert numbers(read_changes(table.path).since(table.mark)) == [4]


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c + b"0", lambda c: c[9:]])
def test_nothing_is_appended_behind_damage_until_the_table_is_written(written, damage):
    table, changes = opened(written)
    changes.append(line(0))
    changes.path.write_bytes(damage(changes.path.read_bytes()))
    table, again = opened(written)
    assert again.is_broken
    assert not again.announce(Compaction(mark_of(NEXT), 0))
    table.write_content(NEXT)
    again.remove()
    again.append(line(1))
    assert numbers(read_changes(table.path).since(table.mark)) == [1]


def test_without_a_sound_table_there_is_nothing_to_append_to(tmp_path):
    _, changes = opened(tmp_path)
    with pytest.raises(ConfigError, match="no sound content"):
        changes.append(line(0))


def test_lines_appended_by_another_thread_are_kept_by_each_compaction(written):
    table, changes = opened(written)

    def append():
        for number in range(200):
            changes.append(line(number))

    appending = threading.Thread(target=append)
    appending.start()
    removed = compactions = 0
    while appending.is_alive() or not compactions:
        content = b'{"a":%d}' % compactions
        count = changes.line_count
        if count and changes.announce(Compaction(mark_of(content), count)):
            table.write_content(content)
            changes.remove_first(count)
            removed += count
            compactions += 1
    appending.join()
    assert numbers(read_changes(table.path).since(table.mark)) == list(range(removed, 200))
