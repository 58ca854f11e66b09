"""Topics of an archive, counted by its columns."""

import pytest

import rocketlens
from rocketlens.errors import TopicNotFound
from tests.support.archives import archive_store


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
