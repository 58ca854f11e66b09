"""A source that never waits is asked by an event loop."""

import asyncio
import threading

import pytest

from rocketlens.model.answer import SourceKind
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.request import FindRequest
from rocketlens.query.source import run, run_in_loop
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


async def test_a_source_is_asked_in_another_thread():
    local = Recording()
    source = ThreadedSource(local)
    await source.find(FindRequest("k"), nothing())
    await source.check_topics(["T"], nothing())
    assert [asked for asked, _ in local.calls] == ["k", ["T"]]
    assert threading.current_thread() not in [thread for _, thread in local.calls]
    assert (await source.oldest_ms(), await source.lacks(["T"])) == ({}, False)


def test_steps_get_the_answer_or_the_error_of_each_question():
    def steps():
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            first = yield lambda: 1
        return first + (yield lambda: 2)

    assert run(steps()) == 3
    assert asyncio.run(run_in_loop(steps())) == 3
