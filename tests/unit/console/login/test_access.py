"""Whose request it is: sessions, passwords of programs, tokens of forms; no other gets in.

The page of the login: both languages, without a script, and what it says of failures.
"""

import asyncio
import io
import json

import httpx
import pytest

from rocketlens.console.login.access import PUBLIC, Access
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.logins import Logins
from rocketlens.console.login.oidc_settings import CALLBACK_PATH, OIDC_PATH
from rocketlens.console.login.viewer import LOCAL, NOBODY, current_viewer
from rocketlens.console.security import MAX_CONSOLE_BODY_BYTES
from tests.support.console_client import console_client, log_in, store_at
from tests.support.console_users import PASSWORD, users
from tests.support.made_stores import Sent, make_store

BASIC = ("root", PASSWORD)


@pytest.fixture
def store(tmp_path):
    return store_at(make_store(tmp_path / "store", [Sent(keys="k", body=b"secret")]).path, "s")


def ask(store, *requests, users=None, audit=None, **options):
    """Give the answers to (method, path, options) requests, of one client."""

    async def run():
        async with console_client(store, users=users, audit=audit, **options) as client:
            return [await client.request(m, path, **more) for m, path, more in requests]

    return asyncio.run(run())


async def logged_in(client, name="root", password=PASSWORD):
    fields = {"name": name, "password": password, "back": "/topics"}
    return await client.post("/login", data=fields)


def test_without_users_everything_is_answered(store):
    pages = ["/", "/topics", "/api/topics", "/metrics", "/search?q=k"]
    assert {each.status_code for each in ask(store, *(("GET", p, {}) for p in pages))} == {200}


@pytest.mark.parametrize("path", ["/", "/search?q=k", "/topics", "/m/s/Orders/-/0/0", "/nonsense"])
def test_a_page_sends_who_has_not_logged_in_to_the_login_and_back(store, path):
    (found,) = ask(store, ("GET", path, {}), users=users())
    assert found.status_code == 303
    assert httpx.URL(found.headers["location"]).path == "/login"
    assert httpx.URL(found.headers["location"]).params["back"] == path
    assert found.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/api/search?q=k", "/api/openapi.json", "/api/nonsense", "/metrics", "/api/../topics"]
)
def test_a_program_without_a_password_is_refused(store, path):
    (found,) = ask(store, ("GET", path, {}), users=users())
    assert found.status_code in {303, 401}
    assert "Orders" not in found.text
    assert found.status_code == 303 or found.headers["www-authenticate"].startswith("Basic")


def test_a_browser_is_never_asked_for_a_password_that_it_would_keep(store):
    request = ("GET", "/api/topics", {"headers": {"sec-fetch-mode": "cors"}})
    (found,) = ask(store, request, users=users())
    assert found.status_code == 401
    assert "www-authenticate" not in found.headers


def test_a_stream_of_a_page_is_refused_and_not_sent_to_the_login(store):
    request = ("GET", "/search/rows?q=k", {"headers": {"sec-fetch-mode": "cors"}})
    assert ask(store, request, users=users())[0].status_code == 401


FORMS_AND_PROVIDER = {"/preferences", OIDC_PATH, CALLBACK_PATH}
"""Tried elsewhere: test_oidc_pages has what a provider's users see before they are logged in."""


@pytest.mark.parametrize("path", [*sorted(PUBLIC - FORMS_AND_PROVIDER), "/static/console.css"])
def test_what_is_public_is_answered(store, path):
    assert ask(store, ("GET", path, {}), users=users())[0].status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_no_method_gets_past_the_login(store, method):
    (found,) = ask(store, (method, "/topics", {}), users=users())
    assert found.status_code in {303, 401}


def test_a_program_sends_its_password_to_the_api_and_to_metrics_only(store):
    paths = ["/api/topics", "/metrics", "/topics"]
    found = ask(store, *(("GET", path, {"auth": BASIC}) for path in paths), users=users())
    assert [each.status_code for each in found] == [200, 200, 303]


def test_a_wrong_password_is_refused_and_later_ones_wait(store):
    wrong = ("GET", "/api/topics", {"auth": ("root", "wrong")})
    right = ("GET", "/api/topics", {"auth": BASIC})
    *refused, waits = ask(store, wrong, wrong, wrong, right, users=users())
    assert [each.status_code for each in refused] == [401] * 3
    assert (waits.status_code, waits.json()["error"]["code"]) == (429, "busy")
    assert int(waits.headers["retry-after"]) >= 1


