"""A scan of an archive reads it as it was when it began, and goes on where another ended."""

from itertools import islice
from pathlib import Path

import pytest

import rocketlens
from rocketlens.archive.scan import ArchiveCursor, decoded, encoded
from rocketlens.errors import ArchiveError, BadInput
from tests.support.archives import archive_store


@pytest.fixture(scope="module")
def lake(golden, tmp_path_factory):
    """One that no test changes."""
    directory = tmp_path_factory.mktemp("lake")
    archive_store(directory, golden("5.5.0").store)
    return directory


@pytest.fixture
def own_lake(golden, tmp_path):
    archive_store(tmp_path, golden("5.5.0").store)
    return tmp_path


def pages(archive, size, **what):
    """All messages, some at a time; the cursor of each page but the last."""
    cursor, cursors, messages = None, [], []
    while True:
        scan = archive.scan(cursor=cursor, **what)
        messages += islice(scan, size)
        cursor = scan.cursor
        if cursor is None:
            return messages, cursors
        cursors.append(cursor)


@pytest.mark.parametrize("what", [{"all_topics": True}, {"grep": "pay"}, {"tag": "Batch"}])
def test_pages_have_each_message_once_in_the_order_of_a_whole_scan(lake, what):
    with rocketlens.open_archive(lake) as archive:
        whole = list(archive.scan(**what))
        messages, cursors = pages(archive, 97, **what)
        assert messages == whole
        assert cursors or len(whole) < 97


def test_what_is_archived_meanwhile_changes_no_page(golden, own_lake):
    lake = own_lake
    with rocketlens.open_archive(lake) as archive:
        whole = list(archive.scan(all_topics=True))
        scan = archive.scan(all_topics=True)
        first = [next(iter(scan))]
        cursor = scan.cursor
        archive_store(lake, golden("4.9.7").store, broker="another")
        rest = archive.scan(all_topics=True, cursor=cursor)
        assert first + list(rest) == whole
        assert rest.complete
        assert "another" not in str(rest.coverage)
        assert len(list(archive.scan(all_topics=True))) > len(whole)
    with rocketlens.open_archive(lake) as again:
        assert first + list(again.scan(all_topics=True, cursor=cursor)) == whole


def test_what_was_removed_since_is_said(own_lake):
    lake = own_lake
    with rocketlens.open_archive(lake) as archive:
        scan = archive.scan(all_topics=True)
        next(iter(scan))
        cursor = scan.cursor
    for path in Path(lake, "messages").rglob("*.parquet"):
        path.unlink()
    with rocketlens.open_archive(lake) as archive:
        gone = archive.scan(all_topics=True, cursor=cursor)
        assert list(gone) == []
        assert "is gone: it was compacted or expired since" in str(gone.coverage)
        assert not gone.complete
        of_another = encoded(decoded(ArchiveCursor, cursor)._replace(version=99))
        with pytest.raises(ArchiveError, match="begin the search again"):
            archive.scan(all_topics=True, cursor=of_another)
        with pytest.raises(ArchiveError, match="begin the search again"):
            archive.scan(
                all_topics=True, cursor=encoded(decoded(ArchiveCursor, cursor)._replace(path="no"))
            )


def test_a_cursor_of_another_search_is_refused(lake):
    with rocketlens.open_archive(lake) as archive:
        scan = archive.scan(all_topics=True)
        next(iter(scan))
        with pytest.raises(BadInput, match="of another search"):
            archive.scan(grep="pay", cursor=scan.cursor)
        for wrong in ("", "abc", "WzEsMl0", scan.cursor[:-8], "é", "A" * 9999):
            with pytest.raises(BadInput, match="is not one that such a search of an archive"):
                archive.scan(all_topics=True, cursor=wrong)


def test_columns_become_the_same_batches_as_messages(lake):
    with rocketlens.open_archive(lake) as archive:
        for what in ({}, {"topic": ["OrderTopic", "PayTopic"]}, {"topic": "OrderTopic"}):
            whole = archive.scan(all_topics=True, **what)
            by_message = rocketlens.Answer("", tuple(whole), ()).to_arrow()
            assert archive.scan(all_topics=True, **what).to_arrow().equals(by_message)
        without = archive.scan(topic="OrderTopic", all_topics=True).record_batches(with_body=False)
        assert all(batch["body"].null_count == batch.num_rows > 0 for batch in without)
