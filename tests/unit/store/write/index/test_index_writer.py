"""Entries are put into index files once, whoever puts them in, and however often it is killed."""

from dataclasses import replace

import pytest

from rocketlens.errors import StoreLocked
from rocketlens.store.layout import StoreLayout
from tests.support.written_stores import (
    QUIET,
    SMALL,
    builder_of,
    entries_of,
    expected_entries,
    open_small,
    send,
    send_many,
)


def test_entries_beyond_the_synced_ones_are_taken_back(log_only):
    path, end = log_only
    builder = builder_of(path, end)
    builder.build(end // 2)
    builder.sync()
    synced = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
    builder.build(end)
    builder.close_abruptly()
    there = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
    resumed = builder_of(path, end)
    proven = {file.name: file.read_bytes() for file in StoreLayout(path).new_index.iterdir()}
    assert proven == synced
    # What the killed one put in goes when it is in again.
    assert {file.name: file.read_bytes() for file in (path / "index").iterdir()} == there
    resumed.build(end)
    resumed.sync()
    resumed.close()
    assert not StoreLayout(path).new_index.exists()
    assert entries_of(path) == expected_entries(path)


def test_two_builders_exclude_each_other(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 1)
        with pytest.raises(StoreLocked):
            builder_of(tmp_path, 0)
        send(store, 2)


def test_one_build_writes_the_entries_of_all_records(tmp_path):
    geometry = SMALL.geometry._replace(entry_count=3000)
    config = replace(SMALL, maxIndexNum=3000, mappedFileSizeCommitLog=1 << 20)
    with open_small(tmp_path, config=config, options=replace(QUIET, build_index=False)) as store:
        send_many(store, 3000)
        end = store.end_offset
    builder = builder_of(tmp_path, end, geometry)
    assert builder.build(end)
    builder.sync()
    builder.close()
    assert entries_of(tmp_path, geometry) == expected_entries(tmp_path)


def test_index_files_of_deleted_log_are_deleted_and_never_the_last(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 200)
        store.flush_log()
        while not store.build_index():
            pass
        files = sorted(file.name for file in (tmp_path / "index").iterdir())
        builder = store._index._builder
        assert builder.forget_below(builder._headers[3].begin_offset + 1) == files[:3]
        assert builder.forget_below(10**12) == files[3:-1]
        assert [file.name for file in (tmp_path / "index").iterdir()] == files[-1:]
