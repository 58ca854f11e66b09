"""Mistakes planted into the writers of a store: power cuts find each of them.

Without the mistake the same runs find nothing: see test_power_cut.
"""

import pytest

from rocketlens.pipeline.output import Workspace
from rocketlens.store import cleaner
from rocketlens.store.append import Appender
from rocketlens.store.deleted import DeletedTopics
from rocketlens.store.fs import Disk
from rocketlens.store.index_writer import IndexWriter
from rocketlens.store.message_store import MessageStore
from tests.support.power_runs import RUNS
from tests.support.simulated_disk import SimDisk

MOST_RUNS = 20
EVENTS_BETWEEN = 10

MISTAKES = {}


def mistake(*writers):
    """Note a mistake, and in which runs it is to be found."""

    def note(plant):
        for writer in writers:
            MISTAKES[f"{plant.__name__} {writer}"] = (plant, writer)
        return plant

    return note


@mistake("store", "follow")
def acknowledges_without_a_sync(patch):
    patch.setattr(Appender, "sync_log", lambda _: None)


@mistake("store")
def acknowledges_before_the_sync(patch):
    flush_log = MessageStore.flush_log

    def too_early(store):
        store.group_commit.end_round(store.end_offset)
        flush_log(store)

    patch.setattr(MessageStore, "flush_log", too_early)


@mistake("store")
def forgets_the_names_of_segments(patch):
    sync_log = Appender.sync_log

    def without_names(appender):
        appender._has_new_segment = False
        sync_log(appender)

    patch.setattr(Appender, "sync_log", without_names)


@mistake("store")
def saves_the_state_of_queues_that_are_not_synced(patch):
    patch.setattr(Appender, "sync_queues", lambda _: None)


@mistake("store", "follow")
def moves_the_safe_offset_before_the_index_files_are_synced(patch):
    sync = IndexWriter.sync

    def too_early(writer):
        writer._write_state()
        sync(writer)

    patch.setattr(IndexWriter, "sync", too_early)


@mistake("store")
def removes_queues_before_it_is_noted(patch):
    patch.setattr(DeletedTopics, "snapshot", lambda _: lambda: None)


@mistake("store")
def cleans_without_syncing(patch):
    def remove(plan, disk, _):
        for segment in plan.segments:
            disk.remove_file(segment.path)

    patch.setattr(cleaner, "remove", remove)


@mistake("tables", "store")
def renames_before_syncing(patch):
    def write_durably(disk, path, content):
        disk.make_directory(path.parent)
        beside = path.with_name("beside")
        beside.write_bytes(content)
        beside.replace(path)
        disk.sync_file(path)
        disk.sync_directory(path.parent)

    patch.setattr(Disk, "write_durably", write_durably)


@mistake("tables")
def makes_directories_that_nobody_syncs(patch):
    patch.setattr(Disk, "make_directory", lambda _, path: path.mkdir(parents=True, exist_ok=True))


@mistake("build")
def swaps_in_what_is_not_synced(patch):
    patch.setattr(Workspace, "sync", lambda *_: None)


@mistake("build")
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


@mistake("store")
def recovers_without_syncing_the_log(patch):
    sync_file = SimDisk.sync_file

    def not_of_the_log(disk, path):
        if path.parent.name != "commitlog":
            sync_file(disk, path)

    patch.setattr(SimDisk, "sync_file", not_of_the_log)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_store_with_a_mistake_is_caught(in_memory, monkeypatch, name):
    plant, writer = MISTAKES[name]
    plant(monkeypatch)

    def look_for_it():
        for number in range(MOST_RUNS):
            RUNS[writer](in_memory / f"run{number}", str(number), EVENTS_BETWEEN).run()

    with pytest.raises(AssertionError, match=f"writer {writer}, seed"):
        look_for_it()
