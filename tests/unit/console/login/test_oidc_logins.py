"""The flow of a login by a provider: what it is tied to, what ends it, and what is written down."""

import asyncio
import io
import json
import logging
from urllib.parse import parse_qsl, urlsplit

import pytest

from rocketlens.console.login.audit import AuditFailed, AuditLog
from rocketlens.console.login.logins import MAX_SESSION_IDLE_S, Sessions
from rocketlens.console.login.oidc_logins import (
    FAILURE_STATUS,
    MAX_OIDC_COOKIE_CHARACTERS,
    MAX_OIDC_GROUPS,
    MAX_OIDC_HINT_CHARACTERS,
    MAX_OIDC_LOGIN_S,
    OidcLogins,
)
from rocketlens.console.login.oidc_provider import OidcFailed
from rocketlens.console.login.viewer import Role
from rocketlens.console.preferences import table_of
from tests.support.clocks import Seconds
from tests.support.oidc_world import CLIENT_ID, ISSUED, SECRET, provider, settings

ORIGIN = "http://127.0.0.1:8088"
ADDRESS = "10.0.0.1"


class World:
    """A provider, the logins of a console, and what the console wrote down."""

    def __init__(self, stub, tmp_path, **more):
        self.stub, self.clock, self.file = stub, Seconds(), io.StringIO()
        self.settings = settings(stub.issuer, tmp_path, **more)
        self.sessions = Sessions(self.clock)
        self.logins = self.console()

    def console(self):
        """Give the logins of a console, as after its start."""
        return OidcLogins(self.settings, self.sessions, AuditLog(self.file), self.clock)

    async def begin(self, back="/topics", *, origin=ORIGIN, again=False):
        """Begin a login."""
        return await self.logins.begin(back, origin, ADDRESS, again=again)

    async def finish(self, begun, logins=None, cookie=None, **changed):
        """Log in at the provider, and come back."""
        _, given = self.stub.authorize(begun.address, **changed)
        cookie = begun.cookie if cookie is None else cookie
        return await (logins or self.logins).finish(cookie, given, ADDRESS)

    async def log_in(self, **changed):
        """Log in from begin to end."""
        return await self.finish(await self.begin(), **changed)

    @property
    def written(self):
        """The lines of the audit log."""
        return [json.loads(line) for line in self.file.getvalue().splitlines()]


@pytest.fixture
def in_world(tmp_path):
    def run(work, **more):
        async def inside():
            async with provider() as stub:
                return await work(World(stub, tmp_path, **more))

        return asyncio.run(inside())

    return run


def refused(in_world, work=World.log_in, **more):
    """Give why a login did not succeed, and what was written down."""

    async def run(world):
        with pytest.raises(OidcFailed) as caught:
            await work(world)
        assert len(world.sessions._by_hash) == 0
        (line,) = world.written
        assert (line["event"], line["address"]) == ("refused", ADDRESS)
        assert line["why"] == f"{caught.value.word}: {caught.value}"
        assert line["provider"] == world.stub.issuer
        return caught.value

    return in_world(run, **more)


def query_of(address):
    return dict(parse_qsl(urlsplit(address).query, strict_parsing=True))


def test_a_login_begins_a_session_and_leads_back(in_world):
    async def work(world):
        done = await world.log_in()
        assert done.back == "/topics"
        (line,) = world.written
        assert {name: line[name] for name in ("event", "user", "address", "subject")} == {
            "event": "login",
            "user": "oidc:li",
            "address": ADDRESS,
            "subject": "u-1",
        }
        assert line["provider"] == world.stub.issuer
        return world.sessions.viewer_of(done.token)

    viewer = in_world(work)
    assert viewer.name == "oidc:li"
    assert [each.role for each in viewer.grants] == [Role.ADMIN]


