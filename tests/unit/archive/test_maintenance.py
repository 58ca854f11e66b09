"""Closed days become few files, old days leave, and what nothing needs is deleted: at any time."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

import rocketlens
from rocketlens.archive import files, maintenance
from rocketlens.archive.files import TableFile
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import _merge_tasks, compact, expire, vacuum, write_merged
from rocketlens.archive.tables import key_hash
from rocketlens.errors import ArchiveError
from tests.support.archives import (
    BATCHES,
    DAYS,
    EACH,
    archive_of_days,
    archive_store,
    check_days,
    delete_all_unused,
    make_old,
)
from tests.support.synthetic import START_MS, record, write_log

AFTERWARDS = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(days=DAYS)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def root(tmp_path):
    return archive_of_days(tmp_path)


def run_here(tasks):
    return list(map(write_merged, tasks))


def files_of(root, name):
    return ArchiveTables(str(root)).files(name)


def test_days_that_are_over_have_one_file_of_each_table(root):
    before = [len(files_of(root, name)) for name in ("messages", "message_keys")]
    assert before == [BATCHES * DAYS] * 2
    assert compact(ArchiveTables(str(root)), run_here, AFTERWARDS) == 2 * BATCHES * DAYS
    assert [len(files_of(root, name)) for name in ("messages", "message_keys")] == [DAYS] * 2
    check_days(root)
    assert compact(ArchiveTables(str(root)), run_here, AFTERWARDS) == 0


def test_the_day_of_today_is_left_alone(root):
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS - timedelta(days=1))
    assert len(files_of(root, "messages")) == DAYS - 1 + BATCHES


def test_messages_that_come_to_a_closed_day_later_are_merged_into_it(root, tmp_path):
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    archive_store(root, tmp_path / "store", "broker-b")
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    assert [len(files_of(root, name)) for name in ("messages", "message_keys")] == [DAYS] * 2
    with rocketlens.open_archive(root) as archive:
        assert len(list(archive.scan())) == 2 * BATCHES * DAYS * EACH


def test_many_keys_are_files_with_a_part_of_all_hashes_in_order(root, monkeypatch):
    monkeypatch.setattr(maintenance, "_FILE_ROWS", 20)
    monkeypatch.setattr(maintenance, "_SORTED_ROWS", 8)
    monkeypatch.setattr(maintenance, "_MERGED_FILES", 3)
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    tables = ArchiveTables(str(root))
    of_day = {}
    for each in tables.files("message_keys"):
        hashes = (
            tables.location.parquet(tables.path(each.table, each.path))
            .read(["key_hash"])
            .to_pydict()["key_hash"]
        )
        assert hashes == sorted(hashes)
        assert (hashes[0], hashes[-1]) == each.bounds["key_hash"]
        of_day.setdefault(each.day, []).append((hashes[0], hashes[-1]))
    for bounds in of_day.values():
        assert len(bounds) > 1
        assert all(last < first for (_, last), (first, _) in itertools.pairwise(sorted(bounds)))
    assert len(tables.files("messages")) > DAYS
    check_days(root)
    hashed = key_hash("key-7")
    assert sum(low <= hashed <= high for bounds in of_day.values() for low, high in bounds) <= DAYS


def test_a_key_of_many_messages_is_never_in_memory_as_a_whole(tmp_path, monkeypatch):
    for module, name, value in (
        (files, "_KEY_ROWS", 4),
        (maintenance, "_SORTED_ROWS", 16),
        (maintenance, "_FILE_ROWS", 64),
    ):
        monkeypatch.setattr(module, name, value)
    count = 400
    sent = [record(n, store_timestamp_ms=START_MS, KEYS=f"hot key-{n}") for n in range(count)]
    for end in (count // 2, count):
        write_log(tmp_path / "store", sent[:end], 1 << 17)
        archive_store(tmp_path / "lake", tmp_path / "store")
    tables = ArchiveTables(str(tmp_path / "lake"))
    hashed = key_hash("hot")
    most = []

    def write(self, rows):
        most.append(rows.num_rows)
        written(self, rows)

    written = TableFile.write
    monkeypatch.setattr(TableFile, "write", write)
    (task,) = [t for t in _merge_tasks(tables, "message_keys", "9999") if len(t.paths) == 2]
    merged = write_merged(task)
    assert sum(each.rows for each in merged) == 3 * count
    # A piece, and of each file a row group more than that at its ends.
    assert max(most) <= 16 + 2 * 2 * 4
    hashes = []
    for each in merged:
        path = tables.path("message_keys", each.path)
        hashes += tables.location.parquet(path).read(["key_hash"]).to_pydict()["key_hash"]
    assert hashes == sorted(hashes)
    assert hashes.count(hashed) == count
    compact(tables, run_here, AFTERWARDS)
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        assert len(archive.find("hot", kind="key")) == count
        assert len(archive.find("key-7", kind="key")) == 1


POINTS = ("while files are written", "before a commit", "after a commit")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("table", ["messages", "message_keys"])
def test_compaction_that_is_killed_at_any_point_is_resumed(root, monkeypatch, point, table):
    exchange, close = ArchiveTables.replace_files, TableFile.close

    def close_or_die(self):
        if point == POINTS[0] and self._table == table:
            raise Killed
        return close(self)

    def exchange_or_die(self, name, *rest):
        if name == table and point == POINTS[1]:
            raise Killed
        exchange(self, name, *rest)
        if name == table and point == POINTS[2]:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTables, "replace_files", exchange_or_die)
        patched.setattr(TableFile, "close", close_or_die)
        patched.setattr(TableFile, "abort", lambda _: None)
        with pytest.raises(Killed):
            compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    check_days(root)
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    assert [len(files_of(root, name)) for name in ("messages", "message_keys")] == [DAYS] * 2
    check_days(root)
    delete_all_unused(root)
    check_days(root)
    assert len(list(root.glob("*/*/*.parquet"))) == 2 * DAYS


def test_of_two_jobs_that_compact_a_day_one_does_and_nothing_is_lost(root):
    slow = ArchiveTables(str(root))

    def overtaken(tasks):
        written = run_here(tasks)
        compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
        return written

    assert compact(slow, overtaken, AFTERWARDS) == 0
    check_days(root)
    assert [len(files_of(root, name)) for name in ("messages", "message_keys")] == [DAYS] * 2


def test_a_batch_that_is_committed_while_a_day_is_compacted_stays(root, tmp_path):
    def beside(tasks):
        written = run_here(tasks)
        archive_store(root, tmp_path / "store", "broker-b")
        return written

    compact(ArchiveTables(str(root)), beside, AFTERWARDS)
    with rocketlens.open_archive(root) as archive:
        assert len(list(archive.scan())) == 2 * BATCHES * DAYS * EACH


def test_a_compaction_whose_confirmation_is_lost_counts(root, monkeypatch):
    exchange = ArchiveTables.replace_files

    def lose_answer(self, *arguments):
        exchange(self, *arguments)
        raise ArchiveError("the connection ended")

    monkeypatch.setattr(ArchiveTables, "replace_files", lose_answer)
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    check_days(root)


def test_days_before_those_that_are_kept_are_gone_and_answers_say_from_when(root):
    first = expire(ArchiveTables(str(root)), DAYS - 1, AFTERWARDS)
    check_days(root, days=range(1, DAYS))
    with rocketlens.open_archive(root) as archive:
        answer = archive.find("key-0")
        assert (answer.messages, answer.complete) == ((), True)
        assert f"{first} 00:00:00" in answer.coverage[0].source
    assert expire(ArchiveTables(str(root)), 2**31 - 1, AFTERWARDS).year == 1
    check_days(root, days=range(1, DAYS))


@pytest.mark.parametrize("table", ["messages", "message_keys"])
def test_retention_that_is_killed_before_a_commit_is_resumed(root, monkeypatch, table):
    exchange = ArchiveTables.replace_files

    def exchange_or_die(self, name, *rest):
        if name == table:
            raise Killed
        exchange(self, name, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTables, "replace_files", exchange_or_die)
        with pytest.raises(Killed):
            expire(ArchiveTables(str(root)), 1, AFTERWARDS)
    check_days(root, days=range(DAYS) if table == "messages" else range(2, DAYS))
    expire(ArchiveTables(str(root)), 1, AFTERWARDS)
    check_days(root, days=range(2, DAYS))
    assert {len(files_of(root, name)) for name in ("messages", "message_keys")} == {BATCHES}


def test_removed_files_are_deleted_after_a_week_and_not_before(root):
    old = rocketlens.open_archive(root)
    compact(ArchiveTables(str(root)), run_here, AFTERWARDS)
    make_old(root)
    assert vacuum(ArchiveTables(str(root))) == []
    with old:
        assert len(list(old.scan())) == BATCHES * DAYS * EACH
    assert len(delete_all_unused(root)) == 2 * BATCHES * DAYS
    check_days(root)
