"""A source that never waits is asked by an event loop."""

import asyncio
import threading

import pytest

from rocketlens.model.answer import SourceKind
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.request import FindRequest
from rocketlens.query.threaded_source import ThreadedSource


class Endless:
    """Reads until nothing waits for it any more."""

    name, kind, is_one_log = "endless", SourceKind.COMMIT_LOG, True

    def __init__(self):
        self.is_under_way, self.has_ended = threading.Event(), threading.Event()

    def find(self, _request, findings):
        self.is_under_way.set()
        while findings.report_read(1, None, 1):
            pass
        self.has_ended.set()


class Recording:
    """Remembers in which thread what was asked."""

    name, kind, is_one_log = "recording", SourceKind.COMMIT_LOG, True

    def __init__(self):
        self.calls = []

    def find(self, request, _findings):
        self.calls.append((request.text, threading.current_thread()))

    def check_topics(self, names, _findings):
        self.calls.append((names, threading.current_thread()))


def nothing():
    return Findings(AnswerMessages(None))


async def test_a_search_whose_caller_is_cancelled_ends_at_its_next_step():
    local = Endless()
    searching = asyncio.create_task(ThreadedSource(local).find(FindRequest("k"), nothing()))
    await asyncio.to_thread(local.is_under_way.wait)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    await asyncio.to_thread(local.has_ended.wait)


def test_what_has_a_text_is_not_searched_where_much_is_read():
    keys, scans = Recording(), Recording()
    source = ThreadedSource(keys, scans=ThreadedSource(scans))

    async def ask():
        await source.find(FindRequest("k"), nothing())
        await source.find(FindRequest(), nothing())
        await source.check_topics(["T"], nothing())

    asyncio.run(ask())
    assert [text for text, _ in keys.calls] == ["k", ["T"]]
    assert [text for text, _ in scans.calls] == [None]
    assert threading.current_thread() not in [thread for _, thread in keys.calls + scans.calls]


def test_without_a_thread_nothing_waits():
    local = Recording()
    work = ThreadedSource(local, in_thread=False).find(FindRequest("k"), nothing())
    with pytest.raises(StopIteration):
        work.send(None)
    assert local.calls == [("k", threading.current_thread())]
