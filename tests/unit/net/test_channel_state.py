"""The table of the states of a connection."""

import re

import pytest

from rocketlens.net import channel_state
from rocketlens.net.channel_state import NEXT, OPEN, QUEUED, State, Step


def test_the_documented_states_and_steps_are_those_of_the_table():
    states, steps = re.findall(
        r"\n=+ +=+\n(?:state|step) .*?\n=+ +=+\n(.*?)\n=+", channel_state.__doc__, re.DOTALL
    )
    assert re.findall(r"^[A-Z_]+", states, re.MULTILINE) == [state.name for state in State]
    assert re.findall(r"^[A-Z_]+", steps, re.MULTILINE) == [step.name for step in Step]
    assert list(NEXT) == list(State)
    assert {step for steps in NEXT.values() for step in steps} == set(Step)


def test_every_state_can_be_reached_and_left():
    reached = {State.CONNECTING}
    while more := {state for each in reached for state in NEXT[each].values()} - reached:
        reached |= more
    assert reached == set(State)
    assert {steps[Step.END] for steps in NEXT.values()} == {State.CLOSED}
    assert set(NEXT[State.CLOSED].values()) == {State.CLOSED}


def test_a_connection_that_was_closed_opens_no_more():
    assert OPEN.isdisjoint(NEXT[State.CLOSED].values())
    for state in OPEN:
        assert State.CONNECTING not in NEXT[state].values()


def test_only_a_queued_connection_is_called():
    called = {state for state, steps in NEXT.items() if Step.CALL in steps}
    assert called == QUEUED | {State.CLOSED}


def test_a_stopped_connection_handles_nothing():
    stopped = {NEXT[state][Step.STOP] for state in OPEN}
    assert stopped == {State.STOPPED, State.STOPPED_WAITS}
    for state in stopped:
        assert State.TURN not in NEXT[state].values()


def test_a_connection_is_new_until_its_first_turn():
    entered = {state for state, steps in NEXT.items() if State.NEW_WAITS in steps.values()}
    assert entered == {State.NEW}
    assert [state for state, steps in NEXT.items() if State.NEW in steps.values()] == [
        State.CONNECTING,
        State.NEW,
        State.NEW_WAITS,
    ]


def test_a_step_that_a_state_does_not_have_is_a_defect():
    with pytest.raises(KeyError):
        NEXT[State.WAITS][Step.BEGIN]
