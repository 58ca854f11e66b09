"""Saved searches as pages and API: with a star, a list, forms of this console only."""

import asyncio
import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from rocketlens.console.login.viewer import Grant, Role
from rocketlens.terminal.cluster_access import saved_searches_path
from tests.support.console_client import FormReader, answer, console_client, log_in, store_at
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store
from tests.support.xss_payloads import PAYLOADS

CHINESE = {"cookies": {"rl_language": "zh"}}
LI = user("li", Grant(Role.VIEWER, ("s",), ("order-*",)))
WANG = user("wang", Grant(Role.OPERATOR))
ROOT = user("root", Grant(Role.ADMIN))


@pytest.fixture
def source(tmp_path):
    sent = [Sent(topic=topic, keys="k") for topic in ("order-paid", "salary")]
    return store_at(make_store(tmp_path / "store", sent).path, "s")


def asked(steps, *contexts, **options):
    """Give what a function returns that is given a client of a console."""

    async def ask():
        async with console_client(*contexts, **options) as client:
            return await steps(client)

    return asyncio.run(ask())


def form_in(page, begin):
    """Give the address and the fields of the form whose address begins so."""
    forms = FormReader(page.text).forms
    return next((action, fields) for _, action, fields in forms if action.startswith(begin))


async def star(client, search, title, **fields):
    """Save a search by the form beside it."""
    action, values = form_in(await client.get(search), "/saved")
    # The box is there, and is not checked.
    values.pop("shared", None)
    return await client.post(action, data={**values, "title": title, **fields})


