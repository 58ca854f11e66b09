"""What is appended to a store is there for all who read it."""

import struct

import pytest

import rocketlens
from rocketlens.broker.config import parse_settings
from rocketlens.errors import NotAStore
from rocketlens.model.message import Host
from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.support.written_stores import (
    SMALL,
    open_small,
    records_of,
    send,
)


def test_the_store_host_may_change_between_runs(tmp_path):
    for port in (1, 2):
        options = StoreOptions(Host("10.1.1.1", port), threads=False)
        with MessageStore(tmp_path, SMALL, options) as store:
            send(store, port)
    assert [record.store_host.port for record in records_of(tmp_path)] == [1, 2]


def test_an_appended_message_is_found_at_once_by_readers_of_the_directory(tmp_path):
    with open_small(tmp_path) as store, rocketlens.open_store(tmp_path) as reader:
        for number in range(200):
            appended = send(store, number, queue_id=number % 2)
            found = reader.query_message("Orders", f"k{number}").messages
            assert [message.physical_offset for message in found] == [appended.physical_offset]
            assert bytes(store.record(appended.physical_offset, 0)[84:88]) == struct.pack(
                ">i", len(found[0].body)
            )


def test_a_log_on_another_disk_is_found_from_the_store_and_written_on(tmp_path):
    layout = StoreLayout(tmp_path / "store", (tmp_path / "fast" / "log",))
    for number in range(2):
        with open_small(layout) as store:
            sent = send(store, number)
        assert not (layout.root / "commitlog").exists()
        assert list(layout.commit_log.glob("0*"))
        with rocketlens.open_store(layout.root) as reader:
            answer = reader.find(topic="Orders")
            assert answer.complete
            assert answer.messages[-1].physical_offset == sent.physical_offset
            assert len(answer.messages) == number + 1
    # Without RocketLens's own note the broker.conf tells.
    layout.log_path.unlink()
    with pytest.raises(NotAStore):
        rocketlens.open_store(layout.root)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={layout.root}\nstorePathCommitLog={layout.commit_log}\n")
    assert parse_settings(conf.read_text()).layout == layout
    with rocketlens.open_store(layout.root) as reader:
        assert reader.find(topic="Orders").complete
