"""An offset message id leads to the one record that the broker gave it to."""

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from tests.support.made_stores import BROKER, Sent, flip, make_store, some_messages


def offset_id(physical_offset, host=BROKER):
    return OffsetMessageId(host, physical_offset).encode()


def test_every_record_is_found_by_its_id(made, store):
    for record in made.records:
        found = store.view_message(offset_id(record.physical_offset))
        assert (found.physical_offset, found.body) == (record.physical_offset, record.body)


def test_an_id_of_another_broker_is_not_found_though_a_record_is_at_its_offset(made, store):
    offset = made.records[3].physical_offset
    for host in (Host("10.0.0.8", BROKER.port), Host(BROKER.address, BROKER.port + 1)):
        with pytest.raises(MessageNotFound):
            store.view_message(offset_id(offset, host))
        answer = store.find(offset_id(offset, host), kind="offset-id")
        assert (len(answer), answer.complete) == (0, True)
        assert f"holds a message of {BROKER}" in answer.coverage[0].note


def test_bytes_in_a_body_that_look_like_a_record_are_not_found(tmp_path):
    plain = make_store(tmp_path / "plain", [Sent(body=b"x" * 400)])
    at = plain.segment_path(0).read_bytes().index(b"x" * 400)
    forged = make_store(tmp_path / "forged", [Sent(topic="Forged")])
    content = bytearray(forged.segment_path(0).read_bytes()[: forged.records[0].total_size])
    content[28:36] = at.to_bytes(8)
    made = make_store(tmp_path / "store", [Sent(body=bytes(content).ljust(400, b"x")), Sent()])
    with rocketlens.open_store(made.path) as store:
        for offset in (at, 1, 10**9):
            with pytest.raises(MessageNotFound):
                store.view_message(offset_id(offset))
        assert store.view_message(offset_id(0)).body.startswith(bytes(content))


def test_what_is_before_the_log_is_deleted_and_the_answer_says_so(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), segment_bytes=1 << 13)
    made.segment_path(0).unlink()
    with rocketlens.open_store(made.path) as store:
        answer = store.find(offset_id(0), kind="offset-id")
    assert (len(answer), answer.complete) == (0, True)
    assert "what was before is deleted" in answer.coverage[0].note


def test_a_damaged_record_is_incomplete_for_its_own_broker_alone(tmp_path):
    made = make_store(tmp_path / "store", some_messages(10))
    record = made.records[4]
    flip(made.segment_path(0), record.physical_offset + 90)
    with rocketlens.open_store(made.path) as store:
        with pytest.raises(AnswerIncomplete):
            store.view_message(offset_id(record.physical_offset))
        with pytest.raises(MessageNotFound):
            store.view_message(offset_id(record.physical_offset, Host("10.0.0.8", 10911)))


def test_a_message_of_another_topic_is_left_out_and_its_topic_named(made, store):
    record = next(r for r in made.records if r.topic == "Topic1")
    answer = store.find(offset_id(record.physical_offset), "Topic2", kind="offset-id")
    assert (len(answer), answer.complete) == (0, True)
    assert "is a message of topic Topic1" in answer.coverage[0].note
