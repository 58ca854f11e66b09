"""A large table costs what changed in it, and loses nothing to any end of its broker."""

import errno
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.broker.tables import entry_table
from rocketlens.broker.tables.config_table import damaged_tables
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.model.text import json_dialect
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read import table_changes
from rocketlens.store.read.former_topics import configured_topics
from tests.support.effort import sized
from tests.support.written_stores import Clock


class QuickDisk(Disk):
    """Syncs nothing: as good while the machine runs."""

    def sync_file(self, path):
        pass

    def sync_directory(self, directory):
        pass


class CountingDisk(QuickDisk):
    """Counts what is written, by name; ``failures`` appends fail after half of their bytes."""

    def __init__(self):
        self.written = []
        self.failures = 0

    def write_durably(self, path, content):
        self.written.append(path.name)
        super().write_durably(path, content)

    def append_durably(self, path, content):
        self.written.append("+")
        if self.failures:
            self.failures -= 1
            super().append_durably(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "full", str(path))
        super().append_durably(path, content)


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch):
    monkeypatch.setattr(entry_table, "WRITTEN_WHOLE_BYTES", 0)


def large_table(directory, count=100, disk=None, clock=None, kind=TopicTable):
    """A table of T0, T1, …, in its file."""
    table = kind(StoreLayout(directory), disk or QuickDisk(), clock or Clock())
    if kind is TopicTable:
        table.put(*(StoredTopic(f"T{number}") for number in range(count)))
    else:
        table.put_many({f"T{number}": {} for number in range(count)})
    table.save()
    return table


def again(directory):
    return TopicTable(StoreLayout(directory), QuickDisk(), Clock())


def test_entries_that_were_read_count_once_when_they_are_replaced(tmp_path):
    large_table(tmp_path)
    table = again(tmp_path)
    read_bytes = table._bytes
    table.put(*table.entries.values())
    assert table._bytes == read_bytes
    for name in list(table.entries):
        table.remove(name)
    assert table._bytes < read_bytes / 10


def write(table):
    """Do what a broker does to save a table."""
    table.is_changed = False
    table.snapshot()()
    compact = table.compaction()
    if compact is not None:
        compact()


@pytest.mark.parametrize("kind", [TopicTable, GroupTable])
def test_a_change_of_a_large_table_is_durable_without_writing_the_table(tmp_path, kind):
    disk = CountingDisk()
    table = large_table(tmp_path, disk=disk, kind=kind)
    disk.written.clear()
    for name in ("007", "New", "T5"):
        table.put_all({name: table.entries["T0"]})
        write(table)
    table.remove("T7")
    write(table)
    assert disk.written == [f"{kind.FILE}.changes", "+", "+", "+"]
    # The table's file does not have it: it is written later, if only when the broker stops.
    assert table.is_changed
    killed = kind(StoreLayout(tmp_path), Disk(), Clock())
    assert killed.entries == table.entries
    assert killed.data_version.encode() == table.data_version.encode()
    assert {"007", "New"} < killed.entries.keys()
    assert "T7" not in killed.entries
    table.save()
    assert not (tmp_path / "config" / f"{kind.FILE}.changes").exists()
    assert json.loads((tmp_path / "config" / kind.FILE).read_text())[kind.MEMBER].keys() == (
        table.entries.keys()
    )


def test_a_large_table_is_written_whole_when_it_is_quiet_and_when_much_has_changed(tmp_path):
    disk, clock = CountingDisk(), Clock()
    table = large_table(tmp_path, disk=disk, clock=clock)
    table.put(StoredTopic("New"))
    write(table)
    disk.written.clear()
    write(table)
    assert disk.written == []
    assert table.is_changed
    clock.now_ms += entry_table.QUIET_MS
    write(table)
    assert disk.written == ["+", "topics.json.bak", "topics.json"]
    assert not (tmp_path / "config" / "topics.json.changes").exists()
    write(table)
    assert not table.is_changed
    disk.written.clear()
    for number in range(100):
        table.put(StoredTopic(f"N{number}"))
        write(table)
    assert 0 < disk.written.count("topics.json") < 10
    assert again(tmp_path).topics == table.topics


def test_topics_that_only_the_changes_have_are_topics_for_recovery_and_queries(tmp_path):
    table = large_table(tmp_path)
    table.put(StoredTopic("New"))
    write(table)
    assert "New" in configured_topics(StoreLayout(tmp_path))