def test_the_provider_is_asked_for_a_code_with_pkce(in_world):
    async def work(world):
        begun = await world.begin()
        assert begun.address.startswith(f"{world.stub.issuer}/authorize?tenant=a&")
        return query_of(begun.address), begun.cookie

    asked, cookie = in_world(work)
    assert asked["redirect_uri"] == f"{ORIGIN}/login/oidc/callback"
    assert (asked["scope"], asked["client_id"]) == ("openid profile email", CLIENT_ID)
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    secrets = [asked[name] for name in ("state", "nonce", "code_challenge")]
    assert len({*secrets, cookie}) == 4
    assert "prompt" not in asked


def test_every_login_has_values_of_its_own(in_world):
    async def work(world):
        return [query_of((await world.begin()).address) for _ in range(2)]

    one, other = in_world(work)
    for name in ("state", "nonce", "code_challenge"):
        assert one[name] != other[name]
        assert len(one[name]) == 43


def test_another_user_can_be_asked_for(in_world):
    async def work(world):
        return query_of((await world.begin(again=True)).address)

    assert in_world(work)["prompt"] == "login"


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:8088", "http://localhost:8088/login/oidc/callback"),
        ("http://[::1]:8088", "http://[::1]:8088/login/oidc/callback"),
        ("http://evil.example", None),
        ("http://10.0.0.5:8088", None),
        ("http://localhost.evil.example", None),
    ],
)
def test_a_host_header_is_believed_only_on_the_browsers_own_machine(in_world, origin, expected):
    async def work(world):
        return query_of((await world.begin(origin=origin)).address)["redirect_uri"]

    if expected is None:
        error = refused(in_world, lambda world: world.begin(origin=origin))
        assert error.word == "elsewhere"
        assert "public_url" in str(error)
    else:
        assert in_world(work) == expected


def test_the_public_address_counts_whatever_a_host_header_says(in_world):
    async def work(world):
        begun = await world.begin(origin="http://evil.example")
        assert (await world.finish(begun)).back == "/topics"
        return query_of(begun.address)["redirect_uri"]

    found = in_world(work, public_url="https://lens.example.com")
    assert found == "https://lens.example.com/login/oidc/callback"


def test_a_long_way_back_is_left_out_rather_than_the_cookie(in_world):
    async def work(world):
        begun = await world.begin(f"/search?q={'x' * 5000}")
        assert len(begun.cookie) <= MAX_OIDC_COOKIE_CHARACTERS
        return (await world.finish(begun)).back

    assert in_world(work) == "/"


async def without_cookie(world):
    return await world.finish(await world.begin(), cookie="")


async def with_the_cookie_of_another_browser(world):
    other = await world.begin()
    return await world.finish(await world.begin(), cookie=other.cookie)


async def with_a_changed_cookie(world):
    begun = await world.begin()
    return await world.finish(begun, cookie=begun.cookie[:-1] + "é")


async def with_another_state(world):
    return await world.log_in(state="x" * 43)


async def with_a_state_that_is_no_text(world):
    return await world.log_in(state="\ud800")


async def without_state(world):
    return await world.log_in(state=None)


async def after_a_restart(world):
    return await world.finish(await world.begin(), logins=world.console())


async def too_late(world):
    begun = await world.begin()
    world.clock.now_s += MAX_OIDC_LOGIN_S + 1
    return await world.finish(begun)


@pytest.mark.parametrize(
    "work",
    [
        without_cookie,
        with_the_cookie_of_another_browser,
        with_a_changed_cookie,
        with_another_state,
        with_a_state_that_is_no_text,
        without_state,
        after_a_restart,
        too_late,
    ],
)
def test_an_answer_for_another_login_is_not_taken_and_not_sent_on(in_world, work):
    async def run(world):
        try:
            return await work(world)
        finally:
            assert world.stub.asked["/token"] == 0

    assert refused(in_world, run).word == "old"


def test_a_code_counts_once(in_world):
    async def work(world):
        begun = await world.begin()
        _, given = world.stub.authorize(begun.address)
        await world.logins.finish(begun.cookie, given, ADDRESS)
        with pytest.raises(OidcFailed, match="invalid_grant, used or unknown") as caught:
            await world.logins.finish(begun.cookie, given, ADDRESS)
        assert len(world.sessions._by_hash) == 1
        return caught.value.word

    assert in_world(work) == "provider"


