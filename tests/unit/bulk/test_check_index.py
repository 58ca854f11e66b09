"""An index file is checked by itself: header, slots and chains."""

import pytest

from rocketlens.bulk.check_index import IndexFileTask, check_file
from rocketlens.bulk.report import FindingKind
from tests.unit.bulk.built_stores import GEOMETRY, build, change

ENTRIES = 40 + 4 * GEOMETRY.slot_count


@pytest.fixture
def path(tmp_path):
    build(tmp_path)
    return min((tmp_path / "index").iterdir())


def check(path, *, min_offset=0, is_unfinished=False):
    return check_file(IndexFileTask(str(path), (GEOMETRY,), min_offset, is_unfinished))


def test_a_sound_file_has_facts_and_nothing_to_name(path):
    checked = check(path)
    assert (checked.findings.listed, checked.notes) == ([], [])
    facts = checked.facts
    assert (facts.geometry, facts.last_entry, facts.lowest_offset) == (GEOMETRY, 39, 0)
    assert facts.is_sorted
    assert facts.deleted == 0
    assert check(path, min_offset=1 << 20).facts.deleted == 39


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
    checked = check(path)
    assert set(checked.findings.counts) == {kind}
    assert checked.findings.listed[0].file == str(path)


def test_of_a_file_that_was_being_written_it_is_a_note(path):
    change(path, 32, (7).to_bytes(4, "big"))
    checked = check(path, is_unfinished=True)
    assert checked.findings.listed == []
    assert "which was being written" in checked.notes[0]


def test_a_file_with_nothing_in_it_has_no_facts(path):
    change(path, 0, bytes(36) + (1).to_bytes(4, "big"))
    checked = check(path)
    assert (checked.facts, checked.findings.listed) == (None, [])