def test_changes_cut_anywhere_are_those_that_were_acknowledged(tmp_path, caplog):
    table = large_table(tmp_path)
    path = tmp_path / "config" / "topics.json.changes"
    sizes = []
    for number in range(3):
        table.put(StoredTopic(f"N{number}"))
        write(table)
        sizes.append(path.stat().st_size)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for size in range(len(content)):
        changes = table_changes.decode(content[:size])
        found = {name for change in changes.changes for name in change.put}
        assert found == {f"N{number}" for number in range(3) if sizes[number] <= size}
        # The first line was there whole before anything was acknowledged.
        assert bool(changes.problem) == (0 < size < first)
    path.write_bytes(content[:-1])
    found = again(tmp_path)
    assert {"N0", "N1"} < found.topics.keys()
    assert "N2" not in found.topics
    assert not caplog.messages
    # What is appended behind a line that was cut could not be read.
    found.put(StoredTopic("N3"))
    write(found)
    assert "N3" in again(tmp_path).topics


def test_a_damaged_change_costs_itself_and_is_told(tmp_path, caplog):
    table = large_table(tmp_path)
    path = tmp_path / "config" / "topics.json.changes"
    for number in range(3):
        table.put(StoredTopic(f"N{number}"))
        write(table)
    path.write_bytes(path.read_bytes().replace(b'"topicName":"N1"', b'"topicName":"N9"'))
    (told,) = damaged_tables(tmp_path / "config")
    assert "1 of its 3 lines are damaged" in told
    found = again(tmp_path)
    assert {"N0", "N2"} < found.topics.keys()
    assert "N1" not in found.topics
    assert "1 of its 3 lines are damaged" in caplog.text
    assert len(list((tmp_path / "rocketlens" / "aside").iterdir())) == 1
    write(found)
    assert not path.exists()
    assert again(tmp_path).topics == found.topics


def test_what_another_program_wrote_since_counts_and_what_it_lacks_is_told(tmp_path, caplog):
    table = large_table(tmp_path)
    table.put(StoredTopic("New"))
    write(table)
    file = tmp_path / "config" / "topics.json"
    file.write_text(file.read_text().replace("T1", "X1"))
    found = again(tmp_path)
    assert "X1" in found.topics
    assert "New" not in found.topics
    assert "was written by another program, and lacks 1 that were made before: 'New'" in caplog.text


def test_changes_that_the_file_has_already_are_no_matter(tmp_path, caplog):
    table = large_table(tmp_path)
    table.put(StoredTopic("New"))
    table.remove("T3")
    write(table)
    path = tmp_path / "config" / "topics.json.changes"
    content = path.read_bytes()
    table.save()
    # As if the broker was killed before it deleted them.
    path.write_bytes(content)
    assert again(tmp_path).topics == table.topics
    assert not caplog.messages


def test_after_a_change_that_could_not_be_appended_the_table_is_written_whole(tmp_path):
    disk = CountingDisk()
    table = large_table(tmp_path, disk=disk)
    for name in ("A", "B"):
        table.put(StoredTopic(name))
        if name == "B":
            disk.failures = 1
            with pytest.raises(OSError, match="full"):
                write(table)
        else:
            write(table)
    assert "A" in again(tmp_path).topics
    disk.written.clear()
    write(table)
    assert disk.written == ["topics.json.bak", "topics.json"]
    assert {"A", "B"} < again(tmp_path).topics.keys()


class MeanwhileDisk(QuickDisk):
    """Calls ``meanwhile`` before and after each change of a file; the call ``failing`` fails."""

    def __init__(self):
        self.meanwhile = lambda: None
        self.calls = 0
        self.failing = None

    def _do(self, change, *arguments):
        self.calls += 1
        if self.calls == self.failing:
            raise OSError(errno.EIO, "broken", str(arguments[0]))
        self.meanwhile()
        change(*arguments)
        self.meanwhile()

    def write_durably(self, path, content):
        self._do(super().write_durably, path, content)

    def append_durably(self, path, content):
        self._do(super().append_durably, path, content)

    def remove_file(self, path):
        self._do(super().remove_file, path)