def test_a_code_of_another_login_is_refused_by_pkce_and_nonce(in_world):
    async def work(world):
        stolen = await world.begin()
        _, given = world.stub.authorize(stolen.address)
        return await world.log_in(code=given["code"])

    assert "PKCE" in str(refused(in_world, work))

    async def replayed(world):
        claims = world.stub.claims("of another login")
        world.stub.forge = lambda _: world.stub.signed(claims)
        return await world.log_in()

    error = refused(in_world, replayed)
    assert error.word == "token"
    assert "nonce" in str(error)


@pytest.mark.parametrize(
    ("changed", "word", "said"),
    [
        ({"error": "access_denied", "code": None}, "denied", "access_denied"),
        ({"error": "access_denied"}, "denied", "access_denied"),
        ({"error": "server_error", "error_description": "a\x1b[2J"}, "provider", "server_error, a"),
        ({"error": ""}, "provider", "refused"),
        ({"code": None}, "provider", "no code"),
        ({"code": ""}, "provider", "no code"),
        ({"code": "x" * 300_000}, "provider", "no code"),
        ({"code": "unknown"}, "provider", "invalid_grant"),
        ({"iss": "https://evil.example"}, "provider", "another provider"),
    ],
)
def test_an_error_of_the_provider_is_no_login(in_world, changed, word, said):
    error = refused(in_world, lambda world: world.log_in(**changed))
    assert error.word == word
    assert said in str(error)
    assert "\x1b" not in str(error)


def test_a_provider_that_names_itself_in_answers_must_do_so(in_world):
    def metadata(world):
        world.stub.more_metadata = {"authorization_response_iss_parameter_supported": True}

    async def without(world):
        metadata(world)
        return await world.log_in()

    async def named(world):
        metadata(world)
        return await world.log_in(iss=world.stub.issuer)

    assert "does not name its provider" in str(refused(in_world, without))
    assert in_world(named).back == "/topics"


def test_a_provider_that_is_not_there_begins_no_login(in_world):
    async def work(world):
        world.stub.replies["/.well-known/openid-configuration"] = 503, b""
        return await world.begin()

    assert refused(in_world, work).word == "unreachable"


def test_a_user_without_a_rule_has_no_access_and_is_named(in_world):
    rules = [{"groups": ["admins"], "role": "admin"}, {"users": ["root"], "role": "admin"}]
    error = refused(in_world, rules=rules)
    assert (error.word, error.user) == ("no_access", "oidc:li")
    assert "staff, shop-ops" in str(error)


def user_with(**claims):
    async def work(world):
        world.stub.user = {**ISSUED, **claims}
        return await world.log_in()

    return work


@pytest.mark.parametrize(
    "name", [None, "", 7, ["li"], "l\ni", " li", "li\u202e", "\x00", "x" * 256, {"a": 1}]
)
def test_a_name_that_cannot_be_one_is_refused(in_world, name):
    error = refused(in_world, user_with(preferred_username=name))
    assert error.word == "token"
    assert "preferred_username is not a name" in str(error)
    assert str(error).isprintable()


@pytest.mark.parametrize("groups", [7, {"admins": True}, [["admins"]], ["admins", 7], True])
def test_groups_that_are_no_texts_are_refused_and_not_ignored(in_world, groups):
    error = refused(in_world, user_with(groups=groups))
    assert "groups is not a list of texts" in str(error)


def test_too_many_groups_are_refused_and_not_cut(in_world):
    error = refused(in_world, user_with(groups=["g"] * (MAX_OIDC_GROUPS + 1)))
    assert "has over 10000 groups" in str(error)


def test_one_group_may_be_a_text(in_world):
    async def work(world):
        return await user_with(groups="shop-ops")(world)

    assert in_world(work, rules=[{"groups": ["shop-ops"], "role": "viewer"}]).back == "/topics"


