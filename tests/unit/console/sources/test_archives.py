"""The sources of the console: their names, their ends, and archives among them."""

import asyncio
import shutil
import threading
from contextlib import AsyncExitStack

import pytest

import rocketlens
from rocketlens import limits, testing
from rocketlens.archive.journal import ArchiveTables
from rocketlens.client.send.message import Message
from rocketlens.console.login.viewer import Grant, Role, Viewer, seen_by
from rocketlens.console.sources.sources import message_path, open_sources, source_names
from rocketlens.errors import ArchiveError, BadInput, NotAStore
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.request import FindRequest
from rocketlens.terminal.contexts import Context
from tests.support.archives import archive_store
from tests.support.console_client import answers, cluster_at, console_client, post_form, store_at
from tests.support.made_stores import Sent, make_store

SENT = [
    Sent(topic="Orders", keys=f"ORDER-{n}", unique_key=f"U-{n}", body=b'{"n":%d}' % n, tags="PAY")
    for n in range(5)
]


def archive_at(path, name="lake"):
    return name, Context(archive=str(path))


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """An archive whose store is gone."""
    made = make_store(tmp_path_factory.mktemp("gone") / "store", SENT)
    directory = tmp_path_factory.mktemp("lakes") / "lake"
    archive_store(directory, made.path)
    shutil.rmtree(made.path)
    return directory


@pytest.fixture(scope="module")
def lake_with_gap(tmp_path_factory):
    """An archive of a store with one damaged record."""
    made = make_store(tmp_path_factory.mktemp("damaged") / "store", SENT)
    (log,) = (made.path / "commitlog").iterdir()
    content = bytearray(log.read_bytes())
    at = made.records[2].physical_offset
    content[at + 8 : at + 60] = b"\xff" * 52
    log.write_bytes(content)
    directory = tmp_path_factory.mktemp("lakes") / "lake"
    archive_store(directory, made.path)
    return directory


def test_a_message_whose_store_is_gone_is_found_and_shown_with_its_story(lake):
    (found,) = answers(["/api/search?q=ORDER-3"], archive_at(lake))
    (row,) = found.json()["messages"]
    assert found.json()["complete"] is True
    assert (row["source"], row["preview"]) == ("lake", '{"n":3}')
    page, story, body = answers(
        [row["path"], f"{row['path']}?tab=story", f"{row['path']}/body"], archive_at(lake)
    )
    assert [each.status_code for each in (page, story, body)] == [200] * 3
    assert body.content == b'{"n":3}'
    assert "Stored" in story.text
    assert f"rocketlens show Orders/0/{row['queue_offset']} --archive {lake}" in page.text


@pytest.mark.parametrize(
    "asked", ["topic=Orders", "q=U-3", "where=body.%24.n+%3D+3", "grep=%223%22|%3A3", "tag=PAY"]
)
def test_it_is_searched_by_time_topic_id_and_content(lake, asked):
    (found,) = answers([f"/api/search?{asked}"], archive_at(lake))
    assert '{"n":3}' in [each["preview"] for each in found.json()["messages"]]
    assert found.json()["complete"] is True


def test_lists_and_the_page_of_a_topic_show_what_was_archived(lake):
    topics, topic, names, groups, page, sources = answers(
        [
            *("/api/topics", "/api/topics/Orders", "/api/topic-names", "/api/groups"),
            *("/topics/Orders", "/api/sources"),
        ],
        archive_at(lake),
    )
    assert [(each["name"], each["messages"]) for each in topics.json()["topics"]] == [("Orders", 5)]
    (in_source,) = topic.json()["sources"]
    assert (in_source["complete"], in_source["groups"], in_source["settings"]) == (True, None, [])
    assert names.json()["names"] == ["Orders"]
    assert groups.json()["groups"] == []
    assert page.status_code == 200
    assert [each["kind"] for each in sources.json()["sources"]] == ["archive"]