def compacted_beside_changes(directory, failing=None):
    """Compact a table while topics are made and removed, and look at each state of its files.

    Return the disk, and how many topics were made during it.
    """
    disk, clock = MeanwhileDisk(), Clock()
    table = large_table(directory, disk=disk, clock=clock)
    names = []

    def change():
        meanwhile, disk.meanwhile = disk.meanwhile, lambda: None
        names.append(f"N{len(names)}")
        table.put(StoredTopic(names[-1]))
        table.remove(f"T{len(names)}")
        table.is_changed = False
        try:
            table.snapshot()()
        except OSError:
            assert failing is not None
        else:
            assert again(directory).topics == table.topics
            assert again(directory).data_version.encode() == table.data_version.encode()
        disk.meanwhile = meanwhile

    def change_unless_it_would_wait():
        # Another thread would wait for these locks; this one cannot.
        if not (table._changes.is_broken or table._changes._lock.locked()):
            change()
        elif failing is None:
            assert again(directory).topics == table.topics

    change()
    clock.now_ms += entry_table.QUIET_MS
    compact = table.compaction()
    before = len(names)
    change()
    disk.calls, disk.failing, disk.meanwhile = 0, failing, change_unless_it_would_wait
    try:
        compact()
    except OSError:
        assert failing is not None
    disk.meanwhile = lambda: None
    disk.failing = None
    made = len(names) - before
    table.is_changed = False
    table.snapshot()()
    assert again(directory).topics == table.topics
    return disk, made


def test_changes_are_durable_at_each_moment_of_a_compaction(tmp_path, caplog):
    disk, made = compacted_beside_changes(tmp_path)
    assert made >= 3
    assert disk.calls >= 4
    # The table's file has what it had when it was copied, and the other file what came since.
    found = table_changes.read_changes(tmp_path / "config" / "topics.json")
    assert [next(iter(change.put)) for change in found.changes] == [
        f"N{number}" for number in range(1, made + 1)
    ]
    assert not caplog.messages


@pytest.mark.parametrize("failing", range(1, 16))
def test_a_compaction_may_fail_at_each_call_of_the_disk(tmp_path, failing):
    disk, _ = compacted_beside_changes(tmp_path, failing)
    assert disk.calls >= min(failing, 4)


def test_a_table_written_whole_is_not_replaced_by_an_older_compaction(tmp_path):
    clock = Clock()
    table = large_table(tmp_path, clock=clock)
    table.put(StoredTopic("A"))
    write(table)
    clock.now_ms += entry_table.QUIET_MS
    compact = table.compaction()
    table.put(StoredTopic("B"))
    table.save()
    compact()
    assert "B" in again(tmp_path).topics


def test_after_a_line_that_was_cut_no_compaction_is_announced(tmp_path):
    disk, clock = CountingDisk(), Clock()
    table = large_table(tmp_path, disk=disk, clock=clock)
    table.put(StoredTopic("A"))
    write(table)
    clock.now_ms += entry_table.QUIET_MS
    compact = table.compaction()
    table.put(StoredTopic("B"))
    disk.failures = 1
    with pytest.raises(OSError, match="full"):
        write(table)
    content = (tmp_path / "config" / "topics.json.changes").read_bytes()
    compact()
    assert (tmp_path / "config" / "topics.json.changes").read_bytes() == content
    write(table)
    assert again(tmp_path).topics == table.topics


names = st.text(st.sampled_from("%|aZ09_-"), min_size=1, max_size=4) | st.sampled_from(
    ["007", "-0", "-01", "1e5", "null", "true"]
)


@settings(max_examples=sized(20, 50))
@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "save", "start"]), names)))
def test_a_table_is_what_was_put_whatever_was_written_of_it_when(steps):
    with TemporaryDirectory() as directory:
        table = large_table(Path(directory), 20)
        expected = dict(table.topics)
        for step, name in steps:
            if step == "put":
                expected[name] = StoredTopic(name, len(expected))
                table.put(expected[name])
                write(table)
            elif step == "remove":
                expected.pop(name, None)
                table.remove(name)
                write(table)
            elif step == "save":
                table.save()
            else:
                version = table.data_version.encode()
                table = again(Path(directory))
                assert table.data_version.encode() == version
            assert table.topics == expected
        assert again(Path(directory)).topics == expected


@settings(max_examples=sized(20, 50))
@given(
    names,
    st.builds(
        StoredTopic,
        names | st.text(),
        st.integers(),
        st.integers(),
        st.integers(0, 7),
        st.sampled_from(["SINGLE_TAG", 'M"', "\xe9"]),
        st.integers(),
        st.booleans(),
    ),
)
def test_a_topic_is_written_as_any_other_entry_is(name, topic):
    with TemporaryDirectory() as directory:
        table = TopicTable(StoreLayout(Path(directory)), Disk(), Clock())
        expected = json_dialect.dumps_file({"a": {name: topic.encode()}})
        text = table.entry_text(name, topic).decode("utf-8", "surrogatepass")
        assert f'{{\n\t"a":{{\n{text}\n\t}}\n}}' == expected
