"""Logging in by a provider through the pages: there and back, failures, no access, the logout."""

import asyncio
import io
import json
from contextlib import asynccontextmanager
from html import unescape

import httpx
import pytest

from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from tests.support.console_client import console_client, log_in, store_at
from tests.support.console_users import user
from tests.support.made_stores import Sent, make_store
from tests.support.oidc_world import provider, settings

CHINESE = {"rl_language": "zh"}
DISCOVERY = "/.well-known/openid-configuration"


class World:
    """A provider, a console with a browser's client of it, and its audit log."""

    def __init__(self, stub, client, file):
        self.stub, self.client, self.file = stub, client, file

    async def begin(self, path="/login/oidc?back=/topics"):
        """Follow the link of the login; give where the provider is."""
        answer = await self.client.get(path)
        assert answer.status_code == 303
        return answer.headers["location"]

    async def come_back(self, location, **changed):
        """Log in at the provider, and come back."""
        path, given = self.stub.authorize(location, **changed)
        return await self.client.get(path, params=given)

    async def log_in(self, **changed):
        """Log in from begin to end; give the answer to the way back."""
        return await self.come_back(await self.begin(), **changed)

    @property
    def events(self):
        """Event and user of each line of the audit log."""
        lines = map(json.loads, self.file.getvalue().splitlines())
        return [(each["event"], each["user"]) for each in lines]


@pytest.fixture
def running(tmp_path):
    made = make_store(tmp_path / "store", [Sent(topic="order-paid"), Sent(topic="salary")])

    @asynccontextmanager
    async def running(*, local=(), cookies=None, names=(), base="http://localhost", **more):
        file = io.StringIO()
        async with provider() as stub:
            known = LocalUsers(local, None, settings(stub.issuer, tmp_path, **more))
            options = {"users": known, "audit": AuditLog(file), "names": names}
            store = store_at(made.path, "s")
            async with console_client(store, cookies=cookies, **options) as client:
                client.base_url = base
                yield World(stub, client, file)

    return running


@pytest.fixture
async def world(running):
    async with running() as world:
        yield world


@pytest.fixture
def in_world(running):
    def run(work, **more):
        async def inside():
            async with running(**more) as world:
                return await work(world)

        return asyncio.run(inside())

    return run


def cookies_in(answer):
    return {each.partition("=")[0]: each for each in answer.headers.get_list("set-cookie")}


def test_a_user_logs_in_and_sees_the_topics_of_its_rules(in_world):
    async def work(world):
        done = await world.log_in()
        assert (done.status_code, done.headers["location"]) == (303, "/topics")
        page = await world.client.get("/topics")
        listed = await world.client.get("/api/topics")
        refused = await world.client.get("/api/search?topic=salary")
        assert refused.status_code == 404
        return page, [each["name"] for each in listed.json()["topics"]], world.events

    rules = [{"groups": ["shop-*"], "role": "viewer", "topics": ["order-*"]}]
    page, topics, events = in_world(work, rules=rules)
    assert page.status_code == 200
    assert "oidc:li" in page.text
    assert topics == ["order-paid"]
    assert events[0] == ("login", "oidc:li")


def test_the_login_offers_what_there_is(in_world):
    async def shown(world):
        page = await world.client.get("/login?back=/topics")
        return page.text

    both = in_world(shown, local=[user("root", Grant(Role.ADMIN))], label="Example <login>")
    assert 'type="password"' in both
    assert "Log in with Example &lt;login&gt;" in both
    assert 'href="/login/oidc?back=%2Ftopics"' in both
    alone = in_world(shown, cookies=CHINESE)
    assert 'type="password"' not in alone
    assert "通过 127.0.0.1 登录" in alone
    # Where the browser's cookies are sent with the provider's answer.
    public = in_world(shown, public_url="https://lens.example.com")
    assert 'href="https://lens.example.com/login/oidc?back=%2Ftopics"' in public


