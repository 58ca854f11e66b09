"""What a group did with a message follows from facts, and what they don't decide is not guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats.commitlog_record import message_of
from rocketlens.query.facts.group_state import GroupFacts, GroupState, Subscribed, judge, passes
from tests.unit.conftest import record

MESSAGE = message_of(record(0, queue_offset=7, properties=b"TAGS\x01A\x02amount\x0112\x02"))
ALL = Subscribed("TAG", "*", ("*",))

SUBSCRIBED = "it goes on at offset {}, and its clients subscribe to it; a reset would look the same"


def facts(**given):
    ours = {"is_online": True, "subscribes": True, "subscribed": ALL, "has_offsets": True}
    return GroupFacts("g", **{**ours, "consumer_offset": 8, **given})


@pytest.mark.parametrize(
    ("given", "state", "rests_on"),
    [
        ({}, "consumed", SUBSCRIBED.format(8)),
        ({"consumer_offset": 7}, "not_yet", "it goes on at offset 7"),
        (
            {"consumer_offset": 7, "is_online": False},
            "not_yet",
            "it goes on at offset 7; no client is online",
        ),
        (
            {"consumer_offset": 7, "subscribes": False},
            "not_yet",
            "it goes on at offset 7; its clients do not subscribe to the topic now",
        ),
        ({"consumer_offset": None}, "not_yet", "it has no offset in this queue"),
        (
            {"is_online": False, "subscribes": None},
            "passed_offline",
            (
                "it goes on at offset 8; no client is online: it consumed it before, or a reset "
                "skipped it"
            ),
        ),
        (
            {"is_online": None, "subscribes": None},
            "passed",
            (
                "it goes on at offset 8; whether it consumed it, or filtered or skipped it, is not "
                "recorded"
            ),
        ),
        (
            {"subscribes": False, "subscribed": None},
            "passed",
            "it goes on at offset 8, but its clients do not subscribe to the topic now",
        ),
        (
            {"subscribed": Subscribed("TAG", "B || C", ("B", "C"))},
            "filtered",
            "it goes on at offset 8; its clients subscribe to B || C",
        ),
        (
            {"subscribed": Subscribed("TAG", "", ("B",))},
            "filtered",
            "it goes on at offset 8; its clients subscribe to nothing",
        ),
        (
            {"subscribed": Subscribed("SQL92", "amount > 20")},
            "filtered",
            "it goes on at offset 8; its clients subscribe to amount > 20",
        ),
        (
            {"subscribed": Subscribed("SQL92", "amount > 10")},
            "consumed",
            SUBSCRIBED.format(8),
        ),
        ({"subscribed": Subscribed("SQL92", "amount >")}, "consumed", SUBSCRIBED.format(8)),
        (
            {"consumer_offset": 5_000, "pull_offset": 7},
            "passed_by_reset",
            "it goes on at offset 5000, but its last pull began at 7: a reset moved it past",
        ),
        ({"consumer_offset": 5_000, "pull_offset": 8}, "consumed", SUBSCRIBED.format(5000)),
        ({"consumer_offset": 5_000, "pull_offset": -1}, "consumed", SUBSCRIBED.format(5000)),
        ({"consumer_offset": 1_000, "pull_offset": 7}, "consumed", SUBSCRIBED.format(1000)),
        ({"has_offsets": None}, "unknown", "its offsets are not known"),
        (
            {"has_offsets": False, "consumer_offset": None},
            "not_yet",
            "it has no offset in this queue",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "subscribes": False},
            "never_subscribed",
            "it has no offset in topic T, and its clients do not subscribe to it",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "is_online": None, "subscribes": None},
            "never_subscribed",
            "it has no offset in topic T",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "message_model": "BROADCASTING"},
            "broadcasting",
            "it consumes by broadcasting: its clients keep their offsets themselves",
        ),
    ],
)
def test_each_row_of_the_table(given, state, rests_on):
    verdict = judge(facts(**given), MESSAGE)
    assert (verdict.state, verdict.rests_on) == (state, rests_on)


@given(
    st.builds(
        GroupFacts,
        group=st.just("g"),
        is_online=st.sampled_from([True, False, None]),
        message_model=st.sampled_from(["CLUSTERING", "BROADCASTING", None]),
        subscribes=st.sampled_from([True, False, None]),
        subscribed=st.sampled_from([None, ALL, Subscribed("TAG", "B", ("B",))]),
        has_offsets=st.sampled_from([True, False, None]),
        consumer_offset=st.none() | st.integers(0, 3_000),
        pull_offset=st.none() | st.integers(-1, 3_000),
    )
)
def test_a_group_is_said_to_be_past_a_message_exactly_if_its_offset_is(known):
    is_past = (known.consumer_offset or 0) > MESSAGE.queue_offset
    state = judge(known, MESSAGE).state
    past = {
        GroupState.CONSUMED,
        GroupState.FILTERED,
        GroupState.PASSED,
        GroupState.PASSED_OFFLINE,
        GroupState.PASSED_BY_RESET,
    }
    if known.has_offsets is None:
        assert state is GroupState.UNKNOWN
    else:
        assert (state in past) == is_past
    if state is GroupState.CONSUMED:
        assert known.is_online
        assert known.subscribes


def test_a_message_without_a_tag_passes_only_subscriptions_to_all():
    untagged = message_of(record(0))
    assert passes(ALL, untagged)
    assert not passes(Subscribed("TAG", "A", ("A",)), untagged)