def test_a_login_opens_a_session_whose_cookie_no_script_gets(store):
    async def run():
        async with console_client(store, users=users()) as client:
            found = await logged_in(client)
            page = await client.get("/search?q=k")
            await client.post("/logout", data={})
            return found, page, await client.get("/search?q=k")

    found, page, after = asyncio.run(run())
    assert (found.status_code, found.headers["location"]) == (303, "/topics")
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert page.status_code == 200
    assert "root" in page.text
    assert after.status_code == 303


def test_under_https_cookies_are_secure(store):
    async def run():
        async with console_client(store, users=users()) as client:
            client.base_url = "https://localhost"
            return await logged_in(client)

    assert "Secure" in asyncio.run(run()).headers["set-cookie"]


def test_a_session_that_was_ended_or_never_begun_is_none(store):
    async def run():
        async with console_client(store, users=users()) as client:
            await logged_in(client)
            kept = client.cookies["rl_session"]
            await client.post("/logout")
            found = []
            for value in (kept, kept[:-1], "", "x" * 9999):
                client.cookies = {"rl_session": value}
                found.append(await client.get("/topics"))
            return found

    assert {each.status_code for each in asyncio.run(run())} == {303}


FORMS = ("/logout", "/preferences", "/send", "/resend/chosen/start", "/jobs/x/stop")
OTHERS = ({}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"})
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_no_form_of_another_site_is_taken_with_the_cookie_of_a_session(store, headers):
    async def run():
        async with console_client(store, users=users()) as client:
            await log_in(client, "root")
            client.event_hooks = {}
            forged = [await client.post(each, data={"a": "b"}, headers=headers) for each in FORMS]
            return forged, await client.get("/topics")

    forged, still = asyncio.run(run())
    assert {(each.status_code, each.json()["error"]["code"]) for each in forged} == {
        (403, "wrong_origin")
    }
    assert still.status_code == 200


@pytest.mark.parametrize("headers", OTHERS[1:], ids=str)
def test_no_form_of_another_site_is_taken_in_a_console_without_users(store, headers):
    for found in ask(store, *(("POST", each, {"headers": headers}) for each in FORMS)):
        assert (found.status_code, found.json()["error"]["code"]) == (403, "wrong_origin")


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://localhost/send?cluster=a", "/send?cluster=a"),
        ("http://evil.example/x", "/"),
        ("http://[", "/"),
        ("x", "/"),
    ],
)
def test_a_form_whose_session_has_ended_leads_to_the_login_and_back_to_its_page(
    store, referer, back
):
    form = {"data": {"topic": "Orders"}, "headers": {**BROWSER, "referer": referer}}
    found, program = ask(
        store, ("POST", "/send", form), ("POST", "/send", {"data": {}}), users=users()
    )
    assert found.status_code == 303
    address = httpx.URL(found.headers["location"])
    assert (address.path, address.params["back"]) == ("/login", back)
    (page,) = ask(store, ("GET", str(address), {}), users=users())
    assert "Your session has ended, so nothing was done." in page.text
    assert (program.status_code, program.json()["error"]["code"]) == (401, "login_needed")


def test_a_form_that_is_too_large_is_refused_before_it_is_read(store):
    large = {"content": b"a=" + b"x" * MAX_CONSOLE_BODY_BYTES}
    large["headers"] = {"content-type": "application/x-www-form-urlencoded"}
    (local,) = ask(store, ("POST", "/preferences", large))
    assert local.status_code == 413
    large["content"] = large["content"][: 65 << 10]
    (unknown,) = ask(store, ("POST", "/login", large), users=users())
    assert unknown.status_code == 413