class Elements(HTMLParser):
    """The elements of a page, each with the names of its attributes."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found = set()

    def handle_starttag(self, tag, attributes):
        self.found.add((tag, *sorted(name for name, _ in attributes)))


def elements_in(page):
    reader = Elements()
    reader.feed(page.text)
    return reader.found


def rows_in(page):
    return [unescape(each) for each in re.findall(r'<tr data-path="([^"]+)"', page.text)]


def test_a_search_is_saved_by_its_star_listed_opened_and_deleted(source):
    search = "/search?q=k&topic=order-paid"

    async def steps(client):
        posted = await star(client, search, "my orders")
        listed = await client.get(posted.headers["location"])
        start = await client.get("/")
        opened = await client.get(rows_in(listed)[0])
        action, fields = form_in(listed, "/saved/")
        deleted = await client.post(action, data=fields)
        return posted, listed, start, opened, deleted, await client.get("/saved")

    posted, listed, start, opened, deleted, after = asked(steps, source)
    assert (posted.status_code, posted.headers["location"]) == (303, "/saved")
    assert rows_in(listed) == [search]
    assert "my orders" in start.text
    assert 'href="/search?q=k&amp;topic=order-paid"' in start.text
    assert "★ Saved as my orders" in opened.text
    assert "order-paid" in opened.text
    assert deleted.status_code == 303
    assert "No searches are saved yet" in after.text
    # There is nobody to share it with.
    assert 'name="shared"' not in listed.text


def test_in_chinese_the_pages_are_chinese(source):
    async def steps(client):
        await star(client, "/search?q=k", "订单")
        return await client.get("/saved"), await client.get("/search?q=k")

    listed, found = asked(steps, source, **CHINESE)
    assert "已保存的查询" in listed.text
    assert "★ 已保存为 订单" in found.text


def test_a_form_of_another_site_saves_and_deletes_nothing(source):
    async def steps(client):
        await star(client, "/search?q=k", "mine")
        (name,) = [
            each["name"] for each in json.loads(saved_searches_path().read_text())["searches"]
        ]
        evil = {"origin": "http://evil.example"}
        forged = [
            await client.post("/saved?q=k", data={"title": "x"}, headers=evil),
            await client.post(f"/saved/{name}/delete", headers=evil),
            await client.post("/api/saved-searches?q=k", content='{"title": "x"}'),
            await client.delete(f"/api/saved-searches/{name}"),
        ]
        return forged, await client.get("/saved")

    forged, listed = asked(steps, source)
    assert [each.status_code for each in forged] == [403, 403, 415, 415]
    assert rows_in(listed) == ["/search?q=k"]


def test_what_cannot_be_saved_is_said_on_the_page_and_the_form_stays(source):
    async def steps(client):
        await star(client, "/search?q=k", "mine")
        return await star(client, "/search?topic=order-paid", "mine")

    page = asked(steps, source)
    assert page.status_code == 400
    assert "You have a search named" in page.text
    action, fields = form_in(page, "/saved?")
    assert (action, fields["title"]) == ("/saved?topic=order-paid", "mine")


def test_a_damaged_file_is_said_on_the_pages_and_searches_go_on(source):
    saved_searches_path().parent.mkdir(parents=True, exist_ok=True)
    saved_searches_path().write_text("{")

    async def steps(client):
        posted = await star(client, "/search?q=k", "mine")
        paths = ("/", "/saved", "/api/saved-searches", "/search?q=k")
        return posted, *[await client.get(each) for each in paths]

    posted, start, listed, api, found = asked(steps, source)
    for page in (posted, start, listed, api):
        assert "is damaged" in page.text
    assert [each.status_code for each in (posted, start, listed, api)] == [502, 200, 502, 502]
    assert "No searches are saved yet" not in listed.text
    assert "Complete" in found.text
    assert saved_searches_path().read_text() == "{"


def test_users_share_searches_with_those_who_may_see_their_topics(source):
    async def steps(client):
        await log_in(client, "wang")
        await star(client, "/search?topic=order-paid", "orders", shared="true")
        await star(client, "/search?topic=salary", "S3CRET", shared="true")
        await star(client, "/search?q=k", "private")
        seen = {"wang": (await client.get("/saved"), await client.get("/"))}
        for name in ("li", "root"):
            client.cookies.clear()
            await log_in(client, name)
            seen[name] = await client.get("/saved"), await client.get("/")
        # Another user's search is no reason not to save one's own.
        assert "☆ Save this search" in (await client.get("/search?topic=order-paid")).text
        everything = await client.get("/saved?all=true")
        action, fields = form_in(everything, "/saved/")
        await client.post(action, data=fields)
        return seen, everything, await client.get("/saved?all=true")

    seen, everything, after = asked(steps, source, users=users(LI, WANG, ROOT))
    assert len(rows_in(seen["wang"][0])) == 3
    assert rows_in(seen["li"][0]) == ["/search?topic=order-paid"]
    for page in seen["li"]:
        assert "S3CRET" not in page.text
        assert "salary" not in page.text
        # It is not theirs to delete.
        assert "/delete" not in page.text
    assert len(rows_in(seen["root"][0])) == 2
    assert rows_in(everything)[0] == "/search?q=k"
    assert len(rows_in(after)) == 2


def test_one_who_opens_a_search_sees_what_they_may_see_and_no_more(source):
    async def steps(client):
        await log_in(client, "wang")
        await star(client, "/search?q=k", "all of k", shared="true")
        own = await client.get("/api/search?q=k")
        client.cookies.clear()
        await log_in(client, "li")
        (path,) = rows_in(await client.get("/saved"))
        return own, await client.get(f"/api{path}"), await client.get(path)

    own, found, page = asked(steps, source, users=users(LI, WANG))
    assert len(own.json()["messages"]) == 2
    assert [each["topic"] for each in found.json()["messages"]] == ["order-paid"]
    assert "salary" not in page.text


def test_the_api_saves_lists_and_deletes(source):
    async def steps(client):
        path = "/api/saved-searches"
        saved = await client.post(f"{path}?q=k&topic=order-paid", json={"title": "mine"})
        wrong = await client.post(f"{path}?q=k", json={"title": ""})
        nothing = await client.post(path, json={"title": "nothing"})
        listed = await client.get(path)
        as_json = {"content-type": "application/json"}
        name = saved.json()["name"]
        gone = [await client.delete(f"{path}/{name}", headers=as_json) for _ in range(2)]
        return saved, wrong, nothing, listed, gone, await client.get(path)

    saved, wrong, nothing, listed, gone, after = asked(steps, source)
    assert saved.status_code == 200, saved.text
    assert saved.json()["query"] == "q=k&topic=order-paid"
    assert (saved.json()["is_own"], saved.json()["may_delete"]) == (True, True)
    assert [each.status_code for each in (wrong, nothing)] == [400, 400]
    assert listed.json() == {"searches": [saved.json()]}
    assert [each.status_code for each in gone] == [200, 404]
    assert after.json() == {"searches": []}
    described = answer("/api/openapi.json", source).json()["paths"]
    assert set(described["/api/saved-searches"]) == {"get", "post"}
    assert set(described["/api/saved-searches/{name}"]) == {"delete"}


def test_hostile_names_and_questions_add_nothing_to_the_pages(source):
    texts = [each for each in PAYLOADS if each.split()][::9]

    async def steps(client):
        as_json = {"title": "harmless"}
        await client.post("/api/saved-searches", params={"q": "harmless"}, json=as_json)
        usual = [await client.get("/saved"), await client.get("/")]
        for number, text in enumerate(texts):
            title = f"{number}{text}"[:100]
            saved = await client.post(
                "/api/saved-searches", params={"q": text, "kind": "key"}, json={"title": title}
            )
            assert saved.status_code == 200, saved.text
        return usual, [await client.get("/saved"), await client.get("/")]

    usual, hostile = asked(steps, source)
    for before, after in zip(usual, hostile, strict=True):
        assert elements_in(after) == elements_in(before)
        links = re.findall(r'(?:href|src|action)="([^"]*)"', after.text)
        assert all(each == "" or each.startswith(("/", "#main")) for each in links)


def test_the_page_of_one_who_has_not_logged_in_shows_no_search(source):
    async def steps(client):
        await log_in(client, "wang")
        await star(client, "/search?q=k", "S3CRET", shared="true")
        client.cookies.clear()
        return [await client.get(path) for path in ("/", "/saved", "/api/saved-searches")]

    start, listed, api = asked(steps, source, users=users(WANG))
    assert [each.status_code for each in (start, listed, api)] == [303, 303, 401]
