"""Opening a store takes it over as it is, or refuses it and changes nothing."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import rocketlens
from rocketlens.errors import BadInput
from rocketlens.store import fs
from tests.support.written_stores import (
    GOLDEN,
    QUIET,
    SMALL,
    content_of,
    kill,
    open_small,
    records_of,
    send,
    send_many,
)


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_empty_next_segment_of_a_real_broker_is_taken_over(tmp_path, end):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.close() if end == "closed" else store.close_abruptly()
    following = tmp_path / "commitlog" / f"{SMALL.mappedFileSizeCommitLog:020}"
    following.touch()
    with open_small(tmp_path) as store:
        send_many(store, 100, first=20)
        assert store.end_offset > SMALL.mappedFileSizeCommitLog
    assert following.stat().st_size == SMALL.mappedFileSizeCommitLog
    assert len(records_of(tmp_path)) == 120


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("what", ["segment", "log", "queues", "queue"])
def test_what_cannot_be_opened_now_is_an_error_and_nothing_is_changed(
    tmp_path, monkeypatch, what, number
):
    store = open_small(tmp_path)
    send_many(store, 200)
    store.flush()
    send_many(store, 10, first=200)
    store.close_abruptly()
    before = content_of(tmp_path)
    failing = {
        "segment": ("MappedFile.__init__", lambda args: args[1].parent.name == "commitlog"),
        "log": ("entries", lambda args: args[0].name == "commitlog"),
        "queues": ("entries", lambda args: args[0].name == "consumequeue"),
        "queue": ("read_part", lambda args: Path(args[0]).parents[1].name == "Orders"),
    }
    name, is_it = failing[what]
    holder = fs.MappedFile if "." in name else fs
    real = getattr(holder, name.rpartition(".")[2])

    def refuse(*args, **arguments):
        if is_it(args):
            raise OSError(number, "it cannot be opened", str(args[0]))
        return real(*args, **arguments)

    with monkeypatch.context() as patched:
        patched.setattr(holder, name.rpartition(".")[2], refuse)
        with pytest.raises(OSError, match="it cannot be opened"):
            open_small(tmp_path)
    assert content_of(tmp_path) == before
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []
        assert store.recovered.cut is None
    assert len(records_of(tmp_path)) == 210


def test_a_closed_store_opens_without_reading_its_log(tmp_path):
    with open_small(tmp_path) as store:
        last = send_many(store, 300)[-1]
    assert not (tmp_path / "abort").exists()
    before = content_of(tmp_path)
    with open_small(tmp_path) as store:
        assert (tmp_path / "abort").read_text().isdigit()
        assert store.recovered.record_count == 0
        assert store.recovered.end_offset == last.physical_offset + last.store_size
        assert store.queues.max_offset("Orders", 0) == 100
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("state", ["store", "crashed"])
def test_a_store_of_a_real_broker_is_taken_over_as_it_is(golden, version, state, end, tmp_path):
    golden_store = golden(version)
    path = tmp_path / "store"
    shutil.copytree(getattr(golden_store, state), path)
    before = content_of(path, "commitlog", "consumequeue")
    options = replace(QUIET, with_tag_index=version == "5.5.0")
    store = open_small(path, config=GOLDEN, options=options)
    assert store.recovered.damage == []
    assert store.recovered.cut is None
    while not store.build_index():
        pass
    if end == "closed":
        store.close()
    else:
        kill(store)
    after = content_of(path, "commitlog", "consumequeue")
    # Queue files without an entry are not kept; all others are as they were.
    assert {name: after.get(name) for name in after} == {name: before[name] for name in after}
    if state == "store":
        ours, theirs = (
            [p.read_bytes() for p in sorted((root / "index").iterdir())]
            for root in (path, golden_store.store)
        )
        assert ours == theirs
    with rocketlens.open_store(path) as reader:
        for sent in golden_store.sent:
            if not sent["kind"].startswith("tx"):
                message = reader.view_message(sent["offset_msg_id"])
                assert message.queue_offset == sent["queue_offset"]


def test_a_store_of_other_file_sizes_is_refused_with_its_size_named(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 1)
    before = content_of(tmp_path, "commitlog", "consumequeue", "index")
    with pytest.raises(BadInput, match="16384 bytes: mappedFileSizeCommitLog"):
        open_small(tmp_path, config=replace(SMALL, mappedFileSizeCommitLog=32_768))
    assert content_of(tmp_path, "commitlog", "consumequeue", "index") == before
    with open_small(tmp_path) as store:
        assert send(store, 2).queue_offset == 1


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("consumequeue/CURRENT", "consumequeue is a RocksDB database"),
        ("config/topics/CURRENT", "topics is a RocksDB database"),
        ("config/subscriptionGroups/CURRENT", "subscriptionGroups is a RocksDB database"),
        ("config/consumerOffsets/CURRENT", "consumerOffsets is a RocksDB database"),
        ("config/metadata/CURRENT", "metadata is a RocksDB database"),
        ("config/rdb/CURRENT", "rdb is a RocksDB database"),
        (f"batchconsumequeue/Orders/0/{0:020}", "has batch queues"),
    ],
)
def test_queues_or_tables_that_only_rocketmq_can_write_are_refused(tmp_path, file, named):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.close()
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    before = content_of(tmp_path)
    with pytest.raises(BadInput, match=f"{named}.*give the broker another storePathRootDir"):
        open_small(tmp_path)
    assert content_of(tmp_path) == before


def test_databases_that_a_broker_left_for_newer_files_do_not_refuse_a_store(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 20)
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):
        database = tmp_path / "config" / name / "CURRENT"
        database.parent.mkdir(parents=True)
        database.touch()
        os.utime(database, ns=(0, 0))
    for name in ("topics", "subscriptionGroup", "consumerOffset"):
        (tmp_path / "config" / f"{name}.json").write_text("{}", encoding="utf-8")
    (tmp_path / "batchconsumequeue" / "Orders" / "0").mkdir(parents=True)
    open_small(tmp_path).close()
