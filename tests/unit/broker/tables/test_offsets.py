"""Offsets as the broker keeps them: config/consumerOffset.json and delayOffset.json."""

import pytest

from rocketlens import limits
from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.errors import BadInput
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from tests.support.written_stores import Clock


def test_offsets_are_kept_until_saved_and_forgotten_when_removed(tmp_path):
    layout = StoreLayout(tmp_path)
    offsets = ConsumerOffsets(layout, Disk(), Clock())
    offsets.put("g", "T", 0, 5)
    offsets.put("g", "U", 1, 6)
    assert ConsumerOffsets(layout, Disk(), Clock()).get("g", "T", 0) is None
    offsets.save()
    offsets = ConsumerOffsets(layout, Disk(), Clock())
    assert [offsets.get("g", "T", 0), offsets.get("g", "T", 1)] == [5, None]
    offsets.remove("g", "T")
    assert offsets.topics_of("g") == ["U"]
    offsets.remove("g")
    assert offsets.table == {}
    delays = DelayOffsets(layout, Disk(), Clock())
    delays.table[3] = 9
    delays.save()
    assert DelayOffsets(layout, Disk(), Clock()).table == {3: 9}


def test_offsets_that_would_not_be_read_back_are_refused(tmp_path, monkeypatch):
    offsets = ConsumerOffsets(StoreLayout(tmp_path), Disk(), Clock())
    monkeypatch.setattr(limits, "MAX_CONFIG_BYTES", 4000)
    for queue_id in range(20):
        offsets.put("g", "T", queue_id, 2**63 - 1)
    with pytest.raises(BadInput, match=r"consumerOffset\.json is full"):
        offsets.put("g2", "T" * 300, 0, 0)
    offsets.put("g", "T", 0, 1)
    offsets.save()
    assert (tmp_path / "config" / "consumerOffset.json").stat().st_size < 4000
    offsets.remove("g")
    offsets.put("g", "T", 0, 1)
