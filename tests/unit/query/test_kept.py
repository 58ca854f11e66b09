"""A search of a topic finds what brokers keep for it, says until when, and nothing twice."""

import pytest

import rocketlens
from rocketlens.model.life import time_text
from tests.unit.conftest import NOON_MS

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
LATER_MS = 4_102_444_800_000


def kept(topic, unique_key, real="pay", **given):
    properties = {"REAL_TOPIC": real, "KEYS": "order-1", "UNIQ_KEY": unique_key, **given}
    return {"topic": topic, "properties": properties, "store_timestamp_ms": NOON_MS}


def timer(unique_key="U1", **given):
    return kept(TIMER, unique_key, TIMER_OUT_MS=str(LATER_MS), **given)


def delivered(unique_key, **given):
    properties = {"KEYS": "order-1", "UNIQ_KEY": unique_key}
    given = {"store_timestamp_ms": NOON_MS + 9, **given}
    return {"topic": "pay", "properties": properties, **given}


def found(path, *question, **options):
    with rocketlens.open_store(path) as store:
        answer = store.find(*question, **options)
    return answer, [each.note for each in answer.coverage if each.source == "waiting"]


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (("order-1", "pay"), {}),
        (("U1", "pay"), {}),
        (("order-1", "p*"), {}),
        ((None, "pay"), {"max_num": 3}),
        ((None, "pay"), {"begin": NOON_MS - 5, "max_num": 3}),
    ],
)
def test_a_message_that_waits_is_found_by_its_topic(write_store, monkeypatch, question, options):
    monkeypatch.setattr("time.time_ns", lambda: (NOON_MS + 1) * 1_000_000)
    path = write_store(timer(), timer("U2", REAL_TOPIC="other"), {"topic": "pay"})
    answer, notes = found(path, *question, **options)
    assert answer.complete
    assert [each.topic for each in answer if each.topic != "pay"] == [TIMER]
    assert len(notes) == 1
    assert notes[0].startswith(f"{TIMER}/0/0 waits for pay: due ")
    alone, notes = found(path, *question, only_delivered=True, **options)
    assert TIMER not in [each.topic for each in alone]
    assert notes == []


@pytest.mark.parametrize("question", [("order-1", "pay"), (None, "pay")])
def test_what_waits_in_a_copied_store_is_not_called_late(write_store, run, question):
    path = write_store(kept(SCHEDULE, "U1", DELAY="3"), delivered("U2"))
    answer, notes = found(path, *question, max_num=3)
    assert [each.unique_key for each in answer if each.topic == SCHEDULE] == ["U1"]
    due, end = (time_text(NOON_MS + after_ms) for after_ms in (10_000, 9))
    known = f"due {due} (delay level 3, 10s by default); the newest message there is of {end}"
    assert notes == [f"{SCHEDULE}/0/0 waits for pay: {known}"]
    with rocketlens.open_store(path) as store:
        assert any(known in each.text for each in store.story("U1").events)
    assert known in run("show", "U1", "--store", path).out


def test_its_id_finds_it_too(write_store):
    path = write_store(timer(), {"topic": "other"})
    msg_id = found(path, "order-1")[0].messages[0].offset_msg_id
    assert len(found(path, msg_id, "pay")[0]) == 1
    assert len(found(path, msg_id, "other")[0]) == 0


@pytest.mark.parametrize("topic", [SCHEDULE, HALF])
def test_what_was_delivered_is_there_once(write_store, topic):
    path = write_store(kept(topic, "U1", DELAY="3"), kept(topic, "U2", DELAY="3"), delivered("U1"))
    answer, notes = found(path, "order-1", "pay")
    assert [each.position for each in answer] == [f"{topic}/0/1", "pay/0/2"]
    assert len(notes) == 1


def test_a_recalled_message_is_said_to_be_recalled(write_store):
    path = write_store(timer(), timer(TIMER_DEL_UNIQKEY="U1"))
    answer, notes = found(path, "order-1", "pay")
    assert len(answer) == 1
    assert "recalled at" in notes[0]


def test_what_was_delivered_is_not_among_the_newest(write_store):
    path = write_store(kept(SCHEDULE, "U1", DELAY="3"), delivered("U1"))
    assert [each.topic for each in found(path, None, "pay", max_num=9)[0]] == ["pay"]


def test_system_topics_are_searched_alone(write_store):
    path = write_store(timer(), {"topic": SCHEDULE, "properties": {"KEYS": "order-1"}})
    assert [each.topic for each in found(path, "order-1", SCHEDULE)[0]] == [SCHEDULE]
