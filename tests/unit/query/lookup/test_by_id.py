"""An offset message id leads to the one record that the broker gave it to.

Messages of a topic and a time, read from the log.
Look-ups by queue offset where the consume queue cannot say.
What an index led to is an answer, a failure, or nothing: the log decides.
"""

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, IndexFileError, MessageNotFound
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query import answer_builder
from rocketlens.query.lookup.message_filter import MessageFilter, check_entry, read_candidate
from rocketlens.store.read.index.index_files import CorruptIndexFile, Hit
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import BROKER, Sent, flip, make_store, some_messages
from tests.support.synthetic import record, write_log


def offset_id(physical_offset, host=BROKER):
    return OffsetMessageId(host, physical_offset).encode()


def test_every_record_is_found_by_its_id(made, store):
    for each in made.records:
        found = store.view_message(offset_id(each.physical_offset))
        assert (found.physical_offset, found.body) == (each.physical_offset, each.body)


def test_an_id_of_another_broker_is_not_found_though_a_record_is_at_its_offset(made, store):
    offset = made.records[3].physical_offset
    for host in (Host("10.0.0.8", BROKER.port), Host(BROKER.address, BROKER.port + 1)):
        with pytest.raises(MessageNotFound):
            store.view_message(offset_id(offset, host))
        answer = store.find(offset_id(offset, host), kind="offset-id")
        assert (len(answer), answer.complete) == (0, True)
        assert f"holds a message of {BROKER}" in answer.coverage[0].note


def test_bytes_in_a_body_that_look_like_a_record_are_not_found(tmp_path):
    plain = make_store(tmp_path / "plain", [Sent(body=b"x" * 400)])
    at = plain.segment_path(0).read_bytes().index(b"x" * 400)
    forged = make_store(tmp_path / "forged", [Sent(topic="Forged")])
    content = bytearray(forged.segment_path(0).read_bytes()[: forged.records[0].total_size])
    content[28:36] = at.to_bytes(8)
    made = make_store(tmp_path / "store", [Sent(body=bytes(content).ljust(400, b"x")), Sent()])
    with rocketlens.open_store(made.path) as store:
        for offset in (at, 1, 10**9):
            with pytest.raises(MessageNotFound):
                store.view_message(offset_id(offset))
        assert store.view_message(offset_id(0)).body.startswith(bytes(content))


def test_what_is_before_the_log_is_deleted_and_the_answer_says_so(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), segment_bytes=1 << 13)
    made.segment_path(0).unlink()
    with rocketlens.open_store(made.path) as store:
        answer = store.find(offset_id(0), kind="offset-id")
    assert (len(answer), answer.complete) == (0, True)
    assert "earlier messages are deleted" in answer.coverage[0].note


def test_a_damaged_record_is_incomplete_for_its_own_broker_alone(tmp_path):
    made = make_store(tmp_path / "store", some_messages(10))
    record = made.records[4]
    flip(made.segment_path(0), record.physical_offset + 90)
    with rocketlens.open_store(made.path) as store:
        with pytest.raises(AnswerIncomplete):
            store.view_message(offset_id(record.physical_offset))
        with pytest.raises(MessageNotFound):
            store.view_message(offset_id(record.physical_offset, Host("10.0.0.8", 10911)))


def test_a_message_of_another_topic_is_left_out_and_its_topic_named(made, store):
    record = next(r for r in made.records if r.topic == "Topic1")
    answer = store.find(offset_id(record.physical_offset), "Topic2", kind="offset-id")
    assert (len(answer), answer.complete) == (0, True)
    assert "is a message of topic Topic1" in answer.coverage[0].note


def test_topic_and_times_alone_give_the_newest(made, store):
    found = store.find(topic="Topic1", max_num=3)
    expected = [r.physical_offset for r in made.records if r.topic == "Topic1"]
    assert [m.physical_offset for m in found] == expected[-3:]
    assert found.truncated
    assert not store.find(topic="Topic1", max_num=20).truncated


def test_a_scan_sees_a_segment_made_after_the_store_was_opened_or_is_incomplete(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), segment_bytes=1 << 13)
    (*_, last) = sorted((made.path / "commitlog").iterdir())
    content = last.read_bytes()
    last.unlink()
    with rocketlens.open_store(made.path) as store:
        scan = store.scan("Topic1")
        last.write_bytes(content)
        found = [message.physical_offset for message in scan]
        expected = [r.physical_offset for r in made.records if r.topic == "Topic1"]
        assert found == expected or not scan.complete
        answer = store.find(topic="Topic1")
        assert [m.physical_offset for m in answer] == expected or not answer.complete


