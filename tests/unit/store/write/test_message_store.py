"""What is appended to a store is there for all who read it."""

import struct

import rocketlens
from rocketlens.model.message import Host
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
