"""Topics of an archive, counted by its columns."""

from pathlib import Path

import pytest

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import compact, write_merged
from rocketlens.archive.reader import ArchiveReader
from rocketlens.errors import TopicNotFound
from tests.support.archives import BATCHES, DAYS, archive_of_days, archive_store


def test_topics_have_the_queues_of_the_store_and_the_broker_of_the_archive(golden, tmp_path):
    store = golden("5.5.0").store
    archive_store(tmp_path, store, broker="broker-x")
    with rocketlens.open_store(store) as opened, rocketlens.open_archive(tmp_path) as archive:
        expected = {topic.name: topic for topic in opened.topics() if topic.messages}
        answer = archive.topics()
        assert answer.complete
        assert [topic.name for topic in answer] == sorted(expected)
        for topic in answer:
            queues = [queue for queue in expected[topic.name].queues if queue.messages]
            assert {queue.broker_name for queue in topic.queues} == {"broker-x"}
            assert [
                (each.queue_id, each.max_offset, each.messages, each.newest_ms)
                for each in topic.queues
            ] == [
                (each.queue_id, each.max_offset, each.messages, each.newest_ms) for each in queues
            ]
        name = next(iter(expected))
        assert [topic.name for topic in archive.topics(name)] == [name]
        with pytest.raises(TopicNotFound, match=f"did you mean {name}"):
            archive.topics(name.lower())


def test_a_file_is_counted_once_and_one_that_was_compacted_is_forgotten(tmp_path, monkeypatch):
    root = archive_of_days(tmp_path)
    read = []
    columns = ArchiveReader.columns
    monkeypatch.setattr(
        ArchiveReader,
        "columns",
        lambda self, file, *rest: read.append(file.path) or columns(self, file, *rest),
    )
    with rocketlens.open_archive(root) as archive:
        first = archive.topics()
        assert len(read) == DAYS * BATCHES
        assert archive.topics() == first
        assert archive.topics("Topic").topics == first.topics
        assert len(read) == DAYS * BATCHES
        compact(ArchiveTables(str(root)), lambda tasks: list(map(write_merged, tasks)))
        again = archive.topics()
        assert len(read) == DAYS * BATCHES + DAYS
        assert again.topics == first.topics
        assert len(archive.source.reader.kept) == DAYS


def test_counts_beyond_the_bound_are_not_kept_and_counted_again(tmp_path, monkeypatch):
    root = archive_of_days(tmp_path)
    with rocketlens.open_archive(root) as archive:
        expected = archive.topics()
    monkeypatch.setattr("rocketlens.archive.reader.MAX_KEPT_COUNTS", 2)
    with rocketlens.open_archive(root) as archive:
        assert [archive.topics() for _ in range(2)] == [expected] * 2
        assert len(archive.source.reader.kept) == 2


def test_what_of_a_file_could_not_be_read_is_not_kept(tmp_path):
    root = archive_of_days(tmp_path)
    with rocketlens.open_archive(root) as archive:
        reader = archive.source.reader
        path = Path(reader.path(reader.listing.messages[0]))
        content = path.read_bytes()
        path.write_bytes(bytes(len(content)))
        assert not archive.topics().complete
        path.write_bytes(content)
        assert archive.topics().complete
