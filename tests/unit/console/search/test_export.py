"""All that a search finds as a file: what `rocketlens export` writes, or a last line that says what
is missing.
"""

import asyncio
import csv
import io
import json
from contextlib import AsyncExitStack

import pytest
from fastapi import Request

import rocketlens
from rocketlens import limits
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import Searches
from rocketlens.console.search.search_pages import export
from rocketlens.console.sources.sources import open_sources
from rocketlens.decode.rules import BodyRules
from rocketlens.main import main
from tests.support.console_client import (
    answer,
    answers,
    cluster_at,
    console_client,
    log_in,
    store_at,
)
from tests.support.console_users import user, users
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.unit.console.search.test_search import MadeSource, searches_of


@pytest.fixture
def orders(tmp_path):
    sent = [
        Sent(keys=f"all ORDER-{n}", body=b'{"n":%d}' % n, store_timestamp_ms=NOW_MS + n // 3)
        for n in range(50)
    ]
    return store_at(make_store(tmp_path / "orders", sent).path, "orders")


def lines_of(found):
    return [json.loads(line) for line in found.text.splitlines()]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("asked", ["q=all", "topic=Orders&max=3"])
def test_a_file_has_all_messages_as_the_command_writes_them(
    orders, tmp_path, monkeypatch, form, asked
):
    monkeypatch.setattr(limits, "MAX_EXPORT_ROWS", 7)
    found = answer(f"/api/export?{asked}&as={form}", orders)
    assert found.status_code == 200
    assert found.headers["content-disposition"] == f'attachment; filename="messages.{form}"'
    file = tmp_path / f"all.{form}"
    assert main(["export", str(file), "--store", orders[1].store]) == 0
    expected = file.read_text().splitlines()
    head = [expected.pop(0)] if form == "csv" else []
    assert found.text.splitlines() == head + expected[::-1]


def test_a_filter_is_that_of_the_page(orders):
    found = answer("/api/export?topic=Orders&where=body.%24.n+%3E+46", orders)
    assert [each["keys"][1] for each in lines_of(found)] == ["ORDER-49", "ORDER-48", "ORDER-47"]


def test_the_page_links_to_the_files_of_its_search(orders):
    page = answer("/search?q=all&max=2", orders).text
    for form in ("csv", "jsonl"):
        assert f'download href="/api/export?q=all&amp;max=2&amp;as={form}"' in page
    assert "/api/export" not in answer("/search?q=NOPE", orders).text


def test_no_cell_is_a_formula(tmp_path):
    sent = [Sent(keys="k =1+1", tags="@SUM(A1)", body=b"+cmd|' /C calc'!A0")]
    found = answer("/api/export?q=k&as=csv", store_at(make_store(tmp_path / "s", sent).path))
    head, row = csv.reader(io.StringIO(found.text))
    cells = dict(zip(head, row, strict=True))
    assert (cells["tags"], cells["keys"]) == ("'@SUM(A1)", "k =1+1")
    assert cells["body"] == "'+cmd|' /C calc'!A0"


def test_a_carriage_return_begins_no_row(tmp_path):
    sent = [Sent(keys="k\r=1+1", tags="\r=2", body=b"x\r@SUM(A1)")]
    found = answer(
        "/api/export?q=k%0D%3D1%2B1&as=csv", store_at(make_store(tmp_path / "s", sent).path)
    )
    # As spreadsheet programs read it: each kind of line end outside of quotes ends a row.
    head, row = csv.reader(io.StringIO(found.text, newline=""))
    assert dict(zip(head, row, strict=True))["body"] == "x\r@SUM(A1)"
    assert not [line for line in csv.reader(found.text.split("\n")) if line and line[0][:1] in "=@"]


def test_what_a_user_may_not_see_is_not_in_the_file(tmp_path):
    sent = [Sent(topic=each, keys="all", body=b"{}") for each in ("order-paid", "salary")]
    store = store_at(make_store(tmp_path / "s", sent).path, "s")
    pay = user("pay", Grant(Role.VIEWER, ("s",), ("order-*",)))

    async def run():
        async with console_client(store, users=users(pay)) as client:
            refused = await client.get("/api/export?q=all")
            await log_in(client, "pay")
            paths = ("/api/export?q=all", "/api/export?topic=salary")
            return refused, *[await client.get(path) for path in paths]

    refused, found, hidden = asyncio.run(run())
    assert (refused.status_code, hidden.status_code) == (401, 404)
    assert [each["topic"] for each in lines_of(found)] == ["order-paid"]


def test_the_audit_log_has_a_line_before_anything_is_sent(orders):
    log = io.StringIO()
    answers(["/api/export?q=all&as=csv", "/api/export?topic=Ordrs"], orders, audit=AuditLog(log))
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(each["event"], each["asked"], each["form"]) for each in lines] == [
        ("export", {"q": "all"}, "csv"),
        ("export", {"topic": "Ordrs"}, "jsonl"),
    ]
    closed = io.StringIO()
    closed.close()
    audit = AuditLog(closed)
    found = answer("/api/export?q=all", orders, audit=audit)
    assert found.status_code == 503
    assert "ORDER-" not in found.text


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_file_that_lacks_messages_ends_with_a_line_that_says_so(orders, form):
    # Port 1 has no name server.
    found = answer(f"/api/export?q=ORDER-7&as={form}", orders, cluster_at("127.0.0.1:1", "gone"))
    if form == "jsonl":
        message, last = lines_of(found)
        assert message["keys"] == ["all", "ORDER-7"]
        assert last["complete"] is False
        (failed,) = last["coverage"]
        assert "127.0.0.1:1" in failed["source"]
        assert failed["error"]
    else:
        _, message, (last,) = csv.reader(io.StringIO(found.text))
        assert "all ORDER-7" in message
        assert last.startswith("# INCOMPLETE: failed sources were not searched")
        assert "127.0.0.1:1" in last


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_error_behind_the_first_page_is_the_last_line(tmp_path, monkeypatch, form):
    monkeypatch.setattr(limits, "MAX_EXPORT_ROWS", 4)
    monkeypatch.setattr("rocketlens.console.search.question.MAX_CONSOLE_SKIPPED", 9)
    monkeypatch.setattr("rocketlens.console.search.search.MAX_CONSOLE_SKIPPED", 9)
    sent = [Sent(keys="all", store_timestamp_ms=NOW_MS) for _ in range(20)]
    found = answer(f"/api/export?q=all&as={form}", store_at(make_store(tmp_path / "s", sent).path))
    assert found.status_code == 200
    *messages, last = found.text.splitlines()
    assert len(messages) == 12 + (form == "csv")
    assert f"over 9 messages were stored at {NOW_MS}" in last
    assert "NCOMPLETE" in last or json.loads(last)["complete"] is False


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ("", 400, "bad_input"),
        ("q=all&as=parquet", 400, "bad_input"),
        ("q=all&source=nonsense", 400, "bad_input"),
        ("topic=Ordrs", 404, "no_topic"),
    ],
)
def test_an_error_of_the_first_page_is_no_file(orders, asked, status, code):
    found = answer(f"/api/export?{asked}", orders)
    assert (found.status_code, found.json()["error"]["code"]) == (status, code)


