"""Logging in: right and wrong passwords, waits, and what the audit log says of them.

Sessions end in time and are few; failed logins slow down who failed, and no other.
The audit log: one line of JSON for each event, whatever others wrote, or an error.
"""

import asyncio
import base64
import io
import json

import pytest

from rocketlens import limits
from rocketlens.console.login.audit import AuditFailed, AuditLog
from rocketlens.console.login.logins import (
    MAX_LOGIN_FAILURES,
    MAX_SESSION_IDLE_S,
    MAX_SESSION_S,
    MAX_USER_SESSIONS,
    MAX_WAITING_LOGINS,
    Attempts,
    LoginRefused,
    Logins,
    LoginTooSoon,
    Sessions,
)
from rocketlens.console.login.users import PasswordHash
from rocketlens.console.login.viewer import Viewer, seen_by
from rocketlens.console.pages import failure_of
from tests.support.clocks import Seconds
from tests.support.console_users import PASSWORD, users


@pytest.fixture
def file():
    return io.StringIO()


@pytest.fixture
def clock():
    return Seconds()


@pytest.fixture
def logins(file, clock):
    return Logins(users(), AuditLog(file), clock)


def log_in(logins, name="root", password=PASSWORD, address="10.0.0.1"):
    return asyncio.run(logins.log_in(name, password, address))


def basic(logins, text, address="10.0.0.1"):
    encoded = base64.b64encode(text.encode()).decode()
    return asyncio.run(logins.viewer_of(f"Basic {encoded}", address))


def events(file):
    return [(each["event"], each["user"]) for each in map(json.loads, file.getvalue().splitlines())]


def test_a_session_begins_with_the_right_password_and_ends_with_a_logout(logins, file):
    token = log_in(logins)
    assert logins.sessions.viewer_of(token).name == "root"
    logins.log_out(token, "10.0.0.1")
    logins.log_out(token, "10.0.0.1")
    assert logins.sessions.viewer_of(token) is None
    assert events(file) == [("login", "root"), ("logout", "root")]


def test_a_wrong_password_is_refused_and_written_down_without_it(logins, file):
    for name, password in (("root", "wrong-one"), ("wu", PASSWORD)):
        with pytest.raises(LoginRefused, match="name or the password"):
            log_in(logins, name, password)
    assert events(file) == [("refused", "root"), ("refused", "wu")]
    assert "wrong-one" not in file.getvalue()
    assert len(logins.sessions._by_hash) == 0


def test_after_failures_the_right_password_has_to_wait_too_but_not_elsewhere(logins, clock):
    for _ in range(3):
        with pytest.raises(LoginRefused):
            log_in(logins, password="wrong")
    with pytest.raises(LoginTooSoon) as caught:
        log_in(logins)
    assert caught.value.wait_s == 1
    assert log_in(logins, address="10.0.0.2")
    clock.now_s += 1
    assert log_in(logins)
    with pytest.raises(LoginRefused):
        log_in(logins, password="wrong")


def test_many_wrong_passwords_at_once_are_slowed_as_if_one_after_the_other(logins):
    async def all_at_once():
        tried = [logins.log_in("root", f"wrong {n}", "10.0.0.1") for n in range(9)]
        return await asyncio.gather(*tried, return_exceptions=True)

    kinds = [type(each) for each in asyncio.run(all_at_once())]
    assert kinds == [LoginRefused] * 3 + [LoginTooSoon] * 6


def test_few_passwords_are_checked_at_once(logins, monkeypatch):
    async def run():
        going = asyncio.Event()

        async def waits(_self, _password):
            await going.wait()
            return False

        monkeypatch.setattr(PasswordHash, "fits", waits)
        tried = [
            asyncio.ensure_future(logins.log_in(f"u{n}", "x", "a"))
            for n in range(MAX_WAITING_LOGINS + 1)
        ]
        done, _ = await asyncio.wait(tried, return_when=asyncio.FIRST_COMPLETED)
        assert [type(each.exception()) for each in done] == [LoginTooSoon]
        going.set()
        return await asyncio.gather(*tried, return_exceptions=True)

    kinds = [type(each) for each in asyncio.run(run())]
    assert kinds == [LoginRefused] * MAX_WAITING_LOGINS + [LoginTooSoon]