def test_what_it_holds_and_its_gaps_are_among_the_brokers_and_on_the_first_page(
    lake, lake_with_gap
):
    state, page, overview, found, first = answers(
        ["/api/brokers", "/brokers", "/overview", "/api/search?q=NOPE", "/brokers?source=lake"],
        *(archive_at(lake), archive_at(lake_with_gap, "short")),
    )
    whole, short = state.json()["archives"]
    (source,) = whole["sources"]
    assert (source["messages"], source["gaps"]) == (5, [])
    assert source["oldest_ms"] <= source["newest_ms"]
    (gap,) = short["sources"][0]["gaps"]
    assert short["sources"][0]["messages"] == 4
    assert state.json()["complete"] is False
    for each in (page, overview):
        assert gap in each.text
    assert gap not in first.text
    assert found.json()["complete"] is False
    failed = [each for each in found.json()["coverage"] if each["is_failure"]]
    assert [(each["source"], each["error"]) for each in failed] == [
        (f"{lake_with_gap}: DefaultCluster/broker-a", gap)
    ]


def test_an_archive_and_a_cluster_are_one_answer_with_what_each_holds(lake):
    with testing.cluster() as running:
        with running.producer() as producer:
            producer.send(Message("Orders", b"new", keys="ORDER-3"))
        contexts = archive_at(lake), cluster_at(running.name_server, "prod")
        found, page = answers(["/api/search?q=ORDER-3", "/search?q=ORDER-3"], *contexts)
    rows = found.json()["messages"]
    assert {(row["source"], row["preview"]) for row in rows} == {
        ("prod", "new"),
        ("lake", '{"n":3}'),
    }
    assert found.json()["complete"] is True
    (held,) = [each for each in found.json()["coverage"] if each["kind"] == "archive"]
    assert held["held_from_ms"] <= held["indexed_to_ms"]
    assert f"--archive {lake} ORDER-3" in page.text


def test_a_message_of_an_archive_is_sent_to_a_cluster_again(lake):
    async def run(running):
        contexts = archive_at(lake), cluster_at(running.name_server, "prod")
        async with console_client(*contexts) as client:
            found = await client.get("/api/search?q=ORDER-3&source=lake")
            path = found.json()["messages"][0]["path"]
            page = await client.get(f"{path}/resend")
            _, fields = post_form(page.text)
            done = await client.post(f"{path}/resend", data={**fields, "reason": "lost"})
            assert done.status_code == 303, done.text
            shown = await client.get(done.headers["location"])
            assert "1 sent, 0 failed, 0 unknown, 0 left" in shown.text
            again = await client.get("/api/search?q=ORDER-3&source=prod")
            return again.json()["messages"]

    with testing.cluster() as running:
        with running.producer() as producer:
            producer.send(Message("Orders", b"other"))
        (sent,) = asyncio.run(run(running))
    assert (sent["source"], sent["preview"]) == ("prod", '{"n":3}')


def test_one_that_cannot_be_opened_is_refused_with_a_line(tmp_path):
    with pytest.raises(ArchiveError, match="is not an archive"):
        answers(["/"], archive_at(tmp_path))


def test_an_archive_is_opened_and_listed_once_for_all_that_is_asked(lake, monkeypatch):
    opened, listed = [], []
    open_table, files = ArchiveTables._open, ArchiveTables.files
    monkeypatch.setattr(
        ArchiveTables,
        "_open",
        lambda self, name, *rest, **how: (
            opened.append(name) or open_table(self, name, *rest, **how)
        ),
    )
    monkeypatch.setattr(
        ArchiveTables, "files", lambda self, name: listed.append(name) or files(self, name)
    )
    asked = ["/api/search?q=ORDER-3", "/api/search?topic=Orders", "/api/topics", "/api/brokers"]
    found, searched, *_ = answers([*asked, *asked], archive_at(lake))
    assert len(found.json()["messages"]) == 1
    assert len(searched.json()["messages"]) == 5
    assert sorted(opened) == ["journal", "message_keys", "messages"]
    assert sorted(set(listed)) == sorted(opened)
    assert listed.count("messages") == listed.count("message_keys") == 1


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


async def test_a_search_of_a_store_reports_how_much_of_it_is_read(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="k", body=b"x" * 10)] * 2000)
    reported = []
    async with AsyncExitStack() as stack:
        (source,) = await open_sources([store_at(made.path)], stack)
        findings = Findings(AnswerMessages(None), on_read=lambda *read: reported.append(read))
        await source.source.find(FindRequest.parse(None, grep="nothing"), findings)
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
            [f"{path}?tab=body", path, "/topics", "/groups"], *contexts
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
        assert sources._by_viewer.cache_info().currsize == 2