def test_a_scan_is_not_complete_before_it_came_to_the_end(made):
    with rocketlens.open_store(made.path) as store:
        scan = store.scan()
        assert not scan.complete
        messages = iter(scan)
        next(messages)
        assert not scan.complete
        assert len(list(messages)) == 59
        assert scan.complete


def test_the_newest_of_a_topic_are_decoded_and_no_others(made, monkeypatch):
    decoded = []
    message_of = answer_builder.message_of
    monkeypatch.setattr(
        answer_builder, "message_of", lambda record: decoded.append(record) or message_of(record)
    )
    expected = [r.physical_offset for r in made.records if r.topic == "Topic2"]
    with rocketlens.open_store(made.path) as store:
        for max_num in (0, 1, 5, 100, None):
            decoded.clear()
            answer = store.find(topic="Topic2", max_num=max_num)
            kept = expected if max_num is None else expected[len(expected) - max_num :]
            kept = expected if max_num == 100 else kept
            assert [m.physical_offset for m in answer] == kept
            assert answer.truncated is (len(kept) < len(expected))
            assert len(decoded) == len(kept)


SEGMENT_BYTES = 1 << 14
FORMER, CURRENT = range(8, 20), range(10)
"""Queue offsets. The first messages of the former topic have expired."""


@pytest.fixture
def made_again(tmp_path):
    """A store without queues whose topic was deleted and created again; gives the log's records."""
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
    assert any("deleted and created again" in (each.note or "") for each in answer.coverage)


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


ASKED = MessageFilter(topic="Orders", key="asked")


@pytest.fixture
def filtered(tmp_path):
    return make_store(tmp_path / "store", [Sent(keys="asked"), Sent(keys="other")])


class Entry:
    """An index file whose only entry is sound, or not."""

    def __init__(self, *, is_sound):
        self.is_sound = is_sound
        self.checked = 0

    def check_entry(self, _, number):
        self.checked += 1
        if not self.is_sound:
            raise IndexFileError(f"entry {number} is of another record")


def candidate(filtered, record, hit=None, **options):
    failures = []
    log = CommitLog(filtered.path / "commitlog")
    try:
        found = read_candidate(log, ASKED, record.physical_offset, hit, failures, **options)
    finally:
        log.close()
    return found, failures


def hit_of(entry):
    return Hit(0, entry, 1)


def test_a_record_that_matches_is_the_answer_and_its_entry_is_not_checked(filtered):
    entry = Entry(is_sound=False)
    assert candidate(filtered, filtered.records[0], hit_of(entry)) == (filtered.records[0], [])
    assert entry.checked == 0


def test_a_record_that_does_not_match_is_nothing_when_its_entry_is_that_of_another_key(filtered):
    entry = Entry(is_sound=True)
    assert candidate(filtered, filtered.records[1], hit_of(entry)) == (None, [])
    assert entry.checked == 1


def test_an_entry_that_contradicts_the_log_makes_its_file_corrupt(filtered):
    with pytest.raises(CorruptIndexFile):
        candidate(filtered, filtered.records[1], hit_of(Entry(is_sound=False)))


def test_what_the_memory_led_to_was_read_from_the_log_and_is_not_checked(filtered):
    check_entry(None, None)
    assert candidate(filtered, filtered.records[1]) == (None, [])


@pytest.mark.parametrize(("number", "is_failure"), [(0, True), (1, False)])
def test_a_damaged_body_is_a_failure_only_of_a_record_that_would_match(
    filtered, number, is_failure
):
    record = filtered.records[number]
    flip(filtered.segment_path(0), record.physical_offset + 90)
    found, failures = candidate(filtered, record)
    assert (found, bool(failures)) == (None, is_failure)


def test_bytes_that_are_not_a_record_are_a_failure_unless_they_are_deleted(filtered):
    record = filtered.records[0]
    flip(filtered.segment_path(0), record.physical_offset + 4)
    found, failures = candidate(filtered, record, hit_of(Entry(is_sound=True)))
    assert (found, len(failures)) == (None, 1)
    deleted = candidate(filtered, record, min_offset=record.physical_offset + 1)
    assert deleted == (None, [])
