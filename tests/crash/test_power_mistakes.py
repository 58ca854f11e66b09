"""Mistakes planted into the writers of a store: power cuts find each of them.

Without the mistake the same runs find nothing: see test_power_cut.
"""

import pytest

from rocketlens.bulk.workspace import Workspace
from rocketlens.store.disk import Disk
from rocketlens.store.write import cleaner
from rocketlens.store.write.append import Appender
from rocketlens.store.write.durability import Durability
from rocketlens.store.write.index.index_writer import IndexWriter
from rocketlens.store.write.opening import DeletedTopics
from tests.support.power_runs import RUNS
from tests.support.simulated_disk import SimDisk

MOST_RUNS = 80
EVENTS_BETWEEN = 10

MISTAKES = {}


def mistake(writer, first=0):
    """Note a mistake, in which runs it is to be found, and the first seed to look at."""

    def note(plant):
        MISTAKES[plant.__name__] = (plant, writer, first)
        return plant

    return note


@mistake("store")
def acknowledges_without_a_sync(patch):
    patch.setattr(Appender, "sync_log", lambda _: None)


@mistake("store")
def acknowledges_before_the_sync(patch):
    flush_log = Durability.flush_log

    def too_early(durability):
        end_offset = durability._end(durability._appender.last).offset
        durability.group_commit.end_round(end_offset)
        flush_log(durability)

    patch.setattr(Durability, "flush_log", too_early)


@mistake("store")
def forgets_the_names_of_segments(patch):
    sync_log = Appender.sync_log

    def without_names(appender):
        appender._has_new_segment = False
        sync_log(appender)

    patch.setattr(Appender, "sync_log", without_names)


@mistake("store", 5)
def saves_the_state_of_queues_that_are_not_synced(patch):
    patch.setattr(Appender, "sync_queues", lambda _: None)


@mistake("follow")
def moves_the_safe_offset_before_the_index_files_are_synced(patch):
    sync = IndexWriter.sync

    def too_early(writer):
        writer._write_state()
        sync(writer)

    patch.setattr(IndexWriter, "sync", too_early)


@mistake("store", 8)
def removes_queues_before_it_is_noted(patch):
    patch.setattr(DeletedTopics, "snapshot", lambda deleted: deleted._make_durable)


@mistake("store", 14)
def cleans_without_syncing(patch):
    def remove(plan, disk, _):
        for segment in plan.segments:
            disk.remove_file(segment.path)

    patch.setattr(cleaner, "remove", remove)


@mistake("tables")
def renames_before_syncing(patch):
    def write_durably(disk, path, content):
        disk.make_directory_durably(path.parent)
        beside = path.with_name("beside")
        beside.write_bytes(content)
        beside.replace(path)
        disk.sync_file(path)
        disk.sync_directory(path.parent)

    patch.setattr(Disk, "write_durably", write_durably)


@mistake("tables")
def makes_directories_that_nobody_syncs(patch):
    patch.setattr(
        Disk, "make_directory_durably", lambda _, path: path.mkdir(parents=True, exist_ok=True)
    )


@mistake("build")
def swaps_in_what_is_not_synced(patch):
    patch.setattr(Workspace, "sync", lambda *_: None)


@mistake("build", 17)
def swaps_in_two_steps(patch):
    def exchange(disk, new, current):
        aside = current.with_name("aside")
        if current.exists():
            disk.move(current, aside)
        disk.move(new, current)
        if aside.exists():
            disk.move(aside, new)
        disk.sync_directory(current.parent)

    patch.setattr(SimDisk, "exchange_directories", exchange)


LONG = {
    *("moves_the_safe_offset_before_the_index_files_are_synced", "cleans_without_syncing"),
    *("saves_the_state_of_queues_that_are_not_synced", "swaps_in_two_steps"),
}
"""Whose runs take from 6 s to half a minute each."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] if each in LONG else []) for each in MISTAKES],
)
def test_a_store_with_a_mistake_is_caught(in_memory, monkeypatch, name):
    plant, writer, first = MISTAKES[name]
    plant(monkeypatch)

    def look_for_it():
        for number in range(first, first + MOST_RUNS):
            RUNS[writer](in_memory / f"run{number}", str(number), EVENTS_BETWEEN).run()

    with pytest.raises(AssertionError, match=f"writer {writer}, seed"):
        look_for_it()
