"""The records of a range of the log are compared with what queues and index say of them."""

import pytest

from rocketlens.bulk.check_index import IndexFileTask, check_file
from rocketlens.bulk.check_range import RangeTask, check_range
from rocketlens.bulk.report import FindingKind
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


def test_keys_that_the_index_does_not_lead_to_are_named(written, tmp_path):
    min((tmp_path / "index").iterdir()).unlink()
    checked = check(tmp_path)
    missing = checked.index.findings.counts[FindingKind.INDEX_MISSING]
    early_tags = checked.index.early_tags.counts[FindingKind.INDEX_MISSING]
    assert missing + early_tags == 39
    assert early_tags == 13
    assert checked.index.findings.listed[0].physical_offset == written[0].physical_offset
