"""What a record proves of its message: state, topic, group, and when it is due."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from rocketlens.model.life import (
    GroupTopic,
    LifeState,
    copy_topics_of,
    delivered_ms,
    due_ms,
    due_text,
    group_topics,
    life_of,
    origin_topics,
)
from rocketlens.query.story.story_events import EventKind
from tests.support.story_world import copy, retried, waiting
from tests.unit.conftest import NOON_MS

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


def time_of(after_ms):
    return (
        datetime.fromtimestamp((NOON_MS + after_ms) / 1000).astimezone().isoformat(" ", "seconds")
    )


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        (SCHEDULE, {"DELAY": "1"}, NOON_MS + 1000),
        (SCHEDULE, {"DELAY": "18"}, NOON_MS + 7_200_000),
        (SCHEDULE, {"DELAY": "19"}, None),
        (SCHEDULE, {"DELAY": "0"}, None),
        (SCHEDULE, {"DELAY": "\u0663"}, NOON_MS + 10_000),
        (SCHEDULE, {}, None),
        (TIMER, {"TIMER_OUT_MS": "1795509906000"}, 1795509906000),
        (TIMER, {"TIMER_OUT_MS": "9" * 19}, None),
        (TIMER, {"TIMER_OUT_MS": "9" * 5000}, None),
        (TIMER, {"TIMER_OUT_MS": "-5"}, None),
        ("T", {"DELAY": "3", "TIMER_OUT_MS": "5"}, None),
    ],
)
def test_a_copy_is_due_by_its_level_or_its_timer(topic, properties, expected):
    assert due_ms(copy(topic, 0, 3, properties)) == expected


def test_a_copy_that_waits_says_when_it_is_due_and_in_how_long():
    timed = copy(TIMER, 0, 3, {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(NOON_MS + 7_140_000)})
    assert due_text(timed, (), NOON_MS) == f"due {time_of(7_140_000)}, in 1 h 59 min"
    delayed = copy(SCHEDULE, 0, 3, {"REAL_TOPIC": "T", "DELAY": "3"})
    level = "(delay level 3, 10s by default)"
    assert (
        due_text(delayed, (), NOON_MS + 75_000) == f"due {time_of(10_000)}, 1 min 5 s ago {level}"
    )
    unknown = copy(SCHEDULE, 0, 3, {"DELAY": "x"})
    assert due_text(unknown, (), 0) == "its due time is unknown (delay level x)"
    assert due_text(copy(), (), 0) is None


def test_a_copy_whose_message_was_delivered_says_when():
    delayed = copy(SCHEDULE, 5, 3, {"REAL_TOPIC": "T", "DELAY": "3"})
    others = [delayed, copy("U", 5), copy("T"), copy("T", 12_000), copy("T", 99_000)]
    assert delivered_ms(delayed, others) == NOON_MS + 12_000
    assert due_text(delayed, others, 0).startswith(f"delivered at {time_of(12_000)}")
    # A retry is delivered as the retry of its own number.
    assert delivered_ms(waiting(2, 0), [retried(1, 5), retried(2, 9)]) == NOON_MS + 9


def test_a_time_beyond_the_calendar_is_shown_as_a_number():
    far = copy(TIMER, 0, 3, {"TIMER_OUT_MS": str(2**62)})
    assert due_text(far, (), 0).startswith(f"due {2**62} ms, in ")


def test_show_says_when_a_message_is_due(run, write_store):
    late = {"REAL_TOPIC": "T", "KEYS": "k", "TIMER_OUT_MS": "4102444800000"}
    store = write_store({"topic": TIMER, "properties": late}, name="late")
    done = run("show", "k", "--store", store)
    assert done.code == 0
    assert "Kept for later" in done.out
    assert "due 2100-01-01" in done.out or "due 2099-12-31" in done.out


POP = {"1ST_POP_TIME": "1"}


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("T", {}, (LifeState.STORED, "T", None)),
        (SCHEDULE, {"REAL_TOPIC": "T", "DELAY": "3"}, (LifeState.DELAYED, "T", None)),
        (
            SCHEDULE,
            {"REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "T", "DELAY": "3"},
            (LifeState.DELAYED, "T", "g"),
        ),
        (TIMER, {"REAL_TOPIC": "T", "TIMER_OUT_MS": "5"}, (LifeState.TIMED, "T", None)),
        (TIMER, {"REAL_TOPIC": "T", "TIMER_DEL_UNIQKEY": "K"}, (LifeState.RECALL, "T", None)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "T"}, (LifeState.HALF, "T", None)),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", {"REAL_TOPIC": "T"}, (LifeState.HALF, "T", None)),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"}, (LifeState.ENDED, None, None)),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "T"}, (LifeState.GIVEN_UP, "T", None)),
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, (LifeState.RETRY, "T", "g")),
        ("%RETRY%g_T", {"RETRY_TOPIC": "T"}, (LifeState.RETRY, "T", "g_T")),
        ("%RETRY%a_b_T", {**POP, "ORIGIN_GROUP": "a_b"}, (LifeState.RETRY, "T", "a_b")),
        ("%RETRY%a_b_T", {**POP, "ORIGIN_GROUP": "a"}, (LifeState.RETRY, "b_T", "a")),
        ("%RETRY%g+T", POP, (LifeState.RETRY, "T", "g")),
        ("%RETRY%g_T", POP, (LifeState.RETRY, None, "g_T")),
        ("%DLQ%g", {"DLQ_ORIGIN_TOPIC": "T"}, (LifeState.DEAD_LETTER, "T", "g")),
        (
            "%DLQ%g",
            {**POP, "ORIGIN_GROUP": "g", "DLQ_ORIGIN_TOPIC": "%RETRY%g_T"},
            (LifeState.DEAD_LETTER, "T", "g"),
        ),
        ("rmq_sys_REVIVE_LOG_c", {"TAGS": "ck"}, (LifeState.HANDED_OUT, None, None)),
        (
            TIMER,
            {"TAGS": "ack", "REAL_TOPIC": "rmq_sys_REVIVE_LOG_c"},
            (LifeState.ACKNOWLEDGED, None, None),
        ),
    ],
)
def test_a_record_proves_a_state_a_topic_and_a_group(topic, properties, expected):
    assert life_of(copy(topic, 0, 3, properties))[:3] == expected


@pytest.mark.parametrize("named", ["", "a/b", "\u202e", "T" * 256, "-\x1b[2J"])
@pytest.mark.parametrize(
    ("topic", "name"),
    [(SCHEDULE, "REAL_TOPIC"), ("%RETRY%g", "RETRY_TOPIC"), ("%DLQ%g", "DLQ_ORIGIN_TOPIC")],
)
def test_a_property_that_no_topic_can_be_is_not_known(topic, name, named):
    properties = {name: named, "REAL_QID": "-1", "DELAY": "3"}
    assert life_of(copy(topic, 0, 3, properties)).topic is None


def test_each_state_and_each_event_of_a_story_is_in_the_table():
    text = (Path(__file__).parents[3] / "docs/reference/life.md").read_text("utf-8")
    first, second = (
        part.partition("\n\n")[0].splitlines()[1:] for part in text.split("| state |")[1:]
    )
    names = [[row.split("|")[1] for row in rows] for rows in (first, second)]
    assert names[0][1:] == names[1][1:]
    of_records, of_stories = (
        {name for row in second[1:] for name in re.findall(r"`(\w+)`", row.split("|")[column])}
        for column in (2, 3)
    )
    assert of_records == set(LifeState)
    assert of_stories | {"sent", "consumed", "consume_failed"} == set(EventKind)


def test_a_commit_is_told_by_its_flags():
    assert life_of(copy(sys_flag=8)).state is LifeState.COMMITTED


def test_the_topic_of_the_message_tells_where_the_name_of_a_group_ends():
    life = life_of(copy("%RETRY%a_b_T", 0, 3, POP), ("T",))
    assert (life.group, life.topic) == ("a_b", "T")


def test_retry_topics_of_pop_are_those_of_known_groups():
    whole, pop = GroupTopic("a_b_c"), GroupTopic("a", "b_c")
    assert group_topics("%RETRY%a_b_c") == (whole,)
    assert group_topics("%RETRY%a_b_c", {"a"}, {"b_c"}) == (pop,)
    assert group_topics("%RETRY%a_b_c", {"a"}) == (pop,)
    assert group_topics("%RETRY%a_b_c", {"a", "a_b"}, {"b_c", "c"}) == (pop, GroupTopic("a_b", "c"))
    assert group_topics("%RETRY%a_b_c", {"a_b_c", "a"}, {"b_c"}) == (whole, pop)
    assert group_topics("%RETRY%a+b_c") == (pop,)
    assert group_topics("%DLQ%a_b", {"a"}, {"b"}) == (GroupTopic("a_b"),)
    assert group_topics("T") == ()


def test_a_name_that_several_groups_can_have_made_is_told():
    copies = copy_topics_of(["%RETRY%a_b_c", "%RETRY%x+c", "b_c", "c"], {"a", "a_b"})
    assert copies.by_group == {"a": {"%RETRY%a_b_c"}, "a_b": {"%RETRY%a_b_c"}, "x": {"%RETRY%x+c"}}
    assert copies.notes() == [
        "%RETRY%a_b_c can be the retry topic of each of a, a_b: RocketMQ's names are ambiguous"
    ]


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("T", {}, ()),
        ("%RETRY%g", {"RETRY_TOPIC": "T"}, ("T",)),
        ("%RETRY%a_b_c", {**POP, "ORIGIN_GROUP": "a"}, ("b_c",)),
        ("%RETRY%g+T", {}, ("T",)),
        # Its group is not known: it can be of each.
        ("%RETRY%a_b_c", POP, ("b_c", "c")),
    ],
)
def test_a_copy_can_be_of_topics_that_its_name_has(topic, properties, expected):
    assert origin_topics(topic, properties) == expected
