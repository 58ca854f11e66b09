"""Entries of a queue, read beside the one that appends to it."""

import os

import pytest

from rocketlens.broker.lookup.queue_entries import read_entries
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from tests.support.written_stores import SMALL, open_small, send_many

FILE_ENTRIES = SMALL.mappedFileSizeConsumeQueue // ENTRY_BYTES


@pytest.fixture
def queue(tmp_path):
    """A queue of three whole files, and of one that is being written."""
    with open_small(tmp_path) as store:
        send_many(store, 3 * FILE_ENTRIES + 10, queues=1)
        yield store.queues.get("Orders", 0)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, FILE_ENTRIES),
        (FILE_ENTRIES + 3, 2 * FILE_ENTRIES),
        (3 * FILE_ENTRIES, 3 * FILE_ENTRIES + 10),
        (5, 5),
    ],
)
def test_entries_are_those_that_were_appended(queue, start, stop):
    read = read_entries(queue, start, stop)
    expected = [queue.entry(number) for number in range(start, stop)]
    for name in ("physical_offset", "store_size", "tags_code"):
        assert read[name].tolist() == [getattr(entry, name) for entry in expected]


def test_of_a_file_that_is_short_the_whole_entries_are_read(queue):
    base, path = queue.files()[1]
    os.truncate(path, 5 * ENTRY_BYTES + 7)
    start = base // ENTRY_BYTES
    assert len(read_entries(queue, start + 1, start + FILE_ENTRIES)) == 4


def test_a_file_that_is_gone_is_an_error(queue):
    queue.files()[0][1].unlink()
    with pytest.raises(FileNotFoundError):
        read_entries(queue, 0, FILE_ENTRIES)
