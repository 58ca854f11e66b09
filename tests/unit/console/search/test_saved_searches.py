"""A search is saved as it was asked, and is shown to those alone who may know of it."""

import asyncio
import errno
import io
import json
from contextlib import AsyncExitStack

import pytest

from rocketlens.console.act.permission import ActRefused
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.viewer import Grant, Role, Viewer, seen_by
from rocketlens.console.room import ConsoleBusy
from rocketlens.console.search.question import Question
from rocketlens.console.search.saved_searches import SavedSearches
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.masks import MaskRule, Masks
from rocketlens.console.sources.sources import open_sources
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput, MessageNotFound, RocketLensError
from rocketlens.store.disk import Disk
from rocketlens.store.lock import StoreLock
from tests.support.console_client import store_at
from tests.support.made_stores import Sent, make_store

ORDERS = Viewer("orders", (Grant(Role.VIEWER, ("s",), ("order-*",)),))
ALL = Viewer("all", (Grant(Role.OPERATOR),))
ROOT = Viewer("root", (Grant(Role.ADMIN),))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "saved-searches.json"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("saved") / "store", [Sent(topic="order-paid")]).path


def with_saved(store, path, work, *, disk=None, **options):
    """Give what a function returns that is given the saved searches of a console over two sources
    of one store, ``s`` and ``other``.
    """

    async def run():
        async with AsyncExitStack() as opened:
            contexts = [store_at(store, "s"), store_at(store, "other")]
            searches = Searches(await open_sources(contexts, opened), BodyRules(), **options)
            return await work(SavedSearches(searches, path, disk))

    return asyncio.run(run())


def titles(found):
    return [each.title for each in found]


async def titles_for(saved, viewer, **options):
    with seen_by(viewer):
        return titles(await saved.seen(**options))


async def save(saved, viewer, title="mine", *, is_shared=False, **asked):
    with seen_by(viewer):
        question = Question.read(**(asked or {"q": "ORDER-1"}))
        return await saved.save(question, title, is_shared=is_shared)


def test_the_question_is_kept_and_nothing_that_was_found(store, path):
    asked = {"q": "k", "topic": "order-paid", "since": "2h", "tag": "A", "sources": ["s"]}

    async def work(saved):
        made = await save(saved, ORDERS, "  two \n words ", is_shared=True, **asked)
        return made, await saved.seen(everything=True)

    made, seen = with_saved(store, path, work)
    assert seen == [made]
    # Times stay as they were typed: 2h is 2h before it is opened.
    assert made.query == "q=k&topic=order-paid&tag=A&since=2h&source=s"
    assert (made.title, made.user, made.is_shared) == ("two words", "orders", True)
    (kept,) = json.loads(path.read_text())["searches"]
    assert set(kept) == {
        *("name", "title", "user", "is_shared", "time_ms", "asked", "topics", "sources")
    }


def test_a_cursor_is_not_kept(store, path):
    cursor = "WzEsImEiLDEsMSwidCIsMSwxLDFd"
    made = with_saved(store, path, lambda saved: save(saved, ORDERS, q="k", cursor=cursor))
    assert made.query == "q=k"


def test_another_console_of_the_same_user_has_them_at_once(store, path):
    async def work(first):
        second = SavedSearches(first._searches, path)
        await save(first, ORDERS, "one")
        before = await titles_for(second, ORDERS)
        await save(first, ORDERS, "two")
        return before, await titles_for(second, ORDERS)

    assert with_saved(store, path, work) == (["one"], ["two", "one"])


def test_others_see_those_alone_that_are_shared(store, path):
    async def work(saved):
        await save(saved, ORDERS, "private")
        await save(saved, ORDERS, "shared", is_shared=True)
        own = await titles_for(saved, ORDERS)
        others = [await titles_for(saved, viewer) for viewer in (ALL, ROOT)]
        everything = [await titles_for(saved, v, everything=True) for v in (ALL, ROOT)]
        return own, others, everything

    own, others, everything = with_saved(store, path, work)
    assert own == ["shared", "private"]
    assert others == [["shared"], ["shared"]]
    assert everything == [["shared"], ["shared", "private"]]


