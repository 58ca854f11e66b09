"""An archive job that is killed at any point, again and again: each message is there exactly once.

A job archives what a store has, compacts days that are over and deletes what nothing needs. It is
killed at the n-th time that it comes to a point, by a seed, and begun again. Spark's own tasks,
with a real SIGKILL, are in `tests/pipeline/test_archive`.
"""

from random import Random

import pytest

import rocketlens
from rocketlens.archive.files import TableFile
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.maintenance import compact, vacuum, write_merged
from tests.support.archives import DAY_MS, archive_store, make_old
from tests.support.synthetic import START_MS, record, write_log

DAYS, STEPS, EACH = 2, 3, 12
"""Days, how often a store grows, and by how many messages."""
POINTS = {
    "a file is begun": (TableFile, "__init__", "before"),
    "a part of a file is written": (TableFile, "write", "after"),
    "a file is finished": (TableFile, "close", "after"),
    "before the journal has a batch": (ArchiveTables, "commit", "before"),
    "before tables have its files": (ArchiveTables, "_add", "before"),
    "after a table has its files": (ArchiveTables, "_add", "after"),
    "after a batch": (ArchiveTables, "commit", "after"),
    "before files are exchanged": (ArchiveTables, "replace_files", "before"),
    "after files are exchanged": (ArchiveTables, "replace_files", "after"),
    "before a file is deleted": (ArchiveLocation, "remove", "before"),
    "after a file is deleted": (ArchiveLocation, "remove", "after"),
}


class Killed(BaseException):
    """The process ends here."""


def run_job(root, store):
    archive_store(root, store)
    tables = ArchiveTables(str(root))
    compact(tables, lambda tasks: list(map(write_merged, tasks)))
    make_old(root)
    vacuum(tables, 0)


def is_killed(monkeypatch, point, number, root, store):
    """Run a job that ends when it comes to a point for the n-th time; return whether it did."""
    owner, name, when = POINTS[point]
    original = getattr(owner, name)
    left = number

    def come_to():
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    def replaced(*arguments, **named):
        if when == "before":
            come_to()
        result = original(*arguments, **named)
        if when == "after":
            come_to()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, replaced)
        # A process that is killed removes nothing.
        patched.setattr(TableFile, "abort", lambda _: None)
        try:
            run_job(root, store)
        except Killed:
            return True
    return False


def found_in(root):
    with rocketlens.open_archive(root) as archive:
        answer = archive.find(all_topics=True)
        # That nothing is there yet is said, too.
        assert answer.complete or not archive.status().sources
        return list(map(repr, answer))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_is_killed_at_a_point_again_and_again_has_each_message_once(
    tmp_path, monkeypatch, point, seed
):
    chance = Random(seed)
    root, store = tmp_path / "lake", tmp_path / "store"
    sent = [
        record(n, store_timestamp_ms=START_MS + DAY_MS * (n % DAYS)) for n in range(STEPS * EACH)
    ]
    kills = 0
    for step in range(STEPS):
        write_log(store, sent[: (step + 1) * EACH], 1 << 16)
        with rocketlens.open_store(store) as opened:
            expected = [repr(each) for each in opened.scan(all_topics=True)]
        while is_killed(monkeypatch, point, chance.randint(1, 6) if kills else 1, root, store):
            kills += 1
            if (root / "journal" / "_delta_log").exists():
                # All of a batch or nothing.
                count = len(found_in(root))
                assert count in (step * EACH, (step + 1) * EACH)
            if chance.random() < 1 / 4:
                break
        run_job(root, store)
        assert sorted(found_in(root)) == sorted(expected)
    assert kills
    tables = ArchiveTables(str(root))
    rows = {"messages": len(sent), "message_keys": 2 * len(sent)}
    for name, count in rows.items():
        files = tables.files(name)
        assert sum(each.rows for each in files) == count
        # Nothing that a killed job left, and all that is committed.
        assert {tables.path(name, each.path) for each in files} == set(
            map(str, root.glob(f"{name}/*/*.parquet"))
        )
    with rocketlens.open_archive(root) as archive:
        for number in range(len(sent)):
            assert len(archive.find(f"key-{number}", kind="key")) == 1
