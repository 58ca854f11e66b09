"""Look-ups by queue offset where the consume queue cannot say."""

import pytest

import rocketlens
from rocketlens.formats.consumequeue_entry import QueueEntry
from tests.support.synthetic import record, write_log

SEGMENT_BYTES = 1 << 14
FORMER, CURRENT = range(8, 20), range(10)
"""Queue offsets. The first messages of the former topic have expired."""


@pytest.fixture
def made_again(tmp_path):
    """A store without queues whose topic was deleted and made again; gives the log's records."""
    lives = [*(("former", n) for n in FORMER), *(("current", n) for n in CURRENT)]
    log = [
        record(n, topic="T", queue_offset=queue_offset, body=life.encode())
        for n, (life, queue_offset) in enumerate(lives)
    ]
    other = [record(100 + n, topic="Other", queue_offset=n) for n in range(5)]
    return tmp_path / "store", write_log(tmp_path / "store", [*log, *other], SEGMENT_BYTES)


def write_queue(store, records):
    """Write the queue's file with the entries of some records, and nothing before the first."""
    entries = b"".join(
        QueueEntry(each.physical_offset, each.total_size, 0).encode() for each in records
    )
    path = store / "consumequeue" / "T" / "0" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes((bytes(20 * records[0].queue_offset) + entries).ljust(2_000, b"\0"))


def test_without_a_queue_the_message_of_the_topic_that_was_made_again_is_found(made_again):
    path, log = made_again
    with rocketlens.open_store(path) as store:
        (message,) = store.find("T/0/9")
        assert message.physical_offset == log[len(FORMER) + 9].physical_offset
        assert store.query_by_queue_offset("T", 0, 9).body == b"current"


def test_a_place_that_only_the_deleted_topic_had_is_empty_and_the_answer_says_why(made_again):
    path, _ = made_again
    with rocketlens.open_store(path) as store:
        answer = store.find("T/0/15", kind="queue-offset")
    assert (len(answer), answer.complete) == (0, True)
    assert any("deleted and made again" in (each.note or "") for each in answer.coverage)


def test_neighbours_of_the_deleted_topic_do_not_bound_where_a_message_can_be(made_again):
    """So a queue looks while a broker writes it again from the log."""
    path, log = made_again
    write_queue(path, log[: len(FORMER)])
    with rocketlens.open_store(path) as store:
        (message,) = store.find("T/0/7")
    assert message.physical_offset == log[len(FORMER) + 7].physical_offset


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("T/0/99999", "T/0 ends at 1,200"),
        ("T/9/0", "there is no queue T/9: its topic has queues 0 to 0"),
    ],
)
def test_a_position_outside_of_the_queue_says_where_that_ends(tmp_path, text, expected):
    path = tmp_path / "store"
    log = write_log(
        path, [record(n, topic="T", queue_offset=n) for n in range(1_200)], SEGMENT_BYTES * 64
    )
    entries = b"".join(QueueEntry(e.physical_offset, e.total_size, 0).encode() for e in log)
    queue = path / "consumequeue" / "T" / "0" / f"{0:020}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(entries.ljust(30_000, b"\0"))
    with rocketlens.open_store(path) as store:
        answer = store.find(text)
        assert len(store.find("T/0/1199")) == 1
    assert (len(answer), answer.complete) == (0, True)
    assert expected in [each.note for each in answer.coverage]
