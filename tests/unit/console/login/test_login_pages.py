"""The page of the login: both languages, without a script, and what it says of failures."""

import asyncio

import pytest

from tests.support.console_client import console_client, store_at
from tests.support.console_users import PASSWORD, users
from tests.support.made_stores import Sent, make_store


@pytest.fixture
def store(tmp_path):
    return store_at(make_store(tmp_path / "store", [Sent()]).path, "s")


def log_in(store, *tried, back="/topics", **options):
    async def run():
        async with console_client(store, users=users(), **options) as client:
            found = [await client.get(f"/login?back={back}")]
            for name, password in tried:
                fields = {"name": name, "password": password, "back": back}
                found.append(await client.post("/login", data=fields))
            return found

    return asyncio.run(run())


def test_the_page_asks_for_a_name_and_a_password_in_both_languages(store):
    (english,) = log_in(store)
    (chinese,) = log_in(store, cookies={"rl_language": "zh"})
    assert "Password" in english.text
    assert "密码" in chinese.text
    for page in (english, chinese):
        assert page.status_code == 200
        assert 'type="password"' in page.text
        assert 'name="back" value="/topics"' in page.text
        # No page is offered to who has not logged in, nor a source named.
        assert 'href="/topics"' not in page.text
        assert "/logout" not in page.text


def test_a_wrong_password_keeps_the_name_but_not_the_password(store):
    _, refused = log_in(store, ("<b>root", "wr<b>xyzzy"))
    assert refused.status_code == 401
    assert "The name or the password is wrong." in refused.text
    assert 'value="&lt;b&gt;root"' in refused.text
    assert "xyzzy" not in refused.text


def test_a_name_that_is_not_there_gets_the_same_page(store):
    _, known = log_in(store, ("root", "wrong"))
    _, unknown = log_in(store, ("toor", "wrong"))
    assert known.text.replace('value="root"', 'value="toor"') == unknown.text


def test_after_failures_the_page_says_how_long_to_wait(store):
    *_, waits = log_in(store, *[("root", "wrong")] * 3, ("root", PASSWORD))
    assert waits.status_code == 429
    assert "Try again in" in waits.text
    assert int(waits.headers["retry-after"]) >= 1


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "javascript:alert(1)"])
def test_a_login_leads_nowhere_else(store, back):
    page, done = log_in(store, ("root", PASSWORD), back=back)
    assert '<input type="hidden" name="back" value="/">' in page.text
    assert (done.status_code, done.headers["location"]) == (303, "/")