def test_local_users_log_in_beside_it(in_world):
    async def work(world):
        await log_in(world.client, "root")
        return (await world.client.get("/topics")).status_code, world.events

    assert in_world(work, local=[user("root", Grant(Role.ADMIN))]) == (200, [("login", "root")])


async def test_without_local_users_no_password_is_right(world):
    fields = {"name": "oidc:li", "password": ""}
    page = await world.client.post("/login", data=fields)
    program = await world.client.get("/api/topics", auth=("oidc:li", "x"))
    assert (page.status_code, program.status_code) == (401, 401)


async def test_cookies_are_for_this_console_and_no_script(world):
    begun = await world.client.get("/login/oidc")
    done = await world.come_back(begun.headers["location"])
    begun, done = cookies_in(begun), cookies_in(done)
    assert all(word in begun["rl_oidc"] for word in ("HttpOnly", "SameSite=lax", "Max-Age=600"))
    assert "Path=/login/oidc" in begun["rl_oidc"]
    assert "Secure" not in begun["rl_oidc"]
    assert all(word in done["rl_session"] for word in ("HttpOnly", "SameSite=lax", "Path=/"))
    assert 'rl_oidc="";' in done["rl_oidc"]
    assert "Max-Age=0" in done["rl_oidc"]


def test_cookies_are_only_sent_by_https_where_the_console_is_reached_so(in_world):
    async def work(world):
        begun = await world.client.get("/login/oidc")
        # As a proxy on this machine asks, which says nothing of its own scheme.
        path, given = world.stub.authorize(begun.headers["location"])
        assert path == "https://lens.example.com/login/oidc/callback"
        own = {"cookie": f"rl_oidc={begun.cookies['rl_oidc']}", "host": "lens.example.com"}
        done = await world.client.get("/login/oidc/callback", params=given, headers=own)
        return begun, done

    begun, done = in_world(work, public_url="https://lens.example.com")
    assert "Secure" in cookies_in(begun)["rl_oidc"]
    assert done.status_code == 303
    assert "Secure" in cookies_in(done)["rl_session"]


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_a_login_by_the_provider_leads_nowhere_else(world, back):
    location = str(httpx.URL("/login/oidc", params={"back": back}))
    assert (await world.come_back(await world.begin(location))).headers["location"] == "/"


async def without_the_cookie(world):
    location = await world.begin()
    world.client.cookies.delete("rl_oidc")
    return await world.come_back(location)


async def with_a_forged_token(world):
    world.stub.forge = lambda claims: world.stub.signed({**claims, "aud": "other"})
    return await world.log_in()


async def with_an_error(world):
    return await world.log_in(error="server_error", code=None)


async def with_a_refusal(world):
    return await world.log_in(error="access_denied", code=None)


async def out_of_reach(world):
    world.stub.replies[DISCOVERY] = 503, b"geheim"
    return await world.client.get("/login/oidc")


async def out_of_reach_later(world):
    location = await world.begin()
    world.stub.replies["/token"] = 503, b"geheim"
    return await world.come_back(location)


FAILURES = [
    (without_the_cookie, 400, {"en": "another window", "zh": "另一个窗口"}),
    (with_a_forged_token, 502, {"en": "is not valid", "zh": "无效"}),
    (with_an_error, 502, {"en": "answered with an error", "zh": "返回了错误"}),
    (with_a_refusal, 403, {"en": "The provider refused the login", "zh": "拒绝了登录"}),
    (out_of_reach, 502, {"en": "cannot be reached", "zh": "无法连接"}),
    (out_of_reach_later, 502, {"en": "cannot be reached", "zh": "无法连接"}),
]