def asked_directly(logins, path="/x", headers=()):
    """Give the viewers that an application sees behind the access."""
    seen = []

    async def app(scope, receive, send):
        seen.append(current_viewer())
        await httpx_answer(send)

    async def httpx_answer(send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run():
        transport = httpx.ASGITransport(Access(app, logins))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get(path, headers=dict(headers))

    asyncio.run(run())
    return seen


def test_the_application_answers_for_who_asks():
    assert asked_directly(None) == [LOCAL]
    logins = Logins(users(), AuditLog())
    assert asked_directly(logins) == []
    assert asked_directly(logins, "/livez") == [NOBODY]
    token = asyncio.run(logins.log_in(*BASIC, "a"))
    (seen,) = asked_directly(logins, headers={"cookie": f"rl_session={token}"}.items())
    assert seen.name == "root"
    assert current_viewer() is LOCAL


def test_without_an_audit_log_that_can_be_written_a_login_is_an_error(store):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    audit = AuditLog(Full())
    (found,) = ask(store, ("GET", "/api/topics", {"auth": BASIC}), users=users(), audit=audit)
    assert found.status_code == 503
    assert "No space left" in found.json()["error"]["message"]


def test_searches_and_views_are_written_down_with_who_and_from_where(store):
    file = io.StringIO()
    requests = ["/api/search?q=k&topic=Orders", "/api/message/s/Orders/-/0/0", "/m/s/Orders/-/0/0"]
    asked = [("GET", path, {"auth": BASIC}) for path in requests[:2]]
    ask(store, *asked, users=users(), audit=AuditLog(file))
    ask(store, ("GET", requests[2], {}), audit=AuditLog(file))
    lines = [json.loads(each) for each in file.getvalue().splitlines()]
    assert [(each["event"], each["user"]) for each in lines] == [
        ("login", "root"),
        ("search", "root"),
        ("view", "root"),
        ("view", "local"),
    ]
    assert {each["address"] for each in lines} == {"127.0.0.1"}
    assert lines[1]["asked"] == {"q": "k", "topic": "Orders"}
    assert (lines[2]["source"], lines[2]["topic"], lines[2]["queue_offset"]) == ("s", "Orders", 0)


def test_what_cannot_be_written_down_is_not_shown(store):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(28, "No space left on device")

    audit = AuditLog(Full())
    paths = ["/api/message/s/Orders/-/0/0", "/api/message/s/Orders/-/0/0/body", "/search?q=k"]
    for found in ask(store, *(("GET", path, {}) for path in paths), audit=audit):
        assert found.status_code == 503
        assert "secret" not in found.text
        assert "No space left" in found.text


@pytest.fixture
def login_store(tmp_path):
    return store_at(make_store(tmp_path / "store", [Sent()]).path, "s")


def log_in_on_page(login_store, *tried, back="/topics", **options):
    async def run():
        async with console_client(login_store, users=users(), **options) as client:
            found = [await client.get(f"/login?back={back}")]
            for name, password in tried:
                fields = {"name": name, "password": password, "back": back}
                found.append(await client.post("/login", data=fields))
            return found

    return asyncio.run(run())


def test_the_page_asks_for_a_name_and_a_password_in_both_languages(login_store):
    (english,) = log_in_on_page(login_store)
    (chinese,) = log_in_on_page(login_store, cookies={"rl_language": "zh"})
    assert "Password" in english.text
    assert "密码" in chinese.text
    for page in (english, chinese):
        assert page.status_code == 200
        assert 'type="password"' in page.text
        assert 'name="back" value="/topics"' in page.text
        # No page is offered to who has not logged in, nor a source named.
        assert 'href="/topics"' not in page.text
        assert "/logout" not in page.text


def test_a_wrong_password_keeps_the_name_but_not_the_password(login_store):
    _, refused = log_in_on_page(login_store, ("<b>root", "wr<b>xyzzy"))
    assert refused.status_code == 401
    assert "The name or the password is wrong." in refused.text
    assert 'value="&lt;b&gt;root"' in refused.text
    assert "xyzzy" not in refused.text


def test_a_name_that_is_not_there_gets_the_same_page(login_store):
    _, known = log_in_on_page(login_store, ("root", "wrong"))
    _, unknown = log_in_on_page(login_store, ("toor", "wrong"))
    assert known.text.replace('value="root"', 'value="toor"') == unknown.text


def test_after_failures_the_page_says_how_long_to_wait(login_store):
    *_, waits = log_in_on_page(login_store, *[("root", "wrong")] * 3, ("root", PASSWORD))
    assert waits.status_code == 429
    assert "Try again in" in waits.text
    assert int(waits.headers["retry-after"]) >= 1


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "javascript:alert(1)"])
def test_a_login_leads_nowhere_else(login_store, back):
    page, done = log_in_on_page(login_store, ("root", PASSWORD), back=back)
    assert '<input type="hidden" name="back" value="/">' in page.text
    assert (done.status_code, done.headers["location"]) == (303, "/")
