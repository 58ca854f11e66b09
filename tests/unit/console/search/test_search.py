"""Searches: bounded, watched while they run, ended when their reader is gone."""

import asyncio
import gc
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens import limits
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import FoundSoFar, ReadSoFar, Searches, _Watch
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import SearchAnswer
from rocketlens.decode.rules import BodyRules
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.message import MessageExt
from tests.support.made_stores import NOW_MS, Sent, make_store

SEARCHED = Coverage("here", SourceKind.BROKER, SourceState.SEARCHED)


class MadeSource(ConsoleSource):
    """A source that adds messages when the test lets it."""

    name = title = "made"
    kind = SourceKind.BROKER
    is_one_log = False

    def __init__(self, messages):
        self.source = self
        self.messages = messages
        self.go_on = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.was_cancelled = False

    async def find(self, _request, findings):
        self.is_asked.set()
        for message in self.messages[:2]:
            findings.add(message)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        for message in self.messages[2:]:
            findings.add(message)
        findings.cover((SEARCHED,))

    async def check_topics(self, names, findings):
        pass

    async def broker_of(self, _message):
        return "broker-a"


@pytest.fixture
def messages(tmp_path):
    sent = [Sent(keys="k", body=b"%d" % n, store_timestamp_ms=NOW_MS + n) for n in range(6)]
    with rocketlens.open_store(make_store(tmp_path / "store", sent).path) as store:
        return list(store.find("k"))


def searches_of(source):
    return Searches(Sources([source]), BodyRules())


async def test_messages_are_there_before_the_search_has_ended(messages):
    source = MadeSource(messages)
    searches = searches_of(source)
    events = searches.stream(Question(text="k", max_num=3))
    first = await anext(events)
    assert isinstance(first, FoundSoFar)
    assert [row.preview for row in first.rows] == ["0", "1"]
    assert not source.go_on.is_set()
    source.go_on.set()
    rest = [each async for each in events]
    assert isinstance(rest[-1], SearchAnswer)
    assert [row.preview for row in rest[-1].messages] == ["5", "4", "3"]
    assert sum(len(each.rows) for each in [first, *rest[:-1]]) <= 3
    assert searches.counts["complete"] == 1
    assert searches.running == 0


async def test_a_search_ends_when_its_reader_is_gone(messages):
    source = MadeSource(messages)
    searches = searches_of(source)
    events = searches.stream(Question(text="k"))
    await anext(events)
    await events.aclose()
    assert source.was_cancelled
    assert (searches.running, searches.counts["left"]) == (0, 1)


async def test_a_search_that_its_page_streams_counts_once(messages):
    source, lines = MadeSource(messages), []
    audit = SimpleNamespace(record=lambda what, **_: lines.append(what))
    searches = Searches(Sources([source]), BodyRules(), audit=audit)
    question = Question(text="k")
    page = asyncio.create_task(searches.search(question, may_be_streamed=True))
    # The page stops waiting while the source is held.
    await source.is_asked.wait()
    page.cancel()
    await asyncio.gather(page, return_exceptions=True)
    source.go_on.set()
    async for _ in searches.stream(question):
        pass
    assert lines == ["search"]
    assert (searches.counts["left"], searches.counts["complete"]) == (0, 1)


def test_what_is_read_is_reported_while_a_search_goes_on(messages):
    class Reading(MadeSource):
        async def find(self, request, findings):
            findings.report_read(50, 200, 7)
            await super().find(request, findings)

    async def run():
        source = Reading(messages)
        events = searches_of(source).stream(Question(text="k"))
        first = await anext(events)
        await events.aclose()
        return first.read

    read = asyncio.run(run())
    assert read == ReadSoFar(50, 7, 200)
    assert read.left_ms(1000) == 3000


def test_nothing_is_estimated_from_what_is_not_known(messages):
    one, other = MadeSource(messages), MadeSource(messages)
    watch = _Watch([one, other], 1, lambda: None)
    assert watch.read_so_far() is None
    watch.read(one, 0, 100, 0)
    assert watch.read_so_far().left_ms(1000) is None
    watch.read(one, 60, 100, 6)
    watch.read(other, 40, None, 4)
    assert watch.read_so_far() == ReadSoFar(100, 10, None)
    assert watch.read_so_far().left_ms(1000) is None


