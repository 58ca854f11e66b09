"""Sessions end in time and are few; failed logins slow down who failed, and no other."""

import pytest

from rocketlens.console.login.logins import (
    MAX_LOGIN_FAILURES,
    MAX_SESSION_IDLE_S,
    MAX_SESSION_S,
    MAX_USER_SESSIONS,
    Attempts,
    Sessions,
)
from rocketlens.console.login.viewer import Viewer
from tests.support.clocks import Seconds

LI, WU = Viewer("li"), Viewer("wu")


@pytest.fixture
def clock():
    return Seconds()


def test_a_token_opens_its_session_until_it_ends(clock):
    sessions = Sessions(clock)
    one, other = sessions.begin(LI), sessions.begin(WU)
    assert one != other
    assert (sessions.viewer_of(one), sessions.viewer_of(other)) == (LI, WU)
    sessions.end(one)
    sessions.end("never begun")
    assert (sessions.viewer_of(one), sessions.viewer_of(other)) == (None, WU)
    assert sessions.viewer_of("") is None


def test_a_console_has_a_bounded_number_of_sessions(clock, monkeypatch):
    monkeypatch.setattr("rocketlens.console.login.logins.MAX_SESSIONS", 3)
    sessions = Sessions(clock)
    tokens = []
    for number in range(3):
        clock.now_s += 1
        tokens.append(sessions.begin(Viewer(f"user-{number}")))
    clock.now_s += 1
    sessions.viewer_of(tokens[0])
    sessions.begin(LI)
    assert len(sessions) == 3
    # The one that was not used for longest.
    opened = [sessions.viewer_of(each) is not None for each in tokens]
    assert opened == [True, False, True]


def test_a_session_returns_the_id_token_that_it_began_with_at_its_end(clock):
    sessions = Sessions(clock)
    local, other = sessions.begin(LI), sessions.begin(WU, "token")
    assert (sessions.end(local), sessions.end(other)) == (None, "token")
    assert (sessions.end(other), sessions.end("never begun")) == (None, None)


def test_a_session_that_is_not_used_ends(clock):
    sessions = Sessions(clock)
    token = sessions.begin(LI)
    clock.now_s += MAX_SESSION_IDLE_S - 1
    assert sessions.viewer_of(token) is LI
    clock.now_s += MAX_SESSION_IDLE_S - 1
    assert sessions.viewer_of(token) is LI
    clock.now_s += MAX_SESSION_IDLE_S
    assert sessions.viewer_of(token) is None
    assert len(sessions) == 0


def test_a_session_ends_however_much_it_is_used(clock):
    sessions = Sessions(clock)
    token = sessions.begin(LI)
    for _ in range(MAX_SESSION_S // 3600 - 1):
        clock.now_s += 3600
        assert sessions.viewer_of(token) is LI
    clock.now_s += 3600
    assert sessions.viewer_of(token) is None


def test_a_user_has_few_sessions_and_ends_only_own_ones(clock):
    sessions = Sessions(clock)
    of_wu = sessions.begin(WU)
    tokens = []
    for _ in range(MAX_USER_SESSIONS + 1):
        clock.now_s += 1
        tokens.append(sessions.begin(LI))
    assert [sessions.viewer_of(each) is None for each in tokens] == [True] + [False] * (
        MAX_USER_SESSIONS
    )
    assert sessions.viewer_of(of_wu) is WU


def test_sessions_that_ended_are_not_kept(clock):
    sessions = Sessions(clock)
    sessions.begin(LI)
    clock.now_s += MAX_SESSION_IDLE_S
    sessions.begin(WU)
    assert len(sessions) == 1


def test_a_token_is_not_kept_as_it_is(clock):
    sessions = Sessions(clock)
    token = sessions.begin(LI)
    assert token not in repr(vars(sessions))


def test_failures_slow_down_their_pair_and_no_other(clock):
    attempts = Attempts(clock)
    for _ in range(3):
        assert attempts.wait_s("li", "10.0.0.1") == 0
        attempts.failed("li", "10.0.0.1")
    assert attempts.wait_s("li", "10.0.0.1") == 1
    assert attempts.wait_s("li", "10.0.0.2") == 0
    assert attempts.wait_s("wu", "10.0.0.1") == 0
    clock.now_s += 1
    assert attempts.wait_s("li", "10.0.0.1") == 0
    attempts.failed("li", "10.0.0.1")
    assert attempts.wait_s("li", "10.0.0.1") == 2


def test_a_wait_is_bounded_and_ends_with_a_success_or_an_hour(clock):
    attempts = Attempts(clock)
    for _ in range(5000):
        attempts.failed("li", "a")
    assert attempts.wait_s("li", "a") == 60
    clock.now_s += 3600
    assert attempts.wait_s("li", "a") == 0
    attempts.failed("li", "a")
    assert attempts.wait_s("li", "a") == 0
    for _ in range(5):
        attempts.failed("li", "a")
    attempts.succeeded("li", "a")
    assert attempts.wait_s("li", "a") == 0


def test_names_and_addresses_are_not_taken_for_one_another(clock):
    attempts = Attempts(clock)
    for _ in range(5):
        attempts.failed("ab", "c")
    assert attempts.wait_s("a", "bc") == 0


def test_failures_are_remembered_within_a_bound(clock):
    attempts = Attempts(clock)
    for number in range(MAX_LOGIN_FAILURES + 10):
        attempts.failed("x" * 40_000 if number == 0 else str(number), "a")
    assert len(attempts) == MAX_LOGIN_FAILURES


def test_another_address_of_an_ipv6_network_does_not_begin_anew(clock):
    attempts = Attempts(clock)
    for n in range(4):
        attempts.failed("li", f"2001:db8::{n}")
    assert attempts.wait_s("li", "2001:db8::ffff") > 0
    assert attempts.wait_s("li", "2001:db8:0:1::1") == 0