@pytest.mark.parametrize(
    ("asked", "is_seen"),
    [
        ({"q": "ORDER-1"}, True),
        ({"topic": "order-paid"}, True),
        ({"topic": "order-*"}, True),
        ({"q": "ORDER-1", "sources": ["s"]}, True),
        ({"q": "order-paid/0/1"}, True),
        ({"topic": "salary"}, False),
        ({"topic": "salary-*"}, False),
        ({"topic": "order-paid,salary"}, False),
        ({"q": "topic:salary x"}, False),
        ({"q": "salary/0/1"}, False),
        ({"q": "salary/0/1", "kind": "queue-offset"}, False),
        ({"where": "topic = 'salary'"}, False),
        ({"topic": "order-*", "where": "topic IN ('salary', 'x')"}, False),
        ({"where": "topic IN ('salary') OR TAGS = 'x'"}, False),
        ({"where": "topic = 'order-paid' AND topic NOT IN ('salary')"}, False),
        ({"where": "topic <> 'salary'"}, False),
        ({"where": "topic STARTSWITH 'salar'"}, False),
        ({"where": "topic =~ 'salary'"}, False),
        ({"where": "topic = 'order-paid' AND (TAGS = 'topic' OR KEYS = 'x')"}, True),
        ({"q": "ORDER-1", "sources": ["other"]}, False),
        ({"q": "ORDER-1", "sources": ["s", "other"]}, False),
    ],
)
def test_a_shared_search_is_shown_to_those_who_may_see_the_topics_that_it_names(
    store, path, asked, is_seen
):
    async def work(saved):
        made = await save(saved, ALL, "it", is_shared=True, **asked)
        found = [await titles_for(saved, viewer) for viewer in (ALL, ROOT, ORDERS)]
        with seen_by(ORDERS), pytest.raises(ActRefused if is_seen else MessageNotFound) as error:
            await saved.delete(made.name)
        return found, str(error.value)

    (own, admins, others), said = with_saved(store, path, work)
    assert own == admins == ["it"]
    assert others == (["it"] if is_seen else [])
    assert is_seen or "salary" not in said


def test_one_deletes_ones_own_and_an_administrator_any(store, path):
    async def work(saved):
        own = await save(saved, ORDERS, "own")
        private = await save(saved, ORDERS, "private")
        await save(saved, ORDERS, "left")
        for viewer, error in ((ALL, MessageNotFound), (ORDERS, None)):
            with seen_by(viewer):
                if error is None:
                    await saved.delete(own.name)
                else:
                    with pytest.raises(error, match="there is no saved search"):
                        await saved.delete(own.name)
        with seen_by(ROOT):
            await saved.delete(private.name)
            with pytest.raises(MessageNotFound, match="there is no saved search"):
                await saved.delete(private.name)
        return await titles_for(saved, ORDERS)

    assert with_saved(store, path, work) == ["left"]


def test_without_users_all_are_of_one_user(store, path):
    async def work(saved):
        made = await saved.save(Question.read(q="k"), "mine", is_shared=False)
        return made, titles(await saved.seen())

    made, found = with_saved(store, path, work)
    assert (made.user, found) == ("", ["mine"])


def test_both_bounds_hold_and_name_what_to_do(store, path, monkeypatch):
    monkeypatch.setattr("rocketlens.console.search.saved_searches.MAX_USER_SAVED_SEARCHES", 2)
    monkeypatch.setattr("rocketlens.console.search.saved_searches.MAX_SAVED_SEARCHES", 3)

    async def work(saved):
        for viewer, title in ((ORDERS, "a"), (ORDERS, "b")):
            await save(saved, viewer, title)
        with pytest.raises(BadInput, match="you have 2 saved searches: delete one first"):
            await save(saved, ORDERS, "c")
        await save(saved, ALL, "a")
        with pytest.raises(BadInput, match="this console has 3 saved searches"):
            await save(saved, ALL, "b")
        return await titles_for(saved, ROOT, everything=True)

    assert sorted(with_saved(store, path, work)) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("title", "asked", "said"),
    [
        (" \n", {"q": "k"}, "a name is needed"),
        ("x" * 101, {"q": "k"}, "at most 100 characters"),
        ("taken", {"q": "k"}, "you have a search named 'taken'"),
        ("a", {"max_num": 3}, "nothing to find"),
        ("a", {"q": "k", "sources": ["nowhere"]}, "there is no source"),
        ("a", {"where": "body.$.n >"}, "a value is expected"),
        ("a", {"q": "k" * 4001}, "this search has over 4000 characters"),
    ],
)
def test_what_cannot_be_saved_is_an_error_and_changes_nothing(store, path, title, asked, said):
    async def work(saved):
        await save(saved, ORDERS, "taken")
        before = path.read_bytes()
        with pytest.raises(BadInput, match=said):
            await save(saved, ORDERS, title, **asked)
        return before

    assert with_saved(store, path, work) == path.read_bytes()


