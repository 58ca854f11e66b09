"""Queues and index are compared with the log, and what is wrong is counted whole."""

import pytest

from rocketlens import limits
from rocketlens.bulk.check_index import IndexFileTask, check_file
from rocketlens.bulk.check_queue import QueueCheckTask, check_queue
from rocketlens.bulk.check_range import RangeTask, check_range
from rocketlens.bulk.report import Finding, FindingKind, StoreFindings
from rocketlens.store.read.former_topics import TopicEvidence
from tests.unit.bulk.built_stores import GEOMETRY, build, change, ranges_of


@pytest.fixture
def written(tmp_path):
    return build(tmp_path)


def check(store, *, check_crc=True):
    paths = sorted((store / "index").iterdir())
    facts = tuple(
        check_file(IndexFileTask(str(path), (GEOMETRY,), 0, is_unfinished=False)).facts
        for path in paths
    )
    [log_range] = ranges_of(store)
    evidence = TopicEvidence({}, frozenset({"Topic"}), None, 0)
    return check_range(
        RangeTask(log_range, str(store), facts, check_crc, with_queues=True, evidence=evidence)
    )


def test_of_a_sound_store_every_record_has_its_entries(written, tmp_path):
    checked = check(tmp_path)
    assert checked.walked.record_count == len(written)
    assert checked.newest_timestamp_ms == written[-1].store_timestamp_ms
    assert checked.queues.sound == {("Topic", 0): len(written)}
    assert sum(checked.index.sound.values()) == 3 * len(written)
    for findings in (checked.findings, checked.index.findings, checked.queues.findings):
        assert findings.listed == []


def test_a_record_without_its_checksum_is_named_unless_that_is_not_asked_for(written, tmp_path):
    at = written[5].physical_offset
    change(tmp_path / "commitlog" / f"{0:020}", at + 90, b"x")
    [finding] = check(tmp_path).findings.listed
    assert (finding.kind, finding.physical_offset) == (FindingKind.RECORD_CHECKSUM, at)
    assert check(tmp_path, check_crc=False).findings.listed == []


@pytest.mark.parametrize(
    ("at", "new", "kind"),
    [
        (0, bytes(20), FindingKind.QUEUE_MISSING),
        (12, (5).to_bytes(8, "big"), FindingKind.QUEUE_WRONG),
    ],
    ids=["none", "another"],
)
def test_an_entry_of_a_queue_that_lacks_or_differs_is_named_with_its_record(
    written, tmp_path, at, new, kind
):
    change(tmp_path / "consumequeue" / "Topic" / "0" / f"{0:020}", 5 * 20 + at, new)
    [finding] = check(tmp_path).queues.findings.listed
    assert (finding.kind, finding.queue_offset) == (kind, 5)
    assert finding.physical_offset == written[5].physical_offset


def test_an_entry_with_an_address_in_place_of_its_tags_code_is_sound(written, tmp_path):
    address = (-(2**63) + 20).to_bytes(8, "big", signed=True)
    change(tmp_path / "consumequeue" / "Topic" / "0" / f"{0:020}", 5 * 20 + 12, address)
    checked = check(tmp_path)
    assert checked.queues.findings.listed == []
    assert checked.queues.sound == {("Topic", 0): len(written)}


def test_keys_that_the_index_does_not_lead_to_are_named(written, tmp_path):
    min((tmp_path / "index").iterdir()).unlink()
    checked = check(tmp_path)
    missing = checked.index.findings.counts[FindingKind.INDEX_MISSING]
    early_tags = checked.index.early_tags.counts[FindingKind.INDEX_MISSING]
    assert missing + early_tags == 39
    assert early_tags == 13
    assert checked.index.findings.listed[0].physical_offset == written[0].physical_offset


ENTRIES = 40 + 4 * GEOMETRY.slot_count


@pytest.fixture
def path(tmp_path):
    build(tmp_path)
    return min((tmp_path / "index").iterdir())


def check_index_file(path, *, min_offset=0, is_unfinished=False):
    return check_file(IndexFileTask(str(path), (GEOMETRY,), min_offset, is_unfinished))