def test_a_search_that_finds_more_than_it_shows_reports_that_it_goes_on(messages):
    seconds = iter(range(1000))

    async def run():
        source, turn = MadeSource(messages), asyncio.Event()

        async def find(_request, findings):
            findings.add(messages[0])
            await turn.wait()
            findings.add(messages[1])
            await asyncio.Event().wait()

        source.find = find
        searches = Searches(Sources([source]), BodyRules(), lambda: next(seconds))
        events = searches.stream(Question(text="k", max_num=1))
        first = await anext(events)
        turn.set()
        second = await anext(events)
        await events.aclose()
        return first, second

    first, second = asyncio.run(run())
    assert (len(first.rows), len(second.rows)) == (1, 0)
    assert second.elapsed_ms > first.elapsed_ms


def test_a_search_that_takes_too_long_ends_with_what_it_found_and_says_so(messages, monkeypatch):
    monkeypatch.setattr("rocketlens.console.search.search.MAX_CONSOLE_SEARCH_S", 0.01)

    async def run():
        source = MadeSource(messages)
        searches = searches_of(source)
        answer = await searches.search(Question(text="k"))
        events = [each async for each in searches.stream(Question(text="k"))]
        assert source.was_cancelled
        return answer, events[-1]

    for answer in asyncio.run(run()):
        assert [row.preview for row in answer.messages] == ["1", "0"]
        assert answer.complete is False
        (failed,) = [each for each in answer.coverage if each.is_failure]
        assert failed.error.startswith("the search ended after 0.01 s: not everything was read")


def test_the_bodies_of_an_answer_are_not_kept_until_its_reader_takes_it(tmp_path):
    body = b"kept?" * 10_000
    with rocketlens.open_store(make_store(tmp_path / "s", [Sent(keys="k", body=body)]).path) as s:
        source = MadeSource(list(s.find("k")))
    source.go_on.set()

    async def run():
        events = searches_of(source).stream(Question(text="k"))
        last = [each async for each in _until_answer(events)][-1]
        assert last.messages
        source.messages.clear()
        # What woke this task up is forgotten with the next turn of the loop.
        await asyncio.sleep(0)
        gc.collect()
        kept = [each for each in gc.get_objects() if issubclass(type(each), MessageExt)]
        assert body not in [each.body for each in kept]
        await events.aclose()

    async def _until_answer(events):
        async for each in events:
            yield each
            if isinstance(each, SearchAnswer):
                return

    asyncio.run(run())


async def test_a_message_larger_than_a_page_may_be_is_a_page_of_its_own(messages, monkeypatch):
    monkeypatch.setattr("rocketlens.console.search.search.MAX_CONSOLE_ANSWER_BYTES", 1)
    source = MadeSource(messages)
    source.go_on.set()
    answer = await searches_of(source).search(Question(text="k"))
    assert [row.preview for row in answer.messages] == ["5"]
    assert answer.truncated
    assert answer.next_cursor


def test_where_a_message_came_from_is_remembered_for_the_newest_only(messages):
    source = MadeSource([])
    watch = _Watch([source], 1, lambda: None)
    for number in range(3 * limits.MAX_CONSOLE_ROWS):
        watch.added(source, replace(messages[0], store_timestamp_ms=number))
    assert len(watch._origins) <= limits.MAX_CONSOLE_ROWS + 2
    assert len(watch.added_since) == limits.MAX_CONSOLE_ROWS
    newest = replace(messages[0], store_timestamp_ms=3 * limits.MAX_CONSOLE_ROWS - 1)
    assert watch.origin(newest) is source


def test_a_filter_decodes_bodies_by_the_rules_of_the_console():
    rules = BodyRules()
    source = MadeSource([])
    request, chosen = Searches(Sources([source]), rules).check(Question(grep="x"))
    assert request.content.rules is rules
    assert chosen == [source]