@pytest.mark.parametrize(("verified", "is_taken"), [(True, 1), (None, 1), (False, 0), ("false", 0)])
def test_an_address_that_the_provider_has_not_checked_is_no_name(in_world, verified, is_taken):
    async def work(world):
        world.stub.user = {**ISSUED, "email": "li@example.com", "email_verified": verified}
        try:
            await world.log_in()
        except OidcFailed as error:
            assert "has not checked" in str(error)  # noqa: PT017 - other cases succeed
        return len(world.sessions._by_hash)

    assert in_world(work, name_claim="email") == is_taken


def test_more_logins_than_can_be_checked_at_once_are_refused(in_world, monkeypatch):
    monkeypatch.setattr("rocketlens.console.login.oidc_logins.MAX_OIDC_LOGINS", 1)

    async def work(world):
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def slow(headers, body):
            arrived.set()
            await go_on.wait()
            return world.stub.token(headers, body)

        world.stub.replies["/token"] = slow
        first = asyncio.create_task(world.log_in())
        await arrived.wait()
        with pytest.raises(OidcFailed) as caught:
            await world.log_in()
        go_on.set()
        await first
        # There is room again.
        await world.log_in()
        return caught.value.word, len(world.sessions._by_hash)

    assert in_world(work) == ("busy", 2)


def test_a_session_is_of_no_local_user_and_ends_as_theirs_do(in_world):
    async def work(world):
        done = await world.log_in()
        world.clock.now_s += MAX_SESSION_IDLE_S
        return world.sessions.viewer_of(done.token)

    assert in_world(work) is None


def test_a_login_that_cannot_be_written_down_begins_no_session(in_world):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    async def work(world):
        begun = await world.begin()
        world.logins._audit = AuditLog(Full())
        with pytest.raises(AuditFailed):
            await world.finish(begun)
        return len(world.sessions._by_hash)

    assert in_world(work) == 0


def test_the_log_has_the_reason_and_no_secret(in_world, caplog):
    async def work(world):
        world.stub.secret = "another"
        begun = await world.begin()
        _, given = world.stub.authorize(begun.address)
        with pytest.raises(OidcFailed):
            await world.logins.finish(begun.cookie, given, ADDRESS)
        return given["code"], begun.cookie, world.file.getvalue()

    with caplog.at_level(logging.WARNING, "rocketlens.console"):
        code, cookie, audited = in_world(work)
    assert "invalid_client" in caplog.text
    for secret in (SECRET, code, cookie):
        assert secret not in caplog.text
        assert secret not in audited


def test_a_logout_ends_the_session_of_the_provider_too(in_world):
    async def work(world):
        done = await world.log_in()
        id_token = world.sessions.end(done.token)
        address = await world.logins.logout_address(id_token, ORIGIN)
        assert address.startswith(f"{world.stub.issuer}/logout?")
        return query_of(address), id_token

    sent, id_token = in_world(work)
    assert sent == {
        "client_id": CLIENT_ID,
        "post_logout_redirect_uri": f"{ORIGIN}/login",
        "id_token_hint": id_token,
    }
    assert id_token.count(".") == 2


def test_a_long_token_is_not_kept_for_the_logout(in_world):
    async def work(world):
        done = await user_with(more="x" * MAX_OIDC_HINT_CHARACTERS)(world)
        address = await world.logins.logout_address(world.sessions.end(done.token), ORIGIN)
        return query_of(address)

    assert "id_token_hint" not in in_world(work)


async def without_a_page(world):
    world.stub.more_metadata = {"end_session_endpoint": None}


async def out_of_reach(world):
    world.stub.replies["/.well-known/openid-configuration"] = 503, b""


@pytest.mark.parametrize(
    ("prepare", "more", "origin"),
    [
        (without_a_page, {}, ORIGIN),
        (out_of_reach, {}, ORIGIN),
        (None, {"provider_logout": False}, ORIGIN),
        (None, {}, "http://evil.example"),
    ],
)
def test_a_logout_is_only_here_where_the_provider_has_none(in_world, prepare, more, origin):
    async def work(world):
        if prepare is not None:
            await prepare(world)
        return await world.logins.logout_address("token", origin)

    assert in_world(work, **more) is None


def test_every_failure_has_a_status_and_a_text():
    for word in FAILURE_STATUS:
        assert f"login.oidc_{word}" in table_of("en")
