"""The files of tiered storage that the broker's table names."""

import pytest

from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tiers import read_tiers

NAME = "cfcd208400000000000000000000"


@pytest.fixture
def layout(tmp_path):
    directory = tmp_path / "tiered" / "212d6b50_DefaultCluster"
    queue = directory / "broker-a" / "Orders" / "3"
    (queue / "COMMIT_LOG").mkdir(parents=True)
    (queue / "COMMIT_LOG" / NAME).write_bytes(b"\1" * 40)
    (queue / "CONSUME_QUEUE").mkdir()
    # The queue begins with offset 7.
    entries = b"".join(QueueEntry(20 * n, 20, 0).encode() for n in (0, 1))
    (queue / "CONSUME_QUEUE" / f"{'0' * 8}{140:020}").write_bytes(entries)
    layout = StoreLayout(tmp_path / "store", (), directory)
    layout.config.mkdir(parents=True)
    layout.tiers.write_text(
        '{"commitLogFileSegmentTable":{"broker-a/Orders/3":{0:{"baseOffset":0,"size":40},'
        '40:{"baseOffset":40,"size":0}},"broker-a/Empty/0":{0:{"baseOffset":0,"size":0}}}}'
    )
    return layout


def test_each_queue_to_which_something_was_written_has_a_log(layout):
    tiers = read_tiers(layout)
    assert tiers.problem is None
    (log,) = tiers.logs
    assert (log.topic, log.queue_id, log.sizes, log.end_offset) == ("Orders", 3, {0: 40}, 40)
    assert log.path == layout.tiered / "broker-a" / "Orders" / "3" / "COMMIT_LOG"
    assert list(log.lost()) == []


def test_the_queue_beside_a_log_says_where_its_messages_are(layout):
    (log,) = read_tiers(layout).logs
    assert [log.physical_offset(n) for n in range(6, 10)] == [None, 0, 20, None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there"),
        (b"\1" * 39, "has 39 of 40 bytes"),
        (b"\1" * 20 + bytes(20), "ends with zeros"),
    ],
)
def test_a_file_that_is_lost_is_named(layout, content, said):
    (log,) = read_tiers(layout).logs
    file = log.path / NAME
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    (lost,) = log.lost()
    assert str(file) in lost
    assert said in lost


def test_the_directory_is_found_near_the_store_or_named_as_missing(layout):
    (log,) = read_tiers(StoreLayout(layout.root)).logs
    assert log.path.is_relative_to(layout.tiered)
    layout.tiered.rename(layout.root.parent / "hidden")
    tiers = read_tiers(layout)
    assert tiers.logs == ()
    assert f"not in {layout.tiered}" in tiers.problem


def test_a_table_that_cannot_be_read_is_named(layout):
    layout.tiers.write_text("{")
    assert str(layout.tiers) in read_tiers(layout).problem