@pytest.mark.parametrize(("work", "status", "said"), FAILURES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_failure_is_a_page_in_the_readers_language_and_no_login(
    in_world, work, status, said, language
):
    async def run(world):
        answer = await work(world)
        assert (await world.client.get("/topics")).status_code == 303
        assert world.events == [("refused", "")]
        return answer

    page = in_world(run, cookies={"rl_language": language})
    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert said[language] in page.text
    # It can be tried again.
    assert 'href="/login/oidc?back=%2F"' in page.text
    for word in ("Traceback", "geheim", "rl_session"):
        assert word not in page.text + str(page.headers)


@pytest.mark.parametrize(
    ("language", "said"), [("en", "No access: you are oidc:li"), ("zh", "无权访问：您是 oidc:li")]
)
def test_a_user_without_a_rule_has_no_access(in_world, language, said):
    async def work(world):
        answer = await world.log_in()
        assert (await world.client.get("/topics")).status_code == 303
        assert world.events == [("refused", "oidc:li")]
        (link,) = [each for each in answer.text.split('"') if each.startswith("/login/oidc")]
        return answer, await world.begin(unescape(link))

    rules = [{"groups": ["admins"], "role": "admin"}]
    page, again = in_world(work, rules=rules, cookies={"rl_language": language})
    assert page.status_code == 403
    assert said in page.text
    # The provider would send the same user again.
    assert "prompt=login" in again


def test_a_name_in_a_page_is_escaped(in_world):
    async def work(world):
        world.stub.user["preferred_username"] = "<b>li</b>{name}"
        return await world.log_in()

    page = in_world(work, rules=[{"groups": ["admins"], "role": "admin"}])
    assert "oidc:&lt;b&gt;li&lt;/b&gt;{name}" in page.text
    assert "<b>" not in page.text


def test_by_another_name_than_its_own_the_console_leads_to_no_provider(in_world):
    async def work(world):
        return await world.client.get("/login/oidc")

    page = in_world(work, names=["lens.example.com"], base="http://lens.example.com")
    assert page.status_code == 400
    assert "does not know the address" in page.text


def test_the_public_name_need_not_be_given_twice(in_world):
    async def work(world):
        return await world.client.get("/login")

    more = {"public_url": "https://lens.example.com", "base": "http://lens.example.com"}
    assert in_world(work, **more).status_code == 200
    assert in_world(work, base="http://lens.example.com").status_code == 421


async def test_a_logout_leads_to_the_providers_own(world):
    await world.log_in()
    left = await world.client.post("/logout")
    assert (await world.client.get("/topics")).status_code == 303
    issuer, events = world.stub.issuer, world.events
    assert left.status_code == 200
    assert f'content="0; url={issuer}/logout?' in left.text
    assert "id_token_hint=" in left.text
    assert unescape(left.text).count("post_logout_redirect_uri=http%3A%2F%2Flocalhost%2Flogin") == 2
    assert "You are logged out here" in left.text
    # As for one who is not logged in.
    assert "oidc:li" not in left.text
    assert "rl_session" in cookies_in(left)
    assert events[-1] == ("logout", "oidc:li")


def test_a_local_user_logs_out_here_only(in_world):
    async def work(world):
        await log_in(world.client, "root")
        left = await world.client.post("/logout")
        return left.status_code, left.headers["location"]

    assert in_world(work, local=[user("root", Grant(Role.ADMIN))]) == (303, "/login")


def test_without_a_provider_there_is_no_way_to_one(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])

    async def work():
        known = LocalUsers([user("root", Grant(Role.ADMIN))])
        async with console_client(store_at(made.path, "s"), users=known) as client:
            await log_in(client, "root")
            paths = ("/login/oidc", "/login/oidc/callback?code=x&state=y")
            return [(await client.get(path)).status_code for path in paths]

    assert asyncio.run(work()) == [404, 404]


def test_values_that_are_too_long_or_of_another_form_are_a_page(in_world):
    async def work(world):
        paths = (f"/login/oidc?back=/{'x' * 50_000}", "/login/oidc?again=perhaps")
        return [await world.client.get(path) for path in paths]

    for page in in_world(work):
        assert page.status_code == 400
        assert "Traceback" not in page.text
