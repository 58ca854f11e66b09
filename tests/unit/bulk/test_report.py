"""What is found wrong is counted whole and listed in bounds, each finding in one line."""

import pytest

from rocketlens import limits
from rocketlens.bulk.report import Finding, FindingKind, StoreFindings


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
