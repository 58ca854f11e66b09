"""What a group did with a message follows from facts, and what they don't decide is not guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats.commitlog_record import message_of
from rocketlens.query.group_state import GroupFacts, GroupState, Subscribed, judge, passes
from tests.unit.conftest import record

MESSAGE = message_of(record(0, queue_offset=7, properties=b"TAGS\x01A\x02amount\x0112\x02"))
ALL = Subscribed("TAG", "*", ("*",))


def facts(**given):
    ours = {"is_online": True, "subscribes": True, "subscribed": ALL, "has_offsets": True}
    return GroupFacts("g", **{**ours, "consumer_offset": 8, **given})


@pytest.mark.parametrize(
    ("given", "state", "words"),
    [
        ({}, "consumed", "goes on at offset 8"),
        ({"consumer_offset": 7}, "not_yet", "goes on at offset 7"),
        ({"consumer_offset": 7, "is_online": False}, "not_yet", "no client is online"),
        ({"consumer_offset": None}, "not_yet", "no offset in this queue"),
        ({"is_online": False, "subscribes": None}, "passed_offline", "no client is online"),
        ({"is_online": None, "subscribes": None}, "passed", "is not recorded"),
        ({"subscribes": False, "subscribed": None}, "passed", "do not subscribe"),
        ({"subscribed": Subscribed("TAG", "B || C", ("B", "C"))}, "filtered", "B || C"),
        ({"subscribed": Subscribed("SQL92", "amount > 20")}, "filtered", "amount > 20"),
        ({"subscribed": Subscribed("SQL92", "amount > 10")}, "consumed", ""),
        ({"subscribed": Subscribed("SQL92", "amount >")}, "consumed", ""),
        ({"consumer_offset": 5_000, "pull_offset": 7}, "passed_by_reset", "began at 7"),
        ({"consumer_offset": 5_000, "pull_offset": 8}, "consumed", ""),
        ({"consumer_offset": 5_000, "pull_offset": -1}, "consumed", ""),
        ({"consumer_offset": 1_000, "pull_offset": 7}, "consumed", "a reset would look the same"),
        ({"has_offsets": None}, "unknown", "not known"),
        ({"has_offsets": False, "consumer_offset": None}, "not_yet", "no offset"),
        (
            {"has_offsets": False, "consumer_offset": None, "subscribes": False},
            "never_subscribed",
            "do not subscribe",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "is_online": None, "subscribes": None},
            "never_subscribed",
            "no offset in topic T",
        ),
        (
            {"has_offsets": False, "consumer_offset": None, "message_model": "BROADCASTING"},
            "broadcasting",
            "themselves",
        ),
    ],
)
def test_each_row_of_the_table(given, state, words):
    verdict = judge(facts(**given), MESSAGE)
    assert verdict.state == state
    assert words in verdict.rests_on


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
