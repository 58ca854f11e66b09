"""A log is recognized by what it begins with, and not taken for another one."""

import errno

import pytest

from rocketlens.broker.tables.log_identity import (
    LogIdentity,
    format_checksums,
    is_another_log,
    parse_checksums,
)
from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from tests.support.written_stores import Clock, open_small, send_many


def test_a_log_that_grew_or_lost_its_oldest_segments_is_the_same(tmp_path):
    with open_small(tmp_path) as store:
        identity = LogIdentity(tmp_path / "commitlog")
        assert identity.checksums() == {}
        send_many(store, 200)
        before = identity.checksums()
        assert len(before) > 1
        send_many(store, 200, first=200)
        oldest = tmp_path / "commitlog" / f"{0:020}"
        oldest.unlink()
        after = identity.checksums()
        assert after == LogIdentity(tmp_path / "commitlog").checksums()
        assert len(after) > len(before) - 1
    assert not is_another_log(before, after)


def test_a_log_of_other_messages_is_another(tmp_path):
    found = []
    for name in ("one", "two"):
        with open_small(tmp_path / name) as store:
            send_many(store, 200, first=len(found))
            found.append(LogIdentity(tmp_path / name / "commitlog").checksums())
    assert is_another_log(*found)


def test_logs_that_share_no_segment_may_be_the_same():
    assert not is_another_log({0: 1}, {16_384: 1})
    assert not is_another_log({}, {0: 1})
    assert not is_another_log({0: 1, 16_384: 2}, {0: 1, 16_384: 3})


def test_checksums_are_parsed_as_they_were_formatted():
    checksums = {0: 7, 16_384: 2**32 - 1}
    assert parse_checksums(format_checksums(checksums)) == checksums
    for other in (None, 3, [1], {"0": 1}, "", "x:y"):
        assert parse_checksums(other) == {}


def test_offsets_are_not_written_without_their_log_when_that_cannot_be_read(tmp_path, monkeypatch):
    with open_small(tmp_path) as store:
        send_many(store, 10)
    layout = StoreLayout(tmp_path)
    identity = LogIdentity(layout.commit_log)
    consumers = ConsumerOffsets(layout, Disk(), Clock())
    delays = DelayOffsets(layout, Disk(), Clock())
    consumers.log_checksums = delays.log_checksums = identity.checksums
    consumers.put("G", "Orders", 0, 3)
    delays.put(1, 3)

    def refuse(path, _):
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(fs, "read_bytes", refuse)
        for table in (consumers, delays):
            with pytest.raises(OSError, match="Too many open files"):
                table.save()
            assert table.is_changed
    assert not any(layout.config.glob("*ffset.json"))
    for table in (consumers, delays):
        table.save()
    assert ConsumerOffsets(layout, Disk(), Clock()).log == identity.checksums() != {}
    assert DelayOffsets(layout, Disk(), Clock()).log == identity.checksums()
