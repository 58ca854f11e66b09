"""Logging in: right and wrong passwords, waits, and what the audit log says of them."""

import asyncio
import base64
import io
import json

import pytest

from rocketlens.console.login.audit import AuditFailed, AuditLog
from rocketlens.console.login.logins import MAX_WAITING_LOGINS, LoginRefused, Logins, LoginTooSoon
from rocketlens.console.login.users import PasswordHash
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
    assert len(logins.sessions) == 0


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

    logins = Logins(users(), AuditLog(Full(), errors=io.StringIO()))
    with pytest.raises(AuditFailed):
        log_in(logins)
    assert len(logins.sessions) == 0
