"""Files in an archive that somebody else put there: nothing outside of it is read or deleted."""

import os
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rocketlens
from rocketlens.archive import tables
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import vacuum
from rocketlens.archive.seal import SealingSink
from rocketlens.cli.doctor.doctor_sources import archive_checks
from rocketlens.errors import ArchiveError
from tests.support.archives import archive_store
from tests.support.synthetic import record, write_log


@pytest.fixture
def lake(tmp_path):
    write_log(tmp_path / "store", map(record, range(30)), 1 << 16)
    archive_store(tmp_path / "lake", tmp_path / "store")
    return tmp_path / "lake"


def messages_file(lake):
    (path,) = lake.glob("messages/*/*.parquet")
    return path


def replace_in_log(lake, old, new, table="messages"):
    """Write another name of a file into the Delta log of a table."""
    for path in (lake / table / "_delta_log").glob("*.json"):
        path.write_text(path.read_text().replace(old, new))


def test_a_file_behind_a_link_is_not_deleted(tmp_path, lake):
    outside = tmp_path / "outside"
    outside.mkdir()
    name = f"{uuid.uuid4()}.sealed.parquet"
    (outside / name).write_text("kept")
    (lake / "messages/day=2026-01-01").symlink_to(outside)
    assert vacuum(ArchiveTables(str(lake)), 0) == []
    assert (outside / name).read_text() == "kept"


@pytest.mark.parametrize("form", ["../../other/messages/{}", "%2e%2e/%2e%2e/other/messages/{}"])
def test_a_delta_log_that_names_files_elsewhere_is_an_error(tmp_path, lake, form):
    write_log(tmp_path / "more", map(record, range(30, 40)), 1 << 16)
    archive_store(tmp_path / "other", tmp_path / "more")
    here, there = (
        str(messages_file(each).relative_to(each / "messages"))
        for each in (lake, tmp_path / "other")
    )
    replace_in_log(lake, here, form.format(there))
    with pytest.raises(ArchiveError, match=r"names .* which is not the name of a file"):
        rocketlens.open_archive(lake)


def linked_file(path):
    target = path.parents[3] / "elsewhere"
    path.rename(target)
    path.symlink_to(target)


def linked_day(path):
    target = path.parents[3] / "elsewhere"
    path.parent.rename(target)
    path.parent.symlink_to(target)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [linked_file, linked_day, pipe])
def test_a_file_that_is_a_link_or_a_pipe_is_named_and_not_read(lake, damage):
    path = messages_file(lake)
    damage(path)
    with rocketlens.open_archive(lake) as archive:
        for text in (None, "key-3"):
            answer = archive.find(text, None if text else "Topic")
            assert (len(answer), answer.complete) == (0, False)
            assert str(path) in str(answer.failures[0].error)


@pytest.mark.parametrize("table", ["journal", "messages", "message_keys"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_delta_log_has_files_alone(lake, table, make):
    log = lake / table / "_delta_log"
    following = max(int(path.stem) for path in log.glob("0*.json")) + 1
    opened = rocketlens.open_archive(lake)
    make(log / f"{following:020d}.json")
    with opened, pytest.raises(ArchiveError, match="is not a regular file"):
        opened.find("key-3")
    with pytest.raises(ArchiveError, match="is not a regular file"):
        rocketlens.open_archive(lake)


def rewrite(path, change, **options):
    """Write a file anew with a right seal, after its rows were changed."""
    rows = change(pq.read_table(path, partitioning=None))
    with path.open("wb") as file:
        sink = SealingSink(file.write, file.tell)
        writer = pq.ParquetWriter(sink, rows.schema, write_page_checksum=True, **options)
        writer.write_table(rows)
        sink.hold()
        writer.close()
        sink.seal()


def retyped(name, to):
    return lambda rows: rows.set_column(
        rows.schema.get_field_index(name), name, pc.cast(rows.column(name), to)
    )


def filled(name, value):
    def change(rows):
        field = rows.schema.field(name)
        values = pa.array([value] * rows.num_rows, field.type)
        return rows.set_column(rows.schema.get_field_index(name), field, values)

    return change


CHANGES = {
    "offsets are text": retyped("queue_offset", pa.string()),
    "times are floats": retyped("store_timestamp_ms", pa.float64()),
    "bodies are text": retyped("body", pa.string()),
    "no bodies": lambda rows: rows.drop_columns("body"),
    "no broker": lambda rows: rows.drop_columns("broker"),
    "keys are null": filled("keys", None),
    "a key is null": filled("keys", [None]),
    "properties are null": filled("properties", None),
    "a property is null": filled("properties", [("name", None)]),
    "topics are null": filled("topic", None),
    "bodies are null": filled("body", None),
    "fewer rows": lambda rows: rows.slice(1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_with_other_columns_is_damage_of_that_file(lake, change):
    path = messages_file(lake)
    rewrite(path, CHANGES[change])
    with rocketlens.open_archive(lake) as archive:
        answers = [
            archive.find("key-3"),
            archive.find(topic="Topic"),
            archive.find("Topic/0/3"),
            archive.find(where="queue_offset >= 0", all_topics=True),
        ]
        scan = archive.scan()
        assert list(scan) == []
        assert not scan.complete
    for answer in answers:
        assert (len(answer), answer.complete) == (0, False)
        assert str(path) in str(answer.failures[0].error)
    if "null" not in change:
        assert [each for each in archive_checks(str(lake)) if each.state == "fail"]


def test_a_row_group_that_inflates_too_far_is_not_read(lake, monkeypatch):
    monkeypatch.setattr(tables, "_MAX_GROUP_BYTES", 1 << 20)
    path = messages_file(lake)
    rewrite(path, filled("body", bytes(100_000)), compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    with rocketlens.open_archive(lake) as archive:
        answer = archive.find(topic="Topic")
    assert (len(answer), answer.complete) == (0, False)
    assert "when decompressed" in str(answer.failures[0].error)