def test_a_stream_too_many_is_refused_with_429(orders, monkeypatch):
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_SEARCHES", 0)
    found = answer("/api/search/stream?q=all", orders)
    assert (found.status_code, found.json()["error"]["code"]) == (429, "busy")
    assert "of your searches run already" in found.json()["error"]["message"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_file_is_sent_in_small_pieces_and_read_in_small_pages(tmp_path, monkeypatch, form):
    monkeypatch.setattr("rocketlens.console.search.search.MAX_EXPORT_PAGE_BYTES", 500_000)
    monkeypatch.setattr(limits, "MAX_EXPORT_PIECE_BYTES", 10_000)
    sent = [Sent(keys="all", body=b"%06d" % n + b"x" * 99_994) for n in range(12)]
    sent += [Sent(keys="all", body=b"small %d" % n) for n in range(50)]
    store = store_at(make_store(tmp_path / "s", sent).path)

    async def run():
        async with AsyncExitStack() as opened:
            asked = Question(text="all")
            searches = Searches(await open_sources([store], opened), BodyRules())
            pages = [len(page.messages) async for page in searches.pages(asked, form)]
            assert sum(pages) == len(sent)
            assert len(pages) > 2

            async def receive():
                await asyncio.Event().wait()

            request = Request({"type": "http", "method": "GET", "headers": []}, receive)
            found = await export(request, searches, asked, form)
            pieces = [each async for each in found.body_iterator]
            assert max(map(len, pieces)) <= limits.MAX_EXPORT_PIECE_BYTES
            return b"".join(pieces)

    whole = asyncio.run(run())
    assert whole == answer(f"/api/export?q=all&as={form}", store).content
    assert len(whole.splitlines()) == len(sent) + (form == "csv")


def test_a_file_too_many_is_refused_with_429(orders, monkeypatch):
    monkeypatch.setattr("rocketlens.console.room.MAX_USER_EXPORTS", 0)
    found = answer("/api/export?q=all", orders)
    assert (found.status_code, found.json()["error"]["code"]) == (429, "busy")
    assert "try again when one is complete" in found.json()["error"]["message"]


async def test_a_search_ends_when_its_reader_leaves_before_the_first_page():
    source = MadeSource([])
    searches = searches_of(source)

    async def receive():
        await source.is_asked.wait()
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "GET", "headers": []}, receive)
    await export(request, searches, Question(text="k"), "jsonl")
    assert source.was_cancelled
    assert (searches.running, searches.counts["left"]) == (0, 1)


async def test_a_search_ends_when_its_reader_leaves_behind_the_first_page(orders, monkeypatch):
    monkeypatch.setattr(limits, "MAX_EXPORT_ROWS", 2)
    with rocketlens.open_store(orders[1].store) as store:
        source = MadeSource(list(store.find("all")))
    source.go_on.set()
    searches = searches_of(source)

    async def receive():
        await asyncio.Event().wait()

    request = Request({"type": "http", "method": "GET", "headers": []}, receive)
    found = await export(request, searches, Question(text="k"), "jsonl")
    sent = found.body_iterator
    assert len((await anext(sent)).splitlines()) == 2
    assert searches.running == 1
    await sent.aclose()
    assert (searches.running, searches.counts["left"]) == (0, 1)


def test_the_api_describes_it(orders):
    described = answer("/api/openapi.json", orders).json()["paths"]["/api/export"]["get"]
    assert set(described["responses"]["200"]["content"]) >= {"text/csv", "application/x-ndjson"}
    names = {each["name"] for each in described["parameters"]}
    assert names >= {"as", "q", "topic", "since", "until", "where", "grep"}