def test_a_program_sends_its_password_each_time_and_it_is_hashed_seldom(
    logins, file, clock, monkeypatch
):
    hashed = []
    fits = PasswordHash.fits

    async def counted(self, password):
        hashed.append(password)
        return await fits(self, password)

    monkeypatch.setattr(PasswordHash, "fits", counted)
    for _ in range(3):
        assert basic(logins, f"root:{PASSWORD}").name == "root"
    assert hashed == [PASSWORD]
    with pytest.raises(LoginRefused):
        basic(logins, f"root:{PASSWORD}x")
    clock.now_s += 300
    assert basic(logins, f"root:{PASSWORD}").name == "root"
    assert hashed == [PASSWORD, f"{PASSWORD}x", PASSWORD]
    assert events(file) == [("login", "root"), ("refused", "root"), ("login", "root")]
    assert PASSWORD not in repr(vars(logins))


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic ***", "Basic cm9vdA==", "Bearer cm9vdDp4", "Basic /////w=="]
)
def test_a_header_of_another_form_is_refused(logins, header):
    with pytest.raises(LoginRefused):
        asyncio.run(logins.viewer_of(header, "10.0.0.1"))


def test_without_a_log_that_can_be_written_no_session_begins():
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    logins = Logins(users(), AuditLog(Full()))
    with pytest.raises(AuditFailed):
        log_in(logins)
    assert len(logins.sessions._by_hash) == 0


LI, WU = Viewer("li"), Viewer("wu")


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
    assert len(sessions._by_hash) == 3
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
    assert len(sessions._by_hash) == 0


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
    assert len(sessions._by_hash) == 1


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
    assert len(attempts._failures) == MAX_LOGIN_FAILURES


def test_another_address_of_an_ipv6_network_does_not_begin_anew(clock):
    attempts = Attempts(clock)
    for n in range(4):
        attempts.failed("li", f"2001:db8::{n}")
    assert attempts.wait_s("li", "2001:db8::ffff") > 0
    assert attempts.wait_s("li", "2001:db8:0:1::1") == 0


AT_NS = 1_700_000_000_123_456_789


def test_a_line_has_who_when_from_where_and_what():
    audit_file = io.StringIO()
    with seen_by(Viewer("li")):
        AuditLog(audit_file, lambda: AT_NS).record(
            "view", address="10.0.0.7", topic="order", offset=7
        )
    assert json.loads(audit_file.getvalue()) == {
        "time": "2023-11-14T22:13:20.123Z",
        "event": "view",
        "user": "li",
        "address": "10.0.0.7",
        "topic": "order",
        "offset": 7,
    }


def test_another_user_can_be_named_who_is_not_logged_in():
    audit_file = io.StringIO()
    AuditLog(audit_file).record("refused", user="wu")
    assert json.loads(audit_file.getvalue())["user"] == "wu"


@pytest.mark.parametrize("forged", ['x\n{"event":"login"}', "x\r\u2028\u202e\x1b[2J", "\ud800"])
def test_what_others_wrote_stays_in_its_line(forged):
    audit_file = io.StringIO()
    AuditLog(audit_file).record("refused", user=forged, topic=forged)
    (line,) = audit_file.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["user"] == forged


def test_a_long_text_is_cut():
    audit_file = io.StringIO()
    AuditLog(audit_file).record("refused", user="x" * 99_999)
    assert len(audit_file.getvalue()) < limits.MAX_AUDIT_CHARACTERS + 200


def test_a_log_that_cannot_be_written_is_an_error_and_is_reported(capsys):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    with pytest.raises(AuditFailed, match="No space left"):
        AuditLog(Full()).record("resend")
    assert "No space left" in capsys.readouterr().err


def test_a_closed_log_is_an_error():
    audit_file = io.StringIO()
    audit_file.close()
    with pytest.raises(AuditFailed):
        AuditLog(audit_file).record("resend")


def test_without_a_file_nothing_is_written():
    AuditLog().record("view")


def test_an_act_that_cannot_be_audited_is_unavailable_wherever_it_fails():
    assert failure_of(AuditFailed("the audit log cannot be written")).status == 503
