"""Sources have names of their own; a search of a store ends when its reader is gone."""

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest

import rocketlens
from rocketlens import limits, testing
from rocketlens.client.send.message import Message
from rocketlens.console.login.viewer import Grant, Role, Viewer, seen_by
from rocketlens.console.sources.sources import message_path, open_sources, source_names
from rocketlens.errors import BadInput, NotAStore
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.request import FindRequest
from rocketlens.terminal.contexts import Context
from tests.support.console_client import answers, cluster_at, store_at
from tests.support.made_stores import Sent, make_store


def test_names_are_fit_for_addresses_and_no_two_the_same():
    contexts = [
        ("prod", Context(namesrv="a:1")),
        (None, Context(store="/data/a b/store")),
        (None, Context(store="/other/store")),
        (None, Context(namesrv="10.0.0.1:9876;10.0.0.2:9876")),
        ("../x", Context(store="/x")),
    ]
    assert source_names(contexts) == [
        "prod",
        "store",
        "store-2",
        "10.0.0.1-9876-10.0.0.2-9876",
        "x",
    ]


def opened(*contexts):
    async def run():
        async with AsyncExitStack() as stack:
            return [each.name for each in await open_sources(contexts, stack)]

    return asyncio.run(run())


def test_no_source_too_many_and_no_store_are_refused(tmp_path):
    with pytest.raises(BadInput):
        opened()
    with pytest.raises(BadInput):
        opened(*[store_at(tmp_path)] * (limits.MAX_CONSOLE_SOURCES + 1))
    with pytest.raises(NotAStore):
        opened(store_at(tmp_path / "nothing"))


def test_a_search_that_is_left_stops_reading(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="k", body=b"x" * 1000)] * 50)

    async def run():
        async with AsyncExitStack() as stack:
            (source,) = await open_sources([store_at(made.path)], stack)
            findings = Findings(AnswerMessages(None))
            searching = asyncio.create_task(source.source.find(FindRequest(text="k"), findings))
            await asyncio.sleep(0)
            searching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await searching
            # The next search is answered in full.
            again = Findings(AnswerMessages(None))
            await source.source.find(FindRequest(text="k"), again)
            return again.count

    assert asyncio.run(run()) == 50


def test_a_search_of_a_store_reports_how_much_of_it_is_read(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="k", body=b"x" * 10)] * 2000)
    reported = []

    async def run():
        async with AsyncExitStack() as stack:
            (source,) = await open_sources([store_at(made.path)], stack)
            findings = Findings(AnswerMessages(None), on_read=lambda *read: reported.append(read))
            await source.source.find(FindRequest.parse(None, grep="nothing"), findings)

    asyncio.run(run())
    read_bytes, total_bytes, messages = reported[-1]
    assert 1000 < messages <= 2000
    assert total_bytes / 2 < read_bytes <= total_bytes


def test_a_search_by_key_does_not_wait_for_one_that_reads_much(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="k")])

    async def run():
        async with AsyncExitStack() as stack:
            (source,) = await open_sources([store_at(made.path)], stack)
            go_on = threading.Event()
            reading = asyncio.create_task(source.scans.run(go_on.wait))
            findings = Findings(AnswerMessages(None))
            try:
                await source.source.find(FindRequest(text="k"), findings)
                assert not reading.done()
            finally:
                go_on.set()
            await reading
            return findings.count

    assert asyncio.run(run()) == 1


def test_a_cluster_and_a_store_answer_as_one_and_brokers_have_names(tmp_path):
    made = make_store(tmp_path / "old", [Sent(topic="Orders", keys="ORDER-1", body=b"old")])
    with testing.cluster() as running:
        with running.producer() as producer:
            producer.send(Message("Orders", b"new", keys="ORDER-1"))
        contexts = cluster_at(running.name_server, "prod"), store_at(made.path, "old")
        (found,) = answers(["/api/search?q=ORDER-1"], *contexts)
        rows = found.json()["messages"]
        assert found.json()["complete"]
        assert {(row["source"], row["preview"]) for row in rows} == {
            ("prod", "new"),
            ("old", "old"),
        }
        (path,) = [row["path"] for row in rows if row["source"] == "prod"]
        assert path.startswith("/m/prod/Orders/broker-a/")
        page, story, topics, groups = answers(
            [path, f"{path}?tab=story", "/topics", "/groups"], *contexts
        )
        assert [each.status_code for each in (page, story, topics, groups)] == [200] * 4
        assert "new" in page.text
        assert "Stored" in story.text
        assert "Orders" in topics.text


def test_an_address_has_every_part_escaped(tmp_path):
    made = make_store(tmp_path / "store", [Sent(topic="%RETRY%g", keys="k")])
    with rocketlens.open_store(made.path) as store:
        assert message_path("s", store.find("k")[0], "a/b?c") == "/m/s/%25RETRY%25g/a%2Fb%3Fc/0/0"


async def test_sources_of_a_bounded_number_of_users_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.console.sources.sources._MAX_VIEWERS", 2)
    store = store_at(make_store(tmp_path / "store", [Sent(keys="k")]).path, "s")
    async with AsyncExitStack() as stack:
        sources = await open_sources([store], stack)
        for number in range(5):
            with seen_by(Viewer(f"u{number}", (Grant(Role.VIEWER),))):
                assert [each.name for each in sources] == ["s"]
        assert [each.name for each in sources._seen] == ["u3", "u4"]
