"""How far an answer says that the log was read, and what was not."""

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.store.read.index.tail import Tail
from tests.support.made_stores import Sent, make_store, overwrite, record_of, some_messages

LOG = SourceKind.COMMIT_LOG


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(60))


def end_of(made):
    return made.records[-1].physical_offset + made.records[-1].total_size


def append(made, sent):
    """Write one more record behind the last, as a broker does."""
    record, encoded = record_of(sent, end_of(made), 10_000)
    overwrite(made.segment_path(end_of(made)), end_of(made) % made.segment_bytes, encoded)
    made.records.append(record)


def log_of(answer):
    (found,) = [c for c in answer.coverage if c.log_end_offset is not None]
    return found


def test_every_answer_says_up_to_where_it_read_the_log(made):
    record = made.records[7]
    place = f"{record.topic}/{record.queue_id}/{record.queue_offset}"
    begin, end = record.physical_offset, record.physical_offset + record.total_size
    with rocketlens.open_store(made.path) as store:
        for answer, expected in [
            (store.query_message("Topic0", "nothing"), (0, end_of(made))),
            (store.find("order-7"), (0, end_of(made))),
            (store.find(topic="Topic1"), (0, end_of(made))),
            (store.find(record.offset_msg_id), (begin, end)),
            (store.find(place), (begin, end)),
            (
                store.find("Topic0/0/999", kind="queue-offset"),
                (made.records[-6].physical_offset, end_of(made)),
            ),
        ]:
            found = log_of(answer)
            assert (found.kind, found.state) == (LOG, SourceState.SEARCHED)
            assert (found.begin_offset, found.end_offset) == expected
            assert found.log_end_offset == found.end_offset
            assert answer.complete


def test_a_memory_that_stays_behind_the_log_makes_answers_incomplete(made, monkeypatch):
    with rocketlens.open_store(made.path) as store:
        assert store.query_message("Topic0", "late").complete
        come_to = end_of(made)
        monkeypatch.setattr(Tail, "_has_grown", lambda *_: False)
        append(made, Sent(topic="Topic0", keys="late"))
        answer = store.query_message("Topic0", "late")
        assert (answer.messages, answer.complete) == ((), False)
        assert f"{come_to} to {end_of(made)} were not read" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete):
            store.view_message("Topic0", "late")