def test_a_filter_that_could_find_out_what_is_masked_is_not_saved(store, path):
    async def work(saved):
        with pytest.raises(BadInput, match="masked for you"):
            await save(saved, ALL, grep="secret")

    with_saved(store, path, work, masks=Masks([MaskRule(("*",), ("PHONE",))]))
    assert not path.exists()


SEARCH = {
    "name": "20261120T000000-000000000000",
    "title": "t",
    "user": "u",
    "is_shared": False,
    "time_ms": 1,
    "asked": [["q", "k"]],
    "topics": [],
    "sources": [],
}


def test_the_file_of_the_next_test_is_sound_before_it_is_damaged(store, path):
    path.parent.mkdir()
    path.write_text(json.dumps({"version": 1, "searches": [SEARCH]}))
    (found,) = with_saved(store, path, lambda saved: saved.seen(everything=True))
    assert found.query == "q=k"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"version": 2, "searches": []}',
        b'{"version": 1}',
        b'{"version": 1, "searches": {}, "x',
        *(
            json.dumps({"version": 1, "searches": [each]}).encode()
            for each in (
                7,
                {},
                {**SEARCH, "more": 1},
                {**SEARCH, "title": None},
                {**SEARCH, "is_shared": 1},
                {**SEARCH, "time_ms": "1"},
                {**SEARCH, "asked": 1},
                {**SEARCH, "asked": ["qk"]},
                {**SEARCH, "asked": [["q"]]},
                {**SEARCH, "asked": [["q", 1]]},
                {**SEARCH, "topics": "abc"},
                {**SEARCH, "sources": [1]},
            )
        ),
    ],
)
def test_a_damaged_file_is_an_error_and_stays_as_it_is(store, path, content):
    path.parent.mkdir()
    path.write_bytes(content)

    async def work(saved):
        for doing in (saved.seen(), save(saved, ORDERS), saved.delete(SEARCH["name"])):
            with pytest.raises(RocketLensError, match="is damaged") as error:
                await doing
            assert str(path) in str(error.value)

    with_saved(store, path, work)
    assert path.read_bytes() == content


def test_a_file_that_is_too_large_is_an_error(store, path, monkeypatch):
    monkeypatch.setattr("rocketlens.console.search.saved_searches.MAX_SAVED_BYTES", 100)

    async def work(saved):
        await save(saved, ORDERS)
        with pytest.raises(RocketLensError, match="it has over 100 bytes"):
            await saved.seen()

    with_saved(store, path, work)


def test_while_another_program_changes_them_nothing_is_changed(store, path):
    async def work(saved):
        await save(saved, ORDERS, "one")
        lock = StoreLock(path.parent, f"{path.name}.lock")
        try:
            with pytest.raises(ConsoleBusy, match="try again"):
                await save(saved, ORDERS, "two")
        finally:
            lock.release()
        await save(saved, ORDERS, "three")
        return await titles_for(saved, ORDERS)

    assert with_saved(store, path, work) == ["three", "one"]


class FullDisk(Disk):
    """A disk that is full from the second file on."""

    written = 0

    def sync_file(self, path):
        self.written += 1
        if self.written > 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        super().sync_file(path)


def test_on_a_full_disk_the_old_ones_stay(store, path):
    async def work(saved):
        await save(saved, ORDERS, "one")
        with pytest.raises(OSError, match="No space left"):
            await save(saved, ORDERS, "two")
        return await titles_for(saved, ORDERS)

    assert with_saved(store, path, work, disk=FullDisk()) == ["one"]
    assert [each.name for each in path.parent.iterdir() if each.suffix == ".new"] == []


def test_each_change_is_in_the_audit_log(store, path):
    log = io.StringIO()

    async def work(saved):
        made = await save(saved, ORDERS, "one", topic="order-paid", is_shared=True)
        with seen_by(ROOT):
            await saved.delete(made.name)

    with_saved(store, path, work, audit=AuditLog(log))
    first, second = map(json.loads, log.getvalue().splitlines())
    assert (first["event"], first["user"], first["title"]) == ("save-search", "orders", "one")
    assert (first["asked"], first["shared"]) == ({"topic": "order-paid"}, True)
    assert (second["event"], second["user"], second["owner"]) == ("delete-search", "root", "orders")
