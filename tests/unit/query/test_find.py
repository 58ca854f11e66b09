"""Every kind of text is narrowed by topics and times, and an answer is cut once."""

import rocketlens
from rocketlens import limits
from tests.crash.made_stores import Sent, make_store
from tests.unit.query.texts import texts_for


def test_a_topic_and_times_narrow_every_kind(made, store):
    record = made.records[20]
    at = record.store_timestamp_ms
    for kind, text in texts_for(record).items():
        assert len(store.find(text, kind=kind, begin=at, end=at)) == 1
        assert len(store.find(text, kind=kind, begin=at + 1)) == 0
        assert len(store.find(text, kind=kind, end=at - 1)) == 0
        if kind != "queue-offset":
            other = next(r.topic for r in made.records if r.topic != record.topic)
            assert len(store.find(text, other, kind=kind)) == 0


def test_an_answer_ends_at_its_bytes_and_says_so(tmp_path, monkeypatch):
    sent = [Sent(keys="k", body=b"x" * 1000) for _ in range(10)]
    made = make_store(tmp_path / "store", sent)
    monkeypatch.setattr(
        limits, "MAX_ANSWER_BYTES", 3 * (1000 + limits.MESSAGE_OVERHEAD_BYTES) + 1500
    )
    with rocketlens.open_store(made.path) as store:
        for answer in (store.find("k"), store.find(topic="Orders")):
            assert [m.physical_offset for m in answer] == [
                r.physical_offset for r in made.records[-3:]
            ]
            assert answer.truncated