def test_a_sound_file_has_facts_and_nothing_to_name(path):
    checked = check_index_file(path)
    assert (checked.findings.listed, checked.notes) == ([], [])
    facts = checked.facts
    assert (facts.geometry, facts.last_entry, facts.lowest_offset) == (GEOMETRY, 39, 0)
    assert facts.is_sorted
    assert facts.deleted == 0
    assert check_index_file(path, min_offset=1 << 20).facts.deleted == 39


@pytest.mark.parametrize(
    ("at", "new", "kind"),
    [
        (32, (7).to_bytes(4, "big"), FindingKind.INDEX_HEADER),
        (ENTRIES + 20 * 30 + 16, (30).to_bytes(4, "big"), FindingKind.INDEX_CHAIN),
        (ENTRIES + 20 * 30 + 4, bytes(8), FindingKind.INDEX_CHAIN),
        (36, (1 << 30).to_bytes(4, "big"), FindingKind.INDEX_FILE),
    ],
    ids=["slots in use", "a link to itself", "out of the log's order", "more entries than fit"],
)
def test_what_is_wrong_in_a_file_is_named_with_its_kind(path, at, new, kind):
    change(path, at, new)
    checked = check_index_file(path)
    assert set(checked.findings.counts) == {kind}
    assert checked.findings.listed[0].file == str(path)


def test_of_a_file_that_was_being_written_it_is_a_note(path):
    change(path, 32, (7).to_bytes(4, "big"))
    checked = check_index_file(path, is_unfinished=True)
    assert checked.findings.listed == []
    assert "which was being written" in checked.notes[0]


def test_a_file_with_nothing_in_it_has_no_facts(path):
    change(path, 0, bytes(36) + (1).to_bytes(4, "big"))
    checked = check_index_file(path)
    assert (checked.facts, checked.findings.listed) == (None, [])


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
        (8, (5).to_bytes(4, "big"), "its size is 5, not "),
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


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ({}, "it is odd"),
        ({"file": "/s/index/1"}, "index chain: it is odd (/s/index/1)"),
        ({"topic": "T", "physical_offset": 5}, "index chain: it is odd (T, physical offset 5)"),
        ({"topic": "T", "queue_id": 0, "queue_offset": 0}, "index chain: it is odd (T/0/0)"),
    ],
)
def test_a_finding_names_all_that_is_known_of_where_it_is(where, line):
    assert str(Finding(FindingKind.INDEX_CHAIN, "it is odd", **where)) == line


def test_all_findings_are_counted_and_the_first_of_each_kind_listed():
    per_kind = limits.MAX_DAMAGE_REPORTS // len(FindingKind)
    found = StoreFindings()
    for number in range(per_kind + 5):
        found.add(Finding(FindingKind.QUEUE_EXTRA, str(number)))
    found.add(Finding(FindingKind.CHECKPOINT, "old"), 7)
    assert found.counts == {FindingKind.QUEUE_EXTRA: per_kind + 5, FindingKind.CHECKPOINT: 7}
    assert [one.detail for one in found.listed] == [*map(str, range(per_kind)), "old"]


def test_merged_findings_are_counted_together_and_listed_in_the_same_bounds():
    per_kind = limits.MAX_DAMAGE_REPORTS // len(FindingKind)
    first, second = StoreFindings(), StoreFindings()
    first.add(Finding(FindingKind.QUEUE_EXTRA, "first"), 3)
    for number in range(per_kind):
        second.add(Finding(FindingKind.QUEUE_EXTRA, str(number)))
    second.add(Finding(FindingKind.CHECKPOINT, "old"))
    first.merge(second)
    assert first.counts == {FindingKind.QUEUE_EXTRA: per_kind + 3, FindingKind.CHECKPOINT: 1}
    extra = [one.detail for one in first.listed if one.kind is FindingKind.QUEUE_EXTRA]
    assert extra == ["first", *map(str, range(per_kind - 1))]
    assert [one.detail for one in first.listed if one.kind is FindingKind.CHECKPOINT] == ["old"]
