"""What is recognized without decoding is an answer by the slow way, too.

What an index led to is an answer, a failure, or nothing: the log decides.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, MAGIC_V2, Record
from rocketlens.model.message import Host
from rocketlens.query.lookup.message_filter import (
    OTHER_TIME,
    FastPathMatcher,
    MessageFilter,
    check_entry,
    read_candidate,
)
from rocketlens.store.read.index.index_files import CorruptIndexFile, Hit
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import Sent, flip, make_store

V4, V6 = Host("10.0.0.1", 5555), Host("fd00::7", 5555)
UNIQUE_KEY = "0A0000091F4018B4AAC2140DD5A20000"
PROPERTIES = f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02TAGS\x01TagA\x02"
PLACE = 7
ASKED = MessageFilter(topic="Orders", key="asked")


def record_of(properties=PROPERTIES, body=b"body", magic=MAGIC_V1, born_host=V4, topic="Orders"):
    record = Record(0, magic, 0, 1, 0, 5, 4096, 0, 1, born_host, 2, V4, 0, 0, body, topic, b"")
    raw = properties if isinstance(properties, bytes) else properties.encode()
    return commitlog_record.encode(
        Record(*(getattr(record, name) for name in record.__slots__[:-1]), raw)
    )


def sure(content, wanted):
    view = memoryview(bytes(PLACE) + content + bytes(9))
    return FastPathMatcher.of(wanted).record_size_if_match(view, PLACE, 4096)


def decided(content, wanted):
    """Decide the slow way; the size of an answer, else 0."""
    try:
        record = commitlog_record.decode(content + bytes(9), physical_offset=4096)
    except RecordError:
        return 0
    return record.total_size if wanted.matches(record) else 0


@pytest.mark.parametrize(
    "wanted",
    [
        MessageFilter("Orders", key="k1", unique_key="k1"),
        MessageFilter("Orders", key="k2"),
        MessageFilter("Orders", unique_key=UNIQUE_KEY),
        MessageFilter("Orders", key=UNIQUE_KEY, unique_key=UNIQUE_KEY, begin=2, end=2),
    ],
)
@pytest.mark.parametrize("body", [b"", b"body"])
def test_the_usual_answer_is_recognized(wanted, body):
    content = record_of(body=body)
    assert sure(content, wanted) == decided(content, wanted) == len(content)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (record_of(), MessageFilter("Order", key="k1")),
        (record_of(topic="Order"), MessageFilter("Orders", key="k1")),
        (record_of(), MessageFilter("Orders", key="k")),
        (record_of(), MessageFilter("Orders", key="k1 k2", unique_key="x")),
        (record_of(), MessageFilter("Orders", unique_key="k1")),
        (record_of(), MessageFilter("Orders", key="k1", tags=frozenset({"TagB"}))),
        (record_of("KEYS\x01k1\x02KEYS\x01k2\x02"), MessageFilter("Orders", key="k1")),
        (record_of("XKEYS\x01k1\x02"), MessageFilter("Orders", key="k1")),
        (record_of("x\x01KEYS\x01k1\x02"), MessageFilter("Orders", key="k1")),
        (record_of("KEYS\x01\x02"), MessageFilter("Orders", key="")),
        (record_of(f"{PROPERTIES}__CRC32#\x010000000000\x02"), MessageFilter("Orders", key="k1")),
    ],
)
def test_what_is_no_answer_is_not_recognized(content, wanted):
    assert sure(content, wanted) == decided(content, wanted) == 0


@pytest.mark.parametrize("times", [{"begin": 3}, {"end": 1}])
def test_a_record_of_another_time_is_told_from_what_has_to_be_decoded(times):
    wanted = MessageFilter("Orders", key="k1", **times)
    assert sure(record_of(), wanted) == OTHER_TIME
    assert decided(record_of(), wanted) == 0


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("born_host", [V4, V6])
def test_records_of_both_versions_and_with_hosts_of_both_kinds_are_recognized(magic, born_host):
    content = record_of(magic=magic, born_host=born_host)
    wanted = MessageFilter("Orders", key="k1")
    assert sure(content, wanted) == decided(content, wanted) == len(content)


def test_the_unusual_is_left_to_the_slow_way():
    assert not sure(record_of("KEYS\x01ké\x02"), MessageFilter("Orders", key="ké"))
    assert not sure(record_of(), MessageFilter(key="k1"))


def test_a_flipped_byte_or_a_cut_never_makes_an_answer():
    wanted = MessageFilter("Orders", key="k2", unique_key="k2", end=2**50)
    content = record_of()
    for place in range(len(content)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(content)
            changed[place] ^= mask
            expected = {0, OTHER_TIME, decided(bytes(changed), wanted)}
            assert sure(bytes(changed), wanted) in expected
        view = memoryview(bytes(PLACE) + content[:place])
        assert not FastPathMatcher.of(wanted).record_size_if_match(view, PLACE, 4096)


TEXTS = st.text("KEYS\x01\x02k1 é", max_size=12)


@given(st.lists(TEXTS, max_size=4).map("".join), TEXTS, st.binary(max_size=3))
@example("KEYS\x01k1\x02", "k1", b"")
@example("KEYS\x01k1\x02", "k1", b"\xff")
def test_whatever_the_properties_are_both_ways_agree(properties, key, behind):
    content = record_of(properties.encode() + behind)
    for wanted in (
        MessageFilter("Orders", key=key),
        MessageFilter("Orders", key=key, unique_key=key),
    ):
        assert sure(content, wanted) in {0, decided(content, wanted)}


@pytest.fixture
def made(tmp_path):
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


def candidate(made, record, hit=None, **options):
    failures = []
    log = CommitLog(made.path / "commitlog")
    try:
        found = read_candidate(log, ASKED, record.physical_offset, hit, failures, **options)
    finally:
        log.close()
    return found, failures


def hit_of(entry):
    return Hit(0, entry, 1)


def test_a_record_that_matches_is_the_answer_and_its_entry_is_not_checked(made):
    entry = Entry(is_sound=False)
    assert candidate(made, made.records[0], hit_of(entry)) == (made.records[0], [])
    assert entry.checked == 0


def test_a_record_that_does_not_match_is_nothing_when_its_entry_is_that_of_another_key(made):
    entry = Entry(is_sound=True)
    assert candidate(made, made.records[1], hit_of(entry)) == (None, [])
    assert entry.checked == 1


def test_an_entry_that_contradicts_the_log_makes_its_file_corrupt(made):
    with pytest.raises(CorruptIndexFile):
        candidate(made, made.records[1], hit_of(Entry(is_sound=False)))


def test_what_the_memory_led_to_was_read_from_the_log_and_is_not_checked(made):
    check_entry(None, None)
    assert candidate(made, made.records[1]) == (None, [])


@pytest.mark.parametrize(("number", "is_failure"), [(0, True), (1, False)])
def test_a_damaged_body_is_a_failure_only_of_a_record_that_would_match(made, number, is_failure):
    record = made.records[number]
    flip(made.segment_path(0), record.physical_offset + 90)
    found, failures = candidate(made, record)
    assert (found, bool(failures)) == (None, is_failure)


def test_bytes_that_are_not_a_record_are_a_failure_unless_they_are_deleted(made):
    record = made.records[0]
    flip(made.segment_path(0), record.physical_offset + 4)
    found, failures = candidate(made, record, hit_of(Entry(is_sound=True)))
    assert (found, len(failures)) == (None, 1)
    deleted = candidate(made, record, min_offset=record.physical_offset + 1)
    assert deleted == (None, [])
