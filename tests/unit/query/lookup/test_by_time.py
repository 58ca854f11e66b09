"""Messages of a topic and a time, read from the log."""

import rocketlens
from rocketlens.query import answer_builder
from tests.support.made_stores import make_store, some_messages


def test_topic_and_times_alone_give_the_newest(made, store):
    found = store.find(topic="Topic1", max_num=3)
    expected = [r.physical_offset for r in made.records if r.topic == "Topic1"]
    assert [m.physical_offset for m in found] == expected[-3:]
    assert found.truncated
    assert not store.find(topic="Topic1", max_num=20).truncated


def test_a_scan_sees_a_segment_made_after_the_store_was_opened_or_is_incomplete(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), segment_bytes=1 << 13)
    (*_, last) = sorted((made.path / "commitlog").iterdir())
    content = last.read_bytes()
    last.unlink()
    with rocketlens.open_store(made.path) as store:
        scan = store.scan("Topic1")
        last.write_bytes(content)
        found = [message.physical_offset for message in scan]
        expected = [r.physical_offset for r in made.records if r.topic == "Topic1"]
        assert found == expected or not scan.complete
        answer = store.find(topic="Topic1")
        assert [m.physical_offset for m in answer] == expected or not answer.complete


def test_a_scan_is_not_complete_before_it_came_to_the_end(made):
    with rocketlens.open_store(made.path) as store:
        scan = store.scan()
        assert not scan.complete
        messages = iter(scan)
        next(messages)
        assert not scan.complete
        assert len(list(messages)) == 59
        assert scan.complete


def test_the_newest_of_a_topic_are_decoded_and_no_others(made, monkeypatch):
    decoded = []
    message_of = answer_builder.message_of
    monkeypatch.setattr(
        answer_builder, "message_of", lambda record: decoded.append(record) or message_of(record)
    )
    expected = [r.physical_offset for r in made.records if r.topic == "Topic2"]
    with rocketlens.open_store(made.path) as store:
        for max_num in (0, 1, 5, 100, None):
            decoded.clear()
            answer = store.find(topic="Topic2", max_num=max_num)
            kept = expected if max_num is None else expected[len(expected) - max_num :]
            kept = expected if max_num == 100 else kept
            assert [m.physical_offset for m in answer] == kept
            assert answer.truncated is (len(kept) < len(expected))
            assert len(decoded) == len(kept)
