"""Entries of a queue that no record of the log belongs to are named one by one."""

import pytest

from rocketlens.bulk.check_queue import QueueCheckTask, check_queue
from rocketlens.bulk.report import FindingKind
from tests.unit.bulk.built_stores import build, change

FIRST_FILE = f"{0:020}"


@pytest.fixture
def store(tmp_path):
    build(tmp_path)
    return tmp_path


@pytest.fixture
def queue(store):
    return store / "consumequeue" / "Topic" / "0"


def test_a_sound_queue_has_an_entry_for_each_record_and_nothing_to_name(store):
    checked = check_queue(QueueCheckTask(str(store), "Topic", 0, sound=0))
    assert (checked.entries, checked.findings.listed) == (50, [])


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [
        (0, (1).to_bytes(8, "big"), "it names no record: "),
        (0, None, "it names a record of Topic/0/7"),
        (8, (5).to_bytes(4, "big"), "it says 5 bytes of "),
    ],
)
def test_an_entry_of_no_record_is_named_with_the_reason(store, queue, at, new, reason):
    if new is None:
        new = (queue / FIRST_FILE).read_bytes()[7 * 20 : 8 * 20]
    change(queue / FIRST_FILE, 3 * 20 + at, new)
    checked = check_queue(QueueCheckTask(str(store), "Topic", 0, sound=49))
    [finding] = checked.findings.listed
    assert finding.kind is FindingKind.QUEUE_EXTRA
    assert finding.detail.startswith(reason)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("Topic", 0, 3)


def test_an_entry_that_leads_to_a_record_of_the_deleted_topic_is_named(store):
    log_end = 1 << 16
    checked = check_queue(QueueCheckTask(str(store), "Topic", 0, sound=50, end=log_end))
    assert checked.findings.counts == {FindingKind.QUEUE_EXTRA: 50}
    assert "before its topic was deleted" in checked.findings.listed[0].detail


def test_a_file_that_is_no_part_of_the_queue_is_named(store, queue):
    (queue / "readme").touch()
    checked = check_queue(QueueCheckTask(str(store), "Topic", 0, sound=50))
    [finding] = checked.findings.listed
    assert (finding.kind, finding.file) == (FindingKind.QUEUE_FILE, str(queue / "readme"))
